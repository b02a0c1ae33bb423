"""All options of the command line in one table. Imports little, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from cudareduce.catalog.front_matter import FOREIGN_FINISHES, GRID_RULES
from cudareduce.cli.types import (
    DEVICES,
    NO_PLAIN_FILE,
    Amount,
    ArraySource,
    Count,
    Counts,
    Files,
    LibraryVersions,
    Name,
    Named,
    Peers,
    Place,
    Sizes,
    Threshold,
    Word,
    Words,
)
from cudareduce.collectives.names import MOST_RANKS
from cudareduce.libraries.names import NAMES as PEERS
from cudareduce.reduction.dtypes import ALIASES, DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.patterns import USER_PATTERNS
from cudareduce.reduction.sizes import LARGEST
from cudareduce.report.plot.figure import KINDS

Command = TypeVar("Command", bound=Callable[..., Any])
SIZES = "33554432, 33 554 432, 2^25, 32Mi, 1e6, a list, or a range 2^10..2^30"
#: Columns that do not fit into 80 characters, printed on request.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip
LAST_GROUP = "Output"
#: Rarely used options, which only `--help-all` shows.
RARE = frozenset((
    "acc", "rtol", "seed", "source", "chunk", "engine", "nccl", "sms", "chain", "grid", "shared",
    "finish", "times", "energy", "region", "peak_gb_s", "baseline_kernel", "no_same_code",
    "cross_device", "meet", "time_limit", "no_cache", "benchmark_json", "ptx", "debug",
))  # fmt: skip
#: Larger values are typing errors. Python itself cannot wait for more than 24 days.
_ROUNDS, _SECONDS = Count(1, 10_000), Amount(1e6)
_FOLDER, _INPUT, _OUTPUT = Place(file_okay=False), Place(DEVICES), Place()
_RANKS = Count(2, MOST_RANKS)


def one_of(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _opt(flags: str, kind: Any, text: str, **settings: Any) -> dict[str, Any]:
    return {"flags": flags.split(), "type": kind, "help": text, **settings}


def _flag(flags: str, text: str) -> dict[str, Any]:
    return {"flags": flags.split(), "is_flag": True, "help": text}


def _file(flags: str, what: str) -> dict[str, Any]:
    return _opt(flags, _OUTPUT, f"Also write {what}.", metavar="FILE")


_MANY: dict[str, Any] = {"multiple": True}
#: The settings of all options by parameter name, in the groups and the order of `--help`.
#: A command may replace single settings.
TABLE: dict[str, dict[str, dict[str, Any]]] = {
    "Problem": {
        "n": _opt("--n", Sizes(), f"Number of elements: {SIZES}.", default=None),
        "rows": _opt("--rows", Count(1, LARGEST), "Number of rows, each of --n elements.",
                     default=1),
        "op": _opt("--op", Words("OPS", OPERATORS),
                   f"Operators, comma-separated, or all: {', '.join(OPERATORS)}.", default=None),
        "dtype": _opt("--dtype", Words("DTYPES", DTYPES, ALIASES),
                      f"Element types, comma-separated, or all: {', '.join(DTYPES)}; "
                      "short names such as f32, half and int also work.",
                      default=None),
        "acc": _opt("--acc", Word(DTYPES, ALIASES), "Accumulator type, wider than --dtype.",
                    metavar="DTYPE"),
        "map": _opt("--map", str, "Transform of each element, C++ in a (in a and b for two "
                    "inputs), such as 'a * b'; for sum, mean, min and max.  [default: none]",
                    metavar="C++"),
        "op_expr": _opt("--op-expr", str, "Operator as a C++ expression in a and b, such as "
                        "'a > b ? a : b'.", metavar="C++"),
        "identity": _opt("--identity", str, "Identity element of --op-expr.", metavar="C++"),
        "rtol": _opt("--rtol", Amount(1, zero=True), "Relative error allowed for float results "
                     "of --op-expr.", default=1e-5, metavar="SHARE"),
        "pattern": _opt("--pattern", Word(USER_PATTERNS),
                        f"Timed input: {one_of(USER_PATTERNS)} (a sum of nearly 0).",
                        default="random", metavar="NAME"),
        "only_pattern": _opt("--pattern", Word(USER_PATTERNS),
                             f"Input pattern: {one_of(USER_PATTERNS)} (a sum of nearly 0).  "
                             "[default: all but cancel]", metavar="NAME"),
        "seed": _opt("--seed", Count(0, 2**32 - 1), "Seed of the inputs.  [default: 0; the timed "
                     "input gets a new seed each run]"),
        "source": _opt("--from", ArraySource(), "Source of an array that is streamed to the GPU "
                       "in chunks: host (memory) or FILE.npy; times are % of copying alone.",
                       metavar="host|FILE.npy"),
        "chunk": _opt("--chunk", Sizes(), "With --from: size of a chunk, or several sizes.  "
                      "[default: 64Mi]", default=(), metavar="BYTES,..."),
    },
    "Kernels and libraries": {
        "folders": _opt("--kernels", _FOLDER, "Directory with additional kernels.",
                        metavar="DIR", **_MANY),
        "block": _opt("--block", Count(1, 1024), "Threads per block.  [default: the kernel's]",
                      metavar="THREADS"),
        "items": _opt("--items", Count(1, 2**16), "Items per thread.  [default: the kernel's]"),
        "sms": _opt("--sms", Counts(1, 1024), "Number of SMs to use: launches at most N blocks, "
                    "of the largest size unless --block is given; a list, or a range 8..128 that "
                    "doubles.  [default: all SMs]", default=()),
        "peers": _opt("--libraries --peers", Peers(PEERS), "Libraries to compare with, "
                      f"comma-separated, or all: {', '.join(PEERS)}; or single calls listed by "
                      "`cudareduce list peers`.", default=()),
        "engine": _opt("--engine", str, "Engines to test: host, nccl, nccl-symm, torch, peer (all "
                       "exchange kernels), or one exchange kernel such as peer:one_shot.  "
                       "[default: host, peer, and nccl if each rank has a GPU]",
                       metavar="NAME,..."),
        "nccl": _opt("--nccl", Files(), "Path of libnccl.so.2, or of several to compare.  "
                     "[default: that of nvidia-nccl-cu13 or -cu12, else the system's]",
                     default=(), metavar="FILE,..."),
    },
    "External kernel files": {
        "entry": _opt("--entry", Name(), "Kernel of the file, with template arguments; may be "
                      "repeated.", metavar="NAME", **_MANY),
        "chain": _opt("--chain", Name(), "Kernels to launch in sequence as one row; each reads the "
                      "output of the previous kernel. --block, --items, --grid and --shared "
                      "apply to the first.", metavar="A,B", **_MANY),
        "arg": _opt("--arg", Name(), "Argument for a parameter: in, in2, out, out2, "
                    "zeroed:BYTES, scratch:BYTES (or grid: one element per block), or a C++ "
                    "value such as n, rows or 1.0f; may be repeated.", metavar="NAME=WHAT",
                    **_MANY),
        "grid": _opt("--grid", Count(1, 2**31 - 1, GRID_RULES), "Number of blocks, or a rule: "
                     "cover (one tile per block), fill (the device), per_sm, block_per_row, "
                     "warp_per_row or thread_per_row.", metavar="BLOCKS"),
        "shared": _opt("--shared", Count(0, 2**20), "Dynamic shared memory per block.",
                       metavar="BYTES"),
        "finish": _opt("--finish", Word(FOREIGN_FINISHES),
                       f"How partial results are combined: {one_of(FOREIGN_FINISHES)}.",
                       metavar="HOW"),
        "headers": _opt("-I", _FOLDER, "Directory of included headers, searched after the file's "
                        "own; may be repeated.", metavar="DIR", **_MANY),
        "define": _opt("-D", Name(), "Macro for the compiler, such as BLOCK_SIZE=256; may be "
                       "repeated.", metavar="NAME=VALUE", **_MANY),
    },
    "Preconditions of your kernels": {
        "multiple_of": _opt("--multiple-of", Count(1, LARGEST), "Precondition: n is a multiple "
                            "of K; other sizes are not tested.", metavar="K"),
        "sizes_only": _flag("--sizes-only",
                            "Precondition: n is one of --n; other sizes are not tested."),
        "nan": _opt("--nan", Word(["propagate", "drop"]), "NaN handling in min and max: "
                    "propagate or drop.  [default: propagate; external kernel files: detected "
                    "and reported]", metavar="HOW"),
    },
    "Baseline": {
        "baseline": _opt("--baseline", _INPUT, "Baseline: a file of bench or collective --json; "
                         "with --compile a file of check --compile.", metavar="FILE"),
        "base": _opt("--base", Name(), "Baseline: a revision or a directory of kernels, measured "
                     "in the same rounds; with a collective as KERNEL, on several GPUs.",
                     metavar="TREE"),
        "times": _opt("--self", Count(1, 1000), "Number of comparisons of this tree with itself, "
                      "which count false verdicts."),
        "library": _opt("--library", LibraryVersions(), "Compare two versions of a library in "
                        "the same rounds: nccl=OLD,NEW takes two libnccl.so.2, cub=OLD,NEW two "
                        "CCCL source trees or include folders. KERNEL is then a collective, or a "
                        "call such as cub:run_to_run.", metavar="NAME=OLD,NEW"),
        "compiling": _flag("--compile", "Compare machine code and memory accesses, without a GPU."),
        "arch": _opt("--arch", Count(75, 999), "", default=90, metavar="ARCH"),
        "update_baseline": _flag("--update-baseline",
                                 "Overwrite the baseline after showing the changes."),
        "compare": _opt("--compare", Name(), "Compare two summation orders: names, or files of "
                        "--json.", nargs=2, metavar="A B"),
        "folder": _opt("--from", _FOLDER, "Directory of the history.", default="history",
                       metavar="FOLDER"),
        "since": _opt("--since", Name(), "First day or revision to include.",
                      metavar="DAY|REV"),
        "results": _opt("--results", Place(NO_PLAIN_FILE), "Result files to compute gains from.  "
                        "[default: those of the project]", metavar="FILE", **_MANY),
    },
    "Chart": {
        "kind": _opt("--kind", Word(KINDS), f"Kind of chart: {one_of(tuple(KINDS))}.  [default: "
                     "the kind that fits the results]", metavar="KIND"),
        "only": _opt("--only", Name(), "Kernel or library to draw, or a pattern such as 'cub:*'; "
                     "may be repeated.", metavar="NAME", **_MANY),
    },
    "Timing": {
        "timing": _opt("--timing", Words("KINDS", ("cold", "warm")), "Cache state: cold (flushed "
                       "before each launch), warm, or cold,warm.", default="cold"),
        "graph": _flag("--graph", "Also time each kernel as a replayed CUDA graph."),
        "energy": _flag("--energy",
                        "Also measure joules per GB, from 1.5 s of launches per row."),
        "region": _opt("--region", Word(["total", "first-pass"]), "Timed region: total (all "
                       "passes) or first-pass (the first launch alone).", default="total",
                       metavar="NAME"),
        "rounds": _opt("--rounds", _ROUNDS, "Number of independent rounds; confidence intervals "
                       "need at least 6.", default=9),
        "budget": _opt("--budget", Amount(1e6, zero=True), "Time for more rounds of uncertain "
                       "kernels.  [default: 60]", metavar="SECONDS"),
        "peak_gb_s": _opt("--peak-gb-s", Amount(1e6), "Theoretical bandwidth, if the driver does "
                          "not know it.", metavar="GB/S"),
        "baseline_kernel": _opt("--baseline-kernel", Named("--baseline-kernel"), "Kernel that "
                                "speed-ups are relative to.  [default: the first of the suite "
                                "or lineage]", metavar="ID"),
    },
    "Verdicts": {
        "threshold": _opt("--threshold", Threshold(), "Smallest change that counts.  "
                          "[default: 5%]", metavar="PERCENT"),
        "thresholds": _opt("--thresholds", _INPUT, "Thresholds per kernel, in a TOML file.",
                           metavar="FILE"),
        "no_same_code": _flag("--no-same-code",
                              "Compare times even if the machine code is identical."),
        "cross_device": _flag("--cross-device", "Compare results from different GPUs, as percent "
                              "of each card's ceiling."),
        "allow_gone": _flag("--allow-gone", "Accept kernels that are GONE."),
        "strict": _flag("--strict", "Exit with 4 if anything is UNCERTAIN."),
        "sanitize": _flag("--sanitize", "Also run the four tools of NVIDIA's compute-sanitizer, on "
                          "a GPU."),
    },
    "Machine": {
        "gpus": _opt("--gpus", _RANKS, "Number of GPUs that share one array; each reduces its "
                     "shard in a process of its own and gets the result.", metavar="N"),
        "ranks": _opt("--ranks", _RANKS, "Number of ranks, with --base and a collective.  "
                      "[default: one per GPU, at least 2]", metavar="N"),
        "meet": _opt("--meet", str, "With --gpus: rendezvous of ranks started by a launcher.  "
                     "[default: a local file]", metavar="FILE|tcp://HOST:PORT"),
        "backend": _opt("--backend", Word(["auto", "cuda", "cpu"]), "Backend: cuda, cpu (an "
                        "emulator, never timed), or auto.", default="auto", metavar="NAME"),
        "device": _opt("--device", Count(0, 1023), "Index of the GPU.", default=0),
        "max_time": _opt("--max-time", _SECONDS, "Time limit of the whole run; kernels that are "
                         "left out are reported.", default=None, metavar="SECONDS"),
        "time_limit": _opt("--time-limit", _SECONDS, "Time limit per kernel; exceeding it counts "
                           "as WRONG on a GPU, undecided on the CPU.", metavar="SECONDS"),
        "no_cache": _flag("--no-cache", "Recompile all kernels."),
    },
    LAST_GROUP: {
        "style": _opt("--format", None, "", default="table", metavar="FORMAT"),
        "columns": _opt("--columns", Words("COLUMNS", MORE_COLUMNS), "Additional columns, "
                        f"comma-separated, or all: {', '.join(MORE_COLUMNS)}.", default=()),
        "everything": _flag("--all", "Also list kernels with verdict SAME."),
        "tree": _flag("--tree", "Show each kernel below its predecessor, with gains."),
        "techniques": _flag("--techniques", "Show which techniques each kernel uses."),
        "diff": _flag("--diff", "Show the changes since the predecessor."),
        "static": _flag("--static", "Without a GPU: use the compiler's resource usage and the "
                        "counts of the emulator."),
        "ptx": _flag("--ptx", "Show the PTX."),
        "sass": _flag("--sass", "Show the machine code, with expensive instructions explained."),
        "check": _flag("--check", "Change nothing; exit with 2 if a table is outdated."),
        "html": _opt("--html", Place(NO_PLAIN_FILE), "Write a page of results: tables, charts, "
                     "lessons, sources.", metavar="FILE"),
        "png": _opt("--png", _OUTPUT, "Write PNG instead of printing.", metavar="FILE"),
        "svg": _opt("--svg", _OUTPUT, "Write SVG instead of printing.", metavar="FILE"),
        "csv": _file("--csv", "CSV"),
        "json": _file("--json", "JSON, which holds every field"),
        "markdown": _file("--markdown", "Markdown"),
        "junit": _file("--junit", "JUnit XML"),
        "benchmark_json": _file("--benchmark-json", "the JSON of github-action-benchmark"),
        "comment": _file("--comment", "a pull request comment with all kernels, as Markdown"),
        "write": _flag("--write", "Also store the table in the package, for all users."),
        "quiet": _flag("--quiet", "Print no progress and no remarks on standard error."),
        "debug": _flag("--debug", "Show the traceback of an error."),
    },
}  # fmt: skip
_SETTINGS = {name: option for group in TABLE.values() for name, option in group.items()}

# Options that several commands have together.
SHAPE = "block items"
FILES = "entry chain arg grid shared finish headers define"
MACHINE = "seed backend device time_limit max_time no_cache"
WRITTEN = "csv json markdown quiet debug"
PROBLEM = (
    f"op dtype op_expr identity rtol map acc rows {SHAPE} sms {FILES} multiple_of sizes_only nan "
    f"folders {MACHINE} style {WRITTEN}"
)
TIMING = "timing graph energy rounds pattern region peak_gb_s baseline_kernel"
JUDGING = (
    "threshold thresholds strict allow_gone no_same_code cross_device everything junit "
    "benchmark_json comment markdown style debug"
)
#: Settings of `PROBLEM`: rows may be none, operators and types may depend on a file.
OF_FILES: dict[str, Any] = {
    "op": "{}  [default: sum, or the first that a file supports]",
    "dtype": "{}  [default: float32, or the first that a file supports]",
    "rows": {"type": Count(0, LARGEST)},
}


def styles(*formats: str, note: str = "") -> dict[str, Any]:
    """The settings of `--format` with these formats."""
    return {"type": Word(formats), "help": f"Output format: {one_of(formats)}{note}."}


def one_word(words: Sequence[str], metavar: str, text: str, default: str | None) -> dict[str, Any]:
    """The changed settings of an option that takes one word instead of a list of words."""
    kind = Word(words, ALIASES if metavar == "DTYPE" else {})
    return {"type": kind, "help": text, "metavar": metavar, "default": default}


def with_options(names: str, **changes: str | dict[str, Any]) -> Callable[[Command], Command]:
    """Add the named options of the table. `changes` are other settings, or another help text, in
    which {} stands for the help of the table."""

    def add(command: Command) -> Command:
        for name in reversed(names.split()):
            settings, change = dict(_SETTINGS[name]), changes.get(name, {})
            if isinstance(change, str):
                change = {"help": change.replace("{}", settings["help"])}
            settings |= change
            settings["show_default"] = settings.get("show_default", "default" in settings)
            command = click.option(*settings.pop("flags"), name, **settings)(command)
        return command

    return add


def with_kernels(pattern: str, *words: str, suites: bool = True) -> Callable[[Command], Command]:
    """Add the argument with names of kernels; `words` are further names."""
    kind = Named("KERNEL", suites=suites, families=True, words=words)
    return click.argument("kernels", nargs=-1, metavar=pattern, type=kind)
