"""Distillation in a process of its own, which never blocks the training (MISSION B10).

Jobs and answers are files of plain arrays in a temporary folder, as large as they may be; the pipe carries their names only. The other
process builds distiller and policy anew from their plain descriptions: nothing is pickled.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.distillers.base import Distiller, NotEnoughError
from rao_agents.distillation.episodes import Episode
from rao_agents.distillation.files import read_state, write_state
from rao_agents.distillation.frozen import make_policy, policy_spec
from rao_agents.distillation.injectors import from_arrays, to_arrays
from rao_agents.distillation.knowledge import Knowledge

NICENESS = 5
"""The training comes first where processors are scarce."""


class DistillationWorker:
    """Another process that distils, one job at a time.

    It is started at the first job and ends with `close`, or by itself when this process is gone.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._answer: Path | None = None
        self._jobs = 0
        self._finalizer: Any = None

    @property
    def busy(self) -> bool:
        """Whether a job is under way, or its result not fetched yet."""
        return self._answer is not None

    def submit(self, distiller: Distiller, policy: BasePolicy, episodes: Sequence[Episode], previous: Knowledge | None, seed: int) -> None:
        """Begin a job; `result` has its outcome some time later.

        Args:
            distiller: as it is now; its class must be importable by name.
            policy: likewise; a copy is sent.
            episodes: what it distils from.
            previous: the last knowledge.
            seed: of the distillation.

        Raises:
            RuntimeError: a job is under way.
            ValueError: the distiller's class cannot be imported elsewhere.
        """
        if self.busy:
            raise RuntimeError("a distillation is under way already")
        cls = type(distiller)
        if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
            raise ValueError(f"{cls.__name__} must live in an importable module to be used in another process, not in {cls.__module__}")
        process, folder = self._started()
        self._jobs += 1
        job = folder / f"job-{self._jobs}.zip"
        write_state(
            job,
            {
                "distiller": [cls.__module__, cls.__qualname__],
                "config": distiller.config(),
                "state": distiller.state(),
                "policy": policy_spec(policy),
                "weights": to_arrays(policy.state_dict()),
                "episodes": [episode.arrays() for episode in episodes],
                "previous": None if previous is None else np.frombuffer(previous.to_bytes(), np.uint8),
                "seed": seed,
            },
            compressed=False,  # the training waits for it
        )
        self._answer = folder / f"answer-{self._jobs}.zip"
        assert process.stdin is not None
        process.stdin.write(f"{job}\t{self._answer}\n".encode())
        process.stdin.flush()

    def result(self) -> Knowledge | None:
        """The knowledge of the job, once; None while there is none, or if there was not enough experience.

        Raises:
            RuntimeError: the other process failed; the message has its last words.
        """
        if self._answer is None:
            return None
        if not self._answer.is_file():
            assert self._process is not None
            if self._process.poll() is not None and not self._answer.is_file():
                words = self._last_words()
                self.close()
                raise RuntimeError(f"the distillation's process ended: {words}")
            return None
        answer, self._answer = read_state(self._answer), None
        if answer["error"]:
            raise RuntimeError(f"the distillation failed: {answer['error']}")
        content = answer["knowledge"]
        return None if content is None else Knowledge.from_bytes(np.asarray(content, np.uint8).tobytes())

    def close(self) -> None:
        """End the process; a later job starts a new one."""
        if self._finalizer is not None:
            self._finalizer()
        self._process, self._folder, self._answer, self._finalizer = None, None, None, None

    def _started(self) -> tuple[subprocess.Popen[bytes], Path]:
        if self._process is None or self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rao-distil-"))
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
            with open(self._folder / "errors.txt", "wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", "from rao_agents.distillation.worker import main; main()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env=environment,
                )
            self._finalizer = weakref.finalize(self, _end, self._process, self._folder)
        return self._process, self._folder

    def _last_words(self) -> str:
        assert self._folder is not None
        text = (self._folder / "errors.txt").read_text(encoding="utf-8", errors="replace").strip()
        return text.splitlines()[-1] if text else "without a word"


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    process.terminate()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


class _Remembered:
    """The job's episodes, as distillers ask for them."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.all = episodes

    def episodes(self, window: int | None = None) -> list[Episode]:
        own = [episode.iteration for episode in self.all if not episode.expert]
        if window is None or not own:
            return self.all
        return [episode for episode in self.all if episode.expert or episode.iteration > max(own) - window]


def work(job: dict[str, Any]) -> Knowledge:
    """Do one job.

    Raises:
        NotEnoughError: there is too little experience.
    """
    module, name = job["distiller"]
    cls = getattr(importlib.import_module(module), name)
    distiller: Distiller = cls(**job["config"])
    distiller.set_state(job["state"])
    policy = make_policy(job["policy"])
    policy.load_state_dict(from_arrays(job["weights"]))
    previous = job["previous"]
    known = None if previous is None else Knowledge.from_bytes(np.asarray(previous, np.uint8).tobytes())
    episodes = [Episode.from_arrays(arrays) for arrays in job["episodes"]]
    return distiller.distil(policy, _Remembered(episodes), known, np.random.default_rng(int(job["seed"])))


def main() -> None:
    """Do jobs as they come on standard input (job file, tab, answer file), until it ends."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    th.set_num_threads(1)
    for line in sys.stdin:
        job, _, answer = line.rstrip("\n").partition("\t")
        outcome: dict[str, Any] = {"knowledge": None, "error": ""}
        try:
            outcome["knowledge"] = np.frombuffer(work(read_state(job)).to_bytes(), np.uint8)
        except NotEnoughError:
            pass
        except Exception as error:  # it is told to whoever waits for the answer
            outcome["error"] = f"{type(error).__name__}: {error}"
        Path(job).unlink(missing_ok=True)
        write_state(answer, outcome)
