from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from PIL import Image

import rao_envs
from rao_baselines import playing
from rao_baselines.errors import UserError
from rao_baselines.recording import film, save_gif
from rao_envs.core.actors import RandomAgent

ENV = "RAO/Maze-5x5-v0"
NAMES = gym.make(ENV).unwrapped.action_names  # type: ignore[attr-defined]


def script(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_scripted_play(rao: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(monkeypatch, "spawn_target w 1\nmumble\n\nds q w\n")
    done = rao("play", "Maze-5x5", "--seed", 3, "--gif", tmp_path / "game", "--json")
    assert done.code == 0
    assert done.json == {
        "seed": 3,
        "actions": ["spawn_target", "north", "east", "east", "south"],
        "steps": 5,
        "success": None,
        "return": 0.0,
    }
    assert "'mumble' is no action or key" in done.err
    assert "[i] spawn_north" in done.err
    assert "spawn target" in done.err  # the recursion tree
    assert "\x1b" not in done.err
    with Image.open(tmp_path / "game.gif") as picture:
        assert picture.n_frames == 6


def test_play_to_the_end_and_again(rao: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    episode = rao_envs.evaluate(RandomAgent(), ENV, [0], spawn=False).episodes[0]
    solution = " ".join(str(action) for action in episode.actions)
    script(monkeypatch, f"{solution} w\nr d")
    done = rao("play", "Maze-5x5", "-e", "spawn=false")
    assert ("solved" if episode.success else "not solved") + f" after {episode.steps} steps" in done.out
    assert "seed 1" in done.out
    script(monkeypatch, solution)
    last = rao("play", "Maze-5x5", "-e", "spawn=false", "--json").json
    assert (last["steps"], last["success"], last["return"]) == (episode.steps, episode.success, episode.return_)


def test_play_in_a_window(rao: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import pygame

    from rao_envs.core.canvas import Window

    pressed = iter([(), ("w",), ("l", "up"), ("q",)])
    monkeypatch.setattr(Window, "keys", lambda self: next(pressed))
    done = rao("play", "Maze-5x5", "--window", "--json")
    assert done.code == 0
    first, second, third = done.json["actions"]
    assert (first, second, third) == ("north", "spawn_east", "north")
    pygame.display.quit()


def test_keys() -> None:
    table = playing.key_table(NAMES)
    assert [table[key] for key in ("w", "d", "s", "a", "up", "right", "down", "left")] == [0, 1, 2, 3] * 2
    assert [table[key] for key in ("i", "l", "k", "j", "t")] == [4, 5, 6, 7, 8]
    assert all(table[name] == table[str(index)] == index for index, name in enumerate(NAMES))
    assert playing.parse("wwd", table) == [0, 0, 1]
    assert playing.parse(" NORTH ", table) == [0]
    assert playing.parse("q", table) == [playing.QUIT]
    # Whatever a family calls its actions, each has a key, and quitting stays possible.
    other = playing.key_table(("q", "write_0", "spawn_all"))
    assert (other["q"], other["0"], other["1"], other["spawn_all"]) == (playing.QUIT, 0, 1, 2)


def test_single_keys_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    source = playing.KeySource(screen)
    typed = iter([b"w", b"\x1b[A", b"\x1bOD", b"\x1b[Z", "é".encode(), b"\x04"])
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"fileno": lambda self: 0})())
    monkeypatch.setattr("os.read", lambda descriptor, count: next(typed))
    assert [source.read() for _ in range(6)] == [["w"], ["up"], ["left"], ["unknown key"], ["é"], []]
    source.show("text")
    assert screen.getvalue().endswith("text\n")


def test_films(tmp_path: Path) -> None:
    episode = rao_envs.evaluate(RandomAgent(), ENV, [5]).episodes[0]
    frames = film(ENV, 5, episode.actions, max_frames=4)
    assert len(frames) == min(4, episode.steps + 1)
    assert frames[0].shape == frames[-1].shape
    path = save_gif(frames, tmp_path / "film.txt", width=200)
    assert path == tmp_path / "film.gif"
    with Image.open(path) as picture:
        assert picture.size[0] == 200
        assert picture.info["loop"] == 0
    with pytest.raises(UserError, match="offers no pictures"):
        film(ENV, 0, [], {"sise": 3})


def test_demo(rao: Callable[..., Any], tmp_path: Path) -> None:
    options = ["--steps", 2100, "--env", "Maze-5x5", "--out", tmp_path / "demo"]
    done = rao("demo", *options, "--json")
    assert done.code == 0, done.err
    assert {row["name"] for row in done.json["comparison"]["rows"]} == {"recursive_ppo", "maskable_ppo"}
    assert all(Path(path).stat().st_size > 1000 for path in done.json["files"])
    assert {Path(path).suffix for path in done.json["files"]} == {".png", ".svg", ".gif"}
    again = rao("demo", *options)
    assert "What to try next" in again.err
    assert "maskable_ppo" in again.out
    assert json.loads((tmp_path / "demo" / "recursive_ppo" / "result.json").read_text())["seed"] == 0


def test_more_actions_than_keys_are_typed_by_number_or_name(rao: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    long = gym.make("RAO/LongSeq-1k-v0").unwrapped.action_names  # type: ignore[attr-defined]
    assert playing.has_single_keys(NAMES)
    assert not playing.has_single_keys(long)
    table = playing.key_table(long)
    assert [playing.parse(word, table) for word in ("12", "3", long[20])] == [[12], [3], [20]]
    with pytest.raises(ValueError, match="'99' is no action"):
        playing.parse("99", table)
    assert playing.parse("00", playing.key_table(NAMES)) == [0, 0]  # keys in a row, where there is one for every action
    shown = playing.legend(long, [index == 12 for index in range(len(long))])
    assert f"[12] {long[12]}" in shown
    assert long[11] not in shown
    script(monkeypatch, "12")
    done = rao("play", "LongSeq-1k", "--seed", 0, "--json")
    assert done.json["actions"] == [long[12]]


def test_a_player_is_not_told_what_an_agent_is_not(rao: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, "spawn_left\nwrite_0\nwrite_0\n")
    done = rao("play", "Algebra-v0", "-e", "expressions=['(x + 1) - (2*x)']", "--seed", 0)
    assert "frame 1 returned" in done.out
    assert "succeeded" not in done.out
