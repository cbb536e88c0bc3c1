"""Errors that are the user's to repair: the command line prints their message without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user asked for that cannot be done; the message says what is allowed."""


class StoppedError(Exception):
    """A run that was stopped on request after saving everything needed to go on."""


def nearest(word: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The known words most like `word`, best first, compared without regard to case."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n, 0.5)
    return [by_lower[name] for name in found]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a message, with a leading space: the nearest known words, or all of them when nothing is near."""
    names = list(known)
    close = nearest(word, names)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" Known: {', '.join(names)}." if names else ""
