"""The stack of states against a stack of Python objects, over random sequences of calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_agents.transfer.layout import Layout, TransferOptions, check_options
from rao_agents.transfer.tracker import Carry, StateTracker, joined

SPACE = spaces.Dict(
    {"x": spaces.Box(-1e9, 1e9, (2,), np.float32), "kind": spaces.Discrete(5), "frame": spaces.Box(-1, 2**30, (3,), np.int32)}
)
OPTIONS = {
    "all": TransferOptions("hidden", dim=2, memory=2),
    "summary": TransferOptions("summary", dim=3),
    "down": TransferOptions("attention", dim=2, back=False),
    "memory": TransferOptions("none", dim=2, memory=3),
}


@dataclass
class Record:
    """What a frame left when it acted."""

    x: Any
    context: Any
    left: Any = 1.0  # share of its write that is still in the memory


@dataclass
class Frame:
    """An open frame."""

    record: Record | None = None
    state: Any = 0.0
    child: Record | None = None
    sibling: Record | None = None
    memory: Any = 0.0  # as it left it
    pooled: Any = 0.0


@dataclass
class Naive:
    """One environment's stack, one object per frame."""

    dim: int
    slots: int
    stack: list[Frame] = field(default_factory=list)
    acted: int = -1
    memory: Any = 0.0
    decay: Any = 0.0

    def arrive(self, depth: int, opened: bool) -> None:
        if opened and depth == 0:
            self.stack, self.acted, self.memory, self.decay = [], -1, np.zeros(self.dim * self.slots), np.zeros(self.slots)
        gone = Frame()
        while len(self.stack) > depth + (not opened):
            gone = self.stack.pop()
            if self.stack:
                self.stack[-1].child = gone.record
            self.memory = self.memory + gone.pooled
        if opened:
            frame = Frame()
            if depth > 0:
                parent = self.stack[-1]
                if self.acted >= depth:  # opened together with the one before
                    parent.pooled = parent.pooled + self.memory - parent.memory
                    self.memory, self.decay = parent.memory, parent.decay  # type: ignore[attr-defined]
                    frame.sibling = gone.sibling
                else:
                    frame.sibling = parent.child
            self.stack.append(frame)
        else:
            self.memory = self.memory + self.stack[-1].pooled
            self.stack[-1].pooled = 0.0

    def note(self, x: Any, context: Any, state: Any, memory: Any, strength: Any) -> None:
        top = self.stack[-1]
        self.memory, self.decay = memory, self.decay + np.log(np.maximum(1 - strength, 1e-6))
        top.record = Record(x, context, self.decay)
        top.state, top.memory, top.pooled, top.decay = state, memory, 0.0, self.decay  # type: ignore[attr-defined]
        self.acted = len(self.stack) - 1


def plan(rng: np.random.Generator, stack: list[int], acted: int) -> tuple[int, bool]:
    """Who acts next after the frame at the top: (depth, opened)."""
    depth = acted
    kind = rng.choice(["same", "open", "back", "switch", "reset"], p=[0.2, 0.35, 0.25, 0.15, 0.05])
    if kind == "open" and depth < 9:
        return depth + 1, True
    if kind == "back" and depth > 0:
        return int(rng.integers(0, depth)), False
    if kind == "switch" and depth > 0:
        return int(rng.integers(1, depth + 1)), True
    if kind == "reset":
        return 0, True
    return depth, False


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 4))
def test_tracker_is_a_stack_of_objects(name: str, seed: int, n: int) -> None:
    options = OPTIONS[name]
    layout = Layout.around(SPACE, options)
    rng = np.random.default_rng(seed)
    tracker = StateTracker(layout, n)
    naive = [Naive(options.dim, options.memory) for _ in range(n)]
    at = [(0, True)] * n
    for step in range(30):
        x = rng.normal(size=(n, 2)).astype(np.float32)
        frame = np.array([[depth, opened, -1] for depth, opened in at], np.int32)
        observation = {"x": x, "kind": rng.integers(5, size=n), "frame": frame}
        tracker.arrive(frame)
        shown = tracker.view(observation)
        assert set(shown) == set(layout.augmented.spaces)
        for i, stack in enumerate(naive):
            stack.arrive(*at[i])
            compare(options, shown, i, stack)
        context = rng.normal(size=(n, layout.context_dim)).astype(np.float32)
        state = rng.normal(size=(n, layout.state_dim)).astype(np.float32)
        memory = rng.normal(size=(n, layout.memory_dim)).astype(np.float32)
        strength = rng.uniform(0, 0.9, size=(n, options.memory)).astype(np.float32)
        tracker.note(
            observation,
            Carry(context, state if layout.state_dim else None, memory if options.memory else None, strength if options.memory else None),
        )
        for i, stack in enumerate(naive):
            stack.note(x[i], context[i], state[i], memory[i], strength[i])
        at = [plan(rng, [], stack.acted) for stack in naive]
        if step == 15:  # what is written down and read back goes on alike
            other = StateTracker(layout, n)
            other.load(tracker.state())
            tracker = other


def compare(options: TransferOptions, shown: dict[str, Any], i: int, naive: Naive) -> None:
    top = naive.stack[-1]
    parent = naive.stack[-2] if len(naive.stack) > 1 else None
    records = {"own": top.record, "parent": parent and parent.record, "child": top.child, "sibling": top.sibling}
    for k, name in enumerate(("own", "parent", "child", "sibling")):
        expected = records[name] if name in ("own", *options.others) else None
        assert shown["transfer/flags"][i, k] == (expected is not None), name
        if name != "own" and name in options.others:
            np.testing.assert_array_equal(shown[f"{name}/x"][i], expected.x if expected else np.zeros(2))
            np.testing.assert_array_equal(shown[f"{name}/context"][i], expected.context if expected else 0.0)
            if options.memory:
                left = np.exp(np.minimum(naive.decay - expected.left, 0.0)) if expected else np.zeros(options.memory)
                np.testing.assert_allclose(shown[f"{name}/kept"][i], left, rtol=1e-4, atol=1e-5)
    if options.mode == "hidden":
        np.testing.assert_array_equal(shown["transfer/state"][i], top.state if top.record else 0.0)
    if options.memory:
        np.testing.assert_allclose(shown["transfer/memory"][i], naive.memory, rtol=1e-4, atol=1e-4)


def carry(layout: Layout, rng: np.random.Generator) -> Carry:
    return Carry(
        rng.normal(size=(1, layout.context_dim)).astype(np.float32),
        rng.normal(size=(1, layout.state_dim)).astype(np.float32),
        rng.normal(size=(1, layout.memory_dim)).astype(np.float32),
        rng.uniform(0, 0.9, size=(1, layout.options.memory)).astype(np.float32),
    )


def test_detached_children_leave_what_inline_ones_do() -> None:
    """One spawn opens three children; the second has a child itself."""
    layout = Layout.around(SPACE, OPTIONS["all"])
    inside = [[(1, 1), (1, 0)], [(1, 1), (2, 1), (1, 0)], [(1, 1), (2, 1)]]  # (depth, opened) of each child's steps

    def play(tracker: StateTracker, at: tuple[int, int], rng: np.random.Generator) -> dict[str, Any]:
        frame = np.array([[*at, 0]], np.int32)
        observation = {"x": rng.normal(size=(1, 2)).astype(np.float32), "kind": np.array([at[0]]), "frame": frame}
        tracker.arrive(frame)
        shown = tracker.view(observation)
        tracker.note(observation, carry(layout, rng))
        return shown

    results = []
    for detached in (False, True):
        rng = np.random.default_rng(0)
        tracker = StateTracker(layout, 1)
        seen = [play(tracker, (0, 1), rng), play(tracker, (0, 0), rng)]
        spawned = tracker.state()
        ended = []
        for steps in inside:
            if detached:
                tracker = StateTracker(layout, 1)
                tracker.load(spawned)
            seen += [play(tracker, at, rng) for at in steps]
            ended.append(tracker.state())
        if detached:
            tracker.load(joined(layout, spawned, ended))
        seen.append(play(tracker, (0, 0), rng))
        results.append((seen, tracker.state()))
    (inline, last), (apart, other) = results
    for a, b in zip(inline, apart, strict=True):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)
    rows = slice(0, 1)  # of levels beyond the acting frame's child nothing is used again
    for a, b in zip(last, other, strict=True):
        np.testing.assert_array_equal(a[:, rows], b[:, rows]) if a.ndim > 1 else np.testing.assert_array_equal(a, b)


def test_after_forgetting_frames_are_strangers() -> None:
    layout = Layout.around(SPACE, OPTIONS["summary"])
    rng = np.random.default_rng(0)
    tracker = StateTracker(layout, 1)

    def show(depth: int, opened: int) -> Any:
        frame = np.array([[depth, opened, 0]])
        observation = {"x": np.ones((1, 2), np.float32), "kind": np.zeros(1), "frame": frame}
        tracker.arrive(frame)
        shown = tracker.view(observation)
        tracker.note(observation, Carry(rng.normal(size=(1, layout.context_dim)), None, None, None))
        return shown["transfer/flags"][0].tolist()

    assert show(0, 1) == [0, 0, 0, 0]
    assert show(1, 1) == [0, 1, 0, 0]
    tracker.forget()
    assert show(3, 0) == [0, 0, 0, 0]
    assert show(4, 1) == [0, 1, 0, 0]
    assert show(4, 0) == [1, 1, 0, 0]
    assert show(3, 0) == [1, 0, 1, 0]
    assert show(2, 0) == [0, 0, 1, 0]
    assert show(6, 1) == [0, 0, 0, 0]  # the frames between never acted


@pytest.mark.parametrize(
    ("mode", "kwargs", "message"),
    [
        ("telepathy", {}, "state_transfer must be one of none, summary, hidden, attention, got 'telepathy'"),
        ("summary", {"width": 3}, "has no width; it takes dim, slots, memory, back"),
        ("summary", {"dim": 0}, "dim must be an integer of at least 1, got 0"),
        ("none", {"memory": -1}, "memory must be an integer of at least 0"),
        ("none", {"slots": True}, "slots must be an integer"),
        ("none", {"back": 2}, "back must be True or False"),
    ],
)
def test_bad_options(mode: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_options(mode, kwargs)


def test_bad_observations_and_states() -> None:
    with pytest.raises(ValueError, match="observe_frame=True"):
        Layout.around(spaces.Dict({"x": spaces.Discrete(2)}), OPTIONS["summary"])
    with pytest.raises(ValueError, match="observe_frame=True"):
        Layout.around(spaces.Box(0, 1, (2,)), OPTIONS["summary"])
    with pytest.raises(ValueError, match="the environment has parent/x"):
        Layout.around(spaces.Dict({**SPACE.spaces, "parent/x": spaces.Discrete(2)}), OPTIONS["summary"])
    tracker = StateTracker(Layout.around(SPACE, OPTIONS["summary"]), 2)
    for wrong in (np.array([[0.5, 0, 0], [0, 0, 0]]), np.array([[-1, 0, 0], [0, 0, 0]]), np.zeros((1, 3))):
        with pytest.raises(ValueError, match="norm_obs_keys"):
            tracker.arrive(wrong)
    with pytest.raises(ValueError, match="the state is of 3 environments, the observation of 2"):
        tracker.load(StateTracker(tracker.layout, 3).state())
    with pytest.raises(ValueError, match="has 6 arrays, got 1"):
        tracker.load((np.zeros(2),))
    wider = Layout.around(SPACE, OPTIONS["summary"]._replace(dim=5))
    with pytest.raises(ValueError, match="it is of another model"):
        tracker.load(StateTracker(wider, 2).state())
    with pytest.raises(ValueError, match="at least one"):
        joined(tracker.layout, tracker.state(), [])
    with pytest.raises(ValueError, match="begin them with child_state"):
        joined(tracker.layout, tracker.state(), [tracker.state()])
