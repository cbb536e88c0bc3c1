"""Settings of an algorithm for an environment: YAML in rl_zoo3's format, checked strictly, never evaluated."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rao_baselines.algorithms import Algorithm
from rao_baselines.errors import UserError, did_you_mean

SCHEDULED = ("learning_rate", "clip_range", "clip_range_vf", "ent_coef", "frame_price", "level_price")
"""Keys that take a schedule such as "lin_0.001"."""
NOT_SETTINGS = {"self", "env", "policy", "seed", "device", "verbose", "tensorboard_log", "_init_setup_model"}
"""Constructor arguments that a run decides, not a configuration."""
CURRICULUM = ("threshold", "every", "episodes", "patience", "review", "deterministic")
"""Arguments of `rao_agents.CurriculumCallback`; their values are its own matter."""
OURS = (
    "n_envs", "n_timesteps", "policy", "normalize", "env_kwargs", "spawn", "feedback", "dense_weight", "frame_stack", "step_penalty",
    "repeats", "use_masking", "curriculum", "mixture", "distillation",
)  # fmt: skip


@dataclass
class Settings:
    """What a configuration says, checked. `hyperparameters` are constructor arguments as written (schedules and classes by name)."""

    policy: str = "MultiInputPolicy"
    n_envs: int = 1
    n_timesteps: int = 1_000_000
    normalize: bool | dict[str, Any] = False
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    spawn: bool | None = None  # None: as the algorithm's row says
    feedback: str | None = None
    dense_weight: float = 0.0
    frame_stack: int = 1
    step_penalty: float = 0.0
    repeats: int = 1  # episodes of each root task
    use_masking: bool = True  # in training and in its scores; False lets the agent try what is not allowed
    curriculum: dict[str, Any] | None = None  # {"stages": task texts, and arguments of `CurriculumCallback`}
    mixture: dict[str, float] | None = None  # task text -> weight
    distillation: bool | dict[str, Any] | None = None  # of the run into itself: rao_agents.distillation.settings
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)


def config_folder() -> Path:
    """Where the YAML files are: inside the installed package, or beside it in the source tree."""
    inside = Path(__file__).parent / "configs"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "configs"


def read_blocks(algorithm: Algorithm, path: Path | None = None) -> dict[str, dict[str, Any]]:
    """All blocks of an algorithm's file, by environment id; values as the YAML has them.

    Raises:
        UserError: the file is missing, or not a mapping of mappings.
    """
    path = path or config_folder() / f"{algorithm.name}.yml"
    try:
        blocks = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no settings file {path}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(blocks, dict) or not all(isinstance(block, dict) for block in blocks.values()):
        raise UserError(f"{path} must hold a mapping of environment ids to settings")
    return blocks


def load_settings(algorithm: Algorithm, env_id: str, overrides: Mapping[str, Any] | None = None, path: Path | None = None) -> Settings:
    """The settings for `env_id`: its own block or `default`, with `overrides` (dotted keys reach into mappings) on top.

    Raises:
        UserError: an unknown key (the message names the nearest), or a value of the wrong kind.
    """
    blocks = read_blocks(algorithm, path)
    block = copy.deepcopy(blocks.get(env_id) or blocks.get("default"))
    if block is None:
        raise UserError(f"the settings of {algorithm.name} have no block for {env_id} and no default")
    for key, value in (overrides or {}).items():
        _override(block, key, value)
    return check(algorithm, block)


def _override(block: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        inner = block.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UserError(f"{key}: {parent} is {inner!r}, not a mapping")
        block = inner
    block[last] = value


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`key=value` texts as a mapping; values are read as YAML, so `[256, 256]`, `true` and `0.01` mean what they look like.

    Raises:
        UserError: no "=", an empty key, or a value that is not YAML.
    """
    result: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"write key=value, not {text!r}; for instance learning_rate=lin_0.001")
        try:
            result[key.strip()] = _number_if_text(yaml.safe_load(value))
        except yaml.YAMLError as error:
            raise UserError(f"the value of {key} is not valid YAML: {value!r}") from error
    return result


def allowed_keys(algorithm: Algorithm) -> tuple[str, ...]:
    """Every key a block may have."""
    parameters = inspect.signature(algorithm.load().__init__).parameters
    arguments = [name for name in parameters if name not in NOT_SETTINGS]
    return (*OURS, *(name for name in arguments if name not in OURS))


def uses_masks(algorithm: Algorithm) -> bool:
    """Whether the algorithm excludes actions that an environment does not allow."""
    return "use_masking" in inspect.signature(algorithm.load().learn).parameters


def check(algorithm: Algorithm, block: Mapping[str, Any]) -> Settings:
    """A block as `Settings`.

    Raises:
        UserError: as `load_settings`.
    """
    known = allowed_keys(algorithm)
    settings = Settings()
    for key, raw in block.items():
        if key not in known:
            raise UserError(f"{algorithm.name} has no setting {key!r}.{did_you_mean(str(key), known)}")
        value = _number_if_text(raw)
        if key in OURS:
            setattr(settings, key, _check_ours(key, value))
        else:
            settings.hyperparameters[key] = _check_argument(algorithm, key, value)
    if settings.curriculum and settings.mixture:
        raise UserError("curriculum and mixture are two ways to train on several sizes: leave one of them out")
    for name in ("curriculum", "mixture"):
        if getattr(settings, name) and settings.repeats > 1:
            raise UserError(f"{name} does not go with repeats: environments of different sizes cannot play the same root task")
    if settings.dense_weight and settings.feedback == "sparse":
        raise UserError("dense_weight needs dense feedback: drop feedback: sparse, or set dense_weight: 0")
    if not settings.use_masking and not uses_masks(algorithm):
        raise UserError(f"use_masking: false is for algorithms that use masks; {algorithm.name} never does")
    return settings


def _check_ours(key: str, value: Any) -> Any:
    if key in ("n_envs", "n_timesteps", "frame_stack", "repeats"):
        return _whole(key, value)
    if key in ("dense_weight", "step_penalty"):
        return _real(key, value)
    if key in ("spawn", "use_masking") and not isinstance(value, bool):
        raise UserError(f"{key} must be true or false, got {value!r}")
    if key == "feedback" and value not in ("sparse", "dense", None):
        raise UserError(f"feedback must be sparse or dense, got {value!r}")
    if key == "policy" and not isinstance(value, str):
        raise UserError(f"policy must be a name such as MultiInputPolicy, got {value!r}")
    if key == "normalize" and not isinstance(value, (bool, dict)):
        raise UserError(f"normalize must be true, false or a mapping of VecNormalize's arguments, got {value!r}")
    if key == "curriculum":
        return _check_curriculum(value)
    if key == "mixture":
        return _check_mixture(value)
    if key == "distillation" and not (value is None or isinstance(value, (bool, dict))):
        raise UserError(
            f"distillation must be true, false or a mapping such as {{trigger: {{kind: interval, steps: 5000}}}}, got {value!r}"
        )
    if key == "env_kwargs" and not isinstance(value, dict):
        raise UserError(f"env_kwargs must be a mapping such as {{structure: rooms}}, got {value!r}")
    return value


def _check_curriculum(value: Any) -> dict[str, Any] | None:
    """`curriculum`, with a list of stages written out as a mapping."""
    if value is None:
        return None
    found = {"stages": value} if isinstance(value, list) else value
    if not isinstance(found, dict) or "stages" not in found:
        raise UserError(f"curriculum must be a list of tasks, or a mapping with stages among its keys; got {value!r}")
    for key in found:
        if key not in ("stages", *CURRICULUM):
            raise UserError(f"curriculum has no {key!r}.{did_you_mean(str(key), ('stages', *CURRICULUM))}")
    stages = _tasks("curriculum: stages", found["stages"])
    if len(stages) < 2:
        raise UserError(f"curriculum needs at least two stages, got {value!r}")
    return {**found, "stages": stages}


def _check_mixture(value: Any) -> dict[str, float] | None:
    """`mixture`, with a list of tasks written out as a mapping to equal weights."""
    if value is None:
        return None
    if isinstance(value, list):
        return dict.fromkeys(_tasks("mixture", value), 1.0)
    if not isinstance(value, dict):
        raise UserError(f"mixture must be a list of tasks, or a mapping of tasks to weights; got {value!r}")
    weights = {task: _real(f"mixture: weight of {task}", weight) for task, weight in value.items()}
    if min(weights.values(), default=0.0) < 0 or not any(weights.values()):
        raise UserError(f"mixture: weights must be at least 0, and not all 0; got {value!r}")
    return dict(zip(_tasks("mixture", list(value)), weights.values(), strict=True))


def _tasks(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(task, str) and task for task in value):
        raise UserError(f"{name} must be tasks such as [RAO/Maze-5x5, RAO/Maze-10x10], got {value!r}")
    return value


def _check_argument(algorithm: Algorithm, key: str, value: Any) -> Any:
    """A constructor argument: schedules only where they work, whole numbers as int, mappings where mappings belong."""
    if key in SCHEDULED:
        if not (value is None and key == "clip_range_vf"):
            check_schedule(key, value)
        return value
    if key.endswith("_kwargs"):
        if value is not None and not isinstance(value, dict):
            raise UserError(f"{key} must be a mapping, got {value!r}")
        return value
    choices: Mapping[str, tuple[str, ...]] = getattr(algorithm.load(), "choices", {})
    if key in choices:
        if value not in choices[key]:
            raise UserError(f"{key} must be one of {', '.join(choices[key])}, got {value!r}")
        return value
    if isinstance(value, str):
        raise UserError(f"{key} cannot be the text {value!r}; schedules work for {', '.join(SCHEDULED)} only")
    if key in ("n_steps", "n_epochs"):  # none would end in an error deep inside Stable-Baselines3
        return _whole(key, value)
    default = inspect.signature(algorithm.load().__init__).parameters[key].default
    if isinstance(default, bool) and not isinstance(value, bool):
        raise UserError(f"{key} must be true or false, got {value!r}")
    if isinstance(default, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def check_schedule(key: str, value: Any) -> None:
    """Refuse what is no schedule: a number, "lin_<start>" or "lin_<start>_<end>_<fraction>".

    Raises:
        UserError: it is neither.
    """
    texts = value.removeprefix("lin_").split("_") if isinstance(value, str) and value.startswith("lin_") else [value]
    try:
        numbers = [float(text) for text in texts]
    except (TypeError, ValueError):
        numbers = [math.nan]
    if isinstance(value, bool) or len(numbers) > 3 or not all(map(math.isfinite, numbers)):
        raise UserError(f"{key} must be a number or a schedule such as lin_0.001, got {value!r}")


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer() or value < 1:
        raise UserError(f"{key} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _real(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key} must be a finite number, got {value!r}")
    return float(value)


def _number_if_text(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text: make it the number it looks like."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
