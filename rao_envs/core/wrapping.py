"""From an environment that a user holds to the recursive one inside, unless that would leave something out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from rao_envs.core.env import RecursiveEnv

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker)
"""Wrappers that change nothing."""


def recursive_env(env: Any, *, otherwise: str, wrapped: str) -> RecursiveEnv:
    """`env`, or what is inside wrappers that change nothing.

    Args:
        env: whatever there is.
        otherwise: what to say of anything that is no recursive environment.
        wrapped: what to do instead where a wrapper may change something.

    Raises:
        ValueError: there is no recursive environment inside, or it is behind a wrapper that may change something.
    """
    if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, RecursiveEnv):
        raise ValueError(f"{env!r:.200} is no recursive environment: {otherwise}")
    inner = env
    while isinstance(inner, gym.Wrapper):
        if not isinstance(inner, TRANSPARENT):
            raise ValueError(f"{type(inner).__name__} may change what the agent sees or does: {wrapped}")
        inner = inner.env
    assert isinstance(inner, RecursiveEnv)
    return inner
