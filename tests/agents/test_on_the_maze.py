"""RecursivePPO on this project's own environment: natively vectorised, and through plain Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import rao_envs  # noqa: F401  # registers the ids
from rao_agents import RecursivePPO, SharedMLPExtractor, load_safely, make_vec_env, save_safely
from rao_agents.tap import FactsReader, InfoReader

ID = "RAO/Maze-10x10-v0"
SMALL: dict[str, Any] = {
    "n_steps": 24,
    "batch_size": 48,
    "n_epochs": 2,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {
        "features_extractor_class": SharedMLPExtractor,
        "features_extractor_kwargs": {"features_dim": 16},
        "net_arch": [16],
    },
}


def params(model: Any) -> list[th.Tensor]:
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


def equal(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return len(a) == len(b) and all(th.equal(x, y) for x, y in zip(a, b, strict=True))


def test_native_vector_environment_and_single_environments_agree() -> None:
    """The batch's side channel and single environments' infos lead to the same network, bit by bit."""
    native = RecursivePPO("MultiInputPolicy", make_vec_env(ID, 4), **SMALL).learn(600)
    assert isinstance(native._tap and native._tap.reader, FactsReader) and native.recursive
    single = RecursivePPO("MultiInputPolicy", DummyVecEnv([lambda: Monitor(gym.make(ID)) for _ in range(4)]), **SMALL)
    single.learn(600)
    assert isinstance(single._tap and single._tap.reader, InfoReader)
    assert equal(params(native), params(single))
    buffer: Any = native.rollout_buffer
    assert buffer.tally[0] > 0 or buffer.tally[2] > 1, "this test needs children"


def test_monolithic_twin_is_the_base_class() -> None:
    kwargs = {**SMALL, "ent_coef": 0.01}
    results = []
    for algorithm in (RecursivePPO, MaskablePPO):
        model = algorithm("MultiInputPolicy", make_vec_env(ID, 4, spawn=False), **kwargs)
        results.append(params(model.learn(300)))
    assert equal(*results)


def test_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    class StopAt(BaseCallback):
        saved = False

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= 290 and not self.saved:
                save_safely(self.model, tmp_path / "state", with_training_state=True)
                self.saved = True

        def _on_step(self) -> bool:
            return not self.saved

    whole = RecursivePPO("MultiInputPolicy", make_vec_env(ID, 4), **SMALL).learn(600)
    RecursivePPO("MultiInputPolicy", make_vec_env(ID, 4), **SMALL).learn(600, StopAt())
    np.random.seed(5)  # noqa: NPY002
    th.manual_seed(5)
    resumed: Any = load_safely(tmp_path / "state", make_vec_env(ID, 4), with_training_state=True, device="cpu")
    resumed.learn(600 - resumed.num_timesteps, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps and equal(params(whole), params(resumed))


def test_stock_evaluation_uses_the_masks() -> None:
    env = make_vec_env(ID, 4, seed=3)
    model = RecursivePPO("MultiInputPolicy", env, **SMALL)
    forbidden = 0

    def look(local: dict[str, Any], _: dict[str, Any]) -> None:
        nonlocal forbidden
        i = local["i"]
        forbidden += not local["observations"]["action_mask"][i, local["actions"][i]]

    evaluate_policy(model, env, 4, deterministic=False, callback=look)
    assert forbidden == 0


@pytest.mark.slow
def test_learns_the_maze() -> None:
    """200 k steps on 20x20: the prototype reached 0.93 at this point."""
    policy_kwargs = {"features_extractor_class": SharedMLPExtractor, "net_arch": [256]}
    model = RecursivePPO(
        "MultiInputPolicy", make_vec_env("RAO/Maze-20x20-v0", 64), n_steps=64, batch_size=512, n_epochs=8,
        seed=0, learning_rate="lin_0.001", ent_coef="lin_0.01", policy_kwargs=policy_kwargs, device="cpu",
    ).learn(200_000)  # fmt: skip
    success, _ = evaluate_policy(model, make_vec_env("RAO/Maze-20x20-v0", 50, seed=10_000), 200, deterministic=False)
    assert success >= 0.85
