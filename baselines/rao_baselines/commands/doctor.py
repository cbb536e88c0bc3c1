"""`rao doctor`: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rao_baselines import ui

NAME = "doctor"
SIGNS = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "problem": "[bold red]problem[/bold red]"}


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Look at versions, devices, compiled kernels and common problems; say what to do about them.

    [bold]Examples[/bold]

      rao doctor

      rao doctor --json > doctor.json      (to go with a report of a fault)

    The exit code is 1 if there is a problem; notes are none.
    """
    from rao_baselines.doctor import examine

    findings = []
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("looking", total=None, note="")
        for finding in examine():
            bars.update(task, note=finding.subject)
            findings.append(finding)
    problems = [finding for finding in findings if finding.state == "problem"]
    if as_json:
        ui.print_json({"ok": not problems, "findings": [finding._asdict() for finding in findings]})
    else:
        rows = [(finding.subject, SIGNS[finding.state], escape(finding.text), escape(finding.cure)) for finding in findings]
        ui.print_table("", ("looked at", "", "found", "what to do"), rows, text=("", "found", "what to do"))
        ui.say(f"\n{len(problems)} problems" if problems else "\nnothing is wrong")
    if problems:
        raise typer.Exit(1)
