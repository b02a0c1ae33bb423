"""How a kernel of others finds the row that it sums: by its block, by a warp or by a thread."""

from __future__ import annotations

from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.body import Body
from cudareduce.library.header import RowGrid
from cudareduce.library.matrix import is_square, strides
from cudareduce.library.parameters import Parameter
from cudareduce.library.syntax import Function

#: What those write whose threads have two dimensions, and whose launches are not to be had here.
PLANE = frozenset(["threadIdx.y", "blockDim.y"])
_FAR_DIMENSIONS = frozenset(["blockIdx.z", "threadIdx.z"])
_WITH_THREADS = PLANE | {"threadIdx.x"}
#: What a row is found by where each has a warp, and not a thread.
_BY_WARP = frozenset(["/", ">>", "warpSize"])


def rows_of(
    path: Path, function: Function, body: Body, count: Parameter | None, *, many: bool
) -> RowGrid | None:
    """How many blocks rows get, if it sums rows, each as long as `count` says; `many` says that it
    is told how many there are. A UsageError where that cannot be launched here."""
    square = count is not None and not many and is_square(body, count.name)
    if count is None or not (many or square or strides(body, count.name)):
        return None
    if not many and any("blockIdx.x" in words for words in body.compared(count.name)):
        raise UsageError(
            f"{path}: {function.name} counts rows and their elements with {count.name} alone: only "
            "a square is summed so; give it a second count, or the file a header"
        )
    index = row_index(body, count.name)
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


def row_index(body: Body, count: str) -> frozenset[str]:
    """The words behind the index of a row: what a block multiplies the length of one by."""
    factors = [words for words in body.factors(count) if count not in words]
    of_block = [words for words in factors if words & {"blockIdx.x", "blockIdx.y"}]
    return next(iter(of_block or factors), frozenset())
