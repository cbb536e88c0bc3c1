"""A policy as part of knowledge: its class and arguments as plain values, its weights as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch as th
from stable_baselines3.common.policies import BasePolicy
from torch import nn

from rao_agents import schedules
from rao_agents.distillation.distributions import action_log_probs, check_policy, state_values
from rao_agents.distillation.knowledge import WEIGHTED
from rao_agents.distillation.observations import Observations, Values


def policy_spec(policy: BasePolicy) -> dict[str, Any]:
    """What `make_policy` needs to build a policy of the same architecture: its class and its arguments."""
    parameters = {key: value for key, value in policy._get_constructor_parameters().items() if key != "lr_schedule"}
    # Upstream leaves it out of what it saves.
    parameters["share_features_extractor"] = check_policy(policy).share_features_extractor
    return {"policy_class": type(policy), "parameters": parameters}


def make_policy(spec: Mapping[str, Any]) -> BasePolicy:
    """A policy with the architecture of `spec`, freshly initialised.

    Raises:
        ValueError: `spec` does not describe a policy.
    """
    cls, parameters = spec.get("policy_class"), spec.get("parameters")
    if not isinstance(cls, type) or not issubclass(cls, BasePolicy) or not isinstance(parameters, dict):
        raise ValueError("this does not describe a policy: it has no policy_class and parameters")
    constructor: Any = cls
    return cast(BasePolicy, constructor(**parameters, lr_schedule=schedules.constant(0.0)))


def policy_depth(policy: BasePolicy) -> int:
    """Layers with weights between an observation and the choice of an action."""
    checked = check_policy(policy)
    parts: tuple[nn.Module, ...] = (checked.features_extractor, checked.mlp_extractor.policy_net)
    return 1 + sum(isinstance(layer, WEIGHTED) for part in parts for layer in part.modules())


class FrozenPolicy(nn.Module):
    """A policy that no longer learns: a copy of one, or one built from its `spec`.

    Args:
        spec: from `policy_spec`.
        weights: a state dictionary; None leaves the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Mapping[str, th.Tensor] | None = None) -> None:
        super().__init__()
        self.policy = make_policy(spec)
        check_policy(self.policy)
        if weights is not None:
            self.policy.load_state_dict(weights)
        self.policy.set_training_mode(False)
        self.policy.requires_grad_(False)

    @staticmethod
    def of(policy: BasePolicy) -> FrozenPolicy:
        """A frozen copy of `policy`, on the CPU."""
        weights = {name: value.detach().cpu() for name, value in policy.state_dict().items()}
        with th.random.fork_rng(devices=[]):  # its initial weights are drawn for nothing
            return FrozenPolicy(policy_spec(policy), weights)

    @th.no_grad()
    def action_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """Log-probabilities of all actions, (n, actions) float32."""
        return action_log_probs(self.policy, obs, masks)

    @th.no_grad()
    def value(self, obs: Observations) -> th.Tensor:
        """The critic's values, (n,) float32."""
        return state_values(self.policy, obs)
