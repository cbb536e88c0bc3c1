"""`rao solve`: put a task of your own to a recursive agent."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.config import parse_assignments
from rao_baselines.errors import UserError

NAME = "solve"
SHOWN = 40
"""Steps that are printed unless all are asked for."""


def command(
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="Environment id, such as Algebra, LongSeq, Dialogue, Maze.", show_default=False)
    ],
    expression: Annotated[str | None, typer.Option(help="Algebra, Rewrite: the expression to work out.", show_default=False)] = None,
    document: Annotated[str | None, typer.Option(help="LongSeq: the file to read.", show_default=False)] = None,
    query: Annotated[str | None, typer.Option(help="LongSeq: what is asked of it, such as count:WORD.", show_default=False)] = None,
    text: Annotated[str | None, typer.Option(help="LongSeq-nested: the brackets, as text or a file.", show_default=False)] = None,
    layout: Annotated[str | None, typer.Option(help="Maze: your own map, as a file.", show_default=False)] = None,
    ontology: Annotated[str | None, typer.Option(help="Dialogue: your own domains and databases, a file.", show_default=False)] = None,
    goals: Annotated[str | None, typer.Option(help="Dialogue: and trips to plan with them, a file.", show_default=False)] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="A run's folder, a model file, solver or random.", show_default="the shipped model that learned it, or solver"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the task, where there are several, and of sampled actions.")] = 0,
    sampled: Annotated[bool, typer.Option("--sampled", help="Draw the actions instead of taking the likeliest.")] = False,
    every_step: Annotated[bool, typer.Option("--all", help=f"Print all steps, not only the first {SHOWN}.")] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--env-arg", "-e", metavar="KEY=VALUE", help="Further keyword argument of the environment; may be given often."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Solve one task of your own, step by step, and print the recursion tree with the truth beside the answer.

    [bold]Examples[/bold]

      rao solve Algebra --expression "3*(x - 2) - d/dx(4*x + 1)"

      rao solve LongSeq --document contract.txt --query count:liability

      rao solve Maze --layout mine.txt --agent solver
    """
    from rao_baselines.solving import solve

    if not 0 <= seed < 2**63:
        raise UserError(f"--seed must lie in [0, 2**63), got {seed}")
    kwargs: dict[str, Any] = parse_assignments(assignments or [])
    given = {
        "expressions": None if expression is None else [expression],
        "document": document,
        "ontology": ontology,
        "goals": goals,
        "query": query,
        "text": text,
        "layout": layout,
    }
    kwargs |= {key: value for key, value in given.items() if value is not None}
    solution = solve(env, kwargs, agent=agent, seed=seed, greedy=not sampled)
    if as_json:
        ui.print_json(solution._asdict() | {"steps": [step._asdict() for step in solution.steps]})
        return
    console = ui.out()
    if solution.question:
        console.print(solution.question, style="bold", markup=False, soft_wrap=True)
    shown = solution.steps if every_step else solution.steps[:SHOWN]
    for step in shown:
        remark = "; ".join(step.returned)
        console.print(
            f"{step.number:5d}  {'  ' * step.depth}{step.action}" + (f"   {remark}" if remark else ""), markup=False, soft_wrap=True
        )
    if len(shown) < len(solution.steps):
        console.print(f"       ... {len(solution.steps) - len(shown):,} more steps (--all prints them)")
    colors = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and "NO_COLOR" not in os.environ
    from rao_baselines.playing import strip_colors

    sys.stdout.write("\n" + (solution.picture if colors else strip_colors(solution.picture)) + "\n\n")
    tree = solution.tree
    if solution.truth:
        console.print(f"answer {solution.answer or '-'}   truth {solution.truth}", style="bold", markup=False, soft_wrap=True)
    console.print(
        f"{'solved' if solution.success else 'not solved'} by {solution.agent}: {tree['steps']:,} steps, {tree['nodes']:,} frames, "
        f"{tree['deepest'] + 1} levels, critical path {tree['critical_path']:,}"
    )
    if not solution.success:
        raise typer.Exit(1)
