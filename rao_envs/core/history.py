"""The frames of an episode in order of opening, kept only when someone wants to draw them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rao_envs.core.callstack import EVENTS

if TYPE_CHECKING:
    from rao_envs.core.batch import RecursiveBatch
    from rao_envs.core.viewer import EpisodeView, FrameView


class History:
    """What a picture's side panel shows of instance 0: every frame so far, the last action and how it ended."""

    def __init__(self, batch: RecursiveBatch) -> None:
        self.batch = batch
        self.frames: dict[int, FrameView] = {}
        self.last_action = ""

    def begin(self) -> None:
        """Forget the past: an episode begins, or goes on from a saved state."""
        self.frames = {}
        self.last_action = ""
        self._note_open()

    def note(self, action: int) -> None:
        """Take in the step just made."""
        self.last_action = self.batch.action_names[action]
        self._note_returned()
        self._note_open()

    def join(self, histories: Iterable[History | None]) -> None:
        """Take in the frames that detached children opened and the returns they caused."""
        for history in histories:
            if history is not None:
                self.frames.update(history.frames)
        self.last_action = "join"
        self._note_returned()
        self._note_open()

    def view(self, title: str) -> EpisodeView:
        """The episode as the side panel draws it."""
        from rao_envs.core.viewer import EpisodeView

        stack = self.batch.stack
        episode = stack.episodes[0]
        outcome = ""
        if episode["truncated"]:
            outcome = "truncated"
        elif episode["terminated"]:
            outcome = "success" if episode["success"] else "failure"
        return EpisodeView(
            title=title,
            step=int(episode["clock"]),
            budget=int(stack.limits["budget"][0]),
            frames=tuple(self.frames[identity] for identity in sorted(self.frames)),
            last_action=self.last_action,
            event=EVENTS[episode["event"]],
            outcome=outcome,
        )

    def _note_open(self) -> None:
        from rao_envs.core.viewer import FrameView

        stack = self.batch.stack
        if self.batch.done[0]:
            return
        for depth in range(stack.episodes["depth"][0] + 1):
            frame = stack.frames[0, depth]
            self.frames[int(frame["id"])] = FrameView(
                frame_id=int(frame["id"]),
                parent_id=int(frame["parent"]),
                depth=depth,
                label=self._label(depth, int(frame["action"])),
                budget=int(frame["budget"]),
                steps=int(stack.episodes["clock"][0] - frame["start"]),
                status="open",
            )

    def _label(self, depth: int, action: int) -> str:
        domain = self.batch.domain
        question = domain.question(self.batch.state, 0, depth)
        return f"{domain.frame_label(action)}: {question}" if question else domain.frame_label(action)

    def _note_returned(self) -> None:
        from dataclasses import replace

        for entry in self.batch.returned(0):
            known = self.frames.get(entry["frame_id"])
            if known is not None:
                status = "success" if entry["success"] else "failure"
                self.frames[entry["frame_id"]] = replace(known, steps=entry["steps"], status=status)
