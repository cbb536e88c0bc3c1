"""Replaying what a submission recorded, and naming every difference by episode and field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from rao_envs import Episode, Evaluation
from rao_envs.core.actors import Moment, TraceActor
from rao_envs.core.arenas import make_arena
from rao_envs.core.evaluate import run as play
from rao_leaderboard.claims import PACKAGE, place_of, run_digest
from rao_leaderboard.protocol import episode_seeds
from rao_leaderboard.reading import Problem, quoted
from rao_leaderboard.schema import Result, Run, Submission
from rao_leaderboard.scores import numbers

RETURNS = 1e-9
"""How far a sum of rewards may be off, as a share of it: the last digits of a sum are no claim. Everything else is exact."""

MAX_TEXT = 200


def differences(submission: Submission, run: Run, result: Result, evaluation: Evaluation) -> Iterator[Problem]:
    """Every difference between what is claimed of one task and what comes out.

    Args:
        submission: of which this is a part.
        run: likewise.
        result: likewise; it can be replayed (`rao_leaderboard.claims.playable`).
        evaluation: the content of its trace.
    """
    place = place_of(run, result)
    version = submission.software.packages.get(PACKAGE, "")
    stated: list[tuple[str, bool | str, bool | str]] = [
        ("env_id", evaluation.env_id, result.env_id),
        ("deterministic", evaluation.deterministic, run.deterministic),
        *([("version", evaluation.version, version)] if version else []),
    ]
    for name, value, wanted in stated:
        if value != wanted:
            yield Problem(f"{place}, {name}", f"the trace says {quoted(value)}, the manifest {quoted(wanted)}", quoted(value), wanted)
    kwargs = evaluation.env_kwargs
    if not all(isinstance(value, bool) for value in kwargs.values()) or kwargs != dict(result.env_kwargs):
        yield Problem(f"{place}, env_kwargs", f"the trace says {_short(kwargs)}, the manifest {dict(result.env_kwargs)}")
    if len(evaluation.agent) > MAX_TEXT or not evaluation.agent.isprintable():
        yield Problem(f"{place}, agent", f"must be at most {MAX_TEXT} printable characters, got {quoted(evaluation.agent)}")
    seeds = episode_seeds(run_digest(run), result.env_id, result.episodes)
    if len(evaluation.episodes) != len(seeds):
        text = f"the trace has {len(evaluation.episodes)}, the manifest says {result.episodes}"
        yield Problem(f"{place}, episodes", text, len(evaluation.episodes), result.episodes)
        return
    wrong = [k for k, (episode, seed) in enumerate(zip(evaluation.episodes, seeds, strict=True)) if episode.seed != seed]
    for k in wrong[:1]:
        claimed = evaluation.episodes[k].seed
        text = f"{claimed} is not what follows from the policy's files ({seeds[k]}), and no seed can be chosen"
        more = f"; the same holds of {len(wrong) - 1} more episodes" if len(wrong) > 1 else ""
        yield Problem(f"{place}, episode {k}, seed", text + more, claimed, seeds[k])
    arena = make_arena(result.env_id, len(seeds), dict(result.env_kwargs.items()))
    try:
        if evaluation.n_actions != arena.n_actions:
            text = f"{evaluation.n_actions} is claimed, the environment has {arena.n_actions}"
            yield Problem(f"{place}, n_actions", text, evaluation.n_actions, arena.n_actions)
        elif not wrong:
            actor = _PaddedTraces({episode.seed: episode.actions for episode in evaluation.episodes})
            yield from _episodes(place, evaluation.episodes, play(arena, actor, seeds))
    finally:
        arena.close()
    yield from _means(place, result, evaluation)


class _PaddedTraces(TraceActor):
    """Goes on with action 0 where a trace is too short, so that all others are still compared."""

    def __init__(self, traces: Mapping[int, npt.NDArray[np.int64]]) -> None:
        super().__init__(traces)
        self.recorded = self.lengths

    def act(self, now: Moment) -> npt.NDArray[np.int64]:
        """The next recorded actions, or 0 where there is none."""
        for k in np.flatnonzero(now.steps == 0):
            self.rows_of_slots[now.slots[k]] = self.row[int(now.seeds[k])]
        rows = self.rows_of_slots[now.slots]
        there = now.steps < self.recorded[rows]
        actions: npt.NDArray[np.int64] = self.actions[np.where(there, self.starts[rows] + now.steps, 0)]
        return np.where(there, actions, 0)


def _episodes(place: str, claimed: tuple[Episode, ...], found: tuple[Episode, ...]) -> Iterator[Problem]:
    fields = ("success", "return_", "steps", "nodes", "deepest", "spawns", "critical_path")
    for k, (a, b) in enumerate(zip(claimed, found, strict=True)):
        where = f"{place}, episode {k} (seed {a.seed})"
        if b.steps > a.steps:  # what came out is of actions that nobody took
            yield Problem(f"{where}, actions", f"the episode is not over after the {a.steps} that are recorded", a.steps)
            continue
        for name in fields:
            x, y = getattr(a, name), getattr(b, name)
            if abs(x - y) > RETURNS * max(1.0, abs(y)) if name == "return_" else x != y or type(x) is not type(y):
                yield Problem(f"{where}, {name.rstrip('_')}", f"{x!r} is claimed, {y!r} comes out", x, y)


def _means(place: str, result: Result, evaluation: Evaluation) -> Iterator[Problem]:
    """The episodes themselves are compared already: what the manifest says of them must follow, to the last digit."""
    for name, value in numbers(evaluation)._asdict().items():
        given = getattr(result, name)
        if given != value:
            yield Problem(f"{place}, {name}", f"{given!r} is claimed, {value!r} follows from the episodes", given, value)


def _short(kwargs: Mapping[str, object]) -> str:
    plain = len(kwargs) <= 8 and all(isinstance(value, (bool, int, float, str)) for value in kwargs.values())
    return quoted(dict(kwargs)) if plain else f"an object of {len(kwargs)} entries"
