"""What vector environments share whose environments are all alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices


class AlikeVecEnv(VecEnv):
    """Attributes are the same for all environments and fixed when they are made; there are no wrappers and no pictures."""

    def has_attr(self, attr_name: str) -> bool:
        """Whether `get_attr` or `env_method` would find it."""
        return hasattr(self, attr_name)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute that all have in common, once per environment."""
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Not offered: what the environments are is fixed when they are made."""
        raise AttributeError(f"{attr_name} of a {type(self).__name__} cannot be set: pass keyword arguments to make_vec_env")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None) -> list[bool]:
        """Never: batches have no Gymnasium wrappers."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """No pictures: render single environments."""
        return [None] * self.num_envs
