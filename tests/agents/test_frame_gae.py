"""Frame-wise advantages: hand-computed trees, and random trees against a brute force that knows no rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driving import Value, drive, flat, network
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv
from toy_envs import Event, EventTree, FactsVecEnv, random_events, script


def brute_force(
    logs: list[list[dict[str, Any]]],
    steps: int,
    value: Value,
    gamma: float,
    lam: float,
    step_cost: float,
    bonus: float,
    credit: str = "node",
) -> dict[int, float]:
    """Advantages by definition, from the whole log: {observation: advantage} of the completed transitions."""
    result = {}
    for log in logs:
        times: dict[tuple[int, int], list[int]] = {}  # when each frame decided
        ends: dict[tuple[int, int], tuple[int, float]] = {}  # when it ended, and what that paid
        for t, entry in enumerate(log):
            for frame in entry["stack"]:
                times.setdefault((entry["episode"], frame), [])
            times[entry["episode"], entry["frame"]].append(t)
            for ended in entry["returned"]:
                payoff = ended["reward"] if ended["depth"] > 0 else 0.0
                if ended["children"]:
                    payoff += bonus * ended["successes"] / ended["children"]
                ends[entry["episode"], ended["frame_id"]] = (t, payoff)
            if entry["done"]:
                for key in times:
                    if key[0] == entry["episode"]:
                        ends.setdefault(key, (t, 0.0))
        acting = (log[-1]["next_episode"], log[-1]["next_frame"])
        complete: dict[int, tuple[int, float]] = {}  # (rollout, advantage) by time
        for t in reversed(range(len(log))):
            entry = log[t]
            line = [(entry["episode"], frame) for frame in entry["stack"]]  # from the root to the frame itself
            answers_to = line[-1:] if credit == "node" else line[:1] if credit == "root" else line
            # When the trajectory goes on: at the next decision of the frame, or of whoever inherits it.
            after, following, over = t, None, False
            for key in reversed(line):
                following = next((s for s in times[key] if s > after), len(log) if key == acting else None)
                if following is not None or key not in ends:
                    break
                after = ends[key][0]
                over = credit == "node" or key == line[0]
                if over:
                    break
            if following is None and not over:
                continue  # it waits
            stop = after + 1 if following is None else following
            rollout = (stop - 1) // steps
            advantage = -value(entry["obs"], rollout) - (0.0 if credit == "root" else step_cost)
            for s in range(t, stop):
                if line[0] in answers_to:
                    advantage += gamma ** (s - t) * log[s]["reward"]
                if credit != "root":
                    advantage += gamma ** (s - t) * sum(ends[key][1] for key in answers_to if key in ends and ends[key][0] == s)
            if following is not None:
                number = log[following]["obs"] if following < len(log) else log[-1]["obs"] + 1
                factor = gamma ** (following - t)
                advantage += factor * value(number, rollout)
                if following in complete and following < (rollout + 1) * steps and complete[following][0] == rollout:
                    advantage += factor * lam * complete[following][1]
            result[entry["obs"]] = advantage
            complete[t] = (rollout, advantage)
    return result


def finish_log(envs: list[EventTree]) -> list[list[dict[str, Any]]]:
    for env in envs:
        env.log[-1] |= {"next_episode": env.episode, "next_frame": env.stack[-1]["id"]}
    return [env.log for env in envs]


GAMMA, LAM = 0.9, 0.5


def one_rollout(*events: Event, value: Value = flat, steps: int | None = None, rollouts: int = 1, **kwargs: Any) -> dict[int, float]:
    trained, _ = drive(
        [EventTree(script(*events))],
        rollouts,
        steps or len(events),
        value,
        gamma=GAMMA,
        gae_lambda=LAM,
        **kwargs,
    )
    return {number: transition.advantage for number, transition in trained.items()}


def test_child_jump_by_hand() -> None:
    """Root spawns (0), the child acts twice (1, 2) and succeeds, the root ends the episode (3) for 1."""
    got = one_rollout(Event("spawn"), Event("step"), Event("return", 0.0, (1.0,)), Event("done", 1.0))
    # Root: row 0 -> row 3 after three steps; row 3 ends with 1. Child: row 2 ends with its outcome 1, row 1
    # goes before it.
    assert got == pytest.approx({3: 1.0, 0: GAMMA**3 * LAM * 1.0, 2: 1.0, 1: GAMMA * LAM * 1.0})


def test_values_and_costs_by_hand() -> None:
    """The same tree, with V = 1, a cost of 0.25 a decision and a bonus of 0.5 times the average success."""
    ones: Value = lambda number, rollout: np.ones_like(np.asarray(number, np.float64))  # noqa: E731
    got = one_rollout(
        Event("spawn"),
        Event("step"),
        Event("return", 0.0, (1.0,)),
        Event("done", 1.0),
        value=ones,
        step_cost=0.25,
        bonus=0.5,
    )
    a3 = (1.0 - 0.25 + 0.5 * 1 / 1) - 1.0
    a2 = (1.0 - 0.25) - 1.0
    expected = {
        3: a3,
        0: -0.25 + GAMMA**3 * 1.0 - 1.0 + GAMMA**3 * LAM * a3,
        2: a2,
        1: -0.25 + GAMMA * 1.0 - 1.0 + GAMMA * LAM * a2,
    }
    assert got == pytest.approx(expected)


def test_reward_while_a_descendant_acts_is_the_roots() -> None:
    """Paid 2 while the child acts and 4 when it returns: both belong to the root's pending spawn."""
    got = one_rollout(Event("spawn", 1.0), Event("step", 2.0), Event("return", 4.0, (0.0,)), Event("done", 8.0))
    assert got[0] == pytest.approx(1.0 + GAMMA * 2.0 + GAMMA**2 * 4.0 + GAMMA**3 * LAM * 8.0)
    assert got[1] == got[2] == 0.0


def test_cascade_by_hand() -> None:
    """One step ends a grandchild and its parent, whose last row is its spawn: paid two steps later."""
    got = one_rollout(Event("spawn"), Event("spawn"), Event("step"), Event("return", 0.0, (0.0, 1.0)), Event("done", 1.0))
    assert got == pytest.approx({4: 1.0, 0: GAMMA**4 * LAM, 1: GAMMA**2 * 1.0, 3: 0.0, 2: 0.0})


def test_bonus_is_the_average_once() -> None:
    """Three children, two successful: bonus times 2/3, not times 2."""
    children = [
        Event("spawn"),
        Event("return", 0.0, (1.0,)),
        Event("spawn"),
        Event("return", 0.0, (0.0,)),
        Event("spawn"),
        Event("return", 0.0, (1.0,)),
    ]
    got = one_rollout(*children, Event("done", 0.0), bonus=0.6)
    assert got[6] == pytest.approx(0.6 * 2 / 3)


def test_sibling_switch() -> None:
    """A child returns and its sibling begins in one step: two trajectories, and the parent still waits."""
    got = one_rollout(
        Event("spawn"),
        Event("switch", 0.0, (1.0,)),
        Event("step"),
        Event("return", 0.0, (0.0,)),
        Event("done", 1.0),
    )
    assert got == pytest.approx({4: 1.0, 0: GAMMA**4 * LAM, 1: 1.0, 3: 0.0, 2: 0.0})


def test_child_that_ends_on_its_spawn() -> None:
    """Push and pop in one step: the spawning row goes on one step later, and the child counts."""
    got = one_rollout(Event("spawn"), Event("pop", 0.0, (1.0,)), Event("return", 0.0, (1.0,)), Event("done", 1.0), bonus=0.5)
    # Child frame: rows 1 and 2; it ends with 1 + 0.5 * 1/1. Root: one child, which succeeded.
    assert got == pytest.approx({2: 1.5, 1: GAMMA * LAM * 1.5, 3: 1.5, 0: GAMMA**3 * LAM * 1.5})


@pytest.mark.parametrize("unreported", [0.0, 1.0])
def test_episode_end_closes_all_frames(unreported: float) -> None:
    """Also where the environment does not report them: a time-out bootstraps nothing."""
    ones: Value = lambda number, rollout: np.full_like(np.asarray(number, np.float64), 5.0)  # noqa: E731
    got = one_rollout(Event("spawn"), Event("spawn"), Event("done", 1.0, (unreported,)), value=ones)
    # Reported, the children's outcomes are (0, ...): `outcomes` gives the innermost 0 and the rest run out.
    assert got[0] == pytest.approx(GAMMA**2 * 1.0 - 5.0)
    assert got[2] == pytest.approx(-5.0)
    assert set(got) == {0, 1, 2}


def test_open_frames_at_the_edge() -> None:
    """The child acts next and is bootstrapped; the root's spawn waits, and completes two rollouts later."""
    value: Value = lambda number, rollout: np.asarray(number, np.float64) + 100.0 * rollout  # noqa: E731
    events = [
        Event("spawn", 1.0),
        Event("step", 2.0),
        Event("step", 4.0),
        Event("step", 8.0),
        Event("return", 16.0, (1.0,)),
        Event("step", 32.0),
    ]
    got = one_rollout(*events, value=value, steps=2, rollouts=3)
    assert got[1] == pytest.approx(GAMMA * 2.0 - 1.0)  # child: no reward; V(2) = 2 from the first network
    assert got[2] == pytest.approx(GAMMA * 103.0 - 102.0 + GAMMA * LAM * got[3])
    assert got[3] == pytest.approx(GAMMA * 104.0 - 103.0)
    assert got[4] == pytest.approx(1.0 - 204.0)
    assert got[5] == pytest.approx(32.0 + GAMMA * 206.0 - 205.0)
    reward = sum(GAMMA**t * r for t, r in enumerate([1.0, 2.0, 4.0, 8.0, 16.0]))
    # Valued again by the network of the third rollout: V(0) = 200, V(5) = 205.
    assert got[0] == pytest.approx(reward + GAMMA**5 * 205.0 - 200.0 + GAMMA**5 * LAM * got[5])


def test_row_before_a_pending_spawn_is_bootstrapped_from_it() -> None:
    value: Value = lambda number, rollout: np.asarray(number, np.float64)  # noqa: E731
    got = one_rollout(Event("step"), Event("spawn"), Event("step"), value=value)
    assert got[0] == pytest.approx(GAMMA * 1.0 - 0.0)
    assert 1 not in got


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 12),
    rollouts=st.integers(1, 8),
    n_envs=st.integers(1, 3),
    max_depth=st.integers(0, 4),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
    side_channel=st.booleans(),
    credit=st.sampled_from(["node", "tree", "root"]),
)
def test_random_trees_equal_brute_force(
    seed: int,
    steps: int,
    rollouts: int,
    n_envs: int,
    max_depth: int,
    gamma: float,
    lam: float,
    side_channel: bool,
    credit: str,
) -> None:
    """Any tree, any rollout length: each transition is learned from once, with the right advantage."""
    envs = [EventTree(random_events(np.random.default_rng([seed, i]), max_depth), first=i * 10_000) for i in range(n_envs)]
    got, buffer = drive(
        envs,
        rollouts,
        steps,
        network,
        FactsVecEnv if side_channel else DummyVecEnv,
        0.1,
        0.3,
        gamma=gamma,
        gae_lambda=lam,
        credit=credit,
    )
    logs = finish_log(envs)
    expected = brute_force(logs, steps, network, gamma, lam, 0.1, 0.3, credit)
    assert set(got) == set(expected)
    for number, advantage in expected.items():
        assert got[number].advantage == pytest.approx(advantage, abs=2e-5), number
    for log in logs:
        latest: dict[tuple[int, int], int] = {}
        for entry in log:
            if entry["obs"] in got:
                above = None if entry["parent"] is None else latest.get((entry["episode"], entry["parent"]))
                assert got[entry["obs"]].parent == above
            latest[entry["episode"], entry["frame"]] = entry["obs"]
    # What is left over is what waits: one row for each ancestor of the acting frames, and with credit across
    # frames the last rows of those that ended and whose parents have not gone on.
    waiting = {int(number) for number in buffer.carried.observations[""][:, 0]} if buffer.carried else set()
    assert waiting | set(got) == {entry["obs"] for env in envs for entry in env.log}
    if credit == "node":
        assert len(waiting) <= sum(len(env.stack) - 1 for env in envs)


def test_brute_force_can_fail() -> None:
    """The comparison notices a wrong discount."""
    env = EventTree(random_events(np.random.default_rng(3), 2))
    got, _ = drive([env], 3, 10, network, gamma=0.9, gae_lambda=0.8)
    expected = brute_force(finish_log([env]), 10, network, 0.91, 0.8, 0.0, 0.0)
    assert any(abs(got[number].advantage - expected[number]) > 1e-3 for number in expected)


def test_splitting_a_rollout_loses_nothing() -> None:
    """One long rollout and many short ones learn from the same transitions, but for those that wait."""

    def play(steps: int, rollouts: int) -> set[int]:
        envs = [EventTree(random_events(np.random.default_rng([7, i]), 3), first=i * 10_000) for i in range(2)]
        got, buffer = drive(envs, rollouts, steps, network)
        assert buffer.carried is not None
        waiting = {int(number) for number in buffer.carried.observations[""][:, 0]}
        assert not waiting & set(got)
        return set(got) | waiting

    assert play(200, 1) == play(5, 40) == play(1, 200)
