"""What a card was in while it was timed, and what it is set to: why it may be slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from cudareduce.machine.device import Conditions, DeviceInfo
from cudareduce.several.fleet.store import Time

#: What cards of one model may be set to, and what serves them.
_SETTINGS = {
    "memory_clock_khz": "memory clock in kHz", "ecc": "ECC", "power_limit_w": "power limit in W",
    "driver": "driver", "cuda": "CUDA", "nvcc": "nvcc",
}  # fmt: skip


def state_of(times: Sequence[Time]) -> tuple[Conditions, tuple[str, ...] | None]:
    """The middle of what a GPU was in, and all that has slowed it down; None is unknown."""
    told = [one.event_reasons for one in times if one.event_reasons is not None]
    reasons = {word for text in told for word in text.split(", ")} - {"", "none"}
    state = Conditions(
        sm_mhz=_middle(one.sm_mhz for one in times),
        memory_mhz=_middle(one.memory_mhz for one in times),
        power_w=_middle(one.power_w for one in times),
        temperature_c=_middle(one.temperature_c for one in times),
    )
    return state, tuple(sorted(reasons)) if told else None


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def usual_settings(devices: Iterable[DeviceInfo]) -> Mapping[str, Any]:
    """What most cards of a model are set to."""
    known = list(devices)
    return {name: Counter(getattr(one, name) for one in known).most_common(1)[0][0]
            for name in _SETTINGS}  # fmt: skip


def set_otherwise(device: DeviceInfo, usual: Mapping[str, Any]) -> tuple[str, ...]:
    """What a card has in another way than is usual, in words."""
    found = []
    for name, words in _SETTINGS.items():
        own, most = _word(getattr(device, name)), _word(usual[name])
        if own and most and own != most:
            found.append(f"{words} {own} (most have {most})")
    return tuple(found)


def _word(value: Any) -> str:
    """A setting as it is told, drivers' fractions of a watt aside; nothing if it is unknown."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "on", False: "off"}[value]
    return f"{value:.0f}" if isinstance(value, float) else str(value)
