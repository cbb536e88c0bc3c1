"""Where an expression tree's nodes stand in a picture of limited size, and which of them are folded away. Geometry only."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from typing import NamedTuple

from rao_envs.algebra.tree import NO_NODE, Tree, sizes

STRIDE = 3  # levels by which the focus moves: folds change now and then instead of at every step of the cursor
OUTSIDE, DONE = 3, 12  # levels by which nodes outside the acting frame, and those whose value is there, count as farther away
BELOW = 2  # levels that stay in sight below the cursor of a tree that is too deep for the picture


class Family(NamedTuple):
    """A tree's relations as plain lists, by node."""

    operands: list[tuple[int, ...]]
    parent: list[int]  # NO_NODE for the root
    level: list[int]  # 0 for the root
    size: list[int]  # nodes of the sub-tree


class Plan(NamedTuple):
    """Which nodes are shown, and where."""

    top: int  # the highest node shown
    opened: frozenset[int]  # shown nodes whose operands are shown too
    x: dict[int, float]  # middle of each shown node, in [0, width]; its keys, in pre-order, are the shown nodes
    rows: int  # levels shown


def family(tree: Tree) -> Family:
    """The relations of `tree`."""
    operands: list[tuple[int, ...]] = []
    parent, level = [NO_NODE] * len(tree.op), [0] * len(tree.op)
    for node, pair in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        below = tuple(child for child in pair if child != NO_NODE)
        operands.append(below)
        for child in below:
            parent[child], level[child] = node, level[node] + 1
    return Family(operands, parent, level, sizes(tree).tolist())


def way_up(kin: Family, node: int) -> list[int]:
    """`node` and all above it, the root last."""
    way = [node]
    while kin.parent[way[-1]] != NO_NODE:
        way.append(kin.parent[way[-1]])
    return way


def within(kin: Family, node: int, root: int) -> bool:
    """Whether `node` belongs to the sub-tree of `root`."""
    return root <= node < root + kin.size[root]


def first_level(level: int, deepest: int, rows: int) -> int:
    """The highest level to show when only `rows` fit: 0 as long as all do, then far enough down that the cursor's `level` is in sight."""
    if deepest < rows:
        return 0
    lowest = level + BELOW + 1 - rows
    return max(0, min(-(-lowest // STRIDE) * STRIDE, level))


def choose(
    kin: Family,
    cursor: int,
    frame: int,
    settled: Collection[int],
    rows: int,
    grow: Callable[[int, bool], bool],
) -> tuple[int, frozenset[int]]:
    """Choose the nodes to open: those on the way to the cursor always, others by their distance from it, as long as they fit.

    Args:
        kin: the tree.
        cursor: the node in focus.
        frame: the root of the sub-tree at work; what lies outside opens later.
        settled: nodes whose operands are no longer needed; they open later still.
        rows: levels that fit, at least 2.
        grow: asked to open a node; it says whether that fits, and makes room if so (or if its second argument says that it must).

    Returns:
        The highest node shown, and all nodes that are open.
    """
    way = way_up(kin, cursor)[::-1]
    top_level = first_level(len(way) - 1, max(kin.level), rows)
    top = way[top_level]
    anchor = min(len(way) - 1, -(-(len(way) - 1) // STRIDE) * STRIDE)
    opened: set[int] = set()
    waiting: list[tuple[int, int]] = []

    def open_up(node: int, distance: int, must: bool) -> None:
        if not kin.operands[node] or kin.level[node] - top_level >= rows - 1 or not grow(node, must):
            return
        opened.add(node)
        for child in kin.operands[node]:
            if child not in on_way:
                late = OUTSIDE * (not within(kin, child, frame)) + DONE * (child in settled)
                heapq.heappush(waiting, (distance + 1 + late, child))

    on_way = set(way)
    for node in way[top_level:]:
        open_up(node, abs(kin.level[node] - anchor), True)
    while waiting:
        distance, node = heapq.heappop(waiting)
        open_up(node, distance, False)
    return top, frozenset(opened)


def arrange(
    kin: Family,
    width: Callable[[int], float],
    cursor: int,
    frame: int,
    settled: Collection[int],
    area: tuple[float, int],
    gap: float,
) -> Plan:
    """Place the tree so that every sub-tree has an interval of its own: their bounding boxes nest and never cross.

    Args:
        kin: the tree.
        width: the room that a node needs by itself.
        cursor: the node in focus.
        frame: the root of the sub-tree at work.
        settled: nodes whose operands are no longer needed.
        area: the width, and how many rows fit.
        gap: room between neighbours, at least.
    """
    room: dict[int, float] = {}  # of each sub-tree as opened so far
    opened: set[int] = set()

    def needed(node: int) -> float:
        below = kin.operands[node]
        return max(width(node), sum(room.setdefault(child, width(child)) for child in below) + gap * (len(below) - 1))

    def grow(node: int, must: bool) -> bool:
        before: list[tuple[int, float]] = []
        opened.add(node)
        at = node
        while at in opened:
            before.append((at, room.setdefault(at, width(at))))
            room[at] = needed(at)
            if kin.parent[at] == NO_NODE:
                break
            at = kin.parent[at]
        if not must and room[before[-1][0]] > area[0]:
            opened.discard(node)
            room.update(before)
            return False
        return True

    top, chosen = choose(kin, cursor, frame, settled, area[1], grow)
    room.setdefault(top, width(top))
    stretch = min(area[0] / room[top], 1.9)
    x: dict[int, float] = {}
    starts = {top: (area[0] - room[top] * stretch) / 2}
    pending = [top]
    lowest = kin.level[top]
    while pending:
        node = pending.pop()
        lowest = max(lowest, kin.level[node])
        x[node] = starts[node] + room[node] * stretch / 2
        if node in chosen:
            below = kin.operands[node]
            used = sum(room[child] for child in below) + gap * (len(below) - 1)
            start = starts[node] + (room[node] - used) * stretch / 2
            for child in below:
                starts[child] = start
                start += (room[child] + gap) * stretch
            pending += reversed(below)
    for node in reversed(x):  # a parent stands in the middle between its operands
        if node in chosen:
            below = kin.operands[node]
            side = width(node) / 2
            most = starts[node] + room[node] * stretch - side
            x[node] = max(starts[node] + side, min((x[below[0]] + x[below[-1]]) / 2, most))
    return Plan(top, chosen, x, lowest - kin.level[top] + 1)
