"""Records of the library pass: of libraries and kernels, on aligned and on misaligned inputs.

With an odd length or a misaligned start address, some compilers fall back to scalar loads. All
libraries and kernels are therefore also timed on such inputs, in a few rounds, and compared with
their time on the requested input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from cudareduce.bench.cases import SelectCase
from cudareduce.bench.records import Group, Recorder, Times
from cudareduce.intervals import MIN_ROUNDS, interval, paired
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries.contract import Library
from cudareduce.libraries.job import (
    ODD,
    PLAIN,
    Job,
    LibraryResult,
    Outcome,
    kernel_name,
    keyed,
    library_case,
    library_plan,
)
from cudareduce.libraries.worker import plans_of
from cudareduce.machine import DeviceLimits
from cudareduce.results.record import Record
from cudareduce.verify.verdict import RIGHT, skipped, worse

PRIMARY = "primary"
#: Additional shapes that are verified on misaligned inputs: some libraries compile for each size.
_ODD_EDGES: tuple[Shape, ...] = ((1025, 1),)
#: Limit of launches in half a round.
_ODD_LAUNCHES = 24
_NO_SPEEDUP: dict[str, Any] = dict.fromkeys(
    ("baseline", "speedup", "speedup_low", "speedup_high", "speedup_prev", "speedup_prev_low",
     "speedup_prev_high"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LibraryTask:
    """One reduction at one shape, and the kernels to time with the libraries. Libraries are only
    verified at the shapes in `others`."""

    group: Group
    shape: Shape
    kernels: tuple[tuple[Case, Plan], ...] = ()
    others: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryRecords:
    """Creates the records of one job."""

    recorder: Recorder
    peers: Sequence[Library]
    job: Job
    limits: DeviceLimits

    def of(self, task: LibraryTask, outcome: Outcome) -> list[Record]:
        """Records of libraries, then of kernels. For a job with misaligned inputs: the records of
        these, each with its slowdown relative to the aligned input."""
        plain = self._records(task, outcome, 0)
        if not self.job.odd:
            return plain
        return [
            replace(
                record, offset=layout.offset, aligned_n=record.n - layout.more, **_NO_SPEEDUP,
                **_slowdown(before.rounds_us, record.rounds_us),
            )
            for number, layout in enumerate(self.job.layouts) if number
            for before, record in zip(plain, self._records(task, outcome, number), strict=True)
        ]  # fmt: skip

    def _records(self, task: LibraryTask, outcome: Outcome, number: int) -> list[Record]:
        """The records of the layout of this number."""
        reduction = self.job.reduction
        by_case = {
            library_case(name, reduction): result for name in (peer.name for peer in self.peers)
            # a library that has ended its process has one result for all layouts
            if (result := outcome.results.get(keyed(name, number), outcome.results.get(name)))
        }  # fmt: skip
        group = self._group(task, outcome, by_case, number)
        cases = [*by_case, *(self.job.cases(number) if outcome.passes else ())]
        made = self._compared(group).records(group, cases)
        by_id = {case.kernel.id: result for case, result in by_case.items()}
        context = PRIMARY if self.job.rounds else None
        named = [_named(record, by_id.get(record.kernel), context) for record in made]
        return [*named, *self._without_graph(group, by_case, context)]

    def _without_graph(
        self, group: Group, by_case: Mapping[Case, LibraryResult], context: str | None
    ) -> Iterator[Record]:
        """A skip record for each library call that could not be captured as a CUDA graph."""
        why = {case: result.no_graph for case, result in by_case.items()
               if result.no_graph and group.verdicts[case].outcome == "pass"}  # fmt: skip
        skips = {case: skipped("unfit", reason) for case, reason in why.items()}
        for label in (method.label for method in self.job.methods if method.graph and why):
            untimed = replace(group, times={}, verdicts=skips)
            for case, made in zip(why, self.recorder.records(untimed, list(why)), strict=True):
                yield replace(_named(made, by_case[case], context), timing=label)

    def _group(
        self,
        task: LibraryTask,
        outcome: Outcome,
        by_case: Mapping[Case, LibraryResult],
        number: int,
    ) -> Group:
        """Verdicts, plans and times of libraries and kernels in the layout of this number."""
        shape = self.job.layouts[number].shape(task.shape)
        problem = Problem(self.job.reduction, *shape)
        cases = self.job.cases(number)
        by_key = {keyed(case.kernel.title, number): case for case in by_case}
        by_key |= {
            keyed(kernel_name(plan), number): case
            for case, (_, plan) in zip(cases, self.job.kernels, strict=True)
        }
        verdicts = {case: result.verdict for case, result in by_case.items()}
        plans, refusals = plans_of(self.job, number, self.limits)
        for index, (case, _) in enumerate(self.job.kernels):
            timed = outcome.kernels.get((index, number), RIGHT)
            if index in refusals:
                timed = skipped("unfit", refusals[index])
            verdicts[cases[index]] = worse(task.group.verdicts[case], timed)
        times = {
            label: Times(
                timings={by_key[key]: timing for key, timing in result.timings.items()
                         if key in by_key and verdicts[by_key[key]].outcome == "pass"},
                ceiling=result.ceiling, conditions=result.conditions,
            )
            for label, result in outcome.passes.items()
        }  # fmt: skip
        ours = {cases[index]: plan for index, plan in plans.items()}
        joules = next((result.joules for result in outcome.passes.values()), {})
        return replace(
            task.group, n=shape[0], times=times, verdicts=verdicts, tried=False,
            joules={by_key[key]: spent for key, spent in joules.items() if key in by_key},
            plans={**{case: library_plan(case.kernel.title, problem) for case in by_case}, **ours},
        )  # fmt: skip

    def _compared(self, group: Group) -> Recorder:
        """The recorder with the baseline of this pass: the requested one, else the fastest of our
        kernels."""
        settings = self.recorder.settings
        first = next(iter(group.times.values()), Times())
        ours = {c: t.median_us for c, t in first.timings.items() if c.kernel.family != "peer"}
        if settings.baseline_kernel or not ours:
            return self.recorder
        best = min(ours, key=lambda case: ours[case]).kernel.id
        return replace(self.recorder, settings=replace(settings, baseline_kernel=best))


def _named(record: Record, library: LibraryResult | None, context: str | None) -> Record:
    """The record with its CUDA context, and for a library with the call, version and host time."""
    if library is None:
        return replace(record, context=context)
    host_us = record.host_us if library.host_us is None else library.host_us
    return replace(
        record, context=context, called=library.called, version=library.version, host_us=host_us,
        block=None, items=None, grid=None, passes=None, scope="library", source_sha=None,
    )  # fmt: skip


def odd_job(job: Job, outcome: Outcome, select: SelectCase) -> Job:
    """The job that repeats another job on misaligned inputs. `select` returns the case that
    replaces a kernel there."""
    timed = {name for result in outcome.passes.values() for name in result.timings}
    peers = (peer.name for listing in job.listings for peer in listing.libraries())
    elsewhere = {
        (place, number): select(case, layout.shape(job.shapes[-1]), layout.offset)
        for place, (case, _) in enumerate(job.kernels) for number, layout in enumerate(ODD, 1)
    }  # fmt: skip
    return replace(
        job, layouts=(PLAIN, *ODD), elsewhere=elsewhere,
        shapes=(*_ODD_EDGES, job.shapes[-1]), methods=job.methods[:1],
        rounds=min(job.rounds, MIN_ROUNDS), most=_ODD_LAUNCHES,
        left_out=frozenset(name for name in peers if name not in timed),
    )  # fmt: skip


def right_kernels(group: Group) -> tuple[tuple[Case, Plan], ...]:
    """The right kernels of a group with their plans."""
    right = [case for case, verdict in group.verdicts.items() if verdict.outcome == "pass"]
    return tuple((case, group.plans[case]) for case in right if case in group.plans)


def _slowdown(aligned: Sequence[float | None], odd: Sequence[float | None]) -> dict[str, Any]:
    """The median ratio of paired rounds with its interval."""
    ratios = paired(odd, aligned)
    low, high = interval(ratios) or (None, None)
    middle = median(ratios) if ratios else None
    return {"slowdown": middle, "slowdown_low": low, "slowdown_high": high}
