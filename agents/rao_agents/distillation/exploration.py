"""An exploration bonus where knowledge predicts value and visits are few (MISSION B5)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from rao_agents.distillation.episodes import PLAIN
from rao_agents.distillation.injection import Tally
from rao_agents.distillation.injectors import Injection, Injector, Scheduled, State
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.observations import HIDDEN
from rao_agents.recursive_algorithm import AnySchedule
from rao_agents.rollout_buffer import FrameRolloutBufferMixin
from rao_agents.transfer.layout import FLAGS_KEY, MEMORY_KEY, STATE_KEY

UNCOUNTED = (*HIDDEN, FLAGS_KEY, STATE_KEY, MEMORY_KEY)
"""Parts of an observation that make no place of their own; states that frames hand on are hardly ever the same twice."""


class ExplorationBonus(Injector):
    """Pays for promising states that were seldom seen.

    Every step taken in a state s earns weight * strength * max(K(s), 0) / sqrt(1 + visits(s)).

    The bonus enters what the algorithm learns from, not the environment's reward: scores, episode statistics and remembered episodes
    know nothing of it. With frames it is the acting frame's own. Visits are counted in a table by a hash of the observation (masks,
    places on the stack and states that frames hand on left out); states that share a place share their count.

    Needs knowledge that offers values: on a scale of its own (a probability of success, for the contrastive encoder).

    Args:
        weight: a number or a schedule.
        places: of the table.

    Raises:
        ValueError: a number out of range.
    """

    kind = "exploration"

    def __init__(self, weight: AnySchedule = 0.05, places: int = 1 << 16) -> None:
        self.weight = Scheduled("weight", weight)
        if places < 1:
            raise ValueError(f"places must be at least 1, got {places!r}")
        self.places = int(places)
        self.visits = np.zeros(self.places, np.int64)
        self.knowledge: Knowledge | None = None
        self.strength = 0.0
        self.tally = Tally()

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        self.resume(round_)

    def resume(self, round_: Injection) -> None:
        """See `Injector`."""
        if round_.pool.values is None:
            raise ValueError(f"an exploration bonus needs knowledge that offers values, got {round_.knowledge.kind} knowledge")
        self.knowledge, self.strength = round_.knowledge, round_.strength

    def step(self, model: OnPolicyAlgorithm, variables: Mapping[str, Any]) -> None:
        """See `Injector`."""
        observations = model._last_obs
        obs: dict[str, npt.NDArray[Any]] = dict(observations) if isinstance(observations, dict) else {PLAIN: np.asarray(observations)}
        place = self._place(obs)
        seen = self.visits[place]
        np.add.at(self.visits, place, 1)
        weight = self.weight.now(model) * self.strength
        if self.knowledge is None or weight == 0:
            return
        values = self.knowledge.value(obs)
        assert isinstance(values, th.Tensor)
        bonus = weight * np.maximum(values.cpu().numpy().reshape(-1), 0.0) / np.sqrt(1.0 + seen)
        self.tally.add("bonus", float(bonus.mean()))
        buffer = model.rollout_buffer
        if isinstance(buffer, FrameRolloutBufferMixin):
            buffer.add_bonus(bonus)
        else:
            # The array that the algorithm is about to put into its rollout buffer.
            variables["rewards"][:] += bonus.astype(np.float32)

    def _place(self, obs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        parts = [np.ascontiguousarray(array) for key, array in sorted(obs.items()) if key not in UNCOUNTED]
        hashes = np.zeros(len(parts[0]), np.int64)
        for index in range(len(hashes)):
            value = 0
            for part in parts:
                value = zlib.crc32(part[index].tobytes(), value)
            hashes[index] = value % self.places
        return hashes

    def end(self, model: OnPolicyAlgorithm) -> None:
        """See `Injector`."""
        self.knowledge = None

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {"weight": self.weight.plain(), "places": self.places}

    def state(self) -> State:
        """See `Injector`."""
        return {"visits": self.visits.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Injector`."""
        visits = np.array(state["visits"], np.int64)
        if visits.shape != (self.places,):
            raise ValueError(f"the table has {self.places} places, the state {visits.shape}")
        self.visits = visits

    def figures(self) -> dict[str, float]:
        """See `Injector`."""
        found = self.tally.take()
        return {name: value for name, value in found.items() if math.isfinite(value)}
