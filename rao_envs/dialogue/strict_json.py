"""Files of JSON that strangers wrote: read within limits, refused with the place of the mistake, never executed.

Stricter than `json` where that guesses: a key that occurs twice, NaN and infinities, and numbers too long to be meant are errors.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rao_envs.core.arguments import quoted_path
from rao_envs.dialogue.ontology import OntologyError, PathLike

MAX_BYTES = 20_000_000
MAX_DEPTH = 16  # brackets inside each other; the deepest file here needs 7
MAX_ITEMS = 2_000_000  # values in all; a Python object may hold itself, and so be endless
MAX_DIGITS = 30


class _Doubled(dict[str, Any]):
    """An object in which a key occurs twice."""

    key: str = ""


def named_content(source: object, what: str) -> tuple[str, Any]:
    """What to call `source` in messages, and its content: dictionaries, lists, strings, finite numbers, booleans and None.

    Args:
        source: a path, or the content itself: a mapping or a list. A string is always a path.
        what: the argument's name, which is also what content without a file is called.

    Raises:
        OntologyError: no readable regular file of at most 20 MB, no UTF-8, no JSON, a repeated key, NaN or an infinity, a number of more
            than 30 digits, more than 16 levels, keys that are no strings, or a value that JSON does not have.
    """
    if isinstance(source, (str, os.PathLike)):
        return read_json(source, what)
    if isinstance(source, (Mapping, list, tuple)):
        return what, _Checker(what).value(source, "", 0)
    raise OntologyError(f"{what} must be the path of a JSON file or its content as a dictionary or list, got {type(source).__name__}")


def read_json(path: PathLike, what: str = "file") -> tuple[str, Any]:
    """The name and the content of a JSON file; raises OntologyError as `named_content` does."""
    data = _read(path, what)
    name = Path(path).name
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OntologyError(f"{name}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8") from None
    if not text.strip():
        raise OntologyError(f"{name}: empty; a JSON file holds one object or list")
    try:
        content = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_real)
    except json.JSONDecodeError as error:
        ends = error.pos >= len(text.rstrip())
        hint = "; the file ends too early: was it cut off?" if ends or error.msg.startswith("Unterminated") else ""
        raise OntologyError(f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}{hint}") from None
    except RecursionError:
        raise OntologyError(f"{name}: more than {MAX_DEPTH} brackets inside each other") from None
    return name, _Checker(name).value(content, "", 0)


def shown(value: object) -> str:
    """`value` for a message, cut where it is long."""
    return _REPR.repr(value)


def place(path: str, key: str | int) -> str:
    """The path of one value inside another: `domains[0].slots`; keys that are no plain names in quotes."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    plain = key.isidentifier() and len(key) <= 40
    return f"{path}[{shown(key)}]" if not plain else f"{path}.{key}" if path else key


def located(name: str, path: str, problem: str) -> OntologyError:
    """An error with the file, the place in it and what is wrong."""
    return OntologyError(f"{name}: {path}: {problem}" if path else f"{name}: {problem}")


class _Checker:
    """Copies content into plain dictionaries and lists, strings in form NFC, and complains about what is not data."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items = 0

    def value(self, value: Any, path: str, depth: int) -> Any:
        self.items += 1
        if self.items > MAX_ITEMS:
            raise located(self.name, "", f"more than {MAX_ITEMS:,} values")
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise located(self.name, path, f"{value} is no number that can be used; write null for what is not known")
            return value
        if depth == MAX_DEPTH:
            raise located(self.name, "", f"more than {MAX_DEPTH} brackets inside each other")
        if isinstance(value, Mapping):
            if isinstance(value, _Doubled):
                raise located(self.name, path, f"the key {shown(value.key)} occurs twice in one object")
            content: dict[str, Any] = {}
            for key, one in value.items():
                if not isinstance(key, str):
                    raise located(self.name, path, f"keys are strings, got {shown(key)}")
                composed = self.text(key, path)
                if composed in content:
                    raise located(self.name, path, f"the key {shown(composed)} occurs twice in one object")
                content[composed] = self.value(one, place(path, composed), depth + 1)
            return content
        if isinstance(value, (list, tuple)):
            return [self.value(one, place(path, i), depth + 1) for i, one in enumerate(value)]
        raise located(self.name, path, f"{type(value).__name__} is nothing that JSON has")

    def text(self, text: str, path: str) -> str:
        if text.isascii():
            return text
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise located(self.name, path, f"{shown(text)} holds half of a surrogate pair, which is no character")
        return unicodedata.normalize("NFC", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary; a marked one if a key occurs twice, for only later is it known where it stands."""
    content = dict(pairs)
    if len(content) == len(pairs):
        return content
    doubled = _Doubled(content)
    seen: set[str] = set()
    doubled.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return doubled


def _integer(digits: str) -> float:
    """An int; an infinity, which is refused where its place is known, if it is too long."""
    return int(digits) if len(digits) <= MAX_DIGITS else math.inf


def _real(digits: str) -> float:
    return float(digits) if len(digits) <= 10 * MAX_DIGITS else math.inf


def _read(path: PathLike, what: str) -> bytes:
    name = os.fspath(path)
    if not isinstance(name, str):
        raise OntologyError(f"{what}: a path must be text, not bytes")
    file = quoted_path(name)
    try:
        status = os.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise OntologyError(f"{file} is a directory; {what}= takes the path of a JSON file")
        if not stat.S_ISREG(status.st_mode):
            raise OntologyError(f"{file} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise OntologyError(f"{file} is too large: {status.st_size:,} bytes; at most {MAX_BYTES:,} are read")
        return Path(name).read_bytes()
    except OSError as error:
        raise OntologyError(f"cannot read the file {file}: {error.strerror or error}") from error
    except ValueError as error:  # a null character in the name
        if isinstance(error, OntologyError):
            raise
        raise OntologyError(f"cannot read the file {file}: {error}") from error


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 50
