"""Held-out scores, and taking back a round of distillation that did harm (MISSION B9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import Env
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rao_agents.distillation.injectors import from_arrays, to_arrays
from rao_agents.distillation.torch_seeds import torch_seeded


class HeldOut:
    """Scores a model, always on the same episodes.

    The environment begins anew from the same seed each time, and sampled actions come from a generator of their own: nothing that the
    training draws from is touched.

    Args:
        env: of its own, not the training's; with the same spaces. A Gymnasium environment, or a batch of them.
        episodes: how many; the first ones of each of the batch, as evenly as can be.
        seed: of the environments, and of sampled actions.
        deterministic: whether the best action is taken, or one is sampled, as in training.

    Raises:
        ValueError: fewer than one episode.
    """

    def __init__(self, env: VecEnv | Env[Any, Any], episodes: int = 100, seed: int = 10_000_000, deterministic: bool = False) -> None:
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes!r}")
        self.env = env if isinstance(env, VecEnv) else DummyVecEnv([lambda: env])
        self.episodes, self.seed, self.deterministic = int(episodes), int(seed), bool(deterministic)

    def score(self, model: BaseAlgorithm | BasePolicy) -> float:
        """Mean success where the environment gives verdicts (`is_success`), and mean return otherwise."""
        env, n = self.env, self.env.num_envs
        wanted = np.array([(self.episodes + i) // n for i in range(n)])
        counts, sums = np.zeros(n, np.int64), np.zeros(n)
        returns: list[float] = []
        verdicts: list[bool] = []
        policy: Any = model.policy if isinstance(model, BaseAlgorithm) else model
        masked = isinstance(policy, MaskableActorCriticPolicy) and is_masking_supported(env)
        was_training = policy.training
        with torch_seeded(self.seed, policy.device):
            env.seed(self.seed)
            obs: Any = env.reset()
            # Policies with state transfer keep a state for every frame; others hand None back.
            state, starts = None, np.ones(n, np.bool_)
            while (counts < wanted).any():
                more = {"action_masks": get_action_masks(env)} if masked else {}
                actions, state = policy.predict(obs, state, starts, deterministic=self.deterministic, **more)
                obs, rewards, dones, infos = env.step(actions)
                starts = np.asarray(dones, np.bool_)
                sums += rewards
                for i in np.flatnonzero(dones).tolist():
                    if counts[i] < wanted[i]:
                        counts[i] += 1
                        returns.append(float(sums[i]))
                        if infos[i].get("is_success") is not None:
                            verdicts.append(bool(infos[i]["is_success"]))
                    sums[i] = 0.0
        policy.set_training_mode(was_training)
        return float(np.mean(verdicts if len(verdicts) == len(returns) else returns))


class Guard:
    """Keeps the policy as it was before each round, and says whether the round did harm.

    Args:
        held_out: what scores are of.
        every: environment steps between two scores.
        fall: a round did harm if the score has fallen by more than this share of what it was before, in (0, 1).
        patience: how many scores after a round are looked at before it counts as harmless; one bad score is enough.
        relief: strength is multiplied by this after a round that did harm, in (0, 1].
        recover: strength is multiplied by this after a harmless one, up to 1; at least 1.
        change_data: after a harmful round use the experience of so many of the latest policy iterations only; None to go on with all.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        held_out: HeldOut,
        every: int = 10_000,
        fall: float = 0.1,
        patience: int = 2,
        relief: float = 0.5,
        recover: float = 1.25,
        change_data: int | None = None,
    ) -> None:
        if every < 1 or patience < 1:
            raise ValueError(f"every and patience must be at least 1, got {every!r} and {patience!r}")
        if not 0 < fall < 1 or not 0 < relief <= 1 or not recover >= 1:
            raise ValueError(f"fall must lie in (0, 1), relief in (0, 1], recover be at least 1, got {fall!r}, {relief!r}, {recover!r}")
        if change_data is not None and change_data < 1:
            raise ValueError(f"change_data must be at least 1 iteration, or None, got {change_data!r}")
        self.held_out, self.every, self.fall, self.patience = held_out, int(every), float(fall), int(patience)
        self.relief, self.recover, self.change_data = float(relief), float(recover), change_data
        self.scores: list[tuple[int, float]] = []
        self.strength = 1.0
        self.window: int | None = None
        self.rollbacks = 0
        self.next = 0
        self._before: float | None = None  # score before the round that is being watched
        self._left = 0  # scores until it counts as harmless
        self._policy: dict[str, th.Tensor] = {}
        self._optimizer: dict[str, Any] = {}

    @property
    def watching(self) -> bool:
        """Whether a round is being watched."""
        return self._before is not None

    def measure(self, model: BaseAlgorithm) -> float:
        """Score the model now."""
        score = self.held_out.score(model)
        self.scores.append((int(model.num_timesteps), score))
        self.next = int(model.num_timesteps) + self.every
        return score

    def shift(self, steps: int) -> None:
        """The count of environment steps was set back: it is now more by `steps` (fewer, as that is below 0)."""
        self.scores = [(at + steps, score) for at, score in self.scores]
        self.next += steps

    def begin(self, model: BaseAlgorithm) -> float:
        """Before a round: keep the policy, and score it unless that was just done. Returns the score."""
        recent = bool(self.scores) and self.scores[-1][0] == model.num_timesteps
        self._before = self.scores[-1][1] if recent else self.measure(model)
        self._left = self.patience
        self._policy = {name: value.detach().clone() for name, value in model.policy.state_dict().items()}
        self._optimizer = _copied(model.policy.optimizer.state_dict())
        return self._before

    def judge(self, model: BaseAlgorithm) -> bool:
        """After a new score: take the round back if it did harm. Returns whether it was taken back."""
        if self._before is None:
            return False
        score = self.scores[-1][1]
        # A share of a negative score would turn the comparison round.
        if score < self._before - self.fall * abs(self._before):
            model.policy.load_state_dict(self._policy)
            model.policy.optimizer.load_state_dict(_copied(self._optimizer))
            self.strength *= self.relief
            self.window = self.change_data
            self.rollbacks += 1
            self._forget()
            return True
        self._left -= 1
        if self._left == 0:
            self.strength = min(1.0, self.strength * self.recover)
            self.window = None
            self._forget()
        return False

    def _forget(self) -> None:
        self._before, self._policy, self._optimizer = None, {}, {}

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        groups = self._optimizer.get("param_groups", [])
        return {
            "scores": [list(score) for score in self.scores],
            "strength": self.strength,
            "window": self.window,
            "rollbacks": self.rollbacks,
            "next": self.next,
            "before": self._before,
            "left": self._left,
            "policy": to_arrays(self._policy),
            "optimizer": {
                "state": [[key, _plain(value)] for key, value in self._optimizer.get("state", {}).items()],
                "param_groups": [{k: list(v) if isinstance(v, tuple) else v for k, v in group.items()} for group in groups],
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` returned."""
        self.scores = [(int(steps), float(score)) for steps, score in state["scores"]]
        self.strength, self.window, self.rollbacks = float(state["strength"]), state["window"], int(state["rollbacks"])
        self.next, self._before, self._left = int(state["next"]), state["before"], int(state["left"])
        self._policy = from_arrays(state["policy"])
        saved = state["optimizer"]
        self._optimizer = {}
        if saved["param_groups"]:
            self._optimizer = {
                "state": {
                    key: {k: th.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in value.items()} for key, value in saved["state"]
                },
                "param_groups": [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in saved["param_groups"]],
            }


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.detach().cpu().numpy().copy() if isinstance(v, th.Tensor) else v for k, v in value.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, th.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
