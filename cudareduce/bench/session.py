"""What bench and verify share: cases from choices, programs for them, verdicts on them.

Verification happens here or in a child process: in a child whatever could take this process down,
which on the CPU is every kernel and on the GPU a file that is not one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from cudareduce.backend import Backend, BuildError, OutOfMemory
from cudareduce.backends import BackendSpec
from cudareduce.bench.settings import Settings
from cudareduce.launch.case import Case, Prepared, Shape, build, planned
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.verify.isolate import Isolation, Job
from cudareduce.verify.verdict import RIGHT, Verdict, worse
from cudareduce.verify.verify import SMALL, verify

#: What the emulator's hazard build watches: several blocks, a tail, several rows.
HAZARD_SHAPES: tuple[Shape, ...] = ((1, 1), (1000, 1), (4097, 1), (31, 9), (257, 3))
#: A verification that is this slow counts as hanging: 60 s and a tenth of the pace of the slowest
#: kernel known, one atomic per element on two emulating cores.
_START_S, _ELEMENTS_PER_S = 60.0, 500_000
#: From so many bytes on one input of each size is enough.
_LARGE_BYTES = 2**32

#: Announces a phase of so many steps; what it yields is called after each.
Phase = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


class Session:
    """A backend, opened, with what it takes to prepare and verify cases on it."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, settings: Settings, phase: Phase
    ) -> None:
        self.backend, self.spec = backend, spec
        self.settings, self.phase = settings, phase
        self._isolation = Isolation()

    def close(self) -> None:
        """End the child process, if there is one."""
        self._isolation.close()

    def cases(
        self, choices: Sequence[Choice], reduction: Reduction
    ) -> list[tuple[Case, str | None]]:
        """A case for each choice, with the reason where it cannot run."""
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
            if reason is None and lacking is not None:
                reason = f"needs hardware that the CPU does not emulate: {lacking}"
            cases.append((Case(kernel, reduction, block, items, choice.suite, choice.name), reason))
        return cases

    def prepare(
        self, cases: Sequence[Case], shapes: Sequence[Shape]
    ) -> tuple[list[Prepared], dict[Case, BuildError]]:
        """Plan cases for shapes, and compile whatever those plans launch; those that do not compile
        come with their errors."""
        limits = self.backend.limits()
        plans = {case: planned(case, shapes, limits) for case in cases}
        needed = {case: list(taken.values()) for case, (taken, _) in plans.items()}
        units = sum(
            len({stage for plan in some for stage in plan.stages}) for some in needed.values()
        )
        with self.phase("compiling", units) as step:
            built = build(self.backend, needed, step)
        errors = {case: made for case, made in built.items() if isinstance(made, BuildError)}
        return [
            Prepared(case, *plans[case], made)
            for case, made in built.items() if not isinstance(made, BuildError)
        ], errors  # fmt: skip

    def verify(
        self,
        prepared: Sequence[Prepared],
        shapes: Sequence[Shape],
        known: Mapping[Case, Verdict],
        *,
        hazards: bool = False,
        skip_others: bool = False,
    ) -> Iterator[tuple[Case, Verdict]]:
        """Each case with its verdict, anew whenever that changes; a case that is `known` to have
        failed is left alone. What a case does not take of these shapes is told in its verdict, a
        skip if it takes none, unless `skip_others` says to pass over it. `hazards` adds the build
        that watches, where there is one."""
        verdicts = dict(known)

        def changed(case: Case, verdict: Verdict) -> tuple[Case, Verdict]:
            verdicts[case] = verdict
            return case, verdict

        refused = [] if skip_others else list(_refused(prepared, shapes))
        for one, why in refused:
            if not any(shape in one.plans for shape in shapes):
                skip = Verdict("skip", why)
                yield changed(one.case, worse(verdicts.get(one.case, RIGHT), skip))
        apart = [one for one in prepared if self._isolated(one.case)]
        here = [one for one in prepared if not self._isolated(one.case)]
        cut = False
        with self.phase("verifying", len(apart) + len(here) * len(shapes)) as step:
            for found in chain(
                self._all_here(here, shapes, verdicts, step),
                self._all_apart(apart, shapes, verdicts, step, hazards=hazards),
            ):
                if cut := found is None:
                    break
                case, verdict = found
                yield changed(case, worse(verdicts.get(case, RIGHT), verdict))
        for one in prepared if cut else ():
            if _is_open(one.case, verdicts):
                yield changed(one.case, Verdict("skip", self.why_cut()))
        for one, why in refused:
            if _is_open(one.case, verdicts):
                yield changed(
                    one.case, replace(verdicts.get(one.case, RIGHT), reason=f"left out: {why}")
                )

    def _all_here(
        self,
        prepared: Sequence[Prepared],
        shapes: Sequence[Shape],
        verdicts: Mapping[Case, Verdict],
        step: Callable[[], None],
    ) -> Iterator[tuple[Case, Verdict] | None]:
        """Verdicts of cases that are verified in this process; None, and no more, once there is no
        time left. `verdicts` are those so far."""
        for shape in shapes if prepared else ():
            if self.settings.deadline.passed:
                yield None
            left = [o for o in prepared if shape in o.plans and _is_open(o.case, verdicts)]
            yield from self._verify_here(left, shape).items()
            for _ in prepared:
                step()

    def _all_apart(
        self,
        prepared: Sequence[Prepared],
        shapes: Sequence[Shape],
        verdicts: Mapping[Case, Verdict],
        step: Callable[[], None],
        *,
        hazards: bool,
    ) -> Iterator[tuple[Case, Verdict] | None]:
        """The same of cases that are verified in a child process, one behind the other."""
        for one in prepared:
            for job in self._jobs(one, shapes, hazards):
                if self.settings.deadline.passed:
                    yield None
                if _is_open(one.case, verdicts):
                    yield one.case, self._verify_apart(job)
            step()

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
        too_large = self._why_too_large(nbytes)
        if too_large:
            return dict.fromkeys(cases, Verdict("skip", too_large))
        try:
            return verify(
                self.backend, prepared, shape, seed=self.settings.seed,
                thorough=nbytes < _LARGE_BYTES, only=self.settings.only_pattern,
            )  # fmt: skip
        except OutOfMemory as error:
            return dict.fromkeys(cases, Verdict("skip", str(error)))

    def _jobs(self, one: Prepared, shapes: Sequence[Shape], hazards: bool) -> Iterator[Job]:
        bare, taken = replace(one, programs={}), [shape for shape in shapes if shape in one.plans]
        job = Job(
            spec=self.spec, prepared=bare, shapes=(), seed=self.settings.seed,
            only=self.settings.only_pattern,
        )  # fmt: skip
        small = tuple((n, rows) for n, rows in taken if n * rows <= SMALL)
        if small:
            yield replace(job, shapes=small)
        element = one.case.reduction.dtype.size
        most = SMALL if self.backend.traits.isolated else _LARGE_BYTES // element - 1
        for n, rows in taken:
            if n * rows > SMALL:
                yield replace(job, shapes=((n, rows),), thorough=n * rows <= most)
        if hazards and self.backend.traits.watches:
            plans, _ = planned(one.case, HAZARD_SHAPES, self.backend.limits())
            watched = replace(
                job, spec=replace(self.spec, hazards=True), prepared=replace(bare, plans=plans),
                shapes=tuple(plans),
            )  # fmt: skip
            yield from [watched] if plans else []

    def _verify_apart(self, job: Job) -> Verdict:
        size = job.prepared.case.reduction.dtype.size
        too_large = self._why_too_large(max(n * rows for n, rows in job.shapes) * size)
        if too_large:
            return Verdict("skip", too_large)
        elements = sum(n * rows for n, rows in job.shapes)
        limit = self.settings.time_limit_s or _START_S + elements / _ELEMENTS_PER_S
        try:
            return self._isolation.verify(job, limit)
        except OutOfMemory as error:
            return Verdict("skip", str(error))

    def _why_too_large(self, nbytes: int) -> str | None:
        """Why the host's memory does not hold an input with the copies that the backend makes."""
        needed, available = nbytes * self.backend.traits.host_copies, _available_bytes()
        if available is None or needed < available * 0.9:
            return None
        return (
            f"needs {needed / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"
        )


def _refused(
    prepared: Sequence[Prepared], shapes: Sequence[Shape]
) -> Iterator[tuple[Prepared, str]]:
    """Cases that do not take all of these shapes, and why, for the first that they do not take."""
    for one in prepared:
        why = next((one.refusals[shape] for shape in shapes if shape in one.refusals), None)
        if why:
            yield one, why


def _is_open(case: Case, verdicts: Mapping[Case, Verdict]) -> bool:
    return verdicts.get(case, RIGHT).outcome == "pass"


def _available_bytes() -> int | None:
    """What Linux says a process may still take without swapping; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
