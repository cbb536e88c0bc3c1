"""Plays environments into a frame rollout buffer, with no policy and no algorithm around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from toy_envs import EventTree

from rao_agents.frame_gae import NO_ROW
from rao_agents.rollout_buffer import FrameRolloutBuffer
from rao_agents.tap import FrameTap

Value = Callable[[Any, int], Any]
"""(observation number, rollout) -> value: a network that differs from rollout to rollout."""


class Learned(NamedTuple):
    """One completed transition."""

    advantage: float
    value: float
    parent: int | None  # observation of the pending spawn above it


def drive(
    envs: list[EventTree],
    rollouts: int,
    steps: int,
    value: Value,
    cls: type[DummyVecEnv] = DummyVecEnv,
    step_cost: float = 0.0,
    bonus: float = 0.0,
    bonus_form: str = "average",
    prices: tuple[float, float] = (0.0, 0.0),
    skip: int = 0,
    wrap: Callable[[DummyVecEnv], VecEnv] | None = None,
    **kwargs: Any,
) -> tuple[dict[int, Learned], FrameRolloutBuffer]:
    """Play `rollouts` rollouts; returns every completed transition by its observation, and the buffer.

    The first `skip` steps are taken before the buffer sees anything; `wrap` puts wrappers around the environments; `prices` are of
    a frame and of a level.
    """
    venv: VecEnv = cls([lambda env=env: env for env in envs])  # type: ignore[misc]
    if wrap is not None:
        venv = wrap(venv)  # type: ignore[arg-type]
    n = len(envs)
    buffer = FrameRolloutBuffer(steps, venv.observation_space, venv.action_space, "cpu", n_envs=n, **kwargs)
    tap = FrameTap(venv, buffer, step_cost, bonus, bonus_form, frame_price=prices[0], level_price=prices[1])
    learned: dict[int, Learned] = {}
    obs = venv.reset()
    for _ in range(skip):
        obs, *_ = venv.step(np.zeros(n, np.int64))
    for rollout in range(rollouts):
        tap.begin(obs)
        buffer.reset()
        buffer.value_function = lambda o, r=rollout: value(o[:, 0], r)  # type: ignore[misc]
        for _ in range(steps):
            values = th.as_tensor(value(obs[:, 0], rollout))
            new_obs, rewards, dones, _ = tap.step(np.zeros(n, np.int64))
            buffer.add(obs, np.zeros((n, 1)), rewards, dones, values, th.zeros(n))
            obs = new_obs
        buffer.compute_returns_and_advantage(th.as_tensor(value(obs[:, 0], rollout)), dones)
        tap.end(obs)
        numbers = buffer.flat_observations[""][:, 0]
        for row in np.flatnonzero(buffer.valid):
            number = int(numbers[row])
            assert number not in learned, "a transition must be learned from once"
            above = int(buffer.rows["parent"][row])
            learned[number] = Learned(
                float(buffer.flat_advantages[row]),
                float(buffer.flat_values[row]),
                int(numbers[above]) if above != NO_ROW else None,
            )
    return learned, buffer


def network(number: Any, rollout: int) -> Any:
    return np.sin(np.asarray(number, np.float64) * 1.7 + rollout * 0.3)


def flat(number: Any, rollout: int) -> Any:
    return np.zeros_like(np.asarray(number, np.float64))
