"""Policies with a delegation head (MISSION A2).

A delegation score against a learned threshold says whether to spawn, then a masked choice among the spawns or
among the primitives says what to do. Without spawn actions, or with `delegation_head=False`, these are
sb3-contrib's maskable policies, weight for weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableDistribution, MaybeMasks
from sb3_contrib.common.maskable.policies import (
    MaskableActorCriticCnnPolicy,
    MaskableActorCriticPolicy,
    MaskableMultiInputActorCriticPolicy,
)
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F
from typing_extensions import Self

from rao_agents.checkpoint import File, load_policy, save_policy
from rao_agents.frame_key import has_frame, policy_space, without_frame
from rao_agents.tap import masks_from_observation
from rao_agents.transfer.acting import StateActing
from rao_agents.transfer.extractor import StateTransferExtractor
from rao_agents.transfer.tracker import Observations, State

EXCLUDED = -1e8
"""Log-probability of masked actions: exp() of it is exactly 0, and unlike -inf it gives no NaN gradients."""


class DelegationHead(nn.Module):
    """Logits of all actions, and by how much the delegation score exceeds the threshold.

    The score is linear in the latent and has no bias, so that the threshold is the only constant in the
    comparison.

    Args:
        latent_dim: width of the policy's latent.
        n_actions: primitives and spawns.
        initial_threshold: where the threshold starts; 0 delegates with probability 1/2 where both are
            possible.
        threshold_scale: the threshold is this factor times its parameter. SB3 gives all parameters one
            learning rate, at which a bare threshold would hardly move: the factor is its own rate under Adam.
    """

    def __init__(self, latent_dim: int, n_actions: int, initial_threshold: float = 0.0, threshold_scale: float = 10.0) -> None:
        super().__init__()
        if not threshold_scale > 0:
            raise ValueError(f"threshold_scale must be positive, got {threshold_scale}")
        self.logits = nn.Linear(latent_dim, n_actions)
        self.score = nn.Linear(latent_dim, 1, bias=False)
        self.threshold_scale = threshold_scale
        self.raw_threshold = nn.Parameter(th.full((1,), initial_threshold / threshold_scale))

    @property
    def threshold(self) -> th.Tensor:
        """The threshold, shape (1,)."""
        return self.raw_threshold * self.threshold_scale

    def forward(self, latent: th.Tensor) -> th.Tensor:
        """(batch, n_actions + 1): the logits, and score - threshold in the last column."""
        return th.cat([self.logits(latent), self.score(latent) - self.threshold], dim=1)


class DelegationDistribution(MaskableDistribution):
    """P(spawn) = sigmoid(score - threshold), then a softmax among the allowed actions of the chosen side.

    Everything (probabilities, entropy, samples) comes from one vector of joint log-probabilities, built after
    masking. Where only one side is allowed, the gate is forced and neither score nor threshold matters.

    Args:
        n_actions: primitives and spawns.
        spawn_actions: indices of the spawns, at least one.
        head_kwargs: of the `DelegationHead`.
    """

    def __init__(self, n_actions: int, spawn_actions: Sequence[int], **head_kwargs: float) -> None:
        super().__init__()
        self.n_actions = n_actions
        self.head_kwargs = head_kwargs
        self.spawns = th.zeros(n_actions, dtype=th.bool)
        self.spawns[list(spawn_actions)] = True

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The head whose output `proba_distribution` takes."""
        return DelegationHead(latent_dim, self.n_actions, **self.head_kwargs)

    def proba_distribution(self, action_logits: th.Tensor) -> DelegationDistribution:
        """Take the head's output, (batch, n_actions + 1), with no action masked yet."""
        self.raw_logits, self.margin = action_logits[:, :-1], action_logits[:, -1:]
        if self.spawns.device != action_logits.device:
            self.spawns = self.spawns.to(action_logits.device)
        self._allowed: th.Tensor | None = None
        self._joint: th.Tensor | None = None
        return self

    def apply_masking(self, masks: MaybeMasks) -> None:
        """Allow only the actions whose mask is true; None allows all.

        `masks` is (batch, n_actions), or anything of that many elements.
        A row that allows nothing at all is read as one that allows everything.
        """
        self._joint = None
        if masks is None:
            self._allowed = None
        else:
            allowed = th.as_tensor(masks, device=self.raw_logits.device).reshape(self.raw_logits.shape).bool()
            self._allowed = allowed | ~allowed.any(dim=1, keepdim=True)

    @property
    def log_probs(self) -> th.Tensor:
        """Joint log-probabilities of all actions, (batch, n_actions); EXCLUDED where masked."""
        if self._joint is None:
            self._joint = self._build()
        return self._joint

    def _build(self) -> th.Tensor:
        allowed = self.spawns.new_ones(self.raw_logits.shape) if self._allowed is None else self._allowed
        spawns = allowed & self.spawns
        primitives = allowed & ~self.spawns
        self.may_spawn = spawns.any(dim=1, keepdim=True)
        self.allowed, self.open = (
            allowed,
            self.may_spawn & primitives.any(dim=1, keepdim=True),
        )  # (batch, n_actions), (batch, 1)
        excluded = self.raw_logits.new_tensor(EXCLUDED)
        zero = self.raw_logits.new_zeros(())
        gate_spawn = th.where(self.open, F.logsigmoid(self.margin), zero)
        gate_act = th.where(self.open, F.logsigmoid(-self.margin), zero)
        norm_spawn = th.logsumexp(th.where(spawns, self.raw_logits, excluded), dim=1, keepdim=True)
        norm_act = th.logsumexp(th.where(primitives, self.raw_logits, excluded), dim=1, keepdim=True)
        shift = th.where(self.spawns, gate_spawn - norm_spawn, gate_act - norm_act)
        return th.where(allowed, self.raw_logits + shift, excluded)

    @property
    def probs(self) -> th.Tensor:
        """Probabilities, (batch, n_actions)."""
        return self.log_probs.exp()

    @property
    def distribution(self) -> Categorical:  # type: ignore[override]
        """The same as a torch distribution, for code that expects one."""
        return Categorical(logits=self.log_probs, validate_args=False)

    def log_prob(self, actions: th.Tensor) -> th.Tensor:
        """Log-probability of `actions` (batch,), shape (batch,)."""
        return self.log_probs.gather(1, actions.long().reshape(-1, 1)).squeeze(1)

    def entropy(self) -> th.Tensor:
        """Entropy of the joint choice, (batch,)."""
        # Excluded actions: exp(-1e8) * -1e8 is -0.0, and its gradient is stopped by the `where` that excluded
        # them.
        return -(self.log_probs.exp() * self.log_probs).sum(dim=1)

    def sample(self) -> th.Tensor:
        """One action per row, (batch,)."""
        return th.multinomial(self.probs, 1).squeeze(1)

    def mode(self) -> th.Tensor:
        """The best action of the chosen side, (batch,).

        Where both sides are allowed, spawning is chosen exactly when the score exceeds the threshold.
        """
        if self._joint is None:
            self._joint = self._build()
        delegate = th.where(self.open, self.margin > 0, self.may_spawn)
        candidates = self.allowed & (self.spawns == delegate)
        return th.where(candidates, self.raw_logits, self.raw_logits.new_tensor(-th.inf)).argmax(dim=1)

    def actions_from_params(self, action_logits: th.Tensor, deterministic: bool = False) -> th.Tensor:
        """Actions from the head's output."""
        return self.proba_distribution(action_logits).get_actions(deterministic=deterministic)

    def log_prob_from_params(self, action_logits: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Actions from the head's output, and their log-probabilities."""
        actions = self.actions_from_params(action_logits)
        return actions, self.log_prob(actions)


class DelegationMixin:
    """Puts the delegation head on a maskable actor-critic policy.

    Masks are taken from observations that carry them. Parameters besides the policy's own:

    Args:
        spawn_actions: indices of the spawn actions; none makes the policy sb3-contrib's own.
        delegation_head: False keeps the plain masked softmax over all actions.
        initial_threshold, threshold_scale: of the `DelegationHead`.
    """

    # From the policies this is mixed into.
    observation_space: spaces.Space[Any]
    features_extractor_class: type[BaseFeaturesExtractor]
    features_extractor_kwargs: dict[str, Any]
    action_space: spaces.Space[Any]
    action_net: nn.Module
    action_dist: Any

    def __init__(
        self,
        *args: Any,
        spawn_actions: Sequence[int] = (),
        delegation_head: bool = True,
        initial_threshold: float = 0.0,
        threshold_scale: float = 10.0,
        **kwargs: Any,
    ) -> None:
        self.spawn_actions = tuple(int(action) for action in spawn_actions)
        self.delegation_head = bool(delegation_head)
        self._head_kwargs = {
            "initial_threshold": float(initial_threshold),
            "threshold_scale": float(threshold_scale),
        }
        # [sum of score - threshold, decisions] while collecting, where both sides were open.
        self._decisions: th.Tensor | None = None
        super().__init__(*args, **kwargs)

    @property
    def delegates(self) -> bool:
        """Whether there is a delegation head."""
        return self.delegation_head and bool(self.spawn_actions)

    def _build(self, lr_schedule: Schedule) -> None:
        if self.delegates:
            if not isinstance(self.action_space, spaces.Discrete):
                raise ValueError(f"a delegation head needs a Discrete action space, got {self.action_space}")
            # The policy's constructor has no hook for its distribution; it is used from here on only.
            self.action_dist = DelegationDistribution(int(self.action_space.n), self.spawn_actions, **self._head_kwargs)
        super()._build(lr_schedule)  # type: ignore[misc]

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """As the base class, for everything in the observation but the frame (see `frame_key`)."""
        extractor: BaseFeaturesExtractor = self.features_extractor_class(
            policy_space(self.observation_space), **self.features_extractor_kwargs
        )
        return extractor

    def extract_features(self, obs: PyTorchObs, features_extractor: BaseFeaturesExtractor | None = None) -> Any:
        """As the base class, without the frame (see `frame_key`)."""
        if isinstance(obs, dict) and has_frame(self.observation_space):
            obs = without_frame(obs)
        return super().extract_features(obs, features_extractor)  # type: ignore[misc]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data: dict[str, Any] = super()._get_constructor_parameters()  # type: ignore[misc]
        return data | {
            # Upstream leaves it out.
            "share_features_extractor": self.share_features_extractor,  # type: ignore[attr-defined]
            "spawn_actions": self.spawn_actions,
            "delegation_head": self.delegation_head,
            **self._head_kwargs,
        }

    def save(self, path: File) -> None:
        """Write the policy alone, without pickles."""
        save_policy(cast(BasePolicy, self), path)

    @classmethod
    def load(cls, path: File, device: th.device | str = "auto") -> Self:
        """Read a policy that `save` wrote; no code in the file is run.

        Raises:
            ValueError: It is another class's.
        """
        policy = load_policy(path, device)
        if not isinstance(policy, cls):
            raise ValueError(f"the file holds a {type(policy).__name__}, not a {cls.__name__}")
        return policy

    def forward(
        self, obs: Any, deterministic: bool = False, action_masks: npt.NDArray[np.bool_] | None = None
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Actions, values and log-probabilities, as the base class has them.

        Counts the decisions for the log on the way.
        """
        result: tuple[th.Tensor, th.Tensor, th.Tensor]
        result = super().forward(obs, deterministic, action_masks)  # type: ignore[misc]
        if self.delegates:
            with th.no_grad():
                open_ = self.action_dist.open
                seen = th.stack([(self.action_dist.margin * open_).sum(), open_.sum().float()])
                self._decisions = seen if self._decisions is None else self._decisions + seen
        return result

    def pop_delegation_score(self) -> float | None:
        """Mean score of the decisions since the last call in which both sides were open; None if none was."""
        decisions, self._decisions = self._decisions, None
        if decisions is None or decisions[1] == 0:
            return None
        return float(decisions[0] / decisions[1]) + self.delegation_threshold

    @property
    def delegation_threshold(self) -> float:
        """The learned threshold; set it to make a trained policy delegate more (lower) or less (higher).

        Raises:
            RuntimeError: The policy has no delegation head.
        """
        return float(self._head().threshold.detach())

    @delegation_threshold.setter
    def delegation_threshold(self, value: float) -> None:
        head = self._head()
        with th.no_grad():
            head.raw_threshold.fill_(float(value) / head.threshold_scale)

    def delegation_score(self, obs: PyTorchObs) -> th.Tensor:
        """The delegation score of observations, (batch,): compare with `delegation_threshold`."""
        features = self.extract_features(obs)
        if not self.share_features_extractor:  # type: ignore[attr-defined]
            features = features[0]
        latent = self.mlp_extractor.forward_actor(features)  # type: ignore[attr-defined]
        score: th.Tensor = self._head().score(latent).squeeze(1)
        return score

    def _head(self) -> DelegationHead:
        if not isinstance(self.action_net, DelegationHead):
            raise RuntimeError("this policy has no delegation head: its environment has no spawn actions, or delegation_head=False")
        return self.action_net

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """As the base class; without `action_masks`, those in the observation (`action_mask`) are used.

        With state transfer, `state` is that of all open frames (see `StateActing`): pass what came back.
        """
        if action_masks is None and isinstance(self.action_space, spaces.Discrete):
            action_masks = masks_from_observation(observation, int(self.action_space.n))
        predict: Any = super().predict  # type: ignore[misc]
        if not self.stateful:
            result: tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]
            result = predict(observation, state, episode_start, deterministic, action_masks)
            return result
        acting = self._acting()
        single = acting.is_single(observation)
        batch: Any = {key: np.asarray(array)[None] for key, array in cast(Any, observation).items()} if single else observation
        actions, after = acting.step(lambda shown: predict(shown, None, None, deterministic, action_masks)[0], batch, state, episode_start)
        return (actions[0] if single else actions), after

    # -- states of frames (see `rao_agents.transfer`) ------------------------------------------------

    @property
    def stateful(self) -> bool:
        """Whether the policy keeps a state for every frame."""
        return isinstance(getattr(self, "features_extractor", None), StateTransferExtractor)

    @property
    def acting_space(self) -> spaces.Space[Any]:
        """What observations `predict` reads; `observation_space`, with states, is what the network does."""
        return self._acting().layout.acting_space if self.stateful else self.observation_space

    def initial_state(self, n: int) -> State:
        """The state of `n` environments that begin: arrays with the environments on their first axis.

        Raises:
            RuntimeError: The policy keeps no states.
        """
        return self._acting().initial_state(n)

    def action_probabilities(
        self, observation: dict[str, npt.NDArray[Any]], state: Sequence[npt.NDArray[Any]], action_masks: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float32], State]:
        """Probabilities of all actions, (n, n_actions), for a batch of n observations, and the state afterwards.

        Raises:
            RuntimeError: The policy keeps no states.
        """

        def act(shown: Observations) -> npt.NDArray[np.float32]:
            policy: Any = self
            policy.set_training_mode(False)
            tensors, _ = policy.obs_to_tensor(shown)
            probabilities: npt.NDArray[np.float32] = policy.get_distribution(tensors, action_masks).distribution.probs.cpu().numpy()
            return probabilities

        return self._acting().step(act, observation, state)

    def child_state(self, state: Sequence[npt.NDArray[Any]]) -> State:
        """The state with which a detached child's first `predict` is called; see `StateActing.child_state`."""
        return self._acting().child_state(state)

    def join_state(self, state: Sequence[npt.NDArray[Any]], *children: Sequence[npt.NDArray[Any]]) -> State:
        """The state with which the parent goes on after `env.join`; see `StateActing.join_state`."""
        return self._acting().join_state(state, *children)

    def _acting(self) -> StateActing:
        extractor = getattr(self, "features_extractor", None)
        if not isinstance(extractor, StateTransferExtractor):
            raise RuntimeError("this policy keeps no states: it was made with state_transfer='none' and no memory")
        return StateActing(extractor)


class DelegationPolicy(DelegationMixin, MaskableActorCriticPolicy):
    """Maskable actor-critic with a delegation head, for plain observations (`MlpPolicy`)."""


class DelegationCnnPolicy(DelegationMixin, MaskableActorCriticCnnPolicy):
    """Maskable actor-critic with a delegation head, for images (`CnnPolicy`)."""


class MultiInputDelegationPolicy(DelegationMixin, MaskableMultiInputActorCriticPolicy):
    """Maskable actor-critic with a delegation head, for dictionary observations (`MultiInputPolicy`)."""
