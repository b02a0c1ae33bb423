"""Trees of additions: equal orders are equal trees, whatever they were made from."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.launch.case import Case
from cudareduce.launch.tree import Forest, Join, Tree
from cudareduce.reduction.operators import reduction_of

Nested = int | tuple["Nested", ...]


def tree_of(nested: Nested, n: int) -> Tree:
    """The tree that nested tuples of elements say."""
    forest = Forest(range(n))

    def made(one: Nested) -> int:
        return one if isinstance(one, int) else forest.join([made(part) for part in one])

    return forest.tree(n, made(nested))


def test_equal_orders_are_equal_trees() -> None:
    """The order of the two operands of a sum does not matter."""
    one, other = tree_of(((0, 2), (1, 3)), 4), tree_of(((3, 1), (2, 0)), 4)
    assert one == other
    assert one.hash == other.hash
    assert one.joins == (Join(2, (0, 2)), Join(2, (1, 3)), Join(4, (4, 5)))
    assert one.hash != tree_of(((0, 1), (2, 3)), 4).hash


def test_depth_counts_additions() -> None:
    assert tree_of((((0, 1), 2), 3), 4).depth == 3
    assert tree_of(((0, 1), (2, 3)), 4).depth == 2
    assert tree_of((0, 1, 2, 3), 4).depth == 3  # in an order that is not known
    assert tree_of(0, 1).depth == 0


def test_neighbours_keep_the_order() -> None:
    assert tree_of(((0, (1, 2)), 3), 4).keeps_order
    assert not tree_of(((0, 2), (1, 3)), 4).keeps_order


def test_a_finer_order_refines_a_coarser_one() -> None:
    coarse = tree_of(((0, 1, 2), (3, 4)), 5)
    assert tree_of((((0, 2), 1), (3, 4)), 5).refines(coarse)
    assert coarse.refines(coarse)
    assert not tree_of((((0, 3), 1), (2, 4)), 5).refines(coarse)


def test_the_smallest_sum_of_two_elements() -> None:
    tree = tree_of((((0, 2), 1), (3, 4)), 5)
    assert [tree.meets(0, k) for k in (1, 2, 3)] == [3, 2, 5]


def test_a_value_is_rounded_at_each_addition() -> None:
    numbers = np.array([2.0**24, 1.0, 1.0, 0.0], "float32")
    assert tree_of((((0, 1), 2), 3), 4).value(numbers, "float32") == 2.0**24
    assert tree_of(((0, 3), (1, 2)), 4).value(numbers, "float32") == 2.0**24 + 2
    assert tree_of((((0, 1), 2), 3), 4).value(numbers, "float64") == 2.0**24 + 2


@pytest.mark.parametrize(
    ("kernel", "n", "block", "claims"),
    [
        # A block's tile is one partial; the next launch folds those.
        ("reduce_v0_baseline", 70, 32, (tuple(range(32)), tuple(range(32, 64)),
                                        tuple(range(64, 70)))),
        # Threads stride over the row, one element after the other.
        ("reduce_rows_tree", 68, 32, (*(((k, k + 32), k + 64) for k in range(4)),
                                      *((k, k + 32) for k in range(4, 32)))),
        # Warps, then one after the other.
        ("reduce_rows_broadcast", 70, 64, ((*((k, k + 64) for k in range(6)), *range(6, 32)),
                                           tuple(range(32, 64)))),
        ("reduce_ordered_warp", 5, 32, (0, 1, 2, 3, 4)),
        ("reduce_atomic", 3, 32, (0, 1, 2)),
    ],
)  # fmt: skip
def test_front_matter_determines_a_tree(
    registry: Registry, kernel: str, n: int, block: int, claims: Nested
) -> None:
    found = registry.kernels[kernel]
    plan = Case(found, reduction_of("sum", "float32"), block, found.items).plan(n)
    assert plan.tree == tree_of(claims, n)


def test_no_elements_have_no_joins(registry: Registry) -> None:
    kernel = registry.kernels["reduce_v0_baseline"]
    plan = Case(kernel, reduction_of("sum", "float32"), 32, 1).plan(0)
    assert plan.tree == Tree(0, (), ())
    assert plan.tree.depth == 0
