"""Figures drawn from kept results: files only, no window, colours that colour-blind people can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np

from rao_baselines import statistics
from rao_baselines.errors import UserError

# Okabe and Ito's palette, strongest contrast first; line styles repeat the distinction for print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C6D31")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (4, 2, 1, 2)))
POINTS = 101
REFERENCE = "#999999"
"""The bar of the setting that a question starts from."""


def learning_curves(
    series: Mapping[str, Sequence[Sequence[dict[str, Any]]]],
    path: Path,
    *,
    title: str,
    mode: str = "sampled",
    key: str = "success",
    reference: tuple[str, float] | None = None,
) -> list[Path]:
    """Draw one line per label: the IQM over its runs' curves, with the 95 % bootstrap interval as a band.

    Args:
        series: curves (lists of points) of the runs, by label; the first is drawn boldest.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.
        mode: "sampled" or "greedy".
        key: "success" or "return".
        reference: a label and a height for a horizontal line.

    Raises:
        UserError: nothing to draw.
    """
    if not any(series.values()):
        raise UserError("there are no curves to draw")

    def draw(axes: Any) -> None:
        for index, (label, runs) in enumerate((label, runs) for label, runs in series.items() if runs):
            _draw(axes, label, runs, index, mode, key)
        if reference is not None:
            axes.axhline(reference[1], color="#666666", lw=0.8, ls=(0, (2, 2)), zorder=0)
            axes.annotate(reference[0], (1.0, reference[1]), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
        axes.set_xlabel("environment steps (thousands)")
        axes.set_xlim(left=0)

    return _write(path, title, key, draw)


def success_by_size(
    series: Mapping[str, Sequence[statistics.Estimate | None]],
    sizes: Sequence[str],
    path: Path,
    *,
    title: str,
    axis: str = "",
    measure: str = "success",
    log: bool = False,
) -> list[Path]:
    """Draw one line per label: success (or `measure`) with its 95 % interval on each of `sizes`, in order; None where it was not measured.

    With `log`, the measure's axis is logarithmic.

    Raises:
        UserError: nothing to draw.
    """
    if not any(value is not None for values in series.values() for value in values):
        raise UserError("there are no scores to draw")

    def draw(axes: Any) -> None:
        _draw_sizes(axes, series, sizes)
        axes.set_xlabel(axis)
        if log:
            axes.set_yscale("log")

    return _write(path, title, measure, draw)


def _draw_sizes(axes: Any, series: Mapping[str, Sequence[statistics.Estimate | None]], sizes: Sequence[str]) -> None:
    """Lines with intervals over `sizes`, in order."""
    for index, (label, values) in enumerate(series.items()):
        known = [(x, value) for x, value in enumerate(values) if value is not None]
        if not known:
            continue
        shift = 0.04 * (index - len(series) / 2)  # intervals side by side
        middle = np.array([value.value for _, value in known])
        ends = np.array([[value.value - value.low, value.high - value.value] for _, value in known]).T
        axes.errorbar(
            [x + shift for x, _ in known],
            middle,
            yerr=np.maximum(ends, 0.0),
            color=COLORS[index % len(COLORS)],
            ls=STYLES[index % len(STYLES)],
            lw=2.4 if index == 0 else 1.5,
            marker="o",
            ms=4,
            capsize=3,
            label=label,
            zorder=20 - index,
        )
    axes.set_xticks(range(len(sizes)), sizes)


def choice_bars(panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], path: Path, *, title: str) -> list[Path]:
    """Draw one panel per family: bars of success by choice, side by side for each question, with 95 % intervals and the seeds as dots.

    Args:
        panels: family -> question -> choice -> one rate per seed, none where it was not measured; the first choice of a question is the
            one that it starts from: grey, and continued as a line over its question.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.

    Raises:
        UserError: nothing to draw.
    """
    if not any(rates for questions in panels.values() for choices in questions.values() for rates in choices.values()):
        raise UserError("there are no scores to draw")
    bars = max(sum(map(len, questions.values())) + 0.8 * len(questions) for questions in panels.values())
    with _figure((max(6.0, 0.55 * bars), 0.9 + 3.0 * len(panels)), title) as (figure, written):
        for place, (family, questions) in enumerate(panels.items()):
            axes = figure.add_subplot(len(panels), 1, place + 1)
            names, ticks, left = [], [], 0.0
            for question, choices in questions.items():
                places = left + np.arange(len(choices))
                _draw_bars(axes, places, list(choices.values()))
                name = fill(question, max(9 * len(choices), 14))
                axes.annotate(name, (float(places.mean()), 1.01), ha="center", va="bottom", fontsize=8.5, annotation_clip=False)
                names += list(choices)
                ticks += list(places)
                left = places[-1] + 1.8
            axes.set_xticks(ticks, names if place + 1 == len(panels) else [""] * len(names), rotation=35, ha="right", fontsize=8.5)
            axes.set_xlim(-0.8, left - 1.0)
            axes.set_ylim(0, 1.03)
            axes.set_ylabel(f"{family}: success" if family else "success rate")
            axes.grid(axis="y", alpha=0.25, lw=0.6)
            axes.set_axisbelow(True)
        written.extend(_save(figure, path))
    return written


def _draw_bars(axes: Any, places: Any, choices: Sequence[Sequence[float]]) -> None:
    """Bars at `places` (n,), one per choice that was measured."""
    if choices[0]:
        axes.hlines(statistics.estimate(choices[0]).value, places[0] - 0.4, places[-1] + 0.4, color=REFERENCE, lw=0.9, ls=(0, (2, 2)))
    for index, (x, rates) in enumerate(zip(places, choices, strict=True)):
        if not rates:
            continue
        found = statistics.estimate(rates)
        ends = np.maximum([[found.value - found.low], [found.high - found.value]], 0.0)
        color = COLORS[(index - 1) % len(COLORS)] if index else REFERENCE
        axes.bar(x, found.value, 0.8, yerr=ends, capsize=3, color=color, alpha=0.75, error_kw={"lw": 1.2})
        axes.plot(np.full(len(rates), x + 0.22), rates, "o", color="#000000", ms=2.5, alpha=0.6)


def curve_panels(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[dict[str, Any]]]]],
    path: Path,
    *,
    title: str,
    columns: int = 3,
    heights: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Path]:
    """Draw learning curves as `learning_curves` does, one panel per question, all on the same axes.

    Args:
        panels: panel -> label -> curves (lists of points) of the runs; panels without any are left out.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.
        columns: panels side by side.
        heights: panel -> label -> height of a horizontal line.

    Raises:
        UserError: nothing to draw.
    """
    shown = {name: {label: runs for label, runs in series.items() if runs} for name, series in panels.items()}
    shown = {name: series for name, series in shown.items() if series}
    if not shown:
        raise UserError("there are no curves to draw")
    rows = -(-len(shown) // columns)
    with _figure((4.2 * columns, 0.5 + 2.9 * rows), title) as (figure, written):
        for place, (name, series) in enumerate(shown.items()):
            axes = figure.add_subplot(rows, columns, place + 1)
            for index, (label, runs) in enumerate(series.items()):
                _draw(axes, label, runs, index, "sampled", "success")
            for label, height in (heights or {}).get(name, {}).items():
                axes.axhline(height, color="#666666", lw=0.8, ls=(0, (2, 2)), zorder=0)
                axes.annotate(label, (1.0, height), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7.5)
            _finish(axes, name, "success" if place % columns == 0 else "")
            axes.set_xlabel("environment steps (thousands)")
            axes.set_xlim(left=0)
            axes.legend(frameon=False, fontsize=7.5, loc="lower right" if heights else "best")
        written.extend(_save(figure, path))
    return written


def size_panels(
    panels: Mapping[str, tuple[Sequence[str], Mapping[str, Sequence[statistics.Estimate | None]]]],
    path: Path,
    *,
    title: str,
    columns: int = 2,
) -> list[Path]:
    """Draw success against size as `success_by_size` does, one panel per family.

    Args:
        panels: family -> its sizes in order, and label -> success on each; families without any success are left out.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.
        columns: panels side by side.

    Raises:
        UserError: nothing to draw.
    """
    shown = {
        name: (sizes, series)
        for name, (sizes, series) in panels.items()
        if any(value is not None for values in series.values() for value in values)
    }
    if not shown:
        raise UserError("there are no scores to draw")
    rows = -(-len(shown) // columns)
    with _figure((5.2 * columns, 0.5 + 3.0 * rows), title) as (figure, written):
        for place, (name, (sizes, series)) in enumerate(shown.items()):
            axes = figure.add_subplot(rows, columns, place + 1)
            _draw_sizes(axes, series, sizes)
            _finish(axes, name, "success" if place % columns == 0 else "")
            axes.legend(frameon=False, fontsize=7.5, loc="best")
        written.extend(_save(figure, path))
    return written


def delegation_panels(families: Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]]]], path: Path, *, title: str) -> list[Path]:
    """Draw when agents delegate: a column per family, with rate, frames and deepest level against size, greedy and sampled.

    Args:
        families: family -> what sizes are, and size -> what `rao_baselines.delegation.watch` returns.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.

    Raises:
        UserError: nothing to draw.
    """
    shown = {name: family for name, family in families.items() if family[1]}
    if not shown:
        raise UserError("there is nothing to draw")
    quantities = {"rate": "open decisions\nthat spawn", "frames": "frames per episode", "deepest": "deepest level"}
    with _figure((max(3.1 * len(shown) + 0.8, 6.5), 7.4), title) as (figure, written):
        for column, (name, (axis, sizes)) in enumerate(shown.items()):
            for row, (quantity, label) in enumerate(quantities.items()):
                axes = figure.add_subplot(len(quantities), len(shown), row * len(shown) + column + 1)
                for index, mode in enumerate(("greedy", "sampled")):
                    values = [found[mode][quantity] for found in sizes.values()]
                    _draw_delegation(axes, values, mode, index)
                if quantity == "frames":
                    axes.set_yscale("log")
                axes.set_ylim(*((-0.02, 1.02) if quantity == "rate" else (0.9, None) if quantity == "frames" else (-0.1, None)))
                axes.set_xticks(range(len(sizes)), sizes if row == len(quantities) - 1 else [""] * len(sizes), fontsize=8.5)
                axes.grid(alpha=0.25, lw=0.6)
                axes.set_ylabel(label if column == 0 else "")
                if row == 0:
                    axes.set_title(name, loc="left", fontsize=11)
                if row == 0 and column == 0:
                    axes.legend(frameon=False, fontsize=8)
            axes.set_xlabel(axis)
        written.extend(_save(figure, path))
    return written


def _draw_delegation(axes: Any, values: Sequence[Any], label: str, index: int) -> None:
    """A line over the sizes, with intervals where there are some; None where there is no value."""
    known = [(x, value) for x, value in enumerate(values) if value is not None]
    middle = [value["value"] if isinstance(value, dict) else value for _, value in known]
    ends = [
        (value["value"] - value["low"], value["high"] - value["value"]) if isinstance(value, dict) else (0.0, 0.0) for _, value in known
    ]
    axes.errorbar(
        [x + 0.06 * (index - 0.5) for x, _ in known],
        middle,
        yerr=np.maximum(np.array(ends).reshape(-1, 2).T, 0.0),
        color=COLORS[index],
        ls=STYLES[index],
        lw=1.6,
        marker="o",
        ms=3.5,
        capsize=2,
        label=label,
    )


def level_panels(families: Mapping[str, Mapping[str, Sequence[Mapping[str, int]]]], path: Path, *, title: str) -> list[Path]:
    """Draw the share of open decisions that spawn against the level of the frame that decides: a panel per family, a line per size.

    Args:
        families: family -> size -> per level the number of decisions, of open ones, and of those that spawned.
        path: without a suffix; `.svg` and `.png` are written.
        title: above the figure.

    Raises:
        UserError: nothing to draw.
    """
    shown = {name: sizes for name, sizes in families.items() if any(level["open"] for levels in sizes.values() for level in levels)}
    if not shown:
        raise UserError("there is nothing to draw")
    with _figure((max(3.1 * len(shown) + 0.8, 6.5), 3.4), title) as (figure, written):
        for column, (name, sizes) in enumerate(shown.items()):
            axes = figure.add_subplot(1, len(shown), column + 1)
            for index, (size, levels) in enumerate(sizes.items()):
                known = [(k, level["spawned"] / level["open"]) for k, level in enumerate(levels) if level["open"]]
                if known:
                    color = mpl.colormaps["viridis"](0.9 * index / max(len(sizes) - 1, 1))
                    axes.plot(*zip(*known, strict=True), color=color, lw=1.5, marker="o", ms=3.5, label=size)
            _finish(axes, name, "success" if column == 0 else "")
            axes.set_ylabel("open decisions that spawn" if column == 0 else "")
            axes.set_xlabel("level of the deciding frame")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(frameon=False, fontsize=7.5)
        written.extend(_save(figure, path))
    return written


def _write(path: Path, title: str, key: str, draw: Callable[[Any], None]) -> list[Path]:
    """A figure of one panel in the house style, as `.svg` and `.png`."""
    with _figure((8.0, 4.6)) as (figure, written):
        axes = figure.add_subplot()
        draw(axes)
        _finish(axes, title, key)
        axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
        written.extend(_save(figure, path))
    return written


def _finish(axes: Any, title: str, key: str) -> None:
    """Labels, limits and grid of a panel; `key` is what it shows, empty for a panel that shares its neighbour's label."""
    axes.set_ylabel("success rate" if key == "success" else key)
    if key in ("success", ""):
        axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.25, lw=0.6)
    axes.set_title(title, loc="left", fontsize=11)


@contextmanager
def _figure(size: tuple[float, float], title: str = "") -> Iterator[tuple[Any, list[Path]]]:
    """An empty figure in the house style, `size` in inches, and a list for the files made of it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "rao"}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        yield figure, []


def _save(figure: Any, path: Path) -> list[Path]:
    """Write `path` + `.svg` and `.png`, the same bytes for the same figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, options in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 160, "metadata": {"Software": None}})):
        target = path.with_name(path.name + suffix)
        figure.savefig(target, **options)
        written.append(target)
    return written


def _draw(axes: Any, label: str, runs: Sequence[Sequence[dict[str, Any]]], index: int, mode: str, key: str) -> None:
    """One line with its band, over the steps that all runs cover."""
    end = min(run[-1]["steps"] for run in runs)
    grid = np.linspace(0, end, POINTS)
    curves = np.stack([statistics.on_grid(run, grid, mode, key) for run in runs])
    if np.isnan(curves).all():
        return
    color, style = COLORS[index % len(COLORS)], STYLES[index % len(STYLES)]
    middle, low, high = statistics.band(curves)
    many = f", {len(runs)} seeds" if len(runs) > 1 else ""
    axes.plot(grid / 1000, middle, color=color, ls=style, lw=2.4 if index == 0 else 1.5, label=f"{label}{many}", zorder=20 - index)
    if len(runs) > 1:
        axes.fill_between(grid / 1000, low, high, color=color, alpha=0.15, lw=0, zorder=10 - index)
