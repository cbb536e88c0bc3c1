"""A small drawing kit over pygame: smooth marks, boxes and text without a display, and a window for people.

pygame is imported on first use only and no state is global: a viewer owns a `Canvas` and its caches, so that
two environments cannot leak into each other's pictures.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rao_envs.core.viewer import INK, Color

Rect = tuple[int, int, int, int]  # left, top, width, height in pixels
Layer = tuple[str, float, Color, int]  # mark, diameter as a fraction of the sprite, colour, opacity in 0..255

MIN_SIDE, MAX_SIDE = 64, 4096
OVERSAMPLE = 4  # shapes are drawn so much larger, then averaged down
CACHE_LIMIT = 1024


def picture_size(size: tuple[int, int]) -> tuple[int, int]:
    """`size` (width, height) rounded down to even numbers, which video codecs ask for.

    Raises:
        ValueError: a side is outside 64..4096 pixels.
    """
    width, height = (int(side) // 2 * 2 for side in size)
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in (width, height)):
        raise ValueError(f"picture size {tuple(size)}: each side must be within {MIN_SIDE}..{MAX_SIDE} pixels")
    return width, height


def import_pygame() -> Any:
    """The pygame module with its font engine ready; no display is opened and no environment variable is set.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pygame greets on stdout, which belongs to the user's program
            pygame = importlib.import_module("pygame")
            importlib.import_module("pygame.freetype")
    except ImportError as error:
        raise gym.error.DependencyNotInstalled(
            'drawing pictures needs pygame-ce: pip install "rao-envs[render]" (render_mode="ansi" works without it)'
        ) from error
    if not pygame.freetype.get_init():
        pygame.freetype.init()
    return pygame


def _star(points: int = 5, inner: float = 0.45) -> list[tuple[float, float]]:
    """Corners of a star in [-1, 1] x [-1, 1], one tip upwards."""
    angles = [np.pi * (i / points - 0.5) for i in range(2 * points)]
    radii = [1.0 if i % 2 == 0 else inner for i in range(2 * points)]
    return [(radius * float(np.cos(a)), radius * float(np.sin(a))) for radius, a in zip(radii, angles, strict=True)]


# Marks that are polygons, in [-1, 1] x [-1, 1] with y downwards.
POLYGONS: dict[str, list[tuple[float, float]]] = {
    "star": _star(),
    "diamond": [(0, -1), (1, 0), (0, 1), (-1, 0)],
    "check": [(-0.95, 0.05), (-0.65, -0.27), (-0.25, 0.13), (0.65, -0.77), (0.95, -0.45), (-0.25, 0.77)],
    "cross": [
        (x * s - y * s, x * s + y * s)
        for s in (0.7071,)
        for x, y in [
            (-0.24, -1.0), (0.24, -1.0), (0.24, -0.24), (1.0, -0.24), (1.0, 0.24), (0.24, 0.24),
            (0.24, 1.0), (-0.24, 1.0), (-0.24, 0.24), (-1.0, 0.24), (-1.0, -0.24), (-0.24, -0.24),
        ]
    ],
}  # fmt: skip


class Canvas:
    """A drawing kit over pygame: smooth marks, boxes and text, cached as sprites.

    The caches are the only state. They never change what is drawn, are bounded, and stay behind when the
    canvas is pickled or copied.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        self.pygame = import_pygame()
        self._font = self.pygame.freetype.Font(None)  # pygame's own font: the same letters on every machine
        self._font.origin = True
        self._font.kerning = False
        self._cache: dict[tuple[Any, ...], Any] = {}

    def __reduce__(self) -> tuple[type[Canvas], tuple[()]]:
        return type(self), ()

    def surface(self, width: int, height: int, color: Color | None = None) -> Any:
        """A new surface: opaque in `color`, or fully transparent."""
        if color is None:
            return self.pygame.Surface((width, height), self.pygame.SRCALPHA, 32)
        surface = self.pygame.Surface((width, height), 0, 32)
        surface.fill(color)
        return surface

    def from_rgba(self, pixels: npt.NDArray[np.uint8]) -> Any:
        """A surface from uint8[height, width, 4]."""
        height, width = pixels.shape[:2]
        return self.pygame.image.frombuffer(pixels.tobytes(), (width, height), "RGBA")

    def pixels(self, surface: Any) -> npt.NDArray[np.uint8]:
        """A fresh, writable uint8[height, width, 3] copy of `surface`."""
        width, height = surface.get_size()
        flat = np.frombuffer(self.pygame.image.tobytes(surface, "RGB"), np.uint8)
        return flat.reshape(height, width, 3).copy()

    def mark(self, size: int, *layers: Layer) -> Any:
        """A square sprite of `size` pixels made of marks one over the other.

        Marks: disc, ring, square, frame, glow, star, diamond, check, cross.
        """
        key = ("mark", size, layers)
        return self._cached(key, lambda: self.from_rgba(self._compose(size, layers)))

    def draw_mark(self, surface: Any, center: tuple[float, float], size: int, *layers: Layer) -> None:
        """Draw `mark` around `center`."""
        left, top = (int(np.floor(at - size / 2 + 0.5)) for at in center)
        surface.blit(self.mark(size, *layers), (left, top))

    def draw_box(
        self,
        surface: Any,
        rect: Rect,
        radius: int = 0,
        fill: tuple[Color, int] | None = None,
        line: tuple[Color, int] | None = None,
        width: int = 0,
    ) -> None:
        """A rounded rectangle; `fill` and `line` are colours with an opacity in 0..255."""
        left, top, w, h = rect
        if w < 1 or h < 1:
            return
        radius = max(0, min(radius, w // 2, h // 2))
        rim = max(radius, width) + 1
        opaque = all(paint is None or paint[1] == 255 for paint in (fill, line))
        if not opaque or w <= 2 * rim or h <= 2 * rim:
            surface.blit(self._box_sprite(w, h, radius, fill, line, width), (left, top))
            return
        corners = self._box_sprite(2 * rim + 1, 2 * rim + 1, radius, fill, line, width)  # the same for boxes of every size
        right, bottom, far = left + w - rim, top + h - rim, rim + 1
        surface.blits([
            (corners, (left, top), (0, 0, rim, rim)),
            (corners, (right, top), (far, 0, rim, rim)),
            (corners, (left, bottom), (0, far, rim, rim)),
            (corners, (right, bottom), (far, far, rim, rim)),
        ])  # fmt: skip
        if fill is not None:
            surface.fill(fill[0], (left + rim, top, w - 2 * rim, h))
            surface.fill(fill[0], (left, top + rim, w, h - 2 * rim))
        if line is not None and width:
            for y in (top, top + h - width):
                surface.fill(line[0], (left + rim, y, w - 2 * rim, width))
            for x in (left, left + w - width):
                surface.fill(line[0], (x, top + rim, width, h - 2 * rim))

    def text(self, text: str, size: int, color: Color, bold: bool = False) -> Any:
        """A sprite of one line of text, `size` in pixels; its height depends on `size` only."""
        return self._cached(("text", text, size, color, bold), lambda: self._text(text, size, color, bold))

    def draw_text(
        self,
        surface: Any,
        text: str,
        position: tuple[int, int],
        size: int,
        color: Color = INK,
        bold: bool = False,
        align: str = "left",
        limit: int | None = None,
    ) -> int:
        """Write one line, its vertical middle at `position[1]`; past `limit` pixels it ends in "...".

        Returns the width in pixels.
        """
        sprite = self.text(text, size, color, bold)
        if limit is not None and sprite.get_width() > limit:
            if limit < 2 * size:
                return 0
            keep = max(1, int(len(text) * limit / sprite.get_width()))
            while keep > 1 and self.text(text[:keep].rstrip() + "...", size, color, bold).get_width() > limit:
                keep -= 1
            sprite = self.text(text[:keep].rstrip() + "...", size, color, bold)
        width = int(sprite.get_width())
        left = position[0] - {"left": 0, "center": width // 2, "right": width}[align]
        surface.blit(sprite, (left, position[1] - sprite.get_height() // 2))
        return width

    def _box_sprite(self, w: int, h: int, radius: int, fill: tuple[Color, int] | None, line: tuple[Color, int] | None, width: int) -> Any:
        key = ("box", w, h, radius, fill, line, width)
        return self._cached(key, lambda: self._box(w, h, radius, fill, line, width))

    def _cached(self, key: tuple[Any, ...], make: Any) -> Any:
        if key not in self._cache:
            if len(self._cache) >= CACHE_LIMIT:
                self._cache.clear()
            self._cache[key] = make()
        return self._cache[key]

    def _stencil(self, width: int, height: int, paint: Any) -> npt.NDArray[np.float32]:
        """Coverage in [0, 1], float32[height, width], of what `paint(surface)` draws in white."""
        k = OVERSAMPLE
        big = self.surface(width * k, height * k, (0, 0, 0))
        paint(big)
        flat = np.frombuffer(self.pygame.image.tobytes(big, "RGB"), np.uint8)[::3]
        coverage = flat.reshape(height, k, width, k).astype(np.float32).mean(axis=(1, 3)) / 255
        return np.asarray(coverage, np.float32)

    def _mask(self, mark: str, size: int, scale: float) -> npt.NDArray[np.float32]:
        """Coverage of one mark of diameter `scale * size` in the middle of a square of `size` pixels."""
        if mark == "glow":
            axis = (np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1
            distance = np.sqrt(axis[:, None] ** 2 + axis[None, :] ** 2) / scale
            return np.asarray(np.clip(1 - distance, 0, 1) ** 2, np.float32)
        side = size * OVERSAMPLE
        middle, reach = side / 2, side * scale / 2
        white = (255, 255, 255)

        def paint(big: Any) -> None:
            draw = self.pygame.draw
            line = min(max(round(1.5 * OVERSAMPLE), round(reach * 0.2)), 5 * OVERSAMPLE)
            box = self.pygame.Rect(round(middle - reach), round(middle - reach), round(2 * reach), round(2 * reach))
            if mark in POLYGONS:
                draw.polygon(big, white, [(middle + x * reach, middle + y * reach) for x, y in POLYGONS[mark]])
            elif mark in ("disc", "ring"):
                draw.circle(big, white, (middle, middle), reach, 0 if mark == "disc" else line)
            elif mark in ("square", "frame"):
                draw.rect(big, white, box, 0 if mark == "square" else line, border_radius=round(reach * 0.45))
            else:
                raise ValueError(f"unknown mark {mark!r}")

        return self._stencil(size, size, paint)

    def _compose(self, size: int, layers: tuple[Layer, ...]) -> npt.NDArray[np.uint8]:
        """The layers one over the other, as straight (not premultiplied) uint8[size, size, 4]."""
        color = np.zeros((size, size, 3), np.float32)
        alpha = np.zeros((size, size, 1), np.float32)
        for mark, scale, rgb, opacity in layers:
            over = self._mask(mark, size, scale)[..., None] * (opacity / 255)
            total = over + alpha * (1 - over)
            mixed = np.asarray(rgb, np.float32) * over + color * alpha * (1 - over)
            color = np.where(total > 0, mixed / np.maximum(total, 1e-6), np.asarray(rgb, np.float32))
            alpha = total
        return np.concatenate([color, alpha * 255], axis=2).round().astype(np.uint8)

    def _box(
        self,
        w: int,
        h: int,
        radius: int,
        fill: tuple[Color, int] | None,
        line: tuple[Color, int] | None,
        width: int,
    ) -> Any:
        """The sprite of `draw_box`: a small tile with the corners, its middle row and column repeated."""
        reach = max(radius, width) + 1
        tw, th = min(w, 2 * reach + 1), min(h, 2 * reach + 1)
        k, white = OVERSAMPLE, (255, 255, 255)

        def rounded(inset: int) -> npt.NDArray[np.float32]:
            if tw <= 2 * inset or th <= 2 * inset:
                return np.zeros((th, tw), np.float32)
            box = (inset * k, inset * k, (tw - 2 * inset) * k, (th - 2 * inset) * k)
            corner = max(0, radius - inset) * k
            return self._stencil(tw, th, lambda big: self.pygame.draw.rect(big, white, box, border_radius=corner))

        outer = rounded(0)
        inner = rounded(width) if line and width else outer
        (rgb_f, a_f), (rgb_l, a_l) = fill or ((line or (INK, 0))[0], 0), line or ((fill or (INK, 0))[0], 0)
        weight_f, weight_l = inner * a_f, (outer - inner) * a_l
        total = weight_f + weight_l
        share = np.divide(weight_l, total, out=np.full_like(total, float(a_f == 0)), where=total > 0)[..., None]
        color = np.asarray(rgb_l, np.float32) * share + np.asarray(rgb_f, np.float32) * (1 - share)
        tile = np.concatenate([color, total[..., None]], axis=2).round().astype(np.uint8)

        def stretch(length: int, tile_length: int) -> npt.NDArray[np.int64]:
            index = np.arange(length)
            return np.where(index <= tile_length // 2, index, np.maximum(tile_length // 2, index - length + tile_length))

        return self.from_rgba(tile[stretch(h, th)][:, stretch(w, tw)])

    def _text(self, text: str, size: int, color: Color, bold: bool) -> Any:
        """Text drawn large, thinned unless `bold` (pygame carries a bold font only) and averaged down."""
        k, big = OVERSAMPLE, size * OVERSAMPLE
        ascent, descent = int(self._font.get_sized_ascender(big)), -int(self._font.get_sized_descender(big))
        extent = self._font.get_rect(text, size=big)
        width = max(1, -(-(extent.x + extent.width + 2 * k) // k))
        height = -(-(ascent + descent + 2 * k) // k)
        surface = self.surface(width * k, height * k, (0, 0, 0))
        if text:
            self._font.render_to(surface, (k, k + ascent), text, (255, 255, 255), size=big)
        flat = np.frombuffer(self.pygame.image.tobytes(surface, "RGB"), np.uint8)[::3]
        cover = flat.reshape(height * k, width * k).astype(np.float32)
        if not bold:
            thin = np.pad(cover, 1)
            sides = (thin[1:-1, :-2], thin[1:-1, 2:], thin[:-2, 1:-1], thin[2:, 1:-1])
            cover = 0.25 * cover + 0.75 * np.minimum.reduce([cover, *sides])
        alpha = cover.reshape(height, k, width, k).mean(axis=(1, 3))
        pixels = np.empty((height, width, 4), np.uint8)
        pixels[..., :3] = color
        pixels[..., 3] = alpha.round()
        return self.from_rgba(pixels)


class Window:
    """A plain pygame window for `render_mode="human"`: shows pictures, handles events, limits the speed.

    Args:
        title: the window's caption.
        fps: pictures per second at most; 0 does not wait.

    The window opens at the first `show`. When the person closes it, `closed` becomes true and later
    pictures are dropped.
    """

    def __init__(self, title: str, fps: float = 30.0) -> None:
        self.title, self.fps = title, fps
        self.closed = False
        self._screen: Any = None
        self._clock: Any = None
        self._keys: list[str] = []

    def show(self, picture: npt.NDArray[np.uint8]) -> None:
        """Show uint8[height, width, 3] and wait so long that `fps` is kept.

        Raises:
            gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
        """
        if self.closed:
            return
        pygame = import_pygame()
        height, width = picture.shape[:2]
        if self._screen is None or self._screen.get_size() != (width, height):
            pygame.display.init()
            pygame.display.set_caption(self.title)
            self._screen = pygame.display.set_mode((width, height))
            self._clock = self._clock or pygame.time.Clock()
        self._screen.blit(pygame.image.frombuffer(picture.tobytes(), (width, height), "RGB"), (0, 0))
        pygame.display.flip()
        self._pump(pygame)
        if self.fps > 0:
            self._clock.tick(self.fps)

    def keys(self) -> tuple[str, ...]:
        """Keys pressed since the last call, by pygame's names ("up", "space", "a"), for playing by hand."""
        if self._screen is not None:
            self._pump(import_pygame())
        pressed, self._keys = tuple(self._keys), []
        return pressed

    def close(self) -> None:
        """Close the window; harmless when it is not open."""
        if self._screen is not None:
            import_pygame().display.quit()
        self._screen = None
        self.closed = True

    def _pump(self, pygame: Any) -> None:
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                return
            if event.type == pygame.KEYDOWN:
                self._keys.append(pygame.key.name(event.key))
