"""The maze family's configuration: sizes, levels, spaces and where the state lives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.arguments import real_number, whole_number
from rao_envs.core.domain import Domain
from rao_envs.maze import kernels
from rao_envs.maze.generator import DEFAULT_OPENINGS, GROUP, STRUCTURES, WIDEST_TOP
from rao_envs.maze.layout import Layout, load_layout

MAX_SIDE = 4096
MAX_RADIUS = 32
MOVES = ("north", "east", "south", "west")


class MazeDomain(Domain):
    """Mazes of `rows` x `cols` cells, seen as blocks, blocks of blocks, and so on.

    Args:
        rows, cols: size in cells, 1 to 4,096 each and at least 2 cells in all; ignored when `layout` is given.
        block: cells along a block's side, at least 2.
        radius: how far a frame's window reaches, in units of its level, 1 to 32.
        structure: "nested", "perfect", "rooms" or "open" (`rao_envs.maze.generator.generate` says what each is).
        openings: probability in [0, 1] that a further wall opens ("open": that a cell is blocked); None takes the structure's default.
        frame_budget: steps a child frame may take, per cell of its region's side.
        layout: a maze of your own instead of generated ones: text, a path, an array or a Moving AI map (`rao_envs.maze.layout`).
        scenarios: start and goal pairs on the layout: a path to a Moving AI `.scen` file, or a list of ((row, col), (row, col)).

    Raises:
        ValueError: a value out of range.
        rao_envs.maze.layout.LayoutError: a layout or scenario that cannot be used, with the row and column at fault.
    """

    primitives = MOVES
    spawns = (*(f"spawn_{direction}" for direction in MOVES), "spawn_target")
    has_dense = True
    shared = frozenset({"config", "levels", "scenarios"})
    settled = frozenset({"links", "distance"})
    per_frame = frozenset({"frames", "results"})

    def __init__(
        self,
        rows: int = 20,
        cols: int = 20,
        *,
        block: int = 5,
        radius: int = 4,
        structure: str = "nested",
        openings: float | None = None,
        frame_budget: float = 8.0,
        layout: Any = None,
        scenarios: Any = None,
    ) -> None:
        if scenarios is not None and layout is None:
            raise ValueError("scenarios are starts and goals on a given map: pass layout= as well")
        self.layout: Layout | None = None if layout is None else load_layout(layout, scenarios)
        if self.layout is not None:
            rows, cols = self.layout.links.shape
        if structure not in tuple(STRUCTURES):  # a list from a settings file cannot be looked up in a dict
            raise ValueError(f"structure must be one of {', '.join(map(repr, STRUCTURES))}, got {structure!r}")
        self.rows = whole_number("rows", rows, 1, MAX_SIDE)
        self.cols = whole_number("cols", cols, 1, MAX_SIDE)
        if self.rows * self.cols < 2:
            raise ValueError("a maze needs at least two cells")
        self.block = whole_number("block", block, 2, MAX_SIDE)
        self.radius = whole_number("radius", radius, 1, MAX_RADIUS)
        self.structure = structure
        self.openings = real_number("openings", DEFAULT_OPENINGS[structure] if openings is None else openings, 0.0, 1.0)
        self.frame_budget = real_number("frame_budget", frame_budget, 0.1, 1e6)
        self.levels = plan_levels(self.rows, self.cols, self.block)
        self.units = int(self.levels["offset"][-1] + self.levels["rows"][-1] * self.levels["cols"][-1])
        self.name = f"Maze-{self.rows}x{self.cols}"
        self.max_depth = len(self.levels) - 1
        self.budget = 20 * max(self.rows, self.cols)
        # Flat, because stable-baselines3 takes anything with more axes for a picture; `windows` gives the axes back.
        self.window_shape = (2, kernels.CHANNELS, 2 * self.radius + 1, 2 * self.radius + 1)
        self.task_space = spaces.Box(0, kernels.MOST_VISITS, (math.prod(self.window_shape),), np.int8)
        self.results_space = spaces.Box(-1, 1, (len(self.spawns),), np.int8)
        if self.layout is not None:
            self.shared, self.settled = self.shared | {"links"}, self.settled - {"links"}
            self.options = frozenset({"scenario"} if len(self.layout.starts) else ())
            self._given_links = self._links_of_all_levels(self.layout)

    def allocate(self, n: int, *, dense: bool) -> kernels.MazeState:
        """Room for `n` mazes, or for `n` agents on the one given map."""
        config = np.zeros(1, kernels.CONFIG)
        given = self.layout
        scenarios = np.zeros((0, 4), np.int32) if given is None else np.hstack([given.starts, given.goals]).astype(np.int32)
        config[0] = (
            self.rows,
            self.cols,
            self.block,
            self.radius,
            len(self.levels),
            STRUCTURES[self.structure],
            self.openings,
            self.frame_budget,
            given is not None,
            len(scenarios),
        )
        place = np.zeros(n, kernels.PLACE)
        place["scenario"] = -1
        depths = self.max_depth + 1
        return kernels.MazeState(
            config=config,
            levels=self.levels,
            links=np.zeros((n, self.units), np.uint8) if given is None else self._given_links,
            scenarios=np.ascontiguousarray(scenarios),
            place=place,
            seen=np.zeros((n, self.units), np.int32),
            visits=np.zeros((n, self.units), np.int8),
            frames=np.zeros((n, depths), kernels.FRAME),
            results=np.zeros((n, depths, len(self.spawns)), np.int8),
            distance=np.zeros((n, self.rows * self.cols if dense else 0), np.int32),
        )

    def windows(self, task: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """`task` observations (..., size) as windows (..., 2, 6, 2r+1, 2r+1): [own level, cells], then the channels."""
        return task.reshape(*task.shape[:-1], *self.window_shape)

    def prepare(self, state: kernels.MazeState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"scenario": k}` picks the k-th given pair of start and goal; without it, any."""
        choice = options.get("scenario")
        state.place["scenario"][i] = -1 if choice is None else whole_number("scenario", choice, 0, len(state.scenarios) - 1)

    def _links_of_all_levels(self, layout: Layout) -> npt.NDArray[np.uint8]:
        """The given map's links, (1, units), at every level."""
        links = np.zeros((1, self.units), np.uint8)
        links[0, : layout.links.size] = layout.links.ravel()
        kernels.build_levels(self.levels, links[0])
        return links


def plan_levels(rows: int, cols: int, block: int) -> Any:
    """The grids of units from cells up: LEVEL records, at least two, the top one at most WIDEST_TOP units wide."""
    plan = [(rows, cols, 1, 1, 0)]
    factor = block
    while len(plan) < 2 or max(plan[-1][0], plan[-1][1]) > WIDEST_TOP:
        below_rows, below_cols, side, _, offset = plan[-1]
        plan.append((-(-below_rows // factor), -(-below_cols // factor), side * factor, factor, offset + below_rows * below_cols))
        factor = GROUP
    return np.array(plan, kernels.LEVEL)
