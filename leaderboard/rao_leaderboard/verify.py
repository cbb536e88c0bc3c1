"""`rao verify`: recompute the seeds, replay every action, recompute every number, and name every difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rao_envs
from rao_leaderboard import fingerprints, traces
from rao_leaderboard.claims import claims, place_of, playable
from rao_leaderboard.ranking import Table, tables
from rao_leaderboard.reading import MAX_FAULTS, BrokenSubmissionError, Loaded, Problem, quoted, read_submission
from rao_leaderboard.replaying import differences
from rao_leaderboard.schema import Run, Submission

MAX_UNPACKED = 512 * 2**20
"""Bytes of all traces of a submission together, once unpacked: fifty runs that use up every budget of every environment take less."""

NEEDS = 'a re-run needs onnxruntime: pip install "rao-envs[onnx]" ({})'
Progress = Callable[[int, int], None]
"""Called with the results that were checked and with their number."""


@dataclass
class Report:
    """What was found.

    Attributes:
        name: of the submission, or of its folder.
        problems: everything that is wrong, MAX_FAULTS at most; empty if the submission holds.
        submission: None where it could not be read.
        episodes, steps: that were replayed.
        seconds: that this took.
        rerun: runs whose policy, acting anew, gave the same traces; None if that was not asked for.
    """

    name: str
    problems: list[Problem] = field(default_factory=list)
    submission: Submission | None = None
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    rerun: int | None = None

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    @property
    def badges(self) -> tuple[str, ...]:
        """What may be said of the row: that it was replayed, and how many of its policies gave the same episodes again."""
        if not self.ok or self.submission is None:
            return ()
        return ("replayed", *([f"re-run {self.rerun} of {len(self.submission.runs)} runs"] if self.rerun else []))

    @property
    def rows(self) -> tuple[Table, ...]:
        """The tables it would have a row in, with that row alone; none where it does not hold."""
        return tables([self.submission]) if self.ok and self.submission is not None else ()

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        return {
            "name": self.name,
            "ok": self.ok,
            "problems": [problem._asdict() for problem in self.problems],
            "badges": list(self.badges),
            "rows": [
                {"track": table.track, "env_id": table.env_id, **row._asdict(), "success": row.success._asdict(), "rank": None}
                for table in self.rows
                for row in table.rows
            ],
            "runs": 0 if self.submission is None else len(self.submission.runs),
            "rerun": self.rerun,
            "episodes": self.episodes,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
        }


def verify(path: str | Path, *, rerun: bool = False, progress: Progress | None = None) -> Report:
    """Check a submission's folder; nothing in it is unpickled or executed.

    Args:
        path: the folder.
        rerun: also let the ONNX policies act, and compare what they do; needs the extra "onnx".
        progress: told how far it is.

    Returns:
        The report. A folder that is no submission gives a report with problems, not an error.

    Raises:
        ImportError: a re-run was asked for, and onnxruntime is missing.
    """
    report = Report(quoted(Path(path).absolute().name))
    started = time.perf_counter()
    try:
        loaded = read_submission(path)
    except BrokenSubmissionError as error:
        report.problems = error.problems
    else:
        report.name, report.submission = loaded.submission.name, loaded.submission
        report.problems += _environments(loaded.submission)
        report.problems += claims(loaded.submission)
        _replay(loaded, report, progress)
        if rerun and report.ok:
            _rerun_all(loaded, report)
    report.problems = report.problems[:MAX_FAULTS]
    report.seconds = time.perf_counter() - started
    return report


def _environments(submission: Submission) -> Iterator[Problem]:
    """Whether the environments here still are what their golden trajectories say: if not, nothing can be judged."""
    golden = fingerprints.golden()
    for env_id in sorted({result.env_id for run in submission.runs for result in run.results if playable(result)}):
        for line in fingerprints.differences(env_id, golden[env_id])[:1]:
            yield Problem(
                "this installation", f"its rao_envs {rao_envs.__version__} is not the released one, and cannot judge a submission ({line})"
            )


def _replay(loaded: Loaded, report: Report, progress: Progress | None) -> None:
    """Replay every trace; adds to the report."""
    pairs = [(run, result) for run in loaded.submission.runs for result in run.results]
    left = MAX_UNPACKED
    for k, (run, result) in enumerate(pairs):
        if progress is not None:
            progress(k, len(pairs))
        if not playable(result):  # named by `claims`
            continue
        if len(report.problems) >= MAX_FAULTS:
            return
        place = place_of(run, result)
        try:
            text = traces.inflate(loaded.files[result.trace.path])
            left -= len(text)
            if left < 0:
                report.problems.append(Problem("", f"its traces unpack to more than {MAX_UNPACKED} bytes together"))
                return
            evaluation = traces.parse(text)
        except ValueError as error:
            report.problems.append(Problem(place, f"{result.trace.path} is no trace: {quoted(error)}"))
            continue
        report.problems += differences(loaded.submission, run, result, evaluation)
        report.episodes += len(evaluation.episodes)
        report.steps += sum(episode.steps for episode in evaluation.episodes)
    if progress is not None:
        progress(len(pairs), len(pairs))


def _rerun_all(loaded: Loaded, report: Report) -> None:
    report.rerun = 0
    for run in loaded.submission.runs:
        if run.artefact.onnx is not None:
            found = list(_rerun(loaded, run, loaded.files[run.artefact.onnx]))
            report.problems += found
            report.rerun += not found


def _rerun(loaded: Loaded, run: Run, policy: bytes) -> Iterator[Problem]:
    """Let the run's ONNX policy act on every task again, and compare its actions with the traces."""
    try:
        from rao_leaderboard.onnx_agent import OnnxAgent
    except ImportError as error:
        raise ImportError(NEEDS.format(error)) from error

    for result in run.results:
        place = f"re-run of {place_of(run, result)}"
        claimed = traces.unpack(loaded.files[result.trace.path]).episodes
        try:
            agent = OnnxAgent(policy)
            seeds = [episode.seed for episode in claimed]
            found = rao_envs.evaluate(
                agent, result.env_id, seeds, deterministic=run.deterministic, progress=False, **result.env_kwargs
            ).episodes
        except (ValueError, TypeError) as error:  # OnnxModelError is a ValueError
            yield Problem(place, quoted(error))
            continue
        for k, (a, b) in enumerate(zip(claimed, found, strict=True)):
            x, y = a.actions.tolist(), b.actions.tolist()
            if x != y:
                step = next((s for s, (u, v) in enumerate(zip(x, y, strict=False)) if u != v), min(len(x), len(y)))
                yield Problem(f"{place}, episode {k} (seed {a.seed})", f"the policy acts differently from step {step} on")
