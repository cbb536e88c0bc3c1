"""How what was distilled enters the policy's update, without a copy of Stable-Baselines3's training loop (MISSION B5, B6).

Every one of its policy-gradient algorithms ends each minibatch in zero_grad, backward, clip and `policy.optimizer.step()`. PyTorch calls
hooks just before a step: there the gradient of the auxiliary loss, on remembered states, is added to the one that the algorithm has just
computed. For a loss L + w A that is the same as differentiating the sum; only the clipping is apart, so that the two terms cannot crowd
each other out. The algorithm is neither changed nor subclassed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch as th
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy

from rao_agents.distillation.distributions import normalised
from rao_agents.distillation.episodes import States
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.observations import as_masks, as_policy_input, as_tensors

CHUNK = 4096
"""States that knowledge is asked about at a time."""


class Pool:
    """The states that one round of distillation injects, as tensors, with what the knowledge says about them.

    Args:
        found: the states, n of them.
        knowledge: asked once about all of them.
        device: of the policy.
        expert_trust: in states of experts, the share of the target that is the expert's own action.
    """

    def __init__(self, found: States, knowledge: Knowledge, device: th.device | str, expert_trust: float = 0.9) -> None:
        self.states = found
        self.obs = as_tensors(found.observations, device)
        self.masks = as_masks(found.action_masks, device)
        self.actions = th.as_tensor(found.actions, device=device)
        self.advantages = th.as_tensor(found.advantages, device=device)
        self.returns = th.as_tensor(found.returns, device=device)
        self.experts = th.as_tensor(found.expert, device=device)
        self.log_probs = _asked(knowledge.action_log_probs, found)
        self.values = _asked(lambda obs, masks: knowledge.value(obs), found)
        if self.log_probs is not None:
            self.log_probs = self._trusting(self.log_probs.to(device), expert_trust)
        if self.values is not None:
            self.values = self.values.to(device).flatten()

    def __len__(self) -> int:
        return len(self.states)

    def _trusting(self, log_probs: th.Tensor, trust: float) -> th.Tensor:
        """The targets; where an expert acted, mostly what it did."""
        if not bool(self.experts.any()):
            return log_probs
        rows = self.experts
        own = th.nn.functional.one_hot(self.actions[rows], log_probs.shape[1]).to(log_probs.dtype)
        mixed = trust * own + (1 - trust) * log_probs[rows].exp()
        result = log_probs.clone()
        result[rows] = normalised(mixed.clamp_min(1e-12).log(), None if self.masks is None else self.masks[rows])
        return result

    def batch(self, policy: BasePolicy, index: npt.NDArray[np.int64]) -> Batch:
        """The states at `index`."""
        return Batch(self, policy, th.as_tensor(index, device=self.actions.device))


class Batch:
    """Some states of a pool; what the policy says about them is computed once, when it is first asked for."""

    def __init__(self, pool: Pool, policy: BasePolicy, index: th.Tensor) -> None:
        self.pool, self.policy, self.index = pool, policy, index
        self._outputs: tuple[th.Tensor, th.Tensor] | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def masks(self) -> th.Tensor | None:
        """Which actions are allowed, bool (n, actions); None without masks."""
        return None if self.pool.masks is None else self.pool.masks[self.index]

    @property
    def log_probs(self) -> th.Tensor:
        """The policy's log-probabilities of all actions, with gradient, (n, actions)."""
        return self._evaluated()[0]

    @property
    def values(self) -> th.Tensor:
        """The critic's values, with gradient, (n,)."""
        return self._evaluated()[1]

    def _evaluated(self) -> tuple[th.Tensor, th.Tensor]:
        if self._outputs is None:
            obs = as_policy_input({key: value[self.index] for key, value in self.pool.obs.items()}, self.index.device)
            self._outputs = policy_outputs(self.policy, obs, self.pool.actions[self.index], self.masks)
        return self._outputs


def policy_outputs(policy: BasePolicy, obs: Any, actions: th.Tensor, masks: th.Tensor | None) -> tuple[th.Tensor, th.Tensor]:
    """Log-probabilities of all actions (n, actions) and values (n,), both with gradient, in one pass.

    Args:
        policy: an actor-critic with Discrete actions.
        obs: as the policy takes them, tensors.
        actions: any allowed ones, (n,).
        masks: bool (n, actions) or None; policies that do not know masks ignore them.
    """
    checked = cast(ActorCriticPolicy, policy)
    # The class's own: RecursiveA2C puts one with masks of its own in front of it while it learns.
    evaluate: Any = type(policy).evaluate_actions  # type: ignore[attr-defined]
    more = (masks,) if isinstance(policy, MaskableActorCriticPolicy) else ()
    values, _, _ = evaluate(policy, obs, actions, *more)
    distribution: Any = checked.action_dist
    return distribution.distribution.logits, values.flatten()


def _asked(question: Callable[..., th.Tensor | None], found: States) -> th.Tensor | None:
    """What knowledge answers about all of `found`, some at a time."""
    answers: list[th.Tensor] = []
    for start in range(0, len(found), CHUNK):
        part = found.at(np.arange(start, min(start + CHUNK, len(found))))
        with th.no_grad():
            answer = question(part.observations, part.action_masks)
        if answer is None:
            return None
        answers.append(answer)
    return th.cat(answers)


@dataclass
class Tally:
    """Figures of the steps since they were last taken: sums and counts by name."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Count one value."""
        self.sums[name] = self.sums.get(name, 0.0) + value
        self.counts[name] = self.counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means, and begin anew."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means


class GradientInjection:
    """Adds the gradient of a loss of ours to every step (or each `every`-th) of a policy's optimiser.

    Args:
        model: its policy's optimiser is watched.
        loss: computes the loss with gradient; None for nothing this time.
        max_grad_norm: bound of our own gradient's norm, as the algorithm has one for its own; None for no bound.
        every: steps of the optimiser between two injections; the gradient is not scaled up.
    """

    COSINE_EVERY = 16

    def __init__(
        self, model: BaseAlgorithm, loss: Callable[[], th.Tensor | None], max_grad_norm: float | None = 0.5, every: int = 1
    ) -> None:
        self.model, self.loss, self.max_grad_norm, self.every = model, loss, max_grad_norm, every
        self.calls = 0
        self.tally = Tally()
        self._handle: Any = None

    def install(self) -> None:
        """Begin; a second time changes nothing."""
        if self._handle is None:
            self._handle = self.model.policy.optimizer.register_step_pre_hook(self._before_step)

    def remove(self) -> None:
        """Stop."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _before_step(self, optimizer: th.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.calls += 1
        if self.calls % self.every:
            return
        with th.enable_grad():
            loss = self.loss()
            if loss is None:
                return
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            gradients = th.autograd.grad(loss, parameters, allow_unused=True)
        found: list[th.Tensor | None] = list(gradients)
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        norm = float(th.linalg.vector_norm(th.stack(th._foreach_norm([g for _, g in pairs]))))
        if not math.isfinite(norm):
            self.tally.add("skipped", 1.0)
            return
        scale = 1.0 if self.max_grad_norm is None else min(1.0, self.max_grad_norm / (norm + 1e-6))
        if self.calls % self.COSINE_EVERY == 0:
            self.tally.add("gradient_cosine", _cosine(pairs, norm))
        self.tally.add("loss", float(loss.detach()))
        self.tally.add("gradient_norm", norm)
        for parameter, gradient in pairs:
            own = _gradient(parameter)
            parameter.grad = gradient * scale if own is None else own.add_(gradient, alpha=scale)


def _gradient(parameter: th.Tensor) -> th.Tensor | None:
    return parameter.grad


def _cosine(pairs: list[tuple[th.Tensor, th.Tensor]], norm: float) -> float:
    """Between the algorithm's gradient and ours: below 0 they pull apart."""
    theirs = [(own, g) for p, g in pairs if (own := _gradient(p)) is not None]
    length = math.sqrt(sum(float((a * a).sum()) for a, _ in theirs))
    return sum(float((a * g).sum()) for a, g in theirs) / max(length * norm, 1e-12)
