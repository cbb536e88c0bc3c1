"""Running whole recursion trees: frame by frame, in waves, or on a cluster; `solve` is the one call (MISSION A8, A9)."""

from rao_agents.runners.on_ray import OnRay
from rao_agents.runners.solution import Solution
from rao_agents.runners.solving import Batched, Runner, Sequential, solve, solve_all

__all__ = ["Batched", "OnRay", "Runner", "Sequential", "Solution", "solve", "solve_all"]
