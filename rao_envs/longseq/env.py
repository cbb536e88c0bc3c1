"""`RAO/LongSeq`: answer a question about a sequence far longer than the window, alone or by spawning frames for parts of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.longseq import kernels
from rao_envs.longseq.domain import LongSeqDomain
from rao_envs.longseq.queries import QUERIES, in_words
from rao_envs.longseq.viewer import AnswerView, LongSeqView, LongSeqViewer, PageView, SpanView


class LongSeqEnv(RecursiveEnv):
    """Answer a question about a sequence of records (key, digit), page by page or by handing halves of it to child frames.

    ## Description
    The question has a kind and one to three keys: what is the digit of the one record with this key (needle), how many have it, modulo
    3 (count), which is their largest digit (max), and others (`rao_envs.longseq.queries.QUERIES`). A call sees a window of 2,000
    tokens. A frame whose span fits sees all of it; any other sees the first 16 records until it opens a page. Its spawn actions open a
    child on the left half, on the right half, or on both, one after the other; a child faces the same question about its half, and its
    answer, right or wrong, is all that comes back (MISSION A1, A2, A6, A7; the source's row "long sequence, 10k tokens").

    ## Action space
    `Discrete(27)`: 0-10 write the next symbol of the answer (a digit, or "none"); 11 next page (after the last the first again), 12
    previous page; 13-23 write a symbol into the note (of a note with several places it becomes the first, and pushes the last out); 24 spawn left, 25 spawn right, 26
    spawn both. `Discrete(24)` with `spawn=False`; with two pointers two more page actions. The answer's last symbol ends the frame.
    Masked: symbols that no answer to this kind has; pages and notes where the span fits, or with `paging=False`; spawns for halves that
    have answered, and in spans of a quarter of the window.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 64, (4054,), int8)` | kind (7, one-hot); the question's keys (3, code + 1, 0 for none); whether the span fits; per pointer: open, at the first page, at the last (2 x 3); how many symbols were noted since a page was turned (3, one-hot, 0 for none); the answer so far (3 x 11, one-hot), the note (3 x 11, one-hot); the records shown: keys (1984, code + 1, 0 for none), then digits (1984). `env.unwrapped.domain.layout` has the slices |
    | `results` | `Box(0, 1, (68,), int8)` | per half: whether its child ended without an answer, and the answer (3 x 11, one-hot) |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv`; whether a child's answer was right is not told |
    | `action_mask` | `MultiBinary(27)` | 1 where the action is allowed |

    **Context**: a call sees at most 2,000 tokens, where kind, keys, each record, each symbol of the note, of the answer so far and of
    the children's answers cost one each. What survives a page turn is a note as long as the answer (1 or 3 symbols); what survives a
    child's return is its answer, of the same length (PROTOCOL rule 12).

    ## Rewards
    1 when the root's answer is right, else 0. A child's local outcome (in `info["returned"]`) is 1 when its answer is right for its own
    span. With `feedback="dense"`, `info["dense_reward"]` is the share of the sequence newly covered by right answers of children, or by
    notes that were the right answer for everything up to the end of the open page: each page once and in order; 1 in all over a solved episode.

    ## Endings
    Terminated when the root has written its answer; truncated after 8 steps per piece that halving ends with, and 32, anywhere in the tree.

    ## Registered ids
    `RAO/LongSeq-1k-v0`, `-10k`, `-100k`, `-1M`: needle, count and max on that many records; `RAO/LongSeq-v0` for your own keyword arguments.

    Args:
        **kwargs: those of `rao_envs.longseq.domain.LongSeqDomain` (`length`, `query`, `window`, `pointers`, `notes`, `paging`,
            `density`, `finer`, `document`, `text`, `units`) and of `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = LongSeqDomain
    viewer_class = LongSeqViewer
    domain: LongSeqDomain

    @property
    def asked(self) -> str:
        """The running episode's question in words."""
        return self.domain.asked(self.batch.state, 0)

    @property
    def solution(self) -> tuple[int, ...]:
        """The symbols of its exact answer: digits, or 10 for "none"."""
        return self.domain.solution(self.batch.state, 0)

    @property
    def sequence(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
        """The records of the running episode: keys (codes) and digits, int8 (length,) each. Copies."""
        state = self.batch.state
        lo, hi = int(state.task["lo"][0]), int(state.task["hi"][0])
        return state.keys[0, lo:hi] - np.int8(1), state.values[0, lo:hi].copy()

    @property
    def matches(self) -> npt.NDArray[np.int64]:
        """Where in the sequence the records with the question's keys lie, ascending."""
        state = self.batch.state
        row = int(state.task["row"][0])
        hits = state.hits[0, state.offsets[row, 0] : state.offsets[row, -1]].astype(np.int64)
        return np.sort(hits) - int(state.task["lo"][0])

    def view(self) -> LongSeqView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        state, domain = self.batch.state, self.domain
        task, episode = state.task[0], self.batch.stack.episodes[0]
        depths = range(0 if self.batch.done[0] else int(episode["depth"]) + 1)
        return LongSeqView(
            length=int(task["hi"] - task["lo"]),
            unit="records" if domain.corpus is None else domain.corpus.unit,
            query=self.asked,
            truth=domain.truth(state, 0),
            matches=self.matches,
            stack=tuple(self._frame_view(depth) for depth in depths),
            pages=self._page_views(depths[-1]) if depths else (),
            episode=self.history.view(domain.name),
            answer=self._words(state.symbols[0, 0, kernels.WRITTEN : kernels.LEFT]),
            source="" if domain.corpus is None else domain.corpus.title,
        )

    def _words(self, symbols: npt.NDArray[np.int8]) -> str:
        """Stored symbols, up to the first empty place, in words."""
        places = QUERIES[int(self.batch.state.task["kind"][0])].places
        found = [int(symbol) - 1 for symbol in symbols[:places] if symbol > 0]
        return self.domain.explain(self.batch.state, 0, found) if len(found) == places else in_words(found)

    def _span(self, frame: Any) -> tuple[int, int]:
        start = int(self.batch.state.task["lo"][0])
        return int(frame["lo"]) - start, int(frame["hi"]) - start

    def _frame_view(self, depth: int) -> SpanView:
        """The frame at `depth` as drawn. Of two spans (pairs) the first is drawn."""
        state, domain = self.batch.state, self.domain
        frame, symbols = state.frames[0, depth], state.symbols[0, depth]
        answers = []
        for slot, at in enumerate((kernels.LEFT, kernels.RIGHT)):
            if frame[f"state{slot}"] == kernels.ANSWERED:
                half = kernels.plain(kernels.halve)(*kernels.spans_of(frame), slot)
                truth = kernels.exact(state, 0, *half)
                right = truth == tuple(int(symbol) - 1 for symbol in symbols[at : at + len(truth)])
                start = int(state.task["lo"][0])
                answers.append(AnswerView((half[0] - start, half[1] - start), self._words(symbols[at : at + 3]), right))
        return SpanView(
            depth=depth,
            span=self._span(frame),
            label=domain.frame_label(int(self.batch.stack.frames["action"][0, depth])),
            note=in_words([int(symbol) - 1 for symbol in symbols[: kernels.WRITTEN] if symbol > 0]),
            answers=tuple(answers),
        )

    def _page_views(self, depth: int) -> tuple[PageView, ...]:
        """What the acting frame sees of the sequence."""
        state, domain = self.batch.state, self.domain
        frame = state.frames[0, depth]
        pages = []
        for lo, hi in kernels.panes(domain.records, domain.pointers, frame):
            start = int(state.task["lo"][0])
            near = self.matches
            marks = near[(near >= lo - start) & (near < hi - start)] - (lo - start)
            pages.append(PageView((lo - start, hi - start), self._texts(lo, hi), tuple(marks.tolist())))
        return tuple(pages)

    def _texts(self, lo: int, hi: int) -> tuple[str, ...]:
        corpus, state = self.domain.corpus, self.batch.state
        if corpus is not None and corpus.texts is not None:
            return tuple(corpus.texts(lo, hi))
        pairs = zip(state.keys[0, lo:hi].tolist(), state.values[0, lo:hi].tolist(), strict=True)
        return tuple(f"{key - 1}:{digit}" for key, digit in pairs)


class LongSeqVectorEnv(RecursiveVectorEnv):
    """Any number of sequences at once; everything else as `LongSeqEnv`."""

    domain_class = LongSeqDomain
