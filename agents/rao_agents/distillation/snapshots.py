"""Past versions of a policy: copies of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.policies import BasePolicy

Weights = dict[str, th.Tensor]


def weights_of(policy: BasePolicy) -> Weights:
    """A copy of the policy's weights, on the CPU."""
    return {name: value.detach().to("cpu", copy=True) for name, value in policy.state_dict().items()}


@dataclass(frozen=True)
class Snapshot:
    """The weights of a policy when it had learned from `iteration` rollouts."""

    iteration: int
    weights: Weights


class Snapshots:
    """The last versions of a policy, some iterations apart.

    Args:
        keep: how many, at least 1.
        every: iterations between two, at least 1.
    """

    def __init__(self, keep: int, every: int) -> None:
        self.keep, self.every = keep, every
        self.kept: list[Snapshot] = []

    def observe(self, policy: BasePolicy, iteration: int) -> None:
        """Keep a copy if it is time for one."""
        if not self.kept or iteration - self.kept[-1].iteration >= self.every:
            self.kept = [*self.kept, Snapshot(iteration, weights_of(policy))][-self.keep :]

    def forget_after(self, iteration: int) -> None:
        """Drop what is younger than `iteration`."""
        self.kept = [snapshot for snapshot in self.kept if snapshot.iteration <= iteration]

    def state(self) -> list[dict[str, Any]]:
        """What is kept, as plain arrays."""
        return [
            {"iteration": snapshot.iteration, "weights": {name: value.numpy() for name, value in snapshot.weights.items()}}
            for snapshot in self.kept
        ]

    def set_state(self, state: Any) -> None:
        """Take back what `state` gave.

        Raises:
            ValueError: it is damaged.
        """
        if not isinstance(state, list) or not all(isinstance(item, Mapping) and {"iteration", "weights"} <= set(item) for item in state):
            raise ValueError("these are not snapshots of a policy")
        self.kept = [
            Snapshot(int(item["iteration"]), {name: th.as_tensor(np.array(value)) for name, value in item["weights"].items()})
            for item in state
        ]
