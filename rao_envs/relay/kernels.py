"""The relay's dynamics: who sees the code, who enters it, and what ends a frame. Compiled; see `rao_envs.core.hooks`.

Nothing that a frame which must not know the code can observe depends on it: its task, its results, its mask and its budget are functions
of its role and of how many of its children are back. What it learns by entering a digit, that the digit was right, it learns by being
alive: a wrong one ends the episode.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit
from rao_envs.core.rng import below

DOWN, UP, SIBLINGS = 0, 1, 2
DIRECTIONS = ("down", "up", "siblings")
"""Where the message must go: from the root to the deepest frame; from the deepest one to the one below the root; from the root's first
child's branch to the second's."""

NOT_ASKED = -1

CONFIG = np.dtype(
    [
        ("direction", np.int8),
        ("levels", np.int16),  # frames from the root to the deepest one, both included
        ("digits", np.int16),
        ("base", np.int16),
    ],
    align=True,
)

FRAME = np.dtype(
    [
        ("sees", np.bool_),  # whether the frame sees the code
        ("enters", np.bool_),  # whether it is the one that must enter it
        ("second", np.bool_),  # whether it belongs to the branch of the root's second child
        ("wanted", np.int8),  # children that the frame needs: 0, 1 or 2
        ("back", np.int8),  # of them, how many have come back
        ("outcome", np.int8),  # RUNNING, SUCCESS or FAILURE
        ("position", np.int16),  # digits entered so far, all of them right
    ],
    align=True,
)


class RelayState(NamedTuple):
    """A batch of `n` codes."""

    config: npt.NDArray[Any]  # CONFIG (1,)
    asked: npt.NDArray[np.int8]  # (n, digits) the code that the next reset was asked for; NOT_ASKED: any
    code: npt.NDArray[np.int8]  # (n, digits)
    entered: npt.NDArray[np.int16]  # (n,) right digits entered in this episode
    frames: npt.NDArray[Any]  # FRAME (n, D)


@inline
def need(levels: int, digits: int) -> int:
    """Steps that a chain of `levels` frames takes at most: each spawns and ends, or ends with the code's digits."""
    return 2 * levels + digits


@inline
def set_frame(domain: RelayState, i: int, depth: int, second: bool) -> None:
    """A new frame at `depth`; what it is for follows from its place alone."""
    config, frame = domain.config[0], domain.frames[i, depth]
    direction, last = config["direction"], depth == config["levels"] - 1
    frame["second"] = second
    if direction == DOWN:
        frame["sees"], frame["enters"] = depth == 0, last
    elif direction == UP:
        frame["sees"], frame["enters"] = last, depth == 1
    else:
        frame["sees"], frame["enters"] = last and not second, last and second
    frame["wanted"] = 0 if last else 2 if direction == SIBLINGS and depth == 0 else 1
    frame["back"] = 0
    frame["outcome"] = RUNNING
    frame["position"] = 0


@jit
def begin(domain: RelayState, stack: CallStack, i: int) -> None:
    """A new code, and the root frame."""
    for k in range(domain.code.shape[1]):
        digit = below(stack.rng[i], domain.config[0]["base"])
        domain.code[i, k] = digit if domain.asked[i, k] == NOT_ASKED else domain.asked[i, k]
    domain.entered[i] = 0
    set_frame(domain, i, 0, False)


@inline
def allowed(domain: RelayState, stack: CallStack, i: int, action: int) -> bool:
    """A child as long as one is needed; digits in the frame that enters the code, once its children are back; `done` in all others."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    base = domain.config[0]["base"]
    waiting = frame["back"] < frame["wanted"]
    if action > base:
        return waiting
    entering = frame["enters"] and not waiting
    return entering if action < base else not entering


@inline
def act(domain: RelayState, stack: CallStack, i: int, action: int) -> None:
    """Enter a digit, or end the frame."""
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    digits = domain.config[0]["digits"]
    if action == domain.config[0]["base"]:
        frame["outcome"] = SUCCESS if frame["back"] == frame["wanted"] else FAILURE
    elif action != domain.code[i, frame["position"]]:
        frame["outcome"] = FAILURE
    else:
        frame["position"] += 1
        domain.entered[i] = frame["position"]
        # The share of the code that is right: success itself adds 1. The frame that enters is never the root, whose score is the reward.
        stack.frames[i, depth]["score"] = frame["position"] / digits
        if frame["position"] == digits:
            frame["outcome"] = SUCCESS
            stack.frames[i, depth]["score"] = 0.0


@inline
def fanout(domain: RelayState, stack: CallStack, i: int, action: int) -> int:
    """One at a time: siblings are not independent here."""
    return 1


@inline
def open_child(domain: RelayState, stack: CallStack, i: int, action: int, k: int) -> int:
    """The next frame of the chain; twice the steps that it takes."""
    depth = stack.episodes[i]["depth"]
    config, frame = domain.config[0], domain.frames[i, depth]
    set_frame(domain, i, depth + 1, frame["second"] or frame["back"] == 1)
    return 2 * need(config["levels"] - 1 - depth, config["digits"])


@inline
def resolve(domain: RelayState, stack: CallStack, i: int) -> int:
    """The frame's outcome."""
    return domain.frames[i, stack.episodes[i]["depth"]]["outcome"]  # type: ignore[no-any-return]


@inline
def receive(domain: RelayState, stack: CallStack, i: int, success: bool) -> None:
    """One child more is back. A failed one fails its parent at once: nobody gets a second guess."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    frame["back"] += 1
    if not success:
        frame["outcome"] = FAILURE


@inline
def progress(domain: RelayState, stack: CallStack, i: int) -> float:
    """The share of the code that has been entered."""
    return domain.entered[i] / domain.config[0]["digits"]  # type: ignore[no-any-return]


@inline
def observe(domain: RelayState, stack: CallStack, obs: Observation, i: int) -> None:
    """The frame's role, the code if it sees it, which digit comes next if it enters it; how many children are back."""
    frame, config = domain.frames[i, stack.episodes[i]["depth"]], domain.config[0]
    for k in range(obs.task.shape[1]):
        obs.task[i, k] = 0
    obs.task[i, 0] = 1 if frame["sees"] else 0
    obs.task[i, 1] = 1 if frame["enters"] else 0
    at = 2
    if frame["sees"]:
        for k in range(config["digits"]):
            obs.task[i, at + k * config["base"] + domain.code[i, k]] = 1
    at += config["digits"] * config["base"]
    if frame["enters"] and frame["position"] < config["digits"]:
        obs.task[i, at + frame["position"]] = 1
    obs.results[i, 0] = 1 if frame["back"] > 0 else 0
    obs.results[i, 1] = 1 if frame["back"] > 1 else 0


implement(
    RelayState,
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
