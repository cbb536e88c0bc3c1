"""`RecordVideo` films an episode, headless, spawns included."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.wrappers import RecordVideo

import rao_envs
from rao_envs.maze.reference import RecursiveSolver


@pytest.mark.filterwarnings("ignore")  # moviepy and its dependencies warn as they please
def test_record_video_works(tmp_path: Path) -> None:
    assert rao_envs.registered_ids()
    env = RecordVideo(gym.make("RAO/Maze-10x10-v0", render_mode="rgb_array"), str(tmp_path), disable_logger=True)
    observation, _ = env.reset(seed=0)
    solver, over = RecursiveSolver(), False
    while not over:
        action = solver(observation, observation["action_mask"], None)
        observation, _, terminated, truncated, _ = env.step(action[0] if isinstance(action, tuple) else action)
        over = terminated or truncated
    env.close()
    (film,) = tmp_path.glob("*.mp4")
    assert film.stat().st_size > 1000
