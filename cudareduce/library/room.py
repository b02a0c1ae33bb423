"""Memory that a kernel is given besides its input and its answer: counters, locks, partials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: What there may be a room for each of, as `--arg` says it: a block, or a row where there are more
#: of them; a thread; an element of the input.
Each = Literal["grid", "threads", "n"]
EACH: tuple[Each, ...] = ("grid", "threads", "n")


@dataclass(frozen=True, slots=True)
class Room:
    """What the parameter of this name points to: `size` bytes, in all or of `each` of something.
    One that is `zeroed` is so whenever a reduction begins; what else is there is left over.
    One that `answers` holds a second answer, which nobody judges."""

    parameter: str
    size: int
    each: Each | None = None
    zeroed: bool = False
    answers: bool = False

    @property
    def name(self) -> str:
        """What its buffer is called."""
        return f"parameter {self.parameter}"

    def bytes(self, blocks: int, threads: int, elements: int) -> int:
        """Bytes of whole words, for a launch of so many blocks (or rows) and threads on so many
        elements."""
        count = {"grid": blocks, "threads": threads, "n": elements}[self.each] if self.each else 1
        return -(-self.size * count // 4) * 4
