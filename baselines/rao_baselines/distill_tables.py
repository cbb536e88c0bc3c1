"""The tables of what self-distillation brings, costs, and leaves behind as a student: each beside the same runs without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rao_baselines import statistics
from rao_baselines.experiments import Experiment
from rao_baselines.experiments.distillation import DISTILLATION
from rao_baselines.runs import read_json
from rao_baselines.suite import collect

SHARE = 0.9
"""Of the final success without distillation: what "steps to 90 %" waits for."""

WITHOUT, STUDENTS = "without", ("light",)
FAMILIES = {"maze": "Maze-20x20", "algebra": "Algebra modulo 2, depth 4"}
Result = dict[str, Any]


def gains(results: Path, family: str) -> list[list[str]]:
    """Every piece on one family: steps to 90 % of the final success without it, final success, and a larger size without training there."""
    found = _collected(results)
    base = found.get(f"{family}_{WITHOUT}", [])
    header = ["self-distillation", "seeds", "steps to 90 %", "of without", "success, greedy / sampled", "larger, greedy / sampled"]
    if not base:
        return [header]
    target = SHARE * float(statistics.iqm(np.array([result["curve"][-1]["sampled"]["success"] for result in base])))
    usual = _steps(base, target)
    rows = [header]
    for row in DISTILLATION.rows:
        runs = found.get(row.name, [])
        if row.group != family or not runs:
            continue
        steps = _steps(runs, target)
        larger = [next(iter(run["transfer"].values())) for run in runs]
        rows.append(
            [
                _label(row),
                str(len(runs)),
                _interval(steps, 0, 1e-3, " k"),
                "" if row.name.endswith(WITHOUT) or steps is None or usual is None else f"{_mean(steps) / _mean(usual):.2f}x",
                _modes([run["final"] for run in runs]),
                _modes(larger),
            ]
        )
    return rows


def students(results: Path) -> list[list[str]]:
    """Students that are kept beside the policy: their size, and what they score by themselves."""
    found = _collected(results)
    rows = [
        ["trained on", "student", "seeds", "parameters, of the policy's", "student, greedy / sampled", "of the policy without, sampled"]
    ]
    for family, task in FAMILIES.items():
        base = found.get(f"{family}_{WITHOUT}", [])
        for row in DISTILLATION.rows:
            runs = [run for run in found.get(row.name, []) if (run.get("distillation") or {}).get("student")]
            if row.name not in [f"{family}_{name}" for name in STUDENTS] or not runs or not base:
                continue
            each = [run["distillation"]["student"] for run in runs]
            share = float(np.mean([student["parameters"] / run["parameters"] for student, run in zip(each, runs, strict=True)]))
            kept = [student["sampled"]["success"] for student in each]
            usual = float(statistics.iqm(np.array([run["final"]["sampled"]["success"] for run in base])))
            size = f"{each[0]['parameters']:,} ({share:.0%})"
            rows.append([task, row.label, str(len(runs)), size, _modes(each), f"{float(statistics.iqm(np.array(kept))) / usual:.1%}"])
    return rows


def costs(results: Path) -> list[list[str]]:
    """Training steps a second, by where the distilling is done."""
    path = results / "distillation_speed.json"
    measured = read_json(path) if path.is_file() else {"steps_per_second": {}, "shares": {}}
    rows = [["self-distillation", "steps/s", "of without"]]
    return rows + [[name, f"{value:,.0f}", f"{measured['shares'][name]:.0%}"] for name, value in measured["steps_per_second"].items()]


TABLES: dict[str, Callable[[Path], list[list[str]]]] = {
    **{f"distillation gains {family}": lambda results, family=family: gains(results, family) for family in FAMILIES},  # type: ignore[misc]
    "distillation students": students,
    "distillation costs": costs,
}
"""By the name that a document gives, from the folder of results."""


def _collected(results: Path) -> dict[str, list[Result]]:
    return collect(DISTILLATION.rows, results / "distillation")


def _steps(runs: Sequence[Result], target: float) -> list[float] | None:
    """Steps at which each run first has this success while learning; None if one never has."""
    steps = [statistics.steps_to(run["curve"], target) for run in runs]
    known = [value for value in steps if value is not None]
    return known if len(known) == len(steps) else None


def _mean(values: Sequence[float]) -> float:
    return statistics.estimate(values).value


def _label(row: Experiment) -> str:
    return "without" if row.name.endswith(WITHOUT) else row.label


def _interval(values: Sequence[float] | None, digits: int, factor: float = 1.0, unit: str = "") -> str:
    """Interquartile mean with its 95 % interval."""
    if values is None:
        return "not all get there"
    value, low, high, _ = (factor * part for part in statistics.estimate(values))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]{unit}"


def _modes(scores: Sequence[Any]) -> str:
    return " / ".join(_interval([score[mode]["success"] for score in scores], 3) for mode in ("greedy", "sampled"))
