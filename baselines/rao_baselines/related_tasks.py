"""Tasks an agent was not trained on but can act in: other sizes of its family, and other members of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from rao_baselines.environments import Task, carried_over, parse_task
from rao_baselines.errors import UserError
from rao_baselines.suite import task_name


class Family(NamedTuple):
    """Sizes, smallest first, and other members, as `parse_task` reads them."""

    sizes: tuple[str, ...]
    members: tuple[str, ...]


FAMILIES: dict[str, Family] = {
    "Maze": Family(
        ("RAO/Maze-5x5", "RAO/Maze-10x10", "RAO/Maze-20x20", "RAO/Maze-40x40"),
        ("RAO/Maze-10x10?structure=rooms", "RAO/Maze-10x10?structure=perfect"),
    ),
    "Algebra": Family(("RAO/Algebra-depth2", "RAO/Algebra-depth4", "RAO/Algebra-depth8"), ("RAO/Algebra-depth4?substitution=true",)),
    "LongSeq-nested": Family(("RAO/LongSeq-nested-320", "RAO/LongSeq-nested-3k"), ()),
    "LongSeq": Family(("RAO/LongSeq-1k", "RAO/LongSeq-10k"), ("RAO/LongSeq-1k?query=max", "RAO/LongSeq-1k?query=count")),
    "Dialogue": Family(("RAO/Dialogue-5turn", "RAO/Dialogue-10turn", "RAO/Dialogue-20turn"), ("RAO/Dialogue-10turn?domains=2",)),
}
"""By the beginning of the id's name; the first that fits."""


class Related(NamedTuple):
    """A task in a report.

    Attributes:
        name: as people read it.
        text: as `parse_task` reads it.
        env_id, kwargs: what it is made with.
        kind: "own", "size" or "member".
    """

    name: str
    text: str
    env_id: str
    kwargs: dict[str, Any]
    kind: str


def family_of(env_id: str) -> Family:
    """The family of an environment id; an empty one for those of other packages."""
    bare = env_id.removeprefix("RAO/")
    names = sorted(FAMILIES, key=len, reverse=True)
    return (
        next((FAMILIES[name] for name in names if bare.startswith(name)), Family((), ())) if env_id.startswith("RAO/") else Family((), ())
    )


def related_tasks(env_id: str, env_kwargs: dict[str, Any], asked: Sequence[str] = ()) -> list[Related]:
    """The training's own task, then others that the same agent can act in.

    Args:
        env_id: of the training (resolved).
        env_kwargs: what the training's environment was made with, `spawn` included.
        asked: tasks as text; without any those of the family.

    Raises:
        UserError: a task that was asked for cannot be made, or its actions or observations are not those of the training.
    """
    own = Related(task_name(env_id), env_id, env_id, env_kwargs, "own")
    family = family_of(env_id)
    listed = [(text, "size") for text in family.sizes] + [(text, "member") for text in family.members]
    if asked:
        listed = [(text, "member" if "?" in text else "size") for text in asked]
    found, trained = [own], _spaces(own)
    for text, kind in listed:
        task = _related(parse_task(text), text, kind, env_kwargs)
        if (task.env_id, task.kwargs) == (own.env_id, own.kwargs):
            continue
        try:
            fits = _spaces(task) == trained
        except (TypeError, ValueError) as error:
            if asked:
                raise UserError(f"{text} cannot be made with {task.kwargs}: {error}") from error
            continue
        if fits:
            found.append(task)
        elif asked:
            raise UserError(f"an agent trained on {env_id} cannot act in {text}: its actions or observations differ")
    return found


def _related(task: Task, text: str, kind: str, env_kwargs: dict[str, Any]) -> Related:
    """Sizes keep the training's arguments but for the size, members have their own; who may spawn is the agent's matter in both."""
    if task.kwargs is None:
        kwargs = carried_over(env_kwargs, task.env_id)
    else:
        kwargs = task.kwargs | {name: env_kwargs[name] for name in ("spawn",) if name in env_kwargs}
    arguments = "" if task.kwargs is None else "?" + text.partition("?")[2]
    return Related(task_name(task.env_id + arguments), text, task.env_id, kwargs, kind)


def _spaces(task: Related) -> Any:
    env = gym.make(task.env_id, **task.kwargs)
    env.close()
    return env.action_space, env.observation_space
