"""`rao bench profile`: where training's time goes, RecursivePPO beside MaskablePPO on the same network and environments."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from rao_baselines.provenance import provenance
from rao_baselines.speed import OURS, Watch, training

ENV_ID = OURS
ALGORITHMS = ("recursive_ppo", "maskable_ppo")
PARTS = ("environment", "acting", "advantages", "update: forward", "update: optimiser", "update: rest", "rest")
"""Exclusive, in the order of the table. "update: rest" is mostly the backward pass; "rest" the loop of rollouts, buffers and callbacks."""


class Stopwatch(Watch):
    """Seconds in the parts of training, since `begin`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.start = self.end = 0.0

    def attach(self, model: Any) -> None:
        """Time a model's methods from now on."""
        env = model.get_env()
        while hasattr(env, "venv"):
            env = env.venv
        self._time(env, "step_wait", "environment")
        self._time(model.policy, "forward", "acting")
        self._time(model.rollout_buffer, "compute_returns_and_advantage", "advantages")
        self._time(model.policy, "evaluate_actions", "update: forward")
        self._time(model.policy.optimizer, "step", "update: optimiser")
        self._time(model, "train", "train")

    def begin(self) -> None:
        """Forget what was before."""
        self.seconds = {}
        self.start = time.perf_counter()

    def stop(self) -> None:
        """All that counts has been seen."""
        self.end = time.perf_counter()

    def shares(self) -> dict[str, float]:
        """Share of the time in each of `PARTS`; they add up to 1."""
        total = self.end - self.start
        found = {part: self.seconds.get(part, 0.0) for part in PARTS}
        found["update: rest"] = self.seconds.get("train", 0.0) - found["update: forward"] - found["update: optimiser"]
        found["rest"] = total - sum(found.values())
        return {part: value / total for part, value in found.items()}

    def _time(self, owner: Any, name: str, part: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

        setattr(owner, name, timed)


def measure(algorithm: str, seconds: float) -> dict[str, Any]:
    """Steps per second of `algorithm`, and where the time went (shares)."""
    watch = Stopwatch()
    speed = training(algorithm, seconds, watch=watch)
    return {"steps_per_second": speed, "shares": watch.shares()}


def report(values: dict[str, dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The result as it is kept."""
    return {"env_id": ENV_ID, "algorithms": values, "duration": seconds, **provenance(1)}


def table(kept: dict[str, Any]) -> list[list[str]]:
    """Microseconds for an environment step, by part; its heading alone where nothing is kept."""
    found = kept.get("algorithms", {})
    heading = ["microseconds for a step", *(f"`{name}`" for name in found)]
    if not found:
        return [heading]
    parts = [[part, *(f"{1e6 * one['shares'][part] / one['steps_per_second']:.0f}" for one in found.values())] for part in PARTS]
    whole = ["**all**", *(f"**{1e6 / one['steps_per_second']:.0f}**" for one in found.values())]
    return [heading, *parts, whole, ["steps/s", *(f"{one['steps_per_second']:,.0f}" for one in found.values())]]
