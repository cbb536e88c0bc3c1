"""Specialists: several networks in one policy, each acting in frames of its own level or role (MISSION A11).

They begin as copies of one network and are trained together, by one optimiser and one update: every row goes through
the network of the frame that acted in it and through no other. Which one that is, the observation's `frame` says
(see `frame_key`); the networks themselves do not see it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch as th
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

SPECIALISTS = ("none", "level", "role")
"""One network for all frames; one for each depth; one for each spawn action that can open a frame, and one for the root."""

Inputs = th.Tensor | dict[str, th.Tensor]


class Route:
    """Whose turn it is: the network of every row of the batch under way.

    Args:
        kind: "level" or "role".
        n: how many networks there are.
        spawn_actions: the roles, in order, after the root's.
        n_actions: primitives and spawns.
    """

    def __init__(self, kind: str, n: int, spawn_actions: Sequence[int], n_actions: int) -> None:
        self.kind, self.n = kind, n
        # By the action that opened a frame, plus 1 (the root's is -1).
        self.roles = th.zeros(n_actions + 1, dtype=th.long)
        for role, action in enumerate(spawn_actions):
            self.roles[action + 1] = min(role + 1, n - 1)
        self.index: th.Tensor | None = None
        self._present: list[int] = []
        self._groups: list[th.Tensor] = []
        self._back: th.Tensor | None = None

    def of(self, frame: th.Tensor) -> th.Tensor:
        """The networks for frames (batch, 3), as the observation gives them: long (batch,).

        Raises:
            ValueError: The values are not whole: something (a normalising wrapper) changed them on the way.
        """
        if frame.is_floating_point() and not bool((frame == frame.round()).all()):
            raise ValueError(
                "observation['frame'] must hold whole numbers. If a wrapper normalises observations, leave that key out "
                "(VecNormalize(..., norm_obs_keys=[...]))."
            )
        frame = frame.long()
        if self.kind == "level":
            return frame[:, 0].clamp(0, self.n - 1)
        return self.roles.to(frame.device)[(frame[:, 2] + 1).clamp(0, len(self.roles) - 1)]

    def set(self, frame: th.Tensor) -> None:
        """Begin with a batch of these frames, (batch, 3)."""
        self.index = self.of(frame)
        self._present = th.unique(self.index).tolist()
        self._groups, self._back = [], None

    def run(self, networks: Sequence[Callable[[Any], th.Tensor]], inputs: Inputs) -> th.Tensor:
        """Each row's own network on its row: (batch, width).

        With gradients, every network is given its own rows only. Without, all rows, of which its own are kept: then
        what a row gives does not depend (in rounding) on which others are in the batch.
        """
        if self.index is None:
            raise RuntimeError("specialists are chosen by the observation's frame: use the policy's own methods, which take observations")
        if len(self._present) == 1:
            return networks[self._present[0]](inputs)
        if not th.is_grad_enabled():
            result = networks[self._present[0]](inputs)
            for number in self._present[1:]:
                result = th.where((self.index == number).unsqueeze(1), networks[number](inputs), result)
            return result
        if self._back is None:
            self._groups = [(self.index == number).nonzero().squeeze(1) for number in self._present]
            self._back = th.argsort(th.cat(self._groups))
        parts = [networks[number](_rows(inputs, group)) for number, group in zip(self._present, self._groups, strict=True)]
        return th.cat(parts)[self._back]


def _rows(inputs: Inputs, rows: th.Tensor) -> Inputs:
    if isinstance(inputs, dict):
        return {key: value[rows] for key, value in inputs.items()}
    return inputs[rows]


class RoutedModule(nn.Module):
    """One of several modules for each row.

    Args:
        specialists: of equal shapes.
        route: says which.
    """

    def __init__(self, specialists: Sequence[nn.Module], route: Route) -> None:
        super().__init__()
        self.specialists = nn.ModuleList(specialists)
        self.route = route

    def forward(self, inputs: Inputs) -> th.Tensor:
        """(batch, width)."""
        return self.route.run(list(self.specialists), inputs)


class RoutedExtractor(BaseFeaturesExtractor):
    """One of several features extractors for each row; see `RoutedModule`."""

    def __init__(self, specialists: Sequence[BaseFeaturesExtractor], route: Route) -> None:
        super().__init__(specialists[0]._observation_space, specialists[0].features_dim)
        self.specialists = nn.ModuleList(specialists)
        self.route = route

    def forward(self, observations: Inputs) -> th.Tensor:
        """Features, (batch, features_dim)."""
        return self.route.run(list(self.specialists), observations)


class RoutedMlpExtractor(nn.Module):
    """One of several of SB3's `MlpExtractor` for each row; see `RoutedModule`."""

    def __init__(self, specialists: Sequence[Any], route: Route) -> None:
        super().__init__()
        self.specialists = nn.ModuleList(specialists)
        self.route = route
        self.latent_dim_pi, self.latent_dim_vf = specialists[0].latent_dim_pi, specialists[0].latent_dim_vf

    def forward(self, features: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Latents of policy and value."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: th.Tensor) -> th.Tensor:
        """Latent of the policy, (batch, latent_dim_pi)."""
        networks: list[Any] = list(self.specialists)
        return self.route.run([each.forward_actor for each in networks], features)

    def forward_critic(self, features: th.Tensor) -> th.Tensor:
        """Latent of the value, (batch, latent_dim_vf)."""
        networks: list[Any] = list(self.specialists)
        return self.route.run([each.forward_critic for each in networks], features)


def specialise(policy: Any, route: Route) -> None:
    """Put as many copies as `route` chooses from in place of each network of `policy`, an SB3 actor-critic.

    A features extractor whose class has a true `shared_by_specialists` stays one for all. The optimiser has to be made
    anew afterwards.
    """

    def copies(module: nn.Module) -> list[Any]:
        return [module, *(copy.deepcopy(module) for _ in range(route.n - 1))]

    def routed(extractor: BaseFeaturesExtractor) -> BaseFeaturesExtractor:
        return extractor if getattr(extractor, "shared_by_specialists", False) else RoutedExtractor(copies(extractor), route)

    policy.features_extractor = routed(policy.features_extractor)
    policy.pi_features_extractor = policy.features_extractor
    policy.vf_features_extractor = policy.features_extractor if policy.share_features_extractor else routed(policy.vf_features_extractor)
    policy.mlp_extractor = RoutedMlpExtractor(copies(policy.mlp_extractor), route)
    policy.action_net = RoutedModule(copies(policy.action_net), route)
    policy.value_net = RoutedModule(copies(policy.value_net), route)


def how_many(kind: str, n: Any, spawn_actions: Sequence[int]) -> int:
    """How many specialists of `kind` there are: `n`, or by default 2 levels, or one for the root and each spawn action.

    Raises:
        ValueError: `n` is not a whole number from 2 up to what the kind can tell apart.
    """
    roles = 1 + len(spawn_actions)
    if n is None:
        return roles if kind == "role" else 2
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise ValueError(f"n_specialists must be a whole number of at least 2, or None, got {n!r}")
    if kind == "role" and n > roles:
        raise ValueError(f"there are {roles} roles here (the root, and one for each spawn action), n_specialists is {n}")
    return n
