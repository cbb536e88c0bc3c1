"""`RAO/Relay`: a probe of what passes between frames. One sees a code, another one must enter it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.relay.domain import RelayDomain
from rao_envs.relay.viewer import RelayFrameView, RelayView, RelayViewer


class RelayEnv(RecursiveEnv):
    """Enter a code that only another frame sees.

    ## Description
    A probe of state transfer (MISSION A3, A11), not a benchmark. One frame sees a code, drawn anew for each episode; another one must
    enter it digit by digit, and the first wrong digit ends the episode. What the environment itself hands from frame to frame says nothing about the
    code: without a message of the agent's own, whoever enters it guesses, and is right once in `base ** digits` episodes. `direction` says
    which way the message must go:

    - `down`: the root sees the code, the deepest frame enters it.
    - `up`: the deepest frame sees the code; the root's child, which spawned it (or its ancestor), enters it afterwards.
    - `siblings`: the root's first child (or the deepest frame below it) sees the code, its second child (or the deepest frame below that) enters
      it. The root has to carry it from one to the other, or all have to share a memory.

    With more `levels`, frames in between, which see nothing, must pass the message on.

    ## Action space
    `Discrete(8)` (for base 6): 0-5 enter that digit; 6 `done` ends the frame; 7 `spawn` opens the next frame of the chain. `Discrete(7)` with
    `spawn=False`. Masked: digits, except in the frame that enters the code once its child (if it needs one) is back; `done` there; spawns once
    all children that the frame needs are back, and at `max_depth`.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 1, (23,), int8)` | whether the frame sees the code (1), whether it is the one that enters it (1), the code, one-hot (digits x base; zeros unless it sees it), which digit comes next, one-hot (digits; zeros unless it enters it). `env.unwrapped.domain.fields` names the parts |
    | `results` | `Box(0, 1, (2,), int8)` | the first child is back, the second child is back |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv`; the last two are 0 |
    | `action_mask` | `MultiBinary(8)` | 1 where the action is allowed |

    **Context**: one frame's own role. Nothing else survives a step; all else must be the agent's own (PROTOCOL rule 12).

    ## Rewards
    1 when the root says `done` after everything below it went right, else 0. Local outcomes: 1 for a frame that ends well; the frame that
    enters the code gets the share of digits that were right when it fails. With `feedback="dense"`, `info["dense_reward"]` pays 1/digits for each right
    digit.

    ## Endings
    Terminated when the root ends: by `done`, or because a frame below it failed, which fails all frames above it (there is no second
    guess). Truncated after about twice the steps that a perfect episode takes. A frame ends by `done`: success if its children are back,
    failure (giving up) if not. The frame that enters the code ends by its last digit, or the first wrong one.

    ## Registered ids
    `RAO/Relay-down-v0`, `-up`, `-siblings`, `-chain` (down, 4 levels), and `RAO/Relay-v0` for your own keyword arguments. The monolithic twin has
    no way to reach the frame that enters the code, and scores 0: a twin is of no use here.

    Args:
        **kwargs: those of `rao_envs.relay.domain.RelayDomain` (`direction`, `levels`, `digits`, `base`) and of `RecursiveEnv` (`spawn`,
            `feedback`, `budget`, `max_depth`, `observe_frame`, `render_mode`). `reset(options={"code": [3, 1, 4]})` sets the code.
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = RelayDomain
    viewer_class = RelayViewer
    domain: RelayDomain

    @property
    def code(self) -> npt.NDArray[np.int8]:
        """The running episode's code, int8 (digits,): a copy."""
        code: npt.NDArray[np.int8] = self.batch.state.code[0].copy()
        return code

    def view(self) -> RelayView:
        """Everything a picture shows, as plain data."""
        assert self.history is not None
        depth = int(self.batch.stack.episodes["depth"][0])
        code = tuple(self.code.tolist())
        stack = tuple(self._frame_view(level, code) for level in range(depth + 1))
        return RelayView(code, stack, self.history.view(self.domain.name))

    def _frame_view(self, depth: int, code: tuple[int, ...]) -> RelayFrameView:
        frame = self.batch.state.frames[0, depth]
        return RelayFrameView(
            depth=depth,
            sees=bool(frame["sees"]),
            enters=bool(frame["enters"]),
            wanted=int(frame["wanted"]),
            back=int(frame["back"]),
            entered=code[: frame["position"]],
        )


class RelayVectorEnv(RecursiveVectorEnv):
    """Any number of codes at once; everything else as `RelayEnv`."""

    domain_class = RelayDomain
