"""The algebra family's configuration: expressions, values, slots, spaces and where the state lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rao_envs.algebra import kernels
from rao_envs.algebra.generator import NODE, RULES, arithmetic, rows_of, tree_of
from rao_envs.algebra.text import to_text, value_text
from rao_envs.algebra.tree import (
    ADD,
    CONST,
    DIFF,
    MUL,
    NEG,
    OP_NAMES,
    SCALE,
    SUB,
    SUBST,
    SYMBOL,
    SYMBOLS,
    Tree,
    operations,
    size,
    validate,
)
from rao_envs.algebra.tree import depth as depth_of
from rao_envs.core.arguments import whole_number
from rao_envs.core.domain import Domain

PRIMES = (2, 3, 5, 7, 11, 13)
MAX_RANDOM_DEPTH = 24
MAX_DEGREE = 4
MAX_SLOTS = 64
LABEL = 32
"""Characters of an expression that name a frame in trees and pictures."""


class AlgebraDomain(Domain):
    """Expressions over Z_p, computed value by value.

    Args:
        depth: operations from the root down to the deepest leaf of a random expression, 1 to 24; a pair (low, high) draws a depth for
            each episode, each equally likely.
        modulus: p, one of 2, 3, 5, 7, 11, 13.
        slots: values that a frame can hold (K), 2 to 64. Two are the least that an operation with two operands needs.
        substitution: whether random expressions have substitutions x := e.
        polynomial: whether values are polynomials of bounded degree in several symbols, and random expressions have products; otherwise
            they are linear forms a + b x.
        degree: highest total degree of a polynomial value, 1 to 4 (2 by default); linear forms have 1.
        symbols: how many of x, y, z there are (2 by default for polynomials); linear forms have 1.
        expressions: expressions of your own instead of random ones: a list of strings, or a path to a text file with one per line
            (`rao_envs.algebra.parser`). `depth` is ignored then.

    Raises:
        ValueError: a value out of range.
        rao_envs.algebra.parser.ExpressionError: an expression that cannot be used, with the line and column at fault.
    """

    has_dense = True
    verdicts = False
    shared = frozenset({"rules", "exponents", "product", "lower", "without", "given"})
    settled = frozenset({"nodes", "truth"})
    per_frame = frozenset({"frames", "digits", "slots", "values", "results"})

    def __init__(
        self,
        depth: int | Sequence[int] = 8,
        *,
        modulus: int = 5,
        slots: int = 2,
        substitution: bool = False,
        polynomial: bool = False,
        degree: int | None = None,
        symbols: int | None = None,
        expressions: Any = None,
    ) -> None:
        self.modulus = whole_number("modulus", modulus, 2, PRIMES[-1])
        if self.modulus not in PRIMES:
            raise ValueError(f"modulus must be one of {', '.join(map(str, PRIMES))}, got {modulus!r}")
        self.slots = whole_number("slots", slots, 2, MAX_SLOTS)
        self.substitution = flag("substitution", substitution)
        self.polynomial = flag("polynomial", polynomial)
        if not self.polynomial and not (degree in (None, 1) and symbols in (None, 1)):
            raise ValueError("linear forms have degree 1 and one symbol: pass polynomial=True for more")
        self.degree = whole_number("degree", (2 if self.polynomial else 1) if degree is None else degree, 1, MAX_DEGREE)
        self.symbols = whole_number("symbols", (2 if self.polynomial else 1) if symbols is None else symbols, 1, len(SYMBOLS))
        self.tables = arithmetic(self.symbols, self.degree)
        self.digits = len(self.tables.exponents)
        self.expressions: tuple[Tree, ...] = () if expressions is None else self._parse(expressions)
        if self.expressions:
            self.shallowest, self.deepest = (extreme(depth_of(tree) for tree in self.expressions) for extreme in (min, max))
            self.most_work = max(1, *(operations(tree) for tree in self.expressions))
            self.most_nodes = max(size(tree) for tree in self.expressions)
            self.options = frozenset({"expression"})
        else:
            self.shallowest, self.deepest = depth_range(depth)
            self.most_work = largest_work(self.deepest)
            self.most_nodes = 2 * self.most_work + 1
        self.name = "Algebra" + ("" if self.expressions else f"-depth{self.deepest}")
        self.primitives = (*(f"write_{digit}" for digit in range(self.modulus)), *kernels.MOVES)
        self.spawns = kernels.SPAWNS
        self.max_depth = max(0, self.deepest - 1)
        self.budget = int(kernels.steps_for.py_func(self.most_work, self.digits))  # type: ignore[attr-defined]
        self.fields = self._plan_fields()
        self.task_space = spaces.Box(0, 1, (self.fields["free"].stop,), np.int8)
        self.results_space = spaces.Box(-1, 1, (2,), np.int8)

    def skills(self) -> frozenset[str]:
        """The operations, by name, and "no operation" where an expression may be a bare number or symbol."""
        if self.expressions:
            found = {int(op) for tree in self.expressions for op in tree.op} - {CONST, SYMBOL}
            return frozenset(OP_NAMES[op] for op in found) | (frozenset() if self.shallowest else {"no operation"})
        further = ([SUBST] if self.substitution else []) + ([MUL] if self.polynomial else [])
        return frozenset(OP_NAMES[op] for op in (ADD, SUB, NEG, SCALE, DIFF, *further))

    def _plan_fields(self) -> dict[str, slice]:
        """Where the parts of a task observation lie; each is one-hot, `digits` of them side by side where a part holds values."""
        widths = {"op": kernels.OPERATIONS, "constant": self.modulus, "symbol": self.symbols if self.symbols > 1 else 0}
        for side in ("left", "right"):
            widths |= {
                f"{side}_status": kernels.STATUSES,
                f"{side}_value": self.digits * self.modulus,
                f"{side}_need": self.slots + 1,
            }
        widths |= {"position": self.digits, "written": (self.digits - 1) * self.modulus, "free": self.slots + 1}
        fields, at = {}, 0
        for name, width in widths.items():
            fields[name] = slice(at, at + width)
            at += width
        return fields

    def _parse(self, source: Any) -> tuple[Tree, ...]:
        from rao_envs.algebra.parser import parse_expressions

        trees = tuple(parse_expressions(source, self.modulus, self.degree, self.symbols, polynomial=self.polynomial))
        for tree in trees:
            validate(tree, self.modulus, self.symbols, self.degree)
        return trees

    def allocate(self, n: int, *, dense: bool) -> kernels.AlgebraState:
        """Room for `n` expressions."""
        rules = np.zeros(1, RULES)
        rules[0] = (
            self.modulus,
            self.degree,
            self.symbols,
            self.shallowest,
            self.deepest,
            self.most_work,
            self.substitution,
            self.polynomial,
        )
        given = np.zeros((len(self.expressions), self.most_nodes), NODE)
        for k, tree in enumerate(self.expressions):
            given[k, : size(tree)] = rows_of(tree)
            given["size"][k, 0] = size(tree)
        place = np.zeros(n, kernels.PLACE)
        place["asked"] = -1
        depths = self.max_depth + 1
        return kernels.AlgebraState(
            rules=rules,
            exponents=self.tables.exponents,
            product=self.tables.product,
            lower=self.tables.lower,
            without=self.tables.without,
            given=given,
            nodes=np.zeros((n, self.most_nodes), NODE),
            truth=np.zeros((n, self.most_nodes, self.digits), np.int8),
            place=place,
            first=np.full((n, self.most_nodes, self.digits), -1, np.int8),
            verdict=np.zeros((n, self.most_nodes), np.int8),
            frames=np.zeros((n, depths), kernels.FRAME),
            digits=np.zeros((n, depths, self.digits), np.int8),
            slots=np.full((n, depths, self.slots), -1, np.int16),
            values=np.zeros((n, depths, self.slots, self.digits), np.int8),
            results=np.zeros((n, depths, 2), np.int8),
        )

    def prepare(self, state: kernels.AlgebraState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"expression": k}` picks the k-th given expression; without it, any."""
        choice = options.get("expression")
        state.place["asked"][i] = -1 if choice is None else whole_number("expression", choice, 0, len(self.expressions) - 1)

    def merge(self, state: kernels.AlgebraState, i: int, child: kernels.AlgebraState) -> None:
        """What a child wrote in its own sub-tree, which its sibling never touches."""
        new = (state.verdict[i] == kernels.UNWRITTEN) & (child.verdict[0] != kernels.UNWRITTEN)
        state.verdict[i, new] = child.verdict[0, new]
        state.first[i, new] = child.first[0, new]
        state.place["right"][i] = int((state.verdict[i] == kernels.RIGHT_VALUE).sum())

    def question(self, state: kernels.AlgebraState, i: int, depth: int) -> str:
        """The frame's own expression, cut short."""
        text = to_text(tree_of(state.nodes[i]), int(state.frames[i, depth]["root"]))
        return text if len(text) <= LABEL else text[: LABEL - 3] + "..."

    def asked(self, state: kernels.AlgebraState, i: int) -> str:
        """The whole expression, and what it is worked out modulo."""
        return f"{to_text(tree_of(state.nodes[i]))}   (modulo {self.modulus})"

    def answer(self, state: kernels.AlgebraState, i: int, value: float) -> str:
        """The value that a frame wrote, as a polynomial."""
        rest, digits = int(value), []
        for _ in range(self.digits):
            rest, digit = divmod(rest, self.modulus)
            digits.append(digit)
        return value_text(digits, self.tables.exponents)

    def truth(self, state: kernels.AlgebraState, i: int) -> str:
        """The expression's value."""
        return value_text(state.truth[i, 0], self.tables.exponents)


def depth_range(depth: Any) -> tuple[int, int]:
    """`depth` as (shallowest, deepest); raises ValueError saying what is allowed."""
    pair = tuple(depth) if isinstance(depth, (tuple, list)) else (depth, depth)
    if len(pair) != 2:
        raise ValueError(f"depth must be an integer or a pair (low, high), got {depth!r}")
    low, high = (whole_number("depth", end, 1, MAX_RANDOM_DEPTH) for end in pair)
    if low > high:
        raise ValueError(f"depth must be a pair (low, high) with low <= high, got {depth!r}")
    return low, high


def largest_work(depth: int) -> int:
    """Operations that a random expression of this depth may have: larger ones, fewer than one in a hundred, are drawn anew."""
    return min((1 << depth) - 1, 3 * depth * depth // 4 + 8)


def flag(name: str, value: Any) -> bool:
    """`value` as a bool; raises ValueError naming the argument otherwise."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)
