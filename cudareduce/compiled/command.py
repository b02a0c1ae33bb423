"""`check --compile`: what nvcc makes of every kernel, gated on machines that have no GPU."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cudareduce.backend import NVCC_FLAGS
from cudareduce.compiled.compare import VERDICTS, UnitRow, compare_units, resources_text
from cudareduce.compiled.nvcc import find_nvcc
from cudareduce.compiled.sass import find_disassembler
from cudareduce.compiled.store import CompiledSet, Failed, Unit, load, to_json
from cudareduce.compiled.units import compile_all, left_out
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.library.registry import asked_for, load_registry
from cudareduce.progress import say
from cudareduce.report.ci import Finding, junit, tell_ci
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import Section
from cudareduce.results.provenance import tool
from cudareduce.results.store import check_writable, is_missing, write_text

#: Turing to Blackwell: the oldest that CUDA 13 compiles for, and the newest of each kind.
ARCHITECTURES = (75, 80, 90, 100, 120)
_NO_DISASSEMBLER = (
    "Instructions are not counted, for want of cuobjdump: pip install 'cudareduce[compile]'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """What `check --compile` takes; `arch` are compute capabilities without the point, None those
    of the baseline."""

    baseline: Path
    kernels: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    update_baseline: bool = False
    allow_gone: bool = False
    arch: tuple[int, ...] | None = None
    quiet: bool = False
    outputs: Outputs
    argv: tuple[str, ...] = ()


def check_compiled(request: CompileRequest) -> int:
    """Compile, compare with the baseline, hold against the rules, publish; the exit code. Raises
    UsageError, BaselineError and, without nvcc, EnvironmentProblem."""
    path, names = request.baseline, request.kernels
    old = _stored(request)
    registry = load_registry(request.folders)
    choices = registry.choose(names)
    nvcc, disassembler = find_nvcc(old.nvcc if old else None), find_disassembler()
    architectures = request.arch or (old.architectures if old else ARCHITECTURES)
    if request.update_baseline and old is not None:
        _refuse_to_forget(path, old, architectures, counting=disassembler is not None)
    compiled = compile_all(choices, architectures, nvcc, disassembler, request.quiet)
    made = CompiledSet(
        tool(request.argv), nvcc.version, NVCC_FLAGS,
        disassembler.version if disassembler else None, architectures, compiled.units,
    )  # fmt: skip
    before = [
        unit for unit in (old.units if old else ())
        if unit.arch in architectures and asked_for(unit.kernel, names, choices)
    ]  # fmt: skip
    other = _other_compiler(old, made) if old else None
    rows = compare_units(before, compiled.units, compiled.broken, compiled.failed, other)
    unseen = list(left_out(choices, architectures))
    if not compiled.units and not compiled.failed:
        raise UsageError("; ".join(["nothing was compiled", *unseen]))
    notes = [f"{other}, so only the rules were checked"] if other else []
    notes += [*unseen, *([] if disassembler else [_NO_DISASSEMBLER])]
    section = _section(rows, f"compiled by nvcc {nvcc.version} against {path.name}", notes)
    told = _findings(rows, request)
    publish(
        request.outputs, [section], {"junit": lambda: junit(told, "cudareduce")},
        printed={"json": lambda: _json(rows)}, commands=tell_ci(told, [section], registry.place),
    )  # fmt: skip
    codes = {2} if compiled.failed else set()
    codes |= {1} if any(_fails(row, request) for row in rows) else set()
    if request.update_baseline:
        return _update(path, made, codes, rows, request.quiet)
    return worst_exit_code(codes | ({5} if other else set()))


def _stored(request: CompileRequest) -> CompiledSet | None:
    """The baseline, if there is one, once it is sure that what is to be written can be."""
    request.outputs.check(request.baseline)
    if request.update_baseline:
        if request.kernels:
            raise UsageError("--update-baseline takes no kernels: a baseline is of all of them")
        check_writable(request.baseline)
    missing = request.update_baseline and is_missing(request.baseline)
    return None if missing else load(request.baseline)


def _other_compiler(old: CompiledSet, made: CompiledSet) -> str | None:
    """Why figures say nothing of the kernels: another nvcc made them, or the same differently."""
    if old.nvcc != made.nvcc:
        return f"The baseline is of nvcc {old.nvcc}, this is {made.nvcc}: figures do not compare"
    if old.flags != made.flags:
        flags = [" ".join(each.flags) or "no flags" for each in (old, made)]
        return f"The baseline was compiled with {flags[0]}, this {flags[1]}: figures do not compare"
    return None


def _refuse_to_forget(
    path: Path, old: CompiledSet, compiled: Sequence[int], counting: bool
) -> None:
    """A baseline is written whole: an architecture that --arch leaves out would go unseen, and so
    would instructions where there is nothing to count them with."""
    left_out = [f"sm_{arch}" for arch in old.architectures if arch not in compiled]
    if left_out:
        raise UsageError(
            f"{path} would lose {', '.join(left_out)}: leave --arch out or name all of them, or "
            "delete the file first"
        )
    if old.disassembler is not None and not counting:
        raise EnvironmentProblem(
            f"{path} would lose its counts of instructions, for want of cuobjdump or nvdisasm: "
            "pip install 'cudareduce[compile]', or delete the file first"
        )


def _fails(row: UnitRow, request: CompileRequest) -> bool:
    return row.verdict in ("BROKEN", "WORSE") or (row.verdict == "GONE" and not request.allow_gone)


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


def _findings(rows: Sequence[UnitRow], request: CompileRequest) -> list[Finding]:
    """One for each unit, but one for all units that an error kept from being compiled."""
    failed = [row for row in rows if isinstance(row.unit, Failed)]
    others = [[row] for row in _worst_first(rows) if not isinstance(row.unit, Failed)]
    return [
        Finding(
            row.unit.kernel, _what(group), row.verdict, "; ".join(row.reasons) or "as it was",
            "failed" if _fails(row, request)
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
    quiet: bool,
) -> int:
    """Write the new baseline, unless it would hold a broken rule."""
    if 2 in codes or any(row.verdict == "BROKEN" for row in rows):
        say(f"{path} is left as it was: mend what is broken first")
        return worst_exit_code(codes)
    write_text(path, to_json(made))
    say(f"{path} now holds what was compiled here", quiet)
    return 0
