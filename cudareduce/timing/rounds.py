"""Rounds: every entrant measured in turn, forward and backward, until there are enough.

Timed is what lies between input in device memory and answers in device memory: writing the identity
where a kernel needs it, and every pass. Copies, allocation and compilation are not.

A *round* measures every entrant forward and backward (A B C, C B A), half a round each way; the
unit of replication is the round, because launches inside one are not independent. A round in which
the GPU was throttled is repeated, and kept if that does not help. Each half takes place in a
context, as a rule in one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from cudareduce.budget import Deadline
from cudareduce.intervals import Interval, interval, known, noise_pct
from cudareduce.machine.device import Conditions
from cudareduce.timing.contexts import Context, Contexts
from cudareduce.timing.sampling import (
    COLD,
    MAX_LAUNCHES,
    Method,
    Sample,
    Sampler,
    Timer,
    sampler,
    warm_costs,
)
from cudareduce.timing.warmup import settle, warm_up

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
