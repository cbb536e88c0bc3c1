"""The source's table beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rao_baselines import headline_table
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.environments import parse_task
from rao_baselines.experiments import SUITES
from rao_baselines.experiments.limits import COMPARED, LIMITS
from rao_baselines.experiments.table import LINES, SUITES_OF_THE_TABLE
from rao_baselines.places import results_folder
from rao_baselines.runs import write_json
from rao_baselines.suite import task_name

Rao = Callable[..., Any]
MAZE = "Maze-20x20-v0"


def experiment(label: str, steps: int, success: float) -> dict[str, Any]:
    rate = {"value": success, "low": success, "high": success, "n": 3}
    mode = {"iqm": rate, "mean": rate, "per_seed": [success] * 3, "steps": 60.0, "critical_path": 40.0}
    return {"label": label, "group": "nested", "steps": steps, "seeds": [0, 1, 2], "scores": {MAZE: {"greedy": mode, "sampled": mode}}}


def write_summary(results: Path, success: float, recursive: float | None, monolithic: float | None) -> None:
    reached = {"recursive_ppo": {"median": recursive}, "maskable_ppo_dense": {"median": monolithic}}
    group = {"strongest_monolithic": "maskable_ppo_dense", "threshold": 0.8, "budget": 1_000_000, "steps_to_threshold": reached}
    found = {
        "recursive_ppo": experiment("RecursivePPO", 400_000, success),
        "maskable_ppo_dense": experiment("MaskablePPO, dense", 1_000_000, 0.8),
    }
    write_json(results / "maze" / "summary.json", {"experiments": found, "groups": {"nested": group}})


@pytest.mark.parametrize(
    ("success", "recursive", "monolithic", "figure", "steps", "fewer"),
    [
        (0.94, 200_000.0, 500_000.0, "reached", "200 k; 500 k (2.5x)", "reached"),
        (0.93, 201_000.0, 500_000.0, "**missed**", "201 k; 500 k (2.5x)", "**missed**"),
        # Where its seeds' last points scatter below their mean, the end of the run counts.
        (0.99, 100_000.0, None, "reached", "100 k; 1,000 k (10.0x)", "reached"),
        (0.10, None, 500_000.0, "**missed**", "never in 400 k; 500 k", "**missed**"),
    ],
)
def test_targets_are_reached_or_missed(
    success: float, recursive: float | None, monolithic: float | None, figure: str, steps: str, fewer: str, tmp_path: Path
) -> None:
    write_summary(tmp_path, success, recursive, monolithic)
    heading, *rows = headline_table.source_and_ours(tmp_path)
    line = next(dict(zip(heading, row, strict=True)) for row in rows if "maze" in row[0])
    assert line["source: RAO"] == "94 % after 400 k steps"
    assert line["source's RAO figure"] == figure
    assert line["strongest monolithic agent here"].endswith("(MaskablePPO, dense, 1,000 k steps, 3 seeds)")
    assert f"**{success:.3f} " in line["RecursivePPO here"]
    heading, *rows = headline_table.how_much_sooner(tmp_path)
    line = next(dict(zip(heading, row, strict=True)) for row in rows if "maze" in row[0])
    assert (line["steps to the monolithic agent's score"], line["2.5x fewer"]) == (steps, fewer)
    assert line["steps of an episode / critical path"] == "60 / 40 (1.5x)"


def test_without_results_only_the_sources_columns_are_filled(tmp_path: Path) -> None:
    for make in headline_table.TABLES.values():
        heading, *rows = make(tmp_path)
        assert rows
        assert all(len(row) == len(heading) for row in rows)
    _, *rows = headline_table.source_and_ours(tmp_path)
    assert [row[4:] for row in rows] == [["", "", ""]] * len(LINES)
    assert headline_table.draw(tmp_path, tmp_path / "images") == []


def test_the_lines_and_the_limits_name_what_the_suites_have() -> None:
    assert [line.suite for line in LINES] == ["longseq", "maze", "algebra", "dialogue"]
    for line in LINES:
        suite = SUITES[line.suite]
        assert suite.rows[0].algorithm == "recursive_ppo"
        assert line.task in suite.sizes[0].tasks
        assert task_name(line.task) == task_name(suite.rows[0].task)
        assert line.suite in SUITES_OF_THE_TABLE
    for limit in COMPARED:
        rows = {row.name: row for row in SUITES[limit.suite].rows}
        assert rows[limit.recursive].algorithm == "recursive_ppo"
        assert rows[limit.monolithic].algorithm == "maskable_ppo"
        for name in (limit.recursive, limit.monolithic):
            assert limit.task in (rows[name].task, *map(rows[name].plain, rows[name].transfer))
        assert limit.suite in SUITES_OF_THE_TABLE
    for row in LIMITS.rows:
        load_settings(find_algorithm(row.algorithm), row.env_id, row.overrides)
        parse_task(row.task)
        assert row.seeds == 3


def test_the_command_writes_and_draws_what_is_kept(rao: Rao, tmp_path: Path) -> None:
    made = rao("bench", "table", "--kept", "--out", tmp_path / "none", "--json")
    assert made.code == 0
    assert set(made.json) == set(headline_table.TABLES)
    assert made.json["table"][0]["task"] == "long sequence, 10 k records"  # no Markdown
    for line in LINES:
        (tmp_path / line.suite).symlink_to((results_folder() / line.suite).resolve())
    text = rao("bench", "table", "--kept", "--out", tmp_path)
    assert text.code == 0
    assert "maze 20x20" in text.out
    assert {path.name for path in tmp_path.glob("*.*")} == {
        f"table-{name}.{end}" for name in ("curves", "sizes", "limits") for end in ("svg", "png")
    }
    planned = rao("bench", "table", "--dry-run", "--out", tmp_path / "planned")
    assert planned.code == 0
    assert "maskable_ppo_majority" in planned.out
    planned = rao("bench", "table", "--dry-run", "--json").json
    assert set(planned) == {"maze", "algebra", "longseq", "dialogue", "limits"}


def test_what_would_run_as_data(rao: Rao, tmp_path: Path) -> None:
    text = rao("bench", "limits", "--dry-run", "--json", "--out", tmp_path).out
    assert {run["experiment"] for run in json.loads(text)} == {row.name for row in LIMITS.rows}
