"""Self-distillation in training runs: settings, files, resuming, the suite's rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_runs import tiny

from rao_agents import load_policy
from rao_agents.distillation import RoundArchive
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.distilling import Distillation
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.experiments import SUITES
from rao_baselines.runs import RunFolder
from rao_baselines.training import train

SETTINGS: dict[str, Any] = {
    "distillation": {
        "distiller": {"kind": "student", "student": "light", "epochs": 1},
        "trigger": {"kind": "interval", "steps": 128},
        "guard": {"every": 128, "episodes": 3},
        "batch_size": 32,
    }
}


@pytest.fixture(autouse=True)
def _always_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rao_baselines.training.CHECKPOINT_SECONDS", 0.0)


def test_a_run_keeps_its_rounds_and_its_student(tmp_path: Path) -> None:
    result = train(tiny("recursive_ppo", tmp_path, overrides=SETTINGS))
    told = result["distillation"]
    assert told["rounds"] >= 2
    assert told["student"]["parameters"] < 0.3 * result["parameters"]
    assert 0 <= told["student"]["sampled"]["success"] <= 1
    assert len(RoundArchive(tmp_path / "distillation").rounds()) == told["rounds"] + 1
    load_policy(tmp_path / "student.zip")
    assert not RunFolder(tmp_path).distillations()
    assert json.loads((tmp_path / "config.json").read_text())["settings"]["distillation"] == SETTINGS["distillation"]


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = train(tiny("recursive_ppo", tmp_path / "whole", overrides=SETTINGS))
    asked = iter([False] * 4 + [True] * 100)
    spec = tiny("recursive_ppo", tmp_path / "parts", overrides=SETTINGS)
    with pytest.raises(StoppedError):
        train(spec, should_stop=lambda: next(asked))
    assert len(RunFolder(tmp_path / "parts").distillations()) == 1
    parts = train(spec, resume=True)
    assert parts["final"] == whole["final"]
    assert [point["sampled"] for point in parts["curve"]] == [point["sampled"] for point in whole["curve"]]
    assert parts["distillation"] == whole["distillation"]


def test_a_missing_state_is_told(tmp_path: Path) -> None:
    spec = tiny("recursive_ppo", tmp_path, overrides=SETTINGS)
    asked = iter([False] * 4 + [True] * 100)
    with pytest.raises(StoppedError):
        train(spec, should_stop=lambda: next(asked))
    for path in RunFolder(tmp_path).distillations():
        path.unlink()
    with pytest.raises(UserError, match="cannot be resumed"):
        train(spec, resume=True)


@pytest.mark.parametrize(("wrong", "message"), [("often", "true, false or a mapping"), ({"trigger": "sometimes"}, "one of interval")])
def test_wrong_settings_are_told(wrong: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(tiny("ppo", tmp_path, overrides={"distillation": wrong}))


def test_off_policy_algorithms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="on-policy"):
        train(tiny("dqn", tmp_path, overrides={"distillation": True}))


@pytest.mark.parametrize("row", [row for row in SUITES["distillation"].rows if row.overrides.get("distillation")], ids=lambda row: row.name)
def test_every_row_of_the_suite_can_be_made(row: Any, tmp_path: Path) -> None:
    spec = row.specs(tmp_path)[0]
    algorithm = find_algorithm(row.algorithm)
    settings = load_settings(algorithm, spec.env_id, spec.overrides)
    made = Distillation.of(spec, settings, algorithm.spawn, RunFolder(tmp_path))
    assert made is not None
    made.close()
