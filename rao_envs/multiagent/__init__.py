"""PettingZoo views of recursive environments: one agent per live frame (MISSION A11).

`rao_envs.aec_env` and `rao_envs.parallel_env` make them; PettingZoo is imported here only.
"""

from rao_envs.multiagent.aec import FramesAEC, aec_env
from rao_envs.multiagent.parallel import FramesParallel, parallel_env

__all__ = ["FramesAEC", "FramesParallel", "aec_env", "parallel_env"]
