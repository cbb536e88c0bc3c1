"""What self-distillation remembers: episodes, the bounded memory, its weights; and how episodes are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env as plain_vec_env
from toy_envs import LampTree

from rao_agents import RecursivePPO, make_vec_env
from rao_agents.distillation import Episode, EpisodeRecorder, ExperienceBuffer, Weighting, states
from rao_agents.distillation.buffer import draw
from rao_agents.distillation.minari_data import episodes_from_minari


def episode(
    n: int = 3, *, success: bool | None = True, iteration: int = 0, expert: bool = False, ret: float = 0.0, mark: int = 0
) -> Episode:
    """An episode of `n` steps whose observations are (mark, step)."""
    obs = np.stack([np.full(n, mark), np.arange(n)], axis=1).astype(np.float32)
    return Episode(
        observations={"": obs},
        actions=np.arange(n, dtype=np.int64) % 2,
        action_masks=np.ones((n, 2), np.bool_),
        log_probs=np.zeros(n, np.float32),
        values=np.zeros(n, np.float32),
        rewards=np.zeros(n, np.float32),
        advantages=np.linspace(-1, 1, n, dtype=np.float32),
        frame_id=np.zeros(n, np.int64),
        depth=np.zeros(n, np.int32),
        frames=np.zeros(1, np.int64),
        frame_success=np.array([bool(success)]),
        success=success,
        iteration=iteration,
        expert=expert,
        ret=ret,
    )


# -- episodes --------------------------------------------------------------------------------------


def test_an_episode_comes_back_from_its_arrays() -> None:
    before = episode(4, success=None, iteration=7, ret=2.5)
    after = Episode.from_arrays(before.arrays())
    assert (after.success, after.iteration, after.ret, after.expert, len(after)) == (None, 7, 2.5, False, 4)
    for name, array in before.arrays().items():
        np.testing.assert_array_equal(array, after.arrays()[name])
        assert array.dtype == after.arrays()[name].dtype


def test_steps_know_how_their_frames_ended() -> None:
    base = episode(5).arrays()
    base["frame_id"], base["depth"] = np.array([0, 3, 3, 0, 9]), np.array([0, 1, 1, 0, 1], np.int32)
    base["frames"], base["frame_success"] = np.array([3, 0]), np.array([True, False])
    whole = Episode.from_arrays(base)
    assert whole.step_success().tolist() == [0, 1, 1, 0, -1]
    assert whole.steps_of(3).tolist() == [1, 2]


def test_arrays_of_different_lengths_are_refused() -> None:
    arrays = episode(3).arrays() | {"values": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="values"):
        Episode.from_arrays(arrays)
    without = Episode.from_arrays({k: v for k, v in episode(2).arrays().items() if k != "action_masks"})
    assert states([without]).action_masks is None
    masks = states([without, episode(1)]).action_masks
    assert masks is not None
    assert masks.shape == (3, 2)
    with pytest.raises(ValueError, match="different numbers"):
        states([episode(2), Episode.from_arrays(episode(2).arrays() | {"action_masks": np.ones((2, 5))})])


# -- memory ----------------------------------------------------------------------------------------

ADDED = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([True, False, None]), st.booleans()), max_size=60)


@settings(max_examples=60, deadline=None)
@given(ADDED, st.integers(2, 60), st.floats(0.05, 0.95), st.sampled_from([None, 1, 5]))
def test_the_memory_is_bounded_and_neither_side_runs_empty(added: Any, most: int, share: float, recent: int | None) -> None:
    memory = ExperienceBuffer(most, share, recent)
    seen = [False, False]
    for number, (length, success, expert) in enumerate(added):
        kept = memory.add(episode(length, success=success, iteration=number // 3, expert=expert, ret=float(number)))
        if not expert and kept:
            seen = [seen[0] or bool(memory.failures), seen[1] or bool(memory.successes)]
        assert memory.n_steps == sum(len(e) for e in (*memory.successes, *memory.failures)) <= most
        assert [bool(memory.failures), bool(memory.successes)] == seen
        assert memory.fullness <= 1
        if recent is not None and not expert:
            for side in (memory.successes, memory.failures):
                assert all(e.iteration >= number // 3 - recent for e in side[:-1]) or not kept
    assert memory.seen == len(added)
    assert len(memory) == len(memory.episodes())


def test_a_full_memory_goes_on_the_same_after_it_was_restored() -> None:
    one, other = ExperienceBuffer(20, seed=1), ExperienceBuffer(50, seed=2)
    for number in range(30):
        one.add(episode(1 + number % 4, success=number % 3 == 0, mark=number))
    other.set_state(one.state())
    for number in range(30, 60):
        one.add(episode(2, success=number % 2 == 0, mark=number))
        other.add(episode(2, success=number % 2 == 0, mark=number))
    np.testing.assert_array_equal(one.states().observations[""], other.states().observations[""])
    assert other.max_steps == 20


def test_a_window_looks_back_so_many_iterations_and_always_at_experts() -> None:
    memory = ExperienceBuffer(100)
    memory.extend(episode(2, iteration=i) for i in range(6))
    memory.add(episode(2, expert=True))
    assert [e.iteration for e in memory.episodes(2)] == [4, 5, 0]


def test_states_are_drawn_in_proportion_to_their_weights() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount(draw(rng, 30_000, 3, np.array([0.0, 1.0, 3.0], np.float32)), minlength=3) / 30_000
    np.testing.assert_allclose(counts, [0, 0.25, 0.75], atol=0.01)
    for wrong in (np.zeros(3, np.float32), np.ones(2, np.float32), np.array([1, -1, 1], np.float32)):
        with pytest.raises(ValueError, match="weights"):
            draw(rng, 1, 3, wrong)
    memory = ExperienceBuffer(100)
    memory.extend([episode(3, mark=1), episode(3, mark=2)])
    found, _ = memory.batch(rng, 50, np.array([0, 0, 0, 0, 0, 1], np.float32))
    assert set(map(tuple, found.observations[""].tolist())) == {(2.0, 2.0)}


@pytest.mark.parametrize("wrong", [{"max_steps": 1}, {"success_share": 1.0}, {"recent": 0}])
def test_wrong_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExperienceBuffer(**wrong)


# -- weights ---------------------------------------------------------------------------------------


def test_weights() -> None:
    found = states([episode(3, success=True, iteration=2), episode(3, success=False, iteration=0), episode(3, expert=True)])
    own = np.s_[:6]

    def ratio(weighting: Weighting) -> list[float]:
        weights = weighting(found)
        assert weights.mean() == pytest.approx(1, abs=1e-5)
        return list((weights[own] / weights[0]).round(4))

    assert ratio(Weighting()) == [1.0] * 6
    assert ratio(Weighting(success=4)) == [1, 1, 1, 0.25, 0.25, 0.25]
    assert ratio(Weighting(success=None))[3:] == [0, 0, 0]
    assert ratio(Weighting(half_life=1)) == [1, 1, 1, 0.25, 0.25, 0.25]
    assert Weighting(better_only=True)(found)[:3].tolist()[:2] == [0, 0]
    assert Weighting(surprise=1.0)(found)[1] == 0
    assert (np.diff(Weighting(advantage=1.0)(found)[:3]) > 0).all()
    assert Weighting(expert=3.0)(found)[6] == pytest.approx(3 * Weighting(expert=3.0)(found)[0])
    half = Weighting(surprising_share=0.4)(states([episode(3), episode(1, mark=1)]))
    assert (half > 0).tolist() == [False, False, False, True]


# -- recording -------------------------------------------------------------------------------------


class Watch(BaseCallback):
    """Records episodes with a recorder, and by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Episode] = []
        self.by_hand: list[dict[str, Any]] = []
        self.running: list[dict[str, list[Any]]] = []

    def _on_training_start(self) -> None:
        self.recorder = EpisodeRecorder(self.model)  # type: ignore[arg-type]
        self.running = [{"actions": [], "rewards": [], "obs": [], "frames": []} for _ in range(self.model.get_env().num_envs)]

    def _on_rollout_start(self) -> None:
        self.recorder.begin()

    def _on_step(self) -> bool:
        self.recorder.step(self.locals["rewards"], self.locals["dones"], self.locals["infos"])
        obs = self.model._last_obs
        for i, now in enumerate(self.running):
            now["actions"].append(int(self.locals["actions"].reshape(-1)[i]))
            now["rewards"].append(float(self.locals["rewards"][i]))
            now["obs"].append({k: v[i].copy() for k, v in obs.items()} if isinstance(obs, dict) else {"": obs[i].copy()})
            now["frames"] += [(entry["frame_id"], entry["success"]) for entry in self.locals["infos"][i].get("returned", ())]
            if self.locals["dones"][i]:
                self.by_hand.append({**now, "success": self.locals["infos"][i].get("is_success")})
                self.running[i] = {"actions": [], "rewards": [], "obs": [], "frames": []}
        return True

    def _on_rollout_end(self) -> None:
        self.found += self.recorder.end(self.n_calls)


def check(watch: Watch) -> None:
    assert len(watch.found) == len(watch.by_hand) > 5
    key = lambda e: (len(e["actions"]), e["actions"], e["rewards"])  # noqa: E731
    by_hand = sorted(watch.by_hand, key=key)
    found = sorted(watch.found, key=lambda e: (len(e), e.actions.tolist(), e.rewards.tolist()))
    for expected, got in zip(by_hand, found, strict=True):
        assert got.actions.tolist() == expected["actions"]
        assert got.ret == pytest.approx(sum(expected["rewards"]))
        assert got.success == expected["success"]
    total = sum(float(np.concatenate([o.reshape(-1) for o in step.values()]).sum()) for e in by_hand for step in e["obs"])
    assert sum(float(o.sum()) for e in found for o in e.observations.values()) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_episodes_of_plain_algorithms_are_recorded_whole(algorithm: Any) -> None:
    watch = Watch()
    model = algorithm("MlpPolicy", plain_vec_env("CartPole-v1", 3, seed=0), n_steps=64, seed=0, device="cpu")
    model.learn(1200, callback=watch)
    check(watch)
    assert all(e.action_masks is None and (e.depth == 0).all() for e in watch.found)
    assert len({e.task for e in watch.found}) == len(watch.found)


@pytest.mark.parametrize("minimal", [False, True])
def test_trees_of_third_parties_are_recorded_whole(minimal: bool) -> None:
    watch = Watch()
    env = plain_vec_env(lambda: LampTree(minimal=minimal), 3, seed=0)
    RecursivePPO("MultiInputPolicy", env, n_steps=48, batch_size=48, seed=0, device="cpu").learn(720, callback=watch)
    check(watch)
    for recorded, expected in zip(
        sorted(watch.found, key=lambda e: (len(e), e.actions.tolist(), e.rewards.tolist())),
        sorted(watch.by_hand, key=lambda e: (len(e["actions"]), e["actions"], e["rewards"])),
        strict=True,
    ):
        assert list(zip(recorded.frames.tolist(), recorded.frame_success.tolist(), strict=True)) == expected["frames"]
        assert recorded.depth[0] == 0
        assert set(recorded.frame_id.tolist()) <= {frame for frame, _ in expected["frames"]}


def test_trees_of_this_suite_are_recorded_from_the_side_channel() -> None:
    watch = Watch()
    env = make_vec_env("RAO/Maze-5x5-v0", 4, 0, budget=40)
    RecursivePPO("MultiInputPolicy", env, n_steps=48, batch_size=48, seed=0, device="cpu").learn(800, callback=watch)
    check(watch)
    assert any((e.depth > 0).any() for e in watch.found)
    for e in watch.found:
        assert e.action_masks is not None
        assert e.action_masks[np.arange(len(e)), e.actions].all()
        assert (e.step_success() >= 0).all()


def test_somebody_elses_steps_are_left_out() -> None:
    env = plain_vec_env("CartPole-v1", 2, seed=0)
    model = PPO("MlpPolicy", env, n_steps=40, batch_size=80, seed=0, device="cpu")

    class Meddling(Watch):
        def _on_rollout_end(self) -> None:
            super()._on_rollout_end()
            self.model.get_env().reset()

    watch = Meddling()
    model.learn(400, callback=watch)
    # What began before the reset never comes back: every recorded episode is shorter than a rollout.
    assert watch.found
    assert all(len(e) <= 40 for e in watch.found)


# -- Minari ----------------------------------------------------------------------------------------


def test_episodes_survive_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    watch = Watch()
    env = make_vec_env("RAO/Maze-5x5-v0", 4, 0, budget=40)
    RecursivePPO("MultiInputPolicy", env, n_steps=48, batch_size=48, seed=0, device="cpu").learn(400, callback=watch)
    memory, other = ExperienceBuffer(5000), ExperienceBuffer(5000)
    memory.extend(watch.found)
    assert isinstance(env.action_space, spaces.Discrete)
    memory.to_minari("maze/test-v0", env.observation_space, env.action_space)
    assert other.from_minari("maze/test-v0") == len(memory)
    for before, after in zip(memory.episodes(), other.episodes(), strict=True):
        assert after.expert
        assert (after.success, after.task, after.iteration) == (before.success, before.task, before.iteration)
        np.testing.assert_array_equal(after.step_success(), before.step_success())
        for name in ("actions", "log_probs", "values", "advantages", "frame_id", "depth", "action_masks", "rewards"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
        for key, array in before.observations.items():
            np.testing.assert_array_equal(after.observations[key], array)


@pytest.mark.filterwarnings("ignore")
def test_minari_data_from_elsewhere_need_say_nothing_of_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gym.make("CartPole-v1")
    data = EpisodeBuffer(
        id=0, observations=np.zeros((4, 4), np.float32), actions=np.array([0, 1, 0]), rewards=[1.0] * 3,
        terminations=[False, False, True], truncations=[False] * 3, infos={},
    )  # fmt: skip
    dataset = minari.create_dataset_from_buffers("cart/test-v0", [data], env=env)
    (found,) = episodes_from_minari(dataset)
    assert (found.ret, found.success, found.expert, found.action_masks) == (3.0, None, True, None)
