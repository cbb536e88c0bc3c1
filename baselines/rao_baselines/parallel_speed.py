"""`rao bench parallel`: wall-clock of whole recursion trees, frame by frame, in waves, and on a Ray cluster (MISSION A8-A10).

Everything is measured on trained agents' own trees; what the runners give is compared on the way, to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rao_agents.runners import Batched, OnRay, Runner, Sequential, Solution, solve_all
from rao_baselines.agents import load_agent
from rao_baselines.environments import parse_task
from rao_baselines.parallel_tables import BATCHED, PREDICT, SEQUENTIAL, ray_name
from rao_baselines.provenance import provenance
from rao_envs.core.actors import Agent
from rao_envs.longseq.reference import RecursiveSolver

REPEATS = 3
"""Every tree is run so often by each runner; the fastest counts."""
WORKERS = (1, 2)
Tick = Callable[[str], Any]
"""Told what comes next."""


class Subject(NamedTuple):
    """Trees to run: a shipped model on one kind of task."""

    label: str
    model: str  # in baselines/models
    task: str
    trees: int
    on_ray: bool  # whether they are large enough to be worth sending


SUBJECTS = {
    "longseq-1k": Subject("Long sequence, 1 k records", "recursive_ppo_longseq", "RAO/LongSeq-1k-v0?", 10, False),
    "longseq-10k": Subject("Long sequence, 10 k records", "recursive_ppo_longseq", "RAO/LongSeq-10k-v0?", 10, True),
    "longseq-100k": Subject("Long sequence, 100 k records", "recursive_ppo_longseq", "RAO/LongSeq-100k-v0?", 10, True),
    "longseq-1M": Subject("Long sequence, 1 M records", "recursive_ppo_longseq", "RAO/LongSeq-1M-v0?", 5, True),
    "nested-320": Subject("Nested, 320 tokens", "recursive_ppo_nested", "RAO/LongSeq-nested-320-v0?", 10, False),
    "nested-3k": Subject("Nested, 3.2 k tokens", "recursive_ppo_nested", "RAO/LongSeq-nested-3k-v0?", 5, True),
    "algebra": Subject("Algebra, depth 8", "recursive_ppo_algebra", "RAO/Algebra-depth8-v0?", 10, False),
    "dialogue": Subject("Dialogue, 10 turns, mixed goals", "recursive_ppo_dialogue", "RAO/Dialogue-10turn-v0?", 40, True),
    "dialogue-independent": Subject(
        "Dialogue, 10 turns, independent goals", "recursive_ppo_dialogue", "RAO/Dialogue-10turn-v0?dependency=0", 40, False
    ),
    "dialogue-chained": Subject(
        "Dialogue, 10 turns, chained goals", "recursive_ppo_dialogue", "RAO/Dialogue-10turn-v0?dependency=1", 40, False
    ),
}
"""By the names that the command takes."""

LEAF_TASK = "RAO/LongSeq-100k-v0?"
LEAF_MILLISECONDS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""What a step of the agent is made to cost besides, in computing that batching does not save."""


class Costly:
    """An agent whose every step takes so long, whoever else acts at the same time: a large model, or a tool that it calls."""

    batched = True

    def __init__(self, agent: Any, milliseconds: float) -> None:
        self.agent, self.milliseconds = agent, milliseconds

    def __call__(self, observation: Any, masks: Any, states: Any) -> Any:
        """As the agent, after `milliseconds` of computing for each row."""
        end = time.perf_counter() + 1e-3 * self.milliseconds * len(masks)
        while time.perf_counter() < end:
            pass
        return self.agent(observation, masks)


@contextmanager
def engines(ray: bool) -> Iterator[dict[str, Runner]]:
    """What is compared, by name; with `ray` on a cluster of this machine, or the one that this process is connected to.

    No two sets of workers share the CPUs: those of a runner start when it is entered.
    """
    found: dict[str, Runner] = {SEQUENTIAL: Sequential(), BATCHED: Batched()}
    with ExitStack() as stack:
        if ray:
            from rao_agents.distributed.cluster import connected

            stack.enter_context(connected(None, max(WORKERS)))
            found |= {ray_name(workers): OnRay(workers) for workers in WORKERS}
        yield found


def measure(subjects: Mapping[str, Subject], *, ray: bool, tick: Tick) -> dict[str, dict[str, Any]]:
    """Mean wall-clock of a tree by runner, and what the trees are like.

    Args:
        subjects: what to run, by name.
        ray: whether to measure on a cluster, too.
        tick: told before each measurement.

    Returns:
        By subject: label, task, trees; seconds (by runner, of one tree that has the machine to itself; "predict" is a loop of the model's
        `predict` and the environment's `step`), many (seconds per tree where `batched` runs all at once), and means of steps, nodes and
        critical_path.

    Raises:
        RuntimeError: two runners gave different results.
    """
    agents = {name: _load(subject) for name, subject in subjects.items()}
    found: dict[str, dict[str, Any]] = {}
    first: dict[str, list[Solution]] = {}
    for name, subject in subjects.items():
        tick(f"{subject.label}: {PREDICT}")
        agent, env_id, kwargs = agents[name]
        seconds = {PREDICT: _fastest(lambda seed: call_stack(agent, env_id, kwargs, seed), subject.trees)}  # noqa: B023  (called here)
        tick(f"{subject.label}: many at once")
        many = min(_timed(lambda: solve_all(agent, env_id, subject.trees, **kwargs)) for _ in range(REPEATS))  # noqa: B023  (the same)
        found[name] = {"label": subject.label, "task": subject.task, "trees": subject.trees, "seconds": seconds}
        found[name]["many"] = many / subject.trees
    with engines(ray) as runners:
        for engine, runner in runners.items():
            with runner if isinstance(runner, OnRay) else nullcontext():
                for name, subject in subjects.items():
                    if isinstance(runner, OnRay) and not subject.on_ray:
                        continue
                    tick(f"{subject.label}: {engine}")
                    agent, env_id, kwargs = agents[name]
                    solutions = [_best(agent, env_id, kwargs, seed, runner) for seed in range(subject.trees)]
                    if not all(map(Solution.same_as, first.setdefault(name, solutions), solutions)):
                        raise RuntimeError(f"{subject.label}: {engine} gave other results than {SEQUENTIAL}")
                    found[name]["seconds"][engine] = float(np.mean([solution.seconds for solution in solutions]))
    for name, solutions in first.items():
        episodes = [solution.episode for solution in solutions if solution.episode is not None]
        found[name] |= {key: float(np.mean([getattr(e, key) for e in episodes])) for key in ("steps", "nodes", "critical_path")}
    return found


def count(subjects: Mapping[str, Subject], *, ray: bool, leaves: bool) -> int:
    """How often `tick` will be told something."""
    on_ray = sum(subject.on_ray for subject in subjects.values()) if ray else 0
    return 4 * len(subjects) + len(WORKERS) * on_ray + (len(LEAF_MILLISECONDS) * (1 + len(WORKERS)) if leaves else 0)


def measure_leaves(*, tick: Tick) -> list[dict[str, Any]]:
    """Wall-clock of one tree by what a step of the agent costs: batched here, and on a cluster with one and two workers.

    Returns:
        Per cost: milliseconds, seconds by runner, and the tree's steps.
    """
    task = parse_task(LEAF_TASK)
    found: list[dict[str, Any]] = [{"milliseconds": cost, "seconds": {}} for cost in LEAF_MILLISECONDS]
    with engines(True) as runners:
        for engine, runner in runners.items():
            if engine == SEQUENTIAL:
                continue
            with runner if isinstance(runner, OnRay) else nullcontext():
                for row in found:
                    tick(f"{row['milliseconds']} ms a step: {engine}")
                    solution = _best(Costly(RecursiveSolver(), row["milliseconds"]), task.env_id, task.kwargs or {}, 0, runner)
                    row["seconds"][engine] = solution.seconds
                    row["steps"] = solution.episode.steps if solution.episode else 0
    return found


def call_stack(model: Any, env_id: str, env_kwargs: Mapping[str, Any], seed: int) -> float:
    """Seconds for one episode as everybody writes it: `predict`, `step`, and so on."""
    env = gym.make(env_id, disable_env_checker=True, **env_kwargs)
    observation, _ = env.reset(seed=seed)
    start, over = time.perf_counter(), False
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return time.perf_counter() - start


def report(subjects: dict[str, Any], leaves: list[dict[str, Any]]) -> dict[str, Any]:
    """The result as it is kept."""
    return {"subjects": subjects, "leaves": leaves, "leaf_task": LEAF_TASK, "repeats": REPEATS, **provenance(1)}


def _load(subject: Subject) -> tuple[Agent, str, dict[str, Any]]:
    task = parse_task(subject.task)
    loaded = load_agent(subject.model, task.env_id, task.kwargs or {})
    return loaded.agent, task.env_id, loaded.env_kwargs


def _best(agent: Agent, env_id: str, env_kwargs: Mapping[str, Any], seed: int, runner: Runner) -> Solution:
    """The fastest of some runs of one tree."""
    runs = [solve_all(agent, env_id, [seed], runner=runner, **env_kwargs)[0] for _ in range(REPEATS)]
    return min(runs, key=lambda solution: solution.seconds)


def _fastest(run: Callable[[int], float], trees: int) -> float:
    return float(np.mean([min(run(seed) for _ in range(REPEATS)) for seed in range(trees)]))


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
