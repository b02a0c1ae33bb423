"""`tune`: searches for the fastest launch shapes and writes the table that `auto` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

from cudareduce.analysis.tune.search import (
    Outcome,
    Problem,
    Search,
    SearchResult,
    entry_of,
    kernels_named,
)
from cudareduce.backends.selection import choose_backend, open_timed
from cudareduce.bench.command import verdict_codes
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import AUTO, AUTO_FIXED, load_registry
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.launch.auto import table
from cudareduce.progress import phase, say
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import HALF_TICK_US, measured_text, short_size
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import by_reason
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.text import group_by


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """The options of `tune`: kernels, families or `auto`, and the problems, which combine every
    operator with every type and size. `max_time` is in seconds. `write` also writes the table into
    the package."""

    kernels: tuple[str, ...]
    n: tuple[int, ...]
    rows: int
    op: tuple[str, ...]
    dtype: tuple[str, ...]
    device: int
    max_time: float
    write: bool
    no_cache: bool
    quiet: bool
    outputs: Outputs
    argv: tuple[str, ...] = ()


def tune(request: TuneRequest) -> int:
    """Search, verify, time, write and print. Returns 0; 2 if no kernel supports any problem, 3 if
    the result of a launch shape was wrong, 4 if nothing was timed, 130 after Ctrl-C. Raises
    UsageError, and EnvironmentProblem without a GPU."""
    request.outputs.check()
    deadline, registry = Deadline(request.max_time), load_registry()
    kernels = kernels_named(request.kernels, registry, request.rows)
    problems = _problems(request)
    spec, remarks = choose_backend("cuda", request.device, not request.no_cache)
    for remark in remarks:
        say(remark, request.quiet)

    found: list[SearchResult] = []
    with open_timed(spec) as backend:
        device = backend.info()
        tables = table.tables_of(device, registry.kernels)
        search = Search(backend, spec, registry, tables, partial(phase, quiet=request.quiet))
        search.compile(kernels, problems, deadline.share(2))
        for k, problem in enumerate(problems):
            found.append(search.fastest(kernels, problem, deadline.share(len(problems) - k)))
            say(_outcome_text(found[-1]), request.quiet)
            if found[-1].interrupted:
                break

    protocol = {"kernels": list(request.kernels or (AUTO,)), "max_time_s": request.max_time,
                "rounds": 9, "tuned": _as_json(found)}  # fmt: skip
    records = tuple(record for each in found for record in each.records)
    run = Run(tool(request.argv), device, protocol, records)
    publish(request.outputs, _sections(found, device.name), run_texts(run))
    entries = [
        entry_of(outcome)
        for each in found for outcome in each.outcomes
        if outcome.gains and outcome.name in (AUTO, AUTO_FIXED)
    ]  # fmt: skip
    shipped = [table.shipped_folder()] if request.write else []
    for folder in [table.user_folder(), *shipped]:
        path = table.write_table(folder, device, entries, registry.kernels)
        if path is not None:
            say(f"wrote the choices of auto on {device.name} to {path}", request.quiet)

    if any(each.interrupted for each in found):
        return 130
    codes = verdict_codes(records) & {3}
    codes |= {3} if any(each.wrong for each in found) else set()
    if all(each.refused for each in found):
        codes.add(2)
    elif not any(each.outcomes for each in found):
        codes.add(4)
    return worst_exit_code(codes)


def _problems(request: TuneRequest) -> list[Problem]:
    """The requested problems that are defined, smallest first. Raises UsageError if there are
    none."""
    reductions = [reduction_of(op, dtype) for op, dtype in product(request.op, request.dtype)]
    undefined = [why for reduction in reductions if (why := reduction.why_undefined())]
    problems = [
        Problem(reduction=reduction, n=n, rows=request.rows)
        for n in sorted(n for n in request.n if n)
        for reduction in reductions if reduction.why_undefined() is None
    ]  # fmt: skip
    if not problems:
        raise UsageError(f"there is nothing to tune: {(*undefined, 'give --n a size above 0')[0]}")
    return problems


def _as_json(found: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """The outcomes as JSON, for the protocol of a run."""
    return [
        {
            "name": outcome.name, "tried": each.tried, "speedup": outcome.speedup,
            "speedup_low": outcome.speedup_low, "speedup_high": outcome.speedup_high,
            "before": outcome.against.name, "before_us": outcome.against.time_us,
            **asdict(entry_of(outcome)),
        }
        for each in found for outcome in each.outcomes
    ]  # fmt: skip


def _outcome_text(found: SearchResult) -> str:
    """The outcomes of one problem as text, one line each."""
    problem = found.problem
    lines = [
        f"{outcome.name}: {outcome.best.name}, {_time(outcome.record)} us, "
        + (f"{_speedup(outcome)} times as fast as before" if outcome.gains else "as before")
        for outcome in _shown(found)
    ]
    rows = f" x {problem.rows} rows" if problem.rows != 1 else ""
    name = f"{problem.reduction.op.name} of {short_size(problem.n)} {problem.reduction.dtype.name}"
    return "\n  ".join((f"{name}{rows}:", *(lines or [found.why or "interrupted"])))


def _sections(found: Sequence[SearchResult], device: str) -> list[Section]:
    """A table per reduction with a row per size and outcome."""
    groups = group_by(found, lambda each: (each.problem.reduction, each.problem.rows))
    sections = []
    for (reduction, rows), group in groups.items():
        table_rows = tuple(
            (
                short_size(each.problem.n), outcome.name, outcome.best.kernel.id,
                f"{outcome.best.block} x {outcome.best.items} {outcome.best.kernel.grid}",
                _time(outcome.record), _speedup(outcome),
            )
            for each in group for outcome in _shown(each)
        )  # fmt: skip
        of_rows = f" x {rows} rows" if rows != 1 else ""
        what = f"{reduction.op.name} of {reduction.dtype.name}{of_rows}"
        title = f"{what}, cold, {device}: the fastest launch shapes"
        header = ("n", "for", "kernel", "launch shape", "us", "speedup")
        sections.append(Section(title, header, table_rows, tuple(_notes(group)), 4))
    return sections


def _shown(found: SearchResult) -> list[Outcome]:
    """The outcomes, without `auto:fixed` if it equals another."""
    others = [outcome.best for outcome in found.outcomes if outcome.name != AUTO_FIXED]
    return [outcome for outcome in found.outcomes
            if outcome.name != AUTO_FIXED or outcome.best not in others]  # fmt: skip


def _time(r: Record) -> str:
    return measured_text(r.time_us, r.time_us_low, r.time_us_high, HALF_TICK_US)


def _speedup(outcome: Outcome) -> str:
    """The speedup as text; 1 if the current choice is kept."""
    if not outcome.gains:
        return "1"
    finest = HALF_TICK_US / (outcome.record.time_us or 1.0)
    return measured_text(outcome.speedup, outcome.speedup_low, outcome.speedup_high, finest)


def _notes(found: Sequence[SearchResult]) -> Iterator[str]:
    """The notes below the tables: meaning of the columns, problems without a gain, and launch
    shapes that were left out."""
    if any(each.outcomes for each in found):
        yield "launch shape: threads per block x items per thread, and the grid rule"
        yield "speedup: over the choice before; of a single kernel, over its default shape"
    same = [
        f"{short_size(each.problem.n)} {outcome.name}"
        for each in found for outcome in _shown(each) if not outcome.gains
    ]  # fmt: skip
    if same:
        yield f"no gain beyond the noise, so no change: {', '.join(same)}"
    why = [(short_size(each.problem.n), each.why) for each in found if each.why]
    for reason, sizes in by_reason(why).items():
        yield f"{', '.join(sizes)}: {reason}"
    wrong: dict[str, list[str]] = {}
    for each in found:
        for name, reason in each.wrong.items():
            kernel, _, shape = name.partition(", ")
            first = f"{shape} at {short_size(each.problem.n)}: {reason}"
            wrong.setdefault(kernel, []).append(first)
    for kernel, shapes in wrong.items():
        yield f"{kernel}: WRONG in {counted(len(shapes), 'launch shape')}, first {shapes[0]}"
    unfit = dict.fromkeys(item for each in found for item in each.unfit.items())
    for reason, names in by_reason(unfit).items():
        kernels = Counter(name.partition(", ")[0] for name in names)
        which = (f"{kernel} in {counted(k, 'launch shape')}" for kernel, k in kernels.items())
        yield f"left out, {reason}: {', '.join(which)}"
