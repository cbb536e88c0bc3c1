"""Learning itself: short runs that no random or broken agent could pass."""

from __future__ import annotations

import rao_envs
from rao_agents import RecursivePPO, SharedMLPExtractor, make_vec_env
from rao_envs import Evaluation
from rao_envs.maze.reference import random_agent
from tests.envs import third_party

third_party.register()

SETTINGS = {
    "n_steps": 64,
    "batch_size": 512,
    "n_epochs": 8,
    "learning_rate": "lin_0.001",
    "ent_coef": "lin_0.01",
    "policy_kwargs": {
        "features_extractor_class": SharedMLPExtractor,
        "features_extractor_kwargs": {"features_dim": 128},
        "net_arch": [128],
    },
    "seed": 0,
    "device": "cpu",
}


def mean(evaluation: Evaluation, name: str) -> float:
    interval = evaluation.summary()[name]
    assert interval is not None
    return float(interval.mean)


def test_recursive_ppo_learns_mazes() -> None:
    env = make_vec_env("RAO/Maze-10x10-v0", 32, seed=10_000)
    model = RecursivePPO("MultiInputPolicy", env, **SETTINGS).learn(60_000)
    learned = rao_envs.evaluate(model, "RAO/Maze-10x10-v0", 100, deterministic=False)
    random = rao_envs.evaluate(random_agent, "RAO/Maze-10x10-v0", 100)
    assert mean(random, "success") < 0.35
    assert mean(learned, "success") > 0.75
    assert mean(learned, "nodes") > 1.5  # it delegates


def test_recursive_ppo_learns_a_third_partys_towers_of_hanoi() -> None:
    """What the protocol says is all that the agent needs: it has never heard of this environment."""
    identity = next(name for name in third_party.IDS if "Hanoi" in name)
    env = make_vec_env(identity, 32, seed=10_000)
    model = RecursivePPO("MultiInputPolicy", env, **SETTINGS | {"ent_coef": "lin_0.05"}).learn(60_000)
    learned = rao_envs.evaluate(model, identity, 100, deterministic=False)
    random = rao_envs.evaluate(random_agent, identity, 100)
    assert mean(random, "success") < 0.3
    assert mean(learned, "success") > 0.6
