"""What solving a task gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rao_envs import Episode
from rao_envs.core.callstack import RETURN

DONE, TIMED_OUT, CANCELLED = "done", "timed out", "cancelled"


@dataclass(frozen=True, eq=False)
class Solution:
    """One task, and what became of it.

    Attributes:
        seed: of the task, and of chance in the agent's actions.
        status: "done", "timed out" or "cancelled"; only a done one has an episode.
        episode: success, return, steps, frames, critical path, and every action in the order of the inline run, so that
            `rao_envs.replay` runs it again; the same for every runner.
        frames: RETURN records (`rao_envs.core.callstack`), one for each frame, in the order of their ids.
        answer: what the root frame handed back, in words; empty where the family's frames hand back success and nothing else.
        seconds: wall-clock from the tree's beginning to its end; other trees may have run at the same time.
        waves: forward passes in that time (in this process).
    """

    seed: int
    status: str
    episode: Episode | None
    frames: npt.NDArray[Any]
    answer: str
    seconds: float
    waves: int

    @property
    def success(self) -> bool:
        """Whether the root task was solved."""
        return self.episode is not None and bool(self.episode.success)

    def same_as(self, other: Solution) -> bool:
        """Whether another run gave the same, to the bit: actions, results and statistics."""
        return (
            (self.seed, self.status, self.answer, self.episode) == (other.seed, other.status, other.answer, other.episode)
            and self.frames.shape == other.frames.shape
            # By the bytes of every field: NaN is the same as itself, and what is between the fields means nothing.
            and all(self.frames[name].tobytes() == other.frames[name].tobytes() for name in RETURN.names or ())
        )
