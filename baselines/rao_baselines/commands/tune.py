"""placeholder"""
from __future__ import annotations

NAME = "tune"


def command() -> None:
    """To be written."""
