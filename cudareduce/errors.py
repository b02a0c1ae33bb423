"""What can go wrong, as exceptions that carry the exit code which scripts rely on.

Every message is one sentence or two: what happened and what to do next.
"""

from __future__ import annotations


class CudareduceError(Exception):
    """Base of all expected failures; an error without a class of its own is internal."""

    exit_code = 70


class UsageError(CudareduceError):
    """A bad option, an unknown name, or a file that cannot be read, parsed or compiled."""

    exit_code = 2


class BaselineError(CudareduceError):
    """A baseline is missing or was made on another machine."""

    exit_code = 5


class EnvironmentProblem(CudareduceError):
    """No usable GPU, driver, library or compiler for what was asked."""

    exit_code = 6


class BuildError(UsageError):
    """A kernel does not compile; the message holds the compiler's own lines."""


class Undecided(CudareduceError):
    """There was not enough time to tell whether a kernel is right."""

    exit_code = 4


class NotEmulated(BuildError):
    """A kernel uses something of CUDA that the emulator has not: it cannot be decided here."""


class KernelFault(CudareduceError):
    """A launch went wrong: invalid access, deadlock, a hazard, a launch the device refuses."""

    exit_code = 3


class OutOfMemory(CudareduceError):
    """The device has not enough memory; the combination is skipped."""

    exit_code = 6


class TooManyBlocks(CudareduceError):
    """A kernel waits for its whole grid, of which the device holds too few blocks at a time; the
    combination is skipped."""

    exit_code = 6


#: What each exit code of the command means.
EXIT_CODES = {
    0: "success",
    1: "a kernel is SLOWER, WORSE, BROKEN or GONE",
    2: "invalid option, unknown name, or a file that cannot be read, parsed or compiled",
    3: "a result is WRONG",
    4: "nothing was decided: MACHINE, out of time, all UNCERTAIN or NEW, or one with `--strict`",
    5: "the baseline is missing, or was measured on another machine",
    6: "no usable GPU, driver, library or compiler",
    70: "internal error",
    130: "interrupted by Ctrl-C",
}
#: Where several outcomes apply in one run, the first of these wins.
EXIT_CODE_ORDER = (2, 6, 5, 3, 1, 4)


def worst_exit_code(codes: set[int]) -> int:
    """The one exit code that a run with these outcomes ends with; 0 if there are none. A code that
    no outcome has, as that of Ctrl-C, comes before all."""
    ended = codes - {0, *EXIT_CODE_ORDER}
    return max(ended) if ended else next((code for code in EXIT_CODE_ORDER if code in codes), 0)
