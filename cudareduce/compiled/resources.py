"""What a kernel takes of an SM, as ptxas reports it, and how many warps fit beside each other."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread: registers, stack and spills; per block: shared memory and barriers."""

    registers: int
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0
    barriers: int = 0

    @property
    def spill_bytes(self) -> int:
        """Bytes that travel because registers ran out."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM holds; `reserved_bytes` of shared memory are the system's in each block."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = 1024


_KIB = 1024
#: CUDA C++ Programming Guide, technical specifications per compute capability.
_SM = {
    75: SmLimits(32, 16, 64 * _KIB, 0),
    80: SmLimits(64, 32, 164 * _KIB),
    86: SmLimits(48, 16, 100 * _KIB),
    87: SmLimits(48, 16, 164 * _KIB),
    89: SmLimits(48, 24, 100 * _KIB),
    90: SmLimits(64, 32, 228 * _KIB),
    100: SmLimits(64, 32, 228 * _KIB),
    103: SmLimits(64, 32, 228 * _KIB),
    120: SmLimits(48, 24, 100 * _KIB),
    121: SmLimits(48, 24, 100 * _KIB),
}
#: 64 Ki registers an SM, given to a warp in units of 256, on every one of these architectures.
_REGISTERS, _REGISTER_UNIT, _PARTITIONS = 65536, 256, 4


def parse_resources(said: str, entry: str) -> Resources:
    """The figures that ptxas -v printed for an entry point; a ValueError if there are none."""
    begin = re.search(rf"Compiling entry function '{re.escape(entry)}'", said)
    if begin is None:
        raise ValueError(f"ptxas said nothing of {entry}")
    text = said[begin.end() :]

    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        shared_bytes=number(r"(\d+) bytes smem"),
        barriers=number(r"used (\d+) barriers"),
    )


def resident_warps(used: Resources, block: int, arch: int) -> int | None:
    """How many warps an SM of sm_`arch` holds at once, in blocks of `block` threads; None for an
    architecture that is not known here."""
    limits = _SM.get(arch)
    if limits is None:
        return None
    warps = -(-block // 32)
    unit = -(-max(used.registers, 1) * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    shared = used.shared_bytes + limits.reserved_bytes
    blocks = min(
        limits.blocks,
        limits.warps // warps,
        _PARTITIONS * (_REGISTERS // _PARTITIONS // unit) // warps,  # a warp lies within one
        limits.shared_bytes // shared if shared else limits.blocks,
    )
    return blocks * warps


def most_warps(arch: int) -> int | None:
    """How many warps an SM of sm_`arch` holds at most; None for one that is not known here."""
    limits = _SM.get(arch)
    return limits.warps if limits else None
