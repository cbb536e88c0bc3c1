"""Ablations: one choice of RecursivePPO changed at a time, on two families, everything else as it is."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Comparison, Experiment, Suite

SEEDS = 3
STEPS = 120_000
BONUS = 0.5
REPEATS = 4
MEMORY = 8

BASE = "base"
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("as it is", {}),
    "credit_tree": ("credit: tree", {"credit": "tree"}),
    "credit_root": ("credit: root", {"credit": "root"}),
    # What a child's outcome tells the others, as part of the one reward (rule 11 of the protocol).
    "credit_root_dense": ("credit: root, dense feedback", {"credit": "root", "dense_weight": 1.0}),
    "repeats": ("GAE on repeated tasks", {"repeats": REPEATS}),
    "rloo": ("leave-one-out", {"repeats": REPEATS, "advantage": "rloo"}),
    "bonus_average": ("bonus: average", {"delegation_bonus": BONUS}),
    "bonus_sum": ("bonus: sum", {"delegation_bonus": BONUS, "delegation_bonus_form": "sum"}),
    "softmax": ("plain softmax", {"delegation_head": False}),
    "unmasked": ("masks seen, not applied", {"use_masking": False}),
    "maskless": (
        "no masks at all",
        {"use_masking": False, "policy_kwargs.features_extractor_kwargs.ignore": ["action_mask"]},
    ),
    "depth_half": ("depth weights 0.5", {"depth_weighting": 0.5}),
    "depth_full": ("depth weights 1", {"depth_weighting": 1.0}),
    **{f"transfer_{mode}": (f"state transfer: {mode}", {"state_transfer": mode}) for mode in ("summary", "hidden", "attention")},
    "transfer_memory": ("memory of the tree", {"state_transfer_kwargs": {"memory": MEMORY}}),
}
"""What a row changes: its label, and settings on top of the family's own."""


def _row(family: str, choice: str, env_id: str, transfer: tuple[str, ...]) -> Experiment:
    label, changes = CHANGES[choice]
    return Experiment(f"{family}_{choice}", label, family, "recursive_ppo", env_id, SEEDS, STEPS, changes, transfer=transfer)


def _maze(choice: str) -> Experiment:
    return _row("maze", choice, "RAO/Maze-10x10-v0", ("RAO/Maze-20x20-v0",))


def _dialogue(choice: str) -> Experiment:
    return _row("dialogue", choice, "RAO/Dialogue-10turn-v0", ("RAO/Dialogue-20turn-v0",))


QUESTIONS = {
    "credit": {"node": BASE, "tree": "credit_tree", "root": "credit_root", "root, dense feedback": "credit_root_dense"},
    "advantage": {"GAE": BASE, "GAE, repeated tasks": "repeats", "leave-one-out": "rloo"},
    "delegation bonus": {"none": BASE, "average": "bonus_average", "sum": "bonus_sum"},
    "policy": {"delegation head": BASE, "plain softmax": "softmax"},
    "masks": {"applied": BASE, "seen, not applied": "unmasked", "neither": "maskless"},
    "depth weights": {"0": BASE, "0.5": "depth_half", "1": "depth_full"},
    "state transfer": {
        "none": BASE,
        **{mode: f"transfer_{mode}" for mode in ("summary", "hidden", "attention")},
        "memory alone": "transfer_memory",
    },
}

ABLATION = Suite(
    "The ablations: one choice of RecursivePPO changed at a time, on Maze-10x10 and on dialogues of 10 turns.",
    tuple(make(choice) for choice in CHANGES for make in (_maze, _dialogue)),
    {},
    comparisons=(Comparison("ablation", {"maze": "Maze-10x10", "dialogue": "Dialogue-10turn"}, QUESTIONS),),
)
