"""A model without what it was trained with, to be sent to other processes."""

from __future__ import annotations

import copy
from typing import Any

import cloudpickle
import torch as th

from rao_envs.core.actors import Agent, is_stock

TRAINED_WITH = ("env", "rollout_buffer", "replay_buffer")
"""A model's attributes that acting takes nothing of."""


class PortableModel:
    """What acting takes of a Stable-Baselines3 model: its policy, and how observations are normalised."""

    def __init__(self, model: Any) -> None:
        self.policy = model.policy
        self.normaliser = model.get_vec_normalize_env()
        self.predict = self.policy.predict

    def get_vec_normalize_env(self) -> Any:
        """The `VecNormalize` that the model was trained behind; None without."""
        return self.normaliser

    def __getstate__(self) -> dict[str, Any]:
        return {"policy": self.policy, "normaliser": self.normaliser}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.predict = self.policy.predict


def portable(agent: Agent) -> Agent:
    """`agent`, or a smaller one that acts the same.

    Raises:
        ValueError: a model that is not on the CPU, where workers compute.
    """
    policy = getattr(agent, "policy", agent)
    device = getattr(policy, "device", None)
    if isinstance(device, th.device) and device.type != "cpu":
        raise ValueError(f"workers compute on CPUs, and {type(agent).__name__} is on {device}: load it with device='cpu'")
    if not hasattr(agent, "get_vec_normalize_env") or not hasattr(policy, "predict"):
        return agent
    if is_stock(agent.predict):
        return PortableModel(agent)
    # Its author has given it a `predict` of its own: it is more than its policy.
    light = copy.copy(agent)
    for name in TRAINED_WITH:
        if hasattr(light, name):
            setattr(light, name, None)
    return light


def packed(content: Any) -> bytes:
    """`content` for `cloudpickle.loads` in a worker; raises TypeError if that is impossible."""
    try:
        return bytes(cloudpickle.dumps(content))
    except Exception as error:
        raise TypeError(f"workers get the agent and the environment pickled: {error}") from error


def sendable(error: Exception) -> Exception:
    """`error`, or one that says the same where it cannot be pickled and made again from that."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return RuntimeError(f"{type(error).__qualname__}: {error}{notes}")
    return error
