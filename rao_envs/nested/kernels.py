"""What both views of nested brackets share: the task's arrays, ranges of arguments, and which brackets were rightly answered. Compiled.

A frame is asked for the value of some consecutive arguments of one bracket under its operator: of all of them, or, where there are more
than a frame has slots for, of one half, of one half of a half, and so on. The operators are associative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack
from rao_envs.core.jit import inline, splice
from rao_envs.core.rng import below
from rao_envs.nested.generator import draw_length, evaluate, index, make, value_of

CONFIG = np.dtype(
    [
        ("shortest", np.int32),  # tokens of a generated task
        ("longest", np.int32),
        ("arguments", np.int32),
        ("modulus", np.int32),
        ("operators", np.int32),  # a bit for each
        ("slots", np.int32),
        ("window", np.int32),
        ("notes", np.int32),
        ("stack", np.int32),
        ("texts", np.int32),  # given tasks; 0: generated ones
    ],
    align=True,
)

TASK = np.dtype([("length", np.int32), ("brackets", np.int32)], align=True)

FRAME = np.dtype(
    [
        ("bracket", np.int32),  # asked for the value of this bracket's arguments [low, high)
        ("low", np.int32),
        ("high", np.int32),
        ("at_bracket", np.int32),  # folded: the same of what its cursor is on
        ("at_low", np.int32),
        ("at_high", np.int32),
        ("level", np.int32),  # folded: how far the cursor is below the frame's own range
        ("at", np.int32),  # raw: the first token of its window
        ("pushed", np.int32),  # raw: notes on its stack
        ("note", np.int8),  # 0 for none, then 1 to the number of notes
        ("answer", np.int8),  # NO_ANSWER while it runs
        ("part", np.int8),  # which slot, or half, of its parent's it is; NO_PART: the bracket alone says
    ],
    align=True,
)
"""A frame, for both views."""

NO_ANSWER = -1
NO_PART = -1

UNSEEN, RIGHT, WRONG = 0, 1, 2
"""What became of the first answer to a bracket."""


@splice
def begin_task(domain: Any, stack: CallStack, i: int) -> None:
    """A new text with its index."""
    config = domain.config[0]
    rng = stack.rng[i]
    task = domain.task[i]
    tokens, brackets, arguments = domain.tokens[i], domain.brackets[i], domain.arguments[i]
    if config["texts"] > 0:
        k = domain.choice[i]
        if k < 0:
            k = below(rng, config["texts"])
        length = domain.lengths[k]
        tokens[:length] = domain.texts[domain.offsets[k] : domain.offsets[k] + length]
        task["brackets"] = index(tokens, length, brackets, arguments)
        evaluate(task["brackets"], brackets, arguments, config["modulus"])
    else:
        length = draw_length(config["shortest"], config["longest"], rng)
        task["brackets"] = make(
            tokens, brackets, arguments, length, config["arguments"], config["modulus"], config["operators"], domain.capacity, rng
        )
    task["length"] = length
    domain.seen[i, :] = UNSEEN
    domain.right[i] = 0


@inline
def open_frame(domain: Any, i: int, depth: int, bracket: int, low: int, high: int, part: int) -> None:
    """What both views need of a new frame."""
    frame = domain.frames[i, depth]
    frame["bracket"] = frame["at_bracket"] = bracket
    frame["low"] = frame["at_low"] = low
    frame["high"] = frame["at_high"] = high
    frame["level"] = 0
    frame["pushed"] = 0
    frame["note"] = 0
    frame["answer"] = NO_ANSWER
    frame["part"] = part


@inline
def is_whole(domain: Any, i: int, bracket: int, low: int, high: int) -> bool:
    """Whether a range is all of its bracket's arguments."""
    return low == 0 and high == domain.brackets[i, bracket]["count"]


@inline
def tokens_of(domain: Any, i: int, bracket: int, low: int, high: int) -> int:
    """Tokens of a range of arguments, which are one stretch of the text."""
    first = domain.brackets[i, bracket]["first"]
    return domain.arguments[i, first + high - 1]["end"] - domain.arguments[i, first + low]["start"]


@inline
def middle_of(low: int, high: int) -> int:
    """Where a range is cut in halves; the left one is never the smaller."""
    return (low + high + 1) // 2


@inline
def truth(domain: Any, i: int, bracket: int, low: int, high: int) -> int:
    """The value of a range of arguments."""
    record = domain.brackets[i, bracket]
    if low == 0 and high == record["count"]:
        return record["value"]
    return value_of(record, low, high, domain.brackets[i], domain.arguments[i], domain.config[0]["modulus"])


@inline
def note_answer(domain: Any, i: int, bracket: int, low: int, high: int, answer: int) -> None:
    """Book the first answer to a whole bracket (dense feedback only); later ones change nothing, so that guessing does not pay."""
    if domain.seen.shape[1] > 0 and is_whole(domain, i, bracket, low, high) and domain.seen[i, bracket] == UNSEEN:
        right = answer == domain.brackets[i, bracket]["value"]
        domain.seen[i, bracket] = RIGHT if right else WRONG
        if right:
            domain.right[i] += 1


@inline
def answer_frame(domain: Any, stack: CallStack, i: int, answer: int) -> None:
    """End the acting frame with an answer."""
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    frame["answer"] = answer
    stack.frames[i, depth]["value"] = answer
    note_answer(domain, i, frame["bracket"], frame["low"], frame["high"], answer)


@inline
def resolve_frame(domain: Any, stack: CallStack, i: int) -> int:
    """A frame ends by answering: success if the answer is right."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    if frame["answer"] == NO_ANSWER:
        return RUNNING
    return SUCCESS if frame["answer"] == truth(domain, i, frame["bracket"], frame["low"], frame["high"]) else FAILURE


@inline
def share_right(domain: Any, i: int) -> float:
    """The share of the task's brackets whose first answer was right."""
    return domain.right[i] / domain.task[i]["brackets"]


@inline
def bracket_of(domain: Any, i: int, bracket: int, k: int) -> int:
    """The bracket that argument `k` of `bracket` is, or NO_BRACKET for a digit."""
    return domain.arguments[i, domain.brackets[i, bracket]["first"] + k]["bracket"]
