from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3 as sb3
from PIL import Image
from small_runs import ENV, tiny_options

import rao_envs
from rao_agents import load_safely, save_policy
from rao_baselines.algorithms import ALGORITHMS
from rao_baselines.cli import main
from rao_baselines.runs import write_json

Rao = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a recursive and a monolithic agent."""
    root = tmp_path_factory.mktemp("runs")
    for algorithm in ("recursive_ppo", "ppo"):
        for seed in (0, 1):
            out = str(root / algorithm / str(seed))
            with pytest.raises(SystemExit) as exit_:
                main(["train", algorithm, "Maze-5x5", "--seed", str(seed), "--out", out, *tiny_options(algorithm)])
            assert exit_.value.code in (0, None)
    return root


def test_help_teaches(rao: Rao) -> None:
    text = rao("--help")
    assert text.code == 0
    for command in ("list", "demo", "play", "train", "evaluate", "compare", "plot", "tune", "bench"):
        assert f" {command} " in text.out
        page = rao(command, "--help")
        assert page.code == 0
        assert "Usage: rao" in page.out
        if command != "demo":
            assert f"rao {command}" in page.out.partition("Examples")[2]
    assert rao("bench", "maze", "--help").code == 0


def test_list(rao: Rao) -> None:
    listing = rao("list", "--json").json
    assert [entry["id"] for entry in listing["environments"]] == list(rao_envs.registered_ids())
    assert [entry["name"] for entry in listing["algorithms"]] == list(ALGORITHMS)
    assert {"random", "solver"} <= set(listing["agents"])
    text = rao("list").out
    assert "RAO/Maze-80x80-v0" in text
    assert "recursive_ppo" in text


def test_train_prints_the_result_and_where_it_is(rao: Rao, tmp_path: Path) -> None:
    done = rao("train", "a2c", "Maze-5x5", "--out", tmp_path / "run", *tiny_options("a2c"))
    assert done.code == 0
    assert "RAO/Maze-5x5-v0" in done.out
    assert "greedy success" in done.out
    assert f"rao evaluate {tmp_path / 'run'} RAO/Maze-5x5-v0" in done.err
    again = rao("train", "a2c", "Maze-5x5", "--out", tmp_path / "run", "--resume", "--json", *tiny_options("a2c"))
    assert again.json == json.loads((tmp_path / "run" / "result.json").read_text())
    assert again.err == ""


def test_evaluate_a_run(rao: Rao, runs: Path) -> None:
    run = runs / "recursive_ppo" / "0"
    given = rao("evaluate", run, "Maze-5x5", "--seeds", 4, "-e", "budget=30", "--json").json
    kept = json.loads((run / "result.json").read_text())["final"]
    assert given["results"] == kept
    assert given["env_kwargs"] == {"budget": 30, "spawn": True}
    table = rao("evaluate", run / "model.zip", ENV, "--seeds", 3, "--sampled")
    assert table.code == 0
    assert "success" in table.out
    assert "greedy" not in table.out
    twin = rao("evaluate", runs / "ppo" / "1", "Maze-10x10", "--seeds", 2, "-e", "budget=30", "--greedy", "--json").json
    assert twin["env_kwargs"]["spawn"] is False
    assert list(twin["results"]) == ["greedy"]
    assert twin["agent"] == "ppo, seed 1"


def test_evaluate_builtins_and_write_records(rao: Rao, tmp_path: Path) -> None:
    solved = rao("evaluate", "solver", "Maze-10x10", "--seeds", 6, "--records", tmp_path, "--json").json
    assert solved["results"]["greedy"]["success"] == 1.0
    assert rao_envs.Evaluation.load(tmp_path / "greedy.json").summary()["success"].mean == 1.0
    lost = rao("evaluate", "random", "Maze-20x20", "--seeds", 4, "--first-seed", 0, "-e", "budget=9", "--json").json
    assert lost["results"]["greedy"]["success"] == 0.0
    assert lost["seeds"] == [0, 4]
    twin = rao("evaluate", "solver", "Maze-10x10", "--seeds", 3, "-e", "spawn=false", "--json").json
    assert twin["results"]["greedy"]["summary"]["spawns"]["mean"] == 0


def test_evaluate_a_policy_alone(rao: Rao, runs: Path, tmp_path: Path) -> None:
    save_policy(load_safely(runs / "recursive_ppo" / "0" / "model.zip").policy, tmp_path / "small.zip")
    alone = rao("evaluate", tmp_path / "small", "Maze-5x5", "--seeds", 4, "-e", "budget=30", "--json").json
    whole = rao("evaluate", runs / "recursive_ppo" / "0", "Maze-5x5", "--seeds", 4, "-e", "budget=30", "--json").json
    assert alone["results"] == whole["results"]
    assert alone["agent"] == "small"


def test_files_with_pickles_are_refused(rao: Rao, tmp_path: Path) -> None:
    sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16).save(tmp_path / "theirs.zip")
    refused = rao("evaluate", tmp_path / "theirs.zip", "CartPole-v1")
    assert refused.code == 2
    assert "can run any code" in refused.err
    (tmp_path / "junk.zip").write_bytes(b"junk")
    assert "damaged" in rao("evaluate", tmp_path / "junk.zip", "CartPole-v1").err


def test_compare(rao: Rao, runs: Path) -> None:
    table = rao("compare", runs)
    assert table.code == 0
    assert "recursive_ppo" in table.out
    rows = rao("compare", runs / "recursive_ppo", runs / "ppo" / "0" / "result.json", "--threshold", 0.0, "--json").json["rows"]
    assert [(row["name"], row["runs"], row["seeds"]) for row in rows] == [("recursive_ppo", 2, [0, 1]), ("ppo", 1, [0])]
    for row in rows:
        finals = [json.loads((runs / row["name"] / str(seed) / "result.json").read_text())["final"] for seed in row["seeds"]]
        assert row["sampled"]["per_seed"] == [final["sampled"]["success"] for final in finals]
        assert row["greedy"]["mean"]["value"] == pytest.approx(sum(f["greedy"]["success"] for f in finals) / len(finals))
        assert row["steps_to_threshold"]["value"] == 0
    unreachable = rao("compare", runs, "--threshold", 2, "--json").json["rows"]
    assert {row["reached"] for row in unreachable} == {0}
    assert "0 of 2 reach it" in rao("compare", runs, "--threshold", 2).out


def test_plot(rao: Rao, runs: Path, tmp_path: Path) -> None:
    assert rao("plot", runs, "--out", tmp_path / "figures" / "curves", "--title", "A title").code == 0
    with Image.open(tmp_path / "figures" / "curves.png") as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(1_000_000) or []) > 50
    svg = (tmp_path / "figures" / "curves.svg").read_text()
    assert svg.lstrip().startswith("<?xml")
    rao("plot", runs, "--out", tmp_path / "named.png")
    assert sorted(path.name for path in tmp_path.glob("named*")) == ["named.png", "named.svg"]
    rao("plot", runs, "--out", tmp_path / "again", "--title", "A title")
    assert (tmp_path / "again.svg").read_text() == svg  # redrawing changes nothing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "recursve", "Maze-5x5"], "unknown algorithm 'recursve'. Did you mean recursive_ppo"),
        (["train", "ppo", "Maze-6x6"], "Did you mean RAO/Maze-5x5-v0"),
        (["train", "ppo", "Maze-5x5", "--set", "gama=1"], "Did you mean gamma"),
        (["train", "ppo", "Maze-5x5", "--set", "gamma"], "write key=value"),
        (["train", "ppo", "Maze-5x5", "--steps", "0"], "steps must be at least 1"),
        (["train", "ppo", "Maze-5x5", "--steps", "many"], "Invalid value for '--steps'"),
        (["train", "ppo"], "ENV"),
        (["trian"], "train"),
        (["evaluate", "randon", "Maze-5x5"], "Did you mean random?"),
        (["evaluate", "random", "Maze-5x5", "--seeds", "0"], "--seeds must be at least 1"),
        (["evaluate", "random", "Maze-5x5", "-e", "sise=3"], "sise"),
        (["evaluate", "solver", "CartPole-v1"], "no scripted solver for CartPole-v1"),
        (["compare", "nowhere"], "no file or folder nowhere"),
        (["plot", "nowhere"], "no file or folder nowhere"),
        (["tune", "ppo", "Maze-5x5", "--trials", "0"], "trials must be at least 1"),
        (["bench", "maze", "recursive"], "no experiment is called 'recursive'"),
        (["bench", "maze", "--scale", "0.1"], "name another folder with --out"),
        (["bench", "maze", "--jobs", "0"], "--jobs must be at least 1"),
        (["bench", "speed", "--duration", "0"], "--duration must be positive"),
        (["play", "CartPole-v1"], "CartPole-v1 cannot be played"),
        (["demo", "--steps", "0"], "must be at least 1"),
    ],
)
def test_mistakes_are_explained(rao: Rao, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed = rao(*arguments)
    assert failed.code == 2
    assert message in failed.err.replace("\n", " ")
    assert "Traceback" not in failed.err
    assert not list(tmp_path.iterdir())


def test_mistakes_as_json(rao: Rao) -> None:
    failed = rao("evaluate", "nothing", "Maze-5x5", "--json")
    assert failed.code == 2
    assert "there is no model file or run folder nothing" in failed.json["error"]


def test_files_that_are_no_results(rao: Rao, tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    assert "is not the result of a run" in rao("compare", tmp_path / "x.json").err
    assert "no finished run in" in rao("compare", tmp_path).err
    (tmp_path / "x.json").write_text("{")
    assert "cannot be read" in rao("compare", tmp_path / "x.json").err


def test_unfinished_runs_and_misfits(rao: Rao, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.zip").write_bytes(b"")
    assert "--resume" in rao("evaluate", tmp_path, "Maze-5x5").err
    assert "does not fit CartPole-v1" in rao("evaluate", runs / "ppo" / "0", "CartPole-v1").err


def test_without_its_packages_the_command_names_the_extra() -> None:
    code = "import sys; sys.modules['typer'] = None; from rao_baselines.cli import main; main(['list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 1
    assert 'pip install "rao-envs[baselines]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_quick() -> None:
    """Nothing heavy is imported to print a page."""
    code = (
        "import sys\ntry:\n    from rao_baselines.cli import main; main(['train', '--help'])\n"
        "finally:\n    print(sorted({'torch', 'matplotlib', 'optuna', 'numba'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == "[]"


# -- places that cannot be used ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "/", "a\0b", "x" * 5000])
def test_an_agent_by_an_odd_name_is_an_error_for_people(rao: Rao, name: str) -> None:
    failed = rao("evaluate", name, "Maze-5x5")
    assert failed.code == 2
    assert failed.err.startswith("error: ")


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "random", "Maze-5x5", "--seeds", 2, "--records"),
        ("train", "a2c", "Maze-5x5", *tiny_options("a2c"), "--out"),
        ("tune", "a2c", "Maze-5x5", "--trials", 1, "--steps", 100, "--out"),
        ("bench", "speed", "--quick", "--duration", 0.01, "--out"),
        ("bench", "maze", "recursive_ppo", "--scale", 0.001, "--out"),
        ("play", "Maze-5x5", "--gif"),
        ("plot", "nothing", "--out"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_place_that_cannot_be_written_is_said_before_the_work(rao: Rao, tmp_path: Path, command: tuple[Any, ...], below: str) -> None:
    taken = tmp_path / "tåken"
    taken.write_text("a file where a folder should be")
    # Where a file is to be written, a file in its place is no obstacle: what is in the way lies above it.
    failed = rao(*command, "--json" if command[0] != "plot" else "--greedy", *command[-1:], taken / (below or "name"))
    assert failed.code == 2
    assert "cannot write into the folder" in failed.err
    assert "tåken" in failed.err
    assert taken.read_text() == "a file where a folder should be"


def test_a_failing_disk_is_no_traceback(rao: Rao, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rao_envs.Evaluation.save", full)
    failed = rao("evaluate", "random", "Maze-5x5", "--seeds", 2, "--records", tmp_path, "--json")
    assert failed.code == 1
    assert "No space left on device" in failed.json["error"]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_pictures_on_a_terminal_without_their_signs(encoding: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "rao_baselines.cli", "solve", "Maze-5x5", "--agent", "solver"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    assert b"SUCCESS" in done.stdout


@pytest.mark.parametrize(
    "task",
    [
        ("Algebra-depth2", "polynomial=true"),
        ("Algebra-depth2", "modulus=7"),
        ("Algebra-depth2", "slots=3"),
        ("LongSeq-1k", "window=300"),
        ("LongSeq-1k", "pointers=2", "spawn=false"),
        ("LongSeq-nested-320", "view=raw"),
        ("Rewrite", "rules=[expand,factor]"),
        ("LongSeq-cloze-test",),
        ("LongSeq-cloze-test", "spawn=false"),
    ],
    ids=" ".join,
)
def test_the_solver_reads_what_the_options_make_of_an_environment(rao: Rao, task: tuple[str, ...]) -> None:
    env_id, *assignments = task
    done = rao("evaluate", "solver", env_id, "--seeds", 5, "--json", *(word for text in assignments for word in ("-e", text)))
    assert done.code == 0, done.err
    score = done.json["results"]["greedy"]["success"]
    assert score == 1.0 or env_id == "Rewrite"  # two rules do not solve everything


def test_a_solver_for_arguments_that_do_not_exist_names_those_that_do(rao: Rao) -> None:
    failed = rao("evaluate", "solver", "LongSeq-nested-320", "--seeds", 2, "-e", "sltos=3")
    assert failed.code == 2
    assert "Did you mean 'slots'" in failed.err


def test_a_missing_module_of_ours_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rao_envs.maze.reference", None)
    with pytest.raises(ImportError):
        main(["evaluate", "solver", "Maze-5x5", "--seeds", "1"])


def test_an_installed_package_brings_its_models(rao: Rao, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel has them inside (`.ci/check_wheel.py`), where there is no source tree beside."""
    from rao_baselines import places

    (tmp_path / "rao_baselines").mkdir()
    (tmp_path / "rao_baselines" / "trained").symlink_to(places.models_folder().resolve())
    monkeypatch.setattr(places, "__file__", str(tmp_path / "rao_baselines" / "places.py"))
    assert places.source_root() is None
    assert rao("evaluate", "recursive_ppo", "Maze-5x5", "--seeds", 2, "--json").code == 0
    assert rao("solve", "Algebra", "--expression", "x + 1", "--json").json["agent"] == "recursive_ppo_algebra"


@pytest.mark.filterwarnings("error:No artists")
def test_the_demo_draws_returns_where_an_environment_knows_no_success(rao: Rao, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rao_baselines.commands import demo
    from rao_baselines.training import train

    def here(specs: Any, jobs: int, as_json: bool) -> list[Any]:
        return [train(replace(spec, eval_episodes=2, final_episodes=2)) for spec in specs]

    monkeypatch.setattr(demo, "_train", here)
    done = rao("demo", "--env", "CartPole-v1", "--steps", 60, "--out", tmp_path / "demo", "--json")
    assert done.code == 0, done.err
    assert "return on fixed seeds" in (tmp_path / "demo" / "curves.svg").read_text()
