"""Nested brackets: trained on 16 to 320 tokens, scored on 320 and, without training there, on 3,200 and 32,000."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Table

LENGTHS = [16, 320]
TASKS = {f"RAO/LongSeq-nested-{size}-v0?": size for size in ("320", "3k", "32k")}
SPARSE: dict[str, Any] = {"dense_weight": 0.0}


def _row(
    name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any] | None = None, arguments: str = ""
) -> Experiment:
    first, *larger = (task + arguments for task in TASKS)
    return Experiment(
        name,
        label,
        "brackets",
        algorithm,
        "RAO/LongSeq-nested-v0",
        seeds,
        steps,
        {"env_kwargs.length": LENGTHS} | (overrides or {}),
        scored_on=first,
        # At these lengths an episode that fails takes up to 64,000 steps: only for those that learn to evaluate brackets at all.
        transfer=tuple(larger) if algorithm == "recursive_ppo" else (),
        transfer_episodes=50,
        arguments=arguments,
    )


NESTED = Suite(
    "The nested-bracket experiments: trained on 16 to 320 tokens, scored on 320 and, without training there, 3,200 and 32,000.",
    (
        _row("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000),
        _row("maskable_ppo_dense", "MaskablePPO, cursor and note, dense", "maskable_ppo", 2, 1_000_000),
        _row("maskable_ppo_sparse", "MaskablePPO, cursor and note, sparse", "maskable_ppo", 1, 1_000_000, SPARSE),
        _row("maskable_ppo_stack", "MaskablePPO, stack of 8, dense", "maskable_ppo", 1, 1_000_000, {"env_kwargs.stack": 8}, "stack=8"),
        _row("recurrent_ppo_dense", "RecurrentPPO, cursor and note, dense", "recurrent_ppo", 1, 400_000),
        _row("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 3, 400_000, SPARSE),
        _row("flat_ppo_dense", "flat credit, dense", "flat_ppo", 3, 400_000),
        _row("recursive_ppo_raw", "RecursivePPO, raw view", "recursive_ppo", 1, 400_000, {"env_kwargs.view": "raw"}, "view=raw"),
    ),
    {"brackets": "LongSeq-nested-320"},
    (Sizes("nested-lengths", "Nested brackets, trained on 16 to 320 tokens", "brackets", TASKS),),
    (Table("agents", ("brackets",), {f"{size} tokens, greedy / sampled": task for task, size in TASKS.items()}),),
    trained_on="[Nested brackets](docs/environments/nested.md), 16-320 tokens",
    headlines={f"{size} tokens": task for task, size in TASKS.items()},
)
