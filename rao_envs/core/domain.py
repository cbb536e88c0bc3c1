"""What a family of tasks tells the core: names, spaces, limits and where its state lives."""

from __future__ import annotations

import difflib
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rao_envs.core.callstack import CallStack

if TYPE_CHECKING:
    from typing_extensions import Self


class Domain(ABC):
    """A family's tasks and dynamics, for any number of instances at once.

    Subclasses set the attributes in `__init__` and implement `allocate`. The dynamics are the hooks of `rao_envs.core.hooks`, on the
    state that `allocate` returns: registered with `implement` when compiled, or methods of the state when written in plain Python.
    A domain object is immutable once built and may be shared by any number of batches.

    Attributes:
        name: what the family is called in pictures and messages.
        primitives: names of the primitive actions, in order.
        spawns: names of the spawn actions, in order.
        task_space: what a frame sees of its task; the same shape for every frame.
        results_space: what a frame sees of its returned children.
        budget: environment steps the whole tree may take by default.
        max_depth: deepest level a frame may have; the root is level 0.
        has_dense: whether the `progress` hook is defined, so that `feedback="dense"` can be asked for.
        verdicts: whether a frame sees in `call` if its child succeeded. False where success means a right answer: an agent that is told
            which answers are right could ask again until one is, with no way to know it when it is used.
        shared: names of the state's arrays that are common to all instances (a map, say) and never change.
        settled: names of the state's arrays that only `prepare` and the `begin` hook write (a long document, say): detached children read
            their parent's, instead of a copy.
        per_frame: names of the state's arrays whose second axis is the frame's depth.
        options: names that `reset(options=...)` accepts.
    """

    name: str
    primitives: tuple[str, ...]
    spawns: tuple[str, ...]
    task_space: spaces.Box
    results_space: spaces.Box
    budget: int
    max_depth: int
    has_dense: bool = False
    verdicts: bool = True
    shared: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    per_frame: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()

    @classmethod
    def create(cls, arguments: Mapping[str, Any]) -> Self:
        """Build the domain from keyword arguments; raises TypeError with the nearest and all allowed names for an unknown one."""
        allowed = list(inspect.signature(cls).parameters)
        for name in arguments:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                common = "spawn, feedback, budget, max_depth, observe_frame, render_mode"
                raise TypeError(f"unknown keyword argument {name!r}.{hint} Allowed: {', '.join(allowed)}; for every family: {common}")
        return cls(**arguments)

    @abstractmethod
    def allocate(self, n: int, *, dense: bool) -> Any:
        """A NamedTuple of arrays holding `n` instances; the first axis of every array not in `shared` is the instance.

        With `dense`, the `progress` hook will be called.
        """

    def prepare(self, state: Any, i: int, options: Mapping[str, Any]) -> None:
        """Take `reset(options=...)` of instance `i` into account before the `begin` hook; raises ValueError for bad values."""

    def merge(self, state: Any, i: int, child: Any) -> None:
        """Copy what one of several independent children (fanout > 1) changed outside its own frame's records.

        `child` is the finished child's state (one instance). The default suits children that change nothing but their result.
        """

    def check_state(self, state: Any, n: int) -> None:
        """Raise TypeError unless `shared`, `settled` and `per_frame` fit `n` instances' state: a slip there corrupts joins."""
        unknown = (self.shared | self.settled | self.per_frame) - set(state._fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} names arrays that its state does not have: {', '.join(sorted(unknown))}")
        for name, array in zip(state._fields, state, strict=True):
            if name not in self.shared and array.shape[:1] != (n,):
                raise TypeError(
                    f"the first axis of {name} must be the {n} instance(s), but its shape is {array.shape}; or name it in `shared`"
                )
            if name in self.per_frame and array.shape[1:2] != (self.max_depth + 1,):
                raise TypeError(f"the second axis of {name} must be the {self.max_depth + 1} depths, but its shape is {array.shape}")

    def frame_label(self, action: int) -> str:
        """A short name for the frame that spawn `action` (an index into all actions, -1 for the root) opened."""
        return "root" if action < 0 else (self.primitives + self.spawns)[action]

    def question(self, state: Any, i: int, depth: int) -> str:
        """What the frame at `depth` of instance `i` is asked, in a few words; empty where `frame_label` says it all."""
        return ""

    def asked(self, state: Any, i: int) -> str:
        """Instance `i`'s whole task in words; by default its root's question."""
        return self.question(state, i, 0)

    def answer(self, state: Any, i: int, value: float) -> str:
        """The `value` that a frame of instance `i` handed back, in words; empty where frames hand back success and nothing else."""
        return ""

    def skills(self) -> frozenset[str]:
        """The kinds of question and of operation that may come up, by name: what an agent must have met in training to be of use here."""
        return frozenset()

    def truth(self, state: Any, i: int) -> str:
        """What instance `i`'s root should answer, in words; empty where success is all there is."""
        return ""

    def fingerprint(self, state: Any, stack: CallStack) -> str:
        """A digest of everything that fixes the shape and meaning of a saved state."""
        parts = [type(self).__qualname__, repr(self.primitives), repr(self.spawns), repr(stack.limits.tolist())]
        for field, array in zip(state._fields, state, strict=True):
            content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() if field in self.shared else ""
            parts.append(f"{field}:{array.dtype}:{array.shape[1:]}:{content}")
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]
