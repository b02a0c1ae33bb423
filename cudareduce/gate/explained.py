"""What besides a kernel explains a change of its time: a clock, or a time that cannot be. Pure."""

from __future__ import annotations

from math import log

from cudareduce.results.record import Record

#: So many per cent of what a read-only kernel reached none reads: on an H200 the best reach 100.
_OVER_CEILING = 105.0
#: Below so many per cent of what clock and bus width allow, it is launches that take the time.
_WAITS_FOR_MEMORY = 50.0


def explained(old: Record, new: Record, moved: float, limit: float, *, clocks: bool) -> str:
    """Why a change, a logarithm beyond the limit, is none of the kernel's; nothing if it may be.
    `clocks`: both sides ran on one model of card."""
    sides = (old, "the baseline") if moved > 0 else (new, "the new run")
    return _beyond_memory(*sides) or (_clock(old, new, moved, limit) if clocks else "")


def _beyond_memory(quicker: Record, words: str) -> str:
    """A reason where the quicker side read more from memory than memory can bring."""
    share, of_peak = quicker.pct_ceiling, quicker.pct_peak
    waits = of_peak is None or of_peak > _WAITS_FOR_MEMORY
    if share is None or share <= _OVER_CEILING or not waits or quicker.timing[:4] != "cold":
        return ""
    return f"{words} reads at {share:.0f} % of what a read-only kernel reached in the same rounds"


def _clock(old: Record, new: Record, moved: float, limit: float) -> str:
    """A reason where a clock that moved the same way explains half of the change, and all of it but
    what the limit allows. One that moved further explains it too: not all waits for that clock."""
    clocks = {
        "SM": (old.sm_mhz, new.sm_mhz),
        "memory": (old.memory_mhz, new.memory_mhz),
    }
    for name, (before, after) in clocks.items():
        if not before or not after:
            continue
        by = log(before / after)
        if by * moved > 0 and abs(by) >= max(abs(moved) / 2, abs(moved) - limit):
            return (
                f"the {name} clock moved with it, from {before:.0f} to {after:.0f} MHz: "
                "lock the clocks and measure again"
            )
    return ""
