"""`rao distill-report`: what it measures, and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import ENV, tiny

from rao_agents.distillation import RoundArchive
from rao_baselines import loop_picture
from rao_baselines.cli import main
from rao_baselines.distill_measure import Options, Run, choose, crossing, decisiveness, learning, map_states, measure, visit
from rao_baselines.distill_report import write_report
from rao_baselines.errors import UserError
from rao_baselines.related_tasks import FAMILIES, family_of, related_tasks
from rao_baselines.training import train

SKILLS = {
    "distillation": {
        "distiller": {"kind": "skills", "n_skills": 3, "updates": 20, "restarts": 1},
        "trigger": {"kind": "interval", "steps": 128},
        "batch_size": 32,
    }
}
FEW = Options(rounds=2, episodes=4, tasks=("RAO/Maze-10x10",), learn_rounds=1, learn_steps=128, states=60)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny("recursive_ppo", folder, overrides=SKILLS))
    return folder


def quiet(text: str) -> None:
    pass


def test_measures_everything_and_writes_one_page(run: Path, tmp_path: Path) -> None:
    found = Run.read(run)
    assert found.rounds[0].number == 0 and len(found.rounds) >= 3
    measured = measure(found, FEW)
    assert json.loads(json.dumps(measured)) == measured
    assert [task["kind"] for task in measured["tasks"]] == ["own", "size"]
    assert [point["round"] for point in measured["zero_shot"]] == [0, found.rounds[-1].number]
    for point in measured["zero_shot"]:
        assert all(0 <= scores["success"] <= 1 and scores["episodes"] == 4 for scores in point["scores"].values())
    assert measured["rounds"][1]["knowledge"]["kind"] == "skills" and measured["rounds"][0]["knowledge"] is None
    assert measured["learning"]["task"].startswith("Maze-10x10") and len(measured["learning"]["rounds"]) == 1
    assert len(measured["map"]["x"]) == len(measured["map"]["success"]) == 60 and set(measured["map"]["success"]) <= {0, 1}
    assert "north" in measured["map"]["names"]
    path = write_report(found, measured, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "report.html", "report.json", "rounds.png", "learning.png", "map.png", "importance.png", "skills.png",
    }  # fmt: skip
    text = path.read_text(encoding="utf-8")
    checker = Balanced()
    checker.feed(text)
    assert checker.open == [] and checker.images == 5
    assert "<script" not in text and "http://" not in text and "https://" not in text  # nothing is loaded from elsewhere
    assert "Decisive states" in text and "nats per step" in text


class Balanced(HTMLParser):
    """Tags that are open; all pictures are inside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images += 1
            assert str(dict(attrs)["src"]).startswith("data:image/png;base64,")
        elif tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_same_every_time(run: Path) -> None:
    found, options = Run.read(run), Options(rounds=1, episodes=3, tasks=("RAO/Maze-10x10",), learn_rounds=0, states=40)
    assert measure(found, options) == measure(found, options)


def test_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["distill-report", str(run), "--rounds", "1", "--episodes", "2", "--task", "RAO/Maze-10x10", "--learn-rounds", "0",
              "--states", "0", "--out", str(tmp_path), "--json"])  # fmt: skip
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["run"]["env_id"] == ENV and (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--threshold", "1.5"], "--threshold must lie in"),
        (["--states", "3"], "--states must be at least 10"),
        (["--task", "RAO/Algebra-depth2"], "cannot act in"),
        (["--task", "RAO/Maze-10x10?size=3"], "cannot be made"),
        (["--new-task", ENV], "name another task"),
    ],
)
def test_refusals(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["distill-report", str(run), "--out", str(tmp_path), "--json", *options])
    assert end.value.code == 2 and message in json.loads(capsys.readouterr().out)["error"]


def test_runs_without_rounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        Run.read(tmp_path)
    train(tiny("recursive_ppo", tmp_path / "plain", steps=64))
    with pytest.raises(UserError, match="train with --distil"):
        Run.read(tmp_path / "plain")


def test_damaged_rounds_are_refused(run: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "distillation" / "round_001" / "knowledge.zip").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"round 1 .* cannot be read"):
        Run.read(tmp_path / "run")


def test_choice_and_crossing() -> None:
    assert choose([0, 1, 2, 3, 4, 5, 6], 3) == [0, 3, 6] and choose([0, 1], 5) == [0, 1] and choose([0, 1, 2], 1) == [2]  # type: ignore[list-item, comparison-overlap]
    assert crossing([(0, 0.2), (100, 0.4), (200, 0.8)], 0.6) == 150
    assert crossing([(0, 0.9)], 0.6) == 0 and crossing([(0, 0.1), (100, 0.2)], 0.6) is None and crossing([], 0.6) is None


def test_learning_stops_at_the_threshold(run: Path) -> None:
    found = Run.read(run)
    task = related_tasks(found.env_id, found.env_kwargs, ("RAO/Maze-5x5?structure=open",))[1]
    (easy,) = learning(found, found.rounds[-1:], task, steps=256, threshold=1e-9, episodes=4, report=quiet)
    assert len(easy["curve"]) <= 11
    (hard,) = learning(found, found.rounds[-1:], task, steps=128, threshold=1.0, episodes=4, report=quiet)
    assert (hard["curve"][0][0] == 0 and hard["curve"][-1][0] >= 128) or hard["steps_to_threshold"] is not None


def test_states_carry_their_frames_outcome(run: Path) -> None:
    found = Run.read(run)
    task = related_tasks(found.env_id, found.env_kwargs)[0]
    policy = found.rounds[-1].policy()
    visited, names = visit(policy, task, 100, np.random.default_rng(0))
    assert len(visited.actions) >= 100 and len(names) == 9 and visited.masks is not None
    assert visited.masks[np.arange(len(visited.actions)), visited.actions].all()
    assert set(visited.success.tolist()) <= {0, 1}
    amount = decisiveness(policy, visited)
    assert amount.shape == visited.actions.shape and amount.min() >= 0
    forced = visited.masks.sum(axis=1) == 1
    assert not forced.any() or amount[forced].max() < 1e-5


def test_map_keeps_clusters_apart() -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(0, 0.1, (40, 6)), rng.normal(5, 0.1, (40, 6))])
    places = map_states(vectors, 0)
    assert np.array_equal(places, map_states(vectors, 0))
    side = places @ (places[40:].mean(axis=0) - places[:40].mean(axis=0))
    assert side[:40].max() < side[40:].min()


def test_other_sizes_are_not_made_with_the_size_that_was_trained_on() -> None:
    """A run on depths 1 to 4 is scored on depth 8 as the id says; a modulus, which no id fixes, goes along."""
    tasks = related_tasks("RAO/Algebra-v0", {"depth": [1, 4], "modulus": 3, "spawn": True})
    assert tasks[0].kwargs == {"depth": [1, 4], "modulus": 3, "spawn": True}
    assert [task.env_id for task in tasks[1:4]] == [f"RAO/Algebra-depth{depth}-v0" for depth in (2, 4, 8)]
    for task in tasks[1:4]:
        assert task.kwargs == {"modulus": 3, "spawn": True}


def test_related_tasks_fit_the_agent() -> None:
    for name, family in FAMILIES.items():
        assert family_of(f"RAO/{name}-v0") == family
    assert family_of("CartPole-v1") == ((), ())
    tasks = related_tasks("RAO/Maze-10x10-v0", {"spawn": True})
    assert [task.kind for task in tasks].count("own") == 1 and len({task.name for task in tasks}) == len(tasks) >= 5
    assert all(task.kwargs["spawn"] is True for task in tasks)
    (own,) = related_tasks("CartPole-v1", {})
    assert own.env_id == "CartPole-v1"


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match="distillation"):
        map_states(np.zeros((20, 3)), 0)


def test_loop_picture(tmp_path: Path) -> None:
    written = loop_picture.draw(tmp_path / "loop")
    assert [path.suffix for path in written] == [".svg", ".png"] and "inject" in written[0].read_text(encoding="utf-8")
    first = written[0].read_bytes()
    loop_picture.draw(tmp_path / "loop")
    assert written[0].read_bytes() == first


def test_pictures_need_no_display() -> None:
    code = "import rao_baselines.distill_figures, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_archive_is_where_the_run_puts_it(run: Path) -> None:
    assert [one.number for one in RoundArchive(run / "distillation").rounds()][:2] == [0, 1]
    record: dict[str, Any] = RoundArchive(run / "distillation").rounds()[1].record
    assert record["timesteps"] > 0 and record["rolled_back"] is False
