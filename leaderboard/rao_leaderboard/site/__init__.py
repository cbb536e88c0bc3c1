"""The leaderboard as a static site: `build` writes it; it needs no server and no network."""

from __future__ import annotations

from rao_leaderboard.site.build import build

__all__ = ["build"]
