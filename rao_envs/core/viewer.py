"""What every family's picture shows beside its domain: the episode as data, the palette, the recursion tree.

Nothing here draws: `canvas` and `panel` do, on pygame; `tree_text` needs nothing but a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Color = tuple[int, int, int]

INK: Color = (30, 41, 59)
MUTED: Color = (100, 116, 139)
LINE: Color = (203, 213, 225)
SOFT: Color = (241, 245, 249)
PAPER: Color = (255, 255, 255)
DESK: Color = (228, 233, 240)
SUCCESS: Color = (0, 135, 98)
FAILURE: Color = (200, 70, 30)
TRUNCATED: Color = (90, 100, 120)

# After Okabe and Ito (2008), "Color universal design"; red and yellow are left to the domains' own marks.
DEPTH_COLORS: tuple[Color, ...] = (
    (0, 114, 178),
    (204, 98, 158),
    (0, 158, 115),
    (222, 143, 5),
    (70, 165, 220),
    (120, 94, 240),
)

OUTCOMES: dict[str, tuple[str, Color]] = {
    "success": ("Success", SUCCESS),
    "failure": ("Failure", FAILURE),
    "truncated": ("Out of steps", TRUNCATED),
}
EVENTS = {
    "reset": "a new episode",
    "step": "one step in this frame",
    "spawn": "opened a sub-frame",
    "return": "returned to its parent",
}


class Viewer(Protocol):
    """What draws a family: made without arguments, it may keep caches, and draws what the environment's `view()` returns."""

    def draw_rgb(self, view: Any, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """A picture, uint8 (height, width, 3), in a fresh array; `size` is (width, height) in pixels."""

    @staticmethod
    def draw_ansi(view: Any) -> str:
        """The same for a terminal; needs no pygame."""


@dataclass(frozen=True)
class FrameView:
    """One frame of the episode as the panel shows it."""

    frame_id: int
    parent_id: int  # -1 for the root
    depth: int  # 0 for the root
    label: str  # the action that opened it, for example "spawn_north"
    budget: int  # steps the frame may spend, its whole sub-tree included
    steps: int  # steps spent so far
    status: str  # "open", "success" or "failure"


@dataclass(frozen=True)
class EpisodeView:
    """The family-independent part of a picture."""

    title: str
    step: int
    budget: int
    frames: tuple[FrameView, ...]  # every frame so far, open and finished, in the order of opening
    last_action: str
    event: str  # "reset", "step", "spawn" or "return"
    outcome: str  # "" while the episode runs, then "success", "failure" or "truncated"


@dataclass(frozen=True)
class TreeRow:
    """One line of the drawn recursion tree: a frame, or a summary of frames that are folded away."""

    indent: int  # depth of the frame, or of the folded ones
    frame: FrameView | None  # None: a summary row
    hidden: int = 0  # frames folded into this row (below the frame, or summarised)
    successes: int = 0  # of a summary: how many of its frames ended well, and
    failures: int = 0  # how many did not
    gap: bool = False  # the row stands for rows scrolled out of sight


def depth_color(depth: int) -> Color:
    """The colour of every frame at `depth`, wherever it is drawn; it repeats after six levels."""
    return DEPTH_COLORS[depth % len(DEPTH_COLORS)]


def words(name: str) -> str:
    """An identifier as a person reads it: `spawn_north` becomes `spawn north`."""
    return name.replace("_", " ")


def tree_rows(frames: Sequence[FrameView], capacity: int) -> list[TreeRow]:
    """The recursion tree in at most `capacity` rows, depth first, with as much folded away as it takes.

    The descendants of finished frames go first, then the oldest finished siblings (all but the last one at
    worst), then the rows between the root and the newest.
    """
    if capacity < 1:
        return []
    tree = _Tree(frames)
    if len(frames) <= capacity:
        return list(tree.walk(fold=False, keep=len(frames)))
    low, high = 1, capacity  # the most finished siblings to keep: more siblings, more rows
    while low < high:
        keep = (low + high + 1) // 2
        if len(list(tree.walk(True, keep))) <= capacity:
            low = keep
        else:
            high = keep - 1
    rows = list(tree.walk(True, low))
    if len(rows) <= capacity:
        return rows
    if capacity < 3:
        return rows[-capacity:]
    tail = rows[len(rows) - (capacity - 2) :]
    return [rows[0], TreeRow(min(1, tail[0].indent), None, hidden=len(rows) - len(tail) - 1, gap=True), *tail]


class _Tree:
    """The frames by parent, with the size of each sub-tree."""

    def __init__(self, frames: Sequence[FrameView]) -> None:
        self.below = {frame.frame_id: 0 for frame in frames}  # descendants of each frame
        self.children: dict[int, list[FrameView]] = {}
        for frame in frames:
            parent = frame.parent_id if frame.parent_id in self.below else -1
            self.children.setdefault(parent, []).append(frame)
        for frame in reversed(frames):  # a child opens after its parent, so its own count is complete here
            if frame.parent_id in self.below:
                self.below[frame.parent_id] += self.below[frame.frame_id] + 1

    def walk(self, fold: bool, keep: int) -> Iterator[TreeRow]:
        """Depth-first rows; `fold` hides what finished frames hold, and siblings before the last `keep`."""
        roots = self.children.get(-1, [])
        pending = [TreeRow(frame.depth, frame) for frame in reversed(roots)]
        while pending:
            row = pending.pop()
            frame = row.frame
            if frame is None:
                yield row
                continue
            if fold and frame.status != "open" and frame.parent_id in self.below:
                yield TreeRow(row.indent, frame, hidden=self.below[frame.frame_id])
                continue
            yield row
            kids = self.children.get(frame.frame_id, [])
            split = max(0, len(kids) - keep) if fold else 0
            folded = [kid for kid in kids[:split] if kid.status != "open"]
            shown = [kid for kid in kids[:split] if kid.status == "open"] + kids[split:]
            pending.extend(TreeRow(kid.depth, kid) for kid in reversed(shown))
            if folded:
                won = sum(kid.status == "success" for kid in folded)
                hidden = sum(self.below[kid.frame_id] + 1 for kid in folded)
                pending.append(TreeRow(folded[0].depth, None, hidden, won, len(folded) - won))


def tree_text(episode: EpisodeView, color: bool = True, capacity: int = 12) -> str:
    """The side panel as text: title, step, last action, the tree in at most `capacity` lines, the outcome.

    Args:
        episode: what to write.
        color: use ANSI colours (the same one per depth as in the picture, from the 256-colour table).
        capacity: lines for the tree.
    """
    head = f"{episode.title}  step {episode.step}/{episode.budget}"
    action = f"  {words(episode.last_action)}" if episode.last_action else ""
    event = f" ({EVENTS.get(episode.event, words(episode.event))})" if episode.event else ""
    lines = [head + action + event]
    marks = {"open": "o", "success": "+", "failure": "x"}
    for row in tree_rows(episode.frames, capacity):
        pad = "  " * min(row.indent, 20)
        if row.gap:
            lines.append(f"{pad}... {row.hidden} more rows")
        elif row.frame is None:
            lines.append(f"{pad}{row.successes} succeeded, {row.failures} failed")
        else:
            frame = row.frame
            text = f"{marks.get(frame.status, '?')} {words(frame.label)} {frame.steps}/{frame.budget}"
            text += f" ({row.hidden} inside)" if row.hidden else ""
            lines.append(pad + (paint_text(text, foreground=depth_color(frame.depth)) if color else text))
    if episode.outcome:
        lines.append(OUTCOMES.get(episode.outcome, (words(episode.outcome), MUTED))[0].upper())
    return "\n".join(lines)


def paint_text(text: str, foreground: Color | None = None, background: Color | None = None) -> str:
    """`text` in ANSI colours, from the 6x6x6 cube of the 256-colour table, which terminals share."""
    codes = [f"{kind};5;{_cube(value)}" for kind, value in ((38, foreground), (48, background)) if value is not None]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text


def _cube(color: Color) -> int:
    """Index of the nearest colour of the 6x6x6 cube (its steps are 0, 95, 135, 175, 215, 255)."""
    steps = [0 if part < 48 else 1 if part < 115 else (part - 35) // 40 for part in color]
    return 16 + 36 * steps[0] + 6 * steps[1] + steps[2]
