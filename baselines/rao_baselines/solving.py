"""`rao solve`: one task of a person's own, solved before their eyes, with the truth beside the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

import rao_envs
from rao_baselines.agents import Loaded, fit, load_agent, load_model
from rao_baselines.environments import resolve_id
from rao_baselines.errors import UserError
from rao_baselines.evaluation import score
from rao_baselines.places import shipped_models
from rao_baselines.runs import read_json
from rao_envs.core.env import RecursiveEnv


class Step(NamedTuple):
    """One environment step."""

    number: int
    depth: int
    frame_id: int
    action: str
    returned: tuple[str, ...]  # what the frames that ended at it handed back, in words


class Solution(NamedTuple):
    """What became of the task."""

    agent: str
    env_id: str
    question: str
    answer: str  # empty where the family's frames hand back success and nothing else
    truth: str
    success: bool
    steps: list[Step]
    tree: dict[str, int]
    picture: str  # the end as text, the recursion tree included


def choose_agent(name: str | None, env_id: str, env_kwargs: dict[str, Any]) -> Loaded:
    """The agent called `name`, or by default the shipped model that has learned this, or else the family's scripted solver.

    Raises:
        UserError: there is none.
    """
    if name is not None:
        return load_agent(name, env_id, env_kwargs)
    for path in sorted(shipped_models().glob("recursive_ppo*.zip")):
        try:
            loaded = fit(load_model(path), path, env_id, env_kwargs)
        except UserError:
            continue
        if _skills(env_id, loaded.env_kwargs) <= _learned(path):
            return loaded
    return load_agent("solver", env_id, env_kwargs)


def _skills(env_id: str, env_kwargs: dict[str, Any]) -> frozenset[str]:
    made: Any = gym.make(env_id, **env_kwargs).unwrapped
    return frozenset(made.domain.skills())


def _learned(path: Path) -> frozenset[str]:
    """The kinds of question that the model in `path` met in training. Spaces alone do not tell: an agent sees others, and guesses."""
    trained = read_json(path.with_suffix(".json"))
    return _skills(trained["env_id"], trained["settings"]["env_kwargs"])


def solve(env: str, env_kwargs: dict[str, Any], *, agent: str | None = None, seed: int = 0, greedy: bool = True) -> Solution:
    """Let an agent solve one task.

    Args:
        env: environment id; short forms as everywhere in `rao`.
        env_kwargs: its keyword arguments: the person's expressions, document, maze and so on.
        agent: as `load_agent` takes it; None chooses (see `choose_agent`).
        seed: of the task, and of the actions where they are drawn.
        greedy: take the likeliest actions instead of drawing them.

    Raises:
        UserError: no such environment or agent, or arguments it cannot use.
    """
    env_id = resolve_id(env)
    entry_point = gym.spec(env_id).entry_point
    family = gym.envs.registration.load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if not (isinstance(family, type) and issubclass(family, RecursiveEnv) and "ansi" in family.metadata["render_modes"]):
        raise UserError(f"{env_id} is no recursive environment with pictures as text; rao solve takes those that `rao list` shows")
    try:
        made: Any = gym.make(env_id, render_mode="ansi", **env_kwargs).unwrapped
    except (TypeError, ValueError, OSError, gym.error.Error) as error:
        raise UserError(f"{env_id} cannot be made with these arguments: {error}") from error
    loaded = choose_agent(agent, env_id, env_kwargs)
    if not loaded.env_kwargs.get("spawn", True) and "spawn" not in env_kwargs:
        made = gym.make(env_id, render_mode="ansi", **loaded.env_kwargs).unwrapped
    try:
        episode = score(
            loaded.agent,
            env_id,
            [seed],
            mode="greedy" if greedy else "sampled",
            env_kwargs=loaded.env_kwargs,
            frame_stack=loaded.frame_stack,
        ).episodes[0]
    except (TypeError, ValueError) as error:
        raise UserError(f"{loaded.name} cannot act in {env_id}: {error}") from error
    return _narrate(made, loaded.name, env_id, seed, episode)


def _narrate(env: RecursiveEnv, agent: str, env_id: str, seed: int, episode: rao_envs.Episode) -> Solution:
    """Play the recorded actions again and put into words what they did."""
    env.reset(seed=seed)
    domain, batch = env.domain, env.batch
    question = domain.asked(batch.state, 0)
    steps, answer = [], ""
    for number, action in enumerate(episode.actions, 1):
        depth = int(batch.stack.episodes["depth"][0])
        frame_id = int(batch.stack.frames["id"][0, depth])
        env.step(action)
        words = []
        for entry in batch.returned(0):
            text = domain.answer(batch.state, 0, entry["value"])
            outcome = "right" if entry["success"] else "wrong or out of steps"
            words.append(f"frame {entry['frame_id']} returns {text} ({outcome})" if text else f"frame {entry['frame_id']}: {outcome}")
            answer = text if entry["frame_id"] == 0 else answer
        steps.append(Step(number, depth, frame_id, env.action_names[int(action)], tuple(words)))
    return Solution(
        agent=agent,
        env_id=env_id,
        question=question,
        answer=answer,
        truth=domain.truth(batch.state, 0),
        success=bool(episode.success),
        steps=steps,
        tree=batch.tree(0),
        picture=str(env.render()),
    )
