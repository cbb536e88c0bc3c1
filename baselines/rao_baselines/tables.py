"""The tables of results in README and docs: written from what is kept under `baselines/results`, so that they cannot drift from it.

A document marks the place of a table with `<!-- results NAME -->` and `<!-- end -->`; what lies between is replaced. Figures of comparisons
are put there in the same way, once they are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rao_baselines import distill_tables, headline_table, parallel_tables, profile, ui
from rao_baselines.errors import UserError
from rao_baselines.experiments import SUITES, Comparison, Sweep, Table
from rao_baselines.places import images_folder
from rao_baselines.runs import read_json, write_atomically
from rao_baselines.suite import MODES, task_name

PLACE = re.compile(r"(<!-- results ([^>]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def write_tables(documents: Iterable[Path], results: Path) -> list[Path]:
    """Bring the tables in `documents` up to date with `results`. Returns the documents that have changed.

    Raises:
        UserError: a marked place of a name that no table has, or a table without results.
    """
    changed = []
    for document in documents:
        old = document.read_text(encoding="utf-8")

        def fill(place: re.Match[str], document: Path = document) -> str:
            return f"{place[1]}{table_of(place[2], results, document)}\n{place[4]}"

        new = PLACE.sub(fill, old)
        if new != old:
            write_atomically(document, new)
            changed.append(document)
    return changed


def table_of(name: str, results: Path, document: Path) -> str:
    """The table called `name`, in Markdown; `document` is named in errors."""
    tables: dict[str, Callable[[], list[list[str]]]] = {
        f"{suite_name} {table.name}": lambda suite_name=suite_name, table=table: scores(_summary(results, suite_name), table)  # type: ignore[misc]
        for suite_name, suite in SUITES.items()
        for table in suite.tables
    }
    tables |= {
        f"{suite_name} {sweep.name}": lambda suite_name=suite_name, sweep=sweep: swept(_summary(results, suite_name), sweep)  # type: ignore[misc]
        for suite_name, suite in SUITES.items()
        for sweep in suite.sweeps
    }
    tables |= {
        f"{comparison.name} {family}": lambda suite=suite_name, both=(comparison, family): compared(results, suite, *both)  # type: ignore[misc]
        for suite_name, suite in SUITES.items()
        for comparison in suite.comparisons
        for family in comparison.families
    }
    tables["headlines"] = lambda: headlines(results)
    tables["delegation"] = lambda: delegation(results)
    tables["overhead"] = lambda: overhead(results)
    tables["profile"] = lambda: profile.table(read_json(path) if (path := results / "profile.json").is_file() else {})
    tables |= {name: lambda make=make: make(parallel_tables.load(results)) for name, make in parallel_tables.TABLES.items()}  # type: ignore[misc]
    made = headline_table.TABLES | distill_tables.TABLES
    tables |= {name: lambda make=make: make(results) for name, make in made.items()}  # type: ignore[misc]
    for path in (results / "tuning").glob("*.json"):
        study = path.stem.removeprefix(f"{read_json(path)['study']['algorithm']}_")
        if "_by_hand" not in study:
            tables[f"tuning {study}"] = lambda study=study: tuning(results, study)  # type: ignore[misc]
    pictures = {
        f"{comparison.name}{family} figure": path
        for suite in SUITES.values()
        for comparison in suite.comparisons
        for family, path in comparison_images(comparison).items()
    }
    if name in pictures:
        return _picture(name, pictures[name])
    if name not in tables:
        raise UserError(f"{document} asks for the table {name!r}; there are: {', '.join(sorted([*tables, *pictures]))}")
    header, *rows = tables[name]()
    return "\n".join(_line(row) for row in (header, ["---"] * len(header), *rows))


def comparison_images(comparison: Comparison) -> dict[str, str]:
    """File names of a comparison's figures in the documentation's folder of images: of the bars (""), and of each " FAMILY"'s curves."""
    return {"": f"{comparison.name}.png"} | {f" {family}": f"{comparison.name}-{family}-curves.png" for family in comparison.families}


def _picture(name: str, file: str) -> str:
    """A figure, for pages beside the folder of images; a word in its place until it has been drawn, so that no link leads nowhere."""
    title = name.removesuffix(" figure").capitalize()
    return f"![{title}](images/{file})" if (images_folder() / file).is_file() else f"*{title}: not drawn yet.*"


def scores(summary: Mapping[str, Any], table: Table) -> list[list[str]]:
    """A row per experiment of the table's groups: what it scores on each task, and when it reaches the strongest monolithic agent."""
    several = len(table.groups) > 1
    rows = [[*(["task"] if several else []), "agent", "seeds", "steps", *table.columns, *([table.timed] if table.timed else [])]]
    for group in table.groups:
        reached = summary["groups"].get(group, {}).get("steps_to_threshold", {})
        for name, row in summary["experiments"].items():
            if row["group"] == group:
                show = _path if table.paths else _frames if table.frames else _score
                cells = [show(row, task) for task in table.columns.values()]
                times = [_thousands(reached[name]["median"]) if name in reached else ""] if table.timed else []
                label = f"**{row['label']}**" if row["algorithm"] == "recursive_ppo" else row["label"]
                rows.append([*([group] if several else []), label, str(len(row["seeds"])), _thousands(row["steps"]), *cells, *times])
    return rows


def swept(summary: Mapping[str, Any], sweep: Sweep) -> list[list[str]]:
    """A row per series, a column per point: what the rows of the sweep score on their own task."""
    points = list(dict.fromkeys(point for series in sweep.series.values() for point in series))
    rows = [[sweep.axis, *points]]
    for label, series in sweep.series.items():
        found = [summary["experiments"].get(series.get(point)) for point in points]
        rows.append([label, *(_score(row, next(iter(row["scores"]))) if row else "" for row in found)])
    return rows


def compared(results: Path, suite_name: str, comparison: Comparison, family: str) -> list[list[str]]:
    """A row per choice of each question: what it scores on the family's tasks, and its mean success over the run.

    Cells are empty where nothing is kept yet.
    """
    path = results / suite_name / "summary.json"
    kept: dict[str, Any] = read_json(path)["experiments"] if path.is_file() else {}
    first, *further = {
        task_name(task): None for row in SUITES[suite_name].rows if row.group == family for task in (row.task, *row.transfer)
    }
    heading = [f"{first}, greedy / sampled", "mean over the run", *(f"{task} zero-shot" for task in further)]
    rows = [["question", "choice", *heading]]
    for question, choices in comparison.questions.items():
        for position, (label, choice) in enumerate(choices.items()):
            row = kept.get(comparison.row(family, choice))
            cells = (
                [_score(row, first), ui.interval(row["over_the_run"]), *(_score(row, task) for task in further)]
                if row
                else [""] * len(heading)
            )
            rows.append([f"**{question}**" if position == 0 else "", label, *cells])
    return rows


def headlines(results: Path) -> list[list[str]]:
    """A row per task that the suites put forward: the recursive agent, and the strongest monolithic agent that was trained."""
    rows = [["trained on", "scored on", "RecursivePPO", "the strongest trained monolithic agent"]]
    for suite_name, suite in SUITES.items():
        if not suite.headlines or not (results / suite_name / "summary.json").is_file():
            continue
        summary = _summary(results, suite_name)
        found = summary["experiments"]
        best = found.get(summary["groups"][suite.rows[0].group]["strongest_monolithic"])
        recursive = found[suite.rows[0].name]
        for position, (scored_on, task) in enumerate(suite.headlines.items()):
            first = f"{suite.trained_on}: {_effort(recursive)}" if position == 0 else ""
            other = ""
            if best is not None:
                other = _score(best, task) + (f" ({best['label']}, {_effort(best)})" if position == 0 else "")
            own = _score(recursive, task)
            rows.append([first, scored_on, f"**{own}**" if own else "", other])
    return rows


def delegation(results: Path) -> list[list[str]]:
    """When the shipped models delegate; its heading alone where nothing is kept."""
    from rao_baselines.delegation import table

    path = results / "delegation.json"
    return table(read_json(path) if path.is_file() else {})


def overhead(results: Path) -> list[list[str]]:
    """What each mode of state transfer costs; its heading alone where nothing is kept."""
    path = results / "overhead.json"
    modes = read_json(path)["modes"] if path.is_file() else {}
    return [
        ["`state_transfer`", "training, steps/s", "time of a step", "acting, steps/s", "time of a step"],
        *(
            [name, f"{row['training']:,.0f}", f"x {row['training_time']:.2f}", f"{row['acting']:,.0f}", f"x {row['acting_time']:.2f}"]
            for name, row in modes.items()
        ),
    ]


def tuning(results: Path, study: str) -> list[list[str]]:
    """A row per algorithm that was tuned on a task: how often, and what the first and the best trial reached."""
    rows = [["algorithm", "trials", "first trial, the settings one would start from", "best"]]
    for path in sorted((results / "tuning").glob(f"*_{study}.json")):
        found = read_json(path)
        trials = [trial for trial in found["trials"] if trial["state"] == "COMPLETE"]
        by_hand = [read_json(other)["best"] for other in sorted(path.parent.glob(f"{path.stem}_by_hand_*.json"))]
        best = max(trial["value"] for trial in [*trials, *by_hand])
        more = f", and {len(by_hand)} by hand" if by_hand else ""
        rows.append([f"`{found['study']['algorithm']}`", f"{len(found['trials'])}{more}", f"{trials[0]['value']:.3f}", f"{best:.3f}"])
    return [rows[0], *sorted(rows[1:], key=lambda row: -float(row[-1]))]


def _summary(results: Path, suite_name: str) -> dict[str, Any]:
    path = results / suite_name / "summary.json"
    if not path.is_file():
        raise UserError(f"there is no {path}: `rao bench {suite_name}` makes it")
    summary: dict[str, Any] = read_json(path)
    return summary


def _score(row: Mapping[str, Any], task: str) -> str:
    """Greedy and sampled success, with intervals where there are several seeds."""
    found = row["scores"].get(task_name(task))
    return " / ".join(ui.interval(found[mode]["iqm"]) for mode in MODES) if found else ""


def _path(row: Mapping[str, Any], task: str) -> str:
    """Steps of an episode and its critical path, greedy, and how many times shorter that is."""
    found = row["scores"].get(task_name(task), {}).get("greedy")
    if not found:
        return ""
    return f"{found['steps']:,.0f} / {found['critical_path']:,.0f} ({found['steps'] / found['critical_path']:.2f}x)"


def _frames(row: Mapping[str, Any], task: str) -> str:
    """Frames of an episode, and the deepest level among them, actions sampled."""
    found = row["scores"].get(task_name(task), {}).get("sampled")
    return f"{found['nodes']:.1f} / {found['deepest']:.2f}" if found else ""


def _effort(row: Mapping[str, Any]) -> str:
    seeds = len(row["seeds"])
    return f"{_thousands(row['steps'])} steps, {seeds} seed{'s' if seeds > 1 else ''}"


def _thousands(steps: float | None) -> str:
    return "never" if steps is None else f"{steps / 1000:,.0f} k"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def documents(root: Path) -> list[Path]:
    """Where tables may be: the README and all pages of the documentation."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
