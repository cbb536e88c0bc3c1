"""PettingZoo's own tests over the families, and that its views show what the single environment does."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs
from rao_envs.multiagent import FramesAEC
from tests.envs.test_forest import inline, play
from tests.envs.test_protocol import Case, habits

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo's of its own example
    from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, render_test, seed_test

IDS = [
    "RAO/Maze-10x10-v0",
    "RAO/Algebra-depth4-v0",
    "RAO/Rewrite-v0",
    "RAO/LongSeq-10k-v0",
    "RAO/LongSeq-nested-320-v0",
    "RAO/Dialogue-10turn-v0",
    "RAO/Relay-siblings-v0",
    "Test/RangeMax-8-v0",
]
every_family = pytest.mark.parametrize("env_id", IDS, ids=lambda identity: identity.split("/")[1])


@pytest.fixture
def unwarned() -> Any:
    """What PettingZoo warns of and we mean: observations in dictionaries, a pool that no episode uses up, nothing to do after the end."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Observation space for each agent probably should be")
        warnings.filterwarnings("ignore", message="Observation is not a NumPy array")
        warnings.filterwarnings("ignore", message="No agents present but not all possible_agents")
        warnings.filterwarnings("ignore", message="Action mask numpy array is all zeros")
        yield


@every_family
def test_pettingzoos_aec_tests(env_id: str, unwarned: Any) -> None:
    api_test(rao_envs.aec_env(env_id, budget=40), num_cycles=60)
    seed_test(lambda: rao_envs.aec_env(env_id, budget=40), num_cycles=30)


@every_family
def test_pettingzoos_parallel_tests(env_id: str, unwarned: Any) -> None:
    parallel_api_test(rao_envs.parallel_env(env_id, budget=40), num_cycles=60)
    parallel_seed_test(lambda: rao_envs.parallel_env(env_id, budget=40), num_cycles=30)


def test_pettingzoos_test_of_max_cycles() -> None:
    def twin(view: Any) -> Any:
        # Random steps, which end nothing before their number does.
        return lambda max_cycles: view("RAO/Maze-20x20-v0", max_cycles=max_cycles, spawn=False)

    max_cycles_test(SimpleNamespace(env=twin(rao_envs.aec_env), parallel_env=twin(rao_envs.parallel_env)))


@pytest.mark.parametrize("env_id", [identity for identity in IDS if identity.startswith("RAO/")])
def test_pettingzoos_test_of_pictures(env_id: str) -> None:
    render_test(lambda render_mode: rao_envs.aec_env(env_id, render_mode=render_mode))
    env = rao_envs.parallel_env(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(4):
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        assert env.render().shape[2] == 3
        if not env.agents:
            break
    env.close()


@every_family
@settings(max_examples=5)
@given(seed=st.integers(0, 2**63), style=habits)
def test_the_parallel_view_does_what_the_single_environment_does(env_id: str, seed: int, style: Any) -> None:
    """Outcomes, statistics, and as many steps as the critical path."""
    case = Case(env_id, {})
    expected = inline(case, seed, style)
    outcomes = {entry[0]: entry for entry in expected.returned}
    env = rao_envs.parallel_env(env_id, observe_frame=True)
    primitives = len(env.env.action_names) - len(env.env.spawn_actions)
    observations, infos = env.reset(seed=seed)
    own: dict[str, int] = {}
    ticks, ended = 0, {}
    while env.agents:
        actions = {}
        for agent in env.agents:
            if not infos[agent]["waiting"]:
                step = own.setdefault(agent, 0)
                own[agent] += 1
                actions[agent] = play(observations[agent], style, primitives, seed, infos[agent]["frame_id"], step)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        ticks += 1
        assert rewards.keys() == terminated.keys() == truncated.keys() == infos.keys() == observations.keys()
        for agent in infos:
            assert env.observation_space(agent).contains(observations[agent])
            if terminated[agent] or truncated[agent]:
                ended[infos[agent]["frame_id"]] = infos[agent] | {"reward": rewards[agent]}
    assert ticks == expected.tree["critical_path"] and ended[0]["tree"] == expected.tree
    assert ended.keys() == outcomes.keys() and len(ended) == len(own)
    for frame, info in ended.items():
        told = (info["parent_id"], info["value"], np.float32(info["reward"]), info["steps"], info["critical_path"], info["is_success"])
        entry = outcomes[frame]
        assert told == (entry[1], entry[2], np.float32(entry[3]), entry[6], entry[7], entry[10])


@every_family
@settings(max_examples=5)
@given(seed=st.integers(0, 2**63), style=habits)
def test_the_aec_view_does_what_the_single_environment_does(env_id: str, seed: int, style: Any) -> None:
    expected = inline(Case(env_id, {}), seed, style)
    env = rao_envs.aec_env(env_id, observe_frame=True)
    env.reset(seed=seed)
    primitives = len(env.unwrapped.env.action_names) - len(env.unwrapped.env.spawn_actions)  # type: ignore[attr-defined]
    actions: list[int] = []
    own: dict[str, int] = {}
    rewards: dict[int, float] = {}
    tree = None
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        if terminated or truncated:
            rewards[info["frame_id"]] = reward
            tree = info.get("tree", tree)
            env.step(None)
            continue
        actions.append(play(observation, style, primitives, seed, info["frame_id"], own.setdefault(agent, 0)))
        own[agent] += 1
        env.step(actions[-1])
    assert actions == expected.actions and tree == expected.tree
    assert rewards == {entry[0]: pytest.approx(entry[3]) for entry in expected.returned}
    assert list(own) == [f"frame_{k}" for k in range(len(own))]


def test_the_loop_of_pettingzoos_pages() -> None:
    env = rao_envs.aec_env("RAO/Maze-10x10-v0", budget=60)
    env.reset(seed=42)
    steps = 0
    for agent in env.agent_iter():
        observation, _, termination, truncation, _ = env.last()
        action = None if termination or truncation else env.action_space(agent).sample(observation["action_mask"])
        steps += action is not None
        env.step(action)
    assert 1 < steps <= 60 and not env.agents


def test_names_are_never_used_twice_and_the_pool_suffices() -> None:
    """A budget of spawns: every step opens a frame where it may."""
    env = rao_envs.parallel_env("RAO/Algebra-depth8-v0", budget=50)
    widest = 0
    for seed in range(30):
        _, infos = env.reset(seed=seed)
        seen, dead = set(env.agents), set()
        while env.agents:
            actions = {a: int(np.flatnonzero(infos[a]["action_mask"])[-1]) for a in env.agents if not infos[a]["waiting"]}
            widest = max(widest, len(actions))
            _, _, terminated, truncated, infos = env.step(actions)
            dead |= {a for a in terminated if terminated[a] or truncated[a]}
            assert not dead & set(env.agents)
            seen |= set(env.agents)
        assert seen <= set(env.possible_agents) and dead == seen
    assert widest > 4


def test_copies_and_pickles_go_on_by_themselves() -> None:
    env = rao_envs.aec_env("RAO/Maze-10x10-v0")
    env.reset(seed=1)
    env.step(int(env.unwrapped.env.spawn_actions[0]))  # type: ignore[attr-defined]
    twin, other = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    for view in (env, twin, other):
        view.step(1)
    assert env.agents == twin.agents == other.agents
    assert all(np.array_equal(env.last()[0][key], other.last()[0][key]) for key in env.last()[0])


def test_wrong_use() -> None:
    with pytest.raises(gym.error.NameNotFound, match="Maze-20x20"):
        rao_envs.aec_env("RAO/Mace-20x20-v0")
    with pytest.raises(ValueError, match="no recursive environment"):
        rao_envs.parallel_env("CartPole-v1")
    with pytest.raises(TypeError, match="max_cycles is another name for budget"):
        rao_envs.parallel_env("RAO/Maze-5x5-v0", max_cycles=3, budget=3)
    with pytest.raises(TypeError, match="an environment is named by"):
        rao_envs.aec_env(3)  # type: ignore[arg-type]
    env = rao_envs.parallel_env("RAO/Maze-5x5-v0")
    with pytest.raises(ResetNeeded, match="no agent is live"):
        env.step({})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="frame_0 is live and does not wait"):
        env.step({})
    with pytest.raises(ValueError, match="99 is not an action"):
        env.step({"frame_0": 99})
    with pytest.raises(KeyError, match="they are frame_0 to"):
        env.action_space("wolf_0")
    aec = rao_envs.aec_env("RAO/Maze-5x5-v0")
    aec.reset(seed=0)
    with pytest.raises(KeyError, match="live agents: frame_0"):
        aec.observe("frame_7")
    with pytest.raises(ValueError, match="-1 is not an action"):
        aec.step(-1)
    assert isinstance(aec.unwrapped, FramesAEC) and "Maze" in str(aec)


@pytest.mark.parametrize("view", [rao_envs.aec_env, rao_envs.parallel_env])
def test_wrappers_inside_are_not_left_out_in_silence(view: Any) -> None:
    env = gym.make("RAO/Maze-5x5-v0")
    wrapped = gym.wrappers.TimeLimit(env, 3)
    spec = wrapped.spec
    for source in (lambda: wrapped, spec, lambda: gym.wrappers.FlattenObservation(env)):
        with pytest.raises(ValueError, match=r"(TimeLimit|FlattenObservation) may change what the agent sees or does"):
            view(source)
    for source in (lambda: None, lambda: 3, lambda: gym.make_vec("CartPole-v1", 1)):
        with pytest.raises(ValueError, match="is no recursive environment: only those have frames"):
            view(source)
    assert view(lambda: env).possible_agents


def test_the_parallel_view_keeps_nothing_of_agents_that_have_gone() -> None:
    env = rao_envs.parallel_env("RAO/LongSeq-nested-320-v0")
    _, infos = env.reset(seed=1)
    names = {"frame_0"}
    while env.agents:
        acting = [agent for agent in env.agents if not infos[agent]["waiting"]]
        *_, infos = env.step({agent: int(np.flatnonzero(infos[agent]["action_mask"])[-1]) for agent in acting})
        names |= set(infos)
        assert set(env._infos) == set(env._seen) == set(env.agents)
    assert len(names) > 20


def test_the_example_says_what_it_wants() -> None:
    example = Path(__file__).parents[2] / "examples" / "specialists.py"
    done = subprocess.run([sys.executable, example, "--episodes", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--episodes must be at least 1, got 0" in done.stderr


def test_importing_the_benchmark_does_not_import_pettingzoo() -> None:
    program = "import sys, rao_envs; sys.exit('pettingzoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'wolf'"):
        rao_envs.wolf  # type: ignore[attr-defined]  # noqa: B018
