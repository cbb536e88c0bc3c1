"""Skill discovery: a few ways of acting that explain what the frames did (MISSION B3c).

A variational model with one categorical latent for each piece of a frame: the encoder q(z | piece) says which skill it was, the decoder
pi(a | s, z) how that skill acts. There are few skills, so nothing need be sampled: the decoder is trained on the evidence itself (the bound
with the best possible q), and the encoder on the q that is best, which it then gives for any piece at once. A selector p(z | s) learns when
which skill is used, above all where that led to success.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch as th
from stable_baselines3.common.policies import BasePolicy
from torch import nn

from rao_agents.distillation.distillers.base import Distiller, Experience, NotEnoughError, seeded
from rao_agents.distillation.distributions import check_policy, normalised
from rao_agents.distillation.episodes import FAILED, SUCCEEDED, UNKNOWN, Episode, States, states
from rao_agents.distillation.importance import by_key, gradient_importance, most
from rao_agents.distillation.knowledge import Knowledge, register_knowledge
from rao_agents.distillation.nets import StateNet, train
from rao_agents.distillation.observations import Observations, Values, as_masks, n_observations, one_hot
from rao_agents.distillation.segments import NONE, Frames, Index, add_up
from rao_envs.core.arguments import real_number, whole_number

FEATURES_SHOWN = 5


@dataclass(frozen=True)
class Skill:
    """What is known of one skill.

    Attributes:
        number: its place in the library.
        share: of all pieces, in [0, 1].
        success: share of its pieces whose frame succeeded, among those where that is known; -1 if there is none.
        length: mean steps of its pieces.
        depth: mean depth of the frames that used it.
        actions: how often it chooses each action, on average over its pieces, (actions,).
        features: by feature name, how many standard deviations its states lie from the average state: the largest differences.
        examples: indices of actions in the pieces that are most clearly this skill, for people to look at.
    """

    number: int
    share: float
    success: float
    length: float
    depth: float
    actions: tuple[float, ...]
    features: dict[str, float]
    examples: tuple[tuple[int, ...], ...]

    def describe(self, action_names: Sequence[str] | None = None) -> str:
        """One line: what it mostly does, and with which success."""
        names = action_names or [f"action {i}" for i in range(len(self.actions))]
        best = sorted(range(len(self.actions)), key=lambda i: -self.actions[i])[:3]
        does = ", ".join(f"{names[i]} {self.actions[i]:.0%}" for i in best if self.actions[i] >= 0.05)
        result = "" if self.success < 0 else f", succeeds {self.success:.0%}"
        where = ", ".join(f"{name} {amount:+.1f}" for name, amount in list(self.features.items())[:3])
        return f"skill {self.number}: {does} ({self.share:.0%} of the pieces{result})" + (f"; where {where}" if where else "")


@register_knowledge
class SkillKnowledge(Knowledge):
    """Skills, when to use which, and the library that lists them.

    As a teacher, `action_log_probs` is the mixture of the skills as the selector would use them.

    Args:
        config: `space`, `n_actions`, `n_skills`, `hidden` (widths).
    """

    kind = "skills"
    offers = ("action_log_probs", "embed", "skills")

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.n_actions, self.n_skills = int(config["n_actions"]), int(config["n_skills"])
        hidden = list(config["hidden"])
        self.encoder = StateNet(config["space"], hidden, self.n_skills, extra=self.n_actions)
        self.decoder = StateNet(config["space"], hidden, self.n_skills * self.n_actions)
        self.selector = StateNet(config["space"], hidden, self.n_skills)
        self.networks = nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder, "selector": self.selector})
        self.library = SkillLibrary(self, ())

    @property
    def skills(self) -> SkillLibrary:
        """The library."""
        return self.library

    def extra(self) -> dict[str, Any]:
        """The library's entries."""
        return {"skills": [asdict(skill) for skill in self.library]}

    def set_extra(self, extra: Mapping[str, Any]) -> None:
        """Take back what `extra` gave.

        Raises:
            ValueError: it is damaged.
        """
        names = {field.name for field in fields(Skill)}
        entries = extra.get("skills")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and set(entry) == names for entry in entries):
            raise ValueError("the library of skills is damaged")
        skills = tuple(Skill(**entry) for entry in entries)
        wrong = any(len(skill.actions) != self.n_actions or skill.number != i for i, skill in enumerate(skills))
        if wrong or len(skills) not in (0, self.n_skills):
            raise ValueError("the library of skills does not fit the networks")
        self.library = SkillLibrary(self, skills)

    @th.no_grad()
    def skill_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """How each skill acts: log-probabilities (n, skills, actions) float32; about -1e8 where masked."""
        return self._acting(self.decoder(obs), as_masks(masks, self.device))

    @th.no_grad()
    def choice(self, obs: Observations) -> th.Tensor:
        """When to use which: probabilities (n, skills) float32."""
        return th.softmax(self.selector(obs), dim=1)

    @th.no_grad()
    def action_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """The mixture of the skills, weighted by the selector."""
        chosen = th.log_softmax(self.selector(obs), dim=1)
        return normalised(th.logsumexp(chosen[:, :, None] + self.skill_log_probs(obs, masks), dim=1), masks)

    @th.no_grad()
    def embed(self, obs: Observations) -> th.Tensor:
        """Which skill a state calls for: square roots of the selector's probabilities, unit vectors (n, skills)."""
        return self.choice(obs).sqrt()

    @th.no_grad()
    def assign(self, obs: Observations, actions: Values, rows: Index) -> th.Tensor:
        """Which skill sub-trajectories were: probabilities (S, skills).

        Args:
            obs: states (N, *shape) by key.
            actions: what was done in them, (N,).
            rows: of each sub-trajectory, (S, L), -1 beyond its end (see `Frames.windows`).
        """
        place = rows[rows != NONE]
        parts = {key: value[place] for key, value in obs.items()} if isinstance(obs, Mapping) else obs[place]
        evidence = self.encoder(parts, one_hot(np.asarray(actions)[place], self.n_actions).to(self.device))
        return th.softmax(add_up(evidence, rows), dim=1)

    def _acting(self, outputs: th.Tensor, masks: th.Tensor | None) -> th.Tensor:
        logits = outputs.reshape(-1, self.n_skills, self.n_actions)
        repeated = None if masks is None else masks.repeat_interleave(self.n_skills, dim=0)
        return normalised(logits.reshape(-1, self.n_actions), repeated).reshape(logits.shape)


class SkillLibrary(Sequence[Skill]):
    """The skills found: to list (it is a sequence of `Skill`), to draw, and to sample from.

    Args:
        knowledge: what they belong to.
        skills: its entries.
    """

    def __init__(self, knowledge: SkillKnowledge, skills: Sequence[Skill]) -> None:
        self.knowledge, self._skills = knowledge, tuple(skills)

    def __len__(self) -> int:
        return len(self._skills)

    def __getitem__(self, index: Any) -> Any:
        return self._skills[index]

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills)

    def __str__(self) -> str:
        return "\n".join(skill.describe() for skill in self)

    def policy(self, skill: int, obs: Observations, masks: Values | None = None) -> th.Tensor:
        """How one skill acts: log-probabilities (n, actions) float32.

        Raises:
            ValueError: no such skill.
        """
        return self.knowledge.skill_log_probs(obs, masks)[:, self._number(skill)]

    def sample(
        self, rng: np.random.Generator, obs: Observations, masks: Values | None = None, skill: int | Values | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Act as skills do.

        Args:
            rng: of the choices.
            obs: n observations.
            masks: bool (n, actions), or None.
            skill: one for all, one for each (n,), or None to let the selector choose.

        Returns:
            The actions and the skills, int64 (n,) each. A frame that is to keep its skill hands it in again.

        Raises:
            ValueError: no such skill.
        """
        n = n_observations(obs)
        if skill is None:
            chosen = _draw(rng, self.knowledge.choice(obs).cpu().numpy())
        else:
            chosen = np.broadcast_to(np.asarray(skill, np.int64), (n,)).copy()
            for number in np.unique(chosen):
                self._number(int(number))
        log_probs = self.knowledge.skill_log_probs(obs, masks).cpu().numpy()[np.arange(n), chosen]
        return _draw(rng, np.exp(log_probs)), chosen

    def draw(self, path: str | os.PathLike[str] | None = None, action_names: Sequence[str] | None = None) -> Any:
        """A picture: for each skill how often it chooses which action, how often it is used and succeeds, and where.

        Args:
            path: also write it there (PNG, SVG or PDF, by the suffix).
            action_names: of all actions; numbers otherwise.

        Returns:
            The matplotlib figure.

        Raises:
            ImportError: matplotlib is missing; the message names the extra.
        """
        from rao_agents.distillation.pictures import draw_skills

        return draw_skills(self, path, action_names)

    def _number(self, skill: int) -> int:
        if not 0 <= skill < self.knowledge.n_skills:
            raise ValueError(f"there are the skills 0 to {self.knowledge.n_skills - 1}, not {skill}")
        return int(skill)


class SkillDistiller(Distiller):
    """Trains a `SkillKnowledge` on pieces of what the frames did, successes and failures alike.

    Figures: `loss` (its last part), `elbo` (evidence lower bound per step, in nats: how well the skills explain what was done; 0 would be
    perfectly), `memoryless` (log-likelihood per step if every step drew its skill anew: the difference is what knowing the skill tells),
    `certainty` (mean probability of each piece's most likely skill), `used` (skills with at least 2 % of the pieces).

    Args:
        n_skills: how many to look for; ones that nothing needs stay unused.
        hidden: widths of the hidden layers of each of the three networks.
        length: steps of a piece, at most.
        updates: minibatches that are learned from.
        batch_size: pieces in each.
        learning_rate: of Adam; falls to zero.
        balance: weight of the entropy of the skills' use, which keeps the search from settling on a single one early; falls to zero over
            the training.
        restarts: how many beginnings are tried (each for a tenth of the updates) before the best goes on.
        failure_weight: weight of failed frames for the selector; successes have 1, and frames of unknown outcome too.
        window: learn from that many of the latest policy iterations only; None from all that is remembered.

    Raises:
        ValueError: a number out of range.
    """

    kind = "skills"

    def __init__(
        self,
        n_skills: int = 6,
        hidden: Sequence[int] = (48,),
        length: int = 8,
        updates: int = 600,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        balance: float = 1.0,
        restarts: int = 3,
        failure_weight: float = 0.1,
        window: int | None = None,
    ) -> None:
        self.n_skills = whole_number("n_skills", n_skills, 2, 256)
        self.hidden = tuple(whole_number("hidden", width, 1, 1 << 16) for width in hidden)
        self.length = whole_number("length", length, 1, 1 << 16)
        self.updates = whole_number("updates", updates, 1, 1 << 30)
        self.batch_size = whole_number("batch_size", batch_size, 1, 1 << 20)
        self.learning_rate = real_number("learning_rate", learning_rate, 1e-9, 1.0)
        self.balance = real_number("balance", balance, 0.0, 1e6)
        self.restarts = whole_number("restarts", restarts, 1, 1000)
        self.failure_weight = real_number("failure_weight", failure_weight, 0.0, 1.0)
        self.window = None if window is None else whole_number("window", window, 1, 1 << 30)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("n_skills", "length", "updates", "batch_size", "learning_rate", "balance", "restarts", "failure_weight", "window")
        return {"hidden": list(self.hidden), **{name: getattr(self, name) for name in names}}

    def distil(self, policy: BasePolicy, buffer: Experience, previous: Knowledge | None, rng: np.random.Generator) -> SkillKnowledge:
        """See `Distiller.distil`; with `previous` skills of the same shape the search goes on from them, so that they keep their numbers.

        Raises:
            NotEnoughError: no episodes.
        """
        checked = check_policy(policy)
        found = buffer.episodes(self.window)
        if not found:
            raise NotEnoughError("there are no episodes to distil from yet")
        steps = states(list(found))
        config = {
            "space": checked.observation_space,
            "n_actions": int(checked.action_space.n),  # type: ignore[attr-defined]
            "n_skills": self.n_skills,
            "hidden": list(self.hidden),
        }
        with seeded(rng):
            pieces = _Pieces(steps, Frames(steps), self.length, config)
            if isinstance(previous, SkillKnowledge) and previous.config == config:
                knowledge = SkillKnowledge(config)
                knowledge.networks.load_state_dict(previous.networks.state_dict())
            else:
                knowledge = self._best_beginning(pieces, config, rng)
            for net in (knowledge.encoder, knowledge.decoder, knowledge.selector):
                net.fit_inputs(steps.observations)
            knowledge.history = self._train(knowledge, pieces, self.updates, rng)
        knowledge.networks.requires_grad_(False)
        knowledge.provenance = self.provenance(found)
        self._describe(knowledge, pieces, found)
        return knowledge

    def _best_beginning(self, pieces: _Pieces, config: dict[str, Any], rng: np.random.Generator) -> SkillKnowledge:
        best, score = None, -np.inf
        for _ in range(self.restarts):
            knowledge = SkillKnowledge(config)
            for net in (knowledge.encoder, knowledge.decoder, knowledge.selector):
                net.fit_inputs(pieces.steps.observations)
            if self.restarts > 1:
                self._train(knowledge, pieces, -(-self.updates // 10), rng)
                reached = pieces.evidence(knowledge)
            else:
                reached = 0.0
            if best is None or reached > score:
                best, score = knowledge, reached
        assert best is not None
        return best

    def _train(self, knowledge: SkillKnowledge, pieces: _Pieces, updates: int, rng: np.random.Generator) -> dict[str, list[float]]:
        outcome = pieces.outcome()
        weights = th.as_tensor(np.where(outcome == FAILED, self.failure_weight, 1.0), dtype=th.float32)

        def loss(update: int) -> dict[str, th.Tensor]:
            chosen = rng.integers(len(pieces), size=self.batch_size)
            elbo, log_q, likelihood, steps = pieces.bound(knowledge, chosen)
            best_q = th.log_softmax(likelihood, dim=1)
            evidence = (th.logsumexp(likelihood, dim=1).sum() - len(chosen) * np.log(knowledge.n_skills)) / steps
            gap = (best_q.detach().exp() * (best_q.detach() - log_q)).sum(dim=1).mean()
            use = best_q.exp().mean(dim=0)
            spread = -(use * use.clamp(min=1e-9).log()).sum()
            owner, place = pieces.steps_of(chosen)
            choice = th.log_softmax(knowledge.selector.of_vectors(pieces.vectors[place]), dim=1)
            selection = -(weights[chosen][owner] * (best_q.exp().detach()[owner] * choice).sum(dim=1)).sum() / steps
            pressure = self.balance * (1.0 - update / updates)
            total = -evidence + gap - pressure * spread + selection
            return {"loss": total, "elbo": elbo.sum() / steps, "gap": gap, "selection": selection, "spread": spread}

        return train(list(knowledge.networks.parameters()), loss, updates, self.learning_rate)

    def _describe(self, knowledge: SkillKnowledge, pieces: _Pieces, found: Sequence[Episode]) -> None:
        knowledge.library = SkillLibrary(knowledge, pieces.skills(knowledge))
        shares = [skill.share for skill in knowledge.library]
        knowledge.figures = {
            "loss": knowledge.history["loss"][-1],
            "elbo": pieces.evidence(knowledge),
            "memoryless": pieces.memoryless(knowledge),
            "certainty": float(pieces.posterior(knowledge).max(dim=1).values.mean()),
            "used": float(sum(share >= 0.02 for share in shares)),
        }
        vectors = pieces.vectors[:512]
        features = gradient_importance(knowledge.selector.of_vectors, knowledge.selector.vector, vectors)
        knowledge.importance, knowledge.features = by_key(features), most(features)


class _Pieces:
    """Pieces of frames with what skill discovery asks about them, all vectors made once."""

    def __init__(self, steps: States, frames: Frames, length: int, config: Mapping[str, Any]) -> None:
        self.steps, self.frames = steps, frames
        self.rows, self.frame = frames.windows(length)
        vector = StateNet(config["space"], (), 1).vector
        vector.fit(steps.observations)
        self.names = vector.names
        with th.no_grad():
            self.vectors = vector(steps.observations)
        self.actions = one_hot(steps.actions, int(config["n_actions"]))
        self.masks = as_masks(steps.action_masks)

    def __len__(self) -> int:
        return len(self.rows)

    def outcome(self) -> npt.NDArray[np.int8]:
        """Of each piece's frame: 1, 0 or -1."""
        return self.frames.success[self.frame]

    def steps_of(self, chosen: Index) -> tuple[th.Tensor, Index]:
        """For each step of the chosen pieces: which of these it belongs to, and its row."""
        rows = self.rows[chosen]
        return th.as_tensor(np.repeat(np.arange(len(rows)), (rows != NONE).sum(axis=1))), rows[rows != NONE]

    def bound(self, knowledge: SkillKnowledge, chosen: Index) -> tuple[th.Tensor, th.Tensor, th.Tensor, int]:
        """Evidence lower bound (n,), log q and log-likelihood (n, skills) of the chosen pieces, and their steps."""
        rows, (_, place) = self.rows[chosen], self.steps_of(chosen)
        log_q = th.log_softmax(add_up(knowledge.encoder.of_vectors(self.vectors[place], self.actions[place]), rows), dim=1)
        likelihood = add_up(self.likelihood(knowledge, place), rows)
        elbo = (log_q.exp() * (likelihood - log_q)).sum(dim=1) - np.log(knowledge.n_skills)
        return elbo, log_q, likelihood, len(place)

    def likelihood(self, knowledge: SkillKnowledge, place: Index) -> th.Tensor:
        """Log-probability of what was done at `place` under each skill, (n, skills)."""
        masks = None if self.masks is None else self.masks[place]
        log_probs = knowledge._acting(knowledge.decoder.of_vectors(self.vectors[place]), masks)
        # A recorded action that the mask forbids (an environment that does not keep its own word) must not dominate everything.
        return (log_probs.clamp(min=-30.0) * self.actions[place][:, None, :]).sum(dim=2)

    @th.no_grad()
    def evidence(self, knowledge: SkillKnowledge) -> float:
        """Evidence lower bound per step over all pieces."""
        elbo, _, _, steps = self.bound(knowledge, np.arange(len(self)))
        return float(elbo.sum()) / steps

    @th.no_grad()
    def memoryless(self, knowledge: SkillKnowledge) -> float:
        """Log-likelihood per step if every step drew its skill anew."""
        _, place = self.steps_of(np.arange(len(self)))
        share = self.posterior(knowledge).mean(dim=0).clamp(min=1e-9).log()
        return float(th.logsumexp(self.likelihood(knowledge, place) + share, dim=1).mean())

    @th.no_grad()
    def posterior(self, knowledge: SkillKnowledge) -> th.Tensor:
        """Which skill each piece was: q, (S, skills)."""
        _, log_q, _, _ = self.bound(knowledge, np.arange(len(self)))
        return log_q.exp()

    @th.no_grad()
    def skills(self, knowledge: SkillKnowledge) -> list[Skill]:
        """The library's entries."""
        posterior = self.posterior(knowledge).numpy()
        owner, place = self.steps_of(np.arange(len(self)))
        owners = owner.numpy()
        masks = None if self.masks is None else self.masks[place]
        acting = knowledge._acting(knowledge.decoder.of_vectors(self.vectors[place]), masks).exp().numpy()
        lengths, outcome, depth = (self.rows != NONE).sum(axis=1), self.outcome(), self.frames.depth[self.frame]
        vectors = self.vectors[place].numpy()
        centre = vectors.mean(axis=0)
        found = []
        for z in range(knowledge.n_skills):
            weight = posterior[:, z].astype(np.float64) + 1e-12
            by_step = weight[owners] / weight[owners].sum()
            known = outcome != UNKNOWN
            away = by_step @ vectors - centre
            largest = np.argsort(-np.abs(away))[:FEATURES_SHOWN]
            clearest = np.argsort(-weight, kind="stable")[:3]
            examples = [tuple(int(self.steps.actions[row]) for row in self.rows[piece] if row != NONE) for piece in clearest]
            found.append(
                Skill(
                    number=z,
                    share=float(weight.mean()),
                    success=float(weight[known] @ (outcome[known] == SUCCEEDED) / weight[known].sum()) if known.any() else -1.0,
                    length=float(weight @ lengths / weight.sum()),
                    depth=float(weight @ depth / weight.sum()),
                    actions=tuple(float(p) for p in by_step @ acting[:, z]),
                    features={self.names[i]: float(away[i]) for i in largest if abs(away[i]) > 0.1},
                    examples=tuple(examples),
                )
            )
        return found


def _draw(rng: np.random.Generator, probabilities: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """One column of each row, with these probabilities."""
    sums = np.cumsum(probabilities, axis=1, dtype=np.float64)
    picked = (rng.random((len(sums), 1)) * sums[:, -1:] >= sums).sum(axis=1)
    return cast(npt.NDArray[np.int64], np.minimum(picked, probabilities.shape[1] - 1).astype(np.int64))
