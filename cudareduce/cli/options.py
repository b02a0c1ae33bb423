"""The options that commands share, in groups.

Only click is imported here, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path

import click

from cudareduce.cli.types import Words, options_of
from cudareduce.library.header import FOREIGN_FINISHES
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS
from cudareduce.problem.patterns import USER_PATTERNS

#: What the table holds on request; it has no room for it within 80 characters.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip

add_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
add_folders = click.option(
    "--kernels", "folders", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder with kernels of your own, beside the built-in ones.",
)  # fmt: skip
add_rounds = click.option(
    "--rounds", type=click.IntRange(min=1), default=9, show_default=True,
    help="Independent rounds; an interval takes at least 6.",
)  # fmt: skip
add_peak = click.option(
    "--peak-gb-s", type=click.FloatRange(min=0, min_open=True),
    help="Theory, where the driver does not know it.",
)  # fmt: skip
add_device = click.option("--device", type=click.IntRange(min=0), default=0, help="Which GPU.")
add_time_limit = click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="When the verification of one kernel counts as hanging.",
)  # fmt: skip
add_no_cache = click.option("--no-cache", is_flag=True, help="Compile everything anew.")
add_quiet = click.option(
    "--quiet", is_flag=True, help="No progress and no remarks on standard error."
)
add_machine = options_of(
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the inputs."),
    click.option("--backend", type=click.Choice(["auto", "cuda", "cpu"]), default="auto",
                 show_default=True, help="Where kernels run; times come from cuda alone."),
    add_device,
    add_time_limit,
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="Bound the whole run; what was cut is said."),
    add_no_cache,
    add_quiet,
    click.option("--csv", type=click.Path(path_type=Path), help="Also write CSV to this file."),
    click.option("--json", type=click.Path(path_type=Path), help="Also write JSON to this file."),
    click.option("--markdown", type=click.Path(path_type=Path),
                 help="Also write Markdown to this file."),
    add_debug,
)  # fmt: skip
add_problem = options_of(
    click.option("--op", type=Words("OPS", tuple(OPERATORS)), default="sum", show_default=True,
                 help=f"Operators, with commas, or all: {', '.join(tuple(OPERATORS))}."),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32",
                 show_default=True, help="Element types, with commas, or all."),
    click.option("--op-expr", metavar="C++",
                 help="An operator of your own in a and b, such as 'a > b ? a : b'."),
    click.option("--identity", metavar="C++", help="The identity of --op-expr."),
    click.option("--rtol", type=click.FloatRange(min=0), default=1e-5, show_default=True,
                 help="How far a float answer of --op-expr may be off, relatively."),
    click.option("--acc", type=click.Choice(list(DTYPES)), help="Accumulate in this wider type."),
    click.option("--rows", type=click.IntRange(min=0), default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    click.option("--block", type=click.IntRange(min=1), help="Threads a block."),
    click.option("--items", type=click.IntRange(min=1), help="Elements a thread."),
    click.option("--entry", metavar="NAME",
                 help="Which kernel of a FILE.cu without a header, with template arguments."),
    click.option("--grid", type=click.IntRange(min=1), help="Blocks of such a kernel."),
    click.option("--shared", type=click.IntRange(min=0), metavar="BYTES",
                 help="Its dynamic shared memory a block."),
    click.option("--finish", type=click.Choice(FOREIGN_FINISHES),
                 help="What becomes of its partials."),
    add_folders,
    click.option("--format", "style", default="table", show_default=True,
                 type=click.Choice(["table", "markdown", "csv", "json"]),
                 help="What is printed on standard output."),
    add_machine,
)  # fmt: skip
add_timing = options_of(
    click.option("--timing", type=Words("TIMING", ("cold", "warm")), default="cold",
                 show_default=True,
                 help="From a displaced cache, from a warm one, or both: cold,warm."),
    click.option("--graph", is_flag=True,
                 help="Also replay each kernel as a captured CUDA graph."),
    add_rounds,
    click.option("--pattern", default="random", show_default=True,
                 type=click.Choice(USER_PATTERNS),
                 help="What the timed input holds; cancel: a sum that is nearly 0."),
    click.option("--region", type=click.Choice(["total", "first-pass"]), default="total",
                 show_default=True,
                 help="What is timed: all passes, or the first launch alone."),
    add_peak,
    click.option("--baseline-kernel", metavar="ID",
                 help="The kernel that speed-ups compare with."),
)  # fmt: skip
add_columns = click.option(
    "--columns", type=Words("COLUMNS", MORE_COLUMNS), default=(),
    help=f"Add to the table: {', '.join(MORE_COLUMNS)}, or all.",
)  # fmt: skip
add_selftest = options_of(
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), default=180.0,
                 show_default=True, metavar="SECONDS", help="Bound the whole test."),
    click.option("--strict", is_flag=True,
                 help="Exit 4 unless a threshold of 2 % is seen to hold."),
    add_no_cache,
    click.option("--quiet", is_flag=True, help="No progress on standard error."),
    click.option("--json", type=click.Path(path_type=Path), help="Also write JSON to this file."),
    click.option("--markdown", type=click.Path(path_type=Path), help="Also write Markdown there."),
    click.option("--format", "style", default="table", show_default=True,
                 type=click.Choice(["table", "markdown", "json"]), help="What is printed."),
)  # fmt: skip
