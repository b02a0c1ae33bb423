"""The command line of `plot`."""

from __future__ import annotations

from typing import Any

import click

from cudareduce.cli.help import Command, made
from cudareduce.cli.options import add_debug, one_of
from cudareduce.cli.types import DEVICES, Name, Place, Sizes, Word
from cudareduce.plot.figure import KINDS

add_results = click.argument("results", nargs=-1, required=True, metavar="RESULT...",
                             type=Place(DEVICES))  # fmt: skip


@click.command(
    cls=Command,
    epilog="""cudareduce plot results/nvidia-h200/sweep.json
cudareduce plot results/nvidia-h200/libraries-*.json --kind winners
cudareduce plot before.json after.json --only 'reduce_v*' --png change.png""",
)
@add_results
@click.option(
    "--kind", type=Word(KINDS), metavar="KIND",
    help=f"The kind of chart: {one_of(tuple(KINDS))}.  [default: the kind that fits the results]",
)  # fmt: skip
@click.option(
    "--only",
    type=Name(),
    multiple=True,
    metavar="NAME",
    help="Draw only this kernel or library, or all that match a pattern such as 'cub:*'; may be "
    "repeated.",
)
@click.option(
    "--n", type=Sizes(), default=(),
    help="The sizes of ladder and gpus.  [default: the size with most kernels]",
)  # fmt: skip
@click.option("--png", type=Place(), metavar="FILE", help="Write PNG instead of printing.")
@click.option("--svg", type=Place(), metavar="FILE", help="Write SVG instead of printing.")
@add_debug
def plot(**options: Any) -> int:
    """Draw results: in the terminal, or as PNG and SVG.

    Bandwidth over n, the ladder of kernels, kernels against libraries, the fastest of each type and
    size, before and after. Needs pip install 'cudareduce[plot]'.
    """
    from cudareduce.plot.command import PlotRequest
    from cudareduce.plot.command import plot as draw

    return draw(made(PlotRequest, options))
