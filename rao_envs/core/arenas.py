"""Places where an evaluation's episodes run side by side: a batch of the kernels, or single environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
)

from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.env import RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv

EnvSource = str | EnvSpec | Callable[..., gym.Env[Any, Any]] | type[RecursiveVectorEnv]
"""What names an environment: a Gymnasium id, a spec (`env.spec`), or a class or function that makes one."""

Slots = npt.NDArray[np.int64]


class Outcome(NamedTuple):
    """How an episode ended."""

    success: bool | None
    nodes: int
    deepest: int
    spawns: int
    critical_path: int


class Arena(Protocol):
    """`n` slots, in each of which one episode after the other runs."""

    name: str
    n: int
    n_actions: int
    observation_space: spaces.Space[Any]

    def begin(self, slots: Slots, seeds: Sequence[int]) -> None:
        """Begin the episodes with these seeds in these slots."""

    def observe(self, slots: Slots) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Observations (m, ...) and masks (m, n_actions) of these slots, as arrays nobody else holds."""

    def step(self, slots: Slots, actions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Step these slots; returns rewards and which episodes are over, both (m,)."""

    def outcome(self, slot: int, steps: int) -> Outcome:
        """Of an episode that is over after `steps` steps."""

    def close(self) -> None:
        """Free what was opened."""


def make_arena(source: EnvSource, n: int, kwargs: dict[str, Any]) -> Arena:
    """`n` environments of one kind.

    Raises:
        gymnasium.error.Error: an unknown id (the message names the nearest).
        TypeError: not a source of environments, or a keyword argument it does not take.
        ValueError: a bad keyword argument, or actions that are not `Discrete` from 0 on.
    """
    if isinstance(source, (str, EnvSpec)):
        spec = find_spec(source) if isinstance(source, str) else source
        vector_class = _native(spec)
        if vector_class is not None:
            own = {name: value for name, value in spec.kwargs.items() if name not in ("num_envs", "vectorization_mode")}
            return BatchArena(vector_class(num_envs=n, **{**own, **kwargs}).batch, spec.id)
        return SingleArena([gym.make(spec, **kwargs) for _ in range(n)], spec.id)
    maker: Any = source
    if not callable(maker):
        hint = ": pass its id or its spec" if isinstance(maker, (gym.Env, gym.vector.VectorEnv)) else ""
        raise TypeError(f"an environment is named by an id, a spec, or a class or function that makes one, not by {maker!r:.200}{hint}")
    name = f"{maker.__module__}:{getattr(maker, '__qualname__', type(maker).__qualname__)}"
    if isinstance(maker, type) and issubclass(maker, RecursiveVectorEnv):
        return BatchArena(maker(num_envs=n, **kwargs).batch, name)
    if isinstance(maker, type) and issubclass(maker, RecursiveEnv):
        # The same batch that its vector environment would have.
        vector_class = type(maker.__name__, (RecursiveVectorEnv,), {"domain_class": maker.domain_class})
        return BatchArena(vector_class(num_envs=n, **kwargs).batch, name)
    return SingleArena([maker(**kwargs) for _ in range(n)], name)


def find_spec(env_id: str) -> EnvSpec:
    """The spec of an id as `gymnasium.make` takes it: "module:id" imports first, no version is the newest."""
    module, _, name = env_id.rpartition(":")
    if module:
        __import__(module)
    if name not in gym.registry:
        namespace, base, version = parse_env_id(name)
        newest = find_highest_version(namespace, base)
        if version is None and newest is not None:
            name = get_env_id(namespace, base, newest)
    return gym.spec(name)


def _native(spec: EnvSpec) -> type[RecursiveVectorEnv] | None:
    """The spec's own batch, unless the single environment has wrappers that the batch would leave out."""
    if spec.vector_entry_point is None or spec.additional_wrappers or spec.max_episode_steps is not None:
        return None
    entry = spec.vector_entry_point
    creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return creator if isinstance(creator, type) and issubclass(creator, RecursiveVectorEnv) else None


def count_actions(space: spaces.Space[Any]) -> int:
    """Size of an action space; raises ValueError unless it is {0, ..., n - 1}."""
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise ValueError(f"only Discrete action spaces that start at 0 can be evaluated, not {space}")
    return int(space.n)


class BatchArena:
    """Episodes in one `RecursiveBatch`: no Python loop over environments."""

    def __init__(self, batch: RecursiveBatch, name: str) -> None:
        self.batch, self.name, self.n = batch, name, batch.n
        self.n_actions = count_actions(batch.action_space)
        self.observation_space: spaces.Space[Any] = batch.observation_space
        self._actions = np.zeros(batch.n, np.int64)
        batch.stack.episodes["terminated"] = True  # a slot that never begins is one whose episode is over

    def begin(self, slots: Slots, seeds: Sequence[int]) -> None:
        """Seed and reset these instances."""
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self.batch.seed(slot, seed)
        self.batch.reset(slots)

    def observe(self, slots: Slots) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Copies of the batch's observations and masks."""
        observations, masks = self.batch.obs, self.batch.buffers.action_mask
        if len(slots) < self.n:
            observations, masks = {key: array[slots] for key, array in observations.items()}, masks[slots]
        return observations, masks.astype(np.bool_)

    def step(self, slots: Slots, actions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """One step of the batch; all other slots are over, and it leaves those alone."""
        self._actions[slots] = actions
        self.batch.step(self._actions)
        episodes = self.batch.stack.episodes
        return episodes["reward"][slots], self.batch.done[slots]

    def outcome(self, slot: int, steps: int) -> Outcome:
        """What the call stack says."""
        tree = self.batch.tree(slot)
        success = bool(self.batch.stack.episodes["success"][slot])
        return Outcome(success, tree["nodes"], tree["deepest"], tree["spawns"], tree["critical_path"])

    def close(self) -> None:
        """Nothing is held."""


class SingleArena:
    """Episodes in single environments of any kind, stepped one after the other.

    Masks come from the observation's key `action_mask`, the environment's method `action_masks`, or
    `info["action_mask"]`, in this order; without any, every action is allowed.
    """

    def __init__(self, envs: Sequence[gym.Env[Any, Any]], name: str) -> None:
        self.envs, self.name, self.n = tuple(envs), name, len(envs)
        self.n_actions = count_actions(envs[0].action_space)
        self.observation_space = envs[0].observation_space
        self._observations: list[Any] = [None] * self.n
        self._infos: list[dict[str, Any]] = [{} for _ in envs]

    def begin(self, slots: Slots, seeds: Sequence[int]) -> None:
        """Reset these environments."""
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self._observations[slot], self._infos[slot] = self.envs[slot].reset(seed=seed)

    def observe(self, slots: Slots) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Observations stacked, masks from wherever the environment has them."""
        observations = [self._observations[slot] for slot in slots]
        masks = np.array([self._mask(slot) for slot in slots], np.bool_)
        if isinstance(observations[0], dict):
            return {key: np.stack([own[key] for own in observations]) for key in observations[0]}, masks
        return np.stack(observations), masks

    def step(self, slots: Slots, actions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """One step of each, in turn."""
        rewards, done = np.zeros(len(slots)), np.zeros(len(slots), np.bool_)
        for k, (slot, action) in enumerate(zip(slots.tolist(), actions.tolist(), strict=True)):
            observation, reward, terminated, truncated, info = self.envs[slot].step(action)
            self._observations[slot], self._infos[slot] = observation, info
            rewards[k], done[k] = reward, terminated or truncated
        return rewards, done

    def outcome(self, slot: int, steps: int) -> Outcome:
        """What the last `info` says; one frame where it says nothing."""
        info = self._infos[slot]
        success = bool(info["is_success"]) if "is_success" in info else None
        tree = info.get("tree") or {}
        return Outcome(
            success,
            int(tree.get("nodes", 1)),
            int(tree.get("deepest", 0)),
            int(tree.get("spawns", 0)),
            int(tree.get("critical_path", steps)),
        )

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()

    def _mask(self, slot: int) -> Any:
        observation = self._observations[slot]
        shown = observation.get("action_mask") if isinstance(observation, dict) else None
        if shown is not None and np.shape(shown) == (self.n_actions,):
            return shown
        method = getattr(self.envs[slot].unwrapped, "action_masks", None)
        if method is not None:
            return method()
        return self._infos[slot].get("action_mask", np.ones(self.n_actions, np.bool_))


_: tuple[type[Arena], ...] = (BatchArena, SingleArena)
