"""Checks of keyword arguments, with messages that say what is allowed."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high], or at least `low`; raises ValueError naming the argument otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, (bool, np.bool_)) or number < low or (high is not None and number > high):
        allowed = f"of at least {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} must be an integer {allowed}, got {value!r}")
    return number


def real_number(name: str, value: Any, low: float, high: float) -> float:
    """`value` as a float in [low, high]; raises ValueError naming the argument otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not low <= value <= high:
        raise ValueError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def quoted_path(path: str | os.PathLike[str], most: int = 80) -> str:
    """`path` in quotes for a message; a long one loses its middle, because its end is what tells files apart."""
    name = os.fspath(path)
    if len(name) <= most:
        return repr(name)
    head = most // 3
    return repr(f"{name[:head]}...{name[head + 3 - most :]}")
