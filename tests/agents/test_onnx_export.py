"""Policies as ONNX act as they do in torch: probabilities within 1e-5, episodes action for action."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC

import rao_envs
from rao_agents import RecursiveA2C, RecursivePPO, make_vec_env
from rao_agents.onnx_export import OnnxExportError, export_onnx
from rao_baselines.agents import load_model
from rao_baselines.places import shipped_models
from rao_leaderboard.onnx_agent import OnnxAgent

onnx = pytest.importorskip("onnx")
MAZE, RELAY = "RAO/Maze-5x5-v0", "RAO/Relay-chain-v0"
SMALL: dict[str, Any] = {"net_arch": [16]}
RECURSIVE: list[dict[str, Any]] = [
    {},
    {"delegation_head": False},
    {"state_transfer": "summary"},
    {"state_transfer": "hidden"},
    {"state_transfer": "attention"},
    {"state_transfer_kwargs": {"memory": 3}},
    {"state_transfer": "hidden", "state_transfer_kwargs": {"memory": 2}},
    {"threshold": "situation"},
    {"specialists": "level"},
    {"specialists": "role", "state_transfer": "summary"},
]


def needs_frame(options: dict[str, Any]) -> bool:
    return any(name.startswith(("state_transfer", "specialists")) for name in options)


def shake(policy: Any) -> None:
    """An untrained policy's actions hardly differ in probability: move its weights, so that ties are rare."""
    generator = th.Generator().manual_seed(0)
    with th.no_grad():
        for parameter in policy.parameters():
            parameter += 0.3 * th.randn(parameter.shape, generator=generator)


def exported(model: Any, folder: Path) -> OnnxAgent:
    export_onnx(model, folder / "policy.onnx")
    return OnnxAgent((folder / "policy.onnx").read_bytes())


def same_episodes(model: Any, agent: OnnxAgent, env_id: str, modes: tuple[bool, ...] = (True, False), n: int = 12, **kwargs: Any) -> None:
    for deterministic in modes:
        ours, theirs = (
            rao_envs.evaluate(each, env_id, n, deterministic=deterministic, progress=False, **kwargs) for each in (model, agent)
        )
        assert ours.episodes == theirs.episodes


@pytest.mark.parametrize("options", RECURSIVE, ids=str)
@pytest.mark.parametrize("algorithm", [RecursivePPO, RecursiveA2C])
def test_recursive_policies(algorithm: Any, options: dict[str, Any], tmp_path: Path) -> None:
    kwargs = {"observe_frame": True} if needs_frame(options) else {}
    env_id = RELAY if kwargs else MAZE
    env = make_vec_env(env_id, 4, 0, **kwargs)
    model = algorithm("MultiInputPolicy", env, n_steps=16, policy_kwargs=SMALL, seed=0, device="cpu", **options)
    shake(model.policy)
    agent = exported(model, tmp_path)
    same_episodes(model, agent, env_id, **kwargs)
    observation: Any = env.reset()
    masks = np.asarray(observation["action_mask"], np.bool_)
    if not model.policy.stateful:
        expected = (
            model.policy.get_distribution(model.policy.obs_to_tensor(observation)[0], masks).log_probs
            if (model.policy.delegates)
            else model.policy.get_distribution(model.policy.obs_to_tensor(observation)[0], masks).distribution.logits
        )
        probabilities, _ = agent.action_probabilities(observation, (), masks)
        np.testing.assert_allclose(probabilities, expected.exp().detach().numpy(), atol=1e-5)
        return
    mine, theirs = model.policy.initial_state(4), agent.initial_state(4)
    for _ in range(8):  # states that are handed on must stay the same as well
        probabilities, mine = model.policy.action_probabilities(observation, mine, masks)
        found, theirs = agent.action_probabilities(observation, theirs, masks)
        np.testing.assert_allclose(found, probabilities, atol=1e-5)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        observation, _, _, _ = env.step(probabilities.argmax(axis=1))
        masks = np.asarray(observation["action_mask"], np.bool_)


@pytest.mark.parametrize("algorithm", [PPO, A2C, MaskablePPO, RecurrentPPO])
def test_monolithic_policies(algorithm: Any, tmp_path: Path) -> None:
    env = make_vec_env(MAZE, 4, 0, spawn=False)
    policy = "MultiInputLstmPolicy" if algorithm is RecurrentPPO else "MultiInputPolicy"
    model = algorithm(policy, env, n_steps=16, policy_kwargs=SMALL, seed=0, device="cpu")
    shake(model.policy)
    same_episodes(model, exported(model, tmp_path), MAZE, spawn=False)


def test_q_values_have_no_probabilities(tmp_path: Path) -> None:
    env = make_vec_env(MAZE, 1, 0, spawn=False)
    model = DQN("MultiInputPolicy", env, policy_kwargs=SMALL, buffer_size=10, seed=0, device="cpu")
    shake(model.policy)
    agent = exported(model, tmp_path)
    same_episodes(model, agent, MAZE, modes=(True,), spawn=False)
    with pytest.raises(ValueError, match="no action probabilities"):
        rao_envs.evaluate(agent, MAZE, 2, deterministic=False, progress=False, spawn=False)


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("recursive_ppo", "RAO/Maze-20x20-v0"),
        ("recursive_ppo_algebra", "RAO/Algebra-depth4-v0"),
        ("recursive_ppo_dialogue", "RAO/Dialogue-10turn-v0"),
        ("recursive_ppo_longseq", "RAO/LongSeq-1k-v0"),
        ("recursive_ppo_nested", "RAO/LongSeq-nested-320-v0"),
    ],
)
def test_shipped_models(name: str, env_id: str, tmp_path: Path) -> None:
    model = load_model(shipped_models() / f"{name}.zip")
    same_episodes(model, exported(model, tmp_path), env_id, n=20)


def test_exporting_changes_nothing_and_gives_the_same_bytes(tmp_path: Path) -> None:
    env = make_vec_env(MAZE, 4, 0)
    model = RecursivePPO("MultiInputPolicy", env, n_steps=16, batch_size=16, policy_kwargs=SMALL, seed=0, device="cpu")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.policy.set_training_mode(True)
    export_onnx(model, tmp_path / "a.onnx")
    export_onnx(model, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert model.policy.training
    assert all(th.equal(value, before[name]) for name, value in model.policy.state_dict().items())
    model.learn(64)  # and it goes on learning
    assert any(not th.equal(value, before[name]) for name, value in model.policy.state_dict().items())


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    import gymnasium as gym

    class Continuous(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))

    with pytest.raises(OnnxExportError, match="only policies with discrete actions"):
        export_onnx(SAC("MlpPolicy", Continuous(), buffer_size=10, device="cpu"), tmp_path / "x.onnx")
    with pytest.raises(OnnxExportError, match="only policies with discrete actions"):
        export_onnx(lambda: None, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_without_the_package_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"rao-envs\[onnx\]"):
        export_onnx(None, tmp_path / "x.onnx")
