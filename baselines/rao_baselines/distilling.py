"""Self-distillation inside a training run: its callback, its held-out environment, its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from rao_agents import save_policy
from rao_agents.distillation import PolicyKnowledge, SelfDistillationCallback
from rao_agents.distillation.settings import make_callback, wants_guard
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import Settings
from rao_baselines.environments import make_training_env
from rao_baselines.errors import UserError
from rao_baselines.runs import RunFolder
from rao_baselines.spec import MAX_ENVS, MAX_SEED, TrainSpec, training_seed

HELD_OUT_ENVS = 16
HELD_OUT_SEED = MAX_ENVS * MAX_SEED
"""Held-out tasks begin here: above all of training's, below those of the final scores."""


class Distillation:
    """The callback of a run, with what it needs.

    Args:
        callback: that distils.
        held_out: the guard's environment, to be closed.
        folder: of the run.
    """

    def __init__(self, callback: SelfDistillationCallback, held_out: VecEnv | None, folder: RunFolder) -> None:
        self.callback, self.held_out, self.folder = callback, held_out, folder

    @classmethod
    def of(cls, spec: TrainSpec, settings: Settings, spawn: bool, folder: RunFolder) -> Distillation | None:
        """That of a run; None where its settings ask for none.

        Raises:
            UserError: settings that cannot be used.
        """
        if settings.distillation is None or settings.distillation is False:
            return None
        algorithm = find_algorithm(spec.algorithm)
        if not issubclass(algorithm.load(), OnPolicyAlgorithm) or "recurrent" in spec.algorithm:
            raise UserError(f"distillation is for on-policy algorithms without recurrence, not for {algorithm.title}")
        held_out: VecEnv | None = None
        if wants_guard(settings.distillation):
            # Of the task alone: no dense feedback, no penalties, no rescaled rewards.
            plain = Settings(n_envs=HELD_OUT_ENVS, env_kwargs=settings.env_kwargs, frame_stack=settings.frame_stack)
            held_out = make_training_env(spec.env_id, plain, spawn, HELD_OUT_SEED)
        try:
            callback = make_callback(settings.distillation, eval_env=held_out, archive=str(folder.rounds), seed=training_seed(spec.seed))
        except (ValueError, ImportError) as error:
            if held_out is not None:
                held_out.close()
            raise UserError(f"distillation: {error}") from error
        return cls(callback, held_out, folder)

    def load(self, steps: int) -> None:
        """The state that belongs to the checkpoint of `steps`.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            self.callback.load(self.folder.distillation(steps))
        except (ValueError, OSError) as error:
            raise UserError(f"the run cannot be resumed: {error}; start it again with --overwrite") from error

    def save(self, steps: int) -> None:
        """Write the state, before the checkpoint: an interruption in between leaves the old pair whole."""
        self.callback.save(self.folder.distillation(steps))

    def keep_only(self, steps: int | None) -> None:
        """Delete the states of other checkpoints; all of them for None."""
        for path in self.folder.distillations():
            if steps is None or path != self.folder.distillation(steps):
                path.unlink(missing_ok=True)

    def finish(self, score: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """What the run's result says of it. A student is kept as `student.zip` and scored like the model itself.

        Args:
            score: gives a policy's scores.
        """
        knowledge, guard = self.callback.knowledge, self.callback.guard
        student: dict[str, Any] = {}
        if isinstance(knowledge, PolicyKnowledge) and len(knowledge.members) == 1:
            save_policy(knowledge.policy(), self.folder.student)
            student = {"student": {"parameters": knowledge.parameters(), **score(knowledge.policy())}}
        return {
            "rounds": self.callback.rounds,
            "rollbacks": 0 if guard is None else guard.rollbacks,
            "strength": self.callback.strength,
            **student,
            "knowledge": None if knowledge is None else {"kind": knowledge.kind, "parameters": knowledge.parameters(), **knowledge.figures},
        }

    def close(self) -> None:
        """Close what was opened."""
        self.callback.close()
        if self.held_out is not None:
            self.held_out.close()
