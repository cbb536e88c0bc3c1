"""The tap: a `VecEnvWrapper` that shows the frame rollout buffer what happened to the frames at each step.

It changes nothing. The facts come from the environment's side channel (`facts`, one `FrameFacts` for the
whole batch) where some environment below has it, and from the infos otherwise, so that any environment that
follows the protocol can be learned from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from sb3_contrib.common.maskable.utils import EXPECTED_METHOD_NAME
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rao_agents.repeat_tasks import repeated_tasks
from rao_agents.rollout_buffer import FrameRolloutBufferMixin, ProtocolError
from rao_envs.core.callstack import RETURN, FrameFacts

MASK_KEY = "action_mask"
"""Observation key under which an environment of this protocol shows which actions are allowed."""

Infos = list[dict[str, Any]]


def masks_from_observation(observation: Any, n_actions: int) -> npt.NDArray[np.bool_] | None:
    """The action masks inside `observation`, bool (..., n_actions), or None where it has none.

    Raises:
        ValueError: The entries are not zeros and ones: something (a normalising wrapper) changed them on the
            way.
    """
    if not isinstance(observation, Mapping) or MASK_KEY not in observation:
        return None
    masks = np.asarray(observation[MASK_KEY])
    if masks.shape[-1:] != (n_actions,):
        return None  # a third party's key of that name with another meaning
    if masks.dtype != np.bool_ and not np.array_equal(masks, masks.astype(np.bool_)):
        raise ValueError(
            f"observation[{MASK_KEY!r}] must hold zeros and ones. If a wrapper normalises observations, "
            "leave that key out (VecNormalize(..., norm_obs_keys=[...]))."
        )
    return masks.astype(np.bool_)


class ObservationMasks(VecEnvWrapper):
    """Answers `action_masks` from the observation, for environments that offer no such method."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.latest: VecEnvObs | None = None

    @staticmethod
    def possible(space: spaces.Space[Any], action_space: spaces.Space[Any]) -> bool:
        """Whether observations of `space` carry a mask for `action_space`."""
        if not isinstance(space, spaces.Dict) or not isinstance(action_space, spaces.Discrete):
            return False
        return MASK_KEY in space.spaces and space[MASK_KEY].shape == (int(action_space.n),)

    def reset(self) -> VecEnvObs:
        """As the wrapped environment."""
        self.latest = self.venv.reset()
        return self.latest

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment."""
        self.latest, rewards, dones, infos = self.venv.step_wait()
        return self.latest, rewards, dones, infos

    def has_attr(self, attr_name: str) -> bool:
        """As the wrapped environment, which here also has `action_masks`."""
        return attr_name == EXPECTED_METHOD_NAME or super().has_attr(attr_name)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """As the wrapped environment; `action_masks` may be answered from the observation."""
        if method_name != EXPECTED_METHOD_NAME:
            return super().env_method(method_name, *method_args, indices=indices, **method_kwargs)
        masks = masks_from_observation(self.latest, int(cast(spaces.Discrete, self.action_space).n))
        if masks is None:
            raise RuntimeError("no observation yet: reset first")
        return [masks[i] for i in self._get_indices(indices)]


class FrameReader(Protocol):
    """Where the facts about frames come from."""

    def start(self) -> FrameFacts:
        """The frames that act next, after all episodes began anew."""

    def read(self, infos: Infos, dones: npt.NDArray[np.bool_]) -> FrameFacts:
        """The facts of the step just taken."""

    def disturbed(self) -> bool:
        """Whether somebody else reset the environment since the latest `start` or `read`."""


def facts_source(env: VecEnv) -> VecEnv | None:
    """The environment among `env` and those it wraps that offers the side channel `facts`, or None."""
    while True:
        if "facts" in vars(env) or hasattr(type(env), "facts"):
            return env
        if not isinstance(env, VecEnvWrapper):
            return None
        env = env.venv


class FactsReader:
    """Reads the side channel."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.latest: Any = None
        self.stable = source.facts is source.facts  # one object until the next step, or made anew at each look?

    def start(self) -> FrameFacts:
        """See `FrameReader`."""
        self.latest = self.source.facts
        return cast(FrameFacts, self.latest)

    def read(self, infos: Infos, dones: npt.NDArray[np.bool_]) -> FrameFacts:
        """See `FrameReader`."""
        self.latest = self.source.facts
        return cast(FrameFacts, self.latest)

    def disturbed(self) -> bool:
        """See `FrameReader`."""
        # The side channel hands out new arrays after every reset and step, so anyone's step shows.
        now = self.source.facts
        if self.stable or self.latest is None:
            return now is not self.latest
        fields = ("frame_id", "depth", "event", "n_returned")
        return not all(np.array_equal(getattr(now, name), getattr(self.latest, name)) for name in fields)


class InfoReader:
    """Reads `info`.

    Needed at every step: `frame_id`, and in `returned` each ended frame's `frame_id` and `success`. Where
    they are missing, `depth` follows from the order of opening, `reward` is `float(success)`, and `children`
    and `successes` are counted here.
    """

    def __init__(self, env: VecEnv) -> None:
        self.env = env.unwrapped
        # Per instance, by depth: [frame id, children returned, children that succeeded]; None where nothing
        # is known.
        self.stacks: list[list[list[int] | None]] = []
        self.resets: list[Any] = []

    def start(self) -> FrameFacts:
        """See `FrameReader`."""
        self.resets = list(self.env.reset_infos)
        self.stacks = [[] for _ in self.resets]
        for env, info in enumerate(self.resets):
            self._enter(env, info.get("frame_id", 0), info.get("depth"))
        return self._facts([[] for _ in self.resets])

    def read(self, infos: Infos, dones: npt.NDArray[np.bool_]) -> FrameFacts:
        """See `FrameReader`."""
        self.resets = list(self.env.reset_infos)
        ended: list[list[tuple[Any, ...]]] = []
        for env, info in enumerate(infos):
            ended.append([self._close(env, entry) for entry in info.get("returned", ())])
            if dones[env]:
                self.stacks[env] = []
                info = {"frame_id": 0, "depth": 0} | self.resets[env]
            elif "frame_id" not in info:
                raise ProtocolError(
                    f"environment {env} has spawn actions, but its info does not say which frame acts "
                    f"next ('frame_id'); it has {sorted(info)}. The protocol asks for frame_id, depth and "
                    "returned at every step."
                )
            self._enter(env, info["frame_id"], info.get("depth"))
        return self._facts(ended)

    def disturbed(self) -> bool:
        """See `FrameReader`."""
        # Every reset puts a new info in place.
        return any(a is not b for a, b in zip(self.resets, self.env.reset_infos, strict=True))

    def _enter(self, env: int, frame_id: int, depth: int | None) -> None:
        """Note that `frame_id` acts next, opening it if it is new."""
        stack = self.stacks[env]
        if depth is None:
            depth = next((level for level, node in enumerate(stack) if node and node[0] == frame_id), len(stack))
        node = stack[depth] if depth < len(stack) else None
        if node is None or node[0] != frame_id:
            node = [frame_id, 0, 0]
        del stack[depth:]
        stack.extend([None] * (depth - len(stack)))
        stack.append(node)

    def _close(self, env: int, entry: Mapping[str, Any]) -> tuple[Any, ...]:
        """Close one returned frame: (frame id, depth, success, reward, children, successes)."""
        stack, frame_id = self.stacks[env], entry["frame_id"]
        success = bool(entry["success"])
        depth = next((level for level, node in enumerate(stack) if node and node[0] == frame_id), None)
        node: list[int] | None = [frame_id, 0, 0]
        if depth is not None:
            node = stack[depth]
            del stack[depth:]
        else:  # opened and closed within one step
            depth = int(entry.get("depth", len(stack)))
        parent = stack[depth - 1] if 0 < depth <= len(stack) else None
        if parent is not None:
            parent[1] += 1
            parent[2] += success
        assert node is not None
        return (
            frame_id,
            depth,
            success,
            entry.get("reward", float(success)),
            entry.get("children", node[1]),
            entry.get("successes", node[2]),
        )

    def _facts(self, ended: list[list[tuple[Any, ...]]]) -> FrameFacts:
        n = len(ended)
        counts = np.array([len(entries) for entries in ended], np.int32)
        returned = np.zeros((n, max(1, int(counts.max()))), RETURN)
        for env, entries in enumerate(ended):
            for index, entry in enumerate(entries):
                record = returned[env, index]
                for name, value in zip(("frame_id", "depth", "success", "reward", "children", "successes"), entry, strict=True):
                    record[name] = value
        tops = [cast(list[int], stack[-1])[0] for stack in self.stacks]
        return FrameFacts(
            frame_id=np.array(tops, np.int64),
            parent_id=np.full(n, -1, np.int64),
            depth=np.array([len(stack) - 1 for stack in self.stacks], np.int32),
            event=np.zeros(n, np.int8),
            n_returned=counts,
            returned=returned,
        )


class RootReader:
    """For environments without spawn actions: every episode is one frame, and nothing has to be read."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env.unwrapped
        self.resets: list[Any] = []

    def start(self) -> FrameFacts:
        """See `FrameReader`."""
        return self._roots()

    def read(self, infos: Infos, dones: npt.NDArray[np.bool_]) -> FrameFacts:
        """See `FrameReader`."""
        return self._roots()

    def disturbed(self) -> bool:
        """See `FrameReader`."""
        return any(a is not b for a, b in zip(self.resets, self.env.reset_infos, strict=True))

    def _roots(self) -> FrameFacts:
        self.resets = list(self.env.reset_infos)
        n = self.env.num_envs
        return FrameFacts(
            frame_id=np.zeros(n, np.int64),
            parent_id=np.full(n, -1, np.int64),
            depth=np.zeros(n, np.int32),
            event=np.zeros(n, np.int8),
            n_returned=np.zeros(n, np.int32),
            returned=np.zeros((n, 1), RETURN),
        )


class FrameTap(ObservationMasks):
    """Shows `buffer` every step's frames on their way from `venv` to the algorithm.

    Args:
        venv: an environment.
        buffer: told of each step before the algorithm adds it.
        step_cost, delegation_bonus, bonus_form: the frames' own costs and bonus, see
            `FrameRolloutBufferMixin.record`.
        recursive: whether the environment has frames to tell of; without, every episode is one.
        frame_price, level_price: what a frame pays for each child that it opens, see `FrameRolloutBufferMixin.record`.
    """

    def __init__(
        self,
        venv: VecEnv,
        buffer: FrameRolloutBufferMixin,
        step_cost: float = 0.0,
        delegation_bonus: float = 0.0,
        bonus_form: str = "average",
        recursive: bool = True,
        frame_price: float = 0.0,
        level_price: float = 0.0,
    ) -> None:
        super().__init__(venv)
        self.buffer = buffer
        self.frame_price, self.level_price = frame_price, level_price
        self.step_cost = step_cost
        self.delegation_bonus = delegation_bonus
        self.bonus_form = bonus_form
        self.repeated = repeated_tasks(venv)
        if self.repeated is not None:
            buffer.repeats = self.repeated.repeats
        source = facts_source(venv)
        self.reader: FrameReader
        if source is not None:
            self.reader = FactsReader(source)
        else:
            self.reader = InfoReader(venv) if recursive else RootReader(venv)
        self.has_masks = venv.has_attr(EXPECTED_METHOD_NAME)
        self._seen: Any = None  # the observation from which the algorithm goes on
        self._playing: npt.NDArray[np.int64] | None = None  # root tasks of the step under way

    def has_attr(self, attr_name: str) -> bool:
        """As the wrapped environment; `action_masks` may come from the observation."""
        if attr_name == EXPECTED_METHOD_NAME:
            return self.has_masks or self.possible(self.observation_space, self.action_space)
        return self.venv.has_attr(attr_name)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """As the wrapped environment; `action_masks` may be answered from the observation."""
        if method_name == EXPECTED_METHOD_NAME and not self.has_masks:
            return super().env_method(method_name, *method_args, indices=indices, **method_kwargs)
        return self.venv.env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def begin(self, observation: Any) -> None:
        """Before a rollout that goes on from `observation`: are its episodes still the ones we know?

        They are not when the observation is another object than the one the last rollout ended with, or when
        somebody else has reset or stepped the environment in between. Then nothing that was pending can
        complete.
        """
        if observation is not self._seen or self.reader.disturbed():
            self._restart()
        self._seen = self.latest = observation

    def end(self, observation: Any) -> None:
        """After a rollout that ended with `observation`."""
        self._seen = observation

    def get_state(self) -> Any:
        """What the reader knows beyond the buffer: see `resume`."""
        if not isinstance(self.reader, InfoReader):
            return None
        return [[node and list(node) for node in stack] for stack in self.reader.stacks]

    def resume(self, observation: Any, state: Any) -> None:
        """Go on from `observation`, after the states of buffer, environment and reader were restored.

        `state` is the reader's: what `get_state` returned.

        Raises:
            ValueError: They are not from the same moment.
        """
        facts = self.reader.start()
        if isinstance(self.reader, InfoReader):
            if state is None or len(state) != self.num_envs:
                raise ValueError("the saved state is not of an environment that reports its frames in info")
            self.reader.stacks = [[node and list(node) for node in stack] for stack in state]
        else:
            here = self.buffer.frames["frame_id"][np.arange(self.num_envs), self.buffer.acting]
            if not (np.array_equal(facts.depth, self.buffer.acting) and np.array_equal(facts.frame_id, here)):
                raise ValueError("the environment's state and the learner's are not from the same moment")
        self._seen = self.latest = observation

    def reset(self) -> VecEnvObs:
        """As the wrapped environment; whatever was pending is dropped."""
        observation = super().reset()
        self._restart()
        self._seen = observation
        return observation

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """As the wrapped environment."""
        if self.reader.disturbed():  # by a callback, say, that evaluates on the training environment
            self._restart()
        self._playing = None if self.repeated is None else self.repeated.tasks
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """As the wrapped environment, after the buffer was told."""
        self.latest, rewards, dones, infos = self.venv.step_wait()
        facts = self.reader.read(infos, dones)
        self.buffer.record(
            np.asarray(rewards, np.float32),
            dones,
            facts,
            self.step_cost,
            self.delegation_bonus,
            self.bonus_form,
            self._playing,
            self.frame_price,
            self.level_price,
        )
        return self.latest, rewards, dones, infos

    def _restart(self) -> None:
        facts = self.reader.start()
        if self.repeated is None:
            self.buffer.restart(facts.frame_id, facts.depth)
        else:
            self.buffer.restart(facts.frame_id, facts.depth, self.repeated.tasks, bool(self.repeated.fresh.all()))
