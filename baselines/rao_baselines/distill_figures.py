"""The pictures of a distillation report, as PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.pictures import draw_skills
from rao_baselines.figures import COLORS, STYLES

GREY = "#BDBDBD"
MOST_ACTIONS = 8
"""Actions with a colour of their own in the map; the rest is grey."""


def _picture(width: float, height: float, draw: Callable[[Any], None]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        return _png(figure)


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def rounds_picture(measured: Mapping[str, Any]) -> bytes:
    """Zero-shot success on every task over the rounds, with 95 % intervals."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        points = measured["zero_shot"]
        steps = np.array([point["timesteps"] for point in points]) / 1000
        ends: list[tuple[float, str, str]] = []
        success = True
        for index, task in enumerate(measured["tasks"]):
            found = [point["scores"][task["name"]] for point in points]
            key = "success" if found[0]["summary"].get("success") is not None else "return"
            success &= key == "success"
            middle = np.array([one["summary"][key]["mean"] for one in found])
            low, high = (np.array([one["summary"][key][end] for one in found]) for end in ("low", "high"))
            color = COLORS[index % len(COLORS)]
            style = {"own": "-", "size": "--", "member": "-."}[task["kind"]]
            axes.plot(steps, middle, color=color, ls=style, lw=2.6 if task["kind"] == "own" else 1.6, marker="o", ms=4, zorder=30 - index)
            axes.fill_between(steps, low, high, color=color, alpha=0.10, lw=0)
            ends.append((float(middle[-1]), task["name"] + {"own": " (trained on)", "size": "", "member": ""}[task["kind"]], color))
        for one in measured["rounds"]:
            if one["round"]:
                lost = bool(one.get("rolled_back"))
                axes.axvline(one["timesteps"] / 1000, color="#D55E00" if lost else "#DDDDDD", lw=1.2 if lost else 0.8, zorder=0)
        if success:
            axes.set_ylim(-0.02, 1.02)
        _label_ends(axes, steps[-1], ends)
        axes.set_xlabel("environment steps (thousands); grey lines are rounds of distillation, orange ones were taken back")
        axes.set_ylabel("success rate, sampled" if success else "score, sampled")
        axes.grid(alpha=0.25, lw=0.6)

    return _picture(9.5, 4.4, draw)


def _label_ends(axes: Any, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Labels at the lines' right ends, pushed apart where they would overlap."""
    low, high = axes.get_ylim()
    gap = (high - low) / 17
    places: list[float] = []
    for value, _, _ in sorted(ends):
        places.append(max(value, places[-1] + gap) if places else value)
    over = max((places[-1] - high) if places else 0.0, 0.0)
    for (value, label, color), place in zip(sorted(ends), places, strict=True):
        axes.annotate(
            label, (x, value), (10, 0), textcoords="offset points", va="center", fontsize=8.5, color=color, annotation_clip=False
        ).set_position((10, (place - over - value) / (high - low) * axes.get_window_extent().height * 72 / axes.figure.dpi))


def learning_picture(measured: Mapping[str, Any]) -> bytes:
    """Learning curves on the new task, one for each round, and the steps to the threshold beside them."""
    found = measured["learning"]["rounds"]
    threshold, most = measured["options"]["threshold"], measured["options"]["learn_steps"]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for index, one in enumerate(found):
            steps, values = np.array(one["curve"], np.float64).reshape(-1, 2).T
            color = COLORS[index % len(COLORS)]
            left.plot(steps / 1000, values, color=color, ls=STYLES[index % len(STYLES)], lw=2, marker="o", ms=3.5)
            reached = one["steps_to_threshold"]
            right.barh(index, (most if reached is None else reached) / 1000, color=GREY if reached is None else color, height=0.6)
            text = f" not within {most / 1000:.3g} k" if reached is None else f" {reached / 1000:.1f} k"
            right.text(0 if reached is None else reached / 1000, index, text, va="center", fontsize=9)
        left.axhline(threshold, color="#666666", lw=0.8, ls=(0, (2, 2)), zorder=0)
        left.annotate(
            f"{threshold:.0%}", (1.0, threshold), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8, color="#666666"
        )
        left.set_ylim(-0.02, 1.02)
        left.set_xlabel("environment steps on the new task (thousands)")
        left.set_ylabel("success rate, sampled")
        left.grid(alpha=0.25, lw=0.6)
        right.set_yticks(range(len(found)), [f"from {_round_name(one)}" for one in found])
        for index, label in enumerate(right.get_yticklabels()):
            label.set(color=COLORS[index % len(COLORS)], fontweight="bold")
        right.invert_yaxis()
        right.set_xlim(0, 1.3 * most / 1000)
        right.set_xlabel(f"steps to {threshold:.0%} (thousands)")

    return _picture(9.5, 3.6, draw)


def _round_name(one: Mapping[str, Any]) -> str:
    return "the start" if one["round"] == 0 else f"round {one['round']}"


def map_picture(found: Mapping[str, Any]) -> bytes:
    """Decisive states in the plane, coloured by action (left) and by success (right)."""
    x, y = np.array(found["x"]), np.array(found["y"])
    actions, success = np.array(found["action"]), np.array(found["success"])
    counts = np.bincount(actions, minlength=len(found["names"]))
    common = [int(i) for i in np.argsort(-counts, kind="stable")[:MOST_ACTIONS] if counts[i]]

    def panel(axes: Any, groups: Sequence[tuple[str, Any, str]], title: str) -> None:
        for label, chosen, color in groups:
            if chosen.any():
                axes.scatter(x[chosen], y[chosen], s=9, color=color, alpha=0.75, lw=0, label=f"{label} ({int(chosen.sum())})")
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False, fontsize=8, markerscale=2.2, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=3, handletextpad=0.1)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        rest = ~np.isin(actions, common)
        groups = [("other", rest, GREY)] + [
            (found["names"][action], actions == action, COLORS[i % len(COLORS)]) for i, action in enumerate(common)
        ]
        panel(left, groups, "by action")
        verdicts = [("frame failed", success == 0, "#D55E00"), ("frame succeeded", success == 1, "#0072B2"), ("unknown", success < 0, GREY)]
        panel(right, verdicts, "by the outcome of the acting frame")

    return _picture(9.5, 4.6, draw)


def importance_picture(knowledge: Mapping[str, Any]) -> bytes | None:
    """What the knowledge reads: shares by key of the observation, and the most important single features; None if it does not say."""
    panels = [
        (title, knowledge[name]) for title, name in (("by part of the observation", "importance"), ("most important features", "features"))
    ]
    panels = [(title, dict(sorted(shares.items(), key=lambda item: -item[1])[:10])) for title, shares in panels if shares]
    if not panels:
        return None

    def draw(figure: Any) -> None:
        for index, (title, shares) in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), index + 1)
            axes.barh(range(len(shares)), list(shares.values()), color=COLORS[0], height=0.65)
            axes.set_yticks(range(len(shares)), [name or "observation" for name in shares], fontsize=8.5)
            axes.invert_yaxis()
            axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
            digits = 0 if max(shares.values()) > 0.05 else 1 if max(shares.values()) > 0.005 else 2
            axes.xaxis.set_major_formatter(lambda value, _, digits=digits: f"{value:.{digits}%}")
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)

    return _picture(9.5, 2.9, draw)


def skills_picture(knowledge: Knowledge, names: Sequence[str] | None) -> bytes | None:
    """The library of skills; None for knowledge without one."""
    library = knowledge.skills
    if library is None or not any(skill.share >= 0.02 for skill in library):
        return None
    with mpl.rc_context({"font.size": 10}):
        return _png(draw_skills(library, None, names))
