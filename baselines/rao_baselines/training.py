"""`train`: one run of one algorithm on one environment, with its learning curve, its files and exact resumption."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import torch as th
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecEnv

from rao_agents import ModelFileError, load_safely, save_safely
from rao_agents.mixed import mixed_vec_env
from rao_baselines.algorithms import Algorithm, find_algorithm
from rao_baselines.config import Settings, load_settings
from rao_baselines.distilling import Distillation
from rao_baselines.environments import (
    Task,
    carried_over,
    environment_arguments,
    is_recursive,
    make_training_env,
    parse_task,
    resolve_id,
    training_tasks,
)
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.evaluation import MODES, brief, evaluation_seeds, full, score
from rao_baselines.models import curriculum_callbacks, make_model, schedule_callbacks
from rao_baselines.provenance import provenance
from rao_baselines.runs import RunFolder, check_folder, read_json, write_json
from rao_baselines.spec import TrainSpec, check_spec, training_seed
from rao_envs import Evaluation

NEVER = 10**9
REPORT_SECONDS = 0.1
"""Progress is reported at most so often, new points of the curve always."""
CHECKPOINT_SECONDS = 60.0
"""A checkpoint is written at the first evaluation that comes this long after the last one."""


@dataclass
class Progress:
    """What a run reports while it is under way."""

    steps: int
    total: int
    point: dict[str, Any] | None  # the latest point of the curve


Report = Callable[[Progress], None]


def train(
    spec: TrainSpec,
    *,
    resume: bool = False,
    report: Report | None = None,
    should_stop: Callable[[], bool] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train, score, and leave the run's files behind. Returns what `result.json` holds.

    Args:
        spec: what to train.
        resume: go on from the folder's checkpoint; a finished run returns its result, after scoring its model on what `transfer` asks
            for and did not when it ran.
        report: called between rollouts, some times a second.
        should_stop: asked between rollouts; True saves a checkpoint and raises `StoppedError`.
        overwrite: allow a folder that already holds a run.

    Raises:
        UserError: settings that cannot be used, or a folder in use or without what resuming needs.
        StoppedError: stopped by `should_stop`; the message names the folder.
    """
    algorithm = find_algorithm(spec.algorithm)
    spec.env_id = resolve_id(spec.env_id)
    settings = load_settings(algorithm, spec.env_id, spec.overrides)
    total = check_spec(spec, settings)
    spawn = algorithm.spawn if settings.spawn is None else settings.spawn
    folder = RunFolder(spec.folder())
    config = {"spec": asdict(spec) | {"out": None}, "settings": settings.as_dict(), "spawn": spawn}
    scorer = _Scorer(spec, settings, spawn)
    scorer.check()
    stages = curriculum_callbacks(settings)
    if resume and folder.finished:
        _check_same(folder, config)
        return _score_further(spec, scorer, folder)
    _claim(folder, config, resume, overwrite)
    th.set_num_threads(spec.threads)
    rollouts = {} if spec.ray_workers is None else {"ray_workers": spec.ray_workers, "ray_address": spec.ray_address}
    env = make_training_env(spec.env_id, settings, spawn, training_seed(spec.seed), **rollouts)
    distillation = None
    try:
        model, past = _model(algorithm, spec, settings, env, folder, resume)
        distillation = Distillation.of(spec, settings, spawn, folder)
        if distillation is not None and past:
            distillation.load(int(model.num_timesteps))
        run = _Run(spec, settings, spawn, folder, total, report, should_stop, past, distillation)
        # The run first: what it saves is from before the distillation of the moment, which a resumed run makes again.
        last = [] if distillation is None else [distillation.callback]
        callbacks = CallbackList([*schedule_callbacks(settings, model), *stages, run, *last])
        if model.num_timesteps < total:
            options: dict[str, Any] = {
                "callback": callbacks,
                "reset_num_timesteps": not past,
                "log_interval": 1 if spec.tensorboard else NEVER,
            }
            if isinstance(model, MaskablePPO):
                options["use_masking"] = settings.use_masking and is_masking_supported(env)
            model.learn(total - model.num_timesteps, **options)
        return run.finish(model)
    finally:
        env.close()
        if distillation is not None:
            distillation.close()


def _claim(folder: RunFolder, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Make the folder ours: for a new run it holds none yet, for a resumed one it holds the same."""
    if resume:
        if not folder.config.is_file():
            raise UserError(f"{folder.path} holds no run to resume; leave --resume out to start one")
        _check_same(folder, config)
        check_folder(folder.path)
        return
    if folder.config.is_file() and not overwrite:
        state = "a finished run" if folder.finished else "an unfinished run"
        raise UserError(
            f"{folder.path} already holds {state}: pass --resume to go on with it, --overwrite to start again, or another --out"
        )
    check_folder(folder.path)
    for path in (folder.result, folder.curve, folder.model, folder.checkpoint, folder.student, *folder.distillations()):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder.rounds, ignore_errors=True)
    write_json(folder.config, config)


def _check_same(folder: RunFolder, config: dict[str, Any]) -> None:
    saved = read_json(folder.config)
    # What a setting was before there was one.
    saved = saved | {"settings": asdict(Settings()) | saved.get("settings", {})}
    differ = [
        f"{part}.{key}: {saved.get(part, {}).get(key)!r} there, {value!r} now"
        for part in ("spec", "settings")
        for key, value in config[part].items()
        # Where the run lives and how it is computed may change, and what a finished model is scored on.
        if key not in ("threads", "tensorboard", "transfer", "ray_workers", "ray_address") and saved.get(part, {}).get(key) != value
    ]
    if differ:
        raise UserError(f"the run in {folder.path} has other settings, so it cannot be resumed with these:\n  " + "\n  ".join(differ))


def _model(
    algorithm: Algorithm, spec: TrainSpec, settings: Settings, env: VecEnv, folder: RunFolder, resume: bool
) -> tuple[BaseAlgorithm, dict[str, Any]]:
    """A new model, or the checkpoint's; and what the run already had (empty for a new one)."""
    log = str(folder.path / "tensorboard") if spec.tensorboard else None
    if resume and folder.checkpoint.is_file():
        try:
            model: BaseAlgorithm = load_safely(folder.checkpoint, env, device=spec.device, force_reset=False, with_training_state=True)
        except ModelFileError as error:
            raise UserError(f"the run cannot be resumed: {error}; start it again with --overwrite") from error
        saved = read_json(folder.curve)
        return model, {
            "points": [point for point in saved["points"] if point["steps"] <= model.num_timesteps],
            "seconds": saved["seconds"],
        }
    return make_model(algorithm, settings, env, seed=training_seed(spec.seed), device=spec.device, log=log), {}


def _stages(model: BaseAlgorithm) -> list[dict[str, Any]]:
    """What a curriculum's evaluations found; empty without one."""
    mixed = mixed_vec_env(model.get_env())
    return [] if mixed is None else [dict(entry) for entry in mixed.notes.get("history", [])]


class _Scorer:
    """Scores a run's model, on what it trains on and elsewhere."""

    def __init__(self, spec: TrainSpec, settings: Settings, spawn: bool) -> None:
        self.spec, self.settings, self.spawn = spec, settings, spawn
        self.env_kwargs = environment_arguments(settings, spec.env_id, spawn)
        self.task = parse_task(spec.scored_on or spec.env_id)
        self.transfer = {text: parse_task(text) for text in spec.transfer}

    def check(self) -> None:
        """Look at every task before the training, not after hours of it.

        Raises:
            UserError: one that cannot be made, or whose actions or observations are not those of the training.
        """
        trained = _spaces(self.spec.env_id, self.env_kwargs)
        if self.settings.curriculum or self.settings.mixture:
            self._check_training_tasks(trained)
        for task in (self.task, *self.transfer.values()):
            found = _spaces(task.env_id, self.arguments(task))
            for what, ours, theirs in zip(("acts in", "sees"), trained, found, strict=True):
                if ours != theirs:
                    raise UserError(f"an agent trained on {self.spec.env_id} cannot be scored on {task.env_id}: it {what} {ours}")

    def _check_training_tasks(self, trained: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        if not is_recursive(self.spec.env_id):
            raise UserError(f"a curriculum or a mixture takes this suite's environments; {self.spec.env_id} is none")
        for env_id, own in training_tasks(self.settings)[0]:
            if _spaces(env_id, self.env_kwargs | own)[0] != trained[0]:
                raise UserError(f"an agent for {self.spec.env_id} cannot train on {env_id}: it acts in {trained[0]}")

    def arguments(self, task: Task) -> dict[str, Any]:
        """The keyword arguments that `task` is made with."""
        if task.kwargs is None:
            return self.env_kwargs if task.env_id == self.spec.env_id else carried_over(self.env_kwargs, task.env_id)
        if not is_recursive(task.env_id):
            return task.kwargs
        seen = {name: value for name, value in self.env_kwargs.items() if name == "observe_frame"}
        return task.kwargs | seen | {"spawn": self.spawn}

    def score(self, model: BaseAlgorithm, task: Task, episodes: int, mode: str) -> Evaluation:
        """`model` on `task`, over the fixed seeds."""
        kwargs = self.arguments(task)
        seeds = evaluation_seeds(episodes, self.spec.first_seed)
        stack, masks = self.settings.frame_stack, self.settings.use_masking
        return score(model, task.env_id, seeds, mode=mode, env_kwargs=kwargs, frame_stack=stack, use_masking=masks)

    def further(self, model: BaseAlgorithm, tasks: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The final model on `tasks`, some of those in the specification's `transfer`."""
        episodes = self.spec.transfer_episodes or self.spec.final_episodes
        return {text: {mode: full(self.score(model, self.transfer[text], episodes, mode)) for mode in MODES} for text in tasks}


def _spaces(env_id: str, kwargs: dict[str, Any]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Actions and observations of an environment."""
    try:
        env = gym.make(env_id, **kwargs)
    except (TypeError, ValueError) as error:
        raise UserError(f"{env_id} cannot be made with {kwargs}: {error}") from error
    env.close()
    return env.action_space, env.observation_space


def _score_further(spec: TrainSpec, scorer: _Scorer, folder: RunFolder) -> dict[str, Any]:
    """A finished run's result, with scores on the tasks that were asked for since; those name the commit that scored them."""
    result: dict[str, Any] = read_json(folder.result)
    missing = [text for text in spec.transfer if text not in result["transfer"]]
    if missing:
        try:
            model: BaseAlgorithm = load_safely(folder.model, device=spec.device)
        except ModelFileError as error:
            raise UserError(f"the finished run cannot be scored on more: {error}") from error
        result["transfer"] |= scorer.further(model, missing)
        commit = provenance(spec.threads)["commit"]
        result["scored_later"] = result.get("scored_later", {}) | dict.fromkeys(missing, commit)
        write_json(folder.result, result)
    return result


class _Run(BaseCallback):
    """Keeps the curve, the checkpoints and the clock. Acts between rollouts only, where a training state exists."""

    def __init__(
        self,
        spec: TrainSpec,
        settings: Settings,
        spawn: bool,
        folder: RunFolder,
        total: int,
        report: Report | None,
        should_stop: Callable[[], bool] | None,
        past: dict[str, Any],
        distillation: Distillation | None = None,
    ) -> None:
        super().__init__()
        self.distillation = distillation
        self.spec, self.settings, self.folder, self.total = spec, settings, folder, total
        self.report = report or (lambda progress: None)
        self.should_stop = should_stop or (lambda: False)
        self.eval_every = spec.eval_every or max(total // 20, 1)
        self.scorer = _Scorer(spec, settings, spawn)
        self.points: list[dict[str, Any]] = past.get("points", [])
        self.seconds: float = past.get("seconds", 0.0)  # of training alone: evaluation does not count
        self.spawn = spawn
        self.clock = time.perf_counter()
        self.saved_at = time.monotonic()
        self.reported_at = 0.0

    def _on_training_start(self) -> None:
        self.clock = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._stop_clock()
        steps = self.num_timesteps
        due = not self.points or steps >= self._next_point()
        if due:
            self._add_point(self.model)
        stop = self.should_stop()
        if stop or (due and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS):
            self._save_checkpoint()
        if stop:
            raise StoppedError(f"stopped at {steps:,} of {self.total:,} steps; everything is in {self.folder.path}")
        if due or time.monotonic() - self.reported_at > REPORT_SECONDS:
            self.report(Progress(steps, self.total, self.points[-1]))
            self.reported_at = time.monotonic()
        self.clock = time.perf_counter()

    def _stop_clock(self) -> None:
        now = time.perf_counter()
        self.seconds += now - self.clock
        self.clock = now

    def _next_point(self) -> int:
        """The first multiple of `eval_every` after the last point."""
        return int((self.points[-1]["steps"] // self.eval_every + 1) * self.eval_every)

    def _add_point(self, model: BaseAlgorithm) -> None:
        point: dict[str, Any] = {"steps": int(model.num_timesteps), "seconds": round(self.seconds, 3)}
        for mode in MODES:
            point[mode] = brief(self.scorer.score(model, self.scorer.task, self.spec.eval_episodes, mode))
        self.points.append(point)
        self._write_curve()

    def _write_curve(self) -> None:
        write_json(self.folder.curve, {"seconds": round(self.seconds, 3), "episodes": self.spec.eval_episodes, "points": self.points})

    def _save_checkpoint(self) -> None:
        self._write_curve()
        if self.distillation is not None:
            self.distillation.save(int(self.model.num_timesteps))
        save_safely(self.model, self.folder.checkpoint, with_training_state=True)
        if self.distillation is not None:
            self.distillation.keep_only(int(self.model.num_timesteps))
        self.saved_at = time.monotonic()

    def _scores(self, policy: Any) -> dict[str, Any]:
        """A policy's scores on the task of the final ones."""
        return {mode: full(self.scorer.score(policy, self.scorer.task, self.spec.final_episodes, mode)) for mode in MODES}

    def finish(self, model: BaseAlgorithm) -> dict[str, Any]:
        """The last point, the model file, the final scores and the result."""
        self._stop_clock()
        if not self.points or self.points[-1]["steps"] < model.num_timesteps:
            self._add_point(model)
        save_safely(model, self.folder.model)
        episodes = self.spec.final_episodes
        final = {mode: self.scorer.score(model, self.scorer.task, episodes, mode) for mode in MODES}
        for mode, evaluation in final.items():
            evaluation.save(self.folder.evaluation(mode))
        result = {
            "name": self.spec.name or self.spec.algorithm,
            "algorithm": self.spec.algorithm,
            "env_id": self.spec.env_id,
            "scored_on": self.spec.scored_on or self.spec.env_id,
            "seed": self.spec.seed,
            "steps": int(model.num_timesteps),
            "final": {mode: full(evaluation) for mode, evaluation in final.items()},
            "transfer": self.scorer.further(model, self.spec.transfer),
            "curve": self.points,
            "seeds": {"training": training_seed(self.spec.seed), "evaluation": [self.spec.first_seed, episodes]},
            "curriculum": _stages(model),
            "seconds": round(self.seconds, 1),
            "steps_per_second": round(model.num_timesteps / max(self.seconds, 1e-9), 1),
            "parameters": sum(p.numel() for p in model.policy.parameters()),
            "settings": self.settings.as_dict(),
            "spawn": self.spawn,
            **({} if self.distillation is None else {"distillation": self.distillation.finish(self._scores)}),
            **provenance(th.get_num_threads()),
        }
        write_json(self.folder.result, result)
        self.folder.checkpoint.unlink(missing_ok=True)
        if self.distillation is not None:
            self.distillation.keep_only(None)
        self.report(Progress(int(model.num_timesteps), self.total, self.points[-1]))
        return result
