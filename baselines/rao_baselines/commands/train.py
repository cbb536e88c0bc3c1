"""`rao train`: one run, with a live learning curve; Ctrl-C saves it, --resume goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import parse_assignments
from rao_baselines.errors import StoppedError
from rao_baselines.pool import stop_requests

NAME = "train"


def command(
    algorithm: Annotated[str, typer.Argument(metavar="ALGORITHM", help="Name of an algorithm; `rao list` shows them.", show_default=False)],
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment id, such as RAO/Maze-20x20 or CartPole-v1.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Fixes everything: the same seed gives the same model.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Environment steps; the settings' n_timesteps by default.", show_default=False)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting; may be given often. Dots reach into mappings."),
    ] = None,
    distil: Annotated[
        bool, typer.Option("--distil", help="The run teaches itself from its own experience; `--set distillation.KEY=...` says how.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/ENV/NAME/SEED")] = None,
    name: Annotated[str | None, typer.Option(help="What results call the run.", show_default="ALGORITHM")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, as if it had never stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that the folder already holds.")] = False,
    eval_every: Annotated[int | None, typer.Option(help="Steps between points of the curve.", show_default="a twentieth")] = None,
    eval_episodes: Annotated[int, typer.Option(help="Fixed seeds per point, greedy and sampled.")] = 100,
    final_episodes: Annotated[int, typer.Option(help="Fixed seeds of the final score.")] = 200,
    transfer: Annotated[
        list[str] | None, typer.Option(metavar="ENV", help="Also score the final model there, without training; may be given often.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the network runs: cpu, cuda, auto.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads for torch. One is fastest for networks of this size.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to the run's folder `tensorboard`.")] = False,
    ray_workers: Annotated[
        int | None, typer.Option(help="Processes of a Ray cluster that share the environments; the same numbers.", show_default=False)
    ] = None,
    address: ui.AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON; no progress.")] = False,
) -> None:
    """Train an agent, score it on fixed seeds while it learns, and keep model, curve and result.

    [bold]Examples[/bold]

      rao train recursive_ppo RAO/Maze-10x10

      rao train ppo RAO/Maze-20x20 --steps 1_000_000 --set dense_weight=0.5 --set policy_kwargs.net_arch=[256,256]

      rao train recursive_ppo RAO/Maze-20x20 --set curriculum=[RAO/Maze-5x5,RAO/Maze-10x10,RAO/Maze-20x20]

      rao train recursive_ppo RAO/Maze-20x20 --set env_kwargs.structure=rooms --transfer RAO/Maze-80x80

      rao train recursive_ppo RAO/Maze-20x20 --distil --set distillation.guard=true

    Ctrl-C saves and says where; the same command with --resume then ends with the same model as an uninterrupted run.
    """
    from rao_baselines.environments import resolve_id
    from rao_baselines.spec import TrainSpec

    ui.check_ray(ray_workers is not None, address, "--ray-workers")
    row = find_algorithm(algorithm)
    spec = TrainSpec(
        algorithm=row.name,
        env_id=resolve_id(env),
        seed=seed,
        steps=steps,
        overrides=_overrides(assignments or [], distil),
        out=str(out) if out else None,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        final_episodes=final_episodes,
        transfer=[resolve_id(other) for other in transfer or []],
        device=device,
        threads=threads,
        tensorboard=tensorboard,
        ray_workers=ray_workers,
        ray_address=address,
        name=name,
    )
    from rao_baselines.training import Progress, train

    title = f"{row.title} on {spec.env_id}"
    with ui.progress_bars(not as_json) as bars, stop_requests() as asked:
        task = bars.add_task(title, total=None, note="preparing (the first time compiles the kernels)")

        def report(progress: Progress) -> None:
            bars.update(task, total=progress.total, completed=min(progress.steps, progress.total), note=ui.point_note(progress.point))

        try:
            result = train(spec, resume=resume, report=report, should_stop=asked, overwrite=overwrite)
        except StoppedError as stop:
            raise StoppedError(f"{stop}. Go on with the same command and --resume") from None
    if as_json:
        ui.print_json(result)
    else:
        show(result, spec.folder())


def _overrides(assignments: list[str], distil: bool) -> dict[str, Any]:
    """The settings asked for; `--distil` switches distillation on where they do not already."""
    overrides = parse_assignments(assignments)
    asked = any(key.partition(".")[0] == "distillation" for key in overrides)
    return overrides | ({"distillation": True} if distil and not asked else {})


def show(result: dict[str, Any], folder: Path) -> None:
    """The final scores, and what one may want to do next."""
    rows = [(result["env_id"], *_cells(result["final"]))]
    rows += [(f"{env_id} (not trained on)", *_cells(scores)) for env_id, scores in result["transfer"].items()]
    key = "success" if result["final"]["greedy"]["success"] is not None else "return"
    title = f"{result['name']}, seed {result['seed']}: {result['steps']:,} steps in {ui.seconds(result['seconds'])}"
    columns = ("scored on", f"greedy {key}", f"sampled {key}", "sampled steps", "episodes")
    ui.print_table(f"{title} ({result['steps_per_second']:,.0f} steps/s)", columns, rows)
    ui.say(f"\nEverything is in {folder}. Next:")
    ui.say(f"  rao evaluate {folder} {result['env_id']} --seeds 500")
    ui.say(f"  rao compare {folder} OTHER_RUNS...")


def _cells(scores: dict[str, Any]) -> tuple[str, ...]:
    key = "success" if scores["greedy"]["success"] is not None else "return"
    greedy, sampled = (ui.interval(scores[mode]["summary"][key]) for mode in ("greedy", "sampled"))
    return greedy, sampled, f"{scores['sampled']['steps']:.1f}", str(scores["sampled"]["episodes"])
