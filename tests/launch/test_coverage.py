"""Every element is taken by exactly one thread of every plan, and every partial by the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError
from cudareduce.launch.plan import Pass, Plan, Problem, plan
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.operators import reduction_of

#: Walks of which no header says what a block takes.
_BY_WARP = ("lane", "warp_stride", "fixed_warps")
KERNELS = tuple(load_registry().kernels.values())


def taken(made: Plan, step: Pass) -> Iterator[int]:
    """Elements of one row, as the blocks of that row take them, by the words of the header."""
    kernel, rows = made.kernel, made.problem.rows
    blocks = max(1, step.grid // rows) if kernel.walk not in _BY_WARP else 1
    tile = made.block * made.items
    match kernel.walk:
        case "element":
            threads = (b * made.block + t for b in range(blocks) for t in range(made.block))
            yield from (k for k in threads if k < step.n)
        case "lane" | "warp_stride" | "fixed_warps":
            yield from range(step.n)
        case "tile":
            for b in range(blocks):
                yield from range(b * tile, min((b + 1) * tile, step.n))
        case "grid_stride":
            for start in range(0, step.n, blocks * tile):
                yield from range(start, min(start + blocks * tile, step.n))
        case _:
            share = -(-step.n // blocks)
            for b in range(blocks):
                yield from range(b * share, min((b + 1) * share, step.n))


@settings(max_examples=400, deadline=None)
@given(
    kernel=st.sampled_from(KERNELS), n=st.integers(0, 5000), rows=st.integers(0, 40),
    pick=st.integers(0, 100), items=st.integers(1, 16), sms=st.integers(1, 200),
    op=st.sampled_from(["sum", "mean", "argmax"]),
)  # fmt: skip
def test_every_element_is_counted_once(
    kernel: Kernel, n: int, rows: int, pick: int, items: int, sms: int, op: str
) -> None:
    reduction = reduction_of(op, "float32")
    block = kernel.blocks[pick % len(kernel.blocks)]
    own_items = items if kernel.why_not_items(items) is None else kernel.items
    shape = kernel.shape(n, rows if kernel.scope in ("rows", "warp") else 1)
    limits = DeviceLimits(sms, 2048)
    try:
        made = plan(kernel, Problem(reduction, *shape), block=block, items=own_items, limits=limits)
    except UsageError:
        assert kernel.why_not_shape(*shape)
        return
    if not made.passes:
        assert made.problem.elements == 0
        assert made.preset == ("out" if made.problem.rows else None)
        return
    left = made.problem.n
    for step in made.passes:
        assert step.n == left
        assert sorted(taken(made, step)) == list(range(step.n))
        left = max(1, step.grid // made.problem.rows)
    one_launch = not kernel.relaunches
    assert not one_launch or len(made.passes) == 1
    assert one_launch or left == 1
    assert made.passes[-1].target == "out"
    assert made.bytes_moved == made.problem.input_bytes + made.problem.rows * reduction.result_size


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_a_plan_is_deep_enough(kernel: Kernel) -> None:
    """An element passes at least the additions of a perfect tree over its row."""
    rows = 4 if kernel.scope in ("rows", "warp") else 1
    for n in (1, 2, 31, 32, 1000, 70001):
        if kernel.why_not_shape(*kernel.shape(n, rows)) is None:
            made = plan(kernel, Problem(reduction_of("sum", "float32"), *kernel.shape(n, rows)))
            assert made.depth >= (made.problem.n - 1).bit_length()
