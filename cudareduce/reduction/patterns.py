"""The input patterns: their names, and which of them verify a reduction at which size.

`inputs` makes their elements. NumPy is not imported here, so that options can list the names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cudareduce.reduction.operators import Reduction

#: The patterns that a record may name for its timed input.
PATTERNS = ("random", "positive", "exact", "rising", "falling", "ones", "twos", "nan", "cancel")
#: The pattern of elements that come from the user's file.
GIVEN = "given"
#: The patterns that --pattern accepts; the others find faults of single operators.
USER_PATTERNS = ("random", "positive", "exact", "ones", "twos", "cancel")

_SUMS = ("sum", "mean")
_EXTREMA = ("min", "max", "argmin", "argmax")
#: Special values are used up to this size, or up to three tiles and one element, but never beyond
#: the last size: above it an input costs more than a tenth of a millisecond.
_SPECIAL_UP_TO, _TILES, _SPECIAL_AT_MOST = 4097, 3, 2**17
#: Beyond this size rounding could explain any float32 product of factors that are not powers of 2.
_SPREAD_UP_TO = 2**17
#: Patterns whose result does not depend on the thread schedule.
_IN_ANY_ORDER = ("nan", "-nan", "inf", "-inf", "clash", "zero", "zeros", "neutral", "finite",
                 "close", "close-below", "large", "uneven", "lowest", "highest")  # fmt: skip


def patterns_for(reduction: Reduction, n: int, tile: int) -> list[str]:
    """The patterns that verify a reduction of `n` elements in tiles of `tile`, the decisive one
    first; `extremum:K` has its result at index K."""
    names = list(_always(reduction, n, tile))
    if _is_small(n, tile):
        names += _special(reduction, n, tile)
    return list(dict.fromkeys(names))


def of_ends(reduction: Reduction, n: int, offset: int) -> list[str]:
    """The patterns with an extremum at the ends, and at the first whole 16-byte load, of an input
    that starts `offset` elements off. Other operators notice every lost element anyway."""
    if reduction.op.name not in _EXTREMA:
        return []
    head = 16 // reduction.dtype.size - offset
    return [f"extremum:{at}" for at in sorted({0, head - 1, head, n - 1}) if 0 <= at < n]


def needs_schedules(pattern: str) -> bool:
    """True if the thread schedule may change the result of a pattern."""
    return pattern.partition(":")[0] not in _IN_ANY_ORDER


def _is_small(n: int, tile: int) -> bool:
    return 0 < n <= max(_SPECIAL_UP_TO, min(_TILES * tile + 1, _SPECIAL_AT_MOST))


def _always(reduction: Reduction, n: int, tile: int) -> Iterator[str]:
    floats = reduction.dtype.kind == "float"
    if reduction.op.name in _SUMS:
        # A narrow running sum of bytes overflows where all of them are extreme.
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
    if reduction.map:  # other special values depend on the transform
        yield from ("nan:0", f"-nan:{n - 1}") if floats else ()
        return
    everywhere = ",".join(map(str, edges))
    if op in _EXTREMA:
        yield from ("neutral", "close")
    if op in _EXTREMA and floats:
        yield from ("finite", "zeros", "close-below")
        # The first NaN determines an index, so there is another one after it.
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
    """The first and last index, and both sides of the first, a middle and the last tile edge."""
    edges = {tile, n // 2 // tile * tile, (n - 1) // tile * tile} if n else set()
    found = {0, n - 1} | edges | {edge - 1 for edge in edges}
    return sorted(place for place in found if 0 <= place < n)
