"""Latency and bandwidth: T = a + V / b, fitted to times over a range of sizes.

`a` is what a reduction takes however little it reads (the launch floor), `b` the bandwidth that it
tends to; at V = a b bytes it reaches half of that. Pure: from records to figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from math import inf, log2
from statistics import median
from typing import NamedTuple

from cudareduce.errors import EnvironmentProblem
from cudareduce.intervals import Interval, interval
from cudareduce.record import Record

#: Two parameters leave nothing to judge a fit by with fewer sizes.
MIN_SIZES = 3


@dataclass(frozen=True, slots=True)
class Model:
    """One kernel's line over one range; a low and a high are None under six rounds.

    `launch_us` is 0 where times grow faster than a line does: no floor shows. `half_n` is the
    number of elements at which half of `gb_s` is reached. Where times do not grow over the range,
    bandwidth does not show and both are None. `misfit_pct` is how far the line lies off the worst
    of the measured times, which is that at `misfit_n` elements.
    """

    kernel: str
    op: str
    dtype: str
    acc: str
    timing: str
    sizes: int
    launch_us: float
    launch_us_low: float | None
    launch_us_high: float | None
    gb_s: float | None
    gb_s_low: float | None
    gb_s_high: float | None
    half_n: float | None
    half_n_low: float | None
    half_n_high: float | None
    misfit_pct: float
    misfit_n: int


@dataclass(frozen=True, slots=True)
class Crossover:
    """From about `n` elements on, and surely from `high_n`, one kernel is the faster; it was surely
    the slower up to `low_n`."""

    faster: str
    slower: str
    op: str
    dtype: str
    acc: str
    timing: str
    n: float
    low_n: int
    high_n: int


Line = Sequence[Record]


def elements(record: Record) -> int:
    """The size of a problem: a long array may be many rows to one kernel and one to another."""
    return record.n * record.rows


def lines(records: Sequence[Record]) -> list[Line]:
    """The timed records of each kernel and kind of timing, by size, where there are enough."""

    def key(r: Record) -> tuple[str, ...]:
        return *_problem(r), r.kernel, r.name or ""

    first = {key(r): k for k, r in reversed(list(enumerate(records)))}
    timed = [r for r in records if r.time_us is not None and elements(r)]
    ordered = sorted(timed, key=lambda r: (first[key(r)], elements(r)))
    found = [list(line) for _, line in groupby(ordered, key)]
    return [line for line in found if len(line) >= MIN_SIZES]


def _problem(record: Record) -> tuple[str, str, str, str]:
    """What two times must have in common, besides the size, to be compared."""
    return record.op, record.dtype, record.acc, record.timing


def fit(line: Line) -> Model:
    """Fit one kernel's times: once to the medians, and once to each round for the interval."""
    volumes = [float(r.bytes or 0) for r in line]
    times = [r.time_us or 0.0 for r in line]
    launch, slope = _fitted(volumes, times)
    whole = min(len(r.rounds_us) for r in line)
    by_round = [_fitted(volumes, [r.rounds_us[k] for r in line]) for k in range(whole)]
    element = line[-1].bytes / elements(line[-1]) if line[-1].bytes else 1.0

    def gb_s(one: tuple[float, float]) -> float:
        return 1e-3 / one[1] if one[1] else inf

    def half_n(one: tuple[float, float]) -> float:
        return one[0] / one[1] / element if one[1] else inf

    visible = slope > 0 and all(s > 0 for _, s in by_round)
    low, high = _interval([a for a, _ in by_round])
    gb_low, gb_high = _interval([gb_s(one) for one in by_round]) if visible else (None, None)
    half_low, half_high = _interval([half_n(one) for one in by_round]) if visible else (None, None)
    misfits = [
        (abs(launch + slope * volume - us) / us, elements(r))
        for volume, us, r in zip(volumes, times, line, strict=True)
    ]
    misfit, where = max(misfits)
    return Model(
        line[0].name or line[0].kernel, *_problem(line[0]), len(line),
        launch, low, high,
        gb_s((launch, slope)) if visible else None, gb_low, gb_high,
        half_n((launch, slope)) if visible else None, half_low, half_high,
        100 * misfit, where,
    )  # fmt: skip


def _fitted(volumes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """a in us and 1/b in us a byte, neither negative, that make the relative errors least: times of
    a sweep span five orders of magnitude, and the short ones must count as well."""
    try:
        from scipy.optimize import nnls
    except ModuleNotFoundError:
        raise EnvironmentProblem("the fit of sweep needs SciPy: pip install scipy") from None
    largest = max(volumes)  # columns of like size: the solver is not told of units
    rows = [[1 / us, volume / largest / us] for volume, us in zip(volumes, times, strict=True)]
    (launch, slope), _ = nnls(rows, [1.0] * len(rows))
    return float(launch), float(slope) / largest


def _interval(values: Sequence[float]) -> Interval | tuple[None, None]:
    return interval(values) or (None, None)


def pairs(found: Sequence[Line]) -> list[tuple[Line, Line]]:
    """The lines that can be compared, two at a time."""
    return [
        (one, other)
        for one, other in combinations(found, 2)
        if _problem(one[0]) == _problem(other[0])
    ]


def crossovers(found: Sequence[Line]) -> Iterator[Crossover]:
    """Where one kernel overtakes another, by size; only what the rounds agree on counts."""
    for one, other in pairs(found):
        yield from _between(one, other)


def undecided(found: Sequence[Line]) -> bool:
    """Whether there are two times of one size whose ratio has no interval."""
    return any(
        _ratio(r, s) is None for one, other in pairs(found) for r, s in _at_same_size(one, other)
    )


def _at_same_size(one: Line, other: Line) -> list[tuple[Record, Record]]:
    others = {elements(r): r for r in other}
    return [(r, others[elements(r)]) for r in one if elements(r) in others]


def _between(one: Line, other: Line) -> Iterator[Crossover]:
    sides = []
    for r, s in _at_same_size(one, other):
        found = _ratio(r, s)
        if found and (found.low > 1 or found.high < 1):
            sides.append((elements(r), log2(found.middle)))
    for (n, before), (m, after) in pairwise(sides):
        if before * after < 0:
            share = before / (before - after)
            where = 2 ** (log2(n) + share * (log2(m) - log2(n)))
            names = [line[0].name or line[0].kernel for line in (one, other)]
            faster, slower = names if after < 0 else names[::-1]
            yield Crossover(faster, slower, *_problem(one[0]), where, n, m)


class _Ratio(NamedTuple):
    """How many times slower one is than another: interval and median over rounds."""

    low: float
    high: float
    middle: float


def _ratio(one: Record, other: Record) -> _Ratio | None:
    """None where rounds are too few for an interval, or cannot be told which is which."""
    if len(one.rounds_us) != len(other.rounds_us):
        return None
    ratios = [a / b for a, b in zip(one.rounds_us, other.rounds_us, strict=True)]
    found = interval(ratios)
    return _Ratio(*found, median(ratios)) if found else None
