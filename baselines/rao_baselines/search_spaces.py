"""What tuning searches, per algorithm: the same breadth for recursive and monolithic agents.

A space is a mapping of setting -> range; settings are written as `--set` takes them, with dots into mappings. All share what PPO has
in common; the recursive agent adds what its credit assignment can be told, the monolithic ones what helps an agent without recursion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rao_baselines.algorithms import Algorithm
from rao_baselines.config import Settings

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    options: tuple[Any, ...]

    def suggest(self, trial: BaseTrial, name: str) -> Any:
        """A value; Optuna keeps the position, so that lists may be options."""
        return self.options[trial.suggest_categorical(name, tuple(range(len(self.options))))]


@dataclass(frozen=True)
class LogFloat:
    """A number between two others, uniform in its logarithm, rounded to three digits; `linear` makes a schedule to 0 of it."""

    low: float
    high: float
    linear: bool = False

    def suggest(self, trial: BaseTrial, name: str) -> Any:
        """A number, or a schedule's text."""
        value = float(f"{trial.suggest_float(name, self.low, self.high, log=True):.3g}")
        return f"lin_{value:g}" if self.linear else value


Range = Choice | LogFloat
Space = Mapping[str, Range]

WIDTH = "width"
"""A range of its own name: sets the width of the extractor and of the network behind it alike."""

_GAMMA = Choice((0.98, 0.99, 0.995, 0.999))
_LAMBDA = Choice((0.8, 0.9, 0.95, 0.98))
_WIDTH = Choice((128, 256, 384))

_PPO: Space = {
    "learning_rate": LogFloat(2e-4, 3e-3, linear=True),
    "ent_coef": LogFloat(1e-3, 5e-2, linear=True),
    "gamma": _GAMMA,
    "gae_lambda": _LAMBDA,
    "n_steps": Choice((32, 64, 128)),
    "batch_size": Choice((512, 1024, 2048)),
    "n_epochs": Choice((4, 8, 12)),
    "clip_range": Choice((0.1, 0.2, 0.3)),
    WIDTH: _WIDTH,
}
_A2C: Space = {
    "learning_rate": LogFloat(2e-4, 5e-3, linear=True),
    "ent_coef": LogFloat(1e-3, 5e-2, linear=True),
    "gamma": _GAMMA,
    "gae_lambda": _LAMBDA,
    "n_steps": Choice((5, 16, 32, 64)),
    "normalize_advantage": Choice((False, True)),
    "use_rms_prop": Choice((False, True)),
    WIDTH: _WIDTH,
}
_RECURSIVE: Space = {
    "step_cost": Choice((0.0, 0.003, 0.01, 0.03)),
    "delegation_bonus": Choice((0.0, 0.1, 0.3)),
    "depth_weighting": Choice((0.0, 0.5, 1.0)),
    "delegation_head": Choice((True, False)),
}
_FEEDBACK: Space = {
    "dense_weight": LogFloat(0.1, 10.0),
    "step_penalty": Choice((0.0, 0.001, 0.003, 0.01)),
    "normalize": Choice((False, True)),
}
_MONOLITHIC: Space = {**_FEEDBACK, "frame_stack": Choice((1, 2, 4))}

SPACES: dict[str, Space] = {
    "recursive_ppo": {**_PPO, **_RECURSIVE},
    "recursive_a2c": {**_A2C, **_RECURSIVE},
    "flat_ppo": {**_PPO, **_FEEDBACK},
    "ppo": {**_PPO, **_MONOLITHIC},
    "maskable_ppo": {**_PPO, **_MONOLITHIC},
    "a2c": {**_A2C, **_MONOLITHIC},
    "dqn": {
        "learning_rate": LogFloat(5e-5, 2e-3),
        "gamma": _GAMMA,
        "batch_size": Choice((64, 128, 256)),
        "gradient_steps": Choice((1, 4, 8)),
        "target_update_interval": Choice((1000, 4000, 10000)),
        "exploration_fraction": Choice((0.1, 0.3, 0.5)),
        "exploration_final_eps": Choice((0.02, 0.05, 0.1)),
        WIDTH: _WIDTH,
        **_MONOLITHIC,
    },
    "recurrent_ppo": {
        "learning_rate": LogFloat(2e-4, 3e-3, linear=True),
        "ent_coef": LogFloat(1e-3, 5e-2, linear=True),
        "gamma": _GAMMA,
        "gae_lambda": _LAMBDA,
        "n_steps": Choice((64, 128, 256)),
        "batch_size": Choice((512, 1024, 2048)),
        "n_epochs": Choice((2, 4, 8)),
        "clip_range": Choice((0.1, 0.2, 0.3)),
        "policy_kwargs.lstm_hidden_size": Choice((64, 128, 256)),
        "policy_kwargs.features_extractor_kwargs.features_dim": _WIDTH,
        **_FEEDBACK,
    },
}


ONE_OBSERVATION = ("SequenceExtractor",)
"""Extractors that know the layout of one observation, and cannot read several stacked."""


def space_for(algorithm: Algorithm, settings: Settings, fixed: Mapping[str, Any], recursive_env: bool) -> dict[str, Range]:
    """The algorithm's space without what the user has fixed, and without what environment or network have no use for."""
    space = dict(SPACES[algorithm.name])
    if settings.hyperparameters.get("policy_kwargs", {}).get("features_extractor_class") in ONE_OBSERVATION:
        space.pop("frame_stack", None)
    if not recursive_env:
        for name in (*_RECURSIVE, "dense_weight"):
            space.pop(name, None)
    if "policy_kwargs.net_arch" in fixed:
        space.pop(WIDTH, None)
    return {name: found for name, found in space.items() if name not in fixed}


def suggest(trial: BaseTrial, space: Space, settings: Settings) -> dict[str, Any]:
    """One point of the space as overrides of the settings."""
    overrides: dict[str, Any] = {}
    for name, found in space.items():
        value = found.suggest(trial, name)
        if name == WIDTH:
            overrides["policy_kwargs.net_arch"] = [value]
            if "features_extractor_class" in settings.hyperparameters.get("policy_kwargs", {}):
                overrides["policy_kwargs.features_extractor_kwargs.features_dim"] = value
            else:
                overrides["policy_kwargs.net_arch"] = [value, value]
        else:
            overrides[name] = value
    return overrides


def describe(space: Space) -> dict[str, Any]:
    """The space as plain data, to be kept with a study's result."""
    return {
        name: list(found.options)
        if isinstance(found, Choice)
        else {"low": found.low, "high": found.high, "log": True, "linear": found.linear}
        for name, found in space.items()
    }
