"""What state transfer adds to an observation, and how wide it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rao_agents.frame_key import FRAME_FIELDS, FRAME_KEY, require_frame

MODES = ("none", "summary", "hidden", "attention")
"""What a frame hands on: nothing; a learned summary; a recurrent state; keys and values."""

FLAGS_KEY = "transfer/flags"
"""float32 (4,): 1 for each of `FLAGS` that there is."""
FLAGS = ("own", "parent", "child", "sibling")
"""Whether this frame acted before; whether its parent, the child that returned last and the sibling before it are known."""
STATE_KEY = "transfer/state"
"""float32 (dim,): the frame's own recurrent state after its last step; zeros in its first."""
MEMORY_KEY = "transfer/memory"
"""float32 (memory * dim,): the external memory of the whole tree before this step."""
CONTEXT, KEPT = "context", "kept"

OTHERS = ("parent", "child", "sibling")
"""Frames whose last observation and context come with an observation, as "parent/task", "parent/context" and so on."""


class TransferOptions(NamedTuple):
    """How states are handed on.

    mode: one of `MODES`.
    dim: width of messages, recurrent states, keys, values and memory slots.
    slots: keys and values that a frame offers ("attention").
    memory: slots of the external memory; 0 for none.
    back: whether a child's state goes back to its parent too.
    """

    mode: str = "none"
    dim: int = 64
    slots: int = 8
    memory: int = 0
    back: bool = True

    @property
    def active(self) -> bool:
        """Whether there is anything to hand on."""
        return self.mode != "none" or self.memory > 0

    @property
    def sends(self) -> bool:
        """Whether frames hand states to each other (beside the memory)."""
        return self.mode != "none"

    @property
    def context(self) -> dict[str, int]:
        """Widths of what a frame knew besides its observation when it acted, in the order in which it is stored.

        From it and the observation a frame's state is computed again: the messages it had from its parent and
        from its last child, its recurrent state before the step, what it read in the memory and what was in it.
        """
        widths = {
            "incoming": self.dim if self.sends else 0,
            "returned": self.dim if self.sends and self.back else 0,
            "previous": self.dim if self.mode == "hidden" else 0,
            "read": self.dim if self.memory else 0,
            "before": self.dim * self.memory,
        }
        return {name: width for name, width in widths.items() if width}

    @property
    def others(self) -> tuple[str, ...]:
        """Which of `OTHERS` come with an observation."""
        wanted = {"parent": self.active, "child": self.memory > 0 or (self.sends and self.back), "sibling": self.memory > 0}
        return tuple(name for name in OTHERS if wanted[name])


def check_options(mode: Any, kwargs: Mapping[str, Any] | None) -> TransferOptions:
    """The options that the arguments `state_transfer` and `state_transfer_kwargs` stand for.

    Raises:
        ValueError: An unknown mode or option, or a value out of range.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"state_transfer must be one of {', '.join(MODES)}, got {mode!r}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ValueError(f"state_transfer_kwargs must be a dictionary or None, got {kwargs!r}")
    given = dict(kwargs or {})
    known = [name for name in TransferOptions._fields if name != "mode"]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"state_transfer_kwargs has no {', '.join(unknown)}; it takes {', '.join(known)}")
    options = TransferOptions(mode=mode, **given)
    for name, least in (("dim", 1), ("slots", 1), ("memory", 0)):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"state_transfer_kwargs: {name} must be an integer of at least {least}, got {value!r}")
    if not isinstance(options.back, (bool, np.bool_)):
        raise ValueError(f"state_transfer_kwargs: back must be True or False, got {options.back!r}")
    return TransferOptions(mode, int(options.dim), int(options.slots), int(options.memory), bool(options.back))


class Layout:
    """The observation space with what state transfer adds to it.

    Args:
        space: of the environment's observations, or an `augmented` space again; with the key `frame` or without.
        options: how states are handed on.
    """

    def __init__(self, space: spaces.Dict, options: TransferOptions) -> None:
        self.options = options
        self.frame = space.spaces.get(FRAME_KEY)
        self.plain: dict[str, spaces.Space[Any]] = {key: entry for key, entry in space.items() if key != FRAME_KEY and not _is_ours(key)}
        self.context_dim = sum(options.context.values())
        self.state_dim = options.dim if options.mode == "hidden" else 0
        self.memory_dim = options.memory * options.dim
        self.augmented = self._augmented()

    @classmethod
    def around(cls, space: spaces.Space[Any], options: TransferOptions) -> Layout:
        """The layout for an environment with observations of `space`.

        Raises:
            ValueError: They do not say which frame acts, or have keys of names that are needed here.
        """
        require_frame(space, "state transfer")
        assert isinstance(space, spaces.Dict)
        if taken := [key for key in space.spaces if _is_ours(key)]:
            names = ", ".join(f"{name}/" for name in (*OTHERS, "transfer"))
            raise ValueError(
                f"observation keys that begin with {names} are those of state transfer; the environment has {', '.join(taken)}"
            )
        return cls(space, options)

    def _augmented(self) -> spaces.Dict:
        options = self.options
        entries: dict[str, spaces.Space[Any]] = dict(self.plain)
        if self.frame is not None:
            entries[FRAME_KEY] = self.frame
        entries[FLAGS_KEY] = spaces.Box(0.0, 1.0, (len(FLAGS),), np.float32)
        if self.state_dim:
            entries[STATE_KEY] = _vector(self.state_dim)
        if self.memory_dim:
            entries[MEMORY_KEY] = _vector(self.memory_dim)
        for name in options.others:
            entries |= {f"{name}/{key}": entry for key, entry in self.plain.items()}
            entries[f"{name}/{CONTEXT}"] = _vector(self.context_dim)
            if self.memory_dim:
                entries[f"{name}/{KEPT}"] = spaces.Box(0.0, 1.0, (options.memory,), np.float32)
        return spaces.Dict(entries)

    @property
    def acting_space(self) -> spaces.Dict:
        """What an agent that keeps its own states must be shown: the plain keys, and `frame`."""
        frame = spaces.Box(np.iinfo(np.int32).min, np.iinfo(np.int32).max, (len(FRAME_FIELDS),), np.int32)
        return spaces.Dict({**self.plain, FRAME_KEY: frame})


def _is_ours(key: str) -> bool:
    return key.partition("/")[0] in (*OTHERS, "transfer") and "/" in key


def _vector(width: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (width,), np.float32)
