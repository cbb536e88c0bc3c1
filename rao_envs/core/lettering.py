"""Running text for pictures: letters drawn once each, measured, cut and wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rao_envs.core.canvas import Canvas
from rao_envs.core.viewer import INK, Color

BLANK = 1.15  # times the font's own: letters stand on whole pixels, and words must stay apart


class Lettering:
    """Running text at little cost: letters are drawn once each and put side by side, however the words change."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self._advances: dict[tuple[int, bool], dict[str, float]] = {}
        self._sprites: dict[tuple[int, Color, bool], dict[str, Any]] = {}

    def advances(self, size: int, bold: bool, text: str) -> dict[str, float]:
        """Pixels from one letter to the next, for (at least) all letters of `text`."""
        table = self._advances.setdefault((size, bold), {})
        if not table.keys() >= set(text):
            for letter in set(text) - table.keys():
                # Of ten in a row between two others: a sprite's width is whole pixels, and blanks at its ends do not count.
                one, many = (self.canvas.text(f"|{letter * n}|", size, INK, bold).get_width() for n in (1, 11))
                table[letter] = (many - one) / 10 * (BLANK if letter == " " else 1.0)
        return table

    def width(self, text: str, size: int, bold: bool = False) -> int:
        """Pixels that `text` takes."""
        advances = self.advances(size, bold, text)
        return round(sum([advances[letter] for letter in text]))

    def draw(self, surface: Any, text: str, position: tuple[float, int], size: int, color: Color = INK, bold: bool = False) -> int:
        """Write one line, its vertical middle at `position[1]`; returns its width in pixels."""
        advances = self.advances(size, bold, text)
        sprites = self._sprites.setdefault((size, color, bold), {})
        x, y = position
        blits = []
        for letter in text:
            if letter != " ":
                sprite = sprites.get(letter)
                if sprite is None:
                    sprite = sprites[letter] = self.canvas.text(letter, size, color, bold)
                blits.append((sprite, (round(x) - 1, y - sprite.get_height() // 2)))
            x += advances[letter]
        surface.blits(blits, False)
        self._forget()
        return round(x - position[0])

    def cut(self, text: str, size: int, limit: int, bold: bool = False) -> str:
        """As much of the start of `text` as takes at most `limit` pixels."""
        advances = self.advances(size, bold, text)
        used = 0.0
        for count, letter in enumerate(text):
            used += advances[letter]
            if used > limit:
                return text[:count]
        return text

    def fill(self, tokens: Sequence[str], size: int, limit: int, backwards: bool = False) -> list[str]:
        """The first tokens (or the last), as many as fit `limit` pixels with blanks between."""
        taken: list[str] = []
        used = 0
        for token in reversed(tokens) if backwards else tokens:
            used += self.width(f" {token}" if taken else token, size)
            if used > limit:
                break
            taken.append(token)
        return taken[::-1] if backwards else taken

    def wrap(self, text: str, size: int, limit: int, lines: int, bold: bool = False) -> list[str]:
        """At most `lines` lines of at most `limit` pixels; what does not fit ends in "..."."""
        wrapped: list[str] = []
        rest = text.split()
        while rest and len(wrapped) < lines:
            line = rest.pop(0)
            while rest and self.width(f"{line} {rest[0]}", size, bold) <= limit:
                line += " " + rest.pop(0)
            if (rest and len(wrapped) == lines - 1) or self.width(line, size, bold) > limit:
                line = self.cut(line, size, limit - self.width("...", size, bold), bold).rstrip() + "..."
            wrapped.append(line)
        return wrapped

    def _forget(self) -> None:
        """Bound the caches: a document in Chinese has thousands of letters."""
        if sum(map(len, self._sprites.values())) > 4096:
            self._sprites.clear()
            self._advances.clear()
