"""Pictures of the Maze family: the maze, the agent with its trail, the open frames with their targets.

Everything is drawn from one plain snapshot, `MazeView`; equal snapshots give equal pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.canvas import Layer, Rect
from rao_envs.core.panel import PanelViewer
from rao_envs.core.viewer import (
    INK,
    MUTED,
    PAPER,
    Color,
    EpisodeView,
    depth_color,
    paint_text,
    tree_text,
)
from rao_envs.maze.board import (
    EAST,
    NORTH,
    SOUTH,
    WEST,
    Grid,
    draw_cells,
    draw_overview,
    layout,
    predecessors,
    span,
    wall_edges,
)

MIN_PITCH = 2.0  # pixels per cell under which the board becomes an overview: a pixel averages many cells
LENS_PITCH = 5.0  # pixels per cell under which the panel adds a close-up around the agent
LENS_CELLS = (18, 24)  # rows and columns of the close-up
LENS_STRIDE = 6  # its corner moves by so many cells: it jumps now and then instead of sliding all the time
OUTLINES = 3  # frames of one region that get an outline each; of more, the newest

AGENT: Color = (226, 61, 40)
GOLD: Color = (255, 200, 30)

AGENT_MARK: tuple[Layer, ...] = (("disc", 0.98, PAPER, 255), ("disc", 0.78, AGENT, 255))
GOAL_MARK: tuple[Layer, ...] = (("star", 1.0, INK, 255), ("star", 0.72, GOLD, 255))
START_MARK: tuple[Layer, ...] = (("ring", 0.8, INK, 255),)
LEGEND: tuple[tuple[tuple[Layer, ...], str], ...] = (
    ((("disc", 0.9, AGENT, 255),), "agent"),
    (GOAL_MARK, "goal"),
    (START_MARK, "start"),
    ((("frame", 0.85, MUTED, 255), ("square", 0.8, MUTED, 60)), "target"),
)

JUNCTIONS = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"  # by the arms that meet: N=1, E=2, S=4, W=8
CHARS = {"agent": "●", "goal": "★", "start": "○", "target": "◆", "trail": "•"}
SHADE, SOLID = "░", "█"
# Light backgrounds for regions in text, in the order of DEPTH_COLORS, all in the terminal's 256-colour table.
TEXT_TINTS: tuple[Color, ...] = (
    (175, 215, 255),
    (255, 215, 255),
    (175, 255, 215),
    (255, 215, 175),
    (175, 255, 255),
    (215, 175, 255),
)


@dataclass(frozen=True)
class MazeFrameView:
    """An open frame as the maze shows it."""

    depth: int
    level: int  # 0: moves between cells, 1: between blocks, ...
    region: tuple[int, int, int, int]  # first row, first column, end row, end column, in cells, ends excluded
    targets: tuple[tuple[int, int], ...]  # cells that end it well: the goal, or those across the boundary
    label: str


@dataclass(frozen=True, eq=False)
class MazeView:
    """A snapshot of one maze episode. The arrays are read, never kept or changed."""

    links: npt.NDArray[np.uint8]  # (rows, cols); open directions N=1, E=2, S=4, W=8; 0: a blocked cell
    agent: tuple[int, int]
    goal: tuple[int, int]
    start: tuple[int, int]
    trail: npt.NDArray[np.float32]  # (rows, cols) in [0, 1]; 1: visited just now; 0: not visited
    block: int  # cells per side of a block; 0 or 1: draw no blocks
    stack: tuple[MazeFrameView, ...]  # open frames, root first
    episode: EpisodeView


class _Static(NamedTuple):
    """Cached layers of one window of one maze: valid while the maze and the geometry are the same."""

    links: npt.NDArray[np.uint8]  # a copy: the layers' maze
    key: tuple[Any, ...]
    floor: Any
    walls: Any


class MazeViewer(PanelViewer):
    """Draws `MazeView`s. It owns its caches (walls, sprites, letters): viewers are independent of each other.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame-ce is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._static: dict[str, _Static] = {}

    def draw_rgb(self, view: MazeView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """The picture of `view` as a fresh uint8[height, width, 3].

        The board shows the whole maze: cell by cell down to two pixels each, beyond that as an overview in
        which a pixel averages many cells. When cells are small, the panel adds a close-up around the agent.

        Args:
            view: the snapshot.
            size: width and height in pixels, rounded down to even; 900 x 640 unless given. It alone fixes the
                picture's shape, whatever the maze. Under 480 x 320 the side panel is left out.

        Raises:
            ValueError: the size is outside 64..4096, or `links` and `trail` do not match or are empty.
        """
        picture = self.open_picture(size)
        rows, cols = _checked_shape(view)
        surface, gap, whole = picture.surface, picture.gap, (0, 0, rows, cols)
        if picture.panel is None:
            self._board(surface, picture.board, view, whole, "board")
            return self.canvas.pixels(surface)
        self.canvas.draw_box(surface, picture.board, gap, fill=(PAPER, 255))
        pitch = self._board(surface, picture.board, view, whole, "board")
        left, top, width, height = picture.panel
        if pitch < LENS_PITCH:
            lens_height = width * 3 // 4
            lens = (left, top + height - lens_height, width, lens_height)
            height -= lens_height + gap
            self.canvas.draw_box(surface, lens, gap, fill=(PAPER, 255))
            self._board(surface, lens, view, _lens(view.agent, rows, cols), "lens")
        self.panel.draw(surface, (left, top, width, height), view.episode, LEGEND, picture.scale)
        return self.canvas.pixels(surface)

    @staticmethod
    def draw_ansi(view: MazeView) -> str:
        """The maze as text, at most 20 x 20 cells of it: see the function `draw_ansi`."""
        return draw_ansi(view)

    def _board(self, surface: Any, rect: Rect, view: MazeView, cells: tuple[int, int, int, int], name: str) -> float:
        """Draw the window `cells` of the maze inside `rect`; returns the pixels per cell."""
        grid = layout(cells, rect)
        static = self._layers(view, grid, name)
        board: Rect = (
            int(grid.xs[0]),
            int(grid.ys[0]),
            int(grid.xs[-1] - grid.xs[0]),
            int(grid.ys[-1] - grid.ys[0]),
        )
        margin = static.floor.get_width() - board[2]
        corner = (board[0] - margin // 2, board[1] - margin // 2)
        surface.blit(static.floor, corner)
        whole = (0, 0, *view.links.shape)
        tints = {frame.region: depth_color(frame.depth) for frame in view.stack if frame.region != whole}
        for region, color in tints.items():  # of frames that share a region, the newest
            if (area := grid.rect(region)) is not None:
                self.canvas.draw_box(surface, area, fill=(color, 34))
        self._trail(surface, view, grid)
        if static.walls is not None:
            surface.blit(static.walls, corner)
        previous = surface.get_clip()
        rim = grid.wall + 6  # room for marks and lines around the outer walls
        clip = self.canvas.pygame.Rect(rect)
        surface.set_clip(clip.clip((board[0] - rim, board[1] - rim, board[2] + 2 * rim, board[3] + 2 * rim)))
        self._frames(surface, view, grid)
        self._marks(surface, view, grid)
        surface.set_clip(previous)
        return grid.pitch

    def _layers(self, view: MazeView, grid: Grid, name: str) -> _Static:
        """The floor and the walls of this window, drawn anew only when the maze or the window has changed."""
        r0, c0, r1, c1 = grid.cells
        links = view.links[r0:r1, c0:c1]
        key = (grid.cells, tuple(grid.xs[[0, -1]]), tuple(grid.ys[[0, -1]]), view.block)
        old = self._static.get(name)
        # Compared by content: an array changed in place, or a new one at an old address, shows no stale maze.
        if old is None or old.key != key or not np.array_equal(old.links, links):
            draw = draw_cells if grid.pitch >= MIN_PITCH else draw_overview
            floor, walls = draw(self.canvas, links, grid, view.block)
            old = self._static[name] = _Static(links.copy(), key, floor, walls)
        return old

    def _trail(self, surface: Any, view: MazeView, grid: Grid) -> None:
        """The agent's way: a ribbon through each visited cell, paler the longer ago."""
        r0, c0, r1, c1 = grid.cells
        links, trail = view.links[r0:r1, c0:c1], view.trail[r0:r1, c0:c1]
        rows, cols = np.nonzero(trail > 0)
        if not len(rows):
            return
        order = np.argsort(trail[rows, cols], kind="stable")  # the newest on top
        rows, cols = rows[order], cols[order]
        opacity = (60 + 135 * np.clip(trail[rows, cols], 0, 1)).astype(int)
        # Only the part of the board that was visited is blended.
        top, left = int(grid.ys[rows.min()]), int(grid.xs[cols.min()])
        layer = self.canvas.surface(int(grid.xs[cols.max() + 1]) - left + 2, int(grid.ys[rows.max() + 1]) - top + 2)
        width = max(2, round(grid.pitch * 0.3))
        mid_y = (grid.ys[:-1] + grid.ys[1:] - width) // 2 - top
        mid_x = (grid.xs[:-1] + grid.xs[1:] - width) // 2 - left
        ends_y, ends_x = rows, cols
        if grid.pitch >= MIN_PITCH:
            back = predecessors(links, trail, rows, cols)
            ends_y, ends_x = rows + back[:, 0], cols + back[:, 1]
        boxes = np.stack([
            np.minimum(mid_x[cols], mid_x[ends_x]),
            np.minimum(mid_y[rows], mid_y[ends_y]),
            np.abs(mid_x[cols] - mid_x[ends_x]) + width,
            np.abs(mid_y[rows] - mid_y[ends_y]) + width,
        ], axis=1)  # fmt: skip
        for box, alpha in zip(boxes.tolist(), opacity.tolist(), strict=True):
            layer.fill((*AGENT, alpha), box)  # replaces what is below: overlaps do not darken
        surface.blit(layer, (left, top))

    def _frames(self, surface: Any, view: MazeView, grid: Grid) -> None:
        """Nested outlines of the open frames, and the targets of each in its colour."""
        line = min(4, max(2, round(grid.pitch * 0.1)))
        radius = min(10, max(2, round(grid.pitch * 0.2)))
        groups: dict[tuple[int, int, int, int], list[MazeFrameView]] = {}
        for frame in view.stack[1:]:
            groups.setdefault(frame.region, []).append(frame)
        outlined = [frame for group in groups.values() for frame in group[-OUTLINES:]]
        if view.stack and (area := grid.rect(view.stack[0].region, 2)) is not None:
            grow = grid.wall // 2 + line + 1  # the root's line lies outside the outer wall
            box = (area[0] - grow, area[1] - grow, area[2] + 2 * grow, area[3] + 2 * grow)
            self.canvas.draw_box(surface, box, radius, line=(depth_color(view.stack[0].depth), 255), width=line)
        for i, frame in enumerate(outlined):
            if (area := grid.rect(frame.region, 2)) is None:
                continue
            # The others lie just inside their walls, and inside earlier lines that share an edge with them.
            shared = sum(any(a == b for a, b in zip(frame.region, other.region, strict=True)) for other in outlined[:i])
            inset = grid.wall // 2 + 1 + min(shared, 2 * OUTLINES) * (line + 1)
            inset = min(inset, max(1, min(area[2], area[3]) // 3))
            box = (area[0] + inset, area[1] + inset, area[2] - 2 * inset, area[3] - 2 * inset)
            self.canvas.draw_box(surface, box, radius, line=(depth_color(frame.depth), 255), width=line)
        marked: dict[tuple[int, int], int] = {}
        for frame in view.stack:
            color = depth_color(frame.depth)
            hollow: tuple[Layer, ...] = (("frame", 0.96, color, 255), ("square", 0.9, color, 50))
            solid: tuple[Layer, ...] = (("square", 1.0, PAPER, 255), ("square", 0.76, color, 255))
            for target in frame.targets:
                center = grid.center(target)
                if center is None:
                    continue
                nth = marked[target] = marked.get(target, 0) + 1  # targets on one cell shrink into each other
                size = max(7, round(min(grid.pitch, 100) * max(0.3, 0.98 - 0.2 * nth)))
                self.canvas.draw_mark(surface, center, size, *(hollow if size >= 10 else solid))

    def _marks(self, surface: Any, view: MazeView, grid: Grid) -> None:
        """Start, goal and agent; on small cells they keep a size that the eye finds."""
        canvas, pitch = self.canvas, min(grid.pitch, 90)
        disc, star = max(11, round(pitch * 0.58)), max(15, round(pitch * 0.68))
        if (center := grid.center(view.start)) is not None:
            canvas.draw_mark(surface, center, max(8, round(pitch * 0.5)), *START_MARK)
        if view.goal != view.agent and (center := grid.center(view.goal)) is not None:
            canvas.draw_mark(surface, center, star, *GOAL_MARK)
        if (center := grid.center(view.agent)) is not None:
            canvas.draw_mark(surface, center, max(34, round(pitch * 1.5)), ("glow", 1.0, AGENT, 190))
            canvas.draw_mark(surface, center, disc, *AGENT_MARK)
            if view.goal == view.agent:  # arrived: the star shines on the disc
                canvas.draw_mark(surface, center, max(9, round(disc * 0.66)), ("star", 1.0, GOLD, 255))


def draw_rgb(view: MazeView, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One picture with no caches kept: see `MazeViewer.draw_rgb`, which is faster for a series."""
    return MazeViewer().draw_rgb(view, size)


def draw_ansi(view: MazeView, color: bool = True, cells: tuple[int, int] = (20, 20), capacity: int = 8) -> str:
    """The maze in box-drawing characters with the status and the recursion tree below it. Needs no pygame.

    Args:
        view: the snapshot.
        color: tint the open frames' regions and colour the marks with ANSI codes; without it, the region of
            the frame that acts is shaded.
        cells: at most so many rows and columns of cells, around the agent: the text stays bounded on any map.
        capacity: lines for the tree.

    Raises:
        ValueError: `links` and `trail` do not match or are empty, or `cells` is not positive.
    """
    rows, cols = _checked_shape(view)
    if min(cells) < 1:
        raise ValueError(f"cells {cells}: show at least one row and one column")
    r0, r1 = span(view.agent[0], rows, cells[0], 1)
    c0, c1 = span(view.agent[1], cols, cells[1], 1)
    lines = [_Text(view, (r0, c0, r1, c1)).render(color)]
    if (r1 - r0, c1 - c0) != (rows, cols):
        lines.append(f"rows {r0}-{r1 - 1} of {rows}, columns {c0}-{c1 - 1} of {cols}")
    lines.append("  ".join(f"{char} {name}" for name, char in CHARS.items()))
    lines.append(tree_text(view.episode, color, capacity))
    return "\n".join(lines)


def _checked_shape(view: MazeView) -> tuple[int, int]:
    """Rows and columns of the maze.

    Raises:
        ValueError: `links` is not a non-empty matrix or `trail` has another shape.
    """
    if view.links.ndim != 2 or view.links.size == 0 or view.trail.shape != view.links.shape:
        raise ValueError(f"links and trail must be non-empty and of one shape (rows, cols), not {view.links.shape} and {view.trail.shape}")
    return int(view.links.shape[0]), int(view.links.shape[1])


def _lens(agent: tuple[int, int], rows: int, cols: int) -> tuple[int, int, int, int]:
    """The cells of the close-up."""
    r0, r1 = span(agent[0], rows, LENS_CELLS[0], LENS_STRIDE)
    c0, c1 = span(agent[1], cols, LENS_CELLS[1], LENS_STRIDE)
    return r0, c0, r1, c1


class _Text:
    """A window of the maze as characters: a cell is three wide and one high, walls between."""

    def __init__(self, view: MazeView, cells: tuple[int, int, int, int]) -> None:
        self.view, self.cells = view, cells
        r0, c0, r1, c1 = cells
        self.links = view.links[r0:r1, c0:c1]
        shape = (2 * (r1 - r0) + 1, 4 * (c1 - c0) + 1)
        self.chars = np.full(shape, " ", "<U1")
        self.inks = np.full(shape, -1, np.int64)  # index into `palette`, -1: the terminal's own colour
        self.tints = np.full(shape, -1, np.int64)  # likewise, of the background
        self.palette: list[Color] = []

    def render(self, color: bool) -> str:
        """The window as lines of text."""
        self._walls()
        self._regions(color)
        self._marks()
        if not color:
            return "\n".join("".join(line).rstrip() for line in self.chars)
        return "\n".join(self._line(y) for y in range(self.chars.shape[0]))

    def _walls(self) -> None:
        """Walls, corners and blocked cells."""
        above, left = wall_edges(self.links)
        for i in (1, 2, 3):
            self.chars[::2, i::4][above] = "─"
        self.chars[1::2, ::4][left] = "│"
        arms = np.zeros((above.shape[0], left.shape[1]), np.int64)
        arms[1:] += NORTH * left
        arms[:, :-1] += EAST * above
        arms[:-1] += SOUTH * left
        arms[:, 1:] += WEST * above
        self.chars[::2, ::4] = np.array(list(JUNCTIONS))[arms]
        blocked = self.links == 0
        for i in (1, 2, 3):
            self.chars[1::2, i::4][blocked] = SOLID
            self.chars[2:-1:2, i::4][blocked[1:] & blocked[:-1]] = SOLID
        self.chars[1::2, 4:-1:4][blocked[:, 1:] & blocked[:, :-1]] = SOLID
        inner = blocked[1:, 1:] & blocked[1:, :-1] & blocked[:-1, 1:] & blocked[:-1, :-1]
        self.chars[2:-1:2, 4:-1:4][inner] = SOLID

    def _regions(self, color: bool) -> None:
        """Tint the regions of the open frames below the root, or shade that of the frame that acts."""
        r0, c0, r1, c1 = self.cells
        frames = [frame for frame in self.view.stack if frame.region != (0, 0, *self.view.links.shape)]
        for frame in frames:
            top, left = max(frame.region[0], r0) - r0, max(frame.region[1], c0) - c0
            bottom, right = min(frame.region[2], r1) - r0, min(frame.region[3], c1) - c0
            if top >= bottom or left >= right:
                continue
            area = (slice(2 * top + 1, 2 * bottom), slice(4 * left + 1, 4 * right))
            if color:
                self.tints[area] = self._ink(TEXT_TINTS[frame.depth % len(TEXT_TINTS)])
                self.inks[area] = self._ink((0, 0, 0))  # the terminal's own colour may be light
            elif frame is frames[-1]:
                chars = self.chars[area]
                chars[chars == " "] = SHADE

    def _marks(self) -> None:
        """Trail, targets, start, goal and agent, the more important over the less."""
        r0, c0, r1, c1 = self.cells
        visited = np.argwhere(self.view.trail[r0:r1, c0:c1] > 0)
        for r, c in visited.tolist():
            self._mark("trail", (r + r0, c + c0), AGENT)
        for frame in self.view.stack:
            for target in frame.targets:
                self._mark("target", target, depth_color(frame.depth))
        self._mark("start", self.view.start, None)
        self._mark("goal", self.view.goal, GOLD)
        self._mark("agent", self.view.agent, AGENT)

    def _mark(self, name: str, cell: tuple[int, int], color: Color | None) -> None:
        r0, c0, r1, c1 = self.cells
        if r0 <= cell[0] < r1 and c0 <= cell[1] < c1:
            at = 2 * (cell[0] - r0) + 1, 4 * (cell[1] - c0) + 2
            self.chars[at] = CHARS[name]
            if color is not None:
                self.inks[at] = self._ink(color)

    def _ink(self, color: Color) -> int:
        if color not in self.palette:
            self.palette.append(color)
        return self.palette.index(color)

    def _line(self, y: int) -> str:
        """One line, with a colour code wherever ink or tint changes."""
        inks, tints = self.inks[y], self.tints[y]
        cuts = np.flatnonzero((np.diff(inks) != 0) | (np.diff(tints) != 0)) + 1
        parts = []
        for first, end in pairwise([0, *cuts.tolist(), len(inks)]):
            ink = self.palette[inks[first]] if inks[first] >= 0 else None
            tint = self.palette[tints[first]] if tints[first] >= 0 else None
            parts.append(paint_text("".join(self.chars[y, first:end]), ink, tint))
        return "".join(parts)
