"""`python -m rao_baselines.run_one SPEC.json`: one training run as a process of its own, progress as JSON lines on stdout.

The specification holds the fields of `TrainSpec`; a run begun before is resumed. With `--attached` instead of a file, it is the first
line of standard input, and the input's end (our parent closing it, or dying) means: save and stop.

Exit codes: 0 finished, 2 a wrong specification, 130 stopped after saving.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from rao_baselines.errors import StoppedError, UserError
from rao_baselines.pool import stop_requests


def main(arguments: list[str] | None = None) -> int:
    """Run what the file named by the first argument specifies."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        emit({"error": "usage: python -m rao_baselines.run_one SPEC.json | --attached"})
        return 2
    attached = arguments[0] == "--attached"
    orphaned = threading.Event()
    try:
        with stop_requests() as asked:
            from rao_baselines.spec import TrainSpec
            from rao_baselines.training import Progress, train

            spec = TrainSpec(**json.loads(sys.stdin.readline() if attached else Path(arguments[0]).read_text(encoding="utf-8")))
            if attached:
                threading.Thread(target=_await_end_of_input, args=(orphaned,), daemon=True).start()

            def report(progress: Progress) -> None:
                emit({"steps": progress.steps, "total": progress.total, "point": progress.point})

            resume = (spec.folder() / "config.json").is_file()
            result = train(spec, resume=resume, report=report, should_stop=lambda: asked() or orphaned.is_set())
    except StoppedError as stop:
        emit({"stopped": str(stop)})
        return 130
    except (UserError, OSError, TypeError, json.JSONDecodeError) as error:
        emit({"error": str(error)})
        return 2
    emit({"result": str(spec.folder() / "result.json"), "final": result["final"]})
    return 0


def emit(message: dict[str, Any]) -> None:
    """One line of JSON, at once. A reader that has gone away is no reason to lose the run."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass


def _await_end_of_input(orphaned: threading.Event) -> None:
    # Read past Python's buffer: a thread that holds its lock would block the interpreter's end.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    orphaned.set()


if __name__ == "__main__":
    sys.exit(main())
