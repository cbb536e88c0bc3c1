"""`rao play`: a person plays, spawn actions included, in the terminal or in a window."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.config import parse_assignments
from rao_baselines.errors import UserError

NAME = "play"


def command(
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment id.", show_default=False)] = "RAO/Maze-10x10",
    seed: Annotated[int, typer.Option(help="Of the first episode.")] = 0,
    window: Annotated[bool, typer.Option("--window", help="Play in a window instead of the terminal.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Read lines of words instead of single keys.")] = False,
    gif: Annotated[Path | None, typer.Option(help="Write the last episode as a GIF.", show_default=False)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--env-arg", "-e", metavar="KEY=VALUE", help="Keyword argument of the environment; spawn=false plays the twin."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the last episode as JSON at the end.")] = False,
) -> None:
    """Play by hand: move with w a s d or the arrow keys, spawn a sub-agent with i j k l, t for the target.

    Where there are more actions than keys, type their numbers or names, several in a line if you like, and press Enter.

    [bold]Examples[/bold]

      rao play

      rao play RAO/Maze-20x20 --window --gif my-game.gif

      echo "spawn_east d d s quit" | rao play RAO/Maze-5x5 --json
    """
    from rao_baselines import playing
    from rao_baselines.environments import resolve_id

    env_id = resolve_id(env)
    if not 0 <= seed < 2**63:
        raise UserError(f"--seed must lie in [0, 2**63), got {seed}")
    if gif is not None:
        from rao_baselines.runs import check_file

        check_file(gif)
    kwargs = parse_assignments(assignments or [])
    screen = sys.stderr if as_json else sys.stdout
    smart = screen.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    colors = smart and "NO_COLOR" not in os.environ
    made = _make(env_id, kwargs)
    names: Any = made.get_wrapper_attr("action_names")
    few = playing.has_single_keys(names)
    single_keys = smart and sys.stdin.isatty() and not lines and _has_termios() and few
    help_line = playing.legend(names)

    def draw(remark: str) -> str:
        if window:
            return remark
        picture = str(made.render())
        keys = help_line if few else playing.legend(names, made.unwrapped.action_masks())
        return "\n".join([picture if colors else playing.strip_colors(picture), remark, keys])

    source: Any
    if window:
        source = playing.WindowSource(screen, made)
        ui.say(help_line.replace("[", r"\["))
    else:
        source = playing.KeySource(screen) if single_keys else playing.LineSource(screen, sys.stdin.isatty())
    try:
        with source.raw() if isinstance(source, playing.KeySource) else nullcontext():
            episode = playing.play(made, source, seed, draw)
    finally:
        made.close()
    if gif is not None:
        from rao_baselines.recording import film, save_gif

        actions = [names.index(name) for name in episode["actions"]]
        path = save_gif(film(env_id, episode["seed"], actions, kwargs), gif)
        ui.say(f"wrote {path}")
    if as_json:
        ui.print_json({key: value for key, value in episode.items() if key != "mask"})


def _make(env_id: str, kwargs: dict[str, Any]) -> Any:
    """The environment, drawn as text.

    Raises:
        UserError: arguments it does not take, or an environment that cannot be played like this.
    """
    import gymnasium as gym

    try:
        plain = gym.make(env_id, **kwargs)
        if not hasattr(plain.unwrapped, "action_names") or "ansi" not in plain.metadata["render_modes"]:
            raise UserError(f"{env_id} cannot be played: rao play needs named actions and pictures as text, as this suite's have")
        return gym.make(env_id, render_mode="ansi", **kwargs)
    except (TypeError, ValueError, gym.error.Error) as error:
        raise UserError(f"{env_id} cannot be made with {kwargs}: {error}" if not isinstance(error, UserError) else str(error)) from error


def _has_termios() -> bool:
    try:
        import termios  # noqa: F401
    except ImportError:  # Windows
        return False
    return True
