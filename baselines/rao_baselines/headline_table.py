"""`rao bench table`: the source's table, and beside it what our kept results say; larger tasks; where recursion does not help.

All numbers come from the suites' `summary.json` under `baselines/results`; the figures also read the single runs' files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rao_baselines import statistics, ui
from rao_baselines.experiments import SUITES
from rao_baselines.experiments.limits import COMPARED, Limit
from rao_baselines.experiments.table import FEWER, LINES
from rao_baselines.runs import read_json
from rao_baselines.suite import MODES, collect, scored, task_name

REACHED, MISSED = "reached", "**missed**"


class Pair(NamedTuple):
    """The two agents of a family, as its suite's summary has them; None where there are no results."""

    recursive: dict[str, Any] | None
    monolithic: dict[str, Any] | None  # the strongest
    steps: tuple[float | None, float | None]  # (recursive, monolithic): steps to the monolithic agent's final score, median over seeds


def kept_summary(results: Path, suite_name: str) -> dict[str, Any]:
    """A suite's summary; empty if there is none yet."""
    path = results / suite_name / "summary.json"
    summary: dict[str, Any] = read_json(path) if path.is_file() else {"experiments": {}, "groups": {}}
    return summary


def pair_of(results: Path, suite_name: str) -> Pair:
    """The recursive agent of a suite, its first row, and the strongest monolithic agent of that row's group."""
    first = SUITES[suite_name].rows[0]
    summary = kept_summary(results, suite_name)
    comparison = summary["groups"].get(first.group, {})
    best = comparison.get("strongest_monolithic")
    reached = comparison.get("steps_to_threshold", {})
    recursive, monolithic = (reached.get(name, {}).get("median") for name in (first.name, best))
    # The seeds' last points scatter around the threshold, their mean: whoever did not get there did at the end of the run.
    own = monolithic if monolithic is not None else comparison.get("budget")
    return Pair(summary["experiments"].get(first.name), summary["experiments"].get(best), (recursive, own))


# -- the table -----------------------------------------------------------------------------------------------


def source_and_ours(results: Path) -> list[list[str]]:
    """A row per line of the source's table: its success rates and ours, and whether RecursivePPO's is at least the source's."""
    rows = [
        [
            "task",
            "a call sees",
            "source: monolithic",
            "source: RAO",
            "strongest monolithic agent here",
            "RecursivePPO here",
            "source's RAO figure",
        ]
    ]
    for line in LINES:
        own, other, _ = pair_of(results, line.suite)
        best = _highest(own, line.task)
        ours = [
            f"{_score(other, line.task)} ({other['label']}, {_thousands(other['steps'])} steps, {_seeds(other)})" if other else "",
            f"**{_score(own, line.task)}** ({_thousands(own['steps'])} steps, {_seeds(own)})" if own else "",
            "" if best is None else REACHED if best >= line.target else MISSED,
        ]
        rows.append([line.label, line.context, line.their_monolithic, line.their_recursive, *ours])
    return rows


def how_much_sooner(results: Path) -> list[list[str]]:
    """A row per line of the source's table: its speed-up, steps to the monolithic agent's score, and the critical path."""
    rows = [
        ["task", "source: speed-up", "steps to the monolithic agent's score", f"{FEWER}x fewer", "steps of an episode / critical path"],
    ]
    for line in LINES:
        pair = pair_of(results, line.suite)
        rows.append([line.label, line.their_speedup, *_fewer(pair), _path(pair.recursive, line.task)])
    return rows


def _fewer(pair: Pair) -> tuple[str, str]:
    """Steps of both agents to the monolithic one's final score, and whether that is few enough."""
    own, other = pair.steps
    if pair.recursive is None or pair.monolithic is None or other is None:
        return "", ""
    if own is None:
        return f"never in {_thousands(pair.recursive['steps'])}; {_thousands(other)}", MISSED
    ratio = other / own
    return f"{_thousands(own)}; {_thousands(other)} ({ratio:.1f}x)", REACHED if ratio >= FEWER else MISSED


def larger_tasks(results: Path) -> list[list[str]]:
    """A row per size of each family: what both agents score there, trained on the smaller ones only."""
    rows = [["family", "scored on", "RecursivePPO", "strongest monolithic agent"]]
    for line in LINES:
        pair = pair_of(results, line.suite)
        (figure,) = SUITES[line.suite].sizes
        for position, (task, size) in enumerate(figure.tasks.items()):
            own = _score(pair.recursive, task)
            rows.append([figure.title if position == 0 else "", size, f"**{own}**" if own else "", _score(pair.monolithic, task)])
    return rows


def where_it_does_not_help(results: Path) -> list[list[str]]:
    """A row per comparison that recursion is not expected to win: both scores, and the difference of the sampled ones."""
    rows = [["why not", "task", "RecursivePPO", "monolithic agent", "difference, sampled"]]
    for limit in COMPARED:
        own, other = _rows_of(results, limit)
        rates = [row["scores"][task_name(limit.task)]["sampled"]["iqm"]["value"] if row else None for row in (own, other)]
        difference = "" if rates[0] is None or rates[1] is None else f"{rates[0] - rates[1]:+.3f}"
        cells = [f"{_score(row, limit.task)} ({_thousands(row['steps'])} steps, {_seeds(row)})" if row else "" for row in (own, other)]
        rows.append([limit.why, limit.label, *cells, difference])
    return rows


def _rows_of(results: Path, limit: Limit) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    found = kept_summary(results, limit.suite)["experiments"]
    name = task_name(limit.task)
    own, other = (
        (row if name in row["scores"] else None) if (row := found.get(key)) else None for key in (limit.recursive, limit.monolithic)
    )
    return own, other


def _highest(row: Mapping[str, Any] | None, task: str) -> float | None:
    """Success, greedy or sampled, whichever is higher."""
    found = row["scores"].get(task_name(task)) if row else None
    return max(found[mode]["iqm"]["value"] for mode in found) if found else None


def _score(row: Mapping[str, Any] | None, task: str) -> str:
    found = row["scores"].get(task_name(task)) if row else None
    return " / ".join(ui.interval(found[mode]["iqm"]) for mode in MODES) if found else ""


def _path(row: Mapping[str, Any] | None, task: str) -> str:
    """Steps of an episode and its critical path, greedy, and how many times shorter that is."""
    found = row["scores"].get(task_name(task), {}).get("greedy") if row else None
    return f"{found['steps']:,.0f} / {found['critical_path']:,.0f} ({found['steps'] / found['critical_path']:.1f}x)" if found else ""


def _seeds(row: Mapping[str, Any]) -> str:
    count = len(row["seeds"])
    return f"{count} seed{'s' if count > 1 else ''}"


def _thousands(steps: float) -> str:
    return f"{steps / 1000:,.0f} k"


TABLES: dict[str, Callable[[Path], list[list[str]]]] = {
    "table": source_and_ours,
    "table speed": how_much_sooner,
    "table sizes": larger_tasks,
    "table limits": where_it_does_not_help,
}
"""By the names that documents mark their places with; each takes the folder of the results."""


# -- the figures ---------------------------------------------------------------------------------------------


def draw(results: Path, images: Path) -> list[Path]:
    """Success against steps and success against size, four panels each, and the comparisons of `where_it_does_not_help`."""
    from rao_baselines.figures import choice_bars, curve_panels, size_panels

    curves: dict[str, dict[str, Any]] = {}
    sizes: dict[str, tuple[list[str], dict[str, list[statistics.Estimate | None]]]] = {}
    heights: dict[str, dict[str, float]] = {}
    for line in LINES:
        suite = SUITES[line.suite]
        (figure,) = suite.sizes
        found = collect(suite.rows, results / line.suite)
        pair = pair_of(results, line.suite)
        rows = [row for row in suite.rows if row.name in found and row.label in _labels(pair) and row.group == suite.rows[0].group]
        title = suite.titles[suite.rows[0].group]
        curves[title] = {row.label: [r["curve"] for r in found[row.name]] for row in rows}
        heights[title] = line.drawn
        scores = {
            row.label: [
                _estimate([s["sampled"]["success"] for r in found[row.name] if (s := scored(row, r, task))]) for task in figure.tasks
            ]
            for row in rows
        }
        sizes[figure.title] = list(figure.tasks.values()), scores
    written: list[Path] = []
    if any(curves.values()):
        written += curve_panels(
            curves, images / "table-curves", title="Success on fixed seeds (actions sampled)", columns=2, heights=heights
        )
        written += size_panels(
            sizes, images / "table-sizes", title="Larger tasks than trained on: success on fixed seeds (actions sampled)"
        )
    bars: dict[str, dict[str, dict[str, list[float]]]] = {}
    for limit in COMPARED:
        both = _rows_of(results, limit)
        rates = [row["scores"][task_name(limit.task)]["sampled"]["per_seed"] if row else [] for row in both]
        if any(rates):
            bars.setdefault(limit.why, {})[limit.label] = {"monolithic": rates[1], "recursive": rates[0]}
    if bars:
        one = {"": {label: choices for labels in bars.values() for label, choices in labels.items()}}
        written += choice_bars(one, images / "table-limits", title="Where recursion is not expected to help (actions sampled)")
    return written


def _labels(pair: Pair) -> set[str]:
    return {row["label"] for row in (pair.recursive, pair.monolithic) if row}


def _estimate(rates: list[float]) -> statistics.Estimate | None:
    return statistics.estimate(rates) if rates else None
