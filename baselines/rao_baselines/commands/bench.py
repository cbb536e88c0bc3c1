"""`rao bench`: the published measurements, by one command each; what exists already is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from rao_baselines import ui
from rao_baselines.commands import measure
from rao_baselines.commands.measure import JsonOption, write_tables_here
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.experiments import SUITES
from rao_baselines.places import images_folder, models_folder, results_folder, source_root
from rao_baselines.pool import Engine, Event, stop_requests

app = typer.Typer(rich_markup_mode="rich", invoke_without_command=True)
JobsOption = Annotated[
    int | None, typer.Option(help="Training processes at a time; one core each.", show_default="2, or the Ray cluster's CPUs")
]


@app.callback()
def everything(context: typer.Context) -> None:
    """Measure speed and run the experiments behind the published numbers. Without a subcommand: all of it.

    [bold]Examples[/bold]

      rao bench speed

      rao bench maze --jobs 2

      rao bench maze recursive_ppo ppo_dense --scale 0.05 --out /tmp/trial

      rao bench maze --ray --address auto
    """
    if context.invoked_subcommand is None:
        run_all_of_it()


@app.command("all")
def run_all_of_it(
    jobs: Annotated[int, typer.Option(help="Training processes at a time.")] = 2,
) -> None:
    """Everything: speed, delegation, then all experiments (many hours; Ctrl-C saves, the same command goes on)."""
    measure.speed()
    measure.delegation()
    for name in SUITES:
        run_experiments(name, jobs=jobs)


def run_experiments(
    suite_name: str,
    only: Sequence[str] = (),
    *,
    jobs: int | None = None,
    scale: float = 1.0,
    episodes: int = 500,
    out: Path | None = None,
    work: Path | None = None,
    export: bool = False,
    dry: bool = False,
    as_json: bool = False,
    quiet: bool = False,
    ray: bool = False,
    address: str | None = None,
) -> None:
    """What the commands below do, one per suite of experiments; `quiet` says nothing but what has failed."""
    from rao_baselines import suite

    engine = _engine(ray, address)
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}")
    if not 0 < scale <= 1:
        raise UserError(f"--scale must lie in (0, 1], got {scale}")
    if scale != 1 and out is None:
        raise UserError("shortened runs are no results: name another folder with --out (and --work)")
    chosen = SUITES[suite_name]
    folder = out or results_folder() / suite_name
    work = work or Path("runs/bench") / suite_name
    rows = suite.choose(chosen.rows, only)
    if dry:
        _list_runs(rows, folder, as_json)
        return
    with ui.progress_bars(not (as_json or quiet)) as bars, stop_requests() as asked:
        board = _Board(bars)
        outcome = suite.run_suite(
            rows,
            out=folder,
            work=work,
            jobs=jobs,
            scale=scale,
            episodes=episodes,
            engine=engine,
            on_start=board.start,
            on_event=board.note,
            should_stop=asked,
        )
    for name, reason in board.failures.items():
        ui.say(f"[bold red]failed[/bold red] {name}: {reason}")
    if outcome["stopped"] or (outcome["waiting"] and not outcome["failed"]):
        raise StoppedError(f"stopped; {', '.join(outcome['stopped']) or 'nothing'} saved under {work}. The same command goes on")
    summary = suite.aggregate(chosen.rows, folder)
    written = suite.draw(chosen, folder, images_folder() if out is None else folder)
    if out is None:
        written += write_tables_here()
    if export:
        suffix = "" if suite_name == "maze" else f"_{suite_name}"
        written += suite.export_models(rows, folder, work, models_folder() if out is None else folder / "models", suffix)
    if as_json:
        ui.print_json({"runs": outcome, "summary": summary})
    elif not quiet:
        show(summary)
        for path in [folder / "summary.json", *written]:
            ui.say(f"wrote {path}")
    if outcome["failed"]:
        raise typer.Exit(1)


def _engine(ray: bool, address: str | None) -> Engine | None:
    """What trains: None for processes of this machine."""
    ui.check_ray(ray, address)
    if not ray:
        return None
    from rao_baselines.ray_pool import RayEngine

    return RayEngine(address)


@app.command("table")
def table(
    jobs: JobsOption = None,
    scale: Annotated[float, typer.Option(help="Fraction of every run's steps, for a trial.")] = 1.0,
    episodes: Annotated[int, typer.Option(help="Fixed seeds of the final scores.")] = 500,
    out: Annotated[Path | None, typer.Option(help="Folder with a folder of results per suite.", show_default="baselines/results")] = None,
    work: Annotated[Path | None, typer.Option(help="Folder of the runs themselves, a folder per suite.", show_default="runs/bench")] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Run nothing: write and draw what the kept results say.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only list what would run.")] = False,
    ray: ui.RayOption = False,
    address: ui.AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """The source's table beside ours: mazes, algebra, long sequences and dialogues, and where recursion does not help.

    Runs what is missing of these suites (many hours; Ctrl-C saves, the same command goes on), then writes the tables and draws them.
    """
    from rao_baselines import headline_table
    from rao_baselines.experiments.table import SUITES_OF_THE_TABLE

    results, images = (results_folder(), images_folder()) if out is None else (out, out)
    if dry and as_json:
        ui.print_json({name: _planned(SUITES[name].rows, results / name) for name in SUITES_OF_THE_TABLE})
        return
    failed = False
    for name in () if kept else SUITES_OF_THE_TABLE:
        try:
            run_experiments(
                name,
                jobs=jobs,
                scale=scale,
                episodes=episodes,
                out=out / name if out else None,
                work=(work or Path("runs/bench")) / name,
                dry=dry,
                quiet=as_json,
                ray=ray,
                address=address,
            )
        except typer.Exit:  # a run has failed, and was named; the other suites have results of their own
            failed = True
    if dry:
        return
    written = headline_table.draw(results, images) + (write_tables_here() if out is None else [])
    made = {name: make(results) for name, make in headline_table.TABLES.items()}
    if as_json:
        ui.print_json({name: _records(rows) for name, rows in made.items()})
    else:
        for name, (heading, *rows) in made.items():
            ui.print_table(name, tuple(heading), [tuple(map(ui.plain_cell, row)) for row in rows])
            ui.out().print()
        for path in written:
            ui.say(f"wrote {path}")
    if failed:
        raise typer.Exit(1)


def _records(rows: list[list[str]]) -> list[dict[str, str]]:
    """A table as one mapping per row."""
    heading, *others = rows
    return [dict(zip(heading, map(ui.plain_cell, row), strict=True)) for row in others]


@app.command("tables")
def tables() -> None:
    """Write the tables of results in README and docs from what is kept under baselines/results, running nothing.

    A document marks their places with `<!-- results NAME -->` and `<!-- end -->`. `rao bench SUITE` does it, too, when it is done.
    """
    if source_root() is None:
        raise UserError("there is no checkout here whose documents could be written")
    changed = write_tables_here()
    for path in changed:
        ui.say(f"wrote {path}")
    if not changed:
        ui.say("all tables are up to date")


def _add_command(suite_name: str, summary: str) -> None:
    """`rao bench SUITE`."""

    def command(
        only: Annotated[
            list[str] | None, typer.Argument(metavar="[NAMES]...", help="Experiments or groups to run; all of them by default.")
        ] = None,
        jobs: JobsOption = None,
        scale: Annotated[float, typer.Option(help="Fraction of every run's steps, for a trial.")] = 1.0,
        episodes: Annotated[int, typer.Option(help="Fixed seeds of the final scores.")] = 500,
        out: Annotated[Path | None, typer.Option(help="Folder of the results.", show_default=f"baselines/results/{suite_name}")] = None,
        work: Annotated[
            Path | None,
            typer.Option(help="Folder of the runs themselves, with models and checkpoints.", show_default=f"runs/bench/{suite_name}"),
        ] = None,
        export: Annotated[
            bool, typer.Option("--export-models", help="Also write the median seed's policy of each experiment to baselines/models.")
        ] = False,
        dry: Annotated[bool, typer.Option("--dry-run", help="Only list what would run.")] = False,
        ray: ui.RayOption = False,
        address: ui.AddressOption = None,
        as_json: JsonOption = False,
    ) -> None:
        run_experiments(
            suite_name,
            only or (),
            jobs=jobs,
            scale=scale,
            episodes=episodes,
            out=out,
            work=work,
            export=export,
            dry=dry,
            as_json=as_json,
            ray=ray,
            address=address,
        )

    command.__doc__ = f"""{summary}

    Runs that have a result are skipped, a run that fails does not stop the others, Ctrl-C saves. Then everything is summed up and
    the learning curves are drawn.
    """
    # The annotations are text that names this function's own variables.
    command.__annotations__ = get_type_hints(command, localns={"suite_name": suite_name}, include_extras=True)
    app.command(suite_name)(command)


for _name, _command in measure.COMMANDS.items():
    app.command(_name)(_command)
for _name, _suite in SUITES.items():
    _add_command(_name, _suite.summary)


def _planned(rows: Sequence[Any], folder: Path) -> list[dict[str, Any]]:
    """Every run of `rows`, and whether its result is kept in `folder`."""
    from rao_baselines.suite import result_path

    return [
        {"experiment": row.name, "group": row.group, "seed": seed, "steps": row.steps, "finished": result_path(folder, row, seed).is_file()}
        for row in rows
        for seed in range(row.seeds)
    ]


def _list_runs(rows: Any, folder: Path, as_json: bool) -> None:
    planned = _planned(rows, folder)
    if as_json:
        ui.print_json(planned)
        return
    table = [
        (
            row.name,
            row.group,
            str(row.seeds),
            ui.thousands(row.steps),
            f"{sum(p['finished'] for p in planned if p['experiment'] == row.name)}",
        )
        for row in rows
    ]
    ui.print_table("Experiments", ("name", "group", "seeds", "steps each", "finished"), table)


class _Board:
    """The bars: one for all runs, one for each that is under way."""

    def __init__(self, bars: Any) -> None:
        self.bars = bars
        self.all: Any = None
        self.tasks: dict[str, Any] = {}
        self.failures: dict[str, str] = {}

    def start(self, todo: list[Any]) -> None:
        self.all = self.bars.add_task("all runs", total=sum(spec.steps for _, spec in todo), note=f"{len(todo)} to do")
        self.total = len(todo)
        self.finished = 0
        self.steps: dict[str, int] = {}

    def note(self, run: Any, event: Event) -> None:
        row, spec = run
        name = f"{row.name}/{spec.seed}"
        if event.kind == "start":
            self.tasks[name] = self.bars.add_task(name, total=spec.steps, note="")
        elif event.kind == "progress":
            self.bars.update(self.tasks[name], completed=event.data["steps"], note=ui.point_note(event.data["point"]))
            self.steps[name] = min(event.data["steps"], spec.steps)
        else:
            self.bars.remove_task(self.tasks.pop(name))
            self.finished += 1
            if event.kind == "failed":
                self.failures[name] = event.data["error"]
            self.steps[name] = spec.steps
        failed = f", {len(self.failures)} failed" if self.failures else ""
        self.bars.update(self.all, completed=sum(self.steps.values()), note=f"{self.finished} of {self.total} runs{failed}")


def show(summary: dict[str, Any]) -> None:
    """One table per group of experiments."""
    for group, comparison in summary["groups"].items():
        members = {name: e for name, e in summary["experiments"].items() if e["group"] == group}
        sizes = list(dict.fromkeys(size for e in members.values() for size in e["scores"]))
        reached = comparison.get("steps_to_threshold", {})
        rows = []
        for name, experiment in members.items():
            cells = [
                ui.interval(experiment["scores"].get(size, {}).get(mode, {}).get("iqm")) if size in experiment["scores"] else "-"
                for size in sizes
                for mode in (("greedy", "sampled") if size == sizes[0] else ("sampled",))
            ]
            median = reached.get(name, {}).get("median")
            rows.append(
                (experiment["label"], str(len(experiment["seeds"])), ui.thousands(experiment["steps"]), *cells, ui.thousands(median))
            )
        columns = [f"{sizes[0]} greedy", f"{sizes[0]} sampled", *(f"{size} sampled" for size in sizes[1:])]
        ui.print_table(f"{group}: interquartile means over seeds", ("agent", "seeds", "steps", *columns, "steps to best monolithic"), rows)
        ui.out().print()
