"""`reproduce`: a published experiment as its author ran it, the published figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from cudareduce.library.suite import Suite
from cudareduce.profile.ncu import Shares, shares
from cudareduce.report.publish import Outputs, publish
from cudareduce.reproduce.experiments import (
    Experiment,
    experiments,
    fastcuda_lines,
    merged,
    tables,
)
from cudareduce.results.store import run_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceRequest:
    """What `reproduce` takes: a suite's name, and how to measure what the suite does not say."""

    suite: str
    rounds: int
    peak_gb_s: float | None
    machine: Machine
    outputs: Outputs
    argv: tuple[str, ...] = ()


def reproduce(request: ReproduceRequest) -> int:
    """Every experiment of a suite, measured, printed in its author's table; the exit code. Raises
    UsageError and EnvironmentProblem."""
    registry = load_registry()
    suite = registry.suite(request.suite)
    request.outputs.check()
    profiled = Shares({}, "it takes a GPU")
    deadline = Deadline(request.machine.max_time)  # one for all experiments
    done: list[Benched] = []
    for experiment in experiments(suite, registry.kernels):
        wanted = _bench_request(request, suite.experiment, experiment)
        settings = bench_settings(wanted, deadline)
        done.append(timed_choices(wanted, settings, experiment.choices, registry))
        if done[-1].interrupted:
            break
        if done[-1].spec.timed and _has_utilisation(suite):
            profiled = shares(
                done[-1].spec, done[-1].cases, experiment.n, experiment.rows, settings.pattern
            )
    whole = merged(suite, [one.run for one in done], profiled)
    lines = {"fastcuda": lambda: fastcuda_lines(whole)}
    publish(request.outputs, tables(whole, registry), run_texts(whole), printed=lines)
    codes = {one.exit_code for one in done}
    return 130 if 130 in codes else worst_exit_code(codes)


def _has_utilisation(suite: Suite) -> bool:
    """Whether the publication prints what its profiler said."""
    return any("utilisation_pct" in row.published for row in suite.rows)


def _bench_request(
    request: ReproduceRequest, about: Mapping[str, Any], experiment: Experiment
) -> BenchRequest:
    """What `bench` would be asked for to run one experiment."""
    return BenchRequest(
        selection=Selection(kernels=(request.suite,)),
        problem=ReductionOptions(
            n=(experiment.n,), rows=experiment.rows, op=(about["op"],), dtype=(about["dtype"],)
        ),
        timing=TimingOptions(
            rounds=request.rounds, peak_gb_s=request.peak_gb_s,
            pattern=about.get("pattern", "random"), region=about.get("region", "total"),
        ),
        machine=request.machine, outputs=request.outputs, argv=request.argv,
    )  # fmt: skip
