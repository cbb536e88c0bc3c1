"""`RecursiveEnv`: the spawn protocol as a plain `gymnasium.Env` (PROTOCOL, all rules)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded

from rao_envs.core.batch import RecursiveBatch, check_seed
from rao_envs.core.callstack import EPISODE, EVENTS
from rao_envs.core.domain import Domain
from rao_envs.core.history import History
from rao_envs.core.viewer import Viewer

Obs = dict[str, npt.NDArray[Any]]

PICTURED: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 8}
"""The metadata of a family that has a viewer."""

DEPTH, EVENT, N_RETURNED, REWARD, DENSE, TERMINATED, TRUNCATED, SUCCESS = (
    (EPISODE.names or ()).index(name) for name in ("depth", "event", "n_returned", "reward", "dense", "terminated", "truncated", "success")
)


class RecursiveEnv(gym.Env[Obs, np.int64]):
    """An environment in which some actions spawn a child frame on a sub-problem (MISSION A1, A2; PROTOCOL).

    ## Observation space
    A `Dict` that is the same for every frame, whatever its depth:

    | key | space | meaning |
    |---|---|---|
    | `task` | `Box`, the family's | the acting frame's window on its own sub-problem |
    | `results` | `Box`, the family's | what its children returned |
    | `call` | `Box(0, 1, (6,), float32)` | may spawn; budget left to the frame; budget left to the root; just opened; child just succeeded; child just failed |
    | `action_mask` | `MultiBinary(n)` | 1 where the action is allowed now |

    ## Action space
    `Discrete`: the family's primitives, then its spawn actions (absent with `spawn=False`). A forbidden action costs a step and changes
    nothing else.

    ## Rewards
    The root objective only: 1 when the root frame succeeds, 0 otherwise, plus whatever the family documents.

    ## Endings
    `terminated` when the root frame succeeds or fails; `truncated` when the shared step budget is gone.

    A family sets `domain_class`; one that can be looked at also sets `viewer_class` and `metadata = PICTURED`, and defines `view`.

    Args:
        spawn, feedback, budget, max_depth, observe_frame: see `rao_envs.core.batch.RecursiveBatch`.
        render_mode: one of `metadata["render_modes"]`, or None.
        **family: the domain's keyword arguments.

    Raises:
        ValueError: a value out of range.
        TypeError: a keyword argument the family does not have.
    """

    domain_class: ClassVar[type[Domain]]
    viewer_class: ClassVar[type[Viewer] | None] = None

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "render_fps": 8}  # type: ignore[misc]

    def __init__(
        self,
        *,
        spawn: bool = True,
        feedback: str = "sparse",
        budget: int | None = None,
        max_depth: int | None = None,
        observe_frame: bool = False,
        render_mode: str | None = None,
        **family: Any,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None or one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.render_mode = render_mode
        domain = self.domain_class.create(family)
        self._attach(
            RecursiveBatch(
                domain,
                1,
                spawn=spawn,
                feedback=feedback,
                budget=budget,
                max_depth=max_depth,
                observe_frame=observe_frame,
            )
        )

    def _attach(self, batch: RecursiveBatch) -> None:
        self.batch = batch
        self.domain = batch.domain
        self.observation_space = batch.observation_space  # type: ignore[assignment]  # Gymnasium: Space is invariant
        self.action_space = batch.action_space
        self.feedback = batch.feedback
        self.spawn_actions = batch.spawn_actions
        self.action_names = batch.action_names
        self.history = History(batch) if self.render_mode is not None else None
        self._viewer: Viewer | None = None
        self._window: Any = None
        self._waiting_for: tuple[int, ...] = ()  # frame ids of the detached children that are out
        self._joins = ""  # which spawn they come from
        self._ticket = ""  # which spawn this environment comes from, if it is a detached child
        self._origin: dict[str, npt.NDArray[Any]] | None = None  # where a detached child's reset goes back to
        self._seeded = False
        self._begun = False
        self._live = False  # whether a step may be taken: begun, not over, not waiting for children

    # -- gymnasium -----------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Begin the next episode; with `seed` (an integer in [0, 2**64)) from that seed's stream.

        A detached child has exactly one task: its reset goes back to the moment it was spawned, and takes no seed or options.

        Raises:
            ValueError: a seed out of range, or options the family does not know.
        """
        if self._origin is not None:
            if seed is not None or options:
                raise ValueError("a detached child has one fixed task: call reset() without seed or options")
            self.batch.rewind(self._origin)
        else:
            # Everything is checked before anything changes.
            start = None if seed is None else check_seed(seed)
            self.batch.prepare(np.zeros(1, np.int64), options)
            super().reset(seed=start)
            if start is None and not self._seeded:
                start = int(self.np_random.integers(2**63))
            if start is not None:
                self.batch.seed(0, start)
            self._seeded = True
            self.batch.reset(options=options)
        self._waiting_for = ()
        self._begun = self._live = True
        if self.history is not None:
            self.history.begin()
            self._show()
        return self.batch.first_observation(), self._info()

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """One environment step of the acting frame.

        Returns:
            The observation of the frame that acts next, the root objective's reward, terminated, truncated, and `info` as the
            protocol lists it (rule 7).

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or after the episode's end.
            ValueError: `action` is not in the action space.
            RuntimeError: detached children are out; `join` them first.
        """
        self._advance(self.check_action(action))
        return self._transition()

    def render(self) -> Any:
        """The current state in the mode chosen at construction: an RGB array, a text, or None (a window, updated at every step).

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            gym.logger.warn(
                f"render() shows nothing without a render_mode: make the environment with one of {self.metadata['render_modes']}"
            )
            return None
        if not self._begun:
            raise ResetNeeded("call reset() before render()")
        return self.draw(self.render_mode)

    def draw(self, mode: str) -> npt.NDArray[np.uint8] | str | None:
        """One picture of the current state: pixels, a text, or (mode "human") a window."""
        if self.viewer_class is None:
            raise NotImplementedError(f"{type(self).__name__} lists the render mode {mode!r} but has no viewer_class")
        if mode == "ansi":
            return self.viewer_class.draw_ansi(self.view())
        if self._viewer is None:
            self._viewer = self.viewer_class()
        if mode == "rgb_array":
            return self._viewer.draw_rgb(self.view())
        if self._window is None:
            from rao_envs.core.canvas import Window

            self._window = Window(f"RAO-envs: {self.domain.name}", self.metadata["render_fps"])
        if not self._window.closed:
            self._window.show(self._viewer.draw_rgb(self.view()))
        return None

    def view(self) -> Any:
        """Everything that this family's pictures show, as plain data."""
        raise NotImplementedError(f"{type(self).__name__} has a viewer_class but no view()")

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_viewer": None, "_window": None}

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed now, bool (n_actions,): sb3-contrib's convention."""
        mask: npt.NDArray[np.bool_] = self.batch.buffers.action_mask[0].astype(np.bool_)
        return mask

    def get_state(self) -> dict[str, Any]:
        """Everything about the running episode, as arrays nobody else holds; `set_state` goes on from there exactly.

        Raises:
            RuntimeError: detached children are out.
        """
        self._check_not_waiting()
        return self.batch.get_state()

    def set_state(self, state: Mapping[str, Any]) -> tuple[Obs, dict[str, Any]]:
        """Continue from `state` (what `get_state` returned, here or in another process); returns its observation and info.

        Raises:
            ValueError: not a state of this environment with these keyword arguments; nothing is changed then.
        """
        self.batch.set_state(state)
        self._waiting_for = ()
        self._begun = self._seeded = True
        self._live = not self.batch.done[0]
        if self.history is not None:
            self.history.begin()
        return self.batch.first_observation(), self._info()

    # -- detached children (PROTOCOL rule 8) ---------------------------------------------------------------------------------

    def spawn(self, action: Any) -> RecursiveEnv:
        """Take spawn `action` now, but hand the child out as an environment of its own instead of running it inline.

        The spawn's step is paid here. The child has this environment's spaces; `reset()` gives its first observation, and it can be
        pickled and run anywhere. It is scored by its own sub-task. Give it to `join` when it is over.

        Raises:
            ValueError: `action` is not an allowed spawn action now, or opens several children (`spawn_all` takes those).
        """
        if (fanout := self._check_spawn(action)) != 1:
            raise ValueError(f"{self.action_names[int(action)]} opens {fanout} children: use spawn_all")
        return self.spawn_all(action)[0]

    def spawn_all(self, action: Any) -> tuple[RecursiveEnv, ...]:
        """As `spawn`, for an action that opens any number of independent children: each becomes an environment of its own.

        Raises:
            ValueError: `action` is not an allowed spawn action now.
        """
        fanout = self._check_spawn(action)
        self._advance(int(action))
        ticket = self.batch.digest()
        children = tuple(self._detach(k) for k in range(fanout))
        for child in children:
            child._ticket = ticket
        self._waiting_for, self._joins = tuple(child.base_frame_id for child in children), ticket
        self._live = False
        return children

    def join(self, *children: gym.Env[Any, Any]) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Take the finished detached children back and go on as if they had run inline.

        Args:
            *children: every child of the spawn under way, in any order, each run to its end; wrapped or not.

        Returns:
            What the step that ended the child would have returned inline. For several children `info["returned"]` puts together
            what the steps that ended them would have. `info["dense_reward"]` is progress that no child was paid for: each is paid once.

        Raises:
            TypeError: something that is no environment of this suite.
            ValueError: not exactly this environment's children, or one that is not finished; nothing is changed then.
        """
        if not self._waiting_for:
            raise ValueError("no detached child is out: call spawn(action) or spawn_all(action) first")
        by_id = {child.base_frame_id: child for child in map(_unwrapped, children)}
        if len(children) != len(self._waiting_for) or set(by_id) != set(self._waiting_for):
            raise ValueError(f"join takes the children that are out, frames {list(self._waiting_for)}; got frames {list(by_id)}")
        ordered = [by_id[identity] for identity in self._waiting_for]
        for child in ordered:
            if child._ticket != self._joins:
                raise ValueError(f"this child frame {child.base_frame_id} was spawned by another environment, or earlier by this one")
            if not child.batch.done[0]:
                raise ValueError(f"child frame {child.base_frame_id} is still running: step it until terminated or truncated")
        returned = self.batch.take_back([child.batch for child in ordered])
        self._waiting_for = ()
        if self.history is not None:
            self.history.join(child.history for child in ordered)
        observation, reward, terminated, truncated, info = self._transition()
        return observation, reward, terminated, truncated, info | {"returned": returned}

    @property
    def is_running(self) -> bool:
        """Whether an episode has begun and is not over."""
        return self._live or bool(self._waiting_for)

    @property
    def is_detached(self) -> bool:
        """Whether this is a detached child, which has one task of its own."""
        return self._origin is not None

    @property
    def base_frame_id(self) -> int:
        """Id of the frame whose end ends this environment's episode: the root's 0, or a detached child's own."""
        return int(self.batch.stack.frames["id"][0, self.batch.stack.episodes["base"][0]])

    def _detach(self, k: int) -> RecursiveEnv:
        """A copy of this environment in which only child `k` of the spawn just taken runs."""
        child: RecursiveEnv = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        child._np_random = None
        child._attach(self.batch.detach(k))
        child._origin = child.batch.mark()
        return child

    # -- shared steps --------------------------------------------------------------------------------------------------------

    def check_action(self, action: Any) -> int:
        """`action` as an int; raises ValueError unless it is in the action space."""
        if isinstance(action, np.ndarray) and action.shape == () and action.dtype.kind in "iu":
            action = action.item()
        if not isinstance(action, (int, np.integer)) or isinstance(action, bool) or not 0 <= action < len(self.action_names):
            raise ValueError(
                f"{action!r} is not an action: pass an integer in [0, {len(self.action_names)}) ({', '.join(self.action_names)})"
            )
        return int(action)

    def _check_spawn(self, action: Any) -> int:
        """How many children the spawn `action` opens; raises ValueError unless it is allowed now."""
        self._check_ready()
        index = self.check_action(action)
        mask = self.batch.buffers.action_mask[0]
        if index not in self.spawn_actions or not mask[index]:
            allowed = ", ".join(self.action_names[a] for a in self.spawn_actions if mask[a]) or "none"
            raise ValueError(f"{self.action_names[index]} is not an allowed spawn action here; allowed now: {allowed}")
        return self.batch.fanout(index)

    def _check_not_waiting(self) -> None:
        if self._waiting_for:
            raise RuntimeError(f"detached child frames {list(self._waiting_for)} are out: join them first")

    def _check_ready(self) -> None:
        if not self._live:
            self._check_not_waiting()
            raise ResetNeeded("call reset(): the episode has not begun or is over")

    def _advance(self, action: int) -> None:
        if not self._live:
            self._check_ready()
        batch = self.batch
        batch.one_action[0] = action
        batch.step(batch.one_action)
        if self.history is not None:
            self.history.note(action)
            self._show()

    def _info(self) -> dict[str, Any]:
        return self._report()[1]

    def _report(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The episode's record, in EPISODE's order, and the protocol's `info`."""
        batch = self.batch
        stack = batch.stack
        episode = stack.episodes[0].item()
        depth = episode[DEPTH]
        frame = stack.frames[0, depth]
        info = {
            "frame_id": frame["id"].item(),
            "parent_id": frame["parent"].item(),
            "depth": depth,
            "event": EVENTS[episode[EVENT]],
            "returned": batch.returned(0) if episode[N_RETURNED] else (),
            "action_mask": batch.buffers.action_mask[0].copy(),
        }
        if batch.feedback == "dense":
            info["dense_reward"] = episode[DENSE]
        return episode, info

    def _transition(self) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        episode, info = self._report()
        terminated, truncated = episode[TERMINATED], episode[TRUNCATED]
        self._live = not (terminated or truncated)
        if not self._live:
            info["is_success"] = episode[SUCCESS]
            info["tree"] = self.batch.tree(0)
        return self.batch.first_observation(), episode[REWARD], terminated, truncated, info


def _unwrapped(child: gym.Env[Any, Any]) -> RecursiveEnv:
    """`child` without wrappers; raises TypeError unless it is an environment of this suite."""
    inner = getattr(child, "unwrapped", child)
    if not isinstance(inner, RecursiveEnv):
        raise TypeError(f"join takes the environments that spawn and spawn_all returned, got {child!r}")
    return inner
