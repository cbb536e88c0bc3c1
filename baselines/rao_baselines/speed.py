"""`rao bench speed`: throughput by Gymnasium's own benchmark functions, resets included, beside environments people know."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rao_baselines.errors import UserError
from rao_baselines.provenance import provenance

OURS = "RAO/Maze-20x20-v0"
MINIGRID = "MiniGrid-MultiRoom-N6-v0"
CARTPOLE = "CartPole-v1"
FAMILIES = {"RAO/Algebra-depth8-v0": 1024, "RAO/LongSeq-10k-v0": 64, "RAO/LongSeq-nested-320-v0": 1024, "RAO/Dialogue-10turn-v0": 1024}
"""Other families' vector measurements: how many environments. 64 observations of 2,000 records are what a training run has."""
REWRITE = "RAO/Rewrite-v0"
SEED = 0
DISTILLATION_WARM = 12_000
"""Steps before training with self-distillation is timed: two rounds, the second process started, the networks compiled."""


class Case(NamedTuple):
    """One measurement: `run` takes a duration in seconds and returns the value."""

    name: str
    unit: str
    run: Callable[[float], float]


def cases(vector: int = 1024, quick: bool = False) -> Iterator[Case]:
    """Every measurement, in the order in which they are made.

    Args:
        vector: environments in the vector measurements.
        quick: leave out what takes long whatever the duration: training and compiling from an empty cache.
    """
    for env_id in (OURS, MINIGRID, CARTPOLE):
        yield Case(f"gym.make({env_id!r})", "steps/s", lambda seconds, env_id=env_id: single_steps(env_id, seconds))  # type: ignore[misc]
    yield Case(f"gym.make({OURS!r}, spawn=False)", "steps/s", lambda seconds: single_steps(OURS, seconds, spawn=False))
    for env_id in (OURS, MINIGRID, CARTPOLE):
        yield Case(f"gym.make({env_id!r}) and reset", "per s", lambda seconds, env_id=env_id: inits(env_id, seconds))  # type: ignore[misc]
    yield Case(f"gym.make_vec({OURS!r}, {vector})", "steps/s", lambda seconds: vector_steps(OURS, vector, seconds))
    yield Case(f"gym.make_vec({CARTPOLE!r}, {vector})", "steps/s", lambda seconds: vector_steps(CARTPOLE, vector, seconds))
    for env_id, n in FAMILIES.items():
        yield Case(f"gym.make_vec({env_id!r}, {n})", "steps/s", lambda seconds, env_id=env_id, n=n: vector_steps(env_id, n, seconds))  # type: ignore[misc]
    yield Case(f"gym.make({REWRITE!r})", "steps/s", lambda seconds: single_steps(REWRITE, seconds))
    yield Case("gym.make('RAO/LongSeq-1M-v0') and reset", "s", lambda seconds: 1.0 / inits("RAO/LongSeq-1M-v0", seconds))
    yield Case(f"rao_agents.make_vec_env({OURS!r}, 64)", "steps/s", lambda seconds: sb3_steps(64, seconds))
    yield Case("import rao_envs", "s", lambda seconds: in_new_process(IMPORT))
    if not quick:
        yield Case("first ever make and reset (empty cache)", "s", lambda seconds: first_make())
    yield Case("later make and reset (new process)", "s", lambda seconds: in_new_process(MAKE))
    if not quick:
        yield Case("RecursivePPO", "steps/s", lambda seconds: training("recursive_ppo", seconds))
        yield Case("MaskablePPO, same network and environment", "steps/s", lambda seconds: training("flat_ppo", seconds))


IMPORT = "import time; start = time.perf_counter(); import rao_envs; print(time.perf_counter() - start)"
MAKE = (
    "import time; import gymnasium as gym; import rao_envs; start = time.perf_counter(); "
    f"env = gym.make({OURS!r}); env.reset(seed=0); env.step(0); print(time.perf_counter() - start)"
)


def single_steps(env_id: str, seconds: float, **kwargs: Any) -> float:
    """Steps per second of a single environment, by `gymnasium.utils.performance.benchmark_step`: with everything `make` wraps around."""
    import gymnasium as gym
    from gymnasium.utils.performance import benchmark_step

    _register()
    env = gym.make(env_id, **kwargs)
    env.reset(seed=SEED)
    env.step(0)  # compiling is measured apart
    env.action_space.seed(SEED)
    result = benchmark_step(env, seconds, SEED)  # type: ignore[arg-type]
    env.close()
    return result


def inits(env_id: str, seconds: float) -> float:
    """Constructions with a first reset, per second."""
    import gymnasium as gym
    from gymnasium.utils.performance import benchmark_init

    _register()
    gym.make(env_id).reset(seed=SEED)
    return benchmark_init(lambda: gym.make(env_id), seconds, SEED)  # type: ignore[arg-type]


def vector_steps(env_id: str, n: int, seconds: float) -> float:
    """Steps per second of all environments of a native vector environment together."""
    import gymnasium as gym
    from gymnasium.utils.performance import benchmark_vector_step

    _register()
    envs = gym.make_vec(env_id, num_envs=n, vectorization_mode="vector_entry_point")
    result = benchmark_vector_step(envs, seconds, SEED)  # type: ignore[arg-type]
    envs.close()
    return result


def sb3_steps(n: int, seconds: float) -> float:
    """Steps per second of the Stable-Baselines3 adapter, random actions."""
    import numpy as np

    from rao_agents import make_vec_env

    env = make_vec_env(OURS, n, SEED)
    env.reset()
    rng = np.random.default_rng(SEED)
    actions = rng.integers(env.action_space.n, size=(1024, n))  # type: ignore[attr-defined]
    env.step(actions[0])
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        env.step(actions[count % 1024])
        count += 1
    return count * n / elapsed


DISTILLATIONS: dict[str, dict[str, Any] | None] = {
    "without": None,
    "remembering only": {"trigger": {"kind": "interval", "steps": 10**12}},
    "distilling in another process": {"asynchronous": True, "injectors": [], "distiller": "student"},
    "distilling in another process, injecting": {"asynchronous": True, "distiller": "student"},
    "distilling in between, injecting": {"distiller": "student"},
    "by default": {},
}
"""Self-distillations whose price is measured, with a round every 5,000 steps; "student" is one a quarter as wide as the policy."""


def distillation_cases() -> Iterator[Case]:
    """Training speed with and without self-distillation, in the order in which it is measured."""
    for name, value in DISTILLATIONS.items():
        yield Case(name, "steps/s", lambda seconds, value=value: training("recursive_ppo", seconds, value))  # type: ignore[misc]


class Watch:
    """Looks on while training is measured."""

    def attach(self, model: Any) -> None:
        """The model, before it learns."""

    def begin(self) -> None:
        """The measurement begins."""

    def stop(self) -> None:
        """It may end here; told again if it goes on."""


def training(
    algorithm: str, seconds: float, distillation: dict[str, Any] | None = None, *, watch: Watch | None = None, **hyperparameters: Any
) -> float:
    """Environment steps per second of training with the algorithm's settings, on one thread, after a first rollout.

    With a distillation (settings of one; its rounds come every 5,000 steps), after the first two rounds.
    `hyperparameters` replace some of the settings.
    """
    import torch as th
    from stable_baselines3.common.callbacks import BaseCallback

    from rao_agents.distillation import make_callback
    from rao_baselines.algorithms import find_algorithm
    from rao_baselines.config import load_settings
    from rao_baselines.environments import make_training_env
    from rao_baselines.models import make_model

    warm = 0 if distillation is None else DISTILLATION_WARM
    watching = watch or Watch()

    class Clock(BaseCallback):
        first: tuple[int, float] | None = None
        last: tuple[int, float] = (0, 0.0)

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            now = (self.num_timesteps, time.perf_counter())
            if self.num_timesteps > warm and self.first is None:
                self.first = now
                watching.begin()
            self.last = now
            watching.stop()
            # At least two rollouts, so that there is something to divide by.
            if self.first is not None and now[0] > self.first[0] and now[1] - self.first[1] > seconds:
                raise _EnoughError

    # The same settings and environment for both: what differs is the algorithm.
    settings = load_settings(find_algorithm("recursive_ppo"), OURS)
    row = find_algorithm(algorithm)
    if algorithm != "recursive_ppo":
        own = load_settings(row, OURS).hyperparameters
        settings.hyperparameters = {key: settings.hyperparameters.get(key, value) for key, value in own.items()}
    settings.hyperparameters |= hyperparameters
    settings.dense_weight = 0.0
    before = th.get_num_threads()
    th.set_num_threads(1)
    env = make_training_env(OURS, settings, True, SEED)
    clock = Clock()
    extra = [] if distillation is None else [make_callback(distillation, seed=SEED)]
    try:
        model = make_model(row, settings, env, seed=SEED, device="cpu")
        watching.attach(model)
        model.learn(10**9, callback=[*extra, clock])
    except _EnoughError:
        pass
    finally:
        for callback in extra:
            callback.close()
        env.close()
        th.set_num_threads(before)
    assert clock.first is not None
    return (clock.last[0] - clock.first[0]) / (clock.last[1] - clock.first[1])


class _EnoughError(Exception):
    """Measured long enough."""


def in_new_process(code: str, **environment: str) -> float:
    """The number that `code` prints in a fresh interpreter; the second of two runs, so that files are in memory.

    Raises:
        UserError: it fails.
    """
    value = 0.0
    for _ in range(1 if environment else 2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False)
        if done.returncode:
            raise UserError(f"a fresh interpreter failed: {done.stderr.strip()[-500:]}")
        value = float(done.stdout.split()[-1])
    return value


def first_make() -> float:
    """Seconds of the first `make`, `reset` and `step`, with nothing compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        return in_new_process(MAKE, NUMBA_CACHE_DIR=folder)


def _register() -> None:
    """Let `gym.make` know the environments; MiniGrid registers by being imported.

    Raises:
        UserError: MiniGrid is not installed.
    """
    import rao_envs  # noqa: F401

    try:
        import minigrid  # noqa: F401
    except ImportError as error:
        raise UserError('measuring beside MiniGrid needs it: pip install "rao-envs[baselines]"') from error


def ratios(values: dict[str, float]) -> dict[str, float]:
    """The comparisons that the numbers are for, as far as they were measured."""
    single = "gym.make({!r})".format
    pairs = {
        "single environment, times MiniGrid MultiRoom-N6": (single(OURS), single(MINIGRID)),
        "single environment, times CartPole": (single(OURS), single(CARTPOLE)),
        "RecursivePPO, times MaskablePPO": ("RecursivePPO", "MaskablePPO, same network and environment"),
    }
    return {name: values[a] / values[b] for name, (a, b) in pairs.items() if a in values and b in values}


def report(values: dict[str, float], units: dict[str, str], seconds: float) -> dict[str, Any]:
    """The result as it is kept."""
    return {
        "measurements": {name: {"value": round(value, 4), "unit": units[name]} for name, value in values.items()},
        "ratios": {name: round(value, 3) for name, value in ratios(values).items()},
        "duration": seconds,
        **provenance(1),
    }
