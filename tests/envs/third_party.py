"""Recursive environments as anybody can write them: plain Python on `rao_envs.core`, no Numba, nothing about mazes.

A family is three things: a state (a NamedTuple of arrays whose methods are the hooks of `rao_envs.core.hooks`), a `Domain` (names,
spaces, limits, where the state lives) and two one-line classes for Gymnasium. `Hanoi` is the smallest of its kind. `RangeMax` adds
independent children that may run at once, chance inside a frame, values handed up, and dense feedback.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.domain import Domain
from rao_envs.core.env import RecursiveEnv
from rao_envs.core.rng import below, uniform
from rao_envs.core.vector import RecursiveVectorEnv

# -- The towers of Hanoi -----------------------------------------------------------------------------------------------------------

MOVES = ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
SCATTERED = 3


class HanoiState(NamedTuple):
    """Disc 0 is the smallest. A frame is asked to bring its `count` smallest discs to the peg `target`, and may touch no others."""

    pegs: np.ndarray[Any, Any]  # int8 (n, discs) the peg of each disc
    count: np.ndarray[Any, Any]  # int8 (n, D)
    target: np.ndarray[Any, Any]  # int8 (n, D)
    result: np.ndarray[Any, Any]  # int8 (n, D) how its latest child ended: -1 failure, 0 none yet, 1 success

    def begin(self, stack: CallStack, i: int) -> None:
        self.pegs[i] = start = below(stack.rng[i], 3)
        self.count[i, 0] = self.pegs.shape[1]
        self.target[i, 0] = (start + 1 + below(stack.rng[i], 2)) % 3
        self.result[i, 0] = 0

    def top(self, i: int, depth: int, peg: int) -> int:
        """The frame's smallest disc on `peg`, or its `count` if it has none there."""
        count = self.count[i, depth]
        here = np.flatnonzero(self.pegs[i, :count] == peg)
        return int(here[0]) if len(here) else int(count)

    def allowed(self, stack: CallStack, i: int, action: int) -> bool:
        depth = stack.episodes[i]["depth"]
        if action < len(MOVES):
            source, target = MOVES[action]
            return self.top(i, depth, source) < self.top(i, depth, target)
        smaller = self.pegs[i, : self.count[i, depth] - 1]
        return len(smaller) > 0 and bool((smaller != action - len(MOVES)).any())

    def act(self, stack: CallStack, i: int, action: int) -> None:
        source, target = MOVES[action]
        self.pegs[i, self.top(i, stack.episodes[i]["depth"], source)] = target

    def fanout(self, stack: CallStack, i: int, action: int) -> int:
        return 1

    def open_child(self, stack: CallStack, i: int, action: int, k: int) -> int:
        depth = stack.episodes[i]["depth"]
        self.count[i, depth + 1] = self.count[i, depth] - 1
        self.target[i, depth + 1] = action - len(MOVES)
        self.result[i, depth + 1] = 0
        return budget(int(self.count[i, depth + 1]))

    def resolve(self, stack: CallStack, i: int) -> int:
        depth = stack.episodes[i]["depth"]
        mine = self.pegs[i, : self.count[i, depth]]
        return SUCCESS if (mine == self.target[i, depth]).all() else RUNNING

    def receive(self, stack: CallStack, i: int, success: bool) -> None:
        self.result[i, stack.episodes[i]["depth"]] = 1 if success else -1

    def observe(self, stack: CallStack, obs: Observation, i: int) -> None:
        depth = stack.episodes[i]["depth"]
        *smaller, largest = self.pegs[i, : self.count[i, depth]]
        tower = smaller[0] if smaller and len(set(smaller)) == 1 else SCATTERED
        obs.task[i] = largest, self.target[i, depth], tower
        obs.results[i] = self.result[i, depth]


class HanoiDomain(Domain):
    """Bring a tower to another peg: spawn "the smaller ones there", move the largest, spawn "the smaller ones on top"."""

    name = "Hanoi"
    primitives = tuple(f"move_{a}_{b}" for a, b in MOVES)
    spawns = ("smaller_to_0", "smaller_to_1", "smaller_to_2")
    task_space = spaces.Box(0, SCATTERED, (3,), np.int8)  # pegs: of the largest disc, to go to, of all the others
    results_space = spaces.Box(-1, 1, (1,), np.int8)
    per_frame = frozenset({"count", "target", "result"})

    def __init__(self, discs: int = 3) -> None:
        self.discs = discs
        self.max_depth = discs - 1
        self.budget = budget(discs)

    def allocate(self, n: int, *, dense: bool) -> HanoiState:
        frames = np.zeros((3, n, self.max_depth + 1), np.int8)
        return HanoiState(np.zeros((n, self.discs), np.int8), *frames)


def budget(discs: int) -> int:
    """Twice the steps that perfect recursion takes, spawns included."""
    return 2 * (2 ** (discs + 1) - 3)


class HanoiEnv(RecursiveEnv):
    """The towers of Hanoi."""

    domain_class = HanoiDomain


class HanoiVectorEnv(RecursiveVectorEnv):
    """The towers of Hanoi, many at once."""

    domain_class = HanoiDomain


# -- The largest of many numbers ---------------------------------------------------------------------------------------------------

LOOK, ANSWER = 0, 1
UNKNOWN = -1


class RangeMaxState(NamedTuple):
    """A frame is asked for the largest number in `[low, high)`. It sees one number if that is all it has, else what children return."""

    numbers: np.ndarray[Any, Any]  # int8 (n, size)
    seen: np.ndarray[Any, Any]  # bool (n, size) numbers that somebody has looked at
    low: np.ndarray[Any, Any]  # int64 (n, D)
    high: np.ndarray[Any, Any]  # int64 (n, D)
    best: np.ndarray[Any, Any]  # int8 (n, D) largest number that the frame knows of
    answered: np.ndarray[Any, Any]  # bool (n, D)
    results: np.ndarray[Any, Any]  # int8 (n, D, parts) latest outcome for each part of the range: -1 failure, 0 none, 1 success
    noise: np.ndarray[Any, Any]  # float64 () probability that a look fails; shared

    def begin(self, stack: CallStack, i: int) -> None:
        for at in range(self.numbers.shape[1]):
            self.numbers[i, at] = below(stack.rng[i], 100)
        self.seen[i] = False
        self.set_frame(i, 0, 0, self.numbers.shape[1])

    def set_frame(self, i: int, depth: int, low: int, high: int) -> None:
        self.low[i, depth], self.high[i, depth], self.best[i, depth] = low, high, UNKNOWN
        self.answered[i, depth] = False
        self.results[i, depth] = 0

    def allowed(self, stack: CallStack, i: int, action: int) -> bool:
        depth = stack.episodes[i]["depth"]
        single = self.high[i, depth] - self.low[i, depth] == 1
        return action == ANSWER or bool(single == (action == LOOK))

    def act(self, stack: CallStack, i: int, action: int) -> None:
        depth = stack.episodes[i]["depth"]
        at = self.low[i, depth]
        if action == ANSWER:
            self.answered[i, depth] = True
            stack.frames[i, depth]["value"] = self.best[i, depth]
        elif uniform(stack.frame_rng[i, depth]) >= self.noise:
            self.seen[i, at] = True
            self.best[i, depth] = self.numbers[i, at]

    def fanout(self, stack: CallStack, i: int, action: int) -> int:
        parts = self.results.shape[2]
        return parts if action == 2 + parts else 1  # the last action: all parts at once

    def part(self, stack: CallStack, i: int, action: int, k: int) -> int:
        """Which part of the range child `k` of `action` has."""
        return k if self.fanout(stack, i, action) > 1 else action - 2

    def open_child(self, stack: CallStack, i: int, action: int, k: int) -> int:
        depth = stack.episodes[i]["depth"]
        parts = self.results.shape[2]
        width = (self.high[i, depth] - self.low[i, depth]) // parts
        low = self.low[i, depth] + self.part(stack, i, action, k) * width
        self.set_frame(i, depth + 1, low, low + width)
        return 8 * int(width)

    def resolve(self, stack: CallStack, i: int) -> int:
        depth = stack.episodes[i]["depth"]
        if not self.answered[i, depth]:
            return RUNNING
        right = self.numbers[i, self.low[i, depth] : self.high[i, depth]].max()
        return SUCCESS if self.best[i, depth] == right else FAILURE

    def receive(self, stack: CallStack, i: int, success: bool) -> None:
        depth = stack.episodes[i]["depth"]
        width = self.high[i, depth + 1] - self.low[i, depth + 1]
        part = (self.low[i, depth + 1] - self.low[i, depth]) // width
        self.results[i, depth, part] = 1 if success else -1
        if success:
            self.best[i, depth] = max(self.best[i, depth], self.best[i, depth + 1])

    def observe(self, stack: CallStack, obs: Observation, i: int) -> None:
        depth = stack.episodes[i]["depth"]
        obs.task[i] = self.high[i, depth] - self.low[i, depth] == 1, self.best[i, depth]
        obs.results[i] = self.results[i, depth]

    def progress(self, stack: CallStack, i: int) -> float:
        return float(self.seen[i].mean())


class RangeMaxDomain(Domain):
    """Find the largest of `parts ** levels` hidden numbers, `parts` sub-ranges at a time, one after another or all at once.

    Args:
        levels: how often the range can be divided.
        parts: into how many parts.
        noise: probability that a look at a number fails.
    """

    name = "RangeMax"
    primitives = ("look", "answer")
    task_space = spaces.Box(-1, 99, (2,), np.int8)  # is there just one number; the largest known
    has_dense = True
    shared = frozenset({"noise"})
    settled = frozenset({"numbers"})
    per_frame = frozenset({"low", "high", "best", "answered", "results"})

    def __init__(self, levels: int = 3, parts: int = 2, noise: float = 0.0) -> None:
        self.parts, self.noise = parts, noise
        self.spawns = (*(f"part_{k}" for k in range(parts)), "all_parts")
        self.results_space = spaces.Box(-1, 1, (parts,), np.int8)
        self.max_depth = levels
        self.size = parts**levels
        self.budget = 8 * self.size

    def allocate(self, n: int, *, dense: bool) -> RangeMaxState:
        frames = (n, self.max_depth + 1)
        return RangeMaxState(
            numbers=np.zeros((n, self.size), np.int8),
            seen=np.zeros((n, self.size), np.bool_),
            low=np.zeros(frames, np.int64),
            high=np.ones(frames, np.int64),
            best=np.zeros(frames, np.int8),
            answered=np.zeros(frames, np.bool_),
            results=np.zeros((*frames, self.parts), np.int8),
            noise=np.array(self.noise),
        )

    def merge(self, state: RangeMaxState, i: int, child: RangeMaxState) -> None:
        state.seen[i] |= child.seen[0]


class RangeMaxEnv(RecursiveEnv):
    """The largest of many numbers."""

    domain_class = RangeMaxDomain


class RangeMaxVectorEnv(RecursiveVectorEnv):
    """The largest of many numbers, many times at once."""

    domain_class = RangeMaxDomain


# -- Registration ------------------------------------------------------------------------------------------------------------------

IDS = {
    "Test/Hanoi-3-v0": ("Hanoi", {"discs": 3}),
    "Test/Hanoi-5-v0": ("Hanoi", {"discs": 5}),
    "Test/RangeMax-8-v0": ("RangeMax", {"levels": 3}),
    "Test/RangeMax-27-v0": ("RangeMax", {"levels": 3, "parts": 3, "noise": 0.3}),
}


def register() -> None:
    """Register the ids above, each for `gym.make` and `gym.make_vec`."""
    for identity, (family, kwargs) in IDS.items():
        if identity not in gym.registry:
            entry_point = f"{__name__}:{family}"
            gym.register(identity, f"{entry_point}Env", vector_entry_point=f"{entry_point}VectorEnv", kwargs=kwargs)
