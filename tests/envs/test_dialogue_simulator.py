"""Trips and counterparts: rates as configured, goals that can be met, and what counterparts answer."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

import rao_envs  # noqa: F401
from rao_envs.dialogue import acts
from rao_envs.dialogue.domain import DialogueDomain, identifiers, number_range, reference_order
from rao_envs.dialogue.env import DialogueEnv, DialogueVectorEnv
from rao_envs.dialogue.generator import SURE_IF_RIGHT, SURE_IF_WRONG
from rao_envs.dialogue.ontology import trip_ontology
from rao_envs.dialogue.simulator import MORE

TRIPS = 2000


def draw(n: int = TRIPS, **kwargs: Any) -> DialogueVectorEnv:
    """`n` trips at their beginning."""
    vector = gym.make_vec("RAO/Dialogue-v0", num_envs=n, vectorization_mode="vector_entry_point", **kwargs)
    assert isinstance(vector, DialogueVectorEnv)
    vector.reset(seed=0)
    return vector


def domain_of(vector: DialogueVectorEnv) -> DialogueDomain:
    """Its domain."""
    assert isinstance(vector.domain, DialogueDomain)
    return vector.domain


def close(hits: int, tries: int, rate: float) -> bool:
    """Whether a share is the rate, to four standard errors."""
    return tries > 200 and abs(hits / tries - rate) < 4 * math.sqrt(max(rate * (1 - rate), 1e-4) / tries)


class Trips:
    """The goals of a vector environment, taken apart in plain Python."""

    def __init__(self, vector: DialogueVectorEnv) -> None:
        self.state = vector.batch.state
        self.arrays = domain_of(vector).arrays
        self.places = [tuple(map(int, place)) for place in np.argwhere(self.state.party["active"])]

    def shelf(self, i: int, c: int, d: int) -> npt.NDArray[np.int8]:
        entity = self.state.entity
        rows: npt.NDArray[np.int8] = entity[i if len(entity) > 1 else 0, c, d, : self.state.entities_of[c, d]]
        return rows

    def fitting(self, i: int, c: int, d: int, but: int = -1) -> npt.NDArray[np.int8]:
        """The entities that meet the plain wishes."""
        want = self.state.want[i, c, d]
        plain = [s for s in range(len(want)) if want[s] >= 0 and s != but]
        shelf = self.shelf(i, c, d)
        fitting: npt.NDArray[np.int8] = shelf[(shelf[:, plain] == want[plain]).all(axis=1)]
        return fitting


# -- trips --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"constraints": (1, 4), "dependency": 0.3, "unsatisfiable": 0.6, "domains": (2, 8), "reference": "first"},
        {"cities": (1, 4), "domains": (4, 20), "dependency": 1.0, "reference": "last", "turns": 60},
        {"slots": 3, "values": 3, "entities": 5, "constraints": 2},
        {"entities": 30},
    ],
    ids=str,
)
def test_drawn_trips_have_the_shares_asked_for_and_can_be_met(kwargs: dict[str, Any]) -> None:
    vector = draw(**kwargs)
    domain, trips = domain_of(vector), Trips(vector)
    state = trips.state
    unsatisfiable = referring = could_refer = tested = 0
    for i, c, d in trips.places:
        want, refer, flexible = state.want[i, c, d], state.refer[i, c, d], state.flexible[i, c, d]
        earlier = [o for o in np.flatnonzero(state.party["active"][i, c]) if (state.refers[d, :, o] >= 0).any()]
        count = int((want != acts.NONE).sum())
        assert domain.constraints[0] <= count <= domain.constraints[1]
        assert ((want == acts.SAME) == (refer >= 0)).all() and (refer >= 0).sum() <= 1 and flexible.sum() <= 1
        given_up = int(flexible.argmax()) if flexible.any() else -1
        could_refer += bool(earlier)
        referring += bool((refer >= 0).any())
        if want[want >= 0].size:
            tested += 1
            unsatisfiable += given_up >= 0
        assert len(trips.fitting(i, c, d)) == 0 if given_up >= 0 else len(trips.fitting(i, c, d)) > 0
        fitting = trips.fitting(i, c, d, given_up)
        assert len(fitting) > 0
        for s in np.flatnonzero(refer >= 0):
            other = int(refer[s])
            assert other in earlier
            expected = {"first": earlier[0], "last": earlier[-1]}.get(kwargs.get("reference", "any"))
            assert expected in (None, other)
            assert set(fitting[:, s].tolist()) == set(range(domain.values)), "whatever is booked there, something is left to book here"
    assert close(referring, could_refer, domain.dependency)
    assert close(unsatisfiable, tested, domain.unsatisfiable)


def test_cities_and_domains_are_drawn_evenly() -> None:
    state = draw(cities=(2, 3), domains=(4, 7), turns=20).batch.state
    active = state.party["active"]
    per_trip, cities = active.sum(axis=(1, 2)), active.any(axis=2).sum(axis=1)
    assert set(per_trip) == {4, 5, 6, 7} and set(cities) == {2, 3}
    for count in (4, 5, 6, 7):
        assert close(int((per_trip == count).sum()), TRIPS, 0.25)
    assert close(int((cities == 2).sum()), TRIPS, 0.5)
    for i in range(50):
        here = active[i].sum(axis=1)
        assert here[here > 0].max() - here[here > 0].min() <= 1
    assert abs(active.sum(axis=(0, 1)) / active.sum() - 1 / 8).max() < 0.02


def test_an_ontologys_own_databases_stay_as_they_are_and_goals_are_made_to_fit_them() -> None:
    ontology = trip_ontology()
    vector = draw(ontology=ontology, domains=4, dependency=0.8, unsatisfiable=0.5)
    trips = Trips(vector)
    state = trips.state
    assert state.entity.shape[0] == 1
    np.testing.assert_array_equal(state.entity[0], ontology.arrays().entity)
    unsatisfiable = 0
    for i, c, d in trips.places:
        refer, flexible = state.refer[i, c, d], state.flexible[i, c, d]
        given_up = int(flexible.argmax()) if flexible.any() else -1
        unsatisfiable += given_up >= 0
        assert len(trips.fitting(i, c, d)) == 0 if given_up >= 0 else len(trips.fitting(i, c, d)) > 0
        fitting = trips.fitting(i, c, d, given_up)
        for s in np.flatnonzero(refer >= 0):
            other = int(refer[s])
            there = state.flexible[i, c, other]
            booked = trips.fitting(i, c, other, int(there.argmax()) if there.any() else -1)
            assert set(booked[:, state.refers[d, s, other]].tolist()) <= set(fitting[:, s].tolist())
    assert close(unsatisfiable, len(trips.places), 0.5) or unsatisfiable / len(trips.places) > 0.3  # a database may not allow more


# -- what is heard ------------------------------------------------------------------------------------------------------------------------


def test_openings_and_answers_are_volunteered_misheard_and_doubted_as_often_as_configured() -> None:
    vector = draw(8000, error_rate=0.2, volunteering=0.7, domains=2)
    state = vector.batch.state
    active = state.party["active"]
    want, opening = state.want[active], state.opening[active]
    wished = want != acts.NONE
    told = opening["value"] != acts.NONE
    assert not told[~wished].any()
    assert close(int(told[wished].sum()), int(wished.sum()), 0.7)
    plain = told & (want >= 0)
    wrong = opening["value"] != want
    assert close(int(wrong[plain].sum()), int(plain.sum()), 0.2)
    assert not (opening["value"] == acts.SAME)[plain].any(), "a plain value is never taken for a reference"
    sure = opening["sure"] == 1
    assert close(int(sure[plain & ~wrong].sum()), int((plain & ~wrong).sum()), SURE_IF_RIGHT)
    assert close(int(sure[plain & wrong].sum()), int((plain & wrong).sum()), SURE_IF_WRONG)
    for value in range(1, 4):  # each of the other values equally likely
        shift = (opening["value"].astype(int) - want) % 4 == value
        assert close(int((shift & plain & wrong).sum()), int((plain & wrong).sum()), 1 / 3)


def test_requests_are_answered_through_the_noise_and_sometimes_with_one_thing_more() -> None:
    vector = draw(6000, error_rate=0.3, volunteering=0.0, domains=1, unsatisfiable=0.0)
    state = vector.batch.state
    where = state.party["active"].any(axis=1).argmax(axis=1)
    names = vector.action_names
    vector.step(np.array([names.index(f"focus_{domain_of(vector).ontology.domains[d].name}") for d in where]))
    vector.step(np.zeros(6000, np.int64))  # request_0
    said = state.frames["said"][:, 0]
    answer, more = state.acts[:, 0, 2], state.acts[:, 0, 3]
    city = state.party["active"].any(axis=2).argmax(axis=1)
    want = state.want[np.arange(6000), city, where]
    asked = want[:, 0] != acts.NONE
    assert (answer["kind"] == np.where(asked, acts.INFORM, acts.ANY)).all()
    assert (answer["slot"] == 0).all()
    assert close(int((answer["value"] != want[:, 0])[asked].sum()), int(asked.sum()), 0.3)
    assert (answer["truth"] == want[:, 0])[asked].all()
    added = said >= 4
    assert (more["kind"][added] == acts.INFORM).all()
    assert (more["slot"][added] > 0).all(), "a wish that was not told yet"
    assert abs(added.mean() - MORE) < 0.03
    assert (want[np.arange(6000), more["slot"]] != acts.NONE)[added].all()


class Talk:
    """One counterpart in a single environment whose goal is set by hand: the hotel of the first city."""

    def __init__(self, want: list[int], flexible: int = -1, **kwargs: Any) -> None:
        env = gym.make("RAO/Dialogue-v0", disable_env_checker=True, ontology=trip_ontology(), error_rate=0.0, **kwargs).unwrapped
        assert isinstance(env, DialogueEnv)
        self.env = env
        env.reset(seed=0)
        saved = env.get_state()
        saved["domain.party"]["active"] = False
        saved["domain.party"]["active"][0, 1] = True
        saved["domain.want"][0, 1] = want
        saved["domain.refer"][0, 1] = acts.NONE
        saved["domain.flexible"][0, 1] = 0
        if flexible >= 0:
            saved["domain.flexible"][0, 1, flexible] = 1
        saved["domain.opening"][0, 1]["value"] = want
        saved["domain.opening"][0, 1]["sure"] = 1
        saved["domain.party"]["told"][0, 1] = sum(1 << s for s, value in enumerate(want) if value >= 0)
        saved["domain.place"]["active"] = 1
        root = saved["domain.frames"][0:1]
        root["city"] = root["focus_city"] = 0
        root["open"] = root["ready"] = 2
        root["n_open"] = root["open_cities"] = 1
        env.set_state(saved)
        self.do("focus_hotel")

    def do(self, name: str) -> dict[str, Any]:
        action = self.env.action_names.index(name)
        assert self.env.action_masks()[action], f"{name} is not allowed"
        return self.env.step(action)[4]

    def may(self, name: str) -> bool:
        return bool(self.env.action_masks()[self.env.action_names.index(name)])

    @property
    def frame(self) -> Any:
        return self.env.batch.state.frames[0, 0]

    def heard(self) -> tuple[str, int, int, int]:
        """The last act: kind, slot, value, entity."""
        state = self.env.batch.state
        act = state.acts[0, 0, (self.frame["said"] - 1) % state.acts.shape[2]]
        return acts.KIND_NAMES[act["kind"]], int(act["slot"]), int(act["value"]), int(act["entity"])


SHELF = trip_ontology().arrays().entity[0, 1]


def test_an_offer_that_suits_is_accepted_and_its_booking_is_right() -> None:
    row = SHELF[5].tolist()
    talk = Talk([row[0], row[1], row[2], acts.NONE])
    talk.do("offer")
    assert talk.heard()[0] == "accept"
    booked = talk.heard()[3]
    assert (SHELF[booked, :3] == row[:3]).all()
    assert not talk.may("offer") and not talk.may("relax_0")
    assert talk.do("book")["is_success"] is True
    assert talk.heard()[0] == "thank"


def test_an_offer_that_does_not_suit_is_turned_down_with_the_slot_to_blame() -> None:
    row = SHELF[0].tolist()
    talk = Talk([row[0], row[1], acts.NONE, acts.NONE])
    saved = talk.env.get_state()
    other = (row[1] + 1) % 4
    saved["domain.want"][0, 1, 1] = other  # the agent has heard something else
    talk.env.set_state(saved)
    talk.do("offer")
    kind, slot, value, entity = talk.heard()
    assert (kind, slot, value) == ("reject", 1, acts.NONE)
    assert talk.env.batch.state.beliefs["status"][0, 0, 1] == 0, "what was believed of it is known to be wrong"
    candidate = int(talk.frame["candidate"])
    assert candidate != entity and SHELF[candidate, 1] != SHELF[entity, 1], "nor is anything with that value offered again"
    talk.do("request_1")
    assert talk.heard()[:3] == ("inform", 1, other)


def test_confirmations_are_reliable() -> None:
    talk = Talk([2, acts.NONE, 1, acts.NONE])
    talk.do("confirm_0")
    assert talk.heard()[:3] == ("yes", 0, 2)
    assert not talk.may("confirm_0") and not talk.may("confirm_1"), "certain, and never heard of"
    saved = talk.env.get_state()
    saved["domain.want"][0, 1, 2] = 3
    talk.env.set_state(saved)
    talk.do("confirm_2")
    assert talk.heard()[:3] == ("correct", 2, 3)
    talk.do("request_1")
    assert talk.heard()[:2] == ("any", 1)


def none_has(values: list[int]) -> bool:
    return not (SHELF[:, : len(values)] == values).all(axis=1).any()


def test_a_flexible_wish_is_given_up_once_nothing_fits_and_no_other() -> None:
    want = next([a, b, c] for a in range(4) for b in range(4) for c in range(4) if none_has([a, b, c]) and not none_has([a, b]))
    talk = Talk([*want, acts.NONE], flexible=2)
    assert talk.frame["matches"] == 0 and not talk.may("offer") and not talk.may("book")
    talk.do("relax_1")
    assert talk.heard()[:3] == ("refuse", 1, want[1])
    talk.do("relax_2")
    assert talk.heard()[:2] == ("agree", 2)
    assert talk.frame["matches"] > 0
    assert not talk.may("relax_0"), "something fits now"
    talk.do("offer")
    assert talk.heard()[0] == "accept"
    assert talk.do("book")["is_success"] is True


def test_negotiating_about_what_was_misheard_brings_the_correction() -> None:
    row = SHELF[3].tolist()
    talk = Talk([*row[:3], acts.NONE])
    saved = talk.env.get_state()
    wrong = next(v for v in range(4) if none_has([*row[:2], v]))
    ring = saved["domain.acts"][0]
    ring["value"][(ring["kind"] == acts.INFORM) & (ring["slot"] == 2)] = wrong
    saved["domain.beliefs"][0]["said"][2] = saved["domain.beliefs"][0]["value"][2] = wrong
    saved["domain.frames"]["matches"][0], saved["domain.frames"]["candidate"][0] = 0, acts.NONE
    talk.env.set_state(saved)
    talk.do("relax_2")
    assert talk.heard()[:3] == ("correct", 2, row[2])
    assert talk.frame["matches"] > 0


# -- arguments ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"turns": 0}, r"turns must be an integer in \[1, 1000\], got 0"),
        ({"domains": 9}, r"every city of a trip needs a booking and has at most 8: domains=9 do not fit cities=1"),
        ({"domains": 2, "cities": (2, 3)}, "do not fit"),
        ({"domains": (3, 2)}, r"pair \(low, high\) with low <= high"),
        ({"domains": (1, 2, 3)}, r"an integer or a pair"),
        ({"constraints": 5}, r"constraints must be an integer in \[1, 4\]"),
        ({"slots": 5}, r"slots must be an integer in \[1, 4\]"),
        ({"values": 1}, r"values must be an integer in \[2, 4\]"),
        ({"entities": 0}, r"entities must be an integer in \[1, 1000\]"),
        ({"error_rate": 1.5}, r"error_rate must be a number in \[0, 1\], got 1.5"),
        ({"window": 0}, r"window must be an integer in \[1, 64\]"),
        ({"reference": "next"}, "reference must be one of 'any', 'first', 'last', got 'next'"),
        ({"ontology": trip_ontology(), "slots": 3}, "belong to drawn databases"),
        ({"goals": []}, "pass it as ontology= too"),
    ],
)
def test_bad_arguments_are_explained(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DialogueDomain(**kwargs)


def test_helpers() -> None:
    assert identifiers(["Bed & Breakfast", "bed breakfast", "Spa", "***"], "domain") == [
        "bed_breakfast_0",
        "bed_breakfast_1",
        "spa",
        "domain",
    ]
    assert number_range("cities", (1, 2), 1, 4) == (1, 2)
    refers = np.full((3, 1, 3), -1, np.int8)
    refers[0, 0, 2] = refers[2, 0, 1] = 0
    assert reference_order(refers).tolist() == [1, 2, 0]
