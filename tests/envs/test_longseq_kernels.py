"""Spans, windows, pages, notes, answers and progress of long sequences, against plain models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.longseq import kernels
from rao_envs.longseq.domain import LongSeqDomain, exact_answer
from rao_envs.longseq.env import LongSeqEnv
from rao_envs.longseq.queries import CODES, KINDS, NONE, QUERY_CODES, SYMBOLS, Corpus, Question
from tests.envs.test_longseq_generator import question_of

SMALL: dict[str, Any] = {"window": 64, "density": 30.0}
RECORDS = 48
ANSWER_NONE, NEXT, PREVIOUS, NOTE = 10, 11, 12, 13
LEFT, RIGHT, ALL = 24, 25, 26


def make(**kwargs: Any) -> LongSeqEnv:
    return LongSeqEnv(**{**SMALL, **kwargs})


def parts(env: LongSeqEnv, observation: dict[str, Any]) -> dict[str, Any]:
    return {name: observation["task"][where] for name, where in env.domain.layout.items()}


def answer(env: LongSeqEnv, symbols: tuple[int, ...]) -> Any:
    for symbol in symbols:
        step = env.step(symbol)
    return step


def truth(env: LongSeqEnv) -> tuple[int, ...]:
    """The exact answer of the acting frame."""
    depth = int(env.batch.stack.episodes["depth"][0])
    return kernels.exact(env.batch.state, 0, *kernels.spans_of(env.batch.state.frames[0, depth]))


def span(env: LongSeqEnv) -> tuple[int, int]:
    return kernels.spans_of(env.batch.state.frames[0, int(env.batch.stack.episodes["depth"][0])])[:2]


# -- truths ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pairs"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.tuples(st.integers(0, 500), st.integers(0, 500)))
def test_the_truth_of_any_span_is_what_counting_says(kind: str, seed: int, cuts: tuple[int, int]) -> None:
    env = make(length=500, query=kind)
    env.reset(seed=seed)
    lo, hi = sorted(cuts)
    assert kernels.exact(env.batch.state, 0, lo, hi) == exact_answer(question_of(env), (lo, hi))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 500), min_size=4, max_size=4))
def test_pairs_are_looked_for_in_two_spans(seed: int, cuts: list[int]) -> None:
    env = make(length=500, query="pairs")
    env.reset(seed=seed)
    question = question_of(env)
    (lo, hi), (lo2, hi2) = sorted(cuts[:2]), sorted(cuts[2:])
    first = {d for p, d in zip(question.positions[0], question.digits[0], strict=True) if lo <= p < hi}
    second = {d for p, d in zip(question.positions[1], question.digits[1], strict=True) if lo2 <= p < hi2}
    assert kernels.exact(env.batch.state, 0, lo, hi, lo2, hi2) == (int(bool(first & second)),)


# -- windows -----------------------------------------------------------------------------------------------------------------------


def test_a_span_that_fits_is_shown_whole_and_cannot_be_paged() -> None:
    env = make(length=40)
    observation, _ = env.reset(seed=0)
    part = parts(env, observation)
    keys, values = env.sequence
    np.testing.assert_array_equal(part["keys"], [*(keys + 1), *[0] * (RECORDS - 40)])
    np.testing.assert_array_equal(part["values"], [*values, *[0] * (RECORDS - 40)])
    assert part["fits"] == 1 and not part["pages"].any()
    assert not observation["action_mask"][NEXT : NOTE + SYMBOLS].any()
    codes = env.batch.state.codes[0]
    np.testing.assert_array_equal(part["codes"], codes + 1)


def test_a_longer_span_shows_a_preview_then_pages_in_a_circle() -> None:
    env = make(length=130)
    observation, _ = env.reset(seed=0)
    keys, values = env.sequence
    part = parts(env, observation)
    assert part["fits"] == 0 and not part["pages"].any()
    np.testing.assert_array_equal(part["keys"], [*(keys[:16] + 1), *[0] * 32])
    assert observation["action_mask"][NEXT] and not observation["action_mask"][PREVIOUS]
    for page in [0, 1, 2, 0]:
        observation, *_ = env.step(NEXT)
        part = parts(env, observation)
        shown = slice(page * RECORDS, min(130, (page + 1) * RECORDS))
        count = shown.stop - shown.start
        np.testing.assert_array_equal(part["keys"][:count], keys[shown] + 1)
        np.testing.assert_array_equal(part["values"][:count], values[shown])
        assert not part["keys"][count:].any()
        assert part["pages"].tolist() == [1, page == 0, page == 2, 0, 0, 0]
        assert observation["action_mask"][PREVIOUS] == (page > 0)
    env.step(NEXT)
    observation, *_ = env.step(PREVIOUS)
    assert parts(env, observation)["pages"].tolist() == [1, 1, 0, 0, 0, 0]


def test_two_pointers_show_half_a_window_each() -> None:
    env = make(length=130, pointers=2)
    env.reset(seed=0)
    keys, _ = env.sequence
    env.step(NEXT)
    env.step(NEXT)
    env.step(NEXT)
    observation, *_ = env.step(NEXT + 2)
    part = parts(env, observation)
    np.testing.assert_array_equal(part["keys"][:24], keys[48:72] + 1)
    np.testing.assert_array_equal(part["keys"][24:], keys[:24] + 1)
    assert part["pages"].tolist() == [1, 0, 0, 1, 1, 0]


def test_a_frame_about_pairs_shows_both_spans() -> None:
    env = make(length=40, query="pairs")
    env.reset(seed=0)
    keys, _ = env.sequence
    env.step(LEFT)
    observation, *_ = env.step(LEFT)
    part = parts(env, observation)
    assert part["fits"] == 1
    np.testing.assert_array_equal(part["keys"], [*(keys[:20] + 1), *[0] * 4, *(keys[:20] + 1), *[0] * 4])
    frame = env.batch.state.frames[0, 2]
    assert kernels.spans_of(frame) == (0, 20, 0, 20)


# -- answers, spawns ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "symbols"), [("count", 3), ("needle", 11), ("max", 11), ("keys", 11), ("pairs", 2), ("majority", 11)])
def test_only_symbols_of_the_kind_may_be_written(kind: str, symbols: int) -> None:
    env = make(length=20, query=kind)
    observation, _ = env.reset(seed=0)
    assert observation["action_mask"][:SYMBOLS].tolist() == [1] * symbols + [0] * (SYMBOLS - symbols)


@pytest.mark.parametrize("kind", KINDS)
def test_the_root_is_judged_when_its_answer_is_complete(kind: str) -> None:
    env = make(length=100, query=kind)
    for seed in range(5):
        for wrong in (False, True):
            env.reset(seed=seed)
            symbols = env.solution
            if wrong:
                symbols = (*symbols[:-1], (symbols[-1] + 1) % (2 if kind == "pairs" else 3 if kind == "count" else 11))
            for k, symbol in enumerate(symbols):
                _, reward, terminated, truncated, info = env.step(symbol)
                assert terminated == (k == len(symbols) - 1) and not truncated
            assert reward == float(not wrong) and info["is_success"] is not wrong


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pairs"])
def test_halves_get_the_same_question_and_hand_back_their_answers(kind: str) -> None:
    env = make(length=131, query=kind)
    env.reset(seed=4)
    observation, *_ = env.step(ALL)
    assert span(env) == (0, 66)
    left = truth(env)
    observation, *_ = answer(env, left)
    assert span(env) == (66, 131)
    right = truth(env)
    wrong = tuple((symbol + 1) % 3 for symbol in right)
    observation, _, _, _, info = answer(env, wrong)
    assert span(env) == (0, 131)
    children = observation["results"].reshape(2, 34)[:, 1:].reshape(2, 3, SYMBOLS)
    for child, symbols in zip(children, (left, wrong), strict=True):
        assert [int(np.argmax(place)) for place in child if place.any()] == list(symbols)
    assert info["returned"][0]["success"] is (wrong == right)
    assert env.domain.answer(env.batch.state, 0, info["returned"][0]["value"]) == " ".join(map(str, wrong))
    assert not observation["action_mask"][LEFT:].any(), "a half that has answered is not asked again"


def test_nobody_tells_a_frame_whether_its_child_was_right() -> None:
    env = make(length=100, query="needle")
    env.reset(seed=0)
    seen = []
    for offset in (0, 1):
        env.reset(seed=0)
        env.step(LEFT)
        observation, *_, info = env.step((truth(env)[0] + offset) % 11)
        assert info["returned"][0]["success"] is (offset == 0)
        seen.append(observation["call"].tolist())
    assert seen[0] == seen[1] and seen[0][4:] == [0.0, 0.0]


def test_a_child_without_an_answer_may_be_asked_again() -> None:
    env = make(length=100, query="needle", budget=60)
    env.reset(seed=0)
    env.step(LEFT)
    depth_one = int(env.batch.stack.frames["budget"][0, 1])
    for _ in range(depth_one):
        observation, *_, info = env.step(NEXT)  # forbidden: the span fits or not, nothing is answered
    assert info["depth"] == 0 and observation["results"][0] == 1 and not observation["results"][1:].any()
    assert observation["action_mask"][LEFT]


def test_depth_ends_two_levels_below_the_window() -> None:
    env = make(length=100)
    env.reset(seed=0)
    assert env.domain.max_depth == 2 + 2
    for _ in range(4):
        observation, *_ = env.step(LEFT)
    assert not observation["action_mask"][LEFT:].any() and observation["call"][0] == 0.0
    assert make(length=100, finer=0).domain.max_depth == 2


# -- notes and progress ------------------------------------------------------------------------------------------------------------


def test_a_note_takes_new_symbols_in_front() -> None:
    env = make(length=200, query="topk")
    env.reset(seed=0)
    env.step(NEXT)
    for symbol in (4, 5, 6, 7):
        observation, *_ = env.step(NOTE + symbol)
    part = parts(env, observation)
    assert [int(np.argmax(place)) for place in part["note"].reshape(3, SYMBOLS)] == [7, 6, 5]
    assert part["fresh"].tolist() == [0, 0, 1]
    observation, *_ = env.step(NEXT)
    assert not parts(env, observation)["fresh"].any()


def test_a_child_starts_with_an_empty_note() -> None:
    env = make(length=400)
    env.reset(seed=0)
    env.step(NOTE + 3)
    observation, *_ = env.step(LEFT)
    assert not parts(env, observation)["note"].any()


def prefix_truth(env: LongSeqEnv, pages: int) -> tuple[int, ...]:
    return kernels.exact(env.batch.state, 0, 0, min(pages * RECORDS, env.domain.lengths[1]))


def test_right_running_notes_are_paid_once_and_in_order() -> None:
    env = make(length=200, query="max", feedback="dense", spawn=False)
    env.reset(seed=1)
    paid = []
    for page in range(5):
        env.step(NEXT)
        right = prefix_truth(env, page + 1)[0]
        *_, info = env.step(NOTE + (right + 1) % 11)
        assert info["dense_reward"] == 0.0
        *_, info = env.step(NOTE + right)
        paid.append(info["dense_reward"])
        *_, info = env.step(NOTE + (right + 1) % 11)
        *_, info = env.step(NOTE + right)
        assert info["dense_reward"] == 0.0, "the same page again"
    assert paid == pytest.approx([48 / 200] * 4 + [8 / 200])
    env.step(NEXT)
    *_, info = env.step(NOTE + prefix_truth(env, 1)[0])
    assert info["dense_reward"] == 0.0, "from the beginning again"
    *_, info = env.step(env.solution[0])
    assert info["is_success"] and info["dense_reward"] == pytest.approx(0.0)


def test_right_answers_of_children_are_paid_by_what_they_cover() -> None:
    env = make(length=100, query="max", feedback="dense")
    env.reset(seed=1)
    env.step(ALL)
    *_, info = env.step(truth(env)[0])
    assert info["dense_reward"] == pytest.approx(0.5)
    env.step(LEFT)
    *_, info = env.step(truth(env)[0])
    assert info["dense_reward"] == pytest.approx(0.25)
    *_, info = env.step((truth(env)[0] + 1) % 11)
    assert info["dense_reward"] == pytest.approx(0.0), "a wrong answer takes nothing back"
    *_, info = env.step(env.solution[0])
    assert info["dense_reward"] == pytest.approx(0.25), "one in all over a solved episode"


# -- a sequence of one's own -------------------------------------------------------------------------------------------------------


def corpus(**kwargs: Any) -> Corpus:
    rng = np.random.default_rng(0)
    positions, digits = np.array([3, 40, 77, 150]), np.array([5, 1, 9, 9])
    questions = (
        Question("max", "the largest", (positions,), (digits,), truth=(9,)),
        Question("count", "how many", (positions[:2],), (digits[:2],), span=(0, 60)),
    )
    given = {"keys": rng.integers(0, QUERY_CODES[0], 200).astype(np.int8), "values": rng.integers(0, 10, 200).astype(np.int8)}
    return Corpus(**{**given, "questions": questions, **kwargs})


def test_a_corpus_is_asked_its_questions() -> None:
    env = make(document=corpus())
    env.reset(seed=0, options={"question": 0})
    assert (env.asked, env.solution, env.matches.tolist()) == ("the largest", (9,), [3, 40, 77, 150])
    observation, *_ = env.step(NEXT)
    part = parts(env, observation)
    assert np.flatnonzero(part["keys"] == QUERY_CODES[0] + 1).tolist() == [3, 40]
    assert part["values"][[3, 40]].tolist() == [5, 1]
    env.reset(options={"question": 1})
    assert (env.asked, env.solution, span(env)) == ("how many", (2,), (0, 60))
    assert {env.reset()[1]["depth"] or env.asked for _ in range(20)} == {"the largest", "how many"}


def test_questions_of_one_corpus_share_one_copy_of_it() -> None:
    first, second = make(document=corpus()), make(document=corpus())
    domain = first.domain
    assert domain.allocate(3, dense=False).keys is domain.allocate(5, dense=False).keys
    assert first.batch.state.keys.shape == second.batch.state.keys.shape == (1, 200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": np.full(200, 61, np.int8)}, "keys must be codes"),
        ({"values": np.full(200, 10, np.int8)}, "digits 0 to 9"),
        ({"values": np.zeros(100, np.int8)}, "two rows"),
        ({"questions": ()}, "at least one question"),
        ({"questions": (Question("sum", "?", (), ()),)}, "kind must be one of needle, count"),
        ({"questions": (Question("max", "?", (), ()),)}, "has 1 key"),
        ({"questions": (Question("max", "?", (np.array([5, 5]),), (np.array([1, 1]),)),)}, "ascend"),
        ({"questions": (Question("max", "?", (np.array([5]),), (np.array([11]),)),)}, "digits must be 0 to 9"),
        ({"questions": (Question("needle", "?", (np.array([5, 6]),), (np.array([1, 1]),)),)}, "the one record"),
        ({"questions": (Question("max", "?", (np.array([5]),), (np.array([1]),), span=(0, 500)),)}, "span"),
        ({"questions": (Question("max", "?", (np.array([5]),), (np.array([1]),), truth=(2,)),)}, "its records say"),
        ({"questions": (Question("pairs", "?", (np.array([5]), np.array([5])), (np.array([1]), np.array([1]))),)}, "claim the same"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LongSeqDomain(document=corpus(**change), window=64)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"length": 15}, r"length must be an integer in \[16"),
        ({"length": (100, 50)}, "low <= high"),
        ({"length": (100, 150, 200)}, r"\(low, high\)"),
        ({"query": "mode"}, "query must be one or several of 'needle'"),
        ({"query": ()}, "query must be"),
        ({"window": 8}, "window must be an integer in"),
        ({"pointers": 3}, "pointers must be"),
        ({"notes": 5}, "notes must be"),
        ({"density": -1.0}, "density must be a number"),
        ({"finer": 11}, "finer must be"),
        ({"units": "words"}, "pass document= or text="),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LongSeqDomain(**kwargs)


def test_million_record_sequences_are_held_once() -> None:
    env = LongSeqEnv(length=1_000_000)
    env.reset(seed=0)
    state = env.batch.state
    assert sum(array.nbytes for array in state) < 2.1 * 1_000_000
    child = env.spawn(LEFT)
    child.reset()
    assert child.batch.state.keys is state.keys
    assert env.observation_space["task"].shape == LongSeqEnv(length=1000).observation_space["task"].shape


def test_codes_fit_and_none_is_the_last_symbol() -> None:
    assert CODES < 127 and NONE == SYMBOLS - 1
