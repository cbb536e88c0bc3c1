"""Priors as terms of a student's loss (MISSION B8)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch as th
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.distributions import action_log_probs, divergence, state_values
from rao_agents.distillation.episodes import States
from rao_agents.distillation.priors import Priors, bellman_loss, frame_rewards, perturbed, temporal_loss
from rao_agents.distillation.segments import NONE, Frames, Index


class StudentPriors:
    """The terms for some of the remembered states.

    Args:
        priors: with their weights.
        found: all remembered steps, whole episodes.
        drawn: which of them the student learns from, int64 (N,).
    """

    def __init__(self, priors: Priors, found: States, drawn: Index) -> None:
        self.priors, self.found, self.drawn = priors, found, drawn
        follows = Frames(found).successors() if priors.temporal or priors.bellman else np.full(len(found), NONE, np.int64)
        self.after: Index = follows[drawn]
        self.rewards: npt.NDArray[np.float32] | None = None
        if priors.bellman:
            self.rewards = frame_rewards(found, follows, priors.gamma, priors.gae_lambda)[drawn]

    def loss(self, student: BasePolicy, part: Index, log_probs: th.Tensor, values: th.Tensor, rng: np.random.Generator) -> th.Tensor:
        """The weighted sum of the terms, a scalar.

        Args:
            student: that learns.
            part: places in `drawn`, int64 (n,).
            log_probs: the student's there, (n, actions), with gradient.
            values: the student's there, (n,), with gradient.
            rng: of the noise.
        """
        total = log_probs.new_zeros(())
        if self.priors.smoothness:
            there = self.found.at(self.drawn[part])
            noisy = perturbed(there.observations, student.observation_space, self.priors.noise, rng)
            moved = action_log_probs(student, noisy, there.action_masks)
            total = total + self.priors.smoothness * divergence(log_probs.detach(), moved).mean()
        goes_on = np.flatnonzero(self.after[part] != NONE)
        if self.priors.temporal and len(goes_on):
            then = self.found.at(self.after[part[goes_on]])
            following = action_log_probs(student, then.observations, then.action_masks)
            total = total + self.priors.temporal * temporal_loss(log_probs[th.as_tensor(goes_on)], following)
        if self.rewards is not None:
            total = total + self.priors.bellman * self._bellman(student, part, values, goes_on)
        return total

    def _bellman(self, student: BasePolicy, part: Index, values: th.Tensor, goes_on: Index) -> th.Tensor:
        """The residual at the run's own steps: what is known of experts' has no values to take rewards from."""
        assert self.rewards is not None
        following = values.new_zeros(len(part))
        if len(goes_on):
            with th.no_grad():
                following[th.as_tensor(goes_on)] = state_values(student, self.found.at(self.after[part[goes_on]]).observations)
        own = th.as_tensor(np.flatnonzero(~self.found.expert[self.drawn[part]]))
        if not len(own):
            return values.new_zeros(())
        return bellman_loss(values[own], following[own], th.as_tensor(self.rewards[part])[own], self.priors.gamma)
