"""Sequences from a seed, with records planted for the question so that reading a part of it does not tell the answer.

Background records have uniform keys (never the question's) and uniform digits. What is planted for each kind says `plant`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline, jit
from rao_envs.core.rng import below, next_u64, uniform
from rao_envs.longseq.queries import CODES, COUNT, DIGITS, KEYS, MAJORITY, MAX, NEEDLE, PAIRS, PLACES, QUERIES, TOPK

FEWEST = 5
"""The least upper end of the number of planted records, however short the sequence."""
LIKELY, UNLIKELY = 0.65, 0.35
"""A majority question's favoured digit is drawn with one of these probabilities (besides its uniform share)."""
U16, LOW16 = np.uint64(16), np.uint64(0xFFFF)

Keys = npt.NDArray[np.int8]  # (L,): 0 for nothing, else code + 1
Values = npt.NDArray[np.int8]  # (L,): digits
Rng = npt.NDArray[np.uint64]  # (1,)
KEYS_OF = np.array([query.keys for query in QUERIES], np.int64)


@inline
def most_planted(length: int, density: float) -> int:
    """The most records of one key that a sequence of `length` gets, `density` per thousand records and at least FEWEST."""
    return min(max(FEWEST, int(length * density / 1000.0)), length // 4)


@inline
def draw_length(low: int, high: int, rng: Rng) -> int:
    """A length in [low, high]: each doubling of `low` is as likely, integers within it equally so (no logarithms: exact everywhere)."""
    doublings = 0
    while low << (doublings + 1) <= high:
        doublings += 1
    start = low << below(rng, doublings + 1)
    return start + below(rng, min(2 * start - 1, high) - start + 1)


@jit
def background(keys: Keys, values: Values, length: int, codes: npt.NDArray[np.int8], n_codes: int, rng: Rng) -> None:
    """Fill the first `length` records with uniform keys other than the `n_codes` in `codes`, and uniform digits.

    One draw of 64 bits serves four records: each of the some 600 combinations has a probability within one percent of equal.
    """
    table = np.empty((CODES * DIGITS, 2), np.int8)
    size = 0
    for code in range(CODES):
        taken = False
        for j in range(n_codes):
            taken = taken or codes[j] == code
        if not taken:
            for digit in range(DIGITS):
                table[size, 0], table[size, 1] = code + 1, digit
                size += 1
    for first in range(0, length, 4):
        bits = next_u64(rng)
        for k in range(first, min(first + 4, length)):
            pick = np.int64(((bits & LOW16) * np.uint64(size)) >> U16)
            keys[k], values[k] = table[pick, 0], table[pick, 1]
            bits >>= U16


@inline
def put(keys: Keys, values: Values, length: int, code: int, digit: int, rng: Rng) -> None:
    """Overwrite a random record that is background; at least half must be."""
    place = below(rng, length)
    while values[place] < 0:
        place = below(rng, length)
    keys[place] = code + 1
    values[place] = -1 - digit  # marks it until `collect`


@jit
def plant(keys: Keys, values: Values, length: int, kind: int, codes: npt.NDArray[np.int8], most: int, rng: Rng) -> None:
    """Plant the question's records, at most `most` (at least 1) per key, at random places, their digits stored as -1 - digit.

    needle, keys: one record per key. count: any number from 0. max: the largest digit, itself uniform, occurs once. topk: the three
    largest digits are uniform, the others no larger. majority: see LIKELY. pairs: the keys share no digit, but for one record each in
    half of the sequences.
    """
    if kind in (NEEDLE, KEYS):
        for j in range(KEYS_OF[kind]):
            put(keys, values, length, codes[j], below(rng, DIGITS), rng)
    elif kind == COUNT:
        for _ in range(below(rng, most + 1)):
            put(keys, values, length, codes[0], below(rng, DIGITS), rng)
    elif kind == MAX:
        top = below(rng, DIGITS)
        put(keys, values, length, codes[0], top, rng)
        if top > 0:
            for _ in range(below(rng, most)):
                put(keys, values, length, codes[0], below(rng, top), rng)
    elif kind == TOPK:
        least = DIGITS
        planted = min(PLACES, most)
        for _ in range(planted):
            digit = below(rng, DIGITS)
            least = min(least, digit)
            put(keys, values, length, codes[0], digit, rng)
        for _ in range(below(rng, most - planted + 1)):
            put(keys, values, length, codes[0], below(rng, least + 1), rng)
    elif kind == MAJORITY:
        favourite = below(rng, DIGITS)
        share = LIKELY if below(rng, 2) == 1 else UNLIKELY
        for _ in range(1 + below(rng, most)):
            digit = favourite if uniform(rng) < share else below(rng, DIGITS)
            put(keys, values, length, codes[0], digit, rng)
    elif kind == PAIRS:
        plant_pairs(keys, values, length, codes, most, rng)


@inline
def plant_pairs(keys: Keys, values: Values, length: int, codes: npt.NDArray[np.int8], most: int, rng: Rng) -> None:
    """Digits, shifted by a random number: 0 for the pair, 1 to 4 for the first key, 5 to 9 for the second."""
    shift = below(rng, DIGITS)
    alike = below(rng, 2)
    put(keys, values, length, codes[0], shift, rng)
    put(keys, values, length, codes[1], (shift + 5 * (1 - alike)) % DIGITS, rng)
    for _ in range(below(rng, most)):
        put(keys, values, length, codes[0], (shift + 1 + below(rng, 4)) % DIGITS, rng)
    for _ in range(below(rng, most)):
        put(keys, values, length, codes[1], (shift + 5 + below(rng, 5)) % DIGITS, rng)


@jit
def collect(
    keys: Keys,
    values: Values,
    length: int,
    codes: npt.NDArray[np.int8],
    n_codes: int,
    hits: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> None:
    """Take the marks off and list where the planted records are.

    `hits[offsets[10 j + d]:offsets[10 j + d + 1]]` become the ascending positions of the records with key number j and digit d.
    """
    offsets[:] = 0
    total = 0
    found = np.empty(hits.shape[0], np.int32)
    for place in range(length):
        if values[place] < 0:
            found[total] = place
            total += 1
            values[place] = -1 - values[place]
            offsets[1 + row_of(keys[place], codes, n_codes) * DIGITS + values[place]] += 1
    for k in range(1, offsets.shape[0]):
        offsets[k] += offsets[k - 1]
    filled = offsets.copy()
    for k in range(total):
        place = found[k]
        row = row_of(keys[place], codes, n_codes) * DIGITS + values[place]
        hits[filled[row]] = place
        filled[row] += 1


@inline
def row_of(token: int, codes: npt.NDArray[np.int8], n_codes: int) -> int:
    """Which of the question's keys a planted record has."""
    for j in range(n_codes):
        if codes[j] + 1 == token:
            return j
    return 0


@jit
def choose_codes(codes: npt.NDArray[np.int8], n_codes: int, rng: Rng) -> None:
    """Draw `n_codes` different keys; the rest of `codes` becomes -1."""
    codes[:] = -1
    for j in range(n_codes):
        fresh = False
        while not fresh:
            codes[j] = below(rng, CODES)
            fresh = True
            for other in range(j):
                fresh = fresh and codes[other] != codes[j]


def index(positions: Any, digits: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """`hits` and `offsets` as `collect` makes them, of a question's own `positions` and `digits` (one array of each per key)."""
    offsets = np.zeros(PLACES * DIGITS + 1, np.int64)
    parts = []
    for j in range(PLACES):
        for digit in range(DIGITS):
            part = positions[j][digits[j] == digit] if j < len(positions) else np.zeros(0, np.int64)
            parts.append(part)
            offsets[j * DIGITS + digit + 1] = offsets[j * DIGITS + digit] + len(part)
    return np.concatenate(parts).astype(np.int32), offsets
