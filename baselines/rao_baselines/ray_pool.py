"""Training runs on a Ray cluster: `rao_baselines.pool.run_all` for more than one machine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rao_agents.distributed.cluster import connected, cpus, lost, why_lost
from rao_baselines.errors import UserError
from rao_baselines.pool import PATIENCE, Event
from rao_baselines.ray_run import News, RayRun, read_files, write_files
from rao_baselines.spec import TrainSpec

RETRIES = 3
"""How often a run goes on elsewhere after the loss of the worker it was on."""
LISTEN = 1.0
"""Seconds that a worker waits for news before it says that there is none."""
POLL = 0.2
"""Seconds between two looks at whether to stop."""


class RayEngine:
    """Runs as tasks of a Ray cluster, on whichever node has a CPU free; an `Engine`.

    A run's files come back as bytes: checkpoints when they are written, everything at its end. So workers need no shared disk, and
    after the loss of a worker or a node its run goes on elsewhere from its latest checkpoint, to the same numbers.

    Args:
        address: of a cluster ("auto", "host:port"); None uses the one this process is connected to, or starts one on this machine.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def __call__(
        self,
        specs: Sequence[TrainSpec],
        jobs: int | None,
        on_event: Callable[[Event], Any],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, list[int]]:
        """See `rao_baselines.pool.run_all`; `jobs` None takes the cluster's CPUs.

        Raises:
            rao_agents.distributed.cluster.RayNotInstalledError: Ray is not installed.
            ConnectionError: no cluster at the address.
            UserError: a run that wants more threads than any node has CPUs.
        """
        with connected(self.address) as ray:
            largest = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
            for spec in specs:
                if spec.threads > largest:
                    raise UserError(f"a run with threads={spec.threads} needs a node with as many CPUs; the largest has {largest}")
            return _Sweep(ray, specs, cpus(ray) if jobs is None else jobs, on_event).run(should_stop)


class _Sweep:
    """One call of the engine: the driver."""

    def __init__(self, ray: Any, specs: Sequence[TrainSpec], jobs: int, on_event: Callable[[Event], Any]) -> None:
        self.ray, self.specs, self.jobs, self.on_event = ray, specs, jobs, on_event
        self.run_class = ray.remote(max_restarts=0, max_task_retries=0)(RayRun)
        self.waiting = deque(range(len(specs)))
        self.actors: dict[int, Any] = {}  # by run
        self.asked: dict[Any, int] = {}  # references to news, and whose
        self.begun: set[int] = set()  # somewhere, at some time
        self.heard: set[int] = set()  # from where it is now
        self.tries = [0] * len(specs)
        self.outcome: dict[str, list[int]] = {"done": [], "failed": [], "stopped": [], "waiting": []}

    def run(self, should_stop: Callable[[], bool]) -> dict[str, list[int]]:
        deadline: float | None = None
        try:
            while self.actors or (self.waiting and deadline is None):
                while self.waiting and len(self.actors) < self.jobs and deadline is None:
                    self._start(self.waiting.popleft())
                ready, _ = self.ray.wait(list(self.asked), num_returns=1, timeout=POLL)
                for reference in ready:
                    self._hear(self.asked.pop(reference), reference)
                if deadline is None and should_stop():
                    deadline = time.monotonic() + PATIENCE
                    for index in list(self.actors):
                        self._ask_to_stop(index)
                if deadline is not None and time.monotonic() > deadline:
                    break
        finally:
            for actor in self.actors.values():
                self.ray.kill(actor)
            self.outcome["stopped"] += self.actors
        for index in self.waiting:  # one that was lost, and had no time to begin again, has its files all the same
            self.outcome["stopped" if index in self.begun else "waiting"].append(index)
        return self.outcome

    def _start(self, index: int) -> None:
        spec = self.specs[index]
        self.actors[index] = self.run_class.options(num_cpus=spec.threads).remote(spec, read_files(spec.folder()))
        self._listen(index)

    def _listen(self, index: int) -> None:
        self.asked[self.actors[index].news.remote(LISTEN)] = index

    def _ask_to_stop(self, index: int) -> None:
        if index in self.heard:
            self.actors[index].stop.remote()
        else:  # it waits for a CPU, and need not begin
            self._let_go(index)
            self.waiting.append(index)

    def _let_go(self, index: int) -> None:
        self.ray.kill(self.actors.pop(index))
        self.heard.discard(index)
        self.asked = {reference: run for reference, run in self.asked.items() if run != index}

    def _hear(self, index: int, reference: Any) -> None:
        try:
            news: News = self.ray.get(reference)
        except lost(self.ray) as error:
            self._lost(index, why_lost(error))
            return
        except self.ray.exceptions.RayTaskError as error:  # of the worker, a full disk say, not of the run
            self._end(Event(index, "failed", {"code": 1, "error": str(error.cause)}))
            return
        self.heard.add(index)
        if news.files is not None:
            write_files(self.specs[index].folder(), news.files)
        for event in news.events:
            event = event._replace(run=index)
            if event.kind == "failed" and event.data["code"] < 0:
                self._lost(index, f"it was ended by signal {-event.data['code']}")
                return
            if event.kind in self.outcome:
                self._end(event)
                return
            if self._tell(event) and index in self.actors:
                self._ask_to_stop(index)
        self._listen(index)

    def _tell(self, event: Event) -> bool:
        """Pass it on; a run that begins again elsewhere began before. Whether the answer is to stop the run."""
        if event.kind == "start" and event.run in self.begun:
            return False
        self.begun.add(event.run)
        return self.on_event(event) is True

    def _end(self, event: Event) -> None:
        self._let_go(event.run)
        self.outcome[event.kind].append(event.run)
        if event.run not in self.begun:  # whoever listens knows of an end only after a start
            self._tell(Event(event.run, "start", {}))
        self._tell(event)

    def _lost(self, index: int, reason: str) -> None:
        self.tries[index] += 1
        if self.tries[index] > RETRIES:
            self._end(Event(index, "failed", {"code": 1, "error": f"lost {self.tries[index]} times; the last time: {reason}"}))
            return
        self._let_go(index)
        self.waiting.appendleft(index)
