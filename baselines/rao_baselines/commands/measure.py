"""`rao bench speed`, `overhead`, `profile`, ...: what is measured of code and shipped models, without training any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.errors import UserError, did_you_mean
from rao_baselines.places import images_folder, results_folder, source_root

JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def speed(
    duration: Annotated[float, typer.Option(help="Seconds per measurement.")] = 5.0,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out training and compiling from an empty cache.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/speed.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """Throughput by Gymnasium's own functions, resets included, side by side with MiniGrid and CartPole."""
    from rao_baselines import speed as measuring
    from rao_baselines.runs import check_file, write_json

    _check_duration(duration)
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


def overhead(
    duration: Annotated[float, typer.Option(help="Seconds per measurement.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/overhead.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """What each mode of state transfer costs in training and in acting, on Maze-20x20."""
    from rao_baselines import overhead as measuring
    from rao_baselines.runs import check_file, write_json

    _check_duration(duration)
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


def profile(
    duration: Annotated[float, typer.Option(help="Seconds per algorithm.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/profile.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """Where training's time goes: RecursivePPO beside MaskablePPO, same network and environments, one core."""
    from rao_baselines import profile as measuring
    from rao_baselines.runs import check_file, write_json

    _check_duration(duration)
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
    written = [path, *(write_tables_here() if out is None else [])]
    if as_json:
        ui.print_json(result)
        return
    heading, *rows = measuring.table(result)
    ui.print_table(f"Training on {measuring.ENV_ID}", tuple(heading), [tuple(map(ui.plain_cell, row)) for row in rows])
    for target in written:
        ui.say(f"wrote {target}")


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
    written += write_tables_here() if out is None else []
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


def distillation_speed(
    duration: Annotated[float, typer.Option(help="Seconds per measurement; several rounds should fit in.")] = 30.0,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="baselines/results/distillation_speed.json")] = None,
    as_json: JsonOption = False,
) -> None:
    """What self-distillation costs: training steps a second without, in another process, and in between."""
    from rao_baselines import speed as measuring
    from rao_baselines.provenance import provenance
    from rao_baselines.runs import check_file, write_json

    _check_duration(duration)
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

    _check_duration(duration)
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
    written += write_tables_here() if out is None else []
    if as_json:
        ui.print_json(read_json(path))
        return
    heading, *rows = watching.table(kept)
    ui.print_table("Delegation, greedy / sampled", tuple(heading), [tuple(row) for row in rows])
    for target in written:
        ui.say(f"wrote {target}")


COMMANDS: dict[str, Callable[..., None]] = {
    "speed": speed,
    "overhead": overhead,
    "profile": profile,
    "parallel": parallel,
    "distillation-speed": distillation_speed,
    "rollouts": rollouts,
    "delegation": delegation,
}
"""By the name of the command under `rao bench`."""


def write_tables_here() -> list[Path]:
    """Bring the tables of this checkout's documents up to date; returns those that have changed. Elsewhere there is nothing to do."""
    from rao_baselines.tables import documents, write_tables

    root = source_root()
    return write_tables(documents(root), results_folder()) if root else []


def _check_duration(duration: float) -> None:
    if not 0 < duration < float("inf"):
        raise UserError(f"--duration must be positive, got {duration}")
