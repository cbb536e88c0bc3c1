"""Tasks from a random stream: a small polynomial, hidden under layers of operations that one rule or another takes off.

The generator works backwards. It draws the value that is to be found, and writes it as an expression of the same value: as a product
and a remainder, a derivative and a remainder, a quotient, a sum of fractions, with a sum of squares of sine and cosine, logarithms that
cancel and so on. The polynomials in it are hidden in the same way, as many levels deep as asked for. Then it plays the script of
`rao_envs.rewrite.plan` and keeps only what that solves within the limits, so that every task can be solved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rao_envs.core.rng import below
from rao_envs.rewrite.bridge import canonical
from rao_envs.rewrite.plan import Limits, Outcome, solve
from rao_envs.rewrite.rules import FACTORED, FRACTION, has_form
from rao_envs.rewrite.tokens import (
    COS,
    DERIVATIVE,
    EXP,
    LOG,
    SIN,
    SYMBOL,
    UnrepresentableError,
    call,
    integer_tokens,
    power,
    product,
    total,
)

ATTEMPTS = 60
"""Draws before the generator takes a task one level simpler."""

LAYERS = ("product", "power", "derivative", "quotient", "fractions", "squares", "angles", "logarithms", "powers", "exponent")
"""What hides a value, in the order in which it is drawn."""

Polynomial: TypeAlias = dict[tuple[int, int], int]

Rng = npt.NDArray[np.uint64]


class Task(NamedTuple):
    """One drawn task with the proof that it can be solved."""

    tokens: bytes
    form: int  # index into FORMS
    outcome: Outcome


def draw_task(rng: Rng, levels: int, forms: tuple[int, ...], limits: Limits) -> Task:
    """The next task of the stream: `levels` layers, asked for one of `forms`. `rng` (uint64 (1,)) advances.

    Raises:
        RuntimeError: the limits are too tight for any task.
    """
    task, rng[0] = _draw(int(rng[0]), levels, forms, limits)
    return task


@lru_cache(maxsize=4096)
def _draw(state: int, levels: int, forms: tuple[int, ...], limits: Limits) -> tuple[Task, np.uint64]:
    """The task that a stream in this state gives, and the stream's state afterwards."""
    rng = np.array([state], np.uint64)
    form = forms[below(rng, len(forms))]  # once: harder forms are rejected more often, and would become rare
    for depth in range(levels, 0, -1):
        for _ in range(ATTEMPTS):
            task = _attempt(rng, depth, form, limits)
            if task is not None:
                return task, rng[0]
    raise RuntimeError(f"no task fits these limits: {limits}")


def _attempt(rng: Rng, levels: int, form: int, limits: Limits) -> Task | None:
    """One draw; None if it breaks a limit, is solved already, or not by the script."""
    scrambled = _Scrambler(rng).task(form, levels)
    try:
        tokens = canonical(scrambled)
    except UnrepresentableError:
        return None
    # With two layers or more, the whole must not fit the window: nobody rewrites it at one stroke.
    if len(tokens) > limits.capacity or (levels > 1 and len(tokens) <= limits.window) or has_form(form, tokens):
        return None
    outcome = solve(tokens, form, limits)
    return Task(tokens, form, outcome) if outcome.done else None


class _Scrambler:
    """Writes values as expressions; every choice comes from the stream, in a fixed order.

    Values are polynomials in x and y: coefficients by the exponents of both. Expressions are token strings, not yet evaluated.
    """

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def task(self, form: int, levels: int) -> bytes:
        """An expression that can be brought to `form`."""
        if form == FACTORED:
            return self.hide(times(self.linear(), self.linear()), levels)
        if form == FRACTION:
            above, below_it, beside = (self.hide(self.linear(), levels - 1) for _ in range(3))
            return total(fraction(above, below_it), beside)
        return self.hide(self.quadratic(), levels)

    # -- values ------------------------------------------------------------------------------------------------------------------

    def integer(self) -> int:
        """One of -3, -2, -1, 1, 2, 3."""
        value = below(self.rng, 6) - 3
        return value + (value >= 0)

    def symbol(self) -> Polynomial:
        """Either symbol."""
        return (X, Y)[below(self.rng, 2)]

    def linear(self) -> Polynomial:
        """One of a + b*x and a + b*y, and in one of four cases a + b*x + c*y."""
        value = plus(times(constant(self.integer()), self.symbol()), constant(self.integer()))
        if below(self.rng, 4) == 0 and (0, 1) not in value:
            value = plus(value, times(constant(self.integer()), Y))
        return value

    def monic(self) -> Polynomial:
        """A symbol and a number."""
        return plus(self.symbol(), constant(self.integer()))

    def quadratic(self) -> Polynomial:
        """A linear polynomial and a term of degree two."""
        return plus(self.linear(), times(constant(self.integer()), times(self.symbol(), self.symbol())))

    # -- layers ------------------------------------------------------------------------------------------------------------------

    def hide(self, value: Polynomial, levels: int) -> bytes:
        """An expression equal to `value`, with `levels` layers."""
        if levels <= 0:
            return write(value)
        layer: Callable[[Polynomial, int], bytes] = getattr(self, f"_{LAYERS[below(self.rng, len(LAYERS))]}")
        return layer(value, levels - 1)

    def pair(self, first: Polynomial, second: Polynomial, levels: int) -> tuple[bytes, bytes]:
        """Two values, of which one or both are hidden."""
        choice = below(self.rng, 3)
        return self.hide(first, 0 if choice == 0 else levels), self.hide(second, 0 if choice == 1 else levels)

    def _product(self, value: Polynomial, levels: int) -> bytes:
        first, second = self.linear(), self.monic()
        hidden = self.pair(first, second, levels)
        return total(product(*hidden), write(minus(value, times(first, second))))

    def _power(self, value: Polynomial, levels: int) -> bytes:
        base = self.monic()
        return total(power(self.hide(base, levels), TWO), write(minus(value, times(base, base))))

    def _derivative(self, value: Polynomial, levels: int) -> bytes:
        which, inner = below(self.rng, 2), self.quadratic()
        first, second = self.pair(inner, minus(value, derivative(inner, which)), levels)
        return total(call(DERIVATIVE + which, first), second)

    def _quotient(self, value: Polynomial, levels: int) -> bytes:
        divisor = self.monic()
        return fraction(*self.pair(times(value, divisor), divisor, levels))

    def _fractions(self, value: Polynomial, levels: int) -> bytes:
        divisor, part = self.monic(), self.linear()
        first, second = self.pair(part, minus(times(value, divisor), part), levels)
        return total(fraction(first, write(divisor)), fraction(second, write(divisor)))

    def _squares(self, value: Polynomial, levels: int) -> bytes:
        angle, factor = self.monic(), constant(self.integer())
        hidden, rest = self.pair(angle, minus(value, factor), levels)
        squares = power(call(SIN, hidden), TWO), power(call(COS, write(angle)), TWO)
        return total(*(product(write(factor), square) for square in squares), rest)

    def _angles(self, value: Polynomial, levels: int) -> bytes:
        x, y = write(X), write(Y)
        if below(self.rng, 2):
            angle, rest = product(TWO, x), product(integer_tokens(-2), call(SIN, x), call(COS, x))
        else:
            mixed = (product(call(SIN, a), call(COS, b)) for a, b in ((x, y), (y, x)))
            angle, rest = total(x, y), product(integer_tokens(-1), total(*mixed))
        factor = integer_tokens(self.integer())
        return total(self.hide(value, levels), product(factor, call(SIN, angle)), product(factor, rest))

    def _logarithms(self, value: Polynomial, levels: int) -> bytes:
        exponent = 1 + below(self.rng, 3)
        first, second = self.pair({(exponent, 1): 1}, value, levels)
        rest = (product(integer_tokens(-k), call(LOG, write(symbol))) for k, symbol in ((exponent, X), (1, Y)))
        return total(call(LOG, first), *rest, second)

    def _powers(self, value: Polynomial, levels: int) -> bytes:
        x, y, z = write(X), write(Y), bytes((SYMBOL + 2,))
        return product(self.hide(value, levels), power(x, z), power(y, z), power(product(x, y), product(integer_tokens(-1), z)))

    def _exponent(self, value: Polynomial, levels: int) -> bytes:
        difference = self.monic()
        first, second = self.pair(difference, value, levels)
        return product(call(EXP, total(first, write(minus({}, difference)))), second)


# -- Polynomials in x and y --------------------------------------------------------------------------------------------------------

X: Polynomial = {(1, 0): 1}
Y: Polynomial = {(0, 1): 1}
TWO = integer_tokens(2)


def constant(value: int) -> Polynomial:
    """A number as a polynomial."""
    return {(0, 0): value}


def plus(first: Polynomial, second: Polynomial, factor: int = 1) -> Polynomial:
    """The sum of `first` and `factor` times `second`."""
    result = dict(first)
    for exponents, coefficient in second.items():
        result[exponents] = result.get(exponents, 0) + factor * coefficient
    return {exponents: coefficient for exponents, coefficient in result.items() if coefficient}


def minus(first: Polynomial, second: Polynomial) -> Polynomial:
    """The difference."""
    return plus(first, second, -1)


def times(first: Polynomial, second: Polynomial) -> Polynomial:
    """The product."""
    result: Polynomial = {}
    for (a, b), coefficient in first.items():
        result = plus(result, {(a + c, b + d): coefficient * other for (c, d), other in second.items()})
    return result


def derivative(value: Polynomial, which: int) -> Polynomial:
    """The derivative by x (0) or y (1)."""
    result: Polynomial = {}
    for exponents, coefficient in value.items():
        if exponents[which]:
            result[(exponents[0] - 1, exponents[1]) if which == 0 else (exponents[0], exponents[1] - 1)] = coefficient * exponents[which]
    return result


def write(value: Polynomial) -> bytes:
    """A polynomial's token string, multiplied out."""
    terms = []
    for exponents, coefficient in sorted(value.items()):
        factors = [power(bytes((SYMBOL + k,)), integer_tokens(e)) for k, e in enumerate(exponents) if e]
        terms.append(product(integer_tokens(coefficient), *factors))
    return total(*terms) if terms else integer_tokens(0)


def fraction(above: bytes, below_it: bytes) -> bytes:
    """A quotient's token string."""
    return product(above, power(below_it, integer_tokens(-1)))
