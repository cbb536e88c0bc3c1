"""What a pull request gets to see: its row, or what is wrong, and nothing that its author could make of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rao_leaderboard.folder import MANIFEST
from rao_leaderboard.pull_request import SUBMISSIONS, Change, changed_folders, comment, main, parse_changes
from tests.leaderboard.samples import make_sample

TASK = ("open", "RAO/Maze-5x5-v0", {"spawn": True})


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_sample(tmp_path / SUBMISSIONS, "old", tasks=(TASK,), runs=5)
    make_sample(tmp_path / SUBMISSIONS, "new", tasks=(TASK,), runs=5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(name: str, status: str = "A") -> Change:
    return Change(status, f"leaderboard/submissions/{name}/submission.json")


def test_paths() -> None:
    stray = ["leaderboard/submissions/stray.txt", "README.md", "../x", "leaderboard/submissions"]
    trace = Change("A", "leaderboard/submissions/a/traces/run-0/x.gz")
    folders, others = changed_folders([changed("b"), trace, *(Change("M", path) for path in stray)])
    assert folders == {"a": [trace], "b": [changed("b")]} and list(folders) == ["a", "b"]
    assert others == sorted(stray)


def test_what_git_lists(tmp_path: Path) -> None:
    """A folder that is moved is one that is gone and one that is new; names may hold anything."""

    def git(*arguments: str) -> str:
        words = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    old = tmp_path / changed("old").path
    old.parent.mkdir(parents=True)
    old.write_text("the same text\n" * 20)
    git("add", ".")
    git("commit", "-qm", "x")
    (tmp_path / SUBMISSIONS / "old").rename(tmp_path / SUBMISSIONS / "mine")
    strange = 'leaderboard/submissions/mine/a\nb "c"\té'
    (tmp_path / strange).write_text("x")
    git("add", ".")
    git("commit", "-qm", "y")
    found = parse_changes(git("diff", "--name-status", "--no-renames", "-z", "HEAD~1...HEAD"))
    assert set(found) == {changed("old", "D"), changed("mine"), Change("A", strange)}
    for wrong in ("README.md\0", "A\0README.md", "R100\0a\0b\0", "x\n"):
        with pytest.raises(ValueError, match="git diff"):
            parse_changes(wrong)


def test_the_row_that_it_would_get(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "changed.txt").write_text("A\0" + changed("new").path + "\0")
    assert main(["changed.txt"]) == 0
    out = capsys.readouterr().out
    assert "holds: 500 episodes" in out
    assert "| open | RAO/Maze-5x5-v0 | 1 of 2 |" in out
    assert main([]) == 2 and main(["gone.txt"]) == 2


def test_what_is_wrong_is_named(checkout: Path) -> None:
    path = checkout / changed("new").path
    manifest = json.loads(path.read_text())
    manifest["runs"][0]["results"][0]["success"] = 1.0
    path.write_text(json.dumps(manifest))
    good, text = comment(checkout, [changed("new")])
    assert not good and "does **not** hold" in text and "success" in text


def test_one_submission_and_nothing_else(checkout: Path) -> None:
    other, stray = Change("M", "rao_envs/__init__.py"), Change("A", f"{SUBMISSIONS}/link")
    for changes, message in (
        ([changed("new"), other], "changes nothing else"),
        ([changed("new"), stray], "changes nothing else"),
        ([stray], "changes nothing else"),
        ([changed("new"), changed("old")], "One submission at a time"),
    ):
        good, text = comment(checkout, changes)
        assert not good and message in text
    assert comment(checkout, [other]) == (True, "No submission was changed.\n")


def test_what_is_there_stays_as_it_is(checkout: Path) -> None:
    good, text = comment(checkout, [changed("old", "M")])
    assert not good and "`old` is there already" in text and "holds: 500 episodes" in text
    shutil.rmtree(checkout / SUBMISSIONS / "old")
    good, text = comment(checkout, [changed("old", "D")])
    assert not good and "is removed" in text and "somebody else's" in text


def test_names_cannot_say_more_than_names(checkout: Path) -> None:
    hostile = "`@everyone` | [x](http://evil) <img>\n# heading"
    folder = checkout / SUBMISSIONS / hostile.replace("/", "-")
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")
    good, text = comment(checkout, [Change("A", f"{SUBMISSIONS}/{folder.name}/{MANIFEST}")])
    assert not good
    assert "\n# heading" not in text
    for line in text.splitlines():
        assert line.count("`") in (0, 2) and "](" not in line.split("`")[0]
