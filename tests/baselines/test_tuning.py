from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import ENV, run_here

from rao_baselines import tuning
from rao_baselines.errors import UserError
from rao_baselines.tuning import TUNING_SEED, TuneSpec, tune

FIXED: dict[str, Any] = {"n_envs": 4, "env_kwargs.budget": 20, "n_steps": 8}
SPEC = TuneSpec("a2c", ENV, trials=3, steps=100, seed=5, fixed=FIXED, episodes=4)


def parts(study: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(trial["number"], trial["overrides"], trial["value"], trial["state"]) for trial in study["trials"]]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "run_all", run_here)


def test_a_study_gone_on_with_is_the_same_as_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = tune(SPEC, tmp_path / "whole.json", tmp_path / "work")
    tune(replace(SPEC, trials=1), tmp_path / "parts.json", tmp_path / "work2")
    resumed = tune(SPEC, tmp_path / "parts.json", tmp_path / "work2")
    assert parts(resumed) == parts(whole)
    assert [trial["number"] for trial in whole["trials"]] == [0, 1, 2]
    assert whole["trials"][0]["overrides"] == FIXED
    assert whole["trials"][1]["overrides"].keys() > {"learning_rate", "gamma", "dense_weight", "frame_stack"}
    assert all(trial["overrides"].items() >= FIXED.items() for trial in whole["trials"])
    assert whole["best"]["value"] == max(trial["value"] for trial in whole["trials"])
    assert whole["scored_on"]["first_seed"] == TUNING_SEED
    assert "n_steps" not in whole["search_space"]
    with pytest.raises(UserError, match="holds another study"):
        tune(replace(SPEC, seed=6), tmp_path / "whole.json", tmp_path / "work")


def test_failing_trials_are_kept_and_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not one of the 1 trials worked; .*structure must be one of"):
        tune(replace(SPEC, trials=1, fixed=FIXED | {"env_kwargs.structure": "round"}), tmp_path / "s.json", tmp_path / "work")
