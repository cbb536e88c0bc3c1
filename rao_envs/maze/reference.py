"""Mazes solved without learning: the shortest path, and scripted agents that act from the observation alone.

The agents keep no memory: what they know of the past is the trail in their windows and the results of their
children. They are a reference for what the context allows, and so for what a learned policy of the same
context could reach.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rao_envs.core.actors import RandomAgent
from rao_envs.core.jit import jit
from rao_envs.maze.env import MazeEnv
from rao_envs.maze.generator import distances
from rao_envs.maze.kernels import CHANNELS, DIRECTIONS, SPAWN_TARGET

Window = npt.NDArray[np.int8]  # (CHANNELS, width, width)
Cell = tuple[int, int]

STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Row and column of the neighbour to the north, east, south and west."""

REGION, OPEN_EAST, OPEN_SOUTH, TARGET, TRAIL, VISITS = range(CHANNELS)
"""Channels of a window (`rao_envs.maze.kernels.draw_window`)."""

NOWHERE, OUT, EXPLORE, ARRIVE = range(4)
"""What a walk is for, worst to best: nothing found; leave the region elsewhere; look beyond the window; reach
a target in sight."""

TRODDEN = 50.0
"""Cost of a first step onto the trail, per level of its recency: going back is the last thing to do."""
VISITED = 5.0
"""Cost of looking beyond the window from where one stood before."""
AHEAD = 5
"""How many cells ahead a walk aims when the own level says only the direction: about a block."""
WANDERING = 0.05
"""How often an agent takes the least recently trodden way instead, which ends the cycles that agents without
memory fall into."""
NO_AIM = -1000


class ShortestPath(NamedTuple):
    """A shortest way through a maze."""

    moves: int
    actions: npt.NDArray[np.int64]  # (moves,) 0 north, 1 east, 2 south, 3 west
    cells: npt.NDArray[np.int64]  # (moves + 1, 2) rows and columns, start and goal included


def shortest_path(maze: gym.Env[Any, Any] | npt.NDArray[np.uint8], start: Cell | None = None, goal: Cell | None = None) -> ShortestPath:
    """The ground truth: a shortest path; of several, the one that prefers north to east to south to west.

    Args:
        maze: a maze environment after `reset`, wrapped or not, or `links`, uint8 (rows, cols).
        start: (row, column); of an environment by default where the agent stands.
        goal: (row, column); of an environment by default its goal.

    Raises:
        ValueError: start or goal missing or outside the maze, no path between them, or `maze` is neither.
    """
    if isinstance(maze, np.ndarray):
        links = maze
        if links.ndim != 2 or links.dtype != np.uint8 or not links.size:
            raise ValueError(f"links must be uint8 (rows, cols), got {links.dtype} {links.shape}")
        if start is None or goal is None:
            raise ValueError("a map alone does not say where to begin and end: pass start= and goal=")
    else:
        env = maze.unwrapped
        if not isinstance(env, MazeEnv):
            raise ValueError(f"shortest_path takes a maze environment or its links, not {maze!r:.200}")
        links, places = env.links, env.cells
        start, goal = start or places["agent"], goal or places["goal"]
    for name, cell in (("start", start), ("goal", goal)):
        if not (0 <= cell[0] < links.shape[0] and 0 <= cell[1] < links.shape[1]):
            raise ValueError(f"the {name} {cell} is outside the maze of {links.shape[0]} x {links.shape[1]} cells")
    steps = np.empty(links.shape, np.int32)
    distances(np.ascontiguousarray(links), int(goal[0]), int(goal[1]), steps)
    row, col = int(start[0]), int(start[1])
    if steps[row, col] < 0:
        raise ValueError(f"no path leads from {(row, col)} to {(int(goal[0]), int(goal[1]))}")
    actions, cells = [], [(row, col)]
    while steps[row, col] > 0:
        for action, (down, right) in enumerate(STEPS):
            if (links[row, col] >> action) & 1 and steps[row + down, col + right] == steps[row, col] - 1:
                row, col = row + down, col + right
                break
        actions.append(action)
        cells.append((row, col))
    return ShortestPath(len(actions), np.array(actions, np.int64), np.array(cells, np.int64))


class RecursiveSolver:
    """Plans at its frame's level and spawns a child for each step of the plan; among cells it walks.

    For `rao_envs.evaluate`, or by hand: `solver(observation, mask)` with one observation or a batch of them.
    It goes to a target it sees, by the shortest way, and otherwise to where it can look further. It walks by
    itself where spawning has led astray: where a child failed, or where the trail at its level is longer than
    the way back (then blocks are not what the maze is made of). It needs chance (`uniform`, one number in [0,
    1) per row) to break out of cycles.
    """

    batched: ClassVar[bool] = True
    spawning: ClassVar[bool] = True

    def __call__(
        self,
        observation: dict[str, npt.NDArray[Any]],
        mask: npt.NDArray[np.bool_],
        state: Any = None,
        uniform: Any = 1.0,
    ) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: not observations of a maze.
        """
        task = observation["task"]
        width = math.isqrt(task.shape[-1] // (2 * CHANNELS))
        # One compiled version for all callers; and compiled code checks no bounds.
        tasks = np.atleast_2d(np.ascontiguousarray(task, np.int8))
        results = np.atleast_2d(np.ascontiguousarray(observation["results"], np.int8))
        masks = np.atleast_2d(np.ascontiguousarray(mask, np.bool_))
        fit = tasks.shape[1] == 2 * CHANNELS * width**2 and results.shape[1] == 5 and masks.shape[1] in (4, 9)
        if not fit or not len(tasks) == len(results) == len(masks):
            shapes = f"task {tasks.shape}, results {results.shape}, mask {masks.shape}"
            raise ValueError(f"not observations of a maze: {shapes}")
        actions = np.empty(len(tasks), np.int64)
        noise = np.full(len(tasks), uniform, np.float64)
        act_all(tasks.reshape(-1, 2, CHANNELS, width, width), results, masks, noise, self.spawning, actions)
        return int(actions[0]) if task.ndim == 1 else actions


class MonolithicSolver(RecursiveSolver):
    """Walks all the way by itself, guided by its frame's own level, with spawn actions or without."""

    spawning: ClassVar[bool] = False


random_agent = RandomAgent()
"""Takes any allowed action, each equally likely."""


@jit
def act_all(
    windows: npt.NDArray[np.int8],
    results: npt.NDArray[np.int8],
    masks: npt.NDArray[np.bool_],
    uniform: npt.NDArray[np.float64],
    spawning: bool,
    actions: npt.NDArray[np.int64],
) -> None:
    """Write one action per row.

    `windows` are (m, 2, CHANNELS, width, width), `results` (m, 5), `masks` (m, 4 or 9), `uniform` and
    `actions` (m,).
    """
    for i in range(windows.shape[0]):
        own, cells = windows[i, 0], windows[i, 1]
        if cells[REGION, cells.shape[1] // 2, cells.shape[1] // 2] == 0:
            cells = own  # a frame at the level of cells has one window
        actions[i] = -1
        if spawning and masks[i, DIRECTIONS:].any() and trodden_sides(cells) <= 1 and strayed(own) <= 0:
            actions[i] = choose_spawn(own, results[i], masks[i])
        if actions[i] < 0:
            actions[i] = choose_move(own, cells, uniform[i])


@jit
def choose_spawn(own: Window, results: npt.NDArray[np.int8], mask: npt.NDArray[np.bool_]) -> int:
    """The spawn that makes the next step of a plan at the frame's own level; -1 where none is worth it."""
    centre = own.shape[1] // 2
    if mask[SPAWN_TARGET] and results[SPAWN_TARGET - DIRECTIONS] != -1:
        return SPAWN_TARGET
    closed = 0
    for k in range(DIRECTIONS):
        if results[k] == -1 or not mask[DIRECTIONS + k]:
            closed |= 1 << k
    direction, purpose = walk(own, closed, NO_AIM, NO_AIM)
    if purpose < EXPLORE:
        return -1
    row, col = neighbour(centre, centre, direction)
    if own[VISITS, row, col] > 0 and own[REGION, row, col] == 1:
        return -1
    return DIRECTIONS + direction


@jit
def choose_move(own: Window, cells: Window, uniform: float) -> int:
    """The move of an agent that walks by itself."""
    centre = own.shape[1] // 2
    row, col = NO_AIM, NO_AIM
    if own[TARGET, centre, centre] == 0:
        direction, purpose = walk(own, 0, NO_AIM, NO_AIM)
        if purpose >= EXPLORE:
            row, col = neighbour(0, 0, direction)
            row, col = centre + AHEAD * row, centre + AHEAD * col
    direction, purpose = walk(cells, 0, row, col)
    if purpose == NOWHERE:
        return least_trodden(cells, uniform)
    if uniform < WANDERING:
        return least_trodden(cells, uniform / WANDERING)
    return direction


@jit
def walk(window: Window, closed: int, aim_row: int, aim_col: int) -> tuple[int, int]:
    """The direction (0 to 3; -1 for none) of a walk from the window's centre, and its purpose.

    `closed` has a bit for each direction that the first step must not take. The walk aims at (`aim_row`,
    `aim_col`) where no target is in sight; NO_AIM aims at the window's targets, which show on its border when
    they are beyond it.
    """
    width = window.shape[1]
    centre = width // 2
    targets = np.empty((width * width, 2), np.int64)
    count = 0
    for row in range(width):
        for col in range(width):
            if window[TARGET, row, col] == 1:
                targets[count, 0], targets[count, 1] = row, col
                count += 1
    if aim_row == NO_AIM:
        aims = targets[:count]
    else:
        aims = np.empty((1, 2), np.int64)
        aims[0, 0], aims[0, 1] = aim_row, aim_col
    steps = np.full((width, width), -1, np.int64)
    first = np.full((width, width), -1, np.int64)
    queue = np.empty((width * width, 2), np.int64)
    queue[0, 0], queue[0, 1] = centre, centre
    steps[centre, centre] = 0
    head, tail = 0, 1
    best, choice, purpose = 0.0, -1, NOWHERE
    while head < tail:
        row, col = queue[head, 0], queue[head, 1]
        head += 1
        here, direction = steps[row, col], first[row, col]
        inside = window[REGION, row, col] == 1
        target = window[TARGET, row, col] == 1
        border = row == 0 or col == 0 or row == width - 1 or col == width - 1
        cost, use = float(here), NOWHERE
        if here > 0 and target and not (border and inside):
            use = ARRIVE
        elif here > 0 and inside and border and (target or may_lead_out(window, row, col)):
            use = EXPLORE
            cost += remaining(aims, row, col)
            next_row, next_col = neighbour(centre, centre, direction)
            cost += TRODDEN * window[VISITS, next_row, next_col]
            if window[VISITS, row, col] > 0:
                cost += VISITED
        elif here > 0 and not inside:
            use = OUT
            cost += remaining(aims, row, col)
        if use > purpose or (use == purpose and use != NOWHERE and cost < best):
            best, choice, purpose = cost, direction, use
        if not inside:
            continue
        for k in range(DIRECTIONS):
            if here == 0 and (closed >> k) & 1:
                continue
            to_row, to_col = neighbour(row, col, k)
            if not is_open(window, row, col, k) or not (0 <= to_row < width and 0 <= to_col < width):
                continue
            if steps[to_row, to_col] < 0:
                steps[to_row, to_col] = here + 1
                first[to_row, to_col] = k if here == 0 else direction
                queue[tail, 0], queue[tail, 1] = to_row, to_col
                tail += 1
    return choice, purpose


@jit
def strayed(own: Window) -> int:
    """How many more units the trail has than the way to its farthest one: 0 after a shortest way."""
    width = own.shape[1]
    steps = np.full((width, width), -1, np.int64)
    queue = np.empty((width * width, 2), np.int64)
    queue[0, 0] = queue[0, 1] = width // 2
    steps[width // 2, width // 2] = 0
    head, tail = 0, 1
    visited, farthest = 0, 0
    while head < tail:
        row, col = queue[head, 0], queue[head, 1]
        head += 1
        if own[VISITS, row, col] > 0:
            visited += 1
            farthest = steps[row, col]
        for k in range(DIRECTIONS):
            to_row, to_col = neighbour(row, col, k)
            if not is_open(own, row, col, k) or not (0 <= to_row < width and 0 <= to_col < width):
                continue
            if steps[to_row, to_col] < 0 and own[REGION, to_row, to_col] == 1:
                steps[to_row, to_col] = steps[row, col] + 1
                queue[tail, 0], queue[tail, 1] = to_row, to_col
                tail += 1
    return visited - 1 - farthest


@jit
def trodden_sides(window: Window) -> int:
    """How many open neighbours bear a trail: more than one says that the agent was here before."""
    centre = window.shape[1] // 2
    count = 0
    for k in range(DIRECTIONS):
        row, col = neighbour(centre, centre, k)
        if is_open(window, centre, centre, k) and window[VISITS, row, col] > 0:
            count += 1
    return count


@jit
def least_trodden(window: Window, uniform: float) -> int:
    """Of the open directions, one that leads to where the agent was least recently."""
    centre = window.shape[1] // 2
    best, choice = 99, 0
    offset = int(uniform * DIRECTIONS)
    for j in range(DIRECTIONS):
        k = (j + offset) % DIRECTIONS
        row, col = neighbour(centre, centre, k)
        if is_open(window, centre, centre, k) and window[VISITS, row, col] < best:
            best, choice = window[VISITS, row, col], k
    return choice


@jit
def neighbour(row: int, col: int, direction: int) -> tuple[int, int]:
    """The next unit to the north, east, south or west."""
    return row + (direction == 2) - (direction == 0), col + (direction == 1) - (direction == 3)


@jit
def is_open(window: Window, row: int, col: int, direction: int) -> bool:
    """Whether the window shows an opening there; openings to the north and west belong to the neighbour."""
    if direction == 0:
        return row > 0 and window[OPEN_SOUTH, row - 1, col] == 1
    if direction == 1:
        return bool(window[OPEN_EAST, row, col] == 1)
    if direction == 2:
        return bool(window[OPEN_SOUTH, row, col] == 1)
    return col > 0 and window[OPEN_EAST, row, col - 1] == 1


@jit
def may_lead_out(window: Window, row: int, col: int) -> bool:
    """Whether a unit on the window's border may lead beyond it (to the north and west that does not show)."""
    last = window.shape[1] - 1
    seen = (row == last and window[OPEN_SOUTH, row, col] == 1) or (col == last and window[OPEN_EAST, row, col] == 1)
    return row == 0 or col == 0 or seen


@jit
def remaining(aims: npt.NDArray[np.int64], row: int, col: int) -> float:
    """Manhattan distance to the nearest of the aims (k, 2); 0 where there is none."""
    best = -1
    for k in range(aims.shape[0]):
        distance = abs(aims[k, 0] - row) + abs(aims[k, 1] - col)
        if best < 0 or distance < best:
            best = distance
    return float(max(best, 0))
