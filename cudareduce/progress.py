"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing if
quiet."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from time import monotonic
from typing import Protocol

from cudareduce.escapes import lines_shown

#: Seconds between two lines where there is no bar.
_LINE_S = 10.0


class Progress(Protocol):
    """One phase of a run."""

    def step(self) -> None:
        """One more of its steps is done."""

    def now(self, what: str) -> None:
        """What is being done, in a few words."""


class _Silent:
    def step(self) -> None: ...

    def now(self, what: str) -> None: ...


class _Lines:
    """A line when a phase begins, and one whenever it has taken so much longer."""

    def __init__(self, what: str, total: int, clock: Callable[[], float] = monotonic) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._done, self._doing, self._said = 0, "", clock()
        self._began = self._said  # when the first step had ended, once it has
        say(f"{what} ({total})")

    def step(self) -> None:
        self._done += 1
        if self._done == 1:
            self._began = self._clock()
        self._tell()

    def now(self, what: str) -> None:
        self._doing = what
        self._tell()

    def _tell(self) -> None:
        now = self._clock()
        if now < self._said + _LINE_S:
            return
        self._said = now
        left = ""
        if self._done > 1:  # the first one has compiled and verified for all others
            left_s = (now - self._began) / (self._done - 1) * (self._total - self._done)
            left = f", about {duration_text(left_s)} left"
        doing = f", {self._doing}" if self._doing else ""
        say(f"{self._what}: {self._done} of {self._total}{doing}{left}")


@contextmanager
def phase(what: str, total: int, quiet: bool) -> Iterator[Progress]:
    """Announce a phase of `total` steps."""
    if quiet or not total:
        yield _Silent()
    elif not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines(what, total)
    else:
        with _bar(what, total) as bar:
            yield bar


@contextmanager
def _bar(what: str, total: int) -> Iterator[Progress]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(), progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[doing]}", style="dim"),
    )  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, doing="")

        class Bar:
            def step(self) -> None:
                shown.advance(task)

            def now(self, what: str) -> None:
                shown.update(task, doing=what)

        yield Bar()


def duration_text(seconds: float) -> str:
    """A duration as people say it: 41 s, 2 min, 1 min 41 s."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{whole} s"
    return f"{minutes} min" + (f" {rest} s" if rest else "")


def say(text: str, quiet: bool = False) -> None:
    """A line on standard error that is not part of the result; none if there is nothing to say."""
    if text and not quiet and sys.stderr is not None:
        shown = lines_shown(text)
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            shown = "\n".join(wrap(shown, width, break_long_words=False, break_on_hyphens=False))
        print(shown, file=sys.stderr, flush=True)
