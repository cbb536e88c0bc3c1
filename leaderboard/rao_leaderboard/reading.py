"""Reading a stranger's submission: nothing outside its folder is opened, nothing in it is run, and every fault is named."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rao_envs.core.episodes import parse_json
from rao_leaderboard.folder import MANIFEST, MAX_BYTES, MAX_FILES, named_files
from rao_leaderboard.schema import Submission

MAX_MANIFEST = 4 * 2**20
MAX_DEPTH = 4
RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{k}" for name in ("com", "lpt") for k in range(1, 10))}
MAX_FAULTS = 50
"""Of one kind that are named; more of them say nothing new."""


class Problem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        place: a path in the folder, a field of the manifest, or a run, task and episode.
        text: what is wrong there, and what would be right.
        claimed, found: of a field that was recomputed: what the submission says, and what comes out; None where there is no such pair.
    """

    place: str
    text: str
    claimed: bool | int | float | str | None = None
    found: bool | int | float | str | None = None

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


class _Entry(NamedTuple):
    """A file as it was listed; `identity` is its device and number, which a file put in its place would not have."""

    size: int
    identity: tuple[int, int]


def read_submission(path: str | os.PathLike[str]) -> Loaded:
    """Read a folder whole, or not at all.

    Raises:
        BrokenSubmissionError: it holds links, devices or files that the manifest does not name, is too large, its manifest is not one,
            or its files differ from what that says of them.
    """
    folder = Path(path)
    found, folders = _list(folder)
    if MANIFEST not in found:
        raise BrokenSubmissionError([Problem("", f"{quoted(folder.absolute().name)} holds no {MANIFEST}")])
    submission = read_manifest(_read(folder, MANIFEST, found[MANIFEST], MAX_MANIFEST))
    problems = []
    name = folder.resolve().name
    if name != submission.name:
        problems.append(
            Problem("name", f"it is {submission.name!r}, but the folder is called {quoted(name)}", submission.name, quoted(name))
        )
    problems += _names(submission)
    entries = {file.path: file for file in named_files(submission) if file.path != MANIFEST}
    problems += [Problem(quoted(name), "is not named in the manifest") for name in sorted(set(found) - {MANIFEST} - set(entries))]
    parents = {str(parent) for name in entries for parent in PurePosixPath(name).parents}
    problems += [Problem(quoted(name), "is a folder without a file that the manifest names") for name in sorted(folders - parents)]
    files: dict[str, bytes] = {}
    for name, file in entries.items():
        if name not in found:
            problems.append(Problem(name, "is named in the manifest, but is not there"))
        elif found[name].size != file.bytes:
            size = found[name].size
            problems.append(Problem(name, f"has {size} bytes, the manifest says {file.bytes}", file.bytes, size))
        else:
            files[name] = _read(folder, name, found[name], file.bytes)
            digest = hashlib.sha256(files[name]).hexdigest()
            if digest != file.sha256:
                problems.append(Problem(name, "its SHA-256 is not the manifest's: one of the two was changed", file.sha256, digest))
    if problems:
        raise BrokenSubmissionError(problems[:MAX_FAULTS])
    return Loaded(submission, files)


def _names(submission: Submission) -> Iterator[Problem]:
    """What is wrong with the files' names: that they mean other files on other systems, or the same file twice."""
    seen: dict[str, str] = {}
    for name in (file.path for file in named_files(submission)):
        other = seen.get(name.lower())
        seen.setdefault(name.lower(), name)
        if name == MANIFEST:
            yield Problem(MANIFEST, "names itself")
        if other == name:
            yield Problem(name, "is named twice: every policy and every trace has files of its own")
        elif other is not None:
            yield Problem(name, f"differs from {other} only in capitals, which some file systems do not tell apart")
        for part in name.split("/"):
            if part.endswith(".") or part.partition(".")[0].lower() in RESERVED:
                yield Problem(name, f"{part!r} cannot be a file's name on Windows")


def read_manifest(content: bytes) -> Submission:
    """The manifest: strict JSON (UTF-8, no key twice, no NaN), and nothing but the fields of the schema.

    Raises:
        BrokenSubmissionError: it is not one; every field that is wrong is named.
    """
    try:
        parse_json(content)
        return Submission.model_validate_json(content)
    except ValidationError as error:
        # Cut off before they are put into words: a hundred thousand of them are one file's work.
        faults = error.errors(include_url=False, include_context=False)[:MAX_FAULTS]
        raise BrokenSubmissionError([_fault(fault) for fault in faults]) from None
    except ValueError as error:
        raise BrokenSubmissionError([Problem(MANIFEST, f"is not valid JSON: {quoted(error)}")]) from None


def quoted(value: object) -> str:
    """Anything as one short line of printable characters: strangers' texts end up in terminals and logs."""
    text = str(value)
    text = text if len(text) <= 160 else f"{text[:120]} ... {text[-30:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _fault(fault: ErrorDetails) -> Problem:
    if fault["type"] == "json_invalid":  # what Python's parser lets pass: half a surrogate pair, two hundred levels
        return Problem(MANIFEST, quoted(fault["msg"]))
    value = fault["input"]
    got = f"{type(value).__name__} of {len(value)} entries" if isinstance(value, (dict, list)) else quoted(value)
    return Problem(quoted(".".join(map(str, fault["loc"]))), f"{quoted(fault['msg'])}, got {got}")


def _list(folder: Path) -> tuple[dict[str, _Entry], set[str]]:
    """All files in the folder, and all folders, by their paths with slashes.

    Raises:
        BrokenSubmissionError: it is no folder, too large, or holds anything but files and folders; every such thing is named.
    """
    found: dict[str, _Entry] = {}
    folders: set[str] = set()
    problems: list[Problem] = []
    size = 0
    try:
        if not stat.S_ISDIR(os.lstat(folder.absolute()).st_mode):
            raise BrokenSubmissionError([Problem("", f"{quoted(folder)} is not a folder (links are not followed)")])
        for count, (path, name) in enumerate(_walk(folder, "")):
            if count >= 2 * MAX_FILES:
                raise BrokenSubmissionError([*problems, Problem("", f"there are more than {2 * MAX_FILES} files and folders")])
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                folders.add(name)
                continue
            if not stat.S_ISREG(status.st_mode):
                problems.append(Problem(quoted(name), "is neither a file nor a folder (links, devices and pipes are refused)"))
            elif status.st_nlink > 1:
                problems.append(Problem(quoted(name), "is a hard link to a file that has another name, too"))
            found[name] = _Entry(status.st_size, (status.st_dev, status.st_ino))
            size += status.st_size
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenSubmissionError):
            raise
        raise BrokenSubmissionError([Problem("", f"it cannot be read: {quoted(error)}")]) from None
    if len(found) > MAX_FILES:
        problems.append(Problem("", f"there are {len(found)} files; at most {MAX_FILES} are allowed"))
    if size > MAX_BYTES:
        problems.append(Problem("", f"its files have {size} bytes together; at most {MAX_BYTES} are allowed"))
    if problems:
        raise BrokenSubmissionError(problems[:MAX_FAULTS])
    return found, folders


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Every entry below `folder`, with its path there. Links to folders are entries, and not gone into."""
    if prefix.count("/") > MAX_DEPTH:
        raise BrokenSubmissionError([Problem(quoted(prefix), f"folders are nested more than {MAX_DEPTH} deep")])
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            yield entry.path, name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{name}/")


def _read(folder: Path, name: str, listed: _Entry, limit: int) -> bytes:
    """The content of the file that was listed, and of no other that has been put in its place since."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(folder / name, flags)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) != listed.identity:
                raise BrokenSubmissionError([Problem(name, "was replaced while it was read")])
            content = file.read(limit + 1)
    except OSError as error:
        raise BrokenSubmissionError([Problem(name, f"it cannot be read: {quoted(error)}")]) from None
    if len(content) > limit:
        raise BrokenSubmissionError([Problem(name, f"is larger than {limit} bytes")])
    return content
