"""Rounds of ways: each run timed by marks on its lanes, forward and backward, and every answer that
it leaves looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Protocol

import numpy as np

from cudareduce.backend import Monitor, TimedBackend
from cudareduce.bench.stream.pipeline import Checked, Piece, Stage, Way
from cudareduce.bench.stream.source import Content
from cudareduce.budget import Deadline
from cudareduce.intervals import noise_pct
from cudareduce.launch.plan import Plan, Problem
from cudareduce.machine.device import Conditions
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.reference import Reference
from cudareduce.results.record import Record
from cudareduce.timing.rounds import Timing, over
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, skipped, worse


class Together(Protocol):
    """What one of them must know of the others."""

    @property
    def ranks(self) -> int | None:
        """How many there are; None of one alone."""

    @property
    def first(self) -> bool:
        """Whether it prints and writes."""

    def share(self, n: int) -> range:
        """Which of `n` elements are its own."""

    def slowest(self, run: Callable[[], float]) -> float:
        """Begin with all others; what the slowest took. Raises what `run` does, and RankLost."""

    def common(self, rows: Set[int]) -> Set[int]:
        """Those that all go on with. Raises RankLost."""

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        """Records with the worst verdicts of all. Raises RankLost."""

    def code(self, own: int) -> int:
        """The exit code that all end with. Raises RankLost."""


class Alone:
    """Nobody else."""

    ranks, first = None, True

    def share(self, n: int) -> range:
        return range(n)

    def slowest(self, run: Callable[[], float]) -> float:
        return run()

    def common(self, rows: Set[int]) -> Set[int]:
        return rows

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        return records

    def code(self, own: int) -> int:
        return own


ALONE = Alone()


class Judge:
    """Knows what the pieces of an array must give, and the whole: each within the bound of its own
    plan, the whole with a rounding more for each piece that is folded."""

    def __init__(
        self, content: Content, pieces: Sequence[Piece], plans: Mapping[int, Plan], pattern: str
    ) -> None:
        self._pieces, self._pattern = pieces, pattern
        self._plans = [plans[piece.count] for piece in pieces]
        self._right = [content.of(piece.start, piece.end) for piece in pieces]
        n = pieces[-1].end
        self._right_whole = content.of(0, n)
        self._acc = content.reduction.acc
        self._beyond = any(map(self._is_beyond, (*self._right, self._right_whole)))
        depth = max(plan.depth for plan in self._plans) + len(pieces)
        self._whole = replace(self._plans[0], problem=Problem(content.reduction, n), depth=depth)
        self._effort = Effort(
            frozenset({(n, 1)}), frozenset({pattern}), frozenset(), len(pieces)
        )  # fmt: skip

    def verdict(self, parts: Array, whole: Array) -> Verdict:
        """On the answers of all pieces and of the whole: a failure names the first piece that is
        wrong."""
        found = RIGHT
        if self._beyond:
            name = self._acc.name
            return skipped("unfit", f"its elements leave the range of {name}: --acc takes another")
        for piece, plan, right in zip(self._pieces, self._plans, self._right, strict=True):
            one = judge(plan, parts[piece.number : piece.number + 1], right, self._pattern)
            if one is not None and one.outcome == "fail":
                return self._counted(replace(one, reason=f"{self._place(piece)}{one.reason}"))
        one = judge(self._whole, whole, self._right_whole, self._pattern)
        if one is not None:
            found = one
        return self._counted(found)

    def _is_beyond(self, right: Reference) -> bool:
        """Whether finite elements combine to what its type does not hold, on some way or other."""
        if self._acc.kind != "float" or right.magnitude is None:
            return False
        return bool((np.finfo(self._acc.storage).max < right.magnitude).any()
                    and np.isfinite(right.magnitude).all())  # fmt: skip

    def _place(self, piece: Piece) -> str:
        if len(self._pieces) == 1:
            return ""
        return f"elements {piece.start} to {piece.end - 1}, piece {piece.number + 1} of " \
               f"{len(self._pieces)}: "  # fmt: skip

    def _counted(self, verdict: Verdict) -> Verdict:
        return worse(verdict, replace(RIGHT, effort=self._effort))


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
