"""The site: what is in it follows from the submissions, and strangers' texts stay texts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rao_envs import Evaluation
from rao_leaderboard import traces
from rao_leaderboard.__main__ import main
from rao_leaderboard.folder import MANIFEST
from rao_leaderboard.reading import BrokenSubmissionError, read_submission
from rao_leaderboard.site import build, episodes
from rao_leaderboard.site.episodes import choose
from tests.leaderboard.samples import make_sample

ROOT = Path(__file__).resolve().parents[2]
STANDARD = ("standard", "RAO/Maze-20x20-v0", {"spawn": True})
OPEN = ("open", "RAO/Maze-5x5-v0", {"spawn": True})
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \"'` {{ 7*7 }} &lt;"


@pytest.fixture(scope="module", autouse=True)
def _short_episodes() -> Iterator[None]:
    """Drawing is most of the work: episodes to be watched are short ones here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episodes, "MAX_STEPS", 25)
        yield


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents: one ranked, one not, and one that would like to be more than a row."""
    folder = tmp_path_factory.mktemp("submissions")
    make_sample(folder, "ranked", tasks=(STANDARD, OPEN), runs=5, training_steps=2_000, curve=((0, 0.0), (1_000, 0.95), (2_000, 0.97)))
    make_sample(folder, "single", tasks=(("open", "RAO/Maze-5x5-v0", {"spawn": False}),), kind="monolithic")
    path = make_sample(folder, "hostile", tasks=(OPEN,))
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["agent"] |= {"name": HOSTILE, "algorithm": HOSTILE, "description": HOSTILE}
    manifest |= {"authors": [HOSTILE], "hardware": HOSTILE}
    manifest["runs"][0]["trained_on"] = [HOSTILE]
    (path / MANIFEST).write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def site(submissions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(submissions, tmp_path_factory.mktemp("site") / "out").parent


class Page(HTMLParser):
    """What a browser would make of the page: its tags with attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", ["index.html", "watch.html"])
def test_strangers_texts_stay_texts(site: Path, name: str) -> None:
    page = Page((site / name).read_text())
    assert HOSTILE in page.text
    assert [attrs.get("src") for tag, attrs in page.tags if tag == "script"] == [{"index.html": "page.js", "watch.html": "viewer.js"}[name]]
    assert not [tag for tag, attrs in page.tags if tag == "img" or any(key.startswith("on") or key == "style" for key in attrs)]
    assert "{{ 7*7 }}" in page.text


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.*"):
        if path.parent.name == "episodes":
            continue
        text = path.read_text()
        assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!https://example\.org/code)(?:https?:)?//""", text), path
        assert "@import" not in text and "url(" not in text
        assert "fetch(" not in text and "XMLHttpRequest" not in text
    assert "default-src 'none'" in (site / "index.html").read_text()


def test_every_row_is_there_with_its_numbers_and_badges(site: Path) -> None:
    page = Page((site / "index.html").read_text())
    rows = json.loads((site / "data.json").read_text())["rows"]
    # The open track has a table of its own, the standard one only the maze's: nobody has played all of its tasks.
    assert {(row["track"], row["table"], row["submission"]) for row in rows} == {
        ("standard", "RAO/Maze-20x20-v0", "ranked"),
        *(("open", "RAO/Maze-5x5-v0", name) for name in ("ranked", "single", "hostile")),
    }
    for row in rows:
        assert f"[{row['success']['low']:.3f}, {row['success']['high']:.3f}]" in page.text
    assert "replayed" in page.text and "re-run " not in page.text.replace("re-run:", "")
    assert sum(attrs.get("class") == "unranked" for tag, attrs in page.tags if tag == "tr") == 2
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.tags:
        if tag == "a" and (attrs["href"] or "").startswith("#"):
            assert (attrs["href"] or "")[1:] in ids


def test_small_and_the_same_every_time(submissions: Path, site: Path, tmp_path: Path) -> None:
    assert sum(path.stat().st_size for path in site.iterdir() if path.is_file()) < 2_000_000
    again = build(submissions, tmp_path / "again").parent
    first, second = ({path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*.*")} for top in (site, again))
    assert first == second


def test_episodes_are_chosen_by_a_rule_and_hold_every_step(submissions: Path, site: Path) -> None:
    submission, files = read_submission(submissions / "ranked")
    result = submission.runs[0].results[1]
    evaluation = traces.unpack(files[result.trace.path])
    chosen = choose(evaluation, "run-0", "salt")
    for one in chosen:
        before = [e for e in evaluation.episodes[: one.episode] if bool(e.success) is one.success and e.steps <= episodes.MAX_STEPS]
        assert not before and evaluation.episodes[one.episode].seed == one.seed
    assert {one.success for one in chosen} <= {True, False} and chosen
    for path in (site / "episodes").iterdir():
        call = re.fullmatch(r'raoEpisode\("([0-9a-f]{12})",(\{.*\})\);\n', path.read_text())
        assert call is not None and call[1] == path.stem
        data: dict[str, Any] = json.loads(call[2])
        frames, steps = data["frames"], data["steps"]
        assert [frame["id"] for frame in frames] == list(range(len(frames)))
        assert all(frame["close"] is not None for frame in frames)
        assert all(-1 <= frame["parent"] < len(frames) for frame in frames)
        assert all(0 <= step["frame"] < len(frames) for step in steps)
        assert frames[0]["close"] == len(steps) <= episodes.MAX_STEPS
        assert frames[0]["ok"] is data["success"]


def test_what_does_not_hold_is_not_shown(submissions: Path, tmp_path: Path) -> None:
    shutil.copytree(submissions, tmp_path / "submissions")
    path = tmp_path / "submissions" / "single" / MANIFEST
    path.write_text(path.read_text().replace('"success": 0.', '"success": 0.9'))
    with pytest.raises(BrokenSubmissionError, match=r"single: .*success"):
        build(tmp_path / "submissions", tmp_path / "site", episodes=False)
    assert not (tmp_path / "site").exists()


def test_policies_that_act_again_get_their_second_badge(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "leaderboard" / "submissions" / "maskable-ppo-maze", tmp_path / "in" / "maskable-ppo-maze")
    page = build(tmp_path / "in", tmp_path / "site", episodes=False, rerun=True).read_text()
    assert "re-run 1/1" in page


def test_a_build_replaces_a_site_and_nothing_else(submissions: Path, tmp_path: Path) -> None:
    assert build(submissions, tmp_path / "site", episodes=False).is_file()
    (tmp_path / "site" / "old.html").write_text("old")
    build(submissions, tmp_path / "site", episodes=False)
    assert not (tmp_path / "site" / "old.html").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no leaderboard"):
        build(submissions, tmp_path / "home")
    assert (tmp_path / "home" / "thesis.txt").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="no folder"):
        build(tmp_path / "nowhere", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "site"]


def test_the_command(submissions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--submissions", str(submissions), "--out", str(tmp_path / "site"), "--no-episodes"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert (tmp_path / "site" / "index.html").is_file()
    with pytest.raises(SystemExit) as stop:
        main(["build", "--submissions", str(tmp_path / "nowhere")])
    assert stop.value.code == 2
    assert "no folder" in capsys.readouterr().err


def test_no_submissions_make_an_empty_page(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert "no submissions yet" in build(tmp_path / "none", tmp_path / "site").read_text()


def test_a_run_without_episodes_short_enough_is_not_watched() -> None:
    evaluation = Evaluation("RAO/Maze-5x5-v0", {}, "x", True, 9, "0", ())
    assert choose(evaluation, "run-0", "salt") == []
