"""Agents that are programs of their own: JSON lines over their standard input and output.

We write, they answer, one line each:

    {"type": "hello", "format": "rao-agent-1", "env_id": "RAO/Maze-20x20-v0", "env_kwargs": {"spawn": true}, "deterministic": true,
     "action_names": ["north", ...], "observation": {"task": {"shape": [9, 9], "dtype": "int8"}, ...}}
    {"type": "ready"}
    {"type": "act", "rows": [{"episode": 0, "step": 0, "observation": {"task": [[...], ...], ...}, "mask": [1, 0, ...]}, ...]}
    {"type": "actions", "actions": [3, ...]}

with one action for each row, in their order. Several episodes run side by side; an episode's number is never used twice, and one that is
not asked about any more is over. At the end its input is closed; a program that has not left a little later is stopped. What it writes
to its standard error is shown as it is; programs that it has started are stopped with it, unless they have begun a session of their own.
Numbers of observations are integers or decimals, arrays are lists of lists.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_baselines.errors import UserError

FORMAT = "rao-agent-1"
MAX_LINE = 16 * 2**20
"""Bytes of an answer."""

CHUNK = 2**16

GRACE = 2.0
"""Seconds a program has to leave once its input is closed."""


class ProcessAgent:
    """A program as a batched callable for `rao_envs.evaluate`. Use it as a context manager: leaving it ends the program and its children.

    Args:
        command: as a shell would read it; no shell runs it.
        hello: the first line, less its type and format.
        patience: seconds to wait for an answer, counted from when the question is put.

    Raises:
        UserError: the program cannot be started, takes too long, ends, or answers something else than it was asked for.
    """

    batched = True

    def __init__(self, command: str, hello: dict[str, Any], patience: float = 60.0) -> None:
        self.command, self.patience = command, patience
        self.__name__ = command
        self.episodes = self.asked = 0
        try:
            words = shlex.split(command)
            if not words:
                raise ValueError("it is empty")
            # Unbuffered: no lock of a buffer is held by a thread that waits for the program, so that `close` never waits for it.
            self.process = subprocess.Popen(words, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except (OSError, ValueError) as error:
            raise UserError(f"the program {command!r} cannot be started: {error}") from error
        self.questions: queue.Queue[bytes | None] = queue.Queue()
        self.lines: queue.Queue[bytes | None] = queue.Queue(8)
        self.closing = threading.Event()
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._write, self._listen)]
        for thread in self.threads:
            thread.start()
        try:
            answer = self._ask({"type": "hello", "format": FORMAT, **hello})
            if answer.get("type") != "ready":
                raise self._complaint(f'must answer the first line with {{"type": "ready"}}, not {_short(answer)}')
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ProcessAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(
        self, observation: dict[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], state: Sequence[Any]
    ) -> tuple[npt.NDArray[np.int64], list[tuple[int, int]]]:
        """Actions of m episodes; the states are their numbers and steps."""
        states = [self._begin() if known is None else known for known in state]
        lists = {name: array.tolist() for name, array in observation.items()}
        rows = [
            {"episode": episode, "step": step, "observation": {name: own[k] for name, own in lists.items()}, "mask": allowed}
            for k, ((episode, step), allowed) in enumerate(zip(states, mask.astype(int).tolist(), strict=True))
        ]
        answer = self._ask({"type": "act", "rows": rows})
        actions = answer.get("actions")
        if answer.get("type") != "actions" or not isinstance(actions, list) or len(actions) != len(rows):
            raise self._complaint(f'must answer with {{"type": "actions", "actions": [{len(rows)} of them]}}, not {_short(answer)}')
        for (episode, step), action in zip(states, actions, strict=True):
            if not isinstance(action, int) or isinstance(action, bool) or not 0 <= action < mask.shape[1]:
                raise self._complaint(
                    f"chose {_short(action)} in step {step} of episode {episode}; an action is an integer in [0, {mask.shape[1]})"
                )
        return np.array(actions, np.int64), [(episode, step + 1) for episode, step in states]

    def close(self) -> None:
        """End the program: its input is closed, then it and whatever it has started are stopped. Waits a few seconds at most."""
        self.questions.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        self._kill()
        self.process.wait()
        self.closing.set()
        for thread in self.threads:  # a child that has left the program's session may still hold its pipes: it is not waited for
            thread.join(GRACE)
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def _begin(self) -> tuple[int, int]:
        self.episodes += 1
        return self.episodes - 1, 0

    def _write(self) -> None:
        """Put the questions; a program that does not read them keeps only this thread waiting."""
        assert self.process.stdin is not None
        with contextlib.suppress(ValueError, OSError):  # it has gone: what its end says is `_listen`'s
            while (question := self.questions.get()) is not None:
                rest = memoryview(question)
                while rest:
                    rest = rest[self.process.stdin.write(rest) :]
            self.process.stdin.close()

    def _listen(self) -> None:
        """Hand over the lines of the program, and None at their end."""
        assert self.process.stdout is not None
        begun = bytearray()
        with contextlib.suppress(ValueError, OSError):
            while chunk := self.process.stdout.read(CHUNK):
                *whole, last = chunk.split(b"\n")
                for line in whole:
                    self._hand_over(bytes(begun) + line)
                    begun.clear()
                begun += last
                if len(begun) > MAX_LINE or self.closing.is_set():
                    break
        if begun:
            self._hand_over(bytes(begun))
        self._hand_over(None)

    def _hand_over(self, line: bytes | None) -> None:
        while not self.closing.is_set():
            with contextlib.suppress(queue.Full):
                self.lines.put(line, timeout=0.1)
                return

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.asked and self.lines.queue and self.lines.queue[0] is not None:
            raise self._complaint("must answer each line once, and say nothing unasked")
        self.asked += 1
        self.questions.put(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            line = self.lines.get(timeout=self.patience)
        except queue.Empty:
            raise self._complaint(f"did not answer within {self.patience:g} seconds") from None
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)
            code = self.process.returncode
            raise self._complaint("closed its output" if code is None else f"ended with exit code {code} before it was asked to")
        if len(line) > MAX_LINE:
            raise self._complaint(f"answered with a line of more than {MAX_LINE} bytes")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise self._complaint(f"must answer with a line of JSON, not {_short(line)}") from None
        if not isinstance(answer, dict):
            raise self._complaint(f"must answer with a JSON object, not {_short(answer)}")
        return answer

    def _complaint(self, text: str) -> UserError:
        return UserError(f"the program {self.command!r} {text}")


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """The observation's parts, as the first line has them."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
    return {name: {"shape": list(part.shape or ()), "dtype": str(part.dtype)} for name, part in parts.items()}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
