"""Drift: every registered environment still answers as it did when its golden trajectories were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rao_envs import registered_ids
from rao_envs.core.arenas import BatchArena
from rao_leaderboard import fingerprints
from rao_leaderboard.fingerprints import EVERY, SEEDS, differences, fingerprint, golden, known, main, record
from tests.leaderboard import solved

MAZE = "RAO/Maze-5x5-v0"


@pytest.mark.parametrize("env_id", sorted(golden()))
def test_no_environment_has_changed(env_id: str) -> None:
    """If this fails: see "When the golden trajectories differ" in CONTRIBUTING.md."""
    assert differences(env_id, golden()[env_id]) == []


@pytest.mark.parametrize("env_id", sorted(solved.kept()))
def test_no_success_has_changed(env_id: str) -> None:
    """Golden trajectories are of drawn actions, most of which lead nowhere: what success takes and pays is looked at here."""
    entries = solved.kept()[env_id]
    assert entries and all(entry["outcome"][0] is True for entry in entries)
    for entry in entries:
        assert solved.answers(env_id, entry) == {"digest": entry["digest"], "outcome": entry["outcome"]}


def test_every_registered_id_has_a_solved_episode() -> None:
    assert sorted(solved.kept()) == sorted(registered_ids()), "add new ids with: python -m tests.leaderboard.solved"


@pytest.mark.parametrize("env_id", sorted(golden()))
def test_another_reward_of_success_fails_loudly(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchArena.step

    def step(arena: BatchArena, slots: Any, actions: Any) -> Any:
        rewards, done = real(arena, slots, actions)
        return np.where(done & arena.batch.stack.episodes["success"][slots].astype(bool), rewards + 1e-9, rewards), done

    entry = min((e for e in solved.kept()[env_id]), key=lambda e: len(e["actions"]))
    monkeypatch.setattr(BatchArena, "step", step)
    assert solved.answers(env_id, entry)["digest"] != entry["digest"]


def test_every_registered_id_has_golden_trajectories() -> None:
    assert sorted(golden()) == sorted(registered_ids()), "add new ids with: python -m rao_leaderboard.fingerprints --write"


def test_an_entry_says_enough_to_notice_a_change() -> None:
    for env_id, entry in golden().items():
        assert [(kept["spawn"], kept["seed"]) for kept in entry] == [(spawn, seed) for spawn in (True, False) for seed in SEEDS], env_id
        assert all(len(kept["actions"]) > 0 and len(kept["digests"]) >= 2 for kept in entry), env_id
        # Some first observations are the same whatever the seed; what comes after is not.
        ends = [kept["digests"][-1] for kept in entry if kept["spawn"]]
        assert len(set(ends)) == len(ends), f"{env_id}: two trajectories look the same"


def test_recording_anew_gives_the_same() -> None:
    assert record(MAZE) == golden()[MAZE]


def test_a_fingerprint_is_of_the_content_alone() -> None:
    entry = golden()[MAZE]
    again = [dict(reversed(list(kept.items()))) for kept in json.loads(json.dumps(entry))]
    assert fingerprint(again) == known()[MAZE] and len(known()[MAZE]) == 64
    again[0]["actions"][0] += 1
    assert fingerprint(again) != known()[MAZE]


def test_ids_share_a_fingerprint_only_where_they_are_the_same_environment() -> None:
    """`RAO/Maze-v0` is `RAO/Maze-20x20-v0` by default, and so on: one for each family that has such an id."""
    ids: dict[str, list[str]] = {}
    for env_id, digest in known().items():
        ids.setdefault(digest, []).append(env_id)
    for same in (found for found in ids.values() if len(found) > 1):
        assert len(same) == 2 and any(gym.spec(env_id).kwargs == {} for env_id in same), same


# -- a change is noticed, and placed -------------------------------------------------------------------------

STEP = 30


def other_reward(arena: BatchArena, slots: Any, actions: Any, real: Callable[..., Any]) -> Any:
    rewards, done = real(arena, slots, actions)
    return np.nextafter(rewards, 1.0) if arena.count == STEP else rewards, done  # type: ignore[attr-defined]


def other_end(arena: BatchArena, slots: Any, actions: Any, real: Callable[..., Any]) -> Any:
    rewards, done = real(arena, slots, actions)
    return rewards, done | (arena.count == STEP)  # type: ignore[attr-defined]


def other_move(arena: BatchArena, slots: Any, actions: Any, real: Callable[..., Any]) -> Any:
    return real(arena, slots, (actions + 1) % 4 if arena.count == STEP else actions)  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [other_reward, other_end, other_move])
def test_changed_dynamics_fail_loudly(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    real = BatchArena.step

    def step(arena: BatchArena, slots: Any, actions: Any) -> Any:
        arena.count = getattr(arena, "count", 0) + 1  # type: ignore[attr-defined]
        return change(arena, slots, actions, real)

    monkeypatch.setattr(BatchArena, "step", step)
    found = differences(MAZE, golden()[MAZE])
    assert f"{MAZE}, spawn=True, seed 0: it differs by step {2 * EVERY}" in found


def flipped(observation: dict[str, Any]) -> dict[str, Any]:
    task = observation["task"].copy()
    task.flat[-1] = ~task.flat[-1] if task.dtype.kind in "iu" else np.nextafter(task.flat[-1], 2)
    return {**observation, "task": task}


def wider(observation: dict[str, Any]) -> dict[str, Any]:
    return {**observation, "call": observation["call"].astype(np.float64)}


def renamed(observation: dict[str, Any]) -> dict[str, Any]:
    return {("outcome" if key == "results" else key): value for key, value in observation.items()}


@pytest.mark.parametrize("change", [flipped, wider, renamed])
def test_changed_observations_fail_loudly(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    real = BatchArena.observe

    def observe(arena: BatchArena, slots: Any) -> Any:
        observation, masks = real(arena, slots)
        return change(observation), masks

    monkeypatch.setattr(BatchArena, "observe", observe)
    assert f"{MAZE}, spawn=True, seed 0: it differs by step 0" in differences(MAZE, golden()[MAZE])


def test_changed_masks_fail_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchArena.observe
    monkeypatch.setattr(BatchArena, "observe", lambda arena, slots: (real(arena, slots)[0], ~real(arena, slots)[1]))
    assert len(differences(MAZE, golden()[MAZE])) == 2 * len(SEEDS)


def test_changed_generation_fails_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchArena.begin
    monkeypatch.setattr(BatchArena, "begin", lambda arena, slots, seeds: real(arena, slots, [seed ^ 2 for seed in seeds]))
    assert len(differences(MAZE, golden()[MAZE])) == 2 * len(SEEDS)


def test_a_changed_outcome_fails_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchArena.outcome
    monkeypatch.setattr(BatchArena, "outcome", lambda arena, slot, steps: (out := real(arena, slot, steps))._replace(nodes=out.nodes + 1))
    assert differences(MAZE, golden()[MAZE])


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if there were one environment, whose file lies elsewhere."""
    monkeypatch.setattr(fingerprints, "golden", lambda: {MAZE: _golden[MAZE]})
    monkeypatch.setattr(fingerprints, "registered_ids", lambda: (MAZE, "RAO/Algebra-depth2-v0"))
    monkeypatch.setattr(fingerprints, "__file__", str(tmp_path / "fingerprints.py"))
    return tmp_path / fingerprints.GOLDEN


_golden = golden()


def test_the_command_names_what_is_missing_and_adds_it(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "RAO/Algebra-depth2-v0: there are no golden trajectories of it; add them with --write" in capsys.readouterr().out
    assert not few.exists()
    assert main(["--write"]) == 0
    written = json.loads(few.read_text())
    assert list(written) == ["RAO/Algebra-depth2-v0", MAZE]
    assert {env_id: fingerprint(entry) for env_id, entry in written.items()} == {env_id: known()[env_id] for env_id in written}


def test_writing_never_replaces_an_entry(few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = BatchArena.begin
    monkeypatch.setattr(BatchArena, "begin", lambda arena, slots, seeds: real(arena, slots, [seed ^ 2 for seed in seeds]))
    assert main(["--write"]) == 1
    assert f"{MAZE}, spawn=True, seed 0: it differs by step 0" in capsys.readouterr().out
    assert json.loads(few.read_text())[MAZE] == _golden[MAZE]
