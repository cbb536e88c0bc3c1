"""Properties of the maze generators and grid searches, checked against plain Python on random cases."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rao_envs.maze.generator import (
    DEFAULT_OPENINGS,
    EAST,
    GROUP,
    NESTED,
    NORTH,
    OPEN,
    PERFECT,
    ROOMS,
    SOUTH,
    STRUCTURES,
    WEST,
    WIDEST_TOP,
    coarsen,
    components,
    default_distance,
    distances,
    generate,
    place,
)

Links = npt.NDArray[np.uint8]
Cell = tuple[int, int]

MOVES = ((NORTH, SOUTH, -1, 0), (EAST, WEST, 0, 1), (SOUTH, NORTH, 1, 0), (WEST, EAST, 0, -1))

sides = st.integers(1, 24)
seeds = st.integers(0, 2**64 - 1)
blocks = st.integers(1, 9)
chances = st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0])
structures = st.sampled_from(sorted(STRUCTURES.values()))


def stream(seed: int) -> npt.NDArray[np.uint64]:
    return np.array([seed], np.uint64)


def maze(rows: int, cols: int, structure: int, block: int, openings: float, seed: int) -> Links:
    links = np.full((rows, cols), 255, np.uint8)  # leftovers of an earlier maze must not matter
    generate(links, structure, block, openings, stream(seed))
    return links


def neighbours(links: Links, cell: Cell) -> Iterator[Cell]:
    row, col = cell
    for bit, _, down, right in MOVES:
        if links[row, col] & bit:
            yield row + down, col + right


def search(links: Links, start: Cell) -> dict[Cell, int]:
    """Steps to every cell that can be reached."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for other in neighbours(links, cell):
            if other not in steps:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps


def doors(links: Links) -> int:
    """Openings, each counted once."""
    return int(np.count_nonzero(links & EAST) + np.count_nonzero(links & SOUTH))


def assert_consistent(links: Links) -> None:
    rows, cols = links.shape
    assert links.max(initial=0) < 16
    for row in range(rows):
        for col in range(cols):
            for bit, opposite, down, right in MOVES:
                if links[row, col] & bit:
                    assert 0 <= row + down < rows
                    assert 0 <= col + right < cols
                    assert links[row + down, col + right] & opposite


def free_cells(links: Links) -> list[Cell]:
    return [(int(row), int(col)) for row, col in np.argwhere(links)]


def from_free(free: npt.NDArray[np.bool_]) -> Links:
    links = np.zeros(free.shape, np.uint8)
    for row, col in np.argwhere(free):
        for bit, _, down, right in MOVES:
            at = (row + down, col + right)
            if 0 <= at[0] < free.shape[0] and 0 <= at[1] < free.shape[1] and free[at]:
                links[row, col] |= bit
    return links


@st.composite
def any_links(draw: st.DrawFn) -> Links:
    """Grids in several parts, with cells that nothing reaches."""
    rows, cols = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return from_free(random.random((rows, cols)) < draw(st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])))


class TestGenerate:
    @given(sides, sides, structures, blocks, chances, seeds)
    def test_openings_agree_and_stay_inside(self, rows: int, cols: int, structure: int, block: int, openings: float, seed: int) -> None:
        assert_consistent(maze(rows, cols, structure, block, openings, seed))

    @given(sides, sides, st.sampled_from([NESTED, PERFECT, ROOMS]), blocks, chances, seeds)
    def test_every_cell_is_reachable(self, rows: int, cols: int, structure: int, block: int, openings: float, seed: int) -> None:
        links = maze(rows, cols, structure, block, openings, seed)
        assert len(search(links, (0, 0))) == rows * cols

    @given(sides, sides, structures, blocks, chances, seeds)
    def test_same_stream_same_maze_and_the_stream_advances(
        self, rows: int, cols: int, structure: int, block: int, openings: float, seed: int
    ) -> None:
        first, second = stream(seed), stream(seed)
        links, again = np.empty((2, rows, cols), np.uint8)
        generate(links, structure, block, openings, first)
        generate(again, structure, block, openings, second)
        np.testing.assert_array_equal(links, again)
        assert first[0] == second[0] != seed

    @pytest.mark.parametrize("structure", [NESTED, PERFECT, ROOMS, OPEN])
    def test_mazes_of_one_stream_differ(self, structure: int) -> None:
        random, links = stream(3), np.empty((100, 20, 20), np.uint8)
        for index in range(100):
            generate(links[index], structure, 5, 0.2, random)
        assert len({maze.tobytes() for maze in links}) == 100

    @given(sides, sides, blocks, seeds)
    def test_perfect_is_a_spanning_tree_whatever_the_block(self, rows: int, cols: int, block: int, seed: int) -> None:
        links = maze(rows, cols, PERFECT, block, 0.0, seed)
        assert doors(links) == rows * cols - 1
        np.testing.assert_array_equal(links, maze(rows, cols, PERFECT, block + 1, 0.0, seed))

    @given(sides, sides, blocks, seeds)
    def test_nested_without_openings_is_a_tree_of_trees(self, rows: int, cols: int, block: int, seed: int) -> None:
        links = maze(rows, cols, NESTED, block, 0.0, seed)
        assert doors(links) == rows * cols - 1
        between = self.doors_between_units(links, block)
        assert set(between.values()) <= {1}
        assert len(between) == -(-rows // block) * -(-cols // block) - 1
        for top in range(0, rows, block):  # each block is connected inside
            for left in range(0, cols, block):
                inside = self.cut_out(links, top, left, block)
                assert len(search(inside, (0, 0))) == inside.size

    @given(sides, sides, blocks, chances, seeds)
    def test_nested_has_one_door_at_most_between_blocks(self, rows: int, cols: int, block: int, openings: float, seed: int) -> None:
        between = self.doors_between_units(maze(rows, cols, NESTED, block, openings, seed), block)
        assert set(between.values()) <= {1}
        units_down, units_right = -(-rows // block), -(-cols // block)
        if openings == 1.0 and max(units_down, units_right) <= WIDEST_TOP:
            assert len(between) == units_down * (units_right - 1) + (units_down - 1) * units_right

    @pytest.mark.parametrize("structure", [NESTED, PERFECT])
    def test_openings_open_that_share_of_the_closed_walls(self, structure: int) -> None:
        n = 200 if structure == PERFECT else 80
        closed = maze(n, n, structure, 10, 0.0, 7)
        opened = maze(n, n, structure, 10, 0.4, 7)
        if structure == PERFECT:  # the stream's tree is the same
            np.testing.assert_array_equal(closed & opened, closed)
        walls = 2 * n * (n - 1) if structure == PERFECT else 64 * 180  # inner ones
        trees = n * n - 1 if structure == PERFECT else 64 * 99
        extra = doors(opened) - (n * n - 1)
        if structure == NESTED:
            between = self.doors_between_units(opened, 10)
            extra -= len(between) - 63
            assert (len(between) - 63) / (112 - 63) == pytest.approx(0.4, abs=0.2)
        assert extra / (walls - trees) == pytest.approx(0.4, abs=0.02)

    @given(blocks, chances, seeds)
    def test_nested_units_of_every_level_are_connected_inside(self, block: int, openings: float, seed: int) -> None:
        links = maze(9 * block, 9 * block, NESTED, block, openings, seed)  # 9 blocks: groups of 4, 4 and 1
        group = GROUP * block
        for top in range(0, 9 * block, group):
            for left in range(0, 9 * block, group):
                inside = self.cut_out(links, top, left, group)
                assert len(search(inside, (0, 0))) == inside.size

    def test_every_spanning_tree_is_equally_likely(self) -> None:
        random = stream(11)
        counts: Counter[bytes] = Counter()
        links = np.empty((2, 3), np.uint8)
        for _ in range(15_000):
            generate(links, PERFECT, 5, 0.0, random)
            counts[links.tobytes()] += 1
        assert len(counts) == 15  # the spanning trees of the 2 x 3 grid
        assert min(counts.values()) > 850  # expected 1,000, standard deviation 31
        assert max(counts.values()) < 1150

    @pytest.mark.parametrize("structure", [NESTED, PERFECT, ROOMS, OPEN])
    def test_no_direction_is_favoured(self, structure: int) -> None:
        links = maze(600, 600, structure, 5, DEFAULT_OPENINGS[("nested", "perfect", "rooms", "open")[structure]], 3)
        assert np.count_nonzero(links & EAST) / np.count_nonzero(links & SOUTH) == pytest.approx(1.0, abs=0.03)

    @given(st.integers(2, 24), st.integers(2, 24), st.integers(3, 9), seeds)
    def test_rooms_are_rectangles_joined_as_a_tree(self, rows: int, cols: int, block: int, seed: int) -> None:
        links = maze(rows, cols, ROOMS, block, 0.0, seed)
        number, inside = self.rooms(links)
        count = int(number.max()) + 1
        for room in range(count):
            cells = np.argwhere(number == room)
            height, width = cells.max(axis=0) - cells.min(axis=0) + 1
            assert len(cells) == height * width
            assert max(height, width) <= 2 * block - 1
            assert height >= min((block + 1) // 2, rows)
            assert width >= min((block + 1) // 2, cols)
        neighbours_in_one_room = np.count_nonzero(number[:, 1:] == number[:, :-1])
        neighbours_in_one_room += np.count_nonzero(number[1:] == number[:-1])
        assert doors(inside) == neighbours_in_one_room
        assert doors(links) == neighbours_in_one_room + count - 1

    @given(st.integers(2, 24), st.integers(2, 24), st.integers(3, 9), seeds)
    def test_rooms_with_all_openings_have_one_door_per_shared_wall(self, rows: int, cols: int, block: int, seed: int) -> None:
        # The draws for the extra doors come last, so the rooms are those of the maze without.
        number, _ = self.rooms(maze(rows, cols, ROOMS, block, 0.0, seed))
        links = maze(rows, cols, ROOMS, block, 1.0, seed)
        between: Counter[frozenset[int]] = Counter()
        walls: set[frozenset[int]] = set()
        for bit, one, other, open_ in (
            (EAST, number[:, :-1], number[:, 1:], links[:, :-1]),
            (SOUTH, number[:-1], number[1:], links[:-1]),
        ):
            for first, second, bits in zip(one.flat, other.flat, open_.flat, strict=True):
                if first != second:
                    walls.add(frozenset((first, second)))
                    between[frozenset((first, second))] += bool(bits & bit)
        assert between == dict.fromkeys(walls, 1)

    def test_rooms_are_not_aligned_to_blocks(self) -> None:
        cuts = set()
        for seed in range(50):
            number, _ = self.rooms(maze(20, 20, ROOMS, 5, 0.0, seed))
            cuts |= {int(col) % 5 for _, col in np.argwhere(number[:, 1:] != number[:, :-1])}
        assert cuts == set(range(5))

    @given(sides, sides, chances, seeds)
    def test_open_is_one_part_of_free_cells(self, rows: int, cols: int, openings: float, seed: int) -> None:
        links = maze(rows, cols, OPEN, 5, openings, seed)
        cells = free_cells(links)
        assert len(cells) >= min(2, rows * cols) if rows * cols > 1 else not cells
        if cells:
            assert set(search(links, cells[0])) == set(cells)
        if 0.0 < openings < 1.0 and len(cells) > 2:  # no walls between free cells
            np.testing.assert_array_equal(links, from_free(links > 0))
        if openings == 0.0 and rows * cols > 1:
            assert len(cells) == rows * cols
        if openings == 1.0 and rows * cols > 1:
            assert len(cells) == 2

    def test_open_keeps_the_largest_part_and_the_asked_share(self) -> None:
        links = maze(300, 300, OPEN, 5, 0.2, 5)
        assert np.count_nonzero(links) / links.size == pytest.approx(0.8, abs=0.02)
        sizes = [np.count_nonzero(maze(12, 12, OPEN, 5, 0.5, seed)) for seed in range(200)]
        assert np.mean(sizes) > 15  # a part drawn at random would be far smaller

    def test_defaults_cover_every_structure(self) -> None:
        assert STRUCTURES.keys() == DEFAULT_OPENINGS.keys()
        assert sorted(STRUCTURES.values()) == [NESTED, PERFECT, ROOMS, OPEN]

    @pytest.mark.parametrize("structure", [-1, 4])
    def test_unknown_structure(self, structure: int) -> None:
        with pytest.raises(ValueError, match=r"NESTED \(0\), PERFECT \(1\), ROOMS \(2\) or OPEN \(3\)"):
            maze(5, 5, structure, 5, 0.0, 0)

    @pytest.mark.parametrize("block", [0, -3])
    def test_a_block_is_at_least_one_cell(self, block: int) -> None:
        np.testing.assert_array_equal(maze(7, 9, NESTED, block, 0.2, 1), maze(7, 9, NESTED, 1, 0.2, 1))

    @pytest.mark.parametrize("structure", [NESTED, PERFECT, ROOMS, OPEN])
    @pytest.mark.parametrize("shape", [(1024, 1024), (1, 4096), (4096, 1)])
    def test_large_grids(self, structure: int, shape: Cell) -> None:
        links = maze(*shape, structure, 5, 0.0 if structure == OPEN else 0.2, 2)
        parts = np.empty(shape, np.int32)
        assert components(links, parts) == 1
        assert parts.min() == parts.max() == 0

    @staticmethod
    def cut_out(links: Links, top: int, left: int, side: int) -> Links:
        """A block on its own: openings that leave it are closed."""
        part = links[top : top + side, left : left + side].copy()
        part[0] &= ~np.uint8(NORTH)
        part[-1] &= ~np.uint8(SOUTH)
        part[:, 0] &= ~np.uint8(WEST)
        part[:, -1] &= ~np.uint8(EAST)
        return part

    @staticmethod
    def doors_between_units(links: Links, side: int) -> Counter[tuple[Cell, Cell]]:
        between: Counter[tuple[Cell, Cell]] = Counter()
        for bit, down, right in ((EAST, 0, 1), (SOUTH, 1, 0)):
            for row, col in np.argwhere(links & bit):
                one, other = (row // side, col // side), ((row + down) // side, (col + right) // side)
                between[one, other] += one != other
        return +between

    @staticmethod
    def rooms(links: Links) -> tuple[npt.NDArray[np.int_], Links]:
        """Each cell's room and the openings inside rooms, read off a ROOMS maze whose rooms form a tree.

        Rooms of two cells or more each way: an opening inside a room is a side of four cells open all around,
        a door never is.
        """
        rows, cols = links.shape
        inside = np.zeros_like(links)
        for row, col in np.ndindex(rows - 1, cols - 1):
            east, south = links[row, col] & EAST, links[row, col] & SOUTH
            if east and south and links[row + 1, col] & EAST and links[row, col + 1] & SOUTH:
                inside[row, col] |= EAST | SOUTH
                inside[row, col + 1] |= WEST | SOUTH
                inside[row + 1, col] |= NORTH | EAST
                inside[row + 1, col + 1] |= NORTH | WEST
        number = np.full((rows, cols), -1)
        for cell in np.ndindex(rows, cols):
            if number[cell] < 0:
                following = number.max() + 1
                for other in search(inside, cell):
                    number[other] = following
        return number, inside


class TestPlace:
    @given(any_links(), seeds, st.integers(-1, 30))
    def test_in_any_maze(self, links: Links, seed: int, asked: int) -> None:
        before = links.copy()
        random, again = stream(seed), stream(seed)
        *ends, goal_row, goal_col = place(links, random, asked)
        assert (*ends, goal_row, goal_col) == place(links, again, asked)
        np.testing.assert_array_equal(links, before)
        if not links.any():
            assert (*ends, goal_row, goal_col) == (-1, -1, -1, -1)
            return
        start, goal = (ends[0], ends[1]), (goal_row, goal_col)
        reached = search(links, start)
        assert links[start]
        assert goal in reached
        assert goal != start
        least = default_distance(*links.shape) if asked < 0 else asked
        span = {cell: abs(cell[0] - start[0]) + abs(cell[1] - start[1]) for cell in reached}
        assert span[goal] >= min(least, max(span.values()))
        if max(span.values()) < least:  # the fallback: among the farthest, the longest way
            ways = [reached[cell] for cell in reached if span[cell] == max(span.values())]
            assert reached[goal] == max(ways)

    def test_start_and_goal_are_uniform(self) -> None:
        links = from_free(np.array([[1, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1]], bool))
        random = stream(5)
        pairs = Counter(place(links, random, 1) for _ in range(12_000))
        # Seven cells with a neighbour; (0, 4) has none. Two goals from each of the three in a row, else one.
        starts: Counter[Cell] = Counter()
        for (row, col, _, _), count in pairs.items():
            starts[row, col] += count
        assert sorted(starts) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 3), (2, 4)]
        assert min(starts.values()) > 1550  # expected 1,714, standard deviation 38
        assert max(starts.values()) < 1880
        assert pairs[0, 0, 0, 1] / starts[0, 0] == pytest.approx(0.5, abs=0.06)

    def test_one_cell(self) -> None:
        assert place(np.zeros((1, 1), np.uint8), stream(1), -1) == (-1, -1, -1, -1)

    @pytest.mark.parametrize(("shape", "least"), [((20, 20), 14), ((1, 2), 1), ((5, 5), 4), ((10, 21), 11)])
    def test_default_distance(self, shape: Cell, least: int) -> None:
        assert default_distance(*shape) == least


class TestSearches:
    @given(any_links(), st.data())
    def test_distances(self, links: Links, data: st.DataObject) -> None:
        rows, cols = links.shape
        goal = (data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1)))
        steps = np.full((rows, cols), 99, np.int32)
        distances(links, *goal, steps)
        reached = search(links, goal)
        for cell in np.ndindex(rows, cols):
            assert steps[cell] == reached.get(cell, -1)

    @pytest.mark.parametrize("goal", [(-1, 0), (0, -1), (3, 0), (0, 4)])
    def test_nothing_reaches_a_goal_outside(self, goal: Cell) -> None:
        steps = np.zeros((3, 4), np.int32)
        distances(from_free(np.ones((3, 4), bool)), *goal, steps)
        assert (steps == -1).all()

    @given(any_links())
    def test_components(self, links: Links) -> None:
        parts = np.full(links.shape, 99, np.int32)
        count = components(links, parts)
        np.testing.assert_array_equal(parts >= 0, links > 0)
        seen: list[int] = []
        for cell in free_cells(links):
            if parts[cell] not in seen:
                seen.append(int(parts[cell]))
                assert {cell for cell in free_cells(links) if parts[cell] == seen[-1]} == set(search(links, cell))
        assert seen == list(range(count))

    @given(sides, sides, structures, chances, st.integers(1, 7), seeds)
    def test_coarsen(self, rows: int, cols: int, structure: int, openings: float, factor: int, seed: int) -> None:
        links = maze(rows, cols, structure, 5, openings, seed)
        units = np.full((-(-rows // factor), -(-cols // factor)), 255, np.uint8)
        coarsen(links, factor, units)
        assert_consistent(units)
        between = TestGenerate.doors_between_units(links, factor)
        linked = {
            ((row, col), (row + down, col + right))
            for bit, down, right in ((EAST, 0, 1), (SOUTH, 1, 0))
            for row, col in np.argwhere(units & bit).tolist()
        }
        assert linked == set(between)
