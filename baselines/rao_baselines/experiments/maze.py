"""Mazes: recursive against monolithic, the feedback cells, larger mazes without training there, other structures."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Table

STRONGEST = "maskable_ppo_dense"
"""The monolithic agent that came out best of tuning on Maze-20x20; it stands for its kind on the other structures."""
MILLION = 1_000_000
TRAINED = "RAO/Maze-20x20-v0"
LARGER = ("RAO/Maze-40x40-v0", "RAO/Maze-80x80-v0")
SIZES = {task: task.removeprefix("RAO/Maze-").removesuffix("-v0") for task in (TRAINED, *LARGER)}
SPARSE = {"dense_weight": 0.0}
# What tuning found is for dense feedback; a rare reward needs a longer reach and its own scale.
PLAIN_SPARSE = SPARSE | {"gae_lambda": 0.95, "ent_coef": "lin_0.01", "normalize": False, "step_penalty": 0.0}


def _nested(
    name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any], transfer: tuple[str, ...] = ()
) -> Experiment:
    return Experiment(name, label, "nested", algorithm, TRAINED, seeds, steps, overrides, transfer=transfer)


def _structure(structure: str) -> tuple[Experiment, Experiment]:
    """The recursive and the strongest monolithic agent on another structure."""
    best = next(row for row in NESTED if row.name == STRONGEST)
    kwargs = {"env_kwargs.structure": structure}
    return (
        Experiment(f"recursive_ppo_{structure}", "RecursivePPO", structure, "recursive_ppo", TRAINED, 3, 400_000, kwargs),
        Experiment(f"{STRONGEST}_{structure}", best.label, structure, best.algorithm, best.env_id, 2, MILLION, best.overrides | kwargs),
    )


NESTED = (
    _nested("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000, {}, LARGER),
    _nested("recursive_a2c", "RecursiveA2C", "recursive_a2c", 3, 400_000, {}, LARGER),
    _nested("maskable_ppo_dense", "MaskablePPO, dense", "maskable_ppo", 5, MILLION, {}, LARGER),
    _nested("maskable_ppo_sparse", "MaskablePPO, sparse", "maskable_ppo", 3, MILLION, PLAIN_SPARSE),
    _nested("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 3, 400_000, PLAIN_SPARSE),
    _nested("flat_ppo_dense", "flat credit, dense", "flat_ppo", 3, 400_000, {}),
    _nested("ppo_dense", "PPO, dense", "ppo", 3, MILLION, {}),
    _nested("a2c_dense", "A2C, dense", "a2c", 3, MILLION, {}),
    # The slowest by far: at their tuned settings a million steps take half an hour or more, and show nothing that 400 k do not.
    _nested("dqn_dense", "DQN, dense", "dqn", 2, 400_000, {}),
    _nested("recurrent_ppo_dense", "RecurrentPPO, dense", "recurrent_ppo", 2, 400_000, {}),
)
STRUCTURES = ("perfect", "rooms", "open")
MAZE = Suite(
    "The maze experiments: recursive against monolithic, feedback cells, other structures, larger mazes without training.",
    NESTED + tuple(row for structure in STRUCTURES for row in _structure(structure)),
    {structure: f"Maze-20x20, {structure} mazes" for structure in ("nested", *STRUCTURES)},
    (
        Sizes(
            "maze-sizes",
            "Mazes larger than those trained on",
            "nested",
            SIZES,
        ),
    ),
    (
        Table(
            "agents",
            ("nested",),
            {f"{size}{'' if task == TRAINED else ' zero-shot'}, greedy / sampled": task for task, size in SIZES.items()},
            "steps to the strongest monolithic agent's last point",
        ),
        Table("structures", STRUCTURES, {"greedy / sampled": TRAINED}),
    ),
)
