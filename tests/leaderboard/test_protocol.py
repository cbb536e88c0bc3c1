"""Evaluation seeds follow from the policy, the environment and the protocol's version, and from nothing that anybody chooses."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rao_envs import registered_ids
from rao_leaderboard import protocol
from rao_leaderboard.protocol import EPISODES, TASKS, TRACKS, artefact_digest, episode_seeds

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
POLICY = "ab" * 32
MAZE = "RAO/Maze-20x20-v0"


def test_seeds_of_protocol_1_stay_what_they_are() -> None:
    assert protocol.PROTOCOL == 1
    assert episode_seeds(POLICY, MAZE, 4) == GOLDEN
    text = f"rao-leaderboard protocol=1 artefact={POLICY} env={MAZE} episode=0"
    assert GOLDEN[0] == int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


GOLDEN = (1362374203092482856, 2038446586657781441, 2506276293190295209, 9615947389839877574)


@given(DIGESTS, st.integers(1, 300))
def test_seeds_are_distinct_and_in_range(digest: str, count: int) -> None:
    seeds = episode_seeds(digest, MAZE, count)
    assert len(set(seeds)) == len(seeds) == count
    assert all(type(seed) is int and 0 <= seed < 2**64 for seed in seeds)
    assert episode_seeds(digest, MAZE, count + 5)[:count] == seeds


@given(DIGESTS, DIGESTS)
def test_seeds_depend_on_policy_environment_and_version(a: str, b: str) -> None:
    seeds = set(episode_seeds(a, MAZE))
    others = [episode_seeds(a, "RAO/Maze-40x40-v0"), episode_seeds(a, MAZE, protocol=2)] + ([episode_seeds(b, MAZE)] if a != b else [])
    assert not any(seeds & set(other) for other in others)


def test_a_seed_that_occurs_again_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow:
        def __init__(self, text: bytes) -> None:
            self.value = int(text.rpartition(b"=")[2]) // 3

        def digest(self) -> bytes:
            return self.value.to_bytes(8, "big")

    monkeypatch.setattr(hashlib, "sha256", Narrow)
    assert episode_seeds(POLICY, MAZE, 4) == (0, 1, 2, 3)


@pytest.mark.parametrize("digest", ["", "ab", "AB" * 32, "g" * 64, "ab" * 33, "ab" * 31 + "a\n"])
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        episode_seeds(digest, MAZE)


def test_a_policy_is_its_files_contents_whatever_they_are_called() -> None:
    one, two = "0" * 64, "1" * 64
    assert artefact_digest([("a", one), ("b", two)]) == artefact_digest([("y", two), ("x", one)])
    assert len({artefact_digest(files) for files in ([("a", one)], [("a", two)], [("a", one), ("b", one)], [("a", one), ("b", two)])}) == 4


def test_tasks_are_registered_each_once() -> None:
    places = [(task.track, task.env_id) for task in TASKS]
    assert len(set(places)) == len(places)
    assert {task.env_id for task in TASKS} <= set(registered_ids())
    assert {task.track for task in TASKS} == set(TRACKS) - {"open"}
    assert {task.family for task in TASKS if task.track == "zero-shot"} <= {task.family for task in TASKS if task.track == "standard"}
    assert EPISODES == 100
