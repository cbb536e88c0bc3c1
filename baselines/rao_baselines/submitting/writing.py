"""From played tasks to the folder that is submitted."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rao_baselines import provenance
from rao_baselines.errors import UserError
from rao_baselines.submitting.playing import Played
from rao_baselines.submitting.sources import Source
from rao_envs import Evaluation
from rao_leaderboard import fingerprints, traces
from rao_leaderboard.claims import claims
from rao_leaderboard.folder import POLICIES, TRACES, file_entry, write_submission
from rao_leaderboard.protocol import EPISODES, Task
from rao_leaderboard.schema import Agent, Artefact, File, Point, Result, Run, Software, Submission
from rao_leaderboard.scores import Numbers, numbers
from rao_leaderboard.verify import Progress, Report, verify

M = TypeVar("M", bound=BaseModel)


@dataclass
class Words:
    """What only people can say of a submission."""

    name: str
    agent: str
    authors: tuple[str, ...]
    code_url: str | None
    commit: str
    algorithm: str
    description: str = ""
    full_context: bool = False


def check(words: Words, runs: Sequence[Source], tasks: Mapping[str, Sequence[Task]], *, deterministic: bool) -> None:
    """Find out before anything is played what `rao verify` would say of the words, the policies and the choice of tasks.

    Raises:
        UserError: something is not allowed, or missing; the message names the option.
    """
    for source in runs:
        closed = [task.track for task in tasks[source.name] if task.track != "open"]
        if closed and source.training_steps and not source.trained_on:
            raise UserError(f"{source.name} was trained, but does not say on what: name the ids with --trained-on ({closed[0]} track)")
    results = {source.name: [_result(source, task, None, File.model_construct()) for task in tasks[source.name]] for source in runs}
    planned = _manifest(words, runs, results, deterministic=deterministic, recursive=True)
    found = [str(problem) for problem in claims(planned)]
    if found:
        raise UserError("; ".join(found[:5]))


def submission_of(words: Words, played: Sequence[Played], *, deterministic: bool) -> tuple[Submission, dict[str, bytes]]:
    """The manifest, and the contents of all files by path.

    Raises:
        UserError: something that was said is not allowed; the message names the option.
    """
    files: dict[str, bytes] = {}
    results: dict[str, list[Result]] = {}
    for source, task, evaluation in played:
        files |= {_policy_path(source, name): content for name, content in source.files.items()}
        path = f"{TRACES}/{source.name}/{task.track}-{task.env_id.removeprefix('RAO/')}{traces.SUFFIX}"
        files[path] = traces.pack(evaluation)
        results.setdefault(source.name, []).append(_result(source, task, evaluation, file_entry(path, files[path])))
    runs = list({id(entry.source): entry.source for entry in played}.values())
    recursive = any(entry.evaluation.env_kwargs.get("spawn", True) for entry in played)
    return _manifest(words, runs, results, deterministic=deterministic, recursive=recursive), files


def _policy_path(source: Source, name: str) -> str:
    return f"{POLICIES}/{source.name}/{_safe(name)}"


def _result(source: Source, task: Task, evaluation: Evaluation | None, trace: File) -> Result:
    """What a run scored on a task; zeros where it has not been played yet."""
    return _made(
        Result,
        track=task.track,
        env_id=task.env_id,
        env_kwargs={} if evaluation is None else evaluation.env_kwargs,
        trace=trace,
        episodes=EPISODES,
        **(Numbers(0.0, 0.0, 0.0, 0.0) if evaluation is None else numbers(evaluation))._asdict(),
    )


def _run(source: Source, results: Sequence[Result], deterministic: bool) -> Run:
    names = [_safe(name).lower() for name in source.files]
    if len(set(names)) < len(names):
        raise UserError(f"--artefact: names of files must differ in more than capitals and signs: {', '.join(source.files)}")
    return _made(
        Run,
        name=source.name,
        training_seed=source.training_seed,
        training_steps=source.training_steps,
        trained_on=source.trained_on,
        wall_clock=source.wall_clock,
        deterministic=deterministic,
        artefact=_made(
            Artefact,
            files=tuple(file_entry(_policy_path(source, name), content) for name, content in source.files.items()),
            onnx=None if source.onnx is None else _policy_path(source, source.onnx),
        ),
        results=tuple(results),
        curve=tuple(Point(steps=steps, success=success) for steps, success in source.curve),
    )


def _manifest(
    words: Words, runs: Sequence[Source], results: Mapping[str, Sequence[Result]], *, deterministic: bool, recursive: bool
) -> Submission:
    versions = provenance.versions()
    full_context = words.full_context or any(source.full_context for source in runs)
    return _made(
        Submission,
        name=words.name,
        agent=_made(
            Agent,
            name=words.agent,
            kind="recursive" if recursive else "monolithic",
            algorithm=words.algorithm,
            interface=runs[0].interface,
            context="full-context" if full_context else "standard",
            description=words.description,
        ),
        authors=words.authors,
        code_url=words.code_url,
        commit=words.commit,
        created=datetime.now(timezone.utc).replace(microsecond=0),
        hardware=provenance.processor(),
        software=Software(python=versions.pop("python"), platform=f"{platform.system()} {platform.machine()}", packages=versions),
        environments={env_id: fingerprints.known()[env_id] for env_id in sorted({r.env_id for found in results.values() for r in found})},
        runs=tuple(_run(source, results[source.name], deterministic) for source in runs),
    )


def put_in_place(
    folder: Path, submission: Submission, files: dict[str, bytes], *, rerun: bool = False, progress: Progress | None = None
) -> tuple[Path, Report]:
    """Write the submission's folder into `folder`, and verify it; it is there whole, and holds, or it is not there at all.

    Args:
        folder: where submissions are.
        submission: what to write.
        files: contents by path.
        rerun: also let ONNX policies act again.
        progress: told how far verification is.

    Returns:
        Where it is, if the report is good, or would be; what was found.

    Raises:
        UserError: it is there already, or cannot be written.
    """
    target = folder / submission.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{submission.name}.", suffix=".tmp", dir=folder) as near:
            report = verify(write_submission(Path(near) / submission.name, submission, files), rerun=rerun, progress=progress)
            if report.ok:
                if os.path.lexists(target):
                    raise UserError(f"{target} is there already: delete it, or take another --name")
                (Path(near) / submission.name).rename(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}") from error
    return target, report


def uncommitted() -> bool:
    """Whether files of that repository are not as the commit has them."""
    return _git("status", "--porcelain", "--untracked-files=no") is not None


def default_commit() -> str | None:
    """The commit of the repository in the current folder; None where there is none."""
    text = _git("rev-parse", "HEAD")
    return text if text and re.fullmatch(r"[0-9a-f]{7,64}", text) else None


def default_url() -> str | None:
    """The address of that repository, where it is a https one."""
    text = _git("remote", "get-url", "origin")
    return text.removesuffix(".git") if text and text.startswith("https://") and "@" not in text else None


def _git(*arguments: str) -> str | None:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _safe(name: str) -> str:
    """A file's name as a submission may hold it."""
    return re.sub(r"[^a-zA-Z0-9_.+-]", "-", name).lstrip(".-+") or "file"


OPTIONS_OF = {
    "name": "--name",
    "authors": "--author",
    "code_url": "--code-url",
    "commit": "--commit",
    "description": "--description",
    "algorithm": "--algorithm",
    "trained_on": "--trained-on",
    "training_steps": "--training-steps",
    "files": "--artefact",
}


def _made(kind: type[M], /, **values: Any) -> M:
    """An object of the schema; a value that it does not allow is the user's."""
    try:
        return kind(**values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = str(fault["loc"][0]) if fault["loc"] else kind.__name__
        option = "--agent-name" if (kind, place) == (Agent, "name") else OPTIONS_OF.get(place, place)
        raise UserError(f"{option}: {fault['msg']}, got {str(fault['input'])[:80]!r}") from None
