"""The command that says what holds a kernel up: `profile`."""

from __future__ import annotations

from typing import Any

import click

from cudareduce.cli.completion import Named
from cudareduce.cli.help import Command, made
from cudareduce.cli.options import (
    add_debug,
    add_device,
    add_file,
    add_files,
    add_folders,
    add_format,
    add_json,
    add_map,
    add_no_cache,
    add_quiet,
    add_shape,
    seconds,
)
from cudareduce.cli.types import Count, Place, Word, options_of
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS
from cudareduce.problem.sizes import LARGEST

_add_pictures = options_of(
    click.option("--png", type=Place(), metavar="FILE",
                 help="Also draw the roofline and how busy each unit is, as PNG."),
    click.option("--svg", type=Place(), metavar="FILE", help="The same as SVG."),
)  # fmt: skip
_add_problem = options_of(
    click.option("--n", type=Count(1, LARGEST), default=2**25,
                 help="Elements: 33554432, 2^25, 32Mi or 1e6.  [default: 2^25]"),
    click.option("--rows", type=Count(1, LARGEST), default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    click.option("--op", type=Word(OPERATORS), default="sum", show_default=True, metavar="OP",
                 help="The operator."),
    click.option("--dtype", type=Word(DTYPES), default="float32", show_default=True,
                 metavar="DTYPE", help="The elements' type."),
    click.option("--acc", type=Word(DTYPES), metavar="DTYPE",
                 help="Accumulate in this wider type."),
)  # fmt: skip


@click.command(
    cls=Command,
    epilog="""cudareduce profile reduce_v0_baseline
cudareduce profile --diff reduce_v1_no_divergence reduce_v2_no_bank_conflict
cudareduce profile fastcuda --static""",
)
@click.argument("kernels", nargs=-1, metavar="KERNEL|SUITE|GLOB|FILE.cu...",
                type=Named("KERNEL", suites=True))  # fmt: skip
@_add_problem
@add_map
@add_shape
@add_files
@add_folders
@click.option("--diff", is_flag=True, help="Two kernels side by side: what moved, and why it "
              "matters.")  # fmt: skip
@click.option("--static", is_flag=True, help="Without a GPU: what nvcc makes of it, and what the "
              "emulator counts.")  # fmt: skip
@click.option("--arch", type=Count(75, 999), default=90, show_default=True, metavar="ARCH",
              help="With --static: for which architecture.")  # fmt: skip
@add_device
@click.option("--max-time", type=seconds, default=300.0, show_default=True, metavar="SECONDS",
              help="When ncu is ended.")  # fmt: skip
@add_no_cache
@add_quiet
@_add_pictures
@add_json
@add_file("--markdown", "Markdown")
@add_format("table", "markdown", "json")
@add_debug
@click.pass_obj
def profile(arguments: list[str], /, **options: Any) -> int:
    """What holds a kernel up, line by line in words.

    Nsight Compute (ncu) counts what its first launch does: how busy memory and SMs are, what warps
    wait for, lanes, bank conflicts, bytes against those that are needed. Below stands what the next
    step of the ladder does about it.
    """
    from cudareduce.profile.command import ProfileRequest
    from cudareduce.profile.command import profile as tell

    return tell(made(ProfileRequest, options | {"argv": tuple(arguments)}))
