"""Dialogues for a terminal: the chat of the open frames, the bookings, the recursion tree, and what can be said now. Needs no pygame."""

from __future__ import annotations

import textwrap
import unicodedata

from rao_envs.core.viewer import FAILURE, MUTED, SUCCESS, Color, depth_color, paint_text, tree_text
from rao_envs.dialogue.view import AGENT, RESULT, ActView, DialogueFrameView, DialogueView, ItemView, OptionView, check

WIDTH = 96  # columns
ACTING_ACTS = 14  # of the acting frame, the newest
WAITING_ACTS = 3  # of each frame above it
PALE: Color = (150, 150, 150)
LEAST_WIDTH = 40
LONGEST = 240  # columns of an act
MOST_SINGLE = 16  # actions that get a line each


def draw_ansi(view: DialogueView, color: bool = True, width: int = WIDTH, capacity: int = 8) -> str:
    """The dialogue as text: bookings, the open frames inside each other with the newest acts, the recursion tree, the allowed actions.

    The counterpart's acts stand on the left, the agent's on the right. In each frame a rule says where its window begins: what is
    above it is forgotten.

    Args:
        view: the snapshot.
        color: use ANSI colours; without them only signs tell things apart.
        width: columns.
        capacity: lines for the tree.

    Raises:
        ValueError: `width` under 40, or the snapshot makes no sense.
    """
    check(view)
    if width < LEAST_WIDTH:
        raise ValueError(f"width must be at least {LEAST_WIDTH} columns, got {width}")
    revealed = view.revealed or bool(view.episode.outcome)
    title = view.stack[0].title if view.stack else view.episode.title
    title = shorten(title, 50) + (f" ({shorten(view.source, 20)})" if view.source else "")
    lines = [f"{title}: {view.turns_left} of {view.turns} turns left"]
    for item in view.items:
        lines += _wrapped(_item_text(item, revealed), width, "  ", "      ")
    for k, frame in enumerate(view.stack):
        lines += _frame_lines(frame, view.window, k, k == len(view.stack) - 1, revealed, color, width)
    lines.append(tree_text(view.episode, color, capacity))
    lines += option_lines(view.options, width)
    return "\n".join(lines)


def _item_text(item: ItemView, revealed: bool) -> str:
    """A booking: a box, the domain, the entity, and the wishes where they may be seen."""
    mark = "[ ]" if not item.booked else "[b]" if not revealed or item.right is None else "[+]" if item.right else "[x]"
    text = f"{mark} {shorten(item.city, 20) + ', ' if item.city else ''}{shorten(item.title, 30)}"
    if item.booked:
        text += f": {shorten(item.booked, 40)}" + ("" if not revealed or item.right is None else ", right" if item.right else ", WRONG")
    if revealed and item.wishes:
        kept = ", ".join(wish.text for wish in item.wishes if not wish.dropped)
        given = ", ".join(wish.text for wish in item.wishes if wish.dropped)
        text += f"  (wants {kept or 'nothing'}" + (f"; gave up {given}" if given else "") + ")"
    if item.waits_for:
        text += f"  (after {', '.join(item.waits_for)})"
    return text + ("  <--" if item.current else "")


def _frame_lines(frame: DialogueFrameView, window: int, level: int, acting: bool, revealed: bool, color: bool, width: int) -> list[str]:
    """A frame's heading and its newest acts, behind one bar per open frame."""
    bars = "".join(paint_text("│ ", depth_color(k)) if color else "│ " for k in range(level + 1))
    above = "".join(paint_text("│ ", depth_color(k)) if color else "│ " for k in range(level))
    corner = paint_text("┌ ", depth_color(frame.depth)) if color else "┌ "
    facts = f"  (turns {frame.turns_left}/{frame.turns}, window {min(frame.held + len(frame.given), window)}/{window})"
    title = frame.title + (f": {frame.focus}" if frame.focus else "")
    head = shorten(title, max(10, width - 2 * level - len(facts) - 2)) + facts
    lines = [above + corner + (paint_text(head, depth_color(frame.depth)) if color else head)]
    room = max(20, width - 2 * (level + 1))
    first = max(0, len(frame.acts) - (ACTING_ACTS if acting else WAITING_ACTS))
    horizon = len(frame.acts) - frame.held
    hidden = first + frame.missing
    for act in frame.given:
        lines += [bars + line for line in _act_lines(act, "", False, frame.depth, revealed, color, room)]
    if hidden:
        lines.append(bars + _rule(f"{hidden} earlier" + (" (forgotten)" if first <= horizon else ""), room, color))
    if not frame.acts and not hidden and acting:
        lines.append(bars + "nothing said yet")
    about = ""
    for k in range(first, len(frame.acts)):
        if k == horizon and k > first:
            lines.append(bars + _rule("forgotten above, in the window below", room, color))
        act = frame.acts[k]
        name, about = act.about if act.about != about else "", act.about or about
        lines += [bars + line for line in _act_lines(act, name, k < horizon, frame.depth, revealed, color, room)]
    if horizon == len(frame.acts) > first:
        lines.append(bars + _rule("forgotten above", room, color))
    return lines


def _act_lines(act: ActView, name: str, forgotten: bool, depth: int, revealed: bool, color: bool, width: int) -> list[str]:
    """One act, wrapped: the agent's on the right."""
    text = (
        (f"{shorten(act.about, 30)}: " if act.about else "")
        + shorten(act.text, LONGEST)
        + (" (not sure)" if not act.sure else "")
        + (" (from above)" if act.carried else "")
    )
    if act.meant and revealed:
        text += f" [meant: {shorten(act.meant, LONGEST)}]"
    if act.speaker == RESULT:
        mark = "=" if act.good is None else "b" if not revealed else "+" if act.good else "x"
        text = f"[{mark}] {text}"
    room = max(20, width * 3 // 4)
    lines = _wrapped(text, room, "", "    " if act.speaker == RESULT else "")
    if act.speaker == AGENT:
        wide = max(map(columns, lines))
        lines = [" " * (width - wide) + line for line in lines]
    if not color:
        return lines
    tone = {True: SUCCESS, False: FAILURE, None: MUTED}[act.good if revealed else None] if act.speaker == RESULT else None
    tone = PALE if forgotten else depth_color(depth) if act.speaker == AGENT else tone
    return [paint_text(line, tone) if tone else line for line in lines]


def option_lines(options: tuple[OptionView, ...], width: int = WIDTH) -> list[str]:
    """The allowed actions, in two columns when there are many."""
    if not options:
        return []
    texts = [f"[{option.index}] {option.name}" + (f": {option.text}" if option.text else "") for option in options]
    if len(texts) <= MOST_SINGLE:
        return ["you can:", *(line for text in texts for line in _wrapped(text, width, "  ", "      "))]
    half, wide = -(-len(texts) // 2), width // 2 - 2
    lines = ["you can:"]
    for k in range(half):
        left, right = shorten(texts[k], wide), shorten(texts[half + k], wide) if half + k < len(texts) else ""
        lines.append(f"  {left}{' ' * (wide - columns(left) + 1)}{right}".rstrip())
    return lines


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest) or [first]


def _rule(text: str, width: int, color: bool) -> str:
    side = "─" * max(2, min(12, (width - len(text)) // 2 - 1))
    line = f"{side} {text} {side}"
    return paint_text(line, PALE) if color else line


def columns(text: str) -> int:
    """Columns of a terminal that `text` takes: wide letters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, width: int) -> str:
    """`text` cut to `width` columns, with "..." at its end if something is missing."""
    if columns(text) <= width:
        return text
    kept = ""
    for letter in text:
        if columns(kept + letter) > width - 3:
            break
        kept += letter
    return kept.rstrip() + "..."
