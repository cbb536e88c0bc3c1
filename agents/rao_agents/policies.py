"""Policies with a delegation head (MISSION A2).

A delegation score against a learned threshold says whether to spawn, then a masked choice among the spawns or
among the primitives says what to do. The threshold may depend on the situation, and there may be several networks for
frames of different levels or roles (MISSION A11). Without spawn actions, or with `delegation_head=False`, these are
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
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, preprocess_obs
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F
from typing_extensions import Self

from rao_agents.checkpoint import File, load_policy, save_policy
from rao_agents.frame_key import FRAME_KEY, has_frame, policy_space, require_frame, without_frame
from rao_agents.rollout_buffer import check_choice
from rao_agents.specialists import SPECIALISTS, Route, RoutedModule, how_many, specialise
from rao_agents.tap import masks_from_observation
from rao_agents.transfer.acting import StateActing
from rao_agents.transfer.extractor import StateTransferExtractor
from rao_agents.transfer.tracker import Observations, State

EXCLUDED = -1e8
"""Log-probability of masked actions: exp() of it is exactly 0, and unlike -inf it gives no NaN gradients."""


THRESHOLDS = ("constant", "situation")
"""One learned number; or that number and what is learned from the situation (`call`: budgets left, the last event)."""
SITUATION_UNITS = 16
"""Hidden units of the network that moves the threshold."""


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
        situation_dim: with more than 0, the threshold depends on the situation: that many numbers, which follow the
            latent in the input. It is then the constant plus what a small network of its own makes of them.
        threshold_reach: how far the situation can move the threshold to either side.
    """

    def __init__(
        self,
        latent_dim: int,
        n_actions: int,
        initial_threshold: float = 0.0,
        threshold_scale: float = 10.0,
        situation_dim: int = 0,
        threshold_reach: float = 4.0,
    ) -> None:
        super().__init__()
        for name, value in (("threshold_scale", threshold_scale), ("threshold_reach", threshold_reach)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        self.latent_dim = latent_dim
        self.threshold_reach = threshold_reach
        self.logits = nn.Linear(latent_dim, n_actions)
        self.score = nn.Linear(latent_dim, 1, bias=False)
        self.threshold_scale = threshold_scale
        self.raw_threshold = nn.Parameter(th.full((1,), initial_threshold / threshold_scale))
        self.situation: nn.Module | None = None
        if situation_dim:
            self.situation = nn.Sequential(nn.Linear(situation_dim, SITUATION_UNITS), nn.Tanh(), nn.Linear(SITUATION_UNITS, 1))

    @property
    def threshold(self) -> th.Tensor:
        """The threshold, or its constant part, shape (1,)."""
        return self.raw_threshold * self.threshold_scale

    def thresholds(self, situation: th.Tensor) -> th.Tensor:
        """The threshold in each situation, (batch, situation_dim): (batch, 1)."""
        if self.situation is None:
            return self.threshold.expand(len(situation), 1)
        shift: th.Tensor = self.situation(situation)
        return self.threshold + self.threshold_reach * th.tanh(shift)

    def forward(self, inputs: th.Tensor) -> th.Tensor:
        """(batch, n_actions + 1): the logits, and score - threshold in the last column.

        `inputs` is the latent, (batch, latent_dim), and then the situation, where the threshold depends on it.
        """
        if self.situation is None:
            return th.cat([self.logits(inputs), self.score(inputs) - self.threshold], dim=1)
        latent, situation = inputs[:, : self.latent_dim], inputs[:, self.latent_dim :]
        return th.cat([self.logits(latent), self.score(latent) - self.thresholds(situation)], dim=1)


class DelegationDistribution(MaskableDistribution):
    """P(spawn) = sigmoid(score - threshold), then a softmax among the allowed actions of the chosen side.

    Everything (probabilities, entropy, samples) comes from one vector of joint log-probabilities, built after
    masking. Where only one side is allowed, the gate is forced and neither score nor threshold matters.

    Args:
        n_actions: primitives and spawns.
        spawn_actions: indices of the spawns, at least one.
        head_kwargs: of the `DelegationHead`.
    """

    def __init__(self, n_actions: int, spawn_actions: Sequence[int], **head_kwargs: Any) -> None:
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
        initial_threshold, threshold_scale, threshold_reach: of the `DelegationHead`.
        threshold: "constant"; or "situation": the threshold depends on some keys of the observation, and on nothing
            else. The score sees everything.
        threshold_keys: those keys.
        specialists: "none"; "level": a network for each depth, of which the last serves all that are deeper; "role": one
            for the root and one for each spawn action that opens frames. The observation has to say which frame acts
            (`observe_frame=True`).
        n_specialists: how many networks; where there are fewer than roles, the last ones share one. By default 2 levels,
            or all roles.

    Without spawn actions there are neither thresholds nor specialists.
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
        threshold: str = "constant",
        threshold_keys: Sequence[str] = ("call",),
        threshold_reach: float = 4.0,
        specialists: str = "none",
        n_specialists: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("threshold", threshold, THRESHOLDS)
        check_choice("specialists", specialists, SPECIALISTS)
        if isinstance(threshold_keys, str) or not threshold_keys:
            raise ValueError(f"threshold_keys must list at least one key of the observation, got {threshold_keys!r}")
        self.threshold = threshold
        self.threshold_keys = tuple(threshold_keys)
        self.specialists = specialists
        self.n_specialists = n_specialists
        self.spawn_actions = tuple(int(action) for action in spawn_actions)
        self.delegation_head = bool(delegation_head)
        self._head_kwargs = {
            "initial_threshold": float(initial_threshold),
            "threshold_scale": float(threshold_scale),
            "threshold_reach": float(threshold_reach),
        }
        self._route: Route | None = None
        self._situation: th.Tensor | None = None  # of the batch under way
        # [sum of score - threshold, sum of thresholds, decisions] while collecting, where both sides were open.
        self._decisions: th.Tensor | None = None
        super().__init__(*args, **kwargs)

    @property
    def delegates(self) -> bool:
        """Whether there is a delegation head."""
        return self.delegation_head and bool(self.spawn_actions)

    @property
    def situational(self) -> bool:
        """Whether the threshold depends on the situation."""
        return self.delegates and self.threshold == "situation"

    def _build(self, lr_schedule: Schedule) -> None:
        if self.delegates:
            if not isinstance(self.action_space, spaces.Discrete):
                raise ValueError(f"a delegation head needs a Discrete action space, got {self.action_space}")
            # The policy's constructor has no hook for its distribution; it is used from here on only.
            self.action_dist = DelegationDistribution(
                int(self.action_space.n), self.spawn_actions, situation_dim=self._situation_dim(), **self._head_kwargs
            )
        super()._build(lr_schedule)  # type: ignore[misc]
        if self.specialists != "none" and self.spawn_actions:
            require_frame(self.observation_space, f"specialists={self.specialists!r}")
            count = how_many(self.specialists, self.n_specialists, self.spawn_actions)
            self._route = Route(self.specialists, count, self.spawn_actions, int(cast(spaces.Discrete, self.action_space).n))
            specialise(self, self._route)
            self.optimizer = self.optimizer_class(  # type: ignore[attr-defined]
                self.parameters(),  # type: ignore[attr-defined]
                lr=lr_schedule(1),
                **self.optimizer_kwargs,  # type: ignore[attr-defined]
            )

    def _situation_dim(self) -> int:
        if not self.situational:
            return 0
        space = self.observation_space
        known = list(space.spaces) if isinstance(space, spaces.Dict) else []
        missing = [key for key in self.threshold_keys if key not in known or key == FRAME_KEY]
        if missing:
            raise ValueError(
                f"threshold='situation' looks at the keys {list(self.threshold_keys)} of the observation, and {missing} cannot be used: "
                f"the observation has the keys {[key for key in known if key != FRAME_KEY]}. Name others with "
                "policy_kwargs=dict(threshold_keys=[...])"
            )
        assert isinstance(space, spaces.Dict)
        return sum(get_flattened_obs_dim(space[key]) for key in self.threshold_keys)

    def _enter(self, obs: Any) -> Any:
        """What the networks see of `obs`. On the way, note what chooses each row's network and its threshold."""
        if self._route is not None:
            if FRAME_KEY not in obs:
                raise ValueError(
                    f"specialists act on observations with the key {FRAME_KEY!r}: make the environment with observe_frame=True"
                )
            self._route.set(obs[FRAME_KEY])
        if self.situational:
            space = cast(spaces.Dict, self.observation_space)
            parts = [cast(th.Tensor, preprocess_obs(obs[key], space[key])).flatten(start_dim=1) for key in self.threshold_keys]
            self._situation = th.cat(parts, dim=1)
        return without_frame(obs) if has_frame(self.observation_space) else obs

    def _get_action_dist_from_latent(self, latent_pi: th.Tensor) -> Any:
        if self.situational:
            assert self._situation is not None
            latent_pi = th.cat([latent_pi, self._situation], dim=1)
        return super()._get_action_dist_from_latent(latent_pi)  # type: ignore[misc]

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """As the base class, for everything in the observation but the frame (see `frame_key`)."""
        extractor: BaseFeaturesExtractor = self.features_extractor_class(
            policy_space(self.observation_space), **self.features_extractor_kwargs
        )
        return extractor

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data: dict[str, Any] = super()._get_constructor_parameters()  # type: ignore[misc]
        return data | {
            # Upstream leaves it out.
            "share_features_extractor": self.share_features_extractor,  # type: ignore[attr-defined]
            "spawn_actions": self.spawn_actions,
            "delegation_head": self.delegation_head,
            **self._head_kwargs,
            "threshold": self.threshold,
            "threshold_keys": self.threshold_keys,
            "specialists": self.specialists,
            "n_specialists": self.n_specialists,
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
        result = super().forward(self._enter(obs), deterministic, action_masks)  # type: ignore[misc]
        if self.delegates:
            with th.no_grad():
                open_ = self.action_dist.open
                thresholds = (self._thresholds(open_) * open_).sum() if self._varied else open_.new_zeros((), dtype=th.float32)
                seen = th.stack([(self.action_dist.margin * open_).sum(), thresholds, open_.sum().float()])
                self._decisions = seen if self._decisions is None else self._decisions + seen
        return result

    def evaluate_actions(
        self, obs: Any, actions: th.Tensor, action_masks: th.Tensor | None = None
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """As the base class."""
        result: tuple[th.Tensor, th.Tensor, th.Tensor | None]
        result = super().evaluate_actions(self._enter(obs), actions, action_masks)  # type: ignore[misc]
        return result

    def get_distribution(self, obs: Any, action_masks: npt.NDArray[np.bool_] | None = None) -> MaskableDistribution:
        """As the base class."""
        result: MaskableDistribution = super().get_distribution(self._enter(obs), action_masks)  # type: ignore[misc]
        return result

    def predict_values(self, obs: Any) -> th.Tensor:
        """As the base class."""
        result: th.Tensor = super().predict_values(self._enter(obs))  # type: ignore[misc]
        return result

    # -- the threshold -----------------------------------------------------------------------------

    @property
    def _varied(self) -> bool:
        """Whether there is more than one threshold."""
        return self.situational or self._route is not None

    def pop_delegation_figures(self) -> tuple[float, float] | None:
        """Mean score and mean threshold of the decisions since the last call in which both sides were open; None if none was."""
        decisions, self._decisions = self._decisions, None
        if decisions is None or decisions[2] == 0:
            return None
        threshold = float(decisions[1] / decisions[2]) if self._varied else self.delegation_threshold
        return float(decisions[0] / decisions[2]) + threshold, threshold

    def pop_delegation_score(self) -> float | None:
        """Mean score of the decisions since the last call in which both sides were open; None if none was."""
        figures = self.pop_delegation_figures()
        return None if figures is None else figures[0]

    @property
    def delegation_threshold(self) -> float:
        """The learned threshold; set it to make a trained policy delegate more (lower) or less (higher).

        Where it depends on the situation this is its constant part, and of specialists the mean of theirs: setting it moves
        the thresholds of all situations and specialists alike. See `delegation_thresholds`.

        Raises:
            RuntimeError: The policy has no delegation head.
        """
        return float(th.stack([head.threshold.detach() for head in self._heads()]).mean())

    @delegation_threshold.setter
    def delegation_threshold(self, value: float) -> None:
        heads = self._heads()
        shift = float(value) - self.delegation_threshold
        with th.no_grad():
            for head in heads:
                new = float(value) if len(heads) == 1 else float(head.threshold) + shift
                head.raw_threshold.fill_(new / head.threshold_scale)

    def delegation_score(self, obs: PyTorchObs) -> th.Tensor:
        """The delegation score of observations, (batch,): compare with `delegation_thresholds`."""
        features = self.extract_features(self._enter(obs))  # type: ignore[attr-defined]
        if not self.share_features_extractor:  # type: ignore[attr-defined]
            features = features[0]
        latent = self.mlp_extractor.forward_actor(features)  # type: ignore[attr-defined]
        return self._by_head([head.score for head in self._heads()], latent).squeeze(1)

    def delegation_thresholds(self, obs: PyTorchObs) -> th.Tensor:
        """The threshold that each observation's score is compared with, (batch,)."""
        self._enter(obs)
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        return self._thresholds(first).squeeze(1)

    def _thresholds(self, batch: th.Tensor) -> th.Tensor:
        """The thresholds of the batch under way, (batch, 1); `batch` has as many rows."""
        situation = batch if self._situation is None else self._situation
        return self._by_head([head.thresholds for head in self._heads()], situation)

    def _by_head(self, functions: Sequence[Any], inputs: th.Tensor) -> th.Tensor:
        result: th.Tensor = functions[0](inputs) if self._route is None else self._route.run(functions, inputs)
        return result

    def _heads(self) -> list[DelegationHead]:
        """The delegation heads: one, or each specialist's."""
        if not self.delegates:
            raise RuntimeError("this policy has no delegation head: its environment has no spawn actions, or delegation_head=False")
        nets = self.action_net.specialists if isinstance(self.action_net, RoutedModule) else [self.action_net]
        return [cast(DelegationHead, net) for net in nets]

    @property
    def networks(self) -> int:
        """How many specialists there are; 1 where one network acts in all frames."""
        return 1 if self._route is None else self._route.n

    def specialist(self, obs: PyTorchObs) -> th.Tensor:
        """Which specialist acts on each observation, long (batch,); 0 where there is but one network."""
        if self._route is None:
            first = next(iter(obs.values())) if isinstance(obs, dict) else obs
            return th.zeros(len(first), dtype=th.long, device=first.device)
        return self._route.of(cast(dict[str, th.Tensor], obs)[FRAME_KEY])

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
        batch: Any = observation
        if single:
            batch = {key: np.asarray(array)[None] for key, array in batch.items()}
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
