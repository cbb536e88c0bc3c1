"""Strangers' expressions: what the parser reads, what it refuses and how it says so, and the way back to text."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.algebra import parser
from rao_envs.algebra.parser import (
    LINEAR,
    MAX_EXPRESSIONS,
    MAX_LENGTH,
    MAX_NESTING,
    ExpressionError,
    Grammar,
    parse_expression,
    parse_expressions,
)
from rao_envs.algebra.text import operator_text, to_text, value_text, write
from rao_envs.algebra.tree import (
    ADD,
    CONST,
    DIFF,
    MAX_DEPTH,
    MUL,
    NEG,
    OP_NAMES,
    SCALE,
    SUB,
    SUBST,
    SYMBOL,
    SYMBOLS,
    Tree,
    make,
    monomials,
    sizes,
    subtree,
    validate,
)

POLYNOMIAL = Grammar(symbols=3, polynomial=True, degree=4)
WILD = Grammar(symbols=3, polynomial=True, degree=10**9)


def prefix(tree: Tree, node: int = 0) -> str:
    """The tree in prefix notation, written independently of the code under test."""
    op, arg = int(tree.op[node]), int(tree.arg[node])
    if op == CONST:
        return str(arg)
    if op == SYMBOL:
        return "xyz"[arg]
    name = OP_NAMES[op]
    if op == SCALE:
        name += str(arg)
    elif op in (DIFF, SUBST):
        name += "_" + "xyz"[arg]
    operands = [prefix(tree, int(column[node])) for column in (tree.left, tree.right) if column[node] >= 0]
    return f"({name} {' '.join(operands)})"


# --- what it reads ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "x"),
        ("7", "2"),
        ("3*(x - 2) - d/dx(4*x + 1)", "(sub (scale3 (sub x 2)) (diff_x (add (scale4 x) 1)))"),
        ("(2*x + 1)[x := 3*x]", "(subst_x (add (scale2 x) 1) (scale3 x))"),
        ("x - 1 - 2 + 3", "(add (sub (sub x 1) 2) 3)"),
        ("x - (1 - 2)", "(sub x (sub 1 2))"),
        ("-x + 1", "(add (neg x) 1)"),
        ("-3", "(neg 3)"),
        ("- - x", "(neg (neg x))"),
        ("+x", "x"),
        ("x + -1", "(add x (neg 1))"),
        ("-2*x", "(neg (scale2 x))"),
        ("2*-x", "(scale2 (neg x))"),
        ("2*3*x", "(scale2 (scale3 x))"),
        ("x*2*3", "(scale2 (scale3 x))"),
        ("2*3", "(scale2 3)"),
        ("2*3*4", "(scale2 (scale3 4))"),
        ("x*2", "(scale2 x)"),
        ("x*-3", "(scale2 x)"),
        ("(-3)*x", "(scale2 x)"),
        ("(2)*x", "(scale2 x)"),
        ("2*(-3)", "(scale2 (neg 3))"),
        ("0*x", "(scale0 x)"),
        ("d/dx(d/dx(x))", "(diff_x (diff_x x))"),
        ("d / d x ( x )", "(diff_x x)"),
        ("x[x := 1][x := 2]", "(subst_x (subst_x x 1) 2)"),
        ("x[x := x[x := 1]]", "(subst_x x (subst_x x 1))"),
        ("d/dx(x)[x := 2]", "(subst_x (diff_x x) 2)"),
        ("2*x[x := 3]", "(scale2 (subst_x x 3))"),
        ("2[x := 3]*x[x := 1]*4", None),
        ("((((x))))", "x"),
        ("x\n+\t1\r\n", "(add x 1)"),
        ("2·x − 3×(x – 1)", "(sub (scale2 x) (scale3 (sub x 1)))"),  # noqa: RUF001
        ("x[x ≔ 1]", "(subst_x x 1)"),
        (f"{10**50 + 3}*x", "(scale3 x)"),
        ("9" * 5000, "4"),
    ],
)
def test_linear(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ExpressionError, match="must be a number"):
            parse_expression(text)
        return
    tree = parse_expression(text)
    assert prefix(tree) == expected
    validate(tree, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x*y*z", "(mul (mul x y) z)"),
        ("x*(y*z)", "(mul x (mul y z))"),
        ("2*x*3*y", "(scale2 (scale3 (mul x y)))"),
        ("(2)*x", "(mul 2 x)"),
        ("x*-3", "(mul x (neg 3))"),
        ("x^3", "(mul (mul x x) x)"),
        ("x**2", "(mul x x)"),
        ("x^1", "x"),
        ("x^0000000002", "(mul x x)"),
        ("-x^2", "(neg (mul x x))"),
        ("2*x^2", "(scale2 (mul x x))"),
        ("2^3", "(mul (mul 2 2) 2)"),
        ("(x + y)^2 - z", "(sub (mul (add x y) (add x y)) z)"),
        ("x[x := y]^2", "(mul (subst_x x y) (subst_x x y))"),
        ("d/dz(x*z) + d/dy(y)", "(add (diff_z (mul x z)) (diff_y y))"),
        ("(x*y)[y := x + z]", "(subst_y (mul x y) (add x z))"),
        ("d/dx(x^4)*x", "(mul (diff_x (mul (mul (mul x x) x) x)) x)"),
    ],
)
def test_polynomial(text: str, expected: str) -> None:
    tree = parse_expression(text, POLYNOMIAL)
    assert prefix(tree) == expected
    validate(tree, 5, 3, 4)


def test_integers_are_taken_modulo_p() -> None:
    assert prefix(parse_expression("8*x + 10", Grammar(modulus=7))) == "(add (scale1 x) 3)"


# --- what it refuses ---

LIMITS = [
    ("(" * (MAX_NESTING + 1) + "x" + ")" * (MAX_NESTING + 1), MAX_NESTING + 1, "more than 64 brackets"),
    ("-" * (MAX_NESTING + 1) + "x", MAX_NESTING + 1, "more than 64 brackets"),
    ("2*-" * (MAX_NESTING + 1) + "x", 3 * (MAX_NESTING + 1), "more than 64 brackets"),
    ("x[x := " * (MAX_NESTING + 1), 7 * MAX_NESTING + 2, "more than 64 brackets"),
    ("x" + " + x" * (MAX_DEPTH + 1), 4 * MAX_DEPTH + 3, "more than 64 operations inside each other; brackets"),
    ("x" + "[x := 1]" * (MAX_DEPTH + 1), 8 * MAX_DEPTH + 2, "more than 64 operations"),
]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "there is no expression"),
        ("  \n", 1, "there is no expression"),
        ("2x", 2, "operator is missing before 'x'; a multiple is written with *"),
        ("2 (x + 1)", 3, r"operator is missing before '\('"),
        ("x 2", 3, "operator is missing before '2'"),
        ("(x + 1)(x)", 8, "operator is missing"),
        ("x d/dx(x)", 3, "operator is missing"),
        ("x*x", 2, "one factor of a product must be a number; other products need polynomial=True"),
        ("3*x + (x + 1)*(x - 1)", 14, "one factor"),
        ("x^2", 2, "powers need polynomial=True"),
        ("x + y", 5, "unknown symbol 'y'"),
        ("sin(x)", 1, "unknown symbol 'sin'"),
        ("xx", 1, "unknown symbol 'xx'; a product is written with"),
        ("_ + x", 1, "unknown symbol '_'"),
        ("d/dy(x)", 4, "unknown symbol 'y'"),
        ("d/dx x", 6, "unexpected 'x'; expected '\\(' after the derivative"),
        ("d/d(x)", 4, "expected a symbol, as in d/dx"),
        ("d*x", 1, "unknown symbol 'd'"),
        ("x/2", 2, "no division"),
        ("x = 2", 3, "not an equation"),
        ("1.5*x", 2, "numbers are integers"),
        ("x +", 4, "ends too early; expected a number, a symbol or"),
        ("x +  ", 4, "ends too early"),
        ("* x", 1, r"unexpected '\*'"),
        ("x + * x", 5, "expected a number, a symbol"),
        ("(x + 1", 7, r"expected '\)' for the '\(' in column 1"),
        ("(x + 1]", 7, r"expected '\)'"),
        ("x + 1)", 6, "nothing is open"),
        ("()", 2, "expected a number"),
        ("x[x = 1]", 5, "not an equation"),
        ("x[x, 1]", 4, "one after the other"),
        ("x[2 := 1]", 3, "expected a symbol"),
        ("x[x := ]", 8, "expected a number"),
        ("x[x := 1", 9, r"expected '\]' for the '\[' in column 2"),
        ("x[y := 1]", 3, "unknown symbol 'y'"),
        ("{x}", 1, "use parentheses"),
        ("x # y", 3, "unexpected '#'"),
        ("x + \x00", 5, "unexpected"),
        ("x + \ud800", 5, "unexpected"),
        ("x²", 1, "unknown symbol"),
        ("٣*x", 1, "unexpected"),
        ("__import__('os')", 1, "unknown symbol '__import__'"),
        ("lambda: 1", 1, "unknown symbol 'lambda'"),
        *LIMITS,
    ],
)
def test_errors_point_at_the_place(text: str, column: int, words: str) -> None:
    with pytest.raises(ExpressionError, match=words) as caught:
        parse_expression(text)
    error = caught.value
    assert (error.column, error.line) == (column, None)
    head, shown, caret, allowed = str(error).split("\n")
    assert head.startswith(f"expression, column {column}: ")
    assert allowed == f"allowed: {LINEAR.allowed}"
    assert len(shown) < 100
    place = caret.index("^")
    if column <= len(text):
        wanted = text[column - 1]
        assert shown[place] == (wanted if wanted.isprintable() else " ")
    else:
        assert place >= len(shown)


@pytest.mark.parametrize(
    ("text", "grammar", "column", "words"),
    [
        ("x^5", POLYNOMIAL, 2, "degree 5 is reached here; at most 4 is allowed"),
        ("x^2*y^2 + x*y^4", POLYNOMIAL, 12, "degree 5"),
        ("(x^3)[x := y^2]", POLYNOMIAL, 6, "degree 6"),
        ("x^2^2", POLYNOMIAL, 4, "two powers in a row"),
        ("x^-1", POLYNOMIAL, 3, "a whole number as the exponent"),
        ("x^y", POLYNOMIAL, 3, "a whole number as the exponent"),
        ("x^0", POLYNOMIAL, 3, "an exponent is at least 1"),
        ("1^" + "9" * 1000, POLYNOMIAL, 2, "more than 64 operations inside each other"),
        ("xy", POLYNOMIAL, 1, "unknown symbol 'xy'; a product is written with"),
        ("((((((((2^5)^5)^5)^5)^5)^5)^5)^5)", POLYNOMIAL, 25, "more than 8191 operations, symbols and numbers"),
        ("x + (1 + x)", Grammar(nodes=4), 3, "more than 4 operations"),
        ("x + (1 + x)", Grammar(depth=1), 3, "more than 1 operations inside"),
        ("x[x := 1]", Grammar(substitution=False), 2, "substitution is switched off"),
    ],
)
def test_errors_of_other_grammars(text: str, grammar: Grammar, column: int, words: str) -> None:
    with pytest.raises(ExpressionError, match=words) as caught:
        parse_expression(text, grammar)
    assert caught.value.column == column


def test_every_limit_is_reachable_from_below() -> None:
    assert parse_expression("(" * MAX_NESTING + "x" + ")" * MAX_NESTING).op.tolist() == [SYMBOL]
    assert len(parse_expression("x" + " + x" * MAX_DEPTH).op) == 2 * MAX_DEPTH + 1
    assert len(parse_expression("-" * MAX_DEPTH + "x").op) == MAX_DEPTH + 1


def test_too_long() -> None:
    text = "1".rjust(MAX_LENGTH)
    assert prefix(parse_expression(text)) == "1"
    with pytest.raises(ExpressionError, match=f"expression: {MAX_LENGTH + 1} characters; at most {MAX_LENGTH}"):
        parse_expression(" " + text)


def test_allowed_says_what_the_grammar_allows() -> None:
    assert LINEAR.allowed == (
        "integers; the symbol x; + and -; a number times an expression, as in 3*(x - 1); d/dx(...); (...)[x := ...]; parentheses"
    )
    assert "products and powers up to degree 4; d/dx(...), d/dy(...), d/dz(...)" in POLYNOMIAL.allowed
    assert ":=" not in Grammar(substitution=False).allowed


def test_errors_can_be_pickled() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expressions(["x", "x +"])
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (type(twin), str(twin), twin.column, twin.line) == (ExpressionError, str(caught.value), 4, None)
    assert isinstance(twin, ValueError)


# --- safe ---

ALPHABET = [
    "x",
    "y",
    "z",
    "d/dx(",
    "d",
    "0",
    "3",
    "17",
    "+",
    "-",
    "*",
    "**",
    "^",
    "(",
    ")",
    "[",
    "]",
    "[x := ",
    ":=",
    "=",
    " ",
    "\n",
    ".",
    "é",
    "#",
]
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(ALPHABET), max_size=80).map("".join))


def attempt(text: str, grammar: Grammar) -> Tree | ExpressionError:
    try:
        return parse_expression(text, grammar)
    except ExpressionError as error:
        return error


@given(
    text=TEXTS, grammar=st.sampled_from([LINEAR, POLYNOMIAL, Grammar(modulus=2, symbols=2, polynomial=True, degree=1, depth=3, nodes=9)])
)
@settings(max_examples=1500, deadline=2000)
def test_any_text_gives_a_tree_or_an_expression_error(text: str, grammar: Grammar) -> None:
    outcome = attempt(text, grammar)
    if isinstance(outcome, ExpressionError):
        assert outcome.column is None or 1 <= outcome.column <= len(text) + 1
        assert "\nallowed: " in str(outcome)
        return
    tree = outcome
    validate(tree, grammar.modulus, grammar.symbols, max(1, grammar.degree), products=grammar.polynomial)
    again = parse_expression(to_text(tree), grammar)
    assert prefix(again) == prefix(tree)


@pytest.mark.parametrize(
    "text",
    [
        "(" * MAX_LENGTH,
        "-" * MAX_LENGTH,
        "x[" * (MAX_LENGTH // 2),
        "2*-" * (MAX_LENGTH // 3),
        "d  " * (MAX_LENGTH // 3),
        "d/d" * (MAX_LENGTH // 3),
        "9" * MAX_LENGTH,
        "2*" * (MAX_LENGTH // 2 - 1) + "x",
        "x+" * (MAX_LENGTH // 2 - 1) + "x",
        "x" * MAX_LENGTH,
        "(2^60)*" * (MAX_LENGTH // 7),
        "(((2^30)^30)^30)^30",
        ("(x+(" * 30 + "x" + "))" * 30 + "+") * 20 + "x",
        " " * MAX_LENGTH,
        "\ud800" * MAX_LENGTH,
    ],
)
@pytest.mark.parametrize("grammar", [LINEAR, POLYNOMIAL], ids=["linear", "polynomial"])
def test_malice_costs_little(text: str, grammar: Grammar) -> None:
    start = time.process_time()
    outcome = attempt(text, grammar)
    assert isinstance(outcome, Tree) or len(str(outcome)) < 600
    assert time.process_time() - start < 2.0


def test_deep_expressions_do_not_need_a_deep_stack() -> None:
    limit = sys.getrecursionlimit()
    frames = len(inspect.stack(0))
    texts = ["(" * 5000, "1+(" * 5000, "2*-" * 5000, "x[x := " * 2000, "d/dx(" * 3000, "-(" * 5000, "2*(1+" * 3000]
    sys.setrecursionlimit(frames + 480)
    try:
        for text in texts:
            with pytest.raises(ExpressionError, match="more than 64"):
                parse_expression(text)
        parse_expression("-(2*(" * 21 + "x" + "))" * 21)
    finally:
        sys.setrecursionlimit(limit)


# --- lists and files ---


def test_list() -> None:
    trees = parse_expressions(["x + 1", "2*x"])
    assert [prefix(tree) for tree in trees] == ["(add x 1)", "(scale2 x)"]
    assert [prefix(tree) for tree in parse_expressions(("x*y",), 3, 2, 2)] == ["(mul x y)"]
    assert prefix(parse_expressions(["4*x"], 3)[0]) == "(scale1 x)"
    with pytest.raises(ExpressionError, match="polynomial=True"):
        parse_expressions(["x*y"], 5, 2, 2, polynomial=False)
    assert prefix(parse_expressions(["(2)*(3)"], polynomial=True)[0]) == "(mul 2 3)"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (["x", "2x"], r"^expression 2, column 2: an operator is missing"),
        (["2x"], r"^expression, column 2: "),
        (["x", 3], "expression 2: must be a string, got int"),
        ([], "no expression given; allowed: integers"),
        (None, "must be a sequence of strings or the path of a file, got NoneType"),
        (b"x + 1", "must be a sequence of strings or the path of a file, got bytes"),
        (7, "got int"),
        ({"x"}, "got set"),
        (["x"] * (MAX_EXPRESSIONS + 1), "at most 10000 are allowed"),
    ],
)
def test_wrong_sources(source: object, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        parse_expressions(source)  # type: ignore[arg-type]


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_bytes(b"\xef\xbb\xbf# mine\r\n\r\n  x + 1  # the first\r\n2*x\n#x\rx - 3")
    for source in (path, str(path)):
        assert [prefix(tree) for tree in parse_expressions(source)] == ["(add x 1)", "(scale2 x)", "(sub x 3)"]


def test_errors_in_files_name_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_text("# one a line\nx + 1\n\n   2*x + y  # a comment\n", encoding="utf-8")
    with pytest.raises(ExpressionError) as caught:
        parse_expressions(path)
    assert (caught.value.line, caught.value.column) == (4, 10)
    lines = str(caught.value).split("\n")
    assert lines[0] == "tasks.txt, line 4, column 10: unknown symbol 'y'"
    assert lines[1].rstrip() == "       2*x + y"
    assert lines[2] == "             ^"


def test_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(source: object) -> str:
        with pytest.raises(ExpressionError) as caught:
            parse_expressions(source)  # type: ignore[arg-type]
        return str(caught.value)

    assert "cannot read the file '3*(x - 2)': No such file" in message("3*(x - 2)")
    assert "an expression itself is given in a list, as in expressions=['3*(x - 2)']" in message("3*(x - 2)")
    assert "in a list" not in message(tmp_path / "none.txt")
    assert "..." in message("x + " * 1000)
    assert "cannot read the file" in message("a\0b")
    assert "cannot read the file ''" in message("")
    assert "not a regular file" in message(tmp_path)
    path = tmp_path / "tasks.txt"
    path.write_bytes(b"x + 1\nx + \xff\n")
    assert message(path) == "tasks.txt, line 2: not UTF-8; save the file as UTF-8 text"
    path.write_text("\n# nothing\n")
    assert "tasks.txt: no expression in it, only empty lines and comments; allowed, one a line: integers" in message(path)
    path.write_text("x\n" * 5)
    monkeypatch.setattr(parser, "MAX_EXPRESSIONS", 4)
    assert "tasks.txt: more than 4 expressions" in message(path)
    monkeypatch.setattr(parser, "MAX_FILE_BYTES", 9)
    assert "is too large: 10 bytes; at most 9 are read" in message(path)


# --- and back ---


@st.composite
def trees(draw: st.DrawFn, depth: int = 5, products: bool = True) -> Tree:
    """Any tree at all, whatever its degrees."""
    ops = [CONST, SYMBOL] if depth == 0 else [CONST, SYMBOL, ADD, SUB, NEG, SCALE, DIFF, SUBST] + [MUL] * products
    op = draw(st.sampled_from(ops))
    arg = draw(st.integers(0, 4)) if op in (CONST, SCALE) else draw(st.integers(0, 2)) if op in (SYMBOL, DIFF, SUBST) else 0
    count = 0 if op in (CONST, SYMBOL) else 1 if op in (NEG, SCALE, DIFF) else 2
    return make(op, *(draw(trees(depth - 1, products)) for _ in range(count)), arg=arg)


@given(tree=trees())
@settings(max_examples=400, deadline=None)
def test_text_gives_the_same_tree_back(tree: Tree) -> None:
    again = parse_expression(to_text(tree), WILD)
    for column, twin in zip(tree, again, strict=True):
        np.testing.assert_array_equal(column, twin)
        assert column.dtype == twin.dtype


@given(tree=trees(products=False))
@settings(max_examples=300, deadline=None)
def test_text_of_linear_trees(tree: Tree) -> None:
    tree = tree._replace(arg=np.where(np.isin(tree.op, [SYMBOL, DIFF, SUBST]), 0, tree.arg).astype(np.int16))
    assert prefix(parse_expression(to_text(tree))) == prefix(tree)


@given(tree=trees())
@settings(max_examples=200, deadline=None)
def test_spans_hold_the_text_of_each_node(tree: Tree) -> None:
    text, spans = write(tree)
    for node in range(len(tree.op)):
        own = text[spans[node, 0] : spans[node, 1]]
        assert own == to_text(tree, node) == to_text(subtree(tree, node))
    node = len(tree.op) // 2
    outside = [k for k in range(len(tree.op)) if not node <= k < node + sizes(tree)[node]]
    assert (write(tree, node).spans[outside] == 0).all()


def test_text_reads_well() -> None:
    text = "3*(x - 2) - d/dx(4*x + 1) + (2*x + 1)[x := 3*x] - (-x) + (-(x - 1))[x := 2][x := -x]"
    assert to_text(parse_expression(text)) == text
    text = "x*y*(x - 2*z) + 2*x*y - (3)*(2*x) + (x*y)[y := x*x]"
    assert to_text(parse_expression(text, POLYNOMIAL)) == text


def test_operators_and_values_as_words() -> None:
    tree = parse_expression("-(3*(x + y - 2)[x := 1])*d/dy(y)", POLYNOMIAL)
    words = [operator_text(tree, node) for node in range(len(tree.op))]
    assert words == ["neg", "×", "3×", "x :=", "−", "+", "x", "y", "2", "1", "d/dy", "y"]  # noqa: RUF001
    linear = monomials(1, 1)
    assert [value_text(digits, linear) for digits in ([0, 0], [2, 3], [0, 1], [1, 0], [4, -1], [], [0], [-1, -1])] == [
        "0", "2 + 3x", "x", "1", "4 + _x", "_ + _x", "_x", "_ + _x",
    ]  # fmt: skip
    powers = monomials(3, 4)
    value = np.zeros(len(powers), np.int8)
    value[[0, 2, -1]] = 1, 3, 2
    value[powers.tolist().index([2, 1, 1])] = 4
    assert value_text(value, powers) == "1 + 3y + 4x²yz + 2z⁴"
    assert value_text([1, 0, 2], powers) == "1 + 2y + _z + ..."


def test_grammar_text_names_every_symbol() -> None:
    assert re.findall(r"the symbols? ([a-z, ]+);", Grammar(symbols=3).allowed) == [", ".join(SYMBOLS)]
