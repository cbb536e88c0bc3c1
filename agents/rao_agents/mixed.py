"""Tasks of different sizes side by side in one SB3 `VecEnv`, in shares that may change while an agent trains (MISSION A6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor

from rao_agents.vec_env import RecursiveVecEnv, VecDenseReward
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.callstack import EPISODE, FRAME_KEY, RETURN, FrameFacts, Observation
from rao_envs.core.vector import RecursiveVectorEnv

Task = tuple[str, Mapping[str, Any]]
"""An environment id and its keyword arguments."""


class Episodes(NamedTuple):
    """What `RecursiveVecEnv` reads of a call stack."""

    episodes: npt.NDArray[Any]  # EPISODE (n,)


class MixedBatch:
    """`n` instances, each of which plays one of several tasks; which one is decided when its episode begins.

    To `RecursiveVecEnv` it is what a `RecursiveBatch` is. Every task has a batch of `n` instances of its own, of which those that play
    another task stand still. An instance of a task is the single environment with its seed, whatever the others do.

    Args:
        batches: one for each task, of the same number of instances, observations, actions and feedback.
        names: what messages call the tasks.

    Raises:
        ValueError: they differ in these; the message says in what.
    """

    def __init__(self, batches: Sequence[RecursiveBatch], names: Sequence[str]) -> None:
        if not batches:
            raise ValueError("a mixture needs at least one task")
        self.batches = tuple(batches)
        first = self.batches[0]
        for name, batch in zip(names, self.batches, strict=True):
            _check_alike(names[0], first, name, batch)
        self.n = first.n
        self.action_space, self.action_names, self.spawn_actions = first.action_space, first.action_names, first.spawn_actions
        self.feedback = first.feedback
        self.observation_space = _joint_space([batch.observation_space for batch in self.batches])
        self.shapes = first.shapes
        self.levels = max(batch.stack.frames.shape[1] for batch in self.batches)
        self.playing = np.zeros(self.n, np.int64)  # the task of each instance
        self.due = np.zeros(self.n, np.int64)  # and of its next episode
        for batch in self.batches:
            batch.stack.episodes["terminated"] = True  # stands still
        self.stack = Episodes(np.zeros(self.n, EPISODE))
        self.buffers = Observation(*(np.zeros_like(buffer) for buffer in first.buffers))
        self._gather()

    @property
    def obs(self) -> dict[str, npt.NDArray[Any]]:
        """The current observations, shape (n, ...), as arrays nobody else holds."""
        observation = {name: self.buffers[k].copy().reshape(self.n, *shape) for k, (name, shape) in enumerate(self.shapes)}
        if FRAME_KEY in self.observation_space.spaces:
            frames = np.zeros((self.n, 3), np.int32)
            for batch, rows in self._rows():
                frames[rows] = batch.frame_fields()[rows]
            observation[FRAME_KEY] = frames
        return observation

    @property
    def facts(self) -> FrameFacts:
        """The call structure after the latest reset or step, as fresh arrays; `returned` has the columns of the deepest task."""
        columns = {name: np.zeros(self.n, dtype) for name, dtype in _FACTS.items()}
        returned = np.zeros((self.n, self.levels), RETURN)
        for batch, rows in self._rows():
            facts = batch.facts
            for name, column in columns.items():
                column[rows] = getattr(facts, name)[rows]
            returned[rows, : facts.returned.shape[1]] = facts.returned[rows]
        return FrameFacts(**columns, returned=returned)

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which instances' episodes are over, bool (n,)."""
        over: npt.NDArray[np.bool_] = self.stack.episodes["terminated"] | self.stack.episodes["truncated"]
        return over

    def seed(self, i: int, seed: int) -> None:
        """Start instance `i`'s streams, one for each task, from `seed`."""
        for batch in self.batches:
            batch.seed(i, seed)

    def prepare(self, which: npt.NDArray[np.int64], options: Mapping[str, Any] | None) -> None:
        """As `RecursiveBatch.prepare`, each instance for the task that it begins next."""
        for k, batch in enumerate(self.batches):
            rows = which[self.due[which] == k]
            if len(rows):
                batch.prepare(rows, options)

    def reset(self, which: Any = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin the next episode of the instances in `which` (all by default), of the task that is due to each."""
        indices = np.arange(self.n, dtype=np.int64) if which is None else np.array(which, np.int64)
        for batch in self.batches:
            batch.stack.episodes["terminated"][indices] = True
        self.playing[indices] = self.due[indices]
        for k, batch in enumerate(self.batches):
            rows = indices[self.playing[indices] == k]
            if len(rows):
                batch.reset(rows, options)
        self._gather()

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """Step every instance whose episode is not over. `actions`: integers (n,), each in the action space."""
        for batch, _ in self._rows():
            batch.step(actions)
        self._gather()

    def check_actions(self, actions: Any) -> npt.NDArray[np.int64]:
        """As `RecursiveBatch.check_actions`."""
        return self.batches[0].check_actions(actions)

    def returned(self, i: int) -> tuple[dict[str, Any], ...]:
        """As `RecursiveBatch.returned`."""
        return self._of(i).returned(i)

    def tree(self, i: int) -> dict[str, int]:
        """As `RecursiveBatch.tree`."""
        return self._of(i).tree(i)

    def get_state(self, i: int = 0) -> dict[str, Any]:
        """A complete, independent copy of instance `i`: its episode, the tasks' random streams, and which task it plays and begins next."""
        return {
            "playing": int(self.playing[i]),
            "due": int(self.due[i]),
            "streams": np.array([batch.stack.rng[i, 0] for batch in self.batches], np.uint64),
            "state": self._of(i).get_state(i),
        }

    def set_state(self, state: Mapping[str, Any], i: int = 0) -> None:
        """Put a saved state in place of instance `i`.

        Raises:
            ValueError: it is of other tasks. Nothing is changed then.
        """
        streams = np.asarray(state["streams"])
        if streams.shape != (len(self.batches),) or not all(0 <= state[name] < len(self.batches) for name in ("playing", "due")):
            raise ValueError(f"the saved state is of a mixture of {streams.size} tasks, here are {len(self.batches)}")
        self.batches[state["playing"]].set_state(state["state"], i)
        self.playing[i], self.due[i] = state["playing"], state["due"]
        for k, batch in enumerate(self.batches):
            batch.stack.rng[i, 0] = streams[k]
            if k != state["playing"]:
                batch.stack.episodes["terminated"][i] = True
        self._gather()

    def _rows(self) -> list[tuple[RecursiveBatch, npt.NDArray[np.int64]]]:
        """The batches that somebody plays in, each with the instances that do."""
        found = ((batch, np.flatnonzero(self.playing == k)) for k, batch in enumerate(self.batches))
        return [(batch, rows) for batch, rows in found if len(rows)]

    def _gather(self) -> None:
        for batch, rows in self._rows():
            self.stack.episodes[rows] = batch.stack.episodes[rows]
            for name in Observation._fields:
                getattr(self.buffers, name)[rows] = getattr(batch.buffers, name)[rows]

    def _of(self, i: int) -> RecursiveBatch:
        """The batch that instance `i` plays in."""
        return self.batches[int(self.playing[i])]


_FACTS = {"frame_id": np.int64, "parent_id": np.int64, "depth": np.int32, "event": np.int8, "n_returned": np.int32}


class MixedVecEnv(RecursiveVecEnv):
    """`n_envs` environments that play tasks of different sizes, with shares that can be changed.

    Of the environments, `weights` are the shares that play each task, and so about the shares of *steps* that an agent learns from (not
    of episodes: those of small tasks are shorter). `set_weights` changes them: an environment goes over to another task when its
    episode ends, so that no episode is broken off and nothing that an algorithm waits for is lost. Everything else is as in
    `RecursiveVecEnv`.

    Attributes:
        weights: float64 (tasks,), the shares in force.
        notes: what whoever changes the weights must know to go on (a curriculum's stage, say): plain data, part of `get_state` and so of
            a training state.

    Args:
        tasks: (environment id, keyword arguments) of each; they must have the same observations (but for the depth that the key `frame`
            can show), actions and feedback.
        n_envs: how many environments, at least as many as there are tasks with a weight above 0.
        weights: of the tasks, not negative; None for equal ones.

    Raises:
        ValueError: tasks that differ in these, weights that cannot be used, or an id that is not of a recursive family.
    """

    mixes_tasks = True
    """Which task a seed stands for depends on the environment that plays it: `RepeatTasks` cannot repeat them."""

    def __init__(self, tasks: Sequence[Task], n_envs: int, weights: Sequence[float] | None = None) -> None:
        self.tasks: tuple[Task, ...] = tuple((env_id, dict(kwargs)) for env_id, kwargs in tasks)
        batches = [_make_batch(env_id, kwargs, n_envs) for env_id, kwargs in self.tasks]
        mixed = MixedBatch(batches, [task_name(task) for task in self.tasks])
        self.weights = np.zeros(len(self.tasks))
        self.notes: dict[str, Any] = {}
        self.mixed = mixed
        self.set_weights([1.0] * len(self.tasks) if weights is None else weights)
        self._attach(cast(RecursiveBatch, mixed), None)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Share the environments out anew; each goes over when its episode ends.

        Raises:
            ValueError: not one finite weight of at least 0 for each task, all 0, or more tasks than environments.
        """
        given = np.asarray(weights, np.float64)
        if given.shape != (len(self.tasks),) or not np.isfinite(given).all() or (given < 0).any() or not given.any():
            raise ValueError(
                f"weights must be {len(self.tasks)} numbers of at least 0, not all 0, one for each task; got {list(weights)!r}"
            )
        counts = shares(given, self.mixed.n)
        self.weights = given / given.sum()
        self.mixed.due[:] = np.repeat(np.arange(len(self.tasks)), counts)

    def get_state(self) -> dict[str, Any]:
        """Everything about the environments, as copies: what `set_state` takes."""
        slots = [self.mixed.get_state(i) for i in range(self.num_envs)]
        return {"slots": slots, "weights": self.weights.tolist(), "notes": dict(self.notes)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put a state from `get_state` back.

        Raises:
            ValueError: it is of another number of environments, or of other tasks.
        """
        if "slots" not in state:
            raise ValueError("the state is not one of a mixture of tasks")
        if len(state["slots"]) != self.num_envs:
            raise ValueError(f"the state is of {len(state['slots'])} environments, here are {self.num_envs}")
        for i, slot in enumerate(state["slots"]):
            self.mixed.set_state(slot, i)
        self.weights = np.array(state["weights"], np.float64)
        self.notes = dict(state["notes"])
        self._begun[:] = True
        self.facts = self.mixed.facts


def mixed_vec_env(env: Any) -> MixedVecEnv | None:
    """The `MixedVecEnv` among `env` and what it wraps, or None."""
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, MixedVecEnv) else None


def make_mixed_vec_env(
    tasks: Sequence[str | Task],
    n_envs: int,
    seed: int | None = None,
    *,
    weights: Sequence[float] | None = None,
    dense_weight: float = 0.0,
    monitor: bool = True,
    **kwargs: Any,
) -> VecEnv:
    """Make a `MixedVecEnv` as `make_vec_env` makes a `RecursiveVecEnv`.

    Args:
        tasks: (environment id, keyword arguments) of each, or its id alone.
        n_envs: how many environments.
        seed: environment i starts from seed + i, whatever it plays; None draws fresh seeds.
        weights: shares of the environments that play each task; None for equal ones.
        dense_weight: weight of dense feedback added to the reward; not 0 implies `feedback="dense"`.
        monitor: wrap in `VecMonitor`.
        **kwargs: keyword arguments of all tasks; a task's own come first.

    Raises:
        ValueError: see `MixedVecEnv`; something that is no task; or sparse feedback was asked for together with a `dense_weight`.
        TypeError: a keyword argument the family does not have.
    """
    if dense_weight:
        kwargs.setdefault("feedback", "dense")
    merged = [(env_id, {**kwargs, **own}) for env_id, own in map(_task, [tasks] if isinstance(tasks, str) else tasks)]
    if dense_weight and any(own.get("feedback") != "dense" for _, own in merged):
        raise ValueError(f"dense_weight={dense_weight} adds dense feedback to the reward, but a task has feedback='sparse'")
    venv: VecEnv = MixedVecEnv(merged, n_envs, weights)
    if seed is not None:
        venv.seed(seed)
    if monitor:
        venv = VecMonitor(venv)
    return VecDenseReward(venv, dense_weight) if dense_weight else venv


def _task(given: Any) -> Task:
    """A task, of which the id alone may be given; raises ValueError for anything else."""
    if isinstance(given, str):
        return given, {}
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], Mapping):
        return given[0], dict(given[1])
    raise ValueError(f"a task is an environment id, or a pair of an id and its keyword arguments, got {given!r:.200}")


def shares(weights: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.int64]:
    """`n` environments shared out by `weights` (K,), int64 (K,): largest remainders, and at least one for each weight above 0.

    Raises:
        ValueError: more weights above 0 than environments.
    """
    wanted = weights > 0
    if wanted.sum() > n:
        raise ValueError(f"{int(wanted.sum())} tasks with a weight above 0 need at least as many environments, got {n}")
    exact = weights / weights.sum() * n
    counts: npt.NDArray[np.int64] = np.maximum(np.floor(exact), wanted).astype(np.int64)
    while counts.sum() != n:
        # What is furthest from its share gives or takes; nobody gives its last one.
        error = np.where(wanted, exact - counts, -np.inf if counts.sum() < n else np.inf)
        if counts.sum() < n:
            counts[int(error.argmax())] += 1
        else:
            counts[int(np.where(counts > 1, error, np.inf).argmin())] -= 1
    return counts


def task_name(task: Task) -> str:
    """A task as text: "RAO/Maze-v0?rows=5&cols=5"."""
    env_id, kwargs = task
    return env_id + ("?" + "&".join(f"{key}={value}" for key, value in kwargs.items()) if kwargs else "")


def _make_batch(env_id: str, kwargs: Mapping[str, Any], n_envs: int) -> RecursiveBatch:
    vector_env = gym.make_vec(env_id, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs)
    if not isinstance(vector_env.unwrapped, RecursiveVectorEnv):
        raise ValueError(f"{env_id} is not a recursive environment of this suite, so it cannot be part of a mixture")
    return vector_env.unwrapped.batch


def _check_alike(first_name: str, first: RecursiveBatch, name: str, batch: RecursiveBatch) -> None:
    """Raise ValueError, naming the difference, unless one agent can act in both."""
    differences = []
    if batch.action_names != first.action_names:
        differences.append(f"actions {', '.join(first.action_names)} against {', '.join(batch.action_names)}")
    if batch.feedback != first.feedback:
        differences.append(f"feedback {first.feedback} against {batch.feedback}")
    ours, theirs = (_without_depth(each.observation_space) for each in (first, batch))
    unlike = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    differences += [f"observation {key!r} {ours.get(key)} against {theirs.get(key)}" for key in unlike]
    if differences:
        raise ValueError(f"{first_name} and {name} cannot be mixed: " + "; ".join(differences))


def _without_depth(space: spaces.Dict) -> dict[str, Any]:
    """The observation's parts; of the key `frame` only that it is there, because how deep it can get depends on the size."""
    return {key: FRAME_KEY if key == FRAME_KEY else part for key, part in space.spaces.items()}


def _joint_space(found: Sequence[spaces.Dict]) -> spaces.Dict:
    """The space of all tasks' observations: the first one's, with room for the deepest frame."""
    parts = dict(found[0].spaces)
    if FRAME_KEY in parts:
        parts[FRAME_KEY] = max((space[FRAME_KEY] for space in found), key=_deepest)
    return spaces.Dict(parts)


def _deepest(frame: Any) -> int:
    """The depth that the space of the key `frame` allows."""
    return int(frame.high[0])
