"""Questions about people's own documents: `document="contract.txt", query="count:liability"` as a `Corpus` with exact truths.

A token of the document (a word or a byte, `rao_envs.longseq.text`) becomes one record: its key is a hash of the token, one of 61 codes
that many tokens share, and its digit is the class, 0 to 9, of the token that *follows*, another hash. The tokens that a question is
about are found by comparing them in full and get codes that nothing else has, so that no collision can touch a truth.

| query | asks | answer |
|---|---|---|
| `count:WORD` | how often does WORD occur, **modulo 3** | 0, 1, 2 |
| `exists:WORD` | does WORD occur | 1 (yes) or none (no) |
| `needle:WORD` | which word follows the first occurrence of WORD | the class of that word: one of ten candidates |
| `last:WORD` | which word follows the last occurrence of WORD | the same |
| `keys:A,B,C` | which words follow the first occurrences of A, of B, of C | three such classes |
| `max:WORD` | the largest number written directly after WORD (`section 7`) | 0 to 9, where 9 stands for 9 or more, or none |
| `topk:WORD` | the three largest of these numbers, repeated ones counted | three of these |
| `majority:WORD` | which word follows WORD more often than not | one of the nine most frequent followers, 9 for "another", or none |
| `pairs:A,B` | do A and B both occur within the same tenth of the document | 1 (yes), 0 (no) |

WORD may be several words (`count:intellectual property`): an occurrence is where its last word stands. Punctuation between words does
not count. Of bytes (`units="bytes"`) it is taken as typed, from the colon on, and its UTF-8 is looked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.longseq import scan
from rao_envs.longseq.queries import CODES, DIGITS, MODULUS, NONE, PLACES, Corpus, Question
from rao_envs.longseq.text import DocumentError, PathLike, Text, fold, read_documents, split_words

SHARED_CODES = CODES - PLACES
"""Codes that the tokens of a document share; a `Corpus` keeps the others for its questions."""
TENTHS = 10
FEWEST = 16  # tokens of a document
MAX_TOKENS = 100_000_000
VOCABULARY_BYTES = 8_000_000  # of a document's beginning, looked through for words like one that does not occur

Positions = npt.NDArray[np.int64]
Digits = npt.NDArray[np.int8]


@dataclass(frozen=True)
class TextQuestion(Question):
    """A question about a document.

    Attributes:
        meanings: for each symbol of the answer, what 0 to 10 stand for.
    """

    meanings: tuple[tuple[str, ...], ...] = ()

    def explain(self, symbols: Sequence[int]) -> str:
        """An answer in words."""
        return ", ".join(meaning[symbol] for meaning, symbol in zip(self.meanings, symbols, strict=True))


@dataclass(frozen=True, eq=False)
class Shelf:
    """Documents one behind the other: `shelf(first, end)` gives the texts of the tokens [first, end)."""

    texts: tuple[Text, ...]
    offsets: tuple[int, ...]  # the first token of each, and the end of the last

    def __call__(self, first: int, end: int) -> tuple[str, ...]:
        """The tokens [first, end) as they stand in the documents."""
        parts: list[str] = []
        for text, offset in zip(self.texts, self.offsets, strict=False):
            parts += text.tokens(first - offset, end - offset)
        return tuple(parts)

    def excerpt(self, first: int, end: int) -> str:
        """The tokens [first, end) with what stands between them, on one line; across documents with a blank between."""
        parts = [text.excerpt(first - offset, end - offset) for text, offset in zip(self.texts, self.offsets, strict=False)]
        return " ".join(" ".join(parts).split())


def load_document(
    document: PathLike | Sequence[PathLike] | None,
    query: str | Sequence[str] | None,
    *,
    text: str | Sequence[str] | None = None,
    units: str = "words",
) -> Corpus:
    """A document, or several, with one question or several about each.

    Args:
        document: the path of a file, or a list of paths; None with `text`.
        query: a query (the module's table), or a list of them: each is asked about each document.
        text: the text itself, or a list of texts. (A string in `document` is always a path, and one in `text` never is.)
        units: what a token is: "words" or "bytes".

    Raises:
        DocumentError: an unknown query, a WORD that does not occur (`exists` alone allows that) or that nothing follows, or a document
            that cannot be used (`rao_envs.longseq.text.read_documents`).
    """
    queries = [query] if isinstance(query, str) else list(query) if isinstance(query, Sequence) else []
    if not queries:
        raise DocumentError(f"query must be a string or a list of strings such as 'count:liability', got {query!r}")
    forms = [_parse(one, units) for one in queries]  # before anything is read: documents can be large
    texts = read_documents(document, text, units)
    offsets = np.cumsum([0, *map(len, texts)]).tolist()
    short = min(texts, key=len)
    if len(short) < FEWEST:
        raise DocumentError(f"{short.name}: only {len(short)} {units}; a document has at least {FEWEST}")
    if offsets[-1] > MAX_TOKENS:
        raise DocumentError(f"{offsets[-1]:,} {units} in all; at most {MAX_TOKENS:,}")
    keys, values = np.zeros(offsets[-1], np.int8), np.zeros(offsets[-1], np.int8)
    questions = []
    for part, offset in zip(texts, offsets, strict=False):
        span = (offset, offset + len(part))
        encode(part, keys[slice(*span)], values[slice(*span)])
        for form, words in forms:
            asked = form.ask(part, words)
            positions = tuple(places + offset for places in asked.positions)
            where = f" ({part.name})" if len(texts) > 1 else ""
            questions.append(replace(asked, positions=positions, span=span if len(texts) > 1 else None, text=asked.text + where))
    title = texts[0].name if len(texts) == 1 else f"{texts[0].name} and {len(texts) - 1} more"
    return Corpus(keys, values, tuple(questions), title, units, Shelf(texts, tuple(offsets)))


def encode(text: Text, keys: npt.NDArray[np.int8], values: npt.NDArray[np.int8]) -> None:
    """Write the key and the digit of every token into `keys` and `values`, int8 (L,) each; the last token's digit is 0."""
    keys[:] = text.hashes % np.uint8(SHARED_CODES)
    values[:-1] = word_class(text.hashes[1:])
    values[-1:] = 0


def word_class(hashes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The classes, 0 to 9, of tokens with these hashes."""
    return (hashes // np.uint8(SHARED_CODES)) % np.uint8(DIGITS)  # bits that the keys do not use


# -- forms of questions ------------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A form of query: what its name stands for."""

    words: int
    ask: Callable[[Text, tuple[str, ...]], TextQuestion]


def _parse(query: object, units: str) -> tuple[Form, tuple[str, ...]]:
    """The form of a query and its words."""
    allowed = ", ".join(f"{name}:{','.join('ABC'[: form.words]) if form.words > 1 else 'WORD'}" for name, form in FORMS.items())
    if not isinstance(query, str):
        raise DocumentError(f"a query is a string such as 'count:liability', got {query!r}; allowed: {allowed}")
    name, colon, rest = query.partition(":")
    form = FORMS.get(name.strip())
    if form is None or not colon:
        near = difflib.get_close_matches(name.strip(), list(FORMS), n=1)
        hint = f"; did you mean {near[0]!r}?" if near and near[0] != name.strip() else ""
        wrong = "unknown query" if form is None else "a query without a colon and a word"
        raise DocumentError(f"{wrong}: {query!r}{hint}; allowed: {allowed}")
    words = tuple(rest.split(",")) if form.words > 1 else (rest,)
    if units == "words":
        words = tuple(word.strip() for word in words)
    if len(words) != form.words:
        raise DocumentError(f"{query!r} has {len(words)} words between commas; {name.strip()} takes {form.words}")
    for word in words:
        if not word or (units == "words" and not split_words(word)):
            raise DocumentError(f"{query!r}: {word!r} holds no word (a run of letters or digits)" if word else f"{query!r}: no word given")
    return form, words


def _count(text: Text, words: tuple[str, ...]) -> TextQuestion:
    places = _occurrences(text, words[0])
    answers = tuple(f"{k} (modulo {MODULUS})" for k in range(MODULUS))
    asked = f"How often does {_quoted(words[0])} occur, modulo {MODULUS}?"
    return TextQuestion("count", asked, (places,), (_classes_after(text, places),), meanings=(answers,))


def _exists(text: Text, words: tuple[str, ...]) -> TextQuestion:
    places = np.flatnonzero(text.find(words[0]))
    meaning = tuple("no" if k == NONE else "yes" for k in range(NONE + 1))
    asked = f"Does {_quoted(words[0])} occur?"
    return TextQuestion("max", asked, (places,), (np.ones(len(places), np.int8),), meanings=(meaning,))


def _first(text: Text, words: tuple[str, ...]) -> TextQuestion:
    return _follower(text, words, "needle", 0, f"Which {_one(text)} follows the first {_quoted(words[0])}?")


def _last(text: Text, words: tuple[str, ...]) -> TextQuestion:
    return _follower(text, words, "needle", -1, f"Which {_one(text)} follows the last {_quoted(words[0])}?")


def _keys(text: Text, words: tuple[str, ...]) -> TextQuestion:
    return _follower(text, words, "keys", 0, f"Which {text.units} follow the first {', '.join(map(_quoted, words))}?")


def _follower(text: Text, words: tuple[str, ...], kind: str, which: int, asked: str) -> TextQuestion:
    places, digits, meanings = [], [], []
    for word in words:
        found = _followed(text, word)
        place = found[which : which + 1 or None]
        places.append(place)
        digits.append(_classes_after(text, place))
        meanings.append(_class_meanings(text, found, int(place[0]) + 1))
    if len(set(map(int, np.concatenate(places)))) < len(places):
        raise DocumentError(f"{', '.join(map(repr, words))} end in the same place: ask for them one by one")
    return TextQuestion(kind, asked, tuple(places), tuple(digits), meanings=tuple(meanings))


def _numbers(kind: str, text: Text, words: tuple[str, ...], asked: str) -> TextQuestion:
    if text.starts is None:
        raise DocumentError("numbers after a word can be asked of words only; units='bytes' allows count, exists, needle, last, ...")
    places = _occurrences(text, words[0])
    places = places[places + 1 < len(text)]
    found = np.zeros(len(places), np.int8)
    scan.small_numbers(text.data, text.tables()[0], text.starts, places + 1, found)
    meaning = (*map(str, range(9)), "9 or more", "none")
    places, found = places[found >= 0], found[found >= 0]
    return TextQuestion(kind, asked, (places,), (found,), meanings=(meaning,) * (PLACES if kind == "topk" else 1))


def _largest(text: Text, words: tuple[str, ...]) -> TextQuestion:
    return _numbers("max", text, words, f"What is the largest number right after {_quoted(words[0])}?")


def _three_largest(text: Text, words: tuple[str, ...]) -> TextQuestion:
    return _numbers("topk", text, words, f"What are the three largest numbers right after {_quoted(words[0])}?")


def _majority(text: Text, words: tuple[str, ...]) -> TextQuestion:
    places = _followed(text, words[0])
    candidates = [text.token(i) for i in _by_frequency(text, places + 1)[: DIGITS - 1]]
    found = np.zeros(len(places), np.int8)
    if text.starts is None:
        codes = text.data[[int(i) for i in _by_frequency(text, places + 1)[: DIGITS - 1]]]
        match = text.data[places + 1][:, None] == codes[None, :]
        found[:] = np.where(match.any(axis=1), match.argmax(axis=1), len(codes))
    else:
        folded = [fold(word)[0] for word in candidates]
        bounds = np.cumsum([0, *map(len, folded)], dtype=np.int64)
        scan.classify(text.data, *text.tables(), text.starts, places + 1, np.concatenate(folded), bounds, found)
    found[found == len(candidates)] = DIGITS - 1
    meaning = (*candidates, *["another"] * (DIGITS - len(candidates)), "none")
    asked = f"Which {_one(text)} follows {_quoted(words[0])} more often than not?"
    return TextQuestion("majority", asked, (places,), (found,), meanings=(meaning,))


def _pairs(text: Text, words: tuple[str, ...]) -> TextQuestion:
    places = _occurrences(text, words[0]), _occurrences(text, words[1])
    if len(np.intersect1d(places[0], places[1])):
        raise DocumentError(f"{words[0]!r} and {words[1]!r} end in the same place: they cannot be told apart there")
    tenths = tuple((TENTHS * part // len(text)).astype(np.int8) for part in places)
    asked = f"Do {_quoted(words[0])} and {_quoted(words[1])} occur in the same tenth of the document?"
    return TextQuestion("pairs", asked, places, tenths, meanings=(("no", "yes"),))


FORMS = {
    "count": Form(1, _count),
    "exists": Form(1, _exists),
    "needle": Form(1, _first),
    "last": Form(1, _last),
    "keys": Form(3, _keys),
    "max": Form(1, _largest),
    "topk": Form(1, _three_largest),
    "majority": Form(1, _majority),
    "pairs": Form(2, _pairs),
}
"""The one table of queries; the module's docstring says what they ask."""


# -- parts -------------------------------------------------------------------------------------------------------------------------


def _occurrences(text: Text, word: str) -> Positions:
    """Where a word or phrase ends: tokens, ascending; raises DocumentError if nowhere."""
    places = np.flatnonzero(text.find(word))
    if len(places) == 0:
        near = _similar(text, word)
        hint = f"; words like it: {', '.join(near)}" if near else ""
        raise DocumentError(f"{word!r} does not occur in {text.name}{hint} (exists:WORD takes any word)")
    return places


def _followed(text: Text, word: str) -> Positions:
    """Occurrences that something follows."""
    places = _occurrences(text, word)
    places = places[places + 1 < len(text)]
    if len(places) == 0:
        raise DocumentError(f"{word!r} occurs at the end of {text.name} only: nothing follows it")
    return places


def _classes_after(text: Text, places: Positions) -> Digits:
    """The class of what follows each token; 0 at the document's end."""
    after = word_class(text.hashes[np.minimum(places + 1, len(text) - 1)]).astype(np.int8)
    after[places + 1 >= len(text)] = 0
    return after


def _class_meanings(text: Text, places: Positions, answer: int) -> tuple[str, ...]:
    """A word for each class: the answer's own, else the most frequent of those that follow the word, else of the document's beginning."""
    words = dict.fromkeys(range(DIGITS), "")
    common = _by_frequency(text, np.arange(min(len(text), 100_000)))
    for i in [answer, *_by_frequency(text, places + 1), *common]:
        kind = int(word_class(text.hashes[i : i + 1])[0])
        words[kind] = words[kind] or text.token(i)
        if all(words.values()):
            break
    return (*(words[k] or "-" for k in range(DIGITS)), "none")


def _by_frequency(text: Text, tokens: Positions) -> list[int]:
    """One token of each hash among `tokens`, the most frequent first, equally frequent ones in the document's order."""
    _, first, counts = np.unique(text.hashes[tokens], return_index=True, return_counts=True)
    return [int(i) for i in tokens[first[np.lexsort((first, -counts))]]]


def _similar(text: Text, word: str) -> list[str]:
    """Up to three words of the document that look like `word`."""
    if text.starts is None:
        return []
    beginning = text.data[:VOCABULARY_BYTES].tobytes().decode("utf-8", "ignore").casefold()
    return difflib.get_close_matches(word.casefold(), sorted(set(split_words(beginning))), n=3, cutoff=0.7)


def _one(text: Text) -> str:
    return text.units.removesuffix("s")


def _quoted(word: str) -> str:
    return f"“{word}”"
