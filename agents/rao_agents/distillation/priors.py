"""What distilled policies and values should be like before any data is seen, as extra loss terms (MISSION B8).

Smoothness: nearly the same observation, nearly the same answer; and consecutive states of a frame, similar answers. Bellman consistency:
the value of a state is the reward plus the value of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces

from rao_agents.distillation.distributions import divergence
from rao_agents.distillation.episodes import States
from rao_agents.distillation.observations import HIDDEN, PLAIN
from rao_agents.distillation.segments import NONE, Index
from rao_envs.core.arguments import real_number


@dataclass(frozen=True)
class Priors:
    """How much each prior weighs in a distiller's loss; 0, the default, leaves it out.

    Args:
        smoothness: weight of the divergence between the answers to an observation with and without noise.
        noise: standard deviation of that noise, in standard deviations of each feature.
        temporal: weight of the divergence between the answers to consecutive states of a frame. It is wrong where one step changes what
            should be done; keep it small.
        bellman: weight of the squared Bellman residual of the values.
        gamma: discount of a frame's own steps, for the residual of values (a chance of success is not discounted).
        gae_lambda: that of the algorithm, by which the rewards are found again (`frame_rewards`).

    Raises:
        ValueError: a number out of range.
    """

    smoothness: float = 0.0
    noise: float = 0.1
    temporal: float = 0.0
    bellman: float = 0.0
    gamma: float = 0.99
    gae_lambda: float = 0.95

    def __post_init__(self) -> None:
        for name in ("smoothness", "noise", "temporal", "bellman"):
            object.__setattr__(self, name, real_number(name, getattr(self, name), 0.0, 1e6))
        for name in ("gamma", "gae_lambda"):
            object.__setattr__(self, name, real_number(name, getattr(self, name), 0.0, 1.0))

    @property
    def active(self) -> bool:
        """Whether any prior has a weight."""
        return self.smoothness > 0 or self.temporal > 0 or self.bellman > 0

    def config(self) -> dict[str, float]:
        """The arguments, as plain values."""
        return asdict(self)

    @staticmethod
    def parse(value: Priors | Mapping[str, Any] | None) -> Priors:
        """Priors as arguments and configurations give them: themselves, their arguments, or None for none.

        Raises:
            ValueError: unknown names.
        """
        if isinstance(value, Priors):
            return value
        try:
            return Priors(**(value or {}))
        except TypeError as error:
            raise ValueError(f"priors are given by smoothness, noise, temporal, bellman, gamma and gae_lambda: {error}") from None


def smoothness_loss(
    log_probs: Callable[[th.Tensor], th.Tensor], inputs: th.Tensor, noise: float, generator: th.Generator | None = None
) -> th.Tensor:
    """Mean KL between the answers to `inputs` (held fixed) and to `inputs` with noise, in nats; a scalar.

    Args:
        log_probs: from standardised vectors (n, width) to log-probabilities (n, k).
        inputs: the vectors.
        noise: standard deviation of what is added.
        generator: of the noise; None for torch's own.
    """
    moved = inputs + noise * th.randn(inputs.shape, generator=generator, dtype=inputs.dtype, device=inputs.device)
    return divergence(log_probs(inputs).detach(), log_probs(moved)).mean()


def value_smoothness_loss(
    values: Callable[[th.Tensor], th.Tensor], inputs: th.Tensor, noise: float, generator: th.Generator | None = None
) -> th.Tensor:
    """As `smoothness_loss` for numbers: mean squared change; a scalar."""
    moved = inputs + noise * th.randn(inputs.shape, generator=generator, dtype=inputs.dtype, device=inputs.device)
    return (values(moved) - values(inputs).detach()).square().mean()


def temporal_loss(now: th.Tensor, after: th.Tensor) -> th.Tensor:
    """Mean symmetric KL between log-probabilities (n, k) at consecutive states, over the actions that both allow; a scalar."""
    both = (now > -1e7) & (after > -1e7)
    gap = th.where(both, now - after, now.new_zeros(()))
    return (0.5 * (now.exp() - after.exp()) * gap).sum(dim=1).mean()


def bellman_loss(values: th.Tensor, after: th.Tensor, rewards: th.Tensor, gamma: float) -> th.Tensor:
    """Mean squared Bellman residual, semi-gradient; a scalar.

    Args:
        values: of the states, (n,), with gradient.
        after: of the frame's next states, (n,); 0 where the frame ended. Held fixed.
        rewards: of the frame, (n,).
        gamma: discount.
    """
    return (values - (rewards + gamma * after.detach())).square().mean()


def frame_rewards(states: States, successors: Index, gamma: float, gae_lambda: float) -> npt.NDArray[np.float32]:
    """The rewards that the algorithm credited to each step, float32 (N,), from its advantages and values.

    Generalised advantage estimation is solved for the reward: r = A - gamma lambda A' + V - gamma V', which holds for per-frame credit
    too, where a frame's next state is after what its children did. Where a rollout ended between a step and the next, the estimate was
    cut there, and the answer is off by gamma lambda A'.

    Args:
        states: the steps.
        successors: of `Frames.successors`.
        gamma: the algorithm's discount.
        gae_lambda: the algorithm's.
    """
    goes_on = successors != NONE
    after_value = np.where(goes_on, states.values[successors], 0.0)
    after_advantage = np.where(goes_on, states.advantages[successors], 0.0)
    return (states.advantages - gamma * gae_lambda * after_advantage + states.values - gamma * after_value).astype(np.float32)


def perturbed(
    obs: Mapping[str, npt.NDArray[Any]], space: spaces.Space[Any], noise: float, rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    """Observations with noise on every Box, for networks that take no vectors.

    Args:
        obs: (n, *shape) by key ("" for plain ones).
        space: of the observations.
        noise: standard deviation, in standard deviations of each feature among `obs`.
        rng: of the noise.

    Returns:
        The same keys; those with noise as float32. Categories, masks and features that do not vary stay as they are.
    """
    parts = space.spaces if isinstance(space, spaces.Dict) else {PLAIN: space}
    result: dict[str, npt.NDArray[Any]] = {}
    for key, values in obs.items():
        if key in HIDDEN or not isinstance(parts.get(key), spaces.Box):
            result[key] = values
        else:
            added = noise * values.std(axis=0, dtype=np.float64) * rng.standard_normal(values.shape)
            result[key] = (values + added).astype(np.float32)
    return result
