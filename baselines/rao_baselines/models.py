"""Making an algorithm from its settings: schedules and classes by name, nothing evaluated."""

from __future__ import annotations

import warnings
from typing import Any

import torch as th
from stable_baselines3.common import torch_layers
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from rao_agents import CurriculumCallback, RecursiveAlgorithm, schedules
from rao_agents.extractors import SharedMLPExtractor
from rao_agents.sequence_extractor import SequenceExtractor
from rao_baselines.algorithms import Algorithm
from rao_baselines.config import SCHEDULED, Settings
from rao_baselines.errors import UserError, did_you_mean

CLASSES: dict[str, type] = {
    "SequenceExtractor": SequenceExtractor,
    "SharedMLPExtractor": SharedMLPExtractor,
    "CombinedExtractor": torch_layers.CombinedExtractor,
    "FlattenExtractor": torch_layers.FlattenExtractor,
    "NatureCNN": torch_layers.NatureCNN,
    "Tanh": th.nn.Tanh,
    "ReLU": th.nn.ReLU,
    "ELU": th.nn.ELU,
    "GELU": th.nn.GELU,
    "SiLU": th.nn.SiLU,
    "LeakyReLU": th.nn.LeakyReLU,
    "Adam": th.optim.Adam,
    "AdamW": th.optim.AdamW,
    "RMSprop": th.optim.RMSprop,
}
"""Classes that a configuration may name."""
CLASS_KEYS = ("features_extractor_class", "activation_fn", "optimizer_class")


class EntropySchedule(BaseCallback):
    """Sets the entropy coefficient before each update: what SB3 lacks and the recursive algorithms have built in."""

    def __init__(self, schedule: schedules.Schedule) -> None:
        super().__init__()
        self.schedule = schedule

    def _on_training_start(self) -> None:
        self._set()

    def _on_rollout_end(self) -> None:
        self._set()

    def _set(self) -> None:
        total = max(self.model._total_timesteps, 1)
        self.model.ent_coef = self.schedule(1.0 - min(self.model.num_timesteps / total, 1.0))  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        return True


def make_model(algorithm: Algorithm, settings: Settings, env: VecEnv, *, seed: int, device: str, log: str | None = None) -> BaseAlgorithm:
    """The algorithm, ready to learn.

    Args:
        algorithm: its row.
        settings: checked ones.
        env: to learn in.
        seed: of the network, the environment's action space and the minibatches.
        device: for instance "cpu".
        log: a folder for TensorBoard.

    Raises:
        UserError: the constructor refuses the settings; the message is its own.
    """
    cls = algorithm.load()
    arguments: dict[str, Any] = {}
    for key, value in settings.hyperparameters.items():
        if key in SCHEDULED and isinstance(value, str):
            value = schedules.parse(value)
            if key == "ent_coef" and not issubclass(cls, RecursiveAlgorithm):
                value = value(1.0) if callable(value) else value  # EntropySchedule takes over
        arguments[key] = _named_classes(value) if key.endswith("_kwargs") and value is not None else value
    try:
        with warnings.catch_warnings():
            # A rollout that minibatches do not divide evenly is a matter of taste.
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            return cls(settings.policy, env, seed=seed, device=device, tensorboard_log=log, **arguments)
    except (TypeError, ValueError, AssertionError, KeyError) as error:
        raise UserError(f"{algorithm.name} cannot be made with these settings: {error}") from error


def schedule_callbacks(settings: Settings, model: BaseAlgorithm) -> list[BaseCallback]:
    """The callbacks that carry out schedules which the algorithm itself does not know."""
    entropy = settings.hyperparameters.get("ent_coef")
    if isinstance(entropy, str) and not isinstance(model, RecursiveAlgorithm):
        schedule = schedules.parse(entropy)
        assert callable(schedule)
        return [EntropySchedule(schedule)]
    return []


def curriculum_callbacks(settings: Settings) -> list[BaseCallback]:
    """The callback that moves through a curriculum's stages, if there is one.

    Raises:
        UserError: it refuses its arguments; the message is its own.
    """
    if not settings.curriculum:
        return []
    try:
        return [CurriculumCallback(**{key: value for key, value in settings.curriculum.items() if key != "stages"})]
    except ValueError as error:
        raise UserError(f"curriculum: {error}") from error


def _named_classes(value: dict[str, Any]) -> dict[str, Any]:
    """The mapping with class names replaced by classes, at any depth."""
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            item = _named_classes(item)
        elif key in CLASS_KEYS and isinstance(item, str):
            if item not in CLASSES:
                raise UserError(f"{key} cannot be {item!r}.{did_you_mean(item, CLASSES)}")
            item = CLASSES[item]
        result[key] = item
    return result
