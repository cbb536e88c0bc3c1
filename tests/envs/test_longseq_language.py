"""Cloze tasks from real texts: where they come from, and what cannot give the answer away."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest

from rao_envs.cloze.env import ClozeEnv, ClozeVectorEnv
from rao_envs.longseq import language
from rao_envs.longseq.documents import TextQuestion
from rao_envs.longseq.language import SPLITS, ClozeDomain, NGrams, Place, balance, find_places, mine, number, shipped_cloze, shipped_texts
from rao_envs.longseq.queries import QUERY_CODES, Corpus
from rao_envs.longseq.text import DocumentError, Text, split_words

REACH, DISTANCE, PHRASE = 10_000, 2_000, 3
WINDOW = 1_984  # records that a window of 2,000 tokens holds


class Material:
    """A split as the miner sees it, with the places it finds."""

    def __init__(self, split: str) -> None:
        self.texts = shipped_texts(split)
        prior = language.background_text(self.texts)
        self.words = number((*self.texts, *prior))
        length = sum(map(len, self.texts))
        self.own, self.other = self.words.ids[:length], self.words.ids[length:]
        self.places = balance(find_places(NGrams(self.own, self.words, self.other), REACH, DISTANCE, PHRASE))
        self.corpus = shipped_cloze(split, REACH, DISTANCE, PHRASE)


@pytest.fixture(scope="module", params=list(SPLITS))
def material(request: pytest.FixtureRequest) -> Material:
    return Material(request.param)


def questions(corpus: Corpus) -> list[TextQuestion]:
    return [question for question in corpus.questions if isinstance(question, TextQuestion)]


# --- the texts ---


def test_splits_share_no_document() -> None:
    assert not set(SPLITS["train"]) & set(SPLITS["test"])
    train, test = ({bytes(text.data) for text in shipped_texts(split)} for split in SPLITS)
    assert len(train) == len(test) == 6
    assert not train & test


def test_texts_are_the_published_ones() -> None:
    """Trajectories depend on every word of them."""
    found = {}
    for text in (*shipped_texts("train"), *shipped_texts("test")):
        found[text.name] = (len(text), crc32(" ".join(text.tokens(0, len(text))).encode()))
    assert found == WORDS
    first = shipped_texts("train")[0]
    assert "GNU GENERAL PUBLIC LICENSE Version 1, February 1989" in " ".join(first.excerpt(0, 20).split())


WORDS = {  # how many, and a checksum
    "GPL-1": (2080, 1259973099),
    "GPL-2": (2989, 414732116),
    "GPL-3": (5700, 782112213),
    "LGPL-2": (4213, 1549013759),
    "LGPL-2.1": (4415, 1825380318),
    "LGPL-3": (1241, 351313822),
    "GFDL-1.2": (3329, 481193245),
    "GFDL-1.3": (3748, 40759925),
    "MPL-1.1": (3789, 2260333095),
    "MPL-2.0": (2426, 1875523716),
    "Apache-2.0": (1608, 447357694),
    "CC0-1.0": (1088, 286702611),
}


# --- the tasks ---


def test_evidence_is_far_away_and_the_only_one(material: Material) -> None:
    """In plain Python over the words, for every question."""
    words = [word.casefold() for text in material.texts for word in text.tokens(0, len(text))]
    assert len(material.places) == len(material.corpus.questions) > 900
    for place, question in zip(material.places, questions(material.corpus), strict=True):
        lo, hi = question.span or (0, 0)
        assert hi == place.at - 1
        assert lo == max(0, place.at - REACH)
        phrase = words[place.at - PHRASE : place.at]
        earlier = [i + PHRASE - 1 for i in range(lo, hi - PHRASE + 1) if words[i] == phrase[0] and words[i : i + PHRASE] == phrase]
        assert earlier == [place.evidence] == question.positions[0].tolist()
        assert place.at - place.evidence > DISTANCE
        assert words[place.evidence + 1] == words[place.at]
        symbol = int(question.digits[0][0])
        assert question.explain((symbol,)) == words[place.at]
        assert material.corpus.values[place.evidence] == symbol  # shown where it is found: nothing is relabelled


def test_candidates_are_ten_words_one_of_each_class(material: Material) -> None:
    for place, question in zip(material.places, questions(material.corpus), strict=True):
        assert len(set(question.meanings[0])) >= 10
        assert [material.words.classes[i] for i in place.candidates] == list(range(10))
        assert material.own[place.at] == place.candidates[place.answer]
        reach = set(material.own[place.first : place.at - 1].tolist())
        assert all(i in reach for i in place.candidates)


def test_the_masked_word_is_not_shown() -> None:
    """The record of the word before it, whose digit is the answer, lies beyond the sequence."""
    env = ClozeEnv(split="test")
    env.reset(seed=3)
    state = env.batch.state
    question = env.domain.corpus.questions[int(state.task["row"][0])] if env.domain.corpus else None
    assert isinstance(question, TextQuestion)
    keys, _ = env.sequence
    assert question.span is not None
    assert len(keys) == question.span[1] - question.span[0]
    assert question.text.endswith("___”")


# --- what must not help ---


def accuracy(material: Material, guess: Any) -> float:
    """How often the candidate with the highest score is the answer; equal ones share."""
    total = 0.0
    for place in material.places:
        scores = np.asarray(guess(place), float)[list(place.candidates)]
        best = scores == scores.max()
        total += best[place.answer] / best.sum()
    return total / len(material.places)


def counts(ids: npt.NDArray[np.int64], material: Material) -> npt.NDArray[np.int64]:
    return np.bincount(ids, minlength=len(material.words.names))


def followers(ids: npt.NDArray[np.int64], word: int, material: Material) -> npt.NDArray[np.int64]:
    return counts(ids[1:][ids[:-1] == word], material)


def test_guessers_are_near_chance(material: Material) -> None:
    """Word frequency and bigrams (backing off to frequency), of all that can be reached, of the window at its end, and of other texts."""
    own, other = material.own, material.other

    def reach(place: Place) -> npt.NDArray[np.int64]:
        return own[place.first : place.at]

    def window(place: Place) -> npt.NDArray[np.int64]:
        return own[max(place.first, place.at - WINDOW) : place.at]

    def bigram(ids: npt.NDArray[np.int64], place: Place) -> npt.NDArray[np.float64]:
        return followers(ids, int(own[place.at - 1]), material) + 1e-6 * counts(ids, material)

    def without_evidence(place: Place) -> npt.NDArray[np.float64]:
        scores = bigram(reach(place), place)
        scores[own[place.at]] -= 1.0
        return scores

    def most_frequent_class(place: Place) -> npt.NDArray[np.int64]:
        return np.bincount(material.words.classes[window(place)], minlength=10)[material.words.classes]

    guessers = {
        "frequency": lambda place: counts(reach(place), material),
        "frequency in the window": lambda place: counts(window(place), material),
        "frequency in other texts": lambda place: counts(other, material),
        "bigrams": without_evidence,
        "bigrams of the window": lambda place: bigram(window(place), place),
        "bigrams of other texts": lambda place: bigram(other, place),
        "bigrams of both": lambda place: bigram(window(place), place) + bigram(other, place),
        "most frequent class": most_frequent_class,
        "always the same class": lambda place: material.words.classes == 7,
    }
    measured = {name: accuracy(material, guess) for name, guess in guessers.items()}
    assert all(0.05 < value < 0.15 for value in measured.values()), measured


def test_the_evidence_does_help(material: Material) -> None:
    """The control: a reader who finds the earlier phrase is always right, and bigrams that include it mostly are."""
    assert accuracy(material, lambda place: np.arange(len(material.words.names)) == material.own[place.evidence + 1]) == 1.0
    own = material.own
    assert accuracy(material, lambda place: followers(own[place.first : place.at], int(own[place.at - 1]), material)) > 0.5


def test_ranks_are_equally_frequent(material: Material) -> None:
    ranks = np.bincount([place.rank for place in material.places], minlength=10)
    assert len(set(ranks.tolist())) == 1
    model = NGrams(material.own, material.words, material.other)
    for place in material.places[::40]:
        scores = model.scores(place.first, place.at, place.evidence)[list(place.candidates)]
        assert np.sum(scores > scores[place.answer]) == place.rank


# --- as environments ---


def test_the_same_tasks_every_time(material: Material) -> None:
    again = mine(material.texts, REACH, DISTANCE, PHRASE)
    np.testing.assert_array_equal(again.values, material.corpus.values)
    for one, two in zip(questions(again), questions(material.corpus), strict=True):
        assert (one.text, one.span, one.meanings) == (two.text, two.span, two.meanings)


@pytest.mark.parametrize("split", list(SPLITS))
def test_playing_from_the_observation(split: str) -> None:
    """Page through, look for the question's code, answer its digit: always right; and the last window alone never holds it."""
    env = ClozeEnv(split=split)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        layout, done, windows = env.domain.layout, False, []
        keys = observation["task"][layout["keys"]]
        while not (found := np.flatnonzero(keys == QUERY_CODES[0] + 1)).size:
            observation, *_ = env.step(env.action_names.index("page_next"))
            keys = observation["task"][layout["keys"]]
            windows.append(int((keys > 0).sum()))
        assert len(windows) >= 1  # not in the preview
        digit = int(observation["task"][layout["values"]][found[0]])
        _, reward, done, _, _ = env.step(digit)
        assert (reward, done) == (1.0, True)


def test_vector_and_questions() -> None:
    env = ClozeVectorEnv(num_envs=3, split="test")
    observation, _ = env.reset(seed=[1, 2, 3])
    assert observation["task"].shape[0] == 3
    single = ClozeEnv(split="test")
    single.reset(seed=0, options={"question": 5})
    assert single.asked == shipped_cloze("test", REACH, DISTANCE, PHRASE).questions[5].text


def test_a_text_of_ones_own() -> None:
    rng = np.random.default_rng(0)
    filler = [f"w{i}" for i in rng.zipf(1.3, 6000) % 400]
    chapter = " ".join(filler[:2500])
    env = ClozeEnv(text=[chapter + " ", " ".join(filler[2500:4000]), chapter], distance=1500)
    env.reset(seed=0)
    assert env.asked.startswith("Which word comes next?")
    assert "w" in env.asked
    with pytest.raises(DocumentError, match="nothing to ask in text: no phrase of 3 words occurs again, once, after 2,000 words"):
        ClozeDomain(text="one two three four five")


@pytest.mark.parametrize(("arguments", "match"), [
    ({"split": "dev"}, "'train', 'test', got 'dev'"),
    ({"distance": 3}, "distance must be an integer"),
    ({"reach": 3000}, r"reach must be an integer in \[4000"),
    ({"phrase": 1}, "phrase must be an integer"),
    ({"text": "a", "document": "b"}, "either document="),
])  # fmt: skip
def test_arguments_out_of_range(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ClozeDomain(**arguments)


def test_texts_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "MOST_WORDS", 100)
    with pytest.raises(DocumentError, match="words; at most 100"):
        mine(shipped_texts("test"), REACH, DISTANCE, PHRASE)


def test_words_have_one_number_each() -> None:
    text = "One two ONE; Two, three"
    words = number([language.parse(text.encode())])
    assert words.names == ("one", "two", "three")
    assert words.ids.tolist() == [0, 1, 0, 1, 2]
    assert split_words(text)[2] == "ONE"
    assert isinstance(shipped_texts("test")[0], Text)


@pytest.mark.parametrize("split", ["valid", ["train"], None])
def test_an_unknown_split_is_refused(split: Any) -> None:
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        ClozeDomain(split=split)
