"""What was measured of runners, as tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rao_baselines import figures
from rao_baselines.parallel_model import SPREAD, Costs, fit, wall_clock
from rao_baselines.runs import read_json
from rao_baselines.statistics import Estimate

PREDICT, SEQUENTIAL, BATCHED = "predict", "sequential", "batched"
GROWTH = ("longseq-1k", "longseq-10k", "longseq-100k", "longseq-1M")
NODES = (1, 10, 100, 1_000)
FRAMES = 1_000_000
STEPS_PER_FRAME = 1.5
"""Of the long sequences' trees: about half of the frames only answer, the others spawn once and answer."""
LATENCIES = {"one machine": 0.0, "a local network": 0.0005, "data centres apart": 0.05}
"""Assumed, in seconds there and back."""


def ray_name(workers: int) -> str:
    """What results call a cluster with so many workers."""
    return f"ray, {workers} worker{'s' if workers > 1 else ''}"


NOTHING: dict[str, Any] = {"subjects": {}, "leaves": []}


def load(results: Path) -> dict[str, Any]:
    """What `rao bench parallel` has kept."""
    path = results / "parallel.json"
    return read_json(path) if path.is_file() else NOTHING


def runners(kept: Mapping[str, Any]) -> list[list[str]]:
    """Wall-clock of a tree by runner."""
    heading = ["tree", "steps / critical path", "`predict`, `step`", "sequential", "batched", "one of many", "Ray, 1 worker", "Ray, 2"]
    rows = [heading]
    for found in kept["subjects"].values():
        seconds = found["seconds"]
        plain = seconds[PREDICT]
        cells = [seconds.get(name) for name in (SEQUENTIAL, BATCHED)] + [found["many"]] + [seconds.get(ray_name(n)) for n in (1, 2)]
        shown = [f"{1e3 * value:,.1f} ms ({plain / value:.2f}x)" if value else "" for value in cells]
        ratio = found["steps"] / found["critical_path"]
        path = f"{found['steps']:,.0f} / {found['critical_path']:,.0f} ({ratio:.2f}x)"
        rows.append([found["label"], path, f"{1e3 * plain:,.1f} ms", *shown])
    return rows


def leaves(kept: Mapping[str, Any]) -> list[list[str]]:
    """Wall-clock by what a step costs, measured, and what the model says."""
    found = kept["leaves"]
    rows = [["a step costs besides", "batched", "Ray, 1 worker", "Ray, 2 workers", "2 against 1", "2 against batched", "model: 1, 2"]]
    costs = fit(found, ray_name(1), BATCHED) if found else Costs(0, 0, 0)
    for row in found:
        here, one, two = (row["seconds"][name] for name in (BATCHED, ray_name(1), ray_name(2)))
        there = costs.costlier(row["milliseconds"])
        model = ", ".join(f"{1e3 * wall_clock(there, row['steps'], n, SPREAD * n):,.0f} ms" for n in (1, 2))
        times = [f"{1e3 * value:,.0f} ms" for value in (here, one, two)]
        rows.append([f"{row['milliseconds']:g} ms", *times, f"{one / two:.2f}x", f"{here / two:.2f}x", model])
    return rows


def costs(kept: Mapping[str, Any]) -> list[list[str]]:
    """What sending costs, fitted, and from which cost of a step on it pays, of those measured."""
    found = kept["leaves"]
    rows = [["", ""]]
    if found:
        measured = fit(found, ray_name(1), BATCHED)
        rows += [
            ["a step, batched, at no cost besides", f"{1e3 * measured.step:.3f} ms"],
            ["sending a sub-tree and taking its end back, fitted", f"{1e3 * measured.packet:.1f} ms"],
            ["least cost measured at which two workers beat none", _first(found, lambda s: s[ray_name(2)] < s[BATCHED])],
            ["least cost measured at which two workers are 1.6 times one", _first(found, lambda s: s[ray_name(1)] > 1.6 * s[ray_name(2)])],
        ]
    return rows


def _first(found: Sequence[Mapping[str, Any]], pays: Callable[[Mapping[str, float]], bool]) -> str:
    return next((f"{row['milliseconds']:g} ms a step" for row in found if pays(row["seconds"])), "none")


def scale(kept: Mapping[str, Any]) -> list[list[str]]:
    """What the model says of a tree of a million frames."""
    found = kept["leaves"]
    rows = [["a step costs", "latency", *(f"{n:,} worker{'s' if n > 1 else ''}" for n in NODES)]]
    if not found:
        return rows
    measured = fit(found, ray_name(1), BATCHED)
    steps = FRAMES * STEPS_PER_FRAME
    for milliseconds in (0.0, 1.0, 100.0):
        for name, latency in LATENCIES.items():
            costs = measured.costlier(milliseconds)._replace(latency=latency)
            alone = steps * costs.step
            cells = [f"{_span(t := wall_clock(costs, steps, n, SPREAD * n))} ({alone / t:,.0f}x)" for n in NODES]
            rows.append([f"{1e3 * costs.step:.2g} ms", name, *cells])
    return rows


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


TABLES = {"parallel runners": runners, "parallel leaves": leaves, "parallel costs": costs, "parallel scale": scale}


def draw(kept: Mapping[str, Any], images: Path) -> list[Path]:
    """How the cost of a tree grows with its size."""
    subjects = [kept["subjects"][name] for name in GROWTH if name in kept["subjects"]]
    if not subjects:
        return []
    engines = list(dict.fromkeys(engine for subject in subjects for engine in subject["seconds"]))
    series = {
        {PREDICT: "predict, step"}.get(engine, engine): [
            None if (value := subject["seconds"].get(engine)) is None else Estimate(value, value, value, 1) for subject in subjects
        ]
        for engine in engines
    }
    sizes = [subject["label"].rpartition(", ")[2].removesuffix(" records") for subject in subjects]
    return figures.success_by_size(
        series, sizes, images / "parallel-growth", title="Long sequences: one tree", axis="records", measure="seconds", log=True
    )
