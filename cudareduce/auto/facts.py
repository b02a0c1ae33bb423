"""What a choice depends on of a GPU, and what it is: a kernel and its launch shape."""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.library.header import Grid
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import DeviceInfo, DeviceLimits

#: One load of a thread, and those that kernels of tiles have under way at a time, in bytes.
LOAD, LOADS = 16, 64
#: Bytes of a word; and of elements that have no place beside them in one that an atomic takes.
WORD, TWO_WORDS = 4, 8
#: Chunks that are dealt out: threads a block, and bytes a thread. 64 rows of 2^22 float32 take 343
#: us by them, 352 where blocks stride; with their places 457 and 379, of int64 347 and 382 (H100).
CHUNK = (512, 128)
#: Bytes a thread of those of a large input, where an SM has time for the next, and where not: 341.7
#: and 343.1 us at 2^28 float32 on an H100, 237.6 and 236.6 on an H200, where a ring takes 237.6 and
#: on another card 240.9.
_LARGE_CHUNK = (256, 512)
#: Compute capabilities whose SMs have room for a ring of so many bytes; those of 12 have 99 KiB. Of
#: eight bytes an element one block an SM adds too slowly: 616 us at 2^28 float64, tiles 475.
RING, RING_BYTES = ("9.", "10."), 192 * 2**10
#: From so many times the L2 on chunks are ahead in a fixed order: by 0.3 % at 17 times on an H200.
_MANY_L2 = 16
#: Where the driver does not tell them, those of an H200: bytes, and GB/s.
_L2_BYTES, _PEAK_GB_S = 60 * 2**20, 4814.3
#: What one SM takes through a ring, in GB/s: 16 of an H100's took 1920, 24 of an H200's 3000.
_OF_SM_GB_S = 120.0
#: What each still adds where many do, in GB/s: more than bandwidth over this many only disturb one
#: another. 32 of an H100's SMs read at 97.9 % by tickets, 64 at 96; an H200's 48 at 90, 56 at 89.
_ADDED_GB_S = 100.0
#: The parts of a GPU (GPCs) that SMs belong to: where blocks are no multiple of them some have one
#: more. 56, 60, 64 and 66 blocks of tiles read at 94.1, 91.7, 95.4 and 93.2 % on an H200, 32, 33
#: and 36 rings at 93.7, 91.2 and 92.5 % on an H100.
_PARTS = 8
#: Up to how much bandwidth an SM has time for work that is dealt out, in GB/s. At 2^28 chunks
#: win 1 % on an H100, of 25 an SM, and lose 8 on an H200, of 36; tickets on 48 SMs win 10, lose 18.
_LEISURE_GB_S = 30.0
#: How long a load from memory takes, in us: bandwidth times this must be under way at any time.
_LATENCY_US = 0.8


@dataclass(frozen=True, slots=True)
class Facts:
    """What a choice depends on: the device's limits, what is known of it, hardware that is missing,
    and how many SMs may work, None for all."""

    limits: DeviceLimits
    info: DeviceInfo
    lacks: tuple[str, ...] = ()
    sms: int | None = None

    def run(self, kernel: Kernel) -> bool:
        """Whether the device has what a kernel needs, and the kernel leaves answers there."""
        enough = self.info.cc is None or float(self.info.cc) >= float(kernel.min_cc)
        return enough and not set(kernel.requires) & set(self.lacks) and kernel.finish != "host"

    @property
    def rings(self) -> int:
        """Bytes of the rings of some of the SMs, 0 where all may work."""
        few = self.sms is not None and self.sms < self.limits.sm_count
        return RING_BYTES * (self.sms or 0) * few

    @property
    def has_rings(self) -> bool:
        """Whether its SMs have room for a ring."""
        return (self.info.cc or "").startswith(RING)

    @property
    def gb_s(self) -> float:
        """The bandwidth of the memory in theory."""
        return self.info.peak_gb_s or _PEAK_GB_S

    @property
    def busy(self) -> bool:
        """Whether the SMs that may work could take more than the memory gives. Then it serves some
        of them quicker than others; until then a ticket is but one more thing to wait for."""
        sms = self.limits.sm_count if self.sms is None else self.sms
        return sms * _OF_SM_GB_S >= self.gb_s

    @property
    def leisurely(self) -> bool:
        """Whether an SM's share of the bandwidth leaves time to be dealt its work."""
        return self.gb_s <= _LEISURE_GB_S * self.limits.sm_count

    @property
    def enough(self) -> int:
        """How many SMs with a ring read as fast as more."""
        return evenly(self.gb_s / _ADDED_GB_S)

    @property
    def pairs(self) -> int:
        """Pairs of SMs that share a way to memory."""
        return self.limits.sm_count // 2

    @property
    def deals(self) -> bool:
        """Whether small chunks may be dealt out to SMs, of which none is left out."""
        return self.leisurely and self.sms is None

    @property
    def chunk(self) -> int:
        """Bytes that a thread takes of a chunk of a large input: more where an SM has no time for
        blocks that end and begin."""
        return _LARGE_CHUNK[not self.leisurely]

    @property
    def l2(self) -> int:
        """Bytes of the L2."""
        return self.info.l2_bytes or _L2_BYTES

    @property
    def large(self) -> int:
        """Bytes of an input beside which the L2 is small."""
        return self.l2 * _MANY_L2

    @property
    def under_way(self) -> float:
        """Bytes that must be under way to keep the memory busy."""
        return self.gb_s * 1e3 * _LATENCY_US


@dataclass(frozen=True, slots=True)
class Pick:
    """A kernel by its name, and a launch shape: threads a block, elements a thread and the rule for
    the grid; None is the kernel's own. No more than `blocks`, if they are told."""

    kernel: str
    block: int | None = None
    items: int | None = None
    grid: Grid | None = None
    blocks: int | None = None


def evenly(blocks: float) -> int:
    """So many blocks that no part of the GPU has more than another."""
    return int(blocks) // _PARTS * _PARTS or max(1, int(blocks))
