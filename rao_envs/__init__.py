"""RAO-envs: Gymnasium environments in which an agent may spawn sub-environments.

>>> import gymnasium as gym
>>> import rao_envs
>>> env = gym.make("RAO/Maze-20x20")
>>> twin = gym.make("RAO/Maze-20x20", spawn=False)  # the same tasks without recursion
>>> print(rao_envs.evaluate(my_agent, "RAO/Maze-20x20", seeds=100))
"""

from rao_envs.core.episodes import Episode, Evaluation
from rao_envs.core.evaluate import evaluate, replay, replay_all
from rao_envs.registration import register_all, registered_ids

__version__ = "0.1.0"
__all__ = ["Episode", "Evaluation", "__version__", "evaluate", "registered_ids", "replay", "replay_all"]

register_all()
