"""Sub-trees of recursion trees on a Ray cluster's workers, batched inside each (MISSION A8)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt

from rao_agents.distributed.cluster import WorkersLostError, connected, cpus, import_ray, lost, why_lost
from rao_agents.runners.frame_actor import FrameActor, Packed
from rao_agents.runners.portable import packed, portable, sendable
from rao_agents.runners.run import Plan, Run
from rao_agents.runners.solution import Solution
from rao_agents.runners.solving import SLOTS, Runner
from rao_agents.runners.wavefront import Wavefront
from rao_envs.core.arguments import whole_number
from rao_envs.core.forest import Ended, Forest

RETRIES = 3
"""How often a sub-tree is begun again after the loss of the worker it was on."""
HIRING_SECONDS = 120.0
"""How long to wait for a worker to start while there is no other."""
POLL = 0.05
"""Seconds between two looks at whether to stop."""


class Packet(NamedTuple):
    """A sub-tree on its way to a worker."""

    tree: int
    seed: int
    slot: int  # at home, where it is waited for
    state: dict[str, npt.NDArray[Any]]
    steps: npt.NDArray[np.int64]
    memory: Packed
    lost: int = 0  # workers that it has lost


class Answer(NamedTuple):
    """How a sub-tree ended."""

    state: dict[str, npt.NDArray[Any]]
    ended: Ended
    memory: Packed


@dataclass(eq=False)
class Desk:
    """A worker, as the driver sees it."""

    actor: Any
    reference: Any  # what it is asked for: answers, or at first to get ready; None when it is idle
    packets: list[Packet] = field(default_factory=list)  # that it runs, side by side
    known: set[int] = field(default_factory=set)  # trees whose settled arrays it has


class Worker:
    """Runs sub-trees to their ends; a Ray actor."""

    def prepare(self, sent: bytes, slots: int) -> None:
        """Get ready for a plan's trees."""
        import torch

        torch.set_num_threads(1)
        plan: Plan = cloudpickle.loads(sent)
        batch = plan.source.batch(slots)
        self.forest = Forest(batch)
        self.actor = FrameActor(plan.agent, batch, deterministic=plan.deterministic, rows=plan.rows)
        self.wavefront = Wavefront(self.forest, self.actor)
        self.settled: dict[int, dict[str, npt.NDArray[Any]]] = {}

    def run(self, packets: list[Packet], settled: dict[int, Any], under_way: frozenset[int]) -> list[Answer]:
        """Run `packets` side by side.

        Args:
            packets: sub-trees.
            settled: by tree, references to what is the same in all of a tree that has not been here before.
            under_way: trees of which more may come; what is kept of others is dropped.
        """
        ray = import_ray()
        self.settled = {tree: arrays for tree, arrays in self.settled.items() if tree in under_way}
        self.settled |= {tree: ray.get(reference) for tree, reference in settled.items()}
        at: dict[int, Packet] = {}  # by slot
        waiting = deque(packets)
        answers: dict[int, Answer] = {}
        while waiting or at:
            while waiting and self.forest.free and len(at) < max(1, self.forest.n // 2):
                packet = waiting.popleft()
                slot = self.forest.adopt(packet.tree, packet.state, packet.steps, self.settled[packet.tree])
                self.wavefront.enter(slot, packet.seed)
                self.actor.unpack(slot, packet.memory)
                at[slot] = packet
            try:
                change = self.wavefront.wave()
            except Exception as error:
                raise sendable(error) from error
            for ended in change.ended:
                packet = at.pop(ended.slot)
                answers[packet.slot] = Answer(self.forest.outcome(ended.slot), ended, self.actor.legacy(ended.slot))
        return [answers[packet.slot] for packet in packets]


class OnRay(Runner):
    """Sub-trees, and whole trees where there are many, on the workers of a Ray cluster, batched inside each.

    This process runs a tree's top until it has enough frames that do not depend on each other; those, with all below them, are sent
    away. A worker that is lost is replaced and its sub-trees are begun again, with the same numbers.

    Starting workers takes seconds. They stay for as long as the runner is open: `with OnRay(workers=2) as runner: ...`. One runner solves
    one thing at a time.

    Args:
        workers: processes; None takes the cluster's CPUs.
        address: of a cluster ("auto", "host:port"); None uses the one this process is connected to, or starts one on this machine.
        spread: sub-trees per worker that are looked for before any is sent.
        slots: frames side by side in every process.

    Raises:
        ValueError: a number that is no integer of at least 1.
    """

    name = "ray"

    def __init__(self, workers: int | None = None, *, address: str | None = None, spread: int = 4, slots: int = SLOTS) -> None:
        self.workers = None if workers is None else whole_number("workers", workers, 1)
        self.address = address
        self.spread = whole_number("spread", spread, 1)
        self.slots = whole_number("slots", slots, 1)
        self._crew: Crew | None = None
        self._open = contextlib.ExitStack()
        self._entered = 0  # `with` blocks of this runner inside each other
        self._solving = threading.Lock()

    def __enter__(self) -> OnRay:
        if self._crew is None:
            self._crew = self._open.enter_context(self._hired())
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._crew = None
            self._open.close()

    def run(self, plan: Plan) -> list[Solution]:
        """See `Runner.run`.

        Raises:
            rao_agents.distributed.cluster.RayNotInstalledError: Ray is not installed.
            ConnectionError: no cluster at the address.
            ValueError: more workers than the cluster has CPUs, or a model that is not on the CPU.
            TypeError: an agent or an environment that cannot be pickled.
            rao_agents.distributed.cluster.WorkersLostError: the same sub-tree has lost several workers, or none could be started.
            RuntimeError: this runner is solving already.
        """
        if not self._solving.acquire(blocking=False):
            raise RuntimeError("this runner is solving already, in another thread or for the agent that asks: give each its own")
        try:
            with contextlib.nullcontext(self._crew) if self._crew is not None else self._hired() as crew:
                run = _Run(crew, plan, self.spread, self.slots)
                try:
                    return run.all()
                finally:
                    run.close()
        finally:
            self._solving.release()

    @contextlib.contextmanager
    def _hired(self) -> Iterator[Crew]:
        with connected(self.address, self.workers) as ray:
            available = cpus(ray)
            workers = available if self.workers is None else self.workers
            if not 1 <= workers <= available:
                raise ValueError(f"{workers} workers need as many CPUs, the cluster has {available}")
            crew = Crew(ray, workers)
            try:
                yield crew
            finally:
                crew.close()


class Crew:
    """The workers' processes."""

    def __init__(self, ray: Any, workers: int) -> None:
        self.ray = ray
        self.worker_class = ray.remote(num_cpus=1, max_restarts=0)(Worker)
        self.actors = [self.worker_class.remote() for _ in range(workers)]

    def replace(self, actor: Any) -> Any:
        """End this one, which may be lost already, and hire another, which is returned."""
        self.ray.kill(actor)
        new = self.worker_class.remote()
        self.actors[self.actors.index(actor)] = new
        return new

    def close(self) -> None:
        """Leave nothing running."""
        if self.ray.is_initialized():  # else they ended with the connection
            for actor in self.actors:
                self.ray.kill(actor)


class _Run(Run):
    """One call of `OnRay.run`: the driver."""

    def __init__(self, crew: Crew, plan: Plan, spread: int, slots: int) -> None:
        super().__init__(plan, slots, slots // 2)
        self.crew, self.ray, self.slots = crew, crew.ray, slots
        self.enough = len(crew.actors) * spread
        self.packets: deque[Packet] = deque()  # lent, and with no worker yet
        self.settled: dict[int, Any] = {}  # by tree, in the cluster's store
        # As bytes: Ray's own way would make the agent's and the environment's arrays read-only.
        sent = plan._replace(agent=portable(plan.agent), tasks=[], should_stop=bool, report=None)
        self.sent = self.ray.put(packed(sent))
        self.desks = [self._desk(actor) for actor in crew.actors]
        self.stillborn = 0  # workers that were lost before they were ready, since one was
        self.heard = time.perf_counter()  # when a worker said something

    def advance(self) -> None:
        """Send what can be sent, else act; take back what is done."""
        acting = self.forest.acting()
        out = len(self.packets) + sum(len(desk.packets) for desk in self.desks)
        if len(acting) and len(acting) + out >= self.enough:
            self._lend(acting)
        elif len(acting):
            self.settle(self.wavefront.wave())
        self._send()
        self._collect(0.0 if len(self.forest.acting()) else POLL)

    def give_up(self, trees: list[int], status: str) -> None:
        """See `Run.give_up`; nothing of these trees goes on in any worker."""
        gone = set(trees)
        self.packets = deque(packet for packet in self.packets if packet.tree not in gone)
        for desk in self.desks:
            if gone & {packet.tree for packet in desk.packets}:
                # What runs cannot be told to stop half-way: the others' sub-trees are begun again.
                self.packets.extendleft(packet for packet in desk.packets if packet.tree not in gone)
                self._replace(desk)
        super().give_up(trees, status)

    def forget(self, tree: int) -> None:
        """See `Run.forget`."""
        super().forget(tree)
        self.settled.pop(tree, None)

    def close(self) -> None:
        """Leave no sub-tree running, whatever has happened."""
        for desk in self.desks:
            if desk.packets:
                self.crew.replace(desk.actor)

    # -- sub-trees -----------------------------------------------------------------------------------------------------------------

    def _lend(self, slots: npt.NDArray[np.int64]) -> None:
        for slot in slots.tolist():
            tree = int(self.forest.tree[slot])
            if tree not in self.settled:
                self.settled[tree] = self.ray.put(self.forest.settled(slot))
            memory = self.actor.pack(slot)
            state, steps = self.forest.lend(slot)
            self.packets.append(Packet(tree, self.plan.tasks[tree].seed, slot, state, steps, memory))

    def _send(self) -> None:
        """Give every idle worker its share of what waits."""
        idle = [desk for desk in self.desks if desk.reference is None]
        for k, desk in enumerate(idle):
            # Half of an even share at a time: sub-trees differ in size, and who is done early takes more.
            desk.packets = [self.packets.popleft() for _ in range(-(-len(self.packets) // (2 * (len(idle) - k))))]
            if desk.packets:
                new = {packet.tree for packet in desk.packets} - desk.known
                desk.known = (desk.known & self.settled.keys()) | new
                desk.reference = desk.actor.run.remote(desk.packets, {tree: self.settled[tree] for tree in new}, frozenset(desk.known))

    def _collect(self, patience: float) -> None:
        """Take back what has ended; wait `patience` seconds at most for the first."""
        by_reference = {desk.reference: desk for desk in self.desks if desk.reference is not None}
        if not by_reference:
            return
        ready, _ = self.ray.wait(list(by_reference), num_returns=1, timeout=patience)
        for reference in ready:
            self.heard = time.perf_counter()
            desk = by_reference[reference]
            try:
                answers = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from error
            except lost(self.ray) as error:
                self._try_again(desk, error)
                continue
            self.stillborn = 0
            packets, desk.packets, desk.reference = desk.packets, [], None
            for packet, answer in zip(packets, answers or (), strict=True):
                self.actor.unpack(packet.slot, answer.memory)
                change = self.forest.take(packet.slot, answer.state, answer.ended)
                self.actor.follow(change)
                self.settle(change)
        if all(desk.reference is not None and not desk.packets for desk in self.desks) and self._silence() > HIRING_SECONDS:
            raise WorkersLostError(
                f"no worker has started in {HIRING_SECONDS:.0f} seconds: has the cluster a free CPU, and rao_agents installed?"
            )

    # -- workers -------------------------------------------------------------------------------------------------------------------

    def _silence(self) -> float:
        return time.perf_counter() - self.heard

    def _desk(self, actor: Any) -> Desk:
        return Desk(actor, actor.prepare.remote(self.sent, self.slots))

    def _replace(self, desk: Desk) -> None:
        self.heard = time.perf_counter()  # the new one has its time to start
        self.desks[self.desks.index(desk)] = self._desk(self.crew.replace(desk.actor))

    def _try_again(self, desk: Desk, error: Exception) -> None:
        """Replace a lost worker, if the cluster has room for one; what it ran goes to whoever is free first."""
        if desk.packets:
            again = [packet._replace(lost=packet.lost + 1) for packet in desk.packets]
            if (most := max(packet.lost for packet in again)) > RETRIES:
                raise WorkersLostError(f"the same sub-tree has lost {most} workers: {why_lost(error)}") from error
            self.packets.extendleft(reversed(again))
        else:
            self.stillborn += 1
            if self.stillborn > RETRIES * len(self.desks):
                raise WorkersLostError(f"no worker can be started: {why_lost(error)}") from error
        self._replace(desk)
