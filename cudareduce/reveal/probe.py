"""Probes of a call: two masks among ones, and what the answer says of where they meet."""

from __future__ import annotations

from collections.abc import Callable

from cudareduce.budget import Deadline
from cudareduce.reveal.call import Call
from cudareduce.reveal.masks import Masks


class OutOfTime(Exception):
    """The time limit has come before a probe."""


class Contradiction(Exception):
    """No order of additions alone gives the answers that came; the message says which, of what."""


class Prober:
    """Asks a call where two elements of its first row meet; one probe is one call.

    `beat` is called before each, so that whoever waits sees that it goes on.
    """

    def __init__(
        self, call: Call, masks: Masks, n: int, rows: int, deadline: Deadline,
        beat: Callable[[], None],
    ) -> None:  # fmt: skip
        self._call, self._masks, self._n, self._elements = call, masks, n, n * rows
        self._deadline, self._beat = deadline, beat
        self._known: dict[tuple[int, int], int] = {}
        self._set: dict[int, float] = {}
        self.probes = 0

    def total(self) -> float:
        """How many ones the call counts where there is nothing else; to be asked first."""
        self._call.write(0, self._masks.ones(self._elements))
        return self._counted()

    def meets(self, first: int, second: int) -> int:
        """How many elements are in the sum in which two come together. Raises Contradiction, and
        OutOfTime."""
        pair = (first, second) if first < second else (second, first)
        if pair not in self._known:
            self._known[pair] = self._probed(*pair)
        return self._known[pair]

    def _probed(self, first: int, second: int) -> int:
        left = self.count(first, second)
        size = self._n - left
        if not 2 <= size <= self._n or size != int(size):
            raise Contradiction(f"masks at {first} and {second} leave {left:.9g} of {self._n} ones")
        return int(size)

    def less_absorbed(self, first: int, second: int) -> str:
        """That the smallest mask of the accumulator's type absorbs less than a large one does, if
        so. Raises Contradiction and OutOfTime."""
        left, acc = self._n - self.meets(first, second), self._masks.reduction.acc.name
        found = self.count(first, second, self._masks.least(self._n))
        if found == left:
            return ""
        return (
            f"a mask that absorbs all but {left} ones in {acc} leaves {found:.9g}, as in a wider "
            "accumulator"
        )

    def count(self, first: int, second: int, mask: float | None = None) -> float:
        """How many ones are left with a mask at one place and its negative at another."""
        mask = self._masks.mask if mask is None else mask
        wanted = {first: mask, second: -mask}
        for place in self._set.keys() | wanted.keys():
            number = wanted.get(place, self._masks.one)
            if self._set.get(place) != number:
                self._call.write(place, self._masks.elements(number))
        self._set = wanted
        return self._counted()

    def _counted(self) -> float:
        if self._deadline.passed:
            raise OutOfTime
        self._beat()
        self.probes += 1
        return self._call.answer() / self._masks.one
