"""The maze's dynamics: begin, move, spawn, resolve, observe, over a batch. Compiled; see `rao_envs.core.hooks` for the contract.

Space is seen at several levels: level 0 is the grid of cells, level 1 groups cells into blocks, level 2 groups blocks, and so on. Each
level is a grid of *units* with openings between neighbours, so that every frame, whatever its level, faces the same kind of problem: walk
from unit to unit inside a region, to a target. At level 0 a walk is a move; above, it is a child frame one level down.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit, splice
from rao_envs.core.rng import below
from rao_envs.maze.generator import coarsen, distances, generate, place

NORTH, EAST, SOUTH, WEST = 0, 1, 2, 3
DIRECTIONS = 4
SPAWN_TARGET = 8
"""Actions: 0-3 move, 4-7 spawn "get to the neighbouring unit" in the same four directions, 8 spawn "reach the goal in this unit"."""

TO_GOAL = -1
"""A frame's aim: TO_GOAL, or the direction in which it must leave its region."""

CHANNELS = 6
"""Of a window: in the region; open to the east; open to the south; target; trail; visits."""
JUST_NOW, RECENT, FAIRLY_RECENT = 1, 4, 12
"""Ages, in steps per cell of a unit's side, up to which the trail shows 4, 3 and 2; older visits show 1, unvisited units 0."""
MOST_VISITS = 6
"""Visits are counted up to here. The trail alone leaves deterministic agents in loops; with counts the least visited way out stands out
more at every turn, so that an agent without memory gets out (node counting, Koenig and Szymanski 1999)."""

CONFIG = np.dtype(
    [
        ("rows", np.int32),
        ("cols", np.int32),
        ("block", np.int32),
        ("radius", np.int32),
        ("levels", np.int32),
        ("structure", np.int32),
        ("openings", np.float64),
        ("frame_budget", np.float64),  # steps per cell of a region's longer side
        ("fixed", np.bool_),  # the map is given, not generated
        ("scenarios", np.int32),  # given pairs of start and goal; 0: drawn at random
    ],
    align=True,
)

LEVEL = np.dtype([("rows", np.int32), ("cols", np.int32), ("side", np.int32), ("factor", np.int32), ("offset", np.int64)], align=True)
"""One level: its grid's size in units, the cells along a unit's side, the units of the level below along it, where its units are stored."""

FRAME = np.dtype(
    [
        ("level", np.int32),
        ("aim", np.int32),
        ("r0", np.int32),  # region, half open, in units of the frame's level
        ("c0", np.int32),
        ("r1", np.int32),
        ("c1", np.int32),
        ("row", np.int32),  # where it stood when `results` was last cleared, in units of its level
        ("col", np.int32),
    ],
    align=True,
)

PLACE = np.dtype(
    [
        ("row", np.int32),
        ("col", np.int32),
        ("start_row", np.int32),
        ("start_col", np.int32),
        ("goal_row", np.int32),
        ("goal_col", np.int32),
        ("scenario", np.int32),
        ("scale", np.int32),
    ],
    align=True,
)
"""Agent, start and goal cells; the scenario asked for (-1: any); the distance from start to goal (dense feedback only)."""


class MazeState(NamedTuple):
    """A batch of `n` mazes, or of `n` agents on one given map (m = n or 1)."""

    config: npt.NDArray[Any]  # CONFIG (1,)
    levels: npt.NDArray[Any]  # LEVEL (L,)
    links: npt.NDArray[np.uint8]  # (m, U) open directions of the units of all levels, level 0 first: N=1, E=2, S=4, W=8
    scenarios: npt.NDArray[np.int32]  # (K, 4) given start and goal cells
    place: npt.NDArray[Any]  # PLACE (n,)
    seen: npt.NDArray[np.int32]  # (n, U) 1 + clock of the latest visit to each unit; 0 = never
    visits: npt.NDArray[np.int8]  # (n, U) how often it was entered, counted up to MOST_VISITS
    frames: npt.NDArray[Any]  # FRAME (n, D)
    results: npt.NDArray[np.int8]  # (n, D, 5) latest outcome of each spawn action tried from where the frame stands
    distance: npt.NDArray[np.int32]  # (n, cells) steps to the goal (dense feedback only, else (n, 0))


@inline
def map_of(domain: MazeState, i: int) -> int:
    """Row of `links` that holds instance `i`'s map."""
    return i if domain.links.shape[0] > 1 else 0


@inline
def links_at(domain: MazeState, i: int, level: int, row: int, col: int) -> int:
    """Open directions of a unit."""
    grid = domain.levels[level]
    return domain.links[map_of(domain, i), grid["offset"] + row * grid["cols"] + col]


@inline
def unit_at(domain: MazeState, level: int, row: int, col: int) -> int:
    """Index, in arrays over the units of all levels, of the unit of `level` that holds a cell."""
    grid = domain.levels[level]
    return grid["offset"] + (row // grid["side"]) * grid["cols"] + col // grid["side"]


@inline
def begin_trail(domain: MazeState, stack: CallStack, i: int, top: int) -> None:
    """Count the agent's units up to level `top` as visited once: a frame at that level begins."""
    here = domain.place[i]
    for level in range(top + 1):
        unit = unit_at(domain, level, here["row"], here["col"])
        domain.visits[i, unit] = 1
        domain.seen[i, unit] = stack.episodes[i]["clock"] + 1


@inline
def extend_trail(domain: MazeState, stack: CallStack, i: int, old_row: int, old_col: int) -> None:
    """Count the units, at every level, that the agent entered from the cell (old_row, old_col)."""
    here = domain.place[i]
    levels = domain.config[0]["levels"]
    for level in range(levels):
        unit = unit_at(domain, level, here["row"], here["col"])
        # A level is counted for the frame that walks on it, or where none does for the acting one.
        owner = min(stack.episodes[i]["depth"], levels - 1 - level)
        if domain.seen[i, unit] <= stack.frames[i, owner]["start"]:
            domain.visits[i, unit] = 1
        elif unit != unit_at(domain, level, old_row, old_col):
            domain.visits[i, unit] = min(domain.visits[i, unit] + 1, MOST_VISITS)
        domain.seen[i, unit] = stack.episodes[i]["clock"] + 1


@jit
def build_levels(levels: npt.NDArray[Any], links: npt.NDArray[np.uint8]) -> None:
    """Derive the openings between units of every upper level from the level below; `links` uint8 (U,), one map's."""
    for level in range(1, levels.shape[0]):
        lower, upper = levels[level - 1], levels[level]
        below_links = links[lower["offset"] : lower["offset"] + lower["rows"] * lower["cols"]]
        above_links = links[upper["offset"] : upper["offset"] + upper["rows"] * upper["cols"]]
        coarsen(
            below_links.reshape((lower["rows"], lower["cols"])),
            upper["factor"],
            above_links.reshape((upper["rows"], upper["cols"])),
        )


@splice
def set_scene(domain: MazeState, stack: CallStack, i: int) -> None:
    """Choose start and goal, on a new maze unless the map is given."""
    config = domain.config[0]
    where = domain.place[i]
    rows, cols = config["rows"], config["cols"]
    m = map_of(domain, i)
    cells = domain.links[m, : rows * cols].reshape((rows, cols))
    rng = stack.rng[i]
    if config["scenarios"] > 0:
        k = where["scenario"]
        if k < 0:
            k = below(rng, config["scenarios"])
        start_row, start_col, goal_row, goal_col = domain.scenarios[k]
    else:
        while True:
            if not config["fixed"]:
                generate(cells, config["structure"], config["block"], config["openings"], rng)
            start_row, start_col, goal_row, goal_col = place(cells, rng, (rows + cols) // 3)
            if start_row >= 0:
                break
        if not config["fixed"]:
            build_levels(domain.levels, domain.links[m])
    where["row"], where["col"] = start_row, start_col
    where["start_row"], where["start_col"] = start_row, start_col
    where["goal_row"], where["goal_col"] = goal_row, goal_col
    if domain.distance.shape[1] > 0:
        field = domain.distance[i].reshape((rows, cols))
        distances(cells, goal_row, goal_col, field)
        where["scale"] = max(1, field[start_row, start_col])


@jit
def begin(domain: MazeState, stack: CallStack, i: int) -> None:
    """A new task: scene, trail and root frame."""
    set_scene(domain, stack, i)
    domain.seen[i, :] = 0
    top = domain.config[0]["levels"] - 1
    begin_trail(domain, stack, i, top)
    root = domain.frames[i, 0]
    root["level"] = top
    root["aim"] = TO_GOAL
    root["r0"], root["c0"] = 0, 0
    root["r1"], root["c1"] = domain.levels[top]["rows"], domain.levels[top]["cols"]
    forget_results(domain, i, 0)


@inline
def forget_results(domain: MazeState, i: int, depth: int) -> None:
    """What children achieved from another unit says nothing about this one."""
    frame = domain.frames[i, depth]
    side = domain.levels[frame["level"]]["side"]
    frame["row"] = domain.place[i]["row"] // side
    frame["col"] = domain.place[i]["col"] // side
    for k in range(domain.results.shape[2]):
        domain.results[i, depth, k] = 0


@inline
def allowed(domain: MazeState, stack: CallStack, i: int, action: int) -> bool:
    """Moves through openings; spawns towards openings of the frame's level, or for the goal in this unit."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    here = domain.place[i]
    if action < DIRECTIONS:
        return (links_at(domain, i, 0, here["row"], here["col"]) >> action) & 1 == 1
    level = frame["level"]
    if level == 0:
        return False
    side = domain.levels[level]["side"]
    row, col = here["row"] // side, here["col"] // side
    if action == SPAWN_TARGET:
        return frame["aim"] == TO_GOAL and row == here["goal_row"] // side and col == here["goal_col"] // side
    return (links_at(domain, i, level, row, col) >> (action - DIRECTIONS)) & 1 == 1


@inline
def act(domain: MazeState, stack: CallStack, i: int, action: int) -> None:
    """Move one cell."""
    here = domain.place[i]
    old_row, old_col = here["row"], here["col"]
    if action == NORTH:
        here["row"] -= 1
    elif action == EAST:
        here["col"] += 1
    elif action == SOUTH:
        here["row"] += 1
    else:
        here["col"] -= 1
    extend_trail(domain, stack, i, old_row, old_col)
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    side = domain.levels[frame["level"]]["side"]
    if here["row"] // side != frame["row"] or here["col"] // side != frame["col"]:
        forget_results(domain, i, depth)


@inline
def fanout(domain: MazeState, stack: CallStack, i: int, action: int) -> int:
    """One child: the agent is in one place."""
    return 1


@inline
def open_child(domain: MazeState, stack: CallStack, i: int, action: int, k: int) -> int:
    """The unit the agent stands in, one level down: to its far side, or to the goal in it."""
    depth = stack.episodes[i]["depth"]
    parent, child = domain.frames[i, depth], domain.frames[i, depth + 1]
    here = domain.place[i]
    upper, lower = domain.levels[parent["level"]], domain.levels[parent["level"] - 1]
    factor = upper["factor"]
    row, col = here["row"] // upper["side"], here["col"] // upper["side"]
    child["level"] = parent["level"] - 1
    child["aim"] = TO_GOAL if action == SPAWN_TARGET else action - DIRECTIONS
    child["r0"], child["c0"] = row * factor, col * factor
    child["r1"] = min((row + 1) * factor, lower["rows"])
    child["c1"] = min((col + 1) * factor, lower["cols"])
    forget_results(domain, i, depth + 1)
    begin_trail(domain, stack, i, child["level"])
    return max(1, int(domain.config[0]["frame_budget"] * upper["side"]))


@inline
def resolve(domain: MazeState, stack: CallStack, i: int) -> int:
    """Success at the goal or across the right side; failure across any other."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    here = domain.place[i]
    if frame["aim"] == TO_GOAL and here["row"] == here["goal_row"] and here["col"] == here["goal_col"]:
        return SUCCESS
    side = domain.levels[frame["level"]]["side"]
    row, col = here["row"] // side, here["col"] // side
    in_rows = frame["r0"] <= row < frame["r1"]
    in_cols = frame["c0"] <= col < frame["c1"]
    if in_rows and in_cols:
        return RUNNING
    aim = frame["aim"]
    if (
        (aim == NORTH and row < frame["r0"] and in_cols)
        or (aim == SOUTH and row >= frame["r1"] and in_cols)
        or (aim == EAST and col >= frame["c1"] and in_rows)
        or (aim == WEST and col < frame["c0"] and in_rows)
    ):
        return SUCCESS
    return FAILURE


@inline
def receive(domain: MazeState, stack: CallStack, i: int, success: bool) -> None:
    """Remember the outcome, unless the child left the unit it was tried from."""
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    side = domain.levels[frame["level"]]["side"]
    here = domain.place[i]
    domain.results[i, depth, stack.frames[i, depth + 1]["action"] - DIRECTIONS] = 1 if success else -1
    if here["row"] // side != frame["row"] or here["col"] // side != frame["col"]:
        forget_results(domain, i, depth)


@inline
def progress(domain: MazeState, stack: CallStack, i: int) -> float:
    """Minus the true distance to the goal, in units of the distance from the start: 1 in all over a solved episode."""
    here = domain.place[i]
    return -domain.distance[i, here["row"] * domain.config[0]["cols"] + here["col"]] / here["scale"]


@inline
def trail_mark(age: int, side: int) -> int:
    """How recently a unit was visited, `age` steps ago: 4 (just now) down to 1 (long ago).

    Counted in crossings of a unit, so that a frame that walks over blocks sees the same trail as one that walks over cells.
    """
    return 1 + (age <= RECENT * side) + (age <= FAIRLY_RECENT * side) + (age <= JUST_NOW * side)


@inline
def draw_window(domain: MazeState, stack: CallStack, i: int, level: int, task: npt.NDArray[np.int8], at: int) -> None:
    """Draw the units of `level` around the agent, as the acting frame may see them.

    The window (CHANNELS, width, width), width = 2 * radius + 1, is written to `task[i, at:]`, flattened; it must be zero before.
    """
    radius = domain.config[0]["radius"]
    width = 2 * radius + 1
    area = width * width
    region, east, south, target, trail, visits = at, at + area, at + 2 * area, at + 3 * area, at + 4 * area, at + 5 * area
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    here = domain.place[i]
    grid = domain.levels[level]
    cols, side, offset = grid["cols"], grid["side"], grid["offset"]
    scale = domain.levels[frame["level"]]["side"] // side
    r0, c0 = frame["r0"] * scale, frame["c0"] * scale
    r1, c1 = min(frame["r1"] * scale, grid["rows"]), min(frame["c1"] * scale, cols)
    row, col = here["row"] // side, here["col"] // side
    first = stack.frames[i, depth]["start"] + 1
    now = stack.episodes[i]["clock"] + 1
    m = map_of(domain, i)
    top, left = row - radius, col - radius
    row_from, row_to = max(r0, top), min(r1, row + radius + 1)
    col_from, col_to = max(c0, left), min(c1, col + radius + 1)
    for r in range(row_from, row_to):
        unit = offset + r * cols
        pixel = (r - top) * width - left
        for c in range(col_from, col_to):
            bits = domain.links[m, unit + c]
            task[i, region + pixel + c] = 1
            task[i, east + pixel + c] = (bits >> EAST) & 1
            task[i, south + pixel + c] = (bits >> SOUTH) & 1
            seen = domain.seen[i, unit + c]
            task[i, trail + pixel + c] = trail_mark(now - seen, side) if seen >= first else 0
            task[i, visits + pixel + c] = domain.visits[i, unit + c] if seen >= first else 0
    # Openings across the region's northern and western sides belong to units outside it.
    if r0 > top and r0 <= row + radius:
        for c in range(col_from, col_to):
            task[i, south + (r0 - 1 - top) * width + c - left] = domain.links[m, offset + r0 * cols + c] & 1
    if c0 > left and c0 <= col + radius:
        for r in range(row_from, row_to):
            task[i, east + (r - top) * width + c0 - 1 - left] = (domain.links[m, offset + r * cols + c0] >> WEST) & 1
    aim = frame["aim"]
    if aim == TO_GOAL:
        # Beyond the window the goal shows on its border: a direction, whatever the size of the maze.
        goal_row = min(max(here["goal_row"] // side - top, 0), 2 * radius)
        goal_col = min(max(here["goal_col"] // side - left, 0), 2 * radius)
        task[i, target + goal_row * width + goal_col] = 1
    elif aim in (NORTH, SOUTH):
        edge = r0 if aim == NORTH else r1 - 1
        beyond = edge - 1 if aim == NORTH else r1
        if top <= beyond <= row + radius:
            for c in range(col_from, col_to):
                task[i, target + (beyond - top) * width + c - left] = (domain.links[m, offset + edge * cols + c] >> aim) & 1
    else:
        edge = c0 if aim == WEST else c1 - 1
        beyond = edge - 1 if aim == WEST else c1
        if left <= beyond <= col + radius:
            for r in range(row_from, row_to):
                task[i, target + (r - top) * width + beyond - left] = (domain.links[m, offset + r * cols + edge] >> aim) & 1


@inline
def observe(domain: MazeState, stack: CallStack, obs: Observation, i: int) -> None:
    """Both windows and the latest outcomes."""
    depth = stack.episodes[i]["depth"]
    level = domain.frames[i, depth]["level"]
    half = obs.task.shape[1] // 2
    for k in range(2 * half):
        obs.task[i, k] = 0
    # The second window is for frames above the level of cells; at that level it would only say the same again.
    for window in range(1 if level == 0 else 2):
        draw_window(domain, stack, i, level * (1 - window), obs.task, window * half)
    for k in range(domain.results.shape[2]):
        obs.results[i, k] = domain.results[i, depth, k]


implement(
    MazeState,
    begin=begin,
    allowed=allowed,
    act=act,
    fanout=fanout,
    open_child=open_child,
    resolve=resolve,
    receive=receive,
    observe=observe,
    progress=progress,
)
