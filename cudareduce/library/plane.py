"""A matrix of which one answer is made, be it by a grid and blocks of two dimensions. Launches here
have one dimension, and one number of elements."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.library.body import Body
from cudareduce.library.parameters import Parameter
from cudareduce.library.values import is_whole

#: How many columns it may have, the first that divides its elements: none is a multiple of the
#: threads of a block, but for so many where there are so many elements, as are timed.
_COLUMNS = (257, 100, 63, 33, 20, 7, 3)
_MANY = ((4096, 2**20), (1024, 2**15))
_ACROSS, _DOWN = frozenset(["blockIdx.x", "threadIdx.x"]), frozenset(["blockIdx.y", "threadIdx.y"])


def columns_for(n: int) -> int:
    """How many columns a matrix of `n` elements has."""
    wide = (k for k, least in _MANY if n >= least and n % k == 0)
    return next(wide, next((k for k in _COLUMNS if n % k == 0), 1))


def of_several(n: int) -> int:
    """So many elements, or the most below of which a matrix has several columns: of one column
    most threads of a block that takes them in rows have nothing."""
    return n if columns_for(n) > 1 else n - n % _COLUMNS[3]


def columns_in_words() -> str:
    """The same in CUDA C++."""
    said = "".join(f"n >= {least} && n % {k} == 0 ? {k} : " for k, least in _MANY)
    said += "".join(f"n % {k} == 0 ? {k} : " for k in _COLUMNS)
    return f"""
    const size_t columns = {said}1;"""


def in_words(width: int) -> str:
    """The same, and how many blocks of so many columns lie side by side."""
    return f"""{columns_in_words()}
    const size_t wide = (columns + {width - 1}) / {width};
    if (threadIdx.x == 0)
        their_rows() = gridDim.x / unsigned(wide);
    __syncthreads();"""


def counts_of(body: Body, parameters: Sequence[Parameter]) -> tuple[str, str] | None:
    """Which parameter counts the columns of a matrix, and which its rows, where threads and blocks
    of two dimensions take an element each and leave one answer; None if that is not so."""
    whole = [p.name for p in parameters if is_whole(p)]
    across = [name for name in whole if _bounds(body, name, _ACROSS, _DOWN)]
    down = [name for name in whole if _bounds(body, name, _DOWN, _ACROSS)]
    written = [p.name for p in parameters if p.writes and body.changes(p.name)]
    one = len(written) == 1 and body.atomics(written[0]) and not body.each(written[0])
    if len(across) != 1 or len(down) != 1 or not one:
        return None
    return across[0], down[0]


def _bounds(body: Body, name: str, these: frozenset[str], others: frozenset[str]) -> bool:
    """Whether an index of one dimension is compared with it, and none of the other."""
    return any(these <= words and not others & words for words in body.compared(name))
