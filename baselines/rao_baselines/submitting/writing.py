"""From played tasks to the folder that is submitted."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from rao_baselines import provenance
from rao_baselines.errors import UserError
from rao_baselines.submitting.playing import Played
from rao_leaderboard import fingerprints, traces
from rao_leaderboard.folder import POLICIES, TRACES, file_entry, write_submission
from rao_leaderboard.protocol import EPISODES
from rao_leaderboard.schema import Agent, Artefact, Point, Result, Run, Software, Submission
from rao_leaderboard.scores import numbers


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
    context: Literal["standard", "full-context"] = "standard"


def submission_of(words: Words, played: Sequence[Played], *, deterministic: bool) -> tuple[Submission, dict[str, bytes]]:
    """The manifest, and the contents of all files by path.

    Raises:
        UserError: something that was said is not allowed; the message names the option.
    """
    files: dict[str, bytes] = {}
    runs = []
    for source in {id(entry.source): entry.source for entry in played}.values():
        paths = {name: f"{POLICIES}/{source.name}/{_safe(name)}" for name in source.files}
        files |= {paths[name]: content for name, content in source.files.items()}
        results = []
        for _, task, evaluation in (entry for entry in played if entry.source is source):
            path = f"{TRACES}/{source.name}/{task.track}-{task.env_id.removeprefix('RAO/')}{traces.SUFFIX}"
            files[path] = traces.pack(evaluation)
            results.append(
                {
                    "track": task.track,
                    "env_id": task.env_id,
                    "env_kwargs": evaluation.env_kwargs,
                    "trace": file_entry(path, files[path]),
                    "episodes": EPISODES,
                    **numbers(evaluation)._asdict(),
                }
            )
        runs.append(
            _made(
                Run,
                name=source.name,
                training_seed=source.training_seed,
                training_steps=source.training_steps,
                trained_on=source.trained_on,
                wall_clock=source.wall_clock,
                deterministic=deterministic,
                artefact=Artefact(
                    files=tuple(file_entry(paths[name], content) for name, content in source.files.items()),
                    onnx=None if source.onnx is None else paths[source.onnx],
                ),
                results=tuple(_made(Result, **result) for result in results),
                curve=tuple(Point(steps=steps, success=success) for steps, success in source.curve),
            )
        )
    env_ids = sorted({entry.task.env_id for entry in played})
    recursive = any(entry.evaluation.env_kwargs.get("spawn", True) for entry in played)
    versions = provenance.versions()
    submission = _made(
        Submission,
        name=words.name,
        agent=_made(
            Agent,
            name=words.agent,
            kind="recursive" if recursive else "monolithic",
            algorithm=words.algorithm,
            interface=played[0].source.interface,
            context=words.context,
            description=words.description,
        ),
        authors=words.authors,
        code_url=words.code_url,
        commit=words.commit,
        created=datetime.now(timezone.utc).replace(microsecond=0),
        hardware=provenance.processor(),
        software=Software(python=versions.pop("python"), platform=f"{platform.system()} {platform.machine()}", packages=versions),
        environments={env_id: fingerprints.known()[env_id] for env_id in env_ids},
        runs=tuple(runs),
    )
    return submission, files


def put_in_place(folder: Path, submission: Submission, files: dict[str, bytes]) -> Path:
    """Write the folder, whole or not at all.

    Raises:
        UserError: it is there already.
    """
    try:
        return write_submission(folder / submission.name, submission, files)
    except FileExistsError:
        raise UserError(f"{folder / submission.name} is there already: delete it, or take another --name") from None


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


OPTIONS_OF = {"name": "--name", "authors": "--author", "code_url": "--code-url", "commit": "--commit", "description": "--description"}


def _made(kind: Any, /, **values: Any) -> Any:
    """An object of the schema; a value that it does not allow is the user's."""
    try:
        return kind(**values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = str(fault["loc"][0]) if fault["loc"] else kind.__name__
        raise UserError(f"{OPTIONS_OF.get(place, place)}: {fault['msg']}, got {str(fault['input'])[:80]!r}") from None
