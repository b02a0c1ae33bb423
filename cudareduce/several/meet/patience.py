"""Calls that wait for other ranks, in libraries and on GPUs, and may do so for ever.

Nothing but the end of the process ends them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from cudareduce.errors import EnvironmentProblem

#: The longest that anything takes on sound machines, many times over, in s.
LIMIT_S = 30.0
#: What stands in the last words of a process that has waited too long.
GAVE_UP = "has not ended within"
_LIBRARY = "see what else runs on these GPUs, and what NCCL_DEBUG=INFO tells"


def say_last(why: str) -> None:
    """Say why this process ends, from a thread that nobody waits for."""
    print(f"cudareduce: {why}", file=sys.stderr, flush=True)


@contextmanager
def patience(
    what: str, limit_s: float = LIMIT_S, next_step: str = _LIBRARY,
    code: int = EnvironmentProblem.exit_code,
) -> Iterator[None]:  # fmt: skip
    """End this process with a code, and say so, where what is inside takes longer: other ranks are
    told by the meeting."""

    def end() -> None:
        say_last(f"{what} {GAVE_UP} {limit_s:g} s: {next_step}")
        os._exit(code)

    timer = Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
