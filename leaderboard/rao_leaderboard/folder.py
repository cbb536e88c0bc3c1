"""The folder of a submission: what it holds, and how a finished one is put in place."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rao_leaderboard.schema import File, Submission

MANIFEST = "submission.json"
TRACES, POLICIES = "traces", "policies"
MAX_FILES = 512
MAX_BYTES = 256 * 2**20
"""Of all files of a folder together."""


def file_entry(path: str, content: bytes) -> File:
    """What the manifest says of a file."""
    return File(path=path, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def manifest_text(submission: Submission) -> str:
    """`submission.json` as it is written."""
    return submission.model_dump_json(indent=1, exclude_defaults=False) + "\n"


def write_submission(target: Path, submission: Submission, files: Mapping[str, bytes]) -> Path:
    """Put a whole submission in place at once: `target` is there complete, or not at all.

    Args:
        target: the folder to make; its name is the submission's.
        submission: what goes into the manifest; it names all files.
        files: contents by path.

    Raises:
        ValueError: the manifest names other files than there are, or the folder's name is not the submission's.
        FileExistsError: the folder is there already.
        OSError: it cannot be written. Nothing is left behind.
    """
    entries = {file.path: file for file in named_files(submission)}
    if set(entries) != set(files):
        raise ValueError(f"the manifest and the files differ: {sorted(set(entries) ^ set(files))}")
    if target.name != submission.name:
        raise ValueError(f"the folder of the submission {submission.name!r} cannot be called {target.name!r}")
    if target.exists():
        raise FileExistsError(f"{target} is there already")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        for path, content in files.items():
            if file_entry(path, content) != entries[path]:
                raise ValueError(f"the manifest's entry of {path} is not of this content")
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_bytes(content)
        (temporary / MANIFEST).write_text(manifest_text(submission), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def named_files(submission: Submission) -> list[File]:
    """Every file that the manifest names, in its order."""
    return [file for run in submission.runs for file in (*run.artefact.files, *(result.trace for result in run.results))]
