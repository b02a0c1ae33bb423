"""How many roundings an element of a launch can pass through."""

from __future__ import annotations

from cudareduce.library.header import UNORDERED
from cudareduce.library.kernel import Kernel


def depth_of(kernel: Kernel, block: int, items: int, blocks: int, n: int) -> int:
    """Additions an element can pass through in one launch with so many blocks a row: its thread's
    own, the block's, and where blocks meet in one launch, those of the partials: the n of Higham's
    gamma_n, 4.2. An addition to the identity rounds nothing, so `k` values cost `k - 1`."""
    match kernel.walk:
        case "element":
            return n - 1
        case "lane":
            return _steps(32)
        case "warp_stride":
            return items * parts(n, 32 * items) - 1 + (kernel.vector > 1) + _steps(32)
        case "warp_stream":  # a tile's elements and lanes, then the tiles
            own = items + _steps(32) + parts(n, block * items * blocks)
        case "tickets":  # chance may leave all tiles to one block; each is a sum of its own
            own = items + parts(n, max(32, block - 32) * items)
        case "tile":
            own = items
        case "grid_stride":
            own = items * parts(n, block * items * blocks)
        case _:
            own = parts(parts(n, blocks), block)
    serial = kernel.fold == "warps_then_serial"
    folded = _steps(32) + block // 32 - 1 if serial else _steps(block)
    depth = own - 1 + folded + (kernel.vector > 1)  # the ends of which wide loads leave
    if kernel.finish in (*UNORDERED, "cluster"):
        depth += blocks - 1
    if kernel.finish in ("last_block", "mailbox"):
        depth += parts(blocks, block) - 1 + folded
    return depth


def parts(whole: int, part: int) -> int:
    """How many parts of this size make up the whole, the last one perhaps shorter."""
    return -(-whole // part)


def _steps(count: int) -> int:
    """How many times `count` must be halved until one is left."""
    return (count - 1).bit_length()
