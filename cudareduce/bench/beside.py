"""Time libraries and kernels in an additional pass, in the primary context of a separate process.

A library that fails, hangs, crashes or is wrong gets a row that says so. Kernels are timed in that
pass, too, since times in two contexts differ by 1 to 2 %; speed-ups are computed within the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudareduce.bench.cases import Anew
from cudareduce.bench.group import Group
from cudareduce.bench.library_records import (
    PRIMARY,
    Asked,
    LibraryRecords,
    odd_job,
    right_kernels,
)
from cudareduce.bench.records import Beside, Recorder
from cudareduce.bench.runner import Part
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
_ON_CPU = "runs on a GPU alone, and this is the CPU emulator: nothing of it is tried here"
_MAPPED = "is called for elements as they are, and not for what a map makes of them"
_COLUMNS = "is called for rows, and not for columns"
_FIRST_PASS = "--region first-pass times the first launch alone, which of a library nobody can tell"


def timed_beside(
    session: Session, parts: Sequence[Part], recorder: Recorder, names: Sequence[str],
    *, odd: Anew | None = None,
) -> Beside:  # fmt: skip
    """Verify and time libraries on every problem of a run, in the same rounds as the correct
    kernels. Then time all of them with misaligned layouts, if `odd` returns the kernels for
    these."""
    asked = [
        Asked(group, (group.n, session.settings.rows), right_kernels(group))
        for part in parts for group in part.groups
    ]  # fmt: skip
    return _all(session, asked, recorder, names, session.settings.methods, odd=odd)


def verified_beside(
    session: Session, groups: Sequence[Group], recorder: Recorder, names: Sequence[str]
) -> Beside:
    """Verify libraries on the problems of a run, at the requested sizes or at edge cases."""
    rows = session.settings.rows
    sizes = sorted(session.settings.sizes)
    *others, largest = [(n, rows) for n in sizes] or [_MORE_EDGES[-1]]
    asked = [Asked(group, largest, others=tuple(others)) for group in groups]
    return _all(session, asked, recorder, names, ())


def _all(
    session: Session, asked: Sequence[Asked], recorder: Recorder, names: Sequence[str],
    methods: tuple[Method, ...], *, odd: Anew | None = None,
) -> Beside:  # fmt: skip
    settings, listings = session.settings, catalogue.listings(names)
    peers = libraries_of(listings)
    on_cpu = session.backend.timed() is None
    why = {peer.name: _ON_CPU for peer in peers if on_cpu and peer.on_cpu is None}
    if methods and settings.region != "total":
        why = dict.fromkeys((peer.name for peer in peers), _FIRST_PASS)
    if on_cpu:
        methods = ()
    beside, limits = Beside(), session.backend.limits()
    tried = _EDGES if methods else _MORE_EDGES
    sound: set[Reduction] = set()  # no library is wrong at the edges
    with (
        temporary_folder() as temporary,
        LibraryWorkers(settings.time_limit_s) as processes,
        session.phase(
            "measuring libraries", len(asked) * _rounds(settings.rounds, odd is not None)
        ) as progress,
    ):
        for one in asked:
            reduction = one.group.reduction
            if reduction.map or reduction.columns:
                beside = _left_out(beside, session, one, recorder, listings)
                continue
            edges = () if settings.only_pattern or reduction in sound else tried
            job = Job(
                spec=session.spec, listings=listings, reduction=reduction,
                shapes=(*edges, *one.others, one.shape),
                asked=1 + len(one.others), max_time_s=settings.deadline.seconds,
                folder=str(session.spec.cache or temporary), kernels=one.kernels,
                methods=methods, rounds=settings.rounds if methods else 0,
                pattern=settings.pattern, only=settings.only_pattern, seed=settings.seed,
                left_out=frozenset(why), energy=settings.energy,
            )  # fmt: skip
            try:
                outcome = processes.outcome(job, settings.deadline, progress.step)
                outcome = replace(outcome, results={**outcome.results, **_skipped(why)})
                if all(found.verdict.outcome != "fail" for found in outcome.results.values()):
                    sound.add(reduction)
                beside = _with(beside, one, outcome, LibraryRecords(recorder, peers, job, limits))
                if odd and outcome.passes:
                    job = odd_job(job, outcome, odd)
                    found = processes.outcome(job, settings.deadline, progress.step)
                    beside = _with(beside, one, found, LibraryRecords(recorder, peers, job, limits))
            except KeyboardInterrupt:
                return replace(beside, interrupted=True)
    return beside


def _left_out(
    beside: Beside, session: Session, one: Asked, recorder: Recorder, listings: Sequence[Listing]
) -> Beside:
    """A skip record for each library that is not called, with the reason."""
    why = _MAPPED if one.group.reduction.map else _COLUMNS
    peers = libraries_of(listings)
    job = Job(
        spec=session.spec, listings=tuple(listings), reduction=one.group.reduction,
        shapes=(one.shape,), folder="",
    )  # fmt: skip
    outcome = Outcome(results={p.name: LibraryResult(verdict=skipped("unfit", why)) for p in peers})
    made = LibraryRecords(recorder, peers, job, session.backend.limits())
    return _with(beside, replace(one, kernels=()), outcome, made)


def _rounds(rounds: int, odd: bool) -> int:
    return max(rounds, 1) + (min(rounds, MIN_ROUNDS) if odd else 0)


def _skipped(why: Mapping[str, str]) -> dict[str, LibraryResult]:
    return {name: LibraryResult(verdict=skipped("machine", reason)) for name, reason in why.items()}


def _with(beside: Beside, one: Asked, outcome: Outcome, records: LibraryRecords) -> Beside:
    said = [*outcome.remarks]
    for label, found in outcome.passes.items():
        what = f"libraries, {label}" + (", odd starts" if records.job.odd else "")
        said += [f"{what}, n = {one.shape[0]}: {text}" for text in found.remarks]
    stories = [
        {"op": one.group.reduction.op.name, "dtype": one.group.reduction.dtype.name,
         "n": one.shape[0], "rows": one.shape[1], "context": PRIMARY, **found.story}
        for found in outcome.passes.values() if found.story
    ]  # fmt: skip
    return replace(
        beside, records=(*beside.records, *records.of(one, outcome)),
        remarks=tuple(dict.fromkeys([*beside.remarks, *said])),
        stories=(*beside.stories, *stories),
    )  # fmt: skip


def joined(
    records: Sequence[Record], protocol: Mapping[str, Any], beside: Beside, names: Sequence[str]
) -> tuple[list[Record], dict[str, Any]]:
    """The records of both passes ordered by problem, those of the pass with libraries last, and
    their common protocol."""

    def problem(r: Record) -> tuple[object, ...]:
        return r.op, r.map, r.dtype, r.acc, r.aligned_n or r.n, r.rows

    both = [*records, *beside.records]
    order = {key: k for k, key in enumerate(dict.fromkeys(map(problem, both)))}
    said = ("interrupted: what is missing was not measured",) if beside.interrupted else ()
    return sorted(both, key=lambda record: order[problem(record)]), {
        **protocol, "peers": list(names),
        "measured": [*protocol.get("measured", ()), *beside.stories],
        "remarks": [*protocol.get("remarks", ()), *beside.remarks, *said],
    }  # fmt: skip
