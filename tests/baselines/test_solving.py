from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

MAP = "S..#\n.#..\n...G\n"


def test_solve_a_maze_of_ones_own(rao: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(MAP)
    done = rao("solve", "Maze", "--layout", str(path), "--agent", "solver", "--json")
    assert done.code == 0
    solution = done.json
    assert solution["success"]
    assert solution["tree"]["steps"] == len(solution["steps"])
    assert solution["steps"][-1]["returned"][-1] == "frame 0: right"
    text = rao("solve", "Maze", "--layout", str(path), "--agent", "solver").out
    assert "SUCCESS" in text
    assert "solved by solver" in text


def test_the_default_agent_is_the_shipped_model_that_fits(rao: Callable[..., Any]) -> None:
    done = rao("solve", "Maze-5x5", "--json")
    assert done.json["agent"] == "recursive_ppo"
    assert done.code == (0 if done.json["success"] else 1)
    other = rao("solve", "Maze-5x5", "-e", "radius=2", "--json")
    assert other.json["agent"] == "solver"
    twin = rao("solve", "Maze-5x5", "-e", "spawn=false", "--agent", "solver", "--json")
    assert twin.json["tree"]["nodes"] == 1


def test_what_cannot_be_solved_is_explained(rao: Callable[..., Any], tmp_path: Path) -> None:
    for arguments, message in (
        (("Mase",), "no environment"),
        (("Maze", "--layout", str(tmp_path / "none.txt")), "none.txt"),
        (("Maze", "--document", "x.txt"), "document"),
        (("Maze-5x5", "--agent", "nobody"), "nobody"),
        (("Maze-5x5", "--seed", "-1"), "--seed"),
        (("CartPole-v1",), "recursive"),
    ):
        done = rao("solve", *arguments)
        assert done.code == 2, done
        assert message in done.err
