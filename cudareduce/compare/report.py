"""The report of a comparison: tables, notes, JSON, JUnit, the comment on a change, exit code."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, log
from statistics import median
from typing import Any

from cudareduce.bench.command import verdict_codes
from cudareduce.catalog.registry import Registry
from cudareduce.compare.baseline import match
from cudareduce.compare.request import Judging, Thresholds
from cudareduce.compare.statistics import detectable_slowdown
from cudareduce.compare.verdicts import (
    VERDICTS,
    ControlGroup,
    Cut,
    Measured,
    Row,
    Rules,
    host_only,
    joined,
    machine,
)
from cudareduce.errors import BaselineError, worst_exit_code
from cudareduce.reduction.patterns import GIVEN
from cudareduce.reduction.sizes import counted
from cudareduce.report.ci import Finding, comment_of, publish_findings
from cudareduce.report.columns import way_text
from cudareduce.report.markdown import code, escaped, to_markdown
from cudareduce.report.numbers import (
    DASH,
    change_text,
    plain_text,
    share_text,
    short_size,
    sms_text,
    time_text,
)
from cudareduce.report.publish import Outputs, Texts
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run
from cudareduce.text import first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The rows of a comparison with title, rules and notes. `measured` is its first measurement if
    there was one, `cut` why it ended early, `against` the options of `check` that compare again."""

    title: str
    rows: Sequence[Row]
    rules: Rules
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    measured: Measured | None = None
    cut: Cut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledReport:
    """The results of compilation, which are published before those of timing. `code` are notes on
    machine code by kernel."""

    section: Section
    findings: tuple[Finding, ...]
    values: tuple[dict[str, Any], ...]
    code: Mapping[str, Sequence[str]]


def rules_between(
    old: Run, new: Run, thresholds: Thresholds, judging: Judging
) -> tuple[Rules, list[str]]:
    """The rules for two runs, and notes on their machines. Raises BaselineError for different
    machines without --cross-device."""
    machines = match(old.device, new.device)
    if machines.differences and not judging.cross_device:
        raise BaselineError(
            "the baseline was made on another machine: "
            f"{'; '.join(machines.differences)}. Make one here with bench --json, or compare "
            "shares of each card's ceiling with --cross-device"
        )
    notes = [f"the machine: {warning}" for warning in machines.warnings]
    if machines.other_card:
        which = "; ".join(machines.differences) or "another card of the same model"
        notes.insert(0, f"Compared by shares of each card's own ceiling, not by time: {which}.")
    rules = Rules(
        thresholds,
        shares=machines.other_card,
        same_code=not judging.no_same_code,
        clocks=old.device.name == new.device.name,
    )
    return rules, notes


def publish_comparison(
    report: Report, judging: Judging, outputs: Outputs, registry: Registry, *,
    texts: Texts | None = None, quiet: bool = False, ahead: CompiledReport | None = None,
) -> int:  # fmt: skip
    """Publish the rows, with further `texts` for files; returns the exit code."""
    rows, drift = report.rows, machine(report.rows, report.rules)
    sections = verdict_sections(report, everything=judging.everything)
    findings = _findings(rows, judging, drift)
    if ahead:
        sections, findings = [ahead.section, *sections], [*ahead.findings, *findings]
    own: Texts = {
        "comment": lambda: comment(report, ahead.code if ahead else {}),
        "benchmark_json": lambda: benchmark_series(rows),
    }
    publish_findings(
        outputs, sections, findings, {**own, **(texts or {})},
        printed={"json": lambda: rows_json(rows, ahead.values if ahead else ())},
        places=registry.place, quiet=quiet,
        notes=(*([_machine_text(drift)] if drift else []), *_run_notes(report)),
    )  # fmt: skip
    return exit_code(report, judging)


def row_code(row: Row, judging: Judging) -> int:
    """The exit code of one row."""
    if row.record.unbuilt:
        return 2
    match row.verdict:
        case "WRONG":
            return 3
        case "SLOWER":
            return 1
        case "GONE":
            return 0 if judging.allow_gone else 1
        case "UNCERTAIN":
            return 4 if judging.strict or row.unproven_slowdown else 0
        case _:
            return 0


def exit_code(report: Report, judging: Judging) -> int:
    """The exit code of the worst verdict, of machine-wide drift, of an early end, or 4 if nothing
    was decided. Only the new side counts, since a change that repairs a kernel must pass."""
    if report.cut:
        return report.cut.exit_code
    codes = {row_code(row, judging) for row in report.rows} - {0}
    if machine(report.rows, report.rules) or _undecided(report.rows):
        codes.add(4)
    if report.measured is not None:
        codes |= verdict_codes(report.measured.new) - {3}  # wrong results are judged as rows
    return worst_exit_code(codes)


def _undecided(rows: Sequence[Row]) -> bool:
    """Whether no kernel has a verdict. A kernel that was wrong in the baseline and is right now has
    one."""
    return all(
        row.verdict in ("UNCERTAIN", "GONE") or (row.verdict == "NEW" and row.old is None)
        for row in rows
    )


def _run_notes(report: Report) -> list[str]:
    """Notes on the whole run: why it ended early or decided nothing, then remarks on the
    measurement."""
    notes = [*report.notes, *(report.measured.remarks if report.measured else ())]
    if report.cut:
        notes.insert(0, f"cut short: {report.cut.why}; what is missing was not measured")
    elif _undecided(report.rows):
        why = "no kernel has a verdict on its time; the reasons are in the notes above"
        if all(row.verdict == "NEW" for row in report.rows):
            why = "the baseline has none of these kernels; compare with a run that has them"
        notes.insert(0, f"Nothing was decided: {why}.")
    return notes


_NOT_JUDGED = "not judged"
#: The most rows of a table that still shows SAME rows.
_SHOW_ALL_UP_TO = 60
#: Limits for rows that only one run has (more are summarized), and for names in a summary.
_ONE_SIDED_UP_TO, _FIRST_FEW = 8, 4


def verdict_sections(report: Report, *, everything: bool) -> list[Section]:
    """The table of all rows, worst first. Without `everything`, a long table omits SAME rows."""
    rows, rules, notes = report.rows, report.rules, list[str]()
    shown = _worst_first(rows)
    if not everything:
        shown, notes = _rows_to_show(shown)
    notes += [*power_notes(rows, rules), *_run_notes(report)]
    # Properties common to all rows go into the title, so that the table fits 80 columns.
    kinds = dict.fromkeys(reduction_text(row.record) for row in shown)
    limits = dict.fromkeys(_limit_text(row) for row in shown if row.threshold is not None)
    what = shape_text if len(kinds) == 1 else problem_text
    title = ", ".join([report.title, *(kinds if len(kinds) == 1 else ())])
    size = "n x rows" if any(row.record.rows != 1 for row in shown) else "n"
    unit = "%ceil" if rules.shares else "us"
    header = ["verdict", "kernel", size if len(kinds) == 1 else "what", f"old {unit}",
              f"new {unit}", "change"]  # fmt: skip
    table = [
        [
            _verdict_word(row, rules),
            row.record.kernel,
            abbreviate(what(row.record)),
            *_cells(row, rules.shares),
        ]
        for row in shown
    ]
    if len(limits) == 1:
        title += f", limit {next(iter(limits))}"
    elif limits:
        header.append("limit")
        table = [[*cells, _limit_text(row)] for cells, row in zip(table, shown, strict=True)]
    if noise := _noise_text(rows, rules):
        notes.append(noise)
    if any(row.record.context for row in shown):
        notes.append("beside: timed in the rounds of libraries; off: input offset in elements")
    if drift := machine(rows, rules):
        title, notes = f"MACHINE: {title}", [_machine_text(drift), *notes]
    notes = [counts_text(rows, rules), *_reasons(shown, what), *notes]
    return [Section(title, tuple(header), tuple(map(tuple, table)), tuple(notes), 3,
                    head=report.head)]  # fmt: skip


def _verdict_word(row: Row, rules: Rules) -> str:
    """The verdict as tables show it: `not judged` for identical code on another GPU model."""
    same = row.same_code and row.verdict == "SAME"
    return _NOT_JUDGED if rules.other_model and same else row.verdict


def counts_text(rows: Sequence[Row], rules: Rules) -> str:
    """The number of rows per verdict: `24 compared: 1 SLOWER, 23 SAME`."""
    counts = Counter(_verdict_word(row, rules) for row in rows)
    words = (*VERDICTS, _NOT_JUDGED)
    counted_words = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
    return f"{len(rows)} compared: {counted_words or 'nothing'}"


def _worst_first(rows: Iterable[Row]) -> list[Row]:
    """Rows by verdict, then by slowdown."""

    def key(row: Row) -> tuple[int, float]:
        return VERDICTS.index(row.verdict), -(row.change.ratio if row.change else 0.0)

    return sorted(rows, key=key)


def _rows_to_show(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows to show, and notes on those omitted: problems that only one run has, and SAME rows
    of a long table. A kernel missing among compared ones stays a row."""

    def size(row: Row) -> str:
        return short_size(row.record.n * row.record.rows)

    def problem(row: Row) -> tuple[str, str]:
        return reduction_text(row.record), size(row)

    notes = []
    compared = {problem(row) for row in rows if row.old and row.new}
    shown = list(rows)
    for verdict, side in (("GONE", "old"), ("NEW", "new")):
        single = [row for row in rows if row.verdict == verdict and not (row.old and row.new)]
        apart = [row for row in single if problem(row) not in compared]
        if len(single) - len(apart) > _ONE_SIDED_UP_TO:
            apart = single
        if len(apart) > _ONE_SIDED_UP_TO:
            hidden = {id(row) for row in apart}
            shown = [row for row in shown if id(row) not in hidden]
            sizes: dict[str, list[str]] = {}
            for row in apart:
                sizes.setdefault(reduction_text(row.record), []).append(size(row))
            what = "; ".join(
                f"{reduction} {first_few(problem_sizes, _FIRST_FEW)}"
                for reduction, problem_sizes in sizes.items()
            )
            kernels = first_few((row.record.kernel for row in apart), _FIRST_FEW)
            notes.append(
                f"{verdict}: {len(apart)} are only in the {side} run ({what}): {kernels}; --all "
                "shows them"
            )
    same = sum(row.verdict == "SAME" for row in shown)
    if len(shown) > _SHOW_ALL_UP_TO and same:
        shown = [row for row in shown if row.verdict != "SAME"]
        hidden_rows = counted(same, "SAME row is", "SAME rows are")
        notes.append(f"{hidden_rows} hidden; --all shows {'it' if same == 1 else 'them'}")
    return shown, notes


def called(record: Record) -> str:
    """The name of a record's kernel, followed by the engine of a collective."""
    return f"{record.kernel} {record.engine or ''}".rstrip()


def problem_text(record: Record) -> str:
    """A record's operator, types and size, and how it was measured if not as by default."""
    return f"{reduction_text(record)} {shape_text(record)}"


def reduction_text(record: Record) -> str:
    """A record's operator, element type and accumulator type."""
    acc = f" in {record.acc}" if record.acc != record.dtype and record.op != "mean" else ""
    return f"{record.reduced} {record.dtype}{acc}"


def shape_text(record: Record) -> str:
    """A record's size, and how it was measured if not as by default."""
    rows = f" x {short_size(record.rows)} rows" if record.rows != 1 else ""
    usual = {"timing": "cold", "region": "total", "pattern": "random"}
    ways = [value for key, word in usual.items() if (value := getattr(record, key)) != word]
    if record.ranks is not None:  # collectives are timed in one way only
        ways = [record.engine or "", f"{record.ranks} ranks"]
    ways = ["from a file" if way == GIVEN else way for way in ways]
    ways += ["beside libraries"] if record.context else []
    ways += [f"starting {record.offset} off"] if record.offset else []
    ways += [f"on {sms_text(record.sms)}"] if record.sms else []
    ways += [way] if (way := way_text(record)) else []
    how = f", {' '.join(ways)}" if ways else ""
    return f"{short_size(record.n)}{rows}{how}"


def abbreviate(what: str) -> str:
    """A problem's text, shortened for a narrow column."""
    return what.replace(" rows", "").replace("beside libraries", "beside").replace("starting ", "")


def _cells(row: Row, shares: bool) -> tuple[str, str, str]:
    """Old figure, new figure and change. The figures are times in us or, with `shares`, percentages
    of each card's ceiling."""

    def figure(record: Record | None) -> str:
        if record is None:
            return DASH
        if shares:
            return share_text(record.pct_ceiling if record.ranks is None else record.pct_link)
        return time_text(record.time_us, record.time_us_low, record.time_us_high)

    return figure(row.old), figure(row.new), _change_text(row) or DASH


def _change_text(row: Row) -> str:
    change = row.change
    return change_text(change.ratio, change.low, change.high) if change else ""


def _limit_text(row: Row) -> str:
    return DASH if row.threshold is None else f"{100 * row.threshold:g}%"


def _machine_text(drift: ControlGroup) -> str:
    """The message for verdict MACHINE: its cause, and what to do."""
    return (
        f"MACHINE: {drift.text}, so the machine changed (clock, driver, other load, card) and no "
        "kernel is called slower or faster; look at `cudareduce info`, then measure again or make "
        "a new baseline"
    )


def _noise_text(rows: Sequence[Row], rules: Rules) -> str:
    """A note on how much the times of identical code differ, and whether their drift is
    subtracted."""
    same = [row for row in rows if row.same_code and (row.verdict == "SAME" or row.change)]
    text = f"{counted(len(same), 'kernel is', 'kernels are')} unchanged"
    moves = [log(row.change.ratio) for row in same if row.change]
    if rules.other_model and moves:
        change = change_text(exp(-median(moves)))
        return f"{text} and not judged: their share of the ceiling differs by {change}."
    if not moves:
        return f"{text}." if same else ""
    moves = list(map(abs, moves))
    middle, most = (100 * expm1(move) for move in (median(moves), max(moves)))
    text += (
        f"; their times differ by {middle:.2f} % (median) to {most:.2f} % (max), the noise of this "
        "comparison."
    )
    subtracted = any(row.taken_out for row in rows)
    return text + " Their common drift is subtracted from the other changes." * subtracted


def _reasons(rows: Sequence[Row], what: Callable[[Record], str]) -> Iterator[str]:
    """A note for each reason of each verdict. It names the rows if a verdict has several
    reasons."""
    verdicts: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        verdicts.setdefault(row.verdict, {}).setdefault(reason_text(row), []).append(row)
    for verdict, reasons in verdicts.items():
        *smaller, _ = sorted(map(len, reasons.values()))
        for why, members in reasons.items():
            names = ", ".join(f"{row.record.kernel} {what(row.record)}" for row in members)
            if len(members) not in smaller:
                names = f"the other {len(members)}"
            if why and (verdict != "SAME" or any(map(_is_other_version, members))):
                yield f"{verdict}: {why}" + (f": {names}" if len(reasons) > 1 else "")


def _is_other_version(row: Row) -> bool:
    """Whether a row compares two versions of a library, or two choices of `auto`."""
    old, new = row.old, row.new
    return bool(old and new and (old.version, old.chosen) != (new.version, new.chosen))


def reason_text(row: Row) -> str:
    """The reason of a verdict; for SLOWER also whether a second run confirmed it."""
    if row.verdict != "SLOWER":
        return row.reason
    sure = "confirmed in a fresh process" if row.confirmed else "unconfirmed"
    return joined(sure, row.reason)


def _sentence(row: Row) -> str:
    """Change, limit and reason of a row, as one line of text."""
    limit = f"limit {_limit_text(row)}" if row.verdict == "SLOWER" else ""
    return ", ".join(filter(None, (_change_text(row), limit, reason_text(row)))) or "unchanged"


def _findings(rows: Iterable[Row], judging: Judging, drift: ControlGroup | None) -> list[Finding]:
    """Findings for a CI service, worst first. UNCERTAIN and GONE rows count as skipped unless they
    fail the check."""
    findings = []
    if drift:
        text = _machine_text(drift).removeprefix("MACHINE: ")
        findings.append(Finding("the machine", "unchanged kernels", "MACHINE", text, "failed"))
    for row in _worst_first(rows):
        undecided = row.verdict in ("UNCERTAIN", "GONE")
        findings.append(Finding(
            called(row.record), problem_text(row.record), row.verdict, _sentence(row),
            "failed" if row_code(row, judging) else "skipped" if undecided else "passed",
            (row.new.time_us or 0.0) / 1e6 if row.new else 0.0,
        ))  # fmt: skip
    return findings


def power_notes(rows: Sequence[Row], rules: Rules) -> list[str]:
    """The smallest slowdown found with 95 % probability: of the median row and of the noisiest."""
    judged = [row for row in rows if not (rules.same_code and row.same_code)] or rows
    slowdowns = sorted(
        detectable_slowdown(row.change.half_width, row.threshold)
        for row in judged if row.change and row.threshold
    )  # fmt: skip
    if not slowdowns:
        return []
    middle, most = (100 * slowdowns[k] for k in (len(slowdowns) // 2, -1))
    noisiest = f" (noisiest row: {most:.2g} %)" if most > 1.1 * middle else ""
    return [f"This comparison detects slowdowns >= {middle:.2g} % with 95 % probability{noisiest}."]


def host_notes(old: Sequence[Record], new: Sequence[Record]) -> list[str]:
    """Library calls that are not compared, with the host times that differ most."""
    calls: dict[str, list[tuple[float, str]]] = {}
    for before, now in host_only(old, new):
        us = before.host_us or 1.0, now.host_us or 1.0
        text = f"{plain_text(us[0], 2)}, now {plain_text(us[1], 2)} at n = {short_size(now.n)}"
        calls.setdefault(called(now), []).append((abs(log(us[1] / us[0])), text))
    why = "not compared, since only the host's time in us is known"
    return [f"{why}: {_largest_change(calls)}"] if calls else []


#: A skew is reported if it more than doubled, and grew by this time in us and this fraction of the
#: time.
_GROWN_US, _GROWN = 0.5, 0.02


def skew_notes(rows: Sequence[Row]) -> list[str]:
    """Engines whose ranks end much further apart than before; a note, not a verdict."""
    grown: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        if not row.old or not row.new or row.old.skew_us is None or row.new.skew_us is None:
            continue
        before, now = row.old.skew_us, row.new.skew_us
        if now - before > max(before, _GROWN_US, _GROWN * (row.new.time_us or 0.0)):
            text = f"{plain_text(before, 2)}, now {plain_text(now, 2)} us"
            text += f" at n = {short_size(row.new.n)}"
            name = row.new.engine or row.new.kernel
            grown.setdefault(name, []).append((now - before, text))
    why = "ranks end further apart than before (not judged): skew of"
    return [f"{why} {_largest_change(grown)}"] if grown else []


def _largest_change(changes: Mapping[str, Sequence[tuple[float, str]]]) -> str:
    """The largest change of each name, as text, with the number of changes."""
    return "; ".join(
        f"{name} {max(some, key=lambda change: change[0])[1]}"
        + (f", the largest difference of {len(some)}" if len(some) > 1 else "")
        for name, some in changes.items()
    )


#: The most kernels, rows per kernel, and names in a list of the comment.
_MOST_KERNELS, _MOST_ROWS, _MOST_NAMES = 20, 12, 6


def comment(report: Report, code_notes: Mapping[str, Sequence[str]]) -> str:
    """The comment on a change as Markdown. A marker in its first line identifies it, so that it can
    be replaced later."""
    rows, drift = report.rows, machine(report.rows, report.rules)
    changed: dict[str, list[Row]] = {}
    quiet: dict[str, list[Row]] = {}
    for row in _worst_first(rows):
        group = quiet if row.verdict in ("SAME", "NEW") else changed
        group.setdefault(called(row.record), []).append(row)
    blocks = [f"### cudareduce, {counts_text(rows, report.rules)}"]
    blocks += [_machine_text(drift)] if drift else []
    blocks += ["<br>\n".join(map(escaped, [report.title, *report.head]))]
    blocks += [
        _kernel_block(changed[name], quiet.get(name, ()), report, code_notes.get(name, ()))
        for name in list(changed)[:_MOST_KERNELS]
    ]
    left = list(changed)[_MOST_KERNELS:]
    if left:
        blocks.append(f"{len(left)} more kernels: {escaped(first_few(left, _MOST_NAMES))}")
    alone = [name for name in dict.fromkeys(called(row.record) for row in rows)
             if name in quiet and name not in changed]  # fmt: skip
    if alone:
        words = counts_text([row for name in alone for row in quiet[name]], report.rules)
        blocks.append(f"Other kernels: {words} ({escaped(first_few(alone, _MOST_NAMES))})")
    notes = [*power_notes(rows, report.rules), *_run_notes(report)]
    if notes:
        listed = "\n".join(f"- {escaped(note)}" for note in notes)
        blocks.append(f"<details><summary>How it was measured</summary>\n\n{listed}\n\n</details>")
    return comment_of("\n\n".join(block.rstrip() for block in blocks) + "\n")


def _kernel_block(
    rows: Sequence[Row], quiet: Sequence[Row], report: Report, code_notes: Sequence[str]
) -> str:
    """One kernel's part of the comment: changed rows, counts of the others, machine code, next
    command."""
    shares = report.rules.shares
    unit, name = "%ceil" if shares else "us", called(rows[0].record)
    table = tuple(
        (_verdict_word(row, report.rules), problem_text(row.record), *_cells(row, shares))
        for row in rows[:_MOST_ROWS]
    )
    notes = [
        f"{counted(len(rows) - _MOST_ROWS, 'more row')}" if len(rows) > _MOST_ROWS else "",
        f"also {counts_text(quiet, report.rules)}" if quiet else "",
        *dict.fromkeys(f"{row.verdict}: {why}" for row in rows if (why := reason_text(row))),
        joined(_code_text(rows), *code_notes),
    ]
    header = ("verdict", "what", f"old {unit}", f"new {unit}", "change")
    text = to_markdown([Section(name, header, table, tuple(filter(None, notes)), 2)])
    next_command = f"\nnext: {code(_next(rows[0], report.against))}" if report.against else ""
    return text + next_command


def _code_text(rows: Sequence[Row]) -> str:
    """Whether machine code, source text and launch shape have changed, as text."""
    pairs = [(row.old, row.new) for row in rows if row.old and row.new]

    def differs(name: str) -> bool | None:
        known = [(a, b) for old, new in pairs
                 if (a := getattr(old, name)) and (b := getattr(new, name))]  # fmt: skip
        return any(a != b for a, b in known) if known else None

    changed = differs("cubin_sha")
    if changed is None:
        return ""
    if not changed:
        return "machine code is unchanged"
    source = {True: "changed", False: "unchanged", None: "unknown"}[differs("source_sha")]
    shape = any((a.block, a.items, a.grid) != (b.block, b.items, b.grid) for a, b in pairs)
    return f"machine code changed, source {source}" + ", launch shape changed" * shape


def _next(row: Row, against: Sequence[str]) -> str:
    """The command that examines a row further."""
    record = row.record
    name = record.engine or record.kernel
    problem = ["--n", str(record.n), "--op", record.op, "--dtype", record.dtype]
    if record.scope == "library":  # a library is measured alongside all kernels
        command = ["check", *against]
    elif row.verdict == "WRONG" and record.ranks is not None:
        command = ["collective", record.kernel, "--engine", name, "--ranks", str(record.ranks),
                   *problem]  # fmt: skip
    elif row.verdict == "WRONG" or record.unbuilt:
        command = ["verify", record.kernel, *problem]
        command += ["--map", record.map] if record.map else []
        command += ["--rows", str(record.rows)] if record.rows != 1 else []
        command += [word for pair in pairwise(against) if pair[0] == "--kernels" for word in pair]
    elif row.verdict == "GONE":
        command = ["check", *against, "--allow-gone"]
    else:
        longer = ["--budget", "300"] * (row.verdict == "UNCERTAIN")
        command = ["check", name, *against, *longer]
    return shlex.join(["cudareduce", *command])


_JSON_FIELDS = (
    "kernel", "op", "map", "dtype", "acc", "n", "rows", "block", "items", "timing", "region",
    "pattern", "context", "offset", "sms", "source", "way", "chunk_bytes", "ranks", "engine",
)  # fmt: skip


def rows_json(rows: Iterable[Row], ahead: Sequence[dict[str, Any]] = ()) -> str:
    """All rows as JSON objects in the order of the new run, after the objects `ahead`; changes in
    per cent."""
    values = [
        {name: getattr(row.record, name) for name in _JSON_FIELDS}
        | {
            "verdict": row.verdict,
            "reason": reason_text(row),
            "confirmed": row.confirmed,
            "same_code": row.same_code,
            "taken_out_pct": 100 * expm1(row.taken_out.moved) if row.taken_out else None,
            "time_us_old": row.old.time_us if row.old else None,
            "time_us_new": row.new.time_us if row.new else None,
            "change_pct": row.change and 100 * (row.change.ratio - 1),
            "change_pct_low": row.change and 100 * (row.change.low - 1),
            "change_pct_high": row.change and 100 * (row.change.high - 1),
            "threshold_pct": None if row.threshold is None else 100 * row.threshold,
        }
        for row in rows
    ]
    return json.dumps([*ahead, *values], indent=1, allow_nan=False) + "\n"


def benchmark_series(rows: Iterable[Row]) -> str:
    """Values for github-action-benchmark (`customSmallerIsBetter`), one per kernel and problem."""
    values = []
    for row in rows:
        record = row.new
        if record is None or record.time_us is None:
            continue
        entry: dict[str, object] = {"name": f"{record.kernel} {problem_text(record)}"}
        entry |= {"unit": "us", "value": record.time_us}
        if record.time_us_low is not None and record.time_us_high is not None:
            entry["range"] = f"{(record.time_us_high - record.time_us_low) / 2:.3g}"
        rate = f"\n{record.gb_s:.0f} GB/s" if record.gb_s else ""
        values.append(entry | {"extra": f"{row.verdict}: {_sentence(row)}{rate}"})
    return json.dumps(values, indent=1, allow_nan=False) + "\n"
