"""Where a dialogue's state lives: the records that the generator, the counterparts, the windows and the hooks share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline
from rao_envs.dialogue.acts import NONE

RULES = np.dtype(
    [
        ("error_rate", np.float64),
        ("volunteering", np.float64),
        ("dependency", np.float64),
        ("unsatisfiable", np.float64),
        ("turns", np.int32),
        ("window", np.int32),
        ("reference", np.int32),  # which booking a goal refers to: ANY_ONE, FIRST or LAST of `generator`
        ("values", np.int32),  # most of a slot
        ("fewest_cities", np.int32),
        ("most_cities", np.int32),
        ("fewest_domains", np.int32),
        ("most_domains", np.int32),
        ("fewest_constraints", np.int32),
        ("most_constraints", np.int32),
        ("confirm", np.int32),  # index of the first action of each kind: requests come first, then confirmations
        ("offer", np.int32),
        ("relax", np.int32),
        ("book", np.int32),
        ("leave", np.int32),
        ("focus", np.int32),  # on domains, then cities
        ("spawn", np.int32),  # domains, cities, all
        ("drawn", np.bool_),  # whether databases are drawn anew for every episode
    ],
    align=True,
)

PARTY = np.dtype(
    [
        ("entity", np.int16),  # what is booked here; NONE: nothing yet
        ("count", np.int16),  # the agent's acts towards this counterpart, and children that came back from it: grows whenever it changes
        ("told", np.int16),  # bit k: the counterpart has spoken of its constraint on slot k
        ("dropped", np.int16),  # bit k: it has given that constraint up
        ("active", np.bool_),  # whether the trip needs this domain at all
        ("met", np.bool_),  # whether the counterpart has said its opening
        ("right", np.bool_),  # whether what is booked meets its goal
    ],
    align=True,
)
"""A counterpart and how far things are with it."""

HEARD = np.dtype([("value", np.int8), ("sure", np.int8)], align=True)
"""What an opening says of a slot, as it is heard; value NONE: nothing."""

FRAME = np.dtype(
    [
        ("said", np.int32),  # acts that ever entered the window
        ("given", np.int32),  # bookings that it was given when it opened
        ("mark", np.int32),  # `said` at the latest spawn: what its children may take along
        ("turns", np.int32),  # user turns left to the frame and all below it
        ("allotment", np.int32),  # how many it was given
        ("candidate", np.int32),  # entity that would be offered or booked; NONE
        ("accepted", np.int32),  # entity whose acceptance is in the window; NONE
        ("matches", np.int32),  # entities that fit all that the window says; NONE where it says nothing
        ("n_open", np.int32),  # domains of the frame's scope that have yet to be booked
        ("open", np.int32),  # bits of those in the city in focus
        ("ready", np.int32),  # bits of those of them that wait for no other booking
        ("booked", np.int32),  # bits of the domains that are booked there
        ("refers", np.int32),  # bits of the open ones whose goal refers to other bookings
        ("linked", np.int32),  # bits of those of them that find all these bookings in the window
        ("open_cities", np.int32),  # bits of the cities of the scope where something has yet to be booked
        ("city", np.int8),  # the scope: this city; NONE: the whole trip
        ("domain", np.int8),  # and this domain; NONE: all of them
        ("focus_city", np.int8),  # what is talked about; NONE: nothing yet
        ("focus", np.int8),
        ("moved", np.int8),  # the latest action was a focus on a city (1) or on a domain (2)
        ("all_right", np.bool_),  # whether all that is booked in its scope is right
        ("acted", np.bool_),  # whether the frame has talked or had a child
        ("left", np.bool_),  # whether it has given up
    ],
    align=True,
)

SHARE = np.dtype([("which", np.int8), ("turns", np.int16)], align=True)
"""A child of the latest spawn: the domain, or city, that it is for, and its allotment of user turns."""

BELIEF = np.dtype(
    [
        ("status", np.int8),  # one of the codes below
        ("said", np.int16),  # the value as said: SAME for a reference
        ("value", np.int16),  # the value that a booking must have; NONE where that is not known
        ("barred", np.int64),  # bit v + 1: an entity with value v (NONE: not known) was turned down because of it
    ],
    align=True,
)
"""What the window says of one slot of the domain in focus."""

UNKNOWN, DOUBTED, HEARD_WELL, CERTAIN, FREE, GIVEN_UP, UNRESOLVED = range(7)
"""What the window has of a slot: nothing; a value heard badly; one heard well; one that the counterpart vouched for; that it does not
matter; that the wish was given up; that it is the same as in a booking which the window does not tell of."""
STATUSES = 7

PLACE = np.dtype(
    [
        ("asked", np.int32),  # index of the given trip that the next reset was asked for; -1: any
        ("trip", np.int32),  # of the trip at hand; -1: a random one
        ("active", np.int32),  # domains to book, in all cities
        ("right", np.int32),  # of them booked rightly, and
        ("wrong", np.int32),  # wrongly
    ],
    align=True,
)


class DialogueState(NamedTuple):
    """A batch of `n` trips: C cities, D domains, S slots, E entities, G given trips, L levels of frames.

    A window is a ring of R places, a power of two.
    """

    rules: npt.NDArray[Any]  # RULES (1,)
    slots_of: npt.NDArray[np.int8]  # (D,) see `OntologyArrays`
    values_of: npt.NDArray[np.int8]  # (D, S)
    entities_of: npt.NDArray[np.int16]  # (C, D)
    refers: npt.NDArray[np.int8]  # (D, S, D)
    order: npt.NDArray[np.int8]  # (D,) the domains, each after all that it may refer to
    given_active: npt.NDArray[np.uint8]  # (G, C, D) trips to draw from; G = 0: random ones
    given_want: npt.NDArray[np.int8]  # (G, C, D, S)
    given_refer: npt.NDArray[np.int8]  # (G, C, D, S)
    given_flexible: npt.NDArray[np.uint8]  # (G, C, D, S)
    entity: npt.NDArray[np.int8]  # (n, C, D, E, S) the databases: a value, or -1; (1, C, D, E, S) where all episodes share them
    want: npt.NDArray[np.int8]  # (n, C, D, S) the goals: a value, NONE, or SAME
    refer: npt.NDArray[np.int8]  # (n, C, D, S) of SAME: the domain, in the same city, whose booking is meant; NONE
    flexible: npt.NDArray[np.uint8]  # (n, C, D, S) 1: the counterpart gives this wish up if asked
    opening: npt.NDArray[Any]  # HEARD (n, C, D, S) what it will say first
    noise: npt.NDArray[np.uint64]  # (n, C, D, 1) its own random stream
    party: npt.NDArray[Any]  # PARTY (n, C, D)
    place: npt.NDArray[Any]  # PLACE (n,)
    frames: npt.NDArray[Any]  # FRAME (n, L)
    acts: npt.NDArray[Any]  # ACT (n, L, R) a ring: act number j is in place j & (R - 1)
    given: npt.NDArray[Any]  # ACT (n, L, G) the bookings that a domain's frame was given
    beliefs: npt.NDArray[Any]  # BELIEF (n, L, S)
    shares: npt.NDArray[Any]  # SHARE (n, L, max(C, D))
    results: npt.NDArray[np.int8]  # (n, L, D + C) what the latest child for a domain, a city came back with: booked (1), not (-1); 0: none


SHARED = frozenset(
    {"rules", "slots_of", "values_of", "entities_of", "refers", "order", "given_active", "given_want", "given_refer", "given_flexible"}
)
SETTLED = frozenset({"entity", "want", "refer", "flexible", "opening"})
PER_FRAME = frozenset({"frames", "acts", "given", "beliefs", "shares", "results"})


@inline
def whole(number: int) -> int:
    """`number` as int64: kernels compile anew for every type of an argument, and a constant is a type of its own."""
    return np.int64(number)  # type: ignore[return-value]


@inline
def database(domain: DialogueState, i: int) -> int:
    """The index of instance `i`'s databases: its own, or the ones that all share."""
    return i if i < domain.entity.shape[0] else 0


@inline
def wanted(domain: DialogueState, i: int, city: int, d: int, slot: int) -> int:
    """What the counterpart wants of a slot now: a value, SAME, or NONE."""
    if domain.party[i, city, d]["dropped"] >> slot & 1:
        return whole(NONE)
    return whole(domain.want[i, city, d, slot])
