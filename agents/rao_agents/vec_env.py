"""A native Stable-Baselines3 `VecEnv` over the batch kernels, masks and call-structure facts included."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rao_agents.alike import AlikeVecEnv
from rao_agents.repeat_tasks import RepeatTasks
from rao_envs.core.batch import RecursiveBatch, check_seed
from rao_envs.core.callstack import EVENTS, FrameFacts
from rao_envs.core.vector import RecursiveVectorEnv


class RecursiveVecEnv(AlikeVecEnv):
    """`n` environments in one batch, with SB3's conventions: automatic resets, `terminal_observation`, `TimeLimit.truncated`.

    `infos[i]` has the content of the single environment's `info`; `facts` says the same for the whole batch as arrays (after an
    automatic reset: the new episode's root, and the frames that ended with the old one).

    Args:
        vector_env: a `RecursiveVectorEnv` that has just been made; it must not be used elsewhere afterwards.
    """

    def __init__(self, vector_env: RecursiveVectorEnv) -> None:
        self.vector_env = vector_env
        self._attach(vector_env.batch, vector_env.spec)

    def _attach(self, batch: RecursiveBatch, spec: EnvSpec | None) -> None:
        self.batch = batch
        self.render_mode = None
        self.spec = spec
        self.facts: FrameFacts = self.batch.facts
        self._actions: npt.NDArray[np.int64] = np.zeros(self.batch.n, np.int64)
        self._begun = np.zeros(self.batch.n, np.bool_)  # whose stream has a seed and whose state means something
        super().__init__(self.batch.n, self.batch.observation_space, self.batch.action_space)

    @property
    def spawn_actions(self) -> npt.NDArray[np.int64]:
        """Indices of the spawn actions."""
        return self.batch.spawn_actions

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions."""
        return self.batch.action_names

    def reset(self) -> VecEnvObs:
        """Begin new episodes everywhere; what `seed()` and `set_options()` set is used once, as in SB3.

        Raises:
            ValueError: a seed out of range, or options the family does not know.
        """
        seeds = [None if value is None else check_seed(value) for value in self._seeds]
        for i, options in enumerate(self._options):
            self.batch.prepare(np.array([i], np.int64), options)
        for i, value in enumerate(seeds):
            if value is None and not self._begun[i]:
                value = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
            if value is not None:
                self.batch.seed(i, value)
        if any(self._options):
            for i, options in enumerate(self._options):
                self.batch.reset([i], options)
        else:
            self.batch.reset()
        self._begun[:] = True
        self._reset_seeds()
        self._reset_options()
        self.facts = self.batch.facts
        self.reset_infos = [self._info(i, self.facts) for i in range(self.num_envs)]
        return self.batch.obs

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Remember the actions of the next step.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            ValueError: actions of the wrong shape, type or range.
        """
        if not self._begun.all():
            raise ResetNeeded("call reset() before the first step")
        self._actions = self.batch.check_actions(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step the batch; finished environments begin their next episode at once."""
        batch = self.batch
        batch.step(self._actions)
        episodes = batch.stack.episodes
        rewards = episodes["reward"].astype(np.float32)
        done = batch.done
        facts = batch.facts
        infos = [self._info(i, facts) for i in range(self.num_envs)]
        for info, truncated in zip(infos, episodes["truncated"].tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        over = np.flatnonzero(done)
        if len(over):
            final = batch.obs
            for i in over.tolist():
                infos[i]["is_success"] = bool(episodes["success"][i])
                infos[i]["tree"] = batch.tree(i)
                infos[i]["terminal_observation"] = {name: array[i] for name, array in final.items()}
            batch.reset(over)
            facts = batch.facts._replace(n_returned=facts.n_returned, returned=facts.returned)
            for i in over.tolist():
                self.reset_infos[i] = self._info(i, facts) | {"returned": ()}
        self.facts = facts
        return batch.obs, rewards, done, infos

    def close(self) -> None:
        """Nothing is held."""

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed now, bool (n, n_actions)."""
        return self.batch.buffers.action_mask.astype(np.bool_)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Per-environment results of a method: `action_masks`, `reset(seed, options)`, `get_state` or `set_state`."""
        chosen = list(self._get_indices(indices))
        if method_name == "action_masks":
            masks = self.action_masks()
            return [masks[i] for i in chosen]
        if method_name == "reset":
            return [self._reset_one(i, *method_args, **method_kwargs) for i in chosen]
        if method_name == "get_state":
            return [self.batch.get_state(i) for i in chosen]
        if method_name == "set_state":
            (state,) = method_args
            for i in chosen:
                self.batch.set_state(state, i, **method_kwargs)
            self._begun[chosen] = True
            self.facts = self.batch.facts
            return [None for _ in chosen]
        raise AttributeError(
            f"a RecursiveVecEnv has the per-environment methods action_masks, reset, get_state, set_state; not {method_name}"
        )

    def _reset_one(self, i: int, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin a new episode of environment `i`, as Gymnasium's `reset` does; `facts` goes on telling how the old one ended."""
        if seed is not None:
            self.batch.seed(i, check_seed(seed))
        self.batch.reset([i], options)
        self._begun[i] = True
        self.facts = self.batch.facts._replace(n_returned=self.facts.n_returned, returned=self.facts.returned)
        info = self._info(i, self.facts) | {"returned": ()}
        return {name: array[i] for name, array in self.batch.obs.items()}, info

    def _info(self, i: int, facts: FrameFacts) -> dict[str, Any]:
        info: dict[str, Any] = {
            "frame_id": int(facts.frame_id[i]),
            "parent_id": int(facts.parent_id[i]),
            "depth": int(facts.depth[i]),
            "event": EVENTS[facts.event[i]],
            "returned": self.batch.returned(i) if facts.n_returned[i] else (),
            "action_mask": self.batch.buffers.action_mask[i].copy(),
        }
        if self.batch.feedback == "dense":
            info["dense_reward"] = float(self.batch.stack.episodes["dense"][i])
        return info


class VecDenseReward(VecEnvWrapper):
    """Adds `weight * info["dense_reward"]` to the reward (PROTOCOL rule 11).

    Wrap it outside `VecMonitor`, which then still sees the task's own reward.
    """

    def __init__(self, venv: VecEnv, weight: float) -> None:
        super().__init__(venv)
        self.weight = weight

    def reset(self) -> VecEnvObs:
        """As the wrapped environment."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment, with the progress paid."""
        observations, rewards, dones, infos = self.venv.step_wait()
        progress = np.array([info["dense_reward"] for info in infos], np.float32)
        return observations, rewards + np.float32(self.weight) * progress, dones, infos


def make_vec_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    dense_weight: float = 0.0,
    monitor: bool = True,
    repeats: int = 1,
    ray_workers: int | None = None,
    ray_address: str | None = None,
    **kwargs: Any,
) -> VecEnv:
    """Make `n_envs` environments of a registered recursive id as one fast SB3 `VecEnv`.

    Args:
        env_id: for instance "RAO/Maze-20x20".
        n_envs: how many.
        seed: environment i starts from seed + i; None draws fresh seeds.
        dense_weight: weight of dense feedback added to the reward; not 0 implies `feedback="dense"`.
        repeats: episodes of each root task (see `RepeatTasks`); 1 for a new task in every episode.
        monitor: wrap in `VecMonitor`, so that `ep_rew_mean`, `success_rate` and `evaluate_policy` see true episodes.
        ray_workers: split the environments over so many processes of a Ray cluster, with the same numbers; see
            `rao_agents.distributed.vec_env.RayVecEnv`, which must be closed. None keeps them in this process.
        ray_address: of the cluster, where there are `ray_workers`.
        **kwargs: the environment's own keyword arguments (`spawn=False`, `structure="rooms"`, ...).

    Raises:
        ValueError: the id is not one of a recursive family, a keyword argument has a wrong value, or sparse feedback was asked for
            together with a `dense_weight`.
        TypeError: a keyword argument the family does not have.
        ImportError: `ray_workers` without Ray.
    """
    if dense_weight and kwargs.setdefault("feedback", "dense") != "dense":
        raise ValueError(f"dense_weight={dense_weight} adds dense feedback to the reward, but feedback={kwargs['feedback']!r}")
    venv: VecEnv
    if ray_workers is not None:
        from rao_agents.distributed.vec_env import RayVecEnv

        venv = RayVecEnv(env_id, n_envs, ray_workers, address=ray_address, **kwargs)
    elif ray_address is not None:
        raise ValueError(f"ray_address={ray_address!r} says where workers are, but there are none: pass ray_workers, too")
    else:
        vector_env = gym.make_vec(env_id, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs)
        if not isinstance(vector_env.unwrapped, RecursiveVectorEnv):
            raise ValueError(f"{env_id} is not a recursive environment of this suite: use stable_baselines3.common.env_util.make_vec_env")
        venv = RecursiveVecEnv(vector_env.unwrapped)
    if seed is not None:
        venv.seed(seed)
    if repeats != 1:
        venv = RepeatTasks(venv, repeats, seed)
    if monitor:
        venv = VecMonitor(venv)
    if dense_weight:
        venv = VecDenseReward(venv, dense_weight)
    return venv
