"""Standard output, whose reader may go away before the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cudareduce.errors import UsageError


@contextmanager
def to_reader() -> Iterator[None]:
    """Print to someone who may have read enough (`| head`): the rest is dropped, and the exit code
    is what it would have been. A full disk is a UsageError."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # Rich would exit with 1, which is a regression
        # Python flushes once more as it ends; by then nobody must be there to complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"cannot write to standard output: {error.strerror}") from None
