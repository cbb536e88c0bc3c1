"""Random expression trees of exact depth, and what is true of any tree: its nodes' values, sizes and slots. Compiled.

Trees are rows of NODE records in the pre-order of `rao_envs.algebra.tree`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, NO_NODE, SCALE, SUB, SUBST, SYMBOL, Tree, monomials
from rao_envs.core.jit import inline, jit
from rao_envs.core.rng import below, uniform

NODE = np.dtype(
    [
        ("op", np.int8),  # CONST .. MUL
        ("need", np.int8),  # value slots that computing it in place takes in the best order; 0 for leaves
        ("left", np.int16),  # operands, or NO_NODE
        ("right", np.int16),
        ("parent", np.int16),  # NO_NODE for the root
        ("arg", np.int16),  # the constant, or the symbol's index
        ("size", np.int16),  # nodes of its sub-tree
        ("work", np.int16),  # operations of its sub-tree: values to be computed
    ],
    align=True,
)

RULES = np.dtype(
    [
        ("modulus", np.int32),
        ("degree", np.int32),
        ("symbols", np.int32),
        ("shallowest", np.int32),  # a tree's depth is drawn between these two
        ("deepest", np.int32),
        ("most_work", np.int32),  # operations a tree may have
        ("substitution", np.bool_),
        ("products", np.bool_),
    ],
    align=True,
)
"""What trees are made of."""

BRANCHING = 0.5
"""Chance that an operation has two operands."""
DERIVATIVES = 0.2
"""Chance that one with a single operand is a derivative: they forget much of what is below them, and more would make guessing pay."""
SYMBOL_SHARE = 0.6
"""Chance that a leaf is a symbol, where the degree leaves a choice."""


class Arithmetic(NamedTuple):
    """Tables of the monomials that digits stand for (`rao_envs.algebra.tree.monomials`)."""

    exponents: npt.NDArray[np.int8]  # (digits, symbols)
    product: npt.NDArray[np.int8]  # (digits, digits) index of the product; -1: beyond the degree
    lower: npt.NDArray[np.int8]  # (digits, symbols) index of the monomial divided by the symbol; -1: not divisible
    without: npt.NDArray[np.int8]  # (digits, symbols) index of the monomial without the symbol's power


def arithmetic(symbols: int, degree: int) -> Arithmetic:
    """The tables for values of total degree up to `degree` in that many symbols."""
    exponents = monomials(symbols, degree)
    index = {tuple(powers): k for k, powers in enumerate(exponents.tolist())}
    digits = len(exponents)
    product = np.array([[index.get(tuple(a + b), -1) for b in exponents] for a in exponents], np.int8)
    lower, without = np.full((digits, symbols), -1, np.int8), np.zeros((digits, symbols), np.int8)
    for k, powers in enumerate(exponents):
        for symbol in range(symbols):
            step = np.arange(symbols) == symbol
            lower[k, symbol] = index.get(tuple(powers - step), -1)
            without[k, symbol] = index[tuple(powers * ~step)]
    return Arithmetic(exponents.astype(np.int8), product, lower, without)


def rows_of(tree: Tree) -> npt.NDArray[Any]:
    """`tree` as NODE records (m,), with everything but `op`, `left`, `right` and `arg` still to be filled in by `measure`."""
    rows = np.zeros(len(tree.op), NODE)
    for name, column in zip(Tree._fields, tree, strict=True):
        rows[name] = column
    return rows


def tree_of(rows: npt.NDArray[Any]) -> Tree:
    """The tree in `rows`, NODE (at least its size,): a copy."""
    count = int(rows["size"][0])
    return Tree(*(rows[name][:count].copy() for name in Tree._fields))


@inline
def draw_operation(rules: Any, rng: npt.NDArray[np.uint64], cap: int) -> int:
    """An operation for a value of degree at most `cap`."""
    if uniform(rng) >= BRANCHING:
        if uniform(rng) < DERIVATIVES:
            return DIFF
        return NEG if below(rng, 2) == 0 else SCALE
    # At degree 0 products and substitutions would be multiples of constants under another name.
    products = 1 if rules["products"] and cap > 0 else 0
    substitutions = 1 if rules["substitution"] and cap > 0 else 0
    kind = below(rng, 2 + products + substitutions)
    return ADD if kind == 0 else SUB if kind == 1 else MUL if kind == 2 and products == 1 else SUBST


@jit
def grow(rules: Any, rng: npt.NDArray[np.uint64], depth: int, rows: npt.NDArray[Any], plan: npt.NDArray[np.int16]) -> bool:
    """Write one random tree of exactly `depth` into `rows`; False if it came out larger than the rules allow.

    One operand of each operation is exactly one less deep, the other anything from a leaf to that. Degrees are dealt out from the
    root down, so that no value can exceed the rules'.

    Args:
        rules: RULES record.
        rng: uint64 (1,), advances.
        depth: at least 1.
        rows: NODE (2 * most_work + 1,) at least.
        plan: int16 (deepest + 2, 4) scratch.
    """
    modulus, symbols = rules["modulus"], rules["symbols"]
    plan[0, 0], plan[0, 1], plan[0, 2], plan[0, 3] = depth, rules["degree"], NO_NODE, 0
    waiting, node, work = 1, 0, 0
    while waiting > 0:
        waiting -= 1
        level, cap, parent, second = plan[waiting, 0], plan[waiting, 1], plan[waiting, 2], plan[waiting, 3]
        row = rows[node]
        row["left"] = NO_NODE
        row["right"] = NO_NODE
        row["arg"] = 0
        if second == 1:
            rows[parent]["right"] = node
        if level == 0:
            if cap > 0 and uniform(rng) < SYMBOL_SHARE:
                row["op"] = SYMBOL
                row["arg"] = below(rng, symbols)
            else:
                row["op"] = CONST
                row["arg"] = 1 + below(rng, modulus - 1)
            node += 1
            continue
        work += 1
        if work > rules["most_work"]:
            return False
        op = draw_operation(rules, rng, cap)
        row["op"] = op
        row["left"] = node + 1
        if op == SCALE:
            row["arg"] = 2 + below(rng, modulus - 2) if modulus > 2 else 1
        elif op in (DIFF, SUBST):
            row["arg"] = below(rng, symbols)
        if op in (NEG, SCALE, DIFF):
            plan[waiting, 0] = level - 1
            plan[waiting, 1] = min(cap + 1, rules["degree"]) if op == DIFF else cap
            plan[waiting, 2], plan[waiting, 3] = node, 0
            waiting += 1
            node += 1
            continue
        left_cap, right_cap = cap, cap
        if op == MUL:
            left_cap = below(rng, cap + 1)
            right_cap = cap - left_cap
        elif op == SUBST:
            right_cap = 1 + below(rng, cap)
            left_cap = cap // right_cap
        other = below(rng, level)
        deep_right = below(rng, 2) == 1
        plan[waiting, 0] = level - 1 if deep_right else other
        plan[waiting, 1], plan[waiting, 2], plan[waiting, 3] = right_cap, node, 1
        plan[waiting + 1, 0] = other if deep_right else level - 1
        plan[waiting + 1, 1], plan[waiting + 1, 2], plan[waiting + 1, 3] = left_cap, node, 0
        waiting += 2
        node += 1
    rows[0]["size"] = node
    return True


@inline
def combine(tables: Arithmetic, modulus: int, row: Any, left: Any, right: Any, value: Any) -> None:
    """`value` = the operation of `row` on the operands' values `left` and `right`, each int8 (digits,); `value` is another array."""
    digits = value.shape[0]
    op, arg = row["op"], row["arg"]
    for k in range(digits):
        value[k] = 0
    if op in (ADD, SUB):
        for k in range(digits):
            value[k] = (left[k] + (right[k] if op == ADD else modulus - right[k])) % modulus
    elif op == NEG:
        for k in range(digits):
            value[k] = (modulus - left[k]) % modulus
    elif op == SCALE:
        for k in range(digits):
            value[k] = (arg * left[k]) % modulus
    elif op == DIFF:
        for k in range(digits):
            if tables.lower[k, arg] >= 0:
                value[tables.lower[k, arg]] = (tables.exponents[k, arg] * left[k]) % modulus
    elif op == MUL:
        for a in range(digits):
            for b in range(digits):
                k = tables.product[a, b]
                if k >= 0:
                    value[k] = (value[k] + left[a] * right[b]) % modulus


@jit
def substitute(tables: Arithmetic, modulus: int, symbol: int, body: Any, right: Any, value: Any, scratch: Any) -> None:
    """`value` = `body` with `symbol` replaced by `right`, each int8 (digits,), by Horner's rule in the symbol; `scratch` is another."""
    digits = value.shape[0]
    value[:] = 0
    for power in range(tables.exponents[digits - 1].max(), -1, -1):
        scratch[:] = value
        value[:] = 0
        for a in range(digits):
            for b in range(digits):
                k = tables.product[a, b]
                if k >= 0:
                    value[k] = (value[k] + scratch[a] * right[b]) % modulus
        for k in range(digits):
            if tables.exponents[k, symbol] == power:
                rest = tables.without[k, symbol]
                value[rest] = (value[rest] + body[k]) % modulus


@jit
def measure(tables: Arithmetic, modulus: int, count: int, rows: npt.NDArray[Any], truth: npt.NDArray[np.int8]) -> None:
    """Fill in the other fields of the tree of `count` nodes in `rows`, and its nodes' values in `truth`, int8 (at least count, digits)."""
    digits = truth.shape[1]
    scratch = np.zeros(digits, np.int8)
    rows[0]["parent"] = NO_NODE
    for node in range(count - 1, -1, -1):
        row = rows[node]
        op, left, right = row["op"], row["left"], row["right"]
        row["size"], row["work"], row["need"] = 1, 0, 0
        if left == NO_NODE:
            for k in range(digits):
                truth[node, k] = 0
            if op == CONST:
                truth[node, 0] = row["arg"]
            else:
                truth[node, 1 + row["arg"]] = 1  # of degree 1, the monomials are the symbols in order
            continue
        row["work"] = 1
        first, other = rows[left]["need"], 0
        for operand in (left, right):
            if operand != NO_NODE:
                rows[operand]["parent"] = node
                row["size"] += rows[operand]["size"]
                row["work"] += rows[operand]["work"]
        if right != NO_NODE:
            other = rows[right]["need"]
        row["need"] = first + 1 if first == other and first > 0 else max(1, first, other)
        second = right if right != NO_NODE else left
        if op == SUBST:
            substitute(tables, modulus, row["arg"], truth[left], truth[second], truth[node], scratch)
        else:
            combine(tables, modulus, row, truth[left], truth[second], truth[node])
