"""The protocol's kernels without Numba, for domains written in plain Python (and for stepping through with a debugger).

`kernels.py` is executed a second time with `jit` switched off, so there is one source and two ways to run it.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from rao_envs.core import hooks, jit, kernels

NAME = "rao_envs.core._interpreted_kernels"


def interpreted() -> ModuleType:
    """The module `rao_envs.core.kernels`, uncompiled."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    spec = importlib.util.spec_from_file_location(NAME, kernels.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    compiled = jit.jit, jit.lean, jit.inline, jit.splice
    jit.jit = jit.lean = jit.inline = jit.splice = _plain
    try:
        spec.loader.exec_module(module)
    finally:
        jit.jit, jit.lean, jit.inline, jit.splice = compiled
    sys.modules[NAME] = module
    return module


def kernels_for(state: Any) -> ModuleType:
    """The kernels that can run on this state: compiled ones if its type has compiled hooks.

    Raises:
        TypeError: it has neither compiled hooks nor all of them as methods (`progress` is needed for dense feedback only).
    """
    if hooks.is_compiled(state):
        return kernels
    missing = [name for name in hooks.HOOKS if name != "progress" and not hasattr(state, name)]
    if missing:
        raise TypeError(f"{type(state).__name__} lacks the hooks {', '.join(missing)}: write them as methods, or compiled with implement()")
    return interpreted()


def _plain(function: Any) -> Any:
    return function
