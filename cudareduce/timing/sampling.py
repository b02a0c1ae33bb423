"""One sample, and a pass of them: launches between two events, from a cold or a warm cache.

A *cold* sample displaces the L2 by reading, records an event, enqueues the launches, records
another. The read also keeps the GPU busy while the host enqueues; a sample whose first event had
already passed when its last call was made contains host time, so it is discarded and counted.

A *warm* sample runs on what the run before it left in the cache. Nothing keeps the GPU busy then,
so a gate does: the stream waits for a flag, the host enqueues, sets the flag, and no gap of the
host's lies between the events. Short kernels are launched several times between the events, which
a cold sample cannot do: its second launch would find the input in the cache.

Where one launch lies between the events, its place among all launches makes it faster or slower;
the timer leaves the place to chance, and a sample of a short kernel is the mean of eight launches,
each behind a flush of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import fmean, median
from typing import Any, Protocol

from cudareduce.backend import Launch
from cudareduce.budget import Deadline
from cudareduce.intervals import interval
from cudareduce.machine.device import Conditions

#: GPU time that one entrant gets in one pass of a round, and the launches it is spent on at most.
_PASS_US = 5_000.0
MAX_LAUNCHES = 96
#: Fewer samples say nothing of their median.
MIN_SAMPLES = 6
#: Launches whose mean is a sample, for kernels below this. Single launches of V7 at 2^24 float32
#: take 25 or 26 us on an H200, half of them each: a median would be one or the other.
_CYCLE, _CYCLE_BELOW_US = 8, 250.0
#: The median of a pass is stable once half its interval is this share of it. Rounds of one kernel
#: differ by 0.3 % (measured on an H200), so more samples would only measure the round.
_STABLE = 0.002
#: Launches that a pass may lose to a slow host before it makes do with those it has; the backlog is
#: at its longest after four.
_MAX_LOST = 8
#: Reads in front of a sample, at most, for a host that needs time to enqueue many launches.
_MAX_BACKLOG = 16
#: Kernels below this are launched several times between two events that read 1.28 us on their own.
BATCH_BELOW_US = 20.0
_BATCH_US = 200.0
#: Launches that wait behind a closed gate must fit the driver's queue (1024 on an H200), or the
#: host waits for a gate that only it can open; a reduction takes up to five.
_MAX_BATCH = 64


class Watch(Protocol):
    """Looks at what timed launches of one entrant do, beside the time that is taken."""

    def begin(self) -> None:
        """Before a pass."""

    def before(self) -> None:
        """Before the cache is displaced for a sample, or its gate closed."""

    def after(self) -> None:
        """When the launches of a sample have ended."""

    def end(self) -> None:
        """After a pass."""


class Timer(Protocol):
    """What a device must offer to be measured."""

    def reset_persisting(self) -> None:
        """Make cache lines that were to persist ordinary ones."""

    def displace(self) -> None:
        """Enqueue a read that fills the cache with other data."""

    def close_gate(self) -> None:
        """Enqueue a wait that ends when the gate is opened."""

    def open_gate(self) -> None:
        """Let the stream go on."""

    def mark(self) -> Any:
        """Enqueue an event."""

    def reached(self, event: Any) -> bool:
        """True if the device has passed an event."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two passed events."""

    def synchronize(self) -> None:
        """Wait for all work enqueued."""

    def finish(self) -> None:
        """Wait for all work of the context, enqueued here or elsewhere."""

    def host_us(self) -> float:
        """Microseconds on the host's clock."""

    def captured(self, run: Launch, count: int) -> Launch:
        """A launch of one graph that holds `count` runs. Raises EnvironmentProblem."""

    def conditions(self) -> Conditions:
        """Clocks, power and temperature under load."""


@dataclass(frozen=True, slots=True)
class Method:
    """How samples are taken: from which cache, and by which kind of launch."""

    cold: bool = True
    graph: bool = False

    @property
    def label(self) -> str:
        """What records call it."""
        return ("cold" if self.cold else "warm") + (" graph" if self.graph else "")

    @property
    def needs_bindings(self) -> bool:
        """True if PyCUDA alone cannot do it."""
        return self.graph or not self.cold

    def batch(self, cost_us: float) -> int:
        """How many reductions lie between two events, for one that takes this long."""
        if self.cold or cost_us >= BATCH_BELOW_US:
            return 1
        return min(_MAX_BATCH, ceil(_BATCH_US / max(cost_us, 1.0)))

    def cycle(self, cost_us: float, batch: int) -> int:
        """How many timed launches make a sample of a reduction that takes this long."""
        return _CYCLE if batch == 1 and cost_us < _CYCLE_BELOW_US else 1


COLD = Method()


@dataclass(frozen=True, slots=True)
class Sample:
    """One reduction's share: on the device, and of the host's time to enqueue it."""

    us: float
    host_us: float


@dataclass(frozen=True, slots=True)
class Sampler:
    """Takes samples of one entrant.

    `launch` enqueues `batch` reductions between two events, a sample is the mean of `cycle` of
    those, and `most` bounds how many a pass takes. `watch` looks at what they do.
    """

    timer: Timer
    method: Method
    launch: Launch
    batch: int
    cycle: int = 1
    most: int = MAX_LAUNCHES
    watch: Watch | None = None

    def timed(self, backlog: int = 1) -> Sample | None:
        """One launch, behind `backlog` reads from a cold cache; None if the host was too slow for
        it.

        Each is waited for: with the next flush already queued behind it, the second event comes
        0.5 to 0.7 us late (measured on an H200, empty kernel 3.23 against 2.72 us).
        """
        timer = self.timer
        if self.watch:
            self.watch.before()
        timer.reset_persisting()  # lines that are to persist would outlast the read
        if self.method.cold:
            for _ in range(backlog):
                timer.displace()
            start, host_us, end, late = self._between(check=True)
        else:
            try:
                timer.close_gate()
                start, host_us, end, late = self._between(check=False)
            finally:  # else whoever waits for the stream next would wait for ever
                timer.open_gate()
        timer.synchronize()
        if self.watch:
            self.watch.after()
        if late:
            return None
        return Sample(timer.elapsed_us(start, end) / self.batch, host_us / self.batch)

    def _between(self, check: bool) -> tuple[Any, float, Any, bool]:
        timer = self.timer
        start = timer.mark()
        began = timer.host_us()
        self.launch()
        host_us = timer.host_us() - began
        late = check and timer.reached(start)
        return start, host_us, timer.mark(), late

    def passed(self, deadline: Deadline) -> tuple[list[Sample], int]:
        """A pass: samples until their median is stable or the time is spent, and how many launches
        were lost to a slow host."""
        if self.watch:
            self.watch.begin()
        taken = self._pass(deadline)
        if self.watch:
            self.watch.end()
        return taken

    def _pass(self, deadline: Deadline) -> tuple[list[Sample], int]:
        samples: list[Sample] = []
        cycle: list[Sample] = []
        backlog, launches, lost, spent = 1, 0, 0, 0.0
        if not self.method.cold:
            self.launch()  # what ran before may have left other data in the cache
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
        return samples, lost


def _mean(taken: Sequence[Sample]) -> Sample:
    return Sample(fmean(one.us for one in taken), fmean(one.host_us for one in taken))


def sampler(
    timer: Timer,
    method: Method,
    run: Launch,
    cost_us: float,
    most: int,
    *,
    alone: bool,
    watch: Watch | None = None,
) -> Sampler:
    """A sampler of one entrant by one method, for what it costs; one that is `alone` is never
    batched."""
    batch = 1 if alone else method.batch(cost_us)
    launch = timer.captured(run, batch) if method.graph else repeated(run, batch)
    return Sampler(timer, method, launch, batch, method.cycle(cost_us, batch), most, watch)


def warm_costs(
    timer: Timer, entrants: Mapping[str, Launch], deadline: Deadline
) -> Mapping[str, float]:
    """Roughly what each entrant costs in us from a warm cache, which may be a third of what it does
    from a cold one: the least of three launches, behind one that fills the cache."""
    costs = {}
    for name, run in entrants.items():
        alone = Sampler(timer, Method(cold=False), run, 1)
        run()
        taken = [alone.timed() for _ in range(3)]
        costs[name] = min(sample.us for sample in taken if sample)
        if deadline.passed:
            break
    return costs


def repeated(run: Launch, count: int) -> Launch:
    """A launch of `count` runs, one behind the other."""
    if count == 1:
        return run

    def runs() -> None:
        for _ in range(count):
            run()

    return runs


def stable(times: Sequence[float]) -> bool:
    """True if more samples would not move the median of these: half its interval is at most 0.2 %
    of it."""
    if len(times) < MIN_SAMPLES:
        return False
    low, high = interval(times) or (0.0, inf)
    return (high - low) / 2 <= _STABLE * median(times)
