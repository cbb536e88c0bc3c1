"""Numbers of a row, from its episodes alone: interquartile means with 95 % intervals by stratified bootstrap, rliable's method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs import Evaluation
from rao_envs.core.episodes import wilson

RESAMPLES = 10_000
SEED = 20_261_201
"""Of the resampling: a row's interval is a function of its own episodes, whatever other rows there are."""

FEW = 3
"""Runs below which resampling them says nothing: the interval is Wilson's, over their episodes."""


class Estimate(NamedTuple):
    """A number with its 95 % interval; `n` is the number of runs."""

    value: float
    low: float
    high: float
    n: int

    def certainly_above(self, other: Estimate) -> bool:
        """Whether the intervals do not overlap, and this is the higher one."""
        return self.low > other.high


class Numbers(NamedTuple):
    """Means over one evaluation's episodes, as `submission.json` states them."""

    success: float
    mean_return: float
    steps: float
    critical_path: float


def numbers(evaluation: Evaluation) -> Numbers:
    """The means over all episodes; the same to the last bit in any order of them."""
    episodes = evaluation.episodes
    columns = (
        [float(bool(e.success)) for e in episodes],
        [e.return_ for e in episodes],
        [float(e.steps) for e in episodes],
        [float(e.critical_path) for e in episodes],
    )
    return Numbers(*(math.fsum(column) / len(column) for column in columns))


def iqm(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Interquartile mean of each row of `values` (m, n): the mean of the middle half, a quarter cut off at either end (rounded down)."""
    n = values.shape[1]
    cut = n // 4
    middle: npt.NDArray[np.float64] = np.sort(values, axis=1)[:, cut : n - cut].mean(axis=1)
    return middle


def interquartile(success: Sequence[Sequence[float]], episodes: int) -> Estimate:
    """The interquartile mean of success over all runs of all tasks, with its interval.

    Args:
        success: one list per task (the strata): the success rate of each run there. Resampling draws runs with replacement within each
            task (Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice", section 4.1).
        episodes: of each rate; of use only where a task has fewer than FEW runs: the interval is then Wilson's, over all episodes.

    Raises:
        ValueError: no task, or one without a run.
    """
    if not success or not all(success):
        raise ValueError("a score needs at least one task, and one run of each")
    tasks = [np.asarray(rates, np.float64) for rates in success]
    value = _rounded(iqm(np.concatenate(tasks)[None])[0])
    runs = min(map(len, tasks))
    if runs < FEW:
        trials = episodes * sum(map(len, tasks))
        interval = wilson(round(float(np.concatenate(tasks).mean()) * trials), trials)
        return Estimate(value, min(value, _rounded(interval.low or 0.0)), max(value, _rounded(interval.high or 0.0)), runs)
    rng = np.random.default_rng(SEED)
    samples = np.concatenate([rates[rng.integers(len(rates), size=(RESAMPLES, len(rates)))] for rates in tasks], axis=1)
    low, high = np.percentile(iqm(samples), [2.5, 97.5])
    return Estimate(value, min(value, _rounded(low)), max(value, _rounded(high)), runs)


def _rounded(value: float) -> float:
    """Without what is due to floating point alone: three times .8 would beat .7, .7 and 1, and intervals that touch would not."""
    return round(float(value), 12)
