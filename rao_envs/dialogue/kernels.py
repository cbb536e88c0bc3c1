"""The dialogue's dynamics: begin, talk, focus, spawn, return, observe, over a batch. Compiled; see `rao_envs.core.hooks`.

A trip has cities, a city has domains, and each domain one counterpart. A frame's scope is the trip, a city or a domain. What it knows is
what its window holds (`rao_envs.dialogue.window`). User turns are the hard budget: a frame has an allotment, fixed when it opens, that
covers everything below it; what is left goes home with the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit, lean
from rao_envs.dialogue.acts import AGENT, BOOK, CHILD, CONFIRM, COUNTERPART, KINDS, NONE, OFFER, RELAX, REQUEST, RESULT, SAME, THANK
from rao_envs.dialogue.generator import draw_trip
from rao_envs.dialogue.simulator import answer_offer, answer_request, answer_value, open_talk, to_blame
from rao_envs.dialogue.state import CERTAIN, STATUSES, DialogueState, whole
from rao_envs.dialogue.window import ground, hand_back, open_window, say, take_along

MOVED_CITY, MOVED_DOMAIN = 1, 2

MOST_TURNS = 12
"""Turns left are shown up to this number."""
MOST_SHARE = 4
"""And turns left for each domain that is open, up to this."""
MOST_MATCHES = 3
"""Entities that fit are counted up to this number."""


@inline
def acting(stack: CallStack, i: int) -> int:
    """The depth of the acting frame."""
    return whole(stack.episodes[i]["depth"])


@lean
def set_frame(frame: Any, results: npt.NDArray[np.int8], city: int, d: int, turns: int) -> None:
    """A new frame with that scope and allotment, and no results; its window is set apart."""
    frame["mark"] = 0
    frame["turns"] = turns
    frame["allotment"] = turns
    frame["city"] = city
    frame["domain"] = d
    frame["focus_city"] = city
    frame["focus"] = d
    frame["moved"] = 0
    frame["acted"] = False
    frame["left"] = False
    for k in range(len(results)):
        results[k] = 0


@jit
def begin(domain: DialogueState, stack: CallStack, i: int) -> None:
    """A new trip, and the root frame. If there is but one city, the root is that city's frame."""
    draw_trip(domain, i, stack.rng[i])
    only = NONE
    several = False
    for city in range(domain.want.shape[1]):
        for d in range(domain.want.shape[2]):
            if domain.party[i, city, d]["active"]:
                several = several or (only >= 0 and only != city)
                only = city
    root, scope = whole(0), whole(NONE) if several else whole(only)
    open_window(domain.frames[i, root], domain.acts[i, root])
    set_frame(domain.frames[i, root], domain.results[i, root], scope, whole(NONE), whole(domain.rules[0]["turns"]))
    ground(domain, i, root)


@inline
def may_talk(domain: DialogueState, i: int, depth: int, action: int) -> bool:
    """Whether the frame may take this act towards the counterpart in focus."""
    frame, rules = domain.frames[i, depth], domain.rules[0]
    if frame["focus"] < 0:
        return False
    if action == rules["book"]:
        return frame["candidate"] >= 0
    if frame["turns"] <= 0:
        return False
    if action == rules["offer"]:
        return frame["candidate"] >= 0 and frame["accepted"] < 0
    slots = domain.slots_of[frame["focus"]]
    if action < rules["confirm"]:
        return action < slots
    giving_up = action >= rules["relax"]
    slot = action - (rules["relax"] if giving_up else rules["confirm"])
    if slot >= slots:
        return False
    belief = domain.beliefs[i, depth, slot]
    if belief["said"] == NONE:
        return False
    if giving_up:
        return frame["matches"] == 0 and frame["accepted"] < 0
    return belief["status"] != CERTAIN


@inline
def allowed(domain: DialogueState, stack: CallStack, i: int, action: int) -> bool:
    """Talk where somebody is in focus; a focus, but not right after another; spawns for what is open and waits for nothing.

    A frame that has done nothing yet may not return, and only what costs no turn is left once the turns are gone.
    """
    depth = acting(stack, i)
    frame, rules = domain.frames[i, depth], domain.rules[0]
    if action <= rules["book"]:
        return may_talk(domain, i, depth, action)
    if action == rules["leave"]:
        return depth > 0 and frame["acted"]
    if frame["domain"] >= 0 or frame["turns"] <= 0:
        return False
    cities, domains = domain.want.shape[1], domain.want.shape[2]
    spawns = action >= rules["spawn"]
    which = action - (rules["spawn"] if spawns else rules["focus"])
    if which < domains:
        ready = frame["ready"] >> which & 1 == 1
        return ready and (spawns or (frame["moved"] != MOVED_DOMAIN and which != frame["focus"]))
    which -= domains
    if which < cities:
        unfinished = frame["city"] < 0 and frame["open_cities"] >> which & 1 == 1
        return unfinished and (spawns or (frame["moved"] == 0 and which != frame["focus_city"]))
    return frame["turns"] >= frame["n_open"] and (frame["open_cities"] if frame["city"] < 0 else frame["ready"]) != 0


@inline
def focus_on(domain: DialogueState, i: int, depth: int, which: int) -> None:
    """Turn to a domain, or to a city; a counterpart that is met for the first time says its opening."""
    frame = domain.frames[i, depth]
    domains = domain.want.shape[2]
    if which >= domains:
        frame["focus_city"] = which - domains
        frame["focus"] = NONE
        frame["moved"] = MOVED_CITY
        return
    frame["focus"] = which
    frame["moved"] = MOVED_DOMAIN
    city = whole(frame["focus_city"])
    party = domain.party[i, city, which]
    open_talk(domain, i, depth, city, which)
    party["met"] = True
    party["count"] += 1


@inline
def book(domain: DialogueState, stack: CallStack, i: int, depth: int, city: int, d: int) -> None:
    """Book the candidate: for good, right or wrong."""
    frame = domain.frames[i, depth]
    e = whole(frame["candidate"])
    party = domain.party[i, city, d]
    party["right"] = to_blame(domain, i, city, d, e) < 0
    party["entity"] = e
    if party["right"]:
        domain.place[i]["right"] += 1
    else:
        domain.place[i]["wrong"] += 1
        if depth > 0:  # the root's score is the task's reward
            stack.frames[i, depth]["score"] -= 1.0
    stack.frames[i, depth]["value"] += 1.0
    say(frame, domain.acts[i, depth], whole(BOOK), whole(AGENT), city, d, whole(NONE), whole(NONE), e)
    say(frame, domain.acts[i, depth], whole(THANK), whole(COUNTERPART), city, d, whole(NONE), whole(NONE), whole(NONE))
    if frame["domain"] < 0:
        frame["focus"] = NONE


@inline
def talk(domain: DialogueState, i: int, depth: int, city: int, d: int, action: int) -> None:
    """Ask, confirm, offer or negotiate: one user turn."""
    frame, rules = domain.frames[i, depth], domain.rules[0]
    frame["turns"] -= 1
    kind, slot, value, entity = whole(REQUEST), whole(action), whole(NONE), whole(NONE)
    if action == rules["offer"]:
        kind, slot, entity = whole(OFFER), whole(NONE), whole(frame["candidate"])
    elif action >= rules["confirm"]:
        kind = whole(RELAX) if action > rules["offer"] else whole(CONFIRM)
        slot = action - (rules["relax"] if action > rules["offer"] else rules["confirm"])
        value = whole(domain.beliefs[i, depth, slot]["said"])
    say(frame, domain.acts[i, depth], kind, whole(AGENT), city, d, slot, value, entity)
    if kind == REQUEST:
        answer_request(domain, i, depth, city, d, slot)
    elif kind == OFFER:
        answer_offer(domain, i, depth, city, d, entity)
    else:
        answer_value(domain, i, depth, city, d, slot, value, kind == RELAX)


@inline
def take_action(domain: DialogueState, stack: CallStack, i: int, depth: int, action: int) -> None:
    """Apply an allowed primitive action in the frame at `depth`."""
    frame, rules = domain.frames[i, depth], domain.rules[0]
    if action == rules["leave"]:
        frame["left"] = True
        return
    if action >= rules["focus"]:
        focus_on(domain, i, depth, action - rules["focus"])
    else:
        frame["moved"] = 0
        frame["acted"] = True
        city, d = whole(frame["focus_city"]), whole(frame["focus"])
        party = domain.party[i, city, d]
        party["met"] = True
        party["count"] += 1
        if action == rules["book"]:
            book(domain, stack, i, depth, city, d)
        else:
            talk(domain, i, depth, city, d, action)
    ground(domain, i, depth)


@inline
def act(domain: DialogueState, stack: CallStack, i: int, action: int) -> None:
    """Talk, book, focus or give up."""
    take_action(domain, stack, i, acting(stack, i), whole(action))


@inline
def group_of(domain: DialogueState, i: int, depth: int, action: int) -> int:
    """Bits of the domains, or of the cities (`opens_cities`), that the allowed spawn `action` opens in the frame at `depth`."""
    frame = domain.frames[i, depth]
    which = whole(action - domain.rules[0]["spawn"])
    cities, domains = domain.want.shape[1], domain.want.shape[2]
    if which < domains:
        return 1 << which
    if which < domains + cities:
        return 1 << (which - domains)
    return whole(frame["open_cities"]) if frame["city"] < 0 else whole(frame["ready"])


@inline
def opens_cities(domain: DialogueState, i: int, depth: int, action: int) -> bool:
    """Whether that spawn opens cities: in the frame of a trip all do but those for a domain."""
    return domain.frames[i, depth]["city"] < 0 and action - domain.rules[0]["spawn"] >= domain.want.shape[2]


@inline
def fanout(domain: DialogueState, stack: CallStack, i: int, action: int) -> int:
    """One; of `spawn_all` all cities of a trip that are not done, or all domains of a city that wait for nothing."""
    bits = group_of(domain, i, acting(stack, i), whole(action))
    found = 0
    while bits:
        bits &= bits - 1
        found += 1
    return found


@lean
def count_open(party: npt.NDArray[Any]) -> int:
    """Domains of a city, PARTY (D,), that have yet to be booked."""
    found = 0
    for d in range(len(party)):
        if party[d]["active"] and party[d]["entity"] < 0:
            found += 1
    return found


@inline
def share_turns(domain: DialogueState, i: int, depth: int, action: int) -> None:
    """Whom the frame at `depth` spawns with `action`, and how the turns are shared: by the number of domains to book.

    A child gets the part of its parent's turns that its domains are of all that the parent has yet to book, rounded up; of several, so that
    they never get more than there is. The rest stays with the parent.
    """
    frame = domain.frames[i, depth]
    group, cities = group_of(domain, i, depth, action), opens_cities(domain, i, depth, action)
    everybody = max(1, frame["n_open"])
    k, before, given = 0, 0, 0
    for which in range(domain.want.shape[1] if cities else domain.want.shape[2]):
        if group >> which & 1:
            before += count_open(domain.party[i, which]) if cities else 1
            parts = (frame["turns"] * before + everybody - 1) // everybody
            domain.shares[i, depth, k]["which"] = which
            domain.shares[i, depth, k]["turns"] = parts - given
            given = parts
            k += 1


@lean
def make_child(domain: DialogueState, i: int, depth: int, action: int, k: int) -> int:
    """Set the record of child `k` at depth + 1: scope, turns, window. Returns the environment steps it wants.

    All is fixed by what its parent had when it spawned, and so blind to what siblings do.
    """
    frame, child = domain.frames[i, depth], whole(depth + 1)
    if k == 0:  # asked before anything has come of the spawn
        frame["mark"] = frame["said"]
        share_turns(domain, i, depth, action)
    which, turns = whole(domain.shares[i, depth, k]["which"]), whole(domain.shares[i, depth, k]["turns"])
    if opens_cities(domain, i, depth, action):
        city, d, domains = which, whole(NONE), count_open(domain.party[i, which])
    else:
        city, d, domains = whole(frame["focus_city"]), which, 1
    set_frame(domain.frames[i, child], domain.results[i, child], city, d, turns)
    take_along(domain, i, depth, city, d)
    if d >= 0:
        open_talk(domain, i, child, city, d)
    ground(domain, i, child)
    return steps_for(turns, domains)


@inline
def steps_for(turns: int, domains: int) -> int:
    """Environment steps for so many user turns and bookings.

    Besides each turn a focus on a city and a domain, or a spawn and a return, and some to spare.
    """
    return 5 * turns + 2 * domains + 3


@inline
def open_child(domain: DialogueState, stack: CallStack, i: int, action: int, k: int) -> int:
    """A sub-dialogue about a domain, or a city."""
    return make_child(domain, i, acting(stack, i), whole(action), whole(k))


@inline
def resolve(domain: DialogueState, stack: CallStack, i: int) -> int:
    """The end: all of the scope is booked (success if it is right), the frame gives up, or it has neither turns nor anything to book."""
    frame = domain.frames[i, acting(stack, i)]
    if frame["n_open"] == 0:
        return SUCCESS if frame["all_right"] else FAILURE
    if frame["left"] or (frame["turns"] <= 0 and frame["candidate"] < 0):
        return FAILURE
    return RUNNING


@lean
def take_result(domain: DialogueState, i: int, depth: int) -> None:
    """What a child brings home: its unused turns, and one act (all is booked), or what it knows."""
    child, frame = domain.frames[i, depth + 1], domain.frames[i, depth]
    city, d = whole(child["city"]), whole(child["domain"])
    frame["turns"] -= child["allotment"] - child["turns"]
    frame["moved"] = 0
    frame["acted"] = True
    entity = whole(NONE)
    if d >= 0:
        party = domain.party[i, city, d]
        party["met"] = True  # even if the child had no time for more than to listen,
        party["count"] += 1  # which `DialogueDomain.merge` has to see, or a detached city forgets it
        entity = whole(party["entity"])
        booked = entity >= 0
    else:
        booked = count_open(domain.party[i, city]) == 0
    if booked:
        say(frame, domain.acts[i, depth], whole(RESULT), whole(CHILD), city, d, whole(NONE), whole(NONE), entity)
    else:
        hand_back(domain, i, depth, city, d)
    if frame["focus"] >= 0 and domain.party[i, frame["focus_city"], frame["focus"]]["entity"] >= 0:
        frame["focus"] = NONE  # a child has booked what was talked about here
    domain.results[i, depth, d if d >= 0 else domain.want.shape[2] + city] = 1 if booked else -1
    ground(domain, i, depth)


@inline
def receive(domain: DialogueState, stack: CallStack, i: int, success: bool) -> None:
    """Take in what the child brings; whether it is right is not said."""
    depth = acting(stack, i)
    stack.frames[i, depth]["value"] += stack.frames[i, depth + 1]["value"]
    take_result(domain, i, depth)


@inline
def progress(domain: DialogueState, stack: CallStack, i: int) -> float:
    """Share of the domains that are booked rightly, less those booked wrongly: what is booked stays booked, so that each counts once."""
    place = domain.place[i]
    return (place["right"] - place["wrong"]) / max(1, place["active"])


@inline
def mark_act(act: Any, frame: Any, task: npt.NDArray[np.int8], at: int, domains: int, slots: int, values: int) -> None:
    """Write an act from place `at` of an observation on; `frame` is the one that sees it."""
    task[at + act["kind"] - 1] = 1
    at += KINDS - 1
    task[at] = act["sure"]
    task[at + 1] = 1 if act["speaker"] == CHILD else 0
    here = act["city"] == frame["focus_city"]
    task[at + 2] = 1 if here else 0
    task[at + 3] = 1 if here and act["domain"] == frame["focus"] else 0
    at += 4
    if act["domain"] >= 0:
        task[at + act["domain"]] = 1
    at += domains
    if act["slot"] >= 0:
        task[at + act["slot"]] = 1
    at += slots
    if act["value"] >= 0:
        task[at + act["value"]] = 1
    elif act["value"] == SAME:
        task[at + values] = 1


@inline
def write_task(domain: DialogueState, task: npt.NDArray[np.int8], i: int, depth: int) -> None:
    """Write the observation of the frame at `depth` into `task`, int8 (fields,)."""
    frame = domain.frames[i, depth]
    cities, domains, slots = domain.want.shape[1], domain.want.shape[2], domain.want.shape[3]
    values, window = whole(domain.rules[0]["values"]), whole(domain.rules[0]["window"])
    for k in range(len(task)):
        task[k] = 0
    at, width, places = 0, KINDS + 4 + domains + slots + values, domain.acts.shape[2]
    given = whole(frame["given"])
    for k in range(given):
        mark_act(domain.given[i, depth, k], frame, task, (window - 1 - k) * width, domains, slots, values)
    for age in range(min(window - given, frame["said"])):
        mark_act(domain.acts[i, depth, (frame["said"] - 1 - age) & (places - 1)], frame, task, age * width, domains, slots, values)
    at = window * width
    if frame["focus"] >= 0:
        for s in range(domain.slots_of[frame["focus"]]):
            task[at + s * STATUSES + domain.beliefs[i, depth, s]["status"]] = 1
    at += slots * STATUSES
    if frame["matches"] >= 0:
        task[at + min(frame["matches"], MOST_MATCHES)] = 1
    at += MOST_MATCHES + 1
    task[at] = 1 if frame["candidate"] >= 0 else 0
    task[at + 1] = 1 if frame["accepted"] >= 0 else 0
    at += 2
    task[at + min(frame["turns"], MOST_TURNS)] = 1
    at += MOST_TURNS + 1
    task[at + min(frame["turns"] // max(1, frame["n_open"]), MOST_SHARE)] = 1
    at += MOST_SHARE + 1
    if frame["focus"] >= 0:
        task[at + frame["focus"]] = 1
    at += domains
    for d in range(domains):
        task[at + d] = frame["open"] >> d & 1
        task[at + domains + d] = frame["ready"] >> d & 1
        task[at + 2 * domains + d] = frame["booked"] >> d & 1
        task[at + 3 * domains + d] = frame["refers"] >> d & 1
        task[at + 4 * domains + d] = frame["linked"] >> d & 1
    at += 5 * domains
    if frame["focus_city"] >= 0:
        task[at + frame["focus_city"]] = 1
    at += cities
    for city in range(cities):
        task[at + city] = frame["open_cities"] >> city & 1


@inline
def observe(domain: DialogueState, stack: CallStack, obs: Observation, i: int) -> None:
    """The window and what follows from it: bits, in `DialogueDomain.fields`' order."""
    depth = acting(stack, i)
    write_task(domain, obs.task[i], i, depth)
    for k in range(obs.results.shape[1]):
        obs.results[i, k] = domain.results[i, depth, k]


implement(
    DialogueState,
    begin=begin,
    allowed=allowed,
    act=act,
    fanout=fanout,
    open_child=open_child,
    resolve=resolve,
    receive=receive,
    observe=observe,
    progress=progress,
)
