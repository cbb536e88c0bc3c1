"""RecursiveA2C: A2C where nothing can be spawned, A2C's update where something can, and what makes it another algorithm than PPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from test_recursive_ppo import MaskedLine, Twin
from toy_envs import lamps

import rao_agents
import rao_envs
from rao_agents import RecursiveA2C, RecursivePPO, SharedMLPExtractor, load_safely
from rao_agents.policies import DelegationHead
from rao_envs.maze.reference import random_agent

SMALL: dict[str, Any] = {"n_steps": 8, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}


def params(model: Any) -> list[th.Tensor]:
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


def equal(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return len(a) == len(b) and all(th.equal(x, y) for x, y in zip(a, b, strict=True))


class MaskablePolicyForA2C(MaskableActorCriticPolicy):
    """sb3-contrib's policy, for A2C's constructor call."""

    def __init__(self, *args: Any, use_sde: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize(
    "options",
    [{}, {"use_rms_prop": False, "normalize_advantage": True, "gae_lambda": 0.9}, {"ent_coef": 0.01, "rms_prop_eps": 1e-3, "vf_coef": 0.2}],
)
def test_cartpole_is_a2c(options: dict[str, Any]) -> None:
    """To the last bit with sb3-contrib's policy; with SB3's own but for rounding, as that of sb3-contrib normalises logits twice."""

    def run(cls: Any, policy: Any) -> tuple[list[th.Tensor], list[th.Tensor], Any]:
        model = cls(policy, make_vec_env("CartPole-v1", 2, seed=3), **{**SMALL, **options, "policy_kwargs": {"net_arch": [16]}})
        before = params(model)
        model.learn(400)
        return before, params(model), model

    start, ours, model = run(RecursiveA2C, "MlpPolicy")
    assert not model.recursive and not isinstance(model.policy.action_net, DelegationHead)
    before, masked, _ = run(A2C, MaskablePolicyForA2C)
    assert equal(start, before) and equal(ours, masked) and not equal(ours, start)
    before, plain, base = run(A2C, "MlpPolicy")
    assert equal(start, before)
    for a, b in zip(ours, plain, strict=True):
        th.testing.assert_close(a, b, rtol=0.0, atol=1e-5)
    np.testing.assert_array_equal(model.rollout_buffer.actions, base.rollout_buffer.actions)


@pytest.mark.parametrize("cls", [MaskedLine, Twin])
def test_with_masks_it_is_one_step_of_maskable_ppo(cls: Any) -> None:
    """A2C is PPO with one epoch of one batch (Huang et al. 2022, arXiv:2205.09123), and nobody else's A2C has masks."""
    kwargs = {**SMALL, "learning_rate": 1e-3}
    ours = RecursiveA2C("MultiInputPolicy", make_vec_env(cls, 3, seed=1), **kwargs, use_rms_prop=False).learn(192)
    base = MaskablePPO(
        "MultiInputPolicy", make_vec_env(cls, 3, seed=1), **kwargs, batch_size=None, n_epochs=1, gae_lambda=1.0, normalize_advantage=False
    ).learn(192)  # fmt: skip
    for a, b in zip(params(ours), params(base), strict=True):
        th.testing.assert_close(a, b, rtol=0.0, atol=2e-4)
    unmasked = RecursiveA2C("MultiInputPolicy", make_vec_env(cls, 3, seed=1), **kwargs, use_rms_prop=False)
    unmasked.learn(192, use_masking=False)
    assert not equal(params(unmasked), params(ours))


def test_with_spawns_it_is_one_step_of_recursive_ppo() -> None:
    kwargs = {**SMALL, "learning_rate": 1e-3, "credit": "tree", "depth_weighting": 0.5}
    ours = RecursiveA2C("MultiInputPolicy", lamps(3, seed=5), **kwargs, use_rms_prop=False, normalize_advantage=True).learn(192)
    ppo = RecursivePPO("MultiInputPolicy", lamps(3, seed=5), **kwargs, batch_size=None, n_epochs=1, gae_lambda=1.0).learn(192)
    for a, b in zip(params(ours), params(ppo), strict=True):
        th.testing.assert_close(a, b, rtol=0.0, atol=2e-4)


def test_one_gradient_step_for_each_rollout() -> None:
    model = RecursiveA2C("MultiInputPolicy", lamps(3, seed=0), **SMALL)
    steps = []
    step = model.policy.optimizer.step
    model.policy.optimizer.step = lambda *args: (steps.append(1), step(*args))[1]
    model.set_logger(configure(None, []))
    model.learn(240)
    assert len(steps) == 10 == model._n_updates
    logged = model.logger.name_to_value
    for name in ("train/policy_loss", "train/value_loss", "train/entropy_loss", "train/explained_variance", "train/ent_coef"):
        assert np.isfinite(logged[name])
    # What was put in the way of the update is gone.
    assert "get" not in vars(model.rollout_buffer) and "evaluate_actions" not in vars(model.policy)


def test_optimiser_and_the_users_arguments() -> None:
    given: dict[str, Any] = {"net_arch": [8]}
    model = RecursiveA2C("MultiInputPolicy", lamps(1), policy_kwargs=given)
    assert type(model.policy.optimizer) is th.optim.RMSprop and model.policy.optimizer.defaults["eps"] == 1e-5
    assert given == {"net_arch": [8]}
    assert type(RecursiveA2C("MultiInputPolicy", lamps(1), use_rms_prop=False).policy.optimizer) is th.optim.Adam
    own = RecursiveA2C("MultiInputPolicy", lamps(1), policy_kwargs={"optimizer_class": th.optim.SGD})
    assert type(own.policy.optimizer) is th.optim.SGD


def test_the_optimiser_survives_saving(tmp_path: Path) -> None:
    model = RecursiveA2C("MultiInputPolicy", lamps(2, seed=0), **SMALL).learn(64)
    model.save(tmp_path / "model")
    loaded: Any = load_safely(tmp_path / "model", device="cpu")
    assert type(loaded) is RecursiveA2C and type(loaded.policy.optimizer) is th.optim.RMSprop
    assert loaded.policy.optimizer.state_dict()["state"].keys() == model.policy.optimizer.state_dict()["state"].keys()


def test_it_learns_small_mazes() -> None:
    """Within a tight budget, where a random agent, or one that does not learn, stays far below."""
    env = rao_agents.make_vec_env("RAO/Maze-5x5-v0", 32, seed=10_000, budget=30)
    model = RecursiveA2C(
        "MultiInputPolicy", env, n_steps=8, learning_rate="lin_0.001", ent_coef="lin_0.01", gae_lambda=0.95, normalize_advantage=True,
        seed=0, device="cpu",
        policy_kwargs={
            "features_extractor_class": SharedMLPExtractor,
            "features_extractor_kwargs": {"features_dim": 128},
            "net_arch": [128],
        },
    )  # fmt: skip

    def success(agent: Any) -> float:
        evaluation = rao_envs.evaluate(agent, "RAO/Maze-5x5-v0", 200, deterministic=False, budget=30)
        interval = evaluation.summary()["success"]
        assert interval is not None
        return float(interval.mean)

    untrained = success(model)
    model.learn(40_000)
    assert max(success(random_agent), untrained) < 0.4
    assert success(model) > 0.55
