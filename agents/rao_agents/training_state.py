"""What a training run needs, besides the model, to go on as if it had never stopped.

Random number states, the environment's state and the observation it is at, counters, and what algorithms
carry from one rollout to the next. It is defined between two rollouts: take it in a callback's
`_on_rollout_start`, or after `learn` has returned.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from rao_agents.repeat_tasks import RepeatTasks
from rao_agents.rollout_buffer import FrameRolloutBufferMixin
from rao_agents.transfer.vec_env import StateTransferVecEnv

COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_current_progress_remaining",
    "_n_updates", "_episode_num", "_n_calls", "exploration_rate",
)  # fmt: skip
POSITIONS = ("_last_obs", "_last_original_obs", "_last_episode_starts", "ep_info_buffer", "ep_success_buffer")
REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
WRAPPERS: dict[type, tuple[str, ...]] = {
    VecMonitor: ("episode_returns", "episode_lengths", "episode_count"),
    RepeatTasks: ("base_seed", "tasks", "fresh", "issued", "beginnings"),
    VecNormalize: ("obs_rms", "ret_rms", "returns", "old_obs", "old_reward"),
}


def training_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Everything `set_training_state` needs, as copies.

    Complete for environments that offer `get_state` and `set_state` (all of this project's do), on their own
    or for a whole batch. Counters inside other people's gymnasium wrappers are not part of it.

    Raises:
        RuntimeError: In the middle of a rollout; the environment offers no `get_state`; or there is no
            environment.
    """
    if isinstance(model, OnPolicyAlgorithm) and not _between_rollouts(model):
        raise RuntimeError("a training state exists between rollouts only: take it in on_rollout_start, or after learn()")
    env = model.get_env()
    if env is None or model._last_obs is None:
        raise RuntimeError("no training is under way: the model has no environment, or learn() was not called")
    state: dict[str, Any] = {
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
        "positions": {name: _copy(getattr(model, name)) for name in POSITIONS if hasattr(model, name)},
        "random": {
            "python": random.getstate(),
            "numpy": np.random.get_state(),  # noqa: NPY002 - it is the generator that SB3's buffers draw from
            "torch": th.get_rng_state(),
            "cuda": th.cuda.get_rng_state_all() if model.device.type == "cuda" else None,
            "action_space": _generator(model).bit_generator.state,
        },
        "env": env_state(env),
    }
    if isinstance(model, OffPolicyAlgorithm):
        state["replay"] = _replay_state(model)
    if hasattr(model, "_last_lstm_states"):
        state["lstm"] = None if model._last_lstm_states is None else _copy(tuple(model._last_lstm_states))
    buffer = getattr(model, "rollout_buffer", None)
    if isinstance(buffer, FrameRolloutBufferMixin):
        state["frames"] = buffer.get_state()
        state["tap"] = model.frame_tap(env).get_state()  # type: ignore[attr-defined]
    states = _states(model, env)
    if states is not None:
        if model._last_obs is states.shown:  # at a rollout's start: what goes on is the environment's own
            state["positions"]["_last_obs"] = _copy(states.raw)
        else:
            states.begin(model._last_obs)
        state["states"] = states.get_state()
    return state


def set_training_state(model: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Put `state` (from `training_state`) in place, in `model` and in its environment.

    The model's weights and its optimiser's state are not part of it: load the model saved at the same moment.

    Raises:
        ValueError: The state is of another environment or number of environments.
        RuntimeError: The model has no environment, or one without `set_state`.
    """
    env = model.get_env()
    if env is None:
        raise RuntimeError("the model has no environment: load it with env=...")
    env.reset()  # wrappers refuse to step before their first reset
    set_env_state(env, state["env"])
    for name, value in state["counters"].items():
        setattr(model, name, value)
    for name, value in state["positions"].items():
        setattr(model, name, _copy(value))
    if "replay" in state:
        _set_replay_state(model, state["replay"])
    if "lstm" in state:
        lstm = state["lstm"]
        if lstm is not None:
            lstm = RNNStates(*(tuple(tensor.to(model.device) for tensor in pair) for pair in lstm))
        model._last_lstm_states = lstm  # type: ignore[attr-defined]
    buffer = getattr(model, "rollout_buffer", None)
    if isinstance(buffer, FrameRolloutBufferMixin):
        if "frames" not in state:
            raise ValueError("the training state is not of a recursive algorithm")
        buffer.set_state(state["frames"])
        model.frame_tap(env).resume(model._last_obs, state["tap"])  # type: ignore[attr-defined]
    states = _states(model, env)
    if states is not None:
        if "states" not in state:
            raise ValueError("the training state is not of a model that hands states on")
        states.resume(model._last_obs, state["states"])
    # Last: what came before may have drawn random numbers.
    generators = state["random"]
    random.setstate(generators["python"])
    np.random.set_state(generators["numpy"])  # noqa: NPY002
    th.set_rng_state(generators["torch"])
    if generators["cuda"] is not None and model.device.type == "cuda":
        th.cuda.set_rng_state_all(generators["cuda"])
    _generator(model).bit_generator.state = generators["action_space"]


def _states(model: BaseAlgorithm, env: VecEnv) -> StateTransferVecEnv | None:
    """The wrapper that keeps the states of frames, where the model hands them on."""
    with_states = getattr(model, "with_states", None)
    found = None if with_states is None else with_states(env)
    return found if isinstance(found, StateTransferVecEnv) else None


def _between_rollouts(model: OnPolicyAlgorithm) -> bool:
    buffer = model.rollout_buffer
    return buffer.pos == 0 or (buffer.full and buffer.generator_ready)


def _generator(model: BaseAlgorithm) -> np.random.Generator:
    return model.action_space.np_random


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_copy(item) for item in value)
    if isinstance(value, th.Tensor):
        return value.detach().clone()
    return value.copy() if hasattr(value, "copy") else value


# -- environments -----------------------------------------------------------------------------------


def env_state(env: VecEnv) -> dict[str, Any]:
    """State of a vector environment, known wrappers included.

    Raises:
        RuntimeError: It offers no `get_state`.
    """
    wrappers = []
    for layer in _layers(env):
        names = next((names for cls, names in WRAPPERS.items() if isinstance(layer, cls)), ())
        wrappers.append({name: _pack(getattr(layer, name)) for name in names if hasattr(layer, name)})
    base: Any = env.unwrapped
    if hasattr(base, "get_state"):
        return {"wrappers": wrappers, "batch": base.get_state()}
    try:
        return {"wrappers": wrappers, "each": base.env_method("get_state")}
    except AttributeError as error:
        raise RuntimeError("the environment offers no get_state(): a run in it cannot be resumed exactly") from error


def set_env_state(env: VecEnv, state: Mapping[str, Any]) -> None:
    """Put a state from `env_state` back.

    Raises:
        ValueError: It is of another number of environments or other wrappers.
    """
    layers = _layers(env)
    if len(layers) != len(state["wrappers"]):
        raise ValueError(f"the state is of an environment in {len(state['wrappers'])} wrappers, this one has {len(layers)}")
    base: Any = env.unwrapped
    if "batch" in state:
        base.set_state(state["batch"])
    else:
        if len(state["each"]) != env.num_envs:
            raise ValueError(f"the state is of {len(state['each'])} environments, here are {env.num_envs}")
        for index, each in enumerate(state["each"]):
            base.env_method("set_state", each, indices=index)
    for layer, values in zip(layers, state["wrappers"], strict=True):
        for name, value in values.items():
            setattr(layer, name, _unpack(value))


def _layers(env: VecEnv) -> list[VecEnv]:
    layers: list[VecEnv] = []
    while isinstance(env, VecEnvWrapper):
        layers.append(env)
        env = env.venv
    return layers


def _pack(value: Any) -> Any:
    if isinstance(value, RunningMeanStd):
        return {"mean": value.mean.copy(), "var": value.var.copy(), "count": value.count}
    if isinstance(value, dict):
        return {"keys": {key: _pack(item) for key, item in value.items()}}
    return _copy(value)


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return _copy(value)
    if "keys" in value:
        return {key: _unpack(item) for key, item in value["keys"].items()}
    statistics = RunningMeanStd()
    statistics.mean, statistics.var, statistics.count = (
        np.array(value["mean"]),
        np.array(value["var"]),
        value["count"],
    )
    return statistics


def _replay_state(model: OffPolicyAlgorithm) -> dict[str, Any]:
    buffer = model.replay_buffer
    assert buffer is not None
    used = buffer.size()
    # With optimize_memory_usage the entry after the last one is part of it.
    used = min(used + 1, buffer.buffer_size)

    def cut(value: Any) -> Any:
        return {key: array[:used].copy() for key, array in value.items()} if isinstance(value, dict) else value[:used].copy()

    arrays = {name: cut(getattr(buffer, name)) for name in REPLAY if getattr(buffer, name, None) is not None}
    return {"pos": buffer.pos, "full": buffer.full, "arrays": arrays}


def _set_replay_state(model: Any, state: Mapping[str, Any]) -> None:
    buffer = model.replay_buffer
    buffer.pos, buffer.full = state["pos"], state["full"]
    for name, saved in state["arrays"].items():
        for target, value in _pairs(getattr(buffer, name), saved):
            if target.shape[1:] != value.shape[1:] or len(value) > len(target):
                raise ValueError(f"the replay buffer's {name} have another shape: {value.shape}, here {target.shape}")
            target[: len(value)] = value


def _pairs(target: Any, value: Any) -> list[tuple[Any, Any]]:
    return [(target[key], value[key]) for key in value] if isinstance(value, dict) else [(target, value)]
