"""Distillers on problems whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from remembered import buffer_of, episode, small_policy

from rao_agents.distillation import Distiller, NotEnoughError
from rao_agents.distillation.distillers.contrastive import ContrastiveDistiller, area_under_curve, contrastive_loss, separation
from rao_agents.distillation.distillers.improvement import ImprovementDistiller, centred
from rao_agents.distillation.distillers.skills import SkillDistiller
from rao_agents.distillation.episodes import states
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.segments import Frames

WIDTH, ACTIONS = 4, 3
DISTILLERS: dict[str, Any] = {
    "contrastive": lambda **kwargs: ContrastiveDistiller(**{"updates": 20, "priors": {"smoothness": 0.1, "bellman": 0.1}, **kwargs}),
    "improvement": lambda **kwargs: ImprovementDistiller(**{"updates": 20, "every": 1, **kwargs}),
    "skills": lambda **kwargs: SkillDistiller(**{"updates": 20, "n_skills": 3, **kwargs}),
}


def walks(rng: np.random.Generator, n: int = 40, gap: float = 1.0, length: int = 12) -> list[Any]:
    """Episodes in which only the mean of the second feature says whether they succeed; the last action does not matter."""
    result = []
    for i in range(n):
        success = bool(i % 2)
        obs = rng.normal(size=(length, WIDTH)).astype(np.float32)
        obs[:, 1] += gap if success else -gap
        result.append(episode(obs, rng.integers(ACTIONS, size=length), success=success, iteration=i))
    return result


# -- contrastive --------------------------------------------------------------------------------------


def test_contrastive_loss_is_the_published_formula() -> None:
    rng = np.random.default_rng(0)
    hidden, outcome, temperature = rng.normal(size=(6, 3)), np.array([0, 0, 0, 1, 1, 1]), 0.3
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    total = 0.0
    for i in range(6):
        others = [a for a in range(6) if a != i]
        denominator = sum(np.exp(unit[i] @ unit[a] / temperature) for a in others)
        positives = [a for a in others if outcome[a] == outcome[i]]
        total -= np.mean([np.log(np.exp(unit[i] @ unit[p] / temperature) / denominator) for p in positives])
    ours = contrastive_loss(th.as_tensor(hidden), th.as_tensor(outcome), temperature)
    assert float(ours) == pytest.approx(total / 6, rel=1e-9)


def test_area_and_separation() -> None:
    positive = np.array([True, True, False, False])
    assert area_under_curve(np.array([0.9, 0.8, 0.2, 0.1]), positive) == 1.0
    assert area_under_curve(np.array([0.1, 0.2, 0.8, 0.9]), positive) == 0.0
    assert area_under_curve(np.zeros(4), positive) == 0.5
    assert area_under_curve(np.array([1.0, 0.5, 0.5, 0.0]), positive) == 0.875
    assert separation(np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]]), positive) == pytest.approx(2.0)


def test_contrastive_separates_success_from_failure() -> None:
    rng = np.random.default_rng(1)
    buffer = buffer_of(walks(rng))
    knowledge = ContrastiveDistiller(updates=200).distil(small_policy(), buffer, None, rng)
    assert knowledge.figures["auc"] > 0.97 and knowledge.figures["accuracy"] > 0.9 and knowledge.figures["separation"] > 0.5
    # It says what it reads: the second feature.
    assert next(iter(knowledge.features)) == "[1]" and knowledge.features["[1]"] > 0.5
    # On episodes it has never seen, and from single states.
    fresh = states(walks(rng, gap=2.0))
    chances = knowledge.value(fresh.observations).numpy()
    assert area_under_curve(chances, fresh.success == 1) > 0.95 and chances.min() >= 0 and chances.max() <= 1
    unit = knowledge.embed(fresh.observations)
    assert unit.shape == (len(fresh), 32) and th.allclose(unit.norm(dim=1), th.ones(len(fresh)), atol=1e-5)
    assert separation(unit.numpy(), fresh.success == 1) > 0.3


def test_contrastive_finds_nothing_where_there_is_nothing() -> None:
    rng = np.random.default_rng(2)
    knowledge = ContrastiveDistiller(updates=60, holdout=0.5).distil(small_policy(), buffer_of(walks(rng, n=80, gap=0.0)), None, rng)
    assert abs(knowledge.figures["auc"] - 0.5) < 0.12


def test_contrastive_uses_the_outcome_of_each_frame() -> None:
    """A root that succeeds although one of its children fails: the states of each are told apart."""
    rng = np.random.default_rng(3)
    trees = []
    for _ in range(30):
        frame = np.array([0, 1, 1, 0, 2, 2, 0])
        verdicts = [True, True, False]  # of frames 0, 1 and 2
        obs = rng.normal(size=(7, WIDTH)).astype(np.float32)
        obs[:, 2] += np.where(frame == 2, -2.0, 2.0)
        trees.append(episode(obs, np.zeros(7), frame_id=frame, depth=(frame > 0), frames=[1, 2, 0], frame_success=[True, False, True]))
        assert verdicts == [True, True, False]
    knowledge = ContrastiveDistiller(updates=100).distil(small_policy(), buffer_of(trees), None, rng)
    assert knowledge.figures["auc"] > 0.95


def test_contrastive_bellman_prior_makes_chances_consistent() -> None:
    """Chances along a frame drift apart less with the prior than without."""

    def drift(weight: float) -> float:
        rng = np.random.default_rng(4)
        buffer = buffer_of(walks(rng, gap=0.7))
        knowledge = ContrastiveDistiller(updates=150, priors={"bellman": weight}).distil(small_policy(), buffer, None, rng)
        found = states(buffer.episodes())
        after = Frames(found).successors()
        chance = knowledge.value(found.observations).numpy()
        return float(np.square(chance[after[after >= 0]] - chance[after >= 0]).mean())

    assert drift(20.0) < 0.8 * drift(0.0)


def test_contrastive_says_what_is_missing() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(NotEnoughError, match="succeeded and frames that failed; there are 4 and 0"):
        ContrastiveDistiller().distil(small_policy(), buffer_of([e for e in walks(rng, 8) if e.success]), None, rng)


# -- improvement --------------------------------------------------------------------------------------


def drifting_policy(policy: Any, amount: float) -> None:
    """Adds `amount` times a known linear function of the observation to the logits: x0 for action 0, -x0 for action 1."""
    with th.no_grad():
        policy.action_net.weight[0] += amount * policy.direction
        policy.action_net.weight[1] -= amount * policy.direction


def linear_policy() -> Any:
    """A policy whose logits are linear in the observation."""
    policy = small_policy(hidden=())
    policy.direction = th.tensor([1.0, 0.0, 0.0, 0.0])
    return policy


def test_improvement_recovers_a_known_drift() -> None:
    rng = np.random.default_rng(0)
    policy, distiller = linear_policy(), ImprovementDistiller(every=2, updates=400, hidden=(32,))
    for iteration in range(1, 8):  # versions at 1, 3, 5, 7
        distiller.observe(policy, iteration)
        if iteration < 7:
            drifting_policy(policy, 0.2)
    obs = rng.normal(size=(60, 20, WIDTH)).astype(np.float32)
    buffer = buffer_of([episode(one, np.zeros(20)) for one in obs])
    before = [value.clone() for value in policy.parameters()]
    knowledge = distiller.distil(policy, buffer, None, rng)
    assert all(th.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert knowledge.figures["r2"] > 0.9 and knowledge.figures["steadiness"] > 0.8 and knowledge.figures["versions"] == 4
    assert next(iter(knowledge.features)) == "[0]"
    # The teacher is where the policy will be two iterations on.
    drifting_policy(policy, 0.4)
    test = rng.normal(size=(200, WIDTH)).astype(np.float32)
    with th.no_grad():
        future = policy.get_distribution(th.as_tensor(test)).distribution.logits
    ahead, now = knowledge.action_log_probs(test), knowledge.base.action_log_probs(test)
    assert th.allclose(ahead.exp().sum(dim=1), th.ones(200), atol=1e-5)
    gap_now = (future.exp() * (future - now)).sum(dim=1).mean()
    gap_ahead = (future.exp() * (future - ahead)).sum(dim=1).mean()
    assert gap_ahead < 0.1 * gap_now
    assert th.allclose((knowledge.move(test) * now.exp()).sum(dim=1), th.zeros(200), atol=1e-5)


def test_improvement_sees_that_there_is_no_direction() -> None:
    rng = np.random.default_rng(0)
    policy, distiller = linear_policy(), ImprovementDistiller(every=1, updates=20)
    for iteration, amount in enumerate((0.3, -0.3, 0.3, -0.3, 0.3)):
        distiller.observe(policy, iteration)
        drifting_policy(policy, amount)
    distiller.observe(policy, 5)
    knowledge = distiller.distil(policy, buffer_of(walks(rng)), None, rng)
    assert knowledge.figures["steadiness"] < 0.1


def test_improvement_respects_masks() -> None:
    moves, log_probs = th.tensor([[1.0, 2.0, 3.0]]), th.log_softmax(th.tensor([[0.0, 0.0, -1e8]]), dim=1)
    assert centred(moves, log_probs, th.tensor([[True, True, False]])).tolist() == [[-0.5, 0.5, 0.0]]
    assert centred(moves, th.log_softmax(th.zeros(1, 3), dim=1), None).tolist() == [pytest.approx([-1.0, 0.0, 1.0], abs=1e-6)]


def test_improvement_needs_an_older_version() -> None:
    rng = np.random.default_rng(0)
    distiller = ImprovementDistiller()
    with pytest.raises(NotEnoughError, match="older than the present one"):
        distiller.distil(small_policy(), buffer_of(walks(rng, 4)), None, rng)
    distiller.observe(small_policy(), 3)
    distiller.observe(small_policy(), 9)
    distiller.rolled_back(5)
    assert [snapshot.iteration for snapshot in distiller.snapshots.kept] == [3] and distiller.latest == 5


# -- skills -------------------------------------------------------------------------------------------


def scripted(rng: np.random.Generator, n: int = 90, length: int = 24) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Episodes of three behaviours that see the same states.

    0 always does action 0; 1 does 1 and 2 by turns of the first feature; 2 does what is opposite to 1.
    """
    behaviours, episodes = np.arange(n) % 3, []
    for behaviour in behaviours:
        obs = rng.normal(size=(length, WIDTH)).astype(np.float32)
        side = obs[:, 0] > 0
        actions = {0: np.zeros(length), 1: np.where(side, 1, 2), 2: np.where(side, 2, 1)}[int(behaviour)]
        slip = rng.random(length) < 0.05
        actions = np.where(slip, rng.integers(ACTIONS, size=length), actions)
        episodes.append(episode(obs, actions, success=bool(behaviour), task=int(behaviour)))
    return episodes, behaviours


def mutual_information(a: Any, b: Any) -> float:
    """Normalised (by the mean entropy)."""
    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), 1.0 / len(a))
    rows, columns = table.sum(axis=1), table.sum(axis=0)

    def entropy(p: Any) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    joint = entropy(table.ravel())
    return (entropy(rows) + entropy(columns) - joint) / (0.5 * (entropy(rows) + entropy(columns)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_skills_recover_scripted_behaviours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, _ = scripted(rng)
    buffer = buffer_of(episodes)
    knowledge = SkillDistiller(n_skills=3, updates=400).distil(small_policy(), buffer, None, rng)
    found = states(buffer.episodes())
    frames = Frames(found)
    rows, frame = frames.windows(8)
    truth = np.array([one.task for one in buffer.episodes()])[frames.episode[frame]]
    guess = knowledge.assign(found.observations, found.actions, rows).argmax(dim=1).numpy()
    assert mutual_information(truth, guess) > 0.9
    assert knowledge.figures["elbo"] > knowledge.figures["memoryless"] + 0.2 and knowledge.figures["used"] == 3
    library = knowledge.skills
    still = max(library, key=lambda skill: skill.actions[0])
    assert still.actions[0] > 0.85 and still.share == pytest.approx(1 / 3, abs=0.05)
    assert still.success < 0.1 and all(skill.success > 0.9 for skill in library if skill is not still)
    # What the skills do is what was scripted.
    test = np.zeros((2, WIDTH), np.float32)
    test[:, 0] = [-1.5, 1.5]
    does = {tuple(library.policy(skill.number, test).argmax(dim=1).tolist()) for skill in library}
    assert does == {(0, 0), (2, 1), (1, 2)}
    # Failures are not what the selector chooses.
    assert float(knowledge.choice(test)[:, still.number].max()) < 0.2
    assert th.allclose(knowledge.action_log_probs(test).exp().sum(dim=1), th.ones(2), atol=1e-5)


def test_skill_library_lists_draws_and_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    episodes, _ = scripted(rng, n=30)
    knowledge = SkillDistiller(n_skills=3, updates=200).distil(small_policy(), buffer_of(episodes), None, rng)
    library = knowledge.skills
    assert len(library) == 3 and library[0].number == 0 and str(library).count("\n") == 2 and "skill 1: " in str(library)
    library.draw(tmp_path / "skills.png", ["wait", "left", "right"])
    assert (tmp_path / "skills.png").stat().st_size > 5000
    obs, masks = np.zeros((500, WIDTH), np.float32), np.tile([True, False, True], (500, 1))
    actions, skills = library.sample(rng, obs, masks)
    assert set(actions.tolist()) <= {0, 2} and skills.shape == (500,)
    still = max(library, key=lambda skill: skill.actions[0]).number
    assert (library.sample(rng, obs, None, still)[0] == 0).mean() > 0.8
    with pytest.raises(ValueError, match="skills 0 to 2, not 3"):
        library.sample(rng, obs, None, 3)
    with pytest.raises(ValueError, match="3 actions, but 2 names"):
        library.draw(action_names=["a", "b"])


# -- all ----------------------------------------------------------------------------------------------


def ready(name: str, **kwargs: Any) -> tuple[Any, Any]:
    th.manual_seed(0)
    distiller, policy = DISTILLERS[name](**kwargs), small_policy()
    distiller.observe(policy, 1)
    with th.no_grad():
        policy.action_net.bias += th.tensor([0.3, 0.0, -0.3])
    distiller.observe(policy, 2)
    return distiller, policy


@pytest.mark.parametrize("name", DISTILLERS)
def test_reproducible_and_alone_with_its_generator(name: str) -> None:
    """The same seed gives the same knowledge, and nothing else draws from torch's or NumPy's global generators."""
    contents = []
    for noise in (1, 2):
        distiller, policy = ready(name)
        th.manual_seed(noise)
        before = th.get_rng_state()
        knowledge = distiller.distil(policy, buffer_of(walks(np.random.default_rng(5))), None, np.random.default_rng(6))
        assert th.equal(before, th.get_rng_state())
        contents.append(knowledge.to_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", DISTILLERS)
def test_goes_on_from_what_came_before(name: str) -> None:
    """With `previous`, little training ends where a long one does."""
    rng = np.random.default_rng(0)
    distiller, policy = ready(name, updates=150)
    buffer = buffer_of(scripted(rng, n=30)[0] if name == "skills" else walks(rng))
    first = distiller.distil(policy, buffer, None, np.random.default_rng(0))
    short, _ = ready(name, updates=1)
    alone = short.distil(policy, buffer, None, np.random.default_rng(1))
    warm = short.distil(policy, buffer, first, np.random.default_rng(1))
    figure, sign = ("elbo", -1) if name == "skills" else ("loss", 1)
    assert sign * warm.figures[figure] < sign * alone.figures[figure] - 0.01 * abs(alone.figures[figure])


@pytest.mark.parametrize("name", DISTILLERS)
def test_arguments_state_and_file(name: str, tmp_path: Path) -> None:
    distiller, policy = ready(name)
    assert isinstance(distiller, Distiller)
    twin = type(distiller)(**distiller.config())
    assert twin.config() == distiller.config() and repr(twin) == repr(distiller)
    twin.set_state(distiller.state())
    buffer = buffer_of(walks(np.random.default_rng(5)))
    ours, theirs = (one.distil(policy, buffer, None, np.random.default_rng(6)) for one in (distiller, twin))
    assert ours.to_bytes() == theirs.to_bytes()
    ours.save(tmp_path / "knowledge")
    loaded = Knowledge.load(tmp_path / "knowledge.zip")
    assert type(loaded) is type(ours) and loaded.inspect() == ours.inspect() and str(loaded) == str(ours)
    obs = np.random.default_rng(0).normal(size=(5, WIDTH)).astype(np.float32)
    for capability in ("action_log_probs", "value", "embed"):
        mine, other = getattr(ours, capability)(obs), getattr(loaded, capability)(obs)
        assert (mine is not None) == (capability in ours.offers)
        assert mine is None or th.equal(mine, other)
    assert (ours.skills is not None) == ("skills" in ours.offers)
    assert ours.provenance.episodes == 40 and ours.provenance.successes == 20 and ours.provenance.iteration == 39
    assert sum(ours.importance.values()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="must be an integer"):
        type(distiller)(updates=0)
    with pytest.raises(ValueError, match=r"state|remembers nothing"):
        twin.set_state({"nonsense": 1})


@pytest.mark.parametrize("name", DISTILLERS)
def test_nothing_remembered(name: str) -> None:
    distiller, policy = ready(name)
    with pytest.raises(NotEnoughError, match="no episodes"):
        distiller.distil(policy, buffer_of([]), None, np.random.default_rng(0))
