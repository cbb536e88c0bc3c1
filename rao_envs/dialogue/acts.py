"""Dialogue acts: who says what about which slot. The vocabulary that the simulator, windows, sentences and pictures share.

An act is one record of `ACT`. Acts of the agent: GREET, REQUEST, CONFIRM, OFFER, RELAX, BOOK. Acts of a counterpart (the simulated user):
INFORM, ANY, YES, CORRECT, ACCEPT, REJECT, AGREE, REFUSE, THANK. A finished sub-dialogue hands back RESULT, or, if it did not book, the acts
that carry what it knows, with CHILD as their speaker. After the act sets of agenda-based user simulation (Schatzmann et al. 2007,
"Agenda-based user simulation for bootstrapping a POMDP dialogue system").
"""

from __future__ import annotations

import numpy as np

NOTHING = 0
"""No act: an empty place of a window."""

REQUEST = 1  # agent: what should `slot` be?
CONFIRM = 2  # agent: `slot` should be `value`, is that right?
OFFER = 3  # agent: how about `entity`?
RELAX = 4  # agent: nothing fits; could you do without `slot` = `value`?
BOOK = 5  # agent: `entity` is booked (irreversible)
INFORM = 6  # counterpart: `slot` should be `value` as the agent heard it (maybe misheard), SAME for a chained reference
ANY = 7  # counterpart: no preference for `slot` (reliable)
YES = 8  # counterpart: yes, `slot` should be `value` (reliable)
CORRECT = 9  # counterpart: no, `slot` should be `value` (reliable)
ACCEPT = 10  # counterpart: `entity` is right (reliable)
REJECT = 11  # counterpart: `entity` is not right, because of its `slot` (reliable)
AGREE = 12  # counterpart: all right, never mind `slot` (reliable; the constraint is gone)
REFUSE = 13  # counterpart: no, `slot` has to be `value` (reliable)
RESULT = 14  # sub-dialogue: `entity` is booked for (`city`, `domain`); `domain` NONE: everything in `city` is booked
GREET = 15  # agent: now about `domain` (`entity` and `slot` do not apply)
THANK = 16  # counterpart: its domain is booked, that was all
KINDS = 17
KIND_NAMES = (
    "nothing",
    "request",
    "confirm",
    "offer",
    "relax",
    "book",
    "inform",
    "any",
    "yes",
    "correct",
    "accept",
    "reject",
    "agree",
    "refuse",
    "result",
    "greet",
    "thank",
)
"""The kinds' names, in their order."""

AGENT, COUNTERPART, CHILD = 0, 1, 2
SPEAKER_NAMES = ("agent", "counterpart", "child")
"""Who speaks: the agent in this frame, the traveller it talks to, or a sub-dialogue that has ended."""

NONE = -1
"""A field that does not apply."""

SAME = -2
"""A value: the same as in the booking that this slot refers to ("the same day as the hotel"); `domain`'s own goal says which."""

ACT = np.dtype(
    [
        ("kind", np.int8),  # one of the kinds above
        ("speaker", np.int8),  # AGENT, COUNTERPART or CHILD
        ("city", np.int8),
        ("domain", np.int8),
        ("slot", np.int8),  # or NONE
        ("sure", np.int8),  # 1: heard well (INFORM), or reliable; 0: heard badly
        ("value", np.int16),  # index of the slot's value, NONE, or SAME
        ("entity", np.int16),  # index in the database of (city, domain), or NONE
        ("truth", np.int16),  # of INFORM: the value that was meant; for pictures alone, no observation has it
    ],
    align=True,
)
"""One act; indices are those of the ontology (`rao_envs.dialogue.ontology`). SAME comes with no value: which booking is meant is part of
the trip's plan, which everybody knows."""
