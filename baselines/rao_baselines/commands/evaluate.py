"""`rao evaluate`: score an agent on a fixed list of seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import rao_envs
from rao_baselines import ui
from rao_baselines.config import parse_assignments
from rao_baselines.errors import UserError
from rao_envs import Evaluation

NAME = "evaluate"


@contextlib.contextmanager
def _engine(ray: bool, address: str | None) -> Iterator[Callable[..., Evaluation]]:
    """What plays the episodes."""
    if not ray:
        yield rao_envs.evaluate
        return
    from rao_agents.distributed import evaluating
    from rao_agents.distributed.cluster import connected

    with connected(address):  # once for all ways of acting
        yield evaluating.evaluate


def command(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="A run's folder, a model file, or a built-in agent: random, solver.", show_default=False)
    ],
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="Environment id; it need not be the one the agent was trained on.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(help="How many of the fixed seeds; one episode each.")] = 100,
    first_seed: Annotated[int | None, typer.Option(help="Start of the list of seeds.", show_default="2**32")] = None,
    greedy: Annotated[
        bool | None, typer.Option("--greedy/--sampled", help="One way of acting; both by default.", show_default=False)
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--env-arg", "-e", metavar="KEY=VALUE", help="Keyword argument of the environment; may be given often."),
    ] = None,
    masks: Annotated[bool, typer.Option("--masks/--no-masks", help="Whether a model is told which actions are allowed.")] = True,
    records: Annotated[
        Path | None, typer.Option(help="Also write every episode's record, as MODE.json in this folder.", show_default=False)
    ] = None,
    ray: ui.RayOption = False,
    address: ui.AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Score an agent on fixed seeds, every episode played to its end. The same command always prints the same numbers.

    [bold]Examples[/bold]

      rao evaluate random RAO/Maze-20x20

      rao evaluate runs/Maze-20x20-v0/recursive_ppo/0 RAO/Maze-80x80 --seeds 500 --sampled

      rao evaluate solver RAO/Maze-20x20 -e structure=perfect --json

    Model files are read without running any code in them; files with pickles are refused.
    """
    from rao_baselines.agents import load_agent
    from rao_baselines.environments import resolve_id
    from rao_baselines.evaluation import MODES, full, score
    from rao_baselines.runs import check_folder
    from rao_baselines.spec import FIRST_SEED

    ui.check_ray(ray, address)
    env_id = resolve_id(env)
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    start = FIRST_SEED if first_seed is None else first_seed
    if not 0 <= start <= 2**64 - seeds:
        raise UserError(f"--first-seed must lie in [0, 2**64 - seeds], got {start}")
    if records is not None:
        check_folder(records)
    loaded = load_agent(agent, env_id, parse_assignments(assignments or []))
    modes = MODES if greedy is None else ("greedy",) if greedy else ("sampled",)
    # A built-in agent has one way of acting.
    modes = modes if hasattr(loaded.agent, "predict") else modes[:1]
    results: dict[str, Any] = {}
    with _engine(ray, address) as evaluate, ui.progress_bars(not as_json) as bars:
        for mode in modes:
            task = bars.add_task(f"{loaded.name} on {env_id}, {mode}", total=seeds, note="")

            def report(finished: int, total: int, task: Any = task) -> None:
                bars.update(task, completed=finished)

            try:
                evaluation = score(
                    loaded.agent,
                    env_id,
                    range(start, start + seeds),
                    mode=mode,
                    env_kwargs=loaded.env_kwargs,
                    frame_stack=loaded.frame_stack,
                    use_masking=masks,
                    progress=report,
                    evaluate=evaluate,
                )
            except (TypeError, ValueError) as error:
                raise UserError(f"{loaded.name} cannot be evaluated on {env_id}: {error}") from error
            results[mode] = full(evaluation)
            if records is not None:
                evaluation.save(records / f"{mode}.json")
    answer = {"agent": loaded.name, "env_id": env_id, "env_kwargs": loaded.env_kwargs, "seeds": [start, seeds], "results": results}
    if as_json:
        ui.print_json(answer)
        return
    names = [name for name in results[modes[0]]["summary"] if any(results[mode]["summary"][name] is not None for mode in modes)]
    rows = [
        (
            name.replace("_", " "),
            *(ui.interval(results[mode]["summary"][name], 3 if name in ("success", "return") else 1) for mode in modes),
        )
        for name in names
    ]
    title = f"{loaded.name} on {env_id}, {seeds} fixed seeds: means with 95 % intervals"
    labels = modes if hasattr(loaded.agent, "predict") else ("value",)
    ui.print_table(title, ("", *labels), rows)
