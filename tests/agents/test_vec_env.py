"""`RecursiveVecEnv` is Stable-Baselines3's own `DummyVecEnv` over single environments, faster and with facts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize

from rao_agents.vec_env import RecursiveVecEnv, VecDenseReward, make_vec_env
from tests.envs import third_party

third_party.register()

CASES: list[tuple[str, dict[str, Any]]] = [
    ("RAO/Maze-5x5-v0", {"budget": 40}),
    ("RAO/Maze-20x20-v0", {"budget": 30}),
    ("RAO/Maze-20x20-v0", {"budget": 30, "spawn": False, "feedback": "dense"}),
    ("Test/RangeMax-27-v0", {"budget": 30, "feedback": "dense"}),
    ("Test/Hanoi-3-v0", {}),
]


def singles(identity: str, n: int, **kwargs: Any) -> DummyVecEnv:
    """The same environments as Stable-Baselines3 would step them."""
    return DummyVecEnv([lambda: gym.make(identity, disable_env_checker=True, **kwargs).unwrapped] * n)


def random_actions(masks: Any, rng: np.random.Generator) -> Any:
    """Mostly allowed actions, the last ones (which end things) more often than not."""
    actions = [int(rng.choice(np.flatnonzero(mask))) if mask.any() else 0 for mask in masks]
    return np.array([int(rng.integers(masks.shape[1])) if rng.random() < 0.1 else action for action in actions])


def assert_same(left: Any, right: Any) -> None:
    """Equal values, dtypes and keys, whatever the order of keys."""
    if isinstance(left, dict):
        assert isinstance(right, dict)
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            assert_same(*pair)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert type(left) is type(right), (left, right)
        assert left == right


@pytest.mark.parametrize(("identity", "kwargs"), CASES, ids=str)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**31), n=st.sampled_from([1, 2, 7]), rng_seed=st.integers(0, 2**32 - 1))
def test_it_is_dummy_vec_env_over_single_environments(identity: str, kwargs: dict[str, Any], seed: int, n: int, rng_seed: int) -> None:
    mine, theirs = make_vec_env(identity, n, monitor=False, **kwargs), singles(identity, n, **kwargs)
    assert isinstance(mine, RecursiveVecEnv)
    assert mine.observation_space == theirs.observation_space
    assert mine.action_space == theirs.action_space
    rng = np.random.default_rng(rng_seed)
    for venv in (mine, theirs):
        venv.seed(seed)
    assert_same(mine.reset(), dict(theirs.reset()))
    assert_same(mine.reset_infos, theirs.reset_infos)
    ended = 0
    for step in range(80):
        np.testing.assert_array_equal(mine.action_masks(), np.stack(theirs.env_method("action_masks")))
        actions = random_actions(mine.action_masks(), rng)
        got, expected = mine.step(actions), theirs.step(actions)
        assert_same([dict(got[0]), *got[1:]], [dict(expected[0]), *expected[1:]])
        assert_same(mine.reset_infos, theirs.reset_infos)
        ended += int(got[2].sum())
        check_facts(mine, got[3], got[2])
        if step == 50:  # an explicit reset goes on with the streams, as it does there
            assert_same(mine.reset(), dict(theirs.reset()))
    assert ended > 0


def check_facts(venv: Any, infos: list[dict[str, Any]], dones: Any) -> None:
    """The arrays say what the infos say; of an environment that was reset, they name the new root and the old returns."""
    facts = venv.facts
    for i, info in enumerate(infos):
        described = venv.reset_infos[i] if dones[i] else info
        assert (facts.frame_id[i], facts.parent_id[i], facts.depth[i]) == (
            described["frame_id"],
            described["parent_id"],
            described["depth"],
        )
        assert ("reset", "step", "spawn", "return")[facts.event[i]] == described["event"]
        assert facts.n_returned[i] == len(info["returned"])
        for row, entry in enumerate(info["returned"]):
            assert {name: facts.returned[name][i, row].item() for name in facts.returned.dtype.names} == entry


def test_nothing_that_was_returned_is_used_again() -> None:
    venv = make_vec_env("RAO/Maze-20x20-v0", 3, seed=0, monitor=False, budget=15, feedback="dense")
    rng = np.random.default_rng(0)
    kept: list[Any] = []
    copies: list[Any] = []
    venv.reset()
    for _ in range(40):
        result = (*venv.step(random_actions(venv.env_method("action_masks")[0][None].repeat(3, 0), rng)), venv.facts)
        kept.append(result)
        copies.append(copy.deepcopy(result))
    for result, copied in zip(kept, copies, strict=True):
        assert_same(list(result), list(copied))


def test_the_callers_action_array_may_be_used_again_before_step_wait() -> None:
    venv, reference = (make_vec_env("RAO/Maze-5x5-v0", 2, seed=0, monitor=False) for _ in range(2))
    venv.reset()
    reference.reset()
    actions = np.array([1, 2])
    venv.step_async(actions)
    actions[:] = 10**9  # the kernels must never see this
    assert_same(list(venv.step_wait()), list(reference.step(np.array([1, 2]))))


def test_seeds_follow_stable_baselines3() -> None:
    venv = make_vec_env("RAO/Maze-10x10-v0", 3, seed=5)
    first = venv.reset()
    for i in range(3):
        observation, _ = gym.make("RAO/Maze-10x10-v0").reset(seed=5 + i)
        assert_same({key: array[i] for key, array in first.items()}, observation)
    second = venv.reset()
    assert not np.array_equal(first["task"], second["task"]), "a seed is used once"
    venv.seed(5)
    assert_same(venv.reset(), first)
    unseeded = [make_vec_env("RAO/Maze-10x10-v0", 1).reset()["task"].tobytes() for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    venv.seed(2**64)
    with pytest.raises(ValueError, match="a seed must be an integer"):
        venv.reset()


def test_options_reach_the_environments_once() -> None:
    layout, scenarios = "....\n....\n....", [((0, 0), (2, 3)), ((2, 0), (0, 3))]
    venv = make_vec_env("RAO/Maze-v0", 2, seed=0, layout=layout, scenarios=scenarios, block=2)
    place = venv.unwrapped.batch.state.place
    venv.set_options({"scenario": 1})
    venv.reset()
    assert place["start_row"].tolist() == [2, 2]
    venv.set_options([{"scenario": 0}, {"scenario": 1}])
    venv.reset()
    assert place["start_row"].tolist() == [0, 2]
    drawn = set()
    for _ in range(20):
        venv.reset()
        drawn |= set(place["start_row"].tolist())
    assert drawn == {0, 2}
    venv.set_options({"scene": 1})
    with pytest.raises(ValueError, match="unknown reset option"):
        venv.reset()


def test_it_refuses_steps_before_reset_and_wrong_actions() -> None:
    venv = make_vec_env("RAO/Maze-5x5-v0", 2)
    with pytest.raises(ResetNeeded):
        venv.step(np.array([0, 0]))
    venv.reset()
    for actions in (np.array([0, 9]), np.array([-1, 0]), np.array([0]), np.array([0.0, 1.0]), np.zeros((2, 1), int)):
        with pytest.raises(ValueError, match="actions must"):
            venv.step(actions)


def test_attributes_and_methods() -> None:
    venv = make_vec_env("RAO/Maze-20x20-v0", 4, seed=0)
    assert isinstance(venv, VecMonitor)
    venv.reset()
    assert venv.get_attr("spawn_actions", [1])[0].tolist() == [4, 5, 6, 7, 8]
    assert venv.get_attr("action_names")[0][4] == "spawn_north"
    assert venv.get_attr("spec")[0].id == "RAO/Maze-20x20-v0"
    assert venv.has_attr("action_masks")
    assert not venv.has_attr("nothing")
    assert is_masking_supported(venv)
    assert get_action_masks(venv).shape == (4, 9)
    assert [mask.tolist() for mask in venv.env_method("action_masks", indices=[2])] == [get_action_masks(venv)[2].tolist()]
    assert venv.env_is_wrapped(Monitor) == [False] * 4
    with pytest.raises(AttributeError, match="cannot be set"):
        venv.set_attr("budget", 3)
    with pytest.raises(AttributeError, match="action_masks, reset, get_state, set_state"):
        venv.env_method("render")
    twin = make_vec_env("RAO/Maze-20x20-v0", 4, spawn=False)
    assert twin.get_attr("spawn_actions")[0].tolist() == []
    assert twin.action_space.n == 4


def test_states_go_in_and_out() -> None:
    venv = make_vec_env("RAO/Maze-20x20-v0", 2, seed=0, budget=40)
    venv.reset()
    rng = np.random.default_rng(0)
    script = [random_actions(np.ones((1, 9), bool), rng)[0] for _ in range(60)]
    for action in script[:10]:
        venv.step(np.array([action, 0]))
    state = venv.env_method("get_state", indices=[0])[0]
    expected = [venv.step(np.array([action, 0])) for action in script]
    other = make_vec_env("RAO/Maze-20x20-v0", 2, budget=40)
    other.env_method("set_state", pickle.loads(pickle.dumps(state)))
    assert other.facts.frame_id.tolist() == [state["stack.frames"]["id"][state["stack.episodes"]["depth"]]] * 2
    for action, want in zip(script, expected, strict=True):
        got = other.step(np.array([action, action]))
        for i in range(2):
            assert_same({key: value[i] for key, value in got[0].items()}, {key: value[0] for key, value in want[0].items()})
            assert (got[1][i], got[2][i]) == (want[1][0], want[2][0])


def test_the_monitor_sees_true_episodes_and_dense_feedback_comes_on_top() -> None:
    def run(venv: VecEnv) -> tuple[list[Any], list[dict[str, Any]]]:
        venv.reset()
        rng = np.random.default_rng(0)
        rewards, ends = [], []
        for _ in range(100):
            _, reward, dones, infos = venv.step(rng.integers(4, size=3))
            rewards.append(reward)
            ends += [infos[i] for i in np.flatnonzero(dones)]
        return rewards, ends

    plain, plain_ends = run(make_vec_env("RAO/Maze-5x5-v0", 3, seed=0, feedback="dense", spawn=False))
    venv = make_vec_env("RAO/Maze-5x5-v0", 3, seed=0, dense_weight=0.5, spawn=False)
    assert isinstance(venv, VecDenseReward)
    shaped, ends = run(venv)
    assert plain_ends
    assert any(info["is_success"] for info in ends)
    for info, plain_info in zip(ends, plain_ends, strict=True):
        assert info["episode"]["r"] == plain_info["episode"]["r"] == float(info["is_success"])
        assert info["episode"]["l"] == info["tree"]["steps"]
    total = np.sum(shaped, dtype=np.float64) - np.sum(plain, dtype=np.float64)
    reference = make_vec_env("RAO/Maze-5x5-v0", 3, seed=0, feedback="dense", spawn=False)
    reference.reset()
    rng = np.random.default_rng(0)
    paid = sum(info["dense_reward"] for _ in range(100) for info in reference.step(rng.integers(4, size=3))[3])
    assert total == pytest.approx(0.5 * paid, abs=1e-4)
    with pytest.raises(ValueError, match=r"dense_weight=0\.5 adds dense feedback"):
        make_vec_env("RAO/Maze-5x5-v0", dense_weight=0.5, feedback="sparse")


def test_stock_tools_run_on_it() -> None:
    class Random:
        """What `evaluate_policy` needs of a model."""

        rng = np.random.default_rng(0)

        def predict(self, observation: Any, **_: Any) -> tuple[Any, None]:
            return random_actions(observation["action_mask"], self.rng), None

    venv = make_vec_env("RAO/Maze-5x5-v0", 3, seed=0)
    returns, lengths = evaluate_policy(Random(), venv, n_eval_episodes=12, return_episode_rewards=True)  # type: ignore[arg-type]
    assert len(returns) == len(lengths) == 12
    assert set(returns) <= {0.0, 1.0}
    assert max(lengths) <= 100
    normalized = VecNormalize(make_vec_env("RAO/Maze-5x5-v0", 2, seed=0), norm_obs_keys=["call"])
    normalized.reset()
    normalized.step(np.array([0, 0]))
    assert normalized.unwrapped.facts.frame_id.shape == (2,)


def test_other_environments_are_refused() -> None:
    with pytest.raises(ValueError, match="not a recursive environment of this suite"):
        make_vec_env("CartPole-v1")
    with pytest.raises(TypeError, match="unknown keyword argument 'spwan'"):
        make_vec_env("RAO/Maze-5x5-v0", spwan=False)
