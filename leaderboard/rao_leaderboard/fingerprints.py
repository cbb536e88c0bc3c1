"""Fingerprints of the environments: golden trajectories, so that a change of dynamics cannot go unnoticed.

`golden.json`, kept in version control, holds for every registered id a few episodes (of the environment and of its monolithic twin) with
all their actions and a running digest of what the environment answered: observations, masks, rewards, ends. The fingerprint of an id is
the digest of its entry. `python -m rao_leaderboard.fingerprints` compares, `--write` adds ids that are new; an entry that no longer holds
means a new version of the id, not a new entry.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rao_envs import registered_ids
from rao_envs.core.actors import generator
from rao_envs.core.arenas import make_arena
from rao_envs.core.files import replacing

GOLDEN = "golden.json"
SEEDS = (0, 1, 2**64 - 1)
STEPS = 150
"""Of each episode, at most."""

EVERY = 25
"""Steps between two digests in the file: how precisely a difference can be placed."""

DIGITS = 16


@cache
def golden() -> Mapping[str, Any]:
    """The kept trajectories, by id."""
    entries: Mapping[str, Any] = json.loads(resources.files("rao_leaderboard").joinpath(GOLDEN).read_text(encoding="utf-8"))
    return entries


@cache
def known() -> Mapping[str, str]:
    """The fingerprint of every id: 64 hexadecimal digits."""
    return {env_id: fingerprint(entry) for env_id, entry in golden().items()}


def fingerprint(entry: Any) -> str:
    """Of the trajectories of one id."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def record(env_id: str) -> list[dict[str, Any]]:
    """Golden trajectories of an id: any allowed action, or now and then one that is not, drawn from the seed and the step alone."""
    return [play(env_id, spawn, seed, None) for spawn in (True, False) for seed in SEEDS]


def differences(env_id: str, entry: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the environment, as it is now, answers its golden trajectories differently: one line each; empty if nowhere."""
    found = []
    for kept in entry:
        now = play(env_id, kept["spawn"], kept["seed"], kept["actions"])
        if now == kept:
            continue
        where = next((k for k, (a, b) in enumerate(zip(kept["digests"], now["digests"], strict=False)) if a != b), len(now["digests"]))
        found.append(f"{env_id}, spawn={kept['spawn']}, seed {kept['seed']}: it differs by step {min(where * EVERY, len(kept['actions']))}")
    return found


def play(env_id: str, spawn: bool, seed: int, actions: Sequence[int] | None) -> dict[str, Any]:
    """One episode of these actions, or of drawn ones (None).

    Returns:
        What it was played with (`spawn`, `seed`, `actions`); `digests`: of everything that the environment answered up to then, at the
        beginning, at every EVERY steps and at the end; `outcome`: the numbers of `rao_envs.core.arenas.Outcome`, None where the episode
        is not over.
    """
    arena = make_arena(env_id, 1, {"spawn": spawn})
    slots = np.zeros(1, np.int64)
    arena.begin(slots, [seed])
    running, done = hashlib.sha256(), False
    digests: list[str] = []
    taken: list[int] = []
    limit = STEPS if actions is None else len(actions)
    reward = 0.0
    while True:
        observation, masks = arena.observe(slots)
        for name in sorted(observation):
            running.update(f"{name} {observation[name].dtype.str} {observation[name].shape} ".encode())
            running.update(np.ascontiguousarray(observation[name]).astype(observation[name].dtype.newbyteorder("<")).tobytes())
        running.update(masks.tobytes() + f" {reward!r} {done}".encode())
        ends = done or len(taken) == limit
        if len(taken) % EVERY == 0 or ends:
            digests.append(running.hexdigest()[:DIGITS])
        if ends:
            break
        action = _draw(masks[0], seed, len(taken)) if actions is None else int(actions[len(taken)])
        rewards, ended = arena.step(slots, np.array([action]))
        reward, done = float(rewards[0]), bool(ended[0])
        taken.append(action)
    outcome = list(arena.outcome(0, len(taken))) if done else None
    arena.close()
    return {"spawn": spawn, "seed": seed, "actions": taken, "digests": digests, "outcome": outcome}


def _draw(mask: Any, seed: int, step: int) -> int:
    rng = generator(seed, step)
    choices = np.flatnonzero(mask) if mask.any() and rng.random() < 0.95 else np.arange(len(mask))
    return int(rng.choice(choices))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or add what is new; returns the exit code: 1 where something differs or is missing."""
    parser = argparse.ArgumentParser(prog="python -m rao_leaderboard.fingerprints", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="add the ids that are not there yet to the file; entries that are there stay")
    write = parser.parse_args(arguments).write
    entries = dict(golden())
    missing = [env_id for env_id in registered_ids() if env_id not in entries]
    if write:
        entries |= {env_id: record(env_id) for env_id in missing}
        _save({env_id: entries[env_id] for env_id in sorted(entries)})
    found = [line for env_id in sorted(entries) if env_id not in missing for line in differences(env_id, entries[env_id])]
    if not write:
        found += [f"{env_id}: there are no golden trajectories of it; add them with --write" for env_id in missing]
    sys.stdout.write("".join(f"{line}\n" for line in found) or f"{len(entries)} environments answer as they always have\n")
    return 1 if found else 0


def _save(entries: Mapping[str, Any]) -> None:
    lines = ",\n".join(f"{json.dumps(env_id)}: {json.dumps(entry, separators=(',', ':'))}" for env_id, entry in entries.items())
    with replacing(Path(__file__).with_name(GOLDEN)) as file:
        file.write(f"{{\n{lines}\n}}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
