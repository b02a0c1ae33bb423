"""`plot`: pictures of results, as files or in the terminal; and the small one below a table."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.plot.figure import Bars
from cudareduce.plot.kinds import figures
from cudareduce.plot.text import NARROWEST, text_of
from cudareduce.plot.text_lines import missing
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Run
from cudareduce.results.runs import runs_of
from cudareduce.results.store import check_writable, write_bytes

#: Of the picture below a table: what fewer columns have no room for, lines, and the most bars that
#: are worth a second look after the table.
_WIDE, _SMALL, _FEW = 80, 16, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRequest:
    """What to draw of which files: a kind, None for the fitting one, names or patterns, sizes in
    elements; and the files to write, by format."""

    results: tuple[Path, ...]
    kind: str | None
    only: tuple[str, ...]
    n: tuple[int, ...]
    png: Path | None
    svg: Path | None

    @property
    def files(self) -> dict[str, Path]:
        """The files asked for, by their formats."""
        asked = {"png": self.png, "svg": self.svg}
        return {style: path for style, path in asked.items() if path is not None}


def plot(request: PlotRequest) -> int:
    """Write the files asked for, or print; 0. What cannot be read, drawn or written is a
    UsageError, and what is missing to draw with an EnvironmentProblem."""
    for path in request.files.values():
        if path.resolve() in {result.resolve() for result in request.results}:
            raise UsageError(f"{path} is a result that is to be drawn: choose another name")
        check_writable(path)
    runs = list(runs_of(request.results).values())
    found = figures(runs, request.kind, request.only, request.n)
    if request.n and not any(isinstance(figure, Bars) for figure in found):
        say("--n has no effect here: only a ladder and several GPUs are drawn at one size")
    if request.files:
        from cudareduce.plot.drawn import drawn

        for style, path in request.files.items():
            write_bytes(path, drawn(found, style))
            say(f"{path} shows {counted(len(found), 'picture')}")
        return 0
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    for figure in found:
        print(text_of(figure, width, colour=_colour()))
    return 0


def show_small(run: Run, outputs: Outputs) -> None:
    """Below a table on a terminal that is wide enough a small picture of curves or of a few bars,
    where plotext is installed; else nothing, and never in a pipe."""
    width = shutil.get_terminal_size().columns
    wanted = outputs.style == "table" and outputs.piped is None
    if not wanted or not sys.stdout.isatty() or width < _WIDE or missing():
        return
    try:
        first = figures([run], None)[0]
    except UsageError:  # nothing was timed, which the tables say
        return
    if not isinstance(first, Bars) or 1 < len(first.bars) <= _FEW:
        print(text_of(first, width, colour=_colour(), height=_SMALL))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
