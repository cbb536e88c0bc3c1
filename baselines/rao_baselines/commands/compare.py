"""`rao compare`: groups of runs side by side, over their seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.errors import UserError

NAME = "compare"


def command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Run folders, result files, or folders of them.", show_default=False)
    ],
    threshold: Annotated[
        float | None,
        typer.Option(help="Score whose first reaching is timed.", show_default="the best monolithic agent's final score"),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Time the greedy curve instead of the sampled one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Compare runs: mean and interquartile mean over seeds with 95 % bootstrap intervals, and steps to a threshold.

    [bold]Examples[/bold]

      rao compare runs/Maze-10x10-v0

      rao compare runs/Maze-20x20-v0/recursive_ppo runs/Maze-20x20-v0/ppo --threshold 0.9

      rao compare baselines/results/maze/runs --json
    """
    from rao_baselines.comparing import compare, find_results

    if not runs:
        raise UserError("name at least one run; for instance rao compare runs")
    if threshold is not None and not math.isfinite(threshold):
        raise UserError(f"--threshold must be a finite number, got {threshold}")
    comparison = compare(find_results(runs), threshold, "greedy" if greedy else "sampled")
    if as_json:
        ui.print_json(comparison)
    else:
        show(comparison)


def show(comparison: dict[str, Any]) -> None:
    """One table per environment, the best first."""
    mode = comparison["mode"]
    for env in dict.fromkeys(row["environment"] for row in comparison["rows"]):
        rows = sorted((r for r in comparison["rows"] if r["environment"] == env), key=lambda r: -r[mode]["iqm"]["value"])
        measure = rows[0]["measure"]
        ui.print_table(
            f"{env}: {measure} over seeds, with 95 % intervals",
            ("agent", "seeds", "steps", "greedy IQM", "sampled IQM", "sampled mean", f"steps to {rows[0]['threshold']:.3g}", "steps/s"),
            [
                (
                    row["name"],
                    str(row["runs"]),
                    ui.thousands(row["steps"]),
                    ui.interval(row["greedy"]["iqm"]),
                    ui.interval(row["sampled"]["iqm"]),
                    ui.interval(row["sampled"]["mean"]),
                    _steps(row),
                    f"{row['steps_per_second']:,.0f}",
                )
                for row in rows
            ],
        )
        ui.out().print()


def _steps(row: dict[str, Any]) -> str:
    if row["steps_to_threshold"] is None:
        return f"{row['reached']} of {row['runs']} reach it"
    return ui.thousands(row["steps_to_threshold"]["value"])
