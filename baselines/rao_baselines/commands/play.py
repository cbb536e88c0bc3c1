"""placeholder"""
from __future__ import annotations

NAME = "play"


def command() -> None:
    """To be written."""
