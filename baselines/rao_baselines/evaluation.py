"""Scores of trained models on fixed seeds: the protocol of `rao_envs.evaluate`, for any environment and any SB3 model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch as th
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm

from rao_baselines.wrappers import MASK, Stacker

FIRST_SEED = 1_000_000
"""Evaluation tasks are those of the seeds from here on; training starts from small seeds."""


def evaluation_seeds(n: int) -> list[int]:
    """The first `n` seeds of the fixed list."""
    return list(range(FIRST_SEED, FIRST_SEED + n))


class ModelAgent:
    """A model as a batch of independent actors: masks, memory and frame stacking are taken care of."""

    def __init__(self, model: BaseAlgorithm, deterministic: bool, frame_stack: int = 1) -> None:
        self.model = model
        self.deterministic = deterministic
        self.stacker = Stacker(frame_stack) if frame_stack > 1 else None
        self.state: Any = None
        self.first = True
        # SB3's own exploration draws once for a whole batch, and from generators that training needs.
        self.explores = isinstance(model, DQN) and not deterministic
        self.rng = np.random.default_rng(FIRST_SEED)

    def act(self, observations: Any) -> npt.NDArray[np.int64]:
        """Actions, int64 (n,), for the next observations of `n` episodes that began together."""
        n = len(next(iter(observations.values()))) if isinstance(observations, dict) else len(observations)
        start = np.full(n, self.first)
        mask = observations.get(MASK) if isinstance(observations, dict) else None
        if self.stacker is not None:
            observations = self.stacker.push(observations, start)
        options: dict[str, Any] = {}
        if isinstance(self.model, MaskablePPO) and mask is not None:
            options["action_masks"] = mask.astype(np.bool_)
        if isinstance(self.model, RecurrentPPO):
            options |= {"state": self.state, "episode_start": start}
        greedy = self.deterministic or self.explores
        actions, self.state = self.model.predict(observations, deterministic=greedy, **options)
        self.first = False
        if self.explores:
            others = self.rng.integers(self.model.action_space.n, size=n)  # type: ignore[attr-defined]
            actions = np.where(self.rng.random(n) < self.model.exploration_rate, others, actions)  # type: ignore[attr-defined]
        return np.asarray(actions, np.int64)


def score(
    model: BaseAlgorithm,
    env_id: str,
    seeds: Sequence[int],
    *,
    deterministic: bool,
    env_kwargs: dict[str, Any] | None = None,
    frame_stack: int = 1,
) -> dict[str, Any]:
    """Play one episode per seed and summarise; no generator that training draws from is touched.

    Returns:
        `success` (share in [0, 1], or None where the environment does not say), `return`, `steps` (means), `episodes`.
    """
    agent = ModelAgent(model, deterministic, frame_stack)
    with th.random.fork_rng():
        th.manual_seed(FIRST_SEED)
        successes, returns, steps = _play(agent, env_id, seeds, env_kwargs or {})
    known = [success for success in successes if success is not None]
    return {
        "success": float(np.mean(known)) if len(known) == len(successes) else None,
        "return": float(np.mean(returns)),
        "steps": float(np.mean(steps)),
        "episodes": len(seeds),
    }


def _play(agent: ModelAgent, env_id: str, seeds: Sequence[int], env_kwargs: dict[str, Any]) -> tuple[list[Any], Any, Any]:
    if env_id.startswith("RAO/"):
        return _play_batch(agent, env_id, seeds, env_kwargs)
    return _play_singly(agent, env_id, seeds, env_kwargs)


def _play_batch(agent: ModelAgent, env_id: str, seeds: Sequence[int], env_kwargs: dict[str, Any]) -> tuple[list[Any], Any, Any]:
    n = len(seeds)
    envs: Any = gym.make_vec(env_id, n, vectorization_mode="vector_entry_point", **env_kwargs)
    batch = envs.unwrapped.batch
    observations, _ = envs.reset(seed=list(seeds))
    returns, steps = np.zeros(n), np.zeros(n, np.int64)
    live = np.ones(n, np.bool_)
    while live.any():
        batch.step(agent.act(observations))  # leaves finished episodes alone
        observations = batch.obs
        returns += np.where(live, batch.stack.episodes["reward"], 0.0)
        steps += live
        live &= ~batch.done
    return batch.stack.episodes["success"].astype(bool).tolist(), returns, steps


def _play_singly(agent: ModelAgent, env_id: str, seeds: Sequence[int], env_kwargs: dict[str, Any]) -> tuple[list[Any], Any, Any]:
    successes, returns, steps = [], [], []
    env = gym.make(env_id, **env_kwargs)
    for seed in seeds:
        agent.first, agent.state = True, None
        observation, info = env.reset(seed=seed)
        total, count, over = 0.0, 0, False
        while not over:
            batch = {key: value[None] for key, value in observation.items()} if isinstance(observation, dict) else observation[None]
            observation, reward, terminated, truncated, info = env.step(agent.act(batch)[0])
            total, count, over = total + float(reward), count + 1, terminated or truncated
        successes.append(info.get("is_success"))
        returns.append(total)
        steps.append(count)
    env.close()
    return successes, np.array(returns), np.array(steps)
