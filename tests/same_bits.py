"""What `reduce_tiles_reproducible` answers to stored inputs, bit by bit, wherever it is launched.

`python -m tests.same_bits` writes `tests/data/same_bits.json` anew, from the emulator. A file that
changes means that the order has changed: every answer that anybody has kept is then another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import default_cache
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.machine import DEFAULT_LIMITS, DeviceLimits
from cudareduce.reduction.inputs import Array, stored
from cudareduce.reduction.operators import Reduction, reduction_of

NAME = "reduce_tiles_reproducible"
STORED = Path(__file__).resolve().parent / "data" / "same_bits.json"
DTYPES = ("float32", "float64", "float16", "bfloat16")
#: Less than a row, a tile and a bit, several blocks, and more tiles than there are fixed warps.
SIZES = (1, 100, 1025, 100003, 2**22 + 4099)


def elements(reduction: Reduction, n: int, seed: int) -> Array:
    """Elements of both signs and many magnitudes, whose sum is rounded at almost every addition:
    made of raw bits, which no version of NumPy changes."""
    raw = np.random.PCG64(seed).random_raw(n)
    numbers = ((raw >> np.uint64(11)) * 2.0**-53 - 0.5) * 2.0 ** ((raw & np.uint64(15)) - 8.0)
    wide = "float64" if reduction.dtype.size == 8 else "float32"
    return stored(numbers.astype(wide), reduction.dtype)


def answer(
    backend: Backend, kernel: Kernel, reduction: Reduction, data: Array, *,
    block: int | None = None, limits: DeviceLimits = DEFAULT_LIMITS, offset: int = 0,
) -> str:  # fmt: skip
    """The bytes of one answer, in hexadecimal digits, to data that start `offset` elements off."""
    size = reduction.dtype.size
    case = Case(kernel, reduction, block or kernel.block, kernel.items_of(size))
    plan = case.plan(len(data), limits=limits)
    programs = build(backend, {case: [plan]})[case]
    assert not isinstance(programs, BuildError), programs
    given = backend.upload(data, offset * size)
    bound = Bound(backend, plan, programs, given)
    bound.run()
    found = bound.results().tobytes().hex()
    bound.release()
    backend.free(given)
    return found


def answers(backend: Backend, kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Every stored input's name, and the answer to it."""
    for seed, n in enumerate(SIZES):
        for dtype in DTYPES:
            reduction = reduction_of("sum", dtype)
            data = elements(reduction, n, seed)
            yield f"{dtype} n={n} seed={seed}", answer(backend, kernel, reduction, data)


def main() -> None:
    """Write the file."""
    kernel = load_registry().kernels[NAME]
    with CpuBackend(cache=default_cache()) as backend:
        found = dict(answers(backend, kernel))
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
