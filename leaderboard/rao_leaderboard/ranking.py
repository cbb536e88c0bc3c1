"""Rows of the tables and their ranks: a pure function of the submissions.

A row's own numbers depend on its submission alone. Its rank is one more than the number of rows that are certainly better: those whose
intervals lie above its own. Rows whose intervals overlap may so share a rank; among them the higher score comes first, then fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rao_leaderboard.protocol import RUNS, TASKS, THRESHOLD
from rao_leaderboard.schema import Result, Run, Submission
from rao_leaderboard.scores import Estimate, interquartile

ALL = "all"
"""The table of a whole track: of submissions with results on each of its tasks."""


class Row(NamedTuple):
    """One submission in one table.

    Attributes:
        submission: its name.
        success: the score that ranks.
        steps, critical_path, mean_return: means over runs and tasks.
        training_steps: the most that any of its runs took.
        to_threshold: median over runs of the training steps to THRESHOLD on their own curves; None where most never reach it.
        ranked: whether there are RUNS runs of each task; others are listed below, without a rank.
        rank: None for rows that are not ranked.
    """

    submission: str
    success: Estimate
    steps: float
    critical_path: float
    mean_return: float
    training_steps: int
    to_threshold: float | None
    ranked: bool
    rank: int | None = None


class Table(NamedTuple):
    """A table: a track with one environment's id, or ALL of its tasks together."""

    track: str
    env_id: str
    rows: tuple[Row, ...]


def tables(submissions: Iterable[Submission]) -> tuple[Table, ...]:
    """Every table that has a row; tasks in the protocol's order, those of the open track by name."""
    entries = sorted(submissions, key=lambda submission: submission.name)
    places = [(task.track, task.env_id) for task in TASKS]
    results = [result for entry in entries for run in entry.runs for result in run.results]
    places += sorted({("open", result.env_id) for result in results if result.track == "open"})
    whole: dict[str, list[str]] = {}
    for track, env_id in places:
        whole.setdefault(track, []).append(env_id)
    found = []
    for track, env_ids in whole.items():
        groups = [(ALL, env_ids)] if track != "open" else []
        for name, members in [*groups, *((env_id, [env_id]) for env_id in env_ids)]:
            rows = [row for entry in entries if (row := row_of(entry, track, members)) is not None]
            if rows:
                found.append(Table(track, name, rank(rows)))
    return tuple(found)


def row_of(submission: Submission, track: str, env_ids: Sequence[str]) -> Row | None:
    """The row of a submission in the table of these environments; None if it lacks a result on one of them."""
    results: Mapping[str, list[tuple[Run, Result]]] = {env_id: [] for env_id in env_ids}
    for run in submission.runs:
        for result in run.results:
            if result.track == track and result.env_id in results:
                results[result.env_id].append((run, result))
    if not all(results.values()):
        return None
    pairs = [pair for found in results.values() for pair in found]
    episodes = min(result.episodes for _, result in pairs)
    runs = {run.name: run for run, _ in pairs}.values()
    reached = sorted(_steps_to_threshold(run) for run in runs)
    median = reached[len(reached) // 2]
    return Row(
        submission=submission.name,
        success=interquartile([[result.success for _, result in found] for found in results.values()], episodes),
        steps=_mean([result.steps for _, result in pairs]),
        critical_path=_mean([result.critical_path for _, result in pairs]),
        mean_return=_mean([result.mean_return for _, result in pairs]),
        training_steps=max(run.training_steps for run in runs),
        to_threshold=None if math.isinf(median) else median,
        ranked=min(map(len, results.values())) >= RUNS,
    )


def rank(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows in order, ranked ones first, with their ranks."""
    placed = []
    for row in rows:
        better = sum(other.ranked and other.success.certainly_above(row.success) for other in rows)
        placed.append(row._replace(rank=1 + better if row.ranked else None))
    return tuple(sorted(placed, key=_order))


def _order(row: Row) -> tuple[int, float, float, str]:
    return (row.rank if row.rank is not None else 10**9, -row.success.value, row.steps, row.submission)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _steps_to_threshold(run: Run) -> float:
    """Steps of the first point of the run's curve that is at THRESHOLD or above; infinite where there is none."""
    return min((float(point.steps) for point in run.curve if point.success >= THRESHOLD), default=math.inf)
