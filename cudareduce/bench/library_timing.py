"""Verify libraries and time them together with kernels, in a separate process.

That process uses the primary CUDA context. Times in two contexts differ by 1 to 2 %, so kernels are
timed there again, and speed-ups are computed from these times. A library that fails, hangs, crashes
or is wrong gets a row with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudareduce.bench.cases import SelectCase
from cudareduce.bench.library_records import (
    PRIMARY,
    LibraryRecords,
    LibraryTask,
    odd_job,
    right_kernels,
)
from cudareduce.bench.records import INTERRUPTED, Group, LibraryPass, Recorder, ReductionResult
from cudareduce.bench.session import Session
from cudareduce.intervals import MIN_ROUNDS
from cudareduce.launch.case import Shape
from cudareduce.libraries import catalogue
from cudareduce.libraries.catalogue import Listing, libraries_of
from cudareduce.libraries.job import Job, LibraryResult, Outcome
from cudareduce.libraries.session import LibraryWorkers
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.temporary import temporary_folder
from cudareduce.timing.sampling import Method
from cudareduce.verify.verdict import skipped

#: Additional shapes at which libraries are verified.
_EDGES: tuple[Shape, ...] = ((1, 1), (33, 1), (1025, 1), (65537, 1), (33, 5))
_MORE_EDGES: tuple[Shape, ...] = (*_EDGES, (4097, 1), (257, 9), (1000003, 1))
_NEEDS_GPU = "needs a GPU; this is the CPU emulator"
_NO_MAP = "does not support --map"
_NO_COLUMNS = "reduces rows, not columns"
_ONE_REGION = "--region first-pass cannot time the first launch within a library call"


def time_libraries(
    session: Session, results: Sequence[ReductionResult], recorder: Recorder,
    names: Sequence[str], *, odd: SelectCase | None = None,
) -> LibraryPass:  # fmt: skip
    """Verify and time libraries on every problem of a run, in the same rounds as the correct
    kernels. If `odd` is given, repeat this with misaligned inputs; `odd` returns the kernels for
    these."""
    tasks = [
        LibraryTask(group, (group.n, session.settings.rows), right_kernels(group))
        for result in results for group in result.groups
    ]  # fmt: skip
    return _run(session, tasks, recorder, names, session.settings.methods, odd=odd)


def verify_libraries(
    session: Session, groups: Sequence[Group], recorder: Recorder, names: Sequence[str]
) -> LibraryPass:
    """Verify libraries on the problems of a run, at the requested sizes or at edge cases."""
    rows = session.settings.rows
    sizes = sorted(session.settings.sizes)
    *others, largest = [(n, rows) for n in sizes] or [_MORE_EDGES[-1]]
    tasks = [LibraryTask(group, largest, others=tuple(others)) for group in groups]
    return _run(session, tasks, recorder, names, ())


def _run(
    session: Session, tasks: Sequence[LibraryTask], recorder: Recorder, names: Sequence[str],
    methods: tuple[Method, ...], *, odd: SelectCase | None = None,
) -> LibraryPass:  # fmt: skip
    settings, listings = session.settings, catalogue.listings(names)
    libraries = libraries_of(listings)
    on_cpu = session.backend.timed() is None
    reasons = {lib.name: _NEEDS_GPU for lib in libraries if on_cpu and lib.on_cpu is None}
    if methods and settings.region != "total":
        reasons = dict.fromkeys((library.name for library in libraries), _ONE_REGION)
    if on_cpu:
        methods = ()
    done, limits = LibraryPass(), session.backend.limits()
    edge_shapes = _EDGES if methods else _MORE_EDGES
    verified: set[Reduction] = set()  # no library is wrong at the edges
    with (
        temporary_folder() as temporary,
        LibraryWorkers(settings.time_limit_s) as processes,
        session.phase(
            "measuring libraries", len(tasks) * _rounds(settings.rounds, odd is not None)
        ) as progress,
    ):
        for task in tasks:
            reduction = task.group.reduction
            if reduction.map or reduction.columns:
                done = _with_unsupported(done, session, task, recorder, listings)
                continue
            edges = () if settings.only_pattern or reduction in verified else edge_shapes
            job = Job(
                spec=session.spec, listings=listings, reduction=reduction,
                shapes=(*edges, *task.others, task.shape),
                requested=1 + len(task.others), max_time_s=settings.deadline.seconds,
                folder=str(session.spec.cache or temporary), kernels=task.kernels,
                methods=methods, rounds=settings.rounds if methods else 0,
                pattern=settings.pattern, only=settings.only_pattern, seed=settings.seed,
                left_out=frozenset(reasons), energy=settings.energy,
            )  # fmt: skip
            try:
                outcome = processes.outcome(job, settings.deadline, progress.step)
                outcome = replace(outcome, results={**outcome.results, **_skipped(reasons)})
                if all(result.verdict.outcome != "fail" for result in outcome.results.values()):
                    verified.add(reduction)
                records = LibraryRecords(recorder, libraries, job, limits)
                done = _with_outcome(done, task, outcome, records)
                if odd and outcome.passes:
                    job = odd_job(job, outcome, odd)
                    outcome = processes.outcome(job, settings.deadline, progress.step)
                    records = LibraryRecords(recorder, libraries, job, limits)
                    done = _with_outcome(done, task, outcome, records)
            except KeyboardInterrupt:
                return replace(done, interrupted=True)
    return done


def _with_unsupported(
    done: LibraryPass, session: Session, task: LibraryTask, recorder: Recorder,
    listings: Sequence[Listing],
) -> LibraryPass:  # fmt: skip
    """Add a skip record for each library: none supports maps or columns."""
    why = _NO_MAP if task.group.reduction.map else _NO_COLUMNS
    libraries = libraries_of(listings)
    job = Job(
        spec=session.spec, listings=tuple(listings), reduction=task.group.reduction,
        shapes=(task.shape,), folder="",
    )  # fmt: skip
    skips = {lib.name: LibraryResult(verdict=skipped("unfit", why)) for lib in libraries}
    records = LibraryRecords(recorder, libraries, job, session.backend.limits())
    return _with_outcome(done, replace(task, kernels=()), Outcome(results=skips), records)


def _rounds(rounds: int, odd: bool) -> int:
    return max(rounds, 1) + (min(rounds, MIN_ROUNDS) if odd else 0)


def _skipped(reasons: Mapping[str, str]) -> dict[str, LibraryResult]:
    return {name: LibraryResult(verdict=skipped("machine", why)) for name, why in reasons.items()}


def _with_outcome(
    done: LibraryPass, task: LibraryTask, outcome: Outcome, records: LibraryRecords
) -> LibraryPass:
    """Add the records, remarks and protocols of one task."""
    remarks = [*outcome.remarks]
    for label, result in outcome.passes.items():
        what = f"libraries, {label}" + (", odd starts" if records.job.odd else "")
        remarks += [f"{what}, n = {task.shape[0]}: {text}" for text in result.remarks]
    protocols = [
        {"op": task.group.reduction.op.name, "dtype": task.group.reduction.dtype.name,
         "n": task.shape[0], "rows": task.shape[1], "context": PRIMARY, **result.story}
        for result in outcome.passes.values() if result.story
    ]  # fmt: skip
    return replace(
        done, records=(*done.records, *records.of(task, outcome)),
        remarks=tuple(dict.fromkeys([*done.remarks, *remarks])),
        protocols=(*done.protocols, *protocols),
    )  # fmt: skip


def merge_library_pass(
    records: Sequence[Record], protocol: Mapping[str, Any], done: LibraryPass, names: Sequence[str]
) -> tuple[list[Record], dict[str, Any]]:
    """Records of kernels and of the library pass, ordered by problem, and their common protocol."""

    def problem(r: Record) -> tuple[object, ...]:
        return r.op, r.map, r.dtype, r.acc, r.aligned_n or r.n, r.rows

    both = [*records, *done.records]
    order = {key: k for k, key in enumerate(dict.fromkeys(map(problem, both)))}
    remarks = (INTERRUPTED,) if done.interrupted else ()
    return sorted(both, key=lambda record: order[problem(record)]), {
        **protocol, "peers": list(names),
        "measured": [*protocol.get("measured", ()), *done.protocols],
        "remarks": [*protocol.get("remarks", ()), *done.remarks, *remarks],
    }  # fmt: skip
