"""Compiled passes over UTF-8 text: where its tokens begin, a hash of each, and where a phrase occurs. Exact, linear, in place.

A token is a maximal run of characters of class `WORD`, or one character of class `ALONE`; whatever else stands between them. The two
tables that say so, and how characters fold, belong to `rao_envs.longseq.documents`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline, jit
from rao_envs.core.rng import mix

GAP, WORD, ALONE = 0, 1, 2  # classes of characters

Int: TypeAlias = "int | np.int64"
Bytes = npt.NDArray[np.uint8]
Classes = npt.NDArray[np.uint8]  # (C,): the class of each code point; the text holds none beyond
Folds = npt.NDArray[np.uint32]  # (C, 3): the code points it folds to, 0 after the last


@inline
def read(text: Bytes, at: Int) -> tuple[Int, Int]:
    """The code point that begins at byte `at` of valid UTF-8, and where the next one begins."""
    lead = np.int64(text[at])
    if lead < 0x80:
        return lead, at + 1
    second = np.int64(text[at + 1]) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second, at + 2
    third = np.int64(text[at + 2]) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third, at + 3
    return ((lead & 0x07) << 18) | (second << 12) | (third << 6) | (np.int64(text[at + 3]) & 0x3F), at + 4


@inline
def token_end(text: Bytes, at: Int, classes: Classes) -> Int:
    """Where the token that begins at byte `at` ends."""
    code, after = read(text, at)
    if classes[code] == ALONE:
        return after
    while after < len(text):
        code, following = read(text, after)
        if classes[code] != WORD:
            break
        after = following
    return after


@jit
def tokenise(text: Bytes, classes: Classes, folds: Folds, starts: npt.NDArray[np.int32], hashes: npt.NDArray[np.uint32]) -> int:
    """Fill `starts` with the byte offset of each token and `hashes` with 32 bits of its folded form; returns how many there are.

    `starts` and `hashes` must hold len(text) // 2 + 1 entries, which no text exceeds.
    """
    count = 0
    at: Int = 0
    state = np.uint64(0)
    inside = False
    while at < len(text):
        code, after = read(text, at)
        kind = classes[code]
        if (kind == WORD and not inside) or kind == ALONE:
            if inside:
                hashes[count - 1] = mix(state) >> np.uint64(32)
            starts[count] = at
            count += 1
            state = np.uint64(0)
        elif inside and kind != WORD:
            hashes[count - 1] = mix(state) >> np.uint64(32)
        if kind != GAP:
            for k in range(3):
                folded = folds[code, k]
                if folded == 0:
                    break
                state = (state ^ np.uint64(folded)) * np.uint64(0x100000001B3) + np.uint64(0x9E3779B97F4A7C15)
        if kind == ALONE:
            hashes[count - 1] = mix(state) >> np.uint64(32)
        inside = kind == WORD
        at = after
    if inside:
        hashes[count - 1] = mix(state) >> np.uint64(32)
    return count


@inline
def same(text: Bytes, at: Int, classes: Classes, folds: Folds, wanted: npt.NDArray[np.uint32], first: Int, end: Int) -> bool:
    """Whether the token that begins at byte `at` folds to `wanted[first:end]`."""
    position: Int = first
    start: Int = at
    while at < len(text):
        code, after = read(text, at)
        kind = classes[code]
        if kind == GAP or (kind == ALONE and at != start):
            break
        for k in range(3):
            folded = folds[code, k]
            if folded == 0:
                break
            if position == end or wanted[position] != folded:
                return False
            position += 1
        at = after
        if kind == ALONE:
            break
    return bool(position == end)


@jit
def find_phrase(
    text: Bytes,
    classes: Classes,
    folds: Folds,
    starts: npt.NDArray[np.int32],
    wanted: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    found: npt.NDArray[np.uint8],
) -> int:
    """Set `found[i]` to 1 where the tokens ending with number i spell the phrase, compared character by character; returns how often.

    Token j of the phrase folds to `wanted[bounds[j]:bounds[j + 1]]`. `found` has an entry per token and must come zeroed.
    """
    words = len(bounds) - 1
    count = 0
    for i in range(len(starts) - words + 1):
        good = True
        for j in range(words):
            if not same(text, np.int64(starts[i + j]), classes, folds, wanted, bounds[j], bounds[j + 1]):
                good = False
                break
        if good:
            found[i + words - 1] = 1
            count += 1
    return count


@jit
def find_bytes(text: Bytes, wanted: Bytes, found: npt.NDArray[np.uint8]) -> int:
    """Set `found[i]` to 1 where the bytes ending with number i are `wanted`; returns how often (occurrences may overlap)."""
    size = len(wanted)
    count = 0
    for i in range(len(text) - size + 1):
        good = True
        for j in range(size):
            if text[i + j] != wanted[j]:
                good = False
                break
        if good:
            found[i + size - 1] = 1
            count += 1
    return count


@jit
def classify(
    text: Bytes,
    classes: Classes,
    folds: Folds,
    starts: npt.NDArray[np.int32],
    tokens: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    found: npt.NDArray[np.int8],
) -> None:
    """Set `found[k]` to which of some words token number `tokens[k]` is, or to how many words there are. Compared in full.

    Word j folds to `wanted[bounds[j]:bounds[j + 1]]`.
    """
    words = len(bounds) - 1
    for k in range(len(tokens)):
        found[k] = words
        for j in range(words):
            if same(text, np.int64(starts[tokens[k]]), classes, folds, wanted, bounds[j], bounds[j + 1]):
                found[k] = j
                break


@jit
def small_numbers(
    text: Bytes, classes: Classes, starts: npt.NDArray[np.int32], tokens: npt.NDArray[np.int64], found: npt.NDArray[np.int8]
) -> None:
    """Set `found[k]` to the number that token number `tokens[k]` writes in the digits 0 to 9, at most 9, or to -1 if it is no number."""
    for k in range(len(tokens)):
        at = np.int64(starts[tokens[k]])
        end = token_end(text, at, classes)
        number = 0
        while at < end and number >= 0:
            digit = np.int64(text[at]) - 48
            if digit < 0 or digit > 9:
                number = -1
            elif number > 0:
                number = 9  # two digits, none of them a leading zero: ten at least
            else:
                number = int(digit)
            at += 1
        found[k] = number
