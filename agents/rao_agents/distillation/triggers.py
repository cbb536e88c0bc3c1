"""When to distil: by interval, when the memory has filled up, when the held-out score has stopped rising (MISSION B7)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True)
class Moment:
    """What a trigger may look at, between two rollouts.

    Args:
        timesteps: environment steps so far.
        remembered: steps that were ever put into the memory.
        capacity: steps that the memory holds at most.
        scores: held-out scores so far, oldest first, as (timesteps, score); empty without a held-out evaluation.
    """

    timesteps: int
    remembered: int
    capacity: int
    scores: Sequence[tuple[int, float]] = field(default=())


class Trigger(ABC):
    """Says when a distillation is due. Made from plain arguments (`config`), and what it remembers is plain (`state`)."""

    kind: ClassVar[str] = ""

    @abstractmethod
    def due(self, now: Moment) -> bool:
        """Whether to distil now."""

    @abstractmethod
    def fired(self, now: Moment) -> None:
        """A distillation took place now, whatever was the reason."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""

    def shift(self, steps: int) -> None:
        """The count of environment steps was set back: it is now more by `steps` (fewer, as that is below 0)."""

    def state(self) -> dict[str, Any]:
        """What it remembers."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""


class Interval(Trigger):
    """Every `steps` environment steps, the first time after `first` (by default the same number).

    Raises:
        ValueError: a number below 1.
    """

    kind = "interval"

    def __init__(self, steps: int = 5_000, first: int | None = None) -> None:
        self.steps = _positive("steps", steps)
        self.first = self.steps if first is None else _positive("first", first)
        self.next = self.first

    def due(self, now: Moment) -> bool:
        """See `Trigger`."""
        return now.timesteps >= self.next

    def fired(self, now: Moment) -> None:
        """See `Trigger`."""
        self.next = now.timesteps + self.steps

    def config(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"steps": self.steps, "first": self.first}

    def shift(self, steps: int) -> None:
        """See `Trigger`."""
        self.next += steps

    def state(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"next": self.next}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Trigger`."""
        self.next = int(state["next"])


class BufferFull(Trigger):
    """When as many new steps as `share` of the memory's capacity were remembered since the last distillation.

    Raises:
        ValueError: `share` is not above 0.
    """

    kind = "buffer_full"

    def __init__(self, share: float = 1.0) -> None:
        if not (math.isfinite(share) and share > 0):
            raise ValueError(f"share must be a finite number above 0, got {share!r}")
        self.share = float(share)
        self.last = 0

    def due(self, now: Moment) -> bool:
        """See `Trigger`."""
        return now.remembered - self.last >= self.share * now.capacity

    def fired(self, now: Moment) -> None:
        """See `Trigger`."""
        self.last = now.remembered

    def config(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"share": self.share}

    def state(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"last": self.last}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Trigger`."""
        self.last = int(state["last"])


class Plateau(Trigger):
    """When the held-out score has stopped rising: a line through its last `window` values does not rise significantly.

    The slope is that of least squares. A one-sided t-test with `window` - 2 degrees of freedom asks whether it could be 0 or less; the
    score counts as rising when that has a probability below `alpha`. Looks only at scores since the last distillation.

    Args:
        window: values, at least 3.
        alpha: in (0, 1).

    Raises:
        ValueError: a number out of range.
    """

    kind = "plateau"

    def __init__(self, window: int = 6, alpha: float = 0.1) -> None:
        if _positive("window", window) < 3:
            raise ValueError(f"window must be at least 3 scores, got {window!r}")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {alpha!r}")
        self.window, self.alpha = int(window), float(alpha)
        self.last = -1  # timesteps of the last distillation

    def due(self, now: Moment) -> bool:
        """See `Trigger`."""
        scores = [score for score in now.scores if score[0] > self.last][-self.window :]
        return len(scores) == self.window and rise_probability(scores) >= self.alpha

    def fired(self, now: Moment) -> None:
        """See `Trigger`."""
        self.last = now.timesteps

    def config(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"window": self.window, "alpha": self.alpha}

    def shift(self, steps: int) -> None:
        """See `Trigger`."""
        self.last += steps

    def state(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"last": self.last}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Trigger`."""
        self.last = int(state["last"])


class AnyOf(Trigger):
    """When one of `triggers` is due; all of them are told.

    Raises:
        ValueError: there are none.
    """

    kind = "any"

    def __init__(self, *triggers: Trigger) -> None:
        if not triggers:
            raise ValueError("AnyOf needs at least one trigger")
        self.triggers = triggers

    def due(self, now: Moment) -> bool:
        """See `Trigger`."""
        return any(trigger.due(now) for trigger in self.triggers)

    def fired(self, now: Moment) -> None:
        """See `Trigger`."""
        for trigger in self.triggers:
            trigger.fired(now)

    def config(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"triggers": [{"kind": trigger.kind, **trigger.config()} for trigger in self.triggers]}

    def shift(self, steps: int) -> None:
        """See `Trigger`."""
        for trigger in self.triggers:
            trigger.shift(steps)

    def state(self) -> dict[str, Any]:
        """See `Trigger`."""
        return {"triggers": [trigger.state() for trigger in self.triggers]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Trigger`."""
        for trigger, each in zip(self.triggers, state["triggers"], strict=True):
            trigger.set_state(each)


def rise_probability(scores: Sequence[tuple[int, float]]) -> float:
    """Probability of a slope as large as that of `scores` (at least 3) if there were no rise: p of the one-sided t-test, in [0, 1]."""
    x = np.array([score[0] for score in scores], np.float64)
    y = np.array([score[1] for score in scores], np.float64)
    x -= x.mean()
    spread = float((x**2).sum())
    if spread == 0:
        return 1.0
    slope = float((x * y).sum()) / spread
    rest = y - y.mean() - slope * x
    freedom = len(x) - 2
    error = math.sqrt(float((rest**2).sum()) / freedom / spread)
    if error <= 1e-12 * max(abs(slope), 1e-300) or error == 0:
        return 0.0 if slope > 0 else 1.0
    return t_upper(slope / error, freedom)


def t_upper(t: float, freedom: int) -> float:
    """P(T > t) for Student's t with `freedom` >= 1 degrees of freedom, to about 1e-6."""
    # With x = sqrt(freedom) tan(angle) the density is a power of the cosine, smooth on a finite interval.
    angles = np.linspace(0.0, math.atan(abs(t) / math.sqrt(freedom)), 2001)
    power = np.cos(angles) ** (freedom - 1)
    step = angles[1] - angles[0]
    area = float(step / 3 * (power[0] + power[-1] + 4 * power[1:-1:2].sum() + 2 * power[2:-1:2].sum()))
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    upper = min(max(0.5 - scale * area, 0.0), 0.5)
    return upper if t >= 0 else 1.0 - upper


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer)) or value != int(value) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)
