"""The nested-brackets family's configuration: sizes, spaces and where the state lives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rao_envs.core.arguments import whole_number
from rao_envs.core.domain import Domain
from rao_envs.nested import folded, kernels, raw
from rao_envs.nested.generator import (
    ARGUMENT,
    BRACKET,
    N_OPERATORS,
    NO_BRACKET,
    OPERATORS,
    SHORTEST,
    capacities,
    index,
    most_brackets,
)
from rao_envs.nested.text import LONGEST, Tokens, read_texts, to_text

VIEWS = ("folded", "raw")
MOST_NESTING = 200
DEEPEST = 1000
"""No frame is deeper than that, whatever the text."""
STEPS_PER_TOKEN = 2
"""The whole tree's budget. Recursion takes about a third of a step per token, reading the text bracket by bracket alone about one."""

State = folded.FoldedState | raw.RawState


class NestedDomain(Domain):
    """Brackets of SUM (modulo m), MAX and MIN over digits, nested, far longer than what a frame sees at once.

    Args:
        length: tokens of a task, 8 to 1,000,000; or (shortest, longest), drawn anew for each episode, octaves equally likely.
        view: "folded": a frame sees its bracket's arguments as slots, brackets among them folded up by the environment; "raw": it
            sees a window of tokens.
        max_nesting: levels of brackets inside the outermost one, 1 to 200; None for about as many as uncapped texts of that length have.
            What does not fit in depth goes into the width of the outermost bracket.
        max_arguments: arguments of a bracket, 2 to 64; remainders add up to two digits, a low `max_nesting` more to the outermost.
        modulus: digits and answers are 0 to modulus - 1; 2 to 10.
        operators: which of "SUM", "MAX", "MIN" occur besides the sums that hide the answer (`generator.hide_the_answer`).
        slots: a frame with more arguments than that works on halves; 2 to 8.
        window: tokens of the raw view's window, 4 to 64.
        notes: how many different notes a frame can keep one of, 0 to 64; None for one per digit, so that a note holds a value.
        stack: more memory than that, as an option of its own: folded, levels above the cursor whose answers are kept; raw, notes on a
            stack. 0 to 64.
        text: tasks of your own instead of generated ones: a text ("[MAX 2 0 [MIN 1 2] 0]"), a list of them, or a file's path
            (`rao_envs.nested.text.read_texts`).

    Raises:
        ValueError: a value out of range.
        rao_envs.nested.text.NestedError: a text that cannot be used, with the column at fault.
    """

    has_dense = True
    verdicts = False
    shared = frozenset({"config", "capacity", "texts", "offsets", "lengths"})
    settled = frozenset({"task", "tokens", "brackets", "arguments", "choice"})

    def __init__(
        self,
        length: int | Sequence[int] = 320,
        *,
        view: str = "folded",
        max_nesting: int | None = None,
        max_arguments: int = 6,
        modulus: int = 3,
        operators: Sequence[str] = OPERATORS,
        slots: int = 3,
        window: int = 8,
        notes: int | None = None,
        stack: int = 0,
        text: Any = None,
    ) -> None:
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(map(repr, VIEWS))}, got {view!r}")
        self.view = view
        self.modulus = whole_number("modulus", modulus, 2, 10)
        self.max_arguments = whole_number("max_arguments", max_arguments, 2, 64)
        self.slots = whole_number("slots", slots, 2, 8)
        self.window = whole_number("window", window, 4, 64)
        self.notes = whole_number("notes", self.modulus if notes is None else notes, 0, 64)
        self.stack = whole_number("stack", stack, 0, 64)
        self.operators = _operators(operators)
        self.texts: list[Tokens] = [] if text is None else read_texts(text, self.modulus)
        if self.texts:
            self.shortest, self.longest = min(map(len, self.texts)), max(map(len, self.texts))
        else:
            self.shortest, self.longest = _lengths(length)
        nesting = round(4 * math.log10(self.longest)) + 2 if max_nesting is None else max_nesting
        self.max_nesting = whole_number("max_nesting", nesting, 1, MOST_NESTING)
        self.capacity = capacities(self.max_nesting, self.max_arguments)
        deepest = max(map(self._depth_of, self.texts)) if self.texts else self._deepest()
        self.max_depth = min(deepest, DEEPEST)
        self.budget = STEPS_PER_TOKEN * max(self.longest, SHORTEST)
        self.name = f"LongSeq-nested-{self.longest}" if not self.texts else "LongSeq-nested"
        self.options = frozenset({"text"} if self.texts else ())
        self._name_actions()
        self.fields = self._lay_out()
        size = max(part.stop for part in self.fields.values())
        self.task_space = spaces.Box(0, 1, (size,), np.int8)
        self.results_space = spaces.Box(0, 1, ((self.slots if view == "folded" else 2) * self.modulus,), np.int8)
        own = {"answers", "owner"} if view == "folded" else {"places", "shown", "answered", "halves", "pushed"}
        self.per_frame = frozenset({"frames", "group", *own})
        if view == "raw":
            self.settled = self.settled | {"opened"}

    @property
    def context(self) -> int:
        """Tokens that one frame sees and keeps: the operator, slots or window and halves, the note, and its stack."""
        if self.view == "folded":
            return 1 + self.slots * (1 + self.stack) + (self.notes > 0)
        return 1 + self.window + 2 + (self.notes > 0) + self.stack

    def allocate(self, n: int, *, dense: bool) -> State:
        """Room for `n` texts."""
        config = np.zeros(1, kernels.CONFIG)
        config[0] = (
            self.shortest,
            self.longest,
            self.max_arguments,
            self.modulus,
            sum(1 << OPERATORS.index(name) for name in self.operators),
            self.slots,
            self.window,
            self.notes,
            self.stack,
            len(self.texts),
        )
        brackets, depths = most_brackets(self.longest), self.max_depth + 1
        lengths = np.array([len(text) for text in self.texts], np.int64)
        common: dict[str, Any] = {
            "config": config,
            "capacity": self.capacity,
            "texts": np.concatenate(self.texts) if self.texts else np.zeros(0, np.int8),
            "offsets": np.cumsum(lengths) - lengths,
            "lengths": lengths,
            "choice": np.full(n, -1, np.int64),
            "task": np.zeros(n, kernels.TASK),
            "tokens": np.zeros((n, self.longest), np.int8),
            "brackets": np.zeros((n, brackets), BRACKET),
            "arguments": np.zeros((n, self.longest), ARGUMENT),
            "seen": np.zeros((n, brackets if dense else 0), np.int8),
            "right": np.zeros(n, np.int64),
            "frames": np.zeros((n, depths), kernels.FRAME),
        }
        if self.view == "folded":
            return folded.FoldedState(
                **common,
                answers=np.zeros((n, depths, self.stack + 1, self.slots), np.int8),
                owner=np.zeros((n, depths, self.stack + 1), np.int32),
                group=np.zeros((n, depths, self.slots), np.int8),
            )
        return raw.RawState(
            **common,
            opened=np.zeros((n, self.longest), np.int32),
            places=np.zeros((n, depths, self.window), np.int32),
            shown=np.zeros((n, depths, self.window), np.int8),
            answered=np.zeros((n, depths, self.window), np.int8),
            halves=np.zeros((n, depths, 2), np.int8),
            pushed=np.zeros((n, depths, self.stack), np.int8),
            group=np.zeros((n, depths, self.window), np.int32),
        )

    def prepare(self, state: State, i: int, options: Mapping[str, Any]) -> None:
        """`options={"text": k}` picks the k-th given text; without it, any."""
        choice = options.get("text")
        state.choice[i] = -1 if choice is None else whole_number("text", choice, 0, len(self.texts) - 1)

    def merge(self, state: State, i: int, child: State) -> None:
        """What the child answered rightly; siblings work on different brackets."""
        np.maximum(state.seen[i], child.seen[0], out=state.seen[i])
        state.right[i] = np.count_nonzero(state.seen[i] == kernels.RIGHT)

    def question(self, state: State, i: int, depth: int) -> str:
        """What a frame is asked: its range of the text, cut short in the middle."""
        frame = state.frames[i, depth]
        bracket = state.brackets[i, frame["bracket"]]
        first, last = bracket["first"] + frame["low"], bracket["first"] + frame["high"] - 1
        start, end = int(state.arguments[i, first]["start"]), int(state.arguments[i, last]["end"])
        part = state.tokens[i, start:end]
        body = to_text(part) if len(part) <= 12 else f"{to_text(part[:6])} ... ({len(part)} tokens)"
        return f"{OPERATORS[bracket['operator']]} of {body}"

    def answer(self, state: State, i: int, value: float) -> str:
        """The digit."""
        return str(int(value))

    def truth(self, state: State, i: int) -> str:
        """The outermost bracket's value."""
        return str(int(state.brackets[i, 0]["value"]))

    def _name_actions(self) -> None:
        answers = tuple(f"answer_{digit}" for digit in range(self.modulus))
        notes = tuple(f"note_{k}" for k in range(self.notes))
        if self.view == "folded":
            self.primitives = (*answers, *(f"descend_{k}" for k in range(self.slots)), *notes)
            self.spawns = (*(f"spawn_{k}" for k in range(self.slots)), "spawn_all")
        else:
            reductions = tuple(f"reduce_{digit}" for digit in range(self.modulus))
            stack = ("push", "pop") if self.stack else ()
            self.primitives = (*answers, *reductions, "next", "previous", *notes, *stack)
            self.spawns = (*(f"spawn_{k}" for k in range(self.window)), "spawn_left", "spawn_right", "spawn_all")

    def _lay_out(self) -> dict[str, slice]:
        """Where the parts of `task` are: one-hot fields side by side, and in `counts` a bar for each value."""
        if self.view == "folded":
            sizes = {"slots": self.slots * (1 + self.modulus), "counts": self.modulus * self.slots}
        else:
            sizes = {"window": self.window * (self.modulus + raw.TOKEN_FIELDS)}
        sizes = {"operator": N_OPERATORS, "home": 1, **sizes, "note": self.notes}
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def _deepest(self) -> int:
        """The deepest frame that a generated text can open."""
        inner = 1 + halvings(self.max_arguments + 2, self.slots)
        needed = -(-(self.longest - 2) // int(self.capacity[-1]))
        outer = 1 + halvings(max(self.max_arguments + 2, 2 * needed + 2), self.slots)
        return outer + self.max_nesting * inner - 1

    def _depth_of(self, text: Tokens) -> int:
        """The deepest frame that a given text can open."""
        brackets, arguments = np.zeros(most_brackets(len(text)), BRACKET), np.zeros(len(text), ARGUMENT)
        total = index(text, len(text), brackets, arguments)
        below = np.zeros(total, np.int64)  # the depth of the frames that work on the bracket's smallest parts
        for b in range(total):
            parent = brackets["parent"][b]
            above = -1 if parent == NO_BRACKET else below[parent]
            below[b] = above + 1 + halvings(int(brackets["count"][b]), self.slots)
        return int(below.max())


def halvings(count: int, slots: int) -> int:
    """How often `count` arguments are halved until they fit the slots."""
    times = 0
    while count > slots:
        count = -(-count // 2)
        times += 1
    return times


def _operators(operators: Any) -> tuple[str, ...]:
    chosen = (operators,) if isinstance(operators, str) else tuple(operators)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(OPERATORS):
        raise ValueError(f"operators must be some of {', '.join(OPERATORS)}, each once, got {operators!r}")
    return tuple(name for name in OPERATORS if name in chosen)


def _lengths(length: Any) -> tuple[int, int]:
    if isinstance(length, (tuple, list)):
        if len(length) != 2:
            raise ValueError(f"length must be a number of tokens or (shortest, longest), got {length!r}")
        shortest, longest = (whole_number("length", value, SHORTEST, LONGEST) for value in length)
        if shortest > longest:
            raise ValueError(f"length (shortest, longest): {shortest} is more than {longest}")
        return shortest, longest
    only = whole_number("length", length, SHORTEST, LONGEST)
    return only, only
