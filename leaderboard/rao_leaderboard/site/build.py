"""Writing the site: the tables, charts and provenance of all submissions, and episodes that can be watched."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rao_leaderboard import protocol, traces
from rao_leaderboard.claims import run_digest
from rao_leaderboard.ranking import ALL, Row, Table, row_of, tables
from rao_leaderboard.reading import BrokenSubmissionError, Loaded, read_submission
from rao_leaderboard.schema import Submission
from rao_leaderboard.site import charts
from rao_leaderboard.site.episodes import Chosen, choose, record
from rao_leaderboard.verify import verify

ASSETS = ("style.css", "page.js", "viewer.js")
FAMILIES = tuple(dict.fromkeys(task.family for task in protocol.TASKS))
Progress = Callable[[int, int], None]
"""Called with the episodes that were recorded and with their number."""


def build(
    submissions: str | Path,
    out: str | Path,
    *,
    episodes: bool = True,
    rerun: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the whole site.

    Args:
        submissions: folder of submissions, each of which is verified: the page says so.
        out: folder to write; what an earlier build wrote there is replaced, once the new one is complete.
        episodes: also record episodes to be watched (needs the extra "render").
        rerun: also let ONNX policies act again, for their second badge (needs the extra "onnx").
        progress: told how far it is.

    Returns:
        The path of `index.html`.

    Raises:
        BrokenSubmissionError: a folder is no submission, or one that does not hold.
        FileNotFoundError: there is no folder of submissions.
        FileExistsError: `out` is there, and no site.
    """
    folder, target = Path(submissions), Path(out)
    if target.exists() and not (target / "index.html").is_file() and any(target.iterdir()):
        raise FileExistsError(f"{target} is there already, and holds no leaderboard")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    paths = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    loaded, reruns = [], {}
    for path in paths:
        report = verify(path, rerun=rerun)
        if not report.ok:
            raise BrokenSubmissionError([problem._replace(place=f"{report.name}: {problem.place}") for problem in report.problems])
        loaded.append(read_submission(path))
        reruns[report.name] = report.rerun or 0

    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(fresh, loaded, episodes, reruns, progress)
        fresh.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target / "index.html"


def _write(folder: Path, loaded: Sequence[Loaded], episodes: bool, reruns: Mapping[str, int], progress: Progress | None) -> None:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    chosen = _choose(loaded) if episodes else {}
    entries = [entry.submission for entry in loaded]
    environment = Environment(
        loader=PackageLoader("rao_leaderboard.site", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["number"] = _number
    context = {
        "tables": [_table(table, entries, chosen, reruns) for table in tables(entries)],
        "tracks": protocol.TRACKS,
        "all": ALL,
        "families": FAMILIES,
        "budget": protocol.STANDARD_BUDGET,
        "runs": protocol.RUNS,
        "episodes": protocol.EPISODES,
        "threshold": protocol.THRESHOLD,
        "protocol": protocol.PROTOCOL,
        "figures": [*_learning(entries), *_sizes(entries)],
        "submissions": [_provenance(entry, reruns) for entry in entries],
    }
    (folder / "index.html").write_text(environment.get_template("index.html.j2").render(context), encoding="utf-8")
    listed = {c.key: {"title": _title(entry, c), "back": f"index.html#about-{entry.name}"} for entry, c, _ in _flat(loaded, chosen)}
    (folder / "watch.html").write_text(
        environment.get_template("watch.html.j2").render(episodes=sorted(listed.items(), key=lambda item: item[1]["title"])),
        encoding="utf-8",
    )
    for name in ASSETS:
        (folder / name).write_bytes(resources.files("rao_leaderboard.site").joinpath("assets", name).read_bytes())
    (folder / "data.json").write_text(_data(entries), encoding="utf-8")
    if chosen:
        (folder / "episodes").mkdir()
        todo = list(_flat(loaded, chosen))
        for k, (entry, c, evaluation) in enumerate(todo):
            if progress is not None:
                progress(k, len(todo))
            about = {"title": _title(entry, c), "seed": str(c.seed), "env_id": c.env_id}
            (folder / "episodes" / f"{c.key}.js").write_text(record(c, evaluation, about), encoding="utf-8")
        if progress is not None:
            progress(len(todo), len(todo))


def _choose(loaded: Sequence[Loaded]) -> dict[tuple[str, str], list[Chosen]]:
    """By submission and environment: the episodes to be watched, of the first run that has results there."""
    found: dict[tuple[str, str], list[Chosen]] = {}
    for submission, files in loaded:
        for run in submission.runs:
            for result in run.results:
                place = (submission.name, result.env_id)
                if place not in found:
                    found[place] = choose(traces.unpack(files[result.trace.path]), run.name, run_digest(run))
    return found


def _flat(loaded: Sequence[Loaded], chosen: Mapping[tuple[str, str], Sequence[Chosen]]) -> Iterable[tuple[Submission, Chosen, Any]]:
    for submission, files in loaded:
        results = {(run.name, result.env_id): result for run in submission.runs for result in run.results}
        for (name, _), list_of in chosen.items():
            if name == submission.name:
                for c in list_of:
                    yield submission, c, traces.unpack(files[results[c.run, c.env_id].trace.path])


def _title(submission: Submission, chosen: Chosen) -> str:
    outcome = "success" if chosen.success else "failure"
    return f"{submission.agent.name} on {chosen.env_id}, {chosen.run}, episode {chosen.episode}: {outcome} in {chosen.steps} steps"


def _table(
    table: Table, submissions: Sequence[Submission], chosen: Mapping[tuple[str, str], Sequence[Chosen]], reruns: Mapping[str, int]
) -> dict[str, Any]:
    by_name = {entry.name: entry for entry in submissions}
    family = next((task.family for task in protocol.TASKS if task.env_id == table.env_id), "")
    return {
        "id": f"{table.track}-{table.env_id.removeprefix('RAO/')}".lower(),
        "track": table.track,
        "env_id": table.env_id,
        "family": family,
        "rows": [_row(row, by_name[row.submission], chosen.get((row.submission, table.env_id), ()), reruns) for row in table.rows],
    }


def _row(row: Row, submission: Submission, watch: Sequence[Chosen], reruns: Mapping[str, int]) -> dict[str, Any]:
    return {
        "row": row,
        "agent": submission.agent,
        "name": submission.name,
        "badges": _badges(submission, reruns),
        "bar": charts.interval_bar(row.success.value, row.success.low, row.success.high),
        "watch": watch,
    }


def _badges(submission: Submission, reruns: Mapping[str, int]) -> list[tuple[str, str]]:
    badges = [("replayed", "every episode was replayed, and every number recomputed")]
    if again := reruns.get(submission.name, 0):
        badges.append((f"re-run {again}/{len(submission.runs)}", "the policy itself acted again, and did the same"))
    return badges


def _learning(submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    """Success against training steps, one chart for each family; authors' own measurements."""
    figures = []
    for family in FAMILIES:
        ids = {task.env_id for task in protocol.TASKS if task.family == family}
        series = []
        for entry in submissions:
            curves = [run.curve for run in entry.runs if len(run.curve) > 1 and any(result.env_id in ids for result in run.results)]
            if curves:
                grid = np.linspace(0, min(curve[-1].steps for curve in curves), 61)
                values = np.mean([np.interp(grid, [p.steps for p in c], [p.success for p in c]) for c in curves], axis=0)
                points = tuple(charts.Point(float(x), float(y)) for x, y in zip(grid, values, strict=True))
                series.append(charts.Series(entry.agent.name, points))
        if series:
            last = max(entry.points[-1].x for entry in series)
            ticks = [(last * k / 4, _number(last * k / 4)) for k in range(5)]
            title = f"{family}: success against training steps"
            about = "Mean over the runs of each submission, as its authors measured it while training; not verified."
            chart = charts.line_chart(title, about, series, ticks, "environment steps of training")
            rows = [(entry.label, [(_number(p.x), f"{p.y:.2f}") for p in entry.points[::15]]) for entry in series]
            figures.append(_figure(f"learning-{family}", title, about, chart, series, rows))
    return figures


def _sizes(submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    """Success against size, one chart for each family that has several."""
    figures = []
    for family in FAMILIES:
        tasks = [task for task in protocol.TASKS if task.family == family]
        series = []
        for entry in submissions:
            rows = [(k, row_of(entry, task.track, [task.env_id])) for k, task in enumerate(tasks)]
            points = tuple(charts.Point(k, row.success.value, row.success.low, row.success.high) for k, row in rows if row is not None)
            if len(points) > 1:
                series.append(charts.Series(entry.agent.name, points))
        if series:
            ticks = [(float(k), task.env_id.removeprefix("RAO/").rpartition("-v")[0]) for k, task in enumerate(tasks)]
            title = f"{family}: success against size"
            about = "Interquartile mean over runs with its 95 % interval; the first size may be trained on, the others may not."
            chart = charts.line_chart(title, about, series, ticks, "task")
            data = [(entry.label, [(ticks[int(p.x)][1], f"{p.y:.2f}") for p in entry.points]) for entry in series]
            figures.append(_figure(f"sizes-{family}", title, about, chart, series, data))
    return figures


def _figure(key: str, title: str, about: str, chart: Any, series: Sequence[charts.Series], rows: Any) -> dict[str, Any]:
    return {
        "id": key.lower(),
        "title": title,
        "about": about,
        "chart": chart,
        "key": charts.key_of([s.label for s in series]),
        "rows": rows,
    }


def _provenance(submission: Submission, reruns: Mapping[str, int]) -> dict[str, Any]:
    return {
        "entry": submission,
        "badges": _badges(submission, reruns),
        "runs": [
            {"run": run, "digest": run_digest(run), "bytes": sum(file.bytes for file in run.artefact.files)} for run in submission.runs
        ],
    }


def _data(submissions: Sequence[Submission]) -> str:
    """Every row as data, for those who want to compute with them."""
    rows = [
        {"track": table.track, "table": table.env_id, **row._asdict(), "success": row.success._asdict()}
        for table in tables(submissions)
        for row in table.rows
    ]
    return json.dumps({"protocol": protocol.PROTOCOL, "rows": rows}, indent=1) + "\n"


def _number(value: float | None) -> str:
    """A count as people read it: 400 k, 1.5 M."""
    if value is None or math.isinf(value):
        return "-"
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
