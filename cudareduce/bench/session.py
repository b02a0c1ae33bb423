"""A session of `bench` or `verify`: an open backend that compiles and verifies cases.

Kernels that could crash this process are verified in worker processes: every kernel on the CPU, and
external files on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Protocol, TypeVar

from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.bench.jobs import LARGE_BYTES, Jobs, Shapes
from cudareduce.bench.settings import Settings
from cudareduce.errors import BuildError, OutOfMemory
from cudareduce.launch.bound import Workspaces
from cudareduce.launch.case import Case, Prepared, Shape, build, planned
from cudareduce.launch.plan import Plan
from cudareduce.machine import cpu_count, why_too_large
from cudareduce.progress import Progress
from cudareduce.reduction.sizes import counted
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.jobs import Job, combined, estimated_s
from cudareduce.verify.test_sets import TestSet
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, unbuilt, worse
from cudareduce.verify.verification import verify

#: Elements per second at which the host of an H200 makes an input and its reference result (2^30
#: took 7 s).
_ELEMENTS_PER_S = 1.5e8
#: The reason of a case that was not verified because of Ctrl-C.
_INTERRUPTED = "interrupted before it was verified"

#: Remark on a correct kernel that overwrites its input.
_RESTORED = "overwrites its input, which is restored before each launch"

#: The additional test sets of each case.
TestSets = Mapping[Case, Sequence[TestSet]]


class Phase(Protocol):
    """Starts a progress display of `total` steps; `work` is their total work if steps differ."""

    def __call__(
        self, what: str, total: int, *, work: float = 0.0
    ) -> AbstractContextManager[Progress]: ...


@dataclass(frozen=True, slots=True)
class VerificationTask:
    """Verify a case at these shapes and with these test sets."""

    case: Case
    shapes: tuple[Shape, ...]
    test_sets: Sequence[TestSet] = ()


_TaskKey = tuple[Case, tuple[Shape, ...]]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Verified:
    """A verdict on every requested case. `interrupted`: Ctrl-C ended verification, and the
    remaining cases are skipped."""

    verdicts: Mapping[Case, Verdict]
    interrupted: bool = False


class Session:
    """An open backend, the settings of a run, and the worker processes that verify its cases."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, settings: Settings, phase: Phase
    ) -> None:
        self.backend, self.spec = backend, spec
        self.settings, self.phase = settings, phase
        self.jobs = Jobs(backend, spec, settings)
        self.isolation = Isolation()
        self._workspaces = Workspaces(backend)
        self._ahead: dict[_TaskKey, Verdict] = {}  # verdicts of `verify_ahead`
        self.interrupted = False  # Ctrl-C has ended `verify_ahead`

    def close(self) -> None:
        """End the worker processes, and free the workspaces of kernels."""
        self.isolation.close()
        self._workspaces.release()

    def prepare(
        self, cases: Sequence[Case], shapes: Shapes, test_sets: TestSets | None = None, *,
        in_workers: bool = False,
    ) -> tuple[list[Prepared], dict[Case, Verdict]]:  # fmt: skip
        """Plan cases for their shapes, and compile the programs of these plans and of `test_sets`.

        Returns the compiled cases, and verdicts for those that do not compile or were not compiled
        before the deadline. On the emulator, `in_workers` leaves compiling to the workers."""
        limits, deadline = self.backend.limits(), self.settings.deadline
        plans = {case: planned(case, shapes[case], limits) for case in cases}
        if in_workers and self.backend.traits.isolated:
            return [Prepared(case, *plans[case], {}) for case in cases], {}
        needed = {case: list(taken.values()) for case, (taken, _) in plans.items()}
        test_set_plans = self._planned_test_sets(test_sets or {})
        units = sum(
            len({unit for plan in some for unit in plan.units})
            for planned_here in (needed, *test_set_plans.values()) for some in planned_here.values()
        )  # fmt: skip
        with self.phase("compiling", units) as progress:
            built = build(self.backend, needed, progress.step, deadline)
            # Workers load these programs from the cache, and report compile errors.
            for spec, plans_of in test_set_plans.items():
                same = nullcontext(self.backend) if spec == self.spec else None
                with same or open_backend(spec) as other:
                    build(other, plans_of, progress.step, deadline)
        left = {case: skipped("time", self.why_cut()) for case in cases if case not in built}
        left |= {
            case: unbuilt(made, of_others=case.kernel.program is not None)
            for case, made in built.items() if isinstance(made, BuildError)
        }  # fmt: skip
        return [
            Prepared(case, *plans[case], made)
            for case, made in built.items() if not isinstance(made, BuildError)
        ], left  # fmt: skip

    def _planned_test_sets(self, test_sets: TestSets) -> dict[BackendSpec, dict[Case, list[Plan]]]:
        """The plans of the test sets on each backend, by case."""
        plans: dict[BackendSpec, dict[Case, list[Plan]]] = {}
        for test_set in (test_set for some in test_sets.values() for test_set in some):
            on = plans.setdefault(self.jobs.spec_of(test_set), {})
            taken, _ = planned(test_set.case, test_set.shapes, test_set.limits)
            on[test_set.case] = [*on.get(test_set.case, ()), *taken.values()]
        return plans

    def verify(
        self,
        prepared: Sequence[Prepared],
        shapes: Shapes,
        known: Mapping[Case, Verdict],
        *,
        test_sets: TestSets | None = None,
        skip_others: bool = False,
    ) -> Verified:
        """Verify cases at their shapes and with the test sets in `test_sets`.

        Verdicts are combined with those in `known`; cases that failed there are not verified again.
        Cases that the deadline cuts off are skipped. A verdict names shapes that the case does not
        support, and is a skip if it supports none; `skip_others` ignores such shapes."""
        verdicts = dict(known)
        refused = {} if skip_others else dict(_refused(prepared, shapes))
        for one in prepared:
            if one.case in refused and not _supported(one, shapes):
                skip = skipped("unfit", refused[one.case])
                verdicts[one.case] = worse(verdicts.get(one.case, RIGHT), skip)
        open_cases = [
            one for one in prepared
            if _is_open(one.case, verdicts) and _supported(one, shapes)
        ]  # fmt: skip
        in_workers = [p for p in open_cases if self._isolated(p.case)]
        in_process = [p for p in open_cases if not self._isolated(p.case)]
        known_ahead = {
            one.case: self._ahead[key] for one in in_workers
            if (key := (one.case, tuple(shapes[one.case]))) in self._ahead
        }  # fmt: skip
        in_workers = [
            one for one in in_workers if one.case not in known_ahead and not self.interrupted
        ]
        unverified, interrupted = {one.case for one in open_cases}, self.interrupted
        try:
            with self.phase("verifying", len(in_process) + len(in_workers)) as progress:
                for case, verdict in chain(
                    known_ahead.items(),
                    self._verify_in_process(in_process, shapes, progress),
                    self._verify_in_workers(in_workers, shapes, test_sets or {}, progress),
                ):
                    verdicts[case] = combined(verdicts.get(case, RIGHT), verdict)
                    remarks = _remarks(case, shapes[case], refused.get(case))
                    for remark in (*remarks, *self._untested(case, shapes[case])):
                        verdicts[case] = combined(verdicts[case], replace(RIGHT, reason=remark))
                    unverified.discard(case)
                    progress.step()
        except KeyboardInterrupt:
            interrupted = True
        why = _INTERRUPTED if interrupted else self.why_cut()
        return Verified(verdicts | dict.fromkeys(unverified, skipped("time", why)), interrupted)

    def _untested(self, case: Case, shapes: Sequence[Shape]) -> Iterator[str]:
        """A remark with the largest tested size of an external program, if no sizes are requested.
        Host code cannot run at sizes whose indices need more than 32 bits."""
        program, most = case.kernel.program, max(shapes, key=prod, default=None)
        if program is not None and most and not (self.settings.sizes or case.precondition.sizes):
            yield f"tested up to {_size_text(most)}, not with indices beyond 32 bits"

    def _verify_in_process(
        self, prepared: Sequence[Prepared], shapes: Shapes, progress: Progress
    ) -> Iterator[tuple[Case, Verdict]]:
        """Yield verdicts of cases that are verified in this process, failures first. Stops at the
        deadline."""
        verdicts = {one.case: RIGHT for one in prepared}
        for shape in dict.fromkeys(s for one in prepared for s in _supported(one, shapes)):
            deadline = self.settings.deadline
            if deadline.passed or shape[0] * shape[1] / _ELEMENTS_PER_S > deadline.left_s:
                return
            progress.now(f"{counted(len(prepared), 'kernel')} at {_size_text(shape)}")
            left = [
                one for one in prepared
                if shape in _supported(one, shapes) and _is_open(one.case, verdicts)
            ]  # fmt: skip
            for case, verdict in self._verify_here(left, shape).items():
                verdicts[case] = worse(verdicts[case], verdict)
                if verdicts[case].outcome != "pass":
                    yield case, verdicts[case]
        yield from (item for item in verdicts.items() if item[1].outcome == "pass")

    def _verify_in_workers(
        self,
        prepared: Sequence[Prepared],
        shapes: Shapes,
        test_sets: TestSets,
        progress: Progress,
    ) -> Iterator[tuple[Case, Verdict]]:
        """Yield verdicts of cases that are verified in worker processes. The number of workers is
        limited by CPU cores and host memory."""
        queues: dict[Case, list[Job]] = {}
        for one in prepared:
            too_large = self.why_too_large(one.case, shapes[one.case])
            if too_large:
                yield one.case, skipped("machine", too_large)
            else:
                queues[one.case] = self.jobs.of(one, shapes[one.case], test_sets.get(one.case, ()))
        shared, count = self._shared(queues)
        yield from self.isolation.verify(shared, count, self.settings.deadline, _started(progress))

    def _shared(self, queues: Mapping[_Key, Sequence[Job]]) -> tuple[dict[_Key, list[Job]], int]:
        """The jobs with their number of threads, and the number of jobs that run at a time, limited
        by CPU cores and host memory."""
        jobs = [job for queue in queues.values() for job in queue]
        largest = max((job.input_bytes for job in jobs), default=0)
        largest *= self.backend.traits.host_copies
        cores = cpu_count()
        count = next(
            (k for k in range(min(cores, len(jobs)), 1, -1) if why_too_large(k * largest) is None),
            1,
        )
        threads = max(1, cores // count)
        return {
            key: [replace(job, spec=replace(job.spec, threads=threads)) for job in queue]
            for key, queue in queues.items()
        }, count

    def why_too_large(self, case: Case, shapes: Sequence[Shape]) -> str | None:
        """Why the largest input does not fit into host memory; None if it does."""
        size = case.reduction.dtype.size * case.reduction.inputs
        nbytes = max((n * rows for n, rows in shapes), default=0) * size
        return why_too_large(nbytes * self.backend.traits.host_copies)

    def verify_ahead(self, tasks: Sequence[VerificationTask]) -> None:
        """Verify all tasks of a run in worker processes; `verify` then returns these verdicts.

        The shortest case runs first, so that a result appears early, then the longest. After a
        failure, the remaining tasks of that case are dropped."""
        queues: dict[_TaskKey, list[Job]] = {}
        for task in tasks:
            key = task.case, task.shapes
            plans, refusals = planned(task.case, task.shapes, self.backend.limits())
            prepared = Prepared(task.case, plans, refusals, {})
            if not self._isolated(task.case) or not self.backend.traits.isolated or not plans:
                continue
            too_large = self.why_too_large(task.case, task.shapes)
            if too_large:
                self._ahead[key] = skipped("machine", too_large)
            else:
                queues[key] = self.jobs.of(prepared, task.shapes, task.test_sets)
        seconds = {key: sum(map(estimated_s, queue)) for key, queue in queues.items()}
        left: dict[Case, set[_TaskKey]] = {}
        for key in queues:
            left.setdefault(key[0], set()).add(key)
        case_s = {case: sum(seconds[key] for key in keys) for case, keys in left.items()}
        # Of two kernels with equal work, the one that keeps the order of operands takes longer.
        order = sorted(left, key=lambda case: (-round(case_s[case], 2), case.kernel.order == "any"))
        queues = {
            key: queues[key] for case in (*order[-1:], *order[:-1]) for key in queues
            if key[0] == case
        }  # fmt: skip
        shared, count = self._shared(queues)
        dropped: set[_TaskKey] = set()
        width = max((len(_name(case, left)) for case in left), default=0)
        try:
            with self.phase("verifying", len(left), work=sum(case_s.values())) as progress:
                if left:
                    self.backend.build([])  # the emulator, before two workers compile it
                for key, verdict in self.isolation.verify(
                    shared, count, self.settings.deadline, _started(progress),
                    lambda job: progress.worked(estimated_s(job)), dropped,
                ):  # fmt: skip
                    case = key[0]
                    self._ahead[key] = verdict
                    left[case].discard(key)
                    if verdict.outcome != "pass":
                        dropped |= left[case]
                        left[case].clear()
                    if not left[case] and key not in dropped:
                        # A precondition may be found for an external file.
                        if len(left) > 1 and (verdict.outcome == "pass" or not case.kernel.foreign):
                            name = _name(case, left)
                            progress.decided(f"{name:{width}}  {verdict.summary}")
                        progress.step()
        except KeyboardInterrupt:
            self.interrupted = True

    def why_cut(self) -> str:
        """The reason of a case that was not verified before the deadline."""
        return (
            f"--max-time {self.settings.deadline.seconds or 0:g} s was spent before it was verified"
        )

    def _isolated(self, case: Case) -> bool:
        return self.backend.traits.isolated or case.kernel.foreign

    def _verify_here(self, prepared: Sequence[Prepared], shape: Shape) -> dict[Case, Verdict]:
        if not prepared:
            return {}
        cases = [one.case for one in prepared]
        reduction = cases[0].reduction
        nbytes = shape[0] * shape[1] * reduction.dtype.size * reduction.inputs
        too_large = why_too_large(nbytes * self.backend.traits.host_copies)
        if too_large:
            return dict.fromkeys(cases, skipped("machine", too_large))
        try:
            return verify(
                self.backend, prepared, shape, seed=self.settings.seed,
                level="full" if nbytes < LARGE_BYTES else "least", only=self.settings.only_pattern,
                workspaces=self._workspaces,
            )  # fmt: skip
        except OutOfMemory as error:
            return dict.fromkeys(cases, skipped("machine", str(error)))


def _started(progress: Progress) -> Callable[[Job], None]:
    """A callback that shows the job that starts."""

    def started(job: Job) -> None:
        largest = max(job.shapes, key=lambda shape: shape[0] * shape[1])
        progress.now(f"{job.prepared.case.kernel.id} at {_size_text(largest)}")

    return started


def _name(case: Case, cases: Collection[Case]) -> str:
    """The kernel of a case, with its reduction if the run has several."""
    reduction, reductions = case.reduction, {case.reduction for case in cases}
    if len(reductions) == 1:
        return case.kernel.id
    return f"{case.kernel.id} {reduction.op.name} {reduction.dtype.name}"


def _size_text(shape: Shape) -> str:
    return f"n = {shape[0]}" + (f" x {shape[1]} rows" if shape[1] != 1 else "")


def _supported(one: Prepared, shapes: Shapes) -> list[Shape]:
    """The shapes that a case supports."""
    return [shape for shape in shapes[one.case] if shape in one.plans]


def _refused(prepared: Sequence[Prepared], shapes: Shapes) -> Iterator[tuple[Case, str]]:
    """Yield each case with an unsupported shape, and the reason for the first such shape."""
    for one in prepared:
        refusals = one.refusals
        why = next((refusals[shape] for shape in shapes[one.case] if shape in refusals), None)
        if why:
            yield one.case, why


def _remarks(case: Case, shapes: Sequence[Shape], refused: str | None) -> Iterator[str]:
    """Remarks on the verdict: restored input, unsupported shapes, no launch."""
    if case.kernel.in_place:
        yield _RESTORED
    if refused:
        yield f"left out: {refused}"
    if all(n * rows == 0 for n, rows in shapes):
        yield f"nothing is launched at {_size_text(shapes[0])}"


def _is_open(case: Case, verdicts: Mapping[Case, Verdict]) -> bool:
    return verdicts.get(case, RIGHT).outcome == "pass"
