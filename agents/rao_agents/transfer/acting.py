"""Acting with states outside training: `predict` with SB3's `state`, and detached children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, maybe_transpose

from rao_agents.frame_key import FRAME_KEY
from rao_agents.transfer.extractor import StateTransferExtractor
from rao_agents.transfer.tracker import Observations, State, StateTracker, joined


class StateActing:
    """Keeps the states of a policy with a `StateTransferExtractor` in arrays that the caller passes on.

    A state is a tuple of arrays with the environments on their first axis, and levels on the second of most (more
    of them when a frame lies deeper). It is never changed in place.

    Args:
        extractor: the policy's.
    """

    def __init__(self, extractor: StateTransferExtractor) -> None:
        self.extractor = extractor
        self.layout = extractor.layout

    def initial_state(self, n: int) -> State:
        """The state of `n` environments that begin."""
        return StateTracker(self.layout, n).state()

    def step(
        self,
        act: Callable[[Observations], Any],
        observation: Mapping[str, Any],
        state: Sequence[npt.NDArray[Any]] | None,
        episode_start: Any = None,
    ) -> tuple[Any, State]:
        """One step of n environments.

        Args:
            act: makes one forward pass over augmented observations; its result is returned.
            observation: the environments', (n, ...), with the key `frame`.
            state: after their last step; None where they begin.
            episode_start: where an episode begins, bool (n,).

        Raises:
            ValueError: The state is not of n environments or of another model, or the observation has no `frame`.
        """
        batch = self._checked(observation)
        tracker = StateTracker(self.layout, len(batch[FRAME_KEY]))
        if state is not None:
            tracker.load(state)
        fresh = None if episode_start is None else np.asarray(episode_start, np.bool_).reshape(-1)
        if fresh is not None and len(fresh) != tracker.n:
            raise ValueError(f"episode_start is of {len(fresh)} environments, the observation of {tracker.n}")
        tracker.arrive(batch[FRAME_KEY], fresh)
        with th.no_grad(), self.extractor.every_row():
            result = act(tracker.view(batch))
        tracker.note(batch, self.extractor.carry)
        return result, tracker.state()

    def is_single(self, observation: Any) -> bool:
        """Whether `observation` is of one environment, without a first axis."""
        self._require_frame(observation)
        return np.ndim(observation[FRAME_KEY]) == 1

    def child_state(self, state: Sequence[npt.NDArray[Any]]) -> State:
        """The state with which a detached child's first `predict` is called, from that after the step that spawned it.

        The child knows what its parent knew. It is not an episode's start to it: pass no `episode_start`, or False.
        """
        tracker = StateTracker(self.layout, len(state[0]))
        tracker.load(state)
        return tracker.state()

    def join_state(self, state: Sequence[npt.NDArray[Any]], *children: Sequence[npt.NDArray[Any]]) -> State:
        """The state with which the parent goes on after `env.join`.

        Args:
            state: after the step that spawned the children.
            children: after their last steps, in the order in which the spawn opened them.

        Raises:
            ValueError: No child, or states that are not of children of this spawn.
        """
        return joined(self.layout, tuple(state), [tuple(child) for child in children])

    def _checked(self, observation: Mapping[str, Any]) -> Observations:
        self._require_frame(observation)
        batch = {}
        for key in (*self.layout.plain, FRAME_KEY):
            array = np.asarray(observation[key])
            space = self.layout.plain.get(key)
            batch[key] = maybe_transpose(array, space) if isinstance(space, spaces.Box) and is_image_space(space) else array
        return batch

    def _require_frame(self, observation: Any) -> None:
        if not isinstance(observation, Mapping) or FRAME_KEY not in observation:
            raise ValueError(
                f"this model keeps a state for every frame and needs the observation's key {FRAME_KEY!r}: "
                "make the environment with observe_frame=True"
            )
