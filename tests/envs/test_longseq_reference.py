"""Scripted readers: the recursive one is exact within the budget everywhere, the paging one shows what a bounded note allows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rao_envs
from rao_envs.longseq.env import LongSeqVectorEnv
from rao_envs.longseq.queries import KINDS
from rao_envs.longseq.reference import MonolithicSolver, RecursiveSolver

DECOMPOSE = [kind for kind in KINDS if kind != "majority"]
SMALL: dict[str, Any] = {"window": 64, "density": 20.0}


def play(solver: Any, n: int = 40, **kwargs: Any) -> tuple[float, int, int]:
    """Success, most steps, and longest critical path over `n` episodes."""
    env = LongSeqVectorEnv(n, autoreset_mode="Disabled", **kwargs)
    env.reset(seed=0)
    batch = env.batch
    while not batch.done.all():
        live = ~batch.done
        actions = np.zeros(n, np.int64)
        actions[live] = solver({name: array[live] for name, array in batch.obs.items()}, env.action_masks()[live])
        assert (batch.buffers.action_mask[np.arange(n), actions] | ~live).all(), "a reader never does what is forbidden"
        batch.step(actions)
    trees = [batch.tree(i) for i in range(n)]
    success = float(batch.stack.episodes["success"].mean())
    return success, max(tree["steps"] for tree in trees), max(tree["critical_path"] for tree in trees)


@pytest.mark.parametrize("kind", DECOMPOSE)
@pytest.mark.parametrize("length", [20, 48, 49, 97, 300, 1000])
def test_halving_is_exact_within_the_budget(kind: str, length: int) -> None:
    success, _, _ = play(RecursiveSolver(window=64), n=5 if kind == "pairs" else 40, length=length, query=kind, **SMALL)
    assert success == 1.0


OURS = [name for name in rao_envs.registered_ids() if "LongSeq" in name and "nested" not in name]


@pytest.mark.parametrize("identity", OURS)
def test_halving_is_exact_on_every_registered_id(identity: str) -> None:
    episodes = 1 if "1M" in identity else 4 if "100k" in identity else 30
    result = rao_envs.evaluate(RecursiveSolver(), identity, seeds=episodes)
    assert all(episode.success for episode in result.episodes)


@pytest.mark.parametrize("kind", ["needle", "count", "max", "keys", "topk"])
def test_a_reader_with_a_note_is_as_exact(kind: str) -> None:
    for pointers in (1, 2):
        solver = MonolithicSolver(window=64, pointers=pointers)
        assert play(solver, length=1000, query=kind, spawn=False, pointers=pointers, **SMALL)[0] == 1.0


def test_recursion_wins_wall_clock_where_a_reader_does_as_well() -> None:
    success, steps, path = play(RecursiveSolver(), length=100_000, query="max", n=5)
    assert (success, steps) == (1.0, 190)
    reader_success, reader_steps, reader_path = play(MonolithicSolver(), length=100_000, query="max", n=5, spawn=False)
    assert reader_success == 1.0 and reader_steps == reader_path == 103
    assert path < reader_path / 7


def test_pairs_take_two_pointers_and_give_parallelism_only() -> None:
    common: dict[str, Any] = {"length": 400, "query": "pairs", **SMALL}
    success, steps, path = play(RecursiveSolver(window=64), **common)
    two = play(MonolithicSolver(window=64, pointers=2), spawn=False, pointers=2, **common)
    one = play(MonolithicSolver(window=64), spawn=False, **common)
    assert success == two[0] == 1.0
    assert two[1] < steps and path < two[2] / 5
    assert one[0] < 0.95


def test_majority_does_not_decompose() -> None:
    common: dict[str, Any] = {"length": 1000, "query": "majority", **SMALL}
    assert play(RecursiveSolver(window=64), n=200, **common)[0] < 0.8
    assert play(MonolithicSolver(window=64), n=200, spawn=False, **common)[0] < 0.8
    assert play(RecursiveSolver(window=64), length=48, query="majority", **SMALL)[0] == 1.0


def test_one_observation_gives_one_action() -> None:
    env = gym.make("RAO/LongSeq-10k-v0")
    observation, info = env.reset(seed=0)
    action = RecursiveSolver()(observation, info["action_mask"])
    assert env.unwrapped.action_names[action] == "spawn_all"
    with pytest.raises(ValueError, match="are not those of a long sequence"):
        RecursiveSolver(window=64)(observation, info["action_mask"])
