"""Each mode's estimator has the exact gradient of the objective that it claims as its mean.

Write J(theta; fixed) for the expected sum of the returns of all frames g that count, in rollouts where the decisions
that g's return is credited to are taken by pi_theta, and all others by the same policy held fixed:

- node: every frame counts, and its return is credited to its own decisions;
- tree: every frame counts, and its return is credited to the decisions of its whole sub-tree;
- root: the root's reward alone, credited to every decision.

The gradient is that by theta where both policies are the same. It is computed here by playing every possible game.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from rao_agents.repeat_tasks import RepeatTasks
from rao_agents.rollout_buffer import FrameRolloutBuffer
from rao_agents.tap import FrameTap

STEP_COST, BONUS = 0.05, 0.2
ROOT, AFTER, CHILD, OTHER_CHILD, GRANDCHILD = range(5)
"""Situations that the policy can tell apart."""


class Errands(gym.Env[Any, Any]):
    """A tiny tree in which what a child gains by and what its parent needs are not the same.

    The root answers at once (0), opens one child (1), or two, one after the other (2). The first child can delegate
    (2), and ends with the grandchild. Each hands up whether it was of use; then the root is paid for that (0), or
    takes something smaller for sure (1). The observation is the number of the whole history, so that values can be
    exact; the policy sees the situation only.
    """

    observation_space = spaces.Box(0, 1e9, (1,), np.float64)
    action_space = spaces.Discrete(3)
    spawn_actions = np.array([2])
    histories: dict[tuple[int, ...], int] = {}  # shared on purpose

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.begin(int(self.np_random.integers(2)))
        return self._observe(), self._info([])

    def begin(self, task: int) -> None:
        self.history: tuple[int, ...] = (task,)
        self.worth = 0.5 + task
        self.stack: list[tuple[int, int]] = [(0, ROOT)]  # (frame id, situation)
        self.queue: list[int] = []
        self.next_id, self.use = 1, 0
        self.successes: list[bool] = []

    def step(self, action: Any) -> Any:
        action = int(action)
        self.history += (action,)
        situation = self.stack[-1][1]
        reward, returned, done = 0.0, [], False
        if situation == ROOT:
            if action == 0:
                reward, done = 0.3, True
            else:
                self.queue = [CHILD, OTHER_CHILD][:action]
                self._open(self.queue.pop(0))
        elif situation == AFTER:
            reward, done = self.worth * [self.use / 2, 0.4, 0.0][action], True
        elif situation == CHILD and action == 2:
            self._open(GRANDCHILD)
        else:
            outcome = [1.0, 0.0, 0.5][action]
            use = action == 1
            if situation == OTHER_CHILD and action == 2:
                reward = 0.2
            if situation == GRANDCHILD:
                returned.append(self._close(outcome, 0, 0))
                outcome, use = [0.0, 1.0, 0.0][action], action > 0
            children = int(situation == GRANDCHILD)
            returned.append(self._close(outcome, children, children * int(returned[0]["success"]) if children else 0))
            self.successes.append(outcome > 0)
            self.use += use
            if self.queue:
                self._open(self.queue.pop(0))
            else:
                self.stack[-1] = (0, AFTER)
        if done:
            returned.append(self._close(reward, len(self.successes), sum(self.successes)))
        return self._observe(), reward, done, False, self._info(returned)

    def _open(self, situation: int) -> None:
        self.stack.append((self.next_id, situation))
        self.next_id += 1

    def _close(self, outcome: float, children: int, successes: int) -> dict[str, Any]:
        frame, _ = self.stack.pop()
        return {
            "frame_id": frame, "depth": len(self.stack), "success": outcome > 0, "reward": outcome,
            "children": children, "successes": successes,
        }  # fmt: skip

    def _observe(self) -> Any:
        return np.array([self.histories.setdefault(self.history, len(self.histories))], np.float64)

    def _info(self, returned: list[Any]) -> dict[str, Any]:
        return {"frame_id": self.stack[-1][0] if self.stack else 0, "depth": max(len(self.stack) - 1, 0), "returned": tuple(returned)}


class Decision(NamedTuple):
    history: int
    situation: int
    action: int
    line: tuple[int, ...]  # frames from the root to the one that decides


class Game(NamedTuple):
    decisions: list[Decision]
    paid: list[tuple[int, int, float, float]]  # (time, frame, amount that is its own, amount that is the environment's)


def every_game(task: int, prefix: tuple[int, ...] = ()) -> Iterator[Game]:
    """All games of a task that begin with the actions in `prefix`."""
    env = Errands()
    env.begin(task)
    decisions, paid, done = [], [], False
    for time, action in enumerate(prefix):
        line = tuple(frame for frame, _ in env.stack)
        decisions.append(Decision(int(env._observe()[0]), env.stack[-1][1], action, line))
        _, reward, done, _, info = env.step(action)
        paid += [(time, line[-1], -STEP_COST, 0.0), (time, 0, 0.0, reward)]
        for ended in info["returned"]:
            own = ended["reward"] if ended["depth"] > 0 else 0.0
            paid.append((time, ended["frame_id"], own + BONUS * ended["successes"] / max(ended["children"], 1), 0.0))
    if done:
        yield Game(decisions, paid)
        return
    for action in range(3):
        yield from every_game(task, (*prefix, action))


GAMES = [(task, game) for task in range(2) for game in every_game(task)]


def exact_gradient(logits: th.Tensor, credit: str, gamma: float) -> npt.NDArray[np.float64]:
    """The gradient of J, (situations, actions), for returns discounted to the beginning of each frame."""
    moving = logits.clone().requires_grad_(True)
    log_pi, fixed = th.log_softmax(moving, 1), th.log_softmax(logits, 1)
    objective = th.zeros((), dtype=th.float64)
    for _, game in GAMES:
        begins = {decision.line[-1]: time for time, decision in reversed(list(enumerate(game.decisions)))}
        for frame, begin in begins.items():
            if credit == "root" and frame != 0:
                continue
            amounts = [
                gamma ** (time - begin) * (environment if credit == "root" else own + environment)
                for time, of, own, environment in game.paid
                if of == frame
            ]
            chance = th.zeros((), dtype=th.float64)
            for decision in game.decisions:
                answers = decision.line[-1] == frame if credit == "node" else frame in decision.line
                chance = chance + (log_pi if answers else fixed)[decision.situation, decision.action]
            objective = objective + 0.5 * chance.exp() * sum(amounts)
    (gradient,) = th.autograd.grad(objective, moving)
    return gradient.numpy()


def true_values(logits: th.Tensor, credit: str) -> dict[int, float]:
    """What a decision with this history expects of what it answers for, undiscounted: {history: value}."""
    pi = th.softmax(logits, 1).numpy()
    total: dict[int, float] = {}
    mass: dict[int, float] = {}
    for _, game in GAMES:
        chance = float(np.prod([pi[decision.situation, decision.action] for decision in game.decisions]))
        for time, decision in enumerate(game.decisions):
            answers = decision.line[-1:] if credit == "node" else decision.line[:1] if credit == "root" else decision.line
            amount = sum(
                environment + (own if credit != "root" else 0.0)
                for when, frame, own, environment in game.paid
                if when >= time and frame in answers
            )
            total[decision.history] = total.get(decision.history, 0.0) + chance * amount
            mass[decision.history] = mass.get(decision.history, 0.0) + chance
    return {history: total[history] / mass[history] for history in total}


def sampled_gradients(
    logits: th.Tensor, credit: str, advantage: str, steps: int, units: int, gamma: float, lam: float, n_envs: int = 12
) -> npt.NDArray[np.float64]:
    """Independent estimates, (units, situations, actions), by the buffer: one for each episode, or group of them with "rloo"."""
    rng = np.random.default_rng(7)
    pi = th.softmax(logits, 1).numpy()
    values = true_values(logits, credit)
    situation_of = {decision.history: decision.situation for _, game in GAMES for decision in game.decisions}
    repeats = 3
    venv: Any = DummyVecEnv([Errands for _ in range(n_envs)])
    venv.seed(5)
    if advantage == "rloo":
        venv = RepeatTasks(venv, repeats, seed=5)
    buffer = FrameRolloutBuffer(
        steps, venv.observation_space, venv.action_space, "cpu", gamma=gamma, gae_lambda=lam, n_envs=n_envs, credit=credit,
        advantage=advantage,
    )  # fmt: skip
    value = np.vectorize(lambda history: values[int(history)], otypes=[float])
    buffer.value_function = lambda observations: value(observations[:, 0])  # type: ignore[call-overload]
    tap = FrameTap(venv, buffer, STEP_COST, BONUS)
    per_env = -(-units // n_envs)
    estimates = np.zeros((per_env * n_envs if advantage == "gae" else units, *pi.shape))
    observation = venv.reset()
    while True:
        tap.begin(observation)
        buffer.reset()
        for _ in range(steps):
            numbers = observation[:, 0].astype(int)
            chances = np.cumsum(pi[[situation_of[number] for number in numbers]], axis=1)
            actions = np.minimum((rng.random((n_envs, 1)) > chances).sum(axis=1), 2)
            following, rewards, dones, _ = tap.step(actions)
            buffer.add(observation, actions[:, None], rewards, dones, th.as_tensor(value(numbers)), th.zeros(n_envs))
            observation = following
        buffer.compute_returns_and_advantage(th.as_tensor(value(observation[:, 0])), dones)
        tap.end(observation)
        chosen = np.flatnonzero(buffer.valid)
        rows = buffer.rows[chosen]
        unit = rows["task"] if advantage == "rloo" else (rows["episode"] - 1) * n_envs + rows["env"]
        situations = np.array([situation_of[int(number)] for number in buffer.flat_observations[""][chosen, 0]], int)
        if len(chosen):
            score = np.eye(3)[buffer.flat_actions[chosen, 0].astype(int)] - pi[situations]
            weighted = score * buffer.flat_advantages[chosen, None] / (repeats if advantage == "rloo" else 1)
            mine = unit < len(estimates)
            np.add.at(estimates, (unit[mine], situations[mine]), weighted[mine])
        waiting = buffer.carried.rows if buffer.carried is not None else rows[:0]
        if advantage == "rloo":
            done = min([*waiting["task"], *buffer.tasks]) >= len(estimates)
        else:
            done = buffer.episode.min() > per_env and not (waiting["episode"] <= per_env).any()
        if done:
            return estimates


POLICY = th.tensor(
    [[-0.5, 0.2, 0.4], [0.3, 0.0, -0.6], [0.2, 0.1, 0.5], [0.4, -0.3, 0.1], [-0.2, 0.3, 0.0]],
    dtype=th.float64,
)
CASES = [(credit, "gae", 5, 1.0, lam) for credit in ("node", "tree", "root") for lam in (0.0, 0.7)]
CASES += [("tree", "gae", 1, 1.0, 1.0)]
CASES += [(credit, "rloo", steps, 1.0, 1.0) for credit, steps in (("node", 4), ("tree", 7), ("root", 30))]
CASES += [("node", "rloo", 5, 0.8, 1.0)]


@pytest.mark.parametrize(("credit", "advantage", "steps", "gamma", "lam"), CASES)
def test_the_mean_is_the_exact_gradient(credit: str, advantage: str, steps: int, gamma: float, lam: float) -> None:
    units = 6000 if advantage == "gae" else 2500
    estimates = sampled_gradients(POLICY, credit, advantage, steps, units, gamma, lam)
    mean, error = estimates.mean(axis=0), estimates.std(axis=0) / np.sqrt(len(estimates))
    exact = exact_gradient(POLICY, credit, gamma)
    # 15 numbers, each within 4 standard errors; where values are exact and lambda 0 some hardly vary at all.
    assert (np.abs(mean - exact) <= 4 * error + 1e-6).all(), (mean - exact) / (error + 1e-12)
    # The test can tell the modes apart.
    for other in {"node", "tree", "root"} - {credit}:
        assert (np.abs(mean - exact_gradient(POLICY, other, gamma)) > 6 * error + 1e-6).any(), other
