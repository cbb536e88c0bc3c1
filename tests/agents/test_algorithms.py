"""What holds for every algorithm of this package under every option, on dictionary and vector observations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from toy_envs import FactsVecEnv, LampTree, lamps

import rao_envs  # noqa: F401  # registers the ids
from rao_agents import (
    ModelFileError,
    RecursiveA2C,
    RecursivePPO,
    RepeatTasks,
    load_policy,
    load_safely,
    make_vec_env,
    save_safely,
)

ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "RecursivePPO": (RecursivePPO, {"batch_size": 32, "n_epochs": 2}),
    "RecursiveA2C": (RecursiveA2C, {}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "tree": {"credit": "tree"},
    "root": {"credit": "root"},
    "rloo": {"advantage": "rloo"},
    "rloo-tree": {"advantage": "rloo", "credit": "tree", "normalize_advantage": False},
    "rloo-root": {"advantage": "rloo", "credit": "root", "depth_weighting": 1.0},
    "bonus": {"delegation_bonus": 0.3, "step_cost": 0.0},
    "sum": {"delegation_bonus": 0.3, "delegation_bonus_form": "sum", "normalize_advantage": True},
    "softmax": {"delegation_head": False, "depth_weighting": 0.5},
    "price": {"frame_price": "lin_0_0.2_0.5", "level_price": 0.1},
    "root-price": {"credit": "root", "frame_price": 0.2},
    "situation": {"threshold": "situation"},
    "level": {"specialists": "level"},
    "role": {"specialists": "role", "n_specialists": 3, "threshold": "situation"},
}
FOR_DICTIONARIES = ("situation", "level", "role")
EVERY = [(name, option) for name in ALGORITHMS for option in OPTIONS]
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
every_option = pytest.mark.parametrize(("name", "option"), EVERY)
every_observation = pytest.mark.parametrize("vector", [False, True], ids=["dict", "vector"])


def needs_frame(option: str) -> bool:
    return "specialists" in OPTIONS[option]


def environment(option: str, n: int = 3, vector: bool = False, seed: int = 5, **kwargs: Any) -> VecEnv:
    if vector and option in FOR_DICTIONARIES:
        pytest.skip("looks at single keys of the observation")
    if needs_frame(option):
        kwargs["observe_frame"] = True
    env: VecEnv = lamps(n, seed=seed, vector=vector, monitor=False, **kwargs)
    if OPTIONS[option].get("advantage") == "rloo":
        env = RepeatTasks(env, 2, seed)
    return VecMonitor(env)


def make(name: str, option: str, env: Any = None, **kwargs: Any) -> Any:
    cls, defaults = ALGORITHMS[name]
    env = environment(option) if env is None else env
    policy = "MlpPolicy" if isinstance(env.observation_space, spaces.Box) else "MultiInputPolicy"
    options = {"n_steps": 10, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}, "ent_coef": "lin_0.02"}
    return cls(policy, env, **{**options, **defaults, **OPTIONS[option], **kwargs})


def params(model: Any) -> list[th.Tensor]:
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


def equal(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return len(a) == len(b) and all(th.equal(x, y) for x, y in zip(a, b, strict=True))


def observations(option: str, vector: bool) -> Any:
    """A batch of them, of all kinds of frames."""
    env = lamps(4, seed=3, vector=vector, observe_frame=needs_frame(option))
    seen = [env.reset()]
    rng = np.random.default_rng(0)
    for _ in range(20):
        masks = np.array(env.env_method("action_masks"))
        seen.append(env.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))[0])
    if vector:
        return np.concatenate(seen)
    return {key: np.concatenate([batch[key] for batch in seen]) for key in seen[0]}


@every_option
@every_observation
def test_save_and_load(name: str, option: str, vector: bool, tmp_path: Path) -> None:
    model = make(name, option, environment(option, vector=vector)).learn(90)
    model.save(tmp_path / "model")
    loaded = ALGORITHMS[name][0].load(tmp_path / "model", device="cpu")
    assert type(loaded) is type(model) and equal(params(model), params(loaded))
    for attribute in (
        "credit", "advantage", "delegation_bonus", "delegation_bonus_form", "step_cost", "depth_weighting", "delegation_head",
        "frame_price", "level_price", "threshold", "specialists", "n_specialists",
        "normalize_advantage", "spawn_actions", "ent_coef", "n_steps", "batch_size", "policy_kwargs", "num_timesteps",
    ):  # fmt: skip
        assert getattr(loaded, attribute) == getattr(model, attribute), attribute
    some = observations(option, vector)
    np.testing.assert_array_equal(model.predict(some, deterministic=True)[0], loaded.predict(some, deterministic=True)[0])
    # It trains on as it would have.
    env, other = environment(option, vector=vector), environment(option, vector=vector)
    again = ALGORITHMS[name][0].load(tmp_path / "model", env, device="cpu")
    third = load_safely(tmp_path / "model", other, device="cpu")
    for one in (again, third):
        one.set_random_seed(3)
        one.learn(60)
    assert equal(params(again), params(third)) and not equal(params(again), params(model))
    # The policy alone, too.
    model.policy.save(tmp_path / "policy")
    np.testing.assert_array_equal(
        load_policy(tmp_path / "policy").predict(some, deterministic=True)[0], model.predict(some, deterministic=True)[0]
    )


@every_option
@every_observation
def test_the_same_seed_gives_the_same_network(name: str, option: str, vector: bool) -> None:
    def run(seed: int) -> list[th.Tensor]:
        return params(make(name, option, environment(option, vector=vector), seed=seed).learn(90))

    first = run(0)
    np.random.seed(3)  # noqa: NPY002
    th.manual_seed(3)
    assert equal(first, run(0)) and not equal(first, run(1))


@every_algorithm
def test_options_make_a_difference(name: str) -> None:
    """Each, that is, to the network: otherwise the tests above would say nothing about it."""
    results = {option: params(make(name, option).learn(120)) for option in OPTIONS if option != "softmax"}
    for a in results:
        for b in results:
            assert a == b or not equal(results[a], results[b]), (a, b)


@every_option
@every_observation
def test_predictions(name: str, option: str, vector: bool) -> None:
    env = environment(option, vector=vector)
    model = make(name, option, env).learn(60)
    some = observations(option, vector)
    n = len(some) if vector else len(some["task"])
    for deterministic in (True, False):
        actions, state = model.predict(some, state=None, deterministic=deterministic)
        assert actions.shape == (n,) and state is None and all(env.action_space.contains(action) for action in actions)
        if not vector:
            assert some["action_mask"][np.arange(n), actions].all()
    # One at a time as in a batch, with the state handed through.
    batch, _ = model.predict(some, deterministic=True)
    for index in range(0, n, 7):
        one = some[index] if vector else {key: values[index] for key, values in some.items()}
        action, state = model.predict(one, state=("anything",), deterministic=True)
        assert action == batch[index] and state == ("anything",)
    # Masks that are passed come first.
    only = np.zeros((n, 6), bool)
    only[:, 1] = True
    assert (model.predict(some, action_masks=only)[0] == 1).all()


@every_option
def test_callbacks(name: str, option: str, tmp_path: Path) -> None:
    model = make(name, option)
    calls: list[str] = []

    class Note(BaseCallback):
        def _on_rollout_start(self) -> None:
            calls.append("start")

        def _on_rollout_end(self) -> None:
            calls.append("end")

        def _on_step(self) -> bool:
            assert self.training_env is model.get_env()
            return True

    evaluation = EvalCallback(
        VecMonitor(lamps(2, seed=1, monitor=False, observe_frame=needs_frame(option))),
        eval_freq=20,
        n_eval_episodes=4,
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    model.learn(120, CallbackList([Note(), evaluation, CheckpointCallback(20, str(tmp_path), "steps")]))
    assert calls == ["start", "end"] * 4
    best = ALGORITHMS[name][0].load(tmp_path / "best_model")
    assert best.credit == model.credit and (tmp_path / "steps_60_steps.zip").exists()

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 5

    assert model.learn(120, Stop()).num_timesteps == 15
    # After a rollout that was broken off, and without a reset.
    model.learn(120, reset_num_timesteps=False)
    assert model.num_timesteps == 135 and all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


@every_option
def test_metrics(name: str, option: str) -> None:
    logged: dict[str, Any] = {}
    model = make(name, option)
    model.set_logger(configure(None, []))
    train = model.train
    model.train = lambda: (train(), logged.update(model.logger.name_to_value))[0]
    model.learn(300, log_interval=1000)
    expected = {"frames/transitions", "frames/carried", "frames/depth_mean", "frames/depth_max", "frames/child_success"}
    expected |= {"delegation/open", "delegation/rate", "train/ent_coef", "train/entropy_loss"}
    expected |= {"train/policy_loss"} if name == "RecursiveA2C" else {"train/policy_gradient_loss", "train/approx_kl"}
    if option != "softmax":
        expected |= {"delegation/score", "delegation/threshold"}
    critic = {"train/value_loss", "train/explained_variance"}
    assert logged.keys() & critic == (set() if model.advantage == "rloo" else critic)
    assert expected <= logged.keys() and all(np.isfinite(logged[metric]) for metric in expected)


def infos(option: str) -> VecEnv:
    return environment(option)


def minimal(option: str) -> VecEnv:
    return environment(option, minimal=True)


def side_channel(option: str) -> VecEnv:
    return environment(option, cls=FactsVecEnv)


def native(option: str) -> VecEnv:
    return make_vec_env(
        "RAO/Maze-10x10-v0",
        3,
        seed=1,
        repeats=2 if OPTIONS[option].get("advantage") == "rloo" else 1,
        budget=40,
        observe_frame=needs_frame(option),
    )


class SaveOnce(BaseCallback):
    def __init__(self, path: Path, steps: int) -> None:
        super().__init__()
        self.path, self.steps, self.saved = path, steps, False

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.steps and not self.saved:
            save_safely(self.model, self.path, with_training_state=True)
            self.saved = True

    def _on_step(self) -> bool:
        return not self.saved


@every_option
@pytest.mark.parametrize("source", [infos, minimal, side_channel, native])
def test_a_resumed_run_ends_like_an_uninterrupted_one(name: str, option: str, source: Callable[[str], VecEnv], tmp_path: Path) -> None:
    """Whatever waits at the moment of saving goes into the file and comes back."""
    whole = make(name, option, source(option)).learn(300)
    make(name, option, source(option)).learn(300, SaveOnce(tmp_path / "state", 150))
    np.random.seed(5)  # noqa: NPY002
    th.manual_seed(5)
    env = source(option)
    env.seed(77)
    env.reset()
    resumed: Any = load_safely(tmp_path / "state", env, with_training_state=True, device="cpu")
    assert resumed.num_timesteps == 150
    resumed.learn(150, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps and equal(params(whole), params(resumed))


@every_option
def test_one_environment(name: str, option: str) -> None:
    model = make(name, option, environment(option, 1), n_steps=7, batch_size=4) if name == "RecursivePPO" else None
    model = model or make(name, option, environment(option, 1), n_steps=7)
    model.learn(140)
    assert model.num_timesteps == 140 and all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


@every_option
def test_rollouts_of_one_step(name: str, option: str) -> None:
    """Every row is at an edge."""
    model = make(name, option, environment(option, 1), n_steps=2, **({"batch_size": 2} if name == "RecursivePPO" else {}))
    model.learn(100)
    model = make(name, option, environment(option, 3), n_steps=1)
    model.learn(99)
    assert model.num_timesteps == 99 and all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


@every_option
def test_time_outs(name: str, option: str) -> None:
    """A budget that is too small for anything: every episode ends by it, in the middle of its frames."""
    model = make(name, option, environment(option, budget=3), gae_lambda=1.0, gamma=1.0, step_cost=0.0, delegation_bonus=0.0)
    with th.no_grad():
        for module in model.policy.value_net.modules():
            if isinstance(module, th.nn.Linear):
                module.bias.fill_(1000.0)
    ends: list[float] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = model.rollout_buffer
            ended = (buffer.rows["next"] == -2)[: buffer.n_step_rows] & buffer.valid[: buffer.n_step_rows]
            ends.extend(buffer.flat_advantages[: buffer.n_step_rows][ended] + buffer.flat_values[: buffer.n_step_rows][ended])

    model.learn(90, Look())
    assert len(ends) > 10 and np.abs(ends).max() <= 2.0, "nothing is bootstrapped beyond a time-out"


@every_option
def test_resets_in_the_middle(name: str, option: str) -> None:
    """Somebody else resets the training environment between our steps; and steps it, which the side channel shows."""

    class Nosy(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 7 == 0:
                self.training_env.reset()
            if self.n_calls % 11 == 0 and cls is not None:
                masks = np.array(self.training_env.env_method("action_masks"))
                self.training_env.step(masks.argmax(axis=1))
            return True

    for cls in (None, FactsVecEnv):
        env = environment(option, **({"cls": cls} if cls else {}))
        model = make(name, option, env).learn(200, Nosy())
        assert all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


@every_option
def test_without_spawn_actions(name: str, option: str, tmp_path: Path) -> None:
    """The monolithic twin: with masks, and options that make no difference there but for leave-one-out."""

    def run(chosen: str) -> Any:
        env = environment(chosen, spawn=False)
        model = make(name, chosen, env).learn(90)
        assert not model.recursive
        return model

    model = run(option)
    if OPTIONS[option].get("advantage") != "rloo" and not OPTIONS[option].get("normalize_advantage"):
        assert equal(params(model), params(run("default")))
    model.save(tmp_path / "model")
    assert equal(params(model), params(load_safely(tmp_path / "model", device="cpu")))


@every_algorithm
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"credit": "leaf"}, "credit must be one of node, tree, root, got 'leaf'"),
        ({"credit": None}, "credit must be one of"),
        ({"credit": ["node"]}, "credit must be one of"),
        ({"advantage": "vtrace"}, "advantage must be one of gae, rloo, got 'vtrace'"),
        ({"delegation_bonus_form": "max"}, "delegation_bonus_form must be one of average, sum, got 'max'"),
        ({"step_cost": float("nan")}, "step_cost must be a finite number"),
        ({"step_cost": "0.1"}, "step_cost must be a finite number"),
        ({"delegation_bonus": float("inf")}, "delegation_bonus must be a finite number"),
        ({"depth_weighting": -1.0}, "depth_weighting must be at least 0"),
        ({"frame_price": -0.1}, "frame_price must be at least 0"),
        ({"frame_price": "lin_0.1_-0.1_1"}, "frame_price must be at least 0"),
        ({"level_price": "dear"}, "level_price must be a number or a schedule: 'dear' is not a schedule"),
        ({"level_price": float("nan")}, "level_price must be a number or a schedule"),
        ({"threshold": "mood"}, "threshold must be one of constant, situation, got 'mood'"),
        ({"specialists": 3}, "specialists must be one of none, level, role, got 3"),
        ({"n_specialists": 3}, "n_specialists=3 means nothing without specialists"),
        ({"threshold": "situation", "delegation_head": False}, "means nothing without a delegation head"),
        ({"n_specialists": 0}, "n_specialists must be a whole number of at least 2, or None, got 0"),
        ({"depth_weighting": True}, "depth_weighting must be a finite number"),
        ({"learning_rate": "fast"}, "'fast' is not a schedule"),
        ({"ent_coef": {"kind": "cosine"}}, "constant, linear, table"),
    ],
)
def test_wrong_arguments(name: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ALGORITHMS[name][0]("MultiInputPolicy", lamps(1), **kwargs)


@every_algorithm
@pytest.mark.parametrize(
    ("attribute", "value"),
    [("credit", "galaxy"), ("advantage", 3), ("delegation_bonus_form", "median"), ("depth_weighting", -2.0), ("step_cost", "much")],
)
def test_files_with_unknown_values(name: str, attribute: str, value: Any, tmp_path: Path) -> None:
    """Damaged, or written by a version that knows more."""
    model = make(name, "default")
    setattr(model, attribute, value)
    save_safely(model, tmp_path / "model")
    with pytest.raises(ModelFileError, match=f"model.zip is damaged, or of a newer version: {attribute} must be"):
        load_safely(tmp_path / "model")
    # What one asks for oneself is an argument like any other.
    save_safely(make(name, "default"), tmp_path / "good")
    with pytest.raises(ValueError, match=f"{attribute} must be"):
        load_safely(tmp_path / "good", **{attribute: value})


@every_algorithm
def test_files_from_before_the_options_existed(name: str, tmp_path: Path) -> None:
    model = make(name, "default").learn(60)
    later = ["frame_price", "level_price", "threshold", "specialists", "n_specialists"]
    save_safely(model, tmp_path / "old", exclude=["credit", "advantage", "delegation_bonus_form", *later])
    loaded: Any = load_safely(tmp_path / "old", device="cpu")
    assert (loaded.credit, loaded.advantage, loaded.delegation_bonus_form) == ("node", "gae", "average")
    assert [getattr(loaded, option) for option in later] == [0.0, 0.0, "constant", "none", None]


@every_algorithm
def test_credit_may_be_changed_when_loading(name: str, tmp_path: Path) -> None:
    make(name, "default").learn(60).save(tmp_path / "model")
    loaded: Any = load_safely(tmp_path / "model", environment("tree"), credit="tree", device="cpu")
    loaded.learn(60)
    assert loaded.rollout_buffer.credit == "tree"


@every_algorithm
def test_a_single_gymnasium_environment(name: str) -> None:
    env = LampTree()
    model = make(name, "tree", env).learn(40)
    assert model.n_envs == 1 and model.spawn_actions == (3, 4, 5)
