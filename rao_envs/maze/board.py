"""Where the cells of a maze lie in a picture, and the layers that stay: floor and walls, or an overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Canvas, Rect
from rao_envs.core.viewer import PAPER, Color

NORTH, EAST, SOUTH, WEST = 1, 2, 4, 8  # bits of `links`: open directions
DIRECTIONS = ((NORTH, -1, 0), (EAST, 0, 1), (SOUTH, 1, 0), (WEST, 0, -1))  # bit, row step, column step

WALL: Color = (51, 65, 85)
GRID: Color = (236, 240, 245)
BLOCK: Color = (208, 217, 228)


class Grid(NamedTuple):
    """Where the cells of a window of the maze lie on a surface."""

    cells: tuple[int, int, int, int]  # first row, first column, end row, end column
    ys: npt.NDArray[np.int64]  # (rows + 1,) pixel of each horizontal cell edge
    xs: npt.NDArray[np.int64]  # (cols + 1,) pixel of each vertical cell edge
    pitch: float  # pixels per cell
    wall: int  # thickness of a wall in pixels

    def clip(self, region: tuple[int, int, int, int]) -> tuple[int, int, int, int] | None:
        """`region` cut to the window, relative to it; None when nothing is left."""
        r0, c0, r1, c1 = self.cells
        top, left = max(region[0], r0) - r0, max(region[1], c0) - c0
        bottom, right = min(region[2], r1) - r0, min(region[3], c1) - c0
        return (top, left, bottom, right) if top < bottom and left < right else None

    def rect(self, region: tuple[int, int, int, int], overhang: int = 0) -> Rect | None:
        """Pixels of `region`, cut to the window; sides outside it are kept up to `overhang` cells away."""
        if self.clip(region) is None:
            return None
        r0, c0, r1, c1 = self.cells
        top, bottom = (
            edge_pixel(self.ys, self.pitch, min(max(side, r0 - overhang), r1 + overhang) - r0) for side in (region[0], region[2])
        )
        left, right = (
            edge_pixel(self.xs, self.pitch, min(max(side, c0 - overhang), c1 + overhang) - c0) for side in (region[1], region[3])
        )
        return left, top, right - left, bottom - top

    def center(self, cell: tuple[int, int]) -> tuple[float, float] | None:
        """Middle of `cell` as x, y; None when it is outside the window."""
        inside = self.clip((cell[0], cell[1], cell[0] + 1, cell[1] + 1))
        if inside is None:
            return None
        top, left, bottom, right = inside
        return float(self.xs[left] + self.xs[right]) / 2, float(self.ys[top] + self.ys[bottom]) / 2


def layout(cells: tuple[int, int, int, int], rect: Rect) -> Grid:
    """Centre the window `cells` in `rect` with a margin, on whole pixels so that walls stay crisp."""
    rows, cols = cells[2] - cells[0], cells[3] - cells[1]
    left, top, width, height = rect
    margin = max(4, min(14, min(width, height) // 20))
    pitch = min((width - 2 * margin) / cols, (height - 2 * margin) / rows)
    if pitch >= 24:  # equal cells; smaller ones would give up too much of the board, and differ by a pixel instead
        pitch = float(int(pitch))
    wall = min(8, max(1, round(pitch * 0.12)))
    x0 = left + (width - round(pitch * cols)) // 2
    y0 = top + (height - round(pitch * rows)) // 2
    xs = x0 + np.round(np.arange(cols + 1) * pitch).astype(np.int64)
    ys = y0 + np.round(np.arange(rows + 1) * pitch).astype(np.int64)
    return Grid(cells, ys, xs, pitch, wall)


def edge_pixel(edges: npt.NDArray[np.int64], pitch: float, index: int) -> int:
    """Pixel of edge `index`, which may lie outside the window."""
    inside = min(max(index, 0), len(edges) - 1)
    return int(edges[inside]) + round((index - inside) * pitch)


def span(at: int, length: int, cells: int, stride: int) -> tuple[int, int]:
    """A window of `cells` around `at` in [0, length), from a multiple of `stride` where the border allows."""
    cells = min(cells, length)
    first = (at - (cells - stride) // 2) // stride * stride
    first = min(max(first, 0), length - cells)
    return first, first + cells


def runs(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Maximal runs of true along each row: int64[n, 3] of row, first column, end column."""
    edges = np.diff(np.pad(flags.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(edges == 1)
    return np.stack([rows, starts, np.nonzero(edges == -1)[1]], axis=1)


def wall_edges(links: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Walls above each cell (rows + 1, cols) and left of it (rows, cols + 1), none between blocked cells."""
    above = np.concatenate([links & NORTH == 0, links[-1:] & SOUTH == 0])
    left = np.concatenate([links & WEST == 0, links[:, -1:] & EAST == 0], axis=1)
    blocked = links == 0
    above[1:-1] &= ~(blocked[1:] & blocked[:-1])
    left[:, 1:-1] &= ~(blocked[:, 1:] & blocked[:, :-1])
    return above, left


def predecessors(
    links: npt.NDArray[np.uint8],
    trail: npt.NDArray[np.float32],
    rows: npt.NDArray[np.intp],
    cols: npt.NDArray[np.intp],
) -> npt.NDArray[np.int64]:
    """For each visited cell the step (n, 2) to where the agent came from: the newest older neighbour.

    (0, 0) where there is none. A cell visited again counts with its last visit, like the trail itself.
    """
    own = trail[rows, cols]
    best = np.zeros(len(rows), np.float32)
    step = np.zeros((len(rows), 2), np.int64)
    for bit, dr, dc in DIRECTIONS:
        r, c = rows + dr, cols + dc
        inside = (r >= 0) & (r < trail.shape[0]) & (c >= 0) & (c < trail.shape[1]) & (links[rows, cols] & bit > 0)
        value = np.where(inside, trail[np.where(inside, r, 0), np.where(inside, c, 0)], 0)
        better = (value < own) & (value > best)
        best[better] = value[better]
        step[better] = dr, dc
    return step


def draw_cells(canvas: Canvas, links: npt.NDArray[np.uint8], grid: Grid, block: int) -> tuple[Any, Any]:
    """Floor (with faint cell and block boundaries) and walls, with a margin for the outer walls."""
    margin = grid.wall
    k = 3 if grid.pitch >= 8 else 1  # small cells are drawn on whole pixels, where smoothing would only blur
    ys, xs = (grid.ys - grid.ys[0] + margin) * k, (grid.xs - grid.xs[0] + margin) * k
    width, height = int(xs[-1]) + margin * k, int(ys[-1]) + margin * k
    floor = canvas.surface(width // k, height // k, PAPER)
    if grid.pitch >= 10:
        _rule(floor, ys // k, xs // k, range(1, len(ys) - 1), range(1, len(xs) - 1), 1, GRID)
    if block > 1 and grid.pitch * block >= 8:
        r0, c0 = grid.cells[:2]
        lines = (
            [i for i in range(1, len(ys) - 1) if (r0 + i) % block == 0],
            [i for i in range(1, len(xs) - 1) if (c0 + i) % block == 0],
        )
        _rule(floor, ys // k, xs // k, *lines, 2 if grid.pitch >= 12 else 1, BLOCK)
    walls = canvas.surface(width, height)
    walls.fill((*WALL, 0))  # the colour of the transparent part bleeds into smoothed edges: make it the wall's own
    solid, wall = (*WALL, 255), grid.wall * k
    before, after = wall // 2, wall - wall // 2
    rect = canvas.pygame.draw.rect
    radius = wall // 2 if k > 1 else 0
    above, left = wall_edges(links)
    for r, first, end in runs(above).tolist():
        box = (xs[first] - before, ys[r] - before, xs[end] - xs[first] + wall, wall)
        rect(walls, solid, box, border_radius=radius)
    for c, first, end in runs(left.T).tolist():
        box = (xs[c] - before, ys[first] - before, wall, ys[end] - ys[first] + wall)
        rect(walls, solid, box, border_radius=radius)
    for r, first, end in runs(links == 0).tolist():
        box = (
            xs[first] - before,
            ys[r] - before,
            xs[end] - xs[first] + wall,
            ys[r + 1] - ys[r] + before + after,
        )
        rect(walls, solid, box, border_radius=radius)
    if k > 1:
        walls = canvas.pygame.transform.smoothscale(walls, (width // k, height // k))
    walls.set_alpha(255, canvas.pygame.RLEACCEL)  # most of it is empty: encoded so, it is blended several times faster
    return floor, walls


def _rule(
    surface: Any,
    ys: npt.NDArray[np.int64],
    xs: npt.NDArray[np.int64],
    rows: Sequence[int],
    cols: Sequence[int],
    width: int,
    color: Color,
) -> None:
    """Straight lines along the given cell edges."""
    for r in rows:
        surface.fill(color, (int(xs[0]), int(ys[r]) - width // 2, int(xs[-1] - xs[0]), width))
    for c in cols:
        surface.fill(color, (int(xs[c]) - width // 2, int(ys[0]), width, int(ys[-1] - ys[0])))


def draw_overview(canvas: Canvas, links: npt.NDArray[np.uint8], grid: Grid, block: int) -> tuple[Any, Any]:
    """The maze with many cells to a pixel: dark where blocked, light where open, grey among walls."""
    shade = np.full(16, 255, np.uint8)
    shade[0] = 0
    shade[1:] = [255 - 14 * (4 - bin(bits).count("1")) for bits in range(1, 16)]
    # Each pixel averages its cells; where a pixel is smaller than a cell, it takes the one it lies in.
    height, width = int(grid.ys[-1] - grid.ys[0]), int(grid.xs[-1] - grid.xs[0])
    sizes = zip((height, width), links.shape, strict=True)
    firsts = [np.arange(pixels) * count // pixels for pixels, count in sizes]
    counts = [np.diff(np.append(first, count)) for first, count in zip(firsts, links.shape, strict=True)]
    summed = np.add.reduceat(shade[links], firsts[1], axis=1, dtype=np.uint32)
    area = np.maximum(counts[0], 1)[:, None] * np.maximum(counts[1], 1)[None, :]
    mean = np.add.reduceat(summed, firsts[0], axis=0) / (area * 255)
    dark, light = np.asarray(WALL, np.float32), np.asarray(PAPER, np.float32)
    color = dark + (light - dark) * mean[..., None].astype(np.float32)
    pixels = np.full((height + 2, width + 2, 4), 255, np.uint8)
    pixels[..., :3] = WALL  # a frame of one pixel: the outer wall
    pixels[1:-1, 1:-1, :3] = color.round()
    return canvas.from_rgba(pixels), None
