"""Every kernel through nvcc, for every architecture, in parallel: figures, and rules they break."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

from cudareduce.backend import BuildError, Source
from cudareduce.compiled.nvcc import Nvcc
from cudareduce.compiled.resources import parse_resources
from cudareduce.compiled.rules import broken_rules
from cudareduce.compiled.sass import Disassembler
from cudareduce.compiled.store import Failed, Key, Unit
from cudareduce.operators import Reduction, reduction
from cudareduce.prelude import Stage, source
from cudareduce.progress import phase
from cudareduce.registry import Choice, Kernel

Broken = dict[Key, list[str]]


def _stages(kernel: Kernel, what: Reduction) -> tuple[Stage, ...]:
    """The stages that differ in their code; one launch alone has one."""
    relaunched = kernel.finish in ("relaunch", "relaunch_one_block", "reshape")
    return ("only",) if what.one_stage or not relaunched else get_args(Stage)


def _sources(
    choices: Sequence[Choice], architectures: Sequence[int]
) -> Iterator[tuple[Kernel, Stage, Source, int]]:
    what = reduction("sum", "float32")
    kernels = dict.fromkeys(choice.kernel for choice in choices)
    for kernel in kernels:
        if kernel.why_not(what) is not None:
            continue
        for stage in _stages(kernel, what):
            unit = source(kernel, what, stage, kernel.block, kernel.items)
            for arch in architectures:
                if arch >= 10 * float(kernel.min_cc):
                    yield kernel, stage, unit, arch


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
) -> tuple[list[Unit], Broken, list[Failed]]:
    """Units, the rules they break, and what does not compile, all in parallel."""
    todo = list(_sources(choices, architectures))
    what = reduction("sum", "float32")

    def one(
        job: tuple[Kernel, Stage, Source, int], step: Callable[[], None]
    ) -> tuple[Unit, list[str]] | Failed:
        kernel, stage, text, arch = job
        compiled = nvcc.compile(text, arch)
        if isinstance(compiled, BuildError):
            step()
            return Failed(
                kernel.id, what.op.name, what.dtype.name, what.acc.name, stage, arch,
                first_error(str(compiled)),
            )  # fmt: skip
        used = parse_resources(compiled.said, kernel.entry)
        counts = disassembler.count(compiled.cubin, kernel.entry) if disassembler else None
        sha = hashlib.sha256(compiled.cubin).hexdigest()
        unit = Unit(
            kernel.id, what.op.name, what.dtype.name, what.acc.name, stage,
            kernel.block, kernel.items, arch, sha, used, counts,
        )  # fmt: skip
        step()
        return unit, list(broken_rules(kernel, what, compiled, used))

    with phase("compiling", len(todo), quiet) as step, ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: one(job, step), todo))
    units: list[Unit] = []
    broken: Broken = {}
    failures: list[Failed] = []
    for result in results:
        if isinstance(result, Failed):
            failures.append(result)
        else:
            unit, rules = result
            units.append(unit)
            broken[unit.key] = rules
    return units, broken, failures
