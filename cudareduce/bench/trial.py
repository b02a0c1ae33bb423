"""Time the cases of one reduction and size on one new input, and judge their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

import numpy as np

from cudareduce.backends.protocol import Launch, Monitor, TimedBackend
from cudareduce.bench.preconditions import timed_input
from cudareduce.bench.records import Group, Times
from cudareduce.bench.session import Session
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Prepared, programs_of
from cudareduce.reduction.reference import Reference
from cudareduce.timing.rounds import Context, Measurement, measure, new_context, over, remarks
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer, find_unfinished_work, joules
from cudareduce.verify.jobs import combined
from cudareduce.verify.result_monitor import (
    OwnBuffers,
    ResultMonitor,
    TimedData,
    TimedInput,
    distinct_results,
)
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, worse

FLOOR_EVENTS, FLOOR_LAUNCH = "floor: two events", "floor: an empty kernel"
#: Inputs up to this are uploaded to a new context for each half round. Reading more takes at least
#: 60 us on an H200, of which the influence of a context (0.2 us per launch) is negligible.
_RENEWED_BYTES = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodResult:
    """Times of one timing method, the protocol of its rounds, and remarks for the user."""

    times: Times
    protocol: Mapping[str, Any]
    remarks: tuple[str, ...]
    interrupted: bool


class Trial:
    """Times the correct cases of a group. Every method may raise OutOfMemory."""

    def __init__(
        self,
        session: Session,
        home: TimedBackend,
        monitor: Monitor,
        group: Group,
        right: Sequence[Prepared],
    ) -> None:
        self._session, self._settings, self._group = session, session.settings, group
        self._right = {one.case: one for one in right}
        self._plans = {one.case: group.plans[one.case] for one in right}
        settings = session.settings
        pattern, reduction = timed_input(settings.pattern, group.reduction, list(self._plans))
        self._data = TimedData(
            pattern, reduction, group.n, settings.rows, settings.timed_seed, self._plans.values()
        )
        self._bounds: dict[Case, Bound] = {}
        self._monitors: dict[Case, ResultMonitor[Case]] = {}
        self._readers: tuple[str, ...] = ()
        self._given: TimedInput | None = None
        self._keep_cache = False
        self._after: dict[Case, Verdict] = {}
        self._joules: dict[Case, float] = {}
        self._undecided: set[Case] = set()
        self._home, self._monitor = home, monitor
        self._open = ExitStack()
        self._kept: Context | None = None
        if self._data.nbytes > _RENEWED_BYTES:
            self._kept = self._open.enter_context(self._context())

    def close(self) -> None:
        """Free the buffers and restore the previous CUDA context."""
        self._kept = None
        self._open.close()

    def _context(self) -> AbstractContextManager[Context]:
        """The shared timing context, or a new one."""
        if self._kept is not None:
            return nullcontext(self._kept)
        return new_context(self._home, self._monitor, self._set_up, self._watches)

    def _set_up(self, backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        """Allocate poisoned buffers for every case in a new context; returns the launches to
        time."""
        in_place = any(plan.kernel.in_place for plan in self._plans.values())
        given = self._given = TimedInput(backend, timer, self._data, spare=in_place)
        programs = programs_of(backend, self._plans)
        readers = timer.readers(given.buffer)
        entrants = {FLOOR_EVENTS: lambda: None, FLOOR_LAUNCH: timer.empty(), **readers}
        self._readers = tuple(readers)
        first_only = self._settings.region == "first-pass"
        for k, (case, plan) in enumerate(self._plans.items()):
            bound = self._bounds[case] = Bound(
                backend, plan, programs[case], given.buffer, None, *given.buffers[1:]
            )
            if self._keep_cache and plan.kernel.in_place:
                continue  # restoring the input would fill the cache
            entrants[str(k)] = bound.run_first if first_only else bound.run
        memory = OwnBuffers(self._bounds, timer)
        self._monitors = {
            case: ResultMonitor(
                case, bound, given, memory, timer, keep_cache=self._keep_cache,
                first=bound if first_only else None,
            ) for case, bound in self._bounds.items()
        }  # fmt: skip
        _ = timer.flush  # allocates
        return entrants

    def _watches(self) -> Mapping[str, ResultMonitor[Case]]:
        """The result monitors of the launches that `_set_up` has returned, by name."""
        return {str(k): self._monitors[case] for k, case in enumerate(self._plans)}

    @contextmanager
    def _judged_context(self) -> Iterator[Context]:
        """A context whose results are judged at the end of its half round."""
        with self._context() as context:
            yield context
            self._collect_verdicts()
            if self._kept is None:
                self._judge()

    def _collect_verdicts(self) -> None:
        """Collect the verdicts of the monitors."""
        for case, monitor in self._monitors.items():
            self._after[case] = worse(self._after.get(case, RIGHT), monitor.verdict)
            if monitor.undecided:
                self._undecided.add(case)

    def measure(self, method: Method, deadline: Deadline, others: int) -> MethodResult:
        """Measure rounds of all cases by one method. `others` is the number of other processes on
        the GPU. Raises EnvironmentProblem if the device does not support the method."""
        self._keep_cache = not method.cold
        label = f"measuring rounds of all kernels, {method.label}"
        with self._session.phase(label, self._settings.rounds) as progress:
            measured = measure(
                self._judged_context, self._settings.rounds, method, progress.step,
                deadline=deadline, alone=(FLOOR_EVENTS,),
            )  # fmt: skip
        timings = measured.timings
        readers = [timings[name] for name in self._readers if name in timings]
        floors = (FLOOR_EVENTS, FLOOR_LAUNCH)
        times = Times(
            timings={c: timings[str(k)] for k, c in enumerate(self._plans) if str(k) in timings},
            ceiling=min(readers, key=lambda timing: timing.median_us, default=None),
            floors={name: timings[name].median_us for name in floors if name in timings},
            conditions=over(measured.conditions),
        )
        notes = list(remarks(measured, self._settings.deadline.seconds, others))
        late = [case.kernel.id for k, case in enumerate(self._plans) if str(k) in measured.lost]
        if late:
            notes.append(
                f"the host enqueued every launch of {', '.join(late)} too late to be timed; "
                "other processes may be using the CPU"
            )
        warm = [case.kernel.id for case in self._plans if case.kernel.in_place and not method.cold]
        if warm:
            notes.append(f"{', '.join(warm)}: no warm time, since its input is restored before it")
        return MethodResult(
            times=times, protocol=self._protocol(method, measured), remarks=tuple(notes),
            interrupted=measured.interrupted,
        )  # fmt: skip

    def _protocol(self, method: Method, measured: Measurement) -> dict[str, Any]:
        reduction = self._group.reduction
        return {
            "op": reduction.op.name, "dtype": reduction.dtype.name, "acc": reduction.acc.name,
            "n": self._group.n, "rows": self._settings.rows, "timing": method.label,
            "contexts": measured.contexts, "repeated": measured.repeated,
            "steady": measured.steady,
            "rounds": [asdict(state) for state in measured.conditions],
        }  # fmt: skip

    def verify_after_timing(self, group: Group, *, hurried: bool) -> Group:
        """The group with the verdicts after timing. A time is kept only if all results were right,
        no buffer guard was overwritten, and no work was unfinished at the end event. `hurried`
        skips slow checks."""
        costs_us = {
            case: timing.median_us
            for times in reversed(list(group.times.values()))
            for case, timing in times.timings.items()
        }  # fmt: skip
        if self._kept is not None or not hurried:
            with self._context() as context:
                self._judge()
                if not hurried:
                    self._count(context, costs_us)
                    self._repeat(context, costs_us)
        self.close()
        verdicts = {case: self._after.get(case, RIGHT) for case in self._bounds}
        again: dict[Case, Verdict] = {}
        if self._undecided and not hurried:
            left = [self._right[case] for case in self._undecided]
            known = dict.fromkeys(self._undecided, RIGHT)
            shapes = {case: [(group.n, self._settings.rows)] for case in self._undecided}
            verified = self._session.verify(left, shapes, known)
            if verified.interrupted:
                raise KeyboardInterrupt
            again = dict(verified.verdicts)
        for case in self._bounds:
            group = _with_verdict(group, case, verdicts[case])
        for case, verdict in again.items():
            group = _with_verdict(group, case, verdict)
        taken = {(plan.problem.n, plan.problem.rows) for plan in self._plans.values()}
        numbers = {shape: _condition_number(self._data.reference(shape, 0)) for shape in taken}
        return replace(
            group, condition_numbers={s: number for s, number in numbers.items() if number},
            joules=self._joules,
        )  # fmt: skip

    def _judge(self) -> None:
        """Judge one more launch of each case with poisoned memory."""
        given = self._given
        assert given is not None
        given.restored()
        for case, bound in self._bounds.items():
            bound.poison()
            bound.run()
            verdict = self._data.judged(bound.plan, bound.results(), 0)
            kept = given.restored() or bound.plan.kernel.in_place
            damage = bound.damage() or (None if kept else WROTE_INPUT)
            if damage:
                verdict = Verdict("fail", damage)
            if verdict is None:
                self._undecided.add(case)
            else:
                self._after[case] = worse(self._after.get(case, RIGHT), verdict)

    def _count(self, context: Context, costs_us: Mapping[Case, float]) -> None:
        """Measure the energy of timed launches, until the deadline."""
        for k, case in enumerate(self._plans if self._settings.energy else ()):
            run = context.entrants.get(str(k))
            if run and case in costs_us and not self._settings.deadline.passed:
                counter = self._monitor.energy_j
                took = joules(context.timer, run, costs_us[case], counter)
                self._joules |= {} if took is None else {case: took}

    def _repeat(self, context: Context, costs_us: Mapping[Case, float]) -> None:
        """Check for unfinished work, and count the distinct results of repeated launches."""
        given = self._given
        assert given is not None
        for case, bound in self._bounds.items():
            after, cost_us = self._after.get(case, RIGHT), costs_us.get(case, 0.0)
            wrong = find_unfinished_work(context.timer, bound.run, cost_us or inf)
            if wrong:
                after = worse(after, Verdict("fail", wrong))
            if after.outcome == "pass":
                given.restored()
                distinct, launches = distinct_results(bound, cost_us, given)
                after = worse(after, self._data.judged(bound.plan, bound.results(), 0) or RIGHT)
                after = replace(after, distinct=distinct, launches=launches)
            if not given.restored() and not bound.plan.kernel.in_place:
                after = worse(after, Verdict("fail", WROTE_INPUT))
            self._after[case] = after


def _with_verdict(group: Group, case: Case, verdict: Verdict) -> Group:
    """The group with verdicts after timing included: wrong kernels have no times."""
    if verdict.outcome == "fail":
        verdict = replace(verdict, reason=f"after timing: {verdict.reason}")
        left = {
            label: replace(times, timings={c: t for c, t in times.timings.items() if c != case})
            for label, times in group.times.items()
        }
        group = replace(group, times=left)
    stands = combined(group.verdicts[case], verdict)
    if stands.outcome == "pass" and verdict.error is not None:
        # The table shows the error on the timed input.
        stands = replace(
            verdict, reason=stands.reason, undecided=stands.undecided, distinct=stands.distinct,
            launches=stands.launches, effort=stands.effort,
        )  # fmt: skip
    return replace(group, verdicts={**group.verdicts, case: stands})


def _condition_number(ref: Reference) -> float | None:
    """The condition number of a float sum: the largest sum|x| / |sum x| of its rows, or None."""
    if ref.magnitude is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        number = float(np.max(ref.magnitude / np.abs(ref.expected)))
    return number if np.isfinite(number) else None
