"""Apart: a policy that explores and one that exploits (MISSION B9).

The explorer is the policy that the algorithm trains: it acts, and a loss on remembered states keeps its choices open. The exploiter never
acts in training. It follows as an average of the explorer's weights, choosing more sharply, and it is what should be evaluated and kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.distributions import action_log_probs
from rao_agents.distillation.frozen import FrozenPolicy
from rao_agents.distillation.injection import Batch, Tally
from rao_agents.distillation.injectors import Injection, Injector, Scheduled, State, from_arrays, to_arrays
from rao_agents.recursive_algorithm import AnySchedule
from rao_agents.tap import masks_from_observation


class ExplorerEntropy(Injector):
    """Keeps the acting policy exploring, and lets an exploiter follow it: `exploiter`.

    The loss is -weight * strength * mean entropy of the policy's choices in the remembered states, relative to the largest entropy that
    their masks allow.

    Args:
        weight: a number or a schedule; constant, unlike an algorithm's falling entropy coefficient, as the exploiter need not pay for it.
        decay: of the exploiter's average, per round, in [0, 1).
        temperature: the exploiter's choices are those of its average divided by this, in (0, 1].

    Raises:
        ValueError: a number out of range.
    """

    kind = "explorer"

    def __init__(self, weight: AnySchedule = 0.02, decay: float = 0.5, temperature: float = 0.5) -> None:
        self.weight = Scheduled("weight", weight)
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay!r}")
        if not 0 < temperature <= 1:
            raise ValueError(f"temperature must lie in (0, 1], got {temperature!r}")
        self.decay, self.temperature = float(decay), float(temperature)
        self.strength = 0.0
        self.average: dict[str, th.Tensor] = {}
        self.tally = Tally()

    def begin(self, round_: Injection) -> None:
        """See `Injector`."""
        self.resume(round_)
        own = {name: value.detach().cpu() for name, value in round_.model.policy.state_dict().items()}
        if not self.average:
            self.average = {name: value.clone() for name, value in own.items()}
        for name, value in self.average.items():
            if value.is_floating_point():
                value.lerp_(own[name], 1 - self.decay)
            else:
                value.copy_(own[name])

    def resume(self, round_: Injection) -> None:
        """See `Injector`."""
        self.strength = round_.strength

    def loss(self, model: OnPolicyAlgorithm, batch: Batch) -> th.Tensor | None:
        """See `Injector`."""
        weight = self.weight.now(model) * self.strength
        if weight == 0:
            return None
        log_probs, masks = batch.log_probs, batch.masks
        entropy = -(log_probs.exp() * log_probs).sum(dim=1)
        allowed = th.full_like(entropy, float(log_probs.shape[1])) if masks is None else masks.sum(dim=1).to(entropy.dtype)
        open_ = allowed > 1
        share = (entropy / allowed.clamp_min(2).log() * open_).sum() / open_.sum().clamp_min(1)
        self.tally.add("explorer_entropy", float(share.detach()))
        return -weight * share

    def end(self, model: OnPolicyAlgorithm) -> None:
        """See `Injector`."""
        self.strength = 0.0

    def exploiter(self, model: OnPolicyAlgorithm) -> Exploiter:
        """The exploiter as it is now; the policy itself where there was no round yet."""
        return Exploiter(model.policy, self.average or model.policy.state_dict(), self.temperature)

    def config(self) -> dict[str, Any]:
        """See `Injector`."""
        return {"weight": self.weight.plain(), "decay": self.decay, "temperature": self.temperature}

    def state(self) -> State:
        """See `Injector`."""
        return {"average": to_arrays(self.average)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Injector`."""
        self.average = from_arrays(state["average"])

    def figures(self) -> dict[str, float]:
        """See `Injector`."""
        return self.tally.take()


class Exploiter:
    """Acts with an average of a policy's weights, more sharply than it would itself.

    Args:
        policy: whose architecture it has.
        weights: the average.
        temperature: log-probabilities are divided by this, in (0, 1].
    """

    def __init__(self, policy: BasePolicy, weights: Mapping[str, th.Tensor], temperature: float = 1.0) -> None:
        self.frozen = FrozenPolicy.of(policy)
        self.frozen.policy.load_state_dict(dict(weights))
        self.temperature = float(temperature)
        if not math.isfinite(self.temperature) or not 0 < self.temperature <= 1:
            raise ValueError(f"temperature must lie in (0, 1], got {temperature!r}")

    @property
    def policy(self) -> BasePolicy:
        """The average as a policy, without the sharpening: to be saved with `rao_agents.save_policy`."""
        return self.frozen.policy

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[npt.NDArray[Any], Any]:
        """As a policy's `predict`; sampled actions come from torch's generator."""
        policy: Any = self.policy
        if getattr(policy, "stateful", False):
            raise ValueError("an exploiter of a policy with state transfer cannot act: use `policy`, its average without the sharpening")
        if action_masks is None and not isinstance(observation, np.ndarray):
            action_masks = masks_from_observation(observation, int(policy.action_space.n))
        if deterministic:
            masks = {} if action_masks is None or not isinstance(policy, MaskableActorCriticPolicy) else {"action_masks": action_masks}
            best, _ = policy.predict(observation, state, episode_start, True, **masks)
            return best, state
        tensors, vectorized = policy.obs_to_tensor(observation)
        batch = None if action_masks is None else np.asarray(action_masks).reshape(-1, int(policy.action_space.n))
        with th.no_grad():
            log_probs = action_log_probs(policy, tensors, batch)
            actions = th.multinomial(th.softmax(log_probs / self.temperature, dim=1), 1).squeeze(1).cpu().numpy()
        return (actions if vectorized else actions[0]), state
