"""Pictures of knowledge; matplotlib is needed here and nowhere else in this package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rao_agents.distillation.distillers.skills import SkillLibrary

# Okabe and Ito's palette: colours that colour-blind people can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C6D31")
USED = 0.02
"""Skills with a smaller share of the pieces are not drawn."""


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure that needs no display.

    Raises:
        ImportError: matplotlib is missing; the message names the extra.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f'pictures need matplotlib ({error}). Install it with: pip install "rao-envs[baselines]"') from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write `figure`; the same picture gives the same bytes."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower(), {"Software": None})
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "rao"}):
        figure.savefig(target, dpi=160, metadata=metadata)


def draw_skills(library: SkillLibrary, path: str | os.PathLike[str] | None = None, action_names: Sequence[str] | None = None) -> Any:
    """A row for each skill, most used first; see `SkillLibrary.draw`.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: the library is empty, or there are other names than actions.
    """
    skills = sorted((skill for skill in library if skill.share >= USED), key=lambda skill: -skill.share)
    if not skills:
        raise ValueError("there are no skills to draw")
    n_actions = len(skills[0].actions)
    names = [str(i) for i in range(n_actions)] if action_names is None else [str(name) for name in action_names]
    if len(names) != n_actions:
        raise ValueError(f"there are {n_actions} actions, but {len(names)} names for them")
    figure = new_figure(9.5, 0.9 + 1.25 * len(skills))
    grid = figure.add_gridspec(len(skills), 2, width_ratios=(3, 2))
    top = max(max(skill.actions) for skill in skills)
    first = None
    for row, skill in enumerate(skills):
        color = COLORS[skill.number % len(COLORS)]
        axes = figure.add_subplot(grid[row, 0], sharex=first)
        first = first or axes
        axes.bar(np.arange(n_actions), skill.actions, color=color, width=0.8)
        axes.set_ylim(0, 1.05 * top)
        axes.set_yticks([0, round(top, 1)] if top >= 0.1 else [0])
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        result = "outcome unknown" if skill.success < 0 else f"succeeds {skill.success:.0%}"
        title = f"skill {skill.number}   {skill.share:.0%} of the pieces, {result}, depth {skill.depth:.1f}"
        axes.set_title(title, loc="left", fontsize=9, color=color, fontweight="bold")
        last = row == len(skills) - 1
        sparse = n_actions > 24
        ticks = np.arange(0, n_actions, -(-n_actions // 24)) if sparse and action_names is None else np.arange(n_actions)
        axes.set_xticks(ticks, [names[i] for i in ticks], rotation=45 if action_names else 0, ha="right" if action_names else "center")
        axes.tick_params(axis="x", labelsize=8 if n_actions <= 16 else 6, labelbottom=last)
        if last:
            axes.set_xlabel("action (height: how often it is chosen)", fontsize=8)
        _draw_features(figure.add_subplot(grid[row, 1]), skill.features, color, last)
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_features(axes: Any, features: dict[str, float], color: str, last: bool) -> None:
    labels, amounts = list(features)[::-1], list(features.values())[::-1]
    axes.barh(np.arange(len(labels)), amounts, color=color, alpha=0.55, height=0.7)
    axes.axvline(0, color="#444444", lw=0.6)
    axes.set_yticks(np.arange(len(labels)), labels)
    reach = max(1.0, *(1.1 * abs(amount) for amount in amounts)) if amounts else 1.0
    axes.set_xlim(-reach, reach)
    axes.tick_params(labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if not labels:
        axes.text(0.03 * reach, 0, "anywhere: no feature stands out", fontsize=8, color="#777777", va="center")
        axes.set_ylim(-1, 1)
    if last:
        axes.set_xlabel("where: standard deviations from the average state", fontsize=8)
