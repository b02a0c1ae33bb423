"""What nothing can be faster than: theory, and what a kernel that only reads reached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cudareduce.machine.device import DeviceInfo
from cudareduce.plot.figure import Mark
from cudareduce.report.numbers import plain_text
from cudareduce.results.record import Record


def theory(axis: Literal["x", "y"], device: DeviceInfo) -> tuple[Mark, ...]:
    """The mark of the device's theory, where it is known."""
    return _marks(axis, "theory", device.peak_gb_s)


def limits(
    axis: Literal["x", "y"], device: DeviceInfo, records: Iterable[Record]
) -> tuple[Mark, ...]:
    """The marks of the ceiling, as these records of one size have it, and of theory."""
    ceiling = next((r.ceiling_gb_s for r in records if r.ceiling_gb_s), None)
    return (*_marks(axis, "ceiling", ceiling), *theory(axis, device))


def _marks(axis: Literal["x", "y"], name: str, at: float | None) -> tuple[Mark, ...]:
    return (Mark(axis, at, f"{name} {plain_text(at, 4)} GB/s"),) if at else ()
