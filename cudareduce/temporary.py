"""Folders for the time of a run, and the end of those whose run was killed and left them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_PREFIX = "cudareduce-"
#: Locked by the process whose folder it is for as long as that lives: a number of a process would
#: say nothing where containers share the place.
_LOCK = ".lock"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder, as the standard library makes it. If this process is killed before it removes
    it, the next one that asks for a folder does; what earlier ones have left goes now."""
    folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    _remove_abandoned(Path(folder.name).parent)
    with suppress(OSError):  # without locks it is nobody's to remove
        handle, made = tempfile.mkstemp(dir=folder.name)
        weakref.finalize(folder, os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        Path(made).rename(Path(folder.name, _LOCK))  # only now may others look at it
    return folder


def _remove_abandoned(where: Path) -> None:
    for lock in where.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as file:  # gone, in use, or another user's
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
