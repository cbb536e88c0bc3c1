"""Trips planned without learning: scripted agents that act from the observation alone, with no memory of their own.

What they know is what the window of the acting frame shows. They are a reference for what a learned policy of the same context could
reach: `rao_envs.dialogue.reference` prints how far they get.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rao_envs.dialogue.acts import AGREE, ANY, BOOK, CORRECT, INFORM, KINDS, REFUSE, REJECT, RESULT, YES
from rao_envs.dialogue.domain import MOST_WINDOW, DialogueDomain
from rao_envs.dialogue.state import CERTAIN, FREE, GIVEN_UP, HEARD_WELL, UNKNOWN, UNRESOLVED

Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ENVIRONMENTS_OWN = ("spawn", "feedback", "budget", "max_depth", "render_mode")
"""Keyword arguments of an environment that are not its domain's."""

P_WELL, P_BADLY = 0.964, 0.563
"""How likely a value is what was meant if it was heard well, or badly: 9 of 10 are, of which 9 of 10 are heard well, and 3 of 10 others."""
P_SURE, P_ENOUGH, P_POOR = 0.995, 0.95, 0.6
"""A booking needs no offer at all; where turns are short; is so doubtful that a child had better leave it for another time."""
SHORT = 3
"""Turns for each open booking below which they are short."""
EARLY = 0.8
"""As long as this share of the tree's steps is left, so are turns for another time (what a child cannot see)."""


class Sight:
    """What m observations say, as arrays (m, ...); K slots, D domains.

    Args:
        domain: whose layout the observations have.
        task: (m, fields).
    """

    def __init__(self, domain: DialogueDomain, task: npt.NDArray[np.int8]) -> None:
        fields, slots = domain.fields, domain.slots
        domains = domain.arrays.entities_of.shape[1]

        def number(name: str) -> Ints:
            """The place of the bit that is set in a field; -1 where none is."""
            part = task[:, fields[name]]
            return np.where(part.any(axis=1), part.argmax(axis=1), -1)

        def bits(name: str) -> Bits:
            return np.asarray(task[:, fields[name]] == 1)

        self.rows = np.arange(len(task))
        self.status: Ints = np.stack([np.maximum(number(f"slot_{k}"), UNKNOWN) for k in range(slots)], axis=1)
        self.matches, self.turns, self.share = number("matches"), number("turns"), number("share")
        self.accepted = bits("accepted")[:, 0]
        self.focus = number("focus")
        self.open, self.ready, self.booked, self.refers, self.linked = (
            bits(name) for name in ("open", "ready", "booked", "refers", "linked")
        )
        self.focus_city, self.open_cities = bits("focus_city"), bits("open_cities")
        self.in_talk = self.focus >= 0
        self._read_acts(domain, task, domains)

    def _read_acts(self, domain: DialogueDomain, task: npt.NDArray[np.int8], domains: int) -> None:
        """The latest word on each slot of the domain in focus: how old it is, whether it refuses, whether it says "the same as there"."""
        window, slots, values = domain.window, domain.slots, domain.values
        acts = task[:, : domain.fields[f"act_{window - 1}"].stop].reshape(len(task), window, -1)
        kinds = KINDS - 1
        kind = np.where(acts[:, :, :kinds].any(axis=2), acts[:, :, :kinds].argmax(axis=2) + 1, 0)
        here = acts[:, :, kinds + 3] == 1
        at = kinds + 4 + domains
        slot = np.where(acts[:, :, at : at + slots].any(axis=2), acts[:, :, at : at + slots].argmax(axis=2), -1)
        same = acts[:, :, at + slots + values] == 1
        telling = here & np.isin(kind, (INFORM, ANY, YES, CORRECT, AGREE, REFUSE))
        refusing = here & (kind == REJECT)
        ages = np.arange(window)[None, :, None]
        on_slot = slot[:, :, None] == np.arange(slots)  # (m, W, K)
        self.age: Ints = np.where(telling[:, :, None] & on_slot, ages, 2 * MOST_WINDOW).min(axis=1)
        told = self.age < window
        newest = np.minimum(self.age, window - 1)
        self.same: Bits = told & np.take_along_axis(same, newest, axis=1)
        self.refused: Bits = told & (np.take_along_axis(kind, newest, axis=1) == REFUSE)
        self.rejected: Bits = (refusing[:, :, None] & on_slot).any(axis=1)
        booking = (kind == BOOK) | (kind == RESULT)
        self.booking_age: Ints = np.where(booking, ages[:, :, 0], 2 * MOST_WINDOW).min(axis=1)
        self.from_child: Bits = ((acts[:, :, kinds + 1] == 1) & here).any(axis=1)


class Wishlist:
    """Every action of m frames with how much it is wanted; of those allowed, the most wanted is taken."""

    def __init__(self, m: int, actions: int) -> None:
        self.wanted = np.zeros((m, actions))

    def add(self, rows: Bits, action: Any, level: float) -> None:
        """Want `action` (one, or one per row) in these rows."""
        at = np.flatnonzero(rows)
        actions = np.broadcast_to(action, len(rows))[at]
        inside = actions < self.wanted.shape[1]
        at, actions = at[inside], actions[inside]
        self.wanted[at, actions] = np.maximum(self.wanted[at, actions], level)

    def best(self, masks: Bits) -> Ints:
        """The most wanted allowed action of each row; the first allowed one where none is wanted."""
        chosen: Ints = np.where(masks, self.wanted, -1.0).argmax(axis=1)
        return chosen


class _Solver:
    """What the scripted agents share: how to talk. Subclasses choose whom to turn to.

    For `rao_envs.evaluate`, or by hand: `solver(observation, mask)` with one observation or a batch of them.

    Args:
        **kwargs: the environment's, where they differ from the defaults (`window`, `ontology`, `constraints`, ...); without any, the
            window is told by the observation's size.
    """

    batched: ClassVar[bool] = True

    def __init__(self, **kwargs: Any) -> None:
        own = {name: value for name, value in kwargs.items() if name not in ENVIRONMENTS_OWN}
        self.domain = DialogueDomain(**own)
        self._given = "window" in own

    def __call__(self, observation: dict[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], state: Any = None) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: not observations of this solver's kind of trip.
        """
        task, masks = np.atleast_2d(observation["task"]), np.atleast_2d(np.asarray(mask, np.bool_))
        domain = self._domain_of(task.shape[1])
        primitives = len(domain.primitives)
        if masks.shape[1] not in (primitives, primitives + len(domain.spawns)) or len(task) != len(masks):
            raise ValueError(f"not observations of {domain.name} with these options: task {task.shape}, mask {masks.shape}")
        sight, wishes = Sight(domain, task), Wishlist(*masks.shape)
        self.talk(domain, sight, np.atleast_2d(observation["call"]), wishes)
        self.turn(domain, sight, np.atleast_2d(observation["results"]), masks, wishes)
        chosen = wishes.best(masks)
        return int(chosen[0]) if observation["task"].ndim == 1 else chosen

    def _domain_of(self, size: int) -> DialogueDomain:
        """The domain whose observations have `size` bits: the given one, or, if it was given no window, that with another."""
        own = self.domain.task_space.shape[0]
        act = self.domain.fields["act_0"].stop
        window, rest = divmod(size - own + self.domain.window * act, act)
        if rest or not 1 <= window <= MOST_WINDOW or (self._given and size != own):
            raise ValueError(
                f"not observations of {self.domain.name} with these options: {size} bits instead of {own}; make the solver with the "
                "environment's keyword arguments"
            )
        if size != own:
            self.domain = _with_window(self.domain, window)
        return self.domain

    def guesses(self, domain: DialogueDomain) -> tuple[int, int, int]:
        """With one, two or three wishes unheard: offer all the same where so few entities fit."""
        return (0, 0, 0)

    def talk(self, domain: DialogueDomain, sight: Sight, call: npt.NDArray[np.float32], wishes: Wishlist) -> None:
        """What to say to the counterpart in focus, from what the window still shows.

        A reference is misheard as a plain value, never the other way round; so "the same as there" is certain.
        """
        slots = domain.slots
        request, confirm, offer, relax = 0, slots, 2 * slots, 2 * slots + 1
        book, leave = 3 * slots + 1, 3 * slots + 2
        status, matches, rows, focus = sight.status, sight.matches, sight.rows, np.maximum(sight.focus, 0)
        talking = sight.in_talk & (sight.turns > 0)
        unknown, free, out_of_sight = status == UNKNOWN, status == FREE, status == UNRESOLVED
        wish = ~unknown & ~free
        certain = (status >= CERTAIN) | sight.same
        chance = np.where(certain | unknown, 1.0, np.where(status == HEARD_WELL, P_WELL, P_BADLY))
        old = np.minimum(sight.age, 15) / 15  # what was said longest ago is forgotten next
        may_refer: Bits = (domain.arrays.refers.max(axis=2) >= 0)[focus]
        refers = sight.in_talk & sight.refers[rows, focus]
        unheard = refers & ~sight.same.any(axis=1)  # some wish refers to a booking, and the window does not say which
        missing = np.minimum(np.maximum(domain.constraints[1] - wish.sum(axis=1), 0), unknown.sum(axis=1))

        # Nothing fits: the wish that is misheard, or that the counterpart does without. That question sets right what was misheard, too.
        can_relax = wish & (status != GIVEN_UP) & ~out_of_sight & ~sight.same & ~sight.refused
        doubt = np.where(can_relax, 1.3 - chance + 0.1 * old + 0.3 * (unheard[:, None] & may_refer), -1.0)
        stuck = talking & (matches == 0)
        wishes.add(stuck & can_relax.any(axis=1), relax + doubt.argmax(axis=1), 70)
        # A question pushes the oldest word out of the window: rather an offer than that.
        oldest = np.where(wish, sight.age, -1).max(axis=1)
        wishes.add(talking & (matches > 0) & (oldest + 2 >= domain.window), offer, 65)
        # Wishes that were not told.
        few = np.array((2 * MOST_WINDOW, *self.guesses(domain)))[np.minimum(missing, 3)]
        question = np.where(unknown, 1.0 + sight.rejected + (unheard[:, None] & may_refer), -1.0)
        ask = unknown.any(axis=1)
        wanting = (missing > 0) & ((matches > few) | (matches <= 0) | unheard)
        wishes.add(talking & wanting & ask, request + question.argmax(axis=1), 60)
        # All are told and none refers, though one should: it was misheard.
        misheard = np.where(wish & may_refer & ~certain, 2 - chance, -1.0)
        suspicious = talking & unheard & (missing == 0)
        wishes.add(suspicious & (misheard.max(axis=1) > 0), confirm + misheard.argmax(axis=1), 55)
        wishes.add(talking, offer, 50)
        wishes.add(talking & ask, request + question.argmax(axis=1), 30)
        wishes.add(talking, confirm + chance.argmin(axis=1), 20)

        settled = (missing == 0) & ~unheard & ~out_of_sight.any(axis=1) & (matches > 0)
        right = np.where(settled, chance.prod(axis=1), 0.0)
        wishes.add(sight.in_talk & sight.accepted, book, 100)
        wishes.add(sight.in_talk & ((right >= P_SURE) | ((right >= P_ENOUGH) & (sight.share < SHORT))), book, 90)
        # Any word more, and what this booking depends on is forgotten: then nothing can be booked here any more.
        last_sight = refers & sight.linked[rows, focus] & sight.booked.any(axis=1) & (sight.booking_age + 2 >= domain.window)
        wishes.add(last_sight, book, 88)
        spent = sight.in_talk & (sight.turns == 0)
        wishes.add(spent & (right < P_POOR) & ~sight.from_child & (call[:, 2] > EARLY), leave, 85)
        wishes.add(spent, book, 80)
        wishes.add(spent, leave, 10)

    def turn(self, domain: DialogueDomain, sight: Sight, results: npt.NDArray[np.int8], masks: Bits, wishes: Wishlist) -> None:
        """Whom to turn to, where nobody is in focus."""
        raise NotImplementedError


@functools.lru_cache(maxsize=16)
def _with_window(domain: DialogueDomain, window: int) -> DialogueDomain:
    """The same trips seen through another window."""
    sizes = domain.arrays.entities_of.shape, domain.slots, domain.values
    other = DialogueDomain(window=window)
    if (other.arrays.entities_of.shape, other.slots, other.values) != sizes:
        raise ValueError("an ontology's observations do not tell their window: make the solver with window= too")
    other.constraints = domain.constraints
    return other


def next_booking(sight: Sight, results: npt.NDArray[np.int8]) -> Ints:
    """The open domain to take up next: what refers to bookings in sight, before these are forgotten; last what was given up before."""
    domains = sight.ready.shape[1]
    order = 3.0 + sight.linked - 0.5 * (sight.refers & ~sight.linked) - 2.0 * (results[:, :domains] == -1)
    chosen: Ints = np.where(sight.ready, order, -1.0).argmax(axis=1)
    return chosen


class RecursiveSolver(_Solver):
    """Opens a sub-dialogue for every city and every booking, one after the other: what turns one leaves are there for the next."""

    at_once: ClassVar[bool] = False
    """Whether it opens all that it can at once."""

    def turn(self, domain: DialogueDomain, sight: Sight, results: npt.NDArray[np.int8], masks: Bits, wishes: Wishlist) -> None:
        """A spawn; where spawning is not possible, a focus."""
        cities, domains = domain.arrays.entities_of.shape
        focus, spawn = len(domain.primitives) - cities - domains, len(domain.primitives)
        free = ~sight.in_talk
        city = np.where(sight.open_cities, 2 - (results[:, domains:] == -1), -1).argmax(axis=1)
        booking = next_booking(sight, results)
        if masks.shape[1] == spawn:
            _alone(domain, sight, results, wishes)
            return
        if self.at_once:
            wishes.add(free, spawn + domains + cities, 9)
        several = masks[:, spawn + domains : spawn + domains + cities].any(axis=1)
        wishes.add(free & sight.ready.any(axis=1) & ~several, spawn + booking, 8)
        wishes.add(free & sight.open_cities.any(axis=1), spawn + domains + city, 7)
        wishes.add(free & sight.ready.any(axis=1), focus + booking, 3)  # no level is left to spawn on
        wishes.add(free, focus - 1, 1)


class ParallelSolver(RecursiveSolver):
    """Opens at once all the sub-dialogues that wait for nothing: a shorter critical path, but what turns one leaves come too late."""

    at_once: ClassVar[bool] = True


class WindowSolver(_Solver):
    """Plans the whole trip in one dialogue, with what the window still shows of it."""

    def guesses(self, domain: DialogueDomain) -> tuple[int, int, int]:
        """In a narrow window questions cost memory as well as turns."""
        return (3, 2, 1) if domain.window < 20 else (0, 0, 0)

    def turn(self, domain: DialogueDomain, sight: Sight, results: npt.NDArray[np.int8], masks: Bits, wishes: Wishlist) -> None:
        """A focus on a booking of the city at hand; if all are made, on another city."""
        _alone(domain, sight, results, wishes)


MonolithicSolver = WindowSolver


def _alone(domain: DialogueDomain, sight: Sight, results: npt.NDArray[np.int8], wishes: Wishlist) -> None:
    """Turn to a booking, or a city, in the frame itself."""
    cities, domains = domain.arrays.entities_of.shape
    focus = len(domain.primitives) - cities - domains
    free = ~sight.in_talk
    wishes.add(free & sight.ready.any(axis=1), focus + next_booking(sight, results), 8)
    other = sight.open_cities & ~sight.focus_city
    wishes.add(free & other.any(axis=1), focus + domains + other.argmax(axis=1), 7)
    wishes.add(free, focus - 1, 1)
