"""Child processes that do not outlive the run: how one begins, and how it is ended."""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing.process import BaseProcess

from cudareduce.signals import ignore_endings

#: From linux/prctl.h: the signal that a process gets when what it was forked from ends.
_PR_SET_PDEATHSIG = 1


def follow_parent() -> None:
    """In a child: leave the end to the parent, and end when that does; be a group of its own, so
    that compilers end with it."""
    ignore_endings()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(process: BaseProcess, wait_s: float) -> None:
    """End a child with all that it has started, and wait so long for it."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # gone, or not yet a group of its own
            process.kill()
    process.join(wait_s)
