"""Compile kernels with nvcc: a float32 sum of each for every architecture, and once a family each
operator and type. Any word of the compiler is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from cudareduce.backend import NVCC_FLAGS, Source
from cudareduce.compiled.command import ARCHITECTURES
from cudareduce.launch.prelude import Stage, source
from cudareduce.library.registry import load_registry
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, reduction_of


def units() -> Iterator[tuple[Source, int]]:
    """Every translation unit to compile, with its architecture."""
    seen: set[str] = set()
    for kernel in load_registry().kernels.values():
        reduction = reduction_of("sum", "float32")
        if kernel.why_not(reduction) is None:
            only = source(kernel, reduction, "only", kernel.block, kernel.items)
            yield from ((only, arch) for arch in ARCHITECTURES if arch >= 10 * float(kernel.min_cc))
        if kernel.family in seen:
            continue
        seen.add(kernel.family)
        for op in OPERATORS:
            for dtype in DTYPES:
                reduction = reduction_of(op, dtype)
                if kernel.why_not(reduction) is None:
                    for stage in ("only",) if reduction.one_stage else get_args(Stage):
                        items = kernel.items_of(reduction.dtype.size)
                        yield source(kernel, reduction, stage, kernel.block, items), 90


def compile_one(unit: tuple[Source, int]) -> str:
    """What nvcc says of a translation unit; nothing if all is well."""
    text, arch = unit
    with TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cu")
        path.write_text(text.text)
        command = [
            "nvcc",
            *NVCC_FLAGS,
            "-cubin",
            f"-arch=sm_{arch}",
            "-o",
            os.devnull,
            path,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    return (
        f"{text.entry} for sm_{arch}: {said or done.returncode}" if said or done.returncode else ""
    )


def main() -> None:
    """Compile all in parallel, print what failed."""
    todo = list(units())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [said for said in pool.map(compile_one, todo) if said]
    print(*failures, f"nvcc compiled {len(todo) - len(failures)} of {len(todo)} units", sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
