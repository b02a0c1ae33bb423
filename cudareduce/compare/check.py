"""`compare` and `check`: measure, compare, measure uncertain rows again, confirm slower rows,
report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from cudareduce import __version__
from cudareduce.budget import Deadline
from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.registry import Registry, load_registry
from cudareduce.compare.baseline import (
    copied_rounds,
    identity,
    load_baseline,
    load_timed,
    order_notes,
    problem,
    protocol_differences,
    side_text,
)
from cudareduce.compare.measure import KernelMeasurement, base_batch, head_batch, rounds_of, select
from cudareduce.compare.report import (
    CompiledReport,
    Report,
    host_notes,
    publish_comparison,
    row_code,
    rows_json,
    rules_between,
    skew_notes,
)
from cudareduce.compare.request import (
    CheckRequest,
    CompareRequest,
    Judging,
    Thresholds,
    load_thresholds,
)
from cudareduce.compare.statistics import MIN_ROUNDS
from cudareduce.compare.trees import Trees, head_choices, open_trees
from cudareduce.compare.verdicts import (
    FEWEST,
    VERDICTS,
    Measured,
    Row,
    Rules,
    apply_drift,
    compare,
    joined,
    require_evidence,
)
from cudareduce.distributions import binomial_upper_limit
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.libraries.names import is_selected
from cudareduce.machine import DeviceInfo
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import change_text
from cudareduce.report.publish import publish
from cudareduce.report.section import Section
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_writable, to_json, write_text

#: Uncertain rows are measured again with these multiples of the rounds.
_LONGER = (2, 4, 8)


class Measurement(Protocol):
    """Measures everything (None) or the cases of `suspects` with a multiple of the rounds, until a
    deadline; `confirm` does so in fresh processes."""

    @property
    def device(self) -> DeviceInfo: ...
    @property
    def deadline(self) -> Deadline: ...
    def measure(self, suspects: Sequence[Record] | None, times: int) -> Measured: ...
    def confirm(self, suspects: Sequence[Record] | None, times: int) -> Measured: ...


def check(
    request: CheckRequest, rules: Rules, stored: Run | None, measurement: Measurement, *,
    title: str = "", head: tuple[str, ...] = (), notes: Sequence[str] = (),
) -> Report:  # fmt: skip
    """Measure and compare with a stored run, or with the baseline tree measured in the same rounds
    (None).

    A row is SLOWER only if a second, longer measurement in a fresh process agrees. This replaces a
    correction for multiple comparisons, with which no test on so few rounds would be significant.
    After Ctrl-C, a GPU failure or the deadline, the report has the rows so far and the reason.
    """
    # Measure everything and classify.
    first = measurement.measure(None, 1)
    cut, confirmed_with = first.cut, ""
    rows = compare(stored.records if stored else first.old, first.new, rules)
    if cut:  # kernels missing from an interrupted run are UNCERTAIN, not GONE
        rows = [
            row.as_uncertain(f"not measured: {cut.why}")
            if row.verdict == "GONE" and row.new is None else row
            for row in rows
        ]  # fmt: skip

    # More rounds for what is uncertain.
    budget = Deadline(min(request.budget_s, measurement.deadline.left_s))
    for times in _LONGER:
        suspects = _with_controls(rows, [row for row in rows if row.in_doubt])
        if cut or not suspects or budget.passed:
            break
        say(_remeasurement_text(suspects, times), request.quiet)
        longer = measurement.measure([row.record for row in suspects], times)
        cut = longer.cut
        if not cut:
            old = [row.old for row in suspects if row.old] if stored else longer.old
            rows = _replace_uncertain(rows, compare(old, longer.new, rules))
    rows = apply_drift(rows, rules)

    # Confirm slower rows in a fresh process.
    suspects = _with_controls(rows, [row for row in rows if row.verdict == "SLOWER"])
    if suspects and not cut and measurement.deadline.passed:
        rows = _mark_unconfirmed(rows, "no time was left to confirm it")
    elif suspects and not cut:
        say(f"{_remeasurement_text(suspects, 2)}, in a fresh process", request.quiet)
        second = measurement.confirm([row.record for row in suspects], 2)
        cut = second.cut
        if stored and second.old:
            confirmed_with = (
                f"measured again in the same rounds as the kernels of {stored.tool.get('git')}, in "
                "a fresh process"
            )
        if not cut:
            rows = confirm_rows(rows, _compare_again(suspects, second, rules), rules)
    if cut:
        rows = _mark_unconfirmed(rows, f"not measured again: {cut.why}")

    # Report.
    host = host_notes(stored.records, first.new) if stored else []
    remarks = (*notes, *([confirmed_with] if confirmed_with else []), *skew_notes(rows), *host)
    return Report(
        title=title, head=head, rows=rows, rules=rules, notes=remarks, measured=first, cut=cut,
        against=tuple(request.again),
    )  # fmt: skip


def _compare_again(suspects: Sequence[Row], second: Measured, rules: Rules) -> list[Row]:
    """The rows of a confirmation run: against the baseline's kernels where those ran in the same
    rounds, else against the stored records."""
    if rules.paired:
        return compare(second.old, second.new, rules)
    paired = {problem(record) for record in second.old}
    together = [record for record in second.new if problem(record) in paired]
    alone = [record for record in second.new if problem(record) not in paired]
    names = set(map(problem, alone))
    stored = [row.old for row in suspects if row.old and problem(row.record) in names]
    in_rounds = replace(rules, paired=True, shares=False)
    return [*compare(second.old, together, in_rounds), *compare(stored, alone, rules)]


def _with_controls(rows: Sequence[Row], suspects: Sequence[Row]) -> list[Row]:
    """The rows to measure again: the suspects and, for each of their problems, the fastest few rows
    of the control group, which measure drift."""

    def problem_of(row: Row) -> tuple[object, ...]:
        """The problem of a row without its kernel, or without the engine of a collective."""
        record = row.record
        if record.ranks is not None:
            return problem(replace(record, engine=None))
        return problem(record)[1:]

    found = list(suspects)
    for key in dict.fromkeys(map(problem_of, suspects)):
        alike = [row for row in rows if row.same_code and row.verdict == "SAME"
                 and row.change and problem_of(row) == key]  # fmt: skip
        found += sorted(alike, key=lambda row: row.record.time_us or 0.0)[: 2 * FEWEST - 1]
    return found


def _replace_uncertain(rows: Sequence[Row], longer: Sequence[Row]) -> list[Row]:
    """The rows with those in doubt replaced by the rows of a longer measurement. A row without a
    time on both sides replaces nothing unless it is WRONG."""
    by_identity = {identity(row.record): row for row in longer if row.change}
    return _with_wrong(
        [by_identity.get(identity(row.record), row) if row.in_doubt else row for row in rows],
        longer,
    )


def confirm_rows(rows: Sequence[Row], second: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows after a second measurement: SLOWER only where that agrees, and nowhere if the
    machine has changed in between."""
    by_identity = {identity(row.record): row for row in second}
    confirmed = [
        _confirm_row(row, by_identity.get(identity(row.record))) if row.verdict == "SLOWER" else row
        for row in rows
    ]
    return apply_drift(_with_wrong(confirmed, second), rules)


def _confirm_row(first: Row, second: Row | None) -> Row:
    if second is None or second.change is None:
        if second is not None and second.verdict == "WRONG":
            return second
        why = second.reason if second else "it is missing"
        return first.as_uncertain(f"not measured again: {why}")
    if second.verdict == "SLOWER":
        return replace(second, confirmed=True)
    reason = f"{_first_change_text(first)}, not confirmed by a second measurement"
    if second.verdict == "FASTER":
        return replace(second.as_uncertain(reason), confirmed=False)
    return replace(second, reason=joined(reason, second.reason), confirmed=False)


def _with_wrong(rows: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """The rows, with those replaced that `found` has as WRONG."""
    wrong = {identity(row.record): row for row in found if row.verdict == "WRONG"}
    return [wrong.get(identity(row.record), row) for row in rows]


def _mark_unconfirmed(rows: Sequence[Row], why: str) -> list[Row]:
    return [
        row.as_uncertain(_first_change_text(row), why) if row.verdict == "SLOWER" else row
        for row in rows
    ]  # fmt: skip


def _first_change_text(row: Row) -> str:
    return f"{change_text(row.change.ratio)} at first" if row.change else ""


def _remeasurement_text(rows: Sequence[Row], times: int) -> str:
    counts = Counter(row.verdict for row in rows)
    slower, doubtful = counts["SLOWER"], counts["UNCERTAIN"]
    words = f"{counted(slower, 'looks', 'look')} slower" if slower else f"{doubtful} in doubt"
    controls = len(rows) - slower - doubtful
    group = f", with {controls} of the control group" if controls else ""
    return f"{words}: measuring again with {times} times the rounds{group}"


def compare_files(request: CompareRequest) -> int:
    """Compare two stored runs; returns the exit code. Raises UsageError and BaselineError."""
    request.outputs.check(request.old, request.new, *request.judging.read)
    registry = load_registry()
    report = compare_runs(request, registry)
    return publish_comparison(report, request.judging, request.outputs, registry)


def compare_runs(request: CompareRequest, registry: Registry) -> Report:
    """Compare two stored runs. Raises UsageError and BaselineError."""
    old, new = load_baseline(request.old), load_timed(request.new)
    copied, common = copied_rounds(old, new)
    if copied and copied == common:
        raise UsageError(
            f"{request.new} holds the same measurement as {request.old}: measure again, then "
            "compare"
        )
    if 2 * copied > common:
        raise UsageError(
            f"{request.new} is a copy of {request.old} with changes: {copied} of {common} cases "
            "have the same or proportional rounds; measure again, then compare"
        )
    thresholds = thresholds_of(request.judging, registry, [*old.records, *new.records])
    rules, notes = rules_between(old, new, thresholds, request.judging)
    rows = require_evidence(compare(old.records, new.records, rules), rules)
    return Report(
        title=f"{request.new.name} against {request.old.name}, {new.device.name}",
        head=(side_text("old", old), side_text("new", new)), rows=rows, rules=rules,
        against=("--baseline", str(request.old), *request.judging.again),
        notes=(*order_notes(old, new, (request.old, request.new)), *notes,
               *protocol_differences(old, new), *skew_notes(rows),
               *host_notes(old.records, new.records)),
    )  # fmt: skip


def stored_baseline(request: CheckRequest) -> Run:
    """Load the baseline and check that the outputs can be written. Raises UsageError and
    BaselineError."""
    assert request.baseline is not None
    request.outputs.check(request.baseline, *request.judging.read)
    stored = load_baseline(request.baseline)
    if request.update_baseline:
        check_writable(request.baseline)
        if request.kernels:
            raise UsageError("--update-baseline takes no kernels: a baseline is one whole run")
        held = {r.kernel for r in stored.records if r.scope == "library" and r.ranks is None}
        if not all(is_selected(name, request.peers) for name in held):
            raise UsageError(
                "--update-baseline would drop libraries that the baseline holds: give --peers all"
            )
        if rounds_of(request, stored) < MIN_ROUNDS:
            raise UsageError(
                f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing"
            )
    return stored


def check_stored(request: CheckRequest, stored: Run) -> int:
    """Measure the kernels of a stored run again and compare; returns the exit code. Raises
    UsageError, BaselineError, and EnvironmentProblem without a GPU."""
    registry = load_registry(request.folders)
    records, batches = select(stored, request, registry)
    thresholds = thresholds_of(request.judging, registry, stored.records)
    with KernelMeasurement(request, registry, batches, stored) as kernels:
        return report_stored(request, stored, records, registry, thresholds, kernels)


def report_stored(
    request: CheckRequest, stored: Run, records: Sequence[Record], registry: Registry,
    thresholds: Thresholds, measurement: Measurement,
) -> int:  # fmt: skip
    """Check against these records of a stored run, publish, and write the new baseline if
    requested; returns the exit code."""
    old, device = replace(stored, records=tuple(records)), measurement.device
    device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
    libraries = {"peers": list(request.peers)} if request.peers else {}
    now = Run(tool(request.argv), device, {**old.protocol, **libraries}, ())
    rules, notes = rules_between(old, now, thresholds, request.judging)
    title = f"now against {request.baseline and request.baseline.name}, {device.name}"
    report = check(request, rules, old, measurement, title=title, notes=notes)
    assert report.measured is not None
    # A result that was wrong in a later measurement only is wrong in the new run, too.
    wrong = {identity(row.record): row.record for row in report.rows if row.verdict == "WRONG"}
    now = report.measured.as_run(now, rounds_of(request, stored))
    now = replace(now, records=tuple(wrong.get(identity(r), r) for r in now.records))
    report = replace(report, head=(side_text("old", old), side_text("new", now)))
    code = publish_comparison(
        report, request.judging, request.outputs, registry,
        texts={"json": lambda: to_json(now)}, quiet=request.quiet,
    )  # fmt: skip
    return _update_baseline(request, now, report, code) if request.update_baseline else code


def _update_baseline(request: CheckRequest, now: Run, report: Report, code: int) -> int:
    """Write the new baseline unless a result is wrong or a kernel is missing."""
    path = request.baseline
    assert path is not None
    gone = next((row.record for row in report.rows if row.verdict == "GONE"), None)
    if report.cut or any(record.cause == "time" for record in now.records):
        say(f"{path} is unchanged: not all of it was measured")
        return code or 4
    if code in (2, 3, 6):
        say(f"{path} is unchanged: fix the kernels that fail first")
        return code
    if gone and not request.judging.allow_gone:
        name = gone.engine or gone.kernel
        say(f"{path} is unchanged: {name} is gone; --allow-gone drops it from the baseline")
        return code
    write_text(path, to_json(now))
    say(f"wrote the new baseline to {path}", request.quiet)
    return 0


def check_base(request: CheckRequest) -> int:
    """Compare two trees of kernels in the same rounds; returns the exit code. Raises UsageError and
    EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    registry = load_registry(request.folders)
    with open_trees(request, registry) as trees:
        return check_trees(request, trees, registry)


def check_trees(
    request: CheckRequest, trees: Trees, registry: Registry, ahead: CompiledReport | None = None
) -> int:
    """Check two trees and publish after the results of compilation, `ahead`; returns the exit code.
    Raises UsageError and EnvironmentProblem."""
    named = {*trees.base, *(choice.kernel.id for choice in trees.choices)}
    batch = base_batch(trees.choices, trees.base, request)
    alone = request.kernels and all(name.endswith(SOURCES) for name in request.kernels)
    candidate = " ".join(request.kernels if alone else map(str, request.heads))
    thresholds = thresholds_of(request.judging, registry, (), named)
    with KernelMeasurement(request, registry, [batch]) as kernels:
        return report_trees(
            request, candidate, registry, thresholds, kernels, trees.problems, ahead
        )


def report_trees(
    request: CheckRequest, candidate: str, registry: Registry, thresholds: Thresholds,
    measurement: Measurement, notes: Sequence[str] = (), ahead: CompiledReport | None = None,
) -> int:  # fmt: skip
    """Check two trees, measured in the same rounds, and publish; returns the exit code. `candidate`
    names the new tree."""
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    device = measurement.device
    now = Run(tool(request.argv), device, {"rounds": request.default_rounds}, ())
    title, head = f"{candidate} against {request.base}, {device.name}", (side_text("new", now),)
    report = check(request, rules, None, measurement, title=title, head=head, notes=notes)
    if not report.rows and not report.cut:
        raise UsageError(
            "nothing was compared: give --n elements that a kernel can reduce, or more --max-time"
        )
    return publish_comparison(
        report, request.judging, request.outputs, registry, quiet=request.quiet, ahead=ahead
    )


def check_self(request: CheckRequest) -> int:
    """Compare this tree with itself, to show how reliable this machine's verdicts are: each run, in
    a fresh process, with the one before. Returns 0, 3 for a wrong result, 2 for a kernel that does
    not compile, or the code of an early end. Raises UsageError and EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    registry = load_registry(request.folders)
    choices = head_choices(request, request.kernels, registry)
    named = {choice.kernel.id for choice in choices}
    rules = Rules(thresholds_of(request.judging, registry, (), named), same_code=False)
    rows = list[Row]()
    batches = [head_batch(choices, request)]
    with KernelMeasurement(request, registry, batches, always_fresh=True) as kernels:
        before = kernels.measure(None, 1)
        cut = before.cut
        for k in range(request.times or 1):
            if cut or kernels.deadline.passed:
                break
            say(f"comparison {k + 1} of {request.times}", request.quiet)
            report = check(request, rules, Run({}, kernels.device, {}, before.new), kernels)
            assert report.measured is not None
            cut, before = report.cut, report.measured
            if not cut:
                rows += map(_mark_wrong_in_first, report.rows)
    if not rows and not cut:
        raise UsageError("nothing was compared: give --n elements, or more --max-time")
    section = _self_section(rows, kernels.device.name, rules, request.default_rounds)
    if cut:
        section = replace(section, notes=(*section.notes, f"cut short: {cut.why}"))
    publish(request.outputs, [section], {"json": lambda: rows_json(rows)})
    codes = {row_code(row, Judging(allow_gone=True)) for row in rows}
    return cut.exit_code if cut else worst_exit_code(codes & {2, 3})


def _mark_wrong_in_first(row: Row) -> Row:
    """The row, WRONG instead of NEW if the first run had a wrong result: both runs have the same
    kernels."""
    if row.verdict == "NEW" and row.old and row.old.verdict == "fail":
        return replace(row, verdict="WRONG", reason=row.old.reason)
    return row


def _self_section(rows: Sequence[Row], device: str, rules: Rules, rounds: int) -> Section:
    """A table of how often each kernel got each verdict, with the rate of false verdicts."""
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


def thresholds_of(
    judging: Judging, registry: Registry, records: Sequence[Record], named: set[str] | None = None
) -> Thresholds:
    """The thresholds of the options, checked against the names of known kernels, of those in
    records and of those `named`."""
    held = (name for record in records for name in (record.kernel, record.engine) if name)
    known = dict.fromkeys([*registry.names, *held, *(named or ())])
    return load_thresholds(judging.thresholds, judging.threshold, known)
