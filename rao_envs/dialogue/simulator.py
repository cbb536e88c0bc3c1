"""The counterparts: agenda-based simulated users (Schatzmann et al. 2007), one per domain and city. Compiled.

A counterpart has a goal, knows what it has told, and answers every act of the agent by rule and chance. Chance comes from a random
stream of its own, so that it says the same whichever frame talks to it, and whatever goes on elsewhere.
"""

from __future__ import annotations

from rao_envs.core.jit import inline, lean
from rao_envs.core.rng import below, uniform
from rao_envs.dialogue.acts import (
    ACCEPT,
    AGENT,
    AGREE,
    ANY,
    CORRECT,
    COUNTERPART,
    GREET,
    NONE,
    REFUSE,
    REJECT,
    SAME,
    YES,
)
from rao_envs.dialogue.generator import hear
from rao_envs.dialogue.state import DialogueState, database, wanted, whole
from rao_envs.dialogue.window import say, say_heard

MORE = 0.3
"""How often a counterpart that answers a question adds a wish that it has not told yet."""


@lean
def open_talk(domain: DialogueState, i: int, depth: int, city: int, d: int) -> None:
    """The agent turns to a counterpart, which, if this is the first time, says its opening; into the window of the frame at `depth`."""
    frame, ring = domain.frames[i, depth], domain.acts[i, depth]
    say(frame, ring, whole(GREET), whole(AGENT), city, d, whole(NONE), whole(NONE), whole(NONE))
    if domain.party[i, city, d]["met"]:
        return
    for s in range(domain.slots_of[d]):
        heard = domain.opening[i, city, d, s]
        if heard["value"] != NONE:
            value, sure, want = whole(heard["value"]), whole(heard["sure"]), whole(domain.want[i, city, d, s])
            say_heard(frame, ring, city, d, whole(s), value, sure, want)


@inline
def inform(domain: DialogueState, i: int, depth: int, city: int, d: int, slot: int, want: int) -> None:
    """The counterpart tells a wish, through the noise."""
    value, sure = hear(domain.rules[0], domain.noise[i, city, d], whole(domain.values_of[d, slot]), want)
    domain.party[i, city, d]["told"] |= 1 << slot
    say_heard(domain.frames[i, depth], domain.acts[i, depth], city, d, slot, value, sure, want)


@inline
def next_wish(domain: DialogueState, i: int, city: int, d: int) -> int:
    """The first wish on the agenda: one that was not told yet, or NONE."""
    for s in range(domain.slots_of[d]):
        if not domain.party[i, city, d]["told"] >> s & 1 and wanted(domain, i, city, d, s) != NONE:
            return whole(s)
    return whole(NONE)


@inline
def answer_request(domain: DialogueState, i: int, depth: int, city: int, d: int, slot: int) -> None:
    """Tell the wish on `slot`, or that there is none; sometimes add another, the first on the agenda."""
    for extra in range(2):
        want = wanted(domain, i, city, d, slot)
        if want == NONE:
            frame, ring = domain.frames[i, depth], domain.acts[i, depth]
            say(frame, ring, whole(ANY), whole(COUNTERPART), city, d, slot, whole(NONE), whole(NONE))
        else:
            inform(domain, i, depth, city, d, slot, want)
        if extra == 0 and uniform(domain.noise[i, city, d]) >= MORE:
            return
        slot = next_wish(domain, i, city, d)
        if slot < 0:
            return


@inline
def answer_value(domain: DialogueState, i: int, depth: int, city: int, d: int, slot: int, value: int, giving_up: bool) -> None:
    """To "should it be that?", or (`giving_up`) "could you do without?": yes, or what it is; here nothing is misheard.

    A wish is given up only where the counterpart is flexible, and stays given up.
    """
    party = domain.party[i, city, d]
    want = wanted(domain, i, city, d, slot)
    party["told"] |= 1 << slot
    kind = YES
    if want == NONE:
        kind = ANY
    elif want != value:
        kind = CORRECT
    elif giving_up and domain.flexible[i, city, d, slot]:
        kind = AGREE
        party["dropped"] |= 1 << slot
    elif giving_up:
        kind = REFUSE
    say(domain.frames[i, depth], domain.acts[i, depth], whole(kind), whole(COUNTERPART), city, d, slot, want, whole(NONE))


@inline
def is_met(domain: DialogueState, i: int, city: int, d: int, e: int, slot: int) -> bool:
    """Whether entity `e` is as the counterpart wants it on `slot`. What refers to a booking that is not there is never met."""
    want = wanted(domain, i, city, d, slot)
    if want == NONE:
        return True
    row = database(domain, i)
    value = whole(domain.entity[row, city, d, e, slot])
    if want == SAME:
        other = domain.refer[i, city, d, slot]
        booked = domain.party[i, city, other]["entity"]
        if booked < 0:
            return False
        want = whole(domain.entity[row, city, other, booked, domain.refers[d, slot, other]])
    return value >= 0 and value == want


@lean
def to_blame(domain: DialogueState, i: int, city: int, d: int, e: int) -> int:
    """Why entity `e` does not do: a random one of the slots where it is not what the counterpart wants; NONE if it does.

    Draws from the counterpart's stream only where there is something to choose from.
    """
    blamed, seen = NONE, 0
    for s in range(domain.slots_of[d]):
        if not is_met(domain, i, city, d, e, s):
            seen += 1
            if seen == 1 or below(domain.noise[i, city, d], seen) == 0:
                blamed = s
    return blamed


@inline
def answer_offer(domain: DialogueState, i: int, depth: int, city: int, d: int, e: int) -> None:
    """Accept what suits; else name one of the slots to blame."""
    slot = to_blame(domain, i, city, d, e)
    kind = ACCEPT if slot < 0 else REJECT
    say(domain.frames[i, depth], domain.acts[i, depth], whole(kind), whole(COUNTERPART), city, d, slot, whole(NONE), e)
