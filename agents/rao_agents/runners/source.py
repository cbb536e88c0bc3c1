"""From what a user names to a batch of it, and the tasks to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from rao_envs.core.arenas import BatchArena, EnvSource, make_arena
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.env import RecursiveEnv

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker)
"""Wrappers that change nothing."""

NOT_OURS = "runners take this suite's environments and others that are made on rao_envs.core; rao_envs.evaluate plays any"


class Source(NamedTuple):
    """A kind of environment, of which batches can be made here and in other processes."""

    env: EnvSource | RecursiveEnv
    env_kwargs: dict[str, Any]

    def batch(self, n: int) -> RecursiveBatch:
        """`n` instances.

        Raises:
            TypeError, ValueError: it is no recursive environment, or takes no such arguments.
        """
        if isinstance(self.env, RecursiveEnv):
            return like(self.env, n)
        arena = make_arena(self.env, n, self.env_kwargs)
        if not isinstance(arena, BatchArena):
            arena.close()
            raise ValueError(f"{arena.name} has no batch of recursion trees: {NOT_OURS}")
        return arena.batch


def source_of(env: Any, env_kwargs: Mapping[str, Any]) -> tuple[Source, dict[str, Any] | None]:
    """What to make batches of; and the running episode's state, if `env` is an environment in the middle of one.

    Raises:
        TypeError: arguments beside an environment that is made already.
        ValueError: an environment of another kind, or behind wrappers that change what an agent sees or does.
    """
    if not isinstance(env, gym.Env):
        return Source(env, dict(env_kwargs)), None
    if env_kwargs:
        raise TypeError(f"{', '.join(env_kwargs)}: an environment that is made already takes no more arguments; pass its id instead")
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if not isinstance(inner, TRANSPARENT):
            raise ValueError(f"{type(inner).__name__} may change what the agent sees or does: pass env.unwrapped, or the environment's id")
        inner = inner.env
    if not isinstance(inner, RecursiveEnv):
        raise ValueError(f"{inner} is no recursive environment: {NOT_OURS}")
    running = inner.is_running
    return Source(inner, {}), (inner.get_state() if running else None)


def like(env: RecursiveEnv, n: int) -> RecursiveBatch:
    """`n` instances with the options of `env`."""
    batch, limits = env.batch, env.batch.stack.limits[0]
    return RecursiveBatch(
        env.domain,
        n,
        spawn=batch.spawn,
        feedback=batch.feedback,
        budget=int(limits["budget"]),
        max_depth=int(limits["max_depth"]) if batch.spawn else None,
        observe_frame=batch.observe_frame,
    )
