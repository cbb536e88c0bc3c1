"""Pictures of dialogues: the chat of the open frames, the trip's bookings beside it, the recursion tree in the side panel.

Everything is drawn from one plain snapshot, `DialogueView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Canvas, Layer, Rect
from rao_envs.core.lettering import Lettering
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import DESK, FAILURE, INK, LINE, MUTED, PAPER, SOFT, SUCCESS, Color, depth_color
from rao_envs.dialogue.chat import UNSURE, Chat, darker, tint
from rao_envs.dialogue.terminal import draw_ansi
from rao_envs.dialogue.view import DialogueView, ItemView, check

LEDGER = 190  # pixels of the bookings' column
MOST_SEGMENTS = 48  # turns drawn one by one
WISH_LINES = 3  # of a booking's goal
MOST_BELOW = 5  # lines below a booking's name

LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("square", 0.9, darker(depth_color(0), 0.85), 255),), "agent"),
    ((("square", 0.9, LINE, 255), ("square", 0.74, PAPER, 255)), "counterpart"),
    ((("square", 0.9, LINE, 255), ("square", 0.74, SOFT, 255)), "forgotten"),
    ((("square", 0.9, UNSURE, 255), ("square", 0.7, PAPER, 255)), "not sure"),
)


class DialogueViewer(PanelViewer):
    """Draws `DialogueView`s. It owns its caches (letters, sprites): viewers are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lettering = Lettering(self.canvas)

    def draw_rgb(self, view: DialogueView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8[height, width, 3].

        On top the turns that are left; below, the open frames as cards inside each other with the agent's acts on the right and its
        counterpart's on the left, the newest at the bottom, and what the window has forgotten pale; beside it the bookings.

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. It alone fixes the picture's shape,
                however much was said. Under 480 x 320 the side panel is left out.

        Raises:
            ValueError: the size is outside 64..4096, or the snapshot makes no sense.
        """
        picture = self.open_picture(size)
        check(view)
        surface, scale, (left, top, width, height) = picture.surface, picture.scale, picture.board
        if picture.panel is None:
            surface.fill(PAPER)
            pad = picture.gap // 2
        else:
            self.canvas.draw_box(surface, picture.board, picture.gap, fill=(PAPER, 255))
            self.panel.draw(surface, picture.panel, view.episode, LEGEND, scale)
            pad = round(14 * scale)
        rect = (left + pad, top + pad, width - 2 * pad, height - 2 * pad)
        _Board(self, surface, view, scale, rect).draw()
        return self.canvas.pixels(surface)

    @staticmethod
    def draw_ansi(view: DialogueView) -> str:
        """The same as text: see `rao_envs.dialogue.terminal.draw_ansi`."""
        return draw_ansi(view)


class _Board:
    """One picture being drawn: everything but the side panel."""

    def __init__(self, viewer: DialogueViewer, surface: Any, view: DialogueView, scale: float, rect: Rect) -> None:
        self.canvas, self.lettering = viewer.canvas, viewer.lettering
        self.surface, self.view, self.scale, self.rect = surface, view, scale, rect

    def px(self, value: float) -> int:
        return max(1, round(value * self.scale))

    def draw(self) -> None:
        """Draw it all."""
        left, top, width, height = self.rect
        ledger = width >= self.px(2.2 * LEDGER) and bool(self.view.items)
        if height >= self.px(150):
            used = self._head(left, top, width, ledger)
            top, height = top + used, height - used
        if ledger:
            side, gap = max(self.px(LEDGER), round(0.3 * width)), self.px(12)
            _Ledger(self.canvas, self.lettering, self.surface, self.view, (left + width - side, top, side, height), self.scale).draw()
            width -= side + gap
        Chat(self.canvas, self.lettering, self.surface, self.view, (left, top, width, height), self.scale).draw()

    def _head(self, left: int, top: int, width: int, ledger: bool) -> int:
        """The turns that are left and, where there is no room for a `ledger`, how much is booked; returns the pixels it takes."""
        view, size, small = self.view, self.px(15), self.px(12)
        title = view.source or "Dialogue"
        if not ledger and view.items:
            title = f"{sum(bool(item.booked) for item in view.items)} of {len(view.items)} booked"
        middle, right = top + self.px(9), left + width
        count = f"{view.turns_left} of {view.turns} turns left"
        wide = self.lettering.width(count, small)
        if wide < 0.6 * width:
            self.lettering.draw(self.surface, count, (right - wide, middle), small, INK)
            right -= wide + self.px(12)
        for line in self.lettering.wrap(title, size, right - left, 1, bold=True):
            self.lettering.draw(self.surface, line, (left, middle), size, INK, bold=True)
        y, bar = top + self.px(23), self.px(6)
        self._turns(left, y, width, bar)
        return self.px(23) + bar + self.px(10)

    def _turns(self, left: int, top: int, width: int, height: int) -> None:
        """A bar of the turns, a segment each while there are few; what is left is coloured."""
        view = self.view
        color = depth_color(0) if view.turns_left > 0.2 * view.turns else UNSURE
        if not 0 < view.turns <= MOST_SEGMENTS or width < 5 * view.turns:
            self.canvas.draw_box(self.surface, (left, top, width, height), height // 2, fill=(DESK, 255))
            share = view.turns_left / view.turns if view.turns else 0.0
            if share > 0:
                self.canvas.draw_box(self.surface, (left, top, max(height, round(share * width)), height), height // 2, fill=(color, 255))
            return
        gap = self.px(2)
        for k in range(view.turns):
            x, end = (round(n * (width + gap) / view.turns) for n in (k, k + 1))
            fill = color if k < view.turns_left else DESK
            self.canvas.draw_box(self.surface, (left + x, top, end - x - gap, height), height // 2, fill=(fill, 255))


class _Row(NamedTuple):
    """A row of the ledger."""

    kind: str  # "city", "item", "entity", "wait" or "wish"
    text: str
    height: int
    item: ItemView


class _Ledger:
    """The bookings: per domain what is wished for, what is booked, and whether that is right."""

    def __init__(self, canvas: Canvas, lettering: Lettering, surface: Any, view: DialogueView, rect: Rect, scale: float) -> None:
        self.canvas, self.lettering, self.surface, self.view, self.scale, self.rect = canvas, lettering, surface, view, scale, rect
        self.small, self.tiny = self.px(12), self.px(11)
        self.row, self.line, self.indent = self.px(21), self.px(15), self.px(19)
        self.revealed = view.revealed or bool(view.episode.outcome)

    def px(self, value: float) -> int:
        return max(1, round(value * self.scale))

    def draw(self) -> None:
        """As much as finds room: first fewer of the wishes, then fewer bookings, the current one in any case."""
        left, top, width, height = self.rect
        self.canvas.draw_box(self.surface, self.rect, self.px(9), fill=(SOFT, 255))
        pad = self.px(10)
        left, width, y, bottom = left + pad, width - 2 * pad, top + self.px(4), top + height - self.px(6)
        items = self.view.items
        middle = y + self.row // 2
        used = self.lettering.draw(self.surface, "Bookings", (left, middle), self.small, INK, bold=True)
        count = f"{sum(bool(item.booked) for item in items)} of {len(items)}"
        wide = self.lettering.width(count, self.small)
        if used + wide < width:
            self.lettering.draw(self.surface, count, (left + width - wide, middle), self.small, MUTED)
        y += self.row
        rows = self._rows(width, bottom - y)
        first, last = self._visible(rows, bottom - y)
        if first:
            y = self._more(first, rows[:first], left, y)
        for row in rows[first:last]:
            self._draw(row, left, y, width)
            y += row.height
        if last < len(rows):
            self._more(len(rows) - last, rows[last:], left, y)

    def _rows(self, width: int, room: int) -> list[_Row]:
        """Everything, with as many lines below the bookings' names as find room: the current one's first, then those of open ones."""
        blocks = [self._block(item, width) for item in self.view.items]
        order = sorted(range(len(blocks)), key=lambda k: (not self.view.items[k].current, bool(self.view.items[k].booked), k))
        cities = sum(
            item.city != before for item, before in zip(self.view.items, ["", *(item.city for item in self.view.items)], strict=False)
        )
        room -= self.row * (len(blocks) + cities)
        shown = [0] * len(blocks)
        for most in range(1, MOST_BELOW + 1):
            for k in order:
                wanted = min(len(blocks[k]), MOST_BELOW if self.view.items[k].current else most)
                if (grow := self.line * (wanted - shown[k])) <= room or self.view.items[k].current:
                    room -= grow
                    shown[k] = wanted
        rows: list[_Row] = []
        city = ""
        for item, block, lines in zip(self.view.items, blocks, shown, strict=True):
            if item.city != city:
                city = item.city
                rows.append(_Row("city", city, self.row, item))
            rows.append(_Row("item", item.title, self.row, item))
            rows += self._cut(item, block, lines, width)
        return rows

    def _block(self, item: ItemView, width: int) -> list[_Row]:
        """All that could stand below a booking's name."""
        rows = []
        for kind, text in self._below(item):
            wrapped = self.lettering.wrap(text, self.tiny, width - self.indent, WISH_LINES if kind == "wish" else 1)
            rows += [_Row(kind, line, self.line, item) for line in wrapped]
        return rows

    def _cut(self, item: ItemView, block: list[_Row], lines: int, width: int) -> list[_Row]:
        """The first `lines` of a block; one that goes on ends in "..."."""
        rows = block[:lines]
        if rows and lines < len(block) and rows[-1].kind == block[lines].kind == "wish":
            text = self.lettering.wrap(rows[-1].text + " " + block[lines].text, self.tiny, width - self.indent, 1)[0]
            rows[-1] = rows[-1]._replace(text=text)
        return rows

    def _below(self, item: ItemView) -> list[tuple[str, str]]:
        """What stands below a booking's name, as (kind, text): the entity, what it waits for, what is wished for."""
        texts = [("entity", item.booked)] if item.booked else []
        if item.waits_for:
            texts.append(("wait", "after: " + ", ".join(item.waits_for)))
        if self.revealed and item.wishes:
            kept = ", ".join(wish.text for wish in item.wishes if not wish.dropped)
            given = ", ".join(wish.text for wish in item.wishes if wish.dropped)
            texts.append(("wish", "; ".join(part for part in (kept, f"gave up: {given}" if given else "") if part)))
        return texts

    def _visible(self, rows: list[_Row], room: int) -> tuple[int, int]:
        """The rows [first, last) that are drawn."""
        if sum(row.height for row in rows) <= room:
            return 0, len(rows)
        room -= 2 * self.line
        at = next((k for k, row in enumerate(rows) if row.item.current), 0)
        first = last = at
        while True:
            if last < len(rows) and rows[last].height <= room:
                room -= rows[last].height
                last += 1
            elif first > 0 and rows[first - 1].height <= room:
                first -= 1
                room -= rows[first].height
            else:
                return first, max(last, at + 1)

    def _more(self, count: int, rows: list[_Row], left: int, y: int) -> int:
        """Says how many bookings are out of sight; returns the y below."""
        hidden = sum(row.kind == "item" for row in rows)
        text = f"{hidden} more" if hidden else "..."
        self.lettering.draw(self.surface, text, (left + self.indent, y + self.line // 2), self.tiny, MUTED)
        return y + self.line

    def _draw(self, row: _Row, left: int, y: int, width: int) -> None:
        middle, item = y + row.height // 2, row.item
        color = depth_color(self.view.stack[-1].depth) if self.view.stack else INK
        if row.kind == "city":
            text = self.lettering.cut(row.text, self.small, width, bold=True)
            self.lettering.draw(self.surface, text, (left, middle + self.px(1)), self.small, MUTED, bold=True)
            return
        if row.kind != "item":
            self.lettering.draw(self.surface, row.text, (left + self.indent, middle), self.tiny, INK if row.kind == "entity" else MUTED)
            return
        if item.current:
            box = (left - self.px(5), y + 1, width + self.px(10), row.height - 2)
            self.canvas.draw_box(self.surface, box, self.px(6), fill=(tint(color, 0.8), 255))
        self.canvas.draw_mark(self.surface, (left + self.px(8), middle), self.px(14), *self._mark(item))
        name = " ".join(self.lettering.wrap(row.text, self.small, width - self.indent, 1, bold=item.current))
        ink = darker(color) if item.current else INK
        self.lettering.draw(self.surface, name, (left + self.indent, middle), self.small, ink, bold=item.current)

    def _mark(self, item: ItemView) -> tuple[Layer, ...]:
        if not item.booked:
            return (("disc", 0.9, MUTED, 255), ("disc", 0.66, SOFT, 255))
        if not self.revealed or item.right is None:
            return (("disc", 0.9, MUTED, 255), ("check", 0.5, PAPER, 255))
        color: Color = SUCCESS if item.right else FAILURE
        return (("disc", 0.95, color, 255), ("check" if item.right else "cross", 0.5, PAPER, 255))


def draw_rgb(view: DialogueView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One picture with no caches kept: see `DialogueViewer.draw_rgb`, which is faster for a series."""
    return DialogueViewer().draw_rgb(view, size)
