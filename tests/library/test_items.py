"""Elements a thread, as the text of a kernel reckons."""

from __future__ import annotations

import pytest

from cudareduce.library.items import items_in


@pytest.mark.parametrize(("code", "items"), [
    ("{ int k = (blockIdx.x * THREADS + threadIdx.x) * 4; }", 4),
    ("{ int me = threadIdx.x; int k = 8 * (blockIdx.x * blockDim.x + me); }", 8),
    ("{ int k = blockIdx.x * blockDim.x * 2 + threadIdx.x; }", None),
    ("{ int k = (blockIdx.x * blockDim.x + threadIdx.x) * 3; }", None),
    ("{ int i = blockIdx.x * 256 + threadIdx.x; s += i * 4 + i * 2; }", None),
])  # fmt: skip
def test_items(code: str, items: int | None) -> None:
    assert items_in(code) == items
