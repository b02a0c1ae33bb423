"""Compile kernels with nvcc for any architecture, without a GPU, and check fixed rules.

One reduction per kernel is compiled for every architecture, by default the sum of float32; on one
architecture every type and every operator at least once. The rules read PTX and the messages of
ptxas: a vector load or a fence in PTX becomes one machine instruction.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from cudareduce.backends.cuda.driver_module import kernel_symbols, nvcc_text, symbol_of
from cudareduce.backends.protocol import Source
from cudareduce.catalog.kernel import Kernel
from cudareduce.compare.machine_code import (
    HASH_DIGITS,
    Disassembler,
    Resources,
    parse_resources,
)
from cudareduce.compare.units import Failed, Key, Side, Unit
from cudareduce.cuda_source import NVCC_FLAGS, with_standard
from cudareduce.errors import BuildError, EnvironmentProblem
from cudareduce.launch.case import Case, unit_source
from cudareduce.launch.prelude import Stage
from cudareduce.machine import installed
from cudareduce.progress import phase
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Reduction, reduction_of
from cudareduce.reduction.sizes import counted
from cudareduce.temporary import temporary_folder
from cudareduce.text import group_by


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code, its PTX, and the messages of the compiler (with ptxas -v)."""

    cubin: bytes
    ptx: str
    messages: str


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A compiler and its exact version."""

    path: str
    version: str

    def compile(self, source: Source, arch: int) -> Compiled | BuildError:
        """Compile one translation unit for sm_`arch`; returns errors instead of raising them."""
        with temporary_folder() as folder:
            Path(folder, "kernel.cu").write_text(nvcc_text(source), encoding="utf-8")
            command = [
                self.path, *with_standard(NVCC_FLAGS, source.text), "-cubin", f"-arch=sm_{arch}",
                "-Xptxas", "-v", "-keep", "-keep-dir", folder, "-o", f"{folder}/kernel.cubin",
                f"{folder}/kernel.cu",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            messages = (done.stdout + done.stderr).replace(f"{folder}/", "")
            if done.returncode:
                lines = [line for line in messages.splitlines() if line.strip()]
                return BuildError("\n".join(lines) or f"nvcc exits with {done.returncode}")
            cubin, ptx = Path(folder, "kernel.cubin"), Path(folder, "kernel.ptx")
            return Compiled(cubin.read_bytes(), ptx.read_text(encoding="utf-8"), messages)


def find_nvcc(wanted: str | None = None) -> Nvcc:
    """The nvcc of the wanted version, else the first found. Raises EnvironmentProblem."""
    compilers = [Nvcc(path, version) for path, version in installed("nvcc")]
    if not compilers:
        raise EnvironmentProblem(
            "nvcc was not found: install the CUDA toolkit and put its bin folder on the PATH, or "
            "pip install 'cudareduce[compile]'"
        )
    return next((nvcc for nvcc in compilers if nvcc.version == wanted), compilers[0])


#: A load of at least 16 bytes, or a bulk copy.
_WIDE = re.compile(
    r"\bld\.[\w.:]*global[\w.:]*\.(v4\.[bfsu]32|v2\.[bfsu]64|v8\.[bfsu](16|32)|v4\.[bfsu]64|b128)"
    r"|\bcp\.async\.bulk\b|\bcp\.async\.c[ag]\.shared\.global[^;]*,\s*16\b"
)
#: A write to global memory: a store, also by a generic pointer, or an atomic.
_ELSEWHERE = r"(?![\w.:]*\b(?:shared|local|param)\b)"
_STORE = re.compile(
    rf"\b(?:st|red)\.{_ELSEWHERE}[\w.:]+|\batom\.{_ELSEWHERE}[\w.:]*\b(?:exch|add\.[\w.:]*b?f\d+)"
)
_FENCE = re.compile(r"\b(membar\.(gl|sys)|fence\.[\w.]*(gpu|sys))")
#: A counter is a whole number.
_ARRIVAL = re.compile(
    rf"\batom\.{_ELSEWHERE}(?=[\w.:]*\b(?:inc|add|dec|cas)\b)[\w.:]*\.[usb](?:32|64)\b"
)


def broken_rules(
    kernel: Kernel, reduction: Reduction, compiled: Compiled, used: Resources
) -> Iterator[str]:
    """Check a compiled kernel against rules that need no baseline, and yield each one that it
    breaks: spills, ignored launch bounds, narrow loads, a missing fence."""
    for line in re.findall(r".*will be ignored.*", compiled.messages):
        yield f"ptxas: {line.strip()}"
    if not kernel.foreign and used.spill_bytes:
        bytes_ = counted(used.spill_bytes, "byte")
        yield f"spills {bytes_} per thread; no kernel of this package may"
    wide = kernel.vector_of(reduction.dtype.size) * reduction.dtype.size >= 16
    if wide and "tma" not in kernel.requires and not _WIDE.search(compiled.ptx):
        yield f"its front matter has vector = {kernel.vector}, but no load is 16 bytes wide"
    if kernel.finish == "last_block":
        yield from _unfenced(compiled.ptx, drawn=kernel.walk == "tickets")


def _unfenced(ptx: str, *, drawn: bool) -> Iterator[str]:
    """Why a block may count as arrived before its partial result is visible; with tickets `drawn`
    it arrives at the last count. The text is read from top to bottom without branches, so a
    conditional fence counts. Fences of the last block before it reads partials are not checked."""
    counts = list(_ARRIVAL.finditer(ptx))
    if not counts:
        yield "its finish is last_block, but no atomic counts blocks"
        return
    arrival = counts[-1 if drawn else 0]
    words = set(arrival[0].split("."))
    # A release is visible to all blocks: its default scope is the GPU (PTX ISA, atom).
    releases = words & {"release", "acq_rel"} and not words & {"cta", "cluster"}
    before = ptx[: arrival.start()]
    stores = list(_STORE.finditer(before))
    if not releases and not _FENCE.search(before, stores[-1].end() if stores else 0):
        yield "no fence between a block's partial and its arrival: another block may miss it"


#: The architecture for which all types and operators are compiled.
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
        """True for the reduction that is compiled for every architecture and checked against the
        rules."""
        return self.reduction == main_reduction(self.kernel)

    @property
    def items(self) -> int:
        return self.kernel.items_of(self.reduction.dtype.size)

    @property
    def source(self) -> Source:
        case = Case(self.kernel, self.reduction, self.kernel.block, self.items)
        return unit_source(case, (self.stage, 0))

    @property
    def key(self) -> Key:
        """The key of the compiled unit."""
        what = self.reduction
        return self.kernel.id, what.op.name, what.dtype.name, what.acc.name, self.stage, self.arch


def main_reduction(kernel: Kernel) -> Reduction | None:
    """The reduction to compile for every architecture: the sum of float32, else the first
    supported; of an external program the one that it computes."""
    computes = kernel.program.computes if kernel.program else None
    return computes or next(_supported(kernel), None)


def _supported(kernel: Kernel) -> Iterator[Reduction]:
    for dtype in DTYPES:
        for op in OPERATORS:
            reduction = reduction_of(op, dtype, None, kernel.map)
            if reduction.why_undefined() is None and kernel.why_not(reduction) is None:
                yield reduction


def sample_reductions(kernel: Kernel) -> list[Reduction]:
    """Reductions to compile for one architecture: each supported type with some operator, and each
    operator at least once."""
    by_type = group_by(_supported(kernel), lambda reduction: reduction.dtype.name)
    chosen = [some[number % len(some)] for number, some in enumerate(by_type.values())]
    seen = {reduction.op.name for reduction in chosen}
    for reduction in _supported(kernel):
        if reduction.op.name not in seen:
            seen.add(reduction.op.name)
            chosen.append(reduction)
    return [reduction for reduction in chosen if reduction != main_reduction(kernel)]


def _stages(kernel: Kernel, reduction: Reduction) -> tuple[Stage, ...]:
    """The stages of a kernel whose code differs: `only` if it is launched once."""
    return ("only",) if reduction.one_stage or not kernel.relaunches else get_args(Stage)


def reading_stage(kernel: Kernel, reduction: Reduction) -> Stage:
    """The stage of a kernel that reads the input."""
    return _stages(kernel, reduction)[0]


def jobs(kernels: Sequence[Kernel], architectures: Sequence[int], sample: int | None) -> list[Job]:
    """The translation units to compile. All types and operators are compiled for the architecture
    `sample` only."""
    all_jobs = []
    for kernel in dict.fromkeys(kernels):
        reduction = main_reduction(kernel)
        if reduction is None:
            continue
        all_jobs += [
            Job(kernel, reduction, stage, arch)
            for stage in _stages(kernel, reduction)
            for arch in architectures if _takes(kernel, arch)
        ]  # fmt: skip
        if sample is not None and sample in architectures and _takes(kernel, sample):
            all_jobs += [
                Job(kernel, r, reading_stage(kernel, r), sample) for r in sample_reductions(kernel)
            ]
    return all_jobs


def sample_of(architectures: Sequence[int]) -> int:
    """The architecture for all types and operators, if it is among these."""
    return SAMPLED if SAMPLED in architectures else max(architectures)


def _takes(kernel: Kernel, arch: int) -> bool:
    return arch >= 10 * float(kernel.min_cc)


def omitted(kernels: Sequence[Kernel], architectures: Sequence[int]) -> Iterator[str]:
    """A note for each kernel that is not compiled for all of these architectures, with the
    reason."""
    for kernel in dict.fromkeys(kernels):
        old = [f"sm_{arch}" for arch in architectures if not _takes(kernel, arch)]
        if main_reduction(kernel) is None:
            yield f"{kernel.id} is not compiled: it supports no built-in operator and type"
        elif old:
            yield f"{kernel.id} is not compiled for {', '.join(old)}: it needs cc {kernel.min_cc}"


def first_error(messages: str) -> str:
    """The first error among the messages of a compiler."""
    lines = messages.splitlines()
    return next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[0]).strip()


def entry_symbol(kernel: Kernel, compiled: Compiled) -> str:
    """The name of a kernel in its machine code."""
    if kernel.program is None:
        return kernel.entry
    return symbol_of(kernel.program.kernels[0], kernel_symbols(compiled.cubin)) or kernel.entry


def compile_all(
    todo: Sequence[Job], nvcc: Nvcc, disassembler: Disassembler | None, quiet: bool
) -> Side:
    """Compile units in parallel; without a disassembler machine code is not read. Raises
    EnvironmentProblem."""

    def compile_one(job: Job) -> tuple[Unit, list[str]] | Failed:
        compiled = nvcc.compile(job.source, job.arch)
        if isinstance(compiled, BuildError):
            progress.step()
            return Failed(*job.key, first_error(str(compiled)))
        entry = entry_symbol(job.kernel, compiled)
        used = parse_resources(compiled.messages, entry)
        code = disassembler.read(compiled.cubin, entry) if disassembler else None
        sha = hashlib.sha256(compiled.cubin).hexdigest()[:HASH_DIGITS]
        name, op, dtype, acc, stage, arch = job.key
        unit = Unit(
            name, op, dtype, acc, stage, job.kernel.block, job.items, arch, sha, used, code
        )  # fmt: skip
        progress.step()
        rules = broken_rules(job.kernel, job.reduction, compiled, used) if job.main else ()
        return unit, list(rules)

    with (
        phase("compiling", len(todo), quiet) as progress,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        results = list(pool.map(compile_one, todo))
    units = [result for result in results if not isinstance(result, Failed)]
    return Side(
        units=tuple(unit for unit, _ in units),
        broken={unit.key: rules for unit, rules in units},
        failed=tuple(result for result in results if isinstance(result, Failed)),
    )
