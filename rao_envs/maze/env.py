"""`RAO/Maze`: walk to the goal of a maze, alone or by spawning frames for parts of the way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.maze.domain import MazeDomain
from rao_envs.maze.kernels import EAST, NORTH, TO_GOAL
from rao_envs.maze.viewer import MazeFrameView, MazeView, MazeViewer


class MazeEnv(RecursiveEnv):
    """Walk from a start to a goal cell, step by step or by handing parts of the way to child frames.

    ## Description
    Space is seen at several levels: cells, blocks of 5 x 5 cells, and above a top grid of more than 5 x 5 units, groups of 4 x 4. The
    root frame acts on the top level. Its spawn actions open a child frame one level down: "get to the neighbouring unit" in one of
    four directions, or "reach the goal inside this unit". A frame at the level of cells only moves. Every frame, whatever its
    level, sees the same kind of window and faces the same kind of problem, so that one policy can serve all of them and mazes of any
    size (MISSION A1, A2, A6).

    ## Action space
    `Discrete(9)`: 0-3 move north, east, south, west; 4-7 spawn north, east, south, west; 8 spawn target. `Discrete(4)` with
    `spawn=False`. Masked: moves into walls; spawns towards a side without an opening; spawn target away from the goal's unit or
    where the frame itself does not look for the goal; all spawns at the level of cells, at `max_depth`, or with no step left for a child.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 6, (972,), int8)` | two windows of 9 x 9 units around the agent: the frame's own level, then (for frames above it) the level of cells; channels: in the frame's region, open to the east, open to the south, target, trail, visits. `env.unwrapped.domain.windows(task)` gives it the shape (2, 6, 9, 9) |
    | `results` | `Box(-1, 1, (5,), int8)` | what the last child did by spawn action, since the frame's agent entered this unit: 1 succeeded, -1 failed, 0 not tried |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv` |
    | `action_mask` | `MultiBinary(9)` | 1 where the action is allowed |

    The target channel marks the goal (on the window's border when it lies beyond: a direction), or the units just across the
    side that the frame must leave by. The trail marks units visited since the frame began: 4 = at most one step per cell of the unit's side ago, 3 = four, 2 = twelve, 1 = earlier; visits counts how often the unit was entered since then (6 = six times or more). What lies outside the frame's region is hidden. **Context**: 2 x 81 units per
    call; nothing else survives a step (PROTOCOL rule 12). The monolithic twin sees exactly the root's observation.

    ## Rewards
    1 when the root reaches the goal, else 0. A child's local outcome (in `info["returned"]`) is 1 when it reaches its own target. With
    `feedback="dense"`, `info["dense_reward"]` is the decrease of the true distance to the goal, as a share of the distance from
    the start: a potential difference (Ng, Harada and Russell 1999), so it sums to 1 over a solved episode however one walks.

    ## Endings
    Terminated when the root reaches the goal; truncated after 20 x max(rows, cols) steps anywhere in the tree. A child frame ends by
    reaching its target, by leaving its region otherwise (failure), or when its budget, 8 steps per cell of its region's side and never more than
    its parent has left, is gone (failure).

    ## Registered ids
    `RAO/Maze-5x5-v0`, `-10x10`, `-20x20`, `-40x40`, `-80x80`, and `RAO/Maze-v0` for your own keyword arguments.

    Args:
        **kwargs: those of `rao_envs.maze.domain.MazeDomain` (`rows`, `cols`, `block`, `radius`, `structure`, `openings`,
            `frame_budget`, `layout`, `scenarios`) and of `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = MazeDomain
    viewer_class = MazeViewer
    domain: MazeDomain

    @property
    def links(self) -> npt.NDArray[np.uint8]:
        """The map, uint8 (rows, cols): open directions of each cell (N=1, E=2, S=4, W=8; 0 = blocked). A copy."""
        rows, cols = self.domain.rows, self.domain.cols
        return self.batch.state.links[0, : rows * cols].reshape(rows, cols).copy()

    @property
    def cells(self) -> dict[str, tuple[int, int]]:
        """Where `agent`, `start` and `goal` are: (row, column)."""
        place = self.batch.state.place[0]
        return {
            "agent": (int(place["row"]), int(place["col"])),
            "start": (int(place["start_row"]), int(place["start_col"])),
            "goal": (int(place["goal_row"]), int(place["goal_col"])),
        }

    def view(self) -> MazeView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        state, stack = self.batch.state, self.batch.stack
        cells = self.cells
        episode = stack.episodes[0]
        rows, cols = self.domain.rows, self.domain.cols
        age = int(episode["clock"]) + 1 - state.seen[0, : rows * cols].reshape(rows, cols)
        trail = np.where(age <= episode["clock"], 1.0 / (1.0 + age / 12.0), 0.0).astype(np.float32)
        return MazeView(
            links=self.links,
            trail=trail,
            block=self.domain.block,
            stack=tuple(self._frame_view(depth) for depth in range(int(episode["depth"]) + 1)),
            episode=self.history.view(self.domain.name),
            **cells,
        )

    def _frame_view(self, depth: int) -> MazeFrameView:
        """The frame at `depth` as drawn: its region and the cells that would end it with success."""
        frame = self.batch.state.frames[0, depth]
        rows, cols = self.domain.rows, self.domain.cols
        side = int(self.domain.levels["side"][frame["level"]])
        r0, c0 = int(frame["r0"]) * side, int(frame["c0"]) * side
        r1, c1 = min(int(frame["r1"]) * side, rows), min(int(frame["c1"]) * side, cols)
        aim = int(frame["aim"])
        if aim == TO_GOAL:
            targets: tuple[tuple[int, int], ...] = (self.cells["goal"],)
        else:
            row_step, col_step = ((-1, 0), (0, 1), (1, 0), (0, -1))[aim]
            edge_rows = range(r0, r1) if col_step else [r0 if aim == NORTH else r1 - 1]
            edge_cols = range(c0, c1) if row_step else [c1 - 1 if aim == EAST else c0]
            links = self.batch.state.links[0]
            targets = tuple((r + row_step, c + col_step) for r in edge_rows for c in edge_cols if (links[r * cols + c] >> aim) & 1)
        label = self.domain.frame_label(int(self.batch.stack.frames["action"][0, depth]))
        return MazeFrameView(depth=depth, level=int(frame["level"]), region=(r0, c0, r1, c1), targets=targets, label=label)


class MazeVectorEnv(RecursiveVectorEnv):
    """Any number of mazes at once; everything else as `MazeEnv`."""

    domain_class = MazeDomain
