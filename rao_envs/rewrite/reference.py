"""Expressions rewritten without learning: scripted agents that act from the observation alone, and whole derivations on paper.

The agents keep no memory. What they need is in the observation: the goal, the cursor's node, what occurs in it, whether there is work
below it, and which rules did nothing here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rao_envs.core.actors import RandomAgent
from rao_envs.rewrite.domain import (
    DOWN,
    FLAGS,
    MOST_OPERANDS,
    MOST_PARTS,
    MOVES,
    NEXT,
    OPERATORS,
    STANDING,
    UP,
)
from rao_envs.rewrite.plan import likely_rules
from rao_envs.rewrite.rules import DEFAULT_RULES, EXPANDED, FORMS

random_agent = RandomAgent()
"""Takes any allowed action, each equally likely."""


class RecursiveSolver:
    """Hands every part that may become a polynomial to a child at once, then tries rules on what is left, the likeliest first.

    For `rao_envs.evaluate`, or by hand: `solver(observation, mask)` with one observation or a batch of them. It never moves the cursor.

    Args:
        rules: the environment's rules, in its order.
    """

    batched: ClassVar[bool] = True
    spawning: ClassVar[bool] = True

    def __init__(self, rules: tuple[str, ...] = DEFAULT_RULES) -> None:
        self.rules = rules

    def __call__(self, observation: dict[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], state: Any = None) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: not observations of this family with these rules.
        """
        task, masks = np.atleast_2d(observation["task"]), np.atleast_2d(mask)
        results = np.atleast_2d(observation["results"])
        primitives = len(MOVES) + len(self.rules)
        if results.shape[1] != len(FORMS) + 1 or masks.shape[1] not in (primitives, primitives + results.shape[1]):
            raise ValueError(f"not observations of Rewrite with the rules {', '.join(self.rules)}: mask {masks.shape}")
        actions = np.array([self.choose(*row) for row in zip(task, results, masks, strict=True)], np.int64)
        return int(actions[0]) if observation["task"].ndim == 1 else actions

    def choose(self, task: npt.NDArray[Any], results: npt.NDArray[Any], mask: npt.NDArray[Any]) -> int:
        """One action."""
        spawn_all = len(MOVES) + len(self.rules) + len(FORMS)
        if self.spawning and len(mask) > spawn_all and mask[spawn_all] and results[-1] >= 0:
            return spawn_all
        seen = Seen(task)
        goal = seen.form if seen.root else EXPANDED
        for name in likely_rules(seen.flags, goal):
            action = len(MOVES) + self.rules.index(name) if name in self.rules else 0
            if action and mask[action]:
                return action
        return int(np.flatnonzero(mask)[0])


class MonolithicSolver(RecursiveSolver):
    """Walks to what is innermost, rewrites it, and walks on: the same script without a call.

    It goes down as long as there is work below, rewrites what may become a polynomial and is none, and goes to the next operand, or back
    up, elsewhere. Where no rule helps it walks past, and may come by again.
    """

    spawning: ClassVar[bool] = False

    def choose(self, task: npt.NDArray[Any], results: npt.NDArray[Any], mask: npt.NDArray[Any]) -> int:
        """One action."""
        seen = Seen(task)
        if seen.parts and mask[DOWN]:
            return DOWN
        if seen.root or (seen.solid and not seen.expanded):
            for name in likely_rules(seen.flags, seen.form if seen.root else EXPANDED):
                action = len(MOVES) + self.rules.index(name) if name in self.rules else 0
                if action and mask[action]:
                    return action
        return NEXT if mask[NEXT] else UP if mask[UP] else DOWN


class Seen:
    """What a task observation (one row) says about the goal and the cursor's node; `rao_envs.rewrite.env` describes its layout."""

    def __init__(self, task: npt.NDArray[Any]) -> None:
        self.form = int(np.argmax(task[: len(FORMS)]))
        standing = task[len(FORMS) : len(FORMS) + STANDING].tolist()
        self.root, self.last, self.fits, self.expanded, self.solid, self.atom = map(bool, standing)
        at = len(FORMS) + STANDING + OPERATORS
        self.flags = sum(1 << k for k in range(FLAGS) if task[at + k])
        self.parts = int(np.argmax(task[at + FLAGS : at + FLAGS + MOST_PARTS + 1]))
        self.operands = task[at + FLAGS + MOST_PARTS + 1 :][: MOST_OPERANDS * (OPERATORS + 2)].reshape(MOST_OPERANDS, -1)
