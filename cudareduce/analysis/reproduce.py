"""The command `reproduce`: published experiments with their own sizes and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cudareduce.analysis.profile.ncu import MemoryThroughput, memory_throughput
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
from cudareduce.catalog.registry import Choice, Registry, load_registry
from cudareduce.catalog.suite import Suite, SuiteRow
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.report.numbers import DASH, rate_text, ratio_text, share_text, size_text, time_text
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import sections
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts

#: Columns of published figures. A column is shown if a figure is published or can be derived.
_PUBLISHED = ("(us)", "(GB/s)", "(%peak)", "(x)", "(util.)")


@dataclass(frozen=True, slots=True)
class Experiment:
    """The versions of a suite with the same size, `rows` rows of `n` elements, which are measured
    in the same rounds."""

    n: int
    rows: int
    choices: tuple[Choice, ...]


def experiments(suite: Suite, kernels: Mapping[str, Any]) -> list[Experiment]:
    """The versions of a suite, grouped by size, in the author's order."""
    groups: dict[tuple[int, int], list[Choice]] = {}
    about = suite.experiment
    for row in suite.rows:
        for n in [row.n] if row.n is not None else about.get("n", [2**25]):
            rows = row.rows if row.rows is not None else about.get("rows", 1)
            block = row.block or about.get("block")
            choice = Choice(kernels[row.kernel], suite.id, row.name, block, row.items)
            groups.setdefault((n, rows), []).append(choice)
    return [Experiment(n, rows, tuple(choices)) for (n, rows), choices in groups.items()]


def merged(suite: Suite, runs: list[Run], shares: MemoryThroughput) -> Run:
    """One run of all experiments of a suite, with the figures of the profiler."""
    remarks = dict.fromkeys(remark for run in runs for remark in run.protocol.get("remarks", ()))
    extra = {
        "suite": suite.id, "profiler": asdict(shares), "remarks": list(remarks),
        "measured": [story for run in runs for story in run.protocol.get("measured", ())],
    }  # fmt: skip
    records = tuple(record for run in runs for record in run.records)
    return replace(runs[0], records=records, protocol=dict(runs[0].protocol) | extra)


def tables(run: Run, registry: Registry) -> list[Section]:
    """The tables of a run: the author's table for a run of `reproduce`, else the usual ones. Raises
    UsageError if the run does not match the suite that it names."""
    name = run.protocol.get("suite")
    if name is None:
        return sections(run, roots=registry.roots)
    suite = registry.suite(name)
    unknown = {r.name for r in run.records} - {row.name for row in suite.rows}
    if unknown or not run.records or not {r.dtype for r in run.records} <= set(DTYPES):
        raise UsageError(f"the run is not of the suite {name} as it is now: reproduce it again")
    profiled = run.protocol.get("profiler") or {"throughput_pct": {}}
    return [section(suite, run, MemoryThroughput(**profiled))]


def section(suite: Suite, run: Run, shares: MemoryThroughput) -> Section:
    """The author's table in his order: our figures and, in brackets, his."""
    about, by_name = suite.experiment, {row.name: row for row in suite.rows}
    names = list(by_name)
    run = replace(run, records=tuple(sorted(run.records, key=lambda r: names.index(r.name or ""))))
    first = run.records[0]
    one_size = len({(r.n, r.rows) for r in run.records}) == 1
    timed = any(r.time_us is not None for r in run.records)
    table = [_row(by_name[r.name or ""], r, about, shares) for r in run.records]
    wanted = {"published as", "us", "GB/s", "%peak", "x"} if timed else {"published as", "result"}
    wanted |= set() if one_size else {"elements"}
    wanted |= {name for name in _PUBLISHED if any(row[name] != DASH for row in table)}
    wanted |= {"ncu %"} if "(util.)" in wanted else set()
    header = tuple(name for name in table[0] if name in wanted)
    size = f", {_elements(first)}" if one_size else ""
    region = ", first pass only" if about.get("region") == "first-pass" else ""
    title = f"{suite.title}: {first.op} of {first.dtype}{size}{region}, {run.device.name}"
    rows = tuple(tuple(row[name] for name in header) for row in table)
    return Section(title, header, rows, _notes(suite, run, shares, wanted))


def _elements(record: Record) -> str:
    rows = f" x {size_text(record.rows)} rows" if record.rows != 1 else ""
    return size_text(record.n) + rows


def _row(
    row: SuiteRow, record: Record, about: Mapping[str, Any], shares: MemoryThroughput
) -> dict[str, str]:
    published = row.published
    us = published.get("time_us")
    read = record.n * record.rows * DTYPES[record.dtype].size
    gb_s = published.get("gb_s") or (read / us / 1e3 if us else None)
    peak = about.get("gpu_peak_gb_s")
    return {
        "published as": row.name,
        "elements": _elements(record),
        "result": {"pass": "right", "fail": "WRONG", "skip": DASH}[record.verdict],
        "us": time_text(record.time_us, record.time_us_low, record.time_us_high),
        "GB/s": rate_text(record.gb_s),
        "%peak": share_text(record.pct_peak),
        "x": ratio_text(record.speedup),
        "(us)": DASH if us is None else f"{us:g}",
        "(GB/s)": rate_text(gb_s),
        "(%peak)": share_text(100 * gb_s / peak if gb_s and peak else None),
        "(x)": ratio_text(published.get("speedup")),
        "(util.)": share_text(published.get("utilisation_pct")),
        "ncu %": share_text(shares.throughput_pct.get(record.kernel)),
    }


def _notes(suite: Suite, run: Run, shares: MemoryThroughput, shown: set[str]) -> tuple[str, ...]:
    about, notes = suite.experiment, []
    if any(record.time_us is not None for record in run.records):
        peak = rate_text(run.device.peak_gb_s)
        notes.append(f"%peak is of {peak} GB/s, the theoretical peak of {run.device.name}")
    if "(us)" in shown:
        peak = f"{about['gpu_peak_gb_s']:g}"
        notes.append(f"In brackets: as published, {about['gpu']}; (%peak) is of its {peak} GB/s.")
    else:
        notes.append("The publication prints no figures.")
    if "(util.)" in shown:
        why_not = f"; none here: {shares.why_not}" if shares.why_not else ""
        notes.append(
            "(util.) is the published utilisation, ncu % the memory throughput of our launch "
            f"according to Nsight Compute{why_not}."
        )
    notes += [f"Timed there: {about['timed']}."] if "timed" in about else []
    notes += [about["note"]] if "note" in about else []
    notes += [f"{r.name}: {r.reason}" for r in run.records if r.reason]
    notes += about.get("errata", [])
    notes += [f"{row.name}: {row.erratum}" for row in suite.rows if row.erratum]
    return (*notes, *run.protocol.get("remarks", []))


def fastcuda_lines(run: Run) -> str:
    """The results as `key=value` lines in the format of FastCuda. Unlike there, the status depends
    on the results."""
    lines = [f"n={run.records[0].n}", f"device={run.device.name}"]
    for r in run.records:
        version, _, what = r.kernel.removeprefix("reduce_").partition("_")
        lines.append(f"algorithm={what}_{version}")
        if r.time_us is not None and r.gb_s is not None:
            lines += [f"elapsed_ms={r.time_us / 1e3:.4f}", f"bandwidth_gb_s={r.gb_s:.2f}"]
        if r.error is not None:
            lines.append(f"abs_error={r.error:.3e}")
    wrong = any(r.verdict == "fail" for r in run.records)
    return "\n".join([*lines, f"status={'wrong' if wrong else 'ok'}"]) + "\n"


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
