"""Feature extractors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class SharedMLPExtractor(BaseFeaturesExtractor):
    """Flattens the observation into fully connected layers that policy and value share.

    All keys of a dictionary are taken, in its order.

    SB3's default for dictionaries gives policy and value a first layer of their own over the whole
    observation; sharing it saves about a third of the time of an update. Use it with a smaller `net_arch`:
    `policy_kwargs=dict(features_extractor_class=SharedMLPExtractor, net_arch=[256])`.

    Args:
        observation_space: `Dict` of flattenable spaces, or one such space.
        features_dim: width of the layers and number of features.
        n_layers: how many layers, at least 1.
        activation_fn: after each layer.
        ignore: keys of a dictionary observation that the network is not shown.
        products: how many products of two learned linear maps of the observation the first layer sees besides. Tables over pairs of
            categories (a digit plus a digit) are learned in fewer steps with them.

    Raises:
        ValueError: `n_layers` below 1, `products` below 0, or `ignore` names keys that are not there or leaves none.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        features_dim: int = 256,
        n_layers: int = 1,
        activation_fn: type[nn.Module] = nn.Tanh,
        ignore: Sequence[str] = (),
        products: int = 0,
    ) -> None:
        super().__init__(observation_space, features_dim)
        if n_layers < 1:
            raise ValueError(f"n_layers must be at least 1, got {n_layers}")
        if products < 0:
            raise ValueError(f"products must be at least 0, got {products}")
        self.keys: list[str] | None = None
        if isinstance(observation_space, spaces.Dict):
            if unknown := set(ignore) - set(observation_space.spaces):
                raise ValueError(f"ignore names {sorted(unknown)}, which are not among the keys {list(observation_space.spaces)}")
            self.keys = [key for key in observation_space.spaces if key not in ignore]
            if not self.keys:
                raise ValueError("ignore leaves no key of the observation")
            width = sum(get_flattened_obs_dim(observation_space[key]) for key in self.keys)
        elif ignore:
            raise ValueError("ignore is for dictionary observations")
        else:
            width = get_flattened_obs_dim(observation_space)
        self.factors: nn.Module | None = nn.Linear(width, 2 * products) if products else None
        width += products
        layers: list[nn.Module] = []
        for _ in range(n_layers):
            layers += [nn.Linear(width, features_dim), activation_fn()]
            width = features_dim
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: th.Tensor | dict[str, th.Tensor]) -> th.Tensor:
        """Features, (batch, features_dim)."""
        if self.keys is None:
            assert isinstance(observations, th.Tensor)
            flat = observations.flatten(start_dim=1)
        else:
            assert isinstance(observations, dict)
            flat = th.cat([observations[key].flatten(start_dim=1) for key in self.keys], dim=1)
        if self.factors is not None:
            left, right = self.factors(flat).chunk(2, dim=1)
            flat = th.cat([flat, left * right], dim=1)
        features: th.Tensor = self.layers(flat)
        return features
