"""Pictures of the Rewrite family: one card per open frame with its expression, the part that is lent to a child, and the cursor.

Everything is drawn from one plain snapshot, `RewriteView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Layer, Rect
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import INK, MUTED, PAPER, Color, EpisodeView, depth_color, paint_text, tree_text, words

SIZES = (20, 17, 14, 12, 10)  # letters, in pixels at scale 1: the largest at which all cards fit
CELL = 0.62  # width of a letter's cell by its size: every letter has one, so that marks line up
LEAD = 1.45  # height of a line, by the size of its letters
TEXT_WIDTH = 100
CURSOR: Color = (226, 61, 40)
LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("square", 0.85, CURSOR, 60), ("frame", 0.9, CURSOR, 255)), "cursor"),
    ((("square", 0.85, depth_color(1), 90),), "with a child"),
)

Span = tuple[int, int]
"""First and end character."""


@dataclass(frozen=True)
class RewriteFrameView:
    """An open frame as its card shows it."""

    depth: int
    form: str  # what is asked for
    text: str
    cursor: Span  # of the acting frame, what its cursor is on; of others, what was when they spawned
    lent: Span | None  # the part that the child works on


@dataclass(frozen=True)
class RewriteView:
    """A snapshot of one episode."""

    stack: tuple[RewriteFrameView, ...]  # open frames, root first
    episode: EpisodeView


class RewriteViewer(PanelViewer):
    """Draws `RewriteView`s. It owns its caches: viewers are independent of each other, and pickling one gives a fresh one.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def draw_rgb(self, view: RewriteView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8 (height, width, 3).

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. Under 480 x 320 the side panel is left out.

        Raises:
            ValueError: the size is outside 64..4096.
        """
        picture = self.open_picture(size)
        if picture.panel is not None:
            self.panel.draw(picture.surface, picture.panel, view.episode, LEGEND, picture.scale)
        self._cards(picture.surface, picture.board, view, picture.scale)
        return self.canvas.pixels(picture.surface)

    @staticmethod
    def draw_ansi(view: RewriteView) -> str:
        """The cards as coloured text: see the function `draw_ansi`."""
        return draw_ansi(view)

    def _cards(self, surface: Any, board: Rect, view: RewriteView, scale: float) -> None:
        """The cards from the root down, the newest whole; what does not fit is cut from the older ones' text, then left out."""
        left, top, width, height = board
        gap = round(8 * scale)
        for base in SIZES:
            size = max(8, round(base * scale))
            columns = max(8, int((width - 2 * gap - gap) / (CELL * size)))
            heights = [self._height(frame, columns, size, gap) for frame in view.stack]
            if sum(heights) + gap * (len(heights) - 1) <= height:
                break
        first = 0
        while first < len(heights) - 1 and sum(heights[first:]) + gap * (len(heights) - 1 - first) > height:
            first += 1
        previous = surface.get_clip()
        surface.set_clip(self.canvas.pygame.Rect(board))
        y = top
        for frame, card in zip(view.stack[first:], heights[first:], strict=True):
            self._card(surface, (left, y, width, card), frame, columns, size, gap, frame is view.stack[-1])
            y += card + gap
        surface.set_clip(previous)

    def _height(self, frame: RewriteFrameView, columns: int, size: int, gap: int) -> int:
        return round(size * 0.8) + 3 * gap + round(len(wrap(frame.text, columns)) * LEAD * size)

    def _card(self, surface: Any, rect: Rect, frame: RewriteFrameView, columns: int, size: int, gap: int, acting: bool) -> None:
        left, top, _, _ = rect
        color = depth_color(frame.depth)
        self.canvas.draw_box(surface, rect, gap, fill=(PAPER, 255), line=(color, 255), width=3 if acting else 1)
        small = max(8, round(size * 0.7))
        self.canvas.draw_text(surface, f"make it {words(frame.form)}", (left + 2 * gap, top + gap + small // 2), small, color, bold=acting)
        y = top + 2 * gap + round(size * 0.8)
        cell, line = CELL * size, LEAD * size
        x0 = left + round(1.5 * gap)
        lines = wrap(frame.text, columns)
        for row, (begin, end) in enumerate(lines):
            middle = round(y + (row + 0.5) * line)
            for span, tint, framed in self._marks(frame, acting):
                a, b = max(span[0], begin), min(span[1], end)
                if a < b:
                    x, w = round(x0 + (a - begin) * cell), round((b - a) * cell)
                    box = (x - 2, round(middle - 0.48 * line), w + 4, round(0.96 * line))
                    rim = (tint, 255) if framed else None
                    self.canvas.draw_box(surface, box, 4, fill=(tint, 40), line=rim, width=2 if framed else 0)
            ink = INK if acting else MUTED
            for k, char in enumerate(frame.text[begin:end]):
                if char != " ":
                    self.canvas.draw_text(surface, char, (round(x0 + (k + 0.5) * cell), middle), size, ink, align="center")

    def _marks(self, frame: RewriteFrameView, acting: bool) -> Iterator[tuple[Span, Color, bool]]:
        if frame.lent is not None:
            yield frame.lent, depth_color(frame.depth + 1), False
        if acting:
            yield frame.cursor, CURSOR, True


def wrap(text: str, columns: int) -> list[Span]:
    """The lines of `text`, at most `columns` characters each, broken at a space where there is one."""
    lines: list[Span] = []
    begin = 0
    while len(text) - begin > columns:
        cut = text.rfind(" ", begin + columns // 2, begin + columns + 1)
        end = cut if cut > begin else begin + columns
        lines.append((begin, end))
        begin = end + (end < len(text) and text[end] == " ")
    lines.append((begin, len(text)))
    return lines


def draw_ansi(view: RewriteView, color: bool = True) -> str:
    """Every open frame with its expression, and the recursion tree.

    The part that a child works on has the child's colour; what the cursor is on stands in reverse, or between [ and ] without colours.
    """
    lines = []
    for frame in view.stack:
        head = f"make it {words(frame.form)}"
        pad = "  " * frame.depth
        lines.append(pad + (paint_text(head, depth_color(frame.depth)) if color else head))
        for begin, end in wrap(frame.text, TEXT_WIDTH):
            lines.append(pad + _marked(frame, begin, end, frame is view.stack[-1], color))
    return "\n".join([*lines, "", tree_text(view.episode, color)])


def _marked(frame: RewriteFrameView, begin: int, end: int, acting: bool, color: bool) -> str:
    """One line of an expression with its marks."""
    span = frame.cursor if acting else frame.lent
    if span is None or span[1] <= begin or span[0] >= end:
        return frame.text[begin:end]
    a, b = max(span[0], begin), min(span[1], end)
    inside = frame.text[a:b]
    if not color:
        inside = f"[{inside}]"
    elif acting:
        inside = f"\x1b[7m{inside}\x1b[0m"
    else:
        inside = paint_text(inside, depth_color(frame.depth + 1))
    return frame.text[begin:a] + inside + frame.text[b:end]
