"""The evaluation protocol: one result in every batch size and order, traces that replay, honest files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs
from rao_envs import Episode, Evaluation, evaluate, replay, replay_all
from rao_envs.core import actors
from rao_envs.core.actors import RandomAgent, draw, lanes_of, uniforms
from rao_envs.core.episodes import decode_actions, encode_actions, mean_interval, plain, t_95, wilson
from rao_envs.maze.env import MazeEnv, MazeVectorEnv
from tests.envs import third_party

third_party.register()

MAZE = "RAO/Maze-10x10-v0"
SEEDS = [12, 5, 2**63 + 3, 76, 0, 1000, 3, 140, 77, 4, 19, 83]  # 12, 76, 140 and others share a lane
SHORT = {"budget": 30}
random_agent = RandomAgent()


def pick_first(observation: Any, mask: Any, state: Any) -> int:
    """The first allowed action: no chance, no memory."""
    return int(np.argmax(mask))


def model(kind: str, env_id: str = MAZE, **kwargs: Any) -> Any:
    """An untrained model with a network of odd width: those differ by where in a batch a row stands."""
    contrib = pytest.importorskip("sb3_contrib")
    sb3 = pytest.importorskip("stable_baselines3")
    env = gym.make(env_id, **kwargs)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, gym.spaces.Dict) else "MlpPolicy"
    options: dict[str, Any] = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [37, 29]}}
    if kind == "DQN":
        return sb3.DQN(policy, env, buffer_size=10, **options)
    options["policy_kwargs"]["ortho_init"] = False  # or all actions would be nearly equally likely
    if kind == "RecurrentPPO":
        options["policy_kwargs"] |= {"lstm_hidden_size": 19, "n_lstm_layers": 2, "net_arch": [21]}
        agent = contrib.RecurrentPPO(policy.replace("Policy", "LstmPolicy"), env, n_steps=128, **options)
    else:
        maker = contrib.MaskablePPO if kind == "MaskablePPO" else getattr(sb3, kind)
        agent = maker(policy, env, n_steps=64, **options)
    agent.policy.action_net.bias.data.zero_()  # the observation decides, not the bias
    return agent


@pytest.fixture(scope="module")
def maskable() -> Any:
    return model("MaskablePPO")


@pytest.fixture(scope="module")
def recurrent() -> Any:
    return model("RecurrentPPO")


# -- the same result however it is computed ------------------------------------------------------------------


def assert_invariant(agent: Any, deterministic: bool, **kwargs: Any) -> Evaluation:
    reference = evaluate(agent, MAZE, SEEDS, deterministic=deterministic, batch_size=7, **SHORT, **kwargs)
    assert [episode.seed for episode in reference.episodes] == SEEDS
    for batch_size in (1, 64):
        other = evaluate(agent, MAZE, SEEDS, deterministic=deterministic, batch_size=batch_size, **SHORT, **kwargs)
        assert other == reference
    backwards = evaluate(agent, MAZE, SEEDS[::-1], deterministic=deterministic, batch_size=5, **SHORT, **kwargs)
    assert backwards.episodes == reference.episodes[::-1]
    alone = evaluate(agent, MAZE, SEEDS[2:3], deterministic=deterministic, **SHORT, **kwargs)
    assert alone.episodes == reference.episodes[2:3]
    return reference


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("kind", ["MaskablePPO", "PPO", "A2C", "RecurrentPPO"])
def test_models_give_the_same_episodes_in_any_batch_size_and_order(kind: str, deterministic: bool) -> None:
    reference = assert_invariant(model(kind), deterministic)
    assert len({episode.actions.tobytes() for episode in reference.episodes}) > 1


def test_sampled_episodes_depend_on_no_global_generator(maskable: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002  (what must not matter)
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = evaluate(maskable, MAZE, SEEDS, deterministic=False, **SHORT)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    torch.manual_seed(2)
    assert evaluate(maskable, MAZE, SEEDS, deterministic=False, **SHORT) == first
    assert evaluate(maskable, MAZE, SEEDS, deterministic=True, **SHORT).episodes != first.episodes


class RowPolicy:
    """A model whose answers hang on what they must not: a row's position, and how many rows there are."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.policy = self
        self.batches: set[int] = set()

    def obs_to_tensor(self, observation: Any) -> Any:
        raise AssertionError("only sampling needs tensors")

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, Any]:
        count = len(observation["task"])
        self.batches.add(count)
        return (np.arange(count) * 7 + count) % 4, None


def test_an_episode_always_sits_in_the_same_row_of_a_batch_of_the_same_size() -> None:
    agent = RowPolicy(gym.make(MAZE))
    reference = assert_invariant(agent, True)
    assert agent.batches == {actors.ROWS}
    assert len({episode.actions[0] for episode in reference.episodes}) > 1


def test_slots_that_never_get_an_episode_are_left_alone() -> None:
    identity = next(iter(third_party.IDS))  # in plain Python: a state that was never reset is an error there
    lane = lanes_of(np.arange(3000, dtype=np.uint64), actors.ROWS)
    seeds = np.flatnonzero(lane == lane[0])[:5].tolist()
    agent = RowPolicy(gym.make(identity))
    together = evaluate(agent, identity, seeds, budget=9)
    assert together.episodes == tuple(evaluate(agent, identity, [k], budget=9).episodes[0] for k in seeds)


def test_consecutive_seeds_take_different_lanes() -> None:
    for start in (0, 128, 2**40):
        seeds = np.arange(start, start + 64, dtype=np.uint64)
        assert sorted(lanes_of(seeds, 64).tolist()) == list(range(64))
    assert not lanes_of(np.arange(5, dtype=np.uint64), 1).any()
    spread = lanes_of(np.arange(0, 64 * 64 * 64, 64, dtype=np.uint64), 64)  # no arithmetic progression piles up
    assert np.bincount(spread, minlength=64).max() <= 2 * len(spread) / 64


@pytest.mark.parametrize("agent", [random_agent, pick_first], ids=["batched", "single"])
def test_callables_give_the_same_episodes_in_any_batch_size_and_order(agent: Any) -> None:
    assert_invariant(agent, True)


def test_single_environments_give_the_same_episodes_as_the_batch(maskable: Any) -> None:
    def factory(**kwargs: Any) -> gym.Env[Any, Any]:
        return gym.make(MAZE, **kwargs)

    for agent in (random_agent, maskable):
        native = evaluate(agent, MAZE, SEEDS, deterministic=False, **SHORT)
        single = evaluate(agent, factory, SEEDS, deterministic=False, batch_size=5, **SHORT)
        assert single.episodes == native.episodes
        assert single.env_id.endswith("factory")


@pytest.mark.parametrize(
    "source",
    ["RAO/Maze-10x10", "rao_envs:RAO/Maze-10x10-v0", gym.spec(MAZE), MazeVectorEnv, MazeEnv],
    ids=str,
)
def test_environments_may_be_named_in_several_ways(source: Any) -> None:
    kwargs = {"rows": 10, "cols": 10} if isinstance(source, type) else {}
    assert evaluate(random_agent, source, 9, **kwargs).episodes == evaluate(random_agent, MAZE, 9).episodes


def test_third_party_environments_run_natively_and_singly() -> None:
    for identity in third_party.IDS:
        native = evaluate(random_agent, identity, 8, batch_size=3)

        def single(identity: str = identity) -> gym.Env[Any, Any]:
            return gym.make(identity)

        assert evaluate(random_agent, single, 8).episodes == native.episodes
        assert max(episode.nodes for episode in native.episodes) > 1


def test_a_plain_gymnasium_environment_can_be_evaluated() -> None:
    def balance(observation: Any, mask: Any, state: Any) -> int:
        return int(observation[2] + observation[3] > 0)

    result = evaluate(balance, "CartPole-v1", 5, batch_size=2)
    summary = result.summary()
    assert summary["success"] is None
    assert summary["steps_of_successes"] is None
    assert all(e.return_ == e.steps == e.critical_path and e.nodes == 1 for e in result.episodes)
    assert result.episodes[0].steps > 100  # balanced for long: actions are longer than the log's first size
    assert replay("CartPole-v1", 3, result.episodes[3].actions) == result.episodes[3]
    assert "-" in str(result)


# -- what models are asked -----------------------------------------------------------------------------------


def by_hand(agent: Any, seed: int, *, masked: bool = False, **kwargs: Any) -> list[int]:
    """The greedy actions of one episode, as a user of Stable-Baselines3 gets them."""
    env = gym.make(MAZE, **kwargs)
    observation, _ = env.reset(seed=seed)
    actions, state, start, done = [], None, np.ones(1, np.bool_), False
    while not done:
        options = {"action_masks": env.unwrapped.action_masks()} if masked else {}  # type: ignore[attr-defined]
        action, state = agent.predict(observation, state=state, episode_start=start, deterministic=True, **options)
        actions.append(int(action))
        observation, _, terminated, truncated, _ = env.step(action)
        done, start = terminated or truncated, np.zeros(1, np.bool_)
    return actions


@pytest.mark.parametrize("kind", ["MaskablePPO", "PPO", "DQN", "RecurrentPPO"])
def test_greedy_actions_are_what_predict_says(kind: str) -> None:
    agent = model(kind)
    for episode in evaluate(agent, MAZE, 6, batch_size=4, **SHORT).episodes:
        assert episode.actions.tolist() == by_hand(agent, episode.seed, masked=kind == "MaskablePPO", **SHORT)


def test_greedy_actions_come_from_whatever_predict_a_model_has(maskable: Any) -> None:
    """Its class's, a decorated one, or one that was put in its place."""
    import copy
    import functools

    first = functools.partial(by_hand, seed=0, masked=True)
    reference = evaluate(maskable, MAZE, 1).episodes[0].actions.tolist()
    base = type(maskable)

    def contrary(
        observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False, action_masks: Any = None
    ) -> Any:
        return np.argmax(action_masks, axis=-1), None

    replaced = copy.copy(maskable)
    replaced.predict = contrary
    contrary.__module__ = base.predict.__module__
    disguised = copy.copy(maskable)
    disguised.__class__ = type("Disguised", (base,), {"predict": functools.wraps(base.predict)(lambda self, *a, **k: contrary(*a, **k))})
    for model in (replaced, disguised):
        taken = evaluate(model, MAZE, 1).episodes[0].actions.tolist()
        assert taken == first(model) != reference


def test_a_policy_alone_is_an_agent_too(maskable: Any) -> None:
    assert evaluate(maskable.policy, MAZE, 3, **SHORT).episodes == evaluate(maskable, MAZE, 3, **SHORT).episodes


def test_maskable_models_take_allowed_actions_only_and_others_do_not_know(maskable: Any) -> None:
    def forbidden(agent: Any) -> int:
        count = 0
        for episode in evaluate(agent, MAZE, 4, deterministic=False, **SHORT).episodes:
            env = gym.make(MAZE, **SHORT)
            env.reset(seed=episode.seed)
            for action in episode.actions:
                count += not env.unwrapped.action_masks()[action]  # type: ignore[attr-defined]
                env.step(action)
        return count

    assert forbidden(maskable) == 0
    assert forbidden(model("PPO")) > 0


def test_sampling_follows_the_policy(maskable: Any) -> None:
    result = evaluate(maskable, MAZE, range(1500), deterministic=False, budget=1)
    observations: dict[str, list[Any]] = {"task": [], "results": [], "call": [], "action_mask": []}
    env = gym.make(MAZE, budget=1)
    for seed in range(1500):
        observation, _ = env.reset(seed=seed)
        for key, value in observation.items():
            observations[key].append(value)
    batch = {key: np.stack(values) for key, values in observations.items()}
    tensors, _ = maskable.policy.obs_to_tensor(batch)
    distribution = maskable.policy.get_distribution(tensors, action_masks=batch["action_mask"].astype(bool))
    expected = distribution.distribution.probs.detach().numpy().sum(axis=0)
    counts = np.bincount([int(episode.actions[0]) for episode in result.episodes], minlength=9)
    seen = expected > 5
    # Chi-square with at most 8 degrees of freedom: 26.1 has probability 0.001, and the seeds are fixed.
    assert ((counts - expected)[seen] ** 2 / expected[seen]).sum() < 26.1
    assert counts[~seen].sum() <= 15


def test_the_memory_of_recurrent_models_is_their_episodes_own(recurrent: Any) -> None:
    together = evaluate(recurrent, MAZE, 10, batch_size=3, deterministic=False, **SHORT)
    for k in (0, 9):
        alone = evaluate(recurrent, MAZE, [k], deterministic=False, **SHORT)
        assert alone.episodes[0] == together.episodes[k]


def test_attached_normalisation_is_applied() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    normaliser = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]), training=False)
    normaliser.obs_rms.mean[:] = [2.0, -3.0, 3.0, -2.0]
    agent = sb3.PPO("MlpPolicy", normaliser, n_steps=64, seed=1, device="cpu", policy_kwargs={"ortho_init": False})
    env = gym.make("CartPole-v1")

    def by_hand(look: Callable[[Any], Any]) -> list[int]:
        observation, _ = env.reset(seed=4)
        actions, done = [], False
        while not done:
            action, _ = agent.predict(look(observation), deterministic=True)
            actions.append(int(action))
            observation, _, terminated, truncated, _ = env.step(int(action))
            done = terminated or truncated
        return actions

    expected = by_hand(normaliser.normalize_obs)
    assert expected != by_hand(lambda observation: observation)
    assert evaluate(agent, "CartPole-v1", [4]).episodes[0].actions.tolist() == expected


def test_models_that_do_not_fit_are_refused(maskable: Any) -> None:
    with pytest.raises(ValueError, match=r"acts in Discrete\(9\), the environment has 4"):
        evaluate(maskable, MAZE, 2, spawn=False)
    other, own = (gym.make(MAZE, radius=radius).observation_space["task"].shape for radius in (3, 4))  # type: ignore[index]
    with pytest.raises(ValueError, match=re.escape(f"'task' is Box{other} here, it expects Box{own}")):
        evaluate(maskable, MAZE, 2, radius=3)
    stranger = model("PPO", "CartPole-v1")
    with pytest.raises(ValueError, match="PPO acts in"):
        evaluate(stranger, MAZE, 2)
    with pytest.raises(ValueError, match=r"no action probabilities.*deterministic=True"):
        evaluate(model("DQN"), MAZE, 2, deterministic=False)


def test_a_missing_observation_is_named() -> None:
    space = gym.spaces.Dict({"task": gym.spaces.Box(0, 1, (3,)), "notes": gym.spaces.Discrete(4)})
    given = gym.spaces.Dict({"task": gym.spaces.Box(0, 1, (3,)), "call": gym.spaces.Discrete(4)})
    assert actors.differences(space, given) == ["it expects 'notes', the environment gives 'call', 'task'"]
    assert actors.differences(given["call"], gym.spaces.Discrete(5)) == ["the observation is Discrete(5) here, it expects Discrete(4)"]
    smaller = gym.spaces.Dict({"task": gym.spaces.Box(0, 1, (3,))})
    assert actors.differences(smaller, given) == []


# -- callables -----------------------------------------------------------------------------------------------


def test_callables_see_their_observation_mask_and_state() -> None:
    env = gym.make(MAZE)
    seen: list[Any] = []

    def agent(observation: Any, mask: Any, state: Any) -> tuple[int, int]:
        assert env.observation_space.contains(observation)
        assert mask.dtype == np.bool_ and np.array_equal(mask, observation["action_mask"])
        seen.append(state)
        return int(np.argmax(mask)), 0 if state is None else state + 1

    result = evaluate(agent, MAZE, 5, batch_size=2, budget=6)
    assert seen.count(None) == 5
    assert sorted(s for s in seen if s is not None) == sorted(k for e in result.episodes for k in range(e.steps - 1))


def test_batched_callables_see_many() -> None:
    sizes, states = [], []

    def agent(observation: Any, mask: Any, state: Any) -> Any:
        assert observation["task"].shape[0] == observation["call"].shape[0] == len(mask)
        assert mask.shape == (len(state), 9) and mask.dtype == np.bool_
        sizes.append(len(mask))
        states.extend(state)
        return mask.argmax(axis=1), [(0 if s is None else s + 1) for s in state]

    agent.batched = True  # type: ignore[attr-defined]
    result = evaluate(agent, MAZE, 5, batch_size=4, budget=6)
    assert result.episodes == evaluate(pick_first, MAZE, 5, budget=6).episodes
    assert max(sizes) == 4
    assert states.count(None) == 5
    assert max(s for s in states if s is not None) == 4


def test_chance_is_a_function_of_seed_and_step() -> None:
    def record(batch_size: int) -> list[tuple[float, float]]:
        seen = []

        def agent(observation: Any, mask: Any, state: Any, *, rng: Any, uniform: float, deterministic: bool) -> int:
            assert deterministic is False
            seen.append((uniform, rng.random()))
            return 0

        evaluate(agent, MAZE, 4, batch_size=batch_size, deterministic=False, budget=5)
        return sorted(seen)

    numbers = record(1)
    assert record(3) == numbers
    assert len(set(numbers)) == 20
    # As written down: a change here changes every sampled result.
    assert uniforms(np.array([0, 7], np.uint64), np.array([0, 3])).tolist() == PINNED


PINNED = [0.02829600039777347, 0.8854232782031506]


def test_uniform_numbers_are_uniform() -> None:
    seeds, steps = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200))
    numbers = uniforms(seeds.ravel(), steps.ravel()).reshape(200, 200)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square, 19 degrees of freedom, probability 0.001
    for other in (numbers[1:], numbers[:, 1:]):
        mine = numbers[: other.shape[0], : other.shape[1]]
        assert abs(np.corrcoef(mine.ravel(), other.ravel())[0, 1]) < 0.02


@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=9).filter(lambda p: sum(p) > 0.01),
    st.floats(0, 1, exclude_max=True),
)
def test_draw_never_takes_what_has_no_probability(weights: list[float], uniform: float) -> None:
    chances = np.array([weights], np.float32) / np.float32(sum(weights))
    action = int(draw(chances, np.array([uniform]))[0])
    assert chances[0, action] > 0
    total = np.cumsum(chances[0], dtype=np.float64)
    assert total[action] > uniform * total[-1] >= (total[action - 1] if action else 0.0)


BAD_ANSWERS: list[tuple[Any, str]] = [
    (9, r"returned 9 at seed 3, step 2; an action is an integer in \[0, 9\)"),
    (-1, "returned -1 at seed 3, step 2"),
    (1.0, r"returned 1\.0 at seed 3, step 2"),
    (True, "returned True at seed 3, step 2"),
    (None, "returned None at seed 3, step 2"),
    ("north", "returned 'north' at seed 3, step 2"),
    (np.array([1, 2]), "at seed 3, step 2"),
    (np.array([1.0]), "at seed 3, step 2"),
    ((1, None, 2), "tuple of 3 at seed 3, step 2"),
]


@pytest.mark.parametrize(("answer", "message"), BAD_ANSWERS, ids=[str(a) for a, _ in BAD_ANSWERS])
def test_bad_answers_are_refused_with_seed_and_step(answer: Any, message: str) -> None:
    def agent(observation: Any, mask: Any, state: int | None) -> Any:
        step = state or 0
        return answer if step == 2 else (int(np.argmax(mask)), step + 1)

    with pytest.raises(ValueError, match=message):
        evaluate(agent, MAZE, [3], **SHORT)


BAD_BATCHES: list[tuple[Callable[[int], Any], str]] = [
    (lambda m: np.zeros(m + 1, np.int64), "must return 2 integers.*shape"),
    (lambda m: np.zeros(m), "float64 at seed 3, step 0"),
    (lambda m: 0, r"shape \(\)"),
    (lambda m: np.array([0, 9]), "returned 9 at seed 8, step 0"),
    (lambda m: (np.zeros(m, np.int64), [None]), "2 states"),
    (lambda m: (np.zeros(m, np.int64), None), "2 states"),
]


@pytest.mark.parametrize(("answer", "message"), BAD_BATCHES, ids=range(len(BAD_BATCHES)))
def test_bad_batches_are_refused(answer: Callable[[int], Any], message: str) -> None:
    def agent(observation: Any, mask: Any, state: Any) -> Any:
        return answer(len(mask))

    agent.batched = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        evaluate(agent, MAZE, [3, 8], **SHORT)


def test_an_agents_own_error_stays_its_own_and_says_where() -> None:
    def agent(observation: Any, mask: Any, state: Any) -> int:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        evaluate(agent, MAZE, [3], **SHORT)
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["raised by the agent at seed 3, step 0"]


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(TypeError, match="an agent is"):
        evaluate(42, MAZE, 2)
    with pytest.raises(TypeError, match="not the class"):
        evaluate(RandomAgent, MAZE, 2)
    with pytest.raises(TypeError, match="cannot be called as"):
        evaluate(lambda observation: 0, MAZE, 2)

    def batched(observation: Any, mask: Any, state: Any, rng: Any) -> Any: ...

    batched.batched = True  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="no `rng`"):
        evaluate(batched, MAZE, 2)


# -- arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (0, "at least one"),
        ([], "at least one"),
        ([1, 2, 1], "seed 1 is listed twice"),
        ([-1], "integer in"),
        ([2**64], "integer in"),
        ([1.0], "integer in"),
        ([True], "integer in"),
        (True, "a number of seeds"),
        ("12", "a number of seeds"),
        (1.5, "a number of seeds"),
        (None, "a number of seeds"),
        (np.zeros((2, 2), np.int64), "integer in"),
    ],
    ids=str,
)
def test_bad_seeds_are_refused(seeds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(random_agent, MAZE, seeds)


def test_seeds_may_be_a_number_a_range_or_an_array() -> None:
    expected = evaluate(random_agent, MAZE, [0, 1, 2], budget=5).episodes
    for seeds in (3, np.int64(3), range(3), np.arange(3), np.arange(3, dtype=np.uint64)):
        assert evaluate(random_agent, MAZE, seeds, budget=5).episodes == expected


def test_other_bad_arguments_are_refused() -> None:
    for batch_size in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="batch_size"):
            evaluate(random_agent, MAZE, 2, batch_size=batch_size)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="deterministic"):
        evaluate(random_agent, MAZE, 2, deterministic="no")  # type: ignore[arg-type]
    with pytest.raises(gym.error.Error, match="Maze-10x10"):
        evaluate(random_agent, "RAO/Maze-10x11", 2)
    with pytest.raises(TypeError, match="Did you mean 'structure'"):
        evaluate(random_agent, MAZE, 2, structur="rooms")
    with pytest.raises(TypeError, match="pass its id or its spec"):
        evaluate(random_agent, gym.make(MAZE), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Discrete"):
        evaluate(random_agent, "Pendulum-v1", 2)


def test_progress_is_reported_and_arguments_pass_through(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[int, int]] = []
    result = evaluate(
        random_agent,
        MAZE,
        9,
        batch_size=2,
        progress=lambda done, total: calls.append((done, total)),
        feedback="dense",
        budget=8,
    )
    assert [total for _, total in calls] == [9] * len(calls)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1] == (9, 9)
    assert result.env_kwargs == {"feedback": "dense", "budget": 8}
    assert max(episode.steps for episode in result.episodes) <= 8
    assert evaluate(random_agent, MAZE, 9, progress=True, budget=8).episodes == result.episodes
    assert capsys.readouterr().out == ""


# -- records -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result() -> Evaluation:
    return evaluate(random_agent, "RAO/Maze-5x5-v0", 30, deterministic=False)


def test_records_are_what_the_single_environment_says(result: Evaluation) -> None:
    assert {episode.success for episode in result.episodes} == {True, False}
    for episode in result.episodes:
        env = gym.make("RAO/Maze-5x5-v0")
        env.reset(seed=episode.seed)
        total, ended = 0.0, False
        for action in episode.actions:
            assert not ended
            _, reward, terminated, truncated, info = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        assert ended
        assert (info["is_success"], total) == (episode.success, episode.return_)
        names = ("nodes", "deepest", "spawns", "steps", "critical_path")
        assert info["tree"] == {name: getattr(episode, name) for name in names}


def test_replay_gives_the_record_back_and_refuses_other_traces(result: Evaluation) -> None:
    env_id = result.env_id
    assert replay_all(env_id, {e.seed: e.actions for e in result.episodes}, batch_size=7) == result.episodes
    episode = result.episodes[4]
    assert replay(env_id, 4, episode.actions.tolist()) == episode
    with pytest.raises(ValueError, match="not over after them"):
        replay(env_id, 4, episode.actions[:-1])
    with pytest.raises(ValueError, match=f"is over after {episode.steps}"):
        replay(env_id, 4, [*episode.actions, 0])
    with pytest.raises(ValueError, match=r"has 9 at step 1; .* in \[0, 9\)"):
        replay(env_id, 4, [0, 9])
    for trace in ([], [0.5], [[0]], "01"):
        with pytest.raises(ValueError, match="list of at least one integer"):
            replay(env_id, 4, trace)  # type: ignore[arg-type]


def test_the_summary_is_what_the_records_say(result: Evaluation) -> None:
    table, summary = result.table, result.summary()
    assert table["success"].mean() == pytest.approx(summary["success"].mean)  # type: ignore[union-attr]
    for name in ("return", "steps", "nodes", "deepest", "spawns", "critical_path"):
        value = summary[name]
        assert value is not None and value.low is not None and value.high is not None
        assert value.mean == pytest.approx(table[name].mean())
        half = 2.045230 * table[name].std(ddof=1) / np.sqrt(30)  # t, 29 degrees of freedom
        assert (value.high - value.low) / 2 == pytest.approx(half, rel=1e-3)
    solved = table["steps"][table["success"] == 1]
    assert summary["steps_of_successes"].mean == pytest.approx(solved.mean())  # type: ignore[union-attr]
    assert summary["steps_of_successes"].n == len(solved)  # type: ignore[union-attr]
    for line in (
        "RandomAgent (sampled) on RAO/Maze-5x5-v0: 30 episodes",
        "steps of successes",
        "95 % interval",
    ):
        assert line in str(result)


def test_intervals_against_published_values() -> None:
    for successes, n, low, high in (
        (0, 10, 0.0, 0.277533),
        (8, 10, 0.490162, 0.943318),
        (10, 10, 0.722467, 1.0),
    ):
        assert wilson(successes, n)[1:3] == pytest.approx((low, high), abs=1e-6)
        assert wilson(successes, n).mean == successes / n
    table = {
        1: 12.706205,
        2: 4.302653,
        3: 3.182446,
        4: 2.776445,
        5: 2.570582,
        10: 2.228139,
        30: 2.042272,
        100: 1.983972,
    }
    for freedom, value in table.items():
        assert t_95(freedom) == pytest.approx(value, abs=3e-4)
    mean, low, high, n = mean_interval([1.0, 2.0, 3.0, 4.0])  # type: ignore[misc]
    assert (mean, n) == (2.5, 4)
    assert (low, high) == pytest.approx((2.5 - 2.054260, 2.5 + 2.054260), abs=1e-5)
    assert mean_interval([7.0]) == (7.0, None, None, 1)


# -- files ---------------------------------------------------------------------------------------------------


def test_files_hold_everything(result: Evaluation, tmp_path: Path, maskable: Any) -> None:
    layout = np.array([[1, 0], [0, 0]], np.uint8)
    for number, evaluation in enumerate(
        (
            result,
            evaluate(maskable, MAZE, SEEDS, **SHORT),
            evaluate(pick_first, "CartPole-v1", 1),
            Evaluation("x", {"layout": layout.tolist(), "path": "a/ü.map"}, "me", True, 99, "1", result.episodes),
        )
    ):
        path = tmp_path / f"{number}.json"
        evaluation.save(path)
        assert Evaluation.load(path) == evaluation
        assert json.loads(path.read_text()) == evaluation.to_dict()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "1.json", "2.json", "3.json"]
    assert len((tmp_path / "0.json").read_text().splitlines()) < 30 + 15


def test_a_failed_save_leaves_the_old_file(result: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    result.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        result.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_arguments_are_kept_as_plain_values() -> None:
    result = evaluate(random_agent, "RAO/Maze-v0", 1, rows=np.int64(4), cols=5, openings=0.25)
    assert result.env_kwargs == {"rows": 4, "cols": 5, "openings": 0.25}
    walls = np.array([[1, 0]], np.uint8)
    assert plain(walls).startswith("array uint8 [1, 2] sha256:")
    assert plain(walls) != plain(walls[:, ::-1])
    assert plain({"a": (1, Path("b")), 2: [None, float("inf")]}) == {"a": [1, "b"], "2": [None, "inf"]}
    assert plain(MazeEnv) == "MazeEnv"


def corrupt(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def apply(text: str) -> str:
        data = json.loads(text)
        changed = change(data)
        return json.dumps(data if changed is None else changed)

    return apply


def put(*path: Any, value: Any) -> Callable[[str], str]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return corrupt(change)


CORRUPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "empty": (lambda t: "", "Expecting value"),
    "cut": (lambda t: t[: len(t) // 2], "line"),
    "not text": (lambda t: b"\xff\xfe\x00", "UTF-8"),
    "deep": (lambda t: "[" * 100_000, "nested too deeply|line 1"),
    "list": (lambda t: "[]", "must be an object"),
    "key twice": (lambda t: t.replace('"agent"', '"version"', 1), "'version' occurs twice"),
    "nan": (lambda t: t.replace('"return":0.0', '"return":NaN', 1), "NaN is not a number"),
    "infinite": (lambda t: t.replace('"return":0.0', '"return":1e999', 1), "1e999 is too large"),
    "huge integer": (lambda t: t.replace('"return":0.0', '"return":' + "9" * 400, 1), "1e100"),
    "format": (put("format", value="rao-evaluation-2"), "format: expected 'rao-evaluation-1'"),
    "missing": (corrupt(lambda d: d.pop("agent") and None), "missing 'agent'"),
    "unknown": (put("extra", value=1), "unknown 'extra'"),
    "env_id": (put("env_id", value=""), "env_id: must be a text"),
    "kwargs": (put("env_kwargs", value=[]), "env_kwargs: must be an object"),
    "deterministic": (put("deterministic", value=1), "deterministic: must be true or false"),
    "n_actions": (put("n_actions", value=0), r"n_actions: must be an integer in \[1"),
    "no episodes": (put("episodes", value=[]), "episodes: must be a list of at least one"),
    "episode": (put("episodes", 3, value=7), r"episodes\[3\]: must be an object"),
    "episode key": (put("episodes", 3, "bonus", value=7), r"episodes\[3\]: unknown 'bonus'"),
    "seed": (put("episodes", 3, "seed", value=-1), r"episodes\[3\]\.seed: must be an integer"),
    "seed twice": (put("episodes", 3, "seed", value=2), r"episodes\[3\]\.seed: 2 occurs twice"),
    "success": (put("episodes", 3, "success", value=1), r"episodes\[3\]\.success"),
    "return": (put("episodes", 3, "return", value="1"), r"episodes\[3\]\.return"),
    "steps": (put("episodes", 3, "steps", value=1.5), r"episodes\[3\]\.steps: must be an integer"),
    "steps and trace": (
        put("episodes", 3, "steps", value=1),
        r"episodes\[3\]\.actions: \d+ actions for 1 steps",
    ),
    "nodes": (put("episodes", 3, "nodes", value=0), r"episodes\[3\]\.nodes"),
    "spawns": (put("episodes", 3, "spawns", value=10_000), r"episodes\[3\]\.spawns"),
    "path": (put("episodes", 3, "critical_path", value=0), r"episodes\[3\]\.critical_path"),
    "actions": (put("episodes", 3, "actions", value=[0, 1]), r"episodes\[3\]\.actions: must be a text"),
    "action": (put("episodes", 3, "actions", value="9"), r"episodes\[3\]\.actions: '9' is not one of the 9"),
    "odd digit": (put("episodes", 3, "actions", value="\u0663"), r"episodes\[3\]\.actions: '\u0663'"),
    "surrogate": (put("episodes", 3, "actions", value="\ud800"), r"episodes\[3\]\.actions"),
    "summary": (
        put("summary", "success", "mean", value=0.999),
        r"summary\.success\.mean: 0.999 does not follow",
    ),
    "summary type": (put("summary", "steps", "low", value=True), r"summary\.steps\.low: True"),
    "summary huge": (put("summary", "steps", "low", value=10**400), r"summary\.steps\.low"),
    "summary null": (put("summary", "steps", value=None), r"summary\.steps: must be an object"),
    "summary part": (corrupt(lambda d: d["summary"].pop("nodes") and None), "summary: missing 'nodes'"),
    "other outcome": (
        corrupt(lambda d: d["episodes"][0].update(success=not d["episodes"][0]["success"])),
        "summary",
    ),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_files_are_refused(name: str, result: Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result.save(path)
    change, message = CORRUPTIONS[name]
    changed = change(path.read_text())
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with pytest.raises(ValueError, match=message) as caught:
        Evaluation.load(path)
    assert "result.json is not a valid evaluation" in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


@settings(max_examples=150)
@given(st.data())
def test_a_changed_file_is_refused_or_says_so_in_its_content(data: st.DataObject) -> None:
    original = small()
    text = json.dumps(original.to_dict())
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 2)) :]
    try:
        loaded = Evaluation.from_dict(json.loads(changed))
    except ValueError:
        return
    assert loaded == original or loaded.to_dict() != original.to_dict()


def small() -> Evaluation:
    episodes = tuple(Episode(seed, bool(seed % 2), float(seed % 2), 3, 2, 1, 1, 3, np.array([0, 8, seed])) for seed in range(3))
    return Evaluation("RAO/Maze-5x5-v0", {"spawn": True}, "me", True, 9, "0.1.0", episodes)


@given(st.sampled_from([1, 2, 9, 36, 62, 63, 1000]), st.data())
def test_traces_survive_their_encoding(n_actions: int, data: st.DataObject) -> None:
    actions = np.array(data.draw(st.lists(st.integers(0, n_actions - 1))), np.int64)
    text = encode_actions(actions, n_actions)
    assert np.array_equal(decode_actions(text, n_actions), actions)
    assert len(text) == len(actions) or n_actions > 62


@pytest.mark.parametrize("text", ["01 5", " 1", "1 ", "1  2", "+1", "1000", "9" * 30, "\u0663", "1_0", "a"])
def test_traces_of_many_actions_have_one_spelling(text: str) -> None:
    with pytest.raises(ValueError, match="is not one of the 1000 actions"):
        decode_actions(text, 1000)


# -- the package ---------------------------------------------------------------------------------------------


def test_evaluation_needs_no_torch() -> None:
    code = (
        "import sys, rao_envs\n"
        "result = rao_envs.evaluate(lambda o, m, s: int(m.argmax()), 'RAO/Maze-5x5', 2, budget=5)\n"
        "assert not {'torch', 'stable_baselines3', 'rich'} & set(sys.modules), 'imported'\n"
        "print(result.env_id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(rao_envs.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "RAO/Maze-5x5-v0"
