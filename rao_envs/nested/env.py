"""`RAO/LongSeq-nested`: the value of nested brackets, far more of them than a frame sees at once."""

from __future__ import annotations

import numpy as np

from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.nested import folded
from rao_envs.nested.domain import NestedDomain
from rao_envs.nested.generator import CLOSE, END, NO_BRACKET, OPEN, OPERATORS
from rao_envs.nested.kernels import NO_ANSWER
from rao_envs.nested.text import to_text
from rao_envs.nested.viewer import CellView, NestedView, NestedViewer, RangeView

CAPTION = 6
"""Tokens that a slot's caption spells out."""


class NestedEnv(RecursiveEnv):
    """Say what nested brackets come to: `[SUM 2 [MAX 0 1 1] [MIN 2 [SUM 1 1 0]]]`, far longer than a frame can see.

    ## Description
    Brackets of SUM (modulo m), MAX and MIN hold digits and more brackets (ListOps, Nangia and Bowman 2018). The root is asked for the
    value of the outermost one. Its answer is uniform whatever the root sees of its own arguments, so that a guess is right once in m
    times (`rao_envs.nested.generator.hide_the_answer`). A reader from left to right needs a stack as high as the brackets
    are nested; a frame has room for one bracket, and a child for each bracket in it (MISSION A1, A2, A6, A7).

    Two views. **Folded** (the default, and the environment does the folding): a frame sees the arguments of one bracket as slots, each a
    digit, a bracket that is still open, or an answer. More arguments than slots show as two halves, each a range of arguments
    under the same operator. **Raw** (`view="raw"`): a frame reads the tokens of its range through a window; a bracket with an answer
    is one token there, and what follows it moves up.

    ## Action space
    Folded, `Discrete(13)` with the defaults (`Discrete(9)` with `spawn=False`):

    | action | meaning |
    |---|---|
    | `answer_d` | d is the value of what the cursor is on. On the frame's own range: its answer, which ends it. Below it: the cursor moves up, and the answer stands in the slot it came from |
    | `descend_k` | the cursor moves to the bracket or half in slot k, to work alone. Answers kept for the level it leaves are lost, unless `stack` keeps them |
    | `note_j` | write a note: the one thing that outlasts the cursor's moves |
    | `spawn_k`, `spawn_all` | a child for slot k, or one for each open slot; the cursor being on the frame's own range |

    Raw, `Discrete(22)` (`Discrete(11)`): `answer_d`; `reduce_d`, which puts d in place of the first bracket that is all in the window and
    has no bracket in it; `next` and `previous` page; `note_j`; with `stack=k` also `push` and `pop` (of the note); `spawn_k` for the
    bracket that opens at place k of the window, `spawn_left`, `spawn_right` for halves of ranges of more than three arguments,
    `spawn_all` for all brackets in the window that are not inside others.

    ## Observation space
    All one-hot but for the bars. `env.unwrapped.domain.fields` says where the parts of `task` are.

    | key | folded | raw |
    |---|---|---|
    | `task` | operator (3); cursor at home (1); per slot: open and not answered, or which digit (3 x (1 + m)); how often each value is known, as a bar (m x 3); note (m) | operator (3); window at the range's start (1); per token: digit (m), is an answer, opens with SUM, MAX, MIN, closes (8 x (m + 5)); note (m) |
    | `results` | answers by slot (3 x m) | answers to the two halves (2 x m) |
    | `call`, `action_mask` | see `RecursiveEnv`; whether a child was right is not told | |

    **Context** (PROTOCOL rule 12), in tokens: folded 5 (operator, 3 slots, note), raw 12 (operator, 8 tokens, 2 halves, note), and `stack`
    adds its own. Nothing else survives a step. The monolithic twin has the same, and sees the root's observation.

    ## Rewards
    1 when the root's answer is right, else 0. A child's local outcome is 1 when its own answer is right. With `feedback="dense"`,
    `info["dense_reward"]` is paid for each bracket whose *first* answer is right, whoever gives it (a child's answer, the cursor's,
    a reduction), as a share of all brackets: 1 in all when all are right.

    ## Endings
    Terminated by the root's answer; truncated after 2 steps per token (of the longest task) anywhere in the tree. A child has 2 steps
    per token of its range; independent children share what is left in proportion to that.

    ## Registered ids
    `RAO/LongSeq-nested-320-v0`, `-3k` (3,200), `-32k` (32,000), and `RAO/LongSeq-nested-v0` for your own keyword arguments.

    Args:
        **kwargs: those of `rao_envs.nested.domain.NestedDomain` (`length`, `view`, `max_nesting`, `max_arguments`, `modulus`, `operators`,
            `slots`, `window`, `notes`, `stack`, `text`) and of `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = NestedDomain
    viewer_class = NestedViewer
    domain: NestedDomain

    @property
    def text(self) -> str:
        """The running task as text; `text=` takes it back."""
        state = self.batch.state
        return to_text(state.tokens[0, : state.task[0]["length"]])

    def view(self) -> NestedView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        state, stack, domain = self.batch.state, self.batch.stack, self.domain
        length, total = (int(state.task[0][name]) for name in ("length", "brackets"))
        brackets = state.brackets[0, :total]
        nesting = np.zeros(total, np.int32)
        for b in range(1, total):
            nesting[b] = nesting[brackets["parent"][b]] + 1
        depth = int(stack.episodes[0]["depth"])
        over = bool(self.batch.done[0])
        frame = state.frames[0, depth]
        is_folded = isinstance(state, folded.FoldedState)
        focus = self._range(depth, int(frame["at_bracket"]), int(frame["at_low"]), int(frame["at_high"]))
        root_answer = int(state.frames[0, 0]["answer"])
        return NestedView(
            words=tuple(_word(token) for token in state.tokens[0, :length].tolist()),
            spans=np.stack([brackets["start"], brackets["end"]], axis=1),
            nesting=nesting,
            operators=tuple(OPERATORS[operator] for operator in brackets["operator"].tolist()),
            modulus=domain.modulus,
            truth=domain.truth(state, 0),
            answer="" if root_answer == NO_ANSWER else str(root_answer),
            stack=() if over else tuple(self._frame(k) for k in range(depth + 1)),
            focus=focus,
            cells=self._slots(depth) if is_folded else self._tokens_shown(depth),
            halves=() if is_folded else tuple(self._half(depth, half) for half in range(2)),
            note=str(frame["note"] - 1) if frame["note"] else "",
            pushed=() if is_folded else tuple(str(note - 1) for note in state.pushed[0, depth, : frame["pushed"]]),
            below=int(frame["level"]),
            folded=is_folded,
            episode=self.history.view(domain.name),
        )

    def _frame(self, depth: int) -> RangeView:
        """The open frame at `depth`."""
        frame = self.batch.state.frames[0, depth]
        drawn = self._range(depth, int(frame["bracket"]), int(frame["low"]), int(frame["high"]))
        if isinstance(self.batch.state, folded.FoldedState):
            cells = self._slots(depth)
        else:
            cells = (*self._tokens_shown(depth), *(self._half(depth, half) for half in range(2)))
        return RangeView(drawn.depth, drawn.label, drawn.operator, drawn.span, tuple(cell for cell in cells if cell.kind == "answer"))

    def _range(self, depth: int, bracket: int, low: int, high: int) -> RangeView:
        state = self.batch.state
        label = self.domain.frame_label(int(self.batch.stack.frames["action"][0, depth]))
        record = state.brackets[0, bracket]
        span = self._span(bracket, low, high)
        if (low, high) == (0, record["count"]):
            span = (int(record["start"]), int(record["end"]))
        return RangeView(depth, label, OPERATORS[record["operator"]], span)

    def _span(self, bracket: int, low: int, high: int) -> tuple[int, int]:
        """Tokens of a range of arguments."""
        state = self.batch.state
        first = state.brackets[0, bracket]["first"]
        return int(state.arguments[0, first + low]["start"]), int(state.arguments[0, first + high - 1]["end"])

    def _slots(self, depth: int) -> tuple[CellView, ...]:
        """Folded: the slots under a frame's cursor."""
        state = self.batch.state
        frame = state.frames[0, depth]
        bracket, low, high, level = (int(frame[name]) for name in ("at_bracket", "at_low", "at_high", "level"))
        row = level % state.answers.shape[2]
        cells = []
        if high - low > self.domain.slots:
            middle = (low + high + 1) // 2
            parts = [(bracket, low, middle, self._span(bracket, low, middle)), (bracket, middle, high, self._span(bracket, middle, high))]
        else:
            parts = []
            for k in range(low, high):
                argument = state.arguments[0, state.brackets[0, bracket]["first"] + k]
                inner = int(argument["bracket"])
                count = 0 if inner == NO_BRACKET else int(state.brackets[0, inner]["count"])
                parts.append((inner, 0, count, (int(argument["start"]), int(argument["end"]))))
        for slot, (inner, first, last, span) in enumerate(parts):
            if inner == NO_BRACKET:
                cells.append(CellView(str(state.tokens[0, span[0]]), "digit", "digit", span))
                continue
            answer = int(state.answers[0, depth, row, slot]) if state.owner[0, depth, row] == level else NO_ANSWER
            length = span[1] - span[0]
            operator = OPERATORS[state.brackets["operator"][0, inner]]
            caption = to_text(state.tokens[0, span[0] : span[1]]) if length <= CAPTION else f"{operator}, {length:,} tokens"
            if answer == NO_ANSWER:
                cells.append(CellView("", "open", caption, span))
            else:
                cells.append(CellView(str(answer), "answer", caption, span, answer == self._value(inner, first, last)))
        return tuple(cells)

    def _tokens_shown(self, depth: int) -> tuple[CellView, ...]:
        """Raw: the tokens in a frame's window."""
        state = self.batch.state
        cells = []
        for place, shown, answered in zip(*(rows[0, depth].tolist() for rows in (state.places, state.shown, state.answered)), strict=True):
            bracket = NO_BRACKET if place < 0 else int(state.opened[0, place])
            if answered:
                record = state.brackets[0, bracket]
                span = (int(record["start"]), int(record["end"]))
                cells.append(CellView(str(shown), "answer", f"{span[1] - span[0]:,}", span, bool(shown == record["value"])))
            elif bracket != NO_BRACKET:
                cells.append(CellView(_word(shown), "open", "", (place, place + 1)))
            else:
                cells.append(CellView(_word(shown), "digit" if shown < OPEN else "mark", "", (place, place + 1)))
        return tuple(cells)

    def _half(self, depth: int, half: int) -> CellView:
        """Raw: the answer to a half of a frame's range, if there is one."""
        state = self.batch.state
        frame = state.frames[0, depth]
        bracket, low, high = (int(frame[name]) for name in ("bracket", "low", "high"))
        answer = int(state.halves[0, depth, half])
        if answer == NO_ANSWER:
            return CellView("", "open")
        middle = (low + high + 1) // 2
        low, high = (low, middle) if half == 0 else (middle, high)
        return CellView(str(answer), "answer", "", self._span(bracket, low, high), answer == self._value(bracket, low, high))

    def _value(self, bracket: int, low: int, high: int) -> int:
        """The value of a range of arguments."""
        state = self.batch.state
        record = state.brackets[0, bracket]
        parts = state.arguments[0, record["first"] + low : record["first"] + high]
        values = np.where(parts["bracket"] == NO_BRACKET, parts["digit"], state.brackets["value"][0, parts["bracket"]]).astype(np.int64)
        return int((values.sum() % self.domain.modulus, values.max(), values.min())[record["operator"]])


class NestedVectorEnv(RecursiveVectorEnv):
    """Any number of texts at once; everything else as `NestedEnv`."""

    domain_class = NestedDomain


def _word(token: int) -> str:
    """A token as text."""
    return f"[{OPERATORS[token - OPEN]}" if OPEN <= token < CLOSE else "]" if token == CLOSE else "" if token == END else str(token)
