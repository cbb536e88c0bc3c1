"""Remembered episodes made by hand, for the tests of distillation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy

from rao_agents import schedules
from rao_agents.distillation import Episode, ExperienceBuffer


def episode(
    observations: Any,
    actions: Any,
    *,
    masks: Any = None,
    frame_id: Any = None,
    depth: Any = None,
    frames: Sequence[int] = (0,),
    frame_success: Sequence[bool] | None = None,
    success: bool | None = True,
    **about: Any,
) -> Episode:
    actions = np.asarray(actions, np.int64)
    n = len(actions)
    zeros = np.zeros(n, np.float32)
    columns = {name: np.asarray(about.pop(name, zeros), np.float32) for name in ("log_probs", "values", "rewards", "advantages")}
    return Episode(
        observations=dict(observations) if isinstance(observations, dict) else {"": np.asarray(observations)},
        actions=actions,
        action_masks=None if masks is None else np.asarray(masks, np.bool_),
        frame_id=np.zeros(n, np.int64) if frame_id is None else np.asarray(frame_id, np.int64),
        depth=np.zeros(n, np.int32) if depth is None else np.asarray(depth, np.int32),
        frames=np.asarray(frames, np.int64),
        frame_success=np.asarray([bool(success)] * len(frames) if frame_success is None else frame_success, np.bool_),
        success=success,
        **columns,
        **about,
    )


def buffer_of(episodes: Sequence[Episode]) -> ExperienceBuffer:
    buffer = ExperienceBuffer(1_000_000)
    buffer.extend(episodes)
    return buffer


def small_policy(width: int = 4, n_actions: int = 3, hidden: Sequence[int] = (8,)) -> ActorCriticPolicy:
    space = spaces.Box(-10.0, 10.0, (width,), np.float32)
    return ActorCriticPolicy(space, spaces.Discrete(n_actions), schedules.constant(1e-3), net_arch=list(hidden))


class Walk(gym.Env[Any, Any]):
    """Ten cells in a row; the last one is the aim."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.clock = int(self.np_random.integers(8)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.clock = max(self.place + (1 if action else -1), 0), self.clock + 1
        done = self.place == 9
        return self._observe(), float(done), done, self.clock >= 30, {"is_success": done}

    def _observe(self) -> Any:
        return np.array([self.place / 5 - 1, self.clock / 15 - 1], np.float32)
