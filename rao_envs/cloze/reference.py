"""Masked words found without learning: a cloze question is a needle, so the long sequences' scripted agents answer it."""

from rao_envs.longseq.reference import MonolithicSolver, RecursiveSolver

__all__ = ["MonolithicSolver", "RecursiveSolver"]
