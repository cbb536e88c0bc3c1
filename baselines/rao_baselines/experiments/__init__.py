"""The experiments behind the published numbers, as data: which algorithm, on what, how often, for how long."""

from __future__ import annotations

from rao_baselines.experiments.experiment import Experiment, Suite
from rao_baselines.experiments.maze import MAZE

__all__ = ["SUITES", "Experiment", "Suite"]

SUITES: dict[str, Suite] = {"maze": MAZE}
"""By the name of the command that runs them."""
