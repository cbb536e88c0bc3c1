"""The plain distiller: a student policy, of any size, learns what averaged or several past policies know (MISSION B3, B8, B10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch as th
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.buffer import draw
from rao_agents.distillation.distillers.base import Distiller, Experience, NotEnoughError, seeded
from rao_agents.distillation.distillers.student_priors import StudentPriors
from rao_agents.distillation.distributions import check_policy, divergence, normalised
from rao_agents.distillation.episodes import States, states
from rao_agents.distillation.frozen import FrozenPolicy, make_policy, policy_spec
from rao_agents.distillation.injection import policy_outputs
from rao_agents.distillation.knowledge import Knowledge, finite, register_knowledge
from rao_agents.distillation.observations import Observations, Values, as_masks, as_policy_input, as_tensors
from rao_agents.distillation.priors import Priors
from rao_agents.distillation.weighting import Weighting, weighting

LIGHTER = 4
"""A light student's layers are so many times narrower than the policy's."""
NARROWEST = 8
TEACHERS = ("average", "ensemble", "policy")
ASKED = 2048
"""States that a finished student is compared with its teacher on."""
MOST_IMPROVEMENT = math.log(20.0)
WIDTHS = ("features_dim", "cnn_output_dim", "products")
"""Arguments of features extractors that are widths."""


@register_knowledge
class PolicyKnowledge(Knowledge):
    """Knowledge that is one policy, or several whose probabilities and values are averaged.

    Values are on the scale of the critic's.

    Args:
        config: {"specs": a list with what each policy is built from (`frozen.policy_spec`)}.
    """

    kind = "policy"
    offers = ("action_log_probs", "value")

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        specs = config.get("specs")
        if not isinstance(specs, list) or not specs:
            raise ValueError("this describes no policies")
        with th.random.fork_rng(devices=[]):  # initial weights are drawn for nothing
            for number, spec in enumerate(specs):
                self.networks[f"policy_{number}"] = FrozenPolicy(spec)

    @classmethod
    def of(cls, spec: Mapping[str, Any], weights: Sequence[Mapping[str, th.Tensor]]) -> PolicyKnowledge:
        """Of policies of one architecture with these weights."""
        knowledge = cls({"specs": [dict(spec)] * len(weights)})
        for member, each in zip(knowledge.members, weights, strict=True):
            member.policy.load_state_dict(each)
        return knowledge

    @property
    def members(self) -> list[FrozenPolicy]:
        """The policies."""
        return [cast(FrozenPolicy, member) for member in self.networks.values()]

    def policy(self) -> BasePolicy:
        """The policy, ready to act or to be saved (`rao_agents.save_policy`).

        Raises:
            ValueError: there are several.
        """
        if len(self.members) != 1:
            raise ValueError(f"this knowledge is {len(self.members)} policies, not one: distil a student from it")
        return self.members[0].policy

    def policy_weights(self) -> dict[str, th.Tensor] | None:
        """The policy's state dictionary; None where there are several policies."""
        return dict(self.members[0].policy.state_dict()) if len(self.members) == 1 else None

    def action_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor | None:
        """See `Knowledge`."""
        each = th.stack([member.action_log_probs(obs, masks) for member in self.members])
        return each[0] if len(each) == 1 else th.logsumexp(each, dim=0) - math.log(len(each))

    def value(self, obs: Observations) -> th.Tensor | None:
        """See `Knowledge`."""
        return th.stack([member.value(obs) for member in self.members]).mean(dim=0)


class StudentDistiller(Distiller):
    """Follows the policy's course, and makes its knowledge out of a teacher that is steadier than the policy itself.

    The teacher is an exponential moving average of the weights, or an ensemble of past policies, or the policy as it is. The
    knowledge is the teacher itself (`student=None`), or a student that learns the teacher's masked probabilities and values in the
    remembered states, drawn by their weights.

    Args:
        teacher: "average", "ensemble" or "policy".
        decay: of the average, per policy iteration, in [0, 1).
        snapshots: of the ensemble, at most.
        every: policy iterations between two snapshots.
        student: None for the teacher itself; "same" for the policy's architecture; "light" for layers a quarter as wide; or a mapping
            of the policy's arguments to others, such as {"net_arch": [64]}.
        weighting: of the states (`Weighting`, or its arguments).
        improve: how far the targets go beyond the teacher, towards actions that did better than expected: their log-probability is
            raised by advantage / (this * its standard deviation), at most by log 20. 0 for not at all; 1 is moderate.
        value_weight: of the value error beside the divergence.
        epochs, batch_size, learning_rate: of the student's training; Adam, the rate falls to 0.
        max_states: drawn from the memory for it, at most.
        window: experience of the last so many policy iterations only; None for all.
        warm_start: whether a student starts from the last one, where that had the same architecture.
        priors: smoothness of the student's choices and Bellman consistency of its values (`Priors` or its arguments).

    Raises:
        ValueError: an argument out of range.
    """

    kind = "student"

    def __init__(
        self,
        teacher: str = "average",
        decay: float = 0.8,
        snapshots: int = 5,
        every: int = 4,
        student: str | Mapping[str, Any] | None = "light",
        weighting: Weighting | Mapping[str, Any] | None = None,
        improve: float = 0.0,
        value_weight: float = 0.5,
        epochs: int = 4,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        max_states: int = 16_384,
        window: int | None = None,
        warm_start: bool = True,
        priors: Priors | Mapping[str, Any] | None = None,
    ) -> None:
        if teacher not in TEACHERS:
            raise ValueError(f"teacher must be one of {', '.join(TEACHERS)}, got {teacher!r}")
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay!r}")
        if isinstance(student, str) and student not in ("same", "light"):
            raise ValueError(f"student must be same, light, None or a mapping such as {{'net_arch': [64]}}, got {student!r}")
        for name, value in (
            ("snapshots", snapshots),
            ("every", every),
            ("epochs", epochs),
            ("batch_size", batch_size),
            ("max_states", max_states),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if improve < 0 or value_weight < 0 or not learning_rate > 0:
            raise ValueError(
                f"improve and value_weight must be at least 0 and learning_rate above, got {improve!r}, {value_weight!r}, {learning_rate!r}"
            )
        self.teacher, self.decay, self.snapshots, self.every = teacher, float(decay), int(snapshots), int(every)
        self.student = dict(student) if isinstance(student, Mapping) else student
        self.weighting = _weighting(weighting)
        self.improve, self.value_weight = float(improve), float(value_weight)
        self.epochs, self.batch_size, self.learning_rate = int(epochs), int(batch_size), float(learning_rate)
        self.max_states, self.window, self.warm_start = int(max_states), window, bool(warm_start)
        self.priors = Priors.parse(priors)
        self.average: dict[str, th.Tensor] = {}
        self.past: list[dict[str, th.Tensor]] = []
        self.taken: list[int] = []  # the iterations of the past policies

    # -- the teacher -------------------------------------------------------------------------------

    def observe(self, policy: BasePolicy, iteration: int) -> None:
        """See `Distiller`."""
        if self.teacher == "average":
            own = policy.state_dict()
            if not self.average:
                self.average = _copy(own)
                return
            for name, value in self.average.items():
                new = own[name].detach().to(value.device)
                if value.is_floating_point():
                    value.lerp_(new, 1 - self.decay)
                else:
                    value.copy_(new)
        elif self.teacher == "ensemble" and iteration % self.every == 0:
            self.past = [*self.past, _copy(policy.state_dict())][-self.snapshots :]
            self.taken = [*self.taken, iteration][-self.snapshots :]

    def rolled_back(self, iteration: int) -> None:
        """See `Distiller`: what came after is forgotten; the average begins anew, as it cannot be taken apart."""
        self.average = {}
        kept = [number for number, taken in enumerate(self.taken) if taken <= iteration]
        self.past, self.taken = [self.past[number] for number in kept], [self.taken[number] for number in kept]

    def teachers(self, policy: BasePolicy) -> PolicyKnowledge:
        """The teacher as it is now, as knowledge."""
        known = {"average": [self.average] if self.average else [], "ensemble": self.past, "policy": []}[self.teacher]
        return PolicyKnowledge.of(policy_spec(policy), [_copy(weights) for weights in known] or [_copy(policy.state_dict())])

    # -- distilling --------------------------------------------------------------------------------

    def distil(self, policy: BasePolicy, buffer: Experience, previous: Knowledge | None, rng: np.random.Generator) -> Knowledge:
        """See `Distiller`."""
        episodes = buffer.episodes(self.window)
        if not episodes:
            raise NotEnoughError("no episode has ended yet")
        check_policy(policy)
        teacher = self.teachers(policy)
        found = states(episodes)
        weights = self.weighting(found)
        if self.student is None:
            result = teacher
        else:
            index = draw(rng, min(self.max_states, max(len(found), self.batch_size)), len(found), weights)
            priors = StudentPriors(self.priors, found, index) if self.priors.active else None
            result = self._teach(teacher, found.at(index), _spec(policy, self.student), previous, rng, priors)
        asked = found.at(draw(rng, min(ASKED, len(found)), len(found), weights))
        result.figures |= compared(teacher, result, asked)
        result.figures["parameters_share"] = result.parameters() / max(sum(p.numel() for p in policy.parameters()), 1)
        result.provenance = self.provenance(episodes)
        return result

    def _teach(
        self,
        teacher: PolicyKnowledge,
        drawn: States,
        spec: Mapping[str, Any],
        previous: Knowledge | None,
        rng: np.random.Generator,
        priors: StudentPriors | None = None,
    ) -> PolicyKnowledge:
        with seeded(rng):
            student = make_policy(spec)
        old = previous.policy_weights() if self.warm_start and isinstance(previous, PolicyKnowledge) else None
        if old is not None and {k: v.shape for k, v in old.items()} == {k: v.shape for k, v in student.state_dict().items()}:
            student.load_state_dict(old)
        student.set_training_mode(True)
        target = cast(th.Tensor, teacher.action_log_probs(drawn.observations, drawn.action_masks))
        if self.improve:
            target = improved(target, drawn, self.improve)
        values = cast(th.Tensor, teacher.value(drawn.observations))
        obs, actions, masks = as_tensors(drawn.observations), th.as_tensor(drawn.actions), as_masks(drawn.action_masks)
        batches = max(1, len(drawn) // self.batch_size)
        optimizer = th.optim.Adam(student.parameters(), lr=self.learning_rate)
        falling = th.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, self.epochs * batches)
        losses: list[float] = []
        for _ in range(self.epochs):
            seen = 0.0
            for part in np.array_split(rng.permutation(len(drawn)), batches):
                index = th.as_tensor(part)
                inputs = as_policy_input({key: value[index] for key, value in obs.items()})
                log_probs, value = policy_outputs(student, inputs, actions[index], None if masks is None else masks[index])
                loss = divergence(target[index], log_probs).mean() + self.value_weight * (value - values[index]).square().mean()
                if priors is not None:
                    loss = loss + priors.loss(student, part, log_probs, value, rng)
                optimizer.zero_grad()
                loss.backward()
                th.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
                optimizer.step()
                falling.step()
                seen += float(loss.detach())
            losses.append(finite(seen / batches))
        result = PolicyKnowledge.of(spec, [_copy(student.state_dict())])
        result.history["loss"] = losses
        return result

    # -- plain values ------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """See `Distiller`."""
        names = ("teacher", "decay", "snapshots", "every", "student", "improve", "value_weight", "epochs", "batch_size", "learning_rate")
        arguments = {name: getattr(self, name) for name in (*names, "max_states", "window", "warm_start")}
        return arguments | {"weighting": self.weighting.config(), "priors": self.priors.config()}

    def state(self) -> dict[str, Any]:
        """See `Distiller`."""
        return {"average": _arrays(self.average), "past": [_arrays(weights) for weights in self.past], "taken": list(self.taken)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Distiller`."""
        try:
            self.average = _tensors(state["average"])
            self.past = [_tensors(weights) for weights in state["past"]]
            self.taken = [int(iteration) for iteration in state["taken"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not the state of a StudentDistiller: {error}") from error


def improved(log_probs: th.Tensor, found: States, temperature: float) -> th.Tensor:
    """Log-probabilities with those of the taken actions moved by advantage / (temperature * its standard deviation), at most log 20."""
    scale = float(found.advantages.std()) or 1.0
    move = np.clip(found.advantages / (temperature * scale), -MOST_IMPROVEMENT, MOST_IMPROVEMENT)
    move = np.where(found.expert, 0.0, move).astype(np.float32)
    moved = log_probs.clone()
    moved[th.arange(len(found)), th.as_tensor(found.actions)] += th.as_tensor(move)
    return normalised(moved, found.action_masks)


@th.no_grad()
def compared(teacher: Knowledge, student: Knowledge, found: States) -> dict[str, float]:
    """How near `student` is to `teacher` in `found`: `kl` in nats, share of the same best action (`agreement`), `value_error` (RMS)."""
    theirs, own = (cast(th.Tensor, one.action_log_probs(found.observations, found.action_masks)) for one in (teacher, student))
    values = [cast(th.Tensor, one.value(found.observations)) for one in (teacher, student)]
    return {
        "kl": finite(float(divergence(theirs, own).mean())),
        "agreement": float((theirs.argmax(dim=1) == own.argmax(dim=1)).float().mean()),
        "value_error": finite(float((values[0] - values[1]).square().mean().sqrt())),
    }


def _spec(policy: BasePolicy, student: str | Mapping[str, Any]) -> dict[str, Any]:
    """What the student is built from."""
    spec = policy_spec(policy)
    parameters = dict(spec["parameters"])
    if isinstance(student, Mapping):
        if unknown := set(student) - set(parameters):
            raise ValueError(f"a {type(policy).__name__} has no arguments {sorted(unknown)}; it has {', '.join(sorted(parameters))}")
        for name, value in student.items():
            old = parameters[name]
            parameters[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
    elif student == "light":
        parameters["net_arch"] = _narrowed(parameters["net_arch"])
        kwargs = parameters.get("features_extractor_kwargs") or {}
        parameters["features_extractor_kwargs"] = {k: _narrowed(v) if k in WIDTHS else v for k, v in kwargs.items()}
    return {**spec, "parameters": parameters}


def _narrowed(widths: Any) -> Any:
    if isinstance(widths, Mapping):
        return {key: _narrowed(value) for key, value in widths.items()}
    if isinstance(widths, (list, tuple)):
        return [_narrowed(width) for width in widths]
    return max(int(widths) // LIGHTER, min(NARROWEST, int(widths)))


_weighting = weighting


def _copy(weights: Mapping[str, th.Tensor]) -> dict[str, th.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in weights.items()}


def _arrays(weights: Mapping[str, th.Tensor]) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in weights.items()}


def _tensors(arrays: Mapping[str, Any]) -> dict[str, th.Tensor]:
    return {name: th.as_tensor(np.array(value)) for name, value in arrays.items()}


__all__ = ["PolicyKnowledge", "StudentDistiller", "compared", "improved"]
