"""Trips planned without learning: what the context allows, and what could be reached with no limit to it.

`RecursiveSolver`, `ParallelSolver` and `WindowSolver` act from a frame's observation alone (`rao_envs.dialogue.scripted`). `BeliefTracker`
forgets nothing and knows the databases, `Oracle` knows the wishes as well (`rao_envs.dialogue.tracker`): both act in `full_context`.

`python -m rao_envs.dialogue.reference` prints what they reach.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rao_envs.core.actors import RandomAgent
from rao_envs.core.episodes import Interval
from rao_envs.core.evaluate import evaluate
from rao_envs.dialogue.scripted import MonolithicSolver, ParallelSolver, RecursiveSolver, WindowSolver
from rao_envs.dialogue.tracker import BeliefTracker, FullContext, Oracle, full_context

__all__ = [
    "BeliefTracker",
    "FullContext",
    "MonolithicSolver",
    "Oracle",
    "ParallelSolver",
    "RecursiveSolver",
    "WindowSolver",
    "full_context",
    "random_agent",
    "score",
]

random_agent = RandomAgent()
"""Takes any allowed action, each equally likely."""

IDS = tuple(f"RAO/Dialogue-{turns}turn-v0" for turns in (5, 10, 20, 40))
FIRST_SEED = 1_000_000
"""Of the tables' episodes: rules and thresholds of the agents were chosen on seeds below 5,000, so that these are new to them."""
WINDOWS = (4, 6, 8, 10, 12, 16, 27)
DEPENDENCIES = (0.0, 0.6, 1.0)


def score(name: str, env_id: str, episodes: int, **kwargs: Any) -> dict[str, Interval | None]:
    """The summary of an agent's episodes of the seeds from `FIRST_SEED` on.

    Args:
        name: "recursive", "parallel", "window", "random", "tracker" or "oracle".
        env_id: of the environment.
        episodes: how many.
        **kwargs: the environment's.
    """
    seeds = range(FIRST_SEED, FIRST_SEED + episodes)
    if name in ("tracker", "oracle"):
        planner = (BeliefTracker if name == "tracker" else Oracle)(**kwargs)
        return evaluate(planner, full_context, seeds, progress=False, task=env_id, **kwargs).summary()
    if name == "random":
        return evaluate(random_agent, env_id, seeds, batch_size=512, progress=False, **kwargs).summary()
    solver = {"recursive": RecursiveSolver, "parallel": ParallelSolver, "window": WindowSolver}[name](**kwargs)
    return evaluate(solver, env_id, seeds, batch_size=512, progress=False, spawn=name != "window", **kwargs).summary()


def _success(summary: dict[str, Interval | None]) -> str:
    """The share of successes with its 95 % Wilson interval: 0.912 [0.899, 0.924]."""
    success = summary["success"]
    return "-" if success is None else f"{success.mean:.3f} [{success.low:.3f}, {success.high:.3f}]"


def _mean(summary: dict[str, Interval | None], name: str) -> float:
    interval = summary[name]
    return float("nan") if interval is None else interval.mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the three tables of docs/environments/dialogue.md, in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m rao_envs.dialogue.reference", description=main.__doc__)
    parser.add_argument("--episodes", type=int, default=2000, metavar="N", help="episodes of each scripted agent (default 2000)")
    parser.add_argument("--planned", type=int, default=200, metavar="N", help="episodes of the tracker and the oracle (default 200)")
    options = parser.parse_args(arguments)

    def show(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    show(f"Success [95 % Wilson interval] of {options.episodes} episodes, of tracker and oracle {options.planned}")
    show(f"(seeds from {FIRST_SEED:,} on)\n")
    show("| id | random | window | recursive | parallel | tracker (full context) | oracle |\n|---|---|---|---|---|---|---|")
    for env_id in IDS:
        cells = [_success(score(name, env_id, options.episodes)) for name in ("random", "window", "recursive", "parallel")]
        cells += [_success(score(name, env_id, options.planned)) for name in ("tracker", "oracle")]
        show(f"| `{env_id}` | {' | '.join(cells)} |")
    show(f"\nSuccess against the window, {IDS[1]}\n")
    show("| window | window solver | recursive | recursive less window solver |\n|---|---|---|---|")
    for window in WINDOWS:
        alone, recursive = (score(name, IDS[1], options.episodes, window=window) for name in ("window", "recursive"))
        gap = _mean(recursive, "success") - _mean(alone, "success")
        show(f"| {window} | {_success(alone)} | {_success(recursive)} | {gap:+.3f} |")
    show("\nSteps over the critical path when all that waits for nothing is spawned at once (parallel), by dependency\n")
    show("| id | dependency | success | steps | critical path | ratio |\n|---|---|---|---|---|---|")
    for env_id in (IDS[1], IDS[2]):
        for dependency in DEPENDENCIES:
            summary = score("parallel", env_id, options.episodes, dependency=dependency)
            steps, path = _mean(summary, "steps"), _mean(summary, "critical_path")
            show(f"| `{env_id}` | {dependency:g} | {_success(summary)} | {steps:.1f} | {path:.1f} | {steps / path:.2f} |")


if __name__ == "__main__":
    main()
