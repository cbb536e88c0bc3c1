"""Frames of many recursion trees side by side: what runners of whole trees share (MISSION A8; PROTOCOL rules 2 and 8).

A `Forest` holds the slots of one batch. A tree begins in one slot, and its frames take turns there as in the single environment. Where
an action opens several independent children and there are free slots, each child moves into a slot of its own, and all of them may act
at once; their parent's slot waits until the last has returned. What happens in a tree does not depend on which of its frames had slots
of their own: results, statistics and frame ids are those of the inline run, to the bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.callstack import EVENT_RESET, EVENT_SPAWN, RETURN
from rao_envs.core.domain import Domain

NOBODY = -1
ELSEWHERE = -2
"""The parent's slot of a sub-tree that another forest has lent."""


class Acting(NamedTuple):
    """The frames that act next in m slots."""

    frames: npt.NDArray[np.int64]  # (m,) frame ids
    depths: npt.NDArray[np.int64]  # (m,)
    opened: npt.NDArray[np.bool_]  # (m,) whether a frame has not acted yet
    steps: npt.NDArray[np.int64]  # (m,) actions that each has taken itself

    def of(self, rows: npt.NDArray[np.int64]) -> Acting:
        """Some of them."""
        return Acting(self.frames[rows], self.depths[rows], self.opened[rows], self.steps[rows])


class Ended(NamedTuple):
    """A tree that is over, or a sub-tree that was taken over from another forest."""

    slot: int
    tree: int
    actions: npt.NDArray[np.int64]  # in the order of the inline run
    returned: npt.NDArray[Any]  # RETURN, one record per frame, in the order of their ids


class Join(NamedTuple):
    """A parent that goes on: its children, in the order in which the spawn opened them, have returned and their slots are free."""

    parent: int
    children: tuple[int, ...]


class Change(NamedTuple):
    """What a step did beside acting."""

    forks: tuple[Join, ...]  # parents whose children moved into slots of their own
    joins: tuple[Join, ...]
    ended: tuple[Ended, ...]


class Forest:
    """`n` slots for frames of trees of one domain.

    Args:
        batch: whose instances the slots are; the forest's own from now on.
    """

    def __init__(self, batch: RecursiveBatch) -> None:
        self.batch = batch
        self.n = batch.n
        self.domain: Domain = batch.domain
        batch.stack.episodes["terminated"] = True
        self._free = list(range(self.n))
        self.tree = np.full(self.n, NOBODY, np.int64)
        """Which tree runs in each slot; NOBODY in free ones."""
        self.waiting = np.zeros(self.n, np.bool_)
        """Slots whose frame waits for children in other slots, or has ended."""
        self._settled = np.full(self.n, NOBODY, np.int64)  # whose settled arrays each slot holds
        self._parent = np.full(self.n, NOBODY, np.int64)
        self._children: dict[int, tuple[int, ...]] = {}
        self._out = np.zeros(self.n, np.int64)  # children that have not returned
        self._steps = np.zeros((self.n, batch.stack.frames.shape[1]), np.int64)  # of the frame at each depth, its own
        self._log: list[list[int]] = [[] for _ in range(self.n)]
        self._returned: list[list[npt.NDArray[Any]]] = [[] for _ in range(self.n)]
        self._actions = np.full(self.n, -1, np.int64)
        arrays = batch.arrays()
        settled = {f"domain.{field}" for field in self.domain.settled}
        self._changing = {name: array for name, array in arrays.items() if name not in settled}
        self._still = {name: array for name, array in arrays.items() if name in settled}

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def acting(self) -> npt.NDArray[np.int64]:
        """Slots whose frame waits for an action."""
        return np.flatnonzero((self.tree != NOBODY) & ~self.waiting)

    def begin(self, tree: int, seed: int) -> int:
        """Begin the tree of `seed` in a free slot, which is returned; `tree` is the caller's number for it, at least 0."""
        slot = self._take(tree)
        self.batch.seed(slot, seed)
        self.batch.reset([slot])
        return slot

    def resume(self, tree: int, state: Mapping[str, Any]) -> int:
        """As `begin`, from a saved state (of `RecursiveEnv.get_state`, say); its frames' own steps count from here.

        Raises:
            ValueError: it does not fit, or its episode is over.
        """
        slot = self._take(tree)
        self._steps[slot] = 0
        try:
            self.batch.set_state(state, slot)
            if self.batch.done[slot]:
                raise ValueError("the episode of this state is over")
        except ValueError:
            self._release(slot)
            raise
        return slot

    def observe(self, slots: npt.NDArray[np.int64]) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.bool_]]:
        """Observations (m, ...) and masks (m, n_actions) of the frames that act in `slots`."""
        return self.batch.observe(slots), self.batch.buffers.action_mask[slots].astype(np.bool_)

    def look(self, slots: npt.NDArray[np.int64]) -> Acting:
        """Which frames act in `slots`."""
        depths = self.batch.stack.episodes["depth"][slots].astype(np.int64)
        frames = self.batch.stack.frames[slots, depths]
        opened = frames["last"] == EVENT_RESET
        steps = np.where(opened, 0, self._steps[slots, depths])
        return Acting(frames["id"].copy(), depths, opened, steps)

    def step(self, slots: npt.NDArray[np.int64], actions: npt.NDArray[np.int64], now: Acting) -> Change:
        """One step of the frames that act in `slots`: `now`, as `look` gave them. `actions`: int64 (m,), each in the action space."""
        batch, episodes = self.batch, self.batch.stack.episodes
        self._steps[slots, now.depths] = now.steps + 1
        self._actions[slots] = actions
        batch.step(self._actions)
        self._actions[slots] = -1
        for slot, action in zip(slots.tolist(), actions.tolist(), strict=True):
            self._log[slot].append(action)
        over = episodes["terminated"][slots] | episodes["truncated"][slots]
        # What ends in the step that ends a slot's own frame, its parent is told of by the join.
        for slot in slots[(episodes["n_returned"][slots] > 0) & ~(over & (self._parent[slots] != NOBODY))].tolist():
            self._returned[slot].append(batch.ended(slot).copy())
        forks = self._fork(slots[episodes["event"][slots] == EVENT_SPAWN])
        joins: list[Join] = []
        ended: list[Ended] = []
        for slot in slots[over].tolist():
            self._end(slot, joins, ended)
        return Change(forks, tuple(joins), tuple(ended))

    def cancel(self, tree: int) -> None:
        """Drop a tree: all of its slots are free at once."""
        for slot in np.flatnonzero(self.tree == tree).tolist():
            self._release(slot)

    # -- sub-trees that run elsewhere ----------------------------------------------------------------------------------------------

    def lend(self, slot: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
        """The sub-tree that is to run from `slot`, for another forest's `adopt`: its arrays, and its frames' own steps.

        What is the same in all of its tree is left out (`settled` gives it). This slot waits for `take`.
        """
        self.waiting[slot] = True
        return self.outcome(slot), self._steps[slot].copy()

    def adopt(
        self, tree: int, state: Mapping[str, npt.NDArray[Any]], steps: npt.NDArray[np.int64], settled: Mapping[str, npt.NDArray[Any]]
    ) -> int:
        """Go on with a sub-tree that another forest has lent; returns its slot."""
        slot = heapq.heappop(self._free)
        if self._settled[slot] != tree:
            for name, array in self._still.items():
                array[slot] = settled[name]
        self.tree[slot] = self._settled[slot] = tree
        self._parent[slot] = ELSEWHERE
        self._steps[slot] = steps
        for name, array in self._changing.items():
            array[slot] = state[name]
        self.batch.refresh(slot)
        return slot

    def settled(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """What is the same in all of a slot's tree."""
        return {name: array[slot].copy() for name, array in self._still.items()}

    def outcome(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """How matters stand in `slot`; of a sub-tree that has ended, for `take`, to be read before another begins."""
        return {name: array[slot].copy() for name, array in self._changing.items()}

    def take(self, slot: int, state: Mapping[str, npt.NDArray[Any]], ended: Ended) -> Change:
        """Put the end of a lent sub-tree where it would stand had it run here; returns what follows from it."""
        for name, array in self._changing.items():
            array[slot] = state[name]
        self._log[slot] += ended.actions.tolist()
        self._returned[slot].append(ended.returned)
        if self._parent[slot] == NOBODY:
            self._returned[slot].append(self.batch.ended(slot).copy())
        joins: list[Join] = []
        over: list[Ended] = []
        self._end(slot, joins, over)
        return Change((), tuple(joins), tuple(over))

    # -- slots ---------------------------------------------------------------------------------------------------------------------

    def _take(self, tree: int) -> int:
        slot = heapq.heappop(self._free)
        self.tree[slot] = self._settled[slot] = tree
        return slot

    def _release(self, slot: int) -> None:
        self.tree[slot] = self._parent[slot] = NOBODY
        self.waiting[slot] = False
        self._log[slot], self._returned[slot] = [], []
        self._children.pop(slot, None)
        self.batch.stack.episodes["terminated"][slot] = True
        heapq.heappush(self._free, slot)

    def _fork(self, spawned: npt.NDArray[np.int64]) -> tuple[Join, ...]:
        """Give independent children slots of their own, as far as there are free ones; the others run inline."""
        if not len(spawned) or not self._free:
            return ()
        stack = self.batch.stack
        fanouts = stack.frames["group"][spawned, stack.episodes["depth"][spawned] - 1]
        parents: list[int] = []
        slots: list[int] = []
        forks: list[Join] = []
        for parent, fanout in zip(spawned.tolist(), fanouts.tolist(), strict=True):
            if not 1 < fanout <= len(self._free):
                continue
            children = tuple(heapq.heappop(self._free) for _ in range(fanout))
            forks.append(Join(parent, children))
            parents += [parent] * fanout
            slots += children
        if not forks:
            return ()
        source, target = np.array(parents), np.array(slots)
        for array in self._changing.values():
            array[target] = array[source]
        foreign = self._settled[target] != self._settled[source]
        if foreign.any():
            for array in self._still.values():
                array[target[foreign]] = array[source[foreign]]
            self._settled[target] = self._settled[source]
        self.tree[target] = self.tree[source]
        self._parent[target] = source
        self._steps[target] = self._steps[source]
        for parent, children in forks:
            self.waiting[parent] = True
            self._children[parent] = children
            self._out[parent] = len(children)
            for k, child in enumerate(children):
                self.batch.become_child(child, k)
        return tuple(forks)

    def _end(self, slot: int, joins: list[Join], ended: list[Ended]) -> None:
        """The frame whose end is the end in `slot` has ended: so may its ancestors."""
        self.waiting[slot] = True
        episodes = self.batch.stack.episodes
        while (parent := int(self._parent[slot])) >= 0:
            self._out[parent] -= 1
            if self._out[parent]:
                return
            children = self._children.pop(parent)
            returned = self.batch.take_back_group(parent, [(self.batch, child) for child in children])
            over = episodes["terminated"][parent] or episodes["truncated"][parent]
            if over and self._parent[parent] != NOBODY:
                returned.pop()  # the join with the parent of this one tells
            self._returned[parent] += returned
            for child in children:
                self._log[parent] += self._log[child]
                self._returned[parent] += self._returned[child]
                self._release(child)
            joins.append(Join(parent, children))
            if not over:
                self.waiting[parent] = False
                return
            slot = parent
        ended.append(Ended(slot, int(self.tree[slot]), np.array(self._log[slot], np.int64), in_order(self._returned[slot])))
        self._release(slot)


def in_order(returned: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """RETURN records in the order of the frames' ids."""
    parts = list(returned)
    records = np.zeros(sum(map(len, parts)), RETURN)
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        records[start:end] = part
    ordered: npt.NDArray[Any] = records[np.argsort(records["frame_id"], kind="stable")]
    return ordered
