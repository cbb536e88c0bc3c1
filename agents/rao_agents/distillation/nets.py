"""The small networks that distillers train, and their training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from torch import nn

from rao_agents.distillation.observations import Observations, ObservationVector


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Fully connected layers of these widths, with tanh between them."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Tanh()] if i else []
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers)


class StateNet(nn.Module):
    """From observations to `out` numbers each, (n, out).

    Args:
        space: of the observations.
        hidden: widths of the hidden layers.
        out: width of the output.
        extra: width of what may be appended to the observation.
    """

    def __init__(self, space: spaces.Space[object], hidden: Sequence[int], out: int, extra: int = 0) -> None:
        super().__init__()
        self.vector = ObservationVector(space)
        self.extra = extra
        self.layers = mlp([self.vector.width + extra, *hidden, out])

    def fit_inputs(self, obs: Observations) -> None:
        """Standardise inputs by these observations."""
        self.vector.fit(obs)

    def of_vectors(self, vectors: th.Tensor, extra: th.Tensor | None = None) -> th.Tensor:
        """As `forward`, from the vectors that `self.vector` gives, (n, width)."""
        if self.extra:
            vectors = th.cat([vectors, vectors.new_zeros(len(vectors), self.extra) if extra is None else extra], dim=1)
        result: th.Tensor = self.layers(vectors)
        return result

    def forward(self, obs: Observations, extra: th.Tensor | None = None) -> th.Tensor:
        """(n, out); without `extra` zeros stand in its place."""
        return self.of_vectors(self.vector(obs), extra)


def minibatches(rng: np.random.Generator, total: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers below `total` in random order, `size` at a time (the last batch may be smaller)."""
    order = rng.permutation(total)
    for start in range(0, total, size):
        yield order[start : start + size]


def train(
    parameters: Sequence[nn.Parameter],
    loss: Callable[[int], Mapping[str, th.Tensor]],
    updates: int,
    learning_rate: float,
    points: int = 40,
) -> dict[str, list[float]]:
    """Minimise the entry "loss" of what `loss` returns for each of `updates` updates, with Adam and a rate that falls to zero.

    Args:
        parameters: what is learned.
        loss: from the number of the update to the losses, scalars; "loss" is minimised, the rest is only recorded.
        updates: how many, at least 1.
        learning_rate: of the first update.
        points: how many means are kept of each loss, at most.

    Returns:
        The course of each loss: means over successive parts of the training.

    Raises:
        FloatingPointError: the loss stopped being a number.
    """
    optimiser = th.optim.Adam(parameters, lr=learning_rate)
    seen: dict[str, list[float]] = {}
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * (1.0 - update / updates)
        losses = loss(update)
        if not bool(th.isfinite(losses["loss"])):
            raise FloatingPointError(f"the loss of the distillation is {float(losses['loss'])} after {update} updates")
        optimiser.zero_grad()
        losses["loss"].backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        for name, value in losses.items():
            seen.setdefault(name, []).append(float(value.detach()))
    return {name: [float(np.mean(part)) for part in np.array_split(values, min(points, len(values)))] for name, values in seen.items()}
