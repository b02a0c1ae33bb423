"""Rounds: every entrant measured in turn, forward and backward, until there are enough.

Timed is what lies between input in device memory and answers in device memory: writing the identity
where a kernel needs it, and every pass. Copies, allocation and compilation are not.

A *round* measures every entrant forward and backward (A B C, C B A); the unit of replication is the
round, because launches inside one are not independent. A round in which the GPU was throttled is
repeated, and kept if that does not help. Each pass of a round takes place in a scene, as a rule in
one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

from cudareduce.budget import Deadline
from cudareduce.gpu.nvml import Conditions, over
from cudareduce.intervals import Interval, interval, known, noise_pct
from cudareduce.timing.contexts import Scene, Scenes
from cudareduce.timing.sampling import (
    COLD,
    MAX_LAUNCHES,
    Method,
    Sample,
    Sampler,
    sampler,
    warm_costs,
)
from cudareduce.timing.warmup import settle, warm_up

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
    def medians_us(self) -> tuple[float, ...]:
        """Those of the rounds that have one."""
        return known(self.by_round)

    @property
    def median_us(self) -> float:
        """The median of round medians."""
        return median(self.medians_us)

    @property
    def interval_us(self) -> Interval | None:
        """An interval that holds the median of rounds with 95 %; None under six rounds."""
        return interval(self.medians_us)


@dataclass(slots=True)
class Measurement:
    """What is known of entrants after each whole round by one method, and how it came about."""

    method: Method = COLD
    timings: dict[str, Timing] = field(default_factory=dict)
    conditions: list[Conditions] = field(default_factory=list)
    planned: int = 0
    repeated: int = 0
    steady: bool = True
    scenes: int = 0
    lost: dict[str, int] = field(default_factory=dict)  # samples, where none was left

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
    scenes: Scenes,
    rounds: int,
    into: Measurement,
    progress: Callable[[], None] = lambda: None,
    *,
    deadline: Deadline | None = None,
    alone: Collection[str] = (),
    most: int = MAX_LAUNCHES,
) -> None:
    """Measure entrants against each other by the method of `into`, which holds what is known after
    each whole round. Those `alone` are never batched; `most` bounds the launches of a pass."""
    deadline = deadline or Deadline()
    into.planned = rounds
    stage = _Stage(scenes, into, deadline, alone, most)
    collected: dict[str, _Collected] = {}
    took_s = 0.0
    while into.rounds < rounds and took_s < deadline.left_s:
        began_s = deadline.left_s
        passes = [stage.pass_(backward=False), stage.pass_(backward=True)]
        if deadline.passed:
            return  # what is half a round is none
        if deadline.seconds is not None:
            took_s = began_s - deadline.left_s
        conditions = over([state for _, state in passes])
        if conditions.throttled and into.repeated < _REPEATS:
            into.repeated += 1
            continue
        into.conditions.append(conditions)
        for name in passes[0][0]:
            entrant = collected.setdefault(name, _Collected())
            halves = [taken[name] for taken, _ in passes]
            entrant.add([s for samples, _ in halves for s in samples], sum(n for _, n in halves))
            timing = entrant.timing(stage.samplers[name].batch)
            if timing is not None:
                into.timings[name] = timing
                into.lost.pop(name, None)
            else:
                into.lost[name] = entrant.lost
        progress()


_Taken = dict[str, tuple[list[Sample], int]]


class _Stage:
    """Enters scenes, and takes one pass of all entrants at a time in them."""

    def __init__(
        self,
        scenes: Scenes,
        into: Measurement,
        deadline: Deadline,
        alone: Collection[str],
        most: int,
    ) -> None:
        self._scenes, self._into, self._deadline = scenes, into, deadline
        self._alone, self._most = alone, most
        self._before: Scene | None = None
        self._costs_us: Mapping[str, float] = {}
        self.samplers: Mapping[str, Sampler] = {}

    def pass_(self, *, backward: bool) -> tuple[_Taken, Conditions]:
        """Samples of every entrant with the launches lost, and the state of the GPU after them;
        incomplete if the deadline has passed."""
        taken: _Taken = {}
        if self._deadline.passed:
            return taken, Conditions()
        with self._scenes() as scene:
            if scene is not self._before:
                self._prepare(scene)
            for name in list(self.samplers)[:: -1 if backward else 1]:
                if self._deadline.passed:
                    break
                taken[name] = self.samplers[name].passed(self._deadline)
            return taken, scene.timer.conditions()

    def _prepare(self, scene: Scene) -> None:
        """Warm up, and make samplers; all scenes batch by what things cost in the first one."""
        timer, entrants, into = scene.timer, scene.entrants, self._into
        if self._before is None:
            warm = warm_up(timer, entrants, self._deadline)
            self._costs_us, into.steady = warm.costs_us, warm.steady
            if not into.method.cold:
                self._costs_us = warm_costs(timer, entrants, self._deadline)
        else:
            settle(timer, entrants, self._deadline)
        self._before = scene
        into.scenes += 1
        self.samplers = {
            name: sampler(
                timer, into.method, run, self._costs_us[name], self._most, alone=name in self._alone
            )
            for name, run in entrants.items()
            if not self._deadline.passed
        }
