"""Cloze: which word comes next in a real text, where the only evidence lies thousands of words earlier.

A task is a place in a text at which the preceding phrase (three words by default) has occurred exactly once before within reach, far
beyond the window, and was followed there by the same word. It is asked as a needle question: the record to be found is the end of that
earlier phrase, its digit is the class of the word after it. Ten candidates, one of each class, make chance 10 %.

Candidates are chosen so that neither frequency nor neighbours give the answer away: words are scored by an interpolated n-gram model of
the text within reach *without* the evidence and of another text; for each task a rank is drawn, and the candidates are words nearly as
plausible as the answer of which that many are more so. What a place cannot offer is not asked, and ranks are then made equally
frequent, so that the best-scored candidate is the answer one time in ten.

The environment recognises the phrase: the agent is given its code, not its words. So this measures recall over a long reach (MISSION:
"long sequence", the source's language modelling), not knowledge of language.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from rao_envs.core.arguments import whole_number
from rao_envs.longseq.documents import MAX_TOKENS, Shelf, TextQuestion, encode, word_class
from rao_envs.longseq.domain import LongSeqDomain
from rao_envs.longseq.queries import DIGITS, Corpus
from rao_envs.longseq.text import DocumentError, PathLike, Text, parse, read_documents

SPLITS = {
    "train": ("GPL-1", "GPL-2", "GPL-3", "LGPL-2", "LGPL-2.1", "LGPL-3"),
    "test": ("GFDL-1.2", "GFDL-1.3", "MPL-1.1", "MPL-2.0", "Apache-2.0", "CC0-1.0"),
}
"""The shipped texts, which share no document between splits."""
WEIGHTS = (0.4, 0.25, 0.25, 0.1)
"""Of the model that scores candidates: two words before, one word before, the same in another text, how frequent the word is."""
MOST_WORDS = 2_000_000  # of a text of one's own: mining keeps several arrays per word
SHOWN = 10  # words of the text in the question

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Words:
    """A text as numbers: equal words, and only these, have equal ids."""

    ids: Ids  # (T,) in [0, V)
    classes: npt.NDArray[np.int8]  # (V,) of each word, 0 to 9
    names: tuple[str, ...]  # (V,) each word as it first occurs, case-folded


class Place(NamedTuple):
    """Where a word is asked for."""

    at: int  # the masked word's index in the text
    evidence: int  # the last word of the earlier phrase
    first: int  # where the sequence begins
    answer: int  # its class
    candidates: tuple[int, ...]  # (10,) word ids by class
    rank: int  # how many candidates are more plausible than the answer


class ClozeDomain(LongSeqDomain):
    """Masked words of real texts.

    Args:
        split: which shipped texts, "train" or "test"; of no meaning with a text of one's own.
        reach: words that the sequence has at most, the masked one's phrase not counted; at least twice `distance`.
        distance: words between the evidence and the masked word at least.
        phrase: words of the phrase that is looked up, 2 to 8.
        window, pointers, notes, finer: see `LongSeqDomain`.
        document, text: texts of one's own instead, see `rao_envs.longseq.text.read_documents`; several are read one behind the other.

    Raises:
        ValueError: a value out of range; a text in which nothing can be asked.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        reach: int = 10_000,
        distance: int = 2_000,
        phrase: int = 3,
        window: int = 2000,
        pointers: int = 1,
        notes: int = 11,
        finer: int = 2,
        document: PathLike | Sequence[PathLike] | None = None,
        text: str | Sequence[str] | None = None,
    ) -> None:
        if split not in tuple(SPLITS):  # a list cannot be looked up in a dict
            raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {split!r}")
        distance = whole_number("distance", distance, 16, MAX_TOKENS)
        reach = whole_number("reach", reach, 2 * distance, MAX_TOKENS)
        phrase = whole_number("phrase", phrase, 2, 8)
        if document is None and text is None:
            corpus = shipped_cloze(split, reach, distance, phrase)
        else:
            corpus = mine(read_documents(document, text), reach, distance, phrase)
        super().__init__(document=corpus, window=window, pointers=pointers, notes=notes, finer=finer)
        self.split = split
        self.name = "LongSeq-cloze"


def shipped_texts(split: str) -> tuple[Text, ...]:
    """The texts of a split."""
    folder = resources.files("rao_envs.longseq") / "texts"
    return tuple(parse((folder / f"{name}.txt").read_bytes(), name) for name in SPLITS[split])


@functools.cache
def shipped_cloze(split: str, reach: int, distance: int, phrase: int) -> Corpus:
    """`mine` on a split of the shipped texts; kept, since domains only read it."""
    return mine(shipped_texts(split), reach, distance, phrase)


def mine(texts: Sequence[Text], reach: int, distance: int, phrase: int) -> Corpus:
    """Every place of some texts, read one behind the other, at which a word can be asked for.

    Deterministic: nothing is drawn, ranks come from checksums of the words.

    Raises:
        DocumentError: no such place, or more than 2 million words.
    """
    offsets = np.cumsum([0, *map(len, texts)]).tolist()
    if offsets[-1] > MOST_WORDS:
        raise DocumentError(f"{offsets[-1]:,} words; at most {MOST_WORDS:,} can be searched for repeated phrases")
    prior = background_text(texts)
    shelf = Shelf(tuple(texts), tuple(offsets))
    words = number((*texts, *prior))
    own = words.ids[: offsets[-1]]
    model = NGrams(own, words, words.ids[offsets[-1] :])
    places = balance(find_places(model, reach, distance, phrase))
    if not places:
        raise DocumentError(
            f"nothing to ask in {texts[0].name}: no phrase of {phrase} words occurs again, once, after {distance:,} words or more within "
            f"{reach:,}; give a longer text, a smaller distance or a shorter phrase"
        )
    keys, values = np.zeros(len(own), np.int8), np.zeros(len(own), np.int8)
    for text, offset in zip(texts, offsets, strict=False):
        encode(text, keys[offset : offset + len(text)], values[offset : offset + len(text)])
    for end in offsets[1:-1]:  # a text's last word is followed by the next text's first
        values[end - 1] = words.classes[own[end]]
    title = texts[0].name if len(texts) == 1 else f"{texts[0].name} and {len(texts) - 1} more"
    questions = tuple(_question(place, shelf, words) for place in places)
    return Corpus(keys, values, questions, title, "words", shelf)


def background_text(texts: Sequence[Text]) -> tuple[Text, ...]:
    """The text that a guesser may know beforehand: the training split, or the test split of the training texts."""
    names = {text.name for text in texts}
    return shipped_texts("test" if names & set(SPLITS["train"]) else "train")


def number(texts: Sequence[Text]) -> Words:
    """The words of some texts, one behind the other, as numbers in the order of their first occurrence."""
    table: dict[str, int] = {}
    ids = np.array([table.setdefault(token.casefold(), len(table)) for text in texts for token in text.tokens(0, len(text))], np.int64)
    hashes = np.concatenate([text.hashes for text in texts])
    _, first = np.unique(ids, return_index=True)
    return Words(ids, word_class(hashes[first]).astype(np.int8), tuple(table))


class NGrams:
    """What a guesser knows who has read the text within reach, but for the evidence, and another text."""

    def __init__(self, own: Ids, words: Words, prior: Ids) -> None:
        self.own, self.words, self.size = own, words, len(words.names)
        self.prior = followers(prior)
        self.places = {word: np.asarray(group) for word, group in _groups(own)}  # ascending
        self.members = [np.flatnonzero(words.classes == kind) for kind in range(DIGITS)]

    def scores(self, first: int, at: int, evidence: int) -> npt.NDArray[np.float64]:
        """How plausible each word is at `at`, float64 (V,), reading from `first` on; 0 for words that do not occur there."""
        own = self.own
        frequency = np.bincount(own[first : at - 1], minlength=self.size)
        same = self.places[int(own[at - 1])]
        same = same[np.searchsorted(same, first + 1) : np.searchsorted(same, at - 1)]
        same = same[same != evidence]
        two = same[own[same - 1] == own[at - 2]]
        elsewhere = self.prior.get(int(own[at - 1]), same[:0])
        scores = np.zeros(self.size)
        for weight, seen in zip(WEIGHTS, (own[two + 1], own[same + 1], elsewhere), strict=False):
            if len(seen):
                scores += np.bincount(seen, minlength=self.size) * (weight / len(seen))
        scores += frequency * (WEIGHTS[-1] / (at - 1 - first))
        scores[frequency == 0] = 0.0
        return scores


def followers(ids: Ids) -> dict[int, Ids]:
    """What follows each word: its id -> the ids that follow it, one for each time."""
    return {word: ids[1:][group] for word, group in _groups(ids[:-1])}


def _groups(ids: Ids) -> list[tuple[int, Ids]]:
    """The places of each id, ascending."""
    order = np.argsort(ids, kind="stable")
    cuts = np.flatnonzero(np.diff(ids[order])) + 1
    return [(int(ids[group[0]]), group) for group in np.split(order, cuts) if len(group)]


def find_places(model: NGrams, reach: int, distance: int, phrase: int) -> list[Place]:
    """Every place that offers ten candidates with the answer at its drawn rank."""
    own = model.own.tolist()
    places = []
    ends: dict[tuple[int, ...], list[int]] = {}  # of every phrase so far
    for at in range(phrase, len(own)):
        seen = ends.setdefault(tuple(own[at - phrase : at]), [])
        first = max(0, at - reach)
        earlier = [end for end in seen[-2:] if end - phrase + 1 >= first]
        if len(earlier) == 1 and at - earlier[0] > distance and own[earlier[0] + 1] == own[at]:
            place = _choose(model, first, at, earlier[0])
            if place is not None:
                places.append(place)
        seen.append(at - 1)
    return places


def _choose(model: NGrams, first: int, at: int, evidence: int) -> Place | None:
    """The place with its candidates, or None if too few words are more, or less, plausible than the answer."""
    answer = int(model.own[at])
    own_class = int(model.words.classes[answer])
    scores = model.scores(first, at, evidence)
    more: dict[int, int] = {}  # class -> the word just above the answer
    less: dict[int, int] = {}  # class -> the word just below it
    for kind, members in enumerate(model.members):
        there = scores[members]
        above, below = there > scores[answer], (there < scores[answer]) & (there > 0)
        if kind != own_class and above.any():
            more[kind] = int(members[np.argmin(np.where(above, there, np.inf))])
        if kind != own_class and below.any():
            less[kind] = int(members[np.argmax(np.where(below, there, -1.0))])
    sign = " ".join(model.words.names[int(i)] for i in model.own[max(0, at - SHOWN) : at + 1])
    rank = crc32(f"rank: {sign}".encode()) % DIGITS
    order = sorted(more, key=lambda kind: (kind in less, crc32(f"{kind}: {sign}".encode())))  # those that can only be above come first
    chosen = {**less, **{kind: more[kind] for kind in order[:rank]}}
    if len(order) < rank or any(kind not in less for kind in order[rank:]) or len(chosen) < DIGITS - 1:
        return None
    chosen[own_class] = answer
    return Place(at, evidence, first, own_class, tuple(chosen[kind] for kind in range(DIGITS)), rank)


def balance(places: list[Place]) -> list[Place]:
    """As many places of every rank: of the frequent ones every so many-th is left out. Places keep their order."""
    by_rank: list[list[Place]] = [[] for _ in range(DIGITS)]
    for place in places:
        by_rank[place.rank].append(place)
    fewest = min(map(len, by_rank))
    kept = [group[k * len(group) // fewest] for group in by_rank if fewest for k in range(fewest)]
    return sorted(kept)


def _question(place: Place, shelf: Shelf, words: Words) -> TextQuestion:
    shown = shelf.excerpt(place.at - SHOWN, place.at)
    return TextQuestion(
        "needle",
        f"Which word comes next? “… {shown} ___”",
        (np.array([place.evidence], np.int64),),
        (np.array([place.answer], np.int8),),
        span=(place.first, place.at - 1),  # the word before the masked one shows the masked one's class
        meanings=((*(words.names[i] for i in place.candidates), "none"),),
    )
