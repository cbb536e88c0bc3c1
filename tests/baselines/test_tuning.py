from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import ENV, run_here

from rao_baselines import tuning
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.errors import UserError
from rao_baselines.runs import read_json, write_json
from rao_baselines.search_spaces import space_for
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


def test_no_trial_stacks_observations_for_a_network_that_reads_one() -> None:
    algorithm = find_algorithm("maskable_ppo")
    for env_id, stacks in (("RAO/LongSeq-v0", False), ("RAO/Maze-20x20-v0", True)):
        assert ("frame_stack" in space_for(algorithm, load_settings(algorithm, env_id, {}), {}, True)) == stacks


def test_a_study_goes_on_without_settings_that_are_no_longer_searched(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    tune(replace(SPEC, trials=2), path, tmp_path / "work")
    study = read_json(path)
    study["trials"][1]["params"]["of old"] = 2
    write_json(path, study)
    assert len(tune(SPEC, path, tmp_path / "work")["trials"]) == 3
