"""The features extractor that computes frames' states, and hands them on (MISSION A3, A11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from rao_agents.transfer.exchange import EXCHANGES, Context
from rao_agents.transfer.layout import CONTEXT, FLAGS, FLAGS_KEY, KEPT, MEMORY_KEY, STATE_KEY, Layout, check_options
from rao_agents.transfer.memory import ExternalMemory
from rao_agents.transfer.tracker import Carry

Tensors = Mapping[str, th.Tensor]


class Neighbour(NamedTuple):
    """A frame beside the acting one: for those rows of a batch in which there is one."""

    rows: th.Tensor | None  # (k,) their indices; None: all rows, and what is not there counts as zero
    there: th.Tensor  # (batch, 1) 1 where there is one
    features: th.Tensor  # (k, features) of its last observation
    context: Context  # what it knew when it acted, (k, width) each

    def of(self, tensor: th.Tensor) -> th.Tensor:
        """The rows of a tensor (batch, ...) that belong to these frames."""
        return tensor if self.rows is None else tensor[self.rows]

    def spread(self, values: th.Tensor) -> th.Tensor:
        """`values` (k, width) in the rows of the batch they belong to, zeros elsewhere: (batch, width)."""
        if self.rows is None:
            return values * self.there
        empty = values.new_zeros((len(self.there), values.shape[1]))
        return empty.index_copy(0, self.rows, values)


class StateTransferExtractor(BaseFeaturesExtractor):
    """Features of the acting frame, and what reaches it from its parent, its last child and the tree's memory.

    One inner extractor reads all frames' observations. The states of the parent and of the child are computed anew
    from their last observations and what they knew then, with gradient: so what a child loses teaches its parent's
    encoder what to say, and the other way round. The gradient is exact for one level. What the parent itself had
    been told is stored as it was then and not followed further back, like the stored states of recurrent replay
    (R2D2); deeper levels learn to relay because each is taught by the one below.

    The memory's content is stored as well. The writes of the parent, of the child that returned last and of the
    sibling before are computed anew, and their gradient is that of what is still left of them: the values stay the
    stored ones.

    The features are [features of the observation; recurrent state ("hidden"); message from the parent; message from
    the child (`back`); what was read (`memory`)].

    Args:
        observation_space: `Layout.augmented`.
        inner_class: extractor for the plain observation.
        inner_kwargs: its arguments.
        mode, dim, slots, memory, back: see `TransferOptions`.
    """

    shared_by_specialists = True
    """What all frames understand of each other's messages is one thing, whoever acts (see `specialists`)."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        inner_class: type[BaseFeaturesExtractor],
        inner_kwargs: Mapping[str, Any] | None = None,
        mode: str = "summary",
        dim: int = 64,
        slots: int = 8,
        memory: int = 0,
        back: bool = True,
    ) -> None:
        options = check_options(mode, {"dim": dim, "slots": slots, "memory": memory, "back": back})
        layout = Layout(observation_space, options)
        maker: Any = inner_class
        inner: BaseFeaturesExtractor = maker(spaces.Dict(layout.plain), **dict(inner_kwargs or {}))
        features = inner.features_dim
        messages = [name for name in ("previous", "incoming", "returned", "read") if name in options.context]
        super().__init__(observation_space, features + options.dim * len(messages))
        self.options, self.layout, self.inner = options, layout, inner
        self.exchange = EXCHANGES[mode](features, options) if options.sends else None
        self.memory = ExternalMemory(features, options) if options.memory else None
        self.latest: dict[str, th.Tensor] = {}
        self._every_row = False

    @contextmanager
    def every_row(self) -> Iterator[None]:
        """Compute all rows of every batch, those that need nothing too.

        How many rows a matrix product has decides in which order its terms are added up. Where actions must not
        depend on which episodes run side by side, their number must not either.
        """
        self._every_row = True
        try:
            yield
        finally:
            self._every_row = False

    @property
    def carry(self) -> Carry:
        """What the latest forward pass leaves to be stored.

        Raises:
            RuntimeError: There was none.
        """
        if "context" not in self.latest:
            raise RuntimeError("no forward pass yet: nothing to store")
        arrays = {name: self.latest[name].cpu().numpy() if name in self.latest else None for name in Carry._fields}
        return Carry(**cast(Any, arrays))

    def forward(self, observations: Tensors) -> th.Tensor:
        """Features, (batch, features_dim)."""
        own, neighbours = self._encode(observations)
        context: Context = {}
        parts = [own]
        if self.exchange is not None:
            context["incoming"] = self._message(own, neighbours["parent"])
            if self.options.back:
                context["returned"] = self._message(own, neighbours["child"])
            if self.options.mode == "hidden":
                before = observations[FLAGS_KEY][:, :1]
                # A frame begins with its parent's state.
                context["previous"] = th.where(before > 0, observations[STATE_KEY], context["incoming"])
                state = self.exchange.send(own, context)
                parts.append(state)
                self.latest["state"] = state.detach()
            parts += [context[name] for name in ("incoming", "returned") if name in context]
        if self.memory is not None:
            stored = observations[MEMORY_KEY].unflatten(1, self.memory.shape)
            context["read"] = self.memory.read(own, self._with_gradients(stored, observations, neighbours))
            context["before"] = observations[MEMORY_KEY]
            parts.append(context["read"])
            with th.no_grad():
                change, strength = self.memory.write(own, context, stored)
                self.latest["memory"] = (stored + change).flatten(start_dim=1)
                self.latest["strength"] = strength
        self.latest["context"] = th.cat([context[name].detach() for name in self.options.context], dim=1)
        return th.cat(parts, dim=1)

    def _encode(self, observations: Tensors) -> tuple[th.Tensor, dict[str, Neighbour]]:
        """Features of the acting frames and of those around them that count, in one pass of the inner extractor."""
        flags = observations[FLAGS_KEY]
        keys = tuple(self.layout.plain)
        wanted = self._wanted()
        rows = {name: None if self._every_row else flags[:, FLAGS.index(name)].nonzero().squeeze(1) for name in wanted}

        def chosen(name: str, key: str) -> th.Tensor:
            tensor, index = observations[f"{name}/{key}"], rows[name]
            return tensor if index is None else tensor[index]

        # Rows of an empty part cost nothing, but a copy of the batch does.
        filled = [name for name, index in rows.items() if index is None or len(index)]
        batches = {
            key: th.cat([observations[key], *(chosen(name, key) for name in filled)]) if filled else observations[key] for key in keys
        }
        features = self.inner(batches)
        if self._every_row:
            own, *others = features.reshape(1 + len(filled), -1, self.inner.features_dim).unbind(0)
        else:
            own, *others = features.split([len(flags), *(len(chosen(name, CONTEXT)) for name in filled)])
        encoded = dict(zip(filled, others, strict=True))
        neighbours = {}
        for name in wanted:
            context = dict(zip(self.options.context, chosen(name, CONTEXT).split(list(self.options.context.values()), dim=1), strict=True))
            there = flags[:, FLAGS.index(name), None]
            neighbours[name] = Neighbour(rows[name], there, encoded.get(name, features[:0]), context)
        return own, neighbours

    def _wanted(self) -> Sequence[str]:
        """Whose states are needed: for the memory's own gradients only where there are gradients."""
        if self.memory is not None and th.is_grad_enabled():
            return self.options.others
        if self.exchange is None:
            return ()
        return ("parent", "child") if self.options.back else ("parent",)

    def _message(self, own: th.Tensor, neighbour: Neighbour) -> th.Tensor:
        """What the acting frames, with features (batch, features), get from a neighbour: (batch, dim), zeros without one."""
        assert self.exchange is not None
        if not len(neighbour.features):
            return own.new_zeros((len(own), self.options.dim))
        offer = self.exchange.send(neighbour.features, neighbour.context)
        return neighbour.spread(self.exchange.receive(neighbour.of(own), offer))

    def _with_gradients(self, stored: th.Tensor, observations: Tensors, neighbours: Mapping[str, Neighbour]) -> th.Tensor:
        """The memory as stored, (batch, slots, dim), with the gradients of those writes in it that can be computed again."""
        if not th.is_grad_enabled():
            return stored
        assert self.memory is not None
        for name, neighbour in neighbours.items():
            if not len(neighbour.features):
                continue
            before = neighbour.context["before"].unflatten(1, self.memory.shape)
            change, _ = self.memory.write(neighbour.features, neighbour.context, before)
            left = neighbour.of(observations[f"{name}/{KEPT}"])[:, :, None] * (change - change.detach())
            stored = stored + neighbour.spread(left.flatten(start_dim=1)).unflatten(1, self.memory.shape)
        return stored
