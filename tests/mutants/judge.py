"""What `cudareduce verify KERNEL --backend cpu` says of mutants: the same jobs, soonest first.

A mutant has its kernel's header and so its plans, and exists as a text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.bench.jobs import Jobs
from cudareduce.bench.request import (
    Machine,
    ReductionOptions,
    Selection,
    VerifyRequest,
    verify_settings,
)
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import Kernel
from cudareduce.launch.case import Case, Prepared, planned
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.report.publish import Outputs
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.jobs import Job
from cudareduce.verify.test_sets import edges
from cudareduce.verify.verdict import Verdict
from tests.mutants.rules import Mutant

Fate = Literal["killed", "survived", "unbuilt"]
#: What `verify` has a kernel reduce unless it is told otherwise.
SUM = reduction_of("sum", "float32")
#: Jobs that all mutants get before those who are left get the rest: the first finds most.
_SIEVES = (slice(0, 1), slice(1, 2), slice(2, None))


@dataclass(frozen=True, slots=True)
class Judged:
    """What has become of a mutant, and the verdict's reason."""

    mutant: Mutant
    fate: Fate
    reason: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges mutants in `count` child processes; a job that takes longer than `limit_s` seconds of
    a processor hangs, which kills a mutant as well."""

    jobs: Jobs
    isolation: Isolation
    count: int
    limit_s: float

    def judge(self, kernel: Kernel, mutants: Sequence[Mutant]) -> Iterator[Judged]:
        """The fate of each, in any order."""
        queue = self.queue(kernel)
        changed = [[_changed(job, mutant) for job in queue] for mutant in mutants]
        queues = {jobs[0].prepared.case: jobs for jobs in changed}
        left = dict(zip(queues, mutants, strict=True))
        for sieve in _SIEVES:
            last = sieve.stop is None or sieve.stop >= len(queue)
            for case, verdict in self._run({case: queues[case][sieve] for case in left}):
                if verdict.outcome != "pass" or last:
                    yield Judged(left.pop(case), fate_of(verdict), verdict.reason)

    def queue(self, kernel: Kernel, reduction: Reduction = SUM) -> list[Job]:
        """The jobs of a kernel, as `verify` makes them."""
        case = Case(kernel, reduction, kernel.block, kernel.items)
        shapes = edges(case, DEFAULT_LIMITS)
        prepared = Prepared(case, *planned(case, shapes, DEFAULT_LIMITS), {})
        test_sets = self.jobs.test_sets(case, every=True)
        return [
            replace(job, limit_s=self.limit_s, spec=replace(job.spec, threads=1))
            for job in self.jobs.of(prepared, shapes, test_sets)
        ]

    def _run(self, queues: Mapping[Case, Sequence[Job]]) -> Iterator[tuple[Case, Verdict]]:
        return self.isolation.verify(queues, self.count, Deadline(), lambda job: None)


@contextmanager
def opened(cache: Path, count: int, limit_s: float) -> Iterator[Judge]:
    """A judge, whose children end with it; what is compiled is kept in `cache`."""
    request = VerifyRequest(
        selection=Selection(), problem=ReductionOptions(), machine=Machine(backend="cpu"),
        outputs=Outputs(),
    )  # fmt: skip
    spec, isolation = BackendSpec("cpu", cache=cache), Isolation()
    with open_backend(spec) as backend, closing(isolation):
        yield Judge(Jobs(backend, spec, verify_settings(request)), isolation, count, limit_s)


def _changed(job: Job, mutant: Mutant) -> Job:
    old = job.prepared
    kernel = replace(old.case.kernel, text=mutant.text)
    plans = {shape: replace(plan, kernel=kernel) for shape, plan in old.plans.items()}
    return replace(job, prepared=replace(old, case=replace(old.case, kernel=kernel), plans=plans))


def fate_of(verdict: Verdict) -> Fate:
    """What a verdict makes of a mutant."""
    if verdict.outcome == "skip" and verdict.cause == "unbuilt":
        return "unbuilt"
    hangs = verdict.outcome == "skip" and verdict.cause == "time"
    return "killed" if verdict.outcome == "fail" or hangs else "survived"
