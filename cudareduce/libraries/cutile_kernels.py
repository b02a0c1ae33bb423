"""The cuTile kernel; cuTile reads its source from this file."""

from __future__ import annotations

import cuda.tile as ct


@ct.kernel  # type: ignore[untyped-decorator]
def stage(x, out, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    """Stores the sum of the tiles block, block + grid, ... of each block."""
    block = ct.bid(0)
    partial = ct.zeros((tile,), dtype=x.dtype)
    for at in range(block, ct.cdiv(x.shape[0], tile), ct.num_blocks(0)):
        partial += ct.load(x, index=(at,), shape=(tile,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=ct.sum(partial).reshape((1,)))
