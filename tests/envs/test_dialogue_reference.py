"""Scripted agents of the Dialogue family: fresh windows are what recursion gains, and nothing in the game stands in a planner's way."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rao_envs
from rao_envs.dialogue import reference
from rao_envs.dialogue.acts import ACCEPT, AGREE, ANY, CORRECT, GREET, INFORM, NONE, OFFER, REJECT, REQUEST, SAME
from rao_envs.dialogue.domain import DialogueDomain
from rao_envs.dialogue.ontology import trip_ontology
from rao_envs.dialogue.reference import BeliefTracker, Oracle, ParallelSolver, RecursiveSolver, WindowSolver, full_context, score
from rao_envs.dialogue.tracker import Mind

TEN = "RAO/Dialogue-10turn-v0"
EPISODES = 400


def success(name: str, env_id: str = TEN, episodes: int = EPISODES, **kwargs: Any) -> float:
    return mean(score(name, env_id, episodes, **kwargs), "success")


def mean(summary: Any, name: str) -> float:
    assert summary[name] is not None
    return float(summary[name].mean)


# -- what the context allows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "alone", "recursive"), [(5, (0.8, 0.94), (0.84, 0.95)), (10, (0.66, 0.82), (0.95, 1)), (40, (0.28, 0.5), (0.96, 1))]
)
def test_recursion_plans_what_one_dialogue_forgets(turns: int, alone: tuple[float, float], recursive: tuple[float, float]) -> None:
    """Bands: a simulator that lies more or less, or a window that holds more or less, would leave them."""
    env_id = f"RAO/Dialogue-{turns}turn-v0"
    assert alone[0] < success("window", env_id) < alone[1]
    assert recursive[0] < success("recursive", env_id) <= recursive[1]


def test_the_window_is_what_limits_one_dialogue() -> None:
    alone = [success("window", window=window) for window in (4, 8, 12, 27)]
    recursive = [success("recursive", window=window) for window in (4, 8, 12, 27)]
    assert sorted(alone) == alone
    assert alone[0] < 0.2 and recursive[0] < 0.75  # four acts are too few for anybody
    assert recursive[1] > alone[1] + 0.25 and recursive[2] > alone[2] + 0.12
    assert recursive[1] > 0.95
    assert abs(alone[3] - recursive[3]) < 0.02 and alone[3] > 0.96  # what is never forgotten need not be handed over: no gain left


def test_without_noise_a_reference_is_all_that_can_be_forgotten() -> None:
    quiet = {"error_rate": 0.0, "volunteering": 1.0, "unsatisfiable": 0.0}
    assert success("recursive", **quiet) == 1.0
    assert success("window", dependency=0.0, **quiet) == 1.0
    assert success("window", dependency=1.0, **quiet) < 0.9


def test_noise_is_what_takes_turns() -> None:
    steps = [mean(score("recursive", TEN, 200, error_rate=rate), "steps") for rate in (0.0, 0.1, 0.3)]
    assert sorted(steps) == steps and steps[2] > steps[0] + 1
    assert success("recursive", error_rate=0.4) < success("recursive") - 0.1
    assert success("random") < 0.25


def test_children_at_once_shorten_the_critical_path_unless_all_hangs_together() -> None:
    ratios = []
    for dependency in (0.0, 0.6, 1.0):
        summary = score("parallel", TEN, EPISODES, dependency=dependency)
        assert mean(summary, "success") > 0.94
        ratios.append(mean(summary, "steps") / mean(summary, "critical_path"))
    assert ratios[0] > 1.8 > 1.45 > ratios[1] > 1.15 and 1.0 < ratios[2] < ratios[1]
    one_by_one = score("recursive", TEN, 50)
    assert mean(one_by_one, "steps") == mean(one_by_one, "critical_path")
    assert score("recursive", TEN, 50, max_depth=0, window=27)["success"] == score("window", TEN, 50, max_depth=0, window=27)["success"]


# -- with everything in sight --------------------------------------------------------------------------------------------------------


def test_the_tracker_is_above_both_and_everything_can_be_done() -> None:
    env_id = "RAO/Dialogue-5turn-v0"
    tracker = success("tracker", env_id, 120)
    assert tracker > 0.91
    assert tracker > success("recursive", env_id, 120) and tracker > success("window", env_id, 120)
    assert success("tracker", TEN, 40) >= 0.95 > success("window", TEN, 120)
    assert success("oracle", env_id, 100) == success("oracle", TEN, 40) == 1.0


def test_the_tracker_does_not_look_at_the_wishes() -> None:
    env, tracker = full_context(), BeliefTracker()
    observation, _ = env.reset(seed=3)
    done = False
    while not done:
        mask = observation["action_mask"].astype(bool)
        action = tracker(observation, mask)
        assert action == tracker({**observation, "hidden": np.full_like(observation["hidden"], 3)}, mask)
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    assert reward == 1


def test_the_planners_act_in_full_context_alone() -> None:
    env = gym.make(TEN, spawn=False)
    observation, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match="sees more than an agent may"):
        Oracle()(observation, observation["action_mask"].astype(bool))
    with pytest.raises(ValueError, match="different goals"):
        BeliefTracker(ontology=wide_ontology(), domains=1)


def wide_ontology() -> dict[str, Any]:
    values = [str(k) for k in range(16)]
    slots = [{"name": name, "values": values} for name in ("day", "price", "area", "kind")]
    entities = [{"name": f"Place {v}", "values": dict.fromkeys(("day", "price", "area", "kind"), v)} for v in values]
    return {"version": 1, "name": "wide", "cities": ["Graz"], "domains": [{"name": "hotel", "slots": slots, "entities": entities}]}


def mind(**kwargs: Any) -> Mind:
    shelf = np.array([[0, 0, 0, 0], [0, 0, 1, 0], [1, 2, 3, 0], [2, 2, 2, 2]])
    return Mind(DialogueDomain(**kwargs), shelf, np.full(4, NONE))


def said(*acts: tuple[int, int, int, int, int]) -> Any:
    return np.array(acts, np.int64)


OPENING = ((GREET, NONE, NONE, NONE, 1), (INFORM, 0, 0, NONE, 1), (INFORM, 1, 0, NONE, 1), (INFORM, 2, 1, NONE, 1))


def test_belief_follows_what_is_said() -> None:
    belief = mind()
    belief.hear(said(*OPENING))
    assert belief.fitting().tolist() == [1] and belief.right(1) > 0.95 and belief.right(0) < 0.05
    assert belief.after(ACCEPT, NONE, NONE, 1, 1).right(1) == pytest.approx(1)
    turned_down = belief.after(REJECT, 2, NONE, 1, 1)
    assert turned_down.right(1) == 0 and turned_down.right(0) > 0.5 and turned_down.fitting().tolist() == [0]
    corrected = belief.after(CORRECT, 2, 0, NONE, 1)
    assert corrected.fitting().tolist() == [0] and corrected.right(0) > 0.9
    assert belief.right(1) > 0.95  # looking ahead changes nothing


def test_a_flexible_wish_is_likelier_where_nothing_fits() -> None:
    belief = mind(error_rate=0.01)
    belief.hear(said(OPENING[0], (INFORM, 0, 1, NONE, 1), (INFORM, 1, 2, NONE, 1), (INFORM, 2, 2, NONE, 1)))
    assert len(belief.fitting()) == 0
    assert float(belief.weights @ (belief.goals.flexible >= 0)) > 0.7
    agreed = belief.after(AGREE, 2, 2, NONE, 1)
    assert agreed.fitting().tolist() == [2] and agreed.right(2) == pytest.approx(1)


def test_answers_are_a_distribution() -> None:
    belief = mind()
    belief.hear(said(*OPENING[:3]))
    for kind, slot, entity in ((REQUEST, 2, NONE), (REQUEST, 3, NONE), (OFFER, 0, 1)):
        assert sum(chance for chance, _ in belief.answers(kind, slot, entity)) == pytest.approx(1, abs=1e-3)
    assert belief.after(ANY, 3, NONE, NONE, 1).right(1) == pytest.approx(1 - belief.after(ANY, 3, NONE, NONE, 1).right(0), abs=0.2)


def test_a_reference_is_certain_and_its_value_known() -> None:
    shelf = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]])
    belief = Mind(DialogueDomain(), shelf, np.array([2, NONE, NONE, NONE]))
    belief.hear(said(OPENING[0], (INFORM, 0, SAME, NONE, 1), (INFORM, 1, 0, NONE, 1), (INFORM, 2, 0, NONE, 1)))
    assert belief.fitting().tolist() == [2] and belief.right(2) > 0.95


# -- as agents -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [RecursiveSolver, ParallelSolver, WindowSolver])
def test_one_observation_or_many_and_no_memory(solver: Any) -> None:
    """The action depends on the observation and the mask alone."""
    env = gym.make(TEN, spawn=solver is not WindowSolver)
    used, fresh = solver(), solver()
    observation, _ = env.reset(seed=5)
    for _ in range(8):
        mask = observation["action_mask"]
        action = used(observation, mask)
        assert isinstance(action, int) and mask[action]
        stacked = {key: np.stack([value, value]) for key, value in observation.items()}
        assert fresh(stacked, stacked["action_mask"]).tolist() == [action, action]
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break


def test_a_solver_reads_the_window_from_the_observation_and_refuses_others() -> None:
    for window in (4, 27):
        env = gym.make(TEN, window=window)
        observation, _ = env.reset(seed=0)
        told, given = RecursiveSolver(), RecursiveSolver(window=window)
        assert told(observation, observation["action_mask"]) == given(observation, observation["action_mask"])
        with pytest.raises(ValueError, match="not observations of Dialogue"):
            RecursiveSolver(window=8)(observation, observation["action_mask"])
    with pytest.raises(ValueError, match="not observations of Dialogue"):
        RecursiveSolver(slots=3)(observation, observation["action_mask"])
    with pytest.raises(ValueError, match="mask"):
        RecursiveSolver()(observation, observation["action_mask"][:-1])


def test_options_and_an_ontology_of_ones_own() -> None:
    several: tuple[dict[str, Any], ...] = (
        {"slots": 3, "values": 3},
        {"constraints": (1, 3)},
        {"ontology": trip_ontology()},
        {"ontology": wide_ontology(), "domains": 1, "turns": 5},
        {"cities": (2, 3), "domains": 6, "turns": 20},
    )
    for options in several:
        assert success("recursive", "RAO/Dialogue-v0", 150, **options) > 0.85, options


def test_the_command_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    reference.main(["--episodes", "4", "--planned", "1"])
    text = capsys.readouterr().out
    assert text.count("`RAO/Dialogue-") == 4 + 6 and "| 27 |" in text and "oracle" in text


def test_rao_evaluate_finds_the_solvers() -> None:
    agents = pytest.importorskip("rao_baselines.agents")
    several: tuple[dict[str, Any], ...] = ({}, {"spawn": False}, {"window": 16}, {"spawn": False, "slots": 3, "values": 3})
    for kwargs in several:
        loaded = agents.load_agent("solver", TEN, kwargs)
        assert type(loaded.agent) is (RecursiveSolver if kwargs.get("spawn", True) else WindowSolver)
        assert mean(rao_envs.evaluate(loaded.agent, TEN, 20, progress=False, **kwargs).summary(), "success") > 0.3
