"""Advantages without a critic: each rollout of a root task against the other rollouts of the same task.

Leave-one-out as in Kool, van Hoof and Welling 2019 ("Buy 4 REINFORCE samples, get a baseline for free!"), over
trees. All decisions of a frame share the frame's return R, counted from its first decision, less the mean
return of the frames *at the same depth* in the other K - 1 rollouts of its root task. (Root frames are compared
with root frames, children with the children that the other rollouts opened for the same problem.) Where the
others have no frame as deep, those of the deepest level they do have above it serve. What the frame itself did
has no influence on that mean, so it changes the variance of the gradient and not its expectation.

MISSION row A4 and the paper it summarises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import jit


def complete_groups(
    task: npt.NDArray[np.int64],
    env: npt.NDArray[np.int32],
    episode: npt.NDArray[np.int64],
    pending: npt.NDArray[np.bool_],
    repeats: int,
) -> npt.NDArray[np.bool_]:
    """Which rows belong to root tasks all of whose `repeats` rollouts have ended; all arrays (rows,).

    A rollout that has not ended has a pending row.
    """
    if not task.size:
        return np.zeros(0, np.bool_)
    _, member = np.unique(np.stack([task, env.astype(np.int64), episode]), axis=1, return_inverse=True)
    member = member.reshape(-1)
    number, group = np.unique(task, return_inverse=True)
    group_of = np.zeros(member.max() + 1, np.int64)
    group_of[member] = group
    ended = np.ones(len(group_of), np.bool_)
    ended[member[pending]] = False
    complete = np.bincount(group_of, weights=ended, minlength=len(number)) == repeats
    found: npt.NDArray[np.bool_] = complete[group]
    return found


@jit
def frame_returns(
    order: npt.NDArray[np.int64],
    rows: npt.NDArray[np.void],
    returns: npt.NDArray[np.float32],
    whole: npt.NDArray[np.float64],
    begins: npt.NDArray[np.bool_],
) -> None:
    """Spread the return of each frame's first row over all its rows.

    Args:
        order: indices of the rows of whole frames, in their order of time.
        rows: the row table, dtype ROW.
        returns: what each row is followed by, discounted to its time.
        whole: written: the same of the first row of the row's frame.
        begins: written: whether the row is the first of its frame; all False before.
    """
    for row in order:
        begins[row] = True
    for row in order:
        following = rows[row].next
        # After its end a frame's trajectory may go on in another frame (credit by tree or root).
        if following >= 0 and rows[following].frame_id == rows[row].frame_id:
            begins[following] = False
    for row in order:
        if begins[row]:
            whole[row] = returns[row]
        following = rows[row].next
        if following >= 0 and rows[following].frame_id == rows[row].frame_id:
            whole[following] = whole[row]


def leave_one_out(rows: npt.NDArray[Any], whole: npt.NDArray[np.float64], begins: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Advantages of the rows of complete groups.

    Args:
        rows: dtype ROW, (rows,); used are task, env, episode, depth.
        whole: return of each row's frame, (rows,).
        begins: whether it is its frame's first row, (rows,).

    Returns:
        (rows,): the frame's return less the mean of its like in the other rollouts.
    """
    if not len(rows):
        return np.zeros(0)
    key, member = np.unique(np.stack([rows["task"], rows["env"].astype(np.int64), rows["episode"]]), axis=1, return_inverse=True)
    member = member.reshape(-1)
    _, group = np.unique(key[0], return_inverse=True)  # of each member
    depth = rows["depth"]
    own = np.zeros((2, len(group), int(depth.max()) + 1))  # [sum of returns, frames] by member and depth
    np.add.at(own[0], (member[begins], depth[begins]), whole[begins])
    np.add.at(own[1], (member[begins], depth[begins]), 1.0)
    total = np.zeros((2, int(group.max()) + 1, own.shape[2]))
    for added, each in zip(total, own, strict=True):
        np.add.at(added, group, each)
    sums, frames = total[:, group] - own
    mean = np.divide(sums, frames, out=np.zeros_like(sums), where=frames > 0)
    for level in range(1, mean.shape[1]):
        mean[:, level] = np.where(frames[:, level] > 0, mean[:, level], mean[:, level - 1])
    result: npt.NDArray[np.float64] = whole - mean[member, depth]
    return result
