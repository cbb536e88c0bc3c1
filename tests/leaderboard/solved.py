"""Solved episodes of every environment, for drift that golden trajectories cannot see: few of theirs, of drawn actions, reach a success.

`solved.json` holds, by id, episodes of the scripted solvers. `python -m tests.leaderboard.solved` adds the ids that are new; an entry
that no longer holds means a new version of the id (CONTRIBUTING.md), not a new entry.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rao_envs
from rao_envs import registered_ids
from rao_envs.core.episodes import decode_actions, encode_actions
from rao_leaderboard.fingerprints import play

FILE = Path(__file__).with_name("solved.json")
EPISODES = 2
LONG = 5_000
"""Steps of episodes of which one is enough."""

TRIES = 40
"""Seeds on which a solver may fail before one is found on which it does not."""


def kept() -> dict[str, list[dict[str, Any]]]:
    entries: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return entries


def record(env_id: str) -> list[dict[str, Any]]:
    """The first solved episodes of the recursive and of the monolithic solver, where there is one that ever solves it."""
    from rao_baselines.agents import load_agent
    from rao_baselines.errors import UserError

    found: list[dict[str, Any]] = []
    for spawn in (True, False):
        try:
            agent = load_agent("solver", env_id, {"spawn": spawn}).agent
        except UserError:
            continue
        evaluation = rao_envs.evaluate(agent, env_id, TRIES, progress=False, spawn=spawn)
        for episode in [e for e in evaluation.episodes if e.success][:EPISODES]:
            if found and episode.steps > LONG:
                continue
            entry = {"spawn": spawn, "seed": episode.seed, "n": evaluation.n_actions}
            found.append(
                {**entry, "actions": encode_actions(episode.actions, evaluation.n_actions), **answers(env_id, entry, episode.actions)}
            )
    return found


def answers(env_id: str, entry: dict[str, Any], actions: Any = None) -> dict[str, Any]:
    """What the environment, as it is now, answers to these actions: a digest of everything, and the outcome."""
    taken = decode_actions(entry["actions"], entry["n"]) if actions is None else actions
    played = play(env_id, entry["spawn"], entry["seed"], taken.tolist())
    return {"digest": played["digests"][-1], "outcome": played["outcome"]}


def main() -> None:
    entries = kept() if FILE.exists() else {}
    entries |= {env_id: record(env_id) for env_id in registered_ids() if env_id not in entries}
    lines = ",\n".join(f"{json.dumps(env_id)}: {json.dumps(entries[env_id], separators=(',', ':'))}" for env_id in sorted(entries))
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
