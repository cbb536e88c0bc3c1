from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_runs import ENV, tiny

from rao_agents import RecursivePPO, load_safely, make_vec_env
from rao_baselines import training
from rao_baselines.agents import load_agent
from rao_baselines.algorithms import ALGORITHMS
from rao_baselines.errors import StoppedError, UserError
from rao_baselines.evaluation import evaluation_seeds, score
from rao_baselines.runs import RunFolder, read_json
from rao_baselines.spec import FIRST_SEED, MAX_ENVS, MAX_SEED, TrainSpec, training_seed
from rao_baselines.training import train
from rao_envs import Evaluation


def same_model(first: Path, second: Path) -> bool:
    """Bit for bit: weights, and the optimiser's state."""
    a, b = (load_safely(path).policy.state_dict() for path in (first, second))
    optimisers = [zipfile.ZipFile(path).read("policy.optimizer.pth") for path in (first, second)]
    return a.keys() == b.keys() and all(th.equal(a[key], b[key]) for key in a) and optimisers[0] == optimisers[1]


def stop_at(*calls: int) -> Callable[[], bool]:
    """Asks to stop at these of the calls, counted over all runs."""
    count = 0

    def asked() -> bool:
        nonlocal count
        count += 1
        return count in calls

    return asked


def without_times(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in point.items() if key != "seconds"} for point in points]


def test_specialists_are_told_which_frame_acts(tmp_path: Path) -> None:
    """By a setting alone: in training, on other sizes, and when the model is used later."""
    overrides = {"specialists": "level", "threshold": "situation", "frame_price": "lin_0_0.1_0.5"}
    spec = tiny("recursive_ppo", tmp_path / "run", overrides=overrides, transfer=["RAO/Maze-10x10?budget=30"])
    result = train(spec)
    assert result["transfer"].keys() == {"RAO/Maze-10x10?budget=30"}
    loaded = load_agent(str(tmp_path / "run"), "RAO/Maze-10x10-v0", {"budget": 30})
    assert loaded.env_kwargs == {"observe_frame": True, "budget": 30, "spawn": True} and loaded.agent.policy.networks == 2
    again = score(loaded.agent, "RAO/Maze-10x10-v0", evaluation_seeds(4), mode="sampled", env_kwargs=loaded.env_kwargs)
    assert again.summary()["steps"].mean == result["transfer"]["RAO/Maze-10x10?budget=30"]["sampled"]["steps"]  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_states_are_kept_where_nothing_is_masked(mode: str) -> None:
    """All states reach the policy, and none of the masks."""
    model = RecursivePPO(
        "MultiInputPolicy",
        make_vec_env(ENV, 2, 0, observe_frame=True, budget=30),
        n_steps=8,
        batch_size=16,
        state_transfer="hidden",
        seed=0,
    )
    seeds = evaluation_seeds(6)
    arguments: dict[str, Any] = {"observe_frame": True, "budget": 30}
    masked, free = (score(model, ENV, seeds, mode=mode, env_kwargs=arguments, use_masking=use) for use in (True, False))
    env = gym.make(ENV, **arguments)
    for one in (masked, free):
        forbidden = 0
        for episode in one.episodes:
            env.reset(seed=episode.seed)
            for action in episode.actions:
                forbidden += not env.unwrapped.action_masks()[action]  # type: ignore[attr-defined]
                env.step(action)
        assert (forbidden > 0) == (one is free)
    assert free.agent == "RecursivePPO"


def test_stacked_observations_do_not_go_with_frames(tmp_path: Path) -> None:
    for setting in ({"state_transfer": "summary"}, {"specialists": "level"}, {"state_transfer_kwargs.memory": 2}):
        with pytest.raises(UserError, match="frame_stack does not go with specialists, state_transfer or a memory"):
            train(tiny("recursive_ppo", tmp_path / "run", overrides={"frame_stack": 2, **setting}))


EXTRAS: dict[str, dict[str, Any]] = {
    "ppo": {"frame_stack": 2, "normalize": True, "step_penalty": 0.01, "ent_coef": "lin_0.1"},
    "recursive_a2c": {"advantage": "rloo", "repeats": 2, "credit": "tree"},
    # A replay buffer stores what VecNormalize saw: it has to come after the stacking.
    "dqn": {"frame_stack": 2, "normalize": True},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_resumed_run_ends_with_the_same_model(algorithm: str, tmp_path: Path) -> None:
    overrides = EXTRAS.get(algorithm, {})
    whole = train(tiny(algorithm, tmp_path / "whole", overrides=overrides))
    asked = stop_at(3, 6)
    parts = 0
    for resume in (False, True, True):
        try:
            result = train(tiny(algorithm, tmp_path / "parts", overrides=overrides), resume=resume, should_stop=asked)
        except StoppedError:
            parts += 1
            assert RunFolder(tmp_path / "parts").checkpoint.is_file()
    assert parts == 2
    assert same_model(tmp_path / "whole" / "model.zip", tmp_path / "parts" / "model.zip")
    assert without_times(result["curve"]) == without_times(whole["curve"])
    assert result["final"] == whole["final"]
    assert not RunFolder(tmp_path / "parts").checkpoint.exists()


def test_a_run_leaves_everything_that_is_needed(tmp_path: Path) -> None:
    reports: list[training.Progress] = []
    spec = tiny("recursive_ppo", tmp_path, transfer=["RAO/Maze-10x10"], env_id="Maze-5x5")
    result = train(spec, report=reports.append)
    folder = RunFolder(tmp_path)
    assert read_json(folder.result) == result
    assert result["env_id"] == ENV
    assert [point["steps"] for point in result["curve"]] == [0, 192, 320, 448]
    assert read_json(folder.curve)["points"] == result["curve"]
    assert all(0 <= point[mode]["success"] <= 1 for point in result["curve"] for mode in ("greedy", "sampled"))
    assert result["curve"][0]["sampled"]["episodes"] == 3
    assert result["final"]["greedy"]["episodes"] == result["transfer"]["RAO/Maze-10x10"]["sampled"]["episodes"] == 4
    low, high = (result["final"]["sampled"]["summary"]["success"][end] for end in ("low", "high"))
    assert 0 <= low <= result["final"]["sampled"]["success"] <= high <= 1
    for key in ("command", "commit", "versions", "hardware", "seconds", "steps_per_second", "seeds", "settings", "parameters"):
        assert key in result
    assert result["versions"]["torch"].partition("+")[0] == th.__version__.partition("+")[0]
    assert result["seeds"] == {"training": 0, "evaluation": [FIRST_SEED, 4]}
    assert [reports[0].steps, reports[-1].steps, reports[-1].total] == [0, 448, 400]
    assert [episode.seed for episode in Evaluation.load(folder.evaluation("greedy")).episodes] == evaluation_seeds(4)
    assert not list(tmp_path.glob("*.tmp"))
    # The model in the file is the one that was scored.
    again = score(load_safely(folder.model), ENV, evaluation_seeds(4), mode="sampled", env_kwargs={"budget": 30})
    assert again.episodes == Evaluation.load(folder.evaluation("sampled")).episodes


def test_measuring_changes_nothing(tmp_path: Path) -> None:
    train(tiny("flat_ppo", tmp_path / "often", eval_every=10))
    train(tiny("flat_ppo", tmp_path / "seldom", eval_every=10_000, eval_episodes=1))
    assert same_model(tmp_path / "often" / "model.zip", tmp_path / "seldom" / "model.zip")
    train(tiny("flat_ppo", tmp_path / "other", seed=1))
    assert not same_model(tmp_path / "often" / "model.zip", tmp_path / "other" / "model.zip")


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    train(tiny("a2c", tmp_path / "whole"))

    class KilledError(Exception):
        pass

    calls = iter(range(100))

    def kill() -> bool:
        if next(calls) == 9:
            raise KilledError
        return False

    with pytest.raises(KilledError):
        train(tiny("a2c", tmp_path / "killed"), should_stop=kill)
    assert RunFolder(tmp_path / "killed").checkpoint.is_file()
    train(tiny("a2c", tmp_path / "killed"), resume=True)
    assert same_model(tmp_path / "whole" / "model.zip", tmp_path / "killed" / "model.zip")


def test_resuming_a_finished_run_returns_its_result(tmp_path: Path) -> None:
    result = train(tiny("ppo", tmp_path))
    assert train(tiny("ppo", tmp_path), resume=True) == result
    with pytest.raises(UserError, match=r"already holds a finished run: pass --resume .*--overwrite"):
        train(tiny("ppo", tmp_path))
    with pytest.raises(UserError, match=r"other settings.*\n  spec.seed: 0 there, 3 now"):
        train(tiny("ppo", tmp_path, seed=3), resume=True)
    with pytest.raises(UserError, match=r"settings.dense_weight: 1.0 there, 0.5 now"):
        train(tiny("ppo", tmp_path, overrides={"dense_weight": 0.5}), resume=True)
    train(tiny("ppo", tmp_path, seed=3), overwrite=True)
    assert read_json(tmp_path / "result.json")["seed"] == 3
    with pytest.raises(UserError, match="holds no run to resume"):
        train(tiny("ppo", tmp_path / "nothing"), resume=True)


def test_a_finished_run_is_scored_on_tasks_asked_for_later(tmp_path: Path) -> None:
    first, second = "RAO/Maze-5x5-v0?budget=40", "RAO/Maze-5x5-v0?budget=50"
    result = train(tiny("ppo", tmp_path / "run", transfer=[first]))
    model = (tmp_path / "run" / "model.zip").read_bytes()
    again = train(tiny("ppo", tmp_path / "run", transfer=[first, second]), resume=True)
    assert list(again["scored_later"]) == [second]
    assert read_json(tmp_path / "run" / "result.json") == again
    assert (tmp_path / "run" / "model.zip").read_bytes() == model
    whole = train(tiny("ppo", tmp_path / "whole", transfer=[first, second]))
    assert again["transfer"] == whole["transfer"]
    assert {key: again[key] for key in result if key != "transfer"} == {key: result[key] for key in result if key != "transfer"}


def test_environments_of_others_are_scored_by_return(tmp_path: Path) -> None:
    result = train(tiny("recursive_ppo", tmp_path, env_id="CartPole-v1"))
    assert result["final"]["greedy"]["success"] is None
    assert result["final"]["greedy"]["return"] >= 8
    assert result["settings"]["policy"] == "MlpPolicy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"name": "../../elsewhere"}, "one folder's name"),
        ({"name": ".."}, "one folder's name"),
        ({"eval_every": 0}, "eval_every must be at least 1"),
        ({"eval_episodes": 0}, "eval_episodes must be at least 1"),
        ({"seed": -1}, "seed must lie in"),
        ({"seed": MAX_SEED}, "seed must lie in"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"first_seed": 5}, "first_seed must lie in"),
        ({"overrides": {"n_envs": MAX_ENVS + 1}}, "n_envs must be at most"),
        ({"env_id": "Maze-5x6"}, "Did you mean RAO/Maze-5x5-v0"),
    ],
)
def test_wrong_specs(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(tiny("ppo", tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_runs_and_scores_use_different_seeds() -> None:
    starts = np.array([training_seed(seed) for seed in (0, 1, 2, MAX_SEED - 1)])
    assert (np.diff(starts) >= MAX_ENVS).all()
    assert starts[-1] + MAX_ENVS <= FIRST_SEED
    assert TrainSpec("ppo", "RAO/Maze-5x5-v0", seed=7).folder() == Path("runs/Maze-5x5-v0/ppo/7")


def test_a_task_that_the_agent_cannot_act_in_is_said_before_the_training(tmp_path: Path) -> None:
    for other in ("RAO/Algebra-depth2-v0", "RAO/Maze-10x10-v0?radius=2", "RAO/Maze-10x10-v0?radius=-1", "CartPole-v1?"):
        with pytest.raises(UserError, match="cannot be"):
            train(tiny("a2c", tmp_path / "run", transfer=[other]))
    assert not (tmp_path / "run").exists()  # nothing was begun


def test_settings_that_would_end_in_an_error_far_away(tmp_path: Path) -> None:
    for key, value in (("n_steps", 0), ("n_epochs", 0), ("n_epochs", -1)):
        with pytest.raises(UserError, match=f"{key} must be a whole number of at least 1"):
            train(tiny("recursive_ppo", tmp_path / "run", overrides={key: value}))


def test_spawn_among_the_environments_arguments_is_not_silently_replaced(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="spawn=false as a setting of its own"):
        train(tiny("recursive_ppo", tmp_path / "run", overrides={"env_kwargs.spawn": False}))
    assert train(tiny("recursive_ppo", tmp_path / "run", overrides={"spawn": False}))["spawn"] is False


def test_a_damaged_checkpoint_or_model_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(tiny("ppo", tmp_path), should_stop=lambda: True)
    (tmp_path / "checkpoint.zip").write_bytes(b"half of a file")
    with pytest.raises(UserError, match=r"cannot be resumed: .*checkpoint.zip .*--overwrite"):
        train(tiny("ppo", tmp_path), resume=True)
    train(tiny("ppo", tmp_path), overwrite=True)
    (tmp_path / "model.zip").write_bytes(b"half of a file")
    with pytest.raises(UserError, match=r"cannot be scored on more: .*model.zip"):
        train(tiny("ppo", tmp_path, transfer=["RAO/Maze-10x10-v0"]), resume=True)
