"""A frame's window: the acts it holds, and what follows from them. Compiled.

The window is the context limit (PROTOCOL rule 12): the last `window` acts of the frame, whoever said them. What a frame may offer, book
or give up follows from these acts alone, by the rules of `ground`; nothing remembers what has left the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline, lean
from rao_envs.dialogue.acts import (
    ACCEPT,
    AGREE,
    ANY,
    BOOK,
    CHILD,
    CORRECT,
    COUNTERPART,
    INFORM,
    NONE,
    NOTHING,
    REFUSE,
    REJECT,
    RESULT,
    SAME,
    YES,
)
from rao_envs.dialogue.state import CERTAIN, DOUBTED, FREE, GIVEN_UP, HEARD_WELL, UNKNOWN, UNRESOLVED, DialogueState, database, whole

BOOKINGS = 1 << BOOK | 1 << RESULT
"""Bits of the kinds of act that tell what is booked,"""
VOUCHED = 1 << YES | 1 << CORRECT | 1 << REFUSE
"""of those in which a counterpart vouches for a value,"""
KNOWLEDGE = VOUCHED | 1 << INFORM | 1 << ANY | 1 << AGREE
"""and of those that say what it wants of a slot."""


@lean
def say(frame: Any, ring: npt.NDArray[Any], kind: int, speaker: int, city: int, d: int, slot: int, value: int, entity: int) -> None:
    """Put an act, reliable as it is, into a window; the oldest leaves it once it is full.

    Args:
        frame: the record (FRAME) of the window's frame.
        ring: its acts, ACT (R,).
        kind: of the act, int64 like all that follow.
        speaker: AGENT, COUNTERPART or CHILD.
        city: where.
        d: the domain, or NONE.
        slot: or NONE.
        value: of the slot, SAME or NONE.
        entity: or NONE.
    """
    act = ring[frame["said"] & (len(ring) - 1)]
    act["kind"] = kind
    act["speaker"] = speaker
    act["city"] = city
    act["domain"] = d
    act["slot"] = slot
    act["sure"] = 1
    act["value"] = value
    act["entity"] = entity
    act["truth"] = NONE
    frame["said"] += 1


@lean
def say_heard(frame: Any, ring: npt.NDArray[Any], city: int, d: int, slot: int, value: int, sure: int, truth: int) -> None:
    """Put what was heard of a wish into a window."""
    say(frame, ring, whole(INFORM), whole(COUNTERPART), city, d, slot, value, whole(NONE))
    act = ring[(frame["said"] - 1) & (len(ring) - 1)]
    act["sure"] = sure
    act["truth"] = truth


@inline
def held(domain: DialogueState, frame: Any) -> int:
    """The number of the first act that the window still holds. What the frame was given when it opened takes room as well."""
    return max(0, whole(frame["said"] - domain.rules[0]["window"] + frame["given"]))


@inline
def is_booking(kind: int) -> bool:
    """Whether an act tells what is booked."""
    return BOOKINGS >> kind & 1 == 1


@inline
def open_window(frame: Any, ring: npt.NDArray[Any]) -> None:
    """An empty window."""
    frame["said"] = 0
    frame["given"] = 0
    for j in range(len(ring)):
        ring[j]["kind"] = NOTHING


@lean
def copy_act(act: Any, frame: Any, ring: npt.NDArray[Any], speaker: int) -> None:
    """Say `act` (a record of another ring) again, as the same speaker or, unless that is NONE, another."""
    copy = ring[frame["said"] & (len(ring) - 1)]
    copy["kind"] = act["kind"]
    copy["speaker"] = act["speaker"] if speaker < 0 else speaker
    copy["city"] = act["city"]
    copy["domain"] = act["domain"]
    copy["slot"] = act["slot"]
    copy["sure"] = act["sure"]
    copy["value"] = act["value"]
    copy["entity"] = act["entity"]
    copy["truth"] = act["truth"]
    frame["said"] += 1


@inline
def is_needed(refer: npt.NDArray[np.int8], d: int) -> bool:
    """Whether a goal that refers to these domains, int8 (S,), refers to `d`."""
    found = False
    for s in range(len(refer)):
        found |= refer[s] == d
    return found


@lean
def take_along(domain: DialogueState, i: int, depth: int, city: int, d: int) -> None:
    """A child's fresh window: of what its parent's held when it spawned, the acts about the child's city, or domain.

    The bookings that a domain's goal refers to are given to it for good, as a call is given its arguments.
    """
    frame, child = domain.frames[i, depth], domain.frames[i, depth + 1]
    open_window(child, domain.acts[i, depth + 1])
    mark, places = whole(frame["mark"]), domain.acts.shape[2]
    for j in range(max(0, mark - domain.rules[0]["window"]), mark):
        act = domain.acts[i, depth, j & (places - 1)]
        if act["city"] != city:
            continue
        if d < 0 or act["domain"] == d:
            copy_act(act, child, domain.acts[i, depth + 1], whole(NONE))
        elif is_booking(act["kind"]) and is_needed(domain.refer[i, city, d], act["domain"]) and child["given"] < domain.given.shape[2]:
            domain.given[i, depth + 1, child["given"]] = act
            child["given"] += 1


@inline
def is_knowledge(kind: int) -> bool:
    """Whether an act of a counterpart says what it wants of a slot."""
    return KNOWLEDGE >> kind & 1 == 1


@inline
def tells_of(domain: DialogueState, i: int, depth: int, city: int, d: int) -> bool:
    """Whether the window of the frame at `depth` holds an act that tells what is booked there."""
    frame, places = domain.frames[i, depth], domain.acts.shape[2]
    found = False
    for j in range(held(domain, frame), whole(frame["said"])):
        act = domain.acts[i, depth, j & (places - 1)]
        found |= is_booking(act["kind"]) and act["city"] == city and act["domain"] == d
    return found


@lean
def hand_back(domain: DialogueState, i: int, depth: int, city: int, d: int) -> None:
    """Leave in the parent's window what a child knows that has not booked all.

    Of a domain that is the latest word on each slot, and an acceptance, which is reliable; of a city the bookings that its window tells of
    and the parent's does not.
    """
    child, frame, ring, none = domain.frames[i, depth + 1], domain.frames[i, depth], domain.acts[i, depth], whole(NONE)
    last = whole(child["said"])
    places = domain.acts.shape[2]
    for j in range(held(domain, child), last):
        act = domain.acts[i, depth + 1, j & (places - 1)]
        kind = act["kind"]
        if act["city"] != city:
            continue
        if d < 0:
            if is_booking(kind) and act["domain"] >= 0 and not tells_of(domain, i, depth, city, whole(act["domain"])):
                say(frame, ring, whole(RESULT), whole(CHILD), city, whole(act["domain"]), none, none, whole(act["entity"]))
            continue
        if act["domain"] != d or not (is_knowledge(kind) or kind == ACCEPT):
            continue
        latest = True
        for later in range(j + 1, last):
            other = domain.acts[i, depth + 1, later & (places - 1)]
            about = other["city"] == city and other["domain"] == d
            if about and kind == ACCEPT and other["kind"] == ACCEPT:
                latest = False
            if about and kind != ACCEPT and is_knowledge(other["kind"]) and other["slot"] == act["slot"]:
                latest = False
        if latest:
            copy_act(act, frame, ring, whole(CHILD))


@inline
def see_scope(domain: DialogueState, i: int, depth: int) -> None:
    """What the frame at `depth` has yet to book, in its scope and in the city in focus. Part of the trip's plan, which everybody knows."""
    frame = domain.frames[i, depth]
    cities, domains = domain.entities_of.shape
    frame["n_open"] = 0
    frame["open"] = 0
    frame["ready"] = 0
    frame["booked"] = 0
    frame["refers"] = 0
    frame["linked"] = 0
    frame["open_cities"] = 0
    frame["all_right"] = True
    for city in range(cities):
        if frame["city"] >= 0 and frame["city"] != city:
            continue
        for d in range(domains):
            party = domain.party[i, city, d]
            if not party["active"] or (frame["domain"] >= 0 and frame["domain"] != d):
                continue
            if party["entity"] >= 0:
                frame["all_right"] &= party["right"]
                if city == frame["focus_city"]:
                    frame["booked"] |= 1 << d
                continue
            frame["n_open"] += 1
            frame["open_cities"] |= 1 << city
            if city == frame["focus_city"]:
                frame["open"] |= 1 << d
    if frame["focus_city"] < 0:
        return
    city, visible = whole(frame["focus_city"]), 0
    for j in range(held(domain, frame), whole(frame["said"])):
        act = domain.acts[i, depth, j & (domain.acts.shape[2] - 1)]
        if is_booking(act["kind"]) and act["city"] == city and act["domain"] >= 0:
            visible |= 1 << act["domain"]
    for k in range(frame["given"]):
        visible |= 1 << domain.given[i, depth, k]["domain"]
    for d in range(domains):
        if not frame["open"] >> d & 1:
            continue
        needs, waits = 0, False
        for s in range(domain.slots_of[d]):
            other = domain.refer[i, city, d, s]
            if other >= 0:
                needs |= 1 << other
                waits = waits or domain.party[i, city, other]["entity"] < 0
        if not waits:
            frame["ready"] |= 1 << d
        if needs:
            frame["refers"] |= 1 << d
            if needs & visible == needs:
                frame["linked"] |= 1 << d


@inline
def believe(belief: Any, status: int, said: int) -> None:
    """Set a belief about a slot."""
    belief["status"] = status
    belief["said"] = said
    belief["value"] = NONE if said == SAME else said


@inline
def resolve_reference(domain: DialogueState, i: int, depth: int, slot: int) -> None:
    """Put a booked value in the place of "the same as there", if the window tells of that booking."""
    frame = domain.frames[i, depth]
    belief = domain.beliefs[i, depth, slot]
    city, d = whole(frame["focus_city"]), whole(frame["focus"])
    other, booked = domain.refer[i, city, d, slot], whole(NONE)
    if other >= 0:
        for j in range(held(domain, frame), whole(frame["said"])):
            act = domain.acts[i, depth, j & (domain.acts.shape[2] - 1)]
            if is_booking(act["kind"]) and act["city"] == city and act["domain"] == other:
                booked = whole(act["entity"])
        for k in range(frame["given"]):
            if domain.given[i, depth, k]["domain"] == other:
                booked = whole(domain.given[i, depth, k]["entity"])
    if booked >= 0:
        belief["value"] = domain.entity[database(domain, i), city, other, booked, domain.refers[d, slot, other]]
    if belief["value"] < 0:
        belief["status"] = UNRESOLVED


@inline
def read_acts(domain: DialogueState, i: int, depth: int) -> int:
    """Beliefs about the domain in focus: the latest word on each slot counts. Returns how many rejections there are."""
    frame = domain.frames[i, depth]
    city, d = whole(frame["focus_city"]), whole(frame["focus"])
    shelf = domain.entity[database(domain, i), city, d]
    rejections = 0
    for j in range(held(domain, frame), whole(frame["said"])):
        act = domain.acts[i, depth, j & (domain.acts.shape[2] - 1)]
        if act["domain"] != d or act["city"] != city:
            continue
        kind, slot = act["kind"], act["slot"]
        if kind == INFORM:
            believe(domain.beliefs[i, depth, slot], HEARD_WELL if act["sure"] else DOUBTED, whole(act["value"]))
        elif VOUCHED >> kind & 1:
            believe(domain.beliefs[i, depth, slot], CERTAIN, whole(act["value"]))
        elif kind == ANY:
            believe(domain.beliefs[i, depth, slot], FREE, NONE)
        elif kind == AGREE:
            believe(domain.beliefs[i, depth, slot], GIVEN_UP, NONE)
        elif kind == ACCEPT:
            frame["accepted"] = act["entity"]
        elif kind == REJECT:
            rejections += 1
            belief = domain.beliefs[i, depth, slot]
            belief["barred"] |= 1 << whole(shelf[act["entity"], slot] + 1)
            if belief["status"] <= HEARD_WELL and belief["value"] == shelf[act["entity"], slot]:
                believe(domain.beliefs[i, depth, slot], UNKNOWN, NONE)  # that cannot be what was meant
    return rejections


@lean
def ground(domain: DialogueState, i: int, depth: int) -> None:
    """Work out all that follows from the window of the frame at `depth`, anew.

    Entities that fit are those that have every value believed and were not turned down; the first of them is what would be offered or
    booked, unless the window holds an acceptance. Where the window says nothing of the domain, or does not tell of every booking that
    its goal refers to, nothing is.
    """
    see_scope(domain, i, depth)
    frame = domain.frames[i, depth]
    frame["accepted"] = NONE
    frame["candidate"] = NONE
    frame["matches"] = NONE
    for s in range(domain.beliefs.shape[2]):
        believe(domain.beliefs[i, depth, s], UNKNOWN, NONE)
        domain.beliefs[i, depth, s]["barred"] = 0
    if frame["focus"] < 0:
        return
    city, d = whole(frame["focus_city"]), whole(frame["focus"])
    rejections = read_acts(domain, i, depth)
    known = rejections
    for s in range(domain.slots_of[d]):
        belief = domain.beliefs[i, depth, s]
        if belief["said"] == SAME:
            resolve_reference(domain, i, depth, s)
        known += belief["status"] != UNKNOWN
        if belief["status"] == GIVEN_UP or belief["status"] == FREE:
            belief["barred"] = 0
    if known > 0 and (frame["refers"] & ~frame["linked"]) >> d & 1 == 0:
        frame["matches"] = 0
        shelf = domain.entity[database(domain, i), city, d]
        for e in range(domain.entities_of[city, d]):
            fitting = True
            for s in range(domain.slots_of[d]):
                belief, value = domain.beliefs[i, depth, s], whole(shelf[e, s])
                if (belief["value"] >= 0 and value != belief["value"]) or belief["barred"] >> (value + 1) & 1:
                    fitting = False
                    break
            if fitting:
                if frame["matches"] == 0:
                    frame["candidate"] = e
                frame["matches"] += 1
    if frame["accepted"] >= 0:
        frame["candidate"] = frame["accepted"]
