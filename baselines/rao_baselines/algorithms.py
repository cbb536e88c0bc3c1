"""The table of trainable algorithms: name, class, what it runs on. Adding an algorithm is a row here and a file in configs/."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from rao_baselines.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


class Algorithm(NamedTuple):
    """One row. `path` is "module:class"; the settings are configs/<name>.yml."""

    name: str
    path: str
    spawn: bool  # whether it trains on the environment with spawn actions unless told otherwise
    title: str
    summary: str

    def load(self) -> type[BaseAlgorithm]:
        """The class; imports torch and SB3."""
        module, _, name = self.path.partition(":")
        found: type[BaseAlgorithm] = getattr(importlib.import_module(module), name)
        return found


TABLE = (
    Algorithm("recursive_ppo", "rao_agents:RecursivePPO", True, "RecursivePPO", "PPO with per-frame credit; learns when to spawn"),
    Algorithm("recursive_a2c", "rao_agents:RecursiveA2C", True, "RecursiveA2C", "A2C with per-frame credit; learns when to spawn"),
    Algorithm("flat_ppo", "sb3_contrib:MaskablePPO", True, "flat-credit PPO", "MaskablePPO with spawn actions but flat credit"),
    Algorithm("maskable_ppo", "sb3_contrib:MaskablePPO", False, "MaskablePPO", "monolithic PPO with action masks"),
    Algorithm("ppo", "stable_baselines3:PPO", False, "PPO", "monolithic PPO"),
    Algorithm("a2c", "stable_baselines3:A2C", False, "A2C", "monolithic advantage actor-critic"),
    Algorithm("dqn", "stable_baselines3:DQN", False, "DQN", "monolithic deep Q-learning"),
    Algorithm("recurrent_ppo", "sb3_contrib:RecurrentPPO", False, "RecurrentPPO", "monolithic PPO with an LSTM"),
)
ALGORITHMS = {algorithm.name: algorithm for algorithm in TABLE}


def find_algorithm(name: str) -> Algorithm:
    """The row named `name` (hyphens and case do not matter).

    Raises:
        UserError: there is none; names the nearest, or all.
    """
    key = name.strip().lower().replace("-", "_")
    if key not in ALGORITHMS:
        raise UserError(f"unknown algorithm {name!r}.{did_you_mean(key, ALGORITHMS)}")
    return ALGORITHMS[key]
