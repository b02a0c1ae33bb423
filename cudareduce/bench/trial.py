"""The cases of one reduction and size, timed on one fresh input and judged by what that leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

import numpy as np

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.bench.group import Group, Times
from cudareduce.bench.session import Session
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Prepared, Shape, programs_of
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.reference import Reference, reference
from cudareduce.timing.contexts import Context, new_context
from cudareduce.timing.late_work import late_work
from cudareduce.timing.remarks import remarks
from cudareduce.timing.rounds import Measurement, measure, over
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.inputs import REPEATS
from cudareduce.verify.verdict import RIGHT, Verdict, judge, worse

FLOOR_EVENTS, FLOOR_LAUNCH = "floor: two events", "floor: an empty kernel"
#: Inputs up to this are uploaded to a new context for each half round. Reading more takes 60 us and
#: longer on an H200, of which what a context changes (0.2 us a launch) is no longer much.
_RENEWED_BYTES = 2**28
#: The device time that launches compared bit by bit may take; at least three are made.
_LEAST, _BUDGET_US = 3, 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one method found, how its rounds went, and what to say of them."""

    times: Times
    story: Mapping[str, Any]
    remarks: tuple[str, ...]
    interrupted: bool


class Trial:
    """A group of right cases; may raise OutOfMemory when made, when measured and when judged."""

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
        # Another seed than verification has: what a kernel may have kept from there is of no use.
        settings = session.settings
        self._data = make(
            settings.pattern, group.reduction, group.n, settings.rows, settings.seed + 1
        )
        self._bounds: dict[Case, Bound] = {}
        self._readers: tuple[str, ...] = ()
        self._refs: dict[Shape, Reference] = {}
        self._after: dict[Case, Verdict] = {}
        self._undecided: set[Case] = set()
        self._home, self._monitor = home, monitor
        self._open = ExitStack()
        self._kept: Context[DeviceTimer] | None = None
        if self._data.nbytes > _RENEWED_BYTES:
            self._kept = self._open.enter_context(self._context())

    def close(self) -> None:
        """Give the buffers back, and make the context current that was so before."""
        self._kept = None
        self._open.close()

    def _context(self) -> AbstractContextManager[Context[DeviceTimer]]:
        """The context that is kept, or a new one."""
        if self._kept is not None:
            return nullcontext(self._kept)
        return new_context(self._home, self._monitor, self._set_up)

    def _set_up(self, backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        """Buffers for every case in a new context, poisoned, and what is to be timed there."""
        given = backend.upload(self._data)
        programs = programs_of(backend, self._plans)
        readers = timer.readers(given)
        entrants = {FLOOR_EVENTS: lambda: None, FLOOR_LAUNCH: timer.empty(), **readers}
        self._readers = tuple(readers)
        first_only = self._settings.region == "first-pass"
        for k, (case, plan) in enumerate(self._plans.items()):
            bound = self._bounds[case] = Bound(backend, plan, programs[case], given)
            entrants[str(k)] = bound.run_first if first_only else bound.run
        _ = timer.displace  # allocates
        return entrants

    @contextmanager
    def _looked_at(self) -> Iterator[Context[DeviceTimer]]:
        """A context whose answers are judged once its half round is over."""
        with self._context() as context:
            yield context
            if self._kept is None:
                self._judge()

    def measure(self, method: Method, deadline: Deadline, others: int) -> Found:
        """Rounds of all cases by one method, while `others` processes use the device besides.
        Raises EnvironmentProblem where the device cannot be timed so."""
        label = f"measuring rounds of all kernels, {method.label}"
        with self._session.phase(label, self._settings.rounds) as progress:
            measured = measure(
                self._looked_at, self._settings.rounds, method, progress.step,
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
        said = list(remarks(measured, self._settings.deadline.seconds, others))
        late = [case.kernel.id for k, case in enumerate(self._plans) if str(k) in measured.lost]
        if late:
            said.append(
                f"the host enqueued every launch of {', '.join(late)} too late to be timed: see "
                "what else keeps its processors busy"
            )
        return Found(
            times=times, story=self._story(method, measured), remarks=tuple(said),
            interrupted=measured.interrupted,
        )  # fmt: skip

    def _story(self, method: Method, measured: Measurement) -> dict[str, Any]:
        reduction = self._group.reduction
        return {
            "op": reduction.op.name, "dtype": reduction.dtype.name, "acc": reduction.acc.name,
            "n": self._group.n, "rows": self._settings.rows, "timing": method.label,
            "contexts": measured.contexts, "repeated": measured.repeated,
            "steady": measured.steady,
            "rounds": [asdict(state) for state in measured.conditions],
        }  # fmt: skip

    def judged(self, group: Group, *, hurried: bool) -> Group:
        """The group with what its times are worth: a time stands only if every answer was right
        after its half round, and if nothing was written or is still going on elsewhere. `hurried`
        leaves out what takes time."""
        costs_us = {
            case: timing.median_us
            for times in reversed(list(group.times.values()))
            for case, timing in times.timings.items()
        }  # fmt: skip
        if self._kept is not None or not hurried:
            with self._context() as context:
                for bound in self._bounds.values():
                    bound.run()
                self._judge()
                if not hurried:
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
            group = _standing(group, case, verdicts[case])
        for case, verdict in again.items():
            group = _standing(group, case, verdict)
        numbers = {shape: _condition_number(ref) for shape, ref in self._refs.items()}
        return replace(
            group, condition_numbers={s: number for s, number in numbers.items() if number}
        )

    def _judge(self) -> None:
        """Look at what the launches in the open context have left, and at what one more gives from
        poisoned memory: the answer of the first launch would hide that of the others."""
        for case, bound in self._bounds.items():
            left: Array | None = None
            verdict: Verdict | None = RIGHT
            if self._settings.region == "total":  # a first pass alone leaves no answer
                left = bound.answers()
                verdict = self._worth(bound, left)
            if verdict is None or verdict.outcome == "pass":
                bound.poison()
                bound.run()
                again = bound.answers()
                if left is None or again.tobytes() != left.tobytes():
                    verdict = self._worth(bound, again)
            damage = bound.damage()
            if damage:
                verdict = Verdict("fail", damage)
            if verdict is None:
                self._undecided.add(case)
            else:
                self._after[case] = worse(self._after.get(case, RIGHT), verdict)

    def _worth(self, bound: Bound, answers: Array) -> Verdict | None:
        """The verdict on answers; None where the bound is too wide to tell."""
        n, rows = shape = bound.plan.problem.n, bound.plan.problem.rows
        if shape not in self._refs:
            self._refs[shape] = reference(self._group.reduction, self._data[: n * rows], rows)
        return judge(bound.plan, answers, self._refs[shape], self._settings.pattern)

    def _repeat(self, context: Context[DeviceTimer], costs_us: Mapping[Case, float]) -> None:
        """Whether launches leave work behind, and how many answers ten of them give."""
        for case, bound in self._bounds.items():
            after, cost_us = self._after.get(case, RIGHT), costs_us.get(case, 0.0)
            wrong = late_work(context.timer, bound.run, cost_us or inf)
            if wrong:
                after = worse(after, Verdict("fail", wrong))
            if after.outcome == "pass":
                distinct, launches = distinct_answers(bound, cost_us)
                after = worse(after, self._worth(bound, bound.answers()) or RIGHT)
                after = replace(after, distinct=distinct, launches=launches)
            self._after[case] = after


def distinct_answers(bound: Bound, cost_us: float) -> tuple[int, int]:
    """How many different answers some launches on one input give, bit by bit, and how many they
    were; one takes about `cost_us`."""
    launches = max(_LEAST, min(REPEATS, int(_BUDGET_US / max(cost_us, 1.0))))
    seen = set()
    for _ in range(launches):
        bound.poison()
        bound.run()
        seen.add(bound.answers().tobytes())
    return len(seen), launches


def _standing(group: Group, case: Case, verdict: Verdict) -> Group:
    """The group with a verdict after timing taken into account: what is wrong has no times."""
    if verdict.outcome == "fail":
        verdict = replace(verdict, reason=f"after timing: {verdict.reason}")
        left = {
            label: replace(times, timings={c: t for c, t in times.timings.items() if c != case})
            for label, times in group.times.items()
        }
        group = replace(group, times=left)
    stands = worse(group.verdicts[case], verdict)
    if stands.outcome == "pass" and verdict.error is not None:
        # What is printed beside a time is the error on the input that was timed.
        stands = replace(
            verdict, distinct=stands.distinct, launches=stands.launches, effort=stands.effort
        )
    return replace(group, verdicts={**group.verdicts, case: stands})


def _condition_number(ref: Reference) -> float | None:
    """How far cancellation magnifies the errors of a float sum: the largest sum|x| / |sum x| of its
    rows; None where there is none."""
    if ref.magnitude is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        number = float(np.max(ref.magnitude / np.abs(ref.expected)))
    return number if np.isfinite(number) else None
