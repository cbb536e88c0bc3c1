"""Writes a distillation report: pictures, numbers, and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rao_baselines import distill_figures as figures
from rao_baselines.distill_html import page
from rao_baselines.distill_measure import Run
from rao_baselines.runs import write_atomically, write_bytes_atomically, write_json


def write_report(run: Run, measured: dict[str, Any], folder: Path) -> Path:
    """Write `report.html` (self-contained), its pictures as PNG files, and `report.json` with the numbers.

    Args:
        run: that was measured.
        measured: of `distill_measure.measure`.
        folder: for the files; made if it is not there.

    Returns:
        The page.
    """
    pictures: dict[str, bytes] = {"rounds": figures.rounds_picture(measured)}
    if measured["learning"] is not None:
        pictures["learning"] = figures.learning_picture(measured)
    if measured["map"] is not None:
        pictures["map"] = figures.map_picture(measured["map"])
    lines: list[str] = []
    names = None if measured["map"] is None else measured["map"]["names"]
    knowledge = next((found for one in reversed(run.rounds) if (found := one.knowledge()) is not None), None)
    if knowledge is not None:
        if (drawn := figures.importance_picture(knowledge.inspect())) is not None:
            pictures["importance"] = drawn
        if (drawn := figures.skills_picture(knowledge, names)) is not None and knowledge.skills is not None:
            pictures["skills"] = drawn
            lines = [skill.describe(names) for skill in sorted(knowledge.skills, key=lambda one: -one.share) if skill.share >= 0.02]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pictures.items():
        write_bytes_atomically(folder / f"{name}.png", content)
    write_json(folder / "report.json", measured)
    write_atomically(folder / "report.html", page(measured, pictures, lines))
    return folder / "report.html"
