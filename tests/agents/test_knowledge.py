"""Knowledge: files that lose nothing and run nothing, descriptions, and the pieces that distillers share."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from remembered import buffer_of, episode, small_policy
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from torch import nn
from toy_envs import lamps

from rao_agents import RecursivePPO
from rao_agents.distillation import Knowledge, KnowledgeFileError, Provenance, RoundArchive, register_knowledge
from rao_agents.distillation.distillers.skills import SkillDistiller
from rao_agents.distillation.distributions import action_log_probs, check_policy, divergence, normalised, state_values
from rao_agents.distillation.episodes import states
from rao_agents.distillation.frozen import FrozenPolicy, make_policy, policy_depth, policy_spec
from rao_agents.distillation.importance import by_key, gradient_importance, most, permutation_importance
from rao_agents.distillation.nets import StateNet
from rao_agents.distillation.observations import ObservationVector
from rao_agents.distillation.priors import Priors, bellman_loss, frame_rewards, perturbed, smoothness_loss, temporal_loss
from rao_agents.distillation.segments import Frames, add_up, pool, split_episodes


@register_knowledge
class Sketch(Knowledge):
    kind = "sketch"
    offers = ("value",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.networks["net"] = StateNet(config["space"], [5, 4], 1)

    def value(self, obs: Any, **_: Any) -> th.Tensor:
        return self.networks["net"](obs).squeeze(1).detach()


def sketch() -> Sketch:
    knowledge = Sketch({"space": spaces.Box(-1.0, 1.0, (3,), np.float32)})
    knowledge.figures, knowledge.history = {"loss": 0.25}, {"loss": [1.0, 0.25]}
    knowledge.importance, knowledge.features = {"": 1.0}, {"[0]": 0.75, "[1]": 0.25}
    knowledge.provenance = Provenance("by hand", 3, 4096, 7, 5, 120, 11, 2)
    return knowledge


# -- files --------------------------------------------------------------------------------------------


def test_file_keeps_everything(tmp_path: Path) -> None:
    knowledge = sketch()
    knowledge.save(tmp_path / "deep" / "k")
    loaded = Knowledge.load(tmp_path / "deep" / "k.zip")
    assert isinstance(loaded, Sketch) and loaded.inspect() == knowledge.inspect()
    assert json.loads(json.dumps(loaded.inspect())) == loaded.inspect()
    obs = np.ones((4, 3), np.float32)
    assert th.equal(loaded.value(obs), knowledge.value(obs))
    assert knowledge.to_bytes() == knowledge.to_bytes() == Knowledge.from_bytes(knowledge.to_bytes()).to_bytes()
    assert loaded.action_log_probs(obs) is None and loaded.embed(obs) is None and loaded.skills is None


def test_description() -> None:
    knowledge = sketch()
    assert knowledge.parameters() == 3 * 5 + 5 + 5 * 4 + 4 + 4 + 1 and knowledge.depth() == 3
    text = str(knowledge)
    assert "49 parameters, 3 layers" in text and "7 episodes (5 succeeded, 120 steps)" in text and "by hand" in text
    assert "[0] 75%" in text and "the observation 100%" in text
    assert len(knowledge.inspect()["networks"]["net"]["layers"]) == 3


def rewritten(content: bytes, **changes: Any) -> io.BytesIO:
    """The file with changed entries of its document, or members (names with a dot or slash); None deletes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["knowledge.json"])
    for name, value in changes.items():
        if callable(value):
            value(document, members)
        else:
            document[name] = value
    members["knowledge.json"] = json.dumps(document).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    file.seek(0)
    return file


def _drop_array(document: Any, members: Any) -> None:
    document["networks"]["net"].popitem()


def _nan(document: Any, members: Any) -> None:
    document["networks"] = {"net": {"mean": {"$": "tensor", "value": {"$": "float", "value": "nan"}}}}


def _pickle(document: Any, members: Any) -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    members["arrays/0.npy"] = file.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "else"}, "does not hold knowledge"),
        ({"version": 2}, "format version 2"),
        ({"kind": "oracle"}, "known kinds: .*sketch"),
        ({"networks": {}}, "expected \\['net'\\]"),
        ({"x": _drop_array}, "damaged"),
        ({"x": _nan}, "damaged"),
        ({"x": _pickle}, "damaged"),
        ({"figures": {"loss": "low"}}, "not a number"),
        ({"provenance": {"seed": 1}}, "provenance"),
        ({"extra": {"rules": 1}}, "keeps nothing besides"),
        ({"config": {"space": {"$": "class", "name": "os.system"}}}, "not a registered class"),
        ({"config": [1]}, "not a table"),
    ],
)
def test_damaged_files_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(KnowledgeFileError, match=message):
        Knowledge.load(rewritten(sketch().to_bytes(), **changes))


def test_foreign_and_cut_files_are_refused(tmp_path: Path) -> None:
    content = sketch().to_bytes()
    for wrong in (b"", b"text", content[: len(content) // 2], pickle.dumps({"a": 1})):
        with pytest.raises(KnowledgeFileError):
            Knowledge.from_bytes(wrong)
    PPO("MlpPolicy", "CartPole-v1").save(tmp_path / "model")
    with pytest.raises(KnowledgeFileError, match=r"no knowledge\.json"):
        Knowledge.load(tmp_path / "model.zip")
    with pytest.raises(FileNotFoundError):
        Knowledge.load(tmp_path / "nothing")


def test_not_finite_weights_are_refused() -> None:
    knowledge = sketch()
    with th.no_grad():
        next(knowledge.networks.parameters()).fill_(float("nan"))
    with pytest.raises(KnowledgeFileError, match="not finite"):
        Knowledge.from_bytes(knowledge.to_bytes())


def test_kinds_are_unique() -> None:
    with pytest.raises(ValueError, match="already taken"):
        register_knowledge(type("Other", (Knowledge,), {"kind": "sketch"}))
    with pytest.raises(ValueError, match="needs a class attribute"):
        register_knowledge(type("Nameless", (Knowledge,), {}))


def test_rounds(tmp_path: Path) -> None:
    archive = RoundArchive(tmp_path / "distillation")
    assert archive.rounds() == []
    policy = small_policy()
    archive.write(1, policy, sketch(), {"timesteps": 100, "strength": 0.5})
    archive.write(0, policy, None, {"timesteps": 50})
    (tmp_path / "distillation" / "round_002").mkdir()  # not complete
    first, second = archive.rounds()
    assert (first.number, second.number) == (0, 1) and first.knowledge() is None and second.record["strength"] == 0.5
    assert isinstance(second.knowledge(), Sketch)
    assert all(th.equal(a, b) for a, b in zip(first.policy().parameters(), policy.parameters(), strict=True))
    with pytest.raises(ValueError, match="timesteps"):
        archive.write(3, policy, None, {})


# -- policies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [PPO, MaskablePPO, RecursivePPO])
def test_log_probs_of_every_policy(cls: Any) -> None:
    env = lamps(4)
    model = cls("MultiInputPolicy", env, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [6]}, device="cpu", seed=0)
    obs = env.reset()
    masks = obs["action_mask"].astype(bool)
    log_probs = action_log_probs(model.policy, obs, masks)
    assert log_probs.shape == masks.shape and log_probs.requires_grad
    assert th.allclose(log_probs.exp().sum(dim=1), th.ones(len(masks)), atol=1e-5)
    masked = cls is not PPO
    assert bool((log_probs.exp().detach().numpy()[~masks] == 0).all()) == masked
    actions = th.as_tensor(masks.argmax(axis=1))
    tensors = {key: th.as_tensor(value) for key, value in obs.items()}
    kwargs = {"action_masks": masks} if masked else {}
    values, expected, _ = model.policy.evaluate_actions(tensors, actions, **kwargs)
    assert th.allclose(log_probs.gather(1, actions[:, None]).squeeze(1), expected, atol=1e-6)
    assert th.allclose(state_values(model.policy, obs), values.flatten(), atol=1e-6)
    frozen = FrozenPolicy.of(model.policy)
    assert th.equal(frozen.action_log_probs(obs, masks), log_probs.detach()) and th.equal(frozen.value(obs), values.flatten().detach())
    assert policy_depth(model.policy) == 2
    rebuilt = make_policy(policy_spec(model.policy))
    assert {k: v.shape for k, v in rebuilt.state_dict().items()} == {k: v.shape for k, v in model.policy.state_dict().items()}


def test_policies_that_cannot_be_distilled() -> None:
    with pytest.raises(ValueError, match="Discrete action space"):
        check_policy(PPO("MlpPolicy", "Pendulum-v1").policy)


def test_normalised_and_divergence() -> None:
    scores = th.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    log_probs = normalised(scores, np.array([[True, True, False], [False, False, False]]))
    assert log_probs[0].exp().tolist() == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e), 0.0])
    assert log_probs[1].exp().tolist() == pytest.approx([1 / 3] * 3)  # nothing allowed: everything is
    assert divergence(log_probs, log_probs).tolist() == pytest.approx([0.0, 0.0])
    assert float(divergence(th.log(th.tensor([[0.5, 0.5]])), th.log(th.tensor([[0.25, 0.75]])))) == pytest.approx(
        0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    )


# -- observations and importance ----------------------------------------------------------------------

DICT = spaces.Dict(
    {
        "a": spaces.Box(-5.0, 5.0, (2, 2), np.float32),
        "b": spaces.Discrete(3),
        "action_mask": spaces.MultiBinary(4),
        "frame": spaces.Box(0, 9, (3,), np.int32),
    }
)


def observations(n: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.normal(3.0, 2.0, size=(n, 2, 2)).astype(np.float32),
        "b": rng.integers(3, size=n),
        "action_mask": rng.integers(2, size=(n, 4)).astype(np.int8),
        "frame": rng.integers(9, size=(n, 3)).astype(np.int32),
    }


def test_vectors_are_standardised_and_know_their_names() -> None:
    vector, obs = ObservationVector(DICT), observations()
    vector.fit(obs)
    out = vector(obs)
    assert out.shape == (200, 7) and vector.names == [*(f"a[{i}]" for i in range(4)), *(f"b[{i}]" for i in range(3))]
    assert th.allclose(out.mean(dim=0), th.zeros(7), atol=1e-5) and th.allclose(out.std(dim=0, unbiased=False), th.ones(7), atol=1e-4)
    changed = {**obs, "frame": obs["frame"] + 1, "action_mask": 1 - obs["action_mask"]}
    assert th.equal(vector(changed), out)  # no network reads these
    with pytest.raises(ValueError, match="no key"):
        ObservationVector(spaces.Dict({"action_mask": spaces.MultiBinary(4)}))
    with pytest.raises(ValueError, match="must be Box"):
        ObservationVector(spaces.Tuple([spaces.Discrete(2)]))


def test_importance_finds_what_is_read() -> None:
    obs, vector = observations(), ObservationVector(DICT)
    vector.fit(obs)

    def answer(parts: Any) -> th.Tensor:
        return th.as_tensor(parts["a"][:, 1, 0] * 2.0)

    shuffled = permutation_importance(answer, obs, np.random.default_rng(0))
    assert shuffled == {"a": 1.0, "b": 0.0}
    weights = th.tensor([0.0, 0.0, 3.0, 0.0, 1.0, 0.0, 0.0])
    shares = gradient_importance(lambda x: x @ weights, vector, vector(obs))
    assert shares["a[2]"] == pytest.approx(0.75) and shares["b[0]"] == pytest.approx(0.25)
    assert by_key(shares) == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)} and list(most(shares, 1)) == ["a[2]"]
    assert gradient_importance(lambda x: 0 * x.sum(dim=1), vector, vector(obs))["a[0]"] == 0.0


# -- sub-trajectories and priors ----------------------------------------------------------------------


def tree() -> Any:
    """Two trees: frames 0 and 1 interleaved, then one with a single frame."""
    first = episode(
        np.arange(6)[:, None], [0, 1, 2, 3, 4, 5], frame_id=[0, 1, 1, 0, 2, 0], depth=[0, 1, 1, 0, 1, 0], frames=[1, 2, 0], success=True
    )
    return states(
        [replace(first, frame_success=np.array([False, True, True])), episode(np.arange(6, 9)[:, None], [6, 7, 8], success=False)]
    )


def test_frames_follow_each_frame_over_its_children() -> None:
    frames = Frames(tree())
    assert frames.lengths.tolist() == [3, 2, 1, 3] and frames.success.tolist() == [1, 0, 1, 0] and frames.depth.tolist() == [0, 1, 1, 0]
    assert frames.successors().tolist() == [3, 2, -1, 5, -1, -1, 7, 8, -1]
    assert frames.of_steps().tolist() == [0, 1, 1, 0, 2, 0, 3, 3, 3]
    rows, frame = frames.windows(2)
    assert rows.tolist() == [[0, 3], [5, -1], [1, 2], [4, -1], [6, 7], [8, -1]] and frame.tolist() == [0, 0, 1, 2, 3, 3]
    drawn = frames.sample(np.random.default_rng(0), np.zeros(500, np.int64), 3)
    assert {tuple(row) for row in drawn.tolist()} == {(0, -1, -1), (3, -1, -1), (5, -1, -1), (0, 3, -1), (3, 5, -1), (0, 3, 5)}
    steps = th.arange(9.0)[:, None][rows[rows != -1]]
    assert pool(steps, rows).squeeze(1).tolist() == [1.5, 5.0, 1.5, 4.0, 6.5, 8.0]
    assert add_up(steps, rows).squeeze(1).tolist() == [3.0, 5.0, 3.0, 4.0, 13.0, 8.0]


def test_whole_episodes_are_held_out() -> None:
    rng, numbers = np.random.default_rng(0), np.repeat(np.arange(10), 3)
    out = split_episodes(rng, numbers, 0.2)
    assert out.sum() == 6 and all(len(set(out[numbers == i])) == 1 for i in range(10))
    assert not split_episodes(rng, np.zeros(5, np.int64), 0.5).any() and not split_episodes(rng, numbers, 0.0).any()


def test_priors() -> None:
    logits = nn.Linear(3, 4)
    inputs, generator = th.randn(64, 3), th.Generator().manual_seed(0)

    def smooth(noise: float) -> float:
        return float(smoothness_loss(lambda x: th.log_softmax(logits(x), dim=1), inputs, noise, generator).detach())

    assert smooth(0.0) == pytest.approx(0.0, abs=1e-7) and 0 < smooth(0.1) < smooth(1.0)
    one = th.log_softmax(th.tensor([[1.0, 0.0, -1e8]]), dim=1)
    other = th.log_softmax(th.tensor([[0.0, 1.0, -1e8]]), dim=1)
    p = 1 / (1 + np.exp(-1.0))
    assert float(temporal_loss(one, one)) == 0.0 and float(temporal_loss(one, other)) == pytest.approx(2 * p - 1, rel=1e-5)
    values = th.tensor([1.0, 2.0], requires_grad=True)
    loss = bellman_loss(values, th.tensor([2.0, 0.0]), th.tensor([0.0, 3.0]), 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(0.5) and values.grad is not None and values.grad.tolist() == [0.0, -1.0]
    assert Priors.parse({"bellman": 0.1}).active and not Priors.parse(None).active
    with pytest.raises(ValueError, match="smoothness must be"):
        Priors(smoothness=-1.0)
    with pytest.raises(ValueError, match="priors are given by"):
        Priors.parse({"roughness": 1.0})


def test_rewards_are_recovered_from_advantages() -> None:
    rng, gamma, lam = np.random.default_rng(0), 0.9, 0.8
    rewards, values, advantages = rng.normal(size=6), rng.normal(size=6), np.zeros(6)
    frame_id, carry = np.array([0, 1, 1, 0, 1, 0]), {}
    for t in reversed(range(6)):
        after_value, after = carry.get(frame_id[t], (0.0, 0.0))
        advantages[t] = rewards[t] + gamma * after_value - values[t] + gamma * lam * after
        carry[frame_id[t]] = (values[t], advantages[t])
    found = states([episode(np.zeros((6, 1)), np.zeros(6), frame_id=frame_id, values=values, advantages=advantages)])
    assert frame_rewards(found, Frames(found).successors(), gamma, lam) == pytest.approx(rewards, abs=1e-6)


def test_noise_leaves_categories_and_masks_alone() -> None:
    obs = observations()
    moved = perturbed(obs, DICT, 0.5, np.random.default_rng(0))
    assert all(np.array_equal(moved[key], obs[key]) for key in ("b", "action_mask", "frame"))
    assert (moved["a"] - obs["a"]).std() == pytest.approx(1.0, rel=0.15)


def test_masked_skills_never_do_what_is_forbidden() -> None:
    rng = np.random.default_rng(0)
    masks = np.tile([True, True, False], (10, 1))
    episodes = [episode(rng.normal(size=(10, 4)).astype(np.float32), rng.integers(2, size=10), masks=masks) for _ in range(6)]
    knowledge = SkillDistiller(n_skills=2, updates=10).distil(small_policy(), buffer_of(episodes), None, rng)
    probabilities = knowledge.skill_log_probs(np.zeros((10, 4), np.float32), masks).exp()
    assert float(probabilities[:, :, 2].max()) == 0.0 and knowledge.library[0].actions[2] == 0.0
