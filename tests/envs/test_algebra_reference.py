"""Scripted agents of the Algebra family: recursion solves everything, and the slots are what limits the others."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rao_envs
from rao_envs.algebra import reference
from rao_envs.algebra import tree as t
from rao_envs.algebra.env import AlgebraEnv
from rao_envs.algebra.reference import LeftFirstSolver, MonolithicSolver, RecursiveSolver, random_agent, solvable

IDS = [identity for identity in rao_envs.registered_ids() if "Algebra" in identity]


def mean(agent: Any, env_id: str, seeds: int, name: str = "success", **kwargs: Any) -> float:
    interval = rao_envs.evaluate(agent, env_id, seeds, progress=False, **kwargs).summary()[name]
    assert interval is not None
    return interval.mean


@pytest.mark.parametrize("env_id", IDS)
def test_recursion_solves_every_registered_id_within_its_budget(env_id: str) -> None:
    assert mean(RecursiveSolver(), env_id, 300) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"depth": (1, 4)},
        {"depth": 20},
        {"depth": 8, "modulus": 2, "slots": 4},
        {"depth": 6, "substitution": True, "modulus": 13},
        {"depth": 5, "polynomial": True},
        {"depth": 5, "polynomial": True, "substitution": True, "degree": 4, "symbols": 2},
        {"depth": 6, "polynomial": True, "substitution": True, "degree": 2, "symbols": 3, "modulus": 3},
        {"expressions": ["3*(x - 2) - d/dx(4*x + 1)", "((2*x + 1)[x := 3*x])", "x"]},
    ],
    ids=str,
)
def test_recursion_solves_every_option(options: dict[str, Any]) -> None:
    assert mean(RecursiveSolver(**options), "RAO/Algebra-v0", 60, **options) == 1.0


def test_recursion_solves_with_one_child_at_a_time_and_where_spawning_ends() -> None:
    class OneByOne(RecursiveSolver):
        def move(self, task: Any, masks: Any) -> Any:
            return super().move(task, masks & (np.arange(masks.shape[1]) != self.domain.modulus + 5))

    assert mean(OneByOne(), "RAO/Algebra-depth8-v0", 100) == 1.0
    assert mean(RecursiveSolver(slots=5), "RAO/Algebra-depth8-v0", 100, slots=5, max_depth=3) == 1.0


@pytest.mark.parametrize("agent", [MonolithicSolver(), LeftFirstSolver()])
@pytest.mark.parametrize("spawn", [True, False])
def test_alone_one_solves_exactly_what_fits_the_slots(agent: Any, spawn: bool) -> None:
    """In the best order nothing is computed twice; left first, what was evicted is computed again when it fits."""
    evaluation = rao_envs.evaluate(agent, "RAO/Algebra-depth8-v0", 150, spawn=spawn, progress=False)
    env = gym.make("RAO/Algebra-depth8-v0").unwrapped
    assert isinstance(env, AlgebraEnv)
    solved = 0
    for episode in evaluation.episodes:
        env.reset(seed=episode.seed)
        fits = t.slots_needed(env.tree)[0] <= 2
        assert episode.success == fits
        solved += episode.success
        if fits and type(agent) is MonolithicSolver:
            assert episode.steps == 3 * t.operations(env.tree) - 1
    assert 50 < solved < 90


def test_what_fits_and_what_does_not() -> None:
    shares = solvable((1, 2, 3, 4, 5), 500, depth=8)
    assert shares["best"][1] == pytest.approx(0.44, abs=0.07)  # neither hopeless nor enough
    assert shares["best"][2] > 0.93
    for best, left in zip(shares["best"], shares["left"], strict=True):
        assert left <= best
    assert sorted(shares["best"]) == shares["best"]


def test_recursion_takes_no_more_steps_and_a_shorter_critical_path() -> None:
    steps = mean(RecursiveSolver(), "RAO/Algebra-depth4-v0", 100, "steps")
    assert steps <= mean(MonolithicSolver(), "RAO/Algebra-depth4-v0", 100, "steps", spawn=False)
    assert mean(RecursiveSolver(), "RAO/Algebra-depth8-v0", 100, "critical_path") < 30


def test_chance_solves_little() -> None:
    assert mean(random_agent, "RAO/Algebra-depth2-v0", 300) < 0.12
    assert mean(random_agent, "RAO/Algebra-depth8-v0", 100) < 0.12


def test_one_observation_or_many() -> None:
    env = gym.make("RAO/Algebra-depth4-v0")
    observation, info = env.reset(seed=3)
    solver = RecursiveSolver()
    action = solver(observation, info["action_mask"])
    assert isinstance(action, int)
    stacked = {key: np.stack([value, value]) for key, value in observation.items()}
    assert solver(stacked, stacked["action_mask"]).tolist() == [action, action]
    with pytest.raises(ValueError, match="not observations of Algebra"):
        RecursiveSolver(slots=3)(observation, info["action_mask"])


def test_the_command_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    reference.main(["--depths", "2", "3", "--trees", "50", "--episodes", "5"])
    text = capsys.readouterr().out
    assert "K=1" in text and "1.000 / 1.000" in text
    assert text.count("recursive") == 2 and text.count("left first") == 3
