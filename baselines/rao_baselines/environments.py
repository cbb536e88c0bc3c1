"""Environments by id: finding the nearest when an id is wrong, and making the vector environments that training needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import rao_envs
from rao_baselines.config import Settings, parse_assignments
from rao_baselines.errors import UserError, did_you_mean

PREFIX = "RAO/"
FRAME_SETTINGS = ("specialists", "state_transfer")
"""Settings that, unless they say "none", need `observe_frame=True`."""


def resolve_id(env_id: str) -> str:
    """The full, versioned id of what the user named; "Maze-20x20" is short for "RAO/Maze-20x20-v0".

    Raises:
        UserError: nothing is registered under it; names the nearest ids.
    """
    for candidate in (env_id, PREFIX + env_id):
        try:
            return gym.spec(candidate).id
        except gym.error.DeprecatedEnv as error:
            raise UserError(str(error)) from error
        except gym.error.Error:
            pass
        if versions := [name for name in gym.registry if name.rpartition("-v")[0] == candidate]:
            return max(versions, key=lambda name: int(name.rpartition("-v")[2]))
    ours = rao_envs.registered_ids()
    bare = env_id.removeprefix(PREFIX)
    names = {name.removeprefix(PREFIX).rpartition("-v")[0]: name for name in ours}
    close = did_you_mean(bare, names)
    if close.startswith(" Did"):
        for short, full in sorted(names.items(), key=lambda item: -len(item[0])):
            close = close.replace(f" {short} ", f" {full} ").replace(f" {short}?", f" {full}?")
        raise UserError(f"no environment is called {env_id!r}.{close}")
    others = did_you_mean(env_id, [name for name in gym.registry if not name.startswith(PREFIX)])
    hint = others if others.startswith(" Did") else f" This package has: {', '.join(ours)}."
    raise UserError(f"no environment is called {env_id!r}.{hint}")


class Task(NamedTuple):
    """What to score an agent on: a resolved id, and its own keyword arguments, or None for those of the training."""

    env_id: str
    kwargs: dict[str, Any] | None


def parse_task(text: str) -> Task:
    """A task as text: an environment id, and after a question mark its arguments: "RAO/LongSeq-10k?query=count&pointers=2".

    Without a question mark the arguments that an agent was trained with apply, as far as the id does not say otherwise (see
    `carried_over`); "RAO/Algebra-depth8?" has none.

    Raises:
        UserError: no such id, or arguments that cannot be read.
    """
    env_id, mark, arguments = text.partition("?")
    return Task(resolve_id(env_id), parse_assignments([part for part in arguments.split("&") if part]) if mark else None)


def carried_over(env_kwargs: dict[str, Any], env_id: str) -> dict[str, Any]:
    """Of the arguments that an agent was trained with, those that apply to another id: what that says itself, as its size, stays."""
    own = gym.spec(env_id).kwargs
    return {name: value for name, value in env_kwargs.items() if name not in own}


def is_recursive(env_id: str) -> bool:
    """Whether `env_id` (resolved) is an environment of this suite."""
    return env_id.startswith(PREFIX)


def needs_frame(settings: Settings) -> bool:
    """Whether these settings need observations that say which frame acts (`observe_frame=True`)."""
    chosen = settings.hyperparameters
    memory = (chosen.get("state_transfer_kwargs") or {}).get("memory")
    return bool(memory) or any(chosen.get(name, "none") != "none" for name in FRAME_SETTINGS)


def environment_arguments(settings: Settings, env_id: str, spawn: bool) -> dict[str, Any]:
    """Keyword arguments of the environment itself, as evaluation needs them too (feedback left out: it changes no score)."""
    arguments = dict(settings.env_kwargs)
    if is_recursive(env_id) and needs_frame(settings):
        if settings.frame_stack > 1:
            raise UserError(
                "frame_stack does not go with specialists, state_transfer or a memory: they read which frame acts from single observations"
            )
        arguments.setdefault("observe_frame", True)
    if "spawn" in arguments and is_recursive(env_id):
        value = str(arguments["spawn"]).lower()
        raise UserError(f"write spawn={value} as a setting of its own, not in env_kwargs: there it would be replaced by the algorithm's")
    if is_recursive(env_id):
        arguments["spawn"] = spawn
    return arguments


def training_tasks(settings: Settings) -> tuple[list[tuple[str, dict[str, Any]]], list[float]]:
    """What a run with a curriculum or a mixture trains on: (id, own keyword arguments) of each task, and the weights it begins with.

    A curriculum's stages begin with the first alone. What `env_kwargs` says holds for all tasks; a task's own arguments come first.

    Raises:
        UserError: no such id, arguments that cannot be read, or several tasks outside this suite.
    """
    if settings.curriculum:
        texts: list[str] = settings.curriculum["stages"]
        weights = [1.0] + [0.0] * (len(texts) - 1)
    else:
        assert settings.mixture is not None
        texts, weights = list(settings.mixture), list(settings.mixture.values())
    found = [parse_task(text) for text in texts]
    if others := [task.env_id for task in found if not is_recursive(task.env_id)]:
        raise UserError(f"a curriculum or a mixture takes this suite's environments; {others[0]} is none")
    return [(task.env_id, task.kwargs or {}) for task in found], weights


def make_training_env(env_id: str, settings: Settings, spawn: bool, seed: int, **rollouts: Any) -> VecEnv:
    """The vector environment a run learns in: Monitor inside, then dense feedback, step penalty, stacking, normalisation.

    Args:
        env_id: of the environment.
        settings: of the run.
        spawn: whether it may spawn.
        seed: of the first environment.
        **rollouts: `ray_workers` and `ray_address`, see `rao_agents.make_vec_env`.

    Raises:
        UserError: arguments that the environment does not take, or Ray workers for what cannot be split.
    """
    from stable_baselines3.common.env_util import make_vec_env as make_plain_vec_env

    from rao_agents import RepeatTasks, make_mixed_vec_env, make_vec_env
    from rao_baselines.wrappers import VecStackObservations, VecStepPenalty

    arguments = environment_arguments(settings, env_id, spawn)
    if rollouts and not is_recursive(env_id):
        raise UserError(f"Ray workers share this suite's environments; {env_id} is none")
    if rollouts and (settings.curriculum or settings.mixture):
        raise UserError("Ray workers cannot share a curriculum's or a mixture's environments: train without them")
    try:
        if is_recursive(env_id):
            if settings.feedback is not None:
                arguments["feedback"] = settings.feedback
            if settings.curriculum or settings.mixture:
                tasks, weights = training_tasks(settings)
                env = make_mixed_vec_env(tasks, settings.n_envs, seed, weights=weights, dense_weight=settings.dense_weight, **arguments)
            else:
                arguments |= rollouts
                env = make_vec_env(env_id, settings.n_envs, seed, dense_weight=settings.dense_weight, repeats=settings.repeats, **arguments)
        else:
            env = make_plain_vec_env(env_id, settings.n_envs, seed, env_kwargs=arguments)
            if settings.repeats > 1:
                env = RepeatTasks(env, settings.repeats, seed)
    except (TypeError, ValueError) as error:
        raise UserError(f"{env_id} cannot be made with {arguments}: {error}") from error
    if settings.step_penalty:
        env = VecStepPenalty(env, settings.step_penalty)
    if settings.frame_stack > 1:
        env = VecStackObservations(env, settings.frame_stack)
    # Last, because off-policy algorithms store what VecNormalize saw before normalising: it must have the policy's shapes.
    return _normalized(env, settings) if settings.normalize else env


def _normalized(env: VecEnv, settings: Settings) -> VecNormalize:
    options = dict(settings.normalize) if isinstance(settings.normalize, dict) else {}
    if options.pop("norm_obs", False):
        raise UserError("normalize: norm_obs is not offered, because a model would need its statistics to act; rewards only")
    options.setdefault("gamma", settings.hyperparameters.get("gamma", 0.99))
    try:
        return VecNormalize(env, norm_obs=False, **options)
    except TypeError as error:
        raise UserError(f"normalize: {error}") from error
