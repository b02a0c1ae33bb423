"""The command `collective`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from cudareduce.cli.help import Command
from cudareduce.cli.options import WRITTEN, one_word, styles, with_options
from cudareduce.cli.request import make_request
from cudareduce.cli.types import Word
from cudareduce.collectives.names import COLLECTIVES, OPS
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES


@click.command(
    cls=Command,
    epilog="""cudareduce collective all-reduce
cudareduce collective reduce-scatter --ranks 4 --n 4099 --dtype float16
cudareduce collective all-reduce --engine peer:one_shot,host --op max""",
)
@click.argument("collective", type=Word(COLLECTIVES), metavar="|".join(COLLECTIVES))
@with_options(
    f"n op dtype engine nccl ranks meet folders backend rounds no_cache style {WRITTEN}",
    n={"default": "4096",
       "help": "Elements of each rank's array; a list, or a range that doubles."},
    op=one_word(OPS, "OP", "What combines them: sum, prod, min or max.", "sum"),
    dtype={"default": "float32",
           "help": f"Element types, with commas, or all: {', '.join(DTYPES)}."},
    ranks="How many to start here, if no launcher does.  [default: one for each GPU, at least 2]",
    meet="Where ranks of a launcher meet.  [default: a file here]",
    style=styles("table", "markdown", "csv", "json"),
)  # fmt: skip
@click.pass_obj
def collective(arguments: Sequence[str], /, **options: Any) -> int:
    """Verify and time what combines arrays of several ranks.

    Each engine at many sizes, with inputs that change from call to call and a rank that comes late;
    timed where each rank has a GPU, on the CPU emulator without one. Ranks are processes that this
    starts, or that torchrun, mpirun, srun or flux has started.
    """
    from cudareduce.collectives.collective import CollectiveRequest
    from cudareduce.collectives.collective import collective as take_part

    engine = options.pop("engine")
    engines = tuple(name for name in (engine or "").split(",") if name)
    if engine is not None and not engines:
        raise UsageError(f"--engine {engine!r} names none: leave it out for all that are right")
    return take_part(
        make_request(CollectiveRequest, options | {"engine": engines, "argv": tuple(arguments)})
    )
