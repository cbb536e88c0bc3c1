"""The JSON schema of an ontology, version 1, as pydantic models, and what they cannot say: names that must be known elsewhere.

This module imports pydantic, which takes a while: import it only where a file is read.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rao_envs.dialogue import ontology as defaults
from rao_envs.dialogue.goals import MAX_TRIPS
from rao_envs.dialogue.ontology import (
    MAX_CITIES,
    MAX_DOMAINS,
    MAX_ENTITIES,
    MAX_SLOTS,
    MAX_VALUES,
    UNKNOWN,
    DomainSpec,
    EntitySpec,
    Ontology,
    OntologyError,
    SlotSpec,
)
from rao_envs.dialogue.strict_json import located, place, shown

MAX_NAME = 60  # characters
MAX_SENTENCE = 200
MAX_ERRORS = 5  # of one file that are told at once
JOINERS = "\u200c\u200d"  # what some scripts need between letters; every other invisible character only misleads
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")

SLOT_WORDS = ("slot", "domain", "city")
PLACEHOLDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "question": ("", SLOT_WORDS),
    "inform": ("value", ("value", *SLOT_WORDS)),
    "confirm": ("value", ("value", *SLOT_WORDS)),
    "refer": ("other", ("other", *SLOT_WORDS)),
    "relax": ("", ("value", *SLOT_WORDS)),
    "offer": ("entity", ("entity", "domain", "city")),
    "book": ("entity", ("entity", "domain", "city")),
}
"""For each template the placeholder that it must have, and those that it may have."""
PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


def checked_text(text: str, most: int = MAX_NAME) -> str:
    """A name or sentence in Unicode's composed form, without blanks around it.

    Raises ValueError for what a reader could not see or would not expect: nothing at all, more than `most` characters, control
    characters (line ends too), invisible and direction-changing ones, unassigned ones and private ones.
    """
    text = unicodedata.normalize("NFC", text).strip(" ")
    if not text:
        raise ValueError("must not be empty")
    if len(text) > most:
        raise ValueError(f"has {len(text)} characters; at most {most} are allowed")
    for character in text:
        if unicodedata.category(character) in UNSEEN and character not in JOINERS:
            raise ValueError(f"holds U+{ord(character):04X}, a control or invisible character")
    if not any(character.isprintable() and not character.isspace() and character not in JOINERS for character in text):
        raise ValueError("holds nothing that can be seen")
    return text


def same(text: str) -> str:
    """What two names must differ in: letter case, width, joiners and blanks tell nobody anything."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(character for character in folded if character not in JOINERS).split())


def checked_sentence(text: str, key: str) -> str:
    """A template with the placeholders that `PLACEHOLDERS` has for `key`; raises ValueError otherwise."""
    text = checked_text(text, MAX_SENTENCE)
    needed, allowed = PLACEHOLDERS[key]
    listed = ", ".join(f"{{{name}}}" for name in allowed)
    for name in PLACEHOLDER.findall(text):
        if name not in allowed:
            raise ValueError(f"unknown placeholder {{{name}}}; allowed: {listed}")
    if set("{}") & set(PLACEHOLDER.sub("", text)):
        raise ValueError(f"braces hold a placeholder and nothing else; allowed: {listed}")
    if needed and f"{{{needed}}}" not in text:
        raise ValueError(f"lacks its placeholder {{{needed}}}")
    return text


def _sentence(key: str) -> Any:
    return AfterValidator(lambda text: checked_sentence(text, key))


def _known_version(version: int) -> int:
    if version != 1:
        raise ValueError("this release reads version 1")
    return version


Name = Annotated[str, AfterValidator(checked_text)]
Version = Annotated[int, AfterValidator(_known_version)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ReferenceModel(_Model):
    """The slot of another domain whose booked value a slot may ask for."""

    domain: Name
    slot: Name | None = Field(None, description="by default the slot of the same name")


class SlotModel(_Model):
    """What can be asked about in a domain."""

    name: Name
    values: list[Name] = Field(min_length=2, max_length=MAX_VALUES)
    question: Annotated[str, _sentence("question")] = defaults.QUESTION
    inform: Annotated[str, _sentence("inform")] = defaults.INFORM
    confirm: Annotated[str, _sentence("confirm")] = defaults.CONFIRM
    refer: Annotated[str, _sentence("refer")] = defaults.REFER
    relax: Annotated[str, _sentence("relax")] = defaults.RELAX
    refers: list[ReferenceModel] = Field([], max_length=MAX_DOMAINS)


class EntityModel(_Model):
    """An entry of a database."""

    name: Name
    city: Name | None = Field(None, description="by default it is in every city")
    values: dict[str, Name | None] = Field(description="for each slot its value; null where it is not known")


class DomainModel(_Model):
    """One kind of thing to find and to book."""

    name: Name
    title: Name | None = Field(None, description="by default 'the' and the name")
    counterpart: Name = defaults.COUNTERPART
    bookable: bool = True
    offer: Annotated[str, _sentence("offer")] = defaults.OFFER
    book: Annotated[str, _sentence("book")] | None = None
    slots: list[SlotModel] = Field(min_length=1, max_length=MAX_SLOTS)
    entities: list[EntityModel] = Field(max_length=MAX_CITIES * MAX_ENTITIES)


class OntologyModel(_Model):
    """An ontology file."""

    version: Version
    name: Name = "ontology"
    cities: list[Name] = Field(["the city"], min_length=1, max_length=MAX_CITIES)
    domains: list[DomainModel] = Field(min_length=1, max_length=MAX_DOMAINS)


class WantedModel(_Model):
    """What one counterpart wants."""

    domain: Name
    constraints: dict[str, Any] = Field(min_length=1, description='slot: its value, or {"same_as": "another domain"}')
    flexible: list[str] = Field([], max_length=MAX_SLOTS, description="slots whose constraint is given up where nothing fits")


class StopModel(_Model):
    """What is to be booked in one city."""

    city: Name | None = Field(None, description="may be left out where the ontology has one city")
    domains: list[WantedModel] = Field(min_length=1, max_length=MAX_DOMAINS)


class TripModel(_Model):
    """One task."""

    name: Name | None = None
    stops: list[StopModel] = Field(min_length=1, max_length=MAX_CITIES)


class GoalsModel(_Model):
    """A file of goals."""

    version: Version
    trips: list[TripModel] = Field(min_length=1, max_length=MAX_TRIPS)


class _Foreign(BaseModel):
    """A file of others: what is not needed is not looked at."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class ForeignSlotModel(_Foreign):
    """A slot of a schema-guided service."""

    name: str = Field(min_length=1, max_length=MAX_SENTENCE)
    is_categorical: bool = False
    possible_values: list[str] = []


class ForeignIntentModel(_Foreign):
    """An intent of a schema-guided service."""

    name: str = ""
    is_transactional: bool = False


class ServiceModel(_Foreign):
    """A service of a schema-guided schema."""

    service_name: str = Field(min_length=1, max_length=MAX_NAME)
    slots: list[ForeignSlotModel] = Field(min_length=1, max_length=1000)
    intents: list[ForeignIntentModel] = []


def json_schema() -> dict[str, Any]:
    """The schema of an ontology file in the JSON Schema language, for editors that complete and check such files."""
    return OntologyModel.model_json_schema()


def is_schema_guided(content: object) -> bool:
    """Whether this is a schema-guided `schema.json`: a list of services."""
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "service_name" in content[0]


def build(content: Any, name: str) -> Ontology:
    """The ontology of a file's content.

    Args:
        content: what `rao_envs.dialogue.strict_json` read.
        name: what to call the file in messages.

    Raises:
        OntologyError: the message gives the place and what is allowed there, for at most five mistakes.
    """
    if not isinstance(content, dict):
        raise OntologyError(
            f"{name}: an ontology is an object with the keys {', '.join(OntologyModel.model_fields)}, "
            f"or a schema-guided list of services; got a {type(content).__name__}"
        )
    return _Builder(validated(OntologyModel, content, name), name).ontology()


def validated(model: type[Any], content: Any, name: str) -> Any:
    """`content` as a model; raises OntologyError with the places of the first mistakes."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        lines = [_explain(model, one) for one in found[:MAX_ERRORS]]
        more = f"\n    and {len(found) - MAX_ERRORS} more" if len(found) > MAX_ERRORS else ""
        told = f" {lines[0]}" if len(found) == 1 else "".join(f"\n    {line}" for line in lines)
        raise OntologyError(f"{name}:{told}{more}") from None


def hint(name: str, known: Collection[str], most: int = 12) -> str:
    """What is allowed instead of `name`, the nearest first."""
    near = difflib.get_close_matches(same(name), [same(one) for one in known], n=1, cutoff=0.6)
    guess = next((f"did you mean {shown(one)}? " for one in known if near and same(one) == near[0]), "")
    listed = ", ".join(shown(one) for one in list(known)[:most])
    return f"{guess}allowed: {listed}" + ", ..." * (len(known) > most)


class _Builder:
    """A validated file on its way to an ontology."""

    def __init__(self, model: OntologyModel, name: str) -> None:
        self.model, self.name = model, name
        self.domains = [domain.name for domain in model.domains]

    def ontology(self) -> Ontology:
        self.unique(self.model.cities, "cities")
        self.unique(self.domains, "domains")
        for d, domain in enumerate(self.model.domains):
            self.unique([slot.name for slot in domain.slots], f"domains[{d}].slots")
            for s, slot in enumerate(domain.slots):
                self.unique(slot.values, f"domains[{d}].slots[{s}].values")
        built = tuple(self.domain(d, domain) for d, domain in enumerate(self.model.domains))
        self.no_circles(built)
        return Ontology(self.model.name, tuple(self.model.cities), built)

    def domain(self, d: int, model: DomainModel) -> DomainSpec:
        path = f"domains[{d}]"
        slots = tuple(
            SlotSpec(
                slot.name,
                tuple(slot.values),
                slot.question,
                slot.inform,
                slot.confirm,
                slot.refer,
                slot.relax,
                self.refers(d, slot, f"{path}.slots[{s}].refers"),
            )
            for s, slot in enumerate(model.slots)
        )
        entities = tuple(self.entity(model, one, f"{path}.entities[{e}]") for e, one in enumerate(model.entities))
        book = model.book or (defaults.BOOK if model.bookable else defaults.CHOOSE)
        spec = DomainSpec(
            model.name, model.title or f"the {model.name}", model.counterpart, slots, entities, model.offer, book, model.bookable
        )
        for c, city in enumerate(self.model.cities):
            here = spec.entities_in(c)
            where = f" in {city}" if len(self.model.cities) > 1 else ""
            if not here:
                raise self.error(f"{path}.entities", f"the database of {shown(model.name)} is empty{where}; at least one entity is needed")
            if len(here) > MAX_ENTITIES:
                raise self.error(f"{path}.entities", f"{len(here)} entities{where}; at most {MAX_ENTITIES:,} are allowed")
            self.unique([entity.name for entity in here], f"{path}.entities", f"two entities{where} are called")
        return spec

    def entity(self, domain: DomainModel, model: EntityModel, path: str) -> EntitySpec:
        city = -1
        if model.city is not None:
            if model.city not in self.model.cities:
                raise self.error(f"{path}.city", f"unknown city {shown(model.city)}; {hint(model.city, self.model.cities)}")
            city = self.model.cities.index(model.city)
        names = [slot.name for slot in domain.slots]
        for key in model.values:
            if key not in names:
                raise self.error(f"{path}.values", f"{shown(domain.name)} has no slot {shown(key)}; {hint(key, names)}")
        values = []
        for slot in domain.slots:
            if slot.name not in model.values:
                raise self.error(f"{path}.values", f"the slot {shown(slot.name)} is missing; write null where it is not known")
            value = model.values[slot.name]
            if value is not None and value not in slot.values:
                where = place(f"{path}.values", slot.name)
                raise self.error(where, f"{shown(value)} is none of the slot's values; {hint(value, slot.values)}; or null: not known")
            values.append(UNKNOWN if value is None else slot.values.index(value))
        return EntitySpec(model.name, tuple(values), city)

    def refers(self, d: int, slot: SlotModel, path: str) -> tuple[tuple[int, int], ...]:
        found: dict[int, int] = {}
        for r, reference in enumerate(slot.refers):
            where = f"{path}[{r}]"
            if reference.domain not in self.domains:
                raise self.error(f"{where}.domain", f"unknown domain {shown(reference.domain)}; {hint(reference.domain, self.domains)}")
            other = self.domains.index(reference.domain)
            if other == d:
                raise self.error(f"{where}.domain", "a slot refers to another domain, not to its own")
            if other in found:
                raise self.error(where, f"a second reference to {shown(reference.domain)}; one is allowed")
            target = reference.slot or slot.name
            names = [one.name for one in self.model.domains[other].slots]
            if target not in names:
                raise self.error(where, f"{shown(reference.domain)} has no slot {shown(target)}; {hint(target, names)}")
            found[other] = names.index(target)
            if self.model.domains[other].slots[found[other]].values != slot.values:
                raise self.error(
                    where, f"{shown(slot.name)} and the slot {shown(target)} it refers to must have the same values in the same order"
                )
        return tuple(sorted(found.items()))

    def no_circles(self, domains: Sequence[DomainSpec]) -> None:
        """Complain about references in a circle: each would wait for the other's booking for ever."""
        needs = [sorted({other for slot in domain.slots for other, _ in slot.refers}) for domain in domains]
        circle = find_circle(needs)
        if circle:
            names = " -> ".join(shown(domains[d].name) for d in circle)
            raise self.error("domains", f"references go in a circle: {names}; each would wait for the other's booking")

    def unique(self, names: Iterable[str], path: str, problem: str = "the same name twice:") -> None:
        seen: dict[str, str] = {}
        for name in names:
            before = seen.get(same(name))
            if before is not None:
                raise self.error(path, f"{problem} {shown(before)}" + f" and {shown(name)}" * (before != name))
            seen[same(name)] = name

    def error(self, path: str, problem: str) -> OntologyError:
        return located(self.name, path, problem)


def find_circle(needs: Sequence[Sequence[int]]) -> list[int]:
    """A circle in a graph given as each node's successors, its first node repeated at the end; empty if there is none."""
    state = [0] * len(needs)  # 0 not seen, 1 on the path, 2 done

    def visit(node: int, path: list[int]) -> list[int]:
        state[node] = 1
        for other in needs[node]:
            if state[other] == 1:
                return [*path[path.index(other) :], other]
            if state[other] == 0:
                found = visit(other, [*path, other])
                if found:
                    return found
        state[node] = 2
        return []

    for start in range(len(needs)):
        if state[start] == 0:
            circle = visit(start, [start])
            if circle:
                return circle
    return []


def _explain(model: type[BaseModel], error: Any) -> str:
    """One of pydantic's errors in a line: the place, what is wrong, what is allowed."""
    loc = error["loc"]
    kind, message = error["type"], error["msg"].removeprefix("Value error, ")
    outer = loc[:-1] if kind in ("missing", "extra_forbidden") else loc
    path = ""
    for key in outer:
        path = place(path, key)
    if kind in ("missing", "extra_forbidden"):
        inner = _inner(model, outer)
        problem = (
            f"the key {shown(loc[-1])} is missing"
            if kind == "missing"
            else f"unknown key {shown(loc[-1])}; {hint(loc[-1], inner.model_fields)}"
        )
    elif kind == "value_error":
        problem = f"{message}, got {shown(error['input'])}"
    else:
        problem = f"{message[0].lower()}{message[1:]}, got {shown(error['input'])}"
    return f"{path}: {problem}" if path else problem


def _inner(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel]:
    """The model at a place: list fields are followed by their element's model."""
    for key in loc:
        field = model.model_fields.get(key) if isinstance(key, str) else None
        for inner in _element_models(field.annotation if field else None):
            model = inner
    return model


def _element_models(annotation: Any) -> list[type[BaseModel]]:
    parts = getattr(annotation, "__args__", (annotation,))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
