"""Makes standard output and standard error robust: closed pipes, full disks, missing descriptors.

Only a failed write to standard output is an error, with the exit code of a usage error."""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from cudareduce.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Descriptor(io.FileIO):
    """A file descriptor that drops all output after the first failed write, so that Python reports
    no error at exit. On a `result` stream a failure other than a broken pipe, and a descriptor that
    was `closed` from the start, is a UsageError."""

    def __init__(self, number: int, *, result: bool, closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._result, self._closed, self._lost = result, closed, False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while not self._lost:
                if self._closed:
                    raise OSError(errno.EBADF, "it is closed")
                written = super().write(data)
                if written is not None:
                    return written
                # None: a non-blocking terminal is not ready.
                select.select([], [self.fileno()], [])
        except BrokenPipeError:
            self._lost = True
        except OSError as error:
            self._lost = True
            if self._result:
                raise UsageError(
                    f"cannot write to standard output: {error.strerror}; choose another place"
                ) from None
        return memoryview(data).nbytes


def guard_streams() -> None:
    """Replace standard output and standard error by robust streams. An encoding without ± gets
    +- instead."""
    sys.stdout = _guarded(1, sys.stdout, "cudareduce.spelled", result=True)
    sys.stderr = _guarded(2, sys.stderr, "backslashreplace", result=False)


def _guarded(number: int, stream: TextIO | None, errors: str, *, result: bool) -> io.TextIOWrapper:
    if stream is None:  # closed: the next opened file would get this descriptor
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.set_inheritable(number, True)
    buffer = io.BufferedWriter(_Descriptor(number, result=result, closed=stream is None))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    lines = not result or os.isatty(number)
    return io.TextIOWrapper(buffer, encoding, errors, line_buffering=lines)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: +- for ±, else a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join("+-" if letter == "±" else "?" for letter in missing), error.end


codecs.register_error("cudareduce.spelled", _spelled)
