"""The loop of self-distillation: triggers, students, injection, guard, other processes, and the callback on every algorithm."""

from __future__ import annotations

import io
import math
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env as plain_vec_env
from stable_baselines3.common.vec_env import VecEnv
from test_distillation_memory import episode

from rao_agents import ModelFileError, RecursiveA2C, RecursivePPO, load_safely, make_vec_env, save_safely
from rao_agents.distillation import (
    AnyOf,
    AuxiliaryLoss,
    BufferFull,
    ElasticWeightConsolidation,
    Episode,
    ExperienceBuffer,
    Guard,
    HeldOut,
    InitialiseFrom,
    Injector,
    Interval,
    Knowledge,
    Plateau,
    PolicyInterpolation,
    PolicyKnowledge,
    RoundArchive,
    SelfDistillationCallback,
    StudentDistiller,
    Weighting,
    make_callback,
    states,
)
from rao_agents.distillation.distillers.student import compared
from rao_agents.distillation.exploration import ExplorationBonus
from rao_agents.distillation.explorer import ExplorerEntropy
from rao_agents.distillation.frozen import policy_spec
from rao_agents.distillation.injection import GradientInjection, Pool
from rao_agents.distillation.injectors import Injection
from rao_agents.distillation.triggers import Moment, rise_probability, t_upper
from rao_agents.distillation.worker import DistillationWorker


class Corridor(gym.Env[Any, Any]):
    """Go right `length` times; success if it takes at most twice as long. Shorter than a rollout, learned within seconds."""

    metadata = {"render_modes": []}

    def __init__(self, length: int = 4) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length + 1,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.clock = int(self.np_random.integers(self.length)), 0
        return self._see(), {}

    def _see(self) -> Any:
        return np.eye(self.length + 1, dtype=np.float32)[self.place]

    def action_masks(self) -> Any:
        return np.array([self.place > 0, True, True])

    def step(self, action: Any) -> Any:
        self.place = max(0, self.place + int(action) - 1)
        self.clock += 1
        success = self.place >= self.length
        truncated = not success and self.clock >= 2 * self.length
        return self._see(), float(success), success, truncated, {"is_success": success}


def corridor(n: int = 4, seed: int = 0) -> VecEnv:
    return plain_vec_env(Corridor, n, seed=seed)


def ppo(env: Any = None, **changes: Any) -> PPO:
    options: dict[str, Any] = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
    return PPO("MlpPolicy", env or corridor(), **(options | changes))


def corridor_episodes(n: int = 40, seed: int = 0, mark: int = 0) -> list[Episode]:
    rng = np.random.default_rng(seed)
    env = Corridor()
    found = []
    for number in range(n):
        obs, _ = env.reset(seed=int(rng.integers(1 << 30)))
        rows, actions, done, info = [], [], False, {}
        while not done:
            rows.append(obs)
            actions.append(int(rng.integers(3)))
            obs, _, terminated, truncated, info = env.step(actions[-1])
            done = terminated or truncated
        base = episode(len(rows), success=info["is_success"], iteration=number).arrays()
        base |= {"observations/": np.array(rows), "actions": np.array(actions), "action_masks": np.ones((len(rows), 3), np.bool_)}
        found.append(Episode.from_arrays(base))
    return found


def weights(model: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.policy.state_dict().values()])


# -- triggers --------------------------------------------------------------------------------------


def test_t_distribution() -> None:
    for t, freedom, expected in (
        (0.0, 3, 0.5),
        (1.0, 1, 0.25),
        (2.0, 10, 0.036694),
        (-2.0, 10, 0.963306),
        (2.776445, 4, 0.025),
        (30.0, 8, 8.4e-10),
    ):
        assert t_upper(t, freedom) == pytest.approx(expected, abs=2e-6)


def test_a_line_that_rises_is_told_from_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    rising = [(i, 0.1 * i + rng.normal() * 0.02) for i in range(8)]
    flat = [(i, 0.5 + rng.normal() * 0.02) for i in range(8)]
    assert rise_probability(rising) < 0.001
    assert rise_probability(flat) > 0.05
    assert rise_probability([(0, 1.0), (1, 2.0), (2, 3.0)]) == 0.0
    assert rise_probability([(0, 1.0), (1, 1.0), (2, 1.0)]) == 1.0
    # Without a rise the probability is uniform.
    low = np.mean([rise_probability([(i, rng.normal()) for i in range(6)]) < 0.1 for _ in range(2000)])
    assert low == pytest.approx(0.1, abs=0.02)


def test_triggers() -> None:
    interval = Interval(100, first=50)
    assert [interval.due(Moment(t, 0, 1)) for t in (49, 50)] == [False, True]
    interval.fired(Moment(60, 0, 1))
    assert [interval.due(Moment(t, 0, 1)) for t in (159, 160)] == [False, True]
    full = BufferFull(0.5)
    assert [full.due(Moment(0, n, 100)) for n in (49, 50)] == [False, True]
    full.fired(Moment(0, 60, 100))
    assert not full.due(Moment(0, 109, 100))
    plateau = Plateau(window=4)
    flat, rising = [(i, 0.5 + 0.01 * (i % 2)) for i in range(4)], [(i, 0.1 * i + 0.001 * (i % 2)) for i in range(4)]
    assert plateau.due(Moment(9, 0, 1, flat))
    assert not plateau.due(Moment(9, 0, 1, rising))
    assert not plateau.due(Moment(9, 0, 1, flat[:3]))
    plateau.fired(Moment(2, 0, 1))
    assert not plateau.due(Moment(9, 0, 1, flat))
    both = AnyOf(Interval(10), BufferFull(0.5))
    assert both.due(Moment(0, 50, 100))
    both.fired(Moment(7, 50, 100))
    copy = AnyOf(Interval(10), BufferFull(0.5))
    copy.set_state(both.state())
    assert [t.state() for t in copy.triggers] == [{"next": 17}, {"last": 50}]
    for wrong in (lambda: Interval(0), lambda: BufferFull(0), lambda: Plateau(2), lambda: Plateau(alpha=1), AnyOf):
        with pytest.raises(ValueError, match=r"must|at least"):
            wrong()


# -- the student -----------------------------------------------------------------------------------


def test_a_student_equals_its_teacher_where_states_weigh_and_knows_nothing_of_the_others() -> None:
    model = ppo()
    with th.no_grad():  # a teacher with something to say
        for parameter in model.policy.parameters():
            parameter.mul_(2.0)
    memory = ExperienceBuffer(10_000)
    memory.extend(corridor_episodes(150))
    distiller = StudentDistiller(
        teacher="policy", student={"net_arch": [16]}, weighting={"success": None}, epochs=60, learning_rate=5e-3, batch_size=64
    )
    knowledge = distiller.distil(model.policy, memory, None, np.random.default_rng(0))
    assert isinstance(knowledge, PolicyKnowledge)
    assert knowledge.figures["kl"] < 0.02
    assert knowledge.figures["parameters_share"] < 0.25
    # Contradictory states that weigh nothing change nothing at all.
    spoiled = ExperienceBuffer(10_000)
    spoiled.extend(memory.successes)
    for failure in memory.failures:
        arrays = failure.arrays()
        spoiled.add(Episode.from_arrays(arrays | {"observations/": arrays["observations/"] + 7}))
    other = distiller.distil(model.policy, spoiled, None, np.random.default_rng(0))
    teacher = distiller.teachers(model.policy)
    assert compared(teacher, other, states(list(memory.successes)))["kl"] < 0.02


def test_an_average_teacher_is_the_average_and_an_ensemble_averages_probabilities() -> None:
    model = ppo()
    first = {name: value.clone() for name, value in model.policy.state_dict().items()}
    average, ensemble = StudentDistiller(decay=0.75, student=None), StudentDistiller(teacher="ensemble", every=1, snapshots=2, student=None)
    for iteration in range(3):
        average.observe(model.policy, iteration)
        ensemble.observe(model.policy, iteration)
        with th.no_grad():
            for parameter in model.policy.parameters():
                parameter.add_(1.0)
    for name, value in average.teachers(model.policy).policy_weights().items():  # type: ignore[union-attr]
        th.testing.assert_close(value, first[name] + 0.25 * 2 + 0.75 * 0.25 * 1)
    assert len(ensemble.past) == 2
    copy = StudentDistiller(teacher="ensemble", every=1, snapshots=2, student=None)
    copy.set_state(ensemble.state())
    obs = np.eye(5, dtype=np.float32)
    each = [m.action_log_probs(obs).exp() for m in ensemble.teachers(model.policy).members]
    th.testing.assert_close(copy.teachers(model.policy).action_log_probs(obs).exp(), (each[0] + each[1]) / 2)  # type: ignore[union-attr]


def test_a_light_student_has_the_policys_class_and_is_a_policy_that_acts() -> None:
    env = make_vec_env("RAO/Maze-5x5-v0", 2, 0)
    model = RecursivePPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")
    callback = SelfDistillationCallback(StudentDistiller(student="light", epochs=1), trigger=Interval(64))
    model.learn(256, callback=callback)
    knowledge = callback.knowledge
    assert isinstance(knowledge, PolicyKnowledge)
    assert type(knowledge.policy()) is type(model.policy)
    assert knowledge.parameters() < 0.3 * sum(p.numel() for p in model.policy.parameters())
    again = Knowledge.from_bytes(knowledge.to_bytes())
    obs = env.reset()
    np.testing.assert_array_equal(
        again.policy().predict(obs, deterministic=True)[0], knowledge.policy().predict(obs, deterministic=True)[0]
    )  # type: ignore[attr-defined]


def test_improved_targets_prefer_what_did_better_than_expected() -> None:
    model, memory = ppo(), ExperienceBuffer(10_000)
    for found in corridor_episodes(60):
        arrays = found.arrays()
        right = np.where(arrays["actions"] == 2, 1.0, -1.0).astype(np.float32)
        memory.add(Episode.from_arrays(arrays | {"advantages": right}))
    distiller = StudentDistiller(teacher="policy", student="same", improve=1.0, epochs=20, learning_rate=3e-3, batch_size=64)
    knowledge = distiller.distil(model.policy, memory, None, np.random.default_rng(0))
    obs = np.eye(5, dtype=np.float32)[:4]
    before = distiller.teachers(model.policy).action_log_probs(obs)
    after = knowledge.action_log_probs(obs)
    assert before is not None
    assert after is not None
    assert (after[:, 2] > before[:, 2]).all()


# -- injection -------------------------------------------------------------------------------------


def pool_of(model: Any, knowledge: Knowledge, **changes: Any) -> Pool:
    return Pool(states(corridor_episodes(30)), knowledge, "cpu", **changes)


def shifted_knowledge(model: Any, by: float = 0.3) -> PolicyKnowledge:
    moved = {name: value.detach().clone() + by for name, value in model.policy.state_dict().items()}
    return PolicyKnowledge.of(policy_spec(model.policy), [moved])


def injection_of(model: Any, knowledge: Knowledge, strength: float = 1.0) -> Injection:
    return Injection(model, knowledge, pool_of(model, knowledge), np.random.default_rng(0), strength)


def test_the_injected_gradient_is_that_of_the_sum_of_the_losses() -> None:
    model = ppo()
    round_ = injection_of(model, shifted_knowledge(model))
    injector = AuxiliaryLoss(weight=0.7, imitation=0.5, value_weight=0.3)
    model._current_progress_remaining = 1.0
    injector.begin(round_)
    index = np.arange(20)
    obs = th.as_tensor(round_.pool.states.observations[""])
    parameters = list(model.policy.parameters())

    def own() -> th.Tensor:
        values, log_prob, entropy = model.policy.evaluate_actions(obs, round_.pool.actions)
        assert entropy is not None
        return (values.square().mean() - log_prob.mean() - 0.1 * entropy.mean()) * 2

    def ours() -> th.Tensor:
        loss = injector.loss(model, round_.pool.batch(model.policy, index))
        assert loss is not None
        return loss

    expected = th.autograd.grad(own() + ours(), parameters)
    optimizer = model.policy.optimizer
    seen: list[th.Tensor] = []
    hook = GradientInjection(model, ours, max_grad_norm=None)
    hook.install()
    watcher = optimizer.register_step_pre_hook(lambda *a: seen.extend(p.grad.clone() for p in parameters))  # after ours
    optimizer.zero_grad()
    own().backward()
    optimizer.step()
    for got, want in zip(seen, expected, strict=True):
        th.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    hook.remove()
    watcher.remove()
    hook = GradientInjection(model, ours, max_grad_norm=0.01)
    optimizer.zero_grad()
    hook.install()
    optimizer.step()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None))
    assert norm == pytest.approx(0.01, rel=1e-3)
    assert hook.tally.take()["gradient_norm"] > 0.01


def test_a_loss_towards_the_teacher_brings_the_policy_there() -> None:
    model = ppo()
    teacher = shifted_knowledge(model)
    round_ = injection_of(model, teacher)
    injector = AuxiliaryLoss(value_weight=1.0, value_target="knowledge")
    injector.begin(round_)
    optimizer = th.optim.Adam(model.policy.parameters(), lr=3e-3)

    def distance() -> dict[str, float]:
        return compared(teacher, PolicyKnowledge.of(policy_spec(model.policy), [model.policy.state_dict()]), round_.pool.states)

    before = distance()
    for _ in range(300):
        optimizer.zero_grad()
        loss = injector.loss(model, round_.pool.batch(model.policy, np.arange(len(round_.pool))))
        assert loss is not None
        loss.backward()
        optimizer.step()
    after = distance()
    assert after["kl"] < 0.1 * before["kl"]
    assert after["value_error"] < 0.2 * before["value_error"]


def test_experts_states_are_targets_of_their_own() -> None:
    model = ppo()
    found = states([e.as_expert() for e in corridor_episodes(5)])
    pool = Pool(found, shifted_knowledge(model), "cpu", expert_trust=0.9)
    assert pool.log_probs is not None
    assert (pool.log_probs.exp()[th.arange(len(pool)), pool.actions] >= 0.9 - 1e-4).all()


def test_interpolation_and_initialisation() -> None:
    model = ppo()
    before = weights(model)
    knowledge = shifted_knowledge(model, 1.0)
    PolicyInterpolation(0.25).begin(injection_of(model, knowledge, strength=0.5))
    np.testing.assert_allclose(weights(model), before + 0.125, atol=1e-5)
    start = InitialiseFrom()
    start.begin(injection_of(model, knowledge))
    np.testing.assert_allclose(weights(model), before + 1.0, atol=1e-5)
    with th.no_grad():
        next(iter(model.policy.parameters())).add_(1.0)
    changed = weights(model)
    start.begin(injection_of(model, knowledge))  # once only
    np.testing.assert_array_equal(weights(model), changed)
    # Another architecture is fitted.
    small = ppo(policy_kwargs={"net_arch": [8]})
    pool = injection_of(small, knowledge)

    def distance() -> float:
        return compared(knowledge, PolicyKnowledge.of(policy_spec(small.policy), [small.policy.state_dict()]), pool.pool.states)["kl"]

    far = distance()
    InitialiseFrom(epochs=60, learning_rate=1e-2, batch_size=32).begin(pool)
    assert distance() < 0.1 * far
    with pytest.raises(ValueError, match="same architecture"):
        PolicyInterpolation().begin(pool)


def test_consolidation_holds_the_weights_that_matter() -> None:
    model = ppo()
    model._current_progress_remaining = 1.0
    round_ = injection_of(model, PolicyKnowledge.of(policy_spec(model.policy), [model.policy.state_dict()] * 2))
    injector = ElasticWeightConsolidation(weight=2.0, samples=32)
    injector.begin(round_)
    batch = round_.pool.batch(model.policy, np.arange(3))
    loss = injector.loss(model, batch)
    assert loss is not None
    assert float(loss.detach()) == 0.0
    # The value network does not matter for what is done.
    assert all(float(f.sum()) == 0.0 for name, f in injector.fisher.items() if "value" in name)
    assert sum(float(f.sum()) for f in injector.fisher.values()) == pytest.approx(
        sum(f.numel() for f in injector.fisher.values()), rel=1e-3
    )
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.1)
    expected = 2.0 / 2 * sum(float(f.sum()) for f in injector.fisher.values()) * 0.01
    moved = injector.loss(model, batch)
    assert moved is not None
    assert float(moved.detach()) == pytest.approx(expected, rel=1e-3)
    copy = ElasticWeightConsolidation(weight=2.0, samples=32)
    copy.set_state(injector.state())
    copy.resume(round_)
    again = copy.loss(model, batch)
    assert again is not None
    assert float(again.detach()) == pytest.approx(expected, rel=1e-3)


class Constant(Knowledge):
    """Values everything alike."""

    kind = "constant"

    def value(self, obs: Any) -> Any:
        return th.full((len(next(iter(obs.values())) if isinstance(obs, dict) else obs),), 2.0)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_bonus_enters_what_is_learned_and_nothing_else(recursive: bool) -> None:
    """With weight w and value 2 the first visit of a state earns 2 w, the fourth half of that."""

    class Sum(BaseCallback):
        total = 0.0
        learned = 0.0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            self.learned += float(self.model.rollout_buffer.rewards.sum())  # type: ignore[attr-defined]

    bonus = ExplorationBonus(weight=0.5)
    if recursive:
        env: VecEnv = make_vec_env("RAO/Maze-5x5-v0", 2, 0, budget=40)
        make: Any = lambda: RecursivePPO("MultiInputPolicy", env, n_steps=32, batch_size=32, seed=0, device="cpu", step_cost=0.0)  # noqa: E731
    else:
        env = corridor(2)
        make = lambda: ppo(env, gamma=1.0)  # noqa: E731
    model = make()
    model.learn(64)  # a rollout, so that there is an observation to start from
    plain, counted = Sum(), Sum()
    knowledge = Constant({})
    callback = SelfDistillationCallback(injectors=[bonus], trigger=Interval(10**9))
    callback.buffer.extend(_remembered(model))
    callback.knowledge, callback._given = knowledge, True
    model = make()
    model.learn(64, callback=CallbackList([plain]))
    other = make()
    other.learn(64, callback=CallbackList([callback, counted]))
    assert counted.learned > plain.learned + 0.1
    visits = bonus.visits[bonus.visits > 0]
    expected = sum(2.0 * 0.5 / math.sqrt(1 + k) for n in visits for k in range(int(n)))
    if not recursive:
        # Several environments that see a place at the same time count as one visit before.
        assert 0.8 * expected <= counted.learned - plain.learned <= 1.6 * expected
    assert all(abs(e.ret) <= 1.0 for e in callback.buffer.episodes()[2:])


def _remembered(model: Any) -> list[Episode]:
    callback = SelfDistillationCallback(injectors=[])
    model.learn(512, callback=callback)
    return callback.buffer.episodes()[:2]


def test_an_explorer_keeps_its_choices_open_and_the_exploiter_is_sharper() -> None:
    model = ppo(n_epochs=4)
    explorer = ExplorerEntropy(weight=0.5, temperature=0.25)
    callback = SelfDistillationCallback(injectors=[explorer], trigger=Interval(128))
    model.learn(2048, callback=callback)
    plain = ppo(n_epochs=4)
    plain.learn(2048)
    obs = th.eye(5)[:4]
    entropy = [float(m.policy.get_distribution(obs).entropy().mean().detach()) for m in (model, plain)]
    assert entropy[0] > entropy[1] + 0.1
    exploiter = explorer.exploiter(model)
    many = np.repeat(np.eye(5, dtype=np.float32)[:1], 2000, axis=0)
    th.manual_seed(0)
    actions, _ = exploiter.predict(many)
    theirs, _ = exploiter.policy.predict(many)
    best = exploiter.predict(many[:1], deterministic=True)[0][0]
    assert (actions == best).mean() >= (theirs == best).mean()


# -- the callback ----------------------------------------------------------------------------------


def callback_of(**changes: Any) -> SelfDistillationCallback:
    options: dict[str, Any] = {"distiller": StudentDistiller(student="light", epochs=1), "trigger": Interval(256), "batch_size": 32}
    return SelfDistillationCallback(**(options | changes))


ALGORITHMS: dict[str, Any] = {
    "ppo": lambda: PPO("MlpPolicy", plain_vec_env("CartPole-v1", 2, seed=0), n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu"),
    "a2c": lambda: A2C("MlpPolicy", plain_vec_env("CartPole-v1", 2, seed=0), n_steps=32, seed=0, device="cpu"),
    "maskable_ppo": lambda: MaskablePPO("MlpPolicy", corridor(), n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu"),
    "recursive_ppo": lambda: RecursivePPO(
        "MultiInputPolicy", make_vec_env("RAO/Maze-5x5-v0", 4, 0), n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu"
    ),
    "recursive_a2c": lambda: RecursiveA2C("MultiInputPolicy", make_vec_env("RAO/Maze-5x5-v0", 4, 0), n_steps=32, seed=0, device="cpu"),
    "flat_ppo": lambda: MaskablePPO(
        "MultiInputPolicy", make_vec_env("RAO/Maze-5x5-v0", 4, 0), n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu"
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_loop_runs_on_every_algorithm(name: str, tmp_path: Path) -> None:
    model = ALGORITHMS[name]()
    callback = callback_of(
        injectors=[AuxiliaryLoss(value_weight=0.1, imitation=0.1), ElasticWeightConsolidation(samples=8)], archive=str(tmp_path)
    )
    model.learn(1024, callback=CallbackList([callback]))
    assert callback.rounds >= 2
    assert callback.buffer.n_steps > 0
    assert callback.knowledge is not None
    assert np.isfinite(weights(model)).all()
    assert not model.policy.optimizer._optimizer_step_pre_hooks
    rounds = RoundArchive(tmp_path).rounds()
    assert [r.number for r in rounds] == list(range(callback.rounds + 1))
    assert rounds[-1].knowledge() is not None
    save_safely(model, tmp_path / "model")  # nothing of ours is in the way


@pytest.mark.parametrize("name", ["ppo", "recursive_ppo"])
def test_a_callback_that_injects_nothing_changes_nothing(name: str) -> None:
    plain = ALGORITHMS[name]()
    plain.learn(1024)
    watched = ALGORITHMS[name]()  # made after the other has learned: both seed the same generators
    callback = callback_of(injectors=[AuxiliaryLoss(weight=0.0)])
    watched.learn(1024, callback=callback)
    assert callback.rounds >= 2
    np.testing.assert_array_equal(weights(watched), weights(plain))


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        model = ALGORITHMS["recursive_ppo"]()
        model.learn(1024, callback=callback_of(seed=3))
        runs.append(weights(model))
    np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize("steps", [512, 640])
def test_a_resumed_run_ends_as_one_that_never_stopped(steps: int) -> None:
    def make() -> SelfDistillationCallback:
        env = make_vec_env("RAO/Maze-5x5-v0", 4, 999)
        return callback_of(
            injectors=[AuxiliaryLoss(imitation=0.2), ElasticWeightConsolidation(samples=4), ExplorerEntropy()],
            trigger=AnyOf(Interval(256), Plateau(3)),
            guard=Guard(HeldOut(env, episodes=4), every=128),
        )

    whole = ALGORITHMS["recursive_ppo"]()
    whole.learn(1280, callback=make())
    first, callback = ALGORITHMS["recursive_ppo"](), make()
    first.learn(steps, callback=callback)
    first._total_timesteps = 1280
    model_file, state_file = io.BytesIO(), io.BytesIO()
    save_safely(first, model_file, with_training_state=True)
    callback.save(state_file)
    model_file.seek(0)
    state_file.seek(0)
    env = make_vec_env("RAO/Maze-5x5-v0", 4, 0)
    second: Any = load_safely(model_file, env, force_reset=False, with_training_state=True, device="cpu")
    resumed = make()
    resumed.load(state_file)
    second.learn(1280 - steps, callback=resumed, reset_num_timesteps=False)
    reference, other = ALGORITHMS["recursive_ppo"](), make()
    # Schedules aside, learn() in two calls is what is compared with.
    reference.learn(steps, callback=other)
    reference.learn(1280 - steps, callback=other, reset_num_timesteps=False)
    assert resumed.rounds == other.rounds >= 2
    np.testing.assert_array_equal(weights(second), weights(reference))
    assert resumed.guard is not None
    assert other.guard is not None
    assert resumed.guard.scores == other.guard.scores
    np.testing.assert_array_equal(resumed.buffer.states().actions, other.buffer.states().actions)


def test_the_state_file_is_checked() -> None:
    model, callback = ALGORITHMS["ppo"](), callback_of()
    model.learn(512, callback=callback)
    file = io.BytesIO()
    callback.save(file)
    file.seek(0)
    with pytest.raises(ValueError, match="the callback has"):
        callback_of(trigger=Plateau()).load(file)
    with pytest.raises(ModelFileError):
        callback.load(io.BytesIO(file.getvalue()[:-50]))
    with pytest.raises(ModelFileError):
        callback.load(io.BytesIO(b"nothing"))


def test_what_cannot_be_distilled_is_refused() -> None:
    for model in (
        DQN("MlpPolicy", "CartPole-v1", device="cpu"),
        RecurrentPPO("MlpLstmPolicy", "CartPole-v1", device="cpu"),
        PPO("MlpPolicy", "Pendulum-v1", device="cpu"),
    ):
        with pytest.raises(ValueError, match=r"istillation|recurrent"):
            model.learn(10, callback=SelfDistillationCallback())
    with pytest.raises(ValueError, match="anchor"):
        SelfDistillationCallback(anchor_share=0.5)


def test_anchors_make_up_their_share() -> None:
    callback = callback_of(anchors=corridor_episodes(5), anchor_share=0.25, pool_size=400)
    ppo().learn(1024, callback=callback)
    assert callback.pool is not None
    share = callback.pool.states.expert.mean()
    assert 0.2 < share < 0.9
    assert callback.pool.states.expert.sum() == 100


# -- guard -----------------------------------------------------------------------------------------


class Corruption(Injector):
    """Turns the policy round at the `at`-th round, as a distillation gone wrong would."""

    kind = "corruption"
    immediate = True

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def begin(self, round_: Injection) -> None:
        self.seen += 1
        if self.seen == self.at:
            with th.no_grad():
                head: Any = round_.model.policy.action_net
                head.weight.mul_(-1.0)
                head.bias.mul_(-1.0)


def test_a_round_that_does_harm_is_taken_back_and_the_run_does_better_than_without_a_guard() -> None:
    def run(guarded: bool) -> tuple[PPO, SelfDistillationCallback]:
        model = ppo(n_epochs=4, learning_rate=1e-3)
        guard = Guard(HeldOut(corridor(4, seed=77), episodes=40), every=512) if guarded else None
        callback = callback_of(injectors=[Corruption(at=6)], trigger=Interval(1024), guard=guard)
        model.learn(6 * 1024 + 256, callback=callback)
        return model, callback

    (saved, callback), (lost, _) = run(True), run(False)
    assert callback.guard is not None
    assert callback.guard.rollbacks == 1
    assert callback.strength == 0.5
    assert callback.record["rolled_back"]
    scorer = HeldOut(corridor(4, seed=78), episodes=100)
    assert scorer.score(saved) > scorer.score(lost) + 0.1
    before = max(score for _, score in callback.guard.scores)
    assert scorer.score(saved) >= 0.9 * before - 0.05


def test_strength_recovers_and_the_data_change() -> None:
    class Scripted(HeldOut):
        def score(self, model: Any) -> float:
            return self.script.pop(0)

    held_out = Scripted(corridor(1), 1)
    held_out.script = [0.5, 0.44, 0.5, 0.46, 0.6]  # type: ignore[attr-defined]
    guard = Guard(held_out, patience=2, change_data=3)
    model = ppo()
    before = weights(model)
    guard.begin(model)
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(1.0)
    guard.measure(model)
    assert guard.judge(model)
    np.testing.assert_array_equal(weights(model), before)
    assert (guard.strength, guard.window, guard.rollbacks, guard.watching) == (0.5, 3, 1, False)
    model.num_timesteps += 1
    guard.begin(model)
    guard.measure(model)
    assert not guard.judge(model)  # 8 % is not enough
    guard.measure(model)
    assert not guard.judge(model)
    assert (guard.strength, guard.window, guard.watching) == (0.625, None, False)


def test_held_out_scores_repeat_and_touch_no_generator() -> None:
    model = ALGORITHMS["recursive_ppo"]()
    scorer = HeldOut(make_vec_env("RAO/Maze-5x5-v0", 3, 5), episodes=7)
    before = th.get_rng_state()
    scores = {scorer.score(model) for _ in range(2)}
    assert len(scores) == 1
    assert th.equal(before, th.get_rng_state())


# -- another process -------------------------------------------------------------------------------


def test_another_process_distils_the_same_and_is_never_waited_for() -> None:
    model, memory = ppo(), ExperienceBuffer(10_000)
    memory.extend(corridor_episodes(60))
    distiller = StudentDistiller(student={"net_arch": [8]}, epochs=2)
    distiller.observe(model.policy, 0)
    worker = DistillationWorker()
    began = time.perf_counter()
    worker.submit(distiller, model.policy, memory.episodes(), None, 5)
    assert time.perf_counter() - began < 2.0  # it takes longer to start than that
    assert worker.busy
    result = None
    while result is None and time.perf_counter() - began < 120:
        result = worker.result()
        time.sleep(0.05)
    assert isinstance(result, PolicyKnowledge)
    here = distiller.distil(model.policy, memory, None, np.random.default_rng(5))
    obs = np.eye(5, dtype=np.float32)
    th.testing.assert_close(result.action_log_probs(obs), here.action_log_probs(obs))
    worker.close()
    assert not worker.busy


def test_knowledge_from_another_process_is_injected_when_it_is_ready() -> None:
    callback = callback_of(asynchronous=True, trigger=Interval(256))

    class Patient(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps > 600 and callback.rounds == 0:
                time.sleep(0.02)
            return callback.rounds == 0

    began = time.perf_counter()
    ppo().learn(100_000, callback=CallbackList([callback, Patient()]))
    assert callback.rounds == 1
    assert callback.knowledge is not None
    assert time.perf_counter() - began < 120


# -- settings --------------------------------------------------------------------------------------


def test_settings_make_a_callback() -> None:
    callback = make_callback(
        {
            "distiller": {"kind": "student", "student": {"net_arch": [8]}},
            "injectors": [{"kind": "auxiliary", "weight": "lin_0.5"}, "consolidation", {"kind": "exploration"}],
            "trigger": [{"kind": "interval", "steps": 500}, "plateau"],
            "buffer": {"max_steps": 100},
            "weighting": {"success": 4},
            "guard": {"every": 5, "episodes": 3},
            "pool_size": 10,
        },
        eval_env=corridor(1),
    )
    assert [i.kind for i in callback.injectors] == ["auxiliary", "consolidation", "exploration"]
    assert isinstance(callback.trigger, AnyOf)
    assert (callback.buffer.max_steps, callback.pool_size, callback.weighting) == (100, 10, Weighting(success=4))
    assert callback.guard is not None
    assert (callback.guard.every, callback.guard.held_out.episodes) == (5, 3)
    assert make_callback(True).guard is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"distil": 1}, "it has distiller"),
        ({"distiller": "teacher"}, "one of student"),
        ({"distiller": {"kind": "student", "size": 3}}, "has no size"),
        ({"injectors": "auxiliary"}, "list"),
        ({"injectors": [{"kind": "auxiliary", "weight": -1}]}, "at least 0"),
        ({"trigger": {"kind": "interval", "steps": 0}}, "at least 1"),
        ({"weighting": {"succes": 1}}, "arguments"),
        ({"guard": True}, "held-out"),
        ({"pool_size": 0}, "pool_size"),
        ([1], "mapping"),
    ],
)
def test_wrong_settings_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_callback(wrong)
