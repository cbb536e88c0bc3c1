"""Playing the protocol: every task of every run; what is finished is kept, so that the same command goes on where it was stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym

from rao_baselines.errors import StoppedError, UserError
from rao_baselines.evaluation import score
from rao_baselines.submitting.sources import Source
from rao_envs import Evaluation, __version__, registered_ids
from rao_envs.core.files import replacing
from rao_leaderboard import fingerprints, traces
from rao_leaderboard.claims import learned_on
from rao_leaderboard.folder import file_entry
from rao_leaderboard.protocol import OPTIONS, PROTOCOL, TASKS, Task, artefact_digest, episode_seeds

Report = Callable[[int, int], None]
"""Called with the finished episodes of a task and with all."""


class Played(NamedTuple):
    """A task that a run has played."""

    source: Source
    task: Task
    evaluation: Evaluation


class _StopRequestedError(Exception):
    pass


FAMILIES = tuple(dict.fromkeys(task.family for task in TASKS))


def choose_tasks(source: Source, tracks: Sequence[str], env_ids: Sequence[str], families: Sequence[str] = ()) -> list[Task]:
    """The tasks that a run plays: those of the tracks (and families), or those asked for, as far as they are of the run's own family.

    Those that a run was trained on are left out of the zero-shot track, unless they are asked for.

    Raises:
        UserError: a family that there is not, an id that the tracks do not have, or none that the run can play.
    """
    for family in families:
        if family.lower() not in map(str.lower, FAMILIES):
            raise UserError(f"there is no family {family!r}: {', '.join(FAMILIES)}")
    wanted = {family.lower() for family in families or FAMILIES}
    tasks = [task for task in TASKS if task.track in tracks and task.family.lower() in wanted]
    if "open" in tracks:
        tasks += [Task("open", "", env_id) for env_id in dict.fromkeys(env_ids)]
    known = {task.env_id for task in tasks}
    for env_id in env_ids:
        if env_id not in known:
            raise UserError(f"{env_id} is no task of {' or '.join(tracks)}, but these are: {', '.join(sorted(known))}")
        if env_id not in registered_ids():
            raise UserError(f"the leaderboard knows no {env_id}: see rao list")
    if env_ids:
        tasks = [task for task in tasks if task.env_id in env_ids]
    else:
        tasks = [task for task in tasks if task.track != "zero-shot" or not learned_on(source.trained_on, task.env_id)]
    if source.family is not None:
        tasks = [task for task in tasks if gym.spec(task.env_id).entry_point == source.family]
    if not tasks:
        raise UserError(
            f"the run {source.name} can play none of these tasks: it was trained on {', '.join(source.trained_on) or 'nothing'}"
        )
    return tasks


def check_environments(env_ids: Sequence[str]) -> None:
    """Whether the environments here are those of the leaderboard.

    Raises:
        UserError: one answers its golden trajectories differently.
    """
    for env_id in env_ids:
        found = fingerprints.differences(env_id, fingerprints.golden()[env_id])
        if found:
            raise UserError(f"this rao_envs was changed, so that its episodes are not those of the leaderboard: {found[0]}")


def digest_of(source: Source) -> str:
    """What the run's episodes are derived from."""
    return artefact_digest([(name, file_entry(name, content).sha256) for name, content in source.files.items()])


def play(source: Source, task: Task, *, deterministic: bool, kept: Path, report: Report, should_stop: Callable[[], bool]) -> Evaluation:
    """The run's episodes of one task: those kept in the folder `kept`, or new ones, which are kept then.

    Kept ones are of the same policy, settings, protocol, and version of the environment.

    Raises:
        StoppedError: `should_stop` said so; what is finished is kept.
        UserError: the agent does not fit, or fails.
    """
    digest = digest_of(source)
    seeds = episode_seeds(digest, task.env_id)
    conditions = [digest, source.settings, deterministic, PROTOCOL, __version__, fingerprints.known()[task.env_id]]
    key = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()
    file = kept / f"{digest[:16]}-{key[:16]}-{task.track}-{task.env_id.removeprefix('RAO/')}{traces.SUFFIX}"
    with contextlib.suppress(OSError, ValueError):
        found = traces.unpack(file.read_bytes())
        if tuple(episode.seed for episode in found.episodes) == seeds:
            return found

    def step(finished: int, total: int) -> None:
        report(finished, total)
        if should_stop():
            raise _StopRequestedError

    try:
        with source.open(task.env_id, {"deterministic": deterministic}) as loaded:
            kwargs = {"spawn": True} | {key: value for key, value in loaded.env_kwargs.items() if key in OPTIONS}
            if set(loaded.env_kwargs) - OPTIONS:
                raise UserError(f"{source.name} needs {loaded.env_kwargs}; the protocol plays the registered ids as they are")
            evaluation = score(
                loaded.agent,
                task.env_id,
                seeds,
                mode="greedy" if deterministic else "sampled",
                env_kwargs=kwargs,
                frame_stack=loaded.frame_stack,
                progress=step,
            )
    except _StopRequestedError:
        raise StoppedError("") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{source.name} cannot play {task.env_id}: {error}") from error
    kept.mkdir(parents=True, exist_ok=True)
    with replacing(file) as target:
        target.write(traces.pack(evaluation))
    return evaluation


def play_all(
    sources: Sequence[Source],
    tasks: dict[str, list[Task]],
    *,
    deterministic: bool,
    kept: Path,
    on_task: Callable[[Source, Task], Report],
    should_stop: Callable[[], bool],
) -> Iterator[Played]:
    """Every task of every run, one after the other."""
    for source in sources:
        for task in tasks[source.name]:
            report = on_task(source, task)
            yield Played(source, task, play(source, task, deterministic=deterministic, kept=kept, report=report, should_stop=should_stop))
