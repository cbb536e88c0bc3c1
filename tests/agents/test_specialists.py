"""Specialists: the right network acts on and learns from each row, and only that one; and what only they can solve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from role_envs import contradictions
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from toy_envs import LampTree, lamps

from rao_agents import MultiInputDelegationPolicy, RecursiveA2C, RecursivePPO, SharedMLPExtractor, schedules
from rao_agents.frame_key import FRAME_KEY, has_frame, policy_space, require_frame, without_frame
from rao_agents.specialists import Route, how_many


def policy(env: Any = None, **kwargs: Any) -> Any:
    env = env or LampTree(observe_frame=True)
    th.manual_seed(0)
    options: dict[str, Any] = {"spawn_actions": [3, 4, 5], "net_arch": [8], **kwargs}
    return MultiInputDelegationPolicy(env.observation_space, env.action_space, schedules.constant(1e-2), **options)


def batch(depth: Any, action: Any = -1) -> dict[str, th.Tensor]:
    """Observations of frames at these depths, opened by these actions; otherwise random."""
    depth = np.asarray(depth)
    rng = np.random.default_rng(0)
    n = len(depth)
    return {
        "task": th.as_tensor(rng.integers(-1, 2, (n, 4)).astype(np.int8)),
        "call": th.as_tensor(rng.random((n, 1)).astype(np.float32)),
        "action_mask": th.ones(n, 6),
        "frame": th.as_tensor(np.stack([depth, np.zeros(n, int), np.broadcast_to(action, n)], 1).astype(np.int32)),
    }


def loss(net: Any, obs: dict[str, th.Tensor], rows: Any = slice(None)) -> th.Tensor:
    actions = th.arange(len(obs["task"])) % 6
    values, log_prob, entropy = net.evaluate_actions(obs, actions)
    return (values.flatten() + log_prob + entropy)[rows].sum()  # type: ignore[no-any-return]


def gradients(net: Any, number: int) -> dict[str, th.Tensor]:
    """Of one specialist's parameters; zeros where there are none."""
    mark = f"specialists.{number}."
    return {name.replace(mark, ""): th.zeros_like(p) if p.grad is None else p.grad for name, p in net.named_parameters() if mark in name}


def test_which_specialist_acts() -> None:
    level = Route("level", 3, [3, 4, 5], 6)
    frames = th.tensor([[0, 1, -1], [1, 0, 3], [2, 0, 4], [3, 1, 5], [9, 0, 3]], dtype=th.int32)
    assert level.of(frames).tolist() == [0, 1, 2, 2, 2]
    assert Route("role", 4, [3, 4, 5], 6).of(frames).tolist() == [0, 1, 2, 3, 1]
    assert Route("role", 3, [3, 4, 5], 6).of(frames).tolist() == [0, 1, 2, 2, 1], "the last roles share one"
    with pytest.raises(ValueError, match="norm_obs_keys"):
        level.of(frames.float() * 0.3)
    assert policy(specialists="role").specialist(batch([0, 1, 2], [-1, 4, 5])).tolist() == [0, 2, 3]
    assert policy().specialist(batch([0, 1, 2])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["level", "role"])
@pytest.mark.parametrize("share", [True, False])
def test_gradients_reach_the_specialist_of_the_row_and_no_other(kind: str, share: bool) -> None:
    """Those of a mixed batch are those of each specialist's own rows, to rounding; of the others' rows exactly none."""
    net = policy(specialists=kind, n_specialists=3, share_features_extractor=share, features_extractor_class=SharedMLPExtractor)
    obs = batch([0, 1, 2, 0, 1, 2, 3, 0], [-1, 3, 4, -1, 3, 4, 5, -1])
    index = net.specialist(obs)
    loss(net, obs).backward()
    mixed = [gradients(net, number) for number in range(3)]
    for number in range(3):
        net.zero_grad()
        loss(net, obs, index == number).backward()
        for other in range(3):
            found = gradients(net, other)
            assert len(found) == len(mixed[other]) > 0
            for name, gradient in found.items():
                if other == number:
                    np.testing.assert_allclose(gradient, mixed[number][name], atol=1e-5, err_msg=name)
                    assert "features" in name or "situation" in name or (gradient != 0).any(), name
                else:
                    assert (gradient == 0).all(), name


def test_rows_do_not_depend_on_each_other() -> None:
    """Not to the last bit, while acting: whoever else is in the batch."""
    net = policy(specialists="level", n_specialists=3)
    with th.no_grad():
        for number, p in enumerate(net.parameters()):
            p.add_(0.1 * th.randn(p.shape, generator=th.Generator().manual_seed(number)))
        obs = batch([0, 1, 2, 1, 0, 2])
        whole = net.get_distribution(obs).log_probs.clone()
        for level in range(3):
            same = {**obs, "frame": batch([level] * 6)["frame"]}
            rows = np.flatnonzero(net.specialist(obs) == level)
            assert th.equal(net.get_distribution(same).log_probs[rows], whole[rows])
    # With gradients each network is given its own rows only: equal to rounding.
    np.testing.assert_allclose(net.get_distribution(obs).log_probs.detach(), whole, atol=1e-6)


def test_they_begin_as_copies_and_grow_apart() -> None:
    one, many = policy(), policy(specialists="level", n_specialists=3)
    obs = batch([0, 1, 2, 3])
    with th.no_grad():
        assert th.equal(one.get_distribution(obs).log_probs, many.get_distribution(obs).log_probs)
        assert th.equal(one.predict_values(obs), many.predict_values(obs))
    assert sum(p.numel() for p in many.parameters()) == 3 * sum(p.numel() for p in one.parameters())
    assert {id(p) for group in many.optimizer.param_groups for p in group["params"]} == {id(p) for p in many.parameters()}
    loss(many, batch([1, 1])).backward()
    many.optimizer.step()
    after = [many.get_distribution(batch([level] * 4)).log_probs for level in range(3)]
    assert th.equal(after[0], after[2]) and not th.equal(after[0], after[1])


def test_extractors_may_be_shared() -> None:
    class Common(SharedMLPExtractor):
        shared_by_specialists = True

    net = policy(specialists="level", features_extractor_class=Common)
    assert isinstance(net.features_extractor, Common) and net.vf_features_extractor is net.features_extractor
    assert net.evaluate_actions(batch([0, 1, 2]), th.zeros(3))[0].shape == (3, 1)


def success(model: Any, by: str) -> float:
    rewards, _ = evaluate_policy(model, contradictions(by, 4, seed=1), 100, deterministic=False, return_episode_rewards=True, warn=False)
    return float(np.mean(rewards))


@pytest.mark.parametrize("by", ["role", "level"])
def test_what_one_network_cannot_do(by: str, tmp_path: Path) -> None:
    """Who must answer sees the same whoever it is: two answers at random are right in a quarter of the episodes, at best."""
    options: dict[str, Any] = {
        "n_steps": 32, "learning_rate": 0.01, "batch_size": 128, "n_epochs": 4, "seed": 0, "device": "cpu", "ent_coef": 0.01,
        "policy_kwargs": {"net_arch": [16]},
    }  # fmt: skip
    one = RecursivePPO("MultiInputPolicy", contradictions(by), **options).learn(8_000)
    assert success(one, by) < 0.4
    many = RecursivePPO("MultiInputPolicy", contradictions(by), specialists=by, **options).learn(8_000)
    assert success(many, by) > 0.95
    many.save(tmp_path / "many")
    loaded = RecursivePPO.load(tmp_path / "many", device="cpu")
    assert loaded.policy.networks == {"role": 3, "level": 2}[by]  # type: ignore[attr-defined]
    assert success(loaded, by) > 0.95


def test_with_advantage_actor_critic() -> None:
    model = RecursiveA2C(
        "MultiInputPolicy", contradictions("role"), specialists="role", learning_rate=0.003, seed=0, device="cpu", n_steps=8
    )
    assert success(model.learn(25_000), "role") > 0.9


def test_shares_are_logged() -> None:
    model = RecursivePPO("MultiInputPolicy", contradictions("role"), specialists="role", n_steps=16, batch_size=64, device="cpu", seed=0)
    logged: dict[str, float] = {}
    record = model._record_rollout
    model._record_rollout = lambda buffer: (record(buffer), logged.update(model.logger.name_to_value))  # type: ignore[method-assign,assignment,func-returns-value]
    model.learn(256)
    shares = [logged[f"specialists/{number}"] for number in range(3)]
    assert sum(shares) == pytest.approx(1.0) and all(share > 0.1 for share in shares)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"specialists": "team"}, "specialists must be one of none, level, role, got 'team'"),
        ({"specialists": "level", "n_specialists": 1}, "n_specialists must be a whole number of at least 2"),
        ({"specialists": "level", "n_specialists": 2.5}, "n_specialists must be a whole number of at least 2"),
        ({"specialists": "role", "n_specialists": 9}, "there are 4 roles here"),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecursivePPO("MultiInputPolicy", lamps(1, observe_frame=True), **kwargs)


def test_without_frames_there_are_no_specialists() -> None:
    for env, name, problem in (
        (lamps(1), "MultiInputPolicy", "has no such key"),
        (lamps(1, vector=True), "MlpPolicy", "is not a dictionary"),
    ):
        with pytest.raises(ValueError, match=f"specialists='level' needs the key 'frame' .*{problem}(.|\n)*observe_frame=True"):
            RecursivePPO(name, env, specialists="level")
    blind = {key: value for key, value in batch([0]).items() if key != "frame"}
    with pytest.raises(ValueError, match="observe_frame=True"):
        policy(specialists="level").predict_values(blind)
    # A monolithic twin has one frame: the base algorithm, whatever is asked for.
    twin = RecursivePPO("MultiInputPolicy", lamps(1, spawn=False), specialists="level", device="cpu")
    assert twin.policy.networks == 1  # type: ignore[attr-defined]
    assert how_many("role", None, [3, 4]) == 3 and how_many("level", None, []) == 2 and how_many("level", 5, []) == 5


class Everything(BaseFeaturesExtractor):
    """Takes whatever keys it is given."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__(observation_space, sum(int(np.prod(space.shape or ())) for space in observation_space.values()))
        self.keys = list(observation_space.spaces)

    def forward(self, observations: dict[str, th.Tensor]) -> th.Tensor:
        assert set(observations) == set(self.keys)
        return th.cat([observations[key].flatten(1) for key in self.keys], 1)


@pytest.mark.parametrize("kwargs", [{}, {"specialists": "level"}, {"share_features_extractor": False}])
def test_no_network_is_shown_the_frame(kwargs: dict[str, Any]) -> None:
    net = policy(features_extractor_class=Everything, **kwargs)
    assert net.features_dim == 4 + 1 + 6
    with th.no_grad():
        obs = batch([0, 0, 0, 0])
        other = {**obs, "frame": obs["frame"] + th.tensor([0, 1, 4], dtype=th.int32)}
        for look in (net.get_distribution, net.predict_values, net.delegation_score, lambda o: net.evaluate_actions(o, th.zeros(4))[1]):
            a, b = look(obs), look(other)
            a, b = (x if isinstance(x, th.Tensor) else x.log_probs for x in (a, b))
            assert th.equal(a, b)


def test_observing_frames_changes_nothing_else() -> None:
    nets = []
    for observe in (False, True):
        model = RecursivePPO("MultiInputPolicy", lamps(2, seed=3, observe_frame=observe), n_steps=16, batch_size=16, seed=0, device="cpu")
        nets.append(model.learn(64).policy.state_dict())
    assert nets[0].keys() == nets[1].keys()
    assert all(th.equal(nets[0][name], nets[1][name]) for name in nets[0])


def test_the_key_itself() -> None:
    space = LampTree(observe_frame=True).observation_space
    assert has_frame(space) and not has_frame(policy_space(space)) and FRAME_KEY not in policy_space(space)  # type: ignore[operator]
    plain = LampTree().observation_space
    assert policy_space(plain) is plain and not has_frame(spaces.Dict({"frame": spaces.Box(0, 255, (8, 8))}))
    assert without_frame({"frame": 1, "task": 2}) == {"task": 2}
    require_frame(space, "this")
    with pytest.raises(ValueError, match="this needs the key 'frame'"):
        require_frame(plain, "this")


@pytest.mark.parametrize(("name", "value"), [("specialists", "level"), ("specialists", "role"), ("threshold", "situation")])
def test_other_peoples_policies_are_refused(name: str, value: str) -> None:
    """They would act without, in silence."""
    with pytest.raises(ValueError, match=f"{name}='{value}' needs a policy of this package"):
        RecursivePPO(MaskableMultiInputActorCriticPolicy, lamps(1, observe_frame=True), **{name: value})  # type: ignore[arg-type]
