"""What chooses the actions of frames, wherever on the forest they run: an agent, its memory, and the row it computes in."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from rao_envs.core.actors import Agent, CallableActor, Memory, ModelActor, Moment, make_actor
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.forest import Acting, Change, Forest, Join

Packed = Any
"""What the frames of a slot remember, on its way to another process: arrays, a callable's states in bytes, or None."""


class FrameActor:
    """Acts for frames: what an action hangs on is the tree's seed, the frame's id and its own step, never who else runs beside it.

    Models act as in `rao_envs.evaluate`, in forward passes of exactly `rows` rows. A policy with state transfer keeps its state for
    every slot, and hands it on where children move into slots of their own. A callable `(observation, mask, state)` has one `state`
    per frame: None when the frame opens, and kept for it while its children run.

    Args:
        agent: as `rao_envs.evaluate` takes it.
        batch: whose instances are the forest's slots.
        deterministic: the greedy action; else one is drawn.
        rows: in every forward pass.

    Raises:
        TypeError, ValueError: as `rao_envs.core.actors.make_actor`; or a recurrent policy, whose memory runs through a whole episode.
    """

    def __init__(self, agent: Agent, batch: RecursiveBatch, *, deterministic: bool, rows: int) -> None:
        self.stack = batch.stack
        self.levels = batch.stack.frames.shape[1]
        n_actions = len(batch.action_names)
        self.actor = make_actor(agent, batch.observation_space, n_actions, batch.n * self.levels, deterministic=deterministic, rows=rows)
        self.memory: Memory | None = self.actor.memory if isinstance(self.actor, ModelActor) else None
        self.keeper: Any = None
        if isinstance(self.actor, ModelActor) and self.memory is not None:
            self.keeper = self.actor.keeper
            if self.keeper is None and len(batch.spawn_actions):
                raise ValueError(
                    f"{type(agent).__name__} remembers a whole episode, step by step, so its frames cannot be run on their own: "
                    "rao_envs.evaluate plays it"
                )

    @property
    def lanes(self) -> int:
        """Rows of a forward pass, each for one lane; 1 of a callable."""
        return self.actor.lanes

    @property
    def in_lanes(self) -> bool:
        """Whether frames of the same lane cannot act at once."""
        return isinstance(self.actor, ModelActor)

    def moment(self, forest: Forest, slots: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64], acting: Acting) -> Moment:
        """The frames that act in `slots`, as the actor sees them; `seeds` (m,) of their trees."""
        observations, masks = forest.observe(slots)
        kept_at = slots * self.levels + acting.depths if isinstance(self.actor, CallableActor) else slots
        return Moment(observations, masks, seeds, acting.steps, kept_at, acting.frames)

    def act(self, now: Moment, lanes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """One action per row; no two rows of a network may share a lane."""
        if isinstance(self.actor, ModelActor):
            return self.actor.act_once(now, np.arange(len(lanes)), lanes)
        return self.actor.act(now)

    def begin(self, slot: int) -> None:
        """A tree begins in this slot."""
        if self.memory is not None:
            self.memory.begin(np.array([slot]))

    def follow(self, change: Change) -> None:
        """Let what is remembered go where the frames went."""
        if self.keeper is None:
            return
        for fork in change.forks:
            self._fork(fork)
        for join in change.joins:
            self._join(join)

    def pack(self, slot: int) -> Packed:
        """What the frames on the stack of `slot` remember, to go on elsewhere."""
        if isinstance(self.actor, CallableActor):
            bottom = slot * self.levels
            states = self.actor.states[bottom : bottom + int(self.stack.episodes["depth"][slot]) + 1]
            # As bytes: arrays that travel by themselves come back read-only, and a callable may write to its own.
            return None if all(state is None for state in states) else cloudpickle.dumps(states)
        return None if self.memory is None else self._read(slot)

    def unpack(self, slot: int, packed: Packed) -> None:
        """Let `slot` remember what `pack` or `legacy` gave."""
        if isinstance(self.actor, CallableActor):
            bottom = slot * self.levels
            states = [] if packed is None else cloudpickle.loads(packed)
            self.actor.states[bottom : bottom + self.levels] = states + [None] * (self.levels - len(states))
        elif packed is not None:
            self._write(slot, packed)

    def legacy(self, slot: int) -> Packed:
        """What a sub-tree that has ended in `slot` leaves to its parent."""
        return None if self.keeper is None else self._read(slot)

    def _fork(self, fork: Join) -> None:
        state = self.keeper.child_state(self._read(fork.parent))
        for child in fork.children:
            self._write(child, state)

    def _join(self, join: Join) -> None:
        self._write(join.parent, self.keeper.join_state(self._read(join.parent), *map(self._read, join.children)))

    def _read(self, slot: int) -> tuple[npt.NDArray[Any], ...]:
        assert self.memory is not None
        return self.memory.read(np.array([slot]))

    def _write(self, slot: int, state: tuple[npt.NDArray[Any], ...]) -> None:
        assert self.memory is not None
        self.memory.write(np.array([slot]), state, np.zeros(1, np.int64))
