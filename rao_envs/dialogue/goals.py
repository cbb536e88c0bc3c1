"""What travellers want, read from a file: trips with the constraints of each domain, checked against an ontology.

The form of a file is in docs/environments/ontologies.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.dialogue.ontology import UNKNOWN, DomainSpec, Ontology, OntologyError, PathLike

MAX_TRIPS = 10_000
NONE = -1


class GoalArrays(NamedTuple):
    """T trips for kernels; C, D and S as in `OntologyArrays`.

    Attributes:
        active: uint8 (T, C, D), 1 where something is to be booked.
        value: int8 (T, C, D, S), the value that a slot must have; -1: none, or that of another booking.
        refers: int8 (T, C, D, S), the domain of the same city whose booking gives the value, at the slot that
            `OntologyArrays.refers[d, s]` has for it; -1: none. It is active as well.
        flexible: uint8 (T, C, D, S), 1 where the traveller lets go of the constraint when asked to.
    """

    active: npt.NDArray[np.uint8]  # (T, C, D)
    value: npt.NDArray[np.int8]  # (T, C, D, S)
    refers: npt.NDArray[np.int8]  # (T, C, D, S)
    flexible: npt.NDArray[np.uint8]  # (T, C, D, S)


@dataclass(frozen=True)
class DomainGoal:
    """What one counterpart wants. At least one slot is constrained, by a value or by another booking, never by both.

    Attributes:
        city, domain: indices.
        values: for each slot of the domain the value that it must have, or -1.
        refers: for each slot the domain whose booking gives the value, or -1.
        flexible: for each slot whether the constraint is given up when nothing fits; False where there is none.
    """

    city: int
    domain: int
    values: tuple[int, ...]
    refers: tuple[int, ...]
    flexible: tuple[bool, ...]


@dataclass(frozen=True)
class TripGoal:
    """A trip: what is to be booked, in the ontology's order of cities and domains."""

    name: str
    goals: tuple[DomainGoal, ...]


@dataclass(frozen=True)
class Goals:
    """Trips that were read and checked.

    Attributes:
        name: of the file, or "goals".
        trips: at least one.
        ontology: what their indices stand for.
    """

    name: str
    trips: tuple[TripGoal, ...]
    ontology: Ontology

    def arrays(self, slots: int | None = None) -> GoalArrays:
        """The trips for kernels, with room for so many slots; by default for the ontology's.

        Raises:
            OntologyError: a constraint on a slot beyond them.
        """
        sizes = self.ontology.sizes
        T, C, D, S = len(self.trips), sizes.cities, sizes.domains, sizes.slots if slots is None else slots
        active, flexible = np.zeros((T, C, D), np.uint8), np.zeros((T, C, D, S), np.uint8)
        value, refers = np.full((T, C, D, S), NONE, np.int8), np.full((T, C, D, S), NONE, np.int8)
        for t, trip in enumerate(self.trips):
            for goal in trip.goals:
                at = (t, goal.city, goal.domain)
                active[at] = 1
                for s in range(len(goal.values)):
                    if s < S:
                        value[at][s], refers[at][s], flexible[at][s] = goal.values[s], goal.refers[s], goal.flexible[s]
                    elif (goal.values[s], goal.refers[s]) != (NONE, NONE):
                        slot = self.ontology.domains[goal.domain].slots[s].name
                        raise OntologyError(f"{self.name}: {trip.name} constrains the slot {slot!r}, but only {S} slots are in use")
        return GoalArrays(active, value, refers, flexible)


def load_goals(source: PathLike | Mapping[str, Any] | Sequence[Any] | Goals, ontology: Ontology) -> Goals:
    """Read trips and check them.

    Args:
        source: the path of a JSON file, its content, or the list of its trips alone; or `Goals`, which must be of this ontology.
        ontology: what they are about.

    Raises:
        OntologyError: what cannot be read, is not in the ontology, or cannot be had: no entity satisfies a counterpart's constraints,
            not even without one of those that it is flexible about.
    """
    if isinstance(source, Goals):
        if source.ontology != ontology:
            raise OntologyError(f"goals of the ontology {source.ontology.name!r} were read, but the ontology in use is {ontology.name!r}")
        return source
    from rao_envs.dialogue.schema import GoalsModel, validated
    from rao_envs.dialogue.strict_json import named_content

    name, content = named_content(source, "goals")
    if isinstance(content, list):
        content = {"version": 1, "trips": content}
    if not isinstance(content, dict):
        raise OntologyError(
            f"{name}: goals are an object with the keys version and trips, or a list of trips; got a {type(content).__name__}"
        )
    model = validated(GoalsModel, content, name)
    trips = tuple(_Reader(name, ontology, t).trip(one) for t, one in enumerate(model.trips))
    return Goals(name, trips, ontology)


class _Reader:
    """One trip of a validated file on its way to indices."""

    def __init__(self, name: str, ontology: Ontology, t: int) -> None:
        self.name, self.ontology, self.t = name, ontology, t

    def trip(self, model: Any) -> TripGoal:
        found: dict[tuple[int, int], tuple[DomainGoal, str]] = {}
        for i, stop in enumerate(model.stops):
            path = f"trips[{self.t}].stops[{i}]"
            city = self.city(stop.city, path)
            for j, wanted in enumerate(stop.domains):
                where = f"{path}.domains[{j}]"
                goal = self.goal(city, wanted, where)
                if (city, goal.domain) in found:
                    raise self.error(where, f"{wanted.domain!r} is wanted twice in {self.ontology.cities[city]}; once is allowed")
                found[city, goal.domain] = goal, where
        for goal, where in found.values():
            self.check_references(goal, found, where)
        for city in range(len(self.ontology.cities)):
            self.check_satisfiable({d: one for (c, d), one in found.items() if c == city})
        return TripGoal(model.name or f"trip {self.t + 1}", tuple(found[key][0] for key in sorted(found)))

    def city(self, name: str | None, path: str) -> int:
        from rao_envs.dialogue.schema import hint

        cities = self.ontology.cities
        if name is None:
            if len(cities) > 1:
                raise self.error(path, f"the key 'city' is missing; one of {', '.join(map(repr, cities))}")
            return 0
        if name not in cities:
            raise self.error(f"{path}.city", f"unknown city {name!r}; {hint(name, cities)}")
        return cities.index(name)

    def goal(self, city: int, model: Any, path: str) -> DomainGoal:
        from rao_envs.dialogue.schema import hint
        from rao_envs.dialogue.strict_json import place, shown

        domains = [domain.name for domain in self.ontology.domains]
        if model.domain not in domains:
            raise self.error(f"{path}.domain", f"unknown domain {shown(model.domain)}; {hint(model.domain, domains)}")
        d = domains.index(model.domain)
        slots = self.ontology.domains[d].slots
        names = [slot.name for slot in slots]
        values, refers, flexible = [NONE] * len(slots), [NONE] * len(slots), [False] * len(slots)
        for key, wanted in model.constraints.items():
            where = place(f"{path}.constraints", key)
            if key not in names:
                raise self.error(where, f"{shown(model.domain)} has no slot {shown(key)}; {hint(key, names)}")
            s = names.index(key)
            if isinstance(wanted, str):
                if wanted not in slots[s].values:
                    raise self.error(where, f"{shown(wanted)} is none of the slot's values; {hint(wanted, slots[s].values)}")
                values[s] = slots[s].values.index(wanted)
            elif isinstance(wanted, dict) and set(wanted) == {"same_as"} and isinstance(wanted["same_as"], str):
                allowed = [domains[other] for other, _ in slots[s].refers]
                if wanted["same_as"] not in allowed:
                    wrong = f"the slot {shown(key)} cannot refer to {shown(wanted['same_as'])}"
                    raise self.error(where, f"{wrong}; {hint(wanted['same_as'], allowed)}" if allowed else f"{wrong}, nor to anything else")
                refers[s] = domains.index(wanted["same_as"])
            else:
                raise self.error(where, f'a constraint is a value, or {{"same_as": "a domain"}}, got {shown(wanted)}')
        for key in model.flexible:
            if key not in model.constraints:
                raise self.error(f"{path}.flexible", f"{shown(key)} is not constrained; {hint(key, list(model.constraints))}")
            flexible[names.index(key)] = True
        return DomainGoal(city, d, tuple(values), tuple(refers), tuple(flexible))

    def check_references(self, goal: DomainGoal, found: Mapping[tuple[int, int], Any], path: str) -> None:
        for s, other in enumerate(goal.refers):
            if other != NONE and (goal.city, other) not in found:
                slot, wanted = self.ontology.domains[goal.domain].slots[s].name, self.ontology.domains[other].name
                raise self.error(
                    f"{path}.constraints",
                    f"{slot!r} refers to {wanted!r}, which this trip does not book in {self.ontology.cities[goal.city]}",
                )

    def check_satisfiable(self, goals: Mapping[int, tuple[DomainGoal, str]]) -> None:
        """Complain about a counterpart of a city whom no entity can satisfy, whatever was booked before."""
        possible: dict[int, list[tuple[int, ...]]] = {}
        for d in _in_order(self.ontology.domains, list(goals)):
            goal, path = goals[d]
            spec = self.ontology.domains[d]
            allowed = [self.allowed(goal, s, possible) for s in range(len(spec.slots))]
            rows = [entity.values for entity in spec.entities_in(goal.city)]
            matching = [row for row in rows if _mismatches(row, allowed) == []]
            if not matching:  # one constraint may go
                near = [row for row in rows if len(wrong := _mismatches(row, allowed)) == 1 and goal.flexible[wrong[0]]]
                if not near:
                    raise self.error(
                        path,
                        f"no entity of {spec.name!r} satisfies these constraints, not even without one that is flexible; "
                        "list under 'flexible' what may be given up",
                    )
                matching = near
            possible[d] = matching

    def allowed(self, goal: DomainGoal, s: int, possible: Mapping[int, list[tuple[int, ...]]]) -> set[int] | None:
        """The values that would do for a slot, or None: any."""
        if goal.refers[s] == NONE:
            return None if goal.values[s] == NONE else {goal.values[s]}
        other = goal.refers[s]
        target = dict(self.ontology.domains[goal.domain].slots[s].refers)[other]
        return {row[target] for row in possible[other]} - {UNKNOWN}

    def error(self, path: str, problem: str) -> OntologyError:
        from rao_envs.dialogue.strict_json import located

        return located(self.name, path, problem)


def _mismatches(row: Sequence[int], allowed: Sequence[set[int] | None]) -> list[int]:
    """The slots in which an entity has none of the allowed values."""
    return [s for s, (value, values) in enumerate(zip(row, allowed, strict=True)) if values is not None and value not in values]


def _in_order(domains: Sequence[DomainSpec], wanted: Sequence[int]) -> list[int]:
    """`wanted` domains, each after those that its slots may refer to."""
    done: list[int] = []

    def visit(d: int) -> None:
        if d in done:
            return
        for slot in domains[d].slots:
            for other, _ in slot.refers:
                if other in wanted:
                    visit(other)
        done.append(d)

    for d in wanted:
        visit(d)
    return done
