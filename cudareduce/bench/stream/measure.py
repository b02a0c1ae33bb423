"""Rounds of ways: each run timed by marks on its lanes, forward and backward, and every answer that
it leaves looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from cudareduce.backend import Monitor, TimedBackend
from cudareduce.bench.stream.judge import Judge
from cudareduce.bench.stream.together import Together
from cudareduce.bench.stream.ways import Checked, Stage, Way
from cudareduce.budget import Deadline
from cudareduce.intervals import noise_pct
from cudareduce.machine.device import Conditions
from cudareduce.problem.inputs import Array
from cudareduce.timing.rounds import Timing, over
from cudareduce.verify.verdict import RIGHT, Verdict, worse


class Watched:
    """A way whose runs are judged, each: the same bits once."""

    def __init__(self, way: Checked, judge: Judge) -> None:
        self._way, self._judge = way, judge
        self._seen: dict[bytes, Verdict] = {}
        self._wholes: set[bytes] = set()
        self._runs = 0

    def run(self, timed: TimedBackend | None) -> float:
        """Run it, and look at what it leaves; how long it took, in us, 0 where nothing is timed.
        Raises KernelFault."""
        self._way.poison()
        span = self._way.run()
        parts, whole = self._way.answers()  # which waits for the last launch, and so for all copies
        us = timed.elapsed_us(span.start, span.end) if timed else 0.0
        self._runs += 1
        self._look(parts, whole)
        return us

    def _look(self, parts: Array, whole: Array) -> None:
        self._wholes.add(whole.tobytes())
        key = hashlib.blake2b(parts.tobytes() + whole.tobytes()).digest()
        if key not in self._seen:
            self._seen[key] = self._judge.verdict(parts, whole)

    @property
    def verdict(self) -> Verdict:
        """On all runs so far."""
        stands = RIGHT
        for verdict in self._seen.values():
            stands = worse(stands, verdict)
        damage = self._way.damage()
        if damage:
            stands = worse(stands, Verdict("fail", damage))
        return replace(stands, distinct=len(self._wholes), launches=self._runs)


class Unwatched:
    """A way that leaves no answers."""

    def __init__(self, stage: Stage, way: Way) -> None:
        self._stage, self._way = stage, way

    def run(self, timed: TimedBackend | None) -> float:
        """Run it; how long it took, in us, 0 where nothing is timed. Raises KernelFault."""
        span = self._way.run()
        self._stage.copies.synchronize()
        return timed.elapsed_us(span.start, span.end) if timed else 0.0

    verdict = RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What rounds gave of each row, by its number; `interrupted`: Ctrl-C ended them, and these are
    the whole ones until then."""

    timings: Mapping[int, Timing]
    conditions: Conditions
    rounds: int
    interrupted: bool


def measured(
    timed: TimedBackend, monitor: Monitor, rows: Mapping[int, Watched | Unwatched], rounds: int,
    deadline: Deadline, progress: Callable[[], None], together: Together,
) -> Measured:  # fmt: skip
    """Every row forward and backward in each of so many rounds, or until the deadline, each run as
    long as the slowest of all who stream `together` takes. Raises KernelFault and RankLost."""
    kept: list[dict[int, list[float]]] = []
    states: list[Conditions] = []
    interrupted = False
    order = [*rows, *reversed(list(rows))]
    try:
        while len(kept) < rounds and not deadline.passed:
            taken: dict[int, list[float]] = {number: [] for number in rows}
            for number in order:
                if deadline.passed:
                    break
                run = partial(rows[number].run, timed)
                taken[number].append(together.slowest(run))
            if any(len(times) < 2 for times in taken.values()):
                break  # what is half a round is none
            states.append(monitor.read())
            kept.append(taken)
            progress()
    except KeyboardInterrupt:
        interrupted = True
        timed.finish()
    timings = {number: _timing([taken[number] for taken in kept]) for number in rows if kept}
    return Measured(
        timings=timings, conditions=over(states), rounds=len(kept), interrupted=interrupted
    )


def _timing(by_round: list[list[float]]) -> Timing:
    times = [us for one in by_round for us in one]
    return Timing(
        by_round=tuple(median(one) for one in by_round), samples=len(times), min_us=min(times),
        noise_pct=noise_pct(times), discarded=0,
    )  # fmt: skip
