"""RecursiveA2C: advantage actor-critic for agents that spawn copies of themselves (MISSION A1, A2, A4, A5)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch as th
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from typing_extensions import Self

from rao_agents.checkpoint import register_algorithm
from rao_agents.recursive_algorithm import AnySchedule, RecursiveAlgorithm


@register_algorithm
class RecursiveA2C(RecursiveAlgorithm):
    """A2C in which every frame of the recursion is a trajectory of its own; see `RecursiveAlgorithm`.

    All but the update is RecursivePPO's; the update is Stable-Baselines3's `A2C`: one gradient step over each
    rollout. On an environment without spawn actions this is `A2C`, with masks where there are any: the same
    network, updates and numbers (but for rounding: sb3-contrib's maskable policy normalises logits twice; with
    that policy, `A2C` gives these numbers to the last bit).

    Parameters besides those of `A2C` (but `use_sde`, which is for continuous actions), whose `learning_rate`,
    and here also `ent_coef`, may be anything that `schedules.parse` takes:

    Args:
        step_cost, delegation_bonus, depth_weighting, delegation_head, credit, advantage,
        delegation_bonus_form, frame_price, level_price, threshold, specialists, n_specialists, state_transfer,
        state_transfer_kwargs: as in `RecursivePPO`.

    Raises:
        ValueError: A parameter has a value that it cannot have, or `advantage="rloo"` and the environment does
            not repeat its tasks.
    """

    def __init__(
        self,
        policy: str | type[MaskableActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: AnySchedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        ent_coef: AnySchedule = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        normalize_advantage: bool = False,
        step_cost: float = 0.01,
        delegation_bonus: float = 0.0,
        depth_weighting: float = 0.0,
        delegation_head: bool = True,
        credit: str = "node",
        advantage: str = "gae",
        delegation_bonus_form: str = "average",
        frame_price: AnySchedule = 0.0,
        level_price: AnySchedule = 0.0,
        threshold: str = "constant",
        specialists: str = "none",
        n_specialists: int | None = None,
        state_transfer: str = "none",
        state_transfer_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        policy_kwargs = dict(policy_kwargs or {})
        if use_rms_prop and "optimizer_class" not in policy_kwargs:
            policy_kwargs["optimizer_class"] = th.optim.RMSprop
            policy_kwargs["optimizer_kwargs"] = {"alpha": 0.99, "eps": rms_prop_eps, "weight_decay": 0}
        super().__init__(
            policy,
            env,
            step_cost=step_cost,
            delegation_bonus=delegation_bonus,
            delegation_bonus_form=delegation_bonus_form,
            depth_weighting=depth_weighting,
            delegation_head=delegation_head,
            credit=credit,
            advantage=advantage,
            frame_price=frame_price,
            level_price=level_price,
            threshold=threshold,
            specialists=specialists,
            n_specialists=n_specialists,
            state_transfer=state_transfer,
            state_transfer_kwargs=state_transfer_kwargs,
            learning_rate=learning_rate,
            ent_coef=ent_coef,
            n_steps=n_steps,
            batch_size=None,
            n_epochs=1,
            gamma=gamma,
            gae_lambda=gae_lambda,
            normalize_advantage=normalize_advantage,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
        )
        if _init_setup_model:
            self._setup_model()

    def learn(  # type: ignore[override]  # as MaskablePPO has it
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str = "RecursiveA2C",
        reset_num_timesteps: bool = True,
        use_masking: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for `total_timesteps` environment steps, in which all frames' steps count.

        The parameters are those of `A2C.learn`; `use_masking=True` uses masks where there are any.
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

    def _update(self) -> None:
        """A2C's own update. It knows nothing of masks, so the policy is handed them with the one batch it asks for."""
        buffer: Any = self.rollout_buffer
        policy: Any = self.policy
        (batch,) = buffer.get(None)
        # No masks where nothing is masked: the same distribution, to the last bit that of an agent without.
        masks = None if bool(batch.action_masks.all()) else batch.action_masks
        buffer.get = lambda batch_size=None: iter((batch,))
        policy.evaluate_actions = partial(policy.evaluate_actions, action_masks=masks)
        try:
            A2C.train(self)  # type: ignore[arg-type]
        finally:
            del buffer.get, policy.evaluate_actions
