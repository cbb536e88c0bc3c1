"""Self-distillation: the same runs with and without it, with other distillers and other fusions, and as a much smaller student.

Algebra is modulo 2, whose digits are learned soon: every run gets to its plateau in 150,000 steps, so that all pieces can be
compared on both families with several seeds.
"""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Suite, Table

MAZE = "RAO/Maze-20x20-v0"
ALGEBRA = "RAO/Algebra-v0"
TRAINED = {"env_kwargs.depth": [1, 4], "env_kwargs.modulus": 2}
SCORED = "RAO/Algebra-v0?depth=4&modulus=2"
LARGER = "RAO/Maze-40x40-v0"
DEEPER = "RAO/Algebra-v0?depth=8&modulus=2"
SEEDS = 5
STEPS = {"maze": 200_000, "algebra": 150_000}


def _row(group: str, name: str, label: str, seeds: int, distillation: Any) -> Experiment:
    """One row: RecursivePPO with this distillation (None for without)."""
    overrides: dict[str, Any] = {} if distillation is None else {"distillation": distillation}
    if group == "maze":
        return Experiment(f"maze_{name}", label, group, "recursive_ppo", MAZE, seeds, STEPS[group], overrides, transfer=(LARGER,))
    overrides = TRAINED | overrides
    return Experiment(
        f"algebra_{name}", label, group, "recursive_ppo", ALGEBRA, seeds, STEPS[group], overrides, scored_on=SCORED, transfer=(DEEPER,)
    )


def _both(name: str, label: str, seeds: int, distillation: Any) -> tuple[Experiment, Experiment]:
    return _row("maze", name, label, seeds, distillation), _row("algebra", name, label, seeds, distillation)


def _fusion(*injectors: Any) -> dict[str, Any]:
    return {"injectors": list(injectors)}


GUARD = {"every": 20_000, "episodes": 100}
MAIN = (
    *_both("without", "RecursivePPO, without", SEEDS, None),
    *_both("default", "imitation of successes (the default)", SEEDS, True),
    *_both("guarded", "the default, with a guard", SEEDS, {"guard": GUARD}),
)
ALIKE: dict[str, Any] = {"weighting": {"success": 1.0}}
"""All states alike: a teacher speaks about failures too, and values are learned from both."""
TEACHER = {"kind": "auxiliary", "weight": 0.1, "teacher": 1.0}
IMITATION = {"kind": "auxiliary", "weight": 0.1, "teacher": 0.0, "imitation": 1.0}
DISTILLERS = (
    *_both(
        "light",
        "student a quarter as wide, which teaches too",
        5,
        {"distiller": {"kind": "student", "student": "light"}} | _fusion(IMITATION | {"teacher": 0.3}),
    ),
    *_both(
        "ensemble",
        "ensemble of five past policies",
        3,
        {"distiller": {"kind": "student", "teacher": "ensemble", "student": None}} | _fusion(IMITATION | {"teacher": 0.3}),
    ),
    *_both("direction", "direction of improvement", 3, {"distiller": "improvement"} | ALIKE | _fusion(TEACHER)),
    *_both("skills", "skills", 3, {"distiller": "skills"} | _fusion(TEACHER)),
    *_both("contrastive", "contrastive, as an exploration bonus", 3, {"distiller": "contrastive"} | _fusion("exploration")),
)
FUSIONS = (
    *_both("imitation_teacher", "imitation, and towards the average", 3, _fusion(IMITATION | {"teacher": 0.3})),
    *_both("teacher", "towards the average alone", 3, ALIKE | _fusion(TEACHER)),
    *_both("strong_teacher", "towards the average alone, ten times as strongly", 3, ALIKE | _fusion(TEACHER | {"weight": 1.0})),
    *_both("values", "returns remembered", 3, ALIKE | _fusion({"kind": "auxiliary", "weight": 0.5, "teacher": 0.0, "value_weight": 1.0})),
    *_both("interpolation", "interpolated with the average", 3, _fusion({"kind": "interpolation", "share": 0.5})),
    *_both("consolidation", "elastic weights", 3, ALIKE | _fusion("consolidation")),
    *_both("explorer", "explorer and exploiter", 3, ALIKE | _fusion("explorer")),
    *_both("surprise", "surprising episodes only", 3, {"weighting": {"success": None, "half_life": 10, "surprising_share": 0.25}}),
)

DISTILLATION = Suite(
    "Self-distillation: with and without it, other distillers and fusions; on Maze-20x20 and on algebra modulo 2 of depth 1 to 4.",
    (*MAIN, *DISTILLERS, *FUSIONS),
    {"maze": "Maze-20x20", "algebra": "Algebra modulo 2, depth 4"},
    tables=(
        Table("maze", ("maze",), {"20x20, greedy / sampled": MAZE, "40x40 zero-shot": LARGER}),
        Table("algebra", ("algebra",), {"depth 4, greedy / sampled": SCORED, "depth 8 zero-shot": DEEPER}),
    ),
    prefix="distillation",
)
