"""The commands for several GPUs: `collective`."""

from __future__ import annotations

from typing import Any

import click

from cudareduce.cli.help import Command
from cudareduce.cli.options import add_debug, add_file, add_format, add_no_cache, add_sizes
from cudareduce.cli.requests import made
from cudareduce.cli.types import Count, Word, Words
from cudareduce.problem.dtypes import DTYPES

#: As in several/: importing it here would make --help slow.
_COLLECTIVES = ("all-reduce", "reduce-scatter", "reduce")
_OPS = ("sum", "prod", "min", "max")


@click.command(
    cls=Command,
    epilog="""cudareduce collective all-reduce
cudareduce collective reduce-scatter --gpus 4 --n 4099 --dtype float16
cudareduce collective all-reduce --engine peer:one_shot,host --op max""",
)
@click.argument("collective", type=Word(_COLLECTIVES), metavar="|".join(_COLLECTIVES))
@add_sizes("4096", "Elements of each rank's array; a list, or a range that doubles.")
@click.option("--op", type=Word(_OPS), default="sum", show_default=True, metavar="OP",
              help="What combines them: sum, prod, min or max.")  # fmt: skip
@click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32", show_default=True,
              metavar="TYPE,...", help="Element types.")  # fmt: skip
@click.option("--engine", default="", metavar="NAME,...",
              help="What exchanges them: peer, or one of its kernels as peer:one_shot, and host.  "
              "[default: all that are right]")  # fmt: skip
@click.option(
    "--gpus",
    type=Count(2, 8),
    metavar="N",
    help="How many ranks to start here, if no launcher does.  [default: 2]",
)
@click.option("--meet", metavar="FILE|tcp://HOST:PORT",
              help="Where ranks of a launcher meet.  [default: a file here]")  # fmt: skip
@click.option("--backend", type=Word(["auto", "cuda", "cpu"]), default="auto", show_default=True,
              metavar="NAME", help="Where kernels run: cuda, cpu or auto.")  # fmt: skip
@add_no_cache
@add_format("table", "markdown", "json")
@add_file("--json", "JSON, which holds all of it")
@add_debug
def collective(**options: Any) -> int:
    """Combine arrays of several ranks, element by element.

    Every engine at every size, with inputs that change and a rank that comes late. Ranks are
    processes that this starts, or that torchrun, mpirun, srun or flux has started.
    """
    from cudareduce.several.command import CollectiveRequest
    from cudareduce.several.command import collective as take_part

    engines = tuple(name for name in options.pop("engine").split(",") if name)
    return take_part(made(CollectiveRequest, options | {"engine": engines}))
