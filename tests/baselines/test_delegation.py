"""When shipped models delegate: counting, keeping, drawing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rao_envs
from rao_baselines import delegation, statistics
from rao_baselines.delegation import SUBJECTS, count_decisions, summarize
from rao_baselines.environments import parse_task
from rao_baselines.places import shipped_models
from rao_envs.core.actors import RandomAgent

ENV = "RAO/Maze-10x10-v0"
Rao = Callable[..., Any]


def test_decisions_are_counted_as_the_agent_met_them() -> None:
    seen = {"open": 0, "spawned": 0, "taken": 0}
    env: Any = gym.make(ENV).unwrapped
    spawns = list(env.spawn_actions)
    agent = RandomAgent()

    def watched(observation: Any, mask: Any, state: Any, uniform: float) -> int:
        action = int(agent(observation, mask, state, uniform))
        primitives = np.delete(mask, spawns)
        open_ = bool(mask[spawns].any() and primitives.any())
        seen["taken"] += 1
        seen["open"] += open_
        seen["spawned"] += open_ and action in spawns
        return action

    played = rao_envs.evaluate(watched, ENV, range(6), batch_size=2).episodes
    decisions = count_decisions(played, ENV, {})
    assert decisions.taken.shape == (6, 1 + max(episode.deepest for episode in played))
    assert {name: int(getattr(decisions, name).sum()) for name in seen} == seen
    np.testing.assert_array_equal(decisions.taken.sum(axis=1), [episode.steps for episode in played])
    found = summarize(played, decisions)
    assert found["rate"]["value"] == pytest.approx(seen["spawned"] / seen["open"], abs=1e-6)
    assert found["rate"]["low"] <= found["rate"]["value"] <= found["rate"]["high"]
    assert sum(level["decisions"] for level in found["levels"]) == seen["taken"]
    assert found["frames"] == pytest.approx(np.mean([episode.nodes for episode in played]), abs=0.01)


def test_where_no_decision_is_open_there_is_no_rate() -> None:
    played = rao_envs.evaluate(RandomAgent(), ENV, range(2), max_depth=0).episodes
    found = summarize(played, count_decisions(played, ENV, {"max_depth": 0}))
    assert found["rate"] is None
    assert found["open"] == 0.0
    kept = {"families": {"maze": {"5": {"greedy": found, "sampled": found}}}}
    assert delegation.table(kept)[1][3] == "none is open"


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_has_its_model_and_tasks(name: str) -> None:
    subject = SUBJECTS[name]
    assert (shipped_models() / f"{subject.model}.zip").is_file()
    for task in subject.tasks.values():
        assert parse_task(task).kwargs is not None
    assert set(subject.long) <= set(subject.tasks)


def test_the_command_keeps_what_it_measured_of_others_and_draws(rao: Rao, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = SUBJECTS["maze"]._replace(tasks=dict(list(SUBJECTS["maze"].tasks.items())[:2]))
    monkeypatch.setattr(delegation, "SUBJECTS", {"maze": few, "other": few._replace(label="Other")})
    path = tmp_path / "delegation.json"
    assert rao("bench", "delegation", "other", "--episodes", 2, "--out", path).code == 0
    done = rao("bench", "delegation", "maze", "--episodes", 2, "--out", path)
    assert done.code == 0
    assert "none is open" in done.out or "1.000" in done.out
    kept = json.loads(path.read_text())
    assert set(kept["families"]) == {"other", "maze"}
    assert kept["families"]["maze"] == kept["families"]["other"]
    assert len(kept["models"]["recursive_ppo"]) == 64
    assert kept["command"]
    names = {"delegation.json", *(f"delegation{which}.{end}" for which in ("", "-levels") for end in ("svg", "png"))}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert rao("bench", "delegation", "mase").err.count("Did you mean maze?") == 1
    assert rao("bench", "delegation", "--episodes", 0).code != 0


def test_a_ratio_of_sums_has_an_interval_over_episodes() -> None:
    found = statistics.ratio([1, 3, 0], [2, 4, 0])
    assert found.value == pytest.approx(4 / 6)
    assert 0.5 <= found.low <= found.value <= found.high <= 0.75
    for wrong in (([1], [0]), ([1, 2], [1])):
        with pytest.raises(ValueError, match="a ratio needs"):
            statistics.ratio(*wrong)
