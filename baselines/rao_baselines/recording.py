"""Pictures of an episode: played once by the evaluation's rules, then again from its actions with the camera on."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rao_baselines.errors import UserError
from rao_baselines.runs import write_bytes_atomically

Frame = npt.NDArray[np.uint8]  # (height, width, 3)


def film(
    env_id: str,
    seed: int,
    actions: Sequence[int] | npt.NDArray[np.int64],
    env_kwargs: dict[str, Any] | None = None,
    max_frames: int = 400,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Frame]:
    """The pictures of an episode, first and last included; of a long one, evenly spaced ones.

    Args:
        env_id: the environment, which must offer `rgb_array`.
        seed: of the episode.
        actions: all of its actions, in order.
        env_kwargs: the environment's arguments.
        max_frames: at least 2.
        report: told how many steps are done.

    Raises:
        UserError: the environment offers no pictures.
    """
    try:
        env = gym.make(env_id, render_mode="rgb_array", **(env_kwargs or {}))
    except (TypeError, ValueError, gym.error.Error) as error:
        raise UserError(f"{env_id} offers no pictures: {error}") from error
    wanted = set(np.unique(np.linspace(0, len(actions), max(max_frames, 2)).astype(int)).tolist())
    try:
        env.reset(seed=seed)
        frames = [_picture(env)]
        for step, action in enumerate(actions, 1):
            env.step(int(action))
            if step in wanted:
                frames.append(_picture(env))
            report(step, len(actions))
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f'{error}; install what pictures need with: pip install "rao-envs[render]"') from error
    finally:
        env.close()
    return frames


def _picture(env: gym.Env[Any, Any]) -> Frame:
    picture = env.render()
    if not isinstance(picture, np.ndarray):
        raise UserError(f"{env.spec.id if env.spec else env} rendered no picture")
    return picture


def save_gif(frames: Sequence[Frame], path: Path, fps: float = 8.0, width: int = 640, pause: float = 2.0) -> Path:
    """Write an endless GIF.

    Args:
        frames: at least one, all of one size.
        path: ".gif" is added where it has another suffix.
        fps: pictures per second.
        width: in pixels; larger pictures are scaled down.
        pause: seconds on the last picture.

    Raises:
        UserError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError('a GIF needs Pillow: pip install "rao-envs[baselines]"') from error
    pictures = [Image.fromarray(frame) for frame in frames]
    if pictures[0].width > width:
        height = round(pictures[0].height * width / pictures[0].width)
        pictures = [picture.resize((width, height), Image.Resampling.LANCZOS) for picture in pictures]
    # One palette for all, from the first and the last: colours do not flicker, and equal areas stay equal and compress.
    sample = Image.new("RGB", (pictures[0].width, 2 * pictures[0].height))
    sample.paste(pictures[0], (0, 0))
    sample.paste(pictures[-1], (0, pictures[0].height))
    palette = sample.quantize(256, method=Image.Quantize.MAXCOVERAGE)
    indexed = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    duration = [round(1000 / fps)] * (len(indexed) - 1) + [round(1000 * pause)]
    buffer = io.BytesIO()
    indexed[0].save(buffer, "GIF", save_all=True, append_images=indexed[1:], duration=duration, loop=0, optimize=False)
    path = path if path.suffix == ".gif" else path.with_suffix(".gif")
    write_bytes_atomically(path, buffer.getvalue())
    return path
