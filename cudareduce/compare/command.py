"""`compare` and `check`: measure, compare, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cudareduce import __version__
from cudareduce.backends import choose_backend, open_backend
from cudareduce.budget import Deadline
from cudareduce.compare.baseline import (
    identity,
    load_baseline,
    load_timed,
    order_notes,
    protocol_differences,
    same_run,
    side_text,
)
from cudareduce.compare.decide import CheckPlan, Outcome, confirm_slower, measure_until_decided
from cudareduce.compare.measure import (
    DEFAULT_ROUNDS,
    INTERRUPTED,
    BatchMeasurement,
    Bencher,
    Cut,
    FreshProcess,
    base_batch,
    base_choices,
    head_batch,
    repeated,
)
from cudareduce.compare.report import (
    ComparisonReport,
    CompiledReport,
    base_notes,
    host_notes,
    publish_comparison,
    row_code,
    rows_json,
    rules_between,
    skew_notes,
)
from cudareduce.compare.request import (
    BaseRequest,
    CheckRequest,
    CompareRequest,
    Judging,
    Remeasuring,
    SelfRequest,
    Thresholds,
    load_thresholds,
)
from cudareduce.compare.statistics import MIN_ROUNDS
from cudareduce.compare.trees import Trees, heads_of, opened_trees, stored_tree
from cudareduce.compare.verdicts import VERDICTS, Row, Rules, compare
from cudareduce.distributions import binomial_upper_limit
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError, worst_exit_code
from cudareduce.libraries.names import meant
from cudareduce.library.registry import Choice, Registry, load_registry
from cudareduce.progress import phase, say
from cudareduce.reduction.sizes import counted
from cudareduce.report.publish import publish
from cudareduce.report.section import Section
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_writable, to_json, write_text
from cudareduce.temporary import temporary_folder


def compare_files(request: CompareRequest) -> int:
    """Compare two stored runs; returns the exit code. Raises UsageError and BaselineError."""
    request.outputs.check(request.old, request.new, *request.judging.read)
    registry = load_registry()
    report = judged_files(request, registry)
    return publish_comparison(report, request.judging, request.outputs, registry)


def judged_files(request: CompareRequest, registry: Registry) -> ComparisonReport:
    """Compare two stored runs. Raises UsageError and BaselineError."""
    old, new = load_baseline(request.old), load_timed(request.new)
    if same_run(old, new):
        raise UsageError(
            f"{request.new} holds the same measurement as {request.old}: measure again, then "
            "compare"
        )
    thresholds = thresholds_of(request.judging, registry, [*old.records, *new.records])
    rules, notes = rules_between(old, new, thresholds, request.judging)
    rows = tuple(compare(old.records, new.records, rules))
    return ComparisonReport(
        title=f"{request.new.name} against {request.old.name}, {new.device.name}",
        head=(side_text("old", old), side_text("new", new)), rows=rows, rules=rules,
        against=("--baseline", str(request.old), *judged_again(request.judging)),
        notes=(*order_notes(old, new), *notes, *protocol_differences(old, new), *skew_notes(rows),
               *host_notes(old.records, new.records)),
    )  # fmt: skip


def check(request: CheckRequest, of_ranks: Callable[[CheckRequest, Run], int]) -> int:
    """Measure the cases of a baseline again and compare; returns the exit code. Collectives are
    measured by `of_ranks`. Raises UsageError, BaselineError, and EnvironmentProblem without a GPU.
    """
    stored = _stored_baseline(request)
    if any(record.ranks is not None for record in stored.records):
        return of_ranks(request, stored)
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    cases = repeated(stored, remeasuring, registry)
    check_rounds(request, cases.rounds)
    old = replace(stored, records=cases.old)
    thresholds = thresholds_of(request.judging, registry, stored.records)

    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
        peers = {"peers": list(remeasuring.peers)} if remeasuring.peers else {}
        now = Run(tool(request.argv), device, {**old.protocol, **peers}, ())
        rules, notes = rules_between(old, now, thresholds, request.judging)
        plan = check_plan(rules, remeasuring)
        here = BatchMeasurement(cases.batches, bencher.measure, plan.deadline)
        outcome = measure_until_decided(here.measure, old.records, plan)

    with temporary_folder() as temporary:
        base = stored_tree(stored, device, heads_of(remeasuring), Path(temporary))
        process = FreshProcess(remeasuring, registry)
        fresh = BatchMeasurement(cases.batches, process.measure, plan.deadline, base)
        outcome = confirm_slower(outcome, fresh.measure, plan)

    notes += base_notes(outcome.rows, stored, base)
    now = outcome.measured.as_run(now, cases.rounds)
    return concluded(request, old, now, outcome, rules, notes, registry)


def check_base(request: BaseRequest) -> int:
    """Compare two trees of kernels in the same rounds of one process; returns the exit code. Raises
    UsageError and EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    registry = load_registry(request.remeasuring.folders)
    with opened_trees(request, registry) as trees:
        return time_trees(request, trees, registry)


def time_trees(
    request: BaseRequest, trees: Trees, registry: Registry, ahead: CompiledReport | None = None
) -> int:
    """Measure both trees, compare, and report after what was found `ahead`; returns the exit code.
    Raises UsageError and EnvironmentProblem."""
    remeasuring = request.remeasuring
    named = {*trees.base, *(choice.kernel.id for choice in trees.choices)}
    thresholds = thresholds_of(request.judging, registry, (), named)
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    plan = check_plan(rules, remeasuring)
    batch = base_batch(trees.choices, trees.base, request)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        here = BatchMeasurement([batch], bencher.measure, plan.deadline)
        outcome = measure_until_decided(here.measure, None, plan)
    if not outcome.rows and not outcome.cut:
        raise UsageError("nothing was compared: give --n elements that a kernel can reduce")
    process = FreshProcess(remeasuring, registry)
    fresh = BatchMeasurement([batch], process.measure, plan.deadline)
    outcome = confirm_slower(outcome, fresh.measure, plan)
    now = Run(tool(request.argv), device, {"rounds": batch.settings.rounds}, ())
    report = ComparisonReport(
        title=f"{' '.join(map(str, trees.heads))} against {request.base}, {device.name}",
        head=(side_text("new", now),), rows=tuple(outcome.rows), rules=rules,
        notes=tuple(trees.problems), against=tuple(base_again(request)),
        measured=outcome.measured, cut=outcome.cut,
    )  # fmt: skip
    return publish_comparison(
        report, request.judging, request.outputs, registry, quiet=remeasuring.quiet, ahead=ahead
    )


def check_self(request: SelfRequest) -> int:
    """Compare this tree with itself, to show how reliable this machine's verdicts are. Returns 0, 3
    for a wrong result, 2 for a kernel that does not compile, or the code of an early end. Raises
    UsageError and EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    choices = base_choices(remeasuring.kernels, heads_of(remeasuring), registry)
    named = {choice.kernel.id for choice in choices}
    rules = Rules(thresholds_of(request.judging, registry, (), named), same_code=False)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info().name
    process = FreshProcess(remeasuring, registry)
    rows, cut = _compare_with_itself(request, choices, process, check_plan(rules, remeasuring))
    if not rows and not cut:
        raise UsageError("nothing was compared: give --n elements, or more --max-time")
    section = _self_section(rows, device, rules, remeasuring.rounds or DEFAULT_ROUNDS)
    if cut:
        section = replace(section, notes=(*section.notes, f"cut short: {cut.why}"))
    publish(request.outputs, [section], {"json": lambda: rows_json(rows)})
    if cut:
        return cut.exit_code
    codes = {row_code(row, Judging(allow_gone=True)) for row in rows}
    return worst_exit_code(codes & {2, 3})


def _compare_with_itself(
    request: SelfRequest, choices: Sequence[Choice], process: FreshProcess, plan: CheckPlan
) -> tuple[list[Row], Cut | None]:
    """The rows of `check --self`: each run, in a fresh process, compared with the one before as by
    `check --baseline`. Also why it ended early, if it did."""
    batch = head_batch(choices, request.problems, request.remeasuring)
    measure = BatchMeasurement([batch], process.measure, plan.deadline).measure
    rows: list[Row] = []
    try:
        before = measure(None, 1)
        for k in range(request.times):
            if before.cut or plan.deadline.passed:
                break
            say(f"comparison {k + 1} of {request.times}", plan.quiet)
            outcome = measure_until_decided(measure, before.new, plan)
            outcome = confirm_slower(outcome, measure, plan)
            if outcome.cut:
                return rows, outcome.cut
            for row in outcome.rows:
                # The runs are equivalent, so a wrong result in the first one is WRONG, not NEW.
                if row.verdict == "NEW" and row.old and row.old.verdict == "fail":
                    row = replace(row, verdict="WRONG", reason=row.old.reason)
                rows.append(row)
            before = outcome.measured
    except KeyboardInterrupt:
        return rows, INTERRUPTED
    except (EnvironmentProblem, KernelFault) as error:
        return rows, Cut(str(error), error.exit_code)
    return rows, before.cut


def _self_section(rows: Sequence[Row], device: str, rules: Rules, rounds: int) -> Section:
    """How often each verdict was given, per kernel, and the rate of false verdicts."""
    kernels: dict[str, Counter[str]] = {}
    for row in rows:
        kernels.setdefault(row.record.kernel, Counter())[row.verdict] += 1
    words = [word for word in VERDICTS if any(counts[word] for counts in kernels.values())]
    table = tuple(
        (kernel, *(str(counts[word]) for word in words)) for kernel, counts in kernels.items()
    )
    failed = (f"{row.verdict}: {row.record.kernel}: {row.reason}"
              for row in rows if row.verdict == "WRONG" or row.record.unbuilt)  # fmt: skip
    counts = Counter(row.verdict for row in rows if not row.record.unbuilt)
    false = counts["SLOWER"]
    total = sum(counts[word] for word in ("SLOWER", "FASTER", "SAME", "UNCERTAIN"))
    rates = (
        f"`cudareduce check`: {false} of {counted(total, 'comparison')} of identical code SLOWER "
        f"(below {100 * binomial_upper_limit(false, total, 0.95):.2g} % with 95 % confidence), "
        f"{counts['UNCERTAIN']} UNCERTAIN ({100 * counts['UNCERTAIN'] / max(total, 1):.2g} %); "
        f"threshold {100 * rules.thresholds.default:g} %, {rounds} rounds, {device}, version "
        f"{__version__}, {datetime.now(UTC):%Y-%m-%d}"
    )
    independence = (
        "Each run is a fresh process, and no kernel counts as unchanged. Rows of one comparison "
        "share its two runs, so many comparisons say more than many rows."
    )
    title = f"the same kernels against themselves, {device}"
    notes = (*dict.fromkeys(failed), rates, independence)
    return Section(title, ("kernel", *words), table, notes)


@contextmanager
def _opened(remeasuring: Remeasuring, registry: Registry) -> Iterator[Bencher]:
    spec, _ = choose_backend("cuda", remeasuring.device, not remeasuring.no_cache)
    with open_backend(spec) as backend:
        yield Bencher(backend, spec, registry, partial(phase, quiet=remeasuring.quiet))


def thresholds_of(
    judging: Judging, registry: Registry, records: Sequence[Record], named: Iterable[str] = ()
) -> Thresholds:
    """The thresholds, for known kernels, those in records and those `named`."""
    held = (name for record in records for name in (record.kernel, record.engine) if name)
    known = dict.fromkeys([*registry.names, *held, *named])
    return load_thresholds(judging.thresholds, judging.threshold, known)


def check_plan(rules: Rules, remeasuring: Remeasuring) -> CheckPlan:
    """The plan of a check that starts now."""
    deadline = Deadline(remeasuring.max_time)
    return CheckPlan(
        rules=rules, budget_s=remeasuring.budget_s, deadline=deadline, quiet=remeasuring.quiet
    )


def concluded(
    request: CheckRequest, old: Run, now: Run, outcome: Outcome, rules: Rules,
    notes: Sequence[str], registry: Registry,
) -> int:  # fmt: skip
    """Report, and write the new baseline if requested; returns the exit code."""
    remeasuring = request.remeasuring
    # A result that was wrong in a later measurement only is wrong in the new run, too.
    wrong = {identity(row.record): row.record for row in outcome.rows if row.verdict == "WRONG"}
    now = replace(now, records=tuple(wrong.get(identity(r), r) for r in now.records))
    report = ComparisonReport(
        title=f"now against {request.baseline.name}, {now.device.name}", rows=tuple(outcome.rows),
        rules=rules, head=(side_text("old", old), side_text("new", now)),
        notes=(*notes, *skew_notes(outcome.rows),
               *host_notes(old.records, outcome.measured.new)),
        against=(*measured_again(remeasuring), "--baseline", str(request.baseline),
                 *judged_again(request.judging)),
        measured=outcome.measured, cut=outcome.cut,
    )  # fmt: skip
    code = publish_comparison(
        report, request.judging, request.outputs, registry,
        texts={"json": lambda: to_json(now)}, quiet=remeasuring.quiet,
    )  # fmt: skip
    return _update_baseline(request, now, report, code) if request.update_baseline else code


def _stored_baseline(request: CheckRequest) -> Run:
    """Load the baseline and check that the outputs can be written. Raises UsageError and
    BaselineError."""
    request.outputs.check(request.baseline, *request.judging.read)
    stored = load_baseline(request.baseline)
    if request.update_baseline:
        check_writable(request.baseline)
        if request.remeasuring.kernels:
            raise UsageError("--update-baseline takes no kernels: a baseline is one whole run")
        held = {r.kernel for r in stored.records if r.scope == "library" and r.ranks is None}
        if not all(meant(name, request.remeasuring.peers) for name in held):
            raise UsageError(
                "--update-baseline would drop libraries that the baseline holds: give --peers all"
            )
    return stored


def check_rounds(request: CheckRequest, rounds: int) -> None:
    """Raise UsageError if there are too few rounds for a new baseline."""
    if request.update_baseline and rounds < MIN_ROUNDS:
        raise UsageError(f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing")


def _update_baseline(request: CheckRequest, now: Run, report: ComparisonReport, code: int) -> int:
    """Write the new baseline unless a result is wrong or a kernel is missing."""
    path = request.baseline
    gone = [row.record for row in report.rows if row.verdict == "GONE"]
    if report.cut or any(record.cause == "time" for record in now.records):
        say(f"{path} is unchanged: not all of it was measured")
        return code or 4
    if code in (2, 3, 6):
        say(f"{path} is unchanged: fix the kernels that fail first")
        return code
    if gone and not request.judging.allow_gone:
        name = gone[0].engine or gone[0].kernel
        say(f"{path} is unchanged: {name} is gone; --allow-gone drops it from the baseline")
        return code
    write_text(path, to_json(now))
    say(f"wrote the new baseline to {path}", request.remeasuring.quiet)
    return 0


def judged_again(judging: Judging) -> list[str]:
    """The options for the same comparison."""
    words = ["--cross-device"] * judging.cross_device + ["--no-same-code"] * judging.no_same_code
    words += ["--thresholds", str(judging.thresholds)] if judging.thresholds else []
    return words + (["--threshold", f"{100 * judging.threshold:g}%"] if judging.threshold else [])


def measured_again(remeasuring: Remeasuring) -> list[str]:
    """The options for the same kernels, libraries and transform."""
    words = [word for folder in remeasuring.folders for word in ("--kernels", str(folder))]
    words += ["--map", remeasuring.map] if remeasuring.map else []
    return words + (["--peers", ",".join(remeasuring.peers)] if remeasuring.peers else [])


def base_again(request: BaseRequest) -> list[str]:
    """The options that compare two trees on the same problems."""
    problems = request.problems
    words = [*measured_again(request.remeasuring), "--base", request.base]
    words += ["--n", ",".join(map(str, problems.n))]
    words += ["--op", ",".join(problems.op)] if problems.op != ("sum",) else []
    words += ["--dtype", ",".join(problems.dtype)] if problems.dtype != ("float32",) else []
    words += ["--rows", str(problems.rows)] if problems.rows != 1 else []
    words += ["--ranks", str(request.ranks)] if request.ranks else []
    return words + judged_again(request.judging)
