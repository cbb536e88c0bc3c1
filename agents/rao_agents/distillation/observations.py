"""Observations as distillers take them: batches of arrays by key, and as plain vectors for small networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, preprocess_obs
from torch import nn

from rao_agents.tap import MASK_KEY
from rao_envs.core.callstack import FRAME_KEY

PLAIN = ""
"""The key of an observation that is one array and not a dictionary."""

HIDDEN = (MASK_KEY, FRAME_KEY)
"""Keys that no distilled network reads: what is allowed is applied as a mask, and where a frame is on the stack is nobody's feature."""

CLIP = 10.0
"""Standardised features are kept within this many standard deviations."""

Values = npt.NDArray[Any] | th.Tensor
Observations = Mapping[str, Values] | Values
"""A batch of observations: arrays or tensors (n, *shape) by key, or one such array; a plain one may also be given under the key ""."""


def as_tensors(obs: Observations, device: th.device | str = "cpu") -> dict[str, th.Tensor]:
    """`obs` as tensors (n, *shape) by key; a plain observation has the key ""."""
    parts = obs if isinstance(obs, Mapping) else {PLAIN: obs}
    return {key: th.as_tensor(value, device=device) for key, value in parts.items()}


def as_policy_input(obs: Observations, device: th.device | str = "cpu") -> th.Tensor | dict[str, th.Tensor]:
    """`obs` as a Stable-Baselines3 policy takes it: a dictionary of tensors, or one tensor for plain observations."""
    tensors = as_tensors(obs, device)
    return tensors[PLAIN] if tuple(tensors) == (PLAIN,) else tensors


def as_masks(masks: Values | None, device: th.device | str = "cpu") -> th.Tensor | None:
    """Action masks as a bool tensor (n, actions), or None."""
    return None if masks is None else th.as_tensor(masks, device=device).bool()


def n_observations(obs: Observations) -> int:
    """How many observations the batch holds."""
    return len(next(iter(obs.values()))) if isinstance(obs, Mapping) else len(obs)


def take(obs: Mapping[str, npt.NDArray[Any]], index: Any) -> dict[str, npt.NDArray[Any]]:
    """The observations at `index` (anything that indexes arrays)."""
    return {key: value[index] for key, value in obs.items()}


class ObservationVector(nn.Module):
    """Observations of a space as standardised vectors, (n, width) float32.

    Every key is encoded as Stable-Baselines3 does (categories as one-hot, images divided by 255), flattened, and the whole is shifted
    and scaled by what `fit` saw. Features that never varied are only shifted. Mask and frame keys are left out.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
        ignore: keys that are left out besides.

    Raises:
        ValueError: a space of another kind, or no key is left.
    """

    mean: th.Tensor
    scale: th.Tensor

    def __init__(self, space: spaces.Space[Any], ignore: Sequence[str] = ()) -> None:
        super().__init__()
        self.space, self.ignore = space, tuple(ignore)
        self.parts: dict[str, spaces.Space[Any]] = {PLAIN: space}
        if isinstance(space, spaces.Dict):
            self.parts = {key: part for key, part in space.spaces.items() if key not in HIDDEN and key not in self.ignore}
        if not self.parts:
            raise ValueError(f"no key of the observation is left: {space}")
        for key, part in self.parts.items():
            if not isinstance(part, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
                raise ValueError(
                    f"observations{f'[{key!r}]' if key else ''} must be Box, Discrete, MultiDiscrete or MultiBinary, got {part}"
                )
        self.slices: dict[str, slice] = {}
        start = 0
        for key, part in self.parts.items():
            end = start + get_flattened_obs_dim(part)
            self.slices[key] = slice(start, end)
            start = end
        self.width = start
        self.register_buffer("mean", th.zeros(start))
        self.register_buffer("scale", th.ones(start))

    @property
    def names(self) -> list[str]:
        """A name for each feature: "key[3]", or "[3]" for plain observations."""
        return [f"{key}[{i}]" for key, part in self.slices.items() for i in range(part.stop - part.start)]

    def raw(self, obs: Observations) -> th.Tensor:
        """The vectors before they are standardised, (n, width)."""
        tensors = as_tensors(obs, self.mean.device)
        flat = [
            cast(th.Tensor, preprocess_obs(tensors[key], part, normalize_images=True)).float().flatten(start_dim=1)
            for key, part in self.parts.items()
        ]
        return th.cat(flat, dim=1)

    def fit(self, obs: Observations) -> None:
        """Take shift and scale from `obs`: mean and standard deviation of every feature."""
        with th.no_grad():
            vectors = self.raw(obs)
            deviation = vectors.std(dim=0, unbiased=False)
            self.mean.copy_(vectors.mean(dim=0))
            self.scale.copy_(th.where(deviation > 1e-6, deviation, th.ones_like(deviation)))

    def forward(self, obs: Observations) -> th.Tensor:
        """The standardised vectors, (n, width)."""
        return ((self.raw(obs) - self.mean) / self.scale).clamp(-CLIP, CLIP)


def one_hot(actions: Values, n_actions: int) -> th.Tensor:
    """Actions (n,) as float32 (n, n_actions)."""
    return nn.functional.one_hot(th.as_tensor(np.asarray(actions)).long(), n_actions).float()
