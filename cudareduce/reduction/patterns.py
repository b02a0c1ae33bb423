"""The names of input patterns, and the selection of patterns that verify a reduction.

`inputs.py` generates their elements. This module does not import NumPy, so that the command line
can list the names quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cudareduce.reduction.operators import Reduction

#: The patterns of timed inputs, as records name them.
PATTERNS = ("random", "positive", "exact", "rising", "falling", "ones", "twos", "nan", "cancel")
#: The pattern name of elements read from the user's file.
GIVEN = "given"
#: The patterns that --pattern accepts. The others are useful for verification only.
USER_PATTERNS = ("random", "positive", "exact", "ones", "twos", "cancel")

_SUMS = ("sum", "mean")
_EXTREMA = ("min", "max", "argmin", "argmax")
#: Patterns of special values are used up to _SPECIAL_UP_TO elements, or up to 3 tiles and one
#: element, but never above _SPECIAL_AT_MOST, where an input takes more than 0.1 ms.
_SPECIAL_UP_TO, _TILES, _SPECIAL_AT_MOST = 4097, 3, 2**17
#: Above this size the error bound of a float32 product with inexact factors accepts any result.
_SPREAD_UP_TO = 2**17
#: Patterns whose result does not depend on the thread schedule.
_IN_ANY_ORDER = ("nan", "-nan", "inf", "-inf", "clash", "zero", "zeros", "neutral", "finite",
                 "close", "close-below", "large", "uneven", "lowest", "highest")  # fmt: skip


def patterns_for(reduction: Reduction, n: int, tile: int) -> list[str]:
    """The patterns that verify a reduction of `n` elements in tiles of `tile` elements. The first
    exposes most faults."""
    names = list(_always(reduction, n, tile))
    if _is_small(n, tile):
        names += _special(reduction, n, tile)
    return list(dict.fromkeys(names))


def end_patterns(reduction: Reduction, n: int, offset: int) -> list[str]:
    """For minima and maxima, patterns with the result at both ends of the input and at its first
    aligned 16-byte load, if the input starts `offset` elements past an aligned address. Empty for
    other operators, whose result changes with every lost element."""
    if reduction.op.name not in _EXTREMA:
        return []
    head = 16 // reduction.dtype.size - offset
    return [f"extremum:{at}" for at in sorted({0, head - 1, head, n - 1}) if 0 <= at < n]


def needs_schedules(pattern: str) -> bool:
    """True if a pattern's result may depend on the thread schedule."""
    return pattern.partition(":")[0] not in _IN_ANY_ORDER


def _is_small(n: int, tile: int) -> bool:
    return 0 < n <= max(_SPECIAL_UP_TO, min(_TILES * tile + 1, _SPECIAL_AT_MOST))


def _always(reduction: Reduction, n: int, tile: int) -> Iterator[str]:
    floats = reduction.dtype.kind == "float"
    if reduction.op.name in _SUMS:
        # Extreme bytes overflow a partial sum that is kept in too narrow a type.
        extreme = ("highest", "lowest") if reduction.dtype.size == 1 else ()
        yield from ("exact", "random", "positive") if floats else ("random", *extreme, "positive")
    elif reduction.op.name in _EXTREMA:
        yield from ("rising", "falling", "one-sided")
        yield from (f"extremum:{place}" for place in edge_indices(n, tile))
        if not _is_small(n, tile):
            yield from ("neutral", "nan") if floats else ("neutral",)
    else:
        yield "random"
    if reduction.op.expression and floats:
        yield "factors"
    if reduction.map:
        yield "named"
    if reduction.op.name == "prod" and floats and n <= _SPREAD_UP_TO:
        yield "spread"


def _special(reduction: Reduction, n: int, tile: int) -> Iterator[str]:
    op, floats = reduction.op.name, reduction.dtype.kind == "float"
    edges = edge_indices(n, tile)
    if reduction.map:  # the transformed values of other patterns are unknown
        yield from ("nan:0", f"-nan:{n - 1}") if floats else ()
        return
    everywhere = ",".join(map(str, edges))
    if op in _EXTREMA:
        yield from ("neutral", "close")
    if op in _EXTREMA and floats:
        yield from ("finite", "zeros", "close-below")
        # The result is the index of the first NaN, so add a later NaN.
        second = f",{n - 1}" if reduction.op.indexed else ""
        yield from (f"{('nan', '-nan')[k % 2]}:{at}{second}" for k, at in enumerate(edges))
    if reduction.op.indexed:
        pairs = [*pairwise(edges), (0, n - 1), (n // 2, n // 2 + 1)]
        yield from (f"tie:{a},{b}" for a, b in pairs if a < b < n)
    if op in _SUMS:
        yield from ("large", "uneven") if floats else ("lowest", "highest")
    if op == "prod":
        yield f"zero:{n - 1}"
    if op in (*_SUMS, "prod") and floats:
        yield from ("nan:0", f"-nan:{n - 1}")
        if n > 1:
            yield f"clash:0,{n - 1}"
    if op in (*_SUMS, "prod", *_EXTREMA) and floats:
        yield from (f"inf:{everywhere}", f"-inf:{everywhere}")


def edge_indices(n: int, tile: int) -> list[int]:
    """The indices where kernels often lose elements: the first and last index, and those on both
    sides of the first, a middle and the last tile edge."""
    edges = {tile, n // 2 // tile * tile, (n - 1) // tile * tile} if n else set()
    indices = {0, n - 1} | edges | {edge - 1 for edge in edges}
    return sorted(index for index in indices if 0 <= index < n)
