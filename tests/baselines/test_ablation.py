"""The ablation suite, and training and scoring without masks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_runs import ENV, run_here, tiny

from rao_agents import load_safely
from rao_baselines import suite, tables
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.errors import UserError
from rao_baselines.evaluation import evaluation_seeds, score
from rao_baselines.experiments import SUITES
from rao_baselines.experiments.ablation import ABLATION, BASE, CHANGES
from rao_baselines.runs import read_json
from rao_baselines.training import train
from rao_envs import Evaluation

(COMPARISON,) = ABLATION.comparisons


def forbidden(evaluation: Evaluation) -> int:
    """How many of the actions taken were not allowed."""
    count = 0
    env = gym.make(ENV, budget=30)
    for episode in evaluation.episodes:
        observation, _ = env.reset(seed=episode.seed)
        for action in episode.actions:
            count += not observation["action_mask"][action]
            observation = env.step(int(action))[0]
    return count


def test_without_masks_an_agent_tries_what_is_not_allowed_in_training_and_in_its_scores(tmp_path: Path) -> None:
    result = train(tiny("recursive_ppo", tmp_path / "run", overrides={"use_masking": False}))
    assert result["settings"]["use_masking"] is False
    model: Any = load_safely(tmp_path / "run" / "model.zip")
    for mode in ("greedy", "sampled"):
        kept = Evaluation.load(tmp_path / "run" / f"evaluation-{mode}.json")
        again = score(model, ENV, evaluation_seeds(4), mode=mode, env_kwargs={"budget": 30}, use_masking=False)
        assert again.episodes == kept.episodes
        masked = score(model, ENV, evaluation_seeds(4), mode=mode, env_kwargs={"budget": 30})
        assert forbidden(masked) == 0
    assert forbidden(kept) > 0
    train(tiny("recursive_ppo", tmp_path / "masked"))
    assert forbidden(Evaluation.load(tmp_path / "masked" / "evaluation-sampled.json")) == 0


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn", "recurrent_ppo"])
def test_leaving_masks_out_is_for_algorithms_that_use_them(name: str) -> None:
    with pytest.raises(UserError, match=f"use_masking: false is for algorithms that use masks; {name} never does"):
        load_settings(find_algorithm(name), ENV, {"use_masking": False})
    with pytest.raises(UserError, match="use_masking must be true or false, got 1"):
        load_settings(find_algorithm("recursive_a2c"), ENV, {"use_masking": 1})


def test_every_row_of_the_suite_has_settings_that_exist_and_every_choice_a_row() -> None:
    rows = {row.name: row for row in ABLATION.rows}
    asked = {
        COMPARISON.row(f, choice) for f in COMPARISON.families for choices in COMPARISON.questions.values() for choice in choices.values()
    }
    assert asked == set(rows)
    for row in rows.values():
        changed = load_settings(find_algorithm(row.algorithm), row.env_id, row.overrides)
        base = rows[COMPARISON.row(row.group, BASE)]
        unchanged = load_settings(find_algorithm(base.algorithm), base.env_id, base.overrides)
        assert (changed == unchanged) == (row is base)
        assert (row.seeds, row.steps, row.env_id, row.scored_on, row.transfer) == (
            3, base.steps, base.env_id, base.scored_on, base.transfer
        )  # fmt: skip
    for choices in COMPARISON.questions.values():
        assert next(iter(choices.values())) == BASE
        assert set(choices.values()) <= set(CHANGES)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], dict[str, Any]]:
    """Runs a base and one other choice of the maze's rows on tiny settings."""
    monkeypatch.setattr(suite, "run_all", run_here)
    tiny_settings = {"n_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 1, "env_kwargs.budget": 20}
    rows = tuple(
        replace(row, env_id=ENV, seeds=2, steps=200, overrides=row.overrides | tiny_settings, transfer=("Maze-5x5?rows=4",))
        for row in ABLATION.rows
        if row.name in ("maze_base", "maze_softmax")
    )
    chosen = ABLATION._replace(rows=rows)
    monkeypatch.setitem(SUITES, "ablation", chosen)

    def run(folder: Path) -> dict[str, Any]:
        outcome = suite.run_suite(rows, out=folder / "ablation", work=folder / "work", jobs=1, episodes=3)
        assert len(outcome["done"]) == 4
        summary = suite.aggregate(rows, folder / "ablation")
        return {"summary": summary, "images": suite.draw(chosen, folder / "ablation", folder / "images")}

    return run


def test_bars_curves_and_table_of_what_is_there(small: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- results ablation maze -->\n<!-- end -->\n")
    tables.write_tables([page], tmp_path)  # nothing is kept yet: the questions alone
    assert len(page.read_text().splitlines()) == 2 + 2 + sum(map(len, COMPARISON.questions.values()))
    found = small(tmp_path)
    assert [path.name for path in found["images"]] == [
        "ablation.svg", "ablation.png", "ablation-maze-curves.svg", "ablation-maze-curves.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 1000 for path in found["images"])
    result = read_json(tmp_path / "ablation" / "runs" / "maze_softmax" / "0.json")
    assert result["settings"]["hyperparameters"]["delegation_head"] is False
    kept = found["summary"]["experiments"]["maze_softmax"]
    assert 0 <= kept["over_the_run"]["value"] <= 1
    tables.write_tables([page], tmp_path)
    lines = page.read_text().splitlines()
    assert lines[1] == "| question | choice | Maze-5x5-v0, greedy / sampled | mean over the run | Maze-5x5 rows=4 zero-shot |"
    assert any(line.startswith("| **policy** | delegation head | 0.") for line in lines)
    assert any(line.startswith("|  | plain softmax | 0.") for line in lines)
    assert any(line == "|  | tree |  |  |  |" for line in lines)


def test_the_same_results_draw_the_same_bytes(small: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    found = small(tmp_path)
    before = [path.read_bytes() for path in found["images"]]
    suite.draw(SUITES["ablation"], tmp_path / "ablation", tmp_path / "images")
    assert [path.read_bytes() for path in found["images"]] == before
    assert json.loads((tmp_path / "ablation" / "summary.json").read_text())["experiments"].keys() == {"maze_base", "maze_softmax"}
    assert np.isfinite([e["over_the_run"]["value"] for e in found["summary"]["experiments"].values()]).all()


def test_a_figure_appears_on_its_page_once_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "images_folder", lambda: tmp_path / "images")
    page = tmp_path / "page.md"
    page.write_text("<!-- results ablation maze figure -->\n<!-- end -->\n")
    tables.write_tables([page], tmp_path)
    assert "*Ablation maze: not drawn yet.*" in page.read_text()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "ablation-maze-curves.png").touch()
    tables.write_tables([page], tmp_path)
    assert "![Ablation maze](images/ablation-maze-curves.png)" in page.read_text()
    assert "not drawn" not in page.read_text()
