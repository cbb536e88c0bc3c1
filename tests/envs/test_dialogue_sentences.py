"""Acts and goals in words."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rao_envs.dialogue import acts
from rao_envs.dialogue.goals import load_goals
from rao_envs.dialogue.ontology import load_ontology, trip_ontology
from rao_envs.dialogue.sentences import ANYTHING, describe_trip, entity_name, say, wish

TRIP = trip_ontology()
HOTEL, TRAIN = 1, 0


def act(kind: int, **fields: int) -> Any:
    record = np.zeros((), acts.ACT)
    record["kind"] = kind
    for name in ("slot", "value", "entity"):
        record[name] = acts.NONE
    record["domain"] = HOTEL
    for name, field in fields.items():
        record[name] = field
    return record


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (act(acts.NOTHING), ""),
        (act(acts.REQUEST, slot=0), "On which day do you arrive?"),
        (act(acts.CONFIRM, slot=0, value=3), "You arrive on Monday, is that right?"),
        (act(acts.CONFIRM, slot=0, value=acts.SAME), "So the day should be the same as what was booked before?"),
        (act(acts.CONFIRM, slot=0), "What about the day?"),
        (act(acts.OFFER, entity=6), "There is a room in the Old Mill. Shall I take it?"),
        (act(acts.OFFER), "There is a room in the that. Shall I take it?"),
        (act(acts.RELAX, slot=1, value=0), "Nothing cheap is left. Would another price do?"),
        (act(acts.RELAX, slot=1), "Nothing fits. Could the price be another?"),
        (act(acts.BOOK, entity=6), "Your room in the Old Mill is booked."),
        (act(acts.INFORM, speaker=acts.COUNTERPART, slot=2, value=1), "I would like to stay near the harbour."),
        (act(acts.INFORM, speaker=acts.COUNTERPART, slot=0, value=acts.SAME), "The same day as what was booked before, please."),
        (act(acts.INFORM, speaker=acts.CHILD, slot=2, value=1), "Not booked yet. As to the area: harbour."),
        (act(acts.ANY, speaker=acts.COUNTERPART, slot=3), "Any type will do."),
        (act(acts.YES, speaker=acts.COUNTERPART, slot=0, value=0), "Yes, Friday."),
        (act(acts.YES, speaker=acts.COUNTERPART), None),
        (act(acts.CORRECT, speaker=acts.COUNTERPART, slot=0, value=0), "No. I arrive on Friday."),
        (act(acts.ACCEPT, speaker=acts.COUNTERPART, entity=6), "Yes, Old Mill is right for me."),
        (act(acts.REJECT, speaker=acts.COUNTERPART, entity=6, slot=1), "No, not Old Mill, because of the price."),
        (act(acts.REJECT, speaker=acts.COUNTERPART, entity=6), "No, not Old Mill."),
        (act(acts.AGREE, speaker=acts.COUNTERPART, slot=1), "All right, never mind the price."),
        (act(acts.REFUSE, speaker=acts.COUNTERPART, slot=1, value=0), "No, it has to be cheap."),
        (act(acts.RESULT, speaker=acts.CHILD, entity=6), "The hotel in Lisbon: Old Mill."),
        (act(acts.RESULT, speaker=acts.CHILD), "The hotel in Lisbon: nothing is booked."),
        (act(acts.RESULT, speaker=acts.CHILD, domain=acts.NONE, city=1), "Everything in Bergen is booked."),
        (act(acts.GREET), "Let us talk about the hotel in Lisbon."),
        (act(acts.THANK, speaker=acts.COUNTERPART), "Thank you, that is all."),
    ],
)
def test_sentences(record: Any, sentence: str | None) -> None:
    if sentence is None:
        with pytest.raises(ValueError, match="no slot is -1; there are 4"):
            say(record, TRIP)
    else:
        assert say(record, TRIP) == sentence


def test_what_a_reference_means() -> None:
    assert say(act(acts.INFORM, slot=0, value=acts.SAME), TRIP, TRAIN) == "The same day as the train, please."
    assert say(act(acts.YES, slot=0, value=acts.SAME), TRIP, TRAIN) == "Yes, the same as the train."
    assert wish(TRIP, HOTEL, 0, 1) == "day: Saturday"
    assert wish(TRIP, HOTEL, 0, acts.SAME, TRAIN) == "day: the same as the train"
    assert wish(TRIP, HOTEL, 0, acts.SAME) == f"day: the same as {ANYTHING}"


INDEX = st.integers(-3, 10)


@given(st.integers(-2, acts.KINDS + 1), st.integers(0, 2), INDEX, INDEX, INDEX, INDEX, INDEX)
@settings(deadline=None)
def test_every_act_is_a_sentence_or_names_a_wrong_index(
    kind: int, speaker: int, city: int, domain: int, slot: int, value: int, entity: int
) -> None:
    record = act(kind, speaker=speaker, city=city, domain=domain, slot=slot, value=value, entity=entity)
    inside = 0 < kind < acts.KINDS and 0 <= city < 4 and 0 <= domain < 8 and 0 <= slot < 4 and -2 <= value < 4 and entity >= -1
    if not inside:  # says what it can, or what is wrong
        with contextlib.suppress(ValueError):
            say(record, TRIP)
        return
    text = say(record, TRIP)
    assert "{" not in text and "  " not in text
    assert text[0].isupper() and text[-1] in ".?"


def test_what_files_call_things_is_never_a_template() -> None:
    values = ["{entity}", "{value.__class__}", "{0}", "%s"]
    slots = [{"name": "{value}", "values": values, "question": "Which {slot}?"}]
    entities = [{"name": "{city}", "values": {"{value}": "{entity}"}}]
    odd = load_ontology({"version": 1, "domains": [{"name": "{slot}", "slots": slots, "entities": entities}]})
    assert say(act(acts.REQUEST, domain=0, slot=0), odd) == "Which {value}?"
    assert say(act(acts.INFORM, domain=0, slot=0, value=1), odd) == "As for the {value}: {value.__class__}, please."
    assert say(act(acts.OFFER, domain=0, entity=0), odd) == "How about {city}?"
    assert say(act(acts.RESULT, domain=0, entity=0), odd) == "The {slot}: {city}."


def test_entities_beyond_the_names_that_there_are() -> None:
    assert entity_name(TRIP, 2, HOTEL, 6) == "Old Mill"
    assert entity_name(TRIP, 2, HOTEL, 14) == "Old Mill (2)"
    with pytest.raises(ValueError, match="no entity is -1"):
        entity_name(TRIP, 2, HOTEL, -1)


def test_trips() -> None:
    wanted = [
        {"domain": "hotel", "constraints": {"day": {"same_as": "train"}, "price": "cheap", "type": "hotel"}, "flexible": ["price", "type"]},
        {"domain": "train", "constraints": {"day": "Friday"}},
    ]
    goals = load_goals([{"stops": [{"city": "Bergen", "domains": wanted}]}], TRIP)
    assert describe_trip(goals.trips[0], TRIP) == [
        "Train in Bergen: I want to travel on Friday.",
        (
            "Hotel in Bergen: The same day as the train, please. The room should be cheap. I would like a hotel. "
            "If there is nothing like that, never mind the price or the type."
        ),
    ]
