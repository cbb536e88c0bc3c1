"""Expressions computed without learning: scripted agents that act from the observation alone, and what the context limit allows.

`python -m rao_envs.algebra.reference` prints the shares of expressions that can be computed in place with K slots, and what the agents
below reach.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rao_envs.algebra.domain import AlgebraDomain
from rao_envs.algebra.generator import Arithmetic, tree_of
from rao_envs.algebra.kernels import OPEN, PARENT, SPAWN_BOTH, SPAWN_LEFT, SPAWN_RIGHT
from rao_envs.algebra.tree import ADD, DIFF, MUL, NEG, SCALE, SUB, SUBST, slots_needed
from rao_envs.core.actors import RandomAgent
from rao_envs.core.batch import RecursiveBatch
from rao_envs.core.evaluate import evaluate

Digits = npt.NDArray[np.int64]

random_agent = RandomAgent()
"""Takes any allowed action, each equally likely."""


def compute(tables: Arithmetic, modulus: int, op: int, arg: Digits, left: Digits, right: Digits) -> Digits:
    """The operation `op` on rows of values, by NumPy: independent of the kernels that it is tested against.

    Args:
        tables: of the monomials that digits stand for.
        modulus: p.
        op: ADD .. MUL.
        arg: (m,) constants (SCALE) or symbols (DIFF, SUBST); else ignored.
        left: (m, digits).
        right: (m, digits); ignored by operations of one operand.
    """
    if op in (ADD, SUB):
        return (left + right if op == ADD else left - right) % modulus
    if op in (NEG, SCALE):
        return (-left if op == NEG else arg[:, None] * left) % modulus
    if op == MUL:
        return multiply(tables, left, right) % modulus
    value = np.zeros_like(left)
    for symbol in range(tables.exponents.shape[1]):
        rows = arg == symbol
        powers = tables.exponents[:, symbol].astype(np.int64)
        if op == DIFF:
            divisible = np.flatnonzero(powers)
            value[np.ix_(rows, tables.lower[divisible, symbol])] = left[np.ix_(rows, divisible)] * powers[divisible] % modulus
            continue
        assert op == SUBST
        power = np.zeros_like(right[rows])
        power[:, 0] = 1
        for exponent in range(powers.max() + 1):
            terms = np.flatnonzero(powers == exponent)
            rest = np.zeros_like(power)
            rest[:, tables.without[terms, symbol]] = left[np.ix_(rows, terms)]
            value[rows] = (value[rows] + multiply(tables, rest, power)) % modulus
            power = multiply(tables, power, right[rows]) % modulus
    return value


def multiply(tables: Arithmetic, left: Digits, right: Digits) -> Digits:
    """Products of rows of values, (m, digits), not reduced; what exceeds the degree is dropped."""
    value = np.zeros_like(left)
    for a, b in zip(*np.nonzero(tables.product >= 0), strict=True):
        value[:, tables.product[a, b]] += left[:, a] * right[:, b]
    return value


class RecursiveSolver:
    """Spawns a child for every operand that is not computed, both at once where it can, and writes the right digits.

    For `rao_envs.evaluate`, or by hand: `solver(observation, mask)` with one observation or a batch of them.

    Args:
        **kwargs: the environment's, where they differ from the defaults (`modulus`, `slots`, `polynomial`, ...): they say how
            observations are to be read.
    """

    batched: ClassVar[bool] = True

    def __init__(self, **kwargs: Any) -> None:
        self.domain = AlgebraDomain(**kwargs)

    def __call__(self, observation: dict[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], state: Any = None) -> Any:
        """The action for one observation (an int), or one per row (int64 (m,)).

        Raises:
            ValueError: not observations of this solver's kind of expression.
        """
        task = np.atleast_2d(observation["task"])
        masks = np.atleast_2d(np.asarray(mask, np.bool_))
        domain = self.domain
        primitives, actions = len(domain.primitives), len(domain.primitives + domain.spawns)
        if task.shape[1:] != domain.task_space.shape or masks.shape[1] not in (primitives, actions) or len(task) != len(masks):
            raise ValueError(f"not observations of {domain.name} with these options: task {task.shape}, mask {masks.shape}")
        chosen = np.where(masks[:, : domain.modulus].any(axis=1), self.digit(task), self.move(task, masks))
        return int(chosen[0]) if observation["task"].ndim == 1 else chosen

    def digit(self, task: npt.NDArray[np.int8]) -> Digits:
        """The next digit of the value at the cursor; means nothing where operands are missing."""
        domain, fields = self.domain, self.domain.fields
        op = ADD + task[:, fields["op"]].argmax(axis=1)
        symbol = task[:, fields["symbol"]].argmax(axis=1) if domain.symbols > 1 else np.zeros(len(task), np.int64)
        arg = np.where(op == SCALE, task[:, fields["constant"]].argmax(axis=1), symbol)
        position = task[:, fields["position"]].argmax(axis=1)
        # Observations show values from the next digit on.
        order = (np.arange(domain.digits) - position[:, None]) % domain.digits
        left, right = (
            np.take_along_axis(task[:, fields[name]].reshape(-1, domain.digits, domain.modulus).argmax(axis=2), order, axis=1)
            for name in ("left_value", "right_value")
        )
        value = np.zeros_like(left)
        for kind in np.unique(op):
            rows = op == kind
            value[rows] = compute(domain.tables, domain.modulus, int(kind), arg[rows], left[rows], right[rows])
        digits: Digits = value[np.arange(len(task)), position]
        return digits

    def open_operands(self, task: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], Digits, Digits]:
        """Whether the left and the right operand have yet to be computed, and the slots that takes (1 to K + 1 or more; 0 otherwise)."""
        fields = self.domain.fields
        is_open = [task[:, fields[f"{side}_status"]][:, OPEN] == 1 for side in ("left", "right")]
        need = [task[:, fields[f"{side}_need"]] @ np.arange(1, self.domain.slots + 2) for side in ("left", "right")]
        return is_open[0], is_open[1], need[0], need[1]

    def move(self, task: npt.NDArray[np.int8], masks: npt.NDArray[np.bool_]) -> Digits:
        """The way to an operand: a spawn, or the cursor's move where no spawn is allowed."""
        left, right, _, _ = self.open_operands(task)
        spawns = self.domain.modulus + PARENT + 1
        wish = np.where(left & right, SPAWN_BOTH, np.where(left, SPAWN_LEFT, SPAWN_RIGHT)) + spawns
        walk = np.where(left, 0, 1) + self.domain.modulus
        if masks.shape[1] <= spawns:
            return walk
        for spawn in (spawns + SPAWN_LEFT, spawns + SPAWN_RIGHT):  # both may cost more steps than there are
            wish = np.where(masks[np.arange(len(task)), wish], wish, spawn)
        return np.where(masks[np.arange(len(task)), wish], wish, walk)


class MonolithicSolver(RecursiveSolver):
    """Walks the whole tree itself in the best order: first the operand that takes more slots. Evicted values it computes again."""

    def move(self, task: npt.NDArray[np.int8], masks: npt.NDArray[np.bool_]) -> Digits:
        """The cursor's move to the operand that takes more slots."""
        left, _, need_left, need_right = self.open_operands(task)
        return np.where(left & (need_left >= need_right), 0, 1) + self.domain.modulus


class LeftFirstSolver(RecursiveSolver):
    """Walks the whole tree itself, always the left operand first."""

    def move(self, task: npt.NDArray[np.int8], masks: npt.NDArray[np.bool_]) -> Digits:
        """The cursor's move to the left operand, if that is open."""
        return np.where(self.open_operands(task)[0], 0, 1) + self.domain.modulus


def solvable(slots: Sequence[int], trees: int = 1000, **kwargs: Any) -> dict[str, list[float]]:
    """The shares of an environment's expressions that can be computed in place with so many slots, nothing computed twice.

    Args:
        slots: the numbers of slots asked about.
        trees: how many expressions, those of the seeds 0, 1, ...
        **kwargs: of the environment.

    Returns:
        Under "best" (the better order at every node) and "left" (always the left operand first), one share per entry of `slots`.
    """
    batch = RecursiveBatch(AlgebraDomain(**kwargs), trees)
    for i in range(trees):
        batch.seed(i, i)
    batch.reset()
    expressions = [tree_of(rows) for rows in batch.state.nodes]
    shares = {}
    for name, left_first in (("best", False), ("left", True)):
        needs = np.array([slots_needed(tree, left_first=left_first)[0] for tree in expressions])
        shares[name] = [float((needs <= k).mean()) for k in slots]
    return shares


AGENTS = {
    "recursive": (RecursiveSolver, True),
    "monolithic, best order": (MonolithicSolver, False),
    "monolithic, left first": (LeftFirstSolver, False),
}
"""The scripted agents, and whether they spawn."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m rao_envs.algebra.reference", description=main.__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 12], metavar="DEPTH")
    parser.add_argument("--trees", type=int, default=2000, help="expressions per depth in the first table")
    parser.add_argument("--episodes", type=int, default=200, help="episodes per depth and agent in the second")
    options = parser.parse_args(arguments)
    counts = range(1, 6)
    lines = ["Share of expressions computed in place with K slots (best order / left first):"]
    lines.append("  depth  " + "".join(f"{f'K={k}':>15}" for k in counts))
    for depth in options.depths:
        shares = solvable(counts, options.trees, depth=depth)
        cells = (f"{best:.3f} / {left:.3f}" for best, left in zip(shares["best"], shares["left"], strict=True))
        lines.append(f"  {depth:>5}  " + "".join(f"{cell:>15}" for cell in cells))
    lines += ["", "Success of the scripted agents, K = 2 (steps per episode, critical path):"]
    for depth in options.depths:
        for name, (agent, spawn) in AGENTS.items():
            summary = evaluate(agent(), "RAO/Algebra-v0", options.episodes, depth=depth, spawn=spawn, progress=False).summary()
            success, steps, path = (interval.mean if (interval := summary[key]) else 0.0 for key in ("success", "steps", "critical_path"))
            lines.append(f"  {depth:>5}  {name:<24}{success:>7.3f}{steps:>8.1f}{path:>8.1f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
