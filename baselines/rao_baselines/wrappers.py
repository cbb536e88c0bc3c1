"""Vector-environment wrappers that the monolithic baselines may use: a memory of past observations, a cost per step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from rao_agents.training_state import WRAPPERS

MASK = "action_mask"
Arrays = dict[str, npt.NDArray[Any]]


class Stacker:
    """The latest `k` observations of `n` environments side by side, newest last, zeros before an episode's start.

    Works on flat dictionaries (the mask stays as it is) and on single arrays of one axis per environment.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        self.frames: Arrays = {}

    def space(self, space: spaces.Space[Any]) -> spaces.Space[Any]:
        """What the stacked observation of `space` looks like.

        Raises:
            ValueError: a space that is not flat boxes.
        """
        if isinstance(space, spaces.Dict):
            return spaces.Dict({key: sub if key == MASK else self._box(sub) for key, sub in space.spaces.items()})
        return self._box(space)

    def _box(self, space: spaces.Space[Any]) -> spaces.Box:
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"frame_stack works on flat boxes, not on {space}")
        low, high = (np.tile(bound, self.k) for bound in (space.low, space.high))
        # Frames before the episode's start are zero.
        return spaces.Box(np.minimum(low, 0), np.maximum(high, 0), dtype=space.dtype.type)

    def push(self, observations: Any, start: npt.NDArray[np.bool_]) -> Any:
        """Take the next observations (n, ...) in; `start` marks environments whose episode begins with them. Fresh arrays."""
        if not isinstance(observations, dict):
            return self.push({"": observations}, start)[""]
        result: Arrays = {}
        for key, array in observations.items():
            if key == MASK:
                result[key] = array
                continue
            old = self.frames.get(key)
            if old is None or len(old) != len(array):
                old = np.zeros((len(array), self.k, array.shape[1]), array.dtype)
            new = np.concatenate([old[:, 1:], array[:, None]], axis=1)
            new[start, :-1] = 0
            self.frames[key] = new
            result[key] = new.reshape(len(array), -1).copy()
        return result

    def peek(self, observation: Any, i: int) -> Any:
        """One environment's observation stacked on its past without taking it in: for `terminal_observation`."""
        if not isinstance(observation, dict):
            return self.peek({"": observation}, i)[""]
        return {
            key: array if key == MASK else np.concatenate([self.frames[key][i, 1:].ravel(), array]) for key, array in observation.items()
        }


class VecStackObservations(VecEnvWrapper):
    """Shows the policy the latest `k` observations (SB3's `VecFrameStack` refuses dictionaries with a mask)."""

    def __init__(self, venv: VecEnv, k: int) -> None:
        self.stacker = Stacker(k)
        super().__init__(venv, observation_space=self.stacker.space(venv.observation_space))

    @property
    def frames(self) -> Arrays:
        """The past, for saving and restoring."""
        return self.stacker.frames

    @frames.setter
    def frames(self, frames: Arrays) -> None:
        self.stacker.frames = frames

    def reset(self) -> VecEnvObs:
        """As the wrapped environment; the past is forgotten."""
        stacked: VecEnvObs = self.stacker.push(self.venv.reset(), np.ones(self.num_envs, np.bool_))
        return stacked

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for i in np.flatnonzero(dones):
            infos[i]["terminal_observation"] = self.stacker.peek(infos[i]["terminal_observation"], int(i))
        return self.stacker.push(observations, dones.astype(np.bool_)), rewards, dones, infos


class VecStepPenalty(VecEnvWrapper):
    """Subtracts a constant from every reward that is learned from; wrapped outside the monitor, which sees the task's own."""

    def __init__(self, venv: VecEnv, penalty: float) -> None:
        super().__init__(venv)
        self.penalty = np.float32(penalty)

    def reset(self) -> VecEnvObs:
        """As the wrapped environment."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment, less the penalty."""
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards - self.penalty, dones, infos


# What resuming exactly must put back.
WRAPPERS[VecStackObservations] = ("frames",)
