"""One wave after the other over a forest: every frame that can act is a row of the next forward pass (MISSION A8)."""

from __future__ import annotations

import numpy as np

from rao_agents.runners.frame_actor import FrameActor
from rao_envs.core.actors import lanes_of
from rao_envs.core.forest import Change, Forest


class Wavefront:
    """Steps the frames of a forest.

    A network has one row per lane, so of the frames that share a lane one acts in a wave: the deepest, whose end frees slots.

    Args:
        forest: the frames.
        actor: who acts for them.
    """

    def __init__(self, forest: Forest, actor: FrameActor) -> None:
        self.forest, self.actor = forest, actor
        self.seeds = np.zeros(forest.n, np.uint64)
        """Of the tree in each slot."""
        self.waves = 0

    def begin(self, tree: int, seed: int) -> int:
        """Begin the tree of `seed`, called `tree`; returns its slot."""
        slot = self.forest.begin(tree, seed)
        self.enter(slot, seed)
        return slot

    def enter(self, slot: int, seed: int) -> None:
        """The tree in `slot` is that of `seed`, and begins to act."""
        self.seeds[slot] = seed
        self.actor.begin(slot)

    def wave(self) -> Change:
        """One step of as many frames as can act at once."""
        forest, slots = self.forest, self.forest.acting()
        acting = forest.look(slots)
        lanes = lanes_of(self.seeds[slots], self.actor.lanes, acting.frames)
        if self.actor.in_lanes and len(slots) > 1:
            order = np.argsort(-acting.depths, kind="stable")
            _, first = np.unique(lanes[order], return_index=True)
            chosen = order[first]
            slots, lanes, acting = slots[chosen], lanes[chosen], acting.of(chosen)
        actions = self.actor.act(self.actor.moment(forest, slots, self.seeds[slots], acting), lanes)
        change = forest.step(slots, actions, acting)
        for fork in change.forks:
            self.seeds[list(fork.children)] = self.seeds[fork.parent]
        self.actor.follow(change)
        self.waves += 1
        return change
