"""What a training run is asked to do, as plain data: importable without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rao_baselines.config import Settings
from rao_baselines.errors import UserError
from rao_baselines.runs import slug

MAX_SEED = 1_000_000
"""Seeds of runs are below this, so that those of their generators stay below 2**32, all that NumPy's old ones take."""
MAX_ENVS = 4096
FIRST_SEED = 2**32
"""The evaluation's tasks are those of the seeds from here on. Training uses seeds below."""


def training_seed(seed: int) -> int:
    """Where a run's generators start. Its environments take the numbers from there on, so runs keep a distance."""
    return MAX_ENVS * seed


@dataclass
class TrainSpec:
    """What to train. Two equal specs give the same model, on the same machine and versions.

    Args:
        algorithm: name in `rao_baselines.algorithms`.
        env_id: environment id.
        seed: of everything; environment i starts from `training_seed(seed) + i`.
        steps: environment steps; None takes the settings' `n_timesteps`.
        overrides: settings that replace those of the file; dotted keys reach into mappings.
        out: folder of the run; None gives runs/<env>/<algorithm>/<seed>.
        eval_every: steps between points of the learning curve; None gives a twentieth of the run.
        eval_episodes: fixed seeds per point, played greedily and sampled.
        final_episodes: fixed seeds of the final score.
        first_seed: where the fixed seeds begin; tuning has a list of its own, so that nothing is selected on the tasks of the final scores.
        scored_on: the task of the curve and the final score (`rao_baselines.environments.parse_task`); by default the training's own.
        transfer: further tasks to score the final model on, without training there.
        transfer_episodes: fixed seeds of those scores; None takes `final_episodes`.
        device: of the network.
        threads: that torch may use.
        tensorboard: also log there.
        ray_workers: processes of a Ray cluster that share the training's environments; None keeps them in the run's own.
        ray_address: of that cluster; None starts one on this machine.
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
    first_seed: int = FIRST_SEED
    scored_on: str = ""
    transfer: list[str] = field(default_factory=list)
    transfer_episodes: int | None = None
    device: str = "cpu"
    threads: int = 1
    tensorboard: bool = False
    ray_workers: int | None = None
    ray_address: str | None = None
    name: str | None = None

    def folder(self, root: Path = Path("runs")) -> Path:
        """Where the run's files go."""
        return Path(self.out) if self.out else root / slug(self.env_id) / (self.name or self.algorithm) / str(self.seed)


def check_spec(spec: TrainSpec, settings: Settings) -> int:
    """The number of steps to train for.

    Raises:
        UserError: a number out of range.
    """
    if spec.name is not None and (spec.name != Path(spec.name).name or spec.name in (".", "..")):
        raise UserError(f"a run's name is one folder's name, got {spec.name!r}; --out names any folder")
    total = settings.n_timesteps if spec.steps is None else spec.steps
    for name, value in (("steps", total), ("eval_episodes", spec.eval_episodes), ("final_episodes", spec.final_episodes)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
    for name, optional in (("eval_every", spec.eval_every), ("transfer_episodes", spec.transfer_episodes)):
        if optional is not None and optional < 1:
            raise UserError(f"{name} must be at least 1, got {optional}")
    if not 0 <= spec.seed < MAX_SEED:
        raise UserError(f"seed must lie in [0, {MAX_SEED:,}), got {spec.seed}")
    if settings.n_envs > MAX_ENVS:
        raise UserError(f"n_envs must be at most {MAX_ENVS:,}, got {settings.n_envs}")
    if not FIRST_SEED <= spec.first_seed < 2**63:
        raise UserError(f"first_seed must lie in [2**32, 2**63), got {spec.first_seed}")
    if spec.threads < 1:
        raise UserError(f"threads must be at least 1, got {spec.threads}")
    if spec.ray_workers is not None and not 1 <= spec.ray_workers <= settings.n_envs:
        raise UserError(f"ray_workers must lie in [1, {settings.n_envs}], the number of environments, got {spec.ray_workers}")
    return total
