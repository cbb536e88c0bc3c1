"""Ranks are a pure function of the submissions, and nobody's own numbers depend on who else is there."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_leaderboard.protocol import RUNS, TASKS, THRESHOLD
from rao_leaderboard.ranking import ALL, Row, Table, rank, row_of, tables
from rao_leaderboard.schema import Agent, Artefact, File, Result, Run, Software, Submission
from rao_leaderboard.scores import Estimate

MAZE, ALGEBRA = "RAO/Maze-20x20-v0", "RAO/Algebra-depth8-v0"
STANDARD = tuple(task.env_id for task in TASKS if task.track == "standard")
FILE = File(path="x", sha256="0" * 64, bytes=1)


def result(env_id: str, success: float, steps: float = 10.0, track: str = "standard") -> Result:
    numbers: dict[str, Any] = {"success": success, "mean_return": success, "steps": steps, "critical_path": steps / 2}
    return Result(track=track, env_id=env_id, env_kwargs={}, trace=FILE, episodes=100, **numbers)  # type: ignore[arg-type]


def submission(name: str, runs: list[list[Result]], curve: tuple[tuple[int, float], ...] = (), training_steps: int = 1000) -> Submission:
    return Submission(
        name=name,
        agent=Agent(name=name, kind="recursive", algorithm="none", interface="builtin"),
        authors=("A. Tester",),
        code_url="https://example.org/code",
        commit="0123abc",
        created=datetime(2026, 12, 1, tzinfo=timezone.utc),
        hardware="none",
        software=Software(python="3.11", platform="any", packages={"rao-envs": "0.1.0"}),
        environments={MAZE: "0" * 64},
        runs=tuple(
            Run(
                name=f"run-{k}",
                training_seed=k,
                training_steps=training_steps + k,
                trained_on=(),
                deterministic=True,
                artefact=Artefact(files=(FILE,)),
                results=tuple(results),
                curve=tuple({"steps": steps, "success": success} for steps, success in curve),  # type: ignore[misc]
            )
            for k, results in enumerate(runs)
        ),
    )


def of_rates(name: str, rates: list[float], steps: float = 10.0) -> Submission:
    return submission(name, [[result(MAZE, rate, steps)] for rate in rates])


@st.composite
def submissions(draw: st.DrawFn) -> list[Submission]:
    made = []
    for k in range(draw(st.integers(1, 5))):
        tasks = draw(st.lists(st.sampled_from([*STANDARD, "RAO/Maze-5x5-v0"]), unique=True, min_size=1, max_size=6))
        runs = draw(st.sampled_from([1, 3, RUNS]))
        middle = draw(st.integers(0, 20)) / 20
        rates = st.integers(-10, 10).map(lambda d, middle=middle: min(1.0, max(0.0, middle + d / 100)))
        made.append(
            submission(
                f"s{k}",
                [
                    [
                        result(task, draw(rates), draw(st.sampled_from([5.0, 10.0])), "standard" if task in STANDARD else "open")
                        for task in tasks
                    ]
                    for _ in range(runs)
                ],
            )
        )
    return made


def own(row: Row) -> Row:
    return row._replace(rank=None)


def by_place(found: tuple[Table, ...]) -> dict[tuple[str, str, str], Row]:
    return {(table.track, table.env_id, row.submission): row for table in found for row in table.rows}


@settings(max_examples=25)
@given(submissions(), st.randoms(use_true_random=False))
def test_the_order_of_submissions_does_not_matter(entries: list[Submission], rng: Any) -> None:
    shuffled = list(entries)
    rng.shuffle(shuffled)
    assert tables(shuffled) == tables(entries) == tables(iter(entries))


@settings(max_examples=25)
@given(submissions(), st.data())
def test_others_do_not_change_a_rows_own_numbers(entries: list[Submission], data: st.DataObject) -> None:
    whole = by_place(tables(entries))
    gone = data.draw(st.integers(0, len(entries) - 1))
    fewer = by_place(tables(entries[:gone] + entries[gone + 1 :]))
    assert fewer.keys() == {place for place in whole if place[2] != entries[gone].name}
    for place, row in fewer.items():
        assert own(row) == own(whole[place])
        assert (row.rank is None) == (whole[place].rank is None)
        assert row.rank is None or row.rank <= (whole[place].rank or 0)  # nobody falls when somebody leaves


@settings(max_examples=25)
@given(submissions())
def test_ranks_count_who_is_certainly_better(entries: list[Submission]) -> None:
    for table in tables(entries):
        ranked = [row for row in table.rows if row.ranked]
        assert list(table.rows[: len(ranked)]) == ranked, "those without a rank come last"
        for row in table.rows:
            if not row.ranked:
                assert row.rank is None
                continue
            assert row.rank == 1 + sum(other.success.low > row.success.high for other in ranked)
        order = [(row.rank or 0, -row.success.value, row.steps, row.submission) for row in ranked]
        assert order == sorted(order)


estimates = st.lists(st.integers(0, 100), min_size=3, max_size=3).map(sorted).map(lambda v: Estimate(v[1], v[0], v[2], 5))


@given(st.lists(st.tuples(estimates, st.booleans(), st.integers(1, 3)), max_size=8))
def test_ranks_of_any_intervals(drawn: list[tuple[Estimate, bool, int]]) -> None:
    rows = [Row(f"s{k}", value, float(steps), 1.0, 0.0, 1, None, ranked) for k, (value, ranked, steps) in enumerate(drawn)]
    placed = rank(rows)
    assert placed == rank(list(reversed(rows)))
    assert sorted(map(own, placed), key=lambda row: row.submission) == sorted(rows, key=lambda row: row.submission)
    found = {row.submission: row for row in placed}
    for a in found.values():
        for b in found.values():
            if a.rank is not None and b.rank is not None and a.success.certainly_above(b.success):
                assert a.rank < b.rank
    if any(row.ranked for row in rows):
        assert placed[0].rank == 1


def test_overlapping_intervals_share_a_rank_and_fewer_steps_come_first() -> None:
    entries = [
        of_rates("slow", [0.9] * RUNS, steps=20.0),
        of_rates("quick", [0.9] * RUNS, steps=10.0),
        of_rates("wide", [0.7, 0.8, 0.9, 1.0, 1.0], steps=15.0),
        of_rates("worse", [0.1] * RUNS),
        of_rates("one-run", [1.0]),
    ]
    table = next(table for table in tables(entries) if table.env_id == MAZE)
    assert [(row.rank, row.submission) for row in table.rows] == [
        (1, "quick"),
        (1, "wide"),
        (1, "slow"),
        (4, "worse"),
        (None, "one-run"),
    ]


def test_a_rank_needs_all_runs_on_every_task() -> None:
    full = [[result(env_id, 0.5) for env_id in STANDARD] for _ in range(RUNS)]
    found = by_place(
        tables([submission("full", full), submission("gap", [*full[:-1], full[-1][:-1]]), submission("part", [r[:2] for r in full])])
    )
    assert found["standard", ALL, "full"].ranked and not found["standard", ALL, "gap"].ranked
    assert ("standard", ALL, "part") not in found and found["standard", STANDARD[0], "part"].ranked
    assert not found["standard", STANDARD[-1], "gap"].ranked


def test_a_row_is_of_its_track_alone() -> None:
    entry = submission("x", [[result(MAZE, 0.9), result(MAZE, 0.1, track="open")]])
    standard, open_ = row_of(entry, "standard", [MAZE]), row_of(entry, "open", [MAZE])
    assert standard is not None and open_ is not None
    assert (standard.success.value, open_.success.value) == (0.9, 0.1)
    assert row_of(entry, "standard", [MAZE, ALGEBRA]) is None


@pytest.mark.parametrize(
    ("curve", "reached"),
    [((), None), (((0, 0.0), (500, THRESHOLD - 0.01)), None), (((0, 0.0), (500, THRESHOLD), (900, 0.2)), 500.0), (((3, 1.0),), 3.0)],
)
def test_steps_to_threshold(curve: tuple[tuple[int, float], ...], reached: float | None) -> None:
    row = row_of(submission("x", [[result(MAZE, 0.5)]] * 3, curve), "standard", [MAZE])
    assert row is not None and row.to_threshold == reached and row.training_steps == 1002


def test_nothing_submitted_is_no_table() -> None:
    assert tables([]) == () and rank([]) == ()
