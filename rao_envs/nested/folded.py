"""The folded view: a frame sees its arguments as slots, each a digit, an open bracket or a known answer. Compiled.

A range of more arguments than slots shows as two slots, its halves. A frame works on its own range with children, or alone with a cursor:
`descend` moves it to a slot, an answer moves it back up with a value. Answers are kept for the cursor's range, and for `stack` more
levels above it; a lower level takes the place of the highest one kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit
from rao_envs.nested.generator import N_OPERATORS, NO_BRACKET
from rao_envs.nested.kernels import (
    NO_ANSWER,
    NO_PART,
    answer_frame,
    begin_task,
    bracket_of,
    middle_of,
    note_answer,
    open_frame,
    resolve_frame,
    share_right,
    tokens_of,
)

NOTHING = -1
"""In `owner`: nobody's answers."""


class FoldedState(NamedTuple):
    """A batch of `n` texts of at most L tokens, B brackets and L arguments; D depths, K slots, S = stack + 1 levels of answers."""

    config: npt.NDArray[Any]  # CONFIG (1,)
    capacity: npt.NDArray[np.int64]  # (levels of nesting + 1,), see `generator.capacities`
    texts: npt.NDArray[np.int8]  # the given texts' tokens, one after the other
    offsets: npt.NDArray[np.int64]  # (texts,) where each begins
    lengths: npt.NDArray[np.int64]  # (texts,)
    choice: npt.NDArray[np.int64]  # (n,) the given text asked for; -1: any
    task: npt.NDArray[Any]  # TASK (n,)
    tokens: npt.NDArray[np.int8]  # (n, L)
    brackets: npt.NDArray[Any]  # BRACKET (n, B)
    arguments: npt.NDArray[Any]  # ARGUMENT (n, L)
    seen: npt.NDArray[np.int8]  # (n, B) UNSEEN, RIGHT or WRONG (dense feedback only, else (n, 0))
    right: npt.NDArray[np.int64]  # (n,) brackets whose first answer was right
    frames: npt.NDArray[Any]  # FRAME (n, D)
    answers: npt.NDArray[np.int8]  # (n, D, S, K) answers to the slots of the levels kept, or NO_ANSWER
    owner: npt.NDArray[np.int32]  # (n, D, S) the level whose answers each row holds
    group: npt.NDArray[np.int8]  # (n, D, K) the slots of the latest spawn's children


@inline
def slots_of(domain: FoldedState, low: int, high: int) -> int:
    """How many slots a range has."""
    count = high - low
    return count if count <= domain.config[0]["slots"] else 2


@inline
def row_of(domain: FoldedState, level: int) -> int:
    """Which row of `answers` belongs to a level of the cursor."""
    return level % domain.answers.shape[2]


@inline
def is_split(domain: FoldedState, low: int, high: int) -> bool:
    """Whether a range shows as two halves."""
    return high - low > domain.config[0]["slots"]


@inline
def is_open(domain: FoldedState, i: int, bracket: int, low: int, high: int, slot: int) -> bool:
    """Whether a slot of a range is something to be worked out, answered or not: a bracket or a half."""
    if slot >= slots_of(domain, low, high):
        return False
    return is_split(domain, low, high) or bracket_of(domain, i, bracket, low + slot) != NO_BRACKET


@inline
def low_of(domain: FoldedState, low: int, high: int, slot: int) -> int:
    """First argument of a half."""
    return low if slot == 0 else middle_of(low, high)


@inline
def high_of(domain: FoldedState, low: int, high: int, slot: int) -> int:
    """End of a half."""
    return middle_of(low, high) if slot == 0 else high


@inline
def keep_answers(domain: FoldedState, i: int, depth: int, level: int) -> int:
    """The row with the answers of `level`, emptied if another level had taken it."""
    row = row_of(domain, level)
    if domain.owner[i, depth, row] != level:
        domain.owner[i, depth, row] = level
        for slot in range(domain.answers.shape[3]):
            domain.answers[i, depth, row, slot] = NO_ANSWER
    return row


@inline
def set_frame(domain: FoldedState, i: int, depth: int, bracket: int, low: int, high: int, part: int) -> None:
    """A new frame, its cursor on its own range."""
    open_frame(domain, i, depth, bracket, low, high, part)
    for row in range(domain.owner.shape[2]):
        domain.owner[i, depth, row] = NOTHING
    keep_answers(domain, i, depth, 0)


@jit
def begin(domain: FoldedState, stack: CallStack, i: int) -> None:
    """A new task."""
    begin_task(domain, stack, i)
    set_frame(domain, i, 0, 0, 0, domain.brackets[i, 0]["count"], NO_PART)


@inline
def is_unanswered(domain: FoldedState, i: int, depth: int, slot: int) -> bool:
    """Whether a slot of a frame's own range is open and has no answer."""
    frame = domain.frames[i, depth]
    return domain.answers[i, depth, 0, slot] == NO_ANSWER and is_open(domain, i, frame["bracket"], frame["low"], frame["high"], slot)


@inline
def first_spawn(domain: FoldedState) -> int:
    """The action that spawns for slot 0."""
    config = domain.config[0]
    return config["modulus"] + config["slots"] + config["notes"]


@inline
def fanout(domain: FoldedState, stack: CallStack, i: int, action: int) -> int:
    """One child, or one for each open slot without an answer."""
    slots = domain.config[0]["slots"]
    if action < first_spawn(domain) + slots:
        return 1
    depth = stack.episodes[i]["depth"]
    count = 0
    for slot in range(slots):
        count += is_unanswered(domain, i, depth, slot)
    return count


@inline
def allowed(domain: FoldedState, stack: CallStack, i: int, action: int) -> bool:
    """Answers always; `descend` to open slots; another note; at home, spawns for open slots without an answer."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    modulus, slots, notes = config["modulus"], config["slots"], config["notes"]
    if action < modulus:
        return True
    action -= modulus
    if action < slots:
        return is_open(domain, i, frame["at_bracket"], frame["at_low"], frame["at_high"], action)
    action -= slots
    if action < notes:
        return frame["note"] != action + 1
    if frame["level"] > 0:
        return False
    action -= notes
    if action < slots:
        return is_unanswered(domain, i, depth, action)
    return fanout(domain, stack, i, first_spawn(domain) + slots) > 0


@inline
def descend(domain: FoldedState, i: int, depth: int, slot: int) -> None:
    """Move the cursor to a slot of its range."""
    frame = domain.frames[i, depth]
    low, high = frame["at_low"], frame["at_high"]
    if is_split(domain, low, high):
        frame["at_low"], frame["at_high"] = low_of(domain, low, high, slot), high_of(domain, low, high, slot)
    else:
        inner = bracket_of(domain, i, frame["at_bracket"], low + slot)
        frame["at_bracket"], frame["at_low"], frame["at_high"] = inner, 0, domain.brackets[i, inner]["count"]
    frame["level"] += 1
    domain.owner[i, depth, row_of(domain, frame["level"])] = NOTHING
    keep_answers(domain, i, depth, frame["level"])


@inline
def ascend(domain: FoldedState, i: int, depth: int, answer: int) -> None:
    """Move the cursor up with an answer to the range it leaves."""
    frame = domain.frames[i, depth]
    bracket, low, high = frame["at_bracket"], frame["at_low"], frame["at_high"]
    note_answer(domain, i, bracket, low, high, answer)
    place = low  # the argument to look for on the way down from the whole bracket to the range above
    if low == 0 and high == domain.brackets[i, bracket]["count"]:
        place = domain.brackets[i, bracket]["place"]
        bracket = domain.brackets[i, bracket]["parent"]
        low, high = 0, 0
    at_low, at_high = 0, int(domain.brackets[i, bracket]["count"])
    slot = 0
    while is_split(domain, at_low, at_high):
        middle = middle_of(at_low, at_high)
        slot = 0 if place < middle else 1
        next_low, next_high = (at_low, middle) if slot == 0 else (middle, at_high)
        if next_low == low and next_high == high:
            break
        at_low, at_high = next_low, next_high
    if not is_split(domain, at_low, at_high):
        slot = place - at_low
    frame["at_bracket"], frame["at_low"], frame["at_high"] = bracket, at_low, at_high
    frame["level"] -= 1
    row = keep_answers(domain, i, depth, frame["level"])
    domain.answers[i, depth, row, slot] = answer


@inline
def act(domain: FoldedState, stack: CallStack, i: int, action: int) -> None:
    """Answer what the cursor is on, descend, or write a note."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    if action < config["modulus"]:
        if frame["level"] == 0:
            answer_frame(domain, stack, i, action)
        else:
            ascend(domain, i, depth, action)
    elif action < config["modulus"] + config["slots"]:
        descend(domain, i, depth, action - config["modulus"])
    else:
        frame["note"] = action - config["modulus"] - config["slots"] + 1


@inline
def open_child(domain: FoldedState, stack: CallStack, i: int, action: int, k: int) -> int:
    """A slot of the acting frame's range; its budget is what working through its tokens by oneself would take."""
    depth = stack.episodes[i]["depth"]
    slots = domain.config[0]["slots"]
    frame = domain.frames[i, depth]
    group = domain.group[i, depth]
    slot = action - first_spawn(domain)
    if slot == slots:
        if k == 0:
            members = 0
            for each in range(slots):
                if is_unanswered(domain, i, depth, each):
                    group[members] = each
                    members += 1
        slot = group[k]
    bracket, low, high = frame["bracket"], frame["low"], frame["high"]
    if is_split(domain, low, high):
        low, high = low_of(domain, low, high, slot), high_of(domain, low, high, slot)
        set_frame(domain, i, depth + 1, bracket, low, high, slot)
        return 2 * tokens_of(domain, i, bracket, low, high)
    inner = bracket_of(domain, i, bracket, low + slot)
    set_frame(domain, i, depth + 1, inner, 0, domain.brackets[i, inner]["count"], slot)
    return 2 * (domain.brackets[i, inner]["end"] - domain.brackets[i, inner]["start"])


@inline
def resolve(domain: FoldedState, stack: CallStack, i: int) -> int:
    """Success if the answer is right."""
    return resolve_frame(domain, stack, i)


@inline
def receive(domain: FoldedState, stack: CallStack, i: int, success: bool) -> None:
    """The child's answer, right or wrong, goes into its slot; without one the slot stays open."""
    depth = stack.episodes[i]["depth"]
    child = domain.frames[i, depth + 1]
    domain.answers[i, depth, 0, child["part"]] = child["answer"]


@inline
def progress(domain: FoldedState, stack: CallStack, i: int) -> float:
    """Share of the brackets rightly answered."""
    return share_right(domain, i)


@inline
def observe(domain: FoldedState, stack: CallStack, obs: Observation, i: int) -> None:
    """The cursor's range, one-hot and counted; `rao_envs.nested.domain` lays out the fields."""
    config = domain.config[0]
    modulus, slots = config["modulus"], config["slots"]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    bracket, low, high = frame["at_bracket"], frame["at_low"], frame["at_high"]
    task, results = obs.task[i], obs.results[i]
    for k in range(task.shape[0]):
        task[k] = 0
    for k in range(results.shape[0]):
        results[k] = 0
    task[domain.brackets[i, bracket]["operator"]] = 1
    task[N_OPERATORS] = frame["level"] == 0
    at = N_OPERATORS + 1
    counts = at + slots * (1 + modulus)
    notes = counts + modulus * slots
    row = row_of(domain, frame["level"])
    first = domain.brackets[i, bracket]["first"] + low
    for slot in range(slots_of(domain, low, high)):
        value = domain.answers[i, depth, row, slot]
        if is_open(domain, i, bracket, low, high, slot):
            task[at + slot * (1 + modulus)] = value == NO_ANSWER
            if value != NO_ANSWER:
                results[slot * modulus + value] = 1
        else:
            value = domain.arguments[i, first + slot]["digit"]
            task[at + slot * (1 + modulus) + 1 + value] = 1
        if value != NO_ANSWER:
            bar = counts + value * slots  # a bar, not one-hot: what adds up is a sum of such bits
            while task[bar] == 1:
                bar += 1
            task[bar] = 1
    if frame["note"] > 0:
        task[notes + frame["note"] - 1] = 1


implement(
    FoldedState,
    begin=begin,
    allowed=allowed,
    act=act,
    fanout=fanout,
    open_child=open_child,
    resolve=resolve,
    receive=receive,
    observe=observe,
    progress=progress,
)
