"""People's own expressions: a small grammar read into `Tree`s, with errors that point at the place.

The text is a stranger's, so nothing here evaluates it: a tokeniser and a precedence-climbing parser, with limits on length, nesting,
depth and size, read it in time proportional to its length.

    expression = term, {("+" | "-"), term}
    term       = ("-" | "+"), term | factor, {"*", factor}, ["*", ("-" | "+"), term]
    factor     = primary, {"[", symbol, ":=", expression, "]"}, [("^" | "**"), integer]     powers: where products are allowed
    primary    = integer | symbol | "(", expression, ")" | "d/d" symbol, "(", expression, ")"
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from rao_envs.algebra.tree import (
    ADD,
    CONST,
    DIFF,
    MAX_DEPTH,
    MAX_NODES,
    MUL,
    NEG,
    NO_NODE,
    SCALE,
    SUB,
    SUBST,
    SYMBOL,
    SYMBOLS,
    Tree,
)
from rao_envs.core.arguments import quoted_path

ExpressionSource: TypeAlias = "str | os.PathLike[str] | Sequence[str]"

MAX_LENGTH = 20_000  # characters of one expression
MAX_NESTING = 64  # brackets and signs inside each other: the parser's own recursion, at most four calls a level
MAX_EXPRESSIONS = 10_000
MAX_FILE_BYTES = 8 * 1024 * 1024
CONTEXT = 72  # characters of the text that an error shows, around its place

_TOKEN = re.compile(r"(?P<derivative>d\s*/\s*d)|(?P<number>[0-9]+)|(?P<name>[^\W\d]\w*)|(?P<sign>:=|\*\*|[^\s])")
_SAME = {"−": "-", "–": "-", "·": "*", "×": "*", "⋅": "*", "^": "**", "≔": ":="}  # noqa: RUF001  what a word processor makes of ours
_HINTS = {
    "/": "there is no division (d/dx(...) is the derivative)",
    "=": "one expression is asked for, not an equation; a substitution is written (...)[x := ...]",
    ":": "a substitution is written (...)[x := ...]",
    ".": "numbers are integers",
    ",": "several substitutions are written one after the other: (...)[x := ...][y := ...]",
    "{": "use parentheses",
    "}": "use parentheses",
}


class ExpressionError(ValueError):
    """An expression that cannot be used. The message says where, what is wrong and what is allowed.

    Attributes:
        column: where, counted from 1; None if no place in a text is meant.
        line: the file's line, counted from 1; None if the expression came from no file.
    """

    def __init__(self, message: str, column: int | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.column, self.line = column, line

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int | None, int | None]]:
        return type(self), (str(self), self.column, self.line)


@dataclass(frozen=True)
class Grammar:
    """What an expression may contain.

    Attributes:
        modulus: the prime p; integers are taken modulo p.
        symbols: the first so many of x, y and z.
        polynomial: whether products of two non-constant factors, and powers, are allowed.
        degree: the largest total degree that any sub-expression may have, by the rules of `tree.degrees`; used with `polynomial` only.
        substitution: whether (...)[x := ...] is allowed.
        depth: most operations on a way from the whole expression down to a symbol or number, up to MAX_DEPTH.
        nodes: most operations, symbols and numbers together, up to MAX_NODES.
    """

    modulus: int = 5
    symbols: int = 1
    polynomial: bool = False
    degree: int = 1
    substitution: bool = True
    depth: int = MAX_DEPTH
    nodes: int = MAX_NODES

    @property
    def allowed(self) -> str:
        """One line for people: the parts that expressions are made of."""
        names = SYMBOLS[: self.symbols]
        by = f"d/d{names[0]}(...)" if self.symbols == 1 else ", ".join(f"d/d{name}(...)" for name in names)
        product = f"products and powers up to degree {self.degree}" if self.polynomial else "a number times an expression, as in 3*(x - 1)"
        parts = ["integers", ("the symbol " if self.symbols == 1 else "the symbols ") + ", ".join(names), "+ and -", product, by]
        return "; ".join(parts + ["(...)[x := ...]"] * self.substitution + ["parentheses"])


LINEAR = Grammar()


def parse_expressions(
    source: ExpressionSource, modulus: int = 5, degree: int = 1, symbols: int = 1, *, polynomial: bool | None = None
) -> list[Tree]:
    """Read expressions from a sequence of strings, or from a file.

    Args:
        source: a sequence of strings, or the path of a UTF-8 file (a string or path-like) with one expression a line; in it empty lines
            and what follows a `#` are skipped.
        modulus: see `Grammar`, as for the next two.
        degree: likewise.
        symbols: likewise.
        polynomial: whether products and powers are allowed; by default, if values are more than linear forms in x.

    Returns:
        One tree per expression, in order.

    Raises:
        ExpressionError: an expression outside the grammar or its limits (`parse_expression`), none at all, more than MAX_EXPRESSIONS,
            another type than those above, or a file that is missing, not regular, larger than MAX_FILE_BYTES, unreadable or not UTF-8.
    """
    products = degree > 1 or symbols > 1 if polynomial is None else polynomial
    grammar = Grammar(modulus, symbols, products, degree)
    if isinstance(source, (str, os.PathLike)):
        return _parse_file(source, grammar)
    given: Any = source
    if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
        raise ExpressionError(f"expressions must be a sequence of strings or the path of a file, got {type(source).__name__}")
    if not source:
        raise ExpressionError(f"no expression given; allowed: {grammar.allowed}")
    if len(source) > MAX_EXPRESSIONS:
        raise ExpressionError(f"{len(source)} expressions; at most {MAX_EXPRESSIONS} are allowed")
    trees = []
    for i, text in enumerate(source, 1):
        where = "expression" if len(source) == 1 else f"expression {i}"
        if not isinstance(text, str):
            raise ExpressionError(f"{where}: must be a string, got {type(text).__name__}")
        trees.append(_Parser(text, grammar, where).tree())
    return trees


def parse_expression(text: str, grammar: Grammar = LINEAR) -> Tree:
    """Read one expression, for example `3*(x - 2) - d/dx(4*x + 1)` or `(2*x + 1)[x := 3*x]`.

    The sign before a number and the brackets are kept as they are written: `-3` is the negation of 3. A number times something is a
    multiple (SCALE), wherever in a chain of factors the number stands; a power stands for the product that it abbreviates.

    Raises:
        ExpressionError: a character or symbol that is not allowed, a missing operator, operand or bracket, a product, power or
            substitution where the grammar has none, a value of too high a degree, or more than MAX_LENGTH characters, MAX_NESTING
            brackets inside each other, `grammar.depth` levels or `grammar.nodes` nodes. The message shows the place.
    """
    return _Parser(text, grammar, "expression").tree()


class _Token(NamedTuple):
    kind: str  # "number", "name", "derivative" (the d/d before its symbol), "sign" or "end"
    text: str
    at: int  # index of its first character


class _Node(NamedTuple):
    """A sub-expression while it is parsed."""

    op: int
    operands: tuple[Any, ...]  # _Nodes; mypy knows no recursive NamedTuple
    arg: int
    depth: int
    size: int
    degree: int
    number: int = NO_NODE  # its value, if it is a number that counts as one before or after `*`


class _Parser:
    """One text on its way to a tree; a fresh one for each."""

    def __init__(self, text: str, grammar: Grammar, where: str, line: int | None = None) -> None:
        self.text, self.grammar, self.where, self.line = text, grammar, where, line
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"{where}: {len(text)} characters; at most {MAX_LENGTH} are allowed", None, line)
        self.tokens = [_Token(match.lastgroup or "", _SAME.get(match[0], match[0]), match.start()) for match in _TOKEN.finditer(text)]
        self.tokens.append(_Token("end", "", len(text.rstrip())))
        self.next = 0
        self.nesting = 0
        self.made = 0  # nodes so far; all of them end up in the tree

    def tree(self) -> Tree:
        """The tree of the whole text."""
        if self.here.kind == "end":
            self.fail("there is no expression", 0)
        node = self.sum()
        if self.here.kind != "end":
            self.unexpected()
        return _flatten(node)

    # -- the grammar, one method a rule --------------------------------------------------------------------------------------

    def sum(self) -> _Node:
        node = self.term()
        while self.here.text in ("+", "-"):
            token = self.advance()
            node = self.make(ADD if token.text == "+" else SUB, (node, self.term()), 0, token.at)
        return node

    def term(self) -> _Node:
        if self.here.text in ("+", "-"):
            token = self.advance()
            with self.nested(token.at):
                node = self.term()
            return node if token.text == "+" else self.make(NEG, (node,), 0, token.at)
        factors = [(self.factor(), 0)]
        while self.here.text == "*":
            star = self.advance().at
            if self.here.text in ("+", "-"):  # the sign takes the rest of the chain
                factors.append((self.as_number(self.term()), star))
            else:
                factors.append((self.factor(), star))
        return self.product(factors)

    def factor(self) -> _Node:
        node = self.primary()
        while self.here.text == "[":
            bracket = self.advance().at
            if not self.grammar.substitution:
                self.fail("substitution is switched off", bracket)
            symbol = self.symbol(self.expect("name", "a symbol, as in (...)[x := ...]"))
            self.expect(":=", "':=', as in (...)[x := ...]")
            with self.nested(bracket):
                node = self.make(SUBST, (node, self.sum()), symbol, bracket)
            self.expect("]", f"']' for the '[' in column {bracket + 1}")
        return self.power(node) if self.here.text == "**" else node

    def power(self, base: _Node) -> _Node:
        at = self.advance().at
        if not self.grammar.polynomial:
            self.fail("powers need polynomial=True", at)
        token = self.expect("number", "a whole number as the exponent")
        exponent = int(token.text.lstrip("0")[:6] or "0")  # a longer one is past every limit as well
        if exponent == 0:
            self.fail("an exponent is at least 1", token.at)
        node = base
        for _ in range(exponent - 1):  # `make` stops it at the first limit
            self.made += base.size
            node = self.make(MUL, (node, base), 0, at)
        if self.here.text == "**":
            self.fail("two powers in a row: write (...)^n with parentheses", self.here.at)
        return node

    def primary(self) -> _Node:
        token = self.here
        if token.kind == "number":
            self.advance()
            value = _modulo(token.text, self.grammar.modulus)
            return self.make(CONST, (), value, token.at)._replace(number=value)
        if token.kind == "name":
            return self.make(SYMBOL, (), self.symbol(self.advance()), token.at)
        if token.kind == "derivative":
            self.advance()
            symbol = self.symbol(self.expect("name", "a symbol, as in d/dx(...)"))
            node = self.brackets(self.expect("(", "'(' after the derivative's symbol, as in d/dx(x + 1)").at)
            return self.make(DIFF, (node,), symbol, token.at)
        if token.text == "(":
            return self.as_number(self.brackets(self.advance().at))
        return self.unexpected("a number, a symbol or '('")

    def brackets(self, opened: int) -> _Node:
        """What stands after the parenthesis at `opened`, and the closing one."""
        with self.nested(opened):
            node = self.sum()
        self.expect(")", f"')' for the '(' in column {opened + 1}")
        return node

    # -- nodes ---------------------------------------------------------------------------------------------------------------

    def make(self, op: int, operands: tuple[_Node, ...], arg: int, at: int) -> _Node:
        """One more node, written at `at`, if the limits allow it."""
        depth = 1 + max((operand.depth for operand in operands), default=-1)
        size = 1 + sum(operand.size for operand in operands)
        degrees = [operand.degree for operand in operands]
        degree = 1 if op == SYMBOL else max(degrees, default=0)
        if op == DIFF:
            degree = max(0, degree - 1)
        elif op == MUL:
            degree = sum(degrees)
        elif op == SUBST:
            degree = degrees[0] * max(1, degrees[1])
        grammar = self.grammar
        if depth > grammar.depth:
            self.fail(f"more than {grammar.depth} operations inside each other; brackets make long sums flatter: (a + b) + (c + d)", at)
        self.made += 1
        if self.made > grammar.nodes:
            self.fail(f"more than {grammar.nodes} operations, symbols and numbers", at)
        if grammar.polynomial and degree > grammar.degree:
            self.fail(f"degree {degree} is reached here; at most {grammar.degree} is allowed", at)
        return _Node(op, operands, arg, depth, size, degree)

    def product(self, factors: list[tuple[_Node, int]]) -> _Node:
        """The chain of `factors`, each with the place of the `*` before it: its numbers scale the product of the rest."""
        numbers = [factor for factor in factors if factor[0].number != NO_NODE]
        rest = [factor for factor in factors if factor[0].number == NO_NODE] or [numbers.pop()]
        node = rest[0][0]
        for factor, star in rest[1:]:
            if not self.grammar.polynomial:
                self.fail("one factor of a product must be a number; other products need polynomial=True", star)
            node = self.make(MUL, (node, factor), 0, star)
        self.made -= sum(number.size for number, _ in numbers)  # a multiple's number is no node of its own
        for number, star in reversed(numbers):
            node = self.make(SCALE, (node,), number.number, star or factors[1][1])
        return node

    def as_number(self, node: _Node) -> _Node:
        """`node`, a factor in brackets or after a sign, taken as a number if it is one.

        Where products are allowed it stays what is written: (2)*x is a product, 2*x a multiple. Otherwise it could not be used.
        """
        if self.grammar.polynomial:
            return node._replace(number=NO_NODE)
        if node.op == NEG and node.operands[0].op == CONST:
            return node._replace(number=-node.operands[0].arg % self.grammar.modulus)
        return node

    # -- tokens --------------------------------------------------------------------------------------------------------------

    @property
    def here(self) -> _Token:
        return self.tokens[self.next]

    def advance(self) -> _Token:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def expect(self, what: str, words: str) -> _Token:
        """The token here, which must be of kind or text `what`; `words` is what to call it."""
        if what not in (self.here.kind, self.here.text):
            self.unexpected(words)
        return self.advance()

    def symbol(self, token: _Token) -> int:
        """The index of a symbol."""
        names = SYMBOLS[: self.grammar.symbols]
        if token.text not in names:
            hint = "; a product is written with *" if set(token.text) <= set(names) else ""
            self.fail(f"unknown symbol {_short(token.text)}{hint}", token.at)
        return names.index(token.text)

    @contextmanager
    def nested(self, at: int) -> Iterator[None]:
        """One level of brackets or signs deeper, opened at `at`."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} brackets and signs inside each other", at)
        yield
        self.nesting -= 1

    # -- errors --------------------------------------------------------------------------------------------------------------

    def unexpected(self, wanted: str = "") -> NoReturn:
        """Complain about the token here."""
        token, before = self.here, self.tokens[self.next - 1] if self.next else None
        starts = token.kind in ("number", "name", "derivative") or token.text == "("
        if token.kind == "end":
            self.fail(f"the expression ends too early; expected {wanted}", token.at)
        if token.text in _HINTS:
            self.fail(f"unexpected {_short(token.text)}: {_HINTS[token.text]}", token.at)
        if starts and not wanted and before is not None:
            self.fail(f"an operator is missing before {_short(token.text)}; a multiple is written with *, as in 2*x", token.at)
        if token.text in (")", "]") and not wanted:
            self.fail(f"unexpected {_short(token.text)}: nothing is open that it could close", token.at)
        self.fail(f"unexpected {_short(token.text)}" + f"; expected {wanted}" * bool(wanted), token.at)

    def fail(self, problem: str, at: int) -> NoReturn:
        """Raise ExpressionError for the character with index `at`."""
        start = max(0, at - CONTEXT // 2)
        end = start + CONTEXT
        shown = "".join(char if char.isprintable() else " " for char in self.text[start:end])
        left, right = "..." * (start > 0), "..." * (end < len(self.text))
        caret = " " * (len(left) + at - start) + "^"
        place = f"{self.where}, column {at + 1}: {problem}"
        raise ExpressionError(f"{place}\n    {left}{shown}{right}\n    {caret}\nallowed: {self.grammar.allowed}", at + 1, self.line)


def _flatten(root: _Node) -> Tree:
    """The nodes in pre-order."""
    op = np.zeros(root.size, np.int8)
    left, right = np.full(root.size, NO_NODE, np.int16), np.full(root.size, NO_NODE, np.int16)
    arg = np.zeros(root.size, np.int16)
    pending = [(root, 0)]
    while pending:
        node, at = pending.pop()
        op[at], arg[at] = node.op, node.arg
        place = at + 1
        for column, operand in zip((left, right), node.operands, strict=False):
            column[at] = place
            pending.append((operand, place))
            place += operand.size
    return Tree(op, left, right, arg)


def _modulo(digits: str, modulus: int) -> int:
    """A decimal number of any length modulo `modulus`, in linear time."""
    value = 0
    for digit in digits:
        value = (10 * value + int(digit)) % modulus
    return value


def _short(text: str) -> str:
    """`text` quoted, cut where it is long."""
    return repr(text if len(text) <= 20 else text[:17] + "...")


def _parse_file(path: str | os.PathLike[str], grammar: Grammar) -> list[Tree]:
    """The expressions of a file, one a line."""
    text, name = _read(path)
    trees: list[Tree] = []
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        code = line.partition("#")[0]
        if not code.strip():
            continue
        if len(trees) == MAX_EXPRESSIONS:
            raise ExpressionError(f"{name}: more than {MAX_EXPRESSIONS} expressions", None, number)
        trees.append(_Parser(code, grammar, f"{name}, line {number}", number).tree())
    if not trees:
        raise ExpressionError(f"{name}: no expression in it, only empty lines and comments; allowed, one a line: {grammar.allowed}")
    return trees


def _read(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Text and name of a regular UTF-8 file of bearable size, without its byte order mark."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise ExpressionError("a path must be text, not bytes")
    shown = quoted_path(name)
    try:
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):
            raise ExpressionError(f"{shown} is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ExpressionError(f"{shown} is too large: {status.st_size} bytes; at most {MAX_FILE_BYTES} are read")
        data = Path(name).read_bytes()
    except OSError as error:
        hint = "" if isinstance(path, os.PathLike) else "; an expression itself is given in a list, as in expressions=['3*(x - 2)']"
        raise ExpressionError(f"cannot read the file {shown}: {error.strerror or error}{hint}") from error
    except ValueError as error:  # a null character in the name
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"cannot read the file {shown}: {error}") from error
    try:
        return data.decode("utf-8-sig"), Path(name).name
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ExpressionError(f"{Path(name).name}, line {line}: not UTF-8; save the file as UTF-8 text", None, line) from error
