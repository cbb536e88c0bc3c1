"""The one table of registered environments: id, family, keyword arguments. Adding a size is adding a line."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym


class Entry(NamedTuple):
    """One registered id `RAO/<name>-v<version>`."""

    name: str
    version: int
    family: str  # "<folder>.<Family>": rao_envs/<folder>/env.py holds `<Family>Env` and `<Family>VectorEnv`
    kwargs: dict[str, Any]


TABLE = (
    Entry("Maze-5x5", 0, "maze.Maze", {"rows": 5, "cols": 5}),
    Entry("Maze-10x10", 0, "maze.Maze", {"rows": 10, "cols": 10}),
    Entry("Maze-20x20", 0, "maze.Maze", {"rows": 20, "cols": 20}),
    Entry("Maze-40x40", 0, "maze.Maze", {"rows": 40, "cols": 40}),
    Entry("Maze-80x80", 0, "maze.Maze", {"rows": 80, "cols": 80}),
    Entry("Maze", 0, "maze.Maze", {}),
    Entry("LongSeq-1k", 0, "longseq.LongSeq", {"length": 1_000}),
    Entry("LongSeq-10k", 0, "longseq.LongSeq", {"length": 10_000}),
    Entry("LongSeq-100k", 0, "longseq.LongSeq", {"length": 100_000}),
    Entry("LongSeq-1M", 0, "longseq.LongSeq", {"length": 1_000_000}),
    Entry("LongSeq", 0, "longseq.LongSeq", {}),
    Entry("LongSeq-cloze", 0, "cloze.Cloze", {"split": "train"}),
    Entry("LongSeq-cloze-test", 0, "cloze.Cloze", {"split": "test"}),
    Entry("Algebra-depth2", 0, "algebra.Algebra", {"depth": 2}),
    Entry("Algebra-depth4", 0, "algebra.Algebra", {"depth": 4}),
    Entry("Algebra-depth8", 0, "algebra.Algebra", {"depth": 8}),
    Entry("Algebra-depth12", 0, "algebra.Algebra", {"depth": 12}),
    Entry("Algebra", 0, "algebra.Algebra", {}),
    Entry("Rewrite", 0, "rewrite.Rewrite", {}),
    Entry("LongSeq-nested-320", 0, "nested.Nested", {"length": 320}),
    Entry("LongSeq-nested-3k", 0, "nested.Nested", {"length": 3200}),
    Entry("LongSeq-nested-32k", 0, "nested.Nested", {"length": 32000}),
    Entry("LongSeq-nested", 0, "nested.Nested", {}),
    Entry("Dialogue-5turn", 0, "dialogue.Dialogue", {"turns": 5, "domains": 2}),
    Entry("Dialogue-10turn", 0, "dialogue.Dialogue", {"turns": 10, "domains": 3}),
    Entry("Dialogue-20turn", 0, "dialogue.Dialogue", {"turns": 20, "domains": (5, 6), "cities": 2}),
    Entry("Dialogue-40turn", 0, "dialogue.Dialogue", {"turns": 40, "domains": (9, 12), "cities": (3, 4)}),
    Entry("Dialogue", 0, "dialogue.Dialogue", {}),
    Entry("Relay-down", 0, "relay.Relay", {"direction": "down"}),
    Entry("Relay-up", 0, "relay.Relay", {"direction": "up"}),
    Entry("Relay-siblings", 0, "relay.Relay", {"direction": "siblings"}),
    Entry("Relay-chain", 0, "relay.Relay", {"direction": "down", "levels": 4}),
    Entry("Relay", 0, "relay.Relay", {}),
)


def register_all() -> None:
    """Register every entry with Gymnasium; an id already there (a reloaded module) is left alone."""
    for entry in TABLE:
        identity = f"RAO/{entry.name}-v{entry.version}"
        if identity not in gym.registry:
            folder, _, family = entry.family.partition(".")
            entry_point = f"rao_envs.{folder}.env:{family}"
            gym.register(
                id=identity, entry_point=f"{entry_point}Env", vector_entry_point=f"{entry_point}VectorEnv", kwargs=dict(entry.kwargs)
            )


def registered_ids() -> tuple[str, ...]:
    """Every versioned id of this package, in the table's order."""
    return tuple(f"RAO/{entry.name}-v{entry.version}" for entry in TABLE)
