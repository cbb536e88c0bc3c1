"""A toy task in which what is right depends on which frame acts, and no observation but `frame` says which it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv


@dataclass
class Node:
    id: int
    action: int = -1
    start: int = 0
    done: tuple[int, int] = (0, 0)  # children that returned, by the spawn that opened them
    fine: bool = True  # so far


class Contradiction(gym.Env[Any, Any]):
    """Answer with 0 or 1; everybody who has to answer sees the same.

    With `by="role"` the root opens one child with each of its two spawns; the first kind must answer 0, the other 1. With
    `by="level"` a child opens a child of its own, and after that the root must answer 0, its child 1. The root succeeds if
    all answers are right.

    Actions: answer 0, answer 1, spawn, spawn.
    """

    metadata = {"render_modes": []}
    spawn_actions = np.array([2, 3])

    def __init__(self, by: str) -> None:
        self.by = by
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Dict(
            {
                "task": spaces.Box(0, 1, (3,), np.int8),
                "action_mask": spaces.MultiBinary(4),
                "frame": spaces.Box(np.array([0, 0, -1], np.int32), np.array([2, 1, 3], np.int32), dtype=np.int32),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.clock, self.next_id, self.stack = 0, 1, [Node(0)]
        return self._observe(), self._info([])

    def action_masks(self) -> np.ndarray[Any, Any]:
        node, depth = self.stack[-1], len(self.stack) - 1
        if self.by == "role":
            open_ = (not node.done[0], not node.done[1]) if depth == 0 else (False, False)
        else:
            open_ = (depth < 2 and not node.done[0], False)
        answers = (True, False) if self._free() and not any(open_) else (not any(open_),) * 2
        return np.array([*answers, *open_])

    def _free(self) -> bool:
        """Whether the answer of the acting frame is given: only one is allowed."""
        return len(self.stack) - 1 == (0 if self.by == "role" else 2)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.clock += 1
        returned: list[dict[str, Any]] = []
        node, depth, reward = self.stack[-1], len(self.stack) - 1, 0.0
        if action >= 2:
            self.stack.append(Node(self.next_id, int(action), self.clock))
            self.next_id += 1
        else:
            wanted = 0 if self._free() else node.action - 2 if self.by == "role" else depth
            success = node.fine and action == wanted
            self.stack.pop()
            returned.append({"frame_id": node.id, "depth": depth, "success": success, "reward": float(success)})
            if self.stack:
                parent = self.stack[-1]
                parent.done = (parent.done[0] or node.action == 2, parent.done[1] or node.action == 3)  # type: ignore[assignment]
                parent.fine &= success
            reward = float(success and not self.stack)
        over = not self.stack
        info = self._info(returned) | ({"is_success": reward > 0} if over else {})
        return self._observe(), reward, over, False, info

    def _observe(self) -> Any:
        node = self.stack[-1] if self.stack else Node(0)
        mask = self.action_masks().astype(np.int8) if self.stack else np.ones(4, np.int8)
        # What has returned, and whether an answer is asked for.
        task = np.array([mask[0], *(mask[2:])], np.int8)
        frame = np.array([max(len(self.stack) - 1, 0), node.start == self.clock, node.action], np.int32)
        return {"task": task, "action_mask": mask, "frame": frame}

    def _info(self, returned: list[dict[str, Any]]) -> dict[str, Any]:
        node = self.stack[-1] if self.stack else Node(0)
        return {"frame_id": node.id, "depth": max(len(self.stack) - 1, 0), "returned": tuple(returned)}


def contradictions(by: str, n: int = 16, seed: int = 0) -> DummyVecEnv:
    """`n` of them in one vector environment."""
    env = DummyVecEnv([lambda: Contradiction(by) for _ in range(n)])
    env.seed(seed)
    return env
