"""A small Ray cluster of two nodes on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")


NODE = {"num_cpus": 1, "object_store_memory": 10**8}


@contextlib.contextmanager
def two_nodes(cpus: int = 1) -> Iterator[Any]:
    """The cluster, with `cpus` on each node; this process is connected to it. Nothing of it is left running."""
    from ray.cluster_utils import Cluster

    node = NODE | {"num_cpus": cpus}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def kill(actor: Any) -> None:
    """End the actor's process, as a machine that fails would."""
    os.kill(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)


def lose_node(cluster: Any) -> None:
    """Take away the node that was added last, at once."""
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
