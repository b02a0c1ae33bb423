"""Machine code of a program, by nvcc, without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cudareduce.backends.cuda.driver_module import nvcc_text
from cudareduce.backends.protocol import Source
from cudareduce.catalog.kernel import Kernel
from cudareduce.machine import installed


def cubin_of(kernel: Kernel, folder: Path) -> bytes:
    """What nvcc makes of the kernels of a program for sm_80."""
    assert kernel.program is not None
    names = tuple(variable.name for variable in kernel.program.variables)
    program = kernel.program
    source = Source(program.texts[0], kernel.entry, kernel.path, program.kernels, names)
    text, cubin = folder / "program.cu", folder / "program.cubin"
    text.write_text(nvcc_text(source))
    nvcc = next(iter(installed("nvcc")))[0]
    command = [nvcc, "-cubin", "-arch=sm_80", "-std=c++17", str(text), "-o", str(cubin)]
    subprocess.run(command, check=True, capture_output=True)
    return cubin.read_bytes()
