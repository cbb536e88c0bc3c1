"""Expressions as short strings of byte tokens, in prefix order: what the state holds, and what can be read off without SymPy.

An expression is a `bytes` of at most a few hundred tokens. Sums and products have any number of operands and end with `CLOSE`; powers
have two operands, functions and derivatives one. Small integers are one token, others a sign and four digits, fractions `RATIO` and
two integers. `analyse` finds every node of such a string, and what its structure alone says about it: whether it is a polynomial that
is multiplied out, what stands in the way of that, and where there is work below it.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import NamedTuple

PAD, CLOSE, ADD, MUL, POW, SIN, COS, TAN, EXP, LOG, RATIO = range(11)
DERIVATIVE = 11  # with respect to the first symbol; then the second and the third
SYMBOL = 14  # the first symbol; then the second and the third
BIG, BIG_NEGATIVE = 17, 18  # followed by DIGITS digit tokens
DIGIT = 19
INTEGER = 45  # the integer 0; smaller and larger ones beside it
SMALL = 16  # |integers| of one token
DIGITS = 4
LARGEST = 10**DIGITS - 1
VOCABULARY = INTEGER + SMALL + 1

SYMBOLS = ("x", "y", "z")
FUNCTIONS = {SIN: "sin", COS: "cos", TAN: "tan", EXP: "exp", LOG: "log"}
TRIGONOMETRIC = (SIN, COS, TAN)

MONOMIAL, POLYNOMIAL, OTHER = range(3)
"""Kinds of node: a product of a number and powers of symbols; a sum of such; anything else."""

HAS_SUM, HAS_PRODUCT, HAS_INVERSE, HAS_TRIG, HAS_LOG, HAS_POWER, HAS_DERIVATIVE = (1 << k for k in range(7))
"""What occurs in a node: a sum; a product or power of sums; a negative power; sines and the like; a logarithm; exp or a symbolic
exponent; a derivative."""

MAX_EXPONENT = 12
UNBOUNDED = 10**6
MAX_TERMS = 64
"""With more, multiplying out is refused: so that no rule runs for long, whatever it is given."""


class UnrepresentableError(ValueError):
    """An expression that has no token string: too long, a number too large, or made of something else."""


def integer_tokens(value: int) -> bytes:
    """The tokens of an integer; raises UnrepresentableError beyond four digits."""
    if abs(value) <= SMALL:
        return bytes((INTEGER + value,))
    if abs(value) > LARGEST:
        raise UnrepresentableError(f"integers have at most {DIGITS} digits, got {value if abs(value) < 10**12 else 'a larger one'}")
    return bytes((BIG if value > 0 else BIG_NEGATIVE, *(DIGIT + int(digit) for digit in f"{abs(value):0{DIGITS}d}")))


def read_integer(tokens: bytes, at: int) -> tuple[int, int] | None:
    """The integer that begins at `at` and where it ends; None if none does."""
    token = tokens[at]
    if INTEGER - SMALL <= token <= INTEGER + SMALL:
        return token - INTEGER, at + 1
    if token in (BIG, BIG_NEGATIVE):
        end = at + 1 + DIGITS
        value = int("".join(str(digit - DIGIT) for digit in tokens[at + 1 : end]))
        return (value if token == BIG else -value), end
    return None


# -- Writing ----------------------------------------------------------------------------------------------------------------------


def total(*terms: bytes) -> bytes:
    """A sum's token string, as it stands."""
    return bytes((ADD,)) + b"".join(terms) + bytes((CLOSE,))


def product(*factors: bytes) -> bytes:
    """A product's token string, as it stands."""
    return bytes((MUL,)) + b"".join(factors) + bytes((CLOSE,))


def power(base: bytes, exponent: bytes) -> bytes:
    """A power's token string, as it stands."""
    return bytes((POW,)) + base + exponent


def call(function: int, argument: bytes) -> bytes:
    """The token string of a function or a derivative, as it stands."""
    return bytes((function,)) + argument


# -- Reading ----------------------------------------------------------------------------------------------------------------------


class Node(NamedTuple):
    """One sub-expression and what its structure says."""

    start: int
    end: int  # exclusive
    parent: int  # start of the parent; -1 for the whole expression
    order: int  # which of the parent's operands
    children: tuple[int, ...]  # starts of the operands; none for symbols and numbers
    kind: int  # MONOMIAL, POLYNOMIAL or OTHER
    solid: bool  # whether by its own operator it may become a polynomial: a sum, product, positive power or derivative without functions
    obstacles: int  # nodes in it that no multiplied-out polynomial has
    terms: int  # a bound on its terms, multiplied out over a common denominator, and
    under: int  # on the terms of that denominator
    most: int  # the largest of either in any part of it
    flags: int  # HAS_...
    parts: tuple[int, ...]  # starts of the nearest solid nodes below it that are not multiplied out

    @property
    def expanded(self) -> bool:
        """Whether it is a polynomial with rational coefficients, multiplied out."""
        return self.kind != OTHER

    @property
    def atom(self) -> bool:
        """Whether it is a symbol or a number."""
        return not self.children


@lru_cache(maxsize=8192)
def analyse(tokens: bytes) -> dict[int, Node]:
    """Every node of a token string by its start; 0 is the whole."""
    nodes: dict[int, Node] = {}
    _Reader(tokens, nodes).read(0, -1, 0)
    return nodes


class _Reader:
    """Reads nodes recursively; the depth of token strings is bounded by their length."""

    def __init__(self, tokens: bytes, nodes: dict[int, Node]) -> None:
        self.tokens, self.nodes = tokens, nodes

    def read(self, at: int, parent: int, order: int) -> Node:
        """The node that begins at `at`."""
        token = self.tokens[at]
        if token == RATIO:
            first = read_integer(self.tokens, at + 1)
            second = None if first is None else read_integer(self.tokens, first[1])
            assert second is not None
            return self.leaf(at, second[1], parent, order)
        number = read_integer(self.tokens, at)
        if number is not None:
            return self.leaf(at, number[1], parent, order)
        if SYMBOL <= token < SYMBOL + len(SYMBOLS):
            return self.leaf(at, at + 1, parent, order)
        children: list[Node] = []
        end = at + 1
        wanted = 2 if token == POW else 1
        while self.tokens[end] != CLOSE if token in (ADD, MUL) else len(children) < wanted:
            children.append(self.read(end, at, len(children)))
            end = children[-1].end
        if token in (ADD, MUL):
            end += 1
        node = self.inner(token, at, end, parent, order, children)
        self.nodes[at] = node
        return node

    def leaf(self, start: int, end: int, parent: int, order: int) -> Node:
        self.nodes[start] = node = Node(start, end, parent, order, (), MONOMIAL, False, 0, 1, 1, 1, 0, ())
        return node

    def inner(self, token: int, start: int, end: int, parent: int, order: int, children: list[Node]) -> Node:
        kind, obstacles, flags, solid, terms, under = OTHER, 0, 0, False, 1, 1
        if token == ADD:
            kind = POLYNOMIAL if all(child.kind == MONOMIAL for child in children) else OTHER
            flags, solid = HAS_SUM, True
            for child in children:
                under *= child.under
            terms = under * sum(child.terms for child in children)
        elif token == MUL:
            kind = MONOMIAL if all(self.is_factor(child) for child in children) else OTHER
            obstacles = int(any(child.kind != MONOMIAL for child in children))
            flags = HAS_PRODUCT if obstacles else 0
            solid = all(self.is_number(child) or child.atom or child.solid for child in children)
            for child in children:
                terms, under = terms * child.terms, under * child.under
        elif token == POW:
            kind, obstacles, flags, solid, terms, under = self.power(*children)
        elif token >= DERIVATIVE:
            obstacles, flags, solid = 1, HAS_DERIVATIVE, True
            terms, under = 2 * children[0].terms * children[0].under, children[0].under ** 2
        else:
            obstacles = 1
            flags = HAS_TRIG if token in TRIGONOMETRIC else HAS_LOG if token == LOG else HAS_POWER
        parts: tuple[int, ...] = ()
        terms, under = min(terms, UNBOUNDED), min(under, UNBOUNDED)
        most = max(terms, under)
        for child in children:
            obstacles += child.obstacles
            flags |= child.flags
            most = max(most, child.most)
            parts += (child.start,) if child.solid and not child.expanded else child.parts
        places = tuple(child.start for child in children)
        return Node(start, end, parent, order, places, kind, solid, obstacles, terms, under, most, flags, parts)

    def power(self, base: Node, exponent: Node) -> tuple[int, int, int, bool, int, int]:
        """Kind, obstacles, flags, solid, terms and the denominator's terms of a power."""
        number = read_integer(self.tokens, exponent.start)
        if number is None:
            symbolic = self.tokens[exponent.start] != RATIO
            return OTHER, 1, HAS_POWER if symbolic else 0, False, 1, 1
        value = number[0]
        terms, under = (_power_terms(part, abs(value)) for part in (base.terms, base.under))
        if value <= 0:
            return OTHER, 1, HAS_INVERSE, False, under, terms
        if SYMBOL <= self.tokens[base.start] < SYMBOL + len(SYMBOLS):
            return MONOMIAL, 0, 0, True, 1, 1
        return OTHER, 1, HAS_PRODUCT, base.solid, terms, under

    def is_number(self, node: Node) -> bool:
        token = self.tokens[node.start]
        return token == RATIO or token >= BIG

    def is_factor(self, node: Node) -> bool:
        return node.kind == MONOMIAL and self.tokens[node.start] != MUL


def _power_terms(terms: int, exponent: int) -> int:
    """A bound on the terms of a power of something with that many."""
    if terms == 1:
        return 1
    return UNBOUNDED if exponent > MAX_EXPONENT else min(UNBOUNDED, comb(min(terms, 1000) + exponent - 1, exponent))


def top(tokens: bytes) -> Node:
    """The whole expression's node."""
    return analyse(tokens)[0]


def sub_expression(tokens: bytes, at: int) -> bytes:
    """The tokens of the node that begins at `at`."""
    return tokens[at : analyse(tokens)[at].end]
