"""The call stack: frames, budgets and tree statistics as plain arrays, with no knowledge of any domain.

A batch of `n` instances keeps one stack each; `frames[i, d]` is the frame at depth `d` of instance `i`. Everything a kernel needs to
push, pop, account and report lives in the records below (MISSION A1, A2; PROTOCOL rules 3 and 7).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

RUNNING, SUCCESS, FAILURE = 0, 1, 2
"""What a frame's resolution can say."""

EVENT_RESET, EVENT_STEP, EVENT_SPAWN, EVENT_RETURN = 0, 1, 2, 3
EVENTS = ("reset", "step", "spawn", "return")

NO_PARENT = -1
NO_ACTION = -1

FRAME = np.dtype(
    [
        ("id", np.int64),  # unique within the episode; the root is 0
        ("parent", np.int64),  # NO_PARENT for the root
        ("start", np.int64),  # episode clock when the frame opened
        ("root_left", np.int64),  # root steps left when it opened, as the frame may know them
        ("stride", np.int64),  # the sub-tree's ids lie this far apart, so that independent siblings never share one
        ("first_child_id", np.int64),  # of the latest group of children
        ("free_id", np.int64),  # the first id that no returned child of that group has used
        ("spawn_root_left", np.int64),  # root steps left at the latest spawn, as its children may know them
        ("wanted", np.int64),  # steps that the children of that spawn want together (counted where there are several)
        ("score", np.float64),  # local outcome: the domain's adjustment, plus 1 on success
        ("value", np.float64),  # what the frame hands back to its parent
        ("budget", np.int32),  # steps for the frame and all below it, fixed when it opens
        ("action", np.int32),  # the spawn action that opened it; NO_ACTION for the root
        ("path", np.int32),  # critical path so far, in steps
        ("children", np.int32),  # direct children that returned
        ("successes", np.int32),  # direct children that succeeded
        ("nodes", np.int32),  # frames of this sub-tree, itself included
        ("deepest", np.int32),  # deepest absolute level of this sub-tree
        ("spawns", np.int32),  # spawn actions in this sub-tree
        ("group", np.int32),  # children opened together by the latest spawn
        ("opened", np.int32),  # how many of them have been opened
        ("pool", np.int32),  # the steps they share
        ("spawning", np.int32),  # the spawn action that opened them
        ("group_path", np.int32),  # longest critical path among those that returned
        ("last", np.int32),  # what this frame saw last: EVENT_RESET, SUCCESS or FAILURE of a child, or -1
    ],
    align=True,
)

EPISODE = np.dtype(
    [
        ("clock", np.int64),  # environment steps so far, anywhere in the tree
        ("next_id", np.int64),  # of the next frame that the acting frame opens
        ("reward", np.float64),  # of the latest step, root objective
        ("potential", np.float64),  # dense feedback: progress so far
        ("dense", np.float64),  # dense feedback: progress of the latest step
        ("depth", np.int32),  # of the frame that acts next
        ("base", np.int32),  # depth of the frame whose end ends the episode (0, or a detached child's)
        ("event", np.int32),
        ("n_returned", np.int32),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("success", np.bool_),
    ],
    align=True,
)

RETURN = np.dtype(
    [
        ("frame_id", np.int64),
        ("parent_id", np.int64),
        ("value", np.float64),
        ("reward", np.float32),
        ("depth", np.int32),
        ("action", np.int32),
        ("steps", np.int32),
        ("critical_path", np.int32),
        ("children", np.int32),
        ("successes", np.int32),
        ("success", np.bool_),
    ],
    align=True,
)
"""One frame that ended: what `info["returned"]` and `FrameFacts.returned` report."""

LIMITS = np.dtype(
    [
        ("budget", np.int32),  # root steps
        ("max_depth", np.int32),
        ("primitives", np.int32),
        ("actions", np.int32),
        ("dense", np.bool_),
        ("verdicts", np.bool_),  # whether a frame is told if its child succeeded
    ],
    align=True,
)


class CallStack(NamedTuple):
    """The stacks of `n` instances of depth at most `max_depth` (D = max_depth + 1)."""

    frames: npt.NDArray[Any]  # FRAME (n, D)
    episodes: npt.NDArray[Any]  # EPISODE (n,)
    returned: npt.NDArray[Any]  # RETURN (n, D), the first episodes["n_returned"] are valid, innermost first
    rng: npt.NDArray[np.uint64]  # (n, 1) the instance's stream: tasks
    frame_rng: npt.NDArray[np.uint64]  # (n, D, 1) one stream per frame: chance inside it, blind to siblings
    limits: npt.NDArray[Any]  # LIMITS (1,) shared by the batch


class Observation(NamedTuple):
    """The observation buffers of a batch, each instance's flattened; the public API hands out copies in the spaces' shapes."""

    task: npt.NDArray[Any]  # (n, size of the task space)
    results: npt.NDArray[Any]  # (n, size of the results space)
    call: npt.NDArray[np.float32]  # (n, 6)
    action_mask: npt.NDArray[np.int8]  # (n, actions)


CALL_FIELDS = ("may_spawn", "frame_left", "root_left", "just_opened", "child_succeeded", "child_failed")

FRAME_KEY = "frame"
"""Key of the observation, with `observe_frame=True`, that says which frame acts."""
FRAME_FIELDS = ("depth", "opened", "action")
"""What it holds, int32 (3,): absolute depth; 1 if this is the frame's first observation; the spawn action that opened it (-1: the root)."""


class FrameFacts(NamedTuple):
    """What `info` says about the call structure, for a whole batch at once (fresh arrays)."""

    frame_id: npt.NDArray[np.int64]  # (n,) the frame that acts next
    parent_id: npt.NDArray[np.int64]  # (n,)
    depth: npt.NDArray[np.int32]  # (n,)
    event: npt.NDArray[np.int8]  # (n,) index into EVENTS
    n_returned: npt.NDArray[np.int32]  # (n,)
    returned: npt.NDArray[Any]  # RETURN (n, D)


def allocate(n: int, *, budget: int, max_depth: int, primitives: int, actions: int, dense: bool, verdicts: bool) -> CallStack:
    """Empty stacks for `n` instances."""
    levels = max_depth + 1
    limits = np.zeros(1, LIMITS)
    limits[0] = (budget, max_depth, primitives, actions, dense, verdicts)
    return CallStack(
        frames=np.zeros((n, levels), FRAME),
        episodes=np.zeros(n, EPISODE),
        returned=np.zeros((n, levels), RETURN),
        rng=np.zeros((n, 1), np.uint64),
        frame_rng=np.zeros((n, levels, 1), np.uint64),
        limits=limits,
    )
