"""Dialogues: trained on trips of 10 turns, scored on them and, without training there, on shorter and longer ones and other windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Sweep, Table

TASK = "RAO/Dialogue-10turn-v0?"
SIZES = {f"RAO/Dialogue-{turns}turn-v0?": f"{turns} turns" for turns in (5, 10, 20, 40)}
CHAINS = {f"{TASK}dependency=0": "independent", TASK: "mixed", f"{TASK}dependency=1": "chained"}
SPARSE: dict[str, Any] = {"dense_weight": 0.0}
MILLION = 1_000_000
OWN = 10
"""The ids' window, in acts."""
WINDOWS = (6, 8, 16, 27)
"""Others."""


def _row(
    name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any] | None = None, arguments: str = ""
) -> Experiment:
    own = dict(pair.split("=") for pair in arguments.split("&") if pair)
    others = (*(task for task in SIZES if task != TASK), *(task for task in CHAINS if task != TASK))
    return Experiment(
        name,
        label,
        "turns",
        algorithm,
        "RAO/Dialogue-10turn-v0",
        seeds,
        steps,
        {f"env_kwargs.{key}": int(value) for key, value in own.items()} | (overrides or {}),
        scored_on=TASK + arguments,
        transfer=() if arguments else others,
        arguments=arguments,
    )


def _with_window(window: int) -> tuple[Experiment, Experiment]:
    """The recursive and the monolithic agent with another window, as the ids but for it."""
    arguments = f"window={window}"
    recursive = _row(f"recursive_ppo_window_{window}", f"RecursivePPO, window {window}", "recursive_ppo", 1, 400_000, {}, arguments)
    monolithic = _row(f"maskable_ppo_window_{window}", f"MaskablePPO, dense, window {window}", "maskable_ppo", 1, 400_000, {}, arguments)
    return replace(recursive, group="windows"), replace(monolithic, group="windows")


_SWEPT = tuple(row for window in sorted((*WINDOWS, OWN)) for row in _with_window(window))

DIALOGUE = Suite(
    "The dialogue experiments: trained on trips of 10 turns; shorter and longer trips without training, other windows, feedback cells.",
    (
        _row("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000),
        _row("maskable_ppo_dense", "MaskablePPO, dense", "maskable_ppo", 5, MILLION),
        _row("maskable_ppo_sparse", "MaskablePPO, sparse", "maskable_ppo", 3, MILLION, SPARSE),
        replace(
            _row("maskable_ppo_double", "MaskablePPO, dense, double window", "maskable_ppo", 3, MILLION, {}, "window=20"), group="wider"
        ),
        _row("recurrent_ppo_dense", "RecurrentPPO, dense", "recurrent_ppo", 2, 400_000),
        _row("flat_ppo_dense", "flat credit, dense", "flat_ppo", 3, 400_000, {"dense_weight": 1.0}),
        _row("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 3, 400_000, SPARSE),
        *_SWEPT,
    ),
    {"turns": "Dialogue-10turn", "windows": "Dialogue-10turn by window", "wider": "Dialogue-10turn, double window"},
    (Sizes("dialogue-turns", "Dialogues, trained on 10 turns", "turns", SIZES),),
    (
        Table(
            "agents",
            ("turns",),
            {f"{size}, greedy / sampled": task for task, size in SIZES.items()},
            "steps to the strongest monolithic agent's last point",
        ),
        Table("wider", ("wider",), {"10 turns, greedy / sampled": TASK}),
        Table("chains", ("turns",), {f"{name}, steps / critical path": task for task, name in CHAINS.items()}, paths=True),
    ),
    (
        Sweep(
            "dialogue-windows",
            "Dialogues of 10 turns by window: success on fixed seeds (actions sampled)",
            "acts in the window",
            {
                label: {str(w): f"{row}_window_{w}" for w in sorted((*WINDOWS, OWN))}
                for label, row in (("RecursivePPO", "recursive_ppo"), ("MaskablePPO, dense", "maskable_ppo"))
            },
        ),
    ),
    trained_on="[Dialogues](docs/environments/dialogue.md) of 10 turns",
    headlines={size: task for task, size in SIZES.items() if task != "RAO/Dialogue-5turn-v0?"},
)
