"""Damaging a submission: changes to its files, and seals (digests, sizes, summaries) put right again, as a forger would."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rao_envs import Episode, Evaluation, replay_all
from rao_leaderboard import traces
from rao_leaderboard.claims import run_digest
from rao_leaderboard.reading import read_submission
from rao_leaderboard.scores import numbers

Json = dict[str, Any]


@contextlib.contextmanager
def manifest(folder: Path) -> Iterator[Json]:
    """The manifest as plain data; it is written back at the end."""
    path = folder / "submission.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    yield data
    path.write_text(json.dumps(data), encoding="utf-8")


def result_of(data: Json, run: int = 0, task: int = 0) -> Json:
    found: Json = data["runs"][run]["results"][task]
    return found


def put_trace(folder: Path, content: bytes, run: int = 0, task: int = 0) -> None:
    """Put this compressed file in place of a trace; the manifest's seal is made anew."""
    with manifest(folder) as data:
        entry = result_of(data, run, task)["trace"]
        (folder / entry["path"]).write_bytes(content)
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def get_trace(folder: Path, run: int = 0, task: int = 0) -> bytes:
    data = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
    return (folder / result_of(data, run, task)["trace"]["path"]).read_bytes()


def put_text(folder: Path, text: bytes, run: int = 0, task: int = 0) -> None:
    """As `put_trace`, of what is yet to be compressed."""
    put_trace(folder, gzip.compress(text, compresslevel=1, mtime=0), run, task)


def get_text(folder: Path, run: int = 0, task: int = 0) -> bytes:
    return gzip.decompress(get_trace(folder, run, task))


def put_evaluation(folder: Path, evaluation: Evaluation, run: int = 0, task: int = 0) -> None:
    """A forged trace with everything made to fit: its summary, its seal, and the means in the manifest."""
    put_trace(folder, traces.pack(evaluation), run, task)
    with manifest(folder) as data:
        result_of(data, run, task).update(numbers(evaluation)._asdict())


def get_evaluation(folder: Path, run: int = 0, task: int = 0) -> Evaluation:
    return traces.unpack(get_trace(folder, run, task))


def with_episode(evaluation: Evaluation, k: int, **changes: Any) -> Evaluation:
    episodes = list(evaluation.episodes)
    episodes[k] = replace(episodes[k], **changes)
    return replace(evaluation, episodes=tuple(episodes))


def put_file(folder: Path, path: str, content: bytes) -> None:
    """Change a policy's file; the manifest's seal is made anew."""
    (folder / path).write_bytes(content)
    with manifest(folder) as data:
        for run in data["runs"]:
            for file in run["artefact"]["files"]:
                if file["path"] == path:
                    file |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def facts(folder: Path) -> list[Any]:
    """What a check is to guarantee: how each episode of each policy went, and the numbers that follow. The order of runs is none.

    Actions are not among them: where two of them have the same effect, either is a true record. That each trace leads to what is said
    of it is checked here by the strict replay of `rao_envs`, which a verification does not use.
    """
    submission, files = read_submission(folder)
    found = []
    for run in submission.runs:
        for result in run.results:
            episodes = traces.unpack(files[result.trace.path]).episodes
            again = replay_all(result.env_id, {e.seed: e.actions for e in episodes}, **result.env_kwargs)
            assert [(*_exact(e), e.actions.tobytes()) for e in again] == [(*_exact(e), e.actions.tobytes()) for e in episodes]
            means = (result.success, result.steps, result.critical_path, round(result.mean_return, 7))
            arguments = sorted(result.env_kwargs.items())
            place = (run_digest(run), result.env_id, arguments, run.deterministic)
            found.append((place, submission.environments[result.env_id], means, [_exact(episode) for episode in episodes]))
    return sorted(found, key=repr)


def _exact(e: Episode) -> tuple[Any, ...]:
    counts = (e.steps, e.nodes, e.deepest, e.spawns, e.critical_path)
    return (e.seed, e.success, *counts, round(e.return_, 7))
