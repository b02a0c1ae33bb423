"""What bench and verify share: cases from choices, programs for them, verdicts on them.

Verification happens here or in a child process: in a child whatever could take this process down,
which on the CPU is every kernel and on the GPU a file that is not one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain

from cudareduce.backend import Backend, BuildError, OutOfMemory
from cudareduce.backends import BackendSpec, open_backend
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.settings import Settings
from cudareduce.host import cpu_count
from cudareduce.launch.case import Case, Prepared, Shape, build, planned
from cudareduce.launch.plan import Plan
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.progress import Progress
from cudareduce.verify.isolate import Isolation
from cudareduce.verify.job import Job
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, unbuilt, worse
from cudareduce.verify.verify import SMALL, verify

#: What the emulator's hazard build watches: several blocks, a tail, several rows.
HAZARD_SHAPES: tuple[Shape, ...] = ((1, 1), (1000, 1), (4097, 1), (31, 9), (257, 3))
#: A verification that is this slow counts as hanging: 60 s and a tenth of the pace of the slowest
#: kernel known, one atomic per element on two emulating cores.
_START_S, _ELEMENTS_PER_S = 60.0, 500_000
#: From so many bytes on one input of each size is enough.
_LARGE_BYTES = 2**32
#: Elements a second of which an input and its answer are made: 2^30 took 7 s beside an H200.
_MADE_PER_S = 1.5e8
#: The reason of a case that Ctrl-C came before.
_INTERRUPTED = "interrupted before it was verified"

#: Announces a phase of so many steps.
Phase = Callable[[str, int], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Verified:
    """A verdict on every case that was asked about; `interrupted`: Ctrl-C came before all of them
    were verified, and those are skips."""

    verdicts: Mapping[Case, Verdict]
    interrupted: bool = False


class Session:
    """A backend, opened, with what it takes to prepare and verify cases on it."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, settings: Settings, phase: Phase
    ) -> None:
        self.backend, self.spec = backend, spec
        self.settings, self.phase = settings, phase
        self._isolation = Isolation()

    def close(self) -> None:
        """End the child processes, if there are any."""
        self._isolation.close()

    def cases(
        self, choices: Sequence[Choice], reduction: Reduction
    ) -> list[tuple[Case, Verdict | None]]:
        """A case for each choice, with a verdict where it cannot run."""
        settings, lacks = self.settings, self.backend.traits.lacks
        cases = []
        for choice in choices:
            kernel = choice.kernel
            block = settings.block or choice.block or kernel.block
            items = settings.items or choice.items or kernel.items
            reason = (
                kernel.why_not(reduction)
                or kernel.why_not_block(block)
                or kernel.why_not_items(items)
            )
            lacking = next((word for word in kernel.requires if word in lacks), None)
            verdict = skipped("unfit", reason) if reason else None
            if verdict is None and lacking is not None:
                verdict = skipped(
                    "machine", f"needs hardware that the CPU does not emulate: {lacking}"
                )
            case = Case(kernel, reduction, block, items, choice.suite, choice.name)
            cases.append((case, verdict))
        return cases

    def prepare(
        self, cases: Sequence[Case], shapes: Sequence[Shape], *, hazards: bool = False
    ) -> tuple[list[Prepared], dict[Case, Verdict]]:
        """Plan cases for shapes, and compile whatever those plans launch, with `hazards` also for
        the build that watches; those that do not compile, or that there was no time for, come with
        a verdict that says so."""
        limits, deadline = self.backend.limits(), self.settings.deadline
        plans = {case: planned(case, shapes, limits) for case in cases}
        needed = {case: list(taken.values()) for case, (taken, _) in plans.items()}
        watched: dict[Case, list[Plan]] = {}
        if hazards and self.backend.traits.watches:
            watched = {
                case: list(planned(case, HAZARD_SHAPES, limits)[0].values()) for case in cases
            }
        units = sum(
            len({stage for plan in some for stage in plan.stages})
            for some in (*needed.values(), *watched.values())
        )
        with self.phase("compiling", units) as progress:
            built = build(self.backend, needed, progress.step, deadline)
            if watched:  # children find in the cache what is compiled here, and say what is not
                with open_backend(replace(self.spec, hazards=True)) as watching:
                    build(watching, watched, progress.step, deadline)
        left = {case: skipped("time", self.why_cut()) for case in cases if case not in built}
        left |= {
            case: unbuilt(made)
            for case, made in built.items() if isinstance(made, BuildError)
        }  # fmt: skip
        return [
            Prepared(case, *plans[case], made)
            for case, made in built.items() if not isinstance(made, BuildError)
        ], left  # fmt: skip

    def verify(
        self,
        prepared: Sequence[Prepared],
        shapes: Sequence[Shape],
        known: Mapping[Case, Verdict],
        *,
        hazards: bool = False,
        skip_others: bool = False,
    ) -> Verified:
        """The verdict on each case, together with what is `known` of it already; one that is known
        to have failed is left alone, and one that there was no time to verify is a skip. What a
        case does not take of these shapes is told in its verdict, a skip if it takes none, unless
        `skip_others` says to pass over it. `hazards` adds the build that watches, where there is
        one."""
        verdicts = dict(known)
        refused = {} if skip_others else dict(_refused(prepared, shapes))
        for one in prepared:
            if one.case in refused and not any(shape in one.plans for shape in shapes):
                skip = skipped("unfit", refused[one.case])
                verdicts[one.case] = worse(verdicts.get(one.case, RIGHT), skip)
        open_cases = [
            one for one in prepared
            if _is_open(one.case, verdicts) and any(shape in one.plans for shape in shapes)
        ]  # fmt: skip
        apart = [one for one in open_cases if self._isolated(one.case)]
        here = [one for one in open_cases if not self._isolated(one.case)]
        unverified, interrupted = {one.case for one in open_cases}, False
        try:
            with self.phase("verifying", len(open_cases)) as progress:
                for case, verdict in chain(
                    self._all_here(here, shapes, progress),
                    self._all_apart(apart, shapes, progress, hazards=hazards),
                ):
                    verdicts[case] = worse(verdicts.get(case, RIGHT), verdict)
                    if case in refused and _is_open(case, verdicts):
                        verdicts[case] = replace(
                            verdicts[case], reason=f"left out: {refused[case]}"
                        )
                    unverified.discard(case)
                    progress.step()
        except KeyboardInterrupt:
            interrupted = True
        why = _INTERRUPTED if interrupted else self.why_cut()
        return Verified(verdicts | dict.fromkeys(unverified, skipped("time", why)), interrupted)

    def _all_here(
        self, prepared: Sequence[Prepared], shapes: Sequence[Shape], progress: Progress
    ) -> Iterator[tuple[Case, Verdict]]:
        """Verdicts of cases that are verified in this process, as soon as they stand; none of those
        that there is no time for."""
        verdicts = {one.case: RIGHT for one in prepared}
        for shape in shapes if prepared else ():
            deadline = self.settings.deadline
            if deadline.passed or shape[0] * shape[1] / _MADE_PER_S > deadline.left_s:
                return
            progress.now(f"{len(prepared)} kernels at {_size_text(shape)}")
            left = [o for o in prepared if shape in o.plans and _is_open(o.case, verdicts)]
            for case, verdict in self._verify_here(left, shape).items():
                verdicts[case] = worse(verdicts[case], verdict)
                if verdicts[case].outcome != "pass":
                    yield case, verdicts[case]
        yield from (item for item in verdicts.items() if item[1].outcome == "pass")

    def _all_apart(
        self,
        prepared: Sequence[Prepared],
        shapes: Sequence[Shape],
        progress: Progress,
        *,
        hazards: bool,
    ) -> Iterator[tuple[Case, Verdict]]:
        """The same of cases that are verified in child processes, as many at a time as there are
        processors and as memory allows, which share the processors."""
        queues: dict[Case, list[Job]] = {}
        for one in prepared:
            queue = list(self._jobs(one, shapes, hazards))
            too_large = why_too_large(max(map(_bytes, queue)) * self.backend.traits.host_copies)
            if too_large:
                yield one.case, skipped("machine", too_large)
            else:
                queues[one.case] = queue
        jobs = [job for queue in queues.values() for job in queue]
        if not jobs:
            return
        largest = max(map(_bytes, jobs)) * self.backend.traits.host_copies
        cores = cpu_count() if self.backend.traits.isolated else 1
        count = next(
            (k for k in range(min(cores, len(jobs)), 1, -1) if why_too_large(k * largest) is None),
            1,
        )
        shared = {
            case: [replace(j, spec=replace(j.spec, threads=max(1, cores // count))) for j in queue]
            for case, queue in queues.items()
        }

        def started(job: Job) -> None:
            largest_shape = max(job.shapes, key=lambda shape: shape[0] * shape[1])
            progress.now(f"{job.prepared.case.kernel.id} at {_size_text(largest_shape)}")

        yield from self._isolation.verify(shared, count, self.settings.deadline, started)

    def why_cut(self) -> str:
        """The reason of a case that there was no time for."""
        return (
            f"--max-time {self.settings.deadline.seconds or 0:g} s was spent before it was verified"
        )

    def _isolated(self, case: Case) -> bool:
        return self.backend.traits.isolated or case.kernel.foreign

    def _verify_here(self, prepared: Sequence[Prepared], shape: Shape) -> dict[Case, Verdict]:
        if not prepared:
            return {}
        cases = [one.case for one in prepared]
        nbytes = shape[0] * shape[1] * cases[0].reduction.dtype.size
        too_large = why_too_large(nbytes * self.backend.traits.host_copies)
        if too_large:
            return dict.fromkeys(cases, skipped("machine", too_large))
        try:
            return verify(
                self.backend, prepared, shape, seed=self.settings.seed,
                thorough=nbytes < _LARGE_BYTES, only=self.settings.only_pattern,
            )  # fmt: skip
        except OutOfMemory as error:
            return dict.fromkeys(cases, skipped("machine", str(error)))

    def _jobs(self, one: Prepared, shapes: Sequence[Shape], hazards: bool) -> Iterator[Job]:
        bare, taken = replace(one, programs={}), [shape for shape in shapes if shape in one.plans]
        job = Job(
            spec=self.spec, prepared=bare, shapes=(), seed=self.settings.seed,
            only=self.settings.only_pattern, limit_s=0,
        )  # fmt: skip
        small = tuple((n, rows) for n, rows in taken if n * rows <= SMALL)
        if small:
            yield self._limited(replace(job, shapes=small))
        element = one.case.reduction.dtype.size
        most = SMALL if self.backend.traits.isolated else _LARGE_BYTES // element - 1
        for n, rows in taken:
            if n * rows > SMALL:
                yield self._limited(replace(job, shapes=((n, rows),), thorough=n * rows <= most))
        if hazards and self.backend.traits.watches:
            plans, _ = planned(one.case, HAZARD_SHAPES, self.backend.limits())
            watched = replace(
                job, spec=replace(self.spec, hazards=True), prepared=replace(bare, plans=plans),
                shapes=tuple(plans),
            )  # fmt: skip
            yield from [self._limited(watched)] if plans else []

    def _limited(self, job: Job) -> Job:
        elements = sum(n * rows for n, rows in job.shapes)
        limit_s = self.settings.time_limit_s or _START_S + elements / _ELEMENTS_PER_S
        return replace(job, limit_s=limit_s)


def _bytes(job: Job) -> int:
    """Of the largest input of a job."""
    elements = max((n * rows for n, rows in job.shapes), default=0)
    return elements * job.prepared.case.reduction.dtype.size


def _size_text(shape: Shape) -> str:
    return f"n = {shape[0]}" + (f" x {shape[1]} rows" if shape[1] != 1 else "")


def _refused(prepared: Sequence[Prepared], shapes: Sequence[Shape]) -> Iterator[tuple[Case, str]]:
    """Cases that do not take all of these shapes, and why, for the first that they do not take."""
    for one in prepared:
        why = next((one.refusals[shape] for shape in shapes if shape in one.refusals), None)
        if why:
            yield one.case, why


def _is_open(case: Case, verdicts: Mapping[Case, Verdict]) -> bool:
    return verdicts.get(case, RIGHT).outcome == "pass"
