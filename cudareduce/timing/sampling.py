"""Samples: launches timed between two events, from a cold or a warm cache.

A *cold* sample flushes the L2 by reading other data, then enqueues an event, the launch, and
another event. The read keeps the GPU busy while the host enqueues. If the GPU reaches the first
event before the launch is enqueued, the sample contains host time and is discarded.

A *warm* sample uses the cache as the previous launch left it. A gate holds the stream while the
host enqueues, so that the events enclose no host time. Short kernels are launched several times
between the events. In a cold sample the second launch would find the input in the cache.

The time of a launch depends on its position in the driver's ring of launches. The timer randomizes
the position, and a sample of a short kernel is the mean of eight launches, each after a flush.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import fmean, median
from typing import Protocol

from cudareduce.backends.protocol import Launch
from cudareduce.budget import Deadline
from cudareduce.intervals import interval
from cudareduce.timing.timer import DeviceTimer, repeated

#: Limits for one launch in half a round: GPU time in us, and number of samples.
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
#: Limit for discarded samples in half a round. The backlog reaches its limit after four.
_MAX_LOST = 8
#: Limit for flushes before a sample, which give a slow host more time to enqueue.
_MAX_BACKLOG = 16
#: Kernels faster than this are launched several times between two events, since two events alone
#: measure 1.28 us.
BATCH_BELOW_US = 20.0
_BATCH_US = 200.0
#: Launches behind a closed gate must fit the driver's queue (1024 on an H200); otherwise the host
#: would block before it opens the gate. A reduction takes up to five launches.
_MAX_BATCH = 64


class Watch(Protocol):
    """Callbacks that check the results of timed launches, outside of the timed region."""

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
    """How samples are taken: cold or warm cache, plain launches or a CUDA graph."""

    cold: bool = True
    graph: bool = False

    @property
    def label(self) -> str:
        """The record field `timing`."""
        return ("cold" if self.cold else "warm") + (" graph" if self.graph else "")

    def batch(self, cost_us: float) -> int:
        """The number of reductions between two events, if one takes `cost_us`."""
        if self.cold or cost_us >= BATCH_BELOW_US:
            return 1
        return min(_MAX_BATCH, ceil(_BATCH_US / max(cost_us, 1.0)))

    def cycle(self, cost_us: float, batch: int) -> int:
        """The number of timed launches per sample, if a reduction takes `cost_us`."""
        return _CYCLE if batch == 1 and cost_us < _CYCLE_BELOW_US else 1


COLD = Method()


@dataclass(frozen=True, slots=True)
class Sample:
    """The device time of one reduction, and the host time to enqueue it."""

    us: float
    host_us: float


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples one launch. `launch` enqueues `batch` reductions, a sample is the mean of `cycle`
    launches, and half a round has at most `most` launches."""

    timer: DeviceTimer
    method: Method
    launch: Launch
    batch: int
    cycle: int = 1
    most: int = MAX_LAUNCHES
    watch: Watch | None = None

    def timed(self, backlog: int = 1) -> Sample | None:
        """Time one launch, after `backlog` flushes if cold. Returns None if the host was too slow.

        Waits for each launch: if the next flush is already enqueued, the second event is 0.5 to
        0.7 us late (H200, empty kernel: 3.23 instead of 2.72 us).
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
            if not cold:  # a closed gate would block the next synchronization
                timer.open_gate()
        timer.synchronize()
        if self.watch:
            self.watch.after()
        if late:
            return None
        return Sample(timer.elapsed_us(start, end) / self.batch, host_us / self.batch)

    def half_round(self, deadline: Deadline) -> tuple[list[Sample], int]:
        """Take the samples of half a round, until the median is stable or the time is spent.
        Returns them and the number of discarded launches."""
        samples: list[Sample] = []
        cycle: list[Sample] = []
        backlog, launches, lost, spent = 1, 0, 0, 0.0
        if self.watch:
            self.watch.begin()
        if not self.method.cold:
            self.launch()  # the previous entrant left other data in the cache
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


def _mean(samples: Sequence[Sample]) -> Sample:
    return Sample(fmean(one.us for one in samples), fmean(one.host_us for one in samples))


def sampler(
    timer: DeviceTimer, method: Method, run: Launch, cost_us: float, most: int, *, alone: bool,
    watch: Watch | None = None,
) -> Sampler:  # fmt: skip
    """Create the sampler of a launch that takes `cost_us`. With `alone` it is never batched."""
    batch = 1 if alone else method.batch(cost_us)
    launch = timer.captured(run, batch) if method.graph else repeated(run, batch)
    return Sampler(timer, method, launch, batch, method.cycle(cost_us, batch), most, watch)


def warm_costs(
    timer: DeviceTimer, entrants: Mapping[str, Launch], deadline: Deadline
) -> Mapping[str, float]:
    """The approximate warm time of each entrant in us (it may be a third of the cold time): the
    least of three launches, after one that fills the cache."""
    costs = {}
    for name, run in entrants.items():
        alone = Sampler(timer, Method(cold=False), run, 1)
        run()
        samples = [alone.timed() for _ in range(3)]
        costs[name] = min(sample.us for sample in samples if sample)
        if deadline.passed:
            break
    return costs


def stable(times: Sequence[float]) -> bool:
    """True if half the interval of the median is at most 0.2 % of it."""
    if len(times) < MIN_SAMPLES:
        return False
    low, high = interval(times) or (0.0, inf)
    return (high - low) / 2 <= _STABLE * median(times)
