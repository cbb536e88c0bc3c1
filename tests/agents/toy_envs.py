"""Small recursive environments in plain Python that share no code with `rao_envs`.

They are third parties that follow the protocol. `LampTree` can be learned; `EventTree` plays a script or
random events, to check the bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv


@dataclass
class Lamp:
    """A frame: lamps in a row that must all be switched to their colours."""

    id: int
    parent: int
    bits: list[int]
    results: list[int] = field(default_factory=lambda: [0, 0])  # of the halves: 0 untried, 1 right, -1 wrong
    queue: list[int] = field(default_factory=list)  # halves still to open
    half: int = -1  # which half of its parent it is
    start: int = 0
    action: int = -1  # the spawn that opened it


class LampTree(gym.Env[Any, Any]):
    """Switch 2**levels lamps to their colours.

    A frame with one lamp presses it; a longer one can only delegate its halves.

    Actions: press 0, press 1, finish; spawn left, spawn right, spawn both (one after the other).

    :param minimal: info says no more than the protocol's minimum
    :param vector: observations are one vector, without a mask
    :param observe_frame: observations say which frame acts
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        levels: int = 2,
        spawn: bool = True,
        minimal: bool = False,
        vector: bool = False,
        budget: int = 40,
        observe_frame: bool = False,
    ) -> None:
        self.observe_frame = observe_frame
        self.levels, self.minimal, self.vector, self.budget = levels, minimal, vector, budget
        self.n_actions = 6 if spawn else 3
        self.spawn_actions = np.arange(3, self.n_actions)
        self.action_space = spaces.Discrete(self.n_actions)
        self.observation_space: spaces.Space[Any] = spaces.Dict(
            {
                "task": spaces.Box(-1, 1, (4,), np.int8),
                "call": spaces.Box(0.0, 1.0, (1,), np.float32),
                "action_mask": spaces.MultiBinary(self.n_actions),
            }
        )
        if observe_frame:
            high = np.array([levels, 1, self.n_actions - 1], np.int32)
            self.observation_space["frame"] = spaces.Box(np.array([0, 0, -1], np.int32), high, dtype=np.int32)  # type: ignore[index]
        if vector:
            self.observation_space = spaces.Box(-1.0, 1.0, (5,), np.float32)
        self.stack: list[Lamp] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.clock, self.next_id, self.spawning = 0, 1, -1
        self.stack = [Lamp(0, -1, [int(bit) for bit in self.np_random.integers(2, size=2**self.levels)])]
        return self._observe(), self._info("reset", [])

    def action_masks(self) -> np.ndarray[Any, Any]:
        frame = self.stack[-1]
        mask = np.zeros(self.n_actions, bool)
        if len(frame.bits) == 1:
            mask[:2] = True
        else:
            mask[2] = True
            left, right = frame.results[0] == 0, frame.results[1] == 0
            mask[3:] = np.array([left, right, left and right])[: self.n_actions - 3]
        return mask

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.clock += 1
        returned: list[dict[str, Any]] = []
        event, reward, frame = "step", 0.0, self.stack[-1]
        if self.action_masks()[action]:
            if action >= 3:
                frame.queue = [[0], [1], [0, 1]][action - 3][:]
                self.spawning = int(action)
                self._open()
                event = "spawn"
            else:
                success = frame.results == [1, 1] if action == 2 else frame.bits[0] == action
                reward = float(success and len(self.stack) == 1)
                self._close(success, returned)
                event = "return"
                if self.stack and self.stack[-1].queue:
                    self._open()
        terminated = not self.stack
        truncated = not terminated and self.clock >= self.budget
        top = None
        if truncated:
            top = self._observe()
            while self.stack:
                self._close(False, returned)
        info = self._info(event, returned)
        if terminated or truncated:
            info["is_success"] = reward > 0
        return (top if truncated else self._observe()), reward, terminated, truncated, info

    def _open(self) -> None:
        parent = self.stack[-1]
        half = parent.queue.pop(0)
        middle = len(parent.bits) // 2
        bits = parent.bits[middle:] if half else parent.bits[:middle]
        self.stack.append(Lamp(self.next_id, parent.id, bits, half=half, start=self.clock, action=self.spawning))
        self.next_id += 1

    def _close(self, success: bool, returned: list[dict[str, Any]]) -> None:
        frame = self.stack.pop()
        entry: dict[str, Any] = {"frame_id": frame.id, "success": bool(success)}
        if not self.minimal:
            entry |= {
                "parent_id": frame.parent,
                "depth": len(self.stack),
                "action": 3 + frame.half if frame.half >= 0 else -1,
                "reward": float(success),
                "value": float(success),
                "steps": self.clock - frame.start,
                "critical_path": self.clock - frame.start,
                "children": sum(result != 0 for result in frame.results),
                "successes": sum(result == 1 for result in frame.results),
            }
        returned.append(entry)
        if self.stack:
            self.stack[-1].results[frame.half] = 1 if success else -1

    def _observe(self) -> Any:
        frame = self.stack[-1] if self.stack else Lamp(0, -1, [0])
        leaf = len(frame.bits) == 1
        task = np.array([leaf, frame.bits[0] if leaf else 0, *frame.results], np.int8)
        call = np.array([1 - self.clock / self.budget], np.float32)
        if self.vector:
            return np.concatenate([task, call]).astype(np.float32)
        mask = self.action_masks().astype(np.int8) if self.stack else np.ones(self.n_actions, np.int8)
        observation = {"task": task, "call": call, "action_mask": mask}
        if self.observe_frame:
            observation["frame"] = np.array([max(len(self.stack) - 1, 0), frame.start == self.clock, frame.action], np.int32)
        return observation

    def _info(self, event: str, returned: list[dict[str, Any]]) -> dict[str, Any]:
        frame = self.stack[-1] if self.stack else Lamp(0, -1, [0])
        info: dict[str, Any] = {"frame_id": frame.id, "returned": tuple(returned)}
        if not self.minimal:
            info |= {"parent_id": frame.parent, "depth": max(len(self.stack) - 1, 0), "event": event}
        return info

    def get_state(self) -> dict[str, Any]:
        return {
            "rng": self.np_random.bit_generator.state,
            "clock": self.clock,
            "next_id": self.next_id,
            "spawning": self.spawning,
            "stack": [{key: list(v) if isinstance(v, list) else v for key, v in vars(frame).items()} for frame in self.stack],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.np_random.bit_generator.state = state["rng"]
        self.clock, self.next_id, self.spawning = int(state["clock"]), int(state["next_id"]), int(state["spawning"])
        self.stack = [Lamp(**{key: list(v) if isinstance(v, list) else v for key, v in frame.items()}) for frame in state["stack"]]


class Event(NamedTuple):
    """What one step of an `EventTree` does.

    kind: "step"; "spawn" (opens a child); "pop" (opens a child that ends at once); "return" (ends the acting
    frame, and as many above it as there are more outcomes); "switch" (ends the acting frame, and a sibling
    begins); "deep" (opens a child and its child); "done" (ends the episode; with an outcome above 0 the
    environment times out and does not report the frames that ended).
    """

    kind: str
    reward: float = 0.0
    outcomes: tuple[float, ...] = ()


def random_events(rng: np.random.Generator, max_depth: int) -> Callable[[int], Event]:
    """A source of events that fit the depth of the acting frame."""

    def draw(depth: int) -> Event:
        kinds = (
            ["step", "done"]
            + ["return", "switch"] * (depth > 0)
            + ["spawn", "pop"] * (depth < max_depth)
            + ["deep"] * (depth < max_depth - 1)
        )
        weights = np.array([{"step": 4, "done": 0.4, "return": 2, "switch": 1, "spawn": 3, "pop": 1, "deep": 0.5}[kind] for kind in kinds])
        kind = str(rng.choice(kinds, p=weights / weights.sum()))
        count = int(rng.integers(1, depth + 1)) if kind == "return" else 1
        outcomes = tuple(float(rng.integers(2)) for _ in range(count))
        return Event(kind, float(np.round(rng.normal(), 2)), outcomes)

    return draw


class EventTree(gym.Env[Any, Any]):
    """Plays events, whatever the actions, and keeps a log. The observation is the number of the step.

    :param source: depth of the acting frame -> the step's event
    :param first: number of the first observation, so that several environments' differ
    """

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0, 1e9, (1,), np.float64)
    action_space = spaces.Discrete(3)
    spawn_actions = np.array([2])

    def __init__(self, source: Callable[[int], Event], first: int = 0) -> None:
        self.source, self.number = source, first
        self.episode = -1
        # One entry for each step: (observation, episode, frame, depth, reward, ended frames [(frame,
        # payoff...)], done)
        self.log: list[dict[str, Any]] = []
        self.opened: list[tuple[int, int]] = []  # in the step under way: (frame that opens, depth of the child)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episode += 1
        self.next_id = 0
        self.stack: list[dict[str, int]] = []
        self._open()
        return self._observe(), self._info([])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        event = self.source(len(self.stack) - 1)
        entry = {
            "obs": self.number,
            "episode": self.episode,
            "frame": self.stack[-1]["id"],
            "parent": self.stack[-2]["id"] if len(self.stack) > 1 else None,
            "stack": [frame["id"] for frame in self.stack],
            "depth": len(self.stack) - 1,
            "reward": event.reward,
            "done": event.kind == "done",
        }
        self.opened = entry["opened"] = []
        returned: list[dict[str, Any]] = []
        outcomes = iter(event.outcomes or (1.0,) * 99)
        if event.kind in ("spawn", "pop", "deep"):
            self._open()
        if event.kind == "deep":
            self._open()
        if event.kind in ("pop", "switch"):
            self._close(next(outcomes), returned)
        if event.kind == "switch":
            self._open()
        if event.kind == "return":
            for outcome in event.outcomes:
                self._close(outcome, returned)
        truncated = False
        if event.kind == "done":
            truncated = bool(event.outcomes and event.outcomes[0])
            while self.stack and not truncated:
                self._close(0.0, returned)
        entry["returned"] = returned
        self.log.append(entry)
        self.number += 1
        terminated = event.kind == "done" and not truncated
        return self._observe(), event.reward, terminated, truncated, self._info(returned)

    def _open(self) -> None:
        if self.stack:
            self.opened.append((self.stack[-1]["id"], len(self.stack)))
        self.stack.append({"id": self.next_id, "children": 0, "successes": 0})
        self.next_id += 1

    def _close(self, outcome: float, returned: list[dict[str, Any]]) -> None:
        frame = self.stack.pop()
        if self.stack:
            self.stack[-1]["children"] += 1
            self.stack[-1]["successes"] += outcome > 0
        returned.append(
            {
                "frame_id": frame["id"],
                "depth": len(self.stack),
                "success": outcome > 0,
                "reward": outcome,
                "children": frame["children"],
                "successes": frame["successes"],
            }
        )

    def _observe(self) -> Any:
        return np.array([self.number], np.float64)

    def _info(self, returned: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "frame_id": self.stack[-1]["id"] if self.stack else 0,
            "depth": max(len(self.stack) - 1, 0),
            "returned": tuple(returned),
        }


def script(*events: Event) -> Callable[[int], Event]:
    """A source that plays `events`, then steps for ever."""
    iterator: Iterator[Event] = iter(events)
    return lambda depth: next(iterator, Event("step"))


class SideChannel(NamedTuple):
    frame_id: np.ndarray[Any, Any]
    parent_id: np.ndarray[Any, Any]
    depth: np.ndarray[Any, Any]
    event: np.ndarray[Any, Any]
    n_returned: np.ndarray[Any, Any]
    returned: np.ndarray[Any, Any]


RETURNED = np.dtype(
    [
        ("frame_id", "i8"),
        ("depth", "i4"),
        ("success", "?"),
        ("reward", "f4"),
        ("children", "i4"),
        ("successes", "i4"),
    ],
    align=True,
)
EVENTS = ("reset", "step", "spawn", "return")


class FactsVecEnv(DummyVecEnv):
    """A `DummyVecEnv` that also offers the side channel, and whose infos say nothing about frames."""

    facts: SideChannel | None = None

    def reset(self) -> Any:
        obs = super().reset()
        self.facts = self._facts(list(self.reset_infos), [()] * self.num_envs)
        return obs

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = super().step_wait()
        acting = [self.reset_infos[i] if dones[i] else infos[i] for i in range(self.num_envs)]
        self.facts = self._facts(acting, [info["returned"] for info in infos])
        for info in infos:
            for key in ("frame_id", "parent_id", "depth", "event", "returned"):
                info.pop(key, None)
        return obs, rewards, dones, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        result = super().env_method(method_name, *args, indices=indices, **kwargs)
        if method_name == "set_state":
            frames = [env.unwrapped._info("step", []) for env in self.envs]  # type: ignore[attr-defined]
            self.facts = self._facts(frames, [()] * self.num_envs)
        return result

    def _facts(self, acting: list[Any], ended: list[Any]) -> SideChannel:
        returned = np.zeros((self.num_envs, max(1, *(len(entries) for entries in ended), 4)), RETURNED)
        for i, entries in enumerate(ended):
            for j, entry in enumerate(entries):
                for name in RETURNED.names or ():
                    returned[i, j][name] = entry[name]
        return SideChannel(
            np.array([info["frame_id"] for info in acting], np.int64),
            np.array([info.get("parent_id", -1) for info in acting], np.int64),
            np.array([info["depth"] for info in acting], np.int32),
            np.array([EVENTS.index(info.get("event", "step")) for info in acting], np.int8),
            np.array([len(entries) for entries in ended], np.int32),
            returned,
        )


def lamps(
    n: int = 4,
    cls: type[DummyVecEnv] = DummyVecEnv,
    seed: int | None = None,
    monitor: bool = True,
    **kwargs: Any,
) -> DummyVecEnv:
    """`n` lamp trees in one vector environment."""
    env = cls([lambda: Monitor(LampTree(**kwargs)) if monitor else LampTree(**kwargs) for _ in range(n)])
    if seed is not None:
        env.seed(seed)
    return env
