"""Adaptive depth and specialists: what a price on frames does to the depth used, and networks by level or role.

On algebra, where a frame may do a piece of work itself or hand it on: whatever fits two value slots can be worked out in
place, step for step as cheaply as by delegation. Modulo 2 the digits are learned soon, so that runs can be short: the question is
what is delegated, not whether arithmetic is learned.
"""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Table

MODULUS = "modulus=2"
TASKS = {f"RAO/Algebra-v0?depth={depth}&{MODULUS}": f"{depth}" for depth in (1, 2, 3, 4, 6, 8)}
TRAINED = f"RAO/Algebra-v0?depth=4&{MODULUS}"
COLUMNS = {f"depth {depth}": task for task, depth in TASKS.items()}


def _row(name: str, label: str, group: str = "price", **overrides: Any) -> Experiment:
    return Experiment(
        name,
        label,
        group,
        "recursive_ppo",
        "RAO/Algebra-v0",
        3,
        150_000,
        {"env_kwargs.depth": [1, 4], "env_kwargs.modulus": 2, **overrides},
        scored_on=TRAINED,
        transfer=tuple(task for task in TASKS if task != TRAINED),
    )


ADAPTIVE = Suite(
    "Adaptive depth: prices on frames and levels, thresholds by situation, specialists; algebra of depths 1 to 4, scored up to 8.",
    (
        _row("price_0", "no price"),
        _row("frame_0.1", "0.1 a frame", frame_price=0.1),
        _row("frame_0.3", "0.3 a frame", frame_price=0.3),
        _row("frame_0.2_late", "0.2 a frame, from 0 over half of the run", frame_price="lin_0_0.2_0.5"),
        _row("level_0.1", "0.1 a frame and level", level_price=0.1),
        _row("situation_0", "no price, threshold by situation", threshold="situation"),
        _row("situation_0.1", "0.1 a frame, threshold by situation", threshold="situation", frame_price=0.1),
        _row("softmax_0.1", "0.1 a frame, no delegation head", frame_price=0.1, delegation_head=False),
        _row("one", "one network", "specialists"),
        _row("level", "root and others", "specialists", specialists="level"),
        _row("levels", "four levels", "specialists", specialists="level", n_specialists=4),
        _row("role", "by role", "specialists", specialists="role"),
    ),
    {"price": "Algebra modulo 2, depth 4", "specialists": "Algebra modulo 2, depth 4, specialists"},
    (
        Sizes("adaptive-frames", "Algebra modulo 2", "price", TASKS, "nodes", "depth of the expression"),
        Sizes("adaptive-depth", "Algebra modulo 2", "price", TASKS, "deepest", "depth of the expression"),
        Sizes("adaptive-success", "Algebra modulo 2", "price", TASKS, axis="depth of the expression"),
        Sizes("adaptive-path", "Algebra modulo 2", "price", TASKS, "critical_path", "depth of the expression"),
        Sizes("specialists-success", "Algebra modulo 2, specialists", "specialists", TASKS, axis="depth of the expression"),
    ),
    (
        Table("success", ("price",), COLUMNS),
        Table("frames", ("price",), COLUMNS, frames=True),
        Table("paths", ("price",), COLUMNS, paths=True),
        Table("specialists", ("specialists",), COLUMNS),
    ),
    prefix="adaptive",
)
