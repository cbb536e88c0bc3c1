"""How fast experience is collected: environments in one process against the same ones split over a Ray cluster's workers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rao_agents import make_vec_env
from rao_envs.core.actors import draw

WARM_UP = 20
"""Steps before the clock starts."""


def measure(env_id: str, n_envs: int, duration: float, **rollouts: Any) -> float:
    """Environment steps per second under random allowed actions, chosen in this process as a policy's are.

    Args:
        env_id: of a recursive family.
        n_envs: environments side by side.
        duration: seconds.
        **rollouts: `ray_workers` and `ray_address`, see `rao_agents.make_vec_env`.
    """
    env = make_vec_env(env_id, n_envs, 0, **rollouts)
    rng = np.random.default_rng(0)
    try:
        env.reset()
        begun, steps = time.perf_counter(), -WARM_UP
        while steps < 1 or time.perf_counter() - begun < duration:
            if steps == 0:
                begun = time.perf_counter()
            masks = np.array(env.env_method("action_masks"))
            env.step(draw(masks.astype(np.float64), rng.random(n_envs)))
            steps += 1
        return steps * n_envs / (time.perf_counter() - begun)
    finally:
        env.close()
