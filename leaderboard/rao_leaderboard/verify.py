"""`rao verify`: recompute the seeds, replay every action, recompute every number, and name every difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rao_envs
from rao_envs import Episode, Evaluation
from rao_leaderboard import fingerprints, traces
from rao_leaderboard.protocol import (
    BUDGET_SLACK,
    EPISODES,
    PROTOCOL,
    STANDARD_BUDGET,
    TASKS,
    artefact_digest,
    episode_seeds,
)
from rao_leaderboard.reading import MAX_FAULTS, BrokenSubmissionError, Loaded, Problem, quoted, read_submission
from rao_leaderboard.schema import Result, Run, Submission
from rao_leaderboard.scores import numbers

MAX_STEPS = 200_000_000
"""Of all traces of a submission together."""

RETURNS = 1e-9
"""How far a sum of rewards may be off, as a share of it: the last digits of a sum are no claim."""

FIELDS = ("seed", "success", "return_", "steps", "nodes", "deepest", "spawns", "critical_path")
Progress = Callable[[int, int], None]
"""Called with the results that were checked and with their number."""


@dataclass
class Report:
    """What was found.

    Attributes:
        name: of the submission, or of its folder.
        problems: everything that is wrong; empty if the submission holds.
        submission: None where it could not be read.
        episodes, steps: that were replayed.
        seconds: that this took.
        rerun: runs whose policy, acting anew, gave the same traces; None if that was not asked for.
    """

    name: str
    problems: list[Problem] = field(default_factory=list)
    submission: Submission | None = None
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    rerun: int | None = None

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        return {
            "name": self.name,
            "ok": self.ok,
            "problems": [str(problem) for problem in self.problems],
            "runs": 0 if self.submission is None else len(self.submission.runs),
            "rerun": self.rerun,
            "episodes": self.episodes,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
        }


def verify(path: str | Path, *, rerun: bool = False, progress: Progress | None = None) -> Report:
    """Check a submission's folder; nothing in it is unpickled or executed.

    Args:
        path: the folder.
        rerun: also let the ONNX policies act, and compare what they do; needs the extra "onnx".
        progress: told how far it is.

    Returns:
        The report. A folder that is no submission gives a report with problems, not an error.

    Raises:
        ImportError: a re-run was asked for, and onnxruntime is missing.
    """
    report = Report(quoted(Path(path).name))
    started = time.perf_counter()
    try:
        loaded = read_submission(path)
    except BrokenSubmissionError as error:
        report.problems = error.problems
        return report
    report.name, report.submission = loaded.submission.name, loaded.submission
    report.problems += _claims(loaded.submission)
    if not report.problems:
        _replay(loaded, report, progress)
    if rerun and report.ok:
        report.rerun = 0
        for run in loaded.submission.runs:
            if run.artefact.onnx is not None:
                differences = list(_rerun(loaded, run))
                report.problems += differences
                report.rerun += not differences
    report.problems = report.problems[:MAX_FAULTS]
    report.seconds = time.perf_counter() - started
    return report


# -- what the manifest says ----------------------------------------------------------------------------------


def _claims(submission: Submission) -> Iterator[Problem]:
    """What is wrong with the manifest as such."""
    known = fingerprints.known()
    played = {result.env_id for run in submission.runs for result in run.results}
    for env_id in sorted(played | set(submission.environments)):
        if env_id not in known:
            yield Problem(env_id, f"is not an environment of rao_envs {rao_envs.__version__}")
        elif env_id not in submission.environments:
            yield Problem("environments", f"lacks the fingerprint of {env_id}")
        elif env_id not in played:
            yield Problem("environments", f"names {env_id}, which no run has played")
        elif submission.environments[env_id] != known[env_id]:
            yield Problem(env_id, "was another environment when this was made: its fingerprint is not the one of this version")
    if "rao-envs" not in submission.software.packages:
        yield Problem("software.packages", "does not say which version of rao-envs was used")
    names: set[str] = set()
    artefacts: dict[str, str] = {}
    for run in submission.runs:
        place = f"run {run.name}"
        if run.name in names:
            yield Problem(place, "there are two runs of this name")
        names.add(run.name)
        digest = run_digest(run)
        if digest in artefacts:
            yield Problem(place, f"its policy is that of run {artefacts[digest]}: it would be counted twice")
        artefacts[digest] = run.name
        yield from _claims_of(run, submission, place)


def _claims_of(run: Run, submission: Submission, place: str) -> Iterator[Problem]:
    if run.artefact.onnx is not None and run.artefact.onnx not in {file.path for file in run.artefact.files}:
        yield Problem(place, f"{run.artefact.onnx} is not one of the policy's files")
    steps = [point.steps for point in run.curve]
    if steps != sorted(set(steps)) or (steps and steps[-1] > run.training_steps):
        yield Problem(place, "the steps of its curve must rise, up to its training steps at most")
    tasks = {(task.track, task.env_id) for task in TASKS}
    seen: set[tuple[str, str]] = set()
    for result in run.results:
        where = f"{place}, {result.track}, {result.env_id}"
        if (result.track, result.env_id) in seen:
            yield Problem(where, "there are two results of this task")
        seen.add((result.track, result.env_id))
        if result.track != "open":
            if (result.track, result.env_id) not in tasks:
                allowed = ", ".join(task.env_id for task in TASKS if task.track == result.track)
                yield Problem(where, f"is no task of this track, which has {allowed}")
            if run.training_steps > STANDARD_BUDGET * BUDGET_SLACK:
                yield Problem(
                    where, f"{run.training_steps} training steps are more than the track's {STANDARD_BUDGET}: it belongs to the open one"
                )
        if result.track == "zero-shot" and any(
            result.env_id in text or result.env_id.rpartition("-v")[0] in text for text in run.trained_on
        ):
            yield Problem(where, "it was trained on this task, which the zero-shot track excludes")
        if result.episodes != EPISODES:
            yield Problem(where, f"has {result.episodes} episodes; protocol {PROTOCOL} asks for {EPISODES}")
        if submission.agent.kind == "monolithic" and result.env_kwargs.get("spawn", True):
            yield Problem(where, "a monolithic agent acts with spawn=False")


def run_digest(run: Run) -> str:
    """What the run's episodes are derived from."""
    return artefact_digest([(file.path, file.sha256) for file in run.artefact.files])


# -- what the traces say -------------------------------------------------------------------------------------


def _replay(loaded: Loaded, report: Report, progress: Progress | None) -> None:
    """Replay every trace; adds to the report."""
    pairs = [(run, result) for run in loaded.submission.runs for result in run.results]
    for k, (run, result) in enumerate(pairs):
        if progress is not None:
            progress(k, len(pairs))
        place = f"run {run.name}, {result.track}, {result.env_id}"
        try:
            evaluation = traces.unpack(loaded.files[result.trace.path])
        except ValueError as error:
            report.problems.append(Problem(place, f"{result.trace.path} is no trace: {quoted(error)}"))
            continue
        report.episodes += len(evaluation.episodes)
        report.steps += sum(episode.steps for episode in evaluation.episodes)
        if report.steps > MAX_STEPS:
            report.problems.append(Problem("", f"its episodes have more than {MAX_STEPS} steps together"))
            return
        report.problems += [Problem(place, text) for text in _differences(run, result, evaluation)]
    if progress is not None:
        progress(len(pairs), len(pairs))


def _differences(run: Run, result: Result, evaluation: Evaluation) -> Iterator[str]:
    """Every difference between what is claimed of one task and what comes out."""
    stated = {"env_id": result.env_id, "env_kwargs": dict(result.env_kwargs), "deterministic": run.deterministic}
    for name, value in stated.items():
        if getattr(evaluation, name) != value:
            yield f"the trace has {name} {quoted(getattr(evaluation, name))}, the manifest {quoted(value)}"
    seeds = episode_seeds(run_digest(run), result.env_id, result.episodes)
    if len(evaluation.episodes) != len(seeds):
        yield f"the trace has {len(evaluation.episodes)} episodes, the manifest says {result.episodes}"
        return
    wrong = [k for k, (episode, seed) in enumerate(zip(evaluation.episodes, seeds, strict=True)) if episode.seed != seed]
    if wrong:
        k = wrong[0]
        yield (
            f"episode {k}, seed: {evaluation.episodes[k].seed} is not what follows from the policy's files ({seeds[k]}): "
            "seeds cannot be chosen"
        )
        return
    try:
        replayed = _acted(evaluation, result)
    except ValueError as error:
        yield quoted(error)
        return
    for k, (claimed, found) in enumerate(zip(evaluation.episodes, replayed, strict=True)):
        yield from (f"episode {k} (seed {claimed.seed}), {text}" for text in _fields(claimed, found))
    true = numbers(evaluation)._replace()
    for name, value in true._asdict().items():
        given = getattr(result, name)
        if abs(given - value) > RETURNS * max(1.0, abs(value)):
            yield f"{name}: {given!r} is claimed, {value!r} follows from the episodes"


def _acted(evaluation: Evaluation, result: Result) -> tuple[Episode, ...]:
    """The episodes, played again."""
    recorded = {episode.seed: episode.actions for episode in evaluation.episodes}
    return rao_envs.replay_all(result.env_id, recorded, batch_size=len(recorded), **result.env_kwargs)


def _fields(claimed: Episode, found: Episode) -> Iterator[str]:
    for name in FIELDS:
        a, b = getattr(claimed, name), getattr(found, name)
        same = abs(a - b) <= RETURNS * max(1.0, abs(b)) if name == "return_" else a == b and type(a) is type(b)
        if not same:
            yield f"{name.rstrip('_')}: {a!r} is claimed, {b!r} comes out"


def _rerun(loaded: Loaded, run: Run) -> Iterator[Problem]:
    """Let the run's ONNX policy act on every task again, and compare its actions with the traces."""
    from rao_leaderboard.onnx_agent import OnnxAgent, OnnxModelError

    assert run.artefact.onnx is not None
    for result in run.results:
        place = f"re-run of run {run.name}, {result.track}, {result.env_id}"
        try:
            agent = OnnxAgent(loaded.files[run.artefact.onnx])
            claimed = traces.unpack(loaded.files[result.trace.path]).episodes
            seeds = [episode.seed for episode in claimed]
            found = rao_envs.evaluate(
                agent, result.env_id, seeds, deterministic=run.deterministic, progress=False, **result.env_kwargs
            ).episodes
        except (OnnxModelError, ValueError, TypeError) as error:
            yield Problem(place, quoted(error))
            continue
        for k, (a, b) in enumerate(zip(claimed, found, strict=True)):
            if a.actions.tolist() != b.actions.tolist():
                pairs = zip(a.actions.tolist(), b.actions.tolist(), strict=False)
                step = next((s for s, (x, y) in enumerate(pairs) if x != y), min(a.steps, b.steps))
                yield Problem(place, f"episode {k} (seed {a.seed}): the policy acts differently from step {step} on")
