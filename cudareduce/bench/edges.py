"""Verdicts on cases where they may go wrong, before they are tried at the sizes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudareduce.bench.session import Part, Session
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.verify.test_sets import ROW_SHAPES, TestSet, edge_sizes, edges
from cudareduce.verify.verdict import Verdict, skipped

#: Edge sizes up to this are part of every bench; `verify` takes them all.
_QUICK_EDGE = 65537


def parts_to_verify(session: Session, cases: Sequence[Case]) -> list[Part]:
    """The verification of cases in parts: where they may go wrong, then at each size of the run.
    Cases that are too large for the host's memory at every size have none."""
    rows = session.settings.rows
    return [
        part for case in cases if _too_large(session, case) is None
        for part in (
            Part(case, tuple(_edges(session, case)), _test_sets(session, case)),
            *(Part(case, ((n, rows),)) for n in session.settings.sizes_of(case)),
        )
    ]  # fmt: skip


def at_edges(
    session: Session, runnable: Sequence[Case]
) -> tuple[list[Prepared], dict[Case, Verdict]]:
    """Cases prepared for the sizes of the run, and the verdicts on them where they may go wrong; a
    skip if memory is too small for every size. May raise KeyboardInterrupt."""
    settings = session.settings
    edges_of = {case: _edges(session, case) for case in runnable}
    too_large = {
        case: skipped("machine", why) for case in runnable if (why := _too_large(session, case))
    }
    nets = {case: _test_sets(session, case) for case in runnable if case not in too_large}
    shapes = {
        case: [*some, *((n, settings.rows) for n in settings.sizes_of(case))]
        for case, some in edges_of.items()
    }
    small = [case for case in runnable if case not in too_large]
    prepared, unbuilt = session.prepare(small, shapes, nets, in_workers=True)
    found = session.verify(prepared, edges_of, {}, nets=nets, skip_others=True)
    if found.interrupted and not session.interrupted:
        raise KeyboardInterrupt
    verdicts = {case: _elsewhere(verdict) for case, verdict in found.verdicts.items()}
    return prepared, too_large | unbuilt | verdicts


def _too_large(session: Session, case: Case) -> str | None:
    """Why the host's memory does not hold the smallest input of the run; None if it does."""
    smallest = min(session.settings.sizes_of(case), default=0)
    return session.why_too_large(case, [(smallest, session.settings.rows)])


def _test_sets(session: Session, case: Case) -> list[TestSet]:
    return session.jobs.nets(case, every=_of_a_user(case))


def _edges(session: Session, case: Case) -> list[Shape]:
    """Where a case may go wrong: of a user's own file all that `verify` takes on any machine,
    since no test of ours has tried it; of others what hurts every kernel."""
    if _of_a_user(case):
        return list(edges(case, session.backend.limits()))
    shapes = [*((n, 1) for n in edge_sizes(case.block)), *ROW_SHAPES]
    return [(n, rows) for n, rows in shapes if n * rows <= _QUICK_EDGE]


def _of_a_user(case: Case) -> bool:
    """Whether a case is a file of a user's, and not of another tree of the package."""
    return case.kernel.foreign and case.name is None


def _elsewhere(verdict: Verdict) -> Verdict:
    """What a verdict at the edges says of another size: errors and repeated results are that
    size's own."""
    return replace(verdict, error=None, bound=None, ulp=None, distinct=None, launches=None)
