"""Every kernel through nvcc, in parallel: figures, and rules they break.

One reduction of each kernel is compiled for every architecture, by default the sum of float32. On
one architecture every type is compiled besides, and every operator at least once.
"""

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
from cudareduce.compiled.sass import HASH_DIGITS, Disassembler
from cudareduce.compiled.store import Failed, Key, Unit
from cudareduce.errors import BuildError
from cudareduce.launch.prelude import Stage, source
from cudareduce.library.kernel import Kernel
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, Reduction, reduction_of
from cudareduce.progress import phase

#: The architecture that all types and operators are compiled for, where it is asked for.
SAMPLED = 90


@dataclass(frozen=True, slots=True)
class Job:
    """One translation unit for one architecture."""

    kernel: Kernel
    reduction: Reduction
    stage: Stage
    arch: int

    @property
    def main(self) -> bool:
        """Whether it is of what is compiled for every architecture, and held against the rules."""
        return self.reduction == main_reduction(self.kernel)

    @property
    def items(self) -> int:
        """Elements a thread, of this type."""
        return self.kernel.items_of(self.reduction.dtype.size)

    @property
    def source(self) -> Source:
        """What nvcc is given."""
        return source(self.kernel, self.reduction, self.stage, self.kernel.block, self.items)

    @property
    def key(self) -> Key:
        """Of the unit that comes of it."""
        what = self.reduction
        return self.kernel.id, what.op.name, what.dtype.name, what.acc.name, self.stage, self.arch


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledUnits:
    """What nvcc made of kernels: units, the rules that they break, and what does not compile."""

    units: tuple[Unit, ...]
    broken: Mapping[Key, Sequence[str]]
    failed: tuple[Failed, ...]


def main_reduction(kernel: Kernel) -> Reduction | None:
    """What a kernel is compiled for on every architecture: the sum of float32, else the first that
    it takes."""
    return next(_taken(kernel), None)


def _taken(kernel: Kernel) -> Iterator[Reduction]:
    for dtype in DTYPES:
        for op in OPERATORS:
            reduction = reduction_of(op, dtype, None, kernel.map)
            if reduction.why_undefined() is None and kernel.why_not(reduction) is None:
                yield reduction


def sampled(kernel: Kernel) -> list[Reduction]:
    """A reduction for each type that a kernel takes, each with another operator than the one
    before, and those that bring the operators that are left."""
    by_type: dict[str, list[Reduction]] = {}
    for reduction in _taken(kernel):
        by_type.setdefault(reduction.dtype.name, []).append(reduction)
    chosen = [some[number % len(some)] for number, some in enumerate(by_type.values())]
    seen = {reduction.op.name for reduction in chosen}
    for reduction in _taken(kernel):
        if reduction.op.name not in seen:
            seen.add(reduction.op.name)
            chosen.append(reduction)
    return [reduction for reduction in chosen if reduction != main_reduction(kernel)]


def _stages(kernel: Kernel, reduction: Reduction) -> tuple[Stage, ...]:
    """The stages that differ in their code; one launch alone has one."""
    return ("only",) if reduction.one_stage or not kernel.relaunches else get_args(Stage)


def reading_stage(kernel: Kernel, reduction: Reduction) -> Stage:
    """The stage that reads elements."""
    return _stages(kernel, reduction)[0]


def jobs(kernels: Sequence[Kernel], architectures: Sequence[int], sample: int | None) -> list[Job]:
    """What is compiled; `sample` is the architecture of all types and operators, of which the stage
    that reads elements stands for all."""
    found = []
    for kernel in dict.fromkeys(kernels):
        reduction = main_reduction(kernel)
        if reduction is None:
            continue
        found += [
            Job(kernel, reduction, stage, arch)
            for stage in _stages(kernel, reduction)
            for arch in architectures if _takes(kernel, arch)
        ]  # fmt: skip
        if sample in architectures and sample is not None and _takes(kernel, sample):
            found += [Job(kernel, each, reading_stage(kernel, each), sample)
                      for each in sampled(kernel)]  # fmt: skip
    return found


def sample_of(architectures: Sequence[int]) -> int:
    """The architecture for all types and operators, where these are all that a baseline holds."""
    return SAMPLED if SAMPLED in architectures else max(architectures)


def _takes(kernel: Kernel, arch: int) -> bool:
    return arch >= 10 * float(kernel.min_cc)


def left_out(kernels: Sequence[Kernel], architectures: Sequence[int]) -> Iterator[str]:
    """What is not compiled of these kernels, and why."""
    for kernel in dict.fromkeys(kernels):
        old = [f"sm_{arch}" for arch in architectures if not _takes(kernel, arch)]
        if main_reduction(kernel) is None:
            yield f"{kernel.id} is not compiled: it takes no operator and type of this tool's"
        elif old:
            yield f"{kernel.id} is not compiled for {', '.join(old)}: it takes cc {kernel.min_cc}"


def first_error(said: str) -> str:
    """The first error among a compiler's lines: warnings may stand before it."""
    lines = said.splitlines()
    return next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[0]).strip()


def compile_all(
    todo: Sequence[Job], nvcc: Nvcc, disassembler: Disassembler | None, quiet: bool
) -> CompiledUnits:
    """Compile units, all in parallel; without a disassembler machine code is not read. Raises
    EnvironmentProblem if it cannot read what nvcc makes."""

    def one(job: Job, step: Callable[[], None]) -> tuple[Unit, list[str]] | Failed:
        compiled = nvcc.compile(job.source, job.arch)
        if isinstance(compiled, BuildError):
            step()
            return Failed(*job.key, first_error(str(compiled)))
        entry = job.kernel.entry
        used = parse_resources(compiled.said, entry)
        code = disassembler.read(compiled.cubin, entry) if disassembler else None
        sha = hashlib.sha256(compiled.cubin).hexdigest()[:HASH_DIGITS]
        name, op, dtype, acc, stage, arch = job.key
        unit = Unit(
            name, op, dtype, acc, stage, job.kernel.block, job.items, arch, sha, used, code
        )  # fmt: skip
        step()
        rules = broken_rules(job.kernel, job.reduction, compiled, used) if job.main else ()
        return unit, list(rules)

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
