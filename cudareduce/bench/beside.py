"""Libraries beside kernels: one more pass, in the primary context of a process of its own.

A library that fails, hangs, ends its process or disagrees is a row. Kernels stand in that pass too,
since figures of two contexts differ by 1 to 2 %: ratios are formed within it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudareduce.bench.group import Group, Times
from cudareduce.bench.records import Recorder
from cudareduce.bench.runner import Part
from cudareduce.bench.session import Session
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers import catalogue, process
from cudareduce.peers.contract import Peer
from cudareduce.peers.job import Found, Job, Outcome, case_of, plan_of
from cudareduce.results.record import Record
from cudareduce.temporary import temporary_folder
from cudareduce.timing.sampling import Method
from cudareduce.verify.verdict import RIGHT, skipped, worse

#: Where libraries go wrong, besides what was asked for: sizes, and rows where those are taken.
_EDGES: tuple[Shape, ...] = ((1, 1), (33, 1), (1025, 1), (65537, 1), (33, 5))
_MORE_EDGES: tuple[Shape, ...] = (*_EDGES, (4097, 1), (257, 9), (1000003, 1))
_ON_CPU = "libraries run on a GPU, and this is the CPU emulator: nothing of them is tried here"
_FIRST_PASS = "--region first-pass times the first launch alone, which of a library nobody can tell"
_PRIMARY = "primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Records of libraries, and of kernels in the same pass; `interrupted`: Ctrl-C ended it."""

    records: tuple[Record, ...] = ()
    remarks: tuple[str, ...] = ()
    stories: tuple[Mapping[str, Any], ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """One reduction at one size, with the kernels to measure there."""

    group: Group
    shape: Shape
    kernels: tuple[tuple[Case, Plan], ...]


def timed_beside(
    session: Session, parts: Sequence[Part], recorder: Recorder, names: Sequence[str]
) -> Beside:
    """Verify and time libraries on every problem of a run, beside the kernels that were right."""
    asked = [
        _Asked(group, (group.n, session.settings.rows), _kernels(group))
        for part in parts for group in part.groups
    ]  # fmt: skip
    methods = tuple(method for method in session.settings.methods if not method.graph)
    return _all(session, asked, recorder, names, methods)


def verified_beside(
    session: Session, groups: Sequence[Group], recorder: Recorder, names: Sequence[str]
) -> Beside:
    """Verify libraries on the problems of a run, at the sizes asked for or at those that hurt."""
    rows = session.settings.rows
    asked = [
        _Asked(group, shape, ())
        for group in groups
        for shape in [(n, rows) for n in session.settings.sizes] or [_MORE_EDGES[-1]]
    ]
    return _all(session, asked, recorder, names, ())


def _kernels(group: Group) -> tuple[tuple[Case, Plan], ...]:
    right = [case for case, verdict in group.verdicts.items() if verdict.outcome == "pass"]
    return tuple((case, group.plans[case]) for case in right if case in group.plans)


def _all(
    session: Session, asked: Sequence[_Asked], recorder: Recorder, names: Sequence[str],
    methods: tuple[Method, ...],
) -> Beside:  # fmt: skip
    settings, listings = session.settings, catalogue.listings(names)
    peers = [peer for listing in listings for peer in listing.peers()]
    why = _ON_CPU if session.backend.timed() is None else None
    if methods and settings.region != "total":
        why = _FIRST_PASS
    beside = Beside()
    with (
        temporary_folder() as temporary,
        process.Processes(settings.time_limit_s) as processes,
        session.phase("measuring libraries", len(asked) * max(settings.rounds, 1)) as progress,
    ):
        for one in asked:
            edges = _EDGES if methods else _MORE_EDGES
            job = Job(
                spec=session.spec, listings=listings, reduction=one.group.reduction,
                shapes=(*(() if settings.only_pattern else edges), one.shape),
                folder=str(session.spec.cache or temporary), kernels=one.kernels,
                methods=methods, rounds=settings.rounds if methods else 0,
                pattern=settings.pattern, only=settings.only_pattern, seed=settings.seed,
            )  # fmt: skip
            try:
                outcome = (
                    _skipped(peers, why) if why
                    else processes.outcome(job, settings.deadline, progress.step)
                )  # fmt: skip
            except KeyboardInterrupt:
                return replace(beside, interrupted=True)
            beside = _with(beside, one, outcome, _Records(recorder, peers, job))
    return beside


def _skipped(peers: Sequence[Peer], why: str) -> Outcome:
    none = {p.name: Found(verdict=skipped("machine", why)) for p in peers}
    return Outcome(peers=none, tried=False)


def _with(beside: Beside, one: _Asked, outcome: Outcome, records: _Records) -> Beside:
    said = [*outcome.remarks]
    for label, found in outcome.passes.items():
        said += [f"libraries, {label}, n = {one.shape[0]}: {text}" for text in found.remarks]
    stories = [
        {"op": one.group.reduction.op.name, "dtype": one.group.reduction.dtype.name,
         "n": one.shape[0], "rows": one.shape[1], "context": _PRIMARY, **found.story}
        for found in outcome.passes.values() if found.story
    ]  # fmt: skip
    return replace(
        beside, records=(*beside.records, *records.of(one, outcome)),
        remarks=tuple(dict.fromkeys([*beside.remarks, *said])),
        stories=(*beside.stories, *stories),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes records of what one job gave."""

    recorder: Recorder
    peers: Sequence[Peer]
    job: Job

    def of(self, one: _Asked, outcome: Outcome) -> list[Record]:
        """Peers in the order of tables, then kernels."""
        reduction = self.job.reduction
        found = {case_of(peer, reduction): outcome.peers[peer.name] for peer in self.peers
                 if peer.name in outcome.peers}  # fmt: skip
        group = self._group(one, outcome, found)
        cases = [*found, *(case for case, _ in one.kernels if outcome.passes)]
        made = self._compared(group).records(group, cases)
        by_id = {case.kernel.id: f for case, f in found.items()}
        context = _PRIMARY if outcome.tried and self.job.rounds else None
        return [_named(record, by_id.get(record.kernel), context) for record in made]

    def _group(self, one: _Asked, outcome: Outcome, found: Mapping[Case, Found]) -> Group:
        problem = Problem(self.job.reduction, *one.shape)
        places = {peer.name: case_of(peer, self.job.reduction) for peer in self.peers}
        places |= {case.kernel.id: case for case, _ in one.kernels}
        verdicts = {case: f.verdict for case, f in found.items()}
        for k, (case, _) in enumerate(one.kernels):
            verdicts[case] = worse(one.group.verdicts[case], outcome.kernels.get(k, RIGHT))
        times = {
            label: Times(
                timings={places[name]: timing for name, timing in result.timings.items()
                         if verdicts[places[name]].outcome == "pass"},
                ceiling=result.ceiling, conditions=result.conditions,
            )
            for label, result in outcome.passes.items()
        }  # fmt: skip
        return replace(
            one.group, n=one.shape[0], times=times, verdicts=verdicts, tried=False,
            plans={**{case: plan_of(case, problem) for case in found}, **dict(one.kernels)},
        )  # fmt: skip

    def _compared(self, group: Group) -> Recorder:
        """The recorder, with what speed-ups of this pass are against: what was asked for, else the
        fastest kernel of ours in it."""
        settings = self.recorder.settings
        first = next(iter(group.times.values()), Times())
        ours = {c: t.median_us for c, t in first.timings.items() if c.kernel.family != "peer"}
        if settings.baseline_kernel or not ours:
            return self.recorder
        best = min(ours, key=lambda case: ours[case]).kernel.id
        return replace(self.recorder, settings=replace(settings, baseline_kernel=best))


def _named(record: Record, found: Found | None, context: str | None) -> Record:
    """A record of a library, with what was called; of all in a pass, where that took place."""
    if found is None:
        return replace(record, context=context)
    host_us = record.host_us if found.host_us is None else found.host_us
    return replace(
        record, context=context, called=found.called, version=found.version, host_us=host_us,
        block=None, items=None, grid=None, passes=None, scope="library", source_sha=None,
    )  # fmt: skip


def joined(
    records: Sequence[Record], protocol: Mapping[str, Any], beside: Beside, names: Sequence[str]
) -> tuple[list[Record], dict[str, Any]]:
    """Records by their problems, what was timed beside libraries behind what was not; and a
    protocol that tells of both."""

    def problem(r: Record) -> tuple[object, ...]:
        return r.op, r.dtype, r.acc, r.n, r.rows

    both = [*records, *beside.records]
    order = {key: k for k, key in enumerate(dict.fromkeys(map(problem, both)))}
    said = ("interrupted: what is missing was not measured",) if beside.interrupted else ()
    return sorted(both, key=lambda record: order[problem(record)]), {
        **protocol, "peers": list(names),
        "measured": [*protocol.get("measured", ()), *beside.stories],
        "remarks": [*protocol.get("remarks", ()), *beside.remarks, *said],
    }  # fmt: skip
