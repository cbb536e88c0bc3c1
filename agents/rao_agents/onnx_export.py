"""Policies as ONNX files: what acts, without torch (MISSION A1, A3; the leaderboard's second badge).

The graph makes one step of any number of frames:

| inputs | |
|---|---|
| the observation's keys, or `observation` | in the dtypes of the space, (n, ...); with state transfer also what the tracker adds |
| `action_mask` | int8 (n, n_actions), for policies that take masks; it may be a key of the observation at once |
| `lstm_h`, `lstm_c` | float32 (layers, n, hidden), of recurrent policies |

| outputs | |
|---|---|
| `action` | int64 (n,): the greedy action, chosen as the policy's `predict(deterministic=True)` does |
| `log_probs` | float32 (n, n_actions), the delegation head and the mask included; not for DQN, which has no probabilities |
| `next_h`, `next_c` | of recurrent policies |
| `context`, `state`, `memory`, `strength` | kept with the frame that acted, with state transfer (`rao_agents.transfer.tracker.Carry`) |

Under the key `rao` of the metadata stands a JSON object that says what the inputs are; `rao_leaderboard.onnx_agent` reads it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn
from torch.nn import functional as F

from rao_agents.frame_key import FRAME_KEY, has_frame, without_frame
from rao_agents.policies import EXCLUDED, DelegationHead
from rao_agents.specialists import RoutedModule
from rao_envs.core.files import replacing

FORMAT = "rao-onnx-1"
OPSET = 17
MASK = "action_mask"
PLAIN = "observation"
"""Name of the input where observations are plain arrays."""


class OnnxExportError(ValueError):
    """A policy that cannot be written as ONNX; the message says why."""


def export_onnx(model: Any, path: str | os.PathLike[str]) -> None:
    """Write the policy of `model` as an ONNX file that acts like it; weights are inside.

    Args:
        model: a model or policy of RecursivePPO, RecursiveA2C (delegation head, state transfer, memory and specialists included),
            MaskablePPO, PPO, A2C, RecurrentPPO or DQN, with discrete actions.
        path: the file; it is there complete, or as it was.

    Raises:
        OnnxExportError: another kind of policy, or one whose observations are normalised outside of it.
        ImportError: `onnx` is missing (the extra "onnx").
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError('writing ONNX files needs the package onnx: pip install "rao-envs[onnx]"') from error
    policy = _policy_of(model)
    graph = ActingGraph(policy).eval()
    buffer = io.BytesIO()
    with th.no_grad(), _quiet():
        th.onnx.export(
            graph,
            tuple(graph.example(3)),
            buffer,  # type: ignore[arg-type]  # the older exporter writes into open files, too
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_axes={name: {graph.axis(name): "n"} for name in (*graph.inputs, *graph.outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    proto = onnx.load_model_from_string(buffer.getvalue())
    onnx.helper.set_model_props(proto, {"rao": json.dumps(graph.describe(), sort_keys=True)})
    proto.doc_string = ""
    onnx.checker.check_model(proto)
    with replacing(path) as file:
        file.write(proto.SerializeToString(deterministic=True))


def _policy_of(model: Any) -> Any:
    policy = getattr(model, "policy", model)
    space = getattr(policy, "action_space", None)
    if not isinstance(policy, nn.Module) or not isinstance(space, spaces.Discrete):
        raise OnnxExportError(f"only policies with discrete actions can be written as ONNX, not {type(policy).__name__} in {space}")
    if isinstance(model, BaseAlgorithm) and getattr(model.get_vec_normalize_env(), "norm_obs", False):
        raise OnnxExportError("this model sees observations that VecNormalize has normalised; the policy alone cannot act")
    if not isinstance(policy, DQNPolicy) and not hasattr(policy, "mlp_extractor"):
        raise OnnxExportError(f"{type(policy).__name__} is no actor-critic policy of Stable-Baselines3's kind, nor DQN's")
    return policy


class ActingGraph(nn.Module):
    """A policy as a function of tensors alone; its outputs are those of the policy's own distribution (a test compares)."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        # A copy: the caller's stays where it is, and as it is. What its latest distribution and its optimiser hold is not needed.
        lent = [getattr(policy, name, None) for name in ("action_dist", "optimizer")]
        self.policy = copy.deepcopy(policy, {id(each): each for each in lent}).cpu()
        self.space: spaces.Space[Any] = policy.observation_space
        self.n_actions = int(policy.action_space.n)
        self.masked = not isinstance(policy, DQNPolicy) and "action_masks" in policy.get_distribution.__code__.co_varnames
        self.recurrent = hasattr(policy, "lstm_actor")
        self.stateful = bool(getattr(policy, "stateful", False))
        self.keys = list(self.space.spaces) if isinstance(self.space, spaces.Dict) else [PLAIN]
        extra = [MASK] if self.masked and MASK not in self.keys else []
        self.inputs = [*self.keys, *extra, *(["lstm_h", "lstm_c"] if self.recurrent else [])]
        self.outputs = ["action"] if isinstance(policy, DQNPolicy) else ["action", "log_probs"]
        self.outputs += ["next_h", "next_c"] if self.recurrent else []
        self.carried = _carried(policy) if self.stateful else []
        self.outputs += self.carried

    def axis(self, name: str) -> int:
        """Which axis of an input or output counts the frames."""
        return 1 if name in ("lstm_h", "lstm_c", "next_h", "next_c") else 0

    def example(self, n: int) -> Iterator[th.Tensor]:
        """Inputs of n frames."""
        parts = self.space.spaces if isinstance(self.space, spaces.Dict) else {PLAIN: self.space}
        for name in self.inputs:
            if name in parts:
                space = parts[name]
                yield th.as_tensor(np.zeros((n, *(space.shape or ())), space.dtype))
            elif name == MASK:
                yield th.ones((n, self.n_actions), dtype=th.int8)
            else:
                layers, _, width = self.policy.lstm_hidden_state_shape
                yield th.zeros((layers, n, width))

    def describe(self) -> dict[str, Any]:
        """What the metadata says."""
        acting = self.policy.acting_space if self.stateful else self.space
        parts = acting.spaces if isinstance(acting, spaces.Dict) else {PLAIN: acting}
        found: dict[str, Any] = {
            "format": FORMAT,
            "policy": type(self.policy).__name__,
            "n_actions": self.n_actions,
            "masked": self.masked,
            "observation": {name: _part(space) for name, space in parts.items()},
            "plain": not isinstance(acting, spaces.Dict),
            "lstm": list(self.policy.lstm_hidden_state_shape) if self.recurrent else None,
            "transfer": None,
        }
        if self.stateful:
            options = self.policy.features_extractor.options
            found["transfer"] = options._asdict()
            # The tracker's own, which the acting observation does not have.
            found["shown"] = {name: _part(space) for name, space in self.space.spaces.items() if name not in parts}  # type: ignore[attr-defined]
        return found

    def forward(self, *tensors: th.Tensor) -> tuple[th.Tensor, ...]:
        """The outputs, in the order of `outputs`."""
        given = dict(zip(self.inputs, tensors, strict=True))
        observation: Any = {name: given[name] for name in self.keys} if isinstance(self.space, spaces.Dict) else given[PLAIN]
        if isinstance(self.policy, DQNPolicy):
            return (self.policy.q_net(observation).argmax(dim=1),)
        after: tuple[th.Tensor, ...] = ()
        with self.policy.features_extractor.every_row() if self.stateful else contextlib.nullcontext():
            features = self._features(observation)
        if self.recurrent:
            hidden, after = self.policy.lstm_actor(features.unsqueeze(0), (given["lstm_h"], given["lstm_c"]))
            features = hidden.squeeze(0)
        latent = self.policy.mlp_extractor.forward_actor(features)
        situation = getattr(self.policy, "_situation", None)
        raw = self.policy.action_net(latent if situation is None else th.cat([latent, situation], dim=1))
        mask = given[MASK].float() if self.masked else th.ones_like(raw[:, : self.n_actions])
        # A row that allows nothing is read as one that allows everything, as the policies' distributions do.
        allowed = th.where(mask.amax(dim=1, keepdim=True) > 0, mask, th.ones_like(mask))
        chosen = self._delegated(raw, allowed) if self._delegates() else self._masked(raw, allowed)
        carried = [self.policy.features_extractor.latest[name] for name in self.carried]
        return (*chosen, *after, *carried)

    def _features(self, observation: Any) -> th.Tensor:
        policy = self.policy
        route = getattr(policy, "_route", None)
        if route is not None:
            # All networks, whoever acts: which rows are whose is found out in the graph.
            route.index = route.of(observation[FRAME_KEY].long())
            route._present = list(range(route.n))
        if getattr(policy, "situational", False):
            from stable_baselines3.common.preprocessing import preprocess_obs

            parts: Any = [preprocess_obs(observation[key], self.space[key]) for key in policy.threshold_keys]  # type: ignore[index]
            policy._situation = th.cat([part.flatten(start_dim=1) for part in parts], dim=1)
        shown = without_frame(observation) if has_frame(self.space) else observation
        features: th.Tensor = policy.extract_features(shown, policy.pi_features_extractor)
        return features

    def _delegates(self) -> bool:
        net = self.policy.action_net
        return isinstance(net.specialists[0] if isinstance(net, RoutedModule) else net, DelegationHead)

    def _masked(self, logits: th.Tensor, allowed: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """A softmax over the allowed actions."""
        logits = th.where(allowed > 0, logits, th.full_like(logits, EXCLUDED))
        return logits.argmax(dim=1), F.log_softmax(logits, dim=1)

    def _delegated(self, raw: th.Tensor, allowed: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """See `rao_agents.policies.DelegationDistribution`."""
        logits, margin = raw[:, :-1], raw[:, -1:]
        spawn_actions = list(self.policy.spawn_actions)
        is_spawn = th.zeros(self.n_actions).index_fill(0, th.tensor(spawn_actions), 1.0).expand_as(logits)
        spawns, primitives = allowed * is_spawn, allowed * (1 - is_spawn)
        may_spawn, may_act = spawns.amax(dim=1, keepdim=True), primitives.amax(dim=1, keepdim=True)
        is_open = may_spawn * may_act > 0
        excluded = th.full_like(logits, EXCLUDED)
        gate_spawn = th.where(is_open, -F.softplus(-margin), th.zeros_like(margin))
        gate_act = th.where(is_open, -F.softplus(margin), th.zeros_like(margin))
        norm_spawn = th.logsumexp(th.where(spawns > 0, logits, excluded), dim=1, keepdim=True)
        norm_act = th.logsumexp(th.where(primitives > 0, logits, excluded), dim=1, keepdim=True)
        shift = th.where(is_spawn > 0, gate_spawn - norm_spawn, gate_act - norm_act)
        log_probs = th.where(allowed > 0, logits + shift, excluded)
        delegate = th.where(is_open, (margin > 0).float(), may_spawn)
        candidates = allowed * th.where(delegate > 0, is_spawn, 1 - is_spawn)
        action = th.where(candidates > 0, logits, th.full_like(logits, -3.0e38)).argmax(dim=1)
        return action, log_probs


def _carried(policy: Any) -> list[str]:
    """Names of what a step leaves to be kept with the frame that acted."""
    options = policy.features_extractor.options
    return ["context", *(["state"] if options.mode == "hidden" else []), *(["memory", "strength"] if options.memory else [])]


def _part(space: spaces.Space[Any]) -> dict[str, Any]:
    kinds = {spaces.Box: "Box", spaces.MultiBinary: "MultiBinary", spaces.Discrete: "Discrete"}
    kind = kinds.get(type(space))
    if kind is None:
        raise OnnxExportError(f"observations with {space} cannot be written as ONNX; Box, MultiBinary and Discrete can")
    part = {"kind": kind, "shape": list(space.shape or ()), "dtype": str(space.dtype)}
    return part | ({"n": int(space.n)} if isinstance(space, spaces.Discrete) else {})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings of the tracer: what it takes for constants is constant here, and the older exporter is chosen on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
