"""People's own mazes (text, files, arrays, Moving AI benchmark maps and scenarios), read into a `Layout`.

The Moving AI formats are those of Sturtevant 2012, "Benchmarks for grid-based pathfinding". Their `S` and `G`
are terrain, where plain text marks start and goal by them: only a text that begins with their header is read
their way. Their optimal lengths allow diagonal steps and ours do not, so these are not kept; a diagonal step
needs both cells beside it free, hence the same cells are reachable.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rao_envs.core.arguments import quoted_path
from rao_envs.maze.generator import EAST, NORTH, SOUTH, WEST, components

LayoutSource: TypeAlias = "str | os.PathLike[str] | Sequence[str] | Sequence[Sequence[int]] | npt.NDArray[Any]"
Pair: TypeAlias = "tuple[tuple[int, int], tuple[int, int]]"
ScenarioSource: TypeAlias = "str | os.PathLike[str] | Sequence[Pair] | npt.NDArray[Any]"

MAX_SIDE = 4096  # rows or columns
MAX_FILE_BYTES = 128 * 1024 * 1024  # far above any map of that size

FREE, WALL, START, GOAL = 0, 1, 2, 3  # the values of a maze given as an array
_UNKNOWN = 255

_WALLS = dict.fromkeys("@OTW", WALL)
_TEXT = {" ": FREE, ".": FREE, "#": WALL, "S": START, "G": GOAL} | _WALLS
_TERRAIN = {" ": FREE, ".": FREE, "S": FREE, "G": FREE} | _WALLS
_TEXT_ALLOWED = "allowed: 'S' start, 'G' goal, '.' or ' ' free, '#', '@', 'O', 'T' or 'W' wall"
_TERRAIN_ALLOWED = "allowed in a Moving AI map: '.', 'G', 'S' or ' ' passable, '@', 'O', 'T' or 'W' blocked"
_VALUES_ALLOWED = "allowed: 0 or False free, 1 or True wall, 2 start, 3 goal"
_HEADER = "a Moving AI map begins with the lines 'type octile', 'height <rows>', 'width <columns>' and 'map'"
_FIELDS = "bucket, map, width, height, start x, start y, goal x, goal y, optimal length"
_PAIRS = "expected pairs of integers ((row, column), (row, column)), start and goal, counted from 0"


class LayoutError(ValueError):
    """A maze or scenario that cannot be used. The message says where, what is wrong and what is allowed."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A fixed maze with its tasks.

    Do not write to the arrays: environments may share them. (They are not locked, because Numba compiles
    every kernel once more for locked arrays.)

    Attributes:
        links: uint8 (rows, cols), open directions per cell, as in `rao_envs.maze.generator`.
        starts: int32 (K, 2), row and column of each scenario's start, from 0; K = 0: drawn at every reset.
        goals: int32 (K, 2), likewise; each can be reached from its start and differs from it.
        name: the file's name without its ending, or "text" or "array".
    """

    links: npt.NDArray[np.uint8]  # (rows, cols)
    starts: npt.NDArray[np.int32]  # (K, 2)
    goals: npt.NDArray[np.int32]  # (K, 2)
    name: str


@dataclass(frozen=True, eq=False)
class _Map:
    """A maze as it was read, before its tasks are checked."""

    cells: npt.NDArray[np.uint8]  # (rows, cols), each FREE, WALL, START or GOAL
    name: str
    where: str  # what messages call the source
    base: int  # what messages count its rows and columns from
    needs_marks: bool  # plain text must mark a start and a goal
    allowed: str  # what its cells may be, for messages


@dataclass(frozen=True, eq=False)
class _Tasks:
    """Starts and goals as they were read, before they are checked."""

    pairs: npt.NDArray[np.int64]  # (K, start or goal, row or column), from 0
    where: list[str]  # what messages call each of the K
    base: int  # what messages count rows and columns from


def load_layout(layout: LayoutSource, scenarios: ScenarioSource | None = None) -> Layout:
    """Read a maze and, if there are any, its scenarios (pairs of start and goal).

    Args:
        layout: one of these.
            Text (a string with line breaks, or a sequence of rows): '.' and ' ' are free, '#', '@', 'O', 'T'
            and 'W' are walls, one cell is the start 'S' and one the goal 'G' (none of both with `scenarios`).
            Empty lines before and after the maze are skipped; inside it every character counts, spaces too.
            Text with a Moving AI header ('type octile' and so on): '.', 'G', 'S' and ' ' are passable, '@',
            'O', 'T' and 'W' are blocked.
            A path (path-like, or a string without line breaks) of a UTF-8 file with either, or of a `.npy`
            file.
            A 2-D array or nested sequences: bool (True = wall) or int (0 free, 1 wall, 2 start, 3 goal).
        scenarios: the path of a Moving AI `.scen` file (or its text); or pairs of start and goal, each
            ((row, column), (row, column)) counted from 0, also as an integer array (K, 2, 2). Scenarios of a
            file that start on their goal ask for nothing: they are left out, with a warning.

    Returns:
        The layout. Moving AI maps, and arrays without start and goal, have no scenarios (K = 0) unless given.

    Raises:
        LayoutError: ragged rows, unknown characters or values, a start or goal that is missing, doubled,
            outside the map or on a wall, start and goal in one cell or without a path between them, no room
            for any pair, a header that does not fit its map, a truncated file, scenarios of a map of another
            size, nothing at all, more than 4096 rows or columns, another type than those above, a file that
            is missing, not regular, unreadable or not UTF-8. Where it applies the message names row and
            column, and whether they count from 1 (text) or from 0 (arrays and scenarios).

    Warns:
        UserWarning: scenarios were left out, or name a map (of the same size) that is called otherwise.
    """
    source = _read_map(layout)
    walls = source.cells == WALL
    links = _link(~walls)
    tasks = _marks(source, required=source.needs_marks and scenarios is None)
    if scenarios is not None:
        if len(tasks.pairs) > 0:
            raise LayoutError(f"{source.where}: marks a start and a goal itself: leave out those or the scenarios")
        tasks = _read_scenarios(scenarios, source)
    elif not links.any():
        raise LayoutError(f"{source.where}: no two neighbouring cells are free, so there is nowhere to go")
    _check(tasks, walls, links)
    starts, goals = (np.ascontiguousarray(tasks.pairs[:, end], np.int32) for end in (0, 1))
    return Layout(links, starts, goals, source.name)


def _read_map(layout: object) -> _Map:
    """Find out what `layout` is and read its cells."""
    if isinstance(layout, str) and ("\n" in layout or "\r" in layout):
        return _parse_map(layout, "text", "text")
    if isinstance(layout, (str, os.PathLike)):
        path = _file(layout, "text needs a line break to be taken for a maze; a maze of one row goes in a list")
        if path.suffix.lower() == ".npy":
            return _array_map(_read_npy(path), path.stem, path.name)
        return _parse_map(_read_text(path), path.stem, path.name)
    if isinstance(layout, (bytes, bytearray)):
        raise LayoutError("the layout is bytes; decode them to text first")
    if isinstance(layout, (list, tuple)) and layout and all(isinstance(row, str) for row in layout):
        return _parse_map("\n".join(str(row).rstrip("\r\n") for row in layout), "text", "text")
    try:
        array = np.asarray(layout)
    except ValueError:  # NumPy's word for nested sequences of unequal lengths
        raise LayoutError(_ragged(layout)) from None
    return _array_map(array, "array", "array")


def _parse_map(text: str, name: str, where: str) -> _Map:
    """Read the cells of a text."""
    lines = _lines(text)
    skipped = 0
    while skipped < len(lines) and not lines[skipped]:
        skipped += 1
    if skipped == len(lines):
        raise LayoutError(f"{where}: empty; {_TEXT_ALLOWED}")
    first_word = (lines[skipped].split() or [""])[0]
    if first_word == "version":
        raise LayoutError(f"{where}: a scenario file; give its map as `layout` and the file as `scenarios`")
    if first_word in ("type", "height", "width", "map"):
        height, width, skipped = _parse_header(lines, skipped, where)
        rows = lines[skipped:]
        if len(rows) != height:
            guess = "is the file truncated?" if len(rows) < height else f"line {skipped + height + 1} is too many"
            raise LayoutError(f"{where}: the header says height {height} but {len(rows)} rows follow; {guess}")
        cells = _parse_cells(rows, width, "the header says width", skipped, _TERRAIN, _TERRAIN_ALLOWED, where)
        return _Map(cells, name, where, 1, needs_marks=False, allowed=_TERRAIN_ALLOWED)
    rows = lines[skipped:]
    _check_size(len(rows), max(map(len, rows)), where)
    cells = _parse_cells(rows, len(rows[0]), "row 1 has", skipped, _TEXT, _TEXT_ALLOWED, where)
    return _Map(cells, name, where, 1, needs_marks=True, allowed=_TEXT_ALLOWED)


def _parse_header(lines: list[str], first: int, where: str) -> tuple[int, int, int]:
    """Height, width and index of the first row of a Moving AI map whose header begins at index `first`."""
    header: dict[str, str] = {}
    row = first
    for row, line in enumerate(lines[first : first + 4], first + 1):
        words = line.split()
        if words == ["map"]:
            break
        if len(words) != 2 or words[0] not in ("type", "height", "width") or words[0] in header:
            raise LayoutError(f"{where}: line {row} is {_short(line)}, but {_HEADER}")
        header[words[0]] = words[1]
    else:
        raise LayoutError(f"{where}: ends within its header; {_HEADER}")
    missing = [word for word in ("type", "height", "width") if word not in header]
    if missing:
        raise LayoutError(f"{where}: the header lacks {' and '.join(missing)}; {_HEADER}")
    if header["type"] != "octile":
        raise LayoutError(f"{where}: a map of type {_short(header['type'])}; only type octile can be read")
    for word in ("height", "width"):
        value = header[word]
        if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0):
            raise LayoutError(f"{where}: {word} {_short(value)} is no whole number from 1 to {MAX_SIDE}")
    height, width = int(header["height"]), int(header["width"])
    _check_size(height, width, where)
    return height, width, row


def _parse_cells(
    rows: list[str],
    width: int,
    origin: str,
    skipped: int,
    alphabet: Mapping[str, int],
    allowed: str,
    where: str,
) -> npt.NDArray[np.uint8]:
    """Translate rows of `width` characters to cells, uint8 (rows, cols).

    For messages: `origin` says who asks for that width, `skipped` how many lines precede the rows.
    """
    for row, characters in enumerate(rows):
        if len(characters) != width:
            raise LayoutError(
                f"{where}: {_at(row, None, 1, skipped)} has {len(characters)} characters but "
                f"{origin} {width}; all rows must be of one length (spaces count, they are free cells)"
            )
    joined = "".join(rows)
    points: npt.NDArray[Any]
    if joined.isascii():
        points = np.frombuffer(joined.encode(), np.uint8)
    else:
        points = np.minimum(np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4"), 128)
    table = np.full(129, _UNKNOWN, np.uint8)  # one entry per ASCII character and one for all others
    for character, cell in alphabet.items():
        table[ord(character)] = cell
    cells: npt.NDArray[np.uint8] = table[points].reshape(len(rows), width)
    unknown = _first(cells == _UNKNOWN)
    if unknown is not None:
        row, col = unknown
        raise LayoutError(f"{where}: unknown character {rows[row][col]!r} in {_at(row, col, 1, skipped)}; {allowed}")
    return cells


def _array_map(array: npt.NDArray[Any], name: str, where: str) -> _Map:
    """Read the cells of an array."""
    if array.size == 0:
        raise LayoutError(f"{where}: empty (shape {array.shape}); a maze has at least two cells")
    if array.dtype.kind not in "biu":
        raise LayoutError(
            f"{where}: values of type {array.dtype}, not bool or integer; {_VALUES_ALLOWED} (text and paths are layouts, too)"
        )
    if array.ndim != 2:
        raise LayoutError(f"{where}: {array.ndim} dimensions (shape {array.shape}); a maze has rows and columns")
    _check_size(array.shape[0], array.shape[1], where)
    unknown = _first((array < FREE) | (array > GOAL))
    if unknown is not None:
        raise LayoutError(f"{where}: unknown value {array[unknown]} in {_at(*unknown, 0)}; {_VALUES_ALLOWED}")
    cells = np.ascontiguousarray(array).astype(np.uint8)
    return _Map(cells, name, where, 0, needs_marks=False, allowed=_VALUES_ALLOWED)


def _link(free: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Open every wall between two free neighbours: uint8 (rows, cols) from bool (rows, cols)."""
    links = np.zeros(free.shape, np.uint8)
    east = (free[:, :-1] & free[:, 1:]).view(np.uint8)
    south = (free[:-1] & free[1:]).view(np.uint8)
    links[:, :-1] |= east * np.uint8(EAST)
    links[:, 1:] |= east * np.uint8(WEST)
    links[:-1] |= south * np.uint8(SOUTH)
    links[1:] |= south * np.uint8(NORTH)
    return links


def _marks(source: _Map, required: bool) -> _Tasks:
    """The start and goal that the maze itself marks: one pair, or none where none is required."""
    ends: dict[str, tuple[int, int]] = {}
    for end, cell in (("start", START), ("goal", GOAL)):
        found = [divmod(int(flat), source.cells.shape[1]) for flat in np.flatnonzero(source.cells == cell)[:2]]
        if len(found) == 2:
            spots = " and ".join(_at(row, col, source.base) for row, col in found)
            raise LayoutError(f"{source.where}: more than one {end}: {spots}; mark exactly one ({source.allowed})")
        if found:
            ends[end] = found[0]
    missing = [end for end in ("start", "goal") if end not in ends]
    if len(missing) == 1 or (missing and required):
        lacks = " and ".join(f"no {end}" for end in missing)
        raise LayoutError(f"{source.where}: {lacks}; mark exactly one of each ({source.allowed})")
    pairs = np.array([] if missing else [[ends["start"], ends["goal"]]], np.int64).reshape(-1, 2, 2)
    return _Tasks(pairs, [source.where] * len(pairs), source.base)


def _read_scenarios(scenarios: ScenarioSource, source: _Map) -> _Tasks:
    """Find out what `scenarios` is and read its pairs."""
    if isinstance(scenarios, str) and ("\n" in scenarios or "\r" in scenarios):
        return _parse_scenarios(scenarios, "scenarios", source)
    if isinstance(scenarios, (str, os.PathLike)):
        path = _file(scenarios, "scenarios are a .scen file or a list of pairs")
        return _parse_scenarios(_read_text(path), path.name, source)
    try:
        array = np.asarray(scenarios)
    except ValueError:
        raise LayoutError(f"scenarios: some are no pairs; {_PAIRS}") from None
    if array.size == 0:
        raise LayoutError(f"scenarios: none given; {_PAIRS} (leave `scenarios` out to draw them at every reset)")
    if array.dtype.kind not in "iu" or array.ndim != 3 or array.shape[1:] != (2, 2):
        raise LayoutError(f"scenarios: {array.dtype} of shape {array.shape} is not (K, 2, 2) integers; {_PAIRS}")
    return _Tasks(array.astype(np.int64), [f"scenarios[{k}]" for k in range(len(array))], 0)


def _parse_scenarios(text: str, where: str, source: _Map) -> _Tasks:
    """Read the text of a Moving AI scenario file for the map `source`."""
    lines = _lines(text)
    head = lines[0].split() if lines else []
    if len(head) != 2 or head[0] != "version" or head[1] not in ("1", "1.0"):
        raise LayoutError(f"{where}: line 1 is {_short(''.join(lines[:1]))}; a scenario file begins with 'version 1'")
    pairs, places, idle, foreign = [], [], [], set()
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        place = f"{where}: line {number}"
        fields = [field.strip() for field in line.strip().split("\t")] if "\t" in line else line.split()
        if len(fields) != 9:
            raise LayoutError(f"{place} has {len(fields)} fields, not nine ({_FIELDS}); is the file truncated?")
        try:
            float(fields[8])
            width, height, start_x, start_y, goal_x, goal_y = map(int, fields[2:8])
            pair = np.array([[start_y, start_x], [goal_y, goal_x]], np.int64)
        except (ValueError, OverflowError):
            raise LayoutError(f"{place}: a field is no number; the fields are {_FIELDS}") from None
        rows, cols = source.cells.shape
        if (height, width) != (rows, cols):
            raise LayoutError(
                f"{place}: for a map of width {width} and height {height}, but {source.where} has width {cols} and height {rows}"
            )
        if (start_x, start_y) == (goal_x, goal_y):
            idle.append(number)
            continue
        if PureWindowsPath(fields[1]).stem != source.name:  # understands both kinds of slashes
            foreign.add(fields[1])
        pairs.append(pair)
        places.append(f"{place} (x is the column, y the row)")
    if not pairs:
        raise LayoutError(f"{where}: no scenario with a way to go; each needs one line of {_FIELDS}")
    if idle:
        warnings.warn(
            f"{where}: left out {len(idle)} scenarios that start on their goal (first: line {idle[0]})",
            stacklevel=4,
        )
    if foreign and source.name != "text" and source.name != "array":
        warnings.warn(f"{where}: for the map {min(foreign)!r}, used with {source.where!r}", stacklevel=4)
    return _Tasks(np.stack(pairs), places, 0)


def _check(tasks: _Tasks, walls: npt.NDArray[np.bool_], links: npt.NDArray[np.uint8]) -> None:
    """Raise LayoutError for the first start or goal that cannot be used."""
    if len(tasks.pairs) == 0:
        return
    rows, cols = walls.shape

    def fail(task: int, fault: str) -> LayoutError:
        return LayoutError(f"{tasks.where[task]}: {fault}")

    def spot(task: int, end: int) -> str:
        row, col = tasks.pairs[task, end].tolist()
        return f"the {('start', 'goal')[end]} in {_at(row, col, tasks.base)}"

    within = (tasks.pairs >= 0) & (tasks.pairs < (rows, cols))
    outside = _first(~(within[..., 0] & within[..., 1]))
    if outside is not None:
        raise fail(outside[0], f"{spot(*outside)} is outside the map of {rows} rows and {cols} columns")
    walled = _first(walls[tasks.pairs[..., 0], tasks.pairs[..., 1]])
    if walled is not None:
        raise fail(walled[0], f"{spot(*walled)} is on a wall")
    same = (tasks.pairs[:, 0] == tasks.pairs[:, 1]).all(axis=1)
    if same.any():
        task = int(same.argmax())
        raise fail(task, f"{spot(task, 0)} is also the goal; they must differ")
    parts = np.empty(walls.shape, np.int32)
    components(links, parts)
    part = parts[tasks.pairs[..., 0], tasks.pairs[..., 1]]
    apart = (part[:, 0] != part[:, 1]) | (part[:, 0] < 0)
    if apart.any():
        task = int(apart.argmax())
        raise fail(task, f"there is no path from {spot(task, 0)} to {spot(task, 1)} (moves: up, right, down, left)")


def _file(path: str | os.PathLike[str], hint: str) -> Path:
    """The path of an existing regular file of bearable size; `hint` says what else a user may have meant."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise LayoutError("a path must be text, not bytes")
    if not name:
        raise LayoutError(f"empty text instead of a layout or path ({hint})")
    try:
        status = os.stat(name)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LayoutError(f"cannot open the file {quoted_path(name)}: {reason} ({hint})") from error
    if stat.S_ISDIR(status.st_mode):
        raise LayoutError(f"{quoted_path(name)} is a directory; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise LayoutError(f"{quoted_path(name)} is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise LayoutError(f"{quoted_path(name)} is too large: {status.st_size} bytes, at most {MAX_FILE_BYTES} are read")
    return Path(name)


def _read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LayoutError(f"cannot open the file {quoted_path(path)}: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = error.start - data.rfind(b"\n", 0, error.start)
        raise LayoutError(f"{path.name}: line {line}, byte {byte} (counted from 1) is not UTF-8; save it as UTF-8 text") from error


def _read_npy(path: Path) -> npt.NDArray[Any]:
    """The array of a `.npy` file, mapped: no pickle is opened, no memory taken that a header only claims."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a damaged header makes NumPy raise almost anything
        raise LayoutError(f"{path.name}: no complete .npy file of numbers ({error})") from error


def _lines(text: str) -> list[str]:
    """The lines of a text without byte order mark, whatever ends them; empty lines at the end are dropped."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _check_size(rows: int, cols: int, where: str) -> None:
    """Raise LayoutError for a maze that is too large."""
    if rows > MAX_SIDE or cols > MAX_SIDE:
        raise LayoutError(f"{where}: too large: {rows} rows and {cols} columns; at most {MAX_SIDE} of each are allowed")


def _ragged(rows: Any) -> str:
    """What is wrong with nested sequences that are no array."""
    lengths = [len(row) if isinstance(row, (Sequence, np.ndarray)) else None for row in rows]
    for row, length in enumerate(lengths):
        if length is None or length != lengths[0]:
            fault = "is no row of cells" if length is None else f"has {length} cells but row 0 has {lengths[0]}"
            return f"array: {_at(row, None, 0)} {fault}; all rows must be of one length"
    return f"array: its cells are no single values; {_VALUES_ALLOWED}"


def _first(mask: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
    """Row and column of the first True of a 2-D mask, in reading order."""
    row, col = divmod(int(mask.argmax()), mask.shape[1])
    return (row, col) if mask[row, col] else None


def _at(row: int, col: int | None, base: int, skipped: int = 0) -> str:
    """A position in words; `skipped` lines of the file precede row 0."""
    column = "" if col is None else f", column {col + base}"
    line = f"line {row + skipped + 1} of the file, " if skipped else ""
    return f"row {row + base}{column} ({line}counted from {base})"


def _short(text: str) -> str:
    """`text` quoted, shortened to what fits in a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
