"""The evaluation protocol: fixed seeds, each episode run to its end, one result whatever the batch size.

Counting the first episodes that finish would favour short ones, and so success. Here each seed is one episode
of the result; a slot whose episode is over goes on with another seed of the list.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.arguments import whole_number
from rao_envs.core.episodes import MAX_SEED, Episode, Evaluation, plain

if TYPE_CHECKING:
    from rao_envs.core.actors import Actor, Agent
    from rao_envs.core.arenas import Arena, EnvSource

Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and of all."""

PATIENCE = 2.0
"""Seconds after which a progress bar appears unasked."""


def evaluate(
    agent: Agent,
    env_id: EnvSource,
    seeds: int | Sequence[int] = 100,
    *,
    deterministic: bool = True,
    batch_size: int = 64,
    progress: bool | Progress | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """Run `agent` on one episode per seed.

    The result depends on the agent, the environment and each seed alone: not on `batch_size`, on the order of
    the seeds (which is the order of the records), or on any global random state. A callable that keeps hidden
    state of its own is its author's concern.

    Args:
        agent: a Stable-Baselines3 or sb3-contrib model (or policy) with discrete actions, or a callable
            `(observation, mask, state) -> action` or `-> (action, state)`; see
            `rao_envs.core.actors.CallableActor` for batched callables and for the random numbers a callable
            may ask for. Maskable models get the environment's masks, others see none. Observation
            normalisation (`VecNormalize`) is applied where the model has it attached.
        env_id: a Gymnasium id (without version: the newest), an `EnvSpec`, or a class or function that makes
            the environment. Recursive environments run as one batch, any other as `batch_size` single ones.
        seeds: how many (n stands for 0, ..., n - 1), or the list: integers in [0, 2**64), none twice.
        deterministic: take the greedy action; False samples from a model's policy. A callable is told if it
            has a parameter `deterministic`.
        batch_size: how many episodes run side by side.
        progress: True for a progress bar, False for none, None for one if it takes long and someone is
            watching (the package `rich` draws it; without, there is none); or a function called with the
            finished and all episodes.
        **env_kwargs: the environment's (`spawn=False`, `structure="rooms"`, ...).

    Returns:
        The records, their summary, and what is needed to say what they are of.

    Raises:
        ValueError: bad seeds or arguments, a model that does not fit the environment or cannot be sampled
            from, or an action outside the action space (the message names the seed and the step).
        TypeError: not an agent, or not an environment.
    """
    from rao_envs import __version__
    from rao_envs.core.actors import agent_name, make_actor

    listed = seed_list(seeds)
    if not isinstance(deterministic, (bool, np.bool_)):
        raise ValueError(f"deterministic must be True or False, got {deterministic!r}")
    slots = min(whole_number("batch_size", batch_size, 1), len(listed))
    with _arena(env_id, slots, env_kwargs) as arena:
        actor = make_actor(agent, arena.observation_space, arena.n_actions, slots, deterministic=bool(deterministic))
        name = f"{agent_name(agent)} on {arena.name}"
        with reporter(progress, name) as report:
            episodes = run(arena, actor, listed, report)
        return Evaluation(
            env_id=arena.name,
            env_kwargs={name: plain(value) for name, value in env_kwargs.items()},
            agent=agent_name(agent),
            deterministic=bool(deterministic),
            n_actions=arena.n_actions,
            version=__version__,
            episodes=episodes,
        )


def replay(env_id: EnvSource, seed: int, actions: Sequence[int] | npt.NDArray[Any], **env_kwargs: Any) -> Episode:
    """Run one recorded episode again.

    Args:
        env_id: as `evaluate` takes it.
        seed: of the episode.
        actions: every action of it, in order.
        **env_kwargs: the environment's.

    Returns:
        The record, computed anew.

    Raises:
        ValueError: an action that is not in the action space, or a trace that is longer or shorter than the
            episode.
    """
    return replay_all(env_id, {seed: actions}, **env_kwargs)[0]


def replay_all(
    env_id: EnvSource,
    traces: Mapping[int, Sequence[int] | npt.NDArray[Any]],
    *,
    batch_size: int = 64,
    **env_kwargs: Any,
) -> tuple[Episode, ...]:
    """As `replay` for many episodes, `batch_size` side by side; `traces` maps each seed to its actions."""
    from rao_envs.core.actors import TraceActor

    listed = seed_list(list(traces))
    with _arena(env_id, min(whole_number("batch_size", batch_size, 1), len(listed)), env_kwargs) as arena:
        checked = {seed: _trace(seed, trace, arena.n_actions) for seed, trace in zip(listed, traces.values(), strict=True)}
        episodes = run(arena, TraceActor(checked), listed)
    for episode in episodes:
        if episode.steps < len(checked[episode.seed]):
            raise ValueError(
                f"the trace of seed {episode.seed} has {len(checked[episode.seed])} actions, but the episode is over after {episode.steps}"
            )
    return episodes


def run(arena: Arena, actor: Actor, seeds: Sequence[int], report: Progress | None = None) -> tuple[Episode, ...]:
    """The loop: one episode per seed, in the order of the seeds."""
    from rao_envs.core.actors import Moment, lanes_of

    all_seeds = np.array(seeds, np.uint64)
    # What a forward pass holds per lane; more would need another pass at every step.
    waiting = Waiting(lanes_of(all_seeds, actor.lanes), -(-arena.n // actor.lanes))
    position = np.zeros(arena.n, np.int64)  # (n,) which seed runs in each slot
    steps = np.zeros(arena.n, np.int64)
    returns = np.zeros(arena.n, np.float64)
    log = ActionLog(arena.n, arena.n_actions)
    episodes: list[Episode | None] = [None] * len(seeds)
    finished = 0

    def begin(slots: list[int]) -> npt.NDArray[np.int64]:
        """Put the next seeds into these slots; returns the slots that got one."""
        taken = [(slot, k) for slot in slots if (k := waiting.take()) is not None]
        begun = np.array([slot for slot, _ in taken], np.int64)
        position[begun] = [k for _, k in taken]
        steps[begun], returns[begun] = 0, 0.0
        if taken:
            arena.begin(begun, [seeds[k] for _, k in taken])
        return begun

    running = begin(list(range(arena.n)))
    while len(running):
        observations, masks = arena.observe(running) if actor.looks else ({}, np.zeros((0, 0), np.bool_))
        now = Moment(observations, masks, all_seeds[position[running]], steps[running], running)
        actions = actor.act(now)
        log.write(running, now.steps, actions)
        rewards, done = arena.step(running, actions)
        returns[running] += rewards
        steps[running] += 1
        if not done.any():
            continue
        for slot in running[done].tolist():
            length, k = int(steps[slot]), int(position[slot])
            outcome = arena.outcome(slot, length)
            episodes[k] = Episode(
                seed=int(seeds[k]),
                success=outcome.success,
                return_=float(returns[slot]),
                steps=length,
                nodes=outcome.nodes,
                deepest=outcome.deepest,
                spawns=outcome.spawns,
                critical_path=outcome.critical_path,
                actions=log.read(slot, length),
            )
            waiting.leave(k)
            finished += 1
        still = running[~done]
        running = np.union1d(still, begin(np.setdiff1d(np.arange(arena.n), still).tolist()))
        if report is not None:
            report(finished, len(seeds))
    return tuple(episode for episode in episodes if episode is not None)


class Waiting:
    """The seeds that have not begun, by lane, of which at most `capacity` run side by side in each."""

    def __init__(self, lanes: npt.NDArray[np.int64], capacity: int) -> None:
        self.lanes = lanes
        self.queues = [deque(np.flatnonzero(lanes == lane).tolist()) for lane in range(int(lanes.max()) + 1)]
        self.free = [capacity] * len(self.queues)

    def take(self) -> int | None:
        """Position of the next seed: from the longest queue that may run one more; None if none may."""
        lengths = [len(queue) if free else 0 for queue, free in zip(self.queues, self.free, strict=True)]
        lane = lengths.index(max(lengths))
        if not lengths[lane]:
            return None
        self.free[lane] -= 1
        return self.queues[lane].popleft()

    def leave(self, k: int) -> None:
        """The episode of seed number `k` is over."""
        self.free[self.lanes[k]] += 1


class ActionLog:
    """The actions of the running episodes, in the smallest type that holds them; grows with them."""

    def __init__(self, n: int, n_actions: int) -> None:
        self.data = np.zeros((n, 64), np.min_scalar_type(n_actions - 1))

    def write(self, slots: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]) -> None:
        """Note the action of step `steps[k]` in slot `slots[k]`."""
        while steps.max() >= self.data.shape[1]:
            self.data = np.concatenate([self.data, np.zeros_like(self.data)], axis=1)
        self.data[slots, steps] = actions

    def read(self, slot: int, length: int) -> npt.NDArray[np.int64]:
        """The first `length` actions in a slot."""
        return self.data[slot, :length].astype(np.int64)


def seed_list(seeds: Any) -> tuple[int, ...]:
    """The seeds as plain integers; raises ValueError unless they are distinct, in [0, 2**64) and not none."""
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        if seeds < 1:
            raise ValueError(f"evaluate at least one seed, got seeds={seeds}")
        return tuple(range(int(seeds)))
    if isinstance(seeds, np.ndarray):
        seeds = seeds.tolist()
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Sequence):
        raise ValueError(f"seeds must be a number of seeds or a list of integers, got {seeds!r:.200}")
    seen: dict[int, None] = {}
    for seed in seeds:
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed <= MAX_SEED:
            raise ValueError(f"a seed must be an integer in [0, 2**64), got {seed!r:.60}")
        if int(seed) in seen:
            raise ValueError(f"seed {seed} is listed twice: its episode would count twice")
        seen[int(seed)] = None
    if not seen:
        raise ValueError("evaluate at least one seed, got an empty list")
    return tuple(seen)


def _trace(seed: int, actions: Sequence[int] | npt.NDArray[Any], n_actions: int) -> npt.NDArray[np.int64]:
    array = np.asarray(actions)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu":
        raise ValueError(f"the trace of seed {seed} must be a list of at least one integer, got {actions!r:.200}")
    wrong = (array < 0) | (array >= n_actions)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(f"the trace of seed {seed} has {array[k]} at step {k}; an action is an integer in [0, {n_actions})")
    return array.astype(np.int64)


@contextlib.contextmanager
def _arena(source: EnvSource, n: int, kwargs: dict[str, Any]) -> Iterator[Arena]:
    from rao_envs.core.arenas import make_arena

    arena = make_arena(source, n, kwargs)
    try:
        yield arena
    finally:
        arena.close()


# -- progress ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reporter(progress: bool | Progress | None, name: str) -> Iterator[Progress | None]:
    """What `run` reports to, if anything."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
        bar = _Bar(name, 0.0 if progress else PATIENCE)
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield None


class _Bar:
    """A bar on the standard error stream, drawn by `rich` if that is installed, from `delay` seconds on."""

    def __init__(self, name: str, delay: float) -> None:
        self.name, self.due = name, time.monotonic() + delay
        self.bar: Any = None
        self.task: Any = None
        self.impossible = False

    def __call__(self, finished: int, total: int) -> None:
        if self.bar is None and not self.impossible and time.monotonic() >= self.due:
            self._open(total)
        if self.bar is not None:
            self.bar.update(self.task, completed=finished)

    def _open(self, total: int) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            self.impossible = True
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(self.name, total=total)
        self.bar.start()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
