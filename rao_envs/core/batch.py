"""N instances of one domain behind the compiled kernels: the one thing that single, vector and SB3 environments share."""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.callstack import EVENT_RESET, FRAME_KEY, NO_ACTION, RETURN, CallStack, FrameFacts, Observation, allocate
from rao_envs.core.domain import Domain
from rao_envs.core.hooks import is_compiled
from rao_envs.core.interpreter import kernels_for

FEEDBACKS = ("sparse", "dense")
MAX_SEED = 2**64 - 1

DEEPEST = 1000
"""No frame may lie deeper, in any environment."""


class RecursiveBatch:
    """`n` instances of `domain`, stepped together; holds all state and does all checking of the protocol's options.

    Args:
        domain: the family.
        n: number of instances, at least 1.
        spawn: False gives the monolithic twin: the same tasks and observations without the spawn actions.
        feedback: "sparse", or "dense" to report progress on verified sub-results in `info["dense_reward"]` (PROTOCOL rule 11).
        budget: environment steps the whole tree may take; None takes the domain's.
        max_depth: deepest level a frame may have (root = 0); None takes the domain's.
        observe_frame: add the key `frame` to the observation: `FRAME_FIELDS` of the acting frame. It says where on the call stack one is,
            for agents that keep a state for every frame of it; no policy should read it as a feature (PROTOCOL rule 5).

    Raises:
        ValueError: a value out of range, or dense feedback where the domain has none.
    """

    def __init__(
        self,
        domain: Domain,
        n: int,
        *,
        spawn: bool = True,
        feedback: str = "sparse",
        budget: int | None = None,
        max_depth: int | None = None,
        observe_frame: bool = False,
    ) -> None:
        if not _is_integer(n) or n < 1:
            raise ValueError(f"the number of environments must be an integer of at least 1, got {n!r}")
        if not isinstance(spawn, (bool, np.bool_)):
            raise ValueError(f"spawn must be True (recursive) or False (the monolithic twin), got {spawn!r}")
        if feedback not in FEEDBACKS:
            raise ValueError(f"feedback must be one of {', '.join(map(repr, FEEDBACKS))}, got {feedback!r}")
        if feedback == "dense" and not domain.has_dense:
            raise ValueError(f"{domain.name} defines no dense feedback; use feedback='sparse'")
        budget = domain.budget if budget is None else budget
        if not _is_integer(budget) or not 1 <= budget < 2**31:
            raise ValueError(f"budget must be a number of steps in [1, 2**31), got {budget!r}")
        max_depth = domain.max_depth if max_depth is None else max_depth
        if not _is_integer(max_depth) or not 0 <= max_depth <= DEEPEST:
            raise ValueError(f"max_depth must be an integer in [0, {DEEPEST}] (0: the root may not spawn), got {max_depth!r}")
        if not isinstance(observe_frame, (bool, np.bool_)):
            raise ValueError(f"observe_frame must be True or False, got {observe_frame!r}")
        self.domain = domain
        self.n = n
        self.spawn = bool(spawn)
        self.observe_frame = bool(observe_frame)
        self.feedback = feedback
        self.action_names = domain.primitives + (domain.spawns if spawn else ())
        self.spawn_actions = np.arange(len(domain.primitives), len(self.action_names), dtype=np.int64)
        self.state = domain.allocate(n, dense=feedback == "dense")
        domain.check_state(self.state, n)
        self.stack: CallStack = allocate(
            n,
            budget=int(budget),
            # The deepest frame a domain can open bounds the stack, whatever the user allows.
            max_depth=min(int(max_depth), domain.max_depth) if spawn else 0,
            primitives=len(domain.primitives),
            actions=len(self.action_names),
            dense=feedback == "dense",
            verdicts=domain.verdicts,
        )
        self.observation_space = spaces.Dict(
            {
                "task": domain.task_space,
                "results": domain.results_space,
                "call": spaces.Box(0.0, 1.0, (6,), np.float32),
                "action_mask": spaces.MultiBinary(len(self.action_names)),
            }
        )
        self.shapes: tuple[tuple[str, tuple[int, ...]], ...] = tuple(
            (name, self.observation_space[name].shape or ()) for name in Observation._fields
        )
        if observe_frame:
            # The bound is the same for every size: a model trained on one acts on the others.
            self.observation_space[FRAME_KEY] = spaces.Box(
                np.array([0, 0, NO_ACTION], np.int32), np.array([DEEPEST, 1, len(self.action_names) - 1], np.int32), dtype=np.int32
            )
        self.action_space = spaces.Discrete(len(self.action_names))
        self.buffers = Observation(
            task=np.zeros((n, math.prod(domain.task_space.shape)), domain.task_space.dtype),
            results=np.zeros((n, math.prod(domain.results_space.shape)), domain.results_space.dtype),
            call=np.zeros((n, 6), np.float32),
            action_mask=np.zeros((n, len(self.action_names)), np.int8),
        )
        self.fingerprint = domain.fingerprint(self.state, self.stack)
        self._lent = False  # whether another batch reads this one's settled arrays
        self._link()

    def _link(self) -> None:
        """Set up what refers to this object's own arrays."""
        self.kernels = kernels_for(self.state)
        self.one_action = np.zeros(1, np.int64)  # where a single environment puts its action
        self._first = tuple((name, self.buffers[k][0].reshape(shape)) for k, (name, shape) in enumerate(self.shapes))

    @property
    def obs(self) -> dict[str, npt.NDArray[Any]]:
        """The current observations, shape (n, ...), as arrays nobody else holds."""
        observation = {name: self.buffers[k].copy().reshape(self.n, *shape) for k, (name, shape) in enumerate(self.shapes)}
        if self.observe_frame:
            observation[FRAME_KEY] = self.frame_fields()
        return observation

    def observe(self, which: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """The current observations of the instances in `which` (m,), shape (m, ...), as arrays nobody else holds."""
        observation = {name: self.buffers[k][which].reshape(len(which), *shape) for k, (name, shape) in enumerate(self.shapes)}
        if self.observe_frame:
            observation[FRAME_KEY] = self.frame_fields(which)
        return observation

    def frame_fields(self, which: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int32]:
        """What the key `frame` says of the instances in `which` (m,), all by default: (m, 3)."""
        which = np.arange(self.n) if which is None else which
        depths = self.stack.episodes["depth"][which]
        acting = self.stack.frames[which, depths]
        return np.stack([depths, acting["last"] == EVENT_RESET, acting["action"]], axis=1).astype(np.int32)

    def first_observation(self) -> dict[str, npt.NDArray[Any]]:
        """Instance 0's observation, as arrays nobody else holds."""
        observation = {name: view.copy() for name, view in self._first}
        if self.observe_frame:
            observation[FRAME_KEY] = self.frame_fields(np.zeros(1, np.int64))[0]
        return observation

    @property
    def facts(self) -> FrameFacts:
        """The call structure after the latest reset or step, as fresh arrays."""
        facts = FrameFacts(
            frame_id=np.empty(self.n, np.int64),
            parent_id=np.empty(self.n, np.int64),
            depth=np.empty(self.n, np.int32),
            event=np.empty(self.n, np.int8),
            n_returned=np.empty(self.n, np.int32),
            returned=self.stack.returned.copy(),
        )
        self.kernels.collect_facts(self.stack, *facts[:-1])
        return facts

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which instances' episodes are over, bool (n,)."""
        over: npt.NDArray[np.bool_] = self.stack.episodes["terminated"] | self.stack.episodes["truncated"]
        return over

    def seed(self, i: int, seed: int) -> None:
        """Start instance `i`'s random stream from `seed`, an integer in [0, 2**64)."""
        self.stack.rng[i, 0] = np.uint64(check_seed(seed))

    def reset(self, which: Iterable[int] | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin the next episode of the instances in `which` (all by default)."""
        indices = np.arange(self.n, dtype=np.int64) if which is None else np.array(which, dtype=np.int64)
        self.prepare(indices, options)
        with compilation_notice(self.domain) if is_compiled(self.state) else contextlib.nullcontext():
            self.kernels.reset_batch(self.state, self.stack, self.buffers, indices)

    def prepare(self, which: npt.NDArray[np.int64], options: Mapping[str, Any] | None) -> None:
        """Take reset options into account for the next reset of `which`; raises ValueError for unknown ones and bad values."""
        unknown = set(options or {}) - self.domain.options
        if unknown:
            allowed = ", ".join(sorted(self.domain.options)) or "none"
            raise ValueError(f"unknown reset option(s) {', '.join(sorted(map(str, unknown)))} for {self.domain.name}; allowed: {allowed}")
        self._take_own()
        for i in which if self.domain.options else ():
            self.domain.prepare(self.state, int(i), options or {})

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """Step every instance whose episode is not over. `actions`: int64 (n,), each in the action space, or negative: this one waits."""
        self.kernels.step_batch(self.state, self.stack, self.buffers, actions)

    def refresh(self, i: int) -> None:
        """Rewrite instance `i`'s observation after a state was put in place."""
        self.kernels.look_batch(self.state, self.stack, self.buffers, np.array([i], np.int64))

    # -- saved states --------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every array that belongs to instances, by name; first axis = instance."""
        named = {f"stack.{field}": getattr(self.stack, field) for field in CallStack._fields if field != "limits"}
        for field in self.state._fields:
            if field not in self.domain.shared:
                named[f"domain.{field}"] = getattr(self.state, field)
        return named

    def get_state(self, i: int = 0) -> dict[str, Any]:
        """A complete, independent copy of instance `i`: a flat dictionary of arrays and one fingerprint string."""
        state: dict[str, Any] = {name: array[i].copy() for name, array in self.arrays().items()}
        state["fingerprint"] = self.fingerprint
        return state

    def set_state(self, state: Mapping[str, Any], i: int = 0) -> None:
        """Put a saved state in place of instance `i`.

        Raises:
            ValueError: the state is not one of this configuration of this environment, or is incomplete. Nothing is changed then.
        """
        targets = self.arrays()
        given: object = state  # a stranger may pass anything
        if not isinstance(given, Mapping) or set(given) != {*targets, "fingerprint"}:
            raise ValueError("not a state of this environment: pass what get_state() returned, whole")
        if not isinstance(state["fingerprint"], str) or state["fingerprint"] != self.fingerprint:
            raise ValueError("this state belongs to another environment or to other keyword arguments (its fingerprint differs)")
        for name, target in targets.items():
            value: Any = state[name]
            if not isinstance(value, np.ndarray | np.generic) or value.dtype != target.dtype or value.shape != target.shape[1:]:
                raise ValueError(f"{name} in the state must be {target.dtype} of shape {target.shape[1:]}")
        self._take_own()
        for name, target in self.arrays().items():
            target[i] = state[name]
        self.refresh(i)

    def mark(self) -> dict[str, npt.NDArray[Any]]:
        """Where instance 0's episode stands, for `rewind` here or in a batch of the same domain; settled arrays are lent, not copied."""
        self._lent = bool(self.domain.settled)
        lent = {f"domain.{field}": getattr(self.state, field) for field in self.domain.settled}
        return lent | {name: array[:1].copy() for name, array in self._changing().items()}

    def rewind(self, mark: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from `mark`."""
        self._put(mark)
        self.refresh(0)

    def _put(self, mark: Mapping[str, npt.NDArray[Any]]) -> None:
        self.state = self.state._replace(**{field: mark[f"domain.{field}"] for field in self.domain.settled})
        self._lent = bool(self.domain.settled)
        for name, target in self._changing().items():
            target[:1] = mark[name]

    def _changing(self) -> dict[str, npt.NDArray[Any]]:
        settled = {f"domain.{field}" for field in self.domain.settled}
        return {name: array for name, array in self.arrays().items() if name not in settled}

    def _take_own(self) -> None:
        """Before settled arrays are written: stop sharing them with detached children, or with the parent."""
        if self._lent:
            self.state = self.state._replace(**{field: getattr(self.state, field).copy() for field in self.domain.settled})
            self._lent = False

    def returned(self, i: int) -> tuple[dict[str, Any], ...]:
        """What `info["returned"]` says for instance `i`: the frames that ended at its latest step, innermost first."""
        return _as_dictionaries(self.ended(i))

    def ended(self, i: int) -> npt.NDArray[Any]:
        """The same as RETURN records, lent."""
        entries: npt.NDArray[Any] = self.stack.returned[i, : self.stack.episodes["n_returned"][i]]
        return entries

    def tree(self, i: int) -> dict[str, int]:
        """Instance `i`'s tree so far: frames, deepest level below its base, spawn actions, steps, critical path (in steps)."""
        base = self.stack.episodes["base"][i]
        frame = self.stack.frames[i, base]
        return {
            "nodes": int(frame["nodes"]),
            "deepest": int(frame["deepest"] - base),
            "spawns": int(frame["spawns"]),
            "steps": int(self.stack.episodes["clock"][i] - frame["start"]),
            "critical_path": int(frame["path"]),
        }

    # -- detached children ---------------------------------------------------------------------------------------------------

    def fanout(self, action: int) -> int:
        """How many children the spawn `action` would open now in instance 0."""
        return int(self.kernels.count_children(self.state, self.stack, 0, action))

    def detach(self, k: int) -> RecursiveBatch:
        """A batch of one in which only child `k` of instance 0's latest spawn runs, and whose episode ends with it."""
        child: RecursiveBatch = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        lent = self.domain.shared | self.domain.settled
        child.state = type(self.state)(
            *(a if field in lent else a[:1].copy() for field, a in zip(self.state._fields, self.state, strict=True))
        )
        self._lent = child._lent = bool(self.domain.settled)
        child.stack = CallStack(*(array[:1].copy() for array in self.stack))
        child.buffers = Observation(*[array[:1].copy() for array in self.buffers])  # type: ignore[arg-type]
        child._link()
        child.become_child(0, k)
        return child

    def become_child(self, i: int, k: int) -> None:
        """Right after a spawn, make child `k` the acting frame of instance `i`, and its end the episode's end."""
        self.kernels.become_child(self.state, self.stack, self.buffers, i, k)

    def digest(self) -> str:
        """A digest of instance 0's whole state: what tells a detached child of this very moment from any other."""
        digest = hashlib.sha256(self.fingerprint.encode())
        for array in self._changing().values():
            # A record's padding means nothing and may be anything.
            digest.update(repr(array[:1].tolist()).encode() if array.dtype.names else array[:1].tobytes())
        return digest.hexdigest()

    def take_back(self, children: Sequence[RecursiveBatch]) -> tuple[dict[str, Any], ...]:
        """Put the finished detached children of instance 0, in order, where they would stand had they run inline, and go on.

        Returns the frames that ended in the steps that ended the children, in order.
        """
        if len(children) > 1:
            return tuple(entry for part in self.take_back_group(0, [(child, 0) for child in children]) for entry in _as_dictionaries(part))
        (child,) = children  # all that an only child changed counts
        base = int(self.stack.episodes["base"][0])
        self._put(child.mark())  # what follows looks anew
        self.stack.episodes["base"][0] = base
        self.kernels.take_back(self.state, self.stack, self.buffers, 0, bool(child.stack.episodes["success"][0]))
        return self.returned(0)

    def take_back_group(self, i: int, children: Sequence[tuple[RecursiveBatch, int]]) -> list[npt.NDArray[Any]]:
        """As `take_back`, for several independent children of instance `i`, each an instance of a batch of this domain: of this one, say.

        Returns the frames that ended, as RETURN records: for each child, those of the step that ended it.
        """
        episode = self.stack.episodes[i]
        potential = float(episode["potential"])
        returned: list[npt.NDArray[Any]] = []
        dense = 0.0
        for child, j in children:
            other = child.stack.episodes[j]
            self._merge(i, child, j)
            episode["potential"] += other["potential"] - potential  # what the child has been paid is not paid again
            self.kernels.take_back(self.state, self.stack, self.buffers, i, bool(other["success"]))
            returned.append(self.ended(i).copy())
            dense += episode["dense"]
        episode["dense"] = dense
        return returned

    def _merge(self, i: int, child: RecursiveBatch, j: int) -> None:
        """Take over one of several independent children: its own records and what `Domain.merge` copies, nothing else."""
        episode, other = self.stack.episodes[i], child.stack.episodes[j]
        depth = int(other["base"])
        episode["clock"] += other["clock"] - child.stack.frames["start"][j, depth]
        episode["next_id"] = other["next_id"]
        episode["n_returned"] = other["n_returned"]
        self.stack.returned[i] = child.stack.returned[j]
        self.stack.frames[i, depth] = child.stack.frames[j, depth]
        for field in self.domain.per_frame:
            getattr(self.state, field)[i, depth] = getattr(child.state, field)[j, depth]
        self.domain.merge(self.state, i, child.state if child.n == 1 else child.one(j))

    def one(self, i: int) -> Any:
        """Instance `i`'s domain state alone, as views."""
        shared = self.domain.shared
        return type(self.state)(*(a if field in shared else a[i : i + 1] for field, a in zip(self.state._fields, self.state, strict=True)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("kernels", "one_action", "_first")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Arrays that were pickled out of band (Ray, shared memory) come back read-only; kernels write, and are compiled for writable ones.
        for name in ("state", "stack", "buffers"):
            arrays = getattr(self, name)
            setattr(self, name, type(arrays)(*[array if array.flags.writeable else array.copy() for array in arrays]))
        self._link()

    def check_actions(self, actions: Any) -> npt.NDArray[np.int64]:
        """`actions` as int64 (n,); raises ValueError when they are not n integers of the action space."""
        return check_actions(actions, self.n, len(self.action_names))


def check_actions(actions: Any, n: int, n_actions: int) -> npt.NDArray[np.int64]:
    """`actions` as a fresh int64 (n,); raises ValueError when they are not n integers in [0, n_actions)."""
    array = np.asarray(actions)
    if array.shape != (n,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"actions must be {n} integers, got shape {array.shape} of {array.dtype}")
    if n and (array.min() < 0 or array.max() >= n_actions):
        raise ValueError(f"actions must lie in [0, {n_actions}), got {array.min()} to {array.max()}")
    # A fresh array: the caller may change its own before it is used, and kernels are compiled for contiguous, writable ones only.
    return np.array(array, np.int64, order="C")


_noticed: set[type] = set()


@contextlib.contextmanager
def compilation_notice(domain: Domain) -> Iterator[None]:
    """Tell someone who waits for the first kernels of a family why; says nothing when they come from the cache."""
    if type(domain) in _noticed:
        yield
        return
    _noticed.add(type(domain))
    text = f"rao_envs: compiling the kernels of {domain.name} for this machine (once; up to a minute) ..."
    timer = threading.Timer(1.5, lambda: sys.stderr.write(text + "\n"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _as_dictionaries(returned: npt.NDArray[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(RETURN.names or (), entry.item(), strict=True)) for entry in returned)


def check_seed(seed: Any) -> int:
    """`seed` as an int; raises ValueError unless it is an integer in [0, 2**64)."""
    if not _is_integer(seed) or not 0 <= int(seed) <= MAX_SEED:
        raise ValueError(f"a seed must be an integer in [0, 2**64), got {seed!r}")
    return int(seed)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
