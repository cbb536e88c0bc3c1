"""`rao demo`: a recursive and a monolithic agent learn the same small mazes side by side, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.pool import Event, run_all, stop_requests
from rao_baselines.spec import TrainSpec

NAME = "demo"
ENV = "RAO/Maze-10x10-v0"
AGENTS = {"recursive_ppo": "RecursivePPO (spawns)", "maskable_ppo": "MaskablePPO (monolithic, dense feedback)"}
SHORT, LONG = 8, 90
"""Steps of an episode worth watching."""


def command(
    steps: Annotated[int, typer.Option(help="Environment steps of each agent.")] = 120_000,
    seed: Annotated[int, typer.Option(help="Of both.")] = 0,
    env: Annotated[str, typer.Option(help="What to train on.")] = ENV,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder for everything.")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the folder holds from before.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train a recursive and a monolithic agent on the same small mazes, compare them, and film an episode.

    Takes at most five minutes on two cores. Ctrl-C saves; the same command goes on.
    """
    from rao_baselines.environments import resolve_id

    env_id = resolve_id(env)
    if jobs < 1 or steps < 1:
        raise UserError("--jobs and --steps must be at least 1")
    if fresh and out.exists():
        for name in AGENTS:
            shutil.rmtree(out / name, ignore_errors=True)
    specs = [
        TrainSpec(
            name,
            env_id,
            seed=seed,
            steps=steps,
            out=str(out / name),
            eval_every=max(steps // 15, 1),
            eval_episodes=100,
            final_episodes=200,
        )
        for name in AGENTS
    ]
    results = _train(specs, jobs, as_json)
    from rao_baselines.comparing import compare, measure
    from rao_baselines.figures import learning_curves

    comparison = compare(results)
    key = measure(results)  # the return, where an environment does not report success
    curves = {AGENTS[result["name"]]: [result["curve"]] for result in results}
    files = learning_curves(curves, out / "curves", title=f"{env_id}: {key} on fixed seeds (actions sampled)", key=key)
    files.append(_film(env_id, out / "recursive_ppo", out / "episode.gif", as_json))
    if as_json:
        ui.print_json({"comparison": comparison, "files": [str(path) for path in files]})
        return
    from rao_baselines.commands.compare import show

    ui.out().print()
    show(comparison)
    for path in files:
        ui.say(f"wrote {path}")
    ui.say(
        f"""
[bold]What to try next[/bold]
  look          open {out / "curves.png"} and {out / "episode.gif"}
  play          rao play {env_id}                     (you spawn the sub-agents)
  go larger     rao evaluate {out / "recursive_ppo"} RAO/Maze-20x20   (it never trained there)
  the real one  rao train recursive_ppo RAO/Maze-20x20
  your agent    rao_envs.evaluate(my_agent, "{env_id}", seeds=200)"""
    )


def _train(specs: list[TrainSpec], jobs: int, quiet: bool) -> list[dict[str, Any]]:
    """Both runs at once, with live scores; finished ones are taken as they are."""
    from rao_baselines.runs import read_json

    failures: list[str] = []
    with ui.progress_bars(not quiet) as bars, stop_requests() as asked:
        tasks = [bars.add_task(AGENTS[spec.algorithm], total=spec.steps, note="preparing") for spec in specs]

        def note(event: Event) -> None:
            task, spec = tasks[event.run], specs[event.run]
            if event.kind == "progress":
                bars.update(task, completed=min(event.data["steps"], event.data["total"]), note=ui.point_note(event.data["point"]))
            elif event.kind == "done":
                bars.update(task, completed=spec.steps)
            elif event.kind == "failed":
                failures.append(f"{spec.algorithm}: {event.data['error']}")

        outcome = run_all(specs, jobs, note, asked)
    if failures:
        raise UserError("\n".join(failures) + "\nIf the folder holds an older demo, start again with --fresh")
    if len(outcome["done"]) < len(specs):
        raise StoppedError("stopped and saved; the same command goes on")
    return [read_json(spec.folder() / "result.json") for spec in specs]


def _film(env_id: str, run: Path, path: Path, quiet: bool) -> Path:
    """A GIF of an episode of the trained agent: a solved one of handy length that spawns, if there is one."""
    from rao_baselines.recording import film, save_gif
    from rao_envs import Evaluation

    episodes = Evaluation.load(run / "evaluation-sampled.json").episodes

    def appeal(episode: Any) -> tuple[Any, ...]:
        return bool(episode.success), SHORT <= episode.steps <= LONG, min(episode.spawns, 6), -episode.steps

    best = max(episodes, key=appeal)
    with ui.progress_bars(not quiet) as bars:
        task = bars.add_task("filming an episode", total=len(best.actions), note="")
        frames = film(env_id, best.seed, best.actions, report=lambda done, total: bars.update(task, completed=done))
        return save_gif(frames, path)
