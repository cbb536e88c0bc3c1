"""`rao plot`: learning curves of runs as SVG and PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rao_baselines import ui
from rao_baselines.errors import UserError

NAME = "plot"


def command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Run folders, result files, or folders of them.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Figure to write; .png and .svg are both made.")] = Path("curves"),
    greedy: Annotated[bool, typer.Option("--greedy", help="Greedy scores instead of sampled ones.")] = False,
    title: Annotated[str | None, typer.Option(help="Above the figure.", show_default=False)] = None,
) -> None:
    """Draw learning curves: interquartile mean over seeds, with 95 % bootstrap bands.

    [bold]Examples[/bold]

      rao plot runs/Maze-10x10-v0 --out maze-10x10

      rao plot runs/Maze-20x20-v0/recursive_ppo runs/Maze-20x20-v0/ppo --greedy
    """
    from rao_baselines.comparing import find_results, group_results, measure
    from rao_baselines.figures import learning_curves
    from rao_baselines.runs import check_folder

    check_folder(out.parent)
    if out.suffix in (".png", ".svg"):
        out = out.with_suffix("")
    groups = group_results(find_results(runs))
    environments = {env for _, env in groups}
    if len({measure(members) for members in groups.values()}) > 1:
        raise UserError("some of these runs are scored by success, others by return: draw them apart")
    key = measure(next(iter(groups.values())))
    labels = {group: group[0] if len(environments) == 1 else f"{group[0]}, {group[1]}" for group in groups}
    series = {labels[group]: [member["curve"] for member in members] for group, members in groups.items()}
    name = title or ", ".join(sorted(environments))
    for path in learning_curves(series, out, title=name, mode="greedy" if greedy else "sampled", key=key):
        ui.say(f"wrote {path}")
