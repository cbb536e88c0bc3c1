"""Agents as the evaluation sees them: many observations in, one action each out.

Nothing here depends on which episodes happen to run side by side. Chance is a function of (seed, step). A
network always gets the same number of rows, and an episode always sits in the same one, because both decide
in which order the terms of a matrix product are added up: the last bit of a probability can hang on it, and
an action on that bit.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.rng import GOLDEN, U11, mix

Observations = Any
"""Observations of m episodes: an array (m, ...) or a dictionary of such arrays."""

Agent = Any
"""A Stable-Baselines3 model or policy, or a callable `(observation, mask, state) -> action` or `-> (action,
state)`."""

ROWS = 64
"""Rows in every forward pass; unused ones are filled up."""

_hashed: Callable[[Any], Any] = getattr(mix, "py_func", mix)
"""The formula of compiled chance, over whole arrays."""

ACTION_STREAM = np.uint64(0xA5A3564E6F8D2C11)
"""Keeps an episode's action noise apart from its task, which is drawn from the same seed."""

EXTRAS = ("rng", "uniform", "deterministic")
"""Keyword arguments that a callable gets if it has parameters of these names."""


class Moment(NamedTuple):
    """m running episodes, or frames of episodes, that wait for an action."""

    observations: Observations
    masks: npt.NDArray[np.bool_]  # (m, n_actions)
    seeds: npt.NDArray[np.uint64]  # (m,) of the episodes
    steps: npt.NDArray[np.int64]  # (m,) taken so far: of the episode, or of the frame itself
    slots: npt.NDArray[np.int64]  # (m,) where each runs; an episode keeps its slot
    frames: npt.NDArray[np.int64] | None = None  # (m,) ids of the frames that act, where chance and row are to hang on them

    def where(self, row: int) -> str:
        """How messages name a row."""
        frame = "" if self.frames is None else f", frame {self.frames[row]}"
        return f"seed {self.seeds[row]}{frame}, step {self.steps[row]}"

    def lanes(self, count: int) -> npt.NDArray[np.int64]:
        """The lane in [0, count) of each row, (m,)."""
        return lanes_of(self.seeds, count, self.frames)

    def streams(self) -> npt.NDArray[np.uint64]:
        """What chance starts from in each row, (m,)."""
        if self.frames is None:
            return self.seeds
        streams: npt.NDArray[np.uint64] = self.seeds ^ _hashed(_hashed(self.frames.astype(np.uint64)) + GOLDEN)
        return streams


class Stateful(Protocol):
    """What a model or policy offers that keeps a state of its own kind, beside Stable-Baselines3's `predict`.

    A state is a tuple of arrays with the episodes on their first axis. `predict` takes it as `state`, and both
    functions return it as it is after the step. Arrays may grow along their other axes from step to step; what is
    missing in smaller ones counts as zeros.
    """

    acting_space: spaces.Space[Any]
    """What observations `predict` reads."""

    def initial_state(self, n: int) -> tuple[npt.NDArray[Any], ...]:
        """The state of n episodes that begin."""

    def action_probabilities(
        self, observation: Observations, state: tuple[npt.NDArray[Any], ...], action_masks: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float32], tuple[npt.NDArray[Any], ...]]:
        """Probabilities of all actions, (n, n_actions), and the state afterwards."""


class Actor(Protocol):
    """What the evaluation's loop drives."""

    looks: bool
    """Whether `act` needs observations and masks; without, `Moment` has empty ones."""
    lanes: int
    """Episodes of the same lane (see `lanes_of`) are better not run side by side; 1: it does not matter."""

    def act(self, now: Moment) -> npt.NDArray[np.int64]:
        """One action per row, each in the action space."""


def make_actor(
    agent: Agent, observation_space: spaces.Space[Any], n_actions: int, slots: int, *, deterministic: bool, rows: int = ROWS
) -> Actor:
    """The actor for an agent of any accepted kind; `rows` in every forward pass of a network.

    Raises:
        TypeError: it is of no such kind.
        ValueError: a model that does not fit the environment, or that cannot be sampled from.
    """
    if callable(getattr(agent, "predict", None)) and not isinstance(agent, type):
        policy = getattr(agent, "policy", agent)
        if hasattr(policy, "obs_to_tensor") or getattr(policy, "stateful", False):
            return ModelActor(agent, policy, observation_space, n_actions, slots, deterministic=deterministic, rows=rows)
    if callable(agent) and not isinstance(agent, type):
        return CallableActor(agent, n_actions, slots, deterministic=deterministic)
    hint = "; pass an instance, not the class" if isinstance(agent, type) else ""
    raise TypeError(
        "an agent is a Stable-Baselines3 model or policy, or a callable (observation, mask, state) -> action "
        f"or (action, state); got {agent!r:.200}{hint}"
    )


def agent_name(agent: Agent) -> str:
    """What results call the agent: a function's name, or the class of anything else."""
    name = getattr(agent, "__name__", None) or type(agent).__name__
    return str(name)


def lanes_of(seeds: npt.NDArray[np.uint64], count: int, frames: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """The lane in [0, count) of each seed, or of each frame of its tree, (m,). Consecutive seeds differ.

    The ids of independent frames lie some power of their number apart, so that the sum of an id's digits spreads them evenly.
    """
    folded = seeds.copy()
    for shift in (48, 24, 12, 6):
        folded ^= folded >> np.uint64(shift)
    lanes = (folded % np.uint64(count)).astype(np.int64)
    if frames is not None and count > 1:
        rest = frames.astype(np.uint64)  # of a negative number there would always be something left
        while rest.any():
            rest, digit = np.divmod(rest, np.uint64(count))
            lanes += digit.astype(np.int64)
        lanes %= count
    return lanes


# -- chance --------------------------------------------------------------------------------------------------


def uniforms(seeds: npt.NDArray[np.uint64], steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per (seed, step), (m,): output `step` of SplitMix64 from the hashed seed."""
    keys = _hashed(seeds ^ ACTION_STREAM)
    bits = _hashed(keys + (steps.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return cast(npt.NDArray[np.float64], (bits >> U11).astype(np.float64) * 2.0**-53)


def generator(seed: int, step: int) -> np.random.Generator:
    """A generator of its own for one (seed, step)."""
    return np.random.Generator(np.random.Philox(key=np.array([seed ^ int(ACTION_STREAM), step], np.uint64)))


def draw(probabilities: npt.NDArray[Any], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The actions that `uniform` (m,) picks from `probabilities` (m, n): never one of probability 0."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    # The total is 1 up to rounding; scaling by it keeps the pick below the last action of positive
    # probability.
    below = cumulative <= uniform[:, None] * cumulative[:, -1:]
    return cast(npt.NDArray[np.int64], np.count_nonzero(below, axis=1).astype(np.int64))


# -- Stable-Baselines3 ---------------------------------------------------------------------------------------


class ModelActor:
    """Acts with a Stable-Baselines3 or sb3-contrib model or policy, told apart by what it offers.

    Greedy actions are `predict(..., deterministic=True)`. Sampled ones are drawn from the policy's
    probabilities with the evaluation's own numbers. Recurrent policies and those that are `Stateful` carry
    their state per episode, and maskable ones get the masks.
    """

    looks = True

    def __init__(
        self,
        model: Any,
        policy: Any,
        observation_space: spaces.Space[Any],
        n_actions: int,
        slots: int,
        *,
        deterministic: bool,
        rows: int = ROWS,
    ) -> None:
        self.lanes = rows
        name = type(model).__name__
        if not isinstance(policy.action_space, spaces.Discrete) or policy.action_space.n != n_actions:
            raise ValueError(
                f"{name} acts in {policy.action_space}, the environment has {n_actions} discrete actions "
                "(the spawn actions are there only with spawn=True)"
            )
        keeper: Stateful | None = policy if getattr(policy, "stateful", False) else None
        expected = policy.observation_space if keeper is None else keeper.acting_space
        if faults := differences(expected, observation_space):
            raise ValueError(
                f"{name} was made for other observations than these: {'; '.join(faults)}. If it was "
                "trained behind wrappers (stacked frames, say), evaluate a callable that does what they did."
            )
        if not deterministic and keeper is None and not hasattr(policy, "get_distribution"):
            raise ValueError(f"{name} has no action probabilities to sample from: evaluate it with deterministic=True")
        self.model, self.policy, self.n_actions, self.deterministic = model, policy, n_actions, deterministic
        self.keeper = keeper
        self.keys = tuple(expected) if isinstance(expected, spaces.Dict) else None
        self.masked = "action_masks" in inspect.signature(model.predict).parameters
        # What the episodes remember, each in its slot, and at first.
        self.memory: Memory | None = None
        if keeper is not None:
            self.memory = Memory(keeper.initial_state(slots), keeper.initial_state(1), axis=0)
        elif (shape := getattr(policy, "lstm_hidden_state_shape", None)) is not None:
            zeros = [np.zeros((shape[0], n, shape[2]), np.float32) for n in (slots, 1)]
            self.memory = Memory((zeros[0], zeros[0].copy()), (zeros[1], zeros[1]), axis=1)
        find_normaliser = getattr(model, "get_vec_normalize_env", None)
        self.normaliser = None if find_normaliser is None else find_normaliser()
        self.direct = keeper is None and _acts_by_its_distribution(model, policy, expected)

    def act(self, now: Moment) -> npt.NDArray[np.int64]:
        """Forward passes of the same number of rows each, `lanes`, an episode's lane being its row."""
        if self.memory is not None and now.frames is None:  # else the runner says where trees begin
            self.memory.begin(now.slots[now.steps == 0])
        lanes = now.lanes(self.lanes)
        actions = np.empty(len(lanes), np.int64)
        waiting = np.arange(len(lanes))
        while len(waiting):
            _, first = np.unique(lanes[waiting], return_index=True)  # one per lane; the others wait for another pass
            members = waiting[first]
            actions[members] = self.act_once(now, members, lanes[members])
            waiting = np.delete(waiting, first)
        return actions

    def act_once(self, now: Moment, members: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """One forward pass: actions of the rows `members` of `now`, each put in its lane; no lane twice."""
        rows = np.full(self.lanes, members[0])
        rows[lanes] = members
        if self.keys is not None:
            chunk: Observations = {key: now.observations[key][rows] for key in self.keys}
        else:
            chunk = now.observations[rows]
        if self.normaliser is not None:
            chunk = self.normaliser.normalize_obs(chunk)
        slots = now.slots[rows]
        memory = None if self.memory is None else self.memory.read(slots)
        options: dict[str, Any] = {"action_masks": now.masks[rows]} if self.masked else {}
        if not self.deterministic:
            probabilities, memory = self._probabilities(chunk, memory, options)
            actions = draw(probabilities[lanes], uniforms(now.streams()[members], now.steps[members]))
        elif self.direct and memory is None:
            actions = self._greedy(chunk, options)[lanes]
        else:
            if memory is not None:
                # The memory of new episodes is a beginner's already.
                options |= {"state": memory, "episode_start": np.zeros(self.lanes, np.bool_)}
            chosen, memory = self.model.predict(chunk, deterministic=True, **options)
            actions = np.asarray(chosen, np.int64)[lanes]
        if self.memory is not None and memory is not None:
            self.memory.write(now.slots[members], memory, lanes)
        return actions

    def _tensors(self, chunk: Observations) -> Any:
        """The chunk on the policy's device: what `obs_to_tensor` does, less what does not change between calls."""
        torch = sys.modules["torch"]  # loaded by whoever made the model; importing it is not this package's to do
        if not self.direct:
            return self.policy.obs_to_tensor(chunk)[0]
        device = self.policy.device
        if self.keys is None:
            return torch.as_tensor(chunk, device=device)
        return {key: torch.as_tensor(array, device=device) for key, array in chunk.items()}

    def _greedy(self, chunk: Observations, masks: dict[str, Any]) -> npt.NDArray[np.int64]:
        """What `predict` chooses, without what does not change between calls."""
        torch = sys.modules["torch"]
        if self.policy.training:
            self.policy.set_training_mode(False)
        with torch.no_grad():
            chosen = self.policy.get_distribution(self._tensors(chunk), **masks).get_actions(deterministic=True)
        return np.asarray(chosen.cpu().numpy(), np.int64)

    def _probabilities(self, chunk: Observations, memory: Any, masks: dict[str, Any]) -> tuple[npt.NDArray[Any], Any]:
        """Action probabilities (lanes, n_actions), and the recurrent state after this step."""
        if self.keeper is not None:
            return self.keeper.action_probabilities(chunk, memory, masks["action_masks"])
        torch = sys.modules["torch"]
        self.policy.set_training_mode(False)
        with torch.no_grad():
            tensors = self._tensors(chunk)
            if memory is None:
                distribution = self.policy.get_distribution(tensors, **masks)
            else:
                state = tuple(torch.as_tensor(part, device=self.policy.device) for part in memory)
                starts = torch.zeros(self.lanes, device=self.policy.device)
                distribution, state = self.policy.get_distribution(tensors, state, starts)
                memory = tuple(part.cpu().numpy() for part in state)
            return distribution.distribution.probs.cpu().numpy(), memory


STOCK = ("stable_baselines3.", "sb3_contrib.", "rao_agents.")
"""Where `predict` is known to be the mode of the policy's distribution."""


def _acts_by_its_distribution(model: Any, policy: Any, space: spaces.Space[Any]) -> bool:
    """Whether greedy actions can be had without `predict`: nobody has made it do something else, and nothing is turned or flattened."""
    methods = [model.predict, policy.predict, getattr(policy, "_predict", None), policy.obs_to_tensor]
    parts = list(space.values()) if isinstance(space, spaces.Dict) else [space]
    plain = all(isinstance(part, (spaces.Box, spaces.MultiBinary)) and len(part.shape or ()) == 1 for part in parts)
    return all(map(is_stock, methods)) and plain and hasattr(policy, "get_distribution")


def is_stock(method: Any) -> bool:
    """Whether a bound method is defined where STOCK says: by the module it was written in, which no decorator can disguise."""
    written_in = getattr(getattr(method, "__func__", None), "__globals__", {})
    return str(written_in.get("__name__", "")).startswith(STOCK)


class Memory:
    """What episodes remember between their steps, for each of several slots.

    Args:
        parts: arrays with the slots on `axis`; they become this object's.
        fresh: the same arrays for one episode that begins.
        axis: 0 or 1.
    """

    def __init__(self, parts: Sequence[npt.NDArray[Any]], fresh: Sequence[npt.NDArray[Any]], axis: int) -> None:
        self.axis = axis
        self.parts = [np.moveaxis(part, axis, 0) for part in parts]  # the slots first
        self.fresh = [np.moveaxis(part, axis, 0) for part in fresh]

    def begin(self, slots: npt.NDArray[np.int64]) -> None:
        """Forget what happened in these slots."""
        for part, first in zip(self.parts, self.fresh, strict=True):
            part[slots] = 0
            corner: Any = (slots, *_corner(first))
            part[corner] = first

    def read(self, slots: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], ...]:
        """Copies of what these slots remember."""
        return tuple(np.moveaxis(part[slots], 0, self.axis) for part in self.parts)

    def write(self, slots: npt.NDArray[np.int64], state: Sequence[npt.NDArray[Any]], rows: npt.NDArray[np.int64]) -> None:
        """Let `slots` remember what the rows `rows` of a state hold."""
        for k, new in enumerate(state):
            values = np.moveaxis(new, self.axis, 0)[rows]
            part = self.parts[k]
            needed = np.maximum(part.shape[1:], values.shape[1:])
            if needed.size and (needed > part.shape[1:]).any():
                part = np.zeros((len(part), *needed), part.dtype)
                part[(slice(None), *_corner(self.parts[k]))] = self.parts[k]
                self.parts[k] = part
            part[slots] = 0
            corner: Any = (slots, *_corner(values))
            part[corner] = values


def _corner(array: npt.NDArray[Any]) -> tuple[slice, ...]:
    """The part of a wider array that has this one's shape, but for the first axis."""
    return tuple(slice(0, width) for width in array.shape[1:])


def differences(expected: spaces.Space[Any], given: spaces.Space[Any], name: str = "the observation") -> list[str]:
    """In words, what keeps a model made for `expected` from reading `given`; it may leave entries unused."""
    if isinstance(expected, spaces.Dict) and isinstance(given, spaces.Dict):
        faults = []
        for key, space in expected.items():
            if key in given.spaces:
                faults += differences(space, given[key], f"{key!r}")
            else:
                faults.append(f"it expects {key!r}, the environment gives {', '.join(map(repr, given))}")
        return faults
    same_kind = isinstance(given, type(expected)) or isinstance(expected, type(given))
    shape, other = expected.shape, given.shape
    # Stable-Baselines3 turns images to channels first by itself, when it reads them too.
    turned = shape is not None and other is not None and len(other) == 3 and shape == (other[2], *other[:2])
    same_range = not isinstance(expected, spaces.Discrete) or not isinstance(given, spaces.Discrete) or expected.n == given.n
    if same_kind and same_range and (shape == other or turned):
        return []
    return [f"{name} is {_outline(given)} here, it expects {_outline(expected)}"]


def _outline(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return f"Dict({', '.join(f'{key}: {_outline(entry)}' for key, entry in space.items())})"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    return f"{type(space).__name__}{space.shape}"


# -- callables -----------------------------------------------------------------------------------------------


class CallableActor:
    """Acts with a callable `(observation, mask, state) -> action` or `-> (action, state)`.

    It is asked about one observation at a time: `mask` is bool (n_actions,), `state` is what it returned for
    this episode last (None at first). A callable with the attribute `batched = True` is asked about m
    episodes at once: arrays (m, ...) and masks (m, n_actions), `state` a list of m; it answers with an
    integer array (m,), and a sequence of m states.

    Parameters named `uniform`, `rng` or `deterministic` are filled in: a number in [0, 1) (batched: (m,)) and
    a `numpy.random.Generator`, both functions of seed and step alone (a batched callable gets no `rng`), and
    what the evaluation was asked for.
    """

    looks = True
    lanes = 1

    def __init__(self, function: Callable[..., Any], n_actions: int, slots: int, *, deterministic: bool) -> None:
        self.function, self.n_actions, self.deterministic = function, n_actions, deterministic
        self.batched = bool(getattr(function, "batched", False))
        self.extras = self._extras()
        self.states: list[Any] = [None] * slots

    def _extras(self) -> tuple[str, ...]:
        """Which of EXTRAS it takes; raises TypeError unless three arguments besides are right."""
        name = agent_name(self.function)
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some callables written in C do not say
            return ()
        extras = tuple(extra for extra in EXTRAS if extra in signature.parameters)
        if self.batched and "rng" in extras:
            raise TypeError(f"{name} is batched: it can have a parameter `uniform`, one number per row, but no `rng`")
        try:
            signature.bind(None, None, None, **dict.fromkeys(extras))
        except TypeError as error:
            raise TypeError(f"{name}{signature} cannot be called as (observation, mask, state): {error}") from None
        return extras

    def act(self, now: Moment) -> npt.NDArray[np.int64]:
        """Ask the callable, once or once per row, and check what it says."""
        for slot in now.slots[now.steps == 0]:
            self.states[slot] = None
        noise = uniforms(now.streams(), now.steps) if "uniform" in self.extras else None
        if self.batched:
            return self._act_at_once(now, noise)
        rows = range(len(now.slots))
        return np.array(
            [self._act_in_row(now, row, None if noise is None else float(noise[row])) for row in rows],
            np.int64,
        )

    def _act_in_row(self, now: Moment, row: int, noise: float | None) -> int:
        observations, slot = now.observations, now.slots[row]
        own = {key: array[row] for key, array in observations.items()} if isinstance(observations, dict) else observations[row]
        extras: dict[str, Any] = {}
        for name in self.extras:
            if name == "rng":
                extras[name] = generator(int(now.streams()[row]), int(now.steps[row]))
            else:
                extras[name] = noise if name == "uniform" else self.deterministic
        try:
            answer = self.function(own, now.masks[row], self.states[slot], **extras)
        except Exception as error:
            _note(error, now.where(row))
            raise
        if isinstance(answer, tuple):
            if len(answer) != 2:
                raise ValueError(f"the agent returned a tuple of {len(answer)} at {now.where(row)}; a tuple must be (action, state)")
            answer, self.states[slot] = answer
        return self._checked(answer, now, row)

    def _act_at_once(self, now: Moment, noise: npt.NDArray[np.float64] | None) -> npt.NDArray[np.int64]:
        count, slots = len(now.slots), now.slots.tolist()
        extras: dict[str, Any] = {name: noise if name == "uniform" else self.deterministic for name in self.extras}
        try:
            answer = self.function(now.observations, now.masks, [self.states[slot] for slot in slots], **extras)
        except Exception as error:
            _note(error, f"{now.where(0)} and {count - 1} more")
            raise
        if isinstance(answer, tuple):
            if len(answer) != 2 or not isinstance(answer[1], Sequence) or len(answer[1]) != count:
                raise ValueError(
                    f"a batched agent that returns a tuple must return ({count} actions, {count} states), "
                    f"which it did not at {now.where(0)}"
                )
            answer, states = answer
            for slot, state in zip(slots, states, strict=True):
                self.states[slot] = state
        actions = np.asarray(answer)
        if actions.shape != (count,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"a batched agent must return {count} integers for {count} observations, got shape "
                f"{actions.shape} of {actions.dtype} at {now.where(0)}"
            )
        wrong = (actions < 0) | (actions >= self.n_actions)
        if wrong.any():
            row = int(np.argmax(wrong))
            self._checked(int(actions[row]), now, row)
        return actions.astype(np.int64)

    def _checked(self, action: Any, now: Moment, row: int) -> int:
        if isinstance(action, np.ndarray) and action.size == 1 and action.dtype.kind in "iu":
            action = action.item()
        if not isinstance(action, (int, np.integer)) or isinstance(action, bool) or not 0 <= action < self.n_actions:
            raise ValueError(f"the agent returned {action!r:.200} at {now.where(row)}; an action is an integer in [0, {self.n_actions})")
        return int(action)


def _note(error: Exception, where: str) -> None:
    """Add to the agent's own error where it happened (Python 3.11 and later show such notes)."""
    add_note = getattr(error, "add_note", None)
    if add_note is not None:
        add_note(f"raised by the agent at {where}")


class RandomAgent:
    """Takes any allowed action, each equally likely; for one observation or a batch of them."""

    batched = True

    def __call__(self, observation: Any, mask: npt.NDArray[np.bool_], state: Any = None, uniform: Any = 0.0) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,))."""
        allowed = np.atleast_2d(mask)
        allowed = allowed | ~allowed.any(axis=1, keepdims=True)
        actions = draw(allowed, np.broadcast_to(np.asarray(uniform, np.float64), len(allowed)))
        return int(actions[0]) if np.ndim(mask) == 1 else actions


# -- traces --------------------------------------------------------------------------------------------------


class TraceActor:
    """Repeats recorded actions; one trace per seed."""

    looks = False
    lanes = 1

    def __init__(self, traces: Mapping[int, npt.NDArray[np.int64]]) -> None:
        self.row = {seed: k for k, seed in enumerate(traces)}
        self.lengths = np.array([len(trace) for trace in traces.values()], np.int64)
        # One after the other: a table would be as wide as the longest, which need not be honest, for all of them.
        self.actions = np.concatenate([np.asarray(trace, np.int64) for trace in traces.values()])
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.rows_of_slots = np.zeros(len(traces), np.int64)

    def act(self, now: Moment) -> npt.NDArray[np.int64]:
        """The next recorded actions; raises ValueError where there is none."""
        for k in np.flatnonzero(now.steps == 0):
            self.rows_of_slots[now.slots[k]] = self.row[int(now.seeds[k])]
        rows = self.rows_of_slots[now.slots]
        short = now.steps >= self.lengths[rows]
        if short.any():
            first = int(np.argmax(short))
            raise ValueError(f"the trace of seed {now.seeds[first]} has {now.steps[first]} actions, but the episode is not over after them")
        chosen: npt.NDArray[np.int64] = self.actions[self.starts[rows] + now.steps]
        return chosen


_: tuple[type[Actor], ...] = (ModelActor, CallableActor, TraceActor)
