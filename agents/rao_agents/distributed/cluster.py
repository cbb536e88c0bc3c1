"""A connection to a Ray cluster for as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

_sharing = 0
"""How many users a connection has that was made here; 0 when there is none, or when it is somebody else's."""


class RayNotInstalledError(ImportError):
    """Ray is an extra."""


class WorkersLostError(ConnectionError):
    """Workers went away more often than is tried again, or none could be started."""


def import_ray() -> Any:
    """The module `ray`.

    Raises:
        RayNotInstalledError: it is not installed; the message says how to.
    """
    try:
        import ray
    except ImportError as error:
        raise RayNotInstalledError(f'this needs Ray ({error}). Install it with: pip install "rao-envs[ray]"') from error
    return ray


@contextlib.contextmanager
def connected(address: str | None = None, num_cpus: int | None = None) -> Iterator[Any]:
    """Ray's module, connected to a cluster.

    A connection that this process has already is used and left alone. Else one is made, shared by all who ask meanwhile, and closed
    with the last of them, in every exit path.

    Args:
        address: of the cluster ("auto" for the one of this machine, or "host:port"); None starts one on this machine alone.
        num_cpus: CPUs of a cluster that is started here; None takes the machine's.

    Raises:
        RayNotInstalledError: Ray is not installed.
        ConnectionError: there is no cluster at `address`.
    """
    global _sharing
    ray = import_ray()
    if ray.is_initialized() and not _sharing:
        yield ray
        return
    if not _sharing:
        _connect(ray, address, num_cpus)
    _sharing += 1
    try:
        yield ray
    finally:
        _sharing -= 1
        if not _sharing:
            ray.shutdown()


def _connect(ray: Any, address: str | None, num_cpus: int | None) -> None:
    started: dict[str, Any] = {} if address else {"num_cpus": num_cpus, "include_dashboard": False}
    try:
        with _own_signals():
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **started)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address is None:
            raise
        raise ConnectionError(f"there is no Ray cluster at {address!r}: {error}") from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep a handler of this program for SIGTERM: connecting replaces it by one that ends the process."""
    ours = signal.getsignal(signal.SIGTERM)
    yield
    if callable(ours) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ours)


def cpus(ray: Any) -> int:
    """CPUs of all nodes together."""
    return int(ray.cluster_resources().get("CPU", 0))


def lost(ray: Any) -> tuple[type[Exception], ...]:
    """What `ray.get` raises where a worker, its node or what it made has gone, through no fault of what it ran."""
    errors = ray.exceptions
    return errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError


def why_lost(error: BaseException) -> str:
    """Ray's reason in a line, and what to do about it where that is known."""
    text = " ".join(str(error).split())
    if "No module named 'rao_" in text:
        return f'a worker cannot import this project: install the same version on every node, pip install "rao-envs[ray]" ({text:.300})'
    return f"{text:.500}"
