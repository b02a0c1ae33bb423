"""The exceptions for expected failures, each with an exit code.

A message has one or two sentences: what happened, and what to do.
"""

from __future__ import annotations


class CudareduceError(Exception):
    """Base class of all expected failures. Any other exception is an internal error."""

    exit_code = 70


class UsageError(CudareduceError):
    """A bad option, an unknown name, or a file that cannot be read, parsed or compiled."""

    exit_code = 2


class BaselineError(CudareduceError):
    """A baseline is missing or was made on another machine."""

    exit_code = 5


class EnvironmentProblem(CudareduceError):
    """The machine lacks a usable GPU, driver, library or compiler."""

    exit_code = 6


class BuildError(UsageError):
    """A kernel does not compile; the message contains the compiler's error lines."""


class Undecided(CudareduceError):
    """The time limit was too short to decide whether a kernel is right."""

    exit_code = 4


class NotEmulated(BuildError):
    """A kernel uses a CUDA feature that the emulator lacks, so the emulator cannot verify it."""


class KernelFault(CudareduceError):
    """A launch failed: invalid access, deadlock, data race, or rejected by the device."""

    exit_code = 3


class OutOfMemory(CudareduceError):
    """The device has too little memory; this kernel and problem are skipped."""

    exit_code = 6


class TooManyBlocks(CudareduceError):
    """A kernel needs all blocks of its grid to be resident, and the device cannot hold as many;
    this kernel and problem are skipped."""

    exit_code = 6


#: The meaning of each exit code.
EXIT_CODES = {
    0: "success",
    1: "a kernel is SLOWER, WORSE, BROKEN or GONE",
    2: "invalid option, unknown name, or a file that cannot be read, parsed or compiled",
    3: "a result is WRONG",
    4: "nothing was decided: MACHINE, out of time, all UNCERTAIN or NEW, one with `--strict`, or a "
    "slowdown in `compare` that may be drift",
    5: "the baseline is missing, or was measured on another machine",
    6: "no usable GPU, driver, library or compiler",
    70: "internal error",
    130: "interrupted by Ctrl-C",
}
#: The priority of exit codes if a run has several outcomes.
EXIT_CODE_ORDER = (2, 6, 5, 3, 1, 4)


def worst_exit_code(codes: set[int]) -> int:
    """The exit code of a run with these outcomes, by EXIT_CODE_ORDER; 0 if there are none. Other
    codes, such as 130 for Ctrl-C, have priority."""
    ended = codes - {0, *EXIT_CODE_ORDER}
    return max(ended) if ended else next((code for code in EXIT_CODE_ORDER if code in codes), 0)
