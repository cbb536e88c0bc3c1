"""Nested brackets' dynamics against a second model of them, written with lists and dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs  # noqa: F401
from rao_envs.core.batch import RecursiveBatch
from rao_envs.nested.domain import NestedDomain
from rao_envs.nested.env import NestedEnv
from rao_envs.nested.reference import RecursiveSolver
from tests.envs.test_nested_generator import Node, tree_of

Range = tuple[Node, int, int]  # a bracket's arguments [low, high)

TEXT = "[SUM 1 [MAX 0 1 [MIN 2 1] 1 0 1 1] [MIN 1 2] 2 [SUM [SUM 1 1] [MAX 0 [SUM 2 2 1]]] 0]"


@dataclass
class Frame:
    """A frame of either view."""

    home: Range
    part: int = -1
    note: int = 0
    path: list[Range] = field(default_factory=list)  # folded: where the cursor is, the frame's own range first
    memory: dict[int, dict[int, int]] = field(default_factory=lambda: {0: {}})  # folded: answers by level and slot
    before: list[int] = field(default_factory=list)  # raw: tokens from the range's start to the window's
    halves: dict[int, int] = field(default_factory=dict)
    pushed: list[int] = field(default_factory=list)
    at: int = 0
    items: list[tuple[int, int, bool]] = field(default_factory=list)  # raw: what shows from the window on: token, place, answer


class Model:
    """One episode."""

    def __init__(self, env: NestedEnv) -> None:
        self.env, self.domain = env, env.domain
        state: Any = env.batch.state
        self.tokens = state.tokens[0, : state.task[0]["length"]].tolist()
        self.root = tree_of(self.tokens)
        self.nodes = {node.start: node for _, node in self.root.walk()}
        self.first: dict[int, bool] = {}  # of each bracket, by its start: whether its first answer was right
        self.frames: list[Frame] = []
        self.queues: list[list[tuple[Range, int]]] = []  # siblings that wait, per depth
        self.push((self.root, 0, len(self.root.parts)), -1)

    # -- ranges ----------------------------------------------------------------------------------------------------------------

    def parts(self, where: Range) -> list[int | Range]:
        """The slots of a range: digits, and ranges to be worked out."""
        node, low, high = where
        if high - low > self.domain.slots:
            middle = low + -(-(high - low) // 2)
            return [(node, low, middle), (node, middle, high)]
        return [part if isinstance(part, int) else (part, 0, len(part.parts)) for part in node.parts[low:high]]

    def value(self, where: Range) -> int:
        node, low, high = where
        piece = Node(node.operator, 0)
        piece.parts = node.parts[low:high]
        return piece.value(self.domain.modulus)

    def span(self, where: Range) -> tuple[int, int]:
        """Tokens of a range's arguments."""
        node, low, high = where
        at = node.start + 1
        edges = [at]
        for part in node.parts:
            at = at + 1 if isinstance(part, int) else part.end
            edges.append(at)
        return edges[low], edges[high]

    def book(self, where: Range, answer: int) -> None:
        node, low, high = where
        if high - low == len(node.parts):
            self.first.setdefault(node.start, answer == node.value(self.domain.modulus))

    @property
    def progress(self) -> float:
        return sum(self.first.values()) / len(self.nodes)

    def push(self, where: Range, part: int) -> None:
        frame = Frame(where, part, path=[where])
        self.frames.append(frame)
        self.queues.append([])
        frame.at = self.span(where)[0]
        self.refill(frame)

    def refill(self, frame: Frame) -> None:
        """Raw: fresh text from the window's start."""
        frame.items = [(self.tokens[at], at, False) for at in range(frame.at, self.span(frame.home)[1])]

    def window(self, frame: Frame) -> list[tuple[int, int, bool]]:
        return frame.items[: self.domain.window]

    def collapse(self, frame: Frame, start: int, answer: int) -> None:
        end = self.nodes[start].end
        frame.items = [
            (answer, at, True) if at == start else (token, at, answered)
            for token, at, answered in frame.items
            if at == start or not start < at < end
        ]

    # -- steps -----------------------------------------------------------------------------------------------------------------

    def step(self, name: str) -> None:
        frame = self.frames[-1]
        kind, _, tail = name.partition("_")
        number = int(tail) if tail.isdecimal() else -1
        if kind == "answer" and len(frame.path) == 1:
            self.finish(number)
        elif kind == "answer":
            left = frame.path.pop()
            self.book(left, number)
            level = len(frame.path) - 1
            frame.memory.setdefault(level, {})[self.parts(frame.path[-1]).index(left)] = number
        elif kind == "descend":
            inner = self.parts(frame.path[-1])[number]
            assert not isinstance(inner, int)
            frame.path.append(inner)
            level = len(frame.path) - 1
            frame.memory[level] = {}
            frame.memory.pop(level - self.domain.stack - 1, None)
        elif kind == "note":
            frame.note = number + 1
        elif kind == "push":
            frame.pushed = [*frame.pushed, frame.note][-self.domain.stack :]
        elif kind == "pop":
            frame.note = frame.pushed.pop()
        elif kind == "reduce":
            start = self.reducible(frame)
            assert start is not None
            self.book((self.nodes[start], 0, len(self.nodes[start].parts)), number)
            self.collapse(frame, start, number)
        elif name == "next":
            frame.at = frame.items[self.domain.window][1]
            self.refill(frame)
        elif name == "previous":
            frame.at = max(self.span(frame.home)[0], frame.at - self.domain.window)
            self.refill(frame)
        else:
            self.queues[-1] = self.children(frame, name)
            where, part = self.queues[-1].pop(0)
            self.push(where, part)

    def children(self, frame: Frame, name: str) -> list[tuple[Range, int]]:
        tail = name.removeprefix("spawn_")
        if self.domain.view == "folded":
            slots = enumerate(self.parts(frame.home))
            open_slots = [(part, k) for k, part in slots if not isinstance(part, int) and k not in frame.memory[0]]
            return open_slots if tail == "all" else [pair for pair in open_slots if pair[1] == int(tail)]
        node, low, high = frame.home
        middle = low + -(-(high - low) // 2)
        if tail == "left":
            return [((node, low, middle), 0)]
        if tail == "right":
            return [((node, middle, high), 1)]
        opening = [at for token, at, _ in self.window(frame) if 10 <= token < 13]
        if tail != "all":
            opening = [self.window(frame)[int(tail)][1]]
        chosen: list[Node] = []
        for at in opening:
            if not chosen or at >= chosen[-1].end:
                chosen.append(self.nodes[at])
        return [((inner, 0, len(inner.parts)), -1) for inner in chosen]

    def reducible(self, frame: Frame) -> int | None:
        """Where the first bracket opens that is all in the window with no bracket in it."""
        seen = self.window(frame)
        for token, at, _ in seen:
            if 10 <= token < 13:
                inside = [other for other, place, _ in seen if at < place < self.nodes[at].end]
                if (
                    inside
                    and inside[-1] == 13
                    and not any(10 <= other < 13 for other in inside[:-1])
                    and self.nodes[at].end <= seen[-1][1] + 1
                ):
                    return at
        return None

    def finish(self, answer: int) -> None:
        frame = self.frames.pop()
        self.queues.pop()
        self.book(frame.home, answer)
        if not self.frames:
            return
        parent = self.frames[-1]
        if self.domain.view == "folded":
            parent.memory[0][frame.part] = answer
        elif frame.part >= 0:
            parent.halves[frame.part] = answer
        else:
            self.collapse(parent, frame.home[0].start, answer)
        self.go_on()

    def time_out(self) -> None:
        """The acting frame ends without an answer."""
        self.frames.pop()
        self.queues.pop()
        if self.frames:
            self.go_on()

    def go_on(self) -> None:
        """The next sibling, if one waits."""
        if self.queues[-1]:
            self.push(*self.queues[-1].pop(0))

    # -- what shows ------------------------------------------------------------------------------------------------------------

    def observation(self) -> tuple[list[int], list[int]]:
        frame, domain = self.frames[-1], self.domain
        modulus = domain.modulus
        note = one_hot(frame.note - 1, domain.notes)
        if domain.view == "raw":
            task = [*one_hot(("SUM", "MAX", "MIN").index(frame.home[0].operator), 3), int(frame.at == self.span(frame.home)[0])]
            for k in range(domain.window):
                token, _, answered = frame.items[k] if k < len(frame.items) else (14, -1, False)
                task += [*one_hot(token if token < 10 else -1, modulus), int(answered), *one_hot(token - 10, 4)]
            halves = [one_hot(frame.halves.get(k, -1), modulus) for k in range(2)]
            return [*task, *note], [*halves[0], *halves[1]]
        node, _, _ = frame.path[-1]
        parts, level = self.parts(frame.path[-1]), len(frame.path) - 1
        answers = frame.memory[level]
        task = [*one_hot(("SUM", "MAX", "MIN").index(node.operator), 3), int(level == 0)]
        known = [part if isinstance(part, int) else answers.get(k, -1) for k, part in enumerate(parts)]
        for k in range(domain.slots):
            part = parts[k] if k < len(parts) else None
            task += [int(isinstance(part, tuple) and k not in answers), *one_hot(part if isinstance(part, int) else -1, modulus)]
        for digit in range(modulus):
            task += [int(known.count(digit) > k) for k in range(domain.slots)]
        return [*task, *note], [bit for k in range(domain.slots) for bit in one_hot(answers.get(k, -1), modulus)]

    def allowed(self, name: str) -> bool:
        """As far as the family is concerned."""
        frame = self.frames[-1]
        kind, _, tail = name.partition("_")
        parts = self.parts(frame.path[-1])
        home = len(frame.path) == 1
        if kind == "answer":
            return True
        if kind == "descend":
            return int(tail) < len(parts) and isinstance(parts[int(tail)], tuple)
        if kind == "note":
            return frame.note != int(tail) + 1
        if kind == "push":
            return frame.note > 0 and frame.pushed != [frame.note] * self.domain.stack
        if kind == "pop":
            return bool(frame.pushed)
        if kind == "reduce":
            return self.reducible(frame) is not None
        if name == "next":
            return len(frame.items) > self.domain.window
        if name == "previous":
            return frame.at > self.span(frame.home)[0]
        if self.domain.view == "folded":
            return home and bool(self.children(frame, name))
        if tail in ("left", "right"):
            return frame.home[2] - frame.home[1] > self.domain.slots and (tail == "right") not in frame.halves
        opening = [10 <= token < 13 for token, _, _ in self.window(frame)]
        return any(opening) if tail == "all" else int(tail) < len(opening) and opening[int(tail)]


def one_hot(index: int, size: int) -> list[int]:
    return [int(k == index) for k in range(size)]


cases = st.fixed_dictionaries(
    {
        "view": st.sampled_from(["folded", "raw"]),
        "length": st.sampled_from([9, 20, 60, (8, 120)]),
        "slots": st.sampled_from([2, 4]),
        "window": st.sampled_from([4, 8]),
        "stack": st.sampled_from([0, 1, 3]),
        "modulus": st.sampled_from([2, 3, 10]),
        "notes": st.sampled_from([0, 3]),
        "max_arguments": st.sampled_from([2, 6, 20]),
    }
)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**64 - 1), kwargs=cases, rng_seed=st.integers(0, 2**32 - 1), haste=st.sampled_from([0.02, 0.1, 0.4]))
def test_every_step_is_what_the_model_says(seed: int, kwargs: dict[str, Any], rng_seed: int, haste: float) -> None:
    env = NestedEnv(feedback="dense", **kwargs)
    observation, info = env.reset(seed=seed)
    model = Model(env)
    rng = np.random.default_rng(rng_seed)
    paid = 0.0
    for _ in range(200):
        task, results = model.observation()
        assert observation["task"].tolist() == task
        assert observation["results"].tolist() == results
        mask = observation["action_mask"]
        spawns = env.spawn_actions.tolist()
        for action, name in enumerate(env.action_names):
            if action not in spawns or observation["call"][0]:
                assert mask[action] == model.allowed(name) or (action in spawns and not mask[action]), name
        choices = np.flatnonzero(mask)
        answers = choices[choices < env.domain.modulus]
        rest = choices[choices >= env.domain.modulus]
        action = int(rng.choice(answers if rng.random() < haste or not len(rest) else rest))
        observation, reward, terminated, truncated, info = env.step(action)
        ends = env.action_names[action].startswith("answer") and len(model.frames[-1].path) == 1
        model.step(env.action_names[action])
        for _ in info["returned"][1 if ends else 0 :]:  # whatever else ended at this step ran out of steps
            model.time_out()
        paid += info["dense_reward"]
        assert paid == pytest.approx(model.progress)
        if terminated or truncated:
            assert not terminated or reward == float(env.batch.state.frames[0, 0]["answer"] == model.root.value(env.domain.modulus))
            return
        assert info["depth"] == len(model.frames) - 1


def play(env: NestedEnv, *names: str) -> Any:
    for name in names:
        assert env.action_masks()[env.action_names.index(name)], f"{name} is not allowed"
        step = env.step(env.action_names.index(name))
    return step


def shown(env: NestedEnv) -> str:
    """What the acting frame sees, as a picture shows it."""
    view = env.view()
    marks = {"digit": "{}", "open": "?{}", "answer": "({})", "mark": "{}"}
    return " ".join([view.focus.operator, *(marks[cell.kind].format(cell.text) for cell in view.cells)]).rstrip()


def test_the_folded_view_step_by_step() -> None:
    env = NestedEnv(text=TEXT, slots=4, feedback="dense", render_mode="ansi")
    env.reset(seed=0)
    assert shown(env) == "SUM ? ?"  # six arguments: two halves
    play(env, "spawn_0")
    assert shown(env) == "SUM 1 ? ?"
    *_, info = play(env, "spawn_all")
    assert (info["depth"], shown(env)) == (2, "MAX ? ?")
    play(env, "answer_1")
    assert shown(env) == "MIN 1 2"
    *_, info = play(env, "answer_2")  # wrong
    assert (info["depth"], info["dense_reward"], shown(env)) == (1, 0.0, "SUM 1 (1) (2)")
    assert not env.action_masks()[env.spawn_actions].any()
    play(env, "answer_0")
    assert shown(env) == "SUM (0) ?"
    play(env, "descend_1", "note_1")
    assert shown(env) == "SUM 2 ? 0"
    play(env, "descend_1", "descend_0", "answer_2")
    assert shown(env) == "SUM (2) ?"
    play(env, "descend_1")
    assert shown(env) == "MAX 0 ?"
    play(env, "answer_2")
    assert shown(env) == "SUM ? (2)"  # nothing else is kept
    assert env.view().note == "1"
    play(env, "answer_1")
    assert shown(env) == "SUM 2 (1) 0"
    play(env, "answer_0")
    assert shown(env) == "SUM ? (0)"
    *_, reward, terminated, _, info = play(env, "answer_0")
    assert terminated
    assert reward == float(env.domain.truth(env.batch.state, 0) == "0")


def test_a_stack_keeps_the_innermost_levels() -> None:
    env = NestedEnv(text=TEXT, slots=4, stack=1, render_mode="ansi")
    env.reset(seed=0)
    play(env, "descend_1", "descend_1", "descend_0", "answer_2", "descend_1", "answer_2")
    assert shown(env) == "SUM (2) (2)"
    play(env, "answer_1")
    assert shown(env) == "SUM 2 (1) 0"
    play(env, "answer_0", "descend_0", "answer_1")
    assert shown(env) == "SUM (1) (0)"


def test_the_raw_view_step_by_step() -> None:
    env = NestedEnv(text=TEXT, slots=4, view="raw", feedback="dense", render_mode="ansi")
    env.reset(seed=0)
    assert shown(env) == "SUM 1 ?[MAX 0 1 ?[MIN 2 1 ]"
    *_, info = play(env, "reduce_1")
    assert info["dense_reward"] == pytest.approx(1 / 8)
    assert shown(env) == "SUM 1 ?[MAX 0 1 (1) 1 0 1"
    *_, info = play(env, "spawn_1")
    assert (info["depth"], shown(env)) == (1, "MAX 0 1 ?[MIN 2 1 ] 1 0")
    play(env, "spawn_2", "answer_1", "answer_1")
    assert shown(env) == "SUM 1 (1) ?[MIN 1 2 ] 2 ?[SUM"
    play(env, "spawn_all", "answer_1")
    assert shown(env) == "SUM ?[SUM 1 1 ] ?[MAX 0 ?[SUM 2"
    play(env, "answer_0")
    assert shown(env) == "SUM 1 (1) (1) 2 (0) 0"
    play(env, "spawn_right")
    assert shown(env) == "SUM 2 ?[SUM ?[SUM 1 1 ] ?[MAX 0"
    play(env, "next")
    assert shown(env) == "SUM ?[SUM 2 2 1 ] ] ] 0"
    play(env, "previous", "answer_2")
    assert env.view().halves[1].text == "2"
    assert not env.action_masks()[env.action_names.index("spawn_right")]


def test_the_first_answer_to_a_bracket_counts_and_no_other() -> None:
    env = NestedEnv(text="[SUM 1 [MAX 0 1] [MIN 1 2]]", feedback="dense", spawn=False)
    env.reset(seed=0)
    paid = [
        play(env, *names)[-1]["dense_reward"] for names in (("descend_1", "answer_0"), ("descend_1", "answer_1"), ("descend_2", "answer_1"))
    ]
    assert paid == [0.0, 0.0, pytest.approx(1 / 3)]
    assert play(env, "descend_2", "answer_1")[-1]["dense_reward"] == 0.0


def test_independent_children_get_steps_in_proportion_to_what_they_want() -> None:
    """One child has nearly all the work: with equal shares at every level nothing would be left for it."""
    env = NestedEnv(length=3200, budget=4500)
    solver = RecursiveSolver(length=3200)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(solver(observation, env.action_masks()))
            ended = terminated or truncated
        assert reward == 1.0


def test_a_large_task_is_quick_and_its_children_copy_no_text() -> None:
    batch = RecursiveBatch(NestedDomain(length=1_000_000, max_nesting=20), 1)
    batch.seed(0, 0)
    batch.reset()
    assert batch.state.task[0]["length"] == 1_000_000
    env: Any = gym.make("RAO/LongSeq-nested-32k-v0").unwrapped
    env.reset(seed=0)
    children = env.spawn_all(env.action_names.index("spawn_all"))
    assert all(child.batch.state.tokens is env.batch.state.tokens for child in children)
