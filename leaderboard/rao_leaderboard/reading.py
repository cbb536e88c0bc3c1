"""Reading a stranger's submission: nothing outside its folder is opened, nothing in it is run, and every fault is named."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rao_envs.core.episodes import parse_json
from rao_leaderboard.folder import MANIFEST, MAX_BYTES, MAX_FILES, named_files
from rao_leaderboard.schema import File, Submission

MAX_MANIFEST = 4 * 2**20
MAX_FAULTS = 50
"""Of one kind that are named; more of them say nothing new."""


class Problem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        place: a path in the folder, a field of the manifest, or a run, task and episode.
        text: what is wrong there, and what would be right.
    """

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class BrokenSubmissionError(ValueError):
    """A folder that is no submission: `problems` says why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Loaded(NamedTuple):
    """A submission with the contents of its files, all of them as the manifest says."""

    submission: Submission
    files: dict[str, bytes]


def read_submission(path: str | os.PathLike[str]) -> Loaded:
    """Read a folder whole, or not at all.

    Raises:
        BrokenSubmissionError: it holds links, devices or files that the manifest does not name, is too large, its manifest is not one,
            or its files differ from what that says of them.
    """
    folder = Path(path)
    found = _list(folder)
    if MANIFEST not in found:
        raise BrokenSubmissionError([Problem("", f"{quoted(folder.name)} holds no {MANIFEST}")])
    submission = read_manifest(_read(folder, MANIFEST, MAX_MANIFEST))
    problems = []
    if folder.resolve().name != submission.name:
        problems.append(Problem("name", f"it is {submission.name!r}, but the folder is called {quoted(folder.resolve().name)}"))
    entries: dict[str, File] = {}
    for file in named_files(submission):
        if file.path in entries:
            problems.append(Problem(file.path, "is named twice: every policy and every trace has files of its own"))
        entries[file.path] = file
    problems += [Problem(quoted(name), "is not named in the manifest") for name in sorted(found - {MANIFEST} - set(entries))]
    if MANIFEST in entries:
        problems.append(Problem(MANIFEST, "names itself"))
    folded: dict[str, str] = {}
    for name in sorted(entries):
        other = folded.setdefault(name.lower(), name)
        if other != name:
            problems.append(Problem(name, f"differs from {other} only in capitals, which some file systems do not tell apart"))
    files: dict[str, bytes] = {}
    for name, file in entries.items():
        if name == MANIFEST:
            continue
        if name not in found:
            problems.append(Problem(name, "is named in the manifest, but is not there"))
            continue
        content = _read(folder, name, MAX_BYTES)
        if len(content) != file.bytes:
            problems.append(Problem(name, f"has {len(content)} bytes, the manifest says {file.bytes}"))
        elif hashlib.sha256(content).hexdigest() != file.sha256:
            problems.append(Problem(name, "its SHA-256 is not the manifest's: it was changed"))
        files[name] = content
    if problems:
        raise BrokenSubmissionError(problems[:MAX_FAULTS])
    return Loaded(submission, files)


def read_manifest(content: bytes) -> Submission:
    """The manifest: strict JSON (UTF-8, no key twice, no NaN), and nothing but the fields of the schema.

    Raises:
        BrokenSubmissionError: it is not one; every field that is wrong is named.
    """
    try:
        parse_json(content)
        return Submission.model_validate_json(content)
    except ValidationError as error:
        problems = [
            Problem(quoted(".".join(map(str, fault["loc"]))), f"{fault['msg']}, got {quoted(fault['input'])}")
            for fault in error.errors(include_url=False, include_context=False)
        ]
        raise BrokenSubmissionError(problems[:MAX_FAULTS]) from None
    except ValueError as error:
        raise BrokenSubmissionError([Problem(MANIFEST, f"is not valid JSON: {quoted(error)}")]) from None


def quoted(value: object) -> str:
    """Anything as one short line of printable characters: strangers' texts end up in terminals and logs."""
    text = str(value)
    text = text if len(text) <= 160 else f"{text[:120]} ... {text[-30:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _list(folder: Path) -> set[str]:
    """The paths of all files in the folder, with slashes."""
    try:
        if not stat.S_ISDIR(os.lstat(folder.absolute()).st_mode):
            raise BrokenSubmissionError([Problem("", f"{quoted(folder)} is not a folder")])
        found: set[str] = set()
        size = 0
        for entry, name in _walk(folder, ""):
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise BrokenSubmissionError(
                    [Problem(quoted(name), "is neither a file nor a folder (links, devices and pipes are refused)")]
                )
            if status.st_nlink > 1:
                raise BrokenSubmissionError([Problem(quoted(name), "is a hard link to a file that has another name, too")])
            found.add(name)
            size += status.st_size
            if len(found) > MAX_FILES:
                raise BrokenSubmissionError([Problem("", f"there are more than {MAX_FILES} files")])
            if size > MAX_BYTES:
                raise BrokenSubmissionError([Problem("", f"its files are larger than {MAX_BYTES} bytes together")])
    except OSError as error:
        raise BrokenSubmissionError([Problem("", f"it cannot be read: {quoted(error)}")]) from None
    return found


def _walk(folder: Path, prefix: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Every entry below `folder` that is not a folder itself, with its path. Folders are counted by their depth alone."""
    if prefix.count("/") > 5:
        raise BrokenSubmissionError([Problem(quoted(prefix), "folders are nested too deeply")])
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count > MAX_FILES:
                raise BrokenSubmissionError([Problem(quoted(prefix), f"there are more than {MAX_FILES} entries")])
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            else:
                yield entry, f"{prefix}{entry.name}"


def _read(folder: Path, name: str, limit: int) -> bytes:
    """A regular file's content, never through a link, even if one has just been put there."""
    try:
        descriptor = os.open(
            folder / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BrokenSubmissionError([Problem(name, "is not a regular file")])
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenSubmissionError):
            raise
        raise BrokenSubmissionError([Problem(name, f"it cannot be read: {quoted(error)}")]) from None
    if len(content) > limit:
        raise BrokenSubmissionError([Problem(name, f"is larger than {limit} bytes")])
    return content
