"""Several policies in one recursion tree: one per level, and scripted leaves below a learned parent (PettingZoo's parallel API)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rao_envs
from rao_envs.longseq.reference import RecursiveSolver

Policy = Callable[[dict[str, Any], Any], int]
MODEL = Path(__file__).resolve().parents[1] / "baselines" / "models" / "recursive_ppo_longseq.zip"
TASK = "RAO/LongSeq-10k-v0"


def learned() -> Policy:
    """The shipped policy, greedy."""
    from rao_agents import load_policy

    model = load_policy(MODEL, device="cpu")
    return lambda observation, mask: int(model.predict(observation, deterministic=True, action_masks=mask)[0])


def scripted() -> Policy:
    """The family's scripted solver."""
    solver = RecursiveSolver()
    return lambda observation, mask: int(solver(observation, mask))


def success(choose: Callable[[int, bool], Policy], episodes: int) -> tuple[float, float]:
    """Success rate and mean number of ticks of a team over fixed seeds; `choose(depth, leaf)` says who acts in a frame."""
    env = rao_envs.parallel_env(TASK)
    solved, ticks = 0, 0
    for seed in range(episodes):
        observations, infos = env.reset(seed=seed)
        while env.agents:
            actions = {}
            for agent in env.agents:
                info = infos[agent]
                if not info["waiting"]:
                    mask = info["action_mask"].astype(bool)
                    leaf = not mask[env.env.spawn_actions].any()
                    actions[agent] = choose(info["depth"], leaf)(observations[agent], mask)
            observations, _, _, _, infos = env.step(actions)
            ticks += 1
        solved += infos["frame_0"]["is_success"]
    return solved / episodes, ticks / episodes


def main() -> None:
    """Play the teams."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20, help="fixed seeds per team (default: 20)")
    episodes = parser.parse_args().episodes
    if episodes < 1:
        parser.error(f"--episodes must be at least 1, got {episodes}")
    script = scripted()
    teams: dict[str, Callable[[int, bool], Policy]] = {"scripted everywhere": lambda depth, leaf: script}
    try:
        model = learned()
        teams |= {
            "learned everywhere": lambda depth, leaf: model,
            "scripted root, learned below": lambda depth, leaf: model if depth else script,
            "learned, scripted leaves": lambda depth, leaf: script if leaf else model,
        }
    except ImportError as error:
        print(f"scripted teams only: {error}")
    for name, choose in teams.items():
        rate, ticks = success(choose, episodes)
        print(f"{name:30} success {rate:.2f}, {ticks:.1f} ticks an episode")


if __name__ == "__main__":
    main()
