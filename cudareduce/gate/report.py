"""The report of a comparison: tables, JSON, JUnit, the comment on a change, the exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import expm1
from typing import Any

from cudareduce.bench.command import verdict_codes
from cudareduce.errors import BaselineError, worst_exit_code
from cudareduce.gate.baseline import match
from cudareduce.gate.compare import Row, Rules, machine
from cudareduce.gate.decide import Policy
from cudareduce.gate.measure import Cut, Remeasured
from cudareduce.gate.render import (
    called,
    counts_text,
    findings,
    machine_text,
    power_notes,
    problem_text,
    reason_text,
    row_cells,
    sentence,
    verdict_sections,
    worst_first,
)
from cudareduce.gate.request import Judging, Thresholds
from cudareduce.library.registry import Registry
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.ci import Finding, comment_of, junit, tell_ci
from cudareduce.report.markdown import code, escaped, to_markdown
from cudareduce.report.publish import Outputs, Texts, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few
from cudareduce.results.record import Run

#: The most kernels, rows per kernel, and names in a list.
_MOST_KERNELS, _MOST_ROWS, _FIRST_FEW = 20, 12, 6
#: Verdicts that are only counted.
_QUIET = ("SAME", "NEW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Context of a comment: title, notes, the options `against` of `check` that compare again
    (empty if nothing can be run), and notes on the machine code by kernel."""

    title: str
    head: Sequence[str]
    notes: Sequence[str]
    against: Sequence[str] = ()
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shares: bool = False


def comment(rows: Sequence[Row], told: Told, machine: str = "") -> str:
    """The comment as Markdown; `machine` is why no kernel is blamed. A marker in its first line
    identifies it, so that it can be replaced later."""
    groups = _by_kernel(worst_first(row for row in rows if row.verdict not in _QUIET))
    quiet = _by_kernel([row for row in rows if row.verdict in _QUIET])
    blocks = [f"### cudareduce, {counts_text(rows)}", *([machine] if machine else [])]
    blocks += ["<br>\n".join(map(escaped, [told.title, *told.head]))]
    blocks += [_kernel(some, quiet.get(name, ()), told)
               for name, some in list(groups.items())[:_MOST_KERNELS]]  # fmt: skip
    left = list(groups)[_MOST_KERNELS:]
    if left:
        blocks.append(f"{len(left)} more kernels: {escaped(first_few(left, _FIRST_FEW))}")
    alone = [name for name in quiet if name not in groups]
    if alone:
        words = counts_text([row for name in alone for row in quiet[name]])
        blocks.append(f"Of other kernels {words} ({escaped(first_few(alone, _FIRST_FEW))})")
    if told.notes:
        listed = "\n".join(f"- {escaped(note)}" for note in told.notes)
        blocks.append(f"<details><summary>How it was measured</summary>\n\n{listed}\n\n</details>")
    return comment_of("\n\n".join(block.rstrip() for block in blocks) + "\n")


def _by_kernel(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(called(row.record), []).append(row)
    return found


def _kernel(rows: Sequence[Row], quiet: Sequence[Row], told: Told) -> str:
    """One kernel: changed rows, counts of the others, machine code, next command."""
    unit, name = "%ceil" if told.shares else "us", called(rows[0].record)
    table = tuple(
        (row.verdict, problem_text(row.record), *row_cells(row, told.shares))
        for row in rows[:_MOST_ROWS]
    )
    notes = [
        f"{counted(len(rows) - _MOST_ROWS, 'more row')}" if len(rows) > _MOST_ROWS else "",
        f"besides, {counts_text(quiet)}" if quiet else "",
        *dict.fromkeys(f"{row.verdict}: {why}" for row in rows if (why := reason_text(row))),
        "; ".join(filter(None, (_code_text(rows), *told.code.get(name, ())))),
    ]
    header = ("verdict", "what", f"old {unit}", f"new {unit}", "change")
    shown = tuple(filter(None, notes))
    text = to_markdown([Section(name, header, table, shown, 2)])
    return f"{text}\nnext: {code(_next(rows[0], told.against))}" if told.against else text


def _code_text(rows: Sequence[Row]) -> str:
    """Whether machine code and source text have changed."""
    pairs = [(row.old, row.new) for row in rows if row.old and row.new]
    if not pairs:
        return ""

    def differs(get: Callable[..., str | None]) -> bool | None:
        known = [(get(a), get(b)) for a, b in pairs if get(a) and get(b)]
        return any(a != b for a, b in known) if known else None

    code = differs(lambda record: record.cubin_sha)
    text = differs(lambda record: record.source_sha)
    if code is None:
        return ""
    if not code:
        return "machine code as it was"
    whose = {True: "another text", False: "the same text", None: "a text that is not known"}[text]
    shapes = {(a.block, a.items, a.grid) != (b.block, b.items, b.grid) for a, b in pairs}
    return f"other machine code, of {whose}" + (", launched otherwise" if True in shapes else "")


def _next(row: Row, against: Sequence[str]) -> str:
    """The command to run next for a row."""
    record = row.record
    name = record.engine or record.kernel
    if record.scope == "library":  # which is measured beside all kernels
        return shlex.join(["cudareduce", "check", *against])
    match row.verdict:
        case "WRONG" if record.ranks is not None:
            asked = ["collective", record.kernel, "--engine", name, "--ranks", str(record.ranks),
                     "--n", str(record.n), "--op", record.op, "--dtype", record.dtype]  # fmt: skip
        case verdict if verdict == "WRONG" or row.record.unbuilt:
            asked = ["verify", record.kernel, "--n", str(record.n), "--op", record.op,
                     "--dtype", record.dtype]  # fmt: skip
            asked += ["--map", record.map] if record.map else []
            asked += ["--rows", str(record.rows)] if record.rows != 1 else []
            asked += _folders(against)
        case "GONE":
            asked = ["check", *against, "--allow-gone"]
        case "UNCERTAIN":
            asked = ["check", name, *against, "--budget", "300"]
        case _:
            asked = ["check", name, *against]
    return shlex.join(["cudareduce", *asked])


def _folders(against: Sequence[str]) -> list[str]:
    """The `--kernels` options among these."""
    return [word for pair in pairwise(against) if pair[0] == "--kernels" for word in pair]


def rows_json(rows: Iterable[Row], ahead: Sequence[dict[str, Any]] = ()) -> str:
    """All rows as JSON objects in the order of the new run, after the objects `ahead`; changes in
    per cent."""
    return json.dumps([*ahead, *map(_plain, rows)], indent=1, allow_nan=False) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    record, change = row.record, row.change

    def per_cent(ratio: float | None) -> float | None:
        return None if ratio is None else 100 * (ratio - 1)

    return {
        "kernel": record.kernel,
        "op": record.op,
        "map": record.map,
        "dtype": record.dtype,
        "acc": record.acc,
        "n": record.n,
        "rows": record.rows,
        "block": record.block,
        "items": record.items,
        "timing": record.timing,
        "region": record.region,
        "pattern": record.pattern,
        "context": record.context,
        "offset": record.offset,
        "sms": record.sms,
        "source": record.source,
        "way": record.way,
        "chunk_bytes": record.chunk_bytes,
        "ranks": record.ranks,
        "engine": record.engine,
        "verdict": row.verdict,
        "reason": reason_text(row),
        "confirmed": row.confirmed,
        "same_code": row.same_code,
        "taken_out_pct": 100 * expm1(row.taken_out.moved) if row.taken_out else None,
        "time_us_old": row.old.time_us if row.old else None,
        "time_us_new": row.new.time_us if row.new else None,
        "change_pct": per_cent(change.ratio if change else None),
        "change_pct_low": per_cent(change.low if change else None),
        "change_pct_high": per_cent(change.high if change else None),
        "threshold_pct": None if row.threshold is None else 100 * row.threshold,
    }


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
        values.append(entry | {"extra": f"{row.verdict}: {sentence(row)}{rate}"})
    return json.dumps(values, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """The rows of a comparison with title, rules and notes. `against`: the options of `check` that
    compare again. `measured`: the measurement, if there was one. `cut`: why it ended early."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[Row, ...]
    rules: Rules
    notes: tuple[str, ...]
    against: tuple[str, ...] = ()
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    measured: Remeasured | None = None
    cut: Cut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledReport:
    """What was found before anything was timed; it is published first. `code` are notes on machine
    code by kernel."""

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
    judgement: ComparisonReport,
    judging: Judging,
    outputs: Outputs,
    registry: Registry,
    *,
    texts: Texts | None = None,
    quiet: bool = False,
    ahead: CompiledReport | None = None,
) -> int:
    """Publish the rows, with further `texts` for files; returns the exit code."""
    rows, policy = judgement.rows, Policy(judging.strict, judging.allow_gone)
    moved = machine(rows, judgement.rules)
    said = _all_notes(judgement)
    notes = (*power_notes(rows, judgement.rules), *said)
    sections = judged_sections(judgement, everything=judging.everything)
    told = findings(rows, policy, moved)
    around = Told(
        title=judgement.title, head=judgement.head, notes=notes, against=judgement.against,
        code=ahead.code if ahead else {}, shares=judgement.rules.shares,
    )  # fmt: skip
    sections = [*([ahead.section] if ahead else []), *sections]
    told = [*(ahead.findings if ahead else ()), *told]
    values = ahead.values if ahead else ()
    own: Texts = {
        "comment": lambda: comment(rows, around, machine_text(moved) if moved else ""),
        "benchmark_json": lambda: benchmark_series(rows),
        "junit": lambda: junit(told, "cudareduce"),
    }
    publish(
        outputs, sections, {**own, **(texts or {})},
        printed={"json": lambda: rows_json(rows, values)},
        commands=tell_ci(told, sections, registry.place),
    )  # fmt: skip
    if (outputs.piped or outputs.style) in ("json", "benchmark_json", "junit"):
        # these formats have no place for notes
        for note in (*([machine_text(moved)] if moved else []), *said):
            say(note, quiet)
    return exit_code(judgement, judging)


def _all_notes(judgement: ComparisonReport) -> tuple[str, ...]:
    """Why it ended early, notes, and remarks on the measurement."""
    measured, cut = judgement.measured, judgement.cut
    early = (f"cut short: {cut.why}; what is missing was not measured",) if cut else ()
    return (*early, *judgement.notes, *(measured.remarks if measured else ()))


def judged_sections(judgement: ComparisonReport, *, everything: bool) -> list[Section]:
    """The verdicts as tables; `everything` includes SAME rows."""
    rows, rules = judgement.rows, judgement.rules
    found = verdict_sections(
        rows, judgement.title, (*power_notes(rows, rules), *_all_notes(judgement)),
        shares=rules.shares, everything=everything, machine=machine(rows, rules),
    )  # fmt: skip
    return [replace(section, head=judgement.head) for section in found]


def exit_code(judgement: ComparisonReport, judging: Judging) -> int:
    """The exit code of the worst verdict, of a changed machine, or of an early end. Only the new
    side counts, since a change that repairs a kernel must pass."""
    policy = Policy(judging.strict, judging.allow_gone)
    moved = machine(judgement.rows, judgement.rules)
    if judgement.cut:
        return judgement.cut.exit_code
    codes = {policy.exit_code(judgement.rows, moved)} - {0}
    if judgement.measured is not None:
        codes |= verdict_codes(judgement.measured.new) - {3}  # what is wrong, the policy has judged
    return worst_exit_code(codes)
