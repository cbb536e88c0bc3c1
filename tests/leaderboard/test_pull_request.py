"""What a pull request gets to see: its row, or what is wrong, and nothing that its author could make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rao_leaderboard.folder import MANIFEST
from rao_leaderboard.pull_request import SUBMISSIONS, changed_folders, comment, main
from tests.leaderboard.samples import make_sample

TASK = ("open", "RAO/Maze-5x5-v0", {"spawn": True})


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_sample(tmp_path / SUBMISSIONS, "old", tasks=(TASK,), runs=5)
    make_sample(tmp_path / SUBMISSIONS, "new", tasks=(TASK,), runs=5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(name: str) -> str:
    return f"leaderboard/submissions/{name}/submission.json"


def test_paths() -> None:
    paths = [changed("b"), "leaderboard/submissions/a/traces/run-0/x.gz", "README.md", "leaderboard/submissions/stray.txt", "../x"]
    assert changed_folders(paths) == (["a", "b"], ["../x", "README.md", "leaderboard/submissions/stray.txt"])


def test_the_row_that_it_would_get(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "changed.txt").write_text(changed("new") + "\0")
    assert main(["changed.txt"]) == 0
    out = capsys.readouterr().out
    assert "holds: 500 episodes" in out
    assert "| open | RAO/Maze-5x5-v0 | 1 of 2 |" in out
    assert main([]) == 2


def test_what_is_wrong_is_named(checkout: Path) -> None:
    path = checkout / changed("new")
    manifest = json.loads(path.read_text())
    manifest["runs"][0]["results"][0]["success"] = 1.0
    path.write_text(json.dumps(manifest))
    good, text = comment(checkout, [changed("new")])
    assert not good and "does **not** hold" in text and "success" in text


def test_one_submission_and_nothing_else(checkout: Path) -> None:
    for paths, message in (
        ([changed("new"), "rao_envs/__init__.py"], "changes nothing else"),
        ([changed("new"), changed("old")], "One submission at a time"),
    ):
        good, text = comment(checkout, paths)
        assert not good and message in text
    assert comment(checkout, ["README.md"]) == (True, "No submission was changed.\n")
    shutil.rmtree(checkout / SUBMISSIONS / "old")
    assert "is removed" in comment(checkout, [changed("old")])[1]


def test_names_cannot_say_more_than_names(checkout: Path) -> None:
    hostile = "`@everyone` | [x](http://evil) <img>\n# heading"
    folder = checkout / SUBMISSIONS / hostile.replace("/", "-")
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")
    good, text = comment(checkout, [f"{SUBMISSIONS}/{folder.name}/{MANIFEST}"])
    assert not good
    assert "\n# heading" not in text
    for line in text.splitlines():
        assert line.count("`") in (0, 2) and "](" not in line.split("`")[0]
