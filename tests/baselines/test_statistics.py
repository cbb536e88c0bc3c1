from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rao_baselines import statistics
from rao_envs.core import episodes


def test_iqm_is_the_mean_of_the_middle_half() -> None:
    assert statistics.iqm(np.array([0.0, 1.0, 2.0, 100.0])) == 1.5
    assert statistics.iqm(np.array([0.0, 0.5, 1.0, 1.0, 1.0])) == pytest.approx(2.5 / 3)
    assert statistics.iqm(np.array([0.2, 0.4])) == pytest.approx(0.3)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for k in range(200):
        found = statistics.estimate(rng.normal(0.5, 0.1, size=40), statistics.mean, seed=k)
        hits += found.low <= 0.5 <= found.high
        assert found.low <= found.value <= found.high
    assert 0.9 <= hits / 200 <= 0.99


def test_estimates_are_the_same_every_time() -> None:
    values = [0.9, 0.95, 0.97, 0.99, 1.0]
    assert statistics.estimate(values) == statistics.estimate(values)
    assert statistics.estimate([0.5]) == (0.5, 0.5, 0.5, 1)
    with pytest.raises(ValueError, match="at least one value"):
        statistics.estimate([])


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (97, 100), (1, 3)])
def test_wilson_is_scipys_and_the_evaluations(successes: int, n: int) -> None:
    found = statistics.wilson(successes, n)
    interval = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    other = episodes.wilson(successes, n)
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=1e-6)
    with pytest.raises(ValueError, match="cannot be"):
        statistics.wilson(n + 1, n)


def point(steps: int, success: float | None) -> dict[str, object]:
    return {"steps": steps, "sampled": {"success": success}}


def test_steps_to_a_threshold() -> None:
    curve = [point(0, 0.0), point(100, 0.5), point(200, 0.4), point(300, 0.9)]
    assert statistics.steps_to(curve, 0.5) == 100
    assert statistics.steps_to(curve, 0.25) == 50
    assert statistics.steps_to(curve, 0.65) == 250
    assert statistics.steps_to(curve, 0.0) == 0
    assert statistics.steps_to(curve, 0.95) is None
    assert statistics.steps_to([point(0, None)], 0.5) is None


def test_curves_on_a_grid() -> None:
    values = statistics.on_grid([point(0, 0.0), point(100, 1.0)], np.array([0.0, 25.0, 100.0, 101.0]), "sampled")
    np.testing.assert_array_equal(values, [0.0, 0.25, 1.0, np.nan])


def test_the_mean_of_a_curve_is_its_area_over_its_length() -> None:
    points = [{"steps": steps, "sampled": {"success": value}} for steps, value in ((0, 0.0), (100, 1.0), (400, 1.0))]
    assert statistics.average(points) == pytest.approx((50 + 300) / 400)
    assert statistics.average(points[1:2]) == 1.0
    assert statistics.average([*points, {"steps": 500, "sampled": {"success": None}}]) is None
