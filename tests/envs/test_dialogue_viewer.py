"""Pictures of dialogues, drawn from hand-made snapshots and from real episodes: no display."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from rao_envs.core.viewer import FAILURE, SUCCESS, EpisodeView, FrameView, depth_color
from rao_envs.dialogue.chat import UNSURE, darker, tint
from rao_envs.dialogue.env import DialogueEnv
from rao_envs.dialogue.terminal import columns, draw_ansi, option_lines, shorten
from rao_envs.dialogue.transcript import Heard, Talk
from rao_envs.dialogue.view import ActView, DialogueFrameView, DialogueView, FinishedView, ItemView, OptionView, WishView, check
from rao_envs.dialogue.viewer import DialogueViewer, draw_rgb

SAID = (
    ActView("counterpart", "I am looking for a hotel."),
    ActView("counterpart", "Something cheap, please.", sure=False, meant="Something expensive, please."),
    ActView("agent", "How many stars should it have?"),
    ActView("counterpart", "Four stars."),
    ActView("agent", "Did you say cheap?"),
    ActView("counterpart", "No, expensive."),
    ActView("agent", "How about the Hotel Adria?"),
    ActView("counterpart", "No, the day does not suit me."),
)
TOLD = (
    ActView("counterpart", "We want to travel."),
    ActView("result", "Train to Graz: booked.", good=True),
    ActView("result", "Museum in Brno: booked.", good=False),
)
LONG = "Žluťoučký kůň in the Extraordinarily-Long-Named-Establishment-of-the-Northern-Quarter 東京 🙂 " * 4


def items(number: int = 4) -> tuple[ItemView, ...]:
    """Bookings: the first right, the second wrong, the third spoken about, the fourth waiting for it."""
    wishes = (WishView("in the north"), WishView("cheap", dropped=True))
    states: list[dict[str, Any]] = [
        {"booked": "Slavia", "right": True},
        {"booked": "Adria", "right": False},
        {"current": True},
        {"waits_for": ("Hotel",)},
    ]
    return tuple(ItemView(f"City {k // 8}", f"Domain {k}", wishes, **(states[k] if k < 4 else {})) for k in range(number))


def snapshot(depth: int = 2, said: tuple[ActView, ...] = SAID, held: int = 6, number: int = 4, outcome: str = "") -> DialogueView:
    """A made-up moment: `depth` frames are open below the root, and the innermost has heard `said`."""
    stack = [DialogueFrameView(k, ("Trip to Graz", "Graz", "Hotel in Graz")[k], TOLD, 3, 9 - k, 20) for k in range(depth + 1)]
    stack[-1] = dataclasses.replace(stack[-1], acts=said, held=min(held, len(said)))
    frames = [FrameView(k, k - 1, k, "spawn_hotel" if k else "root", 40, 7, outcome or "open") for k in range(depth + 1)]
    episode = EpisodeView("Dialogue-20turn", 7, 60, tuple(frames), "request_2", "step", outcome)
    options = (OptionView(2, "request_2", "How many stars should it have?"), OptionView(9, "book", "Book the Hotel Adria."))
    return DialogueView(tuple(stack), items(number), 6, 9, 20, episode, options)


def with_acting(view: DialogueView, **changes: Any) -> DialogueView:
    return dataclasses.replace(view, stack=(*view.stack[:-1], dataclasses.replace(view.stack[-1], **changes)))


def with_last_act(view: DialogueView, **changes: Any) -> DialogueView:
    acts = view.stack[-1].acts
    return with_acting(view, acts=(*acts[:-1], dataclasses.replace(acts[-1], **changes)))


def with_item(view: DialogueView, k: int, **changes: Any) -> DialogueView:
    return dataclasses.replace(view, items=(*view.items[:k], dataclasses.replace(view.items[k], **changes), *view.items[k + 1 :]))


def has_color(picture: npt.NDArray[np.uint8], color: tuple[int, int, int]) -> bool:
    return bool((picture == np.array(color, np.uint8)).all(axis=2).any())


@pytest.fixture(scope="module")
def viewer() -> DialogueViewer:
    return DialogueViewer()


# --- pictures ---

MOMENTS = {
    "three frames": snapshot(),
    "two frames": snapshot(1),
    "one frame": snapshot(0),
    "nothing said": snapshot(0, ()),
    "nothing at all": dataclasses.replace(snapshot(), stack=(), items=(), options=()),
    "all forgotten": snapshot(held=0),
    "many acts": snapshot(said=SAID * 40),
    "many bookings": snapshot(number=64),
    "children that returned": with_acting(
        snapshot(0, TOLD, 3), finished=tuple(FinishedView(1, "Train", SAID * (k + 1), min(k, 3)) for k in range(9))
    ),
    "much given": with_acting(snapshot(), given=(*TOLD, ActView("result", LONG, carried=True, good=True)) * 4),
    "no turns": dataclasses.replace(snapshot(), turns=0, turns_left=0),
    "many turns": dataclasses.replace(snapshot(), turns=1000, turns_left=1000),
    "won": snapshot(0, outcome="success"),
    "lost": snapshot(0, outcome="failure"),
    "out of steps": snapshot(2, outcome="truncated"),
    "a stack of twenty": dataclasses.replace(snapshot(), stack=tuple(DialogueFrameView(k, "Frame", SAID, 3, 1, 2) for k in range(20))),
    "long names": dataclasses.replace(
        snapshot(said=(ActView("agent", LONG), ActView("counterpart", LONG, False, LONG, True, LONG), ActView("result", LONG))),
        items=tuple(ItemView(LONG, LONG, (WishView(LONG),), LONG, True, (LONG,)) for _ in range(5)),
        source=LONG,
    ),
    "letters that the font lacks": with_last_act(snapshot(), text="責任 \u0301 🙂 क्षि", about="नि"),
}
every_moment = pytest.mark.parametrize("view", MOMENTS.values(), ids=MOMENTS)


@every_moment
def test_every_moment_can_be_drawn_in_every_size(viewer: DialogueViewer, view: DialogueView) -> None:
    assert viewer.draw_rgb(view).shape == (640, 900, 3)
    for width, height in ((900, 640), (64, 64), (480, 320), (300, 900), (901, 101), (320, 241), (1800, 1200)):
        picture = viewer.draw_rgb(view, (width, height))
        assert picture.shape == (height // 2 * 2, width // 2 * 2, 3)
        assert picture.dtype == np.uint8
        assert picture.flags.writeable
        assert picture.flags.c_contiguous


@every_moment
def test_every_moment_can_be_told(view: DialogueView) -> None:
    for shown in (view, dataclasses.replace(view, revealed=False)):
        lines = draw_ansi(shown, color=False, width=80).splitlines()
        assert "\x1b" not in "".join(lines)
        assert len(lines) < 60 + 5 * len(view.stack) + 8 * len(view.items)
        assert max(map(columns, lines)) < 120


@pytest.mark.parametrize("size", [(10, 640), (640, 0), (5000, 640)])
def test_impossible_size_is_an_error(viewer: DialogueViewer, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"64\.\.4096"):
        viewer.draw_rgb(snapshot(), size)


@pytest.mark.parametrize(("view", "match"), [
    (dataclasses.replace(snapshot(), turns_left=21), "21 of 20 turns left"),
    (with_acting(snapshot(), held=9), "'Hotel in Graz' cannot hold 9 of 8 acts"),
    (with_last_act(snapshot(), speaker="user"), "'user' is no speaker: one of agent, counterpart, result"),
])  # fmt: skip
def test_snapshots_that_make_no_sense_are_errors(viewer: DialogueViewer, view: DialogueView, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        viewer.draw_rgb(view)
    with pytest.raises(ValueError, match=match):
        draw_ansi(view)


def test_equal_snapshots_give_equal_pixels(viewer: DialogueViewer) -> None:
    """Whatever was drawn before, by whichever viewer, and nobody shares a buffer."""
    first = viewer.draw_rgb(snapshot())
    kept = first.copy()
    first[:] = 0
    viewer.draw_rgb(MOMENTS["long names"], (640, 400))
    np.testing.assert_array_equal(viewer.draw_rgb(snapshot()), kept)
    np.testing.assert_array_equal(draw_rgb(snapshot()), kept)


def test_every_part_of_the_state_shows(viewer: DialogueViewer) -> None:
    base = snapshot(1)
    variants = [
        snapshot(0),
        snapshot(2),
        dataclasses.replace(base, turns_left=8),
        dataclasses.replace(base, turns=19),
        dataclasses.replace(base, window=7),
        dataclasses.replace(base, source="my.json"),
        dataclasses.replace(base, revealed=False),
        dataclasses.replace(base, items=()),
        dataclasses.replace(base, episode=dataclasses.replace(base.episode, step=8)),
        dataclasses.replace(base, episode=dataclasses.replace(base.episode, outcome="success")),
        with_acting(base, acts=SAID[:-1]),
        with_acting(base, held=5),
        with_acting(base, missing=3),
        with_acting(base, title="Train"),
        with_acting(base, finished=(FinishedView(2, "Train", SAID, 0),)),
        with_acting(base, finished=(FinishedView(2, "Train", SAID, 8),)),
        with_acting(base, finished=(FinishedView(2, "Train", SAID[:4], 8),)),
        with_acting(base, finished=(FinishedView(2, "Tour", SAID, 8),)),
        with_acting(base, focus="Train"),
        with_acting(base, given=TOLD[1:2]),
        with_acting(base, given=TOLD[2:]),
        with_acting(base, turns_left=1),
        with_acting(base, turns=30),
        with_last_act(base, speaker="agent"),
        with_last_act(base, speaker="result"),
        with_last_act(base, speaker="result", good=True),
        with_last_act(base, speaker="result", good=False),
        with_last_act(base, text="Yes."),
        with_last_act(base, sure=False),
        with_last_act(base, meant="Yes."),
        with_last_act(base, carried=True),
        with_last_act(base, about="Hotel"),
        with_item(base, 0, title="Tour"),
        with_item(base, 0, city="Linz"),
        with_item(base, 0, booked="Adria"),
        with_item(base, 0, booked="", right=None),
        with_item(base, 0, right=False),
        with_item(base, 0, right=None),
        with_item(base, 0, wishes=()),
        with_item(base, 0, wishes=(WishView("in the north"), WishView("cheap"))),
        with_item(base, 0, waits_for=("Train",)),
        with_item(base, 0, current=True),
    ]
    views = [base, *variants]
    assert len({viewer.draw_rgb(view).tobytes() for view in views}) == len(views)
    told = [view for view in views if not view.stack[-1].finished]
    assert len({draw_ansi(view) for view in told}) == len(told)


def test_open_frames_and_speakers_have_their_colours(viewer: DialogueViewer) -> None:
    picture = viewer.draw_rgb(snapshot(2, held=8))
    board, panel = picture[:, :620], picture[:, 650:]
    for depth in range(3):
        assert has_color(board, depth_color(depth))
        assert has_color(panel, depth_color(depth))
    assert not has_color(board, depth_color(3))
    assert has_color(board, darker(depth_color(2), 0.85))  # the agent's acts
    for color in (SUCCESS, FAILURE):
        assert has_color(board, color)


def test_what_is_forgotten_is_pale(viewer: DialogueViewer) -> None:
    """The colours of acts are those of the window only."""
    agent = darker(depth_color(0), 0.85)
    view = snapshot(0)
    assert has_color(viewer.draw_rgb(view)[:, :400], agent)
    assert not has_color(viewer.draw_rgb(with_acting(view, held=1))[:, :400], agent)
    heard = snapshot(0, SAID[:3], held=3)
    assert has_color(viewer.draw_rgb(heard)[:, :400], UNSURE)
    assert not has_color(viewer.draw_rgb(with_acting(heard, held=1))[:, :400], UNSURE)


def test_returned_children_are_drawn_where_there_is_room(viewer: DialogueViewer) -> None:
    """Few acts of each or many, but never instead of what the frame itself has heard."""
    view = snapshot(0, TOLD, 3)
    ground = tint(depth_color(1), 0.94)

    def rows(number: int, said: int) -> int:
        finished = tuple(FinishedView(1, "Train", SAID[:said], 1) for _ in range(number))
        return int((viewer.draw_rgb(with_acting(view, finished=finished))[:, 60] == ground).all(axis=1).sum())

    heights = [rows(1, said) for said in (0, 2, 4, 8)]
    assert heights[0] == 0
    assert heights == sorted(set(heights))
    assert rows(4, 8) < 4 * heights[3]
    assert rows(40, 8) == 0


def test_what_the_player_must_find_out_is_hidden_until_the_end(viewer: DialogueViewer) -> None:
    """Goals, misheard acts, and whether a booking is right change nothing in a picture that does not reveal them."""

    def secrets(outcome: str, right: bool) -> DialogueView:
        view = dataclasses.replace(snapshot(0, (*TOLD, *SAID), outcome=outcome), revealed=False)
        view = with_item(view, 0, right=right, wishes=(WishView("in the north" if right else "cheap"),))
        acts = view.stack[-1].acts
        view = with_acting(view, acts=(acts[0], dataclasses.replace(acts[1], good=right), *acts[2:]), held=11)
        return with_last_act(view, meant="" if right else "Yes.")

    assert draw_ansi(secrets("", True)) == draw_ansi(secrets("", False))
    np.testing.assert_array_equal(viewer.draw_rgb(secrets("", True)), viewer.draw_rgb(secrets("", False)))
    assert draw_ansi(secrets("failure", True)) != draw_ansi(secrets("failure", False))
    assert viewer.draw_rgb(secrets("failure", True)).tobytes() != viewer.draw_rgb(secrets("failure", False)).tobytes()


def test_the_booking_that_is_spoken_about_stays_in_sight(viewer: DialogueViewer) -> None:
    pictures = set()
    for k in range(0, 64, 9):
        view = snapshot(0, number=64)
        view = dataclasses.replace(view, items=tuple(dataclasses.replace(item, current=j == k) for j, item in enumerate(view.items)))
        picture = viewer.draw_rgb(view)
        assert has_color(picture[:, 420:612], (204, 227, 240))  # the ground of the current row
        pictures.add(picture.tobytes())
    assert len(pictures) == len(range(0, 64, 9))


@pytest.mark.parametrize("name", ["three frames", "many acts", "many bookings"])
def test_pictures_are_quick(viewer: DialogueViewer, name: str) -> None:
    """Under 10 ms of one core; the bound allows for slow machines."""
    viewer.draw_rgb(MOMENTS[name])
    start = time.process_time()
    for _ in range(5):
        viewer.draw_rgb(MOMENTS[name])
    assert (time.process_time() - start) / 5 < 0.05


# --- no display, no pygame ---


def test_needs_no_display_and_leaves_the_process_alone() -> None:
    """pygame comes with the first picture only, without video, greeting or environment variables."""
    code = """
import os, sys
import rao_envs.dialogue.viewer as viewer
from rao_envs.dialogue.view import DialogueView
from rao_envs.core.viewer import EpisodeView
assert "pygame" not in sys.modules
before = dict(os.environ)
view = DialogueView((), (), 8, 0, 0, EpisodeView("", 0, 1, (), "", "reset", ""))
assert viewer.draw_rgb(view).shape == (640, 900, 3)
import pygame
assert not pygame.display.get_init()
assert dict(os.environ) == before
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_missing_pygame_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r'pip install "rao-envs\[render\]"'):
        DialogueViewer()
    assert "Hotel in Graz" in DialogueViewer.draw_ansi(snapshot())  # text needs no pygame


def test_viewer_can_be_pickled_and_copied(viewer: DialogueViewer) -> None:
    picture = viewer.draw_rgb(snapshot())
    for twin in (pickle.loads(pickle.dumps(viewer)), copy.deepcopy(viewer)):
        np.testing.assert_array_equal(twin.draw_rgb(snapshot()), picture)


# --- text ---


def test_text_of_a_known_moment() -> None:
    assert draw_ansi(snapshot(1), color=False, width=70).splitlines() == [
        "Trip to Graz: 9 of 20 turns left",
        "  [+] City 0, Domain 0: Slavia, right  (wants in the north; gave up",
        "      cheap)",
        "  [x] City 0, Domain 1: Adria, WRONG  (wants in the north; gave up",
        "      cheap)",
        "  [ ] City 0, Domain 2  (wants in the north; gave up cheap)  <--",
        "  [ ] City 0, Domain 3  (wants in the north; gave up cheap)  (after",
        "      Hotel)",
        "┌ Trip to Graz  (turns 9/20, window 3/6)",
        "│ We want to travel.",
        "│ [+] Train to Graz: booked.",
        "│ [x] Museum in Brno: booked.",
        "│ ┌ Graz  (turns 8/20, window 6/6)",
        "│ │ I am looking for a hotel.",
        "│ │ Something cheap, please. (not sure) [meant:",
        "│ │ Something expensive, please.]",
        "│ │ ──────────── forgotten above, in the window below ────────────",
        "│ │                                     How many stars should it have?",
        "│ │ Four stars.",
        "│ │                                                 Did you say cheap?",
        "│ │ No, expensive.",
        "│ │                                         How about the Hotel Adria?",
        "│ │ No, the day does not suit me.",
        "Dialogue-20turn  step 7/60  request 2 (one step in this frame)",
        "o root 7/40",
        "  o spawn hotel 7/40",
        "you can:",
        "  [2] request_2: How many stars should it have?",
        "  [9] book: Book the Hotel Adria.",
    ]


def test_text_of_what_is_out_of_sight() -> None:
    lines = draw_ansi(snapshot(1, SAID * 5), color=False).splitlines()
    assert any("26 earlier (forgotten)" in line for line in lines)
    hidden = with_acting(snapshot(0, SAID[:2], held=2), missing=5)
    assert any("5 earlier (forgotten)" in line for line in draw_ansi(hidden, color=False).splitlines())
    assert any("forgotten above" in line for line in draw_ansi(snapshot(0, SAID[:2], held=0), color=False).splitlines())
    with pytest.raises(ValueError, match="at least 40 columns"):
        draw_ansi(snapshot(), width=30)


def test_text_has_colours() -> None:
    assert "\x1b[38;5;" in draw_ansi(snapshot())
    assert "\x1b" not in draw_ansi(snapshot(), color=False)


def test_many_options_stand_in_two_columns() -> None:
    options = tuple(OptionView(k, f"request_{k}", "x" * k) for k in range(30))
    lines = option_lines(options, 80)
    assert len(lines) == 16
    assert max(map(len, lines)) <= 80
    for option in options:
        assert sum(f"[{option.index}] {option.name}" in line for line in lines) == 1
    assert option_lines(()) == []


def test_text_is_cut_by_columns() -> None:
    assert columns("abc") == 3
    assert columns("東京") == 4
    assert columns("e\u0301") == 1
    assert shorten("東京", 4) == "東京"
    assert shorten("東京東京東京", 8) == "東京..."
    assert shorten("a long text", 8) == "a lon..."


# --- what was said ---


def test_talk_keeps_what_the_window_forgets() -> None:
    talk = Talk()
    for said in (0, 2, 3, 3, 7, 10):
        talk.take(Heard(said, tuple(range(max(0, said - 4), said))))
        assert (talk.acts, talk.missing, talk.held) == (list(range(said)), 0, min(4, said))
    talk.take(Heard(20, (16, 17, 18, 19)))  # more at once than the window holds
    assert (talk.acts, talk.missing, talk.held) == ([*range(10), 16, 17, 18, 19], 6, 4)


def test_talk_that_begins_late_says_what_it_missed() -> None:
    talk = Talk()
    talk.take(Heard(10, (6, 7, 8, 9)))
    assert (talk.acts, talk.missing, talk.held) == ([6, 7, 8, 9], 6, 4)
    talk.take(Heard(11, (7, 8, 9, 10)))
    assert (talk.acts, talk.missing, talk.held) == ([6, 7, 8, 9, 10], 6, 4)


# --- of real episodes ---

KINDS_OF_TRIPS: list[dict[str, Any]] = [
    {"turns": 5, "domains": 2},
    {"turns": 20, "domains": (5, 6), "cities": 2, "error_rate": 0.4},
    {"turns": 40, "domains": (9, 12), "cities": (3, 4), "spawn": False},
    {"turns": 20, "domains": 4, "window": 2, "unsatisfiable": 1.0},
]
every_kind = pytest.mark.parametrize("kwargs", KINDS_OF_TRIPS, ids=str)


def episode(kwargs: dict[str, Any], seed: int, mode: str = "rgb_array") -> Iterator[tuple[DialogueEnv, DialogueView]]:
    """Every moment of an episode played at random."""
    env, rng = DialogueEnv(render_mode=mode, **kwargs), np.random.default_rng(seed)
    env.reset(seed=seed)
    yield env, env.view()
    done = False
    while not done:
        _, _, terminated, truncated, _ = env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
        done = terminated or truncated
        yield env, env.view()


@every_kind
def test_real_moments_make_sense_and_can_be_drawn(viewer: DialogueViewer, kwargs: dict[str, Any]) -> None:
    for seed in range(3):
        for step, (env, view) in enumerate(episode(kwargs, seed)):
            check(view)
            assert [option.index for option in view.options] == ([] if env.batch.done[0] else np.flatnonzero(env.action_masks()).tolist())
            assert all(option.text for option in view.options)
            assert len(view.stack) == env.batch.stack.episodes["depth"][0] + 1
            assert 0 <= view.turns_left <= view.turns == kwargs["turns"]
            for frame in view.stack:
                assert 0 <= frame.turns_left <= frame.turns
                assert frame.held + len(frame.given) <= view.window
                assert all(act.text for act in frame.acts)
            assert draw_ansi(view)
            if step % 7 == 0:
                assert viewer.draw_rgb(view).shape == (640, 900, 3)
        right = [bool(item.booked and item.right) for item in view.items]
        assert (view.episode.outcome == "success") == all(right)


def test_what_is_said_stays_in_its_order() -> None:
    """The window is the end of what has been said; nothing said before changes."""
    for seed in range(4):
        before: dict[int, tuple[ActView, ...]] = {}
        for env, view in episode(KINDS_OF_TRIPS[1], seed):
            ids = env.batch.stack.frames["id"][0].tolist()
            for depth, frame in enumerate(view.stack):
                known = before.get(ids[depth], ())
                assert [act.text for act in frame.acts[: len(known)]] == [act.text for act in known]
                said = int(env.batch.state.frames["said"][0, depth])
                assert len(frame.acts) + frame.missing == said
                assert frame.held == min(said, view.window - len(frame.given))
                before[ids[depth]] = frame.acts


def test_turns_are_counted_down_one_at_a_time() -> None:
    for seed in range(4):
        views = [view for _, view in episode(KINDS_OF_TRIPS[1], seed)]
        for last, view in pairwise(views):
            talked = view.episode.last_action.startswith(("request", "confirm", "offer", "relax"))
            assert view.turns_left == last.turns_left - talked


def test_children_take_along_and_leave_behind() -> None:
    carried = finished = given = 0
    for seed in range(6):
        for _, view in episode(KINDS_OF_TRIPS[1], seed):
            for parent, child in pairwise(view.stack):
                taken = [act.text for act in child.acts if act.carried]
                pool = iter([act.text for act in parent.acts])
                assert all(text in pool for text in taken)
                carried += len(taken)
                given += len(child.given)
                assert all(act.speaker == "result" and act.carried for act in child.given)
            for frame in view.stack:
                finished += len(frame.finished)
                for past in frame.finished:
                    assert past.depth == frame.depth + 1
                    assert past.place <= len(frame.acts)
                    assert not any(act.carried for act in past.acts)
    assert carried
    assert given
    assert finished


def test_misheard_acts_say_what_was_meant() -> None:
    """At the rate at which they are misheard, and without noise never."""
    rates = []
    for error_rate in (0.0, 0.5):
        kwargs = {"turns": 5, "domains": 2, "error_rate": error_rate, "spawn": False}
        ends = [list(episode(kwargs, seed))[-1][1] for seed in range(30)]
        informs = [act for view in ends for act in view.stack[0].acts if act.speaker == "counterpart"]
        rates.append(sum(bool(act.meant) for act in informs) / len(informs))
    assert rates[0] == 0.0
    assert rates[1] > 0.1


def test_players_see_no_secrets_before_the_end(viewer: DialogueViewer) -> None:
    for _, view in episode(KINDS_OF_TRIPS[1], 3, "ansi"):
        assert not view.revealed
        if view.episode.outcome:
            assert "wants" in draw_ansi(view)
        else:
            assert "wants" not in draw_ansi(view)
            assert "meant" not in draw_ansi(view)
    assert all(view.revealed for _, view in episode(KINDS_OF_TRIPS[0], 3))


def test_detached_children_are_shown_as_inline_ones() -> None:
    """Up to the newest acts of the last child, which were said elsewhere."""
    inline, apart = (DialogueEnv(render_mode="rgb_array", **KINDS_OF_TRIPS[1]) for _ in range(2))
    for env in (inline, apart):
        env.reset(seed=5)
    rng = np.random.default_rng(5)
    action = int(next(a for a in inline.spawn_actions if inline.action_masks()[a]))
    inline.step(action)
    child = apart.spawn(action)
    child.reset()
    assert isinstance(child, DialogueEnv)
    done = False
    while not done:
        assert child.view().stack[-1].acts == inline.view().stack[-1].acts
        move = int(rng.choice(np.flatnonzero(child.action_masks())))
        inline.step(move)
        _, _, terminated, truncated, _ = child.step(move)
        done = terminated or truncated
    apart.join(child)
    assert apart.view().items == inline.view().items
    assert apart.view().stack == inline.view().stack


def test_a_saved_state_forgets_only_what_its_windows_forgot() -> None:
    env, view = next(islice(episode(KINDS_OF_TRIPS[2], 1), 30, None))
    last, state = view.stack[0], env.get_state()
    again = DialogueEnv(render_mode="rgb_array", **KINDS_OF_TRIPS[2])
    again.reset(seed=9)
    again.set_state(state)
    frame = again.view().stack[0]
    assert frame.acts == last.acts[len(last.acts) - last.held :]
    assert frame.missing == len(last.acts) - last.held
    assert pickle.loads(pickle.dumps(env)).view() == view


def test_a_person_can_be_the_agent() -> None:
    """All that is needed stands in the text: who says what, the turns, and what each action would say."""
    env = DialogueEnv(render_mode="ansi", turns=10, domains=3, error_rate=0.0)
    env.reset(seed=0)
    done = False
    while not done:
        text = str(env.render())
        assert "you can:" in text
        numbers = [int(line.split("]")[0].strip(" [")) for line in text.split("you can:")[1].splitlines() if line.strip().startswith("[")]
        assert numbers == np.flatnonzero(env.action_masks()).tolist()
        names = [env.action_names[number] for number in numbers]
        likes = ("book", "offer", "relax", "request", "spawn", "confirm", "return")
        choice = next(k for like in likes for k, name in zip(numbers, names, strict=True) if name.startswith(like))
        _, _, terminated, truncated, _ = env.step(choice)
        done = terminated or truncated
    assert "you can:" not in str(env.render())
