from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rao_baselines import overhead, speed


def test_single_and_batched_measurements() -> None:
    assert speed.single_steps("CartPole-v1", 0.02) > 100
    assert speed.single_steps(speed.OURS, 0.02, spawn=False) > 100
    assert speed.vector_steps(speed.OURS, 16, 0.02) > 100
    assert speed.sb3_steps(4, 0.02) > 100
    assert speed.inits(speed.OURS, 0.02) > 1


def test_a_fresh_interpreter_is_timed() -> None:
    assert speed.in_new_process("print(0.25)") == 0.25
    with pytest.raises(ValueError, match=r"a fresh interpreter failed: (.|\n)*no_such_module"):
        speed.in_new_process("import no_such_module")


def test_ratios_need_both_sides() -> None:
    ours, minigrid = f"gym.make({speed.OURS!r})", f"gym.make({speed.MINIGRID!r})"
    assert speed.ratios({ours: 30.0, minigrid: 2.0}) == {"single environment, times MiniGrid MultiRoom-N6": 15.0}
    assert {ours, minigrid} <= {case.name for case in speed.cases()}


@pytest.mark.slow
def test_the_whole_measurement(rao: Callable[..., Any], tmp_path: Path) -> None:
    done = rao("bench", "speed", "--duration", 0.2, "--out", tmp_path / "speed.json", "--json")
    assert done.code == 0
    assert len(done.json["ratios"]) == 3
    assert all(entry["value"] > 0 for entry in done.json["measurements"].values())


def test_overhead_compares_with_no_transfer() -> None:
    """Every mode is measured, and times are multiples of those without transfer."""
    values = {name: overhead.Speed(100.0 / (k + 1), 200.0 / (k + 1)) for k, name in enumerate(overhead.MODES)}
    result = overhead.report(values, 1.0)
    assert result["modes"]["none"] == {"training": 100.0, "acting": 200.0, "training_time": 1.0, "acting_time": 1.0}
    assert [row["training_time"] for row in result["modes"].values()] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert overhead.acting(overhead.MODES["memory of 8 slots"], 0.05) > 0
