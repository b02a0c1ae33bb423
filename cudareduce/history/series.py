"""Runs as series: each kernel and problem over time, its levels, and what has become of it.

Pure. Times of other cards of the same model become those of the last one by what a read-only kernel
reaches on each: the middle of all its runs there, lest each run's own ceiling add its noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, log1p
from statistics import median
from typing import Literal

from cudareduce.gate.baseline import Identity, identity, problem
from cudareduce.history.entries import Entry
from cudareduce.history.steps import HOLDS, steps
from cudareduce.results.record import Record

Verdict = Literal["SLOWER", "MACHINE", "SAME"]
#: How far a level may lie above the best one, unless it is said otherwise.
THRESHOLD = 0.02


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a series; `us` is as on the card of the last run."""

    entry: Entry
    record: Record
    us: float


@dataclass(frozen=True, slots=True)
class Level:
    """Runs from `first` up to and without `end` that took alike: their middle, in us."""

    first: int
    end: int
    us: float


@dataclass(frozen=True, slots=True)
class Series:
    """A kernel on a problem, in the order of time; `cards` is on how many it ran, `left_out` how
    many runs tell too little to be compared across cards."""

    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    cards: int = 1
    left_out: int = 0

    @property
    def record(self) -> Record:
        """What says which kernel and problem it is: the last run's."""
        return self.points[-1].record

    @property
    def last(self) -> Level:
        """Where it is now."""
        return self.levels[-1]

    @property
    def best(self) -> Level:
        """The lowest of its levels that held."""
        held = [level for level in self.levels if level.end - level.first >= HOLDS]
        return min(held or self.levels, key=lambda level: level.us)

    @property
    def change(self) -> float:
        """Now over the best, as a ratio."""
        return self.last.us / self.best.us

    def verdict(self, threshold: float) -> Verdict:
        """SLOWER where the last level lies further above the best one than the threshold, a share;
        MACHINE where its machine code is one that was as quick as the best."""
        if log(self.change) <= log1p(threshold):
            return "SAME"
        codes = {_code(point.record) for point in self.points[self.best.first : self.best.end]}
        return "MACHINE" if _code(self.record) in codes - {None} else "SLOWER"


def _code(record: Record) -> tuple[object, ...] | None:
    """What ran: machine code, and how it is launched; None if that is not known."""
    if record.cubin_sha is None:
        return None
    return record.cubin_sha, record.grid, record.passes, record.block, record.items


def all_series(entries: Sequence[Entry]) -> list[Series]:
    """The series that one kind of machine has runs of, in the order in which they came up."""
    found: dict[Identity, list[tuple[Entry, Record]]] = {}
    for entry in entries:
        for key, record in _keyed(entry.records):
            found.setdefault(key, []).append((entry, record))
    made = (_series(some) for some in found.values())
    return [series for series in made if series.points]


def _keyed(records: Sequence[Record]) -> Iterator[tuple[Identity, Record]]:
    """By problem, so that another launch shape in a header goes on with the series; where a run has
    several shapes of a kernel, by those too."""
    counts = Counter(map(problem, records))
    for record in records:
        key = problem(record)
        yield (identity(record) if counts[key] > 1 else key), record


def _series(runs: Sequence[tuple[Entry, Record]]) -> Series:
    ceilings = _ceilings(runs)
    here = runs[-1][0].device.uuid
    points = []
    for entry, record in runs:
        assert record.time_us is not None
        card = entry.device.uuid
        if card == here:
            points.append(Point(entry, record, record.time_us))
        elif card in ceilings and here in ceilings:
            points.append(Point(entry, record, record.time_us * ceilings[card] / ceilings[here]))
    cards = len({point.entry.device.uuid for point in points})
    us = [point.us for point in points]
    return Series(tuple(points), tuple(_levels(us)), cards, len(runs) - len(points))


def _ceilings(runs: Iterable[tuple[Entry, Record]]) -> Mapping[str | None, float]:
    """What bounds each card at this size, in GB/s: the middle of its runs."""
    reached: dict[str | None, list[float]] = {}
    for entry, record in runs:
        if record.bound_gb_s:
            reached.setdefault(entry.device.uuid, []).append(record.bound_gb_s)
    return {card: median(some) for card, some in reached.items()}


def _levels(us: Sequence[float]) -> Iterator[Level]:
    begins = [0, *steps([log(time) for time in us])]
    for first, end in zip(begins, [*begins[1:], len(us)], strict=True):
        yield Level(first, end, median(us[first:end]))
