"""Compiled bookkeeping of frames as trajectories, and generalised advantage estimation over them.

A *row* is one decision: what a frame observed and did in one environment step. Rows of one frame form a
trajectory of their own. A row that spawns a child is *pending* until the child has returned: its transition
jumps over everything its descendants do, k environment steps in all, so the next row of the frame is
discounted by gamma**k (a semi-Markov decision process; Sutton, Precup and Singh 1999, section 1.1). MISSION
row A4: credit flows through the whole recursion tree.

Rows live in one flat table: row `t * n_envs + env` for step t of the current rollout, followed by the rows
carried over from earlier rollouts. No random numbers are drawn here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import jit

ROW = np.dtype(
    [
        ("reward", np.float64),  # rewards of the frame since this row, discounted to the row's time
        ("discount", np.float64),  # gamma ** (environment steps since this row)
        ("next", np.int64),  # row index of the frame's next decision, or one of the three codes below
        ("parent", np.int64),  # row index of the pending spawn that opened this row's frame, or NO_ROW
        ("frame_id", np.int64),
        ("episode", np.int64),
        ("env", np.int32),
        ("depth", np.int32),
    ],
    align=True,
)
"""One decision, as the learner sees it."""

OPEN = np.dtype([("frame_id", np.int64), ("row", np.int64)], align=True)
"""One open frame of the call stack: its id and its latest row (NO_ROW where it has none in the table)."""

NO_FRAME = -1
NO_ROW = -1

PENDING = -1
"""`next` of a row whose frame has neither acted again nor ended: not yet a transition."""
ENDED = -2
"""`next` of a row whose frame ended."""
BOOTSTRAPPED = -3
"""`next` of a row whose frame acts just after the last step of the rollout: its value is in `last_values`."""

OK = 0
LOST_FRAME = 1
TOO_DEEP = 2


@jit
def record_step(
    step: int,
    gamma: float,
    step_cost: float,
    delegation_bonus: float,
    rewards: npt.NDArray[np.float32],
    dones: npt.NDArray[np.bool_],
    frame_id: npt.NDArray[np.int64],
    depth: npt.NDArray[np.int32],
    n_returned: npt.NDArray[np.int32],
    returned: npt.NDArray[np.void],
    frames: npt.NDArray[np.void],
    acting: npt.NDArray[np.int64],
    episode: npt.NDArray[np.int64],
    rows: npt.NDArray[np.void],
    tally: npt.NDArray[np.int64],
) -> tuple[int, int, int]:
    """Enter one environment step of every instance into the table.

    Args:
        step: index of the step in the rollout, from 0.
        gamma: discount of one environment step.
        step_cost: what the decision costs the frame that took it.
        delegation_bonus: paid to a frame at its end, times the average success of its children.
        rewards: the environment's own rewards, (n_envs,): they belong to the root frame, whoever acted.
        dones: whether the episode ended, (n_envs,).
        frame_id: the frame that acts next, (n_envs,); after the end of an episode, the next episode's root.
        depth: its depth, (n_envs,).
        n_returned: how many frames ended at this step, (n_envs,).
        returned: those frames, innermost first, (n_envs, >= 1); used are frame_id, depth, reward, success,
            children, successes.
        frames: open frames by depth, dtype OPEN, (n_envs, depths); updated.
        acting: depth of the frame that acted at this step, (n_envs,); updated to the next one's.
        episode: episode number of each instance, (n_envs,); updated.
        rows: the row table, dtype ROW; updated.
        tally: [children returned, of which successful, deepest row + 1]; updated.

    Returns:
        (code, env, depth): OK, or what contradicts the protocol and where.
    """
    n_envs, depths = frames.shape
    for env in range(n_envs):
        if depth[env] >= depths:
            return TOO_DEEP, env, int(depth[env])
        here = acting[env]
        row = step * n_envs + env

        # This step's decision: the next row of the acting frame.
        previous = frames[env, here].row
        if previous != NO_ROW:
            rows[previous].next = row
        frames[env, here].row = row
        rows[row].reward = -step_cost
        rows[row].discount = 1.0
        rows[row].next = PENDING
        rows[row].parent = frames[env, here - 1].row if here > 0 else NO_ROW
        rows[row].frame_id = frames[env, here].frame_id
        rows[row].episode = episode[env]
        rows[row].env = env
        rows[row].depth = here
        tally[2] = max(tally[2], here + 1)

        # The environment's reward is the root's, also while its descendants act.
        root = frames[env, 0].row
        if root != NO_ROW:
            rows[root].reward += rows[root].discount * rewards[env]

        # A frame's end pays its local outcome (the root's outcome is the environment's reward) and, once, the
        # *average* success of its children. A sum would be farmed by spawning easy children for ever.
        for index in range(n_returned[env]):
            ended = returned[env, index]
            level = ended.depth
            if level > 0:
                tally[0] += 1
                tally[1] += 1 if ended.success else 0
            if level >= depths or frames[env, level].frame_id != ended.frame_id:
                continue  # opened and closed within this step: it never acted, so it has no rows
            last = frames[env, level].row
            if last != NO_ROW:
                local = 0.0 if level == 0 else float(ended.reward)
                if ended.children > 0:
                    local += delegation_bonus * ended.successes / ended.children
                rows[last].reward += rows[last].discount * local
                rows[last].next = ENDED
            frames[env, level].frame_id = NO_FRAME
            frames[env, level].row = NO_ROW

        if dones[env]:
            # Whatever is still open ends with the episode. The budget is part of the observation, so a
            # time-out is an end like any other and nothing is bootstrapped.
            for level in range(depths):
                last = frames[env, level].row
                if last != NO_ROW:
                    rows[last].next = ENDED
                frames[env, level].frame_id = NO_FRAME
                frames[env, level].row = NO_ROW
            episode[env] += 1
        else:
            for level in range(depths):
                last = frames[env, level].row
                if last != NO_ROW:
                    rows[last].discount *= gamma

        new = depth[env]
        for level in range(new, depths):
            known = frames[env, level].frame_id
            if known != NO_FRAME and not (level == new and known == frame_id[env]):
                return LOST_FRAME, env, level
        if frames[env, new].frame_id != frame_id[env]:
            frames[env, new].frame_id = frame_id[env]
            frames[env, new].row = NO_ROW
        acting[env] = new
    return OK, 0, 0


@jit
def close_rollout(
    frames: npt.NDArray[np.void],
    acting: npt.NDArray[np.int64],
    rows: npt.NDArray[np.void],
    carried: npt.NDArray[np.int64],
) -> int:
    """Settle the frames still open at a rollout's end.

    The frame that acts next is observed already: its last row is bootstrapped. The pending spawns of its
    ancestors are listed in `carried` (row indices, at least n_envs * depths long). Rows leave `frames`, whose
    frame ids stay.

    Returns:
        How many rows are carried.
    """
    n_envs, depths = frames.shape
    count = 0
    for env in range(n_envs):
        for level in range(depths):
            row = frames[env, level].row
            if row == NO_ROW:
                continue
            if level == acting[env]:
                rows[row].next = BOOTSTRAPPED
            else:
                carried[count] = row
                count += 1
            frames[env, level].row = NO_ROW
    return count


@jit
def frame_advantages(
    n_rows: int,
    n_step_rows: int,
    gae_lambda: float,
    rows: npt.NDArray[np.void],
    values: npt.NDArray[np.float32],
    last_values: npt.NDArray[np.float32],
    advantages: npt.NDArray[np.float32],
) -> None:
    """Generalised advantage estimation over every frame's own trajectory.

    After Schulman et al. 2016 (arXiv:1506.02438), but
    `A(row) = R + gamma**k V(next) - V(row) + gamma**k lambda A(next)`, one factor lambda for each decision of
    the frame, however many steps k its descendants took. A pending row has no advantage yet (0 is written),
    so that the row before it is bootstrapped from its value.

    Args:
        n_rows: rows in use, those of the steps and the carried ones after them.
        n_step_rows: rows of this rollout's steps.
        gae_lambda: trade-off between bias and variance, in [0, 1].
        rows: the row table, dtype ROW.
        values: value of each row's observation, (>= n_rows,).
        last_values: value of the observation after the last step, (n_envs,).
        advantages: written, (>= n_rows,).
    """
    for index in range(n_rows):
        # A row's next one has a larger index among the step rows; carried rows come before all of them in
        # time.
        row = n_step_rows - 1 - index if index < n_step_rows else index
        following = rows[row].next
        if following == PENDING:
            advantages[row] = 0.0
            continue
        advantage = rows[row].reward - values[row]
        if following == BOOTSTRAPPED:
            advantage += rows[row].discount * last_values[rows[row].env]
        elif following >= 0:
            advantage += rows[row].discount * (values[following] + gae_lambda * advantages[following])
        advantages[row] = advantage
