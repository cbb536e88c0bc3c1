"""The Maze family's pictures, drawn from hand-made snapshots: no environment, no display."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from rao_envs.core.canvas import Canvas, Window, import_pygame, picture_size
from rao_envs.core.viewer import (
    DEPTH_COLORS,
    EpisodeView,
    FrameView,
    depth_color,
    paint_text,
    tree_rows,
    tree_text,
)
from rao_envs.maze.viewer import (
    AGENT,
    GOLD,
    MazeFrameView,
    MazeView,
    MazeViewer,
    draw_ansi,
    draw_rgb,
)

OPEN, SUCCESS, FAILURE = "open", "success", "failure"
STEPS = (
    (1, -1, 0, 4),
    (2, 0, 1, 8),
    (4, 1, 0, 1),
    (8, 0, -1, 2),
)  # bit, row step, column step, bit seen from there


# --- a tiny fake maze ---


def spanning_maze(rows: int, cols: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A random spanning tree over the grid (depth-first)."""
    rng = np.random.default_rng(seed)
    links = np.zeros((rows, cols), np.uint8)
    seen = np.zeros((rows, cols), bool)
    path = [(0, 0)]
    seen[0, 0] = True
    while path:
        r, c = path[-1]
        for i in rng.permutation(4):
            bit, dr, dc, back = STEPS[i]
            if 0 <= r + dr < rows and 0 <= c + dc < cols and not seen[r + dr, c + dc]:
                links[r, c] |= bit
                links[r + dr, c + dc] |= back
                seen[r + dr, c + dc] = True
                path.append((r + dr, c + dc))
                break
        else:
            path.pop()
    return links


def open_map(rows: int, cols: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """An open floor with rectangular obstacles of blocked cells; the corners stay free."""
    rng = np.random.default_rng(seed)
    free = np.ones((rows, cols), bool)
    for _ in range(max(2, rows * cols // 80)):
        r, c = rng.integers(1, rows - 1), rng.integers(1, cols - 1)
        free[r : min(rows - 1, r + rng.integers(1, 6)), c : min(cols - 1, c + rng.integers(1, 6))] = False
    padded = np.pad(free, 1)
    around = {1: padded[:-2, 1:-1], 2: padded[1:-1, 2:], 4: padded[2:, 1:-1], 8: padded[1:-1, :-2]}
    links = sum((bit * side for bit, side in around.items()), np.zeros((rows, cols), np.int64))
    return np.where(free, links, 0).astype(np.uint8)


def walk(links: npt.NDArray[np.uint8], start: tuple[int, int], goal: tuple[int, int]) -> list[tuple[int, int]]:
    """A shortest way (breadth-first)."""
    came: dict[tuple[int, int], tuple[int, int]] = {start: start}
    queue = [start]
    for r, c in queue:
        for bit, dr, dc, _ in STEPS:
            if links[r, c] & bit and (r + dr, c + dc) not in came:
                came[r + dr, c + dc] = (r, c)
                queue.append((r + dr, c + dc))
    way = [goal]
    while way[-1] != start:
        way.append(came[way[-1]])
    return way[::-1]


def unit_region(cell: tuple[int, int], side: int, shape: tuple[int, int]) -> tuple[int, int, int, int]:
    r, c = cell[0] // side * side, cell[1] // side * side
    return r, c, min(shape[0], r + side), min(shape[1], c + side)


def snapshot(
    links: npt.NDArray[np.uint8],
    progress: float = 0.5,
    block: int = 5,
    depth: int = 2,
    outcome: str = "",
    done: int = 5,
) -> MazeView:
    """A made-up moment: `progress` of the way is walked, `depth` frames are open below the root."""
    rows, cols = links.shape
    free = [(int(r), int(c)) for r, c in np.argwhere(links)]
    start, goal = free[0], free[-1]
    way = walk(links, start, goal)
    at = round(progress * (len(way) - 1))
    trail = np.zeros(links.shape, np.float32)
    for age, cell in enumerate(reversed(way[: at + 1])):
        trail[cell] = max(trail[cell], 0.97**age)
    agent = way[at]
    stack = [MazeFrameView(0, depth, (0, 0, rows, cols), (goal,), "root")]
    side = block * 4 ** max(0, depth - 2)
    for i in range(1, depth + 1):
        region = unit_region(agent, side, links.shape)
        beyond = next((c for c in way[at:] if unit_region(c, side, links.shape) != region), goal)
        stack.append(MazeFrameView(i, depth - i, region, (beyond,), "spawn_east"))
        side = max(block, side // 4)
    budget = 4 * rows * cols
    frames = [FrameView(0, -1, 0, "root", budget, at + done, OPEN)]
    for i in range(done):
        status = FAILURE if i % 4 == 2 else SUCCESS
        frames.append(FrameView(len(frames), 0, 1, "spawn_south", budget // 4, 7 + i, status))
        parent = len(frames) - 1
        for j in range(2):
            frames.append(FrameView(len(frames), parent, 2, "spawn_target", 25, 3 + j, SUCCESS))
    parent = 0
    for i in range(1, depth + 1):
        frames.append(FrameView(len(frames), parent, i, "spawn_east", budget // 4**i, 4 + i, OPEN))
        parent = len(frames) - 1
    if outcome:
        end = SUCCESS if outcome == "success" else FAILURE
        frames = [dataclasses.replace(f, status=end) if f.status == OPEN else f for f in frames]
        stack = stack[:1]
    action, event = ("spawn_east", "spawn") if depth else ("east", "step")
    title = f"Maze-{rows}x{cols}"
    episode = EpisodeView(title, at + done, budget, tuple(frames), action, event, outcome)
    return MazeView(links, agent, goal, start, trail, block, tuple(stack), episode)


def episode(frames: list[FrameView]) -> EpisodeView:
    return EpisodeView("Maze", 3, 10, tuple(frames), "north", "step", "")


def has_color(picture: npt.NDArray[np.uint8], color: tuple[int, int, int]) -> bool:
    return bool((picture == np.array(color, np.uint8)).all(axis=2).any())


@pytest.fixture(scope="module")
def viewer() -> MazeViewer:
    return MazeViewer()


# --- pictures ---


@pytest.mark.parametrize(
    "links",
    [
        spanning_maze(5, 5),
        spanning_maze(20, 20),
        spanning_maze(80, 80),
        spanning_maze(4, 30),
        open_map(40, 60),
    ],
    ids=lambda links: "x".join(map(str, links.shape)),
)
def test_picture_has_one_shape_whatever_the_maze(viewer: MazeViewer, links: npt.NDArray[np.uint8]) -> None:
    picture = viewer.draw_rgb(snapshot(links))
    assert picture.shape == (640, 900, 3)
    assert picture.dtype == np.uint8
    assert picture.flags.writeable
    assert picture.flags.c_contiguous


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((901, 641), (640, 900, 3)),
        ((64, 64), (64, 64, 3)),
        ((480, 320), (320, 480, 3)),
        ((300, 900), (900, 300, 3)),
    ],
)
def test_size_is_honoured_and_even(viewer: MazeViewer, size: tuple[int, int], shape: tuple[int, int, int]) -> None:
    assert viewer.draw_rgb(snapshot(spanning_maze(10, 10)), size).shape == shape


@pytest.mark.parametrize("size", [(10, 640), (640, 0), (5000, 640)])
def test_impossible_size_is_an_error(viewer: MazeViewer, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"64\.\.4096"):
        viewer.draw_rgb(snapshot(spanning_maze(5, 5)), size)
    with pytest.raises(ValueError, match=r"64\.\.4096"):
        picture_size(size)


def test_arrays_that_do_not_match_are_an_error(viewer: MazeViewer) -> None:
    view = dataclasses.replace(snapshot(spanning_maze(5, 5)), trail=np.zeros((5, 6), np.float32))
    with pytest.raises(ValueError, match=r"\(5, 5\) and \(5, 6\)"):
        viewer.draw_rgb(view)
    with pytest.raises(ValueError, match=r"\(5, 5\) and \(5, 6\)"):
        draw_ansi(view)


def test_equal_snapshots_give_equal_pixels(viewer: MazeViewer) -> None:
    """Whatever was drawn before, by whichever viewer: no state leaks from one picture into the next."""
    view = snapshot(spanning_maze(20, 20))
    first = viewer.draw_rgb(view)
    viewer.draw_rgb(snapshot(open_map(30, 30), depth=6))
    np.testing.assert_array_equal(viewer.draw_rgb(snapshot(spanning_maze(20, 20))), first)
    np.testing.assert_array_equal(draw_rgb(view), first)


def test_pictures_are_not_shared_buffers(viewer: MazeViewer) -> None:
    view = snapshot(spanning_maze(5, 5))
    first = viewer.draw_rgb(view)
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(viewer.draw_rgb(view), kept)


def test_snapshot_is_not_changed(viewer: MazeViewer) -> None:
    view = snapshot(spanning_maze(10, 10))
    links, trail = view.links.copy(), view.trail.copy()
    view.links.flags.writeable = view.trail.flags.writeable = False
    viewer.draw_rgb(view)
    draw_ansi(view)
    np.testing.assert_array_equal(view.links, links)
    np.testing.assert_array_equal(view.trail, trail)


def test_every_part_of_the_state_shows(viewer: MazeViewer) -> None:
    base = snapshot(spanning_maze(10, 10), depth=2)
    r, c = base.agent
    frame = base.stack[-1]
    other_maze = spanning_maze(10, 10, seed=5)
    episode_view = base.episode
    variants = [
        dataclasses.replace(base, agent=(9 - r, c)),
        dataclasses.replace(base, goal=(0, 9)),
        dataclasses.replace(base, start=(4, 0)),
        dataclasses.replace(base, trail=np.zeros_like(base.trail)),
        dataclasses.replace(base, links=other_maze),
        dataclasses.replace(base, block=2),
        dataclasses.replace(base, stack=base.stack[:-1]),
        dataclasses.replace(base, stack=(*base.stack[:-1], dataclasses.replace(frame, region=(2, 2, 6, 9)))),
        dataclasses.replace(base, stack=(*base.stack[:-1], dataclasses.replace(frame, targets=((8, 8),)))),
        dataclasses.replace(base, episode=dataclasses.replace(episode_view, title="Another")),
        dataclasses.replace(base, episode=dataclasses.replace(episode_view, step=77)),
        dataclasses.replace(base, episode=dataclasses.replace(episode_view, last_action="north")),
        dataclasses.replace(base, episode=dataclasses.replace(episode_view, event="return")),
        dataclasses.replace(base, episode=dataclasses.replace(episode_view, frames=episode_view.frames[:-1])),
        *(
            dataclasses.replace(base, episode=dataclasses.replace(episode_view, outcome=outcome))
            for outcome in ("success", "failure", "truncated")
        ),
    ]
    pictures = [viewer.draw_rgb(view).tobytes() for view in [base, *variants]]
    assert len(set(pictures)) == len(pictures)


def test_maze_changed_in_place_is_drawn_anew(viewer: MazeViewer) -> None:
    view = snapshot(spanning_maze(8, 8))
    before = viewer.draw_rgb(view)
    view.links[:] = spanning_maze(8, 8, seed=1)
    after = viewer.draw_rgb(view)
    assert (before != after).any()
    np.testing.assert_array_equal(after, draw_rgb(view))


@pytest.mark.parametrize("side", [10, 40, 80])
def test_each_open_frame_has_its_colour_on_board_and_panel(viewer: MazeViewer, side: int) -> None:
    picture = viewer.draw_rgb(snapshot(spanning_maze(side, side), depth=2))
    board, panel = picture[:, :620], picture[:, 650:]
    for depth in range(3):
        assert has_color(board, depth_color(depth))
        assert has_color(panel, depth_color(depth))
    assert not has_color(picture, depth_color(4))
    assert has_color(board, AGENT)
    assert has_color(board, GOLD)


def test_deep_stacks_fit(viewer: MazeViewer) -> None:
    picture = viewer.draw_rgb(snapshot(spanning_maze(20, 20), depth=60, done=300))
    assert picture.shape == (640, 900, 3)


def test_arrival_is_drawn_with_an_empty_stack(viewer: MazeViewer) -> None:
    view = snapshot(spanning_maze(5, 5), progress=1.0, outcome="success")
    assert has_color(viewer.draw_rgb(dataclasses.replace(view, stack=())), GOLD)


def test_one_cell_maze(viewer: MazeViewer) -> None:
    frame = MazeFrameView(0, 0, (0, 0, 1, 1), ((0, 0),), "root")
    one = np.zeros((1, 1), np.uint8)
    view = MazeView(one, (0, 0), (0, 0), (0, 0), one.astype(np.float32), 5, (frame,), episode([]))
    assert viewer.draw_rgb(view).shape == (640, 900, 3)
    assert "●" in draw_ansi(view)


def test_giant_map_stays_bounded(viewer: MazeViewer) -> None:
    """An overview with a close-up on a picture of the usual size, and a crop in text."""
    links = np.full((4096, 3000), 15, np.uint8)
    links[1000:2000, 500:700] = 0
    trail = np.zeros(links.shape, np.float32)
    trail[2500, 10:400] = np.linspace(0.1, 1, 390)
    stack = (
        MazeFrameView(0, 3, (0, 0, 4096, 3000), ((4095, 2999),), "root"),
        MazeFrameView(1, 2, (2000, 0, 3280, 1280), ((1999, 5), (1999, 6)), "spawn_north"),
        MazeFrameView(2, 0, (2495, 395, 2505, 405), ((2500, 405),), "spawn_east"),
    )
    view = MazeView(links, (2500, 399), (4095, 2999), (2500, 10), trail, 5, stack, episode([]))
    picture = viewer.draw_rgb(view)
    assert picture.shape == (640, 900, 3)
    assert all(has_color(picture, color) for color in (AGENT, GOLD, *DEPTH_COLORS[:3]))
    dark = (picture[:, :620] < 100).all(axis=2).sum()
    assert dark > 2000  # the blocked part of the map, seen from far
    text = draw_ansi(view)
    assert "rows 2491-2510 of 4096, columns 390-409 of 3000" in text
    assert len(text.splitlines()) < 60


# --- no display, no pygame ---


def test_needs_no_display_and_leaves_the_process_alone() -> None:
    """pygame comes with the first picture only, without video, greeting or environment variables."""
    code = """
import os, sys
import rao_envs.maze.viewer as viewer
assert "pygame" not in sys.modules
before = dict(os.environ)
import numpy as np
from rao_envs.core.viewer import EpisodeView
one = np.full((2, 2), 0, np.uint8)
episode = EpisodeView("", 0, 1, (), "", "reset", "")
view = viewer.MazeView(one, (0, 0), (1, 1), (0, 0), one.astype(np.float32), 5, (), episode)
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
    for make in (MazeViewer, import_pygame):
        with pytest.raises(gym.error.DependencyNotInstalled, match=r'pip install "rao-envs\[render\]"'):
            make()
    assert "●" in draw_ansi(snapshot(spanning_maze(5, 5)))  # text needs no pygame


def test_viewer_can_be_pickled_and_copied(viewer: MazeViewer) -> None:
    view = snapshot(spanning_maze(5, 5))
    picture = viewer.draw_rgb(view)
    for twin in (pickle.loads(pickle.dumps(viewer)), copy.deepcopy(viewer)):
        np.testing.assert_array_equal(twin.draw_rgb(view), picture)


def test_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = import_pygame()
    window = Window("title", fps=0)
    picture = np.zeros((240, 320, 3), np.uint8)
    window.show(picture)
    assert pygame.display.get_surface().get_size() == (320, 240)
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_UP))
    assert window.keys() == ("up",)
    assert window.keys() == ()
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.show(picture)
    assert window.closed
    assert not pygame.display.get_init()
    window.show(picture)  # dropped
    window.close()
    assert window.keys() == ()


def test_closing_a_window_that_never_opened_is_harmless() -> None:
    window = Window("title")
    window.close()
    assert window.closed


# --- text ---


def test_text_of_a_known_maze() -> None:
    links = np.array([[2, 8 | 4, 0], [2, 1 | 8, 0]], np.uint8)  # a U turned left, beside a blocked column
    stack = (
        MazeFrameView(0, 1, (0, 0, 2, 3), ((1, 0),), "root"),
        MazeFrameView(1, 0, (0, 0, 1, 2), ((1, 1),), "spawn_south"),
    )
    trail = np.array([[0.5, 1, 0], [0, 0, 0]], np.float32)
    frames = [FrameView(0, -1, 0, "root", 10, 3, OPEN), FrameView(1, 0, 1, "spawn_south", 4, 1, OPEN)]
    view = MazeView(links, (0, 1), (1, 0), (0, 0), trail, 0, stack, episode(frames))
    assert draw_ansi(view, color=False).splitlines() == [
        "┌───────┬───┐",
        "│░○░░░●░│███│",
        "├───╴   │███│",
        "│ ★   ◆ │███│",
        "└───────┴───┘",
        "● agent  ★ goal  ○ start  ◆ target  • trail",
        "Maze  step 3/10  north (one step in this frame)",
        "o root 3/10",
        "  o spawn south 1/4",
    ]


def test_text_in_colour_says_the_same() -> None:
    view = snapshot(spanning_maze(10, 10), depth=2, done=1, outcome="truncated")
    plain, coloured = draw_ansi(view, color=False), draw_ansi(view)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    assert plain.endswith("OUT OF STEPS")


def test_text_tints_regions_by_depth() -> None:
    text = draw_ansi(snapshot(spanning_maze(10, 10), depth=1))
    assert "48;5;225" in text  # the background of depth 1
    assert "48;5;153" not in text  # the root's region is everything, so it is not tinted
    assert paint_text("a", foreground=(255, 255, 255)) == "\x1b[38;5;231ma\x1b[0m"
    assert paint_text("a") == "a"


def test_text_window_must_show_something() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        draw_ansi(snapshot(spanning_maze(5, 5)), cells=(0, 5))


# --- the recursion tree ---


def finished(frame_id: int, parent: int, depth: int, status: str = SUCCESS) -> FrameView:
    return FrameView(frame_id, parent, depth, f"f{frame_id}", 9, 3, status)


def test_tree_shows_everything_while_it_fits() -> None:
    frames = [finished(0, -1, 0, OPEN), finished(1, 0, 1), finished(2, 1, 2), finished(3, 0, 1, OPEN)]
    rows = tree_rows(frames, 4)
    assert [row.frame.frame_id for row in rows if row.frame] == [0, 1, 2, 3]
    assert [row.indent for row in rows] == [0, 1, 2, 1]
    assert all(row.hidden == 0 for row in rows)


def test_tree_comes_depth_first_even_when_siblings_open_together() -> None:
    frames = [finished(0, -1, 0, OPEN), finished(1, 0, 1), finished(2, 0, 1), finished(3, 1, 2)]
    assert [row.frame.frame_id for row in tree_rows(frames, 9) if row.frame] == [0, 1, 3, 2]


def test_tree_folds_finished_frames_first() -> None:
    frames = [finished(0, -1, 0, OPEN), finished(1, 0, 1), finished(2, 1, 2), finished(3, 0, 1, OPEN)]
    rows = tree_rows(frames, 3)
    assert [(row.frame.frame_id, row.hidden) for row in rows if row.frame] == [(0, 0), (1, 1), (3, 0)]


def test_tree_then_counts_the_oldest_siblings() -> None:
    frames = [finished(0, -1, 0, OPEN)]
    frames += [finished(i, 0, 1, FAILURE if i % 3 == 0 else SUCCESS) for i in range(1, 11)]
    frames += [finished(11, 0, 1, OPEN)]
    rows = tree_rows(frames, 6)
    assert len(rows) == 6
    assert rows[1].frame is None
    assert (rows[1].successes, rows[1].failures) == (5, 2)
    assert [row.frame.frame_id for row in rows if row.frame] == [0, 8, 9, 10, 11]


def test_tree_finally_scrolls_to_the_newest() -> None:
    frames = [finished(i, i - 1, i, OPEN) for i in range(30)]
    rows = tree_rows(frames, 10)
    assert [row.frame.frame_id for row in rows if row.frame] == [0, *range(22, 30)]
    assert rows[1].gap
    assert rows[1].hidden == 21
    assert len(tree_rows(frames, 2)) == 2
    assert tree_rows(frames, 0) == []


def test_finished_root_still_shows_its_children() -> None:
    frames = [finished(i, 0 if i else -1, min(i, 1)) for i in range(8)]
    rows = tree_rows(frames, 5)
    assert [row.frame.frame_id for row in rows if row.frame] == [0, 5, 6, 7]


@pytest.mark.parametrize("capacity", range(1, 25))
def test_tree_always_fits_and_accounts_for_every_frame(capacity: int) -> None:
    frames = list(snapshot(spanning_maze(10, 10), depth=4, done=6).episode.frames)
    rows = tree_rows(frames, capacity)
    assert len(rows) <= capacity
    if not any(row.gap for row in rows) and capacity >= 3:
        assert sum((row.frame is not None) + row.hidden for row in rows) == len(frames)


def test_tree_text_marks_gap_and_outcome() -> None:
    frames = [finished(i, i - 1, i, OPEN) for i in range(30)]
    view = dataclasses.replace(episode(frames), outcome="failure")
    lines = tree_text(view, color=False, capacity=5).splitlines()
    assert lines[2].strip() == "... 26 more rows"
    assert lines[-1] == "FAILURE"


def test_unknown_mark_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown mark 'blob'"):
        Canvas().mark(16, ("blob", 1.0, (0, 0, 0), 255))
