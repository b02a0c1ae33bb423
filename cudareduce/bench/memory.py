"""Whether the host's memory holds what a verification needs."""

from __future__ import annotations

from pathlib import Path

#: The share of the available memory that may be asked for.
_SHARE = 0.9


def why_too_large(nbytes: int) -> str | None:
    """Why the host's memory does not hold so many bytes; None if it does, or if nobody knows."""
    available = available_bytes()
    if available is None or nbytes < available * _SHARE:
        return None
    return f"needs {nbytes / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"


def available_bytes() -> int | None:
    """What Linux says a process may still take without swapping; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
