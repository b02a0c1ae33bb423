"""Signals that end a run: all of them end it in order, as Ctrl-C does, SIGQUIT (Ctrl-\\) too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(KeyboardInterrupt):
    """Of the base class itself Python remembers that it passed through an `exec`, which the import
    of every dataclass is, and ends by SIGINT whatever the exit code was to be."""


@contextmanager
def orderly_end(came: list[int]) -> Iterator[None]:
    """While this is open each of them is a KeyboardInterrupt, and its number is added to those that
    `came`; one that the parent has set to be ignored (`nohup`, a shell's background job) stays so.
    Afterwards all are ignored: what is left is the end of the process."""

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise Ended

    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        ignore_endings()


def ignore_endings() -> None:
    """Leave the end to another process, which was sent the same signal."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Let them wait until what is made or cleared away here is in safe hands."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
