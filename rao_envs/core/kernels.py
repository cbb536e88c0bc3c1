"""The protocol's dynamics, once for every family: reset, step, spawn, return, over a batch (PROTOCOL rules 2, 3, 6, 7, 10).

Compiled when the domain's hooks are; the same functions run uncompiled for a domain in plain Python (`rao_envs.core.interpreter`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core import hooks
from rao_envs.core.callstack import (
    EVENT_RESET,
    EVENT_RETURN,
    EVENT_SPAWN,
    EVENT_STEP,
    FAILURE,
    NO_ACTION,
    NO_PARENT,
    RUNNING,
    SUCCESS,
    CallStack,
    Observation,
)
from rao_envs.core.jit import inline, jit, lean, splice
from rao_envs.core.rng import mix


@inline
def enter(stack: CallStack, i: int, depth: int, identity: int, stride: int, parent: int, action: int, budget: int, root_left: int) -> None:
    """Make `frames[i, depth]` a new frame and the acting one."""
    episode = stack.episodes[i]
    frame = stack.frames[i, depth]
    frame["id"] = identity
    frame["parent"] = parent
    frame["start"] = episode["clock"]
    frame["root_left"] = root_left
    frame["stride"] = stride
    frame["first_child_id"] = 0
    frame["free_id"] = 0
    frame["spawn_root_left"] = 0
    frame["score"] = 0.0
    frame["value"] = 0.0
    frame["budget"] = budget
    frame["action"] = action
    frame["path"] = 0
    frame["children"] = 0
    frame["successes"] = 0
    frame["nodes"] = 1
    frame["deepest"] = depth
    frame["spawns"] = 0
    frame["group"] = 0
    frame["opened"] = 0
    frame["pool"] = 0
    frame["wanted"] = 0
    frame["spawning"] = NO_ACTION
    frame["group_path"] = 0
    frame["last"] = EVENT_RESET
    episode["next_id"] = identity + stride
    episode["depth"] = depth


@inline
def steps_left(stack: CallStack, i: int, depth: int) -> int:
    """Steps left to the frame at `depth` and everything below it."""
    frame = stack.frames[i, depth]
    return frame["budget"] - (stack.episodes[i]["clock"] - frame["start"])


@lean
def look(domain: Any, stack: CallStack, obs: Observation, i: int) -> None:
    """Write the acting frame's observation, mask included."""
    episode = stack.episodes[i]
    limits = stack.limits[0]
    depth = episode["depth"]
    frame = stack.frames[i, depth]
    hooks.observe(domain, stack, obs, i)
    left = steps_left(stack, i, depth)
    may_spawn = False
    for action in range(limits["actions"]):
        valid = hooks.allowed(domain, stack, i, action)
        if valid and action >= limits["primitives"]:
            # A child needs at least one step of its own, or it would open and close at once and shift credit by one frame.
            valid = depth < limits["max_depth"] and left > hooks.fanout(domain, stack, i, action)
            may_spawn = may_spawn or valid
        obs.action_mask[i, action] = 1 if valid else 0
    used = episode["clock"] - frame["start"]
    obs.call[i, 0] = 1.0 if may_spawn else 0.0
    obs.call[i, 1] = left / frame["budget"]
    obs.call[i, 2] = (frame["root_left"] - used) / limits["budget"]
    obs.call[i, 3] = 1.0 if frame["last"] == EVENT_RESET else 0.0
    told = limits["verdicts"]
    obs.call[i, 4] = 1.0 if told and frame["last"] == SUCCESS else 0.0
    obs.call[i, 5] = 1.0 if told and frame["last"] == FAILURE else 0.0


LAST_NOTHING = -1
# `last` shares one field between "just opened" and a child's outcome; the two codes must not meet.
assert EVENT_RESET not in (SUCCESS, FAILURE, LAST_NOTHING)


@splice
def reset_instance(domain: Any, stack: CallStack, obs: Observation, i: int) -> None:
    """Begin instance `i`'s next episode from its own random stream."""
    episode = stack.episodes[i]
    limits = stack.limits[0]
    episode["clock"] = 0
    episode["reward"] = 0.0
    episode["potential"] = 0.0
    episode["dense"] = 0.0
    episode["base"] = 0
    episode["event"] = EVENT_RESET
    episode["n_returned"] = 0
    episode["terminated"] = False
    episode["truncated"] = False
    episode["success"] = False
    enter(stack, i, 0, 0, 1, NO_PARENT, NO_ACTION, limits["budget"], limits["budget"])
    hooks.begin(domain, stack, i)
    stack.frame_rng[i, 0, 0] = mix(stack.rng[i, 0])
    if limits["dense"]:
        episode["potential"] = hooks.progress(domain, stack, i)
    look(domain, stack, obs, i)


@inline
def share(wish: int, wanted: int, pool: int, group: int) -> int:
    """What a child gets that wants `wish` steps, of the `pool` that `group` siblings share, who want `wanted` together.

    Everybody's wish if there is enough, else one step each and the rest in proportion: of parts that differ in size the large one is
    where the steps are needed.
    """
    if group == 1:
        return min(wish, int(pool))
    if wanted <= pool:
        return wish
    return 1 + (wish - 1) * int(pool - group) // int(wanted - group)


@inline
def open_sibling(domain: Any, stack: CallStack, i: int, k: int) -> None:
    """Open child number `k` of the acting frame's current group and let it act."""
    episode = stack.episodes[i]
    depth = episode["depth"]
    parent = stack.frames[i, depth]
    # All that a child starts from is fixed at the spawn and blind to what its siblings did, so that running them at once changes
    # nothing. The ids of `group` siblings' sub-trees are dealt out in turn.
    identity = parent["first_child_id"] + k * parent["stride"]
    stride = parent["group"] * parent["stride"]
    wish = max(1, hooks.open_child(domain, stack, i, parent["spawning"], k))
    budget = share(wish, parent["wanted"], parent["pool"], parent["group"])
    parent["opened"] = k + 1
    stack.frame_rng[i, depth + 1, 0] = mix(stack.frame_rng[i, depth, 0] ^ np.uint64(mix(np.uint64(identity))))
    enter(stack, i, depth + 1, identity, stride, parent["id"], parent["spawning"], budget, parent["spawn_root_left"])
    # A sibling opens in the step in which its elder returns.
    episode["event"] = EVENT_SPAWN if k == 0 else EVENT_RETURN


@inline
def open_group(domain: Any, stack: CallStack, i: int, action: int) -> None:
    """Carry out an allowed spawn `action`: reserve the children's budgets and open the first."""
    depth = stack.episodes[i]["depth"]
    frame = stack.frames[i, depth]
    children = hooks.fanout(domain, stack, i, action)
    frame["group"] = children
    frame["group_path"] = 0
    frame["spawning"] = action
    frame["pool"] = steps_left(stack, i, depth)
    frame["wanted"] = 0
    for k in range(children if children > 1 else 0):
        frame["wanted"] += max(1, hooks.open_child(domain, stack, i, action, k))
    frame["first_child_id"] = stack.episodes[i]["next_id"]
    frame["free_id"] = 0
    frame["spawn_root_left"] = frame["root_left"] - (stack.episodes[i]["clock"] - frame["start"])
    frame["spawns"] += 1
    frame["last"] = LAST_NOTHING
    open_sibling(domain, stack, i, 0)


@inline
def record_return(stack: CallStack, i: int, success: bool) -> None:
    """Report the acting frame's end."""
    episode = stack.episodes[i]
    depth = episode["depth"]
    frame = stack.frames[i, depth]
    if success:
        frame["score"] += 1.0
    entry = stack.returned[i, episode["n_returned"]]
    entry["frame_id"] = frame["id"]
    entry["parent_id"] = frame["parent"]
    entry["value"] = frame["value"]
    entry["reward"] = frame["score"]
    entry["depth"] = depth
    entry["action"] = frame["action"]
    entry["steps"] = episode["clock"] - frame["start"]
    entry["critical_path"] = frame["path"]
    entry["children"] = frame["children"]
    entry["successes"] = frame["successes"]
    entry["success"] = success
    episode["n_returned"] += 1
    episode["event"] = EVENT_RETURN


@inline
def hand_back(domain: Any, stack: CallStack, i: int, success: bool) -> bool:
    """Give the ended acting frame's result to its parent. Returns whether a sibling now acts instead of the parent."""
    episode = stack.episodes[i]
    depth = episode["depth"]
    child = stack.frames[i, depth]
    parent = stack.frames[i, depth - 1]
    parent["children"] += 1
    if success:
        parent["successes"] += 1
    parent["nodes"] += child["nodes"]
    parent["spawns"] += child["spawns"]
    parent["deepest"] = max(parent["deepest"], child["deepest"])
    parent["group_path"] = max(parent["group_path"], child["path"])
    parent["free_id"] = max(parent["free_id"], episode["next_id"])
    parent["last"] = SUCCESS if success else FAILURE
    episode["depth"] = depth - 1
    hooks.receive(domain, stack, i, success)
    if parent["opened"] < parent["group"]:
        open_sibling(domain, stack, i, parent["opened"])
        return True
    # Beyond every child's last id and a multiple of its stride from the first: free, and one of this frame's own.
    episode["next_id"] = parent["free_id"]
    parent["path"] += parent["group_path"]
    return False


@inline
def settle(domain: Any, stack: CallStack, i: int) -> None:
    """Close frames, innermost first, until one can act or the episode is over."""
    episode = stack.episodes[i]
    while True:
        depth = episode["depth"]
        status = hooks.resolve(domain, stack, i)
        timed_out = status == RUNNING and steps_left(stack, i, depth) <= 0
        if status == RUNNING and not timed_out:
            return
        success = status == SUCCESS
        record_return(stack, i, success)
        if depth == episode["base"]:
            episode["success"] = success
            episode["terminated"] = not timed_out
            episode["truncated"] = timed_out
            episode["reward"] = stack.frames[i, depth]["score"]
            return
        if hand_back(domain, stack, i, success):
            return


@inline
def account_progress(domain: Any, stack: CallStack, i: int) -> None:
    """Pay the increments of the potential (dense feedback only)."""
    if stack.limits[0]["dense"]:
        episode = stack.episodes[i]
        potential = hooks.progress(domain, stack, i)
        episode["dense"] = potential - episode["potential"]
        episode["potential"] = potential


@inline
def step_instance(domain: Any, stack: CallStack, obs: Observation, i: int, action: int) -> None:
    """One environment step of instance `i`: whatever the acting frame does, a spawn included, costs one step."""
    episode = stack.episodes[i]
    frame = stack.frames[i, episode["depth"]]
    episode["clock"] += 1
    episode["event"] = EVENT_STEP
    episode["n_returned"] = 0
    episode["reward"] = 0.0
    frame["path"] += 1
    valid = obs.action_mask[i, action] == 1
    if valid and action >= stack.limits[0]["primitives"]:
        open_group(domain, stack, i, action)
    else:
        frame["last"] = LAST_NOTHING
        if valid:
            hooks.act(domain, stack, i, action)
        settle(domain, stack, i)
    account_progress(domain, stack, i)
    look(domain, stack, obs, i)


@lean
def count_children(domain: Any, stack: CallStack, i: int, action: int) -> int:
    """How many children an allowed spawn `action` opens."""
    return hooks.fanout(domain, stack, i, action)


@lean
def become_child(domain: Any, stack: CallStack, obs: Observation, i: int, k: int) -> None:
    """Right after a spawn: make child `k` the acting frame, and its end the episode's end."""
    episode = stack.episodes[i]
    if k > 0:
        episode["depth"] -= 1
        episode["dense"] = 0.0  # of the spawn's step: the first child reports it
        open_sibling(domain, stack, i, k)
    episode["base"] = episode["depth"]
    episode["event"] = EVENT_RESET
    look(domain, stack, obs, i)


@lean
def take_back(domain: Any, stack: CallStack, obs: Observation, i: int, success: bool) -> None:
    """Go on after a detached child whose records stand where it would have run: what `settle` does once a child has ended."""
    episode = stack.episodes[i]
    episode["terminated"] = False
    episode["truncated"] = False
    episode["success"] = False
    episode["reward"] = 0.0
    episode["event"] = EVENT_RETURN
    if not hand_back(domain, stack, i, success):
        settle(domain, stack, i)
    account_progress(domain, stack, i)
    look(domain, stack, obs, i)


@lean
def step_batch(domain: Any, stack: CallStack, obs: Observation, actions: npt.NDArray[np.int64]) -> None:
    """Step every instance that is not over; `actions` int64 (n,), each within the action space, or negative for one that waits."""
    for i in range(actions.shape[0]):
        episode = stack.episodes[i]
        if actions[i] >= 0 and not (episode["terminated"] or episode["truncated"]):
            step_instance(domain, stack, obs, i, actions[i])


@jit
def reset_batch(domain: Any, stack: CallStack, obs: Observation, which: npt.NDArray[np.int64]) -> None:
    """Begin the next episode of the instances named in `which` (int64, any length)."""
    for i in which:
        reset_instance(domain, stack, obs, i)


@lean
def collect_facts(
    stack: CallStack,
    frame_id: npt.NDArray[np.int64],
    parent_id: npt.NDArray[np.int64],
    depth: npt.NDArray[np.int32],
    event: npt.NDArray[np.int8],
    n_returned: npt.NDArray[np.int32],
) -> None:
    """Fill the columns of `FrameFacts`, each (n,)."""
    for i in range(stack.episodes.shape[0]):
        episode = stack.episodes[i]
        frame = stack.frames[i, episode["depth"]]
        frame_id[i] = frame["id"]
        parent_id[i] = frame["parent"]
        depth[i] = episode["depth"]
        event[i] = episode["event"]
        n_returned[i] = episode["n_returned"]


@lean
def look_batch(domain: Any, stack: CallStack, obs: Observation, which: npt.NDArray[np.int64]) -> None:
    """Rewrite the observations of the instances named in `which` (int64) from their state, which was put in place."""
    for i in which:
        look(domain, stack, obs, i)
