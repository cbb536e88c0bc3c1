"""`rao bench delegation`: when the shipped agents delegate, by the size of the task and by the level of the frame that decides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch as th

from rao_baselines import statistics
from rao_baselines.agents import find_model, load_agent
from rao_baselines.environments import parse_task
from rao_baselines.evaluation import MODES, evaluation_seeds, score
from rao_baselines.provenance import provenance
from rao_envs.core.episodes import Episode


class Subject(NamedTuple):
    """A shipped model and the sizes that it is watched on."""

    label: str
    model: str  # in baselines/models
    axis: str  # what sizes are
    tasks: dict[str, str]  # what the axis says -> task
    trained: str  # the sizes that it was trained on, in words
    long: tuple[str, ...] = ()  # sizes with fewer episodes: one takes thousands of steps


LONG = 20
"""Episodes of the sizes that are `long`, at most."""

SUBJECTS = {
    "maze": Subject(
        "Mazes",
        "recursive_ppo",
        "cells along a side",
        {str(n): f"RAO/Maze-{n}x{n}-v0?" for n in (5, 10, 20, 40, 80)},
        "20",
    ),
    "algebra": Subject(
        "Algebra",
        "recursive_ppo_algebra",
        "depth",
        {str(depth): f"RAO/Algebra-v0?depth={depth}" for depth in (1, 2, 3, 4, 6, 8, 10, 12)},
        "1 to 4",
    ),
    "longseq": Subject(
        "Long sequences",
        "recursive_ppo_longseq",
        "records",
        {
            **{f"{n:,}": f"RAO/LongSeq-v0?length={n}" for n in (200, 1_000, 3_000)},
            **{f"{n} k": f"RAO/LongSeq-{n}k-v0?" for n in (10, 100)},
            "1 M": "RAO/LongSeq-1M-v0?",
        },
        "200 to 10,000",
        ("1 M",),
    ),
    "nested": Subject(
        "Nested brackets",
        "recursive_ppo_nested",
        "tokens",
        {
            **{str(n): f"RAO/LongSeq-nested-v0?length={n}" for n in (8, 20, 80)},
            "320": "RAO/LongSeq-nested-320-v0?",
            "3.2 k": "RAO/LongSeq-nested-3k-v0?",
        },
        "16 to 320",
        ("3.2 k",),
    ),
    "dialogue": Subject(
        "Dialogues",
        "recursive_ppo_dialogue",
        "turns",
        {str(turns): f"RAO/Dialogue-{turns}turn-v0?" for turns in (5, 10, 20, 40)},
        "10",
    ),
}
"""By the names that the command takes."""


class Decisions(NamedTuple):
    """Counts of decisions, one row per episode and one column per level; int64 (episodes, levels)."""

    taken: npt.NDArray[np.int64]
    open: npt.NDArray[np.int64]  # both a spawn and a primitive action were allowed
    spawned: npt.NDArray[np.int64]  # of those


def watch(subject: Subject, size: str, episodes: int) -> dict[str, Any]:
    """Let the model of `subject` act on one of its sizes, greedily and sampled, and count when it delegates.

    Args:
        subject: the model.
        size: one of `subject.tasks`.
        episodes: of the fixed seeds, fewer where the size is a long one.

    Returns:
        "greedy" and "sampled": success, rate (share of the open decisions that spawned, with a bootstrap interval over episodes; None
        where no decision was open), open (share of all decisions), frames, deepest, steps and critical_path (means over episodes), and
        levels: per level of the deciding frame, how many decisions were taken, open, and spawned. And "episodes".
    """
    task = parse_task(subject.tasks[size])
    count = min(episodes, LONG) if size in subject.long else episodes
    loaded = load_agent(subject.model, task.env_id, task.kwargs or {})
    found: dict[str, Any] = {"task": subject.tasks[size], "episodes": count}
    for mode in MODES:
        played = score(loaded.agent, task.env_id, evaluation_seeds(count), mode=mode, env_kwargs=loaded.env_kwargs).episodes
        found[mode] = summarize(played, count_decisions(played, task.env_id, loaded.env_kwargs))
    return found


def count_decisions(played: Sequence[Episode], env_id: str, env_kwargs: dict[str, Any]) -> Decisions:
    """Play recorded episodes again, and look at every decision."""
    env: Any = gym.make(env_id, disable_env_checker=True, **env_kwargs).unwrapped
    is_spawn = np.zeros(int(env.action_space.n), np.bool_)
    is_spawn[list(env.spawn_actions)] = True
    levels = 1 + max(episode.deepest for episode in played)
    counts = np.zeros((3, len(played), levels), np.int64)
    try:
        for row, episode in enumerate(played):
            _, info = env.reset(seed=episode.seed)
            for action in episode.actions:
                mask, level = np.asarray(info["action_mask"], np.bool_), int(info["depth"])
                open_ = bool(mask[is_spawn].any() and mask[~is_spawn].any())
                counts[:, row, level] += (1, open_, open_ and bool(is_spawn[action]))
                info = env.step(int(action))[4]
    finally:
        env.close()
    return Decisions(*counts)


def summarize(played: Sequence[Episode], decisions: Decisions) -> dict[str, Any]:
    """What `watch` returns of one way of acting."""
    open_, spawned = decisions.open.sum(axis=1), decisions.spawned.sum(axis=1)
    means = {name: float(np.mean([getattr(episode, name) for episode in played])) for name in ("deepest", "steps", "critical_path")}
    return {
        "success": statistics.wilson(sum(bool(episode.success) for episode in played), len(played)).as_dict(),
        "rate": statistics.ratio(spawned, open_).as_dict() if open_.any() else None,
        "open": round(float(open_.sum() / decisions.taken.sum()), 4),
        "frames": round(float(np.mean([episode.nodes for episode in played])), 2),
        **{name: round(value, 2) for name, value in means.items()},
        "levels": [
            {"decisions": int(t), "open": int(o), "spawned": int(s)}
            for t, o, s in zip(*(column.sum(axis=0) for column in decisions), strict=True)
        ],
    }


def origin() -> dict[str, Any]:
    """Where the numbers come from, models included: each by the digest of its file."""
    digests = {name: hashlib.sha256(find_model(subject.model).read_bytes()).hexdigest() for name, subject in SUBJECTS.items()}
    return {"models": {SUBJECTS[name].model: digest for name, digest in digests.items()}, **provenance(th.get_num_threads())}


def draw(kept: dict[str, Any], images: Path) -> list[Path]:
    """The figures of everything that is kept: by size, and (sampled) by level."""
    from rao_baselines.figures import delegation_panels, level_panels

    families = {SUBJECTS[name].label: (SUBJECTS[name].axis, sizes) for name, sizes in _in_order(kept).items()}
    levels = {label: {size: found["sampled"]["levels"] for size, found in sizes.items()} for label, (_, sizes) in families.items()}
    written = delegation_panels(families, images / "delegation", title="When the trained agents delegate, by the size of the task")
    return written + level_panels(levels, images / "delegation-levels", title="By the level of the frame that decides (actions sampled)")


def _in_order(kept: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is kept, by family and size, in the order of `SUBJECTS`."""
    families = kept.get("families", {})
    return {
        name: {size: families[name][size] for size in subject.tasks if size in families[name]}
        for name, subject in SUBJECTS.items()
        if name in families
    }


def table(kept: dict[str, Any]) -> list[list[str]]:
    """A row per family and size, greedy / sampled; sizes that were not measured are left out."""
    rows = [["family (trained on)", "size", "success", "open decisions that spawn", "frames", "deepest level", "steps", "critical path"]]
    for name, sizes in _in_order(kept).items():
        subject = SUBJECTS[name]
        for position, (size, found_there) in enumerate(sizes.items()):
            both = [found_there[mode] for mode in MODES]
            rates = ["none is open" if found["rate"] is None else f"{found['rate']['value']:.3f}" for found in both]
            rows.append(
                [
                    f"{subject.label}, {subject.axis} ({subject.trained})" if position == 0 else "",
                    size,
                    " / ".join(f"{found['success']['value']:.2f}" for found in both),
                    rates[0] if rates == ["none is open"] * 2 else " / ".join(rates),
                    *(" / ".join(f"{found[key]:,.1f}" for found in both) for key in ("frames", "deepest", "steps", "critical_path")),
                ]
            )
    return rows
