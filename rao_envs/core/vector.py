"""`RecursiveVectorEnv`: the same kernels as a native `gymnasium.vector.VectorEnv`, no Python loop over environments per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rao_envs.core.batch import RecursiveBatch, check_seed
from rao_envs.core.callstack import EVENTS, RETURN, FrameFacts
from rao_envs.core.domain import Domain

EVENT_NAMES = np.array(EVENTS)


class RecursiveVectorEnv(VectorEnv[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64], npt.NDArray[Any]]):
    """`num_envs` environments of one family in one batch; each behaves exactly like the single environment with its seed.

    `infos` follow Gymnasium's vector convention: a key holds one array over environments and `_key` a boolean array that says which
    entries are meant. `infos["returned"]` is a dictionary of arrays (num_envs, max_depth + 1), of which the first `n_returned` columns
    count, innermost frame first. With `AutoresetMode.SAME_STEP`, `infos["final_obs"]` holds the last observation of each environment
    that ended (None elsewhere), and `infos["final_info"]` their infos of the last step, as arrays over all environments.

    A family sets `domain_class`.

    Args:
        num_envs: how many environments.
        autoreset_mode: NEXT_STEP (Gymnasium's default), SAME_STEP, or DISABLED (then `reset(options={"reset_mask": mask})`).
        render_mode: must be None: render single environments.
        spawn, feedback, budget, max_depth, observe_frame: see `rao_envs.core.batch.RecursiveBatch`.
        **family: the domain's keyword arguments.
    """

    domain_class: ClassVar[type[Domain]]

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        spawn: bool = True,
        feedback: str = "sparse",
        budget: int | None = None,
        max_depth: int | None = None,
        observe_frame: bool = False,
        **family: Any,
    ) -> None:
        if render_mode is not None:
            raise ValueError(f"a vector environment does not render: make a single one with render_mode={render_mode!r}")
        domain = self.domain_class.create(family)
        self.batch = RecursiveBatch(
            domain, num_envs, spawn=spawn, feedback=feedback, budget=budget, max_depth=max_depth, observe_frame=observe_frame
        )
        self.domain = domain
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space = self.batch.observation_space
        self.single_action_space = self.batch.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.spawn_actions = self.batch.spawn_actions
        self.action_names = self.batch.action_names
        self._begun = np.zeros(num_envs, np.bool_)  # whose stream has a seed and whose state means something

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Begin the next episodes.

        Args:
            seed: an integer s gives environment i the seed s + i; or one seed (or None) per environment.
            options: `{"reset_mask": bool (num_envs,)}` resets only some; the family's own options are passed on.

        Raises:
            ValueError: seeds, mask or options that cannot be used.
        """
        options = dict(options or {})
        mask = self._reset_mask(options.pop("reset_mask", None))
        # Everything is checked before anything changes.
        seeds = self._seeds(seed)
        which = np.flatnonzero(mask)
        self.batch.prepare(which, options)
        super().reset(seed=int(seed) if isinstance(seed, (int, np.integer)) else None)
        for i in which.tolist():
            value = seeds[i]
            if value is None and not self._begun[i]:
                value = int(self.np_random.integers(2**63))
            if value is not None:
                self.batch.seed(i, value)
        self.batch.reset(which, options)
        self._begun[which] = True
        return self.batch.obs, self._infos(mask)

    def step(
        self, actions: Any
    ) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Step every environment. `actions`: integers (num_envs,). Rewards are float64 (num_envs,).

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or (autoreset disabled) an episode is over.
            ValueError: actions of the wrong shape, type or range.
        """
        if not self._begun.all():
            raise ResetNeeded("call reset() before the first step")
        chosen = self.batch.check_actions(actions)
        over = self.batch.done
        if over.any() and self.autoreset_mode == AutoresetMode.DISABLED:
            raise ResetNeeded(f"episodes {np.flatnonzero(over).tolist()} are over: reset them with options={{'reset_mask': mask}}")
        self.batch.step(chosen)
        if over.any():  # NEXT_STEP: this step is the reset, its action is ignored
            self.batch.reset(np.flatnonzero(over))
        episodes = self.batch.stack.episodes
        rewards, terminated, truncated = (episodes[field].copy() for field in ("reward", "terminated", "truncated"))
        done = terminated | truncated
        if done.any() and self.autoreset_mode == AutoresetMode.SAME_STEP:
            final_obs, final_info = self._observations_of(done), self._infos(done)
            self.batch.reset(np.flatnonzero(done))
            infos = self._infos(np.ones(self.num_envs, np.bool_))
            infos |= {"final_obs": final_obs, "_final_obs": done, "final_info": final_info, "_final_info": done.copy()}
        else:
            infos = self._infos(np.ones(self.num_envs, np.bool_))
        return self.batch.obs, rewards, terminated, truncated, infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed now, bool (num_envs, n_actions)."""
        return self.batch.buffers.action_mask.astype(np.bool_)

    @property
    def facts(self) -> FrameFacts:
        """The call structure as arrays, without the dictionary."""
        return self.batch.facts

    def get_state(self, i: int) -> dict[str, Any]:
        """A copy of environment `i`'s state; fits `set_state` of single and vector environments with the same keyword arguments."""
        return self.batch.get_state(i)

    def set_state(self, state: Mapping[str, Any], i: int) -> None:
        """Put a saved state in place of environment `i`; raises ValueError, changing nothing, if it does not fit."""
        self.batch.set_state(state, i)
        self._begun[i] = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begun = self._begun.copy()  # pickled out of band it comes back read-only

    def _infos(self, mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
        batch = self.batch
        facts = batch.facts
        episodes = batch.stack.episodes
        infos: dict[str, Any] = {
            "frame_id": facts.frame_id,
            "parent_id": facts.parent_id,
            "depth": facts.depth,
            "event": EVENT_NAMES[facts.event],
            "n_returned": facts.n_returned,
            "returned": {name: facts.returned[name].copy() for name in RETURN.names or ()},
            "action_mask": batch.buffers.action_mask.copy(),
        }
        if batch.feedback == "dense":
            infos["dense_reward"] = episodes["dense"].copy()
        for name in tuple(infos):
            infos[f"_{name}"] = mask.copy()
        done = batch.done & mask
        if done.any():
            infos["is_success"], infos["_is_success"] = episodes["success"].copy(), done
            rows = np.arange(self.num_envs)
            base = batch.stack.frames[rows, episodes["base"]]
            infos["tree"] = {
                "nodes": base["nodes"],
                "deepest": base["deepest"] - episodes["base"],
                "spawns": base["spawns"],
                "steps": episodes["clock"].copy(),
                "critical_path": base["path"],
            }
            infos["tree"] |= {f"_{name}": done.copy() for name in tuple(infos["tree"])}
            infos["_tree"] = done.copy()
        return infos

    def _observations_of(self, which: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Gymnasium's form of final observations: an object array with one observation per environment in `which`, None elsewhere."""
        observations = np.full(self.num_envs, None, dtype=object)
        obs = self.batch.obs
        for i in np.flatnonzero(which):
            observations[i] = {name: array[i].copy() for name, array in obs.items()}
        return observations

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (list, tuple, np.ndarray)):
            if len(seed) != self.num_envs:
                raise ValueError(f"pass one seed per environment ({self.num_envs}), got {len(seed)}")
            return [None if value is None else check_seed(value) for value in seed]
        first = check_seed(seed)
        check_seed(first + self.num_envs - 1)
        return [first + i for i in range(self.num_envs)]

    def _reset_mask(self, mask: Any) -> npt.NDArray[np.bool_]:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(f"reset_mask must be a boolean array of shape ({self.num_envs},) with at least one True")
        if not (array | self._begun).all():
            raise ResetNeeded("the first reset must reset every environment")
        return array
