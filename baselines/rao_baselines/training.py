"""`train`: one run of one algorithm on one environment, with its learning curve, its files and exact resumption."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch as th
from rao_agents import load_safely, save_safely
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecEnv

from rao_baselines.algorithms import Algorithm, find_algorithm
from rao_baselines.config import Settings, load_settings
from rao_baselines.environments import environment_arguments, make_training_env, resolve_id
from rao_baselines.errors import Interrupted, UserError
from rao_baselines.evaluation import evaluation_seeds, score
from rao_baselines.models import make_model, schedule_callbacks
from rao_baselines.provenance import provenance
from rao_baselines.runs import RunFolder, read_json, slug, write_json

CHECKPOINT_SECONDS = 60.0
"""A checkpoint is written at the first evaluation that comes this long after the last one."""


@dataclass
class TrainSpec:
    """What to train. Two equal specs give the same model, on the same machine and versions.

    Args:
        algorithm: name in `rao_baselines.algorithms`.
        env_id: environment id.
        seed: of everything; environment i starts from `seed * 1000 + i`.
        steps: environment steps; None takes the settings' `n_timesteps`.
        overrides: settings that replace those of the file; dotted keys reach into mappings.
        out: folder of the run; None gives runs/<env>/<algorithm>/<seed>.
        eval_every: steps between points of the learning curve; None gives a twentieth of the run.
        eval_episodes: fixed seeds per point, played greedily and sampled.
        final_episodes: fixed seeds of the final score.
        transfer: ids to score the final model on without training there.
        device: of the network.
        threads: that torch may use.
        tensorboard: also log there.
        name: what results call this; the algorithm's name by default.
    """

    algorithm: str
    env_id: str
    seed: int = 0
    steps: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    out: str | None = None
    eval_every: int | None = None
    eval_episodes: int = 100
    final_episodes: int = 200
    transfer: list[str] = field(default_factory=list)
    device: str = "cpu"
    threads: int = 1
    tensorboard: bool = False
    name: str | None = None

    def folder(self, root: Path = Path("runs")) -> Path:
        """Where the run's files go."""
        return Path(self.out) if self.out else root / slug(self.env_id) / (self.name or self.algorithm) / str(self.seed)


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
        resume: go on from the folder's checkpoint; a finished run returns its result at once.
        report: called about every rollout.
        should_stop: asked between rollouts; True saves a checkpoint and raises `Interrupted`.
        overwrite: allow a folder that already holds a run.

    Raises:
        UserError: settings that cannot be used, or a folder in use or without what resuming needs.
        Interrupted: stopped by `should_stop`; the message names the folder.
    """
    algorithm = find_algorithm(spec.algorithm)
    spec.env_id = resolve_id(spec.env_id)
    settings = load_settings(algorithm, spec.env_id, spec.overrides)
    total = check_spec(spec, settings)
    spawn = algorithm.spawn if settings.spawn is None else settings.spawn
    folder = RunFolder(spec.folder())
    config = {"spec": asdict(spec) | {"out": None}, "settings": settings.as_dict(), "spawn": spawn}
    if resume and folder.finished:
        _check_same(folder, config)
        finished: dict[str, Any] = read_json(folder.result)
        return finished
    _claim(folder, config, resume, overwrite)
    th.set_num_threads(spec.threads)
    env = make_training_env(spec.env_id, settings, spawn, seed=spec.seed * 1000)
    try:
        model, past = _model(algorithm, spec, settings, env, folder, resume)
        run = _Run(spec, settings, spawn, folder, total, report, should_stop, past)
        callbacks = CallbackList([*schedule_callbacks(settings, model), run])
        if model.num_timesteps < total:
            options: dict[str, Any] = {"callback": callbacks, "reset_num_timesteps": not past, "log_interval": 10**9}
            if isinstance(model, MaskablePPO):
                options["use_masking"] = is_masking_supported(env)
            model.learn(total - model.num_timesteps, **options)
        return run.finish(model)
    finally:
        env.close()


def check_spec(spec: TrainSpec, settings: Settings) -> int:
    """The number of steps to train for.

    Raises:
        UserError: a number out of range.
    """
    total = settings.n_timesteps if spec.steps is None else spec.steps
    for name, value in (("steps", total), ("eval_episodes", spec.eval_episodes), ("final_episodes", spec.final_episodes)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
    if spec.eval_every is not None and spec.eval_every < 1:
        raise UserError(f"eval_every must be at least 1, got {spec.eval_every}")
    if not 0 <= spec.seed < 2**31:
        raise UserError(f"seed must lie in [0, 2**31), got {spec.seed}")
    if spec.threads < 1:
        raise UserError(f"threads must be at least 1, got {spec.threads}")
    return total


def _claim(folder: RunFolder, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Make the folder ours: for a new run it holds none yet, for a resumed one it holds the same."""
    if resume:
        if not folder.config.is_file():
            raise UserError(f"{folder.path} holds no run to resume; leave --resume out to start one")
        _check_same(folder, config)
        return
    if folder.config.is_file() and not overwrite:
        state = "a finished run" if folder.finished else "an unfinished run"
        raise UserError(f"{folder.path} already holds {state}: pass --resume to go on with it, --overwrite to start again, or another --out")
    for path in (folder.result, folder.curve, folder.model, folder.checkpoint):
        path.unlink(missing_ok=True)
    write_json(folder.config, config)


def _check_same(folder: RunFolder, config: dict[str, Any]) -> None:
    saved = read_json(folder.config)
    differ = [
        f"{part}.{key}: {saved.get(part, {}).get(key)!r} there, {value!r} now"
        for part in ("spec", "settings")
        for key, value in config[part].items()
        # Where the run lives and how it is computed may change.
        if key not in ("threads", "tensorboard") and saved.get(part, {}).get(key) != value
    ]
    if differ:
        raise UserError(f"the run in {folder.path} has other settings, so it cannot be resumed with these:\n  " + "\n  ".join(differ))


def _model(
    algorithm: Algorithm, spec: TrainSpec, settings: Settings, env: VecEnv, folder: RunFolder, resume: bool
) -> tuple[BaseAlgorithm, dict[str, Any]]:
    """A new model, or the checkpoint's; and what the run already had (empty for a new one)."""
    log = str(folder.path / "tensorboard") if spec.tensorboard else None
    if resume and folder.checkpoint.is_file():
        model: BaseAlgorithm = load_safely(folder.checkpoint, env, device=spec.device, force_reset=False, with_training_state=True)
        saved = read_json(folder.curve)
        return model, {
            "points": [point for point in saved["points"] if point["steps"] <= model.num_timesteps],
            "seconds": saved["seconds"],
        }
    return make_model(algorithm, settings, env, seed=spec.seed, device=spec.device, log=log), {}


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
    ) -> None:
        super().__init__()
        self.spec, self.settings, self.folder, self.total = spec, settings, folder, total
        self.report = report or (lambda progress: None)
        self.should_stop = should_stop or (lambda: False)
        self.eval_every = spec.eval_every or max(total // 20, 1)
        self.env_kwargs = environment_arguments(settings, spec.env_id, spawn)
        self.points: list[dict[str, Any]] = past.get("points", [])
        self.seconds: float = past.get("seconds", 0.0)  # of training alone: evaluation does not count
        self.spawn = spawn
        self.clock = time.perf_counter()
        self.saved_at = time.monotonic()

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
            raise Interrupted(f"stopped at {steps:,} of {self.total:,} steps; everything is in {self.folder.path}")
        self.report(Progress(steps, self.total, self.points[-1]))
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
        seeds = evaluation_seeds(self.spec.eval_episodes)
        for mode in ("greedy", "sampled"):
            point[mode] = self._score(model, self.spec.env_id, seeds, mode)
        self.points.append(point)
        self._write_curve()

    def _score(self, model: BaseAlgorithm, env_id: str, seeds: list[int], mode: str) -> dict[str, Any]:
        return score(
            model,
            env_id,
            seeds,
            deterministic=mode == "greedy",
            env_kwargs=self.env_kwargs,
            frame_stack=self.settings.frame_stack,
        )

    def _write_curve(self) -> None:
        write_json(self.folder.curve, {"seconds": round(self.seconds, 3), "episodes": self.spec.eval_episodes, "points": self.points})

    def _save_checkpoint(self) -> None:
        self._write_curve()
        save_safely(self.model, self.folder.checkpoint, with_training_state=True)
        self.saved_at = time.monotonic()

    def finish(self, model: BaseAlgorithm) -> dict[str, Any]:
        """The last point, the model file, the final scores and the result."""
        self._stop_clock()
        if not self.points or self.points[-1]["steps"] < model.num_timesteps:
            self._add_point(model)
        save_safely(model, self.folder.model)
        seeds = evaluation_seeds(self.spec.final_episodes)
        modes = ("greedy", "sampled")
        result = {
            "name": self.spec.name or self.spec.algorithm,
            "algorithm": self.spec.algorithm,
            "env_id": self.spec.env_id,
            "seed": self.spec.seed,
            "steps": int(model.num_timesteps),
            "final": {mode: self._score(model, self.spec.env_id, seeds, mode) for mode in modes},
            "transfer": {
                env_id: {mode: self._score(model, resolve_id(env_id), seeds, mode) for mode in modes} for env_id in self.spec.transfer
            },
            "curve": self.points,
            "seeds": {"training": self.spec.seed * 1000, "evaluation": [seeds[0], seeds[-1] + 1]},
            "seconds": round(self.seconds, 1),
            "steps_per_second": round(model.num_timesteps / max(self.seconds, 1e-9), 1),
            "parameters": sum(p.numel() for p in model.policy.parameters()),
            "settings": self.settings.as_dict(),
            "spawn": self.spawn,
            **provenance(th.get_num_threads()),
        }
        write_json(self.folder.result, result)
        self.folder.checkpoint.unlink(missing_ok=True)
        self.report(Progress(int(model.num_timesteps), self.total, self.points[-1]))
        return result
