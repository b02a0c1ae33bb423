"""The order of additions that a kernel's header claims, as far as its words determine it.

Which elements a block, a warp or a thread adds up before others come in follows from `walk`, `fold`
and the launch shape; in which order a block then goes on its words leave open, and such a join has
more than two parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudareduce.launch.tree import Forest, Tree
from cudareduce.library.header import UNASSIGNED
from cudareduce.library.kernel import Kernel

_WARP = 32


def claimed(kernel: Kernel, shapes: Sequence[tuple[int, int]], block: int, items: int) -> Tree:
    """The tree of one row that is reduced in launches of so many blocks on so many elements a row
    each."""
    n = shapes[0][1] if shapes else 0
    forest = Forest(range(n))
    values = list(range(n))
    # With wide loads, which thread takes what depends on where the input starts: all is left open.
    left_open = kernel.vector_bytes or kernel.walk in UNASSIGNED
    for blocks, _ in () if left_open else shapes:
        shares = _shares(kernel, len(values), blocks, block, items)
        values = [_folded(forest, kernel, values, share) for share in shares if any(share)]
    return forest.tree(n, forest.join(values) if values else None)


def _shares(
    kernel: Kernel, n: int, blocks: int, block: int, items: int
) -> Iterator[list[Sequence[int]]]:
    """What each block takes of `n` values: what each of its threads adds up, one value after the
    other. Where the words do not say which thread takes a value, it is a thread's own."""
    tile, share = block * items, -(-n // blocks)
    plain = kernel.vector == 1
    for index in range(blocks):
        own = range(min(index * share, n), min(index * share + share, n))
        match kernel.walk:
            case "element" | "lane":
                yield [[k] for k in range(n)]
                return
            case "tile":
                yield [[k] for k in range(min(index * tile, n), min(index * tile + tile, n))]
            case "grid_stride" if plain and items == 1:
                yield [range(index * block + t, n, block * blocks) for t in range(block)]
            case "grid_stride":
                yield [[k] for k in range(n) if k // tile % blocks == index]
            case "contiguous" if plain:
                yield [own[t::block] for t in range(block)]
            case _:
                yield [[k] for k in own]


def _folded(
    forest: Forest, kernel: Kernel, values: Sequence[int], threads: Sequence[Sequence[int]]
) -> int:
    """The partial of one block."""
    partials = [
        _in_turn(forest, [values[k] for k in thread]) if thread else None for thread in threads
    ]
    if kernel.fold == "warps_then_serial":
        warps = [_there(partials[k : k + _WARP]) for k in range(0, len(partials), _WARP)]
        return _in_turn(forest, [forest.join(warp) for warp in warps if warp])
    return forest.join(_there(partials))


def _there(partials: Sequence[int | None]) -> list[int]:
    """Those of threads that have something to add."""
    return [partial for partial in partials if partial is not None]


def _in_turn(forest: Forest, parts: Sequence[int]) -> int:
    """Parts added one after the other."""
    whole = parts[0]
    for part in parts[1:]:
        whole = forest.join([whole, part])
    return whole
