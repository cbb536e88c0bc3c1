"""Documents: tokens, places and truths against plain Python; files and questions that cannot be used."""

from __future__ import annotations

import os
import pickle
import random
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.longseq import text as text_module
from rao_envs.longseq.documents import FEWEST, FORMS, SHARED_CODES, TextQuestion, load_document
from rao_envs.longseq.domain import exact_answer
from rao_envs.longseq.env import LongSeqEnv
from rao_envs.longseq.queries import QUERY_CODES
from rao_envs.longseq.text import DocumentError, Text, character_class, character_tables, parse, read_documents, split_words

LETTERS = "aAbß\u017f\u0130\u0131 éE\u0301\u0308ñçЖж漢字ひカ\ufb01\uff119_'\u2019-.,\n\t \U0001d518\u1e9e\u2126\u01c5"
FILLER = " and so it goes on and on, with one word after the other until it is long enough"


def reference_words(text: str) -> list[str]:
    """The documented rule, letter by letter."""
    words: list[str] = [""]
    for letter in unicodedata.normalize("NFC", text):
        kind = character_class(letter)
        if kind == 1:
            words[-1] += letter
        else:
            words += [letter, ""] if kind == 2 else [""]
    return [word for word in words if word]


def truth_of(text: str, query: str, units: str = "words", **kwargs: Any) -> str:
    corpus = load_document(None, query, text=text, units=units, **kwargs)
    question = corpus.questions[0]
    assert isinstance(question, TextQuestion)
    return question.explain(exact_answer(question, (0, len(corpus.keys))))


# --- tokens ---


@given(st.one_of(st.text(st.sampled_from(LETTERS), max_size=40), st.text(max_size=30)))
@settings(max_examples=300, deadline=None)
def test_words_are_those_of_the_documented_rule(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    wanted = reference_words(text.removeprefix("\ufeff"))
    assert split_words(text.removeprefix("\ufeff")) == wanted
    if not wanted:
        return
    parsed = parse(text.encode())
    assert list(parsed.tokens(0, 10**6)) == wanted
    folded = [word.casefold() for word in wanted]
    for i, word in enumerate(folded):  # equal hashes for equal words, and found exactly where they are
        same = np.array([other == word for other in folded])
        np.testing.assert_array_equal(parsed.hashes == parsed.hashes[i], same)
        if split_words(wanted[i]) == [wanted[i]]:
            np.testing.assert_array_equal(parsed.find(wanted[i]), same)


@given(st.text(st.sampled_from(LETTERS + "漢\u1100\u1161\u11a8\u0323"), min_size=1, max_size=30))
@settings(max_examples=300, deadline=None)
def test_composed_form_is_unicodes(text: str) -> None:
    if not text.isascii():
        assert text_module._compose(text.encode()).decode() == unicodedata.normalize("NFC", text)


def test_known_words() -> None:
    text = parse("Straße STRASSE don't foo_bar 漢字ひらカタカナ cafe\u0301 CAFÉ".encode())
    assert text.tokens(0, 99) == ("Straße", "STRASSE", "don", "t", "foo", "bar", "漢", "字", "ひ", "ら", "カタカナ", "café", "CAFÉ")
    assert np.flatnonzero(text.find("strasse")).tolist() == [0, 1]
    assert np.flatnonzero(text.find("漢字")).tolist() == [7]
    assert np.flatnonzero(text.find("foo   bar!")).tolist() == [5]
    assert np.flatnonzero(text.find("cafe\u0301")).tolist() == [11, 12]
    assert np.flatnonzero(text.find("caf")).tolist() == []
    assert text.excerpt(2, 6) == "don't foo_bar"
    assert text.excerpt(5, 5) == ""


def test_bytes_are_the_files_own() -> None:
    text = parse(b"\xef\xbb\xbfaaa\n\xff", units="bytes")
    assert len(text) == 8
    assert text.tokens(2, 8) == ("\\xbf", "a", "a", "a", "\\x0a", "\\xff")
    assert np.flatnonzero(text.find("aa")).tolist() == [4, 5]  # they overlap
    assert text.line(7) == 2
    assert parse("naïve".encode(), units="bytes").find("ï").sum() == 1


def test_lines_count_from_one() -> None:
    text = parse(b"one\ntwo three\n\nfour")
    assert [text.line(i) for i in range(4)] == [1, 2, 2, 4]


def test_tables_agree_with_each_other() -> None:
    small, large = character_tables(0x80), character_tables(0x800)
    np.testing.assert_array_equal(small[0], large[0][:0x80])
    np.testing.assert_array_equal(small[1], large[1][:0x80])
    assert chr(int(large[1][ord("É"), 0])) == "é"
    assert [chr(code) for code in large[1][ord("ß")][:2]] == ["s", "s"]


def test_byte_order_mark_is_no_text() -> None:
    assert parse(b"\xef\xbb\xbfone two").tokens(0, 9) == ("one", "two")


def test_text_can_be_pickled() -> None:
    corpus = load_document(None, "count:one", text="one two " * 20)
    again = pickle.loads(pickle.dumps(corpus))
    assert again.texts(3, 6) == corpus.texts(3, 6) == ("two", "one", "two")


# --- truths ---


def brute_force(words: list[str], query: str) -> str:
    """Answers by lists and loops."""
    name, _, rest = query.partition(":")

    def ends(phrase: str) -> list[int]:
        wanted = phrase.split()
        n = len(wanted)
        return [i + n - 1 for i in range(len(words) - n + 1) if words[i : i + n] == wanted]

    def after(phrase: str) -> list[str]:
        return [words[i + 1] for i in ends(phrase) if i + 1 < len(words)]

    if name == "count":
        return f"{len(ends(rest)) % 3} (modulo 3)"
    if name == "exists":
        return "yes" if ends(rest) else "no"
    if name == "needle":
        return after(rest)[0]
    if name == "last":
        return after(rest)[-1]
    if name == "keys":
        return ", ".join(after(word)[0] for word in rest.split(","))
    numbers = sorted((min(9, int(word)) for word in after(rest) if word.isdecimal()), reverse=True)
    texts = ["9 or more" if number == 9 else str(number) for number in numbers]
    if name == "max":
        return texts[0] if texts else "none"
    if name == "topk":
        return ", ".join((texts + ["none"] * 3)[:3])
    if name == "majority":
        found = after(rest)
        winners = [word for word in set(found) if 2 * found.count(word) > len(found)]
        return winners[0] if winners else "none"
    first, second = (({10 * i // len(words) for i in ends(word)}) for word in rest.split(","))
    return "yes" if first & second else "no"


@pytest.mark.parametrize("query", [
    "count:a", "count:a b", "exists:a", "exists:nowhere", "exists:c a b", "needle:a", "needle:b a", "last:a", "last:c",
    "keys:a,b,c", "max:a", "max:b c", "topk:a", "topk:c", "majority:a", "majority:b b", "pairs:a,b", "pairs:rare,scarce",
])  # fmt: skip
@pytest.mark.parametrize("seed", range(6))
def test_truths_are_those_of_plain_python(query: str, seed: int) -> None:
    rng = random.Random(seed)
    words = rng.choices(["a", "b", "c", "d", "7", "12", "0", "x1"], [5, 4, 3, 2, 1, 1, 1, 1], k=rng.randint(40, 400))
    for word in ("rare", "scarce"):
        words[rng.randrange(len(words))] = word
    words += ["a", "b", "a", "b", "b", "b", "c", "d", "c", "a", "b", "rare", "scarce", "end"]
    assert truth_of(" ".join(words), query) == brute_force(words, query)


def test_majority_of_more_followers_than_there_are_digits() -> None:
    text = " ".join(f"the w{i}" for i in range(40))
    assert truth_of(text, "majority:the") == "another"
    assert truth_of(text + " the w3" * 41, "majority:the") == "w3"
    assert truth_of("the one the two " * 8, "majority:the") == "none"


def test_questions_about_bytes() -> None:
    text = "a liability, b liability; Liability: c" + FILLER
    assert truth_of(text, "count:liability", "bytes") == "2 (modulo 3)"
    assert truth_of(text, "needle:liability", "bytes") == ","
    assert truth_of(text, "last:liability", "bytes") == ";"
    assert truth_of(text, "exists:, b ", "bytes") == "yes"
    assert truth_of("abab" * 8 + "ac" + FILLER.replace("a", ""), "majority:a", "bytes") == "b"
    with pytest.raises(DocumentError, match="of words only"):
        truth_of(text, "max:liability", "bytes")


def test_ends_of_documents() -> None:
    """A word at the very end is counted, but nothing follows it."""
    text = "w " * 20 + "last"
    assert truth_of(text, "count:last") == "1 (modulo 3)"
    with pytest.raises(DocumentError, match="nothing follows it"):
        truth_of(text, "needle:last")


def test_the_class_of_the_answer_is_named_by_the_answer() -> None:
    corpus = load_document(None, "needle:a", text=" ".join(f"w{i} a v{i}" for i in range(300)))
    question = corpus.questions[0]
    assert isinstance(question, TextQuestion)
    assert question.explain((int(question.digits[0][0]),)) == "v0"
    assert len(set(question.meanings[0])) == 11  # ten candidates and "none"


# --- what windows show ---


def test_only_the_queried_word_has_its_code() -> None:
    """61 codes for 3,000 different words: many share one, and none that of the question."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(3000)] + ["liability"] * 7
    rng.shuffle(words)
    env = LongSeqEnv(text=" ".join(words), query=["count:liability", "needle:w17"], window=4096)
    places = {0: [i for i, word in enumerate(words) if word == "liability"], 1: [words.index("w17")]}
    assert env.domain.corpus is not None
    assert max(np.bincount(env.domain.corpus.keys)) > 20
    for k, wanted in places.items():
        observation, _ = env.reset(seed=0, options={"question": k})
        keys = observation["task"][env.domain.layout["keys"]][: len(words)]
        assert np.flatnonzero(keys == QUERY_CODES[0] + 1).tolist() == wanted
        assert keys[np.setdiff1d(np.arange(len(words)), wanted)].max() <= SHARED_CODES
    assert env.solution == (env.domain.corpus.values[words.index("w17")],)


def test_digits_are_classes_of_what_follows() -> None:
    corpus = load_document(None, "count:a", text="a b a b a c A  B " * 4)
    np.testing.assert_array_equal(corpus.values[::8], corpus.values[0])
    assert corpus.values[0] == corpus.values[2] == corpus.values[6]  # "b" follows, in either case
    assert corpus.values[-1] == 0


def test_several_documents_with_several_questions(tmp_path: Path) -> None:
    for name, text in (("one.txt", "a b " * 20), ("two.txt", "a c " * 31)):
        (tmp_path / name).write_text(text)
    env = LongSeqEnv(document=[tmp_path / "one.txt", str(tmp_path / "two.txt")], query=["count:a", "needle:a", "exists:c"], window=128)
    seen = []
    for k in range(6):
        env.reset(seed=k, options={"question": k})
        question = env.domain.corpus.questions[k] if env.domain.corpus else None
        assert isinstance(question, TextQuestion)
        assert question.text.endswith(f"({['one.txt', 'two.txt'][k // 3]})")
        seen.append(question.explain(env.solution))
    assert seen == ["2 (modulo 3)", "b", "no", "1 (modulo 3)", "c", "yes"]
    assert len(env.sequence[0]) == 62
    with pytest.raises(ValueError, match="question"):
        env.reset(options={"question": 6})


def test_a_document_is_played_to_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "contract.txt"
    path.write_text("The liability is limited. " * 1000)
    env = LongSeqEnv(document=str(path), query="count:liability")
    env.reset(seed=1)
    assert env.solution == (1,)
    _, reward, terminated, _, info = env.step(1)
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)


# --- what cannot be used ---


@pytest.mark.parametrize(("query", "match"), [
    ("coumt:a", r"unknown query: 'coumt:a'; did you mean 'count'\?; allowed: count:WORD, .*keys:A,B,C"),
    ("count", "without a colon and a word: 'count'"),
    ("count:", "no word given"),
    ("count: ... ", r"'...' holds no word"),
    ("keys:a,b", "has 2 words between commas; keys takes 3"),
    ("keys:a,,b", "no word given"),
    ("needle:liabilty", "'liabilty' does not occur in text; words like it: liability"),
    ("count:zzz", "'zzz' does not occur"),
    ("pairs:a,b a", "end in the same place"),
    ("keys:a,a,b", "end in the same place"),
    (7, "query must be a string or a list of strings"),
    ([], "query must be a string or a list of strings"),
    ([7], "a query is a string"),
    (None, "query must be a string or a list of strings"),
])  # fmt: skip
def test_questions_that_cannot_be_asked(query: Any, match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        load_document(None, query, text="liability b a " * 10)


def test_every_form_is_in_the_error_and_in_the_docs() -> None:
    import rao_envs.longseq.documents as documents

    with pytest.raises(DocumentError) as error:
        load_document(None, "?", text="a")
    for name in FORMS:
        assert f"{name}:" in str(error.value)
        assert f"`{name}:" in (documents.__doc__ or "")


@pytest.mark.parametrize(("arguments", "match"), [
    ({}, "either document="),
    ({"document": "x", "text": "y"}, "either document="),
    ({"text": ""}, "text: empty"),
    ({"text": " ... "}, "holds no word"),
    ({"text": ["a b", 3]}, "a string or a list of strings, got int"),
    ({"text": []}, "an empty list"),
    ({"text": b"a b"}, "got bytes"),
    ({"document": 3}, "must be a path or a list of them, got int"),
    ({"document": [3]}, "must be a path or a list of paths, got int"),
    ({"document": {"a": 1}}, "got dict"),
    ({"document": "no/such/file.txt"}, "'no/such/file.txt': no such file; .* the text itself goes in text="),
    ({"document": "text\nof a document " * 100}, r"^'text.nof a.{1,40}\.\.\..{30,60}': "),
    ({"document": "nul\0l"}, "null"),
    ({"text": "a b", "units": "lines"}, "units must be one of 'words', 'bytes', got 'lines'"),
])  # fmt: skip
def test_documents_that_cannot_be_used(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        read_documents(**arguments)


def test_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, content: bytes | None, match: str, units: str = "words") -> None:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DocumentError, match=match):
            read_documents(path, units=units)

    refused("latin.txt", b"one\ntwo caf\xe9 three", r"latin.txt: not UTF-8: .*0xe9 at byte 11 \(line 2, byte 8 of it\)")
    refused("cut.txt", "abc é".encode()[:-1], r"0xc3 at byte 4")
    late = b"word " * (text_module.CHUNK // 5) + "é".encode() * 10 + b"\xff"
    refused("late.txt", late, rf"0xff at byte {len(late) - 1:,}")
    refused("wide.txt", "one two".encode("utf-16"), "byte order mark of UTF-16")
    refused("empty.txt", b"", "empty.txt: empty")
    refused("empty.txt", None, "empty.txt: empty", "bytes")
    (tmp_path / "folder").mkdir()
    refused("folder", None, "is a directory")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        refused("pipe", None, "not a regular file")
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        (tmp_path / "secret").write_bytes(b"x")
        (tmp_path / "secret").chmod(0)
        refused("secret", None, "no permission")
    monkeypatch.setattr(text_module, "MAX_BYTES", 10)
    refused("large.txt", b"eleven bytes", r"has 12 bytes; a document has at most 10")
    with pytest.raises(DocumentError, match="12 bytes; a document has at most 10"):
        parse(b"eleven bytes")


def test_wrong_encodings_may_be_read_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("café ".encode("latin-1") * 10)
    (text,) = read_documents(tmp_path / "latin.txt", units="bytes")
    assert isinstance(text, Text)
    assert len(text) == 50


def test_documents_of_a_few_words_are_refused() -> None:
    with pytest.raises(DocumentError, match=f"only 2 words; a document has at least {FEWEST}"):
        load_document(None, "count:a", text="a b")


def test_boundaries_of_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """UTF-8 is checked piece by piece, and no piece may end within a character."""
    text = "aé漢\U0001d518" * 50
    whole = parse(text.encode())
    for chunk in range(8, 24):
        monkeypatch.setattr(text_module, "CHUNK", chunk)
        np.testing.assert_array_equal(parse(text.encode()).hashes, whole.hashes)


def test_large_documents_are_read_fast() -> None:
    """Ten megabytes with letters beyond ASCII, question included: about 0.3 s of one core; the bound is for slow machines."""
    text = ("The Vermögensschaden, naïvely put, is a liability of 12 %; " * 170_000)[:10_000_000]
    load_document(None, "count:a", text=text[:1000])  # compiles, makes the tables
    start = time.process_time()
    corpus = load_document(None, ["count:liability", "needle:naïvely put"], text=text)
    assert time.process_time() - start < 4.0
    assert len(corpus.keys) > 1_500_000


def test_a_long_path_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"/none\.txt'"):
        load_document(tmp_path / ("a" * 90) / "none.txt", "count:word")
