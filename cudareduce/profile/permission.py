"""Who may read the counters of the hardware, and how to allow it: the words, in one place."""

from __future__ import annotations

from pathlib import Path

#: What `counters` says where the driver does not tell, and where only root may.
UNTOLD, ADMINISTRATORS = "not found", "for administrators only"
INSTALL_NCU = "Nsight Compute (Debian: apt-get install nsight-compute)"
ALLOW = (
    "ncu may count for administrators only: run it as root (in a container with "
    "--cap-add=SYS_ADMIN), or write 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' to "
    "/etc/modprobe.d/nvidia.conf and load the driver anew"
)
#: Where the driver tells who may read counters.
_PARAMETERS = Path("/proc/driver/nvidia/params")


def counters() -> str:
    """Who may read the counters of the hardware, as the driver tells it."""
    try:
        text = _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return UNTOLD
    return ADMINISTRATORS if "RmProfilingAdminOnly: 1" in text else "for everybody"
