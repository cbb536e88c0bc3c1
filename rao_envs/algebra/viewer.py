"""Pictures of the Algebra family: the expression tree, the values computed so far, the open frames as tinted sub-trees.

Everything is drawn from one plain snapshot, `AlgebraView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.board import Family, Plan, arrange, choose, family, within
from rao_envs.algebra.text import Written, operator_text, value_text, write
from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, SCALE, SUB, SUBST, SYMBOL, SYMBOLS, Tree
from rao_envs.core.canvas import Canvas, Layer, Rect
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import (
    FAILURE,
    INK,
    LINE,
    MUTED,
    PAPER,
    SOFT,
    Color,
    EpisodeView,
    depth_color,
    paint_text,
    tree_text,
)

MIN_PITCH = 33  # pixels from one level of the tree to the next, before scaling
MAX_PITCH = 74
WIDEST_VALUE = 96  # pixels of a value on a node; longer ones end in "..."
DESK_HEIGHT = 122
TEXT_LINES = 2  # of the expression as text
TEXT_REACH = 600  # characters of it around the cursor that are laid out

EDGE: Color = (148, 163, 184)
CURSOR: Color = (226, 61, 40)
MARKED: Color = (255, 226, 214)  # behind the text of the cursor's sub-expression
WRONG: Color = FAILURE

LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("ring", 0.95, CURSOR, 255), ("ring", 0.85, CURSOR, 255)), "cursor"),
    ((("square", 0.9, depth_color(0), 255),), "value held"),
    ((("square", 0.9, depth_color(0), 255), ("square", 0.68, PAPER, 255)), "held by caller"),
    ((("square", 0.9, LINE, 255), ("square", 0.76, SOFT, 255)), "forgotten"),
    ((("square", 0.9, WRONG, 255), ("cross", 0.5, PAPER, 255)), "wrong"),
    ((("frame", 0.9, MUTED, 255), ("square", 0.8, MUTED, 50)), "open frame"),
)

# Light backgrounds for open frames in text, in the order of DEPTH_COLORS, all in the terminal's 256-colour table.
TEXT_TINTS: tuple[Color, ...] = (
    (175, 215, 255),
    (255, 215, 255),
    (175, 255, 215),
    (255, 215, 175),
    (175, 255, 255),
    (215, 175, 255),
)


@dataclass(frozen=True)
class AlgebraFrameView:
    """An open frame as the expression tree shows it."""

    depth: int  # level of recursion: 0 for the root frame
    node: int  # root of the sub-tree that the frame works on
    cursor: int  # where it stands (of a waiting frame: where it goes on)
    slots: tuple[int, ...]  # nodes whose values it holds, in the order in which the slots are drawn; at most `AlgebraView.capacity`
    label: str


@dataclass(frozen=True, eq=False)
class AlgebraView:
    """A snapshot of one algebra episode. The arrays are read, never kept or changed."""

    tree: Tree  # m nodes in pre-order
    values: npt.NDArray[np.int8]  # (m, digits): what was last written at each node, by any frame, still held or not; -1: nothing
    truth: npt.NDArray[np.int8]  # (m, digits): the right values, leaves included
    exponents: npt.NDArray[np.integer]  # (digits, symbols): the monomial that each digit is the coefficient of; [[0], [1]] for a + b x
    modulus: int
    pending: tuple[int, ...]  # digits already written at the acting frame's cursor, the first ones of its value
    capacity: int  # value slots per frame (K)
    stack: tuple[AlgebraFrameView, ...]  # open frames, root first; empty or the last known ones after the end
    episode: EpisodeView


Token = tuple[str, int, int, int]  # a piece of the expression, its place in the text, its x, its width


class _Words(NamedTuple):
    """What is written about one expression: made once."""

    tree: Tree  # a copy
    truth: npt.NDArray[np.int8]  # a copy
    kin: Family
    operators: list[str]
    written: Written
    widths: dict[tuple[int, float], int]  # of nodes at a scale, as they are needed
    lines: dict[tuple[int, int, int], list[list[Token]]]  # of the text, by first character, font size and width


class _State(NamedTuple):
    """What the nodes of a view are, worked out once per picture."""

    cursor: int
    frame: int  # root of the acting frame's sub-tree
    held: dict[int, int]  # node -> depth of the deepest open frame that holds its value
    acting: int  # depth of the acting frame
    known: frozenset[int]  # nodes with a value, held or not
    wrong: frozenset[int]


class AlgebraViewer(PanelViewer):
    """Draws `AlgebraView`s. It owns its caches (texts, sprites, letters): viewers are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._words: _Words | None = None

    def draw_rgb(self, view: AlgebraView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8[height, width, 3].

        The tree is shown whole as long as it fits. Of a larger one the way to the cursor, the acting frame's sub-tree and what is near
        are shown; three dots below a node say that its operands are folded away, and a line on top says how many levels are out of sight.

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. It alone fixes the picture's shape, whatever the
                expression. Under 480 x 320 only the tree is drawn.

        Raises:
            ValueError: the size is outside 64..4096, or the arrays of the view do not match.
        """
        picture = self.open_picture(size)
        surface, scale, gap, (left, top, width, height) = picture.surface, picture.scale, picture.gap, picture.board
        state = _state(view)
        if self._words is None or not _is_about(self._words, view):
            self._words = _words(view)
        if picture.panel is None:
            surface.fill(PAPER)
            _Board(self.canvas, surface, picture.board, view, state, self._words, scale).draw()
            return self.canvas.pixels(surface)
        desk_height = round(DESK_HEIGHT * scale)
        board = (left, top, width, height - gap - desk_height)
        desk = (left, top + height - desk_height, width, desk_height)
        for card in (board, desk):
            self.canvas.draw_box(surface, card, gap, fill=(PAPER, 255))
        _Board(self.canvas, surface, board, view, state, self._words, scale).draw()
        _Desk(self.canvas, surface, desk, view, state, self._words, scale).draw()
        self.panel.draw(surface, picture.panel, view.episode, LEGEND, scale)
        return self.canvas.pixels(surface)

    @staticmethod
    def draw_ansi(view: AlgebraView) -> str:
        """The expression and its tree as text, at most 24 nodes of it: see the function `draw_ansi`."""
        return draw_ansi(view)


class _Board:
    """The tree in its card."""

    def __init__(self, canvas: Canvas, surface: Any, rect: Rect, view: AlgebraView, state: _State, words: _Words, scale: float) -> None:
        self.canvas, self.surface, self.view, self.state, self.words, self.scale = canvas, surface, view, state, words, scale
        self.font, self.small = self.px(12), self.px(10)
        self.half = self.px(11)  # half the height of a node
        left, top, width, height = rect
        side, above, below = self.px(20), self.px(26), self.px(20)
        height -= above + below
        rows = max(2, height // self.px(MIN_PITCH))
        area = (float(width - 2 * side), rows)
        self.plan: Plan = arrange(words.kin, self._width, state.cursor, state.frame, state.held.keys(), area, self.px(12))
        self.pitch = min(self.px(MAX_PITCH), height / max(1, self.plan.rows))
        self.left = left + side
        self.top = top + above + (height - self.pitch * (self.plan.rows - 1)) / 2 - self.px(3)
        self.rect = rect

    def px(self, value: float) -> int:
        """`value` pixels at the default size."""
        return round(value * self.scale)

    def draw(self) -> None:
        """Frames, edges, nodes, cursor."""
        self._frames()
        for node in self.plan.x:
            if node in self.plan.opened:
                self._edges(node)
        for node in self.plan.x:
            self._node(node)
        if out := self.words.kin.level[self.plan.top]:
            middle = self.rect[1] + self.px(11)
            text = f"{out} level{'s' * (out > 1)} above"
            self.canvas.draw_text(self.surface, text, (self.rect[0] + self.rect[2] // 2, middle), self.px(12), MUTED, align="center")

    def _width(self, node: int) -> int:
        """Room for a node whether its value is written or not, so that writing it moves nothing."""
        widths, key = self.words.widths, (node, self.scale)
        if key not in widths:
            texts = [self.words.operators[node]]
            if self.words.kin.operands[node]:
                texts.append(value_text(self.view.truth[node], self.view.exponents))
            widths[key] = self._snug(max(self.canvas.text(text, self.font, INK, True).get_width() for text in texts))
        return widths[key]

    def _snug(self, text: int) -> int:
        """The width of a node's box around a text of that width."""
        return max(2 * self.half, min(text, self.px(WIDEST_VALUE)) + self.px(12))

    def _folds(self, node: int) -> bool:
        """Whether the node's operands are out of sight."""
        return bool(self.words.kin.operands[node]) and node not in self.plan.opened

    def _value(self, node: int) -> str:
        """What is written at a node so far, if anything."""
        if node in self.state.known:
            return value_text(self.view.values[node], self.view.exponents)
        return value_text(self.view.pending, self.view.exponents) if node == self.state.cursor and self.view.pending else ""

    def _place(self, node: int) -> tuple[float, float]:
        level = self.words.kin.level[node] - self.words.kin.level[self.plan.top]
        return self.left + self.plan.x[node], self.top + level * self.pitch

    def _box(self, node: int, width: int | None = None) -> Rect:
        x, y = self._place(node)
        width = self._width(node) if width is None else width
        return round(x - width / 2), round(y) - self.half, width, 2 * self.half

    def _frames(self) -> None:
        """The open frames' sub-trees as tinted cards, each inside its parent's."""
        kin = self.words.kin
        areas: list[tuple[int, int, int, int]] = []
        for frame in self.view.stack[1:]:
            nodes = [node for node in self.plan.x if within(kin, node, frame.node)]
            boxes = [self._box(node) for node in nodes]
            if not boxes or (frame.node != self.plan.top and within(kin, self.plan.top, frame.node)):
                continue
            sides = (
                min(box[0] for box in boxes),
                min(box[1] for box in boxes),
                max(box[0] + box[2] for box in boxes),
                max(box[1] + box[3] + self.px(5) * self._folds(node) for node, box in zip(nodes, boxes, strict=True)),
            )
            shared = sum(any(a == b for a, b in zip(sides, other, strict=True)) for other in areas)
            areas.append(sides)
            pad = max(self.px(3), self.px(10) - shared * self.px(3))
            area = (sides[0] - pad, sides[1] - pad, sides[2] - sides[0] + 2 * pad, sides[3] - sides[1] + 2 * pad)
            color, acts = depth_color(frame.depth), frame is self.view.stack[-1]
            self.canvas.draw_box(
                self.surface, area, self.px(9), (_tint(color, 0.14 if acts else 0.08), 255), (color, 255), self.px(2.4 if acts else 1.5)
            )

    def _edges(self, node: int) -> None:
        """Lines from a node to its operands."""
        x0, y0 = self._place(node)
        pale = node in self.state.known
        for child in self.words.kin.operands[node]:
            x1, y1 = self._place(child)
            flat = abs(x1 - x0) > abs(y1 - y0)
            for shift in (-0.4, 0.4):  # two thin lines make one of a width that does not depend on its slope
                a, b = (0.0, shift) if flat else (shift, 0.0)
                start, end = (x0 + a, y0 + self.half + b), (x1 + a, y1 - self.half + b)
                self.canvas.pygame.draw.aaline(self.surface, LINE if pale else EDGE, start, end)

    def _node(self, node: int) -> None:
        """One node: the operation, or its value with the operation on a small label."""
        canvas, surface, state = self.canvas, self.surface, self.state
        kin = self.words.kin
        radius, inner = self.px(7), self.px(WIDEST_VALUE)
        at_cursor = node == state.cursor
        fill, line, ink = PAPER, MUTED, INK
        label, badge = self.words.operators[node], ""
        if not kin.operands[node]:
            fill, line, radius = SOFT, SOFT, self.half
        elif value := self._value(node):
            badge, label = label, value
            if node not in state.known:
                pass
            elif node in state.held:
                color = WRONG if node in state.wrong else depth_color(state.held[node])
                fill, line, ink = (color, color, PAPER) if state.held[node] == state.acting else (PAPER, color, color)
            else:
                fill, line, ink = SOFT, LINE, WRONG if node in state.wrong else MUTED
        shown = self.canvas.text(label, self.font, ink, True).get_width()
        box = self._box(node, self._snug(shown))
        left, top, width, height = box
        center = (left + width // 2, top + height // 2)
        if at_cursor:
            grow = self.px(4)
            around = (left - grow, top - grow, width + 2 * grow, height + 2 * grow)
            canvas.draw_box(surface, around, radius + grow, (PAPER, 255), (CURSOR, 255), self.px(2.5))
        canvas.draw_box(surface, box, radius, (fill, 255), (line, 255), self.px(1.5))
        canvas.draw_text(surface, label, center, self.font, ink, bold=True, align="center", limit=inner)
        if badge:
            self._badge(badge, (left, top), line)
        if node in state.wrong:
            spot = (left + width - self.px(1), top + self.px(2))
            canvas.draw_mark(surface, spot, self.px(13), ("disc", 1.0, PAPER, 255), ("disc", 0.86, WRONG, 255), ("cross", 0.45, PAPER, 255))
        if self._folds(node):
            _dots(canvas, surface, (center[0], top + height + self.px(8 if at_cursor else 5)), self.scale)

    def _badge(self, text: str, corner: tuple[int, int], color: Color) -> None:
        """The operation on a small label over the corner of a node that shows its value."""
        width = max(self.px(13), self.canvas.text(text, self.small, INK, True).get_width() + self.px(4))
        rect = (corner[0] - self.px(5), corner[1] - self.px(10), width, self.px(13))
        self.canvas.draw_box(self.surface, rect, self.px(6), (PAPER, 255), (color, 255), max(1, self.px(1)))
        self.canvas.draw_text(self.surface, text, (rect[0] + width // 2, rect[1] + rect[3] // 2), self.small, INK, True, "center")


class _Desk:
    """The card below the tree: the expression as text, the operation at the cursor, the acting frame's slots."""

    def __init__(self, canvas: Canvas, surface: Any, rect: Rect, view: AlgebraView, state: _State, words: _Words, scale: float) -> None:
        self.canvas, self.surface, self.view, self.state, self.words, self.scale = canvas, surface, view, state, words, scale
        pad = self.px(16)
        self.left, self.top, self.width = rect[0] + pad, rect[1], rect[2] - 2 * pad

    def px(self, value: float) -> int:
        """`value` pixels at the default size."""
        return round(value * self.scale)

    def draw(self) -> None:
        """Everything, from top to bottom."""
        self._text(self.top + self.px(18))
        y = self.top + self.px(52)
        self.surface.fill(LINE, (self.left, y, self.width, 1))
        self._now(y + self.px(18))
        self._slots(y + self.px(50))

    def _text(self, y: int) -> None:
        """Lines of the expression around the cursor, its sub-expression on a bright ground, the acting frame's underlined."""
        size, pitch = self.px(14), self.px(20)
        start, end = self.words.written.spans[self.state.cursor].tolist()
        frame = self.words.written.spans[self.state.frame].tolist()
        color = depth_color(self.state.acting)
        lines = self._lines(size)
        last = len(lines) - 1
        if lines[0][0][1] > 0:
            _dots(self.canvas, self.surface, (self.left - self.px(9), y), 0.8 * self.scale)
        if lines[-1][-1][1] + len(lines[-1][-1][0]) < len(self.words.written.text):
            _dots(self.canvas, self.surface, (self.left + self.width + self.px(9), y + last * pitch), 0.8 * self.scale)
        for row, line in enumerate(lines):
            middle = y + row * pitch
            for _, at, x, width in line:
                if start <= at < end:
                    self.surface.fill(MARKED, (self.left + x + 1, middle - pitch // 2, width, pitch - self.px(3)))
            for text, at, x, width in line:
                if self.state.frame > 0 and frame[0] <= at < frame[1]:
                    self.surface.fill(color, (self.left + x, middle + pitch // 2 - self.px(3), width, max(1, self.px(1.5))))
                ink = INK if start <= at < end else MUTED
                self.canvas.draw_text(self.surface, text, (self.left + x, middle), size, ink, bold=start <= at < end)

    def _lines(self, size: int) -> list[list[Token]]:
        """At most TEXT_LINES lines of the text; the first one holds the cursor's beginning or comes before it."""
        start = int(self.words.written.spans[self.state.cursor][0])
        first = max(0, start - TEXT_REACH // 2) // 50 * 50  # in jumps, so that lines stay as they are for a while
        key = (first, size, self.width)
        if key not in self.words.lines:
            self.words.lines[key] = self._break(first, size)
        lines = self.words.lines[key]
        at_line = max((k for k, line in enumerate(lines) if line[0][1] <= start), default=0)
        begin = max(0, min(at_line, len(lines) - TEXT_LINES))
        return lines[begin : begin + TEXT_LINES]

    def _break(self, first: int, size: int) -> list[list[Token]]:
        """The text from its character `first` on in lines, broken at spaces where there are any."""
        text = self.words.written.text
        last = min(len(text), first + TEXT_REACH)
        words = [(match[0], first + match.start()) for match in re.finditer(r"\S+\s*|\s+", text[first:last])]
        lines: list[list[Token]] = [[]]
        x = 0
        for word, begin in words:
            tokens = [(match[0], begin + match.start()) for match in re.finditer(r"\d+|d/d\w|:=|.", word)]
            widths = [self._advance(token, size) for token, _ in tokens]
            if 0 < self.width - x < sum(widths[: len(word.rstrip())]):
                lines.append([])
                x = 0
            for (token, at), width in zip(tokens, widths, strict=True):
                if x + width > self.width and token != " ":
                    lines.append([])
                    x = 0
                lines[-1].append((token, at, x, width))
                x += width
        return [line for line in lines if line]

    def _advance(self, token: str, size: int) -> int:
        """How far a token of the expression moves the pen; sprites have a pixel of air on either side."""
        return self.px(4) if token == " " else int(self.canvas.text(token, size, INK, True).get_width()) - 2

    def _now(self, y: int) -> None:
        """The operation at the cursor with its operands' values, and the digits written so far."""
        size = self.px(16)
        x = self.left + self.canvas.draw_text(self.surface, "Now", (self.left, y), self.px(12), MUTED) + self.px(12)
        for text, color in _work(self.view, self.state, self.words):
            room = self.left + self.width - x
            x += self.canvas.draw_text(self.surface, text, (x, y), size, color, bold=True, limit=room) + self.px(3)

    def _slots(self, y: int) -> None:
        """The acting frame's value slots, used and free."""
        canvas, view = self.canvas, self.view
        slots = view.stack[-1].slots if view.stack else ()
        color = depth_color(self.state.acting)
        x = self.left
        x += canvas.draw_text(self.surface, f"Slots {len(slots)}/{view.capacity}", (x, y), self.px(12), MUTED) + self.px(12)
        gap = self.px(8)
        room = self.left + self.width - x
        width = min(self.px(130), (room - gap * (view.capacity - 1)) // max(1, view.capacity))
        height = self.px(26)
        for k in range(view.capacity):
            rect = (x + k * (width + gap), y - height // 2, width, height)
            if width < self.px(24):
                break
            if k >= len(slots):
                canvas.draw_box(self.surface, rect, self.px(7), (SOFT, 255), (LINE, 255), max(1, self.px(1)))
                continue
            node = slots[k]
            tone = WRONG if node in self.state.wrong else color
            canvas.draw_box(self.surface, rect, self.px(7), (PAPER, 255), (tone, 255), max(1, self.px(1.5)))
            inside = rect[0] + self.px(8)
            operator = self.words.operators[node]
            used = canvas.draw_text(self.surface, operator, (inside, y), self.px(12), MUTED, limit=width - self.px(12)) + self.px(7)
            value = value_text(view.values[node], view.exponents)
            canvas.draw_text(self.surface, value, (inside + used, y), self.px(14), tone, True, limit=width - used - self.px(14))


def _work(view: AlgebraView, state: _State, words: _Words) -> list[tuple[str, Color]]:
    """The operation at the cursor as pieces of text with their colours: operands by value where the acting frame has them."""
    tree, node = view.tree, state.cursor
    op, arg = int(tree.op[node]), int(tree.arg[node])
    color = depth_color(state.acting)

    def operand(child: int) -> list[tuple[str, Color]]:
        if not words.kin.operands[child]:
            return [(value_text(view.truth[child], view.exponents), INK)]
        if state.held.get(child) == state.acting or (node in state.known and child in state.known):
            value = value_text(view.values[child], view.exponents)
            wide = " " in value and op != DIFF
            return [(f"({value})" if wide else value, WRONG if child in state.wrong else color)]
        return [("?", MUTED)]

    below = [operand(child) for child in words.kin.operands[node]]
    if op in (CONST, SYMBOL):
        return [(words.operators[node], INK)]
    pieces = {
        ADD: lambda: [*below[0], ("+", MUTED), *below[1]],
        SUB: lambda: [*below[0], ("−", MUTED), *below[1]],  # noqa: RUF001  the sign for a difference
        MUL: lambda: [*below[0], ("×", MUTED), *below[1]],  # noqa: RUF001  the sign for a product
        NEG: lambda: [("−", MUTED), *below[0]],  # noqa: RUF001
        SCALE: lambda: [(f"{arg} ×", MUTED), *below[0]],  # noqa: RUF001
        DIFF: lambda: [(f"d/d{SYMBOLS[arg]}(", MUTED), *below[0], (")", MUTED)],
        SUBST: lambda: [*below[0], (f"[{SYMBOLS[arg]} :=", MUTED), *below[1], ("]", MUTED)],
    }[op]()
    written = view.values[node] if node in state.known else view.pending
    result = value_text(written, view.exponents)
    return [*pieces, ("=", MUTED), (result, WRONG if node in state.wrong else INK)]


def _dots(canvas: Canvas, surface: Any, center: tuple[int, int], scale: float) -> None:
    """Three dots: something is left out here."""
    for k in (-1, 0, 1):
        spot = (center[0] + k * round(5 * scale), center[1])
        canvas.draw_mark(surface, spot, round(3 * scale), ("disc", 1.0, MUTED, 255))


def _tint(color: Color, share: float) -> Color:
    """`color` on paper: opaque, so that the colours of frames inside each other do not mix."""
    red, green, blue = (round(paper + (part - paper) * share) for part, paper in zip(color, PAPER, strict=True))
    return red, green, blue


def draw_rgb(view: AlgebraView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One picture with no caches kept: see `AlgebraViewer.draw_rgb`, which is faster for a series."""
    return AlgebraViewer().draw_rgb(view, size)


def draw_ansi(view: AlgebraView, color: bool = True, nodes: int = 24, capacity: int = 8) -> str:
    """The expression, its tree (one node a line), the work at the cursor, the slots and the recursion tree. Needs no pygame.

    Args:
        view: the snapshot.
        color: tint the open frames' sub-trees with ANSI codes; without it, only signs tell nodes apart.
        nodes: at most so many nodes of the tree (the way to the cursor excepted): the text stays bounded for any expression.
        capacity: lines for the recursion tree.

    Raises:
        ValueError: the arrays of the view do not match.
    """
    state, words = _state(view), _words(view)
    used = [1]

    def grow(node: int, must: bool) -> bool:
        more = len(words.kin.operands[node])
        if not must and used[0] + more > nodes:
            return False
        used[0] += more
        return True

    top, opened = choose(words.kin, state.cursor, state.frame, state.held.keys(), 1 + max(words.kin.level), grow)
    start, end = words.written.spans[state.cursor].tolist()
    text = words.written.text
    low, high = max(0, start - 40), min(len(text), max(end, start + 40) + 40, start + 160)
    lines = [f"{'...' * (low > 0)}{text[low:start]}>{text[start : min(end, high)]}<{text[end:high]}{'...' * (high < len(text))}"]
    pending = [(top, "", "")]
    while pending:
        node, lead, follow = pending.pop()
        lines.append(_line(view, state, words, node, node in opened, lead, color))
        below = words.kin.operands[node] if node in opened else ()
        for child in reversed(below):
            last = child == below[-1]
            pending.append((child, follow + ("└ " if last else "├ "), follow + ("  " if last else "│ ")))
    slots = view.stack[-1].slots if view.stack else ()
    held = ", ".join(f"{words.operators[node]} {value_text(view.values[node], view.exponents)}" for node in slots)
    lines.append("now: " + " ".join(piece for piece, _ in _work(view, state, words)))
    lines.append(f"slots {len(slots)}/{view.capacity}" + f": {held}" * bool(held))
    lines.append(tree_text(view.episode, color, capacity))
    return "\n".join(lines)


def _line(view: AlgebraView, state: _State, words: _Words, node: int, is_open: bool, lead: str, color: bool) -> str:
    """One node as a line of text."""
    text = words.operators[node]
    if node in state.known:
        state_word = "" if node in state.held else " (forgotten)"
        text += f" = {value_text(view.values[node], view.exponents)}{state_word}{' WRONG' * (node in state.wrong)}"
    elif node == state.cursor and view.pending:
        text += f" = {value_text(view.pending, view.exponents)}"
    if words.kin.operands[node] and not is_open:
        text += f" ... {words.kin.size[node] - 1} more"
    if node == state.cursor:
        text += "  <-- cursor"
    frames = [frame for frame in view.stack if within(words.kin, node, frame.node)]
    if color and len(frames) > 1:
        text = paint_text(text, (0, 0, 0), TEXT_TINTS[frames[-1].depth % len(TEXT_TINTS)])
    return lead + text


def _words(view: AlgebraView) -> _Words:
    tree = Tree(view.tree.op.copy(), view.tree.left.copy(), view.tree.right.copy(), view.tree.arg.copy())
    operators = [operator_text(tree, node) for node in range(len(tree.op))]
    return _Words(tree, view.truth.copy(), family(tree), operators, write(tree), {}, {})


def _is_about(words: _Words, view: AlgebraView) -> bool:
    # Compared by content: an array changed in place, or a new one at an old address, shows no stale tree.
    same = all(np.array_equal(words.tree[k], view.tree[k]) for k in range(len(view.tree)))
    return same and np.array_equal(words.truth, view.truth)


def _state(view: AlgebraView) -> _State:
    """What is where.

    Raises:
        ValueError: the arrays do not match.
    """
    nodes, digits = len(view.tree.op), len(view.exponents)
    if nodes < 1 or view.values.shape != (nodes, digits) or view.truth.shape != (nodes, digits):
        raise ValueError(
            f"values and truth must have the shape (nodes, digits) = {(nodes, digits)}, not {view.values.shape} and {view.truth.shape}"
        )
    held = {node: frame.depth for frame in view.stack for node in frame.slots}
    if view.episode.outcome:
        held[0] = 0  # the answer
    inner = view.tree.left >= 0
    inner[0] = True  # a lone leaf is computed as well
    known = (view.values >= 0).all(axis=1) & inner
    wrong = known & (view.values != view.truth).any(axis=1)
    last = view.stack[-1] if view.stack else None
    return _State(
        cursor=last.cursor if last else 0,
        frame=last.node if last else 0,
        held=held,
        acting=last.depth if last else 0,
        known=frozenset(np.flatnonzero(known).tolist()),
        wrong=frozenset(np.flatnonzero(wrong).tolist()),
    )
