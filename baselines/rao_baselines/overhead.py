"""`rao bench overhead`: what each mode of state transfer costs, in training and in acting (MISSION A10)."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rao_baselines.provenance import provenance
from rao_baselines.speed import OURS, SEED, training

N_ENVS = 64
MODES: dict[str, dict[str, Any]] = {
    "none": {},
    "summary": {"state_transfer": "summary"},
    "summary, down only": {"state_transfer": "summary", "state_transfer_kwargs": {"back": False}},
    "hidden": {"state_transfer": "hidden"},
    "attention": {"state_transfer": "attention"},
    "memory of 8 slots": {"state_transfer_kwargs": {"memory": 8}},
}
"""What is measured: settings of RecursivePPO. "none" is what the others are compared with."""


class Speed(NamedTuple):
    """Environment steps per second."""

    training: float
    acting: float


def measure(mode: str, seconds: float) -> Speed:
    """Training with RecursivePPO's settings, and acting in `N_ENVS` environments with a fresh model, on one thread."""
    return Speed(training("recursive_ppo", seconds, **MODES[mode]), acting(MODES[mode], seconds))


def acting(hyperparameters: dict[str, Any], seconds: float) -> float:
    """Environment steps per second with `predict`, the environment's own included."""
    import torch as th

    from rao_baselines.algorithms import find_algorithm
    from rao_baselines.config import load_settings
    from rao_baselines.environments import make_training_env
    from rao_baselines.models import make_model

    row = find_algorithm("recursive_ppo")
    settings = load_settings(row, OURS)
    settings.hyperparameters |= hyperparameters
    settings.dense_weight, settings.n_envs = 0.0, N_ENVS
    before = th.get_num_threads()
    th.set_num_threads(1)
    env = make_training_env(OURS, settings, True, SEED)
    try:
        model = make_model(row, settings, env, seed=SEED, device="cpu")
        observation: Any = env.reset()
        state, starts, count, start = None, None, 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            actions, state = model.predict(observation, state, starts)
            observation, _, starts, _ = env.step(actions)
            count += N_ENVS
    finally:
        env.close()
        th.set_num_threads(before)
    return count / elapsed


def report(values: dict[str, Speed], seconds: float) -> dict[str, Any]:
    """The result as it is kept: speeds, and the time for a step as a multiple of that without transfer."""
    plain = values["none"]
    return {
        "env_id": OURS,
        "modes": {
            name: {
                "training": round(speed.training, 1),
                "acting": round(speed.acting, 1),
                "training_time": round(plain.training / speed.training, 3),
                "acting_time": round(plain.acting / speed.acting, 3),
            }
            for name, speed in values.items()
        },
        "duration": seconds,
        **provenance(1),
    }
