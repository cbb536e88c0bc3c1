"""RAO-envs: Gymnasium environments in which an agent may spawn sub-environments.

>>> import gymnasium as gym
>>> import rao_envs
>>> env = gym.make("RAO/Maze-20x20")
>>> twin = gym.make("RAO/Maze-20x20", spawn=False)  # the same tasks without recursion
>>> print(rao_envs.evaluate(my_agent, "RAO/Maze-20x20", seeds=100))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rao_envs.core.episodes import Episode, Evaluation
from rao_envs.core.evaluate import evaluate, replay, replay_all
from rao_envs.registration import register_all, registered_ids

if TYPE_CHECKING:
    from rao_envs.multiagent import aec_env, parallel_env

__version__ = "0.1.0"
__all__ = [
    "Episode",
    "Evaluation",
    "__version__",
    "aec_env",
    "evaluate",
    "parallel_env",
    "registered_ids",
    "replay",
    "replay_all",
]

register_all()


def __getattr__(name: str) -> Any:
    # PettingZoo takes a while to import, and few need it.
    if name in ("aec_env", "parallel_env"):
        from rao_envs import multiagent

        return getattr(multiagent, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
