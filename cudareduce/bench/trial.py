"""The cases of one reduction and size, timed on one fresh input and judged by what that leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from math import inf
from typing import Any

import numpy as np

from cudareduce.backend import Launch
from cudareduce.bench.group import Group, Timed
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.gpu.cuda import CudaBackend
from cudareduce.gpu.nvml import Monitor, over
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Programs, build, usable
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.reference import Reference, reference
from cudareduce.timing.contexts import Scene, new_scene
from cudareduce.timing.late_work import late_work
from cudareduce.timing.remarks import remarks
from cudareduce.timing.rounds import Measurement, measure
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import CudaTimer
from cudareduce.verify.verdict import PASS, Verdict, judge, worse
from cudareduce.verify.verify import REPEATS

#: The device time that launches compared bit by bit may take; at least three are made.
_LEAST, _BUDGET_US = 3, 100_000.0


def distinct_answers(bound: Bound, cost_us: float) -> tuple[int, int]:
    """How many different answers some launches on one input give, bit by bit, and how many they
    were."""
    launches = max(_LEAST, min(REPEATS, int(_BUDGET_US / max(cost_us, 1.0))))
    seen = set()
    for _ in range(launches):
        bound.poison()
        bound.run()
        seen.add(bound.answers().tobytes())
    return len(seen), launches


FLOOR_EVENTS, FLOOR_LAUNCH = "floor: two events", "floor: an empty kernel"
#: Inputs up to this are uploaded to a new context for each pass. Reading more takes 60 us and
#: longer on an H200, of which what a context changes (0.2 us a launch) is no longer much.
_RENEWED_BYTES = 2**28


def methods(asked: Settings) -> tuple[Method, ...]:
    """By which methods a run times, in the order asked for."""
    kinds = [False, True] if asked.graph else [False]
    return tuple(Method(timing == "cold", graph) for timing in asked.timings for graph in kinds)


class Trial:
    """A group of right cases; may raise OutOfMemory when made, and when measured."""

    def __init__(
        self, session: Session, monitor: Monitor, group: Group, programs: Mapping[Case, Programs]
    ) -> None:
        self._session, self._group, self._programs = session, group, programs
        asked, home = session.settings, session.backend
        assert isinstance(home, CudaBackend)
        # Another seed than verification has: what a kernel may have kept from there is of no use.
        self._data = make(asked.pattern, group.what, group.n, asked.rows, asked.seed + 1)
        limits = home.limits()
        self._plans = {case: case.plan(group.n, asked.rows, limits) for case in programs}
        self._bounds: dict[Case, Bound] = {}
        self._readers: tuple[str, ...] = ()
        self._refs: dict[tuple[int, int], Reference] = {}
        self._after: dict[Case, Verdict] = {}
        self._undecided: set[Case] = set()
        self._home, self._monitor = home, monitor
        self._open = ExitStack()
        self._kept: Scene | None = None
        if self._data.nbytes > _RENEWED_BYTES:
            self._kept = self._open.enter_context(self._scene())

    def close(self) -> None:
        """Give the buffers back, and make the context current that was so before."""
        self._kept = None
        self._open.close()

    def _scene(self) -> AbstractContextManager[Scene]:
        """The scene that is kept, or a new one."""
        if self._kept is not None:
            return nullcontext(self._kept)
        return new_scene(self._home, self._monitor, self._set_up)

    def _set_up(self, backend: CudaBackend, timer: CudaTimer) -> Mapping[str, Launch]:
        """Buffers for every case in a new context, poisoned, and what is to be timed there."""
        given = backend.upload(self._data)
        needed = [(c, [step.stage for step in p.passes]) for c, p in self._plans.items()]
        built = build(backend, needed)
        readers = timer.readers(given)
        entrants = {FLOOR_EVENTS: lambda: None, FLOOR_LAUNCH: timer.empty(), **readers}
        self._readers = tuple(readers)
        first_only = self._session.settings.region == "first-pass"
        for k, (case, plan) in enumerate(self._plans.items()):
            programs = usable(built.get(case, {}))
            bound = self._bounds[case] = Bound(backend, plan, programs, given)
            entrants[str(k)] = bound.run_first if first_only else bound.run
        _ = timer.displace  # allocates
        return entrants

    @contextmanager
    def _judged(self) -> Iterator[Scene]:
        """A scene whose answers are judged once its pass is over."""
        with self._scene() as scene:
            yield scene
            if self._kept is None:
                self._judge()

    def measure(
        self, method: Method, deadline: Deadline, others: int
    ) -> tuple[dict[str, Any], list[str]]:
        """Rounds of all cases by one method: the story of the rounds, and what to say of them."""
        group, asked = self._group, self._session.settings
        found = Measurement(method)
        label = f"measuring rounds of all kernels, {method.label}"
        try:
            with self._session.phase(label, asked.rounds) as step:
                measure(
                    self._judged, asked.rounds, found, step,
                    deadline=deadline, alone=(FLOOR_EVENTS,),
                )  # fmt: skip
        finally:
            latest = found.timings
            fastest = [latest[name] for name in self._readers if name in latest]
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
            "n": group.n, "rows": asked.rows, "timing": method.label, "contexts": found.scenes,
            "repeated": found.repeated, "steady": found.steady,
            "rounds": [asdict(state) for state in found.conditions],
        }  # fmt: skip
        said = list(remarks(found, asked.deadline.seconds, others))
        late = [c.kernel.id for k, c in enumerate(self._bounds) if str(k) in found.lost]
        if late:
            said.append(
                f"the host enqueued every launch of {', '.join(late)} too late to be timed: see "
                "what else keeps its processors busy"
            )
        return story, said

    def inspect(self, hurried: bool) -> None:
        """A time stands only if every answer was right after its pass, and if nothing was written
        or is still going on elsewhere. `hurried` leaves out what takes time."""
        if self._kept is not None or not hurried:
            with self._scene() as scene:
                for bound in self._bounds.values():
                    bound.run()
                self._judge()
                if not hurried:
                    self._repeat(scene)
        self.close()
        for case in self._bounds:
            self._stand(case, self._after.get(case, PASS))
        if self._undecided and not hurried:
            left = {case: self._programs[case] for case in self._undecided}
            again = dict.fromkeys(left, PASS)
            self._session.verify(left, [(self._group.n, self._session.settings.rows)], again)
            for case, verdict in again.items():
                self._stand(case, verdict)

    def _judge(self) -> None:
        """Look at what the launches of the scene that is open have left, and at what one more gives
        from poisoned memory: the answer of the first launch would hide that of the others."""
        for case, bound in self._bounds.items():
            left: Array | None = None
            verdict: Verdict | None = PASS
            if self._session.settings.region == "total":  # a first pass alone leaves no answer
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
                self._after[case] = worse(self._after.get(case, PASS), verdict)

    def _worth(self, bound: Bound, answers: Array) -> Verdict | None:
        """The verdict on answers; None where the bound is too wide to tell."""
        group = self._group
        n, rows = shape = bound.plan.problem.n, bound.plan.problem.rows
        if shape not in self._refs:
            self._refs[shape] = reference(group.what, self._data[: n * rows], rows)
            group.conditions |= _condition(shape, self._refs[shape])
        return judge(bound.plan, answers, self._refs[shape], self._session.settings.pattern)

    def _repeat(self, scene: Scene) -> None:
        """Whether launches leave work behind, and how many answers ten of them give."""
        for case, bound in self._bounds.items():
            after = self._after.get(case, PASS)
            wrong = late_work(scene.timer, bound.run, self._cost_us(case) or inf)
            if wrong:
                after = worse(after, Verdict("fail", wrong))
            if after.outcome == "pass":
                distinct, launches = distinct_answers(bound, self._cost_us(case))
                after = worse(after, self._worth(bound, bound.answers()) or PASS)
                after = replace(after, distinct=distinct, launches=launches)
            self._after[case] = after

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
