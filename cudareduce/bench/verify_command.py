"""`verify`: only the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from cudareduce.bench.command import verdict_codes
from cudareduce.bench.group import Group
from cudareduce.bench.records import Recorder
from cudareduce.bench.request import VerifyRequest, chosen, opened, verify_settings
from cudareduce.bench.session import Session
from cudareduce.bench.telling import closing_line
from cudareduce.errors import worst_exit_code
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.library.registry import Choice, load_registry
from cudareduce.problem.operators import Reduction
from cudareduce.progress import say
from cudareduce.report.publish import publish
from cudareduce.report.sections import verdict_section
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.verify.verify import ROW_SHAPES, edge_sizes

#: Where float32 no longer counts by ones, and where offsets in bytes no longer fit 32 bits.
_LARGE_SIZES = (2**24 + 1,)
_BEYOND_32_BITS = 2**32 + 12


def verify(request: VerifyRequest) -> int:
    """Only the answers, at the sizes asked for or at those where reductions go wrong; the exit
    code. Raises UsageError and EnvironmentProblem."""
    began = monotonic()
    registry = load_registry(request.selection.folders)
    choices = chosen(request.selection, registry, request.machine.quiet)
    request.outputs.check(*(choice.kernel.path for choice in choices))
    settings = verify_settings(request)
    with opened(request.machine, settings) as session:
        device = session.backend.info()
        recorder = Recorder(session.backend.name, None, settings, registry)
        records: list[Record] = []
        codes: set[int] = set()
        for reduction in settings.reductions:
            answers = _answers(session, choices, reduction)
            records += recorder.records(answers.group, answers.cases)
            if answers.group.interrupted:
                codes |= {130}
                break
    run = Run(tool(request.argv), device, {"sizes": list(settings.sizes)}, tuple(records))
    publish(
        request.outputs, [verdict_section(records, f"answers on {device.name}")], run_texts(run)
    )
    following = "cudareduce bench, which times what is right"
    line = closing_line(records, monotonic() - began, following, interrupted=130 in codes)
    say(line, request.machine.quiet)
    return 130 if 130 in codes else worst_exit_code(codes | verdict_codes(records))


@dataclass(frozen=True, slots=True)
class _Answers:
    """One reduction's cases, in the order asked for, with their verdicts."""

    cases: tuple[Case, ...]
    group: Group


def _answers(session: Session, choices: Sequence[Choice], reduction: Reduction) -> _Answers:
    settings, cases = session.settings, session.cases(choices, reduction)
    verdicts = {case: verdict for case, verdict in cases if verdict}
    runnable = [case for case, verdict in cases if verdict is None]
    shapes = [(n, settings.rows) for n in settings.sizes] or _edge_shapes(session, runnable)
    prepared: list[Prepared] = []
    interrupted = False
    try:
        prepared, unbuilt = session.prepare(runnable, shapes, hazards=True)
        found = session.verify(
            prepared, shapes, verdicts | unbuilt, hazards=True, skip_others=not settings.sizes
        )
        verdicts, interrupted = dict(found.verdicts), found.interrupted
    except KeyboardInterrupt:
        interrupted = True
    plans = {one.case: plan for one in prepared if (plan := _largest(one))}
    group = Group(
        reduction=reduction, n=max(shapes)[0], plans=plans, verdicts=verdicts,
        interrupted=interrupted,
    )  # fmt: skip
    return _Answers(tuple(case for case, _ in cases), group)


def _largest(one: Prepared) -> Plan | None:
    """The plan of the longest rows that a case takes: what its record tells the launches of."""
    return one.plans[max(one.plans)] if one.plans else None


def _edge_shapes(session: Session, cases: Sequence[Case]) -> list[Shape]:
    sizes = edge_sizes(max((case.block for case in cases), default=1))
    if session.backend.traits.large and cases:
        sizes += [*_LARGE_SIZES, _BEYOND_32_BITS // cases[0].reduction.dtype.size]
    return [*((n, 1) for n in sizes), *ROW_SHAPES]
