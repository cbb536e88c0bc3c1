"""Relays run without learning: an agent that carries one note from frame to frame, which is what state transfer has to replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.actors import RandomAgent

random_agent = RandomAgent()
"""Takes any allowed action, each equally likely."""

Note = npt.NDArray[np.int8]
"""The code as it was seen, one-hot, int8 (digits * base,)."""


class RecursiveSolver:
    """Notes the code where it sees it, enters it where it must, and spawns as long as it may.

    For `rao_envs.evaluate`, or by hand: `solver(observation, mask, state)` returns the action and the next state, which is None at an episode's
    start. One note serves all frames of the episode.

    Args:
        digits, base: the environment's.
    """

    def __init__(self, digits: int = 3, base: int = 6) -> None:
        self.digits, self.base = digits, base

    def __call__(self, observation: dict[str, npt.NDArray[Any]], mask: npt.NDArray[Any], state: Note | None = None) -> tuple[int, Note | None]:
        """An action, and the note to pass in at the next step.

        Raises:
            ValueError: no observation of this family with these digits and this base.
        """
        task, codes = observation["task"], self.digits * self.base
        if task.shape != (2 + codes + self.digits,) or len(mask) not in (self.base + 1, self.base + 2):
            raise ValueError(f"not an observation of Relay with {self.digits} digits of base {self.base}: task {task.shape}, mask {len(mask)}")
        if task[0]:
            state = task[2 : 2 + codes].astype(np.int8)
        if mask[-1] and len(mask) == self.base + 2:
            return self.base + 1, state
        if mask[self.base]:
            return self.base, state
        if state is None:
            return 0, None
        following = int(task[2 + codes :].argmax())
        return int(state.reshape(self.digits, self.base)[following].argmax()), state


class MonolithicSolver(RecursiveSolver):
    """The same without spawns: it can do nothing but give up."""
