"""`curriculum` and `mixture` in settings: how they are read, what is trained, and that a run resumes in its stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rao_agents.mixed import mixed_vec_env
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import Settings, load_settings, parse_assignments
from rao_baselines.environments import make_training_env, training_tasks
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.experiments import SUITES
from rao_baselines.runs import read_json
from rao_baselines.training import train
from tests.baselines.small_runs import ENV, tiny

STAGES = ["RAO/Maze-5x5", "RAO/Maze?rows=7&cols=5", "RAO/Maze-10x10"]


def settings(*assignments: str, algorithm: str = "recursive_ppo") -> Settings:
    return load_settings(find_algorithm(algorithm), ENV, parse_assignments(list(assignments)))


def test_lists_and_mappings_say_the_same() -> None:
    short = settings("curriculum=[RAO/Maze-5x5,RAO/Maze-10x10]")
    assert short.curriculum == {"stages": ["RAO/Maze-5x5", "RAO/Maze-10x10"]}
    paced = settings("curriculum.stages=[RAO/Maze-5x5,RAO/Maze-10x10]", "curriculum.threshold=0.8")
    assert paced.curriculum == {"stages": ["RAO/Maze-5x5", "RAO/Maze-10x10"], "threshold": 0.8}
    assert settings("mixture=[RAO/Maze-5x5,RAO/Maze-10x10]").mixture == {"RAO/Maze-5x5": 1.0, "RAO/Maze-10x10": 1.0}
    assert settings("mixture={RAO/Maze-5x5: 1, RAO/Maze-10x10: 3}").mixture == {"RAO/Maze-5x5": 1.0, "RAO/Maze-10x10": 3.0}
    assert settings().curriculum is None


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["curriculum=5"], "curriculum must be a list of tasks"),
        (["curriculum=[RAO/Maze-5x5]"], "at least two stages"),
        (["curriculum=[5, 6]"], r"must be tasks such as \[RAO/Maze-5x5, RAO/Maze-10x10\]"),
        (["curriculum.stages=[RAO/Maze-5x5,RAO/Maze-10x10]", "curriculum.treshold=1"], "no 'treshold'. Did you mean threshold"),
        (["curriculum.threshold=1"], "with stages among its keys"),
        (["mixture=5"], "mixture must be a list of tasks, or a mapping"),
        (["mixture=[]"], "must be tasks such as"),
        (["mixture={RAO/Maze-5x5: -1}"], "weights must be at least 0"),
        (["mixture={RAO/Maze-5x5: many}"], "must be a finite number"),
        (["mixture=[RAO/Maze-5x5]", "curriculum=[RAO/Maze-5x5,RAO/Maze-10x10]"], "leave one of them out"),
        (["mixture=[RAO/Maze-5x5]", "repeats=2"], "does not go with repeats"),
    ],
)
def test_what_cannot_be_read_is_explained(assignments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(*assignments)


def test_tasks_have_the_runs_arguments_and_their_own() -> None:
    found = settings(f"mixture={{{STAGES[0]}: 1, '{STAGES[1]}': 3}}", "env_kwargs.radius=2", "env_kwargs.budget=25", "n_envs=8")
    assert training_tasks(found) == ([("RAO/Maze-5x5-v0", {}), ("RAO/Maze-v0", {"rows": 7, "cols": 5})], [1.0, 3.0])
    env = make_training_env(ENV, found, True, seed=0)
    mixed = mixed_vec_env(env)
    assert mixed is not None
    env.reset()
    assert mixed.mixed.playing.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert mixed.tasks[1][1] == {"radius": 2, "budget": 25, "spawn": True, "rows": 7, "cols": 5}
    alone = mixed_vec_env(make_training_env(ENV, settings("mixture=[RAO/Maze-10x10]", "n_envs=2"), True, seed=0))
    assert alone is not None
    assert alone.tasks[0][0] == "RAO/Maze-10x10-v0"


@pytest.mark.parametrize("algorithm", ["recursive_ppo", "maskable_ppo", "recursive_a2c", "ppo", "dqn"])
def test_a_run_moves_through_its_stages_and_is_scored_on_its_own_task(algorithm: str, tmp_path: Path) -> None:
    curriculum = {"stages": STAGES, "threshold": 0.0, "every": 100, "episodes": 2}
    result = train(tiny(algorithm, tmp_path / "run", overrides={"curriculum": curriculum}))
    assert [entry["stage"] for entry in result["curriculum"]] == [0, 1]
    assert result["scored_on"] == ENV
    assert result["settings"]["curriculum"]["stages"] == STAGES
    mixture = train(tiny(algorithm, tmp_path / "mixture", overrides={"mixture": STAGES[:2]}))  # DQN has two environments here
    assert mixture["curriculum"] == []


def test_a_stopped_run_goes_on_in_its_stage(tmp_path: Path) -> None:
    def spec(folder: str) -> Any:
        curriculum = {"stages": STAGES, "threshold": 0.0, "every": 100, "episodes": 2}
        return tiny("recursive_ppo", tmp_path / folder, overrides={"curriculum": curriculum})

    whole = train(spec("whole"))
    asked = iter([False, False, False, True])
    with pytest.raises(StoppedError):
        train(spec("stopped"), should_stop=lambda: next(asked))
    resumed = train(spec("stopped"), resume=True)
    assert resumed["curriculum"] == whole["curriculum"]
    assert [point["greedy"] for point in resumed["curve"]] == [point["greedy"] for point in whole["curve"]]
    assert read_json(tmp_path / "stopped" / "config.json")["settings"]["curriculum"]["every"] == 100


@pytest.mark.parametrize(
    ("env_id", "overrides", "message"),
    [
        (ENV, {"curriculum": {"stages": STAGES, "threshold": 2}}, r"curriculum: threshold must be a number in \[0, 1\]"),
        (ENV, {"curriculum": ["RAO/Maze-5x5", "RAO/Maze-6x6x6"]}, "no environment is called 'RAO/Maze-6x6x6'"),
        (ENV, {"mixture": ["RAO/Maze-5x5", "RAO/Relay-down"]}, "an agent for RAO/Maze-5x5-v0 cannot train on RAO/Relay-down-v0"),
        (ENV, {"mixture": ["CartPole-v1"]}, "takes this suite's environments; CartPole-v1 is none"),
        ("CartPole-v1", {"policy": "MlpPolicy", "mixture": [ENV]}, "takes this suite's environments; CartPole-v1 is none"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    env_id: str, overrides: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        train(tiny("recursive_ppo", tmp_path / "run", env_id=env_id, overrides=overrides))
    assert not (tmp_path / "run").exists()


def test_every_row_of_the_suite_can_be_read() -> None:
    for row in SUITES["curriculum"].rows:
        found = load_settings(find_algorithm(row.algorithm), row.env_id, row.overrides)
        if found.curriculum or found.mixture:
            tasks, weights = training_tasks(found)
            assert len(tasks) == len(weights) >= 3
