"""`rao bench maze`: run a table of experiments, keep what every run gave, and sum it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rao_baselines import statistics
from rao_baselines.errors import UserError, did_you_mean
from rao_baselines.experiments import Comparison, Experiment, Suite
from rao_baselines.pool import Engine, Event, run_all
from rao_baselines.runs import RunFolder, check_folder, read_json, slug, write_json
from rao_baselines.spec import TrainSpec

MODES = ("greedy", "sampled")
MEASURES = {"nodes": "frames per episode", "deepest": "deepest level used", "critical_path": "critical path"}
"""What figures call the means of an evaluation."""


def choose(rows: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """The rows whose name or group is in `only`; all of them when it is empty.

    Raises:
        UserError: a name that is neither.
    """
    names = {row.name for row in rows} | {row.group for row in rows}
    for name in only:
        if name not in names:
            raise UserError(f"no experiment is called {name!r}.{did_you_mean(name, sorted(names))}")
    return [row for row in rows if not only or row.name in only or row.group in only]


def result_path(out: Path, row: Experiment, seed: int) -> Path:
    """Where the result of one run of the suite is kept."""
    return out / "runs" / row.name / f"{seed}.json"


def run_suite(
    rows: Sequence[Experiment],
    *,
    out: Path,
    work: Path,
    jobs: int | None,
    scale: float = 1.0,
    episodes: int = 500,
    engine: Engine | None = None,
    on_start: Callable[[list[tuple[Experiment, TrainSpec]]], None] = lambda todo: None,
    on_event: Callable[[tuple[Experiment, TrainSpec], Event], None] = lambda run, event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, list[str]]:
    """Run what has no result yet, `jobs` at a time; every finished run is kept at once, whatever happens to the others.

    A kept result without the score of a task that its row has come to ask for is done, too, if its model is still there: scored, not
    trained again.

    Args:
        rows: the experiments.
        out: folder of the results, kept in version control.
        work: folder of the runs themselves, models and checkpoints included.
        jobs: processes at a time; None leaves it to the engine.
        scale: shortens the runs, for a trial.
        episodes: of the final scores.
        engine: what trains; None for processes of this machine.
        on_start: told which runs are to be done.
        on_event: told what happens.
        should_stop: asked often; True lets the running ones save and starts no more.

    Returns:
        Names of runs by outcome: "kept" (there before), "done", "failed", "stopped", "waiting".
    """
    runs = [(row, spec) for row in rows for spec in row.specs(work, scale=scale, episodes=episodes)]
    todo = [(row, spec) for row, spec in runs if not _complete(result_path(out, row, spec.seed), spec)]
    # First seeds first: after a while there is something to see of every experiment.
    todo.sort(key=lambda run: run[1].seed)
    check_folder(out)
    on_start(todo)

    def note(event: Event) -> None:
        row, spec = todo[event.run]
        if event.kind == "done":
            write_json(result_path(out, row, spec.seed), read_json(spec.folder() / "result.json"))
        on_event(todo[event.run], event)

    outcome = (engine or run_all)([spec for _, spec in todo], jobs, note, should_stop)
    names = {kind: [_run_name(*todo[i]) for i in indices] for kind, indices in outcome.items()}
    return {"kept": [_run_name(row, spec) for row, spec in runs if (row, spec) not in todo], **names}


def _complete(path: Path, spec: TrainSpec) -> bool:
    """Whether a result is kept and lacks nothing that could be added without training."""
    if not path.is_file():
        return False
    scored = read_json(path)["transfer"]
    return all(task in scored for task in spec.transfer) or not RunFolder(spec.folder()).model.is_file()


def _run_name(row: Experiment, spec: TrainSpec) -> str:
    return f"{row.name}/{spec.seed}"


def collect(rows: Sequence[Experiment], out: Path) -> dict[str, list[dict[str, Any]]]:
    """All kept results by experiment, seeds in order; experiments without any are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        results = [read_json(path) for seed in range(row.seeds) if (path := result_path(out, row, seed)).is_file()]
        if results:
            found[row.name] = results
    return found


def aggregate(rows: Sequence[Experiment], out: Path) -> dict[str, Any]:
    """Sum up what is there: per experiment the final scores and steps to the strongest monolithic agent's, per group the comparison.

    Writes `summary.json` into `out` and returns it.

    Raises:
        UserError: there are no results at all.
    """
    results = collect(rows, out)
    if not results:
        raise UserError(f"there are no results in {out} yet: run the experiments first")
    summary: dict[str, Any] = {"experiments": {}, "groups": {}}
    for row in rows:
        if row.name in results:
            summary["experiments"][row.name] = summarize(row, results[row.name])
    for group in dict.fromkeys(row.group for row in rows):
        members = [row for row in rows if row.group == group and row.name in results]
        if members:
            summary["groups"][group] = compare_group(members, results, summary["experiments"])
    write_json(out / "summary.json", summary)
    return summary


def summarize(row: Experiment, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One experiment over its seeds."""
    scores: dict[str, Any] = {}
    for task in dict.fromkeys([row.task, *map(row.plain, row.transfer)]):
        for mode in MODES:
            values = [found[mode] for r in results if (found := scored(row, r, task))]
            rates = [value["success"] for value in values if value["success"] is not None]
            if rates:
                scores.setdefault(task_name(task), {})[mode] = {
                    "iqm": statistics.estimate(rates).as_dict(),
                    "mean": statistics.estimate(rates, statistics.mean).as_dict(),
                    "per_seed": rates,
                    **{
                        name: round(float(np.mean([value["summary"][name]["mean"] for value in values])), 2)
                        for name in ("steps", "critical_path", "nodes", "deepest")
                        if all(value["summary"].get(name) for value in values)
                    },
                }
    averages = [value for r in results if (value := statistics.average(r["curve"])) is not None]
    return {
        "label": row.label,
        "group": row.group,
        "algorithm": row.algorithm,
        "steps": row.steps,
        "seeds": [r["seed"] for r in results],
        "scores": scores,
        "over_the_run": statistics.estimate(averages).as_dict() if averages else None,
        "steps_per_second": round(float(np.mean([r["steps_per_second"] for r in results])), 1),
        "commits": sorted({r["commit"] or "unknown" for r in results}),
    }


def scored(row: Experiment, result: dict[str, Any], task: str) -> dict[str, Any] | None:
    """What one run of `row` scored on `task`; None if it was not scored there."""
    if task == row.task:
        final: dict[str, Any] = result["final"]
        return final
    return next((found for text, found in result["transfer"].items() if row.plain(text) == task), None)


def task_name(task: str) -> str:
    """A task as tables call it: "LongSeq-10k-v0 query=count"."""
    env_id, _, arguments = task.partition("?")
    return " ".join([slug(env_id), *(part for part in arguments.split("&") if part)])


def compare_group(members: Sequence[Experiment], results: dict[str, list[dict[str, Any]]], summaries: dict[str, Any]) -> dict[str, Any]:
    """The strongest monolithic agent of a group, and how many steps every other one needs to reach its final score."""
    monolithic = [row for row in members if not results[row.name][0]["spawn"]]
    if not monolithic:
        return {"strongest_monolithic": None}
    key = task_name(members[0].task)

    best = max(monolithic, key=lambda row: float(summaries[row.name]["scores"][key]["sampled"]["iqm"]["value"]))
    # On the curve's own seeds, where the others are timed.
    threshold = float(statistics.iqm(np.array([r["curve"][-1]["sampled"]["success"] for r in results[best.name]])))
    reached = {}
    for row in members:
        steps = [statistics.steps_to(r["curve"], threshold) for r in results[row.name]]
        known = [value for value in steps if value is not None]
        reached[row.name] = {
            "per_seed": steps,
            "reached": len(known),
            # Seeds that never reach it count as later than all others, so the median is not flattered by leaving them out.
            "median": float(np.median([np.inf if value is None else value for value in steps])) if len(known) * 2 > len(steps) else None,
        }
    return {"strongest_monolithic": best.name, "threshold": threshold, "budget": best.steps, "steps_to_threshold": reached}


def export_models(rows: Sequence[Experiment], out: Path, work: Path, folder: Path, suffix: str = "") -> list[Path]:
    """Write the policy of each experiment's median seed into `folder`, as NAME + `suffix`, with its scores and provenance beside it.

    Seeds whose run is no longer under `work` cannot be chosen; experiments without any are left out.
    """
    from rao_agents import load_safely, save_policy

    written = []
    for row in rows:
        runs = [(spec, path) for spec in row.specs(work) if (path := result_path(out, row, spec.seed)).is_file()]
        runs = [(spec, path) for spec, path in runs if (spec.folder() / "model.zip").is_file()]
        if not runs:
            continue
        ranked = sorted(
            ((read_json(path), spec) for spec, path in runs), key=lambda run: (run[0]["final"]["sampled"]["success"], -run[1].seed)
        )
        result, spec = ranked[len(ranked) // 2]
        target = folder / f"{row.name}{suffix}.zip"
        save_policy(load_safely(spec.folder() / "model.zip", device="cpu").policy, target)
        kept = {key: value for key, value in result.items() if key != "curve"}
        write_json(target.with_suffix(".json"), kept | {"chosen": f"the median of {len(ranked)} seeds by sampled success"})
        written += [target, target.with_suffix(".json")]
    return written


def curves_name(suite: Suite, group: str) -> str:
    """What the figure of a group's learning curves is called; no two of all suites are called the same."""
    if suite.prefix:
        return f"{suite.prefix}-{group}-curves"
    first = next(row for row in suite.rows if row.group == group)
    size = slug(first.task.partition("?")[0]).partition("-v")[0].lower()
    return f"{size}-curves" + ("" if group == suite.rows[0].group else f"-{group}")


def draw(suite: Suite, out: Path, images: Path) -> list[Path]:
    """Learning curves, one figure per group of which there are results, and success against size, as the suite says."""
    from rao_baselines.figures import learning_curves, success_by_size

    results = collect(suite.rows, out)
    written: list[Path] = []
    for group, title in suite.titles.items():
        members = [row for row in suite.rows if row.group == group and row.name in results]
        if not members:
            continue
        path = images / curves_name(suite, group)
        series = {row.label: [r["curve"] for r in results[row.name]] for row in members}
        written += learning_curves(series, path, title=f"{title}: success on fixed seeds (actions sampled)")
    for figure in suite.sizes:
        scores = {
            row.label: [_rate(row, results[row.name], task, figure.measure) for task in figure.tasks]
            for row in suite.rows
            if row.group == figure.group and row.name in results
        }
        scores = {label: rates for label, rates in scores.items() if sum(rate is not None for rate in rates) > 1}
        if scores:
            what = MEASURES.get(figure.measure, figure.measure)
            title = f"{figure.title}: {what} on fixed seeds (actions sampled)"
            path = images / figure.name
            written += success_by_size(scores, list(figure.tasks.values()), path, title=title, axis=figure.axis, measure=what)
    for sweep in suite.sweeps:
        by_name = {row.name: row for row in suite.rows}
        points = list(dict.fromkeys(point for series in sweep.series.values() for point in series))
        scores = {
            label: [_rate(by_name[series[p]], results.get(series[p], []), by_name[series[p]].task) if p in series else None for p in points]
            for label, series in sweep.series.items()
        }
        if any(rate is not None for rates in scores.values() for rate in rates):
            written += success_by_size(scores, points, images / sweep.name, title=sweep.title, axis=sweep.axis)
    for comparison in suite.comparisons:
        written += _draw_comparison(comparison, results, images)
    return written


def _draw_comparison(comparison: Comparison, results: Mapping[str, Sequence[dict[str, Any]]], images: Path) -> list[Path]:
    """The bars of all families, and the learning curves of each, of which there are results."""
    from rao_baselines.figures import choice_bars, curve_panels

    def pick(family: str, read: Callable[[dict[str, Any]], Any]) -> dict[str, dict[str, list[Any]]]:
        return {
            question: {label: [read(r) for r in results.get(comparison.row(family, choice), [])] for label, choice in choices.items()}
            for question, choices in comparison.questions.items()
        }

    present = {f: name for f, name in comparison.families.items() if any(row.startswith(f"{f}_") for row in results)}
    if not present:
        return []
    bars = {name: pick(family, lambda r: r["final"]["sampled"]["success"]) for family, name in present.items()}
    written = choice_bars(bars, images / comparison.name, title="Success on fixed seeds (actions sampled), one choice changed at a time")
    for family, name in present.items():
        title = f"{name}: success on fixed seeds while learning (actions sampled)"
        written += curve_panels(pick(family, lambda r: r["curve"]), images / f"{comparison.name}-{family}-curves", title=title)
    return written


def _rate(row: Experiment, results: Sequence[dict[str, Any]], task: str, measure: str = "success") -> statistics.Estimate | None:
    """Success (or another mean) of the final models of `row` on `task`, actions sampled; None where it was not measured."""
    found = [scores["sampled"] for r in results if (scores := scored(row, r, task))]
    rates = [each["success"] if measure == "success" else each["summary"][measure]["mean"] for each in found]
    return statistics.estimate(rates) if rates else None
