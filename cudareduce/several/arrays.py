"""Arrays that are timed: inputs take turns, outputs are cleared, and answers are kept."""

from __future__ import annotations

import numpy as np

from cudareduce.backend import TimedBackend
from cudareduce.problem.operators import Reduction
from cudareduce.several.elements import Array, expected, share, stored, whole
from cudareduce.several.engines import Stage
from cudareduce.several.stopwatch import SAMPLES

#: Inputs that take turns, so that an answer of the call before is not the answer of this one.
TURNS = 2
#: Elements after which an input repeats itself: a prime, so no share begins where it does.
_PERIOD = 1_048_583
#: Answers are kept of all samples where they fit into this, in bytes, else of the last one alone.
_KEPT_BYTES = 2**26


class Arrays:
    """The arrays of one size, as a Stopwatch's subject. Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int) -> None:
        self._stage, self._backend, self._n = stage, backend, n
        reduction, ranks, rank = stage.reduction, stage.meeting.size, stage.meeting.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self._mine = share(stage.collective, reduction, rank, ranks, n)
        self._right = [_tiled(reduction, expected(reduction, values), n)[self._mine]
                       for values in turns]  # fmt: skip
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        nbytes = n * reduction.dtype.size
        self._input = stage.windows.part(stage.windows.layout.input, nbytes)
        self._answer = stage.windows.part(stage.windows.layout.output, nbytes)
        kept = SAMPLES if SAMPLES * nbytes <= _KEPT_BYTES else 1
        self._kept = [backend.allocate(nbytes) for _ in range(kept)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._given, *self._kept)

    def prepare(self, k: int) -> None:
        self._backend.overwrite(self._input, 0, self._given[k % TURNS])
        self._backend.poison(self._answer)

    def keep(self, k: int) -> None:
        if k >= SAMPLES - len(self._kept):
            self._backend.overwrite(self._kept[k - SAMPLES], 0, self._answer)

    def wrong(self) -> str | None:
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


def _values(reduction: Reduction, rank: int, turn: int, n: int) -> Array:
    """The elements of a rank in a turn, until they repeat themselves."""
    return whole(reduction, rank, turn, min(n, _PERIOD))


def _tiled(reduction: Reduction, values: Array, n: int) -> Array:
    """So many stored elements of what repeats itself."""
    return np.resize(stored(values, reduction.dtype), n)
