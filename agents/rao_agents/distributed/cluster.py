"""A connection to a Ray cluster for as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any


class RayNotInstalledError(ImportError):
    """Ray is an extra."""


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

    A connection that this process has already is used and left alone. Else one is made, and closed in every exit path.

    Args:
        address: of the cluster ("auto" for the one of this machine, or "host:port"); None starts one on this machine alone.
        num_cpus: CPUs of a cluster that is started here; None takes the machine's.

    Raises:
        RayNotInstalledError: Ray is not installed.
        ConnectionError: there is no cluster at `address`.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    started: dict[str, Any] = {} if address else {"num_cpus": num_cpus, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **started)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address is None:
            raise
        raise ConnectionError(f"there is no Ray cluster at {address!r}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def cpus(ray: Any) -> int:
    """CPUs of all nodes together."""
    return int(ray.cluster_resources().get("CPU", 0))
