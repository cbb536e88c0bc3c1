"""Learning agents for recursive environments, on Stable-Baselines3.

`RecursivePPO` and `RecursiveA2C` are the algorithms; `save_safely` and `load_safely` keep models of any SB3 algorithm in files
that run no code.
"""

from __future__ import annotations

try:
    import sb3_contrib as _sb3_contrib  # noqa: F401
    import stable_baselines3 as _sb3  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'rao_agents needs torch, stable-baselines3 and sb3-contrib ({error}). Install them with: pip install "rao-envs[agents]"'
    ) from error

from rao_agents import schedules
from rao_agents.checkpoint import (
    ModelFileError,
    UnsafeModelError,
    load_policy,
    load_safely,
    register_algorithm,
    save_policy,
    save_safely,
)
from rao_agents.curriculum import CurriculumCallback
from rao_agents.extractors import SharedMLPExtractor
from rao_agents.mixed import MixedVecEnv, make_mixed_vec_env
from rao_agents.policies import DelegationCnnPolicy, DelegationPolicy, MultiInputDelegationPolicy
from rao_agents.recursive_a2c import RecursiveA2C
from rao_agents.recursive_algorithm import RecursiveAlgorithm
from rao_agents.recursive_ppo import RecursivePPO
from rao_agents.repeat_tasks import RepeatTasks
from rao_agents.rollout_buffer import FrameDictRolloutBuffer, FrameRolloutBuffer, ProtocolError
from rao_agents.runners import Solution, solve, solve_all
from rao_agents.safe_json import register_class
from rao_agents.sequence_extractor import SequenceExtractor
from rao_agents.training_state import set_training_state, training_state
from rao_agents.transfer.extractor import StateTransferExtractor
from rao_agents.vec_env import RecursiveVecEnv, make_vec_env

for _class in (
    DelegationPolicy,
    DelegationCnnPolicy,
    MultiInputDelegationPolicy,
    FrameRolloutBuffer,
    FrameDictRolloutBuffer,
    SharedMLPExtractor,
    SequenceExtractor,
    StateTransferExtractor,
):
    register_class(_class, f"rao_agents.{_class.__name__}")

__all__ = [
    "CurriculumCallback",
    "DelegationCnnPolicy",
    "DelegationPolicy",
    "FrameDictRolloutBuffer",
    "FrameRolloutBuffer",
    "MixedVecEnv",
    "ModelFileError",
    "MultiInputDelegationPolicy",
    "ProtocolError",
    "RecursiveA2C",
    "RecursiveAlgorithm",
    "RecursivePPO",
    "RecursiveVecEnv",
    "RepeatTasks",
    "SequenceExtractor",
    "SharedMLPExtractor",
    "Solution",
    "StateTransferExtractor",
    "UnsafeModelError",
    "load_policy",
    "load_safely",
    "make_mixed_vec_env",
    "make_vec_env",
    "register_algorithm",
    "register_class",
    "save_policy",
    "save_safely",
    "schedules",
    "set_training_state",
    "solve",
    "solve_all",
    "training_state",
]
