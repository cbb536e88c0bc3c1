"""Sub-trees on a real cluster of two nodes: the same as in one process, whoever is lost meanwhile; and nothing is left running."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rao_agents.runners import OnRay, solve, solve_all
from rao_agents.runners import on_ray as module
from rao_envs.longseq.reference import RecursiveSolver
from tests.agents.test_runners import FAMILIES, keen, untrained
from tests.ray_clusters import ray, two_nodes

ENV = "RAO/Algebra-depth8-v0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes(cpus=2) as found:
        yield found


@pytest.fixture(scope="module")
def runner(cluster: Any) -> Iterator[OnRay]:
    with OnRay(2, spread=1) as found:
        yield found


def same(agent: Any, env_id: str, seeds: list[int], runner: OnRay, **options: Any) -> None:
    expected = solve_all(agent, env_id, seeds, **options)
    for one, other in zip(expected, solve_all(agent, env_id, seeds, runner=runner, **options), strict=True):
        assert one.same_as(other), (one, other)


FORKING = ("RAO/LongSeq-v0", "RAO/LongSeq-nested-320-v0")
"""Tested by default; the others are among the slow ones, and in one process in `test_driver.py`."""


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [pytest.param(*family, marks=() if family[0] in FORKING else pytest.mark.slow, id=family[0].split("/")[1]) for family in FAMILIES],
)
def test_a_cluster_gives_what_one_process_gives(runner: OnRay, env_id: str, kwargs: dict[str, Any]) -> None:
    same(keen(env_id, kwargs), env_id, [1, 2, 3], runner, **kwargs)
    same(untrained(env_id, kwargs), env_id, [4, 5], runner, deterministic=False, budget=60, **kwargs)


@pytest.mark.parametrize("options", [{"state_transfer": "summary"}, {"state_transfer_kwargs": {"memory": 3}}], ids=str)
def test_states_travel_with_the_sub_trees(runner: OnRay, options: dict[str, Any]) -> None:
    env_id, kwargs = FAMILIES[3]
    model = untrained(env_id, kwargs | {"observe_frame": True}, **options)
    same(model, env_id, [1, 2, 3, 4], runner, deterministic=False, observe_frame=True, budget=80)


def test_sub_trees_do_travel(runner: OnRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of the above would hold of a driver that keeps everything to itself."""
    sent: list[int] = []
    lend = module._Run._lend

    def counted(self: Any, slots: Any) -> None:
        sent.extend(slots.tolist())
        lend(self, slots)

    monkeypatch.setattr(module._Run, "_lend", counted)
    same(RecursiveSolver(), "RAO/LongSeq-100k-v0", [3], runner)
    assert len(sent) >= 2


class Slow:
    """Costs a little at every step, and loses its worker at a given moment, once."""

    batched = True

    def __init__(self, mark: Path | None = None, milliseconds: float = 0.0) -> None:
        self.mark, self.milliseconds = mark, milliseconds
        self.agent, self.home = keen(ENV, {}), os.getpid()

    def __call__(self, observation: Any, masks: Any, states: Any, uniform: Any) -> Any:
        time.sleep(1e-3 * self.milliseconds)
        if self.mark is not None and os.getpid() != self.home and not self.mark.exists():
            self.mark.write_text("lost")
            os._exit(1)
        return self.agent(observation, masks, states, uniform)


def test_a_lost_worker_changes_nothing(cluster: Any, tmp_path: Any) -> None:
    expected = solve_all(keen(ENV, {}), ENV, [1, 2, 3])
    mark = tmp_path / "lost"
    found = solve_all(Slow(mark), ENV, [1, 2, 3], runner=OnRay(2, spread=1))
    assert mark.exists()
    for one, other in zip(expected, found, strict=True):
        assert one.same_as(other)


def test_an_agents_error_on_a_worker_comes_home(cluster: Any) -> None:
    agent, home = keen(ENV, {}), os.getpid()

    def faulty(observation: Any, mask: Any, state: Any, uniform: float) -> Any:
        if os.getpid() != home:
            raise ArithmeticError("no idea")
        actions, states = agent(observation, mask[None], [state], np.array([uniform]))
        return int(actions[0]), states[0]

    with pytest.raises(ArithmeticError, match="no idea"):
        solve_all(faulty, ENV, 4, runner=OnRay(2, spread=1))


def test_what_is_late_is_ended_everywhere(cluster: Any) -> None:
    start = time.perf_counter()
    solutions = solve_all(Slow(milliseconds=200), ENV, 3, runner=OnRay(2, spread=1), time_limit=3.0)
    assert {solution.status for solution in solutions} == {"timed out"}
    assert time.perf_counter() - start < 40


def test_wrong_use(cluster: Any) -> None:
    with pytest.raises(ValueError, match="99 workers need as many CPUs, the cluster has"):
        solve(keen(ENV, {}), ENV, runner=OnRay(99))
    with pytest.raises(ValueError, match="spread must be"):
        OnRay(spread=0)


def test_nothing_is_left_running(cluster: Any, runner: OnRay) -> None:
    """After all of the above, the open runner's two workers are all that holds a CPU."""
    deadline = time.monotonic() + 20
    while (free := ray.available_resources().get("CPU", 0.0)) != 2.0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert free == 2.0
