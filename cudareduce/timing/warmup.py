"""Work before the first round, until times and the clock no longer change.

An idle H200 raises its clock from 345 to 1980 MHz within 300 ms, and its times settle later than
that: a first run showed rounds 2 % apart, the next 0.2 %. So the warm-up ends on evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from cudareduce.backend import Launch
from cudareduce.budget import Deadline
from cudareduce.timing.sampling import Timer

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
