"""Compiled bookkeeping of frames as trajectories, and generalised advantage estimation over them.

A *row* is one decision: what a frame observed and did in one environment step. Rows of one frame form a
trajectory of their own. A row that spawns a child is *pending* until the child has returned: its transition
jumps over everything its descendants do, k environment steps in all, so the next row of the frame is
discounted by gamma**k (a semi-Markov decision process; Sutton, Precup and Singh 1999, section 1.1). MISSION
row A4: credit flows through the whole recursion tree.

Rows live in one flat table: row `t * n_envs + env` for step t of the current rollout, followed by the rows
carried over from earlier rollouts. No random numbers are drawn here.

Whom a decision answers to (`credit`) is a matter of what its row is paid and of where its trajectory goes on
when its frame has ended:

- NODE: the frame's own rewards; with the frame the trajectory ends.
- TREE: the rewards of the frame and of its ancestors. When the frame ends, its last row *waits* beside the
  parent's pending spawn, is paid what the ancestors are paid meanwhile, and goes on with the parent's next
  decision: it is bootstrapped with the parent's value after the return. If the parent ends first, it waits for
  the grandparent. Siblings that act meanwhile are passed over: their own rewards are not this frame's affair.
- ROOT: as TREE, but the environment's reward is all that is paid, less the price of the frames opened anywhere in
  the tree.

A frame may be charged for the children it opens (MISSION A11, adaptive depth): see `charge`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import jit

ROW = np.dtype(
    [
        ("reward", np.float64),  # rewards of the frame since this row, discounted to the row's time
        ("discount", np.float64),  # gamma ** (environment steps since this row)
        ("next", np.int64),  # row index of the frame's next decision, or one of the three codes below
        ("parent", np.int64),  # row index of the pending spawn that opened this row's frame, or NO_ROW
        ("link", np.int64),  # the next row in the list of rows that wait for the same frame, or NO_ROW
        ("frame_id", np.int64),
        ("episode", np.int64),
        ("task", np.int64),  # the root task played, where tasks are numbered (see RepeatTasks)
        ("env", np.int32),
        ("depth", np.int32),
    ],
    align=True,
)
"""One decision, as the learner sees it."""

OPEN = np.dtype([("frame_id", np.int64), ("row", np.int64), ("waiting", np.int64)], align=True)
"""One open frame of the call stack: its id, its latest row, and the first of the last rows of ended descendants
that wait for its next decision (NO_ROW where there is none)."""

NODE, TREE, ROOT = 0, 1, 2
"""Kinds of credit."""

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
def pay(rows: npt.NDArray[np.void], frame: Any, amount: float) -> None:
    """Pay `amount`, received now, to the rows that wait for the next decision of `frame` (a record OPEN), its latest included."""
    if frame.row != NO_ROW:
        rows[frame.row].reward += rows[frame.row].discount * amount
    row = frame.waiting
    while row != NO_ROW:
        rows[row].reward += rows[row].discount * amount
        row = rows[row].link


@jit
def settle(rows: npt.NDArray[np.void], frame: Any, following: int) -> None:
    """Let the rows that wait for `frame` go on with `following`: a row, or one of the codes."""
    if frame.row != NO_ROW:
        rows[frame.row].next = following
    row = frame.waiting
    while row != NO_ROW:
        rows[row].next = following
        after = rows[row].link
        rows[row].link = NO_ROW
        row = after
    frame.row = NO_ROW
    frame.waiting = NO_ROW


@jit
def hand_over(rows: npt.NDArray[np.void], ended: Any, parent: Any) -> None:
    """Let the rows that waited for `ended` wait for `parent` instead."""
    first = ended.waiting
    if ended.row != NO_ROW:
        rows[ended.row].link = first
        first = ended.row
    if first != NO_ROW:
        last = first
        while rows[last].link != NO_ROW:
            last = rows[last].link
        rows[last].link = parent.waiting
        parent.waiting = first
    ended.row = NO_ROW
    ended.waiting = NO_ROW


@jit
def charge(
    rows: npt.NDArray[np.void], stack: npt.NDArray[np.void], payer: int, credit: int, frame_price: float, level_price: float
) -> None:
    """Let the frame at depth `payer` pay for the child that it opens now, and with ROOT all its ancestors as well.

    A frame that never acted has decided nothing and pays nothing.

    Args:
        rows: the row table, dtype ROW; updated.
        stack: one instance's open frames by depth, dtype OPEN, (depths,).
        payer: depth of the frame that opens the child; nothing is done where that lies outside `stack`.
        credit: NODE, TREE or ROOT.
        frame_price: price of a child at any depth.
        level_price: its price besides, times its depth.
    """
    if payer < 0 or payer >= stack.shape[0]:
        return
    price = frame_price + level_price * (payer + 1)
    for level in range(0 if credit == ROOT else payer, payer + 1):
        pay(rows, stack[level], -price)


@jit
def record_step(
    step: int,
    gamma: float,
    credit: int,
    step_cost: float,
    delegation_bonus: float,
    summed: bool,
    frame_price: float,
    level_price: float,
    rewards: npt.NDArray[np.float32],
    dones: npt.NDArray[np.bool_],
    tasks: npt.NDArray[np.int64],
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
        credit: NODE, TREE or ROOT.
        step_cost: what the decision costs the frame that took it (nothing with ROOT).
        delegation_bonus: paid to a frame at its end, times the average success of its children (nothing with ROOT).
        summed: times the number of its children that succeeded, instead.
        frame_price: what a frame pays for each child when it opens; see `charge`.
        level_price: what it pays besides, times the child's depth.
        rewards: the environment's own rewards, (n_envs,): they belong to the root frame, whoever acted.
        dones: whether the episode ended, (n_envs,).
        tasks: number of the root task that was played, (n_envs,).
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
    priced = frame_price != 0.0 or level_price != 0.0
    for env in range(n_envs):
        if depth[env] >= depths:
            return TOO_DEEP, env, int(depth[env])
        here = acting[env]
        row = step * n_envs + env

        # This step's decision: the next row of the acting frame.
        settle(rows, frames[env, here], row)
        frames[env, here].row = row
        rows[row].reward = 0.0 if credit == ROOT else -step_cost
        rows[row].discount = 1.0
        rows[row].next = PENDING
        rows[row].parent = frames[env, here - 1].row if here > 0 else NO_ROW
        rows[row].link = NO_ROW
        rows[row].frame_id = frames[env, here].frame_id
        rows[row].episode = episode[env]
        rows[row].task = tasks[env]
        rows[row].env = env
        rows[row].depth = here
        tally[2] = max(tally[2], here + 1)

        # The environment's reward is the root's, also while its descendants act; with NODE theirs is another.
        for level in range(1 if credit == NODE else here + 1):
            pay(rows, frames[env, level], rewards[env])

        # A frame's end pays its local outcome (the root's outcome is the environment's reward) and, once, the
        # *average* success of its children. A sum is farmed by spawning easy children for ever.
        top = here  # the deepest open frame, followed through what opened and ended in this step
        for index in range(n_returned[env]):
            ended = returned[env, index]
            level = ended.depth
            if priced:
                for payer in range(top, level):
                    charge(rows, frames[env], payer, credit, frame_price, level_price)
                top = level - 1
            if level > 0:
                tally[0] += 1
                tally[1] += 1 if ended.success else 0
            if level >= depths:
                continue
            known = frames[env, level].frame_id
            if known != ended.frame_id and not (known == NO_FRAME and frames[env, level].waiting != NO_ROW):
                continue  # opened and closed within this step: it never acted, so it has no rows
            if credit != ROOT:
                local = 0.0 if level == 0 else float(ended.reward)
                if ended.children > 0:
                    local += delegation_bonus * ended.successes / (1 if summed else ended.children)
                pay(rows, frames[env, level], local)
            if credit == NODE or level == 0:
                settle(rows, frames[env, level], ENDED)
            else:
                hand_over(rows, frames[env, level], frames[env, level - 1])
            frames[env, level].frame_id = NO_FRAME

        if priced and not dones[env]:
            for payer in range(top, depth[env]):
                charge(rows, frames[env], payer, credit, frame_price, level_price)

        if dones[env]:
            # Whatever is still open ends with the episode. The budget is part of the observation, so a
            # time-out is an end like any other and nothing is bootstrapped.
            for level in range(depths):
                settle(rows, frames[env, level], ENDED)
                frames[env, level].frame_id = NO_FRAME
            episode[env] += 1
        else:
            for level in range(depths):
                frame = frames[env, level]
                if frame.row != NO_ROW:
                    rows[frame.row].discount *= gamma
                waiting = frame.waiting
                while waiting != NO_ROW:
                    rows[waiting].discount *= gamma
                    waiting = rows[waiting].link

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

    The frame that acts next is observed already: the rows that wait for it are bootstrapped. Those that wait
    for its ancestors, the pending spawns among them, are listed in `carried` (row indices, at least as long as
    the table) and stay where `frames` has them.

    Returns:
        How many rows are carried.
    """
    n_envs, depths = frames.shape
    count = 0
    for env in range(n_envs):
        for level in range(depths):
            if level == acting[env]:
                settle(rows, frames[env, level], BOOTSTRAPPED)
                continue
            row = frames[env, level].row
            if row != NO_ROW:
                carried[count] = row
                count += 1
            row = frames[env, level].waiting
            while row != NO_ROW:
                carried[count] = row
                count += 1
                row = rows[row].link
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
    so that the row before it is bootstrapped from its value. With all values 0 and lambda 1 these are the
    returns of the rows.

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
        # Backwards in time: the steps, then the carried rows, which came before them and are in their order of
        # time where one goes on with another.
        row = n_step_rows - 1 - index if index < n_step_rows else n_rows - 1 - (index - n_step_rows)
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
