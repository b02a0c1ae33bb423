"""`check --compile --base`: compiles two trees with nvcc and times the kernels that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudareduce.backends import choose_backend
from cudareduce.compare.command import time_trees
from cudareduce.compare.compiled import (
    ARCHITECTURES,
    Tools,
    compiled_findings,
    compiled_section,
    compiled_values,
    compiled_words,
    exit_codes,
    find_tools,
    moved,
    publish_rows,
    with_traffic,
)
from cudareduce.compare.compiled_units import UnitRow, compare_units
from cudareduce.compare.measure import base_choices
from cudareduce.compare.nvcc import SAMPLED, Job, compile_all, jobs, left_out, sample_of
from cudareduce.compare.report import CompiledReport
from cudareduce.compare.request import BaseRequest, CompiledTreesRequest
from cudareduce.compare.trees import Trees, opened_trees
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, asked_for, load_registry

#: The number of kernels in the control group.
CONTROLS = 5


def check_compiled_trees(request: CompiledTreesRequest) -> int:
    """Compile both trees, compare, and time what changed if there is a GPU; returns the exit code.
    Raises UsageError, and EnvironmentProblem without nvcc."""
    timed, allow_gone = request.timed, request.timed.judging.allow_gone
    timed.outputs.check(*timed.judging.read)
    registry, tools = load_registry(timed.remeasuring.folders), find_tools()
    with opened_trees(timed, registry) as trees:
        rows, notes = _compile_trees(trees, request, tools)
        codes = exit_codes(rows, allow_gone=allow_gone)
        fewer = _worth_timing(trees, rows, base_choices((), trees.heads, registry))
        why = "fix the kernels that do not compile" if 2 in codes else _why_not_timed(timed, fewer)
        title = f"compiled by nvcc {tools.nvcc.version} against {timed.base}"
        notes = [*trees.problems, *notes, *([f"Nothing is timed: {why}"] if why else [])]
        if why:
            publish_rows(rows, title, notes, timed.outputs, registry, allow_gone=allow_gone)
            return worst_exit_code(codes)
        ahead = CompiledReport(
            section=compiled_section(rows, title, notes),
            findings=tuple(compiled_findings(rows, allow_gone=allow_gone)),
            values=tuple(compiled_values(rows)),
            code=compiled_words(rows),
        )
        return worst_exit_code((codes | {time_trees(timed, fewer, registry, ahead)}) - {0})


def _compile_trees(
    trees: Trees, request: CompiledTreesRequest, tools: Tools
) -> tuple[list[UnitRow], list[str]]:
    """The compiled units of two trees whose texts differ, and notes; equal texts are not compiled.
    Raises UsageError if there is nothing to compile."""
    names, quiet = request.timed.remeasuring.kernels, request.timed.remeasuring.quiet
    architectures = request.arch or ARCHITECTURES
    new = list(dict.fromkeys(choice.kernel for choice in trees.choices))
    ids = {kernel.id for kernel in new}
    old = [k for k in trees.base.values() if k.id in ids or asked_for(k.id, names, ())]
    todo = [jobs(side, architectures, sample_of(architectures)) for side in (old, new)]
    left = list(left_out(new, architectures))
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
    changed = moved(compare_units(before, after))
    before, uncounted_before = with_traffic(before, old, changed, quiet)
    after, uncounted = with_traffic(after, new, changed, quiet)
    rows = compare_units(before, after)
    unchanged = {key[0] for key in same} - {row.unit.kernel for row in rows}
    compiled = {job.kernel.id for job in todo[1]}
    text = f"{len(unchanged)} of {len(compiled)} kernels have the same text in both trees"
    return rows, list(dict.fromkeys([text, *left, *uncounted_before, *uncounted, *tools.notes]))


def _text(job: Job) -> str:
    """The text to compile, without its path."""
    return job.source.text.replace(str(job.kernel.path), "")


def _worth_timing(trees: Trees, rows: Sequence[UnitRow], every: Sequence[Choice]) -> Trees:
    """The kernels whose machine code differs and, as a control group, some with the same text."""
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
    """Whether the base has the same text."""
    if kernel.id not in base:
        return False
    mine, theirs = ([_text(job) for job in jobs([k], (SAMPLED,), None)]
                    for k in (kernel, base[kernel.id]))  # fmt: skip
    return bool(mine) and mine == theirs


def _why_not_timed(request: BaseRequest, trees: Trees) -> str | None:
    """Why nothing is timed; None if something is."""
    if not trees.choices:
        return "both trees compile to the same machine code"
    try:
        choose_backend("cuda", request.remeasuring.device, not request.remeasuring.no_cache)
    except EnvironmentProblem as error:
        return str(error)
    return None
