"""Where what lies in an observation of a long sequence; shared by the kernels, scripted solvers and feature extractors."""

from __future__ import annotations

from rao_envs.longseq.queries import PLACES, QUERIES, SYMBOLS

OVERHEAD = 16
"""Tokens of the window that are not records: kind and keys (4), note (3), answer so far (3), the children's answers (6)."""
CHILDREN = 2
POINTERS = 2
PAGE_FLAGS = 3
"""Per pointer: open, at the first page, at the last page."""

# In `task`; the keys and the digits of the records follow the note.
AT_KIND = 0
AT_CODES = AT_KIND + len(QUERIES)
AT_FITS = AT_CODES + PLACES
AT_PAGES = AT_FITS + 1
AT_FRESH = AT_PAGES + POINTERS * PAGE_FLAGS
AT_WRITTEN = AT_FRESH + PLACES
AT_NOTE = AT_WRITTEN + PLACES * SYMBOLS

PER_CHILD = 1 + PLACES * SYMBOLS
"""In `results`: whether it ended without an answer, then its answer, one-hot."""


def records_in(window: int) -> int:
    """Records that fit a window of so many tokens: an even number, as two spans or pages share it."""
    return (window - OVERHEAD) // 2 * 2


def slices(window: int, notes: int) -> dict[str, slice]:
    """The parts of `task`, in order, for a window of so many tokens and a note alphabet of so many symbols.

    `kind` (one-hot), `codes` (of the question's keys, + 1), `fits`, `pages` (PAGE_FLAGS per pointer), `fresh` (how many symbols were
    noted since a page was turned, one-hot from 1 on), `written` and `note` (PLACES x symbols, one-hot), `keys` (code + 1) and `values`.
    """
    records = records_in(window)
    keys = AT_NOTE + PLACES * notes
    starts = {
        "kind": AT_KIND,
        "codes": AT_CODES,
        "fits": AT_FITS,
        "pages": AT_PAGES,
        "fresh": AT_FRESH,
        "written": AT_WRITTEN,
        "note": AT_NOTE,
        "keys": keys,
        "values": keys + records,
    }
    ends = [*list(starts.values())[1:], keys + 2 * records]
    return {name: slice(start, end) for (name, start), end in zip(starts.items(), ends, strict=True)}
