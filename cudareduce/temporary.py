"""Temporary folders, and removal of the folders of killed runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_PREFIX = "cudareduce-"
#: A file that the owner of the folder keeps locked. A process id would be ambiguous, since
#: containers may share the temporary folder.
_LOCK = ".lock"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder. First removes those of processes that were killed before they
    could remove theirs."""
    folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    _remove_abandoned(Path(folder.name).parent)
    with suppress(OSError):  # a file system without locks: the folder is never removed
        handle, made = tempfile.mkstemp(dir=folder.name)
        weakref.finalize(folder, os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        Path(made).rename(Path(folder.name, _LOCK))  # after locking, so it is never seen unlocked
    return folder


def _remove_abandoned(where: Path) -> None:
    for lock in where.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as file:  # gone, in use, or another user's
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
