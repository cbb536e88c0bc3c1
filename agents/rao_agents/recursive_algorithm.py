"""What RecursivePPO and RecursiveA2C share: all but the update (MISSION A1, A2, A4, A5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import FloatSchedule, obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import Self

from rao_agents import checkpoint, schedules
from rao_agents.checkpoint import File, load_safely, save_safely
from rao_agents.frame_key import FRAME_KEY
from rao_agents.policies import (
    THRESHOLDS,
    DelegationCnnPolicy,
    DelegationMixin,
    DelegationPolicy,
    MultiInputDelegationPolicy,
)
from rao_agents.repeat_tasks import repeated_tasks
from rao_agents.rollout_buffer import (
    ADVANTAGES,
    BONUS_FORMS,
    CREDITS,
    FrameDictRolloutBuffer,
    FrameRolloutBuffer,
    FrameRolloutBufferMixin,
    check_choice,
)
from rao_agents.schedules import Schedule
from rao_agents.specialists import SPECIALISTS, how_many
from rao_agents.tap import FrameTap, ObservationMasks, masks_from_observation
from rao_agents.training_state import set_training_state, training_state
from rao_agents.transfer.extractor import StateTransferExtractor
from rao_agents.transfer.layout import MODES, Layout, TransferOptions
from rao_agents.transfer.layout import check_options as check_transfer
from rao_agents.transfer.tracker import Carry, State
from rao_agents.transfer.vec_env import StateTransferVecEnv

AnySchedule = float | str | Mapping[str, Any] | Schedule
"""What a scheduled parameter takes; see `schedules.parse`."""

CRITIC_METRICS = ("train/value_loss", "train/explained_variance")
"""What says nothing where there is no critic."""

PRICES = ("frame_price", "level_price")
"""What a frame may be charged for the children it opens."""

SPAWN_ACTIONS = "spawn_actions"
"""The environment's attribute that lists its spawn actions."""


class RecursiveAlgorithm(MaskablePPO):
    """An actor-critic for agents that spawn copies of themselves: `RecursivePPO` and `RecursiveA2C`.

    For environments that follow the spawn protocol. One policy acts in every frame, and every frame is a
    trajectory of its own: its transitions jump over what its children do. The step budget is part of the
    observation, so running out of it is an end like any other. What waits for something at a rollout's end (a
    pending spawn for its child, say) is carried into the next.

    **Rewards.** The environment's reward is the root frame's. A child's is its local outcome when it returns.
    Each frame pays `step_cost` for its own decisions and earns `delegation_bonus` times the average success of
    its direct children, once, at its end. For every child that it opens it pays `frame_price`, and `level_price` times
    the child's depth, at the step at which the child opens.

    **Credit.** Which of these rewards a decision answers for:

    - `credit="node"`: those of its own frame.
    - `credit="tree"`: those of its own frame and of all its ancestors. When its frame ends, the return goes on
      with the parent's: it is bootstrapped with the parent's value after the return.
    - `credit="root"`: the environment's reward alone, for every frame; no step costs, local outcomes or bonus. The
      prices of all frames of the tree, if there are any, are taken off it.

    **Advantages.** `advantage="gae"` is generalised advantage estimation with the critic. `advantage="rloo"`
    compares every rollout with the other rollouts of the same root task and has no critic (the value head is
    not trained); it needs an environment that repeats its tasks (`make_vec_env(..., repeats=4)`, or
    `RepeatTasks` around any other), and learns from a task when all its rollouts have ended.

    **State transfer.** With `state_transfer` ("summary", "hidden" or "attention"), and with an external memory, a
    frame gets more from its parent and its children than the environment hands on; see `rao_agents.transfer` and
    `StateTransferExtractor`. The environment must be made with `observe_frame=True`.

    On an environment without spawn actions (its attribute `spawn_actions` is missing or empty) these are the
    algorithms they build on: the same network, updates and numbers. Only `advantage="rloo"` makes a difference
    there. Masks are used wherever the environment has them (`action_masks`, or the key `action_mask` in its
    observation), in `predict` too.

    Model files hold no pickles; see `rao_agents.checkpoint`.

    Logged besides what the base class logs (with "rloo", without what concerns the critic):

    - `delegation/score`: mean delegation score over the rollout's decisions in which both spawning and a
      primitive were allowed
    - `delegation/threshold`: the learned threshold it is compared with; of several (`threshold="situation"`,
      specialists) the mean over those decisions
    - `delegation/rate`: share of those decisions that spawned
    - `delegation/open`: share of all decisions that they are
    - `frames/transitions`: completed transitions the update learns from
    - `frames/carried`: decisions carried into the next rollout
    - `frames/depth_mean`, `frames/depth_max`: depth of the frames that acted
    - `frames/child_success`: share of the children that returned with success
    - `frames/frame_price`, `frames/level_price`: the prices in use, where there are any
    - `specialists/<number>`: share of the decisions that this specialist took
    - `train/ent_coef`: the entropy coefficient in use

    Args:
        step_cost: what each decision costs the frame that takes it.
        delegation_bonus: paid to a frame at its end, once, times the average success of its direct children.
        delegation_bonus_form: "average"; or "sum", times the number of children that succeeded, which is there for
            comparison: it is farmed by spawning easy children for ever.
        depth_weighting: exponent >= 0 of the weights that keep populous levels from drowning the root; 0 for
            none, 1 gives every level the same total weight.
        delegation_head: whether the policy has a delegation score and a learned threshold; False for a plain
            masked softmax over all actions.
        credit: "node", "tree" or "root".
        advantage: "gae" or "rloo".
        frame_price: what a frame pays for each child that it opens, at least 0: a number, or a schedule, as prices are best
            raised once children are worth their price.
        level_price: what it pays besides, times the child's depth; likewise.
        threshold: "constant"; or "situation", a threshold that depends on the observation's `call` (budgets left, the last
            event) and on nothing else.
        specialists: "none", "level" or "role": one network for all frames, or several for frames of different depths, or
            for frames opened by different spawn actions; see `DelegationMixin`. Needs `observe_frame=True`.
        n_specialists: how many networks; None for 2 levels, or all roles.
        state_transfer: "none", "summary", "hidden" or "attention".
        state_transfer_kwargs: `dim` (64), `slots` (8, for "attention"), `memory` (0 slots: none) and `back` (True: a
            child's state goes back to its parent too); see `TransferOptions`.
        base: parameters of `MaskablePPO`, whose `learning_rate`, `clip_range` and `clip_range_vf`, and here also
            `ent_coef`, may be anything that `schedules.parse` takes. `seed` is also that of the order of
            minibatches, which has a generator of its own here.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": cast(type[BasePolicy], DelegationPolicy),
        "CnnPolicy": cast(type[BasePolicy], DelegationCnnPolicy),
        "MultiInputPolicy": cast(type[BasePolicy], MultiInputDelegationPolicy),
    }
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "credit": tuple(CREDITS),
        "advantage": ADVANTAGES,
        "delegation_bonus_form": BONUS_FORMS,
        "threshold": THRESHOLDS,
        "specialists": SPECIALISTS,
        "state_transfer": MODES,
    }
    """Arguments that are one of a few words, with these."""
    ent_coef: Any

    def __init__(
        self,
        policy: str | type[MaskableActorCriticPolicy],
        env: GymEnv | str,
        *,
        step_cost: float,
        delegation_bonus: float,
        delegation_bonus_form: str,
        depth_weighting: float,
        delegation_head: bool,
        credit: str,
        advantage: str,
        frame_price: AnySchedule,
        level_price: AnySchedule,
        threshold: str,
        specialists: str,
        n_specialists: int | None,
        state_transfer: str = "none",
        state_transfer_kwargs: Mapping[str, Any] | None = None,
        learning_rate: AnySchedule,
        clip_range: AnySchedule = 0.2,
        clip_range_vf: AnySchedule | None = None,
        ent_coef: AnySchedule,
        **base: Any,
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate=schedules.parse(learning_rate),
            clip_range=schedules.parse(clip_range),
            clip_range_vf=None if clip_range_vf is None else schedules.parse(clip_range_vf),
            ent_coef=cast(float, schedules.parse(ent_coef)),
            **base,
            _init_setup_model=False,
        )
        self.step_cost = step_cost
        self.delegation_bonus = delegation_bonus
        self.delegation_bonus_form = delegation_bonus_form
        self.depth_weighting = depth_weighting
        self.delegation_head = bool(delegation_head)
        self.credit = credit
        self.advantage = advantage
        self.frame_price: Any = frame_price
        self.level_price: Any = level_price
        self.threshold = threshold
        self.specialists = specialists
        self.n_specialists = n_specialists
        self.state_transfer = state_transfer
        check_transfer(state_transfer, state_transfer_kwargs)
        self.state_transfer_kwargs = dict(state_transfer_kwargs or {})
        self.spawn_actions: tuple[int, ...] = ()
        self._tap: FrameTap | None = None
        self._states: StateTransferVecEnv | None = None
        self.check_options()

    def check_options(self) -> None:
        """Check the options that this class adds; files are checked like arguments.

        Raises:
            ValueError: One of them has a value that it cannot have.
        """
        for name in ("step_cost", "delegation_bonus", "depth_weighting"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
            setattr(self, name, float(value))
        if self.depth_weighting < 0:
            raise ValueError(f"depth_weighting must be at least 0, got {self.depth_weighting}")
        for name in PRICES:
            try:
                price = schedules.parse(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name} must be a number or a schedule: {error}") from error
            if not all(0.0 <= at(price, progress) < math.inf for progress in np.linspace(0.0, 1.0, 101)):
                raise ValueError(f"{name} must be at least 0 and finite throughout, got {getattr(self, name)}")
            setattr(self, name, price)
        how_many("level", self.n_specialists, ())  # the roles are known with the environment
        if self.n_specialists is not None and self.specialists == "none":
            raise ValueError(f"n_specialists={self.n_specialists} means nothing without specialists: set specialists='level' or 'role'")
        if self.threshold == "situation" and not self.delegation_head:
            raise ValueError("threshold='situation' means nothing without a delegation head: leave delegation_head=True")
        for name in ("n_steps", "n_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None for whole rollouts, got {self.batch_size}")
        for name, known in self.choices.items():
            check_choice(name, getattr(self, name), known)
        check_transfer(self.state_transfer, self.state_transfer_kwargs)

    @property
    def transfer_options(self) -> TransferOptions:
        """How states are handed on."""
        return check_transfer(self.state_transfer, self.state_transfer_kwargs)

    @property
    def recursive(self) -> bool:
        """Whether the environment has spawn actions."""
        return bool(self.spawn_actions)

    @property
    def by_frames(self) -> bool:
        """Whether rollouts are kept by frames; otherwise everything is the base class's."""
        return self.recursive or self.advantage == "rloo"

    # -- setting up --------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        if self.env is not None:
            found = find_spawn_actions(self.env)
            if self.spawn_actions and found != self.spawn_actions:  # a loaded model
                raise ValueError(_other_spawns(found, self.spawn_actions))
            self.spawn_actions = found
            self._check_repeats(self.env)
        self.check_options()
        self.ent_coef_schedule = FloatSchedule(self.ent_coef)
        policy_kwargs, buffer_kwargs, space = self.policy_kwargs, self.rollout_buffer_kwargs, self.observation_space
        self._check_policy()
        if self.transfer_options.active:
            self._add_states()
        if issubclass(self.policy_class, DelegationMixin):
            self.policy_kwargs = {
                **self.policy_kwargs,
                SPAWN_ACTIONS: self.spawn_actions,
                "delegation_head": self.delegation_head,
                "threshold": self.threshold,
                "specialists": self.specialists,
                "n_specialists": self.n_specialists,
            }
        if self.by_frames:
            self._choose_frame_buffer()
            self.rollout_buffer_kwargs = {
                "depth_weighting": self.depth_weighting,
                "credit": self.credit,
                "advantage": self.advantage,
                "seed": self.seed,
                **buffer_kwargs,
            }
        try:
            super()._setup_model()
        finally:
            # The environment and the attributes say these; kept here as the user gave them.
            self.policy_kwargs, self.rollout_buffer_kwargs, self.observation_space = policy_kwargs, buffer_kwargs, space
        self._tap = self._states = None
        if isinstance(self.rollout_buffer, FrameRolloutBufferMixin):
            self.rollout_buffer.value_function = self._values

    def _check_policy(self) -> None:
        """Refuse what another package's policy would pass over in silence."""
        if issubclass(self.policy_class, DelegationMixin):
            return
        for name, unset in (("threshold", "constant"), ("specialists", "none")):
            if getattr(self, name) != unset:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} needs a policy of this package (MultiInputPolicy), got {self.policy_class.__name__}"
                )

    def _add_states(self) -> None:
        """Let the policy and the buffer about to be made see states: another observation, and an extractor around theirs."""
        if not issubclass(self.policy_class, DelegationMixin):
            raise ValueError(f"state transfer needs a policy of this package (MultiInputPolicy), got {self.policy_class.__name__}")
        layout = Layout.around(self.observation_space, self.transfer_options)
        self.observation_space = layout.augmented
        self.policy_kwargs = {
            **self.policy_kwargs,
            "features_extractor_class": StateTransferExtractor,
            "features_extractor_kwargs": {
                "inner_class": self.policy_kwargs.get("features_extractor_class", CombinedExtractor),
                "inner_kwargs": self.policy_kwargs.get("features_extractor_kwargs"),
                **self.transfer_options._asdict(),
            },
        }

    def _choose_frame_buffer(self) -> None:
        if self.rollout_buffer_class is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            self.rollout_buffer_class = FrameDictRolloutBuffer if is_dict else FrameRolloutBuffer
        elif not issubclass(self.rollout_buffer_class, FrameRolloutBufferMixin):
            raise ValueError(
                "spawn actions, and advantage='rloo', need a rollout buffer that keeps frames apart; "
                f"{self.rollout_buffer_class.__name__} does not build on FrameRolloutBufferMixin"
            )

    def _check_repeats(self, env: VecEnv) -> None:
        if self.advantage == "rloo" and repeated_tasks(env) is None:
            raise ValueError(
                "advantage='rloo' compares rollouts of the same root task, and this environment never repeats one: "
                "make it with rao_agents.make_vec_env(..., repeats=4), or put rao_agents.RepeatTasks(venv, 4) around it"
            )

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Train on `env` from now on; see the base class.

        Raises:
            ValueError: Its spawn actions are not those of the model, or it does not repeat tasks and must.
        """
        wrapped = self._wrap_env(env, self.verbose)
        found = find_spawn_actions(wrapped)
        if found != self.spawn_actions:
            raise ValueError(_other_spawns(found, self.spawn_actions))
        self._check_repeats(wrapped)
        super().set_env(wrapped, force_reset)
        self._tap = self._states = None

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed every generator that training draws from."""
        super().set_random_seed(seed)
        buffer = getattr(self, "rollout_buffer", None)
        if seed is not None and isinstance(buffer, FrameRolloutBufferMixin):
            buffer.seed(seed)

    def with_states(self, env: VecEnv) -> VecEnv:
        """`env` with states in its observations, where they are handed on; one wrapper for as long as `env` stays."""
        if not self.transfer_options.active:
            return env
        if self._states is None or self._states.venv is not env:
            self._states = StateTransferVecEnv(env, Layout.around(env.observation_space, self.transfer_options), self._carry)
        return self._states

    def _carry(self) -> Carry:
        """What the policy's latest forward pass leaves."""
        return cast(StateTransferExtractor, self.policy.features_extractor).carry

    def frame_tap(self, env: VecEnv) -> FrameTap:
        """The tap between `env` and the rollout buffer; one for as long as both stay."""
        env = self.with_states(env)
        buffer = self.rollout_buffer
        assert isinstance(buffer, FrameRolloutBufferMixin)
        if self._tap is None or self._tap.venv is not env or self._tap.buffer is not buffer:
            self._tap = FrameTap(env, buffer, recursive=self.recursive)
        if self.recursive:  # otherwise the environment's reward is all there is
            self._tap.step_cost, self._tap.delegation_bonus = self.step_cost, self.delegation_bonus
            self._tap.bonus_form = self.delegation_bonus_form
            self._tap.frame_price, self._tap.level_price = (at(getattr(self, name), self._current_progress_remaining) for name in PRICES)
        return self._tap

    # -- training ----------------------------------------------------------------------------------

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """The base class's, with the tap between it and an environment whose frames are kept apart."""
        if not isinstance(rollout_buffer, FrameRolloutBufferMixin):
            env = self.with_states(env)
            if use_masking and not is_masking_supported(env):
                use_masking = ObservationMasks.possible(env.observation_space, env.action_space)
                if use_masking:
                    env = ObservationMasks(env)
                    env.latest = self._last_obs
            return self._collect(env, callback, rollout_buffer, n_rollout_steps, use_masking)
        tap = self.frame_tap(env)
        tap.begin(self._last_obs)
        if isinstance(self.policy, DelegationMixin):
            self.policy.pop_delegation_score()
        use_masking = use_masking and tap.has_attr("action_masks")
        complete = self._collect(tap, callback, rollout_buffer, n_rollout_steps, use_masking)
        tap.end(self._last_obs)
        if complete:
            self._record_rollout(rollout_buffer)
        return complete

    def _collect(self, env: VecEnv, callback: BaseCallback, buffer: RolloutBuffer, n_steps: int, use_masking: bool) -> bool:
        """The base class's own, from an observation with states; between rollouts, `_last_obs` is the environment's."""
        if self._states is None:
            return super().collect_rollouts(env, callback, buffer, n_steps, use_masking)
        self._last_obs = cast(Any, self._states.begin(self._last_obs))
        try:
            return super().collect_rollouts(env, callback, buffer, n_steps, use_masking)
        finally:
            self._last_obs = self._states.raw

    def _record_rollout(self, buffer: FrameRolloutBufferMixin) -> None:
        figures = buffer.statistics() | (self._delegation(buffer) | self._shares(buffer) if self.recursive else {})
        if self._tap is not None:
            figures |= {f"frames/{name}": getattr(self._tap, name) for name in PRICES if getattr(self, name) != 0.0}
        for name, value in figures.items():
            self.logger.record(name, value)

    def _delegation(self, buffer: FrameRolloutBufferMixin) -> dict[str, float]:
        masks = buffer.flat_masks[: buffer.n_step_rows]
        spawns = np.zeros(masks.shape[1], np.bool_)
        spawns[list(self.spawn_actions)] = True
        open_ = masks[:, spawns].any(axis=1) & masks[:, ~spawns].any(axis=1)
        figures = {"delegation/open": float(open_.mean())}
        if open_.any():
            figures["delegation/rate"] = float(spawns[buffer.flat_actions[: buffer.n_step_rows, 0]][open_].mean())
        if isinstance(self.policy, DelegationMixin) and self.policy.delegates:
            figures["delegation/threshold"] = self.policy.delegation_threshold
            seen = self.policy.pop_delegation_figures()
            if seen is not None:
                figures["delegation/score"], figures["delegation/threshold"] = seen
        return figures

    def _shares(self, buffer: FrameRolloutBufferMixin) -> dict[str, float]:
        """How much each specialist acted."""
        if not isinstance(self.policy, DelegationMixin) or self.policy.networks == 1:
            return {}
        frames = {FRAME_KEY: th.as_tensor(buffer.flat_observations[FRAME_KEY][: buffer.n_step_rows])}
        shares = np.bincount(self.policy.specialist(frames).numpy(), minlength=self.policy.networks) / buffer.n_step_rows
        return {f"specialists/{number}": float(share) for number, share in enumerate(shares)}

    def train(self) -> None:
        """Learn from the rollout buffer: the base class's update, with a scheduled entropy coefficient.

        Nothing is done where no transition is complete yet.
        """
        given = self.ent_coef, self.normalize_advantage, self.vf_coef
        self.ent_coef = self.ent_coef_schedule(self._current_progress_remaining)
        self.logger.record("train/ent_coef", self.ent_coef)
        buffer, ready = self.rollout_buffer, True
        if isinstance(buffer, FrameRolloutBufferMixin):
            # The buffer does it, once over all rows: minibatches of sparse rewards are too uneven for it.
            buffer.normalize_advantage = self.normalize_advantage
            buffer.depth_weighting = self.depth_weighting
            self.normalize_advantage = False
            ready = bool(buffer.valid.any())
            if self.advantage == "rloo":
                self.vf_coef = 0.0  # its gradient is 0, and the optimisers leave the value head alone
        try:
            if ready:
                self._update()
        finally:
            self.ent_coef, self.normalize_advantage, self.vf_coef = given
        if self.advantage == "rloo":
            for name in CRITIC_METRICS:
                self.logger.name_to_value.pop(name, None)

    def _update(self) -> None:
        """The update itself, from the rollout buffer."""
        raise NotImplementedError

    def _values(self, observations: npt.NDArray[Any] | dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Values of a batch of observations under the current network, (batch,)."""
        with th.no_grad():
            values = self.policy.predict_values(obs_as_tensor(observations, self.device))
        return cast(npt.NDArray[np.float32], values.cpu().numpy().reshape(-1))

    # -- acting ------------------------------------------------------------------------------------

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """Actions for one observation or a batch of them, and the state of all open frames (without transfer: as it came).

        Pass the state that came back with the next observations, and `episode_start` where an episode begins. Without
        `action_masks`, those in the observation (`action_mask`) are used.
        """
        if action_masks is None and isinstance(self.action_space, spaces.Discrete):
            action_masks = masks_from_observation(observation, int(self.action_space.n))
        return super().predict(observation, state, episode_start, deterministic, action_masks)

    def child_state(self, state: tuple[npt.NDArray[Any], ...]) -> State:
        """The state with which a detached child (`env.unwrapped.spawn`) is begun; see `StateActing.child_state`.

        Raises:
            RuntimeError: The model hands no states on.
        """
        return cast(DelegationMixin, self.policy).child_state(state)

    def join_state(self, state: tuple[npt.NDArray[Any], ...], *children: tuple[npt.NDArray[Any], ...]) -> State:
        """The state with which the parent goes on after `env.unwrapped.join`; see `StateActing.join_state`.

        Raises:
            RuntimeError: The model hands no states on.
            ValueError: No child, or states that are not of children of this spawn.
        """
        return cast(DelegationMixin, self.policy).join_state(state, *children)

    # -- files -------------------------------------------------------------------------------------

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_tap", "_states"]

    def save(  # type: ignore[override]
        self, path: File, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> None:
        """Write the model; see `rao_agents.checkpoint.save_safely`."""
        save_safely(self, path, exclude=exclude or (), include=include or ())

    @classmethod
    def load(  # type: ignore[override]
        cls,
        path: File,
        env: GymEnv | None = None,
        device: th.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        allow_pickle: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Read a model; see `rao_agents.checkpoint.load_safely`.

        No code in the file is run unless `allow_pickle` is set.
        """
        if print_system_info:
            print(checkpoint.saved_versions(path))  # noqa: T201  # what the argument asks for
        return load_safely(
            path,
            env,
            algorithm=cls,
            device=device,
            custom_objects=custom_objects,
            force_reset=force_reset,
            allow_pickle=allow_pickle,
            **kwargs,
        )

    def training_state(self) -> dict[str, Any]:
        """What going on exactly needs besides the model file; see `rao_agents.training_state`."""
        return training_state(self)

    def set_training_state(self, state: Mapping[str, Any]) -> None:
        """Put a state from `training_state` back, in the environment too."""
        set_training_state(self, state)


def at(value: Any, progress_remaining: float) -> float:
    """A number, or what a schedule says at this progress (1 to 0)."""
    return float(value(progress_remaining) if callable(value) else value)


def find_spawn_actions(env: VecEnv) -> tuple[int, ...]:
    """The spawn actions that the environments in `env` declare; empty where they declare none.

    Raises:
        ValueError: They are not indices of a Discrete action space, or not the same in all environments.
    """
    if not env.has_attr(SPAWN_ACTIONS):
        return ()
    each = {tuple(int(action) for action in np.asarray(found).reshape(-1)) for found in env.get_attr(SPAWN_ACTIONS)}
    if len(each) != 1:
        raise ValueError(f"the environments declare different spawn actions: {sorted(each)}")
    (actions,) = each
    if actions:
        space = env.action_space
        if not isinstance(space, spaces.Discrete) or space.start != 0:
            raise ValueError(f"spawn actions need a Discrete action space that starts at 0, got {space}")
        if len(set(actions)) != len(actions) or min(actions) < 0 or max(actions) >= space.n:
            raise ValueError(f"spawn_actions must be different indices of {space}, got {list(actions)}")
    return actions


def _other_spawns(found: tuple[int, ...], own: tuple[int, ...]) -> str:
    return f"the environment's spawn actions are {list(found)}, the model was made for {list(own)}"
