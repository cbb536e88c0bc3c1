"""One recursion tree, several ways to run it: the same actions, results and statistics to the bit."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO

import rao_envs
from rao_agents import RecursivePPO, make_vec_env
from rao_agents.runners import Batched, Runner, Sequential, Solution, solve, solve_all
from rao_agents.runners.run import Plan
from rao_envs.algebra.reference import RecursiveSolver
from rao_envs.core.actors import draw

FAMILIES = [
    ("RAO/Maze-10x10-v0", {}),
    ("RAO/Algebra-depth4-v0", {}),
    ("RAO/LongSeq-v0", {"length": (100, 4_000), "window": 64, "query": ("needle", "count", "max")}),
    ("RAO/LongSeq-nested-320-v0", {}),
    ("RAO/Dialogue-20turn-v0", {"dependency": 0.2}),
    ("RAO/Relay-siblings-v0", {}),
    ("RAO/Rewrite-v0", {"levels": 2}),
]
every_family = pytest.mark.parametrize(("env_id", "kwargs"), FAMILIES, ids=[env_id.split("/")[1] for env_id, _ in FAMILIES])


class Keen:
    """Spawns where it may, more often than not; counts its frame's steps in its state."""

    batched = True

    def __init__(self, primitives: int, keenness: float = 4.0) -> None:
        self.primitives, self.keenness = primitives, keenness

    def __call__(self, observation: Any, masks: Any, states: Any, uniform: Any) -> Any:
        weights = np.atleast_2d(masks).astype(float)
        weights[:, self.primitives :] *= self.keenness
        counts = [(state or 0) + 1 for state in states]
        weights[:, 0] += 0.01 * (np.array(counts) % 3)
        return draw(weights, np.asarray(uniform)), counts


def keen(env_id: str, kwargs: dict[str, Any], keenness: float = 4.0) -> Keen:
    env: Any = gym.make(env_id, **kwargs).unwrapped
    return Keen(len(env.action_names) - len(env.spawn_actions), keenness)


def untrained(env_id: str, kwargs: dict[str, Any], **options: Any) -> RecursivePPO:
    """A network of random weights: nobody's mistake is as likely to hang on the last bit."""
    return RecursivePPO("MultiInputPolicy", make_vec_env(env_id, 2, 0, **kwargs), n_steps=8, batch_size=16, seed=0, device="cpu", **options)


def agree(agent: Any, env_id: str, seeds: list[int], runners: list[Runner], **options: Any) -> list[Solution]:
    """What all of them say."""
    expected = solve_all(agent, env_id, seeds, runner="sequential", **options)
    for runner in runners:
        for one, other in zip(expected, solve_all(agent, env_id, seeds, runner=runner, **options), strict=True):
            assert one.same_as(other), (runner.name, one, other)
    return expected


@every_family
@settings(max_examples=3)
@given(seed=st.integers(0, 2**63), slots=st.sampled_from([2, 3, 7, 64]))
def test_runners_agree_on_callables(env_id: str, kwargs: dict[str, Any], seed: int, slots: int) -> None:
    seeds = [seed, seed + 1, seed + 2]
    solutions = agree(keen(env_id, kwargs), env_id, seeds, [Batched(slots)], **kwargs)
    # What the environment itself says of the recorded actions.
    assert rao_envs.replay_all(env_id, {s.seed: s.episode.actions for s in solutions if s.episode}, **kwargs) == tuple(
        s.episode for s in solutions
    )


@every_family
@pytest.mark.parametrize("deterministic", [True, False])
def test_runners_agree_on_models(env_id: str, kwargs: dict[str, Any], deterministic: bool) -> None:
    model = untrained(env_id, kwargs)
    solutions = agree(model, env_id, list(range(6)), [Batched(3), Batched()], deterministic=deterministic, budget=60, **kwargs)
    assert len({s.episode.actions.tobytes() for s in solutions if s.episode}) > (0 if deterministic else 1)
    if deterministic:  # greedy actions are those of an evaluation, but for the last bit of a sum
        evaluation = rao_envs.evaluate(model, env_id, 6, budget=60, **kwargs)
        assert sum(s.episode == e for s, e in zip(solutions, evaluation.episodes, strict=True)) >= 5


@pytest.mark.parametrize(
    "options",
    [*({"state_transfer": mode} for mode in ("summary", "hidden", "attention")), {"state_transfer_kwargs": {"memory": 3}}],
    ids=str,
)
@pytest.mark.parametrize(("env_id", "kwargs"), [FAMILIES[3], FAMILIES[2]], ids=["nested", "longseq"])
def test_transferred_states_go_where_the_frames_go(env_id: str, kwargs: dict[str, Any], options: dict[str, Any]) -> None:
    kwargs = kwargs | {"observe_frame": True, "budget": 80}
    model = untrained(env_id, kwargs, **options)
    with pytest.MonkeyPatch.context() as patch:
        forks = count_forks(patch)
        agree(model, env_id, list(range(10)), [Batched(4), Batched()], deterministic=False, **kwargs)
    assert forks


def count_forks(patch: pytest.MonkeyPatch) -> list[int]:
    """Filled whenever children move into slots of their own."""
    from rao_envs.core.forest import Forest

    forks: list[int] = []
    step = Forest.step

    def counted(self: Forest, *arguments: Any) -> Any:
        change = step(self, *arguments)
        forks.extend(len(fork.children) for fork in change.forks)
        return change

    patch.setattr(Forest, "step", counted)
    return forks


def test_a_callable_has_one_state_for_every_frame() -> None:
    """The state is None exactly when a frame opens, and a parent's outlives its children."""
    seen: dict[tuple[int, ...], list[Any]] = {}

    def agent(observation: Any, mask: Any, state: Any, rng: np.random.Generator) -> tuple[int, Any]:
        opened = observation["call"][3] == 1.0
        assert opened == (state is None)
        state = state or (int(observation["frame"][0]), 0)
        assert state[0] == observation["frame"][0]
        seen.setdefault(state, []).append(opened)
        allowed = np.flatnonzero(mask)
        return int(rng.choice(allowed[-3:])), (state[0], state[1] + 1)

    agree(agent, "RAO/Algebra-depth4-v0", [1, 2, 3], [Batched(2), Batched(9)], observe_frame=True)
    assert len(seen) > 10 and {depth for depth, _ in seen} >= {0, 1, 2}


def test_an_environment_of_ones_own() -> None:
    """Fresh, or in the middle of an episode; it is left as it is."""
    env = gym.make("RAO/LongSeq-nested-320-v0")
    agent = keen("RAO/LongSeq-nested-320-v0", {})
    assert solve(agent, env, 4).same_as(solve(agent, "RAO/LongSeq-nested-320-v0", 4))
    env.reset(seed=9)
    env.step(int(env.unwrapped.spawn_actions[-1]))  # type: ignore[attr-defined]
    before = env.unwrapped.get_state()  # type: ignore[attr-defined]
    solutions = [solve(agent, env, 1, runner=runner) for runner in ("sequential", "batched")]
    assert solutions[0].same_as(solutions[1])
    after = env.unwrapped.get_state()  # type: ignore[attr-defined]
    assert all(np.array_equal(before[key], after[key]) for key in before)
    for action in solutions[0].episode.actions:  # type: ignore[union-attr]
        *_, terminated, truncated, info = env.step(action)
    assert (terminated or truncated) and info["is_success"] == solutions[0].success
    child = env.unwrapped
    child.reset(seed=9)
    child = child.spawn_all(int(child.spawn_actions[-1]))[1]  # type: ignore[attr-defined]
    child.reset()
    solution = solve(agent, child, 5)
    assert solution.episode is not None and solution.frames["frame_id"].min() == child.base_frame_id


def test_the_answer_in_words() -> None:
    env = gym.make("RAO/Algebra-v0", expressions=["(x + 1) - (x + 4)"], modulus=5)
    solution = solve(RecursiveSolver(modulus=5), env)
    assert solution.success and solution.answer == "2"


def test_time_limit_and_stop() -> None:
    def slow(observation: Any, mask: Any, state: Any) -> int:
        time.sleep(0.02)
        return int(np.flatnonzero(mask)[0])

    solve(slow, "RAO/Maze-20x20-v0", budget=1)  # kernels are compiled by whoever comes first
    late = solve(slow, "RAO/Maze-20x20-v0", time_limit=0.1)
    assert (late.status, late.episode, late.success, len(late.frames)) == ("timed out", None, False, 0)
    assert 0.1 <= late.seconds < 30
    asked: list[int] = []

    def stop() -> bool:
        asked.append(0)
        return len(asked) > 3

    stopped = solve_all(slow, "RAO/Maze-20x20-v0", 3, should_stop=stop)
    assert [s.status for s in stopped] == ["cancelled"] * 3
    # Those that were done keep what they have.
    short = solve_all(Keen(4), "RAO/Maze-5x5-v0", 40, budget=3, should_stop=lambda: False)
    assert {s.status for s in short} == {"done"}


def test_an_agents_error_names_the_frame() -> None:
    def faulty(observation: Any, mask: Any, state: Any) -> int:
        return 10_000

    with pytest.raises(ValueError, match=r"returned 10000 at seed 3, frame 0, step 0"):
        solve(faulty, "RAO/Maze-5x5-v0", 3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("RAO/Maze-5x5-v0",), {"runner": "parallel"}, ValueError, "'sequential', 'batched', 'ray'"),
        (("RAO/Maze-5x5-v0",), {"rows": 0}, ValueError, "rows must be an integer of at least 1"),
        (("RAO/Maze-5x5-v0",), {"time_limit": -1}, ValueError, "time_limit must be"),
        (("RAO/Maze-5x5-v0",), {"deterministic": "yes"}, ValueError, "deterministic must be True or False"),
        (("RAO/Maze-5x5-v0", -1), {}, ValueError, r"\[0, 2\*\*64\)"),
        (("RAO/Maze-5x5-v0",), {"colour": 1}, TypeError, "unknown keyword argument 'colour'"),
        (("CartPole-v1",), {}, ValueError, "rao_envs.evaluate plays any"),
        ((7,), {}, TypeError, "an environment is named by an id"),
    ],
)
def test_wrong_use(arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        solve(Keen(4), *arguments, **options)


def test_wrong_use_of_environments() -> None:
    env = gym.make("RAO/Maze-5x5-v0")
    with pytest.raises(TypeError, match="budget: an environment that is made already"):
        solve(Keen(4), env, budget=3)
    with pytest.raises(ValueError, match="RecordEpisodeStatistics may change"):
        solve(Keen(4), gym.wrappers.RecordEpisodeStatistics(env))
    with pytest.raises(ValueError, match="no recursive environment"):
        solve(Keen(4), gym.make("CartPole-v1").unwrapped)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="one task"):
        solve_all(Keen(4), env, 3)
    with pytest.raises(ValueError, match="slots must be"):
        Batched(0)
    with pytest.raises(ValueError, match=r"acts in Discrete\(9\), the environment has 11"):
        solve(untrained("RAO/Maze-5x5-v0", {}), "RAO/Algebra-depth4-v0")
    with pytest.raises(NotImplementedError):
        Runner().run(Plan(None, None, [], True, 1, None, bool, None))  # type: ignore[arg-type]


def test_a_policy_that_remembers_whole_episodes_is_refused() -> None:
    from sb3_contrib import RecurrentPPO

    env = make_vec_env("RAO/Maze-5x5-v0", 1, 0)
    model = RecurrentPPO("MultiInputLstmPolicy", env, n_steps=8, batch_size=8, device="cpu")
    with pytest.raises(ValueError, match="remembers a whole episode"):
        solve(model, "RAO/Maze-5x5-v0")
    twin = RecurrentPPO("MultiInputLstmPolicy", make_vec_env("RAO/Maze-5x5-v0", 1, 0, spawn=False), n_steps=8, batch_size=8, device="cpu")
    assert solve(twin, "RAO/Maze-5x5-v0", spawn=False, budget=20).status == "done"


def test_plain_sb3_models_and_normalised_ones() -> None:
    from stable_baselines3.common.vec_env import VecNormalize

    venv = VecNormalize(make_vec_env("RAO/Algebra-depth4-v0", 2, 0), norm_obs_keys=["task"])
    model = PPO("MultiInputPolicy", venv, n_steps=16, batch_size=16, device="cpu").learn(32)
    agree(model, "RAO/Algebra-depth4-v0", [0, 1], [Batched()], budget=30)


@settings(max_examples=15)
@given(budget=st.integers(2, 60), seed=st.integers(0, 2**32), slots=st.sampled_from([3, 16, 64]), keenness=st.sampled_from([1.0, 30.0]))
def test_siblings_together_never_exceed_their_parents_budget(budget: int, seed: int, slots: int, keenness: float) -> None:
    """Whoever runs beside whom: every sub-tree stays within what was reserved for it, so that the tree stays within the root's."""
    env_id = "RAO/Algebra-depth8-v0"
    agent = keen(env_id, {})
    agent.keenness = keenness
    (solution,) = solve_all(agent, env_id, [seed], runner=Batched(slots), budget=budget, max_depth=3)
    frames = solution.frames
    assert solution.episode is not None and solution.episode.steps <= budget and frames["depth"].max() <= 3
    spent = dict(zip(frames["frame_id"].tolist(), frames["steps"].tolist(), strict=True))
    below: dict[int, int] = {}
    for frame in frames:
        below[int(frame["parent_id"])] = below.get(int(frame["parent_id"]), 0) + int(frame["steps"])
    assert all(below[parent] < spent[parent] for parent in below if parent >= 0)
    assert solution.episode.nodes == len(frames) == len(spent)


def test_batching_saves_forward_passes() -> None:
    """The wavefront's number of passes is near the critical path where rows suffice."""

    def agent(observation: Any, mask: Any, state: Any) -> int:
        return int(np.flatnonzero(mask)[-1])  # all children at once wherever there are any

    alone = solve(agent, "RAO/LongSeq-nested-320-v0", 3, runner=Sequential())
    wave = solve(agent, "RAO/LongSeq-nested-320-v0", 3, runner=Batched(400))
    assert alone.episode is not None and alone.waves == alone.episode.steps
    assert wave.waves == alone.episode.critical_path < alone.waves / 3


@pytest.mark.parametrize("rows", [1, 2])
def test_frames_that_share_the_only_row_take_turns(rows: int) -> None:
    env_id, kwargs = FAMILIES[3]
    model = untrained(env_id, kwargs)
    with pytest.MonkeyPatch.context() as patch:
        forks = count_forks(patch)
        agree(model, env_id, list(range(6)), [Batched()], deterministic=False, rows=rows, budget=60, **kwargs)
    assert forks


def test_a_detached_child_is_its_own_task_from_the_start() -> None:
    """Before its first reset it stands at its beginning; when it has ended, there is nothing left of it to solve."""
    env: Any = gym.make("RAO/LongSeq-nested-320-v0").unwrapped
    env.reset(seed=9)
    child = env.spawn_all(int(env.spawn_actions[-1]))[1]
    agent = keen("RAO/LongSeq-nested-320-v0", {})
    fresh = solve(agent, child, 5)
    assert fresh.frames["frame_id"].min() == child.base_frame_id > 0
    with pytest.raises(RuntimeError, match="are out: join them first"):
        solve(agent, env)
    child.reset()
    assert fresh.same_as(solve(agent, child, 5))
    for action in fresh.episode.actions:  # type: ignore[union-attr]
        child.step(action)
    with pytest.raises(ValueError, match=f"detached child frame {child.base_frame_id} has ended"):
        solve(agent, child, 5)


def test_environments_without_a_vector_environment() -> None:
    """A class's own subclass, a function, a registration of the single environment alone: one way to make one is enough."""
    from tests.envs.third_party import RangeMaxEnv

    class Mine(RangeMaxEnv):
        pass

    expected = solve(Keen(2), RangeMaxEnv, 3, levels=2)
    assert expected.episode is not None and expected.episode.nodes > 1
    gym.register("Test/Alone-v0", Mine, kwargs={"levels": 2})
    gym.register("Test/Timed-v0", Mine, kwargs={"levels": 2}, max_episode_steps=5)
    try:
        for runner in ("sequential", "batched"):
            assert expected.same_as(solve(Keen(2), Mine, 3, runner=runner, levels=2))
            assert expected.same_as(solve(Keen(2), lambda: Mine(levels=2), 3, runner=runner))
            assert expected.same_as(solve(Keen(2), "Test/Alone-v0", 3, runner=runner))
        with pytest.raises(ValueError, match="TimeLimit may change"):
            solve(Keen(2), "Test/Timed-v0")
        with pytest.raises(ValueError, match="FlattenObservation may change"):
            solve(Keen(2), lambda: gym.wrappers.FlattenObservation(Mine()))
    finally:
        for identity in ("Test/Alone-v0", "Test/Timed-v0"):
            del gym.registry[identity]


def test_solutions_are_compared_by_their_bits() -> None:
    solution = solve(Keen(4), "RAO/Maze-5x5-v0", budget=5)
    frames = solution.frames.copy()
    frames["value"] = np.nan
    nameless = dataclasses.replace(solution, frames=frames)
    assert nameless.same_as(dataclasses.replace(solution, frames=frames.copy())) and not nameless.same_as(solution)
    assert not solution.same_as(dataclasses.replace(solution, frames=frames[:0]))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"should_stop": 3}, TypeError, "should_stop must be a function"),
        ({"progress": "bar"}, TypeError, "progress must be True, False, None or a function"),
        ({"time_limit": True}, ValueError, "time_limit must be a number of seconds"),
        ({"time_limit": float("nan")}, ValueError, "time_limit must be a number of seconds"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        solve(Keen(4), "RAO/Maze-5x5-v0", **options)


def test_a_time_limit_may_be_any_number() -> None:
    assert solve(Keen(4), "RAO/Maze-5x5-v0", budget=5, time_limit=np.int64(60)).status == "done"
