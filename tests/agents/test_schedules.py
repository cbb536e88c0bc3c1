"""Schedules: values, descriptions, and what configuration files may write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stable_baselines3.common import utils

from rao_agents import schedules


def test_values() -> None:
    assert schedules.constant(3)(0.2) == 3.0
    schedule = schedules.linear(1.0, 0.5, 0.4)
    assert [schedule(p) for p in (1.0, 0.8, 0.6, 0.3, 0.0)] == pytest.approx([1.0, 0.75, 0.5, 0.5, 0.5])
    table = schedules.TableSchedule((0.0, 1.0, 0.0))
    assert [table(p) for p in (1.0, 0.75, 0.5, 0.0, -0.1, 1.1)] == pytest.approx([0.0, 0.5, 1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("progress", [1.0, 0.9, 0.5, 0.123, 0.0])
def test_linear_is_sb3s(progress: float) -> None:
    assert schedules.linear(2.0, 0.5, 0.7)(progress) == utils.LinearSchedule(2.0, 0.5, 0.7)(progress)


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.constant(0.1),
        schedules.linear(0.3, 0.1, 0.5),
        schedules.TableSchedule((1.0, 0.25)),
        utils.LinearSchedule(0.3, 0.1, 0.5),
        utils.ConstantSchedule(2.0),
        utils.FloatSchedule(utils.LinearSchedule(1.0, 0.0, 1.0)),
        0.7,
    ],
)
def test_descriptions(schedule: Any) -> None:
    again = schedules.from_description(json.loads(json.dumps(schedules.describe(schedule))))
    values = schedule if callable(schedule) else schedules.constant(schedule)
    assert [again(p) for p in (1.0, 0.6, 0.1)] == pytest.approx([values(p) for p in (1.0, 0.6, 0.1)])
    assert schedules.from_description(schedules.describe(again)) == again


def test_functions_become_tables() -> None:
    def cube(progress: float) -> float:
        return progress**3

    with pytest.raises(TypeError, match="cannot be written down"):
        schedules.describe(cube)
    table = schedules.tabulate(cube)
    assert table(0.37) == pytest.approx(0.37**3, abs=1e-5)


def test_configuration() -> None:
    assert schedules.parse(0.5) == 0.5
    assert schedules.parse("0.5") == 0.5
    assert schedules.parse("lin_2.5e-4") == schedules.linear(2.5e-4)
    assert schedules.parse("lin_0.1_0.003_0.75") == schedules.linear(0.1, 0.003, 0.75)
    assert schedules.parse({"kind": "linear", "start": 1, "end": 0.5}) == schedules.linear(1.0, 0.5)
    assert schedules.parse(abs) is abs


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("fast", "'fast' is not a schedule"),
        ("lin_x", "'lin_x' is not a schedule"),
        ("lin_", "'lin_' is not a schedule"),
        ("lin_1_0_1_0", "'lin_1_0_1_0' is not a schedule"),
        (True, "finite numbers"),
        (float("nan"), "finite numbers"),
        ({"kind": "cosine"}, "constant, linear, table"),
        ({"kind": "linear", "begin": 1.0}, "wrong parameters"),
        ({"kind": "linear", "start": 1.0, "end_fraction": 0.0}, r"end_fraction must lie in \(0, 1\]"),
        ({"kind": "table", "values": [1.0]}, "at least two values"),
        ({"kind": "table"}, "wrong parameters"),
    ],
)
def test_wrong_schedules(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.parse(wrong)
