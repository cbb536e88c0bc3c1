"""Training runs on a Ray cluster: files, events and numbers as those of this machine's processes, whoever is lost meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import ENV, run_here, tiny
from test_training import same_model

from rao_baselines import ray_pool, suite
from rao_baselines.errors import UserError
from rao_baselines.experiments import Experiment
from rao_baselines.pool import Event, run_all
from rao_baselines.ray_pool import RayEngine
from rao_baselines.ray_run import RayRun, read_files, write_files
from rao_baselines.runs import read_json
from rao_baselines.training import train
from tests.ray_clusters import NODE, kill, lose_node, ray, two_nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as found:
        yield found


TIMES = ("seconds", "steps_per_second", "time", "command", "curve", "points")


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs between any two runs."""
    curve = [{key: value for key, value in point.items() if key != "seconds"} for point in result["curve"]]
    return {key: value for key, value in result.items() if key not in TIMES} | {"curve": curve}


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The engine's inner workings, as they are made: whose processes the tests end."""
    found: list[Any] = []

    class Watched(ray_pool._Sweep):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

    monkeypatch.setattr(ray_pool, "_Sweep", Watched)
    return found


@pytest.mark.slow
def test_a_sweep_keeps_results_and_fails_one_by_one(cluster: Any, tmp_path: Path) -> None:
    small = {"n_envs": 4, "n_steps": 8, "env_kwargs.budget": 20}
    rows = (
        Experiment("mono", "Monolithic", "nested", "a2c", ENV, 2, 300, small),
        Experiment("broken", "Broken", "nested", "a2c", ENV, 1, 300, {"n_envs": -1}),
    )
    events: list[tuple[str, str]] = []
    failures: list[str] = []

    def note(run: Any, event: Event) -> None:
        events.append((f"{run[0].name}/{run[1].seed}", event.kind))
        failures.extend([event.data["error"]] if event.kind == "failed" else [])

    run: Callable[..., dict[str, list[str]]] = lambda name, engine: suite.run_suite(  # noqa: E731
        rows, out=tmp_path / name / "out", work=tmp_path / name / "work", jobs=None, episodes=2, engine=engine, on_event=note
    )
    there = run("there", RayEngine())
    assert sorted(there["done"]) == ["mono/0", "mono/1"]
    assert there["failed"] == ["broken/0"]
    assert "n_envs" in failures[0]
    for name, end in (("mono/0", "done"), ("mono/1", "done"), ("broken/0", "failed")):
        kinds = [kind for run, kind in events if run == name]
        assert (kinds[0], kinds[-1]) == ("start", end)
        assert kinds.count("start") == 1
    assert ("mono/0", "progress") in events
    run("here", run_here)
    for seed in (0, 1):
        one, other = (read_json(tmp_path / where / "out" / "runs" / "mono" / f"{seed}.json") for where in ("here", "there"))
        assert numbers(one) == numbers(other)
        folders = [tmp_path / where / "work" / "mono" / str(seed) for where in ("here", "there")]
        assert same_model(folders[0] / "model.zip", folders[1] / "model.zip")
        assert read_files(folders[0]).keys() == read_files(folders[1]).keys()
    assert run("there", RayEngine())["kept"] == ["mono/0", "mono/1"]
    assert ray.is_initialized()
    with pytest.raises(UserError, match="threads=2 needs a node with as many CPUs; the largest has 1"):
        RayEngine()([tiny("a2c", tmp_path / "wide", threads=2)], 1, print)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "training"])
def test_a_lost_run_goes_on_elsewhere_to_the_same_model(cluster: Any, tmp_path: Path, sweeps: list[Any], victim: str) -> None:
    spec = tiny("recursive_ppo", tmp_path / "run", steps=1500)
    kinds: list[str] = []
    killed = False

    def note(event: Event) -> None:
        nonlocal killed
        kinds.append(event.kind)
        if event.kind == "progress" and event.data["steps"] > 200 and not killed:
            killed = True
            actor = sweeps[-1].actors[0]
            if victim == "worker":
                kill(actor)
            else:
                os.kill(ray.get(actor.__ray_call__.remote(lambda self: self.process.process.pid)), signal.SIGKILL)

    assert RayEngine()([spec], None, note) == {"done": [0], "failed": [], "stopped": [], "waiting": []}
    assert killed
    assert sweeps[-1].tries == [1]
    assert kinds.count("start") == 1
    train(replace(spec, out=str(tmp_path / "whole")))
    assert same_model(tmp_path / "run" / "model.zip", tmp_path / "whole" / "model.zip")
    one, other = (read_json(tmp_path / name / "result.json") for name in ("run", "whole"))
    assert numbers(one) == numbers(other)


@pytest.mark.slow
def test_what_is_lost_again_and_again_fails_alone(cluster: Any, tmp_path: Path, sweeps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "RETRIES", 1)
    specs = [tiny("a2c", tmp_path / "bad", steps=10_000_000, eval_every=10**9), tiny("a2c", tmp_path / "good")]
    errors: list[str] = []
    victims: set[Any] = set()

    def note(event: Event) -> None:
        if event.kind == "failed":
            errors.append(event.data["error"])
        if event.kind == "progress" and event.run == 0 and sweeps[-1].actors[0] not in victims:
            victims.add(sweeps[-1].actors[0])
            kill(sweeps[-1].actors[0])

    outcome = RayEngine()(specs, 2, note)
    assert (outcome["done"], outcome["failed"]) == ([1], [0])
    assert errors[0].startswith("lost 2 times; the last time: ")


@pytest.mark.slow
def test_a_node_that_goes_away(cluster: Any, tmp_path: Path, sweeps: list[Any]) -> None:
    specs = [tiny("a2c", tmp_path / str(k), seed=k, steps=3000) for k in range(2)]
    seen: set[int] = set()

    def note(event: Event) -> None:
        if event.kind == "progress" and event.data["steps"] > 200 and len(seen) < 2:
            seen.add(event.run)
            if len(seen) == 2:
                lose_node(cluster)

    assert sorted(RayEngine()(specs, None, note)["done"]) == [0, 1]
    assert sum(sweeps[-1].tries) == 1
    for k, spec in enumerate(specs):
        train(replace(spec, out=str(tmp_path / f"whole-{k}")))
        assert same_model(tmp_path / str(k) / "model.zip", tmp_path / f"whole-{k}" / "model.zip")
    cluster.add_node(**NODE)


@pytest.mark.slow
def test_stopping_saves_here_and_either_engine_goes_on(cluster: Any, tmp_path: Path) -> None:
    specs = [tiny("recursive_ppo", tmp_path / "a", steps=4000, eval_every=10**9), tiny("a2c", tmp_path / "b")]
    seen: list[Event] = []
    outcome = RayEngine()(specs, 1, seen.append, should_stop=lambda: any(event.kind == "progress" for event in seen))
    assert outcome == {"done": [], "failed": [], "stopped": [0], "waiting": [1]}
    assert (tmp_path / "a" / "checkpoint.zip").is_file()
    assert not (tmp_path / "b").exists()
    steps = read_json(tmp_path / "a" / "curve.json")["points"][-1]["steps"]
    assert steps < 4000
    assert run_all(specs[:1], 1, print)["done"] == [0]
    assert not (tmp_path / "a" / "checkpoint.zip").exists()
    train(replace(specs[0], out=str(tmp_path / "whole")))
    assert same_model(tmp_path / "a" / "model.zip", tmp_path / "whole" / "model.zip")


@pytest.mark.slow
def test_the_commands(cluster: Any, tmp_path: Path, rao: Any) -> None:
    options = ["evaluate", "random", "Maze-5x5", "--seeds", 20, "--json"]
    one, other = rao(*options), rao(*options, "--ray")
    assert one.json == other.json
    train_options = [
        "recursive_ppo",
        "Maze-5x5",
        "--steps",
        300,
        "--eval-every",
        150,
        "--eval-episodes",
        2,
        "--final-episodes",
        2,
        "--json",
    ]
    for setting in ("n_envs=4", "n_steps=16", "batch_size=32", "n_epochs=2", "env_kwargs.budget=20"):
        train_options += ["--set", setting]
    here, there = (
        rao("train", *train_options, "--out", tmp_path / "a"),
        rao("train", *train_options, "--out", tmp_path / "b", "--ray-workers", 2),
    )
    assert numbers(here.json) == numbers(there.json)
    assert same_model(tmp_path / "a" / "model.zip", tmp_path / "b" / "model.zip")


# -- without a cluster ---------------------------------------------------------------------------------------------------------


def test_a_folder_travels_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"result.json": b"r", "config.json": b"c", "curve.json": b"k", "rounds/1.json": b"1", "checkpoint.zip": b"z"}
    order: list[str] = []
    write = ray_pool.write_files.__globals__["write_bytes_atomically"]
    monkeypatch.setitem(
        write_files.__globals__, "write_bytes_atomically", lambda path, content: (order.append(path.name), write(path, content))
    )
    (tmp_path / "model.zip").write_bytes(b"old")
    write_files(tmp_path, files)
    assert order == ["1.json", "config.json", "curve.json", "checkpoint.zip", "result.json"]
    (tmp_path / ".half.tmp").write_bytes(b"")
    assert read_files(tmp_path) == files
    assert read_files(tmp_path / "nowhere") == {}
    for name in ("../x", "/x", "a/../../x"):
        with pytest.raises(ValueError, match="no path inside"):
            write_files(tmp_path / "safe", {name: b""})


def test_a_run_tells_its_news_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    run = RayRun(tiny("a2c", "elsewhere", overrides={"gamma": "no"}), {"note.txt": b"n"})
    events: list[Event] = []
    while not events or events[-1].kind != "failed":
        news = run.news(60)
        events += news.events
    assert [event.kind for event in events] == ["start", "failed"]
    assert events[-1].data["code"] == 2
    assert news.files == {"note.txt": b"n"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["bench", "maze"], ["evaluate", "random", "Maze-5x5"]])
def test_without_ray_a_message_says_what_to_install(rao: Any, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = rao(*command, "--ray")
    assert ran.code == 2
    assert 'pip install "rao-envs[ray]"' in ran.err
    ran = rao(*command, "--address", "auto")
    assert ran.code == 2
    assert "pass --ray, too" in ran.err


def test_what_workers_cannot_share(rao: Any, tmp_path: Path) -> None:
    for words, message in (
        (["ppo", "CartPole-v1", "--ray-workers", 1], "CartPole-v1 is none"),
        (["recursive_ppo", "Maze-5x5", "--ray-workers", 1, "--set", "curriculum=[RAO/Maze-5x5,RAO/Maze-10x10]"], "train without them"),
        (["recursive_ppo", "Maze-5x5", "--ray-workers", 0], "ray_workers must lie in [1, "),
        (["recursive_ppo", "Maze-5x5", "--address", "auto"], "pass --ray-workers, too"),
    ):
        ran = rao("train", *words, "--out", tmp_path / "run", "--overwrite")
        assert ran.code == 2, ran.err
        assert message in " ".join(ran.err.split())
