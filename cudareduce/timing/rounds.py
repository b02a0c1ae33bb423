"""Measure launches ("entrants") in interleaved rounds.

The timed region is from input in device memory to results in device memory: all passes, and the
identity that some kernels need in their output. Copies, allocation and compilation are not timed.

A round measures all entrants forward and backward (A B C, C B A). Statistics are over rounds, since
launches within a round are not independent. Throttled rounds are repeated up to three times. Each
half of a round runs in a CUDA context, usually a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from math import inf
from random import Random
from statistics import median
from typing import Any

from cudareduce.backends.protocol import Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.intervals import MIN_ROUNDS, Interval, interval, known, noise_pct
from cudareduce.machine import EVENT_TICK_US, Conditions
from cudareduce.reduction.sizes import counted
from cudareduce.timing.sampling import (
    COLD,
    MAX_LAUNCHES,
    Method,
    Sample,
    Sampler,
    Watch,
    sampler,
    warm_costs,
)
from cudareduce.timing.timer import DeviceTimer

#: In each new context buffers are shifted by a random multiple, below `_STEPS`, of `_STEP_BYTES`.
_STEPS, _STEP_BYTES = 2048, 512


@dataclass(frozen=True, slots=True)
class Context:
    """A timer, the launches to measure by name, and result checks (`watches`) of some of them."""

    timer: DeviceTimer
    entrants: Mapping[str, Launch]
    watches: Mapping[str, Watch] = field(default_factory=dict)


#: Opens the context of half a round: always the same one, or a new one each time.
Contexts = Callable[[], AbstractContextManager[Context]]
#: Allocates buffers in a new context and returns the entrants.
SetUp = Callable[[TimedBackend, DeviceTimer], Mapping[str, Launch]]


def same_context(context: Context) -> Contexts:
    """Use one context for all rounds."""
    return lambda: nullcontext(context)


@contextmanager
def new_context(
    home: TimedBackend, monitor: Monitor, set_up: SetUp,
    watched: Callable[[], Mapping[str, Watch]] = dict,
) -> Iterator[Context]:  # fmt: skip
    """A new CUDA context with buffers at new addresses, while the block runs. `watched` is called
    after `set_up`. Raises OutOfMemory and EnvironmentProblem."""
    with home.another() as backend:
        backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        timer = DeviceTimer(backend, monitor)
        try:
            entrants = set_up(backend, timer)
            yield Context(timer, entrants, watched())
        finally:
            timer.release()


#: GPU time of a warm-up window, and least and most GPU time of the warm-up. It ends when two
#: windows in a row agree.
_WINDOW_US, _LEAST_US, _MOST_US = 50_000.0, 300_000.0, 3_000_000.0
#: Largest relative difference between two windows: in the time of all entrants, and in the clock.
_TIME_STEADY, _CLOCK_STEADY = 0.005, 0.01


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The approximate cold time of each entrant, and whether times and clock became steady (True if
    the deadline came first)."""

    costs_us: Mapping[str, float]
    steady: bool


def warm_up(timer: DeviceTimer, entrants: Mapping[str, Launch], deadline: Deadline) -> WarmUp:
    """Run all entrants in turn until two windows agree, for at most 3 s of GPU time or until the
    deadline."""
    costs: dict[str, float] = {}
    spent, total, clock, steady, windows = 0.0, inf, None, False, 0
    while windows < 2 or (spent < _MOST_US and not (steady and spent >= _LEAST_US)):
        costs, took = _run_window(timer, entrants, deadline, _WINDOW_US)
        spent, windows = spent + took, windows + 1
        if deadline.passed:
            return WarmUp(costs, True)
        before, total = total, sum(costs.values())
        clock_before, clock = clock, timer.conditions().sm_mhz
        steady = _is_near(before, total, _TIME_STEADY) and (
            clock is None or clock_before is None or _is_near(clock_before, clock, _CLOCK_STEADY)
        )
    return WarmUp(costs, steady)


def _run_window(
    timer: DeviceTimer, entrants: Mapping[str, Launch], deadline: Deadline, least_us: float
) -> tuple[dict[str, float], float]:
    """Run all entrants in turn for `least_us` of GPU time. Returns the shortest time of each, and
    the GPU time spent, in us."""
    costs: dict[str, float] = {}
    spent = 0.0
    while True:
        first = timer.mark()
        for name, run in entrants.items():
            timer.flush()
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


def _is_near(old: float, new: float, share: float) -> bool:
    return abs(old - new) <= share * new


@dataclass(frozen=True, slots=True)
class Timing:
    """The measurements of one entrant: the median of each round, and statistics of all samples.

    The median is None in a round without samples, all discarded since the host was slow.
    `discarded` counts such launches, `host_us` is the host time to enqueue one reduction, `batch`
    the number of reductions between two events.
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
        """The medians of all rounds that have one."""
        return known(self.by_round)

    @property
    def median_us(self) -> float:
        """The median of the round medians."""
        return median(self.medians_us)

    @property
    def interval_us(self) -> Interval | None:
        """The 95 % confidence interval of the median of rounds; None under six rounds."""
        return interval(self.medians_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The timings of all entrants by one method.

    `conditions` is the state of the GPU in each complete round, `lost` the number of discarded
    launches of entrants without samples. `interrupted`: Ctrl-C came after these rounds.
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
        """The number of complete rounds."""
        return len(self.conditions)


def over(states: Sequence[Conditions]) -> Conditions:
    """Combine several readings: medians, and the union of event reasons."""
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


#: Limit for repeated rounds, so that a measurement on a constantly throttled GPU ends.
_REPEATS = 3


@dataclass(slots=True)
class _Round:
    """Samples and number of discarded launches of each entrant, and conditions of both halves."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    states: list[Conditions] = field(default_factory=list)


def measure(
    contexts: Contexts, rounds: int, method: Method = COLD,
    progress: Callable[[], None] = lambda: None, *, deadline: Deadline | None = None,
    alone: Collection[str] = (), most: int = MAX_LAUNCHES,
) -> Measurement:  # fmt: skip
    """Measure all entrants in `rounds` rounds, or until the deadline.

    Entrants in `alone` are never batched. `most` limits the launches of an entrant in half a round.
    After Ctrl-C the complete rounds are returned. Errors of the device are raised.
    """
    deadline = deadline or Deadline()
    runner = _RoundRunner(contexts, method, deadline, alone, most)
    kept: list[_Round] = []
    repeated, took_s, interrupted = 0, 0.0, False
    try:
        while len(kept) < rounds and took_s < deadline.left_s:
            began_s, round_ = deadline.left_s, _Round()
            runner.half(round_, backward=False)
            runner.half(round_, backward=True)
            if deadline.passed:
                break  # the round is incomplete
            if deadline.seconds is not None:
                took_s = began_s - deadline.left_s
            if over(round_.states).throttled and repeated < _REPEATS:
                repeated += 1
                continue
            kept.append(round_)
            progress()
    except KeyboardInterrupt:
        interrupted = True
    timings: dict[str, Timing] = {}
    all_lost: dict[str, int] = {}
    for name in kept[0].samples if kept else ():
        by_round = [each.samples[name] for each in kept]
        samples = [sample for some in by_round for sample in some]
        lost = sum(each.lost[name] for each in kept)
        if not samples:
            all_lost[name] = lost
            continue
        times = [sample.us for sample in samples]
        timings[name] = Timing(
            by_round=tuple(median(s.us for s in some) if some else None for some in by_round),
            samples=len(times), min_us=min(times), noise_pct=noise_pct(times), discarded=lost,
            host_us=median(sample.host_us for sample in samples), batch=runner.batches[name],
        )  # fmt: skip
    return Measurement(
        method=method, timings=timings, conditions=tuple(over(each.states) for each in kept),
        planned=rounds, repeated=repeated, steady=runner.steady, contexts=runner.entered,
        lost=all_lost, interrupted=interrupted,
    )  # fmt: skip


class _RoundRunner:
    """Opens contexts and samples all entrants in them, half a round at a time."""

    def __init__(
        self, contexts: Contexts, method: Method, deadline: Deadline,
        alone: Collection[str], most: int,
    ) -> None:  # fmt: skip
        self._contexts, self._method, self._deadline = contexts, method, deadline
        self._alone, self._most = alone, most
        self._before: Context | None = None
        self._costs_us: Mapping[str, float] = {}
        self._samplers: Mapping[str, Sampler] = {}
        self.batches: dict[str, int] = {}
        self.steady, self.entered = True, 0

    def half(self, round_: _Round, *, backward: bool) -> None:
        """Sample every entrant, until the deadline."""
        if self._deadline.passed:
            return
        with self._contexts() as context:
            if context is not self._before:
                self._prepare(context)
            for name in list(self._samplers)[:: -1 if backward else 1]:
                if self._deadline.passed:
                    break
                samples, lost = self._samplers[name].half_round(self._deadline)
                round_.samples.setdefault(name, []).extend(samples)
                round_.lost[name] = round_.lost.get(name, 0) + lost
            round_.states.append(context.timer.conditions())

    def _prepare(self, context: Context) -> None:
        """Warm up a new context and create samplers. Batch sizes depend on the times in the first
        context."""
        timer, entrants, method = context.timer, context.entrants, self._method
        if self._before is None:
            warm = warm_up(timer, entrants, self._deadline)
            self._costs_us, self.steady = warm.costs_us, warm.steady
            if not method.cold:
                self._costs_us = warm_costs(timer, entrants, self._deadline)
        else:  # a new context loads each kernel at its first launch
            _run_window(timer, entrants, self._deadline, 0.0)
        self._before = context
        self.entered += 1
        self._samplers = {
            name: sampler(
                timer, method, run, self._costs_us[name], self._most, alone=name in self._alone,
                watch=context.watches.get(name),
            )
            for name, run in entrants.items()
            if not self._deadline.passed
        }  # fmt: skip
        self.batches |= {name: each.batch for name, each in self._samplers.items()}


#: A half interval above this fraction of the time gets a remark. On an idle H200 0.1 to 1 % is
#: usual.
_WIDE = 0.03
#: Differences of up to three ticks are the resolution of the event clock.
_CLOCK_TICKS_US = 3 * EVENT_TICK_US
#: A change of the clock above this fraction gets a remark. A steady H200 stays within one step.
_CLOCK_SHARE = 0.02


def remarks(measured: Measurement, max_time_s: float | None, others: int = 0) -> Iterator[str]:
    """Descriptions of the problems of a measurement. `max_time_s` is the limit of the run, `others`
    the number of other processes on the GPU."""
    yield from _shortened_remarks(measured, max_time_s)
    if not measured.steady:
        yield (
            "times had not come to rest after 3 s of warm-up: something else uses the GPU, or its "
            "clock wanders; see whether nvidia-smi shows other processes"
        )
    yield from _throttle_remarks(measured)
    yield from _clock_remarks(measured)
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


def _shortened_remarks(measured: Measurement, max_time_s: float | None) -> Iterator[str]:
    if max_time_s is None or measured.rounds == measured.planned:
        return
    limit = f"--max-time {max_time_s:g} s"
    if not measured.rounds:
        yield f"{limit} left no time for one round, so nothing was timed: give it more"
        return
    few = ", too few for an interval" if measured.rounds < MIN_ROUNDS else ""
    yield f"{limit} cut {measured.planned} rounds to {measured.rounds}{few}"


def _throttle_remarks(measured: Measurement) -> Iterator[str]:
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


def _clock_remarks(measured: Measurement) -> Iterator[str]:
    """A remark for each clock that changed. Without NVML clocks are unknown."""
    for name, lock, read in (
        ("SM", "--lock-gpu-clocks", [c.sm_mhz for c in measured.conditions]),
        ("memory", "--lock-memory-clocks", [c.memory_mhz for c in measured.conditions]),
    ):
        clocks = known(read)
        if clocks and max(clocks) > min(clocks) * (1 + _CLOCK_SHARE):
            yield (
                f"the {name} clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz from "
                "round to round: differences smaller than that are not the kernels'; lock it with "
                f"nvidia-smi {lock} if you may"
            )


def _noise(timing: Timing) -> float:
    """Noise in percent; 0 below the resolution of the event clock."""
    pct = timing.noise_pct or 0.0
    return pct if pct / 100 * timing.median_us > _CLOCK_TICKS_US else 0.0


def _half_interval(timing: Timing) -> float:
    """Half the interval as a fraction of the time; 0 below the resolution of the event clock."""
    low, high = timing.interval_us or (0.0, 0.0)
    half_us = (high - low) / 2
    return half_us / timing.median_us if half_us > _CLOCK_TICKS_US else 0.0
