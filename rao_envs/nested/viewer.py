"""Pictures of nested brackets: the text's brackets level by level, the open frames' ranges, and what the acting frame has before it.

Everything is drawn from one plain snapshot, `NestedView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Layer, Rect
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import (
    FAILURE,
    INK,
    LINE,
    MUTED,
    PAPER,
    SOFT,
    SUCCESS,
    Color,
    EpisodeView,
    depth_color,
    paint_text,
    tree_text,
)

OPERATOR_COLORS: dict[str, Color] = {"SUM": (186, 203, 226), "MAX": (243, 205, 168), "MIN": (178, 221, 205)}
OPERATOR_INKS: dict[str, Color] = {"SUM": (52, 84, 130), "MAX": (164, 88, 16), "MIN": (16, 112, 84)}
MOST_RANGES = 7  # open frames that get a line each; of more, the root and the newest
MOST_ROWS = 24  # levels of brackets that get a row each; deeper ones share the last
LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("square", 0.8, OPERATOR_COLORS["SUM"], 255),), "SUM"),
    ((("square", 0.8, OPERATOR_COLORS["MAX"], 255),), "MAX"),
    ((("square", 0.8, OPERATOR_COLORS["MIN"], 255),), "MIN"),
    ((("frame", 0.85, INK, 255),), "open frame"),
)
SHOWN_TOKENS = 48  # of the text around the acting frame, in a terminal


@dataclass(frozen=True)
class CellView:
    """A slot of the folded view, or a token of the raw one."""

    text: str  # "2", "[MAX", "]", or "" for a bracket that nobody has answered
    kind: str  # "digit", "open", "answer" or "mark" (a bracket's "]" or its opening)
    caption: str = ""  # what the slot stands for, in short
    span: tuple[int, int] = (0, 0)  # its tokens [start, end)
    correct: bool | None = None  # of an answer


@dataclass(frozen=True)
class RangeView:
    """An open frame."""

    depth: int
    label: str  # the action that opened it
    operator: str
    span: tuple[int, int]  # its tokens [start, end)
    answers: tuple[CellView, ...] = ()  # what it has been answered so far


@dataclass(frozen=True, eq=False)
class NestedView:
    """A snapshot of one episode. The arrays are read, never kept or changed."""

    words: tuple[str, ...]  # the text's tokens as text
    spans: npt.NDArray[np.int32]  # (brackets, 2) tokens [start, end) of each
    nesting: npt.NDArray[np.int32]  # (brackets,) 0 for the outermost
    operators: tuple[str, ...]  # of each bracket
    modulus: int
    truth: str
    answer: str  # the root's, "" while it runs
    stack: tuple[RangeView, ...]  # open frames, root first
    focus: RangeView  # what the acting frame looks at: its own range, or where its cursor is
    cells: tuple[CellView, ...]  # what it sees there
    halves: tuple[CellView, ...]  # raw: answers to the two halves of its range
    note: str  # "" for none
    pushed: tuple[str, ...]  # raw: notes on its stack, the lowest first
    below: int  # folded: how far the cursor is below the frame's own range
    folded: bool
    episode: EpisodeView


class _Static(NamedTuple):
    """The cached picture of one text's brackets."""

    words: tuple[str, ...]
    size: tuple[int, int]
    surface: Any


class NestedViewer(PanelViewer):
    """Draws `NestedView`s; viewers own their caches and are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._static: _Static | None = None

    def draw_rgb(self, view: NestedView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8[height, width, 3].

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. Under 480 x 320 the side panel is left out.

        Raises:
            ValueError: the size is outside 64..4096.
        """
        picture = self.open_picture(size)
        if picture.panel is not None:
            self.panel.draw(picture.surface, picture.panel, view.episode, LEGEND, picture.scale)
        self.canvas.draw_box(picture.surface, picture.board, picture.gap, fill=(PAPER, 255))
        self._board(picture.surface, picture.board, view, picture.scale)
        return self.canvas.pixels(picture.surface)

    @staticmethod
    def draw_ansi(view: NestedView) -> str:
        """The same for a terminal: see the function `draw_ansi`."""
        return draw_ansi(view)

    # -- the board ---------------------------------------------------------------------------------------------------------------

    def _board(self, surface: Any, rect: Rect, view: NestedView, scale: float) -> None:
        left, top, width, height = rect
        pad = round(18 * scale)
        left, top, width, height = left + pad, top + pad, width - 2 * pad, height - 2 * pad
        head = round(34 * scale)
        desk = min(round(190 * scale), height // 2)
        self._head(surface, (left, top, width, head), view, scale)
        space = height - head - desk
        ranges = min(len(view.stack), MOST_RANGES + 1) * round(17 * scale) + round(10 * scale)
        bands = max(round(40 * scale), space - ranges - round(14 * scale))
        area = (left, top + head, width, bands)
        self._bands(surface, area, view)
        self._marks(surface, area, view)
        self._ranges(surface, (left, top + head + bands, width, space - bands - round(14 * scale)), view, scale)
        self._focus(surface, (left, top + height - desk, width, desk), view, scale)

    def _head(self, surface: Any, rect: Rect, view: NestedView, scale: float) -> None:
        """What is asked, and the truth."""
        left, top, width, _ = rect
        middle = top + round(8 * scale)
        root = view.operators[0]
        text = f"{root} modulo {view.modulus}" if root == "SUM" else root
        used = self.canvas.draw_text(surface, f"Value of {len(view.words):,} tokens", (left, middle), round(16 * scale), INK, bold=True)
        told = f"truth {view.truth}" if not view.answer else f"answer {view.answer}, truth {view.truth}"
        end = self.canvas.draw_text(surface, told, (left + width, middle), round(13 * scale), MUTED, align="right", limit=width // 2)
        rest = f"outermost {text}, {len(view.operators):,} brackets, {int(view.nesting.max()) + 1} levels"
        gap = round(10 * scale)
        room = width - used - end - 2 * gap
        self.canvas.draw_text(surface, rest, (left + used + gap, middle), round(12 * scale), MUTED, limit=room)

    def _bands(self, surface: Any, rect: Rect, view: NestedView) -> None:
        """Every bracket as a bar over its tokens, one row per level of nesting."""
        left, top, width, height = rect
        old = self._static
        if old is None or old.size != (width, height) or old.words != view.words:
            pixels = np.zeros((height, width, 4), np.uint8)
            pixels[..., :3] = SOFT
            pixels[..., 3] = 255
            rows = min(MOST_ROWS, int(view.nesting.max()) + 1)
            row_height = height / rows
            length = len(view.words)
            for k in np.argsort(view.nesting, kind="stable").tolist():
                row = min(int(view.nesting[k]), rows - 1)
                x0, x1 = (int(edge * width / length) for edge in view.spans[k])
                y0, y1 = round(row * row_height), round((row + 1) * row_height)
                x1 = max(x0 + 1, x1 - (1 if x1 - x0 > 3 else 0))
                y1 = max(y0 + 1, y1 - (1 if y1 - y0 > 3 else 0))
                pixels[y0:y1, x0:x1, :3] = OPERATOR_COLORS[view.operators[k]]
            old = self._static = _Static(view.words, (width, height), self.canvas.from_rgba(pixels))
        surface.blit(old.surface, (left, top))
        rows = min(MOST_ROWS, int(view.nesting.max()) + 1)
        pitch, row_height = width / len(view.words), height / rows
        size = min(round(row_height * 0.7), round(pitch * 1.6), 15)
        if size < 8:
            return
        level = -1
        for at, word in enumerate(view.words):
            level += word.startswith("[")
            row = min(level, rows - 1)
            middle = (round(left + (at + 0.5) * pitch), round(top + (row + 0.5) * row_height))
            shown = word.removeprefix("[")
            if word != "]" and (len(shown) == 1 or pitch > 2.2 * size):  # where there is no room the colour says the operator
                self.canvas.draw_text(surface, shown, middle, size, INK, align="center")
            level -= word == "]"

    def _x(self, rect: Rect, view: NestedView, span: tuple[int, int], least: int) -> tuple[int, int]:
        """Where a span of tokens is drawn: left edge and width, at least `least` pixels."""
        left, _, width, _ = rect
        x0, x1 = (left + round(edge * width / len(view.words)) for edge in span)
        wide = max(least, x1 - x0)
        return min(x0, left + width - wide), wide

    def _marks(self, surface: Any, rect: Rect, view: NestedView) -> None:
        """The open frames' ranges as frames over the bars, and what they have been answered."""
        _, top, _, height = rect
        rows = min(MOST_ROWS, int(view.nesting.max()) + 1)
        row_height = height / rows
        for frame in view.stack:
            x, wide = self._x(rect, view, frame.span, 5)
            level = min(_level(view, frame.span), rows - 1)
            y = top + round(level * row_height)
            box = (x - 1, y - 1, wide + 2, top + height - y + 2)
            self.canvas.draw_box(surface, box, 4, fill=(depth_color(frame.depth), 14), line=(depth_color(frame.depth), 255), width=2)
            for cell in frame.answers:
                x, wide = self._x(rect, view, cell.span, 3)
                level = min(_level(view, cell.span), rows - 1)
                y = top + round(level * row_height)
                color = SUCCESS if cell.correct else FAILURE
                self.canvas.draw_box(surface, (x, y, wide, max(3, round(row_height) - 1)), 2, fill=(color, 255))
                size = min(round(row_height * 0.8), 13)
                if size >= 8 and wide >= size:
                    self.canvas.draw_text(surface, cell.text, (x + wide // 2, y + round(row_height / 2)), size, PAPER, True, "center")

    def _ranges(self, surface: Any, rect: Rect, view: NestedView, scale: float) -> None:
        """A line per open frame: its range below the text, with what it is asked."""
        left, top, width, height = rect
        step, thick, size = round(17 * scale), round(7 * scale), round(11 * scale)
        room = max(2, min(MOST_RANGES, (height - step // 2) // step))
        frames: list[RangeView | None] = list(view.stack)
        hidden = len(frames) - room
        if hidden > 0:
            frames = [frames[0], None, *frames[hidden + 2 :]]
        for k, frame in enumerate(frames):
            middle = top + round(12 * scale) + k * step
            if frame is None:
                self.canvas.draw_text(surface, f"... {hidden + 1} more frames", (left, middle), size, MUTED)
                continue
            x, wide = self._x(rect, view, frame.span, 6)
            color = depth_color(frame.depth)
            self.canvas.draw_box(surface, (left, middle - 1, width, 2), 1, fill=(LINE, 255))
            self.canvas.draw_box(surface, (x, middle - thick // 2, wide, thick), thick // 2, fill=(color, 255))
            text = f"{frame.operator}, {frame.span[1] - frame.span[0]:,} tokens"
            text_width = self.canvas.text(text, size, color, False).get_width() + round(8 * scale)
            behind = left + width - x - wide
            if behind >= text_width:
                place, align = x + wide + round(6 * scale), "left"
            elif x - left >= text_width:
                place, align = x - round(6 * scale), "right"
            else:
                place, align = left + width // 2, "center"
            chip = text_width
            start = {"left": place - 3, "right": place - chip + 3, "center": place - chip // 2}[align]
            self.canvas.draw_box(surface, (start, middle - size // 2 - 2, chip, size + 4), 4, fill=(PAPER, 235))
            self.canvas.draw_text(surface, text, (place, middle), size, color, align=align)

    def _focus(self, surface: Any, rect: Rect, view: NestedView, scale: float) -> None:
        """What the acting frame has before it: the operator, slots or window, halves, note and stack."""
        left, top, width, height = rect
        color = depth_color(view.stack[-1].depth) if view.stack else MUTED
        surface.fill(LINE, (left, top, width, 1))
        middle = top + round(18 * scale)
        what = "slots" if view.folded else f"window of {len(view.cells)} tokens"
        where = f", cursor {view.below} below its own range" if view.below else ""
        title = f"The acting frame's {what}{where}" if view.stack else f"The last frame's {what}"
        self.canvas.draw_text(surface, title, (left, middle), round(12 * scale), MUTED, limit=width // 2 + round(40 * scale))
        kept = [f"note {view.note}" if view.note else "no note"]
        if view.pushed:
            kept.append("stack " + " ".join(view.pushed))
        kept += [f"{name} half {half.text}" for name, half in zip(("left", "right"), view.halves, strict=False) if half.text]
        self.canvas.draw_text(
            surface, ", ".join(kept), (left + width, middle), round(12 * scale), MUTED, align="right", limit=width // 2 - round(50 * scale)
        )
        gap = round(8 * scale)
        top += round(34 * scale)
        height -= round(34 * scale)
        sign = round(84 * scale)
        tall = height - round(26 * scale)
        ink, fill = OPERATOR_INKS[view.focus.operator], OPERATOR_COLORS[view.focus.operator]
        self.canvas.draw_box(surface, (left, top, sign, tall), round(10 * scale), fill=(fill, 255))
        self.canvas.draw_text(surface, view.focus.operator, (left + sign // 2, top + tall // 2), round(22 * scale), ink, True, "center")
        count = max(1, len(view.cells))
        cell = min(round(140 * scale), (width - sign - gap) // count - gap)
        x = left + sign + 2 * gap
        for each in view.cells:
            self._cell(surface, (x, top, cell, tall), each, color, scale)
            x += cell + gap

    def _cell(self, surface: Any, rect: Rect, cell: CellView, color: Color, scale: float) -> None:
        left, top, width, height = rect
        middle = (left + width // 2, top + height // 2)
        radius = round(10 * scale)
        fill, line, ink, text = PAPER, LINE, INK, cell.text
        if cell.kind == "answer":
            fill, line, ink = (SUCCESS if cell.correct else FAILURE), PAPER, PAPER
        elif cell.kind == "open":
            fill, line, ink, text = SOFT, color, color, cell.text or "?"
        elif cell.kind == "mark":
            ink = MUTED
            fill, line = (PAPER, LINE) if text else (SOFT, SOFT)  # past the range's end there is nothing
        self.canvas.draw_box(surface, rect, radius, fill=(fill, 255), line=(line, 255), width=max(1, round(2 * scale)))
        size = round(34 * scale) if len(text) < 2 else round(min(20 * scale, width / 3))
        self.canvas.draw_text(surface, text, middle, size, ink, True, "center", limit=width - 4)
        if cell.caption:
            below = top + height + round(13 * scale)
            self.canvas.draw_text(surface, cell.caption, (middle[0], below), round(11 * scale), MUTED, align="center", limit=width + 6)


def _level(view: NestedView, span: tuple[int, int]) -> int:
    """The level of the innermost bracket around a span of tokens, or of the bracket that it is."""
    around = (view.spans[:, 0] <= span[0]) & (view.spans[:, 1] >= span[1])
    return int(view.nesting[around].max(initial=0))


def draw_rgb(view: NestedView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One picture with no caches kept: see `NestedViewer.draw_rgb`, which is faster for a series."""
    return NestedViewer().draw_rgb(view, size)


def draw_ansi(view: NestedView, color: bool = True, capacity: int = 12) -> str:
    """The text around the acting frame, the open frames, what the acting frame sees, and the recursion tree. Needs no pygame.

    Args:
        view: the snapshot.
        color: colour the open frames' ranges with ANSI codes.
        capacity: lines for the tree.
    """
    answer = f", answer {view.answer}" if view.answer else ""
    lines = [f"{len(view.words):,} tokens, {len(view.operators):,} brackets; truth {view.truth}{answer}"]
    lines.append(_excerpt(view, color))
    shown = view.stack if len(view.stack) <= MOST_RANGES else (view.stack[0], *view.stack[-(MOST_RANGES - 1) :])
    for frame in shown:
        text = f"{'  ' * min(frame.depth, 12)}{frame.operator} of tokens {frame.span[0]:,}-{frame.span[1] - 1:,}"
        text += "".join(f"  {cell.text}{'' if cell.correct else '!'}" for cell in frame.answers)
        lines.append(paint_text(text, depth_color(frame.depth)) if color else text)
    marks = {"digit": "{}", "open": "?{}", "answer": "({})", "mark": "{}"}
    cells = " ".join(marks[cell.kind].format(cell.text) for cell in view.cells)
    below = f"  (cursor {view.below} below)" if view.below else ""
    pushed = f"  stack {' '.join(view.pushed)}" if view.pushed else ""
    lines.append(f"sees {view.focus.operator}: {cells}{below}  note {view.note or '-'}{pushed}")
    lines.append(tree_text(view.episode, color, capacity))
    return "\n".join(lines)


def _excerpt(view: NestedView, color: bool) -> str:
    """The text around what the acting frame looks at, the range itself marked."""
    start, end = view.focus.span
    first = max(0, min(start - 4, len(view.words) - SHOWN_TOKENS))
    last = min(len(view.words), first + SHOWN_TOKENS)
    inside = " ".join(view.words[max(first, start) : min(last, end)])
    tint = depth_color(view.stack[-1].depth) if view.stack else MUTED
    middle = paint_text(inside, tint) if color else f"<{inside}>"
    parts = ["..." if first else "", " ".join(view.words[first:start]), middle, " ".join(view.words[min(last, end) : last])]
    return " ".join(part for part in [*parts, "..." if last < len(view.words) else ""] if part)
