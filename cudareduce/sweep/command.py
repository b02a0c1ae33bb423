"""`sweep`: time kernels over a range of sizes or SMs, and fit models."""

from __future__ import annotations

from dataclasses import asdict, replace

from cudareduce.backends import never_timed
from cudareduce.bench.command import timed_run
from cudareduce.bench.request import BenchRequest
from cudareduce.errors import UsageError
from cudareduce.plot.command import show_small
from cudareduce.report.publish import publish
from cudareduce.results.store import run_texts
from cudareduce.sweep.tables import (
    MIN_SIZES,
    crossovers,
    curve_sections,
    fit,
    lines,
    sweep_sections,
)

#: The default sizes, and the default size of a sweep over SMs, where kernels are limited by memory
#: bandwidth.
_SIZES, _SIZE = tuple(2**k for k in range(10, 31)), (2**28,)


def sweep(request: BenchRequest) -> int:
    """Time a range of sizes and fit lines, or time every size on several numbers of SMs; returns
    the exit code. Raises UsageError for a backend without times or too few sizes, and
    EnvironmentProblem without a GPU."""
    if never_timed(request.machine.backend):
        raise UsageError("sweep fits times, and the CPU emulator has none: use --backend cuda")
    over_sms = bool(request.selection.sms)
    sizes = request.problem.n or (_SIZE if over_sms else _SIZES)
    if not over_sms and len([n for n in sizes if n]) < MIN_SIZES:
        raise UsageError(f"sweep fits a line: give --n at least {MIN_SIZES} sizes, as 2^10..2^30")
    problem, machine = replace(request.problem, n=sizes), replace(request.machine, backend="cuda")
    done = timed_run(replace(request, problem=problem, machine=machine))
    if over_sms:
        run, sections = done.run, curve_sections(done.run)
    else:
        # With libraries, kernels are timed a second time, and only those times are comparable.
        with_libraries = [record for record in done.run.records if record.context]
        by_kernel = lines(with_libraries or done.run.records)
        models = [fit(line) for line in by_kernel]
        crossings = sorted(crossovers(by_kernel), key=lambda crossing: crossing.n)
        protocol = {
            **done.run.protocol,
            "models": [asdict(model) for model in models],
            "crossovers": [asdict(crossing) for crossing in crossings],
        }
        run = replace(done.run, protocol=protocol)
        sections = sweep_sections(run, by_kernel, models, crossings)
    publish(request.outputs, sections, run_texts(run))
    show_small(done.run, request.outputs)
    return done.exit_code
