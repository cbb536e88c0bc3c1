"""Tasks of different sizes side by side: each is what it is alone, and goes over to another when its episode ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C

from rao_agents import RecursiveA2C, RecursivePPO, RepeatTasks, make_vec_env
from rao_agents.mixed import MixedVecEnv, make_mixed_vec_env, mixed_vec_env, shares, task_name
from tests.agents.test_vec_env import assert_same, random_actions
from tests.envs import third_party

third_party.register()

SMALL, MIDDLE, LARGE = (("Test/RangeMax-8-v0", {"levels": levels, "budget": 20}) for levels in (1, 2, 3))
TASKS = [SMALL, MIDDLE, LARGE]


def played(venv: Any, n: int, seed: int = 0) -> list[Any]:
    """What `n` random steps gave, with the facts of each."""
    rng = np.random.default_rng(seed)
    return [(*venv.step(random_actions(venv.action_masks(), rng)), venv.facts) for _ in range(n)]


@pytest.mark.parametrize("kwargs", [{}, {"feedback": "dense", "observe_frame": True}, {"spawn": False}], ids=str)
def test_every_slot_is_its_task_as_it_is_alone(kwargs: dict[str, Any]) -> None:
    mixed = make_mixed_vec_env(TASKS, 6, seed=5, monitor=False, **kwargs)
    alone = [make_vec_env(env_id, 6, seed=5, monitor=False, **own, **kwargs) for env_id, own in TASKS]
    first, firsts = mixed.reset(), [venv.reset() for venv in alone]
    rng = np.random.default_rng(0)
    for _ in range(60):
        for i, k in enumerate((0, 0, 1, 1, 2, 2)):
            assert_same({key: value[i] for key, value in first.items()}, {key: value[i] for key, value in firsts[k].items()})
            np.testing.assert_array_equal(mixed.action_masks()[i], alone[k].action_masks()[i])
        actions = random_actions(mixed.action_masks(), rng)
        steps, theirs = mixed.step(actions), [venv.step(actions) for venv in alone]
        assert mixed.observation_space.contains({key: value[4] for key, value in steps[0].items()})
        for i, k in enumerate((0, 0, 1, 1, 2, 2)):
            assert steps[1][i] == theirs[k][1][i]
            assert steps[2][i] == theirs[k][2][i]
            assert_same(steps[3][i], theirs[k][3][i])
            assert_same(mixed.reset_infos[i], alone[k].reset_infos[i])
            facts, other = mixed.facts, alone[k].facts
            for name in ("frame_id", "parent_id", "depth", "event", "n_returned"):
                assert getattr(facts, name)[i] == getattr(other, name)[i]
            count = facts.n_returned[i]
            assert facts.returned[i, :count].tolist() == other.returned[i, :count].tolist()
        first, firsts = steps[0], [step[0] for step in theirs]


def test_an_environment_goes_over_when_its_episode_ends() -> None:
    mixed = make_mixed_vec_env(TASKS, 8, seed=0, weights=[1, 0, 0], monitor=False)
    mixed.reset()
    played(mixed, 7)
    assert mixed.mixed.playing.tolist() == [0] * 8
    mixed.set_weights([0, 1, 1])
    changed = np.zeros(8, bool)
    for _ in range(60):
        _, _, dones, infos = mixed.step(random_actions(mixed.action_masks(), np.random.default_rng(1)))
        changed |= dones
        assert (mixed.mixed.playing > 0).tolist() == changed.tolist()
        assert all(info["depth"] <= 3 for info in infos)
    assert changed.all()
    assert np.bincount(mixed.mixed.playing, minlength=3).tolist() == [0, 4, 4]
    np.testing.assert_allclose(mixed.weights, [0, 0.5, 0.5])


@given(weights=st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(any), n=st.integers(6, 200))
def test_shares_are_whole_and_close_and_leave_nobody_out(weights: list[float], n: int) -> None:
    given_ = np.array(weights)
    counts = shares(given_, n)
    assert counts.sum() == n
    assert ((counts > 0) == (given_ > 0)).all()
    exact = given_ / given_.sum() * n
    assert (counts <= np.maximum(np.ceil(exact + 1e-9), 1)).all()


def test_states_carry_on_exactly_even_with_a_change_under_way() -> None:
    mixed = make_mixed_vec_env(TASKS, 5, seed=3, monitor=False)
    mixed.reset()
    played(mixed, 5)
    mixed.set_weights([0, 0, 1])
    mixed.notes["stage"] = 2
    played(mixed, 2)
    state = mixed.get_state()
    expected = played(mixed, 60, seed=9)
    other = make_mixed_vec_env(TASKS, 5, seed=77, monitor=False)
    other.reset()
    played(other, 11)
    other.set_state(state)
    assert other.notes == {"stage": 2}
    for mine, theirs in zip(played(other, 60, seed=9), expected, strict=True):
        assert_same(mine[:4], theirs[:4])
        assert mine[4].frame_id.tolist() == theirs[4].frame_id.tolist()
    with pytest.raises(ValueError, match="of 5 environments, here are 4"):
        make_mixed_vec_env(TASKS, 4, monitor=False).set_state(state)
    with pytest.raises(ValueError, match="of a mixture of 3 tasks, here are 2"):
        make_mixed_vec_env(TASKS[:2], 5, monitor=False).set_state(state)
    with pytest.raises(ValueError, match="not one of a mixture"):
        other.set_state({})


@pytest.mark.parametrize("algorithm", [RecursivePPO, RecursiveA2C, MaskablePPO, A2C])
def test_agents_of_every_kind_learn_from_a_mixture(algorithm: Any) -> None:
    env = make_mixed_vec_env(TASKS, 6, seed=1, dense_weight=0.1, spawn=algorithm in (RecursivePPO, RecursiveA2C))
    small = {} if "A2C" in algorithm.__name__ else {"batch_size": 24, "n_epochs": 1}
    model = algorithm("MultiInputPolicy", env, n_steps=8, seed=0, **small)
    model.learn(96)
    assert model.num_timesteps == 96
    assert mixed_vec_env(model.get_env()) is mixed_vec_env(env)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Test/Hanoi-3-v0 cannot be mixed: actions look, .*; observation 'action_mask'"):
        make_mixed_vec_env([SMALL, ("Test/Hanoi-3-v0", {})], 4)
    with pytest.raises(ValueError, match="feedback sparse against dense"):
        make_mixed_vec_env([SMALL, (SMALL[0], {"feedback": "dense"})], 4)
    with pytest.raises(ValueError, match="3 tasks with a weight above 0 need at least as many environments, got 2"):
        make_mixed_vec_env(TASKS, 2)
    with pytest.raises(ValueError, match="at least one task"):
        make_mixed_vec_env([], 2)
    for weights in ([1, 1], [0, 0, 0], [1, 1, -1], [1, 1, float("nan")]):
        with pytest.raises(ValueError, match="weights must be 3 numbers of at least 0"):
            make_mixed_vec_env(TASKS, 4, weights=weights)
    with pytest.raises(ValueError, match="a task has feedback='sparse'"):
        make_mixed_vec_env(TASKS, 4, dense_weight=1.0, feedback="sparse")
    with pytest.raises(ValueError, match="CartPole-v1 is not a recursive environment"):
        make_mixed_vec_env([("CartPole-v1", {})], 4)


def test_options_and_names() -> None:
    mixed = MixedVecEnv([("RAO/Relay-v0", {}), ("RAO/Relay-v0", {"levels": 3})], 4)
    mixed.set_options({"code": [1, 2, 3]})
    code = slice(2, 20)
    assert mixed.reset()["task"][:, code].reshape(4, 3, 6).argmax(2).tolist() == [[1, 2, 3]] * 4
    mixed.set_options({"colour": 1})
    with pytest.raises(ValueError, match="unknown reset option"):
        mixed.reset()
    assert [task_name(task) for task in mixed.tasks] == ["RAO/Relay-v0", "RAO/Relay-v0?levels=3"]


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31), change=st.integers(0, 30))
def test_the_same_seeds_and_changes_give_the_same_episodes(seed: int, change: int) -> None:
    runs = []
    for _ in range(2):
        mixed = make_mixed_vec_env(TASKS, 4, seed=seed, monitor=False)
        mixed.reset()
        found = played(mixed, change)
        mixed.set_weights([0, 0, 1])
        runs.append(found + played(mixed, 30))
    for mine, theirs in zip(*runs, strict=True):
        assert_same(mine[:4], theirs[:4])


def test_a_mixture_is_not_repeated() -> None:
    """Tasks that begin alike in every size would be compared as if they were one."""
    tasks = [("RAO/Maze-v0", {"rows": size, "cols": size}) for size in (5, 6)]
    for monitor in (True, False):
        with pytest.raises(ValueError, match="a mixture of tasks cannot be repeated"):
            RepeatTasks(make_mixed_vec_env(tasks, 4, 0, monitor=monitor), 2)


def test_tasks_may_be_ids_alone_and_nothing_else_is_taken_for_one() -> None:
    mixed = mixed_vec_env(make_mixed_vec_env(["RAO/Maze-5x5-v0", ("RAO/Maze-10x10-v0", {})], 2, monitor=False))
    assert mixed is not None
    assert [env_id for env_id, _ in mixed.tasks] == ["RAO/Maze-5x5-v0", "RAO/Maze-10x10-v0"]
    for wrong in (5, ("RAO/Maze-5x5-v0",), ("RAO/Maze-5x5-v0", 3), None):
        with pytest.raises(ValueError, match="a task is an environment id, or a pair"):
            make_mixed_vec_env([wrong], 2)  # type: ignore[list-item]
