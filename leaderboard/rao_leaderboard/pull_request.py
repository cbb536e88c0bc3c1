"""What a pull request would add to the leaderboard: `python -m rao_leaderboard.pull_request CHANGED.txt`, as Markdown.

The file says what is changed, as `git diff --name-status --no-renames -z` does: a letter and a path, each ended by a null character. Only
the folders of submissions among them are read, and only as `rao_leaderboard.verify` reads: nothing in them is run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rao_leaderboard.protocol import RUNS
from rao_leaderboard.ranking import ALL, tables
from rao_leaderboard.reading import BrokenSubmissionError, read_submission
from rao_leaderboard.schema import Submission
from rao_leaderboard.verify import Report, verify

SUBMISSIONS = PurePosixPath("leaderboard/submissions")
MOST = 20
"""Problems of a submission, and paths, that are shown."""

ADDED = "A"


class Change(NamedTuple):
    """A file that a pull request changes: git's letter for how (A, M, D, T, ...), and its path."""

    status: str
    path: str


def parse_changes(text: str) -> list[Change]:
    """The changes that git lists.

    Raises:
        ValueError: it is no such list.
    """
    fields = text.split("\0")
    if fields.pop() or len(fields) % 2 or not all(len(status) == 1 for status in fields[::2]):
        raise ValueError("this is not what git diff --name-status --no-renames -z writes")
    return [Change(*pair) for pair in zip(fields[::2], fields[1::2], strict=True)]


def changed_folders(changes: Iterable[Change]) -> tuple[dict[str, list[Change]], list[str]]:
    """The submissions that are touched, by name, with what is changed of them; and the paths that are of none. Both sorted."""
    folders: dict[str, list[Change]] = {}
    others: list[str] = []
    for change in changes:
        parts = PurePosixPath(change.path).parts
        if parts[:2] == SUBMISSIONS.parts and len(parts) > 3:
            folders.setdefault(parts[2], []).append(change)
        else:
            others.append(change.path)
    return dict(sorted(folders.items())), sorted(others)


def comment(root: Path, changes: Iterable[Change], rerun: bool = False) -> tuple[bool, str]:
    """Whether everything holds, and what to say of it.

    Args:
        root: the checkout with the change.
        changes: what it changes.
        rerun: also let ONNX policies act again.
    """
    folders, others = changed_folders(changes)
    strays = [path for path in others if PurePosixPath(path).parts[:2] == SUBMISSIONS.parts]
    if not folders and not strays:
        return True, "No submission was changed.\n"
    parts = ["## Leaderboard\n"]
    good = True
    if others:
        good = False
        parts.append(f"A pull request with a submission changes nothing else. This one also changes {_list(others)}.\n")
    if len(folders) > 1:
        good = False
        parts.append(f"One submission at a time, please: {_list(folders)}.\n")
    for name, changed in folders.items():
        old = sorted(change.path for change in changed if change.status != ADDED)
        if old:
            good = False
            parts.append(
                f"{_code(name)} is there already, and may be somebody else's: a submission that is there stays as it is, another one takes "
                f"another name. If it is yours, a maintainer can change or remove it. Not new here: {_list(old)}.\n"
            )
        folder = root / SUBMISSIONS / name
        if not folder.exists():
            good = False
            parts.append(f"### {_code(name)}\n\nis removed.\n")
            continue
        report = verify(folder, rerun=rerun)
        good = good and report.ok
        parts.append(_section(report, _others(root, name)))
    return good, "\n".join(parts)


def _others(root: Path, name: str) -> list[Submission]:
    """The submissions that are there besides; what cannot be read is left out, as it is not this change's."""
    found = []
    for folder in sorted((root / SUBMISSIONS).iterdir()):
        if folder.is_dir() and folder.name != name:
            try:
                found.append(read_submission(folder).submission)
            except BrokenSubmissionError:
                continue
    return found


def _section(report: Report, others: Sequence[Submission]) -> str:
    lines = [f"### {_code(report.name)}\n"]
    if not report.ok or report.submission is None:
        lines.append("does **not** hold:\n")
        lines += [f"- {_code(str(problem))}" for problem in report.problems[:MOST]]
        lines += [f"- and {len(report.problems) - MOST} more"] if len(report.problems) > MOST else []
        return "\n".join(lines) + "\n"
    again = "" if report.rerun is None else f"; {report.rerun} of {len(report.submission.runs)} runs re-run"
    lines.append(f"holds: {report.episodes} episodes, {report.steps:,} steps replayed{again}.\n")
    lines.append("| track | table | rank | success [95 %] | steps | critical path | runs |")
    lines.append("|---|---|---|---|---|---|---|")
    for table in tables([*others, report.submission]):
        for row in table.rows:
            if row.submission == report.submission.name:
                rank = f"{row.rank} of {sum(r.ranked for r in table.rows)}" if row.ranked else f"none: fewer than {RUNS} runs"
                success = f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]"
                name = "all tasks together" if table.env_id == ALL else table.env_id
                lines.append(
                    f"| {table.track} | {name} | {rank} | {success} | {row.steps:.1f} | {row.critical_path:.1f} | {row.success.n} |"
                )
    return "\n".join(lines) + "\n"


def _list(texts: Iterable[str]) -> str:
    given = list(texts)
    more = f" and {len(given) - MOST} more" if len(given) > MOST else ""
    return ", ".join(map(_code, given[:MOST])) + more


def _code(text: str) -> str:
    """A stranger's text as code: nothing in it is Markdown, a mention or a link."""
    clean = "".join(c if c.isprintable() and c not in "`|" else "?" for c in text)[:300]
    return f"`{clean}`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comment; returns 0 if everything holds, 1 if not, 2 for a wrong command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    rerun = "--rerun" in given
    files = [each for each in given if each != "--rerun"]
    if len(files) != 1:
        sys.stderr.write("usage: python -m rao_leaderboard.pull_request [--rerun] CHANGED.txt\n")
        return 2
    try:
        changes = parse_changes(Path(files[0]).read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{files[0]}: {error}\n")
        return 2
    good, text = comment(Path.cwd(), changes, rerun)
    sys.stdout.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
