"""Every kernel through nvcc, for every architecture, in parallel: figures, and rules they break."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

from cudareduce.backend import Source
from cudareduce.compiled.nvcc import Nvcc
from cudareduce.compiled.resources import parse_resources
from cudareduce.compiled.rules import broken_rules
from cudareduce.compiled.sass import Disassembler
from cudareduce.compiled.store import Failed, Key, Unit
from cudareduce.errors import BuildError
from cudareduce.launch.prelude import Stage, source
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.progress import phase


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledUnits:
    """What nvcc made of kernels: units, the rules that they break, and what does not compile."""

    units: tuple[Unit, ...]
    broken: Mapping[Key, Sequence[str]]
    failed: tuple[Failed, ...]


#: The reduction that kernels are compiled for.
_WHAT = reduction_of("sum", "float32")


def _stages(kernel: Kernel, reduction: Reduction) -> tuple[Stage, ...]:
    """The stages that differ in their code; one launch alone has one."""
    return ("only",) if reduction.one_stage or not kernel.relaunches else get_args(Stage)


def _sources(
    choices: Sequence[Choice], architectures: Sequence[int]
) -> Iterator[tuple[Kernel, Stage, Source, int]]:
    for kernel in dict.fromkeys(choice.kernel for choice in choices):
        if kernel.why_not(_WHAT) is not None:
            continue
        for stage in _stages(kernel, _WHAT):
            unit = source(kernel, _WHAT, stage, kernel.block, kernel.items)
            for arch in architectures:
                if _takes(kernel, arch):
                    yield kernel, stage, unit, arch


def _takes(kernel: Kernel, arch: int) -> bool:
    return arch >= 10 * float(kernel.min_cc)


def left_out(choices: Sequence[Choice], architectures: Sequence[int]) -> Iterator[str]:
    """What is not compiled of these kernels, and why."""
    for kernel in dict.fromkeys(choice.kernel for choice in choices):
        reason = kernel.why_not(_WHAT)
        old = [f"sm_{arch}" for arch in architectures if not _takes(kernel, arch)]
        if reason is not None:
            yield f"{kernel.id} is not compiled, as sum of float32 is what all are: {reason}"
        elif old:
            yield f"{kernel.id} is not compiled for {', '.join(old)}: it takes cc {kernel.min_cc}"


def first_error(said: str) -> str:
    """The first error among a compiler's lines: warnings may stand before it."""
    lines = said.splitlines()
    return next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[0]).strip()


def compile_all(
    choices: Sequence[Choice],
    architectures: Sequence[int],
    nvcc: Nvcc,
    disassembler: Disassembler | None,
    quiet: bool,
) -> CompiledUnits:
    """Compile every kernel for every architecture, all in parallel; without a disassembler nothing
    is counted. Raises EnvironmentProblem if it cannot read what nvcc makes."""
    todo = list(_sources(choices, architectures))

    def one(
        job: tuple[Kernel, Stage, Source, int], step: Callable[[], None]
    ) -> tuple[Unit, list[str]] | Failed:
        kernel, stage, text, arch = job
        compiled = nvcc.compile(text, arch)
        if isinstance(compiled, BuildError):
            step()
            return Failed(
                kernel.id, _WHAT.op.name, _WHAT.dtype.name, _WHAT.acc.name, stage, arch,
                first_error(str(compiled)),
            )  # fmt: skip
        used = parse_resources(compiled.said, kernel.entry)
        counts = disassembler.count(compiled.cubin, kernel.entry) if disassembler else None
        sha = hashlib.sha256(compiled.cubin).hexdigest()
        unit = Unit(
            kernel.id, _WHAT.op.name, _WHAT.dtype.name, _WHAT.acc.name, stage,
            kernel.block, kernel.items, arch, sha, used, counts,
        )  # fmt: skip
        step()
        return unit, list(broken_rules(kernel, _WHAT, compiled, used))

    with (
        phase("compiling", len(todo), quiet) as progress,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        results = list(pool.map(lambda job: one(job, progress.step), todo))
    made = [result for result in results if not isinstance(result, Failed)]
    return CompiledUnits(
        units=tuple(unit for unit, _ in made),
        broken={unit.key: rules for unit, rules in made},
        failed=tuple(result for result in results if isinstance(result, Failed)),
    )
