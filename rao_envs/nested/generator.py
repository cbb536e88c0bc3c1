"""Nested brackets as rows of tokens: generated from a random stream, and indexed for the dynamics. Compiled.

The tasks are those of ListOps (Nangia and Bowman 2018) over digits modulo m: `[SUM 2 [MAX 0 1 1] 2]`. Text and index are plain arrays,
written in place, with time and memory in proportion to the length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import jit, splice
from rao_envs.core.rng import below

SUM, MAX, MIN = 0, 1, 2
OPERATORS = ("SUM", "MAX", "MIN")
N_OPERATORS = 3

OPEN, CLOSE, END = 10, 13, 14
"""Tokens: 0-9 digits, 10-12 "[SUM", "[MAX", "[MIN", 13 "]"; 14 is none: past the end."""

SHORTEST = 8
"""Tokens of the shortest generated task: a bracket within a bracket, and room to vary."""
SMALLEST_BRACKET = 4
"""Tokens of the smallest bracket: it holds at least two digits."""
NO_BRACKET = -1

BRACKET = np.dtype(
    [
        ("start", np.int32),  # its tokens are [start, end)
        ("end", np.int32),
        ("first", np.int32),  # its arguments are ARGUMENT records [first, first + count)
        ("count", np.int32),
        ("parent", np.int32),  # the bracket around it; NO_BRACKET for the outermost
        ("place", np.int32),  # which of its parent's arguments it is
        ("operator", np.int8),
        ("value", np.int8),
    ],
    align=True,
)
"""One bracket. Brackets are in the order in which they open: 0 is the outermost, and a bracket comes after the one around it."""

ARGUMENT = np.dtype([("start", np.int32), ("end", np.int32), ("bracket", np.int32), ("digit", np.int8)], align=True)
"""One argument: its tokens, and the bracket that it is (then `digit` means nothing), or NO_BRACKET."""

MOST = 1 << 40


def most_brackets(length: int) -> int:
    """How many brackets a text of `length` tokens can hold, if every bracket has an argument."""
    return max(1, length // 2)


def capacities(nesting: int, arguments: int) -> npt.NDArray[np.int64]:
    """Entry j: the most tokens of an argument with at most j levels of brackets in it, of `arguments` arguments each; (nesting + 1,)."""
    table = np.ones(nesting + 1, np.int64)
    for j in range(1, nesting + 1):
        table[j] = min(2 + arguments * int(table[j - 1]), MOST)
    return table


@jit
def draw_length(shortest: int, longest: int, rng: npt.NDArray[np.uint64]) -> int:
    """A length in [shortest, longest]: the octaves from `shortest` up are equally likely, and so are the lengths within one."""
    octaves = 1
    while (shortest << octaves) <= longest:
        octaves += 1
    low = shortest << below(rng, octaves)
    return low + below(rng, min(2 * low - 1, longest) - low + 1)


@jit
def draw_count(body: int, capacity: int, arguments: int, outermost: bool, rng: npt.NDArray[np.uint64]) -> int:
    """How many arguments share the `body` tokens between an opening and its "]", none of them longer than `capacity`."""
    most = max(2, min(arguments, body - 3 if outermost else body))  # fewer tokens than that, and the outermost would hold digits alone
    count = 2 + below(rng, most - 1)
    needed = -(-body // capacity)
    if needed > arguments:  # only the outermost, where depth is capped: then as many as it takes, about half full
        return min(body, needed + below(rng, needed + 1))
    if needed > count:
        count = needed
    return count


@jit
def draw_size(body: int, count: int, capacity: int, rng: npt.NDArray[np.uint64]) -> int:
    """Tokens of the next argument, where `count` arguments are to share `body` tokens: 1 (a digit), or SMALLEST_BRACKET to `capacity`."""
    if count <= 1:
        size = min(body, capacity)
    else:
        low = max(1, body - (count - 1) * capacity)
        high = min(capacity, body - (count - 1))
        if low == 1 and below(rng, 3) == 0:
            return 1
        high = max(low, min(high, 2 * body // count))  # uneven parts: about the logarithm of the length deep
        size = low + below(rng, high - low + 1)
        if 1 < size < SMALLEST_BRACKET and high >= SMALLEST_BRACKET:
            return SMALLEST_BRACKET if below(rng, 2) == 0 or low > 1 else 1
    return size if size >= SMALLEST_BRACKET else 1


@jit
def generate(
    tokens: npt.NDArray[np.int8],
    length: int,
    arguments: int,
    modulus: int,
    operators: int,
    capacity: npt.NDArray[np.int64],
    rng: npt.NDArray[np.uint64],
) -> None:
    """Write a random task of exactly `length` tokens into `tokens`, int8 (at least `length`,).

    `arguments` is the most a bracket has, but for the two or three digits that a remainder may add, and for the outermost where the
    cap on depth leaves no other way. `operators` has a bit for each operator that may occur. `capacity` (`capacities`) says how
    deep brackets may be nested below the outermost.
    """
    nesting = len(capacity) - 1
    names = np.empty(N_OPERATORS + 1, np.int64)
    kinds = 0
    for operator in (SUM, SUM, MAX, MIN):  # sums twice as often: nothing inside a sum can be left out
        if (operators >> operator) & 1:
            names[kinds] = operator
            kinds += 1
    body = np.empty(nesting + 1, np.int64)  # tokens left to each open bracket
    count = np.empty(nesting + 1, np.int64)  # arguments left to it
    tokens[0] = OPEN + names[below(rng, kinds)]
    body[0] = length - 2
    count[0] = draw_count(body[0], capacity[nesting], arguments, True, rng)
    at, level = 1, 0
    while level >= 0:
        if body[level] == 0:
            tokens[at] = CLOSE
            at += 1
            level -= 1
            continue
        size = draw_size(body[level], count[level], capacity[nesting - level], rng)
        body[level] -= size
        count[level] -= 1
        if size == 1:
            tokens[at] = below(rng, modulus)
        else:
            tokens[at] = OPEN + names[below(rng, kinds)]
            level += 1
            body[level] = size - 2
            count[level] = draw_count(body[level], capacity[nesting - level], arguments, False, rng)
        at += 1


@jit
def index(tokens: npt.NDArray[np.int8], length: int, brackets: npt.NDArray[Any], arguments: npt.NDArray[Any]) -> int:
    """Find the brackets and arguments of the well-formed `tokens[:length]`; returns how many brackets there are.

    `brackets` BRACKET (`most_brackets(length)` or more,); `arguments` ARGUMENT (length or more,). Values are left to `evaluate`.
    """
    total = 0
    here = NO_BRACKET
    for at in range(length):
        token = tokens[at]
        if token == CLOSE:
            brackets[here]["end"] = at + 1
            here = brackets[here]["parent"]
            continue
        place = 0
        if here != NO_BRACKET:
            place = brackets[here]["count"]
            brackets[here]["count"] = place + 1
        if token >= OPEN:
            bracket = brackets[total]
            bracket["start"] = at
            bracket["count"] = 0
            bracket["parent"] = here
            bracket["place"] = place
            bracket["operator"] = token - OPEN
            here = total
            total += 1
    first = 0
    for b in range(total):
        brackets[b]["first"] = first
        first += brackets[b]["count"]
        brackets[b]["count"] = 0
    b = 0
    here = NO_BRACKET
    for at in range(length):
        token = tokens[at]
        if token == CLOSE:
            here = brackets[here]["parent"]
            continue
        if here != NO_BRACKET:
            around = brackets[here]
            argument = arguments[around["first"] + around["count"]]
            around["count"] += 1
            argument["start"] = at
            argument["end"] = at + 1
            argument["bracket"] = NO_BRACKET
            argument["digit"] = token
            if token >= OPEN:
                argument["end"] = brackets[b]["end"]
                argument["bracket"] = b
                argument["digit"] = 0
        if token >= OPEN:
            here = b
            b += 1
    return total


@jit
def leave_open(
    total: int,
    tokens: npt.NDArray[np.int8],
    brackets: npt.NDArray[Any],
    arguments: npt.NDArray[Any],
    modulus: int,
    rng: npt.NDArray[np.uint64],
) -> None:
    """Draw digits anew that decide a bracket's value whatever the brackets in it are, so that what lies deep counts."""
    for b in range(total):
        bracket = brackets[b]
        operator = bracket["operator"]
        first, end = bracket["first"], bracket["first"] + bracket["count"]
        inside = False
        for k in range(first, end):
            inside = inside or arguments[k]["bracket"] != NO_BRACKET
        if operator == SUM or not inside:
            continue
        decides = modulus - 1 if operator == MAX else 0
        for k in range(first, end):
            argument = arguments[k]
            if argument["bracket"] == NO_BRACKET and argument["digit"] == decides:
                argument["digit"] = below(rng, modulus - 1) + (operator == MIN)
                tokens[argument["start"]] = argument["digit"]


@jit
def hide_the_answer(
    tokens: npt.NDArray[np.int8], brackets: npt.NDArray[Any], arguments: npt.NDArray[Any], rng: npt.NDArray[np.uint64]
) -> None:
    """Make the outermost bracket, and brackets below it down to a digit that its own arguments do not show, SUM.

    That digit is uniform and independent of everything else, and so is the answer of everything that the outermost bracket's
    arguments show: a guess from there is right once in m times.
    """
    here = 0
    while True:
        brackets[here]["operator"] = SUM
        tokens[brackets[here]["start"]] = OPEN + SUM
        first, count = brackets[here]["first"], brackets[here]["count"]
        inside, digits = 0, 0
        for k in range(first, first + count):
            if arguments[k]["bracket"] == NO_BRACKET:
                digits += 1
            else:
                inside += 1
        if (here != 0 and digits > 0) or inside == 0:
            return
        pick = below(rng, inside)
        for k in range(first, first + count):
            if arguments[k]["bracket"] != NO_BRACKET:
                if pick == 0:
                    here = arguments[k]["bracket"]
                    break
                pick -= 1


@jit
def combine(operator: int, modulus: int, left: int, right: int) -> int:
    """The operator's value of two values."""
    if operator == SUM:
        return (left + right) % modulus
    if operator == MAX:
        return max(left, right)
    return min(left, right)


@jit
def neutral(operator: int, modulus: int) -> int:
    """The value that changes nothing."""
    return modulus - 1 if operator == MIN else 0


@jit
def evaluate(total: int, brackets: npt.NDArray[Any], arguments: npt.NDArray[Any], modulus: int) -> None:
    """Write every bracket's value: the ground truth."""
    for b in range(total - 1, -1, -1):
        bracket = brackets[b]
        bracket["value"] = value_of(bracket, 0, bracket["count"], brackets, arguments, modulus)


@jit
def value_of(bracket: Any, low: int, high: int, brackets: npt.NDArray[Any], arguments: npt.NDArray[Any], modulus: int) -> int:
    """The value of a bracket's arguments [low, high), given the values of the brackets among them."""
    operator = bracket["operator"]
    value = neutral(operator, modulus)
    for k in range(bracket["first"] + low, bracket["first"] + high):
        argument = arguments[k]
        inner = argument["bracket"]
        value = combine(operator, modulus, value, argument["digit"] if inner == NO_BRACKET else brackets[inner]["value"])
    return value


@splice
def make(
    tokens: npt.NDArray[np.int8],
    brackets: npt.NDArray[Any],
    arguments: npt.NDArray[Any],
    length: int,
    most_arguments: int,
    modulus: int,
    operators: int,
    capacity: npt.NDArray[np.int64],
    rng: npt.NDArray[np.uint64],
) -> int:
    """Generate a task of `length` tokens, with its index and values; returns how many brackets it has."""
    generate(tokens, length, most_arguments, modulus, operators, capacity, rng)
    total = index(tokens, length, brackets, arguments)
    hide_the_answer(tokens, brackets, arguments, rng)
    leave_open(total, tokens, brackets, arguments, modulus, rng)
    evaluate(total, brackets, arguments, modulus)
    return total
