"""Between token strings and SymPy, which is imported at the first use and not before.

Symbols stand for positive real numbers, so that the laws of logarithms and powers hold. A token string is canonical when it is what
its SymPy expression gives back: sums and products are put in the order of their operands' tokens, so that neither SymPy's own order nor
any hash decides what a window shows.
"""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any

from rao_envs.rewrite.tokens import (
    ADD,
    CLOSE,
    DERIVATIVE,
    EXP,
    FUNCTIONS,
    INTEGER,
    LARGEST,
    MAX_EXPONENT,
    MUL,
    POW,
    RATIO,
    SYMBOL,
    SYMBOLS,
    UnrepresentableError,
    analyse,
    integer_tokens,
    read_integer,
)

MAX_TOKENS = 1024
"""The longest string that is ever written; a family's capacity is smaller."""


@cache
def sympy() -> Any:
    """SymPy, imported now if it was not before."""
    return importlib.import_module("sympy")


@cache
def symbols() -> tuple[Any, ...]:
    """The symbols x, y and z."""
    return tuple(sympy().symbols(" ".join(SYMBOLS)))


@cache
def _function(token: int) -> Any:
    return getattr(sympy(), FUNCTIONS[token])


@cache
def _function_tokens() -> dict[Any, int]:
    return {_function(token): token for token in FUNCTIONS}


def build(token: int, operands: list[Any]) -> Any:
    """The SymPy expression of one operator over evaluated operands.

    Raises:
        UnrepresentableError: a number is too large to go on with (`encode` raises it for what is infinite or complex).
    """
    sp = sympy()
    if token == ADD:
        result = sp.Add(*operands)
    elif token == MUL:
        result = sp.Mul(*operands)
    elif token == POW:
        base, exponent = operands
        _check_exponent(exponent)
        result = sp.Pow(base, exponent)
    elif token in FUNCTIONS:
        result = _function(token)(operands[0])
    else:
        result = sp.Derivative(operands[0], symbols()[token - DERIVATIVE])
    if result.is_Rational and max(abs(result.p), result.q) > LARGEST:
        raise UnrepresentableError("a number is too large")
    return result


def _check_exponent(exponent: Any) -> None:
    if exponent.is_Rational and max(abs(exponent.p), exponent.q) > MAX_EXPONENT:
        raise UnrepresentableError(f"exponents go up to {MAX_EXPONENT}")


@lru_cache(maxsize=8192)
def decode(tokens: bytes) -> Any:
    """The SymPy expression of a token string, evaluated from the inside out; raises UnrepresentableError."""
    nodes = analyse(tokens)
    token = tokens[0]
    if token == RATIO:
        numerator = read_integer(tokens, 1)
        assert numerator is not None
        denominator = read_integer(tokens, numerator[1])
        assert denominator is not None
        return sympy().Rational(numerator[0], denominator[0])
    number = read_integer(tokens, 0)
    if number is not None:
        return sympy().Integer(number[0])
    if SYMBOL <= token < SYMBOL + len(SYMBOLS):
        return symbols()[token - SYMBOL]
    return build(token, [decode(tokens[start : nodes[start].end]) for start in nodes[0].children])


def encode(expression: Any) -> bytes:
    """The token string of a SymPy expression; raises UnrepresentableError."""
    sp = sympy()
    result: bytes
    if expression.is_Integer:
        return integer_tokens(int(expression))
    if expression.is_Rational:
        return bytes((RATIO,)) + integer_tokens(int(expression.p)) + integer_tokens(int(expression.q))
    if expression.is_Symbol:
        if expression not in symbols():
            raise UnrepresentableError(f"the symbols are {', '.join(SYMBOLS)}")
        return bytes((SYMBOL + symbols().index(expression),))
    if expression is sp.E:
        return bytes((EXP, INTEGER + 1))
    if expression.is_Add or expression.is_Mul:
        operands = sorted(encode(operand) for operand in expression.args)
        result = bytes((ADD if expression.is_Add else MUL,)) + b"".join(operands) + bytes((CLOSE,))
    elif expression.func in _function_tokens() and len(expression.args) == 1:
        result = bytes((_function_tokens()[expression.func],)) + encode(expression.args[0])
    elif expression.is_Pow:
        _check_exponent(expression.exp)
        result = bytes((POW,)) + encode(expression.base) + encode(expression.exp)
    elif isinstance(expression, sp.Derivative):
        counts = {variable: int(count) for variable, count in expression.variable_count if count.is_Integer}
        order = [DERIVATIVE + k for k, symbol in enumerate(symbols()) for _ in range(counts.get(symbol, 0))]
        if len(order) != expression.derivative_count:
            raise UnrepresentableError("an unknown derivative")
        result = bytes(order) + encode(expression.expr)
    else:
        raise UnrepresentableError(f"{type(expression).__name__} has no token")
    if len(result) > MAX_TOKENS:
        raise UnrepresentableError(f"more than {MAX_TOKENS} tokens")
    return result


@lru_cache(maxsize=8192)
def canonical(tokens: bytes) -> bytes:
    """What SymPy makes of a token string on its own, by evaluation alone; raises UnrepresentableError."""
    return encode(decode(tokens))


@lru_cache(maxsize=16384)
def put_back(tokens: bytes, at: int, new: bytes) -> tuple[bytes, int]:
    """Put `new` in the place of the node that begins at `at`.

    Returns:
        The canonical whole, and where the cursor then is: on the new part if it is still there to be seen (a sum inside a sum is
        not), else on the nearest node around it.

    Raises:
        UnrepresentableError: the whole has no token string.
    """
    nodes = analyse(tokens)
    inner = canonical(new)
    seen: list[int | None] = []  # inside out: where each level's operand begins in the next level
    while at:
        parent = nodes[nodes[at].parent]
        operands = [inner if start == at else tokens[start : nodes[start].end] for start in parent.children]
        outer = encode(build(tokens[parent.start], [decode(operand) for operand in operands]))
        found = None
        if outer[0] == tokens[parent.start]:
            around = analyse(outer)
            found = next((start for start in around[0].children if outer[start : around[start].end] == inner), None)
        seen.append(found)
        inner, at = outer, parent.start
    cursor = 0
    for offset in reversed(seen):
        if offset is None:
            break
        cursor += offset
    return inner, cursor
