"""The timed region and how often it is timed: cold samples, in rounds, behind a backlog.

Timed is what lies between input in device memory and answers in device memory: writing the identity
where a kernel needs it, and every pass. Copies, allocation and compilation are not.

A *sample* displaces the L2 by reading, records an event, enqueues the launches, records another.
The read also keeps the GPU busy while the host enqueues; a sample whose first event had already
passed when its last call was made contains host time, so it is discarded and counted. A *round*
measures every entrant forward and backward (A B C, C B A); the unit of replication is the round,
because launches inside one are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median, quantiles
from typing import Any, Protocol

from cudareduce.backend import Launch

#: Fewer rounds give no interval: the extremes of 5 hold the median with 94 % only.
MIN_ROUNDS = 6
CONFIDENCE = 0.95
#: GPU time that one entrant gets in one pass of a round, and the samples it makes of it at most.
_PASS_US = 5_000.0
_MAX_SAMPLES = 21
#: Work before the first round: clocks of an idle H200 rise from 345 to 1980 MHz within this time.
_WARM_UP_US = 300_000.0
#: A pass tries this often the samples it wants, then makes do with those it has.
_RETRIES = 3
#: Reads in front of a sample, at most, for a host that needs time to enqueue many launches.
_MAX_BACKLOG = 16


class Timer(Protocol):
    """What a device must offer to be measured."""

    def displace(self) -> None:
        """Enqueue a read that fills the cache with other data."""

    def mark(self) -> Any:
        """Enqueue an event."""

    def reached(self, event: Any) -> bool:
        """True if the device has passed an event."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two passed events."""

    def synchronize(self) -> None:
        """Wait for all work enqueued."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All that was measured of one entrant: its round medians, and figures over all its samples."""

    rounds_us: tuple[float, ...]
    samples: int
    min_us: float
    noise_pct: float | None
    discarded: int

    @property
    def median_us(self) -> float:
        """The median of round medians."""
        return median(self.rounds_us)

    @property
    def interval_us(self) -> tuple[float, float] | None:
        """An interval that holds the median of rounds with 95 %; None under six rounds."""
        return interval(self.rounds_us)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A distribution-free interval for a median, from the order of the values.

    The k-th smallest and k-th largest of n hold the median with 1 - 2 P(Binomial(n, 1/2) < k); the
    largest k that keeps 95 % is taken: the 2nd and the 8th of 9 (96 %).
    """
    n = len(values)
    tail, k = 0.0, 0
    while n and 1 - 2 * (tail + comb(n, k) / 2**n) >= CONFIDENCE:
        tail += comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def measure(
    timer: Timer,
    entrants: Mapping[str, Launch],
    rounds: int,
    into: dict[str, Timing],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Measure entrants against each other; `into` holds what is known after each whole round."""
    counts = _warm_up(timer, entrants)
    samples: dict[str, list[float]] = {name: [] for name in entrants}
    medians: dict[str, list[float]] = {name: [] for name in entrants}
    discarded = dict.fromkeys(entrants, 0)
    for _ in range(rounds):
        fresh: dict[str, list[float]] = {name: [] for name in entrants}
        for name in (*entrants, *reversed(list(entrants))):
            times, lost = _pass(timer, entrants[name], counts[name])
            fresh[name] += times
            discarded[name] += lost
        for name, times in fresh.items():
            samples[name] += times
            if times:
                medians[name].append(median(times))
        for name in entrants:
            if medians[name]:
                into[name] = Timing(
                    tuple(medians[name]),
                    len(samples[name]),
                    min(samples[name]),
                    noise_pct(samples[name]),
                    discarded[name],
                )
        progress()


def noise_pct(samples: Sequence[float]) -> float | None:
    """The interquartile range of the samples in per cent of their median."""
    if len(samples) < 4:
        return None
    low, middle, high = quantiles(samples, n=4)
    return 100 * (high - low) / middle if middle else None


def _warm_up(timer: Timer, entrants: Mapping[str, Launch]) -> dict[str, int]:
    """Run every entrant until clocks are up; how many samples each gets follows from its time."""
    counts: dict[str, int] = {}
    spent = 0.0
    while spent < _WARM_UP_US:
        before = timer.mark()
        for name, run in entrants.items():
            timer.displace()
            start = timer.mark()
            run()
            end = timer.mark()
            timer.synchronize()
            cost = timer.elapsed_us(start, end)
            counts[name] = max(1, min(_MAX_SAMPLES, int(_PASS_US / max(cost, 1.0))))
        after = timer.mark()
        timer.synchronize()
        spent += max(timer.elapsed_us(before, after), 1.0)
    return counts


def _pass(timer: Timer, run: Launch, count: int) -> tuple[list[float], int]:
    """`count` samples of one entrant; those with host time in them are left out and counted.

    Each sample is waited for: with the next flush already queued behind it, the second event comes
    0.5 to 0.7 us late (measured on an H200, empty kernel 3.23 against 2.72 us).
    """
    times: list[float] = []
    backlog, tries = 1, _RETRIES * count
    while len(times) < count and tries:
        tries -= 1
        for _ in range(backlog):
            timer.displace()
        start = timer.mark()
        run()
        late = timer.reached(start)
        end = timer.mark()
        timer.synchronize()
        if late:
            backlog = min(2 * backlog, _MAX_BACKLOG)  # give the host more time
        else:
            times.append(timer.elapsed_us(start, end))
    return times, _RETRIES * count - tries - len(times)
