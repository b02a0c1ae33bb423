"""`tune`: search launch shapes, print them, and write the table that `auto` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

from cudareduce.auto import table
from cudareduce.backends import choose_backend, open_timed
from cudareduce.bench.command import verdict_codes
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import AUTO, AUTO_FIXED, Registry, load_registry
from cudareduce.machine.device import DeviceInfo
from cudareduce.problem.operators import reduction_of
from cudareduce.problem.sizes import counted
from cudareduce.progress import phase, say
from cudareduce.report.numbers import HALF_TICK_US, measured_text, short_size
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import by_reason
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.tune.search import Found, Outcome, Problem, Search, entry_of, kernels_named

_HEADER = ("n", "for", "kernel", "launch shape", "us", "speedup")


def tune_sections(found: Sequence[Found], device: str) -> list[Section]:
    """One table per reduction with a row per size; notes list what was left out."""
    groups: dict[tuple[str, str, int], list[Found]] = {}
    for one in found:
        reduction = one.problem.reduction
        key = reduction.op.name, reduction.dtype.name, one.problem.rows
        groups.setdefault(key, []).append(one)
    return [
        Section(
            f"{op} of {dtype}{f' x {rows} rows' if rows != 1 else ''}, cold, {device}: the fastest "
            "launch shapes",
            _HEADER, tuple(_rows(group)), tuple(_notes(group)), 4,
        )
        for (op, dtype, rows), group in groups.items()
    ]  # fmt: skip


def outcome_text(found: Found) -> str:
    """The outcomes of one problem, one line each."""
    problem, what = found.problem, [
        f"{outcome.name}: {outcome.best.name}, {_time(outcome.record)} us, "
        + (f"{_speedup(outcome)} times as fast as before" if outcome.gains else "as before")
        for outcome in shown(found)
    ]  # fmt: skip
    rows = f" x {problem.rows} rows" if problem.rows != 1 else ""
    name = f"{problem.reduction.op.name} of {short_size(problem.n)} {problem.reduction.dtype.name}"
    lines = what or [found.why or "interrupted"]
    return "\n  ".join((f"{name}{rows}:", *lines))


def _rows(found: Sequence[Found]) -> Iterator[tuple[str, ...]]:
    for one in found:
        for outcome in shown(one):
            r, case = outcome.record, outcome.best
            yield (
                short_size(one.problem.n), outcome.name, case.kernel.id,
                f"{case.block} x {case.items} {case.kernel.grid}", _time(r), _speedup(outcome),
            )  # fmt: skip


def shown(found: Found) -> tuple[Outcome, ...]:
    """The outcomes, without `auto:fixed` where it equals another."""
    best = {outcome.name: outcome.best for outcome in found.outcomes}
    return tuple(
        outcome for outcome in found.outcomes
        if outcome.name != AUTO_FIXED or outcome.best not in [
            case for name, case in best.items() if name != AUTO_FIXED
        ]
    )  # fmt: skip


def _time(r: Record) -> str:
    return measured_text(r.time_us, r.time_us_low, r.time_us_high, HALF_TICK_US)


def _speedup(outcome: Outcome) -> str:
    """The speedup as text; 1 for the choice before."""
    if outcome.record == outcome.against:
        return "1"
    finest = HALF_TICK_US / (outcome.record.time_us or 1.0)
    return measured_text(outcome.speedup, outcome.speedup_low, outcome.speedup_high, finest)


def _wrong(found: Sequence[Found]) -> Iterator[str]:
    """One line per kernel with wrong launch shapes: their number and the first."""
    wrong: dict[str, list[str]] = {}
    for one in found:
        for name, reason in one.wrong.items():
            kernel, _, shape = name.partition(", ")
            where = f"{shape} at {short_size(one.problem.n)}"
            wrong.setdefault(kernel, []).append(f"{where}: {reason}")
    for kernel, shapes in wrong.items():
        yield f"{kernel}: WRONG in {counted(len(shapes), 'launch shape')}, first {shapes[0]}"


def _notes(found: Sequence[Found]) -> Iterator[str]:
    """Notes: the meaning of the columns, problems without a gain, launch shapes left out."""
    if any(one.outcomes for one in found):
        yield "launch shape: threads per block x items per thread, and the grid rule"
        yield "speedup: over the choice before; of a single kernel, over its default shape"
    same = [
        f"{short_size(one.problem.n)} {outcome.name}"
        for one in found for outcome in shown(one) if not outcome.gains
    ]  # fmt: skip
    if same:
        yield f"no gain beyond the noise, so no change: {', '.join(same)}"
    why = [(short_size(one.problem.n), one.why) for one in found if one.why]
    for reason, sizes in by_reason(why).items():
        yield f"{', '.join(sizes)}: {reason}"
    yield from _wrong(found)
    unfit = dict.fromkeys(
        (name, reason) for one in found for name, reason in one.unfit.items()
    )  # fmt: skip
    for reason, names in by_reason(unfit).items():
        kernels = Counter(name.partition(", ")[0] for name in names)
        which = (f"{kernel} in {counted(k, 'launch shape')}" for kernel, k in kernels.items())
        yield f"left out, {reason}: {', '.join(which)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """Options of `tune`: kernels, families or `auto`, and the problems, every operator on every
    type at every size; `max_time` in seconds. `write` writes the table into the package, too."""

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
    """Search, verify, time, write and print. Returns 0; 2 if no kernel takes any problem, 3 if a
    launch shape was wrong, 4 if nothing was timed, 130 after Ctrl-C. Raises UsageError, and
    EnvironmentProblem without a GPU."""
    request.outputs.check()
    deadline, registry = Deadline(request.max_time), load_registry()
    kernels = kernels_named(request.kernels, registry, request.rows)
    problems = _problems(request)
    spec, remarks = choose_backend("cuda", request.device, not request.no_cache)
    for remark in remarks:
        say(remark, request.quiet)
    with open_timed(spec) as backend:
        device = backend.info()
        shown = partial(phase, quiet=request.quiet)
        search = Search(backend, spec, registry, table.tables_of(device, registry.kernels), shown)
        search.compile(kernels, problems, deadline.share(2))
        found = list(_searched(search, kernels, problems, deadline, request.quiet))
    protocol = {"kernels": list(request.kernels or (AUTO,)), "max_time_s": request.max_time,
                "rounds": 9, "tuned": _as_json(found)}  # fmt: skip
    records = tuple(record for one in found for record in one.records)
    run = Run(tool(request.argv), device, protocol, records)
    publish(request.outputs, tune_sections(found, device.name), run_texts(run))
    _write(found, device, registry, request)
    if any(one.interrupted for one in found):
        return 130
    wrong = {3} if any(one.wrong for one in found) else set()
    nothing = set() if any(one.outcomes for one in found) else {4}
    if all(one.refused for one in found):
        nothing = {2}
    return worst_exit_code(wrong | nothing | (verdict_codes(records) & {3}))


def _problems(request: TuneRequest) -> list[Problem]:
    """The requested problems that are defined, smallest first. Raises UsageError if there are
    none."""
    reductions = [reduction_of(op, dtype) for op, dtype in product(request.op, request.dtype)]
    undefined = [why for reduction in reductions if (why := reduction.why_undefined())]
    found = [
        Problem(reduction=reduction, n=n, rows=request.rows)
        for n in sorted(n for n in request.n if n)
        for reduction in reductions if reduction.why_undefined() is None
    ]  # fmt: skip
    if not found:
        raise UsageError(f"there is nothing to tune: {(*undefined, 'give --n a size above 0')[0]}")
    return found


def _searched(
    search: Search, kernels: Sequence[Kernel], problems: Sequence[Problem], deadline: Deadline,
    quiet: bool,
) -> Iterator[Found]:  # fmt: skip
    """Search each problem in its share of the time and print the outcome, until Ctrl-C."""
    for k, problem in enumerate(problems):
        found = search.fastest(kernels, problem, deadline.share(len(problems) - k))
        say(outcome_text(found), quiet)
        yield found
        if found.interrupted:
            return


def _write(
    found: Sequence[Found], device: DeviceInfo, registry: Registry, request: TuneRequest
) -> None:
    """Write new choices of `auto` to its table, without entries that no longer apply."""
    entries = [
        entry_of(outcome)
        for one in found for outcome in one.outcomes
        if outcome.gains and outcome.name in (AUTO, AUTO_FIXED)
    ]  # fmt: skip
    shipped = [table.shipped_folder()] if request.write else []
    for folder in [table.user_folder(), *shipped]:
        path = table.write_table(folder, device, entries, registry.kernels)
        if path is not None:
            say(f"wrote the choices of auto on {device.name} to {path}", request.quiet)


def _as_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    """The outcomes for the protocol of a run."""
    return [
        {
            "name": outcome.name, "tried": one.tried, "speedup": outcome.speedup,
            "speedup_low": outcome.speedup_low, "speedup_high": outcome.speedup_high,
            "before": outcome.against.name, "before_us": outcome.against.time_us,
            **asdict(entry_of(outcome)),
        }
        for one in found for outcome in one.outcomes
    ]  # fmt: skip
