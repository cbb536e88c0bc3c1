"""The protocol: which tasks count, how many episodes of them, and which ones. The page in words is leaderboard/PROTOCOL.md."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

PROTOCOL: Final = 1
"""Version of the protocol; part of what evaluation seeds are derived from. Any change of tasks, counts or scores is a new one."""

TRACKS = ("standard", "zero-shot", "open")
STANDARD_BUDGET = 1_000_000
"""Environment steps that training a run of the standard and the zero-shot track may take. A rollout that was begun may be finished."""

BUDGET_SLACK = 1.01
RUNS = 5
"""Training runs, each with its own seed and policy, of a row that is ranked; rows of fewer are shown below the ranked ones."""

EPISODES = 100
"""Episodes of each run on each task."""

THRESHOLD = 0.9
"""Success, on the run's own learning curve, that "training steps to threshold" waits for."""

OPTIONS = frozenset({"spawn", "observe_frame"})
"""Keyword arguments an agent may choose, both true or false: whether it may spawn, and whether it sees which frame acts."""


class Task(NamedTuple):
    """What a result is of."""

    track: str
    family: str
    env_id: str


TASKS = (
    Task("standard", "Maze", "RAO/Maze-20x20-v0"),
    Task("standard", "Algebra", "RAO/Algebra-depth8-v0"),
    Task("standard", "LongSeq", "RAO/LongSeq-10k-v0"),
    Task("standard", "Nested", "RAO/LongSeq-nested-320-v0"),
    Task("standard", "Dialogue", "RAO/Dialogue-10turn-v0"),
    Task("zero-shot", "Maze", "RAO/Maze-40x40-v0"),
    Task("zero-shot", "Maze", "RAO/Maze-80x80-v0"),
    Task("zero-shot", "Algebra", "RAO/Algebra-depth12-v0"),
    Task("zero-shot", "LongSeq", "RAO/LongSeq-100k-v0"),
    Task("zero-shot", "LongSeq", "RAO/LongSeq-1M-v0"),
    Task("zero-shot", "Nested", "RAO/LongSeq-nested-3k-v0"),
    Task("zero-shot", "Dialogue", "RAO/Dialogue-20turn-v0"),
    Task("zero-shot", "Dialogue", "RAO/Dialogue-40turn-v0"),
)
"""The tasks of the standard and of the zero-shot track. The open track takes every registered id."""


def episode_seeds(artefact: str, env_id: str, count: int = EPISODES, protocol: int = PROTOCOL) -> tuple[int, ...]:
    """The seeds on which a policy is scored: nobody chooses them, and another policy has others.

    Args:
        artefact: the policy's digest, `artefact_digest` of its files: 64 hexadecimal digits.
        env_id: the versioned id.
        count: how many, at least 1.
        protocol: its version.

    Returns:
        Distinct integers in [0, 2**64): the first eight bytes (big-endian) of
        SHA-256("rao-leaderboard protocol=P artefact=A env=E episode=K") for K = 0, 1, ...; one that occurred already is left out.

    Raises:
        ValueError: the digest is not one.
    """
    if len(artefact) != 64 or not set(artefact) <= set("0123456789abcdef"):
        raise ValueError(f"an artefact's digest is 64 hexadecimal digits, got {artefact!r:.80}")
    seeds: dict[int, None] = {}
    k = 0
    while len(seeds) < count:
        text = f"rao-leaderboard protocol={protocol} artefact={artefact} env={env_id} episode={k}"
        seeds[int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")] = None
        k += 1
    return tuple(seeds)


def artefact_digest(files: Sequence[tuple[str, str]]) -> str:
    """The digest of a policy's files, each a path and its SHA-256: what its episodes depend on. Paths do not count, only contents."""
    return hashlib.sha256(json.dumps(sorted(digest for _, digest in files), separators=(",", ":")).encode()).hexdigest()
