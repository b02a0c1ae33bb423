"""Permission to read hardware counters, and how to grant it."""

from __future__ import annotations

from pathlib import Path

#: Results of `counters`: unknown to the driver, or restricted to root.
UNKNOWN, ADMINISTRATORS = "not found", "for administrators only"
INSTALL_NCU = "Nsight Compute (Debian: apt-get install nsight-compute)"
ALLOW = (
    "hardware counters are for administrators only: run as root (in a container with "
    "--cap-add=SYS_ADMIN), or write 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' to "
    "/etc/modprobe.d/nvidia.conf and reload the driver"
)
_PARAMETERS = Path("/proc/driver/nvidia/params")


def counters() -> str:
    """Who may read hardware counters, according to the driver."""
    try:
        text = _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return UNKNOWN
    return ADMINISTRATORS if "RmProfilingAdminOnly: 1" in text else "for all users"
