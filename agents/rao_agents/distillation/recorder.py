"""Whole episodes out of a training run, without touching its algorithm (MISSION B1).

At each step only what Stable-Baselines3 does not keep is noted (frames, verdicts, the environment's own rewards). Everything else is read
from the rollout buffer when the rollout is complete, all steps and environments at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from rao_agents.distillation.episodes import NO_SEED, PLAIN, Episode
from rao_agents.recursive_algorithm import find_spawn_actions
from rao_agents.repeat_tasks import repeated_tasks
from rao_agents.rollout_buffer import FrameRolloutBufferMixin
from rao_agents.tap import FactsReader, FrameReader, InfoReader, RootReader, facts_source
from rao_envs.core.callstack import FrameFacts

GRID = ("actions", "log_probs", "values", "rewards", "advantages", "frame_id", "depth")
MASKS = "action_masks"
OBSERVATION = "observations/"

Columns = dict[str, npt.NDArray[Any]]
Verdict = tuple[bool | None, int]
"""Success of an episode that ended, and its task's number."""


class EpisodeRecorder:
    """Collects the episodes of an on-policy algorithm's training.

    For each rollout: `begin`, then `step` after each environment step, then `end`, which hands out the episodes that ended in it.
    Episodes go on over rollouts; what was played before the recorder was there, or while somebody else stepped the environments, is
    left out.

    Args:
        model: with a Discrete action space.

    Raises:
        ValueError: another action space, or an algorithm without a rollout buffer.
    """

    def __init__(self, model: OnPolicyAlgorithm) -> None:
        if not isinstance(model, OnPolicyAlgorithm):
            raise ValueError(
                f"episodes are recorded from on-policy algorithms (PPO, A2C, MaskablePPO, RecursivePPO, ...), not {type(model).__name__}"
            )
        if not isinstance(model.action_space, spaces.Discrete):
            raise ValueError(f"distillation needs a Discrete action space, got {model.action_space}")
        self.model = model
        env = model.get_env()
        assert env is not None
        self.env: VecEnv = env
        self.n_envs = env.num_envs
        source = facts_source(env)
        self.reader: FrameReader
        if source is not None:
            self.reader = FactsReader(source)
        else:
            self.reader = InfoReader(env) if find_spawn_actions(env) else RootReader(env)
        self.repeated = repeated_tasks(env)
        # Per environment: chunks of the episode under way, [] at its beginning; None while its beginning is not known.
        self.chunks: list[list[Columns] | None] = [None] * self.n_envs
        self.ended: list[list[tuple[int, bool]]] = [[] for _ in range(self.n_envs)]  # frames of the episode under way that ended
        self.numbers = np.arange(self.n_envs, dtype=np.int64)  # of the episodes under way
        self.issued = self.n_envs
        self._facts: FrameFacts | None = None
        self._seen: Any = None
        self._steps: dict[str, list[npt.NDArray[Any]]] = {}
        self._verdicts: dict[tuple[int, int], tuple[bool | None, list[tuple[int, bool]], int]] = {}

    @property
    def recording(self) -> bool:
        """Whether a rollout is under way: steps were noted that `end` has not dealt with."""
        return bool(self._steps.get("dones"))

    # -- collecting --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before a rollout: do its episodes go on from where the last one ended?"""
        if self._facts is None or self._latest() is not self._seen or self.reader.disturbed():
            self._facts = self.reader.start()
            starts = self.model._last_episode_starts
            self.chunks = [[] if fresh else None for fresh in (np.zeros(self.n_envs) if starts is None else starts)]
            self.ended = [[] for _ in range(self.n_envs)]
        self._steps = {name: [] for name in ("dones", "rewards", "frame_id", "depth")}
        self._verdicts = {}

    def step(self, rewards: npt.NDArray[Any], dones: npt.NDArray[np.bool_], infos: list[dict[str, Any]]) -> None:
        """After an environment step: note what the rollout buffer does not keep.

        Args:
            rewards: as the environment gave them, (n_envs,).
            dones: (n_envs,).
            infos: one for each environment.
        """
        assert self._facts is not None
        steps, facts = self._steps, self._facts
        at = len(steps["dones"])
        steps["frame_id"].append(np.array(facts.frame_id))
        steps["depth"].append(np.array(facts.depth))
        steps["rewards"].append(np.array(rewards, np.float32))
        steps["dones"].append(np.array(dones, np.bool_))
        self._facts = facts = self.reader.read(infos, dones)
        for index in np.flatnonzero(facts.n_returned).tolist():
            entries = facts.returned[index, : facts.n_returned[index]]
            self.ended[index] += zip(entries["frame_id"].tolist(), entries["success"].tolist(), strict=True)
        for index in np.flatnonzero(dones).tolist():
            frames, self.ended[index] = self.ended[index], []
            self._verdicts[at, index] = _success(infos[index], frames), frames, self._number(index)

    def _number(self, index: int) -> int:
        """The number of the task just played; the next episode gets one of its own, or the repeated task's."""
        number = int(self.numbers[index])
        if self.repeated is None:
            self.numbers[index] = self.issued
            self.issued += 1
        else:
            self.numbers[index] = self.repeated.tasks[index]
        return number

    # -- handing out -------------------------------------------------------------------------------

    def _latest(self) -> Any:
        """The environment's latest observation; with state transfer the algorithm's own is another one within a rollout."""
        states = getattr(self.model, "_states", None)
        return self.model._last_obs if states is None else states.raw

    def end(self, iteration: int, most_steps: int | None = None) -> list[Episode]:
        """After a rollout, before the algorithm learns from it: the episodes that ended in it, by the time of their end.

        Args:
            iteration: how many policy updates there had been.
            most_steps: episodes under way that are longer than this are given up, as nobody would remember them; None for no bound.
        """
        self._seen = self._latest()
        grid = self._grid()
        dones = np.array(self._steps["dones"])
        found: list[tuple[int, Episode]] = []
        for index in range(self.n_envs):
            start = 0
            for last in np.flatnonzero(dones[:, index]).tolist():
                chunks = self.chunks[index]
                if chunks is not None:
                    chunks.append(_cut(grid, index, start, last + 1))
                    success, frames, number = self._verdicts[last, index]
                    found.append((last, self._episode(chunks, success, frames, number, iteration)))
                self.chunks[index], start = [], last + 1
            rest = self.chunks[index]
            if rest is not None and start < len(dones):
                rest.append(_cut(grid, index, start, len(dones)))
                if most_steps is not None and sum(len(chunk["rewards"]) for chunk in rest) > most_steps:
                    self.chunks[index] = None
            if self.chunks[index] is None:
                self.ended[index] = []
        self._steps = {}
        return [episode for _, episode in sorted(found, key=lambda item: item[0])]

    def _grid(self) -> Columns:
        """The rollout's arrays, each (steps, n_envs, ...). Views: the algorithm goes on using them."""
        buffer: Any = self.model.rollout_buffer
        shape = buffer.buffer_size, buffer.n_envs
        observations = buffer.observations if isinstance(buffer.observations, Mapping) else {PLAIN: buffer.observations}
        grid: Columns = {f"{OBSERVATION}{key}": array for key, array in observations.items()}
        grid |= {name: np.asarray(getattr(buffer, name)).reshape(shape) for name in ("actions", "log_probs", "values", "advantages")}
        grid |= {name: np.array(self._steps[name]) for name in ("rewards", "frame_id", "depth")}
        if hasattr(buffer, MASKS):
            grid[MASKS] = np.asarray(buffer.action_masks).reshape(*shape, -1)
        if isinstance(buffer, FrameRolloutBufferMixin):
            # Nothing is known yet of what was carried on: no news is no advantage.
            waiting = ~buffer.valid[: buffer.n_step_rows].reshape(shape)
            grid["advantages"] = np.where(waiting, np.float32(0.0), grid["advantages"])
        return grid

    def _episode(
        self, chunks: list[Columns], success: bool | None, frames: Sequence[tuple[int, bool]], number: int, iteration: int
    ) -> Episode:
        whole = chunks[0] if len(chunks) == 1 else {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
        masks = whole.get(MASKS)
        return Episode(
            observations={name.removeprefix(OBSERVATION): array for name, array in whole.items() if name.startswith(OBSERVATION)},
            actions=whole["actions"].astype(np.int64),
            action_masks=None if masks is None else masks.astype(np.bool_),
            log_probs=whole["log_probs"].astype(np.float32),
            values=whole["values"].astype(np.float32),
            rewards=whole["rewards"],
            advantages=whole["advantages"].astype(np.float32),
            frame_id=whole["frame_id"].astype(np.int64),
            depth=whole["depth"].astype(np.int32),
            frames=np.array([frame for frame, _ in frames], np.int64),
            frame_success=np.array([verdict for _, verdict in frames], np.bool_),
            task=number,
            seed=NO_SEED if self.repeated is None else self.repeated.task_seed(number),
            success=success,
            ret=float(whole["rewards"].sum(dtype=np.float64)),
            iteration=iteration,
        )

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The episodes under way, as plain values and arrays (copies); between rollouts only. See `resume`."""
        return {
            "chunks": [None if chunks is None else [dict(chunk) for chunk in chunks] for chunks in self.chunks],
            "ended": [[[frame, bool(verdict)] for frame, verdict in frames] for frames in self.ended],
            "numbers": self.numbers.copy(),
            "issued": self.issued,
            "stacks": [[node and list(node) for node in stack] for stack in self.reader.stacks]
            if isinstance(self.reader, InfoReader)
            else None,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on with the episodes in `state`, after the environment's own state was restored.

        Raises:
            ValueError: it is of another number of environments.
        """
        if len(state["chunks"]) != self.n_envs:
            raise ValueError(f"this state is of {len(state['chunks'])} environments, here are {self.n_envs}")
        self._facts = self.reader.start()
        starts = self.model._last_episode_starts
        fresh = [False] * self.n_envs if starts is None else [bool(start) for start in starts]
        if isinstance(self.reader, InfoReader) and state["stacks"] is not None:
            stacks = [[node and list(node) for node in stack] for stack in state["stacks"]]
            self.reader.stacks = [now if new else old for now, old, new in zip(self.reader.stacks, stacks, fresh, strict=True)]
        # An episode that begins now has no past: the environment may have been reset instead of restored.
        chunks = [None if chunks is None else [dict(chunk) for chunk in chunks] for chunks in state["chunks"]]
        self.chunks = [[] if new else old for old, new in zip(chunks, fresh, strict=True)]
        ended = [[(int(frame), bool(verdict)) for frame, verdict in frames] for frames in state["ended"]]
        self.ended = [[] if new else old for old, new in zip(ended, fresh, strict=True)]
        self.numbers = np.array(state["numbers"], np.int64)
        self.issued = int(state["issued"])
        self._seen = self.model._last_obs  # between rollouts also with state transfer the environment's


def _cut(grid: Columns, index: int, start: int, end: int) -> Columns:
    """Copies of one environment's steps."""
    return {name: array[start:end, index].copy() for name, array in grid.items()}


def _success(info: Mapping[str, Any], frames: Sequence[tuple[int, bool]]) -> bool | None:
    """The verdict on an episode that ended: the environment's, or else the root frame's."""
    if info.get("is_success") is not None:
        return bool(cast(Any, info["is_success"]))
    return next((verdict for frame, verdict in frames if frame == 0), None)
