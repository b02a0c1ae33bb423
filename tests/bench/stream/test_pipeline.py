"""Pieces hold every element once, in order, and end in small ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cudareduce.bench.stream.pipeline import BUFFERS, schedule

MIB = 2**20


@pytest.mark.parametrize(
    ("n", "chunk", "size"),
    [(1, 1, 4), (17, 5, 8), (2**25, 2**24, 4), (2**25 + 3, 2**23, 2), (10**8, 16 * 10**6, 1)],
)
def test_every_element_is_in_one_piece(n: int, chunk: int, size: int) -> None:
    pieces = schedule(n, chunk, size)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert pieces[0].start == 0
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert pieces[-1].end == n
    assert all(0 < piece.count <= chunk for piece in pieces)
    assert pieces[-1].count * size <= 8 * MIB


def test_the_last_chunk_is_halved() -> None:
    counts = [piece.count * 4 // MIB for piece in schedule(2**28, 2**26, 4)]
    assert counts == [256, 256, 256, 128, 64, 32, 16, 8, 8]


def test_buffers_are_used_in_turn() -> None:
    assert [p.buffer for p in schedule(7, 1, 4)] == [k % BUFFERS for k in range(7)]
