"""RecursivePPO as an SB3 algorithm: equal to its base class without spawns, and learning with them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_maskable
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize
from toy_envs import FactsVecEnv, LampTree, lamps

from rao_agents import RecursivePPO, SharedMLPExtractor, schedules
from rao_agents.policies import DelegationHead
from rao_agents.rollout_buffer import FrameRolloutBuffer, FrameRolloutBufferMixin

SMALL: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 32,
    "n_epochs": 2,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [16]},
}


class MaskedLine(gym.Env[Any, Any]):
    """A plain environment with masks that change: walk right; actions behind a wall are masked."""

    observation_space = spaces.Dict({"x": spaces.Box(0, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(4)})
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.t = 0, 0
        return self._obs(), {}

    def action_masks(self) -> Any:
        return np.array([self.x > 0, self.x < 6, self.t % 2 == 0, True])

    def _obs(self) -> Any:
        return {
            "x": np.array([self.x / 6, self.t / 20, self.t % 2], np.float32),
            "action_mask": self.action_masks().astype(np.int8),
        }

    def step(self, action: Any) -> Any:
        self.t += 1
        self.x = min(max(self.x + {0: -1, 1: 1}.get(int(action), 0), 0), 6)
        return self._obs(), float(self.x == 6), self.x == 6, self.t >= 20, {}


class Twin(MaskedLine):
    """The same, saying in so many words that nothing can be spawned."""

    spawn_actions = np.array([], np.int64)


def params(model: Any) -> list[th.Tensor]:
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


def equal(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return len(a) == len(b) and all(th.equal(x, y) for x, y in zip(a, b, strict=True))


# -- without spawns: the base class ----------------------------------------------------------------


def test_cartpole_is_bit_identical_to_the_base_class() -> None:
    """Environment without masks: the base class has to be told, RecursivePPO finds out."""
    kwargs = {**SMALL, "n_steps": 64, "learning_rate": 1e-3, "ent_coef": 0.01, "clip_range_vf": 0.2}
    ours = RecursivePPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=3), **kwargs)
    base = MaskablePPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=3), **kwargs)
    assert not ours.recursive and not isinstance(ours.policy.action_net, DelegationHead)
    assert type(ours.rollout_buffer) is MaskableRolloutBuffer
    # One run after the other, each from its construction: the generators of SB3 are global.
    ours = RecursivePPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=3), **kwargs)
    before = params(ours)
    ours.learn(400)
    base = MaskablePPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=3), **kwargs)
    assert equal(params(base), before)
    base.learn(400, use_masking=False)
    assert equal(params(ours), params(base)) and not equal(params(ours), before)


@pytest.mark.parametrize("cls", [MaskedLine, Twin])
@pytest.mark.parametrize("use_masking", [True, False])
def test_masked_environment_is_bit_identical_to_the_base_class(cls: type[gym.Env[Any, Any]], use_masking: bool) -> None:
    results = []
    for algorithm in (RecursivePPO, MaskablePPO):
        model = algorithm("MultiInputPolicy", make_vec_env(cls, 3, seed=1), **SMALL)
        model.learn(200, use_masking=use_masking)
        results.append(params(model))
    assert equal(*results)


def test_masks_from_the_observation_where_there_is_no_method() -> None:
    class NoMethod(MaskedLine):
        action_masks = property()  # type: ignore[assignment]  # looking it up raises AttributeError

        def _obs(self) -> Any:
            mask = np.array([self.x > 0, self.x < 6, self.t % 2 == 0, True])
            return {
                "x": np.array([self.x / 6, self.t / 20, self.t % 2], np.float32),
                "action_mask": mask.astype(np.int8),
            }

    with pytest.raises(ValueError, match="does not support action masking"):
        MaskablePPO("MultiInputPolicy", make_vec_env(NoMethod, 3, seed=1), **SMALL).learn(64)
    ours = RecursivePPO("MultiInputPolicy", make_vec_env(NoMethod, 3, seed=1), **SMALL).learn(200)
    base = MaskablePPO("MultiInputPolicy", make_vec_env(MaskedLine, 3, seed=1), **SMALL).learn(200)
    assert equal(params(ours), params(base))


# -- with spawns -----------------------------------------------------------------------------------


def learn_lamps(env: Any, steps: int = 256, **kwargs: Any) -> RecursivePPO:
    policy = "MlpPolicy" if isinstance(env.observation_space, spaces.Box) else "MultiInputPolicy"
    return RecursivePPO(policy, env, **{**SMALL, **kwargs}).learn(steps)


def test_side_channel_infos_and_minimal_infos_agree() -> None:
    """Three environments that say the same in three ways give the same network, bit by bit."""
    runs = [
        learn_lamps(lamps(3, DummyVecEnv, seed=5)),
        learn_lamps(lamps(3, FactsVecEnv, seed=5)),
        learn_lamps(VecMonitor(lamps(3, FactsVecEnv, seed=5, monitor=False))),
        learn_lamps(lamps(3, DummyVecEnv, seed=5, minimal=True)),
    ]
    assert all(run.spawn_actions == (3, 4, 5) for run in runs)
    assert all(equal(params(runs[0]), params(run)) for run in runs[1:])
    # Another seed gives another network: the comparison above can fail.
    assert not equal(params(runs[0]), params(learn_lamps(lamps(3), seed=1)))


def test_subprocesses_agree() -> None:
    env = SubprocVecEnv([lambda: Monitor(LampTree()) for _ in range(2)], start_method="fork")
    env.seed(5)
    try:
        assert equal(params(learn_lamps(env, 96)), params(learn_lamps(lamps(2, seed=5), 96)))
    finally:
        env.close()


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("head", [True, False])
def test_learns_to_recurse(vector: bool, head: bool) -> None:
    """A third party's environment, unsolvable without spawning: greedy evaluation solves it."""
    env = lamps(8, seed=0, vector=vector)
    policy = "MlpPolicy" if vector else "MultiInputPolicy"
    model = RecursivePPO(
        policy, env, n_steps=64, batch_size=128, n_epochs=8, learning_rate="lin_0.005",
        ent_coef={"kind": "linear", "start": 0.02, "end": 0.0},
        gamma=0.97, seed=1, device="cpu", delegation_head=head, policy_kwargs={"net_arch": [32]},
    )  # fmt: skip
    test_env = lamps(4, seed=99, vector=vector)
    untrained, _ = evaluate_maskable(model, test_env, 50, deterministic=False)
    model.learn(9_000)
    trained, _ = evaluate_maskable(model, test_env, 100, deterministic=True)
    assert untrained < 0.5 and trained >= 0.95
    if not vector:  # the stock evaluation finds the masks in the observation
        stock, _ = evaluate_policy(model, lamps(4, seed=99), 100, deterministic=False)
        assert stock >= 0.9


def test_summed_rewards_of_children_are_not_farmed() -> None:
    """The bonus is an average: however many children a frame has, it cannot exceed delegation_bonus."""
    model = learn_lamps(lamps(4, seed=0), 64, delegation_bonus=0.5, step_cost=0.0)
    buffer = model.rollout_buffer
    assert isinstance(buffer, FrameRolloutBufferMixin)
    assert float(buffer.rows["reward"].max()) <= 1.0 + 0.5 + 1e-6
    assert float(buffer.rows["reward"].max()) > 1.0, "this test needs a child with a bonus"


def test_step_cost_is_paid_by_every_decision() -> None:
    model = learn_lamps(lamps(4, seed=0), 64, step_cost=0.25, gamma=1.0)
    buffer: Any = model.rollout_buffer
    rewards = buffer.rows["reward"][: buffer.n_step_rows]
    assert set(np.unique(rewards)) == {-0.25, 0.75}  # outcomes are 0 or 1


def test_logged_metrics() -> None:
    seen: dict[str, Any] = {}

    class Peek(BaseCallback):
        def _on_step(self) -> bool:
            seen.update(self.model.logger.name_to_value)
            return True

    model = RecursivePPO("MultiInputPolicy", lamps(4, seed=0), **SMALL, ent_coef="lin_0.1")
    model.set_logger(configure(None, []))
    model.learn(192, Peek(), log_interval=1000)
    for name in ("score", "threshold", "rate", "open"):
        assert np.isfinite(seen[f"delegation/{name}"]), name
    for name in ("transitions", "carried", "depth_mean", "depth_max", "child_success"):
        assert np.isfinite(seen[f"frames/{name}"]), name
    assert 0 < seen["delegation/rate"] < 1 and 0 < seen["delegation/open"] < 1
    assert np.isfinite(seen["train/explained_variance"])
    assert seen["train/ent_coef"] == pytest.approx(0.1 * (1 - 128 / 192))
    assert model.ent_coef == schedules.linear(0.1) and model.normalize_advantage is True


def test_rollouts_carry_pending_spawns() -> None:
    """Short rollouts: every decision is learned from once, or waits; none is lost."""
    model = RecursivePPO("MultiInputPolicy", lamps(4, seed=0), **{**SMALL, "n_steps": 3})
    learned, carried = 0, []

    class Count(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            nonlocal learned
            learned += int(model.rollout_buffer.valid.sum())  # type: ignore[attr-defined]
            carried.append(len(model.rollout_buffer.carried.rows))  # type: ignore[attr-defined]

    model.learn(600, Count())
    assert learned + carried[-1] == 600
    assert max(carried) > 0 and max(carried) <= 4 * 3


def test_learning_twice_and_outside_resets() -> None:
    model = learn_lamps(lamps(4, seed=0), 64)
    model.learn(64, reset_num_timesteps=False)
    assert model.num_timesteps == 128
    # Stock evaluation on the training environment resets it behind our back.
    evaluate_policy(model, model.get_env(), 5, warn=False)
    episode = model.rollout_buffer.episode.copy()  # type: ignore[attr-defined]
    model.learn(64, reset_num_timesteps=False)
    assert (model.rollout_buffer.episode > episode).all()  # type: ignore[attr-defined]
    model.learn(64)
    assert model.num_timesteps == 64


def test_evaluating_on_the_training_environment_while_training() -> None:
    env = lamps(4, FactsVecEnv, seed=0)

    class Nosy(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 5 == 0:
                evaluate_policy(self.model, self.training_env, 2, warn=False)
            return True

    model = RecursivePPO("MultiInputPolicy", env, **SMALL).learn(128, Nosy())
    assert all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


def test_callbacks(tmp_path: Any) -> None:
    callbacks = CallbackList(
        [
            EvalCallback(
                lamps(2, seed=1),
                eval_freq=16,
                n_eval_episodes=4,
                best_model_save_path=str(tmp_path),
                verbose=0,
            ),
            CheckpointCallback(32, str(tmp_path), "steps"),
        ]
    )
    model = RecursivePPO("MultiInputPolicy", lamps(4, seed=0), **SMALL).learn(256, callbacks)
    best = RecursivePPO.load(tmp_path / "best_model", lamps(4, seed=0))
    assert best.spawn_actions == model.spawn_actions
    assert (tmp_path / "steps_256_steps.zip").exists()

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 5

    assert RecursivePPO("MultiInputPolicy", lamps(4), **SMALL).learn(256, Stop()).num_timesteps == 20


def test_single_environment_and_predict() -> None:
    env = LampTree()
    model = RecursivePPO("MultiInputPolicy", env, **SMALL).learn(32)
    obs, _ = env.reset(seed=0)
    for _ in range(100):
        action, state = model.predict(obs, state=("anything",), deterministic=False)  # type: ignore[arg-type]
        assert env.action_masks()[action] and state == ("anything",)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()


def test_policies_of_other_people_get_their_masks_too() -> None:
    """A plain maskable policy knows nothing of masks in observations; the algorithm does."""
    env = lamps(4, seed=0)
    model = RecursivePPO(MaskableMultiInputActorCriticPolicy, env, **SMALL).learn(128)
    obs = env.reset()
    for _ in range(20):
        actions, _ = model.predict(obs, deterministic=False)
        assert obs["action_mask"][np.arange(4), actions].all()
        obs, *_ = env.step(actions)


def test_normalised_rewards_and_the_shared_extractor() -> None:
    env = VecNormalize(lamps(4, seed=0), norm_obs_keys=["call"], norm_reward=True)
    kwargs = {**SMALL, "policy_kwargs": {"features_extractor_class": SharedMLPExtractor, "net_arch": [8]}}
    model = RecursivePPO("MultiInputPolicy", env, **kwargs).learn(128)
    assert all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


def test_set_env_checks_the_spawn_actions() -> None:
    model = learn_lamps(lamps(2, seed=0), 32)
    model.set_env(lamps(2, seed=7))
    model.learn(32, reset_num_timesteps=False)

    class Other(LampTree):
        def __init__(self) -> None:
            super().__init__()
            self.spawn_actions = np.array([3, 4])

    with pytest.raises(ValueError, match=r"\[3, 4\], the model was made for \[3, 4, 5\]"):
        model.set_env(DummyVecEnv([Other, Other]))


def test_time_outs_are_ends() -> None:
    """With a budget too small for anything, no value is bootstrapped beyond it: returns are costs only."""
    model = RecursivePPO(
        "MultiInputPolicy",
        lamps(4, seed=0, budget=3),
        **{**SMALL, "n_steps": 15, "gae_lambda": 1.0, "gamma": 1.0},
    )
    with th.no_grad():
        model.policy.value_net.bias.fill_(1000.0)
    ends: list[float] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer: Any = model.rollout_buffer
            ends.extend(buffer.returns[(buffer.rows["next"] == -2)[: buffer.n_step_rows].reshape(buffer.returns.shape)])

    model.learn(60, Look())
    assert len(ends) > 20 and max(ends) < 2.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"step_cost": float("nan")}, "step_cost must be a finite number"),
        ({"depth_weighting": -1.0}, "depth_weighting must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"n_epochs": 0}, "n_epochs must be at least 1"),
        ({"learning_rate": "fast"}, "'fast' is not a schedule"),
        ({"ent_coef": {"kind": "cosine"}}, "constant, linear, table"),
        ({"rollout_buffer_class": MaskableRolloutBuffer}, "FrameRolloutBufferMixin"),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecursivePPO("MultiInputPolicy", lamps(1), **kwargs)


@pytest.mark.parametrize("wrong", [[3, 3], [6], [-1]])
def test_wrong_spawn_actions(wrong: list[int]) -> None:
    env = LampTree()
    env.spawn_actions = np.array(wrong)
    with pytest.raises(ValueError, match="spawn_actions must be different indices"):
        RecursivePPO("MultiInputPolicy", env)


def test_options_reach_the_buffer_and_the_policy() -> None:
    model = RecursivePPO(
        "MlpPolicy", LampTree(vector=True), n_steps=8, depth_weighting=0.5, seed=3,
        rollout_buffer_class=FrameRolloutBuffer,
        policy_kwargs={"initial_threshold": 2.0}, device="auto",
    )  # fmt: skip
    buffer: Any = model.rollout_buffer
    assert type(buffer) is FrameRolloutBuffer and buffer.depth_weighting == 0.5
    assert model.policy.delegation_threshold == pytest.approx(2.0)  # type: ignore[attr-defined]
    assert model.policy_kwargs == {"initial_threshold": 2.0} and model.rollout_buffer_kwargs == {}
    first = buffer.rng.random()
    model.set_random_seed(3)
    assert buffer.rng.random() == first
