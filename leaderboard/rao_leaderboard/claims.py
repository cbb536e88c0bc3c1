"""What a manifest claims, held against the protocol: everything that can be said before an episode is replayed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import rao_envs
from rao_envs import registered_ids
from rao_leaderboard import fingerprints
from rao_leaderboard.protocol import BUDGET_SLACK, EPISODES, PROTOCOL, STANDARD_BUDGET, TASKS, artefact_digest
from rao_leaderboard.reading import Problem
from rao_leaderboard.schema import Result, Run, Submission

PACKAGE = "rao-envs"
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}(?:(?:a|b|rc|\.post|\.dev)[0-9]+)*(?:\+[a-z0-9.]{1,40})?", re.ASCII)


def place_of(run: Run, result: Result | None = None) -> str:
    """How problems name a run, or its result on a task."""
    return f"run {run.name}" if result is None else f"run {run.name}, {result.track}, {result.env_id}"


def run_digest(run: Run) -> str:
    """What the run's episodes are derived from."""
    return artefact_digest([(file.path, file.sha256) for file in run.artefact.files])


def playable(result: Result) -> bool:
    """Whether its episodes can be replayed here, in the number the protocol asks for."""
    return result.env_id in fingerprints.known() and result.env_id in registered_ids() and result.episodes == EPISODES


def learned_on(trained_on: Iterable[str], env_id: str) -> bool:
    """Whether an environment, in whatever version, is among those that a run says it was trained on."""
    name = env_id.rpartition("-v")[0]
    return any(name in text for text in trained_on)


def claims(submission: Submission) -> Iterator[Problem]:
    """Everything that is wrong with the manifest as such."""
    yield from _environments(submission)
    version = submission.software.packages.get(PACKAGE)
    if version is None:
        yield Problem("software.packages", f"does not say which version of {PACKAGE} was used")
    elif not _VERSION.fullmatch(version):
        yield Problem("software.packages", f"{version!r:.60} is no version of {PACKAGE}")
    names: set[str] = set()
    policies: dict[str, str] = {}
    for run in submission.runs:
        if run.name in names:
            yield Problem(place_of(run), "there are two runs of this name")
        names.add(run.name)
        digest = run_digest(run)
        if digest in policies:
            yield Problem(place_of(run), f"its policy is that of run {policies[digest]}: it would be counted twice")
        policies[digest] = run.name
        yield from _run(run)
        yield from _results(run, submission.agent.kind)


def _environments(submission: Submission) -> Iterator[Problem]:
    known = fingerprints.known()
    played = {result.env_id for run in submission.runs for result in run.results}
    for env_id in sorted(played | set(submission.environments)):
        stated = submission.environments.get(env_id)
        if env_id not in known or env_id not in registered_ids():
            yield Problem(env_id, f"is not an environment of rao_envs {rao_envs.__version__}")
        elif stated is None:
            yield Problem("environments", f"lacks the fingerprint of {env_id}")
        elif env_id not in played:
            yield Problem("environments", f"names {env_id}, which no run has played")
        elif stated != known[env_id]:
            yield Problem(
                env_id,
                f"it was made on another version of {env_id}: its fingerprint is {stated[:12]}..., "
                f"that of rao_envs {rao_envs.__version__} {known[env_id][:12]}...",
                stated,
                known[env_id],
            )


def _run(run: Run) -> Iterator[Problem]:
    if run.artefact.onnx is not None and run.artefact.onnx not in {file.path for file in run.artefact.files}:
        yield Problem(place_of(run), f"{run.artefact.onnx} is not one of the policy's files")
    steps = [point.steps for point in run.curve]
    if steps != sorted(set(steps)) or (steps and steps[-1] > run.training_steps):
        yield Problem(place_of(run), f"the steps of its curve must rise, up to its {run.training_steps} training steps at most")


def _results(run: Run, kind: str) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for result in run.results:
        place = place_of(run, result)
        if (result.track, result.env_id) in seen:
            yield Problem(place, "there are two results of this task")
        seen.add((result.track, result.env_id))
        if result.track != "open":
            yield from _task(run, result, place)
        if result.episodes != EPISODES:
            text = f"has {result.episodes} episodes; protocol {PROTOCOL} asks for {EPISODES}"
            yield Problem(place, text, result.episodes, EPISODES)
        if kind == "monolithic" and result.env_kwargs.get("spawn", True):
            yield Problem(place, "a monolithic agent acts with spawn=false")


def _task(run: Run, result: Result, place: str) -> Iterator[Problem]:
    """What the standard and the zero-shot track ask for."""
    allowed = [task.env_id for task in TASKS if task.track == result.track]
    if result.env_id not in allowed:
        yield Problem(place, f"is no task of this track, which has {', '.join(allowed)}")
    if run.training_steps > STANDARD_BUDGET * BUDGET_SLACK:
        yield Problem(place, f"{run.training_steps} training steps are more than the track's {STANDARD_BUDGET}: it belongs to the open one")
    if result.track == "zero-shot" and learned_on(run.trained_on, result.env_id):
        yield Problem(place, "it was trained on this task, which the zero-shot track excludes")
