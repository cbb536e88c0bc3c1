"""Ways to put knowledge into a policy: losses beside the algorithm's own, and changes of its weights (MISSION B5, B6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch as th
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from rao_agents import schedules
from rao_agents.distillation.distributions import divergence
from rao_agents.distillation.injection import Batch, Pool, Tally
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.recursive_algorithm import AnySchedule

State = dict[str, Any]


@dataclass(frozen=True)
class Injection:
    """What a round of distillation hands to its injectors.

    Args:
        model: that is learning.
        knowledge: what was distilled.
        pool: the states that were chosen, with the knowledge's answers.
        rng: the only source of randomness.
        strength: 1, or less after rounds that were taken back; scales whatever an injector does.
    """

    model: OnPolicyAlgorithm
    knowledge: Knowledge
    pool: Pool
    rng: np.random.Generator
    strength: float


class Injector:
    """One way; the base of all. Made from plain arguments (`config`), and what it remembers is plain (`state`)."""

    kind: ClassVar[str] = ""
    immediate: ClassVar[bool] = False
    """Whether `begin` changes the policy, so that a guard looks at once."""

    def begin(self, round_: Injection) -> None:
        """A round begins; called between rollouts. Weights may be changed here.

        Raises:
            ValueError: the knowledge does not offer what this needs.
        """

    def resume(self, round_: Injection) -> None:
        """A round goes on after its training was resumed: make what `begin` made, but change no weights, and draw nothing."""

    def loss(self, model: OnPolicyAlgorithm, batch: Batch) -> th.Tensor | None:
        """What is minimised beside the algorithm's loss in this step of the optimiser; None for nothing."""
        return None

    def step(self, model: OnPolicyAlgorithm, variables: Mapping[str, Any]) -> None:
        """After an environment step, with the local variables of the algorithm's rollout."""

    def end(self, model: OnPolicyAlgorithm) -> None:
        """The round was taken back, or the training ends."""

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {}

    def state(self) -> State:
        """What it remembers: plain values and arrays."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""

    def figures(self) -> dict[str, float]:
        """Numbers for the log since the last call."""
        return {}


class Scheduled:
    """A weight that may be anything that `schedules.parse` takes, and is scaled by a round's strength."""

    def __init__(self, name: str, weight: AnySchedule) -> None:
        self.schedule = schedules.parse(weight)
        values = [self.at(remaining) for remaining in (1.0, 0.5, 0.0)]
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise ValueError(f"{name} must be at least 0 throughout, got {weight!r}")

    def at(self, remaining: float) -> float:
        """Its value where `remaining` of the training remains, in [0, 1]."""
        return float(self.schedule(remaining)) if callable(self.schedule) else float(self.schedule)

    def now(self, model: OnPolicyAlgorithm) -> float:
        """Its value now."""
        return self.at(model._current_progress_remaining)

    def plain(self) -> Any:
        """As plain values."""
        return schedules.describe(self.schedule) if callable(self.schedule) else self.schedule


class AuxiliaryLoss(Injector):
    """Losses on remembered states, beside the algorithm's own (the multi-task form).

    The loss is weight * strength * (KL(teacher || policy) + imitation * imitation term + value_weight * squared value error), where

    - the teacher is the knowledge (its `action_log_probs`); a knowledge that offers none adds no such term. In experts' states the
      target is mostly the expert's action;
    - the imitation term is self-imitation (Oh et al. 2018): -log pi(a|s) times by how much a's advantage exceeds 0, in units of the
      pool's standard deviation, at most 3;
    - values are drawn to what the returns of the remembered steps were (`value_target="returns"`), or to the knowledge's (`"knowledge"`).

    Args:
        weight: of the whole; a number or a schedule over the training's course.
        teacher: factor of the KL term.
        imitation: factor of the imitation term.
        value_weight: factor of the value term; 0 leaves the critic alone.
        value_target: "returns" or "knowledge".

    Raises:
        ValueError: a number out of range, or another word.
    """

    kind = "auxiliary"
    MOST = 3.0

    def __init__(
        self,
        weight: AnySchedule = 1.0,
        teacher: float = 1.0,
        imitation: float = 0.0,
        value_weight: float = 0.0,
        value_target: str = "returns",
    ) -> None:
        self.weight = Scheduled("weight", weight)
        for name, value in (("teacher", teacher), ("imitation", imitation), ("value_weight", value_weight)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
        if value_target not in ("returns", "knowledge"):
            raise ValueError(f"value_target must be returns or knowledge, got {value_target!r}")
        self.teacher, self.imitation, self.value_weight, self.value_target = teacher, imitation, value_weight, value_target
        self.strength = 0.0
        self.active = False
        self.tally = Tally()

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        self.resume(round_)

    def resume(self, round_: Injection) -> None:
        """See `Injector`."""
        if self.value_weight and self.value_target == "knowledge" and round_.pool.values is None:
            raise ValueError(f"{round_.knowledge.kind} knowledge offers no values: use value_target='returns', or value_weight=0")
        self.strength, self.active = round_.strength, True
        self.scale = float(round_.pool.advantages.std(unbiased=False)) or 1.0

    def loss(self, model: OnPolicyAlgorithm, batch: Batch) -> th.Tensor | None:
        """See `Injector`."""
        weight = self.weight.now(model) * self.strength
        if not self.active or weight == 0:
            return None
        pool, index = batch.pool, batch.index
        total: th.Tensor | None = None

        def add(name: str, term: th.Tensor, factor: float) -> None:
            nonlocal total
            self.tally.add(name, float(term.detach()))
            total = factor * term if total is None else total + factor * term

        if self.teacher and pool.log_probs is not None:
            add("kl", divergence(pool.log_probs[index], batch.log_probs).mean(), self.teacher)
        if self.imitation:
            gain = (pool.advantages[index] / self.scale).clamp(0.0, self.MOST)
            chosen = batch.log_probs.gather(1, pool.actions[index].unsqueeze(1)).squeeze(1)
            add("imitation", -(gain * chosen).mean(), self.imitation)
        if self.value_weight:
            target = pool.returns if self.value_target == "returns" else cast(th.Tensor, pool.values)
            own = ~pool.experts[index]
            error = (batch.values - target[index]).square()
            add("value_error", (error * own).sum() / own.sum().clamp_min(1), self.value_weight)
        self.tally.add("weight", weight)
        return None if total is None else weight * total

    def end(self, model: OnPolicyAlgorithm) -> None:
        """See `Injector`."""
        self.active = False

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {
            "weight": self.weight.plain(),
            "teacher": self.teacher,
            "imitation": self.imitation,
            "value_weight": self.value_weight,
            "value_target": self.value_target,
        }

    def figures(self) -> dict[str, float]:
        """See `Injector`."""
        return self.tally.take()


class ElasticWeightConsolidation(Injector):
    """Holds the weights that matter for what the policy does in the remembered states near where they were.

    The loss is weight * strength / 2 * sum F (theta - anchor)^2, with the Fisher information F of the policy's choices, estimated from
    the gradients of single states (Kirkpatrick et al. 2017), scaled to mean 1, so that `weight` means the same for any network.
    The anchor is the knowledge's weights where it is a policy of the same architecture, and the policy's own at the round's
    beginning otherwise.

    Args:
        weight: a number or a schedule.
        samples: states that F is estimated from.
    """

    kind = "consolidation"

    def __init__(self, weight: AnySchedule = 0.1, samples: int = 128) -> None:
        self.weight = Scheduled("weight", weight)
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples!r}")
        self.samples = int(samples)
        self.strength = 0.0
        self.anchor: dict[str, th.Tensor] = {}
        self.fisher: dict[str, th.Tensor] = {}
        self.tally = Tally()

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        policy, pool = round_.model.policy, round_.pool
        self.strength = round_.strength
        known = same_architecture(round_.knowledge, round_.model)
        self.anchor = {name: (known or {}).get(name, p).detach().clone() for name, p in policy.named_parameters()}
        self.fisher = {name: th.zeros_like(p) for name, p in policy.named_parameters()}
        index = round_.rng.integers(len(pool), size=min(self.samples, len(pool)))
        # Actions as the policy would take them: the Fisher information proper, not that of the data.
        for at in index:
            batch = pool.batch(policy, np.array([at]))
            probabilities = batch.log_probs.detach().exp().cpu().numpy()[0].astype(np.float64)
            action = int(round_.rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
            gradients = th.autograd.grad(batch.log_probs[0, action], list(policy.parameters()), allow_unused=True)
            for (name, _), gradient in zip(policy.named_parameters(), gradients, strict=True):
                if gradient is not None:
                    self.fisher[name] += gradient.square()
        mean = sum(float(f.sum()) for f in self.fisher.values()) / sum(f.numel() for f in self.fisher.values())
        self.fisher = {name: f / max(mean, 1e-20) for name, f in self.fisher.items()}

    def resume(self, round_: Injection) -> None:
        """See `Injector`."""
        self.strength = round_.strength
        device = round_.model.policy.device
        self.anchor = {name: value.to(device) for name, value in self.anchor.items()}
        self.fisher = {name: value.to(device) for name, value in self.fisher.items()}

    def loss(self, model: OnPolicyAlgorithm, batch: Batch) -> th.Tensor | None:
        """See `Injector`."""
        weight = self.weight.now(model) * self.strength
        if not self.anchor or weight == 0:
            return None
        terms = [(self.fisher[name] * (p - self.anchor[name]).square()).sum() for name, p in model.policy.named_parameters()]
        loss = th.stack(terms).sum() / 2
        self.tally.add("consolidation", float(loss.detach()))
        return weight * loss

    def end(self, model: OnPolicyAlgorithm) -> None:
        """See `Injector`."""
        self.anchor, self.fisher = {}, {}

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {"weight": self.weight.plain(), "samples": self.samples}

    def state(self) -> State:
        """See `Injector`."""
        return {"anchor": to_arrays(self.anchor), "fisher": to_arrays(self.fisher)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Injector`."""
        self.anchor, self.fisher = from_arrays(state["anchor"]), from_arrays(state["fisher"])

    def figures(self) -> dict[str, float]:
        """See `Injector`."""
        return self.tally.take()


class PolicyInterpolation(Injector):
    """Moves the policy towards the knowledge once a round: theta <- (1 - share) theta + share theta_K.

    Needs knowledge that is a policy of the same architecture (an average of earlier weights, say). The optimiser's state is kept.

    Args:
        share: in [0, 1]; a number or a schedule. Scaled by the round's strength.
    """

    kind = "interpolation"
    immediate = True

    def __init__(self, share: AnySchedule = 0.5) -> None:
        self.share = Scheduled("share", share)
        if max(self.share.at(remaining) for remaining in (1.0, 0.5, 0.0)) > 1:
            raise ValueError(f"share must lie in [0, 1] throughout, got {share!r}")

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        known = same_architecture(round_.knowledge, round_.model)
        if known is None:
            raise ValueError(
                f"interpolation needs knowledge that is a policy of the same architecture, got {round_.knowledge.kind} knowledge; "
                "StudentDistiller(student=None) or student='same' makes one"
            )
        share = self.share.now(round_.model) * round_.strength
        with th.no_grad():
            for name, parameter in round_.model.policy.named_parameters():
                parameter.lerp_(known[name].to(parameter.device), share)

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {"share": self.share.plain()}


class InitialiseFrom(Injector):
    """Starts the policy from the knowledge, once: with its weights where it is a policy of the same architecture, else by fitting.

    Fitting minimises KL(knowledge || policy), and the value error where the knowledge has values, over the pool, with an optimiser of
    its own.

    Args:
        epochs: of the fit.
        learning_rate: of the fit.
        batch_size: of the fit.
        always: at every round, not at the first only.
    """

    kind = "initialise"
    immediate = True

    def __init__(self, epochs: int = 4, learning_rate: float = 1e-3, batch_size: int = 256, always: bool = False) -> None:
        if epochs < 1 or batch_size < 1 or not learning_rate > 0:
            raise ValueError(f"epochs, batch_size and learning_rate must be above 0, got {epochs!r}, {batch_size!r}, {learning_rate!r}")
        self.epochs, self.learning_rate, self.batch_size, self.always = int(epochs), float(learning_rate), int(batch_size), bool(always)
        self.done = False

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        if self.done and not self.always:
            return
        self.done = True
        known = same_architecture(round_.knowledge, round_.model)
        if known is not None:
            round_.model.policy.load_state_dict({**round_.model.policy.state_dict(), **known})
            return
        pool = round_.pool
        if pool.log_probs is None:
            raise ValueError(f"{round_.knowledge.kind} knowledge offers no action_log_probs to start a policy from")
        policy = round_.model.policy
        optimizer = th.optim.Adam(policy.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            order = round_.rng.permutation(len(pool))
            for part in np.array_split(order, max(1, len(order) // self.batch_size)):
                batch = pool.batch(policy, part)
                loss = divergence(pool.log_probs[batch.index], batch.log_probs).mean()
                if pool.values is not None:
                    loss = loss + 0.5 * (batch.values - pool.values[batch.index]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        optimizer.zero_grad()

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {"epochs": self.epochs, "learning_rate": self.learning_rate, "batch_size": self.batch_size, "always": self.always}

    def state(self) -> State:
        """See `Injector`."""
        return {"done": self.done}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Injector`."""
        self.done = bool(state["done"])


def same_architecture(knowledge: Knowledge, model: OnPolicyAlgorithm) -> dict[str, th.Tensor] | None:
    """The knowledge's weights by the names of the policy's, where it is one policy of the same architecture; None otherwise."""
    weights = getattr(knowledge, "policy_weights", None)
    found: dict[str, th.Tensor] | None = weights() if callable(weights) else None
    own = model.policy.state_dict()
    if found is None or {name: value.shape for name, value in found.items()} != {name: value.shape for name, value in own.items()}:
        return None
    return found


def to_arrays(tensors: Mapping[str, th.Tensor]) -> dict[str, Any]:
    """Tensors as arrays."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def from_arrays(arrays: Mapping[str, Any]) -> dict[str, th.Tensor]:
    """Arrays as tensors."""
    return {name: th.as_tensor(np.array(array)) for name, array in arrays.items()}
