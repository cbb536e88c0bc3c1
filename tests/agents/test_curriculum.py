"""The curriculum: when it moves on, what it logs, and that it goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

from rao_agents import CurriculumCallback, RecursiveA2C, RecursivePPO, load_safely, make_mixed_vec_env, make_vec_env, save_safely
from tests.agents.test_mixed import TASKS


class Told(CurriculumCallback):
    """A curriculum whose evaluations say what they are told to."""

    def __init__(self, successes: list[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.successes: Iterator[float] = iter(successes)

    def evaluate(self) -> float:
        """The next of them."""
        return next(self.successes)


class Watch(BaseCallback):
    """Keeps what is logged, and the weights, at each rollout's end."""

    def __init__(self, curriculum: CurriculumCallback) -> None:
        super().__init__()
        self.curriculum = curriculum
        self.logged: list[Any] = []
        self.weights: list[list[float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        values = self.logger.name_to_value
        self.logged.append((values["curriculum/stage"], values.get("curriculum/success")))
        self.weights.append(self.curriculum.mixed.weights.tolist())


def learn(curriculum: CurriculumCallback, rollouts: int, algorithm: Any = RecursivePPO, **env: Any) -> Watch:
    """Train for that many rollouts of 48 steps."""
    venv = make_mixed_vec_env(TASKS, 6, seed=1, **env)
    small = {} if algorithm is RecursiveA2C else {"batch_size": 24, "n_epochs": 1}
    model = algorithm("MultiInputPolicy", venv, n_steps=8, seed=0, **small)
    watch = Watch(curriculum)
    model.learn(48 * rollouts, callback=[curriculum, watch])
    return watch


@pytest.mark.parametrize("algorithm", [RecursivePPO, RecursiveA2C, MaskablePPO])
def test_it_moves_on_when_a_stage_is_mastered_and_never_back(algorithm: Any) -> None:
    curriculum = Told([0.5, 0.9, 0.2, 0.95], every=48)
    watch = learn(curriculum, 7, algorithm, spawn=algorithm is not MaskablePPO)
    # Nothing is evaluated before the first rollout, nor in the last stage.
    assert watch.logged == [(0, None), (0, 0.5), (1, 0.9), (1, 0.2), (2, 0.95), (2, 0.95), (2, 0.95)]
    assert watch.weights == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    assert curriculum.history == [
        {"steps": 48, "stage": 0, "success": 0.5},
        {"steps": 96, "stage": 0, "success": 0.9},
        {"steps": 144, "stage": 1, "success": 0.2},
        {"steps": 192, "stage": 1, "success": 0.95},
    ]


def test_it_begins_with_the_first_stage_alone() -> None:
    curriculum = Told([], every=10_000)
    learn(curriculum, 1)
    assert curriculum.mixed.mixed.playing.tolist() == [0] * 6


def test_patience_ends_a_stage_and_review_keeps_the_old_ones() -> None:
    curriculum = Told([0.0] * 4, every=96, patience=2, review=0.5)
    watch = learn(curriculum, 9)
    assert [stage for stage, _ in watch.logged] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert watch.weights[4] == [0.5, 0.5, 0]
    assert watch.weights[-1] == [0.25, 0.25, 0.5]


def test_success_is_that_of_fixed_tasks_of_the_stage() -> None:
    curriculum = CurriculumCallback(threshold=0.0, every=48, episodes=10)
    watch = learn(curriculum, 3)
    assert [stage for stage, _ in watch.logged] == [0, 1, 2]
    success = curriculum.evaluate()
    assert success == curriculum.evaluate()
    assert curriculum.history[0]["success"] > success  # two numbers are easier than eight


def test_a_second_call_of_learn_goes_on_with_the_stage() -> None:
    curriculum = Told([1.0, 0.0, 0.0, 0.0], every=48)
    venv = make_mixed_vec_env(TASKS, 6, seed=1)
    model = RecursivePPO("MultiInputPolicy", venv, n_steps=8, batch_size=24, n_epochs=1, seed=0)
    model.learn(96, callback=curriculum)
    assert curriculum.stage == 1
    model.learn(96, callback=curriculum)
    assert curriculum.stage == 1
    assert [entry["steps"] for entry in curriculum.history] == [48, 48]


def test_a_run_resumes_in_its_stage_and_ends_as_if_never_stopped(tmp_path: Any) -> None:
    def make(path: Any = None) -> tuple[Any, CurriculumCallback]:
        venv = make_mixed_vec_env(TASKS, 6, seed=1)
        curriculum = CurriculumCallback(threshold=0.1, every=96, episodes=10)
        if path is not None:
            return load_safely(path, venv, force_reset=False, with_training_state=True), curriculum
        return RecursivePPO("MultiInputPolicy", venv, n_steps=8, batch_size=24, n_epochs=1, seed=0), curriculum

    whole, curriculum = make()
    whole.learn(480, callback=curriculum)
    first, before = make()
    first.learn(240, callback=before)
    save_safely(first, tmp_path / "half.zip", with_training_state=True)
    second, after = make(tmp_path / "half.zip")
    second.learn(240, callback=after, reset_num_timesteps=False)
    assert after.history == curriculum.history
    assert before.history == curriculum.history[: len(before.history)]
    assert 0 < len(before.history) < len(curriculum.history)
    for mine, theirs in zip(second.policy.parameters(), whole.policy.parameters(), strict=True):
        assert mine.equal(theirs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"threshold": 1.1}, r"threshold must be a number in \[0, 1\], got 1.1"),
        ({"threshold": True}, "threshold must be a number"),
        ({"threshold": "high"}, "threshold must be a number"),
        ({"every": 0}, "every must be a whole number of at least 1, got 0"),
        ({"episodes": 1.5}, "episodes must be a whole number"),
        ({"patience": 0}, "patience must be a whole number"),
        ({"review": 1.0}, "review must be less than 1"),
    ],
)
def test_wrong_arguments_are_explained(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CurriculumCallback(**kwargs)


def test_an_environment_without_stages_is_refused() -> None:
    for venv in (make_vec_env(*TASKS[0][:1], 2), make_mixed_vec_env(TASKS[:1], 2)):
        model = RecursivePPO("MultiInputPolicy", venv, n_steps=8, batch_size=8)
        with pytest.raises(ValueError, match="at least two tasks"):
            model.learn(16, callback=CurriculumCallback())
