"""An evaluation's episodes spread over the workers of a Ray cluster: the same records as `rao_envs.evaluate`."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

import rao_envs
from rao_agents.distributed.cluster import WorkersLostError, connected, cpus, lost, why_lost
from rao_agents.runners.portable import packed, portable
from rao_envs import Evaluation
from rao_envs.core.actors import agent_name
from rao_envs.core.arenas import find_spec
from rao_envs.core.arguments import whole_number
from rao_envs.core.evaluate import reporter, seed_list

RETRIES = 3
"""How often a part is begun again after the loss of the worker that had it."""
PARTS = 4
"""Parts per worker: episodes differ in length, and who is done early takes more."""


def evaluate(
    agent: Any,
    env_id: Any,
    seeds: int | Sequence[int] = 100,
    *,
    workers: int | None = None,
    address: str | None = None,
    threads: int = 1,
    deterministic: bool = True,
    batch_size: int = 64,
    progress: bool | Callable[[int, int], None] | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """As `rao_envs.evaluate`, whose result depends on each seed alone, by many processes at once.

    Args:
        agent: as `rao_envs.evaluate` takes it; it is pickled, and so must be what a callable needs.
        env_id: as `rao_envs.evaluate` takes it.
        seeds: how many, or the list.
        workers: processes; None takes the cluster's CPUs.
        address: of a cluster ("auto", "host:port"); None uses the one this process is connected to, or starts one on this machine.
        threads: of torch in each worker, and CPUs of each. A network's last bit can hang on it: records are those of a local
            evaluation with as many (`torch.set_num_threads`).
        deterministic: as `rao_envs.evaluate` takes it.
        batch_size: in each worker.
        progress: as `rao_envs.evaluate` takes it; it comes a part at a time.
        **env_kwargs: the environment's.

    Raises:
        ValueError: as `rao_envs.evaluate`, a number below 1, or a model that is not on the CPU.
        TypeError: as `rao_envs.evaluate`, or something that cannot be pickled.
        rao_agents.distributed.cluster.RayNotInstalledError: Ray is not installed.
        rao_agents.distributed.cluster.WorkersLostError: the same episodes have lost several workers.
        ConnectionError: no cluster at the address.
    """
    listed = seed_list(seeds)
    whole_number("threads", threads, 1)
    if workers is not None:
        whole_number("workers", workers, 1)
    source = find_spec(env_id) if isinstance(env_id, str) else env_id  # workers may not have the id
    options = {"deterministic": deterministic, "batch_size": batch_size, "progress": False, **env_kwargs}
    with connected(address, None if workers is None else workers * threads) as ray:
        at_once = workers or max(1, cpus(ray) // threads)
        if at_once * threads > cpus(ray):
            raise ValueError(f"{at_once} workers need {at_once * threads} CPUs, the cluster has {cpus(ray)}")
        size = max(1, math.ceil(len(listed) / (at_once * PARTS)))
        parts = [listed[first : first + size] for first in range(0, len(listed), size)]
        with reporter(progress, f"{agent_name(agent)} on {env_id}") as report:
            done = _run(ray, (portable(agent), source, options, threads), parts, at_once, report)
    first = done[0]
    return dataclasses.replace(first, agent=agent_name(agent), episodes=tuple(episode for part in done for episode in part.episodes))


def _run(
    ray: Any, common: tuple[Any, ...], parts: Sequence[tuple[int, ...]], at_once: int, report: Callable[[int, int], None] | None
) -> list[Evaluation]:
    """Every part, `at_once` at a time, in order."""
    # As bytes: Ray's own way would make the agent's and the environment's arrays read-only.
    sent = ray.put(packed(common))
    task = ray.remote(num_cpus=common[3], max_retries=0)(_part)
    waiting = deque(range(len(parts)))
    tries = [0] * len(parts)
    running: dict[Any, int] = {}
    done: dict[int, Evaluation] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                k = waiting.popleft()
                running[task.remote(sent, parts[k])] = k
            (reference, *_), _ = ray.wait(list(running), num_returns=1)
            k = running.pop(reference)
            try:
                done[k] = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from error
            except lost(ray) as error:
                tries[k] += 1
                if tries[k] > RETRIES:
                    raise WorkersLostError(f"the same episodes have lost {tries[k]} workers: {why_lost(error)}") from error
                waiting.appendleft(k)
            if report is not None:
                report(sum(len(part.episodes) for part in done.values()), sum(map(len, parts)))
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
    return [done[k] for k in range(len(parts))]


def _part(common: bytes, seeds: tuple[int, ...]) -> Evaluation:
    """Some of the episodes; a Ray task."""
    agent, env_id, options, threads = cloudpickle.loads(common)
    import torch

    torch.set_num_threads(threads)
    return rao_envs.evaluate(agent, env_id, seeds, **options)
