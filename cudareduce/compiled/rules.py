"""What must hold of compiled kernels, whatever a baseline says.

They read PTX and the assembler's words, so they need nvcc and nothing else: PTX vector loads and
fences become one machine instruction each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudareduce.compiled.nvcc import Compiled
from cudareduce.compiled.resources import Resources
from cudareduce.library.kernel import Kernel
from cudareduce.problem.operators import Reduction
from cudareduce.problem.sizes import counted

_IGNORED = re.compile(r".*will be ignored.*")
#: A load of 16 bytes or more at once, or a bulk copy.
_WIDE = re.compile(
    r"\bld\.[\w.:]*global[\w.:]*\.(v4\.[bfsu]32|v2\.[bfsu]64|v8\.[bfsu](16|32)|v4\.[bfsu]64|b128)"
    r"|\bcp\.async\.bulk\b|\bcp\.async\.c[ag]\.shared\.global[^;]*,\s*16\b"
)
#: A write that others may see: a store, be it through a generic pointer, or an atomic in its place.
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
    """The rules that a compiled kernel breaks, in words."""
    for line in _IGNORED.findall(compiled.said):
        yield f"the assembler says: {line.strip()}"
    if not kernel.foreign and used.spill_bytes:
        yield f"spills {counted(used.spill_bytes, 'byte')} a thread; no kernel of this package may"
    wide = kernel.vector_of(reduction.dtype.size) * reduction.dtype.size >= 16
    if wide and "tma" not in kernel.requires and not _WIDE.search(compiled.ptx):
        yield f"its header says vector = {kernel.vector}, but no load brings 16 bytes"
    if kernel.finish == "last_block":
        reason = _unfenced(compiled.ptx, drawn=kernel.walk == "tickets")
        if reason:
            yield reason


def _unfenced(ptx: str, *, drawn: bool) -> str | None:
    """Why a block may count as arrived before its partial can be seen by the others; where tickets
    are `drawn` it arrives at the last count.

    This reads the text from top to bottom, and sees no branches: a fence between the last store
    and the arrival counts, even under a condition that does not hold wherever the arrival is
    reached. Nor does it see whether the last block has a fence before it reads the partials.
    """
    counts = list(_ARRIVAL.finditer(ptx))
    if not counts:
        return "its finish is last_block, but nothing is counted"
    arrival = counts[-1 if drawn else 0]
    if _releases(arrival[0]):
        return None
    before = ptx[: arrival.start()]
    stores = list(_STORE.finditer(before))
    if _FENCE.search(before, stores[-1].end() if stores else 0):
        return None
    return "no fence between a block's partial and its arrival: another block may miss the partial"


def _releases(atomic: str) -> bool:
    """Whether an atomic shows all other blocks what was stored before it; without a scope it is
    the GPU's (PTX ISA, atom)."""
    words = set(atomic.split("."))
    return bool(words & {"release", "acq_rel"}) and not words & {"cta", "cluster"}
