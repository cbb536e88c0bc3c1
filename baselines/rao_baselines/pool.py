"""Training runs as parallel processes of their own: one that fails or is stopped takes nothing else with it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from rao_baselines.spec import TrainSpec

PATIENCE = 120.0
"""Seconds that a stopping run gets to save, before it is ended."""
LOCAL_JOBS = 2
"""Processes at a time on this machine, unless something else is asked for."""


class Event(NamedTuple):
    """News of one run; `kind` is "start", "progress", "done", "failed" or "stopped"; `data` its message."""

    run: int  # position in the list of specs
    kind: str
    data: dict[str, Any]


class Engine(Protocol):
    """What trains many runs: `run_all` on this machine, or `rao_baselines.ray_pool.RayEngine`."""

    def __call__(
        self,
        specs: Sequence[TrainSpec],
        jobs: int | None,
        on_event: Callable[[Event], Any],
        should_stop: Callable[[], bool] = ...,
    ) -> dict[str, list[int]]:
        """See `run_all`."""


class RunProcess:
    """One process and the thread that reads what it says."""

    def __init__(self, index: int, spec: TrainSpec, events: queue.Queue[Event]) -> None:
        self.index, self.events = index, events
        self.last: dict[str, Any] = {}
        environment = os.environ | {"OMP_NUM_THREADS": str(spec.threads), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rao_baselines.run_one", "--attached"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # Ctrl-C in the terminal reaches only us: we pass on one request, and two would mean "at once".
            start_new_session=True,
        )
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(asdict(spec)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already; its exit code tells
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._read_errors)]
        for thread in self.threads:
            thread.start()
        events.put(Event(index, "start", {}))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.last = json.loads(line)
            except ValueError:
                continue  # a library printed something
            if "steps" in self.last:
                self.events.put(Event(self.index, "progress", self.last))
        code = self.process.wait()
        self.threads[1].join(5)
        if code == 0:
            self.events.put(Event(self.index, "done", self.last))
        elif code == 130:
            self.events.put(Event(self.index, "stopped", self.last))
        else:
            reason = self.last.get("error") or "\n".join(self.errors[-12:]) or "no message"
            self.events.put(Event(self.index, "failed", {"code": code, "error": reason}))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.rstrip())
            del self.errors[:-100]

    def close(self) -> None:
        """Let go of what is left of a process that has ended."""
        for thread in self.threads:
            thread.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def ask_to_stop(self) -> None:
        """Let it save and end: the end of its input is the request."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()


def run_all(
    specs: Sequence[TrainSpec],
    jobs: int | None,
    on_event: Callable[[Event], Any],
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, list[int]]:
    """Run every spec, `jobs` at a time, resuming what was begun before.

    Args:
        specs: what to train, each with a folder of its own.
        jobs: processes at a time; None for `LOCAL_JOBS`.
        on_event: told everything that happens, in this thread; True in answer to progress stops that run after it has saved.
        should_stop: asked often; True ends the running ones after they have saved and starts no more.

    Returns:
        Indices by outcome: "done", "failed", "stopped", "waiting" (never started).
    """
    jobs = LOCAL_JOBS if jobs is None else jobs
    events: queue.Queue[Event] = queue.Queue()
    waiting = list(range(len(specs)))
    running: dict[int, RunProcess] = {}
    outcome: dict[str, list[int]] = {"done": [], "failed": [], "stopped": [], "waiting": []}
    deadline: float | None = None
    try:
        while running or (waiting and deadline is None):
            while waiting and len(running) < jobs and deadline is None:
                index = waiting.pop(0)
                running[index] = RunProcess(index, specs[index], events)
            try:
                event = events.get(timeout=0.2)
            except queue.Empty:
                event = None
            if event is not None:
                if event.kind in outcome:
                    outcome[event.kind].append(event.run)
                    running.pop(event.run).close()
                if on_event(event) is True and event.run in running:
                    running[event.run].ask_to_stop()
            if deadline is None and should_stop():
                deadline = time.monotonic() + PATIENCE
                for worker in running.values():
                    worker.ask_to_stop()
            if deadline is not None and time.monotonic() > deadline:
                break
    finally:
        for worker in running.values():
            worker.process.kill()
            worker.process.wait()
            worker.close()
            outcome["stopped"].append(worker.index)
    outcome["waiting"] = waiting
    return outcome


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C (or SIGTERM) was pressed since; a second one raises KeyboardInterrupt."""
    asked = False

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
