"""An external memory that all frames of an episode read and write (MISSION A11)."""

from __future__ import annotations

import torch as th
from torch import nn
from torch.nn import functional as F

from rao_agents.transfer.exchange import Context, attend
from rao_agents.transfer.layout import TransferOptions


class ExternalMemory(nn.Module):
    """`memory` slots of width `dim`, zeros when an episode begins.

    Read: r = normalised(softmax(q m' / sqrt(dim)) m) with q from the frame's features and m' a linear map of the slots; what is
    read has mean 0 and variance 1 over its entries, since what was written once fades with every later write.
    Written at every step by the frame that acts: m <- (1 - a) m + a v, slot by slot, with the value v = tanh(V k), the
    strength a = sigmoid(g k) softmax(A k), and k the frame's features, its messages and what it read.

    Args:
        features: width of a frame's features.
        options: of the transfer.
    """

    def __init__(self, features: int, options: TransferOptions) -> None:
        super().__init__()
        self.shape = (options.memory, options.dim)
        self.inputs = [name for name in ("incoming", "returned", "read") if name in options.context]
        width = features + options.dim * len(self.inputs)
        self.query = nn.Linear(features, options.dim)
        self.key = nn.Linear(options.dim, options.dim)
        self.value = nn.Linear(width, options.dim)
        self.address = nn.Linear(width, options.memory)
        self.gate = nn.Linear(width, 1)

    def read(self, features: th.Tensor, memory: th.Tensor) -> th.Tensor:
        """What frames with these features find in `memory` (rows, slots, dim): (rows, dim)."""
        found = attend(self.query(features), self.key(memory), memory)
        return F.layer_norm(found, [self.query.out_features])

    def write(self, features: th.Tensor, context: Context, memory: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """By how much frames change `memory`, (rows, slots, dim), and the strength a, (rows, slots)."""
        known = th.cat([features, *(context[name] for name in self.inputs)], dim=1)
        strength = th.sigmoid(self.gate(known)) * self.address(known).softmax(dim=1)
        value = th.tanh(self.value(known))
        return strength[:, :, None] * (value[:, None, :] - memory), strength
