"""Rounds: every entrant measured in turn, forward and backward, until there are enough.

Timed is what lies between input in device memory and answers in device memory: writing the identity
where a kernel needs it, and every pass. Copies, allocation and compilation are not.

A *round* measures every entrant forward and backward (A B C, C B A), half a round each way; the
unit of replication is the round, because launches inside one are not independent. A round in which
the GPU was throttled is repeated, and kept if that does not help. Each half takes place in a
context, as a rule in one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from math import inf
from random import Random
from statistics import median
from typing import Any, Generic, TypeVar

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.intervals import MIN_ROUNDS, Interval, interval, known, noise_pct
from cudareduce.machine.device import EVENT_TICK_US, Conditions
from cudareduce.reduction.sizes import counted
from cudareduce.timing.sampling import (
    COLD,
    MAX_LAUNCHES,
    Method,
    Sample,
    Sampler,
    Timer,
    Watch,
    sampler,
    warm_costs,
)
from cudareduce.timing.timer import DeviceTimer

#: Buffers are pushed about by up to so many steps from context to context.
_STEPS, _STEP_BYTES = 2048, 512

AnyTimer = TypeVar("AnyTimer", bound=Timer, covariant=True)


@dataclass(frozen=True, slots=True)
class Context(Generic[AnyTimer]):
    """A timer, and what is to be timed with it: launches by the names of the entrants, of which
    some are watched."""

    timer: AnyTimer
    entrants: Mapping[str, Launch]
    watches: Mapping[str, Watch] = field(default_factory=dict)


#: Enters a context for half a round: always the same one, or a new one each time.
Contexts = Callable[[], AbstractContextManager[Context[AnyTimer]]]
#: Allocates in a new context and says what runs there.
SetUp = Callable[[TimedBackend, DeviceTimer], Mapping[str, Launch]]


def staying(context: Context[AnyTimer]) -> Contexts[AnyTimer]:
    """One context for all rounds."""
    return lambda: nullcontext(context)


@contextmanager
def new_context(
    home: TimedBackend,
    monitor: Monitor,
    set_up: SetUp,
    watched: Callable[[], Mapping[str, Watch]] = dict,
) -> Iterator[Context[DeviceTimer]]:
    """A context of its own, its buffers at other addresses than those of the one before.

    Whatever `set_up` allocates goes with the context; `watched` is asked behind it. Raises
    OutOfMemory and EnvironmentProblem.
    """
    with home.another() as backend:
        backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        timer = DeviceTimer(backend, monitor)
        try:
            entrants = set_up(backend, timer)
            yield Context(timer, entrants, watched())
        finally:
            timer.release()


#: GPU time of a window; two in a row must agree. Of an idle GPU the first 300 ms never count.
_WINDOW_US, _LEAST_US, _MOST_US = 50_000.0, 300_000.0, 3_000_000.0
#: How far apart windows may lie: in the time of all entrants together, and in the clock.
_TIME_STEADY, _CLOCK_STEADY = 0.005, 0.01


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What it took: roughly what each entrant costs from a cold cache, and whether things came to
    rest, or were not given the time for it."""

    costs_us: Mapping[str, float]
    steady: bool


def warm_up(timer: Timer, entrants: Mapping[str, Launch], deadline: Deadline) -> WarmUp:
    """Run every entrant in turn, plainly and waited for, until two windows agree, or for 3 s of GPU
    time, or until the deadline."""
    costs: dict[str, float] = {}
    spent, total, clock, steady, windows = 0.0, inf, None, False, 0
    while windows < 2 or (spent < _MOST_US and not (steady and spent >= _LEAST_US)):
        costs, took = _window(timer, entrants, deadline)
        spent, windows = spent + took, windows + 1
        if deadline.passed:
            return WarmUp(costs, True)
        before, total = total, sum(costs.values())
        clock_before, clock = clock, timer.conditions().sm_mhz
        steady = _near(before, total, _TIME_STEADY) and (
            clock is None or clock_before is None or _near(clock_before, clock, _CLOCK_STEADY)
        )
    return WarmUp(costs, steady)


def settle(timer: Timer, entrants: Mapping[str, Launch], deadline: Deadline) -> None:
    """Run every entrant on a GPU that is warm: a context loads a kernel when it first runs."""
    _window(timer, entrants, deadline, 0.0)


def _window(
    timer: Timer,
    entrants: Mapping[str, Launch],
    deadline: Deadline,
    least_us: float = _WINDOW_US,
) -> tuple[dict[str, float], float]:
    """The least time of each entrant over some cycles, and the GPU time they took."""
    costs: dict[str, float] = {}
    spent = 0.0
    while True:
        first = timer.mark()
        for name, run in entrants.items():
            timer.displace()
            start = timer.mark()
            run()
            end = timer.mark()
            timer.synchronize()
            costs[name] = min(costs.get(name, inf), timer.elapsed_us(start, end))
        last = timer.mark()
        timer.synchronize()
        spent += max(timer.elapsed_us(first, last), 1.0)
        if spent >= least_us or deadline.passed:
            return costs, spent


def _near(old: float, new: float, share: float) -> bool:
    return abs(old - new) <= share * new


#: Throttled rounds that are measured again; a card that is throttled all the time must end too.
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """All that was measured of one entrant: a median for each round, figures over all samples.

    A round in which the host was too slow for every sample has no median. `discarded` counts the
    launches lost so, `host_us` is what the host needs to enqueue one reduction, `batch` how many
    lie between two events.
    """

    by_round: tuple[float | None, ...]
    samples: int
    min_us: float
    noise_pct: float | None
    discarded: int
    host_us: float | None = None
    batch: int = 1

    @property
    def medians_us(self) -> tuple[float, ...]:
        """Those of the rounds that have one."""
        return known(self.by_round)

    @property
    def median_us(self) -> float:
        """The median of round medians; there is one, since a timing has a sample."""
        return median(self.medians_us)

    @property
    def interval_us(self) -> Interval | None:
        """An interval that holds the median of rounds with 95 %; None under six rounds."""
        return interval(self.medians_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one method found of all entrants, and how it came about.

    `conditions` has the state of the GPU in each whole round, `lost` the samples of entrants that
    have none left. `interrupted`: Ctrl-C ended it, and it holds the whole rounds until then.
    """

    method: Method = COLD
    timings: Mapping[str, Timing] = field(default_factory=dict)
    conditions: tuple[Conditions, ...] = ()
    planned: int = 0
    repeated: int = 0
    steady: bool = True
    contexts: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def rounds(self) -> int:
        """Whole rounds."""
        return len(self.conditions)


def over(states: Sequence[Conditions]) -> Conditions:
    """What held over several moments: medians, and every event reason there was."""
    values: dict[str, Any] = {}
    for name in (f.name for f in fields(Conditions)):
        known = [value for value in (getattr(c, name) for c in states) if value is not None]
        if not known:
            continue
        values[name] = median(known)
        if name == "reasons":
            values[name] = 0
            for bits in known:
                values[name] |= bits
    return Conditions(**values)


_Half = Mapping[str, tuple[list[Sample], int]]  # of each entrant, with the launches lost


@dataclass(frozen=True, slots=True)
class _Round:
    """Both halves of a round, and the state of the GPU over them."""

    halves: tuple[_Half, _Half]
    conditions: Conditions


def measure(
    contexts: Contexts[Timer],
    rounds: int,
    method: Method = COLD,
    progress: Callable[[], None] = lambda: None,
    *,
    deadline: Deadline | None = None,
    alone: Collection[str] = (),
    most: int = MAX_LAUNCHES,
) -> Measurement:
    """Measure entrants against each other for so many rounds, or until the deadline.

    Entrants `alone` are never batched; `most` bounds the launches of an entrant in half a round.
    What an error of the device interrupts is lost, and the error raised; what Ctrl-C interrupts is
    kept.
    """
    deadline = deadline or Deadline()
    circuit = _Circuit(contexts, method, deadline, alone, most)
    kept: list[_Round] = []
    repeated, took_s, interrupted = 0, 0.0, False
    try:
        while len(kept) < rounds and took_s < deadline.left_s:
            began_s = deadline.left_s
            one = circuit.round()
            if deadline.passed:
                break  # what is half a round is none
            if deadline.seconds is not None:
                took_s = began_s - deadline.left_s
            if one.conditions.throttled and repeated < _REPEATS:
                repeated += 1
                continue
            kept.append(one)
            progress()
    except KeyboardInterrupt:
        interrupted = True
    timings, lost = _summary(kept, circuit.batches)
    return Measurement(
        method=method, timings=timings, conditions=tuple(one.conditions for one in kept),
        planned=rounds, repeated=repeated, steady=circuit.steady, contexts=circuit.entered,
        lost=lost, interrupted=interrupted,
    )  # fmt: skip


def _summary(
    rounds: Sequence[_Round], batches: Mapping[str, int]
) -> tuple[dict[str, Timing], dict[str, int]]:
    """A timing of each entrant that has a sample, and how many launches the others lost."""
    timings: dict[str, Timing] = {}
    lost: dict[str, int] = {}
    for name in rounds[0].halves[0] if rounds else ():
        taken = [[s for half in one.halves for s in half[name][0]] for one in rounds]
        gone = sum(half[name][1] for one in rounds for half in one.halves)
        samples = [sample for of_round in taken for sample in of_round]
        if not samples:
            lost[name] = gone
            continue
        times = [sample.us for sample in samples]
        timings[name] = Timing(
            by_round=tuple(median(s.us for s in one) if one else None for one in taken),
            samples=len(times),
            min_us=min(times),
            noise_pct=noise_pct(times),
            discarded=gone,
            host_us=median(sample.host_us for sample in samples),
            batch=batches[name],
        )
    return timings, lost


class _Circuit:
    """Enters contexts, and takes all entrants through half a round at a time in them."""

    def __init__(
        self,
        contexts: Contexts[Timer],
        method: Method,
        deadline: Deadline,
        alone: Collection[str],
        most: int,
    ) -> None:
        self._contexts, self._method, self._deadline = contexts, method, deadline
        self._alone, self._most = alone, most
        self._before: Context[Timer] | None = None
        self._costs_us: Mapping[str, float] = {}
        self.samplers: Mapping[str, Sampler] = {}
        self.batches: dict[str, int] = {}
        self.steady, self.entered = True, 0

    def round(self) -> _Round:
        """Every entrant forward and backward; incomplete if the deadline has passed."""
        forward, before = self._half(backward=False)
        backward, after = self._half(backward=True)
        return _Round((forward, backward), over([before, after]))

    def _half(self, *, backward: bool) -> tuple[_Half, Conditions]:
        """Samples of every entrant, and the state of the GPU after them."""
        taken: dict[str, tuple[list[Sample], int]] = {}
        if self._deadline.passed:
            return taken, Conditions()
        with self._contexts() as context:
            if context is not self._before:
                self._prepare(context)
            for name in list(self.samplers)[:: -1 if backward else 1]:
                if self._deadline.passed:
                    break
                taken[name] = self.samplers[name].passed(self._deadline)
            return taken, context.timer.conditions()

    def _prepare(self, context: Context[Timer]) -> None:
        """Warm up, and make samplers; all contexts batch by what things cost in the first one."""
        timer, entrants, method = context.timer, context.entrants, self._method
        if self._before is None:
            warm = warm_up(timer, entrants, self._deadline)
            self._costs_us, self.steady = warm.costs_us, warm.steady
            if not method.cold:
                self._costs_us = warm_costs(timer, entrants, self._deadline)
        else:
            settle(timer, entrants, self._deadline)
        self._before = context
        self.entered += 1
        self.samplers = {
            name: sampler(
                timer,
                method,
                run,
                self._costs_us[name],
                self._most,
                alone=name in self._alone,
                watch=context.watches.get(name),
            )
            for name, run in entrants.items()
            if not self._deadline.passed
        }
        self.batches |= {name: one.batch for name, one in self.samplers.items()}


#: Half an interval, as a share of its time, above which a reader should look for the cause; 0.1 to
#: 1 % is usual on an idle H200.
_WIDE = 0.03
#: A spread of three ticks is the event clock's own.
_CLOCK_TICKS_US = 3 * EVENT_TICK_US
#: Share by which the clock may differ between rounds; it stays within one step on a steady H200.
_CLOCK_SHARE = 0.02


def remarks(measured: Measurement, max_time_s: float | None, others: int = 0) -> Iterator[str]:
    """Everything worth saying about how a measurement went; nothing if it went well. `max_time_s`
    is the limit of the run, `others` how many other processes used the GPU."""
    yield from _cut(measured, max_time_s)
    if not measured.steady:
        yield (
            "times had not come to rest after 3 s of warm-up: something else uses the GPU, or its "
            "clock wanders; see whether nvidia-smi shows other processes"
        )
    yield from _throttled(measured)
    yield from _clocks(measured)
    widest = max((_half_interval(timing) for timing in measured.timings.values()), default=0.0)
    if others:
        worst = max((_noise(timing) for timing in measured.timings.values()), default=0.0)
        plural = "es" if others > 1 else ""
        yield (
            f"{others} other process{plural} used this GPU; noise reaches {worst:.1f} %: wait "
            "until it is free, or take another one with --device"
        )
    elif widest > _WIDE:
        yield (
            f"intervals of up to ±{100 * widest:.0f} %: look for what else uses the GPU; more "
            "--rounds narrow them"
        )


def _cut(measured: Measurement, max_time_s: float | None) -> Iterator[str]:
    if max_time_s is None or measured.rounds == measured.planned:
        return
    limit = f"--max-time {max_time_s:g} s"
    if not measured.rounds:
        yield f"{limit} left no time for one round, so nothing was timed: give it more"
        return
    few = ", too few for an interval" if measured.rounds < MIN_ROUNDS else ""
    yield f"{limit} cut {measured.planned} rounds to {measured.rounds}{few}"


def _throttled(measured: Measurement) -> Iterator[str]:
    slow = [c.throttled for c in measured.conditions if c.throttled]
    if slow:
        why = " and ".join(sorted({word for words in slow for word in words}))
        yield (
            f"the GPU was throttled ({why}) in {len(slow)} of {measured.rounds} rounds, after "
            f"{measured.repeated} had been repeated: these are times of a throttled card; cool it "
            "or raise its power limit"
        )
    elif measured.repeated:
        rounds = counted(measured.repeated, "throttled round was", "throttled rounds were")
        yield f"{rounds} repeated"


def _clocks(measured: Measurement) -> Iterator[str]:
    """Both clocks are to stand still; neither is known without NVML."""
    known = {
        ("SM", "--lock-gpu-clocks"): [c.sm_mhz for c in measured.conditions],
        ("memory", "--lock-memory-clocks"): [c.memory_mhz for c in measured.conditions],
    }
    for (name, lock), read in known.items():
        clocks = [mhz for mhz in read if mhz is not None]
        if clocks and max(clocks) > min(clocks) * (1 + _CLOCK_SHARE):
            yield (
                f"the {name} clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz from "
                "round to round: differences smaller than that are not the kernels'; lock it with "
                f"nvidia-smi {lock} if you may"
            )


def _noise(timing: Timing) -> float:
    """Noise in per cent; none where the spread is that of the event clock itself."""
    pct = timing.noise_pct or 0.0
    return pct if pct / 100 * timing.median_us > _CLOCK_TICKS_US else 0.0


def _half_interval(timing: Timing) -> float:
    """As a share of the time; none where that is what the event clock resolves."""
    low, high = timing.interval_us or (0.0, 0.0)
    half_us = (high - low) / 2
    return half_us / timing.median_us if half_us > _CLOCK_TICKS_US else 0.0
