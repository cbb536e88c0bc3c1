"""The side panel of every family's picture: title, steps, last action, recursion tree, outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rao_envs.core.canvas import Canvas, Layer, Rect, picture_size
from rao_envs.core.viewer import (
    DESK,
    EVENTS,
    INK,
    LINE,
    MUTED,
    OUTCOMES,
    PAPER,
    TRUNCATED,
    Color,
    EpisodeView,
    TreeRow,
    depth_color,
    tree_rows,
    words,
)

DEFAULT_SIZE = (900, 640)
PANEL_SIZE = (480, 320)  # smaller pictures show the family's own part alone


class Picture(NamedTuple):
    """A picture under way and where its parts go."""

    surface: Any
    scale: float  # of text and lines
    gap: int  # between parts, in pixels
    board: Rect  # the family's own part: a card beside the panel, or the whole picture
    panel: Rect | None  # None where the picture is too small for it


class PanelViewer:
    """What the families' viewers have in common: a canvas with its caches, the side panel, and the plan of a picture.

    Pickling or copying a viewer gives a fresh one: viewers are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        self.canvas = Canvas()
        self.panel = SidePanel(self.canvas)

    def __reduce__(self) -> tuple[type[PanelViewer], tuple[()]]:
        return type(self), ()

    def open_picture(self, size: tuple[int, int] | None) -> Picture:
        """A new picture of `size` (width, height) in pixels, rounded down to even; 900 x 640 unless given.

        Raises:
            ValueError: the size is outside 64..4096.
        """
        width, height = picture_size(size or DEFAULT_SIZE)
        scale = min(max(min(width / DEFAULT_SIZE[0], height / DEFAULT_SIZE[1]), 0.75), 3.0)
        gap = round(12 * scale)
        surface = self.canvas.surface(width, height, DESK)
        if width < PANEL_SIZE[0] or height < PANEL_SIZE[1]:
            return Picture(surface, scale, gap, (0, 0, width, height), None)
        side = round(min(max(250 * scale, 0.26 * width), 0.45 * width))
        board = (gap, gap, width - side - 3 * gap, height - 2 * gap)
        return Picture(surface, scale, gap, board, (width - side - gap, gap, side, height - 2 * gap))


class SidePanel:
    """Draws an `EpisodeView`: title, steps, last action, the recursion tree, a legend or the outcome."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas

    def draw(
        self,
        surface: Any,
        rect: Rect,
        episode: EpisodeView,
        legend: Sequence[tuple[tuple[Layer, ...], str]] = (),
        scale: float = 1.0,
    ) -> None:
        """Draw the panel as a card in `rect`; `scale` is that of text, `legend` explains marks."""
        left, top, width, height = rect
        self.canvas.draw_box(surface, rect, round(12 * scale), fill=(PAPER, 255))
        pad = round(16 * scale)
        inside = (left + pad, top + pad, width - 2 * pad, height - 2 * pad)
        y = self._head(surface, inside, episode, scale)
        bottom = self._foot(surface, inside, episode, legend, scale)
        self._tree(surface, (inside[0], y, inside[2], bottom - y), episode, scale)

    def _head(self, surface: Any, rect: Rect, episode: EpisodeView, scale: float) -> int:
        """Title, step counter with its bar, last action; returns the y below them."""
        canvas, (left, top, width, _) = self.canvas, rect

        def px(value: float) -> int:
            return round(value * scale)

        canvas.draw_text(surface, episode.title, (left, top + px(8)), px(17), INK, bold=True, limit=width)
        y = top + px(36)
        canvas.draw_text(surface, "Step", (left, y), px(12), MUTED)
        count = f"{episode.step} / {episode.budget}"
        canvas.draw_text(surface, count, (left + width, y), px(12), INK, align="right")
        used = min(1.0, max(0.0, episode.step / episode.budget)) if episode.budget > 0 else 0.0
        y += px(12)
        bar = px(6)
        canvas.draw_box(surface, (left, y, width, bar), bar // 2, fill=(DESK, 255))
        if used > 0:
            canvas.draw_box(surface, (left, y, max(bar, round(width * used)), bar), bar // 2, fill=(depth_color(0), 255))
        y += px(25)
        canvas.draw_text(surface, "Last action", (left, y), px(12), MUTED)
        y += px(19)
        action = words(episode.last_action) or "none yet"
        used_width = canvas.draw_text(surface, action, (left, y), px(14), INK, bold=True, limit=width)
        event = EVENTS.get(episode.event, words(episode.event))
        gap = px(8)
        canvas.draw_text(surface, event, (left + used_width + gap, y), px(12), MUTED, limit=width - used_width - gap)
        y += px(20)
        surface.fill(LINE, (left, y, width, 1))
        return y + px(10)

    def _foot(
        self,
        surface: Any,
        rect: Rect,
        episode: EpisodeView,
        legend: Sequence[tuple[tuple[Layer, ...], str]],
        scale: float,
    ) -> int:
        """The outcome's banner when the episode is over, else the legend; returns the y above it."""
        canvas, (left, top, width, height) = self.canvas, rect
        line = round(21 * scale)
        rows = -(-len(legend) // 2)
        space = max(round(46 * scale), rows * line)
        y = top + height - space
        if episode.outcome:
            text, color = OUTCOMES.get(episode.outcome, (words(episode.outcome), TRUNCATED))
            canvas.draw_box(surface, (left, y, width, space), round(10 * scale), fill=(color, 255))
            mark = {"success": "check", "failure": "cross"}.get(episode.outcome, "ring")
            icon, size = round(20 * scale), round(17 * scale)
            shift = (icon + round(9 * scale)) // 2
            middle = y + space // 2
            text_width = canvas.text(text, size, PAPER, True).get_width()
            start = left + width // 2 - text_width // 2 + shift
            canvas.draw_text(surface, text, (start, middle), size, PAPER, bold=True)
            canvas.draw_mark(surface, (start - shift, middle), icon, (mark, 0.9, PAPER, 255))
        else:
            size = round(16 * scale)
            for i, (layers, text) in enumerate(legend):
                x = left + (i % 2) * (width // 2)
                middle = top + height - (rows - i // 2) * line + line // 2
                canvas.draw_mark(surface, (x + size / 2, middle), size, *layers)
                limit = width // 2 - size - round(8 * scale)
                canvas.draw_text(
                    surface,
                    text,
                    (x + size + round(6 * scale), middle),
                    round(12 * scale),
                    MUTED,
                    limit=limit,
                )
        return y - round(10 * scale)

    def _tree(self, surface: Any, rect: Rect, episode: EpisodeView, scale: float) -> None:
        """The recursion tree with its heading, in as many rows as fit."""
        canvas, (left, top, width, height) = self.canvas, rect
        row_height = round(21 * scale)
        small = round(12 * scale)
        n_open = sum(frame.status == "open" for frame in episode.frames)
        counts = f"{n_open} open, {len(episode.frames) - n_open} done"
        middle = top + round(7 * scale)
        used = canvas.draw_text(surface, "Recursion tree", (left, middle), small, MUTED)
        canvas.draw_text(surface, counts, (left + width, middle), small, MUTED, align="right", limit=width - used - small)
        top += round(20 * scale)
        rows = tree_rows(episode.frames, max(0, (height - round(20 * scale)) // row_height))
        if not rows:
            return
        deepest = max(row.indent for row in rows)
        step = min(16 * scale, 0.4 * width / max(1, deepest))  # deep stacks indent less, labels keep their room
        active = next((frame for frame in reversed(episode.frames) if frame.status == "open"), None)
        last_y: dict[int, int] = {}  # indent -> middle of the last row there, where the children's guide lines start
        for i, row in enumerate(rows):
            middle = top + i * row_height + row_height // 2
            x = left + row_height // 2 + round(row.indent * step)
            if row.frame is not None and row.frame is active:
                color = depth_color(row.frame.depth)
                box = (left, top + i * row_height, width, row_height)
                canvas.draw_box(surface, box, round(6 * scale), fill=(color, 30))
            if row.indent > 0:
                elbow = left + row_height // 2 + round((row.indent - 1) * step)
                start = last_y.get(row.indent - 1, middle - row_height // 2)
                clear = round(8 * scale)
                if middle - start > clear:
                    surface.fill(LINE, (elbow, start + clear, 1, middle - start - clear))
                if x - elbow > clear:
                    surface.fill(LINE, (elbow, middle, x - elbow - clear, 1))
            last_y = {indent: y for indent, y in last_y.items() if indent < row.indent}
            last_y[row.indent] = middle
            self._row(surface, row, x, middle, left + width, row.frame is active, scale)

    def _row(self, surface: Any, row: TreeRow, x: int, middle: int, right: int, is_active: bool, scale: float) -> None:
        """One row: status mark at `x`, label, steps of its budget at the right edge."""
        canvas, icon = self.canvas, round(15 * scale)
        small, start = round(12 * scale), x + round(13 * scale)
        color = depth_color(row.indent)
        if row.gap:
            for k in (-1, 0, 1):
                canvas.draw_mark(surface, (x + k * 4 * scale, middle), round(3 * scale), ("disc", 1.0, MUTED, 255))
            canvas.draw_text(surface, f"{row.hidden} more", (start, middle), small, MUTED, limit=right - start)
            return
        frame = row.frame
        if frame is None:
            tiny = round(11 * scale)
            for count, layers in (
                (row.successes, status_mark("success", color)),
                (row.failures, status_mark("failure", color)),
            ):
                if count:
                    canvas.draw_mark(surface, (x, middle), tiny, *layers)
                    x += round(10 * scale)
                    x += canvas.draw_text(surface, str(count), (x, middle), small, MUTED) + round(12 * scale)
            return
        canvas.draw_mark(surface, (x, middle), icon, *status_mark(frame.status, color))
        edge = right - round(5 * scale)
        ink = INK if frame.status == "open" else MUTED
        spent = canvas.draw_text(surface, f"{frame.steps}/{frame.budget}", (edge, middle), small, ink, align="right")
        room = edge - spent - round(8 * scale) - start
        used = canvas.draw_text(surface, words(frame.label), (start, middle), small, ink, bold=is_active, limit=room)
        if row.hidden:
            gap = round(6 * scale)
            canvas.draw_text(surface, f"+{row.hidden}", (start + used + gap, middle), small, MUTED, limit=room - used - gap)


def status_mark(status: str, color: Color) -> tuple[Layer, ...]:
    """The layers of a frame's status: a dotted ring while open, a filled check, or an outlined cross."""
    if status == "open":
        return (("disc", 0.95, color, 255), ("disc", 0.68, PAPER, 255), ("disc", 0.38, color, 255))
    if status == "success":
        return (("disc", 0.95, color, 255), ("check", 0.55, PAPER, 255))
    return (("disc", 0.95, color, 255), ("disc", 0.78, PAPER, 255), ("cross", 0.5, color, 255))
