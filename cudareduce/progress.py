"""Progress on standard error: a bar on a terminal, a line a phase elsewhere, nothing if quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def phase(what: str, total: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """Announce a phase of `total` steps; call what it yields after each."""
    if quiet or not total:
        yield lambda: None
    elif not sys.stderr.isatty():
        print(f"{what} ({total})", file=sys.stderr, flush=True)
        yield lambda: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)


def say(text: str, quiet: bool = False) -> None:
    """A line on standard error that is not part of the result."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)
