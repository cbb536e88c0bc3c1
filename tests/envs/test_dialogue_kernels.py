"""The rules of frames: what follows from a window, what a child is given and brings back, how turns are shared, what is paid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rao_envs  # noqa: F401
from rao_envs.dialogue import acts
from rao_envs.dialogue.env import DialogueEnv
from rao_envs.dialogue.ontology import trip_ontology
from rao_envs.dialogue.state import CERTAIN, DOUBTED, FREE, GIVEN_UP, HEARD_WELL, UNKNOWN, UNRESOLVED

CONFIGURATIONS: list[dict[str, Any]] = [
    {"turns": 10},
    {"turns": 9, "domains": 4, "dependency": 1.0, "window": 5},
    {"turns": 30, "domains": (5, 9), "cities": (2, 3), "reference": "any"},
    {"turns": 14, "domains": (3, 5), "cities": 2, "reference": "last", "dependency": 1.0, "window": 3, "error_rate": 0.4},
    {"turns": 12, "domains": 4, "ontology": trip_ontology(), "window": 64, "unsatisfiable": 0.8},
    {"turns": 8, "domains": 3, "window": 1},
]
every_configuration = pytest.mark.parametrize("kwargs", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))


def make(**kwargs: Any) -> DialogueEnv:
    env = gym.make("RAO/Dialogue-v0", disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, DialogueEnv)
    return env


def play(env: DialogueEnv, seed: int, liking: float = 0.3) -> Iterator[tuple[int, dict[str, Any]]]:
    """A random episode: action taken (-1 at first) and the info that came of it."""
    rng = np.random.default_rng(seed)
    yield -1, env.reset(seed=seed)[1]
    while True:
        mask = env.action_masks()
        weight = np.where(np.arange(len(mask)) >= len(env.domain.primitives), 2 * liking, 1.0) * mask
        weight[env.action_names.index("return")] *= 0.3
        action = int(rng.choice(len(mask), p=weight / weight.sum()))
        _, _, terminated, truncated, info = env.step(action)
        yield action, info
        if terminated or truncated:
            return


def visible(env: DialogueEnv, depth: int) -> list[dict[str, int]]:
    """All that a frame sees: what it was given, then what its window holds, the oldest first."""
    state = env.batch.state
    frame, ring = state.frames[0, depth], state.acts[0, depth]
    given, said = int(frame["given"]), int(frame["said"])
    first = max(0, said - env.domain.window + given)
    records = [*state.given[0, depth, :given], *(ring[j % len(ring)] for j in range(first, said))]
    assert len(records) <= env.domain.window
    return [{name: int(record[name]) for name in acts.ACT.names or ()} for record in records]


# -- what follows from a window -----------------------------------------------------------------------------------------------------------


def expected_beliefs(env: DialogueEnv, city: int, d: int, window: list[dict[str, int]]) -> tuple[list[tuple[int, int]], int, int, int]:
    """Statuses with values, matches, candidate and accepted entity, by the documentation's rules and from these acts alone."""
    state = env.batch.state
    slots, shelf = int(state.slots_of[d]), state.entity[0, city, d, : state.entities_of[city, d]]
    about = [act for act in window if (act["city"], act["domain"]) == (city, d)]
    beliefs = [(UNKNOWN, acts.NONE)] * env.domain.slots
    accepted = acts.NONE
    for act in about:
        slot = act["slot"]
        if act["kind"] == acts.INFORM:
            beliefs[slot] = (HEARD_WELL if act["sure"] else DOUBTED, act["value"])
        elif act["kind"] in (acts.YES, acts.CORRECT, acts.REFUSE):
            beliefs[slot] = (CERTAIN, act["value"])
        elif act["kind"] in (acts.ANY, acts.AGREE):
            beliefs[slot] = (FREE if act["kind"] == acts.ANY else GIVEN_UP, acts.NONE)
        elif act["kind"] == acts.ACCEPT:
            accepted = act["entity"]
        elif act["kind"] == acts.REJECT:
            status, value = beliefs[slot]
            if status in (DOUBTED, HEARD_WELL) and value == shelf[act["entity"], slot]:
                beliefs[slot] = (UNKNOWN, acts.NONE)
    for s, (status, value) in enumerate(beliefs):
        if value != acts.SAME:
            continue
        other = int(state.refer[0, city, d, s])
        booked = [
            act["entity"]
            for act in window
            if act["kind"] in (acts.BOOK, acts.RESULT) and (act["city"], act["domain"]) == (city, other) and other >= 0
        ]
        known = int(state.entity[0, city, other, booked[-1], state.refers[d, s, other]]) if booked else acts.NONE
        beliefs[s] = (status, known) if known >= 0 else (UNRESOLVED, acts.NONE)
    turned_down = [(act["slot"], int(shelf[act["entity"], act["slot"]])) for act in about if act["kind"] == acts.REJECT]
    turned_down = [(s, value) for s, value in turned_down if beliefs[s][0] not in (FREE, GIVEN_UP)]
    rejections = sum(act["kind"] == acts.REJECT for act in about)
    in_sight = {act["domain"] for act in window if act["kind"] in (acts.BOOK, acts.RESULT) and act["city"] == city}
    out_of_sight = not {int(o) for o in state.refer[0, city, d] if o >= 0} <= in_sight
    if out_of_sight or (all(status == UNKNOWN for status, _ in beliefs) and not rejections):
        return beliefs, acts.NONE, accepted, accepted
    fitting = [
        e
        for e in range(len(shelf))
        if all(value < 0 or shelf[e, s] == value for s, (_, value) in enumerate(beliefs[:slots]))
        and not any(shelf[e, s] == value for s, value in turned_down)
    ]
    first = fitting[0] if fitting else acts.NONE
    return beliefs, len(fitting), accepted if accepted >= 0 else first, accepted


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), liking=st.sampled_from([0.0, 0.1, 0.5]))
def test_all_that_a_frame_may_do_follows_from_the_acts_that_it_sees(kwargs: dict[str, Any], seed: int, liking: float) -> None:
    env = make(**kwargs)
    state, S = env.batch.state, env.domain.slots
    for _, info in play(env, seed, liking):
        if "is_success" in info:
            return
        depth = info["depth"]
        frame = state.frames[0, depth]
        city, d = int(frame["focus_city"]), int(frame["focus"])
        names = dict(zip(env.action_names, env.action_masks().tolist(), strict=True))
        if d < 0:
            assert not any(names[name] for name in env.action_names[: 3 * S + 2]), "nobody to talk to"
            continue
        beliefs, matches, candidate, accepted = expected_beliefs(env, city, d, visible(env, depth))
        actual = state.beliefs[0, depth]
        assert [(int(b["status"]), int(b["value"])) for b in actual] == beliefs
        assert (frame["matches"], frame["candidate"], frame["accepted"]) == (matches, candidate, accepted)
        turns = frame["turns"] > 0
        assert names["book"] == (candidate >= 0)
        assert names["offer"] == (turns and candidate >= 0 and accepted < 0)
        for s, (status, _) in enumerate(beliefs):
            has_value = status in (DOUBTED, HEARD_WELL, CERTAIN, UNRESOLVED)
            assert names[f"request_{s}"] == (turns and s < state.slots_of[d])
            assert names[f"confirm_{s}"] == (turns and has_value and status != CERTAIN)
            assert names[f"relax_{s}"] == (turns and has_value and matches == 0 and accepted < 0)


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_observation_shows_the_acts_in_sight_and_no_other(kwargs: dict[str, Any], seed: int) -> None:
    env = make(**kwargs)
    fields, D, S, V = env.domain.fields, len(env.domain.ontology.domains), env.domain.slots, env.domain.values
    for _, info in play(env, seed):
        depth = info["depth"]
        frame, task = env.batch.state.frames[0, depth], env.batch.first_observation()["task"]
        window = visible(env, depth)
        given = int(frame["given"])
        dialogue, granted = window[given:], window[:given]
        for age in range(env.domain.window):
            bits = task[fields[f"act_{age}"]]
            if age < len(dialogue):
                act = dialogue[-1 - age]
            elif env.domain.window - 1 - age < given:
                act = granted[env.domain.window - 1 - age]
            else:
                assert not bits.any()
                continue
            expected = np.zeros(len(bits), np.int8)
            expected[act["kind"] - 1] = 1
            here = act["city"] == frame["focus_city"]
            at = acts.KINDS - 1
            expected[at : at + 4] = (act["sure"], act["speaker"] == acts.CHILD, here, here and act["domain"] == frame["focus"])
            at += 4
            for value, width in ((act["domain"], D), (act["slot"], S), (act["value"], V)):
                if value >= 0:
                    expected[at + value] = 1
                at += width
            expected[at] = act["value"] == acts.SAME
            np.testing.assert_array_equal(bits, expected)


# -- turns --------------------------------------------------------------------------------------------------------------------------------


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), liking=st.sampled_from([0.1, 0.5, 1.0]))
def test_every_turn_is_paid_once_and_what_is_left_comes_home(kwargs: dict[str, Any], seed: int, liking: float) -> None:
    env = make(**kwargs)
    state, rules = env.batch.state, env.batch.state.rules[0]
    total, spent, depth = env.domain.turns, 0, 0
    for action, info in play(env, seed, liking):
        talked = 0 <= action < rules["book"] and action != -1
        spent += talked
        frames = state.frames[0]
        over = "is_success" in info
        deepest = 0 if over else info["depth"]
        outstanding = sum(int(frames[k]["allotment"] - frames[k]["turns"]) for k in range(1, deepest + 1))
        assert int(frames[0]["turns"]) - outstanding == total - spent
        for k in range(deepest + 1):
            assert 0 <= frames[k]["turns"] <= frames[k]["allotment"]
            if k:
                assert frames[k]["allotment"] <= frames[k - 1]["turns"]
        if not over and info["event"] == "spawn":
            parent, child = frames[depth], frames[deepest]
            own = 1 if child["domain"] >= 0 else int(child["n_open"])
            group = env.batch.stack.frames["group"][0, depth]
            first = -(-int(parent["turns"]) * own // int(parent["n_open"]))
            assert child["allotment"] == first, "its part of what is open, rounded up"
            shares = state.shares[0, depth, :group]["turns"]
            assert shares.min() >= 1 and shares.sum() <= parent["turns"]
        depth = deepest


def test_a_child_cannot_tell_what_its_elder_siblings_did() -> None:
    """Beside rule 8's own test: the younger sibling's first observation, whether the elder talked longer or left at once."""
    env = make(turns=12, domains=4, dependency=0.0)
    seen = []
    for elder in (["request_0", "return"], ["request_0", "request_1", "return"]):
        env.reset(seed=3)
        env.step(env.action_names.index("spawn_all"))
        frame_id = 1
        for name in elder:
            observation, _, _, _, info = env.step(env.action_names.index(name))
        assert info["frame_id"] == frame_id + 1 and info["event"] == "return"
        seen.append(observation)
    for key in seen[0]:
        np.testing.assert_array_equal(seen[0][key], seen[1][key])


def test_what_a_child_has_booked_is_not_booked_again() -> None:
    """The root talks about a domain, then hands its city to a child, which books it."""
    env = make(turns=100, domains=4, cities=2, error_rate=0.0, unsatisfiable=0.0, dependency=0.0, feedback="dense")
    env.reset(seed=1)
    state = env.batch.state
    env.step(find("focus_city_", env)[0])
    env.step(find("focus_", env)[0])
    city, d = int(state.frames[0, 0]["focus_city"]), int(state.frames[0, 0]["focus"])
    env.step(state.rules[0]["spawn"] + len(env.domain.ontology.domains) + city)
    env.step(env.action_names.index("spawn_all"))
    while env.batch.stack.episodes["depth"][0]:
        solve(env)
    assert state.party["entity"][0, city, d] >= 0
    assert state.frames[0, 0]["focus"] == acts.NONE and not env.action_masks()[state.rules[0]["book"]]


def test_the_root_ends_when_the_turns_are_gone_and_there_is_nothing_to_book() -> None:
    env = make(turns=1, domains=1, volunteering=0.0)
    env.reset(seed=0)
    focus = next(k for k, name in enumerate(env.action_names) if name.startswith("focus_") and env.action_masks()[k])
    env.step(focus)
    unwanted = int(np.flatnonzero(env.batch.state.want[0][env.batch.state.party["active"][0]][0] == acts.NONE)[0])
    _, reward, terminated, truncated, info = env.step(unwanted)
    if env.action_masks()[env.action_names.index("book")]:  # "any will do" is something to go by
        assert not terminated and np.flatnonzero(env.action_masks()).tolist() == [env.action_names.index("book")]
        _, reward, terminated, truncated, info = env.step(env.action_names.index("book"))
    assert terminated and not truncated and reward == float(info["is_success"])


# -- scopes -------------------------------------------------------------------------------------------------------------------------------


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), liking=st.sampled_from([0.0, 0.3, 1.0]))
def test_frames_open_what_is_theirs_and_waits_for_nothing(kwargs: dict[str, Any], seed: int, liking: float) -> None:
    env = make(**kwargs)
    state, rules = env.batch.state, env.batch.state.rules[0]
    C, D = state.entities_of.shape
    for action, info in play(env, seed, liking):
        if "is_success" in info:
            return
        frame, party = state.frames[0, info["depth"]], state.party[0]
        mask = env.action_masks()
        open_places = [(c, d) for c in range(C) for d in range(D) if party["active"][c, d] and party["entity"][c, d] < 0]
        scope = [(c, d) for c, d in open_places if frame["city"] in (-1, c) and frame["domain"] in (-1, d)]
        assert frame["n_open"] == len(scope)
        focused = action in range(rules["focus"], rules["spawn"])
        for d in range(D):
            here = (int(frame["focus_city"]), d)
            others = [int(o) for o in state.refer[0, here[0], d] if o >= 0] if here[0] >= 0 else []
            ready = here in scope and all(party["entity"][here[0], o] >= 0 for o in others)
            may = ready and frame["domain"] < 0 and frame["turns"] > 0
            deeper = info["depth"] < env.batch.stack.limits["max_depth"][0]
            if not deeper or mask[env.spawn_actions].any() or not may:  # steps may be short for a spawn
                assert mask[rules["spawn"] + d] == (may and deeper)
            after_domain = focused and action < rules["focus"] + D
            assert mask[rules["focus"] + d] == (may and not after_domain and d != frame["focus"])
        for c in range(C):
            unfinished = frame["city"] < 0 and any(place[0] == c for place in scope) and frame["turns"] > 0
            assert mask[rules["focus"] + D + c] == (unfinished and not focused and c != frame["focus_city"])
        fresh = info["event"] == "spawn" or (info["event"] == "return" and mask[rules["leave"]] == 0)
        if info["depth"] == 0 or info["event"] == "spawn":
            assert not mask[rules["leave"]]
        elif not fresh and 0 <= action < rules["book"]:
            assert mask[rules["leave"]]


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_child_starts_with_what_bears_on_it_and_nothing_else(kwargs: dict[str, Any], seed: int) -> None:
    env = make(**kwargs)
    state = env.batch.state
    before: list[dict[str, int]] = []
    met = state.party["met"][0].copy()
    for _, info in play(env, seed, 1.0):
        if "is_success" in info:
            return
        depth = info["depth"]
        if info["event"] == "spawn":
            frame = state.frames[0, depth]
            city, d = int(frame["city"]), int(frame["domain"])
            given = int(frame["given"])
            own = [act for act in before if act["city"] == city and d in (-1, act["domain"])]
            needed = {int(o) for o in state.refer[0, city, d] if o >= 0} if d >= 0 else set()
            kinds = (acts.BOOK, acts.RESULT)
            bookings = [act for act in before if act["kind"] in kinds and act["city"] == city and act["domain"] in needed]
            room = min(env.domain.slots, env.domain.window - 1)
            window = visible(env, depth)
            assert window[:given] == bookings[:room]
            heard = []
            if d >= 0:
                heard = [{"kind": acts.GREET}]
                if not met[city, d]:
                    told = np.flatnonzero(state.opening["value"][0, city, d] != acts.NONE)
                    heard += [{"kind": acts.INFORM, "slot": int(s)} for s in told]
            everything = [*own, *heard]
            expected = everything[max(0, len(everything) - env.domain.window + given) :]
            assert len(window) - given == len(expected)
            for act, wanted in zip(window[given:], expected, strict=True):
                assert {name: act[name] for name in wanted} == wanted
        before = visible(env, depth)
        met = state.party["met"][0].copy()


def find(text: str, env: DialogueEnv) -> list[int]:
    """Allowed actions whose names begin so."""
    return [k for k, name in enumerate(env.action_names) if name.startswith(text) and env.action_masks()[k]]


def test_a_child_that_did_not_book_hands_back_the_latest_word_on_each_slot() -> None:
    env = make(turns=20, domains=2, dependency=0.0, error_rate=0.0)
    state = env.batch.state
    env.reset(seed=1)
    env.step(find("spawn_", env)[0])
    d = int(state.frames[0, 1]["domain"])
    for action in ("request_0", "confirm_1", "request_0", "return"):
        if env.action_masks()[env.action_names.index(action)]:
            info = env.step(env.action_names.index(action))[4]
    city = int(state.frames[0, 0]["city"])
    assert info["depth"] == 0 and state.party["entity"][0, city, d] < 0
    window = visible(env, 0)
    assert {act["speaker"] for act in window} == {acts.CHILD}
    slots = [act["slot"] for act in window]
    assert len(slots) == len(set(slots)) <= env.domain.slots
    wanted = state.want[0, city, d]
    for act in window:
        assert act["kind"] == acts.ANY if wanted[act["slot"]] == acts.NONE else act["value"] == wanted[act["slot"]]
    assert env.batch.first_observation()["results"][d] == -1
    # And the next child for it goes on from there.
    env.step(env.action_names.index(env.action_names[state.rules[0]["spawn"] + d]))
    assert [act["slot"] for act in visible(env, 1) if act["kind"] != acts.GREET] == slots


def solve(env: DialogueEnv, limit: int = 30) -> None:
    """Talk until the acting frame has booked what it talks about: by asking for everything and offering."""
    depth = int(env.batch.stack.episodes["depth"][0])
    identity = env.batch.stack.frames["id"][0, depth]
    for _ in range(limit):
        state = env.batch.state
        frame = state.frames[0, depth]
        beliefs = state.beliefs["status"][0, depth]
        unknown = [s for s in range(state.slots_of[frame["focus"]]) if beliefs[s] == UNKNOWN]
        names = (
            ["book"] if frame["accepted"] >= 0 else [f"request_{s}" for s in unknown[:1]] or ["offer", *(f"relax_{k}" for k in range(4))]
        )
        name = next(name for name in names if env.action_masks()[env.action_names.index(name)])
        _, _, terminated, truncated, _ = env.step(env.action_names.index(name))
        now = int(env.batch.stack.episodes["depth"][0])
        gone = terminated or truncated or now < depth or env.batch.stack.frames["id"][0, depth] != identity
        if gone or env.batch.state.frames[0, depth]["focus"] < 0:
            return


def test_three_levels_bring_home_one_act_each() -> None:
    env = make(turns=200, domains=6, cities=2, error_rate=0.0, unsatisfiable=0.0, window=16)
    env.reset(seed=5)
    state = env.batch.state
    root = state.frames[0, 0]
    assert root["city"] == acts.NONE
    env.step(env.action_names.index("spawn_all"))
    info: dict[str, Any] = {}
    for _ in range(40):
        depth = int(env.batch.stack.episodes["depth"][0])
        if depth == 2:
            solve(env)
        elif depth == 1:
            env.step(env.action_names.index("spawn_all"))
        if env.batch.done[0]:
            break
    assert env.batch.stack.episodes["success"][0]
    info = env.batch.tree(0)
    assert info["deepest"] == 2 and info["nodes"] == 1 + 2 + 6
    assert info["critical_path"] < info["steps"]
    window = visible(env, 0)
    assert [(act["kind"], act["speaker"], act["domain"]) for act in window] == [(acts.RESULT, acts.CHILD, acts.NONE)] * 2
    assert env.batch.stack.frames["value"][0, 0] == 6


def test_a_city_that_is_not_finished_hands_back_its_bookings_once() -> None:
    env = make(turns=200, domains=6, cities=2, error_rate=0.0, unsatisfiable=0.0, dependency=0.0)
    env.reset(seed=5)
    state = env.batch.state
    for rounds in (1, 2):
        env.step(find("spawn_city_", env)[0])
        city = int(state.frames[0, 1]["city"])
        env.step(next(k for k in find("spawn_", env) if not env.action_names[k].endswith("all")))
        while env.batch.stack.episodes["depth"][0] == 2:
            solve(env)
        env.step(env.action_names.index("return"))
        window = [(act["kind"], act["city"], act["domain"]) for act in visible(env, 0)]
        booked = np.flatnonzero(state.party["entity"][0, city] >= 0)
        assert len(booked) == rounds
        assert sorted(window) == [(acts.RESULT, city, d) for d in booked.tolist()]
    assert env.batch.first_observation()["results"][len(env.domain.ontology.domains) + city] == -1


@pytest.mark.parametrize(("dependency", "reference", "groups"), [(0.0, "any", [4]), (1.0, "first", [1, 3]), (1.0, "last", [1, 1, 1, 1])])
def test_spawn_all_opens_what_waits_for_nothing_and_the_rest_waits(dependency: float, reference: str, groups: list[int]) -> None:
    env = make(turns=200, domains=4, dependency=dependency, reference=reference, error_rate=0.0, unsatisfiable=0.0, window=16)
    env.reset(seed=2)
    everything = env.action_names.index("spawn_all")
    for expected in groups:
        assert env.batch.fanout(everything) == expected
        env.step(everything)
        while env.batch.stack.episodes["depth"][0] and not env.batch.done[0]:
            solve(env)
    assert env.batch.stack.episodes["success"][0]


def test_a_reference_needs_its_booking_in_sight() -> None:
    """What the same agent knows, alone and as a child: the booking leaves the one's window and stays with the other."""
    kwargs: dict[str, Any] = {
        "turns": 60,
        "domains": 2,
        "dependency": 1.0,
        "error_rate": 0.0,
        "unsatisfiable": 0.0,
        "volunteering": 1.0,
        "window": 9,
    }
    statuses = []
    for word in ("focus_", "spawn_"):
        env = make(**kwargs)
        env.reset(seed=4)
        state = env.batch.state
        env.step(find(word, env)[0])
        solve(env)
        env.step(find(word, env)[0])
        depth = int(env.batch.stack.episodes["depth"][0])
        city, d = int(state.frames[0, depth]["focus_city"]), int(state.frames[0, depth]["focus"])
        slot = int(np.flatnonzero(state.want[0, city, d] == acts.SAME)[0])
        assert state.beliefs["status"][0, depth, slot] in (HEARD_WELL, DOUBTED), "fresh from the booking both know"
        other = next(s for s in range(4) if s != slot and state.want[0, city, d, s] >= 0)
        for action in (f"request_{other}", f"request_{other}", f"request_{slot}", f"request_{other}"):
            env.step(env.action_names.index(action))
        statuses.append(int(state.beliefs["status"][0, depth, slot]))
    assert statuses[0] == UNRESOLVED
    assert statuses[1] in (HEARD_WELL, DOUBTED)


def test_a_reference_to_what_is_not_booked_is_never_met() -> None:
    env = make(turns=60, domains=2, dependency=1.0, reference="last")
    env.reset(seed=0)
    state = env.batch.state
    waiting = [(c, d) for c, d in np.argwhere(state.party["active"][0]) if (state.refer[0, c, d] >= 0).any()]
    (city, d), root = waiting[0], state.frames[0, 0]
    assert not root["ready"] >> d & 1 and root["refers"] >> d & 1 and not root["linked"] >> d & 1
    assert not find(f"focus_{env.domain.ontology.domains[d].name}", env) and not find(f"spawn_{env.domain.ontology.domains[d].name}", env)
    from rao_envs.dialogue.simulator import to_blame

    slot = int(np.flatnonzero(state.want[0, city, d] == acts.SAME)[0])
    reasons = {int(to_blame(state, 0, int(city), int(d), e)) for e in range(8) for _ in range(20)}
    assert slot in reasons and acts.NONE not in reasons


# -- what is paid -------------------------------------------------------------------------------------------------------------------------


@every_configuration
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), liking=st.sampled_from([0.0, 0.5]))
def test_a_booking_pays_once_and_a_wrong_one_costs(kwargs: dict[str, Any], seed: int, liking: float) -> None:
    env = make(**kwargs, feedback="dense")
    state = env.batch.state
    paid, bookings = 0.0, 0
    for action, info in play(env, seed, liking):
        party = state.party[0]
        booked = int((party["entity"] >= 0).sum())
        right, wrong = (int((party["right"] & (party["entity"] >= 0)).sum()), int((~party["right"] & (party["entity"] >= 0)).sum()))
        paid += info.get("dense_reward", 0.0)
        active = int(party["active"].sum())
        assert paid == pytest.approx((right - wrong) / active)
        assert (booked > bookings) == (action == state.rules[0]["book"])
        if booked > bookings and info["returned"] and info["returned"][0]["depth"] > 0 and info["returned"][0]["steps"] == 1:
            entry = info["returned"][0]  # that booked and did nothing else
            assert entry["reward"] == (1.0 if entry["success"] else -1.0)
        bookings = booked
        if "is_success" in info:
            assert info["is_success"] == (right == active)
            if info["is_success"]:
                assert paid == pytest.approx(1.0)


def test_a_childs_wrong_booking_costs_it_one_and_the_root_nothing() -> None:
    env = make(turns=30, domains=1, volunteering=1.0, error_rate=1.0, unsatisfiable=0.0)
    for seed in range(30):
        for word, cost in (("spawn_", -1.0), ("focus_", 0.0)):
            env.reset(seed=seed)
            env.step(next(k for k in find(word, env) if not env.action_names[k].endswith("all")))
            if not env.action_masks()[env.action_names.index("book")]:
                continue
            _, reward, terminated, _, info = env.step(env.action_names.index("book"))
            assert terminated
            if not info["is_success"]:
                assert reward == 0.0
                assert info["returned"][0]["reward"] == cost


def test_a_detached_city_remembers_whom_a_child_of_its_own_has_only_listened_to() -> None:
    """The opening is said once: a child that wastes its steps has heard it, in a city that runs apart as in one that runs inline."""

    def waste(env: Any) -> None:
        names, depth = env.action_names, int(env.batch.stack.episodes["depth"][0])
        first = next(k for k in np.flatnonzero(env.action_masks()) if names[k].startswith("spawn_"))
        env.step(int(first))
        while int(env.batch.stack.episodes["depth"][0]) > depth:
            env.step(names.index("spawn_all"))  # never allowed in a domain's frame
        env.step(names.index("return"))

    def met(detach: bool) -> list[Any]:
        env: Any = gym.make("RAO/Dialogue-v0", cities=2, domains=4, turns=20, dependency=0.0).unwrapped
        env.reset(seed=3)
        action = env.action_names.index("spawn_all")
        if detach:
            children = env.spawn_all(action)
            for child in reversed(children):
                child.reset()
                waste(child)
            env.join(*children)
        else:
            env.step(action)
            waste(env)
            waste(env)
        return list(env.batch.state.party["met"].tolist())

    assert np.sum(met(False)) == 2
    assert met(True) == met(False)
