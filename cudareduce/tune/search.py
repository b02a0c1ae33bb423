"""The search on one problem: a race, then the best few and what there was before, in the rounds of
`bench`, verified as there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median

from cudareduce.auto.choose import Chooser
from cudareduce.auto.table import Entry, Table
from cudareduce.backend import TimedBackend
from cudareduce.backends import BackendSpec
from cudareduce.bench.cases import facts_of
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.records import Recorder
from cudareduce.bench.runner import measured
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.errors import OutOfMemory
from cudareduce.intervals import MIN_ROUNDS, interval, paired
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import AUTO, AUTO_FIXED, Choice, Registry
from cudareduce.problem.sizes import counted
from cudareduce.results.record import Record
from cudareduce.tune.candidates import candidates, case_of, own_case
from cudareduce.tune.heats import Heats, Problem, heats
from cudareduce.tune.race import race

#: How many of a race are measured in fresh contexts.
_FINALISTS = 4
#: Heats that a race has, for the display of its progress.
_HEATS = 8
#: The rounds of the measurement that decides.
_ROUNDS = 9
#: Elements a second of which an input and its answer are made, and how many a problem takes: one to
#: race on, one to be timed.
_MADE_PER_S, _INPUTS = 1.5e8, 2
#: Rounds of identical kernels differ by so much (an H200, results/nvidia-h200/selftest.json).
_NOISE = 0.003
#: The share of the time for a problem that its race may take.
_RACING = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found for `auto`, `auto:fixed` or a kernel, by its `name`: the fastest, with its
    record, that of what there was before, and how many times as fast it is, with a 95 %
    interval."""

    name: str
    best: Case
    record: Record
    against: Record
    speedup: float
    speedup_low: float | None
    speedup_high: float | None

    @property
    def gains(self) -> bool:
        """Whether it is another than there was before, and so faster beyond the noise."""
        return self.record != self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcomes for one problem, none where there was no time; the records they rest on; why
    shapes were left out, by their names, and of those whose answers are wrong the reasons. `why` is
    why there is no outcome; `refused`: no kernel takes the problem."""

    problem: Problem
    outcomes: tuple[Outcome, ...] = ()
    records: tuple[Record, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    tried: int = 0
    why: str | None = None
    refused: bool = False
    interrupted: bool = False


class Search:
    """Searches the launch shapes of some kernels on an opened GPU."""

    def __init__(
        self, backend: TimedBackend, spec: BackendSpec, registry: Registry,
        tables: tuple[Table, ...], phase: Phase,
    ) -> None:  # fmt: skip
        self._backend, self._spec, self._registry = backend, spec, registry
        self._tables, self._phase = tables, phase
        self._monitor, self._facts = backend.monitor(), facts_of(backend)

    def compile(
        self, kernels: Sequence[Kernel], problems: Sequence[Problem], deadline: Deadline
    ) -> None:
        """Compile whatever will be tried, so that no problem pays for it in its share of the
        time."""
        plans: dict[Case, list[Plan]] = {}
        for problem in problems:
            for case in self._candidates(kernels, problem):
                plan = case.plan(problem.n, problem.rows, self._facts.limits)
                plans.setdefault(case, []).append(plan)
        units = {
            (case.kernel.id, case.reduction, case.block, case.items, unit)
            for case, some in plans.items() for plan in some for unit in plan.units
        }  # fmt: skip
        with self._phase("compiling", len(units)) as progress:
            build(self._backend, plans, progress.step, deadline)

    def _candidates(self, kernels: Sequence[Kernel], problem: Problem) -> list[Case]:
        return candidates(kernels, problem.reduction, problem.n, problem.rows, self._facts)

    def fastest(self, kernels: Sequence[Kernel], problem: Problem, deadline: Deadline) -> Found:
        """What is fastest for a problem; Ctrl-C ends it with what there is."""
        cases = self._candidates(kernels, problem)
        nbytes = problem.n * problem.rows * problem.reduction.dtype.size
        why = why_too_large(nbytes * self._backend.traits.host_copies)
        late = _INPUTS * problem.n * problem.rows / _MADE_PER_S >= deadline.left_s
        if not cases:
            return Found(problem=problem, why=_why_none(kernels, problem), refused=True)
        if why or late:
            return Found(problem=problem, why=why or "--max-time leaves no time for it")
        seeded = self._seeded(kernels, problem)
        try:
            with (
                self._phase(_title(problem), _HEATS) as progress,
                heats(
                    self._backend, self._monitor, problem, cases,
                    Deadline(_RACING * deadline.left_s), progress,
                ) as running,
            ):  # fmt: skip
                finalists = self._raced(running, cases)
        except KeyboardInterrupt:
            return Found(problem=problem, tried=len(cases), interrupted=True)
        except OutOfMemory as error:
            return Found(problem=problem, tried=len(cases), why=str(error))
        if not finalists:
            why = f"--max-time leaves no time to race its {counted(len(cases), 'launch shape')}"
            return Found(problem=problem, unfit=running.unfit, wrong=running.wrong, why=why)
        whole = {case.name: case for case in (*seeded.values(), *finalists)}
        found = self._measured(list(whole.values()), seeded, problem, deadline)
        return replace(found, unfit=running.unfit, wrong=running.wrong, tried=len(cases))

    def _seeded(self, kernels: Sequence[Kernel], problem: Problem) -> dict[str, Case]:
        """What is measured whoever wins: where a single kernel was named its own shape, and what
        `auto` takes now, under its names."""
        registry = self._registry.kernels
        found = {k.id: own_case(k, problem.reduction) for k in kernels[: len(kernels) == 1]}
        for name in (AUTO, AUTO_FIXED):
            chooser = Chooser(name, registry, self._facts, self._tables)
            taken = chooser.choose(problem.reduction, problem.n, problem.rows)
            if taken is not None:
                kernel = registry[taken.kernel.entry]
                shape = taken.block, taken.items, taken.kernel.grid
                found[name] = case_of(kernel, problem.reduction, *shape)
        return found

    def _raced(self, running: Heats, cases: Sequence[Case]) -> list[Case]:
        """The fastest of a race, and of another among those of a fixed order that it has left."""
        by_name = {case.name: case for case in cases}
        best = race(running.names, running.heat, _FINALISTS)
        if all(_varies(by_name[name]) for name in best):
            fixed = [name for name in running.names if not _varies(by_name[name])]
            best += race(fixed, running.heat, _FINALISTS // 2)
        return [by_name[name] for name in best]

    def _measured(
        self, cases: Sequence[Case], seeded: Mapping[str, Case], problem: Problem,
        deadline: Deadline,
    ) -> Found:  # fmt: skip
        """All of these in the same rounds, verified; the fastest against what there was before."""
        settings = Settings(
            reductions=(problem.reduction,), sizes=(problem.n,), rows=problem.rows, rounds=_ROUNDS,
            deadline=deadline,
        )  # fmt: skip
        choices = [
            Choice(case.kernel, name=case.name, block=case.block, items=case.items)
            for case in cases
        ]
        session = Session(self._backend, self._spec, settings, self._phase)
        try:
            parts = measured(session, choices)
        finally:
            session.close()
        peak = self._backend.info().peak_gb_s
        records = Recorder(self._backend.name, peak, settings, self._registry).all_records(parts)
        timed = {r.name: r for r in records if r.time_us is not None}
        outcomes = [
            outcome
            for name, before in seeded.items()
            if (outcome := _outcome(name, before, cases, timed)) is not None
        ]
        return Found(
            problem=problem, outcomes=tuple(outcomes), records=tuple(records),
            why=None if outcomes else "no time was left to measure the best",
            interrupted=any(part.interrupted for part in parts),
        )  # fmt: skip


def _varies(case: Case) -> bool:
    return case.kernel.varies(case.reduction)


def _outcome(
    name: str, before: Case, cases: Sequence[Case], timed: Mapping[str | None, Record]
) -> Outcome | None:
    """The fastest that may be taken under a name: what there was before, unless another is faster
    beyond the noise. None if it is not known how fast that was."""
    allowed = [case for case in cases if case.name in timed and _may_be(name, case)]
    if before.name not in timed:
        return None
    best = min(allowed, key=lambda case: timed[case.name].time_us or 0.0)
    if not faster(timed[best.name], timed[before.name]):
        best = before
    ratios = paired(timed[before.name].rounds_us, timed[best.name].rounds_us)
    low, high = interval(ratios) or (None, None)
    return Outcome(
        name=name, best=best, record=timed[best.name], against=timed[before.name],
        speedup=median(ratios), speedup_low=low, speedup_high=high,
    )  # fmt: skip


def _may_be(name: str, case: Case) -> bool:
    """Whether a case may be taken under a name: that of a kernel is its own."""
    if name in (AUTO, AUTO_FIXED):
        return not (name == AUTO_FIXED and _varies(case))
    return case.kernel.id == name


def faster(one: Record, other: Record) -> bool:
    """Whether it was faster in every round, and by more than rounds differ. An interval of 95 %
    would not do for the best of several: of seven equals the best is ahead of the first in all nine
    rounds once in 85 times."""
    ratios = paired(other.rounds_us, one.rounds_us)
    return len(ratios) >= MIN_ROUNDS and min(ratios) > 1 and median(ratios) > 1 + _NOISE


def entry_of(outcome: Outcome) -> Entry:
    """What a table says of it."""
    record, case = outcome.record, outcome.best
    return Entry(
        op=record.op, dtype=record.dtype, acc=record.acc, n=record.n, rows=record.rows,
        fixed=outcome.name == AUTO_FIXED, kernel=case.kernel.id, block=case.block,
        items=case.items, grid=case.kernel.grid, source_sha=case.kernel.sha,
        time_us=record.time_us or 0.0, time_us_low=record.time_us_low,
        time_us_high=record.time_us_high,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _title(problem: Problem) -> str:
    rows = f" x {problem.rows} rows" if problem.rows != 1 else ""
    return f"racing {problem.reduction.op.name} of {problem.n} {problem.reduction.dtype.name}{rows}"


def _why_none(kernels: Sequence[Kernel], problem: Problem) -> str:
    """Why no kernel takes a problem; of a single one its own reason."""
    for kernel in kernels[: len(kernels) == 1]:
        why = kernel.why_not(problem.reduction) or kernel.why_not_shape(problem.n, problem.rows)
        if why:
            return f"{kernel.id} {why}"
    return "no kernel that was named takes it"
