"""`check --compile`: what nvcc makes of every kernel, gated on machines that have no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.compiled.compare import Side, UnitRow, compare_units
from cudareduce.compiled.sides import (
    Tools,
    compiled_side,
    find_tools,
    moved,
    publish_rows,
    with_traffic,
)
from cudareduce.compiled.store import CompiledSet, load, to_json
from cudareduce.compiled.units import jobs, left_out, sample_of
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.library.registry import Choice, asked_for, load_registry
from cudareduce.problem.parsing import NVCC_FLAGS
from cudareduce.progress import say
from cudareduce.report.publish import Outputs
from cudareduce.results.provenance import tool
from cudareduce.results.store import check_writable, is_missing, write_text

#: Turing to Blackwell: the oldest that CUDA 13 compiles for, and the newest of each kind.
ARCHITECTURES = (75, 80, 90, 100, 120)


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
    stored = _stored(request)
    registry = load_registry(request.folders)
    choices = registry.choose(request.kernels)
    kernels = [choice.kernel for choice in choices]
    tools = find_tools(stored.nvcc if stored else None)
    architectures = request.arch or (stored.architectures if stored else ARCHITECTURES)
    if request.update_baseline and stored is not None:
        _refuse_to_forget(request.baseline, stored, architectures, tools)
    sample = sample_of(stored.architectures if stored else architectures)
    new = compiled_side(jobs(kernels, architectures, sample), tools, request.quiet)
    unseen = list(left_out(kernels, architectures))
    if not new.units and not new.failed:
        raise UsageError("; ".join(["nothing was compiled", *unseen]))
    old = _side_of(stored, architectures, request.kernels, choices)
    other = _other_compiler(stored, tools) if stored else None
    changed = moved(compare_units(old, new, other))
    which = {kernel.id for kernel in kernels} if request.update_baseline else changed
    new, uncounted = with_traffic(new, kernels, which, request.quiet)
    rows = compare_units(old, new, other)
    notes = [f"{other}, so only rules and accesses were checked"] if other else []
    codes = publish_rows(
        rows, f"compiled by nvcc {tools.nvcc.version} against {request.baseline.name}",
        [*notes, *unseen, *uncounted, *tools.notes], request.outputs, registry,
        allow_gone=request.allow_gone,
    )  # fmt: skip
    if request.update_baseline:
        lost = bool(stored and stored.traffic and not new.traffic)
        return _update(request, _made(request, new, tools, architectures), codes, rows, lost)
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


def _side_of(
    stored: CompiledSet | None, architectures: Sequence[int], names: Sequence[str],
    choices: Sequence[Choice],
) -> Side:  # fmt: skip
    """What a baseline holds of what is compiled now."""
    if stored is None:
        return Side(units=(), broken={})
    units = [
        unit for unit in stored.units
        if unit.arch in architectures and asked_for(unit.kernel, names, choices)
    ]  # fmt: skip
    return Side(units=units, traffic=stored.traffic, broken={})


def _made(
    request: CompileRequest, side: Side, tools: Tools, architectures: Sequence[int]
) -> CompiledSet:
    return CompiledSet(
        tool(request.argv), tools.nvcc.version, NVCC_FLAGS,
        tools.disassembler.version if tools.disassembler else None, tuple(architectures),
        tuple(side.units), tuple(side.traffic),
    )  # fmt: skip


def _other_compiler(old: CompiledSet, tools: Tools) -> str | None:
    """Why machine code says nothing of the kernels: another nvcc made it, or the same
    differently."""
    if old.nvcc != tools.nvcc.version:
        return (
            f"The baseline is of nvcc {old.nvcc}, this is {tools.nvcc.version}: figures do not "
            "compare"
        )
    if old.flags != NVCC_FLAGS:
        flags = [" ".join(each) or "no flags" for each in (old.flags, NVCC_FLAGS)]
        return f"The baseline was compiled with {flags[0]}, this {flags[1]}: figures do not compare"
    return None


def _refuse_to_forget(path: Path, old: CompiledSet, compiled: Sequence[int], tools: Tools) -> None:
    """A baseline is written whole: an architecture that --arch leaves out would go unseen, and so
    would machine code where there is nothing to read it with."""
    left_out = [f"sm_{arch}" for arch in old.architectures if arch not in compiled]
    if left_out:
        raise UsageError(
            f"{path} would lose {', '.join(left_out)}: leave --arch out or name all of them, or "
            "delete the file first"
        )
    if old.disassembler is not None and tools.disassembler is None:
        raise EnvironmentProblem(
            f"{path} would lose its counts of instructions, for want of cuobjdump or nvdisasm: "
            "pip install 'cudareduce[compile]', or delete the file first"
        )


def _update(
    request: CompileRequest, made: CompiledSet, codes: set[int], rows: Sequence[UnitRow],
    lost: bool,
) -> int:  # fmt: skip
    """Write the new baseline, unless it would hold a broken rule, leave kernels out, or what they
    ask of memory is `lost`, which is an EnvironmentProblem."""
    path = request.baseline
    if 2 in codes or any(row.verdict == "BROKEN" for row in rows):
        say(f"{path} is left as it was: mend what is broken first")
        return worst_exit_code(codes)
    gone = next((row.unit.kernel for row in rows if row.verdict == "GONE"), None)
    if gone and not request.allow_gone:
        say(f"{path} is left as it was: {gone} is gone, and --allow-gone drops what is")
        return worst_exit_code(codes)
    if lost:
        raise EnvironmentProblem(
            f"{path} would lose what kernels ask of memory: install g++, or delete the file first"
        )
    write_text(path, to_json(made))
    say(f"{path} now holds what was compiled here", request.quiet)
    return 0
