"""Schema-guided `schema.json` files and MultiWOZ's databases, as published, read into an `Ontology`.

The schema names services, slots and values (Rastogi et al. 2020, "Towards scalable multi-domain conversational agents: the schema-guided
dialogue dataset"; MultiWOZ: Budzianowski et al. 2018, in the schema-guided form of Zang et al. 2020); the databases, one `<domain>_db.json`
each, list entities. These files were made for people and do not fit together exactly. What is decided here, always the same way, is told in
one `OntologyWarning` and kept in `Ontology.notes`:

- A **domain** without a database, or whose database is no list of objects, is left out (`missing="draw"` draws one instead).
- A **slot** stays if a database can answer for it: names are compared without the domain's prefix, letter case and punctuation
  (`train-arriveby` is `arriveBy`); slots that no entity has (days of a booking, numbers of people) are left out.
- A slot with **open values** (cuisine) gets those of the database, the most frequent ones. It is left out if its values tell single
  entities apart (names, telephone numbers: more different ones than half the entities), or if fewer than half of the entities have one
  of those. A slot with fewer than two values is left out.
- **Spellings**: values are compared without letter case, blanks and punctuation, and words of six letters and more may differ by one letter
  or two that changed places ("mutliple sports"), if that leaves one candidate. "", "?", "none", "not mentioned" and the like, and what is
  still no value of the slot, is unknown of that entity.
- Slots of the same name and with the same values in different domains (area, price range) **refer** to each other, later to earlier.
- Entities without a name are called by their number; a name that occurs again gets a number; names are cleaned and cut.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rao_envs.core.arguments import whole_number
from rao_envs.dialogue.ontology import (
    COUNTERPART,
    MAX_DOMAINS,
    MAX_ENTITIES,
    MAX_SLOTS,
    MAX_VALUES,
    UNKNOWN,
    Ontology,
    OntologyError,
    OntologyWarning,
    PathLike,
)
from rao_envs.dialogue.schema import JOINERS, MAX_NAME, UNSEEN, ServiceModel, build, is_schema_guided, same, validated
from rao_envs.dialogue.strict_json import named_content, read_json, shown

NO_VALUE = {"", "none", "null", "notmentioned", "notgiven", "unknown", "na", "dontcare"}
"""What stands for a value that is not known, squashed."""
ALIKE = {"yes": "true", "no": "false", "true": "yes", "false": "no"}
DRAWN = 8  # entities of a database that is drawn
MAX_SERVICES = 100
SHARE = 0.5  # of a database's entities: what open values must cover, and what the number of different ones must not exceed
FEW = 3  # values that are never too many, however small the database is
FILE_NAME = re.compile(r"\w[\w .-]*")
LONG_WORD = 6  # letters from which on a word may be misspelt
NAMES = ("name", "trainid", "id")
COUNTERPARTS = {
    "hotel": "guest",
    "restaurant": "diner",
    "train": "passenger",
    "bus": "passenger",
    "taxi": "passenger",
    "attraction": "visitor",
}


def load_schema_guided(
    schema: PathLike | Sequence[Any],
    databases: PathLike | Mapping[str, Any] | None = None,
    *,
    city: str = "the city",
    slots: int = 8,
    values: int = 16,
    entities: int = 200,
    missing: Literal["skip", "draw"] = "skip",
    seed: int = 0,
) -> Ontology:
    """Read a schema-guided schema with its databases.

    Args:
        schema: the path of a `schema.json`, or its content: a list of services.
        databases: the folder of files called `<domain>_db.json`, or for each domain a file or its content; by default the schema's
            folder.
        city: what to call the place; these files know one.
        slots: of a domain at most; the first that can be used.
        values: of a slot with open values at most; the most frequent.
        entities: of a domain at most; evenly spread over the database.
        missing: what becomes of a domain without a database: "skip" leaves it out, "draw" gives it eight entities with random values.
        seed: for what is drawn.

    Raises:
        OntologyError: files that cannot be read, that are no schema or no database, or of which nothing remains.
        ValueError: a number that is out of range, or an unknown `missing`.

    Warns:
        OntologyWarning: what had to be decided, all in one.
    """
    limits = (
        whole_number("slots", slots, 1, MAX_SLOTS),
        whole_number("values", values, 2, MAX_VALUES),
        whole_number("entities", entities, 1, MAX_ENTITIES),
    )
    if missing not in ("skip", "draw"):
        raise ValueError(f"missing must be 'skip' or 'draw', got {missing!r}")
    name, content = named_content(schema, "schema")
    if not is_schema_guided(content):
        raise OntologyError(f"{name}: a schema-guided schema is a list of services, each an object with service_name and slots")
    if len(content) > MAX_SERVICES:
        raise OntologyError(f"{name}: {len(content)} services; at most {MAX_SERVICES} are read")
    services = [validated(ServiceModel, one, f"{name}: [{i}]") for i, one in enumerate(content)]
    folder = Path(schema).parent if databases is None and isinstance(schema, (str, os.PathLike)) else None
    source = _Databases(folder if databases is None else databases)
    importer = _Importer(source, limits, missing, np.random.default_rng(whole_number("seed", seed, 0, 2**63 - 1)))
    domains = [found for service in services if (found := importer.domain(service))]
    notes = importer.notes
    unused = source.unused([service.service_name for service in services])
    if unused:
        raise OntologyError(
            f"databases: {', '.join(map(shown, unused))}: no such service in {name}; it has {_listed(s.service_name for s in services)}"
        )
    if not domains:
        raise OntologyError(f"{name}: no domain can be used; missing='draw' draws databases." + "".join(f"\n    {note}" for note in notes))
    if len(domains) > MAX_DOMAINS:
        notes.append(f"only the first {MAX_DOMAINS} of {len(domains)} domains are used")
        del domains[MAX_DOMAINS:]
    _refer(domains)
    ontology = build({"version": 1, "name": _clean(Path(name).stem), "cities": [_clean(city)], "domains": domains}, name)
    if notes:
        warnings.warn(f"{name}:" + "".join(f"\n    {note}" for note in notes), OntologyWarning, stacklevel=2)
    return Ontology(ontology.name, ontology.cities, ontology.domains, tuple(notes))


class _Databases:
    """Where databases come from: a folder, or a mapping."""

    def __init__(self, source: object) -> None:
        self.given: dict[str, Any] = {}
        self.folder: Path | None = None
        if isinstance(source, Mapping):
            self.given = {squash(str(key)): value for key, value in source.items()}
            self.names = {squash(str(key)): str(key) for key in source}
        elif isinstance(source, (str, os.PathLike)):
            self.folder = Path(source)
            if not self.folder.is_dir():
                raise OntologyError(
                    f"databases: {shown(str(source))} is no folder; it must hold files such as hotel_db.json (or give a mapping)"
                )
        elif source is not None:
            raise OntologyError(f"databases must be a folder or a mapping from domains to files, got {type(source).__name__}")

    def find(self, service: str) -> tuple[str, Any] | None:
        """The name and content of a domain's database."""
        if squash(service) in self.given:
            return named_content(self.given[squash(service)], f"the database of {service}")
        if self.folder is not None:
            if not FILE_NAME.fullmatch(service):  # a name from a file must not lead out of the folder
                return None
            for stem in (service, service.lower()):
                path = self.folder / f"{stem}_db.json"
                if path.is_file():
                    return read_json(path, "databases")
        return None

    def unused(self, services: Sequence[str]) -> list[str]:
        """Given databases of which there is no service."""
        known = {squash(service) for service in services}
        return [self.names[key] for key in self.given if key not in known]


class _Column(NamedTuple):
    """A slot with its value for each entity."""

    name: str
    values: list[str]
    of: list[int]


class _Importer:
    """Domains of a schema, one after the other, with notes on what was decided."""

    def __init__(self, source: _Databases, limits: tuple[int, int, int], missing: str, rng: np.random.Generator) -> None:
        self.source, self.missing, self.rng = source, missing, rng
        self.max_slots, self.max_values, self.max_entities = limits
        self.notes: list[str] = []

    def domain(self, service: Any) -> dict[str, Any] | None:
        """A domain in the form of an ontology file, or None: it cannot be used."""
        title = _clean(service.service_name.replace("_", " "))
        rows = self.rows(service, title)
        if rows is None and self.missing == "skip":
            return None
        columns = self.drawn(service, title) if rows is None else self.columns(service, title, rows)
        if not columns:
            self.notes.append(f"{title}: left out: none of its slots can be used")
            return None
        if len(columns) > self.max_slots:
            rest = _listed(column.name for column in columns[self.max_slots :])
            self.notes.append(f"{title}: only the first {self.max_slots} slots are used; left out: {rest}")
            del columns[self.max_slots :]
        return {
            "name": title,
            "counterpart": COUNTERPARTS.get(title, COUNTERPART),
            "bookable": any(intent.is_transactional for intent in service.intents) or not service.intents,
            "slots": [{"name": column.name, "values": column.values} for column in columns],
            "entities": self.entities(title, columns, rows or [{}] * DRAWN),
        }

    def rows(self, service: Any, title: str) -> list[dict[str, Any]] | None:
        """A domain's database, its keys squashed; thinned if it is too long. None: there is none."""
        found = self.source.find(service.service_name)
        name, content = found or ("", None)
        if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
            why = f"{name} is not a list of entities" if found else "there is no database for it"
            self.notes.append(f"{title}: {'left out: ' * (self.missing == 'skip')}{why}")
            return None
        if not content:
            raise OntologyError(f"{name}: the database is empty; at least one entity is needed")
        if len(content) > self.max_entities:
            self.notes.append(f"{title}: {self.max_entities} of {len(content):,} entities are used, evenly spread")
            content = [content[i * len(content) // self.max_entities] for i in range(self.max_entities)]
        return [{_slot_key(key, service.service_name): value for key, value in row.items()} for row in content]

    def drawn(self, service: Any, title: str) -> list[_Column]:
        """The slots of a domain without a database, those that have values, with values drawn for its entities."""
        columns = []
        for slot in service.slots:
            values = _distinct(slot.possible_values)
            if slot.is_categorical and 2 <= len(values) <= MAX_VALUES:
                of = self.rng.integers(len(values), size=DRAWN).tolist()
                columns.append(_Column(_slot_name(slot.name, service.service_name), values, of))
        if columns:
            self.notes.append(f"{title}: {DRAWN} entities are drawn at random")
        return _named_apart(columns)

    def columns(self, service: Any, title: str, rows: Sequence[Mapping[str, Any]]) -> list[_Column]:
        """The slots that the database can answer for."""
        columns = []
        left_out: dict[str, list[str]] = {}
        for slot in service.slots:
            name, key = _slot_name(slot.name, service.service_name), _slot_key(slot.name, service.service_name)
            texts = [_text(row.get(key)) for row in rows]
            values = _distinct(slot.possible_values)
            declared = slot.is_categorical and 2 <= len(values) <= MAX_VALUES
            if not declared:
                values = self.frequent(title, name, key, texts)
            of = self.column(title, name, values, texts, declared)
            known = sum(v != UNKNOWN for v in of)
            if all(text is None for text in texts):
                why = "no entity has a value"
            elif not declared and _identifies(key, texts):
                why = "its values tell single entities apart"
            elif len(values) < 2:
                why = "fewer than two values"
            elif known == 0 or (not declared and known < SHARE * len(rows)):
                why = "too few entities have one of its values"
            else:
                columns.append(_Column(name, values, of))
                continue
            left_out.setdefault(why, []).append(name)
        self.notes += [f"{title}: left out: {_listed(names)} ({why})" for why, names in left_out.items()]
        return _named_apart(columns)

    def frequent(self, title: str, name: str, key: str, texts: Sequence[str | None]) -> list[str]:
        """The most frequent values of a slot with open values, each in its most frequent spelling; none if they identify entities."""
        if _identifies(key, texts):
            return []
        counts = Counter(_canonical([text for text in texts if text is not None]))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if len(ranked) > self.max_values:
            rest = sum(count for _, count in ranked[self.max_values :])
            kept = f"the {self.max_values} most frequent of {len(ranked)} values are used"
            self.notes.append(f"{title}: {name}: {kept}; {rest} entities have another, unknown here")
        return [value for value, _ in ranked[: self.max_values]]

    def column(self, title: str, name: str, values: Sequence[str], texts: Sequence[str | None], declared: bool) -> list[int]:
        """The value of a slot for each entity; of declared values with a note on what did not fit."""
        known = {squash(value): v for v, value in enumerate(values)}
        found: dict[str, int] = {}
        taken, other = [], []
        for text in dict.fromkeys(text for text in texts if text is not None):
            key = squash(text)
            v = known.get(key, known.get(ALIKE.get(key, ""), UNKNOWN))
            near = [value for value in values if misspelt(text, value)] if v == UNKNOWN and declared else []
            if len(near) == 1:
                v = values.index(near[0])
                taken.append(f"{shown(text)} as {shown(near[0])}")
            elif v == UNKNOWN:
                other.append(text)
            found[text] = v
        if taken:
            self.notes.append(f"{title}: {name}: taken {_listed(taken, quote=False)}")
        if other and declared:
            self.notes.append(f"{title}: {name}: not among its values, and so unknown: {_listed(other)}")
        return [UNKNOWN if text is None else found[text] for text in texts]

    def entities(self, title: str, columns: Sequence[_Column], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The database in the form of an ontology file."""
        taken: dict[str, int] = {}
        found = []
        for i, row in enumerate(rows):
            values = {column.name: None if column.of[i] == UNKNOWN else column.values[column.of[i]] for column in columns}
            found.append({"name": _entity_name(title, row, i, taken), "values": values})
        return found


def _entity_name(title: str, row: Mapping[str, Any], i: int, taken: dict[str, int]) -> str:
    """What to call an entity, differently from those in `taken`, which counts names."""
    given = next((text for key in NAMES if (text := _text(row.get(key))) is not None), "")
    base = given if given and not given.isdigit() else f"{title} {i + 1}"
    name = base
    while same(name) in taken:
        taken[same(base)] += 1
        name = f"{base[: MAX_NAME - 8].rstrip()} ({taken[same(base)]})"
    taken.setdefault(same(base), 1)
    taken.setdefault(same(name), 1)
    return name


def _identifies(key: str, texts: Sequence[str | None]) -> bool:
    """Whether a slot's values tell single entities apart, as names do."""
    different = len({squash(text) for text in texts if text is not None})
    return key in NAMES or different > max(FEW, SHARE * sum(text is not None for text in texts))


def squash(text: str) -> str:
    """`text` without letter case, blanks and punctuation: "Guest House" is "guesthouse"."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in folded if character.isalnum() or unicodedata.category(character).startswith("M"))


def misspelt(one: str, other: str) -> bool:
    """Whether two texts are one edit apart: a letter more, fewer or another, or two neighbours swapped.

    Texts with digits, where a letter matters, and short ones never are.
    """
    a, b = sorted((squash(one), squash(other)), key=len)
    if a == b or len(a) < LONG_WORD or len(b) > len(a) + 1 or any(character.isdigit() for character in a + b):
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(b) > len(a):
        return a[start:] == b[start + 1 :]
    return a[start + 1 :] == b[start + 1 :] or (a[start : start + 2] == b[start : start + 2][::-1] and a[start + 2 :] == b[start + 2 :])


def _refer(domains: list[dict[str, Any]]) -> None:
    """Let slots of the same name and values refer to those of earlier domains, with the values in the earliest one's order."""
    for d, domain in enumerate(domains):
        for slot in domain["slots"]:
            slot["refers"] = []
            for earlier in domains[:d]:
                for other in earlier["slots"]:
                    if same(other["name"]) == same(slot["name"]) and set(other["values"]) == set(slot["values"]):
                        slot["values"] = other["values"]
                        slot["refers"].append({"domain": earlier["name"], "slot": other["name"]})


def _slot_name(slot: str, service: str) -> str:
    """A slot's name without its domain's: "hotel-area" is "area"; underscores are blanks."""
    head, dash, rest = slot.partition("-")
    name = rest if dash and rest and squash(head) == squash(service) else slot
    return _clean(name.replace("_", " "))


def _slot_key(slot: str, service: str) -> str:
    return squash(_slot_name(slot, service))


def _text(value: Any) -> str | None:
    """A database's value as text, or None: there is none, or nothing simple."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)):
        return None
    text = _clean(str(value), "")
    return None if squash(text) in NO_VALUE else text


def _canonical(texts: Sequence[str]) -> list[str]:
    """Each text in the spelling that is most frequent among those that differ in nothing that counts."""
    spellings: dict[str, Counter[str]] = {}
    for text in texts:
        spellings.setdefault(squash(text), Counter())[text] += 1
    best = {key: min(counts.items(), key=lambda item: (-item[1], item[0]))[0] for key, counts in spellings.items()}
    return [best[squash(text)] for text in texts]


def _distinct(values: Iterable[str]) -> list[str]:
    """Cleaned values, each once, without those that mean "not known"."""
    found: dict[str, str] = {}
    for value in values:
        text = _clean(value, "")
        if squash(text) not in NO_VALUE:
            found.setdefault(squash(text), text)
    return list(found.values())


def _named_apart(columns: Sequence[_Column]) -> list[_Column]:
    """The columns without those whose name was there before."""
    found: dict[str, _Column] = {}
    for column in columns:
        found.setdefault(same(column.name), column)
    return list(found.values())


def _clean(text: str, otherwise: str = "unnamed") -> str:
    """A text as an ontology may have it: no invisible characters, single blanks, cut where it is long."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if unicodedata.category(character) in (*UNSEEN, "Zs") else character for character in text)
    text = " ".join(re.split(r"\s+", text)).strip()
    if len(text) > MAX_NAME:
        text = text[: MAX_NAME - 3].rstrip() + "..."
    seen = any(character.isprintable() and character not in JOINERS and character != " " for character in text)
    return text if seen else otherwise


def _listed(names: Iterable[str], most: int = 8, quote: bool = True) -> str:
    found = list(names)
    return ", ".join(shown(name) if quote else name for name in found[:most]) + f" and {len(found) - most} more" * (len(found) > most)
