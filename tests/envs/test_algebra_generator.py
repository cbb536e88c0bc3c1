"""Expression trees: the arrays, random ones of every option, and their values by three independent ways."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from rao_envs.algebra import tree as t
from rao_envs.algebra.domain import AlgebraDomain, largest_work
from rao_envs.algebra.generator import arithmetic, tree_of
from rao_envs.algebra.reference import compute
from rao_envs.algebra.tree import ADD, CONST, DIFF, MUL, NEG, NO_NODE, SCALE, SUB, SUBST, SYMBOL, Tree, TreeError, make
from rao_envs.core.batch import RecursiveBatch

X, THREE = make(SYMBOL), make(CONST, arg=3)
OPTIONS: list[dict[str, Any]] = [
    {"depth": 1},
    {"depth": 4},
    {"depth": 8},
    {"depth": (1, 4)},
    {"depth": 12, "modulus": 2},
    {"depth": 6, "modulus": 13},
    {"depth": 6, "substitution": True},
    {"depth": 5, "polynomial": True},
    {"depth": 5, "polynomial": True, "degree": 3, "symbols": 1},
    {"depth": 5, "polynomial": True, "degree": 2, "symbols": 3, "modulus": 7},
    {"depth": 5, "polynomial": True, "degree": 4, "symbols": 2, "modulus": 3, "substitution": True},
    {"depth": (2, 6), "polynomial": True, "degree": 1, "symbols": 3, "substitution": True},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()))


def batch_of(n: int, **options: Any) -> RecursiveBatch:
    """The first tasks of the seeds 0, 1, ..., n - 1."""
    batch = RecursiveBatch(AlgebraDomain(**options), n)
    for i in range(n):
        batch.seed(i, i)
    batch.reset()
    return batch


# -- arrays --------------------------------------------------------------------------------------------------------------------------


def example() -> Tree:
    """2*(x - 3) + d/dx(-x)."""
    return make(ADD, make(SCALE, make(SUB, X, THREE), arg=2), make(DIFF, make(NEG, X)))


def test_trees_are_built_in_pre_order() -> None:
    tree = example()
    assert [column.tolist() for column in tree] == [
        [ADD, SCALE, SUB, SYMBOL, CONST, DIFF, NEG, SYMBOL],
        [1, 2, 3, -1, -1, 6, 7, -1],
        [5, -1, 4, -1, -1, -1, -1, -1],
        [0, 2, 0, 0, 3, 0, 0, 0],
    ]
    assert [column.dtype for column in tree] == [np.int8, np.int16, np.int16, np.int16]
    t.validate(tree, 5)
    assert (t.size(tree), t.operations(tree), t.depth(tree)) == (8, 5, 3)
    assert t.depths(tree).tolist() == [3, 2, 1, 0, 0, 2, 1, 0]
    assert t.sizes(tree).tolist() == [8, 4, 3, 1, 1, 3, 2, 1]
    assert t.parents(tree).tolist() == [-1, 0, 1, 2, 2, 0, 5, 6]
    assert t.degrees(tree).tolist() == [1, 1, 1, 1, 0, 0, 1, 1]
    assert t.slots_needed(tree).tolist() == [2, 1, 1, 0, 0, 1, 1, 0]
    for node, part in ((1, make(SCALE, make(SUB, X, THREE), arg=2)), (5, make(DIFF, make(NEG, X))), (4, THREE)):
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(t.subtree(tree, node), part, strict=True))


def full(depth: int) -> Tree:
    """A sum of sums of ..."""
    return X if depth == 0 else make(ADD, full(depth - 1), full(depth - 1))


def test_slots_are_those_of_sethi_and_ullman() -> None:
    assert [t.slots_needed(full(depth))[0] for depth in range(6)] == [0, 1, 2, 3, 4, 5]
    chain = make(NEG, X)
    for _ in range(5):
        chain = make(SUB, make(NEG, X), chain)
    assert t.slots_needed(chain)[0] == 2  # the long side first
    assert t.slots_needed(chain, left_first=True)[0] == 6  # all the short ones wait


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": [ADD, SCALE, SUB, SYMBOL, CONST, DIFF, NEG, 9]}, "node 7: unknown operation 9"),
        ({"left": [2, 2, 3, -1, -1, 6, 7, -1]}, "node 0: add takes 2 operands, the first right after it"),
        ({"right": [6, -1, 4, -1, -1, -1, -1, -1]}, "node 5 is nobody's operand"),
        ({"right": [8, -1, 4, -1, -1, -1, -1, -1]}, "node 0: the second operand 8 is not in the tree"),
        ({"right": [5, 5, 4, -1, -1, -1, -1, -1]}, "node 1: scale takes 1 operands"),
        ({"left": [1, 2, 3, 4, -1, 6, 7, -1]}, "node 3: symbol takes no operands"),
        ({"arg": [0, 5, 0, 0, 3, 0, 0, 0]}, r"node 1: the argument of scale must lie in \[0, 5\), got 5"),
        ({"arg": [0, 2, 0, 1, 3, 0, 0, 0]}, r"node 3: the argument of symbol must lie in \[0, 1\)"),
        ({"arg": [1, 2, 0, 0, 3, 0, 0, 0]}, r"node 0: the argument of add must lie in \[0, 1\)"),
        ({"op": [MUL, SCALE, SUB, SYMBOL, CONST, NEG, NEG, SYMBOL]}, "node 0: mul may reach degree 2, more than 1"),
    ],
)
def test_broken_trees_are_explained(change: dict[str, list[int]], message: str) -> None:
    tree = example()
    broken = tree._replace(**{name: np.array(column, getattr(tree, name).dtype) for name, column in change.items()})
    with pytest.raises(TreeError, match=message):
        t.validate(broken, 5)


def test_other_broken_trees() -> None:
    with pytest.raises(TreeError, match="four columns"):
        t.validate(Tree(*(column[:-1] if k else column for k, column in enumerate(example()))), 5)
    with pytest.raises(TreeError, match="int8, int16"):
        t.validate(Tree(*(column.astype(np.int64) for column in example())), 5)
    with pytest.raises(TreeError, match=r"operand 1 is missing"):
        t.validate(t.subtree(make(NEG, X), 0)._replace(**{name: getattr(make(NEG, X), name)[:1] for name in Tree._fields}), 5)
    with pytest.raises(TreeError, match="mul is not among"):
        t.validate(make(MUL, X, THREE), 5, products=False)
    with pytest.raises(TreeError, match="subst is not among"):
        t.validate(make(SUBST, X, THREE), 5, substitution=False)
    with pytest.raises(TreeError, match="add takes 2 operands, got 1"):
        make(ADD, X)
    with pytest.raises(TreeError, match="operation 11 takes no operands"):
        make(11)
    deep = X
    for _ in range(t.MAX_DEPTH + 1):
        deep = make(NEG, deep)
    with pytest.raises(TreeError, match="65 operations deep, more than 64"):
        t.validate(deep, 5)


def test_monomials_by_degree_then_x_before_y_before_z() -> None:
    assert t.monomials(1, 1).tolist() == [[0], [1]]
    assert t.monomials(2, 2).tolist() == [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    assert t.monomials(3, 1).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert len(t.monomials(3, 4)) == 35


@pytest.mark.parametrize(("symbols", "degree"), [(1, 1), (1, 4), (2, 2), (3, 3)])
def test_the_tables_multiply_and_divide_monomials(symbols: int, degree: int) -> None:
    tables = arithmetic(symbols, degree)
    powers = tables.exponents.astype(int)
    for a, left in enumerate(powers):
        for b, right in enumerate(powers):
            k = tables.product[a, b]
            assert (k == -1) == (sum(left + right) > degree)
            assert k == -1 or (powers[k] == left + right).all()
        for symbol in range(symbols):
            lower, rest = tables.lower[a, symbol], tables.without[a, symbol]
            assert (lower == -1) == (left[symbol] == 0)
            assert lower == -1 or (powers[lower] == left - np.eye(symbols, dtype=int)[symbol]).all()
            assert powers[rest].tolist() == [0 if s == symbol else left[s] for s in range(symbols)]


# -- random trees --------------------------------------------------------------------------------------------------------------------


@every_option
def test_random_trees_have_the_asked_shape_and_values(options: dict[str, Any]) -> None:
    batch = batch_of(60, **options)
    domain = batch.domain
    assert isinstance(domain, AlgebraDomain)
    seen: Counter[int] = Counter()
    for i, rows in enumerate(batch.state.nodes):
        tree = tree_of(rows)
        products, substitution = options.get("polynomial", False), options.get("substitution", False)
        t.validate(tree, domain.modulus, domain.symbols, domain.degree, products=products, substitution=substitution)
        assert domain.shallowest <= t.depth(tree) <= domain.deepest
        assert t.operations(tree) <= domain.most_work
        seen.update(tree.op.tolist())
        count = t.size(tree)
        assert rows["size"][:count].tolist() == t.sizes(tree).tolist()
        assert rows["parent"][:count].tolist() == t.parents(tree).tolist()
        assert rows["need"][:count].tolist() == t.slots_needed(tree).tolist()
        assert rows["work"][:count].tolist() == [t.operations(t.subtree(tree, node)) for node in range(count)]
        truth = batch.state.truth[i].astype(np.int64)
        assert (truth >= 0).all() and (truth < domain.modulus).all()
        for node in range(count):
            op, left, right, arg = (int(column[node]) for column in tree)
            if op == CONST:
                expected = np.eye(domain.digits, dtype=int)[0] * arg
            elif op == SYMBOL:
                assert domain.tables.exponents[1 + arg].tolist() == [int(s == arg) for s in range(domain.symbols)]
                expected = np.eye(domain.digits, dtype=int)[1 + arg]
            else:
                second = truth[[right if right != NO_NODE else left]]
                expected = compute(domain.tables, domain.modulus, op, np.array([arg]), truth[[left]], second)[0]
            assert truth[node].tolist() == expected.tolist(), (t.OP_NAMES[op], node)
    wanted = {CONST, SYMBOL, ADD, SUB, NEG, SCALE, DIFF}
    wanted |= ({MUL} if options.get("polynomial") else set()) | ({SUBST} if options.get("substitution") else set())
    assert set(seen) == wanted


@every_option
def test_values_agree_with_sympy(options: dict[str, Any]) -> None:
    sympy_bridge = pytest.importorskip("rao_envs.algebra.sympy_bridge")
    batch = batch_of(25, **options)
    domain = batch.domain
    assert isinstance(domain, AlgebraDomain)
    for i, rows in enumerate(batch.state.nodes):
        tree = tree_of(rows)
        truth = sympy_bridge.truths(tree, domain.modulus, domain.symbols, domain.degree)
        assert np.array_equal(truth, batch.state.truth[i, : t.size(tree)])


def test_depths_of_a_range_are_equally_likely() -> None:
    batch = batch_of(2000, depth=(1, 4))
    counts = Counter(t.depth(tree_of(rows)) for rows in batch.state.nodes)
    assert set(counts) == {1, 2, 3, 4}
    assert all(430 < count < 570 for count in counts.values())


@pytest.mark.parametrize("depth", [2, 4, 8, 12])
def test_hardly_any_tree_is_as_large_as_allowed(depth: int) -> None:
    """Larger ones are drawn anew, which would bias the distribution if they were many."""
    work = batch_of(1000, depth=depth).state.nodes["work"][:, 0]
    limit = largest_work(depth)
    assert work.max() <= limit
    assert depth <= 4 or (work > 0.9 * limit).mean() < 0.01


def test_every_operand_may_be_the_deep_one() -> None:
    deeper = Counter()
    for rows in batch_of(500, depth=6).state.nodes:
        tree = tree_of(rows)
        depths = t.depths(tree)
        for node in np.flatnonzero(tree.right != NO_NODE):
            deeper[int(np.sign(depths[tree.left[node]] - depths[tree.right[node]]))] += 1
            assert depths[node] == 1 + max(depths[tree.left[node]], depths[tree.right[node]])
    assert 0.9 < deeper[1] / deeper[-1] < 1.1
