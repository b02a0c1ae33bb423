"""Signals that end a run: all of them, SIGQUIT (Ctrl-\\) included, end it in order as Ctrl-C
does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(KeyboardInterrupt):
    """A signal ends the run. A subclass of KeyboardInterrupt is needed: if KeyboardInterrupt itself
    passes through an `exec`, as when a dataclass is imported, Python ignores the exit code."""


@contextmanager
def orderly_end(came: list[int]) -> Iterator[None]:
    """Context manager in which the signals raise Ended, and their numbers are appended to `came`.
    Signals that the parent ignores (`nohup`, a shell's background job) stay ignored. After the
    block all signals are ignored, since the process is about to end."""

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
    """Ignore the signals in a child process: the parent receives them too, and ends the child."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Context manager that blocks the signals while resources are acquired or released."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
