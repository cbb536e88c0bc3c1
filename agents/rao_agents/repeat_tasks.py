"""Root tasks that are played several times, so that rollouts of the same task can be compared (`advantage="rloo"`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


class RepeatTasks(VecEnvWrapper):
    """Hands out root tasks in order, each to `repeats` episodes, in whichever environment begins one next.

    Works with every environment that draws its task from `reset(seed)`, which is Gymnasium's rule: task k is the
    seed that follows from this wrapper's own seed and k. Any number of environments will do, one included. No
    environment waits for another, and rollouts that are not complete belong to the few tasks handed out last.

    `reset` begins with new tasks. Put it directly around the environments, `VecMonitor` at most between, and
    whatever changes observations outside.

    Args:
        venv: the environments; each needs a method `reset(seed=...)`, as all of Gymnasium's have.
        repeats: episodes of each task, at least 2.
        seed: from which the tasks' seeds are drawn, at least 0; None for a fresh one.

    Raises:
        ValueError: `repeats` below 2, a seed below 0, a wrapper between that may change observations, or a mixture of tasks.
    """

    def __init__(self, venv: VecEnv, repeats: Any, seed: int | None = None) -> None:
        if isinstance(repeats, bool) or not isinstance(repeats, (int, np.integer)) or repeats < 2:
            raise ValueError(f"repeats must be a whole number of at least 2, got {repeats!r}")
        inner = venv
        while isinstance(inner, VecEnvWrapper):
            if not isinstance(inner, VecMonitor):
                raise ValueError(f"put RepeatTasks inside {type(inner).__name__}, directly around the environments")
            inner = inner.venv
        if getattr(inner, "mixes_tasks", False):
            raise ValueError("a mixture of tasks cannot be repeated: environments of different sizes cannot play the same root task")
        super().__init__(venv)
        self.repeats = int(repeats)
        self.base_seed = _checked(seed)
        self._next_seed: int | None = None
        self.tasks = np.zeros(self.num_envs, np.int64)  # being played
        self.fresh = np.ones(self.num_envs, np.bool_)  # whose episode has no step yet
        self.issued = 0  # episodes handed out
        # How the tasks began that are not handed out completely: an environment that takes no notice of its seed shows.
        self.beginnings: dict[int, Any] = {}

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Draw the tasks anew from `seed`, from the next reset on; returns the seed, once for each environment."""
        # Not at once: the tasks that are being played would mix with new ones of the same numbers.
        self._next_seed = _checked(seed)
        return [self._next_seed] * self.num_envs

    def task_seed(self, task: int) -> int:
        """Seed of root task number `task`, in [0, 2**32)."""
        return int(np.random.SeedSequence([self.base_seed, task]).generate_state(1)[0])

    def reset(self) -> VecEnvObs:
        """Begin new tasks everywhere."""
        # Repeats that are still due would complete rollouts that nobody remembers.
        self.issued = -(-self.issued // self.repeats) * self.repeats
        if self._next_seed is not None:
            self.base_seed, self._next_seed, self.issued = self._next_seed, None, 0
        self.beginnings.clear()
        self.tasks = np.array([self._issue() for _ in range(self.num_envs)], np.int64)
        self.fresh = np.ones(self.num_envs, np.bool_)
        # Not seed(): that would give consecutive seeds.
        self.venv.unwrapped._seeds = [self.task_seed(int(task)) for task in self.tasks]
        observations = self.venv.reset()
        for index in range(self.num_envs):
            self._compare(index, _at(observations, index))
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment, but what began of itself begins again with the task that is due."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self.fresh = dones.copy()
        base = self.venv.unwrapped
        if dones.any():
            self.tasks, base.reset_infos = self.tasks.copy(), list(base.reset_infos)
        for index in np.flatnonzero(dones).tolist():
            task = self.tasks[index] = self._issue()
            ((first, base.reset_infos[index]),) = base.env_method("reset", seed=self.task_seed(task), indices=[index])
            if isinstance(observations, dict):
                for key, values in observations.items():
                    values[index] = first[key]
            else:
                assert isinstance(observations, np.ndarray)
                observations[index] = first
            self._compare(index, _at(observations, index))
        return observations, rewards, dones, infos

    def _issue(self) -> int:
        """The number of the task that is due."""
        task = self.issued // self.repeats
        self.issued += 1
        return task

    def _compare(self, index: int, first: Any) -> None:
        """Check that a task begins as it began before."""
        task = int(self.tasks[index])
        known = self.beginnings.setdefault(task, first)
        if not all(np.array_equal(known[key], first[key], equal_nan=_is_float(first[key])) for key in first):
            raise ValueError(
                f"task {task} began differently when it was repeated: the environment does not draw its task from reset(seed=...) "
                "alone, so rollouts of it cannot be compared"
            )
        for finished in [number for number in self.beginnings if number < self.issued // self.repeats]:
            del self.beginnings[finished]


def repeated_tasks(env: Any) -> RepeatTasks | None:
    """The `RepeatTasks` among `env` and what it wraps, or None."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, RepeatTasks):
            return env
        env = env.venv
    return None


def _at(observations: VecEnvObs, index: int) -> dict[str, npt.NDArray[Any]]:
    if isinstance(observations, tuple):
        raise TypeError("observations that are tuples are not supported, as everywhere in Stable-Baselines3")
    items = observations.items() if isinstance(observations, dict) else [("", observations)]
    return {key: np.array(values[index]) for key, values in items}


def _is_float(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind == "f"


def _checked(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if seed < 0:
        raise ValueError(f"the seed must be at least 0, got {seed}")
    return int(seed)
