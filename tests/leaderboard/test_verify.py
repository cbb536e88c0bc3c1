"""`rao verify`: what holds is accepted, what was tampered with is refused, by episode and field."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rao_envs
from rao_envs import replay
from rao_envs.core.actors import RandomAgent
from rao_leaderboard import fingerprints, protocol, traces
from rao_leaderboard import verify as verifying
from rao_leaderboard.__main__ import main
from rao_leaderboard.claims import run_digest
from rao_leaderboard.reading import MAX_FAULTS, read_submission
from rao_leaderboard.verify import Report, verify
from tests.leaderboard.damage import (
    Json,
    get_evaluation,
    get_text,
    get_trace,
    manifest,
    put_evaluation,
    put_file,
    put_text,
    put_trace,
    result_of,
    with_episode,
)
from tests.leaderboard.samples import make_sample

PLACE = "run run-0, open, RAO/Maze-5x5-v0"
ROOT = Path(rao_envs.__file__).parents[1]


def text_of(report: Report) -> str:
    text = "\n".join(map(str, report.problems))
    assert text.replace("\n", "").isprintable()
    return text


def refused(folder: Path) -> str:
    report = verify(folder)
    assert not report.ok and report.badges == () and report.rows == ()
    return text_of(report)


# -- what holds ----------------------------------------------------------------------------------------------


def test_a_sound_submission_holds(pristine: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(pristine, progress=lambda finished, total: seen.append((finished, total)))
    assert report.ok, text_of(report)
    assert report.name == "sample" and report.episodes == 400 and report.rerun is None
    expected = [e.steps for run in (0, 1) for task in (0, 1) for e in get_evaluation(pristine, run, task).episodes]
    assert report.steps == sum(expected)
    assert seen == [(k, 4) for k in range(5)]
    assert report.badges == ("replayed",)
    assert sorted(table.env_id for table in report.rows) == ["RAO/Algebra-depth2-v0", "RAO/Maze-5x5-v0"]
    assert all(row.submission == "sample" for table in report.rows for row in table.rows)


def test_a_row_of_the_ranked_tracks_holds(tmp_path: Path) -> None:
    tasks = [("standard", "RAO/Algebra-depth8-v0", {"spawn": False}), ("zero-shot", "RAO/Algebra-depth12-v0", {"spawn": False})]
    folder = make_sample(tmp_path, tasks=tasks, kind="monolithic", training_steps=1_005_000, curve=[(0, 0.0), (1_005_000, 0.95)])
    report = verify(folder)
    assert report.ok, text_of(report)


def test_the_order_of_runs_and_results_does_not_matter(folder: Path) -> None:
    with manifest(folder) as data:
        data["runs"].reverse()
        data["runs"][0]["results"].reverse()
    assert verify(folder).ok


# -- tampering -----------------------------------------------------------------------------------------------


def test_a_tampered_trace_is_caught(folder: Path) -> None:
    """One action of one episode, every seal made anew."""
    evaluation = get_evaluation(folder)
    k = next(k for k, e in enumerate(evaluation.episodes) if not e.success)
    actions = evaluation.episodes[k].actions.copy()
    changed = False
    for step, other in ((s, a) for s in range(len(actions)) for a in range(9)):
        forged = actions.copy()
        forged[step] = other
        try:
            again = replay("RAO/Maze-5x5-v0", evaluation.episodes[k].seed, forged, spawn=True)
        except ValueError:
            continue
        if again.nodes != evaluation.episodes[k].nodes:
            changed = True
            break
    assert changed
    put_evaluation(folder, with_episode(evaluation, k, actions=forged))
    place = (
        f"{PLACE}, episode {k} (seed {evaluation.episodes[k].seed}), nodes: {evaluation.episodes[k].nodes} is claimed, {again.nodes} comes"
    )
    assert place in refused(folder)


def test_an_inflated_number_is_caught(folder: Path) -> None:
    with manifest(folder) as data:
        result = result_of(data)
        before = result["success"]
        result["success"] = 0.99
    assert f"{PLACE}, success: 0.99 is claimed, {before!r} follows from the episodes" in refused(folder)


@pytest.mark.parametrize("name", ["success", "mean_return", "steps", "critical_path"])
def test_a_number_inflated_in_its_last_digit_is_caught(folder: Path, name: str) -> None:
    with manifest(folder) as data:
        result_of(data)[name] = float(np.nextafter(result_of(data)[name], 0.0))
    assert f"{PLACE}, {name}: " in refused(folder)


def test_a_chosen_seed_is_caught(folder: Path) -> None:
    """An honest episode, but of a seed on which the agent does better."""
    wanted = [rao_envs.evaluate(RandomAgent(), "RAO/Maze-5x5-v0", [seed], progress=False, spawn=True).episodes[0] for seed in range(9)]
    best = next(e for e in wanted if e.success)
    evaluation = get_evaluation(folder)
    k = next(k for k, e in enumerate(evaluation.episodes) if not e.success)
    episodes = list(evaluation.episodes)
    episodes[k] = best
    put_evaluation(folder, replace(evaluation, episodes=tuple(episodes)))
    honest = evaluation.episodes[k].seed
    message = f"{PLACE}, episode {k}, seed: {best.seed} is not what follows from the policy's files ({honest}), and no seed can be chosen"
    assert message in refused(folder)


def test_another_policy_has_other_seeds(folder: Path) -> None:
    put_file(folder, "policies/run-0/policy.txt", b"a better one\n")
    text = refused(folder)
    assert f"{PLACE}, episode 0, seed: " in text and "the same holds of 99 more episodes" in text


def test_a_foreign_version_of_the_environment_is_caught(folder: Path) -> None:
    with manifest(folder) as data:
        data["environments"]["RAO/Maze-5x5-v0"] = "0123456789abcdef" * 4
    known = fingerprints.known()["RAO/Maze-5x5-v0"]
    message = (
        "RAO/Maze-5x5-v0: it was made on another version of RAO/Maze-5x5-v0: its fingerprint is 0123456789ab..., "
        f"that of rao_envs {rao_envs.__version__} {known[:12]}..."
    )
    assert message in refused(folder)


def test_episodes_of_foreign_dynamics_are_caught_even_under_the_right_fingerprint(tmp_path: Path) -> None:
    """Played on a variant of the environment, every seal as it should be."""
    easy = rao_envs.evaluate
    folder = make_sample(tmp_path)
    seeds = [e.seed for e in get_evaluation(folder).episodes]
    other = easy(RandomAgent(), "RAO/Maze-5x5-v0", seeds, progress=False, spawn=True, structure="open")
    put_evaluation(folder, replace(other, env_kwargs={"spawn": True}))
    assert "comes out" in refused(folder)


@pytest.mark.parametrize("field", ["success", "return_", "nodes", "deepest", "spawns", "critical_path"])
def test_every_field_of_an_episode_is_recomputed(folder: Path, field: str) -> None:
    evaluation = get_evaluation(folder)
    k = next(k for k, e in enumerate(evaluation.episodes) if e.spawns > 2 and e.critical_path > 1)
    old = evaluation.episodes[k]
    value = getattr(old, field)
    changes: dict[str, Any] = {field: (not value) if field == "success" else value - 1}
    put_evaluation(folder, with_episode(evaluation, k, **changes))
    report = verify(folder)
    problem = next(p for p in report.problems if p.place == f"{PLACE}, episode {k} (seed {old.seed}), {field.rstrip('_')}")
    assert (problem.claimed, problem.found) == (changes[field], value)
    assert problem.text == f"{changes[field]!r} is claimed, {value!r} comes out"


def test_success_that_is_left_open_is_not_success(folder: Path) -> None:
    put_evaluation(folder, with_episode(get_evaluation(folder), 3, success=None))
    assert "success: None is claimed" in refused(folder)


def test_the_last_digits_of_a_sum_of_rewards_are_no_claim(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    for off, fine in ((1e-12, True), (1e-6, False)):
        put_evaluation(folder, with_episode(evaluation, 3, return_=evaluation.episodes[3].return_ + off))
        assert verify(folder).ok is fine


@pytest.mark.parametrize("cut", [1, 3])
def test_an_episode_that_was_cut_short_is_named(folder: Path, cut: int) -> None:
    evaluation = get_evaluation(folder)
    old = evaluation.episodes[7]
    put_evaluation(
        folder,
        with_episode(evaluation, 7, actions=old.actions[:-cut], steps=old.steps - cut, spawns=0, critical_path=1),
    )
    (problem,) = (p for p in verify(folder).problems if "episode 7 " in p.place)  # what comes out of other actions is no finding
    assert problem.place == f"{PLACE}, episode 7 (seed {old.seed}), actions"
    assert problem.text == f"the episode is not over after the {old.steps - cut} that are recorded"


def test_an_episode_with_actions_after_its_end_is_named(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    old = evaluation.episodes[7]
    put_evaluation(folder, with_episode(evaluation, 7, actions=np.append(old.actions, [0, 0]), steps=old.steps + 2))
    text = refused(folder)
    assert f"episode 7 (seed {old.seed}), steps: {old.steps + 2} is claimed, {old.steps} comes out" in text


def test_all_that_is_wrong_is_named_not_only_the_first(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    for k in (2, 5):
        evaluation = with_episode(evaluation, k, nodes=evaluation.episodes[k].nodes + 1)
    put_evaluation(folder, evaluation)
    with manifest(folder) as data:
        result_of(data, 1, 1)["steps"] += 1.0
        data["runs"][1]["curve"] = [{"steps": 5, "success": 0.0}]
    text = refused(folder)
    for part in ("episode 2 ", "episode 5 ", "run run-1, open, RAO/Algebra-depth2-v0, steps", "its curve must rise"):
        assert part in text


def test_a_thousand_faults_are_cut_off(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    for k in range(100):
        evaluation = with_episode(evaluation, k, nodes=evaluation.episodes[k].nodes + 1)
    put_evaluation(folder, evaluation)
    assert len(verify(folder).problems) == MAX_FAULTS


def swapped_traces(folder: Path) -> None:
    first, second = get_evaluation(folder, 0), get_evaluation(folder, 1)
    put_evaluation(folder, second, 0)
    put_evaluation(folder, first, 1)


def swapped_episodes(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    first, second, *rest = evaluation.episodes
    put_evaluation(folder, replace(evaluation, episodes=(second, first, *rest)))


def fewer_episodes(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    put_evaluation(folder, replace(evaluation, episodes=tuple(e for e in evaluation.episodes if e.success)))


def fewer_episodes_all_over(folder: Path) -> None:
    evaluation = get_evaluation(folder)
    put_evaluation(folder, replace(evaluation, episodes=evaluation.episodes[:50]))
    with manifest(folder) as data:
        result_of(data)["episodes"] = 50


def other_trace(folder: Path) -> None:
    put_evaluation(folder, get_evaluation(folder, 0, 1), 0, 0)


def header(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        put_evaluation(folder, replace(get_evaluation(folder), **changes))

    damage.__name__ = f"header {changes!r:.40}"
    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (swapped_traces, f"{PLACE}, episode 0, seed"),
        (swapped_episodes, f"{PLACE}, episode 0, seed"),
        (fewer_episodes, f"{PLACE}, episodes: the trace has"),
        (fewer_episodes_all_over, f"{PLACE}: has 50 episodes; protocol 1 asks for 100"),
        (other_trace, f"{PLACE}, env_id: the trace says RAO/Algebra-depth2-v0, the manifest RAO/Maze-5x5-v0"),
        (header(env_kwargs={}), f"{PLACE}, env_kwargs: the trace says {{}}, the manifest {{'spawn': True}}"),
        (header(env_kwargs={"spawn": 1}), f"{PLACE}, env_kwargs: the trace says {{'spawn': 1}}, the manifest {{'spawn': True}}"),
        (header(env_kwargs={"spawn": True, "budget": 9}), f"{PLACE}, env_kwargs: the trace says {{'spawn': True, 'budget': 9}}"),
        (header(env_kwargs={"spawn": [[]]}), f"{PLACE}, env_kwargs: the trace says an object of 1 entries"),
        (header(deterministic=False), f"{PLACE}, deterministic: the trace says False, the manifest True"),
        (header(n_actions=12), f"{PLACE}, n_actions: 12 is claimed, the environment has 9"),
        (header(n_actions=1000), f"{PLACE}, n_actions: 1000 is claimed, the environment has 9"),
        (header(version="99.0"), f"{PLACE}, version: the trace says 99.0, the manifest {rao_envs.__version__}"),
        (header(agent="a\x1b[2Jb"), rf"{PLACE}, agent: must be at most 200 printable characters, got a\x1b[2Jb"),
        (header(agent="a" * 201), f"{PLACE}, agent: must be at most 200"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_a_trace_says_must_be_what_the_manifest_says(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    assert message in refused(folder)


# -- the protocol --------------------------------------------------------------------------------------------


def claim(change: Callable[[Json], None]) -> Callable[[Json], None]:
    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: result_of(m).update(track="standard"), "is no task of this track, which has RAO/Maze-20x20-v0, "),
        (lambda m: result_of(m).update(env_id="RAO/Maze-6x6-v0"), "RAO/Maze-6x6-v0: is not an environment of rao_envs"),
        (lambda m: result_of(m, 0, 1).update(env_id="RAO/Maze-5x5-v0"), "there are two results of this task"),
        (lambda m: m["runs"][1].update(name="run-0"), "run run-0: there are two runs of this name"),
        (lambda m: m["environments"].pop("RAO/Maze-5x5-v0"), "environments: lacks the fingerprint of RAO/Maze-5x5-v0"),
        (
            lambda m: m["environments"].update({"RAO/Maze-v0": fingerprints.known()["RAO/Maze-v0"]}),
            "environments: names RAO/Maze-v0, which no run has played",
        ),
        (lambda m: m["software"]["packages"].pop("rao-envs"), "software.packages: does not say which version of rao-envs was used"),
        (lambda m: m["software"]["packages"].update({"rao-envs": "newest"}), "'newest' is no version of rao-envs"),
        (lambda m: m["agent"].update(kind="monolithic"), "a monolithic agent acts with spawn=false"),
        (lambda m: m["runs"][0]["artefact"].update(onnx="policy.onnx"), "policy.onnx is not one of the policy's files"),
        (lambda m: m["runs"][0].update(curve=[{"steps": 1, "success": 1.0}]), "up to its 0 training steps at most"),
        (
            lambda m: m["runs"][0].update(training_steps=9, curve=[{"steps": s, "success": 1.0} for s in (5, 5)]),
            "the steps of its curve must rise",
        ),
    ],
)
def test_claims_that_break_the_protocol_are_named(folder: Path, change: Callable[[Json], None], message: str) -> None:
    with manifest(folder) as data:
        change(data)
    assert message in refused(folder)


def test_the_budget_of_training_holds_on_the_ranked_tracks_alone(tmp_path: Path) -> None:
    many = int(protocol.STANDARD_BUDGET * protocol.BUDGET_SLACK) + 1
    for track, fine in (("standard", False), ("open", True)):
        folder = make_sample(tmp_path / track, tasks=[(track, "RAO/Algebra-depth8-v0", {})], training_steps=many)
        report = verify(folder)
        assert report.ok is fine
        assert fine or f"{many} training steps are more than the track's 1000000: it belongs to the open one" in text_of(report)


@pytest.mark.parametrize("text", ["RAO/Algebra-depth12-v0", "RAO/Algebra-depth12-v0 modulus=2", "RAO/Algebra-depth12"])
def test_zero_shot_is_not_trained_on_the_task(tmp_path: Path, text: str) -> None:
    folder = make_sample(tmp_path, tasks=[("zero-shot", "RAO/Algebra-depth12-v0", {})])
    with manifest(folder) as data:
        data["runs"][0]["trained_on"] = ["RAO/Algebra-depth8-v0"]
    assert verify(folder).ok
    with manifest(folder) as data:
        data["runs"][0]["trained_on"] = ["RAO/Algebra-depth8-v0", text]
    assert "it was trained on this task, which the zero-shot track excludes" in refused(folder)


def test_one_policy_is_not_counted_as_two_runs(folder: Path) -> None:
    put_file(folder, "policies/run-1/policy.txt", (folder / "policies/run-0/policy.txt").read_bytes())
    put_evaluation(folder, get_evaluation(folder, 0), 1)
    assert "run run-1: its policy is that of run run-0: it would be counted twice" in refused(folder)


# -- what costs too much, or is no trace ---------------------------------------------------------------------


def nested(folder: Path, depth: int) -> bytes:
    text = get_text(folder)
    before = b'"success":false' if b'"success":false' in text else b'"success":true'
    return text.replace(before, b'"success":' + b"[" * depth + b"]" * depth, 1)


@pytest.mark.parametrize("depth", [100, 500, 900, 950, 980, 1100, 3000, 50_000, 500_000])
def test_a_deeply_nested_trace_is_no_crash(folder: Path, depth: int) -> None:
    put_text(folder, nested(folder, depth))
    text = refused(folder)
    assert "nested too deeply" in text or "must be true, false or null" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: b"", "submission.json"),
        (lambda t: b"hello", "it is not compressed by gzip, or damaged"),
        (lambda t: gzip.decompress(t), "it is not compressed by gzip, or damaged"),
        (lambda t: t[:-1], "it is cut short"),
        (lambda t: t[:-9], "it is cut short"),
        (lambda t: t[:5], "it is cut short"),
        (lambda t: t + b"\0", "something follows its end"),
        (lambda t: t + t, "something follows its end"),
        (lambda t: gzip.compress(b"") + t, "something follows its end"),
        (lambda t: gzip.compress(t), "it is not a text in UTF-8"),
        (lambda t: t[:-6] + bytes([t[-6] ^ 1]) + t[-5:], "it is not compressed by gzip, or damaged (Error -3"),
        (lambda t: gzip.compress(b"[]"), "must be an object, got []"),
        (lambda t: gzip.compress(gzip.decompress(t) + b"{}"), "Extra data"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"steps":', b'"steps":1,"steps":', 1)), "the key 'steps' occurs twice"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"seed":', b'"seed":NaN,"x":', 1)), "NaN is not a number"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"seed":', b'"seed":-', 1)), "seed: must be an integer in [0,"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"actions":"', b'"actions":"\\ud800', 1)), "actions: "),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"actions":"', b'"actions":"\xd9\xa3', 1)), "is not one of the 9 actions"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"actions":"', b'"actions":"9', 1)), "'9' is not one of the 9 actions"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"actions":"', b'"actions":[0],"x":"', 1)), "unknown 'x'"),
        (lambda t: gzip.compress(gzip.decompress(t).replace(b'"actions":"', b'"actions":[1.5, "', 1)), "delimiter"),
    ],
)
def test_what_is_no_trace_is_said_to_be_none(folder: Path, make: Callable[[bytes], bytes], message: str) -> None:
    content = make(get_trace(folder))
    put_trace(folder, content)
    text = refused(folder)
    assert message in text or (not content and "bytes" in text)


def test_a_bomb_is_refused_before_it_goes_off(folder: Path) -> None:
    """A gigabyte of noughts in a megabyte."""
    put_trace(folder, gzip.compress(bytes(2**30), compresslevel=1))
    verify(folder)  # kernels
    tracemalloc.start()
    started = time.process_time()
    text = refused(folder)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"it unpacks to more than {traces.MAX_BYTES} bytes" in text
    assert peak < 5 * traces.MAX_BYTES
    assert seconds < 20


def test_many_small_bombs_are_one_large_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = [len(get_text(folder, run, task)) for run in (0, 1) for task in (0, 1)]
    monkeypatch.setattr(verifying, "MAX_UNPACKED", sum(unpacked))
    assert verify(folder).ok
    monkeypatch.setattr(verifying, "MAX_UNPACKED", sum(unpacked) - 1)
    assert f"its traces unpack to more than {sum(unpacked) - 1} bytes together" in refused(folder)


def test_one_endless_episode_does_not_make_all_of_them_wide(folder: Path) -> None:
    """A table of a hundred episodes, each as wide as the longest, would take twelve gigabytes."""
    evaluation = get_evaluation(folder)
    old = evaluation.episodes[0]
    length = traces.MAX_BYTES - 2**17
    forged = with_episode(evaluation, 0, actions=np.zeros(length, np.int64), steps=length, critical_path=old.critical_path)
    put_trace(folder, traces.pack(forged))
    tracemalloc.start()
    text = refused(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"episode 0 (seed {old.seed}), steps: {length} is claimed, " in text
    assert peak < 2 * 2**30


def test_an_honest_trace_of_the_longest_episodes_fits() -> None:
    episodes = protocol.EPISODES
    from rao_envs.core.arenas import BatchArena, make_arena

    budgets = []
    for env_id in rao_envs.registered_ids():
        arena = make_arena(env_id, 1, {})
        assert isinstance(arena, BatchArena)
        budgets.append(arena.batch.domain.budget)
    assert max(budgets) * episodes * 2 < traces.MAX_BYTES
    assert sum(budgets) * episodes * 50 < verifying.MAX_UNPACKED


# -- speed ---------------------------------------------------------------------------------------------------


def test_it_replays_fast(tmp_path: Path) -> None:
    """The aim is 50 000 steps a second on one core; a row of the maze's standard task takes a tenth of a second of processor time."""
    folder = make_sample(tmp_path, tasks=[("standard", "RAO/Maze-20x20-v0", {"spawn": True})], runs=5)
    verify(folder)
    speeds = []
    for _ in range(3):
        started = time.process_time()
        report = verify(folder)
        speeds.append(report.steps / (time.process_time() - started))
    assert report.ok and report.steps > 50_000
    assert max(speeds) > 100_000


# -- this installation ---------------------------------------------------------------------------------------


def test_an_installation_with_other_dynamics_judges_nobody(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = [dict(kept) for kept in fingerprints.golden()["RAO/Maze-5x5-v0"]]
    entry[0]["digests"] = ["0" * 16, *entry[0]["digests"][1:]]
    monkeypatch.setattr(fingerprints, "golden", lambda: {**_golden, "RAO/Maze-5x5-v0": entry})
    text = refused(pristine)
    assert text.startswith(f"this installation: its rao_envs {rao_envs.__version__} is not the released one, and cannot judge a submission")


_golden = fingerprints.golden()


# -- re-runs -------------------------------------------------------------------------------------------------


class Policy:
    """Stands for a network: takes the k-th allowed action, k from the file's first byte."""

    def __init__(self, content: bytes) -> None:
        if content[:1] == b"!":
            raise ValueError("no operator\x1b of this kind is allowed")
        self.k = content[0]

    def __call__(self, observation: Any, mask: Any, state: Any) -> int:
        allowed = np.flatnonzero(mask)
        return int(allowed[self.k % len(allowed)])


@pytest.fixture
def rerunnable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of which one has its policy; `OnnxAgent` is `Policy` here, for what is tested is what is made of its actions."""
    module = ModuleType("rao_leaderboard.onnx_agent")
    module.OnnxAgent = Policy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rao_leaderboard.onnx_agent", module)
    folder = make_sample(tmp_path, agent=Policy(b"s"), runs=2)
    with manifest(folder) as data:
        data["runs"][0]["artefact"]["onnx"] = "policies/run-0/policy.txt"
    return folder


def test_a_policy_that_does_the_same_again_earns_the_second_badge(rerunnable: Path) -> None:
    report = verify(rerunnable, rerun=True)
    assert report.ok, text_of(report)
    assert report.rerun == 1 and report.badges == ("replayed", "re-run 1 of 2 runs")
    assert verify(rerunnable).badges == ("replayed",)


def test_a_policy_that_acts_differently_is_caught(rerunnable: Path) -> None:
    """The actions come from elsewhere: replay alone cannot know."""
    evaluation = get_evaluation(rerunnable)
    seeds = [e.seed for e in evaluation.episodes]
    put_evaluation(rerunnable, rao_envs.evaluate(Policy(b"t"), "RAO/Maze-5x5-v0", seeds, progress=False, spawn=True))
    assert verify(rerunnable).ok
    report = verify(rerunnable, rerun=True)
    assert not report.ok and report.rerun == 0
    assert f"re-run of {PLACE}, episode 0 (seed {seeds[0]}): the policy acts differently from step 0 on" in text_of(report)


def test_a_file_that_is_no_policy_is_a_problem(rerunnable: Path) -> None:
    put_file(rerunnable, "policies/run-0/policy.txt", b"!")
    seeds = protocol.episode_seeds(run_digest(read_submission(rerunnable).submission.runs[0]), "RAO/Maze-5x5-v0")
    put_evaluation(rerunnable, rao_envs.evaluate(Policy(b"s"), "RAO/Maze-5x5-v0", seeds, progress=False, spawn=True))
    text = text_of(verify(rerunnable, rerun=True))
    assert text == rf"re-run of {PLACE}: no operator\x1b of this kind is allowed"


def test_without_onnxruntime_a_rerun_names_the_extra(rerunnable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rao_leaderboard.onnx_agent", None)
    assert verify(rerunnable).ok
    with pytest.raises(ImportError, match=r'a re-run needs onnxruntime: pip install "rao-envs\[onnx\]"'):
        verify(rerunnable, rerun=True)


# -- commands ------------------------------------------------------------------------------------------------

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
sys.argv = ["verify", *sys.argv[1:]]
import runpy
runpy.run_module({module!r}, run_name="__main__")
"""
HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "typer", "rich", "onnx", "onnxruntime", "yaml", "scipy", "matplotlib")


def command(module: str, *arguments: str | Path, blocked: tuple[str, ...] = HEAVY) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / name) for name in (".", "agents", "baselines", "leaderboard")]
    code = BLOCKED.format(blocked=set(blocked), module=module)
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.mark.parametrize("module", ["rao_leaderboard", "rao_baselines.cli"])
def test_the_command_needs_the_environments_alone(folder: Path, module: str) -> None:
    done = command(module, "verify", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sample: holds (400 episodes, ") and "open, RAO/Maze-5x5-v0: success " in done.stdout


def test_exit_codes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    assert main(["verify", str(folder), str(folder / "nowhere")]) == 1
    assert "nowhere: does not hold" in capsys.readouterr().out
    for wrong in ([], ["verify"], ["check"], ["verify", str(folder), "--fast"]):
        with pytest.raises(SystemExit) as stopped:
            main(wrong)
        assert stopped.value.code == 2


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with manifest(folder) as data:
        result_of(data)["success"] = 1.0
    assert main(["verify", "--json", str(folder)]) == 1
    (answer,) = json.loads(capsys.readouterr().out)
    assert not answer["ok"] and answer["rows"] == [] and answer["runs"] == 2
    (problem,) = answer["problems"]
    assert problem["place"] == f"{PLACE}, success" and problem["claimed"] == 1.0 and problem["found"] < 1.0


def test_rao_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = pytest.importorskip("rao_baselines.cli")
    pytest.importorskip("typer")
    for arguments, code, words in (
        (["verify", str(folder)], 0, "sample: holds"),
        (["verify", str(folder), str(folder / "nowhere")], 1, "nowhere: does not hold"),
        (["verify"], 2, ""),
    ):
        status: Any = 0
        try:
            cli.main(arguments)
        except SystemExit as stop:
            status = stop.code or 0
        assert status == code
        assert words in capsys.readouterr().out
