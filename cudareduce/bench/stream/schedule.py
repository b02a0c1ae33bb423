"""In which pieces an array goes through the device."""

from __future__ import annotations

from dataclasses import dataclass

#: How many buffers there are on the device: one is filled while the kernel reads another, and the
#: third gives the host time to enqueue.
BUFFERS = 3
#: The last chunk is halved down to so many bytes: its kernel has no copy to hide behind.
_LAST_BYTES = 8 << 20
#: Where a piece begins, of 16 bytes each: kernels load as much at once.
_PACK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements that are copied at once, and summed at once: `count` from `start` on, through the
    buffer number `buffer`; `number` is its place among all."""

    number: int
    start: int
    count: int

    @property
    def buffer(self) -> int:
        """Which of the device's buffers it goes through."""
        return self.number % BUFFERS

    @property
    def end(self) -> int:
        """The element behind its last."""
        return self.start + self.count


def schedule(n: int, chunk: int, size: int) -> tuple[Piece, ...]:
    """The pieces of `n` elements of `size` bytes in their order: whole chunks of so many elements,
    what is left, and the last of all in halves, down to 8 MiB."""
    counts = [chunk] * (n // chunk) + ([n % chunk] if n % chunk else [])
    pack = max(1, _PACK_BYTES // size)
    while counts and counts[-1] * size > _LAST_BYTES:
        last = counts.pop()
        half = -(-last // 2 // pack) * pack
        counts += [half, last - half]
    pieces, start = [], 0
    for number, count in enumerate(counts):
        pieces.append(Piece(number, start, count))
        start += count
    return tuple(pieces)
