"""Small submissions that are valid: of agents that need no training, with few episodes of small environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import rao_envs
from rao_envs.core.actors import RandomAgent
from rao_leaderboard import fingerprints, protocol, traces
from rao_leaderboard.folder import file_entry, write_submission
from rao_leaderboard.schema import Agent, Artefact, Result, Run, Software, Submission
from rao_leaderboard.scores import numbers

OPEN = ("open", "RAO/Maze-5x5-v0", {"spawn": True})


def make_sample(
    folder: Path,
    name: str = "sample",
    *,
    agent: Callable[..., Any] | None = None,
    tasks: Sequence[tuple[str, str, dict[str, bool]]] = (OPEN,),
    runs: int = 1,
    episodes: int = protocol.EPISODES,
    kind: str = "recursive",
    training_steps: int = 0,
    curve: Sequence[tuple[int, float]] = (),
) -> Path:
    """Write a submission of `agent` (random by default) into `folder` / `name`; every run has another policy, and so other episodes."""
    files: dict[str, bytes] = {}
    entries = []
    for k in range(runs):
        policy = f"policies/run-{k}/policy.txt"
        files[policy] = f"{name}, run {k}\n".encode()
        artefact = Artefact(files=(file_entry(policy, files[policy]),))
        digest = protocol.artefact_digest([(file.path, file.sha256) for file in artefact.files])
        results = []
        for track, env_id, kwargs in tasks:
            seeds = protocol.episode_seeds(digest, env_id, episodes)
            evaluation = rao_envs.evaluate(agent or RandomAgent(), env_id, seeds, progress=False, **kwargs)
            trace = f"traces/run-{k}/{track}-{env_id.removeprefix('RAO/')}{traces.SUFFIX}"
            files[trace] = traces.pack(evaluation)
            results.append(
                Result(
                    track=track,  # type: ignore[arg-type]
                    env_id=env_id,
                    env_kwargs=kwargs,  # type: ignore[arg-type]
                    trace=file_entry(trace, files[trace]),
                    episodes=episodes,
                    **numbers(evaluation)._asdict(),
                )
            )
        entries.append(
            Run(
                name=f"run-{k}",
                training_seed=k,
                training_steps=training_steps,
                trained_on=(),
                deterministic=True,
                artefact=artefact,
                results=tuple(results),
                curve=tuple({"steps": steps, "success": success} for steps, success in curve),  # type: ignore[misc]
            )
        )
    submission = Submission(
        name=name,
        agent=Agent(name=name.title(), kind=kind, algorithm="none", interface="builtin"),  # type: ignore[arg-type]
        authors=("A. Tester",),
        code_url="https://example.org/code",
        commit="0123abc",
        created=datetime(2026, 12, 1, tzinfo=timezone.utc),
        hardware="none",
        software=Software(python="3.11", platform="any", packages={"rao-envs": rao_envs.__version__}),
        environments={env_id: fingerprints.known()[env_id] for _, env_id, _ in tasks},
        runs=tuple(entries),
    )
    return write_submission(folder / name, submission, files)
