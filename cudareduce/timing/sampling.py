"""Samples: launches timed between two events, from a cold or a warm cache.

A *cold* sample flushes the L2 by reading other data, records an event, enqueues the launch, and
records another event. The read also keeps the GPU busy while the host enqueues: if the first event
has passed before the launch is enqueued, the sample contains host time and is discarded.

A *warm* sample finds the cache as the run before left it. A gate holds the stream while the host
enqueues, so that no host time lies between the events. Short kernels are launched several times
between the events; a cold sample cannot do that, since its second launch would find the input in
the cache.

A launch is faster or slower by its position in the driver's ring of launches. The timer makes the
position random, and a sample of a short kernel is the mean of eight launches, each after a flush.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import fmean, median
from typing import Protocol

from cudareduce.backend import Launch
from cudareduce.budget import Deadline
from cudareduce.intervals import interval
from cudareduce.timing.timer import DeviceTimer, repeated

#: GPU time of one entrant in half a round, and its most launches.
_PASS_US = 5_000.0
MAX_LAUNCHES = 96
#: Least samples for a median.
MIN_SAMPLES = 6
#: Launches whose mean is a sample, for kernels below this time. Single launches of V7 at 2^24
#: float32 take 25 or 26 us on an H200, half of them each: a median would be one or the other.
_CYCLE, _CYCLE_BELOW_US = 8, 250.0
#: A median is stable once half its interval is this share of it. Rounds of one kernel differ by
#: 0.3 % (measured on an H200), so more samples would only measure the round.
_STABLE = 0.002
#: Most samples that a slow host may lose; the backlog is at its longest after four.
_MAX_LOST = 8
#: Most flushes before a sample, for a host that needs time to enqueue many launches.
_MAX_BACKLOG = 16
#: Kernels below this are launched several times between two events, which read 1.28 us by
#: themselves.
BATCH_BELOW_US = 20.0
_BATCH_US = 200.0
#: Launches behind a closed gate must fit the driver's queue (1024 on an H200), or the host waits
#: for a gate that only it can open; a reduction takes up to five.
_MAX_BATCH = 64


class Watch(Protocol):
    """Checks the results of an entrant's timed launches, outside of the timed region."""

    def begin(self) -> None:
        """Called before the samples of half a round."""

    def before(self) -> None:
        """Called before the flush or the closed gate of a sample."""

    def after(self) -> None:
        """Called when the launches of a sample have ended."""

    def end(self) -> None:
        """Called after the samples of half a round."""


@dataclass(frozen=True, slots=True)
class Method:
    """The cache state and the kind of launch of samples."""

    cold: bool = True
    graph: bool = False

    @property
    def label(self) -> str:
        """The record field `timing`."""
        return ("cold" if self.cold else "warm") + (" graph" if self.graph else "")

    def batch(self, cost_us: float) -> int:
        """The number of reductions between two events, for one that takes this long."""
        if self.cold or cost_us >= BATCH_BELOW_US:
            return 1
        return min(_MAX_BATCH, ceil(_BATCH_US / max(cost_us, 1.0)))

    def cycle(self, cost_us: float, batch: int) -> int:
        """The number of timed launches in a sample of a reduction that takes this long."""
        return _CYCLE if batch == 1 and cost_us < _CYCLE_BELOW_US else 1


COLD = Method()


@dataclass(frozen=True, slots=True)
class Sample:
    """The device time of one reduction, and the host time to enqueue it."""

    us: float
    host_us: float


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples one entrant: `launch` enqueues `batch` reductions, a sample is the mean of `cycle`
    launches, and half a round has at most `most`."""

    timer: DeviceTimer
    method: Method
    launch: Launch
    batch: int
    cycle: int = 1
    most: int = MAX_LAUNCHES
    watch: Watch | None = None

    def timed(self, backlog: int = 1) -> Sample | None:
        """Time one launch, after `backlog` flushes if cold; None if the host was too slow.

        Each launch is waited for: with the next flush already enqueued, the second event comes 0.5
        to 0.7 us late (measured on an H200, empty kernel 3.23 against 2.72 us).
        """
        timer, cold = self.timer, self.method.cold
        if self.watch:
            self.watch.before()
        timer.reset_persisting()  # persisting lines would survive the flush
        try:
            if cold:
                for _ in range(backlog):
                    timer.flush()
            else:
                timer.close_gate()
            start = timer.mark()
            began = timer.host_us()
            self.launch()
            host_us = timer.host_us() - began
            late = cold and timer.reached(start)
            end = timer.mark()
        finally:
            if not cold:  # or the next wait for the stream never ends
                timer.open_gate()
        timer.synchronize()
        if self.watch:
            self.watch.after()
        if late:
            return None
        return Sample(timer.elapsed_us(start, end) / self.batch, host_us / self.batch)

    def passed(self, deadline: Deadline) -> tuple[list[Sample], int]:
        """The samples of half a round, until their median is stable or the time is spent, and the
        number of launches that a slow host lost."""
        samples: list[Sample] = []
        cycle: list[Sample] = []
        backlog, launches, lost, spent = 1, 0, 0, 0.0
        if self.watch:
            self.watch.begin()
        if not self.method.cold:
            self.launch()  # the entrant before left other data in the cache
        while spent < _PASS_US and launches < self.most and lost < _MAX_LOST:
            taken = self.timed(backlog)
            if taken is None:
                lost += 1
                backlog = min(2 * backlog, _MAX_BACKLOG)  # give the host more time
                continue
            launches += 1
            spent += taken.us * self.batch
            cycle.append(taken)
            if len(cycle) == self.cycle:
                samples.append(_mean(cycle))
                cycle.clear()
                if stable([sample.us for sample in samples]):
                    break
            if deadline.passed:
                break
        if cycle and not samples:
            samples.append(_mean(cycle))
        if self.watch:
            self.watch.end()
        return samples, lost


def _mean(taken: Sequence[Sample]) -> Sample:
    return Sample(fmean(one.us for one in taken), fmean(one.host_us for one in taken))


def sampler(
    timer: DeviceTimer, method: Method, run: Launch, cost_us: float, most: int, *, alone: bool,
    watch: Watch | None = None,
) -> Sampler:  # fmt: skip
    """A sampler of an entrant that takes `cost_us`; one that is `alone` is never batched."""
    batch = 1 if alone else method.batch(cost_us)
    launch = timer.captured(run, batch) if method.graph else repeated(run, batch)
    return Sampler(timer, method, launch, batch, method.cycle(cost_us, batch), most, watch)


def warm_costs(
    timer: DeviceTimer, entrants: Mapping[str, Launch], deadline: Deadline
) -> Mapping[str, float]:
    """The rough warm time of each entrant in us, which may be a third of the cold one: the least of
    three launches, after one that fills the cache."""
    costs = {}
    for name, run in entrants.items():
        alone = Sampler(timer, Method(cold=False), run, 1)
        run()
        taken = [alone.timed() for _ in range(3)]
        costs[name] = min(sample.us for sample in taken if sample)
        if deadline.passed:
            break
    return costs


def stable(times: Sequence[float]) -> bool:
    """True if half the interval of the median is at most 0.2 % of it."""
    if len(times) < MIN_SAMPLES:
        return False
    low, high = interval(times) or (0.0, inf)
    return (high - low) / 2 <= _STABLE * median(times)
