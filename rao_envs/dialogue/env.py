"""`RAO/Dialogue`: plan a trip by talking, alone or by handing bookings and cities to sub-dialogues."""

from __future__ import annotations

from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.env import PICTURED, RecursiveEnv
from rao_envs.core.vector import RecursiveVectorEnv
from rao_envs.dialogue.domain import DialogueDomain
from rao_envs.dialogue.ontology import Ontology
from rao_envs.dialogue.snapshot import snapshot
from rao_envs.dialogue.transcript import Transcript
from rao_envs.dialogue.view import DialogueView
from rao_envs.dialogue.viewer import DialogueViewer


class DialogueEnv(RecursiveEnv):
    """Plan a trip with one traveller per booking, within so many user turns, through a window of a few dialogue acts.

    ## Description
    A group goes on a trip: to one city or several, with a few things to book in each (a hotel, a restaurant, a museum, ...). Every booking has its own
    counterpart, a simulated traveller with wishes that the agent has to find out: it is told most of them in the opening, some of it
    misheard; it may ask, have things confirmed, make an offer, negotiate where nothing fits, and book, once and for good. Some wishes
    refer to other bookings ("the same day as the hotel"). Every question, confirmation, offer and negotiation takes one of the trip's
    user turns. A frame sees the last W dialogue acts (10 by default), and all that it offers, books or gives up follows from these acts alone.
    A child frame talks about one city or one booking: with a fresh window, an allotment of turns, and the bookings that
    its goal refers to; it brings back one act, and the turns it did not use (MISSION A1, A2, A7, A8).

    ## Action space
    `Discrete(40)`, in this order (`env.unwrapped.action_names`): `request_0`-`3`, `confirm_0`-`3` (slots of the domain in focus), `offer`,
    `relax_0`-`3` (give up a wish), `book`, `return`; `focus_<domain>` (8) and `focus_city_<city>` (4); `spawn_<domain>` (8), `spawn_city_<city>` (4) and
    `spawn_all`. `Discrete(27)` with `spawn=False`. `spawn_all` opens every domain of the city that waits for no other booking, or, where
    several cities are in view, every city: independent children. Masked: talk with nobody in focus, or without turns; confirming what is not heard or is certain; an offer
    or a booking that the window gives no grounds for (nothing fits, or the bookings that the goal refers to are out of sight); `relax_k` while something fits; a focus right after a focus; `return` in the root, and in
    a frame that has done nothing yet; domains that are booked, not needed, or wait for another booking; focus and spawn in a domain's frame.
    What is offered or booked is the first entity that fits all that the window tells and was not turned down there.

    ## Observation space
    | key | space | content |
    |---|---|---|
    | `task` | `Box(0, 1, (478,), int8)` | all bits. W acts, the newest first: kind (16), heard well, from a child, about the city and about the domain in focus, domain (8), slot (4), value (4, the same as elsewhere). Per slot of the domain in focus what the window says of it (7: nothing, heard badly, heard well, certain, does not matter, given up, refers to a booking out of sight). Entities that fit (0, 1, 2, more), whether there is one to offer, whether one is accepted. User turns left (0 to 12 and more), and for each domain still open (0 to 4). Domains: in focus, open, waiting for nothing, booked, referring to others, these bookings in sight (8 each). Cities: in focus, open (4 each). `env.unwrapped.domain.fields` names the parts |
    | `results` | `Box(-1, 1, (12,), int8)` | per domain and city: the latest child came back with everything booked (1) or not (-1); 0 no child |
    | `call` | `Box(0, 1, (6,), float32)` | see `RecursiveEnv`; the last two are 0: whether a booking is right shows in `info` only |
    | `action_mask` | `MultiBinary(40)` | 1 where the action is allowed |

    **Context** (PROTOCOL rule 12): W dialogue acts per frame, whoever says them; bookings that a frame was given when it opened take room
    among them. The trip's plan is known throughout: what is needed, what is booked, who waits for whom. Nothing else survives: what has left the
    window has to be asked again. One act survives a child's return (its booking); of a domain that was not booked, the latest word on each slot.

    ## Rewards
    1 when everything is booked and meets its counterpart's wishes, less those it gave up; else 0. A child's local outcome is 1 for all right, 0
    without, and -1 for each wrong booking of its own. With `feedback="dense"`, `info["dense_reward"]` pays, for each booking once, the share of the
    trip that it is if it is right, and takes it if it is wrong: 1 in all over a solved episode.

    ## Endings
    A frame ends when its scope is booked, when it returns, when its turns are gone and it has nothing to book, or (truncated, which takes wasting
    steps) after 5 steps per turn, 2 per booking and 3. The root's turns are the trip's. A child gets the part of its parent's turns that its bookings are of
    those the parent has yet to make, rounded up; unused turns go home with it.

    ## Registered ids
    `RAO/Dialogue-5turn-v0`, `-10turn`, `-20turn`, `-40turn`, all with the same spaces, and `RAO/Dialogue-v0` for your own keyword arguments.

    Args:
        **kwargs: those of `rao_envs.dialogue.domain.DialogueDomain` (`turns`, `domains`, `cities`, `slots`, `values`, `entities`, `constraints`,
            `error_rate`, `volunteering`, `dependency`, `unsatisfiable`, `window`, `ontology`, `goals`) and of `RecursiveEnv` (`spawn`,
            `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    metadata = PICTURED  # type: ignore[misc]
    domain_class = DialogueDomain
    viewer_class = DialogueViewer
    domain: DialogueDomain

    @property
    def ontology(self) -> Ontology:
        """What the indices of acts, slots, values and entities stand for. Drawn databases have its names, not its values."""
        return self.domain.ontology

    def _attach(self, batch: RecursiveBatch) -> None:
        super()._attach(batch)
        if self.history is not None:
            self.history = Transcript(batch)

    def view(self) -> DialogueView:
        """Everything a picture shows, as plain data."""
        return snapshot(self)


class DialogueVectorEnv(RecursiveVectorEnv):
    """Any number of trips at once; everything else as `DialogueEnv`."""

    domain_class = DialogueDomain
