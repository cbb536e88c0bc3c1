"""One training run on a worker of a Ray cluster, in a folder and a process of its own; its files travel as bytes."""

from __future__ import annotations

import queue
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rao_baselines.pool import Event, RunProcess
from rao_baselines.runs import RunFolder, write_bytes_atomically
from rao_baselines.spec import TrainSpec

Files = Mapping[str, bytes]
"""Contents by path inside a run's folder."""

GATHERING = 0.2
"""Seconds for which news is collected before it is sent."""


class News(NamedTuple):
    """What has happened to a run."""

    events: list[Event]
    files: Files | None  # of the run's folder, where there is a new checkpoint or the run has ended


class RayRun:
    """A run that begins, or goes on from what `files` holds; a Ray actor.

    What trains is a process like those of `rao_baselines.pool.run_all`, so that the numbers are the same. It ends, too, when this one
    does, however that may be.
    """

    def __init__(self, spec: TrainSpec, files: Files) -> None:
        self.folder = RunFolder(Path(tempfile.mkdtemp(prefix="rao-run-")))
        write_files(self.folder.path, files)
        self.seen = self._checkpoint()
        self.events: queue.Queue[Event] = queue.Queue()
        self.process = RunProcess(0, replace(spec, out=str(self.folder.path)), self.events)

    def news(self, patience: float) -> News:
        """What has happened since the latest call; waits `patience` seconds at most for something."""
        events: list[Event] = []
        try:
            events.append(self.events.get(timeout=patience))
            time.sleep(GATHERING)
            while True:
                events.append(self.events.get_nowait())
        except queue.Empty:
            pass
        if any(event.kind in ("done", "failed", "stopped") for event in events):
            self.process.close()
            files = read_files(self.folder.path)
            shutil.rmtree(self.folder.path, ignore_errors=True)
            return News(events, files)
        return News(events, self._new_checkpoint())

    def stop(self) -> None:
        """Let it save and end."""
        self.process.ask_to_stop()

    def _checkpoint(self) -> tuple[int, int] | None:
        """What tells one checkpoint from the next."""
        try:
            found = self.folder.checkpoint.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _new_checkpoint(self) -> Files | None:
        before = self._checkpoint()
        if before is None or before == self.seen:
            return None
        try:
            files = read_files(self.folder.path)
        except FileNotFoundError:  # the run is tidying up
            return None
        if self._checkpoint() != before:  # written meanwhile: what was read may not belong together
            return None
        self.seen = before
        return files


def read_files(folder: Path) -> dict[str, bytes]:
    """A folder's files, without those that are being written; empty if there is no folder."""
    found = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.as_posix(): (folder / path).read_bytes() for path in found if not path.name.startswith(".")}


def write_files(folder: Path, files: Files) -> None:
    """Make `folder` hold these files, each written in one step, and no others.

    What the others count on comes first: until the last one is there, the folder is that of an earlier moment of the same run.

    Raises:
        ValueError: a path that leads out of the folder.
    """
    run = RunFolder(folder)
    last = [path.name for path in (run.config, run.curve, run.checkpoint, run.model, run.result)]
    names = sorted(files, key=lambda name: last.index(name) if name in last else -1)
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} is no path inside a run's folder")
        write_bytes_atomically(folder / name, files[name])
    for name in read_files(folder).keys() - files.keys():
        (folder / name).unlink(missing_ok=True)
