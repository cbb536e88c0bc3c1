"""Baselines for the environments of `rao_envs`: training, evaluation, comparison, benchmarks, and the `rao` command.

Importing this package is cheap; its modules load torch and Stable-Baselines3 where they need them.
"""

from __future__ import annotations

__all__: list[str] = []
