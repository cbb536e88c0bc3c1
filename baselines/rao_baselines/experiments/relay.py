"""Relays: what each mode of state transfer, and a memory, can pass between frames (MISSION A3, A11)."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Suite, Sweep

MEMORY = 4
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("nothing", {}),
    "summary": ("summary", {"state_transfer": "summary"}),
    "hidden": ("hidden", {"state_transfer": "hidden"}),
    "attention": ("attention", {"state_transfer": "attention"}),
    "memory": (f"a memory of {MEMORY} slots", {"state_transfer_kwargs.memory": MEMORY}),
}
"""What is passed on: its label, and settings."""
DIRECTIONS = ("down", "up", "siblings")


def _row(mode: str, direction: str) -> Experiment:
    label, overrides = MODES[mode]
    return Experiment(f"{mode}_{direction}", label, direction, "recursive_ppo", f"RAO/Relay-{direction}-v0", 3, 80_000, overrides)


RELAY = Suite(
    "Relays: codes of three digits that only another frame sees, by what is passed between frames.",
    tuple(_row(mode, direction) for mode in MODES for direction in DIRECTIONS),
    {direction: f"Relay-{direction}: what is passed between frames" for direction in DIRECTIONS},
    sweeps=(
        Sweep(
            "relays",
            "Relays of three digits by what is passed between frames: success on fixed seeds (actions sampled)",
            "who sees the code",
            {label: {direction: f"{mode}_{direction}" for direction in DIRECTIONS} for mode, (label, _) in MODES.items()},
        ),
    ),
    prefix="relay",
)
