"""Where a result comes from: command, commit, versions, hardware. Everything is best effort and never fails a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PACKAGES = ("rao-envs", "gymnasium", "numba", "numpy", "torch", "stable-baselines3", "sb3-contrib")


def provenance(threads: int | None = None) -> dict[str, Any]:
    """Command, git commit, versions, hardware and time, as plain data.

    Args:
        threads: how many threads torch used, if it was used.
    """
    return {
        "command": command_line(),
        "commit": commit(),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "hardware": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.system(),
            "threads": threads,
        },
    }


def command_line() -> str:
    """The command that started this process, without the folders of the program itself."""
    program, *arguments = sys.argv or [""]
    module = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
    if module and module != "__main__" and not module.startswith("rao_baselines.cli"):
        start = f"python -m {module.removesuffix('.__main__')}"
    else:
        start = Path(program).name or "python"
    return " ".join([start, *map(shlex.quote, arguments)])


def commit() -> str | None:
    """The git commit of the source tree, with "+changes" when files differ from it; None outside a repository."""
    folder = Path(__file__).resolve().parent
    try:
        run = {"cwd": folder, "capture_output": True, "text": True, "timeout": 10, "check": True}
        head = subprocess.run(["git", "rev-parse", "HEAD"], **run).stdout.strip()  # type: ignore[call-overload]
        # Results and figures written by the run itself do not count as changes of the code.
        code = ["rao_envs", "agents", "baselines/rao_baselines", "baselines/configs", "pyproject.toml"]
        root = subprocess.run(["git", "rev-parse", "--show-toplevel"], **run).stdout.strip()  # type: ignore[call-overload]
        run["cwd"] = root
        status = subprocess.run(["git", "status", "--porcelain", "--", *code], **run).stdout  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+changes" if status.strip() else head


def versions() -> dict[str, str]:
    """Python's version and those of the packages that decide results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
