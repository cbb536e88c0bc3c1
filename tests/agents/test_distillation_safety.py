"""Self-distillation where things go wrong or meet: hostile files, interrupted runs, a clock set back, state transfer, endless episodes."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env as plain_vec_env

from rao_agents import ModelFileError, RecursivePPO, make_vec_env, safe_json
from rao_agents.checkpoint import read_archive
from rao_agents.distillation import (
    AnyOf,
    AuxiliaryLoss,
    ElasticWeightConsolidation,
    ExperienceBuffer,
    Guard,
    HeldOut,
    Interval,
    Knowledge,
    KnowledgeFileError,
    Plateau,
    PolicyKnowledge,
    SelfDistillationCallback,
    StudentDistiller,
)
from rao_agents.distillation import files as state_files
from rao_agents.distillation.distillers.base import seeded
from rao_agents.distillation.exploration import ExplorationBonus
from rao_agents.distillation.explorer import Exploiter
from rao_agents.distillation.files import read_state, write_state
from rao_agents.distillation.frozen import policy_spec
from rao_agents.distillation.injection import Pool
from rao_agents.distillation.injectors import Injection
from rao_agents.distillation.triggers import Moment

MAZE = "RAO/Maze-5x5-v0"


def cartpole(algorithm: Any = PPO, n: int = 2, **options: Any) -> Any:
    settings = {"batch_size": 32, "n_epochs": 1} if algorithm is PPO else {}
    return algorithm("MlpPolicy", plain_vec_env("CartPole-v1", n, seed=0), n_steps=32, seed=0, device="cpu", **settings | options)


def recursive(n: int = 4, env_kwargs: Any = None, vec: Any = None, n_steps: int = 32, **options: Any) -> RecursivePPO:
    env = make_vec_env(MAZE, n, 0, **(vec or {}), **(env_kwargs or {}))
    return RecursivePPO("MultiInputPolicy", env, n_steps=n_steps, batch_size=64, n_epochs=1, seed=0, device="cpu", **options)


def with_states(**options: Any) -> RecursivePPO:
    return recursive(env_kwargs={"observe_frame": True}, state_transfer="hidden", state_transfer_kwargs={"dim": 8}, **options)


def callback_of(**changes: Any) -> SelfDistillationCallback:
    options: dict[str, Any] = {"distiller": StudentDistiller(student=None), "trigger": Interval(128), "batch_size": 32}
    return SelfDistillationCallback(**(options | changes))


# -- files -----------------------------------------------------------------------------------------


def state_file() -> bytes:
    file = io.BytesIO()
    write_state(file, {"values": np.arange(2000, dtype=np.float32), "n": 1})
    return file.getvalue()


def knowledge_file() -> bytes:
    return PolicyKnowledge({"specs": [policy_spec(cartpole().policy)]}).to_bytes()


def changed(content: bytes, change: Callable[[str, bytes], bytes]) -> io.BytesIO:
    """The archive with other members."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    result.seek(0)
    return result


def announcing(shape: str) -> bytes:
    """A .npy file whose header announces an array that is not there."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head


READERS: dict[str, Any] = {"state": (state_file, read_state), "knowledge": (knowledge_file, Knowledge.load)}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("shape", ["(1 << 50,)", "(1000000000000000,)", "(1000000,)", "()"])
def test_an_array_takes_no_more_memory_than_there_is_of_it(kind: str, shape: str) -> None:
    make, read = READERS[kind]
    with pytest.raises(ModelFileError):
        read(changed(make(), lambda name, old: announcing(shape) if name.endswith(".npy") else old))


@pytest.mark.parametrize("kind", READERS)
def test_damage_anywhere_is_told_as_such(kind: str) -> None:
    make, read = READERS[kind]
    content = make()
    for place in range(40, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[place] ^= 0x7F
        try:
            read(io.BytesIO(damaged))
        except ModelFileError:
            continue


@pytest.mark.parametrize("kind", READERS)
def test_endless_nesting_is_refused(kind: str) -> None:
    make, read = READERS[kind]
    with pytest.raises(ModelFileError):
        read(changed(make(), lambda name, old: b"[" * 100_000 if name.endswith(".json") else old))


def test_a_damaged_model_file_is_told_as_such() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", bytes(5000))
    content = bytearray(file.getvalue())
    content[34:40] = b"\xff" * 6
    with pytest.raises(ModelFileError):
        read_archive(io.BytesIO(bytes(content)))


def test_a_state_file_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = state_file()
    monkeypatch.setattr(state_files, "MOST_STATE_BYTES", 1000)
    with pytest.raises(ModelFileError, match="unpacks to"):
        read_state(io.BytesIO(content))


def test_a_small_file_cannot_describe_a_network_that_no_memory_holds() -> None:
    def widen(name: str, old: bytes) -> bytes:
        if name != "knowledge.json":
            return old
        document = json.loads(old)
        document["config"]["specs"][0]["parameters"]["net_arch"] = [1 << 16, 1 << 16, 1 << 16]
        return json.dumps(document).encode()

    with pytest.raises(KnowledgeFileError, match="larger than the weights"):
        Knowledge.load(changed(knowledge_file(), widen))
    with pytest.raises(ValueError, match="larger than any observation"):
        safe_json.decode({"$": "space", "type": "Box", "shape": [1 << 20, 1 << 20], "dtype": "<f4", "low": 0.0, "high": 1.0})


# -- interrupted and repeated runs -----------------------------------------------------------------


class _Stop(BaseCallback):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            raise KeyboardInterrupt
        return True


def weights(model: Any) -> Any:
    return th.cat([p.detach().flatten() for p in model.policy.parameters()]).numpy()


def test_an_interrupted_run_injects_nothing_into_the_next() -> None:
    def run(weight: float) -> Any:
        model = cartpole()
        callback = callback_of(injectors=[AuxiliaryLoss(weight=weight)], max_grad_norm=None)
        with pytest.raises(KeyboardInterrupt):
            model.learn(2000, callback=CallbackList([callback, _Stop(300)]))
        assert callback.pool is not None
        # The same from here on, whatever the first run did to the policy.
        fresh = cartpole()
        model.policy.load_state_dict(fresh.policy.state_dict())
        model.policy.optimizer.load_state_dict(fresh.policy.optimizer.state_dict())
        model.set_random_seed(0)
        model.learn(256)
        return weights(model)

    np.testing.assert_array_equal(run(0.0), run(50.0))


@pytest.mark.parametrize("guarded", [False, True])
def test_a_second_learn_distils_like_the_first(guarded: bool) -> None:
    guard = Guard(HeldOut(plain_vec_env("CartPole-v1", 2), episodes=2), every=128) if guarded else None
    callback, model = callback_of(guard=guard), cartpole()
    model.learn(640, callback=callback)
    first, scores = callback.rounds, 0 if guard is None else len(guard.scores)
    model.learn(640, callback=callback)  # counts from 0 again
    assert callback.rounds - first >= first - 1 >= 2
    if guard is not None:
        assert len(guard.scores) - scores >= scores - 1
        assert [at for at, _ in guard.scores] == sorted(at for at, _ in guard.scores)


def test_triggers_follow_a_clock_that_is_set_back() -> None:
    interval, plateau = Interval(100), Plateau(3)
    both = AnyOf(interval, plateau)
    both.fired(Moment(1000, 0, 1, ()))
    both.shift(-1000)
    assert not interval.due(Moment(99, 0, 1, ()))
    assert interval.due(Moment(100, 0, 1, ()))
    assert plateau.due(Moment(30, 0, 1, [(10, 1.0), (20, 1.0), (30, 1.0)]))


def test_a_resumed_round_goes_on_with_its_own_strength() -> None:
    class Steady(HeldOut):
        def score(self, model: Any) -> float:
            return 1.0

    def make() -> SelfDistillationCallback:
        guard = Guard(Steady(plain_vec_env("CartPole-v1", 1)), every=64, patience=1)
        guard.strength = 0.5
        injectors = [AuxiliaryLoss(), ElasticWeightConsolidation(samples=2)]
        return callback_of(guard=guard, injectors=injectors, trigger=Interval(10_000, first=64))

    model, callback = cartpole(), make()
    model.learn(320, callback=callback)
    assert callback.rounds == 1
    assert callback.strength == 0.625
    going_on = [injector.strength for injector in callback.injectors]  # type: ignore[attr-defined]
    assert going_on == [0.5, 0.5]
    resumed = make()
    resumed.set_state(callback.state())
    resumed.init_callback(model)
    resumed._on_training_start()
    assert [injector.strength for injector in resumed.injectors] == going_on  # type: ignore[attr-defined]
    resumed.close()


class Endless(gym.Env[Any, Any]):
    """Never ends."""

    observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0.0, False, False, {}


def test_an_endless_episode_is_not_collected_for_ever() -> None:
    model = PPO("MlpPolicy", plain_vec_env(Endless, 1), n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")
    callback = callback_of(buffer=ExperienceBuffer(max_steps=100))
    model.learn(320, callback=callback)
    assert callback._recorder is not None
    assert sum(len(chunk["rewards"]) for chunk in callback._recorder.chunks[0] or []) <= 100


# -- what it meets ---------------------------------------------------------------------------------


def test_other_generators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, held_out = cartpole(), HeldOut(plain_vec_env("CartPole-v1", 1), episodes=1)
    touched: list[int] = []
    monkeypatch.setattr(th.cuda, "manual_seed_all", touched.append)  # torch.manual_seed does
    before = th.random.get_rng_state()
    numbers = []
    for _ in range(2):
        with seeded(np.random.default_rng(0)):
            numbers.append(th.rand(3).tolist())
    assert numbers[0] == numbers[1]
    held_out.score(model)
    assert not touched
    assert th.equal(th.random.get_rng_state(), before)


def test_episodes_under_way_go_on_after_a_resume_with_state_transfer() -> None:
    lost: list[bool] = []

    class Watch(BaseCallback):
        def _on_rollout_start(self) -> None:
            assert resumed._recorder is not None
            lost.extend(chunks is None for chunks in resumed._recorder.chunks)

        def _on_step(self) -> bool:
            return True

    model, callback, resumed = with_states(n_steps=8), callback_of(), callback_of()
    model.learn(4 * 8 * 2, callback=callback)
    resumed.set_state(callback.state())
    model.learn(4 * 8 * 2, callback=CallbackList([resumed, Watch()]), reset_num_timesteps=False)
    assert lost
    assert not any(lost)


def test_held_out_scores_keep_states_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_states()
    predict, missing = model.policy.predict, []

    def spy(obs: Any, state: Any = None, starts: Any = None, **more: Any) -> Any:
        missing.append(state is None)
        return predict(obs, state, starts, **more)

    monkeypatch.setattr(model.policy, "predict", spy)
    HeldOut(make_vec_env(MAZE, 2, 9, observe_frame=True), episodes=2).score(model)
    assert missing[0]
    assert not any(missing[1:])


def test_a_place_is_the_same_whatever_states_frames_hand_on() -> None:
    model = with_states(n_steps=8)
    model.learn(64)
    buffer: Any = model.rollout_buffer
    obs = {key: array[:2, 0].copy() for key, array in buffer.observations.items()}
    bonus = ExplorationBonus()
    before = bonus._place(obs)
    assert [key for key in obs if key.startswith("transfer/")]
    np.testing.assert_array_equal(before, bonus._place({k: v + 1 if k.startswith("transfer/") else v for k, v in obs.items()}))


MEETINGS: dict[str, Any] = {
    "ppo, one environment": lambda: cartpole(n=1),
    "a2c, one environment": lambda: cartpole(A2C, n=1),
    "state transfer": with_states,
    "specialists": lambda: recursive(env_kwargs={"observe_frame": True}, specialists="level"),
    "rloo": lambda: recursive(8, vec={"repeats": 4}, advantage="rloo"),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_the_loop_meets_every_option(name: str) -> None:
    model = MEETINGS[name]()
    callback = callback_of(
        distiller=StudentDistiller(student="light", epochs=1),
        injectors=[AuxiliaryLoss(imitation=0.5, value_weight=0.1), ElasticWeightConsolidation(samples=4)],
    )
    model.learn(32 * model.n_envs * 12, callback=callback)
    assert callback.rounds >= 1
    assert np.isfinite(weights(model)).all()
    assert not model.policy.optimizer._optimizer_step_pre_hooks
    for injector in callback.injectors:  # the round can be gone on with
        assert callback.knowledge is not None
        injector.resume(Injection(model, callback.knowledge, Pool(callback.buffer.states(), callback.knowledge, "cpu"), callback.rng, 1.0))


def test_an_exploiter_without_states_says_so() -> None:
    model = with_states()
    env = model.get_env()
    assert env is not None
    with pytest.raises(ValueError, match="state transfer"):
        Exploiter(model.policy, model.policy.state_dict()).predict(env.reset())
