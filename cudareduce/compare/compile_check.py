"""`check --compile`: compile every kernel, compare with a baseline, report; without a GPU."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudareduce.backends.selection import choose_backend, default_cache, why_unusable
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import Choice, Registry, is_requested, load_registry
from cudareduce.compare.check import check_trees
from cudareduce.compare.machine_code import Disassembler, find_disassembler
from cudareduce.compare.nvcc import (
    SAMPLED,
    Job,
    Nvcc,
    compile_all,
    find_nvcc,
    jobs,
    main_reduction,
    omitted,
    sample_of,
)
from cudareduce.compare.report import CompiledReport
from cudareduce.compare.request import CheckRequest
from cudareduce.compare.traffic import count_traffic
from cudareduce.compare.trees import Trees, head_choices, open_trees
from cudareduce.compare.unit_verdicts import VERDICTS, UnitRow, compare_units, resources_text
from cudareduce.compare.units import (
    CompiledSet,
    Failed,
    Side,
    Unit,
    load,
    to_json,
    unit_values,
)
from cudareduce.cuda_source import NVCC_FLAGS
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.launch.case import Case
from cudareduce.progress import say
from cudareduce.report.ci import Finding, comment_of, publish_findings
from cudareduce.report.markdown import to_markdown
from cudareduce.report.publish import Outputs
from cudareduce.report.section import Section
from cudareduce.results.provenance import tool
from cudareduce.results.store import check_writable, is_missing, write_text
from cudareduce.text import group_by

#: Turing to Blackwell: the oldest that CUDA 13 supports, and the newest of each generation.
ARCHITECTURES = (75, 80, 90, 100, 120)


@dataclass(frozen=True, slots=True)
class Tools:
    """The compiler, and the disassembler if there is one."""

    nvcc: Nvcc
    disassembler: Disassembler | None

    @property
    def notes(self) -> tuple[str, ...]:
        if self.disassembler:
            return ()
        return ("cuobjdump not found; machine code is not compared. Install: "
                "pip install 'cudareduce[compile]'",)  # fmt: skip


def find_tools(nvcc: str | None = None) -> Tools:
    """The nvcc of this version, else the first found. Raises EnvironmentProblem without one."""
    return Tools(find_nvcc(nvcc), find_disassembler())


def check_compiled(request: CheckRequest) -> int:
    """Compile, compare with the baseline, check the rules, report; returns the exit code. Raises
    UsageError, BaselineError, and EnvironmentProblem without nvcc."""
    path = request.baseline
    assert path is not None
    stored = _stored(request, path)
    registry = load_registry(request.folders)
    choices = registry.choose(request.kernels)
    kernels = [choice.kernel for choice in choices]
    tools = find_tools(stored.nvcc if stored else None)
    architectures = request.arch or (stored.architectures if stored else ARCHITECTURES)
    if request.update_baseline and stored is not None:
        dropped = [u for u in stored.units if not is_requested(u.kernel, request.kernels, choices)]
        if dropped:
            raise UsageError(
                f"--update-baseline would drop {dropped[0].kernel}: name no kernels, or all of the "
                "baseline's"
            )
        _refuse_incomplete_baseline(path, stored, architectures, tools)

    sample = sample_of(stored.architectures if stored else architectures)
    todo = jobs(kernels, architectures, sample)
    new = compile_all(todo, tools.nvcc, tools.disassembler, request.quiet)
    unseen = list(omitted(kernels, architectures))
    if not new.units and not new.failed:
        raise UsageError("; ".join(["nothing was compiled", *unseen]))
    old, other = Side(), _other_compiler(stored, tools) if stored else None
    if stored:
        units = [
            unit for unit in stored.units
            if unit.arch in architectures and is_requested(unit.kernel, request.kernels, choices)
        ]  # fmt: skip
        old = Side(units=units, traffic=stored.traffic)

    which = {k.id for k in kernels} if request.update_baseline else changed_kernels(
        compare_units(old, new, other)
    )  # fmt: skip
    new, uncounted = with_traffic(new, kernels, which, request.quiet)
    rows = compare_units(old, new, other)
    notes = [f"{other}, so only rules and memory accesses were checked"] if other else []
    title = f"compiled by nvcc {tools.nvcc.version} against {path.name}"
    undecided = [] if request.update_baseline else undecided_notes(rows)
    allow_gone = request.judging.allow_gone
    codes = exit_codes(rows, undecided, allow_gone=allow_gone)
    notes = [*undecided, *notes, *unseen, *uncounted, *tools.notes]
    report = compiled_report(rows, title, notes, allow_gone=allow_gone)
    publish_compiled(report, request.outputs, registry, undecided)
    if not request.update_baseline:
        return worst_exit_code(codes | ({5} if other else set()))
    compiled = CompiledSet(
        tool(request.argv), tools.nvcc.version, NVCC_FLAGS,
        tools.disassembler.version if tools.disassembler else None, tuple(architectures),
        tuple(new.units), tuple(new.traffic),
    )  # fmt: skip
    lost = bool(stored and stored.traffic and not new.traffic)
    return _update(request, path, compiled, codes, rows, lost)


#: The number of kernels in the control group.
CONTROLS = 5


def check_compiled_trees(request: CheckRequest) -> int:
    """Compile both trees, compare, and time what changed if there is a GPU; returns the exit code.
    Raises UsageError, and EnvironmentProblem without nvcc."""
    allow_gone = request.judging.allow_gone
    request.outputs.check(*request.judging.read)
    registry, tools = load_registry(request.folders), find_tools()
    with open_trees(request, registry) as trees:
        rows, unchanged, notes = _compile_trees(trees, request, tools)
        undecided = [] if unchanged else undecided_notes(rows)
        codes = exit_codes(rows, undecided, allow_gone=allow_gone)
        fewer = _kernels_to_time(trees, rows, head_choices(request, (), registry))
        why = (
            "fix the kernels that do not compile" if 2 in codes else _why_not_timed(request, fewer)
        )
        title = f"compiled by nvcc {tools.nvcc.version} against {request.base}"
        notes = [*trees.problems, *notes]
        if why:
            notes = [*undecided, *notes, f"Nothing is timed: {why}"]
        report = compiled_report(rows, title, notes, allow_gone=allow_gone)
        if why:
            publish_compiled(report, request.outputs, registry, undecided)
            return worst_exit_code(codes)
        return worst_exit_code((codes | {check_trees(request, fewer, registry, report)}) - {0})


def _compile_trees(
    trees: Trees, request: CheckRequest, tools: Tools
) -> tuple[list[UnitRow], bool, list[str]]:
    """The compiled units of two trees whose texts differ, whether any kernel has the same text in
    both, and notes; equal texts are not compiled. Raises UsageError without anything to compile."""
    quiet, architectures = request.quiet, request.arch or ARCHITECTURES
    new = list(dict.fromkeys(choice.kernel for choice in trees.choices))
    ids = {kernel.id for kernel in new}
    old = [k for k in trees.base.values() if k.id in ids or is_requested(k.id, request.kernels, ())]
    todo = [jobs(side, architectures, sample_of(architectures)) for side in (old, new)]
    left = list(omitted(new, architectures))
    if not any(todo):
        raise UsageError("; ".join(["nothing was compiled", *left]))
    known = {job.key: _text(job) for job in todo[0]}
    same = {job.key for job in todo[1] if known.get(job.key) == _text(job)}
    before, after = (
        compile_all(
            [job for job in side if job.key not in same], tools.nvcc, tools.disassembler, quiet
        )
        for side in todo
    )
    changed = changed_kernels(compare_units(before, after))
    before, uncounted_before = with_traffic(before, old, changed, quiet)
    after, uncounted = with_traffic(after, new, changed, quiet)
    rows = compare_units(before, after)
    unchanged = {key[0] for key in same} - {row.unit.kernel for row in rows}
    compiled = {job.kernel.id for job in todo[1]}
    text = f"{len(unchanged)} of {len(compiled)} kernels have the same text in both trees"
    return (
        rows,
        bool(same),
        list(dict.fromkeys([text, *left, *uncounted_before, *uncounted, *tools.notes])),
    )


def _text(job: Job) -> str:
    """The source text of a job, without the path of its file."""
    return job.source.text.replace(str(job.kernel.path), "")


def _kernels_to_time(trees: Trees, rows: Sequence[UnitRow], every: Sequence[Choice]) -> Trees:
    """The trees restricted to kernels whose machine code differs and, as a control group, some with
    equal text."""
    changed = {row.unit.kernel for row in rows if row.verdict not in ("SAME", "RENAMED")}
    if not changed:
        return replace(trees, choices=(), base={})
    same = [c for c in every if c.kernel.id not in changed and _is_unchanged(c.kernel, trees.base)]
    controls = same[:: max(1, len(same) // CONTROLS)]
    names = changed | {choice.kernel.id for choice in controls}
    return replace(
        trees,
        choices=(*(c for c in trees.choices if c.kernel.id in changed), *controls),
        base={name: kernel for name, kernel in trees.base.items() if name in names},
    )


def _is_unchanged(kernel: Kernel, base: Mapping[str, Kernel]) -> bool:
    """Whether a kernel compiles from the same text in the baseline tree."""
    if kernel.id not in base:
        return False
    head_texts, base_texts = ([_text(job) for job in jobs([k], (SAMPLED,), None)]
                    for k in (kernel, base[kernel.id]))  # fmt: skip
    return bool(head_texts) and head_texts == base_texts


def _why_not_timed(request: CheckRequest, trees: Trees) -> str | None:
    """Why no kernel is timed: equal machine code, or no GPU. None if kernels are timed."""
    if not trees.choices:
        return "both trees compile to the same machine code"
    try:
        choose_backend("cuda", request.device, not request.no_cache)
    except EnvironmentProblem as error:
        return str(error)
    return None


def _stored(request: CheckRequest, path: Path) -> CompiledSet | None:
    """Load the baseline; None if --update-baseline will create it. Raises UsageError if an output
    cannot be written."""
    request.outputs.check(path)
    if request.update_baseline:
        check_writable(path)
    missing = request.update_baseline and is_missing(path)
    return None if missing else load(path)


def _other_compiler(old: CompiledSet, tools: Tools) -> str | None:
    """Why machine code cannot be compared: another nvcc, or other flags."""
    if old.nvcc != tools.nvcc.version:
        return (
            f"The baseline is of nvcc {old.nvcc}, this is {tools.nvcc.version}: figures do not "
            "compare"
        )
    if old.flags != NVCC_FLAGS:
        flags = [" ".join(each) or "no flags" for each in (old.flags, NVCC_FLAGS)]
        return f"The baseline was compiled with {flags[0]}, this {flags[1]}: figures do not compare"
    return None


def _refuse_incomplete_baseline(
    path: Path, old: CompiledSet, compiled: Sequence[int], tools: Tools
) -> None:
    """Raise an error if a new baseline would lack an architecture or the machine code of the old
    one."""
    forgotten = [f"sm_{arch}" for arch in old.architectures if arch not in compiled]
    if forgotten:
        raise UsageError(
            f"{path} would lose {', '.join(forgotten)}: leave --arch out or name all of them, or "
            "delete the file first"
        )
    if old.disassembler is not None and tools.disassembler is None:
        raise EnvironmentProblem(
            f"{path} would lose its counts of instructions, since cuobjdump or nvdisasm is "
            "missing: pip install 'cudareduce[compile]', or delete the file first"
        )


def _update(
    request: CheckRequest, path: Path, compiled: CompiledSet, codes: set[int],
    rows: Sequence[UnitRow], lost: bool,
) -> int:  # fmt: skip
    """Write the new baseline, unless a rule is broken or a kernel missing. Raises
    EnvironmentProblem if memory traffic would be `lost`."""
    if 2 in codes or any(row.verdict == "BROKEN" for row in rows):
        say(f"{path} is unchanged: fix the kernels marked BROKEN first")
        return worst_exit_code(codes)
    gone = next((row.unit.kernel for row in rows if row.verdict == "GONE"), None)
    if gone and not request.judging.allow_gone:
        say(f"{path} is unchanged: {gone} is gone; --allow-gone drops it from the baseline")
        return worst_exit_code(codes)
    if lost:
        raise EnvironmentProblem(
            f"{path} would lose its counts of memory accesses: install g++, or delete the file "
            "first"
        )
    write_text(path, to_json(compiled))
    say(f"wrote the new baseline to {path}", request.quiet)
    return 0


def changed_kernels(rows: Sequence[UnitRow]) -> set[str]:
    """The kernels that compile and whose machine code has changed, so that memory traffic may
    differ."""
    verdicts = ("BROKEN", "WORSE", "UNCERTAIN", "CHANGED", "BETTER")
    return {
        row.unit.kernel for row in rows
        if row.verdict in verdicts and not isinstance(row.new, Failed)
    }  # fmt: skip


def with_traffic(
    side: Side, kernels: Sequence[Kernel], which: Collection[str], quiet: bool
) -> tuple[Side, tuple[str, ...]]:
    """The side with the memory traffic of its kernels named in `which`, and notes on those that
    could not be counted."""
    cases = [
        Case(kernel, reduction, kernel.block, kernel.items_of(reduction.dtype.size))
        for kernel in dict.fromkeys(kernels)
        if kernel.id in which and (reduction := main_reduction(kernel))
    ]
    if not cases:
        return side, ()
    cache = default_cache()
    try:
        counted = count_traffic(cases, None if why_unusable(cache) else cache, quiet)
    except EnvironmentProblem as error:
        return side, (f"Memory accesses are not counted: {error}",)
    return replace(side, traffic=counted.traffic), counted.notes


def compiled_report(
    rows: Sequence[UnitRow], title: str, notes: Sequence[str], *, allow_gone: bool
) -> CompiledReport:
    """The table, findings and JSON values of a comparison of compiled kernels."""
    worst = [group[0] for group in _by_cause([row for row in rows if row.text])]
    return CompiledReport(
        section=compiled_section(rows, title, notes),
        findings=tuple(compiled_findings(rows, allow_gone=allow_gone)),
        values=tuple(compiled_values(rows)),
        code={row.unit.kernel: [row.text] for row in reversed(worst)},
    )


def publish_compiled(
    report: CompiledReport, outputs: Outputs, registry: Registry, undecided: Sequence[str]
) -> None:
    """Print and write a report without times. `undecided` are notes on why no kernel was judged."""
    publish_findings(
        outputs, [report.section], report.findings,
        {"comment": lambda: comment_of(to_markdown([report.section])),
         "benchmark_json": lambda: "[]\n"},  # nothing was timed
        printed={"json": lambda: json.dumps(report.values, indent=1) + "\n"},
        places=registry.place, notes=undecided,
    )  # fmt: skip


def exit_codes(rows: Sequence[UnitRow], undecided: Sequence[str], *, allow_gone: bool) -> set[int]:
    """The exit codes of a comparison: 2 if a kernel does not compile, 1 if a row fails, 4 if
    nothing was decided."""
    codes = {2} if any(isinstance(row.new, Failed) for row in rows) else set()
    codes |= {4} if undecided else set()
    return codes | ({1} if any(_fails(row, allow_gone) for row in rows) else set())


def undecided_notes(rows: Sequence[UnitRow]) -> list[str]:
    """A note if no unit has a verdict on its machine code, with the reason."""
    if not rows or not all(row.verdict in ("UNCERTAIN", "GONE", "NEW") for row in rows):
        return []
    if all(row.verdict == "NEW" for row in rows):
        why = "the baseline has none of these kernels; compare with one that has them"
    else:
        why = "no kernel has a verdict on its machine code; write a new --baseline"
    return [f"Nothing was decided: {why}."]


def _fails(row: UnitRow, allow_gone: bool) -> bool:
    return row.verdict in ("BROKEN", "WORSE") or (row.verdict == "GONE" and not allow_gone)


def compiled_section(rows: Sequence[UnitRow], title: str, notes: Sequence[str]) -> Section:
    """The table of changed rows, worst first, one line per kernel and cause."""
    counts = Counter(row.verdict for row in rows)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    table, reasons = [], []
    for group in _by_cause([row for row in rows if row.verdict not in ("SAME", "UNCERTAIN")]):
        first = group[0]
        units = [row.unit for row in group if isinstance(row.unit, Unit)]
        most = max((unit.resources for unit in units), key=lambda r: r.registers, default=None)
        table.append((first.verdict, first.unit.kernel, _group_text(group), resources_text(most)))
        if first.text:
            # Names the unit that the figures are of, if those of the others differ.
            unit, differ = first.unit, len({row.text for row in group}) > 1
            where = f", {unit.op} {unit.dtype} on sm_{unit.arch}" if differ else ""
            reasons.append(f"{first.verdict}: {unit.kernel}{where}: {first.text}")
    summary = f"{len(rows)} compared: {verdicts or 'nothing'}"
    header = ("verdict", "kernel", "what", "takes at most")
    return Section(title, header, tuple(table), (summary, *reasons, *notes), 4)


def compiled_findings(rows: Sequence[UnitRow], *, allow_gone: bool) -> list[Finding]:
    """Findings for a CI service: one per unit, but one for all units of a kernel that does not
    compile."""
    failed = [row for row in rows if isinstance(row.unit, Failed)]
    others = [[row] for row in _worst_first(rows) if not isinstance(row.unit, Failed)]
    return [
        Finding(
            row.unit.kernel, _group_text(group), row.verdict, row.text or "unchanged",
            "failed" if _fails(row, allow_gone)
            else "skipped" if row.verdict in ("GONE", "UNCERTAIN") else "passed",
        )
        for group in [*_by_cause(failed), *others] for row in group[:1]
    ]  # fmt: skip


def compiled_values(rows: Sequence[UnitRow]) -> list[dict[str, Any]]:
    """Units with verdicts as JSON values: `causes` of the verdict, `reasons` all differences."""
    return [
        unit_values(row.unit)
        | {"verdict": row.verdict, "causes": list(row.causes),
           "reasons": [*row.causes, *row.reasons]}
        for row in rows
    ]  # fmt: skip


def _by_cause(rows: Sequence[UnitRow]) -> list[list[UnitRow]]:
    """Rows grouped by verdict, kernel and causes, the worst verdict first."""

    def key(row: UnitRow) -> tuple[object, ...]:
        why = row.names or (row.causes if isinstance(row.unit, Failed) else ())
        return row.verdict, row.unit.kernel, why

    return list(group_by(_worst_first(rows), key).values())


def _worst_first(rows: Sequence[UnitRow]) -> list[UnitRow]:
    return sorted(rows, key=lambda row: VERDICTS.index(row.verdict))


def _group_text(rows: Sequence[UnitRow]) -> str:
    """Operator, type and architectures of rows with one cause, as text: `sum float32 sm_80,90`. A
    stage is named if it is the only one."""
    (op, dtype), *others = dict.fromkeys((row.unit.op, row.unit.dtype) for row in rows)
    stages = {row.unit.stage for row in rows} - {"only"}
    stage = f" {stages.pop()}" if len(stages) == 1 else ""
    archs = [row.unit.arch for row in rows if (row.unit.op, row.unit.dtype) == (op, dtype)]
    text = f"{op} {dtype}{stage} sm_{','.join(map(str, dict.fromkeys(archs)))}"
    if not others:
        return text
    return f"{text}; {len(others)} more" if len(others) > 1 else f"{text}; {' '.join(others[0])}"
