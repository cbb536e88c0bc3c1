"""Ontologies and goals from files and dictionaries: what is read, and what every kind of mistake says."""

from __future__ import annotations

import copy
import itertools
import json
import os
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.dialogue import strict_json
from rao_envs.dialogue.domain import DialogueDomain
from rao_envs.dialogue.goals import load_goals
from rao_envs.dialogue.ontology import MAX_ENTITIES, UNKNOWN, OntologyError, load_ontology, trip_ontology
from rao_envs.dialogue.schema import checked_text, find_circle, json_schema, same
from rao_envs.dialogue.strict_json import MAX_DEPTH, named_content

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "weekend",
    "cities": ["Graz", "Brno"],
    "domains": [
        {
            "name": "hotel",
            "slots": [{"name": "day", "values": ["Friday", "Saturday"]}, {"name": "stars", "values": ["one", "two", "three"]}],
            "entities": [
                {"name": "Mill", "city": "Graz", "values": {"day": "Friday", "stars": "two"}},
                {"name": "Café", "city": "Brno", "values": {"day": "Saturday", "stars": None}},
                {"name": "Chain", "values": {"day": "Saturday", "stars": "three"}},
            ],
        },
        {
            "name": "bar",
            "title": "the café bar",
            "counterpart": "friend",
            "bookable": False,
            "slots": [{"name": "when", "values": ["Friday", "Saturday"], "refers": [{"domain": "hotel", "slot": "day"}]}],
            "entities": [{"name": "Owl", "values": {"when": "Friday"}}, {"name": "Fox", "values": {"when": "Saturday"}}],
        },
    ],
}


def changed(change: Callable[[Any], Any]) -> Any:
    content = copy.deepcopy(SMALL)
    change(content)
    return content


def put(*path: Any, value: Any) -> Any:
    """SMALL with another value at a path; `...` as the value takes the key away."""
    content = copy.deepcopy(SMALL)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


def fails(message: str, source: Any, **kwargs: Any) -> str:
    with pytest.raises(OntologyError, match=re.escape(message)) as caught:
        load_ontology(source, **kwargs)
    assert len(str(caught.value)) < 2000
    return str(caught.value)


def problem(read: Callable[[], Any]) -> str | None:
    """What is wrong, or None; anything but an OntologyError gets through."""
    try:
        read()
    except OntologyError as error:
        return str(error)
    return None


class TestReading:
    def test_the_trip_that_ships(self) -> None:
        trip = trip_ontology()
        assert trip.sizes == (4, 8, 4, 4, 8)
        assert trip_ontology() is trip
        arrays = trip.arrays()
        assert arrays.n_domains == 8
        assert (arrays.slots_of == 4).all() and (arrays.values_of == 4).all() and (arrays.entities_of == 8).all()
        for domain in range(8):
            rows = arrays.entity[0, domain]
            for slot in range(4):
                assert np.bincount(rows[:, slot]).tolist() == [2, 2, 2, 2]
                for other in range(slot):
                    assert len(set(zip(rows[:, slot].tolist(), rows[:, other].tolist(), strict=True))) == 8
        later = np.tril(np.ones((8, 8), bool), -1)
        np.testing.assert_array_equal((arrays.refers >= 0).any(axis=1), later)  # any choice of domains can be chained

    def test_a_small_one(self, tmp_path: Path) -> None:
        ontology = load_ontology(SMALL)
        path = tmp_path / "weekend.json"
        path.write_text(json.dumps(SMALL, ensure_ascii=False), encoding="utf-8-sig")
        assert load_ontology(path) == load_ontology(str(path)) == load_ontology(ontology) == ontology
        assert ontology.sizes == (2, 2, 2, 3, 2)
        hotel, bar = ontology.domains
        assert (hotel.title, hotel.counterpart, hotel.bookable) == ("the hotel", "traveller", True)
        assert (bar.title, bar.counterpart, bar.bookable) == ("the café bar", "friend", False)
        assert [entity.name for entity in hotel.entities_in(1)] == ["Café", "Chain"]
        assert bar.slots[0].refers == ((0, 0),)
        assert "plan" in bar.book and "booked" in hotel.book

    def test_arrays(self) -> None:
        arrays = load_ontology(SMALL).arrays()
        assert arrays.slots_of.tolist() == [2, 1]
        assert arrays.values_of.tolist() == [[2, 3], [2, 0]]
        assert arrays.entities_of.tolist() == [[2, 2], [2, 2]]
        assert arrays.entity[0, 0].tolist() == [[0, 1], [1, 2]]
        assert arrays.entity[1, 0].tolist() == [[1, UNKNOWN], [1, 2]]
        assert arrays.entity[1, 1].tolist() == [[0, -1], [1, -1]]
        assert arrays.refers.tolist() == [[[-1, -1], [-1, -1]], [[0, -1], [-1, -1]]]
        for array in arrays[1:]:
            assert array.flags.c_contiguous and array.flags.writeable

    @given(st.integers(1, 6), st.integers(2, 6), st.integers(1, 10))
    def test_arrays_of_other_sizes_agree_where_they_overlap(self, slots: int, values: int, entities: int) -> None:
        for ontology in (trip_ontology(), load_ontology(SMALL)):
            whole, part = ontology.arrays(), ontology.arrays(slots, values, entities)
            own = ontology.sizes
            S, E = min(slots, own.slots), min(entities, own.entities)
            assert part.entity.shape == (own.cities, own.domains, entities, slots)
            wanted = whole.entity[:, :, :E, :S]
            np.testing.assert_array_equal(part.entity[:, :, :E, :S], np.where(wanted < values, wanted, UNKNOWN))
            assert (part.entity[:, :, E:] == -1).all() and (part.entity[..., S:] == -1).all()
            np.testing.assert_array_equal(part.values_of[:, :S], np.minimum(whole.values_of[:, :S], values))
            np.testing.assert_array_equal(part.slots_of, np.minimum(whole.slots_of, slots))
            np.testing.assert_array_equal(part.entities_of, np.minimum(whole.entities_of, entities))
            assert (part.refers < slots).all()

    def test_tuples_and_mappings_of_python_will_do(self) -> None:
        content = changed(lambda content: content.update(cities=tuple(content["cities"])))
        assert load_ontology(content) == load_ontology(SMALL)

    def test_it_is_data(self) -> None:
        ontology = trip_ontology()
        assert pickle.loads(pickle.dumps(ontology)) == ontology
        assert load_ontology(ontology.to_dict()) == ontology
        assert load_ontology(json.loads(json.dumps(load_ontology(SMALL).to_dict()))) == load_ontology(SMALL)

    def test_text_is_composed(self) -> None:
        content = json.loads(json.dumps(SMALL).replace("Caf\\u00e9", "Cafe\\u0301"))
        assert load_ontology(content) == load_ontology(SMALL)

    def test_the_schema_can_be_had(self) -> None:
        assert set(json_schema()["properties"]) == {"version", "name", "cities", "domains"}


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12).filter(
    lambda text: any(character.isalnum() for character in text)
)


@st.composite
def ontologies(draw: Any) -> dict[str, Any]:
    def names(low: int, high: int) -> list[str]:
        return draw(st.lists(NAMES, min_size=low, max_size=high, unique_by=same))

    cities = names(1, 3)
    domains = []
    for name in names(1, 3):
        slots = [{"name": slot, "values": names(2, 4)} for slot in names(1, 3)]
        entities = []
        for k, entity in enumerate(names(1, 5)):
            values = {slot["name"]: draw(st.none() | st.sampled_from(slot["values"])) for slot in slots}
            city = {} if k == 0 else draw(st.sampled_from([{}, {"city": cities[0]}]))
            entities.append({"name": entity, **city, "values": values})
        domains.append({"name": name, "slots": slots, "entities": entities})
    return {"version": 1, "cities": cities, "domains": domains}


@given(ontologies())
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read_again(content: dict[str, Any]) -> None:
    ontology = load_ontology(content)
    assert load_ontology(json.loads(json.dumps(ontology.to_dict()))) == ontology
    arrays = ontology.arrays()
    for c in range(len(ontology.cities)):
        for d, domain in enumerate(ontology.domains):
            for e, entity in enumerate(domain.entities_in(c)):
                names = [None if v < 0 else domain.slots[s].values[v] for s, v in enumerate(arrays.entity[c, d, e, : len(domain.slots)])]
                given = next(one for one in content["domains"][d]["entities"] if same(one["name"]) == same(entity.name))
                assert [None if name is None else same(name) for name in names] == [
                    None if value is None else same(value) for value in given["values"].values()
                ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["version", "name", "slots", "values", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_one_wrong_value_anywhere_is_an_error_or_does_not_matter(data: st.DataObject) -> None:
    content = copy.deepcopy(SMALL)
    inner: Any = content
    for _ in range(data.draw(st.integers(0, 6))):
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        following = [key for key in keys if isinstance(inner[key], (dict, list)) and inner[key]]
        if not following:
            break
        inner = inner[data.draw(st.sampled_from(following))]
    keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
    inner[data.draw(st.sampled_from(keys))] = data.draw(JSON)
    message = problem(lambda: load_ontology(content))
    assert message is None or (message.startswith("ontology:") and len(message) < 2000)


SLOT = ("domains", 0, "slots", 0)
ENTITY = ("domains", 0, "entities", 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "the key 'version' is missing"),
        ([], "an ontology is an object with the keys version, name, cities, domains"),
        ({"services": []}, "unknown key 'services'; allowed: 'version', 'name', 'cities', 'domains'"),
        (put("version", value=2), "version: this release reads version 1, got 2"),
        (put("version", value=True), "version: input should be a valid integer, got True"),
        (put("version", value="1"), "version: input should be a valid integer, got '1'"),
        (put("city", value=["Graz"]), "unknown key 'city'; did you mean 'cities'?"),
        (put("cities", value="Graz"), "cities: input should be a valid list, got 'Graz'"),
        (put("cities", value=[]), "cities: list should have at least 1 item"),
        (put("cities", value=[f"city {k}" for k in range(9)]), "cities: list should have at most 8 items"),
        (put("cities", value=["Graz", "\uff27RAZ"]), "cities: the same name twice: 'Graz' and '\uff27RAZ'"),
        (
            put("cities", value=["Graz", "Bruno"]),
            "domains[0].entities[1].city: unknown city 'Brno'; did you mean 'Bruno'? allowed: 'Graz', 'Bruno'",
        ),
        (put("cities", value=["Graz", "Brno", 3]), "cities[2]: input should be a valid string, got 3"),
        (put("domains", value=[]), "domains: list should have at least 1 item"),
        (put("domains", 1, "name", value="hotel"), "domains: the same name twice: 'hotel'"),
        (put("domains", 0, "name", value=" "), "domains[0].name: must not be empty, got ' '"),
        (put("domains", 0, "name", value="x" * 61), "domains[0].name: has 61 characters; at most 60 are allowed"),
        (put("domains", 0, "name", value="ho\u202etel"), "holds U+202E, a control or invisible character"),
        (put("domains", 0, "name", value="\x1b[31mhotel"), "holds U+001B, a control or invisible character"),
        (put("domains", 0, "name", value="a\nb"), "holds U+000A, a control or invisible character"),
        (put("domains", 0, "name", value="\u200d"), "holds nothing that can be seen"),
        (put("domains", 0, "name", value="\ud800"), "half of a surrogate pair"),
        (put("domains", 0, "bookable", value="yes"), "domains[0].bookable: input should be a valid boolean, got 'yes'"),
        (put("domains", 0, "slots", value=[]), "domains[0].slots: list should have at least 1 item"),
        (put("domains", 0, "slots", value=...), "domains[0]: the key 'slots' is missing"),
        (put("domains", 0, "entities", value=[]), "domains[0].entities: the database of 'hotel' is empty in Graz"),
        (put("domains", 0, "entities", value=SMALL["domains"][0]["entities"][:1]), "the database of 'hotel' is empty in Brno"),
        (put(*SLOT, "values", value=["Friday"]), "domains[0].slots[0].values: list should have at least 2 items"),
        (put(*SLOT, "values", value=["Friday", "friday "]), "the same name twice: 'Friday' and 'friday'"),
        (put(*SLOT, "values", value=[f"day {k}" for k in range(33)]), "list should have at most 32 items"),
        (put(*SLOT, "values", value={"Friday": 1}), "input should be a valid list"),
        (put(*SLOT, "question", value="{day}?"), "unknown placeholder {day}; allowed: {slot}, {domain}, {city}"),
        (put(*SLOT, "inform", value="{value.__class__}"), "braces hold a placeholder and nothing else"),
        (put(*SLOT, "inform", value="{value!r:>99}"), "braces hold a placeholder and nothing else"),
        (put(*SLOT, "inform", value="{{value}}"), "braces hold a placeholder and nothing else"),
        (put(*SLOT, "confirm", value="Sure?"), "lacks its placeholder {value}"),
        (put(*SLOT, "refer", value="The same"), "lacks its placeholder {other}"),
        (put("domains", 0, "offer", value="This?"), "lacks its placeholder {entity}"),
        (put("domains", 0, "slots", 1, "name", value="Day"), "domains[0].slots: the same name twice: 'day' and 'Day'"),
        (
            put(*ENTITY, "values", "day", value="Sunday"),
            "domains[0].entities[0].values.day: 'Sunday' is none of the slot's values; did you mean",
        ),
        (put(*ENTITY, "values", "day", value="friday"), "did you mean 'Friday'? allowed: 'Friday', 'Saturday'"),
        (put(*ENTITY, "values", "day", value=5), "domains[0].entities[0].values.day: input should be a valid string, got 5"),
        (put(*ENTITY, "values", "day", value=float("nan")), "domains[0].entities[0].values.day: nan is no number that can be used"),
        (put(*ENTITY, "values", "day", value=...), "domains[0].entities[0].values: the slot 'day' is missing; write null"),
        (put(*ENTITY, "values", "dey", value="Friday"), "'hotel' has no slot 'dey'; did you mean 'day'?"),
        (put(*ENTITY, "city", value="Wien"), "unknown city 'Wien'"),
        (put(*ENTITY, "name", value="Chain"), "domains[0].entities: two entities in Graz are called 'Chain'"),
        (put(*ENTITY, "open", value=1), "domains[0].entities[0]: unknown key 'open'; allowed: 'name', 'city', 'values'"),
        (put(*SLOT, "refers", value=[{"domain": "bar", "slot": "when"}]), "references go in a circle: 'hotel' -> 'bar' -> 'hotel'"),
        (put(*SLOT, "refers", value=[{"domain": "hotel"}]), "a slot refers to another domain, not to its own"),
        (put(*SLOT, "refers", value=[{"domain": "spa"}]), "unknown domain 'spa'"),
        (put(*SLOT, "refers", value=[{"domain": "bar"}]), "'bar' has no slot 'day'; allowed: 'when'"),
        (put("domains", 0, "slots", 1, "refers", value=[{"domain": "bar", "slot": "when"}]), "must have the same values in the same order"),
        (put("domains", 1, "slots", 0, "refers", value=[{"domain": "hotel", "slot": "day"}] * 2), "a second reference to 'hotel'"),
    ],
)
def test_mistakes(content: Any, message: str) -> None:
    fails(message, content)


def test_many_mistakes_are_cut() -> None:
    content = put("domains", 0, "entities", value=[{"name": "x" * 100}] * 40)
    assert "and 75 more" in fails("has 100 characters", content)


def test_too_many_entities() -> None:
    values = {"day": "Friday", "stars": None}
    entities = [{"name": f"hotel {k}", "city": city, "values": values} for city in ("Graz", "Brno") for k in range(MAX_ENTITIES)]
    assert load_ontology(put("domains", 0, "entities", value=entities)).sizes.entities == MAX_ENTITIES
    fails("1001 entities in Graz; at most 1,000", put("domains", 0, "entities", value=[{"name": "more", "values": values}, *entities]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"{", "line 1, column 2: not JSON: Expecting property name enclosed in double quotes; the file ends too early"),
        (json.dumps(SMALL).encode()[:200], "the file ends too early: was it cut off?"),
        (json.dumps(SMALL).encode()[:-1], "the file ends too early"),
        (b'{"version": 1, "version": 1}', "the key 'version' occurs twice in one object"),
        (b'{"domains": [{"a": 1, "a": 2}]}', "domains[0]: the key 'a' occurs twice"),
        (b'{"\\u00e9": 1, "e\\u0301": 2}', "occurs twice in one object"),
        (b'{"version": NaN}', "version: nan is no number"),
        (b'{"version": -Infinity}', "version: -inf is no number"),
        (b'{"version": 1e999}', "version: inf is no number"),
        (b'{"version": ' + b"9" * 100_000 + b"}", "version: inf is no number"),
        (b'{"version": 0.' + b"9" * 100_000 + b"}", "version: inf is no number"),
        (b"[" * 100_000, "more than 16 brackets inside each other"),
        (b"[" * 20 + b"]" * 20, "more than 16 brackets inside each other"),
        (b'{"a":' * 100_000, "more than 16 brackets inside each other"),
        (b"\xff\xfe{\x00}\x00", "line 1: not UTF-8 (byte 0xff)"),
        (b'{\n"name": "caf\xe9"}', "line 2: not UTF-8 (byte 0xe9)"),
        (b'{"name": "\\ud83d"}', "name: '\\ud83d' holds half of a surrogate pair"),
        (b"version: 1", "not JSON: Expecting value"),
        (b"{'version': 1}", "not JSON"),
        (b'{"version": 1,}', "not JSON"),
        (b'"text"', "got a str"),
        (b"1", "got a int"),
        (b"null", "got a NoneType"),
        (b"cos\nsystem\n(S'echo'\ntR.", "not JSON"),
    ],
)
def test_files_that_are_none(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    start = time.process_time()
    assert fails(message, path).startswith("bad.json")
    assert time.process_time() - start < 5


def test_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails("No such file", tmp_path / "none.json")
    fails("is a directory; ontology= takes the path of a JSON file", tmp_path)
    fails("null", "a\0b")
    fails("No such file", "")
    fails("cannot read the file", "x" * 5000)
    fails("got bytes", b"x.json")
    for wrong in (3, None, {1, 2}, object()):
        fails("must be the path of a JSON file or its content", wrong)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        fails("is not a regular file", tmp_path / "pipe")
    (tmp_path / "large.json").write_text(json.dumps(SMALL))
    monkeypatch.setattr(strict_json, "MAX_BYTES", 100)
    fails("is too large", tmp_path / "large.json")


def test_python_content_that_is_no_data() -> None:
    endless: dict[str, Any] = {}
    endless["version"] = endless
    fails(f"more than {MAX_DEPTH} brackets", endless)
    wide: list[Any] = []
    wide.extend([wide] * 50)
    start = time.process_time()
    fails("brackets inside each other", {"version": wide})
    assert time.process_time() - start < 5
    fails("keys are strings, got 1", {1: 2})
    fails("version: set is nothing that JSON has", {"version": {1}})
    fails("version: complex is nothing that JSON has", {"version": 1j})
    fails("databases= is for schema-guided files", SMALL, databases="x")


def test_items_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_ITEMS", 10)
    fails("more than 10 values", {"version": [0] * 10})


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=6, max_size=6))
def test_circles_are_found(needs: list[list[int]]) -> None:
    circle = find_circle(needs)
    reach = np.zeros((6, 6), bool)
    for node, others in enumerate(needs):
        reach[node, others] = True
    for middle in range(6):
        reach |= reach[:, [middle]] & reach[[middle], :]
    assert bool(circle) == bool(reach.diagonal().any())
    if circle:
        assert circle[0] == circle[-1]
        assert all(after in needs[before] for before, after in itertools.pairwise(circle))


@given(st.text(max_size=20))
def test_checked_text_is_stable(text: str) -> None:
    try:
        checked = checked_text(text)
    except ValueError:
        return
    assert checked_text(checked) == checked
    assert same(checked) == same(text)


@given(JSON)
def test_content_is_copied_as_it_is(value: Any) -> None:
    try:
        _, copied = named_content([value], "content")
    except OntologyError:
        return
    assert json.loads(json.dumps(copied)) == copied


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "environments" / "ontologies.md").read_text(encoding="utf-8")


def test_the_page_says_how_it_is() -> None:
    ontology, goals = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    assert len(load_goals(goals, load_ontology(ontology)).trips) == 1
    hotel, bar = ontology["domains"]
    wrong = copy.deepcopy(ontology)
    wrong["domains"][0]["entities"][0]["values"]["day"] = "Sunday"
    empty = {**ontology, "domains": [{**hotel, "entities": hotel["entities"][:1]}, bar]}
    circle = copy.deepcopy(ontology)
    circle["domains"][0]["slots"][0]["refers"] = [{"domain": "bar"}]
    for content in (wrong, empty, circle):
        message = problem(lambda content=content: load_ontology(content))
        assert message is not None
        assert message.replace("ontology: ", "weekend.json: ") in PAGE
    for key in (*json_schema()["properties"], *(key for model in json_schema()["$defs"].values() for key in model["properties"])):
        assert f"`{key}`" in PAGE


# --- goals ---

TRIPS: dict[str, Any] = {
    "version": 1,
    "trips": [
        {
            "name": "first",
            "stops": [
                {
                    "city": "Graz",
                    "domains": [
                        {"domain": "bar", "constraints": {"when": {"same_as": "hotel"}}},
                        {"domain": "hotel", "constraints": {"day": "Friday", "stars": "three"}, "flexible": ["stars"]},
                    ],
                },
                {"city": "Brno", "domains": [{"domain": "bar", "constraints": {"when": "Saturday"}}]},
            ],
        }
    ],
}
WANTED = ("trips", 0, "stops", 0, "domains")


def goal(*path: Any, value: Any) -> Any:
    content = copy.deepcopy(TRIPS)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return content


class TestGoals:
    def test_reading(self, tmp_path: Path) -> None:
        ontology = load_ontology(SMALL)
        (tmp_path / "goals.json").write_text(json.dumps(TRIPS))
        goals = load_goals(tmp_path / "goals.json", ontology)
        assert goals.trips == load_goals(TRIPS, ontology).trips == load_goals(TRIPS["trips"], ontology).trips
        assert load_goals(goals, ontology) is goals
        assert pickle.loads(pickle.dumps(goals)) == goals
        arrays = goals.arrays()
        assert arrays.active.tolist() == [[[1, 1], [0, 1]]]
        assert arrays.value[0, 0].tolist() == [[0, 2], [-1, -1]]
        assert arrays.refers[0, 0].tolist() == [[-1, -1], [0, -1]]
        assert arrays.flexible[0, 0].tolist() == [[0, 1], [0, 0]]
        assert arrays.value[0, 1].tolist() == [[-1, -1], [1, -1]]
        assert goals.arrays(5).value.shape == (1, 2, 2, 5)
        with pytest.raises(OntologyError, match=r"first constrains the slot 'stars', but only 1 slots are in use"):
            goals.arrays(1)
        with pytest.raises(OntologyError, match=r"the ontology in use is 'trip'"):
            load_goals(goals, trip_ontology())

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ([], "trips: list should have at least 1 item"),
            ({"version": 1}, "the key 'trips' is missing"),
            (goal("trips", 0, "city", value="Graz"), "trips[0]: unknown key 'city'; allowed: 'name', 'stops'"),
            (goal("trips", 0, "stops", 0, "city", value="Graas"), "trips[0].stops[0].city: unknown city 'Graas'; did you mean 'Graz'?"),
            (goal("trips", 0, "stops", 0, "city", value=None), "the key 'city' is missing"),
            (goal(*WANTED, value=[]), "trips[0].stops[0].domains: list should have at least 1 item"),
            (goal(*WANTED, 0, "domain", value="spa"), "domains[0].domain: unknown domain 'spa'"),
            (goal(*WANTED, 0, "domain", value="hotel"), "'hotel' has no slot 'when'; allowed: 'day', 'stars'"),
            (goal(*WANTED, 1, "constraints", value={}), "dictionary should have at least 1 item"),
            (goal(*WANTED, 1, "constraints", "day", value="Sunday"), "constraints.day: 'Sunday' is none of the slot's values"),
            (goal(*WANTED, 1, "constraints", "day", value=1), 'a constraint is a value, or {"same_as": "a domain"}, got 1'),
            (goal(*WANTED, 1, "constraints", "day", value={"same": "bar"}), "a constraint is a value, or"),
            (goal(*WANTED, 1, "constraints", "day", value={"same_as": "bar"}), "cannot refer to 'bar', nor to anything else"),
            (goal(*WANTED, 0, "constraints", "when", value={"same_as": "bar"}), "cannot refer to 'bar'; allowed: 'hotel'"),
            (goal(*WANTED, 1, "flexible", value=["day", "beds"]), "'beds' is not constrained; allowed: 'day', 'stars'"),
            (goal(*WANTED, 1, "flexible", value=[]), "no entity of 'hotel' satisfies these constraints"),
            (
                goal(*WANTED, value=TRIPS["trips"][0]["stops"][0]["domains"][:1]),
                "'when' refers to 'hotel', which this trip does not book in Graz",
            ),
            (goal(*WANTED, value=[TRIPS["trips"][0]["stops"][0]["domains"][1]] * 2), "'hotel' is wanted twice in Graz"),
        ],
    )
    def test_mistakes(self, content: Any, message: str) -> None:
        with pytest.raises(OntologyError, match=re.escape(message)):
            load_goals(content, load_ontology(SMALL))

    def test_a_reference_to_what_cannot_be_had(self) -> None:
        only_friday = put("domains", 1, "entities", value=[{"name": "Owl", "values": {"when": "Friday"}}])
        hotel = {"domain": "hotel", "constraints": {"day": "Saturday"}}
        bar = {"domain": "bar", "constraints": {"when": {"same_as": "hotel"}}}
        trips = [{"stops": [{"city": "Graz", "domains": [bar, hotel]}]}]
        with pytest.raises(OntologyError, match="no entity of 'bar' satisfies these constraints"):
            load_goals(trips, load_ontology(only_friday))
        assert load_goals(trips, load_ontology(SMALL)).trips[0].name == "trip 1"

    def test_one_city_needs_no_name(self) -> None:
        content = put("cities", value=["Graz"])
        content["domains"][0]["entities"].pop(1)
        goals = load_goals([{"stops": [{"domains": [{"domain": "bar", "constraints": {"when": "Friday"}}]}]}], load_ontology(content))
        assert goals.trips[0].goals[0].city == 0

    @given(st.data())
    @settings(deadline=None, max_examples=100)
    def test_wrong_values_are_errors(self, data: st.DataObject) -> None:
        ontology = load_ontology(SMALL)
        content = [{"stops": [data.draw(JSON)], "name": data.draw(JSON)}]
        message = problem(lambda: load_goals(content, ontology))
        assert message is None or message.startswith("goals:")


@pytest.mark.parametrize(
    "names", [["all", "bar"], ["x", "x!", "x 1"], ["x 1", "x", "x!"], ["日本", "中国", "domain 1"], ["city graz", "graz", "all"]], ids=repr
)
def test_no_two_actions_have_the_same_name(names: list[str]) -> None:
    content = copy.deepcopy(SMALL)
    content["domains"] = [{**copy.deepcopy(SMALL["domains"][0]), "name": name} for name in names]
    domain = DialogueDomain(ontology=content, constraints=1, domains=1)
    actions = [*domain.primitives, *domain.spawns]
    assert len(set(actions)) == len(actions), actions


def test_a_small_ontology_needs_no_further_arguments() -> None:
    """The defaults are three wishes and three bookings, or as many as there can be; what is asked for is not cut."""
    domain = DialogueDomain(ontology=SMALL)
    assert (domain.constraints, domain.domains) == ((2, 2), (2, 2))
    trips = [{"stops": [{"city": "Graz", "domains": [{"domain": "hotel", "constraints": {"day": "Friday"}}]}]}]
    assert DialogueDomain(ontology=SMALL, goals=trips).domains == (1, 1)
    with pytest.raises(ValueError, match="constraints must be an integer in"):
        DialogueDomain(ontology=SMALL, constraints=3)
    with pytest.raises(ValueError, match="do not fit"):
        DialogueDomain(ontology=SMALL, domains=3)
