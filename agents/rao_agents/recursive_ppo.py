"""RecursivePPO: PPO for agents that spawn copies of themselves (MISSION A1, A2, A4, A5)."""

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
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.utils import FloatSchedule, obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import Self

from rao_agents import checkpoint, schedules
from rao_agents.checkpoint import File, load_safely, register_algorithm, save_safely
from rao_agents.policies import (
    DelegationCnnPolicy,
    DelegationMixin,
    DelegationPolicy,
    MultiInputDelegationPolicy,
)
from rao_agents.rollout_buffer import FrameDictRolloutBuffer, FrameRolloutBuffer, FrameRolloutBufferMixin
from rao_agents.schedules import Schedule
from rao_agents.tap import FrameTap, ObservationMasks, masks_from_observation
from rao_agents.training_state import set_training_state, training_state

AnySchedule = float | str | Mapping[str, Any] | Schedule
"""What a scheduled parameter takes; see `schedules.parse`."""

SPAWN_ACTIONS = "spawn_actions"
"""The environment's attribute that lists its spawn actions."""


@register_algorithm
class RecursivePPO(MaskablePPO):
    """PPO in which every frame of the recursion is a trajectory of its own.

    For environments that follow the spawn protocol. One policy acts in every frame. A frame's reward is its
    own: the root's is the environment's reward; a child's is its local outcome when it returns; each pays
    `step_cost` for its own decisions and earns `delegation_bonus` times the average success of its children.
    A frame's transition jumps over what its children do. Spawns that are pending when a rollout ends are
    carried into the next. The step budget is part of the observation, so running out of it is an end like any
    other.

    On an environment without spawn actions (its attribute `spawn_actions` is missing or empty) this is
    `MaskablePPO`: the same network, updates and numbers. Masks are used wherever the environment has them
    (`action_masks`, or the key `action_mask` in its observation), in `predict` too.

    Model files hold no pickles; see `rao_agents.checkpoint`.

    Logged besides what `MaskablePPO` logs:

    - `delegation/score`: mean delegation score over the rollout's decisions in which both spawning and a
      primitive were allowed
    - `delegation/threshold`: the learned threshold it is compared with
    - `delegation/rate`: share of those decisions that spawned
    - `delegation/open`: share of all decisions that they are
    - `frames/transitions`: completed transitions the update learns from
    - `frames/carried`: pending spawns carried into the next rollout
    - `frames/depth_mean`, `frames/depth_max`: depth of the frames that acted
    - `frames/child_success`: share of the children that returned with success
    - `train/ent_coef`: the entropy coefficient in use

    Parameters besides those of `MaskablePPO`, whose `learning_rate`, `clip_range` and `clip_range_vf`, and
    here also `ent_coef`, may be anything that `schedules.parse` takes:

    Args:
        step_cost: what each decision costs the frame that takes it.
        delegation_bonus: paid to a frame at its end, once, times the average success of its direct children.
        depth_weighting: exponent >= 0 of the weights that keep populous levels from drowning the root; 0 for
            none, 1 gives every level the same total weight.
        delegation_head: whether the policy has a delegation score and a learned threshold; False for a plain
            masked softmax over all actions.
        seed: also of the order of minibatches, which has a generator of its own here.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": cast(type[BasePolicy], DelegationPolicy),
        "CnnPolicy": cast(type[BasePolicy], DelegationCnnPolicy),
        "MultiInputPolicy": cast(type[BasePolicy], MultiInputDelegationPolicy),
    }
    ent_coef: Any

    def __init__(
        self,
        policy: str | type[MaskableActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: AnySchedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int | None = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: AnySchedule = 0.2,
        clip_range_vf: AnySchedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: AnySchedule = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        step_cost: float = 0.01,
        delegation_bonus: float = 0.0,
        depth_weighting: float = 0.0,
        delegation_head: bool = True,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        for name, value in (
            ("step_cost", step_cost),
            ("delegation_bonus", delegation_bonus),
            ("depth_weighting", depth_weighting),
        ):
            if not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        if depth_weighting < 0:
            raise ValueError(f"depth_weighting must be at least 0, got {depth_weighting}")
        for name, count in (("n_steps", n_steps), ("n_epochs", n_epochs)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None for whole rollouts, got {batch_size}")
        super().__init__(
            policy,
            env,
            learning_rate=schedules.parse(learning_rate),
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_range=schedules.parse(clip_range),
            clip_range_vf=None if clip_range_vf is None else schedules.parse(clip_range_vf),
            normalize_advantage=normalize_advantage,
            ent_coef=cast(float, schedules.parse(ent_coef)),
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            target_kl=target_kl,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.step_cost = float(step_cost)
        self.delegation_bonus = float(delegation_bonus)
        self.depth_weighting = float(depth_weighting)
        self.delegation_head = bool(delegation_head)
        self.spawn_actions: tuple[int, ...] = ()
        self._tap: FrameTap | None = None
        if _init_setup_model:
            self._setup_model()

    @property
    def recursive(self) -> bool:
        """Whether the environment has spawn actions."""
        return bool(self.spawn_actions)

    # -- setting up --------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        if self.env is not None:
            found = find_spawn_actions(self.env)
            if self.spawn_actions and found != self.spawn_actions:  # a loaded model
                raise ValueError(_other_spawns(found, self.spawn_actions))
            self.spawn_actions = found
        self.ent_coef_schedule = FloatSchedule(self.ent_coef)
        policy_kwargs, buffer_kwargs = self.policy_kwargs, self.rollout_buffer_kwargs
        if issubclass(self.policy_class, DelegationMixin):
            self.policy_kwargs = {
                **policy_kwargs,
                SPAWN_ACTIONS: self.spawn_actions,
                "delegation_head": self.delegation_head,
            }
        if self.recursive:
            self._choose_frame_buffer()
            self.rollout_buffer_kwargs = {
                "depth_weighting": self.depth_weighting,
                "seed": self.seed,
                **buffer_kwargs,
            }
        try:
            super()._setup_model()
        finally:
            # The environment and the attributes say these; kept here as the user gave them.
            self.policy_kwargs, self.rollout_buffer_kwargs = policy_kwargs, buffer_kwargs
        self._tap = None
        if isinstance(self.rollout_buffer, FrameRolloutBufferMixin):
            self.rollout_buffer.value_function = self._values

    def _choose_frame_buffer(self) -> None:
        if self.rollout_buffer_class is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            self.rollout_buffer_class = FrameDictRolloutBuffer if is_dict else FrameRolloutBuffer
        elif not issubclass(self.rollout_buffer_class, FrameRolloutBufferMixin):
            raise ValueError(
                "an environment with spawn actions needs a rollout buffer that keeps frames apart; "
                f"{self.rollout_buffer_class.__name__} does not build on FrameRolloutBufferMixin"
            )

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Train on `env` from now on; see the base class.

        Raises:
            ValueError: Its spawn actions are not those of the model.
        """
        wrapped = self._wrap_env(env, self.verbose)
        found = find_spawn_actions(wrapped)
        if found != self.spawn_actions:
            raise ValueError(_other_spawns(found, self.spawn_actions))
        super().set_env(wrapped, force_reset)
        self._tap = None

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed every generator that training draws from."""
        super().set_random_seed(seed)
        buffer = getattr(self, "rollout_buffer", None)
        if seed is not None and isinstance(buffer, FrameRolloutBufferMixin):
            buffer.seed(seed)

    def frame_tap(self, env: VecEnv) -> FrameTap:
        """The tap between `env` and the rollout buffer; one for as long as both stay."""
        buffer = self.rollout_buffer
        assert isinstance(buffer, FrameRolloutBufferMixin)
        if self._tap is None or self._tap.venv is not env or self._tap.buffer is not buffer:
            self._tap = FrameTap(env, buffer)
        self._tap.step_cost, self._tap.delegation_bonus = self.step_cost, self.delegation_bonus
        return self._tap

    # -- training ----------------------------------------------------------------------------------

    def learn(  # type: ignore[override]  # as MaskablePPO has it
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "RecursivePPO",
        reset_num_timesteps: bool = True,
        use_masking: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for `total_timesteps` environment steps, in which all frames' steps count.

        The parameters are those of `MaskablePPO.learn`, but `use_masking=True` uses masks where there are
        any, and does not insist on them.
        """
        return super().learn(
            total_timesteps,
            callback,
            log_interval,
            tb_log_name,
            reset_num_timesteps,
            use_masking,
            progress_bar,
        )

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """The base class's, with the tap between it and a recursive environment."""
        if not isinstance(rollout_buffer, FrameRolloutBufferMixin):
            if use_masking and not is_masking_supported(env):
                use_masking = ObservationMasks.possible(env.observation_space, env.action_space)
                if use_masking:
                    env = ObservationMasks(env)
                    env.latest = self._last_obs
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps, use_masking)
        tap = self.frame_tap(env)
        tap.begin(self._last_obs)
        if isinstance(self.policy, DelegationMixin):
            self.policy.pop_delegation_score()
        use_masking = use_masking and tap.has_attr("action_masks")
        complete = super().collect_rollouts(tap, callback, rollout_buffer, n_rollout_steps, use_masking)
        tap.end(self._last_obs)
        if complete:
            self._record_rollout(rollout_buffer)
        return complete

    def _record_rollout(self, buffer: FrameRolloutBufferMixin) -> None:
        figures = buffer.statistics()
        masks = buffer.flat_masks[: buffer.n_step_rows]
        spawns = np.zeros(masks.shape[1], np.bool_)
        spawns[list(self.spawn_actions)] = True
        open_ = masks[:, spawns].any(axis=1) & masks[:, ~spawns].any(axis=1)
        figures["delegation/open"] = float(open_.mean())
        if open_.any():
            figures["delegation/rate"] = float(spawns[buffer.flat_actions[: buffer.n_step_rows, 0]][open_].mean())
        if isinstance(self.policy, DelegationMixin) and self.policy.delegates:
            figures["delegation/threshold"] = self.policy.delegation_threshold
            score = self.policy.pop_delegation_score()
            if score is not None:
                figures["delegation/score"] = score
        for name, value in figures.items():
            self.logger.record(name, value)

    def train(self) -> None:
        """One update from the rollout buffer: the base class's, with a scheduled entropy coefficient."""
        given = self.ent_coef, self.normalize_advantage
        self.ent_coef = self.ent_coef_schedule(self._current_progress_remaining)
        self.logger.record("train/ent_coef", self.ent_coef)
        if isinstance(self.rollout_buffer, FrameRolloutBufferMixin):
            # The buffer does it, once over all rows: minibatches of sparse rewards are too uneven for it.
            self.rollout_buffer.normalize_advantage = self.normalize_advantage
            self.rollout_buffer.depth_weighting = self.depth_weighting
            self.normalize_advantage = False
        try:
            super().train()
        finally:
            self.ent_coef, self.normalize_advantage = given

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
        """Actions for one observation or a batch of them, and `state` as it came.

        Without `action_masks`, those in the observation (`action_mask`) are used.
        """
        if action_masks is None and isinstance(self.action_space, spaces.Discrete):
            action_masks = masks_from_observation(observation, int(self.action_space.n))
        return super().predict(observation, state, episode_start, deterministic, action_masks)

    # -- files -------------------------------------------------------------------------------------

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_tap"]

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
