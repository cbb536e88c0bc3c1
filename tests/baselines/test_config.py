from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rao_envs
from rao_agents import RecursivePPO, schedules
from rao_agents.extractors import SharedMLPExtractor
from rao_baselines.algorithms import ALGORITHMS, TABLE, find_algorithm
from rao_baselines.config import config_folder, load_settings, parse_assignments, read_blocks
from rao_baselines.environments import make_training_env, resolve_id
from rao_baselines.errors import UserError
from rao_baselines.models import EntropySchedule, make_model, schedule_callbacks
from rao_baselines.search_spaces import SPACES, WIDTH

ENV = "RAO/Maze-20x20-v0"


def test_every_algorithm_has_settings_and_every_file_an_algorithm() -> None:
    assert {path.stem for path in config_folder().glob("*.yml")} == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_block_makes_a_model(name: str) -> None:
    row = ALGORITHMS[name]
    for env_id in read_blocks(row):
        settings = load_settings(row, env_id)
        made_for = ENV if env_id == "default" else env_id
        assert resolve_id(made_for) == made_for
        settings.n_envs = 2
        settings.hyperparameters.pop("buffer_size", None)
        if name == "dqn":
            settings.hyperparameters["buffer_size"] = 100
        env = make_training_env(made_for, settings, row.spawn, seed=0)
        model = make_model(row, settings, env, seed=0, device="cpu")
        assert isinstance(model, row.load())
        assert model.n_envs == 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_ids_without_a_block_take_the_default(name: str) -> None:
    row = ALGORITHMS[name]
    assert load_settings(row, "RAO/Maze-80x80-v0") == load_settings(row, "default")
    assert load_settings(row, "RAO/Maze-10x10-v0") != load_settings(row, "default")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_searched_setting_exists(name: str) -> None:
    row = ALGORITHMS[name]
    for setting, found in SPACES[name].items():
        if setting != WIDTH:
            value = found.options[0] if hasattr(found, "options") else found.low
            load_settings(row, ENV, {setting: value})


def test_schedules_classes_and_kwargs_are_built_by_name() -> None:
    row = find_algorithm("Recursive-PPO")
    settings = load_settings(row, ENV, {"policy_kwargs.activation_fn": "ReLU", "policy_kwargs.net_arch": [32], "n_envs": 2})
    model: Any = make_model(row, settings, make_training_env(ENV, settings, True, 0), seed=0, device="cpu")
    assert isinstance(model, RecursivePPO)
    assert isinstance(model.policy.features_extractor, SharedMLPExtractor)
    assert model.policy.mlp_extractor.policy_net[0].out_features == 32
    assert "ReLU" in repr(model.policy.mlp_extractor)
    assert model.lr_schedule(1.0) == 0.001
    assert model.lr_schedule(0.25) == pytest.approx(0.00025)
    assert schedule_callbacks(settings, model) == []


def test_a_foreign_algorithm_gets_its_entropy_schedule_by_callback() -> None:
    row = find_algorithm("ppo")
    settings = load_settings(row, ENV, {"n_envs": 2, "n_steps": 32, "batch_size": 16, "n_epochs": 1, "ent_coef": "lin_0.5"})
    model: Any = make_model(row, settings, make_training_env(ENV, settings, False, 0), seed=0, device="cpu")
    (callback,) = schedule_callbacks(settings, model)
    assert isinstance(callback, EntropySchedule)
    used = []
    train = model.train
    model.train = lambda: (used.append(model.ent_coef), train())[1]
    model.learn(256, callback=callback)
    # As RecursivePPO's own: the progress at the update.
    assert used == pytest.approx([0.5 * (1 - k / 4) for k in (1, 2, 3, 4)])
    assert used[0] == schedules.linear(0.5)(0.75)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"gama": 0.9}, "ppo has no setting 'gama'. Did you mean gamma"),
        ({"device": "cpu"}, "has no setting 'device'"),
        ({"learning_rate": "cos_0.1"}, "learning_rate must be a number or a schedule such as lin_0.001, got 'cos_0.1'"),
        ({"ent_coef": True}, "ent_coef must be a number or a schedule"),
        ({"gamma": "lin_0.9"}, "gamma cannot be the text 'lin_0.9'"),
        ({"n_envs": 0}, "n_envs must be a whole number of at least 1, got 0"),
        ({"n_envs": 1.5}, "n_envs must be a whole number"),
        ({"spawn": "no"}, "spawn must be true or false, got 'no'"),
        ({"feedback": "rich"}, "feedback must be sparse or dense, got 'rich'"),
        ({"feedback": "sparse"}, "dense_weight needs dense feedback"),
        ({"normalize_advantage": 1}, "normalize_advantage must be true or false, got 1"),
        ({"policy_kwargs": [1]}, "policy_kwargs must be a mapping"),
        ({"policy_kwargs.net_arch.deep": 1}, "net_arch is"),
        ({"env_kwargs": 3}, "env_kwargs must be a mapping"),
        ({"normalize": "yes"}, "normalize must be true, false or a mapping"),
    ],
)
def test_wrong_settings_say_what_is_allowed(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        load_settings(find_algorithm("ppo"), ENV, overrides)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"policy_kwargs.activation_fn": "os.system"}, "activation_fn cannot be 'os.system'. Known: "),
        ({"policy_kwargs.features_extractor_class": "SharedMlp"}, "Did you mean SharedMLPExtractor?"),
        ({"policy": "Mlp"}, "ppo cannot be made with these settings"),
        ({"normalize": {"norm_obs": True}}, "norm_obs is not offered"),
        ({"env_kwargs.structure": "maze"}, "structure must be one of"),
        ({"env_kwargs.sise": 3}, "RAO/Maze-20x20-v0 cannot be made"),
    ],
)
def test_settings_that_cannot_be_built_say_so(overrides: dict[str, Any], message: str) -> None:
    row = find_algorithm("ppo")
    settings = load_settings(row, ENV, {"n_envs": 2, **overrides})
    with pytest.raises(UserError) as error:
        make_model(row, settings, make_training_env(ENV, settings, False, 0), seed=0, device="cpu")
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["recursive_ppo", "recursive_a2c"])
def test_words_that_an_algorithm_takes(name: str) -> None:
    row = find_algorithm(name)
    settings = load_settings(row, ENV, {"credit": "tree", "advantage": "rloo", "delegation_bonus_form": "sum", "repeats": 3, "n_envs": 2})
    model: Any = make_model(row, settings, make_training_env(ENV, settings, True, 0), seed=0, device="cpu")
    assert (model.credit, model.advantage, model.delegation_bonus_form) == ("tree", "rloo", "sum")
    with pytest.raises(UserError, match="credit must be one of node, tree, root, got 'branch'"):
        load_settings(row, ENV, {"credit": "branch"})
    with pytest.raises(UserError, match=r"advantage must be one of gae, rloo, got 1\.0"):
        load_settings(row, ENV, {"advantage": 1.0})
    with pytest.raises(UserError, match="repeats must be a whole number of at least 1, got 0"):
        load_settings(row, ENV, {"repeats": 0})
    once = load_settings(row, ENV, {"advantage": "rloo", "n_envs": 2})
    with pytest.raises(UserError, match="cannot be made with these settings: advantage='rloo' compares rollouts"):
        make_model(row, once, make_training_env(ENV, once, True, 0), seed=0, device="cpu")
    with pytest.raises(UserError, match="ppo has no setting 'credit'"):
        load_settings(find_algorithm("ppo"), ENV, {"credit": "tree"})


def test_a_plain_environment_repeats_its_tasks_too() -> None:
    row = find_algorithm("recursive_a2c")
    settings = load_settings(row, "CartPole-v1", {"advantage": "rloo", "repeats": 2, "n_envs": 2})
    env = make_training_env("CartPole-v1", settings, True, 0)
    model: Any = make_model(row, settings, env, seed=0, device="cpu")
    model.learn(200)
    assert not model.recursive and model.num_timesteps == 200


def test_assignments_are_yaml_with_numbers_as_people_write_them() -> None:
    given = parse_assignments(["a=1e-3", "b=[1, 2]", "c=true", "d.e=lin_0.1", "f=", "g=x=y"])
    assert given == {"a": 0.001, "b": [1, 2], "c": True, "d.e": "lin_0.1", "f": None, "g": "x=y"}
    for wrong in ("a", "=1", "a=[1"):
        with pytest.raises(UserError):
            parse_assignments([wrong])


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    with pytest.raises(UserError, match="no settings file"):
        read_blocks(TABLE[0], path)
    for content in ("[1, 2]", "a: 1", "a: [", "!!python/object/apply:os.system [true]"):
        path.write_text(content)
        with pytest.raises(UserError):
            read_blocks(TABLE[0], path)
    path.write_text("CartPole-v1: {n_envs: 1}")
    with pytest.raises(UserError, match="no block for RAO/Maze-5x5-v0 and no default"):
        load_settings(TABLE[0], "RAO/Maze-5x5-v0", path=path)


def test_ids_resolve_or_name_the_nearest() -> None:
    assert resolve_id("Maze-20x20") == resolve_id("RAO/Maze-20x20") == resolve_id("RAO/Maze-20x20-v0") == ENV
    assert resolve_id("CartPole-v1") == "CartPole-v1"
    assert all(resolve_id(env_id) == env_id for env_id in rao_envs.registered_ids())
    for wrong, right in (("Maze-20x21", ENV), ("RAO/maze-20x20-v7", ENV), ("CartPol-v1", "CartPole-v1")):
        with pytest.raises(UserError, match=f"Did you mean .*{right}"):
            resolve_id(wrong)
    with pytest.raises(UserError, match="This package has: RAO/Maze-5x5-v0"):
        resolve_id("zzzzzz")
    with pytest.raises(UserError, match=r"unknown algorithm 'recursiv'\. Did you mean recursive_ppo"):
        find_algorithm("recursiv")
