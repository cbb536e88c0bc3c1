"""State transfer in training and in acting: the same states everywhere, gradients that reach the other frame, and relays that need it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBufferSamples
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch.nn import functional as F
from toy_envs import lamps

import rao_envs
from rao_agents import (
    RecursiveA2C,
    RecursivePPO,
    SharedMLPExtractor,
    StateTransferExtractor,
    load_policy,
    load_safely,
    make_vec_env,
    save_safely,
)
from rao_agents.transfer.vec_env import StateTransferVecEnv

MAZE = "RAO/Maze-10x10-v0"
MODES: dict[str, dict[str, Any]] = {
    "summary": {"state_transfer": "summary"},
    "hidden": {"state_transfer": "hidden"},
    "attention": {"state_transfer": "attention"},
    "memory": {"state_transfer": "none", "state_transfer_kwargs": {"memory": 3}},
    "everything": {"state_transfer": "hidden", "state_transfer_kwargs": {"memory": 2, "dim": 8}},
}
SMALL: dict[str, Any] = {
    "n_steps": 24,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {
        "features_extractor_class": SharedMLPExtractor,
        "features_extractor_kwargs": {"features_dim": 16},
        "net_arch": [16],
    },
}
every_mode = pytest.mark.parametrize("mode", MODES)


def make(mode: str, env: Any = None, algorithm: Any = RecursivePPO, **kwargs: Any) -> Any:
    """A small model, which spawns more often than not where it may."""
    settings = {**SMALL, **MODES[mode], **kwargs}
    settings["state_transfer_kwargs"] = {"dim": 12, "slots": 3} | settings.get("state_transfer_kwargs", {})
    if algorithm is RecursivePPO:
        settings = {"batch_size": 48, "n_epochs": 2} | settings
    env = env if env is not None else make_vec_env(MAZE, 3, 0, observe_frame=True)
    model = algorithm("MultiInputPolicy", env, **settings)
    if model.policy.delegates:
        model.policy.delegation_threshold = -2.0
    return model


def params(model: Any) -> list[th.Tensor]:
    return [value.detach().clone() for value in model.policy.state_dict().values()]


def same(a: list[th.Tensor], b: list[th.Tensor]) -> bool:
    return all(th.equal(x, y) for x, y in zip(a, b, strict=True))


class Peek(BaseCallback):
    """Calls a function at every step."""

    def __init__(self, look: Callable[[Any], None]) -> None:
        super().__init__()
        self.look = look

    def _on_step(self) -> bool:
        self.look(self)
        return True


# -- the same states wherever one acts -----------------------------------------------------------------


@every_mode
def test_predict_sees_what_the_training_wrapper_shows(mode: str) -> None:
    """Three environments, through several episodes, with the actions that training took."""
    model = make(mode, make_vec_env(MAZE, 3, 0, observe_frame=True, budget=12))
    rows: list[tuple[Any, Any, Any]] = []
    model.env.reset()
    model.env.seed(0)

    def look(callback: Any) -> None:
        values = callback.locals
        rows.append((values["obs_tensor"], values["actions"], values["dones"]))

    weights = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(72, callback=Peek(look))  # one rollout and one update, which is taken back
    model.policy.load_state_dict(weights)
    assert sum(int(done.sum()) for _, _, done in rows) > 3
    env = make_vec_env(MAZE, 3, 0, observe_frame=True, budget=12)
    env.reset()
    env.seed(0)
    acting, state, starts = model.policy._acting(), None, None
    observation = env.reset()
    levels = 0
    for shown, actions, dones in rows:
        views: list[Any] = []

        def act(view: Any, views: list[Any] = views) -> None:
            views.append(view)
            model.policy.predict_values(model.policy.obs_to_tensor(view)[0])

        _, state = acting.step(act, observation, state, starts)
        for key, tensor in shown.items():
            np.testing.assert_allclose(views[0][key], tensor.numpy(), atol=1e-5, err_msg=key)
        levels = max(levels, int(observation["frame"][:, 0].max()))
        observation, _, _, _ = env.step(actions)
        starts = dones
    assert levels > 0


@every_mode
def test_single_and_vectorised_predictions_agree_through_resets(mode: str) -> None:
    model = make(mode).learn(100)
    single = gym.make(MAZE, observe_frame=True)
    batch = make_vec_env(MAZE, 2, observe_frame=True)
    batch.seed(5)
    observation, state, starts = batch.reset(), None, np.ones(2, bool)
    alone, _ = single.reset(seed=5)
    own: Any = None
    for _ in range(40):
        actions, state = model.predict(observation, state, starts, deterministic=True)
        if starts[0]:
            own = None
        action, own = model.predict(alone, own, deterministic=True)
        assert np.shape(action) == () and action == actions[0]
        observation, _, starts, _ = batch.step(actions)
        alone, _, terminated, truncated, _ = single.step(int(action))
        if terminated or truncated:
            alone, _ = single.reset()
        assert (terminated or truncated) == starts[0]


@every_mode
def test_evaluation_is_independent_of_the_batch(mode: str) -> None:
    """Greedy and sampled, by `rao_envs.evaluate` and by a loop over `predict`."""
    model = make(mode, make_vec_env("RAO/Maze-5x5-v0", 3, 0, observe_frame=True, budget=30)).learn(100)
    for deterministic in (True, False):
        runs = [
            rao_envs.evaluate(
                model, "RAO/Maze-5x5-v0", 12, deterministic=deterministic, batch_size=size, observe_frame=True, budget=30
            ).episodes
            for size in (1, 5, 12)
        ]
        assert runs[0] == runs[1] == runs[2]
        assert max(episode.deepest for episode in runs[0]) > 0
        if deterministic:
            env = gym.make("RAO/Maze-5x5-v0", observe_frame=True, budget=30)
            for episode in runs[0][:4]:
                observation, _ = env.reset(seed=episode.seed)
                state, done = None, False
                actions = []
                while not done:
                    action, state = model.predict(observation, state, deterministic=True)
                    actions.append(int(action))
                    observation, _, terminated, truncated, _ = env.step(action)
                    done = terminated or truncated
                assert actions == list(episode.actions)


def test_sb3_evaluate_policy_on_one_and_many() -> None:
    model = make("everything").learn(100)
    for n in (1, 3):
        env = make_vec_env(MAZE, n, 3, observe_frame=True)
        rewards, lengths = evaluate_policy(model, env, 4, return_episode_rewards=True)
        assert len(rewards) == len(lengths) == 4


def test_evaluating_needs_the_frame() -> None:
    model = make("summary")
    with pytest.raises(ValueError, match="it expects 'frame'"):
        rao_envs.evaluate(model, MAZE, 2)
    observation, _ = gym.make(MAZE).reset(seed=0)
    with pytest.raises(ValueError, match="observe_frame=True"):
        model.predict(observation)


# -- detached children --------------------------------------------------------------------------------

FAMILIES = ["RAO/Maze-10x10-v0", "RAO/Algebra-v0", "RAO/LongSeq-nested-v0", "RAO/Rewrite-v0", "RAO/Dialogue-v0", "RAO/Relay-siblings-v0"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["everything", "attention"])
def test_detached_children_are_inline_ones(family: str, mode: str) -> None:
    """Actions are a function of what is observed: both ways see the same, bit by bit."""
    model = make(mode, make_vec_env(family, 1, observe_frame=True))
    acting = model.policy._acting()

    def choose(observation: Any, spawns: Any) -> int:
        key = zlib.crc32(b"".join(np.ascontiguousarray(observation[key]).tobytes() for key in ("task", "results", "call")))
        rng = np.random.default_rng(key)
        allowed = np.flatnonzero(observation["action_mask"])
        opening = np.intersect1d(allowed, spawns)
        return int(rng.choice(opening if len(opening) and rng.random() < 0.6 else allowed))

    def step(observation: Any, state: Any, log: list[Any]) -> Any:
        def act(view: Any) -> None:
            log.append(view)
            model.policy.predict_values(model.policy.obs_to_tensor(view)[0])

        return acting.step(act, {key: array[None] for key, array in observation.items()}, state)[1]

    def inline(env: Any, seed: int, log: list[Any]) -> None:
        observation, _ = env.reset(seed=seed)
        state, over = None, False
        while not over:
            state = step(observation, state, log)
            observation, _, terminated, truncated, _ = env.step(choose(observation, env.spawn_actions))
            over = terminated or truncated

    def detached(env: Any, state: Any, log: list[Any], **seed: int) -> Any:
        observation, _ = env.reset(**seed)
        over = False
        while not over:
            state = step(observation, state, log)
            action = choose(observation, env.spawn_actions)
            if action in env.spawn_actions and observation["action_mask"][action]:
                children = env.spawn_all(action)
                ended = [detached(child, model.child_state(state), log) for child in children]
                state = model.join_state(state, *ended)
                observation, _, terminated, truncated, _ = env.join(*children)
            else:
                observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        return state

    logs: list[list[Any]] = [[], []]
    for seed in range(11, 14):
        inline(gym.make(family, observe_frame=True, budget=60).unwrapped, seed, logs[0])
        detached(gym.make(family, observe_frame=True, budget=60).unwrapped, None, logs[1], seed=seed)
    assert len(logs[0]) == len(logs[1]) > 5
    assert max(view["frame"][0, 0] for view in logs[0]) >= 1
    for a, b in zip(*logs, strict=True):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)


def test_only_models_with_states_have_them() -> None:
    model = make("summary", state_transfer="none")
    assert not model.policy.stateful
    with pytest.raises(RuntimeError, match="keeps no states"):
        model.child_state((np.zeros(1),))
    with pytest.raises(RuntimeError, match="keeps no states"):
        model.join_state((np.zeros(1),))


# -- gradients ----------------------------------------------------------------------------------------


def rows_with(model: Any, steps: int = 200) -> dict[str, th.Tensor]:
    """Augmented observations of a rollout."""
    model.learn(steps)
    buffer: Any = model.rollout_buffer
    size = buffer.n_step_rows
    return model.policy.obs_to_tensor({key: flat[:size] for key, flat in buffer.flat_observations.items()})[0]


@every_mode
def test_a_childs_loss_teaches_its_parents_encoder(mode: str) -> None:
    """Against the same computation written out by hand, for a child that knows its parent and has no child itself."""
    model = make(mode, make_vec_env("RAO/Maze-5x5-v0", 3, 0, observe_frame=True))
    observations = rows_with(model)
    flags = observations["transfer/flags"]
    index = ((flags[:, 1] == 1) & (flags[:, 2] == 0) & (flags[:, 3] == 0)).nonzero().squeeze(1)
    assert len(index)
    batch = {key: tensor[index].float() for key, tensor in observations.items() if key != "frame"}
    extractor: Any = model.policy.features_extractor
    extractor.zero_grad()
    inner, options = extractor.inner, extractor.options
    parents = {key: batch[f"parent/{key}"] for key in extractor.layout.plain}

    weights = th.linspace(-1, 1, extractor.features_dim)
    (extractor(batch)[:, inner.features_dim :] * weights[inner.features_dim :]).sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in extractor.named_parameters() if parameter.grad is not None}
    extractor.zero_grad()

    known = dict(zip(options.context, batch["parent/context"].split(list(options.context.values()), 1), strict=True))
    own, above = inner({key: batch[key] for key in extractor.layout.plain}), inner(parents)
    parts = []
    zeros = th.zeros(len(index), options.dim)
    incoming = zeros
    if options.mode == "summary":
        incoming = th.tanh(F.linear(th.cat([above, known["incoming"], known["returned"]], 1), *extractor.exchange.summarise.parameters()))
        parts = [incoming, zeros]
    elif options.mode == "hidden":
        cell = extractor.exchange.cell
        incoming = cell(th.cat([above, known["incoming"], known["returned"]], 1), known["previous"])
        before = th.where(batch["transfer/flags"][:, :1] > 0, batch["transfer/state"], incoming)
        parts = [cell(th.cat([own, incoming, zeros], 1), before), incoming, zeros]
    elif options.mode == "attention":
        offer = extractor.exchange.offer(th.cat([above, known["incoming"], known["returned"]], 1)).reshape(
            -1, 2, options.slots, options.dim
        )
        query = extractor.exchange.query(own)
        scores = (offer[:, 0] @ query[:, :, None]).squeeze(2) / options.dim**0.5
        parts = [(scores.softmax(1)[:, :, None] * offer[:, 1]).sum(1), zeros]
    if options.memory:
        memory = extractor.memory
        stored = batch["transfer/memory"].reshape(-1, options.memory, options.dim)
        facts = th.cat([above, *(known[name] for name in ("incoming", "returned", "read") if name in known)], 1)
        strength = th.sigmoid(memory.gate(facts)) * memory.address(facts).softmax(1)
        before = known["before"].reshape(stored.shape)
        write = strength[:, :, None] * (th.tanh(memory.value(facts))[:, None] - before)
        stored = stored + batch["parent/kept"][:, :, None] * (write - write.detach())
        scores = (memory.key(stored) @ memory.query(own)[:, :, None]).squeeze(2) / options.dim**0.5
        parts.append(F.layer_norm((scores.softmax(1)[:, :, None] * stored).sum(1), (options.dim,)))
    (th.cat(parts, 1) * weights[inner.features_dim :]).sum().backward()
    expected = {name: parameter.grad for name, parameter in extractor.named_parameters() if parameter.grad is not None}
    for name in expected:
        th.testing.assert_close(found[name], expected[name], atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    assert set(found) <= set(expected) | {name for name, value in found.items() if not value.any()}

    # And the part of it that came through the parent's observation alone is not nothing.
    watched = {key: tensor.clone().requires_grad_(key.startswith("parent/")) for key, tensor in batch.items()}
    features = extractor(watched)
    (features * weights)[:, inner.features_dim :].sum().backward()
    assert watched["parent/task"].grad is not None
    assert float(watched["parent/task"].grad.abs().sum()) > 1e-3


@every_mode
def test_a_parents_loss_teaches_its_childs_encoder(mode: str) -> None:
    model = make(mode, make_vec_env("RAO/Maze-5x5-v0", 8, 0, observe_frame=True), n_steps=64)
    observations = rows_with(model, 1500)
    index = (observations["transfer/flags"][:, 2] == 1).nonzero().squeeze(1)
    assert len(index)
    batch = {key: tensor[index].float().requires_grad_(key.startswith("child/")) for key, tensor in observations.items() if key != "frame"}
    extractor: Any = model.policy.features_extractor
    weights = th.linspace(-1, 1, extractor.features_dim)
    (extractor(batch) * weights)[:, extractor.inner.features_dim :].sum().backward()
    assert float(batch["child/task"].grad.abs().sum()) > 1e-4


@every_mode
def test_values_do_not_depend_on_gradients_or_on_skipped_rows(mode: str) -> None:
    model = make(mode, make_vec_env("RAO/Maze-5x5-v0", 3, 0, observe_frame=True))
    observations = {key: tensor.float() for key, tensor in rows_with(model).items() if key != "frame"}
    extractor: Any = model.policy.features_extractor
    learning = extractor(observations).detach()
    context = extractor.carry.context
    with th.no_grad():
        th.testing.assert_close(extractor(observations), learning, atol=1e-5, rtol=1e-5)
        with extractor.every_row():
            th.testing.assert_close(extractor(observations), learning, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(extractor.carry.context, context, atol=1e-5)


@every_mode
def test_the_first_update_starts_from_the_policy_that_acted(mode: str) -> None:
    """Log-probabilities computed again from the buffer are those of the collection: probability ratios begin at 1."""
    model = make(mode, n_epochs=1, batch_size=10_000)
    before: list[float] = []
    original = model.train

    def train() -> None:
        buffer = model.rollout_buffer
        for batch in buffer.get(10_000):
            assert isinstance(batch, MaskableDictRolloutBufferSamples)
            with th.no_grad():
                _, log_prob, _ = model.policy.evaluate_actions(batch.observations, batch.actions, action_masks=batch.action_masks)
            before.append(float((log_prob - batch.old_log_prob).abs().max()))
        original()

    model.train = train
    model.learn(72)
    assert before and max(before) < 1e-4


# -- training -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [RecursivePPO, RecursiveA2C])
@every_mode
def test_saving_loading_and_exact_resumption(mode: str, algorithm: Any, tmp_path: Path) -> None:
    env = make_vec_env(MAZE, 3, 0, observe_frame=True)
    straight = make(mode, env, algorithm).learn(216)

    class Save(BaseCallback):
        def _on_rollout_start(self) -> None:
            if self.num_timesteps == 72:
                save_safely(self.model, tmp_path / "middle", with_training_state=True)

        def _on_step(self) -> bool:
            return True

    again = make(mode, make_vec_env(MAZE, 3, 0, observe_frame=True), algorithm).learn(216, callback=Save())
    assert same(params(straight), params(again)), "not deterministic"
    resumed: Any = load_safely(tmp_path / "middle", make_vec_env(MAZE, 3, 99, observe_frame=True), with_training_state=True)
    assert resumed.state_transfer == MODES[mode]["state_transfer"] and isinstance(resumed.policy.features_extractor, StateTransferExtractor)
    resumed.learn(216 - resumed.num_timesteps, reset_num_timesteps=False)
    assert same(params(straight), params(resumed))
    straight.save(tmp_path / "end")
    straight.policy.save(tmp_path / "policy")
    loaded, alone = load_safely(tmp_path / "end"), load_policy(tmp_path / "policy")
    expected = rao_envs.evaluate(straight, MAZE, 3, deterministic=False, observe_frame=True).episodes
    assert rao_envs.evaluate(loaded, MAZE, 3, deterministic=False, observe_frame=True).episodes == expected
    assert rao_envs.evaluate(alone, MAZE, 3, deterministic=False, observe_frame=True).episodes == expected


@every_mode
def test_evaluating_on_the_training_environment_leaves_no_strangers_states(mode: str) -> None:
    """After somebody else played in it, no frame is told of a parent or child that is not its own."""
    model = make(mode)
    flags: list[Any] = []

    def look(callback: Any) -> None:
        if callback.n_calls == 10:
            evaluate_policy(callback.model, callback.model.get_env(), 3, deterministic=False)
        states: StateTransferVecEnv = model._states
        if callback.n_calls == 11:
            flags.append(states.shown["transfer/flags"].copy())
            assert not states.tracker.arrays["known"].any()

    model.learn(144, callback=Peek(look))
    assert len(flags) == 1 and not flags[0].any()


def test_truncated_episodes_are_bootstrapped_with_states() -> None:
    """The last observation of a truncated episode is shown like any other: the root's, with what it and its child knew."""
    model = make("everything", make_vec_env(MAZE, 8, 0, observe_frame=True, budget=6))
    seen: list[Any] = []

    def look(callback: Any) -> None:
        seen.extend(info["terminal_observation"] for info in callback.locals["infos"] if info.get("TimeLimit.truncated"))

    model.learn(400, callback=Peek(look))
    space = model.policy.observation_space
    assert seen and all(set(final) == set(space.spaces) for final in seen)
    flags = np.array([final["transfer/flags"] for final in seen])
    assert flags[:, 0].all() and flags[:, 2].any()


def test_other_peoples_environments_and_wrappers() -> None:
    with pytest.raises(ValueError, match="observe_frame=True"):
        make("summary", lamps(2))
    with pytest.raises(ValueError, match="state_transfer must be one of"):
        make("summary", state_transfer="telepathy")
    venv = DummyVecEnv([lambda: gym.make(MAZE, observe_frame=True) for _ in range(2)])
    make("hidden", venv).learn(50)
    keys = ["task", "results", "call"]
    with pytest.raises(ValueError, match="norm_obs_keys"):
        make("hidden", VecNormalize(make_vec_env(MAZE, 2, 0, observe_frame=True), norm_obs_keys=[*keys, "frame"])).learn(50)
    make("hidden", VecNormalize(make_vec_env(MAZE, 2, 0, observe_frame=True), norm_obs_keys=keys)).learn(50)


def test_without_spawn_actions_it_is_a_memory_of_the_root() -> None:
    model = make("everything", make_vec_env(MAZE, 2, 0, observe_frame=True, spawn=False)).learn(100)
    assert not model.recursive
    _, state = model.predict(model.env.reset())
    assert state is not None


@pytest.mark.parametrize("options", [{"advantage": "rloo"}, {"credit": "tree"}, {"credit": "root", "delegation_head": False}])
def test_with_other_credit(options: dict[str, Any]) -> None:
    env = make_vec_env("RAO/Maze-5x5-v0", 4, 0, observe_frame=True, repeats=2 if "advantage" in options else 1)
    model = make("everything", env, **options)
    before = params(model)
    model.learn(400)
    assert not same(before, params(model))


def test_transfer_off_changes_nothing() -> None:
    """No state, no wrapper, the same network and numbers as without the arguments."""
    plain = RecursivePPO("MultiInputPolicy", make_vec_env(MAZE, 3, 0), batch_size=48, n_epochs=2, **SMALL).learn(100)
    off = RecursivePPO(
        "MultiInputPolicy", make_vec_env(MAZE, 3, 0), batch_size=48, n_epochs=2, state_transfer="none", state_transfer_kwargs={}, **SMALL
    ).learn(100)
    assert same(params(plain), params(off)) and off._states is None
    assert plain.predict(plain.env.reset(), state=None)[1] is None


def test_policy_and_value_may_have_extractors_of_their_own() -> None:
    policy = {**SMALL["policy_kwargs"], "share_features_extractor": False}
    model = make("everything", policy_kwargs=policy).learn(100)
    assert model.policy.vf_features_extractor is not model.policy.pi_features_extractor
    rao_envs.evaluate(model, MAZE, 2, observe_frame=True)


@pytest.mark.parametrize("given", [[1], "dim", 3])
def test_options_that_are_no_dictionary(given: Any) -> None:
    with pytest.raises(ValueError, match="state_transfer_kwargs must be a dictionary or None"):
        RecursivePPO("MultiInputPolicy", lamps(1, observe_frame=True), state_transfer="summary", state_transfer_kwargs=given)


def test_beginnings_are_said_of_every_environment() -> None:
    """One for all would be spread over them, and all of their states forgotten."""
    model = make("summary")
    observation = model.get_env().reset()
    _, state = model.predict(observation)
    with pytest.raises(ValueError, match="episode_start is of 1 environments, the observation of 3"):
        model.predict(observation, state, np.array([True]))
