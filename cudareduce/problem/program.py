"""A user's C++ as a program on the host, since it can end, crash or hang the process that it runs
in."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.temporary import temporary_folder

#: Seconds that any run of an expression may take, and elements a second, a tenth of what one
#: core folds of a division: what takes longer hangs.
_START_S, _ELEMENTS_PER_S = 5.0, 10e6
#: Seconds that g++ may take; it takes half a one.
_COMPILE_S = 120.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program in a file in memory, which ends with this process; `called` is the option that it
    was made of, as messages have it."""

    file: int
    called: str

    def run(
        self, words: Sequence[str], given: Sequence[np.ndarray], count: int, kind: str
    ) -> np.ndarray:
        """What it makes of arrays on its standard input, one behind the other: `count` values of a
        kind. One that ends by itself, crashes or hangs is a UsageError."""
        limit_s = _START_S + sum(one.nbytes for one in given) / 4 / _ELEMENTS_PER_S
        whole = given[0] if len(given) == 1 else np.concatenate([one.reshape(-1) for one in given])
        try:
            done = subprocess.run(
                [f"/proc/self/fd/{self.file}", *words],
                pass_fds=[self.file],
                input=whole.reshape(-1).view(np.uint8).data,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{self.called} does not end in {limit_s:.2g} s: mend the expression"
            ) from None
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise UsageError(f"{self.called} crashes with {name}: mend the expression")
        if done.returncode or len(done.stdout) != count * np.dtype(kind).itemsize:
            raise UsageError(
                f"{self.called} prints, or ends the process it runs in: mend the expression"
            )
        return np.frombuffer(done.stdout, kind)


def program_of(text: str, called: str, acc: str) -> Program:
    """Compile a program for accumulators of a type; the compiler's words where it does not compile
    are a UsageError, a g++ that is missing or does not work is an EnvironmentProblem."""
    with temporary_folder() as folder:
        program = Path(folder, "expression")
        _compile(text, called, acc, program)
        return Program(_in_memory(program.read_bytes()), called)


def _in_memory(program: bytes) -> int:
    """A file descriptor to run a program by; one that can be written to cannot be run."""
    with os.fdopen(os.memfd_create("expression"), "wb") as file:
        file.write(program)
        file.flush()
        return os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)


def _compile(text: str, called: str, acc: str, program: Path) -> None:
    command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-w", "-fwrapv", "-fmax-errors=3",
               "-ftemplate-depth=64", "-", "-o", str(program)]  # fmt: skip
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=_COMPILE_S,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(program.parent)},
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentProblem(
            f"g++ was not found: {called} needs it for the reference (Debian: apt-get install g++)"
        ) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            f"g++ did not end within {_COMPILE_S:g} s: see whether it works at all"
        ) from None
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if errors:
        raise UsageError(
            f"{called} does not compile for {acc}: {errors[0].split('error:')[1].strip()}; write "
            "C++ in a and b, such as 'a > b ? a : b'"
        )
    if done.returncode or not program.exists():
        raise EnvironmentProblem(
            f"g++ ended with code {done.returncode} and made no program: see whether it works"
        )
