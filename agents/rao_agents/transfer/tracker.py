"""The stack of states: what every open frame last saw and knew, for a batch of environments.

Kept from the observation's key `frame` alone. A slot holds a frame's last observation and context. The slot below
an acting frame's is its parent's; the one above it still holds the child that returned last, until another child
acts there.

Whether siblings are independent shows in the order of acting: where a parent acts between two children, the second
may know what the first wrote into the memory. Where it does not (one action opened both), each child begins with the
memory as their parent left it, and the parent gets the changes of all of them added up. So it makes no difference
whether they run one after the other or as detached children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_agents.frame_key import FRAME_KEY
from rao_agents.transfer.layout import CONTEXT, FLAGS, FLAGS_KEY, KEPT, MEMORY_KEY, STATE_KEY, Layout

Observations = dict[str, npt.NDArray[Any]]
State = tuple[npt.NDArray[Any], ...]

NOBODY = -1
"""Depth of the frame that acted last, where none did."""

FIRST_LEVELS = 4
"""Levels that there is room for at first; more are made when a frame lies deeper."""

PER_ENV = ("last", "now", "memory", "decay")
"""Arrays without an axis for the levels."""


class Carry(NamedTuple):
    """What a forward pass leaves to be stored with the frames that acted, each float32 (n, width)."""

    context: npt.NDArray[np.float32]  # (n, context_dim)
    state: npt.NDArray[np.float32] | None  # (n, dim) recurrent state after the step ("hidden")
    memory: npt.NDArray[np.float32] | None  # (n, memory * dim) the memory after the step
    strength: npt.NDArray[np.float32] | None  # (n, memory) how much of each slot was overwritten, in [0, 1]


class StateTracker:
    """The states of all open frames of `n` environments.

    A step is `arrive` (an observation is there), `view` (what the policy is shown), `note` (what the frame that acts
    leaves). All three work on whole arrays. A frame acts at least once before it opens children; one that ends before
    it acted leaves no trace.

    Args:
        layout: what is stored.
        n: environments.
    """

    def __init__(self, layout: Layout, n: int) -> None:
        self.layout = layout
        self.n = n
        self.rows = np.arange(n)
        self.arrays = _empty(layout, n, FIRST_LEVELS)

    @property
    def levels(self) -> int:
        """How many levels there is room for."""
        return int(self.arrays["known"].shape[1])

    # -- the state as a whole ------------------------------------------------------------------------

    def state(self) -> State:
        """Everything, as copies, the environments on the first axis."""
        return tuple(array.copy() for array in self.arrays.values())

    def load(self, state: Sequence[Any]) -> None:
        """Put back what `state` returned, here or for as many environments elsewhere.

        Raises:
            ValueError: It is of another number of environments, or of a model with other options.
        """
        if len(state) != len(self.arrays):
            raise ValueError(f"a state of this model has {len(self.arrays)} arrays, got {len(state)}")
        arrays = {name: np.array(array) for name, array in zip(self.arrays, state, strict=True)}
        for (name, array), own in zip(arrays.items(), self.arrays.values(), strict=True):
            skip = 1 if name in PER_ENV else 2
            if array.shape[:1] != (self.n,):
                raise ValueError(f"the state is of {len(array) if array.ndim else 0} environments, the observation of {self.n}")
            if array.shape[skip:] != own.shape[skip:]:
                raise ValueError(f"the state's {name} has shape {array.shape}, here it is {own.shape}: it is of another model")
        self.arrays = arrays

    def select(self, rows: npt.NDArray[np.int64]) -> StateTracker:
        """A tracker of its own for some of the environments."""
        part = StateTracker(self.layout, len(rows))
        part.arrays = {name: array[rows] for name, array in self.arrays.items()}
        return part

    def forget(self, which: npt.NDArray[np.bool_] | None = None) -> None:
        """Know nothing any more, everywhere or where `which` (n,) says."""
        rows: Any = slice(None) if which is None else which
        arrays = self.arrays
        arrays["last"][rows] = NOBODY
        for name in ("known", "sibling_known", "memory", "decay", "base", "pooled", "decay_at"):
            if name in arrays:
                arrays[name][rows] = 0

    # -- a step ---------------------------------------------------------------------------------------

    def arrive(self, frame: npt.NDArray[Any], fresh: npt.NDArray[Any] | None = None) -> None:
        """Take note of who acts next.

        Args:
            frame: the observation's key `frame`, (n, 3).
            fresh: where an episode begins, bool (n,). A root's first observation begins one by itself.

        Raises:
            ValueError: The key does not hold what it should.
        """
        fields = np.asarray(frame)
        if fields.shape != (self.n, 3) or not np.array_equal(fields, np.trunc(fields)) or fields[:, 0].min(initial=0) < 0:
            raise ValueError(
                f"observation[{FRAME_KEY!r}] must hold integers (depth, opened, action) for each of {self.n} environments. If a "
                "wrapper normalises observations, leave that key out (VecNormalize(..., norm_obs_keys=[...]))."
            )
        depth, opened = fields[:, 0].astype(np.int64), fields[:, 1] != 0
        begins = opened & (depth == 0)
        if fresh is not None:
            begins |= np.asarray(fresh, np.bool_)
        self._make_room(int(depth.max(initial=0)) + 1)
        if begins.any():
            self.forget(begins)
        arrays, levels = self.arrays, np.arange(self.levels)
        if self.layout.memory_dim:
            self._settle_memory(depth, opened)
        if opened.any():
            # Also of frames between that never acted.
            above = opened[:, None] & (levels >= np.minimum(depth, arrays["last"] + 1)[:, None])
            if self.layout.memory_dim:
                self._keep_sibling(depth, opened, above)
            arrays["known"] &= ~above
        arrays["now"][:] = depth

    def view(self, observation: Mapping[str, Any]) -> Observations:
        """What the policy is shown: `observation` (n, ...) with the states of the frames around the acting one."""
        arrays, rows, options = self.arrays, self.rows, self.layout.options
        depth, known = arrays["now"], arrays["known"]
        below, above = np.maximum(depth - 1, 0), np.minimum(depth + 1, self.levels - 1)
        there = {
            "own": known[rows, depth],
            "parent": known[rows, below] & (depth > 0),
            "child": known[rows, above] & (depth + 1 < self.levels),
            "sibling": arrays["sibling_known"][rows, depth] if self.layout.memory_dim else np.zeros(self.n, np.bool_),
        }
        shown: Observations = {key: np.asarray(observation[key]) for key in (*self.layout.plain, FRAME_KEY)}
        shown[FLAGS_KEY] = np.stack([there[name] if name in ("own", *options.others) else np.zeros(self.n, np.bool_) for name in FLAGS], 1)
        shown[FLAGS_KEY] = shown[FLAGS_KEY].astype(np.float32)
        if self.layout.state_dim:
            shown[STATE_KEY] = _taken(arrays["state"], rows, depth, there["own"])
        if self.layout.memory_dim:
            shown[MEMORY_KEY] = arrays["memory"].copy()
        for name in options.others:
            at = {"parent": below, "child": above, "sibling": depth}[name]
            store = "sibling" if name == "sibling" else "own"
            for key in (*self.layout.plain, CONTEXT):
                shown[f"{name}/{key}"] = _taken(arrays[f"{store}/{key}"], rows, at, there[name])
            if self.layout.memory_dim:
                shown[f"{name}/{KEPT}"] = self._kept(arrays["sibling_decay_at" if store == "sibling" else "decay_at"], at, there[name])
        return shown

    def note(self, observation: Mapping[str, Any], carry: Carry) -> None:
        """Store what the acting frames saw, `observation` (n, ...), and knew."""
        arrays, rows = self.arrays, self.rows
        depth = arrays["now"]
        for key in self.layout.plain:
            store = arrays[f"own/{key}"]
            store[rows, depth] = np.asarray(observation[key]).reshape(self.n, *store.shape[2:])
        arrays[f"own/{CONTEXT}"][rows, depth] = carry.context
        if carry.state is not None:
            arrays["state"][rows, depth] = carry.state
        if carry.memory is not None and carry.strength is not None:
            arrays["memory"][:] = carry.memory
            arrays["decay"] += np.log(np.maximum(1.0 - carry.strength, 1e-6))
            arrays["base"][rows, depth] = carry.memory
            arrays["decay_at"][rows, depth] = arrays["decay"]
            arrays["pooled"][rows, depth] = 0.0
        arrays["known"][rows, depth] = True
        arrays["last"][:] = depth

    # -- memory ---------------------------------------------------------------------------------------

    def _settle_memory(self, depth: npt.NDArray[np.int64], opened: npt.NDArray[np.bool_]) -> None:
        """Bring the memory to what the frame that acts next may know."""
        arrays, levels = self.arrays, np.arange(self.levels)
        back = (levels >= depth[:, None]) & (levels < arrays["last"][:, None])  # whose children have all returned
        if back.any():
            arrays["memory"] += (arrays["pooled"] * back[:, :, None]).sum(axis=1)
            arrays["pooled"][back] = 0.0
        together = np.flatnonzero(opened & (depth > 0) & (arrays["last"] >= depth))
        if len(together):
            parent = depth[together] - 1
            base = arrays["base"][together, parent]
            arrays["pooled"][together, parent] += arrays["memory"][together] - base
            arrays["memory"][together] = base
            arrays["decay"][together] = arrays["decay_at"][together, parent]

    def _keep_sibling(self, depth: npt.NDArray[np.int64], opened: npt.NDArray[np.bool_], above: npt.NDArray[np.bool_]) -> None:
        """Set aside what the sibling before left, where a frame opens in its place."""
        arrays, rows = self.arrays, self.rows
        heirs = opened & (arrays["last"] == depth - 1) & arrays["known"][rows, depth]
        # Children that one action opened together have the same sibling: the last child before them.
        kept = opened & (arrays["last"] >= depth)
        arrays["sibling_known"] &= ~above | (kept[:, None] & (np.arange(self.levels) == depth[:, None]))
        index = np.flatnonzero(heirs)
        if len(index):
            at = depth[index]
            for key in (*self.layout.plain, CONTEXT):
                arrays[f"sibling/{key}"][index, at] = arrays[f"own/{key}"][index, at]
            arrays["sibling_decay_at"][index, at] = arrays["decay_at"][index, at]
            arrays["sibling_known"][index, at] = True

    def _kept(self, since: npt.NDArray[Any], at: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        """Which share of what was written at that time is still in each slot, (n, memory)."""
        share: npt.NDArray[Any] = np.exp(np.minimum(self.arrays["decay"] - since[self.rows, at], 0.0))
        share[~there] = 0.0
        return np.asarray(share, np.float32)

    # -- room -----------------------------------------------------------------------------------------

    def _make_room(self, levels: int) -> None:
        if levels <= self.levels:
            return
        wider = _empty(self.layout, self.n, max(levels, 2 * self.levels))
        for name, array in self.arrays.items():
            if name in PER_ENV:
                wider[name] = array
            else:
                wider[name][:, : self.levels] = array
        self.arrays = wider


def joined(layout: Layout, parent: State, children: Sequence[State]) -> State:
    """The state with which a parent goes on after detached children, in the order in which they were opened.

    Args:
        layout: what the states hold.
        parent: the state after the step that spawned them.
        children: their states after their last steps, each begun from a copy of `parent`.

    Raises:
        ValueError: No child, or states that do not fit each other.
    """
    if not children:
        raise ValueError("join at least one child's state")
    names = list(_empty(layout, 1, 1))
    before = dict(zip(names, parent, strict=True))
    level = before["last"]
    rows = np.arange(len(level))
    current: StateTracker | None = None
    for state in children:
        tracker = StateTracker(layout, len(level))
        tracker.load(state)
        if (tracker.arrays["last"] <= level).any():
            raise ValueError("a child's state must come from its own steps: begin them with child_state(state)")
        if layout.memory_dim and current is not None:
            # As if this child had been opened when the one before it ended.
            frame = np.stack([level + 1, np.ones_like(level), np.zeros_like(level)], axis=1)
            current.arrive(frame)
            tracker.arrays["pooled"][rows, level] = current.arrays["pooled"][rows, level]
        current = tracker
    assert current is not None
    return current.state()


def _taken(
    array: npt.NDArray[Any], rows: npt.NDArray[np.int64], at: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    taken: npt.NDArray[Any] = array[rows, at]
    taken[~there] = 0
    return taken


def _empty(layout: Layout, n: int, levels: int) -> dict[str, npt.NDArray[Any]]:
    """Arrays that know nothing, in the order in which a state lists them."""
    options = layout.options

    def records(name: str) -> dict[str, npt.NDArray[Any]]:
        found = {f"{name}/{key}": np.zeros((n, levels, *(space.shape or ())), space.dtype) for key, space in layout.plain.items()}
        return found | {f"{name}/{CONTEXT}": np.zeros((n, levels, layout.context_dim), np.float32)}

    arrays: dict[str, npt.NDArray[Any]] = {
        "last": np.full(n, NOBODY, np.int64),  # depth of the frame that acted last
        "now": np.zeros(n, np.int64),  # depth of the frame that acts now
        "known": np.zeros((n, levels), np.bool_),
        **records("own"),
    }
    if layout.state_dim:
        arrays["state"] = np.zeros((n, levels, layout.state_dim), np.float32)
    if layout.memory_dim:
        per_level = (n, levels, layout.memory_dim)
        arrays |= {
            "memory": np.zeros((n, layout.memory_dim), np.float32),
            # Logarithm of the share of a slot's first content that is left.
            "decay": np.zeros((n, options.memory), np.float32),
            "base": np.zeros(per_level, np.float32),  # the memory as the frame at this level left it
            "pooled": np.zeros(per_level, np.float32),  # changes by its independent children that returned
            "decay_at": np.zeros((n, levels, options.memory), np.float32),
            "sibling_known": np.zeros((n, levels), np.bool_),
            **records("sibling"),
            "sibling_decay_at": np.zeros((n, levels, options.memory), np.float32),
        }
    return arrays
