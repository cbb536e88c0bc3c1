"""Scripted agents on nested brackets, and the tables that the documentation quotes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rao_envs
from rao_envs.core.batch import RecursiveBatch
from rao_envs.nested import reference
from rao_envs.nested.domain import NestedDomain
from rao_envs.nested.reference import MonolithicSolver, RecursiveSolver, shape_of

ID = "RAO/LongSeq-nested-v0"


@pytest.mark.parametrize("identity", ["RAO/LongSeq-nested-320-v0", "RAO/LongSeq-nested-3k-v0", "RAO/LongSeq-nested-32k-v0"])
@pytest.mark.parametrize("view", ["folded", "raw"])
def test_recursion_solves_every_task_of_every_id_well_within_the_budget(identity: str, view: str) -> None:
    seeds = 4 if "32k" in identity else 40
    result = rao_envs.evaluate(RecursiveSolver(view=view), identity, seeds, view=view)
    assert all(episode.success for episode in result.episodes)
    budget = NestedDomain(length={"320": 320, "3k": 3200, "32k": 32000}[identity.split("-")[-2]]).budget
    assert max(episode.steps for episode in result.episodes) < budget / 2


@pytest.mark.parametrize(
    "kwargs",
    [
        {"length": 200, "max_nesting": 1},
        {"length": 200, "modulus": 10, "slots": 2, "notes": 0},
        {"length": (8, 300), "view": "raw", "window": 4, "stack": 2, "max_arguments": 20},
        {"length": 100, "view": "raw", "window": 20, "slots": 8, "max_nesting": 2},
        {"length": 100, "max_arguments": 30, "slots": 3, "operators": "MAX", "stack": 3},
    ],
    ids=str,
)
def test_recursion_solves_tasks_of_any_form(kwargs: dict[str, Any]) -> None:
    result = rao_envs.evaluate(RecursiveSolver(**kwargs), ID, 30, **kwargs)
    assert all(episode.success for episode in result.episodes)


def test_children_one_at_a_time_need_no_more_than_the_budget() -> None:
    class OneByOne(RecursiveSolver):
        """Never spawns several at once."""

        def __call__(self, observation: Any, mask: Any, state: Any = None) -> Any:
            first = len(self.domain.primitives)
            open_slots = mask[:, first : first + self.domain.slots]
            return np.where(open_slots.any(1), first + open_slots.argmax(1), super().__call__(observation, mask))

    result = rao_envs.evaluate(OneByOne(), "RAO/LongSeq-nested-320-v0", 40)
    assert all(episode.success for episode in result.episodes)


@pytest.mark.parametrize("view", ["folded", "raw"])
def test_agents_are_told_apart_by_their_memory_alone(view: str) -> None:
    """Alone, from left to right: perfect with memory for every level, no better than a guess with what a frame has."""
    enough: dict[str, Any] = {"view": view, "length": 60, "window": 64 if view == "raw" else 8, "stack": 20 if view == "folded" else 0}
    alone: dict[str, Any] = {"spawn": False, **enough}
    result = rao_envs.evaluate(MonolithicSolver(**enough), ID, 40, **alone)
    assert all(episode.success for episode in result.episodes)
    short = rao_envs.evaluate(MonolithicSolver(view=view), "RAO/LongSeq-nested-320-v0", 200, view=view, spawn=False)
    assert np.mean([episode.success for episode in short.episodes]) < 0.45


def test_solvers_find_out_the_usual_layouts_by_themselves() -> None:
    layouts: list[dict[str, Any]] = [{}, {"view": "raw"}, {"modulus": 10}, {"view": "raw", "stack": 4}]
    for kwargs in layouts:
        result = rao_envs.evaluate(RecursiveSolver(), ID, 5, length=30, **kwargs)
        assert all(episode.success for episode in result.episodes)
    with pytest.raises(ValueError, match="make the solver with the environment's keyword arguments"):
        rao_envs.evaluate(RecursiveSolver(view="raw"), ID, 1)


def test_the_recursive_solver_acts_in_a_single_environment_and_as_the_twin() -> None:
    result = rao_envs.evaluate(RecursiveSolver(), "RAO/LongSeq-nested-320-v0", 200, spawn=False)
    assert np.mean([episode.success for episode in result.episodes]) < 0.45  # it can only guess
    import gymnasium as gym

    env: Any = gym.make(ID, length=20)
    observation, info = env.reset(seed=0)
    action = RecursiveSolver()(observation, info["action_mask"])
    assert env.unwrapped.action_names[action] == "spawn_all"


def test_shapes_say_what_memory_a_task_needs() -> None:
    def shape(text: str) -> reference.Shape:
        batch = RecursiveBatch(NestedDomain(text=text), 1)
        batch.seed(0, 0)
        batch.reset()
        return shape_of(batch, 0, (1, 2, 3))

    chain = shape("[SUM 1 [MAX 1 [SUM 2 [MIN 1 2]]]]")
    assert (chain.brackets, chain.nesting, chain.levels, chain.answer) == (4, 3, 1, 2)
    two = shape("[SUM [MAX 1 0] [MIN 1 2] 2]")
    assert (two.levels, two.answer, two.visible) == (2, 1, 2)
    assert two.inner[1:] == (1, 1)
    deep = shape("[SUM [SUM [SUM 1 1] [SUM 1 2]] [SUM [SUM 2 2] [SUM 0 1]]]")
    assert (deep.levels, deep.answer) == (3, 1)
    assert deep.inner[2] == 1
    assert deep.outer[2] == 1
    assert deep.outer[0] == 0  # both sums guessed as 0


def test_the_printed_tables(capsys: pytest.CaptureFixture[str]) -> None:
    reference.main(["--lengths", "40", "--levels", "1", "12", "--episodes", "20"])
    printed = capsys.readouterr().out
    assert "40 tokens, 20 tasks" in printed
    assert "recursion, folded: 1.000" in printed
    assert "recursion, raw: 1.000" in printed
    assert "12: 1.00" in printed.split("reading once")[1].splitlines()[0]
