"""Policy-improvement network: where the policy is going (MISSION B3b).

Past versions of the policy are asked about the same states. A small network learns how the log-probabilities of the actions moved from
one version to the next; what it predicts is averaged over states, versions and noise, and so is steadier than any single update. As a
teacher it is the policy one predicted move further on: pi(a|s) exp(beta move(s, a)), normalised.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.distillers.base import Distiller, Experience, NotEnoughError, seeded
from rao_agents.distillation.distributions import check_policy, normalised
from rao_agents.distillation.episodes import States, states
from rao_agents.distillation.frozen import FrozenPolicy, policy_spec
from rao_agents.distillation.importance import by_key, gradient_importance, most
from rao_agents.distillation.knowledge import Knowledge, register_knowledge
from rao_agents.distillation.nets import StateNet, train
from rao_agents.distillation.observations import Observations, Values, as_masks
from rao_agents.distillation.segments import split_episodes
from rao_agents.distillation.snapshots import Snapshots
from rao_envs.core.arguments import real_number, whole_number

LARGEST_MOVE = 5.0
"""Moves of a log-probability beyond this (from one version to the next) are cut off: they are those of actions that hardly ever happen."""


@register_knowledge
class ImprovementKnowledge(Knowledge):
    """The direction of improvement, and the policy it starts from.

    `action_log_probs` is the policy moved `strength` predicted moves on; `value` that policy's critic.

    Args:
        config: `space`, `n_actions`, `hidden` (widths), `strength` (beta), `base` (a policy's spec).
    """

    kind = "improvement"
    offers = ("action_log_probs", "value")

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.strength = float(config["strength"])
        self.net = StateNet(config["space"], config["hidden"], int(config["n_actions"]))
        self.base = FrozenPolicy(config["base"])
        self.networks["move"] = self.net
        self.networks["base"] = self.base

    def depth(self) -> int:
        """Of the network that was learned; the policy it starts from is not counted."""
        return len(self.net.layers) // 2 + 1

    @th.no_grad()
    def move(self, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """Predicted change of the log-probabilities over one interval, (n, actions) float32; 0 where masked.

        The changes are centred: their mean under the policy is 0, as adding a constant changes no probability.
        """
        return centred(self.net(obs), self.base.action_log_probs(obs, masks), as_masks(masks, self.device))

    @th.no_grad()
    def action_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """The policy after `strength` predicted moves."""
        now = self.base.action_log_probs(obs, masks)
        return normalised(now + self.strength * centred(self.net(obs), now, as_masks(masks, self.device)), masks)

    @th.no_grad()
    def value(self, obs: Observations) -> th.Tensor:
        """The critic's values, on the critic's scale."""
        return self.base.value(obs)


class ImprovementDistiller(Distiller):
    """Trains an `ImprovementKnowledge` on the policy's last versions; needs `observe` after each update.

    Figures: `loss` (its last part); `r2` (share of the variance of the latest move on held-out states that is predicted);
    `steadiness` (cosine of the latest move and the mean of the earlier ones; 0 with two versions only): near 0 or below, the policy is
    walking about and there is no direction to learn; `size` (root mean square of the latest move, in nats); `versions`.

    Args:
        hidden: widths of the hidden layers.
        strength: beta, how many predicted moves the teacher is ahead of the policy.
        every: policy iterations between two versions.
        keep: versions that are remembered (each as large as the policy); together with the present one.
        decay: weight of a move relative to the one after it, in (0, 1].
        updates: minibatches that are learned from.
        batch_size: states in each.
        learning_rate: of Adam; falls to zero.
        holdout: share of the episodes that is held out.
        max_states: states that the versions are asked about, at most.
        window: states from that many of the latest policy iterations only; None from all that is remembered.

    Raises:
        ValueError: a number out of range.
    """

    kind = "improvement"

    def __init__(
        self,
        hidden: Sequence[int] = (64,),
        strength: float = 1.0,
        every: int = 5,
        keep: int = 4,
        decay: float = 0.7,
        updates: int = 300,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        holdout: float = 0.2,
        max_states: int = 10_000,
        window: int | None = None,
    ) -> None:
        self.hidden = tuple(whole_number("hidden", width, 1, 1 << 16) for width in hidden)
        self.strength = real_number("strength", strength, -100.0, 100.0)
        self.every = whole_number("every", every, 1, 1 << 30)
        self.keep = whole_number("keep", keep, 1, 1000)
        self.decay = real_number("decay", decay, 1e-6, 1.0)
        self.updates = whole_number("updates", updates, 1, 1 << 30)
        self.batch_size = whole_number("batch_size", batch_size, 1, 1 << 20)
        self.learning_rate = real_number("learning_rate", learning_rate, 1e-9, 1.0)
        self.holdout = real_number("holdout", holdout, 0.0, 0.9)
        self.max_states = whole_number("max_states", max_states, 2, 1 << 30)
        self.window = None if window is None else whole_number("window", window, 1, 1 << 30)
        self.snapshots = Snapshots(self.keep, self.every)
        self.latest = 0

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("strength", "every", "keep", "decay", "updates", "batch_size", "learning_rate", "holdout", "max_states", "window")
        return {"hidden": list(self.hidden), **{name: getattr(self, name) for name in names}}

    def observe(self, policy: BasePolicy, iteration: int) -> None:
        """Keeps a version every few iterations."""
        self.latest = iteration
        self.snapshots.observe(policy, iteration)

    def rolled_back(self, iteration: int) -> None:
        """Forgets the versions that were given up."""
        self.latest = min(self.latest, iteration)
        self.snapshots.forget_after(iteration)

    def state(self) -> dict[str, Any]:
        """The versions."""
        return {"latest": self.latest, "snapshots": self.snapshots.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave.

        Raises:
            ValueError: it is damaged.
        """
        if set(state) != {"latest", "snapshots"} or not isinstance(state["latest"], int):
            raise ValueError(f"this is not the state of an ImprovementDistiller: {sorted(state)}")
        self.snapshots.set_state(state["snapshots"])
        self.latest = state["latest"]

    def distil(self, policy: BasePolicy, buffer: Experience, previous: Knowledge | None, rng: np.random.Generator) -> ImprovementKnowledge:
        """See `Distiller.distil`; `previous` of the same shape is where training starts.

        Raises:
            NotEnoughError: no version of the policy older than the present one, or no episodes.
        """
        checked = check_policy(policy)
        older = [snapshot for snapshot in self.snapshots.kept if snapshot.iteration < self.latest]
        if not older:
            raise NotEnoughError(
                f"there is no version of the policy yet that is older than the present one (one is kept every {self.every} iterations)"
            )
        found = buffer.episodes(self.window)
        if not found:
            raise NotEnoughError("there are no episodes to distil from yet")
        n_actions = int(checked.action_space.n)  # type: ignore[attr-defined]
        spec = policy_spec(policy)
        config = {
            "space": checked.observation_space,
            "n_actions": n_actions,
            "hidden": list(self.hidden),
            "strength": self.strength,
            "base": spec,
        }
        steps = states(list(found))
        if len(steps) > self.max_states:
            steps = steps.at(np.sort(rng.permutation(len(steps))[: self.max_states]))
        with seeded(rng):
            knowledge = ImprovementKnowledge(config)
            if isinstance(previous, ImprovementKnowledge) and _shape(previous.config) == _shape(config):
                knowledge.net.load_state_dict(previous.net.state_dict())
            course = []
            for weights in [*(snapshot.weights for snapshot in older), policy.state_dict()]:
                knowledge.base.policy.load_state_dict({name: value.detach().cpu() for name, value in weights.items()})
                course.append(knowledge.base.action_log_probs(steps.observations, steps.action_masks))
            gaps = np.diff([*(snapshot.iteration for snapshot in older), self.latest])
            knowledge.net.fit_inputs(steps.observations)
            self._train(knowledge, steps, course, gaps, rng)
        knowledge.networks.requires_grad_(False)
        knowledge.provenance = self.provenance(found)
        vectors = knowledge.net.vector({key: value[:512] for key, value in steps.observations.items()})
        features = gradient_importance(knowledge.net.of_vectors, knowledge.net.vector, vectors)
        knowledge.importance, knowledge.features = by_key(features), most(features)
        return knowledge

    def _train(self, knowledge: ImprovementKnowledge, steps: States, course: list[th.Tensor], gaps: Any, rng: np.random.Generator) -> None:
        masks = as_masks(steps.action_masks)
        moves = [
            centred((after - before) * (self.every / gap), before, masks).clamp(-LARGEST_MOVE, LARGEST_MOVE)
            for before, after, gap in zip(course[:-1], course[1:], gaps, strict=True)
        ]
        # What an action's move means depends on how often the action is taken; rare ones still count a little.
        often = [0.5 * (before.exp() + after.exp()) + 0.02 for before, after in itertools.pairwise(course)]
        allowed = th.ones_like(moves[0]) if masks is None else masks.float()
        decays = self.decay ** np.arange(len(moves))[::-1]
        held_out = split_episodes(rng, steps.episode, self.holdout)
        learned = np.flatnonzero(~held_out)
        with th.no_grad():
            vectors = knowledge.net.vector(steps.observations)
        which = np.cumsum(decays / decays.sum())

        def loss(update: int) -> dict[str, th.Tensor]:
            place = learned[rng.integers(len(learned), size=self.batch_size)]
            pair = min(int(np.searchsorted(which, rng.random())), len(moves) - 1)
            predicted = centred(knowledge.net.of_vectors(vectors[place]), course[pair][place], None if masks is None else masks[place])
            error = (predicted - moves[pair][place]).square() * often[pair][place] * allowed[place]
            return {"loss": error.sum(dim=1).mean()}

        knowledge.history = train(list(knowledge.net.parameters()), loss, self.updates, self.learning_rate)
        place = np.flatnonzero(held_out) if held_out.any() else learned
        with th.no_grad():
            before = course[-2][place]
            predicted = centred(knowledge.net.of_vectors(vectors[place]), before, None if masks is None else masks[place])
        weight = before.exp() * allowed[place]
        latest = moves[-1][place]
        variance = float((latest.square() * weight).sum())
        earlier = sum(moves[:-1], th.zeros_like(moves[-1])) / max(len(moves) - 1, 1)
        knowledge.figures = {
            "loss": knowledge.history["loss"][-1],
            "r2": 1.0 - float(((predicted - latest).square() * weight).sum()) / variance if variance > 0 else 0.0,
            "steadiness": _cosine(moves[-1], earlier, course[-2].exp() * allowed),
            "size": float(((moves[-1].square() * course[-2].exp() * allowed).sum(dim=1)).mean().sqrt()),
            "versions": float(len(course)),
        }


def centred(moves: th.Tensor, log_probs: th.Tensor, masks: th.Tensor | None) -> th.Tensor:
    """Moves (n, actions) without what all actions of a row share: their mean under the policy; 0 where masked."""
    if masks is not None:
        masks = masks | ~masks.any(dim=1, keepdim=True)
        moves = th.where(masks, moves, moves.new_zeros(()))
    result = moves - (moves * log_probs.exp()).sum(dim=1, keepdim=True)
    return result if masks is None else th.where(masks, result, result.new_zeros(()))


def _cosine(one: th.Tensor, other: th.Tensor, weight: th.Tensor) -> float:
    product, norms = (one * other * weight).sum(), (one.square() * weight).sum() * (other.square() * weight).sum()
    return float(product / norms.sqrt()) if norms > 0 else 0.0


def _shape(config: Mapping[str, Any]) -> Any:
    return config["space"], config["n_actions"], list(config["hidden"])
