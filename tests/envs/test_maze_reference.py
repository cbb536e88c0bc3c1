"""Ground truth and scripted agents: paths are shortest, solvers solve, and they see the observation alone."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

import rao_envs
from rao_envs.maze import reference
from rao_envs.maze.reference import (
    CHANNELS,
    OPEN_EAST,
    OPEN_SOUTH,
    REGION,
    TARGET,
    VISITS,
    MonolithicSolver,
    RecursiveSolver,
    random_agent,
    shortest_path,
)

NORTH, EAST, SOUTH, WEST = range(4)
DELTAS = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}
STRUCTURES = ("nested", "perfect", "rooms", "open")


def length_by_flooding(links: npt.NDArray[np.uint8], start: tuple[int, int], goal: tuple[int, int]) -> int | None:
    """Moves from start to goal, found without any code of the package."""
    seen, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for bit, (down, right) in DELTAS.items():
            to = cell[0] + down, cell[1] + right
            if links[cell] >> bit & 1 and to not in seen:
                seen[to] = seen[cell] + 1
                queue.append(to)
    return seen.get(goal)


# -- the shortest path ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_paths_are_shortest_and_lead_to_the_goal(structure: str) -> None:
    env = gym.make("RAO/Maze-v0", rows=9, cols=14, structure=structure, spawn=False)
    inner: Any = env.unwrapped
    for seed in range(25):
        env.reset(seed=seed)
        path = shortest_path(env)
        cells = inner.cells
        assert path.moves == length_by_flooding(inner.links, cells["start"], cells["goal"])
        assert path.moves == len(path.actions) == len(path.cells) - 1
        assert tuple(path.cells[0]) == cells["start"] and tuple(path.cells[-1]) == cells["goal"]
        terminated = False
        for action, after in zip(path.actions, path.cells[1:], strict=True):
            assert not terminated
            _, _, terminated, _, info = env.step(action)
            assert inner.cells["agent"] == tuple(after)
        assert terminated and info["is_success"]


def test_a_path_starts_where_the_agent_stands() -> None:
    env = gym.make("RAO/Maze-10x10-v0")
    env.reset(seed=1)
    whole = shortest_path(env)
    for action in whole.actions[:3]:
        env.step(action)
    assert shortest_path(env).moves == whole.moves - 3
    start = env.unwrapped.cells["start"]  # type: ignore[attr-defined]
    assert np.array_equal(shortest_path(env, start=start).actions, whole.actions)
    assert shortest_path(env, start=start, goal=start).moves == 0


def test_maps_without_an_environment() -> None:
    links = np.array([[2, 8, 0], [0, 0, 0]], np.uint8)
    path = shortest_path(links, (0, 0), (0, 1))
    assert (path.moves, path.actions.tolist(), path.cells.tolist()) == (1, [EAST], [[0, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"no path leads from \(0, 0\) to \(1, 2\)"):
        shortest_path(links, (0, 0), (1, 2))
    for start, goal, name in (((0, 3), (0, 0), "start"), ((0, 0), (-1, 0), "goal")):
        with pytest.raises(ValueError, match=f"the {name} .* is outside the maze of 2 x 3 cells"):
            shortest_path(links, start, goal)
    with pytest.raises(ValueError, match="pass start= and goal="):
        shortest_path(links, (0, 0))
    for other in (links.astype(np.int64), links[0], np.zeros((0, 2), np.uint8)):
        with pytest.raises(ValueError, match="links must be uint8"):
            shortest_path(other, (0, 0), (0, 1))
    with pytest.raises(ValueError, match="takes a maze environment"):
        shortest_path(gym.make("CartPole-v1"))


# -- the solvers ---------------------------------------------------------------------------------------------


def success(agent: Any, size: int, seeds: int, **kwargs: Any) -> float:
    summary = rao_envs.evaluate(agent, f"RAO/Maze-{size}x{size}-v0", seeds, **kwargs).summary()["success"]
    assert summary is not None
    return summary.mean


@pytest.mark.parametrize(
    ("size", "seeds", "least"),
    [(5, 60, 1.0), (10, 100, 0.99), (20, 100, 0.98), (40, 60, 0.98), (80, 40, 0.95)],
)
def test_recursion_solves_nested_mazes_of_every_size(size: int, seeds: int, least: float) -> None:
    assert success(RecursiveSolver(), size, seeds) >= least


@pytest.mark.parametrize(
    ("structure", "recursive", "monolithic"),
    [("nested", 0.98, 0.95), ("perfect", 0.6, 0.9), ("rooms", 0.9, 0.92), ("open", 0.97, 0.97)],
)
def test_success_on_every_structure(structure: str, recursive: float, monolithic: float) -> None:
    assert success(RecursiveSolver(), 20, 100, structure=structure) >= recursive
    assert success(MonolithicSolver(), 20, 100, structure=structure, spawn=False) >= monolithic


def test_recursion_scales_further_than_one_window() -> None:
    assert success(RecursiveSolver(), 80, 40) > success(MonolithicSolver(), 80, 40, spawn=False)


def test_chance_alone_solves_little() -> None:
    assert success(random_agent, 20, 100) < 0.15
    assert success(random_agent, 20, 100, spawn=False) < 0.25


def test_solvers_walk_almost_straight() -> None:
    """On nested mazes a solved episode costs little more than the moves it needs and a spawn per block."""
    result = rao_envs.evaluate(RecursiveSolver(), "RAO/Maze-20x20-v0", 50)
    env = gym.make("RAO/Maze-20x20-v0")
    excess = []
    for episode in result.episodes:
        env.reset(seed=episode.seed)
        shortest = shortest_path(env).moves
        assert episode.steps >= shortest
        excess.append((episode.steps - episode.spawns) / shortest)
    assert np.mean(excess) < 1.6


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(
    ("agent", "spawn"),
    [
        (RecursiveSolver(), True),
        (MonolithicSolver(), True),
        (MonolithicSolver(), False),
        (RecursiveSolver(), False),
    ],
)
def test_solvers_take_allowed_actions_only(agent: Any, spawn: bool, structure: str) -> None:
    envs: Any = gym.make_vec("RAO/Maze-40x40-v0", 32, "vector_entry_point", structure=structure, spawn=spawn)
    observation, _ = envs.reset(seed=5)
    rng = np.random.default_rng(0)
    spawns = 0
    for _ in range(150):
        masks = envs.action_masks()
        actions = agent(observation, masks, None, uniform=rng.random(32))
        assert masks[np.arange(32), actions].all()
        spawns += int((actions >= 4).sum())
        observation, *_ = envs.step(actions)
    assert (spawns > 0) == (spawn and agent.spawning)


def test_solvers_see_the_observation_only_and_remember_nothing() -> None:
    env = gym.make("RAO/Maze-20x20-v0")
    used, fresh = RecursiveSolver(), RecursiveSolver()
    observation, _ = env.reset(seed=3)
    for _ in range(30):
        keys = {key: observation[key] for key in ("task", "results")}
        action = used(keys, observation["action_mask"])
        stacked = {key: np.stack([value] * 3) for key, value in keys.items()}
        assert fresh(stacked, np.stack([observation["action_mask"]] * 3)).tolist() == [action] * 3
        assert isinstance(action, int)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    a = rao_envs.evaluate(used, "RAO/Maze-20x20-v0", 12, batch_size=5, structure="perfect")
    b = rao_envs.evaluate(fresh, "RAO/Maze-20x20-v0", range(11, -1, -1), structure="perfect")
    assert a.episodes == b.episodes[::-1]


def test_any_window_radius_will_do() -> None:
    for radius in (1, 2, 7):
        assert success(RecursiveSolver(), 20, 30, radius=radius) > 0.6


def test_observations_of_something_else_are_refused() -> None:
    env = gym.make("RAO/Maze-10x10-v0")
    observation, _ = env.reset(seed=0)
    mask = observation["action_mask"]
    for wrong in (
        ({**observation, "task": observation["task"][:-1]}, mask),
        ({**observation, "results": observation["results"][:-1]}, mask),
        (observation, mask[:5]),
        (observation, np.stack([mask, mask])),
    ):
        with pytest.raises(ValueError, match="not observations of a maze"):
            RecursiveSolver()(*wrong)


def test_the_random_agent_takes_each_allowed_action_alike() -> None:
    mask = np.array([1, 0, 1, 1, 0], np.int8)
    rng = np.random.default_rng(1)
    counts = np.bincount(random_agent({}, np.tile(mask, (3000, 1)), None, uniform=rng.random(3000)), minlength=5)
    assert counts[mask == 0].sum() == 0
    assert (abs(counts[mask == 1] - 1000) < 120).all()  # more than four standard deviations
    assert random_agent({}, mask, None, uniform=0.99) == 3
    assert random_agent({}, np.zeros(5, np.int8), None, uniform=0.99) in range(5)


# -- the parts -----------------------------------------------------------------------------------------------


def window(picture: str, visits: dict[tuple[int, int], int] | None = None) -> npt.NDArray[np.int8]:
    """A 5 x 5 window from a drawing: units at even places, openings `-` and `|` between them.

    A unit is `.` in the region, `T` a target in it, `X` a target outside, `:` anything else outside.
    """
    lines = picture.strip("\n").split("\n")
    result = np.zeros((CHANNELS, 5, 5), np.int8)
    for row in range(5):
        for col in range(5):
            unit = lines[2 * row][2 * col]
            result[REGION, row, col] = unit in ".T"
            result[TARGET, row, col] = unit in "TX"
            if col < 4:
                result[OPEN_EAST, row, col] = lines[2 * row][2 * col + 1] == "-"
            if row < 4:
                result[OPEN_SOUTH, row, col] = lines[2 * row + 1][2 * col] == "|"
    for place, count in (visits or {}).items():
        result[VISITS][place] = count
    return result


RING = """
.:.:.:.:.
:::::::::
.:.-.-.:.
::|:::|::
.:.:.-.:.
::|:::|::
.:.-.-T:.
:::::::::
.:.:.:.:.
"""


def walk(picture: npt.NDArray[np.int8], closed: int = 0) -> tuple[int, int]:
    direction, purpose = reference.walk(picture, closed, reference.NO_AIM, reference.NO_AIM)
    return int(direction), int(purpose)


def test_a_walk_takes_the_shortest_way_to_a_target_in_sight() -> None:
    assert walk(window(RING)) == (EAST, reference.ARRIVE)
    assert walk(window(RING), closed=1 << EAST) == (-1, reference.NOWHERE)


def test_a_walk_crosses_no_wall_and_leaves_only_to_a_target() -> None:
    picture = window(
        """
.:.:.:::X
|:|:|::::
.-.-.-::-
::::|::::
.:.:.-.-X
:::::::::
.:.:.::::
:::::::::
.:.:.::::
"""
    )
    assert walk(picture) == (EAST, reference.ARRIVE)
    picture[TARGET] = 0
    assert walk(picture)[1] == reference.EXPLORE  # the window's northern border may lead on
    assert walk(picture)[0] == NORTH
    assert walk(picture, closed=1 << NORTH) == (EAST, reference.OUT)


def test_a_walk_without_a_target_in_sight_goes_where_it_was_least() -> None:
    corridor = """
:::::::::
:::::::::
:::::::::
:::::::::
.-.-.-.-.
:::::::::
:::::::::
:::::::::
:::::::::
"""
    picture = window(corridor)
    picture[OPEN_EAST, 2, 4] = 1
    picture[TARGET, 0, 4] = 1
    assert walk(picture) == (EAST, reference.EXPLORE)
    picture[VISITS, 2, 3] = 1
    assert walk(picture) == (WEST, reference.EXPLORE)
    picture[VISITS, 2, 1] = 2
    assert walk(picture) == (EAST, reference.EXPLORE)


def test_straying_is_a_trail_longer_than_the_way_back() -> None:
    straight = window(RING, {(1, 3): 1, (2, 3): 1, (2, 2): 1})
    assert reference.strayed(straight) == 0
    assert reference.trodden_sides(straight) == 1
    around = window(RING, {(2, 3): 1, (2, 2): 1, (3, 3): 1, (1, 3): 1})
    assert reference.strayed(around) == 1
