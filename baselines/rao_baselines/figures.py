"""Figures drawn from kept results: files only, no window, colours that colour-blind people can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from rao_baselines import statistics
from rao_baselines.errors import UserError

# Okabe and Ito's palette, strongest contrast first; line styles repeat the distinction for print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C6D31")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (4, 2, 1, 2)))
POINTS = 101


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
) -> list[Path]:
    """Draw one line per label: success (or `measure`) with its 95 % interval on each of `sizes`, in order; None where it was not measured.

    Raises:
        UserError: nothing to draw.
    """
    if not any(value is not None for values in series.values() for value in values):
        raise UserError("there are no scores to draw")

    def draw(axes: Any) -> None:
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
        axes.set_xlabel(axis)

    return _write(path, title, measure, draw)


def _write(path: Path, title: str, key: str, draw: Callable[[Any], None]) -> list[Path]:
    """A figure in the house style, as `.svg` and `.png`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "rao"}):
        figure = Figure(figsize=(8.0, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.set_ylabel("success rate" if key == "success" else key)
        if key == "success":
            axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.25, lw=0.6)
        axes.set_title(title, loc="left", fontsize=11)
        axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
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
