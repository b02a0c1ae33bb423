"""Elements a thread, as the text of a kernel reckons."""

from __future__ import annotations

import pytest

from cudareduce.library.host_code import host_code
from cudareduce.library.items import items_in, items_of_tiles
from cudareduce.library.syntax import pieces


@pytest.mark.parametrize(("code", "items"), [
    ("{ int k = (blockIdx.x * THREADS + threadIdx.x) * 4; }", 4),
    ("{ int me = threadIdx.x; int k = 8 * (blockIdx.x * blockDim.x + me); }", 8),
    ("{ int k = blockIdx.x * blockDim.x * 2 + threadIdx.x; }", None),
    ("{ int k = (blockIdx.x * blockDim.x + threadIdx.x) * 3; }", None),
    ("{ int i = blockIdx.x * 256 + threadIdx.x; s += i * 4 + i * 2; }", None),
])  # fmt: skip
def test_items(code: str, items: int | None) -> None:
    assert items_in(code) == items


@pytest.mark.parametrize(("code", "items"), [
    ("{ int k = COARSE * 2 * blockDim.x * blockIdx.x + threadIdx.x; }", 8),
    ("{ int k = blockIdx.x * (128 * COARSE) + threadIdx.x; }", 4),
    ("{ const int TILE = 1024; int k = blockIdx.x * TILE + threadIdx.x; }", 8),
    ("{ int k = (blockIdx.x * blockDim.x + threadIdx.x) * COARSE; }", 4),
    ("{ int w = (blockIdx.x * blockDim.x + threadIdx.x) / 32; int k = w * 32; }", None),
    ("{ int k = blockIdx.x * n + threadIdx.x; }", None),
    ("{ int k = blockIdx.x * 100 + threadIdx.x; }", None),
    ("{ int k = blockIdx.x * blockDim.x * 2 + blockIdx.x * blockDim.x * 4; }", None),
])  # fmt: skip
def test_items_of_tiles(code: str, items: int | None) -> None:
    file = host_code(pieces(b"#define COARSE 4\n")).constants
    assert items_of_tiles(code, file, 128) == items
