"""Tuning with Optuna: seeded, in parallel processes, resumable, every trial kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.environments import is_recursive
from rao_baselines.errors import UserError
from rao_baselines.pool import Event, run_all
from rao_baselines.provenance import provenance
from rao_baselines.runs import check_file, read_json, write_json
from rao_baselines.search_spaces import Range, describe, space_for, suggest
from rao_baselines.spec import FIRST_SEED, TrainSpec

TUNING_SEED = FIRST_SEED + 2**20
"""Trials are scored on tasks of their own: nothing is selected on those of the published scores."""
STARTUP = 8
"""Random trials before the sampler's model is used."""
POINTS = 5
"""Points of each trial's curve; pruning looks at them."""


@dataclass
class TuneSpec:
    """What to tune.

    Args:
        algorithm: its name.
        env_id: resolved environment id.
        trials: how many; the first is the settings as they are.
        steps: environment steps of each.
        seed: of the sampler; trial n trains with the seed `seed`, so that only settings differ.
        fixed: settings that every trial has, taken out of the search.
        jobs: trials at a time. Each batch is sampled before any of it is known, so the result depends on it.
        prune: stop trials that are below the median of the others at the same step.
        episodes: fixed seeds of a trial's score.
    """

    algorithm: str
    env_id: str
    trials: int
    steps: int
    seed: int = 0
    fixed: dict[str, Any] = field(default_factory=dict)
    jobs: int = 1
    prune: bool = False
    episodes: int = 200

    def check(self) -> None:
        """Raises UserError for a number out of range."""
        for name in ("trials", "steps", "jobs", "episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")

    def key(self) -> dict[str, Any]:
        """What must agree for a study to be gone on with; more trials may be asked for."""
        return {name: getattr(self, name) for name in ("algorithm", "env_id", "steps", "seed", "fixed", "jobs", "prune", "episodes")}


def tune(
    spec: TuneSpec,
    path: Path,
    work: Path,
    on_event: Callable[[int, Event], None] = lambda number, event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run the study, going on with the one in `path` if there is one; `path` is written after every batch of trials.

    Args:
        spec: the study.
        path: its file.
        work: folder for the trials' runs.
        on_event: told what happens to which trial.
        should_stop: asked often; True lets running trials save and starts no more.

    Returns:
        What the file holds: all trials and the best.

    Raises:
        UserError: numbers out of range, another study's file, or not one trial that worked.
    """
    spec.check()
    check_file(path)
    algorithm = find_algorithm(spec.algorithm)
    settings = load_settings(algorithm, spec.env_id, spec.fixed)
    space = space_for(algorithm, settings, spec.fixed, is_recursive(spec.env_id))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(STARTUP) if spec.prune else optuna.pruners.NopPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner)
    records = _load(path, spec)
    for record in records:
        study.add_trial(_frozen(record, space))
    while len(records) < spec.trials and not should_stop():
        batch = range(len(records), min(len(records) + spec.jobs, spec.trials))
        trials, specs = [], []
        for number in batch:
            # A sampler of its own per trial: a study gone on with draws what one uninterrupted would.
            study.sampler = optuna.samplers.TPESampler(seed=_mixed(spec.seed, number), n_startup_trials=STARTUP)
            trial = study.ask()
            overrides = suggest(trial, space, settings) if number else {}
            trials.append(trial)
            specs.append(_train_spec(spec, number, overrides, work))
        done = _run(trials, specs, spec, on_event, should_stop)
        if len(done) < len(trials):
            break  # interrupted: what was not finished runs again from its checkpoint
        for trial, record in zip(trials, done, strict=True):
            study.tell(trial, record["value"], state=TrialState[record["state"]])
            records.append(record | {"params": trial.params})
        _write(path, spec, space, records)
    return _write(path, spec, space, records)


def _mixed(seed: int, number: int) -> int:
    return (seed * 1_000_003 + number) % 2**32


def _train_spec(spec: TuneSpec, number: int, overrides: Mapping[str, Any], work: Path) -> TrainSpec:
    return TrainSpec(
        algorithm=spec.algorithm,
        env_id=spec.env_id,
        seed=spec.seed,
        steps=spec.steps,
        overrides={**spec.fixed, **overrides},
        out=str(work / f"trial-{number}"),
        eval_every=max(spec.steps // POINTS, 1),
        eval_episodes=min(spec.episodes, 100),
        final_episodes=spec.episodes,
        first_seed=TUNING_SEED,
        name=f"{spec.algorithm}-trial-{number}",
    )


def _run(
    trials: list[Trial],
    specs: list[TrainSpec],
    spec: TuneSpec,
    on_event: Callable[[int, Event], None],
    should_stop: Callable[[], bool],
) -> list[dict[str, Any]]:
    """One batch, as records in the order of the trials; shorter if it was interrupted."""
    pruned: set[int] = set()
    seen: dict[int, int] = dict.fromkeys(range(len(trials)), -1)
    last: dict[int, float] = {}
    failures: dict[int, str] = {}

    def note(event: Event) -> bool:
        index = event.run
        on_event(trials[index].number, event)
        if event.kind == "failed":
            # The rest of a traceback names folders of this machine.
            failures[index] = str(event.data["error"]).strip().rpartition("\n")[2]
        point = event.data.get("point")
        if event.kind != "progress" or point is None or point["steps"] <= seen[index]:
            return False
        seen[index] = point["steps"]
        last[index] = value_of(point["sampled"])
        step = point["steps"] // max(spec.steps // POINTS, 1)
        trials[index].report(last[index], step)
        if spec.prune and step > 0 and trials[index].number > 0 and trials[index].should_prune():
            pruned.add(index)
            return True
        return False

    outcome = run_all(specs, spec.jobs, note, should_stop)
    records = []
    for index, (trial, run) in enumerate(zip(trials, specs, strict=True)):
        record: dict[str, Any] = {"number": trial.number, "overrides": run.overrides, "state": "FAIL", "value": None}
        if index in outcome["done"]:
            result = read_json(run.folder() / "result.json")
            record |= {
                "state": "COMPLETE",
                "value": value_of(result["final"]["sampled"]),
                "greedy": value_of(result["final"]["greedy"]),
                "curve": [[p["steps"], value_of(p["sampled"]), value_of(p["greedy"])] for p in result["curve"]],
                "seconds": result["seconds"],
            }
        elif index in pruned:
            record |= {"state": "PRUNED", "value": last[index]}
        elif index in failures:
            record |= {"error": failures[index]}
        else:
            return []
        records.append(record)
    return records


def value_of(scores: Mapping[str, Any]) -> float:
    """What is maximised: success, or the return where an environment does not report success."""
    value = scores["success"]
    return float(scores["return"] if value is None else value)


def _load(path: Path, spec: TuneSpec) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    saved = read_json(path)
    if saved.get("study") != spec.key():
        raise UserError(f"{path} holds another study ({saved.get('study')}): name another file with --out")
    records: list[dict[str, Any]] = saved["trials"]
    return records


def _frozen(record: Mapping[str, Any], space: Mapping[str, Range]) -> FrozenTrial:
    """A recorded trial as Optuna keeps it, without settings that are no longer searched."""
    params = {name: value for name, value in record["params"].items() if name in space}
    trial = optuna.trial.FixedTrial(params)
    if params:
        for name, found in space.items():
            found.suggest(trial, name)
    reported = {i: row[1] for i, row in enumerate(record.get("curve", []))}
    value = record["value"] if record["state"] != "FAIL" else None
    return optuna.trial.create_trial(
        state=TrialState[record["state"]],
        value=value,
        params=params,
        distributions=trial.distributions,
        intermediate_values=reported,
    )


def _write(path: Path, spec: TuneSpec, space: Mapping[str, Range], records: list[dict[str, Any]]) -> dict[str, Any]:
    complete = [record for record in records if record["state"] == "COMPLETE"]
    best = max(complete, key=lambda record: (record["value"], record["greedy"], -record["number"])) if complete else None
    study = {
        "study": spec.key(),
        "scored_on": {"first_seed": TUNING_SEED, "episodes": spec.episodes, "value": "success, actions sampled"},
        "search_space": describe(space),
        "best": None if best is None else {key: best[key] for key in ("number", "overrides", "value", "greedy")},
        "trials": records,
        **provenance(1),
    }
    write_json(path, study)
    if best is None and len(records) >= spec.trials:
        reason = records[-1].get("error", "they were all pruned")
        raise UserError(f"not one of the {len(records)} trials worked; the last one: {reason}")
    return study
