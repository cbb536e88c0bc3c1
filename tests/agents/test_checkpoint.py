"""Model files: nothing lost, nothing run, clear errors, atomic writes; and runs that resume exactly."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize
from toy_envs import FactsVecEnv, LampTree, lamps

from rao_agents import (
    ModelFileError,
    RecursiveA2C,
    RecursivePPO,
    SharedMLPExtractor,
    UnsafeModelError,
    checkpoint,
    load_policy,
    load_safely,
    register_class,
    safe_json,
    save_policy,
    save_safely,
    schedules,
    training_state,
)

ON_POLICY: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2}
DQN_KWARGS: dict[str, Any] = {
    "learning_starts": 40,
    "train_freq": (4, "step"),
    "buffer_size": 300,
    "target_update_interval": 50,
}
LSTM = {"lstm_hidden_size": 8, "net_arch": [8]}
ALGORITHMS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "PPO": (sb3.PPO, "MultiInputPolicy", ON_POLICY),
    "A2C": (sb3.A2C, "MultiInputPolicy", {"n_steps": 8}),
    "DQN": (sb3.DQN, "MultiInputPolicy", DQN_KWARGS),
    "MaskablePPO": (MaskablePPO, "MultiInputPolicy", ON_POLICY),
    "RecurrentPPO": (RecurrentPPO, "MultiInputLstmPolicy", ON_POLICY | {"policy_kwargs": LSTM}),
    "RecursivePPO": (RecursivePPO, "MultiInputPolicy", {**ON_POLICY, "n_steps": 5, "ent_coef": "lin_0.02"}),
    "RecursiveA2C": (RecursiveA2C, "MultiInputPolicy", {"n_steps": 5, "ent_coef": "lin_0.02"}),
}


def make(name: str, env: Any = None, **kwargs: Any) -> Any:
    cls, policy, defaults = ALGORITHMS[name]
    defaults = {
        "policy_kwargs": {"net_arch": [16]},
        **defaults,
        "learning_rate": schedules.linear(2e-3),
        **kwargs,
    }
    return cls(policy, env if env is not None else lamps(4), seed=3, device="cpu", **defaults)


def params(model: Any) -> list[th.Tensor]:
    return [value.detach().clone() for value in model.policy.state_dict().values()]


def equal(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return len(a) == len(b) and all(th.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def trained() -> RecursivePPO:
    model: RecursivePPO = make("RecursivePPO").learn(200)
    return model


@pytest.fixture
def model_file(trained: RecursivePPO, tmp_path: Path) -> Path:
    trained.save(tmp_path / "model")
    return tmp_path / "model.zip"


# -- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """Same class, settings, predictions and optimiser: training on is the same as with the original."""
    model = make(name).learn(96)
    save_safely(model, tmp_path / "model")
    loaded: Any = load_safely(tmp_path / "model", lamps(4), device="cpu")
    assert type(loaded) is type(model) and loaded.num_timesteps == model.num_timesteps
    assert loaded.learning_rate == schedules.linear(2e-3) and loaded.policy_kwargs == model.policy_kwargs
    assert loaded.observation_space == model.observation_space and loaded.action_space == model.action_space
    assert list(loaded.observation_space) == list(model.observation_space)
    assert equal(params(model), params(loaded))
    env = lamps(4, seed=1)
    obs = env.reset()
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    before = params(model)
    for each in (model, loaded):
        each.set_env(lamps(4))
        if name == "DQN":
            each.replay_buffer.reset()
            each.learning_starts = 150
        each.set_random_seed(11)
        each._last_obs = None
        each.learn(96, reset_num_timesteps=False)
    assert equal(params(model), params(loaded)) and not equal(params(model), before)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_files_hold_no_pickles(name: str, tmp_path: Path) -> None:
    save_safely(make(name).learn(64), tmp_path / "model.zip", with_training_state=True)
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        names = archive.namelist()
        assert {"data", "policy.pth", "policy.optimizer.pth", "_stable_baselines3_version"} <= set(names)
        for member in names:
            content = archive.read(member)
            if member.endswith(".pth"):
                th.load(io.BytesIO(content), weights_only=True)
            elif member.endswith(".npy"):
                np.load(io.BytesIO(content), allow_pickle=False)
            else:
                assert b":serialized:" not in content
        json.loads(archive.read("data"), parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_prediction_without_environment(trained: RecursivePPO, model_file: Path) -> None:
    loaded = RecursivePPO.load(model_file)
    obs, _ = LampTree().reset(seed=1)
    assert loaded.predict(obs, deterministic=True)[0] == trained.predict(obs, deterministic=True)[0]
    assert loaded.recursive and loaded.env is None and loaded.policy.delegation_threshold == trained.policy.delegation_threshold  # type: ignore[attr-defined]


def test_load_with_other_number_of_environments_and_settings(model_file: Path) -> None:
    loaded = RecursivePPO.load(model_file, lamps(7), step_cost=0.5)
    assert loaded.n_envs == 7 and loaded.step_cost == 0.5
    loaded.learn(70)


def test_binary_files_and_custom_objects(trained: RecursivePPO) -> None:
    file = io.BytesIO()
    trained.save(file, exclude=["ep_info_buffer"])
    file.seek(0)
    loaded = RecursivePPO.load(file, custom_objects={"learning_rate": 0.5})
    assert loaded.learning_rate == 0.5 and loaded.ep_info_buffer is None


def test_same_model_gives_the_same_bytes(trained: RecursivePPO, tmp_path: Path) -> None:
    trained.save(tmp_path / "a.zip")
    trained.save(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_folders_are_made_and_suffixes_kept(trained: RecursivePPO, tmp_path: Path) -> None:
    trained.save(tmp_path / "deep" / "er" / "model.v1")
    assert (tmp_path / "deep" / "er" / "model.v1").is_file()
    assert RecursivePPO.load(str(tmp_path / "deep" / "er" / "model.v1")).spawn_actions == (3, 4, 5)


def test_classes_of_ones_own(tmp_path: Path) -> None:
    class Mine(SharedMLPExtractor):
        pass

    model = make("RecursivePPO", policy_kwargs={"features_extractor_class": Mine, "activation_fn": th.nn.ReLU})
    with pytest.raises(TypeError, match=r"policy_kwargs: the class .*Mine is not registered: call rao_agents.register_class"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    register_class(Mine, "tests.Mine")
    model.save(tmp_path / "model")
    assert RecursivePPO.load(tmp_path / "model").policy_kwargs == model.policy_kwargs
    with pytest.raises(ValueError, match="already taken"):
        register_class(LampTree, "tests.Mine")


def test_functions_are_saved_by_value(tmp_path: Path) -> None:
    model = make("RecursivePPO", learning_rate=lambda progress: 1e-3 * progress**2)
    with pytest.warns(UserWarning, match="learning_rate is a Python function"):
        model.save(tmp_path / "model")
    loaded = RecursivePPO.load(tmp_path / "model")
    for progress in (1.0, 0.73, 0.31, 0.0):
        assert loaded.lr_schedule(progress) == pytest.approx(1e-3 * progress**2, abs=1e-9)


def test_policies_alone(tmp_path: Path) -> None:
    model = make("DQN")
    save_policy(model.policy, tmp_path / "policy")
    assert equal(params(model), list(load_policy(tmp_path / "policy").state_dict().values()))
    save_safely(model, tmp_path / "model")
    with pytest.raises(ModelFileError, match="load_safely"):
        load_policy(tmp_path / "model")


# -- hostile, foreign and damaged files ------------------------------------------------------------


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def rewrite(source: Path, target: Path, **changes: bytes | None) -> Path:
    """A copy of a model file with members replaced, added or (None) left out."""
    with zipfile.ZipFile(source) as archive:
        members: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    members |= changes
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return target


def edit(model_file: Path, target: Path, **fields: Any) -> Path:
    with zipfile.ZipFile(model_file) as archive:
        data = json.loads(archive.read("data"))
    return rewrite(model_file, target, data=json.dumps(data | fields).encode())


def test_pickles_are_refused_unless_asked_for(tmp_path: Path) -> None:
    model = sb3.PPO("MlpPolicy", make_vec_env("CartPole-v1", 1), n_steps=8, batch_size=8, device="cpu")
    model.trap = Bomb(tmp_path / "trace")  # type: ignore[attr-defined]
    model.save(tmp_path / "foreign")
    for load in (load_safely, RecursivePPO.load):
        with pytest.raises(UnsafeModelError, match=r"policy_class.*trap.*allow_pickle=True"):
            load(tmp_path / "foreign")  # type: ignore[operator]
    assert not (tmp_path / "trace").exists()
    with pytest.raises(ModelFileError, match="pass algorithm="):
        load_safely(tmp_path / "foreign", allow_pickle=True)
    loaded: Any = load_safely(tmp_path / "foreign", algorithm="PPO", allow_pickle=True)
    assert equal(params(model), params(loaded)) and (tmp_path / "trace").exists()


def test_base_class_files_can_be_taken_over(tmp_path: Path) -> None:
    env = lamps(4)
    base = MaskablePPO("MultiInputPolicy", env, n_steps=16, batch_size=32, device="cpu")
    base.save(tmp_path / "base")
    loaded = RecursivePPO.load(tmp_path / "base", env, allow_pickle=True, rollout_buffer_class=None)
    assert equal(params(base), params(loaded)) and loaded.spawn_actions == (3, 4, 5)
    loaded.learn(64)


@pytest.mark.parametrize("member", ["policy", "policy.optimizer", "pytorch_variables"])
def test_tensors_cannot_run_code(model_file: Path, tmp_path: Path, member: str) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "trace"))
    torch_bomb = io.BytesIO()
    th.save(Bomb(tmp_path / "trace"), torch_bomb)
    for content in (bomb, torch_bomb.getvalue()):
        bad = rewrite(model_file, tmp_path / "bad.zip", **{f"{member}.pth": content})
        with pytest.raises(ModelFileError, match=rf"tensors {member}.pth in .* damaged or unsafe"):
            RecursivePPO.load(bad)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "subprocess.Popen", "torch.nn.Nothing"])
def test_files_cannot_name_other_classes(model_file: Path, tmp_path: Path, name: str) -> None:
    bad = edit(model_file, tmp_path / "bad.zip", policy_class={"$": "class", "name": name})
    with pytest.raises(ModelFileError, match="not a registered class"):
        RecursivePPO.load(bad)


def test_arrays_with_objects_are_refused(model_file: Path, tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.array([Bomb(tmp_path / "trace")], object), allow_pickle=True)
    encoded = __import__("base64").b64encode(file.getvalue()).decode()
    bad = edit(model_file, tmp_path / "bad.zip", seed={"$": "array", "npy": encoded})
    with pytest.raises(ModelFileError, match="allow_pickle"):
        RecursivePPO.load(bad)
    assert not (tmp_path / "trace").exists()


def test_damaged_files(model_file: Path, tmp_path: Path) -> None:
    content = model_file.read_bytes()
    bad = tmp_path / "bad.zip"
    for length in (0, 1, 100, len(content) // 2, len(content) - 1):
        bad.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="not a model file, or it is truncated or damaged"):
            RecursivePPO.load(bad)
    bad.write_bytes(np.random.default_rng(0).bytes(1000))
    with pytest.raises(ModelFileError, match="truncated or damaged"):
        RecursivePPO.load(bad)
    place = content.index(b"policy.pth") + 5000
    bad.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    with pytest.raises(ModelFileError, match="damaged"):
        RecursivePPO.load(bad)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "it has no data"),
        ({"policy.pth": None}, "it has no policy.pth"),
        ({"data": b"{"}, "not JSON"),
        ({"data": b"[]"}, "not a JSON object"),
        ({"rao_agents.json": None}, "not written by rao_agents"),
        (
            {"rao_agents.json": b'{"format": "rao-agents", "version": 99, "class": "RecursivePPO"}'},
            "format version 99, this is version 1",
        ),
        (
            {"rao_agents.json": b'{"format": "rao-agents", "version": 1, "class": "Mystery"}'},
            "unknown algorithm 'Mystery'",
        ),
    ],
)
def test_foreign_files(model_file: Path, tmp_path: Path, changes: dict[str, bytes | None], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        RecursivePPO.load(rewrite(model_file, tmp_path / "bad.zip", **changes))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"observation_space": None}, "no valid observation_space"),
        ({"action_space": {"$": "space", "type": "Box"}}, "damaged space"),
        ({"policy_class": {"$": "class", "name": "torch.nn.Tanh"}}, "Tanh is not a policy"),
        ({"seed": {"$": "mystery"}}, "unknown kind of value 'mystery'"),
        ({"learning_rate": {"$": "schedule", "kind": "linear", "start": "x"}}, "finite numbers"),
        ({"policy_kwargs": {"net_arch": [7]}}, "weights in .* do not fit"),
    ],
)
def test_damaged_fields(model_file: Path, tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        RecursivePPO.load(edit(model_file, tmp_path / "bad.zip", **fields))


def test_wrong_uses(trained: RecursivePPO, model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model file at .*nothing or .*nothing\.zip"):
        RecursivePPO.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        RecursivePPO.load(tmp_path)
    with pytest.raises(ModelFileError, match="holds a RecursivePPO, not a DQN"):
        load_safely(model_file, algorithm="DQN")
    with pytest.raises(ModelFileError, match="known: A2C, DQN, MaskablePPO, PPO, RecurrentPPO, RecursiveA2C, RecursivePPO"):
        load_safely(model_file, algorithm="SAC")
    with pytest.raises(ModelFileError, match="holds no training state"):
        load_safely(model_file, lamps(4), with_training_state=True)
    with pytest.raises(ValueError, match="policy_kwargs differ"):
        RecursivePPO.load(model_file, policy_kwargs={"net_arch": [1]})
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        RecursivePPO.load(model_file, lamps(4, vector=True))
    assert set(checkpoint.saved_versions(model_file)) >= {"torch", "stable_baselines3"}


def test_an_interrupted_save_leaves_the_old_file(trained: RecursivePPO, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = model_file.read_bytes()
    written = []

    def fail(self: Any, info: Any, content: bytes) -> None:
        written.append(info)
        if len(written) == 3:
            raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(OSError, match="disk full"):
        trained.save(model_file)
    assert model_file.read_bytes() == old and os.listdir(model_file.parent) == [model_file.name]


# -- the codec -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(np.array([0, -5], np.int8), np.array([1, 5], np.int8), dtype=np.int8),
        spaces.Box(-np.inf, np.inf, (4,), np.float64),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(6),
        spaces.MultiBinary([2, 3]),
        spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]),
        spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Dict(x=spaces.MultiBinary(1)))]),
    ],
    ids=str,
)
def test_spaces(space: spaces.Space[Any]) -> None:
    again = safe_json.decode(json.loads(json.dumps(safe_json.encode(space))))
    assert again == space and again.dtype == space.dtype
    if isinstance(space, spaces.Dict):
        assert list(again) == list(space), "the order of keys is the order of the network's inputs"


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**100, -1.5, float("inf"), "text", b"bytes", [1, [2]], (1, (2, "x")),
        {"a": {"b": 1}}, {1: "x", (2, 3): None}, {"$": "a tag of one's own"}, np.float32(1.5),
        th.nn.Tanh, schedules.linear(1.0, 0.5, 0.25),
    ],
    ids=str,
)  # fmt: skip
def test_values(value: Any) -> None:
    again = safe_json.decode(json.loads(json.dumps(safe_json.encode(value), allow_nan=False)))
    assert again == value and (type(again) is type(value) or isinstance(value, np.generic))


def test_arrays_inside_and_beside_the_text() -> None:
    record = np.zeros(3, np.dtype([("a", np.int64), ("b", np.bool_)], align=True))
    for array in (np.arange(1000.0), np.array(3, np.uint64), record, np.zeros((0, 3), np.int8)):
        store: dict[str, Any] = {}
        for text in (safe_json.encode(array), safe_json.encode(array, store)):
            again = safe_json.decode(json.loads(json.dumps(text)), store)
            assert again.dtype == array.dtype and again.shape == array.shape and np.array_equal(again, array)
    with pytest.raises(TypeError, match="Python objects"):
        safe_json.encode(np.array([None]))
    with pytest.raises(TypeError, match="cannot be written"):
        safe_json.encode(object())
    with pytest.raises(ValueError, match="missing"):
        safe_json.decode({"$": "stored", "name": "7"}, {})


# -- resuming --------------------------------------------------------------------------------------


class StopAt(BaseCallback):
    """Saves at the first rollout that starts at or after `steps`, and stops."""

    def __init__(self, steps: int, path: Path) -> None:
        super().__init__()
        self.steps, self.path, self.saved = steps, path, False

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.steps and not self.saved:
            save_safely(self.model, self.path, with_training_state=True)
            self.saved = True

    def _on_step(self) -> bool:
        return not self.saved


def scramble() -> None:
    """Leave every global generator somewhere else, as a new process would."""
    th.manual_seed(123)
    np.random.default_rng(0)
    np.random.seed(99)  # noqa: NPY002
    random.seed(7)


ENVIRONMENTS = {
    "infos": lambda: lamps(4),
    "minimal": lambda: lamps(4, minimal=True),
    "side channel": lambda: lamps(4, FactsVecEnv),
    "wrapped": lambda: VecNormalize(VecMonitor(lamps(4, monitor=False)), norm_obs_keys=["call"]),
}


@pytest.mark.parametrize(
    ("name", "env"),
    [(name, "infos") for name in ALGORITHMS] + [("RecursivePPO", env) for env in ENVIRONMENTS if env != "infos"],
)
def test_resumed_run_ends_like_an_uninterrupted_one(name: str, env: str, tmp_path: Path) -> None:
    make_env, total = ENVIRONMENTS[env], 320
    whole = make(name, make_env()).learn(total)
    part = make(name, make_env())
    part.learn(total, StopAt(150, tmp_path / "state"))
    assert 150 <= part.num_timesteps < total
    del part
    scramble()
    resumed: Any = load_safely(tmp_path / "state", make_env(), with_training_state=True, device="cpu")
    halfway = params(resumed)
    resumed.learn(total - resumed.num_timesteps, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    assert equal(params(whole), params(resumed)) and not equal(params(resumed), halfway)


def test_resuming_after_learn_returned(tmp_path: Path) -> None:
    whole = make("RecursivePPO").learn(100)
    whole.save(tmp_path / "model")
    state = whole.training_state()
    whole.learn(100, reset_num_timesteps=False)
    scramble()
    resumed = RecursivePPO.load(tmp_path / "model", lamps(4), device="cpu")
    resumed.set_training_state(state)
    resumed.learn(100, reset_num_timesteps=False)
    assert equal(params(whole), params(resumed))


def test_training_states_exist_between_rollouts_only() -> None:
    problems = []

    class Early(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 3:
                with pytest.raises(RuntimeError, match="between rollouts") as problem:
                    training_state(self.model)
                problems.append(problem)
            return True

    make("RecursivePPO").learn(40, Early())
    assert len(problems) == 1
    with pytest.raises(RuntimeError, match="no training is under way"):
        make("RecursivePPO").training_state()

    class Stateless(LampTree):
        get_state = property()  # type: ignore[assignment]  # looking it up raises AttributeError

    with pytest.raises(RuntimeError, match="offers no get_state"):
        make("RecursivePPO", DummyVecEnv([Stateless])).learn(10).training_state()
    state = make("RecursivePPO").learn(40).training_state()
    with pytest.raises(ValueError, match="of 4 environments"):
        make("RecursivePPO", lamps(3)).set_training_state(state)
