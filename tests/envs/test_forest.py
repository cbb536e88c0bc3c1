"""Trees whose frames run side by side: whatever the slots, what happens is what happens one frame after the other."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.core.actors import lanes_of
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.forest import Change, Ended, Forest
from tests.envs.test_protocol import LARGE, RECURSIVE, REGISTERED, THIRD_PARTY, Case, Habits, choose, every_recursive_case, habits


class Told(NamedTuple):
    """All that is to be the same."""

    actions: list[int]
    returned: list[Any]
    tree: dict[str, int]
    success: bool
    reward: float
    dense: float


def play(observation: Mapping[str, Any], style: Habits, primitives: int, seed: int, frame: int, step: int) -> int:
    """What a frame does hangs on all that it sees, and on who it is."""
    seen = zlib.crc32(b"".join(np.ascontiguousarray(observation[key]).tobytes() for key in sorted(observation)))
    rng = np.random.default_rng([style.rng_seed, seed, frame, step, seen])
    return choose(observation["action_mask"], primitives, rng, style)


def inline(case: Case, seed: int, style: Habits) -> Told:
    """The single environment."""
    env = case.make(observe_frame=True)
    primitives = len(env.action_names) - len(env.spawn_actions)
    observation, info = env.reset(seed=seed)
    actions: list[int] = []
    returned: list[Any] = []
    steps: dict[int, int] = {}
    dense = 0.0
    while True:
        frame = info["frame_id"]
        actions.append(play(observation, style, primitives, seed, frame, steps.setdefault(frame, 0)))
        steps[frame] += 1
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        returned += [tuple(entry.values()) for entry in info["returned"]]
        dense += info.get("dense_reward", 0.0)
        if terminated or truncated:
            returned.sort()
            return Told(actions, returned, info["tree"], info["is_success"], float(reward), dense)


class Woods:
    """A forest, who plays in it, and what became of its trees; it may send sub-trees to a second one."""

    def __init__(self, case: Case, slots: int, seeds: list[int], style: Habits, away: Woods | None = None, pick: int = 1) -> None:
        self.batch: RecursiveBatch = case.make_vec(slots, observe_frame=True).batch
        self.forest = Forest(self.batch)
        self.style, self.seeds, self.away, self.pick = style, seeds, away, pick
        self.primitives = len(self.batch.action_names) - len(self.batch.spawn_actions)
        self.told: dict[int, Told] = {}
        self.forks = 0
        self.widest = 0

    def all(self) -> list[Told]:
        waiting = list(range(len(self.seeds)))
        while len(self.told) < len(self.seeds):
            while waiting and self.forest.free:
                tree = waiting.pop(0)
                self.forest.begin(tree, self.seeds[tree])
            acting = self.forest.acting()
            if self.away is not None:
                for slot in acting[:: self.pick].tolist():
                    self.send(slot)
                acting = self.forest.acting()
            if len(acting):
                self.follow(self.step(acting))
        assert self.forest.free == self.forest.n
        return [self.told[tree] for tree in range(len(self.seeds))]

    def step(self, slots: np.ndarray[Any, Any]) -> Change:
        now = self.forest.look(slots)
        observations, masks = self.forest.observe(slots)
        assert (observations["action_mask"] == masks).all() and (observations["frame"][:, 0] == now.depths).all()
        actions = [
            play({key: array[k] for key, array in observations.items()}, self.style, self.primitives, self.seeds[tree], frame, step)
            for k, (tree, frame, step) in enumerate(
                zip(self.forest.tree[slots].tolist(), now.frames.tolist(), now.steps.tolist(), strict=True)
            )
        ]
        self.widest = max(self.widest, len(slots))
        change = self.forest.step(slots, np.array(actions), now)
        self.forks += len(change.forks)
        return change

    def follow(self, change: Change) -> None:
        for ended in change.ended:
            self.told[ended.tree] = self.tell(ended)

    def tell(self, ended: Ended) -> Told:
        episode = self.batch.stack.episodes[ended.slot]
        returned = sorted(ended.returned.tolist())
        assert [entry[0] for entry in returned] == ended.returned["frame_id"].tolist()
        success, reward = bool(episode["success"]), float(episode["reward"])
        return Told(ended.actions.tolist(), returned, self.batch.tree(ended.slot), success, reward, float(episode["potential"]))

    def send(self, slot: int) -> None:
        """Run a sub-tree in the other forest, here and now."""
        away = self.away
        assert away is not None
        tree, settled = int(self.forest.tree[slot]), self.forest.settled(slot)
        there = away.forest.adopt(tree, *self.forest.lend(slot), settled)
        while True:
            change = away.step(away.forest.acting())
            if change.ended:
                (ended,) = change.ended
                assert ended.slot == there
                self.follow(self.forest.take(slot, away.forest.outcome(there), ended))
                return


def same(told: Told, expected: Told) -> None:
    assert told.actions == expected.actions
    assert told.returned == expected.returned
    assert told[2:5] == expected[2:5]


@every_recursive_case
@settings(max_examples=4)
@given(seed=st.integers(0, 2**63), style=habits, slots=st.sampled_from([1, 2, 3, 5, 16, 40]))
def test_a_forest_gives_what_the_single_environment_gives(case: Case, seed: int, style: Habits, slots: int) -> None:
    seeds = [seed, seed + 1, seed + 2]
    told = Woods(case, slots, seeds, style).all()
    for tree, expected in zip(told, (inline(case, seed, style) for seed in seeds), strict=True):
        same(tree, expected)


@pytest.mark.parametrize("case", [case for case in REGISTERED + THIRD_PARTY if case in RECURSIVE and case.id not in LARGE], ids=str)
@settings(max_examples=2)
@given(seed=st.integers(0, 2**63), style=habits, pick=st.integers(1, 3), slots=st.sampled_from([2, 9]))
def test_sub_trees_may_run_in_another_forest(case: Case, seed: int, style: Habits, pick: int, slots: int) -> None:
    seeds = [seed, seed + 1]
    away = Woods(case, 4, seeds, style)
    for tree, expected in zip(Woods(case, slots, seeds, style, away, pick).all(), (inline(case, s, style) for s in seeds), strict=True):
        same(tree, expected)
    assert away.forest.free == away.forest.n


def test_independent_frames_do_run_side_by_side() -> None:
    """Otherwise everything above would hold of a forest that never forks."""
    style = Habits(0, 0.9, 0.0, keen=True)
    woods = Woods(Case("RAO/Algebra-depth8-v0", {}), 16, list(range(4)), style)
    woods.all()
    assert woods.forks > 4 and woods.widest > 4


def test_progress_is_paid_once() -> None:
    """Dense feedback's potential at the end is the sum of all that the inline run paid."""
    case, style = Case("RAO/Algebra-depth4-v0", {"feedback": "dense"}), Habits(3, 0.9, 0.0, keen=False)
    woods = Woods(case, 16, list(range(20)), style).all()
    paid = [inline(case, seed, style).dense for seed in range(20)]
    assert any(paid)
    np.testing.assert_allclose([tree.dense for tree in woods], paid, atol=1e-12)


def test_a_cancelled_tree_leaves_nothing() -> None:
    case, style = Case("RAO/Algebra-depth8-v0", {}), Habits(0, 0.9, 0.0, keen=False)
    woods = Woods(case, 16, [5, 6], style)
    woods.forest.begin(0, 5)
    woods.forest.begin(1, 6)
    for _ in range(6):
        woods.follow(woods.step(woods.forest.acting()))
    assert not woods.told and np.count_nonzero(woods.forest.tree == 0) > 2
    woods.forest.cancel(0)
    assert not (woods.forest.tree == 0).any()
    while (acting := woods.forest.acting()).size:
        woods.follow(woods.step(acting))
    same(woods.told[1], inline(case, 6, style))
    assert woods.forest.free == 16


def test_a_running_episode_goes_on_in_a_forest() -> None:
    case, style = Case("RAO/LongSeq-nested-320-v0", {}), Habits(0, 0.9, 0.0, keen=False)
    env = case.make(observe_frame=True)
    env.reset(seed=8)
    env.step(int(env.spawn_actions[-1]))
    woods = Woods(case, 8, [8], style)
    woods.forest.resume(0, env.get_state())
    while not woods.told:
        woods.follow(woods.step(woods.forest.acting()))
    told = woods.told[0]
    for action in told.actions:
        *_, terminated, truncated, info = env.step(action)
    assert (terminated or truncated) and info["tree"] == told.tree and info["is_success"] == told.success


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    forest = Forest(Case("RAO/Maze-5x5-v0", {}).make_vec(2).batch)
    env = Case("RAO/Maze-10x10-v0", {}).make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="fingerprint"):
        forest.resume(0, env.get_state())
    env = Case("RAO/Maze-5x5-v0", {"budget": 1}).make()
    env.reset(seed=0)
    state = env.get_state()
    with pytest.raises(ValueError, match="fingerprint"):
        forest.resume(0, state)
    env = Case("RAO/Maze-5x5-v0", {}).make()
    env.reset(seed=0)
    while not (env.step(0)[3]):
        pass
    with pytest.raises(ValueError, match="is over"):
        forest.resume(0, env.get_state())
    assert forest.free == 2 and not len(forest.acting())


def test_a_resumed_episodes_steps_are_counted_anew_in_a_slot_that_was_used() -> None:
    case, style = Case("RAO/Maze-10x10-v0", {}), Habits(0, 0.9, 0.0, keen=False)
    env = case.make(observe_frame=True)
    env.reset(seed=8)
    env.step(0)
    woods = Woods(case, 1, [7, 8], style)
    woods.forest.begin(0, 7)
    while not woods.told:
        woods.follow(woods.step(woods.forest.acting()))
    slot = woods.forest.resume(1, env.get_state())
    assert woods.forest.look(np.array([slot])).steps.tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_every_frame_has_a_lane(count: int) -> None:
    """Ids of trees that are wide on many levels wrap around."""
    frames = np.array([0, 1, 7, 2**62, -1, -(2**63)], np.int64)
    lanes = lanes_of(np.full(len(frames), 2**64 - 1, np.uint64), count, frames)
    assert lanes.dtype == np.int64 and lanes.min() >= 0 and lanes.max() < count
