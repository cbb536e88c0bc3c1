"""Pictures of long sequences: the sequence as a band, the open frames as ranges below it, the acting frame's page with its tokens.

Everything is drawn from one plain snapshot, `LongSeqView`, which any family over a sequence may fill; equal snapshots give equal pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Layer, Rect
from rao_envs.core.lettering import Lettering
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import (
    FAILURE,
    INK,
    MUTED,
    PAPER,
    SOFT,
    SUCCESS,
    Color,
    EpisodeView,
    depth_color,
    paint_text,
    tree_text,
    words,
)
from rao_envs.longseq.band import (
    HIGHLIGHT,
    MATCH,
    Piece,
    Ruler,
    Span,
    draw_axis,
    draw_band,
    draw_chip,
    draw_piece,
    draw_wedge,
    flow,
)

ZOOM_UNDER = 34  # pixels of a frame's range under which the frames above it are magnified first
MOST_ROWS = 12  # open frames that get a row each; of more, the first and the last
MORE_ROWS = (6, 4, 3, 2, 1)  # of text before and after a match, where there is room
TEXT_ROWS = 6  # of a page as text
TEXT_WIDTH = 78

LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("square", 0.5, MATCH, 255),), "match"),
    ((("square", 0.85, SUCCESS, 255),), "right answer"),
    ((("square", 0.85, MUTED, 90),), "in the window"),
    ((("square", 0.85, FAILURE, 255),), "wrong answer"),
)


@dataclass(frozen=True)
class AnswerView:
    """What a child of a frame answered about its own span."""

    span: Span
    text: str  # as a person reads it: "2", "7 3", "-" for nothing found
    correct: bool | None = None  # None: not known


@dataclass(frozen=True)
class SpanView:
    """An open frame as the band shows it."""

    depth: int
    span: Span
    label: str  # the action that opened it
    query: str = ""  # when it differs from the task's own
    note: str = ""  # what the frame keeps between steps; "": nothing, or no notes in this task
    answers: tuple[AnswerView, ...] = ()  # returned children


@dataclass(frozen=True)
class PageView:
    """A stretch of the sequence that the acting frame sees now (a whole small span, a page, a preview)."""

    span: Span
    tokens: tuple[str, ...]  # one text per token of the span
    marks: tuple[int, ...] = ()  # indices into `tokens` of those that the query is about


@dataclass(frozen=True, eq=False)
class LongSeqView:
    """A snapshot of one episode over a long sequence. The arrays are read, never kept or changed."""

    length: int  # tokens, at least 1
    unit: str  # what a token is, in the plural: "records", "words", "bytes", "brackets"
    query: str  # the question in words
    truth: str  # the right answer in words
    matches: npt.NDArray[np.int64]  # sorted positions of the tokens that the query is about; any number, none is fine
    stack: tuple[SpanView, ...]  # open frames, root first; when the episode is over the root, or nothing
    pages: tuple[PageView, ...]  # what the acting frame sees: one page per pointer
    episode: EpisodeView
    answer: str = ""  # the root's answer so far, in words
    source: str = ""  # where the sequence comes from: a file's name, say
    profile: npt.NDArray[np.float32] | None = None  # up to 4,096 heights in [0, 1] along the sequence (nesting depth, say)


class LongSeqViewer(PanelViewer):
    """Draws `LongSeqView`s. It owns its caches (letters, sprites): viewers are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lettering = Lettering(self.canvas)

    def draw_rgb(self, view: LongSeqView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8[height, width, 3].

        From top to bottom: the question; the whole sequence as a band; a row per open frame with its range and its children's answers,
        magnified in between where ranges get too short to see; what the acting frame sees, as a strip and as text.

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. It alone fixes the picture's shape,
                whatever the sequence. Under 480 x 320 the side panel is left out.

        Raises:
            ValueError: the size is outside 64..4096, or the length or a span makes no sense.
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
            pad = round(16 * scale)
        _Board(self, surface, view, scale, (left + pad, top + pad, width - 2 * pad, height - 2 * pad)).draw()
        return self.canvas.pixels(surface)

    @staticmethod
    def draw_ansi(view: LongSeqView) -> str:
        """The same as text: see the function `draw_ansi`."""
        return draw_ansi(view)


class _Board:
    """One picture being drawn: everything but the side panel, from top to bottom."""

    def __init__(self, viewer: LongSeqViewer, surface: Any, view: LongSeqView, scale: float, rect: Rect) -> None:
        self.canvas, self.lettering = viewer.canvas, viewer.lettering
        self.surface, self.view, self.scale = surface, view, scale
        self.left, self.top, self.width, height = rect
        self.bottom = self.top + height
        self.small, self.tiny = self.px(12), self.px(11)

    def px(self, value: float) -> int:
        return max(1, round(value * self.scale))

    def draw(self) -> None:
        """Draw it all."""
        y = self._question(self.top)
        ruler = Ruler((0, self.view.length), self.left, self.width)
        y = self._band(ruler, y, self.px(30))
        y, ruler = self._frames(ruler, y)
        if self.view.pages:
            self._pages(ruler, y)

    def _question(self, y: int) -> int:
        """What is asked, of what, and what has been answered; returns the y below."""
        view, size = self.view, self.px(15)
        lines = self.lettering.wrap(view.query, size, self.width, 2, bold=True)
        for line in lines:
            self.lettering.draw(self.surface, line, (self.left, y + size // 2), size, INK, bold=True)
            y += self.px(20)
        y += self.px(7)
        right = self.left + self.width
        if view.answer:
            correct = view.answer == view.truth
            color = SUCCESS if correct else FAILURE
            right = draw_chip(self.canvas, self.lettering, self.surface, f"Answer: {view.answer}", right, y, self.small, color) - self.px(6)
        if view.truth:
            right = draw_chip(self.canvas, self.lettering, self.surface, f"Truth: {view.truth}", right, y, self.small, SOFT) - self.px(10)
        found = counted(len(view.matches), "match", "matches") if len(view.matches) else ""
        parts = [view.source, f"{view.length:,} {view.unit}", found]
        text = "  ·  ".join(part for part in parts if part)
        text = self.lettering.cut(text, self.small, right - self.left)
        self.lettering.draw(self.surface, text, (self.left, y), self.small, MUTED)
        return y + self.px(20)

    def _band(self, ruler: Ruler, y: int, height: int) -> int:
        """A band with its axis; returns the y below."""
        view = self.view
        draw_band(self.canvas, self.surface, ruler, y, height, view.matches, view.profile, view.length)
        for page in view.pages:
            x, width = ruler.range(page.span)
            self.surface.fill(INK, (x, y - self.px(3), width, self.px(2)))
        y += height + self.px(3)
        draw_axis(self.lettering, self.surface, ruler, y, self.tiny)
        return y + self.px(21)

    def _frames(self, ruler: Ruler, y: int) -> tuple[int, Ruler]:
        """A row per open frame, magnified in between; returns the y below and the ruler of the last row."""
        stack = self.view.stack
        room = max(3, min(MOST_ROWS, (self.bottom - y - self.px(190)) // self.px(24)))
        shown = list(stack) if len(stack) <= room else [stack[0], *stack[len(stack) - room + 2 :]]
        previous = None
        for frame in shown:
            if previous is not None and previous.depth + 1 < frame.depth:
                text = f"{frame.depth - previous.depth - 1} more frames"
                self.lettering.draw(self.surface, text, (self.left, y + self.px(8)), self.tiny, MUTED)
                y += self.px(18)
            _, width = ruler.range(frame.span)
            if previous is not None and width < self.px(ZOOM_UNDER) and previous.span != ruler.span:
                y, ruler = self._magnify(ruler, y, previous)
            self._row(ruler, y, frame)
            y += self.px(24)
            previous = frame
        return y, ruler

    def _magnify(self, ruler: Ruler, y: int, frame: SpanView) -> tuple[int, Ruler]:
        """A wedge from a frame's range to the full width, and a band of that range below it."""
        closer = Ruler(frame.span, self.left, self.width)
        color = depth_color(frame.depth)
        wedge = self.px(14)
        draw_wedge(self.canvas, self.surface, ruler.range(frame.span), (self.left, self.width), y - self.px(4), wedge, color)
        y += wedge - self.px(4)
        return self._band(closer, y, self.px(14)), closer

    def _row(self, ruler: Ruler, y: int, frame: SpanView) -> None:
        """The range of one frame, its children's answers in it, and what it is called."""
        color, height = depth_color(frame.depth), self.px(19)
        acting = frame is self.view.stack[-1]
        x, width = ruler.range(frame.span)
        line = self.px(2 if acting else 1)
        radius = self.px(5)
        self.canvas.draw_box(self.surface, (x, y, width, height), radius, fill=(tint(color, 0.86), 255), line=(color, 255), width=line)
        middle = y + height // 2
        free_left, free_right = x, x + width
        for answer in frame.answers:
            a, w = ruler.range(answer.span)
            a, w = max(a, x) + line + 1, min(a + w, x + width) - max(a, x) - 2 * line - 2
            good = SUCCESS if answer.correct else MUTED if answer.correct is None else FAILURE
            self.canvas.draw_box(self.surface, (a, y + line + 1, w, height - 2 * line - 2), radius - 1, fill=(good, 255))
            text = self.lettering.cut(answer.text, self.tiny, w - 4)
            if text == answer.text:
                at = a + (w - self.lettering.width(text, self.tiny, True)) // 2
                self.lettering.draw(self.surface, text, (at, middle), self.tiny, PAPER, bold=True)
            if a - x < x + width - a - w:
                free_left = max(free_left, a + w)
            else:
                free_right = min(free_right, a)
        label = words(frame.label) + (f": {frame.query}" if frame.query else "")
        span = f"{frame.span[0]:,} to {frame.span[1]:,}"
        room, pad = free_right - free_left, self.px(6)
        for text in (f"{label}  {span}", label, span):
            wide = self.lettering.width(text, self.tiny, acting)
            if wide + 2 * pad <= room:
                self.lettering.draw(self.surface, text, (free_left + pad, middle), self.tiny, darker(color), bold=acting)
                return
        text = f"{label}  {span}"
        wide = self.lettering.width(text, self.tiny, acting)
        at = x + width + pad if x + width + pad + wide <= self.left + self.width else x - pad - wide
        if at < self.left:
            at, text = self.left, self.lettering.cut(text, self.tiny, max(0, x - self.left - pad))
        self.lettering.draw(self.surface, text, (at, middle), self.tiny, darker(color), bold=acting)

    def _pages(self, ruler: Ruler, y: int) -> None:
        """What the acting frame sees: per page a wedge to a box with a strip and the tokens, side by side."""
        view, gap = self.view, self.px(10)
        frame = view.stack[-1] if view.stack else None
        color = depth_color(frame.depth) if frame is not None else MUTED
        count = len(view.pages)
        wide = (self.width - gap * (count - 1)) // count
        wedge = self.px(16)
        top = y + wedge - self.px(4)
        if self.bottom - top < self.px(40):
            return
        inner = (wide - 2 * self.px(12), self.bottom - top - self.px(58))
        bodies = [self._body(page, *inner) for page in view.pages]
        height = min(self.bottom - top, self.px(58) + max(len(body.rows) * body.line for body in bodies))
        for k, (page, body) in enumerate(zip(view.pages, bodies, strict=True)):
            box = (self.left + k * (wide + gap), top, wide, height)
            draw_wedge(self.canvas, self.surface, ruler.range(page.span), (box[0], box[2]), y - self.px(4), wedge, color)
            self._page(box, page, body, frame if k == 0 else None, color)

    def _page(self, box: Rect, page: PageView, body: _Body, frame: SpanView | None, color: Color) -> None:
        """One page: where it lies, the note, a strip of its matches, its tokens."""
        left, top, width, _ = box
        canvas, lettering, pad = self.canvas, self.lettering, self.px(12)
        canvas.draw_box(self.surface, box, self.px(8), fill=(tint(color, 0.95), 255), line=(color, 255), width=self.px(1))
        inner, y = width - 2 * pad, top + self.px(17)
        right = left + width - pad
        if frame is not None and frame.note:
            right = draw_chip(canvas, lettering, self.surface, f"Note: {frame.note}", right, y, self.tiny, HIGHLIGHT) - self.px(8)
        first, end = page.span
        where, found = f"Window {first:,} to {end:,}", f", {counted(len(page.marks), 'match', 'matches')}"
        texts = (f"{where}: {end - first:,} {self.view.unit}{found}", where + found, where, "")
        text = next(text for text in texts if lettering.width(text, self.small, bold=True) <= right - left - pad or not text)
        lettering.draw(self.surface, text, (left + pad, y), self.small, darker(color), bold=True)
        y += self.px(15)
        marks = np.asarray(page.marks, np.int64) + first
        draw_band(canvas, self.surface, Ruler(page.span, left + pad, inner), y, self.px(10), marks)
        y += self.px(18) + body.line // 2
        for k, row in enumerate(body.rows):
            for x, piece, ink in row:
                draw_piece(canvas, lettering, self.surface, piece, (left + pad + x, y + k * body.line), body.size, ink)

    def _body(self, page: PageView, width: int, height: int) -> _Body:
        """All tokens if they fit, the larger the fewer they are; else every match with what stands around it; else the beginning."""
        line, rows = self.px(20), height // self.px(20)
        if rows < 1 or not page.tokens:
            return _Body(self.small, line, [])
        marked = set(page.marks)
        shown = page.tokens[: rows * max(1, width // self.px(6))]
        pieces = [Piece(token, i in marked) for i, token in enumerate(shown)]
        for size in (17, 14, 12):
            pitch = self.px(size + 8)
            laid, complete = flow(self.lettering, pieces, self.px(size), width, height // pitch)
            if complete and len(shown) == len(page.tokens):
                return _Body(self.px(size), pitch, [[(x, piece, INK) for x, piece in row] for row in laid])
        if page.marks:
            return _Body(self.small, line, self._contexts(page, width, rows))
        return _Body(self.small, line, [[(x, piece, INK) for x, piece in row] for row in laid])

    def _contexts(self, page: PageView, width: int, rows: int) -> list[list[tuple[int, Piece, Color]]]:
        """A row per match, the match in the middle, and whole rows around it if there is room: evenly chosen ones if there is not."""
        lettering, size, marks = self.lettering, self.small, page.marks
        chosen = marks if len(marks) <= rows else tuple(marks[k * len(marks) // rows] for k in range(rows))
        around = next((n for n in MORE_ROWS if len(chosen) * (2 * n + 2) - 1 <= rows), 0)
        numbers = [f"{page.span[0] + i:,}" for i in chosen]
        gutter, blank = max(lettering.width(text, size) for text in numbers), self.px(6)
        start = gutter + self.px(12)
        reach = (width // self.px(6)) * (around + 1)  # more tokens than could be shown
        laid: list[list[tuple[int, Piece, Color]]] = []
        for i, number in zip(chosen, numbers, strict=True):
            token = lettering.cut(page.tokens[i], size, (width - start) // 2, True)
            left = (start + width - lettering.width(token, size, True)) // 2
            right = left + lettering.width(token, size, True) + blank
            before, after = page.tokens[max(0, i - reach) : i], page.tokens[i + 1 : i + 1 + reach]
            here = lettering.fill(before, size, left - blank - start, backwards=True)
            text = " ".join(here)
            middle = [
                (gutter - lettering.width(number, size), Piece(number), tint(MUTED, 0.35)),
                (left - blank - lettering.width(text, size), Piece(text), MUTED),
                (left, Piece(token, True), INK),
            ]
            before = before[: len(before) - len(here)]
            here = lettering.fill(after, size, width - right)
            middle.append((right, Piece(" ".join(here)), MUTED))
            after = after[len(here) :]
            block = [middle]
            for _ in range(around):
                above = lettering.fill(before, size, width - start, backwards=True)
                below = lettering.fill(after, size, width - start)
                before, after = before[: len(before) - len(above)], after[len(below) :]
                text = " ".join(above)
                block = [[(width - lettering.width(text, size), Piece(text), MUTED)], *block, [(start, Piece(" ".join(below)), MUTED)]]
            laid += [[], *block] if laid and around else block
        return laid


@dataclass(frozen=True)
class _Body:
    """A page's tokens laid out: letters of `size` pixels, a row every `line`, each of (x, piece, ink)."""

    size: int
    line: int
    rows: list[list[tuple[int, Piece, Color]]]


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def check(view: LongSeqView) -> None:
    """Raise ValueError unless the sequence has tokens and everything shown lies on it."""
    if view.length < 1:
        raise ValueError(f"a sequence of {view.length} tokens: there must be one at least")
    spans = [frame.span for frame in view.stack] + [page.span for page in view.pages]
    spans += [answer.span for frame in view.stack for answer in frame.answers]
    for first, end in spans:
        if not 0 <= first <= end <= view.length:
            raise ValueError(f"the span ({first}, {end}) does not lie on the sequence of {view.length} tokens")
    for page in view.pages:
        if len(page.tokens) != page.span[1] - page.span[0]:
            raise ValueError(f"a page of {page.span[1] - page.span[0]} tokens has {len(page.tokens)} texts")


def tint(color: Color, share: float) -> Color:
    """`color` mixed with white."""
    red, green, blue = (round(part + (255 - part) * share) for part in color)
    return red, green, blue


def darker(color: Color) -> Color:
    """`color` as ink: dark enough to read on a tint of itself."""
    red, green, blue = (round(part * 0.62) for part in color)
    return red, green, blue


def draw_rgb(view: LongSeqView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One picture with no caches kept: see `LongSeqViewer.draw_rgb`, which is faster for a series."""
    return LongSeqViewer().draw_rgb(view, size)


def draw_ansi(view: LongSeqView, color: bool = True, width: int = TEXT_WIDTH, capacity: int = 8) -> str:
    """The sequence, the open frames and the window as text, the recursion tree below. Needs no pygame.

    Args:
        view: the snapshot.
        color: mark with ANSI colours; without them, matches in the window stand in brackets.
        width: columns of the band.
        capacity: lines for the tree.

    Raises:
        ValueError: `width` under 20, or the length or a span makes no sense.
    """
    check(view)
    if width < 20:
        raise ValueError(f"width must be at least 20 columns, got {width}")
    head = [view.query, "  ".join(part for part in (view.source, f"{view.length:,} {view.unit}", f"truth: {view.truth}") if part)]
    counts = Ruler((0, view.length), 0, width).columns(view.matches)
    top = max(1, int(counts.max(initial=0)))
    band = "".join("·" if n == 0 else "▁▂▃▄▅▆▇█"[min(7, int(8 * n / (top + 1)))] for n in counts)
    lines = [*head, paint_text(band, foreground=MATCH) if color else band]
    lines += [_text_row(frame, view.length, width, color) for frame in view.stack]
    for k, page in enumerate(view.pages):
        note = f"  note: {view.stack[-1].note}" if k == 0 and view.stack and view.stack[-1].note else ""
        lines.append(f"window: {page.span[0]:,}-{page.span[1]:,}, {counted(len(page.marks), 'match', 'matches')}{note}")
        lines += _text_page(page, width, color)
    if view.answer:
        lines.append(f"answer: {view.answer}")
    return "\n".join([*lines, tree_text(view.episode, color, capacity)])


def _text_row(frame: SpanView, length: int, width: int, color: bool) -> str:
    """A frame's range under the band."""
    first = min(width - 1, frame.span[0] * width // length)
    end = min(width, max(first + 1, -(-frame.span[1] * width // length)))
    cells = ["─"] * (end - first)
    if len(cells) > 1:
        cells[0], cells[-1] = "├", "┤"
    for answer in frame.answers:
        middle = (answer.span[0] + answer.span[1]) * width // (2 * length) - first
        text = answer.text[: len(cells)]
        at = min(max(0, middle - len(text) // 2), len(cells) - len(text))
        cells[at : at + len(text)] = text
    bar = "".join(cells)
    label = f" {words(frame.label)} {frame.span[0]:,}-{frame.span[1]:,}" + (f" {frame.query}" if frame.query else "")
    bar = paint_text(bar, foreground=depth_color(frame.depth)) if color else bar
    return " " * first + bar + label


def _text_page(page: PageView, width: int, color: bool) -> list[str]:
    """The page's first lines, from the first match on if there is one."""
    start = max(0, page.marks[0] - 8) if page.marks else 0
    marked = set(page.marks)
    lines, used = ["... " if start else ""], 4 if start else 0
    for i in range(start, len(page.tokens)):
        plain = page.tokens[i] if i not in marked or color else f"[{page.tokens[i]}]"
        if used + len(plain) > width and used:
            if len(lines) == TEXT_ROWS:
                lines[-1] += "..."
                break
            lines.append("")
            used = 0
        lines[-1] += (paint_text(plain, (0, 0, 0), HIGHLIGHT) if i in marked and color else plain) + " "
        used += len(plain) + 1
    return [line.rstrip() for line in lines]
