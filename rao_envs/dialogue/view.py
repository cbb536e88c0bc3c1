"""A dialogue at one moment as plain data: what `DialogueEnv.view()` fills in and the viewer draws.

Everything is text already; nothing here knows an ontology, a kernel or a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

from rao_envs.core.viewer import EpisodeView

AGENT, COUNTERPART, RESULT = "agent", "counterpart", "result"
SPEAKERS = (AGENT, COUNTERPART, RESULT)


@dataclass(frozen=True)
class ActView:
    """One dialogue act as the frame's window has it: a line of the chat."""

    speaker: str  # "agent", "counterpart", or "result": what a child frame returned
    text: str  # an English sentence, as it was understood
    sure: bool = True  # the confidence bit; False only for acts of the counterpart that may be misheard
    meant: str = ""  # what was really said, where that differs from `text`; drawn only where the view is `revealed`
    carried: bool = False  # taken along from the parent's window when the frame was opened
    about: str = ""  # which counterpart, in a frame that speaks to several: "Hotel", "Hotel in Graz"
    good: bool | None = None  # of a result: whether what is booked is right, drawn only where the view is `revealed`; None: nothing is


@dataclass(frozen=True)
class FinishedView:
    """A sub-dialogue that has returned: no frame holds it any more, it is drawn for those who watch."""

    depth: int
    title: str  # what it was about
    acts: tuple[ActView, ...]  # what was said in it, the oldest first
    place: int  # how many of its parent's acts had been said when it returned


@dataclass(frozen=True)
class DialogueFrameView:
    """One open frame: a dialogue with one counterpart, or with several (a city, a trip)."""

    depth: int  # 0 for the root
    title: str  # what it is about: "Trip to Brno and Graz", "Graz", "Hotel in Graz"
    acts: tuple[ActView, ...]  # everything said in this frame so far, the oldest first
    held: int  # how many of these, the last ones, its window still holds; the others are forgotten
    turns_left: int  # user turns it may still take, 0 or more
    turns: int  # its allotment
    focus: str = ""  # whom it speaks to now, where it could speak to several: "Hotel in Graz"
    given: tuple[ActView, ...] = ()  # what it was given when it opened: never forgotten, these take places of the window as well
    finished: tuple[FinishedView, ...] = ()  # its children that have returned, the oldest first
    missing: int = 0  # acts said earlier of which nothing is known


@dataclass(frozen=True)
class WishView:
    """One constraint of a counterpart's goal."""

    text: str  # "in the north", "the same day as the hotel"
    dropped: bool = False  # given up in negotiation


@dataclass(frozen=True)
class ItemView:
    """One booking that the trip needs: an active domain of a city."""

    city: str  # "" where there is only one and it needs no name
    title: str  # of the domain: "Hotel"
    wishes: tuple[WishView, ...] = ()  # the hidden goal
    booked: str = ""  # name of the booked entity; "" while there is none
    right: bool | None = None  # whether that booking meets the goal; None while there is none
    waits_for: tuple[str, ...] = ()  # domains whose bookings this one's goal refers to and that are not booked yet
    current: bool = False  # it is the one that the acting frame speaks about


@dataclass(frozen=True)
class OptionView:
    """One action that is allowed now, for a person who plays."""

    index: int  # of the action
    name: str  # of the action: "request_2"
    text: str  # what it does, as a person would say it: "Which part of town would you like?"


@dataclass(frozen=True)
class DialogueView:
    """A snapshot of one episode."""

    stack: tuple[DialogueFrameView, ...]  # open frames, root first; when the episode is over, the root or those open at the end
    items: tuple[ItemView, ...]  # all the trip needs, grouped by city, in the ontology's order
    window: int  # dialogue acts that a frame's window holds
    turns_left: int  # user turns left to the whole trip
    turns: int  # user turns of the whole trip
    episode: EpisodeView
    options: tuple[OptionView, ...] = ()  # none when the episode is over
    revealed: bool = True  # draw the hidden goals, what was misheard and which bookings are right before the episode is over
    source: str = ""  # name of a loaded ontology; "" for the built-in one


def check(view: DialogueView) -> None:
    """Raise ValueError unless the snapshot makes sense."""
    if not 0 <= view.turns_left <= view.turns:
        raise ValueError(f"{view.turns_left} of {view.turns} turns left")
    for frame in view.stack:
        if not 0 <= frame.held <= len(frame.acts):
            raise ValueError(f"the window of {frame.title!r} cannot hold {frame.held} of {len(frame.acts)} acts")
        for act in (*frame.given, *frame.acts):
            if act.speaker not in SPEAKERS:
                raise ValueError(f"{act.speaker!r} is no speaker: one of {', '.join(SPEAKERS)}")
