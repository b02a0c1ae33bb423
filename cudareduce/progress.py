"""Progress on standard error: a bar on a terminal, lines at intervals elsewhere, nothing if quiet.

The time left follows from the work that is done. Results that are decided before the phase ends are
shown as lines.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from time import monotonic

from cudareduce.text import lines_shown

#: Seconds between two lines where there is no bar.
_LINE_S = 10.0
#: The share of the work after which the time left is shown: the first jobs also start workers.
_LEAST_WORK = 0.1


class Progress:
    """The progress of one phase of a run: steps, work and the time left.

    Without a total work each step after the first is one unit, since the first step often compiles
    for all others. Subclasses show the state in `_update`."""

    def __init__(
        self, what: str, total: int, work: float = 0.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self.what, self.total, self._clock = what, total, clock
        self.done, self.doing = 0, ""
        self._is_weighted = work > 0
        self._work, self._worked = work or total - 1, 0.0
        self._began = clock()
        self._ends: float | None = None

    def step(self) -> None:
        """Count one more step as done."""
        self.done += 1
        if self.done == 1 and not self._is_weighted:
            self._began = self._clock()
        elif not self._is_weighted:
            self._count(1)
        self._update()

    def now(self, what: str) -> None:
        """Show a few words on the current step."""
        if not self.doing:
            self._began = self._clock()
        self.doing = what
        self._update()

    def worked(self, amount: float) -> None:
        """Count an amount of work as done, in the unit of the phase's total work."""
        self._count(amount)
        self._update()

    def decided(self, line: str) -> None:
        """Show a line with a final result."""
        say(line)

    def _count(self, amount: float) -> None:
        self._worked = min(self._worked + amount, self._work)
        now = self._clock()
        if self._worked > _LEAST_WORK * self._work * self._is_weighted:
            left_work = self._work - self._worked
            self._ends = now + (now - self._began) * left_work / self._worked

    @property
    def left(self) -> str:
        """The time left in words, which counts down between two parts of the work; empty if no part
        is done."""
        if self._ends is None:
            return ""
        return f"about {duration_text(self._ends - self._clock())} left"

    def _update(self) -> None: ...


class _Silent(Progress):
    def decided(self, line: str) -> None: ...


class _Lines(Progress):
    """Prints a line when the phase begins, and then at most one every _LINE_S seconds."""

    def __init__(
        self, what: str, total: int, work: float = 0.0, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(what, total, work, clock)
        self._said = clock()
        say(f"{what}: 0 of {total}")

    def _update(self) -> None:
        now = self._clock()
        if now < self._said + _LINE_S:
            return
        self._said = now
        parts = [f"{self.what}: {self.done} of {self.total}", self.doing, self.left]
        say(", ".join(filter(None, parts)))


@contextmanager
def phase(what: str, total: int, quiet: bool, work: float = 0.0) -> Iterator[Progress]:
    """Announce a phase of `total` steps; `work` is its total work, if steps differ in work."""
    if quiet or not total:
        yield _Silent(what, total)
    elif not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines(what, total, work)
    else:
        with _bar(what, total, work) as bar:
            yield bar


@contextmanager
def _bar(what: str, total: int, work: float) -> Iterator[Progress]:
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)

    class Bar(Progress):
        def _update(self) -> None:
            share = self._worked / self._work if self._is_weighted else self.done / self.total
            shown.update(task, completed=share)

        def decided(self, line: str) -> None:
            console.print(Text(lines_shown(line)), soft_wrap=True)

    class State(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            parts = [f"{bar.done}/{bar.total}", bar.left, bar.doing]
            return Text("  ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")

    bar = Bar(what, total, work)
    columns = progress.TextColumn("{task.description}"), progress.BarColumn(bar_width=12), State()
    with progress.Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(what, total=1)
        yield bar


def duration_text(seconds: float) -> str:
    """A duration in seconds and minutes: 41 s, 2 min, 1 min 41 s."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{whole} s"
    return f"{minutes} min" + (f" {rest} s" if rest else "")


def say(text: str, quiet: bool = False) -> None:
    """Print a message, which is not part of the result, on standard error, unless `quiet` or
    empty."""
    if text and not quiet and sys.stderr is not None:
        shown = lines_shown(text)
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            shown = "\n".join(wrap(shown, width, break_long_words=False, break_on_hyphens=False))
        print(shown, file=sys.stderr, flush=True)
