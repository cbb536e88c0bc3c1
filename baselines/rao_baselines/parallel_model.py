"""How long a tree takes on a cluster: a model of three numbers, to be held against what was measured and to look beyond it.

A tree of `steps` environment steps is cut into `packets` sub-trees of one size. The driver packs each and takes its end back, one after
the other; the workers run them, each the next one when it is free:

    T = packets * packet + ceil(packets / workers) * (latency + steps / packets * step)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SPREAD = 4
"""Sub-trees per worker, as `OnRay` looks for."""


class Costs(NamedTuple):
    """In seconds."""

    step: float  # of the agent and its environment, in a worker that batches
    packet: float  # the driver's work for a sub-tree
    latency: float  # that a sub-tree waits on its way there and back

    def costlier(self, milliseconds: float) -> Costs:
        """The same where the agent's step takes so much more."""
        return self._replace(step=self.step + 1e-3 * milliseconds)


def wall_clock(costs: Costs, steps: float, workers: int, packets: int) -> float:
    """Seconds for a tree of so many steps, cut into `packets`, on `workers` processes."""
    return packets * costs.packet + math.ceil(packets / workers) * (costs.latency + steps / packets * costs.step)


def fit(leaves: Sequence[Mapping[str, Any]], one: str, here: str) -> Costs:
    """Costs of the cluster that was measured, from the engines called `one` (one worker) and `here` (no cluster).

    The step is that of the batched run where it costs nothing besides; what one worker takes longer than that, over all measured costs,
    is the packets' share (the median). Between processes of one machine there is no latency to speak of beside it.
    """
    step = leaves[0]["seconds"][here] / leaves[0]["steps"]
    extra = sorted(row["seconds"][one] - row["steps"] * (step + 1e-3 * row["milliseconds"]) for row in leaves)
    return Costs(step, max(extra[len(extra) // 2], 0.0) / SPREAD, 0.0)
