"""People's own brackets: `[MAX 2 9 [MIN 4 7] 0]` as tokens, with errors that point at the character at fault."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.arguments import quoted_path
from rao_envs.nested.generator import CLOSE, OPEN, OPERATORS

Tokens = npt.NDArray[np.int8]

LONGEST = 1_000_000
"""Tokens that a text may have."""
MOST_BYTES = 100_000_000
WORD = re.compile(r"[A-Za-z_]+|[0-9]+|\S")
NAMES = {**{name: k for k, name in enumerate(OPERATORS)}, "SM": 0}
"""Operators, in any case; SM is what ListOps calls the sum."""


class NestedError(ValueError):
    """A text that cannot be used: says where (line and column from 1), what was found and what is allowed there."""


def read_texts(source: Any, modulus: int) -> list[Tokens]:
    """Tokens, int8 (length,), of each text that `source` names.

    Args:
        source: one text, which begins with "["; the path of a UTF-8 file with one text a line, in which empty lines and lines that begin
            with "#" mean nothing; or a list of texts.
        modulus: digits must be below it.

    Raises:
        NestedError: what is given is no text or file of texts, or a text is malformed.
    """
    if isinstance(source, str) and (source.lstrip().startswith("[") or "\n" in source):
        return _read_lines(source, modulus, "")
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.strip()):
        return _read_lines(_read_file(Path(source)), modulus, f"{os.fspath(source)}, ")
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes)) and source and all(isinstance(text, str) for text in source):
        return [parse(text, modulus, f"text {k}, ") for k, text in enumerate(source)]
    raise NestedError(f"text must be brackets such as '[MAX 2 0 [MIN 1 2] 0]', a list of them, or a file's path, got {source!r:.80}")


def parse(text: str, modulus: int, where: str = "") -> Tokens:
    """One text as tokens, int8 (length,).

    The grammar: `bracket = "[" operator argument+ "]"`, `argument = digit | bracket`, with white space or commas between arguments;
    the operators are SUM (also SM, modulo `modulus`), MAX and MIN, in any case.

    Raises:
        NestedError: the text is malformed, has a digit that is too large, or more than 1,000,000 tokens.
    """
    tokens: list[int] = []
    open_at: list[int] = []  # columns of the brackets that are open
    filled: list[bool] = []  # whether each has an argument
    wants_operator = False
    for match in WORD.finditer(text):
        word, at = match.group(), match.start()
        if wants_operator:
            operator = NAMES.get(word.upper())
            if operator is None:
                raise _error(text, at, f'{word!r} is no operator: "[" is followed by {", ".join(OPERATORS)}', where)
            tokens.append(OPEN + operator)
            wants_operator = False
        elif word == ",":
            if not open_at:
                raise _error(text, at, "a comma outside brackets", where)
        elif word == "[":
            if tokens and not open_at:
                raise _error(text, at, "the outermost bracket is closed: one text is one bracket", where)
            if filled:
                filled[-1] = True
            open_at.append(at)
            filled.append(False)
            wants_operator = True
        elif not open_at:
            raise _error(text, at, f'{word!r} outside brackets: a text is one bracket, "[MAX 2 0]"', where)
        elif word == "]":
            if not filled[-1]:
                raise _error(text, at, "a bracket without arguments", where)
            open_at.pop()
            filled.pop()
            tokens.append(CLOSE)
        elif word.isdecimal() and word.isascii():
            if len(word) > 1 or int(word) >= modulus:
                hint = f"; pass modulus={int(word) + 1} (at most 10)" if len(word) == 1 else ""
                raise _error(text, at, f"{word} is not a digit from 0 to {modulus - 1}{hint}", where)
            filled[-1] = True
            tokens.append(int(word))
        else:
            raise _error(text, at, f'{word!r} is not an argument: digits, brackets ("[MAX 2 0]") and "]" are', where)
        if len(tokens) > LONGEST:
            raise _error(text, at, f"more than {LONGEST:,} tokens", where)
    if wants_operator or open_at:
        at = open_at[-1]
        raise _error(text, at, 'this bracket is never closed: "]" is missing at the end', where)
    if not tokens:
        raise NestedError(f'{where}empty: a text is one bracket, "[MAX 2 0]"')
    return np.array(tokens, np.int8)


def to_text(tokens: Tokens) -> str:
    """Tokens, int8 (length,), as text: `parse` reads it back."""
    words = [f"[{OPERATORS[token - OPEN]}" if OPEN <= token < CLOSE else "]" if token == CLOSE else str(token) for token in tokens.tolist()]
    return " ".join(words).replace(" ]", "]")


def _read_file(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise NestedError(f"{quoted_path(path)} is larger than {MOST_BYTES // 1_000_000} MB")
        return path.read_text("utf-8")
    except OSError as error:
        hint = '; a text begins with "["' if len(str(path)) < 200 else ""
        raise NestedError(f"cannot read {quoted_path(path)}: {error.strerror}{hint}") from error
    except UnicodeDecodeError as error:
        raise NestedError(f"{quoted_path(path)} is not UTF-8 text (byte {error.start})") from error


def _read_lines(content: str, modulus: int, where: str) -> list[Tokens]:
    lines = content.splitlines()
    named = [(f"{where}line {k}, " if where or len(lines) > 1 else "", line) for k, line in enumerate(lines, 1)]
    texts = [parse(line, modulus, name) for name, line in named if line.strip() and not line.lstrip().startswith("#")]
    if not texts:
        raise NestedError(f"{where}no text: one bracket a line is expected")
    return texts


def _error(text: str, at: int, message: str, where: str) -> NestedError:
    first, end = max(0, at - 40), at + 30
    cut, rest = "..." if first else "", "..." if end < len(text) else ""
    shown = text[first:end].replace("\t", " ").replace("\n", " ")
    pointer = " " * (len(cut) + at - first) + "^"
    return NestedError(f"{where}column {at + 1}: {message}\n  {cut}{shown}{rest}\n  {pointer}")
