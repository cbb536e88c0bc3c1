"""A scripted way through a task, frame by frame: how the generator knows that what it hands out can be solved.

A frame first has every part below its root that may become a polynomial multiplied out, each by a child of its own; then it tries
rules on what is left, the likeliest first. That is what `rao_envs.rewrite.reference.RecursiveSolver` does from observations.
"""

from __future__ import annotations

from typing import NamedTuple

from rao_envs.rewrite.bridge import canonical
from rao_envs.rewrite.rules import BY_NAME, EXPANDED, FACTORED, FRACTION, applicable, apply, has_form
from rao_envs.rewrite.tokens import (
    HAS_DERIVATIVE,
    HAS_INVERSE,
    HAS_LOG,
    HAS_POWER,
    HAS_PRODUCT,
    HAS_SUM,
    HAS_TRIG,
    UnrepresentableError,
    analyse,
    top,
)

FAN = 4
"""Children that one `spawn_all` opens at most."""

LIKELY = (
    ("diff", HAS_DERIVATIVE),
    ("pythagoras", HAS_TRIG),
    ("expand_trig", HAS_TRIG),
    ("expand_log", HAS_LOG),
    ("powsimp", HAS_POWER),
    ("cancel", HAS_INVERSE),
    ("expand", HAS_PRODUCT),
)
"""Rules in the order in which the script tries them, each where this occurs."""


def child_budget(obstacles: int) -> int:
    """Steps that a child frame may take, by the obstacles in its expression."""
    return 6 + 4 * obstacles


class Limits(NamedTuple):
    """What a frame must keep to."""

    window: int  # most tokens of a sub-expression that a rule is applied to
    capacity: int  # most tokens of an expression
    steps: int  # environment steps, those of its children included
    depth: int  # levels of frames below it


class Outcome(NamedTuple):
    """What a frame of the script came to."""

    tokens: bytes
    done: bool
    steps: int  # environment steps, those of its children included
    depth: int  # levels of frames below it
    widest: int  # most tokens that a rule was applied to


def likely_rules(flags: int, form: int) -> tuple[str, ...]:
    """The rules that the script tries on a node with these flags, for this form, in order."""
    names = [name for name, flag in LIKELY if flags & flag]
    if form == FACTORED:  # at once if polynomials are all there is
        names = [*names, "factor"] if flags & ~(HAS_PRODUCT | HAS_SUM) else ["factor", *names]
    if form == FRACTION:
        names.append("cancel")
    return tuple(dict.fromkeys(names))


def solve(tokens: bytes, form: int, limits: Limits) -> Outcome:
    """Play one frame of the script, its children included, within the limits; it gives up where a child does, or no rule helps."""
    steps = depth = widest = 0
    tried: set[str] = set()
    while not has_form(form, tokens) and steps < limits.steps:
        parts = top(tokens).parts[:FAN]
        if parts and limits.depth > 0 and limits.steps - steps > len(parts):
            allotment = (limits.steps - steps - 1) // len(parts)
            outcomes = [_child(tokens, start, allotment, limits) for start in parts]
            steps += 1 + sum(outcome.steps for outcome in outcomes)
            depth = max(depth, 1 + max(outcome.depth for outcome in outcomes))
            widest = max(widest, *(outcome.widest for outcome in outcomes))
            tokens = replace_all(tokens, parts, outcomes, limits.capacity)
            if not all(outcome.done for outcome in outcomes):
                break
            tried = set()
            continue
        name = next((rule for rule in likely_rules(top(tokens).flags, form) if rule not in tried and _may(rule, tokens, limits)), None)
        if name is None:
            break
        steps += 1
        changed = apply(name, tokens)
        if changed is None or len(changed) > limits.capacity:
            tried.add(name)
        else:
            widest = max(widest, len(tokens))
            tokens, tried = changed, set()
    return Outcome(tokens, has_form(form, tokens), steps, depth, widest)


def _child(tokens: bytes, start: int, allotment: int, limits: Limits) -> Outcome:
    """The child that is opened on the part which begins at `start`."""
    part = tokens[start : analyse(tokens)[start].end]
    steps = max(1, min(child_budget(top(part).obstacles), allotment))
    return solve(part, EXPANDED, limits._replace(steps=steps, depth=limits.depth - 1))


def _may(rule: str, tokens: bytes, limits: Limits) -> bool:
    """Whether a frame may try a rule on its whole expression."""
    return len(tokens) <= limits.window and applicable(BY_NAME[rule], tokens[0], top(tokens))


def replace_all(tokens: bytes, parts: tuple[int, ...], outcomes: list[Outcome], capacity: int) -> bytes:
    """The expression with its parts replaced by what children made of them; as it was if that has no token string."""
    raw, shift = tokens, 0
    for start, outcome in zip(parts, outcomes, strict=True):
        end = analyse(tokens)[start].end
        if len(raw) + len(outcome.tokens) - (end - start) <= capacity:
            raw = raw[: start + shift] + outcome.tokens + raw[end + shift :]
            shift += len(outcome.tokens) - (end - start)
    try:
        whole = canonical(raw)
    except UnrepresentableError:
        return tokens
    return whole if len(whole) <= capacity else tokens
