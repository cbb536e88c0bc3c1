"""Schema-guided schemas and MultiWOZ's databases: what is read, what is decided, and what cannot be used."""

from __future__ import annotations

import copy
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.dialogue import importer
from rao_envs.dialogue.importer import load_schema_guided, misspelt, squash
from rao_envs.dialogue.ontology import UNKNOWN, Ontology, OntologyError, OntologyWarning, load_ontology

# The published files are not part of the project; where they lie beside it, they are read as well.
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "multiwoz"
published = pytest.mark.skipif(not (PUBLISHED / "schema.json").exists(), reason="the published files are not here")


def slot(name: str, *values: str, categorical: bool = True) -> dict[str, Any]:
    return {"name": name, "description": "", "is_categorical": categorical, **({"possible_values": list(values)} if values else {})}


SCHEMA: list[dict[str, Any]] = [
    {
        "service_name": "attraction",
        "description": "things to see",
        "slots": [slot("attraction-type", "concert hall", "multiple sports", "theatre"), slot("attraction-area", "north", "south")],
        "intents": [{"name": "find", "is_transactional": False, "required_slots": [], "optional_slots": {"attraction-area": "dontcare"}}],
    },
    {
        "service_name": "train",
        "slots": [
            slot("train-arriveby", categorical=False),
            slot("train-leaveat", categorical=False),
            slot("train-area", "south", "north"),
            slot("train-bookpeople", "1", "2"),
        ],
        "intents": [{"name": "book", "is_transactional": True}],
    },
    {"service_name": "hospital", "slots": [slot("hospital-department", categorical=False)]},
]
ATTRACTIONS = [
    {"name": "Hall", "type": "concerthall", "area": "North", "location": [1.5, 2]},
    {"name": "Hall", "type": "mutliple sports", "area": "?", "price": {"a": 1}},
    {"name": "Stage\u202e  One", "type": "Theatre", "area": "south"},
    {"id": "7", "type": "museum"},
]
TRAINS = [{"trainID": f"TR{k}", "arriveBy": "09:00" if k % 2 else "10:00", "leaveAt": f"0{k}:15", "area": "north"} for k in range(8)]
DATABASES = {"attraction": ATTRACTIONS, "train": TRAINS}


def load(schema: Any = SCHEMA, databases: Any = DATABASES, **kwargs: Any) -> Ontology:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OntologyWarning)
        return load_schema_guided(schema, databases, **kwargs)


def fails(message: str, schema: Any = SCHEMA, databases: Any = DATABASES, **kwargs: Any) -> None:
    with pytest.raises((OntologyError, ValueError), match=re.escape(message)):
        load(schema, databases, **kwargs)


def test_what_becomes_of_it() -> None:
    ontology = load()
    attraction, train = ontology.domains
    assert [one.name for one in attraction.slots] == ["type", "area"]
    assert attraction.slots[0].values == ("concert hall", "multiple sports", "theatre")
    assert [entity.name for entity in attraction.entities] == ["Hall", "Hall (2)", "Stage One", "attraction 4"]
    assert [entity.values for entity in attraction.entities] == [(0, 0), (1, UNKNOWN), (2, 1), (UNKNOWN, UNKNOWN)]
    assert (attraction.bookable, attraction.counterpart) == (False, "visitor")
    assert [(one.name, one.values) for one in train.slots] == [("arriveby", ("09:00", "10:00")), ("area", ("north", "south"))]
    assert train.slots[1].refers == ((0, 1),)  # in the other one's order
    assert [entity.name for entity in train.entities] == [f"TR{k}" for k in range(8)]
    assert [entity.values for entity in train.entities[:2]] == [(1, 0), (0, 0)]
    assert (train.bookable, train.counterpart) == (True, "passenger")
    assert ontology.cities == ("the city",)
    assert ontology.notes == (
        "attraction: type: taken 'mutliple sports' as 'multiple sports'",
        "attraction: type: not among its values, and so unknown: 'museum'",
        "train: left out: 'leaveat' (its values tell single entities apart)",
        "train: left out: 'bookpeople' (no entity has a value)",
        "hospital: left out: there is no database for it",
    )
    assert load_ontology(ontology.to_dict()).domains == ontology.domains


def test_files(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "attraction_db.json").write_text(json.dumps(ATTRACTIONS))
    other = tmp_path / "other"
    other.mkdir()
    (other / "train_db.json").write_text(json.dumps(TRAINS))
    beside = load(tmp_path / "schema.json", None)
    assert [domain.name for domain in beside.domains] == ["attraction"]
    assert beside.name == "schema"
    with pytest.warns(OntologyWarning, match="train: left out: there is no database for it"):
        assert load_ontology(tmp_path / "schema.json") == beside
    assert [domain.name for domain in load(tmp_path / "schema.json", other).domains] == ["train"]
    given = {"Train": other / "train_db.json", "attraction": str(tmp_path / "attraction_db.json")}
    assert load(tmp_path / "schema.json", given).domains == load().domains


def test_a_missing_database_can_be_drawn() -> None:
    ontology = load(databases={"train": TRAINS}, missing="draw")
    attraction, train = ontology.domains  # the hospital has no values to draw
    assert len(attraction.entities) == importer.DRAWN
    assert attraction.entities[0].name == "attraction 1"
    assert all(UNKNOWN not in entity.values for entity in attraction.entities)
    assert len(train.entities) == 8
    assert load(databases={"train": TRAINS}, missing="draw") == ontology
    assert load(databases={"train": TRAINS}, missing="draw", seed=1) != ontology
    assert load(databases=None, missing="draw", city="Cambridge").cities == ("Cambridge",)


def test_limits() -> None:
    restaurants = [{"name": f"r {k}", "food": f"food {min(k % 10, 6)}", "area": "ab"[k % 2]} for k in range(40)]
    schema = [{"service_name": "restaurant", "slots": [slot("restaurant-food", categorical=False), slot("restaurant-area", "a", "b")]}]
    cut = load(schema, {"restaurant": restaurants}, values=3, slots=1, entities=20)
    assert [one.name for one in cut.domains[0].slots] == ["food"]
    assert cut.domains[0].slots[0].values == ("food 6", "food 0", "food 2")
    assert [entity.name for entity in cut.domains[0].entities] == [f"r {2 * k}" for k in range(20)]
    assert sum(entity.values[0] == UNKNOWN for entity in cut.domains[0].entities) == 4
    assert len(cut.notes) == 3
    whole = load(schema, {"restaurant": restaurants})
    assert whole.sizes == (1, 1, 2, 7, 40)
    assert whole.notes == ()


def test_services_of_the_schema_guided_data_set() -> None:
    schema = [
        {
            "service_name": "Hotels_1",
            "description": "",
            "slots": [slot("star_rating", "1", "2", "3"), slot("has_wifi", "True", "False"), slot("place_name", categorical=False)],
            "intents": [{"name": "Reserve", "is_transactional": True, "required_slots": ["place_name"], "result_slots": ["place_name"]}],
        }
    ]
    hotels = [{"place_name": f"h{k}", "star_rating": 1 + k % 3, "has_wifi": bool(k % 2)} for k in range(6)]
    ontology = load(schema, {"Hotels_1": hotels})
    assert ontology.domains[0].name == "Hotels 1"
    assert [one.name for one in ontology.domains[0].slots] == ["star rating", "has wifi"]
    assert [entity.values for entity in ontology.domains[0].entities][:3] == [(0, 1), (1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("schema", "databases", "message"),
    [
        ([], DATABASES, "a schema-guided schema is a list of services"),
        ({}, DATABASES, "a schema-guided schema is a list of services"),
        ([{"name": "hotel"}], DATABASES, "a schema-guided schema is a list of services"),
        ([SCHEMA[0], 3], DATABASES, "schema: [1]: input should be a valid dictionary"),
        ([{"service_name": "x"}], DATABASES, "schema: [0]: the key 'slots' is missing"),
        ([{"service_name": "x", "slots": [{"name": 3}]}], DATABASES, "schema: [0]: slots[0].name: input should be a valid string, got 3"),
        ([{"service_name": "x", "slots": [slot("a", "b") | {"possible_values": [1]}]}], {}, "slots[0].possible_values[0]: input should be"),
        (SCHEMA, {"trian": TRAINS}, "databases: 'trian': no such service in schema; it has 'attraction', 'train', 'hospital'"),
        (SCHEMA, {"train": []}, "the database of train: the database is empty"),
        (SCHEMA, {"train": "none.json"}, "cannot read the file 'none.json'"),
        (SCHEMA, {"train": 3}, "the database of train must be the path of a JSON file or its content"),
        (SCHEMA, {"train": {"taxi_colors": []}}, "train: left out: the database of train is not a list of entities"),
        (SCHEMA, {"train": [1, 2]}, "no domain can be used; missing='draw' draws databases."),
        (SCHEMA, {"train": [{"trainID": "TR1"}]}, "train: left out: none of its slots can be used"),
        (SCHEMA, None, "hospital: left out: there is no database for it"),
        (SCHEMA, "nowhere", "'nowhere' is no folder; it must hold files such as hotel_db.json"),
        (SCHEMA, 3, "databases must be a folder or a mapping"),
        (SCHEMA * 40, DATABASES, "120 services; at most 100 are read"),
        (SCHEMA * 2, DATABASES, "domains: the same name twice: 'attraction'"),
    ],
)
def test_mistakes(schema: Any, databases: Any, message: str) -> None:
    fails(message, schema, databases)


def test_wrong_numbers() -> None:
    fails("slots must be an integer in [1, 12], got 0", slots=0)
    fails("values must be an integer in [2, 32], got 99", values=99)
    fails("entities must be an integer in [1, 1000], got 'all'", entities="all")
    fails("missing must be 'skip' or 'draw', got 'guess'", missing="guess")


def test_a_service_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "train_db.json").write_text(json.dumps(TRAINS))
    for name in ("../train", str(tmp_path / "train"), "..", ".", "a\0b", "../inside/../train"):
        schema = copy.deepcopy(SCHEMA[1:2])
        schema[0]["service_name"] = name[:60]
        fails("there is no database for it", schema, inside)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mutliple sports", "multiple sports", True),
        ("center", "centre", True),
        ("guesthouses", "guesthouse", True),
        ("museum", "musem", False),  # too short
        ("theatre", "theatre", False),  # no mistake
        ("eastern", "western", False),
        ("monday", "sunday", False),
        ("platform 1", "platform 2", False),
        ("abcdefg", "abcdxyg", False),
        ("abcdefgh", "abcdefg", True),
    ],
)
def test_misspelt(one: str, other: str, same: bool) -> None:
    assert misspelt(one, other) == misspelt(other, one) == same


@given(st.text("abcdefgh", min_size=6, max_size=12), st.data())
def test_one_edit_is_a_misspelling(word: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(word) - 1))
    letter = data.draw(st.sampled_from("abcdefgh"))
    edits = [word[:k] + letter + word[k:], word[:k] + letter + word[k + 1 :], word[:k] + word[k + 1 : k + 2] + word[k] + word[k + 2 :]]
    for edited in edits:
        assert misspelt(word, edited) == (word != edited)


def test_squashed() -> None:
    assert squash("Guest-House ") == squash("guesthouse") == squash("GUEST\u200dHOUSE") == "guesthouse"
    assert squash("?") == ""


TEXTS = st.sampled_from(
    ["a", "A ", "b", "?", "", "none", "x" * 200, "\u202e", "\u200d", "\n", "é", "1", "train", "train-day", "day"]
) | st.text(max_size=4)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.just([1])
    | st.just({"a": 1})
)


@given(
    st.lists(
        st.fixed_dictionaries({"name": TEXTS}, optional={"is_categorical": st.booleans(), "possible_values": st.lists(TEXTS, max_size=5)}),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=6),
    st.sampled_from(["skip", "draw"]),
)
@settings(deadline=None, max_examples=300)
def test_whatever_files_hold_is_an_ontology_or_an_error(slots: Any, rows: Any, missing: Any) -> None:
    schema = [{"service_name": name, "slots": slots} for name in ("train", "bus")]
    try:
        ontology = load(schema, {"train": rows}, missing=missing)
    except OntologyError:
        return
    assert load_ontology(ontology.to_dict()).domains == ontology.domains
    assert len(ontology.domains[0].entities) in (len(rows), importer.DRAWN)


@published
def test_multiwoz_as_published() -> None:
    with pytest.warns(
        OntologyWarning, match=r"restaurant: food: the 16 most frequent of 23 values are used; 7 entities have another"
    ) as caught:
        ontology = load_ontology(PUBLISHED / "schema.json")
    assert len(caught) == 1
    assert ontology.sizes == (1, 2, 6, 16, 110)
    hotel, restaurant = ontology.domains
    assert [one.name for one in hotel.slots] == ["pricerange", "type", "parking", "stars", "internet", "area"]
    assert [one.name for one in restaurant.slots] == ["pricerange", "area", "food"]
    assert restaurant.slots[0].refers == ((0, 0),) and restaurant.slots[1].refers == ((0, 5),)
    assert sum("left out: there is no database" in note for note in ontology.notes) == 6
    for name, domain in (("hotel", hotel), ("restaurant", restaurant)):
        rows = json.loads((PUBLISHED / f"{name}_db.json").read_text())
        assert [entity.name for entity in domain.entities] == [row["name"] for row in rows]
        for s, one in enumerate(domain.slots):
            for entity, row in zip(domain.entities, rows, strict=True):
                value = entity.values[s]
                assert value == UNKNOWN or one.values[value] == row[one.name]
                assert value != UNKNOWN or one.name == "food"
    assert (ontology.arrays().entity[0, 0, 33:] == UNKNOWN).all()
