"""Checks that the inputs of a verification fit into host memory."""

from __future__ import annotations

from pathlib import Path

#: The fraction of available memory that may be used.
_SHARE = 0.9


def why_too_large(nbytes: int) -> str | None:
    """Why `nbytes` exceed host memory; None if they fit, or if the available memory is unknown."""
    available = available_bytes()
    if available is None or nbytes < available * _SHARE:
        return None
    return f"needs {nbytes / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"


def available_bytes() -> int | None:
    """The memory that Linux reports as available without swapping, in bytes; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
