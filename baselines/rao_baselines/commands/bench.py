"""`rao bench`: the published measurements, by one command each; what exists already is not run again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from rao_baselines import ui
from rao_baselines.errors import StoppedError, UserError, did_you_mean
from rao_baselines.experiments import SUITES
from rao_baselines.places import images_folder, models_folder, results_folder, source_root
from rao_baselines.pool import Engine, Event, stop_requests

app = typer.Typer(rich_markup_mode="rich", invoke_without_command=True)
JobsOption = Annotated[
    int | None, typer.Option(help="Training processes at a time; one core each.", show_default="2, or the Ray cluster's CPUs")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


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
    speed()
    delegation()
    for name in SUITES:
        run_experiments(name, jobs=jobs)


@app.command("speed")
def speed(
    duration: Annotated[float, typer.Option(help="Seconds per measurement.")] = 5.0,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out training and compiling from an empty cache.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/speed.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """Throughput by Gymnasium's own functions, resets included, side by side with MiniGrid and CartPole."""
    from rao_baselines import speed as measuring
    from rao_baselines.runs import check_file, write_json

    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
    path = out or results_folder() / "speed.json"
    check_file(path)
    values: dict[str, float] = {}
    units: dict[str, str] = {}
    todo = list(measuring.cases(quick=quick))
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("speed", total=len(todo), note="")
        for case in todo:
            bars.update(task, note=case.name)
            values[case.name], units[case.name] = case.run(duration), case.unit
            bars.advance(task)
    result = measuring.report(values, units, duration)
    write_json(path, result)
    if as_json:
        ui.print_json(result)
        return
    ui.print_table(
        f"Speed on {result['hardware']['processor']}, one core",
        ("measured", "value", "unit"),
        [(name, f"{value:,.0f}" if value >= 100 else f"{value:.3g}", units[name]) for name, value in values.items()],
    )
    ui.out().print()
    ui.print_table("", ("compared", "ratio"), [(name, f"{value:.2f}") for name, value in result["ratios"].items()])
    ui.say(f"\nwrote {path}")


@app.command("overhead")
def overhead(
    duration: Annotated[float, typer.Option(help="Seconds per measurement.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/overhead.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """What each mode of state transfer costs in training and in acting, on Maze-20x20."""
    from rao_baselines import overhead as measuring
    from rao_baselines.runs import check_file, write_json

    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
    path = out or results_folder() / "overhead.json"
    check_file(path)
    values: dict[str, measuring.Speed] = {}
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("overhead", total=len(measuring.MODES), note="")
        for name in measuring.MODES:
            bars.update(task, note=name)
            values[name] = measuring.measure(name, duration)
            bars.advance(task)
    result = measuring.report(values, duration)
    write_json(path, result)
    if as_json:
        ui.print_json(result)
        return
    ui.print_table(
        f"State transfer on {result['hardware']['processor']}, one core",
        ("mode", "training, steps/s", "time", "acting, steps/s", "time"),
        [
            (name, f"{row['training']:,.0f}", f"x {row['training_time']:.2f}", f"{row['acting']:,.0f}", f"x {row['acting_time']:.2f}")
            for name, row in result["modes"].items()
        ],
    )
    ui.say(f"\nwrote {path}")


@app.command("profile")
def profile(
    duration: Annotated[float, typer.Option(help="Seconds per algorithm.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/profile.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """Where training's time goes: RecursivePPO beside MaskablePPO, same network and environments, one core."""
    from rao_baselines import profile as measuring
    from rao_baselines.runs import check_file, write_json

    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
    path = out or results_folder() / "profile.json"
    check_file(path)
    values: dict[str, dict[str, Any]] = {}
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("profile", total=len(measuring.ALGORITHMS), note="")
        for name in measuring.ALGORITHMS:
            bars.update(task, note=name)
            values[name] = measuring.measure(name, duration)
            bars.advance(task)
    result = measuring.report(values, duration)
    write_json(path, result)
    written = [path, *(_write_tables() if out is None else [])]
    if as_json:
        ui.print_json(result)
        return
    heading, *rows = measuring.table(result)
    ui.print_table(f"Training on {measuring.ENV_ID}", tuple(heading), [tuple(map(_plain, row)) for row in rows])
    for target in written:
        ui.say(f"wrote {target}")


@app.command("parallel")
def parallel(
    only: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TREES]...",
            help="Kinds of trees (longseq-1k, longseq-10k, nested-320, algebra, dialogue, ...; a wrong one lists all); by default all of "
            "them and, with Ray, steps made costly.",
        ),
    ] = None,
    ray: Annotated[bool, typer.Option("--ray/--no-ray", help="Also on a Ray cluster, with one worker and with two.")] = True,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/parallel.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """Wall-clock of whole recursion trees: step by step, in waves, and as sub-trees on a Ray cluster. Trains nothing.

    What was measured of other kinds of trees before stays in the file. Figures go beside the documentation, or beside --out.
    """
    from rao_agents.distributed.cluster import import_ray
    from rao_baselines import parallel_speed as measuring
    from rao_baselines import parallel_tables
    from rao_baselines.runs import check_file, read_json, write_json

    for name in only or ():
        if name not in measuring.SUBJECTS:
            raise UserError(f"there are no trees called {name!r}.{did_you_mean(name, measuring.SUBJECTS)}")
    path = out or results_folder() / "parallel.json"
    check_file(path)
    kept: Any = read_json(path) if path.is_file() else parallel_tables.NOTHING
    if not isinstance(kept, dict) or not parallel_tables.NOTHING.keys() <= kept.keys():
        raise UserError(f"{path} holds something else than results of rao bench parallel: name another file with --out")
    if ray:
        try:
            import_ray()  # before anything is measured
        except ImportError as error:
            raise UserError(f"{error}; or measure without, with --no-ray") from error
    chosen = {name: measuring.SUBJECTS[name] for name in only or measuring.SUBJECTS}
    with_leaves = ray and not only
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("measurements", total=measuring.count(chosen, ray=ray, leaves=with_leaves), note="")

        def tick(what: str) -> None:
            bars.update(task, note=what, advance=1)

        subjects = kept["subjects"] | measuring.measure(chosen, ray=ray, tick=tick)
        leaves = measuring.measure_leaves(tick=tick) if with_leaves else kept["leaves"]
    result = measuring.report(subjects, leaves)
    write_json(path, result)
    written = [path, *parallel_tables.draw(result, images_folder() if out is None else path.parent)]
    written += _write_tables() if out is None else []
    if as_json:
        ui.print_json(result)
        return
    for name, make in parallel_tables.TABLES.items():
        heading, *rows = make(result)
        if rows:
            ui.print_table(name, tuple(heading), [tuple(row) for row in rows])
            ui.out().print()
    for target in written:
        ui.say(f"wrote {target}")


@app.command("distillation-speed")
def distillation_speed(
    duration: Annotated[float, typer.Option(help="Seconds per measurement; several rounds should fit in.")] = 30.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/distillation_speed.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """What self-distillation costs: training steps a second without, in another process, and in between."""
    from rao_baselines import speed as measuring
    from rao_baselines.provenance import provenance
    from rao_baselines.runs import check_file, write_json

    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
    path = out or results_folder() / "distillation_speed.json"
    check_file(path)
    values: dict[str, float] = {}
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("speed", total=len(measuring.DISTILLATIONS), note="")
        for case in measuring.distillation_cases():
            bars.update(task, note=case.name)
            values[case.name] = case.run(duration)
            bars.advance(task)
    shares = {name: value / values["without"] for name, value in values.items()}
    result = {"steps_per_second": values, "shares": shares, "duration": duration, **provenance(1)}
    write_json(path, result)
    if as_json:
        ui.print_json(result)
        return
    rows = [(name, f"{value:,.0f}", f"{shares[name]:.0%}") for name, value in values.items()]
    ui.print_table(f"RecursivePPO on {measuring.OURS}", ("self-distillation", "steps/s", "of without"), rows)
    ui.say(f"\nwrote {path}")


@app.command("rollouts")
def rollouts(
    env: Annotated[str, typer.Argument(metavar="[ENV]", help="Environment id.")] = "RAO/Maze-10x10",
    envs: Annotated[int, typer.Option(help="Environments side by side.")] = 64,
    workers: Annotated[int, typer.Option(help="Ray processes that share them; one core each.")] = 2,
    duration: Annotated[float, typer.Option(help="Seconds per measurement.")] = 5.0,
    address: ui.AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Steps a second in one process and over Ray workers: whether these pay for this environment, here."""
    from rao_baselines import rollouts as measuring
    from rao_baselines.environments import is_recursive, resolve_id

    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
    if not 1 <= workers <= envs:
        raise UserError(f"--workers must lie in [1, {envs}], the number of environments, got {workers}")
    ui.check_ray(True, address)
    env_id = resolve_id(env)
    if not is_recursive(env_id):
        raise UserError(f"Ray workers share this suite's environments; {env_id} is none")
    try:
        here = measuring.measure(env_id, envs, duration)
        there = measuring.measure(env_id, envs, duration, ray_workers=workers, ray_address=address)
    except ValueError as error:
        raise UserError(str(error)) from error
    result = {"env_id": env_id, "envs": envs, "workers": workers, "steps_per_second": {"here": here, "ray": there}, "ratio": there / here}
    if as_json:
        ui.print_json(result)
        return
    rows = [("in one process", f"{here:,.0f}", "1.00"), (f"{workers} Ray workers", f"{there:,.0f}", f"{there / here:.2f}")]
    ui.print_table(f"{env_id}, {envs} environments", ("", "steps/s", "ratio"), rows)


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
        written += _write_tables()
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
    written = headline_table.draw(results, images) + (_write_tables() if out is None else [])
    made = {name: make(results) for name, make in headline_table.TABLES.items()}
    if as_json:
        ui.print_json({name: _records(rows) for name, rows in made.items()})
    else:
        for name, (heading, *rows) in made.items():
            ui.print_table(name, tuple(heading), [tuple(map(_plain, row)) for row in rows])
            ui.out().print()
        for path in written:
            ui.say(f"wrote {path}")
    if failed:
        raise typer.Exit(1)


@app.command("delegation")
def delegation(
    only: Annotated[list[str] | None, typer.Argument(metavar="[FAMILIES]...", help="Families; all of them by default.")] = None,
    episodes: Annotated[int, typer.Option(help="Fixed seeds per size, for the longest ones at most 20.")] = 100,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/delegation.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """When the shipped models delegate: rate, frames and depth by the size of the task, and rate by level. Trains nothing.

    What was measured of other families before stays in the file. Figures go beside the documentation, or beside --out.
    """
    from rao_baselines import delegation as watching
    from rao_baselines.runs import check_file, read_json, write_json

    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {episodes}")
    for name in only or ():
        if name not in watching.SUBJECTS:
            raise UserError(f"there is no family {name!r}.{did_you_mean(name, watching.SUBJECTS)}")
    path = out or results_folder() / "delegation.json"
    check_file(path)
    kept: dict[str, Any] = read_json(path) if path.is_file() else {"families": {}}
    chosen = only or list(watching.SUBJECTS)
    with ui.progress_bars(not as_json) as bars:
        task = bars.add_task("sizes", total=sum(len(watching.SUBJECTS[name].tasks) for name in chosen), note="")
        for name in chosen:
            subject = watching.SUBJECTS[name]
            found = {}
            for size in subject.tasks:
                bars.update(task, note=f"{subject.label}, {size}")
                found[size] = watching.watch(subject, size, episodes)
                bars.advance(task)
            kept["families"][name] = found
            write_json(path, kept | watching.origin())
    written = [path, *watching.draw(kept, images_folder() if out is None else path.parent)]
    written += _write_tables() if out is None else []
    if as_json:
        ui.print_json(read_json(path))
        return
    heading, *rows = watching.table(kept)
    ui.print_table("Delegation, greedy / sampled", tuple(heading), [tuple(row) for row in rows])
    for target in written:
        ui.say(f"wrote {target}")


def _plain(cell: str) -> str:
    """A cell of a Markdown table as a terminal shows it."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).replace("**", "")


def _records(rows: list[list[str]]) -> list[dict[str, str]]:
    """A table as one mapping per row."""
    heading, *others = rows
    return [dict(zip(heading, map(_plain, row), strict=True)) for row in others]


def _write_tables() -> list[Path]:
    from rao_baselines.tables import documents, write_tables

    root = source_root()
    return write_tables(documents(root), results_folder()) if root else []


@app.command("tables")
def tables() -> None:
    """Write the tables of results in README and docs from what is kept under baselines/results, running nothing.

    A document marks their places with `<!-- results NAME -->` and `<!-- end -->`. `rao bench SUITE` does it, too, when it is done.
    """
    if source_root() is None:
        raise UserError("there is no checkout here whose documents could be written")
    changed = _write_tables()
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
