"""`check --compile`: what nvcc makes of every kernel, gated on machines that have no GPU."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cudareduce.compiled.compare import VERDICTS, UnitRow, compare_units, resources_text
from cudareduce.compiled.nvcc import FLAGS, find_nvcc
from cudareduce.compiled.sass import find_disassembler
from cudareduce.compiled.store import CompiledSet, Failed, Unit, load, to_json
from cudareduce.compiled.units import compile_all, left_out
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.gate.rerun import asked_for
from cudareduce.library.registry import load_registry
from cudareduce.progress import say
from cudareduce.report.ci import Finding
from cudareduce.report.publish import publish
from cudareduce.report.sections import Section
from cudareduce.results.provenance import tool
from cudareduce.results.store import check_outputs, check_writable, is_missing, write_text

#: Turing to Blackwell: the oldest that CUDA 13 compiles for, and the newest of each kind.
ARCHITECTURES = (75, 80, 90, 100, 120)
_NO_DISASSEMBLER = (
    "Instructions are not counted, for want of cuobjdump: pip install 'cudareduce[compile]'"
)


def run_compile_check(names: Sequence[str], options: Mapping[str, Any]) -> int:
    """Compile, compare with the baseline, hold against the rules, publish."""
    path: Path = options["baseline"]
    check_outputs(options, path)
    updating = options["update_baseline"]
    if updating:
        if names:
            raise UsageError("--update-baseline takes no kernels: a baseline is of all of them")
        check_writable(path)
    old = None if updating and is_missing(path) else load(path)
    registry = load_registry(options["folders"])
    choices = registry.choose(names)
    nvcc, disassembler = find_nvcc(old.nvcc if old else None), find_disassembler()
    architectures = options["arch"] or (old.architectures if old else ARCHITECTURES)
    if updating and old is not None:
        _refuse_to_forget(path, old.architectures, architectures)
    units, broken, failures = compile_all(
        choices, architectures, nvcc, disassembler, options["quiet"]
    )
    made = CompiledSet(
        tool(options["argv"]), nvcc.version, FLAGS,
        disassembler.version if disassembler else None, architectures, tuple(units),
    )  # fmt: skip
    before = [
        unit for unit in (old.units if old else ())
        if unit.arch in architectures and asked_for(unit.kernel, names, choices)
    ]  # fmt: skip
    other = _other_compiler(old, made) if old else None
    rows = compare_units(before, units, broken, failures, other)
    unseen = list(left_out(choices, architectures))
    if not units and not failures:
        raise UsageError("; ".join(["nothing was compiled", *unseen]))
    notes = [f"{other}, so only the rules were checked"] if other else []
    notes += unseen
    notes += [] if disassembler else [_NO_DISASSEMBLER]
    found = _section(rows, f"compiled by nvcc {nvcc.version} against {path.name}", notes)
    publish([found], _findings(rows, options), lambda: _json(rows), registry, options)
    codes = {2} if failures else set()
    codes |= {1} if any(_fails(row, options) for row in rows) else set()
    if updating:
        return _update(path, made, codes, rows, options)
    return worst_exit_code(codes | ({5} if other else set()))


def _other_compiler(old: CompiledSet, made: CompiledSet) -> str | None:
    """Why figures say nothing of the kernels: another nvcc made them, or the same differently."""
    if old.nvcc != made.nvcc:
        return f"The baseline is of nvcc {old.nvcc}, this is {made.nvcc}: figures do not compare"
    if old.flags != made.flags:
        flags = [" ".join(each.flags) or "no flags" for each in (old, made)]
        return f"The baseline was compiled with {flags[0]}, this {flags[1]}: figures do not compare"
    return None


def _refuse_to_forget(path: Path, stored: Sequence[int], compiled: Sequence[int]) -> None:
    """A baseline is written whole: an architecture that --arch leaves out would go unseen."""
    left_out = [f"sm_{arch}" for arch in stored if arch not in compiled]
    if left_out:
        raise UsageError(
            f"{path} would lose {', '.join(left_out)}: leave --arch out or name all of them, or "
            "delete the file first"
        )


def _fails(row: UnitRow, options: Mapping[str, Any]) -> bool:
    return row.verdict in ("BROKEN", "WORSE") or (
        row.verdict == "GONE" and not options["allow_gone"]
    )


def _what(rows: Sequence[UnitRow]) -> str:
    """What rows with one story are of; a stage is named where it is the only one."""
    unit = rows[0].unit
    stages = {row.unit.stage for row in rows} - {"only"}
    stage = f" {stages.pop()}" if len(stages) == 1 else ""
    architectures = ",".join(dict.fromkeys(str(row.unit.arch) for row in rows))
    return f"{unit.op} {unit.dtype}{stage} sm_{architectures}"


def _section(rows: Sequence[UnitRow], title: str, notes: Sequence[str]) -> Section:
    """What is not the same, worst first, architectures with one story in one line; why all are
    UNCERTAIN is told in the notes."""
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    table, reasons = [], []
    for group in _stories([row for row in rows if row.verdict not in ("SAME", "UNCERTAIN")]):
        first, what = group[0], _what(group)
        units = [row.unit for row in group if isinstance(row.unit, Unit)]
        most = max((unit.resources for unit in units), key=lambda r: r.registers, default=None)
        table.append((first.verdict, first.unit.kernel, what, resources_text(most)))
        if first.reasons:
            why = "; ".join(first.reasons)
            reasons.append(f"{first.unit.kernel} {what}: {first.verdict}: {why}")
    header = ("verdict", "kernel", "what", "takes at most")
    summary = f"{len(rows)} compared: {told or 'nothing'}"
    return Section(title, header, tuple(table), (summary, *reasons, *notes), 4)


def _stories(rows: Sequence[UnitRow]) -> list[list[UnitRow]]:
    """Rows that say the same of one kernel, worst first; an error is one, whatever the stage."""
    stories: dict[tuple[object, ...], list[UnitRow]] = {}
    for row in _worst_first(rows):
        stage = None if isinstance(row.unit, Failed) else row.unit.stage
        story = row.verdict, row.unit.kernel, stage, row.reasons
        stories.setdefault(story, []).append(row)
    return list(stories.values())


def _worst_first(rows: Sequence[UnitRow]) -> list[UnitRow]:
    return sorted(rows, key=lambda row: VERDICTS.index(row.verdict))


def _findings(rows: Sequence[UnitRow], options: Mapping[str, Any]) -> list[Finding]:
    """One for each unit, but one for all units that an error kept from being compiled."""
    failed = [row for row in rows if isinstance(row.unit, Failed)]
    others = [[row] for row in _worst_first(rows) if not isinstance(row.unit, Failed)]
    return [
        Finding(
            row.unit.kernel, _what(group), row.verdict, "; ".join(row.reasons) or "as it was",
            "failed" if _fails(row, options)
            else "skipped" if row.verdict in ("GONE", "UNCERTAIN") else "passed",
        )
        for group in [*_stories(failed), *others] for row in group[:1]
    ]  # fmt: skip


def _json(rows: Sequence[UnitRow]) -> str:
    values = [
        asdict(row.unit) | {"verdict": row.verdict, "reasons": list(row.reasons)} for row in rows
    ]
    return json.dumps(values, indent=1) + "\n"


def _update(
    path: Path,
    made: CompiledSet,
    codes: set[int],
    rows: Sequence[UnitRow],
    options: Mapping[str, Any],
) -> int:
    """Write the new baseline, unless it would hold a broken rule."""
    if 2 in codes or any(row.verdict == "BROKEN" for row in rows):
        say(f"{path} is left as it was: mend what is broken first")
        return worst_exit_code(codes)
    write_text(path, to_json(made))
    say(f"{path} now holds what was compiled here", options["quiet"])
    return 0
