"""What frames hand to each other: one module for each mode of state transfer (MISSION A3).

All have the same two functions. `send` computes what a frame offers from its features and from what it knew when it
acted (`Context`); `receive` makes a message of width `dim` of it, for a frame with features of its own. The message a
frame got from its parent goes into what it offers its children, so that messages are relayed through any number of
levels, downwards and upwards.
"""

from __future__ import annotations

import math

import torch as th
from torch import nn

from rao_agents.transfer.layout import TransferOptions

Context = dict[str, th.Tensor]
"""What a frame knew when it acted, (rows, width) for each name of `TransferOptions.context`."""


class Exchange(nn.Module):
    """A way of handing states on; see the module's docstring.

    Args:
        features: width of a frame's features.
        options: of the transfer.
    """

    def __init__(self, features: int, options: TransferOptions) -> None:
        super().__init__()
        self.received = ("incoming", "returned") if options.back else ("incoming",)
        self.width = features + options.dim * len(self.received)

    def known(self, features: th.Tensor, context: Context) -> th.Tensor:
        """(rows, width): all that a frame's state is computed from."""
        return th.cat([features, *(context[name] for name in self.received)], dim=1)

    def send(self, features: th.Tensor, context: Context) -> th.Tensor:
        """What frames with these features, (rows, features), and contexts offer others, (rows, any)."""
        raise NotImplementedError

    def receive(self, features: th.Tensor, offer: th.Tensor) -> th.Tensor:
        """The message, (rows, dim), that frames with these features take from what is offered to them."""
        raise NotImplementedError


class Summary(Exchange):
    """S = tanh(W [features; incoming; returned] + b), (rows, dim): the offer is the message."""

    def __init__(self, features: int, options: TransferOptions) -> None:
        super().__init__(features, options)
        self.summarise = nn.Linear(self.width, options.dim)

    def send(self, features: th.Tensor, context: Context) -> th.Tensor:
        """See `Exchange`."""
        return th.tanh(self.summarise(self.known(features, context)))

    def receive(self, features: th.Tensor, offer: th.Tensor) -> th.Tensor:
        """See `Exchange`."""
        return offer


class Hidden(Exchange):
    """h' = GRU([features; incoming; returned], h), (rows, dim): a frame's recurrent state is the message."""

    def __init__(self, features: int, options: TransferOptions) -> None:
        super().__init__(features, options)
        self.cell = nn.GRUCell(self.width, options.dim)

    def send(self, features: th.Tensor, context: Context) -> th.Tensor:
        """The state after the step, from `context["previous"]`, the state before it."""
        state: th.Tensor = self.cell(self.known(features, context), context["previous"])
        return state

    def receive(self, features: th.Tensor, offer: th.Tensor) -> th.Tensor:
        """See `Exchange`."""
        return offer


class Attention(Exchange):
    """Keys and values K, V (slots, dim) from [features; incoming; returned]; softmax(q K / sqrt(dim)) V, q from one's own features."""

    def __init__(self, features: int, options: TransferOptions) -> None:
        super().__init__(features, options)
        self.shape = (2, options.slots, options.dim)
        self.offer = nn.Linear(self.width, math.prod(self.shape))
        self.query = nn.Linear(features, options.dim)

    def send(self, features: th.Tensor, context: Context) -> th.Tensor:
        """Keys and values, (rows, 2 * slots * dim)."""
        offer: th.Tensor = self.offer(self.known(features, context))
        return offer

    def receive(self, features: th.Tensor, offer: th.Tensor) -> th.Tensor:
        """See `Exchange`."""
        keys, values = offer.unflatten(1, self.shape).unbind(1)  # (rows, slots, dim) each
        return attend(self.query(features), keys, values)


EXCHANGES: dict[str, type[Exchange]] = {"summary": Summary, "hidden": Hidden, "attention": Attention}


def attend(query: th.Tensor, keys: th.Tensor, values: th.Tensor) -> th.Tensor:
    """Scaled dot-product attention: `query` (rows, dim), `keys` and `values` (rows, slots, dim), result (rows, dim)."""
    scores = th.einsum("rd,rsd->rs", query, keys) / math.sqrt(query.shape[1])
    return th.einsum("rs,rsd->rd", scores.softmax(dim=1), values)
