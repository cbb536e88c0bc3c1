"""What a planner would reach that forgets nothing: everything said so far, the databases, and a belief over what each counterpart wants.

`full_context` makes the environment that shows all this; `BeliefTracker` acts in it. `Oracle` is told the wishes as well. Neither is an
agent of the benchmark: they say how far its tasks can be solved at all.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.dialogue.acts import (
    ACCEPT,
    AGREE,
    ANY,
    CONFIRM,
    CORRECT,
    GREET,
    INFORM,
    NONE,
    OFFER,
    REFUSE,
    REJECT,
    RELAX,
    REQUEST,
    SAME,
    YES,
)
from rao_envs.dialogue.domain import MOST_WINDOW, DialogueDomain
from rao_envs.dialogue.generator import SURE_IF_RIGHT, SURE_IF_WRONG
from rao_envs.dialogue.scripted import WindowSolver
from rao_envs.dialogue.state import CERTAIN, DOUBTED, FREE, GIVEN_UP, HEARD_WELL, UNKNOWN

MOST_GOALS = 5000
"""Goals that a belief is kept over."""
MOST_SAID = 160
"""Acts of one booking's talk that are shown, the latest ones."""
FEWEST = 1e-4
"""Goals less likely than this are left out of the account, and"""
RAREST = 2e-3
"""answers less likely than that."""
EASE = 0.8
"""What is left of a promise that takes one more turn to keep."""
THRIFT = (0.06, 0.03, 0.01, 0.002, 0.0005)
"""What a user turn is worth, in chances of a right booking, by the turns left for each open booking (0 to 4)."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class FullContext(gym.Wrapper[Any, Any, Any, Any]):
    """Adds to the observation of a monolithic `DialogueEnv` what its frame would have to remember or look up, and the truth.

    | key | space | content |
    |---|---|---|
    | `talk` | `Box(int16, (160, 5))` | all acts of the talk in focus, the oldest first: kind (0: none), slot, value, entity, heard well |
    | `shelf` | `Box(int16, (E, S))` | its database; -1 where there is nothing |
    | `link` | `Box(int16, (S,))` | the value of the booking that a slot refers to; -1 where it refers to none |
    | `sight` | `Box(int16, (4,))` | candidate, accepted entity, user turns left, open bookings |
    | `hidden` | `Box(int16, (3, S))` | the truth, for `Oracle` alone: wish (-1: none, -2: the same as elsewhere), flexible, given up |
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.base = cast(Any, env.unwrapped)
        self.domain: DialogueDomain = self.base.domain
        self.talks: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self.said = 0
        entities, slots = self.base.batch.state.entity.shape[3:]
        shapes = {"talk": (MOST_SAID, 5), "shelf": (entities, slots), "link": (slots,), "sight": (4,), "hidden": (3, slots)}
        limits = np.iinfo(np.int16)
        self.extras = shapes
        boxes = {name: spaces.Box(limits.min, limits.max, shape, np.int16) for name, shape in shapes.items()}
        self.observation_space = spaces.Dict({**env.observation_space.spaces, **boxes})  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.talks, self.said = {}, 0
        return self._add(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._add(observation), reward, terminated, truncated, info

    def _add(self, observation: dict[str, Any]) -> dict[str, Any]:
        state = self.base.batch.state
        frame, ring = state.frames[0, 0], state.acts[0, 0]
        for k in range(self.said, int(frame["said"])):
            act = ring[k % len(ring)]
            line = tuple(int(act[name]) for name in ("kind", "slot", "value", "entity", "sure"))
            self.talks.setdefault((int(act["city"]), int(act["domain"])), []).append(line)
        self.said = int(frame["said"])
        own = {name: np.full(shape, NONE, np.int16) for name, shape in self.extras.items()}
        own["talk"][:, 0] = 0
        city, d = int(frame["focus_city"]), int(frame["focus"])
        if d >= 0:
            lines = self.talks.get((city, d), [])[-MOST_SAID:]
            if lines:
                own["talk"][: len(lines)] = lines
            own["shelf"][:] = state.entity[0, city, d]
            own["shelf"][int(state.entities_of[city, d]) :] = NONE
            for slot, other in enumerate(state.refer[0, city, d]):
                if other >= 0:
                    booked = int(state.party["entity"][0, city, other])
                    own["link"][slot] = state.entity[0, city, other, booked, state.refers[d, slot, other]]
            dropped = int(state.party["dropped"][0, city, d])
            own["hidden"][:] = state.want[0, city, d], state.flexible[0, city, d], [dropped >> s & 1 for s in range(len(own["link"]))]
        own["sight"][:] = [frame[name] for name in ("candidate", "accepted", "turns", "n_open")]
        return {**observation, **own}


def full_context(task: str = "RAO/Dialogue-10turn-v0", **kwargs: Any) -> gym.Env[Any, Any]:
    """An environment in which nothing said is forgotten: for `evaluate(BeliefTracker(), full_context, task=..., ...)`.

    Args:
        task: id of the environment.
        **kwargs: its keyword arguments. The window is as long as can be.
    """
    return FullContext(gym.make(task, **{"window": MOST_WINDOW, **kwargs, "spawn": False}))


class Goals(NamedTuple):
    """All that a counterpart may want, one row each."""

    want: Ints  # (H, S) a value or NONE
    flexible: Ints  # (H,) the slot of the wish that it would give up, or NONE


@functools.cache
def plain_goals(slots: int, values: int, fewest: int, most: int, link: int, value: int) -> Goals:
    """Goals of `fewest` to `most` wishes; `link` is a slot that must be `value` (it refers to a booking), or NONE."""
    wants, flexible = [], []
    for count in range(fewest, most + 1):
        for chosen in itertools.combinations(range(slots), count):
            if link >= 0 and link not in chosen:
                continue
            plain = [s for s in chosen if s != link]
            for picked in itertools.product(range(values), repeat=len(plain)):
                row = np.full(slots, NONE)
                row[plain] = picked
                if link >= 0:
                    row[link] = value
                for f in (NONE, *plain):
                    wants.append(row)
                    flexible.append(f)
    return Goals(np.array(wants, np.int64), np.array(flexible, np.int64))


class Mind:
    """The belief about one counterpart: what it may want, how likely that is, and what the environment would offer.

    Args:
        domain: whose rates and sizes apply.
        shelf: (E, S) the database.
        link: (S,) values of the bookings referred to.
    """

    def __init__(self, domain: DialogueDomain, shelf: Ints, link: Ints) -> None:
        self.domain = domain
        self.shelf = shelf[(shelf >= 0).any(axis=1)]
        linked = np.flatnonzero(link >= 0)
        self.link = int(linked[0]) if len(linked) else NONE
        value = int(link[self.link]) if len(linked) else NONE
        self.goals = plain_goals(domain.slots, domain.values, *domain.constraints, self.link, value)
        self.same = value
        weights = self._prior()
        some = weights > 0
        self.goals, self.weights = Goals(self.goals.want[some], self.goals.flexible[some]), weights[some]
        self.dropped = np.zeros(domain.slots, np.bool_)
        self.status = np.full(domain.slots, UNKNOWN)
        self.value = np.full(domain.slots, NONE)
        self.refused: list[tuple[int, int]] = []  # slot and value of what was turned down

    def _prior(self) -> Floats:
        """Before a word is said: goals that the database could have been drawn for.

        A goal that can be met has entities that meet it, the likelier the more; one that cannot has none, but some that meet all but the
        flexible wish.
        """
        want, flexible = self.goals
        off = (want[:, None] != NONE) & (want[:, None] != self.shelf[None])  # (H, E, S)
        rows = np.arange(len(want))
        plain = off.copy()
        if self.link >= 0:
            plain[:, :, self.link] = False
        meets = (~off.any(axis=2)).sum(axis=1)
        nothing = plain.any(axis=2).all(axis=1)
        but = off.copy()
        but[rows, :, np.maximum(flexible, 0)] = False
        almost = (~but.any(axis=2)).sum(axis=1)
        chance = self.domain.unsatisfiable
        wishes = np.maximum((want != NONE).sum(axis=1) - (self.link >= 0), 1)
        given_up = np.where(nothing, chance * almost / (wishes * (self.domain.values - 1)), 0)
        weights: Floats = np.where(flexible == NONE, (1 - chance) * meets, given_up).astype(np.float64)
        if not weights.any():  # a database that was not drawn for the goal
            weights[:] = flexible == NONE
        weights /= weights.sum()
        return weights

    # -- what is said --------------------------------------------------------------------------------------------------------------

    def hear(self, talk: Ints) -> None:
        """Take in all that was said, (m, 5) as in `FullContext`."""
        opening, first = False, True
        told = np.zeros(self.domain.slots, np.bool_)
        for kind, slot, value, entity, sure in talk.tolist():
            if opening and kind != INFORM:
                self._silence(told)
                opening = False
            if kind == GREET and first:
                opening, first = True, False
            if kind == INFORM:
                told[slot] = True
            self.keep(self.likelihood(kind, slot, value, entity, sure))
            self.note(kind, slot, value, entity, sure)
        if opening:
            self._silence(told)
        some = self.weights > FEWEST
        self.goals, self.weights = Goals(self.goals.want[some], self.goals.flexible[some]), self.weights[some]

    def _silence(self, told: npt.NDArray[np.bool_]) -> None:
        """What the opening left out is less likely a wish."""
        self.keep((1 - self.domain.volunteering) ** ((self.goals.want != NONE) & ~told).sum(axis=1))

    def keep(self, likelihood: Floats) -> None:
        """Condition on something; what could not be is ignored."""
        weights = self.weights * likelihood
        if weights.sum() > 0:
            self.weights = weights / weights.sum()

    def heard(self, slot: int) -> Floats:
        """(H, V + 1, 2) how likely each answer to a question about `slot` is, if it is a wish: the last value is SAME."""
        rate, values = self.domain.error_rate, self.domain.values
        want = self.goals.want[:, slot]
        chance = np.zeros((len(want), values + 1, 2))
        right = np.full(len(want), values) if slot == self.link else np.where(want >= 0, want, 0)
        chance[:, :values] = rate / (values if slot == self.link else values - 1) * np.array([1 - SURE_IF_WRONG, SURE_IF_WRONG])
        chance[np.arange(len(want)), right] = (1 - rate) * np.array([1 - SURE_IF_RIGHT, SURE_IF_RIGHT])
        return chance

    def wishes(self) -> npt.NDArray[np.bool_]:
        """(H, S) the wishes that stand."""
        standing: npt.NDArray[np.bool_] = (self.goals.want != NONE) & ~self.dropped
        return standing

    def wrong(self, entity: int) -> npt.NDArray[np.bool_]:
        """(H, S) where an entity is not as wanted."""
        unmet: npt.NDArray[np.bool_] = self.wishes() & (self.goals.want != self.shelf[entity])
        return unmet

    def likelihood(self, kind: int, slot: int, value: int, entity: int, sure: int) -> Floats:
        """(H,) how likely an act of the counterpart is."""
        want, flexible = self.goals
        stands = self.wishes()[:, slot]
        meant = self.same if value == SAME else value
        if kind == INFORM:
            chance: Floats = stands * self.heard(slot)[:, self.domain.values if value == SAME else value, sure]
            return chance
        if kind == REJECT:
            wrong = self.wrong(entity)
            blame: Floats = wrong[:, slot] / np.maximum(wrong.sum(axis=1), 1)
            return blame
        possible: npt.NDArray[np.bool_] = np.ones(len(want), np.bool_)
        if kind == ANY:
            possible = ~stands
        elif kind in (YES, CORRECT, REFUSE):
            possible = stands & (want[:, slot] == meant)
            if kind == REFUSE:
                possible = possible & (flexible != slot)
        elif kind == AGREE:
            possible = stands & (flexible == slot)
        elif kind == ACCEPT:
            possible = np.logical_not(self.wrong(entity).any(axis=1))
        return possible.astype(np.float64)

    def note(self, kind: int, slot: int, value: int, entity: int, sure: int) -> None:
        """Keep what the environment grounds its offers on (`rao_envs.dialogue.window.ground`)."""
        if kind == INFORM:
            self._set(slot, HEARD_WELL if sure else DOUBTED, value)
        elif kind in (YES, CORRECT, REFUSE):
            self._set(slot, CERTAIN, value)
        elif kind == ANY:
            self._set(slot, FREE, NONE)
        elif kind == AGREE:
            self._set(slot, GIVEN_UP, NONE)
            self.dropped[slot] = True
        elif kind == REJECT:
            turned_down = int(self.shelf[entity, slot])
            self.refused.append((slot, turned_down))
            if self.status[slot] <= HEARD_WELL and self.value[slot] == turned_down and slot != self.link:
                self._set(slot, UNKNOWN, NONE)

    def _set(self, slot: int, status: int, value: int) -> None:
        self.status[slot] = status
        self.value[slot] = self.same if value == SAME else value

    # -- what may be done ----------------------------------------------------------------------------------------------------------

    def fitting(self) -> Ints:
        """The entities that the environment would offer, the first first."""
        fits = ((self.value == NONE) | (self.shelf == self.value)).all(axis=1)
        for slot, value in self.refused:
            if self.status[slot] not in (FREE, GIVEN_UP):
                fits &= self.shelf[:, slot] != value
        return np.flatnonzero(fits) if self.refused or (self.status != UNKNOWN).any() else np.zeros(0, np.int64)

    def right(self, entity: int) -> float:
        """How likely an entity is right."""
        return float(self.weights @ ~self.wrong(entity).any(axis=1))

    def after(self, kind: int, slot: int, value: int, entity: int, sure: int) -> Mind:
        """The belief once that is said."""
        mind = object.__new__(Mind)
        mind.__dict__ = {**self.__dict__, "status": self.status.copy(), "value": self.value.copy()}
        mind.dropped, mind.refused = self.dropped.copy(), list(self.refused)
        mind.keep(self.likelihood(kind, slot, value, entity, sure))
        mind.note(kind, slot, value, entity, sure)
        return mind

    def outlook(self, turns: int) -> float:
        """What the belief promises.

        The chance that the entity at hand is right, or, if that is more, what comes of putting right, turn by turn, whatever stands in the
        way of booking what is right: each turn at a discount.
        """
        options = self.fitting()
        suits = ~self.wrong(int(options[0])).any(axis=1) if len(options) else np.zeros(len(self.weights), np.bool_)
        p = float(self.weights @ suits)
        wishes = self.wishes()
        astray = wishes & np.where(self.status == UNKNOWN, True, self.goals.want != self.value)
        flexible = self.goals.flexible
        pending = (flexible != NONE) & ~self.dropped[np.maximum(flexible, 0)]
        needed = np.where(suits, 1, np.maximum(astray.sum(axis=1) + pending, 1))
        return max(p, float(self.weights @ (EASE**needed * (needed <= turns))))

    def answers(self, kind: int, slot: int, entity: int) -> list[tuple[float, tuple[int, int, int, int, int]]]:
        """What the counterpart may say to an act of the agent, each with its chance."""
        stands, values = self.wishes(), self.domain.values
        out = []
        if kind == OFFER:
            out.append((self.right(entity), (ACCEPT, NONE, NONE, entity, 1)))
            wrong = self.wrong(entity)
            share = self.weights @ (wrong / np.maximum(wrong.sum(axis=1, keepdims=True), 1))
            out += [(float(share[s]), (REJECT, s, NONE, entity, 1)) for s in range(len(share))]
            return out
        out.append((float(self.weights @ ~stands[:, slot]), (ANY, slot, NONE, NONE, 1)))
        wishing = self.weights * stands[:, slot]
        if kind == REQUEST:
            chance = np.einsum("h,hvs->vs", wishing, self.heard(slot))
            for v in range(values + 1):
                said = SAME if v == values else v
                out += [(float(chance[v, sure]), (INFORM, slot, said, NONE, sure)) for sure in (0, 1)]
            return out
        want, flexible = self.goals
        for v in range(values):
            mine = wishing * (want[:, slot] == v)
            if kind == RELAX and v == self.value[slot]:
                out.append((float(mine @ (flexible == slot)), (AGREE, slot, v, NONE, 1)))
                mine = mine * (flexible != slot)
            out.append((float(mine.sum()), (REFUSE if kind == RELAX and v == self.value[slot] else CORRECT, slot, v, NONE, 1)))
        return out


class Planner:
    """What the tracker and the oracle share: whom to turn to next, and the reading of the environment's extra keys.

    Args:
        **kwargs: the environment's, where they differ from the defaults.

    Raises:
        ValueError: too many goals to keep a belief over, as an ontology of many slots and values has.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.walker = WindowSolver(**{**kwargs, "window": MOST_WINDOW})
        self.domain = self.walker.domain
        goals = sum(
            math.comb(self.domain.slots, k) * self.domain.values**k
            for k in range(self.domain.constraints[0], self.domain.constraints[1] + 1)
        )
        if goals > MOST_GOALS:
            raise ValueError(f"a counterpart may have {goals} different goals here; the belief is over at most {MOST_GOALS}")

    def __call__(self, observation: dict[str, Any], mask: npt.NDArray[np.bool_], state: Any = None) -> int:
        """The action; raises ValueError where the observation is not `full_context`'s."""
        if "talk" not in observation:
            raise ValueError("this planner sees more than an agent may: evaluate it on rao_envs.dialogue.tracker.full_context")
        slots = self.domain.slots
        if observation["shelf"].shape[-1] != slots:
            raise ValueError("observations of another layout: make the planner with the environment's keyword arguments")
        if not mask[: 3 * slots + 2].any():
            return int(self.walker(observation, mask))
        sight = observation["sight"].astype(np.int64)
        talk = observation["talk"].astype(np.int64)
        mind = Mind(self.domain, observation["shelf"].astype(np.int64), observation["link"].astype(np.int64))
        mind.hear(talk[talk[:, 0] > 0])
        return self.talk(mind, sight, mask, observation["hidden"])

    def acts(self, mask: npt.NDArray[np.bool_], candidate: int) -> list[tuple[int, int, int, int]]:
        """The talk that is allowed: action, kind, slot, entity."""
        S = self.domain.slots
        listed = [(s, REQUEST, s, NONE) for s in range(S)]
        listed += [(S + s, CONFIRM, s, NONE) for s in range(S)]
        listed += [(2 * S, OFFER, 0, candidate)]
        listed += [(2 * S + 1 + s, RELAX, s, NONE) for s in range(S)]
        return [act for act in listed if mask[act[0]]]

    def talk(self, mind: Mind, sight: Ints, mask: npt.NDArray[np.bool_], hidden: Any) -> int:
        """What to say or book; `sight` and `hidden` as in `FullContext`."""
        raise NotImplementedError


class BeliefTracker(Planner):
    """Keeps a belief over all that the counterpart may want, from all that was said, and does what promises most, one turn ahead."""

    def talk(self, mind: Mind, sight: Ints, mask: npt.NDArray[np.bool_], hidden: Any) -> int:
        """Book what is as good as certain, or what turns are too dear to make sure of; else the most promising act."""
        book = 3 * self.domain.slots + 1
        candidate, accepted, turns, n_open = (int(number) for number in sight)
        if accepted >= 0 or (turns == 0 and candidate >= 0):
            return book
        share = turns / max(1, n_open)
        price = THRIFT[min(int(share), len(THRIFT) - 1)]
        best, choice = (mind.right(candidate), book) if candidate >= 0 else (-1.0, book)
        for action, kind, slot, entity in self.acts(mask, candidate):
            settled = kind != OFFER and (mind.status[slot] >= CERTAIN if kind != RELAX else slot == mind.link)
            if settled or (kind == CONFIRM and (slot == mind.link or mask[action + self.domain.slots + 1])):
                continue  # nothing comes of it, or not more than of asking to give up the wish
            worth = -price
            for chance, answer in mind.answers(kind, slot, entity):
                if chance > RAREST:
                    worth += chance * (1.0 if answer[0] == ACCEPT else mind.after(*answer).outlook(turns - 1))
            if worth > best:
                best, choice = worth, action
        return choice


class Oracle(Planner):
    """Knows the wishes, and says just enough for the environment to let it book what is right."""

    def talk(self, mind: Mind, sight: Ints, mask: npt.NDArray[np.bool_], hidden: Any) -> int:
        """Book what is right; else the act after which most is as it should be."""
        book = 3 * self.domain.slots + 1
        want, flexible, dropped = (row.astype(np.int64) for row in hidden)
        wish = np.where(dropped == 1, NONE, np.where(want == SAME, mind.same, want))
        candidate, accepted = int(sight[0]), int(sight[1])
        if accepted >= 0 or (candidate >= 0 and self.suits(mind, candidate, wish)):
            return book
        best, choice = -1e9, book
        for action, kind, slot, entity in self.acts(mask, candidate):
            said = int(wish[slot])
            if kind == OFFER:
                wrong = np.flatnonzero((wish != NONE) & (wish != mind.shelf[entity]))
                results = [(1 / len(wrong), mind.after(REJECT, int(s), NONE, entity, 1)) for s in wrong]
            elif said == NONE:
                results = [(1.0, mind.after(ANY, slot, NONE, NONE, 1))]
            elif kind == RELAX and flexible[slot] and mind.value[slot] == said:
                results = [(1.0, mind.after(AGREE, slot, said, NONE, 1))]
            else:
                rate = 1 - self.domain.error_rate if kind == REQUEST else 1.0
                results = [(rate, mind.after(CORRECT, slot, said, NONE, 1))]
            worth = 0.0
            for chance, then in results:
                target = np.where(then.dropped, NONE, wish)
                options = then.fitting()
                done = len(options) > 0 and self.suits(mind, int(options[0]), target)
                astray = ((then.value != target) & (then.value != NONE)).sum() + ((then.value == NONE) & (target != NONE)).sum()
                worth += chance * (10.0 * done - astray)
            if worth > best:
                best, choice = worth, action
        return choice

    def suits(self, mind: Mind, entity: int, wish: Ints) -> bool:
        """Whether an entity is as wished, (S,)."""
        return bool(((wish == NONE) | (wish == mind.shelf[entity])).all())
