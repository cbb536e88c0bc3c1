"""From what a user names to a batch of it, and the tasks to begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym

from rao_envs.core.arenas import BatchArena, EnvSource, SingleArena, find_spec, make_arena
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.env import RecursiveEnv
from rao_envs.core.wrapping import recursive_env

NOT_OURS = "runners take this suite's environments and others that are made on rao_envs.core; rao_envs.evaluate plays any"
WRAPPED = "pass the environment without it (env.unwrapped, say)"


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
            return like(self.env.batch, n)
        arena = make_arena(self.env, 1, self.env_kwargs)
        with contextlib.closing(arena):
            if isinstance(arena, SingleArena):  # there is no vector environment of its kind
                return like(recursive_env(arena.envs[0], otherwise=NOT_OURS, wrapped=WRAPPED).batch, n)
            assert isinstance(arena, BatchArena)
            return like(arena.batch, n)


def source_of(env: Any, env_kwargs: Mapping[str, Any]) -> tuple[Source, dict[str, Any] | None]:
    """What to make batches of; and the running episode's state, if `env` is an environment in the middle of one.

    A detached child has but one task, which counts as under way even before its first reset.

    Raises:
        gymnasium.error.Error: an unknown id.
        TypeError: arguments beside an environment that is made already.
        ValueError: an environment of another kind, or behind wrappers that change what an agent sees or does; a detached child that
            has ended.
        RuntimeError: detached children of it are out.
    """
    if not isinstance(env, gym.Env):
        # A name means something where it was registered; its spec says the same anywhere.
        return Source(find_spec(env) if isinstance(env, str) else env, dict(env_kwargs)), None
    if env_kwargs:
        raise TypeError(f"{', '.join(env_kwargs)}: an environment that is made already takes no more arguments; pass its id instead")
    inner = recursive_env(env, otherwise=NOT_OURS, wrapped=WRAPPED)
    if not inner.is_running and not inner.is_detached:
        return Source(inner, {}), None
    if inner.batch.done[0]:
        raise ValueError(f"the detached child frame {inner.base_frame_id} has ended: call its reset() to solve it again")
    return Source(inner, {}), inner.get_state()


def like(batch: RecursiveBatch, n: int) -> RecursiveBatch:
    """`n` instances with the options of `batch`."""
    limits = batch.stack.limits[0]
    return RecursiveBatch(
        batch.domain,
        n,
        spawn=batch.spawn,
        feedback=batch.feedback,
        budget=int(limits["budget"]),
        max_depth=int(limits["max_depth"]) if batch.spawn else None,
        observe_frame=batch.observe_frame,
    )
