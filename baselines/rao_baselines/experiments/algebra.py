"""Algebra: trained on expressions of depth 1 to 4, scored on depth 8 and, without training there, 12."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Table

DEPTHS = tuple(f"RAO/Algebra-depth{depth}-v0?" for depth in (4, 8, 12))
NAMES = dict(zip(DEPTHS, ("depth 4", "depth 8", "depth 12"), strict=True))
TIMED = "steps to the strongest monolithic agent's last point at depth 8"
SPARSE: dict[str, Any] = {"dense_weight": 0.0}


def _row(name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any] | None = None) -> Experiment:
    return Experiment(
        name,
        label,
        "depths",
        algorithm,
        "RAO/Algebra-v0",
        seeds,
        steps,
        {"env_kwargs.depth": [1, 4]} | (overrides or {}),
        scored_on=DEPTHS[1],
        transfer=(DEPTHS[0], DEPTHS[2]),
    )


ALGEBRA = Suite(
    "The algebra experiments: trained on depths 1 to 4, scored on depth 8 and, without training there, 12.",
    (
        _row("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000),
        _row("maskable_ppo_dense", "MaskablePPO, dense", "maskable_ppo", 5, 2_000_000),
        _row("maskable_ppo_dense_to_8", "MaskablePPO, dense, depths 1-8", "maskable_ppo", 2, 1_000_000, {"env_kwargs.depth": [1, 8]}),
        _row("maskable_ppo_sparse", "MaskablePPO, sparse", "maskable_ppo", 2, 1_000_000, SPARSE),
        _row("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 3, 400_000, SPARSE),
        _row("flat_ppo_dense", "flat credit, dense", "flat_ppo", 3, 400_000),
        _row("recurrent_ppo_dense", "RecurrentPPO, dense", "recurrent_ppo", 1, 400_000),
    ),
    {"depths": "Algebra-depth8"},
    (
        Sizes(
            "algebra-depths",
            "Algebra, trained on depths 1 to 4",
            "depths",
            NAMES,
        ),
    ),
    (Table("agents", ("depths",), {f"{name}, greedy / sampled": task for task, name in NAMES.items()}, TIMED),),
    trained_on="[Algebra](docs/environments/algebra.md), depths 1-4",
    headlines={name: task for task, name in NAMES.items() if task != DEPTHS[0]},
)
