"""`rao verify`: check submissions to the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui

NAME = "verify"


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Folders of submissions.", show_default=False)],
    rerun: Annotated[bool, typer.Option("--rerun", help="Also let the ONNX policies act, and compare (needs onnxruntime).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check submissions: recompute the seeds, replay every action, recompute every number. Nothing in them is executed.

    [bold]Examples[/bold]

      rao verify leaderboard/submissions/my-agent

      rao verify leaderboard/submissions/* --rerun --json

    `python -m rao_leaderboard verify` does the same with nothing installed but the environments. The exit code is 0 only if everything
    holds.
    """
    from rao_baselines.errors import UserError
    from rao_leaderboard.__main__ import describe, describe_rows
    from rao_leaderboard.reading import quoted
    from rao_leaderboard.verify import Report, verify

    reports: list[Report] = []
    with ui.progress_bars(not as_json) as bars:
        for path in paths:
            task = bars.add_task(quoted(path.name), total=None, note="")

            def progress(finished: int, total: int, task: Any = task) -> None:
                bars.update(task, completed=finished, total=total)

            try:
                reports.append(verify(path, rerun=rerun, progress=progress))
            except ImportError as error:
                raise UserError(str(error)) from error
            bars.remove_task(task)
    if as_json:
        ui.print_json([report.as_dict() for report in reports])
    else:
        for report in reports:
            ui.out().print(describe(report) + describe_rows(report), end="", markup=False, highlight=False, soft_wrap=True)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
