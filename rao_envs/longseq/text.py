"""People's own documents as tokens: words or bytes, with their places in the text, found again exactly.

**Words** are maximal runs of letters, digits and combining marks, by the Unicode data of the running Python; everything else (spaces,
punctuation, the underscore, the apostrophe) separates. Chinese characters and hiragana, which are written without spaces, are a word
each. Words are compared case-folded (full folding: `STRASSE` is `straße`), in Unicode's composed form NFC. **Bytes** are compared as
they are.
"""

from __future__ import annotations

import codecs
import functools
import os
import stat
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rao_envs.core.arguments import quoted_path
from rao_envs.longseq import scan

MAX_BYTES = 100_000_000
UNITS = ("words", "bytes")
CHUNK = 1 << 22  # bytes that are checked at a time
LIMITS = (0x80, 0x800, 0x10000, 0x110000)  # code points of one, two, three and four bytes of UTF-8 lie below these
HIRAGANA = range(0x3041, 0x3097)
COMPOSING = 0xCC  # UTF-8 of U+0300 and above begins with this byte or a greater one; nothing below composes with what stands before it
IDEOGRAPHS = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")

PathLike: TypeAlias = "str | os.PathLike[str]"


class DocumentError(ValueError):
    """A document or a question about it that cannot be used. The message says what is wrong, where, and what is allowed."""


@dataclass(frozen=True, eq=False)
class Text:
    """A document as tokens. Do not write to the arrays: environments share them.

    Attributes:
        name: the file's name, or "text".
        units: "words" or "bytes".
        data: uint8 (B,), the document: UTF-8 in form NFC without a byte order mark; the file's own bytes where these are the tokens.
        starts: int32 (L,), the byte at which each word begins; of bytes, None.
        hashes: of words uint32 (L,), a hash of the folded form: equal for equal words, and all but surely different otherwise; of bytes,
            uint8 (L,), themselves.
    """

    name: str
    units: str
    data: npt.NDArray[np.uint8]  # (B,)
    starts: npt.NDArray[np.int32] | None  # (L,)
    hashes: npt.NDArray[np.uint32] | npt.NDArray[np.uint8]  # (L,)

    def __len__(self) -> int:
        return len(self.hashes)

    def token(self, i: int) -> str:
        """Token `i` as it stands in the document; bytes that are no printable ASCII in hexadecimal."""
        if self.starts is None:
            byte = int(self.data[i])
            return chr(byte) if 33 <= byte < 127 else "␣" if byte == 32 else f"\\x{byte:02x}"
        begin = int(self.starts[i])
        return self.data[begin : scan.token_end(self.data, begin, self.tables()[0])].tobytes().decode()

    def tokens(self, first: int, end: int) -> tuple[str, ...]:
        """The tokens [first, end) as they stand in the document."""
        return tuple(self.token(i) for i in range(max(0, first), min(end, len(self))))

    def excerpt(self, first: int, end: int) -> str:
        """The document from token `first` to the last before `end`, with everything between them; bytes that are no text as "?"."""
        first, end = max(0, first), min(end, len(self))
        if first >= end:
            return ""
        if self.starts is None:
            return self.data[first:end].tobytes().decode("utf-8", "replace")
        last = int(self.starts[end - 1])
        return self.data[int(self.starts[first]) : scan.token_end(self.data, last, self.tables()[0])].tobytes().decode()

    def line(self, i: int) -> int:
        """The line of the document on which token `i` begins, from 1."""
        begin = i if self.starts is None else int(self.starts[i])
        return int(np.count_nonzero(self.data[:begin] == ord("\n"))) + 1

    def find(self, phrase: str) -> npt.NDArray[np.uint8]:
        """uint8 (L,): 1 at the last token of every occurrence of `phrase`, one token or several. Compared in full, not by hash.

        Occurrences may overlap. Raises DocumentError for a phrase without a token.
        """
        found = np.zeros(len(self), np.uint8)
        if self.starts is None:
            wanted = np.frombuffer(phrase.encode("utf-8", "surrogateescape"), np.uint8)
            if not len(wanted):
                raise DocumentError("an empty phrase: ask for at least one byte")
            scan.find_bytes(self.data, wanted, found)
            return found
        codes, bounds = fold(phrase)
        classes, folds = self.tables()
        scan.find_phrase(self.data, classes, folds, self.starts, codes, bounds, found)
        return found

    def tables(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """Classes and folded forms of its characters, see `character_tables`."""
        return character_tables(self._limit)

    @functools.cached_property
    def _limit(self) -> int:
        return _reach(self.data)


def read_documents(
    document: PathLike | Sequence[PathLike] | None = None, text: str | Sequence[str] | None = None, units: str = "words"
) -> tuple[Text, ...]:
    """Read one document or several.

    Args:
        document: the path of a file, or a list of paths. A string here is always a path.
        text: the text itself, or a list of texts. A string here is never a path.
        units: what a token is: "words" or "bytes".

    Raises:
        DocumentError: neither or both given, unknown units, a path that is no readable regular file, more than 100 MB, an empty
            document or one without a word, or (of words) one that is not UTF-8: the message gives the first bad byte.
    """
    if units not in UNITS:
        raise DocumentError(f"units must be one of {', '.join(map(repr, UNITS))}, got {units!r}")
    if (document is None) == (text is None):
        raise DocumentError("give either document= (a path, or a list of paths) or text= (the text itself, or a list of texts)")
    if text is not None:
        given = [text] if isinstance(text, str) else list(_sequence("text", text))
        names = ["text"] if len(given) == 1 else [f"text {k}" for k in range(len(given))]
        for part in given:
            if not isinstance(part, str):
                raise DocumentError(f"text must be a string or a list of strings, got {type(part).__name__}; files go in document=")
        return tuple(parse(part.encode("utf-8", "surrogatepass"), name, units) for part, name in zip(given, names, strict=True))
    paths = [document] if isinstance(document, (str, os.PathLike)) else list(_sequence("document", document))
    return tuple(parse(_read_file(path), Path(path).name, units) for path in paths)


def parse(data: bytes, name: str = "text", units: str = "words") -> Text:
    """The bytes of a document as tokens; raises DocumentError as `read_documents` does."""
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{name}: {len(data):,} bytes; a document has at most {MAX_BYTES:,}")
    if not data:
        raise DocumentError(f"{name}: empty; a document has at least one of its units ({units})")
    if units == "bytes":
        raw = np.frombuffer(data, np.uint8)
        return Text(name, units, raw, None, raw)
    array = np.frombuffer(_composed(data, name), np.uint8)
    classes, folds = character_tables(_reach(array))
    starts, hashes = np.empty(len(array) // 2 + 1, np.int32), np.empty(len(array) // 2 + 1, np.uint32)
    count = scan.tokenise(array, classes, folds, starts, hashes)
    if count == 0:
        raise DocumentError(f"{name}: holds no word (a run of letters or digits); units='bytes' takes any file")
    return Text(name, units, array, starts[:count].copy(), hashes[:count].copy())


def fold(phrase: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The words of `phrase` as folded code points, uint32 (M,), and where each begins and the last ends, int64 (words + 1,).

    Raises DocumentError when there is no word in it, or no text.
    """
    words = split_words(phrase)
    if not words:
        raise DocumentError(f"{phrase!r} holds no word (a run of letters or digits)")
    folded = [word.casefold() for word in words]
    bounds = np.cumsum([0, *map(len, folded)], dtype=np.int64)
    return np.array([ord(character) for character in "".join(folded)], np.uint32), bounds


def split_words(text: str) -> list[str]:
    """The words of a text, by the same rules as a document's, as they stand there in form NFC."""
    text = unicodedata.normalize("NFC", text)
    words, word = [], ""
    for character in text:
        kind = character_class(character)
        if kind == scan.WORD:
            word += character
            continue
        if word:
            words.append(word)
        word = ""
        if kind == scan.ALONE:
            words.append(character)
    return [*words, word] if word else words


def character_class(character: str) -> int:
    """`GAP`, `WORD` (part of a word) or `ALONE` (a word of its own) of `rao_envs.longseq.scan`."""
    if character.isalnum():
        if ord(character) in HIRAGANA or unicodedata.name(character, "").startswith(IDEOGRAPHS):
            return scan.ALONE
        return scan.WORD
    return scan.WORD if unicodedata.category(character).startswith("M") else scan.GAP


@functools.cache
def character_tables(limit: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Classes, uint8 (limit,), and folded forms, uint32 (limit, 3), of all code points below `limit`."""
    classes = np.zeros(limit, np.uint8)
    folds = np.zeros((limit, 3), np.uint32)
    folds[:, 0] = np.arange(limit)
    for code in range(limit):
        character = chr(code)
        kind = character_class(character)
        if kind:
            classes[code] = kind
            folded = character.casefold()
            if folded != character:
                folds[code] = 0
                folds[code, : len(folded)] = [ord(part) for part in folded]
    return classes, folds


def _reach(data: npt.NDArray[np.uint8]) -> int:
    """Of `LIMITS`, the first above every code point of a UTF-8 text."""
    top = int(data.max(initial=0))
    return LIMITS[0 if top < 0x80 else 1 if top < 0xE0 else 2 if top < 0xF0 else 3]


def _composed(data: bytes, name: str) -> bytes:
    """Checked UTF-8 without a byte order mark, in form NFC."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError(f"{name}: begins with the byte order mark of UTF-16; save it as UTF-8, or read it with units='bytes'")
    data = data.removeprefix(codecs.BOM_UTF8)
    if data.isascii():
        return data
    view = memoryview(data)
    first = 0
    while first < len(data):
        end = min(first + CHUNK, len(data))
        while end < len(data) and end > first + CHUNK - 4 and data[end] & 0xC0 == 0x80:
            end -= 1
        try:
            str(view[first:end], "utf-8")
        except UnicodeDecodeError as error:
            at = first + error.start
            line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
            raise DocumentError(
                f"{name}: not UTF-8: {error.reason} 0x{data[at]:02x} at byte {at:,} (line {line:,}, byte {column:,} of it); "
                "save it as UTF-8, or read it with units='bytes'"
            ) from None
        first = end
    return _compose(data)


def _compose(data: bytes) -> bytes:
    """UTF-8 in form NFC: `unicodedata.normalize`, fast where most is ASCII.

    Only runs beyond ASCII are looked at, each with the character before it, on which it may compose: ASCII composes with nothing before it.
    """
    array = np.frombuffer(data, np.uint8)
    high = array >= 0x80
    edges = np.flatnonzero(high[1:] != high[:-1]) + 1
    firsts = np.concatenate([[0] * int(high[0]), edges[int(high[0]) :: 2]]).astype(np.int64)
    ends = np.concatenate([edges[1 - int(high[0]) :: 2], [len(data)] * int(high[-1])]).astype(np.int64)
    doubtful = np.maximum.reduceat(array, firsts) >= COMPOSING
    parts, done = [], 0
    for first, end in zip(np.maximum(firsts[doubtful] - 1, 0).tolist(), ends[doubtful].tolist(), strict=True):
        run = data[first:end].decode()
        if not unicodedata.is_normalized("NFC", run):
            parts += [data[done:first], unicodedata.normalize("NFC", run).encode()]
            done = end
    return b"".join([*parts, data[done:]]) if parts else data


def _read_file(path: object) -> bytes:
    """The content of a regular file of at most `MAX_BYTES`."""
    if not isinstance(path, (str, os.PathLike)):
        raise DocumentError(f"document must be a path or a list of paths, got {type(path).__name__}; the text itself goes in text=")
    shown = quoted_path(path)
    hint = "document= takes the path of a file; the text itself goes in text="
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise DocumentError(f"{shown} is a directory; {hint}")
        if not stat.S_ISREG(found.st_mode):
            raise DocumentError(f"{shown} is not a regular file; {hint}")
        if found.st_size > MAX_BYTES:
            raise DocumentError(f"{shown} has {found.st_size:,} bytes; a document has at most {MAX_BYTES:,}")
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise DocumentError(f"{shown}: no such file; {hint}") from None
    except PermissionError:
        raise DocumentError(f"{shown}: no permission to read it") from None
    except (OSError, ValueError) as error:  # a name too long, a null byte
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"{shown}: {getattr(error, 'strerror', None) or error}; {hint}") from None


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Sequence):
        kind = "a path" if name == "document" else "a string"
        raise DocumentError(f"{name} must be {kind} or a list of them, got {type(value).__name__}")
    if not value:
        raise DocumentError(f"{name} is an empty list")
    return value
