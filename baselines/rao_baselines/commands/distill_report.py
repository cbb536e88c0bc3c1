"""`rao distill-report`: what a run's self-distillation did, as a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.errors import UserError

NAME = "distill-report"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that was trained with --distil.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, its pictures and report.json.", show_default="RUN/report")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="ENV", help="Score there, instead of on the family's sizes and members; may be given often."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds that are scored, at most, evenly spaced.")] = 6,
    episodes: Annotated[int, typer.Option(help="Fixed seeds of each score.")] = 100,
    new_task: Annotated[
        str | None, typer.Option(metavar="ENV", help="What is learned anew.", show_default="another member of the family, or size")
    ] = None,
    learn_rounds: Annotated[int, typer.Option(help="Rounds whose policies learn the new task, at most; 0 leaves it out.")] = 3,
    learn_steps: Annotated[int, typer.Option(help="Environment steps that each of them may take.")] = 20_000,
    threshold: Annotated[float, typer.Option(help="Success to be reached on the new task.")] = 0.8,
    states: Annotated[int, typer.Option(help="Points of the map of decisive states; 0 leaves it out.")] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was measured as JSON.")] = False,
) -> None:
    """Measure a run with self-distillation round by round and write a report: one HTML file with all pictures in it.

    Zero-shot success on unseen sizes and on other members of the family, steps to a threshold on a new task, size of the knowledge, what
    it reads, its skills, and a map (t-SNE) of the states that decide.

    [bold]Examples[/bold]

      rao train recursive_ppo RAO/Maze-10x10 --distil && rao distill-report runs/Maze-10x10-v0/recursive_ppo/0

      rao distill-report runs/Maze-20x20-v0/recursive_ppo/0 --task RAO/Maze-40x40 --new-task "RAO/Maze-20x20?structure=rooms"
    """
    from rao_baselines.distill_measure import Options, Run, measure
    from rao_baselines.distill_report import write_report
    from rao_baselines.runs import check_folder

    for name, value, low in (
        ("rounds", rounds, 1),
        ("episodes", episodes, 2),
        ("learn-rounds", learn_rounds, 0),
        ("learn-steps", learn_steps, 1),
    ):
        if value < low:
            raise UserError(f"--{name} must be at least {low}, got {value}")
    if not 0 < threshold <= 1:
        raise UserError(f"--threshold must lie in (0, 1], got {threshold}")
    if states and states < 10:
        raise UserError(f"--states must be at least 10, or 0 for no map, got {states}")
    folder = run / "report" if out is None else out
    found = Run.read(run)
    check_folder(folder)
    options = Options(rounds, episodes, tuple(tasks or ()), new_task, learn_rounds, learn_steps, threshold, states)
    with ui.progress_bars(not as_json) as bars:
        bar = bars.add_task("measuring", total=None, note="")
        measured = measure(found, options, lambda text: bars.update(bar, description=text))
    written = write_report(found, measured, folder)
    if as_json:
        ui.print_json(measured)
        return
    first, last = measured["zero_shot"][0], measured["zero_shot"][-1]
    kinds = {"own": "trained on", "size": "unseen size", "member": "unseen member"}
    rows = [
        (task["name"], kinds[task["kind"]], *(_success(point["scores"][task["name"]]) for point in (first, last)))
        for task in measured["tasks"]
    ]
    ui.print_table(f"{found.path}: zero-shot, sampled", ("task", "", f"round {first['round']}", f"round {last['round']}"), rows)
    ui.say(f"wrote {written}")


def _success(scores: dict[str, Any]) -> str:
    return ui.interval(scores["summary"]["return" if scores["success"] is None else "success"], 2)
