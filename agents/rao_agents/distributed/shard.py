"""A part of a vector environment in a process of its own, and what is needed to put it back where it was."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from rao_agents.vec_env import RecursiveVecEnv
from rao_envs.core.callstack import FrameFacts

LARGEST_SNAPSHOT = 64 * 2**20
"""Bytes; states that take more are not sent to the driver."""


class Reset(NamedTuple):
    """Begin everywhere."""

    seeds: list[int | None]
    options: list[dict[str, Any]]


class Step(NamedTuple):
    """One step of every environment; the snapshot is of after it."""

    actions: npt.NDArray[np.int64]
    snapshot: bool = False


class Call(NamedTuple):
    """`env_method` for some environments, which may be none."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    indices: list[int]

    @property
    def changes(self) -> bool:
        """Whether it must be done again to come to the same state."""
        return self.method in ("reset", "set_state")


Command = Reset | Step | Call


class Snapshot(NamedTuple):
    """Where the environments are, as the worker that sent it had them."""

    states: bytes
    facts: FrameFacts


class Reply(NamedTuple):
    """What a command gave."""

    result: Any  # (observations, infos) of a reset, a step's (observations, rewards, dones, infos, begun), or a call's list
    facts: FrameFacts
    masks: npt.NDArray[np.bool_]
    snapshot: Snapshot | None = None


class Shard:
    """Some of the environments of a `RayVecEnv`; a Ray actor.

    Answers are pickled here, not by Ray: arrays then come out as the receiver's own, writable ones.

    Args:
        env: whose instances they are, keyword arguments included.
        n: how many.
    """

    def __init__(self, env: EnvSpec, n: int) -> None:
        vector_env: Any = gym.make_vec(env, num_envs=n, vectorization_mode="vector_entry_point")
        self.env = RecursiveVecEnv(vector_env.unwrapped)

    def restore(self, snapshot: Snapshot | None, commands: Sequence[Command]) -> bytes | None:
        """Come to where another process was: its snapshot, then what it was told since. The answer is the last command's."""
        if snapshot is not None:
            for i, state in enumerate(pickle.loads(snapshot.states)):
                self.env.env_method("set_state", state, indices=[i])
            self.env.facts = snapshot.facts
        for command in commands[:-1]:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # refused then, refused now
                self._obey(command)
        return self.obey(commands[-1]) if commands else None

    def obey(self, command: Command) -> bytes:
        """Do as told; the answer is a pickled `Reply`.

        Raises:
            ValueError, TypeError, AttributeError: as `RecursiveVecEnv`.
        """
        result = self._obey(command)
        snapshot = self._snapshot() if isinstance(command, Step) and command.snapshot else None
        return pickle.dumps(Reply(result, self.env.facts, self.env.action_masks(), snapshot), pickle.HIGHEST_PROTOCOL)

    def _obey(self, command: Command) -> Any:
        env = self.env
        if isinstance(command, Step):
            env.step_async(command.actions)
            observations, rewards, dones, infos = env.step_wait()
            return observations, rewards, dones, infos, {int(i): env.reset_infos[i] for i in np.flatnonzero(dones)}
        if isinstance(command, Reset):
            env._seeds, env._options = command.seeds, command.options
            return env.reset(), env.reset_infos
        return env.env_method(command.method, *command.arguments, indices=command.indices, **command.keywords)

    def _snapshot(self) -> Snapshot | None:
        """The environments' states; None if they are too large."""
        batch = self.env.batch
        if sum(array.nbytes for array in batch.arrays().values()) > LARGEST_SNAPSHOT:
            return None
        states = [batch.get_state(i) for i in range(batch.n)]
        return Snapshot(pickle.dumps(states, pickle.HIGHEST_PROTOCOL), self.env.facts)
