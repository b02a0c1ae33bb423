"""Jobs for child processes: a case on the shapes asked for, and on those of its nets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec, emulator_beside
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

#: From so many bytes on one input of each size is enough.
LARGE_BYTES = 2**32
#: The shapes that are tried with each case.
Shapes = Mapping[Case, Sequence[Shape]]
#: Shapes of up to so many elements are one job: one child runs all of them.
_TOGETHER = 2**17
#: A kernel whose operator is whatever the prelude says, and not written into it.
_MENTIONS_OP = re.compile(r"\bOp::")
#: Seconds after which the emulator leaves the verdict on a kernel to the GPU.
_OPTIONAL_S = 20.0


@dataclass(frozen=True, slots=True)
class Jobs:
    """Makes the jobs of one session."""

    backend: Backend
    spec: BackendSpec
    settings: Settings

    @property
    def emulator(self) -> BackendSpec | None:
        """What nets run on: the emulator, which beside a GPU may be missing."""
        return emulator_beside(self.spec)

    def nets(self, case: Case, *, every: bool) -> list[TestSet]:
        """What is tried besides the shapes of a run: on a GPU nothing of a kernel of the package,
        which its tests try. `every` does not leave it at the build that watches."""
        if self.emulator is None or not (self.backend.traits.isolated or case.kernel.foreign):
            return []
        if case.kernel.program is not None:
            return list(race_test_sets(case))
        case = replace(case, sms=None)  # these have devices of their own, with few SMs
        nets = list(race_test_sets(case))
        if every and self.settings.block is None:
            nets += block_test_sets(case)
        any_op = case.kernel.guessed is None and _MENTIONS_OP.search(case.kernel.text)
        if every and self.settings.instead and any_op:
            nets += operator_test_sets(case)
        if every:
            limits = self.backend.limits()
            nets += grid_stride_test_sets(case)
            nets += block_count_test_sets(case, limits, any_block=self.settings.block is None)
            nets += large_index_test_sets(case)
        return nets

    def of(self, one: Prepared, shapes: Sequence[Shape], nets: Sequence[TestSet]) -> list[Job]:
        """All jobs of a case, first those that watch it: they soon tell who waits for ever."""
        besides = [job for net in nets for job in self._of(one, net)]
        watching = [job for job in besides if job.spec.hazards]
        plain = [job for job in besides if not job.spec.hazards]
        return [*watching, *self._on_shapes(one, shapes), *plain]

    def watched_on_gpu(self, one: Prepared) -> Job | None:
        """What tools that watch a GPU are given of a case: as little as the emulator's build that
        watches. None if it takes nothing of that."""
        net = next(race_test_sets(one.case))
        plans, refusals = planned(net.case, net.shapes, net.limits)
        few = {shape: plan for shape, plan in plans.items() if shape[0] * shape[1] <= _TOGETHER}
        if not few:
            return None
        spec = replace(self.spec, bare=True)
        job = self._job(spec, Prepared(net.case, few, refusals, {}))
        return self._limited(replace(job, shapes=tuple(few), level="some"))

    def spec_of(self, net: TestSet) -> BackendSpec:
        """What a net runs on."""
        assert self.emulator is not None
        return replace(self.emulator, hazards=net.watched)

    def _on_shapes(self, one: Prepared, shapes: Sequence[Shape]) -> Iterator[Job]:
        taken = [shape for shape in shapes if shape in one.plans]
        job = self._job(self.spec, replace(one, programs={}))
        small = tuple((n, rows) for n, rows in taken if n * rows <= _TOGETHER)
        if small:
            yield self._limited(replace(job, shapes=small))
        reduction = one.case.reduction
        most = LARGE_BYTES // (reduction.dtype.size * reduction.inputs) - 1
        for n, rows in taken:
            if n * rows > _TOGETHER:
                full = n * rows <= (SMALL if self.backend.traits.isolated else most)
                job = replace(job, shapes=((n, rows),), level="full" if full else "least")
                yield self._limited(job)

    def _of(self, one: Prepared, net: TestSet) -> Iterator[Job]:
        plans, refusals = planned(net.case, net.shapes, net.limits)
        if plans:
            job = self._job(self.spec_of(net), Prepared(net.case, plans, refusals, {}))
            other = (
                "one block alone" if net.level == LARGE_INDEX else _difference(net.case, one.case)
            )
            job = replace(
                job, shapes=tuple(plans), level=net.level, optional=self.spec.timed,
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


def _difference(case: Case, asked: Case) -> str:
    """What a net is tried with in place of what was asked for."""
    if case.reduction != asked.reduction:
        return f"{case.reduction.op.name} of {case.reduction.dtype.name}"
    return f"block {case.block}" if case.block != asked.block else ""
