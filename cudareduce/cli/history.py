"""`history` and its three commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudareduce.cli.completion import Named
from cudareduce.cli.gate_options import Threshold
from cudareduce.cli.help import Commands, made
from cudareduce.cli.options import add_debug, add_file, add_format
from cudareduce.cli.types import DEVICES, Name, Place, Sizes, options_of

_FOLDER = "history"
_reading = options_of(
    click.option("--from", "folder", type=Place(file_okay=False), default=_FOLDER,
                 show_default=True, metavar="FOLDER", help="Where the history is."),
    click.option("--since", type=Name(), metavar="DAY|REV",
                 help="Only runs from this day or revision on."),
)  # fmt: skip


@click.group(
    cls=Commands,
    epilog="""cudareduce history add run.json --into history
cudareduce history show reduce_v7_shuffle --n 2^25
cudareduce history check --threshold 2%""",
)
def history() -> None:
    """Since when it is slower: curves of many runs.

    What creeps in below every threshold of check adds up here. A line of JSON a run, in a folder
    that may be a branch of its own; no server.
    """


@history.command(
    "add",
    epilog="""cudareduce history add run.json
cudareduce history add run.json --into ../benchmarks/history
cudareduce history add results/nvidia-h200/baseline.json""",
)
@click.argument("result", type=Place(DEVICES))
@click.option("--into", "folder", type=Place(file_okay=False), default=_FOLDER, show_default=True,
              metavar="FOLDER", help="Where the history is; made if it is not there.")  # fmt: skip
@add_debug
def add_(result: Path, folder: Path, debug: bool) -> int:
    """Append a result file of bench or check, as one line.

    Jobs may do so at once; a run that is there already is left.
    """
    from cudareduce.history.command import add

    return add(result, folder)


@history.command(
    "show",
    epilog="""cudareduce history show reduce_v7_shuffle
cudareduce history show 'reduce_tiles*' --n 2^25 --since 2026-03-01
cudareduce history show reduce_v7_shuffle --from ../benchmarks/history | less""",
)
@click.argument("kernel", type=Named("KERNEL"))
@click.option("--n", type=Sizes(), help="Only these elements.")
@_reading
@add_debug
def show_(**options: Any) -> int:
    """Draw a kernel's curve, with its steps."""
    from cudareduce.history.command import ShowRequest, show

    return show(made(ShowRequest, options))


@history.command(
    "check",
    epilog="""cudareduce history check
cudareduce history check --threshold 3% --all
cudareduce history check --since 2026-03-01 --junit history.xml""",
)
@click.option("--threshold", type=Threshold(), metavar="PERCENT",
              help="How far above its best level a kernel may lie.  [default: 2%]")  # fmt: skip
@_reading
@click.option("--all", "everything", is_flag=True, help="Show what is the SAME, too.")
@add_file("--junit", "JUnit XML")
@add_file("--markdown", "Markdown")
@add_format("table", "markdown", "json")
@add_debug
def check_(**options: Any) -> int:
    """Exit with 1 on a step up that has held for two runs."""
    from cudareduce.history.command import HistoryCheckRequest, check

    return check(made(HistoryCheckRequest, options))
