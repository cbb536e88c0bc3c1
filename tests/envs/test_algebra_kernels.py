"""The algebra's dynamics against a model in plain Python, and what the family promises about slots, values and feedback."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs  # noqa: F401
from rao_envs.algebra import tree as t
from rao_envs.algebra.env import AlgebraEnv
from rao_envs.algebra.tree import ADD, DIFF, NO_NODE, SCALE, SUBST, Tree

LEFT, RIGHT, PARENT = 5, 6, 7
SPAWN_LEFT, SPAWN_RIGHT, SPAWN_ALL = 8, 9, 10
"""Actions over Z_5."""

OPTIONS: list[dict[str, Any]] = [
    {"depth": 4},
    {"depth": 7, "slots": 3},
    {"depth": (1, 5), "substitution": True, "modulus": 3},
    {"depth": 5, "polynomial": True, "substitution": True},
    {"depth": 4, "polynomial": True, "degree": 3, "symbols": 3, "modulus": 2},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()))


def make(**kwargs: Any) -> AlgebraEnv:
    env = gym.make("RAO/Algebra-v0", disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, AlgebraEnv)
    return env


def given_expression(text: str, **kwargs: Any) -> AlgebraEnv:
    env = make(expressions=[text], **kwargs)
    env.reset(seed=0)
    return env


# -- a model -------------------------------------------------------------------------------------------------------------------------


@dataclass
class Frame:
    root: int
    cursor: int
    digits: list[int] = field(default_factory=list)
    slots: list[tuple[int, list[int]]] = field(default_factory=list)  # the oldest first
    brought: list[int] = field(default_factory=lambda: [0, 0])
    answer: list[int] | None = None


class Model:
    """One episode, as the documentation has it."""

    def __init__(self, env: AlgebraEnv) -> None:
        self.p, self.n, self.k = env.domain.modulus, env.domain.digits, env.domain.slots
        self.symbols = env.domain.symbols
        self.tree: Tree = env.tree
        self.truth = env.truth.tolist()
        self.sizes, self.parents = t.sizes(self.tree).tolist(), t.parents(self.tree).tolist()
        self.need = t.slots_needed(self.tree).tolist()
        self.stack = [Frame(0, 0)]
        self.waiting: list[int] = []  # the second of two independent children
        self.first: dict[int, bool] = {}  # node -> whether its first value was right

    @property
    def frame(self) -> Frame:
        return self.stack[-1]

    def operands(self) -> list[int]:
        node = self.frame.cursor
        left, right = int(self.tree.left[node]), int(self.tree.right[node])
        return [node] if left == NO_NODE else [left] if right == NO_NODE else [left, right]

    def value(self, node: int) -> list[int] | None:
        if self.tree.left[node] == NO_NODE:
            return self.truth[node]  # type: ignore[no-any-return]
        return dict(self.frame.slots).get(node)

    def allowed(self) -> list[bool]:
        """Of every action, as far as depth and budget allow spawns."""
        is_open = [self.value(node) is None for node in self.operands()] + [False]
        half = bool(self.frame.digits)
        moves = [is_open[0], is_open[1], self.frame.cursor != self.frame.root and not half]
        return [not any(is_open)] * self.p + moves + [is_open[0], is_open[1], is_open[0] and is_open[1]]

    def hold(self, frame: Frame, node: int, value: list[int]) -> None:
        frame.slots = [(held, v) for held, v in frame.slots if not node <= held < node + self.sizes[node]]
        frame.slots = [*frame.slots, (node, value)][-self.k :]

    def act(self, action: int) -> None:
        """A primitive action or a spawn."""
        frame, move = self.frame, action - self.p
        if move >= 3:
            operands = self.operands()
            self.waiting.append(operands[1] if move == 5 else -1)
            root = operands[1] if move == 4 else operands[0]
            self.stack.append(Frame(root, root))
        elif move >= 0:
            node = frame.cursor
            frame.cursor = self.parents[node] if move == 2 else self.operands()[move]
            frame.brought = [0, 0]
        else:
            frame.digits.append(action)
            if len(frame.digits) == self.n:
                self.complete(frame)

    def complete(self, frame: Frame) -> None:
        value, node = frame.digits, frame.cursor
        frame.digits = []
        self.first.setdefault(node, value == self.truth[node])
        if node == frame.root:
            frame.answer = value
        else:
            self.hold(frame, node, value)
            frame.cursor, frame.brought = self.parents[node], [0, 0]

    def close(self) -> None:
        """The acting frame, a child, ends: with an answer or without."""
        child = self.stack.pop()
        self.frame.brought[self.operands().index(child.root)] = -1 if child.answer is None else 1
        if child.answer is not None:
            self.hold(self.frame, child.root, child.answer)
        sibling = self.waiting.pop()
        if sibling != -1:
            self.waiting.append(-1)
            self.stack.append(Frame(sibling, sibling))

    def observation(self, fields: dict[str, slice]) -> np.ndarray[Any, Any]:
        task = np.zeros(fields["free"].stop, np.int8)
        frame, node = self.frame, self.frame.cursor
        op, arg = int(self.tree.op[node]), int(self.tree.arg[node])
        if self.tree.left[node] == NO_NODE:
            op, arg = SCALE, 1
        task[fields["op"]][op - ADD] = 1
        if op == SCALE:
            task[fields["constant"]][arg] = 1
        if op in (DIFF, SUBST) and self.symbols > 1:
            task[fields["symbol"]][arg] = 1
        position = len(frame.digits)
        for side, operand in zip(("left", "right"), self.operands(), strict=False):
            value = self.value(operand)
            leaf = self.tree.left[operand] == NO_NODE
            task[fields[f"{side}_status"]][0 if leaf else 2 if value is None else 1] = 1
            if value is None:
                task[fields[f"{side}_need"]][min(self.need[operand], self.k + 1) - 1] = 1
            else:
                shown = task[fields[f"{side}_value"]].reshape(self.n, self.p)
                shown[range(self.n), value[position:] + value[:position]] = 1
        task[fields["position"]][position] = 1
        written = task[fields["written"]].reshape(self.n - 1, self.p)
        for place, digit in enumerate(frame.digits, self.n - 1 - position):
            written[place, digit] = 1
        task[fields["free"]][self.k - len(frame.slots)] = 1
        return task


@every_option
@settings(max_examples=25)
@given(seed=st.integers(0, 2**64 - 1), rng_seed=st.integers(0, 2**32 - 1), spawn=st.sampled_from([0.0, 0.2, 0.7]), right=st.booleans())
def test_any_play_goes_as_the_model_says(options: dict[str, Any], seed: int, rng_seed: int, spawn: float, right: bool) -> None:
    env = make(feedback="dense", **options)
    observation, info = env.reset(seed=seed)
    model, rng = Model(env), np.random.default_rng(rng_seed)
    work, paid = t.operations(model.tree), 0.0
    for _ in range(300):
        frames = env.batch.stack.frames[0, info["depth"]]
        left = int(frames["budget"] - (env.batch.stack.episodes["clock"][0] - frames["start"]))
        expected = model.allowed()
        for at, children in ((-3, 1), (-2, 1), (-1, 2)):
            expected[at] &= info["depth"] < env.batch.stack.limits["max_depth"][0] and left > children
        assert observation["action_mask"].tolist() == expected
        assert observation["task"].tolist() == model.observation(env.domain.fields).tolist()
        assert observation["results"].tolist() == model.frame.brought
        allowed = np.flatnonzero(expected)
        writes, spawns = allowed[allowed < model.p], allowed[allowed >= model.p + 3]
        if len(writes) and right:
            action = model.truth[model.frame.cursor][len(model.frame.digits)]
        elif len(spawns) and rng.random() < spawn:
            action = int(rng.choice(spawns))
        else:
            action = int(rng.choice(allowed[allowed < model.p + 3]))
        observation, reward, terminated, truncated, info = env.step(action)
        model.act(action)
        paid += info["dense_reward"]
        assert paid == pytest.approx(sum(model.first.values()) / max(1, work))
        for entry in info["returned"]:
            frame = model.frame
            assert entry["success"] == (frame.answer == model.truth[frame.root])
            if frame.answer is not None:
                assert entry["value"] == sum(digit * model.p**place for place, digit in enumerate(frame.answer))
            if entry["depth"]:
                model.close()
        assert len(model.stack) == info["depth"] + 1
        if terminated or truncated:
            assert reward == float(info["is_success"]) == float(model.frame.answer == model.truth[0])
            assert terminated == (model.frame.answer is not None)
            assert not (terminated and right) or paid == pytest.approx(1.0)
            return


# -- slots -------------------------------------------------------------------------------------------------------------------------


def play(env: AlgebraEnv, *actions: int) -> tuple[Any, ...]:
    """Take allowed actions; what the last one gave."""
    result: tuple[Any, ...] = ()
    for action in actions:
        assert env.action_masks()[action], f"{env.action_names[action]} is not allowed"
        result = env.step(action)
    return result


def held(env: AlgebraEnv, depth: int = 0) -> list[int]:
    return [int(node) for node in env.batch.state.slots[0, depth] if node != NO_NODE]


def test_a_value_replaces_those_below_it_and_goes_up() -> None:
    env = given_expression("(x + 1) - 2*(x - 3)")
    assert env.tree.op.tolist()[:2] == [t.SUB, ADD]
    assert np.flatnonzero(env.action_masks()).tolist() == [LEFT, RIGHT, SPAWN_LEFT, SPAWN_RIGHT, SPAWN_ALL]
    play(env, LEFT)
    assert np.flatnonzero(env.action_masks()).tolist() == [0, 1, 2, 3, 4, PARENT]
    play(env, 1)
    assert np.flatnonzero(env.action_masks()).tolist() == [0, 1, 2, 3, 4]  # what is begun is finished first
    play(env, 1)
    assert held(env) == [1]
    assert np.flatnonzero(env.action_masks()).tolist() == [RIGHT, SPAWN_RIGHT]
    play(env, RIGHT, LEFT, 2, 1)
    assert held(env) == [1, 5]
    play(env, 4, 2)  # 2 * (x - 3) = 4 + 2 x
    assert held(env) == [1, 4]
    _, reward, terminated, _, info = play(env, 2, 4)  # (1 + x) - (4 + 2 x) = -3 - x = 2 + 4 x
    assert (reward, terminated, info["returned"][0]["value"]) == (1.0, True, 2 + 4 * 5)


FOUR = "((x + 1) + (x + 2)) + ((x + 3) + (x + 4))"
"""Takes three slots in place."""


def test_the_oldest_value_goes_when_the_slots_are_full() -> None:
    env = given_expression(FOUR)
    play(env, LEFT, LEFT, 1, 1, RIGHT, 2, 1, 3, 2)
    assert held(env) == [1]
    play(env, RIGHT, LEFT, 3, 1)
    assert held(env) == [1, 9]
    play(env, RIGHT, 4, 1)
    assert held(env) == [9, 12]  # the left half is lost,
    play(env, 2, 2)
    assert held(env) == [8]
    assert env.action_masks()[[LEFT, RIGHT]].tolist() == [True, False]  # and must be computed again,
    play(env, LEFT, LEFT, 1, 1, RIGHT, 2, 1)
    assert held(env) == [2, 5]  # which costs the right half: two slots are not enough
    assert env.batch.domain.budget > 0


def test_a_child_starts_with_empty_slots_and_returns_one_value() -> None:
    env = given_expression(FOUR)
    play(env, LEFT, LEFT, 1, 1, RIGHT, 2, 1, 3, 2)
    observation, *_, info = play(env, SPAWN_RIGHT)
    assert (info["depth"], held(env, 1), held(env)) == (1, [], [1])
    assert observation["task"][env.domain.fields["free"]].tolist() == [0, 0, 1]
    play(env, LEFT, 3, 1, RIGHT, 4, 1)
    observation, *_, info = play(env, 2, 2)
    assert (info["depth"], info["event"], held(env)) == (0, "return", [1, 8])
    assert observation["results"].tolist() == [0, 1]
    _, reward, terminated, *_ = play(env, 0, 4)
    assert (reward, terminated) == (1.0, True)


def test_nobody_is_told_whether_a_childs_value_is_right() -> None:
    seen = []
    for digits in ((1, 1), (2, 1)):
        env = given_expression("(x + 1) + (x + 2)")
        observation, *_, info = play(env, SPAWN_LEFT, *digits)
        assert info["returned"][0]["success"] == (digits == (1, 1))
        observation["task"][env.domain.fields["left_value"]] = 0
        seen.append(observation)
    for key in seen[0]:
        np.testing.assert_array_equal(seen[0][key], seen[1][key])


def test_a_wrong_value_is_kept_and_spoils_the_root() -> None:
    env = given_expression("(x + 1) + (x + 2)", feedback="dense")
    *_, info = play(env, SPAWN_ALL, 2, 1)
    assert (info["dense_reward"], info["depth"], info["event"]) == (0.0, 1, "return")
    assert info["returned"][0]["success"] is False
    *_, info = play(env, 2, 1)
    assert info["dense_reward"] == pytest.approx(1 / 3)
    assert not env.action_masks()[LEFT:].any()
    _, reward, terminated, _, info = play(env, 4, 2)  # right for the values at hand, wrong for the expression
    assert (reward, terminated, info["dense_reward"], info["is_success"]) == (0.0, True, 0.0, False)


def test_a_child_that_runs_out_of_steps_brings_nothing() -> None:
    env = given_expression("-(-(-x))")
    play(env, SPAWN_LEFT)
    budget = int(env.batch.stack.frames["budget"][0, 1])
    for _ in range(budget // 2):
        observation, *_, info = play(env, LEFT, PARENT) if env.batch.stack.episodes["depth"][0] else env.step(0)
    while info["depth"]:
        observation, *_, info = env.step(0)
    assert info["returned"][0]["success"] is False
    assert observation["results"].tolist() == [-1, 0]
    assert held(env) == []
    assert env.action_masks()[LEFT]


# -- feedback ------------------------------------------------------------------------------------------------------------------------


def test_dense_feedback_pays_every_node_once_across_evictions_and_frames() -> None:
    env = given_expression(FOUR, feedback="dense")
    rewards: list[float] = []

    def pay(*actions: int) -> None:
        rewards.extend(play(env, action)[-1]["dense_reward"] for action in actions)

    pay(LEFT, LEFT, 1, 1, RIGHT, 2, 1, 3, 2)  # three right values
    assert np.count_nonzero(rewards) == 3
    pay(RIGHT, LEFT, 0, 0)  # a wrong one
    assert np.count_nonzero(rewards) == 3
    pay(RIGHT, 4, 1)  # right; the left half is evicted
    assert np.count_nonzero(rewards) == 4
    pay(0, 0)  # wrong
    pay(SPAWN_LEFT, LEFT, 1, 1, RIGHT, 2, 1, 3, 2)  # the left half once more, by a child: paid before
    assert np.count_nonzero(rewards) == 4
    assert sum(rewards) == pytest.approx(4 / 7)


def test_a_right_second_try_is_not_paid() -> None:
    env = given_expression("((x + 1) + (x + 2)) + ((x + 3) + (x + 4))", feedback="dense")
    play(env, LEFT, LEFT, 0, 0, PARENT)  # the value of x + 1 is wrong, and held
    play(env, RIGHT, LEFT, 3, 1, RIGHT, 4, 1)  # two more: it is evicted
    play(env, PARENT, LEFT, LEFT)
    assert play(env, 1, 1)[-1]["dense_reward"] == 0.0


def test_independent_children_are_paid_once_detached_as_inline() -> None:
    env = given_expression(FOUR, feedback="dense")
    children = env.spawn_all(SPAWN_ALL)
    rewards = []
    for child, digits in zip(children, ((1, 1, 2, 1, 3, 2), (3, 1, 4, 1, 2, 2)), strict=True):
        child.reset()
        steps = (LEFT, *digits[:2], RIGHT, *digits[2:])
        rewards.append(sum(child.step(action)[-1]["dense_reward"] for action in steps))
    *_, info = env.join(*children)
    assert rewards == [pytest.approx(3 / 7)] * 2
    assert info["dense_reward"] == pytest.approx(0.0)
    assert play(env, 0, 4)[-1]["dense_reward"] == pytest.approx(1 / 7)


# -- what shows, and what does not ---------------------------------------------------------------------------------------------------


def test_the_observation_does_not_tell_how_deep_a_frame_is() -> None:
    """A child sees of its task what the root of that expression alone would."""
    whole = given_expression("-(-((x + 1) - 2*x))")
    alone = given_expression("(x + 1) - 2*x")
    play(whole, SPAWN_LEFT, SPAWN_LEFT)
    mine, theirs = whole.batch.first_observation(), alone.batch.first_observation()
    for key in ("task", "results", "action_mask"):
        np.testing.assert_array_equal(mine[key], theirs[key])


@pytest.mark.parametrize(("text", "digits"), [("3", (3, 0)), ("x", (0, 1))])
def test_a_lone_leaf_is_one_times_itself(text: str, digits: tuple[int, int]) -> None:
    env = given_expression(text)
    task, fields = env.batch.first_observation()["task"], env.domain.fields
    assert task[fields["op"]].argmax() == SCALE - ADD
    assert task[fields["constant"]].argmax() == 1
    assert task[fields["left_value"]].reshape(2, 5).argmax(axis=1).tolist() == list(digits)
    _, reward, terminated, *_ = play(env, *digits)
    assert (reward, terminated) == (1.0, True)


def test_given_expressions_are_drawn_or_picked() -> None:
    env = make(expressions=["x + 1", "x + 2", "-x"])
    drawn = set()
    for seed in range(20):
        env.reset(seed=seed)
        drawn.add(int(env.batch.state.place["expression"][0]))
    assert drawn == {0, 1, 2}
    for k in range(3):
        env.reset(options={"expression": k})
        assert env.batch.state.place["expression"][0] == k
    assert env.tree.op.tolist() == [t.NEG, t.SYMBOL]
    assert str(env.expression) == "-x"
    with pytest.raises(ValueError, match=r"expression must be an integer in \[0, 2\]"):
        env.reset(options={"expression": 3})
    with pytest.raises(ValueError, match="unknown reset option"):
        make(depth=2).reset(options={"expression": 0})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"depth": 0}, r"depth must be an integer in \[1, 24\]"),
        ({"depth": (1, 2, 3)}, "depth must be an integer or a pair"),
        ({"depth": (4, 2)}, "low <= high"),
        ({"depth": "deep"}, "depth must be"),
        ({"modulus": 4}, "modulus must be one of 2, 3, 5, 7, 11, 13, got 4"),
        ({"modulus": 17}, r"modulus must be an integer in \[2, 13\]"),
        ({"slots": 1}, r"slots must be an integer in \[2, 64\]"),
        ({"substitution": 1}, "substitution must be True or False"),
        ({"polynomial": None}, "polynomial must be True or False"),
        ({"degree": 2}, "pass polynomial=True"),
        ({"symbols": 2}, "pass polynomial=True"),
        ({"polynomial": True, "degree": 5}, r"degree must be an integer in \[1, 4\]"),
        ({"polynomial": True, "symbols": 4}, r"symbols must be an integer in \[1, 3\]"),
        ({"expressions": ["x +"]}, "x +"),
    ],
    ids=str,
)
def test_bad_keyword_arguments_are_explained(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**kwargs)
