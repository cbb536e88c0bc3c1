from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rao_agents import make_vec_env
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import load_settings
from rao_baselines.environments import make_training_env
from rao_baselines.evaluation import AdaptedModel, evaluation_seeds, score
from rao_baselines.models import make_model
from rao_baselines.wrappers import Stacker, VecStackObservations, VecStepPenalty

ENV = "RAO/Maze-5x5-v0"


def test_stacked_observations_are_the_latest_ones() -> None:
    k, n = 3, 2
    plain, stacked = make_vec_env(ENV, n, seed=4, spawn=False), VecStackObservations(make_vec_env(ENV, n, seed=4, spawn=False), k)
    assert isinstance(stacked.observation_space, spaces.Dict)
    rng = np.random.default_rng(0)
    now: Any = plain.reset()
    seen: Any = stacked.reset()
    past = [
        [{key: np.zeros_like(array[i]) for key, array in now.items()}] * (k - 1) + [{key: a[i] for key, a in now.items()}] for i in range(n)
    ]
    ended = 0
    for _ in range(250):
        actions = rng.integers(4, size=n)
        now, rewards, dones, infos = plain.step(actions)
        seen, rewards_stacked, dones_stacked, infos_stacked = stacked.step(actions)
        np.testing.assert_array_equal(rewards, rewards_stacked)
        np.testing.assert_array_equal(dones, dones_stacked)
        for i in range(n):
            if dones[i]:
                ended += 1
                last = [*past[i][1:], infos[i]["terminal_observation"]]
                for key, array in infos_stacked[i]["terminal_observation"].items():
                    np.testing.assert_array_equal(array, last[-1][key] if key == "action_mask" else np.concatenate([o[key] for o in last]))
                past[i] = [{key: np.zeros_like(array[i]) for key, array in now.items()}] * k
            past[i] = [*past[i][1:], {key: array[i] for key, array in now.items()}]
            for key, array in seen.items():
                expected = past[i][-1][key] if key == "action_mask" else np.concatenate([o[key] for o in past[i]])
                np.testing.assert_array_equal(array[i], expected)
            assert stacked.observation_space.contains({key: array[i] for key, array in seen.items()})
    assert ended > 1


def test_stacking_needs_flat_boxes() -> None:
    with pytest.raises(ValueError, match="flat boxes"):
        Stacker(2).space(spaces.Box(0, 1, (3, 3)))
    assert Stacker(2).space(spaces.Box(0.5, 1, (3,))).shape == (6,)


def test_a_step_penalty_is_for_learning_only() -> None:
    env = VecStepPenalty(make_vec_env(ENV, 2, seed=0, spawn=False), 0.25)
    env.reset()
    done = False
    while not done:
        _, rewards, dones, infos = env.step(np.array([0, 1]))
        assert set(np.unique(rewards)) <= {np.float32(-0.25), np.float32(0.75)}
        done = bool(dones.any())
    assert infos[int(np.argmax(dones))]["episode"]["r"] in (0.0, 1.0)


@pytest.mark.parametrize("algorithm", ["ppo", "maskable_ppo", "dqn"])
def test_scores_of_adapted_models_do_not_depend_on_the_batch(algorithm: str) -> None:
    row = find_algorithm(algorithm)
    overrides = {"n_envs": 2, "frame_stack": 3} | ({"buffer_size": 50} if algorithm == "dqn" else {})
    settings = load_settings(row, ENV, overrides)
    model: Any = make_model(row, settings, make_training_env(ENV, settings, False, 0), seed=0, device="cpu")
    for mode in ("greedy", "sampled"):
        several = score(model, ENV, evaluation_seeds(6), mode=mode, env_kwargs={"spawn": False}, frame_stack=3)
        alone = [
            score(model, ENV, [seed], mode=mode, env_kwargs={"spawn": False}, frame_stack=3).episodes[0] for seed in evaluation_seeds(6)
        ]
        assert list(several.episodes) == alone


def test_an_adapted_model_sees_what_it_saw_in_training() -> None:
    row = find_algorithm("maskable_ppo")
    settings = load_settings(row, ENV, {"n_envs": 1, "frame_stack": 2})
    env = make_training_env(ENV, settings, False, seed=0)
    model: Any = make_model(row, settings, env, seed=0, device="cpu")
    seeds = evaluation_seeds(3)
    episodes = score(model, ENV, seeds, mode="greedy", env_kwargs={"spawn": False}, frame_stack=2).episodes
    stacked = VecStackObservations(make_vec_env(ENV, 3, spawn=False), 2)
    base: Any = stacked.unwrapped
    base._seeds = list(seeds)
    observation: Any = stacked.reset()
    actions = []
    for _ in range(min(episode.steps for episode in episodes)):
        action, _ = model.predict(observation, deterministic=True, action_masks=observation["action_mask"].astype(bool))
        actions.append(action)
        observation, *_ = stacked.step(action)
    for i, episode in enumerate(episodes):
        np.testing.assert_array_equal(episode.actions[: len(actions)], [action[i] for action in actions])
    assert AdaptedModel(model, 2).__name__ == "MaskablePPO"
