"""Which remembered states matter, and how much (MISSION B8, B10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rao_agents.distillation.episodes import FAILED, SUCCEEDED, UNKNOWN, States

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weighting:
    """Weights of states, at least 0 and with mean 1: the product of what is switched on here.

    Args:
        success: how much more a step of a frame that succeeded counts than one of a frame that failed (where there is no verdict at
            all, than one of an episode with less than the median return): 1 for alike, None for successes alone.
        advantage: states whose action did better than expected count exp(advantage / (this * its standard deviation)), at most 20 times
            and at least a twentieth; 0 switches it off. Small values are strict, 1 is moderate.
        better_only: states whose advantage is not above 0 count nothing.
        surprise: exponent of the states' value error |return - value|, relative to its mean: 0 for alike.
        surprising_share: only this share of the episodes, those with the largest mean value error (selective distillation); 1 for all.
        half_life: policy iterations after which a state counts half as much; None for no decay.
        expert: factor of experts' states.

    Raises:
        ValueError: a number out of range.
    """

    success: float | None = 1.0
    advantage: float = 0.0
    better_only: bool = False
    surprise: float = 0.0
    surprising_share: float = 1.0
    half_life: float | None = None
    expert: float = 1.0

    def __post_init__(self) -> None:
        if self.success is not None and not (math.isfinite(self.success) and self.success >= 0):
            raise ValueError(
                f"success must be a finite number of at least 0 (1 counts all alike), or None for successes alone, got {self.success!r}"
            )
        for name in ("advantage", "surprise", "expert"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)!r}")
        if not 0 < self.surprising_share <= 1:
            raise ValueError(f"surprising_share must lie in (0, 1], got {self.surprising_share!r}")
        if self.half_life is not None and not self.half_life > 0:
            raise ValueError(f"half_life must be above 0 iterations, or None, got {self.half_life!r}")

    def __call__(self, found: States) -> Floats:
        """The weights of `found`, float32 (N,), mean 1; all alike where nothing would count."""
        factors = [
            _by_success(found, self.success) if self.success != 1 else None,
            _by_advantage(found.advantages, self.advantage) if self.advantage else None,
            (found.advantages > 0).astype(np.float32) if self.better_only else None,
            _by_surprise(found, self.surprise) if self.surprise else None,
            _most_surprising(found, self.surprising_share) if self.surprising_share < 1 else None,
            _by_age(found.iteration, self.half_life) if self.half_life is not None else None,
        ]
        weights = np.ones(len(found), np.float32)
        for factor in factors:
            if factor is not None:
                # What comes from elsewhere has neither a policy's values nor an age.
                weights *= np.where(found.expert, np.float32(1.0), factor)
        weights[found.expert] *= np.float32(self.expert)
        total = float(weights.sum(dtype=np.float64))
        return weights * np.float32(len(found) / total) if total > 0 else np.ones(len(found), np.float32)

    def config(self) -> dict[str, Any]:
        """The arguments as plain values."""
        return asdict(self)


def weighting(value: Weighting | Mapping[str, Any] | None) -> Weighting:
    """A weighting from what settings say: None for all alike, or its arguments.

    Raises:
        ValueError: arguments that it does not have.
    """
    if isinstance(value, Weighting):
        return value
    try:
        return Weighting(**(value or {}))
    except TypeError as error:
        known = ", ".join(Weighting.__dataclass_fields__)
        raise ValueError(f"a weighting has the arguments {known}, got {value!r}") from error


def step_verdicts(found: States) -> npt.NDArray[np.int8]:
    """Whether each step belongs to what went well: its frame's verdict, or else the episode's, or else the return against the median."""
    verdict = np.where(found.success == UNKNOWN, found.episode_success, found.success)
    unknown = verdict == UNKNOWN
    if unknown.any():
        first = np.unique(found.episode[unknown], return_index=True)[1]
        returns = found.episode_return[unknown]
        middle = np.median(returns[first])
        verdict = verdict.copy()
        verdict[unknown] = np.where(returns >= middle, SUCCEEDED, FAILED)
    return verdict.astype(np.int8)


def _by_success(found: States, ratio: float | None) -> Floats:
    good = step_verdicts(found) == SUCCEEDED
    if ratio is None:
        return cast(Floats, good.astype(np.float32))
    return cast(Floats, np.where(good, ratio, 1.0).astype(np.float32))


def _by_advantage(advantages: Floats, temperature: float) -> Floats:
    scale = float(advantages.std()) or 1.0
    bound = math.log(20.0)
    return cast(Floats, np.exp(np.clip(advantages / (temperature * scale), -bound, bound)).astype(np.float32))


def _surprise(found: States) -> Floats:
    return cast(Floats, np.abs(found.advantages).astype(np.float32))


def _by_surprise(found: States, exponent: float) -> Floats:
    surprise = _surprise(found)
    mean = float(surprise.mean())
    return ((surprise / mean) ** exponent).astype(np.float32) if mean > 0 else np.ones(len(found), np.float32)


def _most_surprising(found: States, share: float) -> Floats:
    ids, place = np.unique(found.episode, return_inverse=True)
    counts = np.bincount(place)
    mean = np.bincount(place, _surprise(found)) / counts
    kept = np.argsort(-mean, kind="stable")[: max(1, math.ceil(share * len(ids)))]
    chosen = np.zeros(len(ids), np.float32)
    chosen[kept] = 1.0
    return chosen[place]


def _by_age(iteration: npt.NDArray[np.int64], half_life: float) -> Floats:
    age = iteration.max() - iteration
    return cast(Floats, np.exp2(-age / half_life).astype(np.float32))


Weigh = Callable[[States], Floats]
"""Anything that gives states weights; `Weighting` is the one that comes with this package."""
