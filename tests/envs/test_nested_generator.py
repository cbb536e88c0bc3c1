"""Nested brackets: what is generated, its index, its values, and what a guess is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.core.batch import RecursiveBatch
from rao_envs.nested import generator
from rao_envs.nested.domain import NestedDomain, halvings
from rao_envs.nested.generator import NO_BRACKET, OPERATORS
from rao_envs.nested.text import to_text

seeds = st.integers(0, 2**64 - 1)


def task_of(seed: int, **kwargs: Any) -> tuple[RecursiveBatch, list[int]]:
    """A batch of one with a fresh task, and the task's tokens."""
    batch = RecursiveBatch(NestedDomain(**kwargs), 1)
    batch.seed(0, seed)
    batch.reset()
    return batch, batch.state.tokens[0, : batch.state.task[0]["length"]].tolist()


class Node:
    """A bracket, read by hand."""

    def __init__(self, operator: str, start: int) -> None:
        self.operator, self.start, self.end = operator, start, -1
        self.parts: list[int | Node] = []

    def value(self, modulus: int) -> int:
        values = [part if isinstance(part, int) else part.value(modulus) for part in self.parts]
        return {"SUM": sum(values) % modulus, "MAX": max(values), "MIN": min(values)}[self.operator]

    def walk(self, level: int = 0) -> list[tuple[int, Node]]:
        inner = [pair for part in self.parts if isinstance(part, Node) for pair in part.walk(level + 1)]
        return [(level, self), *inner]


def tree_of(tokens: list[int]) -> Node:
    """The brackets of a text, by another way than the index."""
    stack: list[Node] = []
    root: Node | None = None
    for at, word in enumerate(to_text(np.array(tokens, np.int8)).replace("]", " ]").split()):
        assert root is None, "one text is one bracket"
        if word == "]":
            stack[-1].end = at + 1
            closed = stack.pop()
            root = closed if not stack else None
        elif word.startswith("["):
            node = Node(word[1:], at)
            if stack:
                stack[-1].parts.append(node)
            stack.append(node)
        else:
            stack[-1].parts.append(int(word))
    assert root is not None
    return root


configurations = st.fixed_dictionaries(
    {
        "length": st.one_of(st.integers(8, 400), st.tuples(st.integers(8, 40), st.integers(40, 400))),
        "max_nesting": st.one_of(st.none(), st.integers(1, 15)),
        "max_arguments": st.integers(2, 12),
        "modulus": st.integers(2, 10),
        "operators": st.sampled_from([OPERATORS, ("MAX",), ("SUM", "MIN"), "SUM"]),
        "slots": st.integers(2, 6),
    }
)


@settings(max_examples=300)
@given(seed=seeds, kwargs=configurations)
def test_tasks_are_what_the_arguments_say_and_their_values_are_right(seed: int, kwargs: dict[str, Any]) -> None:
    batch, tokens = task_of(seed, **kwargs)
    domain: Any = batch.domain
    root = tree_of(tokens)
    nodes = root.walk()
    low, high = (kwargs["length"],) * 2 if isinstance(kwargs["length"], int) else kwargs["length"]
    assert low <= len(tokens) <= high
    assert 1 <= max(level for level, _ in nodes) <= domain.max_nesting
    assert all(0 <= token < domain.modulus for token in tokens if token < 10)
    assert root.operator == "SUM"
    assert all(len(node.parts) >= 2 for _, node in nodes)
    assert all(len(node.parts) <= domain.max_arguments + 2 for level, node in nodes if level > 0)
    state: Any = batch.state
    assert state.task[0]["brackets"] == len(nodes) <= generator.most_brackets(domain.longest)
    for b, (_, node) in enumerate(nodes):
        record = state.brackets[0, b]
        assert (record["start"], record["end"], record["count"]) == (node.start, node.end, len(node.parts))
        assert record["value"] == node.value(domain.modulus)
        for k, part in enumerate(node.parts):
            argument = state.arguments[0, record["first"] + k]
            if isinstance(part, int):
                assert (argument["bracket"], argument["digit"], argument["end"] - argument["start"]) == (NO_BRACKET, part, 1)
            else:
                inner = state.brackets[0, argument["bracket"]]
                assert (argument["start"], argument["end"]) == (part.start, part.end) == (inner["start"], inner["end"])
                assert (inner["parent"], inner["place"]) == (b, k)
    assert domain.truth(batch.state, 0) == str(root.value(domain.modulus))


@settings(max_examples=200)
@given(seed=seeds, kwargs=configurations)
def test_no_task_needs_more_depth_than_there_is(seed: int, kwargs: dict[str, Any]) -> None:
    batch, tokens = task_of(seed, **kwargs)
    slots = kwargs["slots"]

    def deepest(node: Node) -> int:
        return halvings(len(node.parts), slots) + max([0, *(1 + deepest(part) for part in node.parts if isinstance(part, Node))])

    assert deepest(tree_of(tokens)) <= batch.domain.max_depth


@settings(max_examples=200)
@given(seed=seeds, kwargs=configurations)
def test_a_sum_leads_from_the_root_to_a_digit_it_does_not_show(seed: int, kwargs: dict[str, Any]) -> None:
    """Then the answer is uniform, whatever the root sees (the digit is drawn independently of all else)."""
    _, tokens = task_of(seed, **kwargs)
    within = [part for part in tree_of(tokens).parts if isinstance(part, Node) and part.operator == "SUM"]
    while within:
        if any(isinstance(part, int) for node in within for part in node.parts):
            return
        within = [part for node in within for part in node.parts if isinstance(part, Node) and part.operator == "SUM"]
    raise AssertionError("no hidden digit")


def test_no_guess_from_the_roots_view_beats_chance() -> None:
    batch = RecursiveBatch(NestedDomain(length=24), 1000)
    for i in range(1000):
        batch.seed(i, i)
    batch.reset()
    task = batch.obs["task"]
    answers = batch.state.brackets["value"][:, 0]
    # Of all tasks that look the same to the root, and overall: shares of the three answers.
    assert np.bincount(answers).min() > 280
    hits, total = 0, 0
    for view in np.unique(task, axis=0):
        same = answers[(task == view).all(axis=1)]
        half = len(same) // 2
        if half:  # the best guess by one half, tried on the other
            hits += int(np.count_nonzero(same[half:] == np.bincount(same[:half]).argmax()))
            total += len(same) - half
    assert total > 200
    assert abs(hits / total - 1 / 3) < 4 * np.sqrt(2 / 9 / total)


@settings(max_examples=100)
@given(seed=seeds, length=st.integers(8, 200))
def test_no_digit_decides_a_bracket_that_holds_brackets(seed: int, length: int) -> None:
    _, tokens = task_of(seed, length=length)
    for _, node in tree_of(tokens).walk():
        if any(isinstance(part, Node) for part in node.parts):
            assert {"SUM": -1, "MAX": 2, "MIN": 0}[node.operator] not in node.parts


def test_lengths_are_drawn_octave_by_octave() -> None:
    batch = RecursiveBatch(NestedDomain(length=(16, 320)), 1000)
    for i in range(1000):
        batch.seed(i, i)
    batch.reset()
    lengths = batch.state.task["length"]
    counts = np.histogram(lengths, [16, 32, 64, 128, 256, 321])[0]
    assert lengths.min() == 16
    assert counts.sum() == 1000
    assert counts.min() > 150


def test_depth_caps_go_into_the_width_of_the_outermost_bracket() -> None:
    for cap in (1, 2, 3):
        _, tokens = task_of(3, length=320, max_nesting=cap)
        root = tree_of(tokens)
        assert max(level for level, _ in root.walk()) == cap
        assert len(tokens) == 320
    assert len(tree_of(task_of(3, length=320, max_nesting=1)[1]).parts) > 30


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"length": 7}, r"length must be an integer in \[8, 1000000\]"),
        ({"length": (20, 10)}, "20 is more than 10"),
        ({"length": (20, 30, 40)}, r"length must be a number of tokens or \(shortest, longest\)"),
        ({"view": "flat"}, "view must be one of 'folded', 'raw'"),
        ({"modulus": 11}, r"modulus must be an integer in \[2, 10\]"),
        ({"max_nesting": 0}, r"max_nesting must be an integer in \[1, 200\]"),
        ({"max_arguments": 1}, "max_arguments must be"),
        ({"slots": 1}, "slots must be"),
        ({"window": 3}, "window must be"),
        ({"notes": -1}, "notes must be"),
        ({"stack": 65}, "stack must be"),
        ({"operators": ("SUM", "MED")}, "operators must be some of SUM, MAX, MIN"),
        ({"operators": ()}, "operators must be some of"),
    ],
    ids=str,
)
def test_bad_arguments_are_explained(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NestedDomain(**kwargs)
