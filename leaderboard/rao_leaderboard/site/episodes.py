"""Episodes to be watched: what the environment showed at every step, as small patches, and what happened in the recursion tree."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rao_envs import Evaluation

MAX_STEPS = 200
BOARD = slice(12, 628), slice(12, 626)
"""Rows and columns of a picture that show the environment; what is right of them repeats the tree."""

COLOURS = 48


class Chosen(NamedTuple):
    """An episode of a submission that can be watched."""

    key: str  # of the file, a function of what it shows
    run: str
    env_id: str
    episode: int
    seed: int
    success: bool
    steps: int


def choose(evaluation: Evaluation, run: str, salt: str) -> list[Chosen]:
    """The first success and the first failure of at most MAX_STEPS steps: a rule, so that nobody picks the prettiest."""
    found = []
    for wanted in (True, False):
        for k, episode in enumerate(evaluation.episodes):
            if bool(episode.success) is wanted and episode.steps <= MAX_STEPS:
                name = f"{salt} {run} {evaluation.env_id} {episode.seed}"
                key = hashlib.sha256(name.encode()).hexdigest()[:12]
                found.append(Chosen(key, run, evaluation.env_id, k, episode.seed, wanted, episode.steps))
                break
    return found


def record(chosen: Chosen, evaluation: Evaluation, about: Mapping[str, Any]) -> str:
    """The data file of an episode: one call of a function of the viewer, which works where no file can be fetched.

    Args:
        chosen: the episode.
        evaluation: that holds it.
        about: what the viewer says of it.

    Raises:
        gymnasium.error.DependencyNotInstalled: pictures need the extra "render".
    """
    episode = evaluation.episodes[chosen.episode]
    env = gym.make(evaluation.env_id, render_mode="rgb_array", **evaluation.env_kwargs)
    _, info = env.reset(seed=episode.seed)
    base: Any = env.unwrapped
    names = list(base.action_names)
    camera = Camera(_picture(env))
    frames: list[dict[str, Any]] = [{"id": 0, "parent": -1, "depth": 0, "open": 0, "close": None, "how": "root", "ok": None}]
    known = {0: frames[0]}
    steps = []
    for k, action in enumerate(episode.actions.tolist(), 1):
        _, _, terminated, truncated, info = env.step(action)
        for entry in info["returned"]:
            frame = known.get(entry["frame_id"])
            if frame is None:  # opened and closed within one step
                how = names[entry["action"]] if entry["action"] >= 0 else "root"
                frame = {"id": entry["frame_id"], "parent": entry["parent_id"], "depth": entry["depth"], "open": k, "how": how}
                known[entry["frame_id"]] = frame
                frames.append(frame)
            frame["close"], frame["ok"] = k, bool(entry["success"])
        acting = int(info["frame_id"])
        if acting not in known:
            how = names[action] if info["event"] == "spawn" else _opened_by(names, info)
            known[acting] = {
                "id": acting,
                "parent": int(info["parent_id"]),
                "depth": int(info["depth"]),
                "open": k,
                "close": None,
                "how": how,
                "ok": None,
            }
            frames.append(known[acting])
        steps.append({"action": names[action], "frame": acting, "event": str(info["event"]), "patch": camera.see(_picture(env))})
        if terminated or truncated:
            break
    env.close()
    order = {frame["id"]: k for k, frame in enumerate(frames)}  # ids grow beyond what JavaScript counts exactly
    for frame in frames:
        frame["parent"] = order.get(frame["parent"], -1)
    for step in steps:
        step["frame"] = order[step["frame"]]
    for frame in frames:
        frame["id"] = order[frame["id"]]
    data = {**about, "size": list(camera.size), "first": camera.first, "frames": frames, "steps": steps, "success": bool(episode.success)}
    return f"raoEpisode({json.dumps(chosen.key)},{json.dumps(data, separators=(',', ':'), ensure_ascii=True)});\n"


def _opened_by(names: list[str], info: Mapping[str, Any]) -> str:
    """How a frame was opened that comes after a sibling which was opened by the same step."""
    entry = info["returned"][-1] if info["returned"] else None
    return names[entry["action"]] if entry is not None and entry["action"] >= 0 else "spawn"


def _picture(env: gym.Env[Any, Any]) -> npt.NDArray[np.uint8]:
    picture: Any = env.render()
    return np.ascontiguousarray(picture[BOARD])


class Camera:
    """The first picture whole, and of every other one the rectangle that has changed, as PNG files in base64."""

    def __init__(self, picture: npt.NDArray[np.uint8]) -> None:
        self.size = (picture.shape[1], picture.shape[0])
        self.last = picture
        self.first = _png(picture)

    def see(self, picture: npt.NDArray[np.uint8]) -> list[Any] | None:
        """[x, y, PNG] of what has changed; None if nothing has."""
        changed = (picture != self.last).any(axis=2)
        self.last = picture
        if not changed.any():
            return None
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        top, left = int(rows[0]), int(columns[0])
        return [left, top, _png(picture[top : rows[-1] + 1, left : columns[-1] + 1])]


def _png(picture: npt.NDArray[np.uint8]) -> str:
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(picture).quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
