"""`tune`: search launch shapes, verify, measure the best, and write the table that `auto` reads."""

from __future__ import annotations

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
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import run_texts
from cudareduce.tune.candidates import kernels_named
from cudareduce.tune.heats import Problem
from cudareduce.tune.search import Found, Search, entry_of
from cudareduce.tune.tables import told, tune_sections


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What `tune` takes: kernels, families or `auto`, and the problems to search them for, every
    operator on every type at every size; `max_time` is in seconds. With `write` the table also goes
    into the package."""

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
    """Search, verify, measure, write, print; 0, 2 if no kernel takes any of it, 3 if a launch shape
    was wrong, 4 if nothing could be measured in time, and 130 after Ctrl-C, with what there was by
    then. Raises UsageError and, without a GPU, EnvironmentProblem."""
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
    """Every problem that is asked for and makes sense, small ones first, so that what time cuts is
    the large ones. None is a UsageError."""
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
    """What is found for each problem in its share of the time, told as it comes, up to Ctrl-C."""
    for k, problem in enumerate(problems):
        found = search.fastest(kernels, problem, deadline.share(len(problems) - k))
        say(told(found), quiet)
        yield found
        if found.interrupted:
            return


def _write(
    found: Sequence[Found], device: DeviceInfo, registry: Registry, request: TuneRequest
) -> None:
    """Put what `auto` is to take instead of before into its table, in which nothing is left that
    no longer holds, and say where that is."""
    entries = [
        entry_of(outcome)
        for one in found for outcome in one.outcomes
        if outcome.gains and outcome.name in (AUTO, AUTO_FIXED)
    ]  # fmt: skip
    shipped = [table.shipped_folder()] if request.write else []
    for folder in [table.user_folder(), *shipped]:
        path = table.write_table(folder, device, entries, registry.kernels)
        if path is not None:
            say(f"What auto takes on {device.name} is in {path}.", request.quiet)


def _as_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    """The outcomes as a run's protocol holds them."""
    return [
        {
            "name": outcome.name, "tried": one.tried, "speedup": outcome.speedup,
            "speedup_low": outcome.speedup_low, "speedup_high": outcome.speedup_high,
            "before": outcome.against.name, "before_us": outcome.against.time_us,
            **asdict(entry_of(outcome)),
        }
        for one in found for outcome in one.outcomes
    ]  # fmt: skip
