"""Pictures of relays: one card per open frame, with the code where it is seen and the digits where they are entered.

Everything is drawn from one plain snapshot, `RelayView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Layer, Rect
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import INK, LINE, MUTED, PAPER, SOFT, SUCCESS, EpisodeView, depth_color, paint_text, tree_text

CARD = 92
"""Height of a card, in pixels at scale 1."""
TILE = 34
LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("square", 0.85, depth_color(0), 90),), "sees the code"),
    ((("square", 0.85, SUCCESS, 90),), "entered"),
)


@dataclass(frozen=True)
class RelayFrameView:
    """An open frame as its card shows it."""

    depth: int
    sees: bool
    enters: bool
    wanted: int  # children that it needs
    back: int  # and how many of them are back
    entered: tuple[int, ...]  # digits that it has entered

    @property
    def role(self) -> str:
        """What the frame is for, in words, with how its children stand."""
        name = "enters the code" if self.enters else "sees the code" if self.sees else "passes it on"
        return name + (f", {self.back} of {self.wanted} children back" if self.wanted else "")


@dataclass(frozen=True)
class RelayView:
    """A snapshot of one episode."""

    code: tuple[int, ...]
    stack: tuple[RelayFrameView, ...]  # open frames, root first
    episode: EpisodeView


class RelayViewer(PanelViewer):
    """Draws `RelayView`s. It owns its caches: viewers are independent of each other, and pickling one gives a fresh one.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def draw_rgb(self, view: RelayView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
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
        left, top, width, height = picture.board
        gap, card = picture.gap, round(CARD * picture.scale)
        shown = max(1, (height + gap) // (card + gap))
        for k, frame in enumerate(view.stack[-shown:]):
            rect = (left, top + k * (card + gap), width, min(card, height))
            self._card(picture.surface, rect, view.code, frame, frame is view.stack[-1], picture.scale)
        return self.canvas.pixels(picture.surface)

    @staticmethod
    def draw_ansi(view: RelayView) -> str:
        """The cards as coloured text: see the function `draw_ansi`."""
        return draw_ansi(view)

    def _card(self, surface: Any, rect: Rect, code: tuple[int, ...], frame: RelayFrameView, acting: bool, scale: float) -> None:
        canvas, (left, top, width, height) = self.canvas, rect
        color, pad = depth_color(frame.depth), round(12 * scale)
        canvas.draw_box(surface, rect, round(10 * scale), fill=(PAPER, 255), line=(color, 255), width=3 if acting else 1)
        middle = top + pad + round(7 * scale)
        canvas.draw_text(surface, frame.role, (left + pad, middle), round(14 * scale), color, bold=acting, limit=width - 2 * pad)
        if not (frame.sees or frame.enters):
            return
        # Side by side as long as they fit, narrower where they do not.
        step = min(round((TILE + 6) * scale), (width - 2 * pad) // len(code))
        tile, y = max(1, step - round(6 * scale)), middle + round(18 * scale)
        for k, digit in enumerate(code):
            x, entered = left + pad + k * step, k < len(frame.entered)
            text = str(digit if frame.sees else frame.entered[k] if entered else "")
            fill = (color, 90) if frame.sees else (SUCCESS, 90) if entered else (SOFT, 255)
            side = min(tile, top + height - y - 2)
            canvas.draw_box(surface, (x, y, tile, side), round(5 * scale), fill=fill, line=(LINE, 255), width=1)
            canvas.draw_text(surface, text, (x + tile // 2, y + side // 2), round(17 * scale), INK if acting else MUTED, align="center")


def draw_ansi(view: RelayView, color: bool = True) -> str:
    """Every open frame with its role and its digits ("." where one is still to be entered), and the recursion tree."""
    lines = ["code " + " ".join(map(str, view.code))]
    for frame in view.stack:
        digits = [*map(str, frame.entered)] + ["."] * (len(view.code) - len(frame.entered))
        shown = "" if not (frame.sees or frame.enters) else ": " + " ".join(map(str, view.code) if frame.sees else digits)
        text = frame.role + shown
        lines.append("  " * frame.depth + (paint_text(text, depth_color(frame.depth)) if color else text))
    return "\n".join([*lines, "", tree_text(view.episode, color)])
