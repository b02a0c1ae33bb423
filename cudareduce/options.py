"""The options that commands share: what they take, and how a wrong value is answered.

Only click is imported here, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cudareduce.dtypes import DTYPES
from cudareduce.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
#: What the table holds on request; it has no room for it within 80 characters.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip
OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax", "matmul", "affine")


class Sizes(click.ParamType[list[int]]):
    """`--n`: one size, a list, or a range."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """Sizes in elements."""
        from cudareduce.sizes import parse_sizes

        if isinstance(value, list):
            return value
        try:
            return parse_sizes(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Words(click.ParamType[tuple[str, ...]]):
    """A list of known words with commas, or `all`."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """The words, each known."""
        if isinstance(value, tuple):
            return value
        if value == "all":
            return self.known
        words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in words:
            if word not in self.known:
                self.fail(f"{word!r} is not one of: {', '.join(self.known)}, all", param, ctx)
        return words


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


ROW = click.IntRange(min=0)
add_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
add_folders = click.option(
    "--kernels", "folders", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder with kernels of your own, beside the built-in ones.",
)  # fmt: skip
add_problem = together(
    click.option("--op", type=Words("OPS", OPS), default="sum", show_default=True,
                 help=f"Operators, with commas, or all: {', '.join(OPS)}."),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32",
                 show_default=True, help="Element types, with commas, or all."),
    click.option("--acc", type=click.Choice(list(DTYPES)), help="Accumulate in this wider type."),
    click.option("--rows", type=ROW, default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    click.option("--block", type=click.IntRange(min=1), help="Threads a block."),
    click.option("--items", type=click.IntRange(min=1), help="Elements a thread."),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the inputs."),
    click.option("--backend", type=click.Choice(["auto", "cuda", "cpu"]), default="auto",
                 show_default=True, help="Where kernels run; times come from cuda alone."),
    click.option("--device", type=click.IntRange(min=0), default=0, help="Which GPU."),
    click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="When the verification of one kernel counts as hanging."),
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="Bound the whole run; what was cut is said."),
    click.option("--no-cache", is_flag=True, help="Compile everything anew."),
    click.option("--quiet", is_flag=True, help="No progress and no remarks on standard error."),
    click.option("--csv", type=click.Path(path_type=Path), help="Also write CSV to this file."),
    click.option("--json", type=click.Path(path_type=Path), help="Also write JSON to this file."),
    click.option("--markdown", type=click.Path(path_type=Path),
                 help="Also write Markdown to this file."),
    click.option("--format", "style", default="table", show_default=True,
                 type=click.Choice(["table", "markdown", "csv", "json"]),
                 help="What is printed on standard output."),
    add_folders,
    add_debug,
)  # fmt: skip


add_timing = together(
    click.option("--timing", type=Words("TIMING", ("cold", "warm")), default="cold",
                 show_default=True,
                 help="From a displaced cache, from a warm one, or both: cold,warm."),
    click.option("--graph", is_flag=True,
                 help="Also replay each kernel as a captured CUDA graph."),
    click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True,
                 help="Independent rounds; an interval takes at least 6."),
    click.option("--pattern", default="random", show_default=True,
                 type=click.Choice(["random", "positive", "exact", "ones", "twos", "cancel"]),
                 help="What the timed input holds; cancel: a sum that is nearly 0."),
    click.option("--region", type=click.Choice(["total", "first-pass"]), default="total",
                 show_default=True,
                 help="What is timed: all passes, or the first launch alone."),
    click.option("--peak-gb-s", type=click.FloatRange(min=0, min_open=True),
                 help="Theory, where the driver does not know it."),
    click.option("--baseline-kernel", metavar="ID",
                 help="The kernel that speed-ups compare with."),
    click.option("--columns", type=Words("COLUMNS", MORE_COLUMNS), default=(),
                 help=f"Add to the table: {', '.join(MORE_COLUMNS)}, or all."),
)  # fmt: skip
