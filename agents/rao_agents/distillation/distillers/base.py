"""What a distiller is: it makes knowledge out of remembered episodes (MISSION B3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.knowledge import Knowledge, Provenance
from rao_agents.distillation.torch_seeds import torch_seeded

if TYPE_CHECKING:
    from rao_agents.distillation.episodes import Episode


class Experience(Protocol):
    """What distillers need of an experience buffer."""

    def episodes(self, window: int | None = None) -> Sequence[Episode]:
        """The remembered episodes, oldest first; with `window`, those of that many of the latest policy iterations only."""
        ...


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Within it, torch's own random numbers (initial weights, noise) come from `rng`; outside, they are as if nothing had been drawn."""
    with torch_seeded(int(rng.integers(2**63))):
        yield


class Distiller(ABC):
    """Makes knowledge out of experience; the base of all.

    A distiller is made from plain arguments, which `config` gives back, so that it can be made anew elsewhere (in another process, when
    training is resumed), and what it remembers between distillations is plain too (`state`). It draws every random number from the
    generator it is handed, and leaves the policy as it is.
    """

    kind: ClassVar[str] = ""
    """Of the knowledge it makes; also its name in configurations."""

    @abstractmethod
    def distil(self, policy: BasePolicy, buffer: Experience, previous: Knowledge | None, rng: np.random.Generator) -> Knowledge:
        """Distil.

        Args:
            policy: the one that is learning; read only.
            buffer: what is remembered, at least one episode.
            previous: what the last distillation made, of any kind, or None. A distiller may start from it.
            rng: the only source of randomness.

        Raises:
            NotEnoughError: there is too little to learn from yet; the caller goes on without.
        """

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""

    def observe(self, policy: BasePolicy, iteration: int) -> None:
        """Called once after each update of the policy, for distillers that follow its course (averages, snapshots)."""

    def rolled_back(self, iteration: int) -> None:
        """Called when the policy has been put back to what it was at `iteration`: what was observed since does not count."""

    def state(self) -> dict[str, Any]:
        """What it remembers besides its arguments: plain values and arrays."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave.

        Raises:
            ValueError: it is not what `state` gives.
        """
        if state:
            raise ValueError(f"{type(self).__name__} remembers nothing between distillations, got {sorted(state)}")

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items())
        return f"{type(self).__name__}({arguments})"

    def provenance(self, episodes: Sequence[Episode]) -> Provenance:
        """Where knowledge distilled from `episodes` comes from, as far as a distiller knows; the caller adds the moment."""
        return Provenance(
            distiller=repr(self),
            iteration=max((int(episode.iteration) for episode in episodes), default=0),
            episodes=len(episodes),
            successes=sum(bool(episode.success) for episode in episodes),
            steps=sum(len(episode.actions) for episode in episodes),
        )


class NotEnoughError(ValueError):
    """There is too little experience to distil from yet; the message says what is missing."""
