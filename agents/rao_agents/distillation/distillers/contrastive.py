"""Contrastive trajectory encoder: what success looks like, and failure (MISSION B3a).

Pieces of what frames did are encoded so that pieces of successful frames lie together and away from those of failed ones (supervised
InfoNCE: Khosla et al. 2020, on the contrastive loss of van den Oord et al. 2018). A second output says how likely success is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from stable_baselines3.common.policies import BasePolicy
from torch import nn
from torch.nn import functional as F

from rao_agents.distillation.distillers.base import Distiller, Experience, NotEnoughError, seeded
from rao_agents.distillation.distributions import check_policy
from rao_agents.distillation.episodes import FAILED, SUCCEEDED, UNKNOWN, Episode, States, states
from rao_agents.distillation.importance import by_key, gradient_importance, most
from rao_agents.distillation.knowledge import Knowledge, register_knowledge
from rao_agents.distillation.nets import StateNet, train
from rao_agents.distillation.observations import Observations, Values, one_hot
from rao_agents.distillation.priors import Priors, bellman_loss, value_smoothness_loss
from rao_agents.distillation.segments import NONE, Frames, Index, pool, split_episodes
from rao_envs.core.arguments import real_number, whole_number


@register_knowledge
class ContrastiveKnowledge(Knowledge):
    """An encoder of sub-trajectories and states, and how likely they end in success.

    `embed` gives unit vectors; `value` the probability that the frame succeeds, in [0, 1] (also after a single state: a sub-trajectory of
    one step whose action is not yet known).

    Args:
        config: `space`, `n_actions`, `hidden` (widths), `dim` (of the embedding).
    """

    kind = "contrastive"
    offers = ("value", "embed")

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.n_actions = int(config["n_actions"])
        self.encoder = StateNet(config["space"], config["hidden"], int(config["dim"]), extra=self.n_actions)
        self.head = nn.Linear(int(config["dim"]), 1)
        self.networks = nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    def depth(self) -> int:
        """The encoder's layers and the head's."""
        return super().depth() + 1

    @th.no_grad()
    def embed(self, obs: Observations) -> th.Tensor:
        """Unit vectors, (n, dim) float32."""
        return F.normalize(self.encoder(obs), dim=1)

    @th.no_grad()
    def value(self, obs: Observations) -> th.Tensor:
        """Probability that the acting frame succeeds, (n,) float32."""
        return th.sigmoid(self.head(self.encoder(obs)).squeeze(1))

    @th.no_grad()
    def encode(self, obs: Observations, actions: Values, rows: Index) -> tuple[th.Tensor, th.Tensor]:
        """Whole sub-trajectories.

        Args:
            obs: states (N, *shape) by key.
            actions: what was done in them, (N,).
            rows: of each sub-trajectory, (S, L), -1 beyond its end (see `Frames.windows`).

        Returns:
            Unit vectors (S, dim), and the probability of success (S,).
        """
        place = rows[rows != NONE]
        parts = {key: value[place] for key, value in obs.items()} if isinstance(obs, Mapping) else obs[place]
        hidden = pool(self.encoder(parts, one_hot(np.asarray(actions)[place], self.n_actions).to(self.device)), rows)
        return F.normalize(hidden, dim=1), th.sigmoid(self.head(hidden).squeeze(1))


class ContrastiveDistiller(Distiller):
    """Trains a `ContrastiveKnowledge` on pieces of frames whose outcome is known, as many successful as failed ones.

    Figures: `loss` (its last part), `auc` and `accuracy` (of the probability of success of whole pieces; accuracy
    weighs both outcomes alike), `separation` (mean cosine
    within an outcome minus between the two). All but the loss are of held-out episodes where there are any of both outcomes.

    Args:
        hidden: widths of the encoder's hidden layers.
        dim: of the embedding.
        length: steps of a piece, at most.
        updates: minibatches that are learned from.
        batch_size: pieces in each, half of them successful.
        learning_rate: of Adam; falls to zero.
        temperature: of the contrastive loss; lower pushes apart what is close.
        contrast: weight of the contrastive loss beside that of the probability.
        forget_actions: share of the steps whose action is hidden, so that states alone are understood too.
        holdout: share of the episodes that is held out.
        window: learn from that many of the latest policy iterations only; None from all that is remembered.
        priors: smoothness and Bellman consistency of the probability of success (`Priors` or its arguments).

    Raises:
        ValueError: a number out of range.
    """

    kind = "contrastive"

    def __init__(
        self,
        hidden: Sequence[int] = (64,),
        dim: int = 32,
        length: int = 8,
        updates: int = 300,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        temperature: float = 0.2,
        contrast: float = 0.5,
        forget_actions: float = 0.5,
        holdout: float = 0.2,
        window: int | None = None,
        priors: Priors | Mapping[str, Any] | None = None,
    ) -> None:
        self.hidden = tuple(whole_number("hidden", width, 1, 1 << 16) for width in hidden)
        self.dim = whole_number("dim", dim, 1, 1 << 16)
        self.length = whole_number("length", length, 1, 1 << 16)
        self.updates = whole_number("updates", updates, 1, 1 << 30)
        self.batch_size = whole_number("batch_size", batch_size, 4, 1 << 20)
        self.learning_rate = real_number("learning_rate", learning_rate, 1e-9, 1.0)
        self.temperature = real_number("temperature", temperature, 1e-3, 1e3)
        self.contrast = real_number("contrast", contrast, 0.0, 1e6)
        self.forget_actions = real_number("forget_actions", forget_actions, 0.0, 1.0)
        self.holdout = real_number("holdout", holdout, 0.0, 0.9)
        self.window = None if window is None else whole_number("window", window, 1, 1 << 30)
        self.priors = Priors.parse(priors)
        if self.priors.temporal:
            raise ValueError("a chance of success has no temporal prior, which is for policies: use bellman")

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = (
            "dim",
            "length",
            "updates",
            "batch_size",
            "learning_rate",
            "temperature",
            "contrast",
            "forget_actions",
            "holdout",
            "window",
        )
        return {"hidden": list(self.hidden), **{name: getattr(self, name) for name in names}, "priors": self.priors.config()}

    def distil(self, policy: BasePolicy, buffer: Experience, previous: Knowledge | None, rng: np.random.Generator) -> ContrastiveKnowledge:
        """See `Distiller.distil`; `previous` of the same shape is where training starts.

        Raises:
            NotEnoughError: no frame that succeeded, or none that failed.
        """
        space, n_actions = check_policy(policy).observation_space, int(policy.action_space.n)  # type: ignore[attr-defined]
        found = buffer.episodes(self.window)
        steps = _states(found)
        frames = Frames(steps)
        held_out = split_episodes(rng, frames.episode, self.holdout)
        sides = [np.flatnonzero((frames.success == outcome) & ~held_out) for outcome in (FAILED, SUCCEEDED)]
        if not all(len(side) for side in sides):  # what is held out is a luxury
            held_out = np.zeros(len(frames), np.bool_)
            sides = [np.flatnonzero(frames.success == outcome) for outcome in (FAILED, SUCCEEDED)]
        if not all(len(side) for side in sides):
            failed, succeeded = map(len, sides)
            raise NotEnoughError(
                f"contrastive distillation needs frames that succeeded and frames that failed; there are {succeeded} and {failed}"
            )
        config = {"space": space, "n_actions": n_actions, "hidden": list(self.hidden), "dim": self.dim}
        with seeded(rng):
            knowledge = ContrastiveKnowledge(config)
            if isinstance(previous, ContrastiveKnowledge) and previous.config == config:
                knowledge.networks.load_state_dict(previous.networks.state_dict())
            knowledge.encoder.fit_inputs(steps.observations)
            knowledge.history = self._train(knowledge, steps, frames, sides, rng)
        knowledge.networks.requires_grad_(False)
        knowledge.figures = {"loss": knowledge.history["loss"][-1], **self._scores(knowledge, steps, frames, held_out)}
        knowledge.provenance = self.provenance(found)
        self._explain(knowledge, steps, rng)
        return knowledge

    def _train(
        self, knowledge: ContrastiveKnowledge, steps: States, frames: Frames, sides: Sequence[Index], rng: np.random.Generator
    ) -> dict[str, list[float]]:
        encoder, head, half = knowledge.encoder, knowledge.head, self.batch_size // 2
        with th.no_grad():
            vectors = encoder.vector(steps.observations)
        actions = one_hot(steps.actions, knowledge.n_actions)
        outcome = th.as_tensor(np.repeat([0.0, 1.0], half), dtype=th.float32)
        successors, owner = frames.successors(), frames.of_steps()
        certain = np.flatnonzero((frames.success != UNKNOWN)[owner])

        def chance(inputs: th.Tensor) -> th.Tensor:
            result: th.Tensor = th.sigmoid(head(encoder.of_vectors(inputs)).squeeze(1))
            return result

        def loss(update: int) -> dict[str, th.Tensor]:
            chosen = np.concatenate([side[rng.integers(len(side), size=half)] for side in sides])
            rows = frames.sample(rng, chosen, self.length)
            place = rows[rows != NONE]
            known = th.as_tensor(rng.random((len(place), 1)) >= self.forget_actions)
            hidden = pool(encoder.of_vectors(vectors[place], actions[place] * known), rows)
            losses = {
                "contrast": contrastive_loss(hidden, outcome, self.temperature),
                "outcome": F.binary_cross_entropy_with_logits(head(hidden).squeeze(1), outcome),
            }
            total = self.contrast * losses["contrast"] + losses["outcome"]
            if self.priors.smoothness:
                losses["smoothness"] = value_smoothness_loss(chance, vectors[place], self.priors.noise)
                total = total + self.priors.smoothness * losses["smoothness"]
            if self.priors.bellman:
                losses["bellman"] = self._bellman(
                    chance, vectors, certain[rng.integers(len(certain), size=self.batch_size)], successors, frames, owner
                )
                total = total + self.priors.bellman * losses["bellman"]
            return {"loss": total, **losses}

        return train(list(knowledge.networks.parameters()), loss, self.updates, self.learning_rate)

    def _bellman(self, chance: Any, vectors: th.Tensor, place: Index, successors: Index, frames: Frames, owner: Index) -> th.Tensor:
        """The residual of the chance of success: no reward but the outcome, at a frame's end, and no discount."""
        after = successors[place]
        last = after == NONE
        rewards = np.where(last, frames.success[owner[place]] == SUCCEEDED, 0.0).astype(np.float32)
        following = th.where(th.as_tensor(last), th.zeros(()), chance(vectors[np.where(last, 0, after)]))
        return bellman_loss(chance(vectors[place]), following, th.as_tensor(rewards), 1.0)

    def _scores(self, knowledge: ContrastiveKnowledge, steps: States, frames: Frames, held_out: npt.NDArray[np.bool_]) -> dict[str, float]:
        rows, frame = frames.windows(self.length)
        known = frames.success[frame] != UNKNOWN
        part = known & held_out[frame]
        if len(np.unique(frames.success[frame[part]])) < 2:
            part = known
        rows, success = rows[part], frames.success[frame[part]] == SUCCEEDED
        places, chances = knowledge.encode(steps.observations, steps.actions, rows)
        numbers = chances.cpu().numpy()
        right = (numbers > 0.5) == success
        return {
            "auc": area_under_curve(numbers, success),
            "accuracy": float(right[success].mean() + right[~success].mean()) / 2,
            "separation": separation(places.cpu().numpy(), success),
            "pieces": float(len(rows)),
        }

    def _explain(self, knowledge: ContrastiveKnowledge, steps: States, rng: np.random.Generator) -> None:
        place = rng.permutation(len(steps))[:512]
        vectors = knowledge.encoder.vector({key: value[place] for key, value in steps.observations.items()})
        features = gradient_importance(
            lambda inputs: knowledge.head(knowledge.encoder.of_vectors(inputs)), knowledge.encoder.vector, vectors
        )
        knowledge.importance, knowledge.features = by_key(features), most(features)


def _states(episodes: Sequence[Episode]) -> States:
    if not episodes:
        raise NotEnoughError("there are no episodes to distil from yet")
    return states(list(episodes))


def contrastive_loss(hidden: th.Tensor, outcome: th.Tensor, temperature: float) -> th.Tensor:
    """Supervised InfoNCE: each row against all others, those with the same outcome being the positives; a scalar, in nats.

    Args:
        hidden: embeddings (n, d), of any length.
        outcome: (n,); each value at least twice.
        temperature: divides the cosines.
    """
    unit = F.normalize(hidden, dim=1)
    scores = unit @ unit.T / temperature
    itself = th.eye(len(unit), dtype=th.bool)
    log_probs = scores - th.logsumexp(scores.masked_fill(itself, -th.inf), dim=1, keepdim=True)
    same = (outcome[:, None] == outcome[None, :]) & ~itself
    return -((log_probs * same).sum(dim=1) / same.sum(dim=1)).mean()


def area_under_curve(scores: npt.NDArray[Any], positive: npt.NDArray[np.bool_]) -> float:
    """Probability that a positive scores above a negative (ties count half); 0.5 where there are not both."""
    if positive.all() or not positive.any():
        return 0.5
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * m))


def separation(unit: npt.NDArray[Any], positive: npt.NDArray[np.bool_]) -> float:
    """Mean cosine of two with the same outcome minus that of two with different ones; in [-2, 2].

    Args:
        unit: unit vectors (n, d).
        positive: (n,).
    """
    sums, counts = [unit[side].sum(axis=0) for side in (positive, ~positive)], [int(positive.sum()), int((~positive).sum())]
    within = [(s @ s - c) / (c * (c - 1)) for s, c in zip(sums, counts, strict=True) if c > 1]
    if not within or 0 in counts:
        return 0.0
    return float(np.mean(within) - sums[0] @ sums[1] / (counts[0] * counts[1]))
