"""The raw view: a frame reads its arguments' tokens through a small window. Compiled.

A bracket in the window that has an answer, a child's or one's own (`reduce`), is one token from then on, the answer, and later tokens
move up. What leaves the window is forgotten, answers included: the window is all the room there is, besides one note (and a stack of
notes, as an option).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit
from rao_envs.nested.generator import CLOSE, END, N_OPERATORS, NO_BRACKET, OPEN
from rao_envs.nested.kernels import (
    NO_ANSWER,
    NO_PART,
    answer_frame,
    begin_task,
    middle_of,
    note_answer,
    open_frame,
    resolve_frame,
    share_right,
    tokens_of,
)

TOKEN_FIELDS = 2 + N_OPERATORS
"""Of a token, besides its digit: an answer; opens with SUM, MAX, MIN; closes."""


class RawState(NamedTuple):
    """A batch of `n` texts of at most L tokens, B brackets and L arguments; D depths, W tokens in a window, S notes on a stack."""

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
    opened: npt.NDArray[np.int32]  # (n, L) the bracket that each token opens, or NO_BRACKET
    seen: npt.NDArray[np.int8]  # (n, B) UNSEEN, RIGHT or WRONG (dense feedback only, else (n, 0))
    right: npt.NDArray[np.int64]  # (n,) brackets whose first answer was right
    frames: npt.NDArray[Any]  # FRAME (n, D)
    places: npt.NDArray[np.int32]  # (n, D, W) the text's token at each place of the window, -1 past the end
    shown: npt.NDArray[np.int8]  # (n, D, W) what shows there: a digit, an answer (its digit), a bracket, END
    answered: npt.NDArray[np.int8]  # (n, D, W) whether that is an answer
    halves: npt.NDArray[np.int8]  # (n, D, 2) answers to the halves of the frame's range, or NO_ANSWER
    pushed: npt.NDArray[np.int8]  # (n, D, S) notes, the lowest first
    group: npt.NDArray[np.int32]  # (n, D, W) the brackets of the latest spawn's children


@inline
def start_of(domain: RawState, i: int, depth: int) -> int:
    """The first token of a frame's range."""
    frame = domain.frames[i, depth]
    return domain.arguments[i, domain.brackets[i, frame["bracket"]]["first"] + frame["low"]]["start"]


@inline
def end_of(domain: RawState, i: int, depth: int) -> int:
    """The end of a frame's range, in tokens."""
    frame = domain.frames[i, depth]
    return domain.arguments[i, domain.brackets[i, frame["bracket"]]["first"] + frame["high"] - 1]["end"]


@inline
def fill_window(domain: RawState, i: int, depth: int, kept: int) -> None:
    """Show the text behind the first `kept` places of the window, up to the end of the frame's range."""
    window = domain.places.shape[2]
    at = domain.frames[i, depth]["at"]
    if kept > 0:
        at = domain.places[i, depth, kept - 1] + 1
        if domain.answered[i, depth, kept - 1]:
            at = domain.brackets[i, domain.opened[i, at - 1]]["end"]
    end = end_of(domain, i, depth)
    for k in range(kept, window):
        domain.answered[i, depth, k] = 0
        if at < end:
            domain.places[i, depth, k] = at
            domain.shown[i, depth, k] = domain.tokens[i, at]
            at += 1
        else:
            domain.places[i, depth, k] = -1
            domain.shown[i, depth, k] = END


@inline
def put_answer(domain: RawState, i: int, depth: int, k: int, answer: int) -> None:
    """Let the answer stand for the bracket that opens at place `k`; what follows moves up."""
    window = domain.places.shape[2]
    end = domain.brackets[i, domain.opened[i, domain.places[i, depth, k]]]["end"]
    domain.shown[i, depth, k] = answer
    domain.answered[i, depth, k] = 1
    kept = k + 1
    for j in range(k + 1, window):
        if domain.places[i, depth, j] >= end:
            domain.places[i, depth, kept] = domain.places[i, depth, j]
            domain.shown[i, depth, kept] = domain.shown[i, depth, j]
            domain.answered[i, depth, kept] = domain.answered[i, depth, j]
            kept += 1
    fill_window(domain, i, depth, kept)


@inline
def set_frame(domain: RawState, i: int, depth: int, bracket: int, low: int, high: int, part: int) -> None:
    """A new frame, its window at its range's start."""
    open_frame(domain, i, depth, bracket, low, high, part)
    domain.frames[i, depth]["at"] = start_of(domain, i, depth)
    domain.halves[i, depth, 0] = NO_ANSWER
    domain.halves[i, depth, 1] = NO_ANSWER
    fill_window(domain, i, depth, 0)


@jit
def begin(domain: RawState, stack: CallStack, i: int) -> None:
    """A new task."""
    begin_task(domain, stack, i)
    bracket = 0
    for at in range(domain.task[i]["length"]):
        domain.opened[i, at] = NO_BRACKET
        if OPEN <= domain.tokens[i, at] < CLOSE:
            domain.opened[i, at] = bracket
            bracket += 1
    set_frame(domain, i, 0, 0, 0, domain.brackets[i, 0]["count"], NO_PART)


@inline
def opens(domain: RawState, i: int, depth: int, k: int) -> bool:
    """Whether an unanswered bracket opens at place `k` of the window."""
    return OPEN <= domain.shown[i, depth, k] < CLOSE


@inline
def outer_brackets(domain: RawState, i: int, depth: int, which: int) -> int:
    """The place of number `which` of the brackets that open in the window outside one another; for -1, how many there are."""
    count = 0
    end = 0
    for k in range(domain.places.shape[2]):
        if domain.places[i, depth, k] >= end and opens(domain, i, depth, k):
            if count == which:
                return k
            count += 1
            end = domain.brackets[i, domain.opened[i, domain.places[i, depth, k]]]["end"]
    return count


@inline
def next_page(domain: RawState, i: int, depth: int) -> int:
    """The first token behind the window."""
    last = domain.places.shape[2] - 1
    if domain.places[i, depth, last] < 0:
        return end_of(domain, i, depth)
    if domain.answered[i, depth, last]:
        return domain.brackets[i, domain.opened[i, domain.places[i, depth, last]]]["end"]
    return domain.places[i, depth, last] + 1


@inline
def reducible(domain: RawState, i: int, depth: int) -> int:
    """The first place where a bracket opens that is all in the window and holds only digits and answers; -1 if there is none."""
    opened = -1
    for k in range(domain.places.shape[2]):
        if opens(domain, i, depth, k):
            opened = k
        elif domain.shown[i, depth, k] == CLOSE and opened >= 0:
            return opened
        elif domain.shown[i, depth, k] == CLOSE:
            opened = -1
    return -1


@inline
def first_note(domain: RawState) -> int:
    """The action that writes note 1. Before it: answers, reductions, next, previous."""
    return 2 * domain.config[0]["modulus"] + 2


@inline
def first_spawn(domain: RawState) -> int:
    """The action that spawns for place 0. Before it: notes, and with a stack push and pop."""
    config = domain.config[0]
    return first_note(domain) + config["notes"] + (2 if config["stack"] > 0 else 0)


@inline
def is_full_of(domain: RawState, i: int, depth: int, note: int) -> bool:
    """Whether the stack is full and holds one note only: pushing it would change nothing."""
    room = domain.pushed.shape[2]
    same = 0
    for k in range(domain.frames[i, depth]["pushed"]):
        same += domain.pushed[i, depth, k] == note
    return same == room


@inline
def allowed(domain: RawState, stack: CallStack, i: int, action: int) -> bool:
    """Answers always; the rest where it can do something."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    modulus, notes, window = config["modulus"], config["notes"], config["window"]
    if action < modulus:
        return True
    if action < 2 * modulus:
        return reducible(domain, i, depth) >= 0
    if action == 2 * modulus:
        return next_page(domain, i, depth) < end_of(domain, i, depth)
    if action == 2 * modulus + 1:
        return frame["at"] > start_of(domain, i, depth)
    action -= first_note(domain)
    if action < notes:
        return frame["note"] != action + 1
    action -= notes
    if config["stack"] > 0:
        if action == 0:
            return frame["note"] > 0 and not is_full_of(domain, i, depth, frame["note"])
        if action == 1:
            return frame["pushed"] > 0
        action -= 2
    if action < window:
        return opens(domain, i, depth, action)
    if action < window + 2:
        return frame["high"] - frame["low"] > config["slots"] and domain.halves[i, depth, action - window] == NO_ANSWER
    return outer_brackets(domain, i, depth, -1) > 0


@inline
def push_note(domain: RawState, i: int, depth: int) -> None:
    """The note goes on the stack; on a full one the lowest is lost."""
    frame = domain.frames[i, depth]
    room = domain.pushed.shape[2]
    if frame["pushed"] == room:
        for k in range(1, room):
            domain.pushed[i, depth, k - 1] = domain.pushed[i, depth, k]
        frame["pushed"] -= 1
    domain.pushed[i, depth, frame["pushed"]] = frame["note"]
    frame["pushed"] += 1


@inline
def act(domain: RawState, stack: CallStack, i: int, action: int) -> None:
    """Answer, reduce, turn the page, write a note, push or pop it."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    modulus, notes = config["modulus"], config["notes"]
    if action < modulus:
        answer_frame(domain, stack, i, action)
    elif action < 2 * modulus:
        k = reducible(domain, i, depth)
        bracket = domain.opened[i, domain.places[i, depth, k]]
        note_answer(domain, i, bracket, 0, domain.brackets[i, bracket]["count"], action - modulus)
        put_answer(domain, i, depth, k, action - modulus)
    elif action == 2 * modulus:
        frame["at"] = next_page(domain, i, depth)
        fill_window(domain, i, depth, 0)
    elif action == 2 * modulus + 1:
        frame["at"] = max(start_of(domain, i, depth), frame["at"] - domain.places.shape[2])
        fill_window(domain, i, depth, 0)
    elif action < first_note(domain) + notes:
        frame["note"] = action - first_note(domain) + 1
    elif action == first_note(domain) + notes:
        push_note(domain, i, depth)
    else:
        frame["pushed"] -= 1
        frame["note"] = domain.pushed[i, depth, frame["pushed"]]


@inline
def fanout(domain: RawState, stack: CallStack, i: int, action: int) -> int:
    """One child, or one for each bracket in the window that is in no other one there."""
    if action < first_spawn(domain) + domain.config[0]["window"] + 2:
        return 1
    return outer_brackets(domain, i, stack.episodes[i]["depth"], -1)


@inline
def open_child(domain: RawState, stack: CallStack, i: int, action: int, k: int) -> int:
    """A bracket that opens in the window, or a half of the frame's range; its budget is what reading it by oneself would take."""
    depth = stack.episodes[i]["depth"]
    window = domain.config[0]["window"]
    frame = domain.frames[i, depth]
    action -= first_spawn(domain)
    if window <= action < window + 2:
        low, high = frame["low"], frame["high"]
        middle = middle_of(low, high)
        if action == window:
            high = middle
        else:
            low = middle
        set_frame(domain, i, depth + 1, frame["bracket"], low, high, action - window)
        return 2 * tokens_of(domain, i, frame["bracket"], low, high)
    if action < window:
        inner = domain.opened[i, domain.places[i, depth, action]]
    else:
        if k == 0:
            for member in range(outer_brackets(domain, i, depth, -1)):
                place = outer_brackets(domain, i, depth, member)
                domain.group[i, depth, member] = domain.opened[i, domain.places[i, depth, place]]
        inner = domain.group[i, depth, k]
    set_frame(domain, i, depth + 1, inner, 0, domain.brackets[i, inner]["count"], NO_PART)
    return 2 * (domain.brackets[i, inner]["end"] - domain.brackets[i, inner]["start"])


@inline
def resolve(domain: RawState, stack: CallStack, i: int) -> int:
    """Success if the answer is right."""
    return resolve_frame(domain, stack, i)


@inline
def receive(domain: RawState, stack: CallStack, i: int, success: bool) -> None:
    """The child's answer, right or wrong, stands for its bracket or half; without one nothing changes."""
    depth = stack.episodes[i]["depth"]
    child = domain.frames[i, depth + 1]
    if child["part"] != NO_PART:
        domain.halves[i, depth, child["part"]] = child["answer"]
    elif child["answer"] != NO_ANSWER:
        start = domain.brackets[i, child["bracket"]]["start"]
        for k in range(domain.places.shape[2]):
            if domain.places[i, depth, k] == start:
                put_answer(domain, i, depth, k, child["answer"])
                return


@inline
def progress(domain: RawState, stack: CallStack, i: int) -> float:
    """Share of the brackets rightly answered."""
    return share_right(domain, i)


@inline
def observe(domain: RawState, stack: CallStack, obs: Observation, i: int) -> None:
    """The window, one-hot; `rao_envs.nested.domain` lays out the fields."""
    modulus = domain.config[0]["modulus"]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    task, results = obs.task[i], obs.results[i]
    for k in range(task.shape[0]):
        task[k] = 0
    for k in range(results.shape[0]):
        results[k] = 0
    task[domain.brackets[i, frame["bracket"]]["operator"]] = 1
    task[N_OPERATORS] = frame["at"] == start_of(domain, i, depth)
    at = N_OPERATORS + 1
    for k in range(domain.places.shape[2]):
        token = domain.shown[i, depth, k]
        if token < OPEN:
            task[at + token] = 1
            task[at + modulus] = domain.answered[i, depth, k]
        elif token < END:
            task[at + modulus + 1 + token - OPEN] = 1
        at += modulus + TOKEN_FIELDS
    if frame["note"] > 0:
        task[at + frame["note"] - 1] = 1
    for half in range(2):
        if domain.halves[i, depth, half] != NO_ANSWER:
            results[half * modulus + domain.halves[i, depth, half]] = 1


implement(
    RawState,
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
