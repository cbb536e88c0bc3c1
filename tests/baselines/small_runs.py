"""Training runs of well under a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rao_baselines.errors import UserError
from rao_baselines.pool import Event
from rao_baselines.spec import TrainSpec
from rao_baselines.training import Progress, train

ENV = "RAO/Maze-5x5-v0"

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"n_envs": 4, "n_steps": 8},
    "recursive_a2c": {"n_envs": 4, "n_steps": 8},
    "dqn": {"n_envs": 2, "learning_starts": 64, "buffer_size": 200, "target_update_interval": 40, "batch_size": 32},
}
"""Settings that make a run tiny, by algorithm."""


def tiny(algorithm: str, out: Any, **changes: Any) -> TrainSpec:
    """A run of well under a second of training."""
    overrides = SMALL.get(algorithm, {"n_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 2}) | changes.pop("overrides", {})
    env_id = changes.pop("env_id", ENV)
    if "Maze" in env_id:
        overrides = {"env_kwargs.budget": 30} | overrides  # short episodes
    fields: dict[str, Any] = {"steps": 400, "eval_every": 150, "eval_episodes": 3, "final_episodes": 4}
    return TrainSpec(algorithm, env_id, overrides=overrides, out=str(out), **(fields | changes))


def tiny_options(algorithm: str) -> list[str]:
    """The same for the command line."""
    spec = tiny(algorithm, "")
    options = ["--steps", spec.steps, "--eval-every", spec.eval_every, "--eval-episodes", 3, "--final-episodes", 4]
    for key, value in spec.overrides.items():
        options += ["--set", f"{key}={value}"]
    return [str(option) for option in options]


def run_here(
    specs: Sequence[TrainSpec],
    jobs: int,
    on_event: Callable[[Event], Any],
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, list[int]]:
    """`rao_baselines.pool.run_all` without its processes, which take seconds to start: one after the other, in this one."""
    outcome: dict[str, list[int]] = {"done": [], "failed": [], "stopped": [], "waiting": []}
    for index, spec in enumerate(specs):

        def report(progress: Progress, index: int = index) -> None:
            on_event(Event(index, "progress", {"steps": progress.steps, "total": progress.total, "point": progress.point}))

        on_event(Event(index, "start", {}))
        try:
            train(spec, resume=(Path(spec.folder()) / "config.json").is_file(), report=report)
        except UserError as error:
            outcome["failed"].append(index)
            on_event(Event(index, "failed", {"code": 2, "error": str(error)}))
        else:
            outcome["done"].append(index)
            on_event(Event(index, "done", {}))
    return outcome
