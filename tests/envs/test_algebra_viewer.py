"""The Algebra family's pictures, drawn from hand-made snapshots: no environment, no display."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from rao_envs.algebra.board import Family, Plan, arrange, choose, family, first_level, way_up, within
from rao_envs.algebra.parser import Grammar, parse_expression
from rao_envs.algebra.sympy_bridge import truths
from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, SCALE, SUB, SUBST, SYMBOL, Tree, make, monomials, sizes
from rao_envs.algebra.viewer import CURSOR, WRONG, AlgebraFrameView, AlgebraView, AlgebraViewer, draw_ansi, draw_rgb
from rao_envs.core.viewer import DEPTH_COLORS, Color, EpisodeView, FrameView, depth_color

# --- a tiny fake agent ---


def random_tree(
    rng: np.random.Generator, depth: int, symbols: int = 1, cap: int = 1, products: bool = False, branching: float = 0.5
) -> Tree:
    """A random tree of exactly `depth` whose values have at most degree `cap`."""
    if depth == 0:
        if cap > 0 and rng.random() < 0.6:
            return make(SYMBOL, arg=int(rng.integers(symbols)))
        return make(CONST, arg=int(rng.integers(5)))
    below = [depth - 1, int(rng.integers(depth))][:: int(rng.choice([-1, 1]))]
    if rng.random() >= branching:
        op = int(rng.choice([NEG, SCALE, DIFF]))
        arg = int(rng.integers(2, 5)) if op == SCALE else int(rng.integers(symbols)) if op == DIFF else 0
        return make(op, random_tree(rng, depth - 1, symbols, cap, products, branching), arg=arg)
    op = int(rng.choice([ADD, SUB, SUBST] + [MUL] * products)) if cap > 0 else ADD
    left = right = cap
    if op == MUL:
        left = int(rng.integers(cap + 1))
        right = cap - left
    elif op == SUBST:
        right = int(rng.integers(1, cap + 1))
        left = cap // right
    operands = [random_tree(rng, d, symbols, c, products, branching) for d, c in zip(below, (left, right), strict=True)]
    return make(op, *operands, arg=int(rng.integers(symbols)) if op == SUBST else 0)


class Story:
    """A scripted agent's way through a tree, as snapshots: it spawns for operands of at least `alone` nodes and does the rest itself."""

    def __init__(self, tree: Tree, symbols: int = 1, degree: int = 1, alone: int = 6, capacity: int = 3, wrong: float = 0.0) -> None:
        self.tree, self.alone, self.capacity = tree, alone, capacity
        self.exponents = monomials(symbols, degree)
        self.truth = truths(tree, 5, symbols, degree)
        self.values = np.full_like(self.truth, -1)
        self.size = sizes(tree)
        self.rng, self.wrong = np.random.default_rng(0), wrong
        self.stack: list[AlgebraFrameView] = []
        self.frames: dict[int, FrameView] = {}
        self.ids: list[int] = []
        self.pending: tuple[int, ...] = ()
        self.step = 0
        self.event = ("", "reset")
        self.outcome = ""

    def __iter__(self) -> Iterator[AlgebraView]:
        yield from self.frame(0, "root")
        self.outcome = "success" if (self.values[0] == self.truth[0]).all() else "failure"
        self.stack = [AlgebraFrameView(0, 0, 0, (), "root")]
        yield self.view()

    def frame(self, node: int, label: str) -> Iterator[AlgebraView]:
        depth, identity = len(self.stack), len(self.frames)
        self.stack.append(AlgebraFrameView(depth, node, node, (), label))
        self.frames[identity] = FrameView(identity, self.ids[-1] if self.ids else -1, depth, label, 9 * int(self.size[node]), 0, "open")
        self.ids.append(identity)
        self.event = (label, "spawn") if depth else ("", "reset")
        yield self.view()
        yield from self.compute(node)
        good = bool((self.values[node] == self.truth[node]).all())
        self.ids.pop()
        self.stack.pop()
        status = "success" if good else "failure"
        self.frames[identity] = dataclasses.replace(self.frames[identity], status=status)
        self.event = (self.event[0], "return")
        if self.stack:
            self.hold(node)
            yield self.view()

    def compute(self, node: int) -> Iterator[AlgebraView]:
        for side, child in (("left", self.tree.left[node]), ("right", self.tree.right[node])):
            if child < 0 or self.tree.left[child] < 0:
                continue
            if self.size[child] >= self.alone:
                yield from self.frame(int(child), f"spawn_{side}")
            else:
                self.move(int(child), side)
                yield self.view()
                yield from self.compute(int(child))
                self.move(node, "parent")
                yield self.view()
        value = self.truth[node].copy()
        if self.rng.random() < self.wrong:
            value[0] = (value[0] + 1) % 5
        for k, digit in enumerate(value.tolist()):
            self.event = (f"write_{digit}", "step")
            self.step += 1
            self.pending = (*self.pending, digit)
            if k == len(value) - 1:
                self.pending = ()
                self.values[node] = value
                if node != self.stack[-1].node:
                    self.hold(node)
            yield self.view()

    def move(self, node: int, name: str) -> None:
        self.step += 1
        self.event = (name, "step")
        self.stack[-1] = dataclasses.replace(self.stack[-1], cursor=node)

    def hold(self, node: int) -> None:
        gone = {int(self.tree.left[node]), int(self.tree.right[node])}
        slots = [slot for slot in self.stack[-1].slots if slot not in gone]
        self.stack[-1] = dataclasses.replace(self.stack[-1], slots=(*slots, node)[-self.capacity :])

    def view(self) -> AlgebraView:
        frames = tuple(self.frames[k] for k in sorted(self.frames))
        episode = EpisodeView("Algebra-depth8", self.step, 400, frames, *self.event, self.outcome)
        return AlgebraView(
            self.tree, self.values.copy(), self.truth, self.exponents, 5, self.pending, self.capacity, tuple(self.stack), episode
        )


def story(depth: int, seed: int = 0, nodes: tuple[int, int] = (1, 10**4), **kwargs: float) -> list[AlgebraView]:
    """All moments of an episode on a random tree with so many nodes."""
    symbols, cap = int(kwargs.pop("symbols", 1)), int(kwargs.pop("cap", 1))
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth, symbols, cap, cap > 1)
    while not nodes[0] <= len(tree.op) <= nodes[1]:
        tree = random_tree(rng, depth, symbols, cap, cap > 1)
    return list(Story(tree, symbols, cap, **kwargs))  # type: ignore[arg-type]


def deepest(views: list[AlgebraView]) -> AlgebraView:
    """A moment with the most open frames."""
    return max(views, key=lambda view: len(view.stack))


def has_color(picture: npt.NDArray[np.uint8], color: Color, least: int = 4) -> bool:
    return int((picture == np.array(color, np.uint8)).all(axis=2).sum()) >= least


@pytest.fixture(scope="module")
def viewer() -> AlgebraViewer:
    return AlgebraViewer()


# --- pictures ---


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 12])
def test_whole_episodes(viewer: AlgebraViewer, depth: int) -> None:
    views = story(depth, nodes=(1, 150), wrong=0.1)
    for view in views[:: max(1, len(views) // 12)] + views[-1:]:
        picture = viewer.draw_rgb(view)
        assert (picture.shape, picture.dtype) == ((640, 900, 3), np.uint8)
        assert has_color(picture, CURSOR)


@pytest.mark.parametrize(
    "size", [(900, 640), (64, 64), (320, 240), (479, 640), (480, 320), (640, 360), (1921, 1081), (4096, 64), (300, 900)]
)
def test_any_size(viewer: AlgebraViewer, size: tuple[int, int]) -> None:
    for view in (deepest(story(8)), deepest(story(4, symbols=3, cap=2))):
        assert viewer.draw_rgb(view, size).shape == (size[1] // 2 * 2, size[0] // 2 * 2, 3)


def test_sizes_out_of_range(viewer: AlgebraViewer) -> None:
    view = story(2)[0]
    for size in ((63, 640), (900, 4098)):
        with pytest.raises(ValueError, match="each side must be within 64"):
            viewer.draw_rgb(view, size)


def test_arrays_must_match(viewer: AlgebraViewer) -> None:
    view = story(3)[0]
    for wrong in ({"values": view.values[1:]}, {"truth": view.truth[:, :1]}):
        for draw in (viewer.draw_rgb, draw_ansi):
            with pytest.raises(ValueError, match=r"must have the shape \(nodes, digits\)"):
                draw(dataclasses.replace(view, **wrong))


def test_equal_views_give_equal_pixels(viewer: AlgebraViewer) -> None:
    views = story(6, wrong=0.1)[::5]
    first = [viewer.draw_rgb(view) for view in views]
    for view, picture in zip(reversed(views), reversed(first), strict=True):  # whatever was drawn before
        np.testing.assert_array_equal(viewer.draw_rgb(view), picture)
        np.testing.assert_array_equal(draw_rgb(copy.deepcopy(view)), picture)


def test_pictures_are_fresh_and_the_view_is_left_alone(viewer: AlgebraViewer) -> None:
    view = deepest(story(5))
    for array in (view.values, view.truth, view.exponents, *view.tree):
        array.flags.writeable = False
    before = copy.deepcopy(view)
    kept = viewer.draw_rgb(view)
    viewer.draw_rgb(view)[:] = 0
    draw_ansi(view)
    np.testing.assert_array_equal(viewer.draw_rgb(view), kept)
    for name in ("values", "truth", "exponents"):
        np.testing.assert_array_equal(getattr(view, name), getattr(before, name))


def test_tree_changed_in_place_is_drawn_anew(viewer: AlgebraViewer) -> None:
    view = story(4, nodes=(9, 20))[0]
    before = viewer.draw_rgb(view)
    view.tree.op[view.tree.op == CONST] = SYMBOL
    view.tree.arg[view.tree.op == SYMBOL] = 0
    view.truth[:] = truths(view.tree, 5)
    after = viewer.draw_rgb(view)
    assert (before != after).any()
    np.testing.assert_array_equal(after, draw_rgb(view))


def test_every_part_of_the_state_shows(viewer: AlgebraViewer) -> None:
    tree = parse_expression("(x + 1) - (2*x - d/dx(3*x + 1))")
    truth = truths(tree, 5)
    values = np.full_like(truth, -1)
    values[1] = truth[1]
    episode = EpisodeView("Algebra", 5, 90, (FrameView(0, -1, 0, "root", 90, 5, "open"),), "right", "step", "")
    stack = (AlgebraFrameView(0, 0, 0, (1,), "root"), AlgebraFrameView(1, 4, 7, (), "spawn_right"))
    base = AlgebraView(tree, values, truth, monomials(1, 1), 5, (), 2, stack, episode)
    other = np.where(np.arange(len(truth))[:, None] == 1, (truth + 1) % 5, values).astype(np.int8)
    more = values.copy()
    more[5] = truth[5]
    wanted = parse_expression("(x + 2) - (2*x - d/dx(3*x + 1))")
    root, child = stack
    variants = [
        dataclasses.replace(base, values=other),  # a wrong value
        dataclasses.replace(base, values=more),  # a forgotten value
        dataclasses.replace(base, values=more, stack=(root, dataclasses.replace(child, slots=(5,)))),  # the same, held
        dataclasses.replace(base, values=more, stack=(dataclasses.replace(root, slots=(1, 5)), child)),  # held by the caller
        dataclasses.replace(base, stack=(root, dataclasses.replace(child, cursor=4))),
        dataclasses.replace(base, stack=(dataclasses.replace(root, slots=()), child)),
        dataclasses.replace(base, stack=stack[:1]),
        dataclasses.replace(base, stack=()),
        dataclasses.replace(base, pending=(3,)),
        dataclasses.replace(base, capacity=3),
        dataclasses.replace(base, tree=wanted, truth=truths(wanted, 5)),
        *(dataclasses.replace(base, episode=dataclasses.replace(episode, **change)) for change in ({"step": 6}, {"outcome": "failure"})),
    ]
    pictures = [viewer.draw_rgb(view).tobytes() for view in [base, *variants]]
    assert len(set(pictures)) == len(pictures)
    texts = [draw_ansi(view) for view in [base, *variants]]
    assert len(set(texts)) == len(texts)


def test_each_open_frame_has_its_colour_on_board_and_panel(viewer: AlgebraViewer) -> None:
    view = deepest(story(6, alone=3))
    assert len(view.stack) >= 4
    picture = viewer.draw_rgb(view)
    board, panel = picture[:490, :620], picture[:540, 650:]
    for frame in view.stack[1:]:
        assert has_color(board, depth_color(frame.depth), 40)
        assert has_color(panel, depth_color(frame.depth))


def test_wrong_values_are_marked(viewer: AlgebraViewer) -> None:
    assert has_color(viewer.draw_rgb(story(3, wrong=1.0)[-1])[:490, :620], WRONG, 40)
    assert not has_color(viewer.draw_rgb(story(3)[-1])[:490, :620], WRONG)


def test_writing_a_value_moves_nothing(viewer: AlgebraViewer) -> None:
    """What is drawn outside the frame rises from the values, the cursor and the slots: the nodes stand still."""
    views = story(5, nodes=(15, 25), alone=100)
    kin = family(views[0].tree)
    places = set()
    for view in views:
        plan = arrange(kin, lambda node: 40.0, view.stack[-1].cursor, 0, (), (600.0, 12), 12.0)
        places.add(tuple(sorted(plan.x.items())))
    assert len(places) == 1


def test_large_expressions_stay_bounded(viewer: AlgebraViewer) -> None:
    wide = parse_expression("+".join(["(" + "+".join(["(x+1)"] * 20) + ")"] * 40))
    deep = parse_expression("x" + " + x" * 64)
    powers = parse_expression("(x + y + z)^4*2", Grammar(symbols=3, polynomial=True, degree=4))
    for tree, symbols, degree in ((wide, 1, 1), (deep, 1, 1), (powers, 3, 4)):
        truth = np.zeros((len(tree.op), len(monomials(symbols, degree))), np.int8) + 1
        last = len(tree.op) - 1
        stack = (AlgebraFrameView(0, 0, 0, (), "root"), AlgebraFrameView(1, 1, last, (), "spawn_left"))
        view = AlgebraView(tree, -np.ones_like(truth), truth, monomials(symbols, degree), 5, (), 64, stack, story(1)[0].episode)
        viewer.draw_rgb(view)
        start = time.process_time()
        viewer.draw_rgb(view)
        assert time.process_time() - start < 0.5
        assert len(draw_ansi(view).splitlines()) < 24 + 64 + 20


def test_a_lone_leaf(viewer: AlgebraViewer) -> None:
    tree = make(SYMBOL)
    truth = truths(tree, 5)
    view = AlgebraView(tree, truth.copy(), truth, monomials(1, 1), 5, (), 2, (), story(1)[0].episode)
    assert viewer.draw_rgb(view).shape == (640, 900, 3)
    assert "x = x" in draw_ansi(view, color=False)


@pytest.mark.slow
def test_drawing_is_fast(viewer: AlgebraViewer) -> None:
    for views in (story(8, nodes=(40, 50)), story(12, nodes=(90, 150)), story(6, symbols=3, cap=2)):
        times = []
        for view in views[:: max(1, len(views) // 60)]:
            start = time.process_time()
            viewer.draw_rgb(view)
            times.append(time.process_time() - start)
        assert np.median(times) < 0.03


# --- no display, no pygame ---


def test_needs_no_display_and_leaves_the_process_alone() -> None:
    code = """
import os, sys
import rao_envs.algebra.viewer as viewer
assert "pygame" not in sys.modules and "sympy" not in sys.modules
before = dict(os.environ)
import numpy as np
from rao_envs.algebra.tree import SYMBOL, make, monomials
from rao_envs.core.viewer import EpisodeView
value = np.array([[0, 1]], np.int8)
view = viewer.AlgebraView(make(SYMBOL), value, value, monomials(1, 1), 5, (), 2, (), EpisodeView("", 0, 1, (), "", "reset", ""))
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
        AlgebraViewer()
    assert "cursor" in draw_ansi(story(3)[0])


def test_viewer_can_be_pickled_and_copied(viewer: AlgebraViewer) -> None:
    view = deepest(story(4))
    picture = viewer.draw_rgb(view)
    for twin in (pickle.loads(pickle.dumps(viewer)), copy.deepcopy(viewer)):
        np.testing.assert_array_equal(twin.draw_rgb(view), picture)


# --- which nodes are shown, and where ---


def plan_of(view: AlgebraView, width: float = 580.0, rows: int = 13) -> tuple[Family, Plan]:
    kin, last = family(view.tree), view.stack[-1]
    return kin, arrange(kin, lambda node: 40.0, last.cursor, last.node, (), (width, rows), 12.0)


@pytest.mark.parametrize("depth", [2, 4, 8, 12, 20])
def test_plans_are_sound(depth: int) -> None:
    views = story(depth, nodes=(1, 400), alone=9)
    for view in views[:: max(1, len(views) // 25)]:
        kin, plan = plan_of(view)
        cursor = view.stack[-1].cursor
        assert cursor in plan.x
        assert set(way_up(kin, cursor)) & set(plan.x) == {node for node in way_up(kin, cursor) if within(kin, node, plan.top)}
        assert list(plan.x) == sorted(plan.x)
        assert plan.rows <= 13
        assert {child for node in plan.opened for child in kin.operands[node]} | {plan.top} == set(plan.x)
        boxes: dict[int, list[tuple[float, float]]] = {}
        for node, x in plan.x.items():
            assert 0 <= x <= 580
            boxes.setdefault(kin.level[node], []).append((x - 20, x + 20))
        forced = sum(len(kin.operands[node]) for node in way_up(kin, cursor)) * 52 + 52
        if forced < 580:  # else the way to the cursor alone may be too wide
            for row in boxes.values():
                for (_, end), (start, _) in zip(sorted(row), sorted(row)[1:], strict=False):
                    assert start >= end


def test_small_trees_are_shown_whole() -> None:
    view = story(5, nodes=(12, 18))[3]
    _, plan = plan_of(view)
    assert len(plan.x) == len(view.tree.op)
    assert plan.top == 0
    _, narrow = plan_of(view, width=120.0)
    assert len(narrow.x) < len(view.tree.op)
    _, low = plan_of(view, rows=3)
    assert low.rows <= 3


def test_what_is_near_opens_first() -> None:
    tree = parse_expression("((x + 1) + (x + 2)) - ((x + 3) + (x + 4))")
    kin = family(tree)
    count = [0]

    def grow(node: int, must: bool) -> bool:
        count[0] += 1
        return must or count[0] <= 4

    top, opened = choose(kin, 2, 1, (), 9, grow)
    assert (top, opened) == (0, {0, 1, 2, 5})
    count[0] = 0
    assert choose(kin, 2, 1, (5,), 9, grow)[1] == {0, 1, 2, 8}


def test_the_window_onto_a_deep_tree_moves_in_jumps() -> None:
    starts = [first_level(level, 40, 10) for level in range(41)]
    assert starts[0] == 0
    assert all(start <= level <= start + 9 for level, start in enumerate(starts))
    assert len(set(starts)) < 14
    assert [first_level(level, 9, 10) for level in range(10)] == [0] * 10


# --- text ---


def test_text_of_a_known_moment() -> None:
    tree = parse_expression("(x + 1) - (2*x - d/dx(3*x + 1))")
    truth = truths(tree, 5)
    values = np.full_like(truth, -1)
    values[1], values[9], values[8] = (2, 1), truth[9], truth[8]
    frames = (FrameView(0, -1, 0, "root", 90, 7, "open"), FrameView(1, 0, 1, "spawn_right", 40, 4, "open"))
    episode = EpisodeView("Algebra", 7, 90, frames, "write_3", "step", "")
    stack = (AlgebraFrameView(0, 0, 0, (1,), "root"), AlgebraFrameView(1, 4, 4, (7,), "spawn_right"))
    view = AlgebraView(tree, values, truth, monomials(1, 1), 5, (2,), 2, stack, episode)
    values[7] = truth[7]
    assert draw_ansi(view, color=False).splitlines() == [
        "x + 1 - (>2*x - d/dx(3*x + 1)<)",
        "−",  # noqa: RUF001
        "├ + = 2 + x WRONG",
        "│ ├ x",
        "│ └ 1",
        "└ − = 2 + _x  <-- cursor",  # noqa: RUF001
        "  ├ 2×",  # noqa: RUF001
        "  │ └ x",
        "  └ d/dx = 3",
        "    └ + = 1 + 3x (forgotten)",
        "      ├ 3× = 3x (forgotten)",  # noqa: RUF001
        "      │ └ x",
        "      └ 1",
        "now: ? − 3 = 2 + _x",  # noqa: RUF001
        "slots 1/2: d/dx 3",
        "Algebra  step 7/90  write 3 (one step in this frame)",
        "o root 7/90",
        "  o spawn right 4/40",
    ]


def test_text_in_colour_says_the_same() -> None:
    for view in story(7, wrong=0.1)[::9]:
        plain, coloured = draw_ansi(view, color=False), draw_ansi(view)
        assert "\x1b" not in plain
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_text_folds_large_trees() -> None:
    view = deepest(story(12, nodes=(90, 150)))
    lines = draw_ansi(view, color=False).splitlines()
    assert len(lines) < 50
    assert any(re.search(r" \.\.\. \d+ more$", line) for line in lines)
    assert len(draw_ansi(view, color=False, nodes=10**4).splitlines()) > len(view.tree.op)


@pytest.mark.parametrize("op", [ADD, SUB, NEG, SCALE, DIFF, SUBST, MUL])
def test_the_work_at_the_cursor_is_spelled_out(op: int) -> None:
    leaves = [make(SYMBOL), make(CONST, arg=2)][: 1 if op in (NEG, SCALE, DIFF) else 2]
    tree = make(op, *leaves, arg=3 if op == SCALE else 0)
    truth = truths(tree, 5)
    stack = (AlgebraFrameView(0, 0, 0, (), "root"),)
    view = AlgebraView(tree, -np.ones_like(truth), truth, monomials(1, 1), 5, (), 2, stack, story(1)[0].episode)
    expected = {ADD: "x + 2", SUB: "x − 2", NEG: "− x", SCALE: "3 × x", DIFF: "d/dx( x )", SUBST: "x [x := 2 ]", MUL: "x × 2"}  # noqa: RUF001
    assert f"now: {expected[op]} = _ + _x" in draw_ansi(view, color=False)


def test_colours_of_depth_are_told_apart_from_marks() -> None:
    assert CURSOR not in DEPTH_COLORS
    assert WRONG not in DEPTH_COLORS
