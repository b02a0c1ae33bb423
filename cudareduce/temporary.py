"""Temporary folders of a run, and removal of folders that killed runs have left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_PREFIX = "cudareduce-"
#: Locked by the process that owns the folder, as long as it lives. A process id would not do, since
#: containers may share the temporary folder.
_LOCK = ".lock"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder. If this process is killed before it removes it, the next call in any
    process does; folders of killed processes are removed now."""
    folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    _remove_abandoned(Path(folder.name).parent)
    with suppress(OSError):  # without locks abandoned folders cannot be told
        handle, made = tempfile.mkstemp(dir=folder.name)
        weakref.finalize(folder, os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        Path(made).rename(Path(folder.name, _LOCK))  # visible to others only once it is locked
    return folder


def _remove_abandoned(where: Path) -> None:
    for lock in where.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as file:  # gone, in use, or another user's
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
