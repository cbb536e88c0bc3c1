"""Compiled maze generators and the grid searches that go with them.

A maze is `links`: uint8, shape (rows, cols), one byte of open directions per cell (N=1, E=2, S=4, W=8). Both
sides of an opening agree, and no opening leaves the grid; a blocked cell is 0 and nobody links to it. (A free
cell with four walls is also 0: nobody can ever be there.) Every function is a module-level kernel that other
kernels call, on grids of at least one cell; the state of the random stream is `rng`, uint64, shape (1,),
advanced in place. Nothing here recurses; scratch arrays are allocated once per call.

Trees are drawn by Wilson's algorithm (Wilson 1996, "Generating random spanning trees more quickly than the
cover time"): every spanning tree is equally likely, so no direction or corner is favoured, and ways across
L x L cells grow like L^1.25. Mazes of a depth-first search, the usual choice, wind far more (80 x 80 cells,
start and goal as drawn by `place`: 224 steps on average here, 1,082 there) and outgrow a step budget that is
proportional to the side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import jit
from rao_envs.core.rng import U32, below, next_u64, uniform

Links = npt.NDArray[np.uint8]
Rng = npt.NDArray[np.uint64]
Grid = npt.NDArray[np.int32]  # (rows, cols)
Flat = npt.NDArray[np.int32]  # one entry per cell of a padded grid

NORTH, EAST, SOUTH, WEST = 1, 2, 4, 8

GROUP = 4
"""Units of one level along the side of a unit of the next, above the blocks."""
WIDEST_TOP = 5
"""Levels are added until the top one is at most this wide: a window of radius 4 then shows all of it, from anywhere."""

NESTED, PERFECT, ROOMS, OPEN = 0, 1, 2, 3
STRUCTURES: dict[str, int] = {"nested": NESTED, "perfect": PERFECT, "rooms": ROOMS, "open": OPEN}
DEFAULT_OPENINGS: dict[str, float] = {"nested": 0.4, "perfect": 0.0, "rooms": 0.3, "open": 0.2}

# While a tree grows, bits 4 and 5 of a cell outside it hold the direction in which the walk last left; bit 7
# marks the tree.
_DIRECTION_SHIFT = 4
_IN_TREE = 128
_OPEN_BITS = 15
_DIRECTIONS_PER_DRAW = 32
_THREE, _TWO, _LOW_32 = np.uint64(3), np.uint64(2), np.uint64(0xFFFFFFFF)

# Numba compiles a function once more for a literal argument; a typed zero saves those copies.
_ZERO: int = np.int64(0)  # type: ignore[assignment]


@jit
def generate(links: Links, structure: int, block: int, openings: float, rng: Rng) -> None:
    """Fill `links` with a random maze.

    Args:
        links: uint8 (rows, cols), overwritten.
        structure: NESTED, PERFECT, ROOMS or OPEN.
            NESTED: a random spanning tree inside each block of `block` x `block` cells (clipped at the edges); then each closed
            wall inside a block opens with probability `openings`. The blocks are joined in the same way, one door per connected
            pair at a random place; where they are more than WIDEST_TOP wide, in groups of GROUP x GROUP, and so on, so that
            every unit of every level is connected inside.
            PERFECT: one random spanning tree over all cells; then each closed wall opens with probability
            `openings`.
            ROOMS: empty rooms of random sizes (sides up to 2 * block - 1, not aligned to the blocks),
            single-cell doors that form a tree over the rooms; then each pair of rooms that shares a wall and
            no door gets one with probability `openings`.
            OPEN: each cell is blocked with probability `openings`; then all but the largest connected part
            is. At least two connected cells are left wherever the grid has two.
        block: side of a block in cells, at least 1 (smaller values count as 1).
        openings: probability in [0, 1].
        rng: uint64 (1,), advanced in place.

    Raises:
        ValueError: unknown structure.
    """
    links[:, :] = 0
    side = max(1, block)
    if structure == NESTED:
        _nested(links, side, openings, rng)
    elif structure == PERFECT:
        _grow_tree(links, _ZERO, _ZERO, links.shape[0], links.shape[1], rng)
        _open_walls(links, _ZERO, _ZERO, links.shape[0], links.shape[1], openings, rng)
    elif structure == ROOMS:
        _rooms(links, side, openings, rng)
    elif structure == OPEN:
        _obstacles(links, openings, rng)
    else:
        raise ValueError("unknown structure: use NESTED (0), PERFECT (1), ROOMS (2) or OPEN (3)")


@jit
def default_distance(rows: int, cols: int) -> int:
    """Least Manhattan distance from start to goal unless told otherwise: (rows + cols) / 3, rounded up."""
    return (rows + cols + 2) // 3


@jit
def place(links: Links, rng: Rng, min_distance: int) -> tuple[int, int, int, int]:
    """Draw a start and a goal that can be reached from it, in any maze (user maps in several parts too).

    Args:
        links: uint8 (rows, cols), read only.
        rng: uint64 (1,), advanced in place.
        min_distance: least Manhattan distance from start to goal, in cells; negative means
            `default_distance`.

    Returns:
        (start_row, start_col, goal_row, goal_col). The start is uniform among the cells that can be left, the
        goal uniform among the reachable cells at `min_distance` or more; where there is none, the goal is a
        reachable cell with the largest Manhattan distance (among equals, one with the longest way). Start and
        goal differ. All four are -1 when no two cells are connected.
    """
    rows, cols = links.shape
    apart = default_distance(rows, cols) if min_distance < 0 else max(1, min_distance)
    candidates = 0
    for row in range(rows):
        for col in range(cols):
            candidates += links[row, col] != 0
    if candidates == 0:
        return -1, -1, -1, -1

    # A cell with an opening has a neighbour, so some goal can be reached from every candidate.
    skip = below(rng, candidates)
    start_row, start_col = 0, 0
    while links[start_row, start_col] == 0 or skip > 0:
        skip -= links[start_row, start_col] != 0
        start_col += 1
        if start_col == cols:
            start_row, start_col = start_row + 1, 0

    width = cols + 2
    grid = _padded(links)
    steps = np.full(grid.size, -1, np.int32)
    queue = np.empty(candidates + 1, np.int32)
    reached = _spread(grid, width, (start_row + 1) * width + start_col + 1, steps, queue)
    far = 0
    for row in range(rows):
        for col in range(cols):
            distant = abs(row - start_row) + abs(col - start_col) >= apart
            far += distant & (steps[(row + 1) * width + col + 1] >= 0)
    if far > 0:
        skip = below(rng, far)
        for row in range(rows):
            for col in range(cols):
                distant = abs(row - start_row) + abs(col - start_col) >= apart
                if distant & (steps[(row + 1) * width + col + 1] >= 0):
                    if skip == 0:
                        return start_row, start_col, row, col
                    skip -= 1

    goal_row, goal_col, largest = start_row, start_col, 0
    for index in range(1, reached):
        row, col = queue[index] // width - 1, queue[index] % width - 1
        distance = abs(row - start_row) + abs(col - start_col)
        if distance >= largest:  # the queue is sorted by length of way: of equals, the last one is wanted
            goal_row, goal_col, largest = row, col, distance
    return start_row, start_col, goal_row, goal_col


@jit
def distances(links: Links, goal_row: int, goal_col: int, out: Grid) -> None:
    """Steps from every cell to the goal along open links: the ground truth for shortest paths.

    Args:
        links: uint8 (rows, cols), read only.
        goal_row: row of the goal; outside the grid means that nothing reaches it.
        goal_col: column of the goal, likewise.
        out: int32 (rows, cols), overwritten; 0 at the goal, -1 where no path exists.
    """
    rows, cols = links.shape
    if goal_row < 0 or goal_row >= rows or goal_col < 0 or goal_col >= cols:
        out[:, :] = -1
        return
    width = cols + 2
    grid = _padded(links)
    steps = np.full(grid.size, -1, np.int32)
    queue = np.empty(rows * cols + 1, np.int32)
    _spread(grid, width, (goal_row + 1) * width + goal_col + 1, steps, queue)
    for row in range(rows):
        for col in range(cols):
            out[row, col] = steps[(row + 1) * width + col + 1]


@jit
def components(links: Links, out: Grid) -> int:
    """Number the connected parts of a maze.

    Args:
        links: uint8 (rows, cols), read only.
        out: int32 (rows, cols), overwritten: the part's number, counted from 0 in reading order; -1 for
            cells without an opening.

    Returns:
        The number of parts (each has at least two cells).
    """
    rows, cols = links.shape
    out[:, :] = -1
    width = cols + 2
    grid = _padded(links)
    steps = np.full(grid.size, -1, np.int32)
    queue = np.empty(rows * cols + 1, np.int32)
    count = 0
    for row in range(rows):
        for col in range(cols):
            cell = (row + 1) * width + col + 1
            if grid[cell] != 0 and steps[cell] < 0:
                for index in range(_spread(grid, width, cell, steps, queue)):
                    out[queue[index] // width - 1, queue[index] % width - 1] = count
                count += 1
    return count


@jit
def coarsen(links_level: Links, factor: int, out: Links) -> None:
    """Links of the next level up: two neighbouring units are linked when at least one opening joins them.

    Args:
        links_level: uint8 (rows, cols), read only.
        factor: side of a unit in cells of `links_level`, at least 1; units are clipped at the edges.
        out: uint8 (ceil(rows / factor), ceil(cols / factor)), overwritten.
    """
    rows, cols = links_level.shape
    out[:, :] = 0
    unit_rows, unit_cols = out.shape
    for unit_row in range(unit_rows - 1):
        row = (unit_row + 1) * factor - 1
        for col in range(cols):
            if links_level[row, col] & SOUTH:
                _open_south(out, unit_row, col // factor)
    for row in range(rows):
        for unit_col in range(unit_cols - 1):
            if links_level[row, (unit_col + 1) * factor - 1] & EAST:
                _open_east(out, row // factor, unit_col)


@jit
def _open_east(links: Links, row: int, col: int) -> None:
    """Open the wall between (row, col) and its eastern neighbour, on both sides."""
    links[row, col] |= EAST
    links[row, col + 1] |= WEST


@jit
def _open_south(links: Links, row: int, col: int) -> None:
    """Open the wall between (row, col) and its southern neighbour, on both sides."""
    links[row, col] |= SOUTH
    links[row + 1, col] |= NORTH


@jit
def _grow_tree(links: Links, top: int, left: int, bottom: int, right: int, rng: Rng) -> None:
    """Link the cells of the rectangle [top, bottom) x [left, right), all 0 before, by a random spanning tree.

    Wilson's algorithm: every spanning tree is equally likely.
    """
    root = below(rng, (bottom - top) * (right - left))
    links[top + root // (right - left), left + root % (right - left)] = _IN_TREE
    bits, unused = np.uint64(0), 0
    for start_row in range(top, bottom):
        for start_col in range(left, right):
            # Walk at random until the tree is met. A cell remembers only its last exit: that erases loops.
            row, col = start_row, start_col
            while links[row, col] < _IN_TREE:
                if unused == 0:
                    bits, unused = next_u64(rng), _DIRECTIONS_PER_DRAW
                direction = np.int64(bits & _THREE)  # 0 north, 1 east, 2 south, 3 west
                bits >>= _TWO
                unused -= 1
                to_row = int(row + (direction - 1) * (1 - (direction & 1)))
                to_col = int(col + (2 - direction) * (direction & 1))
                # Without a branch: staying put at an edge is a step like any other.
                inside = (to_row >= top) & (to_row < bottom) & (to_col >= left) & (to_col < right)
                links[row, col] = direction << _DIRECTION_SHIFT if inside else links[row, col]
                row, col = to_row if inside else row, to_col if inside else col
            # Follow the last exits and add that path to the tree.
            row, col = start_row, start_col
            while links[row, col] < _IN_TREE:
                direction = np.int64(links[row, col] >> _DIRECTION_SHIFT)
                links[row, col] = (links[row, col] & _OPEN_BITS) | _IN_TREE | (1 << direction)
                row = int(row + (direction - 1) * (1 - (direction & 1)))
                col = int(col + (2 - direction) * (direction & 1))
                links[row, col] |= 1 << (direction ^ 2)
    for row in range(top, bottom):
        for col in range(left, right):
            links[row, col] &= _OPEN_BITS


@jit
def _open_walls(links: Links, top: int, left: int, bottom: int, right: int, openings: float, rng: Rng) -> None:
    """Open each closed wall inside the rectangle [top, bottom) x [left, right) with probability `openings`.

    One draw per cell, 32 bits for either wall, and no branch on it: opening an open wall changes nothing.
    """
    if openings <= 0.0:
        return
    limit = np.uint64(min(openings, 1.0) * 4294967296.0)
    for row in range(top, bottom):
        for col in range(left, right):
            draw = next_u64(rng)
            if col + 1 < right:
                hit = (draw >> U32) < limit
                links[row, col] |= hit * EAST
                links[row, col + 1] |= hit * WEST
            if row + 1 < bottom:
                hit = (draw & _LOW_32) < limit
                links[row, col] |= hit * SOUTH
                links[row + 1, col] |= hit * NORTH


@jit
def _nested(links: Links, block: int, openings: float, rng: Rng) -> None:
    """Structure NESTED of `generate`, on `links` filled with 0."""
    grids = [links]
    factor = block
    while len(grids) == 1 or max(grids[-1].shape[0], grids[-1].shape[1]) > WIDEST_TOP:
        rows, cols = grids[-1].shape
        grids.append(np.zeros(((rows + factor - 1) // factor, (cols + factor - 1) // factor), np.uint8))
        factor = GROUP
    top = grids[-1]
    _grow_tree(top, _ZERO, _ZERO, top.shape[0], top.shape[1], rng)
    _open_walls(top, _ZERO, _ZERO, top.shape[0], top.shape[1], openings, rng)
    for level in range(len(grids) - 2, -1, -1):
        _fill_units(grids[level], block if level == 0 else GROUP, grids[level + 1], openings, rng)


@jit
def _fill_units(links: Links, factor: int, units: Links, openings: float, rng: Rng) -> None:
    """Lay out each `factor` x `factor` rectangle of `links`, all 0 before, by itself, and join them by one door per link of `units`."""
    rows, cols = links.shape
    for unit_row in range(units.shape[0]):
        top = unit_row * factor
        bottom = min(top + factor, rows)
        for unit_col in range(units.shape[1]):
            left = unit_col * factor
            right = min(left + factor, cols)
            _grow_tree(links, top, left, bottom, right, rng)
            _open_walls(links, top, left, bottom, right, openings, rng)
    # Doors come after all trees, because a tree grows in a rectangle of zeros only.
    for unit_row in range(units.shape[0]):
        top = unit_row * factor
        bottom = min(top + factor, rows)
        for unit_col in range(units.shape[1]):
            left = unit_col * factor
            right = min(left + factor, cols)
            if units[unit_row, unit_col] & EAST:
                _open_east(links, top + below(rng, bottom - top), right - 1)
            if units[unit_row, unit_col] & SOUTH:
                _open_south(links, bottom - 1, left + below(rng, right - left))


@jit
def _rooms(links: Links, block: int, openings: float, rng: Rng) -> None:
    """Structure ROOMS of `generate`, on `links` filled with 0: a binary space partition, one door per cut."""
    rows, cols = links.shape
    shortest = (block + 1) // 2
    # Depth first, a stack of pending rectangles never outgrows the number of nested cuts by more than one.
    pending = np.empty((rows + cols + 2, 4), np.int64)
    pending[0, 0], pending[0, 1], pending[0, 2], pending[0, 3] = 0, 0, rows, cols
    waiting, rooms = 1, _ZERO
    room = np.empty((rows, cols), np.int32)
    while waiting > 0:
        waiting -= 1
        top, left = pending[waiting, 0], pending[waiting, 1]
        bottom, right = pending[waiting, 2], pending[waiting, 3]
        height, width = bottom - top, right - left
        # A side above the limit is at least 2 * shortest, so that a cut leaves two rooms long enough.
        if max(height, width) <= block + below(rng, block):
            _empty_room(links, top, left, bottom, right, rooms, room)
            rooms += 1
            continue
        across = width > height
        if min(height, width) >= 2 * shortest and 2 * max(height, width) <= 3 * min(height, width):
            across = below(rng, 2) == 0  # nearly square: either way
        if across:
            cut = left + shortest + below(rng, width - 2 * shortest + 1)
            _open_east(links, top + below(rng, height), cut - 1)
            pending[waiting, 3] = cut
            pending[waiting + 1, 0], pending[waiting + 1, 1] = top, cut
        else:
            cut = top + shortest + below(rng, height - 2 * shortest + 1)
            _open_south(links, cut - 1, left + below(rng, width))
            pending[waiting, 2] = cut
            pending[waiting + 1, 0], pending[waiting + 1, 1] = cut, left
        pending[waiting + 1, 2], pending[waiting + 1, 3] = bottom, right
        waiting += 2
    if openings > 0.0:
        _extra_doors(links, room, openings, rng)


@jit
def _empty_room(links: Links, top: int, left: int, bottom: int, right: int, number: int, room: Grid) -> None:
    """Open all walls inside the rectangle [top, bottom) x [left, right) and write its number into `room`."""
    for row in range(top, bottom):
        for col in range(left, right):
            room[row, col] = number
            if col + 1 < right:
                _open_east(links, row, col)
            if row + 1 < bottom:
                _open_south(links, row, col)


@jit
def _extra_doors(links: Links, room: Grid, openings: float, rng: Rng) -> None:
    """Give each pair of rooms that shares a wall and no door one door with probability `openings`.

    Rooms are rectangles, so a pair shares one straight wall at most: a run of cells along one grid line.
    """
    rows, cols = links.shape
    for row in range(rows - 1):
        first = 0
        while first < cols:
            above, under = room[row, first], room[row + 1, first]
            door, end = False, first
            while end < cols and room[row, end] == above and room[row + 1, end] == under:
                door = door or links[row, end] & SOUTH != 0
                end += 1
            if above != under and not door and uniform(rng) < openings:
                _open_south(links, row, first + below(rng, end - first))
            first = end
    for col in range(cols - 1):
        first = 0
        while first < rows:
            here, beside = room[first, col], room[first, col + 1]
            door, end = False, first
            while end < rows and room[end, col] == here and room[end, col + 1] == beside:
                door = door or links[end, col] & EAST != 0
                end += 1
            if here != beside and not door and uniform(rng) < openings:
                _open_east(links, first + below(rng, end - first), col)
            first = end


@jit
def _obstacles(links: Links, openings: float, rng: Rng) -> None:
    """Structure OPEN of `generate`, on `links` filled with 0."""
    rows, cols = links.shape
    free = np.zeros((rows + 1, cols + 1), np.uint8)
    for row in range(rows):
        for col in range(cols):
            free[row, col] = uniform(rng) >= openings
    for row in range(rows):
        for col in range(cols):
            east, south = free[row, col] & free[row, col + 1], free[row, col] & free[row + 1, col]
            links[row, col] |= east * EAST | south * SOUTH
            if east:
                links[row, col + 1] |= WEST
            if south:
                links[row + 1, col] |= NORTH

    width = cols + 2
    grid = _padded(links)
    steps = np.full(grid.size, -1, np.int32)
    queue = np.empty(rows * cols + 1, np.int32)
    parts, largest, size = 0, _ZERO, 0
    for row in range(rows):
        for col in range(cols):
            cell = (row + 1) * width + col + 1
            if grid[cell] != 0 and steps[cell] < 0:
                reached = _spread(grid, width, cell, steps, queue)
                parts += 1
                if reached > size:
                    largest, size = cell, reached
    if parts > 1:
        steps[:] = -1
        _spread(grid, width, largest, steps, queue)
        for row in range(rows):
            for col in range(cols):
                if steps[(row + 1) * width + col + 1] < 0:
                    links[row, col] = 0
    elif parts == 0 and rows * cols > 1:
        # Nothing is connected: open one wall, drawn uniformly from all of them.
        wall = below(rng, rows * (cols - 1) + (rows - 1) * cols)
        if wall < rows * (cols - 1):
            _open_east(links, wall // (cols - 1), wall % (cols - 1))
        else:
            wall -= rows * (cols - 1)
            _open_south(links, wall // cols, wall % cols)


@jit
def _padded(links: Links) -> Links:
    """Copy of `links` with a border of blocked cells, flattened: uint8 ((rows + 2) * (cols + 2),).

    The border spares searches the test for the grid's edge.
    """
    rows, cols = links.shape
    width = cols + 2
    grid = np.zeros((rows + 2) * width, np.uint8)
    for row in range(rows):
        for col in range(cols):
            grid[(row + 1) * width + col + 1] = links[row, col]
    return grid


@jit
def _spread(grid: Links, width: int, start: int, steps: Flat, queue: Flat) -> int:
    """Breadth-first search from cell `start` of a padded grid of row length `width` (see `_padded`).

    `steps` is int32, one per padded cell, negative where nothing was yet: it receives the steps from the
    start. `queue` is int32 with room for one more than the reachable cells: it receives them, nearest first.
    Returns how many they are.
    """
    queue[0] = start
    steps[start] = 0
    head, tail = 0, 1
    while head < tail:
        cell = np.int64(queue[head])
        head += 1
        bits, next_step = np.int64(grid[cell]), steps[cell] + 1
        # No branch, because openings are random: write each neighbour to the queue's end, keep some.
        for side in range(4):
            to = cell + (side - 1) * (1 - (side & 1)) * width + (2 - side) * (side & 1)
            found = ((bits >> side) & 1) & (steps[to] < 0)
            steps[to] = next_step if found else steps[to]
            queue[tail] = to
            tail += found
    return tail
