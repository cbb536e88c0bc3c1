"""The table to beat, as data: what the source reports, and which kept results stand beside it."""

from __future__ import annotations

from typing import NamedTuple

from rao_baselines.experiments import algebra, dialogue, longseq, maze

SUITES_OF_THE_TABLE = ("maze", "algebra", "longseq", "dialogue", "limits")
"""What `rao bench table` runs."""
FEWER = 2.5
"""How many times fewer steps than the monolithic agent to its final score: the target."""
SOLVED = 0.95
"""What "solved", the source's word for long sequences, is taken to mean."""


class Line(NamedTuple):
    """A line of the source's table (arXiv 2605.06639 as summarised: MISSION, "the table to beat")."""

    suite: str
    label: str
    task: str  # the line's own
    context: str  # what one call sees, and of how much
    their_monolithic: str
    their_recursive: str
    their_speedup: str
    target: float  # success of the source's recursive agent
    drawn: dict[str, float]  # what figures show of it, by label


LINES = (
    Line(
        "longseq",
        "[long sequence](environments/longseq.md), 10 k records",
        longseq.TASK,
        "2,000 tokens of 10,000 records",
        "fails (overflow)",
        "solved by 3 levels",
        "about 1.8x (wall-clock)",
        SOLVED,
        {},
    ),
    Line(
        "maze",
        "[maze](environments/maze.md) 20x20",
        maze.TRAINED,
        "9x9 blocks and 9x9 cells of 20x20",
        "62 % after 1 M steps",
        "94 % after 400 k steps",
        "2.5x (steps)",
        0.94,
        {"source: RAO": 0.94, "source: monolithic": 0.62},
    ),
    Line(
        "algebra",
        "[algebra](environments/algebra.md), depth 8",
        algebra.DEPTHS[1],
        "2 value slots of a whole expression",
        "48 %",
        "87 %",
        "-",
        0.87,
        {"source: RAO": 0.87, "source: monolithic": 0.48},
    ),
    Line(
        "dialogue",
        "[dialogue](environments/dialogue.md), 10 turns",
        dialogue.TASK,
        "the last 10 dialogue acts",
        "71 %",
        "85 %",
        "1.3x (parallel)",
        0.85,
        {"source: RAO": 0.85, "source: monolithic": 0.71},
    ),
)
