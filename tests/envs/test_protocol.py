"""The spawn protocol, checked on every registered environment and on a third party's (PROTOCOL, all rules).

Properties are tested over random action sequences. `tree_model.py` says independently what the call tree must be.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.env_checker import data_equivalence as same
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.env import RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.dialogue.ontology import trip_ontology
from rao_envs.maze.env import MazeEnv
from tests.envs import third_party
from tests.envs.tree_model import TreeModel

third_party.register()

MAP = """
S.#....
..#.##.
......#
.##..G.
"""


SENTENCE = "The quick brown fox jumps over the lazy dog. "
QUERIES = ("needle", "count", "max", "keys", "topk", "pairs", "majority")
NESTED = "[MAX 2 9 [MIN 4 7 [SUM 5 6 1 2]] 0 [SUM 1 [MIN 3 8]]]"

TRIP = trip_ontology()
HOTEL = {"domain": "hotel", "constraints": {"price": "cheap", "area": "centre"}, "flexible": ["price", "area"]}
DINNER = {"domain": "restaurant", "constraints": {"day": {"same_as": "hotel"}}}
TRIPS = [
    {"stops": [{"city": "Lisbon", "domains": [HOTEL, DINNER]}, {"city": "Bergen", "domains": [HOTEL]}]},
    {"stops": [{"city": "Ljubljana", "domains": [HOTEL]}]},
]


class Case(NamedTuple):
    """One environment to test: an id and keyword arguments."""

    id: str
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        return "-".join([self.id.split("/")[1], *(f"{key}={str(value).strip()[:8]}" for key, value in self.kwargs.items())])

    def make(self, **kwargs: Any) -> RecursiveEnv:
        env = gym.make(self.id, disable_env_checker=True, **self.kwargs, **kwargs).unwrapped
        assert isinstance(env, RecursiveEnv)
        return env

    def make_vec(self, n: int, **kwargs: Any) -> RecursiveVectorEnv:
        vector = gym.make_vec(self.id, num_envs=n, vectorization_mode="vector_entry_point", **self.kwargs, **kwargs)
        assert isinstance(vector, RecursiveVectorEnv)
        return vector


REGISTERED = [Case(identity, {}) for identity in rao_envs.registered_ids()]
THIRD_PARTY = [Case(identity, {}) for identity in third_party.IDS]
VARIANTS = [
    Case("RAO/Maze-10x10-v0", {"feedback": "dense"}),
    Case("RAO/Maze-10x10-v0", {"spawn": False, "feedback": "dense"}),
    Case("RAO/Maze-80x80-v0", {"spawn": False}),
    Case("RAO/Maze-v0", {"rows": 9, "cols": 34, "block": 3, "radius": 2, "structure": "open", "budget": 60, "frame_budget": 1.5}),
    Case("RAO/Maze-v0", {"rows": 21, "cols": 4, "block": 2, "structure": "rooms", "max_depth": 1, "feedback": "dense"}),
    Case("RAO/Maze-v0", {"layout": MAP, "block": 2, "feedback": "dense"}),
    Case("RAO/Algebra-depth4-v0", {"feedback": "dense"}),
    Case("RAO/Algebra-depth8-v0", {"spawn": False, "feedback": "dense"}),
    Case("RAO/Algebra-v0", {"depth": (1, 5), "slots": 3, "substitution": True, "modulus": 3, "budget": 60, "feedback": "dense"}),
    Case("RAO/Algebra-v0", {"depth": 4, "polynomial": True, "max_depth": 2, "feedback": "dense"}),
    Case("RAO/Algebra-v0", {"expressions": ["3*(x - 2) - d/dx(4*x + 1)", "-(x + 1)", "x"], "feedback": "dense"}),
    Case("RAO/Rewrite-v0", {"levels": 2, "feedback": "dense"}),
    Case("RAO/Rewrite-v0", {"expressions": ["((x+1)^2-x^2)/(2*x+1)*y", "d/dx(x*log(x))+x*(y-1)*y"], "window": 24, "feedback": "dense"}),
    Case("RAO/LongSeq-10k-v0", {"feedback": "dense"}),
    Case("RAO/LongSeq-10k-v0", {"spawn": False, "pointers": 2, "feedback": "dense"}),
    Case("RAO/LongSeq-10k-v0", {"paging": False}),
    Case("RAO/LongSeq-v0", {"query": QUERIES, "length": (16, 400), "window": 64, "density": 20.0, "finer": 1, "feedback": "dense"}),
    Case("RAO/LongSeq-v0", {"query": "pairs", "length": 300, "window": 64, "pointers": 2, "notes": 13, "feedback": "dense"}),
    Case("RAO/LongSeq-v0", {"text": 9 * SENTENCE, "query": ["count:fox", "max:lazy dog"], "window": 64, "feedback": "dense"}),
    Case("RAO/LongSeq-nested-320-v0", {"feedback": "dense"}),
    Case("RAO/LongSeq-nested-320-v0", {"spawn": False, "stack": 3, "feedback": "dense"}),
    Case("RAO/LongSeq-nested-320-v0", {"view": "raw"}),
    Case("RAO/LongSeq-nested-v0", {"length": (8, 60), "view": "raw", "stack": 2, "window": 5, "feedback": "dense"}),
    Case("RAO/LongSeq-nested-v0", {"text": [NESTED, "[MAX 2 9]"], "slots": 2, "modulus": 10, "feedback": "dense"}),
    Case("RAO/Dialogue-10turn-v0", {"feedback": "dense"}),
    Case("RAO/Dialogue-10turn-v0", {"spawn": False, "feedback": "dense"}),
    Case("RAO/Dialogue-20turn-v0", {"dependency": 1.0, "feedback": "dense"}),
    Case("RAO/Dialogue-v0", {"turns": 12, "domains": (2, 7), "cities": (1, 3), "constraints": (1, 4), "window": 3, "feedback": "dense"}),
    Case("RAO/Dialogue-v0", {"ontology": TRIP, "turns": 7, "max_depth": 1, "domains": 4, "cities": (1, 2), "feedback": "dense"}),
    Case("RAO/Dialogue-v0", {"ontology": TRIP, "goals": TRIPS, "feedback": "dense"}),
    Case("RAO/Relay-v0", {"direction": "up", "levels": 5, "digits": 2, "base": 3, "feedback": "dense"}),
    Case("RAO/Relay-siblings-v0", {"levels": 3, "max_depth": 1, "feedback": "dense"}),
    Case("RAO/Relay-down-v0", {"spawn": False}),
    Case("Test/RangeMax-8-v0", {"feedback": "dense"}),
    Case("Test/RangeMax-27-v0", {"feedback": "dense", "max_depth": 2}),
    Case("Test/RangeMax-8-v0", {"spawn": False}),
]
CASES = [*REGISTERED, *VARIANTS, *THIRD_PARTY]
RECURSIVE = [case for case in CASES if case.kwargs.get("spawn", True)]
LARGE = {
    "RAO/Maze-40x40-v0",
    "RAO/Maze-80x80-v0",
    "RAO/LongSeq-100k-v0",
    "RAO/LongSeq-1M-v0",
    "RAO/LongSeq-nested-3k-v0",
    "RAO/LongSeq-nested-32k-v0",
}

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_recursive_case = pytest.mark.parametrize("case", RECURSIVE, ids=str)
every_id = pytest.mark.parametrize("case", [*REGISTERED, *THIRD_PARTY], ids=str)

seeds = st.integers(0, 2**64 - 1)
play = settings(max_examples=10)
"""Examples per environment; together they cover every property a few hundred times."""


class Habits(NamedTuple):
    """How a random player plays."""

    rng_seed: int
    spawn: float  # how much it likes to spawn when it may
    forbidden: float  # how often it does what the mask forbids
    keen: bool  # whether it prefers the later primitives: those that end things, in the third party's environments


habits = st.builds(
    Habits,
    rng_seed=st.integers(0, 2**32 - 1),
    spawn=st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9]),
    forbidden=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
    keen=st.booleans(),
)


def choose(mask: Any, primitives: int, rng: np.random.Generator, style: Habits) -> int:
    """A random action in that style."""
    if rng.random() < style.forbidden:
        return int(rng.integers(len(mask)))
    moves, spawns = np.flatnonzero(mask[:primitives]), primitives + np.flatnonzero(mask[primitives:])
    if len(spawns) and (rng.random() < style.spawn or not len(moves)):
        return int(rng.choice(spawns))
    if not len(moves):
        return int(rng.integers(len(mask)))
    return int(moves[-1] if style.keen and rng.random() < 0.7 else rng.choice(moves))


def primitives_of(env: Any) -> int:
    return len(env.action_names) - len(env.spawn_actions)


class Step(NamedTuple):
    """What a step gave."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def episode(env: RecursiveEnv, seed: int | None, style: Habits, limit: int = 400) -> Iterator[tuple[int, Step]]:
    """Play one episode: actions and what came of them. The first "action" is -1, for the reset."""
    rng = np.random.default_rng(style.rng_seed)
    observation, info = env.reset(seed=seed)
    yield -1, Step(observation, 0.0, False, False, info)
    for _ in range(limit):
        action = choose(env.action_masks(), primitives_of(env), rng, style)
        step = Step(*env.step(action))
        yield action, step
        if step.terminated or step.truncated:
            return


def equal(left: Any, right: Any) -> bool:
    """Whether two nested structures are the same in types and values, bit for bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, np.void | np.ndarray) and left.dtype.names:  # records: what pads their fields means nothing
        return bool(left.dtype == right.dtype and left.tolist() == right.tolist())
    if isinstance(left, np.ndarray) and left.dtype == object:
        return equal(left.tolist(), right.tolist())
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return bool(left == right)


# -- The call tree, budgets and observations (rules 2, 3, 5, 6, 7) ------------------------------------------------------------------


@every_case
@play
@given(seed=seeds, style=habits)
def test_every_episode_is_the_tree_that_its_infos_describe(case: Case, seed: int, style: Habits) -> None:
    env = case.make()
    model: TreeModel | None = None
    rewards, progress = 0.0, 0.0
    limit = 300 if case.id in LARGE else env.domain.budget
    for action, step in episode(env, seed, style, limit):
        if model is None:
            model = TreeModel(env, step.observation, step.info)
            potential = float(env.batch.stack.episodes["potential"][0])
        else:
            model.step(action, step.observation, step.terminated, step.truncated, step.info)
        assert env.observation_space.contains(step.observation)
        assert isinstance(step.reward, float) and isinstance(step.terminated, bool) and isinstance(step.truncated, bool)
        assert ("dense_reward" in step.info) == (env.batch.feedback == "dense")
        rewards += step.reward
        progress += step.info.get("dense_reward", 0.0)
        if model.over:
            assert rewards == float(step.info["is_success"])
            if env.batch.feedback == "dense":
                assert progress == pytest.approx(env.batch.stack.episodes["potential"][0] - potential)
            assert step.terminated or (model.clock == model.total and not step.info["is_success"])
    assert model is not None
    assert model.over or model.clock == limit


@every_case
@play
@given(seed=seeds, style=habits, later=st.integers(0, 60))
def test_the_mask_is_right_for_every_action(case: Case, seed: int, style: Habits, later: int) -> None:
    env, probe = case.make(), case.make()
    for _, step in episode(env, seed, style, later):
        if step.terminated or step.truncated:
            return
    before = env.get_state()
    depth, frame = step.info["depth"], env.batch.stack.frames[0, step.info["depth"]]
    left = int(frame["budget"] - (env.batch.stack.episodes["clock"][0] - frame["start"]))
    for action, may in enumerate(env.action_masks()):
        probe.set_state(before)
        _, _, terminated, truncated, info = probe.step(action)
        after = probe.get_state()
        assert after["stack.episodes"]["clock"] == before["stack.episodes"]["clock"] + 1
        if action in env.spawn_actions and may:
            assert left > 1 and depth < env.batch.stack.limits["max_depth"][0]
            assert (info["event"], info["depth"], info["parent_id"]) == ("spawn", depth + 1, step.info["frame_id"])
            assert not (terminated or truncated)
        elif may:
            assert info["event"] in ("step", "return")
            assert domain_of(after) != domain_of(before), f"{env.action_names[action]} was allowed but changed nothing"
        elif left > 1:
            assert info["event"] == "step"
            assert info["frame_id"] == step.info["frame_id"]
            assert domain_of(after) == domain_of(before), f"{env.action_names[action]} was forbidden but changed something"
            assert unchanging(after, depth) == unchanging(before, depth)
        else:
            assert info["event"] == "return"


def domain_of(state: dict[str, Any]) -> dict[str, Any]:
    """All that a domain may change, the frames' random streams included."""
    return {name: value.tolist() for name, value in state.items() if name.startswith("domain.") or name == "stack.frame_rng"}


def unchanging(state: dict[str, Any], depth: int) -> dict[str, Any]:
    """What a forbidden action must leave alone in the call stack: all but the clock and what follows from it."""
    frames, episode = state["stack.frames"].copy(), state["stack.episodes"].copy()
    for name in ("path", "last"):
        frames[name][depth] = 0
    for name in ("clock", "event", "n_returned", "reward", "dense"):
        episode[name] = 0
    return {"frames": frames.tolist(), "episode": episode.tolist(), "rng": state["stack.rng"].tolist()}


@pytest.mark.parametrize("case", [case for case in RECURSIVE if "Maze" in case.id], ids=str)
@play
@given(seed=seeds, style=habits)
def test_the_maze_forbids_walls_and_units_that_are_not_joined(case: Case, seed: int, style: Habits) -> None:
    env = case.make()
    links: Any = None
    for _, step in episode(env, seed, style, 60):
        links = env.links if links is None else links
        if step.terminated or step.truncated:
            return
        (row, col), (goal_row, goal_col) = env.cells["agent"], env.cells["goal"]
        expected = [bool(links[row, col] >> direction & 1) for direction in range(4)]
        level = len(env.domain.levels) - 1 - step.info["depth"]
        side = int(env.domain.levels["side"][level])
        top, left = row // side * side, col // side * side
        unit = links[top : top + side, left : left + side]
        edges = (unit[0] & 1, unit[:, -1] & 2, unit[-1] & 4, unit[:, 0] & 8)
        whole = (True, unit.shape[1] == side, unit.shape[0] == side, True)  # a clipped unit has nothing beyond
        spawns = [bool(edge.any()) and inside for edge, inside in zip(edges, whole, strict=True)]
        # "Reach the goal here" makes sense for a frame that is to reach the goal itself.
        seeks_goal = all(frame["action"] in (-1, 8) for frame in env.batch.stack.frames[0, : step.info["depth"] + 1])
        spawns.append(seeks_goal and (row // side, col // side) == (goal_row // side, goal_col // side))
        frame = env.batch.stack.frames[0, step.info["depth"]]
        used = int(env.batch.stack.episodes["clock"][0] - frame["start"])
        may_spawn = level > 0 and step.info["depth"] < env.batch.stack.limits["max_depth"][0] and frame["budget"] - used > 1
        expected += [may_spawn and spawn for spawn in spawns]
        assert env.action_masks().tolist() == expected


@every_case
@play
@given(seed=seeds, style=habits)
def test_nothing_that_was_returned_is_used_again(case: Case, seed: int, style: Habits) -> None:
    env = case.make()
    returned = [step for _, step in episode(env, seed, style, 40)]
    kept = copy.deepcopy(returned)
    spoilt = [spoil(step) for _, step in episode(env, seed, style, 40)]
    assert equal(returned, kept), "later steps changed what earlier ones had returned"
    assert equal(spoilt, kept), "changing what was returned changed the environment"


@every_id
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_nothing_that_a_vector_returned_is_used_again(case: Case, mode: AutoresetMode) -> None:
    vector, reference = (few_steps(case).make_vec(3, autoreset_mode=mode) for _ in range(2))
    style, rng = Habits(0, 0.4, 0.1, True), np.random.default_rng(0)
    returned: list[Any] = [vector.reset(seed=0)]
    expected: list[Any] = [copy.deepcopy(reference.reset(seed=0))]
    for _ in range(29):
        actions = np.array([choose(mask, primitives_of(vector), rng, style) for mask in vector.action_masks()])
        if vector.batch.done.any() and mode == AutoresetMode.DISABLED:
            options = {"reset_mask": vector.batch.done}
            returned.append((*vector.reset(options=options), vector.facts))
            expected.append(copy.deepcopy((*reference.reset(options=options), reference.facts)))
        returned.append((*vector.step(actions), vector.facts))
        expected.append(copy.deepcopy((*reference.step(actions), reference.facts)))
    assert equal(returned, expected), "later steps changed what earlier ones had returned"
    vector.reset(seed=0)
    reference.reset(seed=0)
    for _ in range(40):
        actions = np.array([choose(mask, primitives_of(vector), rng, style) for mask in vector.action_masks()])
        if vector.batch.done.any() and mode == AutoresetMode.DISABLED:
            options = {"reset_mask": vector.batch.done}
            vector.reset(options=options)
            reference.reset(options=options)
        mine, theirs = (*vector.step(actions), vector.facts), (*reference.step(actions), reference.facts)
        assert equal(mine, theirs), "changing what was returned changed the environment"
        overwrite(mine)


def overwrite(value: Any) -> None:
    """Write into every array of a nested structure."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        value[...] = np.zeros((), value.dtype)
    elif isinstance(value, dict):
        for entry in value.values():
            overwrite(entry)
    elif isinstance(value, (tuple, list, np.ndarray)):
        for entry in value:
            overwrite(entry)


def spoil(step: Step) -> Step:
    """A copy of `step`, whose own arrays are overwritten."""
    kept = copy.deepcopy(step)
    for array in [*step.observation.values(), step.info["action_mask"]]:
        array[...] = 1
    for entry in step.info["returned"]:
        entry.clear()
    return kept


@every_recursive_case
@play
@given(seed=seeds, style=habits)
def test_the_twin_has_the_same_tasks_observations_and_rewards(case: Case, seed: int, style: Habits) -> None:
    env, twin = case.make(), Case(case.id, {**case.kwargs, "spawn": False}).make()
    assert twin.action_names == env.action_names[: len(twin.action_names)]
    assert twin.spawn_actions.tolist() == []
    assert env.spawn_actions.tolist() == list(range(len(twin.action_names), len(env.action_names)))
    rng = np.random.default_rng(style.rng_seed)
    mine, theirs = Step(*_reset(env, seed)), Step(*_reset(twin, seed))
    for _ in range(60):
        for key in ("task", "results"):
            assert equal(mine.observation[key], theirs.observation[key])
        assert equal(mine.observation["call"][1:], theirs.observation["call"][1:])
        assert theirs.observation["call"][0] == 0
        assert equal(mine.observation["action_mask"][: len(twin.action_names)], theirs.observation["action_mask"])
        assert mine[1:4] == theirs[1:4]
        assert mine.info.get("dense_reward") == theirs.info.get("dense_reward")
        if mine.terminated or mine.truncated:
            assert mine.info["tree"] == theirs.info["tree"]
            return
        action = choose(twin.action_masks(), len(twin.action_names), rng, style)
        mine, theirs = Step(*env.step(action)), Step(*twin.step(action))


def _reset(env: RecursiveEnv, seed: int | None) -> tuple[Any, ...]:
    observation, info = env.reset(seed=seed)
    return observation, 0.0, False, False, info


# -- Determinism (rules 9 and 10) ---------------------------------------------------------------------------------------------------


def trajectory(env: RecursiveEnv, style: Habits, steps: int, start: Step | None = None) -> list[Step]:
    """Play on from `start` (or from where the environment is) through any number of episodes, resetting without seeds."""
    rng = np.random.default_rng(style.rng_seed)
    result = [] if start is None else [start]
    over = False
    for _ in range(steps):
        if over:
            step = Step(*_reset(env, None))
        else:
            step = Step(*env.step(choose(env.action_masks(), primitives_of(env), rng, style)))
        over = step.terminated or step.truncated
        result.append(step)
    return result


def few_steps(case: Case) -> Case:
    """The same environment with a budget that ends episodes soon, so that a short run sees several."""
    return Case(case.id, {"budget": 30, **case.kwargs})


@every_case
@play
@given(seed=seeds, style=habits, before=st.integers(0, 50))
def test_seed_and_actions_fix_everything_whatever_happens_in_between(case: Case, seed: int, style: Habits, before: int) -> None:
    case = few_steps(case)
    env = case.make()
    expected = trajectory(env, style, before + 40, Step(*_reset(env, seed)))
    # An environment with a past, interrupted: pickled, copied, and its state carried to a fresh one.
    used = case.make()
    trajectory(used, style._replace(rng_seed=1), 7, Step(*_reset(used, 1)))
    assert equal(trajectory(used, style, before + 40, Step(*_reset(used, seed))), expected)

    rng = np.random.default_rng(style.rng_seed)
    live, over = case.make(), False
    live.reset(seed=seed)
    for k in range(before):
        step = Step(*_reset(live, None)) if over else Step(*live.step(choose(live.action_masks(), primitives_of(live), rng, style)))
        over = step.terminated or step.truncated
        assert equal(step, expected[k + 1])
    carried = case.make()
    observation, info = carried.set_state(pickle.loads(pickle.dumps(live.get_state())))
    last = expected[before]
    assert equal(observation, last.observation)
    assert equal(info, {key: value for key, value in last.info.items() if key not in ("is_success", "tree")})
    for other in (live, carried, pickle.loads(pickle.dumps(live)), copy.deepcopy(live)):
        other_rng, other_over = copy.deepcopy(rng), over
        for k in range(before, before + 40):
            if other_over:
                step = Step(*_reset(other, None))
            else:
                step = Step(*other.step(choose(other.action_masks(), primitives_of(other), other_rng, style)))
            other_over = step.terminated or step.truncated
            assert equal(step, expected[k + 1])


def infos_of(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """Environment `i`'s info, out of a vector environment's of either make."""
    info: dict[str, Any] = {}
    for key, value in infos.items():
        if key.startswith("_") or not infos.get(f"_{key}", np.ones(i + 1, bool))[i]:
            continue
        if key == "returned" and isinstance(value, dict):
            columns = {name: array[i].tolist() for name, array in value.items()}
            rows = range(int(infos["n_returned"][i]))
            info[key] = tuple({name: columns[name][row] for name in columns} for row in rows)
        elif isinstance(value, dict):
            info[key] = infos_of(value, i)
        elif key != "n_returned":
            info[key] = value[i] if isinstance(value[i], (np.ndarray, tuple, dict, str)) else value[i].item()
    return info


def same_info(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two infos say the same, whatever the order of keys and the kind of string."""
    return bool(plain(left) == plain(right))


def plain(value: Any) -> Any:
    """`value` in Python's own types."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return str(value) if isinstance(value, str) else value


def observation_of(observations: dict[str, Any], i: int) -> dict[str, Any]:
    return {key: array[i] for key, array in observations.items()}


@every_case
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**63), style=habits, n=st.sampled_from([1, 2, 5]))
def test_the_vector_environment_is_gymnasiums_own_over_single_ones(
    case: Case, mode: AutoresetMode, seed: int, style: Habits, n: int
) -> None:
    case = few_steps(case)
    vector = case.make_vec(n, autoreset_mode=mode)
    assert vector.metadata["autoreset_mode"] == mode
    reference = SyncVectorEnv([case.make] * n, autoreset_mode=mode)
    assert vector.observation_space == reference.observation_space
    assert vector.action_space == reference.action_space
    rng = np.random.default_rng(style.rng_seed)

    def check(mine: Any, theirs: Any) -> None:
        assert vector.observation_space.contains(mine[0])
        for key in theirs[0]:
            assert equal(np.asarray(mine[0][key]), np.asarray(theirs[0][key]))
        assert all(equal(*pair) for pair in zip(mine[1:-1], theirs[1:-1], strict=True))
        for key in ("final_obs", "final_info"):
            assert (key in mine[-1]) == (key in theirs[-1])
            if key in mine[-1]:
                assert type(mine[-1][key]) is type(theirs[-1][key])
                assert equal(mine[-1][f"_{key}"], theirs[-1][f"_{key}"])
        for name in ("frame_id", "is_success", "tree"):
            final, final_reference = mine[-1].get("final_info", {}), theirs[-1].get("final_info", {})
            assert equal(final.get(f"_{name}"), final_reference.get(f"_{name}"))
        for i in range(n):
            left, right = infos_of(mine[-1], i), infos_of(theirs[-1], i)
            final, final_reference = left.pop("final_obs", None), right.pop("final_obs", None)
            assert equal(final, final_reference)
            assert same_info(left, right), (left, right)

    check(vector.reset(seed=seed), reference.reset(seed=seed))
    over = np.zeros(n, bool)
    for _ in range(70):
        if mode == AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            check(vector.reset(options=dict(options)), reference.reset(options=dict(options)))
        masks = vector.action_masks()
        actions = np.array([choose(mask, primitives_of(vector), rng, style) for mask in masks])
        mine, theirs = vector.step(actions), reference.step(actions)
        check(mine, theirs)
        over = mine[2] | mine[3]


@every_case
@settings(max_examples=3)
@given(seed=st.integers(0, 2**63), style=habits, n=st.integers(1, 9), where=st.integers(0, 8))
def test_neither_position_nor_batch_size_nor_neighbours_matter(case: Case, seed: int, style: Habits, n: int, where: int) -> None:
    case = few_steps(case)
    position = where % n
    alone, crowd = case.make_vec(1), case.make_vec(n)
    alone.reset(seed=[seed])
    crowd.reset(seed=[seed if i == position else 3 * i for i in range(n)])
    rng, others = np.random.default_rng(style.rng_seed), np.random.default_rng(0)
    for _ in range(70):
        actions = np.array([choose(mask, primitives_of(crowd), others, style) for mask in crowd.action_masks()])
        actions[position] = choose(crowd.action_masks()[position], primitives_of(crowd), rng, style)
        mine, theirs = alone.step(actions[position : position + 1]), crowd.step(actions)
        assert equal(observation_of(mine[0], 0), observation_of(theirs[0], position))
        assert [part[0] for part in mine[1:4]] == [part[position] for part in theirs[1:4]]
        assert same_info(infos_of(mine[4], 0), infos_of(theirs[4], position))
        if others.random() < 0.1 and position:
            crowd.set_state(crowd.get_state(position), 0)  # its neighbour's state does not matter
            crowd = pickle.loads(pickle.dumps(crowd))


@every_case
def test_a_state_means_the_same_at_any_position(case: Case) -> None:
    """Nothing in it may refer to where in a batch it was."""
    crowd, alone = case.make_vec(3), case.make()
    crowd.reset(seed=11)
    alone.reset(seed=0)
    rng = np.random.default_rng(5)
    style = Habits(5, 0.6, 0.0, keen=False)
    for _ in range(4):
        if crowd.batch.done[2]:
            crowd.reset(seed=12)
        crowd.step(np.array([choose(mask, primitives_of(crowd), rng, style) for mask in crowd.action_masks()]))
    if crowd.batch.done[2]:
        crowd.reset(seed=13)
    alone.set_state(crowd.get_state(2))
    for _ in range(30):
        if crowd.batch.done[2]:
            break
        action = choose(alone.action_masks(), primitives_of(alone), rng, style)
        mine, theirs = alone.step(action), crowd.step(np.array([0, 0, action]))
        assert equal(mine[0], observation_of(theirs[0], 2))
        assert list(mine[1:4]) == [part[2] for part in theirs[1:4]]


def test_facts_say_what_infos_say() -> None:
    vector = Case("RAO/Maze-20x20-v0", {}).make_vec(8)
    vector.reset(seed=3)
    rng = np.random.default_rng(0)
    style = Habits(0, 0.4, 0.1, False)
    for _ in range(100):
        infos = vector.step(np.array([choose(mask, 4, rng, style) for mask in vector.action_masks()]))[-1]
        facts = vector.facts
        for name in ("frame_id", "parent_id", "depth", "n_returned"):
            assert equal(getattr(facts, name), infos[name])
        assert [("reset", "step", "spawn", "return")[event] for event in facts.event] == infos["event"].tolist()
        for name in facts.returned.dtype.names:
            assert (facts.returned[name] == infos["returned"][name]).all()
        assert facts.returned.shape[1] == vector.batch.stack.limits["max_depth"][0] + 1


def test_no_kind_of_array_makes_kernels_compile_again() -> None:
    """Half a minute's pause for who passes a column of actions, or runs on Ray, whose arrays are read-only."""
    case = Case("RAO/Maze-5x5-v0", {})
    vector, env = case.make_vec(2), case.make()
    vector.reset(seed=0)
    env.reset(seed=0)
    env.set_state(env.get_state())
    vector.step([0, 1])
    kernels = [getattr(vector.batch.kernels, name) for name in ("step_batch", "reset_batch", "look_batch", "collect_facts")]
    compiled = [kernel.signatures for kernel in kernels]
    script = np.arange(8).reshape(2, 4)
    script.flags.writeable = False
    for actions in (script[:, 1], script[::-1, 0], script.astype(np.int8)[:, 2], script.astype(np.uint64)[:, 0], script[:, 3].tolist()):
        vector.step(actions)
    state = {name: np.array(value) for name, value in env.get_state().items() if name != "fingerprint"}
    for array in state.values():
        array.flags.writeable = False
    env.set_state({**state, "fingerprint": env.get_state()["fingerprint"]})
    for original in (env, vector):
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(original, protocol=5, buffer_callback=buffers.append)
        again = pickle.loads(data, buffers=[bytes(buffer) for buffer in buffers])
        assert buffers
        for _ in range(3):
            actions = [8, 8] if original is vector else 8
            assert equal(plain(again.step(actions)[:-1]), plain(original.step(actions)[:-1]))
        assert equal(plain(again.reset()[0]), plain(original.reset()[0]))
    assert [kernel.signatures for kernel in kernels] == compiled


# -- Detached children (rule 8) -----------------------------------------------------------------------------------------------------


class Whim:
    """A policy that depends on nothing but the acting frame's own history: the same inline and detached, in any order."""

    def __init__(self, style: Habits, detach: float) -> None:
        self.style = style
        self.detach = detach
        self.steps: dict[int, int] = {}

    def rng(self, frame_id: int, salt: int) -> np.random.Generator:
        return np.random.default_rng([self.style.rng_seed, frame_id, self.steps.get(frame_id, 0), salt])

    def action(self, env: RecursiveEnv, frame_id: int) -> int:
        rng = self.rng(frame_id, 0)
        self.steps[frame_id] = self.steps.get(frame_id, 0) + 1
        return choose(env.action_masks(), primitives_of(env), rng, self.style)

    def detaches(self, frame_id: int) -> bool:
        return bool(self.rng(frame_id, 1).random() < self.detach)


def run_detached(env: RecursiveEnv, step: Step, whim: Whim, rng: np.random.Generator) -> list[Step]:
    """Play `env` to its end, detaching children at will; returns what inline execution would have returned at each step."""
    result: list[Step] = []
    while not (step.terminated or step.truncated):
        frame_id = step.info["frame_id"]
        detaches = whim.detaches(frame_id)
        action = whim.action(env, frame_id)
        if not (detaches and action in env.spawn_actions and env.action_masks()[action]):
            step = Step(*env.step(action))
            result.append(step)
            continue
        children = env.spawn_all(action)
        starts = [Step(*_reset(child, None)) for child in children]
        runs: list[list[Step]] = [[] for _ in children]
        for k in rng.permutation(len(children)):
            child = children[k]
            if rng.random() < 0.3:  # a child may be tried out and begun again
                for _ in range(3):
                    child.step(int(np.flatnonzero(child.action_masks())[0]))
                    if child.batch.done[0]:
                        break
                assert equal(Step(*_reset(child, None)), starts[k])
            if rng.random() < 0.3:  # and run elsewhere
                child = pickle.loads(pickle.dumps(child))
            model = TreeModel(child, starts[k].observation, starts[k].info)
            check_tree(child, model)
            runs[k] = run_detached(child, starts[k], whim, rng)
            children = (*children[:k], child, *children[k + 1 :])
        joined = Step(*env.join(*(children[k] for k in rng.permutation(len(children)))))
        result.append(starts[0]._replace(info=starts[0].info | {"event": "spawn"}))
        skip = 0
        for k, run in enumerate(runs[:-1]):
            info = starts[k + 1].info | {"event": "return", "returned": run[-1].info["returned"]}
            if "dense_reward" in info:
                info["dense_reward"] = run[-1].info["dense_reward"]
            skip += len(info["returned"])
            result += [*run[:-1], Step(starts[k + 1].observation, 0.0, False, False, info)]
        step = joined._replace(info=joined.info | {"returned": joined.info["returned"][skip:]})
        if "dense_reward" in step.info:
            step.info["dense_reward"] += runs[-1][-1].info["dense_reward"]
        result += [*runs[-1][:-1], step]
    return result


def check_tree(child: RecursiveEnv, model: TreeModel) -> None:
    """A detached child is an environment in its own right: play a copy of it against the model."""
    probe = pickle.loads(pickle.dumps(child))
    model.env = probe
    rng = np.random.default_rng(0)
    for _ in range(30):
        action = choose(probe.action_masks(), primitives_of(probe), rng, Habits(0, 0.3, 0.1, True))
        observation, reward, *rest = probe.step(action)
        model.step(action, observation, *rest)
        if model.over:
            assert reward == rest[-1]["returned"][-1]["reward"]
            return


@every_recursive_case
@play
@given(seed=seeds, style=habits, detach=st.sampled_from([0.2, 0.7, 1.0]), order=st.integers(0, 2**32 - 1))
def test_inline_and_detached_execution_are_the_same(case: Case, seed: int, style: Habits, detach: float, order: int) -> None:
    case = Case(case.id, {"budget": 80 if "RangeMax" in case.id else 200, **case.kwargs})
    inline = case.make()
    start = Step(*_reset(inline, seed))
    expected = run_detached(inline, start, Whim(style, 0.0), np.random.default_rng(0))
    detached = case.make()
    assert equal(Step(*_reset(detached, seed)), start)
    actual = run_detached(detached, start, Whim(style, detach), np.random.default_rng(order))
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        if "dense_reward" in theirs.info:
            assert mine.info["dense_reward"] == pytest.approx(theirs.info["dense_reward"], abs=1e-12)
            mine.info["dense_reward"] = theirs.info["dense_reward"]
        assert equal(mine, theirs), (mine, theirs)
    assert equal(Step(*_reset(detached, None)), Step(*_reset(inline, None))), "the next episode is the same, too"


def test_a_second_attempt_at_covered_ground_is_paid_the_same_inline_and_detached() -> None:
    case = Case(
        "RAO/LongSeq-v0", {"query": "pairs", "length": 300, "window": 64, "pointers": 2, "notes": 13, "feedback": "dense", "budget": 200}
    )
    runs = []
    for detach in (0.0, 0.2):
        env = case.make()
        style = Habits(rng_seed=20589, spawn=0.6, forbidden=0.0, keen=True)
        start = Step(*_reset(env, 0))
        runs.append([step.info["dense_reward"] for step in run_detached(env, start, Whim(style, detach), np.random.default_rng(0))])
    assert sum(runs[0]) > 0
    assert runs[0] == pytest.approx(runs[1], abs=1e-12)


def test_a_picture_shows_detached_frames_as_if_they_had_run_inline() -> None:
    def last_picture(detach: bool) -> Any:
        env = Case("RAO/Maze-40x40-v0", {"budget": 60}).make(render_mode="ansi")
        start = Step(*_reset(env, 2))
        run_detached(env, start, Whim(Habits(3, 0.6, 0.0, False), float(detach)), np.random.default_rng(0))
        return env.history.view("").frames, env.render()

    (frames, picture), (expected_frames, expected_picture) = last_picture(True), last_picture(False)
    assert len(expected_frames) > 5
    assert frames == expected_frames
    assert picture.splitlines()[:30] == expected_picture.splitlines()[:30]


def spawn_action(env: RecursiveEnv, name: str | None = None) -> int:
    """An allowed spawn action."""
    return int(env.spawn_actions[env.action_masks()[env.spawn_actions]][0]) if name is None else env.action_names.index(name)


def finish(child: RecursiveEnv) -> None:
    while not child.batch.done[0]:
        child.step(int(np.flatnonzero(child.action_masks())[-1]) if child.domain.name == "RangeMax" else 0)


def test_join_takes_wrapped_children_and_refuses_all_but_the_right_ones() -> None:
    case = Case("RAO/Maze-20x20-v0", {})
    env, other = case.make(), case.make()
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(ValueError, match="no detached child is out"):
        env.join()
    child = env.spawn(spawn_action(env))
    with pytest.raises(ResetNeeded):
        child.step(0)
    child.reset()
    with pytest.raises(ValueError, match="one fixed task"):
        child.reset(seed=3)
    with pytest.raises(RuntimeError, match="join them first"):
        env.step(0)
    with pytest.raises(RuntimeError, match="join them first"):
        env.spawn(4)
    with pytest.raises(RuntimeError, match="join them first"):
        env.get_state()
    with pytest.raises(ValueError, match="still running"):
        env.join(child)
    with pytest.raises(ValueError, match=r"frames \[1\]; got frames \[\]"):
        env.join()
    with pytest.raises(TypeError, match="spawn and spawn_all returned"):
        env.join(gym.make("CartPole-v1"))
    finish(child)
    with pytest.raises(ValueError, match="got frames"):
        env.join(child, child)
    with pytest.raises(ResetNeeded):
        child.step(0)

    # Another environment's child, with the same id, from a state that differs in one move.
    move = int(np.flatnonzero(other.action_masks())[0])
    other.step(move)
    env_moved = case.make()
    env_moved.reset(seed=0)
    env_moved.step(8)  # forbidden or not: the agent stays
    foreign = other.spawn(spawn_action(other))
    foreign.reset()
    finish(foreign)
    before = env.batch.digest()
    with pytest.raises(ValueError, match="another environment"):
        env.join(foreign)
    assert env.batch.digest() == before
    # One that was spawned from an equal state is as good as its own.
    twin = case.make()
    twin.reset(seed=0)
    own = twin.spawn(spawn_action(twin))
    own.reset()
    finish(own)
    env.join(gym.wrappers.TimeLimit(own, 1000))
    with pytest.raises(ValueError, match="no detached child is out"):
        env.join(own)
    env.step(0)


@pytest.mark.parametrize("case", [Case("RAO/Maze-10x10-v0", {}), Case("Test/RangeMax-8-v0", {})], ids=str)
def test_what_detached_children_read_is_not_copied_and_not_overwritten(case: Case) -> None:
    env = case.make()
    env.reset(seed=1)
    field = sorted(env.domain.settled)[-1]
    kept = getattr(env.batch.state, field).copy()
    child = env.spawn(spawn_action(env))
    assert getattr(child.batch.state, field) is getattr(env.batch.state, field)
    other = _state_of(case.id)
    first, _ = child.reset()
    child.set_state(other)  # a child that is put elsewhere leaves its parent's task alone, and finds back to its own
    np.testing.assert_array_equal(getattr(env.batch.state, field), kept)
    assert equal(child.reset()[0], first)
    env.reset(seed=2)  # the parent goes on to another task while its child still works on this one
    np.testing.assert_array_equal(getattr(child.batch.state, field), kept)
    assert not np.array_equal(getattr(env.batch.state, field), kept)


def test_children_of_an_abandoned_spawn_are_refused() -> None:
    env = Case("RAO/Maze-20x20-v0", {}).make()
    env.reset(seed=0)
    old = env.spawn(spawn_action(env))
    old.reset()
    finish(old)
    env.reset()
    with pytest.raises(ValueError, match="no detached child is out"):
        env.join(old)
    env.spawn(spawn_action(env))
    with pytest.raises(ValueError, match="earlier by this one"):
        env.join(old)


def test_spawn_refuses_what_is_no_single_child() -> None:
    env = Case("Test/RangeMax-8-v0", {}).make()
    with pytest.raises(ResetNeeded):
        env.spawn(2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="all_parts opens 2 children: use spawn_all"):
        env.spawn(spawn_action(env, "all_parts"))
    with pytest.raises(ValueError, match="answer is not an allowed spawn action here; allowed now: part_0, part_1, all_parts"):
        env.spawn_all(spawn_action(env, "answer"))
    with pytest.raises(ValueError, match="is not an action"):
        env.spawn(99)
    children = env.spawn_all(spawn_action(env, "all_parts"))
    for child in children:
        child.reset()
        finish(child)
    with pytest.raises(ValueError, match="join takes the children that are out"):
        env.join(children[0])
    with pytest.raises(ValueError, match="join takes the children that are out"):
        env.join(children[0], children[0])
    _, _, _, _, info = env.join(*reversed(children))
    assert [entry["frame_id"] for entry in info["returned"] if entry["depth"] == 1] == [1, 2]


def test_independent_children_cannot_see_what_their_siblings_did() -> None:
    """Whatever an elder sibling does, and however long it takes, the younger one starts from the same observation and id."""
    env = Case("Test/RangeMax-27-v0", {}).make()
    firsts = []
    for wasted in (0, 3, 10):
        observation, info = env.reset(seed=5)
        observation, *_, info = env.step(env.action_names.index("all_parts"))
        elder = info["frame_id"]
        for _ in range(wasted):
            observation, *_, info = env.step(0)  # forbidden: time passes
        while info["frame_id"] == elder or info["parent_id"] == elder:
            observation, *_, info = env.step(env.action_names.index("answer"))
        firsts.append(
            (observation, {key: value for key, value in info.items() if key != "returned"}, env.batch.stack.frame_rng[0, 1].copy())
        )
    assert equal(firsts[0], firsts[1])
    assert equal(firsts[0], firsts[2])


def test_the_critical_path_is_what_an_ideal_parallel_machine_would_take() -> None:
    env = Case("Test/RangeMax-8-v0", {}).make()
    observation, info = env.reset(seed=0)
    look, answer, everything = (env.action_names.index(name) for name in ("look", "answer", "all_parts"))
    terminated = False
    while not terminated:
        single, best = observation["task"]
        action = look if single and best < 0 else answer if single or (observation["results"] == 1).all() else everything
        observation, reward, terminated, _, info = env.step(action)
    assert reward == 1.0
    # 7 inner frames that spawn and answer, 8 leaves that look and answer; side by side: 3 times spawn and answer, then a leaf.
    assert info["tree"] == {"nodes": 15, "deepest": 3, "spawns": 7, "steps": 7 * 2 + 8 * 2, "critical_path": 3 * 2 + 2}


def test_hanoi_is_solved_by_its_own_recursion() -> None:
    for seed in range(6):
        env = Case("Test/Hanoi-5-v0", {}).make()
        observation, info = env.reset(seed=seed)
        terminated = False
        while not terminated:
            largest, target, tower = (int(peg) for peg in observation["task"])
            spare = 3 - largest - target
            if largest == target:
                name = f"smaller_to_{target}"
            else:
                name = f"move_{largest}_{target}" if not observation["action_mask"][6:].any() or tower == spare else f"smaller_to_{spare}"
            observation, reward, terminated, _, info = env.step(env.action_names.index(name))
        assert (reward, info["tree"]["steps"], info["tree"]["nodes"], info["tree"]["deepest"]) == (1.0, 61, 31, 4)


# -- Dense feedback (rule 11) -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spawn", [True, False])
@play
@given(seed=seeds, style=habits)
def test_dense_feedback_pays_the_true_progress_and_cannot_be_farmed(spawn: bool, seed: int, style: Habits) -> None:
    env = Case("RAO/Maze-10x10-v0", {"feedback": "dense", "spawn": spawn}).make()
    paid = 0.0
    distances: dict[tuple[int, int], int] = {}
    for _, step in episode(env, seed, style):
        if not distances:
            distances = walk(env.links, env.cells["goal"])
            first = distances[env.cells["start"]]
        paid += step.info["dense_reward"]
        assert paid == pytest.approx((first - distances[env.cells["agent"]]) / first)
        if step.terminated:
            assert paid == pytest.approx(1.0)


def walk(links: Any, goal: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Steps from every cell to the goal."""
    distances, queue = {goal: 0}, [goal]
    for row, col in queue:
        for direction, (rows, cols) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            cell = (row + rows, col + cols)
            if links[row, col] >> direction & 1 and cell not in distances:
                distances[cell] = distances[row, col] + 1
                queue.append(cell)
    return distances


# -- What Gymnasium and Stable-Baselines3 expect ------------------------------------------------------------------------------------


@every_case
def test_gymnasiums_checker_is_content(case: Case) -> None:
    draws = case.id in ("RAO/Maze-5x5-v0", "RAO/Maze-10x10-v0") and importlib.util.find_spec("pygame") is not None
    check_env(gym.make(case.id, **case.kwargs).unwrapped, skip_render_check=not draws)


@every_case
def test_stable_baselines3s_checker_is_content(case: Case) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(case.make(), warn=True)
    checker.check_env(gym.make(case.id, **case.kwargs), warn=True)


@every_id
def test_the_spec_makes_the_same_environment_again(case: Case) -> None:
    env = gym.make(case.id, budget=50)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert same(env.reset(seed=4), again.reset(seed=4))
    assert again.unwrapped.batch.stack.limits == env.unwrapped.batch.stack.limits
    vector = gym.make_vec(case.id, num_envs=3, budget=50)
    assert isinstance(vector, RecursiveVectorEnv)
    again_vector = gym.make_vec(vector.spec)
    assert again_vector.num_envs == 3
    assert same(vector.reset(seed=4)[0], again_vector.reset(seed=4)[0])


def test_the_unversioned_id_is_the_newest() -> None:
    with pytest.warns(UserWarning, match="latest versioned"):
        env = gym.make("RAO/Maze-20x20")
    assert env.spec is not None and env.spec.id == "RAO/Maze-20x20-v0"


@every_id
def test_every_render_mode_draws(case: Case) -> None:
    pytest.importorskip("pygame")
    modes = case.make().metadata["render_modes"]
    assert ("rgb_array" in modes) == case.id.startswith("RAO/")
    for mode in modes:
        env = case.make(render_mode=mode)
        with pytest.raises(ResetNeeded):
            env.render()
        env.reset(seed=0)
        pictures = [env.render()]
        while env.action_masks()[env.spawn_actions].any():
            env.step(spawn_action(env))
        pictures.append(env.render())
        if mode == "rgb_array":
            assert all(picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape == pictures[0].shape for picture in pictures)
        elif mode == "ansi":
            assert all(isinstance(picture, str) for picture in pictures)
        else:
            assert pictures == [None, None]
        assert mode == "human" or not same(*pictures)
        again = pickle.loads(pickle.dumps(env))
        assert mode == "human" or same(again.render(), pictures[-1])
        again.close()
        env.close()
        env.close()


def test_render_without_a_mode_says_so() -> None:
    env = Case("RAO/Maze-5x5-v0", {}).make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert env.render() is None


# -- Errors (what was wrong, what is allowed) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 1, np.int64(3), np.uint64(2**64 - 1)])
def test_every_seed_from_0_to_2_to_the_64_can_be_used(seed: Any) -> None:
    env, vector = (make() for make in (Case("RAO/Maze-5x5-v0", {}).make, lambda: Case("RAO/Maze-5x5-v0", {}).make_vec(1)))
    observation, _ = env.reset(seed=seed)
    observations, _ = vector.reset(seed=seed)
    listed, _ = vector.reset(seed=[seed])
    for key in observation:
        assert equal(observations[key][0], observation[key])
        assert equal(listed[key][0], observation[key])


def test_different_seeds_give_different_tasks() -> None:
    env = Case("RAO/Maze-10x10-v0", {}).make()
    tasks = set()
    for seed in (0, 1, 2, 2**32, 2**63, 2**64 - 1):
        env.reset(seed=seed)
        tasks.add(env.links.tobytes())
    assert len(tasks) == 6


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "7", np.float64(2)])
def test_other_seeds_are_refused_and_change_nothing(seed: Any) -> None:
    env, vector = Case("RAO/Maze-5x5-v0", {}).make(), Case("RAO/Maze-5x5-v0", {}).make_vec(2)
    env.reset(seed=0)
    vector.reset(seed=0)
    before = env.get_state(), vector.get_state(0), vector.get_state(1)
    with pytest.raises(ValueError, match=r"a seed must be an integer in \[0, 2\*\*64\)"):
        env.reset(seed=seed)
    for seeds_ in (seed, [5, seed], [seed, None]):
        with pytest.raises(ValueError, match="seed"):
            vector.reset(seed=seeds_)
    with pytest.raises(ValueError, match="one seed per environment"):
        vector.reset(seed=[1, 2, 3])
    assert equal((env.get_state(), vector.get_state(0), vector.get_state(1)), before)


def test_seeds_of_a_batch_must_all_fit() -> None:
    vector = Case("RAO/Maze-5x5-v0", {}).make_vec(2)
    with pytest.raises(ValueError, match="a seed must be an integer"):
        vector.reset(seed=2**64 - 1)
    vector.reset(seed=2**64 - 2)


def test_without_a_seed_episodes_differ_and_no_global_generator_is_touched() -> None:
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002  (to see that it is left alone)
    links = []
    for _ in range(2):
        env = Case("RAO/Maze-10x10-v0", {}).make()
        for _ in range(2):
            env.reset()
            links.append(env.links.tobytes())
    vector = Case("RAO/Maze-10x10-v0", {}).make_vec(2)
    vector.reset(seed=[3, None])
    links += [vector.batch.state.links[i, :100].tobytes() for i in range(2)]
    assert len(set(links)) == 6
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


@pytest.mark.parametrize("action", [-1, 9, 1.0, "north", None, True, np.array([1]), np.array(2.0)])
def test_what_is_no_action_is_refused(action: Any) -> None:
    env, vector = Case("RAO/Maze-5x5-v0", {}).make(), Case("RAO/Maze-5x5-v0", {}).make_vec(2)
    env.reset(seed=0)
    vector.reset(seed=0)
    before = env.get_state()
    with pytest.raises(ValueError, match=r"is not an action: pass an integer in \[0, 9\) \(north, east"):
        env.step(action)
    assert equal(env.get_state(), before)
    with pytest.raises(ValueError, match="actions must"):
        vector.step(np.array([0, action], dtype=None if isinstance(action, int) and not isinstance(action, bool) else object))
    for actions in ([0, 1, 2], 0, [[0, 1]], [0.0, 1.0], [True, False], [0, 9], [-1, 0]):
        with pytest.raises(ValueError, match="actions must"):
            vector.step(actions)


@pytest.mark.parametrize("action", [np.int8(1), np.uint64(1), np.array(1)])
def test_any_kind_of_integer_is_an_action(action: Any) -> None:
    env = Case("RAO/Maze-5x5-v0", {}).make()
    env.reset(seed=0)
    expected = env.step(1)
    env.reset(seed=0)
    assert same(env.step(action), expected)


def test_reset_is_needed_before_the_first_and_after_the_last_step() -> None:
    env, vector = (
        Case("RAO/Maze-5x5-v0", {"budget": 2}).make(),
        Case("RAO/Maze-5x5-v0", {"budget": 2}).make_vec(2, autoreset_mode="Disabled"),
    )
    for call in (lambda: env.step(0), lambda: env.spawn(4), lambda: vector.step([0, 0])):
        with pytest.raises(ResetNeeded):
            call()
    with pytest.raises(ResetNeeded, match="every environment"):
        vector.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=0)
    vector.reset(seed=0)
    for _ in range(2):
        *_, truncated, _ = env.step(8)
        vector.step([8, 8])
    assert truncated
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(ResetNeeded, match=r"\[0, 1\]"):
        vector.step([0, 0])
    for mask in (np.zeros(2, bool), np.ones(3, bool), np.ones(2)):
        with pytest.raises(ValueError, match="reset_mask must be"):
            vector.reset(options={"reset_mask": mask})


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"colums": 5}, TypeError, "unknown keyword argument 'colums'. Did you mean 'cols'"),
        ({"spwan": False}, TypeError, "'spwan'.*for every family: spawn, feedback, budget, max_depth, observe_frame"),
        ({"spawn": 1}, ValueError, "spawn must be True"),
        ({"feedback": "some"}, ValueError, "feedback must be one of 'sparse', 'dense'"),
        ({"budget": 0}, ValueError, "budget must be"),
        ({"budget": 2**31}, ValueError, "budget must be"),
        ({"budget": 1.5}, ValueError, "budget must be"),
        ({"max_depth": -1}, ValueError, "max_depth must be"),
        ({"rows": 0}, ValueError, r"rows must be an integer in \[1, 4096\]"),
        ({"rows": True}, ValueError, "rows must be"),
        ({"block": 1}, ValueError, "block must be"),
        ({"radius": 33}, ValueError, "radius must be"),
        ({"openings": float("nan")}, ValueError, "openings must be"),
        ({"frame_budget": -1}, ValueError, "frame_budget must be"),
        ({"structure": "nest"}, ValueError, "structure must be one of 'nested'"),
        ({"structure": ["nested"]}, ValueError, "structure must be one of 'nested'"),
        ({"scenarios": [((0, 0), (1, 1))]}, ValueError, "pass layout="),
    ],
    ids=str,
)
def test_bad_keyword_arguments_are_explained(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gym.make("RAO/Maze-v0", disable_env_checker=True, **kwargs)
    with pytest.raises(error, match=message):
        gym.make_vec("RAO/Maze-v0", num_envs=2, vectorization_mode="vector_entry_point", **kwargs)


def test_unknown_render_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="render_mode must be None or one of"):
        MazeEnv(render_mode="rgb")
    with pytest.raises(ValueError, match="does not render"):
        Case("RAO/Maze-v0", {}).make_vec(2, render_mode="ansi")


def test_a_family_without_dense_feedback_says_so() -> None:
    with pytest.raises(ValueError, match="Hanoi defines no dense feedback"):
        gym.make("Test/Hanoi-3-v0", feedback="dense")
    with pytest.raises(ValueError, match="number of environments"):
        third_party.HanoiVectorEnv(0)


def test_reset_options_are_checked_before_anything_changes() -> None:
    scenarios = [((0, 0), (3, 5)), ((2, 0), (0, 6))]
    layout = MAP.replace("S", ".").replace("G", ".")
    case = Case("RAO/Maze-v0", {"layout": layout, "scenarios": scenarios})
    env, vector = case.make(), case.make_vec(3)
    for k, (start, goal) in enumerate(scenarios):
        env.reset(seed=1, options={"scenario": k})
        assert (env.cells["start"], env.cells["goal"]) == (start, goal)
        vector.reset(options={"scenario": k})
        assert vector.batch.state.place["goal_row"].tolist() == [goal[0]] * 3
    drawn = set()
    for _ in range(20):
        env.reset()
        drawn.add(env.cells["start"])
    assert drawn == {(0, 0), (2, 0)}
    before = env.get_state()
    for options, message in (
        ({"scenario": 2}, r"scenario must be an integer in \[0, 1\]"),
        ({"scene": 1}, "unknown reset option.*allowed: scenario"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(seed=9, options=options)
        with pytest.raises(ValueError, match=message):
            vector.reset(seed=9, options=options)
    assert equal(env.get_state()["stack.rng"], before["stack.rng"])
    with pytest.raises(ValueError, match="allowed: none"):
        Case("RAO/Maze-5x5-v0", {}).make().reset(options={"scenario": 1})


def test_states_that_do_not_fit_are_refused_and_change_nothing() -> None:
    env = Case("RAO/Maze-10x10-v0", {}).make()
    env.reset(seed=0)
    env.step(spawn_action(env))
    good = env.get_state()
    env.step(0)
    before = env.get_state()

    def edited(**changes: Any) -> dict[str, Any]:
        return {**good, **{key.replace("_", ".", 1): value for key, value in changes.items()}}

    wrong: list[tuple[Any, str]] = [
        (None, "pass what get_state"),
        ({}, "pass what get_state"),
        ({key: value for key, value in good.items() if key != "domain.seen"}, "pass what get_state"),
        ({**good, "more": 1}, "pass what get_state"),
        (edited(domain_seen=good["domain.seen"].astype(np.int64)), "domain.seen in the state must be int32"),
        (edited(domain_seen=good["domain.seen"][:-1]), "domain.seen in the state must be"),
        (edited(domain_seen=good["domain.seen"].tolist()), "domain.seen in the state must be"),
        ({**good, "fingerprint": "0"}, "other keyword arguments"),
        (_state_of("RAO/Maze-10x10-v0", budget=9), "other keyword arguments"),
        (_state_of("RAO/Maze-10x10-v0", feedback="dense"), "other keyword arguments"),
        (_state_of("RAO/Maze-10x10-v0", openings=0.1), "other keyword arguments"),
        (_state_of("RAO/Maze-10x10-v0", spawn=False), "other keyword arguments"),
        (_state_of("Test/Hanoi-3-v0"), "pass what get_state"),
    ]
    for state, message in wrong:
        with pytest.raises(ValueError, match=message):
            env.set_state(state)
        assert equal(env.get_state(), before)
    env.set_state(good)
    assert equal(env.get_state(), good)


def _state_of(identity: str, **kwargs: Any) -> dict[str, Any]:
    env = Case(identity, kwargs).make()
    env.reset(seed=0)
    return env.get_state()


def test_a_state_of_an_episode_that_is_over_stays_over() -> None:
    env, again = (Case("RAO/Maze-5x5-v0", {"budget": 1}).make() for _ in range(2))
    env.reset(seed=0)
    env.step(8)
    again.set_state(env.get_state())
    with pytest.raises(ResetNeeded):
        again.step(0)
    assert equal(Step(*_reset(again, None)), Step(*_reset(env, None)))


class Slip(third_party.RangeMaxDomain):
    """A family whose author made a mistake."""

    per_frame = frozenset({"low", "high", "seen"})


class Typo(third_party.HanoiDomain):
    """Another one."""

    per_frame = frozenset({"counts", "target"})


class Alone(third_party.RangeMaxDomain):
    """And another."""

    shared = frozenset()


class Hookless(third_party.HanoiDomain):
    """The last one."""

    per_frame = frozenset()

    def allocate(self, n: int, *, dense: bool) -> Any:
        return NamedTuple("Half", [("pegs", Any)])(np.zeros((n, 3)))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (Slip, r"the second axis of seen must be the 4 depths, but its shape is \(1, 8\)"),
        (Typo, "Typo names arrays that its state does not have: counts"),
        (Alone, r"the first axis of noise must be the 1 instance\(s\), but its shape is \(\); or name it in `shared`"),
        (Hookless, "Half lacks the hooks begin, allowed, act, fanout, open_child, resolve, receive, observe"),
    ],
)
def test_slips_in_a_familys_definition_are_explained(domain: type[Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        RecursiveBatch(domain(), 1)


# -- The dynamics have not changed by accident --------------------------------------------------------------------------------------

GOLDEN = Path(__file__).with_name("golden.json")


def fingerprint(case: Case) -> str:
    """A digest of 300 steps of fixed pseudo-random play, over as many episodes as that takes."""
    env = case.make()
    digest = hashlib.sha256()
    style = Habits(rng_seed=7, spawn=0.3, forbidden=0.05, keen=True)
    for step in trajectory(env, style, 300, Step(*_reset(env, 2026))):
        for key, value in step.observation.items():
            digest.update(key.encode() + value.tobytes())
        digest.update(repr((step.reward, step.terminated, step.truncated, step.info["frame_id"], step.info["returned"])).encode())
    return digest.hexdigest()[:16]


@every_case
def test_trajectories_are_the_recorded_ones(case: Case) -> None:
    """A change that alters any trajectory is a new version of the id (PROTOCOL rule 1).

    New ids, or a change before a release: `python -m tests.envs.test_protocol` writes golden.json anew.
    """
    recorded = json.loads(GOLDEN.read_text())
    assert str(case) in recorded, "not recorded yet: run `python -m tests.envs.test_protocol`"
    assert fingerprint(case) == recorded[str(case)]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({str(case): fingerprint(case) for case in CASES}, indent=1) + "\n")
    sys.stdout.write(f"wrote {len(CASES)} fingerprints to {GOLDEN}\n")
