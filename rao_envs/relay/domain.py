"""The relay family's configuration: who must tell whom, spaces and where the state lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rao_envs.core.arguments import whole_number
from rao_envs.core.domain import Domain
from rao_envs.relay import kernels

FEWEST_LEVELS = {"down": 2, "up": 3, "siblings": 2}
MOST_LEVELS = 64
MOST_DIGITS = 16


class RelayDomain(Domain):
    """A code that one frame sees and another one must enter.

    Args:
        direction: "down": the root sees the code, the deepest frame enters it; "up": the deepest frame sees it, the root's child enters
            it once its own child is back; "siblings": the root has two children, one after the other: the deepest frame of the first
            one's branch sees the code, that of the second one's enters it.
        levels: frames from the root to the deepest one, both included: at least 2 ("up": 3), at most 64; None for the least. All frames in
            between see nothing, and must pass on what they are told.
        digits: of the code, 1 to 16.
        base: values of a digit, 2 to 10.

    Raises:
        ValueError: a value out of range.
    """

    has_dense = True
    verdicts = False
    shared = frozenset({"config"})
    settled = frozenset({"asked", "code"})
    per_frame = frozenset({"frames"})
    options = frozenset({"code"})

    def __init__(self, direction: str = "down", *, levels: int | None = None, digits: int = 3, base: int = 6) -> None:
        if direction not in FEWEST_LEVELS:
            raise ValueError(f"direction must be one of {', '.join(map(repr, kernels.DIRECTIONS))}, got {direction!r}")
        self.direction = direction
        fewest = FEWEST_LEVELS[direction]
        self.levels = whole_number("levels", fewest if levels is None else levels, fewest, MOST_LEVELS)
        self.digits = whole_number("digits", digits, 1, MOST_DIGITS)
        self.base = whole_number("base", base, 2, 10)
        self.name = f"Relay-{direction}-{self.levels}"
        self.primitives = (*(f"enter_{digit}" for digit in range(self.base)), "done")
        self.spawns = ("spawn",)
        self.max_depth = self.levels - 1
        branches = 2 if direction == "siblings" else 1
        self.budget = 2 * (2 + branches * int(kernels.need.py_func(self.levels - 1, self.digits)))  # type: ignore[attr-defined]
        code = 2 + self.digits * self.base
        self.fields = {"sees": slice(0, 1), "enters": slice(1, 2), "code": slice(2, code), "next": slice(code, code + self.digits)}
        self.task_space = spaces.Box(0, 1, (code + self.digits,), np.int8)
        self.results_space = spaces.Box(0, 1, (2,), np.int8)

    def allocate(self, n: int, *, dense: bool) -> kernels.RelayState:
        """Room for `n` codes."""
        config = np.zeros(1, kernels.CONFIG)
        config[0] = (kernels.DIRECTIONS.index(self.direction), self.levels, self.digits, self.base)
        return kernels.RelayState(
            config=config,
            asked=np.full((n, self.digits), kernels.NOT_ASKED, np.int8),
            code=np.zeros((n, self.digits), np.int8),
            entered=np.zeros(n, np.int16),
            frames=np.zeros((n, self.max_depth + 1), kernels.FRAME),
        )

    def prepare(self, state: kernels.RelayState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"code": digits}` sets the code; without it, any."""
        code = options.get("code")
        if code is None:
            state.asked[i] = kernels.NOT_ASKED
            return
        if isinstance(code, (str, bytes)) or not np.iterable(code) or len(list(code)) != self.digits:
            raise ValueError(f"code must be {self.digits} integers in [0, {self.base - 1}], got {code!r}")
        state.asked[i] = [whole_number("code", digit, 0, self.base - 1) for digit in code]

    def question(self, state: kernels.RelayState, i: int, depth: int) -> str:
        """What a frame is for."""
        frame = state.frames[i, depth]
        if frame["enters"]:
            return "enter the code"
        return "see the code" if frame["sees"] else "pass it on"

    def asked(self, state: kernels.RelayState, i: int) -> str:
        """Where the code must go."""
        return f"{self.digits} digits {self.direction}, {self.levels} levels"

    def skills(self) -> frozenset[str]:
        """The direction."""
        return frozenset({self.direction})

    def truth(self, state: kernels.RelayState, i: int) -> str:
        """The code."""
        return " ".join(map(str, state.code[i]))
