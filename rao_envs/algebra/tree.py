"""Expression trees as arrays, and the order of a value's digits: what generator, kernels, parser, SymPy and pictures share.

A value is a polynomial over Z_p of bounded total degree, written as one digit per monomial (`monomials`). Linear forms a + b x are the
case of one symbol and degree 1: two digits, a then b.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONST, SYMBOL, ADD, SUB, NEG, SCALE, DIFF, SUBST, MUL = range(9)
"""Operations: constant, symbol, sum, difference, minus, constant multiple, derivative, substitution, product."""

OP_NAMES = ("const", "symbol", "add", "sub", "neg", "scale", "diff", "subst", "mul")
ARITY = (0, 0, 2, 2, 1, 1, 1, 2, 2)
"""Operands of each operation."""

SYMBOLS = ("x", "y", "z")
"""Names of the symbols by index; the first `symbols` of them are in use."""

NO_NODE = -1

MAX_NODES = 8191
MAX_DEPTH = 64
"""Limits of any tree: nodes, and operations from the root down to a leaf."""


class Tree(NamedTuple):
    """An expression of m nodes in pre-order: node 0 is the root, every node stands before its left sub-tree, that before the right."""

    op: npt.NDArray[np.int8]  # (m,) CONST .. MUL
    left: npt.NDArray[np.int16]  # (m,) the only or first operand; NO_NODE for leaves. SUBST: the body
    right: npt.NDArray[np.int16]  # (m,) the second operand; NO_NODE for leaves and unary operations. SUBST: what replaces the symbol
    arg: npt.NDArray[np.int16]  # (m,) CONST and SCALE: the constant in [0, p); SYMBOL, DIFF and SUBST: index into SYMBOLS; else 0


class TreeError(ValueError):
    """A tree that breaks the rules of `validate`."""


def make(op: int, *operands: Tree, arg: int = 0) -> Tree:
    """The tree of one operation on whole trees; raises TreeError for the wrong number of operands."""
    if not 0 <= op < len(ARITY) or len(operands) != ARITY[op]:
        raise TreeError(f"{_name(op)} takes {ARITY[op] if 0 <= op < len(ARITY) else 'no'} operands, got {len(operands)}")
    starts = list(itertools.accumulate((size(tree) for tree in operands), initial=1))[:-1]
    first, second = (*starts, NO_NODE, NO_NODE)[:2]
    moved = [
        [np.where(column == NO_NODE, NO_NODE, column + start) for column in (tree.left, tree.right)]
        for start, tree in zip(starts, operands, strict=True)
    ]
    return Tree(
        op=np.concatenate([[op], *(tree.op for tree in operands)]).astype(np.int8),
        left=np.concatenate([[first], *(columns[0] for columns in moved)]).astype(np.int16),
        right=np.concatenate([[second], *(columns[1] for columns in moved)]).astype(np.int16),
        arg=np.concatenate([[arg], *(tree.arg for tree in operands)]).astype(np.int16),
    )


def size(tree: Tree) -> int:
    """Number of nodes."""
    return len(tree.op)


def operations(tree: Tree) -> int:
    """Number of nodes that are no leaves: values to be computed."""
    return int((tree.left != NO_NODE).sum())


def sizes(tree: Tree) -> npt.NDArray[np.int64]:
    """Nodes of each node's sub-tree, int64 (m,): node k's are k to k + sizes[k] - 1."""
    result = np.ones(size(tree), np.int64)
    for node in range(size(tree) - 1, -1, -1):
        for child in (tree.left[node], tree.right[node]):
            if child != NO_NODE:
                result[node] += result[child]
    return result


def depths(tree: Tree) -> npt.NDArray[np.int64]:
    """Operations from each node down to its deepest leaf, itself included, int64 (m,): 0 for leaves."""
    result = np.zeros(size(tree), np.int64)
    for node in range(size(tree) - 1, -1, -1):
        for child in (tree.left[node], tree.right[node]):
            if child != NO_NODE:
                result[node] = max(result[node], result[child] + 1)
    return result


def depth(tree: Tree) -> int:
    """Operations from the root down to the deepest leaf: 0 for a single leaf."""
    return int(depths(tree)[0])


def parents(tree: Tree) -> npt.NDArray[np.int64]:
    """Each node's parent, int64 (m,); NO_NODE for the root."""
    result = np.full(size(tree), NO_NODE, np.int64)
    for column in (tree.left, tree.right):
        nodes = np.flatnonzero(column != NO_NODE)
        result[column[nodes]] = nodes
    return result


def degrees(tree: Tree) -> npt.NDArray[np.int64]:
    """A bound on the total degree of each node's value that needs no arithmetic, int64 (m,).

    A derivative is one degree lower; products add degrees and substitutions multiply them; cancellation is not seen.
    """
    result = np.zeros(size(tree), np.int64)
    for node in range(size(tree) - 1, -1, -1):
        op, left, right = int(tree.op[node]), int(tree.left[node]), int(tree.right[node])
        if op == SYMBOL:
            result[node] = 1
        elif op in (ADD, SUB):
            result[node] = max(result[left], result[right])
        elif op in (NEG, SCALE):
            result[node] = result[left]
        elif op == DIFF:
            result[node] = max(0, result[left] - 1)
        elif op == MUL:
            result[node] = result[left] + result[right]
        elif op == SUBST:
            result[node] = result[left] * max(1, result[right])
    return result


def slots_needed(tree: Tree, *, left_first: bool = False) -> npt.NDArray[np.int64]:
    """Value slots that computing each node in place takes, nothing computed twice, int64 (m,): 0 for leaves.

    A value is written over its operands'. The operand that is computed second takes one slot more than its own. In the best order
    that is the one that takes fewer (Sethi and Ullman 1970); with `left_first` it is always the right one.
    """
    result = np.zeros(size(tree), np.int64)
    for node in range(size(tree) - 1, -1, -1):
        left, right = int(tree.left[node]), int(tree.right[node])
        if left != NO_NODE:
            first, second = int(result[left]), 0 if right == NO_NODE else int(result[right])
            if second > first and not left_first:
                first, second = second, first
            result[node] = max(1, first, second + 1 if first and second else second)
    return result


def subtree(tree: Tree, node: int) -> Tree:
    """The expression below `node`, as a tree of its own."""
    end = node + int(sizes(tree)[node])
    left, right = (
        np.where(column[node:end] == NO_NODE, NO_NODE, column[node:end] - node).astype(np.int16) for column in (tree.left, tree.right)
    )
    return Tree(tree.op[node:end].copy(), left, right, tree.arg[node:end].copy())


def monomials(symbols: int, degree: int) -> npt.NDArray[np.int64]:
    """The monomials of a value's digits, in order, as exponents int64 (digits, symbols).

    By total degree, and in it by the powers of x, then y, then z, highest first: 1, x, y, x^2, x y, y^2, ...
    """
    grid = [powers for powers in itertools.product(range(degree + 1), repeat=symbols) if sum(powers) <= degree]
    return np.array(sorted(grid, key=lambda powers: (sum(powers), tuple(-power for power in powers))), np.int64)


def validate(tree: Tree, modulus: int, symbols: int = 1, degree: int = 1, *, products: bool = True, substitution: bool = True) -> None:
    """Check that `tree` is well-formed pre-order, within the limits, and that its values fit `degree`.

    Raises:
        TreeError: it is not; the message names the node.
    """
    nodes = size(tree)
    if not 1 <= nodes <= MAX_NODES or any(column.shape != (nodes,) for column in tree):
        raise TreeError(f"a tree has 1 to {MAX_NODES} nodes and four columns of that length, got {[c.shape for c in tree]}")
    kinds = [str(column.dtype) for column in tree]
    if kinds != ["int8", "int16", "int16", "int16"]:
        raise TreeError(f"the columns of a tree are int8, int16, int16, int16; got {kinds}")
    pending = [0]  # where the sub-trees that have not begun must begin, innermost last
    for node in range(nodes):
        op, left, right, arg = (int(column[node]) for column in tree)
        if not 0 <= op < len(ARITY):
            raise TreeError(f"node {node}: unknown operation {op}")
        if not pending or pending.pop() != node:
            raise TreeError(f"node {node} is nobody's operand, or not where pre-order has it")
        if ARITY[op] == 0:
            if (left, right) != (NO_NODE, NO_NODE):
                raise TreeError(f"node {node}: {_name(op)} takes no operands")
        elif left != node + 1 or (right == NO_NODE) != (ARITY[op] == 1):
            raise TreeError(f"node {node}: {_name(op)} takes {ARITY[op]} operands, the first right after it")
        elif ARITY[op] == 2 and not node + 1 < right < nodes:
            raise TreeError(f"node {node}: the second operand {right} is not in the tree")
        pending += [child for child in (right, left) if child != NO_NODE]
        limit = modulus if op in (CONST, SCALE) else symbols if op in (SYMBOL, DIFF, SUBST) else 1
        if not 0 <= arg < limit:
            raise TreeError(f"node {node}: the argument of {_name(op)} must lie in [0, {limit}), got {arg}")
        if (op == MUL and not products) or (op == SUBST and not substitution):
            raise TreeError(f"node {node}: {_name(op)} is not among the operations allowed here")
    if pending:
        raise TreeError(f"the operand {pending[-1]} is missing")
    if (deepest := depth(tree)) > MAX_DEPTH:
        raise TreeError(f"the tree is {deepest} operations deep, more than {MAX_DEPTH}")
    highest = degrees(tree)
    if (highest > degree).any():
        node = int(np.flatnonzero(highest > degree)[-1])
        raise TreeError(f"node {node}: {_name(int(tree.op[node]))} may reach degree {highest[node]}, more than {degree}")


def _name(op: int) -> str:
    return OP_NAMES[op] if 0 <= op < len(OP_NAMES) else f"operation {op}"
