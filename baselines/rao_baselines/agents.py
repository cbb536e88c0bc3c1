"""Agents by name: the built-in ones, and trained models from files, which are read without running any code in them."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
from gymnasium import spaces

from rao_baselines.errors import UserError, nearest
from rao_baselines.places import shipped_models
from rao_baselines.runs import read_json
from rao_envs.core.env import RecursiveEnv

if TYPE_CHECKING:
    from rao_baselines.evaluation import Model


FOR_EVERY_FAMILY = frozenset(inspect.signature(RecursiveEnv).parameters)
"""Keyword arguments that say nothing about a family's tasks: spawn, feedback, budget, max_depth, render_mode."""


class Builtin(NamedTuple):
    """An agent that needs no training; `make` takes the environment's id and keyword arguments."""

    make: Callable[[str, dict[str, Any]], Any]
    summary: str


class Loaded(NamedTuple):
    """An agent with what scoring it needs to know."""

    agent: Any
    name: str
    env_kwargs: dict[str, Any]
    frame_stack: int


def _make_random(env_id: str, env_kwargs: dict[str, Any]) -> Any:
    from rao_envs.core.actors import RandomAgent

    return RandomAgent()


def _make_solver(env_id: str, env_kwargs: dict[str, Any]) -> Any:
    """The family's scripted solver, from `rao_envs.<family>.reference`, for the environment with these arguments.

    Raises:
        UserError: there is none, or not for these arguments.
    """
    spec = gym.spec(env_id)
    module = spec.entry_point.partition(":")[0] if isinstance(spec.entry_point, str) else ""
    name = "RecursiveSolver" if env_kwargs.get("spawn", True) else "MonolithicSolver"
    if module.startswith("rao_envs."):
        reference = importlib.import_module(module.rpartition(".")[0] + ".reference")
        if hasattr(reference, name):
            solver = getattr(reference, name)
            try:
                return solver(**_taken_by(solver, spec.kwargs | env_kwargs))
            except (TypeError, ValueError) as error:
                raise UserError(f"{env_id} cannot be made with {env_kwargs}: {_refusal(env_id, env_kwargs) or error}") from error
    raise UserError(f"there is no scripted solver for {env_id}")


def _refusal(env_id: str, env_kwargs: dict[str, Any]) -> str:
    """What the environment itself has against its arguments: it names those that it takes, as a solver does not."""
    try:
        gym.make(env_id, **env_kwargs).close()
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _taken_by(solver: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of an environment's arguments that its solver must know: how wide windows and values are decides how to read them."""
    parameters = inspect.signature(solver).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {key: value for key, value in arguments.items() if key not in FOR_EVERY_FAMILY}
    return {key: value for key, value in arguments.items() if key in parameters}


BUILTINS = {
    "random": Builtin(_make_random, "any allowed action, each equally likely"),
    "solver": Builtin(_make_solver, "the family's scripted solver: recursive, or with spawn=false monolithic"),
}


def load_agent(name: str, env_id: str, env_kwargs: dict[str, Any]) -> Loaded:
    """A built-in agent, a run's folder, or a model file.

    Args:
        name: "random", "solver", or a path.
        env_id: what it is to act in (resolved).
        env_kwargs: the environment's arguments as the user gave them; `spawn` is found out where it is not among them.

    Raises:
        UserError: there is no such agent, it cannot be read safely, or it does not fit the environment.
    """
    if name in BUILTINS:
        return Loaded(BUILTINS[name].make(env_id, env_kwargs), name, env_kwargs, 1)
    path = find_model(name)
    model = load_model(path)
    return fit(model, path, env_id, env_kwargs)


def find_model(name: str) -> Path:
    """The model file that `name` means: a file, a run's folder, a name without ".zip", or one of baselines/models.

    Raises:
        UserError: there is none.
    """
    path = Path(name)
    candidates = [path, path / "model.zip"]
    if path.name:  # "", "." and "/" have none
        candidates.append(path.with_name(path.name + ".zip"))
    if name and name == path.name:
        candidates.append(shipped_models() / f"{name}.zip")
    for candidate in candidates:
        if os.path.isfile(candidate):  # unlike Path.is_file it takes any text, however long
            return candidate
    if os.path.isdir(path):
        if (path / "checkpoint.zip").is_file():
            raise UserError(f"the run in {path} is unfinished: go on with it by `rao train ... --out {path} --resume`")
        raise UserError(f"{path} is a folder without model.zip")
    close = nearest(name, BUILTINS)
    hint = f" Did you mean {close[0]}?" if close else f" Built-in agents: {', '.join(BUILTINS)}."
    raise UserError(f"there is no model file or run folder {name}.{hint}")


def load_model(path: Path) -> Model:
    """The model, or the policy alone, in a file.

    Raises:
        UserError: damaged, foreign, or in need of pickles, which can run any code.
    """
    from rao_agents import ModelFileError, UnsafeModelError, load_policy, load_safely

    try:
        return load_safely(path, device="cpu")
    except UnsafeModelError as error:
        raise UserError(
            f"{error}\nIf you trust it, convert it once in Python: "
            "rao_agents.save_safely(rao_agents.load_safely(path, algorithm=..., allow_pickle=True), new_path)"
        ) from error
    except ModelFileError as error:
        try:
            return load_policy(path, device="cpu")
        except (ModelFileError, KeyError, TypeError, ValueError):
            raise UserError(str(error)) from error


def fit(model: Model, path: Path, env_id: str, env_kwargs: dict[str, Any]) -> Loaded:
    """Find out whether the model acts with or without spawn actions and with the frame observed, and how much it sees at once.

    Raises:
        UserError: it does not fit the environment either way.
    """
    from rao_agents.frame_key import has_frame
    from rao_baselines.environments import is_recursive

    # A policy that keeps states of its own sees more than the environment shows.
    model_space: Any = getattr(model, "acting_space", model.observation_space)
    if is_recursive(env_id) and has_frame(model_space):
        env_kwargs = {"observe_frame": True} | env_kwargs
    choices: list[dict[str, Any]] = [env_kwargs]
    if is_recursive(env_id) and "spawn" not in env_kwargs:
        choices = [env_kwargs | {"spawn": spawn} for spawn in (True, False)]
    for kwargs in choices:
        try:
            env = gym.make(env_id, **kwargs)
        except (TypeError, ValueError) as error:
            raise UserError(f"{env_id} cannot be made with {kwargs}: {error}") from error
        actions, space = env.action_space, env.observation_space
        env.close()
        stack = _stacked(model_space, space)
        if model.action_space == actions and stack is not None:
            return Loaded(model, _name(path), kwargs, stack)
    raise UserError(f"the model in {path} does not fit {env_id}: it acts in {model.action_space} and sees {_outline(model_space)}")


def _name(path: Path) -> str:
    """What to call the model in `path`: as its run's result does, or by the file's name."""
    result = path.with_name("result.json")
    if path.name == "model.zip" and result.is_file():
        run = read_json(result)
        return f"{run.get('name', path.parent.name)}, seed {run.get('seed', '?')}"
    return path.stem


def _stacked(model_space: Any, space: Any) -> int | None:
    """How many observations of `space` side by side `model_space` is; None if it is no such thing."""
    if isinstance(model_space, spaces.Dict) and isinstance(space, spaces.Dict):
        if set(model_space) != set(space):
            return None
        ratios = {_stacked(model_space[key], space[key]) for key in space if key != "action_mask"}
        same_mask = "action_mask" not in space.spaces or model_space["action_mask"] == space["action_mask"]
        return ratios.pop() if len(ratios) == 1 and same_mask else None
    if model_space == space:
        return 1
    if isinstance(model_space, spaces.Box) and isinstance(space, spaces.Box) and len(space.shape) == len(model_space.shape) == 1:
        times, rest = divmod(model_space.shape[0], space.shape[0])
        return times if rest == 0 else None
    return None


def _outline(space: Any) -> str:
    if isinstance(space, spaces.Dict):
        return "{" + ", ".join(f"{key}: {sub.shape}" for key, sub in space.spaces.items()) + "}"
    return str(space)
