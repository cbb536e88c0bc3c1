"""Gymnasium wrappers for what the protocol adds."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym


class DenseReward(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `weight * info["dense_reward"]` to the reward (PROTOCOL rule 11): training signal for agents without local outcomes.

    Args:
        env: made with `feedback="dense"`.
        weight: what the whole progress of a solved episode is worth.

    Raises:
        ValueError: `env` gives no dense feedback.
    """

    def __init__(self, env: gym.Env[Any, Any], weight: float = 1.0) -> None:
        super().__init__(env)
        if env.get_wrapper_attr("feedback") != "dense":
            raise ValueError('DenseReward needs an environment made with feedback="dense"')
        self.weight = float(weight)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """As the wrapped environment, with the progress paid."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) + self.weight * info["dense_reward"], terminated, truncated, info
