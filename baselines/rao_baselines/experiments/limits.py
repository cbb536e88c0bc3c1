"""Where recursion is not expected to help: small tasks, which need none, and questions that do not decompose."""

from __future__ import annotations

from typing import Any, NamedTuple

from rao_baselines.experiments.experiment import Experiment, Suite

SEEDS = 3


def _pair(
    name: str, env_id: str, overrides: dict[str, Any], scored_on: str, recursive_steps: int, monolithic_steps: int
) -> tuple[Experiment, Experiment]:
    """The recursive agent and the monolithic one with dense feedback, on the same tasks, each with its own settings."""
    return (
        Experiment(f"recursive_ppo_{name}", "RecursivePPO", name, "recursive_ppo", env_id, SEEDS, recursive_steps, overrides, scored_on),
        Experiment(
            f"maskable_ppo_{name}", "MaskablePPO, dense", name, "maskable_ppo", env_id, SEEDS, monolithic_steps, overrides, scored_on
        ),
    )


def _sequences(name: str, query: str, length: list[int], scored_length: int) -> tuple[Experiment, Experiment]:
    overrides = {"env_kwargs.length": length, "env_kwargs.query": query}
    return _pair(name, "RAO/LongSeq-v0", overrides, f"RAO/LongSeq-v0?length={scored_length}&query={query}", 200_000, 200_000)


LIMITS = Suite(
    "The limits: recursive against monolithic on tasks too small to need recursion, and on questions that do not decompose.",
    (
        *_pair("maze_5x5", "RAO/Maze-5x5-v0", {}, "", 100_000, 100_000),
        *_pair("algebra_depth_2", "RAO/Algebra-v0", {"env_kwargs.depth": [1, 2]}, "RAO/Algebra-v0?depth=2", 150_000, 150_000),
        *_sequences("one_window", "count", [16, 1_000], 1_000),
        *_sequences("topk", "topk", [200, 10_000], 10_000),
        *_sequences("majority", "majority", [200, 10_000], 10_000),
    ),
    {
        "maze_5x5": "Maze-5x5",
        "algebra_depth_2": "Algebra, depth 2",
        "one_window": "1,000 records, count",
        "topk": "10,000 records, the three largest",
        "majority": "10,000 records, majority",
    },
    prefix="limits",
)


class Limit(NamedTuple):
    """A comparison that recursion is not expected to win, or need not."""

    why: str
    label: str
    suite: str
    recursive: str  # name of the row
    monolithic: str
    task: str  # what both were scored on


SMALL = "small: one frame is enough"
WHOLE = "does not decompose"
MISLEADING = "the parts mislead"
FITS = "the window holds it"
CARRIED = "one note carries it"


def _structure(name: str, why: str, label: str) -> Limit:
    return Limit(why, label, "maze", f"recursive_ppo_{name}", f"maskable_ppo_dense_{name}", "RAO/Maze-20x20-v0")


def _own(name: str, why: str, label: str) -> Limit:
    row = next(row for row in LIMITS.rows if row.group == name)
    return Limit(why, label, "limits", f"recursive_ppo_{name}", f"maskable_ppo_{name}", row.task)


def _window(window: int) -> Limit:
    rows = f"recursive_ppo_window_{window}", f"maskable_ppo_window_{window}"
    return Limit(FITS, f"dialogue of 10 turns, window of {window} acts", "dialogue", *rows, "RAO/Dialogue-10turn-v0?")


COMPARED = (
    _own("maze_5x5", SMALL, "maze of 5x5 cells, one block"),
    _own("algebra_depth_2", SMALL, "algebra of depth 2"),
    _own("one_window", SMALL, "count in 1,000 records, which fit one window"),
    _window(16),
    _window(27),
    Limit(CARRIED, "needle in 10,000 records", "longseq", "recursive_ppo", "maskable_ppo_dense", "RAO/LongSeq-10k-v0?query=needle"),
    _structure("open", MISLEADING, "open field of 20x20 cells"),
    _structure("rooms", MISLEADING, "rooms that ignore the blocks, 20x20"),
    _structure("perfect", MISLEADING, "one spanning tree, 20x20"),
    _own("topk", CARRIED, "the three largest of 10,000 records"),
    _own("majority", WHOLE, "majority of 10,000 records"),
)
"""In the order of the table."""
