"""The chat in a dialogue's picture: open frames as cards inside each other, what was said in them as bubbles, the newest at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rao_envs.core.canvas import Canvas, Layer, Rect
from rao_envs.core.lettering import Lettering
from rao_envs.core.viewer import FAILURE, INK, LINE, MUTED, PAPER, SUCCESS, Color, depth_color
from rao_envs.dialogue.view import AGENT, COUNTERPART, RESULT, ActView, DialogueFrameView, DialogueView, FinishedView

UNSURE: Color = (214, 138, 0)
FADED: Color = (148, 160, 178)
PARENTS_SHARE = 0.3  # of the room, kept for what the waiting frames said last
CAPTION = 16
PAST_ACTS = (30, 12, 8, 6, 4, 3, 2)  # of each returned child, the most that fit
PAST_LINE = 15
GIVEN_SHARE = 0.5  # of the acting frame's room, at most, for what it was given
MOST_LINES = 4  # of a bubble; a longer sentence ends in "..."


@dataclass(frozen=True)
class Bubble:
    """An act laid out."""

    act: ActView
    forgotten: bool
    lines: tuple[str, ...]
    meant: tuple[str, ...]  # what was really said
    tag: str  # beside the bubble
    caption: str  # above it: whom it is said to, where that changes
    width: int
    height: int  # with the caption


@dataclass(frozen=True)
class Past:
    """A sub-dialogue that has returned, laid out as a small card of one-line acts."""

    finished: FinishedView
    acts: tuple[ActView, ...]  # the last ones
    height: int


@dataclass(frozen=True)
class Part:
    """The part of a frame's talk that is drawn."""

    frame: DialogueFrameView
    bubbles: tuple[Bubble, ...]  # the last ones
    hidden: int  # acts before them
    split: int  # how many of the bubbles are forgotten
    given: tuple[Bubble, ...] = ()  # on top: what is never forgotten
    pasts: tuple[Past, ...] = ()  # where there is room for them


class Chat:
    """One chat being drawn in `rect`."""

    def __init__(self, canvas: Canvas, lettering: Lettering, surface: Any, view: DialogueView, rect: Rect, scale: float) -> None:
        self.canvas, self.lettering, self.surface, self.view, self.scale = canvas, lettering, surface, view, scale
        self.rect = rect
        self.size, self.small, self.tiny = self.px(13), self.px(12), self.px(11)
        self.line, self.head, self.note = self.px(17), self.px(27), self.px(19)
        self.gap, self.pad, self.inset = self.px(5), self.px(8), self.px(12)
        self.revealed = view.revealed or bool(view.episode.outcome)

    def px(self, value: float) -> int:
        """`value` pixels at the default size."""
        return max(1, round(value * self.scale))

    def draw(self) -> None:
        """Draw every open frame that finds room, the acting one in any case."""
        left, top, width, height = self.rect
        if not self.view.stack:
            self._note("Nothing said yet", left, top + height // 2, width)
            return
        frames = list(self.view.stack)
        while len(frames) > 1 and height - len(frames) * (self.head + self.pad) < self.px(70):
            frames.pop(0)
        parts = self._share(frames, width, height - len(frames) * (self.head + self.pad))
        for k, part in enumerate(parts):
            shift = self.inset if k else 0
            left, width, bottom = left + shift, width - shift - (self.px(5) if k else 0), top + height
            self._card((left, top, width, height), part, acting=k == len(parts) - 1)
            self.surface.set_clip((left + 2, top + 2, width - 4, height - 4))  # the newest act is drawn even where it is too tall
            top = self._talk(part, left + self.pad, top + self.head, width - 2 * self.pad, acting=k == len(parts) - 1)
            self.surface.set_clip(None)
            height = bottom - top - self.px(5)

    # -- what finds room -----------------------------------------------------------------------------------------------------

    def _share(self, frames: list[DialogueFrameView], width: int, room: int) -> list[Part]:
        """Which bubbles of which frame are drawn: first the acting frame's, then its parents', the nearest first."""
        inner = [width - 2 * self.pad - (self.inset + self.px(5)) * k for k in range(len(frames))]
        laid = [self._lay(frame, wide) for frame, wide in zip(frames, inner, strict=True)]
        needs = [self._height(bubbles) for bubbles in laid]
        kept = min(sum(needs[:-1]), round(PARENTS_SHARE * room))
        parts: list[Part] = []
        for k in range(len(frames) - 1, -1, -1):
            acting = k == len(frames) - 1
            limit = room - kept if acting else room if k == 0 else round(0.6 * room)
            given = self._given(frames[k], inner[k], round(GIVEN_SHARE * limit)) if acting else ()
            above = self._height(given)
            part, used = self._pick(frames[k], laid[k], limit - above)
            if acting:
                part = replace(part, given=given, pasts=self._remember(part, limit - above - used))
                used += above + sum(past.height + self.gap for past in part.pasts)
            parts.append(part)
            room -= used
        return parts[::-1]

    def _given(self, frame: DialogueFrameView, width: int, room: int) -> tuple[Bubble, ...]:
        """What the frame was given, as far as it fits into `room` pixels."""
        bubbles = [self._bubble(act, False, width, "") for act in frame.given]
        while bubbles and self._height(bubbles) > room:
            bubbles.pop()
        return tuple(bubbles)

    def _pick(self, frame: DialogueFrameView, bubbles: list[Bubble], room: int) -> tuple[Part, int]:
        """The last bubbles that fit into `room` pixels, and how many of these they take."""
        first = len(bubbles)
        while first > 0 and self._taken(frame, bubbles, first - 1) <= room:
            first -= 1
        if first == len(bubbles) and bubbles and frame is self.view.stack[-1]:
            first -= 1  # the newest act is drawn, cut off if it must be
        shown, used = bubbles[first:], self._taken(frame, bubbles, first)
        if shown and self._unnamed(shown[0]):
            shown[0] = replace(shown[0], caption=shown[0].act.about, height=shown[0].height + self.px(CAPTION))
        return Part(frame, tuple(shown), self._hidden(frame, shown), sum(b.forgotten for b in shown)), used

    def _hidden(self, frame: DialogueFrameView, shown: Sequence[Bubble]) -> int:
        """How many acts there are before the bubbles that are shown."""
        return frame.missing + len(frame.acts) - len(shown)

    def _taken(self, frame: DialogueFrameView, bubbles: list[Bubble], first: int) -> int:
        """Pixels of the bubbles from `first` on with their notes."""
        shown = bubbles[first:]
        if not shown and frame is not self.view.stack[-1]:
            return 0
        notes = int(self._hidden(frame, shown) > 0) + int(any(b.forgotten for b in shown)) + int(not shown)
        return self._height(shown) + notes * self.note + self.px(CAPTION) * bool(shown and self._unnamed(shown[0]))

    def _unnamed(self, bubble: Bubble) -> bool:
        """Whether the bubble needs a caption once it is the first one in sight."""
        return bool(bubble.act.about) and not bubble.caption

    def _remember(self, part: Part, room: int) -> tuple[Past, ...]:
        """The acting frame's returned children, the latest first, with as many of their acts as find room."""
        children = [child for child in part.frame.finished if child.acts and child.place + part.frame.missing >= part.hidden]
        for most in PAST_ACTS:
            pasts = [Past(child, child.acts[-most:], self.head + self.px(PAST_LINE) * min(most, len(child.acts))) for child in children]
            if sum(past.height + self.gap for past in pasts) <= room:
                return tuple(pasts)
        return ()

    def _height(self, bubbles: Sequence[Bubble]) -> int:
        return sum(bubble.height + self.gap for bubble in bubbles)

    def _lay(self, frame: DialogueFrameView, width: int) -> list[Bubble]:
        """The last acts, as many as the whole chat could hold at most."""
        forgotten = len(frame.acts) - frame.held
        start = max(0, len(frame.acts) - self.rect[3] // self.line - 1)
        bubbles, about = [], ""
        for k, act in enumerate(frame.acts[start:], start):
            bubbles.append(self._bubble(act, k < forgotten, width, act.about if act.about != about else ""))
            about = act.about or about
        return bubbles

    def _bubble(self, act: ActView, forgotten: bool, width: int, caption: str) -> Bubble:
        """An act in a frame whose talk is `width` pixels wide."""
        tags = ["from above"] * act.carried + ["not sure"] * (not act.sure)
        tag = ", ".join(tags)
        room = width - 2 * self.px(10)
        if act.speaker == RESULT:
            room -= self.px(20) + (self.lettering.width(tag, self.tiny) + self.px(7) if tag else 0)
        else:
            room = round(room * (0.94 if width < self.px(200) else 0.8))
        room = max(room, self.px(20))
        lettering = self.lettering
        lines = tuple(lettering.wrap(act.text, self.size, room, MOST_LINES)) or ("",)
        meant = tuple(lettering.wrap(f"Meant: {act.meant}", self.tiny, room, 2)) if act.meant and self.revealed else ()
        widths = [lettering.width(line, self.size) for line in lines] + [lettering.width(line, self.tiny) for line in meant]
        full = width - (self.lettering.width(tag, self.tiny) + self.px(7) if tag else 0)
        wide = full if act.speaker == RESULT else min(width, max(widths) + 2 * self.px(10))
        if lettering.width(tag, self.tiny) + self.px(6) > width - wide:
            tag = ""
        height = len(lines) * self.line + len(meant) * self.px(15) + 2 * self.px(5)
        height += self.px(CAPTION) * bool(caption)
        return Bubble(act, forgotten, lines, meant, tag, caption, wide, height)

    # -- drawing -------------------------------------------------------------------------------------------------------------

    def _card(self, rect: Rect, part: Part, acting: bool) -> None:
        """A frame's ground and its heading."""
        left, top, width, _ = rect
        frame, color = part.frame, depth_color(part.frame.depth)
        line = self.px(2 if acting else 1)
        self.canvas.draw_box(self.surface, rect, self.px(9), fill=(tint(color, 0.92), 255), line=(color, 255), width=line)
        middle, right = top + self.head // 2, left + width - self.pad
        ink = darker(color)
        for text in (
            f"turns {frame.turns_left}/{frame.turns}",
            f"window {min(frame.held + len(frame.given), self.view.window)}/{self.view.window}",
        ):
            wide = self.lettering.width(text, self.tiny)
            if right - wide < left + 0.4 * width:
                break
            self.lettering.draw(self.surface, text, (right - wide, middle), self.tiny, MUTED)
            right -= wide + self.px(12)
        room, title = right - left - self.pad, frame.title
        if frame.focus:
            title = f"{frame.title}: {frame.focus}"
            if self.lettering.width(title, self.small, bold=True) > room:  # whom it speaks to matters more than where
                title = f"{frame.focus}, {frame.title}"
        titles = self.lettering.wrap(title, self.small, room, 1, bold=True)
        self.lettering.draw(self.surface, " ".join(titles), (left + self.pad, middle), self.small, ink, bold=True)

    def _talk(self, part: Part, left: int, y: int, width: int, acting: bool) -> int:
        """The bubbles of a frame from `y` down; returns the y below them."""
        for bubble in part.given:
            self._draw(bubble, part.frame.depth, left, y, width)
            y += bubble.height + self.gap
        if part.hidden and (part.bubbles or acting):
            fate = " (forgotten)" if part.split or part.frame.held <= len(part.bubbles) else ""
            self._note(f"{part.hidden} earlier{fate}", left, y + self.note // 2 - self.px(2), width)
            y += self.note
        if not part.bubbles and not part.hidden and acting:
            self._note("Nothing said yet", left, y + self.note // 2, width)
            y += self.note
        first = part.hidden - part.frame.missing
        for k, bubble in enumerate(part.bubbles):
            y = self._pasts(part, first + k, left, y, width)
            if k and k == part.split:
                y = self._horizon(part, left, y, width)
            self._draw(bubble, part.frame.depth, left, y, width)
            y += bubble.height + self.gap
        y = self._pasts(part, first + len(part.bubbles), left, y, width)
        if part.split and part.split == len(part.bubbles):
            y = self._horizon(part, left, y, width)
        return y

    def _pasts(self, part: Part, place: int, left: int, y: int, width: int) -> int:
        """The children that returned after `place` acts; returns the y below them."""
        for past in part.pasts:
            if past.finished.place == place:
                self._past(past, left + self.inset, y, width - self.inset)
                y += past.height + self.gap
        return y

    def _past(self, past: Past, left: int, y: int, width: int) -> None:
        """A small pale card with the last acts of a child that has returned."""
        color = depth_color(past.finished.depth)
        rect = (left, y, width, past.height)
        self.canvas.draw_box(self.surface, rect, self.px(9), fill=(tint(color, 0.94), 255), line=(tint(color, 0.6), 255), width=self.px(1))
        inside, room = left + self.pad, width - 2 * self.pad
        more = len(past.finished.acts) - len(past.acts)
        title = past.finished.title + (f", {more} earlier" if more else "")
        for text in self.lettering.wrap(title, self.tiny, room, 1, bold=True):
            self.lettering.draw(self.surface, text, (inside, y + self.head // 2), self.tiny, darker(tint(color, 0.25)), bold=True)
        y += self.head - self.px(4)
        for act in past.acts:
            for text in self.lettering.wrap(act.text, self.tiny, round(0.85 * room), 1):
                wide = self.lettering.width(text, self.tiny)
                x = inside + room - wide if act.speaker == AGENT else inside
                ink = darker(tint(color, 0.25)) if act.speaker == AGENT else MUTED
                self.lettering.draw(self.surface, text, (x, y + self.px(PAST_LINE) // 2), self.tiny, ink)
            y += self.px(PAST_LINE)

    def _horizon(self, part: Part, left: int, y: int, width: int) -> int:
        """The line between what is forgotten and what the window holds."""
        text = "forgotten above, in the window below"
        wide = self.lettering.width(text, self.tiny)
        if wide > width - 2 * self.px(20):
            text = "forgotten"
            wide = self.lettering.width(text, self.tiny)
        middle, color = y + self.note // 2 - self.px(2), depth_color(part.frame.depth)
        side = (width - wide) // 2 - self.px(6)
        if side > 0:
            self.surface.fill(color, (left, middle, side, 1))
            self.surface.fill(color, (left + width - side, middle, side, 1))
        self.lettering.draw(self.surface, text, (left + (width - wide) // 2, middle), self.tiny, darker(color))
        return y + self.note

    def _note(self, text: str, left: int, middle: int, width: int) -> None:
        text = self.lettering.cut(text, self.tiny, width)
        wide = self.lettering.width(text, self.tiny)
        self.lettering.draw(self.surface, text, (left + (width - wide) // 2, middle), self.tiny, MUTED)

    def _draw(self, bubble: Bubble, depth: int, left: int, y: int, width: int) -> None:
        """One bubble: the agent's on the right, the counterpart's on the left, a result across."""
        act, color = bubble.act, depth_color(depth)
        x = left + width - bubble.width if act.speaker == AGENT else left
        good = act.good if self.revealed else None
        fill, line, ink = style(replace(act, good=good), color)
        if bubble.forgotten:
            fill, line, ink = (tint(color, 0.92), LINE, FADED) if act.speaker != AGENT else (tint(color, 0.8), tint(color, 0.8), FADED)
        if bubble.caption:
            side = "right" if act.speaker == AGENT else "left"
            end = left + width - self.px(4) if side == "right" else left + self.px(4)
            text = self.lettering.cut(bubble.caption, self.tiny, width)
            at = end - self.lettering.width(text, self.tiny, True) if side == "right" else end
            self.lettering.draw(
                self.surface, text, (at, y + self.px(6)), self.tiny, FADED if bubble.forgotten else darker(color), bold=True
            )
            y += self.px(CAPTION)
        height = bubble.height - self.px(CAPTION) * bool(bubble.caption)
        rect = (x, y, bubble.width, height)
        self.canvas.draw_box(self.surface, rect, self.px(9), fill=(fill, 255), line=(line, 255), width=self.px(1))
        inside, row = x + self.px(10), y + self.px(5)
        if act.speaker == RESULT:
            mark = (x + self.px(15), row + self.line // 2)
            self.canvas.draw_mark(self.surface, mark, self.px(14), *result_mark(act.good, good, line if not bubble.forgotten else FADED))
            inside += self.px(18)
        for text in bubble.lines:
            self.lettering.draw(self.surface, text, (inside, row + self.line // 2), self.size, ink)
            row += self.line
        for text in bubble.meant:
            self.lettering.draw(self.surface, text, (inside, row + self.px(7)), self.tiny, FAILURE if not bubble.forgotten else FADED)
            row += self.px(15)
        if bubble.tag:
            wide, middle = self.lettering.width(bubble.tag, self.tiny), y + height // 2
            at = x - self.px(6) - wide if act.speaker == AGENT else x + bubble.width + self.px(6)
            tone = FADED if bubble.forgotten else MUTED if act.sure else UNSURE
            self.lettering.draw(self.surface, bubble.tag, (at, middle), self.tiny, tone)


def style(act: ActView, color: Color) -> tuple[Color, Color, Color]:
    """Fill, line and ink of an act's bubble in a frame of `color`."""
    if act.speaker == AGENT:
        deep = darker(color, 0.85)
        return deep, deep, PAPER
    if act.speaker == COUNTERPART:
        return PAPER, PAPER if act.sure else UNSURE, INK
    tone = MUTED if act.good is None else SUCCESS if act.good else FAILURE
    return tint(tone, 0.88), tone, INK


def result_mark(booked: bool | None, good: bool | None, color: Color) -> tuple[Layer, ...]:
    """The sign of a result: a dot where nothing is booked (None), else a check, or a cross where that is known to be wrong."""
    if booked is None:
        return (("disc", 0.95, color, 255), ("disc", 0.4, PAPER, 255))
    return (("disc", 0.95, color, 255), ("cross" if good is False else "check", 0.5, PAPER, 255))


def tint(color: Color, share: float) -> Color:
    """`color` mixed with white."""
    red, green, blue = (round(part + (255 - part) * share) for part in color)
    return red, green, blue


def darker(color: Color, share: float = 0.62) -> Color:
    """`color` mixed with black."""
    red, green, blue = (round(part * share) for part in color)
    return red, green, blue
