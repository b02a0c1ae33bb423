"""The command `verify`: verify kernels without timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from cudareduce.backends.selection import never_timed
from cudareduce.bench.cases import Cases, make_cases, table_warnings
from cudareduce.bench.command import strict_codes, verdict_codes
from cudareduce.bench.preconditions import preconditions, with_conditions, with_races
from cudareduce.bench.records import Group, Recorder
from cudareduce.bench.request import (
    Machine,
    VerifyRequest,
    external_files,
    file_deadline,
    open_session,
    select_kernels,
    verify_settings,
)
from cudareduce.bench.session import Session, VerificationTask
from cudareduce.bench.settings import Settings
from cudareduce.bench.summary import recorded_lines, run_summary
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.external.files import ExternalFiles
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.progress import say
from cudareduce.reduction.operators import Reduction
from cudareduce.report.publish import publish
from cudareduce.report.section import Section
from cudareduce.report.sections import verification_sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.verify.jobs import combined
from cudareduce.verify.sanitizer import find_sanitizer, sanitized
from cudareduce.verify.test_sets import TestSet, edges
from cudareduce.verify.verdict import Verdict, if_launched


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Records without times, and the exit code (130 after Ctrl-C)."""

    run: Run
    exit_code: int
    recorded: tuple[str, ...] = ()  # of external programs: what their host code launches


def verify(request: VerifyRequest) -> int:
    """Verify, print and store; returns the exit code. Raises UsageError and EnvironmentProblem."""
    began = monotonic()
    done = verified(request)
    publish(request.outputs, found_sections(done.run), run_texts(done.run))
    hint = "Run cudareduce bench to time the correct kernels."
    line = run_summary(
        done.run.records, monotonic() - began, hint, interrupted=done.exit_code == 130
    )
    say(line, request.machine.quiet)
    say("\n".join(done.recorded), request.machine.quiet)
    return done.exit_code


def found_sections(run: Run) -> list[Section]:
    """The verdicts as tables."""
    return verification_sections(run.records, f"results on {run.device.name}")


def verified(request: VerifyRequest) -> Verified:
    """Verify at the requested sizes, by default at edge sizes. Raises UsageError and
    EnvironmentProblem."""
    quiet, registry = request.machine.quiet, load_registry(request.selection.folders)
    deadline, files = file_deadline(request), external_files(request)
    choices = select_kernels(request, registry, files)
    request.outputs.check(*(choice.kernel.path for choice in choices))
    settings = verify_settings(request)
    if request.machine.max_time is not None or all(choice.kernel.program for choice in choices):
        settings = replace(settings, deadline=deadline)
    with open_session(request.machine, settings) as session:
        if request.sanitize:
            _check_sanitizer(session, request.machine)
        say(table_warnings(session, choices), quiet)
        recorder = Recorder(session.backend.name, None, settings, registry)
        records: list[Record] = []
        groups: list[Group] = []
        codes: set[int] = set()
        cases = make_cases(session, choices)
        session.verify_ahead([
            VerificationTask(case, tuple(_shapes(session, case)), _test_sets(session, case))
            for group in cases.values() for case, verdict in group if verdict is None
        ])  # fmt: skip
        for reduction, group in cases.items():
            result = _verify_reduction(session, group, reduction, request)
            result = _with_preconditions(session, result, request, files)
            records += recorder.records(result.group, result.cases)
            groups.append(result.group)
            if result.group.interrupted:
                codes |= {130}
                break
        device = session.backend.info()
        if request.peers and 130 not in codes:
            from cudareduce.bench.library_timing import verify_libraries

            library_pass = verify_libraries(session, groups, recorder, request.peers)
            records += library_pass.records
            codes |= {130} if library_pass.interrupted else set()
    codes |= strict_codes(request, groups, records) if request.strict else set()
    return Verified(
        run=Run(tool(request.argv), device, {"sizes": list(settings.sizes)}, tuple(records)),
        exit_code=130
        if 130 in codes
        else worst_exit_code(
            codes | verdict_codes(records) | {why.exit_code for why in files.left_out}
        ),
        recorded=recorded_lines(choices),
    )


@dataclass(frozen=True, slots=True)
class _ReductionVerdicts:
    """The cases of one reduction in the requested order, with their verdicts."""

    cases: tuple[Case, ...]
    group: Group


def _verify_reduction(
    session: Session, cases: Cases, reduction: Reduction, request: VerifyRequest
) -> _ReductionVerdicts:
    settings = session.settings
    verdicts = {case: verdict for case, verdict in cases if verdict}
    runnable = [case for case, verdict in cases if verdict is None]
    shapes = {case: _shapes(session, case) for case in runnable}
    test_sets = {case: _test_sets(session, case) for case in runnable}
    prepared: list[Prepared] = []
    interrupted = False
    try:
        prepared, unbuilt = session.prepare(runnable, shapes, test_sets, in_workers=True)
        outcome = session.verify(
            prepared,
            shapes,
            verdicts | unbuilt,
            test_sets=test_sets,
            skip_others=not settings.sizes,
        )
        verdicts, interrupted = dict(outcome.verdicts), outcome.interrupted
        if not settings.sizes:
            verdicts = {case: if_launched(verdict) for case, verdict in verdicts.items()}
        if request.sanitize and not interrupted:
            verdicts |= _sanitized(session, prepared, verdicts)
    except KeyboardInterrupt:
        interrupted = True
    plans = {one.case: plan for one in prepared if (plan := _largest(one))}
    group = Group(
        reduction=reduction, n=max(_sizes(shapes, settings)), plans=plans, verdicts=verdicts,
        interrupted=interrupted,
    )  # fmt: skip
    return _ReductionVerdicts(tuple(case for case, _ in cases), group)


def _with_preconditions(
    session: Session, result: _ReductionVerdicts, request: VerifyRequest, files: ExternalFiles
) -> _ReductionVerdicts:
    """Search a precondition for each failed case. A case that passes under it gets that verdict."""
    group = result.group
    if group.interrupted or all(v.outcome == "pass" for v in group.verdicts.values()):
        return result
    try:
        group = replace(group, verdicts=with_races(session, group.verdicts))
        better, causes = preconditions(session, group.verdicts, files)
        group = replace(group, verdicts={**group.verdicts, **causes})
        conditional: Cases = [(case, None) for case in better.values()]
        again = (
            _verify_reduction(session, conditional, group.reduction, request).group
            if conditional
            else group
        )
        verdicts = with_conditions(group.verdicts, better, again.verdicts if conditional else {})
    except KeyboardInterrupt:
        return replace(result, group=replace(group, interrupted=True))
    plans = {**group.plans, **again.plans}
    group = replace(group, plans=plans, verdicts=verdicts, interrupted=again.interrupted)
    return _ReductionVerdicts(tuple(better.get(case, case) for case in result.cases), group)


def _check_sanitizer(session: Session, machine: Machine) -> None:
    """Raise an error if compute-sanitizer is missing or there is no GPU."""
    if session.spec.timed:
        find_sanitizer()
        return
    why = "--sanitize needs a GPU: leave it out, on the CPU, verify checks every memory access"
    raise UsageError(why) if never_timed(machine.backend) else EnvironmentProblem(why)


def _sanitized(
    session: Session, prepared: Sequence[Prepared], verdicts: Mapping[Case, Verdict]
) -> dict[Case, Verdict]:
    """The verdicts of correct cases, combined with the findings of compute-sanitizer."""
    right = [one for one in prepared if verdicts[one.case].outcome == "pass"]
    checked: dict[Case, Verdict] = {}
    with session.phase("under compute-sanitizer", len(right)) as progress:
        for one in right:
            progress.now(one.case.kernel.id)
            job = session.jobs.watched_on_gpu(one)
            if job is not None:
                watched = sanitized(job, session.settings.deadline)
                checked[one.case] = combined(verdicts[one.case], watched)
            progress.step()
    return checked


def _largest(one: Prepared) -> Plan | None:
    """The plan at the largest `n`, whose launches are recorded; None if the case has no plan."""
    return one.plans[max(one.plans)] if one.plans else None


def _sizes(shapes: Mapping[Case, Sequence[Shape]], settings: Settings) -> list[int]:
    """Elements per row of the tested shapes."""
    return [n for case_shapes in shapes.values() for n, _ in case_shapes] or [*settings.sizes, 0]


def _test_sets(session: Session, case: Case) -> list[TestSet]:
    return session.jobs.test_sets(case, every=not session.settings.sizes)


def _shapes(session: Session, case: Case) -> Sequence[Shape]:
    """The requested shapes, or the edge shapes of this kernel."""
    settings, backend = session.settings, session.backend
    requested = [(n, settings.rows) for n in settings.sizes if case.at(n)]
    return requested or edges(case, backend.limits(), large=backend.traits.large)
