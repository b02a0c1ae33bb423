"""`verify`: only the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudareduce.backend import BuildError
from cudareduce.bench.command import _adopter, _exit_code, opened, write
from cudareduce.bench.group import Group
from cudareduce.bench.records import Join
from cudareduce.bench.session import Session
from cudareduce.launch.case import Case
from cudareduce.library.registry import load_registry
from cudareduce.report.sections import verdict_section
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.verify.verdict import Verdict
from cudareduce.verify.verify import ROW_SHAPES, edge_sizes

#: Where float32 no longer counts by ones, and where offsets in bytes no longer fit 32 bits.
_GPU_SIZES = (2**24 + 1,)
_BEYOND_32_BITS = 2**32 + 12


def run_verify(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Only the answers, at the sizes asked for or at those where reductions go wrong."""
    registry = load_registry(options["folders"])
    choices = registry.choose(names, _adopter(options))
    with opened(options) as (session, device):
        settings = session.settings
        join = Join(session.backend.name, session.backend.limits(), None, settings, registry)
        records: list[Record] = []
        interrupted, codes = False, set()
        for what in settings.reductions:
            cases = list(session.cases(choices, what))
            verdicts = {case: Verdict("skip", reason) for case, reason in cases if reason}
            runnable = [case for case, reason in cases if not reason]
            shapes = [(n, settings.rows) for n in settings.sizes]
            shapes = shapes or _edge_shapes(session, runnable)
            group = Group(what, max(shapes)[0], verdicts, {})
            try:
                built = session.build(runnable, shapes)
                failed = {c: made for c, made in built.items() if isinstance(made, BuildError)}
                codes |= {2} if failed else set()
                verdicts |= {
                    c: Verdict("skip", f"does not compile: {e}") for c, e in failed.items()
                }
                good = {c: made for c, made in built.items() if not isinstance(made, BuildError)}
                session.verify(good, shapes, verdicts, hazards=True, skip_others=not settings.sizes)
            except KeyboardInterrupt:
                interrupted = True
            records += join.records(group, [case for case, _ in cases])
            if interrupted:
                break
        run = Run(tool(options["argv"]), device, {"sizes": list(settings.sizes)}, tuple(records))
    title = f"answers on {device.name}"
    write(run, [verdict_section(records, title)], options)
    return 130 if interrupted else _exit_code(records, codes)


def _edge_shapes(session: Session, cases: list[Case]) -> list[tuple[int, int]]:
    sizes = edge_sizes(max((case.block for case in cases), default=1))
    if session.backend.name == "cuda" and cases:
        sizes += [*_GPU_SIZES, _BEYOND_32_BITS // cases[0].what.dtype.size]
    return [*((n, 1) for n in sizes), *ROW_SHAPES]
