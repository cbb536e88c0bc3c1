"""The named rules, one table; the forms that goals ask for; both answered from bounded caches.

A rule is applied to the whole sub-expression at the cursor. It is refused, without calling SymPy, where nothing in the sub-expression
is its business, or where multiplying out would give more than MAX_TERMS terms: with a bounded input and a bounded output, no call can
run for long, and none is ever timed, so that results depend on nothing but the expression.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from rao_envs.rewrite.bridge import canonical, decode, encode, symbols, sympy
from rao_envs.rewrite.tokens import (
    ADD,
    DERIVATIVE,
    HAS_DERIVATIVE,
    HAS_INVERSE,
    HAS_LOG,
    HAS_POWER,
    HAS_PRODUCT,
    HAS_SUM,
    HAS_TRIG,
    MAX_TERMS,
    MONOMIAL,
    MUL,
    OTHER,
    POLYNOMIAL,
    POW,
    SYMBOL,
    SYMBOLS,
    Node,
    UnrepresentableError,
    analyse,
    read_integer,
    top,
)

CACHE_SIZE = 32_768
"""Rule applications that are remembered, the least recently used forgotten first: some tens of megabytes at most."""

LARGEST_FORM = 96
"""Tokens beyond which an expression is not recognised as factored or as one fraction: the check costs a call of SymPy."""


class Rule(NamedTuple):
    """One named rule."""

    name: str
    function: Callable[[Any], Any]
    needs: int  # flags of which one must occur in the sub-expression; 0: none
    refuses: int  # flags of which none may occur: the rule is about rational functions, and SymPy's would do the work of others as well
    root: int  # the operator that the cursor must be on: ADD, DERIVATIVE (any), or 0 for any
    slow: bool  # hundreds of milliseconds a call: only on request
    what: str  # one line for people


def _collect(expression: Any) -> Any:
    free = [symbol for symbol in symbols() if symbol in expression.free_symbols]
    return sympy().collect(expression, free[0]) if free else expression


def _apart(expression: Any) -> Any:
    free = [symbol for symbol in symbols() if symbol in expression.free_symbols]
    return sympy().apart(expression, free[0]) if len(free) == 1 else expression


def _fu(name: str) -> Callable[[Any], Any]:
    return lambda expression: getattr(importlib.import_module("sympy.simplify.fu"), name)(expression)


def _of_sympy(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda expression: getattr(sympy(), name)(expression, **options)


ALGEBRAIC = {"power_base": False, "power_exp": False, "log": False, "basic": False}

NOT_RATIONAL = HAS_TRIG | HAS_LOG | HAS_POWER | HAS_DERIVATIVE

RULES = (
    Rule("expand", _of_sympy("expand", **ALGEBRAIC), HAS_PRODUCT, 0, 0, False, "multiply products and powers out"),
    Rule("factor", _of_sympy("factor"), HAS_SUM, NOT_RATIONAL, 0, False, "factor over the rational numbers"),
    Rule("collect", _collect, HAS_SUM, NOT_RATIONAL, ADD, False, "collect powers of the first symbol that occurs"),
    Rule("cancel", _of_sympy("cancel"), HAS_INVERSE, NOT_RATIONAL, 0, False, "one fraction in lowest terms"),
    Rule("together", _of_sympy("together"), HAS_INVERSE, NOT_RATIONAL, 0, False, "one fraction, nothing multiplied out"),
    Rule("apart", _apart, HAS_INVERSE, NOT_RATIONAL, 0, False, "partial fractions, of one symbol"),
    Rule("diff", lambda expression: expression.doit(deep=False), HAS_DERIVATIVE, 0, DERIVATIVE, False, "differentiate"),
    Rule("pythagoras", _fu("TR5"), HAS_TRIG, 0, 0, False, "sin(a)**2 becomes 1 - cos(a)**2"),
    Rule("expand_trig", _of_sympy("expand_trig"), HAS_TRIG, 0, 0, False, "sines and cosines of sums and multiples, expanded"),
    Rule("product_to_sum", _fu("TR8"), HAS_TRIG, 0, 0, False, "products of sines and cosines become sums"),
    Rule("expand_log", _of_sympy("expand_log", force=True), HAS_LOG, 0, 0, False, "logarithms of products and powers, expanded"),
    Rule("logcombine", _of_sympy("logcombine", force=True), HAS_LOG, 0, 0, False, "sums of logarithms become one"),
    Rule("expand_power", _of_sympy("expand_power_base", force=True), HAS_POWER, 0, 0, False, "(a*b)**c becomes a**c * b**c"),
    Rule("powsimp", _of_sympy("powsimp", force=True), HAS_POWER, 0, 0, False, "powers of one base or one exponent become one"),
    Rule("trigsimp", _of_sympy("trigsimp"), HAS_TRIG, 0, 0, True, "SymPy's search for the shortest trigonometric form"),
    Rule("simplify", _of_sympy("simplify"), 0, 0, 0, True, "SymPy's search for the shortest form"),
)
BY_NAME = {rule.name: rule for rule in RULES}
DEFAULT_RULES = tuple(rule.name for rule in RULES if not rule.slow)


def applicable(rule: Rule, token: int, node: Node) -> bool:
    """Whether something in the node (whose first token is `token`) is this rule's business."""
    if rule.root and (token < DERIVATIVE or token >= SYMBOL if rule.root == DERIVATIVE else token != rule.root):
        return False
    return not node.atom and not node.flags & rule.refuses and (not rule.needs or bool(node.flags & rule.needs))


@lru_cache(maxsize=CACHE_SIZE)
def apply(name: str, tokens: bytes) -> bytes | None:
    """What rule `name` makes of a canonical expression; None where it changes nothing or its result cannot be held."""
    rule, node = BY_NAME[name], top(tokens)
    if not applicable(rule, tokens[0], node) or node.most > MAX_TERMS:
        return None
    try:
        result = canonical(encode(rule.function(decode(tokens))))
    except (UnrepresentableError, NotImplementedError, sympy().PolynomialError):
        return None
    return None if result == tokens else result


# -- Forms ------------------------------------------------------------------------------------------------------------------------

FORMS = ("expanded", "factored", "fraction", "derivative_free")
"""What a frame may be asked for: a polynomial, multiplied out; a product of irreducible polynomials; one fraction of two such
polynomials in lowest terms; anything without a derivative."""
EXPANDED, FACTORED, FRACTION, DERIVATIVE_FREE = range(len(FORMS))


@lru_cache(maxsize=CACHE_SIZE)
def has_form(form: int, tokens: bytes) -> bool:
    """Whether a canonical expression has one of FORMS."""
    node = top(tokens)
    if form == EXPANDED:
        return node.expanded
    if form == DERIVATIVE_FREE:
        return not node.flags & HAS_DERIVATIVE
    if node.kind == MONOMIAL:
        return True
    if len(tokens) > LARGEST_FORM or node.most > MAX_TERMS:
        return False
    return _is_factored(tokens, node) if form == FACTORED else node.expanded or _is_fraction(tokens, node)


def _is_factored(tokens: bytes, node: Node) -> bool:
    nodes = analyse(tokens)
    for start in node.children if tokens[0] == MUL else (0,):
        base = nodes[start]
        if tokens[start] == POW:
            number = read_integer(tokens, nodes[base.children[1]].start)
            if number is None or number[0] < 1:
                return False
            base = nodes[base.children[0]]
        if base.kind == OTHER or (base.kind == POLYNOMIAL and not irreducible(tokens[base.start : base.end])):
            return False
    return True


@lru_cache(maxsize=CACHE_SIZE)
def irreducible(tokens: bytes) -> bool:
    """Whether a polynomial, multiplied out, has no factors but numbers and itself."""
    _, factors = sympy().factor_list(decode(tokens))
    return len(factors) == 1 and factors[0][1] == 1


def _is_fraction(tokens: bytes, node: Node) -> bool:
    """A product of powers of symbols, at most one polynomial and at most one polynomial's inverse, that `cancel` leaves alone."""
    nodes = analyse(tokens)
    sums = inverses = 0
    for start in node.children if tokens[0] == MUL else (0,):
        factor = nodes[start]
        if factor.kind == MONOMIAL:
            continue
        if factor.kind == POLYNOMIAL:
            sums += 1
            continue
        if tokens[start] != POW:
            return False
        base, number = nodes[factor.children[0]], read_integer(tokens, factor.children[1])
        if number is None or base.kind == OTHER:
            return False
        if SYMBOL <= tokens[base.start] < SYMBOL + len(SYMBOLS):
            continue
        if number[0] != -1:
            return False
        inverses += 1
    return sums <= 1 and inverses <= 1 and apply("cancel", tokens) is None
