"""Statistics over seeds and episodes: interquartile means, bootstrap intervals, steps to a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; `n` is the number of values it was computed from."""

    value: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, Any]:
        """As plain data, rounded to what is meaningful."""
        return {"value": round(self.value, 6), "low": round(self.low, 6), "high": round(self.high, 6), "n": self.n}


def iqm(values: Floats, axis: int | None = None) -> Any:
    """Interquartile mean (Agarwal et al. 2021): the mean of the middle half; of fewer than four values, the mean."""
    return stats.trim_mean(values, 0.25, axis=axis)


def mean(values: Floats, axis: int | None = None) -> Any:
    """The mean."""
    return np.mean(values, axis=axis)


def estimate(values: Sequence[float] | Floats, statistic: Callable[..., Any] = iqm, seed: int = 0) -> Estimate:
    """`statistic` of one value per seed, with a percentile bootstrap interval over the seeds.

    Args:
        values: one number per run, at least one.
        statistic: `iqm` or `mean`.
        seed: of the resampling.

    Raises:
        ValueError: no values.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError("a statistic needs at least one value")
    rng = np.random.default_rng(seed)
    samples = array[rng.integers(len(array), size=(RESAMPLES, len(array)))]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(statistic(samples, axis=1), [tail, 100 - tail])
    return Estimate(float(statistic(array)), float(low), float(high), len(array))


def band(curves: Floats, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """IQM of curves (runs, points) at every point, and the lower and upper ends of its 95 % interval, each (points,)."""
    estimates = [estimate(column, iqm, seed) for column in curves.T]
    value, low, high = (np.array([getattr(e, name) for e in estimates]) for name in ("value", "low", "high"))
    return value, low, high


def ratio(numerators: Sequence[float] | npt.NDArray[Any], denominators: Sequence[float] | npt.NDArray[Any], seed: int = 0) -> Estimate:
    """The ratio of two sums over episodes, with a percentile bootstrap interval over the episodes; `n` is their number.

    Args:
        numerators: one number >= 0 per episode.
        denominators: the same; an episode with 0 counts for nothing.
        seed: of the resampling.

    Raises:
        ValueError: not as many of one as of the other, or all denominators are 0.
    """
    above, below = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    if above.shape != below.shape or above.ndim != 1:
        raise ValueError(f"a ratio needs as many numerators as denominators, got {above.shape} and {below.shape}")
    if not below.sum() > 0:
        raise ValueError("a ratio needs a denominator that is not 0")
    chosen = np.random.default_rng(seed).integers(len(above), size=(RESAMPLES, len(above)))
    sums = above[chosen].sum(axis=1), below[chosen].sum(axis=1)
    samples = sums[0][sums[1] > 0] / sums[1][sums[1] > 0]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(samples, [tail, 100 - tail])
    return Estimate(float(above.sum() / below.sum()), float(low), float(high), len(above))


def wilson(successes: int, n: int) -> Estimate:
    """Success rate over `n` episodes with Wilson's 95 % interval.

    Raises:
        ValueError: counts that are not 0 <= successes <= n, n >= 1.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} episodes cannot be")
    z = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
    rate = successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Estimate(rate, max(middle - half, 0.0), min(middle + half, 1.0), n)


def steps_to(points: Sequence[dict[str, Any]], threshold: float, mode: str = "sampled", key: str = "success") -> float | None:
    """Environment steps until the curve first reaches `threshold`, linear between its points; None if it never does."""
    previous: tuple[float, float] | None = None
    for point in points:
        steps, value = float(point["steps"]), cast("float | None", point[mode][key])
        if value is None:
            return None
        if value >= threshold:
            if previous is None or value == previous[1]:
                return steps
            fraction = (threshold - previous[1]) / (value - previous[1])
            return previous[0] + fraction * (steps - previous[0])
        previous = steps, float(value)
    return None


def average(points: Sequence[dict[str, Any]], mode: str = "sampled", key: str = "success") -> float | None:
    """The mean of a curve over its steps, linear between its points: how good an agent is how early. None if a point has no value."""
    found = [point[mode][key] for point in points]
    if None in found:
        return None
    steps, values = np.array([point["steps"] for point in points], np.float64), np.array(found, np.float64)
    if len(points) == 1:
        return float(values[0])
    return float(np.diff(steps) @ (values[1:] + values[:-1]) / 2 / (steps[-1] - steps[0]))


def on_grid(points: Sequence[dict[str, Any]], grid: Floats, mode: str, key: str = "success") -> Floats:
    """A curve's values at the steps in `grid`, linear between its points, NaN beyond its end."""
    steps = np.array([point["steps"] for point in points], np.float64)
    values = np.array([np.nan if point[mode][key] is None else point[mode][key] for point in points], np.float64)
    result: Floats = np.interp(grid, steps, values, right=np.nan)
    return result
