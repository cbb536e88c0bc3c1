"""The loop of self-distillation as a picture: `python -m rao_baselines.loop_picture docs/images/self-distillation`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rao_agents.distillation.pictures import new_figure, save_figure

INK, SOFT, LINE = "#1c2430", "#5b6675", "#9aa5b1"
STAGES = (
    (
        "collect",
        "the policy acts; whole episodes\n(trees, frame by frame) are remembered,\nsuccesses and failures apart",
        "#0072B2",
        (0.0, 1.0),
    ),
    ("distil", "a distiller makes knowledge K\nof what is remembered: a student,\na direction, skills, a judge", "#009E73", (1.0, 1.0)),
    ("inject", "K enters the update as a second\ngradient, a start, an anchor,\nor a bonus for exploring", "#D55E00", (1.0, 0.0)),
    (
        "judge",
        "a held-out score says whether it\nhelped; a round that did harm is\ntaken back, and the next is gentler",
        "#8C6D31",
        (0.0, 0.0),
    ),
)
WIDTH, HEIGHT = 3.9, 1.5
GAP_X, GAP_Y = 2.0, 1.3


def draw(path: Path) -> list[Path]:
    """Draw the picture; `.svg` and `.png` are written beside each other, and returned."""
    import matplotlib as mpl
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    with mpl.rc_context({"font.size": 10, "svg.fonttype": "none"}):
        figure = new_figure(9.4, 4.6)
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set_xlim(-0.15, 2 * WIDTH + GAP_X + 0.15)
        axes.set_ylim(-0.15, 2 * HEIGHT + GAP_Y + 0.15)
        for number, (name, text, color, (column, row)) in enumerate(STAGES, 1):
            x, y = column * (WIDTH + GAP_X), row * (HEIGHT + GAP_Y)
            axes.add_patch(
                FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.14", fc=color + "14", ec=color, lw=1.6)
            )
            axes.text(x + 0.2, y + HEIGHT - 0.33, f"{number}  {name}", color=color, fontsize=13, fontweight="bold", va="center")
            axes.text(x + 0.2, y + HEIGHT - 0.62, text, color=INK, fontsize=10, va="top", linespacing=1.45)
        top, bottom, middle = HEIGHT + GAP_Y + HEIGHT / 2, HEIGHT / 2, WIDTH + GAP_X / 2
        arrows = (
            ((WIDTH, top), (WIDTH + GAP_X, top), "episodes,\nweighted", (middle, top + 0.14), "bottom", "center"),
            (
                (1.5 * WIDTH + GAP_X, HEIGHT + GAP_Y),
                (1.5 * WIDTH + GAP_X, HEIGHT),
                "K",
                (1.5 * WIDTH + GAP_X + 0.15, HEIGHT + GAP_Y / 2),
                "center",
                "left",
            ),
            ((WIDTH + GAP_X, bottom), (WIDTH, bottom), "taught\npolicy", (middle, bottom + 0.14), "bottom", "center"),
            (
                (WIDTH / 2, HEIGHT),
                (WIDTH / 2, HEIGHT + GAP_Y),
                "better policy: acts again",
                (WIDTH / 2 + 0.15, HEIGHT + GAP_Y / 2),
                "center",
                "left",
            ),
        )
        for start, end, label, (x, y), vertical, horizontal in arrows:
            axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=15, color=LINE, lw=1.6, shrinkA=5, shrinkB=5))
            axes.text(x, y, label, color=SOFT, fontsize=9.5, va=vertical, ha=horizontal, linespacing=1.3)
        written = []
        for suffix in (".svg", ".png"):
            target: Any = path.with_name(path.name + suffix)
            save_figure(figure, target)
            written.append(target)
    return written


if __name__ == "__main__":
    for drawn in draw(Path(sys.argv[1] if len(sys.argv) > 1 else "self-distillation")):
        sys.stdout.write(f"wrote {drawn}\n")
