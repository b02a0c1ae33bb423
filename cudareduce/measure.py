"""Rounds: every entrant measured in turn, forward and backward, until there are enough.

Timed is what lies between input in device memory and answers in device memory: writing the identity
where a kernel needs it, and every pass. Copies, allocation and compilation are not.

A *round* measures every entrant forward and backward (A B C, C B A); the unit of replication is the
round, because launches inside one are not independent. A round in which the GPU was throttled is
repeated, and kept if that does not help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

from cudareduce.backend import Launch
from cudareduce.budget import Deadline
from cudareduce.intervals import Interval, interval, noise_pct
from cudareduce.nvml import Conditions, over
from cudareduce.sampling import COLD, MAX_SAMPLES, Method, Sample, Sampler, Timer, sampler
from cudareduce.warmup import warm_up

#: Throttled rounds that are measured again; a card that is throttled all the time must end too.
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """All that was measured of one entrant: a median for each round, figures over all samples.

    A round in which the host was too slow for every sample has no median.
    """

    by_round: tuple[float | None, ...]
    samples: int
    min_us: float
    noise_pct: float | None
    discarded: int
    host_us: float | None = None
    batch: int = 1

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The medians there are."""
        return tuple(us for us in self.by_round if us is not None)

    @property
    def median_us(self) -> float:
        """The median of round medians."""
        return median(self.rounds_us)

    @property
    def interval_us(self) -> Interval | None:
        """An interval that holds the median of rounds with 95 %; None under six rounds."""
        return interval(self.rounds_us)


@dataclass(slots=True)
class Measurement:
    """What is known of entrants after each whole round by one method, and how it came about."""

    method: Method = COLD
    timings: dict[str, Timing] = field(default_factory=dict)
    conditions: list[Conditions] = field(default_factory=list)
    planned: int = 0
    repeated: int = 0
    steady: bool = True
    round_us: float = 0.0

    @property
    def rounds(self) -> int:
        """Whole rounds so far."""
        return len(self.conditions)


@dataclass(slots=True)
class _Collected:
    """Samples of one entrant so far."""

    medians: list[float | None] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    lost: int = 0

    def add(self, samples: list[Sample], lost: int) -> None:
        self.medians.append(median(s.us for s in samples) if samples else None)
        self.samples += samples
        self.lost += lost

    def timing(self, batch: int) -> Timing | None:
        if not self.samples:
            return None
        times = [sample.us for sample in self.samples]
        return Timing(
            tuple(self.medians),
            len(times),
            min(times),
            noise_pct(times),
            self.lost,
            median(sample.host_us for sample in self.samples),
            batch,
        )


def measure(
    timer: Timer,
    entrants: Mapping[str, Launch],
    rounds: int,
    into: Measurement,
    progress: Callable[[], None] = lambda: None,
    *,
    deadline: Deadline | None = None,
    alone: Collection[str] = (),
    most: int = MAX_SAMPLES,
) -> None:
    """Measure entrants against each other by the method of `into`, which holds what is known after
    each whole round. Those `alone` are never batched; `most` bounds the samples of a pass."""
    deadline = deadline or Deadline()
    into.planned = rounds
    warm = warm_up(timer, entrants, deadline)
    into.steady = warm.steady
    if deadline.passed:
        return
    batches = {name: into.method.batch(us) for name, us in warm.costs_us.items()}
    batches |= dict.fromkeys(alone, 1)
    samplers = {
        name: sampler(timer, into.method, run, batches[name], most)
        for name, run in entrants.items()
    }
    collected = {name: _Collected() for name in entrants}
    while into.rounds < rounds and into.round_us < 1e6 * deadline.left_s:
        began = timer.host_us()
        fresh, conditions = _round(timer, samplers, deadline)
        if deadline.passed:
            return  # what is half a round is none
        into.round_us = timer.host_us() - began
        if conditions.throttled and into.repeated < _REPEATS:
            into.repeated += 1
            continue
        into.conditions.append(conditions)
        for name, (samples, lost) in fresh.items():
            collected[name].add(samples, lost)
            timing = collected[name].timing(batches[name])
            if timing is not None:
                into.timings[name] = timing
        progress()


def _round(
    timer: Timer, samplers: Mapping[str, Sampler], deadline: Deadline
) -> tuple[dict[str, tuple[list[Sample], int]], Conditions]:
    """A pass of every entrant forward and one backward, with the state of the GPU after each."""
    fresh: dict[str, tuple[list[Sample], int]] = {name: ([], 0) for name in samplers}
    conditions = []
    for order in (list(samplers), list(samplers)[::-1]):
        for name in order:
            samples, lost = fresh[name]
            more, missed = samplers[name].passed(deadline)
            fresh[name] = (samples + more, lost + missed)
            if deadline.passed:
                break
        conditions.append(timer.conditions())
    return fresh, over(conditions)
