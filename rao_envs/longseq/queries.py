"""What can be asked about a sequence: one table, and the form in which a sequence of one's own is handed in.

A sequence is a row of records (key, digit). A question has a kind and one to three keys, and concerns the records with those keys
only. Everything asked follows from how often each digit occurs with each key in a span, so that exact truths are cheap at any length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CODES = 64
"""Keys are shown as codes in [0, CODES)."""
QUERY_CODES = tuple(range(CODES - 3, CODES))
"""Codes that a `Corpus` leaves to its questions: no record of the sequence itself may have one."""
DIGITS = 10
NONE = 10
"""The answer symbol that says "no such record"; symbols 0 to 9 are digits."""
SYMBOLS = 11
PLACES = 3
"""The longest answer, in symbols, and the most keys a question may have."""


class Query(NamedTuple):
    """A kind of question."""

    name: str
    keys: int  # how many keys it has
    places: int  # symbols in its answer
    alphabet: int  # symbols 0 to alphabet - 1 may be written
    asks: str
    recursion: str  # what recursion can honestly be expected to gain


QUERIES = (
    Query("needle", 1, 1, SYMBOLS, "the digit of the one record with the key; none where there is none", "wall-clock"),
    Query("count", 1, 1, 3, "how many records have the key, modulo 3", "wall-clock"),
    Query("max", 1, 1, SYMBOLS, "the largest digit of the records with the key; none where there is none", "wall-clock"),
    Query("keys", 3, 3, SYMBOLS, "the digits of the one record with each of three keys, in the keys' order", "wall-clock"),
    Query("topk", 1, 3, SYMBOLS, "the three largest digits of the records with the key, descending; none where fewer", "wall-clock"),
    Query("pairs", 2, 1, 2, "whether a record of the first key and one of the second have the same digit (1) or not (0)", "parallelism"),
    Query("majority", 1, 1, SYMBOLS, "the digit of more than half of the records with the key; none where there is none", "nothing"),
)
"""The one table of kinds. A kind's index in it is its code; new ones go to the end."""

NEEDLE, COUNT, MAX, KEYS, TOPK, PAIRS, MAJORITY = range(len(QUERIES))
KINDS = {query.name: code for code, query in enumerate(QUERIES)}
MIX = ("needle", "count", "max")
"""What the registered ids ask."""
MODULUS = 3


@dataclass(frozen=True)
class Question:
    """A question about a `Corpus`.

    Attributes:
        kind: a name in QUERIES.
        text: the question as a person would put it, for pictures and messages.
        positions: for each of its keys, where the records with it lie: integers, ascending, within `span`.
        digits: for each of its keys, those records' digits 0 to 9, as many as positions.
        span: the part of the sequence that it is about, half open; None for the whole.
        truth: the answer's symbols if the author has worked them out in another way: they are compared with what follows from
            `positions` and `digits`, and a difference is an error.
    """

    kind: str
    text: str
    positions: tuple[npt.NDArray[Any], ...]
    digits: tuple[npt.NDArray[Any], ...]
    span: tuple[int, int] | None = None
    truth: tuple[int, ...] | None = None

    def explain(self, symbols: Sequence[int]) -> str:
        """An answer in words."""
        return in_words(symbols)


def in_words(symbols: Sequence[int]) -> str:
    """An answer's symbols as a person reads them."""
    return " ".join("none" if symbol == NONE else str(symbol) for symbol in symbols)


@dataclass(frozen=True)
class Corpus:
    """A sequence of one's own, and what may be asked about it.

    Windows show the sequence's own records, except where a question's positions lie: there they show the question's code for that
    key (`QUERY_CODES[j]` for its key number j) and its digit. So any number of questions share one sequence, and no word that
    happens to share a code with the one asked for can spoil the truth.

    Attributes:
        keys: int8 (L,), codes in [0, CODES) that are not in QUERY_CODES.
        values: int8 (L,), digits 0 to 9.
        questions: at least one; a reset draws one, or `reset(options={"question": k})` picks one.
        title: what it is called in pictures.
        unit: what a record is, in the plural.
        texts: `texts(first, end)` gives one short text per record, for pictures; None shows keys and digits. It must be picklable.
    """

    keys: npt.NDArray[np.int8]
    values: npt.NDArray[np.int8]
    questions: tuple[Question, ...]
    title: str = "sequence"
    unit: str = "records"
    texts: Callable[[int, int], Sequence[str]] | None = field(default=None, compare=False, repr=False)
