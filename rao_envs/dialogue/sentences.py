"""Acts and goals in English, by the templates of the ontology.

Templates are filled in one pass: what a file calls a value is never itself read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rao_envs.dialogue import acts
from rao_envs.dialogue.goals import DomainGoal, TripGoal
from rao_envs.dialogue.ontology import DomainSpec, Ontology, SlotSpec

Item = TypeVar("Item")

ANYTHING = "what was booked before"
"""What a chained reference is to where it is not said which booking is meant."""

_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


def say(act: Any, ontology: Ontology, other: int = acts.NONE) -> str:
    """An act as an English sentence.

    Args:
        act: a record of `acts.ACT` (or anything with its fields by name).
        ontology: what its indices stand for.
        other: of a value that is `SAME`, the domain whose booking is meant, or NONE: left open.

    Returns:
        The sentence; "" for `NOTHING`. How well it was heard is not in it.

    Raises:
        ValueError: a kind that there is none of, or an index outside the ontology.
    """
    kind = int(act["kind"])
    if kind == acts.NOTHING:
        return ""
    if not 0 < kind < acts.KINDS:
        raise ValueError(f"no kind of act is {kind}; there are {acts.KINDS}")
    city = (
        _at(ontology.cities, int(act["city"]), "city") if int(act["city"]) != acts.NONE or len(ontology.cities) > 1 else ontology.cities[0]
    )
    if int(act["domain"]) == acts.NONE and kind == acts.RESULT:
        return f"Everything in {city} is booked."
    domain = _at(ontology.domains, int(act["domain"]), "domain")
    words = {"domain": domain.title, "city": city}
    if int(act["entity"]) != acts.NONE:
        words["entity"] = entity_name(ontology, int(act["city"]), int(act["domain"]), int(act["entity"]))
    if kind == acts.GREET:
        return f"Let us talk about {domain.title}" + (f" in {city}." if len(ontology.cities) > 1 else ".")
    if kind == acts.THANK:
        return "Thank you, that is all."
    if kind in _ABOUT_ENTITIES:
        return _about_entity(kind, act, domain, words, len(ontology.cities) > 1)
    slot = _at(domain.slots, int(act["slot"]), "slot")
    words["slot"] = slot.name
    value = int(act["value"])
    if value == acts.SAME:
        words["other"] = ANYTHING if other == acts.NONE else _at(ontology.domains, other, "domain").title
        words["value"] = f"the same as {words['other']}"
    elif value != acts.NONE:
        words["value"] = _at(slot.values, value, "value")
    return _about_slot(kind, act, slot, words)


def entity_name(ontology: Ontology, city: int, domain: int, entity: int) -> str:
    """The name of an entry of a database; where databases are drawn and longer than the ontology's, of a further one: "Old Mill (2)"."""
    names = _at(ontology.domains, domain, "domain").entities_in(max(city, 0))
    if entity < 0:
        raise ValueError(f"no entity is {entity}")
    turn, index = divmod(entity, len(names))
    return names[index].name + (f" ({turn + 1})" if turn else "")


def wish(ontology: Ontology, domain: int, slot: int, value: int, other: int = acts.NONE) -> str:
    """A constraint in a few words: "day: Friday", "day: the same as the train"."""
    spec = _at(_at(ontology.domains, domain, "domain").slots, slot, "slot")
    if value != acts.SAME:
        return f"{spec.name}: {_at(spec.values, value, 'value')}"
    return f"{spec.name}: the same as {ANYTHING if other == acts.NONE else _at(ontology.domains, other, 'domain').title}"


def describe_goal(goal: DomainGoal, ontology: Ontology) -> str:
    """What a counterpart wants, in the sentences it would say itself."""
    domain = _at(ontology.domains, goal.domain, "domain")
    city = _at(ontology.cities, goal.city, "city")
    sentences = []
    for s, (value, other) in enumerate(zip(goal.values, goal.refers, strict=True)):
        slot = domain.slots[s]
        words = {"slot": slot.name, "domain": domain.title, "city": city}
        if other != acts.NONE:
            sentences.append(_sentence(slot.refer, words | {"other": _at(ontology.domains, other, "domain").title}))
        elif value != acts.NONE:
            sentences.append(_sentence(slot.inform, words | {"value": _at(slot.values, value, "value")}))
    flexible = [slot.name for slot, free in zip(domain.slots, goal.flexible, strict=True) if free]
    if flexible:
        sentences.append(f"If there is nothing like that, never mind the {' or the '.join(flexible)}.")
    return " ".join(sentences)


def describe_trip(trip: TripGoal, ontology: Ontology) -> list[str]:
    """What all counterparts of a trip want, one line each: "Hotel in Lisbon: I arrive on Friday. ..."."""
    lines = []
    for goal in trip.goals:
        where = f" in {ontology.cities[goal.city]}" if len(ontology.cities) > 1 else ""
        lines.append(f"{_capital(ontology.domains[goal.domain].name)}{where}: {describe_goal(goal, ontology)}")
    return lines


_ABOUT_ENTITIES = (acts.OFFER, acts.BOOK, acts.ACCEPT, acts.REJECT, acts.RESULT)


def _about_entity(kind: int, act: Any, domain: DomainSpec, words: Mapping[str, str], cities: bool) -> str:
    if kind == acts.RESULT:
        where = f"{domain.title} in {words['city']}" if cities else domain.title
        return _capital(f"{where}: {words['entity']}." if "entity" in words else f"{where}: nothing is booked.")
    if "entity" not in words:
        words = {**words, "entity": "that"}
    if kind == acts.OFFER:
        return _sentence(domain.offer, words)
    if kind == acts.BOOK:
        return _sentence(domain.book, words)
    if kind == acts.ACCEPT:
        return _sentence("Yes, {entity} is right for me.", words)
    if int(act["slot"]) == acts.NONE:
        return _sentence("No, not {entity}.", words)
    slot = _at(domain.slots, int(act["slot"]), "slot")
    return _sentence("No, not {entity}, because of the {slot}.", {**words, "slot": slot.name})


def _about_slot(kind: int, act: Any, slot: SlotSpec, words: Mapping[str, str]) -> str:
    known = "value" in words
    if int(act["speaker"]) == acts.CHILD and known:
        return _sentence("Not booked yet. As to the {slot}: {value}.", words)
    if kind in (acts.INFORM, acts.CORRECT):
        wanted = _sentence(slot.refer if "other" in words else slot.inform, words) if known else _sentence("Not that {slot}.", words)
        return wanted if kind == acts.INFORM else f"No. {wanted}"
    if not known and kind in (acts.CONFIRM, acts.RELAX):
        return _sentence("What about the {slot}?" if kind == acts.CONFIRM else "Nothing fits. Could the {slot} be another?", words)
    template = {
        acts.REQUEST: slot.question,
        acts.CONFIRM: slot.confirm if "other" not in words else "So the {slot} should be {value}?",
        acts.RELAX: slot.relax if "other" not in words else "Nothing fits. Need the {slot} be {value}?",
        acts.ANY: "Any {slot} will do.",
        acts.YES: "Yes, {value}." if known else "Yes.",
        acts.AGREE: "All right, never mind the {slot}.",
        acts.REFUSE: "No, it has to be {value}." if known else "No, the {slot} has to stay.",
    }[kind]
    return _sentence(template, words)


def _sentence(template: str, words: Mapping[str, str]) -> str:
    """The template with its placeholders filled in; one that nothing is known for stays out. Begins with a capital letter."""
    return _capital(_PLACEHOLDER.sub(lambda found: words.get(found[1], ""), template))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _at(items: Sequence[Item], index: int, what: str) -> Item:
    """`items[index]`; raises ValueError where Python would count from the end."""
    if not 0 <= index < len(items):
        raise ValueError(f"no {what} is {index}; there are {len(items)}")
    return items[index]
