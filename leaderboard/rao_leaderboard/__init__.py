"""The leaderboard: what a submission is, how it is checked without running anything in it, and how rows are ranked.

Needs `rao_envs` alone; no torch, no Stable-Baselines3.
"""

from __future__ import annotations

from rao_leaderboard.protocol import EPISODES, PROTOCOL, TASKS, TRACKS, Task, episode_seeds
from rao_leaderboard.schema import Submission

__all__ = ["EPISODES", "PROTOCOL", "TASKS", "TRACKS", "Submission", "Task", "episode_seeds"]
