"""Mutated submissions, thousands of kinds of them: `rao verify` never crashes, and accepts only what says the same as the original."""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rao_leaderboard.verify import Report, verify
from tests.leaderboard.damage import facts, get_evaluation, get_text, get_trace, manifest, put_evaluation, put_text, put_trace, with_episode

EXAMPLES = settings(
    max_examples=int(os.environ.get("RAO_FUZZ_EXAMPLES", "25")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@functools.cache
def truth(pristine: Path) -> list[Any]:
    return facts(pristine)


@contextmanager
def copy_of(pristine: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(shutil.copytree(pristine, Path(place) / "sample"))


def check(pristine: Path, mutate: Callable[[Path], None]) -> Report:
    """The property; returns the report."""
    with copy_of(pristine) as folder:
        mutate(folder)
        report = verify(folder)
        assert "\n".join(map(str, report.problems)).replace("\n", "").isprintable()
        json.dumps(report.as_dict(), allow_nan=False).encode()
        if report.ok:
            assert facts(folder) == truth(pristine), "a false pass"
    return report


def mutated(data: st.DataObject, content: bytes) -> bytes:
    """Bits flipped, pieces cut out, put in, doubled or moved."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(changed) - 1)))
        kind = data.draw(st.sampled_from(["flip", "set", "cut", "insert", "double", "end", "digit"]))
        length = data.draw(st.sampled_from([1, 2, 7, 64]))
        if kind == "flip" and changed:
            changed[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "set" and changed:
            changed[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[at : at + length]
        elif kind == "insert":
            changed[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        elif kind == "double":
            changed[at:at] = changed[at : at + length]
        elif kind == "end":
            del changed[at:]
        elif kind == "digit":
            digits = [k for k in range(at, min(len(changed), at + 200)) if chr(changed[k]).isdigit()]
            if digits:
                changed[digits[0]] = ord(data.draw(st.sampled_from("0123456789")))
    return bytes(changed)


WEIRD: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    0.0,
    -0.0,
    1.0,
    1e-320,
    1e308,
    2**31,
    2**63,
    2**64 - 1,
    2**64,
    10**400,
    [],
    {},
    "",
    "0",
    "x",
]
WEIRD += ["\x00", "\ud800", "\u202e", "\u200b", "NaN", "../..", "/etc/passwd", "RAO/Maze-5x5-v0", "x" * 10_000, [[]], {"": 0}, [0] * 300]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key below it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def restructured(data: st.DataObject, value: Any) -> None:
    """One entry somewhere in it replaced, taken out, doubled or moved."""
    found = list(places(value))
    container, key = found[data.draw(st.integers(0, len(found) - 1))]
    kind = data.draw(st.sampled_from(["replace", "nudge", "remove", "rename", "double", "swap", "copy"]))
    other, other_key = found[data.draw(st.integers(0, len(found) - 1))]
    if kind == "replace":
        container[key] = data.draw(st.sampled_from(WEIRD))
    elif kind == "nudge" and isinstance(container[key], (int, float)):
        container[key] += data.draw(st.sampled_from([1, -1, 1e-3, -1e-6, 1e-8]))
    elif kind == "remove":
        del container[key]
    elif kind == "rename" and isinstance(container, dict):
        container[data.draw(st.sampled_from(["", "x", "name", str(key).upper(), f"{key} "]))] = container.pop(key)
    elif kind == "double" and isinstance(container, list):
        container.insert(key, container[key])
    elif kind == "swap" and isinstance(container, list) and len(container) > 1:
        k = data.draw(st.integers(0, len(container) - 1))
        container[key], container[k] = container[k], container[key]
    elif kind == "copy" and not isinstance(other[other_key], (dict, list)):
        container[key] = other[other_key]


@EXAMPLES
@given(st.data())
def test_any_file_with_its_bytes_changed(pristine: Path, data: st.DataObject) -> None:
    names = sorted(str(p.relative_to(pristine)) for p in pristine.rglob("*") if p.is_file())

    def mutate(folder: Path) -> None:
        path = folder / data.draw(st.sampled_from(names))
        path.write_bytes(mutated(data, path.read_bytes()))

    check(pristine, mutate)


@EXAMPLES
@given(st.data(), st.integers(0, 1), st.integers(0, 1))
def test_a_compressed_trace_with_its_bytes_changed_and_its_seal_made_anew(pristine: Path, data: st.DataObject, run: int, task: int) -> None:
    check(pristine, lambda folder: put_trace(folder, mutated(data, get_trace(folder, run, task)) or b"x", run, task))


@EXAMPLES
@given(st.data(), st.integers(0, 1), st.integers(0, 1))
def test_the_text_of_a_trace_with_its_bytes_changed_and_its_seal_made_anew(
    pristine: Path, data: st.DataObject, run: int, task: int
) -> None:
    check(pristine, lambda folder: put_text(folder, mutated(data, get_text(folder, run, task)), run, task))


@EXAMPLES
@given(st.data())
def test_a_trace_with_an_entry_changed_and_its_seal_made_anew(pristine: Path, data: st.DataObject) -> None:
    def mutate(folder: Path) -> None:
        value = json.loads(get_text(folder))
        restructured(data, value)
        put_text(folder, json.dumps(value).encode("utf-8", "surrogatepass"))

    check(pristine, mutate)


@EXAMPLES
@given(st.data())
def test_a_manifest_with_an_entry_changed(pristine: Path, data: st.DataObject) -> None:
    def mutate(folder: Path) -> None:
        with manifest(folder) as value:
            restructured(data, value)

    check(pristine, mutate)


FIELDS = ("success", "return_", "nodes", "deepest", "spawns", "critical_path", "seed")


@EXAMPLES
@given(st.data(), st.integers(0, 99), st.integers(0, 1), st.integers(0, 1))
def test_a_forger_who_makes_everything_fit(pristine: Path, data: st.DataObject, k: int, run: int, task: int) -> None:
    """Any field or action of an episode, with the summary, the means and all seals made to fit: each real change is refused."""
    evaluation = get_evaluation(pristine, run, task)
    old = evaluation.episodes[k]
    field = data.draw(st.sampled_from([*FIELDS, "actions"]))
    value: Any
    if field == "actions":
        actions = old.actions.copy()
        actions[data.draw(st.integers(0, old.steps - 1))] = data.draw(st.integers(0, evaluation.n_actions - 1))
        value, same = actions, np.array_equal(actions, old.actions)
    elif field == "success":
        value, same = data.draw(st.sampled_from([(True, old.success is True), (False, old.success is False), (None, False)]))
    elif field == "return_":
        value = old.return_ + data.draw(st.sampled_from([0.0, 1e-4, -1.0, 1e90]))
        same = value == old.return_
    else:
        low, high = {
            "nodes": (1, 10**6),
            "critical_path": (1, old.steps),
            "spawns": (0, old.steps),
            "deepest": (0, 99),
            "seed": (0, 2**64 - 1),
        }[field]
        value = data.draw(st.integers(low, high))
        same = value == getattr(old, field)
    report = check(pristine, lambda folder: put_evaluation(folder, with_episode(evaluation, k, **{field: value}), run, task))
    if field == "actions" and not same:
        return  # one of the same effect is as true a record (`facts`): which policy took it, only a re-run tells
    assert report.ok is same


@EXAMPLES
@given(st.permutations(range(100)))
def test_episodes_in_another_order(pristine: Path, order: list[int]) -> None:
    from dataclasses import replace

    evaluation = get_evaluation(pristine)
    shuffled = replace(evaluation, episodes=tuple(evaluation.episodes[k] for k in order))
    report = check(pristine, lambda folder: put_evaluation(folder, shuffled))
    assert report.ok is (order == list(range(100)))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_another_compression_of_the_same_text_holds(pristine: Path, level: int) -> None:
    report = check(pristine, lambda folder: put_trace(folder, gzip.compress(get_text(folder), compresslevel=level, mtime=1234)))
    assert report.ok
