"""From two sides to a judgement: the rules that fit their machines, and its publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudareduce.bench.command import verdict_codes
from cudareduce.errors import BaselineError, worst_exit_code
from cudareduce.gate.bencher import Cut, Remeasured
from cudareduce.gate.comment import Told, comment
from cudareduce.gate.compare import Row, Rules, machine
from cudareduce.gate.exported import benchmark_series, rows_json
from cudareduce.gate.fingerprint import match
from cudareduce.gate.notes import power_notes
from cudareduce.gate.policy import Policy
from cudareduce.gate.request import Judging
from cudareduce.gate.thresholds import Thresholds
from cudareduce.gate.verdicts import findings, machine_text, verdict_sections
from cudareduce.library.registry import Registry
from cudareduce.progress import say
from cudareduce.report.ci import Finding, junit, tell_ci
from cudareduce.report.publish import Outputs, Texts, publish
from cudareduce.report.section import Section
from cudareduce.results.record import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Rows with their verdicts, by which rules, and what to say above them and besides;
    `against` are the options of `check` that compare so again, `code` what is known of kernels'
    machine code, in words. What was measured for them, if
    anything was, and why it ended early, if it did."""

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
class Ahead:
    """What was found before anything was timed, to be published in front of it; `code` is what is
    known of a kernel's machine code, in words."""

    section: Section
    findings: tuple[Finding, ...]
    values: tuple[dict[str, Any], ...]
    code: Mapping[str, Sequence[str]]


def rules_between(
    old: Run, new: Run, thresholds: Thresholds, judging: Judging
) -> tuple[Rules, list[str]]:
    """How to compare two runs, and what to say of their machines; BaselineError if they are other
    machines and were not to be compared across."""
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


def publish_judgement(
    judgement: Judgement,
    judging: Judging,
    outputs: Outputs,
    registry: Registry,
    *,
    texts: Texts | None = None,
    quiet: bool = False,
    ahead: Ahead | None = None,
) -> int:
    """Publish verdicts, with further `texts` for files; the exit code of what was timed."""
    rows, policy = judgement.rows, Policy(judging.strict, judging.allow_gone)
    moved = machine(rows, judgement.rules)
    said = _said(judgement)
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
        # which have no place for what holds for all rows
        for note in (*([machine_text(moved)] if moved else []), *said):
            say(note, quiet)
    return exit_code(judgement, judging)


def _said(judgement: Judgement) -> tuple[str, ...]:
    """What is to be known besides: why it ended early, notes, remarks on the measurement."""
    measured, cut = judgement.measured, judgement.cut
    early = (f"cut short: {cut.why}; what is missing was not measured",) if cut else ()
    return (*early, *judgement.notes, *(measured.remarks if measured else ()))


def judged_sections(judgement: Judgement, *, everything: bool) -> list[Section]:
    """Verdicts as tables; `everything` shows what is the SAME, too."""
    rows, rules = judgement.rows, judgement.rules
    found = verdict_sections(
        rows, judgement.title, (*power_notes(rows, rules), *_said(judgement)),
        shares=rules.shares, everything=everything, machine=machine(rows, rules),
    )  # fmt: skip
    return [replace(section, head=judgement.head) for section in found]


def exit_code(judgement: Judgement, judging: Judging) -> int:
    """That of the worst verdict, of a machine that has changed, or of what ended it early; of the
    new side alone, since a change that mends a kernel must be able to pass."""
    policy = Policy(judging.strict, judging.allow_gone)
    moved = machine(judgement.rows, judgement.rules)
    if judgement.cut:
        return judgement.cut.exit_code
    codes = {policy.exit_code(judgement.rows, moved)} - {0}
    if judgement.measured is not None:
        codes |= verdict_codes(judgement.measured.new) - {3}  # what is wrong, the policy has judged
    return worst_exit_code(codes)
