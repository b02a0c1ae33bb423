"""The cases of one reduction and size, timed on one fresh input and judged by what that leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from cudareduce.advice import remarks
from cudareduce.budget import Deadline
from cudareduce.cuda import CudaBackend
from cudareduce.execute import Bound, Case, Programs
from cudareduce.hygiene import distinct_answers, late_work
from cudareduce.inputs import make
from cudareduce.join import Group, Timed
from cudareduce.measure import Measurement, measure
from cudareduce.nvml import over
from cudareduce.reference import Reference, reference
from cudareduce.sampling import Method
from cudareduce.session import Session, Settings
from cudareduce.timer import CudaTimer
from cudareduce.verify import PASS, Verdict, judge, worse

FLOOR_EVENTS, FLOOR_LAUNCH = "floor: two events", "floor: an empty kernel"


def methods(asked: Settings) -> tuple[Method, ...]:
    """By which methods a run times, in the order asked for."""
    kinds = [False, True] if asked.graph else [False]
    return tuple(Method(timing == "cold", graph) for timing in asked.timings for graph in kinds)


class Trial:
    """Buffers for a group of right cases; may raise OutOfMemory when made."""

    def __init__(
        self, session: Session, timer: CudaTimer, group: Group, programs: Mapping[Case, Programs]
    ) -> None:
        self._session, self._timer, self._group, self._programs = session, timer, group, programs
        asked = session.settings
        backend = session.backend
        assert isinstance(backend, CudaBackend)
        self._backend = backend
        # Another seed than verification has: what a kernel may have kept from there is of no use.
        self._data = make(asked.pattern, group.what, group.n, asked.rows, asked.seed + 1)
        self._given = backend.upload(self._data)
        self._bounds: dict[Case, Bound] = {}
        try:
            _ = timer.displace
            for case, made in programs.items():
                plan = case.plan(group.n, asked.rows, backend.limits())
                self._bounds[case] = Bound(backend, plan, made, self._given)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the buffers back."""
        self._timer.release()
        for bound in self._bounds.values():
            bound.release()
        self._backend.free(self._given)

    def measure(
        self, method: Method, deadline: Deadline, others: int
    ) -> tuple[dict[str, Any], list[str]]:
        """Rounds of all cases by one method: the story of the rounds, and what to say of them."""
        timer, group, asked = self._timer, self._group, self._session.settings
        first_only = asked.region == "first-pass"
        readers = timer.readers(self._given)
        entrants = {FLOOR_EVENTS: lambda: None, FLOOR_LAUNCH: timer.empty(), **readers}
        if method.graph:
            del entrants[FLOOR_EVENTS]  # a graph of nothing
        for k, bound in enumerate(self._bounds.values()):
            bound.poison()
            entrants[str(k)] = bound.run_first if first_only else bound.run
        found = Measurement(method)
        label = f"measuring rounds of all kernels, {method.label}"
        try:
            with self._session.phase(label, asked.rounds) as step:
                measure(
                    timer, entrants, asked.rounds, found, step,
                    deadline=deadline, alone=(FLOOR_EVENTS,),
                )  # fmt: skip
        finally:
            latest = found.timings
            fastest = [latest[name] for name in readers if name in latest]
            group.timed[method.label] = Timed(
                {c: latest[str(k)] for k, c in enumerate(self._bounds) if str(k) in latest},
                min(fastest, key=lambda timing: timing.median_us, default=None),
                {
                    name: latest[name].median_us
                    for name in (FLOOR_EVENTS, FLOOR_LAUNCH) if name in latest
                },
                over(found.conditions),
            )  # fmt: skip
        story = {
            "op": group.what.op.name, "dtype": group.what.dtype.name, "acc": group.what.acc.name,
            "n": group.n, "rows": asked.rows, "timing": method.label, "repeated": found.repeated,
            "steady": found.steady, "rounds": [asdict(state) for state in found.conditions],
        }  # fmt: skip
        return story, list(remarks(found, asked.deadline.seconds, others))

    def inspect(self, hurried: bool) -> None:
        """A time stands only if the answer is still right once it has been taken, and if nothing
        was written or is still going on elsewhere. `hurried` leaves out what takes time."""
        session, group, asked = self._session, self._group, self._session.settings
        refs: dict[tuple[int, int], Reference] = {}
        undecided = {}
        for case, bound in self._bounds.items():
            if asked.region == "first-pass":
                bound.run()
            n, rows = shape = bound.plan.problem.n, bound.plan.problem.rows
            if shape not in refs:
                refs[shape] = reference(group.what, self._data[: n * rows], rows)
                group.conditions |= _condition(shape, refs[shape])
            after = judge(bound.plan, bound.answers(), refs[shape], asked.pattern)
            wrong = bound.damage() or (None if hurried else late_work(self._timer, bound.run))
            if wrong:
                after = Verdict("fail", wrong)
            if after is None:
                undecided[case] = self._programs[case]
                after = PASS
            if after.outcome == "pass" and not hurried:
                distinct, launches = distinct_answers(bound, self._cost_us(case))
                after = replace(after, distinct=distinct, launches=launches)
            self._stand(case, after)
        if undecided and not hurried:
            again = dict.fromkeys(undecided, PASS)
            session.verify(undecided, [(group.n, asked.rows)], again)
            for case, verdict in again.items():
                self._stand(case, verdict)

    def _cost_us(self, case: Case) -> float:
        times = (t.timings[case].median_us for t in self._group.timed.values() if case in t.timings)
        return next(times, 0.0)

    def _stand(self, case: Case, verdict: Verdict) -> None:
        group = self._group
        if verdict.outcome == "fail":
            verdict = replace(verdict, reason=f"after timing: {verdict.reason}")
            for found in group.timed.values():
                found.timings.pop(case, None)
        stands = worse(group.verdicts[case], verdict)
        if stands.outcome == "pass" and verdict.error is not None:
            # What is printed beside a time is the error on the input that was timed.
            stands = replace(verdict, distinct=stands.distinct, launches=stands.launches)
        group.verdicts[case] = stands


def _condition(shape: tuple[int, int], ref: Reference) -> dict[tuple[int, int], float]:
    """The condition number of a float sum of this shape: how far cancellation magnifies errors."""
    if ref.magnitude is None:
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        condition = float(np.max(ref.magnitude / np.abs(ref.expected)))
    return {shape: condition} if np.isfinite(condition) else {}
