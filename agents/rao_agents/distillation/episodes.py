"""What self-distillation remembers: whole episodes, and their states side by side (MISSION B1, B2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

PLAIN = ""
"""The one key under which a plain (not dictionary) observation is stored."""
NO_SEED = -1
UNKNOWN, FAILED, SUCCEEDED = -1, 0, 1
"""What is known of a frame's, or an episode's, success."""

COLUMNS = {
    "actions": np.int64,
    "log_probs": np.float32,
    "values": np.float32,
    "rewards": np.float32,
    "advantages": np.float32,
    "frame_id": np.int64,
    "depth": np.int32,
}
"""The arrays of an episode with one number for each step."""


@dataclass(frozen=True, eq=False)
class Episode:
    """A whole root episode: for recursive agents the whole tree, step by step in the order of time.

    Args:
        observations: what the acting frame saw, by key ("" for plain observations), each (T, *shape).
        actions: int64 (T,).
        action_masks: which actions were allowed, bool (T, n_actions); None without masks.
        log_probs: of the actions under the policy that acted, float32 (T,).
        values: that policy's values of the states, float32 (T,).
        rewards: the environment's, float32 (T,).
        advantages: as the algorithm estimated them (per frame where it keeps frames apart), float32 (T,); 0 where nothing is known.
        frame_id: the frame that acted, unique within the episode, root 0, int64 (T,).
        depth: of that frame, root 0, int32 (T,).
        frames: ids of the frames that ended, int64 (F,).
        frame_success: whether each of them succeeded, bool (F,).
        task: number of the root task; rollouts of the same task have the same.
        seed: the task's seed, -1 where it is not known.
        success: the environment's verdict (`is_success`, or the root frame's); None where it gives none.
        ret: sum of the rewards.
        iteration: how many policy updates (rollouts) there had been when it ended.
        expert: whether it comes from elsewhere than this run: an anchor.

    Raises:
        ValueError: no steps, or arrays of different lengths.
    """

    observations: dict[str, npt.NDArray[Any]]
    actions: npt.NDArray[np.int64]
    action_masks: npt.NDArray[np.bool_] | None
    log_probs: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    frame_id: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int32]
    frames: npt.NDArray[np.int64]
    frame_success: npt.NDArray[np.bool_]
    task: int = 0
    seed: int = NO_SEED
    success: bool | None = None
    ret: float = 0.0
    iteration: int = 0
    expert: bool = False

    def __post_init__(self) -> None:
        n = len(self.actions)
        if n == 0:
            raise ValueError("an episode has at least one step")
        lengths = {name: getattr(self, name).shape for name in COLUMNS}
        wrong = [f"{name} {shape}" for name, shape in lengths.items() if shape != (n,)]
        wrong += [f"observations[{key!r}] {array.shape}" for key, array in self.observations.items() if array.shape[:1] != (n,)]
        if self.action_masks is not None and (self.action_masks.ndim != 2 or len(self.action_masks) != n):
            wrong.append(f"action_masks {self.action_masks.shape}")
        if self.frames.shape != self.frame_success.shape or self.frames.ndim != 1:
            wrong.append(f"frames {self.frames.shape} and frame_success {self.frame_success.shape}")
        if not self.observations:
            wrong.append("no observations")
        if wrong:
            raise ValueError(f"an episode of {n} steps has one row for each of them in every array; not so: {', '.join(wrong)}")

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def nbytes(self) -> int:
        """Memory of its arrays, in bytes."""
        arrays = [*self.observations.values(), *(getattr(self, name) for name in COLUMNS), self.frames, self.frame_success]
        return int(sum(array.nbytes for array in arrays)) + (0 if self.action_masks is None else int(self.action_masks.nbytes))

    def step_success(self) -> npt.NDArray[np.int8]:
        """For each step whether its frame succeeded (1) or not (0); -1 where that is not known. int8 (T,)."""
        result = np.full(len(self), UNKNOWN, np.int8)
        if self.success is not None:
            result[self.depth == 0] = self.success
        if self.frames.size:
            order = np.argsort(self.frames, kind="stable")
            ids = self.frames[order]
            place = np.minimum(np.searchsorted(ids, self.frame_id), len(ids) - 1)
            known = ids[place] == self.frame_id
            result[known] = self.frame_success[order][place[known]]
        return result

    def steps_of(self, frame: int) -> npt.NDArray[np.int64]:
        """Indices of the steps that frame `frame` took, in order."""
        return np.flatnonzero(self.frame_id == frame)

    def as_expert(self) -> Episode:
        """The same, marked as coming from elsewhere."""
        return replace(self, expert=True)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything as plain arrays, for files; see `from_arrays`."""
        verdict = UNKNOWN if self.success is None else int(self.success)
        result: dict[str, npt.NDArray[Any]] = {f"observations/{key}": array for key, array in self.observations.items()}
        result |= {name: getattr(self, name) for name in (*COLUMNS, "frames", "frame_success")}
        if self.action_masks is not None:
            result["action_masks"] = self.action_masks
        result["about"] = np.array([self.task, self.seed, verdict, self.iteration, self.expert], np.int64)
        result["ret"] = np.array(self.ret, np.float64)
        return result

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Episode:
        """The episode whose `arrays` these are.

        Raises:
            ValueError: something is missing, or of the wrong shape.
        """
        try:
            task, seed, verdict, iteration, expert = (int(number) for number in arrays["about"])
            masks = arrays.get("action_masks")
            return cls(
                observations={key.partition("/")[2]: array for key, array in arrays.items() if key.startswith("observations/")},
                action_masks=None if masks is None else masks.astype(np.bool_),
                frames=arrays["frames"].astype(np.int64),
                frame_success=arrays["frame_success"].astype(np.bool_),
                task=task,
                seed=seed,
                success=None if verdict == UNKNOWN else bool(verdict),
                ret=float(arrays["ret"]),
                iteration=iteration,
                expert=bool(expert),
                **{name: arrays[name].astype(dtype) for name, dtype in COLUMNS.items()},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"these arrays are not an episode's: {error}") from error


@dataclass(frozen=True, eq=False)
class States:
    """The steps of many episodes side by side: what distillers and injectors draw from. N rows.

    Args:
        observations: by key ("" for plain observations), each (N, *shape).
        actions: int64 (N,).
        action_masks: bool (N, n_actions), or None without masks.
        log_probs, values, advantages: as in `Episode`, float32 (N,).
        success: of the step's frame: 1, 0, or -1 where it is not known, int8 (N,).
        depth: of that frame, int32 (N,).
        frame_id: of that frame, unique within its episode, int64 (N,).
        episode: which of the episodes, int64 (N,), ascending.
        episode_success: the episode's verdict: 1, 0, -1, int8 (N,).
        episode_return: float32 (N,).
        iteration: int64 (N,).
        expert: bool (N,).
    """

    observations: dict[str, npt.NDArray[Any]]
    actions: npt.NDArray[np.int64]
    action_masks: npt.NDArray[np.bool_] | None
    log_probs: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    success: npt.NDArray[np.int8]
    depth: npt.NDArray[np.int32]
    frame_id: npt.NDArray[np.int64]
    episode: npt.NDArray[np.int64]
    episode_success: npt.NDArray[np.int8]
    episode_return: npt.NDArray[np.float32]
    iteration: npt.NDArray[np.int64]
    expert: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def returns(self) -> npt.NDArray[np.float32]:
        """What the value function was trained towards: advantage + value, float32 (N,)."""
        return self.advantages + self.values

    def at(self, index: npt.NDArray[Any]) -> States:
        """The rows at `index` (indices or a mask)."""
        parts: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "observations":
                parts[field.name] = {key: array[index] for key, array in value.items()}
            else:
                parts[field.name] = None if value is None else value[index]
        return States(**parts)

    def obs(self) -> Any:
        """The observations as a policy takes them: an array, or a dictionary of arrays."""
        return self.observations.get(PLAIN, self.observations)


def states(episodes: Sequence[Episode]) -> States:
    """The steps of `episodes`, in their order. Where only some have masks, everything was allowed in the others.

    Raises:
        ValueError: there are none, or some have other observations than the rest, or masks for another number of actions.
    """
    if not episodes:
        raise ValueError("there are no episodes to take states from")
    keys = set(episodes[0].observations)
    if any(set(episode.observations) != keys for episode in episodes):
        raise ValueError(f"the episodes' observations differ: {sorted({tuple(sorted(episode.observations)) for episode in episodes})}")
    masks = _masks(episodes)
    lengths = np.array([len(episode) for episode in episodes])

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(episode, name) for episode in episodes])

    def about(values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.repeat(np.array(values, dtype), lengths)

    return States(
        observations={key: np.concatenate([episode.observations[key] for episode in episodes]) for key in episodes[0].observations},
        action_masks=masks,
        success=np.concatenate([episode.step_success() for episode in episodes]),
        episode=about(list(range(len(episodes))), np.int64),
        episode_success=about([UNKNOWN if e.success is None else int(e.success) for e in episodes], np.int8),
        episode_return=about([e.ret for e in episodes], np.float32),
        iteration=about([e.iteration for e in episodes], np.int64),
        expert=about([e.expert for e in episodes], np.bool_),
        **{name: column(name) for name in ("actions", "log_probs", "values", "advantages", "depth", "frame_id")},
    )


def _masks(episodes: Sequence[Episode]) -> npt.NDArray[np.bool_] | None:
    """The masks of `episodes` side by side; None where none has any."""
    widths = {episode.action_masks.shape[1] for episode in episodes if episode.action_masks is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise ValueError(f"the episodes have masks for different numbers of actions: {sorted(widths)}")
    (width,) = widths
    return np.concatenate([np.ones((len(e), width), np.bool_) if e.action_masks is None else e.action_masks for e in episodes])
