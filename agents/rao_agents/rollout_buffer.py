"""Rollout buffers in which every frame is a trajectory of its own (MISSION A4).

They stand in for sb3-contrib's maskable buffers: the same `add`, `get` and samples, so that its training loop
is used as it is. What differs: transitions jump over the children of a frame, rows that wait for something at
a rollout's end (a pending spawn for its child, say) are carried into the next rollouts until they complete, and
minibatches are drawn from completed transitions only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import (
    MaskableDictRolloutBuffer,
    MaskableDictRolloutBufferSamples,
    MaskableRolloutBuffer,
    MaskableRolloutBufferSamples,
)

from rao_agents.frame_gae import (
    LOST_FRAME,
    NO_FRAME,
    NO_ROW,
    NODE,
    OK,
    OPEN,
    PENDING,
    ROOT,
    ROW,
    TREE,
    close_rollout,
    frame_advantages,
    record_step,
)
from rao_agents.leave_one_out import complete_groups, frame_returns, leave_one_out
from rao_envs.core.callstack import FrameFacts

Obs = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]
Samples = MaskableRolloutBufferSamples | MaskableDictRolloutBufferSamples
ValueFunction = Callable[[Obs], npt.NDArray[np.float32]]

CREDITS = {"node": NODE, "tree": TREE, "root": ROOT}
"""Whom a decision answers to; see `rao_agents.frame_gae`."""
ADVANTAGES = ("gae", "rloo")
"""Generalised advantage estimation with a critic; leave-one-out over rollouts of the same root task without."""
BONUS_FORMS = ("average", "sum")
"""What a delegation bonus is paid for: the average success of a frame's children, or the number that succeeded."""

LINKS = ("next", "parent", "link")
"""Fields of a row that name other rows."""

PLAIN = ""
"""The one key under which a plain (not dictionary) observation is stored."""


class ProtocolError(RuntimeError):
    """An environment reported something about its frames that the spawn protocol does not allow."""


class CarriedRows(NamedTuple):
    """Rows that outlive their rollout, because what they wait for has not happened yet.

    Pending spawns: at most one for each open frame but the acting one. With credit by tree or root, also the last
    row of every ended frame whose parent has not acted since. With leave-one-out, all rows of a root task until
    its last rollout has ended. Links between rows (`next`, `parent`, `link`) are positions among these.
    """

    observations: dict[str, npt.NDArray[Any]]  # (rows, *shape) by key; PLAIN for plain observations
    actions: npt.NDArray[Any]  # (rows, 1)
    action_masks: npt.NDArray[np.bool_]  # (rows, n_actions)
    log_probs: npt.NDArray[np.float32]  # (rows,) under the policy that acted
    rows: npt.NDArray[Any]  # (rows,) dtype ROW
    latest: npt.NDArray[np.int64]  # (n_envs, depths) `row` of the open frames, as a position among these rows
    waiting: npt.NDArray[np.int64]  # (n_envs, depths) their `waiting`, likewise


class FrameRolloutBufferMixin:
    """Makes a maskable rollout buffer keep frames apart: `FrameRolloutBuffer` and `FrameDictRolloutBuffer`.

    The life of a rollout is SB3's: `reset`, then `record` (by the environment tap) and `add` (by the
    algorithm) for each step, `compute_returns_and_advantage`, `get` for each epoch.

    Other parameters are those of `stable_baselines3.common.buffers.RolloutBuffer`.

    Args:
        depth_weighting: exponent alpha >= 0: advantages at depth d are weighted in proportion to n_d **
            -alpha (n_d rows at that depth), with mean 1 over the rows, so that deep levels with many frames
            do not drown the root. 0 weights all rows alike, 1 gives every level the same total.
        normalize_advantage: bring the advantages of a rollout to mean 0 and standard deviation 1, once over
            all its rows.
        credit: "node", "tree" or "root"; see `RecursiveAlgorithm`.
        advantage: "gae", or "rloo", which needs numbered tasks (`record`) and no values.
        seed: of the buffer's own generator, which orders the minibatches; None for a fresh one.
    """

    # From RolloutBuffer.
    buffer_size: int
    n_envs: int
    gamma: float
    gae_lambda: float
    device: th.device
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    obs_shape: Any
    action_dim: int
    mask_dims: int
    pos: int
    full: bool
    generator_ready: bool
    observations: Any
    actions: npt.NDArray[Any]
    action_masks: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    returns: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    log_probs: npt.NDArray[np.float32]
    episode_starts: npt.NDArray[np.float32]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        gae_lambda: float = 1.0,
        gamma: float = 0.99,
        n_envs: int = 1,
        depth_weighting: float = 0.0,
        normalize_advantage: bool = True,
        credit: str = "node",
        advantage: str = "gae",
        seed: int | None = None,
    ) -> None:
        check_choice("credit", credit, CREDITS)
        check_choice("advantage", advantage, ADVANTAGES)
        if not isinstance(action_space, spaces.Discrete):
            raise ValueError(f"frames need a Discrete action space (primitives and spawns), got {action_space}")
        self.depth_weighting = depth_weighting
        self.normalize_advantage = normalize_advantage
        self.credit = credit
        self.advantage = advantage
        self.repeats = 0  # rollouts of each root task, where they are repeated
        self.rng = np.random.default_rng(seed)
        self.value_function: ValueFunction | None = None
        # The call stacks, as far as this buffer has seen them: (n_envs, depths), (n_envs,), (n_envs,).
        self.frames = _no_frames(n_envs, 1)
        self.acting = np.zeros(n_envs, np.int64)
        self.episode = np.zeros(n_envs, np.int64)
        # The root tasks being played, and the first one all of whose rollouts were seen from their beginning.
        self.tasks = np.zeros(n_envs, np.int64)
        self.first_task = 0
        self.carried: CarriedRows | None = None
        self.n_carried = 0  # rows in the slots after this rollout's steps
        self.tally = np.zeros(3, np.int64)
        self._unsettled = False  # steps were recorded since the last rollout was settled
        self._capacity = -1
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)  # type: ignore[call-arg]

    def seed(self, seed: int | None) -> None:
        """Start the generator of the minibatch order again."""
        self.rng = np.random.default_rng(seed)

    # -- the row table -----------------------------------------------------------------------------

    @property
    def n_step_rows(self) -> int:
        """Rows of this rollout's own steps: buffer_size * n_envs; the carried rows come after them."""
        return self.buffer_size * self.n_envs

    @property
    def n_rows(self) -> int:
        """Rows in use."""
        return self.n_step_rows + self.n_carried

    def _allocate(self, capacity: int) -> None:
        """Make the flat stores, for all rows of a rollout and `capacity` carried ones.

        The (step, env) arrays that SB3 knows are views of them.
        """
        self._capacity = capacity
        size = self.n_step_rows + capacity
        grid = (self.buffer_size, self.n_envs)
        shapes = self.obs_shape if isinstance(self.observation_space, spaces.Dict) else {PLAIN: self.obs_shape}
        leaves = self.observation_space.spaces if isinstance(self.observation_space, spaces.Dict) else {PLAIN: self.observation_space}
        dtypes = {key: space.dtype for key, space in leaves.items()}
        self.mask_dims = int(cast(spaces.Discrete, self.action_space).n)
        self.flat_observations = {key: np.zeros((size, *shape), dtypes[key]) for key, shape in shapes.items()}
        self.flat_actions = np.zeros((size, self.action_dim), self.action_space.dtype)
        self.flat_masks = np.ones((size, self.mask_dims), np.bool_)
        self.flat_log_probs = np.zeros(size, np.float32)
        self.flat_values = np.zeros(size, np.float32)
        self.flat_advantages = np.zeros(size, np.float32)
        self.rows = np.zeros(size, ROW)
        views = {key: flat[: self.n_step_rows].reshape(*grid, *flat.shape[1:]) for key, flat in self.flat_observations.items()}
        self._observation_views = views if isinstance(self.observation_space, spaces.Dict) else views[PLAIN]
        self._views = {
            name: flat[: self.n_step_rows].reshape(*grid, *flat.shape[1:])
            for name, flat in {
                "actions": self.flat_actions,
                "action_masks": self.flat_masks,
                "log_probs": self.flat_log_probs,
                "values": self.flat_values,
                "advantages": self.flat_advantages,
            }.items()
        }
        self._views |= {name: np.zeros(grid, np.float32) for name in ("rewards", "returns", "episode_starts")}

    def reset(self) -> None:
        """Begin a rollout: put the carried rows in place and forget the others.

        Stores are reused, not allocated anew.
        """
        if self._unsettled:
            # The last rollout was broken off: what was pending went on without us.
            self.carried = None
            self.first_task = int(self.tasks.max()) + 1
            self._unsettled = False
        pending = len(self.carried.rows) if self.carried is not None else 0
        # One pending spawn for each level above the acting frame; where more rows wait, with room to spare, so
        # that the stores do not grow again at every rollout.
        capacity = self.n_envs * self.frames.shape[1]
        if self._capacity < max(capacity, pending):
            self._allocate(max(capacity, pending + pending // 2 if pending > capacity else 0))
        self.observations = self._observation_views
        for name, view in self._views.items():
            setattr(self, name, view)
        self.flat_masks.fill(True)
        self.tally.fill(0)
        self.pos, self.full, self.generator_ready = 0, False, False
        self.frames["row"] = NO_ROW
        self.frames["waiting"] = NO_ROW
        self.n_carried = self._place_carried()

    def _place_carried(self) -> int:
        """Copy the carried rows into the slots after those of the steps; returns how many there are."""
        if self.carried is None:
            return 0
        count, start = len(self.carried.rows), self.n_step_rows
        slots = slice(start, start + count)
        for key, flat in self.flat_observations.items():
            flat[slots] = self.carried.observations[key]
        self.flat_actions[slots] = self.carried.actions
        self.flat_masks[slots] = self.carried.action_masks
        self.flat_log_probs[slots] = self.carried.log_probs
        self.rows[slots] = self.carried.rows
        for name in LINKS:
            column = self.rows[name][slots]
            column[column >= 0] += start
        self.frames["row"], self.frames["waiting"] = (
            np.where(links >= 0, links + start, links) for links in (self.carried.latest, self.carried.waiting)
        )
        return count

    # -- collecting --------------------------------------------------------------------------------

    def restart(
        self,
        frame_id: npt.NDArray[np.int64],
        depth: npt.NDArray[np.int32],
        tasks: npt.NDArray[np.int64] | None = None,
        fresh: bool = True,
    ) -> None:
        """Take note that all episodes began anew, outside the rollout: nothing that was pending can complete.

        Args:
            frame_id: the frames that act next, (n_envs,).
            depth: their depths, (n_envs,).
            tasks: numbers of the root tasks being played, (n_envs,), where they are numbered.
            fresh: whether no step was taken in any of them yet.
        """
        if tasks is not None:
            self.tasks = tasks.copy()
            # Somebody else took part of the other rollouts: they are not what this policy would have done.
            self.first_task = int(tasks.min()) if fresh else int(tasks.max()) + 1
        self.episode += 1
        self.frames = _no_frames(self.n_envs, max(self.frames.shape[1], int(depth.max()) + 1))
        self.frames["frame_id"][np.arange(self.n_envs), depth] = frame_id
        self.acting[:] = depth
        self.carried = None

    def record(
        self,
        rewards: npt.NDArray[np.float32],
        dones: npt.NDArray[np.bool_],
        facts: FrameFacts,
        step_cost: float = 0.0,
        delegation_bonus: float = 0.0,
        bonus_form: str = "average",
        tasks: npt.NDArray[np.int64] | None = None,
        frame_price: float = 0.0,
        level_price: float = 0.0,
    ) -> None:
        """Enter one step's frames; call it before the step's `add`.

        Args:
            rewards: as the environment gave them, (n_envs,).
            dones: as the environment gave them, (n_envs,).
            facts: the frames after the step.
            step_cost: what each decision costs the frame that took it.
            delegation_bonus: paid once to a frame that ends, times the average success of its children, if it
                had any.
            bonus_form: "average", or "sum" for the number of its children that succeeded.
            tasks: numbers of the root tasks that were played, (n_envs,), where they are numbered: ascending,
                and as many rollouts of each as `repeats` says.
            frame_price: what a frame pays for each child that it opens.
            level_price: what it pays besides, times the child's depth.

        Raises:
            ProtocolError: The facts contradict those of the steps before.
        """
        depths = max(facts.returned.shape[1], int(facts.depth.max()) + 1)
        if depths > self.frames.shape[1]:
            wider = _no_frames(self.n_envs, depths)
            wider[:, : self.frames.shape[1]] = self.frames
            self.frames = wider
        self._unsettled = True
        if tasks is not None:
            self.tasks = tasks
        code, env, depth = record_step(
            self.pos,
            self.gamma,
            CREDITS[self.credit],
            step_cost,
            delegation_bonus,
            bonus_form == "sum",
            frame_price,
            level_price,
            rewards,
            dones,
            self.tasks,
            facts.frame_id,
            facts.depth,
            facts.n_returned,
            facts.returned,
            self.frames,
            self.acting,
            self.episode,
            self.rows,
            self.tally,
        )
        if code == LOST_FRAME:
            raise ProtocolError(
                f"environment {env}: frame {facts.frame_id[env]} acts at depth {facts.depth[env]}, but frame "
                f"{self.frames['frame_id'][env, depth]} at depth {depth} was never reported as returned. "
                "Each frame that ends must be listed in info['returned'] (or facts.returned) at the step at "
                "which it ends."
            )
        assert code == OK, "frames are as deep as the facts"

    def add_bonus(self, bonus: npt.NDArray[Any]) -> None:
        """Pay the frames that acted in the latest step something besides their rewards; call it after `record`, before the step's `add`.

        Args:
            bonus: for the decision of each environment, (n_envs,); received at once, so not discounted.
        """
        if bonus.shape != (self.n_envs,):
            raise ValueError(f"a bonus for each of {self.n_envs} environments has the shape ({self.n_envs},), got {bonus.shape}")
        self.rows["reward"][self.pos * self.n_envs : (self.pos + 1) * self.n_envs] += bonus

    # -- after the rollout -------------------------------------------------------------------------

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: npt.NDArray[np.bool_]) -> None:
        """Compute advantages and returns of the completed transitions, and set the pending ones aside.

        Args:
            last_values: value of the observations after the last step, n_envs elements.
            dones: unused: the ends of episodes are among the recorded facts.
        """
        if self.advantage == "rloo":
            index = self._leave_one_out()
        else:
            index = self._estimate(last_values.detach().cpu().numpy().astype(np.float32).reshape(-1))
        self.carried = self._set_aside(index)
        self._unsettled = False
        self.rewards[:] = self.rows["reward"][: self.n_step_rows].reshape(self.rewards.shape)
        self.returns[:] = self.advantages + self.values

    def _estimate(self, last_values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Generalised advantage estimation; returns the rows to carry."""
        n_rows = self.n_rows
        pending = np.empty(n_rows, np.int64)
        count = close_rollout(self.frames, self.acting, self.rows, pending)
        self._revalue_carried()
        frame_advantages(n_rows, self.n_step_rows, self.gae_lambda, self.rows, self.flat_values, last_values, self.flat_advantages)
        self.valid = self.rows["next"][:n_rows] != PENDING
        return np.sort(pending[:count])

    def _leave_one_out(self) -> npt.NDArray[np.int64]:
        """Advantages of the root tasks all of whose rollouts have ended; returns the rows of the others, to carry."""
        if self.repeats < 2:
            raise RuntimeError("leave-one-out needs root tasks that are repeated: set repeats (see RepeatTasks)")
        n_rows, steps = self.n_rows, self.n_step_rows
        self.flat_values.fill(0.0)
        frame_advantages(n_rows, steps, 1.0, self.rows, self.flat_values, np.zeros(self.n_envs, np.float32), self.flat_advantages)
        rows = self.rows[:n_rows]
        known = rows["task"] >= self.first_task
        self.valid = known & complete_groups(rows["task"], rows["env"], rows["episode"], rows["next"] == PENDING, self.repeats)
        # In their order of time: what was carried here came first.
        order = np.concatenate([np.arange(steps, n_rows), np.arange(steps)])
        used = order[self.valid[order]]
        whole, begins = np.zeros(n_rows, np.float64), np.zeros(n_rows, np.bool_)
        frame_returns(used, rows, self.flat_advantages, whole, begins)
        self.flat_advantages[used] = leave_one_out(rows[used], whole[used], begins[used])
        return cast(npt.NDArray[np.int64], order[(known & ~self.valid)[order]])

    def _revalue_carried(self) -> None:
        """Carried rows were valued by an older network: value those that completed with today's."""
        slots = np.arange(self.n_step_rows, self.n_rows)
        done = slots[self.rows["next"][slots] != PENDING]
        if not done.size:
            return
        if self.value_function is None:
            raise RuntimeError("set value_function (observations -> values) before computing advantages: carried rows need it")
        batch = {key: flat[done] for key, flat in self.flat_observations.items()}
        values = self.value_function(batch if isinstance(self.observation_space, spaces.Dict) else batch[PLAIN])
        self.flat_values[done] = np.asarray(values, np.float32).reshape(-1)

    def _set_aside(self, index: npt.NDArray[np.int64]) -> CarriedRows:
        """Copies of the rows at `index`, with links among them only."""
        place = np.full(self.n_rows, NO_ROW, np.int64)
        place[index] = np.arange(len(index))

        def moved(links: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            # Codes stay codes: they are below 0.
            return cast(npt.NDArray[np.int64], np.where(links >= 0, place[np.maximum(links, 0)], links))

        rows = self.rows[index]
        for name in LINKS:
            rows[name] = moved(rows[name])
        return CarriedRows(
            observations={key: flat[index] for key, flat in self.flat_observations.items()},
            actions=self.flat_actions[index],
            action_masks=self.flat_masks[index],
            log_probs=self.flat_log_probs[index],
            rows=rows,
            latest=moved(self.frames["row"]),
            waiting=moved(self.frames["waiting"]),
        )

    def depth_weights(self, depth: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Weights for rows at these depths: proportional to (rows there) ** -depth_weighting, with mean 1."""
        if self.depth_weighting == 0.0 or not depth.size:
            return np.ones(depth.size, np.float32)
        counts = np.bincount(depth).astype(np.float64)
        weights = counts[depth] ** -self.depth_weighting
        return cast(npt.NDArray[np.float32], (weights / weights.mean()).astype(np.float32))

    def _prepare(self) -> None:
        """Gather the completed transitions.

        From here on `values` and the like hold one entry for each of them, as the training loop's explained
        variance expects.
        """
        chosen = np.flatnonzero(self.valid)
        self.values = self.flat_values[chosen]
        self.log_probs = self.flat_log_probs[chosen]
        self.advantages = self.flat_advantages[chosen]
        self.returns = self.advantages + self.values
        training = self.advantages
        if self.normalize_advantage and training.size > 1:
            training = (training - training.mean()) / (training.std(ddof=1) + 1e-8)
        training = training * self.depth_weights(self.rows["depth"][chosen])
        # On the CPU these share memory with the stores; only the minibatches are copied.
        self._tensors = {key: th.as_tensor(flat, device=self.device) for key, flat in self.flat_observations.items()}
        self._columns = [
            th.as_tensor(array, device=self.device)
            for array in (
                self.flat_actions[chosen],
                self.values,
                self.log_probs,
                training.astype(np.float32),
                self.returns,
                self.flat_masks[chosen],
            )
        ]
        self._chosen = th.as_tensor(chosen, device=self.device)
        self.generator_ready = True

    def get(self, batch_size: int | None = None) -> Generator[Samples, None, None]:
        """One epoch of minibatches over the completed transitions, in random order.

        Their sizes differ by one row at most and are close to `batch_size` (None: everything at once); none
        has a single row unless there is only one transition.
        """
        if not self.full:
            raise RuntimeError("the rollout is not complete: add buffer_size steps first")
        if not self.generator_ready:
            self._prepare()
        n = len(self.values)
        batches = 1 if batch_size is None else max(1, min(round(n / batch_size), n // 2))
        for part in np.array_split(self.rng.permutation(n), batches):
            if part.size:
                yield self._batch(th.as_tensor(part, device=self.device))

    def _batch(self, index: th.Tensor) -> Samples:
        at = self._chosen[index]
        actions, values, log_probs, advantages, returns, masks = (column[index] for column in self._columns)
        if isinstance(self.observation_space, spaces.Dict):
            observations = {key: tensor[at] for key, tensor in self._tensors.items()}
            return MaskableDictRolloutBufferSamples(observations, actions, values, log_probs, advantages, returns, masks)
        return MaskableRolloutBufferSamples(self._tensors[PLAIN][at], actions, values, log_probs, advantages, returns, masks)

    # -- figures and state -------------------------------------------------------------------------

    def statistics(self) -> dict[str, float]:
        """What the rollout looked like: see the metrics of `RecursivePPO`."""
        depth = self.rows["depth"][: self.n_step_rows]
        figures = {
            "frames/carried": float(len(self.carried.rows)) if self.carried is not None else 0.0,
            "frames/transitions": float(np.count_nonzero(self.valid)),
            "frames/depth_mean": float(depth.mean()),
            "frames/depth_max": float(self.tally[2] - 1),
        }
        if self.tally[0]:
            figures["frames/child_success"] = float(self.tally[1] / self.tally[0])
        return figures

    def get_state(self) -> dict[str, Any]:
        """Everything that outlives a rollout, as independent copies: see `set_state`."""
        return {
            "frame_id": self.frames["frame_id"].copy(),
            "acting": self.acting.copy(),
            "episode": self.episode.copy(),
            "tasks": self.tasks.copy(),
            "first_task": self.first_task,
            "carried": None if self.carried is None else {**self.carried._asdict(), "rows": self.carried.rows.copy()},
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_state` returned.

        Raises:
            ValueError: It belongs to another number of environments.
        """
        frame_id = np.asarray(state["frame_id"])
        if frame_id.shape[0] != self.n_envs:
            raise ValueError(f"this state is of {frame_id.shape[0]} environments, the buffer has {self.n_envs}")
        self.frames = _no_frames(*frame_id.shape)
        self.frames["frame_id"] = frame_id
        self.acting[:] = state["acting"]
        self.episode[:] = state["episode"]
        self.tasks = np.array(state.get("tasks", np.zeros(self.n_envs)), np.int64)
        self.first_task = int(state.get("first_task", 0))
        carried = state["carried"]
        if carried is not None and "latest" not in carried:
            carried = _with_links(carried, frame_id.shape)
        self.carried = None if carried is None else CarriedRows(**carried)
        self.rng.bit_generator.state = state["rng"]
        self._unsettled = False
        self.reset()


def _no_frames(n_envs: int, depths: int) -> npt.NDArray[Any]:
    frames = np.empty((n_envs, depths), OPEN)
    frames["frame_id"] = NO_FRAME
    frames["row"] = NO_ROW
    frames["waiting"] = NO_ROW
    return frames


def _with_links(carried: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """What version 0.1.0 carried: pending spawns only, whose links followed from where they stood."""
    old = carried["rows"]
    rows = np.zeros(len(old), ROW)
    for name in old.dtype.names:
        rows[name] = old[name]
    env, depth = rows["env"], rows["depth"]
    latest = np.full(shape, NO_ROW, np.int64)
    latest[env, depth] = np.arange(len(rows))
    rows["parent"] = np.where(depth > 0, latest[env, np.maximum(depth - 1, 0)], NO_ROW)
    rows["link"] = NO_ROW
    return {**carried, "rows": rows, "latest": latest, "waiting": np.full(shape, NO_ROW, np.int64)}


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ValueError: It is not; the message names them.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


class FrameRolloutBuffer(FrameRolloutBufferMixin, MaskableRolloutBuffer):  # type: ignore[misc]
    """Frame-wise rollout buffer for plain observations; see `FrameRolloutBufferMixin`."""


class FrameDictRolloutBuffer(FrameRolloutBufferMixin, MaskableDictRolloutBuffer):  # type: ignore[misc]
    """Frame-wise rollout buffer for dictionary observations; see `FrameRolloutBufferMixin`."""
