"""`rao list`: what there is to train, on what, with what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rao_baselines import ui

NAME = "list"


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """List environments, algorithms and built-in agents.

    [bold]Examples[/bold]

      rao list

      rao list --json | python -m json.tool
    """
    listing = describe()
    if as_json:
        ui.print_json(listing)
        return
    environments = [
        (e["id"], str(e["actions"]), str(e["monolithic_actions"]), f"{e['budget']:,}", str(e["levels"])) for e in listing["environments"]
    ]
    ui.print_table(
        "Environments (without -v0: the newest version; with spawn=False: the monolithic twin)",
        ("id", "actions", "of them primitive", "step budget", "levels"),
        environments,
    )
    ui.out().print()
    ui.print_table(
        "Algorithms (rao train ALGORITHM ENV)",
        ("name", "trains on", "what it is"),
        [(a["name"], "with spawn" if a["spawn"] else "monolithic twin", a["summary"]) for a in listing["algorithms"]],
        text=("trains on", "what it is"),
    )
    ui.out().print()
    ui.print_table("Built-in agents (rao evaluate AGENT ENV)", ("name", "what it is"), list(listing["agents"].items()), ("what it is",))


def describe() -> dict[str, Any]:
    """Everything the listing shows, as plain data."""
    import gymnasium as gym

    import rao_envs
    from rao_baselines.agents import BUILTINS
    from rao_baselines.algorithms import TABLE

    environments = []
    for env_id in rao_envs.registered_ids():
        env: Any = gym.make(env_id).unwrapped
        environments.append(
            {
                "id": env_id,
                "actions": int(env.action_space.n),
                "monolithic_actions": int(env.action_space.n) - len(env.spawn_actions),
                "action_names": list(env.action_names),
                "budget": int(env.domain.budget),
                "levels": int(env.domain.max_depth) + 1,
            }
        )
        env.close()
    return {
        "environments": environments,
        "algorithms": [{"name": a.name, "title": a.title, "spawn": a.spawn, "summary": a.summary} for a in TABLE],
        "agents": {name: builtin.summary for name, builtin in BUILTINS.items()},
    }
