"""Plans of every kernel: each element is reduced once, each row has one result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError
from cudareduce.launch.plan import MAX_GRID, Pass, Plan, Problem, plan
from cudareduce.reduction.operators import Map, reduction_of

KERNELS = load_registry().kernels
SIZES = (1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4097, 24 * 1024 + 1, 65537)
BATCHES = ((1, 3), (2, 1), (31, 9), (32, 8), (32, 1), (33, 2), (1000, 7), (16385, 3), (70001, 2))


#: Finishes by which many blocks leave one answer in one launch.
TOGETHER = ("atomic", "last_block", "mailbox", "self_reset", "one_word", "cluster")


def planned(
    kernel: Kernel | str, n: int, rows: int = 1, block: int | None = None, items: int | None = None
) -> Plan:
    kernel = KERNELS[kernel] if isinstance(kernel, str) else kernel
    return plan(kernel, Problem(reduction_of("sum", "float32"), n, rows), block=block, items=items)


def problems(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Sizes and rows that a kernel takes."""
    candidates = [(n, 1) for n in SIZES] + list(BATCHES)
    return (shape for shape in candidates if kernel.why_not_shape(*shape) is None)


def taken(of: Plan, step: Pass) -> np.ndarray:
    """How often one launch reduces each element of its input, by the definition of each walk."""
    kernel, rows, block, items, n = of.kernel, of.problem.rows, of.block, of.items, step.n
    parts = max(step.grid // rows, 1)
    thread = np.arange(step.grid * block)
    count = np.zeros((rows, n), int)
    if kernel.walk == "lane":
        row, lane = thread // 32, thread % 32
        there = (row < rows) & (lane < n)
        np.add.at(count, (row[there], lane[there]), 1)
        return count
    if kernel.walk in ("warp_stride", "fixed_warps"):
        return np.ones((rows, n), int)  # whichever warp takes which rows
    if kernel.walk in ("element", "tile"):
        each = 1 if kernel.walk == "element" else items
        tile, stride, end = block * each, block, np.full(step.grid, n)
        begin = np.arange(step.grid) * tile
        end = np.minimum(begin + tile, n)
        row = np.zeros(step.grid, int)
    elif kernel.walk == "grid_stride":
        begin = np.arange(step.grid) % parts * block
        stride, end, row = parts * block, np.full(step.grid, n), np.arange(step.grid) // parts
    else:
        share = -(-n // parts)
        begin = np.arange(step.grid) % parts * share
        stride, end = block, np.minimum(begin + share, n)
        row = np.arange(step.grid) // parts
    index = (begin[:, None] + np.arange(block)).reshape(-1)
    end, row = np.repeat(end, block), np.repeat(row, block)
    while (there := index < end).any():
        np.add.at(count, (row[there], index[there]), 1)
        index = index + stride
    return count


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_pass_takes_every_element_once(kernel: Kernel) -> None:
    for n, rows in problems(kernel):
        for block in kernel.blocks:
            made = planned(kernel, n, rows, block=block)
            for step in made.passes:
                assert (taken(made, step) == 1).all(), (n, rows, block, step)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_passes_lead_from_the_input_to_one_result_a_row(kernel: Kernel) -> None:
    for n, rows in problems(kernel):
        for block in kernel.blocks:
            made = planned(kernel, n, rows, block=block)
            first, last = made.passes[0], made.passes[-1]
            assert (first.source, first.n, last.target) == ("in", n, "out")
            for before, after in zip(made.passes, made.passes[1:], strict=False):
                assert (after.source, after.n) == (before.target, before.grid // rows)
            assert all(step.source != step.target for step in made.passes)
            assert all(1 <= step.grid <= MAX_GRID for step in made.passes)
            if kernel.grid == "warp_per_row":
                assert (last.grid - 1) * block < rows * 32 <= last.grid * block
            elif kernel.finish not in TOGETHER:
                assert last.grid == rows or kernel.grid == "fill"
            assert len(made.passes) == 1 or kernel.finish in (
                "relaunch", "relaunch_one_block", "reshape",
            )  # fmt: skip
            assert made.preset == ("out" if kernel.finish == "atomic" else None)


@pytest.mark.parametrize("name", ["reduce_rows_butterfly", "reduce_rows_staged"])
def test_short_rows_are_covered_together(name: str) -> None:
    cover = replace(KERNELS[name], grid="cover")
    for n, rows in ((8, 2**20), (8, 3), (33, 1000), (128, 1)):
        made = planned(cover, n, rows)
        each = made.block * made.items
        assert (made.passes[0].grid - 1) * each < rows * n <= made.passes[0].grid * each


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_scratch_holds_what_the_passes_write(kernel: Kernel) -> None:
    for n, rows in problems(kernel):
        made = planned(kernel, n, rows)
        size = made.problem.reduction.acc_size
        for step in made.passes[:-1]:
            assert made.scratch[step.target] >= step.grid * size
        if kernel.finish == "last_block":
            count = min(kernel.fixed_warps or 0, -(-n // 1024)) or made.passes[0].grid
            drawn = kernel.walk == "tickets"  # a count of its own
            assert made.scratch == {"partials": count * size, "counter": 4 * (rows + drawn)}
        if kernel.workspace:
            assert made.scratch.keys() == {"workspace"} == {*made.scratch_arguments}
            assert made.scratch["workspace"] >= size


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_without_elements_nothing_is_launched(kernel: Kernel) -> None:
    for rows in (1,) if kernel.why_not_shape(0, 2) else (1, 2):
        empty = planned(kernel, 0, rows)
        assert (empty.passes, empty.preset, empty.depth) == ((), "out", 0)
    if kernel.why_not_shape(5, 0) is None:
        none = planned(kernel, 5, 0)
        assert (none.passes, none.preset, none.outputs, none.bytes_moved) == ((), None, 0, 0)


@pytest.mark.parametrize(
    ("kernel", "n", "rows", "shape", "depth"),
    [
        ("reduce_atomic", 1, 1, {}, 0),
        ("reduce_atomic", 1000, 1, {}, 999),
        ("reduce_block_atomic", 1024, 1, {"block": 256}, 8 + 3),
        ("reduce_v0_baseline", 256, 1, {"block": 256}, 8),
        ("reduce_v2_no_bank_conflict", 2**25, 1, {"block": 256}, 8 + 8 + 8 + 8),
        ("reduce_v3_add_during_load", 512, 1, {"block": 256}, 1 + 8),
        ("reduce_v7_shuffle", 2048, 1, {"block": 256, "items": 8}, 7 + 8),
        ("reduce_shuffle", 96, 1, {"block": 96}, 5 + 2),
        ("reduce_single_block", 10000, 1, {"block": 1024}, 9 + 10),
        ("reduce_ordered_block", 1000000, 1, {"block": 1024}, 976 + 10),
        ("reduce_grid_stride", 10**8, 1, {"block": 1024}, 4069 + 10 + 10),
        ("reduce_last_block", 10**8, 1, {"block": 1024}, 4069 + 10 + 10),
        ("reduce_last_block", 24 * 32, 1, {"block": 32}, 5 + 5),
        ("reduce_ordered_last_block", 10**8, 1, {"block": 1024}, 4069 + 10 + 10),
        ("reduce_shared_accumulate", 2**25, 1, {"block": 256}, 127 + 8 + 3 + 8),
        ("reduce_rows_tree", 262144, 2048, {"block": 256}, 1023 + 8),
        ("reduce_rows_broadcast", 262144, 2048, {"block": 256}, 1023 + 5 + 7),
        ("reduce_rows_broadcast", 32, 1, {"block": 1024}, 5 + 31),
        ("reduce_reshape", 262144, 2048, {"block": 256, "items": 64}, 63 + 5 + 7 + 5 + 7),
        ("reduce_warp_registers", 32, 1000, {}, 5),
        ("reduce_rows_warp", 1000, 5, {}, 32 + 5),
        ("reduce_tiles_ordered", 2**16, 1, {}, 16 + 5 + 1 + 20 + 20),
        ("reduce_tiles", 2**25, 1, {}, 8 * 16 + 20 + 16 + 20),
        ("reduce_tiles_mailbox", 2**16, 1, {}, 16 + 20 + 20),
        ("reduce_tiles_self_reset", 2**16, 1, {}, 16 + 20 + 7),
        ("reduce_tiles_cluster", 2**16, 1, {}, 16 + 20 + 7),
        ("reduce_rows_split", 2**18, 16, {}, 16 + 20 + 20),
        ("reduce_ring_tickets", 2**25, 1, {}, 15 + 4096 + 5 + 16 + 1 + 5 + 16),
        ("reduce_ring_tickets", 2**25, 1, {"block": 96}, 15 + 32768 + 5 + 2 + 1 + 1 + 5 + 2),
        ("reduce_tiles_reproducible", 2**25, 1, {}, 8 * 8 - 1 + 7 + 4 - 1 + 5 + 5),
    ],
)
def test_depths_counted_by_hand(
    kernel: str, n: int, rows: int, shape: dict[str, int], depth: int
) -> None:
    assert planned(kernel, n, rows, **shape).depth == depth


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_depth_is_at_least_that_of_a_binary_tree(kernel: Kernel) -> None:
    for n, rows in problems(kernel):
        for block in kernel.blocks:
            assert planned(kernel, n, rows, block=block).depth >= (n - 1).bit_length() or n == 1


@pytest.mark.parametrize(
    ("kernel", "n", "rows", "shape", "grids"),
    [
        ("reduce_v0_baseline", 2**25, 1, {"block": 256}, [131072, 512, 2, 1]),
        ("reduce_v6_multi_add", 2**25, 1, {"block": 256}, [16384, 8, 1]),
        ("reduce_grid_stride", 10**8, 1, {}, [24, 1]),
        ("reduce_last_block", 10**8, 1, {}, [24]),
        ("reduce_last_block", 1025, 1, {}, [2]),
        ("reduce_shared_accumulate", 2**25, 1, {}, [1024, 1]),
        ("reduce_rows_tree", 262144, 2048, {}, [2048]),
        ("reduce_reshape", 262144, 2048, {}, [2048 * 16, 2048]),
        ("reduce_reshape", 40003, 1, {"block": 32, "items": 1}, [1251, 40, 2, 1]),
        ("reduce_warp_registers", 32, 2**20, {"block": 256}, [2**17]),
        ("reduce_warp_registers", 3, 9, {"block": 256}, [2]),
        ("reduce_tiles_cluster", 1, 1, {}, [8]),
        ("reduce_rows_split", 2**24, 16, {}, [16 * 33]),
        ("reduce_rows_split", 8193, 16, {}, [16 * 2]),
        ("reduce_rows_split", 2**18, 2048, {}, [2048]),
    ],
)
def test_grids_are_those_of_the_published_launches(
    kernel: str, n: int, rows: int, shape: dict[str, int], grids: list[int]
) -> None:
    assert [step.grid for step in planned(kernel, n, rows, **shape).passes] == grids


@pytest.mark.parametrize(
    ("op", "dtype", "n", "rows", "bytes_moved"),
    [
        ("sum", "float32", 2**25, 1, 2**27 + 4),
        ("sum", "float16", 1000, 1, 2000 + 4),
        ("mean", "int8", 1000, 1, 1000 + 8),
        ("argmin", "int8", 1000, 1, 1000 + 8),
        ("sum", "float32", 262144, 2048, 2048 * 262144 * 4 + 2048 * 4),
    ],
)
def test_bytes_are_inputs_read_and_outputs_written_once(
    op: str, dtype: str, n: int, rows: int, bytes_moved: int
) -> None:
    problem = Problem(reduction_of(op, dtype), n, rows)
    assert plan(KERNELS["reduce_rows_tree"], problem).bytes_moved == bytes_moved


def test_a_vector_for_all_rows_is_read_once() -> None:
    product = reduction_of("sum", "float32", None, Map("a * b", 2, one_row=True))
    made = plan(KERNELS["reduce_rows_tree"], Problem(product, 100, 7))
    assert made.bytes_moved == (7 * 100 + 100 + 7) * 4


def test_more_blocks_than_a_grid_has_is_an_error() -> None:
    assert planned("reduce_atomic", MAX_GRID * 256).passes[0].grid == MAX_GRID
    with pytest.raises(UsageError, match="at most 2\\^31 - 1"):
        planned("reduce_atomic", MAX_GRID * 256 + 1)


@pytest.mark.parametrize(
    ("kernel", "n", "rows", "words"),
    [
        ("reduce_v0_baseline", 100, 2, "reduces one array, not 2 rows"),
        ("reduce_single_block", 100, 0, "reduces one array, not 0 rows"),
        ("reduce_warp_registers", 33, 1, "a multiple of 32.*, not 33"),
    ],
)
def test_an_unsupported_shape_is_an_error(kernel: str, n: int, rows: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planned(kernel, n, rows)


def test_a_block_may_take_several_rows() -> None:
    fields = {key: getattr(KERNELS["reduce_rows_tree"], key) for key in Kernel.__dataclass_fields__}
    few = Kernel(**{**fields, "grid": "fixed", "fixed_grid": 2, "block": 256})
    of = planned(few, 1000, rows=7)
    assert of.passes[0].grid == 2
    assert of.depth == 4 - 1 + 8


def test_a_filling_grid_follows_the_device() -> None:
    fields: dict[str, Any] = {
        key: getattr(KERNELS["reduce_grid_stride"], key)
        for key in Kernel.__dataclass_fields__
        if key not in ("grid", "fixed_grid")
    }
    filling = Kernel(**fields, grid="fill")
    assert planned(filling, 2**25, block=512).passes[0].grid == 132 * 4
    assert planned(filling, 1000, block=512).passes[0].grid == 2
