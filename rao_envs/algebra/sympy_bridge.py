"""SymPy as the truth: trees as SymPy expressions, their values by SymPy's own polynomials, pretty printing and LaTeX.

The dynamics never come here. Import this module only where SymPy is wanted: importing it takes a good part of a second.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import sympy

from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, NO_NODE, SCALE, SUB, SYMBOL, SYMBOLS, Tree, monomials, size

SYMPY_SYMBOLS: tuple[Any, ...] = sympy.symbols(SYMBOLS)


class Substitution(sympy.Subs):  # type: ignore[misc]
    """A `sympy.Subs` that is carried out inside out: first the body, then the substitution.

    SymPy's own may substitute under a derivative that is still to be taken: in version 1.14, `Subs(Derivative(-x, y), x, y).doit()` gives
    -1, the derivative of -y, instead of 0.
    """

    def doit(self, **hints: Any) -> Any:
        """The body's value with the point's value put in."""
        return self.expr.doit(**hints).subs(
            [(variable, point.doit(**hints)) for variable, point in zip(self.variables, self.point, strict=True)]
        )


def to_sympy(tree: Tree, node: int = 0) -> Any:
    """The sub-expression at `node` as a SymPy expression, every operation left as it stands; `.doit()` carries them out."""
    built: dict[int, Any] = {}
    for at in _below(tree, node):
        op, arg, operands = _parts(tree, at, built)
        by = SYMPY_SYMBOLS[arg] if op not in (CONST, SCALE) else None
        if op == CONST:
            built[at] = sympy.Integer(arg)
        elif op == SYMBOL:
            built[at] = by
        elif op == ADD:
            built[at] = sympy.Add(*operands, evaluate=False)
        elif op == SUB:
            built[at] = sympy.Add(operands[0], _negative(operands[1]), evaluate=False)
        elif op == NEG:
            built[at] = _negative(operands[0])
        elif op == SCALE:
            built[at] = sympy.Mul(sympy.Integer(arg), operands[0], evaluate=False)
        elif op == MUL:
            built[at] = sympy.Mul(*operands, evaluate=False)
        elif op == DIFF:
            built[at] = sympy.Derivative(operands[0], by)
        else:
            body = operands[0]
            if isinstance(body, sympy.Subs):
                body = sympy.UnevaluatedExpr(body)  # else SymPy joins the two, and may name one symbol twice
            built[at] = Substitution(body, by, operands[1])
    return built[node]


def truth(tree: Tree, modulus: int, symbols: int = 1, degree: int = 1) -> npt.NDArray[np.int8]:
    """The value of the whole expression, int8 (digits,): SymPy carries out `to_sympy(tree)` and reads off the coefficients modulo p.

    Raises:
        ValueError: the value has a higher degree than `degree`.
    """
    polynomial = sympy.Poly(to_sympy(tree).doit(), *SYMPY_SYMBOLS[:symbols], modulus=modulus)
    return _digits(polynomial, modulus, monomials(symbols, degree))


def truths(tree: Tree, modulus: int, symbols: int = 1, degree: int = 1) -> npt.NDArray[np.int8]:
    """The values of all nodes, int8 (m, digits), from the leaves up with SymPy's polynomials: a second way to the truth, and a faster one.

    Raises:
        ValueError: a value has a higher degree than `degree`.
    """
    powers = monomials(symbols, degree)
    generators = SYMPY_SYMBOLS[:symbols]
    values: dict[int, Any] = {}
    result = np.zeros((size(tree), len(powers)), np.int8)
    for at in _below(tree, 0):
        op, arg, operands = _parts(tree, at, values)
        if op in (CONST, SYMBOL):
            leaf = sympy.Integer(arg) if op == CONST else SYMPY_SYMBOLS[arg]
            values[at] = sympy.Poly(leaf, *generators, modulus=modulus)
        elif op in (ADD, MUL):
            values[at] = reduce(sympy.Poly.add if op == ADD else sympy.Poly.mul, operands)
        elif op == SUB:
            values[at] = operands[0].sub(operands[1])
        elif op == NEG:
            values[at] = operands[0].neg()
        elif op == SCALE:
            values[at] = operands[0].mul_ground(arg)
        elif op == DIFF:
            values[at] = operands[0].diff(SYMPY_SYMBOLS[arg])
        else:
            body = operands[0].as_expr().subs(SYMPY_SYMBOLS[arg], operands[1].as_expr())
            values[at] = sympy.Poly(body, *generators, modulus=modulus)
        result[at] = _digits(values[at], modulus, powers)
    return result


def pretty(tree: Tree, node: int = 0, *, unicode: bool = True) -> str:
    """The sub-expression at `node` as SymPy prints it, several lines high, with Unicode's signs or in ASCII."""
    return str(sympy.pretty(to_sympy(tree, node), use_unicode=unicode, wrap_line=False, order="none"))


def latex(tree: Tree, node: int = 0) -> str:
    """The sub-expression at `node` in LaTeX, for mathematics mode."""
    return str(sympy.latex(to_sympy(tree, node), order="none"))


def _below(tree: Tree, node: int) -> list[int]:
    """The nodes of the sub-tree at `node`, every one after its operands."""
    order, pending = [], [node]
    while pending:
        at = pending.pop()
        order.append(at)
        pending += [int(column[at]) for column in (tree.left, tree.right) if column[at] != NO_NODE]
    return order[::-1]


def _parts(tree: Tree, node: int, built: dict[int, Any]) -> tuple[int, int, list[Any]]:
    """Operation, argument and the operands as already built."""
    operands = [built[int(column[node])] for column in (tree.left, tree.right) if column[node] != NO_NODE]
    return int(tree.op[node]), int(tree.arg[node]), operands


def _negative(expression: Any) -> Any:
    if expression.is_Integer and expression >= 0:
        return -expression  # the sign of a number, not an operation: SymPy prints -1*3 otherwise
    return sympy.Mul(sympy.Integer(-1), expression, evaluate=False)


def _digits(polynomial: Any, modulus: int, powers: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """The coefficients of the monomials `powers`, in [0, p); ValueError if there are others."""
    terms = {tuple(exponents): int(coefficient) % modulus for exponents, coefficient in polynomial.terms()}
    known = {tuple(row) for row in powers.tolist()}
    if beyond := [exponents for exponents, digit in terms.items() if digit and exponents not in known]:
        raise ValueError(f"the value {polynomial.as_expr()} has a term of degree {sum(beyond[0])}, which no digit stands for")
    return np.array([terms.get(tuple(row), 0) for row in powers.tolist()], np.int8)
