"""Nested brackets solved without learning: the recursive solver, readers with bounded memory, and what a guess is worth.

`python -m rao_envs.nested.reference` prints the tables of docs/environments/nested.md.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.evaluate import evaluate
from rao_envs.nested.domain import VIEWS, NestedDomain
from rao_envs.nested.env import NestedEnv
from rao_envs.nested.generator import CLOSE, MAX, MIN, NO_BRACKET, OPEN, SUM
from rao_envs.nested.raw import TOKEN_FIELDS

Rows = npt.NDArray[Any]

DEFAULT_LENGTHS = (320, 3200, 32000)
DEFAULT_LEVELS = (1, 2, 3, 4, 6, 8, 10, 12)


class _Solver:
    """What the scripted agents share: reading observations, one or a batch of them, by the layout of the domain's keyword arguments.

    Args:
        **kwargs: those of the environment's that fix its layout (`view`, `modulus`, `slots`, `window`, `notes`, `stack`); without any, the
            view, the modulus and whether there is a stack are told by the observation's size.
    """

    batched: ClassVar[bool] = True

    def __init__(self, **kwargs: Any) -> None:
        self.domain = NestedDomain(**kwargs)
        self._given = bool(kwargs)

    def __call__(self, observation: dict[str, Rows], mask: npt.NDArray[np.bool_], state: Any = None) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: observations of another layout.
        """
        task, results, masks = (np.atleast_2d(rows) for rows in (observation["task"], observation["results"], mask))
        widths = task.shape[1], results.shape[1], masks.shape[1]
        if not self._given:
            self.domain = next((domain for domain in _usual_domains() if _fits(domain, widths)), self.domain)
        if not _fits(self.domain, widths):
            raise ValueError(
                f"observations of another layout (sizes of task, results and mask: {widths}): make the solver with the environment's "
                "keyword arguments"
            )
        actions = self._act(task, results, masks)
        return int(actions[0]) if observation["task"].ndim == 1 else actions

    def _act(self, task: Rows, results: Rows, masks: Rows) -> npt.NDArray[np.int64]:
        raise NotImplementedError

    def _part(self, name: str, task: Rows, width: int) -> Rows:
        """Part `name` of `task` (m, size) as (m, fields, width)."""
        part: Rows = task[:, self.domain.fields[name]]
        return part.reshape(len(task), -1, width)

    def _combine(self, task: Rows, known: Rows) -> npt.NDArray[np.int64]:
        """The operator's value of the values that are known: `known` (m, places, modulus), one-hot or nothing."""
        values, some = known.argmax(2), known.any(2)
        top = self.domain.modulus - 1
        table = np.stack([
            np.where(some, values, 0).sum(1) % self.domain.modulus,
            np.where(some, values, 0).max(1),
            np.where(some, values, top).min(1),
        ])  # fmt: skip
        operator = task[:, self.domain.fields["operator"]].argmax(1)
        return np.asarray(table[operator, np.arange(len(task))], np.int64)

    def _slots(self, task: Rows, results: Rows) -> tuple[Rows, Rows, Rows]:
        """Folded: what is known of each slot (m, K, modulus), which are open without an answer, which have one (m, K)."""
        width = 1 + self.domain.modulus
        slots = self._part("slots", task, width)
        answers = results.reshape(len(task), -1, self.domain.modulus)
        unanswered = slots[:, :, 0] == 1
        answered = answers.max(axis=2) == 1
        return slots[:, :, 1:] | answers, unanswered, answered


@functools.cache
def _usual_domains() -> tuple[NestedDomain, ...]:
    """All views and moduli, the rest as by default."""
    return tuple(
        NestedDomain(view=view, modulus=modulus, stack=stack) for stack in (0, 1) for view in VIEWS for modulus in (3, 10, 2, *range(4, 10))
    )


def _fits(domain: NestedDomain, widths: tuple[int, int, int]) -> bool:
    """Whether observations of these sizes (task, results, mask) can be the domain's."""
    primitives = len(domain.primitives)
    sizes = domain.task_space.shape + domain.results_space.shape
    return widths[:2] == sizes and widths[2] in (primitives, primitives + len(domain.spawns))


class RecursiveSolver(_Solver):
    """Spawns children for everything open, all at once, and answers when it knows all it needs; for both views, any length."""

    def _act(self, task: Rows, results: Rows, masks: Rows) -> npt.NDArray[np.int64]:
        domain = self.domain
        spawn = len(domain.primitives)
        spawns = masks[:, spawn:] if masks.shape[1] > spawn else np.zeros((len(task), len(domain.spawns)), np.bool_)
        if domain.view == "folded":
            known, _, _ = self._slots(task, results)
            return np.where(spawns[:, -1], spawn + domain.slots, self._combine(task, known))
        window = self._part("window", task, domain.modulus + TOKEN_FIELDS)
        halves = results.reshape(len(task), 2, domain.modulus)
        left, right, everything = spawns[:, -3], spawns[:, -2], spawns[:, -1]
        split = left | right | halves.any((1, 2))  # halves first: what is worked out in the window would be worked out again in them
        known = np.where(split[:, None, None], np.pad(halves, ((0, 0), (0, domain.window - 2), (0, 0))), window[:, :, : domain.modulus])
        actions = np.where(everything & ~split, spawn + domain.window + 2, self._combine(task, known))
        actions = np.where(right, spawn + domain.window + 1, actions)
        return np.where(left, spawn + domain.window, actions)


class MonolithicSolver(_Solver):
    """Works alone, from left to right, with what the environment keeps for it, and answers from what it still has.

    Folded, it goes through the brackets with the cursor; what was known of a level that had to make room for lower ones is lost. With
    `stack=k` the environment keeps k + 1 levels. Raw, the window is its stack: it reduces what is complete there, and turns the
    page when the window is full. The note is left alone.
    """

    def _act(self, task: Rows, results: Rows, masks: Rows) -> npt.NDArray[np.int64]:
        domain = self.domain
        if domain.view == "folded":
            known, unanswered, answered = self._slots(task, results)
            places = np.arange(known.shape[1])
            last = np.where(answered, places, -1).max(1)
            ahead = unanswered & (places > last[:, None])
            return np.where(ahead.any(1), domain.modulus + ahead.argmax(1), self._combine(task, known))
        window = self._part("window", task, domain.modulus + TOKEN_FIELDS)
        digits = window[:, :, : domain.modulus]
        actions = np.where(masks[:, 2 * domain.modulus], 2 * domain.modulus, self._combine(task, digits))
        opens, closes = window[:, :, domain.modulus + 1 : -1].argmax(2), window[:, :, -1] == 1
        is_open = window[:, :, domain.modulus + 1 : -1].max(axis=2) == 1
        for row in np.flatnonzero(masks[:, domain.modulus]):
            end = next(k for k in range(domain.window) if closes[row, k] and is_open[row, :k].any())
            start = int(np.flatnonzero(is_open[row, :end])[-1])
            value = self._combine(np.eye(3, task.shape[1])[opens[row, start], None], digits[row : row + 1, start:end])
            actions[row] = domain.modulus + int(value[0])
        return actions


# -- What is true of the tasks -----------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """One task's shape."""

    brackets: int
    nesting: int  # levels of brackets inside the outermost
    levels: int  # levels of answers that the best order needs (Sethi and Ullman 1970), ranges of wide brackets included
    answer: int
    visible: int  # what the outermost bracket's own digits come to
    outer: tuple[int, ...]  # for each number of levels asked for: the answer of who works out the outermost ones and guesses the rest
    inner: tuple[int, ...]  # and that of who reads the text once and keeps the innermost running values


def shape_of(batch: RecursiveBatch, i: int, kept_levels: Sequence[int] = ()) -> Shape:
    """The shape of instance `i`'s task."""
    domain: Any = batch.domain
    state: Any = batch.state
    total = int(state.task[i]["brackets"])
    brackets, arguments = state.brackets[i, :total], state.arguments[i]
    depth, needs = np.zeros(total, np.int64), np.zeros(total, np.int64)
    for b in range(1, total):
        depth[b] = depth[brackets["parent"][b]] + 1
    inner = [[int(k) for k in arguments["bracket"][record["first"] : record["first"] + record["count"]]] for record in brackets]

    def need(places: list[int]) -> int:
        """Levels for a range of arguments: its own, and what its most demanding part needs first, the others beside it."""
        if len(places) > domain.slots:
            middle = -(-len(places) // 2)
            parts = [need(places[:middle]), need(places[middle:])]
        else:
            parts = [int(needs[b]) for b in places if b != NO_BRACKET]
        ordered = sorted(parts, reverse=True)
        return max([1, *ordered[:1], *(part + 1 for part in ordered[1:2])])

    for b in range(total - 1, -1, -1):
        needs[b] = need(inner[b])
    root = brackets[0]
    own = arguments[root["first"] : root["first"] + root["count"]]
    visible = int(own["digit"][own["bracket"] == NO_BRACKET].sum()) % domain.modulus
    outer = tuple(_guess_below(domain.modulus, brackets, arguments, inner, depth, level) for level in kept_levels)
    tokens = state.tokens[i, : state.task[i]["length"]].tolist()
    streamed = tuple(_read_once(domain.modulus, tokens, level) for level in kept_levels)
    return Shape(total, int(depth.max()), int(needs[0]), int(root["value"]), visible, outer, streamed)


def _read_once(modulus: int, tokens: list[int], levels: int) -> int:
    """The answer of who reads from left to right and keeps the running values of the innermost `levels` open brackets.

    The operators of all open brackets are given for nothing; a running value that was lost begins again.
    """
    start = {SUM: 0, MAX: 0, MIN: modulus - 1}
    operators: list[int] = []
    values: list[int] = []
    answer = 0
    for token in tokens:
        if OPEN <= token < CLOSE:
            operators.append(token - OPEN)
            values.append(start[token - OPEN])
            if len(values) > levels:
                values[-levels - 1] = start[operators[-levels - 1]]
            continue
        digit = token
        if token == CLOSE:
            operators.pop()
            digit = answer = values.pop()
        if operators:
            operator, value = operators[-1], values[-1]
            values[-1] = (value + digit) % modulus if operator == SUM else max(value, digit) if operator == MAX else min(value, digit)
    return answer


def _guess_below(modulus: int, brackets: Rows, arguments: Rows, inner: list[list[int]], depth: Rows, levels: int) -> int:
    """The answer of who works out the outermost `levels` levels and takes the likeliest value for each bracket below."""
    likely = {SUM: 0, MAX: modulus - 1, MIN: 0}
    values = np.zeros(len(brackets), np.int64)
    for b in range(len(brackets) - 1, -1, -1):
        operator = int(brackets["operator"][b])
        if depth[b] >= levels:
            values[b] = likely[operator]
            continue
        first = brackets["first"][b]
        parts = [int(values[k]) if k != NO_BRACKET else int(arguments["digit"][first + j]) for j, k in enumerate(inner[b])]
        values[b] = sum(parts) % modulus if operator == SUM else max(parts) if operator == MAX else min(parts)
    return int(values[0])


# -- The tables --------------------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what recursion takes, what readers with bounded memory reach, and what a guess is worth."""
    parser = argparse.ArgumentParser(prog="python -m rao_envs.nested.reference", description=main.__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(DEFAULT_LENGTHS), help="tokens of a task")
    parser.add_argument("--levels", type=int, nargs="+", default=list(DEFAULT_LEVELS), help="levels of answers that readers keep")
    parser.add_argument("--episodes", type=int, default=200, help="tasks per length; a tenth of that from 10,000 tokens on")
    parser.add_argument("--max-nesting", type=int, help="cap on the depth of nesting")
    chosen = parser.parse_args(arguments)
    own: dict[str, Any] = {} if chosen.max_nesting is None else {"max_nesting": chosen.max_nesting}
    write = sys.stdout.write
    for length in chosen.lengths:
        kwargs = {"length": length, **own}
        episodes = chosen.episodes if length < 10_000 else max(10, chosen.episodes // 10)
        write(f"\n{length} tokens, {episodes} tasks\n")
        _write_shapes(kwargs, episodes, chosen.levels)
        for view in ("folded", "raw"):
            _write_recursion(view, kwargs, episodes)
        rates = []
        for levels in chosen.levels:
            result = evaluate(MonolithicSolver(**kwargs), NestedEnv, episodes, spawn=False, stack=levels - 1, progress=False, **kwargs)
            rates.append(f"{levels}: {_rate(result.episodes):.2f}")
        write(f"  alone, folded, keeping the innermost levels            {'  '.join(rates)}\n")
        raw = {"view": "raw", **kwargs}
        alone = evaluate(MonolithicSolver(**raw), NestedEnv, episodes, spawn=False, progress=False, **raw)
        write(f"  alone, raw, the window as its stack                    {_rate(alone.episodes):.2f}\n")


def _write_shapes(kwargs: dict[str, Any], episodes: int, levels: Sequence[int]) -> None:
    batch = RecursiveBatch(NestedDomain(**kwargs), 1)
    shapes = []
    for seed in range(episodes):
        batch.seed(0, seed)
        batch.reset()
        shapes.append(shape_of(batch, 0, levels))
    nesting, needs = (np.array([getattr(shape, name) for shape in shapes]) for name in ("nesting", "levels"))
    rest = np.bincount([(shape.answer - shape.visible) % batch.domain.modulus for shape in shapes], minlength=3)  # type: ignore[attr-defined]
    write = sys.stdout.write
    count = np.mean([shape.brackets for shape in shapes])
    write(f"  brackets {count:.0f}, nesting {nesting.min()} to {nesting.max()} (median {np.median(nesting):.0f})\n")
    write(f"  best guess from the root's view {rest.max() / episodes:.2f} (1 / modulus but for chance)\n")
    outer = [f"{level}: {np.mean([s.outer[k] == s.answer for s in shapes]):.2f}" for k, level in enumerate(levels)]
    write(f"  working out the outermost levels, guessing the rest    {'  '.join(outer)}\n")
    inner = [f"{level}: {np.mean([s.inner[k] == s.answer for s in shapes]):.2f}" for k, level in enumerate(levels)]
    write(f"  reading once, keeping the innermost running values     {'  '.join(inner)}\n")
    best = [f"{level}: {np.mean(needs <= level):.2f}" for level in levels]
    write(f"  levels suffice in the best order (known beforehand)    {'  '.join(best)}\n")


def _write_recursion(view: str, kwargs: dict[str, Any], episodes: int) -> None:
    domain = NestedDomain(view=view, **kwargs)
    result = evaluate(RecursiveSolver(view=view, **kwargs), NestedEnv, episodes, view=view, progress=False, **kwargs)
    steps, path = ([getattr(episode, name) for episode in result.episodes] for name in ("steps", "critical_path"))
    deepest = max(episode.deepest for episode in result.episodes)
    sys.stdout.write(
        f"  recursion, {view}: {_rate(result.episodes):.3f} in {np.mean(steps):.0f} steps (at most {max(steps)} of {domain.budget}), "
        f"critical path {np.mean(path):.0f}, {deepest + 1} frames deep, {(deepest + 1) * domain.context} tokens in all\n"
    )


def _rate(episodes: Sequence[Any]) -> float:
    return float(np.mean([episode.success for episode in episodes]))


if __name__ == "__main__":
    main()
