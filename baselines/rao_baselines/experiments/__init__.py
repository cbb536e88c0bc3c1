"""The experiments behind the published numbers, as data: which algorithm, on what, how often, for how long."""

from __future__ import annotations

from rao_baselines.experiments.ablation import ABLATION
from rao_baselines.experiments.adaptive import ADAPTIVE
from rao_baselines.experiments.algebra import ALGEBRA
from rao_baselines.experiments.curriculum import CURRICULUM
from rao_baselines.experiments.dialogue import DIALOGUE
from rao_baselines.experiments.distillation import DISTILLATION
from rao_baselines.experiments.experiment import Comparison, Experiment, Sizes, Suite, Sweep, Table
from rao_baselines.experiments.limits import LIMITS
from rao_baselines.experiments.longseq import LONGSEQ
from rao_baselines.experiments.maze import MAZE
from rao_baselines.experiments.nested import NESTED
from rao_baselines.experiments.relay import RELAY

__all__ = ["SUITES", "Comparison", "Experiment", "Sizes", "Suite", "Sweep", "Table"]

SUITES: dict[str, Suite] = {
    "maze": MAZE,
    "algebra": ALGEBRA,
    "longseq": LONGSEQ,
    "nested": NESTED,
    "dialogue": DIALOGUE,
    "ablation": ABLATION,
    "limits": LIMITS,
    "adaptive": ADAPTIVE,
    "curriculum": CURRICULUM,
    "relay": RELAY,
    "distillation": DISTILLATION,
}
"""By the name of the command that runs them."""
