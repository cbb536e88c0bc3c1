"""The one way this package compiles: Numba, cached on disk, with a cache that cannot go stale.

Numba takes what it compiled for up to date as long as the compiled function's own file is the same. Kernels here call helpers in
other modules, so an edited helper would leave stale machine code behind, wherever the cache is: what is cached is stamped with a
digest of every kernel source.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parents[1]


def jit(function: F) -> F:
    """Compile `function` with Numba in nopython mode, cached on disk where a writable place exists.

    Floating point stays strict (no `fastmath`), so that results are the same bit for bit on every platform.
    """
    return _compile(function)


def lean(function: F) -> F:
    """As `jit`, without Numba's memory management: for functions that take whole states and allocate nothing.

    Otherwise a call counts references to every array of every NamedTuple it is handed, about 0.3 microseconds.
    """
    return _compile(function, _nrt=False)


def inline(function: F) -> F:
    """As `lean`, always inlined into the caller: for small helpers."""
    return _compile(function, forceinline=True, _nrt=False)


def splice(function: F) -> F:
    """As `jit`, its source copied into its one caller: saves the seconds that optimising it twice would take."""
    return _compile(function, inline="always")


OPTIONS: dict[str, Any] = {"error_model": "numpy"}
"""No ZeroDivisionError paths: kernels never divide by zero, and a function that may raise keeps its reference counting."""


def _compile(function: F, **options: Any) -> F:
    try:
        compiled = numba.njit(cache=True, **OPTIONS, **options)(function)
    except RuntimeError:  # Numba found no writable place (a read-only installation)
        return numba.njit(**OPTIONS, **options)(function)  # type: ignore[no-any-return]
    file = compiled._cache._cache_file
    file._source_stamp = (file._source_stamp, source_digest())
    compiled._cache.load_overload = functools.partial(_load, compiled._cache.load_overload)
    return compiled  # type: ignore[no-any-return]


def _load(load: Callable[..., Any], signature: Any, context: Any) -> Any:
    """Look for a compiled version, as Numba does.

    The cache of a kernel that several families use names their types, so that reading it may import other families. Numba must take in
    the hooks they register now: half-way through a compilation it would find that the hooks have changed, and give up.
    """
    found = load(signature, context)
    if found is None:
        context.refresh()
    return found


def kernel_sources(package: Path = PACKAGE) -> list[Path]:
    """The sources whose content ends up in machine code: all that compile something, and what those import from this package.

    A scripted solver (`reference.py`) compiles a search of its own, and drives environments besides: its imports do not count.
    """
    sources = {path: path.read_bytes() for path in sorted(package.rglob("*.py"))}
    wanted = [path for path, text in sources.items() if b"rao_envs.core.jit import" in text]
    found: dict[Path, None] = {}
    while wanted:
        path = wanted.pop()
        if path in found or path not in sources:
            continue
        found[path] = None
        if path.name != "reference.py":
            modules = re.findall(rb"^from rao_envs\.([\w.]+) import", sources[path], re.MULTILINE)
            wanted += [package.joinpath(*module.decode().split(".")).with_suffix(".py") for module in modules]
    return sorted(found)


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    """SHA-256 over the kernel sources."""
    digest = hashlib.sha256()
    for path in kernel_sources(package):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
