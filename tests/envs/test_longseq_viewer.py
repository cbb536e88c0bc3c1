"""Pictures of long sequences, drawn from hand-made snapshots: no environment, no display."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from rao_envs.core.canvas import Canvas
from rao_envs.core.lettering import Lettering
from rao_envs.core.viewer import FAILURE, SUCCESS, EpisodeView, FrameView, depth_color
from rao_envs.longseq.band import HIGHLIGHT, MATCH, SKYLINE, Piece, Ruler, flow, ticks
from rao_envs.longseq.viewer import AnswerView, LongSeqView, LongSeqViewer, PageView, SpanView, draw_ansi, draw_rgb

LABELS = {"l": "spawn_left", "r": "spawn_right"}


def snapshot(
    length: int = 10_000, matches: int = 20, path: str = "rl", pages: int = 1, page: int = 1_000, outcome: str = ""
) -> LongSeqView:
    """A made-up moment: frames are open along `path`, and every right half has a left one that has answered."""
    rng = np.random.default_rng(length)
    positions = np.sort(rng.choice(length, min(matches, length), replace=False)).astype(np.int64)
    lo, hi = 0, length
    stack = [SpanView(0, (lo, hi), "root")]
    frames = [FrameView(0, -1, 0, "root", 300, 9, "open")]
    parent = 0
    for depth, step in enumerate(path, 1):
        middle = (lo + hi + 1) // 2
        if step == "r":
            answer = AnswerView((lo, middle), str(depth % 3), depth % 2 == 1)
            stack[-1] = dataclasses.replace(stack[-1], answers=(answer,))
            status = "success" if answer.correct else "failure"
            frames.append(FrameView(len(frames), parent, depth, "spawn_left", 90, 4, status))
        lo, hi = (middle, hi) if step == "r" else (lo, middle)
        frames.append(FrameView(len(frames), parent, depth, LABELS[step], 100, 3, "open"))
        parent = len(frames) - 1
        stack.append(SpanView(depth, (lo, hi), LABELS[step]))
    stack[-1] = dataclasses.replace(stack[-1], note="1")
    shown = []
    for k in range(pages):
        first, end = min(hi, lo + k * page), min(hi, lo + (k + 1) * page)
        tokens = tuple(f"w{i}" for i in range(first, end))
        marks = tuple(int(i - first) for i in positions[(positions >= first) & (positions < end)])
        shown.append(PageView((first, end), tokens, marks))
    episode = EpisodeView("LongSeq-10k", 37, 412, tuple(frames), "page_next", "step", outcome)
    answer = {"": "", "success": "2", "failure": "0"}[outcome]
    return LongSeqView(
        length, "words", "How often does “liability” occur?", "2", positions, tuple(stack), tuple(shown), episode, answer, "text"
    )


def has_color(picture: npt.NDArray[np.uint8], color: tuple[int, int, int]) -> bool:
    return bool((picture == np.array(color, np.uint8)).all(axis=2).any())


@pytest.fixture(scope="module")
def viewer() -> LongSeqViewer:
    return LongSeqViewer()


# --- pictures ---


@pytest.mark.parametrize(("length", "path"), [
    (1, ""), (2, "l"), (16, ""), (1_000, ""), (10_000, "rlr"), (100_000, "rlrrlr"), (1_000_000, "rlrrlrllr"), (2**30, "rl" * 10),
])  # fmt: skip
def test_picture_has_one_shape_whatever_the_sequence(viewer: LongSeqViewer, length: int, path: str) -> None:
    view = snapshot(min(length, 10**6), path=path)
    if length > 10**6:  # positions of so many tokens would take long to draw
        view = dataclasses.replace(view, length=length)
    picture = viewer.draw_rgb(view)
    assert picture.shape == (640, 900, 3)
    assert picture.dtype == np.uint8
    assert picture.flags.writeable
    assert picture.flags.c_contiguous


@pytest.mark.parametrize(("size", "shape"), [
    ((901, 641), (640, 900, 3)), ((64, 64), (64, 64, 3)),
    ((480, 320), (320, 480, 3)), ((300, 900), (900, 300, 3)), ((1800, 1200), (1200, 1800, 3)),
])  # fmt: skip
def test_size_is_honoured_and_even(viewer: LongSeqViewer, size: tuple[int, int], shape: tuple[int, int, int]) -> None:
    for pages in (0, 1, 2):
        assert viewer.draw_rgb(snapshot(pages=pages), size).shape == shape


@pytest.mark.parametrize("size", [(10, 640), (640, 0), (5000, 640)])
def test_impossible_size_is_an_error(viewer: LongSeqViewer, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"64\.\.4096"):
        viewer.draw_rgb(snapshot(), size)


@pytest.mark.parametrize(("change", "match"), [
    ({"length": 0}, "at least|one at least"),
    ({"length": 500}, r"does not lie on the sequence of 500 tokens"),
    ({"pages": (PageView((0, 3), ("a", "b")),)}, "a page of 3 tokens has 2 texts"),
    ({"stack": (SpanView(0, (5, 2), "root"),)}, r"\(5, 2\) does not lie"),
])  # fmt: skip
def test_snapshots_that_make_no_sense_are_errors(viewer: LongSeqViewer, change: dict[str, Any], match: str) -> None:
    view = dataclasses.replace(snapshot(), **change)
    with pytest.raises(ValueError, match=match):
        viewer.draw_rgb(view)
    with pytest.raises(ValueError, match=match):
        draw_ansi(view)


def test_equal_snapshots_give_equal_pixels(viewer: LongSeqViewer) -> None:
    """Whatever was drawn before, by whichever viewer."""
    first = viewer.draw_rgb(snapshot())
    viewer.draw_rgb(snapshot(1_000_000, 5_000, "rlrrlrllr", outcome="failure"))
    viewer.draw_rgb(snapshot(), (640, 400))
    np.testing.assert_array_equal(viewer.draw_rgb(snapshot()), first)
    np.testing.assert_array_equal(draw_rgb(snapshot()), first)


def test_pictures_are_not_shared_buffers(viewer: LongSeqViewer) -> None:
    first = viewer.draw_rgb(snapshot())
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(viewer.draw_rgb(snapshot()), kept)


def test_snapshot_is_not_changed(viewer: LongSeqViewer) -> None:
    view = dataclasses.replace(snapshot(), profile=np.linspace(0, 1, 100, dtype=np.float32))
    assert view.profile is not None
    matches, profile = view.matches.copy(), view.profile.copy()
    view.matches.flags.writeable = view.profile.flags.writeable = False
    viewer.draw_rgb(view)
    draw_ansi(view)
    np.testing.assert_array_equal(view.matches, matches)
    np.testing.assert_array_equal(view.profile, profile)


def test_every_part_of_the_state_shows(viewer: LongSeqViewer) -> None:
    base = snapshot(path="rl")
    page, acting, root, episode = base.pages[0], base.stack[-1], base.stack[0], base.episode
    answer = root.answers[0]

    def with_stack(*stack: SpanView) -> LongSeqView:
        return dataclasses.replace(base, stack=stack)

    def with_page(**changes: Any) -> LongSeqView:
        return dataclasses.replace(base, pages=(dataclasses.replace(page, **changes),))

    rest = base.stack[1:]
    variants = [
        dataclasses.replace(base, query="Another question?"),
        dataclasses.replace(base, truth="1"),
        dataclasses.replace(base, answer="2"),
        dataclasses.replace(base, answer="0"),
        dataclasses.replace(base, source="other.txt"),
        dataclasses.replace(base, unit="bytes"),
        dataclasses.replace(base, length=11_000),
        dataclasses.replace(base, matches=base.matches[1:]),
        dataclasses.replace(base, matches=base.matches[:0]),
        dataclasses.replace(base, profile=np.linspace(0, 1, 64, dtype=np.float32)),
        dataclasses.replace(base, pages=()),
        dataclasses.replace(base, pages=(page, page)),
        with_page(marks=()),
        with_page(tokens=("x", *page.tokens[1:]), marks=(0,)),
        with_stack(*base.stack[:-1]),
        with_stack(*base.stack[:-1], dataclasses.replace(acting, note="2")),
        with_stack(*base.stack[:-1], dataclasses.replace(acting, note="")),
        with_stack(*base.stack[:-1], dataclasses.replace(acting, query="MAX")),
        with_stack(*base.stack[:-1], dataclasses.replace(acting, label="spawn_all")),
        with_stack(*base.stack[:-1], dataclasses.replace(acting, span=(5_000, 8_000))),
        with_stack(dataclasses.replace(root, answers=()), *rest),
        with_stack(dataclasses.replace(root, answers=(dataclasses.replace(answer, text="7"),)), *rest),
        with_stack(dataclasses.replace(root, answers=(dataclasses.replace(answer, correct=False),)), *rest),
        with_stack(dataclasses.replace(root, answers=(dataclasses.replace(answer, correct=None),)), *rest),
        dataclasses.replace(base, episode=dataclasses.replace(episode, step=77)),
        dataclasses.replace(base, episode=dataclasses.replace(episode, last_action="page_previous")),
        dataclasses.replace(base, episode=dataclasses.replace(episode, outcome="success")),
    ]
    pictures = [viewer.draw_rgb(view).tobytes() for view in [base, *variants]]
    assert len(set(pictures)) == len(pictures)


@pytest.mark.parametrize("length", [1_000, 10_000, 100_000])
def test_frames_answers_and_matches_have_their_colours(viewer: LongSeqViewer, length: int) -> None:
    picture = viewer.draw_rgb(snapshot(length, 40, "rlr", outcome="failure"))
    board, panel = picture[:, :620], picture[:, 650:]
    for depth in range(4):
        assert has_color(board, depth_color(depth))
        assert has_color(panel, depth_color(depth))
    assert not has_color(board, depth_color(4))
    for color in (MATCH, HIGHLIGHT, SUCCESS, FAILURE):
        assert has_color(board, color)


def test_short_ranges_are_magnified(viewer: LongSeqViewer) -> None:
    """One frame in a million tokens is under a pixel wide: a band of its parent's range shows it."""
    shallow, deep = (viewer.draw_rgb(snapshot(1_000_000, 2_000, path)) for path in ("r", "rlrrlrllr"))
    ground = np.array((226, 232, 240), np.uint8)
    bands = [(picture[:, 30:600] == ground).all(axis=2).mean(axis=1) > 0.3 for picture in (shallow, deep)]
    runs = [int(np.count_nonzero(np.diff(rows.astype(int)) == 1)) for rows in bands]
    assert runs[1] >= runs[0] + 1
    width = int(has_width(deep, depth_color(9)))
    assert width > 100


def has_width(picture: npt.NDArray[np.uint8], color: tuple[int, int, int]) -> int:
    """The longest row of pixels of one colour, from its first to its last."""
    rows, columns = np.nonzero((picture[:, :620] == np.array(color, np.uint8)).all(axis=2))
    return max((int(np.ptp(columns[rows == row])) for row in set(rows.tolist())), default=0)


def test_deep_stacks_fit(viewer: LongSeqViewer) -> None:
    view = snapshot(1_000_000, 100, "rl" * 9)
    assert viewer.draw_rgb(view).shape == (640, 900, 3)
    assert viewer.draw_rgb(view, (480, 320)).shape == (320, 480, 3)


def test_skyline_of_a_profile(viewer: LongSeqViewer) -> None:
    view = snapshot(path="r")
    assert not has_color(viewer.draw_rgb(view), SKYLINE)
    assert has_color(viewer.draw_rgb(dataclasses.replace(view, profile=np.ones(4096, np.float32))), SKYLINE)


def test_episode_that_is_over(viewer: LongSeqViewer) -> None:
    view = dataclasses.replace(snapshot(path="", outcome="success"), stack=(), pages=())
    assert has_color(viewer.draw_rgb(view), SUCCESS)
    assert "answer: 2" in draw_ansi(view)


def test_letters_that_the_font_lacks_do_no_harm(viewer: LongSeqViewer) -> None:
    page = PageView((0, 4), ("責", "\u0301", "🙂", ""), (0,))
    view = dataclasses.replace(snapshot(path=""), pages=(page,), query="責 任 🙂?", source="")
    assert viewer.draw_rgb(view).shape == (640, 900, 3)
    assert "[責]" in draw_ansi(view, color=False)


@pytest.mark.parametrize("make", [
    lambda: snapshot(10_000, 20, "rl"), lambda: snapshot(1_000_000, 20_000, "rlrrlrllr"), lambda: snapshot(6_000, 400, "r", pages=2),
    lambda: snapshot(6_000, 0, "r", page=2_000),
])  # fmt: skip
def test_pictures_are_quick(viewer: LongSeqViewer, make: Any) -> None:
    """Under 15 ms of one core; the bound allows for slow machines."""
    view = make()
    viewer.draw_rgb(view)
    start = time.process_time()
    for _ in range(5):
        viewer.draw_rgb(view)
    assert (time.process_time() - start) / 5 < 0.04


# --- pieces ---


@pytest.mark.parametrize(("span", "wanted"), [
    ((0, 10_000), [2000, 4000, 6000, 8000]), ((0, 1), []), ((0, 5), [1, 2, 3, 4]),
    ((687_500, 750_000), list(range(690_000, 750_000, 10_000))),
])  # fmt: skip
def test_ticks_are_round_numbers(span: tuple[int, int], wanted: list[int]) -> None:
    assert ticks(*span) == wanted


def test_ruler() -> None:
    ruler = Ruler((100, 200), 10, 50)
    assert [ruler.x(token) for token in (100, 150, 200)] == [10, 35, 60]
    assert ruler.range((100, 101)) == (10, 3)  # never too short to see
    assert ruler.range((199, 200)) == (57, 3)
    assert ruler.range((0, 400)) == (10, 50)
    counts = ruler.columns(np.array([5, 100, 101, 199, 200]))
    assert counts.sum() == 3
    assert (counts[0], counts[-1]) == (2, 1)


def test_text_is_laid_out_within_its_room() -> None:
    lettering = Lettering(Canvas())
    pieces = [Piece(f"word{i}", i == 1) for i in range(100)]
    laid, complete = flow(lettering, pieces, 12, 300, 4)
    assert not complete
    assert len(laid) == 4
    assert laid[-1][-1][1].text == "..."
    for row in laid:
        assert all(x + lettering.width(piece.text, 12, piece.marked) <= 300 for x, piece in row)
        ends = [x + lettering.width(piece.text, 12, piece.marked) for x, piece in row]
        assert all(end < x for end, (x, _) in zip(ends, row[1:], strict=False))
    assert flow(lettering, pieces[:3], 12, 300, 4) == ([[(laid[0][k][0], pieces[k]) for k in range(3)]], True)
    assert lettering.fill(["one", "two", "three"], 12, lettering.width("one two", 12) + 1) == ["one", "two"]
    assert lettering.fill(["one", "two", "three"], 12, lettering.width("two three", 12) + 1, backwards=True) == ["two", "three"]
    assert lettering.wrap("a very long question that needs lines", 12, 100, 2)[-1].endswith("...")
    assert lettering.cut("abc", 12, 0) == ""


# --- no display, no pygame ---


def test_needs_no_display_and_leaves_the_process_alone() -> None:
    """pygame comes with the first picture only, without video, greeting or environment variables."""
    code = """
import os, sys
import rao_envs.longseq.viewer as viewer
assert "pygame" not in sys.modules
before = dict(os.environ)
import numpy as np
from rao_envs.core.viewer import EpisodeView
episode = EpisodeView("", 0, 1, (), "", "reset", "")
view = viewer.LongSeqView(3, "words", "?", "", np.zeros(0, np.int64), (), (), episode)
assert viewer.draw_rgb(view).shape == (640, 900, 3)
import pygame
assert not pygame.display.get_init()
assert dict(os.environ) == before
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_missing_pygame_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r'pip install "rao-envs\[render\]"'):
        LongSeqViewer()
    assert "liability" in LongSeqViewer.draw_ansi(snapshot())  # text needs no pygame


def test_viewer_can_be_pickled_and_copied(viewer: LongSeqViewer) -> None:
    picture = viewer.draw_rgb(snapshot())
    for twin in (pickle.loads(pickle.dumps(viewer)), copy.deepcopy(viewer)):
        np.testing.assert_array_equal(twin.draw_rgb(snapshot()), picture)


# --- text ---


def test_text_of_a_known_sequence() -> None:
    stack = (
        SpanView(0, (0, 40), "root", answers=(AnswerView((0, 20), "1", True),)),
        SpanView(1, (20, 40), "spawn_right", note="2"),
    )
    page = PageView((20, 24), ("no", "liability", "is", "taken"), (1,))
    frames = (FrameView(0, -1, 0, "root", 50, 3, "open"), FrameView(1, 0, 1, "spawn_right", 24, 1, "open"))
    episode = EpisodeView("LongSeq", 3, 50, frames, "spawn_right", "spawn", "")
    view = LongSeqView(40, "words", "How often?", "2", np.array([3, 4, 21]), stack, (page,), episode, source="contract.txt")
    assert draw_ansi(view, color=False, width=20).splitlines() == [
        "How often?",
        "contract.txt  40 words  truth: 2",
        "·▅▅·······▅·········",
        "├────1─────────────┤ root 0-40",
        "          ├────────┤ spawn right 20-40",
        "window: 20-24, 1 match  note: 2",
        "no [liability] is",
        "taken",
        "LongSeq  step 3/50  spawn right (opened a sub-frame)",
        "o root 3/50",
        "  o spawn right 1/24",
    ]


def test_text_has_colours_and_bounded_length() -> None:
    text = draw_ansi(snapshot(1_000_000, 3_000, "rlrrlrllr"))
    assert "\x1b[" in text
    assert len(text.splitlines()) < 40
    assert "\x1b[" not in draw_ansi(snapshot(), color=False)
    with pytest.raises(ValueError, match="at least 20 columns"):
        draw_ansi(snapshot(), width=5)
