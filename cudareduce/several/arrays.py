"""Arrays that are timed: inputs take turns, outputs are cleared, and answers are judged where they
lie, since the host would take longer to fetch a large one than all samples of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cudareduce.backend import Program, TimedBackend
from cudareduce.problem.operators import Reduction
from cudareduce.several.elements import Array, expected, share, stored, whole
from cudareduce.several.engines import Stage
from cudareduce.several.stopwatch import SAMPLES
from cudareduce.several.windows import Part, Windows

#: Inputs that take turns, so that an answer of the call before is not the answer of this one.
TURNS = 2
#: Elements after which an input repeats itself: a prime, so no share begins where it does.
_PERIOD = 1_048_583
#: What judges: bytes of two words for each sample, threads of a block, and blocks at most, which
#: keep a GPU busy.
_FOUND, _THREADS, _BLOCKS = 16, 512, 512


class Arrays:
    """What arrays of one size hold, and what they must hold when combined, which `judge` tells.
    Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int, judge: Program) -> None:
        self._stage, self._backend, self._n, self._judge = stage, backend, n, judge
        reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self._mine = share(stage.collective, reduction, rank, ranks, n)
        self._right = [
            backend.upload(_tiled(reduction, expected(reduction, values), n)[self._mine])
            for values in turns
        ]
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        self._nbytes = n * reduction.dtype.size
        self._found = [backend.allocate(_FOUND) for _ in range(SAMPLES)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._right, *self._given, *self._found)

    def within(self, windows: Windows) -> Placed:
        """They as they lie in windows."""
        places = windows.layout.input, windows.layout.output
        return Placed(self, *(windows.part(place, self._nbytes) for place in places))

    def prepare(self, k: int, given: Part, answer: Part) -> None:
        """Enqueue the input of sample `k`, behind what clears the answer, which of one that works
        in place is the same memory."""
        self._backend.poison(answer)
        self._backend.overwrite(given, 0, self._given[k % TURNS])

    def keep(self, k: int, answer: Part) -> None:
        """Enqueue what judges its answer."""
        size, count = self._stage.reduction.dtype.size, self._mine.stop - self._mine.start
        got = Part(answer.address + self._mine.start * size, count * size)
        words = [got, self._right[k % TURNS], count, self._found[k]]
        self._backend.zero(self._found[k])
        grid = max(1, min(-(-count // _THREADS), _BLOCKS))
        self._backend.launcher(self._judge, grid, _THREADS, words)()

    def wrong(self) -> str | None:
        """Why the answer of a sample is wrong, if one is."""
        for k, found in enumerate(self._found):
            wrong, rest = map(int, self._backend.download(found, "uint64", 2))
            if wrong:
                return (
                    f"rank {self._stage.comm.rank}, n = {self._n}, sample {k + 1}: element "
                    f"{self._mine.stop - rest} is wrong, and {wrong - 1} more"
                )
        return None

    def arrived(self, sender: int, count: int) -> str | None:
        """Why this rank's output does not begin with so many elements of what another had put in
        at the last sample; None if it does."""
        values = _values(self._stage.reduction, sender, (SAMPLES - 1) % TURNS, self._n)
        return missing(self._stage, sender, _tiled(self._stage.reduction, values, count))


def missing(stage: Stage, sender: int, values: Array) -> str | None:
    """Why this rank's output does not begin with what another has put in; None if it does."""
    windows, dtype, count = stage.windows, stage.reduction.dtype, len(values)
    answer = windows.part(windows.layout.output, values.nbytes)
    off = np.flatnonzero(stage.backend.download(answer, dtype.storage, count) != values)
    if not len(off):
        return None
    return (
        f"rank {windows.rank}: of {count} elements of rank {sender} element {off[0]} has not "
        f"arrived, and {len(off) - 1} more"
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """Arrays in windows, as a Stopwatch's subject."""

    arrays: Arrays
    given: Part
    answer: Part

    def prepare(self, k: int) -> None:
        self.arrays.prepare(k, self.given, self.answer)

    def keep(self, k: int) -> None:
        self.arrays.keep(k, self.answer)

    def wrong(self) -> str | None:
        return self.arrays.wrong()


def _values(reduction: Reduction, rank: int, turn: int, n: int) -> Array:
    """The elements of a rank in a turn, until they repeat themselves."""
    return whole(reduction, rank, turn, min(n, _PERIOD))


def _tiled(reduction: Reduction, values: Array, n: int) -> Array:
    """So many stored elements of what repeats itself."""
    return np.resize(stored(values, reduction.dtype), n)
