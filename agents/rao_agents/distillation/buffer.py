"""A bounded memory of whole episodes in which successes and failures both stay (MISSION B2, B7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_agents.distillation.episodes import Episode, States, states

Weights = npt.NDArray[np.float32]
RETURNS_SEEN = 200
"""Without a verdict of the environment's, an episode counts as a success if its return is above the median of so many before it."""


class ExperienceBuffer:
    """Whole episodes, bounded by their steps, successes and failures apart.

    Each side has a quota of the steps. While there is room, a side may take more than its own; when the buffer is full, the side that
    exceeds its quota most gives up a random one of its episodes, never its newest. So old experience fades instead of ending at a
    date, and a side that has once had an episode never runs empty. Experts' episodes (anchors) are kept apart, and are not counted.

    Args:
        max_steps: steps that are remembered at most, at least 2.
        success_share: the successes' quota, in (0, 1).
        recent: forget episodes that are more than so many policy iterations old (the newest of each side stays); None keeps them.
        seed: of what is forgotten.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(self, max_steps: Any = 50_000, success_share: float = 0.5, recent: Any = None, seed: int = 0) -> None:
        if isinstance(max_steps, bool) or not isinstance(max_steps, (int, np.integer)) or max_steps < 2:
            raise ValueError(f"max_steps must be a whole number of at least 2, got {max_steps!r}")
        if not 0.0 < success_share < 1.0:
            raise ValueError(f"success_share must lie between 0 and 1, got {success_share!r}")
        if recent is not None and (isinstance(recent, bool) or not isinstance(recent, (int, np.integer)) or recent < 1):
            raise ValueError(f"recent must be a whole number of iterations, at least 1, or None, got {recent!r}")
        self.max_steps = int(max_steps)
        self.success_share = float(success_share)
        self.recent = None if recent is None else int(recent)
        self.rng = np.random.default_rng(seed)
        self.sides: tuple[list[Episode], list[Episode]] = ([], [])  # failures, successes; oldest first
        self.experts: list[Episode] = []
        self.sizes = [0, 0]  # steps of each side
        self.seen = 0  # episodes added
        self.skipped = 0  # episodes too long to be remembered
        self._returns: list[float] = []
        self._states: tuple[Any, States] | None = None
        self._version = 0

    # -- adding ------------------------------------------------------------------------------------

    def quota(self, side: int) -> int:
        """Steps that belong to the failures (0) or the successes (1), at least 1."""
        successes = min(max(round(self.max_steps * self.success_share), 1), self.max_steps - 1)
        return successes if side else self.max_steps - successes

    def add(self, episode: Episode) -> bool:
        """Remember an episode; one longer than its side's quota cannot be, and is only counted.

        Returns:
            Whether it is remembered.
        """
        self._version += 1
        self.seen += 1
        if episode.expert:
            self.experts.append(episode)
            return True
        side = self._side(episode)
        if len(episode) > self.quota(side):
            self.skipped += 1
            return False
        self.sides[side].append(episode)
        self.sizes[side] += len(episode)
        if self.recent is not None:
            self._forget_old(episode.iteration - self.recent)
        while sum(self.sizes) > self.max_steps:
            self._forget(0 if self.sizes[0] - self.quota(0) >= self.sizes[1] - self.quota(1) else 1)
        return True

    def extend(self, episodes: Iterable[Episode]) -> None:
        """Add each of `episodes`."""
        for episode in episodes:
            self.add(episode)

    def _side(self, episode: Episode) -> int:
        if episode.success is not None:
            return int(episode.success)
        above = not self._returns or episode.ret > float(np.median(self._returns))
        self._returns = [*self._returns, episode.ret][-RETURNS_SEEN:]
        return int(above)

    def _forget(self, side: int) -> None:
        episodes = self.sides[side]
        # A side above its quota has at least two episodes, as none is longer than the quota.
        gone = episodes.pop(int(self.rng.integers(len(episodes) - 1)))
        self.sizes[side] -= len(gone)

    def _forget_old(self, before: int) -> None:
        for side, episodes in enumerate(self.sides):
            kept = [episode for episode in episodes[:-1] if episode.iteration >= before] + episodes[-1:]
            episodes[:] = kept
            self.sizes[side] = sum(map(len, kept))

    # -- reading -----------------------------------------------------------------------------------

    @property
    def n_steps(self) -> int:
        """Steps remembered, experts' not counted."""
        return sum(self.sizes)

    @property
    def fullness(self) -> float:
        """Share of `max_steps` that is in use, in [0, 1]."""
        return self.n_steps / self.max_steps

    @property
    def successes(self) -> tuple[Episode, ...]:
        """The successes, oldest first."""
        return tuple(self.sides[1])

    @property
    def failures(self) -> tuple[Episode, ...]:
        """The failures, oldest first."""
        return tuple(self.sides[0])

    def __len__(self) -> int:
        """Episodes remembered, experts' included."""
        return sum(map(len, self.sides)) + len(self.experts)

    def episodes(self, window: int | None = None) -> list[Episode]:
        """All that is remembered, failures first, then successes and experts; or what the last `window` iterations brought.

        Experts' episodes are in every window.
        """
        found = [*self.sides[0], *self.sides[1]]
        if window is not None and found:
            newest = max(episode.iteration for episode in found)
            found = [episode for episode in found if episode.iteration > newest - window]
        return found + self.experts

    def states(self, window: int | None = None) -> States:
        """Their steps side by side.

        Raises:
            ValueError: nothing is remembered.
        """
        key = self._version, window
        if self._states is None or self._states[0] != key:
            self._states = key, states(self.episodes(window))
        return self._states[1]

    def batch(self, rng: np.random.Generator, n: int, weights: Weights | None = None) -> tuple[States, Weights]:
        """`n` states drawn with replacement, in proportion to `weights` (all of `states()`, at least 0) where they are given.

        Returns:
            The states, and the weight of each relative to the mean, float32 (n,): 1 for all, as the drawing has taken them into account.

        Raises:
            ValueError: nothing is remembered, or the weights are none.
        """
        found = self.states()
        return found.at(draw(rng, n, len(found), weights)), np.ones(n, np.float32)

    # -- Minari ------------------------------------------------------------------------------------

    def to_minari(self, dataset_id: str, observation_space: spaces.Space[Any], action_space: spaces.Discrete, **about: Any) -> Any:
        """Write what is remembered as a Minari dataset; see `minari_data.episodes_to_minari`."""
        from rao_agents.distillation.minari_data import episodes_to_minari

        return episodes_to_minari(self.episodes(), dataset_id, observation_space, action_space, **about)

    def from_minari(self, dataset: Any) -> int:
        """Add the episodes of a Minari dataset, as experts'; returns how many. See `minari_data.episodes_from_minari`."""
        from rao_agents.distillation.minari_data import episodes_from_minari

        found = episodes_from_minari(dataset)
        self.extend(found)
        return len(found)

    # -- files -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays (`rao_agents.safe_json` writes them); see `set_state`."""
        return {
            "max_steps": self.max_steps,
            "success_share": self.success_share,
            "recent": self.recent,
            "sides": [[episode.arrays() for episode in side] for side in self.sides],
            "experts": [episode.arrays() for episode in self.experts],
            "seen": self.seen,
            "skipped": self.skipped,
            "returns": list(self._returns),
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` returned, its bounds included.

        Raises:
            ValueError: it is damaged.
        """
        try:
            self.max_steps, self.success_share, self.recent = state["max_steps"], state["success_share"], state["recent"]
            failures, successes = ([Episode.from_arrays(arrays) for arrays in side] for side in state["sides"])
            self.sides = failures, successes
            self.experts = [Episode.from_arrays(arrays) for arrays in state["experts"]]
            self.sizes = [sum(map(len, side)) for side in self.sides]
            self.seen, self.skipped = int(state["seen"]), int(state["skipped"])
            self._returns = [float(value) for value in state["returns"]]
            self.rng.bit_generator.state = state["rng"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not the state of an experience buffer: {error}") from error
        self._version += 1
        self._states = None


def draw(rng: np.random.Generator, n: int, total: int, weights: Weights | None = None) -> npt.NDArray[np.int64]:
    """`n` indices below `total`, with replacement, in proportion to `weights` where they are given.

    Raises:
        ValueError: `weights` has another length, is negative somewhere, or 0 everywhere.
    """
    if weights is None:
        return rng.integers(total, size=n)
    if weights.shape != (total,):
        raise ValueError(f"{total} states need as many weights, got {weights.shape}")
    sums = np.cumsum(weights, dtype=np.float64)
    if not np.isfinite(sums[-1]) or sums[-1] <= 0 or float(weights.min()) < 0:
        raise ValueError("weights must be at least 0, finite, and not all 0")
    # The last interval is closed by hand: rounding could put a draw beyond it.
    place = np.searchsorted(sums, rng.random(n) * sums[-1], side="right")
    return cast(npt.NDArray[np.int64], np.minimum(place, total - 1))
