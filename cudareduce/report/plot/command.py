"""The `plot` command, and the small chart below a table."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.plot.figure import Bars
from cudareduce.report.plot.kinds import figures
from cudareduce.report.plot.terminal import MIN_WIDTH, is_plotext_missing, text_chart
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Run
from cudareduce.results.store import check_writable, runs_of, write_bytes

#: Of the chart below a table: the terminal width it needs, its height, and its most bars.
_WIDTH, _HEIGHT, _MAX_BARS = 80, 16, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRequest:
    """The files to draw, a kind or None for the fitting one, names or patterns of kernels, sizes in
    elements, and the files to write."""

    results: tuple[Path, ...]
    kind: str | None
    only: tuple[str, ...]
    n: tuple[int, ...]
    png: Path | None
    svg: Path | None


def plot(request: PlotRequest) -> int:
    """Write the requested files, or print the charts. Returns 0; raises UsageError and
    EnvironmentProblem."""
    requested = {"png": request.png, "svg": request.svg}
    files = {style: path for style, path in requested.items() if path is not None}
    check_image_files(files, request.results)
    runs = list(runs_of(request.results).values())
    drawn = figures(runs, request.kind, request.only, request.n)
    if request.n and not any(isinstance(figure, Bars) for figure in drawn):
        say("--n has no effect here: only ladder and gpus are drawn at one size")
    if files:
        from cudareduce.report.plot.vega import image

        for style, path in files.items():
            write_bytes(path, image(drawn, style))
            say(f"{path} shows {counted(len(drawn), 'chart')}")
        return 0
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
    for figure in drawn:
        print(text_chart(figure, width, colour=_use_colour()))
    return 0


def check_image_files(files: Mapping[str, Path], inputs: Sequence[Path] = ()) -> None:
    """Raise UsageError if a file cannot be written, or would replace another file or an input."""
    if len({os.path.realpath(path) for path in files.values()}) < len(files):
        raise UsageError(f"--png and --svg are one file, {files['png']}: choose another name")
    for path in files.values():
        if os.path.realpath(path) in map(os.path.realpath, inputs):
            raise UsageError(f"{path} is a result to draw: choose another name")
        check_writable(path)


def show_small(run: Run, outputs: Outputs) -> None:
    """Print a chart below a table, if standard output is a terminal that is wide enough, plotext is
    installed, and the chart has curves or a few bars."""
    width = shutil.get_terminal_size().columns
    is_table = outputs.style == "table" and outputs.piped is None
    if not is_table or not sys.stdout.isatty() or width < _WIDTH or is_plotext_missing():
        return
    try:
        first = figures([run])[0]
    except UsageError:  # nothing was timed, which the table shows
        return
    if not isinstance(first, Bars) or 1 < len(first.bars) <= _MAX_BARS:
        print(text_chart(first, width, colour=_use_colour(), height=_HEIGHT))


def _use_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
