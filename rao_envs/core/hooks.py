"""The hooks a domain fills in, and how a compiled kernel finds them.

A domain's state is a NamedTuple of arrays. The kernels of `rao_envs.core.kernels` are written once against the functions below.
Compiled, each call is bound to the implementation registered for the state's type (`implement`), so that Numba sees one flat program
and caches it on disk. Uncompiled, it falls back to a method of the state of the same name: a domain in plain Python needs no Numba.

All hooks take `(domain, stack, ..., i)`: the state, the call stack, and the instance's index in the batch. `stack.episodes[i]["depth"]`
is the depth of the acting frame. Hooks may read the stack, and write only `value` and `score` of the acting frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import overload

from rao_envs.core.callstack import CallStack, Observation
from rao_envs.core.jit import OPTIONS


def begin(domain: Any, stack: CallStack, i: int) -> None:
    """Make instance `i`'s task from `stack.rng[i]` and set its root frame."""
    domain.begin(stack, i)


def allowed(domain: Any, stack: CallStack, i: int, action: int) -> bool:
    """Whether the acting frame may take `action`, as far as the domain is concerned (depth and budget are checked by the core).

    Some primitive must be allowed as long as the frame runs: a frame that may do nothing could only wait for its budget's end.
    """
    return bool(domain.allowed(stack, i, action))


def act(domain: Any, stack: CallStack, i: int, action: int) -> None:
    """Apply an allowed primitive `action` in the acting frame."""
    domain.act(stack, i, action)


def fanout(domain: Any, stack: CallStack, i: int, action: int) -> int:
    """How many children the allowed spawn `action` opens: 1, or more when they are independent (`spawn_all`)."""
    return int(domain.fanout(stack, i, action))


def open_child(domain: Any, stack: CallStack, i: int, action: int, k: int) -> int:
    """Set the domain's record of child number `k` at depth + 1; returns the steps it wants.

    Of several children each is also asked once before any opens: what they want decides how they share the steps that are left.
    A child must not be solved already when it opens: the mask has to forbid that spawn. Independent siblings open before, after or
    without one another's `receive`, so that nothing may be read here that siblings, or `receive`, write.
    """
    return int(domain.open_child(stack, i, action, k))


def resolve(domain: Any, stack: CallStack, i: int) -> int:
    """RUNNING, SUCCESS or FAILURE of the acting frame. Called after each of its steps and after each return of its children."""
    return int(domain.resolve(stack, i))


def receive(domain: Any, stack: CallStack, i: int, success: bool) -> None:
    """Let the acting frame take in the result of its child, whose records are still at depth + 1."""
    domain.receive(stack, i, success)


def observe(domain: Any, stack: CallStack, obs: Observation, i: int) -> None:
    """Write `obs.task[i]` and `obs.results[i]` for the acting frame."""
    domain.observe(stack, obs, i)


def progress(domain: Any, stack: CallStack, i: int) -> float:
    """Potential of the whole task, for dense feedback: its increments are paid, so that progress is paid once."""
    return float(domain.progress(stack, i))


HOOKS = {f.__name__: f for f in (begin, allowed, act, fanout, open_child, resolve, receive, observe, progress)}

_implementations: dict[str, dict[Any, Callable[..., Any]]] = {name: {} for name in HOOKS}


def implement(state_type: type, **kernels: Any) -> None:
    """Register a family's compiled hooks for its state type.

    Args:
        state_type: the NamedTuple class of the domain's state.
        **kernels: one `@jit` function per hook, with the hook's own signature.

    Raises:
        TypeError: a hook is missing, unknown, or has another signature.
    """
    if set(kernels) != set(HOOKS):
        raise TypeError(f"{state_type.__name__} must implement exactly the hooks {sorted(HOOKS)}, got {sorted(kernels)}")
    for name, kernel in kernels.items():
        names, wanted = (list(inspect.signature(f).parameters) for f in (kernel.py_func, HOOKS[name]))
        if names != wanted:
            raise TypeError(f"hook {name} of {state_type.__name__} must take {wanted}, takes {names}")
    for name, kernel in kernels.items():
        kernel.py_func.__signature__ = inspect.signature(HOOKS[name])  # Numba compares annotations, too
        _implementations[name][state_type] = kernel.py_func


def is_compiled(state: Any) -> bool:
    """Whether compiled hooks are registered for this state."""
    return all(type(state) in known for known in _implementations.values())


def _bind(hook: Callable[..., Any]) -> None:
    """Let Numba find the implementations of `hook`, those of families that are not known yet included.

    One overload for all: an overload more in the middle of a compilation, which can load from the disk cache what names another
    family and so import it, would make Numba give up.
    """

    def choose(*arguments: Any) -> Any:
        domain = arguments[0]
        known = _implementations[hook.__name__]
        return known.get(getattr(domain, "instance_class", None)) if isinstance(domain, types.BaseNamedTuple) else None

    choose.__signature__ = inspect.signature(hook)  # type: ignore[attr-defined]
    options: Any = OPTIONS | {"forceinline": True, "_nrt": hook is begin}  # only making a task allocates
    overload(hook, jit_options=options)(choose)


for _hook in HOOKS.values():
    _bind(_hook)
