"""Random trips: which cities and domains, what each counterpart wants, who refers to whom, and the databases. Compiled.

Every domain gets a goal that can be met, or, in the share `unsatisfiable`, one that can be met once one wish is given up, whatever is
booked where it refers to. Databases that are drawn along with the goals are made so; where they are given, goals are chosen so, and a share
that the databases do not allow is missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline, lean, splice
from rao_envs.core.rng import below, next_u64, uniform
from rao_envs.dialogue.acts import NONE, SAME
from rao_envs.dialogue.state import DialogueState, database, whole

SURE_IF_RIGHT = 0.9
"""How often a value that was understood is heard well, and"""
SURE_IF_WRONG = 0.3
"""how often one that was misunderstood: the confidence bit is evidence, no proof."""
ANY_ONE, FIRST, LAST = 0, 1, 2
"""Which of the bookings that it may refer to a goal refers to."""
TRIES = 8
"""Times that a goal is drawn anew for a given database that cannot have it."""


@lean
def hear(rules: Any, rng: npt.NDArray[np.uint64], values: int, value: int) -> tuple[int, int]:
    """What arrives of `value`, said of a slot with so many values: (value, sure). Misheard, it is another one, each equally likely.

    A reference is misheard as a plain value, never the other way round.
    """
    heard = value
    if uniform(rng) < rules["error_rate"]:
        heard = below(rng, values) if value == SAME else (value + 1 + below(rng, values - 1)) % values
    sure = uniform(rng) < (SURE_IF_RIGHT if heard == value else SURE_IF_WRONG)
    return heard, whole(sure)


@inline
def choose_domains(domain: DialogueState, i: int, rng: npt.NDArray[np.uint64]) -> None:
    """Which domains of which cities are active: as evenly spread as it goes."""
    rules = domain.rules[0]
    all_cities, all_domains = domain.entities_of.shape
    n_cities = rules["fewest_cities"] + below(rng, rules["most_cities"] - rules["fewest_cities"] + 1)
    fewest, most = max(rules["fewest_domains"], n_cities), min(rules["most_domains"], n_cities * all_domains)
    n_domains = fewest + below(rng, most - fewest + 1)
    domain.place[i]["active"] = n_domains
    for city in range(all_cities):
        if below(rng, all_cities - city) >= n_cities:
            continue
        here = (n_domains + n_cities - 1) // n_cities
        n_cities -= 1
        n_domains -= here
        for d in range(all_domains):
            if below(rng, all_domains - d) < here:
                domain.party[i, city, d]["active"] = True
                here -= 1


@lean
def find_reference(domain: DialogueState, i: int, city: int, d: int, rng: npt.NDArray[np.uint64]) -> int:
    """What a goal for `d` refers to, as slot x D + domain; NONE: there is nothing.

    Of the active domains of this city that a slot of `d` may refer to it is the first in the ontology's order, the last, or any.
    """
    domains, mode = domain.slots_of.shape[0], domain.rules[0]["reference"]
    found, seen = NONE, 0
    for k in range(domains):
        other = whole(domain.order[k])
        if not domain.party[i, city, other]["active"]:
            continue
        slot, slots = NONE, 0
        for s in range(domain.slots_of[d]):
            if domain.refers[d, s, other] >= 0:
                slots += 1
                if below(rng, slots) == 0:
                    slot = s
        if slot >= 0:
            seen += 1
            if mode == LAST or seen == 1 or (mode == ANY_ONE and below(rng, seen) == 0):
                found = slot * domains + other
    return found


@lean
def fits(row: npt.NDArray[np.int8], want: npt.NDArray[np.int8], but: int) -> bool:
    """Whether an entity with these values, int8 (S,), meets the plain ones of these wishes, that on slot `but` aside."""
    met = True
    for s in range(len(want)):
        met &= want[s] < 0 or s == but or row[s] == want[s]
    return met


@lean
def any_fits(shelf: npt.NDArray[np.int8], entities: int, want: npt.NDArray[np.int8]) -> bool:
    """Whether an entity of a database, int8 (E, S), meets all plain wishes."""
    found = False
    for e in range(entities):
        found |= fits(shelf[e], want, whole(NONE))
    return found


@lean
def choose_wishes(domain: DialogueState, i: int, city: int, d: int, base: int, must: int, rng: npt.NDArray[np.uint64]) -> None:
    """Wishes on a random choice of slots, `must` among them, for what entity `base` has; where that is NONE, for anything."""
    rules = domain.rules[0]
    slots = domain.slots_of[d]
    left, need = 0, min(slots, rules["fewest_constraints"] + below(rng, rules["most_constraints"] - rules["fewest_constraints"] + 1))
    shelf = domain.entity[database(domain, i), city, d]
    for s in range(slots):
        domain.want[i, city, d, s] = NONE
        domain.refer[i, city, d, s] = NONE
        domain.flexible[i, city, d, s] = 0
        left += s != must and (base < 0 or shelf[base, s] >= 0)
    if must >= 0:
        need -= 1
        domain.want[i, city, d, must] = SAME
    for s in range(slots):
        if s == must or (base >= 0 and shelf[base, s] < 0):
            continue
        if below(rng, left) < need:
            need -= 1
            domain.want[i, city, d, s] = shelf[base, s] if base >= 0 else below(rng, domain.values_of[d, s])
        left -= 1


@lean
def choose_flexible(domain: DialogueState, i: int, city: int, d: int, rng: npt.NDArray[np.uint64]) -> int:
    """One of the plain wishes, each equally likely; NONE where there is none."""
    found, seen = NONE, 0
    for s in range(domain.slots_of[d]):
        if domain.want[i, city, d, s] >= 0:
            seen += 1
            if below(rng, seen) == 0:
                found = s
    return found


@inline
def other_value(domain: DialogueState, d: int, slot: int, value: int, rng: npt.NDArray[np.uint64]) -> int:
    """Any value of the slot but this one."""
    values = whole(domain.values_of[d, slot])
    return (value + 1 + below(rng, values - 1)) % values


@lean
def stock(domain: DialogueState, i: int, city: int, d: int, reference: int, flexible: int, rng: npt.NDArray[np.uint64]) -> None:
    """A random database for a goal that is chosen already: something meets it, or does once `flexible` is given up.

    A goal that refers to another booking has an entity for every value that this may have.
    """
    shelf = domain.entity[i, city, d]
    entities = domain.entities_of[city, d]
    for e in range(entities):
        for s in range(domain.slots_of[d]):
            shelf[e, s] = below(rng, domain.values_of[d, s])
    variants = 1 if reference < 0 else domain.values_of[d, reference]
    first = below(rng, entities)
    for k in range(variants):
        row = shelf[(first + k) % entities]
        for s in range(domain.slots_of[d]):
            if domain.want[i, city, d, s] >= 0:
                row[s] = domain.want[i, city, d, s]
        if reference >= 0:
            row[reference] = k
    if flexible >= 0:
        for e in range(entities):
            if fits(shelf[e], domain.want[i, city, d], whole(NONE)):
                shelf[e, flexible] = other_value(domain, d, flexible, domain.want[i, city, d, flexible], rng)


@lean
def can_refer(domain: DialogueState, i: int, city: int, d: int, slot: int, other: int, flexible: int) -> bool:
    """Whether, in the given databases, every right booking in `other` leaves something to book in `d`."""
    shelf, there = domain.entity[database(domain, i), city, d], domain.entity[database(domain, i), city, other]
    target = domain.refers[d, slot, other]
    given_up = whole(NONE)
    for s in range(domain.slots_of[other]):
        if domain.flexible[i, city, other, s]:
            given_up = whole(s)
    for o in range(domain.entities_of[city, other]):
        if not fits(there[o], domain.want[i, city, other], given_up):
            continue
        found = False
        for e in range(domain.entities_of[city, d]):
            if there[o, target] >= 0 and shelf[e, slot] == there[o, target] and fits(shelf[e], domain.want[i, city, d], flexible):
                found = True
                break
        if not found:
            return False
    return True


@lean
def make_unsatisfiable(domain: DialogueState, i: int, city: int, d: int, rng: npt.NDArray[np.uint64]) -> int:
    """Change one wish of a goal that a given database meets to what nothing there has besides the rest; returns its slot, or NONE."""
    slot = choose_flexible(domain, i, city, d, rng)
    if slot < 0:
        return NONE
    kept = domain.want[i, city, d, slot]
    values = whole(domain.values_of[d, slot])
    start = below(rng, values)
    for k in range(values):
        domain.want[i, city, d, slot] = (start + k) % values
        if not any_fits(domain.entity[database(domain, i), city, d], whole(domain.entities_of[city, d]), domain.want[i, city, d]):
            return slot
    domain.want[i, city, d, slot] = kept
    return NONE


@lean
def draw_goal(domain: DialogueState, i: int, city: int, d: int, rng: npt.NDArray[np.uint64]) -> None:
    """What the counterpart of one domain wants, and, where databases are drawn, its database."""
    rules = domain.rules[0]
    domains = domain.slots_of.shape[0]
    reference = find_reference(domain, i, city, d, rng) if uniform(rng) < rules["dependency"] else whole(NONE)
    unsatisfiable = uniform(rng) < rules["unsatisfiable"]
    slot = reference // domains if reference >= 0 else whole(NONE)
    other = whole(max(reference, 0) % domains)
    flexible = whole(NONE)
    if rules["drawn"]:
        if reference >= 0 and domain.values_of[d, slot] > domain.entities_of[city, d]:
            slot = whole(NONE)  # no room for an entity for every value
        choose_wishes(domain, i, city, d, whole(NONE), slot, rng)
        flexible = choose_flexible(domain, i, city, d, rng) if unsatisfiable else whole(NONE)
        stock(domain, i, city, d, slot, flexible, rng)
    else:
        for _ in range(TRIES):
            base = whole(below(rng, domain.entities_of[city, d]))
            choose_wishes(domain, i, city, d, base, slot, rng)
            flexible = make_unsatisfiable(domain, i, city, d, rng) if unsatisfiable else whole(NONE)
            if (flexible >= 0 or not unsatisfiable) and (slot < 0 or can_refer(domain, i, city, d, slot, other, flexible)):
                break
        else:
            slot, flexible = whole(NONE), whole(NONE)
            choose_wishes(domain, i, city, d, whole(below(rng, domain.entities_of[city, d])), whole(NONE), rng)
    if flexible >= 0:
        domain.flexible[i, city, d, flexible] = 1
    if slot >= 0:
        domain.refer[i, city, d, slot] = other


@inline
def draw_opening(domain: DialogueState, i: int, city: int, d: int) -> None:
    """What the counterpart will say first: each wish with probability `volunteering`, heard as well as anything."""
    party, rng = domain.party[i, city, d], domain.noise[i, city, d]
    for s in range(domain.want.shape[3]):
        heard = domain.opening[i, city, d, s]
        heard["value"] = NONE
        heard["sure"] = 0
        want = whole(domain.want[i, city, d, s])
        if want != NONE and uniform(rng) < domain.rules[0]["volunteering"]:
            value, sure = hear(domain.rules[0], rng, whole(domain.values_of[d, s]), want)
            heard["value"] = value
            heard["sure"] = sure
            party["told"] |= 1 << s


@splice
def draw_trip(domain: DialogueState, i: int, rng: npt.NDArray[np.uint64]) -> None:
    """Instance `i`'s task: a given trip or a random one, and all counterparts as they are before anybody has spoken."""
    place = domain.place[i]
    place["right"] = 0
    place["wrong"] = 0
    place["trip"] = NONE
    cities, domains = domain.entities_of.shape
    for city in range(cities):
        for d in range(domains):
            party = domain.party[i, city, d]
            party["entity"] = NONE
            party["count"] = 0
            party["told"] = 0
            party["dropped"] = 0
            party["active"] = False
            party["met"] = False
            party["right"] = False
    given = domain.given_active.shape[0]
    if given > 0:
        place["trip"] = place["asked"] if place["asked"] >= 0 else below(rng, given)
        place["active"] = 0
    else:
        choose_domains(domain, i, rng)
    for city in range(cities):
        for k in range(domains):
            d = whole(domain.order[k])
            if given > 0 and domain.given_active[place["trip"], city, d]:
                domain.party[i, city, d]["active"] = True
                place["active"] += 1
                for s in range(domain.want.shape[3]):
                    domain.want[i, city, d, s] = domain.given_want[place["trip"], city, d, s]
                    domain.refer[i, city, d, s] = domain.given_refer[place["trip"], city, d, s]
                    domain.flexible[i, city, d, s] = domain.given_flexible[place["trip"], city, d, s]
                    if domain.refer[i, city, d, s] >= 0:
                        domain.want[i, city, d, s] = SAME
            elif given == 0 and domain.party[i, city, d]["active"]:
                draw_goal(domain, i, whole(city), d, rng)
            if domain.party[i, city, d]["active"]:
                domain.noise[i, city, d, 0] = next_u64(rng)
                draw_opening(domain, i, whole(city), d)
