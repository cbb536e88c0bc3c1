"""A curriculum: from small tasks to large ones, as fast as an agent masters them (MISSION A6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

import rao_envs
from rao_agents.mixed import MixedVecEnv, mixed_vec_env, task_name

CURRICULUM_SEEDS = 3 * 2**32
"""The tasks that decide on a stage are those of the seeds from here on: neither training nor any published score uses them."""


class CurriculumCallback(BaseCallback):
    """Moves on to the next stage when the agent masters the one it is at, by its success on tasks that it does not train on.

    The stages are the tasks of a `MixedVecEnv` (`make_mixed_vec_env`), in order. Training begins on the first. Every `every` steps,
    between two rollouts, the agent plays the same `episodes` tasks of its stage; at `threshold` or above the next stage begins, in each
    environment with its next episode. It never goes back, and the last stage lasts. Where it stands is kept in the environment's
    `notes`, and so in a training state: a resumed run goes on where it was.

    Evaluation plays in environments of its own and draws from no generator that training uses. Works with every SB3 algorithm.

    Logged at each rollout: `curriculum/stage` (from 0), `curriculum/success` (of the latest evaluation).

    Args:
        threshold: success rate in [0, 1] at which a stage is mastered.
        every: steps between evaluations, at least 1.
        episodes: fixed tasks of an evaluation, at least 1.
        patience: evaluations after which the next stage begins whatever the success; None to wait for ever.
        review: share in [0, 1) of the environments that stay with the stages already mastered, in equal parts.
        deterministic: whether the evaluation acts greedily; agents without action probabilities (DQN) always do.

    Attributes:
        history: what was evaluated: {"steps", "stage", "success"} each.

    Raises:
        ValueError: an argument out of range; when training begins, an environment without a `MixedVecEnv`, or one with a single task.
    """

    def __init__(
        self,
        threshold: float = 0.9,
        every: int = 10_000,
        episodes: int = 100,
        patience: int | None = None,
        review: float = 0.0,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.threshold = _share("threshold", threshold)
        self.every = _count("every", every)
        self.episodes = _count("episodes", episodes)
        self.patience = None if patience is None else _count("patience", patience)
        self.review = _share("review", review)
        if self.review == 1.0:
            raise ValueError("review must be less than 1: nothing would be left for the stage itself")
        self.deterministic = bool(deterministic)
        self.history: list[dict[str, Any]] = []
        self._mixed: MixedVecEnv | None = None

    @property
    def mixed(self) -> MixedVecEnv:
        """The environment whose tasks are the stages."""
        assert self._mixed is not None, "training has not begun"
        return self._mixed

    @property
    def stage(self) -> int:
        """The stage that the agent is at, from 0."""
        return int(self.mixed.notes["stage"])

    def weights(self, stage: int) -> list[float]:
        """Shares of the tasks at `stage`."""
        later = [0.0] * (len(self.mixed.tasks) - stage - 1)
        return [self.review / stage] * stage + [1.0 - self.review, *later] if stage else [1.0, *later]

    def _on_training_start(self) -> None:
        self._mixed = mixed_vec_env(self.training_env)
        if self._mixed is None or len(self._mixed.tasks) < 2:
            raise ValueError("a curriculum needs an environment with at least two tasks: make it with rao_agents.make_mixed_vec_env")
        notes = self.mixed.notes
        if "stage" in notes:  # a resumed run, or a second call of learn, which may count from 0 again
            self.history = [dict(entry) for entry in notes["history"]]
            notes["evaluated_at"] = min(notes["evaluated_at"], int(self.model.num_timesteps))
            return
        notes |= {"stage": 0, "waited": 0, "evaluated_at": int(self.model.num_timesteps), "success": None, "history": []}
        self.mixed.set_weights(self.weights(0))
        if self.mixed.mixed.playing.any():  # SB3 has reset the environments already, with other shares
            env = self.training_env
            self.model._last_obs = env.reset()  # type: ignore[assignment]  # no tuples: the observations are dictionaries
            self.model._last_episode_starts = np.ones(env.num_envs, np.bool_)

    def _on_rollout_start(self) -> None:
        notes = self.mixed.notes
        last = len(self.mixed.tasks) - 1
        if notes["stage"] == last or self.num_timesteps - notes["evaluated_at"] < self.every:
            return
        notes["success"] = self.evaluate()
        notes["evaluated_at"] = int(self.num_timesteps)
        notes["waited"] += 1
        self.history.append({"steps": int(self.num_timesteps), "stage": notes["stage"], "success": notes["success"]})
        notes["history"] = [dict(entry) for entry in self.history]
        if notes["success"] >= self.threshold or notes["waited"] == self.patience:
            notes["stage"] += 1
            notes["waited"] = 0
            self.mixed.set_weights(self.weights(notes["stage"]))
            if self.verbose:
                print(f"{self.num_timesteps:,} steps: {task_name(self.mixed.tasks[notes['stage']])}")  # noqa: T201  # asked for

    def _on_rollout_end(self) -> None:
        notes = self.mixed.notes
        self.logger.record("curriculum/stage", notes["stage"])
        if notes["success"] is not None:
            self.logger.record("curriculum/success", notes["success"])

    def _on_step(self) -> bool:
        return True

    def evaluate(self) -> float:
        """Success rate on the fixed tasks of the stage."""
        env_id, kwargs = self.mixed.tasks[self.stage]
        seeds = range(CURRICULUM_SEEDS, CURRICULUM_SEEDS + self.episodes)
        greedy = self.deterministic or not hasattr(self.model.policy, "get_distribution")
        result = rao_envs.evaluate(self.model, env_id, list(seeds), deterministic=greedy, progress=False, **kwargs)
        return float(np.mean([bool(episode.success) for episode in result.episodes]))


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0.0 <= value <= 1.0 or not math.isfinite(value):
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}")
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)
