"""Which parts of the observation matter to what knowledge answers (MISSION B4): by permutation, and by gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th

from rao_agents.distillation.observations import HIDDEN, ObservationVector

Answer = Callable[[Mapping[str, npt.NDArray[Any]]], th.Tensor]
"""From observations by key to (n,) or (n, k) numbers."""


@th.no_grad()
def permutation_importance(answer: Answer, obs: Mapping[str, npt.NDArray[Any]], rng: np.random.Generator) -> dict[str, float]:
    """How much each key matters: the mean absolute change of the answer when the key's rows are shuffled among the observations.

    Works for anything that answers; keys that depend on each other share what they say.

    Args:
        answer: what is asked; for policies let it give probabilities, for values values.
        obs: observations (n, *shape) by key ("" for plain ones), some hundred.
        rng: of the shuffling.

    Returns:
        Shares that sum to 1 (all 0 if nothing matters); masks and frame keys are left out.
    """
    plain = answer(obs)
    changes = {}
    for key, values in obs.items():
        if key in HIDDEN:
            continue
        moved = answer({**obs, key: values[rng.permutation(len(values))]})
        changes[key] = float((moved - plain).abs().mean())
    return shares(changes)


def gradient_importance(answer: Callable[[th.Tensor], th.Tensor], vector: ObservationVector, inputs: th.Tensor) -> dict[str, float]:
    """How much each single feature matters: the mean size of the gradient of the answer by the standardised feature.

    Args:
        answer: from vectors (n, width) to (n,) or (n, k) numbers, differentiable.
        vector: what made the vectors: it knows the features' names.
        inputs: the vectors (n, width).

    Returns:
        Shares that sum to 1, by feature name, of all features.
    """
    inputs = inputs.detach().clone().requires_grad_(True)
    outputs = answer(inputs).reshape(len(inputs), -1)
    # The sum over rows: a row's outputs depend on no other row.
    size = th.stack([th.autograd.grad(outputs[:, k].sum(), inputs, retain_graph=True)[0].abs() for k in range(outputs.shape[1])]).mean(
        dim=(0, 1)
    )
    return shares(dict(zip(vector.names, size.tolist(), strict=True)))


def by_key(features: Mapping[str, float]) -> dict[str, float]:
    """Shares of single features ("key[3]") added up by key."""
    result: dict[str, float] = {}
    for name, share in features.items():
        key = name.rpartition("[")[0]
        result[key] = result.get(key, 0.0) + share
    return result


def most(features: Mapping[str, float], count: int = 20) -> dict[str, float]:
    """The `count` largest shares, largest first."""
    return dict(sorted(features.items(), key=lambda item: -item[1])[:count])


def shares(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts of at least 0 divided by their sum; all 0 where that is 0."""
    total = sum(amounts.values())
    return {name: amount / total if total > 0 else 0.0 for name, amount in amounts.items()}
