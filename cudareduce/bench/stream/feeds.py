"""Where the bytes of a piece are copied from."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from cudareduce.backend import Lane
from cudareduce.bench.stream.schedule import Piece
from cudareduce.machine.host import cpu_count

#: One thread of the host copies at 10 GB/s or so, and a link takes several times that.
_MOST_THREADS = 16
#: What a thread copies at once, in bytes: less is not worth a thread's while.
_LEAST_BYTES = 1 << 20


class Feed(Protocol):
    """Gives the bytes of pieces, in their order."""

    def give(self, piece: Piece) -> np.ndarray:
        """Those of a piece, which stay as they are until its copy has ended."""

    def given(self, piece: Piece, mark: Any) -> None:
        """The copy of a piece ends with this mark."""


class Held:
    """The array itself, `array` as bytes, of elements of `size` bytes."""

    def __init__(self, array: np.ndarray, size: int) -> None:
        self._array, self._size = array, size

    def give(self, piece: Piece) -> np.ndarray:
        return self._array[piece.start * self._size : piece.end * self._size]

    def given(self, piece: Piece, mark: Any) -> None:
        pass


class Idle:
    """Whatever lies in some places, for who wants no more than that it is copied."""

    def __init__(self, places: Sequence[np.ndarray], size: int) -> None:
        self._places, self._size = places, size

    def give(self, piece: Piece) -> np.ndarray:
        return self._places[piece.buffer][: piece.count * self._size]

    def given(self, piece: Piece, mark: Any) -> None:
        pass


class Staged:
    """An array that lies elsewhere, as bytes: brought to one of some `places` by threads, while
    what came before is copied from the others."""

    def __init__(
        self, array: np.ndarray, size: int, places: Sequence[np.ndarray], lane: Lane
    ) -> None:
        self._array, self._size, self._places, self._lane = array, size, places, lane
        self._threads = min(cpu_count(), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)
        self._marks: dict[int, Any] = {}

    def give(self, piece: Piece) -> np.ndarray:
        source = self._array[piece.start * self._size : piece.end * self._size]
        place = self._places[piece.buffer][: len(source)]
        if piece.buffer in self._marks:
            self._lane.wait(self._marks.pop(piece.buffer))
        step = max(_LEAST_BYTES, -(-len(source) // self._threads))
        spans = [slice(at, at + step) for at in range(0, len(source), step)]
        list(self._pool.map(lambda span: np.copyto(place[span], source[span]), spans))
        return place

    def given(self, piece: Piece, mark: Any) -> None:
        self._marks[piece.buffer] = mark

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)
