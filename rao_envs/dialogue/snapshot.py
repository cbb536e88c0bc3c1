"""From the state of an environment to the plain view that is drawn."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rao_envs.core.history import History
from rao_envs.dialogue import acts
from rao_envs.dialogue.acts import ACT, NONE
from rao_envs.dialogue.ontology import Ontology
from rao_envs.dialogue.sentences import entity_name, say, wish
from rao_envs.dialogue.state import DialogueState
from rao_envs.dialogue.transcript import Talk, Transcript
from rao_envs.dialogue.view import (
    AGENT,
    COUNTERPART,
    RESULT,
    ActView,
    DialogueFrameView,
    DialogueView,
    FinishedView,
    ItemView,
    OptionView,
    WishView,
)

SPEAKER_OF = {acts.AGENT: AGENT, acts.COUNTERPART: COUNTERPART, acts.CHILD: RESULT}


class DialogueLike(Protocol):
    """What `snapshot` needs of an environment."""

    batch: Any
    domain: Any
    history: History | None
    render_mode: str | None
    action_names: tuple[str, ...]

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed now."""


class Names:
    """What the parts of the running trip are called."""

    def __init__(self, ontology: Ontology, state: DialogueState) -> None:
        self.ontology, self.state = ontology, state
        party = state.party[0]  # (C, D)
        self.places = [(c, d) for c in range(party.shape[0]) for d in range(party.shape[1]) if party["active"][c, d]]
        self.cities = sorted({c for c, _ in self.places})

    def domain(self, d: int) -> str:
        """A domain as a heading."""
        return capital(self.ontology.domains[d].name)

    def place(self, city: int, d: int) -> str:
        """A counterpart by what it is about; its city where there are several."""
        where = f" in {self.ontology.cities[city]}" if len(self.cities) > 1 else ""
        return self.domain(d) + where

    def title(self, city: int, d: int) -> str:
        """A counterpart's matter in the middle of a sentence."""
        where = f" in {self.ontology.cities[city]}" if len(self.cities) > 1 else ""
        return self.ontology.domains[d].title + where

    def trip(self) -> str:
        """The whole trip."""
        names = [self.ontology.cities[c] for c in self.cities]
        return "Trip to " + (f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0])

    def scope(self, talk: Talk) -> str:
        """What a frame is about, as a heading."""
        city, domain = talk.scope
        if talk.depth == 0:
            return self.trip()
        return self.place(city, domain) if domain != NONE else self.ontology.cities[city]

    def right(self, city: int, d: int) -> bool:
        """Whether what is booked of a domain, or with NONE of all in a city, is right."""
        return all(bool(self.state.party[0, c, o]["right"]) for c, o in self.places if c == city and d in (o, NONE))

    def act(self, act: Any) -> str:
        """An act as a sentence."""
        return say(act, self.ontology, self.other(act))

    def other(self, act: Any) -> int:
        """The domain whose booking a chained reference means; NONE."""
        if int(act["value"]) != acts.SAME:
            return NONE
        return int(self.state.refer[0, int(act["city"]), int(act["domain"]), int(act["slot"])])


def snapshot(env: DialogueLike) -> DialogueView:
    """The running episode of an environment as its pictures show it.

    Args:
        env: a `DialogueEnv` with a render mode. Goals, misheard acts and whether a booking is right stay hidden until the end where the
            mode is "ansi": that is how a person plays.
    """
    batch, history = env.batch, env.history
    assert isinstance(history, Transcript)
    names = Names(env.domain.ontology, batch.state)
    over = bool(batch.done[0])
    depth = int(batch.stack.episodes["depth"][0])
    frames = batch.state.frames[0, : depth + 1]
    spent = (frames["allotment"] - frames["turns"]).tolist()
    left = [int(frames["turns"][k]) - sum(spent[k + 1 :]) for k in range(depth + 1)]  # a parent pays when its child returns
    acting = frames[depth]
    current = (-1, -1) if over else (int(acting["focus_city"]), int(acting["focus"]))
    allowed = () if over else tuple(int(k) for k in env.action_masks().nonzero()[0])
    return DialogueView(
        stack=tuple(_frame_view(names, history.talk(k), k, max(0, left[k])) for k in range(depth + 1)),
        items=tuple(_item_view(names, city, d, (city, d) == current) for city, d in names.places),
        window=int(batch.state.rules["window"][0]),
        turns_left=max(0, left[0]),
        turns=int(frames["allotment"][0]),
        episode=history.view(env.domain.name),
        options=tuple(OptionView(k, env.action_names[k], explain(names, depth, k)) for k in allowed),
        revealed=env.render_mode != "ansi",
        source="" if env.domain.drawn else env.domain.ontology.name,
    )


def _frame_view(names: Names, talk: Talk, depth: int, left: int) -> DialogueFrameView:
    frame, (city, domain) = names.state.frames[0, depth], talk.scope
    focus_city, focus, focused = int(frame["focus_city"]), int(frame["focus"]), ""
    if domain == NONE and focus != NONE:
        focused = names.place(focus_city, focus) if city == NONE else names.domain(focus)
    elif city == NONE and focus_city != NONE:
        focused = names.ontology.cities[focus_city]
    return DialogueFrameView(
        depth=depth,
        title=names.scope(talk),
        acts=act_views(names, talk),
        held=talk.held,
        turns_left=left,
        turns=int(frame["allotment"]),
        focus=focused,
        given=tuple(act_view(names, act, city, domain, True) for act in names.state.given[0, depth, : frame["given"]]),
        missing=talk.missing,
        finished=tuple(
            FinishedView(child.depth, names.scope(child), act_views(names, child)[child.carried :], place) for place, child in talk.children
        ),
    )


def act_views(names: Names, talk: Talk) -> tuple[ActView, ...]:
    """All that was said in a frame."""
    return tuple(act_view(names, act, *talk.scope, k < talk.carried) for k, act in enumerate(talk.acts))


def act_view(names: Names, act: Any, city: int, domain: int, carried: bool) -> ActView:
    """One act in the window of a frame whose scope is `domain` of `city`, either of which may be NONE: several."""
    speaker, kind = SPEAKER_OF[int(act["speaker"])], int(act["kind"])
    about = ""
    if speaker != RESULT and domain == NONE and int(act["domain"]) != NONE:
        about = names.domain(int(act["domain"])) if city != NONE else names.place(int(act["city"]), int(act["domain"]))
    meant = ""
    if kind == acts.INFORM and act["truth"] not in (act["value"], NONE):
        truth = act.copy()
        truth["value"] = truth["truth"]
        meant = names.act(truth)
    good = names.right(int(act["city"]), int(act["domain"])) if kind == acts.RESULT else None
    return ActView(speaker, names.act(act), bool(act["sure"]), meant, carried, about, good)


def explain(names: Names, depth: int, action: int) -> str:
    """What an allowed action does in the frame at `depth`, as a person would say it."""
    state, frame = names.state, names.state.frames[0, depth]
    rules = state.rules[0]
    if action >= rules["focus"]:
        return _explain_move(names, frame, action)
    if action == rules["leave"]:
        return "Give up, and go back with what is known."
    city, domain, entity = int(frame["focus_city"]), int(frame["focus"]), int(frame["candidate"])
    if action == rules["book"]:
        accepted = " (accepted)" if frame["accepted"] == entity else ""
        return f"Book {entity_name(names.ontology, city, domain, entity)} for good{accepted}."
    act = np.zeros((), ACT)
    act["city"], act["domain"], act["slot"], act["value"], act["entity"] = city, domain, NONE, NONE, NONE
    if action == rules["offer"]:
        act["kind"], act["entity"] = acts.OFFER, entity
        return names.act(act) + (f" (the first of {frame['matches']} that fit)" if frame["matches"] > 1 else "")
    if action < rules["confirm"]:
        act["kind"], act["slot"] = acts.REQUEST, action
    else:
        relaxes = action >= rules["relax"]
        act["kind"], act["slot"] = (acts.RELAX, action - rules["relax"]) if relaxes else (acts.CONFIRM, action - rules["confirm"])
        act["value"] = state.beliefs[0, depth, int(act["slot"])]["said"]
    return names.act(act)


def _explain_move(names: Names, frame: Any, action: int) -> str:
    """What turning to something, or spawning, does in `frame`."""
    rules = names.state.rules[0]
    cities, domains = names.state.entities_of.shape
    spawns = action >= rules["spawn"]
    which = action - int(rules["spawn" if spawns else "focus"])
    if which >= domains + cities:
        return "Open a sub-dialogue for " + ("every city." if frame["city"] == NONE else "all that waits for nothing.")
    what = names.title(int(frame["focus_city"]), which) if which < domains else names.ontology.cities[which - domains]
    return f"Open a sub-dialogue about {what}." if spawns else f"Talk about {what} here."


def _item_view(names: Names, city: int, d: int, current: bool) -> ItemView:
    state, ontology = names.state, names.ontology
    party, wants = state.party[0, city, d], state.want[0, city, d]
    wishes = tuple(
        WishView(wish(ontology, d, slot, int(value), int(state.refer[0, city, d, slot])), bool(party["dropped"] >> slot & 1))
        for slot, value in enumerate(wants)
        if value != NONE
    )
    entity = int(party["entity"])
    others = sorted({int(other) for other in state.refer[0, city, d] if other != NONE})
    return ItemView(
        city=ontology.cities[city] if len(names.cities) > 1 else "",
        title=names.domain(d),
        wishes=wishes,
        booked=entity_name(ontology, city, d, entity) if entity != NONE else "",
        right=bool(party["right"]) if entity != NONE else None,
        waits_for=tuple(names.domain(o) for o in others if state.party[0, city, o]["entity"] == NONE),
        current=current,
    )


def capital(text: str) -> str:
    """`text` with a capital first letter."""
    return text[:1].upper() + text[1:]
