"""Signals that end a run: all of them, SIGQUIT (Ctrl-\\) included, end it in order as Ctrl-C
does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(KeyboardInterrupt):
    """A signal has ended the run. A subclass is needed: if KeyboardInterrupt itself passes through
    an `exec`, as in the import of a dataclass, Python ends by SIGINT and ignores the exit code."""


@contextmanager
def orderly_end(came: list[int]) -> Iterator[None]:
    """Within the block each of these signals raises Ended, and its number is appended to `came`. A
    signal that the parent ignores (`nohup`, a background job of a shell) stays ignored. After the
    block all are ignored, since the process is about to end."""

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
    """Ignore these signals: the parent receives them too, and ends this process."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Block these signals while resources are acquired or released."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
