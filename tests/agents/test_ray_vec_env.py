"""Environments and evaluations on a Ray cluster: the same numbers as in one process, whoever is lost meanwhile."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

import rao_envs
from rao_agents import RecursivePPO, make_vec_env
from rao_agents.distributed import shard as sharding
from rao_agents.distributed.cluster import RayNotInstalledError, WorkersLostError, connected, import_ray, why_lost
from rao_agents.distributed.evaluating import evaluate
from rao_agents.distributed.shard import Call, Reset, Shard, Step
from rao_agents.distributed.vec_env import RayVecEnv
from rao_agents.vec_env import RecursiveVecEnv
from tests.ray_clusters import NODE, kill, lose_node, ray, two_nodes

ENV = "RAO/Maze-5x5-v0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as found:
        yield found


def same(one: Any, other: Any) -> None:
    """Equal to the bit, and of the same types."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert other.flags.writeable
        assert np.array_equal(one, other)
    else:
        assert one == other


class Pair:
    """The same environments here and there; whatever is done, they must say the same."""

    def __init__(self, n: int, here: Any, there: Any) -> None:
        self.n, self.here, self.there = n, here, there
        self.rng = np.random.default_rng(0)

    def check(self, one: Any, other: Any) -> None:
        same(one, other)
        same(self.here.unwrapped.facts, self.there.unwrapped.facts)
        same(self.here.unwrapped.reset_infos, self.there.unwrapped.reset_infos)
        same(self.here.env_method("action_masks"), self.there.env_method("action_masks"))

    def reset(self) -> None:
        self.check(self.here.reset(), self.there.reset())

    def walk(self, steps: int) -> int:
        ended = 0
        for _ in range(steps):
            masks = self.here.env_method("action_masks")
            actions = np.array([self.rng.choice(np.flatnonzero(mask)) for mask in masks])
            one, other = self.here.step(actions), self.there.step(actions)
            for info in (*one[3], *other[3]):
                info.get("episode", {}).pop("t", None)
            self.check(one, other)
            ended += int(one[2].sum())
        return ended

    def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        one = self.here.env_method(name, *arguments, **keywords)
        self.check(one, self.there.env_method(name, *arguments, **keywords))
        return one


def test_the_same_as_in_this_process(cluster: Any) -> None:
    options = {"dense_weight": 0.1, "budget": 20}
    there = make_vec_env(ENV, 5, 0, ray_workers=2, **options)
    try:
        pair = Pair(5, make_vec_env(ENV, 5, 0, **options), there)
        with pytest.raises(ResetNeeded):
            there.step(np.zeros(5, np.int64))
        pair.reset()
        assert pair.walk(30) > 5
        (state,) = pair.call("get_state", indices=[4])
        pair.call("reset", seed=7, indices=[3, 0])
        pair.walk(5)
        pair.call("set_state", state, indices=1)
        pair.walk(5)
        for env in (pair.here, pair.there):
            env.seed(100)
        pair.reset()
        assert pair.walk(25) > 3
        for name in ("spawn_actions", "action_names", "spec", "render_mode"):
            same(pair.here.get_attr(name, [1, 2]), there.get_attr(name, [1, 2]))
        assert there.env_is_wrapped(gym.Wrapper) == [False] * 5
        with pytest.raises(ValueError, match=r"actions must lie in \[0, 9\), got 0 to 9"):
            there.step(np.array([0, 9, 0, 0, 0]))
        with pytest.raises(ValueError, match="5 integers"):
            there.step(np.zeros(4, np.int64))
        with pytest.raises(AttributeError, match="not render_all"):
            there.env_method("render_all")
        with pytest.raises(AttributeError, match="cannot be set"):
            there.set_attr("facts", None)
        with pytest.raises(ValueError, match="not a state of this environment"):
            there.env_method("set_state", {}, indices=0)
        there.unwrapped.set_options({"nonsense": 1})
        with pytest.raises(ValueError, match="unknown reset option"):
            there.reset()
    finally:
        there.close()
    assert ray.is_initialized()  # it was there before


def test_lost_workers_are_replaced_where_they_were(cluster: Any) -> None:
    there = RayVecEnv(ENV, 4, 2, snapshot_every=20, budget=20)
    try:
        there.seed(3)
        pair = Pair(4, make_vec_env(ENV, 4, 3, budget=20, monitor=False), there)
        pair.reset()
        pair.walk(5)
        kill(there._desks[0].actor)  # before there is a snapshot
        pair.walk(30)
        assert all(desk.snapshot is not None and 0 < len(desk.since) < 20 for desk in there._desks)
        pair.call("reset", seed=9, indices=[3])
        kill(there._desks[1].actor)
        pair.call("get_state")
        pair.walk(30)
        assert all(len(desk.since) < 20 for desk in there._desks)
    finally:
        there.close()


@pytest.mark.slow
def test_what_was_on_a_lost_node_goes_on_beside_the_others(cluster: Any) -> None:
    there = RayVecEnv(ENV, 4, 2, budget=20)
    try:
        there.seed(3)
        pair = Pair(4, make_vec_env(ENV, 4, 3, budget=20, monitor=False), there)
        pair.reset()
        pair.walk(10)
        lose_node(cluster)
        pair.walk(10)
    finally:
        there.close()
        cluster.add_node(**NODE)


class KillOnce(BaseCallback):
    """Ends a worker's process in the middle of a rollout."""

    def __init__(self, desk: Any) -> None:
        super().__init__()
        self.desk = desk

    def _on_step(self) -> bool:
        if self.n_calls == 11:
            kill(self.desk.actor)
        return True


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [RecursivePPO, MaskablePPO])
def test_training_gives_the_same_model(cluster: Any, algorithm: Any) -> None:
    def train(env: Any, callback: Any) -> Any:
        model = algorithm("MultiInputPolicy", env, n_steps=16, batch_size=32, n_epochs=2, seed=0, device="cpu")
        return model.learn(3 * 16 * 4, callback=callback).policy.state_dict()

    repeats = 1 if algorithm is MaskablePPO else 2
    here = train(make_vec_env(ENV, 4, 1, repeats=repeats, budget=15), None)
    env = make_vec_env(ENV, 4, 1, repeats=repeats, budget=15, ray_workers=2)
    try:
        there = train(env, KillOnce(env.unwrapped._desks[1]))  # type: ignore[attr-defined]
    finally:
        env.close()
    assert here.keys() == there.keys()
    assert all(bool((here[key] == there[key]).all()) for key in here)


class Wanderer:
    """Chance alone; ends its process the first time it is asked, if it is given a path for a note of that."""

    def __init__(self, note: Path | None = None) -> None:
        self.note = note

    def __call__(self, observation: Any, mask: Any, state: Any, rng: Any) -> int:
        if self.note is not None and not self.note.exists():
            self.note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.slow
def test_an_evaluation_has_the_same_records(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers cannot import this module: send its class itself.
    monkeypatch.setattr(Wanderer, "__module__", "__main__")
    model = RecursivePPO("MultiInputPolicy", make_vec_env(ENV, 2, 0), n_steps=8, batch_size=16, seed=0, device="cpu")
    for agent, deterministic in ((model, False), (Wanderer(), False)):
        expected = rao_envs.evaluate(agent, ENV, 30, deterministic=deterministic, budget=25)
        seen: list[int] = []
        found = evaluate(agent, ENV, 30, deterministic=deterministic, budget=25, progress=lambda now, _, to=seen: to.append(now))
        assert found.to_dict() == expected.to_dict()
        assert (len(seen), seen[-1]) == (8, 30)
    lossy = Wanderer(tmp_path / "note")
    assert evaluate(lossy, ENV, 30, workers=1, deterministic=False, budget=25).to_dict() == expected.to_dict()
    assert lossy.note is not None
    assert lossy.note.exists()
    with pytest.raises(ValueError, match="listed twice"):
        evaluate(model, ENV, [1, 1])
    with pytest.raises(ValueError, match="workers must be an integer of at least 1, got 0"):
        evaluate(model, ENV, 2, workers=0)
    with pytest.raises(ValueError, match="3 workers need 3 CPUs, the cluster has 2"):
        evaluate(model, ENV, 5, workers=3)
    with pytest.raises(ValueError, match=r"observation|action"):  # of a worker
        evaluate(model, "RAO/Algebra-depth2-v0", 2)


def test_what_cannot_be(cluster: Any) -> None:
    for workers in (0, 3, True, 1.5):
        with pytest.raises(ValueError, match=r"workers must be an integer in \[1, 2\]"):
            make_vec_env(ENV, 2, ray_workers=workers)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 workers need as many CPUs, the cluster has 2"):
        make_vec_env(ENV, 4, ray_workers=3)
    with pytest.raises(TypeError, match="surprise"):
        make_vec_env(ENV, 2, ray_workers=1, surprise=1)
    with pytest.raises(ValueError, match="not a recursive environment"):
        RayVecEnv("CartPole-v1", 2, 1)
    with pytest.raises(ValueError, match="pass ray_workers, too"):
        make_vec_env(ENV, 2, ray_address="auto")


# -- without a cluster ---------------------------------------------------------------------------------------------------------


def test_a_shard_comes_to_where_another_was(monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = gym.spec(ENV)
    first, second = Shard(spec, 3), Shard(spec, 3)
    begin = Reset([1, 2, 3], [{}, {}, {}])
    first.obey(begin)
    zeros = np.zeros(3, np.int64)
    snapshot = pickle.loads(first.obey(Step(zeros, snapshot=True))).snapshot
    since = [Call("reset", (), {"seed": 5}, [1]), Call("set_state", ({},), {}, [0]), Step(zeros + 1), Step(zeros + 2)]
    first.obey(since[0])
    with pytest.raises(ValueError, match="not a state"):
        first.obey(since[1])
    first.obey(since[2])
    last = pickle.loads(first.obey(since[3]))
    same(last, pickle.loads(second.restore(snapshot, since) or b""))
    monkeypatch.setattr(sharding, "LARGEST_SNAPSHOT", 100)
    assert pickle.loads(first.obey(Step(zeros, snapshot=True))).snapshot is None
    third = Shard(spec, 3)
    same(last, pickle.loads(third.restore(None, [begin, Step(zeros, snapshot=True), *since]) or b""))


def test_without_ray_a_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    needs = r'needs Ray .*pip install "rao-envs\[ray\]"'
    with pytest.raises(RayNotInstalledError, match=needs):
        import_ray()
    with pytest.raises(ImportError, match=needs):
        make_vec_env(ENV, 2, ray_workers=1)
    with pytest.raises(ImportError, match=needs):
        evaluate(Wanderer(), ENV, 2)
    assert isinstance(make_vec_env(ENV, 2, monitor=False), RecursiveVecEnv)


def test_reasons() -> None:
    assert "install the same version on every node" in why_lost(ModuleNotFoundError("No module named 'rao_agents'"))
    assert why_lost(OSError("a\n  b")) == "a b"
    assert issubclass(WorkersLostError, OSError)  # the command line prints it without a traceback


def test_no_cluster_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCluster:
        def is_initialized(self) -> bool:
            return False

        def init(self, address: str, **options: Any) -> None:
            raise ConnectionError("nobody answers")

    monkeypatch.setitem(sys.modules, "ray", NoCluster())
    with pytest.raises(ConnectionError, match=r"no Ray cluster at '10\.0\.0\.1:1': nobody answers"), connected("10.0.0.1:1"):
        pass


def test_a_connection_is_shared_and_closed_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        calls: list[str] = []

        def is_initialized(self) -> bool:
            return self.calls.count("init") > self.calls.count("shutdown")

        def init(self, **options: Any) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.calls.append("init")

        def shutdown(self) -> None:
            self.calls.append("shutdown")

    def ours(number: int, frame: Any) -> None:
        raise AssertionError

    monkeypatch.setitem(sys.modules, "ray", Counting())
    before = signal.signal(signal.SIGTERM, ours)
    try:
        first, second = connected(), connected()
        first.__enter__()
        second.__enter__()
        assert signal.getsignal(signal.SIGTERM) is ours
        first.__exit__(None, None, None)
        assert Counting.calls == ["init"]
        second.__exit__(None, None, None)
        assert Counting.calls == ["init", "shutdown"]
    finally:
        signal.signal(signal.SIGTERM, before)
