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

from cudareduce.errors import EnvironmentProblem
from cudareduce.intervals import Interval, interval
from cudareduce.record import Record

#: Two parameters leave nothing to judge a fit by with fewer sizes.
MIN_SIZES = 3


@dataclass(frozen=True, slots=True)
class Model:
    """One kernel's line over one range; a low and a high are None under six rounds.

    `half_n` is the number of elements at which half of `gb_s` is reached. Where times do not grow
    over the range, bandwidth does not show and both are None. `misfit_pct` is how far the line lies
    off the worst of the measured times, which is that at `misfit_n`.
    """

    kernel: str
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
    timing: str
    n: float
    low_n: int
    high_n: int


Line = Sequence[Record]


def lines(records: Sequence[Record]) -> list[Line]:
    """The timed records of each kernel and kind of timing, by size, where there are enough."""

    def key(r: Record) -> tuple[str, ...]:
        return r.op, r.dtype, r.acc, r.kernel, r.name or "", r.timing

    first = {key(r): k for k, r in reversed(list(enumerate(records)))}
    timed = [r for r in records if r.time_us is not None and r.n]
    ordered = sorted(timed, key=lambda r: (first[key(r)], r.n))
    found = [list(line) for _, line in groupby(ordered, key)]
    return [line for line in found if len(line) >= MIN_SIZES]


def fit(line: Line) -> Model:
    """Fit one kernel's times: once to the medians, and once to each round for the interval."""
    volumes = [float(r.bytes or 0) for r in line]
    times = [r.time_us or 0.0 for r in line]
    launch, slope = _fitted(volumes, times)
    whole = min(len(r.rounds_us) for r in line)
    by_round = [_fitted(volumes, [r.rounds_us[k] for r in line]) for k in range(whole)]
    element = line[-1].bytes / line[-1].n if line[-1].bytes else 1.0

    def gb_s(one: tuple[float, float]) -> float:
        return 1e-3 / one[1] if one[1] else inf

    def half_n(one: tuple[float, float]) -> float:
        return one[0] / one[1] / element if one[1] else inf

    visible = slope > 0 and all(s > 0 for _, s in by_round)
    low, high = _interval([a for a, _ in by_round])
    gb_low, gb_high = _interval([gb_s(one) for one in by_round]) if visible else (None, None)
    half_low, half_high = _interval([half_n(one) for one in by_round]) if visible else (None, None)
    misfits = [
        (abs(launch + slope * volume - us) / us, r.n)
        for volume, us, r in zip(volumes, times, line, strict=True)
    ]
    misfit, where = max(misfits)
    return Model(
        line[0].name or line[0].kernel, line[0].timing, len(line),
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


def crossovers(found: Sequence[Line]) -> Iterator[Crossover]:
    """Where one kernel overtakes another, by size; only what the rounds agree on counts."""
    for one, other in combinations(found, 2):
        if one[0].timing == other[0].timing and one[0].op == other[0].op:
            yield from _between(one, other)


def _between(one: Line, other: Line) -> Iterator[Crossover]:
    sides = []
    others = {r.n: r for r in other}
    for r in one:
        if r.n in others:
            low, high, ratio = _ratio(r, others[r.n])
            if low > 1 or high < 1:
                sides.append((r.n, log2(ratio)))
    for (n, before), (m, after) in pairwise(sides):
        if before * after < 0:
            share = before / (before - after)
            where = 2 ** (log2(n) + share * (log2(m) - log2(n)))
            names = [line[0].name or line[0].kernel for line in (one, other)]
            faster, slower = names if after < 0 else names[::-1]
            yield Crossover(faster, slower, one[0].timing, where, n, m)


def _ratio(one: Record, other: Record) -> tuple[float, float, float]:
    """How many times slower the one is: interval and median over rounds."""
    ratios = [a / b for a, b in zip(one.rounds_us, other.rounds_us, strict=False)]
    low, high = interval(ratios) or (min(ratios), max(ratios))
    return low, high, median(ratios)
