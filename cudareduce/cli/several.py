"""The command `collective`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from cudareduce.cli.help import Command
from cudareduce.cli.library_options import add_nccl
from cudareduce.cli.options import (
    add_backend,
    add_debug,
    add_file,
    add_folders,
    add_format,
    add_json,
    add_no_cache,
    add_quiet,
    add_rounds,
    add_sizes,
)
from cudareduce.cli.request import make_request
from cudareduce.cli.types import Command as Option
from cudareduce.cli.types import Count, Word, Words, options_of
from cudareduce.collectives.names import COLLECTIVES, MOST_RANKS, OPS
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES


def _add_ranks(default: str) -> Callable[[Option], Option]:
    """`--ranks`, with how many there are where nobody says."""
    return click.option(
        "--ranks", type=Count(2, MOST_RANKS), metavar="N",
        help=f"How many to start here, if no launcher does.  [default: {default}]",
    )  # fmt: skip


_meet = click.option(
    "--meet", metavar="FILE|tcp://HOST:PORT",
    help="Where ranks of a launcher meet.  [default: a file here]",
)  # fmt: skip
_outputs = options_of(
    add_format("table", "markdown", "csv", "json"),
    add_file("--csv", "CSV"),
    add_json,
    add_file("--markdown", "Markdown"),
    add_debug,
)


@click.command(
    cls=Command,
    epilog="""cudareduce collective all-reduce
cudareduce collective reduce-scatter --ranks 4 --n 4099 --dtype float16
cudareduce collective all-reduce --engine peer:one_shot,host --op max""",
)
@click.argument("collective", type=Word(COLLECTIVES), metavar="|".join(COLLECTIVES))
@add_sizes("4096", "Elements of each rank's array; a list, or a range that doubles.")
@click.option("--op", type=Word(OPS), default="sum", show_default=True, metavar="OP",
              help="What combines them: sum, prod, min or max.")  # fmt: skip
@click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32", show_default=True,
              help=f"Element types, with commas, or all: {', '.join(DTYPES)}.")  # fmt: skip
@click.option("--engine", metavar="NAME,...",
              help="What exchanges them: host, nccl, nccl-symm, torch, peer for all kernels that "
              "do, or one of these as peer:one_shot.  [default: all that are right, and nccl where "
              "each rank has a GPU]")  # fmt: skip
@add_nccl
@_add_ranks("one for each GPU, at least 2")
@_meet
@add_folders
@add_backend
@add_rounds
@add_no_cache
@add_quiet
@_outputs
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
