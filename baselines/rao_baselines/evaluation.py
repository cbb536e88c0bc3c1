"""Scores of trained models by the protocol of `rao_envs.evaluate`, on a fixed list of seeds that training never draws from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy

import rao_envs
from rao_baselines.spec import FIRST_SEED
from rao_baselines.wrappers import MASK, Stacker
from rao_envs import Evaluation

MODES = ("greedy", "sampled")
ROWS = 64
"""Rows of every forward pass, filled up where episodes are fewer: the shape of a product decides its rounding."""

Model = BaseAlgorithm | BasePolicy


def evaluation_seeds(n: int, first: int = FIRST_SEED) -> list[int]:
    """The first `n` seeds of the fixed list that begins with `first`."""
    return list(range(first, first + n))


def score(
    agent: Any,
    env_id: str,
    seeds: Sequence[int],
    *,
    mode: str,
    env_kwargs: dict[str, Any] | None = None,
    frame_stack: int = 1,
    use_masking: bool = True,
    progress: bool | Callable[[int, int], None] | None = False,
    evaluate: Callable[..., Evaluation] = rao_envs.evaluate,
) -> Evaluation:
    """One episode per seed; depends on the agent, the environment and the seeds alone.

    Args:
        agent: a model, or whatever `rao_envs.evaluate` takes.
        env_id: the environment.
        seeds: one episode each.
        mode: "greedy" or "sampled" (DQN samples by its exploration rate).
        env_kwargs: the environment's arguments.
        frame_stack: how many observations the model was trained on at once.
        use_masking: False lets a model choose among all actions, also where it could be told which are allowed. An action that is not
            allowed costs a step and changes nothing.
        progress: as `rao_envs.evaluate` takes it.
        evaluate: what plays the episodes, for instance `rao_agents.distributed.evaluating.evaluate`.
    """
    deterministic = mode == "greedy"
    if isinstance(agent, BaseAlgorithm | BasePolicy):
        explores = isinstance(agent, DQN) and not deterministic
        unmasked = not use_masking and _takes_masks(getattr(agent, "policy", agent))
        if unmasked and getattr(getattr(agent, "policy", agent), "stateful", False):
            agent = UnmaskedPolicy(agent)
        elif frame_stack > 1 or explores or unmasked:
            agent = AdaptedModel(agent, frame_stack, use_masking)
    return evaluate(
        agent,
        env_id,
        seeds,
        deterministic=deterministic,
        batch_size=min(len(seeds), 2 * ROWS),
        progress=progress,
        **(env_kwargs or {}),
    )


def brief(evaluation: Evaluation) -> dict[str, Any]:
    """What a learning curve keeps: `success` (None where the environment does not say), `return`, `steps`: means, and `episodes`."""
    summary = evaluation.summary()
    means = {name: None if (found := summary[name]) is None else found.mean for name in ("success", "return", "steps")}
    return {**means, "episodes": len(evaluation.episodes)}


def full(evaluation: Evaluation) -> dict[str, Any]:
    """`brief`, with all means and their 95 % intervals under `summary`."""
    summary = {name: None if value is None else value._asdict() for name, value in evaluation.summary().items()}
    return {**brief(evaluation), "summary": summary}


class UnmaskedPolicy:
    """A policy that keeps states of frames, choosing without masks: all else is its own."""

    def __init__(self, model: Model) -> None:
        self.kept: Any = getattr(model, "policy", model)
        self.__name__ = type(model).__name__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["kept"], name)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False, action_masks: Any = None
    ) -> tuple[Any, Any]:
        """As the policy's, with every action allowed."""
        return cast(tuple[Any, Any], self.kept.predict(observation, state, episode_start, deterministic, np.ones_like(action_masks)))

    def action_probabilities(self, observation: Any, state: Any, action_masks: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
        """As the policy's, with every action allowed."""
        return cast(tuple[Any, Any], self.kept.action_probabilities(observation, state, np.ones_like(action_masks)))


class AdaptedModel:
    """A model as a batched callable, for what `rao_envs.evaluate` does not know.

    That is: stacked observations, epsilon-greedy sampling, choosing without masks.
    """

    batched = True

    def __init__(self, model: Model, frame_stack: int, use_masking: bool = True) -> None:
        self.model: Any = model
        self.policy: Any = getattr(model, "policy", model)
        self.frame_stack = frame_stack
        self.masked = use_masking and _takes_masks(self.policy)
        self.__name__ = type(model).__name__

    def __call__(
        self,
        observation: Any,
        mask: npt.NDArray[np.bool_],
        state: Sequence[Any],
        uniform: npt.NDArray[np.float64],
        deterministic: bool,
    ) -> tuple[npt.NDArray[np.int64], Sequence[Any]]:
        """Actions of m episodes and their pasts."""
        if self.frame_stack > 1:
            observation, state = self._stack(observation, state)
        count = len(state)
        actions = np.empty(count, np.int64)
        for first in range(0, count, ROWS):
            rows = np.minimum(np.arange(first, first + ROWS), count - 1)
            chunk = {key: array[rows] for key, array in observation.items()} if isinstance(observation, dict) else observation[rows]
            last = min(first + ROWS, count)
            actions[first:last] = self._choose(chunk, mask[rows], uniform[rows], deterministic)[: last - first]
        return actions, state

    def _stack(self, observation: Any, state: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        stacker = Stacker(self.frame_stack)
        plain = observation if isinstance(observation, dict) else {"": observation}
        for key, array in plain.items():
            if key != MASK:
                blank = np.zeros((self.frame_stack, array.shape[1]), array.dtype)
                stacker.frames[key] = np.stack([blank if past is None else past[key] for past in state])
        stacked = stacker.push(observation, np.zeros(len(state), np.bool_))
        return stacked, [{key: frames[row] for key, frames in stacker.frames.items()} for row in range(len(state))]

    def _choose(self, chunk: Any, mask: Any, uniform: npt.NDArray[np.float64], deterministic: bool) -> npt.NDArray[np.int64]:
        masks = {"action_masks": mask} if self.masked else {}
        n = int(self.policy.action_space.n)
        with th.no_grad():
            self.policy.set_training_mode(False)
            tensors, _ = self.policy.obs_to_tensor(chunk)
            if deterministic or isinstance(self.model, DQN):
                greedy = self.policy._predict(tensors, deterministic=True, **masks).cpu().numpy()
                if deterministic:
                    return np.asarray(greedy, np.int64)
                epsilon = float(self.model.exploration_rate)
                chance = np.full((len(greedy), n), epsilon / n)
                chance[np.arange(len(greedy)), greedy] += 1.0 - epsilon
            else:
                chance = self.policy.get_distribution(tensors, **masks).distribution.probs.cpu().numpy()
        total = np.cumsum(chance, axis=1, dtype=np.float64)
        picked: npt.NDArray[np.int64] = np.count_nonzero(total <= uniform[:, None] * total[:, -1:], axis=1).astype(np.int64)
        return picked


def _takes_masks(policy: Any) -> bool:
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

    return isinstance(policy, MaskableActorCriticPolicy)
