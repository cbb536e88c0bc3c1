"""What a dialogue can be about: cities, domains, slots, values and databases of entities, read from a JSON file or a dictionary.

An ontology is data alone: it names things and gives their sentences. `Ontology.arrays` is what the kernels read. The JSON schema is in
`rao_envs.dialogue.schema` and, for people, in docs/environments/ontologies.md; schema-guided `schema.json` files are read by
`rao_envs.dialogue.importer`. Sentences follow the templates below unless the file has others.

Nothing in a file is ever executed: templates know a handful of placeholders (`{value}`) and nothing else of Python's format language.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

MAX_CITIES = 8
MAX_DOMAINS = 16
MAX_SLOTS = 12
MAX_VALUES = 32
MAX_ENTITIES = 1000
"""Entities of one domain in one city: an entity's index does not fit eight bits."""

UNKNOWN = -1
"""As a value: not known of this entity. It satisfies no constraint."""

QUESTION = "Which {slot} would you like?"
INFORM = "As for the {slot}: {value}, please."
CONFIRM = "Is {value} right for the {slot}?"
REFER = "As for the {slot}: the same as {other}, please."
RELAX = "There is nothing like that. Could the {slot} be another than {value}?"
OFFER = "How about {entity}?"
BOOK = "I have booked {entity}."
CHOOSE = "I have put {entity} on the plan."
COUNTERPART = "traveller"

PathLike: TypeAlias = "str | os.PathLike[str]"


class OntologyError(ValueError):
    """An ontology or a goal that cannot be used. The message gives the file, the place in it, what is wrong, and what is allowed."""


class OntologyWarning(UserWarning):
    """What an importer had to decide: slots without values, entities without a database, spellings that differ."""


class OntologyArrays(NamedTuple):
    """An ontology for kernels: C cities, D domains, S slots, V values, E entities, all padded with -1.

    Attributes:
        n_domains: D, which is exact: domains are never padded.
        slots_of: int8 (D,), how many slots each domain has, 1..S.
        values_of: int8 (D, S), how many values each slot has, 2..V; 0 where the domain has no such slot.
        entities_of: int16 (C, D), how many entities each database has, 1..E.
        entity: int8 (C, D, E, S), the value of each slot, or -1: not known, or no such entity or slot. A -1 satisfies no constraint.
        refers: int8 (D, S, D): `refers[d, s, o]` is the slot of domain o whose booked value slot s of domain d may ask for ("the same
            day as the hotel"), with the same number of values in the same order; -1: none. Domains never refer in circles. In the
            shipped ontology a domain may refer to any that stands before it, so that every choice of domains can be chained.
    """

    n_domains: int
    slots_of: npt.NDArray[np.int8]  # (D,)
    values_of: npt.NDArray[np.int8]  # (D, S)
    entities_of: npt.NDArray[np.int16]  # (C, D)
    entity: npt.NDArray[np.int8]  # (C, D, E, S)
    refers: npt.NDArray[np.int8]  # (D, S, D)


class Sizes(NamedTuple):
    """How large an ontology is: the largest number of each kind."""

    cities: int
    domains: int
    slots: int  # of one domain
    values: int  # of one slot
    entities: int  # of one domain in one city


@dataclass(frozen=True)
class SlotSpec:
    """What can be asked about in a domain.

    Attributes:
        name: as it is called in sentences and files.
        values: what it may be, at least two.
        question, inform, confirm, refer, relax: sentence templates; `{slot}`, `{value}`, `{other}` (the domain referred to), `{domain}` and
            `{city}` are filled in.
        refers: (domain, slot) pairs whose booked value this slot may ask for.
    """

    name: str
    values: tuple[str, ...]
    question: str = QUESTION
    inform: str = INFORM
    confirm: str = CONFIRM
    refer: str = REFER
    relax: str = RELAX
    refers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class EntitySpec:
    """An entry of a database.

    Attributes:
        name: unique within its domain and city.
        values: for each slot of its domain the index of its value, or `UNKNOWN`.
        city: the index of its city, or -1: it is in every city.
    """

    name: str
    values: tuple[int, ...]
    city: int = -1


@dataclass(frozen=True)
class DomainSpec:
    """One kind of thing to find and to book, with its database.

    Attributes:
        name: as it is called in files and actions, one word or a few: "hotel".
        title: as it is called in sentences: "the hotel".
        counterpart: whom one talks to about it: "guest".
        slots: what can be asked about.
        entities: the database.
        offer, book: sentence templates; `{entity}`, `{domain}` and `{city}` are filled in.
        bookable: whether one books here; otherwise one decides for something, which only words tell apart.
    """

    name: str
    title: str
    counterpart: str
    slots: tuple[SlotSpec, ...]
    entities: tuple[EntitySpec, ...]
    offer: str = OFFER
    book: str = BOOK
    bookable: bool = True

    def entities_in(self, city: int) -> tuple[EntitySpec, ...]:
        """The database in one city, in the order of its indices in `OntologyArrays.entity`."""
        return tuple(entity for entity in self.entities if entity.city in (-1, city))


@dataclass(frozen=True)
class Ontology:
    """Cities, domains and their databases. Made by `load_ontology`, which checks them, or by `trip_ontology`.

    Attributes:
        name: what it is called in titles.
        cities: their names, at least one.
        domains: at least one.
        notes: what an importer had to decide, one sentence each.
    """

    name: str
    cities: tuple[str, ...]
    domains: tuple[DomainSpec, ...]
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def sizes(self) -> Sizes:
        """The sizes that observations follow from."""
        slots = [slot for domain in self.domains for slot in domain.slots]
        return Sizes(
            len(self.cities),
            len(self.domains),
            max(len(domain.slots) for domain in self.domains),
            max(len(slot.values) for slot in slots),
            max(len(domain.entities_in(city)) for domain in self.domains for city in range(len(self.cities))),
        )

    def arrays(self, slots: int | None = None, values: int | None = None, entities: int | None = None) -> OntologyArrays:
        """The ontology for kernels, with room for so many slots, values and entities; by default for its own.

        Fewer than it has take the first ones: of a slot whose values are cut, entities with another have it unknown, and a reference to
        a slot that is cut is none. More are padding, which nothing refers to.
        """
        own = self.sizes
        S, V, E = (
            own.slots if slots is None else slots,
            own.values if values is None else values,
            own.entities if entities is None else entities,
        )
        C, D = len(self.cities), len(self.domains)
        values_of, refers = np.zeros((D, S), np.int8), np.full((D, S, D), -1, np.int8)
        entities_of, entity = np.zeros((C, D), np.int16), np.full((C, D, E, S), UNKNOWN, np.int8)
        for d, domain in enumerate(self.domains):
            for s, slot in enumerate(domain.slots[:S]):
                values_of[d, s] = min(len(slot.values), V)
                for other, target in slot.refers:
                    refers[d, s, other] = target if target < S else -1
            for c in range(C):
                found = domain.entities_in(c)[:E]
                entities_of[c, d] = len(found)
                for e, one in enumerate(found):
                    row = np.array(one.values[:S], np.int8)
                    entity[c, d, e, : len(row)] = np.where(row < V, row, UNKNOWN)
        slots_of = np.array([min(len(domain.slots), S) for domain in self.domains], np.int8)
        return OntologyArrays(D, slots_of, values_of, entities_of, entity, refers)

    def to_dict(self) -> dict[str, Any]:
        """The ontology in the form of its JSON file, which `load_ontology` reads: to save what was imported, and to edit it."""
        return {
            "version": 1,
            "name": self.name,
            "cities": list(self.cities),
            "domains": [self._domain_to_dict(domain) for domain in self.domains],
        }

    def _domain_to_dict(self, domain: DomainSpec) -> dict[str, Any]:
        slots = []
        for slot in domain.slots:
            entry: dict[str, Any] = {"name": slot.name, "values": list(slot.values)}
            entry |= {key: getattr(slot, key) for key in ("question", "inform", "confirm", "refer", "relax")}
            targets = [(self.domains[other], self.domains[other].slots[target]) for other, target in slot.refers]
            entry["refers"] = [{"domain": other.name, "slot": target.name} for other, target in targets]
            slots.append(entry)
        entities = []
        for entity in domain.entities:
            values = {
                slot.name: None if value == UNKNOWN else slot.values[value] for slot, value in zip(domain.slots, entity.values, strict=True)
            }
            place = {} if entity.city < 0 else {"city": self.cities[entity.city]}
            entities.append({"name": entity.name, **place, "values": values})
        keys = ("name", "title", "counterpart", "bookable", "offer", "book")
        return {**{key: getattr(domain, key) for key in keys}, "slots": slots, "entities": entities}


@functools.cache
def trip_ontology() -> Ontology:
    """The example that ships: a trip of up to four cities, eight domains of four slots with four values, eight entities each."""
    return load_ontology(Path(__file__).parent / "data" / "trip.json")


def load_ontology(source: PathLike | Mapping[str, Any] | Sequence[Any] | Ontology, *, databases: Any = None) -> Ontology:
    """Read and check an ontology.

    Args:
        source: the path of a JSON file: one of this project's, or a schema-guided `schema.json`, recognised by its being a list of
            services (`rao_envs.dialogue.importer.load_schema_guided`, with its defaults; its databases are looked for beside it); or
            the content of such a file; or an `Ontology`, which is returned as it is.
        databases: of a schema-guided file, where its databases are, if not beside it.

    Raises:
        OntologyError: what cannot be read or used; the message gives the file, the place in it and what is allowed.
    """
    if isinstance(source, Ontology):
        return source
    from rao_envs.dialogue.schema import build, is_schema_guided  # pydantic takes a fifth of a second to import: only where needed
    from rao_envs.dialogue.strict_json import named_content

    name, content = named_content(source, "ontology")
    if is_schema_guided(content):
        from rao_envs.dialogue.importer import load_schema_guided

        return load_schema_guided(source, databases)  # type: ignore[arg-type]  # a mapping is not schema-guided
    if databases is not None:
        raise OntologyError(f"{name}: databases= is for schema-guided files; this one has its entities in it")
    return build(content, name)
