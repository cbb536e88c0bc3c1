"""Credit by node with generalised advantage estimation is what it was before there was a choice: numbers kept from that code.

`golden_node_gae.json` was written by `python tests/agents/test_unchanged.py` at the last commit without `credit` and `advantage`. A change
that is meant to alter these numbers writes it again, and says so in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden_node_gae.json"


def advantages(seed: int) -> dict[str, float]:
    """Advantage of every completed transition of random trees, by the number of its observation."""
    from driving import drive, network
    from toy_envs import EventTree, random_events

    envs = [EventTree(random_events(np.random.default_rng([seed, i]), 3), first=i * 10_000) for i in range(2)]
    learned, _ = drive(envs, 4, 7, network, step_cost=0.1, bonus=0.3, gamma=0.95, gae_lambda=0.8)
    return {str(number): transition.advantage for number, transition in sorted(learned.items())}


def minibatches(seed: int) -> list[float]:
    """Training advantages in the order in which the update sees them: normalised, weighted by depth."""
    from driving import drive, network
    from toy_envs import EventTree, random_events

    envs = [EventTree(random_events(np.random.default_rng([seed, i]), 3), first=i * 10_000) for i in range(2)]
    _, buffer = drive(envs, 3, 9, network, gamma=0.95, gae_lambda=0.8, seed=seed, depth_weighting=0.5)
    return [float(x) for batch in buffer.get(4) for x in batch.advantages]


def weights() -> list[float]:
    """The network after four short rollouts with spawns pending at every edge."""
    from toy_envs import lamps

    from rao_agents import RecursivePPO

    model = RecursivePPO(
        "MultiInputPolicy", lamps(3, seed=5), n_steps=15, batch_size=16, n_epochs=2, learning_rate=1e-3, ent_coef=0.01, seed=0,
        delegation_bonus=0.3, depth_weighting=0.5, device="cpu", policy_kwargs={"net_arch": [4]},
    ).learn(180)  # fmt: skip
    return [float(value) for parameter in model.policy.parameters() for value in parameter.detach().flatten()]


def numbers() -> dict[str, Any]:
    return {
        "advantages": {str(seed): advantages(seed) for seed in range(3)},
        "minibatches": {str(seed): minibatches(seed) for seed in range(2)},
        "weights": weights(),
    }


def test_advantages_are_bit_identical() -> None:
    golden = json.loads(GOLDEN.read_text())
    for seed, expected in golden["advantages"].items():
        assert advantages(int(seed)) == expected
    for seed, batches in golden["minibatches"].items():
        assert minibatches(int(seed)) == batches


def test_weights_are_the_same() -> None:
    # To the last bit on the machine that wrote them; another processor adds up its matrix products in another order.
    expected = np.array(json.loads(GOLDEN.read_text())["weights"])
    np.testing.assert_allclose(np.array(weights()), expected, rtol=0.0, atol=1e-4)


if __name__ == "__main__":
    import torch as th

    th.set_num_threads(1)
    GOLDEN.write_text(json.dumps(numbers(), indent=0) + "\n")
