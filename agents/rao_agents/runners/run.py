"""The course of one call: which trees are under way, and what became of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rao_agents.runners.frame_actor import FrameActor
from rao_agents.runners.solution import CANCELLED, DONE, TIMED_OUT, Solution
from rao_agents.runners.source import Source
from rao_agents.runners.wavefront import Wavefront
from rao_envs import Episode
from rao_envs.core.actors import Agent
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.callstack import RETURN
from rao_envs.core.evaluate import Progress
from rao_envs.core.forest import Change, Ended, Forest


class Task(NamedTuple):
    """What a tree begins with."""

    seed: int
    state: dict[str, Any] | None  # of an episode that is under way; None: the seed's


class Plan(NamedTuple):
    """Everything that a runner is told."""

    agent: Agent
    source: Source
    tasks: list[Task]
    deterministic: bool
    rows: int
    time_limit: float | None
    should_stop: Callable[[], bool]
    report: Progress | None


class Run:
    """The plan's trees on a forest of this process.

    Args:
        plan: what to do.
        slots: of the forest.
        trees: that may be under way at the same time.
    """

    def __init__(self, plan: Plan, slots: int, trees: int) -> None:
        self.plan, self.trees = plan, max(1, trees)
        batch = plan.source.batch(slots)
        self.forest = Forest(batch)
        self.actor = FrameActor(plan.agent, batch, deterministic=plan.deterministic, rows=plan.rows)
        self.wavefront = Wavefront(self.forest, self.actor)
        self.waiting = deque(range(len(plan.tasks)))
        self.begun: dict[int, tuple[float, int]] = {}  # by tree under way: when, and after how many waves
        self.solutions: dict[int, Solution] = {}

    def all(self) -> list[Solution]:
        """Run all trees."""
        plan = self.plan
        while len(self.solutions) < len(plan.tasks):
            if plan.should_stop():
                self.give_up([*self.begun, *self.waiting], CANCELLED)
                break
            if plan.time_limit is not None:
                late = time.perf_counter() - plan.time_limit
                self.give_up([tree for tree, (since, _) in self.begun.items() if since < late], TIMED_OUT)
            while self.waiting and self.forest.free and len(self.begun) < self.trees:
                self.begin(self.waiting.popleft())
            if self.begun:
                self.advance()
        return [self.solutions[k] for k in range(len(plan.tasks))]

    def advance(self) -> None:
        """Something is done for the trees under way."""
        self.settle(self.wavefront.wave())

    def begin(self, tree: int) -> None:
        """Begin this tree."""
        task = self.plan.tasks[tree]
        if task.state is None:
            self.wavefront.begin(tree, task.seed)
        else:
            self.wavefront.enter(self.forest.resume(tree, task.state), task.seed)
        self.begun[tree] = time.perf_counter(), self.wavefront.waves

    def settle(self, change: Change) -> None:
        """Note which trees have ended."""
        for ended in change.ended:
            tree = ended.tree
            self.solutions[tree] = _solution(self.forest.batch, ended, self.plan.tasks[tree].seed, *self._taken(tree))
            self.forget(tree)
            if self.plan.report is not None:
                self.plan.report(len(self.solutions), len(self.plan.tasks))

    def give_up(self, trees: list[int], status: str) -> None:
        """End these trees, whole."""
        for tree in trees:
            self.forest.cancel(tree)
            self.solutions[tree] = Solution(self.plan.tasks[tree].seed, status, None, np.zeros(0, RETURN), "", *self._taken(tree))
            self.forget(tree)

    def forget(self, tree: int) -> None:
        """A tree is no more."""
        self.begun.pop(tree, None)

    def _taken(self, tree: int) -> tuple[float, int]:
        """Seconds and waves since the tree began; none if it never did."""
        now = time.perf_counter(), self.wavefront.waves
        since = self.begun.get(tree, now)
        return now[0] - since[0], now[1] - since[1]


def _solution(batch: RecursiveBatch, ended: Ended, seed: int, seconds: float, waves: int) -> Solution:
    """Of a tree that has just ended in a slot of `batch`."""
    slot, episodes = ended.slot, batch.stack.episodes
    tree = batch.tree(slot)
    root = ended.returned[ended.returned["depth"] == episodes["base"][slot]]
    episode = Episode(
        seed=seed,
        success=bool(episodes["success"][slot]),
        return_=float(episodes["reward"][slot]),
        steps=tree["steps"],
        nodes=tree["nodes"],
        deepest=tree["deepest"],
        spawns=tree["spawns"],
        critical_path=tree["critical_path"],
        actions=ended.actions,
    )
    answer = batch.domain.answer(batch.state, slot, float(root["value"][0])) if len(root) else ""
    return Solution(seed, DONE, episode, ended.returned, answer, seconds, waves)
