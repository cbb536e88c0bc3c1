"""Pieces of the long sequences' pictures: a ruler, the band with its marks, ranges of frames on it, wedges, running text.

They know spans of tokens and nothing of what a token is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Canvas, Rect
from rao_envs.core.lettering import Lettering
from rao_envs.core.viewer import INK, LINE, MUTED, PAPER, Color

Span = tuple[int, int]  # tokens [first, end)

MATCH: Color = (214, 48, 40)
HIGHLIGHT: Color = (255, 214, 70)
GROUND: Color = (226, 232, 240)
SKYLINE: Color = (178, 192, 210)
LEAST = 3  # pixels of the shortest range


@dataclass(frozen=True)
class Ruler:
    """Where tokens lie: `span` fills the pixels [left, left + width)."""

    span: Span
    left: int
    width: int

    def x(self, token: float) -> int:
        """The pixel at which `token` begins."""
        first, end = self.span
        return self.left + round((token - first) / max(1, end - first) * self.width)

    def range(self, span: Span) -> tuple[int, int]:
        """Left and width of a span, cut off at the ruler's ends, at least LEAST pixels wide."""
        left = min(max(self.x(span[0]), self.left), self.left + self.width - LEAST)
        right = min(max(self.x(span[1]), left + LEAST), self.left + self.width)
        return left, right - left

    def columns(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many of the sorted `positions` fall on each pixel, int64 (width,)."""
        first, end = self.span
        inside = positions[np.searchsorted(positions, first) : np.searchsorted(positions, end)]
        at = (inside - first) * self.width // max(1, end - first)
        return np.bincount(at, minlength=self.width)


def draw_band(
    canvas: Canvas,
    surface: Any,
    ruler: Ruler,
    top: int,
    height: int,
    matches: npt.NDArray[np.int64],
    profile: npt.NDArray[np.float32] | None = None,
    length: int = 1,
) -> None:
    """The part of the sequence that `ruler` covers: its profile as a skyline, a tick for every match, darker where they crowd.

    `profile` has heights in [0, 1] along all `length` tokens of the sequence.
    """
    color = np.empty((height, ruler.width, 3), np.float32)
    color[:] = GROUND
    if profile is not None and len(profile):
        middles = ruler.span[0] + (np.arange(ruler.width) + 0.5) * (ruler.span[1] - ruler.span[0]) / ruler.width
        heights = profile[np.clip(middles * len(profile) / max(1, length), 0, len(profile) - 1).astype(np.int64)]
        rows = np.arange(height)[:, None]
        color[rows >= height - np.round(np.clip(heights, 0, 1) * (height - 2))[None, :]] = SKYLINE
    counts = ruler.columns(matches)
    if counts.any():
        weight = np.where(counts > 0, 0.3 + 0.7 * counts / counts.max(), 0.0)
        if np.count_nonzero(counts) * 2 < ruler.width:  # a lone column is too thin to see
            weight = np.maximum(weight, np.concatenate([[0.0], weight[:-1]]))
        upper = max(1, height // (1 if profile is None else 3))  # beside a skyline, ticks hang from the top
        share = weight[None, :, None].astype(np.float32)
        color[:upper] += (np.array(MATCH, np.float32) - color[:upper]) * share
    pixels = np.empty((height, ruler.width, 4), np.uint8)
    pixels[..., :3] = color.round()
    pixels[..., 3] = 255
    radius = min(4, height // 2)
    for k in range(radius):  # round corners
        inset = radius - round(np.sqrt(radius**2 - (radius - k) ** 2 + 1e-9)) if k else radius - 1
        for row in (k, height - 1 - k):
            pixels[row, :inset, 3] = 0
            pixels[row, ruler.width - inset :, 3] = 0
    surface.blit(canvas.from_rgba(pixels), (ruler.left, top))


def draw_wedge(canvas: Canvas, surface: Any, narrow: tuple[int, int], wide: tuple[int, int], top: int, height: int, color: Color) -> None:
    """A magnifying glass: what lies in `narrow` (left, width) above is spread over `wide` below."""
    (x0, w0), (x1, w1) = narrow, wide
    share = np.arange(height, dtype=np.float64) / max(1, height - 1)
    share = share * share * (3 - 2 * share)
    left, right = x0 + (x1 - x0) * share, x0 + w0 + (x1 + w1 - x0 - w0) * share
    first, end = min(x0, x1), max(x0 + w0, x1 + w1)
    columns = np.arange(first, end) + 0.5
    cover = np.clip(columns[None, :] - left[:, None] + 0.5, 0, 1) * np.clip(right[:, None] - columns[None, :] + 0.5, 0, 1)
    pixels = np.empty((height, end - first, 4), np.uint8)
    pixels[..., :3] = color
    pixels[..., 3] = (46 * cover).round()
    surface.blit(canvas.from_rgba(pixels), (first, top))


def draw_axis(lettering: Lettering, surface: Any, ruler: Ruler, top: int, size: int) -> None:
    """Token numbers below a band: both ends and round numbers between, as many as have room."""
    first, end = ruler.span
    texts = [(first, f"{first:,}"), (end, f"{end:,}")]
    texts += [(tick, f"{tick:,}") for tick in ticks(first, end)]
    taken: list[tuple[int, int]] = []
    for token, text in texts:
        width, x = lettering.width(text, size), ruler.x(token)
        left = min(max(x - width // 2, ruler.left), ruler.left + ruler.width - width)
        if all(left > b + 2 * size or left + width < a - 2 * size for a, b in taken):
            taken.append((left, left + width))
            surface.fill(LINE, (min(x, ruler.left + ruler.width - 1), top, 1, size // 3))
            lettering.draw(surface, text, (left, top + size // 3 + size // 2 + 1), size, MUTED)


def ticks(first: int, end: int) -> list[int]:
    """Round numbers within (first, end): four to nine of them, if there are so many."""
    step = 1
    while (end - first) // step > 9:
        digit = int(str(step)[0])
        step = step * 2 if digit != 2 else step // 2 * 5
    return list(range(first // step * step + step, end, step))


@dataclass(frozen=True)
class Piece:
    """A piece of running text."""

    text: str
    marked: bool = False


def flow(lettering: Lettering, pieces: Sequence[Piece], size: int, width: int, lines: int) -> tuple[list[list[tuple[int, Piece]]], bool]:
    """Pieces with blanks between, in at most `lines` lines of (x, piece), and whether all found room; else the last one is "..."."""
    blank = lettering.advances(size, False, " ")[" "] + (2 if any(piece.marked for piece in pieces) else 0)  # room for the highlights' rims
    laid: list[list[tuple[int, Piece]]] = [[]]
    x = 0.0
    for piece in pieces:
        text = lettering.cut(piece.text, size, width, piece.marked)
        wide = lettering.width(text, size, piece.marked)
        if x > 0 and x + wide > width:
            if len(laid) == lines:
                dots = Piece("...")
                while laid[-1] and x + lettering.width(dots.text, size) > width:
                    x = float(laid[-1].pop()[0])
                laid[-1].append((round(x), dots))
                return laid, False
            laid.append([])
            x = 0.0
        laid[-1].append((round(x), Piece(text, piece.marked)))
        x += wide + blank
    return laid, True


def draw_piece(canvas: Canvas, lettering: Lettering, surface: Any, piece: Piece, position: tuple[int, int], size: int, color: Color) -> int:
    """Write a piece, highlighted if it is marked; returns its width."""
    x, y = position
    if piece.marked:
        width = lettering.width(piece.text, size, True)
        canvas.draw_box(surface, (x - 2, y - size // 2 - 3, width + 4, size + 6), 4, fill=(HIGHLIGHT, 255))
        return lettering.draw(surface, piece.text, (x, y), size, INK, bold=True)
    return lettering.draw(surface, piece.text, (x, y), size, color)


def draw_chip(canvas: Canvas, lettering: Lettering, surface: Any, text: str, right: int, middle: int, size: int, color: Color) -> int:
    """A label in a rounded box that ends at `right`; returns where it begins."""
    width = lettering.width(text, size, True) + round(1.3 * size)
    box: Rect = (right - width, middle - round(0.85 * size), width, round(1.7 * size))
    canvas.draw_box(surface, box, box[3] // 2, fill=(color, 255))
    dark = 0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2] < 150
    lettering.draw(surface, text, (right - width + round(0.65 * size), middle), size, PAPER if dark else INK, bold=True)
    return right - width
