"""People's own brackets: what is read, and what is refused, with the column at fault."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rao_envs  # noqa: F401
from rao_envs.nested.domain import NestedDomain
from rao_envs.nested.env import NestedEnv
from rao_envs.nested.reference import RecursiveSolver
from rao_envs.nested.text import NestedError, parse, read_texts, to_text

brackets = st.recursive(
    st.integers(0, 9).map(str),
    lambda inner: st.builds(
        lambda name, parts: f"[{name} {' '.join(parts)}]", st.sampled_from(["SUM", "MAX", "MIN"]), st.lists(inner, min_size=1, max_size=6)
    ),
    max_leaves=60,
).filter(lambda text: text.startswith("["))


@given(brackets)
def test_texts_come_back_as_they_were(text: str) -> None:
    tokens = parse(text, 10)
    assert to_text(tokens) == text
    np.testing.assert_array_equal(parse(to_text(tokens), 10), tokens)


def solve(env: NestedEnv, seed: int = 0, **reset: object) -> tuple[float, str]:
    """The recursive solver's reward, and its answer."""
    kwargs = {name: getattr(env.domain, name) for name in ("view", "modulus", "slots", "window", "notes", "stack")}
    solver = RecursiveSolver(**kwargs)
    observation, _ = env.reset(seed=seed, options=reset or None)
    while True:
        observation, reward, terminated, truncated, info = env.step(solver(observation, env.action_masks()))
        if terminated or truncated:
            return reward, env.domain.answer(env.batch.state, 0, info["returned"][-1]["value"])


@given(brackets, st.sampled_from(["folded", "raw"]))
def test_any_text_is_solved_by_recursion(text: str, view: str) -> None:
    env = NestedEnv(text=text, modulus=10, view=view)
    reward, answer = solve(env)
    assert reward == 1.0
    assert env.text == text
    assert answer == env.domain.truth(env.batch.state, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[MAX 2 9 [MIN 4 7] 0]", "9"),
        ("[sum 4,5 [SM 1 2 ] , 9]", "1"),
        ("[ MIN 7 ]", "7"),
        ("[MAX" + " 1" * 50 + " 3]", "3"),
        ("[SUM 1 " * 300 + "1" + "]" * 300, "1"),
    ],
)
def test_texts_have_the_values_that_people_expect(text: str, value: str) -> None:
    env = gym.make("RAO/LongSeq-nested-v0", text=text, modulus=10).unwrapped
    assert isinstance(env, NestedEnv)
    assert solve(env) == (1.0, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MAX 2 9]", r"column 8: 9 is not a digit from 0 to 2; pass modulus=10"),
        ("[MAX 2 12]", r"column 8: 12 is not a digit from 0 to 2"),
        ("[MED 1 2]", r"column 2: 'MED' is no operator: \"\[\" is followed by SUM, MAX, MIN"),
        ("[1 2]", r"column 2: '1' is no operator"),
        ("[MAX 1 [MIN 2 0]", r"column 1: this bracket is never closed"),
        ("[MAX 1 [", r"column 8: this bracket is never closed"),
        ("[MAX]", r"column 5: a bracket without arguments"),
        ("[MAX 1 []]", r"column 9: '\]' is no operator"),
        ("[MAX 1]]", r"column 8: '\]' outside brackets"),
        ("[MAX 1] [MIN 2]", r"column 9: the outermost bracket is closed"),
        ("[MAX 1 x]", r"column 8: 'x' is not an argument"),
        ("[MAX 1 -1]", r"column 8: '-' is not an argument"),
        ("[MAX 1 (2)]", r"column 8: '\(' is not an argument"),
        ("[MAX 1 ²]", r"column 8: '²' is not an argument"),
    ],
)
def test_malformed_texts_are_refused_with_the_column(text: str, message: str) -> None:
    with pytest.raises(NestedError, match=message) as caught:
        NestedDomain(text=text)
    pointed = str(caught.value).splitlines()
    column = int(pointed[0].split("column ")[1].split(":")[0])
    assert pointed[2].index("^") == column + 1
    assert isinstance(caught.value, ValueError)


def test_long_texts_show_the_part_at_fault() -> None:
    text = "[SUM " + "1 " * 500 + "x " + "1 " * 500 + "]"
    with pytest.raises(NestedError) as caught:
        parse(text, 3)
    _, shown, pointer = str(caught.value).splitlines()
    assert len(shown) < 100
    assert shown[pointer.index("^")] == "x"


def test_files_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_text("# two tasks\n\n[MAX 1 2]\n  [SUM 1 1 [MIN 2 0]]\n")
    texts = [to_text(tokens) for tokens in read_texts(path, 3)]
    assert texts == ["[MAX 1 2]", "[SUM 1 1 [MIN 2 0]]"]
    assert [to_text(tokens) for tokens in read_texts(str(path), 3)] == [to_text(tokens) for tokens in read_texts(texts, 3)] == texts
    env = NestedEnv(text=path)
    assert solve(env, text=1) == (1.0, "2")
    assert solve(env, text=0) == (1.0, "2")
    drawn = set()
    for seed in range(20):
        env.reset(seed=seed)
        drawn.add(env.text)
    assert drawn == set(texts)
    with pytest.raises(ValueError, match=r"text must be an integer in \[0, 1\]"):
        env.reset(options={"text": 2})
    path.write_text("[MAX 1 2]\n[MAX 1 7]\n")
    with pytest.raises(NestedError, match=r"tasks.txt, line 2, column 8: 7 is not"):
        NestedDomain(text=path)
    path.write_text("# nothing\n")
    with pytest.raises(NestedError, match="no text"):
        NestedDomain(text=path)
    path.write_bytes(b"[MAX 1 \xff]")
    with pytest.raises(NestedError, match=r"not UTF-8 text \(byte 7\)"):
        NestedDomain(text=path)
    with pytest.raises(NestedError, match=r"cannot read 'nowhere\.txt'"):
        NestedDomain(text="nowhere.txt")
    for wrong in (3, [], [3], b"[MAX 1]"):
        with pytest.raises(NestedError, match="text must be brackets"):
            NestedDomain(text=wrong)
    with pytest.raises(NestedError, match="text 1, column 1"):
        NestedDomain(text=["[MAX 1]", "MAX"])


def test_an_empty_text_is_no_path() -> None:
    for empty in ("", "  "):
        with pytest.raises(NestedError, match="text must be brackets such as"):
            read_texts(empty, 3)
