"""Finding runs and results, and comparing groups of them over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rao_baselines import statistics
from rao_baselines.errors import UserError
from rao_baselines.runs import read_json

Result = dict[str, Any]
FIELDS = ("name", "env_id", "seed", "steps", "final", "curve")


def find_results(paths: Iterable[Path]) -> list[Result]:
    """Results in the given files, run folders, or folders of those at any depth; in a fixed order, none twice.

    Raises:
        UserError: a path that does not exist or holds no result, or a file that is none.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_file():
            found = [path]
        elif path.is_dir():
            found = sorted(path.rglob("result.json")) or sorted(file for file in path.rglob("*.json") if _is_result(file))
        else:
            raise UserError(f"there is no file or folder {path}")
        if not found:
            raise UserError(f"there is no finished run in {path}")
        files.update(dict.fromkeys(file.resolve() for file in found))
    results = []
    for file in files:
        value = read_json(file)
        if not isinstance(value, dict) or any(name not in value for name in FIELDS):
            raise UserError(f"{file} is not the result of a run")
        results.append(value)
    return results


def _is_result(file: Path) -> bool:
    try:
        value = read_json(file)
    except UserError:
        return False
    return isinstance(value, dict) and all(name in value for name in FIELDS)


def group_results(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """Results by (name, environment), in order of appearance.

    Raises:
        UserError: a group that has the same seed twice.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["name"], label_env(result)), []).append(result)
    for (name, env), members in groups.items():
        seeds = [member["seed"] for member in members]
        if len(set(seeds)) < len(seeds):
            raise UserError(f"{name} on {env} has seed {max(seeds, key=seeds.count)} twice: name unlike runs apart (rao train --name)")
    return groups


def label_env(result: Result) -> str:
    """The environment with the keyword arguments that make it another task."""
    arguments = {key: value for key, value in result.get("settings", {}).get("env_kwargs", {}).items() if key != "spawn"}
    extra = ", ".join(f"{key}={value}" for key, value in sorted(arguments.items()))
    return str(result["env_id"]) + (f" ({extra})" if extra else "")


def compare(results: Sequence[Result], threshold: float | None = None, mode: str = "sampled") -> dict[str, Any]:
    """Per group: final scores over seeds, steps to a threshold.

    Args:
        results: of runs.
        threshold: of the curve's score; None takes, per environment, where the curve of the best agent without spawn actions ends, or
            0.9 where there is none.
        mode: the curve that the threshold is on.

    Raises:
        UserError: see `group_results`; or thresholds on runs with different measures.
    """
    groups = group_results(results)
    rows: list[dict[str, Any]] = []
    for (name, env), members in groups.items():
        key = measure(members)
        rows.append(
            {
                "name": name,
                "environment": env,
                "runs": len(members),
                "seeds": [member["seed"] for member in members],
                "steps": max(member["steps"] for member in members),
                "spawn": bool(members[0].get("spawn")),
                "measure": key,
                **{way: _scores(members, way, key) for way in ("greedy", "sampled")},
                "curve_end": float(statistics.iqm(np.array([member["curve"][-1][mode][key] for member in members], np.float64))),
                "steps_per_second": sum(member.get("steps_per_second", 0.0) for member in members) / len(members),
            }
        )
    for row in rows:
        members = groups[row["name"], row["environment"]]
        level = _threshold(rows, row, mode) if threshold is None else threshold
        steps = [statistics.steps_to(member["curve"], level, mode, row["measure"]) for member in members]
        reached = [value for value in steps if value is not None]
        row["threshold"] = level
        row["reached"] = len(reached)
        row["steps_to_threshold"] = statistics.estimate(reached, statistics.mean).as_dict() if len(reached) == len(steps) else None
    return {"mode": mode, "rows": rows}


def measure(results: Sequence[Result]) -> str:
    """What a group is scored by: "success", or "return" where an environment does not report success."""
    return "success" if all(result["final"]["sampled"]["success"] is not None for result in results) else "return"


def _scores(members: Sequence[Result], mode: str, key: str) -> dict[str, Any]:
    values = [float(member["final"][mode][key]) for member in members]
    return {
        "mean": statistics.estimate(values, statistics.mean).as_dict(),
        "iqm": statistics.estimate(values).as_dict(),
        "per_seed": values,
    }


def _threshold(rows: Sequence[dict[str, Any]], row: dict[str, Any], mode: str) -> float:
    rivals = [other for other in rows if other["environment"] == row["environment"] and not other["spawn"]]
    if not rivals:
        return 0.9
    return max(float(other["curve_end"]) for other in rivals)
