"""The long-sequence family's configuration: lengths, questions, spaces and where the state lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.arguments import real_number, whole_number
from rao_envs.core.domain import Domain
from rao_envs.longseq import kernels
from rao_envs.longseq.generator import index, most_planted
from rao_envs.longseq.layout import CHILDREN, OVERHEAD, PER_CHILD, records_in, slices
from rao_envs.longseq.queries import (
    CODES,
    DIGITS,
    KINDS,
    MIX,
    NONE,
    PAIRS,
    PLACES,
    QUERIES,
    QUERY_CODES,
    SYMBOLS,
    Corpus,
    Question,
    in_words,
)

SHORTEST, LONGEST = 16, 2**30
MOST_NOTES = 64


class LongSeqDomain(Domain):
    """Questions about sequences of records (key, digit), seen through a window of bounded size.

    Args:
        length: records in a generated sequence, 16 to 2**30; or (low, high), drawn anew for every episode, each doubling of `low` as
            likely as any other.
        query: what is asked: a name in `rao_envs.longseq.queries.KINDS`, several of them (drawn with equal probability), or None for
            needle, count and max. With `document`, whatever `rao_envs.longseq.documents.load_document` takes.
        window: tokens that one call sees, 32 to 2**20; OVERHEAD of them are not records.
        pointers: page pointers of a frame whose span does not fit the window: 1, or 2, each of which shows half a window.
        notes: symbols of the note's alphabet, 11 (those of the answers) to 64.
        paging: False forbids pages and notes (they stay in the action space): what is left is answering and spawning.
        density: up to how many records per thousand are planted for a question about many, in [0, 250] (and 5 in any case).
        finer: a span may be halved while it is longer than what fits the window, divided by two so many times, 0 to 10.
        document: a sequence of your own: a `Corpus`, or the path of a text file, or several paths.
        text: a text itself, or several, instead of files.
        units: what a record of a text is: "words" (the default) or "bytes".

    Raises:
        ValueError: a value out of range, or a document or question that cannot be used.
    """

    spawns = ("spawn_left", "spawn_right", "spawn_all")
    has_dense = True
    verdicts = False
    shared = frozenset({"config", "kinds", "questions"})
    settled = frozenset({"keys", "values", "hits", "offsets"})
    per_frame = frozenset({"frames", "symbols"})

    def __init__(
        self,
        length: int | Sequence[int] | None = None,
        *,
        query: Any = None,
        window: int = 2000,
        pointers: int = 1,
        notes: int = SYMBOLS,
        paging: bool = True,
        density: float = 2.0,
        finer: int = 2,
        document: Any = None,
        text: Any = None,
        units: str | None = None,
    ) -> None:
        self.window = whole_number("window", window, 2 * OVERHEAD, 2**20)
        self.records = records_in(self.window)
        self.pointers = whole_number("pointers", pointers, 1, 2)
        self.notes = whole_number("notes", notes, SYMBOLS, MOST_NOTES)
        if not isinstance(paging, bool):
            raise ValueError(f"paging must be True or False, got {paging!r}")
        self.paging = paging
        self.density = real_number("density", density, 0.0, 250.0)
        self.finer = whole_number("finer", finer, 0, 10)
        self.corpus: Corpus | None = None
        if document is None and text is None:
            if units is not None:
                raise ValueError("units= says how to read a document: pass document= or text= as well")
            self.kinds = read_kinds(query)
            self.lengths = read_lengths(10_000 if length is None else length)
            longest = self.lengths[1]
            spans = {(kind, longest) for kind in self.kinds}
        else:
            if length is not None:
                raise ValueError("the length is the document's own: leave length= out")
            if isinstance(document, Corpus) and not (query is None and text is None and units is None):
                raise ValueError("a Corpus brings its own records and questions: leave query=, text= and units= out")
            self.corpus = document if isinstance(document, Corpus) else self._load(document, query, text, units or "words")
            self._index(self.corpus)
            self.kinds = tuple(sorted(set(self._questions["kind"].tolist())))
            longest = len(self.corpus.keys)
            self.lengths = (longest, longest)
            spans = {(int(q["kind"]), int(q["hi"] - q["lo"])) for q in self._questions}
        halvings = max(halvings_to_fit(kind, span, self.records) for kind, span in spans)
        self.name = f"LongSeq-{longest}" if self.corpus is None else self.corpus.title
        self.primitives = (
            *(f"answer_{symbol}" for symbol in range(DIGITS)),
            "answer_none",
            *("page_next", "page_previous", "page_next_2", "page_previous_2")[: 2 * self.pointers],
            *(f"note_{symbol}" for symbol in range(self.notes)),
        )
        self.max_depth = halvings + self.finer
        self.budget = min((8 << halvings) + 32, 2**31 - 1)
        size = self.layout["values"].stop
        self.task_space = spaces.Box(0, CODES, (size,), np.int8)
        self.results_space = spaces.Box(0, 1, (CHILDREN * PER_CHILD,), np.int8)
        if self.corpus is not None:
            given = frozenset({"keys", "values", "hits", "offsets"})
            self.shared, self.settled = self.shared | given, self.settled - given
            self.options = frozenset({"question"})

    def skills(self) -> frozenset[str]:
        """Names of the kinds of question."""
        return frozenset(QUERIES[kind].name for kind in self.kinds)

    @property
    def layout(self) -> dict[str, slice]:
        """Where what lies in `task`: see `rao_envs.longseq.layout.slices`."""
        return slices(self.window, self.notes)

    def allocate(self, n: int, *, dense: bool) -> kernels.LongSeqState:
        """Room for `n` sequences, or for `n` questions about the one given."""
        config = np.zeros(1, kernels.CONFIG)
        given = self.corpus is not None
        questions = len(self._questions) if given else 0
        reading = (self.records, self.pointers, self.notes, self.paging, self.finer)
        config[0] = (*reading, *self.lengths, self.density, len(self.kinds), questions)
        depths = self.max_depth + 1
        longest = self.lengths[1]
        task = np.zeros(n, kernels.TASK)
        task["question"] = -1
        return kernels.LongSeqState(
            config=config,
            kinds=np.array(self.kinds, np.int32),
            questions=self._questions if given else np.zeros(0, kernels.QUESTION),
            keys=self._keys if given else np.zeros((n, longest), np.int8),
            values=self._values if given else np.zeros((n, longest), np.int8),
            hits=self._hits if given else np.zeros((n, 2 * most_planted(longest, self.density) + PLACES), np.int32),
            offsets=self._offsets if given else np.zeros((n, PLACES * DIGITS + 1), np.int64),
            codes=np.full((n, PLACES), -1, np.int8),
            task=task,
            frames=np.zeros((n, depths), kernels.FRAME),
            symbols=np.zeros((n, depths, kernels.RIGHT + PLACES), np.int8),
        )

    def prepare(self, state: kernels.LongSeqState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"question": k}` picks the k-th question of the corpus; without it, any."""
        choice = options.get("question")
        state.task["question"][i] = -1 if choice is None else whole_number("question", choice, 0, len(self._questions) - 1)

    # -- words -------------------------------------------------------------------------------------------------------------------

    def question(self, state: kernels.LongSeqState, i: int, depth: int) -> str:
        """The frame's span."""
        frame = state.frames[i, depth]
        text = f"{frame['lo']:,}-{frame['hi']:,}"
        return f"{text} with {frame['lo2']:,}-{frame['hi2']:,}" if frame["hi2"] > frame["lo2"] else text

    def asked(self, state: kernels.LongSeqState, i: int) -> str:
        """Instance `i`'s question in words."""
        if self.corpus is not None:
            return self.corpus.questions[int(state.task["row"][i])].text
        keys = ", ".join(f"key {code}" for code in state.codes[i] if code >= 0)
        return f"{QUERIES[int(state.task['kind'][i])].name}: {keys}"

    def answer(self, state: kernels.LongSeqState, i: int, value: float) -> str:
        """The symbols that a frame handed back."""
        symbols = []
        rest = int(value)
        for _ in range(QUERIES[int(state.task["kind"][i])].places):
            rest, symbol = divmod(rest, SYMBOLS)
            symbols.append(symbol)
        return self.explain(state, i, symbols[::-1])

    def truth(self, state: kernels.LongSeqState, i: int) -> str:
        """The root's exact answer."""
        return self.explain(state, i, self.solution(state, i))

    def solution(self, state: kernels.LongSeqState, i: int) -> tuple[int, ...]:
        """The symbols of the root's exact answer."""
        return kernels.exact(state, i, *kernels.spans_of(state.frames[i, 0]))

    def explain(self, state: kernels.LongSeqState, i: int, symbols: Sequence[int]) -> str:
        """A whole answer to instance `i`'s question in words."""
        return in_words(symbols) if self.corpus is None else self.corpus.questions[int(state.task["row"][i])].explain(symbols)

    # -- a sequence of one's own -------------------------------------------------------------------------------------------------

    @staticmethod
    def _load(document: Any, query: Any, text: Any, units: str) -> Corpus:
        from rao_envs.longseq.documents import load_document

        return load_document(document, query, text=text, units=units)

    def _index(self, corpus: Corpus) -> None:
        """Check a corpus and take it in.

        Raises:
            ValueError: arrays of the wrong form, codes or digits out of range, a question that does not fit.
        """
        length = len(corpus.keys)
        if not SHORTEST <= length <= LONGEST or corpus.keys.shape != (length,) or corpus.values.shape != (length,):
            raise ValueError(f"keys and values must be two rows of the same {SHORTEST} to {LONGEST} records")
        if corpus.keys.min() < 0 or corpus.keys.max() >= QUERY_CODES[0]:
            raise ValueError(f"keys must be codes in [0, {QUERY_CODES[0]}): the rest is for the questions")
        if corpus.values.min() < 0 or corpus.values.max() >= DIGITS:
            raise ValueError("values must be digits 0 to 9")
        if not corpus.questions:
            raise ValueError("a corpus needs at least one question")
        self._keys = (corpus.keys.astype(np.int8) + np.int8(1))[np.newaxis]
        self._values = np.ascontiguousarray(corpus.values, np.int8)[np.newaxis]
        self._questions = np.zeros(len(corpus.questions), kernels.QUESTION)
        self._offsets = np.zeros((len(corpus.questions), PLACES * DIGITS + 1), np.int64)
        parts: list[npt.NDArray[np.int32]] = []
        start = 0
        for k, question in enumerate(corpus.questions):
            span = check_question(question, length)
            hits, offsets = index(
                [np.asarray(positions, np.int64) for positions in question.positions],
                [np.asarray(digits, np.int8) for digits in question.digits],
            )
            self._questions[k] = (KINDS[question.kind], *span)
            self._offsets[k] = offsets + start
            parts.append(hits)
            start += len(hits)
        self._hits = np.concatenate([*parts, np.zeros(1, np.int32)])[np.newaxis]
        for k, question in enumerate(corpus.questions):
            if question.truth is not None:
                self._check_truth(k, question)

    def _check_truth(self, k: int, question: Question) -> None:
        lo, hi = int(self._questions["lo"][k]), int(self._questions["hi"][k])
        found = exact_answer(question, (lo, hi))
        if tuple(question.truth or ()) != found:
            raise ValueError(f"the truth of {question.text!r} is given as {question.truth}, but its records say {found}")


def exact_answer(question: Question, span: tuple[int, int]) -> tuple[int, ...]:
    """The symbols of the exact answer within `span`, by plain counting: what the compiled truth is tested against."""
    query = QUERIES[KINDS[question.kind]]
    inside = [
        np.asarray(digits)[(np.asarray(positions) >= span[0]) & (np.asarray(positions) < span[1])].tolist()
        for positions, digits in zip(question.positions, question.digits, strict=True)
    ]
    first = sorted(inside[0], reverse=True)
    if query.name == "count":
        return (len(first) % 3,)
    if query.name in ("needle", "max"):
        return (first[0] if first else NONE,)
    if query.name == "keys":
        return tuple(max(digits) if digits else NONE for digits in inside)
    if query.name == "topk":
        return tuple((first + [NONE] * PLACES)[:PLACES])
    if query.name == "pairs":
        return (int(bool(set(inside[0]) & set(inside[1]))),)
    winners = [digit for digit in set(first) if 2 * first.count(digit) > len(first)]
    return (winners[0] if winners else NONE,)


def check_question(question: Question, length: int) -> tuple[int, int]:
    """The question's span; raises ValueError for what cannot be asked of `length` records."""
    name = f"question {question.text!r}"
    if question.kind not in KINDS:
        raise ValueError(f"{name}: its kind must be one of {', '.join(KINDS)}, got {question.kind!r}")
    query = QUERIES[KINDS[question.kind]]
    lo, hi = (0, length) if question.span is None else question.span
    if not 0 <= lo < hi <= length:
        raise ValueError(f"{name}: its span must lie within the {length} records, got {question.span}")
    if len(question.positions) != query.keys or len(question.digits) != query.keys:
        raise ValueError(f"{name}: {query.name} has {query.keys} key(s); give positions and digits for each")
    taken: set[int] = set()
    for given, marks in zip(question.positions, question.digits, strict=True):
        positions, digits = np.asarray(given), np.asarray(marks)
        if positions.shape != digits.shape or positions.ndim != 1:
            raise ValueError(f"{name}: as many digits as positions are needed, each a row")
        if len(positions) and (positions.min() < lo or positions.max() >= hi or (np.diff(positions) <= 0).any()):
            raise ValueError(f"{name}: positions must ascend within the span [{lo}, {hi})")
        if len(digits) and (digits.min() < 0 or digits.max() >= DIGITS):
            raise ValueError(f"{name}: digits must be 0 to 9")
        if query.name in ("needle", "keys") and len(positions) > 1:
            raise ValueError(f"{name}: {query.name} asks for the one record with a key, but there are {len(positions)}")
        if query.keys > 1:
            if taken & set(positions.tolist()):
                raise ValueError(f"{name}: a record has one key, but two of the question's keys claim the same")
            taken |= set(positions.tolist())
    return int(lo), int(hi)


def read_kinds(query: Any) -> tuple[int, ...]:
    """Codes of the kinds asked; raises ValueError for names that are not in the table."""
    names = MIX if query is None else (query,) if isinstance(query, str) else tuple(query)
    if not names or any(name not in KINDS for name in names):
        raise ValueError(f"query must be one or several of {', '.join(map(repr, KINDS))}, got {query!r}")
    return tuple(KINDS[name] for name in dict.fromkeys(names))


def read_lengths(length: Any) -> tuple[int, int]:
    """The shortest and the longest length; raises ValueError unless it is an integer or an ascending pair."""
    if isinstance(length, (tuple, list)):
        if len(length) != 2:
            raise ValueError(f"length must be an integer or (low, high), got {length!r}")
        low, high = (whole_number("length", value, SHORTEST, LONGEST) for value in length)
        if low > high:
            raise ValueError(f"length must be (low, high) with low <= high, got {length!r}")
        return low, high
    value = whole_number("length", length, SHORTEST, LONGEST)
    return value, value


def halvings_to_fit(kind: int, span: int, records: int) -> int:
    """Levels of recursion until every part fits the window; questions about pairs halve two spans, which share the window."""
    fit = records // 2 if kind == PAIRS else records
    levels = 0
    while span > fit:
        span = (span + 1) // 2
        levels += 2 if kind == PAIRS else 1
    return levels
