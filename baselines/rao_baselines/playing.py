"""Playing an environment by hand: keys, and one loop for terminal, window and script."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

import gymnasium as gym

from rao_baselines.errors import UserError
from rao_envs.core.canvas import Window

QUIT, RESTART = "quit", "restart"
COMPASS = {"north": ("w", "up"), "west": ("a", "left"), "south": ("s", "down"), "east": ("d", "right")}
SPAWN_COMPASS = {"spawn_north": "i", "spawn_west": "j", "spawn_south": "k", "spawn_east": "l", "spawn_target": "t"}
ESCAPES = {"[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left"}


class Source(Protocol):
    """Where commands come from and pictures go to."""

    def show(self, text: str) -> None:
        """Show the state and the remark."""

    def read(self) -> list[str]:
        """The next words or keys; empty when there will be no more."""


def key_table(names: Sequence[str]) -> dict[str, int | str]:
    """Keys for the actions called `names`: compass keys where they fit, their numbers, and the names themselves."""
    table: dict[str, int | str] = {"q": QUIT, "r": RESTART, "quit": QUIT, "restart": RESTART}
    for index, name in enumerate(names):
        keys = [name, *COMPASS.get(name, ())]
        if name in SPAWN_COMPASS:
            keys.append(SPAWN_COMPASS[name])
        keys.append(str(index))
        table.update({key: index for key in keys if key not in table})
    return table


def has_single_keys(names: Sequence[str]) -> bool:
    """Whether every action has a key of its own; otherwise numbers and names are typed in lines."""
    arrows = ESCAPES.values()
    reached = {action for key, action in key_table(names).items() if len(key) == 1 or key in arrows}
    return reached >= set(range(len(names)))


def legend(names: Sequence[str], mask: Any = None) -> str:
    """One line that says which key does what; with a `mask`, of the actions that it allows."""
    parts = []
    for index, name in enumerate(names):
        if mask is not None and not mask[index]:
            continue
        key = COMPASS[name][0] if name in COMPASS else SPAWN_COMPASS.get(name, str(index))
        parts.append(f"[{key}] {name}")
    return "  ".join([*parts, "[r] restart", "[q] quit"])


def parse(word: str, table: dict[str, int | str]) -> list[int | str]:
    """What a word means: a name, a key, or several keys in a row ("wwd").

    Raises:
        ValueError: none of these.
    """
    word = word.strip().lower()
    if word in table:
        return [table[word]]
    numbered = word.isdigit() and "10" in table  # then "12" is the action 12, not 1 and 2
    if word and not numbered and all(char in table for char in word):
        return [table[char] for char in word]
    raise ValueError(f"{word!r} is no action or key")


def play(env: gym.Env[Any, Any], source: Source, seed: int | None, draw: Any) -> dict[str, Any]:
    """Let `source` play until it quits or has no more to say; after an episode's end only restart and quit are possible.

    Args:
        env: made already.
        source: of commands.
        seed: of the first episode; each restart takes the next one.
        draw: makes the text or picture that `source.show` gets, from the environment and a remark.

    Returns:
        `seed`, `actions` (names), `steps`, `success` (None while it is undecided) and `return` of the last episode.
    """
    base: Any = env.unwrapped
    names = tuple(getattr(base, "action_names", ())) or tuple(f"action_{i}" for i in range(base.action_space.n))
    table = key_table(names)
    episode = _begin(env, seed)
    source.show(draw(f"seed {episode['seed']}"))
    while words := source.read():
        for word in words:
            try:
                commands = parse(word, table)
            except ValueError as error:
                source.show(draw(str(error)))
                continue
            for command in commands:
                if command == QUIT:
                    return episode
                if command == RESTART:
                    episode = _begin(env, None if episode["seed"] is None else episode["seed"] + 1)
                    source.show(draw(f"seed {episode['seed']}"))
                elif episode["success"] is None:
                    source.show(draw(_step(env, base, names, int(command), episode)))
                else:
                    source.show(draw(_ending(episode)))
    return episode


def _begin(env: gym.Env[Any, Any], seed: int | None) -> dict[str, Any]:
    _, info = env.reset(seed=seed)
    return {"seed": seed, "actions": [], "steps": 0, "success": None, "return": 0.0, "mask": info.get("action_mask")}


def _step(env: gym.Env[Any, Any], base: Any, names: Sequence[str], action: int, episode: dict[str, Any]) -> str:
    """Take the action; returns the remark."""
    mask = episode["mask"]
    refused = mask is not None and not mask[action]
    _, reward, terminated, truncated, info = env.step(action)
    episode["actions"].append(names[action])
    episode["steps"] += 1
    episode["return"] += float(reward)
    episode["mask"] = info.get("action_mask")
    remark = f"{names[action]}: not possible here, it cost a step" if refused else names[action]
    for frame in info.get("returned", ()):
        # A player is told no more than an agent.
        told = getattr(getattr(base, "domain", None), "verdicts", True)
        verdict = ("succeeded" if frame["success"] else "failed") if told else "returned"
        remark += f"; frame {frame['frame_id']} {verdict}"
    if terminated or truncated:
        episode["success"] = bool(info.get("is_success", terminated and float(reward) > 0))
        remark += "; " + _ending(episode)
    return remark


def _ending(episode: dict[str, Any]) -> str:
    outcome = "solved" if episode["success"] else "not solved"
    return f"{outcome} after {episode['steps']} steps: [r] for another, [q] to stop"


# -- where commands come from ------------------------------------------------------------------------------------------------


class LineSource:
    """Words from lines of standard input: for scripts, pipes and terminals that know no single keys."""

    def __init__(self, screen: TextIO, interactive: bool) -> None:
        self.screen = screen
        self.interactive = interactive

    def show(self, text: str) -> None:
        """Print it."""
        self.screen.write(text + "\n")
        self.screen.flush()

    def read(self) -> list[str]:
        """The words of the next line that has any."""
        while True:
            if self.interactive:
                self.screen.write("> ")
                self.screen.flush()
            line = sys.stdin.readline()
            if not line:
                return []
            if line.split():
                return line.split()


class KeySource:
    """Single keys of a terminal; arrow keys included. The picture is drawn in place."""

    def __init__(self, screen: TextIO) -> None:
        self.screen = screen

    def show(self, text: str) -> None:
        """Clear the screen and print."""
        self.screen.write("\x1b[H\x1b[2J" + text + "\n")
        self.screen.flush()

    def read(self) -> list[str]:
        """The next key's name."""
        char = os.read(sys.stdin.fileno(), 8).decode("utf-8", "ignore")
        if not char or char in ("\x04", "\x03"):
            return []
        if char.startswith("\x1b"):
            return [ESCAPES.get(char[1:3], "unknown key")]
        return list(char)

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Keys at once and without echo, for as long as this lasts."""
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class WindowSource:
    """Keys of a window that shows the environment's picture."""

    def __init__(self, screen: TextIO, env: gym.Env[Any, Any]) -> None:
        self.screen = screen
        base: Any = env.unwrapped
        self.base = base
        if getattr(self.base, "viewer_class", None) is None:
            raise UserError("this environment has no pictures of its own; play in the terminal, without --window")
        self.viewer = self.base.viewer_class()
        self.window = Window(f"RAO-envs: {self.base.domain.name}")

    def show(self, text: str) -> None:
        """Draw the state; the remark goes to the terminal."""
        try:
            self._draw()
        except gym.error.DependencyNotInstalled as error:
            raise UserError(f'{error}; install what windows need with: pip install "rao-envs[render]"') from error
        self.screen.write(text + "\n")
        self.screen.flush()

    def _draw(self) -> None:
        self.window.show(self.viewer.draw_rgb(self.base.view()))

    def read(self) -> list[str]:
        """Wait for a key; empty when the window is closed."""
        while not self.window.closed:
            if keys := self.window.keys():
                return list(keys)
            self._draw()  # keeps the window alive at its own pace
        return []


def strip_colors(text: str) -> str:
    """`text` without colour codes, for terminals that do not know them."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
