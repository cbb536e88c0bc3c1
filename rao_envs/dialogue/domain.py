"""The dialogue family's configuration: the trip, its counterparts, budgets, spaces and where the state lives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.arguments import real_number, whole_number
from rao_envs.core.domain import Domain
from rao_envs.dialogue import kernels
from rao_envs.dialogue.acts import ACT, KINDS, NONE
from rao_envs.dialogue.goals import GoalArrays, load_goals
from rao_envs.dialogue.ontology import Ontology, load_ontology, trip_ontology
from rao_envs.dialogue.state import (
    BELIEF,
    FRAME,
    HEARD,
    PARTY,
    PER_FRAME,
    PLACE,
    RULES,
    SETTLED,
    SHARE,
    SHARED,
    STATUSES,
    DialogueState,
)

MOST_TURNS = 1000
MOST_WINDOW = 64
MOST_DRAWN = 1000
REFERENCES = ("any", "first", "last")
"""In the order of `generator.ANY_ONE`, FIRST, LAST."""


class DialogueDomain(Domain):
    """Trips to be planned with a counterpart for every booking, through a window of a few dialogue acts.

    Args:
        turns: user turns of the whole tree (T), 1 to 1000: every question, confirmation, offer and negotiation takes one.
        domains: bookings that a trip needs, in all cities; a pair (low, high) draws a number for each episode, each equally likely;
            None: 3, or as many as the cities of a trip allow.
        cities: cities of a trip; a number or a pair. Bookings are spread evenly over them, at least one each.
        slots: slots of a domain, None for the ontology's; with drawn databases alone.
        values: values of a slot, None for the ontology's; with drawn databases alone.
        entities: entities of a database, 1 to 1000, None for the ontology's; with drawn databases alone.
        constraints: wishes of a counterpart; a number or a pair; None: 3, or as many as a domain has slots.
        error_rate: how often something that is told is misheard, in [0, 1].
        volunteering: how often a wish is told in the opening, in [0, 1].
        dependency: how often a counterpart that could refer to another booking of its city does ("the same day as the hotel"), in [0, 1].
        reference: to which of the bookings that it could: "first" (of the trip's in that city), "last" (the one before: a chain), or "any".
        unsatisfiable: how often no entity meets all wishes, so that one must be negotiated away, in [0, 1].
        window: dialogue acts that a frame sees (W), 1 to 64.
        ontology: your own domains and databases, instead of those drawn for each episode on the frame of the trip example: a path, a
            dictionary or an `Ontology` (`rao_envs.dialogue.ontology.load_ontology`).
        goals: your own trips, instead of random ones: a path or a list (`rao_envs.dialogue.goals.load_goals`); `ontology` goes with it.

    Raises:
        ValueError: a value out of range.
        rao_envs.dialogue.ontology.OntologyError: a file that cannot be used, with the place at fault.
    """

    has_dense = True
    verdicts = False

    def __init__(
        self,
        turns: int = 10,
        *,
        domains: int | Sequence[int] | None = None,
        cities: int | Sequence[int] = 1,
        slots: int | None = None,
        values: int | None = None,
        entities: int | None = None,
        constraints: int | Sequence[int] | None = None,
        error_rate: float = 0.1,
        volunteering: float = 0.9,
        dependency: float = 0.6,
        reference: str = "any",
        unsatisfiable: float = 0.25,
        window: int = 10,
        ontology: Any = None,
        goals: Any = None,
    ) -> None:
        self.turns = whole_number("turns", turns, 1, MOST_TURNS)
        self.window = whole_number("window", window, 1, MOST_WINDOW)
        self.error_rate = real_number("error_rate", error_rate, 0, 1)
        self.volunteering = real_number("volunteering", volunteering, 0, 1)
        self.dependency = real_number("dependency", dependency, 0, 1)
        self.unsatisfiable = real_number("unsatisfiable", unsatisfiable, 0, 1)
        if reference not in REFERENCES:
            raise ValueError(f"reference must be one of {', '.join(map(repr, REFERENCES))}, got {reference!r}")
        self.reference = REFERENCES.index(reference)
        self._load(ontology, slots, values, entities)
        self.goals = None if goals is None else self._load_goals(goals, ontology)
        self.options = frozenset({"trip"} if self.goals is not None else ())
        n_cities, n_domains = self.arrays.entities_of.shape
        # A small ontology works without further arguments: only what was asked for and cannot be had is an error.
        self.constraints = number_range("constraints", min(3, self.slots) if constraints is None else constraints, 1, self.slots)
        if self.goals is None:
            self.cities = number_range("cities", cities, 1, n_cities)
            if domains is None:
                domains = max(self.cities[1], min(3, self.cities[0] * n_domains))
            self.domains = number_range("domains", domains, 1, n_cities * n_domains)
            if self.domains[1] < self.cities[1] or self.domains[0] > self.cities[0] * n_domains:
                raise ValueError(
                    f"every city of a trip needs a booking and has at most {n_domains}: domains={domains!r} do not fit cities={cities!r}"
                )
        else:
            active = self.goals.active.astype(bool)
            self.cities, self.domains = (
                (int(count.min()), int(count.max())) for count in (active.any(axis=2).sum(axis=1), active.sum(axis=(1, 2)))
            )
        self.name = f"Dialogue-{self.turns}turn"
        self._name_actions()
        self.max_depth = 2 if self.cities[1] > 1 else 1
        self.budget = int(kernels.steps_for.py_func(self.turns, self.domains[1]))  # type: ignore[attr-defined]
        self.fields = self._lay_out()
        size = max(part.stop for part in self.fields.values())
        self.task_space = spaces.Box(0, 1, (size,), np.int8)
        self.results_space = spaces.Box(-1, 1, (n_domains + n_cities,), np.int8)
        self.shared = SHARED if self.drawn else SHARED | {"entity"}
        self.settled = SETTLED if self.drawn else SETTLED - {"entity"}
        self.per_frame = PER_FRAME

    def _load(self, ontology: Any, slots: int | None, values: int | None, entities: int | None) -> None:
        self.drawn = ontology is None
        self.ontology: Ontology = trip_ontology() if ontology is None else load_ontology(ontology)
        own = self.ontology.sizes
        if not self.drawn and not (slots is None and values is None and entities is None):
            raise ValueError("slots, values and entities belong to drawn databases; an ontology has its own")
        self.slots = own.slots if slots is None else whole_number("slots", slots, 1, own.slots)
        self.values = own.values if values is None else whole_number("values", values, 2, own.values)
        self.entities = own.entities if entities is None else whole_number("entities", entities, 1, MOST_DRAWN)
        self.arrays = self.ontology.arrays(self.slots, self.values, self.entities)

    def _load_goals(self, goals: Any, ontology: Any) -> GoalArrays:
        if ontology is None:
            raise ValueError("goals are about an ontology's own databases: pass it as ontology= too")
        return load_goals(goals, self.ontology).arrays(self.slots)

    def _name_actions(self) -> None:
        """Name the actions after slots, domains and cities."""
        domains = identifiers([domain.name for domain in self.ontology.domains], "domain")
        cities = identifiers(list(self.ontology.cities), "city")
        targets = [*domains, *(f"city_{name}" for name in cities)]
        if len(set(targets)) < len(targets) or "all" in targets:  # `spawn_all` is an action of its own
            targets = [*(f"domain_{name}" for name in domains), *(f"city_{name}" for name in cities)]
        slots = range(self.slots)
        self.primitives = (
            *(f"request_{k}" for k in slots),
            *(f"confirm_{k}" for k in slots),
            "offer",
            *(f"relax_{k}" for k in slots),
            "book",
            "return",
            *(f"focus_{target}" for target in targets),
        )
        self.spawns = (*(f"spawn_{target}" for target in targets), "spawn_all")

    def _lay_out(self) -> dict[str, slice]:
        """Where the parts of a task observation lie."""
        n_cities, n_domains = self.arrays.entities_of.shape
        act = KINDS - 1 + 4 + n_domains + self.slots + self.values + 1
        widths = {f"act_{age}": act for age in range(self.window)}
        widths |= {f"slot_{k}": STATUSES for k in range(self.slots)}
        widths |= {"matches": kernels.MOST_MATCHES + 1, "candidate": 1, "accepted": 1}
        widths |= {"turns": kernels.MOST_TURNS + 1, "share": kernels.MOST_SHARE + 1}
        widths |= dict.fromkeys(("focus", "open", "ready", "booked", "refers", "linked"), n_domains)
        widths |= dict.fromkeys(("focus_city", "open_cities"), n_cities)
        fields, at = {}, 0
        for name, width in widths.items():
            fields[name] = slice(at, at + width)
            at += width
        return fields

    def allocate(self, n: int, *, dense: bool) -> DialogueState:
        """Room for `n` trips."""
        rules = np.zeros(1, RULES)
        for name in ("error_rate", "volunteering", "dependency", "unsatisfiable", "reference", "turns", "window", "values", "drawn"):
            rules[name] = getattr(self, name)
        S = self.slots
        starts = (S, 2 * S, 2 * S + 1, 3 * S + 1, 3 * S + 2, 3 * S + 3, len(self.primitives))
        for name, index in zip(("confirm", "offer", "relax", "book", "leave", "focus", "spawn"), starts, strict=True):
            rules[name] = index
        for name, (low, high) in (("cities", self.cities), ("domains", self.domains), ("constraints", self.constraints)):
            rules[f"fewest_{name}"], rules[f"most_{name}"] = low, high
        arrays = self.arrays
        C, D = arrays.entities_of.shape
        levels = self.max_depth + 1
        if self.goals is None:
            none = (0, C, D, S)
            goals = GoalArrays(np.zeros(none[:3], np.uint8), np.zeros(none, np.int8), np.zeros(none, np.int8), np.zeros(none, np.uint8))
        else:
            goals = self.goals
        place = np.zeros(n, PLACE)
        place["asked"] = -1
        # Most acts that children of one spawn leave behind: they must not overwrite what their siblings may take along.
        received = max(D * (S + 1), C * self.window if self.max_depth > 1 else 0)
        entity = np.zeros((n, *arrays.entity.shape), np.int8) if self.drawn else arrays.entity[None].copy()
        return DialogueState(
            rules=rules,
            slots_of=arrays.slots_of,
            values_of=arrays.values_of,
            entities_of=np.full((C, D), self.entities, np.int16) if self.drawn else arrays.entities_of,
            refers=arrays.refers,
            order=reference_order(arrays.refers),
            given_active=goals.active,
            given_want=goals.value,
            given_refer=goals.refers,
            given_flexible=goals.flexible,
            entity=entity,
            want=np.full((n, C, D, S), NONE, np.int8),
            refer=np.full((n, C, D, S), NONE, np.int8),
            flexible=np.zeros((n, C, D, S), np.uint8),
            opening=np.zeros((n, C, D, S), HEARD),
            noise=np.zeros((n, C, D, 1), np.uint64),
            party=np.zeros((n, C, D), PARTY),
            place=place,
            frames=np.zeros((n, levels), FRAME),
            acts=np.zeros((n, levels, 1 << (self.window + received - 1).bit_length()), ACT),
            given=np.zeros((n, levels, min(self.slots, self.window - 1)), ACT),
            beliefs=np.zeros((n, levels, S), BELIEF),
            shares=np.zeros((n, levels, max(C, D)), SHARE),
            results=np.zeros((n, levels, D + C), np.int8),
        )

    def prepare(self, state: DialogueState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"trip": k}` picks the k-th given trip; without it, any."""
        choice = options.get("trip")
        state.place["asked"][i] = -1 if choice is None else whole_number("trip", choice, 0, len(state.given_active) - 1)

    def merge(self, state: DialogueState, i: int, child: DialogueState) -> None:
        """The counterparts that a child has talked to, which its siblings never do."""
        new = child.party["count"][0] > state.party["count"][i]
        state.party[i][new] = child.party[0][new]
        state.noise[i][new] = child.noise[0][new]
        booked = state.party["entity"][i] >= 0
        right = state.party["right"][i]
        active = state.party["active"][i]
        state.place["right"][i] = int((active & booked & right).sum())
        state.place["wrong"][i] = int((active & booked & ~right).sum())

    def question(self, state: DialogueState, i: int, depth: int) -> str:
        """What the frame has to book, in a few words."""
        frame = state.frames[i, depth]
        return self.scope_title(state, i, int(frame["city"]), int(frame["domain"]))

    def scope_title(self, state: DialogueState, i: int, city: int, domain: int) -> str:
        """A frame's scope: "the hotel in Graz", "Graz", "Graz and Brno"."""
        names = self.ontology.cities
        if domain >= 0:
            title = self.ontology.domains[domain].title
            return f"{title} in {names[city]}" if len(names) > 1 else title
        here = [names[c] for c in np.flatnonzero(state.party["active"][i].any(axis=1))]
        return names[city] if city >= 0 else " and ".join(filter(None, [", ".join(here[:-1]), here[-1]]))

    def asked(self, state: DialogueState, i: int) -> str:
        """All that the trip needs: "Graz: hotel, restaurant; Brno: hotel"."""
        parts = []
        for city in np.flatnonzero(state.party["active"][i].any(axis=1)):
            needed = [self.ontology.domains[d].name for d in np.flatnonzero(state.party["active"][i, city])]
            parts.append(f"{self.ontology.cities[city]}: {', '.join(needed)}")
        return "; ".join(parts)

    def answer(self, state: DialogueState, i: int, value: float) -> str:
        """How many bookings a frame made."""
        return f"{int(value)} booked"


def identifiers(names: Sequence[str], kind: str) -> list[str]:
    """Names as parts of action names: lower case, words joined by underscores; numbered where that makes two the same."""
    plain = [re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or kind for name in names]
    found: list[str] = []
    for k, name in enumerate(plain):
        one = name
        # What is numbered may be what another is called: "x", "x!" and "x 1".
        while one in found or plain.count(one) > (one == name):
            one += f"_{k}"
        found.append(one)
    return found


def number_range(name: str, value: Any, low: int, high: int) -> tuple[int, int]:
    """`value` as (lowest, highest); raises ValueError saying what is allowed."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} must be an integer or a pair (low, high), got {value!r}")
    first, last = (whole_number(name, end, low, high) for end in pair)
    if first > last:
        raise ValueError(f"{name} must be a pair (low, high) with low <= high, got {value!r}")
    return first, last


def reference_order(refers: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The domains, each after all that it may refer to, int8 (D,); `refers` as in `OntologyArrays`, without circles."""
    needs = {d: set(np.flatnonzero((refers[d] >= 0).any(axis=0)).tolist()) for d in range(len(refers))}
    order: list[int] = []
    while needs:
        free = [d for d, others in needs.items() if others <= set(order)]
        assert free, "an ontology is checked for circles when it is read"
        order += free
        needs = {d: others for d, others in needs.items() if d not in free}
    return np.array(order, np.int8)
