"""Long sequences answered without learning: scripted agents that act from the observation alone.

They are exact readers of what they see, so what they miss is what the context does not allow. `RecursiveSolver` halves spans until they
fit and puts the children's answers together; `MonolithicSolver` reads page by page and keeps a note: the strongest use of the
monolithic agent's primitives that we know, and the ceiling a learned monolithic agent is to be measured against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.longseq import layout
from rao_envs.longseq.queries import COUNT, KEYS, MAX, MODULUS, NEEDLE, NONE, PAIRS, PLACES, QUERIES, SYMBOLS, TOPK

Answer = tuple[int, ...]
Bags = Sequence[Sequence[int]]
"""Digits of the records in sight, for each of the question's keys."""


class Sight(NamedTuple):
    """An observation, read."""

    kind: int
    fits: bool
    first: Bags  # records in the first half of the window, or in all of it where it is not divided
    second: Bags  # in the second half, where it is divided
    pages: tuple[tuple[bool, bool, bool], ...]  # per pointer: open, at the first page, at the last
    fresh: int  # symbols noted since a page was turned
    written: Answer
    note: Answer
    children: tuple[Answer | None, Answer | None]  # None: has not answered

    @property
    def bags(self) -> Bags:
        """Digits of all records in sight."""
        return [[*a, *b] for a, b in zip(self.first, self.second, strict=True)]


def answer_of(kind: int, bags: Bags) -> Answer:
    """The exact answer to a question about nothing but these records."""
    digits = sorted(bags[0], reverse=True)
    if kind == COUNT:
        return (len(digits) % MODULUS,)
    if kind in (NEEDLE, MAX):
        return (digits[0] if digits else NONE,)
    if kind == KEYS:
        return tuple(bag[0] if bag else NONE for bag in bags)
    if kind == TOPK:
        return tuple([*digits, NONE, NONE, NONE][:PLACES])
    if kind == PAIRS:
        return (int(bool(set(bags[0]) & set(bags[1]))),)
    common = max(set(digits), key=digits.count, default=NONE)
    return (common if 2 * digits.count(common) > len(digits) else NONE,)


def merge(kind: int, left: Answer, right: Answer) -> Answer:
    """The answer for two parts from the answers for each; for a majority, which does not follow from them, a guess."""
    if kind == COUNT:
        return ((left[0] + right[0]) % MODULUS,)
    if kind in (NEEDLE, MAX, TOPK):
        digits = sorted((symbol for symbol in left + right if symbol != NONE), reverse=True)
        return tuple([*digits, NONE, NONE, NONE][: QUERIES[kind].places])
    if kind == KEYS:
        return tuple(b if a == NONE else a for a, b in zip(left, right, strict=True))
    if kind == PAIRS:
        return (max(left[0], right[0]),)
    return left if right[0] == NONE else right


class _Solver:
    """Reads observations; subclasses decide.

    Args:
        window, notes, pointers: the environment's keyword arguments.
    """

    batched: ClassVar[bool] = True

    def __init__(self, window: int = 2000, notes: int = SYMBOLS, pointers: int = 1) -> None:
        self.slices = layout.slices(window, notes)
        self.records = layout.records_in(window)
        self.notes, self.pointers = notes, pointers
        self.next_page = SYMBOLS
        self.first_note = self.next_page + 2 * pointers
        self.first_spawn = self.first_note + notes

    def __call__(
        self,
        observation: Mapping[str, npt.NDArray[Any]],
        mask: npt.NDArray[np.bool_],
        state: Any = None,
        uniform: Any = 0.0,
    ) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: not observations of a long sequence with this solver's keyword arguments.
        """
        tasks, results = np.atleast_2d(observation["task"]), np.atleast_2d(observation["results"])
        masks = np.atleast_2d(mask).astype(bool)
        if tasks.shape[1] != self.slices["values"].stop or masks.shape[1] not in (self.first_spawn, self.first_spawn + 3):
            raise ValueError(
                f"task {tasks.shape} and mask {masks.shape} are not those of a long sequence with window, notes and pointers as given"
            )
        actions = np.array(
            [self.decide(self.look(task, result), row) for task, result, row in zip(tasks, results, masks, strict=True)], np.int64
        )
        return int(actions[0]) if np.ndim(mask) == 1 else actions

    def decide(self, sight: Sight, mask: npt.NDArray[np.bool_]) -> int:
        """The action for one observation."""
        raise NotImplementedError

    def look(self, task: npt.NDArray[np.int8], results: npt.NDArray[np.int8]) -> Sight:
        """Read one observation."""
        part = {name: task[where] for name, where in self.slices.items()}
        kind = int(np.argmax(part["kind"]))
        query = QUERIES[kind]
        halves = []
        for half in (slice(None, self.records // 2), slice(self.records // 2, None)):
            keys, values = part["keys"][half], part["values"][half]
            halves.append([values[keys == code].tolist() for code in part["codes"][: query.keys]])
        flags = part["pages"].astype(bool).reshape(layout.POINTERS, layout.PAGE_FLAGS).tolist()
        children = results.reshape(layout.CHILDREN, layout.PER_CHILD)[:, 1:]
        left, right = (_symbols(child, SYMBOLS)[: query.places] for child in children)
        return Sight(
            kind=kind,
            fits=bool(part["fits"][0]),
            first=halves[0],
            second=halves[1],
            pages=tuple((bool(a), bool(b), bool(c)) for a, b, c in flags),
            fresh=int(np.argmax(part["fresh"])) + 1 if part["fresh"].any() else 0,
            written=_symbols(part["written"], SYMBOLS),
            note=_symbols(part["note"], self.notes)[: query.places],
            children=(left or None, right or None),
        )


class RecursiveSolver(_Solver):
    """Answers what fits the window, and halves what does not; exact for every kind of question but majority."""

    def decide(self, sight: Sight, mask: npt.NDArray[np.bool_]) -> int:
        """Answer, or spawn."""
        left, right = sight.children
        if sight.fits:
            if sight.kind == PAIRS:
                return answer_of(PAIRS, [sight.first[0], sight.second[1]])[0]
            return answer_of(sight.kind, sight.bags)[len(sight.written)]
        if left is None or right is None:
            spawns = [spawn for spawn in (2, 1, 0) if self.first_spawn + spawn < len(mask) and mask[self.first_spawn + spawn]]
            if spawns:
                return self.first_spawn + spawns[0]
            nothing = answer_of(sight.kind, [()] * PLACES)
            left, right = left or nothing, right or nothing
        return merge(sight.kind, left, right)[len(sight.written)]


class MonolithicSolver(_Solver):
    """Reads page after page, notes the answer for all read so far, and answers at the end; never spawns.

    Exact for every kind of question but two. Majority needs counts that the note cannot hold: it notes the latest page's. Pairs need
    every page seen beside every other, which takes two pointers; with one it finds pairs within a page.
    """

    def decide(self, sight: Sight, mask: npt.NDArray[np.bool_]) -> int:
        """Answer, turn a page, or note a symbol."""
        if sight.kind == PAIRS and not sight.fits and self.pointers == 2:
            return self._pairs(sight)
        if sight.fits:
            bags = [sight.first[0], sight.second[1]] if sight.kind == PAIRS else sight.bags
            return answer_of(sight.kind, bags)[len(sight.written)]
        if sight.written:
            return sight.note[len(sight.written)]
        return self._stream(sight)

    def _stream(self, sight: Sight) -> int:
        """One pointer's pages, in order."""
        is_open, _, is_last = sight.pages[0]
        if not is_open:
            return self.next_page
        if sight.fresh == QUERIES[sight.kind].places:
            return sight.note[0] if is_last else self.next_page
        bags = sight.bags if self.pointers == 1 else sight.first
        return self.first_note + self._renewed(sight, answer_of(sight.kind, bags), bags)

    def _renewed(self, sight: Sight, page: Answer, bags: Bags) -> int:
        """The next symbol of the note that takes the open page in: longer notes are renewed from their last symbol to their first."""
        old = sight.note
        if not old:
            # The first page of a longer note: nothing has been pushed out yet.
            old = answer_of(sight.kind, [()] * PLACES)
        if sight.kind == KEYS:
            place = PLACES - 1 - sight.fresh
            before = old[-1] if len(old) == PLACES else NONE
            return page[place] if page[place] != NONE else before
        if sight.kind == TOPK:
            known = [symbol for symbol in old[sight.fresh :] if symbol != NONE]
            best = sorted([*known, *bags[0]], reverse=True) + [NONE] * PLACES
            return best[PLACES - 1 - sight.fresh]
        return merge(sight.kind, old, page)[0]

    def _pairs(self, sight: Sight) -> int:
        """Every page of the first pointer beside every page of the second, row by row. Noted: 0 nothing yet, 1 found, 2 the row is over."""
        (open_1, _, last_1), (open_2, first_2, last_2) = sight.pages
        if not open_1:
            return self.next_page
        if not open_2:
            return self.next_page + 2
        if set(sight.first[0]) & set(sight.second[1]):
            return 1
        over = sight.note == (2,)
        if not last_2:
            return self.first_note if over and first_2 else self.next_page + 2
        if last_1:
            return 0
        if not over:
            return self.first_note + 2
        return self.next_page if sight.fresh else self.next_page + 2


def _symbols(flags: npt.NDArray[np.int8], alphabet: int) -> Answer:
    """The symbols of a row of one-hot places, up to the first empty one."""
    places = flags.reshape(PLACES, alphabet)
    found = []
    for place in places:
        if not place.any():
            break
        found.append(int(np.argmax(place)))
    return tuple(found)
