"""Machine instructions by their kinds: which words of an opcode count, and how often each stands.

The same opcode bears other words on other architectures (`LDG.E.SYS`, `LDG.E.CONSTANT`); what says
nothing of the time it takes is left out, so that histograms can be read and compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: Of accesses to memory the width counts, of these others all words do, of the rest none.
_MEMORY = re.compile(r"(LD|ST|ATOM|RED)(?!UX)[A-Z]*(\.|$)")
_WIDTH = re.compile(r"(U8|S8|U16|S16|64|128|256)$")
_WHOLE = re.compile(r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND|MEMBAR|MUFU)(\.|$)")

#: What is judged or told by name.
KINDS = {
    "wide_loads": r"LDG\.(128|256)|LD\.(128|256)",
    "global_loads": r"(LDG|LDGSTS|UBLKCP)(\.|$)",
    "shuffles": r"SHFL",
    "warp_reductions": r"C?REDUX",
    "barriers": r"BAR$",
    "fences": r"MEMBAR",
    "sleeps": r"NANOSLEEP",
    "calls": r"CALL",
    "atomics": r"(ATOMG?|REDG?)(\.|$)",
    "local": r"(LDL|STL)(\.|$)",
    "double": r"(DADD|DMUL|DFMA|DSETP|DMNMX|DMMA)$|MUFU\..*64H",
    "conversions": r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND)(\.|$)",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def shortened(opcode: str) -> str:
    """An opcode without the words that do not count."""
    if _WHOLE.match(opcode):
        return opcode
    name, *words = opcode.split(".")
    if not _MEMORY.match(opcode):
        return name
    return ".".join([name, *(word for word in words if _WIDTH.match(word))])


def counts_of(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Instructions in a histogram: all, and those of each kind."""
    counts = {"all": sum(opcodes.values())}
    for kind, pattern in _PATTERNS.items():
        counts[kind] = sum(n for opcode, n in opcodes.items() if pattern.match(opcode))
    return counts


def histogram_text(opcodes: Mapping[str, int]) -> str:
    """A histogram as it is stored: `FADD:14 LDG:8`."""
    return " ".join(f"{opcode}:{opcodes[opcode]}" for opcode in sorted(opcodes))


def read_histogram(text: str) -> dict[str, int]:
    """What `histogram_text` has written; a ValueError of anything else."""
    opcodes: dict[str, int] = {}
    for part in text.split():
        opcode, _, count = part.rpartition(":")
        if not re.fullmatch(r"[A-Z][\w.]*", opcode) or not re.fullmatch(r"[1-9]\d{0,8}", count):
            raise ValueError(part)
        opcodes[opcode] = int(count)
    return opcodes


def differences(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    """Opcodes of which there are more or fewer, those that differ most first: `+8 LDG`."""
    moved = {name: new.get(name, 0) - old.get(name, 0) for name in {*old, *new}}
    for name in sorted(moved, key=lambda name: (-abs(moved[name]), name)):
        if moved[name]:
            yield f"{moved[name]:+d} {name}"
