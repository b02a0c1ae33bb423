"""What nvcc makes of a kernel: PTX, or machine code with a word beside what costs time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudareduce.compiled.nvcc import Compiled, find_nvcc
from cudareduce.compiled.opcodes import counts_of
from cudareduce.compiled.resources import parse_resources
from cudareduce.compiled.sass import Instruction, code_of, find_disassembler
from cudareduce.compiled.units import reading_stage
from cudareduce.errors import BuildError, EnvironmentProblem, UsageError
from cudareduce.launch.prelude import source
from cudareduce.library.kernel import Kernel
from cudareduce.problem.operators import Reduction

#: What is said beside instructions, by the beginnings of their opcodes; the first that fits.
_WORDS = {
    r"(LDG|LD)(\.\w+)*\.(128|256)": "16 bytes from memory",
    r"(LDG|LD|LDGSTS|UBLKCP)(\.|$)": "from memory",
    r"(STG|ST)(\.|$)": "to memory",
    r"(LDS|LDSM)(\.|$)": "from shared memory",
    r"STS(\.|$)": "to shared memory",
    r"(LDL|STL)(\.|$)": "spilled: memory in the place of a register",
    r"(ATOMG?|REDG?)(\.|$)": "in the L2, one after the other",
    r"(ATOMS)(\.|$)": "in shared memory, one after the other",
    r"SHFL": "to another lane",
    r"C?REDUX|VOTE|MATCH": "the whole warp at once",
    r"BAR\.|BAR$": "the block waits",
    r"WARPSYNC|BSYNC": "the warp waits",
    r"MEMBAR": "what was written is seen by others",
    r"SYNCS|UTMA|FENCE": "bulk copies and who waits for them",
    r"NANOSLEEP": "sleeps",
    r"(DADD|DMUL|DFMA|DSETP|DMNMX)(\.|$)": "64 bits",
    r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND)(\.|$)": "another type",
}
#: Where words stand.
_COLUMN = 60


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kernel is compiled for; `block` and `items` are its own where they are None."""

    arch: int
    reduction: Reduction
    block: int | None = None
    items: int | None = None


def ptx_text(kernel: Kernel, shape: Shape) -> str:
    """PTX, as nvcc makes it. What does not compile is a UsageError."""
    return _compiled(kernel, shape).ptx


def sass_text(kernel: Kernel, shape: Shape) -> str:
    """Machine code from top to bottom, words beside what costs time; first the figures. Raises
    EnvironmentProblem where no disassembler is."""
    compiled = _compiled(kernel, shape)
    disassembler = find_disassembler()
    if disassembler is None:
        raise EnvironmentProblem(
            "cuobjdump and nvdisasm were not found: pip install 'cudareduce[compile]', or see --ptx"
        )
    lines = disassembler.listed(compiled.cubin, kernel.entry)
    head = [f"// {line}" for line in _figures(kernel, shape, compiled, lines)]
    return "\n".join([*head, *map(_line, lines)]) + "\n"


def _compiled(kernel: Kernel, shape: Shape) -> Compiled:
    """The stage that reads elements."""
    reduction = shape.reduction
    why = kernel.why_not(reduction)
    if why:
        raise UsageError(f"{kernel.id} {why}")
    if shape.arch < 10 * float(kernel.min_cc):
        raise UsageError(
            f"{kernel.id} takes cc {kernel.min_cc}: --arch {round(10 * float(kernel.min_cc))}"
        )
    items = shape.items or kernel.items_of(reduction.dtype.size)
    block = shape.block or kernel.block
    for refused in (kernel.why_not_block(block), kernel.why_not_items(items, reduction.dtype.size)):
        if refused:
            raise UsageError(f"{kernel.id} {refused}")
    stage = reading_stage(kernel, reduction)
    made = find_nvcc().compile(source(kernel, reduction, stage, block, items), shape.arch)
    if isinstance(made, BuildError):
        raise UsageError(f"{kernel.id} does not compile for sm_{shape.arch}: {made}")
    return made


def _figures(
    kernel: Kernel, shape: Shape, compiled: Compiled, lines: Sequence[Instruction]
) -> Iterator[str]:
    """What a reader looks for first."""
    used = parse_resources(compiled.said, kernel.entry)
    code = code_of(lines, kernel.entry)
    counts = counts_of(code.opcodes)
    what = f"{shape.reduction.op.name} of {shape.reduction.dtype.name}"
    yield f"{kernel.id}, {what}, sm_{shape.arch}, {shape.block or kernel.block} threads a block"
    yield (
        f"{used.registers} registers a thread, {used.shared_bytes} bytes of shared memory a block, "
        f"{used.spill_bytes} bytes spilled"
    )
    named: Sequence[str] = [
        f"{count} {kind.replace('_', ' ')}"
        for kind, count in counts.items()
        if count and kind not in ("all", "local")
    ]
    yield f"{counts['all']} instructions: {', '.join(named)}"
    yield f"{code.in_flight} bytes of loads under way, before any is needed"


def _line(instruction: Instruction) -> str:
    text = f"{instruction.address}  {instruction.text}"
    word = next((w for what, w in _WORDS.items() if re.match(what, instruction.opcode)), "")
    return f"{text:<{_COLUMN}} // {word}" if word else text
