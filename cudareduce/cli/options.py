"""The options that commands share, in groups.

Only click is imported here, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from cudareduce.cli.completion import Named
from cudareduce.cli.types import (
    Amount,
    Command,
    Count,
    CountOrWord,
    Counts,
    Name,
    Peers,
    Place,
    Sizes,
    Word,
    Words,
    options_of,
)
from cudareduce.library.header import FOREIGN_FINISHES, GRID_RULES
from cudareduce.peers.names import NAMES as PEERS
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS
from cudareduce.problem.patterns import USER_PATTERNS
from cudareduce.problem.sizes import LARGEST

#: What only a slip of the pen exceeds: CUDA's limits of a launch, and as many rounds and seconds as
#: anyone waits for; Python itself waits for no more than 24 days.
MOST_ROUNDS, MOST_SECONDS = 10_000, 1e6
_MOST_THREADS, _MOST_ITEMS, _MOST_BLOCKS, _MOST_SHARED = 1024, 2**16, 2**31 - 1, 2**20
_MOST_SMS = 1024

_FLOATS = ", ".join(name for name, dtype in DTYPES.items() if dtype.kind == "float")

#: What the table holds on request; it has no room for it within 80 characters.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip


def one_of(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def add_format(*styles: str, what: str = "") -> Callable[[Command], Command]:
    """`--format`, with what a command can print."""
    return click.option(
        "--format", "style", default="table", show_default=True, metavar="FORMAT",
        type=Word(styles), help=f"What is printed: {one_of(styles)}{what}.",
    )  # fmt: skip


def add_file(option: str, what: str) -> Callable[[Command], Command]:
    """An option that names a file to write."""
    return click.option(option, type=Place(), metavar="FILE", help=f"Also write {what}.")


def add_sizes(default: str | None, what: str) -> Callable[[Command], Command]:
    """`--n`."""
    return click.option("--n", type=Sizes(), default=default, show_default=True, help=what)


seconds = Amount(MOST_SECONDS)
add_kernels = click.argument(
    "kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all|auto]...",
    type=Named("KERNEL", suites=True, words=("auto",)),
)  # fmt: skip
add_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
add_folders = click.option(
    "--kernels", "folders", multiple=True, type=Place(file_okay=False), metavar="DIR",
    help="A folder with kernels of your own, beside the built-in ones.",
)  # fmt: skip
add_rounds = click.option(
    "--rounds", type=Count(1, MOST_ROUNDS), default=9, show_default=True,
    help="Independent rounds; an interval takes at least 6.",
)  # fmt: skip
add_peak = click.option(
    "--peak-gb-s", type=Amount(1e6), metavar="GB/S",
    help="Theory, where the driver does not know it.",
)  # fmt: skip
add_device = click.option(
    "--device", type=Count(0, 1023), default=0, show_default=True, help="Which GPU."
)
add_time_limit = click.option(
    "--time-limit", type=seconds, metavar="SECONDS",
    help="When a kernel that gives no answer is ended: WRONG on a GPU, undecided on the CPU.",
)  # fmt: skip
add_no_cache = click.option("--no-cache", is_flag=True, help="Compile everything anew.")
add_quiet = click.option(
    "--quiet", is_flag=True, help="No progress and no remarks on standard error."
)
add_json = add_file("--json", "JSON, which holds all of it")
add_backend = click.option(
    "--backend", type=Word(["auto", "cuda", "cpu"]), default="auto", show_default=True,
    metavar="NAME", help="Where kernels run: cuda, cpu, which has no times, or auto.",
)  # fmt: skip
add_machine = options_of(
    click.option("--seed", type=Count(0, 2**32 - 1),
                 help="Seed of the inputs.  [default: 0, and another for each run's timed input]"),
    add_backend,
    add_device,
    add_time_limit,
    click.option("--max-time", type=seconds, metavar="SECONDS",
                 help="Bound the whole run; what was cut is said."),
    add_no_cache,
    add_quiet,
    add_file("--csv", "CSV"),
    add_json,
    add_file("--markdown", "Markdown"),
    add_debug,
)  # fmt: skip
add_map = click.option(
    "--map", metavar="C++",
    help="What is combined: C++ in a, or in a and b of two inputs, such as 'a * b', for sum, mean, "
    "min and max.  [default: the elements]",
)  # fmt: skip
add_shape = options_of(
    click.option("--block", type=Count(1, _MOST_THREADS), metavar="THREADS",
                 help="Threads a block.  [default: each kernel's]"),
    click.option("--items", type=Count(1, _MOST_ITEMS),
                 help="Elements a thread.  [default: each kernel's]"),
)  # fmt: skip
add_files = options_of(
    click.option("--entry", metavar="NAME", type=Name(), multiple=True,
                 help="Which of its kernels, with template arguments; may be repeated."),
    click.option("--chain", metavar="A,B", type=Name(), multiple=True,
                 help="Kernels of it that are one row: each reads what the one before has written; "
                 "--block, --items, --grid and --shared are of the first."),
    click.option("--arg", metavar="NAME=WHAT", type=Name(), multiple=True,
                 help="What a parameter gets: in, in2, out, out2, zeroed:BYTES, scratch:BYTES (or "
                 "grid, an element a block), or a value in C++, such as n, rows or 1.0f; may be "
                 "repeated."),
    click.option("--grid", type=CountOrWord(1, _MOST_BLOCKS, GRID_RULES), metavar="BLOCKS",
                 help="How many blocks are launched, or: cover, one tile each; fill, the device; "
                 "per_sm; block_per_row, warp_per_row or thread_per_row."),
    click.option("--shared", type=Count(0, _MOST_SHARED), metavar="BYTES",
                 help="Dynamic shared memory a block."),
    click.option("--finish", type=Word(FOREIGN_FINISHES), metavar="HOW",
                 help=f"What becomes of its partials: {one_of(FOREIGN_FINISHES)}."),
    click.option("-I", "headers", multiple=True, type=Place(file_okay=False), metavar="DIR",
                 help="A folder with headers that it includes, beside those near it; may be "
                 "repeated."),
    click.option("-D", "define", multiple=True, type=Name(), metavar="NAME=VALUE",
                 help="A name that its author gave to the compiler, such as BLOCK_SIZE=256; may be "
                 "repeated."),
)  # fmt: skip
add_problem = options_of(
    click.option("--op", type=Words("OPS", tuple(OPERATORS)),
                 help=f"Operators, with commas, or all: {', '.join(OPERATORS)}.  [default: sum, or "
                 "the first that a file takes]"),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)),
                 help=f"Element types, with commas, or all: {', '.join(DTYPES)}.  [default: "
                 "float32, or the first that a file takes]"),
    click.option("--op-expr", metavar="C++",
                 help="An operator of your own in a and b, such as 'a > b ? a : b'."),
    click.option("--identity", metavar="C++", help="The identity of --op-expr."),
    click.option("--rtol", type=Amount(1, zero=True), default=1e-5, show_default=True,
                 metavar="SHARE",
                 help="How far a float answer of --op-expr may be off, relatively."),
    add_map,
    click.option("--acc", type=Word(DTYPES), metavar="DTYPE",
                 help="Accumulate in this wider type."),
    click.option("--rows", type=Count(0, LARGEST), default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    add_shape,
    click.option("--sms", type=Counts(1, _MOST_SMS), default=(),
                 help="Leave the other SMs free: launch no more than N blocks, of the kernel's "
                 "largest size unless --block says; a list, or a range 8..128 that doubles.  "
                 "[default: all SMs]"),
    add_files,
    click.option("--multiple-of", type=Count(1, LARGEST), metavar="K",
                 help="They are right for multiples of K: no other sizes are tried."),
    click.option("--sizes-only", is_flag=True,
                 help="They are right for the sizes of --n: no others are tried."),
    click.option("--nan", type=Word(["propagate", "drop"]), metavar="HOW",
                 help="What becomes of a NaN in min and max: propagate or drop.  "
                 "[default: propagate, and without a header either, which is said]"),
    add_folders,
    add_format("table", "markdown", "csv", "json"),
    add_machine,
)  # fmt: skip
add_timing = options_of(
    click.option("--timing", type=Words("KINDS", ("cold", "warm")), default="cold",
                 show_default=True,
                 help="From a displaced cache, from a warm one, or both: cold,warm."),
    click.option("--graph", is_flag=True,
                 help="Also replay each kernel as a captured CUDA graph."),
    click.option("--energy", is_flag=True,
                 help="Also the joules that a GB takes: 1.5 s of launches a row, back to back."),
    add_rounds,
    click.option("--pattern", default="random", show_default=True, metavar="NAME",
                 type=Word(USER_PATTERNS),
                 help=f"The timed input: {one_of(USER_PATTERNS)}, a sum that is nearly 0."),
    click.option("--region", type=Word(["total", "first-pass"]), default="total",
                 show_default=True, metavar="NAME",
                 help="What is timed: total, all passes, or first-pass, the first launch alone."),
    add_peak,
    click.option("--baseline-kernel", metavar="ID", type=Named("--baseline-kernel"),
                 help="What speed-ups compare with.  [default: where the suite or the lineage "
                      "begins]"),
)  # fmt: skip
add_columns = click.option(
    "--columns", type=Words("COLUMNS", MORE_COLUMNS), default=(),
    help=f"Add to the table, with commas, or all: {', '.join(MORE_COLUMNS)}.",
)  # fmt: skip
add_strict = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 4 if anything could not be decided or measured, with 3 if it is right on "
    "a condition that was found.",
)
add_peers = click.option(
    "--peers", type=Peers(PEERS), default=(),
    help=f"Libraries beside kernels, with commas, or all: {', '.join(PEERS)}; or single rows of "
    "`cudareduce list peers`.",
)  # fmt: skip
add_tune = options_of(
    click.option("--op", type=Words("OPS", tuple(OPERATORS)), default="sum", show_default=True,
                 help=f"Operators, with commas, or all: {', '.join(OPERATORS)}."),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32",
                 show_default=True,
                 help=f"Element types, with commas, or all: {', '.join(DTYPES)}."),
    click.option("--rows", type=Count(1, LARGEST), default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    click.option("--max-time", type=seconds, default=300.0, show_default=True, metavar="SECONDS",
                 help="Bound the whole search; small sizes come first."),
    click.option("--write", is_flag=True,
                 help="Put the table into the package, too, for all who use it."),
    add_device,
    add_no_cache,
    add_quiet,
    add_file("--csv", "CSV"),
    add_json,
    add_file("--markdown", "Markdown"),
    add_format("table", "markdown", "csv", "json"),
    add_debug,
)  # fmt: skip
add_selftest = options_of(
    click.option("--max-time", type=seconds, default=180.0, show_default=True, metavar="SECONDS",
                 help="Bound the whole test."),
    click.option("--strict", is_flag=True,
                 help="Exit 4 unless a threshold of 2 % is seen to hold."),
    add_device,
    add_no_cache,
    add_quiet,
    add_json,
    add_file("--markdown", "Markdown"),
    add_format("table", "markdown", "json"),
    add_debug,
)  # fmt: skip
add_reveal = options_of(
    add_files,
    click.option("--compare", nargs=2, metavar="A B", type=Name(), default=None,
                 help="Whether two add in one order: names, or files of --json."),
    click.option("--op", type=Word(OPERATORS), default="sum", show_default=True, metavar="OP",
                 help="Only a sum has an order that shows."),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)),
                 help=f"Element types, with commas, or all: {_FLOATS}.  [default: float32]"),
    click.option("--acc", type=Word(DTYPES), metavar="DTYPE",
                 help="Accumulate in this wider type."),
    click.option("--rows", type=Count(1, LARGEST),
                 help="Reduce this many rows of --n elements each; the first is looked at.  "
                 "[default: 1]"),
    add_shape,
    add_folders,
    click.option("--backend", type=Word(["auto", "cuda", "cpu"]), default="auto",
                 show_default=True, metavar="NAME", help="Where kernels run: cuda, cpu or auto."),
    add_device,
    click.option("--time-limit", type=seconds, metavar="SECONDS",
                 help="What the probes of one call may take, and a library up to its first "
                 "answer.  [default: 60, and 300]"),
    add_no_cache,
    add_quiet,
    add_json,
    add_file("--markdown", "Markdown"),
    add_format("table", "markdown", "json"),
    add_debug,
)  # fmt: skip
