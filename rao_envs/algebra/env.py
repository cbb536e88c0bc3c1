"""`RAO/Algebra`: compute an expression value by value, alone or by spawning frames for its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.domain import AlgebraDomain
from rao_envs.algebra.generator import tree_of
from rao_envs.algebra.tree import NO_NODE, Tree
from rao_envs.algebra.viewer import AlgebraFrameView, AlgebraView, AlgebraViewer
from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv


class AlgebraEnv(RecursiveEnv):
    """Compute the value of an expression, node by node, or by handing operands to child frames.

    ## Description
    The expression is a tree over +, -, unary minus, constant multiples and d/dx; optionally substitutions x := e, and products of
    polynomials. Its values are linear forms a + b x over Z_p (or polynomials of bounded degree). A frame computes the value of one node:
    its cursor walks the sub-tree below, and where all operands of the node at the cursor are at hand, the agent writes the value digit
    by digit. Nothing is worked out for it, and a digit cannot be taken back, so that errors compound on the way up. A frame holds
    only K values (2 by default): one more, and the oldest is lost and must be computed again. A child frame starts with empty slots, on one
    operand, and hands back one value, right or wrong: nobody is told which (MISSION A1, A2, A6, A7).

    ## Action space
    `Discrete(11)` (for p = 5): 0-4 write that digit next; 5 left, 6 right, 7 parent: move the cursor; 8 spawn left, 9 spawn right, 10 spawn
    both operands, independent of one another. `Discrete(8)` with `spawn=False`. Once its last digit is written, a value takes a slot, the values
    below it are dropped, and the cursor goes to the parent; the frame's own node ends the frame. Masked: digits where an operand is missing;
    moves and spawns to operands that are leaves or at hand; parent at the frame's own node; everything but digits while a value is
    half written; spawns at `max_depth` or without a step left for each child.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 1, (54,), int8)` | the node at the cursor, all one-hot: its operation (7) and constant (p); for both operands: leaf, at hand or open (3), the value's digits if leaf or at hand (2 x p), the slots that computing it in place takes if open (1, 2, more); which digit comes next (2); the digits written so far (p); free slots (0, 1, 2). `env.unwrapped.domain.fields` names the parts |
    | `results` | `Box(-1, 1, (2,), int8)` | what the child for the left, the right operand brought, since the cursor came here: 1 a value, -1 none (it ran out of steps), 0 no child |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv`; the last two are 0: whether a child's value is right shows in `info` only |
    | `action_mask` | `MultiBinary(11)` | 1 where the action is allowed |

    **Context**: three tokens of the expression (an operation and its operands) and K value slots per frame; nothing else survives a step
    (PROTOCOL rule 12). The monolithic twin sees exactly the root's observation; the slots that each operand takes are shown so that it can
    choose the best order.

    ## Rewards
    1 when the root's value is right, else 0. A child's local outcome is 1 when its value is right. With `feedback="dense"`,
    `info["dense_reward"]` is the share of the expression's operations whose value is right when first written, by whichever frame:
    every node pays once, however often it is computed, and 1 in all over a solved episode.

    ## Endings
    Terminated when the root's value is written; truncated after one and a half times the steps that the largest expression takes. A child frame ends
    when its value is written (success or failure), or when its budget, by the same rule for its own sub-tree and never more than its parent has
    left, is gone (failure; it hands back no value).

    ## Registered ids
    `RAO/Algebra-depth2-v0`, `-depth4`, `-depth8`, `-depth12`, and `RAO/Algebra-v0` for your own keyword arguments.

    Args:
        **kwargs: those of `rao_envs.algebra.domain.AlgebraDomain` (`depth`, `modulus`, `slots`, `substitution`, `polynomial`, `degree`,
            `symbols`, `expressions`) and of `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = AlgebraDomain
    viewer_class = AlgebraViewer
    domain: AlgebraDomain

    @property
    def tree(self) -> Tree:
        """The running task's expression: a copy."""
        return tree_of(self.batch.state.nodes[0])

    @property
    def expression(self) -> Any:
        """The running task's expression, as a SymPy expression that is not evaluated."""
        from rao_envs.algebra.sympy_bridge import to_sympy

        return to_sympy(self.tree)

    @property
    def truth(self) -> npt.NDArray[np.int8]:
        """The right value of every node, int8 (nodes, digits) in the order of `rao_envs.algebra.tree.monomials`: a copy."""
        truth: npt.NDArray[np.int8] = self.batch.state.truth[0, : len(self.tree.op)].copy()
        return truth

    def view(self) -> AlgebraView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        state, tree = self.batch.state, self.tree
        depth = int(self.batch.stack.episodes["depth"][0])
        values = state.first[0, : len(tree.op)].copy()
        for level in range(depth + 1):
            for slot in np.flatnonzero(state.slots[0, level] != NO_NODE):
                values[state.slots[0, level, slot]] = state.values[0, level, slot]
        frame = state.frames[0, depth]
        return AlgebraView(
            tree=tree,
            values=values,
            truth=self.truth,
            exponents=self.domain.tables.exponents,
            modulus=self.domain.modulus,
            pending=tuple(state.digits[0, depth, : frame["written"]].tolist()),
            capacity=self.domain.slots,
            stack=tuple(self._frame_view(level) for level in range(depth + 1)),
            episode=self.history.view(self.domain.name),
        )

    def _frame_view(self, depth: int) -> AlgebraFrameView:
        """The frame at `depth` as drawn."""
        frame, slots = self.batch.state.frames[0, depth], self.batch.state.slots[0, depth]
        return AlgebraFrameView(
            depth=depth,
            node=int(frame["root"]),
            cursor=int(frame["cursor"]),
            slots=tuple(slots[slots != NO_NODE].tolist()),
            label=self.domain.frame_label(int(self.batch.stack.frames["action"][0, depth])),
        )


class AlgebraVectorEnv(RecursiveVectorEnv):
    """Any number of expressions at once; everything else as `AlgebraEnv`."""

    domain_class = AlgebraDomain
