"""The observation key `frame`: for the machinery of recursion, never for a network.

Environments made with `observe_frame=True` say in it which frame acts. Specialists are chosen by it and states per
frame are kept by it, but no policy is shown it as a feature: absolute depth is what must not be learned from, if
what is learned at one scale is to hold at the next (rule 5 of the spawn protocol).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gymnasium import spaces

from rao_envs.core.callstack import FRAME_FIELDS, FRAME_KEY

__all__ = ["FRAME_FIELDS", "FRAME_KEY", "has_frame", "policy_space", "require_frame", "without_frame"]

Value = TypeVar("Value")


def has_frame(space: spaces.Space[Any]) -> bool:
    """Whether observations of `space` say which frame acts: a dictionary with the key `frame` of shape (3,)."""
    return isinstance(space, spaces.Dict) and FRAME_KEY in space.spaces and space[FRAME_KEY].shape == (len(FRAME_FIELDS),)


def policy_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """What of `space` a network may see: everything but the frame; `space` itself where there is none."""
    if not isinstance(space, spaces.Dict) or not has_frame(space):
        return space
    return spaces.Dict(without_frame(space.spaces))


def without_frame(observation: Mapping[str, Value]) -> dict[str, Value]:
    """A dictionary observation (or a dictionary of spaces) without the key `frame`."""
    return {key: value for key, value in observation.items() if key != FRAME_KEY}


def require_frame(space: spaces.Space[Any], purpose: str) -> None:
    """Refuse observations that do not say which frame acts.

    Args:
        space: of the observations.
        purpose: what needs it, as the subject of a sentence.

    Raises:
        ValueError: They do not; the message says how to make an environment whose observations do.
    """
    if has_frame(space):
        return
    problem = "has no such key" if isinstance(space, spaces.Dict) else f"is not a dictionary: {space}"
    raise ValueError(
        f"{purpose} needs the key {FRAME_KEY!r} ({', '.join(FRAME_FIELDS)}) in the observation, which here {problem}. Make the "
        "environment with observe_frame=True: gymnasium.make(id, observe_frame=True), make_vec_env(id, observe_frame=True)"
    )
