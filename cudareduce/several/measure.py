"""Engines in turn, round after round, on arrays of each size, and what the links carry beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from cudareduce.backend import Program, TimedBackend
from cudareduce.several.arrays import Arrays
from cudareduce.several.engines import Stage, StreamEngine, in_windows
from cudareduce.several.exchange import helper, vector_of
from cudareduce.several.stopwatch import Batch, Enqueue, Entrant, Stopwatch

#: Rounds that are not counted: clocks rise, pages are mapped.
UNCOUNTED = 2
#: Launch shapes of what the links carry, in blocks of 512 threads for each SM, and the fewest bytes
#: that tell it.
_LINK_BLOCKS, _LINK_BYTES = 4, 2**24


@dataclass(frozen=True, slots=True)
class Measured:
    """An engine on arrays of `n` elements: a batch of samples for each round."""

    engine: str
    n: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """What each GPU's link carried both ways at once, in GB/s one way, in the rounds of the largest
    size; None where that was too small to tell."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None


def measure(
    stage: Stage, backend: TimedBackend, engines: Sequence[StreamEngine], sizes: Sequence[int],
    most_mail: int, rounds: int, calls: Iterator[int], progress: Callable[[], None],
) -> tuple[list[Measured], Links]:  # fmt: skip
    """All engines at all sizes; those of mail where the array has at most `most_mail` elements. All
    ranks do so together. Raises RankLost, OutOfMemory and KernelFault."""
    align, both = aligned(stage), _links(stage)
    found, links = [], Links()
    for n in sizes:
        some = [e for e in engines if not ((e.mail and n > most_mail) or e.why_not(n))]
        for engine in some:
            if engine.version:  # what a library makes ready at its first call may wait for a gate
                engine.run(n, next(calls), 0)
        last = n == max(sizes) and n * stage.reduction.dtype.size >= _LINK_BYTES
        arrays = Arrays(stage, backend, n)
        entrants = {e.name: Entrant(partial(e.enqueue, n), arrays.within(e.windows)) for e in some}
        here = arrays.within(stage.windows)
        ways = {program.entry: Entrant(_link(stage, program, n), here, judged=False)
                for program in both if last}  # fmt: skip
        watch = Stopwatch(stage, backend, align)
        try:
            taken = in_rounds(watch, entrants | ways, rounds, calls, progress)
        finally:
            arrays.close()
        found += [Measured(name, n, taken[name]) for name in entrants]
        if ways:
            nbytes = n * stage.reduction.dtype.size
            links = Links(*(_rate(nbytes, taken[way]) for way in ("link_read", "link_write")))
    return found, links


def aligned(stage: Stage) -> Program:
    """What all GPUs leave at one time, compiled, with the windows set."""
    return _helpers(stage, ("align.cu", "align"))[0]


def _links(stage: Stage) -> list[Program]:
    """What reads and writes over the links."""
    return _helpers(stage, ("links.cu", "link_read"), ("links.cu", "link_write"))


def _helpers(stage: Stage, *wanted: tuple[str, str]) -> list[Program]:
    ranks = stage.meeting.size
    sources = [helper(file, entry, stage.reduction, ranks) for file, entry in wanted]
    return in_windows(stage, stage.backend.build(sources))


def _link(stage: Stage, program: Program, n: int) -> Enqueue:
    parts, grid = stage.windows.layout, _LINK_BLOCKS * stage.backend.limits().sm_count
    places = [parts.input, parts.output, -(-n // vector_of(stage.reduction))]
    launch = stage.backend.launcher(program, grid, 512, places)
    return lambda _: launch


def in_rounds(
    watch: Stopwatch, entrants: dict[str, Entrant], rounds: int, calls: Iterator[int],
    progress: Callable[[], None],
) -> dict[str, tuple[Batch, ...]]:  # fmt: skip
    """A batch of each entrant for each round, every other round backward."""
    taken: dict[str, list[Batch]] = {name: [] for name in entrants}
    for number in range(-UNCOUNTED, rounds):
        for name in list(entrants)[:: -1 if number % 2 else 1]:
            batch = watch.batch(entrants[name], calls)
            if number >= 0 or batch.wrong:
                taken[name].append(batch)
        progress()
    return {name: tuple(some) for name, some in taken.items()}


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None
