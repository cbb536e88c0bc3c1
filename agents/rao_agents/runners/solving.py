"""`solve`: from outside, recursion is one call (MISSION A9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rao_agents.runners.run import Plan, Run, Task
from rao_agents.runners.solution import Solution
from rao_agents.runners.source import source_of
from rao_envs.core.actors import Agent
from rao_envs.core.arguments import whole_number
from rao_envs.core.batch import check_seed
from rao_envs.core.evaluate import reporter, seed_list

ROWS = 16
"""Rows in every forward pass, filled or not: results hang on it, in the last bit, and on nothing else of how a tree is run."""
SLOTS = 64
"""Frames that a process holds side by side, the waiting ones included."""


class Runner:
    """Runs recursion trees; the base of the three kinds.

    Whatever the runner, a tree's actions, results and statistics are the same to the bit.
    """

    name = "runner"

    def run(self, plan: Plan) -> list[Solution]:
        """Solve the plan's tasks, in their order."""
        raise NotImplementedError


class Batched(Runner):
    """Every frame that can act is a row of the next forward pass: a wavefront over the tree, and over many trees at once.

    Args:
        slots: frames side by side, those that wait for children included; with 1, a tree runs frame by frame.

    Raises:
        ValueError: `slots` is no integer of at least 1.
    """

    name = "batched"

    def __init__(self, slots: int = SLOTS) -> None:
        self.slots = whole_number("slots", slots, 1)

    def run(self, plan: Plan) -> list[Solution]:
        """See `Runner.run`."""
        # No more trees than fill a forward pass: slots are for the children of those that run.
        return Run(plan, self.slots, min(plan.rows, self.slots // 2)).all()


class Sequential(Batched):
    """The call stack: one frame after the other, one step at a time, one tree after the other."""

    name = "sequential"

    def __init__(self) -> None:
        super().__init__(slots=1)


def solve(agent: Agent, env: Any, seed: int | None = None, **options: Any) -> Solution:
    """Solve one task, the whole recursion included.

    >>> solution = solve(model, "RAO/LongSeq-100k-v0", seed=7)
    >>> solution.success, solution.answer, solution.episode.critical_path

    Args:
        agent: a Stable-Baselines3 model or policy, or a callable `(observation, mask, state) -> action` or `-> (action, state)`, as
            `rao_envs.evaluate` takes it; a callable's `state` is its frame's own (see `FrameActor`).
        env: a registered id (or a spec, or a class or function) that names one of this suite's environments or one made on
            `rao_envs.core`; or such an environment itself: its running episode is solved from where it stands, and it stays as it is
            (step it through `solution.episode.actions` to bring it to the end).
        seed: of the task; 0 by default. Of a running episode it decides only what is drawn.
        **options: as `solve_all` takes them, and the environment's arguments.

    Raises:
        TypeError, ValueError: as `solve_all`.
    """
    return _solve_all(agent, env, None if seed is None else [seed], options)[0]


def solve_all(agent: Agent, env: Any, seeds: int | Sequence[int] = 100, **options: Any) -> list[Solution]:
    """As `solve`, one task for each seed, side by side where the runner can.

    Args:
        agent: as `solve` takes it.
        env: as `solve` takes it; an environment whose episode is under way is one task only.
        seeds: how many (n stands for 0, ..., n - 1), or the list: integers in [0, 2**64), none twice.
        **options: `runner` ("batched", the default, "sequential", "ray", or a `Runner`), `deterministic` (True: greedy actions),
            `rows` (of every forward pass; results may hang on it in the last bit), `time_limit` (seconds for each tree; what is not
            done by then is given up whole), `should_stop` (a function, asked between waves; True gives everything up), `progress` (as
            `rao_envs.evaluate` takes it); all others are the environment's keyword arguments.

    Raises:
        TypeError: not an agent, not an environment, or an argument that nothing takes.
        ValueError: a bad value, a model that does not fit the environment, or an action outside the action space.
    """
    return _solve_all(agent, env, seeds, options)


def _solve_all(agent: Agent, env: Any, seeds: Any, options: dict[str, Any]) -> list[Solution]:
    runner = make_runner(options.pop("runner", "batched"))
    deterministic = options.pop("deterministic", True)
    if not isinstance(deterministic, (bool, np.bool_)):
        raise ValueError(f"deterministic must be True or False, got {deterministic!r}")
    rows = whole_number("rows", options.pop("rows", ROWS), 1)
    time_limit = options.pop("time_limit", None)
    if time_limit is not None and not (_is_number(time_limit) and time_limit > 0):
        raise ValueError(f"time_limit must be a number of seconds above 0, or None, got {time_limit!r}")
    should_stop = options.pop("should_stop", None)
    if should_stop is not None and not callable(should_stop):
        raise TypeError(f"should_stop must be a function without arguments, or None, got {should_stop!r:.200}")
    progress = options.pop("progress", None)
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress must be True, False, None or a function, got {progress!r:.200}")
    source, state = source_of(env, options)
    if state is None:
        tasks = [Task(seed, None) for seed in seed_list([0] if seeds is None else seeds)]
    else:
        tasks = [Task(check_seed(seed), state) for seed in ([0] if seeds is None else seed_list(seeds))]
        if len(tasks) > 1:
            raise ValueError("an episode that is under way is one task: pass one seed, or the environment's id for others")
    with reporter(progress, f"{runner.name} solving") as report:
        return runner.run(Plan(agent, source, tasks, bool(deterministic), rows, time_limit, should_stop or bool, report))


def make_runner(runner: str | Runner) -> Runner:
    """The runner of that name, or the one given; raises ValueError for anything else."""
    if isinstance(runner, Runner):
        return runner
    if runner == "batched":
        return Batched()
    if runner == "sequential":
        return Sequential()
    if runner == "ray":
        from rao_agents.runners.on_ray import OnRay

        return OnRay()
    raise ValueError(f"runner must be 'sequential', 'batched', 'ray' or a Runner, got {runner!r}")


def _is_number(value: Any) -> bool:
    """Whether it is a real number, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
