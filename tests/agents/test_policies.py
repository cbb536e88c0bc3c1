"""The delegation head: its distribution by hand, masks, gradients, and the policies around it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from toy_envs import LampTree

from rao_agents import DelegationPolicy, MultiInputDelegationPolicy, SharedMLPExtractor, schedules
from rao_agents.policies import DelegationDistribution, DelegationHead

SPAWNS = [1, 3]
P, S = [0, 2, 4], SPAWNS


def distribution(logits: Any, margin: Any, masks: Any = None, requires_grad: bool = False) -> tuple[DelegationDistribution, th.Tensor]:
    logits = th.as_tensor(np.atleast_2d(logits), dtype=th.float32)
    margin = th.as_tensor(margin, dtype=th.float32).reshape(-1, 1).expand(len(logits), 1)
    net = th.cat([logits, margin], dim=1).requires_grad_(requires_grad)
    dist = DelegationDistribution(5, SPAWNS).proba_distribution(net)
    if masks is not None:
        dist.apply_masking(np.atleast_2d(masks))
    return dist, net


def softmax(x: Any) -> Any:
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def test_probabilities_by_hand() -> None:
    logits = np.array([0.5, -1.0, 2.0, 0.3, 0.0])
    dist, _ = distribution(logits, 0.7)
    gate = 1 / (1 + np.exp(-0.7))
    expected = np.empty(5)
    expected[S] = gate * softmax(logits[S])
    expected[P] = (1 - gate) * softmax(logits[P])
    np.testing.assert_allclose(dist.probs[0], expected, rtol=1e-5)
    assert dist.entropy().item() == pytest.approx(-(expected * np.log(expected)).sum(), rel=1e-5)
    for action in range(5):
        assert dist.log_prob(th.tensor([action])).item() == pytest.approx(np.log(expected[action]), rel=1e-5)
    np.testing.assert_allclose(dist.distribution.probs[0], expected, rtol=1e-5)


def test_masks_by_hand() -> None:
    logits = np.array([0.5, -1.0, 2.0, 0.3, 0.0])
    dist, _ = distribution(logits, 0.7, [1, 0, 0, 1, 1])
    gate = 1 / (1 + np.exp(-0.7))
    expected = np.zeros(5)
    expected[3] = gate
    expected[[0, 4]] = (1 - gate) * softmax(logits[[0, 4]])
    np.testing.assert_allclose(dist.probs[0], expected, rtol=1e-5)


@pytest.mark.parametrize("margin", [-50.0, 0.3, 50.0])
@pytest.mark.parametrize("side", [P, S])
def test_one_sided_masks_force_the_gate(margin: float, side: list[int]) -> None:
    """The closed side has probability exactly 0, the score no influence or gradient, and nothing is NaN."""
    masks = np.zeros(5)
    masks[side] = 1
    logits = np.array([0.5, -1.0, 2.0, 0.3, 0.0])
    dist, net = distribution(logits, margin, masks, requires_grad=True)
    np.testing.assert_allclose(dist.probs[0, side].detach(), softmax(logits[side]), rtol=1e-5)
    assert dist.probs.sum().item() == pytest.approx(1.0)
    other = [a for a in range(5) if a not in side]
    assert (dist.probs[0, other] == 0).all()
    (dist.log_prob(th.tensor([side[0]])) + dist.entropy()).sum().backward()
    assert net.grad is not None and th.isfinite(net.grad).all()
    assert (net.grad[0, [*other, 5]] == 0).all() and (net.grad[0, side] != 0).any()
    assert dist.mode().item() == side[int(np.argmax(logits[side]))]


def test_extreme_scores_stay_finite() -> None:
    dist, net = distribution([[0.0] * 5] * 2, [[200.0], [-200.0]], np.ones((2, 5)), requires_grad=True)
    total = dist.log_prob(th.tensor([0, 1])) + dist.entropy()
    total.sum().backward()
    assert th.isfinite(total).all() and net.grad is not None and th.isfinite(net.grad).all()


def test_row_that_allows_nothing_allows_everything() -> None:
    closed, _ = distribution([0.1, 0.2, 0.3, 0.4, 0.5], 0.0, np.zeros(5))
    free, _ = distribution([0.1, 0.2, 0.3, 0.4, 0.5], 0.0)
    assert th.equal(closed.probs, free.probs)
    assert th.isfinite(closed.sample()).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_mask_gives_a_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.random((6, 5)) < rng.random()
    dist, net = distribution(rng.normal(0, 5, (6, 5)), rng.normal(0, 5, 6), masks, requires_grad=True)
    probs = dist.probs
    np.testing.assert_allclose(probs.detach().sum(1), 1.0, rtol=1e-4)
    allowed = masks | ~masks.any(1, keepdims=True)
    assert (probs.detach().numpy()[~allowed] == 0).all()
    for actions in (dist.sample(), dist.mode()):
        assert allowed[np.arange(6), actions.numpy()].all()
    (dist.entropy().sum() + dist.log_prob(dist.mode()).sum()).backward()
    assert net.grad is not None and th.isfinite(net.grad).all()


def test_deterministic_delegates_exactly_above_the_threshold() -> None:
    """With both sides open the sign of score - threshold decides, then the side's best logit."""
    rng = np.random.default_rng(0)
    logits, margin = rng.normal(0, 3, (500, 5)), rng.normal(0, 0.1, 500)
    dist, _ = distribution(logits, margin, np.ones((500, 5)))
    mode = dist.mode().numpy()
    assert np.array_equal(np.isin(mode, S), margin > 0)
    for row in range(500):
        side = S if margin[row] > 0 else P
        assert mode[row] == side[int(np.argmax(logits[row, side]))]


def test_samples_follow_the_probabilities() -> None:
    th.manual_seed(0)
    dist, _ = distribution([[0.5, -1.0, 2.0, 0.3, 0.0]] * 20_000, 0.7)
    frequency = np.bincount(dist.sample().numpy(), minlength=5) / 20_000
    np.testing.assert_allclose(frequency, dist.probs[0], atol=0.012)


def test_head_has_no_bias_in_its_score_and_a_learned_threshold() -> None:
    head = DelegationHead(4, 5, initial_threshold=1.5, threshold_scale=10.0)
    assert head.score.bias is None
    out = head(th.zeros(2, 4))
    assert out.shape == (2, 6) and th.allclose(out[:, 5], th.tensor(-1.5))
    out[:, 5].sum().backward()
    assert head.raw_threshold.grad is not None and head.raw_threshold.grad.item() == pytest.approx(-20.0)
    with pytest.raises(ValueError, match="threshold_scale"):
        DelegationHead(4, 5, threshold_scale=0.0)


def make_policy(cls: Any = MultiInputDelegationPolicy, **kwargs: Any) -> Any:
    env = LampTree()
    th.manual_seed(0)
    return cls(env.observation_space, env.action_space, schedules.constant(1e-3), **kwargs)


def batch(policy: Any, n: int = 64) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    obs = {
        "task": rng.integers(-1, 2, (n, 4)).astype(np.int8),
        "call": rng.random((n, 1)).astype(np.float32),
        "action_mask": np.ones((n, 6), np.int8),
    }
    return obs, policy.obs_to_tensor(obs)[0]


def test_threshold_is_a_knob_and_a_parameter() -> None:
    policy = make_policy(spawn_actions=[3, 4, 5])
    obs, tensors = batch(policy)
    score = policy.delegation_score(tensors).detach().numpy()
    policy.delegation_threshold = float(np.median(score))
    assert policy.delegation_threshold == pytest.approx(np.median(score), abs=1e-6)
    actions, _ = policy.predict(obs, deterministic=True)
    assert np.array_equal(actions >= 3, score > policy.delegation_threshold)
    for threshold, rate in ((-100.0, 1.0), (100.0, 0.0)):
        policy.delegation_threshold = threshold
        assert (policy.predict(obs)[0] >= 3).mean() == rate
    assert any(parameter is policy.action_net.raw_threshold for parameter in policy.optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("kwargs", [{}, {"spawn_actions": [3, 4, 5], "delegation_head": False}])
def test_without_a_head_it_is_the_base_policy(kwargs: dict[str, Any]) -> None:
    ours, base = make_policy(**kwargs), make_policy(MaskableMultiInputActorCriticPolicy)
    assert ours.state_dict().keys() == base.state_dict().keys()
    assert all(th.equal(a, b) for a, b in zip(ours.state_dict().values(), base.state_dict().values(), strict=True))
    with pytest.raises(RuntimeError, match="no delegation head"):
        _ = ours.delegation_threshold


def test_predict_takes_masks_from_the_observation() -> None:
    policy = make_policy(spawn_actions=[3, 4, 5])
    obs, _ = batch(policy)
    obs["action_mask"][:] = [0, 0, 1, 0, 1, 0]
    for deterministic in (True, False):
        assert np.isin(policy.predict(obs, deterministic=deterministic)[0], [2, 4]).all()
    one = {key: value[0] for key, value in obs.items()}
    assert policy.predict(one)[0].shape == () and policy.predict(one)[0] in (2, 4)
    explicit = np.zeros((64, 6), bool)
    explicit[:, 0] = True
    assert (policy.predict(obs, action_masks=explicit)[0] == 0).all()
    with pytest.raises(ValueError, match="norm_obs_keys"):
        policy.predict({**obs, "action_mask": obs["action_mask"] * 0.3})


def test_predict_hands_the_state_through() -> None:
    policy = make_policy(spawn_actions=[3, 4, 5])
    obs, _ = batch(policy)
    state = (np.arange(3),)
    assert policy.predict(obs, state=state)[1] is state


def test_score_counts_decisions_only() -> None:
    policy = make_policy(spawn_actions=[3, 4, 5])
    _, tensors = batch(policy, 4)
    masks = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0]], bool)
    with th.no_grad():
        policy(tensors, action_masks=masks)
    score = policy.delegation_score(tensors).detach().numpy()
    assert policy.pop_delegation_score() == pytest.approx(score[[0, 3]].mean(), abs=1e-6)
    assert policy.pop_delegation_score() is None


def test_threshold_of_the_situation() -> None:
    """Constant plus what a small network makes of `call`, bounded; nothing else moves it, and the knob moves all of it."""
    policy = make_policy(spawn_actions=[3, 4, 5], threshold="situation", threshold_reach=2.0, initial_threshold=0.5)
    obs, tensors = batch(policy)
    head = policy.action_net
    with th.no_grad():
        for parameter in head.situation.parameters():
            parameter.mul_(300.0)
        thresholds = policy.delegation_thresholds(tensors)
        shift = head.situation(tensors["call"]).squeeze(1)
        np.testing.assert_allclose(thresholds, 0.5 + 2.0 * th.tanh(shift), atol=1e-6)
        assert thresholds.std() > 0.1 and (thresholds - 0.5).abs().max() <= 2.0
        other = {**tensors, "task": -tensors["task"]}
        assert th.equal(policy.delegation_thresholds(other), thresholds)
        assert not th.equal(policy.delegation_score(other), policy.delegation_score(tensors))
        score = policy.delegation_score(tensors)
        distribution = policy.get_distribution(tensors)
        np.testing.assert_allclose(distribution.margin.squeeze(1), score - thresholds, atol=1e-6)
    actions, _ = policy.predict(obs, deterministic=True)
    assert np.array_equal(actions >= 3, (score > thresholds).numpy())
    policy.delegation_threshold = 1.75
    np.testing.assert_allclose(policy.delegation_thresholds(tensors).detach(), thresholds + 1.25, atol=1e-5)
    policy.delegation_threshold = 100.0
    assert (policy.predict(obs)[0] < 3).all()


def test_threshold_of_the_situation_is_learned_and_kept() -> None:
    """From the margin alone: where little budget is left the threshold falls, elsewhere it rises."""
    policy = make_policy(spawn_actions=[3, 4, 5], threshold="situation")
    _, tensors = batch(policy)
    late = tensors["call"].squeeze(1) < 0.5
    for _ in range(300):
        policy.optimizer.zero_grad()
        margin = -policy.delegation_thresholds(tensors)
        th.nn.functional.binary_cross_entropy_with_logits(margin, late.float()).backward()
        policy.optimizer.step()
    thresholds = policy.delegation_thresholds(tensors).detach()
    assert thresholds[late].mean() < -0.2 and thresholds[~late].mean() > 0.2
    file = io.BytesIO()
    policy.save(file)
    file.seek(0)
    loaded = MultiInputDelegationPolicy.load(file, device="cpu")
    assert th.equal(loaded.delegation_thresholds(tensors).detach(), thresholds)


def test_mean_threshold_of_the_decisions() -> None:
    policy = make_policy(spawn_actions=[3, 4, 5], threshold="situation")
    _, tensors = batch(policy, 4)
    with th.no_grad():
        for parameter in policy.action_net.situation.parameters():
            parameter.mul_(300.0)
        policy(tensors, action_masks=np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0]], bool))
        score, threshold = (x(tensors).numpy()[[0, 3]].mean() for x in (policy.delegation_score, policy.delegation_thresholds))
    assert policy.pop_delegation_figures() == pytest.approx((score, threshold), abs=1e-5)
    assert policy.pop_delegation_figures() is None


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"threshold": "mood"}, "threshold must be one of constant, situation"),
        ({"threshold": "situation", "threshold_keys": ["budget"]}, "'budget'.* cannot be used: the observation has the keys"),
        ({"threshold": "situation", "threshold_keys": "call"}, "threshold_keys must list at least one key"),
        ({"threshold": "situation", "threshold_reach": 0.0}, "threshold_reach must be positive"),
    ],
)
def test_wrong_thresholds(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(spawn_actions=[3, 4, 5], **kwargs)


def test_policy_file_round_trip(tmp_path: Any) -> None:
    policy = make_policy(spawn_actions=[3, 4, 5], share_features_extractor=False, net_arch=[8], initial_threshold=0.25)
    obs, _ = batch(policy)
    policy.save(tmp_path / "p")
    loaded = MultiInputDelegationPolicy.load(tmp_path / "p", device="cpu")
    assert loaded.share_features_extractor is False and loaded.spawn_actions == (3, 4, 5)
    assert loaded.delegation_threshold == pytest.approx(0.25)
    assert np.array_equal(policy.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    with pytest.raises(ValueError, match="not a DelegationPolicy"):
        DelegationPolicy.load(tmp_path / "p")
    file = io.BytesIO()
    policy.save(file)
    file.seek(0)
    assert MultiInputDelegationPolicy.load(file).spawn_actions == (3, 4, 5)


def test_shared_extractor() -> None:
    space = LampTree().observation_space
    assert isinstance(space, spaces.Dict)
    extractor = SharedMLPExtractor(space, features_dim=32, n_layers=2, ignore=["action_mask"])
    weights = [layer.weight.shape for layer in extractor.layers if isinstance(layer, th.nn.Linear)]
    assert weights == [(32, 5), (32, 32)]
    obs = {key: th.zeros(7, *space[key].shape or ()) for key in space}
    assert extractor(obs).shape == (7, 32)
    assert SharedMLPExtractor(spaces.Box(0, 1, (2, 3)), 8)(th.zeros(4, 2, 3)).shape == (4, 8)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ignore": ["nothing"]}, "not among the keys"),
        ({"n_layers": 0}, "at least 1"),
        ({"ignore": list(space)}, "leaves no key"),
    ]
    for kwargs, message in wrong:
        with pytest.raises(ValueError, match=message):
            SharedMLPExtractor(space, **kwargs)
    policy = make_policy(spawn_actions=[3, 4, 5], features_extractor_class=SharedMLPExtractor, net_arch=[16])
    obs_numpy, _ = batch(policy)
    assert policy.predict(obs_numpy)[0].shape == (64,)
    assert policy.pi_features_extractor is policy.vf_features_extractor


def test_products_of_inputs_are_features_from_the_first_step() -> None:
    extractor = SharedMLPExtractor(spaces.Box(0, 1, (4,)), features_dim=1, activation_fn=th.nn.Identity, products=1)
    with th.no_grad():
        for parameter in extractor.parameters():
            parameter.zero_()
        assert extractor.factors is not None
        extractor.factors.weight[0, 0] = extractor.factors.weight[1, 3] = 1.0  # type: ignore[index]
        extractor.layers[0].weight[0, 4] = 1.0  # type: ignore[index]
    both = th.tensor([[1.0, 0, 0, 1], [1.0, 1, 1, 0], [0, 0, 0, 1.0]])
    assert extractor(both).flatten().tolist() == [1.0, 0.0, 0.0]
    assert SharedMLPExtractor(spaces.Box(0, 1, (4,))).factors is None
    with pytest.raises(ValueError, match="products must be at least 0"):
        SharedMLPExtractor(spaces.Box(0, 1, (4,)), products=-1)
