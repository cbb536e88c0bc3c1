"""RecursivePPO: PPO for agents that spawn copies of themselves (MISSION A1, A2, A4, A5)."""

from __future__ import annotations

from typing import Any

import torch as th
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from typing_extensions import Self

from rao_agents.checkpoint import register_algorithm
from rao_agents.recursive_algorithm import AnySchedule, RecursiveAlgorithm


@register_algorithm
class RecursivePPO(RecursiveAlgorithm):
    """PPO in which every frame of the recursion is a trajectory of its own; see `RecursiveAlgorithm`.

    On an environment without spawn actions this is `MaskablePPO`: the same network, updates and numbers.

    Parameters besides those of `MaskablePPO`, whose `learning_rate`, `clip_range` and `clip_range_vf`, and
    here also `ent_coef`, may be anything that `schedules.parse` takes:

    Args:
        step_cost: what each decision costs the frame that takes it.
        delegation_bonus: paid to a frame at its end, once, times the average success of its direct children.
        depth_weighting: exponent >= 0 of the weights that keep populous levels from drowning the root; 0 for
            none, 1 gives every level the same total weight.
        delegation_head: whether the policy has a delegation score and a learned threshold; False for a plain
            masked softmax over all actions.
        credit: whose rewards a decision answers for: "node", "tree" or "root".
        advantage: "gae" with a critic, or "rloo", leave-one-out over rollouts of the same root task.
        delegation_bonus_form: "average", or "sum" for comparison.
        frame_price: what a frame pays for each child that it opens; may be a schedule.
        level_price: what it pays besides, times the child's depth; may be a schedule.
        threshold: "constant", or "situation": depends on the budgets left and the last event.
        specialists: "none", "level" or "role": several networks, for frames of different depths or opened by different
            spawn actions; needs `observe_frame=True`.
        n_specialists: how many; None for 2 levels, or all roles.
        state_transfer, state_transfer_kwargs: what frames hand on to their children and parents; see `RecursiveAlgorithm`.
        seed: also of the order of minibatches, which has a generator of its own here.

    Raises:
        ValueError: A parameter has a value that it cannot have, or `advantage="rloo"` and the environment does
            not repeat its tasks.
    """

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
            clip_range=clip_range,
            clip_range_vf=clip_range_vf,
            ent_coef=ent_coef,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            normalize_advantage=normalize_advantage,
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
        )
        if _init_setup_model:
            self._setup_model()

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

    def _update(self) -> None:
        MaskablePPO.train(self)
