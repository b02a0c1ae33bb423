"""Whether two runs were made on the same machine: what must match, what is worth a warning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cudareduce.machine.device import DeviceInfo

#: What decides how fast a reduction can be; a run with another value is another machine's.
STRICT = {
    "name": "GPU",
    "cc": "compute capability",
    "sm_count": "number of SMs",
    "l2_bytes": "L2 size",
    "memory_clock_khz": "memory clock",
    "bus_bits": "memory width",
    "ecc": "ECC",
    "mig": "MIG",
    "power_limit_w": "power limit",
}
#: What may change how fast it is, but is changed on purpose and often.
LOOSE = {"driver": "driver", "cuda": "CUDA", "nvcc": "nvcc"}


@dataclass(frozen=True, slots=True)
class Match:
    """What differs between two machines, in words; `other_card` is another one of the same model,
    or of another model: either way only shares of each card's own ceiling can be compared."""

    differences: tuple[str, ...]
    warnings: tuple[str, ...]
    other_card: bool


def match(old: DeviceInfo, new: DeviceInfo) -> Match:
    """Compare two machines. What one of them does not tell is a warning, not a difference."""
    differences: list[str] = []
    warnings = _untold(old, new)
    for field, words in (STRICT | LOOSE).items():
        before, after = getattr(old, field), getattr(new, field)
        if before is None or after is None or _same(before, after):
            continue
        text = f"{words} {_text(before)}, now {_text(after)}"
        (differences if field in STRICT else warnings).append(text)
    other = old.uuid is not None and new.uuid is not None and old.uuid != new.uuid
    if (old.uuid is None) != (new.uuid is None):
        warnings.append("only one run knows which card it was made on: taken for the same")
    return Match(tuple(differences), tuple(warnings), other or bool(differences))


def _untold(old: DeviceInfo, new: DeviceInfo) -> list[str]:
    """What only one of two runs tells, so that it is not known whether it is the same."""
    found = []
    for side, silent, other in (("the baseline", old, new), ("the new run", new, old)):
        missing = [
            words
            for field, words in (STRICT | LOOSE).items()
            if getattr(silent, field) is None and getattr(other, field) is not None
        ]
        if missing:
            found.append(f"{side} does not tell the {', '.join(missing)}: taken for the same")
    return found


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return abs(before - after) < 0.5  # watts; drivers round
    return bool(before == after)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
