"""Arrays that are timed: inputs take turns, outputs are cleared, and answers are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cudareduce.backend import TimedBackend
from cudareduce.problem.operators import Reduction
from cudareduce.several.elements import Array, expected, share, stored, whole
from cudareduce.several.engines import Stage
from cudareduce.several.stopwatch import SAMPLES
from cudareduce.several.windows import Part, Windows

#: Inputs that take turns, so that an answer of the call before is not the answer of this one.
TURNS = 2
#: Elements after which an input repeats itself: a prime, so no share begins where it does.
_PERIOD = 1_048_583
#: Answers are kept of all samples where they fit into this, in bytes, else of the last one alone.
_KEPT_BYTES = 2**26


class Arrays:
    """What arrays of one size hold, and their answers. Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int) -> None:
        self._stage, self._backend, self._n = stage, backend, n
        reduction, ranks, rank = stage.reduction, stage.meeting.size, stage.meeting.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self._mine = share(stage.collective, reduction, rank, ranks, n)
        self._right = [_tiled(reduction, expected(reduction, values), n)[self._mine]
                       for values in turns]  # fmt: skip
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        self._nbytes = n * reduction.dtype.size
        kept = SAMPLES if SAMPLES * self._nbytes <= _KEPT_BYTES else 1
        self._kept = [backend.allocate(self._nbytes) for _ in range(kept)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._given, *self._kept)

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
        """Enqueue what keeps its answer."""
        if k >= SAMPLES - len(self._kept):
            self._backend.overwrite(self._kept[k - SAMPLES], 0, answer)

    def wrong(self) -> str | None:
        """Why an answer that was kept is wrong, if one is."""
        dtype, mine = self._stage.reduction.dtype, self._mine
        for k, kept in enumerate(self._kept, SAMPLES - len(self._kept)):
            got = self._backend.download(kept, dtype.storage, self._n)[mine]
            off = np.flatnonzero(got != self._right[k % TURNS])
            if len(off):
                return (
                    f"rank {self._stage.meeting.rank}, n = {self._n}, sample {k + 1}: element "
                    f"{mine.start + off[0]} is wrong, and {len(off) - 1} more"
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
