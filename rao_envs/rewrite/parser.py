"""People's own expressions: a small grammar read into token strings, with errors that point at the place.

The text is a stranger's, so nothing here evaluates it: a tokeniser and a recursive-descent parser, with limits on length, nesting, numbers
and exponents.

    expression = signs, term, {("+" | "-"), signs, term}
    term       = factor, {("*" | "/"), signs, factor}
    factor     = primary, [("^" | "**"), signs, factor]
    signs      = {"+" | "-"}
    primary    = integer | symbol | function, "(", expression, ")" | "d/d" symbol, "(", expression, ")" | "(", expression, ")"
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

from rao_envs.algebra.parser import ExpressionError
from rao_envs.rewrite.bridge import canonical
from rao_envs.rewrite.rules import FORMS, has_form
from rao_envs.rewrite.tokens import (
    DERIVATIVE,
    DIGITS,
    FUNCTIONS,
    INTEGER,
    MAX_EXPONENT,
    RATIO,
    SYMBOL,
    SYMBOLS,
    UnrepresentableError,
    integer_tokens,
    power,
    product,
    read_integer,
    total,
)

ExpressionSource: TypeAlias = "str | os.PathLike[str] | Sequence[str]"

MAX_LENGTH = 2_000  # characters of one expression
MAX_NESTING = 40  # brackets, signs and powers inside each other
MAX_EXPRESSIONS = 10_000
MAX_FILE_BYTES = 8 * 1024 * 1024

HALF = bytes((RATIO, INTEGER + 1, INTEGER + 2))
MINUS_ONE = bytes((INTEGER - 1,))
NAMES = {name: token for token, name in FUNCTIONS.items()}
ALLOWED = (
    f"integers of up to {DIGITS} digits; the symbols {', '.join(SYMBOLS)}; + - * / and ^ (or **), integer exponents up to {MAX_EXPONENT}; "
    f"{', '.join(NAMES)}, sqrt; d/dx(...), d/dy(...), d/dz(...); parentheses"
)

_TOKEN = re.compile(r"\s*(?:(?P<derivative>d\s*/\s*d\s*[a-z])|(?P<number>[0-9]+)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|\S))")


class _Word(NamedTuple):
    """One token of the text."""

    kind: str
    text: str
    column: int  # counted from 1


def parse_expressions(source: ExpressionSource, capacity: int, form: int) -> list[bytes]:
    """Read expressions from a sequence of strings, or from a UTF-8 file with one a line (empty lines and `#` comments are skipped).

    Args:
        source: the strings, or the file's path.
        capacity: the most tokens an expression may have.
        form: the index into FORMS that will be asked for; -1 if any may be.

    Raises:
        ExpressionError: none at all, too many, one that cannot be read, is too large, or has the form that is asked for already; or a
            file that cannot be read.
    """
    given: Any = source
    lines: list[tuple[int | None, str]]
    if isinstance(given, (str, os.PathLike)):
        lines = _read_file(Path(given))
    elif isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
        lines = [(None, text) for text in given]
    else:
        raise ExpressionError(f"expressions must be a sequence of strings or the path of a file, got {type(given).__name__}")
    if not 1 <= len(lines) <= MAX_EXPRESSIONS:
        raise ExpressionError(f"give 1 to {MAX_EXPRESSIONS} expressions, got {len(lines)}; allowed: {ALLOWED}")
    result = []
    for number, (line, text) in enumerate(lines, 1):
        tokens = parse_expression(text, capacity, line=line)
        forms = range(len(FORMS)) if form < 0 else (form,)
        if all(has_form(wanted, tokens) for wanted in forms):
            has = " and ".join(FORMS[wanted] for wanted in forms)
            raise ExpressionError(f"{_where(line, number)}there is nothing to do: it is {has} already", line=line)
        result.append(tokens)
    return result


def parse_expression(text: str, capacity: int, line: int | None = None) -> bytes:
    """The canonical token string of one expression.

    Raises:
        ExpressionError: text outside the grammar or its limits, with the column, what was wrong there and what is allowed.
    """
    given: Any = text
    if not isinstance(given, str):
        raise ExpressionError(f"an expression must be a string, got {type(given).__name__}")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{_where(line)}an expression has at most {MAX_LENGTH} characters, got {len(text)}", line=line)
    raw = _Parser(text, line).whole()
    try:
        tokens = canonical(raw)
    except UnrepresentableError as error:
        raise ExpressionError(f"{_where(line)}{text.strip()!r:.80} cannot be held: {error}", line=line) from error
    if len(tokens) > capacity:
        raise ExpressionError(f"{_where(line)}the expression takes {len(tokens)} tokens; capacity={capacity} allows {capacity}", line=line)
    return tokens


class _Parser:
    """Recursive descent over the words of one text; every method returns a token string."""

    def __init__(self, text: str, line: int | None) -> None:
        self.text, self.line = text, line
        self.words = [
            _Word(str(match.lastgroup), match.group(str(match.lastgroup)), match.start(str(match.lastgroup)) + 1)
            for match in _TOKEN.finditer(text)
        ]
        self.words.append(_Word("end", "", len(text.rstrip()) + 1))
        self.at = 0
        self.nesting = 0

    def whole(self) -> bytes:
        """The whole text as one expression."""
        if self.here.kind == "end":
            self.fail("the expression is empty", self.here)
        result = self.sum()
        if self.here.kind != "end":
            self.fail(f"unexpected {self.here.text!r}; expected an operator or the end", self.here)
        return result

    @property
    def here(self) -> _Word:
        return self.words[self.at]

    def take(self) -> _Word:
        word = self.here
        self.at += 1
        return word

    def sum(self) -> bytes:
        terms = [self.signed(self.term)]
        while self.here.text in ("+", "-"):
            sign = self.take().text
            term = self.signed(self.term)
            terms.append(term if sign == "+" else product(MINUS_ONE, term))
        return terms[0] if len(terms) == 1 else total(*terms)

    def signed(self, read: Callable[[], bytes]) -> bytes:
        """What `read` reads, after any signs."""
        negative = False
        while self.here.text in ("+", "-"):
            negative ^= self.take().text == "-"
        result = read()
        if not negative:
            return result
        number = read_integer(result, 0)
        return integer_tokens(-number[0]) if number is not None else product(MINUS_ONE, result)

    def term(self) -> bytes:
        factors = [self.factor()]
        while self.here.text in ("*", "/"):
            sign = self.take().text
            factor = self.signed(self.factor)
            factors.append(factor if sign == "*" else power(factor, MINUS_ONE))
        return factors[0] if len(factors) == 1 else product(*factors)

    def factor(self) -> bytes:
        base = self.primary()
        if self.here.text not in ("^", "**"):
            return base
        self.take()
        begin = self.here
        exponent = self.nested(lambda: self.signed(self.factor), begin)
        number = read_integer(exponent, 0)
        if number is not None and abs(number[0]) > MAX_EXPONENT:
            self.fail(f"exponents go up to {MAX_EXPONENT}", begin)
        return power(base, exponent)

    def primary(self) -> bytes:
        word = self.take()
        if word.kind == "number":
            digits = word.text.lstrip("0") or "0"
            if len(digits) > DIGITS:
                self.fail(f"integers have at most {DIGITS} digits", word)
            return integer_tokens(int(digits))
        if word.kind == "derivative":
            symbol = word.text[-1]
            if symbol not in SYMBOLS:
                self.fail(f"derivatives are by {', '.join(SYMBOLS)}, not by {symbol!r}", word)
            return bytes((DERIVATIVE + SYMBOLS.index(symbol),)) + self.brackets(f"d/d{symbol}")
        if word.kind == "name":
            if word.text in SYMBOLS:
                if self.here.text == "(":
                    self.fail("a product needs its *", self.here)
                return bytes((SYMBOL + SYMBOLS.index(word.text),))
            if word.text == "sqrt":
                return power(self.brackets("sqrt"), HALF)
            if word.text in NAMES:
                return bytes((NAMES[word.text],)) + self.brackets(word.text)
            self.fail(f"unknown name {word.text!r}", word)
        if word.text != "(":
            self.fail(f"unexpected {word.text!r}" if word.text else "the expression ends too early", word)
        self.at -= 1
        return self.brackets("")

    def brackets(self, after: str) -> bytes:
        """What is in the parentheses that must come next."""
        opening = self.take()
        if opening.text != "(":
            self.fail(f"{after} needs parentheses: {after}(...)", opening)
        result = self.nested(self.sum, opening)
        if self.here.text != ")":
            self.fail(f"the parenthesis opened in column {opening.column} is not closed", self.here)
        self.take()
        return result

    def nested(self, read: Callable[[], bytes], word: _Word) -> bytes:
        """What `read` reads, one level further down."""
        if self.nesting == MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} brackets and powers inside each other", word)
        self.nesting += 1
        result = read()
        self.nesting -= 1
        return result

    def fail(self, problem: str, word: _Word) -> NoReturn:
        """Raise ExpressionError with the column, a line that points at it, and what is allowed."""
        start = max(0, word.column - 1 - 50)
        shown = "".join(char if char.isprintable() else " " for char in self.text[start : start + 72])
        pointer = " " * (word.column - 1 - start) + "^"
        raise ExpressionError(
            f"{_where(self.line)}column {word.column}: {problem}\n  {shown}\n  {pointer}\nallowed: {ALLOWED}", word.column, self.line
        )


def _where(line: int | None, number: int | None = None) -> str:
    if line is not None:
        return f"line {line}: "
    return "" if number is None else f"expression {number}: "


def _read_file(path: Path) -> list[tuple[int | None, str]]:
    """The file's expressions with their line numbers."""
    try:
        if not path.is_file():
            raise ExpressionError(f"expressions={str(path)!r} is not a file; for one expression pass a list: expressions=[...]")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ExpressionError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ExpressionError(f"{path} cannot be read as UTF-8 text: {error}") from error
    lines: list[tuple[int | None, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if content := line.split("#", 1)[0].strip():
            lines.append((number, content))
    return lines
