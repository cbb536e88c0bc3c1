"""The one way this package compiles: Numba, cached on disk, with a cache that cannot go stale.

Numba keys its disk cache on the file of the compiled function only. Kernels here call helpers in other modules, so an edited
helper would leave stale machine code behind; `refresh_cache` compares a digest of every kernel source and drops old entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parents[1]
DIGEST_FILE = "kernels.digest"


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


OPTIONS: dict[str, Any] = {"error_model": "numpy"}
"""No ZeroDivisionError paths: kernels never divide by zero, and a function that may raise keeps its reference counting."""


def _compile(function: F, **options: Any) -> F:
    try:
        return numba.njit(cache=True, **OPTIONS, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # Numba found no writable cache directory (a read-only installation)
        return numba.njit(**OPTIONS, **options)(function)  # type: ignore[no-any-return]


def source_digest(package: Path = PACKAGE) -> str:
    """SHA-256 over the sources that hold compiled kernels, in a fixed order."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"rao_envs.core.jit import" in source:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + source)
    return digest.hexdigest()


def refresh_cache(package: Path = PACKAGE) -> bool:
    """Delete cached kernels built from other sources than today's. Returns whether something had to go."""
    stamp = package / "__pycache__" / DIGEST_FILE
    digest = source_digest(package)
    try:
        if stamp.read_text() == digest:
            return False
    except OSError:
        pass
    for pattern in ("*.nbi", "*.nbc"):
        for path in package.rglob(f"__pycache__/{pattern}"):
            path.unlink(missing_ok=True)
    try:
        stamp.parent.mkdir(exist_ok=True)
        temporary = stamp.with_suffix(".tmp")
        temporary.write_text(digest)
        temporary.replace(stamp)
    except OSError:  # read-only installation: its sources cannot change under us either
        pass
    return True
