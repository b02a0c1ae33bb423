"""Latency and bandwidth: T = a + V / b, fitted to times over a range of sizes.

`b` is the bandwidth that a reduction tends to, `a` what it takes beside that; at V = a b bytes it
reaches half of b (Hockney's n_1/2). A line holds while the whole GPU streams: on an H200 the times
of V6 lie within 0.2 % of one from 2^24 float32 on, and below run into a floor of 4 to 7 us, less
than a is. So the line is that of the larger sizes, and the floor is what was measured. Pure: from
records to figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from math import log2
from statistics import median
from typing import NamedTuple

from cudareduce.intervals import interval, paired
from cudareduce.results.record import Record

#: Two parameters leave nothing to judge a fit by with fewer sizes.
MIN_SIZES = 3
#: Times lie this close to a line that holds for them.
HOLDS = 0.01
#: One kernel is faster than another if the whole interval of their ratio says so by this much:
#: comparisons of a kernel with itself reach 1 % (measured on an H200).
_SURELY = 0.02


@dataclass(frozen=True, slots=True)
class Model:
    """One kernel's line; a low and a high are None under six rounds.

    `floor_us` is the shortest time of the range. The line is that of the `sizes` from `from_n`
    elements on, the most that all lie within HOLDS of one, else the largest MIN_SIZES;
    `misfit_pct` is how far off the worst of those is, which is that at `misfit_n`. `a_us` is 0
    where times grow faster than a line does. `half_n` is the number of elements at which half of
    `gb_s` is reached. Where times do not grow bandwidth does not show, and both are None. An
    interval holds what other rounds would give, and what the line would be without any one size.
    """

    kernel: str
    op: str
    dtype: str
    acc: str
    timing: str
    floor_us: float
    floor_us_low: float | None
    floor_us_high: float | None
    from_n: int
    sizes: int
    a_us: float
    a_us_low: float | None
    a_us_high: float | None
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
    """From about `n` elements on one kernel is the faster: surely at `high_n`, while it was surely
    the slower at `low_n`, both by 2 % at least."""

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
_Line = tuple[float, float]  # a in us, 1/b in us a byte
_Figure = tuple[float | None, float | None, float | None]  # with its interval


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
    by_kernel = [list(line) for _, line in groupby(ordered, key)]
    return [line for line in by_kernel if len(line) >= MIN_SIZES]


def _problem(record: Record) -> tuple[str, str, str, str]:
    """What two times must have in common, besides the size, to be compared."""
    return record.reduced, record.dtype, record.acc, record.timing


def fit(line: Line) -> Model:
    """Fit one kernel's times, at MIN_SIZES sizes or more: to the medians, and for the intervals to
    each round, and to all sizes but one."""
    least = min(line, key=lambda r: r.time_us or 0.0)
    part, misfit, where = _straight(line)
    volumes, times = _points(part)
    a, slope = _fitted(volumes, times)
    rounds = zip(*(r.rounds_us for r in part), strict=False)
    by_round = [_fitted(volumes, [us for us in one if us]) for one in rounds if all(one)]
    without = [
        _fitted([*volumes[:k], *volumes[k + 1 :]], [*times[:k], *times[k + 1 :]])
        for k in range(len(part))
    ]
    element = part[-1].bytes / elements(part[-1]) if part[-1].bytes else 1.0
    visible = all(s > 0 for _, s in ((a, slope), *by_round, *without))

    def figure(of: Callable[[_Line], float], shown: bool = True) -> _Figure:
        if not shown:
            return None, None, None
        ends, others = interval([of(one) for one in by_round]), [of(one) for one in without]
        low, high = (min(*ends, *others), max(*ends, *others)) if ends else (None, None)
        return of((a, slope)), low, high

    rest, rate = figure(lambda one: one[0]), figure(lambda one: 1e-3 / one[1], visible)
    return Model(
        line[0].name or line[0].kernel, *_problem(line[0]),
        least.time_us or 0.0, least.time_us_low, least.time_us_high, elements(part[0]), len(part),
        a, *rest[1:], *rate, *figure(lambda one: one[0] / one[1] / element, visible),
        100 * misfit, where,
    )  # fmt: skip


def _straight(line: Line) -> tuple[Line, float, int]:
    """The most of the larger sizes that lie on one line, else the least that make one; how far off
    the worst of them is, and at how many elements."""
    for start in range(len(line) - MIN_SIZES + 1):
        part = line[start:]
        volumes, times = _points(part)
        a, slope = _fitted(volumes, times)
        misfit, where = max(
            (abs(a + slope * volume - us) / us, elements(r))
            for volume, us, r in zip(volumes, times, part, strict=True)
        )
        if misfit <= HOLDS:
            break
    return part, misfit, where


def _points(line: Line) -> tuple[list[float], list[float]]:
    """Bytes and microseconds of each size."""
    return [float(r.bytes or 0) for r in line], [r.time_us or 0.0 for r in line]


def _fitted(volumes: Sequence[float], times: Sequence[float]) -> _Line:
    """The line, neither part negative, that makes the relative errors least: times of a sweep span
    orders of magnitude, and the short ones must count as well."""
    weights = [1 / us for us in times]
    slopes = [volume * weight for volume, weight in zip(volumes, weights, strict=True)]
    ww, ws, ss = _dot(weights, weights), _dot(weights, slopes), _dot(slopes, slopes)
    w, s = sum(weights), sum(slopes)
    determinant = ww * ss - ws * ws
    if determinant > 1e-12 * ww * ss:
        launch, slope = (w * ss - s * ws) / determinant, (s * ww - w * ws) / determinant
        if launch >= 0 and slope >= 0:
            return launch, slope
    # One of the two is zero: the one whose removal leaves the smaller error.
    return (0.0, s / ss) if ss and s * s / ss > w * w / ww else (w / ww, 0.0)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def pairs(all_lines: Sequence[Line]) -> list[tuple[Line, Line]]:
    """The lines that can be compared, two at a time."""
    return [
        (one, other)
        for one, other in combinations(all_lines, 2)
        if _problem(one[0]) == _problem(other[0])
    ]


def crossovers(all_lines: Sequence[Line]) -> Iterator[Crossover]:
    """Where one kernel overtakes another, by size; only what the rounds agree on counts."""
    for one, other in pairs(all_lines):
        yield from _between(one, other)


def undecided(all_lines: Sequence[Line]) -> bool:
    """Whether there are two times of one size whose ratio has no interval."""
    return any(
        _ratio(r, s) is None
        for one, other in pairs(all_lines)
        for r, s in _at_same_size(one, other)
    )


def _at_same_size(one: Line, other: Line) -> list[tuple[Record, Record]]:
    others = {elements(r): r for r in other}
    return [(r, others[elements(r)]) for r in one if elements(r) in others]


def _between(one: Line, other: Line) -> Iterator[Crossover]:
    sides = []
    for r, s in _at_same_size(one, other):
        ratio = _ratio(r, s)
        if ratio and (ratio.low > 1 + _SURELY or ratio.high < 1 / (1 + _SURELY)):
            sides.append((elements(r), log2(ratio.middle)))
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
    ratios = paired(one.rounds_us, other.rounds_us)
    ends = interval(ratios) if len(one.rounds_us) == len(other.rounds_us) else None
    return _Ratio(*ends, median(ratios)) if ends else None
