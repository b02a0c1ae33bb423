"""The loop over reductions and sizes: verify every case, then time the correct ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from cudareduce.backends.protocol import Monitor
from cudareduce.bench.cases import make_cases
from cudareduce.bench.preconditions import preconditions, with_conditions, with_races
from cudareduce.bench.records import Group, ReductionResult, Times
from cudareduce.bench.session import Session, VerificationTask
from cudareduce.bench.trial import Trial
from cudareduce.catalog.registry import Choice
from cudareduce.errors import EnvironmentProblem, OutOfMemory
from cudareduce.external.files import ExternalFiles
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.reduction.operators import Reduction
from cudareduce.verify.test_sets import ROW_SHAPES, TestSet, edge_sizes, edges
from cudareduce.verify.verdict import Verdict, skipped

#: `bench` verifies edge shapes of up to this many elements, `verify` all of them.
_QUICK_EDGE = 65537
#: Verifying and uploading this many elements takes as long as timing a small size. On an H200, nine
#: rounds of two kernels took 6.1 s up to 2^24; 2^26 took 7.6 s and 1.8 s for verification.
_ELEMENTS_PER_TIMING = 2**28


def measure_kernels(
    session: Session, choices: Sequence[Choice], files: ExternalFiles | None = None
) -> list[ReductionResult]:
    """Verify and time every choice, reduction by reduction. After Ctrl-C, returns the results so
    far. `files` loads external files at other sizes, to find preconditions."""
    timed = session.backend.timed()
    runner = _Runner(session, timed.monitor() if timed else None, files)
    results: list[ReductionResult] = []
    cases = make_cases(session, choices)
    runnable = [case for group in cases.values() for case, verdict in group if verdict is None]
    session.verify_ahead(verification_tasks(session, [runner.sized(case) for case in runnable]))
    for k, (reduction, group) in enumerate(cases.items()):
        results.append(runner.measure(reduction, group, len(cases) - k - 1))
        if results[-1].interrupted:
            break
    return results


class _Runner:
    """Measures the reductions of one run."""

    def __init__(
        self, session: Session, monitor: Monitor | None, files: ExternalFiles | None
    ) -> None:
        self._files = files
        self._session, self._settings, self._monitor = session, session.settings, monitor

    def measure(
        self,
        reduction: Reduction,
        cases: Sequence[tuple[Case, Verdict | None]],
        reductions_ahead: int,
    ) -> ReductionResult:
        """Measure all sizes of one reduction. `reductions_ahead` is the number of reductions that
        share the remaining time."""
        cases = [(self.sized(case), verdict) for case, verdict in cases]
        runnable = tuple(case for case, verdict in cases if verdict is None)
        order = tuple(case for case, _ in cases)
        groups: list[Group] = []
        interrupted = False
        try:
            session = self._session
            prepared, edge_verdicts = prepare_and_verify_edges(session, runnable)
            better, causes = dict[Case, Case](), dict[Case, Verdict]()
            if not session.interrupted:
                edge_verdicts = with_races(session, edge_verdicts)
            if self._files is not None and not session.interrupted:
                better, causes = preconditions(session, edge_verdicts, self._files)
            better = {case: self.sized(other) for case, other in better.items()}
            mended, again = (
                prepare_and_verify_edges(session, tuple(better.values())) if better else ([], {})
            )
            prepared = [*(p for p in prepared if p.case not in better), *mended]
            runnable, order = (
                tuple(better.get(case, case) for case in some) for some in (runnable, order)
            )
            verdicts = {case: verdict for case, verdict in cases if verdict}
            verdicts |= with_conditions({**edge_verdicts, **causes}, better, again)
            sizes = self._sizes(order)
            for k, n in enumerate(sizes):
                ahead = [*sizes[k + 1 :], *sizes * reductions_ahead]
                at_n = [p for p in prepared if n in self._settings.sizes_of(p.case)]
                known = {
                    case: verdict
                    for case, verdict in verdicts.items()
                    if n in self._settings.sizes_of(case)
                }
                groups.append(self._group(reduction, n, at_n, known, ahead))
                if groups[-1].interrupted:
                    interrupted = True
                    break
        except KeyboardInterrupt:
            interrupted = True
        return ReductionResult(
            cases=order, runnable=runnable, groups=tuple(groups), interrupted=interrupted,
        )  # fmt: skip

    def sized(self, case: Case) -> Case:
        """The case; an external program that was not recorded at the default sizes is measured at
        its largest one."""
        program = case.kernel.program
        if program is None or not self._settings.usual_sizes:
            return case
        sizes = [n for n, rows in program.shapes if rows == 1]
        if not sizes or set(sizes) & set(self._settings.sizes):
            return case
        return replace(case, only=frozenset([max(sizes)]))

    def _sizes(self, cases: Sequence[Case]) -> list[int]:
        """The requested sizes with cases, then sizes of single external files."""
        own = {n for case in cases for n in self._settings.sizes_of(case)}
        return [
            *(n for n in self._settings.sizes if n in own),
            *sorted(own - {*self._settings.sizes}),
        ]

    def _group(
        self,
        reduction: Reduction,
        n: int,
        prepared: Sequence[Prepared],
        verdicts: Mapping[Case, Verdict],
        ahead: Sequence[int],
    ) -> Group:
        """Verify one size, and time it if the backend has timers. `ahead` are the sizes that share
        the remaining time."""
        settings = self._settings
        shape = n, settings.rows
        supported = [p for p in prepared if shape in p.plans]
        group = partial(
            Group, reduction=reduction, n=n, plans={p.case: p.plans[shape] for p in supported},
            shas={p.case: _binary(p, shape) for p in supported},
        )  # fmt: skip
        shapes = {p.case: [shape] for p in prepared}
        verification = self._session.verify(prepared, shapes, verdicts)
        verdicts = verification.verdicts
        verified = group(verdicts=verdicts, interrupted=verification.interrupted)
        if verification.interrupted:
            return verified
        timed = self._session.backend.timed()
        right = [p for p in prepared if verdicts[p.case].outcome == "pass"]
        if timed is None or self._monitor is None or not n * settings.rows or not right:
            return verified
        ways = len(settings.methods)
        shares = sum(ways + (ways + 1) * self._moves(m) for m in ahead)
        try:
            with closing(Trial(self._session, timed, self._monitor, verified, right)) as trial:
                return self._timed(trial, verified, self._monitor, shares)
        except OutOfMemory as error:
            return _without_memory(verified, error)
        except KeyboardInterrupt:
            return replace(verified, interrupted=True)

    def _moves(self, n: int) -> float:
        """The cost of moving `n` elements per row once, in timings of a small size."""
        return n * self._settings.rows / _ELEMENTS_PER_TIMING

    def _timed(self, trial: Trial, group: Group, monitor: Monitor, ahead: float) -> Group:
        """Time the correct cases. `ahead` is the expected cost of the sizes that follow,
        relative to that of a small size; it limits the share of the remaining time."""
        settings, methods = self._settings, self._settings.methods
        times: dict[str, Times] = {}
        protocols: list[Mapping[str, Any]] = []
        remarks: list[str] = []
        interrupted = False
        for k, method in enumerate(methods):
            others = monitor.other_processes()
            weight = len(methods) - k + ahead / (1 + self._moves(group.n))
            try:
                result = trial.measure(method, settings.deadline.share(weight), others)
            except EnvironmentProblem as problem:  # the other methods may still be possible
                remarks.append(f"{method.label}: {problem}")
                continue
            except OutOfMemory as error:
                group = replace(
                    group, protocols=tuple(protocols), remarks=tuple(remarks), tried=True
                )
                return _without_memory(group, error)
            times[method.label] = result.times
            if interrupted := result.interrupted:
                break
            protocols.append(result.protocol)
            remarks += [f"{method.label}, n = {group.n}: {remark}" for remark in result.remarks]
        hurried = interrupted or settings.deadline.passed
        try:
            group = trial.verify_after_timing(replace(group, times=times), hurried=hurried)
        except KeyboardInterrupt:  # unverified results have no times
            interrupted, group = True, replace(group, times={})
        else:
            remarks += [monitor.problem] if monitor.problem else []
        return replace(
            group, protocols=tuple(protocols), remarks=tuple(remarks), tried=True,
            interrupted=interrupted,
        )  # fmt: skip


def _without_memory(group: Group, error: OutOfMemory) -> Group:
    """The group with its right cases skipped because GPU memory ran out during timing."""
    skip = skipped("machine", str(error))
    left = {c: skip if v.outcome == "pass" else v for c, v in group.verdicts.items()}
    return replace(group, verdicts=left, times={})


def _binary(prepared: Prepared, shape: Shape) -> str | None:
    """SHA-256 of the machine code of a plan; with several modules, the hash of their hashes."""
    programs = [prepared.programs.get(unit) for unit in prepared.plans[shape].units]
    hashes = [program.binary_sha if program else None for program in programs]
    known = [sha for sha in hashes if sha is not None]
    if not known or len(known) < len(hashes):
        return None
    return known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()


def verification_tasks(session: Session, cases: Sequence[Case]) -> list[VerificationTask]:
    """Tasks for each case: one for its edge sizes, and one for each size of the run. Cases whose
    smallest input does not fit into host memory have none."""
    rows = session.settings.rows
    return [
        part for case in cases if _too_large(session, case) is None
        for part in (
            VerificationTask(case, tuple(_edges(session, case)), _test_sets(session, case)),
            *(VerificationTask(case, ((n, rows),)) for n in session.settings.sizes_of(case)),
        )
    ]  # fmt: skip


def prepare_and_verify_edges(
    session: Session, runnable: Sequence[Case]
) -> tuple[list[Prepared], dict[Case, Verdict]]:
    """Plan and compile cases for the sizes of the run, and verify them at edge sizes.

    Returns the prepared cases and the verdicts. A case whose smallest input does not fit into host
    memory is skipped. May raise KeyboardInterrupt."""
    settings = session.settings
    edges_of = {case: _edges(session, case) for case in runnable}
    too_large = {
        case: skipped("machine", why) for case in runnable if (why := _too_large(session, case))
    }
    test_sets = {case: _test_sets(session, case) for case in runnable if case not in too_large}
    shapes = {
        case: [*edge_shapes, *((n, settings.rows) for n in settings.sizes_of(case))]
        for case, edge_shapes in edges_of.items()
    }
    small = [case for case in runnable if case not in too_large]
    prepared, unbuilt = session.prepare(small, shapes, test_sets, in_workers=True)
    verified = session.verify(prepared, edges_of, {}, test_sets=test_sets, skip_others=True)
    if verified.interrupted and not session.interrupted:
        raise KeyboardInterrupt
    verdicts = {case: _size_independent(verdict) for case, verdict in verified.verdicts.items()}
    return prepared, too_large | unbuilt | verdicts


def _too_large(session: Session, case: Case) -> str | None:
    """Why the smallest input of the run does not fit into host memory; None if it does."""
    smallest = min(session.settings.sizes_of(case), default=0)
    return session.why_too_large(case, [(smallest, session.settings.rows)])


def _test_sets(session: Session, case: Case) -> list[TestSet]:
    return session.jobs.test_sets(case, every=_is_user_file(case))


def _edges(session: Session, case: Case) -> list[Shape]:
    """The edge shapes at which a case is verified before timing.

    A user's file gets all edge shapes of `verify`. A kernel of the package, which its tests cover,
    gets small ones only."""
    if _is_user_file(case):
        return list(edges(case, session.backend.limits()))
    shapes = [*((n, 1) for n in edge_sizes(case.block)), *ROW_SHAPES]
    return [(n, rows) for n, rows in shapes if n * rows <= _QUICK_EDGE]


def _is_user_file(case: Case) -> bool:
    """True for an external file; False for kernels of the package, also of another git tree."""
    return case.kernel.foreign and case.name is None


def _size_independent(verdict: Verdict) -> Verdict:
    """The verdict without errors and repeat counts, which hold for one size only."""
    return replace(verdict, error=None, bound=None, ulp=None, distinct=None, launches=None)
