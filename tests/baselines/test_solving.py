from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
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


def test_an_expression_a_document_and_brackets_of_ones_own(rao: Callable[..., Any], tmp_path: Path) -> None:
    algebra = rao("solve", "Algebra", "--expression", "3*(x - 2) - d/dx(4*x + 1)", "--agent", "solver", "--json").json
    assert (algebra["answer"], algebra["truth"], algebra["success"]) == ("3x", "3x", True)
    assert algebra["question"].startswith("3*(x - 2) - d/dx(4*x + 1)")
    assert algebra["steps"][-1]["returned"] == ["frame 0 returns 3x (right)"]
    document = tmp_path / "contract.txt"
    document.write_text("the liability of the seller and the liability of the buyer are no liability of mine. " * 100)
    counted = rao("solve", "LongSeq", "--document", str(document), "--query", "count:liability", "--agent", "solver", "--json").json
    assert counted["answer"] == counted["truth"]
    assert "liability" in counted["question"]
    nested = rao("solve", "LongSeq-nested", "--text", "[MAX 2 0 [MIN 1 2] 0]", "--agent", "solver", "--json").json
    assert (nested["answer"], nested["truth"]) == ("2", "2")


def test_what_cannot_be_solved_is_explained(rao: Callable[..., Any], tmp_path: Path) -> None:
    for arguments, message in (
        (("Mase",), "no environment"),
        (("Maze", "--layout", str(tmp_path / "none.txt")), "none.txt"),
        (("Maze", "--document", "x.txt"), "document"),
        (("Maze-5x5", "--agent", "nobody"), "nobody"),
        (("Maze-5x5", "--seed", "-1"), "--seed"),
        (("CartPole-v1",), "recursive"),
        (("Algebra", "--expression", "3*(x"), "column"),
        (("LongSeq", "--document", str(tmp_path / "none.txt"), "--query", "count:word"), "none.txt"),
        (("LongSeq-nested", "--text", "[MAX 2"), "column"),
    ):
        done = rao("solve", *arguments)
        assert done.code == 2, done
        assert message in done.err


def test_a_model_is_not_asked_what_it_never_learned(rao: Callable[..., Any], tmp_path: Path) -> None:
    document = tmp_path / "contract.txt"
    document.write_text("the seller bears liability for section 4 and the buyer bears none of section 7 at all. " * 300)
    for query, agent in (
        ("exists:liability", "recursive_ppo_longseq"),
        ("last:seller", "recursive_ppo_longseq"),
        ("keys:the,seller,bears", "solver"),
        ("topk:section", "solver"),
        ("pairs:seller,buyer", "solver"),
    ):
        solution = rao("solve", "LongSeq", "--document", document, "--query", query, "--json").json
        assert (solution["agent"], solution["answer"]) == (agent, solution["truth"])
    for expression, agent in (
        ("x + 1", "recursive_ppo_algebra"),
        ("(2*x + 1)[x := 3*x]", "solver"),
        ("x", "solver"),
        ("-7", "recursive_ppo_algebra"),
    ):
        solution = rao("solve", "Algebra", "--expression", expression, "--json").json
        assert solution["agent"] == agent, expression
        assert solution["success"] or agent != "solver"
    assert rao("solve", "Algebra", "--expression", "x*y", "-e", "polynomial=true", "--json").json["success"]


def test_a_trip_with_an_ontology_of_ones_own(rao: Callable[..., Any]) -> None:
    trips = str(files("rao_envs.dialogue").joinpath("data", "trip.json"))
    solved = rao("solve", "Dialogue", "--ontology", trips, "--seed", 1, "--json").json
    assert solved["answer"] is not None
    assert len(solved["steps"]) > 3
    assert "cannot read the file" in rao("solve", "Dialogue", "--ontology", "nowhere.json").err
