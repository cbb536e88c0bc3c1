"""Pictures of nested brackets."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from rao_envs.nested.env import NestedEnv
from rao_envs.nested.reference import MonolithicSolver, RecursiveSolver
from rao_envs.nested.viewer import NestedView, NestedViewer, draw_ansi, draw_rgb

CASES: list[dict[str, Any]] = [
    {"length": 8},
    {"length": 60, "view": "raw"},
    {"length": 320},
    {"length": 3200},
    {"length": 320, "spawn": False, "stack": 2},
    {"length": 320, "spawn": False, "view": "raw", "stack": 2},
]
every_case = pytest.mark.parametrize("kwargs", CASES, ids=str)


def views(kwargs: dict[str, Any], steps: int) -> list[NestedView]:
    """Snapshots of an episode played by a scripted agent."""
    env = NestedEnv(render_mode="ansi", **kwargs)
    own = {name: value for name, value in kwargs.items() if name in ("view", "stack")}
    solver = RecursiveSolver(**own) if kwargs.get("spawn", True) else MonolithicSolver(**own)
    observation, _ = env.reset(seed=4)
    snapshots = [env.view()]
    for _ in range(steps):
        observation, _, terminated, truncated, _ = env.step(solver(observation, env.action_masks()))
        snapshots.append(env.view())
        if terminated or truncated:
            break
    return snapshots


@every_case
def test_every_moment_can_be_drawn_and_equal_moments_look_alike(kwargs: dict[str, Any]) -> None:
    pytest.importorskip("pygame")
    viewer = NestedViewer()
    for view in views(kwargs, 60)[::7]:
        picture = viewer.draw_rgb(view)
        assert picture.shape == (640, 900, 3)
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture, draw_rgb(view))
        assert viewer.draw_rgb(view, (321, 200)).shape == (200, 320, 3)
    assert pickle.loads(pickle.dumps(viewer)).draw_rgb(view).shape == (640, 900, 3)


@every_case
def test_a_terminal_shows_the_question_the_frames_and_what_the_acting_one_sees(kwargs: dict[str, Any]) -> None:
    for view in views(kwargs, 40):
        lines = draw_ansi(view, color=False).splitlines()
        assert f"truth {view.truth}" in lines[0]
        assert "\x1b" not in "".join(lines)
        assert max(map(len, lines)) < 260
        shown = next(line for line in lines if line.startswith("sees "))
        assert shown.startswith(f"sees {view.focus.operator}: ")
        assert sum(cell.kind == "answer" for cell in view.cells) == shown.count("(") - shown.count("(cursor")


def test_pictures_differ_when_something_happened_and_show_the_end() -> None:
    pytest.importorskip("pygame")
    snapshots = views({"length": 60}, 1000)
    pictures = {draw_rgb(view).tobytes() for view in snapshots}
    assert len(pictures) == len(snapshots)
    assert snapshots[-1].episode.outcome == "success"
    assert snapshots[-1].answer == snapshots[-1].truth
    assert snapshots[-1].stack == ()


def test_wrong_answers_are_marked() -> None:
    env = NestedEnv(text="[SUM 1 [MAX 0 2] [MIN 1 2]]", render_mode="ansi")
    env.reset(seed=0)
    for name in ("spawn_all", "answer_0", "answer_1"):
        env.step(env.action_names.index(name))
    assert [(cell.kind, cell.text, cell.correct) for cell in env.view().cells] == [
        ("digit", "1", None),
        ("answer", "0", False),
        ("answer", "1", True),
    ]
    assert "0!" in draw_ansi(env.view(), color=False)
