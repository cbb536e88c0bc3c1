"""The `VecEnvWrapper` that adds states to the observations while a rollout is collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from rao_agents.frame_key import FRAME_KEY
from rao_agents.transfer.layout import Layout
from rao_agents.transfer.tracker import Carry, Observations, State, StateTracker


class StateTransferVecEnv(VecEnvWrapper):
    """Shows the policy what `Layout.augmented` describes. It stands between `venv` and the algorithm.

    Args:
        venv: an environment whose observations have the key `frame`.
        layout: what is added to them.
        carry: what the forward pass left that chose the actions of the step about to be taken.
    """

    def __init__(self, venv: VecEnv, layout: Layout, carry: Callable[[], Carry]) -> None:
        super().__init__(venv, observation_space=layout.augmented)
        self.tracker = StateTracker(layout, venv.num_envs)
        self.carry = carry
        self.raw: Any = None  # the environment's latest observation
        self.shown: Observations = {}  # and what was made of it
        self._resets: list[Any] = []

    def begin(self, observation: Any) -> Observations:
        """What is shown for `observation`, from which a rollout goes on.

        States are forgotten when it is another one than the last rollout ended with, or when somebody else has
        reset the environment since.
        """
        if observation is not self.raw or self._disturbed():
            self.tracker.forget()
            self._show(observation)
        return self.shown

    def reset(self) -> VecEnvObs:
        """As the wrapped environment, with states, which are forgotten."""
        self.tracker.forget()
        self._show(self.venv.reset())
        return self.shown

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """As the wrapped environment, after the acting frames' states were stored."""
        if self._disturbed():  # by a callback, say, that evaluates on the training environment
            self.tracker.forget()
        else:
            carry = self.carry()
            if len(carry.context) != self.num_envs:
                raise RuntimeError(
                    f"the policy's latest forward pass had {len(carry.context)} rows, not one for each of {self.num_envs} environments: "
                    "it did not choose these actions"
                )
            self.tracker.note(self.raw, carry)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment, with states, in the last observations of truncated episodes too."""
        observation, rewards, dones, infos = self.venv.step_wait()
        cut = [i for i in np.flatnonzero(dones) if infos[i].get("TimeLimit.truncated") and "terminal_observation" in infos[i]]
        if cut:
            finals = [infos[i]["terminal_observation"] for i in cut]
            for i, final in zip(cut, self._last_views(np.array(cut), finals), strict=True):
                infos[i]["terminal_observation"] = final
        self._show(observation, dones)
        return cast(VecEnvObs, self.shown), rewards, dones, infos

    def get_state(self) -> State:
        """The states of all open frames: see `resume`."""
        return self.tracker.state()

    def resume(self, observation: Any, state: State) -> None:
        """Go on from `observation`, which had arrived when `get_state` returned `state`.

        Raises:
            ValueError: The state is of another number of environments, or of another model.
        """
        self.tracker.load(state)
        self.raw, self.shown = observation, self.tracker.view(observation)
        self._resets = list(self.unwrapped.reset_infos)

    def _show(self, observation: Any, fresh: npt.NDArray[np.bool_] | None = None) -> None:
        self.tracker.arrive(observation[FRAME_KEY], fresh)
        self.raw, self.shown = observation, self.tracker.view(observation)
        self._resets = list(self.unwrapped.reset_infos)

    def _disturbed(self) -> bool:
        # Every reset puts a new info in place.
        return any(a is not b for a, b in zip(self._resets, self.unwrapped.reset_infos, strict=True))

    def _last_views(self, rows: npt.NDArray[np.int64], finals: list[Mapping[str, Any]]) -> list[Observations]:
        """What is shown for the last observations of the environments `rows`."""
        part = self.tracker.select(rows)
        batch = {key: np.stack([np.asarray(final[key]) for final in finals]) for key in finals[0]}
        part.arrive(batch[FRAME_KEY])
        shown = part.view(batch)
        return [{key: array[k] for key, array in shown.items()} for k in range(len(rows))]
