"""The numbers of a row: interquartile means and their intervals, against SciPy and against what rliable computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

from rao_envs import Episode, Evaluation
from rao_envs.core.episodes import wilson
from rao_leaderboard.scores import FEW, Estimate, interquartile, iqm, numbers

RATES = st.integers(0, 100).map(lambda n: n / 100)
STRATA = st.integers(FEW, 8).flatmap(lambda runs: st.lists(st.lists(RATES, min_size=runs, max_size=runs), min_size=1, max_size=4))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_the_interquartile_mean_is_scipys(values: list[float]) -> None:
    assert iqm(np.array([values]))[0] == pytest.approx(trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


def test_the_interquartile_mean_by_hand() -> None:
    assert iqm(np.array([[9.0, 0.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0]])).tolist() == [1.5, 1.0]
    assert iqm(np.array([[7.0]])).tolist() == [7.0]


# Runs in rows, tasks in columns; rliable 1.2.0, get_interval_estimates with aggregate_iqm and 50 000 resamples.
RLIABLE = [
    ([[0.7], [0.74], [0.66], [0.57], [0.63]], 0.66333333, (0.59, 0.72666667)),
    (
        [[0.55, 0.71, 0.9], [0.63, 0.61, 0.77], [0.75, 0.72, 0.56], [0.7, 0.8, 0.5], [0.63, 0.41, 0.51]],
        0.65111111,
        (0.57888889, 0.72222222),
    ),
    (
        [
            [0.42, 0.66, 0.51, 0.74],
            [0.72, 0.67, 0.32, 0.62],
            [0.69, 0.72, 0.47, 0.63],
            [0.55, 0.58, 0.86, 0.58],
            [0.7, 0.83, 0.61, 0.68],
            [0.72, 0.71, 0.52, 0.71],
            [0.9, 0.47, 0.83, 0.72],
            [0.6, 1.0, 0.81, 0.52],
            [0.71, 0.79, 0.67, 0.8],
            [0.69, 0.8, 0.92, 0.6],
        ],
        0.6785,
        (0.637, 0.723),
    ),
]


@pytest.mark.parametrize(("runs", "value", "interval"), RLIABLE)
def test_values_and_intervals_are_rliables(runs: list[list[float]], value: float, interval: tuple[float, float]) -> None:
    ours = interquartile(np.array(runs).T.tolist(), 100)
    assert ours.value == pytest.approx(value, abs=1e-8)
    assert (ours.low, ours.high) == pytest.approx(interval, abs=0.006)  # both are drawn: a bootstrap's own error
    assert ours.n == len(runs)


@settings(max_examples=30)
@given(STRATA)
def test_an_interval_contains_its_value_and_is_always_the_same(success: list[list[float]]) -> None:
    estimate = interquartile(success, 100)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate == interquartile(success, 100)
    assert estimate.n == len(success[0])


def test_the_global_generator_is_left_alone() -> None:
    state = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]  # noqa: NPY002
    interquartile([[0.1, 0.5, 0.9]], 100)
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index, union-attr]  # noqa: NPY002


@given(st.floats(0, 1), st.integers(FEW, 8))
def test_runs_that_agree_leave_no_doubt(rate: float, runs: int) -> None:
    estimate = interquartile([[rate] * runs], 100)
    assert estimate.low == pytest.approx(rate) == estimate.value == pytest.approx(estimate.high)


def test_equal_scores_are_equal_however_they_come_about() -> None:
    rates = [0.0, 0.7, 0.7, 1.0, 1.0], [0.0, 0.8, 0.8, 0.8, 1.0]
    assert iqm(np.array(rates))[0] < iqm(np.array(rates))[1], "what rounding is for"
    assert interquartile([rates[0]], 100).value == interquartile([rates[1]], 100).value == 0.8


def test_intervals_that_touch_overlap() -> None:
    """Both bounds are .7; before rounding one was .7000000000000001, the other .6999999999999998."""
    upper, lower = interquartile([[0.6, 0.9, 0.9, 0.9, 0.9]], 100), interquartile([[0.5, 0.5, 0.5, 0.7, 0.7]], 100)
    assert upper.low == lower.high == 0.7
    assert not upper.certainly_above(lower)


def test_more_runs_make_a_narrower_interval() -> None:
    few = interquartile([[0.6, 0.7, 0.8, 0.9] * 2], 100)
    many = interquartile([[0.6, 0.7, 0.8, 0.9] * 12], 100)
    assert many.high - many.low < 0.6 * (few.high - few.low)


@given(st.integers(0, 100), st.integers(1, FEW - 1))
def test_few_runs_have_wilsons_interval_over_their_episodes(successes: int, runs: int) -> None:
    estimate = interquartile([[successes / 100] * runs], 100)
    expected = wilson(successes * runs, 100 * runs)
    assert expected.low is not None and expected.high is not None
    assert (estimate.low, estimate.high) == pytest.approx((min(expected.low, estimate.value), max(expected.high, estimate.value)))
    assert estimate.low < estimate.high


@pytest.mark.parametrize("success", [[], [[]], [[0.5], []]])
def test_no_score_of_nothing(success: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one task, and one run of each"):
        interquartile(success, 100)


def test_certainly_above_is_without_overlap() -> None:
    low, high, wide = Estimate(0.2, 0.1, 0.3, 5), Estimate(0.5, 0.4, 0.6, 5), Estimate(0.4, 0.3, 0.5, 5)
    assert high.certainly_above(low) and not low.certainly_above(high)
    assert not wide.certainly_above(low) and not high.certainly_above(wide) and not low.certainly_above(low)


@given(st.permutations(range(7)))
def test_means_do_not_depend_on_the_order_of_episodes(order: list[int]) -> None:
    def evaluation(ks: list[int]) -> Evaluation:
        episodes = tuple(Episode(k, k % 2 == 0, 0.1 * k, k + 1, k + 1, 1, 1, 1, np.zeros(k + 1, np.int64)) for k in ks)
        return Evaluation("RAO/Maze-5x5-v0", {}, "me", True, 9, "0.1.0", episodes)

    found = numbers(evaluation(order))
    assert found == numbers(evaluation(list(range(7))))
    assert found.success == 4 / 7 and found.steps == 4.0 and found.critical_path == 1.0
    assert found.mean_return == pytest.approx(0.3)
