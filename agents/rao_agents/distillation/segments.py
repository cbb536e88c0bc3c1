"""Sub-trajectories: what each frame did, one step after another, whatever happened in its children in between."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import torch as th

from rao_agents.distillation.episodes import States

Index = npt.NDArray[np.int64]
NONE = -1
"""Fills the rows of a sub-trajectory beyond its length, and stands for "no next state"."""


class Frames:
    """The frames of many episodes, each a row of steps.

    For agents that never spawn these are the episodes.

    Args:
        states: the steps, whole episodes.

    Attributes:
        order: the steps sorted by frame, and within a frame by time, int64 (N,).
        first, lengths: where each frame begins in `order`, and how many steps it took, int64 (F,).
        success: of each frame: 1, 0, or -1 where it is not known, int8 (F,).
        depth, episode: of each frame, (F,).
    """

    def __init__(self, states: States) -> None:
        self.order: Index = np.lexsort((states.frame_id, states.episode)).astype(np.int64)
        frame, episode = states.frame_id[self.order], states.episode[self.order]
        new = np.ones(len(states), np.bool_)
        new[1:] = (frame[1:] != frame[:-1]) | (episode[1:] != episode[:-1])
        self.first: Index = np.flatnonzero(new).astype(np.int64)
        self.lengths: Index = np.diff(np.append(self.first, len(states)))
        self.success: npt.NDArray[np.int8] = states.success[self.order[self.first]]
        self.depth: npt.NDArray[np.int32] = states.depth[self.order[self.first]]
        self.episode: Index = states.episode[self.order[self.first]]

    def __len__(self) -> int:
        return len(self.first)

    def successors(self) -> Index:
        """For each step the frame's next one, -1 at its last; int64 (N,)."""
        result = np.full(len(self.order), NONE, np.int64)
        inside = np.ones(len(self.order), np.bool_)
        inside[self.first[1:] - 1] = False
        inside[-1:] = False
        result[self.order[inside]] = self.order[1:][inside[:-1]]
        return result

    def of_steps(self) -> Index:
        """Which frame each step belongs to, int64 (N,)."""
        result = np.empty(len(self.order), np.int64)
        result[self.order] = np.repeat(np.arange(len(self)), self.lengths)
        return result

    def windows(self, length: int) -> tuple[Index, Index]:
        """Every frame cut into pieces of `length` steps, the last one shorter.

        Returns:
            The rows of each piece, int64 (S, length), -1 beyond its end; and its frame, int64 (S,).
        """
        pieces = -(-self.lengths // length)
        frame = np.repeat(np.arange(len(self)), pieces)
        number = np.arange(len(frame)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        return self._rows(frame, number * length, np.full(len(frame), length), length), frame

    def sample(self, rng: np.random.Generator, frames: Index, most: int) -> Index:
        """A random piece of 1 to `most` steps of each of `frames`, int64 (n, most), -1 beyond its end."""
        length = np.minimum(rng.integers(1, most + 1, size=len(frames)), self.lengths[frames])
        start = rng.integers(0, self.lengths[frames] - length + 1)
        return self._rows(frames, start, length, most)

    def _rows(self, frame: Index, start: Index, length: Index, width: int) -> Index:
        offset = start[:, None] + np.arange(width)
        inside = (np.arange(width) < length[:, None]) & (offset < self.lengths[frame][:, None])
        place = np.where(inside, self.first[frame][:, None] + offset, 0)
        return cast(Index, np.where(inside, self.order[place], NONE))


def pool(steps: th.Tensor, rows: Index) -> th.Tensor:
    """Means over sub-trajectories.

    Args:
        steps: a vector for each valid entry of `rows`, in its order, (sum of the lengths, d).
        rows: of the sub-trajectories, (S, L), -1 beyond their ends.

    Returns:
        (S, d).
    """
    lengths = (rows != NONE).sum(axis=1)
    owner = th.as_tensor(np.repeat(np.arange(len(rows)), lengths), device=steps.device)
    total = steps.new_zeros(len(rows), steps.shape[1]).index_add(0, owner, steps)
    return total / th.as_tensor(lengths, device=steps.device).clamp(min=1)[:, None]


def add_up(steps: th.Tensor, rows: Index) -> th.Tensor:
    """As `pool`, but sums."""
    lengths = (rows != NONE).sum(axis=1)
    owner = th.as_tensor(np.repeat(np.arange(len(rows)), lengths), device=steps.device)
    return steps.new_zeros(len(rows), steps.shape[1]).index_add(0, owner, steps)


def split_episodes(rng: np.random.Generator, episode: Index, share: float) -> npt.NDArray[np.bool_]:
    """A random share of the episodes, to be held out: bool, for each entry of `episode` whether its episode is among them.

    At least one episode is held out and one is not, where there are two.
    """
    numbers = np.unique(episode)
    count = min(max(round(share * len(numbers)), 1), len(numbers) - 1) if share > 0 else 0
    return np.isin(episode, rng.permutation(numbers)[: max(count, 0)])
