"""The text of a kernel file, which may be anything that bears such a name."""

from __future__ import annotations

import stat
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.front import OPENS

#: No kernel is longer, in bytes; what is was most likely named by mistake.
_LARGEST = 4 * 2**20


def read_source(path: Path) -> str:
    """What a kernel file holds. What is no plain text file of 4 MiB at most is a UsageError."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise UsageError(f"cannot read {path}: it is a folder; name a file in it")
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"cannot read {path}: it is a device or a pipe; name a file")
        if about.st_size > _LARGEST:
            raise UsageError(f"cannot read {path}: it has more than 4 MiB; name a kernel's source")
        data = path.read_bytes()
    except FileNotFoundError as error:
        reason = f"{error.strerror}; check the name (`cudareduce list` shows those of kernels)"
        raise UsageError(f"cannot read {path}: {reason}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if b"\0" in data:
        raise UsageError(f"cannot read {path}: not a text file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("latin-1").replace("\r\n", "\n")  # remarks in the letters of old editors


def has_header(path: Path) -> bool:
    """Whether a kernel file has a header, be it right or not; one that cannot be read is a
    UsageError."""
    return OPENS in read_source(path)
