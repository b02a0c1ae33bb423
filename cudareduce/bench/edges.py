"""Verdicts on cases where they may go wrong, before they are tried at the sizes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudareduce.bench.session import Session
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.verify.test_sets import ROW_SHAPES, edge_sizes, edges
from cudareduce.verify.verdict import Verdict

#: Edge sizes up to this are part of every bench; `verify` takes them all.
_QUICK_EDGE = 65537


def at_edges(
    session: Session, runnable: Sequence[Case]
) -> tuple[list[Prepared], dict[Case, Verdict]]:
    """Cases prepared for the sizes of the run, and the verdicts on them where they may go wrong.
    May raise KeyboardInterrupt."""
    settings = session.settings
    edges_of = {case: _edges(session, case) for case in runnable}
    nets = {case: session.jobs.nets(case, every=_of_a_user(case)) for case in runnable}
    shapes = {
        case: [*some, *((n, settings.rows) for n in settings.sizes_of(case))]
        for case, some in edges_of.items()
    }
    prepared, unbuilt = session.prepare(runnable, shapes, nets)
    found = session.verify(prepared, edges_of, {}, nets=nets, skip_others=True)
    if found.interrupted:
        raise KeyboardInterrupt
    return prepared, unbuilt | {c: _elsewhere(v) for c, v in found.verdicts.items()}


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
    """What a verdict at the edges says of another size: errors are that size's own."""
    return replace(verdict, error=None, bound=None, ulp=None)
