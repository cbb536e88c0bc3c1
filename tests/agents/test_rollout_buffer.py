"""The frame rollout buffer: minibatches, weights, carried rows, bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from driving import drive, network
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv
from toy_envs import Event, EventTree, random_events, script

from rao_agents.rollout_buffer import FrameDictRolloutBuffer, FrameRolloutBuffer, ProtocolError
from rao_agents.tap import FrameTap


def trees(n: int, seed: int = 0, max_depth: int = 3) -> list[EventTree]:
    return [EventTree(random_events(np.random.default_rng([seed, i]), max_depth), first=i * 10**6) for i in range(n)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 16, 64, 10_000, None])
def test_minibatches_are_balanced_and_complete(batch_size: int | None) -> None:
    _, buffer = drive(trees(3), 2, 17, network)
    n = int(np.count_nonzero(buffer.valid))
    assert n < buffer.n_rows, "this test needs rows that are not complete"
    batches = list(buffer.get(batch_size))
    sizes = [len(batch.actions) for batch in batches]
    assert sum(sizes) == n and max(sizes) - min(sizes) <= 1 and min(sizes) >= 2
    seen = th.cat([batch.observations for batch in batches]).flatten()
    assert sorted(seen.tolist()) == sorted(buffer.flat_observations[""][: buffer.n_rows][buffer.valid, 0].tolist())
    if batch_size == 16:
        assert all(12 <= size <= 20 for size in sizes)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_no_minibatch_of_one_row(n: int) -> None:
    buffer = FrameRolloutBuffer(n, EventTree.observation_space, EventTree.action_space, "cpu")
    fill(buffer, [Event("step")] * n)
    for batch_size in range(1, n + 1):
        sizes = [len(batch.actions) for batch in buffer.get(batch_size)]
        assert sum(sizes) == n and min(sizes) >= 2


def fill(buffer: FrameRolloutBuffer, events: list[Event]) -> None:
    env = EventTree(script(*events))
    venv = DummyVecEnv([lambda: env])
    tap = FrameTap(venv, buffer)
    obs = venv.reset()
    tap.begin(obs)
    buffer.reset()
    for _ in events:
        new_obs, rewards, dones, _ = tap.step(np.zeros(1, np.int64))
        buffer.add(obs, np.zeros((1, 1)), rewards, dones, th.zeros(1), th.zeros(1))
        obs = new_obs
    buffer.compute_returns_and_advantage(th.zeros(1), dones)


def test_order_comes_from_the_buffers_own_generator() -> None:
    def order(seed: int) -> list[float]:
        _, buffer = drive(trees(2), 1, 20, network, seed=seed)
        return [float(x) for batch in buffer.get(8) for x in batch.observations.flatten()]

    np.random.seed(0)  # noqa: NPY002
    first = order(5)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    assert order(5) == first
    assert order(6) != first
    after = np.random.get_state()[1]  # type: ignore[index]  # noqa: NPY002
    assert np.array_equal(after, before), "the global generator must not be drawn from"


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_normalised_once_then_weighted_by_depth(normalize: bool, alpha: float) -> None:
    _, buffer = drive(trees(4), 2, 40, network, normalize_advantage=normalize, depth_weighting=alpha)
    raw = buffer.flat_advantages[: buffer.n_rows][buffer.valid]
    depth = buffer.rows["depth"][: buffer.n_rows][buffer.valid]
    expected = (raw - raw.mean()) / (raw.std(ddof=1) + 1e-8) if normalize else raw
    counts = np.bincount(depth)
    weights = counts[depth] ** -alpha
    expected = expected * weights / weights.mean()
    batch = next(buffer.get(None))
    order = np.argsort(batch.observations.numpy()[:, 0])
    numbers = buffer.flat_observations[""][: buffer.n_rows][buffer.valid, 0]
    np.testing.assert_allclose(batch.advantages.numpy()[order], expected[np.argsort(numbers)], rtol=1e-4, atol=1e-5)
    # Targets of the value function are neither normalised nor weighted.
    np.testing.assert_allclose(
        batch.returns.numpy()[order],
        (raw + buffer.flat_values[: buffer.n_rows][buffer.valid])[np.argsort(numbers)],
        rtol=1e-5,
        atol=1e-6,
    )
    if alpha == 1.0:
        totals = [weights[depth == d].sum() for d in np.unique(depth)]
        assert max(totals) == pytest.approx(min(totals))


def test_values_for_explained_variance_are_of_complete_rows() -> None:
    _, buffer = drive(trees(3), 3, 10, network)
    next(buffer.get(8))
    n = int(np.count_nonzero(buffer.valid))
    assert buffer.values.shape == buffer.returns.shape == (n,)
    np.testing.assert_allclose(buffer.returns - buffer.values, buffer.flat_advantages[: buffer.n_rows][buffer.valid], atol=1e-6)


def test_carried_rows_keep_what_they_were() -> None:
    """What a pending spawn saw and did survives rollouts unchanged; its value does not."""
    env = EventTree(script(Event("spawn"), *[Event("step")] * 7, Event("return", 0.0, (1.0,))))
    venv = DummyVecEnv([lambda: env])
    space = spaces.Dict({"x": EventTree.observation_space})
    buffer = FrameDictRolloutBuffer(4, space, EventTree.action_space, "cpu", gamma=0.5)
    buffer.value_function = lambda obs: np.full(len(obs["x"]), 9.0)  # type: ignore[call-overload]
    tap = FrameTap(venv, buffer)
    obs = venv.reset()
    for step in range(12):
        if step % 4 == 0:
            tap.begin(obs)
            buffer.reset()
        mask = np.array([[step != 0, True, True]])
        new_obs, rewards, dones, _ = tap.step(np.zeros(1, np.int64))
        action, log_prob = np.array([[2 if step == 0 else 1]]), th.tensor([-0.5 * (step + 1)])
        buffer.add({"x": obs}, action, rewards, dones, th.tensor([float(step)]), log_prob, action_masks=mask)
        obs = new_obs
        if step % 4 == 3:
            buffer.compute_returns_and_advantage(th.zeros(1), dones)
            tap.end(obs)
    slot = buffer.n_step_rows
    assert buffer.valid[slot] and buffer.n_carried == 1
    batch = next(buffer.get(None))
    (row,) = np.flatnonzero(batch.observations["x"].numpy()[:, 0] == 0)
    assert batch.actions[row].item() == 2 and batch.old_log_prob[row].item() == -0.5
    assert batch.action_masks[row].tolist() == [False, True, True]
    assert batch.old_values[row].item() == 9.0
    assert buffer.rows["discount"][slot] == 0.5**9


def test_outside_reset_drops_what_was_pending() -> None:
    envs = [EventTree(script(*[Event("spawn")] * 2, *[Event("step")] * 90))]
    venv = DummyVecEnv([lambda: envs[0]])
    buffer = FrameRolloutBuffer(4, EventTree.observation_space, EventTree.action_space, "cpu")
    tap = FrameTap(venv, buffer)

    def rollout(obs: Any) -> Any:
        tap.begin(obs)
        buffer.reset()
        placed = buffer.n_carried
        for _ in range(4):
            new_obs, rewards, dones, _ = tap.step(np.zeros(1, np.int64))
            buffer.add(obs, np.zeros((1, 1)), rewards, dones, th.zeros(1), th.zeros(1))
            obs = new_obs
        buffer.compute_returns_and_advantage(th.zeros(1), dones)
        tap.end(obs)
        return obs, placed

    obs, placed = rollout(venv.reset())
    assert placed == 0 and buffer.carried is not None and len(buffer.carried.rows) == 2
    obs, placed = rollout(obs)
    assert placed == 2 and len(buffer.carried.rows) == 2
    episode = int(buffer.episode[0])
    obs, placed = rollout(venv.reset())
    assert placed == 0 and len(buffer.carried.rows) == 0 and buffer.episode[0] == episode + 1
    # Also when the algorithm goes on from its old observation, not knowing of the reset.
    envs[0].source = script(*[Event("spawn")] * 2, *[Event("step")] * 90)
    obs, _ = rollout(obs)
    assert len(buffer.carried.rows) == 2
    venv.reset()
    assert rollout(obs)[1] == 0


def test_a_rollout_broken_off_drops_what_was_pending() -> None:
    envs = [EventTree(script(Event("spawn"), *[Event("step")] * 90))]
    venv = DummyVecEnv([lambda: envs[0]])
    _, buffer = drive(envs, 1, 4, network)
    assert buffer.carried is not None and len(buffer.carried.rows) == 1
    tap = FrameTap(venv, buffer)
    buffer.reset()
    tap.reader.start()
    assert buffer.n_carried == 1
    buffer.record(
        np.zeros(1, np.float32),
        np.zeros(1, bool),
        tap.reader.start()._replace(frame_id=np.array([1]), depth=np.array([1], np.int32)),
    )
    buffer.reset()
    assert buffer.n_carried == 0


def test_unreported_return_is_an_error() -> None:
    class Forgetful(EventTree):
        def _close(self, outcome: float, returned: list[dict[str, Any]]) -> None:
            super()._close(outcome, [])

    with pytest.raises(
        ProtocolError,
        match=r"environment 0: frame 0 acts at depth 0, but frame 1 at depth 1 was never reported",
    ):
        drive([Forgetful(script(Event("spawn"), Event("return", 0.0, (1.0,))))], 1, 2, network)


def test_missing_frame_id_is_an_error() -> None:
    class Silent(EventTree):
        def _info(self, returned: list[dict[str, Any]]) -> dict[str, Any]:
            return {}

    with pytest.raises(ProtocolError, match="frame_id"):
        drive([Silent(script(Event("step")))], 1, 1, network)


def test_states_of_version_0_1_0_can_be_gone_on_with() -> None:
    """They said less: only pending spawns were carried, and where those stood gave their links."""
    _, buffer = drive(trees(3), 2, 7, network)
    state = buffer.get_state()
    assert state["carried"] is not None and len(state["carried"]["rows"]) > 2
    fields = ["reward", "discount", "next", "parent", "frame_id", "episode", "env", "depth"]
    rows = state["carried"]["rows"]
    old_rows = np.zeros(len(rows), [(name, rows.dtype[name]) for name in fields])
    for name in fields:
        old_rows[name] = rows[name]
    old_rows["parent"] = 10**6  # an index into a table that is gone
    kept = ("observations", "actions", "action_masks", "log_probs")
    old = {name: state[name] for name in ("frame_id", "acting", "episode", "rng")}
    old["carried"] = {name: state["carried"][name] for name in kept} | {"rows": old_rows}
    after = []
    for one in (state, old):
        other = FrameRolloutBuffer(7, EventTree.observation_space, EventTree.action_space, "cpu", n_envs=3)
        other.set_state(one)
        after.append((other.rows[other.n_step_rows : other.n_rows], other.frames))
    assert (after[0][0]["parent"] >= 0).any(), "this test needs a pending spawn below another"
    for name in (*fields, "link"):
        np.testing.assert_array_equal(after[0][0][name], after[1][0][name])
    np.testing.assert_array_equal(after[0][1], after[1][1])


def test_frames_need_discrete_actions() -> None:
    with pytest.raises(ValueError, match="Discrete"):
        FrameRolloutBuffer(4, EventTree.observation_space, spaces.MultiBinary(3), "cpu")


def test_memory_is_bounded() -> None:
    """Deep trees in short rollouts carry at most one row for each level, in stores that do not grow."""
    max_depth, n = 4, 3
    envs = trees(n, seed=1, max_depth=max_depth)
    venv = DummyVecEnv([lambda env=env: env for env in envs])  # type: ignore[misc]
    buffer = FrameRolloutBuffer(4, EventTree.observation_space, EventTree.action_space, "cpu", n_envs=n)
    buffer.value_function = lambda obs: np.zeros(len(obs))
    tap = FrameTap(venv, buffer)
    obs = venv.reset()
    most, sizes = 0, set()
    for rollout in range(400):
        tap.begin(obs)
        buffer.reset()
        if rollout >= 100:
            sizes.add(
                sum(
                    array.nbytes
                    for array in (
                        buffer.rows,
                        buffer.frames,
                        buffer.flat_masks,
                        *buffer.flat_observations.values(),
                    )
                )
            )
        for _ in range(4):
            new_obs, rewards, dones, _ = tap.step(np.zeros(n, np.int64))
            buffer.add(obs, np.zeros((n, 1)), rewards, dones, th.zeros(n), th.zeros(n))
            obs = new_obs
        buffer.compute_returns_and_advantage(th.zeros(n), dones)
        tap.end(obs)
        assert buffer.carried is not None
        most = max(most, len(buffer.carried.rows))
        for env in envs:
            env.log.clear()
    assert 0 < most <= n * (max_depth + 1)
    assert len(sizes) == 1
