"""`RAO/Rewrite`: bring an expression to a form by named SymPy rules, alone or by handing sub-expressions to child frames."""

from __future__ import annotations

from typing import Any

from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.rewrite.bridge import decode
from rao_envs.rewrite.domain import RewriteDomain
from rao_envs.rewrite.printing import print_expression
from rao_envs.rewrite.rules import FORMS
from rao_envs.rewrite.viewer import RewriteFrameView, RewriteView, RewriteViewer


class RewriteEnv(RecursiveEnv):
    """Bring an expression to the form that is asked for, by named SymPy rules at a cursor.

    ## Description
    The task is an expression, such as `(x^2 - 1)/(x - 1) + d/dx(x*y^2)`, and a form to bring it to. A frame has an expression and a
    cursor on one of its nodes; it moves the cursor, applies a rule to the whole sub-expression there, or spawns. A child frame has the
    sub-expression alone, with a form of its own to reach; when it returns, what it has made takes the part's place in the parent's
    expression, whether it succeeded or not: rules preserve the value, so no work can be wrong. SymPy evaluates the whole again then, and
    what cancels is gone. A rule is applied to what fits the window, so that inner parts must be done before outer ones.

    Generated tasks hide a small polynomial (or a quotient of two) under `levels` layers: products, powers, derivatives, quotients, sums of
    fractions, squares of sine and cosine, sines of sums, logarithms, symbolic powers, exponents (`rao_envs.rewrite.generator`). Each has
    been solved by a script before it is handed out, in at most half the step budget (MISSION A1, A2; issue of the two families).

    ## Forms
    `expanded`: a polynomial with rational coefficients, multiplied out. `factored`: a product of irreducible polynomials. `fraction`: one
    fraction of two such polynomials in lowest terms. `derivative_free`: no derivative is left. Expressions longer than 96 tokens are never
    recognised as `factored` or `fraction`.

    ## Action space
    `Discrete(22)`: 0-2 move the cursor down (to the first operand), next (to the next operand of its parent), up; 3-16 apply expand,
    factor, collect, cancel, together, apart, diff, pythagoras, expand_trig, product_to_sum, expand_log, logcombine, expand_power, powsimp
    (`rao_envs.rewrite.rules`); 17-20 spawn a child on the part at the cursor that is to be made expanded, factored, a fraction, free of
    derivatives; 21 spawns children that expand all parts below the cursor that may become polynomials (the nearest such ones, at most four;
    they are independent). `Discrete(17)` with `spawn=False`. Masked: moves that lead nowhere; rules where the part does not fit the window,
    where nothing in it is their business, or that did nothing here already; spawns at the frame's own root, on symbols and numbers, and on
    parts that have the form.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 1, (1208,), int8)` | what the frame sees, one-hot throughout, below |
    | `results` | `Box(-1, 1, (5,), int8)` | whether the latest children all succeeded (1) or not (-1), by spawn action, since the cursor came here and nothing changed |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv` |
    | `action_mask` | `MultiBinary(22)` | 1 where the action is allowed |

    `task` holds, in order: the form asked for (4); of the cursor's node, whether it is the frame's root, the last operand, fits the window,
    is expanded, may become a polynomial by its own operator, is a symbol or number (6); its parent's operator (8); what occurs in it:
    a sum, an unexpanded product, a negative power, a sine or the like, a logarithm, a symbolic power, a derivative (7); how many parts
    below it are to be done, 0 to 4 or more (5); for each of its first six operands the operator, whether it is expanded, whether it holds
    work (10 each); which rules did nothing here (14); the window: the first 48 tokens of the part, in prefix order, by 23 kinds
    (`env.unwrapped.domain.windows(task)` gives it the shape (48, 23)). **Context**: 48 tokens and six operands per call; the expression
    itself is the only memory, of which a call sees that much around the cursor; marks of what was tried do not survive the cursor's moves
    (PROTOCOL rule 12). The monolithic twin sees exactly the root's observation.

    ## Rewards
    1 when the root's expression has its form, else 0. A child's local outcome (in `info["returned"]`) is 1 when its part has its own form.
    With `feedback="dense"`, `info["dense_reward"]` pays the removal of obstacles: nodes that no multiplied-out polynomial has. Each
    counts 1/(obstacles of the task + 1), is paid once whoever removes it, and not again after somebody has put one back; the
    task's end pays the rest, so that it sums to 1 over a solved episode.

    ## Endings
    Terminated when the root's expression has its form; truncated after 20 x `levels` steps anywhere in the tree. A child frame ends when
    its part has its form, or when its budget is gone (failure): 6 steps and 4 for each obstacle in its part, and never more than its
    parent has left.

    ## Registered ids
    `RAO/Rewrite-v0` (three layers); keyword arguments for everything else. SymPy is called by rules and by evaluation only, and what it
    said is remembered: about 1,000 steps/s, not the compiled families' million.

    Args:
        **kwargs: those of `rao_envs.rewrite.domain.RewriteDomain` (`levels`, `goal`, `window`, `capacity`, `rules`, `expressions`) and of
            `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = RewriteDomain
    viewer_class = RewriteViewer
    domain: RewriteDomain

    @property
    def expression(self) -> Any:
        """The acting frame's expression, as a SymPy expression."""
        return decode(self.batch.state.tokens(0, int(self.batch.stack.episodes["depth"][0])))

    @property
    def goal(self) -> str:
        """The form that the acting frame is asked for."""
        return FORMS[self.batch.state.form[0, int(self.batch.stack.episodes["depth"][0])]]

    def view(self) -> RewriteView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        acting = int(self.batch.stack.episodes["depth"][0])
        stack = tuple(self._frame_view(depth, acting) for depth in range(acting + 1))
        return RewriteView(stack, self.history.view(self.domain.name))

    def _frame_view(self, depth: int, acting: int) -> RewriteFrameView:
        state = self.batch.state
        tokens = state.tokens(0, depth)
        printed = print_expression(tokens)
        # While children are out, their parts change under the place where the cursor was; the cursor's own place stays.
        lent = printed.spans[int(state.places[0, depth, state.which[0, depth + 1]])] if depth < acting else None
        return RewriteFrameView(depth, FORMS[state.form[0, depth]], printed.text, printed.spans[int(state.cursor[0, depth])], lent)


class RewriteVectorEnv(RecursiveVectorEnv):
    """Many expressions in one batch."""

    domain_class = RewriteDomain
