"""Standard output and standard error, whatever they lead to: a pipe whose reader leaves, a full
disk, nothing at all. Only what standard output cannot take is an error, and never a regression."""

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
    """A file descriptor that is written to until it fails once; what comes after is dropped, so
    that Python has nothing to complain of as it ends. `result` says that what is written is what
    the command was asked for: there, a failure that is no reader's leaving is a UsageError, and so
    is a descriptor that was closed."""

    def __init__(self, number: int, *, result: bool, closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._result, self._closed, self._lost = result, closed, False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of it; None of the base class, a terminal set not to block, is waited for."""
        try:
            while not self._lost:
                if self._closed:
                    raise OSError(errno.EBADF, "it is closed")
                written = super().write(data)
                if written is not None:
                    return written
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
    """Make standard output and standard error ones that do no harm: what cannot be written to
    standard error is dropped, and what cannot be written to standard output is a UsageError unless
    its reader left, as it is where that is closed. An encoding without ± spells it."""
    sys.stdout = _guarded(1, sys.stdout, "cudareduce.spelled", result=True)
    sys.stderr = _guarded(2, sys.stderr, "backslashreplace", result=False)


def _guarded(number: int, stream: TextIO | None, errors: str, *, result: bool) -> io.TextIOWrapper:
    if stream is None:  # closed: the next file to be opened would take its number
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.set_inheritable(number, True)
    buffer = io.BufferedWriter(_Descriptor(number, result=result, closed=stream is None))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    lines = not result or os.isatty(number)
    return io.TextIOWrapper(buffer, encoding, errors, line_buffering=lines)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks: +- for ±, else a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join({"±": "+-"}.get(letter, "?") for letter in lacking), error.end


codecs.register_error("cudareduce.spelled", _spelled)
