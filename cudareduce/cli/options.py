"""The options that commands share. Imports little, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from cudareduce.cli.types import (
    Amount,
    ArraySource,
    Command,
    Count,
    CountOrWord,
    Counts,
    Name,
    Named,
    Peers,
    Place,
    Sizes,
    Word,
    Words,
    options_of,
)
from cudareduce.collectives.names import MOST_RANKS
from cudareduce.libraries.names import NAMES as PEERS
from cudareduce.library.header import FOREIGN_FINISHES, GRID_RULES
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.patterns import USER_PATTERNS
from cudareduce.reduction.sizes import LARGEST

#: Larger values are typing errors. Python itself cannot wait for more than 24 days.
MOST_ROUNDS, MOST_SECONDS = 10_000, 1e6
_MOST_THREADS, _MOST_ITEMS, _MOST_BLOCKS, _MOST_SHARED = 1024, 2**16, 2**31 - 1, 2**20
_MOST_SMS = 1024

SIZES = "33554432, 33 554 432, 2^25, 32Mi, 1e6, a list, or a range 2^10..2^30"
#: Columns that do not fit into 80 characters, printed on request.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip

Option = Callable[[Command], Command]


def one_of(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def add_kernels(pattern: str, *words: str, suites: bool = True) -> Option[Any]:
    """The names of kernels; `words` are further names."""
    kind = Named("KERNEL", suites=suites, words=words)
    return click.argument("kernels", nargs=-1, metavar=pattern, type=kind)


def add_format(*styles: str, what: str = "") -> Option[Any]:
    """`--format`, with the formats that a command prints."""
    return click.option(
        "--format", "style", default="table", show_default=True, metavar="FORMAT",
        type=Word(styles), help=f"Output format: {one_of(styles)}{what}.",
    )  # fmt: skip


def add_file(option: str, what: str) -> Option[Any]:
    """An option with the name of a file to write."""
    return click.option(option, type=Place(), metavar="FILE", help=f"Also write {what}.")


def add_outputs(*styles: str, what: str = "") -> Option[Any]:
    """`--format`, a file of each format, --quiet and --debug."""
    files = {"csv": add_file("--csv", "CSV"), "json": add_json,
             "markdown": add_file("--markdown", "Markdown")}  # fmt: skip
    written = [option for style, option in files.items() if style in styles]
    return options_of(add_format(*styles, what=what), *written, add_quiet, add_debug)


def add_sizes(default: str | None, what: str) -> Option[Any]:
    """`--n`."""
    return click.option("--n", type=Sizes(), default=default, show_default=True, help=what)


def add_rows(default: int | None = 1, *, low: int = 1, what: str = "") -> Option[Any]:
    """`--rows`."""
    return click.option(
        "--rows", type=Count(low, LARGEST), default=default, show_default=True,
        help=what or "Number of rows, each of --n elements.",
    )  # fmt: skip


def add_ops(default: str | None, note: str = "") -> Option[Any]:
    """`--op`, a list; `note` ends the help."""
    names = f"Operators, comma-separated, or all: {', '.join(OPERATORS)}."
    return click.option("--op", type=Words("OPS", tuple(OPERATORS)), default=default,
                        show_default=True, help=names + note)  # fmt: skip


def add_dtypes(
    default: str | None, note: str = "", names: Sequence[str] = tuple(DTYPES)
) -> Option[Any]:
    """`--dtype`, a list; `note` ends the help."""
    return click.option(
        "--dtype", type=Words("DTYPES", tuple(DTYPES)), default=default, show_default=True,
        help=f"Element types, comma-separated, or all: {', '.join(names)}.{note}",
    )  # fmt: skip


def add_max_time(what: str, default: float | None = None) -> Option[Any]:
    """`--max-time`."""
    return click.option("--max-time", type=seconds, metavar="SECONDS", default=default,
                        show_default=True, help=what)  # fmt: skip


def add_arch(what: str) -> Option[Any]:
    """`--arch`: one architecture."""
    return click.option("--arch", type=Count(75, 999), default=90, show_default=True,
                        metavar="ARCH", help=what)  # fmt: skip


seconds = Amount(MOST_SECONDS)
add_op = click.option("--op", type=Word(OPERATORS), default="sum", show_default=True, metavar="OP",
                      help=f"Operator: {one_of(tuple(OPERATORS))}.")  # fmt: skip
add_acc = click.option("--acc", type=Word(DTYPES), metavar="DTYPE",
                       help="Accumulator type, wider than --dtype.")  # fmt: skip
add_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
add_folders = click.option(
    "--kernels", "folders", multiple=True, type=Place(file_okay=False), metavar="DIR",
    help="Directory with additional kernels.",
)  # fmt: skip
add_rounds = click.option(
    "--rounds", type=Count(1, MOST_ROUNDS), default=9, show_default=True,
    help="Number of independent rounds; confidence intervals need at least 6.",
)  # fmt: skip
add_peak = click.option(
    "--peak-gb-s", type=Amount(1e6), metavar="GB/S",
    help="Theoretical bandwidth, if the driver does not know it.",
)  # fmt: skip
add_device = click.option(
    "--device", type=Count(0, 1023), default=0, show_default=True, help="Index of the GPU."
)
add_time_limit = click.option(
    "--time-limit", type=seconds, metavar="SECONDS",
    help="Time limit per kernel; exceeding it counts as WRONG on a GPU, undecided on the CPU.",
)  # fmt: skip
add_no_cache = click.option("--no-cache", is_flag=True, help="Recompile all kernels.")
add_quiet = click.option(
    "--quiet", is_flag=True, help="Print no progress and no remarks on standard error."
)
add_json = add_file("--json", "JSON, which holds every field")
add_backend = click.option(
    "--backend", type=Word(["auto", "cuda", "cpu"]), default="auto", show_default=True,
    metavar="NAME", help="Backend: cuda, cpu (an emulator, never timed), or auto.",
)  # fmt: skip
add_machine = options_of(
    click.option("--seed", type=Count(0, 2**32 - 1),
                 help="Seed of the inputs.  [default: 0; the timed input gets a new seed each "
                 "run]"),
    add_backend,
    add_device,
    add_time_limit,
    add_max_time("Time limit of the whole run; what was left out is reported."),
    add_no_cache,
)  # fmt: skip
add_map = click.option(
    "--map", metavar="C++",
    help="Transform of each element, C++ in a (in a and b for two inputs), such as 'a * b'; for "
    "sum, mean, min and max.  [default: none]",
)  # fmt: skip
add_shape = options_of(
    click.option("--block", type=Count(1, _MOST_THREADS), metavar="THREADS",
                 help="Threads per block.  [default: the kernel's]"),
    click.option("--items", type=Count(1, _MOST_ITEMS),
                 help="Items per thread.  [default: the kernel's]"),
)  # fmt: skip
add_files = options_of(
    click.option("--entry", metavar="NAME", type=Name(), multiple=True,
                 help="Kernel of the file, with template arguments; may be repeated."),
    click.option("--chain", metavar="A,B", type=Name(), multiple=True,
                 help="Kernels launched one after the other as one row, each on the output of the "
                 "one before; --block, --items, --grid and --shared apply to the first."),
    click.option("--arg", metavar="NAME=WHAT", type=Name(), multiple=True,
                 help="Argument for a parameter: in, in2, out, out2, zeroed:BYTES, scratch:BYTES "
                 "(or grid: one element per block), or a C++ value such as n, rows or 1.0f; may be "
                 "repeated."),
    click.option("--grid", type=CountOrWord(1, _MOST_BLOCKS, GRID_RULES), metavar="BLOCKS",
                 help="Number of blocks, or a rule: cover (one tile per block), fill (the device), "
                 "per_sm, block_per_row, warp_per_row or thread_per_row."),
    click.option("--shared", type=Count(0, _MOST_SHARED), metavar="BYTES",
                 help="Dynamic shared memory per block."),
    click.option("--finish", type=Word(FOREIGN_FINISHES), metavar="HOW",
                 help=f"How partial results are combined: {one_of(FOREIGN_FINISHES)}."),
    click.option("-I", "headers", multiple=True, type=Place(file_okay=False), metavar="DIR",
                 help="Directory of included headers, searched after the file's own; may be "
                 "repeated."),
    click.option("-D", "define", multiple=True, type=Name(), metavar="NAME=VALUE",
                 help="Macro for the compiler, such as BLOCK_SIZE=256; may be repeated."),
)  # fmt: skip
add_problem = options_of(
    add_ops(None, "  [default: sum, or the first that a file supports]"),
    add_dtypes(None, "  [default: float32, or the first that a file supports]"),
    click.option("--op-expr", metavar="C++",
                 help="Operator as a C++ expression in a and b, such as 'a > b ? a : b'."),
    click.option("--identity", metavar="C++", help="Identity element of --op-expr."),
    click.option("--rtol", type=Amount(1, zero=True), default=1e-5, show_default=True,
                 metavar="SHARE", help="Relative error allowed for float results of --op-expr."),
    add_map,
    add_acc,
    add_rows(low=0),
    add_shape,
    click.option("--sms", type=Counts(1, _MOST_SMS), default=(),
                 help="Number of SMs to use: launches at most N blocks, of the largest size unless "
                 "--block is given; a list, or a range 8..128 that doubles.  [default: all SMs]"),
    add_files,
    click.option("--multiple-of", type=Count(1, LARGEST), metavar="K",
                 help="Precondition: n is a multiple of K; other sizes are not tested."),
    click.option("--sizes-only", is_flag=True,
                 help="Precondition: n is one of --n; other sizes are not tested."),
    click.option("--nan", type=Word(["propagate", "drop"]), metavar="HOW",
                 help="NaN handling in min and max: propagate or drop.  [default: propagate; "
                 "external kernel files: detected and reported]"),
    add_folders,
    add_machine,
    add_outputs("table", "markdown", "csv", "json"),
)  # fmt: skip
add_timing = options_of(
    click.option("--timing", type=Words("KINDS", ("cold", "warm")), default="cold",
                 show_default=True,
                 help="Cache state: cold (flushed before each launch), warm, or cold,warm."),
    click.option("--graph", is_flag=True,
                 help="Also time each kernel as a replayed CUDA graph."),
    click.option("--energy", is_flag=True,
                 help="Also measure joules per GB, from 1.5 s of launches per row."),
    add_rounds,
    click.option("--pattern", default="random", show_default=True, metavar="NAME",
                 type=Word(USER_PATTERNS),
                 help=f"Timed input: {one_of(USER_PATTERNS)} (a sum of nearly 0)."),
    click.option("--region", type=Word(["total", "first-pass"]), default="total",
                 show_default=True, metavar="NAME",
                 help="Timed region: total (all passes) or first-pass (the first launch alone)."),
    add_peak,
    click.option("--baseline-kernel", metavar="ID", type=Named("--baseline-kernel"),
                 help="Kernel that speed-ups are relative to.  [default: the first of the suite "
                 "or lineage]"),
)  # fmt: skip
add_columns = click.option(
    "--columns", type=Words("COLUMNS", MORE_COLUMNS), default=(),
    help=f"Additional columns, comma-separated, or all: {', '.join(MORE_COLUMNS)}.",
)  # fmt: skip
add_strict = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 4 if anything is undecided or not measured, with 3 if a kernel is only right "
    "under a precondition that was found.",
)
add_peers = click.option(
    "--libraries", "--peers", "peers", type=Peers(PEERS), default=(),
    help=f"Libraries to compare with, comma-separated, or all: {', '.join(PEERS)}; or single calls "
    "listed by `cudareduce list peers`.",
)  # fmt: skip
add_from = options_of(
    click.option("--from", "source", type=ArraySource(), metavar="host|FILE.npy",
                 help="Source of an array that is streamed to the GPU in chunks: host (memory) or "
                 "FILE.npy; times are % of copying alone."),
    click.option("--chunk", type=Sizes(), default=(), metavar="BYTES,...",
                 help="With --from: chunk size, or several, as 64Mi.  [default: 64Mi]"),
)  # fmt: skip
add_gpus = options_of(
    click.option("--gpus", type=Count(2, MOST_RANKS), metavar="N",
                 help="Number of GPUs that share one array; each reduces its shard in a process of "
                 "its own and gets the result."),
    click.option("--meet", metavar="FILE|tcp://HOST:PORT",
                 help="With --gpus: rendezvous of ranks started by a launcher.  [default: a local "
                 "file]"),
)  # fmt: skip
