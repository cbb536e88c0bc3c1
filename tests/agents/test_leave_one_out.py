"""Leave-one-out over rollouts of the same root task, and environments that repeat tasks."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from driving import drive, flat
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize
from toy_envs import Event, EventTree, LampTree, lamps, random_events, script

import rao_envs  # noqa: F401  # registers the ids
from rao_agents import RecursiveA2C, RecursivePPO, RepeatTasks, make_vec_env
from rao_agents.leave_one_out import leave_one_out
from rao_agents.repeat_tasks import repeated_tasks

SMALL: dict[str, Any] = {"n_steps": 16, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}


class Unchecked(RepeatTasks):
    """For scripts, whose observations are numbers that never repeat."""

    def _compare(self, index: int, first: Any) -> None:
        pass


def groups(*scripts: list[Event], repeats: int, steps: int, rollouts: int = 1, **options: Any) -> dict[int, float]:
    """Advantages of one scripted environment for each argument, by number of the observation (100 more for each environment)."""
    envs = [EventTree(script(*events), first=100 * i) for i, events in enumerate(scripts)]
    got, _ = drive(envs, rollouts, steps, flat, wrap=lambda venv: Unchecked(venv, repeats, 0), advantage="rloo", **options)
    return {number: transition.advantage for number, transition in got.items()}


CHILD = [Event("spawn"), Event("return", 0.0, (1.0,)), Event("done", 1.0)]
ALONE = [Event("done", 0.5)]
FAILED = [Event("spawn"), Event("return", 0.0, (0.0,)), Event("done", 0.0)]


def test_two_rollouts_by_hand() -> None:
    """One rollout delegates and is paid 1, the other answers for 0.5. The child is compared with roots: there is no other child."""
    expected = {"node": {0: 0.5, 1: 0.5, 2: 0.5, 100: -0.5}, "tree": {0: 0.5, 1: 1.5, 2: 0.5, 100: -0.5}}
    expected["root"] = {0: 0.5, 1: 0.5, 2: 0.5, 100: -0.5}
    for credit, advantages in expected.items():
        # Episodes that the short rollout begins anew are not complete.
        assert groups(CHILD, ALONE, repeats=2, steps=3, credit=credit, gamma=1.0) == pytest.approx(advantages)


def test_three_rollouts_by_hand() -> None:
    """Children are compared with the children of the others: 1 with 0, 0 with 1. Roots: 1, 0.5, 0 with the mean of the other two."""
    got = groups(CHILD, ALONE, FAILED, repeats=3, steps=3, gamma=1.0)
    assert got == pytest.approx({0: 0.75, 1: 1.0, 2: 0.75, 100: 0.0, 200: -0.75, 201: -1.0, 202: -0.75})


def test_discounted_to_the_frames_beginning() -> None:
    """All decisions of a frame share its return, from its first decision: 0.9**2 for the root."""
    got = groups(CHILD, FAILED, repeats=2, steps=3, gamma=0.9)
    assert got == pytest.approx({0: 0.81, 2: 0.81, 1: 1.0, 100: -0.81, 102: -0.81, 101: -1.0})


def test_a_group_waits_for_its_last_rollout() -> None:
    """Rollouts of one step: what has ended waits for what has not, and the next tasks go on meanwhile."""
    slow = [Event("step"), Event("step"), Event("step"), Event("done", 1.0), *[Event("done", 4.0)] * 9]
    quick = [Event("done", 0.0), Event("done", 2.0), *[Event("step")] * 9]
    # Task 0: 0..3 in the first environment, 100 in the second. Task 1: 101 in the second, then whoever is free: 102...
    for steps in (1, 2, 4, 8):
        got = groups(slow, quick, repeats=2, steps=steps, rollouts=8 // steps, gamma=1.0)
        assert {number: got[number] for number in (0, 1, 2, 3, 100)} == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 100: -1.0})
        # 101 (paid 2) belongs to task 1 with 102 and on, which never ends; the first environment plays tasks 2 (4 and 5) and 3.
        assert set(got) == {0, 1, 2, 3, 100, 4, 5, 6, 7} and got[4] == got[5] == got[6] == got[7] == 0.0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_envs=st.integers(1, 4),
    repeats=st.integers(2, 4),
    max_depth=st.integers(0, 3),
    credit=st.sampled_from(["node", "tree", "root"]),
    steps=st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
)
def test_any_trees_and_rollouts(seed: int, n_envs: int, repeats: int, max_depth: int, credit: str, steps: int) -> None:
    """However rollouts are cut, the same is learned; what a task's roots gain against each other adds up to nothing."""

    def play(length: int) -> tuple[dict[int, float], dict[int, tuple[int, int]]]:
        envs = [EventTree(random_events(np.random.default_rng([seed, i]), max_depth), first=1000 * i) for i in range(n_envs)]
        roots: dict[int, tuple[int, int]] = {}  # first observation of an episode: (task, environment)
        wrapped: list[RepeatTasks] = []

        class Noted(Unchecked):
            def _compare(self, index: int, first: Any) -> None:
                roots[int(first[""][0])] = (int(self.tasks[index]), index)

        def wrap(venv: DummyVecEnv) -> RepeatTasks:
            wrapped.append(Noted(venv, repeats, 0))
            return wrapped[0]

        got, _ = drive(envs, 48 // length, length, flat, wrap=wrap, advantage="rloo", credit=credit, gamma=0.9, step_cost=0.1, bonus=0.2)
        return {number: transition.advantage for number, transition in got.items()}, roots

    got, roots = play(steps)
    whole, _ = play(48)
    assert got.keys() == whole.keys()
    for number, advantage in whole.items():
        assert got[number] == pytest.approx(advantage, abs=1e-5)
    by_task: dict[int, list[float]] = {}
    for number, (task, _) in roots.items():
        if number in got:
            by_task.setdefault(task, []).append(got[number])
    assert all(len(advantages) == repeats and sum(advantages) == pytest.approx(0.0, abs=1e-4) for advantages in by_task.values())


def test_no_rows() -> None:
    assert (
        leave_one_out(np.zeros(0, [("task", int), ("env", int), ("episode", int), ("depth", int)]), np.zeros(0), np.zeros(0, bool)).size
        == 0
    )


# -- repeating tasks -------------------------------------------------------------------------------


class Coin(gym.Env[Any, Any]):
    """Guess the hidden coin within three steps; the task is shown as a number."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.shown, self.t = float(self.np_random.random()), 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        right = int(action) == int(self.shown > 0.5)
        return self._observe(), float(right), self.t == 3 or not right, False, {}

    def _observe(self) -> Any:
        return np.array([self.shown, self.t / 3], np.float32)


def coins(seed: int) -> VecMonitor:
    """One environment, seeded: what it draws decides how many actions are sampled, and so what is sampled after it."""
    env = VecMonitor(DummyVecEnv([Coin]))
    env.seed(seed)
    return env


@pytest.mark.parametrize("n_envs", [1, 2, 5])
def test_tasks_are_handed_out_in_order(n_envs: int) -> None:
    venv = RepeatTasks(DummyVecEnv([Coin] * n_envs), 3, seed=4)
    shown: dict[int, set[float]] = {}
    plays: dict[int, int] = {}

    def note(index: int, observation: Any) -> None:
        task = int(venv.tasks[index])
        shown.setdefault(task, set()).add(float(observation[index, 0]))
        plays[task] = plays.get(task, 0) + 1

    observation = venv.reset()
    assert venv.fresh.all()
    for index in range(n_envs):
        note(index, observation)
    rng = np.random.default_rng(0)
    for _ in range(60):
        observation, _, dones, infos = venv.step(rng.integers(2, size=n_envs))
        for index in np.flatnonzero(dones):
            assert infos[index]["terminal_observation"][1] > 0, "the end of the old episode is still told"
            note(index, observation)
    assert all(len(values) == 1 for values in shown.values()), "each task is one task"
    assert len({value for values in shown.values() for value in values}) == len(shown) > 5, "and different from the others"
    assert all(plays[task] == 3 for task in range(max(plays))) and set(plays) == set(range(max(plays) + 1))
    assert len(venv.beginnings) <= 1
    # A reset begins with a new task, also where the last one was not handed out completely.
    latest = max(plays)
    venv.reset()
    assert venv.tasks.min() == latest + 1
    # The same seed, the same tasks.
    venv.seed(9)
    first = venv.reset()
    again = RepeatTasks(DummyVecEnv([Coin] * n_envs), 3, seed=9)
    np.testing.assert_array_equal(first, again.reset())
    assert venv.tasks.min() == 0


@pytest.mark.parametrize("identity", ["RAO/Maze-10x10-v0", "RAO/Algebra-depth4-v0"])
def test_native_environments_and_single_ones_repeat_alike(identity: str) -> None:
    """The batch's own reset of one environment, against Gymnasium's."""
    native = make_vec_env(identity, 3, seed=5, repeats=2)
    single = VecMonitor(RepeatTasks(DummyVecEnv([lambda: gym.make(identity) for _ in range(3)]), 2, 5))
    assert isinstance(repeated_tasks(native), RepeatTasks)
    rng = np.random.default_rng(1)
    a, b = native.reset(), single.reset()
    ended = 0
    for _ in range(500):
        assert all(np.array_equal(a[key], b[key]) for key in a)
        masks = a["action_mask"]
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        a, _, dones, infos = native.step(actions)
        b, _, _, others = single.step(actions)
        facts = native.facts
        for index in range(3):
            assert facts.frame_id[index] == (0 if dones[index] else infos[index]["frame_id"])
            assert facts.n_returned[index] == len(others[index]["returned"]) == len(infos[index]["returned"])
        ended += int(dones.sum())
    assert ended > 5


def test_subprocesses() -> None:
    runs = []
    for cls, options in ((SubprocVecEnv, {"start_method": "fork"}), (DummyVecEnv, {})):
        venv = RepeatTasks(cls([LampTree] * 2, **options), 2, 5)  # type: ignore[arg-type]
        model = RecursivePPO("MultiInputPolicy", venv, **SMALL, batch_size=None, advantage="rloo").learn(96)
        runs.append([parameter.detach().clone() for parameter in model.policy.parameters()])
        venv.close()
    assert all(th.equal(a, b) for a, b in zip(*runs, strict=True))


def test_environments_that_take_no_notice_of_seeds_are_found_out() -> None:
    class Stubborn(Coin):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.count = getattr(self, "count", 0) + 1
            return super().reset(seed=self.count)

    venv = RepeatTasks(DummyVecEnv([Stubborn]), 2, 0)
    shown = venv.reset()[0, 0]
    wrong = np.array([int(shown <= 0.5)])  # ends the episode
    with pytest.raises(ValueError, match="task 0 began differently when it was repeated"):
        venv.step(wrong)


@pytest.mark.parametrize("repeats", [1, 0, -2, 2.5, True, "4"])
def test_wrong_repeats(repeats: Any) -> None:
    with pytest.raises(ValueError, match="repeats must be a whole number of at least 2"):
        RepeatTasks(DummyVecEnv([Coin]), repeats)


def test_wrong_wrappers_and_seeds() -> None:
    with pytest.raises(ValueError, match="put RepeatTasks inside VecNormalize"):
        RepeatTasks(VecNormalize(DummyVecEnv([Coin])), 2)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        RepeatTasks(DummyVecEnv([Coin]), 2, -1)
    RepeatTasks(VecMonitor(DummyVecEnv([Coin])), 2)


# -- training --------------------------------------------------------------------------------------


def repeated_lamps(n: int = 4, repeats: int = 2, **kwargs: Any) -> RepeatTasks:
    return RepeatTasks(lamps(n, **kwargs), repeats, 3)


@pytest.mark.parametrize("cls", [RecursivePPO, RecursiveA2C])
def test_rloo_needs_repeated_tasks(cls: Any) -> None:
    with pytest.raises(ValueError, match=r"never repeats one: make it with rao_agents.make_vec_env\(..., repeats=4\)"):
        cls("MultiInputPolicy", lamps(2), advantage="rloo")
    model = cls("MultiInputPolicy", repeated_lamps(2), advantage="rloo", n_steps=8)
    with pytest.raises(ValueError, match="never repeats one"):
        model.set_env(lamps(2))
    model.set_env(repeated_lamps(2))
    model.learn(32)


@pytest.mark.parametrize("cls", [RecursivePPO, RecursiveA2C])
def test_there_is_no_critic(cls: Any) -> None:
    model = cls("MultiInputPolicy", repeated_lamps(), **SMALL, advantage="rloo")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    logged: dict[str, Any] = {}
    train = model.train
    model.train = lambda: (train(), logged.update(model.logger.name_to_value))[0]
    model.learn(320, log_interval=1000)
    after = model.policy.state_dict()
    moved = {name for name in before if not th.equal(before[name], after[name])}
    assert moved and not any("value" in name for name in moved), moved
    assert "train/value_loss" not in logged and "train/explained_variance" not in logged and logged["frames/transitions"] > 0
    assert model.vf_coef == 0.5


def test_rloo_without_spawns() -> None:
    """A plain environment is a tree of one frame: no costs, the environment's reward alone."""
    venv = RepeatTasks(DummyVecEnv([Coin] * 4), 4, 0)
    model = RecursivePPO(
        "MlpPolicy", venv, n_steps=16, batch_size=64, advantage="rloo", learning_rate=0.01, gamma=1.0, seed=0, device="cpu", step_cost=0.5
    )  # fmt: skip
    assert not model.recursive
    untrained, _ = evaluate_policy(model, coins(1), 100, deterministic=False)
    model.learn(3_000)
    trained, _ = evaluate_policy(model, coins(1), 100, deterministic=False)
    assert untrained < 1.4 and trained > 1.9  # whoever always guesses the same earns 1.5
    rewards = model.rollout_buffer.rows["reward"]  # type: ignore[attr-defined]
    assert set(np.unique(rewards)) <= {0.0, 1.0}
    assert "delegation/open" not in model.logger.name_to_value


def test_rloo_learns_to_recurse() -> None:
    """Without a critic, on an environment that is unsolvable without spawning."""
    model = RecursivePPO(
        "MultiInputPolicy", repeated_lamps(8, 4, seed=0), n_steps=64, batch_size=128, n_epochs=8, learning_rate="lin_0.005",
        ent_coef="lin_0.02", gamma=0.97, seed=1, device="cpu", policy_kwargs={"net_arch": [32]}, advantage="rloo",
    )  # fmt: skip
    model.learn(12_000)
    trained, _ = evaluate_policy(model, lamps(4, seed=99), 100, deterministic=True)
    assert trained >= 0.95


def test_rollouts_that_others_took_part_in_are_not_used() -> None:
    """Evaluation on the training environment, and a rollout that was broken off, leave groups that can never be complete."""
    model: Any = RecursivePPO("MultiInputPolicy", repeated_lamps(), **SMALL, advantage="rloo", batch_size=None).learn(64)
    buffer = model.rollout_buffer
    evaluate_policy(model, model.get_env(), 3, warn=False)
    model.learn(64, reset_num_timesteps=False)
    used = buffer.rows["task"][: buffer.n_rows][buffer.valid]
    repeated = repeated_tasks(model.get_env())
    assert repeated is not None and buffer.first_task > 0 and (used.size == 0 or used.min() >= buffer.first_task)

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 5

    model.learn(64, Stop(), reset_num_timesteps=False)
    playing = int(repeated.tasks.max())
    for _ in range(4):
        model.learn(64, reset_num_timesteps=False)
    assert buffer.first_task == playing + 1
    assert buffer.valid.any() and (buffer.rows["task"][: buffer.n_rows][buffer.valid] > playing).all()
    assert not len(buffer.carried.rows) or buffer.carried.rows["task"].min() > playing, "nothing waits for ever"


def test_what_waits_is_bounded() -> None:
    model: Any = RecursivePPO("MultiInputPolicy", repeated_lamps(4, 3), **{**SMALL, "n_steps": 4}, advantage="rloo", batch_size=None)
    carried = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            carried.append(len(model.rollout_buffer.carried.rows))

    model.learn(1_600, Look())
    assert 0 < max(carried[-50:]) <= 4 * 4 * 40, "no more than the budgets of the tasks under way"
    assert max(carried[-50:]) <= 2 * max(carried[:50])


def test_rollouts_in_which_nothing_is_complete_change_nothing() -> None:
    """A rollout of one step, with the first group far from complete."""
    model: Any = RecursivePPO("MultiInputPolicy", repeated_lamps(1, 8), **{**SMALL, "n_steps": 2}, advantage="rloo", batch_size=None)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(4)
    assert model._n_updates == 0 and all(th.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))
    model.learn(400)
    assert model._n_updates > 0
