"""The two sides of a comparison, as they are made: units first, then what changed kernels ask of
memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cudareduce.backends import default_cache, why_unusable
from cudareduce.compiled.compare import Side, UnitRow
from cudareduce.compiled.nvcc import Nvcc, find_nvcc
from cudareduce.compiled.sass import Disassembler, find_disassembler
from cudareduce.compiled.store import Failed
from cudareduce.compiled.telling import compiled_findings, compiled_section, compiled_values, fails
from cudareduce.compiled.traffic import count_traffic
from cudareduce.compiled.units import Job, compile_all, main_reduction
from cudareduce.errors import EnvironmentProblem
from cudareduce.launch.case import Case
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Registry
from cudareduce.report.ci import comment_of, junit, tell_ci
from cudareduce.report.markdown import to_markdown
from cudareduce.report.publish import Outputs, publish

_NO_DISASSEMBLER = (
    "Machine code is not read, for want of cuobjdump: pip install 'cudareduce[compile]'"
)
#: Verdicts on units of kernels that may ask something else of memory than before.
_MOVED = ("BROKEN", "WORSE", "UNCERTAIN", "CHANGED", "BETTER")


@dataclass(frozen=True, slots=True)
class Tools:
    """What compiles, and what reads machine code, if there is anything."""

    nvcc: Nvcc
    disassembler: Disassembler | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing."""
        return () if self.disassembler else (_NO_DISASSEMBLER,)


def find_tools(nvcc: str | None = None) -> Tools:
    """The nvcc of this version, else the first there is. Raises EnvironmentProblem without one."""
    return Tools(find_nvcc(nvcc), find_disassembler())


def compiled_side(todo: Sequence[Job], tools: Tools, quiet: bool) -> Side:
    """What nvcc makes of these jobs. Raises EnvironmentProblem."""
    made = compile_all(todo, tools.nvcc, tools.disassembler, quiet)
    return Side(units=made.units, broken=made.broken, failed=made.failed)


def moved(rows: Sequence[UnitRow]) -> set[str]:
    """The kernels whose machine code is not what it was, as far as they compile."""
    return {
        row.unit.kernel for row in rows
        if row.verdict in _MOVED and not isinstance(row.new, Failed)
    }  # fmt: skip


def with_traffic(
    side: Side, kernels: Sequence[Kernel], which: Collection[str], quiet: bool
) -> tuple[Side, tuple[str, ...]]:
    """A side with what those of its kernels that are named in `which` ask of memory, and why that
    is not known of others."""
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
        return side, (f"What kernels ask of memory is not counted: {error}",)
    return replace(side, traffic=counted.traffic), counted.notes


def publish_rows(
    rows: Sequence[UnitRow], title: str, notes: Sequence[str], outputs: Outputs, registry: Registry,
    *, allow_gone: bool,
) -> set[int]:  # fmt: skip
    """Print and write a comparison; the exit codes that its rows come to."""
    section = compiled_section(rows, title, notes)
    told = compiled_findings(rows, allow_gone=allow_gone)
    publish(
        outputs, [section],
        {"junit": lambda: junit(told, "cudareduce"),
         "comment": lambda: comment_of(to_markdown([section])),
         "benchmark_json": lambda: "[]\n"},  # nothing was timed
        printed={"json": lambda: json.dumps(compiled_values(rows), indent=1) + "\n"},
        commands=tell_ci(told, [section], registry.place),
    )  # fmt: skip
    return exit_codes(rows, allow_gone=allow_gone)


def exit_codes(rows: Sequence[UnitRow], *, allow_gone: bool) -> set[int]:
    """The codes that rows come to: 2 for what does not compile, 1 for what fails."""
    codes = {2} if any(isinstance(row.new, Failed) for row in rows) else set()
    return codes | ({1} if any(fails(row, allow_gone=allow_gone) for row in rows) else set())
