"""Trees and values written as text: the inverse of the parser, and what pictures and terminals show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, SCALE, SUB, SUBST, SYMBOL, SYMBOLS, Tree, size

_TIGHT = frozenset({SYMBOL, DIFF, SUBST})  # need no brackets anywhere
# Which operations may stand as an operand without brackets, so that the parser gives back the same tree.
_BARE: dict[tuple[int, int], frozenset[int]] = {
    (ADD, 0): _TIGHT | {CONST, ADD, SUB, NEG, SCALE, MUL},
    (ADD, 1): _TIGHT | {CONST, SCALE, MUL},
    (NEG, 0): _TIGHT | {CONST, SCALE, MUL},
    (SCALE, 0): _TIGHT | {CONST, SCALE, MUL},
    (MUL, 0): _TIGHT | {MUL},  # a bare number would make it a multiple
    (MUL, 1): _TIGHT,
    (SUBST, 0): frozenset({SYMBOL, CONST, SUBST}),
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Written(NamedTuple):
    """An expression as text, with the place of every node in it."""

    text: str
    spans: npt.NDArray[np.int64]  # (m, 2) index of the first character of each sub-expression and of the one after its last


def to_text(tree: Tree, node: int = 0) -> str:
    """The sub-expression at `node` in the parser's grammar; parsing it gives that sub-tree back exactly."""
    return write(tree, node).text


def write(tree: Tree, node: int = 0) -> Written:
    """As `to_text`, with the place of every node; the spans of nodes outside the sub-expression are (0, 0)."""
    spans = np.zeros((size(tree), 2), np.int64)
    parts: list[str] = []
    length = 0
    pending: list[str | tuple[int, bool]] = [(node, False)]  # what is still to be written, the next last: text, or (node, its end)
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            length += len(item)
            continue
        at, ends = item
        spans[at, int(ends)] = length
        if not ends:
            pending.append((at, True))
            pending.extend(reversed(_parts(tree, at)))
    return Written("".join(parts), spans)


def _parts(tree: Tree, node: int) -> list[str | tuple[int, bool]]:
    """What the text of `node` is made of: texts and operands."""
    op, arg, left, right = (int(column[node]) for column in (tree.op, tree.arg, tree.left, tree.right))

    def operand(child: int, side: int) -> list[str | tuple[int, bool]]:
        bare = tree.op[child] in _BARE[ADD if op == SUB else op, side]
        return [(child, False)] if bare else ["(", (child, False), ")"]

    if op == CONST:
        return [str(arg)]
    if op == SYMBOL:
        return [SYMBOLS[arg]]
    if op == NEG:
        return ["-", *operand(left, 0)]
    if op == SCALE:
        return [f"{arg}*", *operand(left, 0)]
    if op == DIFF:
        return [f"d/d{SYMBOLS[arg]}(", (left, False), ")"]
    if op == SUBST:
        return [*operand(left, 0), f"[{SYMBOLS[arg]} := ", (right, False), "]"]
    return [*operand(left, 0), {ADD: " + ", SUB: " - ", MUL: "*"}[op], *operand(right, 1)]


def operator_text(tree: Tree, node: int) -> str:
    """What one node alone is called in pictures: `+`, `d/dx`, `x :=`, a factor with its sign, or the leaf itself."""
    op, arg = int(tree.op[node]), int(tree.arg[node])
    if op == CONST:
        return str(arg)
    if op == SCALE:
        return f"{arg}×"  # noqa: RUF001  the sign for a product
    if op in (SYMBOL, DIFF, SUBST):
        return {SYMBOL: "{}", DIFF: "d/d{}", SUBST: "{} :="}[op].format(SYMBOLS[arg])
    return {ADD: "+", SUB: "−", NEG: "neg", MUL: "×"}[op]  # noqa: RUF001  likewise


def value_text(digits: Sequence[int] | npt.NDArray[np.int8], exponents: npt.NDArray[np.integer]) -> str:
    """A value as people write it, for example `2 + 3x`; one that is not complete ends in what is to come, `2 + _x`.

    Args:
        digits: coefficients in [0, p), of the first so many monomials; negative ones count as missing.
        exponents: (digits, symbols), the powers of each monomial.
    """
    known = [int(digit) for digit in digits if digit >= 0]
    terms = []
    for digit, powers in zip(known, exponents.tolist(), strict=False):
        monomial = _monomial(powers)
        if digit:
            terms.append(("" if digit == 1 and monomial else str(digit)) + monomial)
    missing = exponents.tolist()[len(known) :]
    terms += ["_" + _monomial(powers) for powers in missing] if len(missing) <= 2 else ["_" + _monomial(missing[0]), "..."]
    return " + ".join(terms) or "0"


def _monomial(powers: list[int]) -> str:
    """A product of powers, without a sign between them."""
    shown = ((name, power) for name, power in zip(SYMBOLS, powers, strict=False) if power)
    return "".join(name + ("" if power == 1 else str(power).translate(_SUPERSCRIPTS)) for name, power in shown)
