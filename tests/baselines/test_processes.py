from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from small_runs import ENV, run_here, tiny
from test_training import same_model

from rao_baselines import run_one, suite
from rao_baselines.agents import load_model
from rao_baselines.environments import parse_task
from rao_baselines.errors import UserError
from rao_baselines.experiments import SUITES, Experiment, Sizes, Suite
from rao_baselines.experiments.maze import MAZE, STRONGEST
from rao_baselines.pool import Event, run_all
from rao_baselines.runs import read_json, write_json
from rao_baselines.training import train


def wait_for(path: Path, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not path.is_file():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def test_ctrl_c_saves_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--steps", "3000", "--eval-every", "500", "--eval-episodes", "2", "--final-episodes", "2", "--seed", "3", "--out", str(out)]
    sets = ["--set", "n_envs=4", "--set", "n_steps=16", "--set", "batch_size=32", "--set", "n_epochs=2", "--set", "env_kwargs.budget=30"]
    command = [sys.executable, "-m", "rao_baselines.cli", "train", "recursive_ppo", "Maze-5x5", *options, *sets]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(out / "curve.json")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    words = " ".join(errors.split())
    assert f"everything is in {out}" in words
    assert "--resume" in words
    assert "Traceback" not in errors
    assert (out / "checkpoint.zip").is_file()
    assert not (out / "result.json").exists()
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, check=True)
    assert done.stdout
    spec = tiny("recursive_ppo", tmp_path / "whole", seed=3, steps=3000, eval_every=500, eval_episodes=2, final_episodes=2)
    train(spec)
    assert same_model(tmp_path / "whole" / "model.zip", out / "model.zip")


def test_a_failing_run_takes_nothing_with_it(tmp_path: Path) -> None:
    specs = [
        tiny("a2c", tmp_path / "good"),
        tiny("a2c", tmp_path / "bad", overrides={"gamma": "no"}),
        tiny("ppo", tmp_path / "fine", seed=1),
    ]
    events: list[Event] = []
    outcome = run_all(specs, 2, events.append)
    assert sorted(outcome["done"]) == [0, 2]
    assert outcome["failed"] == [1]
    (failure,) = (event for event in events if event.kind == "failed")
    assert failure.data["code"] == 2
    assert "gamma cannot be the text 'no'" in failure.data["error"]
    assert [event.data["steps"] for event in events if event.run == 0 and event.kind == "progress"][-1] == 416
    # As a process of its own or in this one: the same model.
    train(replace(specs[0], out=str(tmp_path / "here")))
    assert same_model(tmp_path / "good" / "model.zip", tmp_path / "here" / "model.zip")


def test_stopping_the_pool_saves_what_runs(tmp_path: Path) -> None:
    specs = [tiny("a2c", tmp_path / str(k), steps=10_000_000, eval_every=10**9) for k in range(2)]
    seen: list[Event] = []
    outcome = run_all(specs, 1, seen.append, should_stop=lambda: any(event.kind == "progress" for event in seen))
    assert outcome == {"done": [], "failed": [], "stopped": [0], "waiting": [1]}
    assert (tmp_path / "0" / "checkpoint.zip").is_file()
    assert not (tmp_path / "1").exists()


def test_one_run_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "spec.json", asdict(tiny("a2c", tmp_path / "run")))
    command = [sys.executable, "-m", "rao_baselines.run_one"]
    done = subprocess.run([*command, str(tmp_path / "spec.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert '"final"' in done.stdout.splitlines()[-1]
    result = read_json(tmp_path / "run" / "result.json")
    assert result["command"].startswith("python -m rao_baselines.run_one ")
    (tmp_path / "wrong.json").write_text('{"algorithm": "a2c", "surprise": 1}')
    assert run_one.main([str(tmp_path / "wrong.json")]) == 2
    assert "surprise" in capsys.readouterr().out
    assert run_one.main([]) == 2


SMALL = {**tiny("a2c", "").overrides}
ROWS = (
    Experiment(
        "recursive",
        "Recursive",
        "nested",
        "recursive_ppo",
        ENV,
        2,
        300,
        {"n_envs": 4, "n_steps": 16, "env_kwargs.budget": 20},
        transfer=(ENV, ENV + "?rows=4"),
    ),
    Experiment("mono", "Monolithic", "nested", "a2c", ENV, 1, 300, SMALL),
    Experiment("mono_rooms", "Monolithic", "rooms", "a2c", ENV, 1, 300, SMALL | {"env_kwargs.structure": "rooms"}),
    Experiment("broken", "Broken", "nested", "a2c", ENV, 1, 300, {"n_envs": -1}),
)


def test_a_suite_keeps_results_skips_them_and_sums_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run_all", run_here)
    out, work = tmp_path / "out", tmp_path / "work"
    run: Callable[..., dict[str, list[str]]] = lambda rows: suite.run_suite(rows, out=out, work=work, jobs=2, episodes=2)  # noqa: E731
    first = run(ROWS[2:])
    assert first["done"] == ["mono_rooms/0"]
    assert first["failed"] == ["broken/0"]
    second = run(ROWS)
    assert second["kept"] == ["mono_rooms/0"]
    assert sorted(second["done"]) == ["mono/0", "recursive/0", "recursive/1"]
    assert second["failed"] == ["broken/0"]
    summary = suite.aggregate(ROWS, out)
    assert summary == read_json(out / "summary.json")
    scores = summary["experiments"]["recursive"]["scores"]["Maze-5x5-v0"]["sampled"]
    assert scores["per_seed"] == [read_json(out / "runs" / "recursive" / f"{k}.json")["final"]["sampled"]["success"] for k in (0, 1)]
    assert set(summary["experiments"]["recursive"]["scores"]) == {"Maze-5x5-v0", "Maze-5x5-v0 rows=4"}
    nested = summary["groups"]["nested"]
    assert nested["strongest_monolithic"] == "mono"
    assert nested["steps_to_threshold"]["mono"]["reached"] == 1
    assert set(nested["steps_to_threshold"]) == {"recursive", "mono"}
    models = suite.export_models(ROWS, out, work, tmp_path / "models")
    assert [path.name for path in models] == [f"{name}.{end}" for name in ("recursive", "mono", "mono_rooms") for end in ("zip", "json")]
    assert read_json(tmp_path / "models" / "recursive.json")["chosen"].startswith("the median of 2 seeds")
    assert load_model(tmp_path / "models" / "recursive.zip").action_space.n == 9  # type: ignore[attr-defined]
    wider = [replace(ROWS[0], transfer=(*ROWS[0].transfer, ENV + "?rows=3"))]
    assert run(wider)["done"] == ["recursive/0", "recursive/1"]  # only scored: the models are there
    assert read_json(out / "runs" / "recursive" / "1.json")["transfer"].keys() == set(wider[0].transfer)
    (work / "recursive" / "1" / "model.zip").unlink()
    widest = [replace(ROWS[0], transfer=(*wider[0].transfer, ENV + "?rows=2"))]
    assert run(widest)["kept"] == ["recursive/1"]
    sizes = Sizes("sizes", "By size", "nested", {ENV: "5x5", ENV + "?rows=4": "4x5"})
    written = suite.draw(Suite("", ROWS, {row.group: row.group for row in ROWS}, (sizes,)), out, tmp_path / "images")
    assert sorted(path.name for path in written) == [
        "maze-5x5-curves-rooms.png",
        "maze-5x5-curves-rooms.svg",
        "maze-5x5-curves.png",
        "maze-5x5-curves.svg",
        "sizes.png",
        "sizes.svg",
    ]
    assert all(path.stat().st_size > 1000 for path in written)


@pytest.mark.parametrize("name", SUITES)
def test_the_published_experiments(name: str) -> None:
    rows = SUITES[name].rows
    assert len({row.name for row in rows}) == len(rows)
    compared = {family for comparison in SUITES[name].comparisons for family in comparison.families}
    assert {row.group for row in rows} == set(SUITES[name].titles) | compared
    for row in rows:
        for spec in row.specs(Path("runs")):
            assert spec.final_episodes == 500
            assert spec.folder() == Path("runs") / row.name / str(spec.seed)
        for task in (row.task, *row.transfer):
            parse_task(task)


def test_the_headline_rows_and_choosing_among_rows() -> None:
    rows = {row.name: row for row in MAZE.rows}
    assert (rows["recursive_ppo"].seeds, rows["recursive_ppo"].steps) == (5, 400_000)
    assert (rows[STRONGEST].seeds, rows[STRONGEST].steps) == (5, 1_000_000)
    assert suite.choose(MAZE.rows, ["rooms"]) == [row for row in MAZE.rows if row.group == "rooms"]
    with pytest.raises(Exception, match=r"no experiment is called 'room'\. Did you mean rooms"):
        suite.choose(MAZE.rows, ["room"])


def test_a_run_may_be_scored_on_another_task_than_it_trains_on(tmp_path: Path) -> None:
    spec = tiny("a2c", str(tmp_path / "run"))
    spec.scored_on, spec.transfer = "RAO/Maze-5x5-v0?rows=2&cols=2&budget=1000", ["Maze-5x5?rows=1&cols=2"]
    result = train(spec)
    assert result["env_id"] == ENV
    assert result["final"]["sampled"]["success"] == 1.0  # 1,000 steps to cross four cells
    assert result["curve"][0]["sampled"]["success"] == 1.0
    assert result["transfer"]["Maze-5x5?rows=1&cols=2"]["sampled"]["success"] == 1.0


@pytest.mark.parametrize(("text", "message"), [("Maze-5x6", "no environment"), ("Maze-5x5?rows", "key=value"), ("Maze-5x5?a=[", "YAML")])
def test_tasks_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_task(text)
