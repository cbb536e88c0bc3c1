"""SymPy is the truth: every way to an expression's value agrees with it, for all options."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import sympy

from rao_envs.algebra.generator import NODE, RULES, arithmetic, grow, measure, rows_of, tree_of
from rao_envs.algebra.parser import Grammar, parse_expression
from rao_envs.algebra.sympy_bridge import latex, pretty, to_sympy, truth, truths
from rao_envs.algebra.text import to_text
from rao_envs.algebra.tree import MUL, SUBST, Tree, depth, monomials, validate

X, Y, Z = sympy.symbols("x y z")
POLYNOMIAL = Grammar(symbols=3, polynomial=True, degree=4)

# modulus, symbols, degree, substitution, products: every option, and their combinations
OPTIONS = [
    (5, 1, 1, False, False),
    (5, 1, 1, True, False),
    (2, 1, 1, True, False),
    (3, 1, 1, False, False),
    (13, 1, 1, True, False),
    (5, 1, 3, True, True),
    (5, 2, 2, False, True),
    (5, 2, 2, True, True),
    (7, 3, 2, True, True),
    (2, 2, 4, True, True),
    (3, 3, 4, True, True),
    (5, 3, 1, True, True),
]


def generated(options: tuple[int, int, int, bool, bool], deepest: int, count: int, seed: int = 0) -> list[tuple[Tree, np.ndarray]]:
    """Trees of depth 1 to `deepest` with all their nodes' values, as the environments make them."""
    modulus, symbols, degree, substitution, products = options
    rules = np.zeros(1, RULES)[0]
    rules["modulus"], rules["symbols"], rules["degree"] = modulus, symbols, degree
    rules["substitution"], rules["products"] = substitution, products
    rules["shallowest"], rules["deepest"], rules["most_work"] = 1, deepest, 200
    tables = arithmetic(symbols, degree)
    rows, plan = np.zeros(401, NODE), np.zeros((deepest + 2, 4), np.int16)
    values = np.zeros((401, len(tables.exponents)), np.int8)
    rng = np.array([seed + 1], np.uint64)
    found: list[tuple[Tree, np.ndarray]] = []
    while len(found) < count:
        if grow(rules, rng, 1 + len(found) % deepest, rows, plan):
            measure(tables, modulus, int(rows["size"][0]), rows, values)
            tree = tree_of(rows)
            found.append((tree, values[: len(tree.op)].copy()))
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_generated_values_agree_with_sympy(options: tuple[int, int, int, bool, bool]) -> None:
    """Thousands of trees over all options, each node of each."""
    modulus, symbols, degree, substitution, products = options
    ops = set()
    for tree, values in generated(options, 7, 400):
        validate(tree, modulus, symbols, degree, products=products, substitution=substitution)
        np.testing.assert_array_equal(truths(tree, modulus, symbols, degree), values, err_msg=to_text(tree))
        ops.update(tree.op.tolist())
    assert (SUBST in ops) == substitution
    assert (MUL in ops) == products


@pytest.mark.parametrize("options", OPTIONS)
def test_the_two_ways_through_sympy_agree(options: tuple[int, int, int, bool, bool]) -> None:
    modulus, symbols, degree, *_ = options
    for tree, values in generated(options, 6, 30, seed=1):
        np.testing.assert_array_equal(truth(tree, modulus, symbols, degree), values[0], err_msg=to_text(tree))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_many_more_generated_values_agree_with_sympy(options: tuple[int, int, int, bool, bool]) -> None:
    modulus, symbols, degree, *_ = options
    for tree, values in generated(options, 12, 1500, seed=2):
        np.testing.assert_array_equal(truths(tree, modulus, symbols, degree), values, err_msg=to_text(tree))
    for tree, values in generated(options, 8, 60, seed=3):
        np.testing.assert_array_equal(truth(tree, modulus, symbols, degree), values[0], err_msg=to_text(tree))


@pytest.mark.parametrize("options", OPTIONS)
def test_generated_trees_survive_their_text(options: tuple[int, int, int, bool, bool]) -> None:
    modulus, symbols, degree, _, products = options
    grammar = Grammar(modulus, symbols, products, degree)
    for tree, _ in generated(options, 9, 60, seed=4):
        again = parse_expression(to_text(tree), grammar)
        for column, twin in zip(tree, again, strict=True):
            np.testing.assert_array_equal(column, twin)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3*(x - 2) - d/dx(4*x + 1)", {"x": 3}),
        ("(2*x + 1)[x := 3*x]", {"1": 1, "x": 1}),
        ("x - x", {}),
        ("-3", {"1": 2}),
        ("(x*y)[x := y][y := x]", {"x**2": 1}),
        ("(x*y)[x := y + x*x]", {"y**2": 1, "x**2*y": 1}),
        ("d/dx(x^4) + d/dy(x*y^2)", {"x**3": 4, "x*y": 2}),
        ("d/dx((x*x)[x := x + y])", {"x": 2, "y": 2}),
        ("(d/dx(x*x))[x := x + y]", {"x": 2, "y": 2}),
        ("(d/dx(x*y))[x := z]", {"y": 1}),
        ("d/dx((x*y)[y := x])", {"x": 2}),
        ("(x + y + z)^3", None),
        ("(3)*(4)*(2)", {"1": 4}),
    ],
)
def test_known_values(text: str, value: dict[str, int] | None) -> None:
    """Against what a person would say, and against the kernels on expressions that people write."""
    tree = parse_expression(text, POLYNOMIAL)
    found = truths(tree, 5, 3, 4)
    np.testing.assert_array_equal(truth(tree, 5, 3, 4), found[0])
    if value is not None:
        terms = {str(sympy.Mul(*(s ** int(e) for s, e in zip((X, Y, Z), row, strict=True)))): k for k, row in enumerate(monomials(3, 4))}
        expected = np.zeros(len(terms), np.int8)
        for name, digit in value.items():
            expected[terms[name]] = digit
        np.testing.assert_array_equal(found[0], expected)
    rows, values = rows_of(tree), np.zeros_like(found)
    measure(arithmetic(3, 4), 5, len(rows), rows, values)
    np.testing.assert_array_equal(values, found)


def test_expressions_stay_as_they_stand() -> None:
    tree = parse_expression("3*(x - 2) - d/dx(4*x + 1) + (x + x)[x := 3*x]")
    expression = to_sympy(tree)
    assert {type(part).__name__ for part in sympy.preorder_traversal(expression)} >= {"Derivative", "Substitution", "Add", "Mul"}
    assert str(expression) == "(3*(x - 2) - Derivative(4*x + 1, x)) + Subs(x + x, x, 3*x)"
    assert sympy.expand(expression.doit()) == 9 * X - 10
    assert str(to_sympy(tree, 2)) == "3*(x - 2)"
    assert to_sympy(parse_expression("x + x")) != 2 * X
    assert to_sympy(parse_expression("-(-x)")) != X


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(d/dy(-x))[x := y]", 0),  # SymPy's own Subs says -1
        ("d/dx(x[x := 2])", 0),
        ("(d/dx(2))[x := 3]", 0),
        ("(d/dx(d/dx(x^3)))[x := x + y]", 6 * X + 6 * Y),
        ("x[x := x + 1][x := 2*x]", 2 * X + 1),
        ("(x*y)[x := y][y := x]", X**2),
        ("(x*y)[x := y[y := 2]]", 2 * Y),
    ],
)
def test_expressions_can_be_carried_out_copied_and_rebuilt(text: str, value: object) -> None:
    expression = to_sympy(parse_expression(text, POLYNOMIAL))
    assert sympy.expand(expression.doit()) == value
    for twin in (pickle.loads(pickle.dumps(expression)), copy.deepcopy(expression), expression.func(*expression.args)):
        assert twin == expression
        assert sympy.expand(twin.doit()) == value


def test_values_of_too_high_a_degree_are_refused() -> None:
    tree = parse_expression("x^3 + y", POLYNOMIAL)
    for way in (truth, truths):
        with pytest.raises(ValueError, match="has a term of degree 3, which no digit stands for"):
            way(tree, 5, 2, 2)


def test_pretty_printing() -> None:
    tree = parse_expression("3*(x - 2) - d/dx(4*x + 1)")
    assert pretty(tree).splitlines() == ["            d          ", "3⋅(x - 2) - ──(4⋅x + 1)", "            dx         "]
    assert pretty(tree, unicode=False).isascii()
    assert pretty(tree, 2) == "x - 2"
    assert "│x=3⋅x" in pretty(parse_expression("(2*x + 1)[x := 3*x]"))
    assert len(pretty(parse_expression(" + ".join(["x"] * 60))).splitlines()) == 1
    assert pretty(parse_expression("1 + x - 2")) == "1 + x - 2"  # in the order in which it was written


def test_latex() -> None:
    assert latex(parse_expression("3*(x - 2) - d/dx(4*x + 1)")) == r"3 \left(x - 2\right) - \frac{d}{d x} \left(4 x + 1\right)"
    assert latex(parse_expression("(x*y)[y := 2]", POLYNOMIAL)) == r"\left. x y \right|_{\substack{ y=2 }}"
    assert latex(parse_expression("-3 + x"), 1) == "-3"


def test_large_expressions_need_no_deep_stack_of_ours() -> None:
    tree = parse_expression("-" * 60 + "x" + " + x" * 4)
    assert depth(tree) == 64
    np.testing.assert_array_equal(truths(tree, 5)[0], truth(tree, 5))


def test_sympy_comes_only_when_asked_for() -> None:
    code = """
import sys
import rao_envs
import rao_envs.algebra.env, rao_envs.algebra.parser, rao_envs.algebra.viewer
rao_envs.algebra.parser.parse_expressions(["x + 1"])
assert "sympy" not in sys.modules and "pygame" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
