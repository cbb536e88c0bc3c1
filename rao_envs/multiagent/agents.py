"""What both views share: the environment behind them, and who is called what."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rao_envs.core.arenas import EnvSource, find_spec
from rao_envs.core.env import RecursiveEnv
from rao_envs.core.wrapping import recursive_env

Obs = dict[str, Any]
PREFIX = "frame_"


def make_recursive(source: EnvSource, kwargs: dict[str, Any]) -> RecursiveEnv:
    """One environment of `source`; `max_cycles`, PettingZoo's word, is another name for `budget`.

    Raises:
        gymnasium.error.Error: an unknown id.
        TypeError, ValueError: no recursive environment, one behind wrappers that change something, or an argument it does not take.
    """
    arguments = dict(kwargs)
    if "max_cycles" in arguments:
        if "budget" in arguments:
            raise TypeError("max_cycles is another name for budget: pass one of them")
        arguments["budget"] = arguments.pop("max_cycles")
    if isinstance(source, str):
        made: Any = gym.make(find_spec(source), **arguments)
    elif isinstance(source, gym.envs.registration.EnvSpec):
        made = gym.make(source, **arguments)
    elif callable(source):
        made = source(**arguments)
    else:
        raise TypeError(f"an environment is named by an id, a spec, or a class or function that makes one, not by {source!r:.200}")
    try:
        return recursive_env(
            made,
            otherwise="only those have frames, of which each is an agent",
            wrapped="views show frames of the environment itself, so wrap the view instead (a limit of steps is max_cycles)",
        )
    except ValueError:
        if isinstance(made, gym.Env):
            made.close()
        raise


class Agents:
    """The agents of one environment: a pool of names, and which frame has which.

    An agent is a frame. It gets the next name of the pool when it opens, and no other frame of the episode gets that one. Every frame
    takes at least one step of the root's budget, so that the pool is as large as that.

    Args:
        env: whose frames they are.
    """

    def __init__(self, env: RecursiveEnv) -> None:
        self.env = env
        budget = int(env.batch.stack.limits["budget"][0]) if len(env.spawn_actions) else 1
        self.pool = [f"{PREFIX}{k}" for k in range(budget)]
        self._known = frozenset(self.pool)
        self._names: dict[int, str] = {}

    def begin(self) -> None:
        """Forget the last episode's."""
        self._names = {}

    def name(self, frame_id: int) -> str:
        """The agent that is this frame; a new one if the frame has just opened."""
        if frame_id not in self._names:
            self._names[frame_id] = self.pool[len(self._names)]
        return self._names[frame_id]

    def has(self, frame_id: int) -> bool:
        """Whether this frame has a name already."""
        return frame_id in self._names

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The same for all: what one frame sees. Raises KeyError for a name that is not in the pool."""
        self._check(agent)
        return self.env.batch.observation_space

    def action_space(self, agent: str) -> spaces.Discrete:
        """The same for all. Raises KeyError for a name that is not in the pool."""
        self._check(agent)
        return self.env.batch.action_space

    def options(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """Those of PettingZoo's reset options that the family knows: its other environments, too, pass over unknown ones."""
        return {name: value for name, value in (options or {}).items() if name in self.env.domain.options}

    def metadata(self, name: str) -> dict[str, Any]:
        """PettingZoo's metadata of the view `name`."""
        return {**self.env.metadata, "name": f"{name}({self.env.domain.name})", "is_parallelizable": False}

    def _check(self, agent: str) -> None:
        if agent not in self._known:
            raise KeyError(f"{agent!r} is no agent of this environment: they are {self.pool[0]} to {self.pool[-1]}")


def told(info: dict[str, Any]) -> dict[str, Any]:
    """What an agent that is to act is told."""
    return {**info, "waiting": False}


def waiting(info: dict[str, Any]) -> dict[str, Any]:
    """What an agent is told whose children act; what it passes is ignored."""
    return {**info, "returned": (), "waiting": True}


def over(entry: dict[str, Any]) -> dict[str, Any]:
    """What an agent whose frame has ended is told."""
    keys = ("frame_id", "parent_id", "depth", "value", "steps", "critical_path", "children", "successes")
    return {key: entry[key] for key in keys} | {"event": "return", "is_success": entry["success"], "returned": (), "waiting": False}
