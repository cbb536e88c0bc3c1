"""The algebra's dynamics: begin, write digits, move, spawn, resolve, observe, over a batch. Compiled; see `rao_envs.core.hooks`.

A frame computes one node of the expression tree. Its cursor walks the sub-tree below it; where all operands of the node at the cursor
are at hand, the digits of the node's value can be written. What a frame has computed, or has got from its children, it keeps in a few
value slots: that is the context limit (PROTOCOL rule 12).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.generator import Arithmetic, grow, measure
from rao_envs.algebra.tree import ADD, NO_NODE, SCALE, SUBST
from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit, splice
from rao_envs.core.rng import below

LEFT, RIGHT, PARENT = 0, 1, 2
MOVES = ("left", "right", "parent")
SPAWN_LEFT, SPAWN_RIGHT, SPAWN_BOTH = 0, 1, 2
SPAWNS = ("spawn_left", "spawn_right", "spawn_all")
"""Actions: one write per digit value, then MOVES, then SPAWNS."""

MISSING, LEAF, HELD, OPEN = -1, 0, 1, 2
"""An operand: there is none; it is a constant or a symbol; its value is in a slot; it has yet to be computed."""
STATUSES = 3

OPERATIONS = 7
"""Operations that a node to be computed can have: ADD up to MUL."""

UNWRITTEN, WRONG, RIGHT_VALUE = 0, 1, 2
"""What is known of a node: no frame has written its value yet; the first value was wrong; the first value was right."""

FRAME = np.dtype(
    [
        ("root", np.int16),  # the node that the frame is to compute
        ("cursor", np.int16),
        ("written", np.int16),  # digits of the cursor's value written so far
        ("answered", np.bool_),  # whether the root's value is written
        ("right", np.bool_),  # and whether it is right
    ],
    align=True,
)

PLACE = np.dtype(
    [
        ("asked", np.int32),  # index of the given expression that the next reset was asked for; -1: any
        ("expression", np.int32),  # of the given expression at hand; -1: a random tree
        ("right", np.int32),  # nodes whose first value was right
    ],
    align=True,
)


class AlgebraState(NamedTuple):
    """A batch of `n` expressions of at most M nodes, over values of `digits` digits, with K slots per frame."""

    rules: npt.NDArray[Any]  # RULES (1,)
    exponents: npt.NDArray[np.int8]  # (digits, symbols) the tables of `Arithmetic`
    product: npt.NDArray[np.int8]  # (digits, digits)
    lower: npt.NDArray[np.int8]  # (digits, symbols)
    without: npt.NDArray[np.int8]  # (digits, symbols)
    given: npt.NDArray[Any]  # NODE (E, M) expressions to draw from; E = 0: random trees
    nodes: npt.NDArray[Any]  # NODE (n, M)
    truth: npt.NDArray[np.int8]  # (n, M, digits) the nodes' values
    place: npt.NDArray[Any]  # PLACE (n,)
    first: npt.NDArray[np.int8]  # (n, M, digits) the value first written at each node, by any frame; -1: none
    verdict: npt.NDArray[np.int8]  # (n, M) UNWRITTEN, WRONG or RIGHT_VALUE
    frames: npt.NDArray[Any]  # FRAME (n, D)
    digits: npt.NDArray[np.int8]  # (n, D, digits) the cursor's value so far; at the end the frame's answer
    slots: npt.NDArray[np.int16]  # (n, D, K) nodes whose values are held, the oldest first; NO_NODE: free
    values: npt.NDArray[np.int8]  # (n, D, K, digits) and those values
    results: npt.NDArray[np.int8]  # (n, D, 2) left, right: since the cursor came here, a child brought its value (1) or none (-1)


@inline
def slot_of(domain: AlgebraState, i: int, depth: int, node: int) -> int:
    """The slot of the frame at `depth` that holds `node`'s value; -1 if none does."""
    for k in range(domain.slots.shape[2]):
        if domain.slots[i, depth, k] == node:
            return k
    return -1


@inline
def operand(domain: AlgebraState, i: int, node: int, side: int) -> int:
    """The operand of `node` on that side (LEFT, RIGHT), or NO_NODE. A lone leaf counts as its own operand: it is 1 times itself."""
    row = domain.nodes[i, node]
    if row["left"] == NO_NODE:
        return node if side == LEFT else NO_NODE
    return row["left"] if side == LEFT else row["right"]


@inline
def status(domain: AlgebraState, i: int, depth: int, side: int) -> int:
    """How the frame at `depth` stands with an operand of its cursor's node: MISSING, LEAF, HELD or OPEN."""
    node = operand(domain, i, domain.frames[i, depth]["cursor"], side)
    if node == NO_NODE:
        return MISSING
    if domain.nodes[i, node]["left"] == NO_NODE:
        return LEAF
    return HELD if slot_of(domain, i, depth, node) >= 0 else OPEN


@splice
def set_expression(domain: AlgebraState, stack: CallStack, i: int) -> None:
    """Instance `i`'s expression: one of the given ones, or a random tree."""
    rules, rng, place = domain.rules[0], stack.rng[i], domain.place[i]
    rows = domain.nodes[i]
    given = domain.given.shape[0]
    place["expression"] = -1
    if given > 0:
        choice = place["asked"] if place["asked"] >= 0 else below(rng, given)
        place["expression"] = choice
        for node in range(domain.given[choice, 0]["size"]):
            rows[node] = domain.given[choice, node]
    else:
        depth = rules["shallowest"] + below(rng, rules["deepest"] - rules["shallowest"] + 1)
        plan = np.empty((rules["deepest"] + 2, 4), np.int16)
        while not grow(rules, rng, depth, rows, plan):
            pass
    tables = Arithmetic(domain.exponents, domain.product, domain.lower, domain.without)
    measure(tables, rules["modulus"], rows[0]["size"], rows, domain.truth[i])


@jit
def begin(domain: AlgebraState, stack: CallStack, i: int) -> None:
    """A new expression, nothing written yet, and the root frame."""
    set_expression(domain, stack, i)
    for node in range(domain.nodes[i, 0]["size"]):
        domain.verdict[i, node] = UNWRITTEN
        for k in range(domain.first.shape[2]):
            domain.first[i, node, k] = -1
    domain.place[i]["right"] = 0
    set_frame(domain, i, 0, 0)


@inline
def set_frame(domain: AlgebraState, i: int, depth: int, root: int) -> None:
    """A new frame at `depth`, to compute `root`: its slots are empty."""
    frame = domain.frames[i, depth]
    frame["root"] = root
    frame["cursor"] = root
    frame["written"] = 0
    frame["answered"] = False
    frame["right"] = False
    for k in range(domain.slots.shape[2]):
        domain.slots[i, depth, k] = NO_NODE
    forget_results(domain, i, depth)


@inline
def forget_results(domain: AlgebraState, i: int, depth: int) -> None:
    """The cursor is at another node: its operands have had no children yet."""
    domain.results[i, depth, LEFT] = 0
    domain.results[i, depth, RIGHT] = 0


@inline
def allowed(domain: AlgebraState, stack: CallStack, i: int, action: int) -> bool:
    """Digits where the operands are at hand; moves and spawns to operands that have yet to be computed; up, within the sub-tree.

    A value that is begun has to be finished first.
    """
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    modulus = domain.rules[0]["modulus"]
    move = action - modulus
    if move == PARENT:
        return frame["written"] == 0 and frame["cursor"] != frame["root"]
    if move == LEFT or move == 3 + SPAWN_LEFT:
        return status(domain, i, depth, LEFT) == OPEN
    if move == RIGHT or move == 3 + SPAWN_RIGHT:
        return status(domain, i, depth, RIGHT) == OPEN
    left_open = status(domain, i, depth, LEFT) == OPEN
    right_open = status(domain, i, depth, RIGHT) == OPEN
    if move == 3 + SPAWN_BOTH:
        return left_open and right_open
    return not left_open and not right_open


@inline
def drop_slot(domain: AlgebraState, i: int, depth: int, slot: int) -> None:
    """Free a slot; the younger ones move up."""
    last = domain.slots.shape[2] - 1
    for k in range(slot, last):
        domain.slots[i, depth, k] = domain.slots[i, depth, k + 1]
        for digit in range(domain.values.shape[3]):
            domain.values[i, depth, k, digit] = domain.values[i, depth, k + 1, digit]
    domain.slots[i, depth, last] = NO_NODE


@inline
def hold(domain: AlgebraState, i: int, depth: int, node: int, source: int) -> None:
    """Keep `node`'s value, in `digits` of the frame at depth `source`, in a slot of the frame at `depth`.

    What was held of the node's own sub-tree is of no use any more and goes; if no slot is free then, the oldest value goes.
    """
    end = node + domain.nodes[i, node]["size"]
    slots = domain.slots.shape[2]
    for k in range(slots - 1, -1, -1):
        if node <= domain.slots[i, depth, k] < end:
            drop_slot(domain, i, depth, k)
    if domain.slots[i, depth, slots - 1] != NO_NODE:
        drop_slot(domain, i, depth, 0)
    free = 0
    while domain.slots[i, depth, free] != NO_NODE:
        free += 1
    domain.slots[i, depth, free] = node
    for digit in range(domain.values.shape[3]):
        domain.values[i, depth, free, digit] = domain.digits[i, source, digit]


@inline
def finish_value(domain: AlgebraState, stack: CallStack, i: int, depth: int) -> None:
    """The last digit of the cursor's value is written: the value goes to the node above, or is the frame's answer."""
    frame = domain.frames[i, depth]
    node = frame["cursor"]
    right = True
    number, weight = 0.0, 1.0
    for digit in range(domain.digits.shape[2]):
        written = domain.digits[i, depth, digit]
        right = right and written == domain.truth[i, node, digit]
        if domain.verdict[i, node] == UNWRITTEN:
            domain.first[i, node, digit] = written
        number += weight * written
        weight *= domain.rules[0]["modulus"]
    if domain.verdict[i, node] == UNWRITTEN:
        domain.verdict[i, node] = RIGHT_VALUE if right else WRONG
        if right:
            domain.place[i]["right"] += 1
    frame["written"] = 0
    if node == frame["root"]:
        frame["answered"] = True
        frame["right"] = right
        stack.frames[i, depth]["value"] = number
        return
    hold(domain, i, depth, node, depth)
    frame["cursor"] = domain.nodes[i, node]["parent"]
    forget_results(domain, i, depth)


@inline
def act(domain: AlgebraState, stack: CallStack, i: int, action: int) -> None:
    """Write a digit, or move the cursor."""
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    move = action - domain.rules[0]["modulus"]
    if move < 0:
        domain.digits[i, depth, frame["written"]] = action
        frame["written"] += 1
        if frame["written"] == domain.digits.shape[2]:
            finish_value(domain, stack, i, depth)
        return
    row = domain.nodes[i, frame["cursor"]]
    frame["cursor"] = row["parent"] if move == PARENT else row["left"] if move == LEFT else row["right"]
    forget_results(domain, i, depth)


@inline
def fanout(domain: AlgebraState, stack: CallStack, i: int, action: int) -> int:
    """Both operands are independent of one another."""
    return 2 if action - domain.rules[0]["modulus"] == 3 + SPAWN_BOTH else 1


@inline
def open_child(domain: AlgebraState, stack: CallStack, i: int, action: int, k: int) -> int:
    """An operand of the cursor's node; half as many steps again as computing it takes when nothing is done twice."""
    depth = stack.episodes[i]["depth"]
    spawn = action - domain.rules[0]["modulus"] - 3
    side = k if spawn == SPAWN_BOTH else spawn
    node = operand(domain, i, domain.frames[i, depth]["cursor"], side)
    set_frame(domain, i, depth + 1, node)
    return steps_for(domain.nodes[i, node]["work"], domain.digits.shape[2])


@inline
def steps_for(work: int, digits: int) -> int:
    """A budget for computing `work` values: each takes its digits and one move or spawn, and half of that is to spare."""
    return (3 * work * (digits + 1)) // 2 + 2


@inline
def resolve(domain: AlgebraState, stack: CallStack, i: int) -> int:
    """The frame ends when its node's value is written: success if it is right."""
    frame = domain.frames[i, stack.episodes[i]["depth"]]
    if not frame["answered"]:
        return RUNNING
    return SUCCESS if frame["right"] else FAILURE


@inline
def receive(domain: AlgebraState, stack: CallStack, i: int, success: bool) -> None:
    """Keep the child's value, right or wrong: nobody says which. A child that ran out of steps has none."""
    depth = stack.episodes[i]["depth"]
    child = domain.frames[i, depth + 1]
    node = child["root"]
    side = LEFT if domain.nodes[i, domain.frames[i, depth]["cursor"]]["left"] == node else RIGHT
    domain.results[i, depth, side] = 1 if child["answered"] else -1
    if child["answered"]:
        hold(domain, i, depth, node, depth + 1)


@inline
def progress(domain: AlgebraState, stack: CallStack, i: int) -> float:
    """Share of the expression's values that were right when first written, by whichever frame."""
    return domain.place[i]["right"] / max(1, domain.nodes[i, 0]["work"])


@inline
def observe(domain: AlgebraState, stack: CallStack, obs: Observation, i: int) -> None:
    """The node at the cursor, its operands, the digits written so far, the free slots: one-hot, in `AlgebraDomain.fields`' order.

    Values are shown from the digit that comes next on, round to the one before it: what is learned for one digit serves all.
    """
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    rules = domain.rules[0]
    modulus, digits, slots = rules["modulus"], domain.digits.shape[2], domain.slots.shape[2]
    for k in range(obs.task.shape[1]):
        obs.task[i, k] = 0
    row = domain.nodes[i, frame["cursor"]]
    op, arg = row["op"], row["arg"]
    if row["left"] == NO_NODE:
        op, arg = SCALE, 1
    obs.task[i, op - ADD] = 1
    at = OPERATIONS
    if op == SCALE:
        obs.task[i, at + arg] = 1
    at += modulus
    if rules["symbols"] > 1:
        if op > SCALE and op <= SUBST:
            obs.task[i, at + arg] = 1
        at += rules["symbols"]
    for side in range(2):
        kind = status(domain, i, depth, side)
        if kind != MISSING:
            obs.task[i, at + kind] = 1
            node = operand(domain, i, frame["cursor"], side)
            if kind == OPEN:
                obs.task[i, at + STATUSES + digits * modulus + min(domain.nodes[i, node]["need"] - 1, slots)] = 1
            else:
                slot = slot_of(domain, i, depth, node)
                for k in range(digits):
                    digit = (frame["written"] + k) % digits
                    value = domain.truth[i, node, digit] if kind == LEAF else domain.values[i, depth, slot, digit]
                    obs.task[i, at + STATUSES + k * modulus + value] = 1
        at += STATUSES + digits * modulus + slots + 1
    obs.task[i, at + frame["written"]] = 1
    at += digits
    for digit in range(frame["written"]):
        k = digit - frame["written"] + digits - 1
        obs.task[i, at + k * modulus + domain.digits[i, depth, digit]] = 1
    at += (digits - 1) * modulus
    free = 0
    for k in range(slots):
        free += domain.slots[i, depth, k] == NO_NODE
    obs.task[i, at + free] = 1
    obs.results[i, LEFT] = domain.results[i, depth, LEFT]
    obs.results[i, RIGHT] = domain.results[i, depth, RIGHT]


implement(
    AlgebraState,
    begin=begin,
    allowed=allowed,
    act=act,
    fanout=fanout,
    open_child=open_child,
    resolve=resolve,
    receive=receive,
    observe=observe,
    progress=progress,
)
