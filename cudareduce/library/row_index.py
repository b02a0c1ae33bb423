"""How a kernel of others finds the row that it sums: by its block, by a warp or by a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.body import Body
from cudareduce.library.header import RowGrid
from cudareduce.library.matrix import across, by_lanes, is_square, strides
from cudareduce.library.parameters import Parameter
from cudareduce.library.syntax import Function

#: What those write whose threads have two dimensions, and whose launches are not to be had here.
PLANE = frozenset(["threadIdx.y", "blockDim.y"])
_FAR_DIMENSIONS = frozenset(["blockIdx.z", "threadIdx.z"])
_WITH_THREADS = PLANE | {"threadIdx.x"}
#: What a row is found by where each has a warp, and not a thread.
_BY_WARP = frozenset(["/", ">>", "warpSize"])


@dataclass(frozen=True, slots=True)
class Rows:
    """Who takes a row, nobody where there is one array; the words behind the index of a row;
    whether they are the `columns` of a matrix, and whether that is a `square`, as one count is that
    of rows and of their elements; `lanes` that a block takes 32 columns, whatever its size."""

    grid: RowGrid | None
    index: frozenset[str]
    columns: bool
    square: bool
    lanes: bool = False


def read_rows(
    path: Path, function: Function, body: Body, count: Parameter | None,
    columns: Parameter | None, lengths: Sequence[Parameter], *, many: bool,
) -> Rows:  # fmt: skip
    """What a kernel does with rows whose length `count` says, or with as many columns as another
    parameter says, of these `lengths`; `many` says that it is told how many rows there are. A
    UsageError where that cannot be launched here."""
    both = not many and count is not None and is_square(body, count.name)
    column = across(body, count if both else columns, lengths)
    grid = column or _grid(path, function, body, count, many=many)
    if grid is None or count is None:
        return Rows(grid, frozenset(), columns=column is not None, square=False)
    index = _row_index(body, count.name)
    bounded = any("blockIdx.x" in words for words in body.compared(count.name))
    bounded = bounded and not is_upright(index)  # where that tells elements of a row apart
    return Rows(
        grid, frozenset() if column else index,
        columns=column is not None, square=not many and (column is not None or bounded),
        lanes=column is not None and by_lanes(body, count if both else columns),
    )  # fmt: skip


def _grid(
    path: Path, function: Function, body: Body, count: Parameter | None, *, many: bool
) -> RowGrid | None:
    """How many blocks rows get, if it sums rows, each as long as `count` says; `many` says that it
    is told how many there are. A UsageError where that cannot be launched here."""
    if count is None or not (many or strides(body, count.name)):
        return None
    index = _row_index(body, count.name)
    if index & _FAR_DIMENSIONS or (is_upright(index) and index & _WITH_THREADS):
        raise UsageError(
            f"{path}: {function.name} finds its row by blocks of two dimensions and threads, or by "
            "three, and launches here have fewer: let it count in x, or give the file a header"
        )
    if index & PLANE:
        return "warp_per_row"
    if "threadIdx.x" not in index and "thread_rank" not in index:
        return "warp_per_row" if "meta_group_rank" in index else "block_per_row"
    return "warp_per_row" if index & _BY_WARP else "thread_per_row"


def is_upright(index: frozenset[str]) -> bool:
    """Whether a row is counted in the second dimension of a grid; one that both dimensions make
    together is as good in a grid that has one."""
    return "blockIdx.y" in index and "blockIdx.x" not in index


def takes_turns(index: frozenset[str]) -> bool:
    """Whether a block goes on to the row that lies as many on as there are blocks."""
    return "gridDim.x" in index and "blockIdx.y" not in index


def _row_index(body: Body, count: str) -> frozenset[str]:
    """The words behind the index of a row: what a block multiplies the length of one by."""
    factors = [words for words in body.factors(count) if count not in words]
    of_block = [words for words in factors if words & {"blockIdx.x", "blockIdx.y"}]
    return next(iter(of_block or factors), frozenset())
