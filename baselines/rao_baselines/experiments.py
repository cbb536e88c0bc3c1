"""The experiments behind the published numbers, as data: which algorithm, on what, how often, for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rao_baselines.spec import TrainSpec

STRONGEST = "maskable_ppo_dense"
"""The monolithic agent that came out best of tuning on Maze-20x20; it stands for its kind on the other structures."""
MILLION = 1_000_000


@dataclass(frozen=True)
class Experiment:
    """One row: an algorithm under one condition, over several seeds.

    Args:
        name: of the row, unique within its suite.
        label: as figures and tables call it.
        group: rows of one group are compared with each other and drawn in one figure.
        overrides: settings on top of the algorithm's file.
    """

    name: str
    label: str
    group: str
    algorithm: str
    env_id: str
    seeds: int
    steps: int
    overrides: dict[str, Any] = field(default_factory=dict)
    transfer: tuple[str, ...] = ()

    def specs(self, root: Path, *, scale: float = 1.0, episodes: int = 500) -> list[TrainSpec]:
        """One run per seed, in folders under `root`; `scale` shortens all of them for a trial."""
        steps = max(int(self.steps * scale), 1)
        return [
            TrainSpec(
                algorithm=self.algorithm,
                env_id=self.env_id,
                seed=seed,
                steps=steps,
                overrides=dict(self.overrides),
                out=str(root / self.name / str(seed)),
                eval_every=max(steps // 20, 1),
                eval_episodes=min(episodes, 100),
                final_episodes=episodes,
                transfer=list(self.transfer),
                name=self.name,
            )
            for seed in range(self.seeds)
        ]


LARGER = ("RAO/Maze-40x40-v0", "RAO/Maze-80x80-v0")
SPARSE = {"dense_weight": 0.0}
DENSE = {"dense_weight": 1.0}


def _nested(
    name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any], transfer: tuple[str, ...] = ()
) -> Experiment:
    return Experiment(name, label, "nested", algorithm, "RAO/Maze-20x20-v0", seeds, steps, overrides, transfer)


def _structure(structure: str) -> tuple[Experiment, Experiment]:
    """The recursive and the strongest monolithic agent on another structure."""
    best = next(row for row in NESTED if row.name == STRONGEST)
    kwargs = {"env_kwargs.structure": structure}
    return (
        Experiment(f"recursive_ppo_{structure}", "RecursivePPO", structure, "recursive_ppo", "RAO/Maze-20x20-v0", 3, 400_000, kwargs),
        Experiment(f"{STRONGEST}_{structure}", best.label, structure, best.algorithm, best.env_id, 2, MILLION, best.overrides | kwargs),
    )


NESTED = (
    _nested("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000, {}, LARGER),
    _nested("maskable_ppo_dense", "MaskablePPO, dense", "maskable_ppo", 5, MILLION, DENSE, LARGER),
    _nested("maskable_ppo_sparse", "MaskablePPO, sparse", "maskable_ppo", 3, MILLION, SPARSE),
    _nested("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 3, 400_000, SPARSE),
    _nested("flat_ppo_dense", "flat credit, dense", "flat_ppo", 3, 400_000, DENSE),
    _nested("ppo_dense", "PPO, dense", "ppo", 2, MILLION, DENSE),
    _nested("a2c_dense", "A2C, dense", "a2c", 3, MILLION, DENSE),
    _nested("dqn_dense", "DQN, dense", "dqn", 2, MILLION, DENSE),
    _nested("recurrent_ppo_dense", "RecurrentPPO, dense", "recurrent_ppo", 2, MILLION, DENSE),
)
MAZE = NESTED + tuple(row for structure in ("perfect", "rooms", "open") for row in _structure(structure))
SUITES: dict[str, tuple[Experiment, ...]] = {"maze": MAZE}
