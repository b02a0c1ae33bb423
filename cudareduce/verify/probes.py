"""What single blocks of a launch that is larger than any memory are to count: a few marks each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cudareduce.launch.plan import Plan

#: Turns of a grid that are marked: of kernels that take pairs or quads of turns as well.
MARKED_TURNS = 4
#: The most elements that are marked.
_MOST_MARKED = 2**23
#: Where offsets in bytes and in elements end.
_SIGNED, _UNSIGNED = 2**31, 2**32


@dataclass(frozen=True, slots=True)
class Probe:
    """Marked elements, each so many `step` behind the one before, of which `block` counts `share`,
    `first` before all others, and the place of its partial."""

    block: int
    slot: int
    start: int
    count: int
    share: int
    first: int
    step: int = 1


def probes(plan: Plan) -> Iterator[Probe]:
    """What single blocks are to count, by the header's words."""
    n, rows = plan.problem.n, plan.problem.rows
    kernel, grid, tile = plan.kernel, plan.passes[0].grid, plan.block * plan.items
    rows_a_block = {
        "block_per_row": 1,
        "warp_per_row": plan.block // 32,
        "thread_per_row": plan.block,
    }
    per_block = rows_a_block[kernel.grid] * n if kernel.grid in rows_a_block else tile
    size = plan.problem.reduction.dtype.size
    if kernel.turns and kernel.grid in rows_a_block:
        first, turn = (k * rows_a_block[kernel.grid] for k in (grid // 2, grid))
        row = first + (rows - 1 - first) // turn * turn  # the last that this block comes to
        yield Probe(grid // 2, row, row * n, n, n, 0)
    elif kernel.columns:
        for b in dict.fromkeys((0, grid // 2, grid - 1)):
            column = min((2 * b + 1) * per_block // n // 2, rows - 1)
            yield Probe(b, column, column, n, n, 0, rows)
    elif kernel.grid in ("cover", "block_per_row", "warp_per_row"):
        borders = (_SIGNED // size, _UNSIGNED // size, _SIGNED, _UNSIGNED)
        blocks = {0, grid // 3, grid // 2 + 1, grid - 1}
        blocks |= {border // per_block + 1 for border in borders}
        for b in sorted(b for b in blocks if b < grid):
            if kernel.grid == "warp_per_row":
                row = min(b * (plan.block // 32) + 1, rows - 1)
                yield Probe(row // (plan.block // 32), row, row * n, n, n, 0)
            else:
                first = 0 if kernel.grid == "block_per_row" else b * tile
                slot = b * rows // grid if rows > 1 else b
                yield Probe(b, slot, b * per_block, per_block, per_block, first)
    elif kernel.scope == "rows" and rows > 1:
        row = rows - grid + grid // 2
        yield Probe(row % grid, row, row * n, n, n, 0)
    elif kernel.walk in ("contiguous", "stream_fold") or grid == 1:
        yield Probe(grid - 1, grid - 1, n - tile, tile, tile, n - tile)
    else:
        turns, b = MARKED_TURNS * grid * tile, grid // 2
        count, start = min(turns, _MOST_MARKED), n - turns
        yield Probe(b, b, start, count, MARKED_TURNS * tile, start + b * tile)
