"""Compiles and runs programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cudareduce.machine import installed

HERE = Path(__file__).parent


def ran(command: Sequence[object]) -> str:
    """The standard output of a process. Exits with its error message if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} {command[-1]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def compiled(source: Path, made: Path, *options: object) -> Path:
    """Compile a CUDA program for this machine's GPU."""
    nvcc = next(installed("nvcc"), None)
    if nvcc is None:
        sys.exit("nvcc was not found: install the CUDA toolkit and put its bin folder on the PATH")
    flags = ("-O3", "-std=c++17", "-arch=native", "-Xcompiler=-fopenmp")
    ran([nvcc[0], *flags, *options, "-o", made, source])
    return made
