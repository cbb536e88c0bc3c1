"""What `rao doctor` looks at: versions, devices, compiled kernels, and common problems with their cures."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

import rao_envs

State = Literal["ok", "note", "problem"]
SMALLEST = "RAO/Maze-5x5-v0"
WIDE = ("all", "baselines", "dev")
"""Extras that a cure names only where no smaller one has the package."""


class Finding(NamedTuple):
    """One line of the diagnosis.

    Attributes:
        subject: what was looked at.
        state: "ok"; "note", something that is missing or slow but need not be there; "problem".
        text: what was found.
        cure: what to do about it; empty where nothing need be done.
    """

    subject: str
    state: State
    text: str
    cure: str = ""


def examine() -> Iterator[Finding]:
    """Every finding, as soon as it is known."""
    yield python()
    yield from packages()
    for look in (device, kernels, environment, display, temporary_folder):
        try:
            yield look()
        except Exception as error:  # whatever is broken here is what the command is there to say
            yield Finding(look.__name__.replace("_", " "), "problem", f"{type(error).__name__}: {error}", "report it with this output")


def python() -> Finding:
    """The interpreter and the machine."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Finding("python", "ok", text)


def packages() -> Iterator[Finding]:
    """Every package that the suite or one of its extras asks for: installed, and in the range that is allowed?"""
    wanted: dict[str, tuple[Requirement, list[str]]] = {}
    for text in importlib.metadata.requires("rao-envs") or ():
        requirement = Requirement(text)
        if requirement.name == "rao-envs":
            continue
        extra = next((name for name in _extras() if requirement.marker and requirement.marker.evaluate({"extra": name})), "")
        if not requirement.marker or extra or requirement.marker.evaluate({"extra": ""}):
            wanted.setdefault(requirement.name, (requirement, []))[1].append(extra)
    for name, (requirement, extras) in sorted(wanted.items(), key=lambda item: (min(item[1][1]), item[0])):
        yield _package(name, requirement, sorted(set(extras), key=lambda extra: (extra in WIDE, extra)))


def _extras() -> list[str]:
    """The extras with requirements of their own; what only names other extras says nothing new."""
    return importlib.metadata.metadata("rao-envs").get_all("Provides-Extra") or []


def _package(name: str, requirement: Requirement, extras: list[str]) -> Finding:
    install = f'pip install "rao-envs[{extras[0]}]"' if extras[0] else "pip install rao-envs"
    part = f" (for {', '.join(extras)})" if extras[0] else ""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "note" if extras[0] else "problem", f"not installed{part}", install)
    if not requirement.specifier.contains(version, prereleases=True):
        text = f"{version}, but {requirement.specifier} is needed{part}"
        return Finding(name, "problem", text, f'pip install "{name}{requirement.specifier}"')
    return Finding(name, "ok", f"{version}{part}")


def device() -> Finding:
    """What torch computes on."""
    if importlib.util.find_spec("torch") is None:
        return Finding("device", "note", "torch is not installed: environments work, agents do not", 'pip install "rao-envs[agents]"')
    import torch

    threads = f"{torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        return Finding("device", "ok", f'{torch.cuda.get_device_name(0)} (device="auto" uses it), {threads}')
    return Finding("device", "ok", f"CPU, {threads}; small networks are no slower there")


def kernels() -> Finding:
    """Whether compiled kernels are kept from process to process, and how many are."""
    folder = Path(rao_envs.__file__).parent
    kept = os.environ.get("NUMBA_CACHE_DIR")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        text = "NUMBA_DISABLE_JIT is set: everything runs some hundred times more slowly"
        return Finding("kernels", "problem", text, "unset NUMBA_DISABLE_JIT")
    count = sum(1 for _ in Path(kept or folder).rglob("*.nbi"))
    where = kept or f"beside the sources in {folder}"
    if not kept and not os.access(folder / "core", os.W_OK):
        return Finding("kernels", "note", f"{folder} cannot be written to; Numba then keeps kernels in the user's own cache folder")
    if not count:
        return Finding(
            "kernels", "note", f"none compiled yet ({where})", "the first reset of each family compiles its own, up to a minute, once"
        )
    return Finding("kernels", "ok", f"{count} compiled ones are kept {where}")


def environment() -> Finding:
    """Whether the smallest environment runs, and how quickly it was there."""
    import gymnasium as gym

    started = time.perf_counter()
    env = gym.make(SMALLEST)
    env.reset(seed=0)
    ready = time.perf_counter() - started
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < 0.5:
        if any(env.step(steps % 4)[2:4]):
            env.reset()
        steps += 1
    rate = steps / (time.perf_counter() - started)
    env.close()
    text = f"{SMALLEST} was ready after {ready:.1f} s and makes {rate:,.0f} steps/s"
    if rate < 10_000:
        return Finding("environment", "note", text, "some 100,000 steps/s are usual: another program may hold the processor")
    return Finding("environment", "ok", text)


def display() -> Finding:
    """Whether windows can be opened; pictures as arrays and as text never need one."""
    if importlib.util.find_spec("pygame") is None:
        return Finding("display", "note", "pygame-ce is not installed: no pictures", 'pip install "rao-envs[render]"')
    here = sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if os.environ.get("SDL_VIDEODRIVER") == "dummy" or not here:
        return Finding("display", "note", 'none: render_mode="human" and rao play --window need one; "rgb_array" and "ansi" do not')
    return Finding("display", "ok", "windows can be opened")


def temporary_folder() -> Finding:
    """Whether files can be written where runs and downloads put them."""
    here = Path.cwd()
    if not os.access(here, os.W_OK):
        text = f"{here} cannot be written to, where runs are put"
        return Finding("folder", "problem", text, "change to another folder, or name one with --out")
    return Finding("folder", "ok", f"runs go to {here / 'runs'}")
