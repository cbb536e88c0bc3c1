"""`rao tune`: search an algorithm's settings with Optuna, every trial kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import parse_assignments
from rao_baselines.errors import StoppedError
from rao_baselines.places import results_folder
from rao_baselines.pool import Event, stop_requests
from rao_baselines.runs import slug

NAME = "tune"


def command(
    algorithm: Annotated[str, typer.Argument(metavar="ALGORITHM", help="Name of an algorithm; `rao list` shows them.", show_default=False)],
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment id.", show_default=False)],
    trials: Annotated[int, typer.Option(help="How many; the first is the settings as they are.")] = 20,
    steps: Annotated[int, typer.Option(help="Environment steps of each trial.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the sampler and of every trial's training.")] = 0,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Fix a setting and leave it out of the search.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Trials at a time, each a process of its own.")] = 1,
    prune: Annotated[bool, typer.Option("--prune", help="Stop trials below the median of the others.")] = False,
    episodes: Annotated[int, typer.Option(help="Fixed seeds of a trial's score.")] = 200,
    name: Annotated[str | None, typer.Option(help="Of the study and its file.", show_default="ALGORITHM_ENV")] = None,
    out: Annotated[Path | None, typer.Option(help="File of the study.", show_default="baselines/results/tuning/NAME.json")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the study as JSON; no progress.")] = False,
) -> None:
    """Search an algorithm's settings: TPE, seeded, on tasks that the published scores do not use.

    [bold]Examples[/bold]

      rao tune recursive_ppo RAO/Maze-20x20 --trials 20 --steps 200_000 --jobs 2

      rao tune ppo RAO/Maze-20x20 --trials 20 --steps 200_000 --set dense_weight=0 --name ppo_sparse

    Ctrl-C keeps what is finished; the same command goes on, and may ask for more trials.
    """
    from rao_baselines.environments import resolve_id
    from rao_baselines.tuning import TuneSpec, tune

    row = find_algorithm(algorithm)
    env_id = resolve_id(env)
    spec = TuneSpec(row.name, env_id, trials, steps, seed, parse_assignments(assignments or []), jobs, prune, episodes)
    name = name or f"{row.name}_{slug(env_id)}"
    path = out or results_folder() / "tuning" / f"{name}.json"
    with ui.progress_bars(not as_json) as bars, stop_requests() as asked:
        board = _Board(bars, spec.trials, spec.steps)
        study = tune(spec, path, Path("runs") / "tuning" / name, board.note, asked)
        if asked():
            raise StoppedError(f"stopped after {len(study['trials'])} of {trials} trials, kept in {path}; the same command goes on")
    if as_json:
        ui.print_json(study)
        return
    show(study)
    ui.say(f"\nwrote {path}. To train with the best:\n  rao train {row.name} {env_id}{_as_options(study['best'])}")


class _Board:
    """A bar for the study, and one per trial under way."""

    def __init__(self, bars: Any, trials: int, steps: int) -> None:
        self.bars, self.steps = bars, steps
        self.all = bars.add_task("trials", total=trials, note="")
        self.tasks: dict[int, Any] = {}
        self.best = 0.0

    def note(self, number: int, event: Event) -> None:
        if event.kind == "start":
            self.tasks[number] = self.bars.add_task(f"trial {number}", total=self.steps, note="")
        elif event.kind == "progress":
            self.bars.update(self.tasks[number], completed=min(event.data["steps"], self.steps), note=ui.point_note(event.data["point"]))
        else:
            self.bars.remove_task(self.tasks.pop(number))
            self.bars.update(self.all, completed=number + 1)


def show(study: dict[str, Any]) -> None:
    """The trials, the best first."""
    complete = sorted((t for t in study["trials"] if t["state"] == "COMPLETE"), key=lambda t: -t["value"])
    rows = [
        (
            str(t["number"]),
            f"{t['value']:.3f}",
            f"{t['greedy']:.3f}",
            ", ".join(f"{k}={v}" for k, v in t["overrides"].items()) or "as in the file",
        )
        for t in complete[:10]
    ]
    others = len(study["trials"]) - len(complete)
    ui.print_table(
        f"Best of {len(study['trials'])} trials ({others} pruned or failed)",
        ("trial", "sampled", "greedy", "settings"),
        rows,
        ("settings",),
    )


def _as_options(best: dict[str, Any] | None) -> str:
    if best is None:
        return ""
    return "".join(f' --set "{key}={_text(value)}"' for key, value in best["overrides"].items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
