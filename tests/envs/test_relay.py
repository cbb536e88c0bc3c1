"""Relays: who sees the code, that nobody else can know it, what a digit is worth, and pictures."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence as same
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs
from rao_envs.relay.env import RelayEnv
from rao_envs.relay.reference import MonolithicSolver, RecursiveSolver
from rao_envs.relay.viewer import RelayView, RelayViewer, draw_ansi

KINDS: list[dict[str, Any]] = [
    {"direction": "down"},
    {"direction": "down", "levels": 4},
    {"direction": "up"},
    {"direction": "up", "levels": 5},
    {"direction": "siblings"},
    {"direction": "siblings", "levels": 3},
]
every_kind = pytest.mark.parametrize("kwargs", KINDS, ids=str)
STEPS = [5, 9, 7, 11, 7, 11]
"""Of a perfect episode of each: spawns and `done` for each frame, digits for the one that enters them."""
CODES = st.lists(st.integers(0, 5), min_size=3, max_size=3)


def started(code: list[int], **kwargs: Any) -> tuple[RelayEnv, Any, dict[str, Any]]:
    """An environment at the beginning of an episode with that code."""
    env = RelayEnv(**kwargs)
    return env, *env.reset(seed=0, options={"code": code})


def play(env: RelayEnv, observation: Any, solver: Any, wrong_at: int = -1) -> tuple[list[str], list[dict[str, Any]], float]:
    """An episode by `solver`, which takes another digit than it should at the digit `wrong_at`: actions, infos, the last reward."""
    state, actions, infos, over, entered = None, [], [], False, 0
    while not over:
        action, state = solver(observation, env.action_masks(), state)
        if action < env.domain.base:
            action = (action + 1) % env.domain.base if entered == wrong_at else action
            entered += 1
        actions.append(env.action_names[action])
        observation, reward, terminated, truncated, info = env.step(action)
        infos.append(info)
        over = terminated or truncated
    return actions, infos, reward


@pytest.mark.parametrize(("kwargs", "steps"), list(zip(KINDS, STEPS, strict=True)), ids=str)
def test_one_note_is_enough_and_takes_the_fewest_steps(kwargs: dict[str, Any], steps: int) -> None:
    result = rao_envs.evaluate(RecursiveSolver(), "RAO/Relay-v0", seeds=30, **kwargs)
    assert all(episode.success for episode in result.episodes)
    assert {episode.steps for episode in result.episodes} == {steps}


@every_kind
@settings(max_examples=30)
@given(first=CODES, second=CODES, play=st.integers(0, 2**32 - 1))
def test_frames_that_do_not_see_the_code_see_the_same_whatever_it_is(kwargs: dict[str, Any], first: Any, second: Any, play: int) -> None:
    rng = np.random.default_rng(play)
    (mine, *now), (theirs, *other) = started(first, **kwargs), started(second, **kwargs)
    while True:
        sees = mine.domain.fields["sees"].start
        if now[0]["task"][sees]:
            code = mine.domain.fields["code"]
            assert now[0]["task"][code].reshape(3, 6).argmax(1).tolist() == first
            for observation in (now[0], other[0]):
                observation["task"][code] = 0
        assert same(now, other)
        assert same(mine.batch.stack.frames[0].tolist(), theirs.batch.stack.frames[0].tolist())
        spawn = mine.action_masks()[-1] and rng.random() < 0.7
        action = mine.domain.base + 1 if spawn else int(rng.choice(np.flatnonzero(mine.action_masks())))
        steps = mine.step(action), theirs.step(action)
        if any(step[2] or step[3] for step in steps):
            return
        now, other = ([step[0], step[4]] for step in steps)


@every_kind
def test_detached_children_know_no_more(kwargs: dict[str, Any]) -> None:
    firsts = []
    for code in ([0, 0, 0], [5, 4, 3]):
        env, _, _ = started(code, **kwargs)
        seen = []
        while env.action_masks()[-1]:
            env = env.spawn(env.domain.base + 1)
            observation, info = env.reset()
            seen.append((observation, info))
        firsts.append(seen[:-1] if kwargs["direction"] != "down" else seen)
    assert same(*firsts)


def test_guessing_is_right_as_often_as_guesses_are() -> None:
    wins = 0
    for code in itertools.product(range(2), repeat=2):
        env, _, _ = started(list(code), digits=2, base=2)
        env.step(3)
        for digit in (1, 0):
            _, _, terminated, _, _ = env.step(digit)
            if terminated:
                break
        else:
            wins += env.step(2)[1] == 1.0
    assert wins == 1  # of 4


@every_kind
@pytest.mark.parametrize("wrong_at", [0, 2, -1])
def test_a_wrong_digit_ends_all_and_the_right_ones_before_it_count_locally(kwargs: dict[str, Any], wrong_at: int) -> None:
    env, observation, _ = started([2, 0, 5], feedback="dense", **kwargs)
    actions, infos, reward = play(env, observation, RecursiveSolver(), wrong_at)
    returned = {entry["frame_id"]: entry for info in infos for entry in info["returned"]}
    entering = next(info for info, action in zip(infos[::-1], actions[::-1], strict=True) if action.startswith("enter"))["returned"][0]
    assert entering["success"] == (wrong_at < 0)
    assert entering["reward"] == pytest.approx(1.0 if wrong_at < 0 else wrong_at / 3)
    assert reward == float(wrong_at < 0)
    assert sum(info["dense_reward"] for info in infos) == pytest.approx(1.0 if wrong_at < 0 else wrong_at / 3)
    if wrong_at >= 0:
        assert len(infos[-1]["returned"]) == entering["depth"] + 1
        assert [entry["success"] for entry in infos[-1]["returned"]] == [False] * (entering["depth"] + 1)
    assert all(returned[0][name] == reward for name in ("reward", "success"))


def test_done_before_the_children_are_back_comes_to_nothing() -> None:
    env, observation, _ = started([1, 2, 3], direction="siblings")
    after, reward, terminated, truncated, info = env.step(6)
    assert (reward, terminated, truncated, info["event"]) == (0.0, False, False, "step")
    assert same(after["task"], observation["task"])
    assert same(after["action_mask"], observation["action_mask"])
    for _ in range(env.domain.budget - 2):
        assert not env.step(6)[3]
    *_, truncated, info = env.step(6)
    assert truncated
    assert not info["is_success"]


def test_the_twin_can_do_nothing() -> None:
    result = rao_envs.evaluate(MonolithicSolver(), "RAO/Relay-v0", seeds=5, spawn=False)
    assert not any(episode.success for episode in result.episodes)


def test_codes_are_drawn_evenly_or_as_asked() -> None:
    vector = rao_envs.relay.env.RelayVectorEnv(3000, digits=2, base=3)
    vector.reset(seed=0)
    counts = np.bincount(vector.batch.state.code @ [3, 1], minlength=9)
    assert counts.min() > 3000 / 9 * 0.8
    env, _, _ = started([4, 4, 1])
    assert env.code.tolist() == [4, 4, 1]
    drawn = {tuple(env.reset()[0]["task"]) for _ in range(30)}
    assert len(drawn) > 20
    env.reset(seed=7)
    after = env.code
    env.reset(seed=7, options={"code": (0, 0, 0)})
    env.reset()
    env.reset(seed=7)
    np.testing.assert_array_equal(env.code, after)


@pytest.mark.parametrize("code", [[1, 2], [1, 2, 6], [1, 2, -1], "123", 123, [1, 2, 3.5]])
def test_codes_that_cannot_be_are_refused(code: Any) -> None:
    with pytest.raises(ValueError, match=r"code must be"):
        RelayEnv().reset(options={"code": code})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"direction": "left"}, "direction must be one of 'down', 'up', 'siblings', got 'left'"),
        ({"direction": ["down"]}, "direction must be one of"),
        ({"direction": "up", "levels": 2}, r"levels must be an integer in \[3, 64\], got 2"),
        ({"levels": 1}, r"levels must be an integer in \[2, 64\], got 1"),
        ({"digits": 0}, r"digits must be an integer in \[1, 16\], got 0"),
        ({"base": 11}, r"base must be an integer in \[2, 10\], got 11"),
    ],
)
def test_wrong_arguments_are_explained(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RelayEnv(**kwargs)


def test_the_solver_refuses_other_codes() -> None:
    env, observation, _ = started([0, 1], digits=2, base=2)
    with pytest.raises(ValueError, match="not an observation of Relay with 3 digits of base 6"):
        RecursiveSolver()(observation, env.action_masks())


def views(**kwargs: Any) -> list[RelayView]:
    """Snapshots of an episode played by the solver."""
    env = RelayEnv(render_mode="ansi", **kwargs)
    observation, _ = env.reset(seed=1)
    snapshots, state, over = [env.view()], None, False
    solver = RecursiveSolver(env.domain.digits, env.domain.base)
    while not over:
        action, state = solver(observation, env.action_masks(), state)
        observation, _, terminated, truncated, _ = env.step(action)
        snapshots.append(env.view())
        over = terminated or truncated
    return snapshots


@pytest.mark.parametrize("kwargs", [*KINDS, {"levels": 40}, {"digits": 16, "base": 10}], ids=str)
def test_every_moment_can_be_drawn_and_equal_moments_look_alike(kwargs: dict[str, Any]) -> None:
    pytest.importorskip("pygame")
    viewer = RelayViewer()
    snapshots = views(**kwargs)
    pictures = [viewer.draw_rgb(view) for view in snapshots[:: max(1, len(snapshots) // 8)]]
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)
    for view in snapshots[:: max(1, len(snapshots) // 4)]:
        assert viewer.draw_rgb(view).shape == (640, 900, 3)
        np.testing.assert_array_equal(viewer.draw_rgb(view), RelayViewer().draw_rgb(view))
        assert viewer.draw_rgb(view, (64, 64)).shape == (64, 64, 3)
    assert pickle.loads(pickle.dumps(viewer)).draw_rgb(snapshots[0]).shape == (640, 900, 3)


def test_a_terminal_shows_roles_and_digits() -> None:
    snapshots = views(direction="siblings")
    code = " ".join(map(str, snapshots[0].code))
    first, second = (draw_ansi(snapshots[k], color=False).splitlines() for k in (1, 4))
    assert first[:3] == [f"code {code}", "passes it on, 0 of 2 children back", f"  sees the code: {code}"]
    assert second[:3] == [f"code {code}", "passes it on, 1 of 2 children back", f"  enters the code: {code[0]} . ."]
    assert "\x1b" not in "".join(first)
    assert draw_ansi(snapshots[-1]).endswith("SUCCESS")
