"""The feature extractor of long sequences: what it sees, what it is blind to, and that it can be trained."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch as th

from rao_agents import RecursivePPO, SequenceExtractor, make_vec_env
from rao_agents.sequence_extractor import in_bins
from rao_envs.longseq.env import LongSeqVectorEnv
from rao_envs.longseq.queries import CODES, DIGITS

SMALL: dict[str, Any] = {"window": 64, "density": 20.0}


def observe(n: int = 8, **kwargs: Any) -> tuple[LongSeqVectorEnv, dict[str, th.Tensor]]:
    env = LongSeqVectorEnv(n, **{**SMALL, "length": 40, **kwargs})
    observation, _ = env.reset(seed=0)
    return env, tensors(observation)


def tensors(observation: dict[str, Any]) -> dict[str, th.Tensor]:
    return {name: th.as_tensor(array).float() for name, array in observation.items()}


def test_sums_fall_into_bins() -> None:
    bins = in_bins(th.tensor([0.0, 1.0, 2.25, 7.0]), th.arange(4.0))
    assert bins.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.75, 0.25], [0, 0, 0, 1]]


def test_at_first_the_gate_passes_the_records_with_the_key_in_question() -> None:
    env, observation = observe(query="max")
    extractor = SequenceExtractor(env.single_observation_space, window=64)
    pooled = extractor.pool_gated(observation["task"], observation["task"][:, 7:8].long())
    totals = pooled[:, 4 * DIGITS :].argmax(dim=1)
    hits = [int(env.batch.state.offsets[i, -1]) for i in range(8)]
    assert totals.tolist() == hits and max(hits) > 1


def test_gates_of_missing_keys_are_shut() -> None:
    env, _ = observe()
    extractor = SequenceExtractor(env.single_observation_space, window=64, keys=3)
    gates = extractor.gates(th.tensor([[5, 0, 0]]))
    assert gates.shape == (1, 3, CODES + 1)
    assert gates[0, 0, 5] > 0.99 and gates[0, 0, 0] == 0 and not gates[0, 1:].any()
    assert gates[0, 0].sum() < 1.01, "nothing else passes"


@pytest.mark.parametrize("gated", [True, False])
def test_order_does_not_matter_and_records_do(gated: bool) -> None:
    env, observation = observe()
    th.manual_seed(0)
    extractor = SequenceExtractor(env.single_observation_space, window=64, gated=gated)
    features = extractor(observation)
    assert features.shape == (8, 256)
    where = env.domain.layout
    shuffled = {**observation, "task": observation["task"].clone()}
    order = th.randperm(48, generator=th.Generator().manual_seed(0))
    for part in ("keys", "values"):
        shuffled["task"][:, where[part]] = observation["task"][:, where[part]][:, order]
    th.testing.assert_close(extractor(shuffled), features)
    empty = {**observation, "task": observation["task"].clone()}
    empty["task"][:, where["keys"]] = 0
    empty["task"][:, where["values"]] = 0
    assert not th.allclose(extractor(empty), features)


def test_halves_of_the_window_are_told_apart_for_questions_about_pairs() -> None:
    env, observation = observe(query="pairs", length=24)
    th.manual_seed(0)
    extractor = SequenceExtractor(env.single_observation_space, window=64, keys=2, panes=True)
    swapped = {**observation, "task": observation["task"].clone()}
    start = env.domain.layout["keys"].start
    for first in (start, start + 48):
        swapped["task"][:, first : first + 24] = observation["task"][:, first + 24 : first + 48]
        swapped["task"][:, first + 24 : first + 48] = observation["task"][:, first : first + 24]
    swapped["task"][:, start : start + 24] = 0
    assert not th.allclose(extractor(swapped), extractor(observation))


def test_budgets_are_not_seen() -> None:
    env, observation = observe()
    extractor = SequenceExtractor(env.single_observation_space, window=64)
    changed = {**observation, "call": observation["call"].clone()}
    changed["call"][:, 1:3] *= 0.5
    assert th.equal(extractor(changed), extractor(observation))


@pytest.mark.parametrize("gated", [True, False])
def test_everything_learns(gated: bool) -> None:
    env, observation = observe(n=64, length=100)
    extractor = SequenceExtractor(env.single_observation_space, window=64, gated=gated)
    extractor(observation).pow(2).sum().backward()
    used = {name for name, parameter in extractor.named_parameters() if parameter.grad is not None and parameter.grad.abs().sum() > 0}
    assert {"embedding.weight", "layers.0.weight", "layers.1.weight", "layers.2.weight"} <= used
    assert not gated or {"alpha", "beta"} <= used


def test_other_observations_are_refused() -> None:
    env, _ = observe()
    with pytest.raises(ValueError, match="a window of 2000 tokens"):
        SequenceExtractor(env.single_observation_space)
    with pytest.raises(ValueError, match="keys must be 1 to 3"):
        SequenceExtractor(env.single_observation_space, window=64, keys=4)


def test_a_model_with_it_is_saved_and_read_without_pickles() -> None:
    env = make_vec_env("RAO/LongSeq-v0", n_envs=4, seed=0, length=100, **SMALL)
    kwargs = {
        "features_extractor_class": SequenceExtractor,
        "features_extractor_kwargs": {"window": 64, "features_dim": 32},
        "net_arch": [32],
    }
    model = RecursivePPO("MultiInputPolicy", env, n_steps=16, batch_size=32, n_epochs=1, policy_kwargs=kwargs, seed=0, device="cpu")
    model.learn(64)
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    again = RecursivePPO.load(file, env=env, device="cpu")
    observation = env.reset()
    np.testing.assert_array_equal(model.predict(observation, deterministic=True)[0], again.predict(observation, deterministic=True)[0])
