"""The subcommands of `rao`, one module each. They parse and print; the work is done by the modules beside this package."""

from __future__ import annotations

__all__: list[str] = []
