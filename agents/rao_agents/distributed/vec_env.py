"""`RayVecEnv`: a `RecursiveVecEnv` whose environments live in processes of a Ray cluster, with the same numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rao_agents.alike import AlikeVecEnv
from rao_agents.distributed.cluster import WorkersLostError, connected, cpus, lost, why_lost
from rao_agents.distributed.shard import Call, Command, Reply, Reset, Shard, Snapshot, Step
from rao_envs.core.arguments import whole_number
from rao_envs.core.batch import check_actions, check_seed
from rao_envs.core.callstack import FrameFacts
from rao_envs.core.vector import RecursiveVectorEnv

SNAPSHOT_EVERY = 1000
"""Steps between two snapshots of the environments' states."""
RETRIES = 3
"""How often a command is given again after the loss of the worker that had it."""
HIRING_SECONDS = 120.0
"""How long to wait for a worker to start."""
CROWDING_SECONDS = 30.0
"""How long the replacement of a lost worker waits for a CPU of its own; then it shares one."""


class RayVecEnv(AlikeVecEnv):
    """What `RecursiveVecEnv` is, split over Ray actors: observations, rewards, infos, `facts` and seeds are the same to the bit.

    A worker that is lost, with its node or alone, is replaced. The new one goes on from the last snapshot of its environments, kept
    here, and does again what was done since; nobody notices but by the clock. Where the states are too large to be sent about (more
    than `rao_agents.distributed.shard.LARGEST_SNAPSHOT`), everything since the first reset is done again.

    `close()` ends the workers, and the connection if it was made here.

    Args:
        env_id: of a recursive family, or its `EnvSpec`.
        n_envs: how many environments.
        workers: processes that share them, each with a CPU of its own; at most as many as there are environments.
        address: of a cluster ("auto", "host:port"); None uses the one this process is connected to, or starts one on this machine.
        snapshot_every: steps between snapshots, at least 1.
        **kwargs: the environment's own keyword arguments.

    Raises:
        ValueError: a number out of range, more workers than the cluster has CPUs, an id that is not one of a recursive family, or a
            keyword argument with a wrong value.
        TypeError: a keyword argument the family does not have.
        rao_agents.distributed.cluster.RayNotInstalledError: Ray is not installed.
        rao_agents.distributed.cluster.WorkersLostError: no worker could be started.
        ConnectionError: no cluster at the address.
    """

    def __init__(
        self,
        env_id: Any,
        n_envs: int,
        workers: int,
        *,
        address: str | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        **kwargs: Any,
    ) -> None:
        whole_number("workers", workers, 1, n_envs)
        whole_number("snapshot_every", snapshot_every, 1)
        # One here, for what all have in common, and for errors before anything is started.
        probe = gym.make_vec(env_id, num_envs=1, vectorization_mode="vector_entry_point", **kwargs)
        if not isinstance(probe.unwrapped, RecursiveVectorEnv):
            raise ValueError(f"{env_id} is not a recursive environment of this suite, so it cannot run in a RayVecEnv")
        batch = probe.unwrapped.batch
        made: Any = probe.unwrapped.spec
        own = {name: value for name, value in made.kwargs.items() if name not in ("num_envs", "vectorization_mode")}
        self.spec = dataclasses.replace(made, kwargs=made.kwargs | {"num_envs": n_envs})
        self.spawn_actions, self.action_names = batch.spawn_actions, batch.action_names
        self.render_mode = None
        self.snapshot_every = snapshot_every
        self._begun = np.zeros(n_envs, np.bool_)
        self._actions: npt.NDArray[np.int64] = np.zeros(n_envs, np.int64)
        self._masks = np.zeros((n_envs, len(self.action_names)), np.bool_)
        super().__init__(n_envs, batch.observation_space, batch.action_space)
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as opening:
            ray = opening.enter_context(connected(address, workers))
            if workers > cpus(ray):
                raise ValueError(f"{workers} workers need as many CPUs, the cluster has {cpus(ray)}")
            parts = [part.tolist() for part in np.array_split(np.arange(n_envs), workers)]
            self._desks = [_Desk(ray, dataclasses.replace(made, kwargs=own), part) for part in parts]
            self._desk_of = [k for k, part in enumerate(parts) for _ in part]
            for desk in self._desks:
                opening.callback(desk.close)
            replies = self._all([Call("action_masks", (), {}, []) for _ in self._desks])
            self._open = opening.pop_all()
        self.facts = _joined([reply.facts for reply in replies])

    def reset(self) -> VecEnvObs:
        """See `RecursiveVecEnv.reset`."""
        seeds = [None if value is None else check_seed(value) for value in self._seeds]
        for i, value in enumerate(seeds):
            if value is None and not self._begun[i]:  # drawn here, so that a replaced worker gets the same
                seeds[i] = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        options = [dict(each) for each in self._options]
        replies = self._all([Reset([seeds[i] for i in desk.rows], [options[i] for i in desk.rows]) for desk in self._desks])
        self._begun[:] = True
        self._reset_seeds()
        self._reset_options()
        self.facts = _joined([reply.facts for reply in replies])
        self.reset_infos = [info for reply in replies for info in reply.result[1]]
        return _stacked([reply.result[0] for reply in replies])

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """See `RecursiveVecEnv.step_async`."""
        if not self._begun.all():
            raise ResetNeeded("call reset() before the first step")
        self._actions = check_actions(actions, self.num_envs, len(self.action_names))
        for desk in self._desks:
            desk.send(Step(self._actions[desk.rows], desk.snapshot_due(self.snapshot_every)))

    def step_wait(self) -> VecEnvStepReturn:
        """See `RecursiveVecEnv.step_wait`."""
        replies = self._answers(self._desks)
        observations, rewards, dones, infos, begun = zip(*(reply.result for reply in replies), strict=True)
        self.facts = _joined([reply.facts for reply in replies])
        for desk, first in zip(self._desks, begun, strict=True):
            for i, info in first.items():
                self.reset_infos[desk.rows[i]] = info
        return _stacked(observations), np.concatenate(rewards), np.concatenate(dones), [info for part in infos for info in part]

    def close(self) -> None:
        """End the workers, and the connection if it was made here."""
        self._open.close()

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed now, bool (n, n_actions)."""
        return self._masks.copy()

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """See `RecursiveVecEnv.env_method`."""
        chosen = [int(i) % self.num_envs for i in self._get_indices(indices)]
        if method_name == "action_masks":
            return [self._masks[i].copy() for i in chosen]
        parts: list[list[int]] = [[] for _ in self._desks]
        for i in chosen:
            parts[self._desk_of[i]].append(i - self._desks[self._desk_of[i]].rows[0])
        # A state put in place makes all environments look anew at their frames, as it does in one batch.
        asked = [k for k, part in enumerate(parts) if part or method_name == "set_state"]
        desks = [self._desks[k] for k in asked]
        replies = self._all([Call(method_name, method_args, method_kwargs, parts[k]) for k in asked], desks)
        if method_name in ("reset", "set_state"):
            self._begun[chosen] = True
            self._update_facts(desks, replies)
        results = {k: iter(reply.result) for k, reply in zip(asked, replies, strict=True)}
        return [next(results[self._desk_of[i]]) for i in chosen]

    def _update_facts(self, desks: list[_Desk], replies: list[Reply]) -> None:
        columns = {name: column.copy() for name, column in self.facts._asdict().items()}
        for desk, reply in zip(desks, replies, strict=True):
            for name, part in reply.facts._asdict().items():
                columns[name][desk.rows] = part
        self.facts = FrameFacts(**columns)

    def _all(self, commands: Sequence[Command], desks: list[_Desk] | None = None) -> list[Reply]:
        """Give each of `desks` (all by default) its command, and wait for all answers."""
        asked = self._desks if desks is None else desks
        for desk, command in zip(asked, commands, strict=True):
            desk.send(command)
        return self._answers(asked)

    def _answers(self, desks: list[_Desk]) -> list[Reply]:
        answers = [desk.answer() for desk in desks]  # of all, before one's refusal is passed on: the next command finds them idle
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        replies = [answer for answer in answers if isinstance(answer, Reply)]
        for desk, reply in zip(desks, replies, strict=True):
            self._masks[desk.rows] = reply.masks
        return replies


class _Desk:
    """A worker, as the driver sees it, and what replaces it."""

    def __init__(self, ray: Any, spec: Any, rows: list[int]) -> None:
        self.ray, self.rows = ray, rows
        self.arguments = (spec, len(rows))
        self.shard_class = ray.remote(max_restarts=0)(Shard)
        self.snapshot: Snapshot | None = None
        self.since: list[Command] = []  # what was done since, the command under way included
        self.under_way: Command | None = None
        self.too_large = False  # for snapshots
        self.started = False
        self.actor = self.shard_class.options(num_cpus=1).remote(*self.arguments)
        self.reference: Any = None

    def snapshot_due(self, every: int) -> bool:
        return not self.too_large and len(self.since) >= every - 1

    def send(self, command: Command) -> None:
        self.under_way = command
        if not isinstance(command, Call) or command.changes:
            self.since.append(command)
        self.reference = self.actor.obey.remote(command)

    def answer(self) -> Reply | Exception:
        """The answer to the latest command, or why it was refused."""
        tries = 0
        while True:
            try:
                reply = self._take()
                break
            except self.ray.exceptions.RayTaskError as error:
                return error.cause if isinstance(error.cause, Exception) else error
            except lost(self.ray) as error:
                tries += 1
                reason = why_lost(error)
                if tries > RETRIES:
                    raise WorkersLostError(f"a worker with {len(self.rows)} environments was lost {tries} times: {reason}") from error
                self._replace()
        if reply.snapshot is not None:
            self.snapshot, self.since = reply.snapshot, []
        elif isinstance(self.under_way, Step) and self.under_way.snapshot:
            self.too_large = True
        return reply

    def _take(self) -> Reply:
        if not self.started:
            self._await_start(HIRING_SECONDS)
        reply: Reply = pickle.loads(self.ray.get(self.reference))  # of a worker that we started, with what it was told by us
        self.started = True
        return reply

    def _await_start(self, seconds: float) -> None:
        ready, _ = self.ray.wait([self.reference], timeout=seconds)
        if not ready:
            raise WorkersLostError(f"no worker has started in {seconds:.0f} seconds: has the cluster a free CPU?")

    def _replace(self) -> None:
        """Start another worker and have it do all again that the lost one had done since the snapshot, and the command under way."""
        self.close()
        commands = list(self.since)
        if isinstance(self.under_way, Call) and not self.under_way.changes:
            commands.append(self.under_way)
        for share, patience in ((1, CROWDING_SECONDS), (0, HIRING_SECONDS)):
            self.actor = self.shard_class.options(num_cpus=share).remote(*self.arguments)
            starting = self.actor.__ray_ready__.remote()
            if self.ray.wait([starting], timeout=patience)[0]:
                break
            self.close()
        else:
            raise WorkersLostError(f"no worker has started in {HIRING_SECONDS:.0f} seconds in place of one that was lost")
        self.reference = self.actor.restore.remote(self.snapshot, commands)

    def close(self) -> None:
        if self.ray.is_initialized():  # else it ended with the connection
            self.ray.kill(self.actor)


def _joined(parts: Sequence[FrameFacts]) -> FrameFacts:
    return FrameFacts(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _stacked(parts: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
