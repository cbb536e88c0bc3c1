"""Schedules that can be written down: compared, printed and stored as JSON.

A schedule is called with the progress that remains, from 1 (start) to 0 (end), as everywhere in SB3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stable_baselines3.common import utils

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class ConstantSchedule:
    """The same value throughout."""

    value: float

    def __call__(self, progress_remaining: float) -> float:
        """The value at this progress."""
        return self.value


@dataclass(frozen=True)
class LinearSchedule:
    """From `start` to `end` over the first `end_fraction` of training, in (0, 1], then `end`."""

    start: float
    end: float = 0.0
    end_fraction: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.end_fraction <= 1.0:
            raise ValueError(f"end_fraction must lie in (0, 1], got {self.end_fraction}")

    def __call__(self, progress_remaining: float) -> float:
        """The value at this progress."""
        done = 1.0 - progress_remaining
        if done > self.end_fraction:
            return self.end
        return self.start + done * (self.end - self.start) / self.end_fraction


@dataclass(frozen=True)
class TableSchedule:
    """Values at evenly spaced moments from start to end of training (at least two), linear between them."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError("a table needs at least two values")
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))

    def __call__(self, progress_remaining: float) -> float:
        """The value at this progress."""
        position = min(max(1.0 - progress_remaining, 0.0), 1.0) * (len(self.values) - 1)
        index = min(int(position), len(self.values) - 2)
        low, high = self.values[index], self.values[index + 1]
        return low + (high - low) * (position - index)


KINDS: dict[str, type] = {"constant": ConstantSchedule, "linear": LinearSchedule, "table": TableSchedule}
TABLE_SIZE = 1001


def constant(value: float) -> ConstantSchedule:
    """The same value throughout."""
    return ConstantSchedule(_number(value))


def linear(start: float, end: float = 0.0, end_fraction: float = 1.0) -> LinearSchedule:
    """From `start` to `end` over the first `end_fraction` of training."""
    return LinearSchedule(_number(start), _number(end), _number(end_fraction))


def describe(schedule: float | Schedule) -> dict[str, Any]:
    """`schedule` as JSON: a dictionary with its `kind` and parameters.

    Takes numbers, the schedules of this module and those of SB3. See `tabulate` for other functions.

    Raises:
        TypeError: `schedule` is another function.
    """
    if isinstance(schedule, utils.FloatSchedule):
        return describe(schedule.value_schedule)
    if isinstance(schedule, utils.ConstantSchedule):
        schedule = ConstantSchedule(float(schedule.val))
    elif isinstance(schedule, utils.LinearSchedule):
        schedule = LinearSchedule(float(schedule.start), float(schedule.end), float(schedule.end_fraction))
    elif isinstance(schedule, (int, float)) and not isinstance(schedule, bool):
        schedule = ConstantSchedule(float(schedule))
    for kind, cls in KINDS.items():
        if type(schedule) is cls:
            parameters = asdict(schedule)  # type: ignore[call-overload]
            return {
                "kind": kind,
                **{k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()},
            }
    raise TypeError(
        f"{schedule!r} cannot be written down: use rao_agents.schedules.constant, linear or TableSchedule "
        "(tabulate makes one from a function)"
    )


def from_description(description: Mapping[str, Any]) -> ConstantSchedule | LinearSchedule | TableSchedule:
    """The schedule that `describe` described.

    Raises:
        ValueError: Unknown kind or parameters.
    """
    parameters = dict(description)
    kind = parameters.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"a schedule's kind must be one of {', '.join(KINDS)}, got {kind!r}")
    try:
        if kind == "table":
            return TableSchedule(tuple(_number(value) for value in parameters.pop("values")), **parameters)
        schedule = KINDS[kind](**{name: _number(value) for name, value in parameters.items()})
    except (TypeError, KeyError) as error:
        raise ValueError(f"wrong parameters {parameters} for a {kind} schedule") from error
    assert isinstance(schedule, (ConstantSchedule, LinearSchedule))
    return schedule


def tabulate(schedule: Schedule, size: int = TABLE_SIZE) -> TableSchedule:
    """Any function of progress as a table of `size` values."""
    return TableSchedule(tuple(float(schedule(1.0 - i / (size - 1))) for i in range(size)))


def parse(value: float | str | Mapping[str, Any] | Schedule) -> float | Schedule:
    """A schedule as configuration files write it.

    That is a number, "lin_0.001" (from there to 0: rl_zoo3's form), "lin_0.1_0.003_0.75" (to 0.003 over the first
    three quarters), or a description. Numbers and functions are handed through.

    Raises:
        ValueError: None of these.
    """
    if isinstance(value, str):
        name, *numbers = value.split("_")
        try:
            return linear(*map(float, numbers)) if name == "lin" else float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{value!r} is not a schedule: write a number, lin_<start>, lin_<start>_<end>_<fraction>, or a mapping with kind: linear"
            ) from error
    if isinstance(value, Mapping):
        return from_description(value)
    if callable(value):
        return value
    return _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"a schedule's values must be finite numbers, got {value!r}")
    return float(value)
