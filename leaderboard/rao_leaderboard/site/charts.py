"""Charts as SVG, drawn without a plotting library: text stays text, colours follow the page's light or dark scheme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
COLOURS = 8
"""Classes c0, c1, ... of the style sheet; series beyond them are told apart by their dashes."""


class Point(NamedTuple):
    """A value at a place, with its interval where there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """One line of a chart."""

    label: str
    points: tuple[Point, ...]


def line_chart(title: str, description: str, series: Sequence[Series], ticks: Sequence[tuple[float, str]], axis: str) -> Markup:
    """Success (0 to 1) of several agents over something.

    Args:
        title: what a reader hears first.
        description: what it shows, in a sentence.
        series: at least one.
        ticks: places and labels of the horizontal axis; its ends are the first and the last.
        axis: what the horizontal axis is.
    """
    first, last = ticks[0][0], ticks[-1][0]
    span = (last - first) or 1.0

    def across(x: float) -> float:
        return LEFT + (x - first) / span * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return TOP + (1 - y) * (HEIGHT - TOP - BOTTOM)

    parts = [
        Markup('<svg viewBox="0 0 {} {}" role="img" class="chart"><title>{}</title><desc>{}</desc>').format(
            WIDTH, HEIGHT, title, description
        )
    ]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = f"{down(value):.1f}"
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text x="{}" y="{}" class="tick end">{}</text>').format(LEFT - 6, f"{down(value) + 4:.1f}", f"{value:.2f}"))
    for k, (x, label) in enumerate(ticks):
        anchor = "start" if k == 0 else "end" if k == len(ticks) - 1 else "middle"
        parts.append(
            Markup('<text x="{}" y="{}" class="tick {}">{}</text>').format(f"{across(x):.1f}", HEIGHT - BOTTOM + 16, anchor, label)
        )
    parts.append(Markup('<text x="{}" y="{}" class="tick middle">{}</text>').format((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, axis))
    for k, entry in enumerate(series):
        classes = f"c{k % COLOURS} d{k // COLOURS}"
        path = " ".join(f"{across(p.x):.1f},{down(p.y):.1f}" for p in entry.points)
        parts.append(Markup('<g class="{}"><title>{}</title><polyline points="{}"/>').format(classes, entry.label, path))
        few = len(entry.points) <= 12
        for p in entry.points if few else ():
            if p.low is not None and p.high is not None:
                parts.append(
                    Markup('<line class="whisker" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                        f"{across(p.x):.1f}", f"{down(p.low):.1f}", f"{down(p.high):.1f}"
                    )
                )
            parts.append(Markup('<circle cx="{}" cy="{}" r="3.5"/>').format(f"{across(p.x):.1f}", f"{down(p.y):.1f}"))
        parts.append(Markup("</g>"))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def interval_bar(value: float, low: float, high: float) -> Markup:
    """An interval on the scale from 0 to 1; the numbers stand beside it, so that it is hidden from screen readers."""

    def at(x: float) -> str:
        return f"{4 + 112 * x:.1f}"

    return Markup(
        '<svg class="bar" viewBox="0 0 120 12" width="120" height="12" aria-hidden="true" focusable="false">'
        '<line class="axis" x1="4" x2="116" y1="6" y2="6"/><line class="range" x1="{}" x2="{}" y1="6" y2="6"/>'
        '<circle cx="{}" cy="6" r="3.5"/></svg>'
    ).format(at(low), at(high), at(value))


def key_of(labels: Sequence[str]) -> Markup:
    """What the lines of a chart are."""
    line = '<svg viewBox="0 0 24 8" width="24" height="8" aria-hidden="true"><polyline points="0,4 24,4"/></svg>'
    items = [Markup('<li class="c{} d{}">' + line + " {}</li>").format(k % COLOURS, k // COLOURS, label) for k, label in enumerate(labels)]
    return Markup('<ul class="key">{}</ul>').format(Markup("").join(items))
