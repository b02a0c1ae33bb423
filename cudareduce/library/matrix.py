"""How a kernel of others walks a matrix: how far apart rows are, or that it goes by columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudareduce.library.body import Body
from cudareduce.library.header import RowGrid
from cudareduce.library.parameters import Parameter

#: What the counts of columns and of rows get of a matrix of one answer, in words of a call.
SHAPE = "columns", "n / columns"
#: What the index of a column is made with where a block takes as many as a warp has lanes.
_LANES = frozenset(["%", "&"])
_BLOCKS = frozenset(["blockIdx.x", "blockIdx.y"])


def strides(body: Body, name: str) -> bool:
    """Whether the rows of a matrix are so far apart: an index of blocks times this."""
    factors = [words for words in body.factors(name) if name not in words and words & _BLOCKS]
    return any("blockDim.x" not in words or "threadIdx.x" in words for words in factors)


def counting(
    body: Body, names: Sequence[str], called: re.Pattern[str]
) -> tuple[list[str], list[str]]:
    """Which of these numbers count something, be they `called` so or not, and which are 1, since
    another one stands for both: those that are only ever multiplied by one another. What only says
    how far apart a thread reads is neither."""
    counts = [name for name in names if called.search(name) or not is_distance(body, name)]
    ones: list[str] = []
    for name in counts:
        (other, *more) = body.always_times(name)
        alone = not more and other in {*counts} - {name, *ones}
        if alone and body.always_times(other) == {name}:
            ones.append(name)
    return [name for name in counts if name not in ones], ones


def is_distance(body: Body, name: str) -> bool:
    """Whether something is only ever added to the index of an element."""
    bounds = body.compared(name) or body.factors(name)
    return not bounds and body.each(name) == "threads"


def is_tile(body: Body, name: str) -> bool:
    """Whether the tiles of blocks that share a row begin so many elements apart."""
    along = (w for w in body.factors(name) if "threadIdx.x" not in w)
    return "blockIdx.y" in body.words and any("blockIdx.x" in words for words in along)


def columns_of(body: Body, counts: Sequence[str]) -> tuple[str, str] | None:
    """Which of these counts a matrix's columns, and which the elements of each, if columns are what
    is reduced; None if it is rows."""
    if any(strides(body, name) for name in counts):
        return None
    for columns in counts:
        if _index(body, columns):
            others = [name for name in counts if name != columns]
            along = (
                name for name in others
                if len(others) == 1 or any(not words & _BLOCKS for words in body.compared(name))
            )  # fmt: skip
            length = next(along, None)
            if length is not None:
                return columns, length
    return None


def across(body: Body, columns: Parameter | None, lengths: Sequence[Parameter]) -> RowGrid | None:
    """How many blocks columns get, of which there are as many as one parameter says, each with as
    many elements as others say; None if these are rows."""
    if columns is None or not lengths or any(strides(body, one.name) for one in lengths):
        return None
    index = _index(body, columns.name)
    if not index:
        return None
    if {"threadIdx.x", "threadIdx.y"} <= index:  # the number of a thread in a block of both
        return "thread_per_row"
    if body.words & {"threadIdx.y", "blockDim.y"} or index & {"meta_group_rank", *_LANES}:
        return "warp_per_row"
    return "thread_per_row" if "threadIdx.x" in index else "block_per_row"


def by_lanes(body: Body, columns: Parameter | None) -> bool:
    """Whether a block takes as many columns as a warp has lanes, however many warps it has."""
    return columns is not None and not _index(body, columns.name).isdisjoint(_LANES)


def is_square(body: Body, count: str) -> bool:
    """Whether a matrix has as many columns as one count says, and as many elements in each: it
    bounds the index of a column, and what it is multiplied by to come to the next row."""
    bounded = body.compared(count)
    return bool(_index(body, count)) and any(words in bounded for words in body.factors(count))


def _index(body: Body, count: str) -> frozenset[str]:
    """The words behind the index of a column, of which there are as many as this count says; none
    if it counts no columns, since it is multiplied by what tells blocks apart, or by nothing."""
    factors = [words for words in body.factors(count) if count not in words]
    if not factors or any(words & _BLOCKS for words in factors):
        return frozenset()
    bounded = [words for words in body.compared(count) if "blockIdx.x" in words]
    if not body.compared(count):  # nobody looks whether there is such a column
        bounded = [words for words in body.beside(count) if "blockIdx.x" in words]
    return next((words for words in bounded if count not in words), frozenset())
