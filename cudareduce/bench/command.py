"""The command `bench`: verify, time, print and store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from cudareduce.backends.selection import BackendSpec, never_timed
from cudareduce.bench.cases import case_selector, table_warnings
from cudareduce.bench.records import INTERRUPTED, Group, Recorder, ReductionResult
from cudareduce.bench.request import (
    BenchRequest,
    VerifyRequest,
    bench_settings,
    external_files,
    open_session,
    requested_condition,
    select_kernels,
)
from cudareduce.bench.runner import measure_kernels
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.summary import recorded_lines, run_summary, untimed_text
from cudareduce.catalog.registry import Choice, Registry, full_name, load_registry
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.external.files import ExternalFiles
from cudareduce.intervals import CONFIDENCE, MIN_ROUNDS
from cudareduce.launch.case import Case
from cudareduce.progress import say
from cudareduce.report.plot.command import show_small
from cudareduce.report.publish import publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.timing.timer import FLUSH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """A run, its cases and its exit code. `roots` maps kernels to the first kernel of their
    lineage."""

    run: Run
    cases: tuple[Case, ...]
    spec: BackendSpec
    exit_code: int
    interrupted: bool
    roots: Mapping[str, str]
    recorded: tuple[str, ...]


def bench(request: BenchRequest) -> int:
    """Verify, time, print and store; returns the exit code. Raises UsageError and
    EnvironmentProblem."""
    began = monotonic()
    done = timed_run(request)
    publish(request.outputs, sections(done.run, request.columns, done.roots), run_texts(done.run))
    show_small(done.run, request.outputs)
    hint = "Run the same command on a machine with a GPU to measure times."
    if done.spec.timed:
        hint = (
            "To compare a later run: --json run.json, then cudareduce compare run.json LATER.json."
        )
    line = run_summary(done.run.records, monotonic() - began, hint, interrupted=done.interrupted)
    say(line, request.machine.quiet)
    say("\n".join(done.recorded), request.machine.quiet)
    return done.exit_code


def timed_run(request: BenchRequest) -> Benched:
    """Verify and time the requested kernels. Raises UsageError for invalid names, options and
    output files before anything is measured."""
    registry = load_registry(request.selection.folders)
    files = external_files(request)
    choices = select_kernels(request, registry, files)
    ids = {choice.kernel.id for choice in choices}
    settings = bench_settings(request)
    if settings.baseline_kernel is not None:
        baseline = full_name(settings.baseline_kernel, ids)
        if baseline not in ids:
            raise UsageError(f"--baseline-kernel {baseline} is not measured here: name it too")
        settings = replace(settings, baseline_kernel=baseline)
    request.outputs.check(*(choice.kernel.path for choice in choices))
    return timed_choices(request, settings, choices, registry, files)


def timed_choices(
    request: BenchRequest, settings: Settings, choices: Sequence[Choice], registry: Registry,
    files: ExternalFiles | None = None,
) -> Benched:  # fmt: skip
    """Verify and time these kernels on the requested backend. Raises EnvironmentProblem if it is
    not available."""
    with open_session(request.machine, settings) as session:
        info = session.backend.info()
        device = replace(info, peak_gb_s=settings.peak_gb_s or info.peak_gb_s)
        say(table_warnings(session, choices), request.machine.quiet)
        recorder = Recorder(session.backend.name, device.peak_gb_s, settings, registry)
        # Timing options are an error if --backend rules out times.
        if session.backend.timed() is None and not never_timed(request.machine.backend):
            say(untimed_text(settings, request.columns) or "", request.machine.quiet)
        files = files or external_files(request)
        results = measure_kernels(session, choices, files)
        records = recorder.all_records(results)
        how = protocol(session, request.selection.kernels, results)
        interrupted = any(result.interrupted for result in results)
        if request.peers and not interrupted:
            from cudareduce.bench.library_timing import merge_library_pass, time_libraries

            single = len(settings.sizes) == 1 and settings.sms == (None,)
            odd = case_selector(session, choices) if single else None
            done = time_libraries(session, results, recorder, request.peers, odd=odd)
            records, how = merge_library_pass(records, how, done, request.peers)
            interrupted = done.interrupted
    run = Run(tool(request.argv), device, how, tuple(records))
    return Benched(
        run=run, cases=tuple(case for result in results for case in result.runnable),
        spec=session.spec,
        exit_code=130 if interrupted else _exit_code(
            request, results, records, files, late=settings.deadline.passed
        ),
        interrupted=interrupted,
        roots={choice.kernel.id: registry.root(choice.kernel).id for choice in choices},
        recorded=recorded_lines(choices),
    )  # fmt: skip


def remarks_of(results: Sequence[ReductionResult]) -> list[str]:
    """The distinct remarks of a run, each with the first problem to which it applies."""
    remarks: dict[str, None] = {}
    for result in results:
        remarks |= dict.fromkeys(remark for group in result.groups for remark in group.remarks)
        if result.interrupted:
            remarks |= {INTERRUPTED: None}
    return list(remarks)


def floors_of(results: Sequence[ReductionResult], settings: Settings) -> dict[str, float]:
    """The floors of the last size by each timing method, in us. Those of the first method have
    plain names."""
    floors: dict[str, float] = {}
    for group in (group for result in results for group in result.groups):
        for label, times in group.times.items():
            suffix = "" if label == settings.timings[0] else f", {label}"
            floors |= {name + suffix: us for name, us in times.floors.items()}
    return floors


def protocol(
    session: Session, names: Sequence[str], results: Sequence[ReductionResult]
) -> dict[str, Any]:
    """The protocol of a run: options and method, so that the run can be repeated."""
    settings = session.settings
    return {
        "kernels": list(names or ("all",)),
        "rows": settings.rows,
        "block": settings.block,
        "items": settings.items,
        "sms": list(filter(None, settings.sms)) or None,
        "timing": ",".join(settings.timings),
        "graph": settings.graph,
        "energy": settings.energy,
        "region": settings.region,
        "rounds": settings.rounds,
        "max_time_s": settings.deadline.seconds,
        "flush_bytes_read": FLUSH_BYTES if session.backend.timed() else None,
        "confidence": CONFIDENCE if settings.rounds >= MIN_ROUNDS else None,
        "seed": settings.seed,
        "timed_seed": settings.timed_seed if session.backend.timed() else None,
        "floors_us": floors_of(results, settings),
        "measured": [p for result in results for group in result.groups for p in group.protocols],
        "remarks": remarks_of(results),
        "peak_gb_s": settings.peak_gb_s,
    }


def _exit_code(
    request: BenchRequest, results: Sequence[ReductionResult], records: Sequence[Record],
    files: ExternalFiles, *, late: bool,
) -> int:  # fmt: skip
    """130 after Ctrl-C. If no round of any correct kernel was completed, 4 if time ran out, else 6.
    Otherwise the worst code of verdicts and skipped kernels."""
    if any(result.interrupted for result in results):
        return 130
    times = [record.time_us for record in records if record.verdict == "pass"]
    tried = any(group.tried for result in results for group in result.groups)
    codes = {4 if late else 6} if tried and times and not any(times) else set()
    codes |= {why.exit_code for why in files.left_out}
    if request.strict:
        groups = [group for result in results for group in result.groups]
        codes |= strict_codes(request, groups, records, rounds=request.timing.rounds)
    return worst_exit_code(codes | verdict_codes(records))


def strict_codes(
    request: BenchRequest | VerifyRequest, groups: Sequence[Group], records: Sequence[Record], *,
    rounds: int = 0,
) -> set[int]:  # fmt: skip
    """The additional codes of --strict: 3 if a kernel is right only under an inferred precondition;
    4 if a verdict is undecided, there was no time to verify, or a time or its interval is
    missing."""
    marked = any(v.undecided for group in groups for v in group.verdicts.values())
    skipped = any(record.cause in ("machine", "time") for record in records)
    tried = any(group.tried for group in groups)
    bare = tried and any(
        (record.time_us is None and record.host_us is None)  # of calls there is the host's time
        or (record.time_us is not None and rounds >= MIN_ROUNDS and record.time_us_low is None)
        for record in records if record.verdict == "pass" and record.n * record.rows
    )  # fmt: skip
    accepted = set(requested_condition(request.terms, request.problem).texts)
    unasked = any(set(record.conditions) - accepted for record in records)
    return ({4} if marked or skipped or bare else set()) | ({3} if unasked else set())


def verdict_codes(records: Sequence[Record]) -> set[int]:
    """The exit codes of verdicts: 3 for a wrong result, 2 for a kernel that does not compile. If
    nothing ran, 6 if the machine is the cause, 4 if time is, else 2."""
    verdicts = {r.verdict for r in records}
    ours = [r for r in records if r.scope != "library"]
    causes = {r.cause for r in ours or records}
    codes = ({3} if "fail" in verdicts else set()) | ({2} if "unbuilt" in causes else set())
    if verdicts == {"skip"}:
        codes.add(6 if "machine" in causes else 4 if "time" in causes else 2)
    return codes
