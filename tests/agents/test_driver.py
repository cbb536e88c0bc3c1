"""What the driver of a cluster says and does, without one: everything that is sent is pickled, and runs at once in this process."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO

import rao_envs
from rao_agents import make_vec_env
from rao_agents.distributed import evaluating
from rao_agents.distributed.cluster import WorkersLostError
from rao_agents.runners import Batched, OnRay, solve, solve_all
from rao_agents.runners import on_ray as module
from tests.agents.test_runners import keen
from tests.envs import third_party
from tests.ray_here import Handle, ray_here

third_party.register()
RANGES = "Test/RangeMax-27-v0"
ALGEBRA = "RAO/Algebra-depth8-v0"


def allowed(mask: Any) -> Any:
    return np.flatnonzero(mask) if mask.any() else np.zeros(1, np.int64)


class Tally:
    """Its frame's state is an array that it writes to, as it does to one of its own; what it does hangs on it."""

    def __init__(self) -> None:
        self.scratch = np.zeros(3, np.int64)

    def __call__(self, observation: Any, mask: Any, state: Any, uniform: float) -> Any:
        state = np.zeros(2, np.int64) if state is None else state
        state += 1, int(10 * uniform)
        self.scratch[:] = state.sum()
        return int(allowed(mask)[(self.scratch[0] * 7) % len(allowed(mask))]), state


def same(agent: Any, env: Any, seeds: Any, runner: OnRay, **options: Any) -> None:
    expected = solve_all(agent, env, seeds, runner="sequential", **options)
    for one, other in zip(expected, solve_all(agent, env, seeds, runner=runner, **options), strict=True):
        assert one.same_as(other), (one, other)


@pytest.mark.parametrize("env_id", [RANGES, ALGEBRA, "Test/Hanoi-5-v0"])
@pytest.mark.parametrize("spread", [1, 2, 3])
def test_a_callables_states_travel_with_its_frames(env_id: str, spread: int) -> None:
    """Those of the frames that wait below, too; and they come out writable, as the agent's own arrays do."""
    with ray_here(module):
        same(Tally(), env_id, 5, OnRay(2, spread=spread))


def test_an_id_of_somebody_elses_need_not_be_registered_where_workers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_here(module) as ray:

        def fate(actor: Handle, name: str) -> str:
            if name == "prepare":  # as in a process in which nobody has registered it
                monkeypatch.delitem(gym.registry, RANGES, raising=False)
            return ""

        expected = solve_all(keen(RANGES, {}), RANGES, 4)
        agent, ray.fate = keen(RANGES, {}), fate
        found = solve_all(agent, RANGES, 4, runner=OnRay(2, spread=1))
    assert RANGES not in gym.registry
    assert all(one.same_as(other) for one, other in zip(expected, found, strict=True))


def test_a_users_own_task_travels() -> None:
    """Its arrays, too, are as writable as kernels want them."""
    cells = np.zeros((11, 11), np.bool_)
    cells[1:10, 1:10] = True
    cells[5, 1:9] = False
    maze = gym.make("RAO/Maze-v0", layout=cells)
    formula = gym.make("RAO/Algebra-v0", expressions=["(x + 1) - (x + 4)"], modulus=5)
    under_way = gym.make("RAO/LongSeq-nested-320-v0")
    under_way.reset(seed=3)
    with ray_here(module):
        for env in (maze, formula, under_way):
            expected = solve(Tally(), env, 1)
            assert expected.same_as(solve(Tally(), env, 1, runner=OnRay(1, spread=1)))


class Doubting(PPO):
    """Has an opinion of its own about its policy's actions."""

    def predict(self, observation: Any, *arguments: Any, **options: Any) -> Any:
        actions, state = super().predict(observation, *arguments, **options)
        return (actions + observation["call"][:, 3].astype(int)) % int(self.action_space.n), state  # type: ignore[attr-defined]


def test_a_models_own_predict_is_what_workers_use() -> None:
    model = Doubting("MultiInputPolicy", make_vec_env(ALGEBRA, 1, 0), n_steps=8, batch_size=8, seed=0, device="cpu")
    with ray_here(module):
        same(model, ALGEBRA, 3, OnRay(2, spread=1), budget=30)


def test_models_elsewhere_than_on_the_cpu_are_refused() -> None:
    model = PPO("MultiInputPolicy", make_vec_env(ALGEBRA, 1, 0), n_steps=8, batch_size=8, seed=0, device="cpu")
    model.policy.to("meta")
    with ray_here(module), pytest.raises(ValueError, match=r"PPO is on meta: load it with device='cpu'"):
        solve(model, ALGEBRA, runner=OnRay(1))


def test_what_workers_keep_of_a_tree_goes_with_it() -> None:
    """Long documents would fill their memory, one tree after the other."""
    kept: list[int] = []

    def fate(actor: Handle, name: str) -> str:
        if name == "run":
            kept.append(len(actor.object.settled))
        return ""

    with ray_here(module, fate):
        solve_all(keen(RANGES, {}), RANGES, 40, runner=OnRay(1, spread=1, slots=4))
    assert len(kept) > 20 and max(kept) <= 3


def test_a_worker_that_was_ended_for_being_late_has_its_time_to_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said anything for long; that is no reason to give up on the replacement."""
    monkeypatch.setattr(module, "HIRING_SECONDS", 0.5)

    def fate(actor: Handle, name: str) -> str:
        return "hangs" if name == "run" or len(ray.actors) > 1 else ""

    with ray_here(module, fate) as ray:
        solutions = solve_all(keen(ALGEBRA, {}), ALGEBRA, 2, runner=OnRay(1, spread=1, slots=4), time_limit=1.0)
    assert [solution.status for solution in solutions] == ["timed out", "timed out"]


def test_a_place_where_no_worker_starts_is_given_up() -> None:
    with (
        ray_here(module, lambda actor, name: "lost") as ray,
        pytest.raises(WorkersLostError, match=r"no worker can be started: it has gone"),
    ):
        solve(keen(ALGEBRA, {}), ALGEBRA, runner=OnRay(2, spread=1))
    assert 2 < len(ray.actors) < 20 and all(actor.dead for actor in ray.actors)


def test_losses_are_counted_for_each_sub_tree() -> None:
    with ray_here(module, lambda actor, name: "lost" if name == "run" else ""), pytest.raises(WorkersLostError, match="lost 4 workers"):
        solve_all(keen(ALGEBRA, {}), ALGEBRA, 4, runner=OnRay(2, spread=1))


def test_one_runner_in_with_blocks_inside_each_other() -> None:
    with ray_here(module) as ray:
        runner = OnRay(2)
        with runner:
            with runner:
                solve(keen(ALGEBRA, {}), ALGEBRA, runner=runner)
            assert len(ray.actors) == 2 and not any(actor.dead for actor in ray.actors)
            solve(keen(ALGEBRA, {}), ALGEBRA, 1, runner=runner)
            assert len(ray.actors) == 2
        assert all(actor.dead for actor in ray.actors)


def test_a_runner_solves_one_thing_at_a_time() -> None:
    """Its workers have one agent and one environment each."""
    runner = OnRay(2, spread=1)

    def asking() -> bool:
        return solve(keen(RANGES, {}), RANGES, runner=runner).success

    with ray_here(module), runner:
        with pytest.raises(RuntimeError, match="solving already"):
            solve(keen(ALGEBRA, {}), ALGEBRA, runner=runner, should_stop=asking)
        assert solve(keen(ALGEBRA, {}), ALGEBRA, runner=runner).status == "done"


def test_what_cannot_be_sent_is_said() -> None:
    lock = threading.Lock()

    def agent(observation: Any, mask: Any, state: Any) -> int:
        with lock:
            return int(allowed(mask)[0])

    with (
        ray_here(module),
        pytest.raises(TypeError, match=r"workers get the agent and the environment pickled: cannot pickle '_thread.lock'"),
    ):
        solve(agent, ALGEBRA, runner=OnRay(1))
    with ray_here(evaluating), pytest.raises(TypeError, match=r"workers get the agent and the environment pickled"):
        evaluating.evaluate(agent, ALGEBRA, 3)


class ParticularError(Exception):
    """Cannot be made again from its message alone, as pickle does it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)


def test_an_agents_error_is_told_even_if_it_cannot_be_sent() -> None:
    class Faulty:
        home = True  # only a copy fails

        def __getstate__(self) -> dict[str, Any]:
            return {"home": False}

        def __call__(self, observation: Any, mask: Any, state: Any) -> int:
            if not self.home:
                raise ParticularError("no idea", 7)
            return int(allowed(mask)[-1])

    with ray_here(module), pytest.raises(RuntimeError, match=r"ParticularError: no idea"):
        solve_all(Faulty(), ALGEBRA, 4, runner=OnRay(2, spread=1))


def test_an_evaluations_agent_may_write_to_its_own_arrays() -> None:
    with ray_here(evaluating):
        assert evaluating.evaluate(Tally(), ALGEBRA, 5) == rao_envs.evaluate(Tally(), ALGEBRA, 5)


class BoomError(Exception):
    """An agent's own."""


class Mortal:
    """Plays at random, and raises at one of its decisions."""

    def __init__(self, fails_at: int) -> None:
        self.left = fails_at
        self.agent = keen(ALGEBRA, {}, 8.0)
        self.batched = True

    def __call__(self, observation: Any, masks: Any, states: Any, uniform: Any) -> Any:
        self.left -= len(masks)
        if self.left < 0:
            raise BoomError
        return self.agent(observation, masks, states, uniform)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**40),
    budget=st.integers(3, 120),
    depth=st.integers(1, 8),
    fails_at=st.integers(0, 400),
    stops_at=st.integers(1, 60),
    losses=st.integers(0, 3),
    spread=st.integers(1, 3),
    slots=st.sampled_from([4, 16, 64]),
)
def test_whatever_happens_nothing_is_left_and_nothing_is_wrong(
    seed: int, budget: int, depth: int, fails_at: int, stops_at: int, losses: int, spread: int, slots: int
) -> None:
    """Random trees, agents that fail, workers that are lost, calls that are given up: the next call on the same runner is right."""
    seeds, limits = [seed, seed + 1, seed + 2], {"budget": budget, "max_depth": depth}
    expected = solve_all(keen(ALGEBRA, {}, 8.0), ALGEBRA, seeds, runner="sequential", **limits)
    left = [losses]
    asked = [stops_at]

    def fate(actor: Handle, name: str) -> str:
        if name == "run" and left[0]:
            left[0] -= 1
            return "lost"
        return ""

    def stop() -> bool:
        asked[0] -= 1
        return asked[0] < 0

    with ray_here(module, fate) as ray, OnRay(2, spread=spread, slots=slots) as runner:
        for engine in (runner, Batched(slots)):
            with contextlib.suppress(BoomError):
                solve_all(Mortal(fails_at), ALGEBRA, seeds, runner=engine, **limits)
            asked[0] = stops_at
            given_up = solve_all(keen(ALGEBRA, {}, 8.0), ALGEBRA, seeds, runner=engine, should_stop=stop, **limits)
            for one, other in zip(given_up, expected, strict=True):
                assert one.status == "cancelled" or one.same_as(other)
            for one, other in zip(solve_all(keen(ALGEBRA, {}, 8.0), ALGEBRA, seeds, runner=engine, **limits), expected, strict=True):
                assert one.same_as(other)
        assert sum(not actor.dead for actor in ray.actors) == 2
    assert all(actor.dead for actor in ray.actors)
    for solution in expected:
        assert solution.episode is not None and solution.episode.steps <= budget and solution.frames["depth"].max() <= depth
