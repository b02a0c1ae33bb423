"""What links carry: this rank's array to the next rank's output, or the next rank's to its own, as
measurements of several ranks enqueue it."""

from __future__ import annotations

from cudareduce.backend import Program
from cudareduce.several.engines import Stage, compiled
from cudareduce.several.exchange import PACK_BYTES, helper
from cudareduce.several.stopwatch import Enqueue

#: Threads per block of links.cu, and blocks per SM.
THREADS, _BLOCKS = 512, 4


def aligning(stage: Stage) -> Program:
    """What all ranks leave at one time, compiled. Raises BuildError."""
    return helpers(stage, "align.cu", "align")[0]


def judging(stage: Stage) -> Program:
    """What counts the elements of an answer that are wrong, compiled. Raises BuildError."""
    return helpers(stage, "judge.cu", "judge")[0]


def helpers(stage: Stage, file: str, *entries: str) -> list[Program]:
    """Kernels of one of our files that exchange nothing, compiled. Raises BuildError."""
    sources = [helper(file, entry, stage.reduction, stage.comm.size) for entry in entries]
    return compiled(stage, sources)


def carrying(stage: Stage, program: Program, nbytes: int) -> Enqueue:
    """Calls of a kernel of links.cu on so many bytes, by as many blocks as fill the GPU."""
    parts, grid = stage.windows.layout, _BLOCKS * stage.backend.limits().sm_count
    places = [parts.input, parts.output, -(-nbytes // PACK_BYTES)]
    launch = stage.backend.launcher(program, grid, THREADS, [stage.windows.words(), *places])
    return lambda _: launch
