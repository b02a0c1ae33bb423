"""Verification jobs of a case: on the requested shapes, and on those of its test sets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec, emulator_beside
from cudareduce.bench.settings import Settings
from cudareduce.launch.case import Case, Prepared, Shape, planned
from cudareduce.verify.jobs import Job, limited
from cudareduce.verify.large_index import large_index_test_sets
from cudareduce.verify.patterns import SMALL
from cudareduce.verify.test_sets import (
    LARGE_INDEX,
    TestSet,
    block_count_test_sets,
    block_test_sets,
    grid_stride_test_sets,
    operator_test_sets,
    race_test_sets,
)

#: Inputs of at least this many bytes are verified with one pattern per size.
LARGE_BYTES = 2**32
#: The requested shapes of each case.
Shapes = Mapping[Case, Sequence[Shape]]
#: Shapes of up to this many elements are verified in one job.
_TOGETHER = 2**17
#: Matches kernels that use the operator of the prelude.
_MENTIONS_OP = re.compile(r"\bOp::")
#: Time limit of the emulator for a kernel that is also verified on the GPU.
_OPTIONAL_S = 20.0


@dataclass(frozen=True, slots=True)
class Jobs:
    """Creates the verification jobs of one session."""

    backend: Backend
    spec: BackendSpec
    settings: Settings

    @property
    def emulator(self) -> BackendSpec | None:
        """The emulator, on which test sets run; None if there is a GPU and no g++."""
        return emulator_beside(self.spec)

    def test_sets(self, case: Case, *, every: bool) -> list[TestSet]:
        """The test sets of a case in addition to the requested shapes. Kernels of the package have
        none on a GPU, since the tests of the package run them. Without `every`, only the test sets
        for data races."""
        if self.emulator is None or not (self.backend.traits.isolated or case.kernel.foreign):
            return []
        if case.kernel.program is not None:
            return list(race_test_sets(case))
        case = replace(case, sms=None)  # test sets are planned for tiny devices
        test_sets = list(race_test_sets(case))
        if every and self.settings.block is None:
            test_sets += block_test_sets(case)
        any_op = _MENTIONS_OP.search(case.kernel.code)
        if every and self.settings.instead and any_op:
            test_sets += operator_test_sets(case)
        if every:
            limits = self.backend.limits()
            test_sets += grid_stride_test_sets(case)
            test_sets += block_count_test_sets(case, limits, any_block=self.settings.block is None)
            test_sets += large_index_test_sets(case)
        return test_sets

    def of(self, one: Prepared, shapes: Sequence[Shape], test_sets: Sequence[TestSet]) -> list[Job]:
        """All jobs of a case, first those of the race-detecting build, which finds deadlocks
        early."""
        test_jobs = [job for test_set in test_sets for job in self._of(one, test_set)]
        race_jobs = [job for job in test_jobs if job.spec.hazards]
        other_jobs = [job for job in test_jobs if not job.spec.hazards]
        return [*race_jobs, *self._on_shapes(one, shapes), *other_jobs]

    def watched_on_gpu(self, one: Prepared) -> Job | None:
        """The job for compute-sanitizer, on few elements; None if the case supports none of the
        shapes."""
        test_set = next(race_test_sets(one.case))
        plans, refusals = planned(test_set.case, test_set.shapes, test_set.limits)
        few = {shape: plan for shape, plan in plans.items() if shape[0] * shape[1] <= _TOGETHER}
        if not few:
            return None
        spec = replace(self.spec, bare=True)
        job = self._job(spec, Prepared(test_set.case, few, refusals, {}))
        return self._limited(replace(job, shapes=tuple(few), level="some"))

    def spec_of(self, test_set: TestSet) -> BackendSpec:
        """The backend of a test set."""
        assert self.emulator is not None
        return replace(self.emulator, hazards=test_set.watched)

    def _on_shapes(self, one: Prepared, shapes: Sequence[Shape]) -> Iterator[Job]:
        supported = [shape for shape in shapes if shape in one.plans]
        job = self._job(self.spec, replace(one, programs={}))
        small = tuple((n, rows) for n, rows in supported if n * rows <= _TOGETHER)
        if small:
            yield self._limited(replace(job, shapes=small))
        reduction = one.case.reduction
        most = LARGE_BYTES // (reduction.dtype.size * reduction.inputs) - 1
        for n, rows in supported:
            if n * rows > _TOGETHER:
                full = n * rows <= (SMALL if self.backend.traits.isolated else most)
                job = replace(job, shapes=((n, rows),), level="full" if full else "least")
                yield self._limited(job)

    def _of(self, one: Prepared, test_set: TestSet) -> Iterator[Job]:
        plans, refusals = planned(test_set.case, test_set.shapes, test_set.limits)
        if plans:
            job = self._job(self.spec_of(test_set), Prepared(test_set.case, plans, refusals, {}))
            other = (
                "one block alone"
                if test_set.level == LARGE_INDEX
                else _difference(test_set.case, one.case)
            )
            job = replace(
                job, shapes=tuple(plans), level=test_set.level, optional=self.spec.timed,
                label=other,
            )  # fmt: skip
            yield self._limited(job)

    def _job(self, spec: BackendSpec, bare: Prepared) -> Job:
        settings = self.settings
        return Job(
            spec=spec, prepared=bare, shapes=(), seed=settings.seed, only=settings.only_pattern,
            limit_s=0,
        )  # fmt: skip

    def _limited(self, job: Job) -> Job:
        if job.optional:
            on = "on the emulator"
            job = replace(job, label=f"{on}, {job.label}" if job.label else on)
        asked_s = self.settings.time_limit_s
        return limited(job, _OPTIONAL_S if job.optional and asked_s is None else asked_s)


def _difference(case: Case, requested: Case) -> str:
    """How a test set differs from the requested case."""
    if case.reduction != requested.reduction:
        return f"{case.reduction.op.name} of {case.reduction.dtype.name}"
    return f"block {case.block}" if case.block != requested.block else ""
