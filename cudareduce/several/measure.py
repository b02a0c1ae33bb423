"""Engines in turn, round after round, on arrays of each size, and what the links carry beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from cudareduce.backend import TimedBackend
from cudareduce.several.arrays import Arrays
from cudareduce.several.carried import aligning, carrying, helpers, judging
from cudareduce.several.engines import Stage, StreamEngine
from cudareduce.several.stopwatch import Batch, Entrant, Stopwatch

#: Rounds that are not counted: clocks rise, pages are mapped.
UNCOUNTED = 2
#: The fewest bytes that tell what links carry.
_LINK_BYTES = 2**24


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
    align, judge = aligning(stage), judging(stage)
    both = helpers(stage, "links.cu", "link_read", "link_write")
    found, links = [], Links()
    for n in sizes:
        some = [e for e in engines if not ((e.mail and n > most_mail) or e.why_not(n))]
        for engine in some:  # what is made ready at a first call may wait for a gate
            engine.run(n, next(calls), 0)
        nbytes = n * stage.reduction.dtype.size
        last = n == max(sizes) and nbytes >= _LINK_BYTES
        arrays = Arrays(stage, backend, n, judge)
        entrants = {e.name: Entrant(partial(e.enqueue, n), arrays.within(e.windows)) for e in some}
        here = arrays.within(stage.windows)
        ways = {program.entry: Entrant(carrying(stage, program, nbytes), here, unjudged)
                for program in both if last}  # fmt: skip
        watch = Stopwatch(stage, backend, align)
        try:
            taken = in_turn(watch, entrants | ways, rounds, calls, progress)
        finally:
            arrays.close()
        found += [Measured(name, n, taken[name]) for name in entrants]
        if ways:
            links = Links(*(_rate(nbytes, taken[way]) for way in ("link_read", "link_write")))
    return found, links


def unjudged() -> None:
    """Nothing: rates beside are a measure, and no answer."""


def in_turn(
    watch: Stopwatch, entrants: dict[str, Entrant], rounds: int, calls: Iterator[int],
    progress: Callable[[], None],
) -> dict[str, tuple[Batch, ...]]:  # fmt: skip
    """A batch of each entrant for each round, every other round backward. A judge of its own looks
    at the last one."""
    taken: dict[str, list[Batch]] = {name: [] for name in entrants}
    for number in range(-UNCOUNTED, rounds):
        for name in list(entrants)[:: -1 if number % 2 else 1]:
            entrant = entrants[name]
            if entrant.judge and number < rounds - 1:
                entrant = replace(entrant, judge=unjudged)
            batch = watch.batch(entrant, calls)
            if number >= 0 or batch.wrong:
                taken[name].append(batch)
        progress()
    return {name: tuple(some) for name, some in taken.items()}


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None
