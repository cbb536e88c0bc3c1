"""Curricula and mixtures: the largest size alone, small sizes first, and all sizes at once (MISSION A6)."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Suite, Table

MAZE = "RAO/Maze-20x20-v0"
MAZES = ("RAO/Maze-5x5-v0", "RAO/Maze-10x10-v0", MAZE)
BEYOND_MAZE = "RAO/Maze-40x40-v0"
ALGEBRA = "RAO/Algebra-v0"
DEPTHS = tuple(f"{ALGEBRA}?depth={depth}" for depth in (1, 2, 3, 4))
DEEPEST = "RAO/Algebra-depth4-v0?"
BEYOND_ALGEBRA = "RAO/Algebra-depth8-v0?"
PACE: dict[str, Any] = {"threshold": 0.9, "every": 5_000, "episodes": 100}
"""Mastered at nine in ten; looked at often, because the small sizes take few steps."""


def _maze(name: str, label: str, algorithm: str = "recursive_ppo", overrides: dict[str, Any] | None = None) -> Experiment:
    return Experiment(name, label, "maze", algorithm, MAZE, 3, 150_000, overrides or {}, transfer=(BEYOND_MAZE,))


def _algebra(name: str, label: str, overrides: dict[str, Any]) -> Experiment:
    return Experiment(
        name, label, "algebra", "recursive_ppo", ALGEBRA, 3, 200_000, overrides, scored_on=DEEPEST, transfer=(BEYOND_ALGEBRA,)
    )


def _stages(tasks: tuple[str, ...], **pace: Any) -> dict[str, Any]:
    return {"curriculum": {"stages": list(tasks), **PACE, **pace}}


CURRICULUM = Suite(
    "Curricula: Maze-20x20 and expressions of depth 4 alone, small sizes first, or all sizes at once.",
    (
        _maze("maze_target", "20x20 alone"),
        _maze("maze_curriculum", "5x5, then 10x10, then 20x20", overrides=_stages(MAZES)),
        _maze("maze_review", "the same, a quarter of them smaller ones", overrides=_stages(MAZES, review=0.25)),
        _maze("maze_mixed", "5x5, 10x10 and 20x20 at once", overrides={"mixture": list(MAZES)}),
        _maze("maze_monolithic_target", "MaskablePPO, dense: 20x20 alone", "maskable_ppo"),
        _maze("maze_monolithic_curriculum", "MaskablePPO, dense: 5x5, then 10x10, then 20x20", "maskable_ppo", _stages(MAZES)),
        _algebra("algebra_target", "depth 4 alone", {"env_kwargs.depth": 4}),
        _algebra("algebra_curriculum", "depth 1, then 2, 3, 4", _stages(DEPTHS)),
        _algebra("algebra_mixed", "depths 1 to 4 at once, equal shares of episodes", {"env_kwargs.depth": [1, 4]}),
        _algebra("algebra_mixed_steps", "depths 1 to 4 at once, equal shares of steps", {"mixture": list(DEPTHS)}),
    ),
    {"maze": "Maze-20x20: which sizes to train on", "algebra": "Algebra, depth 4: which depths to train on"},
    tables=(
        Table("maze", ("maze",), {"20x20, greedy / sampled": MAZE, "40x40 zero-shot, greedy / sampled": BEYOND_MAZE}),
        Table("algebra", ("algebra",), {"depth 4, greedy / sampled": DEEPEST, "depth 8 zero-shot, greedy / sampled": BEYOND_ALGEBRA}),
    ),
    prefix="curriculum",
)
