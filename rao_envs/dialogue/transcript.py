"""What was said in each frame since the episode began, kept beside the windows so that pictures can show what they forgot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rao_envs.core.history import History
from rao_envs.dialogue.acts import NONE


class Heard(NamedTuple):
    """What a frame's window holds now."""

    said: int  # acts that ever entered it, forgotten ones included
    acts: Sequence[Any]  # the ones it holds, the oldest first; kept as they are, so pass copies


@dataclass
class Talk:
    """Everything said in one frame."""

    acts: list[Any] = field(default_factory=list)  # the oldest first
    missing: int = 0  # acts that it did not see: said before the watching began, or too many in one step for the window
    held: int = 0  # how many of the last ones the window holds
    carried: int = 0  # how many of the first ones come from its parent's window
    scope: tuple[int, int] = (NONE, NONE)  # the frame's city and domain; NONE: several
    depth: int = 0
    children: list[tuple[int, Talk]] = field(default_factory=list)  # that returned, and how many `acts` there were before each did

    @property
    def said(self) -> int:
        """How many acts there were, seen or not."""
        return self.missing + len(self.acts)

    def take(self, heard: Heard) -> None:
        """Add what is new."""
        fresh = heard.said - self.said
        if fresh > len(heard.acts):
            self.missing += fresh - len(heard.acts)
            fresh = len(heard.acts)
        self.acts.extend(heard.acts[len(heard.acts) - fresh :])
        self.held = len(heard.acts)


class Transcript(History):
    """The frames of an episode (`History`), and every act said in them: records of `rao_envs.dialogue.acts.ACT`.

    Args:
        batch: what is watched: its instance 0, whose state is a `DialogueState`.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__(batch)
        self.talks: dict[int, Talk] = {}  # by frame id

    def begin(self) -> None:
        """Forget the past: an episode begins, or goes on from a saved state."""
        self.talks = {}
        super().begin()

    def talk(self, depth: int) -> Talk:
        """All that was said in the open frame at `depth`; at the base when the episode is over."""
        return self.talks[int(self.batch.stack.frames["id"][0, depth])]

    def join(self, histories: Iterable[History | None]) -> None:
        """Take in the frames that detached children opened, and what was said in them."""
        histories = tuple(histories)
        for history in histories:
            if isinstance(history, Transcript):
                self.talks |= {identity: talk for identity, talk in history.talks.items() if talk.said > self._said(identity)}
        super().join(histories)

    def _said(self, identity: int) -> int:
        return self.talks[identity].said if identity in self.talks else -1

    def _note_returned(self) -> None:
        super()._note_returned()
        stack = self.batch.stack
        for entry in self.batch.returned(0):  # the innermost first
            talk, parent = self.talks.get(entry["frame_id"]), self.talks.get(entry["parent_id"])
            if talk is None or parent is None:
                continue
            depth = entry["depth"]
            if stack.frames["id"][0, depth] == entry["frame_id"]:  # no sibling has taken its place: its last acts are still there
                talk.take(self._heard(depth))
            if all(child is not talk for _, child in parent.children):
                parent.children.append((len(parent.acts), talk))

    def _note_open(self) -> None:
        super()._note_open()
        stack = self.batch.stack
        parent: Talk | None = None
        for depth in range(int(stack.episodes["depth"][0]) + 1):  # of an episode that is over, the base: its last acts count as well
            identity = int(stack.frames["id"][0, depth])
            fresh = identity not in self.talks
            talk = self.talks.setdefault(identity, Talk())
            talk.take(self._heard(depth))
            if fresh:
                frame = self.batch.state.frames[0, depth]
                talk.depth, talk.scope = depth, (int(frame["city"]), int(frame["domain"]))
                talk.carried = common_start(talk.acts, parent.acts) if parent is not None else 0
            parent = talk

    def _heard(self, depth: int) -> Heard:
        """The window of the open frame at `depth`."""
        state = self.batch.state
        said, ring = int(state.frames["said"][0, depth]), state.acts[0, depth]
        first = max(0, said - int(state.rules["window"][0]) + int(state.frames["given"][0, depth]))
        return Heard(said, [ring[k % len(ring)].copy() for k in range(first, said)])


def common_start(acts: Sequence[Any], others: Sequence[Any]) -> int:
    """How many of the first `acts` are among `others`, in their order."""
    pool, count = iter([other.item() for other in others]), 0
    for act in acts:
        if act.item() not in pool:  # takes all up to the match out of the pool
            break
        count += 1
    return count
