"""A policy's choice among discrete actions as one matrix of log-probabilities, whichever Stable-Baselines3 policy it is."""

from __future__ import annotations

from typing import Any, cast

import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy

from rao_agents.distillation.observations import Observations, Values, as_masks, as_policy_input
from rao_agents.policies import EXCLUDED


def check_policy(policy: BasePolicy) -> ActorCriticPolicy:
    """`policy` as what distillation can work with.

    Raises:
        ValueError: it is recurrent, not an actor-critic, or its actions are not Discrete.
    """
    if not isinstance(policy, (ActorCriticPolicy, MaskableActorCriticPolicy)):
        raise ValueError(
            f"distillation needs an actor-critic policy (PPO, A2C, MaskablePPO, RecursivePPO, ...), got {type(policy).__name__}"
        )
    if hasattr(policy, "lstm_actor"):
        raise ValueError(f"{type(policy).__name__} is recurrent: its choice depends on more than the observation, which is not remembered")
    if not isinstance(policy.action_space, spaces.Discrete):
        raise ValueError(f"distillation needs a Discrete action space, got {policy.action_space}")
    return cast(ActorCriticPolicy, policy)


def action_log_probs(policy: BasePolicy, obs: Observations, masks: Values | None = None) -> th.Tensor:
    """Log-probabilities of all actions, (n, actions) float32, with gradient; about -1e8 where masked.

    Args:
        policy: of PPO, A2C, MaskablePPO, RecursivePPO or RecursiveA2C (see `check_policy`).
        obs: the observations, (n, *shape) by key.
        masks: bool (n, actions); policies that do not know masks ignore them, as they do when they act.
    """
    distribution: Any
    inputs = as_policy_input(obs, policy.device)
    if isinstance(policy, MaskableActorCriticPolicy):
        distribution = policy.get_distribution(inputs, cast(Any, as_masks(masks, policy.device)))
    else:
        distribution = cast(ActorCriticPolicy, policy).get_distribution(cast(Any, inputs))
    logits: th.Tensor = distribution.distribution.logits
    return logits


def state_values(policy: BasePolicy, obs: Observations) -> th.Tensor:
    """The critic's values, (n,) float32, with gradient."""
    values: th.Tensor = cast(ActorCriticPolicy, policy).predict_values(cast(Any, as_policy_input(obs, policy.device)))
    return values.flatten()


def normalised(log_probs: th.Tensor, masks: Values | None = None) -> th.Tensor:
    """Scores (n, actions) as log-probabilities over the allowed actions; EXCLUDED where masked.

    A row that allows nothing is read as one that allows everything, as the policies do.
    """
    allowed = as_masks(masks, log_probs.device)
    if allowed is not None:
        allowed = allowed | ~allowed.any(dim=1, keepdim=True)
        log_probs = th.where(allowed, log_probs, log_probs.new_tensor(EXCLUDED))
    result = th.log_softmax(log_probs, dim=1)
    return result if allowed is None else th.where(allowed, result, result.new_tensor(EXCLUDED))


def divergence(teacher: th.Tensor, student: th.Tensor) -> th.Tensor:
    """KL(teacher || student) of each row of log-probabilities (n, actions), in nats, (n,).

    Actions that the teacher excludes count nothing.
    """
    return (teacher.exp() * (teacher - student)).sum(dim=1)
