"""A student with priors is smoother and more consistent than one without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from remembered import buffer_of, episode, small_policy

from rao_agents.distillation import StudentDistiller, states
from rao_agents.distillation.distillers.contrastive import ContrastiveDistiller
from rao_agents.distillation.segments import Frames

GAMMA, LAMBDA = 0.9, 0.8


def remembered() -> Any:
    """Frames whose rewards are 1 at their ends; values and advantages are consistent with GAE of a poor critic."""
    rng, episodes = np.random.default_rng(0), []
    for _ in range(30):
        obs = rng.normal(size=(12, 4)).astype(np.float32)
        rewards, values, advantages, carry = np.zeros(12), rng.normal(size=12), np.zeros(12), 0.0
        rewards[-1] = 1.0
        for t in reversed(range(12)):
            after = values[t + 1] if t < 11 else 0.0
            carry = rewards[t] + GAMMA * after - values[t] + GAMMA * LAMBDA * carry
            advantages[t] = carry
        episodes.append(episode(obs, rng.integers(3, size=12), rewards=rewards, values=values, advantages=advantages))
    return buffer_of(episodes)


def student(**priors: float) -> Any:
    th.manual_seed(0)
    policy = small_policy(hidden=(32,))
    with th.no_grad():
        policy.action_net.weight.mul_(300)  # choices that change fast from state to state
    priors = {"gamma": GAMMA, "gae_lambda": LAMBDA, **priors}
    distiller = StudentDistiller(teacher="policy", student="same", epochs=40, batch_size=32, learning_rate=5e-3, priors=priors)
    twin = StudentDistiller(**distiller.config())
    assert twin.config() == distiller.config()
    return twin.distil(policy, remembered(), None, np.random.default_rng(1))


def change(knowledge: Any, noise: float) -> float:
    found = states(remembered().episodes())
    moved = found.observations[""] + noise * np.random.default_rng(2).normal(size=(len(found), 4)).astype(np.float32)
    here, there = knowledge.action_log_probs(found.observations), knowledge.action_log_probs(moved)
    return float((here.exp() * (here - there)).sum(dim=1).mean())


def following(knowledge: Any) -> tuple[Any, Any, Any]:
    found = states(remembered().episodes())
    return found, Frames(found).successors(), knowledge.value(found.observations).numpy()


def residual(knowledge: Any) -> float:
    _, after, values = following(knowledge)
    last = after < 0
    target = np.where(last, 1.0, GAMMA * values[after])
    return float(np.square(values - target).mean())


def drift(knowledge: Any) -> float:
    found, after, _ = following(knowledge)
    chance = knowledge.action_log_probs(found.observations).exp().numpy()
    return float(np.abs(chance[after[after >= 0]] - chance[after >= 0]).sum(axis=1).mean())


def test_each_prior_does_what_it_says() -> None:
    plain = student()
    assert change(student(smoothness=3.0, noise=0.3), 0.3) < 0.8 * change(plain, 0.3)
    assert drift(student(temporal=3.0)) < 0.8 * drift(plain)
    assert residual(student(bellman=30.0)) < 0.8 * residual(plain)


def test_experts_have_no_residual() -> None:
    buffer = remembered()
    experts = buffer_of([one.as_expert() for one in buffer.episodes()])
    distiller = StudentDistiller(teacher="policy", student="same", epochs=1, priors={"bellman": 1.0})
    assert np.isfinite(distiller.distil(small_policy(), experts, None, np.random.default_rng(0)).history["loss"]).all()


def test_a_chance_has_no_temporal_prior() -> None:
    with pytest.raises(ValueError, match="no temporal prior"):
        ContrastiveDistiller(priors={"temporal": 1.0})
