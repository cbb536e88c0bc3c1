"""Generated sequences: what is planted, and that a part of them does not give the answer away."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rao_envs.longseq.domain import exact_answer
from rao_envs.longseq.env import LongSeqEnv, LongSeqVectorEnv
from rao_envs.longseq.generator import FEWEST, index, most_planted
from rao_envs.longseq.queries import CODES, KINDS, NONE, QUERIES, Question


def question_of(env: LongSeqEnv) -> Question:
    """The running question with its records found by looking at every one."""
    keys, values = env.sequence
    codes = [int(code) for code in env.batch.state.codes[0] if code >= 0]
    positions = tuple(np.flatnonzero(keys == code) for code in codes)
    kind = QUERIES[int(env.batch.state.task["kind"][0])].name
    return Question(kind, "", positions, tuple(values[places] for places in positions))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [16, 300, (20, 3000)])
def test_the_truth_is_what_counting_says(kind: str, length: int | tuple[int, int]) -> None:
    env = LongSeqEnv(length=length, query=kind, density=20.0)
    for seed in range(30):
        env.reset(seed=seed)
        keys, values = env.sequence
        assert keys.min() >= 0 and keys.max() < CODES and values.min() >= 0 and values.max() <= 9
        question = question_of(env)
        assert env.solution == exact_answer(question, (0, len(keys)))
        np.testing.assert_array_equal(env.matches, np.sort(np.concatenate(question.positions)))


@pytest.mark.parametrize("kind", KINDS)
def test_planted_records_are_as_many_as_documented(kind: str) -> None:
    env = LongSeqEnv(length=2000, query=kind, density=10.0)
    most = most_planted(2000, 10.0)
    assert most == 20
    sizes = []
    for seed in range(200):
        env.reset(seed=seed)
        sizes += [len(places) for places in question_of(env).positions]
    assert max(sizes) == (1 if kind in ("needle", "keys") else most)
    assert min(sizes) == (0 if kind == "count" else 1 if kind != "topk" else 3)


def test_short_sequences_have_a_few_planted_records_but_stay_mostly_background() -> None:
    assert most_planted(16, 2.0) == 4
    assert most_planted(100, 2.0) == most_planted(2500, 2.0) == FEWEST
    assert most_planted(1_000_000, 2.0) == 2000


def test_the_largest_digit_occurs_once() -> None:
    env = LongSeqEnv(length=1000, query="max")
    tops = Counter()
    for seed in range(300):
        env.reset(seed=seed)
        digits = question_of(env).digits[0].tolist()
        assert digits.count(max(digits)) == 1
        tops[max(digits)] += 1
    assert set(tops) == set(range(10)) and max(tops.values()) < 60, "its value is uniform, so that it cannot be guessed"


@pytest.mark.parametrize(("kind", "floor"), [("needle", 0.2), ("count", 0.45), ("max", 0.2), ("pairs", 0.6), ("majority", 0.6)])
def test_no_answer_is_right_most_of_the_time(kind: str, floor: float) -> None:
    env = LongSeqVectorEnv(300, length=4000, query=kind)
    env.reset(seed=0)
    answers = Counter(env.domain.solution(env.batch.state, i) for i in range(300))
    assert answers.most_common(1)[0][1] / 300 < floor


def test_needles_lie_anywhere() -> None:
    env = LongSeqEnv(length=1000, query="needle")
    places = []
    for seed in range(400):
        env.reset(seed=seed)
        places.append(int(env.matches[0]))
    shares = np.bincount(np.array(places) // 100, minlength=10) / 400
    assert (shares > 0.05).all() and (shares < 0.16).all()


def test_background_keys_and_digits_are_uniform() -> None:
    env = LongSeqEnv(length=200_000, query="needle")
    env.reset(seed=3)
    keys, values = env.sequence
    counts = np.bincount(keys, minlength=CODES)
    planted = int(env.batch.state.codes[0, 0])
    assert counts[planted] == 1
    others = np.delete(counts, planted) / len(keys) * (CODES - 1)
    assert (np.abs(others - 1.0) < 0.1).all()
    assert (np.abs(np.bincount(values) / len(values) - 0.1) < 0.01).all()


def test_lengths_are_drawn_by_octaves() -> None:
    env = LongSeqVectorEnv(600, length=(100, 1000))
    env.reset(seed=0)
    lengths = env.batch.state.task["hi"]
    assert lengths.min() >= 100 and lengths.max() <= 1000
    shares = np.histogram(lengths, [100, 200, 400, 801])[0] / 600
    assert (np.abs(shares - 0.25).max() < 0.12) and (lengths > 800).any()


def test_an_index_lists_places_by_key_and_digit() -> None:
    hits, offsets = index([np.array([2, 5, 9]), np.array([3])], [np.array([7, 0, 7]), np.array([1])])
    assert hits.tolist() == [5, 2, 9, 3]
    assert hits[offsets[7] : offsets[8]].tolist() == [2, 9] and hits[offsets[11] : offsets[12]].tolist() == [3]


def test_none_is_the_answer_where_nothing_is_found() -> None:
    empty = (np.zeros(0, np.int64),)
    assert exact_answer(Question("max", "", empty, empty), (0, 9)) == (NONE,)
    assert exact_answer(Question("topk", "", empty, empty), (0, 9)) == (NONE,) * 3
    assert exact_answer(Question("count", "", empty, empty), (0, 9)) == (0,)
