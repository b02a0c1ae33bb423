"""`reproduce`: repeats a published experiment and prints our figures next to the published ones."""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.bench.command import Benched, timed_choices
from cudareduce.bench.request import (
    BenchRequest,
    Machine,
    ReductionOptions,
    Selection,
    TimingOptions,
    bench_settings,
)
from cudareduce.budget import Deadline
from cudareduce.errors import worst_exit_code
from cudareduce.library.registry import load_registry
from cudareduce.profile.ncu import MemoryThroughput, memory_throughput
from cudareduce.report.publish import Outputs, publish
from cudareduce.reproduce.experiments import experiments, fastcuda_lines, merged, tables
from cudareduce.results.store import run_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceRequest:
    """The options of `reproduce`: the suite, and settings that the suite does not define."""

    suite: str
    rounds: int
    peak_gb_s: float | None
    machine: Machine
    outputs: Outputs
    argv: tuple[str, ...] = ()


def reproduce(request: ReproduceRequest) -> int:
    """Measure every experiment of a suite and print the author's table. Returns the exit code.
    Raises UsageError and EnvironmentProblem."""
    registry = load_registry()
    suite = registry.suite(request.suite)
    about = suite.experiment
    has_utilisation = any("utilisation_pct" in row.published for row in suite.rows)
    request.outputs.check()
    profiled = MemoryThroughput({}, "it takes a GPU")
    deadline = Deadline(request.machine.max_time)  # one for all experiments
    done: list[Benched] = []
    for experiment in experiments(suite, registry.kernels):
        n, rows = experiment.n, experiment.rows
        bench = BenchRequest(
            selection=Selection(kernels=(request.suite,)),
            problem=ReductionOptions(n=(n,), rows=rows, op=(about["op"],), dtype=(about["dtype"],)),
            timing=TimingOptions(
                rounds=request.rounds, peak_gb_s=request.peak_gb_s,
                pattern=about.get("pattern", "random"), region=about.get("region", "total"),
            ),
            machine=request.machine, outputs=request.outputs, argv=request.argv,
        )  # fmt: skip
        settings = bench_settings(bench, deadline)
        done.append(timed_choices(bench, settings, experiment.choices, registry))
        if done[-1].interrupted:
            break
        if done[-1].spec.timed and has_utilisation:
            profiled = memory_throughput(done[-1].spec, done[-1].cases, n, rows, settings.pattern)
    run = merged(suite, [each.run for each in done], profiled)
    lines = {"fastcuda": lambda: fastcuda_lines(run)}
    publish(request.outputs, tables(run, registry), run_texts(run), printed=lines)
    codes = {each.exit_code for each in done}
    return 130 if 130 in codes else worst_exit_code(codes)
