"""A model without what it was trained with, to be sent to other processes."""

from __future__ import annotations

from typing import Any

from rao_envs.core.actors import Agent


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
    """`agent`, or a smaller one that acts the same."""
    whole = hasattr(agent, "get_vec_normalize_env") and hasattr(getattr(agent, "policy", None), "predict")
    return PortableModel(agent) if whole else agent
